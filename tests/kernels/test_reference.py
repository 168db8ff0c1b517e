"""The NumPy renderer: its two ways agree, reductions follow PyTorch, faults are found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.ir import scalar
from gpujit.ir.scalar import Expr
from gpujit.kernels.index import dim, value
from gpujit.kernels.reference import run
from gpujit.kernels.reference_tiles import run_tiles
from gpujit.kernels.tile import TileError, TileProgram
from gpujit.kernels.tile_build import Builder
from gpujit.kernels.tile_text import parse_program
from gpujit.support.errors import OpError
from tests.kernels.random_programs import assert_close, cases

F32, I64 = np.dtype("f4"), np.dtype("i8")


@settings(max_examples=150)
@given(cases(), st.integers(1, 4))
def test_tile_by_tile_equals_whole(case, length) -> None:
    whole, tiled = case.fresh(), case.fresh()
    run(case.program, whole.inputs, whole.outputs, case.sizes, case.params)
    run_tiles(case.program, tiled.inputs, tiled.outputs, case.sizes, case.params, tile=(length,) * case.program.dims)
    assert_close(tiled.outputs, whole.outputs, case.program.text)


@settings(max_examples=80)
@given(cases())
def test_text_reads_back(case) -> None:
    text = case.program.text
    again = parse_program(text)
    assert again == case.program and again.text == text and again.key == case.program.key


def reduction(op: str, x: np.ndarray, rows: int, tiles: bool = False) -> np.ndarray:
    """One reduction over the last ``rows`` dims."""
    builder = Builder(x.ndim, rows)
    at = tuple(dim(d) for d in range(x.ndim))
    y = scalar.reduce(op, builder.load(builder.input(x.dtype, x.ndim), at))
    scan = op in scalar.SCANS
    builder.store(builder.output(y.dtype, x.ndim if scan else x.ndim - rows), at if scan else at[: x.ndim - rows], y)
    out = np.full(x.shape if scan else x.shape[: x.ndim - rows], 7, y.dtype)
    if tiles:
        run_tiles(builder.finish(), [x], [out], x.shape)
    else:
        run(builder.finish(), [x], [out], x.shape)
    return out


@pytest.mark.parametrize("tiles", [False, True])
def test_reductions(tiles: bool) -> None:
    x = np.array([[3, -1, 2, 3], [0, 5, -7, 1]], F32)
    for op, want in (
        ("sum", [7, -1]), ("prod", [-18, 0]), ("max", [3, 5]), ("min", [-1, -7]), ("argmax", [0, 1]),
        ("argmin", [1, 2]), ("cumsum", [[3, 2, 4, 7], [0, 5, -2, -1]]), ("cumprod", [[3, -3, -6, -18], [0, 0, 0, 0]]),
    ):  # fmt: skip
        got = reduction(op, x, 1, tiles)
        np.testing.assert_array_equal(got, want, err_msg=op)
        assert got.dtype == (I64 if op.startswith("arg") else F32)
    assert reduction("sum", x, 2, tiles) == 6 and reduction("argmax", x, 2, tiles) == 5
    b = np.array([[True, False], [True, True]])
    np.testing.assert_array_equal(reduction("any", ~b, 1, tiles), [True, False])
    np.testing.assert_array_equal(reduction("all", b, 1, tiles), [False, True])


@pytest.mark.parametrize("tiles", [False, True])
def test_nan_wins_and_the_first_of_equals_is_found(tiles: bool) -> None:
    x = np.array([[1, math.nan, 9, math.nan], [4, 4, 1, 1], [-math.inf, -math.inf, -math.inf, -math.inf]], F32)
    np.testing.assert_array_equal(reduction("max", x, 1, tiles), [math.nan, 4, -math.inf])
    np.testing.assert_array_equal(reduction("argmax", x, 1, tiles), [1, 0, 0])
    np.testing.assert_array_equal(reduction("argmin", x, 1, tiles), [1, 2, 0])


@pytest.mark.parametrize("tiles", [False, True])
def test_empty_rows(tiles: bool) -> None:
    x = np.zeros((2, 0), F32)
    np.testing.assert_array_equal(reduction("sum", x, 1, tiles), [0, 0])
    np.testing.assert_array_equal(reduction("prod", x, 1, tiles), [1, 1])
    with pytest.raises(TileError, match="max of an empty row"):
        reduction("max", x, 1, tiles)
    assert reduction("max", np.zeros((0, 2), F32), 1, tiles).shape == (0,)
    assert reduction("max", np.zeros((0, 0), F32), 1, tiles).shape == (0,)


def test_integers_wrap() -> None:
    x = np.array([np.iinfo(np.int32).max, 1], np.int32)
    assert reduction("sum", x, 1) == np.iinfo(np.int32).min


def gather(mask: bool) -> TileProgram:
    builder = Builder(1)
    rows, at = builder.input(F32, 1), builder.input(I64, 1)
    where = builder.load(at, (dim(0),))
    ok = scalar.apply("ge", where, scalar.const(0, I64))
    builder.store(builder.output(F32, 1), (dim(0),), builder.load(rows, (value(where),), ok if mask else None, 5.0))
    return builder.finish()


def test_gathers_check_their_range() -> None:
    table, at, out = np.arange(3, dtype=F32), np.array([2, -1]), np.zeros(2, F32)
    run(gather(True), [table, at], [out], (2,))
    np.testing.assert_array_equal(out, [2, 5])
    with pytest.raises(TileError, match=r"%0 is -1 in dim 0 of an array of shape \(3,\)"):
        run(gather(False), [table, at], [out], (2,))


def test_checks_stop_the_run() -> None:
    builder = Builder(1)
    x = builder.load(builder.input(I64, 1), (dim(0),))
    builder.check(scalar.apply("ne", x, scalar.const(0, I64)), "a zero")
    program = builder.finish()
    for runner in (run, run_tiles):
        runner(program, [np.array([1, 2, 3, 4])], [], (4,))
        with pytest.raises(OpError, match="a zero"):
            runner(program, [np.array([1, 2, 3, 0])], [], (4,))


def test_calls_are_looked_up() -> None:
    builder = Builder(1)
    x = builder.load(builder.input(F32, 1), (dim(0),))
    y = Expr("call", (x,), F32, "twice")
    builder.store(builder.output(F32, 1), (dim(0),), y)
    program, out = builder.finish(), np.zeros(2, F32)
    run(program, [np.array([1, 2], F32)], [out], (2,), functions=lambda name: {"twice": lambda a: a * 2}[name])
    np.testing.assert_array_equal(out, [2, 4])
    with pytest.raises(TileError, match="no function 'twice'"):
        run(program, [np.array([1, 2], F32)], [out], (2,))


def test_calls_that_do_not_fit_are_refused() -> None:
    program = gather(True)
    with pytest.raises(TileError, match="inputs are"):
        run(program, [np.zeros(3), np.zeros(2, int)], [np.zeros(2, F32)], (2,))
    with pytest.raises(TileError, match="2 sizes and 0 params, the program has 1 dims"):
        run(program, [np.zeros(3, F32), np.zeros(2, int)], [np.zeros(2, F32)], (2, 2))


def test_each_instruction_can_be_watched() -> None:
    seen = []
    table, at, out = np.arange(3, dtype=F32), np.array([2, 1]), np.zeros(2, F32)
    run(gather(True), [table, at], [out], (2,), watch=lambda number, result: seen.append((number, result.dtype)))
    assert [number for number, _ in seen] == list(range(len(gather(True).body)))
