"""Packed parameters of quantised layers to what archives store of them: the inverse of ``state``."""

from __future__ import annotations

from typing import Any

from gpujit.ir import types as T
from gpujit.ops.families.quantized.embedding import EmbeddingPackedParams
from gpujit.ops.families.quantized.layers import ConvPackedParams, LinearPackedParams
from gpujit.ops.families.quantized.rnn import CellParams
from gpujit.support.errors import SaveError

_TENSORS = T.ListType(T.TENSOR)
_MAYBE_TENSOR = T.OptionalType(T.TENSOR)
_INTS, _FLOATS = T.ListType(T.INT), T.ListType(T.FLOAT)
_CLASSES = "__torch__.torch.classes."
_LINEAR = T.custom_class(f"{_CLASSES}quantized.LinearPackedParamsBase")

_STATES: dict[type, T.Type] = {
    LinearPackedParams: T.TupleType((T.TENSOR, _MAYBE_TENSOR)),
    ConvPackedParams: T.TupleType((T.STR, _TENSORS, T.ListType(_MAYBE_TENSOR))),
    EmbeddingPackedParams: T.TupleType((T.INT, _TENSORS, _FLOATS, _INTS)),
    CellParams: T.TupleType((T.STR, _TENSORS, _FLOATS, _INTS, T.ListType(_LINEAR))),
}


def pack_state(class_name: str, value: Any) -> tuple[Any, T.Type]:
    """The state that an archive stores of an object of a C++ class, and the state's type.

    Raises SaveError when ``value`` is no object of a class that is known.
    """
    t = _STATES.get(type(value))
    if t is None:
        raise SaveError(f"it is a {type(value).__name__}, of which no state of {class_name} can be made")
    return value.state, t


def class_of(value: Any) -> T.ClassType | None:
    """The C++ class that an object stands for; None for what is no packed parameters."""
    if isinstance(value, ConvPackedParams):
        return T.custom_class(f"{_CLASSES}quantized.Conv{len(value.stride)}dPackedParamsBase")
    if isinstance(value, EmbeddingPackedParams):
        return T.custom_class(f"{_CLASSES}quantized.EmbeddingPackedParamsBase")
    if isinstance(value, CellParams):
        return T.custom_class(f"{_CLASSES}rnn.CellParamsBase")
    return _LINEAR if isinstance(value, LinearPackedParams) else None
