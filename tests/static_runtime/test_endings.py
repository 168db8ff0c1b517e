"""One native step for a product or convolution and what is done to its result, and where there must be two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpujit.kernels.templates import conv, gemm
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.planes import Window
from gpujit.static_runtime import decide
from tests.static_runtime.help import f32, native_plan

CONV = "aten::conv2d(%x, %w, %bias, %ones, %ones, %ones, %one)"
HEAD = """
graph(%x : Float(2, 8, 6, 6), %r : Float(2, 16, 6, 6)):
  %w : Float(16, 8, 3, 3) = prim::Constant[value=CONSTANTS.c0]()
  %bias : Float(16) = prim::Constant[value=CONSTANTS.c1]()
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %zero : float = prim::Constant[value=0.]()
  %three : float = prim::Constant[value=3.]()
  %six : float = prim::Constant[value=6.]()
  %none : str = prim::Constant[value="none"]()
  %tanh : str = prim::Constant[value="tanh"]()
  %ones : int[] = prim::ListConstruct(%one, %one)
"""
T = "Float(2, 16, 6, 6)"
# How many values of the last plan lie in place of another one.
MEMORY: list[int] = []
X, R = f32(2, 8, 6, 6), f32(2, 16, 6, 6, seed=3)
CONSTANTS = [f32(16, 8, 3, 3, seed=1) / 4, f32(16, seed=2)]


def steps_of(lines: str, result: str, given: list[Any], head: str = HEAD, constants: Any = CONSTANTS) -> int:
    """How many native steps a graph of these lines has; what it computes is the interpreter's result."""
    module = native_plan(head, lines, result, given, constants)
    MEMORY.append(module.memory().overwritten)
    return sum(len(s.steps) for s in module.plan(given).segments)


ACTIVATIONS = {
    "relu": f"%2 : {T} = aten::relu(%1)",
    "clamp": f"%2 : {T} = aten::clamp_min(%1, %zero)",
    "relu6": f"%2 : {T} = aten::relu6(%1)",
    "hardtanh": f"%2 : {T} = aten::hardtanh(%1, %zero, %six)",
    "hardsigmoid": f"%2 : {T} = aten::hardsigmoid(%1)",
    "hardswish": f"%2 : {T} = aten::hardswish(%1)",
    "sigmoid": f"%2 : {T} = aten::sigmoid(%1)",
    "silu": f"%2 : {T} = aten::silu(%1)",
    "silu in parts": f"%3 : {T} = aten::sigmoid(%1)\n%2 : {T} = aten::mul(%3, %1)",
    "tanh": f"%2 : {T} = aten::tanh(%1)",
    "gelu": f"%2 : {T} = aten::gelu(%1, %none)",
    "gelu_tanh": f"%2 : {T} = aten::gelu(%1, %tanh)",
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    assert steps_of(f"%1 : {T} = {CONV}\n{ACTIVATIONS[name]}", "%2", [X, R]) == 1


@pytest.mark.parametrize("name", ["relu", "hardswish", "gelu", "silu in parts"])
def test_residuals(name: str) -> None:
    before = f"%1 : {T} = aten::add(%r, %0, %one)"
    assert steps_of(f"%0 : {T} = {CONV}\n{before}\n{ACTIVATIONS[name]}", "%2", [X, R]) == 1
    behind = f"%4 : {T} = aten::add(%2, %r, %one)"
    assert steps_of(f"%1 : {T} = {CONV}\n{ACTIVATIONS[name]}\n{behind}", "%4", [X, R]) == 1


def test_a_sum_of_two_convolutions_goes_with_the_later_one() -> None:
    text = f"%0 : {T} = {CONV}\n%1 : {T} = {CONV}\n%2 : {T} = aten::add(%0, %1, %one)"
    assert steps_of(text, "%2", [X, R]) == 2


LINEAR = """
graph(%x : Float(2, 5, 8), %r : Float(2, 5, 12)):
  %w : Float(12, 8) = prim::Constant[value=CONSTANTS.c0]()
  %bias : Float(12) = prim::Constant[value=CONSTANTS.c1]()
  %none : str = prim::Constant[value="none"]()
  %one : int = prim::Constant[value=1]()
  %ten : int = prim::Constant[value=10]()
  %twelve : int = prim::Constant[value=12]()
  %size : int[] = prim::ListConstruct(%ten, %twelve)
  %0 : Float(2, 5, 12) = aten::linear(%x, %w, %bias)
"""
MATRIX = [f32(12, 8, seed=1) / 3, f32(12, seed=2)]


def of_linear(lines: str, result: str, r: np.ndarray | None = None) -> int:
    given = [f32(2, 5, 8), f32(2, 5, 12, seed=4) if r is None else r]
    return steps_of(lines, result, given, LINEAR, MATRIX)


def test_products() -> None:
    assert of_linear("%1 : Float(2, 5, 12) = aten::gelu(%0, %none)", "%1") == 1
    assert of_linear("%1 : Float(2, 5, 12) = aten::add(%0, %r, %one)", "%1") == 1
    both = "%1 : Float(2, 5, 12) = aten::silu(%0)\n%2 : Float(2, 5, 12) = aten::add(%r, %1, %one)"
    assert of_linear(both, "%2") == 1


def test_a_view_may_lie_between() -> None:
    lines = "%1 : Float(10, 12) = aten::view(%0, %size)\n%2 : Float(10, 12) = aten::relu(%1)"
    assert of_linear(lines, "%2") == 1


def test_products_of_two_arrays() -> None:
    head = "graph(%x : Float(2, 5, 8), %y : Float(2, 8, 6), %r : Float(2, 5, 6)):\n"
    head += "  %one : int = prim::Constant[value=1]()"
    lines = """
        %0 : Float(2, 5, 6) = aten::bmm(%x, %y)
        %1 : Float(2, 5, 6) = aten::add(%0, %r, %one)
        %2 : Float(2, 5, 6) = aten::relu(%1)"""
    given = [f32(2, 5, 8), f32(2, 8, 6, seed=1), f32(2, 5, 6, seed=2)]
    assert steps_of(lines, "%2", given, head, []) == 1


POOLED = (
    HEAD.rstrip()
    + """
  %nothing : NoneType = prim::Constant()
  %null : int = prim::Constant[value=0]()
  %no : bool = prim::Constant[value=False]()
  %twos : int[] = prim::ListConstruct(%two, %two)
  %zeros : int[] = prim::ListConstruct(%null, %null)
"""
)


def test_what_was_read_is_kept_until_the_later_place(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the convolution reads dies in its own step when it stands by itself.
    lines = f"""
        %a : Float(2, 8, 6, 6) = aten::avg_pool2d(%x, %ones, %ones, %zeros, %no, %no, %nothing)
        %0 : {T} = {CONV.replace("%x", "%a")}
        %b : {T} = aten::avg_pool2d(%r, %ones, %ones, %zeros, %no, %no, %nothing)
        %c : {T} = aten::add(%0, %b, %one)
        %2 : {T} = aten::relu(%c)"""
    assert steps_of(lines, "%2", [X, R], POOLED) == 3
    real = decide.last_steps
    monkeypatch.setattr(decide, "last_steps", lambda *given: real(*given[:4]))
    with pytest.raises(AssertionError, match="Not equal"):
        steps_of(lines, "%2", [X, R], POOLED)


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        # Somebody else reads the sums.
        (f"%1 : {T} = {CONV}\n%2 : {T} = aten::relu(%1)", "%1, %2"),
        (f"%1 : {T} = {CONV}\n%2 : {T} = aten::relu(%1)\n%3 : {T} = aten::cumsum(%1, %one, %nothing)", "%2, %3"),
        # No activation of a template's, or more than one.
        (f"%1 : {T} = {CONV}\n%2 : {T} = aten::softplus(%1, %one, %two)", "%2"),
        (f"%1 : {T} = {CONV}\n%2 : {T} = aten::clamp(%1, %zero, %three)", "%2"),
        (f"%1 : {T} = {CONV}\n%2 : {T} = aten::relu(%1)\n%3 : {T} = aten::tanh(%2)", "%3"),
        # No plain residual.
        (f"%1 : {T} = {CONV}\n%2 : {T} = aten::add(%1, %r, %two)", "%2"),
        (f"%1 : {T} = {CONV}\n%2 : {T} = aten::sub(%1, %r, %one)", "%2"),
        (f"%1 : {T} = {CONV}\n%2 : {T} = aten::mul(%1, %r)", "%2"),
        (f"%1 : {T} = {CONV}\n%2 : {T} = aten::add(%1, %1, %one)", "%2"),
        (f"%1 : {T} = {CONV}\n%2 : {T} = aten::transpose(%1, %two, %last)\n%3 : {T} = aten::add(%1, %2, %one)", "%3"),
        # Rows.
        (f"%1 : {T} = {CONV}\n%2 : {T} = aten::relu(%1)\n%3 : {T} = aten::softmax(%2, %last, %nothing)", "%3"),
    ],
)
def test_two_steps_stay_two(lines: str, result: str) -> None:
    head = HEAD.rstrip() + "\n  %nothing : NoneType = prim::Constant()\n  %last : int = prim::Constant[value=3]()\n"
    assert steps_of(lines, result, [X, R], head) >= 2


@pytest.mark.parametrize("shape", [(1, 16, 6, 6), (2, 16, 1, 1), (2, 1, 6, 6)])
def test_a_smaller_residual_is_none(shape: tuple[int, ...]) -> None:
    head = HEAD.replace("%r : Float(2, 16, 6, 6)", f"%r : Float{shape}")
    lines = f"%1 : {T} = {CONV}\n%2 : {T} = aten::add(%1, %r, %one)"
    assert steps_of(lines, "%2", [X, f32(*shape, seed=3)], head) == 2


def test_a_residual_in_another_order_is_none() -> None:
    turned = np.ascontiguousarray(R.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    lines = f"%1 : {T} = {CONV}\n%2 : {T} = aten::add(%1, %r, %one)"
    assert steps_of(lines, "%2", [X, turned]) == 2
    assert steps_of(lines, "%2", [X, R]) == 1


def test_no_step_moves_behind_a_write_to_what_it_reads() -> None:
    lines = f"""
        %0 : {T} = {CONV}
        %1 : Float(2, 8, 6, 6) = aten::mul_(%x, %three)
        %2 : {T} = aten::tanh(%0)"""
    assert steps_of(lines, "%2, %1", [X, R]) >= 2


def test_nan_and_infinity_go_through() -> None:
    r = R.copy()
    r[0, 0, 0] = np.nan, np.inf, -np.inf, 0, 1, -1
    lines = f"%0 : {T} = {CONV}\n%1 : {T} = aten::add(%0, %r, %one)\n"
    for name in ("relu", "relu6", "sigmoid", "silu", "tanh", "hardswish", "hardsigmoid"):
        assert steps_of(lines + ACTIVATIONS[name], "%2", [X, r]) == 1


@pytest.mark.parametrize("method", ["dense", "rows", "winograd2", "winograd4", "pixels"])
@pytest.mark.parametrize("residual_last", [False, True])
def test_convolutions_may_write_over_their_residual(method: str, residual_last: bool) -> None:
    kernel = (1, 1) if method == "pixels" else (3, 3)
    window = Window(19, 21, kernel, padding=(0, 0) if method == "pixels" else (1, 1))
    x, w, residual = f32(2, 5, 19, 21), f32(37, 5, *kernel, seed=1), f32(2, 37, 19, 21, seed=2)
    bound = conv.bind(conv.Conv(2, 5, 37, window, 1, Epilogue(False, True, "relu", residual_last)), w, None, method)
    is_written_over(bound, [x], residual)


@pytest.mark.parametrize("sizes", [(1, 70, 9), (13, 70, 9), (130, 35, 40)])
@pytest.mark.parametrize("is_packed", [False, True])
def test_products_may_write_over_their_residual(sizes: tuple[int, int, int], is_packed: bool) -> None:
    m, n, k = sizes
    a, b, residual = f32(2, m, k), f32(2, k, n, seed=1), f32(2, m, n, seed=2)
    rows = (m * n, 0, n, 1)
    described = gemm.Gemm(
        m, n, k, (m * k, 0, k, 1), rows, None if is_packed else (k * n, 0, n, 1), rows, 2,
        epilogue=Epilogue(False, True, "gelu"),
    )  # fmt: skip
    is_written_over(gemm.bind(described, b[0] if is_packed else None), [a] if is_packed else [a, b], residual)


def is_written_over(kernel: Any, operands: list[np.ndarray], residual: np.ndarray) -> None:
    """The kernel computes the same when its result is its residual."""
    wanted, there = np.empty_like(residual), residual.copy()
    for is_small in (True, False):
        kernel.is_small = is_small
        kernel(*operands, wanted, residual)
        there[:] = residual
        kernel(*operands, there, there)
        np.testing.assert_array_equal(there, wanted)


def test_a_planned_residual_is_written_over() -> None:
    lines = f"""
        %a : {T} = {CONV}
        %0 : {T} = {CONV}
        %1 : {T} = aten::add(%0, %a, %one)
        %2 : {T} = aten::relu(%1)
        %3 : Float(2, 16, 3, 3) = aten::avg_pool2d(%2, %twos, %twos, %zeros, %no, %no, %nothing)"""
    assert steps_of(lines, "%3", [X, R], POOLED) == 3
    assert MEMORY[-1] >= 1
