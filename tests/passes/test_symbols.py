"""Symbolic sizes: normal form, bounds, text, and the type rules that compute with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpujit.ir import symbols
from gpujit.ir.symbols import Sym, add, bounds, evaluate, floordiv, maximum, minimum, mod, mul, neg, sub, symbol
from gpujit.ir.type_parser import parse_type
from gpujit.ir.types import TensorType
from gpujit.ops import table
from gpujit.ops.infer import infer
from gpujit.ops.infer_cases import type_of
from gpujit.ops.symbolic import Live, NotKnown

S, U = symbol(1), symbol(2, low=2, high=8)
OPERATIONS = {"add": add, "sub": sub, "mul": mul, "floordiv": floordiv, "mod": mod, "min": minimum, "max": maximum}
PYTHON = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "min": min, "max": max,
}  # fmt: skip


def f32(*shape) -> TensorType:
    return TensorType(6, tuple(shape))


def test_equal_expressions_have_one_form():
    assert add(S, S) == mul(2, S)
    assert sub(mul(add(S, 1), add(S, -1)), mul(S, S)) == -1
    assert floordiv(add(mul(S, 4), 6), 4) == add(S, 1)
    assert floordiv(mul(S, U), U) == S
    assert mod(add(mul(S, 4), 6), 4) == 2
    assert mod(mul(S, U), S) == 0
    assert minimum(S, add(S, 1)) == S
    assert maximum(S, 0) == S
    assert hash(add(S, U)) == hash(add(U, S))
    assert symbol(1, low=5) == S


def test_bounds_follow_from_those_of_symbols():
    assert bounds(U) == (2, 8)
    assert bounds(sub(10, U)) == (2, 8)
    assert bounds(mul(U, U)) == (4, 64)
    assert bounds(S) == (1, None)
    assert bounds(floordiv(U, 3)) == (0, 2)
    assert bounds(mod(S, 5)) == (0, 4)
    assert floordiv(U, 9) == 0
    assert mod(U, 9) == U


@pytest.mark.parametrize(
    "size",
    [S, add(S, 1), sub(mul(S, 2), 3), mul(S, U), floordiv(add(S, 1), 2), neg(floordiv(S, U)), minimum(S, U),
     add(mul(-2, mod(S, 3)), maximum(add(S, U), 4))],
)  # fmt: skip
def test_a_size_prints_in_a_type_and_parses_back(size):
    t = TensorType(6, (4, size, None))
    assert parse_type(str(t)) == t
    assert str(parse_type(str(t))) == str(t)


def test_the_plain_symbol_prints_as_torch_prints_it():
    assert str(f32(S, 16)) == "Float(SS(-1), 16)"


def test_what_grows_without_end_is_given_up():
    size = add(S, U)
    with pytest.raises(symbols.TooLong):
        for k in range(3, 60):
            size = mul(size, add(symbol(k), 1))


@st.composite
def expressions(draw, depth=3):
    """An expression and a Python function of the symbols' values that computes it."""
    if depth == 0 or draw(st.booleans()):
        kind = draw(st.sampled_from(("number", "s", "u")))
        if kind == "number":
            n = draw(st.integers(-4, 6))
            return n, lambda s, u: n
        return (S, lambda s, u: s) if kind == "s" else (U, lambda s, u: u)
    name = draw(st.sampled_from(sorted(OPERATIONS)))
    (a, f), (b, g) = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    if name in ("floordiv", "mod") and (bounds(b)[0] or 0) < 1:
        b, g = 3, lambda s, u: 3
    return OPERATIONS[name](a, b), lambda s, u: PYTHON[name](f(s, u), g(s, u))


@given(expressions(), st.integers(1, 20), st.integers(2, 8))
def test_an_expression_has_the_value_of_what_it_was_made_of(expression, s, u):
    size, compute = expression
    value = compute(s, u)
    assert evaluate(size, {1: s, 2: u}) == value
    low, high = bounds(size)
    assert (low is None or low <= value) and (high is None or value <= high)
    if isinstance(size, Sym):
        found = symbols.parse(str(size), 0)
        assert found is not None and evaluate(found[0], {1: s, 2: u}) == value


def test_a_live_size_refuses_what_its_bounds_do_not_decide():
    live = Live(S)
    assert live >= 1 and not live < 1 and live != 0 and live + 1 > live and live == Live(S)
    for question in (
        lambda: live == 1,
        lambda: live > 3,
        lambda: live == Live(U),
        lambda: int(live),
        lambda: hash(live),
    ):
        with pytest.raises(NotKnown):
            question()


@pytest.mark.parametrize(
    "name, args, shape",
    [
        ("aten::add.Tensor", [f32(S, 4), f32(1, 4)], (S, 4)),
        ("aten::add.Tensor", [f32(S, 4), f32(S, 1)], (S, 4)),
        ("aten::add.Tensor", [f32(S, 4), f32(3, 4)], (3, 4)),
        ("aten::add.Tensor", [f32(S, 4), f32(symbol(3), 4)], (None, 4)),
        ("aten::relu_", [f32(S, 4)], (S, 4)),
        ("aten::view", [f32(S, 3, 4), [S, -1]], (S, 12)),
        ("aten::view", [f32(S, 3, 4), [-1, 4]], (mul(3, S), 4)),
        ("aten::flatten.using_ints", [f32(S, 3, 4), 0, 1], (mul(3, S), 4)),
        ("aten::transpose.int", [f32(S, 3), 0, 1], (3, S)),
        ("aten::slice.Tensor", [f32(S, 8), 0, 0, 9223372036854775807, 1], (S, 8)),
        ("aten::slice.Tensor", [f32(U, 8), 0, 1, None, 1], (sub(U, 1), 8)),
        ("aten::slice.Tensor", [f32(S, 8), 1, 0, -2, 1], (S, 6)),
        ("aten::linear", [f32(S, 9, 4), f32(5, 4), None], (S, 9, 5)),
        ("aten::matmul", [f32(S, 2, 4), f32(S, 4, 5)], (S, 2, 5)),
        ("aten::conv2d", [f32(S, 3, 8, 8), f32(5, 3, 3, 3), None, [2, 2], [1, 1], [1, 1], 1], (S, 5, 4, 4)),
        ("aten::conv2d", [f32(1, 3, mul(U, 2), 8), f32(5, 3, 3, 3), None, [2, 2], [1, 1], [1, 1], 1], (1, 5, U, 4)),
        ("aten::max_pool2d", [f32(S, 3, 8, 8), [2, 2], [2, 2], [0, 0], [1, 1], False], (S, 3, 4, 4)),
        ("aten::layer_norm", [f32(S, 9, 4), [4], None, None, 1e-5, True], (S, 9, 4)),
        ("aten::softmax.int", [f32(S, 9), 1, None], (S, 9)),
        ("aten::sum.dim_IntList", [f32(S, 9), [1], False, None], (S,)),
        ("aten::cat", [[f32(S, 4), f32(U, 4), f32(2, 4)], 0], (add(add(S, U), 2), 4)),
        ("aten::expand", [f32(1, 1, 4), [S, 3, -1], False], (S, 3, 4)),
        ("aten::arange", [S, 4, None, None, None], (S,)),
    ],
)  # fmt: skip
def test_rules_compute_with_symbols(name, args, shape):
    op = table.by_full_name(name)
    assert infer(op, args).shape == shape


@pytest.mark.parametrize("n", [1, 2, 7])
def test_rules_with_symbols_say_what_kernels_do(n):
    op = table.by_full_name("aten::slice.Tensor")
    for start in (None, 0, 1, 3, -1, -3):
        for end in (None, 0, 2, 5, -1, -4):
            for step in (1, 2, 3):
                shape = infer(op, [f32(S), 0, start, end, step]).shape
                real = type_of(op.kernel(np)(np.zeros(n, np.float32), 0, start, end, step)).shape
                assert shape == (None,) or evaluate(shape[0], {1: n}) == real[0]


def test_ints_are_computed_with_symbols():
    by_name = table.by_full_name
    assert infer(by_name("aten::size.int"), [f32(S, 4), 0]) == S
    assert infer(by_name("aten::size"), [f32(S, 4)]) == [S, 4]
    assert infer(by_name("aten::mul.int"), [S, 3]) == mul(3, S)
    assert infer(by_name("aten::floordiv.int"), [mul(S, 4), 2]) == mul(2, S)
    assert infer(by_name("aten::gt.int"), [S, 0]) is True
    assert not isinstance(infer(by_name("aten::gt.int"), [S, 3]), bool)
