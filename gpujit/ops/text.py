"""How values read as text: what ``str()``, ``format``, ``print`` and error messages show.

Strings are sequences of UTF-8 bytes in TorchScript. Here they are Python strings, where bytes that are no whole
character are surrogates (``surrogateescape``); ``as_bytes`` and ``as_text`` go from one to the other.
Source: the printing of values and of tensors in PyTorch, found by experiment with torch 2.13.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpujit.ir.dtypes import IR_NAMES, code_of
from gpujit.ir.values import Array, Device, EnumValue, QTensor, ScriptObject, SparseTensor

_LINE = 80


def as_bytes(text: str) -> str:
    """One character for each UTF-8 byte of ``text``."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def as_text(data: str) -> str:
    """The string whose UTF-8 bytes are the characters of ``data``."""
    return data.encode("latin-1").decode("utf-8", "surrogateescape")


def float_text(value: float) -> str:
    """A float as ``str()`` shows it: ``1.``, ``0.5``, ``1e+20``; 17 significant digits, no sign on zero."""
    if -9.3e18 < value < 9.2e18 and value == int(value):
        return f"{int(value)}."
    return f"{value:.17g}"


def complex_text(value: complex) -> str:
    """A complex number as ``str()`` shows it: ``1.+2.j``."""
    sign = "+" if value.imag >= 0 else "-"
    return f"{float_text(value.real)}{sign}{float_text(abs(value.imag))}j"


def value_text(value: Any) -> str:
    """Any value as ``str()`` shows it; strings inside containers stay bare."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind is float:
        return float_text(value)
    if kind is int or kind is bool or value is None:
        return str(value)
    if isinstance(value, tuple):
        return "(" + ", ".join(map(value_text, value)) + (",)" if len(value) == 1 else ")")
    if kind is list:
        return "[" + ", ".join(map(value_text, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{value_text(k)}: {value_text(v)}" for k, v in value.items()) + "}"
    if kind is complex:
        return complex_text(value)
    if kind is Device:
        return str(value)
    if kind is EnumValue:
        return f"Enum<{value}>"
    if kind is ScriptObject:
        return f"<{value.type.name} object at {id(value):#x}>"
    array = getattr(value, "array", value)
    return tensor_text(array) if hasattr(array, "dtype") else str(value)


def tensor_text(x: Any) -> str:
    """A tensor as ``str()`` shows it: its rows, then ``[ CPUFloatType{2,3} ]``."""
    if isinstance(x, SparseTensor):
        return f"[ Sparse{type_name(x.parts[-1])}{{{','.join(map(str, x.shape))}}} ]"
    tail = ""
    values: Any = x
    name = type_name(x)
    if isinstance(x, QTensor):
        values = np.asarray(x.values, np.float64)
        if x.axis is None:
            values = (values - x.zero_point) * x.scale
            tail = f", qscheme: per_tensor_affine, scale: {x.scale:.6g}, zero_point: {x.zero_point}"
    elif type(x) is not np.ndarray:
        values = x.get()
    data = np.asarray(values.real if values.dtype.kind == "c" else values).astype(np.float64)
    end = f"[ {name}{{{','.join(map(str, data.shape))}}}{tail} ]"
    if data.size == 0:
        return end
    if data.ndim == 0:
        return f"{_shortest(float(data))}\n{end}"
    if data.ndim == 1:
        scale, show = _number_format(data)
        head = "" if scale == 1 else f"{_shortest(scale)} *\n"
        return head + "".join(show(v) + "\n" for v in data) + end
    if data.ndim == 2:
        return _matrix(data, 0) + end
    parts = []
    # The first index runs fastest.
    lead = data.shape[:-2]
    for flat in range(math.prod(lead)):
        index = np.unravel_index(flat, lead, order="F")
        parts.append("(" + "".join(f"{i + 1}," for i in index) + ".,.) = \n" + _matrix(data[index], 1))
    return "\n".join(parts) + end


def type_name(x: Any) -> str:
    """The name of a tensor's class: ``CPUFloatType``."""
    if isinstance(x, QTensor):
        return f"QuantizedCPU{IR_NAMES.get(x.dtype, 'Q')}Type"
    return f"{'CPU' if type(x) is np.ndarray else 'CUDA'}{IR_NAMES[code_of(x.dtype)]}Type"


def _number_format(data: Array) -> tuple[float, Any]:
    """The factor to take out of all numbers, and a function that shows one of them."""
    finite = data[np.isfinite(data)]
    whole = bool((finite == np.ceil(finite)).all())
    low = high = 1
    if finite.size:
        sizes = np.abs(finite)
        low, high = _digits(float(sizes.min())), _digits(float(sizes.max()))
    if whole:
        if high > 9:
            return 1.0, lambda v: f"{v:11.4e}"
        return 1.0, lambda v, w=high + 1: f"{v:{w}.6g}"
    if high - low > 4:
        width = 12 if abs(high) > 99 or abs(low) > 99 else 11
        return 1.0, lambda v: f"{v:{width}.4e}"
    if high > 5 or high < 0:
        scale = 10.0 ** (high - 1)
        return scale, lambda v: f"{v / scale:7.4f}"
    width = 7 if high == 0 else high + 6
    return 1.0, lambda v: f"{v:{width}.4f}"


def _shortest(value: float) -> str:
    return repr(value).removesuffix(".0")


def _digits(value: float) -> int:
    return math.floor(math.log10(value)) + 1 if value else 1


def _matrix(data: Array, indent: int) -> str:
    scale, show = _number_format(data)
    margin = " " * indent
    width = len(show(0.0))
    rows, columns = data.shape
    fit = (_LINE - indent) // (width + 1)
    out = []
    for first in range(0, columns, fit):
        last = min(first + fit, columns)
        if fit < columns:
            out.append(("\n" if first else "") + f"Columns {first + 1} to {last}" + margin)
        if scale != 1:
            out.append(f"{_shortest(scale)} *\n{margin}")
        between = margin + " " if scale != 1 else margin
        lines = [" ".join(map(show, data[r, first:last])) + "\n" for r in range(rows)]
        out.append(between.join(lines))
    return "".join(out)
