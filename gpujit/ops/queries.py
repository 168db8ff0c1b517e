"""What a program asks about a tensor, a device, an enum or the runtime: sizes, strides, dtypes, flags.

These return Python values and never read elements, so they take no array module.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BY_CODE, IR_NAMES, code_of, kind_of, numpy_dtype
from gpujit.ir.values import CPU, Array, Device, EnumValue, QTensor, ScriptObject, SparseTensor, parse_device
from gpujit.ops.promotion import promote, result_type
from gpujit.ops.registry import library, prim, view
from gpujit.support.errors import DeviceError, DTypeError, OpError, ShapeError

ndarray = np.ndarray


# ----------------------------------------------------------------------------------------------- sizes and strides


@prim("aten::size.int(Tensor self, int dim) -> int")
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


@prim("aten::size(Tensor self) -> int[]")
def size(x: Array) -> list[int]:
    """All sizes, as a new list."""
    return list(x.shape)


prim("aten::sym_size.int(Tensor self, int dim) -> int")(size_of)
prim("aten::sym_size(Tensor self) -> int[]")(size)


@prim("aten::dim(Tensor self) -> int")
def dim(x: Array) -> int:
    """The number of dimensions."""
    return x.ndim  # type: ignore[no-any-return]


@prim("aten::numel(Tensor self) -> int")
def numel(x: Array) -> int:
    """The number of elements."""
    return math.prod(x.shape)


prim("aten::sym_numel(Tensor self) -> int")(numel)


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


@prim("aten::element_size(Tensor self) -> int")
def element_size(x: Array) -> int:
    """Bytes of one element."""
    return _stored(x).itemsize  # type: ignore[no-any-return]


prim("prim::itemsize(Tensor a) -> int")(element_size)


@prim("prim::nbytes(Tensor a) -> int")
def nbytes(x: Array) -> int:
    """Bytes of all elements."""
    return _stored(x).nbytes  # type: ignore[no-any-return]


@prim("aten::is_same_size(Tensor self, Tensor other) -> bool")
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


prim("prim::dtype(Tensor a) -> int")(dtype_code)
prim("prim::device(Tensor a) -> Device")(device_of)


@prim("prim::layout(Tensor a) -> Layout")
def layout(x: Any) -> int:
    """0 for a strided tensor, 1 for COO, 2 for CSR."""
    return x.layout if type(x) is SparseTensor else 0


@prim("aten::get_device(Tensor self) -> int")
def get_device(x: Any) -> int:
    """The index of the tensor's GPU, or -1."""
    index = device_of(x).index
    return -1 if index is None else index


def _kind_is(op: str, kinds: frozenset[str]) -> None:
    prim(f"aten::{op}(Tensor self) -> bool")(lambda x: type(x) is not QTensor and _kind(x) in kinds)


def _kind(x: Any) -> str:
    """One letter for the kind of a tensor's numbers: ``f`` for any floating type."""
    dtype = x.parts[-1].dtype if type(x) is SparseTensor else x.dtype
    return "f" if kind_of(dtype) == 2 else dtype.kind


_kind_is("is_floating_point", frozenset("f"))
_kind_is("is_complex", frozenset("c"))


@prim("aten::is_signed(Tensor self) -> bool")
def is_signed(x: Any) -> bool:
    """Whether the dtype has negative numbers."""
    return x.dtype != 13 if type(x) is QTensor else _kind(x) in "ifc"


@prim("aten::result_type.Tensor(Tensor tensor, Tensor other) -> ScalarType")
def result_type_code(a: Any, b: Any) -> int:
    """The code of the dtype that two operands, tensors or numbers, are computed in."""
    return code_of(result_type(a, b))


for _text in (
    "Scalar(Tensor tensor, Scalar other)", "Scalar_Tensor(Scalar scalar, Tensor tensor)",
    "Scalar_Scalar(Scalar scalar1, Scalar scalar2)",
):  # fmt: skip
    prim(f"aten::result_type.{_text} -> ScalarType")(result_type_code)


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
    prim(text)(test)


def _constant(text: str, value: Any) -> None:
    prim(text)(lambda *_: value)


_flag("prim::is_cuda(Tensor a) -> bool", lambda x: device_of(x).type == "cuda")
_flag("prim::is_cpu(Tensor a) -> bool", lambda x: device_of(x).type == "cpu")
_flag("prim::is_quantized(Tensor a) -> bool", lambda x: type(x) is QTensor)
_flag("prim::is_sparse(Tensor a) -> bool", lambda x: type(x) is SparseTensor and x.layout == 1)
_flag("prim::is_sparse_csr(Tensor a) -> bool", lambda x: type(x) is SparseTensor and x.layout == 2)
for _name in ("xpu", "mkldnn", "mps", "vulkan", "ipu", "meta", "maia", "mtia", "xla", "nested"):
    _constant(f"prim::is_{_name}(Tensor a) -> bool", False)


# ----------------------------------------------------------------------------------------------- autograd, which is off

for _text in (
    "prim::requires_grad(Tensor a)", "aten::retains_grad(Tensor self)", "aten::is_inference(Tensor self)",
    "aten::is_conj(Tensor self)", "aten::is_neg(Tensor self)", "aten::_is_zerotensor(Tensor self)",
    "aten::is_distributed(Tensor self)", "aten::is_pinned(Tensor self, Device? device=None)",
    "aten::cudnn_is_acceptable(Tensor self)", "aten::is_grad_enabled()", "aten::is_autocast_enabled()",
    "aten::is_autocast_cpu_enabled()", "aten::_get_tracing_state()", "aten::has_torch_function(...)",
    "aten::is_vulkan_available()", "aten::_nnpack_available()", "aten::_use_cudnn_rnn_flatten_weight()",
):  # fmt: skip
    _constant(f"{_text} -> bool", False)
_constant("aten::is_leaf(Tensor self) -> bool", True)
_constant("aten::is_scripting() -> bool", True)
_constant("aten::_has_compatible_shallow_copy_type(Tensor self, Tensor from) -> bool", True)
_constant("aten::output_nr(Tensor self) -> int", 0)
_constant("aten::_version(Tensor self) -> int", 0)
_constant("prim::grad(Tensor a) -> Tensor(*)", None)
_constant("prim::name(Tensor a) -> str?", None)
_constant("aten::_get_cpu_capability() -> str", "DEFAULT")


@prim("aten::set_grad_enabled(bool val) -> ()", effects=True)
def set_grad_enabled(value: bool) -> None:
    """Nothing: no gradients are recorded."""


@prim("aten::get_autocast_dtype(str device_type) -> ScalarType")
def get_autocast_dtype(device_type: str) -> int:
    """The dtype automatic casting would use: bfloat16 on CPU, float16 elsewhere."""
    return 15 if device_type == "cpu" else 5


@view("prim::data(Tensor(a) a) -> Tensor(a)")
def data(m: Any, x: Array) -> Array:
    """Another tensor on the same memory."""
    return x[...] if hasattr(x, "strides") else x


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


# --------------------------------------------------------------------------------------------------------- devices


@prim("aten::device(str a) -> Device")
def device(text: str) -> Device:
    """The device a text names. Raises DeviceError for text that names none."""
    return parse_device(text)


@prim("aten::device.with_index(str type, int index) -> Device")
def device_with_index(type_: str, index: int) -> Device:
    """The device of that kind and number."""
    if parse_device(type_).index is not None or index < -1:
        raise DeviceError(
            f"aten::device: {type_!r} with index {index} is no device; use a kind such as 'cuda' and a number"
        )
    return Device(type_, None if index == -1 else index)


prim("prim::type(Device self) -> str")(lambda d: d.type)
prim("prim::index(Device self) -> int?")(lambda d: d.index)


@library("aten::cpu(Tensor(a) self) -> Tensor(b|a)", half="native")
def cpu(xp: Any, x: Array) -> Array:
    """The tensor in host memory: itself when it is there."""
    return x if type(x) is ndarray else x.get()


@library("aten::cuda(Tensor(a) self) -> Tensor(b|a)", half="native")
def cuda(xp: Any, x: Array) -> Array:
    """The tensor on the GPU: itself when it is there. Raises DeviceError when the program runs on NumPy."""
    if type(x) is not ndarray:
        return x
    if xp is np:
        raise DeviceError("aten::cuda: there is no GPU to move the tensor to; load the model with device='cpu'")
    return xp.asarray(x)


# ------------------------------------------------------------------------------------------- enums, modules, checks


@prim("prim::EnumName(AnyEnumType enum) -> str")
def enum_name(e: EnumValue) -> str:
    """The name of an enum's member."""
    return e.name


for _name in ("int", "float", "str"):
    prim(f"prim::EnumValue.{_name}(AnyEnumType enum) -> {_name}")(lambda e: e.value)


@prim("prim::ModuleContainerIndex.list(Any self, int ind) -> Any")
def module_at(container: ScriptObject, index: int) -> Any:
    """The submodule a ModuleList holds under a number. Raises OpError when there is none."""
    return module_named(container, str(index))


@prim("prim::ModuleContainerIndex.dict(Any self, str ind) -> Any")
def module_named(container: ScriptObject, name: str) -> Any:
    """The submodule a ModuleDict holds under a name. Raises OpError when there is none."""
    try:
        return container.get(name)
    except KeyError:
        raise OpError(f"prim::ModuleContainerIndex: {container.type.name} has no submodule {name!r}") from None


@prim("prim::id(AnyClassType? x) -> int")
def identity(x: Any) -> int:
    """A number that no other living object has; 0 for None."""
    return 0 if x is None else id(x)


@prim("prim::TimePoint() -> int", effects=True)
def time_point() -> int:
    """A clock in nanoseconds."""
    return time.perf_counter_ns()


@prim("prim::AddStatValue(str key, int val) -> ()", effects=True)
def add_stat_value(key: str, value: int) -> None:
    """Nothing: no statistics are kept."""


@prim("prim::IfThenElse(bool cond, Any(a) x, Any(b) y) -> Any(b|a)")
def if_then_else(condition: bool, x: Any, y: Any) -> Any:
    """``x`` when the condition holds, else ``y``."""
    return x if condition else y


@prim("prim::unchecked_unwrap_optional(t(a)? optional) -> t(a)")
def unchecked_unwrap(value: Any) -> Any:
    """The value itself."""
    return value


@prim("aten::_unwrap_optional(t(a)? optional) -> t(a)")
def unwrap_optional(value: Any) -> Any:
    """The value itself. Raises OpError for None."""
    if value is None:
        raise OpError("aten::_unwrap_optional: Unwrapping null optional; the value is None")
    return value


@prim("aten::_assert_scalar(Scalar self, str assert_msg) -> ()", effects=True)
def assert_scalar(value: Any, message: str) -> None:
    """Raises OpError with the message when the number is zero."""
    if not value:
        raise OpError(message)


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
        ("strides", strides, None if strides is None else list(_strides(_stored(x)))),
        ("dtype", dtype, dtype_code(x)),
        ("device", device_, device_of(x)),
        ("layout", layout_, layout(x)),
    )
    for what, expected, got in facts:
        if expected is not None and expected != got:
            raise OpError(f"aten::_assert_tensor_metadata: Tensor {what} mismatch! Expected: {expected}, Got: {got}")


def _constrain(value: Any, low: int | None, high: int | None) -> None:
    low = -(2**63) if low is None else low
    high = 2**63 - 1 if high is None else high
    if not low <= value <= high:
        raise OpError(f"aten::sym_constrain_range: Invalid value range for {value} between [{low}, {high}].")


for _name in ("sym_constrain_range", "sym_constrain_range_for_size"):
    prim(f"aten::{_name}(Scalar size, *, int? min=None, int? max=None) -> ()", effects=True)(_constrain)


# ------------------------------------------------------------------------------- gradients that are not there are None


@prim("prim::AutogradZero() -> Tensor")
def autograd_zero() -> Any:
    """The gradient that is not there: None."""
    return None


@prim("prim::AutogradAnyNonZero(...) -> bool")
def autograd_any(*gradients: Any) -> bool:
    """Whether any gradient, or any in a list of them, is there."""
    return any(any(v is not None for v in g) if type(g) is list else g is not None for g in gradients)


prim("prim::AutogradAllZero(...) -> bool")(lambda *gradients: all(g is None for g in gradients))
prim("prim::AutogradAllNonZero(...) -> bool")(lambda *gradients: all(g is not None for g in gradients))


@prim("prim::AutogradAdd(Any a, Any b) -> Any")
def autograd_add(a: Any, b: Any) -> Any:
    """The sum of two gradients; one that is not there counts as zero."""
    if a is None or b is None:
        return b if a is None else a
    return np.asarray(a + b) if type(a) is ndarray else a + b
