"""Rows of special numbers in CPU kernels: NaN among maxima and minima, masks and denormals in softmax."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from gpujit.ir import scalar
from gpujit.kernels import cpu_launch, reference
from gpujit.kernels.cpu_launch import strides_of
from gpujit.kernels.cpu_plan import plan_nest
from gpujit.kernels.index import dim
from gpujit.kernels.target import host
from gpujit.kernels.tile import TileProgram
from gpujit.kernels.tile_build import Builder
from gpujit.support.config import config

F32, F64 = np.dtype("f4"), np.dtype("f8")


@pytest.fixture(params=[None, 4, 1], ids=["host", "narrow", "scalar"])
def width(request: pytest.FixtureRequest) -> Iterator[int]:
    with config(simd_width=request.param):
        yield host().width


def extremes(dtype: np.dtype) -> TileProgram:
    """The largest and the smallest element of each row d1."""
    builder = Builder(2, 1)
    x = builder.load(builder.input(dtype, 2), (dim(0), dim(1)))
    for name in ("max", "min"):
        builder.store(builder.output(dtype, 1), (dim(0),), scalar.reduce(name, x))
    return builder.finish()


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("axis", [1, 0], ids=["in rows", "across rows"])
@pytest.mark.parametrize("length", [12, 16, 17, 63, 64, 100, 197])
def test_a_maximum_knows_of_nan_anywhere(length: int, axis: int, dtype: np.dtype, width: int) -> None:
    """One row has it at each place, one nowhere, and the last ones among infinities."""
    x = np.random.default_rng(length).standard_normal((length + 4, length)).astype(dtype)
    x[np.arange(length), np.arange(length)] = np.nan
    # With the sign, which makes it the smallest of all numbers where bits are compared.
    x[np.arange(0, length, 2), np.arange(0, length, 2)] *= -1
    x[-3], x[-2] = np.inf, -np.inf
    x[-1], x[-1, -1] = np.nan, 0
    given = x if axis else np.asfortranarray(x)
    wanted, found = ([np.empty(len(x), dtype) for _ in range(2)] for _ in range(2))
    reference.run(extremes(dtype), [given], wanted, x.shape)
    cpu_launch.run(extremes(dtype), [given], found, x.shape)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.isnan(found[0]).sum() == length + 1 and (found[0][-3:-1] == [np.inf, -np.inf]).all()


def test_a_maximum_of_numbers_that_are_not_there(width: int) -> None:
    """What lanes behind a row's end hold is no number of the row, NaN of nothing included."""
    builder = Builder(2, 1)
    x = builder.load(builder.input(F32, 2), (dim(0), dim(1)))
    builder.store(builder.output(F32, 1), (dim(0),), scalar.reduce("max", scalar.apply("div", x, x)))
    x = np.random.default_rng(0).standard_normal((5, 77)).astype(F32) + 9
    out = np.empty(5, F32)
    cpu_launch.run(builder.finish(), [x], [out], x.shape)
    np.testing.assert_array_equal(out, np.ones(5, F32))


def softmax(log: bool) -> TileProgram:
    builder = Builder(2, 1)
    x = builder.load(builder.input(F32, 2), (dim(0), dim(1)))
    less = scalar.apply("sub", x, scalar.reduce("max", x))
    e = scalar.apply("exp", less)
    total = scalar.reduce("sum", e)
    y = scalar.apply("sub", less, scalar.apply("log", total)) if log else scalar.apply("div", e, total)
    builder.store(builder.output(F32, 2), (dim(0), dim(1)), y)
    return builder.finish()


@pytest.mark.parametrize("length", [15, 48, 64, 77, 300])
@pytest.mark.parametrize("masked", [-np.inf, np.finfo(F32).min, -1e9, -1e4, -104.5, -103.5, -95.0, -88.0])
@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
def test_softmax_of_masked_rows(log: bool, masked: float, length: int, width: int) -> None:
    rng = np.random.default_rng(length)
    x = rng.standard_normal((6, length)).astype(F32)
    x[rng.random(x.shape) < 0.5] = masked
    x[:, 3] = 0.5
    x[5, 1] = np.nan
    out = np.empty_like(x)
    cpu_launch.run(softmax(log), [x], [out], x.shape)
    wide = (x - x.max(1, keepdims=True)).astype(F64)
    e = np.exp(wide)
    want = wide - np.log(e.sum(1, keepdims=True)) if log else e / e.sum(1, keepdims=True)
    assert np.isnan(out[5]).all()
    # Some places of the last denormal number.
    np.testing.assert_allclose(out[:5], want[:5].astype(F32), 2e-6, 3e-45)


def test_memory_of_results_is_asked_for_while_a_long_run_computes() -> None:
    x = np.zeros((50, 1000), F32)
    for log in (False, True):
        call = plan_nest(softmax(log), [strides_of(x)], [strides_of(x)], x.shape, (), host().width)
        # Softmax keeps its exponentials where the result goes, and so touches that memory before.
        assert bool(call.nest.written_later) == log
        assert call.nest.exponentials_below
