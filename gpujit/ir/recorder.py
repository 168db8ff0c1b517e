"""Recording operator bodies: the module ``m`` that takes NumPy's place.

A body that runs on a ``Recorder`` with ``Recorded`` operands computes nothing: it leaves the expressions of one
element (see ``scalar``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpujit.ir import scalar
from gpujit.ir.dtypes import BOOL_, kind_of
from gpujit.ir.recorded import Recorded, expression_of, operate, power, unified
from gpujit.ir.scalar import Expr, RecordError

# NumPy's names of operations.
_FUNCTIONS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "floor_divide": "floordiv", "remainder": "mod", "mod": "mod", "fmod": "fmod", "negative": "neg", "absolute": "abs",
    "abs": "abs", "fabs": "abs", "maximum": "maximum", "minimum": "minimum", "fmax": "fmax", "fmin": "fmin",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "exp": "exp", "exp2": "exp2",
    "expm1": "expm1", "log": "log", "log1p": "log1p", "log2": "log2", "log10": "log10", "sin": "sin", "cos": "cos",
    "tan": "tan", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "sqrt": "sqrt", "arctan2": "atan2",
    "hypot": "hypot", "copysign": "copysign", "logaddexp": "logaddexp", "logaddexp2": "logaddexp2",
    "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
    "signbit": "signbit", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "invert": "not",
    "bitwise_not": "not", "left_shift": "shl", "right_shift": "shr", "gcd": "gcd", "lcm": "lcm",
    "erf": "erf", "erfc": "erfc", "lgamma": "lgamma",
}  # fmt: skip
_LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
# What tests of floats say of integers and bools.
_TESTS = {"isnan": False, "isinf": False, "isfinite": True}
_ROWS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "cumsum", "cumprod")


class Recorder:
    """The module handed to a body as ``m``: NumPy's names of what kernels can do, and a few that NumPy lacks.

    Over the row a body reduces: ``sum``, ``prod``, ``max``, ``min``, ``any``, ``all``, ``argmax``, ``argmin`` (one
    number for each row), ``cumsum``, ``cumprod``; ``count(dtype)`` elements make a row.
    ``checks`` are the conditions that ``check`` was told, each with its message.
    """

    inf, nan, pi = math.inf, math.nan, math.pi
    iinfo, finfo = staticmethod(np.iinfo), staticmethod(np.finfo)
    float32, float64, int64, int32 = np.dtype("f4"), np.dtype("f8"), np.dtype("i8"), np.dtype("i4")
    bool_, uint8 = np.dtype("?"), np.dtype("u1")
    # Refused by whatever takes them as a dtype.
    complex64, complex128 = np.dtype("c8"), np.dtype("c16")
    __name__ = "recorder"

    def __init__(self) -> None:
        self.checks: list[tuple[Expr, str]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any]
        if name in _FUNCTIONS:
            function = _function(_FUNCTIONS[name])
        elif name in _LOGIC:
            function = _logic(_LOGIC[name])
        elif name in _TESTS:
            function = _test(name, _TESTS[name])
        elif name in _ROWS:
            function = _row(name)
        else:
            raise RecordError(
                f"m.{name} cannot be recorded; write the body with what kernels know (ir/scalar.py), or declare a "
                "`scalar` body on the entry"
            )
        setattr(self, name, function)
        return function

    def check(self, condition: Any, message: str) -> None:
        """Note that the program fails with ``message`` where ``condition`` does not hold."""
        if not isinstance(condition, Recorded) or condition.dtype != BOOL_:
            raise RecordError(f"a check needs a recorded bool, found {condition!r}")
        self.checks.append((condition.expr, message))

    def call(self, name: str, *values: Any, dtype: Any) -> Recorded:
        """A function that has no expression: whoever runs the program looks it up by name, or refuses."""
        recorded = [x for x in values if isinstance(x, Recorded)]
        operands = tuple(expression_of(x, np.dtype(dtype)) for x in values)
        rank = None if any(x.rank is None for x in recorded) else max((x.ndim for x in recorded), default=0)
        return Recorded(Expr("call", operands, np.dtype(dtype), name), rank)

    def count(self, dtype: Any) -> Recorded:
        """How many elements a row has."""
        return Recorded(Expr("count", (), np.dtype(dtype)), 0)

    def where(self, condition: Any, a: Any, b: Any) -> Recorded:
        """``a`` where the condition holds, ``b`` elsewhere."""
        known = condition.expr.value if isinstance(condition, Recorded) and condition.expr.op == "const" else condition
        if not isinstance(known, Recorded):
            taken, left = (a, b) if known else (b, a)
            if isinstance(taken, Recorded):
                return taken.copy()
            return self.full_like(left, taken)
        (chosen, other), rank = unified([a, b], None)
        known = None if rank is None or condition.rank is None else max(rank, condition.rank)
        return Recorded(scalar.where(scalar.cast(condition.expr, BOOL_), chosen, other), known)

    def clip(self, x: Any, low: Any, high: Any, out: Recorded | None = None) -> Recorded:
        """min(max(x, low), high); None is no bound."""
        y = x
        if low is not None:
            y = operate("maximum", y, low)
        if high is not None:
            y = operate("minimum", y, high)
        return _into(out, y)

    def power(self, a: Any, b: Any, out: Recorded | None = None) -> Recorded:
        """a ** b."""
        return _into(out, power(a, b))

    def square(self, x: Any, out: Recorded | None = None) -> Recorded:
        """x * x."""
        return _into(out, operate("mul", x, x))

    def reciprocal(self, x: Any, out: Recorded | None = None) -> Recorded:
        """1 / x."""
        return _into(out, operate("div", 1, x))

    def sign(self, x: Recorded, out: Recorded | None = None) -> Recorded:
        """-1, 0 or 1 by the sign; NaN stays NaN."""
        one, zero = scalar.const(1, x.dtype), scalar.const(0, x.dtype)
        rest = zero if x.dtype.kind != "f" else scalar.where(scalar.apply("eq", x.expr, zero), zero, x.expr)
        if x.dtype.kind != "u":
            rest = scalar.where(scalar.apply("lt", x.expr, zero), scalar.const(-1, x.dtype), rest)
        return _into(out, Recorded(scalar.where(scalar.apply("gt", x.expr, zero), one, rest), x.rank))

    def logical_not(self, x: Recorded, out: Recorded | None = None) -> Recorded:
        """Whether an element is zero."""
        return _into(out, Recorded(scalar.apply("not", scalar.cast(x.expr, BOOL_)), x.rank))

    def conjugate(self, x: Recorded, out: Recorded | None = None) -> Recorded:
        """The number itself: recorded numbers are real."""
        return _into(out, x.copy())

    def asarray(self, x: Any, dtype: Any = None) -> Recorded:
        """A Recorded in ``dtype``, made of one or of a number."""
        if isinstance(x, Recorded):
            return x if dtype is None else x.astype(dtype)
        if dtype is None:
            raise RecordError(f"{x!r}: give a dtype to make it an operand")
        return Recorded(expression_of(x, np.dtype(dtype)), 0)

    def full_like(self, x: Recorded, value: Any, dtype: Any = None) -> Recorded:
        """A variable that holds ``value`` everywhere."""
        wanted = x.dtype if dtype is None else np.dtype(dtype)
        return Recorded(scalar.cast(expression_of(value, wanted), wanted), x.rank)

    def zeros_like(self, x: Recorded, dtype: Any = None) -> Recorded:
        """A variable that holds 0."""
        return self.full_like(x, 0, dtype)

    def ones_like(self, x: Recorded, dtype: Any = None) -> Recorded:
        """A variable that holds 1."""
        return self.full_like(x, 1, dtype)

    def empty_like(self, x: Recorded, dtype: Any = None) -> Recorded:
        """A variable to be assigned."""
        return self.full_like(x, 0, dtype)

    def copyto(self, out: Recorded, value: Any, where: Any = True) -> None:
        """Assign to ``out`` where the condition holds."""
        given = scalar.cast(expression_of(value, out.dtype), out.dtype)
        out.expr = scalar.where(where.expr, given, out.expr) if isinstance(where, Recorded) else given

    def broadcast_arrays(self, *values: Recorded) -> tuple[Recorded, ...]:
        """The operands: broadcasting is left to whoever loads them."""
        return values


def _into(out: Recorded | None, y: Recorded) -> Recorded:
    if out is None:
        return y
    out.expr = scalar.cast(y.expr, out.dtype)
    return out


def _function(name: str) -> Callable[..., Recorded]:
    arity = scalar.SCALAR_OPS[name].arity

    def call(*values: Any, out: Recorded | None = None, dtype: Any = None) -> Any:
        # The out array may come as one more positional argument, as for ufuncs.
        if len(values) == arity + 1:
            *values, out = values  # type: ignore[assignment]
        if dtype is None and not any(isinstance(x, Recorded) for x in values):
            return _of_numbers(name, values)
        operands = [x.astype(dtype) if dtype is not None and isinstance(x, Recorded) else x for x in values]
        if name == "signbit" and kind_of(operands[0].dtype) < 2:
            return _into(out, operate("lt", operands[0], 0))
        return _into(out, operate(name, *operands, dtype=dtype))

    return call


def _of_numbers(name: str, values: Sequence[Any]) -> Any:
    """The operation of numbers alone, which is a number as well."""
    numpy_name = next(n for n, of in _FUNCTIONS.items() if of == name)
    if not hasattr(np, numpy_name):
        raise RecordError(f"{name}({', '.join(map(repr, values))}): none is recorded, so the dtype is not known")
    with np.errstate(all="ignore"):
        return getattr(np, numpy_name)(*values).item()


def _logic(name: str) -> Callable[..., Recorded]:
    def call(a: Any, b: Any, out: Recorded | None = None) -> Recorded:
        return _into(out, operate(name, *(x.astype(BOOL_) if isinstance(x, Recorded) else bool(x) for x in (a, b))))

    return call


def _test(name: str, of_integers: bool) -> Callable[..., Recorded]:
    def call(x: Any, out: Recorded | None = None) -> Any:
        if not isinstance(x, Recorded):
            return bool(getattr(np, name)(x))
        if kind_of(x.dtype) < 2:
            return _into(out, Recorded(scalar.const(of_integers, BOOL_), x.rank))
        return _into(out, operate(name, x))

    return call


def _row(name: str) -> Callable[..., Recorded]:
    def call(x: Recorded) -> Recorded:
        return Recorded(scalar.reduce(name, x.expr), x.rank)

    return call
