"""Packed parameters of quantised layers as archives store them.

Every size and number comes from a file, so each is checked before an object is made of it.
"""

from __future__ import annotations

from typing import Any

from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.values import QTensor
from gpujit.ops.families.quantized.embedding import EmbeddingPackedParams
from gpujit.ops.families.quantized.layers import ConvPackedParams, LinearPackedParams, round_to_half
from gpujit.ops.families.quantized.rnn import CellParams
from gpujit.support.errors import PickleError


def _fail(name: str, found: str) -> PickleError:
    return PickleError(f"the state of a {name} does not fit it: {found}", code="pickle-arguments")


def _unwrap(value: Any) -> Any:
    """The packed parameters inside what the reader may still hold wrapped."""
    inner = getattr(value, "value", None)
    return inner if isinstance(inner, LinearPackedParams) else value


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "ndim") and type(value) is not QTensor


def _unpack_linear(name: str, state: Any) -> LinearPackedParams:
    if not isinstance(state, (tuple, list)) or len(state) != 2:
        raise _fail(name, "expected a pair of weight and bias")
    weight, bias = state
    if len(getattr(weight, "shape", ())) != 2 or not (type(weight) is QTensor or weight.dtype.kind == "f"):
        raise _fail(name, "the weight is no matrix of numbers")
    if bias is not None and (not _is_array(bias) or bias.shape != (weight.shape[0],)):
        raise _fail(name, "the bias does not fit the weight")
    if type(weight) is QTensor:
        return LinearPackedParams(weight, bias)
    return LinearPackedParams(round_to_half(weight.astype(FLOAT32)), bias)


def _unpack_conv(name: str, state: Any, rank: int) -> ConvPackedParams:
    if not isinstance(state, (tuple, list)) or len(state) not in (3, 6):
        raise _fail(name, "expected version, tensors and optional tensors")
    if len(state) == 6:
        # The first format: weight, bias and lists of one-element tensors.
        weight, bias, *lists, groups = state
        try:
            numbers = [rank, *(int(v.item()) for part in lists for v in part), *([0] * rank), int(groups.item()), 0]
        except (AttributeError, TypeError, ValueError):
            raise _fail(name, "expected lists of numbers") from None
    else:
        version, first, second = state
        try:
            if str(version) == "2":
                numbers, weight, bias = [int(v) for v in first[0].tolist()], first[1], second[0]
            elif version == 3:
                numbers, weight, bias = [int(v) for v in first], second[1], second[2]
            else:
                raise _fail(name, f"version {version!r} is not known")
        except (AttributeError, TypeError, ValueError, IndexError):
            raise _fail(name, "the tensors are not those of its version") from None
    if (
        type(weight) is not QTensor
        or weight.values.ndim != rank + 2
        or len(numbers) != 4 * rank + 3
        or numbers[0] != rank
    ):
        raise _fail(name, f"the weight or its numbers are not those of a convolution over {rank} dims")
    stride, padding, dilation, extra = (tuple(numbers[1 + i * rank : 1 + (i + 1) * rank]) for i in range(4))
    groups, transpose = numbers[-2], bool(numbers[-1])
    limit = 1 << 20
    if (
        not all(0 < n < limit for n in stride + dilation)
        or not all(0 <= n < limit for n in padding + extra)
        or groups < 1
    ):
        raise _fail(name, "its stride, padding, dilation or groups are out of range")
    channels = weight.shape[1] * groups if transpose else weight.shape[0]
    if bias is not None and (not _is_array(bias) or bias.shape != (channels,)):
        raise _fail(name, "the bias does not fit the weight")
    return ConvPackedParams(weight, bias, stride, padding, dilation, groups, extra, transpose)


def _unpack_cell(name: str, state: Any) -> CellParams:
    if not isinstance(state, (tuple, list)) or len(state) != 5 or not isinstance(state[4], (list, tuple)):
        raise _fail(name, "expected a kind, tensors, floats, ints and packed parameters")
    kind, tensors, _, numbers, packed = state
    layers = [_unwrap(p) for p in packed]
    if len(layers) != 2 or not all(isinstance(p, LinearPackedParams) for p in layers):
        raise _fail(name, "expected two packed linear layers")
    if kind not in ("quantized_dynamic", "quantized_fp16"):
        raise _fail(name, f"cells of kind {kind!r} are not supported; use dynamic or half-precision ones")
    return CellParams(str(kind), layers[0], layers[1], list(tensors), bool(numbers and numbers[0]))


def _unpack_embedding(name: str, state: Any) -> EmbeddingPackedParams:
    try:
        version, (weight,), _, (bits,) = state
    except (TypeError, ValueError):
        raise _fail(name, "expected a version, one weight and its number of bits") from None
    if version != 1 or type(weight) is not QTensor or weight.values.ndim != 2 or weight.axis != 0 or bits not in (4, 8):
        raise _fail(name, "the weight is no matrix quantised by rows to 4 or 8 bits")
    return EmbeddingPackedParams(weight, int(bits))


def unpack_state(class_name: str, state: Any) -> object:
    """The packed parameters that an archive stores as ``state`` of a C++ class such as ``LinearPackedParamsBase``.

    Raises PickleError when the class is unknown or the state is not one of it.
    """
    name = class_name.rpartition(".classes.")[2]
    if name == "quantized.LinearPackedParamsBase":
        return _unpack_linear(name, state)
    if name in ("quantized.Conv2dPackedParamsBase", "quantized.Conv3dPackedParamsBase"):
        return _unpack_conv(name, state, 2 if "Conv2d" in name else 3)
    if name == "quantized.EmbeddingPackedParamsBase":
        return _unpack_embedding(name, state)
    if name == "rnn.CellParamsBase":
        return _unpack_cell(name, state)
    raise PickleError(f"objects of the C++ class {class_name} are not supported", code="pickle-class")
