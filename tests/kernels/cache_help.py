"""Small kernels, each another one, and empty caches, for tests of where kernels come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from gpujit.kernels import build, cpu_launch, cuda_cache, supply
from gpujit.kernels.cpu_nest import Nest
from gpujit.kernels.cpu_plan import plan_nest
from gpujit.kernels.promises import Counters, Promises
from gpujit.kernels.tile import TileProgram
from gpujit.kernels.tile_text import parse_program
from gpujit.support.config import config

SCALED = """\
tile(a0: float32[1]) -> (o0: float32[1])
  for d0 < n0
  %0: float32 = load a0[d0]
  %1: float32 = const {factor}
  %2: float32 = mul %0, %1
  store o0[d0], %2
"""
# A function of an operator's own, which no renderer has code for.
UNKNOWN = """\
tile(a0: float32[1]) -> (o0: float32[1])
  for d0 < n0
  %0: float32 = load a0[d0]
  %1: float32 = call "mystery" %0
  store o0[d0], %1
"""


@contextmanager
def own_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, and nothing in memory."""
    forget(monkeypatch)
    with config(cache_dir=str(folder), threads=1):
        yield folder


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a new process would not know."""
    for module in (supply, cuda_cache):
        monkeypatch.setattr(module, "_kernels", Promises())
        monkeypatch.setattr(module, "counters", Counters())
    monkeypatch.setattr(supply, "_libraries", [])
    monkeypatch.setattr(cpu_launch, "_planned", {})
    monkeypatch.setattr(build, "counters", build.Counters())


def scaled(factor: float) -> TileProgram:
    """``x * factor`` over one dim."""
    return parse_program(SCALED.format(factor=float(factor)))


def unknown() -> TileProgram:
    return parse_program(UNKNOWN)


def geometry(program: TileProgram, size: int = 5) -> cpu_launch.Geometry:
    return cpu_launch.Geometry(program, ((1,),), ((1,),), (size,), ())


def nest(program: TileProgram) -> Nest:
    return plan_nest(program, [(1,)], [(1,)], [5], [], 4).nest


def run(program: TileProgram, numbers: Sequence[float] = (1, 2, 3, 4, 5)) -> list[float]:
    """What the program's kernel makes of some numbers."""
    x = np.array(numbers, np.float32)
    y = np.zeros_like(x)
    cpu_launch.run(program, [x], [y], [len(x)])
    return [float(v) for v in y]
