"""Tuning: the same numbers by the tile that was measured, which is remembered."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from gpujit.ir import scalar
from gpujit.kernels import autotune, cache, cpu_launch
from gpujit.kernels.autotune import tuned
from gpujit.kernels.cpu_nest import BY_RULE, Geometry, Tile
from gpujit.kernels.cpu_plan import plan_nest
from gpujit.kernels.index import dim, value
from gpujit.kernels.target import host
from gpujit.kernels.tile_build import Builder
from gpujit.support.config import config

F32 = np.dtype("f4")


def transposed_sum() -> Geometry:
    """a.T + b, whose lanes may lie along either dim."""
    builder = Builder(2)
    a, b = (builder.load(builder.input(F32, 2), (dim(0), dim(1))) for _ in range(2))
    builder.store(builder.output(F32, 2), (dim(0), dim(1)), scalar.apply("add", a, b))
    return Geometry(builder.finish(), ((1, 70), (90, 1)), ((90, 1),), (70, 90), ())


def softmax() -> Geometry:
    builder = Builder(2, 1)
    x = builder.load(builder.input(F32, 2), (dim(0), dim(1)))
    e = scalar.apply("exp", scalar.apply("sub", x, scalar.reduce("max", x)))
    builder.store(builder.output(F32, 2), (dim(0), dim(1)), scalar.apply("div", e, scalar.reduce("sum", e)))
    return Geometry(builder.finish(), ((50, 1),), ((50, 1),), (33, 50), ())


@pytest.mark.parametrize("geometry", [transposed_sum(), softmax()], ids=["transposed", "softmax"])
def test_every_candidate_computes_the_same(geometry: Geometry) -> None:
    usual = plan_nest(*geometry, host().width)
    candidates = list(autotune._candidates(usual))
    assert len(candidates) > 1
    memory = autotune._memory(geometry, usual)
    assert memory is not None
    autotune._Run(usual, memory)
    wanted = memory[-1].copy()
    for tile in candidates:
        memory[-1][:] = 7
        autotune._Run(plan_nest(*geometry, host().width, tile), memory)
        np.testing.assert_allclose(memory[-1], wanted, rtol=1e-6, err_msg=str(tile))


def test_what_was_measured_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    geometry = softmax()
    chosen = Tile(1, 2, None)
    monkeypatch.setattr(autotune, "_fastest", lambda g: (chosen, "measured"))
    assert tuned(geometry) == chosen
    monkeypatch.setattr(autotune, "_fastest", lambda g: pytest.fail("measured again"))
    assert tuned(geometry) == chosen
    store = cache.store()
    assert store is not None and any(e.kind == cache.TUNED for e in store.entries())


def test_a_tile_must_be_clearly_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    geometry = transposed_sum()
    monkeypatch.setattr(autotune._Run, "seconds", lambda self: 1.0)
    assert autotune._fastest(geometry)[0] == BY_RULE


def test_indexes_from_data_are_not_made_up() -> None:
    builder = Builder(1)
    at = builder.load(builder.input(np.dtype("i8"), 1), (dim(0),))
    x = builder.load(builder.input(F32, 1), (value(at),))
    builder.store(builder.output(F32, 1), (dim(0),), x)
    geometry = Geometry(builder.finish(), ((1,), (1,)), ((1,),), (40,), ())
    assert autotune._fastest(geometry) == (BY_RULE, "not measured")


def test_the_switch_is_obeyed() -> None:
    geometry = transposed_sum()
    a, b = np.random.default_rng(0).random((2, 90, 70), F32)
    b = np.ascontiguousarray(b.T)
    out = np.empty((70, 90), F32)
    with config(autotune=True):
        cpu_launch.run(geometry.program, [a.T, b], [out], geometry.sizes)
    np.testing.assert_allclose(out, a.T + b, rtol=1e-6)
