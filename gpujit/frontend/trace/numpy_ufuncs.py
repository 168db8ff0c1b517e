"""NumPy's ufuncs as operators: operands are cast to the dtypes of the loop that NumPy would run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpujit.frontend.trace.numbers import TracedNumber
from gpujit.frontend.trace.numpy_calls import Call
from gpujit.frontend.trace.state import Traced
from gpujit.ir.values import is_int64

Record = Callable[..., Any]
_NUMBERS = (bool, int, float, complex)
# Operators with an overload for a number in the second place.
_COMPARISONS = frozenset(("gt", "ge", "lt", "le", "eq", "ne"))
_TAKE_NUMBER = _COMPARISONS | {
    "add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "bitwise_and", "bitwise_or", "bitwise_xor",
}  # fmt: skip


def _as(name: str) -> Record:
    return lambda call, *operands: call.op(name, *operands)


def _sign(call: Call, x: Any) -> Any:
    if x._concrete.dtype.kind == "c":
        return call.op("sgn", x)
    signs = call.op("sign", x)
    # NumPy's sign of NaN is NaN.
    return signs if x._concrete.dtype.kind in "iu" else call.op("where", call.op("ne", x, x), x, signs)


def _cbrt(call: Call, x: Any) -> Any:
    return call.op("copysign", call.op("pow", call.op("abs", x), 1.0 / 3.0), x)


def _matmul(call: Call, a: Any, b: Any) -> Any:
    if a._concrete.dtype == bool:
        # Products of truth values: whether any pair is true.
        return call.op("ne", call.op("matmul", call.cast(a, np.int32), call.cast(b, np.int32)), 0)
    return call.op("matmul", a, b)


def _absolute(call: Call, x: Any) -> Any:
    return call.op("clone" if x._concrete.dtype == bool else "abs", x)


def _rounded(name: str) -> Record:
    """Rounding to integers, which truth values are already."""
    return lambda call, x: call.op("clone" if x._concrete.dtype == bool else name, x)


def _divmod(call: Call, a: Any, b: Any) -> Any:
    return call.op("floor_divide", a, b), call.op("remainder", a, b)


def _modf(call: Call, x: Any) -> Any:
    whole = call.op("trunc", x)
    rest = call.op("where", call.op("isinf", x), 0.0, call.op("sub", x, whole))
    return call.op("copysign", rest, x), whole


def _reciprocal(call: Call, x: Any) -> Any:
    if x._concrete.dtype.kind in "iu":
        return call.op("div", call.op("ones_like", x), x, rounding_mode="trunc")
    return call.op("reciprocal", x)


def _logical(name: str) -> Record:
    def record(call: Call, *operands: Any) -> Any:
        return call.op(name, *(call.op("ne", x, 0) if x._concrete.dtype != bool else x for x in operands))

    return record


def _shift(name: str) -> Record:
    def record(call: Call, a: Any, b: Any) -> Any:
        bits = a._concrete.dtype.itemsize * 8
        shifted = call.op(name, a, call.op("clamp", b, 0, bits - 1))
        # Shifting by all bits and more leaves nothing but, to the right, the sign.
        if name == "bitwise_left_shift":
            return call.op("where", call.op("ge", b, bits), call.op("zeros_like", a), shifted)
        return shifted if a._concrete.dtype.kind == "i" else call.op("where", call.op("ge", b, bits), 0, shifted)

    return record


def _vecdot(call: Call, a: Any, b: Any) -> Any:
    return call.op("sum", call.op("mul", call.op("conj_physical", a) if a._concrete.dtype.kind == "c" else a, b), [-1])


def _matvec(call: Call, a: Any, b: Any) -> Any:
    return call.op("squeeze", call.op("matmul", a, call.op("unsqueeze", b, -1)), -1)


def _vecmat(call: Call, a: Any, b: Any) -> Any:
    a = call.op("conj_physical", a) if a._concrete.dtype.kind == "c" else a
    return call.op("squeeze", call.op("matmul", call.op("unsqueeze", a, -2), b), -2)


def _rint(call: Call, x: Any) -> Any:
    if x._concrete.dtype.kind == "c":
        return call.op("complex", call.op("round", call.op("real", x)), call.op("round", call.op("imag", x)))
    return call.op("round", x)


_PLAIN = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "floor_divide": "floor_divide",
    "remainder": "remainder", "fmod": "fmod", "power": "pow", "float_power": "pow", "negative": "neg",
    "positive": "positive", "fabs": "abs", "conjugate": "conj_physical", "square": "square",
    "sqrt": "sqrt", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10",
    "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin", "arccos": "acos", "arctan": "atan",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "arctan2": "atan2", "hypot": "hypot", "degrees": "rad2deg", "rad2deg": "rad2deg", "radians": "deg2rad",
    "deg2rad": "deg2rad", "maximum": "maximum",
    "minimum": "minimum", "fmax": "fmax", "fmin": "fmin", "greater": "gt", "greater_equal": "ge", "less": "lt",
    "less_equal": "le", "equal": "eq", "not_equal": "ne", "isnan": "isnan",
    "isfinite": "isfinite", "isinf": "isinf", "signbit": "signbit",
    "copysign": "copysign", "nextafter": "nextafter", "heaviside": "heaviside", "logaddexp": "logaddexp",
    "logaddexp2": "logaddexp2", "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
    "invert": "bitwise_not", "gcd": "gcd", "lcm": "lcm", "ldexp": "ldexp", "frexp": "frexp",
}  # fmt: skip
UFUNCS: dict[Any, Record] = {getattr(np, numpy): _as(aten) for numpy, aten in _PLAIN.items()} | {
    np.absolute: _absolute,
    np.floor: _rounded("floor"),
    np.ceil: _rounded("ceil"),
    np.trunc: _rounded("trunc"),
    np.sign: _sign,
    np.cbrt: _cbrt,
    np.rint: _rint,
    np.matmul: _matmul,
    np.divmod: _divmod,
    np.modf: _modf,
    np.reciprocal: _reciprocal,
    np.logical_and: _logical("logical_and"),
    np.logical_or: _logical("logical_or"),
    np.logical_xor: _logical("logical_xor"),
    np.logical_not: _logical("logical_not"),
    np.left_shift: _shift("bitwise_left_shift"),
    np.right_shift: _shift("bitwise_right_shift"),
}
for _name, _body in (("vecdot", _vecdot), ("matvec", _matvec), ("vecmat", _vecmat)):
    # Newer than the oldest NumPy that is supported.
    if hasattr(np, _name):
        UFUNCS[getattr(np, _name)] = _body
_NAMES = {getattr(np, numpy): aten for numpy, aten in _PLAIN.items()}


def loop_dtypes(ufunc: Any, operands: Sequence[Any], dtype: Any = None, signature: Any = None) -> Sequence[Any]:
    """The dtypes that NumPy computes in for these operands, then those of the results."""
    given: list[Any] = []
    for x in operands:
        x = x._concrete if isinstance(x, Traced) else x
        if type(x) in (int, float, complex):
            given.append(type(x))
        else:
            given.append(np.asarray(x).dtype)
    if all(isinstance(d, type) for d in given):
        given = [np.dtype(d) for d in given]
    results = (None,) * ufunc.nout
    if signature is None and dtype is not None:
        signature = (*(None,) * ufunc.nin, *(np.dtype(dtype),) * ufunc.nout)
    if signature is None:
        return tuple(ufunc.resolve_dtypes((*given, *results)))
    return tuple(ufunc.resolve_dtypes((*given, *results), signature=signature))


def compose(call: Call, ufunc: Any, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """Record a ufunc's call."""
    if {"axis", "axes", "keepdims"} & set(options):
        raise call.refuse("axis=, axes= and keepdims= of ufuncs have no counterpart; move the axes first")
    dtypes = loop_dtypes(ufunc, inputs, options.get("dtype"), options.get("signature"))
    takes_number = _NAMES.get(ufunc) in _TAKE_NUMBER
    if _NAMES.get(ufunc) in _COMPARISONS:
        dtypes = [_wide(d, inputs) for d in dtypes]
    operands: list[Any] = []
    for i, (x, dtype) in enumerate(zip(inputs, dtypes, strict=False)):
        number = _number(x, dtype)
        keeps = number is not None and takes_number and i > 0 and isinstance(operands[0], Traced)
        operands.append(number if keeps else call.tensor(x, dtype))
    return UFUNCS[ufunc](call, *operands)


def _number(x: Any, dtype: Any) -> Any:
    """An operand that stays a number in the graph, rounded to what NumPy makes of it; None for any other."""
    if isinstance(x, TracedNumber):
        # A half number is rounded before it is used, which only a tensor is.
        return None if dtype.itemsize == 2 and dtype.kind != "i" and dtype.kind != "u" else x
    if type(x) not in _NUMBERS and not isinstance(x, np.generic):
        return None
    if dtype.kind not in "biufc" or isinstance(x, np.void):
        return None
    number = np.asarray(x).astype(dtype).item()
    # What TorchScript's int does not hold goes into a tensor.
    fits = type(number) in _NUMBERS and (type(number) is not int or is_int64(number))
    return number if fits else None


def _wide(dtype: Any, inputs: Sequence[Any]) -> Any:
    """The dtype to compare in: NumPy compares arrays of small integers with numbers that they cannot hold."""
    if dtype.kind not in "iu":
        return dtype
    info = np.iinfo(dtype)
    for x in inputs:
        x = x._concrete if isinstance(x, TracedNumber) else x
        if type(x) is int and not info.min <= x <= info.max:
            return np.dtype(np.int64)
    return dtype


# ------------------------------------------------------------------------------------------- methods of ufuncs

_REDUCE: dict[Any, Any] = {
    np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min, np.logical_and: np.all,
    np.logical_or: np.any, np.bitwise_and: None,
}  # fmt: skip


def _reduce(
    call: Call, ufunc: Any, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, **options: Any
) -> Any:
    function = _REDUCE.get(ufunc)
    if function is None:
        raise call.refuse("only sums, products, extremes, all and any are reduced by operators")
    if dtype is not None:
        options["dtype"] = dtype
    if out is not None:
        options["out"] = out[0] if isinstance(out, tuple) else out
    return function(array, axis=axis, **options)


def _accumulate(call: Call, ufunc: Any, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
    if out is not None:
        raise call.refuse("out= of accumulate")
    if ufunc in (np.add, np.multiply):
        return (np.cumsum if ufunc is np.add else np.cumprod)(array, axis=axis, dtype=dtype)
    if ufunc not in (np.maximum, np.minimum):
        raise call.refuse("only sums, products and extremes are accumulated by operators")
    from gpujit.frontend.trace.numpy_calls import attach

    call.expected = ufunc.accumulate(array._concrete, axis=axis, dtype=dtype)
    values, _ = call.op("cummax" if ufunc is np.maximum else "cummin", array, axis)
    return attach(call, values, call.expected, [array])


def _outer(call: Call, ufunc: Any, a: Any, b: Any, **options: Any) -> Any:
    a, b = call.tensor(a), call.tensor(b)
    return ufunc(a.reshape(*a.shape, *(1,) * b.ndim), b, **options)


def _at(call: Call, ufunc: Any, array: Any, indices: Any, values: Any = None) -> None:
    from gpujit.frontend.trace.index import scatter

    if ufunc is not np.add:
        raise call.refuse("only numpy.add.at has an operator")
    if not isinstance(array, Traced):
        raise call.refuse("the array is no part of the trace; make it inside the traced function")
    scatter(call, array, indices, values)
    ufunc.at(*call.tracer.concrete([array, indices, values]))


METHODS: dict[str, Record] = {"reduce": _reduce, "accumulate": _accumulate, "outer": _outer, "at": _at}
