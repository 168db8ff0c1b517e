from __future__ import annotations

from pathlib import Path

import gpujit
from gpujit import nn
from gpujit.ir.graph import Graph
from gpujit.ir.module_path import dotted, joined, module_path, object_path
from gpujit.ir.source import CallSite

EXAMPLE = Path(__file__).parents[2] / "examples" / "classifier.pt"


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: gpujit.Tensor) -> gpujit.Tensor:
        return self.lin(x).relu()


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Inner(), Inner())
        self.head = nn.Linear(4, 2)

    def forward(self, x: gpujit.Tensor) -> gpujit.Tensor:
        return self.head(self.blocks(x)).sigmoid()


def paths(graph: Graph) -> list[tuple[str, str]]:
    return [(n.kind, module_path(n)) for n in graph.all_nodes() if n.kind.startswith("aten::")]


EXPECTED = [
    ("aten::linear", "blocks.0.lin"),
    ("aten::relu", "blocks.0"),
    ("aten::linear", "blocks.1.lin"),
    ("aten::relu", "blocks.1"),
    ("aten::linear", "head"),
    ("aten::sigmoid", ""),
]


def test_nodes_keep_the_path_of_their_module_through_inlining_and_freezing() -> None:
    module = gpujit.script(Outer().eval())
    assert paths(module.inlined_graph) == EXPECTED
    assert paths(gpujit.freeze(module).graph) == EXPECTED


def test_a_loaded_module_has_them_too() -> None:
    module = gpujit.load(EXAMPLE)
    found = {path for _, path in paths(gpujit.freeze(module.eval()).graph)}
    assert found - {""} <= {name for name, _ in module.named_modules()} and len(found) > 1


def test_an_object_that_is_not_reached_from_the_graphs_own_has_no_path() -> None:
    graph = Graph()
    assert object_path(graph.add_input()) is None
    outer = gpujit.script(Outer()).graph
    assert object_path(outer.inputs[0]) == "" and object_path(outer.inputs[1]) is None


def test_paths_of_joined_call_stacks_start_at_the_outermost_object() -> None:
    inner = CallSite("f", None, CallSite("g", None, None, "a"), "a.b")
    found = joined(inner, CallSite("h", None, None, "x"))
    assert found is not None and [s.module for s in found.frames()] == ["x.a.b", "x.a", "x"]
    assert joined(None, inner) is inner and joined(inner, None) is inner and joined(None, None) is None
    assert dotted("", "b") == "b" and dotted("a", "") == "a" and dotted("a", "b") == "a.b"
