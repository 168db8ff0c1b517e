"""What comes before a product or convolution: made by its step against a step of its own, in one interleaved run.

    PYTHONPATH=. python bench/starts.py [--threads 1] [--rounds 41] [--only conv] [--always]

Microseconds are minima over the rounds; with one thread they are processor time. ``--always`` also fuses what the cost
model refuses, and shows what that would cost.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np

from gpujit.fuser.fuse import fuse
from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime import decide
from gpujit.static_runtime.makers import native_step
from gpujit.static_runtime.module import PlannedGraph
from gpujit.static_runtime.steps import Options
from gpujit.support.config import config
from gpujit.testing import resolve_node

BEFORE = {
    "layer norm": "%y : {} = aten::layer_norm(%x, %size, %g, %g, %eps, %no)",
    "gelu": "%y : {} = aten::gelu(%x, %none)",
    "relu": "%y : {} = aten::relu(%x)",
    "batch norm, relu": """%b : {0} = aten::batch_norm(%x, %g, %g, %g, %g, %no, %eps, %eps, %no)
  %y : {0} = aten::relu(%b)""",
}
LINEAR = (
    ("layer norm", 1, 768, 768), ("layer norm", 128, 256, 768), ("layer norm", 512, 768, 768), ("gelu", 512, 3072, 768),
    ("relu", 64, 256, 512), ("relu", 4096, 64, 64),
)  # fmt: skip
# Images, channels, filters, height and width, kernel.
CONV = (
    ("relu", 1, 16, 8, 112, 3), ("relu", 1, 64, 64, 56, 3), ("batch norm, relu", 8, 64, 64, 28, 3),
    ("batch norm, relu", 1, 1024, 128, 7, 1), ("batch norm, relu", 1, 256, 128, 28, 1),
)  # fmt: skip
HEAD = """graph(%x : {x}):
  %w : {w} = prim::Constant[value=CONSTANTS.c0]()
  %bias : {bias} = prim::Constant[value=CONSTANTS.c1]()
  %g : {g} = prim::Constant[value=CONSTANTS.c2]()
  %n : int = prim::Constant[value={n}]()
  %one : int = prim::Constant[value=1]()
  %p : int = prim::Constant[value={padding}]()
  %eps : float = prim::Constant[value=1e-05]()
  %no : bool = prim::Constant[value=0]()
  %none : str = prim::Constant[value="none"]()
  %size : int[] = prim::ListConstruct(%n)
  %ones : int[] = prim::ListConstruct(%one, %one)
  %border : int[] = prim::ListConstruct(%p, %p)
  {before}
  %z : {z} = {call}
  return (%z)"""


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def graph(before: str, x: tuple[int, ...], w: tuple[int, ...], z: tuple[int, ...], call: str) -> Graph:
    """The operators of a case; normalisation goes over the second dim of the weights."""

    def typed(*shape: int) -> str:
        return f"Float({', '.join(map(str, shape))})"

    text = HEAD.format(
        x=typed(*x), w=typed(*w), bias=typed(w[0]), g=typed(w[1]), n=w[1], padding=w[-1] // 2 if len(w) == 4 else 0,
        before=BEFORE[before].format(typed(*x)), z=typed(*z), call=call,
    )  # fmt: skip
    constants = [numbers(*w) / w[1], numbers(w[0]), np.abs(numbers(w[1])) + 0.5]
    return parse_graph(text, resolve=resolve_node, constants=constants)


def cases() -> Iterator[tuple[str, Callable[[], Graph], tuple[int, ...]]]:
    for before, m, k, n in LINEAR:
        call = "aten::linear(%y, %w, %bias)"
        yield (
            f"{before}, linear {m}x{k} to {n}",
            lambda b=before, m=m, k=k, n=n, c=call: graph(b, (m, k), (n, k), (m, n), c),
            (m, k),
        )
    for before, images, channels, filters, size, kernel in CONV:
        x, z = (images, channels, size, size), (images, filters, size, size)
        call = "aten::conv2d(%y, %w, %bias, %ones, %border, %ones, %one)"
        yield (
            f"{before}, conv {kernel}x{kernel} of {images}x{channels}x{size}x{size} to {filters}",
            lambda b=before, x=x, w=(filters, channels, kernel, kernel), z=z, c=call: graph(b, x, w, z, c),
            x,
        )


def planned(make: Callable[[], Graph], given: list[np.ndarray], fused: bool) -> PlannedGraph:
    """The plan of a graph, with operands made in the steps that read them or not."""
    put = decide.Decisions.put_starts
    if not fused:
        decide.Decisions.put_starts = lambda self, asked: None  # type: ignore[method-assign]
    try:
        made = make()
        module = PlannedGraph(made, fuse(made).programs, Lowerer(np), Options(), native_step)
        module.run(given)
    finally:
        decide.Decisions.put_starts = put  # type: ignore[method-assign]
    return module


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--only", default="")
    parser.add_argument("--always", action="store_true")
    arguments = parser.parse_args()
    if arguments.always:
        decide.why_not_worth = lambda *given: ""
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    with config(threads=arguments.threads):
        for name, make, shape in cases():
            if arguments.only not in name:
                continue
            given = [numbers(*shape)]
            modules = [planned(make, given, fused) for fused in (True, False)]
            np.testing.assert_allclose(modules[0].run(given), modules[1].run(given), rtol=1e-3, atol=1e-3)
            best = [float("inf")] * 2
            start = time.perf_counter()
            modules[0].run(given)
            turns = max(1, int(0.005 / (time.perf_counter() - start)))
            for number in range(arguments.rounds):
                for k in (0, 1) if number % 2 else (1, 0):
                    start = clock()
                    for _ in range(turns):
                        modules[k].run(given)
                    best[k] = min(best[k], (clock() - start) / turns)
            plan = modules[0].plan(given)
            why = "; ".join(plan.apart.values()) or f"{best[1] / best[0]:.3f} times as fast"
            print(f"{name:55} {best[0] * 1e6:9.1f} {best[1] * 1e6:9.1f}  {why}", flush=True)


if __name__ == "__main__":
    main()
