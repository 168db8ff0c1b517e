"""The static runtime: time of a native step, of a whole call against the interpreter with fused groups, and memory.

Usage: python bench/plan.py [--corpus FOLDER] [--only NAME] [--json OUT] [--rounds 9]

Without a folder: a chain of native steps (nanoseconds a step), Static Runtime's own benchmark ``deep_wide``, plans for
inputs of new sizes, and the tiny corpus of the tests. With one (how to make one: docs/models.md) each model in it:
planned once, run, compared with the interpreter; a line each with the arena against the most bytes alive at one step,
and what runs its nodes.
Times are the shortest of interleaved rounds, in microseconds: other work on the machine only ever adds to them.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import sys
import textwrap
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gpujit
from gpujit.fuser.fuse import fuse
from gpujit.ir.parser import parse_graph
from gpujit.runtime.fused import FusedStep
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.vm import Interpreter
from gpujit.static_runtime.module import PlannedGraph
from gpujit.testing import assert_same_values, resolve_node
from tests.static_runtime.help import CORPUS, Pair, pair, read_case

SHORTEST = 0.003
# Small models with random weights move by this much when sums are added up in another order.
FURTHEST = 1e-2

DEEP_WIDE = """
    graph(%ad : Float(1, 1, 32), %user : Float(1, 1, 32), %wide : Float(1, 50)):
      %mu : Float(1, 50) = prim::Constant[value=CONSTANTS.c0]()
      %sigma : Float(1, 50) = prim::Constant[value=CONSTANTS.c1]()
      %w : Float(51, 1) = prim::Constant[value=CONSTANTS.c2]()
      %b : Float(1) = prim::Constant[value=CONSTANTS.c3]()
      %one : int = prim::Constant[value=1]()
      %two : int = prim::Constant[value=2]()
      %end : int = prim::Constant[value=-1]()
      %low : float = prim::Constant[value=-10.]()
      %high : float = prim::Constant[value=10.]()
      %1 : Float(1, 50) = aten::add(%wide, %mu, %one)
      %2 : Float(1, 50) = aten::mul(%1, %sigma)
      %3 : Float(1, 50) = aten::clamp(%2, %low, %high)
      %4 : Float(1, 32, 1) = aten::transpose(%user, %one, %two)
      %5 : Float(1, 1, 1) = aten::bmm(%ad, %4)
      %6 : Float(1, 1) = aten::flatten(%5, %one, %end)
      %7 : Tensor[] = prim::ListConstruct(%6, %3)
      %8 : Float(1, 51) = aten::cat(%7, %one)
      %9 : Float(1, 1) = aten::addmm(%b, %8, %w, %one, %one)
      %10 : Float(1, 1) = aten::sigmoid(%9)
      return (%10)"""


def times(calls: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Microseconds of each call, from interleaved rounds."""
    repeats = []
    for call in calls:
        call()
        start = time.perf_counter()
        call()
        repeats.append(max(1, int(SHORTEST / max(time.perf_counter() - start, 1e-7))))
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for k, call in enumerate(calls):
            start = time.perf_counter()
            for _ in range(repeats[k]):
                call()
            found[k].append((time.perf_counter() - start) / repeats[k] * 1e6)
    return [min(f) for f in found]


def of_text(text: str, constants: Sequence[Any] = ()) -> tuple[PlannedGraph, Callable[[list[Any]], Any]]:
    """A static module of a graph, and the interpreter with fused groups on the same."""
    graph = parse_graph(textwrap.dedent(text).strip(), resolve=resolve_node, constants=constants)
    fused = fuse(graph)
    lowerer = Lowerer(np)
    lowerer.fused = {n: FusedStep(low, lambda *x: None, n) for n, low in fused.programs.items()}
    code = lowerer.graph_code(graph)
    return PlannedGraph(graph, fused.programs, Lowerer(np)), lambda v: Interpreter(lowerer).run(code, v)


def native_step(rounds: int, steps: int = 400) -> tuple[float, float]:
    """Nanoseconds of a step on 64 floats, and microseconds of a call of one such step."""

    def chain(count: int) -> PlannedGraph:
        lines = [f"  %{i + 1} : Float(64) = aten::neg(%{i})" for i in range(count)]
        graph = parse_graph("\n".join(["graph(%0 : Float(64)):", *lines, f"  return (%{count})"]), resolve=resolve_node)
        # Nothing is fused: each operator is a step of its own.
        return PlannedGraph(graph, {}, Lowerer(np))

    x = [np.ones(64, np.float32)]
    one, many = chain(1), chain(steps)
    short, long = times([lambda: one.run(x), lambda: many.run(x)], rounds)
    return (long - short) / (steps - 1) * 1e3, short


def deep_wide(rounds: int) -> tuple[float, float]:
    """Microseconds of deep_wide: planned, and interpreted with fused groups."""
    shapes = [(1, 1, 32), (1, 1, 32), (1, 50), (1, 50), (1, 50), (51, 1), (1,)]
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(s, dtype=np.float32) for s in shapes]
    values = arrays[:3]
    static, interpreted = of_text(DEEP_WIDE, arrays[3:])
    assert_same_values(static.run(values), interpreted(values))
    planned, plain = times([lambda: static.run(values), lambda: interpreted(values)], rounds)
    return planned, plain


def new_size(name: str, sizes: int = 8) -> float:
    """Milliseconds of processor time that a plan for a new batch size takes, when kernels are there already."""
    path = CORPUS / f"{name}.pt"
    given = read_case(path)

    def inputs(n: int) -> list[Any]:
        return [np.repeat(x, n, axis=0) if isinstance(x, np.ndarray) and x.ndim > 1 else x for x in given]

    found: list[float] = []
    for _ in range(2):
        fast = gpujit.optimize_for_inference(gpujit.load(path).eval())
        for n in range(1, sizes + 1):
            took = []
            for _ in range(2):
                start = time.process_time()
                fast(*inputs(n))
                took.append(time.process_time() - start)
            found.append(took[0] - took[1])
    # The first module has them compiled.
    return sorted(found[sizes:])[sizes // 2] * 1e3


def model_case(path: Path) -> Pair:
    """A model of a corpus, frozen when it can be."""
    module = gpujit.load(path)
    with suppress(gpujit.GpujitError):
        module = gpujit.freeze(module.eval())
    return pair(module, read_case(path))


def distance(got: Any, want: Any) -> float:
    """How far floats are from each other, as a share of the largest. Raises AssertionError for other differences."""
    if isinstance(want, dict):
        got, want = list(got.values()), list(want.values())
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        return max((distance(g, w) for g, w in zip(got, want, strict=True)), default=0.0)
    if not isinstance(want, np.ndarray) or want.dtype.kind not in "fcV":
        assert_same_values(got, want)
        return 0.0
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = got.astype(wide), want.astype(wide)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(a[~finite], b[~finite])
    largest = float(np.abs(b[finite]).max(initial=1e-6))
    return float(np.abs(a - b)[finite].max(initial=0.0)) / largest


def row_of(path: Path, rounds: int) -> dict[str, Any]:
    """Facts and times of one model."""
    case = model_case(path)
    wanted = case.interpreted(case.values)
    start = time.perf_counter()
    plan = case.static.plan(case.values)
    took = time.perf_counter() - start
    apart = distance(case.planned(case.values), wanted)
    assert apart <= FURTHEST, f"planned and interpreted results are {apart:.1e} of the largest number apart"
    memory = case.static.memory()
    row: dict[str, Any] = {"plan_ms": took * 1e3, "arena": memory.arena, "bound": memory.bound}
    row |= {"separate": memory.separate, "overwritten": memory.overwritten, "kinds": Counter(plan.kinds.values())}
    row |= {"runs": len(plan.segments), "apart": apart}
    row["values"] = memory.planned
    if rounds:
        row["planned"], row["interpreted"] = times(
            [lambda: case.planned(case.values), lambda: case.interpreted(case.values)], rounds
        )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=Path, help="a folder of models; their calls are not timed unless --time")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--json", type=Path, help="a line for each model is added to this file")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.corpus is None:
        step, call = native_step(arguments.rounds)
        print(f"native step: {step:.0f} ns; a call of one step: {call:.2f} us")
        print(
            "deep_wide: planned {:.2f} us, interpreted with fused groups {:.2f} us".format(*deep_wide(arguments.rounds))
        )
        sizes = ", ".join(f"{name} {new_size(name):.1f} ms" for name in ("mlp", "resnet_script", "bert_trace"))
        print(f"a plan for a new size: {sizes}")
    timed = arguments.rounds if arguments.corpus is None or arguments.time else 0
    shares = []
    for path in sorted((arguments.corpus or CORPUS).rglob("*.pt")):
        if arguments.only not in path.stem:
            continue
        try:
            row = row_of(path, timed)
        except (AssertionError, gpujit.GpujitError, ValueError) as fault:
            print(f"FAIL {path.stem}: {type(fault).__name__}: {str(fault)[:300]!r}", flush=True)
            continue
        if row["bound"]:
            shares.append(row["arena"] / row["bound"])
        kinds = ", ".join(f"{n} {k}" for k, n in row["kinds"].most_common())
        text = f"{path.stem}: arena {row['arena']:,} = {row['arena'] / max(row['bound'], 1):.3f} x bound, "
        text += (
            f"{row['separate'] / max(row['arena'], 1):.1f} times that without sharing; {kinds} in {row['runs']} runs; "
        )
        text += f"planned in {row['plan_ms']:.0f} ms; {row['apart']:.0e} apart"
        if timed:
            text += f"; {row['planned']:.1f} us, interpreted {row['interpreted']:.1f} us"
        print(text, flush=True)
        if arguments.json is not None:
            with arguments.json.open("a", encoding="utf-8") as out:
                out.write(json.dumps({"name": path.stem, **row}) + "\n")
    good = sum(s <= 1.05 for s in shares)
    print(f"arena at most 1.05 x bound: {good} of {len(shares)}; largest {max(shares, default=0):.3f}")


if __name__ == "__main__":
    main()
