"""Ways in which CPU kernels walk arrays: kept values, squares, streams, divisors; each against NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from gpujit.ir import scalar
from gpujit.kernels import cpu_launch, cpu_plan
from gpujit.kernels.cpu_launch import strides_of
from gpujit.kernels.cpu_nest import Nest
from gpujit.kernels.cpu_plan import plan_nest
from gpujit.kernels.index import dim
from gpujit.kernels.target import host
from gpujit.kernels.tile import TileProgram
from gpujit.kernels.tile_build import Builder
from gpujit.support.config import config

F32, F64 = np.dtype("f4"), np.dtype("f8")


@pytest.fixture(params=[None, 4], ids=["host", "narrow"])
def width(request: pytest.FixtureRequest) -> Iterator[int]:
    with config(simd_width=request.param):
        yield host().width


def nest_of(
    program: TileProgram, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], sizes: Sequence[int]
) -> Nest:
    call = plan_nest(
        program, [strides_of(x) for x in inputs], [strides_of(x) for x in outputs], sizes, (), host().width
    )
    return call.nest


def softmax(axes: tuple[int, int], log: bool = False, scaled: bool = False) -> TileProgram:
    """Over d1; ``axes``: which of d0 and d1 index the arrays' dims. ``scaled`` by a second array."""
    coords = tuple(dim(k) for k in axes)
    builder = Builder(2, 1)
    x = builder.load(builder.input(F32, 2), coords)
    shifted = scalar.apply("sub", x, scalar.reduce("max", x))
    e = scalar.apply("exp", shifted)
    total = scalar.reduce("sum", e)
    y = scalar.apply("sub", shifted, scalar.apply("log", total)) if log else scalar.apply("div", e, total)
    if scaled:
        y = scalar.apply("mul", y, builder.load(builder.input(F32, 2), coords))
    builder.store(builder.output(F32, 2), coords, y)
    return builder.finish()


def softmax_of(x: np.ndarray, axis: int) -> np.ndarray:
    wide = x.astype(F64)
    e = np.exp(wide - wide.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 64), (2, 197), (70, 33), (9, 1000)])
@pytest.mark.parametrize("axis", [1, 0])
def test_values_are_kept_in_the_result(axis: int, shape: tuple[int, int], threads: int, width: int) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(F32) * 5
    program = softmax((0, 1) if axis else (1, 0))
    sizes = shape if axis else shape[::-1]
    want = softmax_of(x, axis)
    out = np.full((shape[0] + 2, shape[1]), 7, F32)
    with config(threads=threads):
        cpu_launch.run(program, [x], [out[1:-1]], sizes)
        np.testing.assert_allclose(out[1:-1], want, 2e-6, 1e-9)
        # Nothing around it is touched.
        assert (out[[0, -1]] == 7).all()
        # The result may lie where the operand is.
        cpu_launch.run(program, [x], [x], sizes)
    np.testing.assert_allclose(x, want, 2e-6, 1e-9)
    if min(shape) > width:
        nest = nest_of(program, [x], [x], sizes)
        in_registers = axis == 1 and shape[1] <= cpu_plan.WHOLE * width
        assert bool(nest.whole) == in_registers
        assert bool(nest.kept and nest.kept_in) != in_registers and not nest.scratch_bytes(sizes)


def test_a_result_in_the_place_of_another_operand_is_not_written_early() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 6, 200)).astype(F32)
    want = softmax_of(x, 1) * y
    program = softmax((0, 1), scaled=True)
    assert not nest_of(program, [x, y], [y], (6, 200)).kept_in
    cpu_launch.run(program, [x, y], [y], (6, 200))
    np.testing.assert_allclose(y, want, 1e-5, 1e-9)


def gelu_and_norm(transposed: bool = False) -> TileProgram:
    """Rows d1 of tanh(x) over a length of its own: less the mean, over the square root of the mean square below it."""
    builder = Builder(2, 1)
    x = builder.load(builder.input(F32, 2), (dim(1), dim(0)) if transposed else (dim(0), dim(1)))
    y = scalar.apply("tanh", scalar.apply("mul", scalar.apply("exp", x), x))
    less = scalar.apply("sub", y, scalar.reduce("max", y))
    total = scalar.reduce("sum", scalar.apply("mul", less, less))
    builder.store(builder.output(F32, 2), (dim(0), dim(1)), scalar.apply("div", less, scalar.apply("sqrt", total)))
    return builder.finish()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("transposed", [False, True], ids=["rows", "transposed"])
@pytest.mark.parametrize("length", [2, 4, 5, 8, 13, 16, 17, 31, 33, 48, 64, 65, 81, 130])
def test_a_long_computation_before_reductions(length: int, transposed: bool, threads: int, width: int) -> None:
    x = np.random.default_rng(length).standard_normal((7, length)).astype(F32)
    y = np.tanh(np.exp(x.astype(F64)) * x)
    less = y - y.max(1, keepdims=True)
    given = np.ascontiguousarray(x.T) if transposed else x
    out = np.full((9, length), 7, F32)
    with config(threads=threads):
        cpu_launch.run(gelu_and_norm(transposed), [given], [out[1:-1]], (7, length))
    np.testing.assert_allclose(out[1:-1], less / np.sqrt((less**2).sum(1, keepdims=True)), 1e-4, 1e-6)
    assert (out[[0, -1]] == 7).all()


def test_of_a_long_computation_only_the_end_is_kept(width: int) -> None:
    x = np.zeros((7, 1000), F32)
    program = gelu_and_norm()
    nest = nest_of(program, [x], [x], x.shape)
    (kept,) = nest.kept
    assert program.body[kept].op == "tanh"  # type: ignore[union-attr]
    assert nest.kept_in and not nest.scratch_bytes(x.shape)


def test_short_rows_stay_in_registers(width: int) -> None:
    program = softmax((0, 1))
    for vectors in range(1, cpu_plan.WHOLE + 1):
        for length, whole in ((vectors * width, "full"), (vectors * width - 1, "cut")):
            if length < cpu_plan.SHORT_ROW:
                continue
            x = np.zeros((50, length), F32)
            nest = nest_of(program, [x], [x], x.shape)
            assert (nest.whole, nest.unroll, nest.kept) == (whole, vectors, ())
    x = np.zeros((50, cpu_plan.WHOLE * width + 1), F32)
    assert not nest_of(program, [x], [x], x.shape).whole
    # What is long for each vector is not written out for many of them.
    x = np.zeros((50, cpu_plan.WHOLE * width), F32)
    assert not nest_of(gelu_and_norm(), [x], [x], x.shape).whole
    assert nest_of(gelu_and_norm(), [x[:, : 4 * width]], [x[:, : 4 * width]], (50, 4 * width)).whole


def test_rows_of_nothing_but_infinities() -> None:
    inf = np.inf
    x = np.array([[-inf] * 40, [0.0] + [-inf] * 39, [inf] + [0.0] * 39, [np.nan] + [0.0] * 39], F32)
    out = np.empty_like(x)
    cpu_launch.run(softmax((0, 1)), [x], [out], x.shape)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out, softmax_of(x, 1).astype(F32))


@pytest.mark.parametrize("length", [1, 17, 4096, 4097, 10_000])
def test_long_rows_take_one_run_for_maximum_and_sum(length: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_plan, "ONLINE", 1)
    program = softmax((0, 1), log=True)
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((8, length)) * 20).astype(F32)
    # Rising, falling, and rows of infinities in all places of blocks.
    x[1].sort()
    x[2] = np.sort(x[2])[::-1]
    x[3, : length // 2] = -np.inf
    x[4, length // 2 + 1 :] = -np.inf
    x[5] = -np.inf
    x[6, length // 3] = np.inf
    x[7, -1] = np.nan
    out = np.empty_like(x)
    assert nest_of(program, [x], [out], x.shape).online or length < width
    cpu_launch.run(program, [x], [out], x.shape)
    with np.errstate(invalid="ignore"):
        wide = x.astype(F64) - x.max(1, keepdims=True)
        want = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    np.testing.assert_allclose(out, want, 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("by", [1.0, 3.0, 6.0, 49.0, 7e5, 2.0**100, 1e35, 0.3])
def test_quotients_by_a_constant_are_those_of_divisions(by: float, dtype: np.dtype, width: int) -> None:
    """From 1 on nothing overflows on the way, so that no case is set apart."""
    info = np.finfo(dtype)
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny * by, by, -by]
    x = np.array([*special, *(rng.standard_normal(500) * 10.0 ** rng.integers(-9, 30, 500)), *np.arange(100)], dtype)
    builder = Builder(1)
    given = builder.load(builder.input(dtype, 1), (dim(0),))
    quotient = scalar.apply("div", given, scalar.const(by, dtype))
    builder.store(builder.output(dtype, 1), (dim(0),), quotient)
    out = np.empty_like(x)
    cpu_launch.run(builder.finish(), [x], [out], x.shape)
    with np.errstate(all="ignore"):
        want = x / dtype.type(by)
    usual = ~(np.abs(want) < info.tiny)
    np.testing.assert_array_equal(out[usual], want[usual])
    np.testing.assert_array_equal(np.signbit(out[want == 0]), np.signbit(want[want == 0]))


def quotient(dtype: np.dtype, axes: tuple[int, ...]) -> TileProgram:
    """x / y where y lies along d0 alone; the space's order follows ``axes``."""
    builder = Builder(2)
    coords = tuple(dim(k) for k in axes)
    x, y = builder.load(builder.input(dtype, 2), coords), builder.load(builder.input(dtype, 1), (dim(0),))
    builder.store(builder.output(dtype, 2), coords, scalar.apply("div", x, y))
    return builder.finish()


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_quotients_by_inverses_are_those_of_divisions(dtype: np.dtype, width: int) -> None:
    info = np.finfo(dtype)
    special = [0.0, -0.0, 1.0, -1.0, 3.0, 49.0, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny, 1e-30, 1e30]
    special += [info.smallest_subnormal, np.nextafter(dtype.type(1), dtype.type(2))]
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal(300) * 10.0 ** rng.integers(-9, 9, 300)
    y = np.array([*special, *numbers], dtype)
    x = np.array([*special, *numbers, *(np.arange(1, 50) * 49)], dtype)
    with np.errstate(all="ignore"):
        want = x / y[:, None]
    out = np.empty_like(want)
    table = np.broadcast_to(x, want.shape).copy()
    program = quotient(dtype, (0, 1))
    assert nest_of(program, [table, y], [out], want.shape).divisors
    cpu_launch.run(program, [table, y], [out], want.shape)
    # A denormal result may be the next one.
    small = np.abs(want) < info.tiny
    np.testing.assert_array_equal(out[~small], want[~small])
    np.testing.assert_array_equal(np.signbit(out[want == 0]), np.signbit(want[want == 0]))
    assert (np.abs(out[small].astype(np.longdouble) - want[small]) <= info.smallest_subnormal).all()


@pytest.mark.parametrize("shape", [(16, 16), (17, 33), (48, 200), (100, 15), (3, 40), (65, 64), (64, 128), (130, 150)])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("past_the_caches", [False, True])
def test_squares_are_turned(
    shape: tuple[int, int], threads: int, past_the_caches: bool, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_plan, "STREAMED_TURNED", 0 if past_the_caches else 1 << 60)
    builder = Builder(3)
    a = builder.load(builder.input(F32, 3), (dim(0), dim(2), dim(1)))
    b = builder.load(builder.input(F32, 3), (dim(0), dim(1), dim(2)))
    c = builder.load(builder.input(F32, 1), (dim(1),))
    y = scalar.apply("sub", scalar.apply("add", a, c), b)
    builder.store(builder.output(F32, 3), (dim(0), dim(1), dim(2)), y)
    program = builder.finish()
    rng = np.random.default_rng(0)
    x, z = (rng.standard_normal((3, *s)).astype(F32) for s in (shape[::-1], shape))
    bias = rng.standard_normal(shape[0]).astype(F32)
    want = x.swapaxes(1, 2) + bias[:, None] - z
    memory = np.empty(5 * want[0].size + 32, F32)
    out = memory[: 5 * want[0].size].reshape(5, *shape)
    with config(threads=threads):
        for start in (0, 1, 4, 12):
            # The result begins anywhere in a line.
            memory[...] = 7
            out = memory[start : start + 5 * want[0].size].reshape(5, *shape)
            cpu_launch.run(program, [x, z, bias], [out[1:-1]], (3, *shape))
            np.testing.assert_array_equal(out[1:-1], want)
            assert (out[[0, -1]] == 7).all()
        cpu_launch.run(program, [x, z, bias], [z], (3, *shape))
    np.testing.assert_array_equal(z, want)
    if min(shape) >= width:
        nest = nest_of(program, [x, z, bias], [out[1:-1]], (3, *shape))
        assert nest.turned is not None and nest.streams == past_the_caches


@pytest.mark.parametrize("start", [0, 1, 4, 15])
@pytest.mark.parametrize("count", [0, 1, 5, 16, 63, 200, 40_000])
def test_results_are_written_past_the_caches(
    count: int, start: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_plan, "STREAMED", 0)
    builder = Builder(1)
    x = builder.load(builder.input(F32, 1), (dim(0),))
    double = scalar.apply("add", x, x)
    builder.store(builder.output(F32, 1), (dim(0),), double)
    builder.store(builder.output(np.dtype("f2"), 1), (dim(0),), scalar.cast(double, np.dtype("f2")))
    program = builder.finish()
    x = np.arange(count, dtype=F32) % 1000
    for other in (start, 0, 3):
        out, half = np.full(count + 40, 7, F32), np.full(count + 40, 7, np.float16)
        # Memory of both ends anywhere in a line.
        first, second = out[start : start + count], half[other : other + count]
        assert nest_of(program, [x], [first, second], (count,)).streams
        with config(threads=2):
            cpu_launch.run(program, [x], [first, second], (count,))
        np.testing.assert_array_equal(first, 2 * x)
        np.testing.assert_array_equal(second, 2 * x)
        assert (out[:start] == 7).all() and (out[start + count :] == 7).all()
        assert (half[:other] == 7).all() and (half[other + count :] == 7).all()


def test_small_results_stay_in_the_caches() -> None:
    builder = Builder(1)
    builder.store(builder.output(F32, 1), (dim(0),), builder.load(builder.input(F32, 1), (dim(0),)))
    program = builder.finish()
    for count, streams in ((1000, False), (cpu_plan.STREAMED // 8, True)):
        assert plan_nest(program, [(1,)], [(1,)], (count,), (), 8).nest.streams == streams


def numbers_of_rows(dtype: np.dtype, names: Sequence[str]) -> TileProgram:
    builder = Builder(3, 1)
    x = builder.load(builder.input(dtype, 3), (dim(0), dim(1), dim(2)))
    shift = builder.load(builder.input(dtype, 1), (dim(1),))
    for name in names:
        y = x if dtype.kind == "b" else scalar.apply("add", x, shift)
        result = scalar.reduce(name, y)
        builder.store(builder.output(result.dtype, 2), (dim(0), dim(1)), result)
    return builder.finish()


def cut_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 20 elements are long from now on, and worth a team."""
    for module in (cpu_plan, cpu_launch):
        monkeypatch.setattr(module, "WORTH_A_TEAM", 0)
    monkeypatch.setattr(cpu_plan, "LONG_ROW", 20)


@pytest.mark.parametrize("length", [20, 31, 64, 333, 5000])
@pytest.mark.parametrize("rows", [(1, 1), (2, 3), (0, 4)])
@pytest.mark.parametrize("dtype", [F32, F64, np.dtype("i4"), np.dtype(bool)], ids=str)
def test_few_long_rows_are_cut(
    dtype: np.dtype, rows: tuple[int, int], length: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_all(monkeypatch)
    names = ("any", "all") if dtype.kind == "b" else ("max", "sum", "min")
    program = numbers_of_rows(dtype, names)
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((*rows, length)) * 9).astype(dtype)
    if dtype.kind == "f" and x.size:
        x[0, 0, length // 2] = np.nan
    shift = np.arange(rows[1]).astype(dtype)
    whole = x if dtype.kind == "b" else x + shift[:, None]
    first: list[np.ndarray] = []
    for threads in (1, 2, 5):
        outs = [np.full(rows, 1, dtype) for _ in names]
        with config(threads=threads):
            bound = cpu_launch.BoundKernel(
                program, [strides_of(x), strides_of(shift)], list(map(strides_of, outs)), (*rows, length)
            )
            assert bound.call.nest.segmented or not x.size
            # Twice: what the first run left behind does not matter.
            for _ in range(2):
                bound([x, shift, *outs])
        for name, out in zip(names, outs, strict=True):
            np.testing.assert_allclose(out, getattr(whole, name)(-1), 1e-4, 1e-4, err_msg=name)
        # The parts are the same ones for any number of threads.
        first = first or outs
        assert all(a.tobytes() == b.tobytes() for a, b in zip(first, outs, strict=True))


def test_which_rows_are_cut() -> None:
    long = 32 * cpu_plan.LONG_ROW
    for program, rows, is_cut in (
        (numbers_of_rows(F32, ["sum"]), 1, True),
        (numbers_of_rows(F32, ["sum"]), cpu_plan.FEW_ROWS, False),
        (numbers_of_rows(F32, ["sum", "argmax"]), 1, False),
    ):
        call = plan_nest(program, [(long, long, 1), (1,)], [(1, 1)] * len(program.outputs), (rows, 1, long), (), 8)
        assert call.nest.segmented == is_cut
    for rows, length, is_cut in (
        (1, long, True),
        (cpu_plan.FEW_ROWS_AGAIN, long, False),
        # One thread does it: nothing is gained.
        (1, cpu_plan.LONG_ROW, False),
    ):
        nest = plan_nest(softmax((0, 1)), [(length, 1)], [(length, 1)], (rows, length), (), 8).nest
        assert nest.segmented == is_cut


def spread_of_rows(normalised: bool) -> TileProgram:
    """The variance of each row by two runs over it, and the mean; and what is normalised by them."""
    builder = Builder(2, 1)
    x = builder.load(builder.input(F32, 2), (dim(0), dim(1)))
    count = scalar.cast(scalar.reduce("sum", scalar.const(1, np.dtype("i8"))), F32)
    mean = scalar.apply("div", scalar.reduce("sum", x), count)
    away = scalar.apply("sub", x, mean)
    variance = scalar.apply("div", scalar.reduce("sum", scalar.apply("mul", away, away)), count)
    builder.store(builder.output(F32, 1), (dim(0),), mean)
    builder.store(builder.output(F32, 1), (dim(0),), variance)
    if normalised:
        y = scalar.apply("div", away, scalar.apply("add", variance, scalar.const(0.5, F32)))
        builder.store(builder.output(F32, 2), (dim(0), dim(1)), y)
    return builder.finish()


def with_threads(
    program: TileProgram, inputs: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]], sizes: Sequence[int]
) -> list[np.ndarray]:
    """What a program gives, the same bytes with any number of threads and each time."""
    first: list[np.ndarray] = []
    for threads in (1, 2, 5):
        with config(threads=threads):
            outs = [np.full(shape, 7, F32) for shape in shapes]
            bound = cpu_launch.BoundKernel(program, list(map(strides_of, inputs)), list(map(strides_of, outs)), sizes)
            assert bound.call.nest.segmented
            assert not bound.is_small
            for _ in range(3):
                for out in outs:
                    out[...] = 7
                bound([*inputs, *outs])
                first = first or [out.copy() for out in outs]
                assert all(a.tobytes() == b.tobytes() for a, b in zip(first, outs, strict=True))
    return first


@pytest.mark.parametrize("length", [20, 47, 300, 9000])
@pytest.mark.parametrize("rows", [1, 3])
def test_long_rows_are_cut_in_each_of_several_runs(
    rows: int, length: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_all(monkeypatch)
    rng = np.random.default_rng(length)
    x = rng.standard_normal((rows, length), np.float32) * 3 + 5
    wide = x.astype(F64)
    mean, variance = wide.mean(1), wide.var(1)
    for normalised in (False, True):
        shapes = [(rows,), (rows,), *([(rows, length)] if normalised else [])]
        got = with_threads(spread_of_rows(normalised), [x], shapes, (rows, length))
        np.testing.assert_allclose(got[0], mean, 1e-5)
        np.testing.assert_allclose(got[1], variance, 1e-4)
        if normalised:
            np.testing.assert_allclose(got[2], (wide - mean[:, None]) / (variance[:, None] + 0.5), 1e-4, 1e-5)


@pytest.mark.parametrize("online", [1, 1 << 30], ids=["online", "in three runs"])
@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
@pytest.mark.parametrize("length", [33, 700])
def test_softmax_of_cut_rows(log: bool, length: int, online: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_all(monkeypatch)
    monkeypatch.setattr(cpu_plan, "ONLINE", online)
    x = np.random.default_rng(3).standard_normal((3, length), np.float32) * 4
    # Whole segments of -inf, and where the largest number comes last.
    x[1, : length // 2] = -np.inf
    x[2, -1] = 80
    want = softmax_of(x, 1)
    with np.errstate(divide="ignore"):
        want = np.log(want) if log else want
    for scaled in (False, True):
        other = np.full_like(x, 2)
        inputs = [x, other] if scaled else [x]
        (got,) = with_threads(softmax((0, 1), log, scaled), inputs, [x.shape], x.shape)
        np.testing.assert_allclose(got, want * 2 if scaled else want, 1e-4, 1e-5)


@pytest.mark.parametrize("online", [1, 1 << 30], ids=["online", "in three runs"])
def test_numbers_that_softmax_is_not_of(online: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_all(monkeypatch)
    monkeypatch.setattr(cpu_plan, "ONLINE", online)
    x = np.ones((3, 200), np.float32)
    x[0] = -np.inf
    x[1, 7] = np.nan
    x[2, 150] = np.inf
    (got,) = with_threads(softmax((0, 1)), [x], [x.shape], x.shape)
    assert np.isnan(got[:2]).all()
    assert np.isnan(got[2, 150])
    assert (np.delete(got[2], 150) == 0).all() or np.isnan(got[2]).all()


@pytest.mark.parametrize("size", [(), (1,), (40,)], ids=str)
def test_double_is_rounded_to_float_before_half(size: tuple[int, ...]) -> None:
    builder = Builder(len(size))
    at = [dim(d) for d in range(len(size))]
    x = scalar.cast(scalar.cast(builder.load(builder.input(F64, len(size)), at), F32), np.dtype("f2"))
    builder.store(builder.output(np.dtype("f2"), len(size)), at, x)
    # Just above the middle of two half numbers, and on it once it is a float.
    given, got = np.full(size, 1 + 2.0**-11 + 2.0**-40), np.zeros(size, np.float16)
    cpu_launch.run(builder.finish(), [given], [got], size)
    np.testing.assert_array_equal(got, given.astype(np.float32).astype(np.float16))
