"""What type rules are written with: unknown values, sizes that may be None, broadcasting, promotion.

A rule maps the types of an operator's arguments to the type of its result, without data. It says by its own parameters
what it reads: positional parameters take the operator's leading arguments; keyword-only parameters take the argument of
that name, or keep their default when the operator has none; ``op`` is the operator's full name, for messages.

Tensors are ``TensorType`` (dtype code or None, sizes with None for an unknown one, shape None when the rank is
unknown), lists of tensors are lists of them, everything else is a Python value or ``Unknown``. A rule that cannot go
on without something unknown raises ``NotKnown`` (anything done with an ``Unknown`` does), and ``ops.infer`` finds out
what can be said all the same. What does not fit raises the operator's own ShapeError or DTypeError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product as combinations_of
from typing import Any, NoReturn

import numpy as np

from gpujit.ir import symbols
from gpujit.ir.dtypes import BOOL_, FLOAT32, INT64, code_of, kind_of, numpy_dtype
from gpujit.ir.types import TensorType
from gpujit.ops.axes import axes_of, one_axis
from gpujit.ops.promotion import promote, result_type, to_floating
from gpujit.ops.symbolic import Live, NotKnown
from gpujit.support.errors import ShapeError

Size = int | None
Shape = tuple[Size, ...]
Rule = Callable[..., Any]
DType = np.dtype[Any]

INT64_CODE = code_of(INT64)
BOOL_CODE = code_of(BOOL_)
FLOAT32_CODE = code_of(FLOAT32)


class Unknown:
    """A value that is not known before the program runs; ``type`` is its Python type where that is known.

    Whatever is done with it, comparing included, raises NotKnown, so that no rule takes it for a value.
    """

    __slots__ = ("type",)

    def __init__(self, type: type | None = None) -> None:
        self.type = type

    def __repr__(self) -> str:
        return "UNKNOWN" if self.type is None else f"UNKNOWN({self.type.__name__})"

    def _refuse(self, *_: Any) -> NoReturn:
        raise NotKnown

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _refuse
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __mod__ = __rmod__ = _refuse
    __bool__ = __int__ = __index__ = __float__ = __len__ = __iter__ = __getitem__ = __contains__ = _refuse
    __hash__ = None  # type: ignore[assignment]


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list whose length is not known; every element fits the type ``element``."""

    element: TensorType


def data_dependent(rule: Rule) -> Rule:
    """Mark a rule of an operator whose result has sizes that depend on the numbers in its inputs."""
    rule.data_dependent = True  # type: ignore[attr-defined]
    return rule


# ------------------------------------------------------------------------------------------------- parts of types


def tensor(dtype: DType | int | None, shape: Iterable[Size] | None) -> TensorType:
    """A tensor type of a NumPy dtype or a dtype's code, and a shape."""
    if isinstance(dtype, np.dtype):
        dtype = code_of(dtype)
    return TensorType(dtype, None if shape is None else tuple(shape))


def shape_of(x: TensorType) -> Shape:
    """The sizes of a tensor. Raises NotKnown when its rank is unknown."""
    if x.shape is None:
        raise NotKnown
    return x.shape


def dtype_of(x: TensorType) -> DType | None:
    """The NumPy dtype of a tensor; None when unknown, or when NumPy has none (quantised types)."""
    if x.dtype is None:
        return None
    try:
        return numpy_dtype(x.dtype)
    except TypeError:
        return None


def like(x: TensorType, shape: Iterable[Size] | None) -> TensorType:
    """The dtype of ``x`` and another shape."""
    return TensorType(x.dtype, None if shape is None else tuple(shape))


def cast(x: TensorType, dtype: Any) -> TensorType:
    """``x`` in the dtype of that code; as it is when the code is None."""
    return TensorType(code(dtype, x.dtype), x.shape)


def code(dtype: Any, otherwise: int | None) -> int | None:
    """A dtype argument as a code: ``otherwise`` for None, and None when it is not known."""
    if dtype is None:
        return otherwise
    return None if isinstance(dtype, Unknown) else int(dtype)


def size_of(n: Any) -> Size:
    """An int argument as a size: None when it is not known."""
    return None if isinstance(n, Unknown) else n if isinstance(n, Live) else int(n)  # type: ignore[return-value]


def sizes_of(sizes: Any, op: str = "") -> Shape:
    """A list of ints as sizes. Raises NotKnown when its length is unknown, ShapeError for a negative size."""
    if isinstance(sizes, int):
        sizes = (sizes,)
    found = tuple(size_of(n) for n in sizes)
    if any(n is not None and n < 0 for n in found):
        raise ShapeError(f"{op}: size {list(found)} has a negative entry")
    return found


def is_known(value: Any) -> bool:
    """Whether a value, or list, holds nothing unknown."""
    if isinstance(value, (list, tuple)):
        return all(map(is_known, value))
    return not isinstance(value, Unknown)


def texts(shape: Shape) -> str:
    """``[2, ?, 3]``."""
    return "[" + ", ".join("?" if n is None else str(n) for n in shape) + "]"


# ---------------------------------------------------------------------------------------------------- sizes


def plus(*sizes: Size) -> Size:
    """The sum; None when a part is unknown."""
    total = 0
    for n in sizes:
        if n is None:
            return None
        total += n
    return total


def times(sizes: Iterable[Size]) -> Size:
    """The product: 0 when a factor is, else None when one is unknown."""
    total = 1
    unknown = False
    for n in sizes:
        if n is None:
            unknown = True
        elif n == 0:
            return 0
        else:
            total *= n
    return None if unknown else total


def same_size(a: Size, b: Size, message: str) -> Size:
    """One size that two places must share. Raises ShapeError with the message when they differ."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, Live) or isinstance(b, Live):
        return _same_live(a, b, message)
    if a != b:
        raise ShapeError(message)
    return a


def _same_live(a: Any, b: Any, message: str) -> Size:
    """One of two sizes of which at least one is symbolic; a number if one is."""
    try:
        if a != b:
            raise ShapeError(message)
    except NotKnown:
        pass
    return b if isinstance(a, Live) else a  # type: ignore[no-any-return]


def same_shape(a: Shape, b: Shape, message: str) -> Shape:
    """One shape that two tensors must share, with what is known of either."""
    if len(a) != len(b):
        raise ShapeError(message)
    return tuple(same_size(x, y, message) for x, y in zip(a, b, strict=True))


def broadcast(shapes: Sequence[Shape], op: str) -> Shape:
    """The shape of operands spread over each other; an unknown size beside a size above 1 is that size.

    Raises ShapeError when two known sizes differ and neither is 1.
    """
    rank = max(map(len, shapes), default=0)
    found: list[Size] = []
    for i in range(-rank, 0):
        size: Size = 1
        for shape in shapes:
            if -i > len(shape):
                continue
            n = shape[i]
            if isinstance(n, Live) or isinstance(size, Live):
                size = _broadcast_live(size, n)
                continue
            if n == 1:
                continue
            if size == 1:
                size = n
            elif size is None:
                size = n if n is not None else None
            elif n is not None and n != size:
                listed = " and ".join(map(texts, shapes))
                advice = "sizes must be equal or 1, from the last dim on"
                raise ShapeError(f"{op}: shapes {listed} do not broadcast; {advice}")
        found.append(size)
    return tuple(found)


def _broadcast_live(a: Any, b: Any) -> Size:
    """The size that two sizes spread to, one of which at least is symbolic."""
    if not isinstance(a, Live):
        a, b = b, a
    # What is beside a number above 1 is that number or 1.
    if type(b) is int:
        return a if b == 1 else b
    if b is None:
        return a if (symbols.bounds(a.size)[0] or 0) > 1 else None
    if a.size == b.size:
        return a  # type: ignore[no-any-return]
    if (symbols.bounds(a.size)[0] or 0) > 1:
        return a  # type: ignore[no-any-return]
    if (symbols.bounds(b.size)[0] or 0) > 1:
        return b  # type: ignore[no-any-return]
    return None


def axis(dim: Any, rank: int, op: str) -> int:
    """``dim`` counted from the front. Raises NotKnown, or ShapeError when out of range."""
    return one_axis(rank, dim, op)


def axes(dims: Any, rank: int, op: str) -> tuple[int, ...]:
    """The dims to reduce, counted from the front and sorted; all of them for None or an empty list."""
    if isinstance(dims, Unknown):
        raise NotKnown
    found = axes_of(rank, dims, op)
    return tuple(range(rank)) if found is None else found


def replaced(shape: Shape, at: int, *sizes: Size) -> Shape:
    """``shape`` with the size at one place replaced by others (none: the dim goes away)."""
    return (*shape[:at], *sizes, *shape[at + 1 :])


# -------------------------------------------------------------------------------------------------- promotion


@dataclass(frozen=True, slots=True)
class Operand:
    """What promotion reads of a tensor."""

    dtype: DType
    ndim: int


_NUMBERS: dict[type, Any] = {bool: False, int: 0, float: 0.0, complex: 0j}


def operand_choices(value: Any) -> tuple[Any, ...]:
    """All that promotion may take an argument for: one choice when enough is known, none when it cannot be said."""
    if isinstance(value, TensorType):
        dtype = dtype_of(value)
        if dtype is None:
            return ()
        return (Operand(dtype, 0), Operand(dtype, 1)) if value.shape is None else (Operand(dtype, len(value.shape)),)
    if isinstance(value, Unknown):
        if value.type is None:
            return tuple(_NUMBERS.values())
        return (_NUMBERS[value.type],) if value.type in _NUMBERS else ()
    return (value,)


def each_choice(values: Sequence[Any]) -> Iterable[tuple[Any, ...]]:
    """The operands of every case that the arguments' types allow; none when a dtype is unknown."""
    return combinations_of(*map(operand_choices, values))


def promoted(*values: Any) -> DType | None:
    """The dtype PyTorch computes in for tensors and numbers; None when it depends on what is unknown."""
    found = {result_type(*case) for case in each_choice([v for v in values if v is not None])}
    return found.pop() if len(found) == 1 else None


def same_dtype(*values: TensorType | None) -> DType | None:
    """The dtype of operands that must share one (the category of 0-dim tensors does not count)."""
    found: DType | None = None
    for x in values:
        if x is None:
            continue
        dtype = dtype_of(x)
        if dtype is None:
            return None
        found = dtype if found is None else promote(found, dtype)
    return found


def floating(dtype: DType | None) -> DType | None:
    """``dtype``, or the default float for integers and bools."""
    return None if dtype is None else to_floating(dtype)


def summed(dtype: DType | None) -> DType | None:
    """What sums and products of a dtype come in: int64 for integers and bools."""
    return INT64 if dtype is not None and kind_of(dtype) < 2 else dtype


# ------------------------------------------------------------------------------------------- rules of many operators


def same_type(x: TensorType) -> TensorType:
    """The type of the first argument."""
    return TensorType(x.dtype, x.shape)


def second_type(x: Any, y: TensorType) -> TensorType:
    """The type of the second argument."""
    return TensorType(y.dtype, y.shape)


def floating_type(x: TensorType) -> TensorType:
    """The first argument's shape; integers and bools become the default float."""
    return tensor(floating(dtype_of(x)), x.shape)


def frexp_type(x: TensorType) -> tuple[TensorType, TensorType]:
    """Mantissas, and exponents in int32."""
    return floating_type(x), TensorType(3, x.shape)


def masked_type(x: TensorType) -> tuple[TensorType, TensorType]:
    """A result like the first argument, and a mask of it."""
    return same_type(x), bool_type(x)


def bool_type(x: TensorType) -> TensorType:
    """The first argument's shape in bool."""
    return TensorType(BOOL_CODE, x.shape)


def elementwise_type(*values: Any, op: str) -> TensorType:
    """Tensors broadcast and promoted, for operators that are no pointwise entries but behave as one."""
    tensors = [x for x in values if isinstance(x, TensorType)]
    return tensor(promoted(*tensors), broadcast([shape_of(x) for x in tensors], op))


def need_rank(x: TensorType, ranks: Sequence[int], op: str, name: str = "input") -> Shape:
    """The sizes of ``x``. Raises ShapeError when its rank is none of ``ranks``."""
    shape = shape_of(x)
    if len(shape) not in ranks:
        raise ShapeError(f"{op}: {name} has {len(shape)} dims, expected {' or '.join(map(str, ranks))}")
    return shape
