"""When a group may write a result over an operand: what the program must look like, and what declines."""

from __future__ import annotations

import numpy as np
import pytest

from gpujit.ir.graph import Graph
from gpujit.kernels.tile_text import parse_program
from gpujit.static_runtime.native import compiled, of_copy, overwritten
from gpujit.static_runtime.places import Place, contiguous

F32 = np.dtype(np.float32)
ROOTS = Graph("roots")


def place(*shape: int, dtype: np.dtype = F32, strides: tuple[int, ...] | None = None) -> Place:
    return Place(ROOTS.add_input(), 0, contiguous(shape, dtype) if strides is None else strides, shape, dtype)


def found(text: str, inputs: list[Place], outputs: list[Place]) -> list[tuple[int, ...]]:
    program = parse_program(text)
    return [overwritten(program, k, inputs, outputs) for k in range(len(outputs))]


POINTWISE = """tile(a0: float32[2], a1: float32[2]) -> (o0: float32[2])
  for d0 < n0, d1 < n1
  %0: float32 = load a0[d0, d1]
  %1: float32 = load a1[d0, d1]
  %2: float32 = add %0, %1
  store o0[d0, d1], %2
"""


def test_operands_read_where_the_result_is_written() -> None:
    assert found(POINTWISE, [place(3, 4), place(3, 4)], [place(3, 4)]) == [(0, 1)]


@pytest.mark.parametrize(
    "operand",
    [
        place(3, 4, strides=(4, 12)),
        place(3, 4, strides=(0, 4)),
        place(3, 4, strides=(32, 4)),
        place(3, 4, dtype=np.dtype(np.float64)),
        place(4, 4),
    ],
    ids=["transposed", "expanded", "part of rows", "wider", "other shape"],
)
def test_operands_that_lie_otherwise_are_kept(operand: Place) -> None:
    assert found(POINTWISE, [operand, place(3, 4)], [place(3, 4)]) == [(1,)]


@pytest.mark.parametrize("where", ["d1, d0", "d0, n1 - 1 - d1", "d0, 0"])
def test_operands_read_elsewhere_are_kept(where: str) -> None:
    text = POINTWISE.replace("load a0[d0, d1]", f"load a0[{where}]")
    assert found(text, [place(4, 4), place(4, 4)], [place(4, 4)]) == [(1,)]


def test_an_operand_read_at_a_second_place_too_is_kept() -> None:
    text = POINTWISE.replace("load a1[d0, d1]", "load a0[d1, d0]")
    assert found(text, [place(4, 4), place(4, 4)], [place(4, 4)]) == [(1,)]


def test_masked_reads_are_kept() -> None:
    text = """tile(a0: float32[1]) -> (o0: float32[1])
  for d0 < n0
  %0: bool = inside 0 <= d0 < 2
  %1: float32 = load a0[d0] if %0 else 0.0
  store o0[d0], %1
"""
    assert found(text, [place(4)], [place(4)]) == [()]


SOFTMAX = """tile(a0: float32[2]) -> (o0: float32[2], o1: float32[1])
  for d0 < n0
  row d1 < n1
  %0: float32 = load a0[d0, d1]
  %1: float32 = max %0
  %2: float32 = sub %0, %1
  %3: float32 = exp %2
  %4: float32 = sum %3
  %5: float32 = div %3, %4
  store o0[d0, d1], %5
  store o1[d0], %1
"""


def test_a_result_of_the_last_run_over_a_row() -> None:
    assert found(SOFTMAX, [place(4, 4)], [place(4, 4), place(4)]) == [(0,), ()]


def test_a_result_written_before_the_row_is_read_again_keeps_it() -> None:
    text = """tile(a0: float32[2]) -> (o0: float32[2], o1: float32[2])
  for d0 < n0
  row d1 < n1
  %0: float32 = load a0[d0, d1]
  %1: float32 = neg %0
  %2: float32 = max %0
  %3: float32 = sub %0, %2
  store o0[d0, d1], %1
  store o1[d0, d1], %3
"""
    assert found(text, [place(4, 4)], [place(4, 4), place(4, 4)]) == [(), (0,)]


def test_scans_keep_their_operands() -> None:
    text = """tile(a0: float32[2]) -> (o0: float32[2])
  for d0 < n0
  row d1 < n1
  %0: float32 = load a0[d0, d1]
  %1: float32 = cumsum %0
  store o0[d0, d1], %1
"""
    assert found(text, [place(4, 4)], [place(4, 4)]) == [()]


def test_a_copy_of_numbers_that_kernels_do_not_know_is_left_to_others() -> None:
    complex64 = np.dtype(np.complex64)
    assert of_copy(place(2, dtype=complex64), place(2, dtype=complex64)) is None
    asked = of_copy(place(3, 4, strides=(4, 12)), place(3, 4))
    assert asked is not None
    (kernel,) = compiled([asked])
    assert kernel is not None and kernel.overwrites == ((),)
    assert of_copy(place(3, strides=(6,)), place(3)) is None
