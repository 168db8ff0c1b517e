"""Static modules of loaded models, beside what the interpreter computes."""

from __future__ import annotations

import copy
import json
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gpujit
from gpujit.fuser.fuse import fuse
from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.ir.verify import verify
from gpujit.passes.specialise.main import Specialised
from gpujit.runtime.executor import Executor
from gpujit.runtime.fused import FusedStep
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.values import bind_arguments
from gpujit.runtime.vm import Interpreter
from gpujit.static_runtime.makers import native_step
from gpujit.static_runtime.module import PlannedGraph
from gpujit.static_runtime.native import Maker
from gpujit.static_runtime.steps import Options
from gpujit.support.config import config
from gpujit.testing import resolve_node
from tests.compare import from_meta

DEFAULT = Options()
CORPUS = Path(__file__).parents[1] / "models" / "corpus"


@dataclass
class Pair:
    """A planned graph and the same graph run by the interpreter with fused groups."""

    static: PlannedGraph
    values: list[Any]
    specialised: Specialised
    executor_code: Any

    def interpreted(self, values: Sequence[Any]) -> Any:
        with np.errstate(all="ignore"):
            return Interpreter(Lowerer(np)).run(self.executor_code, values)

    def planned(self, values: Sequence[Any], **options: Any) -> Any:
        return self.static.run(values, **options)


def read_case(path: Path) -> list[Any]:
    """The inputs of a model of the corpus."""
    with np.load(path.with_suffix(".npz")) as stored:
        arrays = {k: stored[k] for k in stored.files if k != "meta"}
        meta = json.loads(str(stored["meta"]))
    return [from_meta(m, arrays) for m in meta["inputs"]]


def pair(
    module: gpujit.ScriptModule, inputs: Sequence[Any], options: Options = DEFAULT, method: str = "forward"
) -> Pair:
    """The pair for a loaded module and inputs."""
    function = module._object.type.methods[method]
    values = [module._object, *bind_arguments(function.schema, inputs, {}, skip=1)]
    executor = Executor(function, module._program.lowerer.rules, lambda values: None, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = executor.prepare(values)
    lowerer = Lowerer(np, module._program.lowerer.rules)
    lowerer.fused = {n: s for n, s in plan.steps.items() if isinstance(s, FusedStep)}
    static = PlannedGraph(plan.graph, plan.fused.programs, lowerer, options)
    return Pair(static, values, plan.specialised, plan.code)


def own(values: Sequence[Any]) -> list[Any]:
    """The values with copies of all arrays; the object is shared."""
    return [values[0], *copy.deepcopy(list(values[1:]))]


def from_text(text: str, options: Options = DEFAULT, maker: Maker | None = None) -> PlannedGraph:
    """The static module of a typed graph given as text, fused first."""
    graph = parse_graph(textwrap.dedent(text).strip(), resolve=resolve_node)
    verify(graph)
    return from_graph(graph, options, maker)


def from_graph(graph: Graph, options: Options = DEFAULT, maker: Maker | None = None) -> PlannedGraph:
    """The static module of a typed graph, fused first. Products are operators unless a maker is given."""
    fused = fuse(graph)
    return PlannedGraph(graph, fused.programs, Lowerer(np), options, maker)


def native_plan(
    head: str,
    lines: str,
    result: str,
    given: Sequence[Any],
    constants: Sequence[Any],
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> PlannedGraph:
    """The plan, with native steps, of a graph whose lines follow a head: it computes what is interpreted, and
    leaves its inputs as the interpreter does."""
    body = textwrap.indent(textwrap.dedent(lines).strip(), "  ")
    graph = parse_graph(f"{head.strip()}\n{body}\n  return ({result})", resolve=resolve_node, constants=constants)
    verify(graph)
    left = copy.deepcopy(list(given))
    wanted = run_graph(graph, left)
    module = from_graph(graph, maker=native_step)
    for check in (False, True, False):
        values = copy.deepcopy(list(given))
        with config(check_plan=check):
            got = module.run(values)
        for g, w in zip(got, wanted, strict=True) if isinstance(wanted, tuple) else [(got, wanted)]:
            assert g.dtype == w.dtype
            np.testing.assert_allclose(g.astype(np.float32), w.astype(np.float32), rtol, atol)
        for g, w in zip(values, left, strict=True):
            np.testing.assert_array_equal(g, w)
    return module


def run_graph(graph: Graph, values: Sequence[Any]) -> Any:
    """What the interpreter makes of a graph."""
    lowerer = Lowerer(np)
    with np.errstate(all="ignore"):
        return Interpreter(lowerer).run(lowerer.graph_code(graph), list(values))


def f32(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
