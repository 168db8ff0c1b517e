"""What the names in a pickle of PyTorch stand for: tensors of all kinds, typed containers, devices, complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpujit.ir.values import Array, Device, QTensor, SparseTensor, parse_device
from gpujit.serialization.storage import STORAGE_TYPES, Storage, StorageReader, rebuild_tensor
from gpujit.serialization.unpickle import Malformed, Unpickler, ordered_dict
from gpujit.support.errors import DeviceError

Args = tuple[Any, ...]
OnTag = Callable[[Any, str], None]
OnTensor = Callable[[Any, bool], None]

_QSCHEMES = (
    "per_tensor_affine",
    "per_channel_affine",
    "per_tensor_symmetric",
    "per_channel_symmetric",
    "per_channel_affine_float_qparams",
)
_Q_TYPES = (12, 13, 14)
# What cannot stand in a list of tensors. Arrays of other libraries are let through: their type is not known here.
_NO_TENSOR = frozenset((int, float, bool, complex, str, bytes, list, dict, tuple, type(None), Device, Storage))


@dataclass(frozen=True, slots=True)
class QScheme:
    """How a quantised tensor is scaled, such as ``per_tensor_affine``."""

    name: str


def torch_globals(on_tag: OnTag | None = None, on_tensor: OnTensor | None = None) -> dict[str, object]:
    """The allow-list for ``Unpickler``, less the ``__torch__`` classes.

    Args:
        on_tag: told of every list or dict with a type: the container itself and its type as Python source
            (``List[int]``). When it is called the contents are final, but objects in them may still lack their state.
        on_tensor: told of every tensor and whether it requires a gradient.
    """

    def tagged(value: Any, text: str) -> Any:
        if on_tag is not None:
            on_tag(value, text)
        return value

    def made(tensor: Any, requires_grad: object) -> Any:
        if type(requires_grad) is not bool:
            raise Malformed("requires_grad is not a bool")
        if on_tensor is not None:
            on_tensor(tensor, requires_grad)
        return tensor

    def list_of(kinds: frozenset[type], text: str) -> Callable[[Args], Any]:
        def build(args: Args) -> Any:
            value = _only_list(args)
            if not kinds.issuperset(map(type, value)):
                raise Malformed(f"expected a {text}, found a list with other values")
            return tagged(value, text)

        return build

    def build_tensorlist(args: Args) -> Any:
        value = _only_list(args)
        if not _NO_TENSOR.isdisjoint(map(type, value)):
            raise Malformed("expected a List[Tensor], found a list with other values")
        return tagged(value, "List[Tensor]")

    def restore_type_tag(args: Args) -> Any:
        if len(args) != 2 or type(args[0]) not in (list, dict) or type(args[1]) is not str:
            raise Malformed("expected a list or dict and the text of its type")
        return tagged(*args)

    def rebuild_tensor_v2(args: Args) -> Any:
        if not 4 <= len(args) <= 7 or type(args[0]) is not Storage:
            raise Malformed("expected (storage, offset, size, stride, requires_grad, hooks)")
        conj, neg = _bits(args[6]) if len(args) == 7 else (False, False)
        tensor = rebuild_tensor(args[0], args[1], args[2], args[3], conj=conj, neg=neg)
        return made(tensor, args[4] if len(args) > 4 else False)

    def rebuild_parameter(args: Args) -> Any:
        if len(args) < 2 or type(args[0]) in _NO_TENSOR:
            raise Malformed("expected (tensor, requires_grad, hooks)")
        return made(args[0], args[1])

    table: dict[str, object] = {
        "collections.OrderedDict": ordered_dict,
        "builtins.complex": _complex,
        "torch.device": _device,
        "torch.Size": _size,
        "torch._utils._rebuild_tensor_v2": rebuild_tensor_v2,
        "torch._utils._rebuild_tensor": rebuild_tensor_v2,
        "torch._utils._rebuild_parameter": rebuild_parameter,
        "torch._utils._rebuild_qtensor": lambda args: made(*_qtensor(args)),
        "torch._utils._rebuild_sparse_tensor": lambda args: made(*_sparse(args)),
        "torch.jit._pickle.build_intlist": list_of(frozenset((int,)), "List[int]"),
        "torch.jit._pickle.build_doublelist": list_of(frozenset((float,)), "List[float]"),
        "torch.jit._pickle.build_boollist": list_of(frozenset((bool,)), "List[bool]"),
        "torch.jit._pickle.build_tensorlist": build_tensorlist,
        "torch.jit._pickle.restore_type_tag": restore_type_tag,
        "torch.jit._pickle.build_tensor_from_id": _no_tensor_table,
    }
    table.update(_VALUES)
    return table


_VALUES: dict[str, object] = {**STORAGE_TYPES, **{f"torch.{name}": QScheme(name) for name in _QSCHEMES}}


def torch_unpickler(
    reader: StorageReader,
    name: str,
    *,
    find_class: Callable[[str, str], Any] | None = None,
    on_tag: OnTag | None = None,
    on_tensor: OnTensor | None = None,
) -> Unpickler:
    """The unpickler for a member (``data.pkl``) whose tensors lie in ``reader``'s folder."""
    archive = reader.archive
    return Unpickler(
        archive.read(name),
        globals=torch_globals(on_tag, on_tensor),
        persistent=reader.persistent,
        where=archive.where(name),
        find_class=find_class,
    )


def _only_list(args: Args) -> list[Any]:
    if len(args) != 1 or type(args[0]) is not list:
        raise Malformed("expected one list")
    return args[0]


def _bits(metadata: object) -> tuple[bool, bool]:
    """(conj, neg) of the seventh item of a tensor."""
    if type(metadata) is not dict or not {"conj", "neg"}.issuperset(metadata):
        raise Malformed("expected a dict with the keys 'conj' and 'neg'")
    return metadata.get("conj") is True, metadata.get("neg") is True


def _complex(args: Args) -> complex:
    if len(args) != 2 or not {int, float}.issuperset(map(type, args)):
        raise Malformed("expected two numbers")
    # Through complex() an integer beyond 1e308 raises; pickled complex numbers hold floats.
    return complex(*(float(a) for a in args))


def _device(args: Args) -> Device:
    if len(args) == 2 and type(args[0]) is str and type(args[1]) is int:
        args = (f"{args[0]}:{args[1]}",)
    if len(args) != 1 or type(args[0]) is not str:
        raise Malformed("expected the text of a device")
    try:
        return parse_device(args[0])
    except DeviceError as error:
        raise Malformed(error.message) from None


def _size(args: Args) -> tuple[int, ...]:
    if len(args) != 1 or type(args[0]) not in (tuple, list) or not {int}.issuperset(map(type, args[0])):
        raise Malformed("expected a tuple of integers")
    return tuple(args[0])


def _no_tensor_table(args: Args) -> Any:
    raise Malformed("the pickle refers to tensors that were sent beside it; it cannot be read from a file")


def _qtensor(args: Args) -> tuple[QTensor, Any]:
    """The tensor of (storage, offset, size, stride, (scheme, ...), requires_grad, hooks), and requires_grad."""
    if len(args) != 7 or type(args[0]) is not Storage or type(args[4]) is not tuple or not args[4]:
        raise Malformed("expected (storage, offset, size, stride, quantizer, requires_grad, hooks)")
    storage, quantizer = args[0], args[4]
    if storage.type.code not in _Q_TYPES:
        raise Malformed(f"a storage of {storage.type.name} is not quantised")
    scheme = quantizer[0].name if type(quantizer[0]) is QScheme else None
    values = rebuild_tensor(storage, args[1], args[2], args[3])
    if scheme == "per_tensor_affine":
        if len(quantizer) != 3 or type(quantizer[1]) is not float or type(quantizer[2]) is not int:
            raise Malformed("expected a float scale and an integer zero point")
        return QTensor(values, storage.type.code, quantizer[1], quantizer[2]), args[5]
    if scheme in ("per_channel_affine", "per_channel_affine_float_qparams"):
        if len(quantizer) != 4 or type(quantizer[3]) is not int or not 0 <= quantizer[3] < values.ndim:
            raise Malformed("expected scales, zero points and an axis of the tensor")
        _, scales, zero_points, axis = quantizer
        count = (int(values.shape[axis]),)
        if any(not _is_array(a) or tuple(a.shape) != count for a in (scales, zero_points)):
            raise Malformed(f"expected one scale and one zero point for each of the {count[0]} channels")
        kinds = "iu" if scheme == "per_channel_affine" else "iuf"
        if scales.dtype.kind != "f" or zero_points.dtype.kind not in kinds:
            raise Malformed(f"scales of {scales.dtype} and zero points of {zero_points.dtype} do not go together")
        return QTensor(values, storage.type.code, scales, zero_points, axis), args[5]
    raise Malformed("the quantiser is neither per_tensor_affine nor per_channel_affine")


def _sparse(args: Args) -> tuple[SparseTensor, Any]:
    """The tensor of (1, size, requires_grad, indices, values, hooks) or (2, size, rg, crow, col, values, hooks).

    Python's own pickles hold (layout, (indices, values, size, ...)); they do not occur in TorchScript files.
    """
    if len(args) < 6 or type(args[0]) is not int or (args[0], len(args)) not in ((1, 6), (2, 7)):
        raise Malformed(
            "expected a COO tensor (1, size, requires_grad, indices, values, hooks) or a CSR one of 7 items"
        )
    shape, parts = args[1], args[3:-1]
    if type(shape) in (list, tuple) and {int}.issuperset(map(type, shape)):
        shape = tuple(shape)
    else:
        raise Malformed("the size is no list of integers")
    if any(not 0 <= n < 1 << 63 for n in shape):
        raise Malformed("a size is negative or beyond 64 bits")
    if any(not _is_array(p) for p in parts):
        raise Malformed("indices and values must be tensors")
    if any(p.dtype.kind not in "iu" or not _is_dense(p) for p in parts[:-1]):
        raise Malformed("indices must be integers that lie apart in memory")
    values = parts[-1]
    if args[0] == 1:
        (indices,) = parts[:1]
        if indices.ndim != 2 or values.ndim < 1 or indices.shape[1] != values.shape[0]:
            raise Malformed("indices must have a row per sparse dimension and a column per value")
        sparse_dims = int(indices.shape[0])
        if sparse_dims + values.ndim - 1 != len(shape) or tuple(values.shape[1:]) != shape[sparse_dims:]:
            raise Malformed(f"indices and values do not make up a tensor of size {list(shape)}")
        for row, n in zip(indices, shape, strict=False):
            _check_range(row, n)
    else:
        crow, col = parts[:2]
        if len(shape) != 2 or crow.ndim != 1 or col.ndim != 1 or values.ndim != 1:
            raise Malformed("only CSR tensors of two dimensions are known")
        if len(crow) != shape[0] + 1 or len(col) != len(values):
            raise Malformed("a CSR tensor needs a row start per row and one more, and a column per value")
        if int(crow[0]) != 0 or int(crow[-1]) != len(col) or bool((crow[1:] < crow[:-1]).any()):
            raise Malformed("the row starts of a CSR tensor must rise from 0 to the number of values")
        _check_range(col, shape[1])
    return SparseTensor(args[0], tuple(parts), shape), args[2]


def _is_array(value: Any) -> bool:
    return type(value) not in _NO_TENSOR and hasattr(value, "dtype") and hasattr(value, "strides")


def _is_dense(array: Array) -> bool:
    """Whether its elements may lie apart: an expanded one can claim any length over a few bytes."""
    reach = sum((int(n) - 1) * int(s) for n, s in zip(array.shape, array.strides, strict=True)) + array.dtype.itemsize
    return 0 in array.shape or int(array.size) * int(array.dtype.itemsize) <= reach


def _check_range(indices: Array, size: int) -> None:
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= size):
        raise Malformed(f"an index of a sparse tensor lies outside its size {size}")
