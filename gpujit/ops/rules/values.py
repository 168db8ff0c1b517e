"""Type rules whose results are Python values: what programs ask about tensors, and what they do with lists of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpujit.ir.dtypes import code_of, kind_of
from gpujit.ir.types import TensorType
from gpujit.ops.rules.common import (
    UNKNOWN,
    ListOf,
    Rule,
    Size,
    Unknown,
    axis,
    dtype_of,
    is_known,
    promoted,
    shape_of,
    times,
)
from gpujit.ops.symbolic import Live, NotKnown
from gpujit.support.errors import ShapeError

# A size that is not known, as a value.
SOME_INT = Unknown(int)


def as_value(n: Size) -> Any:
    """A size as the value a program reads."""
    return SOME_INT if n is None else n


def size_type(x: TensorType, dim: Any, *, op: str) -> Any:
    """One size."""
    if x.shape is None or isinstance(dim, Unknown):
        return SOME_INT
    if not x.shape:
        raise ShapeError(f"{op}: a 0-dim tensor has no dim {dim}")
    return as_value(x.shape[axis(dim, len(x.shape), op)])


def sizes_type(x: TensorType) -> Any:
    """All sizes."""
    return UNKNOWN if x.shape is None else list(map(as_value, x.shape))


def number_tensor_type(value: Any) -> TensorType:
    """A 0-dim tensor of the number's own kind: int64, float64, complex128 or bool."""
    kind = value.type if isinstance(value, Unknown) else int if isinstance(value, Live) else type(value)
    return TensorType(_NUMBER_CODES.get(kind), ())


_NUMBER_CODES: dict[type | None, int] = {int: 4, float: 7, complex: 10, bool: 11}


def rank_type(x: TensorType) -> Any:
    """The number of dims."""
    return SOME_INT if x.shape is None else len(x.shape)


def count_type(x: TensorType) -> Any:
    """The number of elements."""
    return as_value(None if x.shape is None else times(x.shape))


def first_size_type(x: Any) -> Any:
    """The length of a tensor or list."""
    if isinstance(x, TensorType):
        return as_value(shape_of(x)[0]) if x.shape else SOME_INT
    return SOME_INT if isinstance(x, (Unknown, ListOf)) else len(x)


def dtype_code_type(x: TensorType) -> Any:
    """The code of the dtype."""
    return SOME_INT if x.dtype is None else x.dtype


def width_type(x: TensorType) -> Any:
    """Bytes of one element."""
    dtype = dtype_of(x)
    return SOME_INT if dtype is None else dtype.itemsize


def kind_type(test: Callable[[int], bool]) -> Rule:
    """A rule: whether the dtype's kind (0 bool, 1 integer, 2 floating, 3 complex) passes a test."""

    def rule(x: TensorType) -> Any:
        """True or false."""
        dtype = dtype_of(x)
        return Unknown(bool) if dtype is None else test(kind_of(dtype))

    return rule


def same_sizes_type(x: TensorType, y: TensorType) -> Any:
    """Whether two tensors have one shape."""
    a, b = x.shape, y.shape
    if a is None or b is None:
        return Unknown(bool)
    if len(a) != len(b) or any(m != n for m, n in zip(a, b, strict=True) if m is not None and n is not None):
        return False
    return Unknown(bool) if None in a or None in b else True


def result_type_type(a: Any, b: Any) -> Any:
    """The code of the dtype two operands promote to."""
    dtype = promoted(a, b)
    return SOME_INT if dtype is None else code_of(dtype)


def identity_type(a: Any, b: Any) -> Any:
    """Whether two values are one object: known for plain numbers (when equal), and where one of them is None."""
    if type(a) in (bool, int, float, complex) and type(b) in (bool, int, float, complex):
        return type(a) is type(b) and a == b
    if (a is None or b is None) and not isinstance(a, Unknown) and not isinstance(b, Unknown):
        return a is b
    return Unknown(bool)


def no_identity_type(a: Any, b: Any) -> Any:
    """Whether two values are different objects: known where ``identity_type`` knows."""
    found = identity_type(a, b)
    return found if isinstance(found, Unknown) else not found


def element_type(items: Any, index: Any) -> Any:
    """One element of a list."""
    if isinstance(items, ListOf):
        return items.element
    if isinstance(items, Unknown) or isinstance(index, Unknown):
        raise NotKnown
    return items[index] if -len(items) <= index < len(items) else UNKNOWN


def list_slice_type(items: Any, start: Any, end: Any, step: Any) -> Any:
    """Some elements of a list."""
    if isinstance(items, ListOf) or not is_known([start, end, step]) or isinstance(items, Unknown):
        return items if isinstance(items, ListOf) else UNKNOWN
    return list(items[slice(start, end, step)])


def constant_type(value: Any) -> Rule:
    """A rule: always that value."""

    def rule() -> Any:
        """The value."""
        return value

    return rule
