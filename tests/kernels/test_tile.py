"""Tile programs as data: index expressions, building, text, verification, schedules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.ir import scalar
from gpujit.kernels.index import Index, dim, div, index, mod, param, size
from gpujit.kernels.reference import run
from gpujit.kernels.schedule import Merge, accesses, collapse, index_bits, lane_dim, passes
from gpujit.kernels.tile import Compute, Const, Store, TileError, TileProgram, verify
from gpujit.kernels.tile_build import Builder
from gpujit.kernels.tile_text import parse_program
from tests.kernels.random_programs import assert_close, cases

F32, F16, I64, BOOL = (np.dtype(d) for d in ("f4", "f2", "i8", "?"))

SOFTMAX = """\
tile(a0: float16[2]) -> (o0: float16[2])
  for d0 < n0
  row d1 < n1
  %0: float16 = load a0[d0, d1]
  %1: float32 = cast %0
  %2: float32 = max %1
  %3: float32 = sub %1, %2
  %4: float32 = exp %3
  %5: float32 = sum %4
  %6: float32 = div %4, %5
  %7: float16 = cast %6
  store o0[d0, d1], %7
"""

EVERYTHING = """\
tile(a0: float32[1], a1: int64[0], a2: bool[2]) -> (o0: float32[2], o1: int64[0])
  for d0 < n0
  row d1 < n1
  params p0, p1
  %0: int64 = load a1[]
  %1: bool = inside 0 <= %0 < p1, 0 <= d1 - p0 < n1*2
  %2: float32 = load a0[%0] if %1 else -inf
  %3: float32 = const nan
  %4: bool = load a2[d0, mod(d1 + p0, n1)] if %1 else False
  %5: float32 = where %4, %2, %3
  %6: float32 = call "aten::igamma" %5, %3
  %7: float32 = count
  %8: float32 = div %6, %7
  %9: float32 = cumsum %8
  %10: int64 = argmax %9
  %11: int64 = position div(d0*n1 + d1, 3) - 1
  %12: int64 = sum %11
  %13: float32 = const 1e-05
  %14: float32 = add %9, %13
  store o0[d0, d1], %14 if %1
  store o1[], %12 if %1
  check %1, "a \\"message\\""
"""


def softmax() -> TileProgram:
    builder = Builder(2, 1)
    at = (dim(0), dim(1))
    x = scalar.cast(builder.load(builder.input(F16, 2), at), F32)
    e = scalar.apply("exp", scalar.apply("sub", x, scalar.reduce("max", x)))
    y = scalar.apply("div", e, scalar.reduce("sum", e))
    builder.store(builder.output(F16, 2), at, scalar.cast(y, F16))
    return builder.finish()


# ----------------------------------------------------------------------------------------------------- indexes


def test_equal_indexes_have_one_form() -> None:
    a, b = dim(0) * size(1) + dim(1), dim(1) + size(1) * dim(0)
    assert a == b and str(a) == "d0*n1 + d1"
    assert str(dim(0) - 1 - dim(0)) == "-1" and str(index(0)) == "0" and str(2 - param(0) * 3) == "-p0*3 + 2"


def test_div_and_mod_are_taken_apart_where_that_is_seen() -> None:
    flat = (dim(0) * size(1) + dim(1)) * size(2) + dim(2)
    assert mod(flat, size(2)) == dim(2)
    assert div(flat, size(2)) == dim(0) * size(1) + dim(1)
    assert div(div(flat, size(2)), size(1)) == dim(0)
    assert (div(dim(0) * 4 + 3, 4), mod(dim(0) * 4 + 3, 4)) == (dim(0), index(3))
    # A place may lie beyond another dim's size.
    assert str(div(dim(0), size(1))) == "div(d0, n1)" and str(mod(dim(0) + 5, 4)) == "mod(d0 + 5, 4)"


def test_steps_along_dims() -> None:
    i = dim(0) * size(1) * 2 - dim(1) + 3
    assert i.factor_of(0) == size(1) * 2 and i.factor_of(1) == index(-1) and i.factor_of(2) == index(0)
    assert mod(dim(0) + 1, 3).factor_of(0) is None and (dim(0) * dim(1)).factor_of(0) is None


@given(st.data())
def test_indexes_compute_what_they_say(data: st.DataObject) -> None:
    known = {("d", 0): 5, ("d", 1): 2, ("n", 0): 7, ("n", 1): 3, ("p", 0): 4}
    atoms = [(dim(0), 5), (dim(1), 2), (size(0), 7), (size(1), 3), (param(0), 4), (index(2), 2), (index(0), 0)]
    i, want = data.draw(st.sampled_from(atoms))
    for _ in range(data.draw(st.integers(0, 6))):
        j, number = data.draw(st.sampled_from(atoms))
        way = data.draw(st.sampled_from("+-*/%"))
        if way == "+":
            i, want = i + j, want + number
        elif way == "-":
            i, want = i - j, want - number
        elif way == "*":
            i, want = i * j, want * number
        elif want >= 0 and number > 0:
            i, want = (div(i, j), want // number) if way == "/" else (mod(i, j), want % number)
    assert i.evaluate(known) == want
    text = f"tile() -> ()\n  for d0 < n0, d1 < n1\n  params p0\n  %0: int64 = position {i}\n"
    program = parse_program(text)
    assert program.body[0].index == i and program.text == text


# ---------------------------------------------------------------------------------------------------- programs


def test_a_program_in_text() -> None:
    assert softmax().text == SOFTMAX
    assert parse_program(SOFTMAX) == softmax() and parse_program(SOFTMAX).key == softmax().key


def test_all_of_the_text_form_reads_back() -> None:
    program = parse_program(EVERYTHING)
    assert program.text == EVERYTHING and parse_program(program.text) == program


def test_equal_values_are_shared_and_unused_ones_left_out() -> None:
    builder = Builder(1)
    number = builder.input(F32, 1)

    def load() -> scalar.Expr:
        return builder.load(number, (dim(0),))

    scalar.apply("exp", load())
    y = scalar.apply("add", scalar.apply("mul", load(), load()), scalar.apply("mul", load(), load()))
    builder.store(builder.output(F32, 1), (dim(0),), y)
    assert [getattr(i, "op", "load") for i in builder.finish().body] == ["load", "mul", "add"]


def test_the_order_of_making_does_not_matter() -> None:
    def make(swapped: bool) -> TileProgram:
        builder = Builder(1)
        a, b = builder.input(F32, 1), builder.input(F32, 1)
        loads = {k: builder.load(k, (dim(0),)) for k in ((b, a) if swapped else (a, b))}
        builder.store(builder.output(F32, 1), (dim(0),), scalar.apply("sub", loads[a], loads[b]))
        return builder.finish()

    assert make(False).text == make(True).text


def test_constants_keep_nan_and_the_sign_of_zero() -> None:
    assert Const(0.0, F32) != Const(-0.0, F32) and Const(float("nan"), F32) == Const(float("nan"), F32)
    assert Const(1, I64) != Const(True, BOOL)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("  %0: float32 = load a0[d0]", "1 indexes for an array of rank 2"),
        ("  %0: float16 = load a0[d0, d2]", "d2 in the index d2: there are 2"),
        ("  %0: float32 = load a0[d0, d1]", "float32 from or to an array of float16; cast it"),
        ("  %0: float16 = load a7[d0, d1]", "array 7 of 1"),
        ("  %0: float16 = load a0[d0, %3]", "reads %3, which is not defined before it"),
        ("  %0: float16 = nothing", "there is no scalar operation 'nothing'"),
        ("  %1: float16 = const 1.0", "line 4: %0 before all effects expected"),
        ("  %0: float16 = const one", "line 4: a number of float16 expected, found one"),
        ("  %0: half = count", "line 4: a dtype expected, found half"),
        ("  nothing", "line 4: a value, store or check expected, found nothing"),
        ("  store o0[d0, d1], %0", "reads %0, which is not defined before it"),
    ],
)
def test_text_that_means_nothing(line: str, message: str) -> None:
    text = "\n".join([*SOFTMAX.splitlines()[:3], line])
    with pytest.raises(TileError) as error:
        parse_program(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("at", "change", "message"),
    [
        (3, Compute("sub", (1, 0), F32), "sub(float32, float16) giving float32"),
        (6, Compute("where", (4, 4, 5), F32), "where(float32, float32, float32) giving float32"),
        (4, Compute("exp", (3,), I64), "exp(float32) giving int64"),
    ],
)
def test_verification(at: int, change: Compute, message: str) -> None:
    program = softmax()
    body = (*program.body[:at], change, *program.body[at + 1 :])
    with pytest.raises(TileError) as error:
        verify(replace(program, body=body))
    assert message in str(error.value)


def test_stores_name_every_point_once() -> None:
    program = softmax()
    for coords, fits in (((dim(1), dim(0)), True), ((dim(0), index(0)), False), ((index(0), dim(1)), False)):
        changed = replace(program, effects=(Store(0, coords, 7),))
        if fits:
            verify(changed)
        else:
            with pytest.raises(TileError, match="several points would write one element"):
                verify(changed)
    # One number for each row needs no place along it.
    row = replace(
        program, body=(*program.body[:6], Compute("cast", (5,), F16)), effects=(Store(0, (dim(0), index(0)), 6),)
    )
    verify(row)


def test_reductions_need_row_dims() -> None:
    with pytest.raises(TileError, match="a reduction in a program without row dims"):
        verify(replace(softmax(), rows=0))


# --------------------------------------------------------------------------------------------------- schedules


def test_passes_of_softmax() -> None:
    first, second, third = passes(softmax())
    assert (first.full, first.reduces, first.effects) == ((0, 1), (2,), ())
    assert (second.full, second.repeated, second.reduces) == ((0, 1, 3, 4), (0, 1), (5,))
    assert (third.full, third.repeated, third.reduces) == ((0, 1, 3, 4, 6, 7), (0, 1, 3, 4), ())
    assert third.effects == softmax().effects and not any(p.row for p in (first, second, third))


def test_what_is_the_same_along_a_row_is_done_once() -> None:
    builder = Builder(2, 1)
    x = builder.load(builder.input(F32, 2), (dim(0), dim(1)))
    mean = scalar.apply("div", scalar.reduce("sum", x), scalar.Expr("count", (), F32))
    builder.store(builder.output(F32, 1), (dim(0),), mean)
    first, second = passes(builder.finish())
    assert (first.full, first.reduces, first.row) == ((0,), (1,), (2,))
    assert (second.row, second.full, len(second.row_effects)) == ((3,), (), 1)


def test_a_program_without_rows_is_one_pass() -> None:
    builder = Builder(1)
    x = builder.load(builder.input(F32, 1), (dim(0),))
    builder.store(builder.output(F32, 1), (dim(0),), scalar.apply("mul", x, scalar.const(2.0, F32)))
    (only,) = passes(builder.finish())
    assert only.full == (0, 1, 2) and len(only.effects) == 1 and not only.row and not only.reduces


def elements(arrays: list[np.ndarray]) -> list[tuple[int, ...]]:
    return [tuple(s // a.itemsize for s in a.strides) for a in arrays]


def add(shapes: list[tuple[int, ...]], rank: int) -> TileProgram:
    builder = Builder(rank)
    at = tuple(dim(d) for d in range(rank))
    x: scalar.Expr | None = None
    for shape in shapes:
        y = builder.load(builder.input(F32, len(shape)), tuple(c if n != 1 else index(0) for c, n in zip(at, shape)))
        x = y if x is None else scalar.apply("add", x, y)
    assert x is not None
    builder.store(builder.output(F32, rank), at, x)
    return builder.finish()


def test_contiguous_dims_merge() -> None:
    sizes = (2, 3, 4, 5)
    x, out = np.zeros(sizes, F32), np.zeros(sizes, F32)
    found = collapse(add([sizes, sizes], 4), elements([x, x]), elements([out]), sizes)
    assert found.sizes == (120,) and found.program.dims == 1
    assert found.program.text.splitlines()[2] == "  %0: float32 = load a0[d0]"
    # A broadcast operand keeps its dims apart.
    bias = np.zeros((1, 3, 1, 1), F32)
    found = collapse(add([sizes, bias.shape], 4), elements([x, bias]), elements([out]), sizes)
    assert found.sizes == (2, 3, 20)
    assert [line.split("load ")[1] for line in found.program.text.splitlines() if "load" in line] == [
        "a0[d0, d1, d2]", "a1[0, d1, 0, 0]",
    ]  # fmt: skip
    # A transposed one as well.
    turned = np.zeros((2, 3, 5, 4), F32).swapaxes(2, 3)
    found = collapse(add([sizes, sizes], 4), elements([x, turned]), elements([out]), sizes)
    assert found.sizes == (6, 4, 5)
    assert found.merges == (Merge(False, 0, 0), Merge(False, 1, 0), Merge(True, 0, 0))


def halves(sizes: tuple[int, ...], inner: bool = False) -> TileProgram:
    """The product of two parts of one array, which begin at the two parameters along the first dim (or the second)."""
    builder = Builder(2)
    array, starts = builder.input(F32, 2), (builder.param(), builder.param())
    at = [(dim(0), dim(1) + p) if inner else (dim(0) + p, dim(1)) for p in starts]
    x, y = (builder.load(array, where) for where in at)
    builder.store(builder.output(F32, 2), (dim(0), dim(1)), scalar.apply("mul", x, y))
    return builder.finish()


def test_dims_of_slices_merge() -> None:
    """What an index adds to the outer dim of two that lie together becomes a parameter of the merged one."""
    x, out = np.arange(40, dtype=F32).reshape(10, 4), np.zeros((3, 4), F32)
    found = collapse(halves((3, 4)), elements([x]), elements([out]), (3, 4), (1, 6))
    assert found.sizes == (12,) and found.params == (1, 6, 4, 24)
    assert [line.split("load ")[1] for line in found.program.text.splitlines() if "load" in line] == [
        "a0[d0 + p2]", "a0[d0 + p3]",
    ]  # fmt: skip
    run(found.program, [x.reshape(-1)], [out.reshape(-1)], found.sizes, found.params)
    np.testing.assert_array_equal(out, x[1:4] * x[6:9])
    # Parts of rows do not lie together.
    inside = collapse(halves((3, 2), inner=True), elements([x]), elements([out[:, :2]]), (3, 2), (0, 2))
    assert inside.sizes == (3, 2) and inside.params == (0, 2)
    # A single line: its stride need not be that of the lines' dim.
    far = np.zeros((10, 8), F32)[:, :4]
    single = collapse(halves((1, 4)), elements([far]), elements([out[:1]]), (1, 4), (1, 6))
    assert single.sizes == (4,) and single.params == (1, 6, 8, 48)


@settings(max_examples=40)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3))
def test_merged_slices_compute_the_same(n: int, m: int, first: int, second: int) -> None:
    x = np.random.default_rng(0).standard_normal((8, m)).astype(F32)
    out = np.zeros((n, m), F32)
    found = collapse(halves((n, m)), elements([x]), elements([out]), (n, m), (first, second))
    inputs, outputs = (merged(arrays, list(found.merges), o) for arrays, o in (([x], False), ([out], True)))
    run(found.program, inputs, outputs, found.sizes, found.params)
    np.testing.assert_array_equal(out, x[first : first + n] * x[second : second + n])


def merged(arrays: list[np.ndarray], merges: list[Merge], is_output: bool) -> list[np.ndarray]:
    found = list(arrays)
    for m in merges:
        if m.is_output == is_output:
            x = found[m.array]
            shape = (*x.shape[: m.dim], x.shape[m.dim] * x.shape[m.dim + 1], *x.shape[m.dim + 2 :])
            strides = (*x.strides[: m.dim], *x.strides[m.dim + 1 :])
            found[m.array] = np.lib.stride_tricks.as_strided(x, shape, strides)
    return found


@settings(max_examples=80)
@given(cases())
def test_collapsed_programs_compute_the_same(case) -> None:
    whole, other = case.fresh(), case.fresh()
    run(case.program, whole.inputs, whole.outputs, case.sizes, case.params)
    found = collapse(case.program, elements(other.inputs), elements(other.outputs), case.sizes, case.params)
    inputs = merged(other.inputs, list(found.merges), False)
    outputs = merged(other.outputs, list(found.merges), True)
    run(found.program, inputs, outputs, found.sizes, found.params)
    assert_close(other.outputs, whole.outputs, case.program.text)


def test_lanes_lie_along_contiguous_memory() -> None:
    sizes = (6, 5)
    x, turned = np.zeros(sizes, F32), np.zeros(sizes[::-1], F32).T
    program = add([sizes], 2)
    for a, out, want in ((x, x, 1), (turned, turned, 0), (turned, x, 1)):
        assert lane_dim(program, accesses(program, elements([a]), elements([out]), sizes, ()), sizes) == want
    assert accesses(program, [(5, 1)], [(0, 2)], sizes, ())[1].steps == (0, 2)
    assert lane_dim(add([()], 0), (), ()) is None


def test_offsets_decide_the_width_of_indexes() -> None:
    assert index_bits([(1 << 15, 1 << 15)], [(1 << 15, 1)], (1 << 15, 1 << 15)) == 32
    assert index_bits([(2, 2)], [(1 << 31, 1)], (2, 2)) == 64
    assert index_bits([(2, 2)], [(-(1 << 31), 1)], (2, 2)) == 64
    assert index_bits([(1,)], [(0,)], (1 << 16, 1 << 15)) == 64
    assert isinstance(index(3), Index)
