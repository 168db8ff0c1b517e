"""Type rules run on symbolic sizes: a size that computes, and refuses to be compared when the answer is open.

``infer`` hands a rule ``Live`` sizes in place of ``Sym`` ones. Arithmetic on them gives Live sizes; a comparison whose
answer the bounds do not decide raises NotKnown, and the rule is then asked again with those sizes unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from gpujit.ir import symbols
from gpujit.ir import types as T
from gpujit.ir.symbols import Sym
from gpujit.ir.types import TensorType
from gpujit.ops.registry import Op


class NotKnown(Exception):
    """A rule met an unknown value or rank it cannot do without. Never leaves ``ops.infer``."""


# No size, count of elements or sum of such comes near this.
_BEYOND = 1 << 62


def _operand(value: Any) -> Any:
    if isinstance(value, Live):
        return value.size
    if type(value) is int:
        return value
    raise NotKnown


def _arithmetic(compute: Callable[[Any, Any], Any], swapped: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Live, other: Any) -> Any:
        a, b = self.size, _operand(other)
        try:
            return live(compute(b, a) if swapped else compute(a, b))
        except (symbols.TooLong, ZeroDivisionError):
            raise NotKnown from None

    return method


class Live:
    """A symbolic size while a rule computes with it."""

    __slots__ = ("size",)

    def __init__(self, size: Sym) -> None:
        self.size = size

    def __repr__(self) -> str:
        return str(self.size)

    __add__ = __radd__ = _arithmetic(symbols.add)
    __mul__ = __rmul__ = _arithmetic(symbols.mul)
    __sub__ = _arithmetic(symbols.sub)
    __rsub__ = _arithmetic(symbols.sub, swapped=True)
    __floordiv__ = _arithmetic(symbols.floordiv)
    __rfloordiv__ = _arithmetic(symbols.floordiv, swapped=True)
    __mod__ = _arithmetic(symbols.mod)
    __rmod__ = _arithmetic(symbols.mod, swapped=True)

    def __neg__(self) -> Any:
        return live(symbols.neg(self.size))

    def _difference(self, other: Any) -> tuple[int | None, int | None]:
        if type(other) is int and abs(other) >= _BEYOND:
            # Sizes and what is computed of them fit 64 bits with room to spare.
            return (None, -1) if other > 0 else (1, None)
        try:
            return symbols.bounds(symbols.sub(self.size, _operand(other)))
        except symbols.TooLong:
            raise NotKnown from None

    def __eq__(self, other: object) -> bool:
        if other is None or isinstance(other, (str, float)):
            return False
        low, high = self._difference(other)
        if low == high == 0:
            return True
        if (low is not None and low > 0) or (high is not None and high < 0):
            return False
        raise NotKnown

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        low, high = self._difference(other)
        if high is not None and high < 0:
            return True
        if low is not None and low >= 0:
            return False
        raise NotKnown

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __gt__(self, other: Any) -> bool:
        low, high = self._difference(other)
        if low is not None and low > 0:
            return True
        if high is not None and high <= 0:
            return False
        raise NotKnown

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __bool__(self) -> bool:
        return self != 0

    def _refuse(self, *_: Any) -> NoReturn:
        raise NotKnown

    __int__ = __index__ = __float__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __abs__ = _refuse
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __floor__ = __ceil__ = _refuse
    __hash__ = _refuse


def live(size: Any) -> Any:
    """A number as it is, an expression as a Live size."""
    return Live(size) if isinstance(size, Sym) else size


def plain(size: Any) -> Any:
    """A Live size as the expression it is; everything else as it is."""
    return size.size if isinstance(size, Live) else size


def least(a: Any, b: Any) -> Any:
    """The smaller of two sizes, Live or not."""
    try:
        return live(symbols.minimum(_operand(a), _operand(b)))
    except symbols.TooLong:
        raise NotKnown from None


def greatest(a: Any, b: Any) -> Any:
    """The larger of two sizes, Live or not."""
    try:
        return live(symbols.maximum(_operand(a), _operand(b)))
    except symbols.TooLong:
        raise NotKnown from None


def slice_length(n: Any, start: Any, end: Any, step: int) -> Any:
    """How many of ``n`` elements a slice takes, any of these being symbolic; the step is a positive number."""
    first = 0 if start is None else _bounded(start, n)
    last = n if end is None else _bounded(end, n)
    count = greatest(last - first, 0)
    return count if step == 1 else (count + (step - 1)) // step


def _bounded(at: Any, n: Any) -> Any:
    """A place in a sequence of ``n``: counted from the end when negative, and within it."""
    if type(at) is int and at >= _BEYOND:
        return n
    if at < 0:
        return greatest(at + n, 0)
    return least(at, n)


def has_symbols(value: Any) -> bool:
    """Whether an argument of ``infer`` holds a symbolic size."""
    if isinstance(value, TensorType):
        return value.shape is not None and any(isinstance(n, Sym) for n in value.shape)
    if isinstance(value, (list, tuple)):
        return any(map(has_symbols, value))
    return isinstance(value, Sym)


def is_live(value: Any) -> bool:
    """Whether an argument of a rule holds a Live size."""
    if isinstance(value, TensorType):
        return value.shape is not None and any(isinstance(n, Live) for n in value.shape)
    if isinstance(value, (list, tuple)):
        return any(map(is_live, value))
    return isinstance(value, Live)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """An argument or result with ``change`` applied to each size and each value."""
    if isinstance(value, TensorType):
        return value if value.shape is None else TensorType(value.dtype, tuple(map(change, value.shape)))
    if type(value) in (list, tuple):
        return type(value)(mapped(v, change) for v in value)
    return change(value)


def forgotten(value: Any, unknown: Any) -> Any:
    """An argument of ``infer`` with each symbolic size unknown, and each such value ``unknown``."""
    if isinstance(value, TensorType):
        return mapped(value, lambda n: None if isinstance(n, Sym) else n)
    if type(value) in (list, tuple):
        return type(value)(forgotten(v, unknown) for v in value)
    return unknown if isinstance(value, Sym) else value


_RESULTS = (T.INT, T.BOOL, T.ListType(T.INT), T.NUMBER)


def symbolic_value(op: Op, args: Sequence[Any]) -> Any:
    """The result of an operator on Python values some of which are Live: an expression or a decided answer.

    None when there is none. Raises NotKnown when the body asks what the bounds do not decide.
    """
    schema = op.schema
    if op.effects or len(schema.returns) != 1 or schema.returns[0].type not in _RESULTS:
        return None
    if any(a.alias is not None for a in schema.arguments):
        return None
    value = op.body(*args)
    if isinstance(value, (Live, bool, int)):
        return value
    if isinstance(value, list) and all(isinstance(v, (Live, int)) for v in value):
        return value
    return None
