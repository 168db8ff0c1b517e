"""Graphs that pictures are tested with.

``python -m tests.pictures.graphs`` writes their pictures to ``tests/pictures/golden``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.module_path import dotted
from gpujit.ir.parser import parse_graph
from gpujit.ir.source import CallSite, Source, SourceRange
from gpujit.pictures.build import Mark, picture_of
from gpujit.pictures.dot import dot_of
from gpujit.pictures.model import Picture
from gpujit.pictures.svg import svg_of
from gpujit.testing import resolve_node

GOLDEN = Path(__file__).parent / "golden"

# Longer than any label, and with something for each reader that takes text for more than text.
HOSTILE = "</title><script>alert(1)</script>\"'&\x1b[31m\n\\n\\l]]>\u202e" + "x" * 10_000


def parsed(text: str) -> Graph:
    return parse_graph(text, resolve=resolve_node)


def layers() -> Picture:
    """Two modules, one inside the other, with a residual, a constant argument and a list."""
    graph = parsed(
        """
        graph(%x : Float(2, 4), %y : Tensor):
          %one : int = prim::Constant[value=1]()
          %two : int = prim::Constant[value=2]()
          %none : NoneType = prim::Constant()
          %a : Float(2, 4) = aten::relu(%x)
          %b : Float(2, 4) = aten::add(%a, %x, %two)
          %c : Float(2, 4) = aten::softmax(%b, %one, %none)
          %list : Tensor[] = prim::ListConstruct(%c, %x)
          %d : Float(4, 4) = aten::cat(%list, %one)
          return (%d)"""
    )
    graph.name = "layers"
    for node, path in zip(
        (n for n in graph.nodes if n.kind in ("aten::relu", "aten::add", "aten::softmax")),
        ("block.act", "block", "block"),
        strict=True,
    ):
        node.call = CallSite("f", None, None, path)
        node.source = SourceRange(Source("code/m.py", "a\n  b = relu(x)\n"), 2, 2, 2, 10)
    return picture_of(graph)


def branches() -> Picture:
    """A branch, a loop and a group, with what runs two of them."""
    graph = parsed(
        """
        graph(%x : Tensor, %n : int, %flag : bool):
          %true : bool = prim::Constant[value=1]()
          %one : int = prim::Constant[value=1]()
          %y : Tensor = prim::If(%flag)
            block0():
              %a : Tensor = aten::neg(%x)
              -> (%a)
            block1():
              -> (%x)
          %z : Tensor = prim::Loop(%n, %true, %y)
            block0(%i : int, %s : Tensor):
              %t : Tensor = aten::add(%s, %i, %one)
              -> (%true, %t)
          %g : Tensor = prim::FusionGroup_0(%z)
          return (%g)
        with prim::FusionGroup_0 = graph(%p : Tensor):
          %q : Tensor = aten::exp(%p)
          %r : Tensor = aten::tanh(%q)
          return (%r)"""
    )
    graph.name = "branches"
    marks = {}
    for node in graph.all_nodes():
        if node.kind == "prim::FusionGroup":
            marks[node] = Mark(("tier-native-kernel",), (("tier", "native kernel"),))
        elif node.kind == "aten::neg":
            marks[node] = Mark(("tier-numpy",), (("tier", "numpy"), ("why", "no kernel")))
    return picture_of(graph, marks=marks)


PICTURES: dict[str, Callable[[], Picture]] = {"layers": layers, "branches": branches}


def many(count: int, seed: int = 0, *, depth: int = 0, reach: int = 30) -> Graph:
    """A graph of ``count`` operators, each reading the one before and one of ``reach`` before that; in modules up to
    ``depth`` deep."""
    draw = random.Random(seed)
    graph = Graph("many")
    values: list[Value] = [graph.add_input(name=f"x{i}") for i in range(3)]
    for i in range(count):
        node = Node("aten::add", [values[-1], values[max(0, len(values) - 2 - draw.randrange(reach))]])
        path = ""
        for level in range(depth):
            path = dotted(path, f"m{i // (20 * (depth - level)) % 9}")
        node.call = CallSite("f", None, None, path)
        graph.block.append(node)
        values.append(node.add_output(name=f"v{i}"))
    graph.add_output(values[-1])
    return graph


def forms(picture: Picture) -> dict[str, str]:
    """The picture in each form that is kept."""
    return {"svg": svg_of(picture), "dot": dot_of(picture)}


def main() -> None:
    """Write the golden pictures anew."""
    GOLDEN.mkdir(exist_ok=True)
    for name, make in PICTURES.items():
        for form, text in forms(make()).items():
            (GOLDEN / f"{name}.{form}").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
