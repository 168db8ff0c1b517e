"""What a program asks about a tensor, a device, an enum or the runtime: sizes, strides, dtypes, flags.

These return Python values and never read elements, so they take no array module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BY_CODE, IR_NAMES, code_of, kind_of, numpy_dtype
from gpujit.ir.values import CPU, Array, Device, QTensor, SparseTensor
from gpujit.ops.promotion import promote, result_type
from gpujit.ops.registry import prim
from gpujit.ops.rules.values import (
    count_type,
    dtype_code_type,
    kind_type,
    rank_type,
    result_type_type,
    same_sizes_type,
    size_type,
    sizes_type,
    width_type,
)
from gpujit.support.errors import DTypeError, OpError, ShapeError

ndarray = np.ndarray


# ----------------------------------------------------------------------------------------------- sizes and strides


@prim("aten::size.int(Tensor self, int dim) -> int", type_rule=size_type)
def size_of(x: Array, dim: int) -> int:
    """The size of one dimension, counted from the end when negative."""
    try:
        return x.shape[dim]  # type: ignore[no-any-return]
    except IndexError:
        raise _bad_dim("aten::size", dim, x.ndim) from None


def _bad_dim(op: str, dim: int, ndim: int) -> ShapeError:
    if ndim == 0:
        return ShapeError(f"{op}: Dimension specified as {dim} but tensor has no dimensions")
    return ShapeError(f"{op}: Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}], but got {dim})")


@prim("aten::size(Tensor self) -> int[]", type_rule=sizes_type, never_raises=True)
def size(x: Array) -> list[int]:
    """All sizes, as a new list."""
    return list(x.shape)


prim("aten::sym_size.int(Tensor self, int dim) -> int", type_rule=size_type)(size_of)
prim("aten::sym_size(Tensor self) -> int[]", type_rule=sizes_type)(size)


@prim("aten::dim(Tensor self) -> int", type_rule=rank_type, never_raises=True)
def dim(x: Array) -> int:
    """The number of dimensions."""
    return x.ndim  # type: ignore[no-any-return]


@prim("aten::numel(Tensor self) -> int", type_rule=count_type)
def numel(x: Array) -> int:
    """The number of elements."""
    return math.prod(x.shape)


prim("aten::sym_numel(Tensor self) -> int", type_rule=count_type)(numel)


def _strides(x: Array) -> tuple[int, ...]:
    """Strides counted in elements."""
    size_ = x.itemsize
    return tuple(s // size_ for s in x.strides)


def _stored(x: Any) -> Array:
    """The array that holds a tensor's elements."""
    return x.values if type(x) is QTensor else x


@prim("aten::stride.int(Tensor self, int dim) -> int")
def stride_of(x: Array, dim: int) -> int:
    """The stride of one dimension in elements."""
    x = _stored(x)
    try:
        return x.strides[dim] // x.itemsize  # type: ignore[no-any-return]
    except IndexError:
        raise _bad_dim("aten::stride", dim, x.ndim) from None


@prim("aten::stride(Tensor self) -> int[]")
def stride(x: Array) -> list[int]:
    """All strides in elements."""
    return list(_strides(_stored(x)))


prim("aten::sym_stride.int(Tensor self, int dim) -> int")(stride_of)
prim("aten::sym_stride(Tensor self) -> int[]")(stride)


@prim("aten::storage_offset(Tensor self) -> int")
def storage_offset(x: Array) -> int:
    """How many elements lie before the first one in the memory the tensor is a view of."""
    x = _stored(x)
    root = x
    while isinstance(root.base, type(x)):
        root = root.base
    if root is x:
        return 0
    return (_address(x) - _address(root)) // x.itemsize  # type: ignore[no-any-return]


prim("aten::sym_storage_offset(Tensor self) -> int")(storage_offset)


def _address(x: Array) -> int:
    return x.__array_interface__["data"][0] if type(x) is ndarray else x.data.ptr  # type: ignore[no-any-return]


@prim("aten::is_contiguous(Tensor self) -> bool")
def is_contiguous(x: Array) -> bool:
    """Whether elements lie in row-major order without gaps."""
    return _stored(x).flags.c_contiguous  # type: ignore[no-any-return]


# Dimensions from the fastest to the slowest in memory, by code of the memory format.
_CHANNELS_LAST = {2: (1, 3, 2, 0), 3: (1, 4, 3, 2, 0)}


@prim("aten::is_contiguous.memory_format(Tensor self, MemoryFormat memory_format) -> bool")
def is_contiguous_as(x: Array, memory_format: int) -> bool:
    """Whether elements lie without gaps in the order of a memory format (0 row-major, 2 and 3 channels last)."""
    x = _stored(x)
    order = _CHANNELS_LAST.get(memory_format)
    if order is None:
        return x.flags.c_contiguous  # type: ignore[no-any-return]
    if x.ndim != len(order):
        return False
    expected = x.itemsize
    for d in order:
        if x.shape[d] != 1:
            if x.strides[d] != expected:
                return False
            expected *= x.shape[d]
    return True


@prim("aten::sym_is_contiguous(Tensor self, MemoryFormat memory_format=0) -> bool")
def sym_is_contiguous(x: Array, memory_format: int) -> bool:
    """Whether elements lie without gaps in the order of a memory format."""
    return bool(is_contiguous_as(x, memory_format))


@prim("aten::is_strides_like_format(Tensor self, MemoryFormat memory_format) -> bool")
def is_strides_like_format(x: Array, memory_format: int) -> bool:
    """Whether strides grow in the order of a channels-last format."""
    x = _stored(x)
    order = _CHANNELS_LAST.get(memory_format)
    if order is None or x.ndim != len(order) or x.strides[1] == 0:
        return False
    least = 0
    for d in order:
        if x.shape[d] == 0 or x.strides[d] < least:
            return False
        # A tensor N111 of either order counts as row-major.
        if d == 0 and least == x.strides[1]:
            return False
        least = x.strides[d] * max(x.shape[d], 1)
    return True


@prim("aten::is_non_overlapping_and_dense(Tensor self) -> bool")
def is_non_overlapping_and_dense(x: Array) -> bool:
    """Whether elements fill one stretch of memory, in any order of the dimensions."""
    x = _stored(x)
    if x.flags.c_contiguous or x.size < 2:
        return True
    expected = x.itemsize
    for s, n in sorted((s, n) for s, n in zip(x.strides, x.shape, strict=True) if n != 1):
        if s != expected:
            return False
        expected *= n
    return True


@prim("aten::_debug_has_internal_overlap(Tensor self) -> int")
def has_internal_overlap(x: Array) -> int:
    """0 when no two elements share memory, 1 when some do, 2 when strides alone do not tell."""
    if is_non_overlapping_and_dense(x):
        return 0
    return 1 if any(s == 0 and n > 1 for s, n in zip(x.strides, x.shape, strict=True)) else 2


@prim("aten::element_size(Tensor self) -> int", type_rule=width_type)
def element_size(x: Array) -> int:
    """Bytes of one element."""
    return _stored(x).itemsize  # type: ignore[no-any-return]


prim("prim::itemsize(Tensor a) -> int", type_rule=width_type)(element_size)


@prim("prim::nbytes(Tensor a) -> int")
def nbytes(x: Array) -> int:
    """Bytes of all elements."""
    return _stored(x).nbytes  # type: ignore[no-any-return]


@prim("aten::is_same_size(Tensor self, Tensor other) -> bool", type_rule=same_sizes_type)
def is_same_size(x: Array, y: Array) -> bool:
    """Whether two tensors have one shape."""
    return bool(x.shape == y.shape)


@prim("aten::is_set_to(Tensor self, Tensor tensor) -> bool")
def is_set_to(x: Array, y: Array) -> bool:
    """Whether two tensors are the same view of the same memory."""
    return _address(x) == _address(y) and bool(x.shape == y.shape and x.strides == y.strides)


@prim("aten::_has_same_storage_numel(Tensor self, Tensor other) -> bool")
def has_same_storage_numel(x: Array, y: Array) -> bool:
    """Whether the memory behind two tensors holds equally many elements."""
    return _storage_size(x) == _storage_size(y)


def _storage_size(x: Array) -> int:
    root = x
    while isinstance(root.base, type(x)):
        root = root.base
    return root.nbytes // x.itemsize  # type: ignore[no-any-return]


@prim("aten::_infer_size(int[] a, int[] b) -> int[]")
def infer_size(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """The shape two shapes broadcast to. Raises ShapeError when they do not."""
    n = max(len(a), len(b))
    out = []
    for d in range(n):
        i, j = d - n + len(a), d - n + len(b)
        p, q = a[i] if i >= 0 else 1, b[j] if j >= 0 else 1
        if p != q and p != 1 and q != 1:
            raise ShapeError(
                f"aten::_infer_size: The size of tensor a ({p}) must match the size of tensor b ({q}) at non-singleton "
                f"dimension {d}; shapes are {list(a)} and {list(b)}"
            )
        out.append(q if p == 1 else p)
    return out


prim("aten::broadcast_shapes(int[] a, int[] b) -> int[]")(infer_size)


@prim("prim::BroadcastSizes(...) -> int[]")
def broadcast_sizes(*shapes: Sequence[int]) -> list[int]:
    """The shape all shapes broadcast to."""
    out: list[int] = []
    for shape in shapes:
        out = infer_size(out, shape)
    return out


@prim("prim::ReductionSizes(int[] size, int[] red_axes, bool keepdim=False) -> int[]")
def reduction_sizes(sizes: Sequence[int], axes: Sequence[int], keepdim: bool) -> list[int]:
    """The shape that is left when some dimensions are reduced."""
    n = len(sizes)
    for a in axes:
        if not -n <= a < n:
            raise _bad_dim("prim::ReductionSizes", a, n)
    gone = {a % n for a in axes}
    return [1 if d in gone else size_ for d, size_ in enumerate(sizes) if keepdim or d not in gone]


@prim("aten::_size_if_not_equal(int[] self_size, int[] other_size) -> int[]?")
def size_if_not_equal(a: list[int], b: list[int]) -> list[int] | None:
    """The first shape, or None when both are equal."""
    return None if a == b else a


@prim("aten::Size(int[] sizes) -> int[]")
def size_list(sizes: list[int]) -> list[int]:
    """The list itself."""
    return sizes


# ------------------------------------------------------------------------------------------------- dtype and device


def dtype_code(x: Any) -> int:
    """The ScalarType code of a tensor of any kind."""
    if type(x) is QTensor:
        return x.dtype
    return code_of(x.parts[-1].dtype if type(x) is SparseTensor else x.dtype)


def device_of(x: Any) -> Device:
    """The device a tensor of any kind lies on."""
    if type(x) is ndarray:
        return CPU
    if type(x) is QTensor:
        return device_of(x.values)
    if type(x) is SparseTensor:
        return device_of(x.parts[-1])
    place = x.device
    return CPU if isinstance(place, str) else Device("cuda", place.id)


prim("prim::dtype(Tensor a) -> int", type_rule=dtype_code_type, never_raises=True)(dtype_code)
prim("prim::device(Tensor a) -> Device", never_raises=True)(device_of)


@prim("prim::layout(Tensor a) -> Layout", never_raises=True)
def layout(x: Any) -> int:
    """0 for a strided tensor, 1 for COO, 2 for CSR."""
    return x.layout if type(x) is SparseTensor else 0


@prim("aten::get_device(Tensor self) -> int")
def get_device(x: Any) -> int:
    """The index of the tensor's GPU, or -1."""
    index = device_of(x).index
    return -1 if index is None else index


def _kind_is(op: str, kind: str) -> None:
    known: dict[Any, bool] = {}

    def body(x: Any) -> bool:
        if type(x) is not ndarray:
            return type(x) is not QTensor and _kind(x) == kind
        dtype = x.dtype
        found = known.get(dtype)
        if found is None:
            found = known[dtype] = _kind(x) == kind
        return found

    prim(f"aten::{op}(Tensor self) -> bool", type_rule=kind_type(lambda found: found == "bifc".index(kind)))(body)


def _kind(x: Any) -> str:
    """One letter for the kind of a tensor's numbers: ``f`` for any floating type."""
    dtype = x.parts[-1].dtype if type(x) is SparseTensor else x.dtype
    return "f" if kind_of(dtype) == 2 else dtype.kind


_kind_is("is_floating_point", "f")
_kind_is("is_complex", "c")


@prim("aten::is_signed(Tensor self) -> bool")
def is_signed(x: Any) -> bool:
    """Whether the dtype has negative numbers."""
    return x.dtype != 13 if type(x) is QTensor else _kind(x) in "ifc"


@prim(
    "aten::_assert_tensor_metadata(Tensor a, int[]? size=None, int[]? stride=None, ScalarType? dtype=None, *, "
    "Device? device=None, Layout? layout=None) -> ()",
    effects=True,
)
def assert_tensor_metadata(
    x: Any,
    sizes: list[int] | None,
    strides: list[int] | None,
    dtype: int | None,
    device_: Device | None,
    layout_: int | None,
) -> None:
    """Raises OpError when the tensor is not as described."""
    facts: tuple[tuple[str, Any, Any], ...] = (
        ("sizes", sizes, list(x.shape)),
        ("strides", strides, None if strides is None else stride(x)),
        ("dtype", dtype, dtype_code(x)),
        ("device", device_, device_of(x)),
        ("layout", layout_, layout(x)),
    )
    for what, expected, got in facts:
        if expected is not None and expected != got:
            raise OpError(f"aten::_assert_tensor_metadata: Tensor {what} mismatch! Expected: {expected}, Got: {got}")


@prim("aten::result_type.Tensor(Tensor tensor, Tensor other) -> ScalarType", type_rule=result_type_type)
def result_type_code(a: Any, b: Any) -> int:
    """The code of the dtype that two operands, tensors or numbers, are computed in."""
    return code_of(result_type(a, b))


for _text in (
    "Scalar(Tensor tensor, Scalar other)", "Scalar_Tensor(Scalar scalar, Tensor tensor)",
    "Scalar_Scalar(Scalar scalar1, Scalar scalar2)",
):  # fmt: skip
    prim(f"aten::result_type.{_text} -> ScalarType", type_rule=result_type_type)(result_type_code)


@prim("aten::can_cast(ScalarType from_, ScalarType to) -> bool")
def can_cast_codes(source: int, target: int) -> bool:
    """Whether numbers of one dtype may be stored as another: not complex as real, floats as ints, numbers as bools."""
    low, high = _code_kind(source), _code_kind(target)
    if BY_CODE[target].dtype is None and target != 8:
        return low < 3
    return low <= high


def _code_kind(code: int) -> int:
    """The kind of a dtype for promotion: 0 bool, 1 integer, 2 floating, 3 complex."""
    found = BY_CODE.get(code)
    if found is None:
        raise DTypeError(f"no dtype has the code {code}; see the table of scalar types")
    if found.dtype is not None:
        return kind_of(found.dtype)
    return 3 if code == 8 else 1


@prim("aten::promote_types(ScalarType type1, ScalarType type2) -> ScalarType")
def promote_codes(a: int, b: int) -> int:
    """The dtype that operands of two dtypes are computed in. Raises DTypeError for types that do not mix."""
    if a == b:
        return a
    names = f"{IR_NAMES.get(a, a)} and {IR_NAMES.get(b, b)}"
    _code_kind(a), _code_kind(b)
    if 23 <= a <= 26 or 23 <= b <= 26 or 44 in (a, b):
        raise DTypeError(
            f"aten::promote_types: Promotion for Float8 Types is not supported, attempted to promote {names}"
        )
    if (27 <= a <= 29 or 27 <= b <= 29) and 2 not in (_code_kind(a), _code_kind(b)):
        raise DTypeError(
            "aten::promote_types: Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
            + names
        )
    for code in (a, b):
        if BY_CODE[code].dtype is None and code != 8:
            raise DTypeError(f"aten::promote_types: quantised types do not mix, attempted to promote {names}")
    if 8 in (a, b):
        other = b if a == 8 else a
        return {6: 9, 7: 10, 9: 9, 10: 10, 15: 9}.get(other, 8)
    return code_of(promote(numpy_dtype(a), numpy_dtype(b)))


def _flag(text: str, test: Callable[[Any], bool]) -> None:
    prim(text, never_raises=True)(test)


_flag("prim::is_cuda(Tensor a) -> bool", lambda x: device_of(x).type == "cuda")
_flag("prim::is_cpu(Tensor a) -> bool", lambda x: device_of(x).type == "cpu")
_flag("prim::is_quantized(Tensor a) -> bool", lambda x: type(x) is QTensor)
_flag("prim::is_sparse(Tensor a) -> bool", lambda x: type(x) is SparseTensor and x.layout == 1)
_flag("prim::is_sparse_csr(Tensor a) -> bool", lambda x: type(x) is SparseTensor and x.layout == 2)


# ------------------------------------------------------------------------------------------------- sparse and quantised


@prim("aten::is_coalesced(Tensor self) -> bool")
def is_coalesced(x: Any) -> bool:
    """Whether a COO tensor's indices are sorted and distinct. Raises DTypeError for another layout."""
    indices = _coo(x, "aten::is_coalesced").parts[0]
    n = indices.shape[1]
    if n < 2:
        return True
    flat = np.ravel_multi_index([np.asarray(i) for i in indices], x.shape[: indices.shape[0]])
    return bool((flat[1:] > flat[:-1]).all())


def _coo(x: Any, op: str) -> SparseTensor:
    if type(x) is not SparseTensor or x.layout != 1:
        raise DTypeError(f"{op} expected sparse coordinate tensor layout but got Strided; call to_sparse first")
    return x


@prim("aten::sparse_dim(Tensor self) -> int")
def sparse_dim(x: Any) -> int:
    """How many dimensions are stored as indices; 0 for a strided tensor."""
    if type(x) is not SparseTensor:
        return 0
    return x.parts[0].shape[0] if x.layout == 1 else 2


@prim("aten::dense_dim(Tensor self) -> int")
def dense_dim(x: Any) -> int:
    """How many dimensions are stored densely; all of them for a strided tensor."""
    return len(x.shape) - int(sparse_dim(x))


prim("aten::_dimI(Tensor self) -> int")(lambda x: sparse_dim(_coo(x, "aten::_dimI")))
prim("aten::_dimV(Tensor self) -> int")(lambda x: dense_dim(_coo(x, "aten::_dimV")))


@prim("aten::_nnz(Tensor self) -> int")
def nnz(x: Any) -> int:
    """How many entries a sparse tensor stores."""
    if type(x) is not SparseTensor:
        raise DTypeError("aten::_nnz expected a sparse tensor but got Strided; call to_sparse first")
    return x.parts[-1].shape[0]  # type: ignore[no-any-return]
