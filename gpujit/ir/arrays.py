"""A tensor from anything that is one, and how messages describe a value that somebody passed."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.ir.dtypes import BFLOAT16, is_tensor_dtype
from gpujit.ir.values import DeviceTensor, EnumValue, QTensor, ScriptObject, SparseTensor


class Misfit(Exception):
    """A caller's value does not fit; the text says what was found."""


def describe(value: Any) -> str:
    """What a caller passed, for messages: dtype and shape of an array, type and value of a number."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (bool, int, float, complex, str)) and len(repr(value)) < 60:
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, (list, tuple)) and len(value) <= 6:
        return f"{type(value).__name__} of ({', '.join(describe(v) for v in value)})"
    if isinstance(value, (ScriptObject, EnumValue)):
        return f"value of {value.type.name}"
    return type(value).__name__


def as_array(value: Any) -> Any:
    """A tensor from anything that is one: NumPy arrays, ``__array__``, ``__dlpack__``; no copy where possible.

    Raises Misfit for dtypes tensors cannot have, and for arrays on a GPU: modules run on the CPU, and nothing is moved
    between devices unasked.
    """
    array = value
    if type(array) is not np.ndarray:
        if isinstance(value, (QTensor, SparseTensor)):
            return value
        if isinstance(value, DeviceTensor):
            if not is_tensor_dtype(value.dtype):
                raise Misfit(f"an array of dtype {value.dtype}, which tensors cannot have")
            return value
        if hasattr(value, "__cuda_array_interface__"):
            raise Misfit("an array on a GPU, while the module is on the CPU; copy it to the host first")
        if isinstance(value, np.ndarray):
            array = value.view(np.ndarray)
        elif isinstance(value, np.generic):
            array = np.asarray(value)
        elif hasattr(value, "detach") and hasattr(value, "numpy"):
            array = _from_torch(value)
        elif hasattr(value, "__array__"):
            array = np.asarray(value)
        elif hasattr(value, "__dlpack__"):
            try:
                array = np.from_dlpack(value)
            except (BufferError, RuntimeError, TypeError, ValueError) as e:
                raise Misfit(f"a {type(value).__name__} that DLPack does not hand over: {e}") from None
        else:
            raise Misfit(describe(value))
    if not is_tensor_dtype(array.dtype):
        if array.dtype.isnative is False and is_tensor_dtype(array.dtype.newbyteorder("=")):
            return array.astype(array.dtype.newbyteorder("="))
        raise Misfit(f"an array of dtype {array.dtype}, which tensors cannot have")
    return array


def _from_torch(value: Any) -> Any:
    """An array sharing a CPU torch tensor's memory. torch is the caller's: it is not imported here."""
    tensor = value.detach()
    if str(tensor.dtype) == "torch.bfloat16":
        return tensor.contiguous().view(_torch_int16(tensor)).numpy().view(BFLOAT16)
    return tensor.resolve_conj().resolve_neg().cpu().numpy()


def _torch_int16(tensor: Any) -> Any:
    return tensor.new_empty(0).short().dtype
