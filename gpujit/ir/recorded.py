"""What stands for an array while an operator's body is recorded (see ``recorder``).

A ``Recorded`` is a variable, as an array is a buffer: ``out=`` and ``+=`` assign to it, so bodies that write into what
they made are recorded as they are. A Python number beside one takes its dtype. What depends on data or on sizes
(``if x``, ``x.shape``) raises RecordError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from gpujit.ir import scalar
from gpujit.ir.dtypes import BOOL_, INT64, kind_of
from gpujit.ir.scalar import Expr, RecordError


def _refuse(what: str) -> NoReturn:
    raise RecordError(f"{what} is not known while a body is recorded; choose with m.where, reduce with m.sum")


class Recorded:
    """What stands for an array: ``expr`` is its present expression, ``rank`` its number of dims (None: not known)."""

    __slots__ = ("expr", "rank")
    # NumPy's scalars leave operators to this class.
    __array_ufunc__ = None

    def __init__(self, expr: Expr, rank: int | None = None) -> None:
        self.expr = expr
        self.rank = rank

    def __repr__(self) -> str:
        return f"<Recorded {self.expr!r}>"

    @property
    def dtype(self) -> np.dtype:
        """The dtype of its elements."""
        return self.expr.dtype

    @property
    def ndim(self) -> int:
        """The number of dims. Raises RecordError when it is not known."""
        if self.rank is None:
            _refuse("the number of dims")
        return self.rank

    @property
    def real(self) -> Recorded:
        """Itself: recorded numbers are real."""
        return self

    def astype(self, dtype: Any, copy: bool = True) -> Recorded:
        """The same numbers in another dtype."""
        return Recorded(scalar.cast(self.expr, np.dtype(dtype)), self.rank)

    def copy(self) -> Recorded:
        """A variable of its own."""
        return Recorded(self.expr, self.rank)

    # What a kernel cannot know.

    def __bool__(self) -> bool:
        _refuse("whether an element is true")

    def __len__(self) -> int:
        _refuse("the length")

    def __iter__(self) -> Any:
        _refuse("the length")

    def __index__(self) -> int:
        _refuse("the value")

    def __float__(self) -> float:
        _refuse("the value")

    def __int__(self) -> int:
        _refuse("the value")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        _refuse("the value")

    def __getitem__(self, key: Any) -> Any:
        _refuse("a part")

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is not Ellipsis:
            _refuse("a part")
        self.expr = scalar.cast(expression_of(value, self.dtype), self.dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"'{name}'")

    # Operators.

    def __add__(self, other: Any) -> Any:
        return operate("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return operate("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return operate("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return operate("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return operate("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return operate("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return operate("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return operate("div", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return operate("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return operate("floordiv", other, self)

    def __mod__(self, other: Any) -> Any:
        return operate("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return operate("mod", other, self)

    def __pow__(self, other: Any) -> Any:
        return power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return operate("pow", other, self)

    def __and__(self, other: Any) -> Any:
        return operate("and", self, other)

    def __rand__(self, other: Any) -> Any:
        return operate("and", other, self)

    def __or__(self, other: Any) -> Any:
        return operate("or", self, other)

    def __ror__(self, other: Any) -> Any:
        return operate("or", other, self)

    def __xor__(self, other: Any) -> Any:
        return operate("xor", self, other)

    def __rxor__(self, other: Any) -> Any:
        return operate("xor", other, self)

    def __lshift__(self, other: Any) -> Any:
        return operate("shl", self, other)

    def __rshift__(self, other: Any) -> Any:
        return operate("shr", self, other)

    def __invert__(self) -> Any:
        return operate("not", self)

    def __neg__(self) -> Any:
        return operate("neg", self)

    def __abs__(self) -> Any:
        return operate("abs", self)

    def __eq__(self, other: Any) -> Any:
        return operate("eq", self, other)

    def __ne__(self, other: Any) -> Any:
        return operate("ne", self, other)

    def __lt__(self, other: Any) -> Any:
        return operate("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return operate("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return operate("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return operate("ge", self, other)

    __hash__ = None  # type: ignore[assignment]  # == makes an expression

    # In place: the variable takes the result in its own dtype.

    def _assign(self, value: Any) -> Any:
        self.expr = scalar.cast(value.expr, self.dtype)
        return self

    def __iadd__(self, other: Any) -> Any:
        return self._assign(self + other)

    def __isub__(self, other: Any) -> Any:
        return self._assign(self - other)

    def __imul__(self, other: Any) -> Any:
        return self._assign(self * other)

    def __itruediv__(self, other: Any) -> Any:
        return self._assign(self / other)


def expression_of(value: Any, dtype: np.dtype) -> Expr:
    """The expression of a Recorded or of a Python number as ``dtype``."""
    if isinstance(value, Recorded):
        return value.expr
    if hasattr(value, "dtype") and value.ndim == 0:
        value = value.item()
    if not isinstance(value, (bool, int, float, complex)):
        raise RecordError(f"{type(value).__name__} is neither recorded nor a number; make it an operand of the body")
    return scalar.const(value, dtype)


def _number_dtype(numbers: Sequence[Any], dtype: np.dtype) -> np.dtype:
    """What ``dtype`` becomes beside Python numbers. Raises RecordError for a fraction beside integers or bools."""
    for x in numbers:
        if isinstance(x, (float, np.floating)) and kind_of(dtype) < 2:
            raise RecordError(f"{x!r} beside {dtype}: the dtype to compute in is not clear; cast the operand first")
        if kind_of(dtype) == 0 and isinstance(x, (int, np.integer)) and not isinstance(x, (bool, np.bool_)):
            dtype = INT64
    return dtype


def unified(values: Sequence[Any], dtype: np.dtype | None) -> tuple[list[Expr], int | None]:
    """Expressions of Recorded values and numbers in ``dtype`` or the one they have in common, and their rank."""
    recorded = [x for x in values if isinstance(x, Recorded)]
    if not recorded and dtype is None:
        raise RecordError(f"{', '.join(map(repr, values))}: none is recorded, so the dtype is not known; give a dtype")
    if dtype is None:
        dtype = scalar.common(x.dtype for x in recorded)
        dtype = _number_dtype([x for x in values if not isinstance(x, Recorded)], dtype)
    ranks = [x.rank for x in recorded]
    rank = None if None in ranks else max((r for r in ranks if r is not None), default=0)
    return [scalar.cast(expression_of(x, dtype), dtype) for x in values], rank


def operate(name: str, *values: Any, dtype: Any = None) -> Recorded:
    """A scalar operation of Recorded operands and Python numbers, in ``dtype`` or the one they have in common."""
    if name in _BEYOND and dtype is None:
        known = _beyond_range(name, values)
        if known is not None:
            return known
    operands, rank = unified(values, None if dtype is None else np.dtype(dtype))
    return Recorded(scalar.apply(name, *operands), rank)


# Comparisons, and whether each holds of any integer beside a number above all and one below all of its dtype.
_BEYOND = {
    "eq": (False, False), "ne": (True, True), "lt": (True, False), "le": (True, False), "gt": (False, True),
    "ge": (False, True),
}  # fmt: skip


def _beyond_range(name: str, values: Sequence[Any]) -> Recorded | None:
    """A comparison with an integer that the dtype of the other operand cannot hold; None for any other."""
    a, b = values
    swapped = isinstance(b, Recorded)
    x, number = (b, a) if swapped else (a, b)
    if not isinstance(x, Recorded) or kind_of(x.dtype) != 1 or type(number) is not int:
        return None
    info = np.iinfo(x.dtype)
    if info.min <= number <= info.max:
        return None
    above = number > info.max
    return Recorded(scalar.const(_BEYOND[name][0 if above != swapped else 1], BOOL_), x.rank)


def power(a: Any, b: Any) -> Recorded:
    """a ** b; small exponents of floats as NumPy does them."""
    if isinstance(a, Recorded) and kind_of(a.dtype) == 2 and isinstance(b, (int, float)):
        if b == 2:
            return operate("mul", a, a)
        if b == 0.5:
            return operate("sqrt", a)
        if b == 1:
            return a.copy()
    return operate("pow", a, b)
