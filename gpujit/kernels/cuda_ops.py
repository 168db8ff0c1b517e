"""Scalar operations of tile programs as Python text for CUDA kernels, made of device functions of ``cuda_device``.

Values of half types are float32 in registers. Every integer result is cast to its type again, since Numba's arithmetic
on short integers gives int64.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from gpujit.ir.dtypes import BFLOAT16, FLOAT16, kind_of
from gpujit.kernels.tile import Const, NotRendered

_HELD = frozenset(
    ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
)
HALF_NAMES = {FLOAT16: "f16", BFLOAT16: "bf16"}

_SAME = {"floordiv": "floor_divide", "mod": "remainder", "pow": "power", "shl": "shift_left", "shr": "shift_right"}
_INTEGER = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "neg": "-{0}", "and": "{0} & {1}", "or": "{0} | {1}",
    "xor": "{0} ^ {1}", "not": "~{0}",
}  # fmt: skip
_INTEGER_SELECTS = {
    "maximum": "select({0} > {1}, {0}, {1})", "minimum": "select({0} < {1}, {0}, {1})",
    "fmax": "select({0} > {1}, {0}, {1})", "fmin": "select({0} < {1}, {0}, {1})",
    "abs": "select({0} < {zero}, {cast}(-{0}), {0})",
}  # fmt: skip
_FLOAT = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}"}
_BOOL = {
    "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "not": "not {0}", "eq": "{0} == {1}", "ne": "{0} != {1}",
    "lt": "{1} & (not {0})", "le": "{1} | (not {0})", "gt": "{0} & (not {1})", "ge": "{0} | (not {1})",
}  # fmt: skip
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FLOAT_CALLS = frozenset(
    (
        "maximum", "minimum", "fmax", "fmin", "pow", "floordiv", "mod", "fmod", "atan2", "hypot", "copysign",
        "logaddexp", "logaddexp2", "floor", "ceil", "trunc", "rint", "exp", "exp2", "expm1", "log", "log1p", "log2",
        "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sqrt",
        "erf", "erfc", "lgamma", "isinf", "isfinite", "signbit",
    )
)  # fmt: skip
_INTEGER_CALLS = frozenset(("pow", "floordiv", "mod", "fmod", "shl", "shr", "gcd", "lcm"))

# What sources may import from cuda_device; all other names in them are their own.
DEVICE_NAMES = frozenset(
    (
        "INF", "NAN", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "f16", "bf16", "to_f16", "to_bf16", "select", "udiv", "urem", "maximum", "minimum", "fmod", "remainder",
        "floor_divide", "power", "gcd", "lcm", "shift_left", "shift_right", "logaddexp", "logaddexp2", "atan2", "hypot",
        "copysign", "fmax", "fmin", "fabs", "floor", "ceil", "trunc", "rint", "exp", "exp2", "expm1", "log", "log1p",
        "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
        "sqrt", "erf", "erfc", "lgamma", "isinf", "isfinite", "signbit", "shuffle_xor", "shuffle_up", "shuffle_last",
        *(f"v{way}{n}{half}" for way in ("load", "store") for n in (2, 4, 8) for half in ("", "_f16", "_bf16")),
    )
)  # fmt: skip
NAME = re.compile(r"[A-Za-z_]\w*")


def held(dtype: np.dtype) -> str:
    """The type that values of ``dtype`` have in registers. Raises NotRendered for one without."""
    if dtype in HALF_NAMES:
        return "float32"
    if dtype.name not in _HELD:
        raise NotRendered(f"values of {dtype.name}")
    return dtype.name


def literal(value: bool | int | float, dtype: np.dtype) -> str:
    """A number of a type."""
    kind = held(dtype)
    if kind == "bool":
        return str(bool(value))
    if isinstance(value, float) and not math.isfinite(value):
        word = "NAN" if math.isnan(value) else "INF" if value > 0 else "-INF"
        return f"{kind}({word})"
    return f"{kind}({value})"


def constant(item: Const) -> str:
    """A constant's text."""
    return literal(item.value, item.dtype)


def cast(x: str, source: np.dtype, target: np.dtype) -> str:
    """``x`` of the program's dtype ``source`` as ``target``."""
    if source == target:
        return x
    if target.name == "bool":
        return f"{x} != {literal(0 if kind_of(source) == 1 else 0.0, source)}"
    if target in HALF_NAMES:
        half = HALF_NAMES[target]
        return f"{half}(to_{half}({x if held(source) == 'float32' else f'float32({x})'}))"
    if held(source) == held(target):
        return x
    if kind_of(source) == 2 and kind_of(target) == 1 and held(target) not in ("int32", "int64"):
        # Through a type that holds all results, so that those out of range wrap.
        return f"{held(target)}(int64({x}))"
    return f"{held(target)}({x})"


def operation(op: str, operands: Sequence[str], dtype: np.dtype) -> str:
    """The operation on atoms of ``dtype``. Raises NotRendered for one without code."""
    kind = kind_of(dtype)
    if op == "where":
        return f"select({', '.join(operands)})"
    if kind == 0 and op in _BOOL:
        return _BOOL[op].format(*operands)
    if op in _COMPARE:
        return f"{operands[0]} {_COMPARE[op]} {operands[1]}"
    if kind == 2:
        if op in _FLOAT:
            return _FLOAT[op].format(*operands)
        if op == "isnan":
            return "{0} != {0}".format(*operands)
        if op == "abs":
            return f"fabs({operands[0]})"
        if op in _FLOAT_CALLS:
            return f"{_SAME.get(op, op)}({', '.join(operands)})"
    if kind == 1:
        name = held(dtype)
        if op in _INTEGER:
            return f"{name}({_INTEGER[op].format(*operands)})"
        if op in _INTEGER_SELECTS:
            if op == "abs" and dtype.kind == "u":
                return operands[0]
            return _INTEGER_SELECTS[op].format(*operands, zero=literal(0, dtype), cast=name)
        if op in _INTEGER_CALLS:
            return f"{_SAME.get(op, op)}({', '.join(operands)})"
    raise NotRendered(f"{op} of {dtype}")


# ------------------------------------------------------------------------------------------------------ over rows


def neutral(op: str, dtype: np.dtype) -> str:
    """What changes nothing when it is combined."""
    if op in ("sum", "any", "cumsum"):
        return literal(0.0 if kind_of(dtype) == 2 else 0, dtype)
    if op in ("prod", "all", "cumprod"):
        return literal(1.0 if kind_of(dtype) == 2 else 1, dtype)
    largest = op in ("min", "argmin")
    if kind_of(dtype) == 2:
        return literal(math.inf if largest else -math.inf, dtype)
    if kind_of(dtype) == 0:
        return str(largest)
    info = np.iinfo(dtype)
    return literal(int(info.max if largest else info.min), dtype)


_COMBINES = {
    "sum": "add", "prod": "mul", "cumsum": "add", "cumprod": "mul", "max": "maximum", "min": "minimum",
}  # fmt: skip
_BOOL_COMBINES = {"any": "or", "all": "and", "max": "or", "min": "and"}


def combine(op: str, a: str, b: str, dtype: np.dtype) -> str:
    """The combination of two results."""
    return operation(_BOOL_COMBINES[op] if kind_of(dtype) == 0 else _COMBINES[op], (a, b), dtype)


def wins(op: str, x: str, y: str, dtype: np.dtype) -> str:
    """Whether ``x`` takes the place of ``y``, which came first, in argmax or argmin; without branches."""
    if kind_of(dtype) == 0:
        return f"({x} & (not {y}))" if op == "argmax" else f"({y} & (not {x}))"
    text = f"({x} {'>' if op == 'argmax' else '<'} {y})"
    return f"({text} | (({x} != {x}) & ({y} == {y})))" if kind_of(dtype) == 2 else text
