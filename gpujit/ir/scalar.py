"""Scalar expressions: what an operator does to one element, as data.

An ``Expr`` is a node of a graph in SSA form: an operation of the vocabulary ``SCALAR_OPS``, its operands, the dtype of
its result. It stands for one number at each point of an iteration space. Operations over rows (``ROW_OPS``) give one
number for each row of that space, or a running one. Leaves are constants and whatever the builder of a kernel puts
there (``input``); how numbers come from memory is no matter of this module.

Dtypes are explicit: both operands of ``add`` have the dtype of the result, and only ``cast`` changes one. NumPy's
promotion decides nothing, and float64 appears only where somebody wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BOOL_, FLOAT8_TYPES, FLOAT32, FLOAT64, HALF_TYPES, INT64, is_tensor_dtype, kind_of
from gpujit.support.errors import GpujitError


class RecordError(GpujitError):
    """An expression cannot be recorded, or would be none: its message says what to do instead."""

    code = "record"


@dataclass(frozen=True, slots=True)
class ScalarOp:
    """One operation of the vocabulary.

    ``takes`` are the kinds of dtypes it is defined on: ``b`` bool, ``i`` integers, ``f`` floats (half types only to be
    stored and cast). ``result``: ``same`` as the operands or ``bool``.
    """

    name: str
    arity: int
    takes: str
    result: str
    meaning: str

    @property
    def cost(self) -> int:
        """How many instructions it takes, roughly: 1, or what a function of several polynomials needs."""
        return HEAVY_COST if self.name in _HEAVY else 1


HEAVY_COST = 20
_HEAVY = frozenset((
    "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "pow", "atan2", "hypot", "fmod", "mod", "floordiv",
    "logaddexp", "logaddexp2", "lgamma", "gcd", "lcm",
))  # fmt: skip


def _table(takes: str, result: str, arity: int, **meanings: str) -> Iterator[ScalarOp]:
    for name, meaning in meanings.items():
        yield ScalarOp(name.rstrip("_"), arity, takes, result, meaning)


SCALAR_OPS: dict[str, ScalarOp] = {
    op.name: op
    for op in (
        *_table(
            "if", "same", 2,
            add="a + b; integers wrap", sub="a - b; integers wrap", mul="a * b; integers wrap",
            maximum="the larger; NaN when either is", minimum="the smaller; NaN when either is",
            fmax="the larger; the other one beside NaN", fmin="the smaller; the other one beside NaN",
            pow="a ** b; of integers with b >= 0, wrapped",
            floordiv="the largest whole number not above a / b, as Python's //; integers by 0 give 0",
            mod="a - b * floordiv(a, b), as Python's %; integers by 0 give 0",
            fmod="the remainder with the sign of a, as C's; integers by 0 give 0",
        ),
        *_table(
            "f", "same", 2,
            div="a / b", atan2="the angle of the point (b, a)", hypot="sqrt(a*a + b*b) without overflow",
            copysign="|a| with the sign of b", logaddexp="log(exp(a) + exp(b))", logaddexp2="log2(2**a + 2**b)",
        ),
        *_table("if", "same", 1, neg="-a; integers wrap", abs="|a|; the smallest integer wraps"),
        *_table(
            "f", "same", 1,
            floor="", ceil="", trunc="towards zero", rint="half to even", exp="", exp2="", expm1="exp(a) - 1", log="",
            log1p="log(1 + a)", log2="", log10="", sin="", cos="", tan="", asin="", acos="", atan="", sinh="", cosh="",
            tanh="", asinh="", acosh="", atanh="", sqrt="", erf="", erfc="1 - erf(a)", lgamma="log(|gamma(a)|)",
        ),
        *_table("bif", "bool", 2, eq="", ne="", lt="", le="", gt="", ge=""),
        *_table("f", "bool", 1, isnan="", isinf="", isfinite="", signbit="also of -0 and NaN"),
        *_table("bi", "same", 2, and_="", or_="", xor=""),
        *_table("bi", "same", 1, not_="all bits turned; of bools the opposite"),
        *_table(
            "i", "same", 2,
            shl="a * 2**b, wrapped; 0 for b outside [0, bits)",
            shr="a shifted right keeping its sign; all sign for b outside [0, bits)",
            gcd="never negative", lcm="never negative; 0 beside 0",
        ),
    )
}  # fmt: skip

# Over a row: one number for each row, or (cumsum, cumprod) the running one at each point.
ROW_OPS: dict[str, ScalarOp] = {
    op.name: op
    for op in (
        *_table("if", "same", 1, sum="0 for no elements; integers wrap", prod="1 for no elements; integers wrap"),
        *_table("bif", "same", 1, max="NaN when any is; no row may be empty", min="NaN when any is; none empty"),
        *_table("b", "same", 1, any="", all=""),
        *_table(
            "bif", "int64", 1,
            argmax="the first of the largest, or of NaN", argmin="the first of the smallest, or of NaN",
        ),
        *_table("if", "same", 1, cumsum="along the last dim of the row", cumprod="along the last dim of the row"),
    )
}  # fmt: skip
SCANS = frozenset(("cumsum", "cumprod"))

_KIND_LETTERS = "bifc"


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """A node: ``op`` is a name of SCALAR_OPS or ROW_OPS, or one of

    - ``const``: ``value`` is a bool, int or float, exact in ``dtype``;
    - ``cast``: the operand in ``dtype``: floats to integers cut the fraction off, anything but 0 is True;
    - ``where``: bool, then two of ``dtype``;
    - ``count``: how many elements a row has, in ``dtype``;
    - ``call``: a function named ``value`` that has no expression; operands of any dtypes;
    - ``input``: a leaf of whoever builds a kernel, who knows what ``value`` is.

    Nodes are compared by identity.
    """

    op: str
    operands: tuple[Expr, ...]
    dtype: np.dtype
    value: Any = None

    def __repr__(self) -> str:
        return f"<Expr {self.op} {self.dtype}>"


def const(value: Any, dtype: np.dtype) -> Expr:
    """A constant of ``dtype``. Raises RecordError: an integer does not fit, or a float meets an integer dtype."""
    kind = kind_of(dtype)
    if isinstance(value, complex) or kind == 3:
        raise RecordError(f"the constant {value} of {dtype}: kernels know no complex numbers; run the operator unfused")
    if kind == 0:
        return Expr("const", (), dtype, bool(value))
    if kind == 1:
        number = int(value) if isinstance(value, (bool, int, np.integer, np.bool_)) else value
        info = np.iinfo(dtype)
        if not isinstance(number, int) or not info.min <= number <= info.max:
            raise RecordError(f"the constant {value!r} is no {dtype}; cast the operand beside it first")
        return Expr("const", (), dtype, number)
    return Expr("const", (), dtype, float(np.asarray(value, dtype=dtype).astype(np.float64)))


def cast(x: Expr, dtype: np.dtype) -> Expr:
    """``x`` in ``dtype``; itself when it has it."""
    if x.dtype == dtype:
        return x
    if kind_of(dtype) == 3 or not is_tensor_dtype(dtype):
        raise RecordError(f"a cast to {dtype}: kernels know no such numbers; run the operator unfused")
    if x.op == "const" and not (kind_of(dtype) == 1 and kind_of(x.dtype) == 2):
        number = x.value
        if kind_of(dtype) == 1:
            info = np.iinfo(dtype)
            number = (int(number) - info.min) % (1 << info.bits) + info.min
        return const(number, dtype)
    return Expr("cast", (x,), dtype)


def where(condition: Expr, a: Expr, b: Expr) -> Expr:
    """``a`` where the condition holds, ``b`` elsewhere; both have one dtype."""
    if condition.dtype != BOOL_ or a.dtype != b.dtype:
        raise RecordError(f"where({condition.dtype}, {a.dtype}, {b.dtype}): needs a bool and two of one dtype")
    if condition.op == "const":
        return a if condition.value else b
    return a if a is b else Expr("where", (condition, a, b), a.dtype)


# On bools, where arithmetic is logic.
_BOOL_FORMS = {"add": "or", "mul": "and", "maximum": "or", "minimum": "and", "fmax": "or", "fmin": "and"}


def apply(name: str, *operands: Expr) -> Expr:
    """An operation of SCALAR_OPS. Raises RecordError: unknown name, wrong number or dtypes of operands."""
    if operands and operands[0].dtype == BOOL_:
        name = _BOOL_FORMS.get(name, name)
    op = SCALAR_OPS.get(name)
    if op is None:
        raise RecordError(f"there is no scalar operation {name!r}; it may be recorded as a call")
    dtype = _common_dtype(op, operands)
    return Expr(name, operands, BOOL_ if op.result == "bool" else dtype)


def reduce(name: str, x: Expr) -> Expr:
    """An operation of ROW_OPS. Raises RecordError: unknown name, or a dtype it does not take."""
    op = ROW_OPS.get(name)
    if op is None:
        raise RecordError(f"there is no operation over rows {name!r}; there are {', '.join(ROW_OPS)}")
    dtype = _common_dtype(op, (x,))
    return Expr(name, (x,), INT64 if op.result == "int64" else dtype)


def _common_dtype(op: ScalarOp, operands: tuple[Expr, ...]) -> np.dtype:
    if len(operands) != op.arity:
        raise RecordError(f"{op.name} takes {op.arity} operands, found {len(operands)}: {_shown(operands)}")
    dtype = operands[0].dtype
    if any(x.dtype != dtype for x in operands):
        raise RecordError(f"{op.name}({_shown(operands)}): operands must have one dtype; cast them first")
    if _KIND_LETTERS[kind_of(dtype)] not in op.takes:
        raise RecordError(f"{op.name}({_shown(operands)}): not defined on {dtype}; cast the operands first")
    if dtype in HALF_TYPES or dtype in FLOAT8_TYPES:
        raise RecordError(f"{op.name}({_shown(operands)}): {dtype} is computed in float32; cast the operands first")
    return dtype


def _shown(operands: tuple[Expr, ...]) -> str:
    return ", ".join(str(x.dtype) for x in operands)


def common(dtypes: Iterable[np.dtype]) -> np.dtype:
    """The dtype of operands that differ: the wider of one kind, anything before bool. Raises RecordError otherwise."""
    found: np.dtype | None = None
    for dtype in dtypes:
        if found is None or kind_of(found) == 0:
            found = dtype
        elif found != dtype and kind_of(dtype):
            if kind_of(dtype) != kind_of(found) or HALF_TYPES & {dtype, found}:
                raise RecordError(f"{found} beside {dtype}: the dtype to compute in is not clear; cast one first")
            found = FLOAT64 if kind_of(dtype) == 2 else np.promote_types(dtype, found)
            if kind_of(found) == 2 and dtype.kind in "iu":
                raise RecordError(f"{dtype} beside another integer dtype gives {found}; cast one of them first")
    assert found is not None
    return found


def walk(roots: Iterable[Expr]) -> list[Expr]:
    """All nodes that ``roots`` are made of, each once, operands before their users."""
    done: set[int] = set()
    order: list[Expr] = []
    stack: list[tuple[Expr, bool]] = [(x, False) for x in reversed(list(roots))]
    while stack:
        x, expanded = stack.pop()
        if id(x) in done:
            continue
        if expanded:
            done.add(id(x))
            order.append(x)
        else:
            stack.append((x, True))
            stack.extend((y, False) for y in reversed(x.operands))
    return order


def instructions(roots: Iterable[Expr]) -> int:
    """Roughly how many instructions an element takes."""
    total = 0
    for x in walk(roots):
        if x.op == "call":
            total += HEAVY_COST
        elif x.op not in ("const", "input", "count"):
            total += SCALAR_OPS[x.op].cost if x.op in SCALAR_OPS else 1
    return total


def same_number(a: Any, b: Any) -> bool:
    """Whether two constants are the same, NaN and the sign of zero included."""
    if isinstance(a, float) and isinstance(b, float):
        return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return type(a) is type(b) and bool(a == b)


__all__ = [
    "FLOAT32", "HEAVY_COST", "ROW_OPS", "SCALAR_OPS", "SCANS", "Expr", "RecordError", "ScalarOp", "apply", "cast",
    "common", "const", "instructions", "reduce", "same_number", "walk", "where",
]  # fmt: skip
