"""Rows cut into slices: all parts together, run by the NumPy renderer, give what the whole program gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpujit.ir import scalar
from gpujit.ir.dtypes import kind_of
from gpujit.kernels import cuda_split, reference
from gpujit.kernels.cuda_split import Array, slices_of, split
from gpujit.kernels.cuda_steps import step_of
from gpujit.kernels.cuda_tile import plan_cuda
from gpujit.kernels.index import dim
from gpujit.kernels.launches import Launch
from gpujit.kernels.schedule import Collapsed, collapse
from gpujit.kernels.tile import Reduce
from gpujit.kernels.tile_build import Builder
from gpujit.kernels.tile_text import parse_program
from gpujit.support.errors import GpujitError
from tests.kernels.cuda_programs import SAMPLES
from tests.kernels.programs import Case
from tests.kernels.random_programs import assert_close, cases
from tests.static_runtime.device_help import SIMULATED, run_step


def run_split(case: Case, slices: int) -> int:
    """Run a case's parts; how many there are."""
    merged = Collapsed(case.program, tuple(case.sizes), (), (), (), tuple(case.params))
    parts, scratch = split(merged, slices)
    arrays: dict[Array, Any] = {Array("scratch", k): np.full(s.shape, 9).astype(s.dtype) for k, s in enumerate(scratch)}
    arrays |= {Array("input", k): x for k, x in enumerate(case.inputs)}
    arrays |= {Array("output", k): x for k, x in enumerate(case.outputs)}
    for part in parts:
        ins, outs = [arrays[a] for a in part.inputs], [arrays[a] for a in part.outputs]
        reference.run(part.program, ins, outs, part.sizes, part.params)
    return len(parts)


def same(case: Case, slices: int) -> int:
    want, got = case.fresh(), case.fresh()
    reference.run(case.program, want.inputs, want.outputs, case.sizes, case.params)
    count = run_split(got, slices)
    assert_close(got.outputs, want.outputs, case.program.text)
    return count


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(int(np.prod(shape))).reshape(shape).astype("f4") / 8 - 3


@pytest.mark.parametrize("slices", [2, 3, 5])
@pytest.mark.parametrize("length", [16, 48, 37])
def test_rows_with_effects_once_are_two_parts(slices: int, length: int) -> None:
    program = SAMPLES["column_sum"].program
    assert same(Case(program, [numbers(length, 4)], [np.zeros(4, "f4")], (4, length)), slices) == 2


@pytest.mark.parametrize("slices", [2, 3])
@pytest.mark.parametrize("length", [32, 45])
def test_a_softmax_is_five_parts(slices: int, length: int) -> None:
    program = SAMPLES["softmax"].program
    x = numbers(3, length)
    assert same(Case(program, [x], [np.zeros_like(x)], x.shape), slices) == 5


def test_what_is_stored_once_for_each_row_has_a_part_of_its_own() -> None:
    program = SAMPLES["layer_norm"].program
    x, w = numbers(2, 40), numbers(40)
    case = Case(program, [x, w, w], [np.zeros_like(x), np.zeros(2, "f4")], x.shape)
    assert same(case, 3) == 6


REDUCTIONS = [
    (op, dtype)
    for op in sorted(cuda_split.COMBINED)
    for dtype in ("float32", "int32", "bool")
    if "bif"[kind_of(np.dtype(dtype))] in scalar.ROW_OPS[op].takes
]


@pytest.mark.parametrize(("op", "dtype"), REDUCTIONS)
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_rest_changes_nothing(op: str, dtype: str, sign: int) -> None:
    kind = np.dtype(dtype)
    builder = Builder(2, 1)
    y = scalar.reduce(op, builder.load(builder.input(kind, 2), [dim(0), dim(1)]))
    builder.store(builder.output(y.dtype, 1), [dim(0)], y)
    x = np.full((2, 21), sign > 0) if dtype == "bool" else (sign * (np.arange(42).reshape(2, 21) % 3 + 1)).astype(kind)
    assert same(Case(builder.finish(), [x], [np.zeros(2, y.dtype)], x.shape), 2) == 2


ROWS_OF_TWO = """tile(a0: float32[3]) -> (o0: bool[1], o1: int32[1])
  for d0 < n0
  row d1 < n1, d2 < n2
  params p0
  %0: bool = inside 0 <= d1 + d2 < n1 + p0
  %1: float32 = load a0[d0, d2, d1] if %0 else 1.0
  %2: float32 = const 0.0
  %3: bool = gt %1, %2
  %4: bool = all %3
  store o0[d0], %4
  %5: int32 = cast %1
  %6: int32 = min %5
  %7: int32 = count
  %8: int32 = add %6, %7
  store o1[d0], %8
"""


def test_rows_of_two_dims_are_cut_along_the_longer_one() -> None:
    lines = ROWS_OF_TWO.splitlines(keepends=True)
    text = "".join([*(x for x in lines if "store" not in x), *(x for x in lines if "store" in x)])
    x = numbers(3, 4, 21) + 8
    case = Case(parse_program(text), [x.transpose(0, 2, 1)], [np.zeros(3, bool), np.zeros(3, "i4")], (3, 4, 21), (5,))
    assert same(case, 2) == 2


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(max_size=24), st.integers(2, 4))
def test_random_programs(case: Case, slices: int) -> None:
    reduced = [i for i in case.program.body if isinstance(i, Reduce)]
    assume(reduced and all(i.op in cuda_split.COMBINED for i in reduced) and all(case.sizes))
    try:
        same(case, slices)
    except GpujitError:
        # An index out of range: nothing is promised then.
        assume(False)


# ------------------------------------------------------------------------------------------- when rows are cut


@pytest.mark.parametrize(
    ("rows", "length", "wanted"),
    [(1, 1 << 20, 128), (16, 1 << 20, 16), (1, 1 << 15, 1), (512, 1 << 20, 1), (66, 1 << 18, 4), (67, 1 << 18, 1)],
)
def test_few_long_rows_are_cut(rows: int, length: int, wanted: int) -> None:
    program = parse_program(SAMPLES["argmax"].text.replace("argmax", "max").replace("int64", "float32"))
    merged = collapse(program, [(length, 1)], [(1,), (1,)], (rows, length))
    call = plan_cuda(program, [(length, 1)], [(1,), (1,)], (rows, length))
    assert slices_of(call, merged.sizes, 132) == wanted


def test_places_of_maxima_are_not_combined() -> None:
    program = SAMPLES["argmax"].program
    call = plan_cuda(program, [(1 << 20, 1)], [(1,), (1,)], (1, 1 << 20))
    assert slices_of(call, (1, 1 << 20), 132) == 1


def test_steps_have_a_launch_for_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_split, "LONG", 32)
    monkeypatch.setattr(cuda_split, "SLICE", 16)
    x = numbers(2, 72)
    step = step_of(SAMPLES["softmax"].program, [(0, (72, 1))], [(0, (72, 1))], x.shape, label="softmax")
    assert len(step.calls) == 5 and all(isinstance(c, Launch) and c.kernel.label == "softmax" for c in step.calls)
    assert step.scratch
    if SIMULATED:
        got, want = np.zeros_like(x), np.zeros_like(x)
        reference.run(SAMPLES["softmax"].program, [x], [want], x.shape)
        assert run_step(step, [x], [got]) == ""
        np.testing.assert_allclose(got, want, rtol=1e-5)
