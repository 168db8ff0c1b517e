"""Type rules of operators that make tensors: of a size, like another tensor, from numbers, ranges, in another dtype."""

from __future__ import annotations

from typing import Any

from gpujit.ir.dtypes import FLOAT32, HALF_TYPES, INT64, code_of
from gpujit.ir.types import TensorType
from gpujit.ops.promotion import DEFAULT_FLOAT
from gpujit.ops.rules.common import (
    Size,
    Unknown,
    broadcast,
    cast,
    dtype_of,
    is_known,
    like,
    promoted,
    shape_of,
    size_of,
    sizes_of,
    tensor,
)
from gpujit.ops.symbolic import greatest, is_live

_FLOAT32_CODE = code_of(FLOAT32)
_HALF_CODES = frozenset(map(code_of, HALF_TYPES))

# ---------------------------------------------------------------------------------------------------------- factories


def sized_type(size: Any, *, dtype: Any, op: str) -> TensorType:
    """The given sizes; float32 unless a dtype is given."""
    return cast(tensor(DEFAULT_FLOAT, sizes_of(size, op)), dtype)


def full_type(size: Any, value: Any, *, dtype: Any, op: str) -> TensorType:
    """The given sizes; the number decides the dtype unless one is given."""
    return cast(tensor(promoted(value), sizes_of(size, op)), dtype)


def number_type(value: Any, *, dtype: Any) -> TensorType:
    """A 0-dim tensor in the dtype of a number, unless one is given."""
    return cast(tensor(promoted(value), ()), dtype)


def scalar_tensor_type(value: Any, *, dtype: Any) -> TensorType:
    """A 0-dim tensor; float32 unless a dtype is given."""
    return cast(tensor(DEFAULT_FLOAT, ()), dtype)


def cast_type(x: TensorType, *, dtype: Any = None) -> TensorType:
    """The first argument in another dtype; in its own when None."""
    return cast(x, dtype)


def cast_as_type(x: TensorType, other: TensorType) -> TensorType:
    """The first argument in the dtype of the second."""
    return TensorType(other.dtype, x.shape)


def reduced_type(
    x: TensorType, cuda_enabled: Any, cpu_enabled: Any, cuda_dtype: Any, cpu_dtype: Any
) -> TensorType:
    """float32 in the dtype of automatic casts, where both devices agree on it; else nothing is known of the dtype."""
    if x.dtype not in (None, _FLOAT32_CODE):
        return TensorType(x.dtype, x.shape)
    if not cuda_enabled and not cpu_enabled:
        return TensorType(x.dtype, x.shape)
    agree = x.dtype is not None and cuda_enabled and cpu_enabled and cuda_dtype == cpu_dtype
    return TensorType(int(cuda_dtype) if agree else None, x.shape)


def full_precision_type(x: TensorType, cuda_enabled: Any, cpu_enabled: Any) -> TensorType:
    """float32 instead of float16 and bfloat16, where both devices agree on it; else nothing is known of the dtype."""
    if (x.dtype is not None and x.dtype not in _HALF_CODES) or not (cuda_enabled or cpu_enabled):
        return TensorType(x.dtype, x.shape)
    return TensorType(_FLOAT32_CODE if x.dtype is not None and cuda_enabled and cpu_enabled else None, x.shape)


def cast_to_type(dtype: int) -> Any:
    """A rule: the first argument in that dtype."""

    def rule(x: TensorType) -> TensorType:
        """The tensor in another dtype."""
        return cast(x, dtype)

    return rule


def new_type(x: TensorType, size: Any, *, dtype: Any, op: str) -> TensorType:
    """The given sizes in the first argument's dtype, unless one is given."""
    return cast(like(x, sizes_of(size, op)), dtype)


def second_sized_type(first: Any, size: Any, *, dtype: Any, op: str) -> TensorType:
    """Sizes in the second argument; int64 unless a dtype is given."""
    return cast(tensor(INT64, sizes_of(size, op)), dtype)


def third_sized_type(first: Any, second: Any, size: Any, *, dtype: Any, op: str) -> TensorType:
    """Sizes in the third argument; int64 unless a dtype is given."""
    return cast(tensor(INT64, sizes_of(size, op)), dtype)


def normal_sized_type(mean: Any, std: Any, size: Any, *, dtype: Any, op: str) -> TensorType:
    """Sizes in the third argument; float32 unless a dtype is given."""
    return cast(tensor(DEFAULT_FLOAT, sizes_of(size, op)), dtype)


def normal_type(mean: Any, std: Any, *, op: str) -> TensorType:
    """A draw for each mean and standard deviation."""
    tensors = [x for x in (mean, std) if isinstance(x, TensorType)]
    return tensor(promoted(*tensors), broadcast([shape_of(x) for x in tensors], op))


def permutation_type(n: Any, *, dtype: Any) -> TensorType:
    """A vector of ``n`` numbers; int64 unless a dtype is given."""
    return cast(tensor(INT64, (size_of(n),)), dtype)


def closed_range_type(start: Any, end: Any, *, step: Any = 1, dtype: Any) -> TensorType:
    """The numbers from ``start`` up to and including ``end``; float32 unless a dtype is given."""
    count = int((end - start) / step) + 1 if is_known([start, end, step]) and step else None
    return cast(tensor(DEFAULT_FLOAT, (count,)), dtype)


def arange_count(start: Any, end: Any, step: Any, exact: bool) -> Size:
    """How many numbers lead from ``start`` to before ``end``; None when a bound is not known."""
    if not is_known([start, end, step]):
        return None
    if is_live([start, end]):
        if type(step) is not int or step < 1:
            return None
        return greatest((end - start + (step - 1)) // step, 0)  # type: ignore[no-any-return]
    if exact:
        start, end, step = int(start), int(end), int(step)
    if step == 0:
        return None
    if isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        return max(-((start - end) // step) if step > 0 else -((end - start) // -step), 0)
    width = (float(end) - float(start)) / float(step)
    if width != width or abs(width) > 1 << 62:
        return None
    return max(-int(-width // 1), 0)


def _range_type(start: Any, end: Any, step: Any, dtype: Any) -> TensorType:
    bounds = (start, end, step)
    if dtype is None:
        kinds = [v.type if isinstance(v, Unknown) else int if is_live(v) else type(v) for v in bounds]
        if None in kinds:
            found: Any = FLOAT32 if float in kinds else None
        else:
            found = INT64 if all(k in (int, bool) for k in kinds) else DEFAULT_FLOAT
    else:
        found = dtype_of(cast(TensorType(), dtype))
    exact = found is not None and found == INT64
    return tensor(found, (arange_count(start, end, step, exact),))


def arange_type(end: Any, *, dtype: Any) -> TensorType:
    """The numbers from 0 to before ``end``; int64 for an integer, else float32."""
    return _range_type(0, end, 1, dtype)


def arange_start_type(start: Any, end: Any, *, step: Any = 1, dtype: Any) -> TensorType:
    """The numbers from ``start`` to before ``end``; int64 for integers, else float32."""
    return _range_type(start, end, step, dtype)


def spaced_type(start: Any, end: Any, steps: Any, *, dtype: Any) -> TensorType:
    """``steps`` numbers; float32 (complex64 for complex bounds) unless a dtype is given."""
    count = size_of(steps)
    if isinstance(start, (int, float)) and isinstance(end, (int, float)):
        return cast(tensor(DEFAULT_FLOAT, (count,)), dtype)
    if isinstance(start, TensorType) or isinstance(end, TensorType):
        kinds = [dtype_of(v) if isinstance(v, TensorType) else None for v in (start, end)]
        real = all(not isinstance(v, complex) for v in (start, end)) and all(
            k is not None and k.kind != "c"
            for k, v in zip(kinds, (start, end), strict=True)
            if isinstance(v, TensorType)
        )
        return cast(tensor(DEFAULT_FLOAT if real else None, (count,)), dtype)
    return cast(tensor(None, (count,)), dtype)


def eye_type(n: Any, m: Any = None, *, dtype: Any) -> TensorType:
    """A square matrix; float32 unless a dtype is given."""
    return cast(tensor(DEFAULT_FLOAT, (size_of(n), size_of(n))), dtype)


def eye_m_type(n: Any, m: Any, *, dtype: Any) -> TensorType:
    """A matrix; float32 unless a dtype is given."""
    return cast(tensor(DEFAULT_FLOAT, (size_of(n), size_of(m))), dtype)


def triangle_indices_type(row: Any, col: Any, offset: Any, *, dtype: Any, op: str) -> TensorType:
    """Row and column of every element of a triangle."""
    count: Size = None
    if is_known([row, col, offset]) and min(row, col) >= 0:
        below = sum(min(max(offset + i + 1, 0), col) for i in range(row)) if row < 1 << 16 else None
        if below is not None:
            if op.startswith("aten::triu"):
                above = sum(min(max(offset + i, 0), col) for i in range(row))
                count = row * col - above
            else:
                count = below
    return cast(tensor(INT64, (2, count)), dtype)


def window_type(length: Any, *, dtype: Any) -> TensorType:
    """A vector of ``length`` numbers; float32 unless a dtype is given."""
    return cast(tensor(DEFAULT_FLOAT, (size_of(length),)), dtype)
