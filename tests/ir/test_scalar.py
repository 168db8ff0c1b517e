"""Scalar expressions and their recording: dtypes are explicit, numbers are weak, what is not known is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpujit.ir import scalar
from gpujit.ir.recorded import Recorded, operate
from gpujit.ir.recorder import Recorder
from gpujit.ir.scalar import Expr, RecordError, walk

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64, I32, I64, U8, BOOL = (np.dtype(d) for d in ("f2", "f4", "f8", "i4", "i8", "u1", "?"))


def leaf(dtype: np.dtype = F32, rank: int | None = None) -> Recorded:
    return Recorded(Expr("input", (), dtype, object()), rank)


def shown(x: Recorded | Expr) -> str:
    """An expression in text, inputs as their dtypes."""
    e = x.expr if isinstance(x, Recorded) else x
    if e.op == "input":
        return str(e.dtype)
    if e.op == "const":
        return repr(e.value)
    name = f"{e.op}:{e.dtype}" if e.op == "cast" else e.op
    return f"{name}({', '.join(map(shown, e.operands))})"


@pytest.mark.parametrize(
    ("of", "want"),
    [
        (lambda m, x: x * 2, "mul(float32, 2.0)"),
        (lambda m, x: 1 / (1 + m.exp(-x)), "div(1.0, add(1.0, exp(neg(float32))))"),
        (lambda m, x: m.maximum(x, 0), "maximum(float32, 0.0)"),
        (lambda m, x: m.where(x > 0, x, 0.5), "where(gt(float32, 0.0), float32, 0.5)"),
        (lambda m, x: (x < 1) & ~(x == 2), "and(lt(float32, 1.0), not(eq(float32, 2.0)))"),
        (lambda m, x: x.astype(F64) + 0.1, "add(cast:float64(float32), 0.1)"),
        (lambda m, x: x + 0.1, f"add(float32, {float(np.float32(0.1))!r})"),
        (lambda m, x: x**2 + x**0.5, "add(mul(float32, float32), sqrt(float32))"),
        (lambda m, x: m.clip(x, -1, None), "maximum(float32, -1.0)"),
        (lambda m, x: m.add(x > 0, x, dtype=F64), "add(cast:float64(gt(float32, 0.0)), cast:float64(float32))"),
        (lambda m, x: x - m.max(x), "sub(float32, max(float32))"),
        (lambda m, x: m.sum(x) / m.count(F32), "div(sum(float32), count())"),
        (lambda m, x: m.logical_or(x, True), "or(cast:bool(float32), True)"),
        (lambda m, x: m.square(m.reciprocal(x)), "mul(div(1.0, float32), div(1.0, float32))"),
        (lambda m, x: x * m.log(2), f"mul(float32, {float(np.float32(math.log(2)))!r})"),
        (lambda m, x: np.float32(2) * x, "mul(2.0, float32)"),
    ],
)  # fmt: skip
def test_bodies_leave_expressions(of: Callable[[Any, Any], Any], want: str) -> None:
    assert shown(of(Recorder(), leaf())) == want


def test_out_and_in_place_assign_as_to_an_array() -> None:
    m = Recorder()
    x = leaf()
    y = m.empty_like(x)
    m.negative(x, out=y)
    m.exp(y, y)
    y += 1
    y[...] = m.divide(x, y)
    assert shown(y) == "div(float32, add(exp(neg(float32)), 1.0))" and shown(x) == "float32"
    copy = y.copy()
    copy *= 2
    assert shown(y).startswith("div(float32, add")
    m.copyto(copy, 0, where=x > 1)
    assert shown(copy).startswith("where(gt(float32, 1.0), 0.0, mul(")
    # A variable keeps its dtype, as an array does.
    z = m.full_like(x, 0)
    m.add(x.astype(F64), 1, out=z)
    assert z.dtype == F32


def test_integers_stay_integers() -> None:
    m = Recorder()
    i, b = leaf(I32), leaf(BOOL)
    assert (i + 1).dtype == I32 and (b + 1).dtype == I64 and (b * True).dtype == BOOL
    assert shown(b + b) == "or(bool, bool)" and shown(m.minimum(b, b)) == "and(bool, bool)"
    assert (i + leaf(I64)).dtype == I64 and (leaf(U8) + leaf(np.dtype("i1"))).dtype == np.dtype("i2")
    assert (
        shown(leaf(U8) == -1) == "False"
        and shown(leaf(U8) < 300) == "True"
        and shown(operate("lt", 300, leaf(U8))) == "False"
    )
    assert shown(m.isfinite(i)) == "True" and shown(m.isnan(i)) == "False"
    assert shown(m.where(m.isnan(i), 0.5, i)) == "int32"


def test_sign_keeps_nan_and_drops_minus_zero() -> None:
    m = Recorder()
    assert "eq(float32, 0.0), 0.0, float32" in shown(m.sign(leaf()))
    assert shown(m.sign(leaf(U8))) == "where(gt(uint8, 0), 1, 0)"


@pytest.mark.parametrize(
    ("of", "message"),
    [
        (lambda m, x: 1 if x > 0 else 2, "whether an element is true is not known"),
        (lambda m, x: len(x), "the length is not known"),
        (lambda m, x: list(x), "the length is not known"),
        (lambda m, x: float(x), "the value is not known"),
        (lambda m, x: np.asarray(x), "the value is not known"),
        (lambda m, x: x.shape, "'shape' is not known"),
        (lambda m, x: x.ndim, "the number of dims is not known"),
        (lambda m, x: x[0], "a part is not known"),
        (lambda m, x: x.any(), "'any' is not known"),
        (lambda m, x: m.sort(x), "m.sort cannot be recorded"),
        (lambda m, x: x + leaf(I64), "float32 beside int64: the dtype to compute in is not clear"),
        (lambda m, x: leaf(I64) * 0.5, "0.5 beside int64"),
        (lambda m, x: x + 1j, "kernels know no complex numbers"),
        (lambda m, x: x.astype("c8"), "a cast to complex64"),
        (lambda m, x: leaf(U8) + 300, "the constant 300 is no uint8"),
        (lambda m, x: leaf(F16) + 1, "float16 is computed in float32; cast the operands first"),
        (lambda m, x: leaf(BF16) + leaf(F16), "bfloat16 beside float16"),
        (lambda m, x: m.exp(leaf(I64)), "exp(int64): not defined on int64"),
        (lambda m, x: -leaf(BOOL), "neg(bool): not defined on bool"),
        (lambda m, x: x & 1, "and(float32, float32): not defined on float32"),
        (lambda m, x: x + "one", "str is neither recorded nor a number"),
        (lambda m, x: m.where(x > 0, 1, 2), "none is recorded, so the dtype is not known"),
        (lambda m, x: m.check(x, "no"), "a check needs a recorded bool"),
        (lambda m, x: m.any(x), "any(float32): not defined on float32"),
    ],
)
def test_what_a_kernel_cannot_know_is_refused(of: Callable[[Any, Any], Any], message: str) -> None:
    with pytest.raises(RecordError) as error:
        of(Recorder(), leaf())
    assert message in str(error.value)


def test_operations_are_of_one_dtype() -> None:
    x, y = leaf().expr, leaf(F64).expr
    for make, message in (
        (lambda: scalar.apply("add", x, y), "add(float32, float64): operands must have one dtype"),
        (lambda: scalar.apply("add", x), "add takes 2 operands, found 1"),
        (lambda: scalar.apply("nothing", x), "there is no scalar operation 'nothing'"),
        (lambda: scalar.reduce("median", x), "there is no operation over rows 'median'"),
        (lambda: scalar.where(x, x, x), "where(float32, float32, float32): needs a bool"),
    ):  # fmt: skip
        with pytest.raises(RecordError) as error:
            make()
        assert message in str(error.value)


def test_constants_are_exact_in_their_dtype() -> None:
    assert scalar.const(0.1, F32).value == float(np.float32(0.1)) and scalar.const(0.1, F64).value == 0.1
    assert scalar.const(1, BF16).value == 1.0 and scalar.const(300, BF16).value == 300.0
    assert scalar.const(2, BOOL).value is True
    assert scalar.cast(scalar.const(300, I64), U8).value == 44 and scalar.cast(scalar.const(-1, I64), U8).value == 255
    assert scalar.cast(scalar.const(200, U8), np.dtype("i1")).value == -56
    # What C leaves open is left to the kernel.
    assert scalar.cast(scalar.const(1e30, F32), I32).op == "cast"


def test_walk_visits_operands_first_and_once() -> None:
    x = leaf().expr
    deep = x
    for _ in range(3000):
        deep = scalar.apply("mul", deep, deep)
    order = walk([deep])
    assert len(order) == 3001 and order[0] is x and order[-1] is deep


def test_ranks_follow_operands() -> None:
    m = Recorder()
    a, b, unknown = leaf(rank=2), leaf(rank=0), leaf()
    assert (a + b).ndim == 2 and m.where(b > 0, b, 1).ndim == 0 and m.exp(b).ndim == 0
    assert (a + unknown).rank is None


def test_checks_are_collected() -> None:
    m = Recorder()
    m.check(leaf(I64) != 0, "a zero")
    ((condition, message),) = m.checks
    assert shown(condition) == "ne(int64, 0)" and message == "a zero"
