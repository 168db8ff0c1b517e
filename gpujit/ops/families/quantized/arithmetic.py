"""Arithmetic, activations and normalisation on quantised tensors.

Where the result's integers follow from the operands' integers they are computed so; elsewhere the operands are
dequantised, the plain operator runs, and its result is quantised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.values import Array, QTensor
from gpujit.ops.families.quantized.qtensor import (
    LIMITS,
    QINT8,
    QINT32,
    QUINT8,
    STORED,
    centred,
    check_per_tensor,
    check_quantised,
    dequantize,
    dequantize_values,
    limits,
    quantize_values,
    requantize,
    requantize_values,
    round_clip,
    with_values,
)
from gpujit.ops.registry import by_full_name, library
from gpujit.ops.rules.common import same_type, second_type
from gpujit.ops.rules.quantised import quantised_cat_type, quantised_matmul_type, quantised_pair_type
from gpujit.ops.rules.windows import pooled_type
from gpujit.support.errors import OpError, ShapeError


def plain(name: str, xp: Any, *args: Any) -> Any:
    """The result of the entry ``name`` for plain arrays. Raises OpError when the table lacks it."""
    op = by_full_name(name)
    if op is None:
        raise OpError(f"{name}: the operator is not in the table")
    return op.kernel(xp)(*args)


def element_by_element(xp: Any, x: QTensor, scale: float, zero_point: int, f: Callable[[Array], Array]) -> QTensor:
    """A function of each element, quantised; for 8-bit tensors of some size it is computed once for each integer."""
    if x.axis is not None or x.dtype == QINT32 or x.values.size < 1024:
        return requantize(xp, f(dequantize(xp, x)), scale, zero_point, x.dtype)
    integers = xp.arange(256, dtype="uint8").view(x.values.dtype)
    table = requantize_values(xp, f(dequantize_values(integers, x.scale, x.zero_point)), scale, zero_point, x.dtype)
    if xp is np:
        # An indexed lookup would first widen every index; this maps bytes to bytes.
        mapped = bytearray(x.values.tobytes()).translate(table.tobytes())
        return QTensor(np.frombuffer(mapped, table.dtype).reshape(x.values.shape), x.dtype, scale, zero_point)
    return QTensor(table[x.values.view("uint8")], x.dtype, scale, zero_point)


def _operands(op: str, a: Any, b: Any) -> None:
    check_quantised(op, qa=a, qb=b)
    check_per_tensor(op, a)
    check_per_tensor(op, b)
    if a.dtype != b.dtype:
        raise OpError(f"{op}: qa and qb must have one quantised dtype, found codes {a.dtype} and {b.dtype}")


def _add(xp: Any, op: str, a: Any, b: Any, scale: float, zero_point: int, relu: bool) -> QTensor:
    _operands(op, a, b)
    try:
        y = dequantize(xp, a) + dequantize(xp, b)
    except ValueError:
        raise ShapeError(f"{op}: shapes {a.shape} and {b.shape} do not broadcast") from None
    if relu:
        xp.maximum(y, 0, out=y)
    return requantize(xp, y, scale, zero_point, a.dtype)


def _mul(xp: Any, op: str, a: Any, b: Any, scale: float, zero_point: int, relu: bool) -> QTensor:
    _operands(op, a, b)
    try:
        y = centred(a.values, a.zero_point) * centred(b.values, b.zero_point)
    except ValueError:
        raise ShapeError(f"{op}: shapes {a.shape} and {b.shape} do not broadcast") from None
    if relu:
        xp.maximum(y, 0, out=y)
    # The product of the scales is rounded before it meets the integers.
    y *= np.float32(a.scale) * np.float32(b.scale) * (np.float32(1) / np.float32(scale))
    low, high = LIMITS[a.dtype]
    return QTensor(round_clip(xp, y, zero_point, low, high, STORED[a.dtype]), a.dtype, scale, zero_point)


def _relu_values(xp: Any, x: QTensor) -> QTensor:
    return with_values(x, xp.maximum(x.values, x.values.dtype.type(x.zero_point)))


def _add_number(xp: Any, op: str, x: Any, number: Any, relu: bool) -> QTensor:
    """The integers stay where the zero point can move instead; otherwise the scale grows."""
    check_quantised(op, qa=x)
    check_per_tensor(op, x)
    low, high = limits(op, x.dtype)
    step = round(float(number) / x.scale)
    zero = x.zero_point - step
    if low <= zero <= high:
        y = QTensor(x.values.copy(), x.dtype, x.scale, zero)
        return _relu_values(xp, y) if relu else y
    real = dequantize(xp, x) + np.float32(step * x.scale)
    if relu:
        xp.maximum(real, 0, out=real)
    span = (high - zero) if zero < low else (zero - low)
    return requantize(xp, real, span / (high - low) * x.scale, low if zero < low else high, x.dtype)


def _mul_number(xp: Any, op: str, x: Any, number: Any, relu: bool) -> QTensor:
    """A positive factor scales the scale; a negative one also turns the integers round."""
    check_quantised(op, qa=x)
    check_per_tensor(op, x)
    low, high = limits(op, x.dtype)
    factor = float(number)
    if factor > 0:
        y = QTensor(x.values.copy(), x.dtype, x.scale * factor, x.zero_point)
    elif factor == 0:
        y = QTensor(xp.zeros_like(x.values), x.dtype, 1.0, 0)
    else:
        turned = (high + low - x.values.astype("int64")).astype(x.values.dtype)
        y = QTensor(turned, x.dtype, -factor * x.scale, high - (x.zero_point - low))
    return _relu_values(xp, y) if relu else y


def _declare_binary(base: str, both: Callable[..., QTensor], number: Callable[..., QTensor], relu: bool) -> None:
    name = f"quantized::{base}_relu" if relu else f"quantized::{base}"

    @library(
        f"{name}(Tensor qa, Tensor qb, float scale, int zero_point) -> Tensor qc",
        half="native",
        type_rule=quantised_pair_type,
    )
    def tensors(xp: Any, a: Any, b: Any, scale: float, zero_point: int) -> QTensor:
        """The operation on two quantised tensors, quantised by the scale and zero point given."""
        return both(xp, name, a, b, scale, zero_point, relu)

    def into(xp: Any, a: Any, b: Any, out: Any) -> QTensor:
        """The operation on two quantised tensors, written into ``out`` under its own scale."""
        check_quantised(name, out=out)
        y = both(xp, name, a, b, out.scale, out.zero_point, relu)
        if y.shape != out.shape:
            raise ShapeError(f"{name}: out has shape {out.shape}, the result {y.shape}")
        out.values[...] = y.values
        return out  # type: ignore[no-any-return]

    library(f"{name}.out(Tensor qa, Tensor qb, Tensor(a!) out) -> Tensor(a!) out", half="native")(into)

    def by_number(xp: Any, x: Any, value: Any) -> QTensor:
        """The operation on a quantised tensor and a number; the result's scale follows from both."""
        return number(xp, name, x, value, relu)

    def number_first(xp: Any, value: Any, x: Any) -> QTensor:
        """The same, with the number first."""
        return number(xp, name, x, value, relu)

    def by_element(xp: Any, x: Any, value: Array) -> QTensor:
        """The operation on a quantised tensor and a tensor of one element."""
        return number(xp, name, x, value.item(), relu)

    library(f"{name}.Scalar(Tensor qa, Scalar b) -> Tensor qc", half="native", type_rule=same_type)(by_number)
    library(f"{name}.Scalar2(Scalar b, Tensor qa) -> Tensor qc", half="native", type_rule=second_type)(number_first)
    old = f"quantized::{base}_scalar_relu" if relu else f"quantized::{base}_scalar"
    library(f"{old}(Tensor qa, Scalar b) -> Tensor qc", half="native", type_rule=same_type)(by_number)
    library(f"{old}.Tensor(Tensor qa, Tensor b) -> Tensor qc", half="native", type_rule=same_type)(by_element)


for _relu in (False, True):
    _declare_binary("add", _add, _add_number, _relu)
    _declare_binary("mul", _mul, _mul_number, _relu)


def concatenate(
    xp: Any,
    op: str,
    tensors: Sequence[Any],
    dim: int,
    scale: float | None,
    zero_point: int | None,
    relu: bool,
    new_dim: bool,
) -> QTensor:
    """Quantised tensors one after the other along ``dim``, all under one scale (the first one's by default)."""
    if not tensors:
        raise OpError(f"{op}: needs at least one tensor")
    for x in tensors:
        check_quantised(op, qx=x)
        check_per_tensor(op, x)
    first = tensors[0]
    scale = first.scale if scale is None else scale
    zero = first.zero_point if zero_point is None else zero_point
    parts = []
    for x in tensors:
        if x.scale == scale and x.zero_point == zero and x.dtype == first.dtype:
            parts.append(x.values)
        else:
            parts.append(requantize_values(xp, dequantize(xp, x), scale, zero, first.dtype))
    try:
        y = QTensor((xp.stack if new_dim else xp.concatenate)(parts, axis=dim), first.dtype, scale, zero)
    except ValueError:
        raise ShapeError(f"{op}: shapes {[tuple(x.shape) for x in tensors]} cannot be joined along dim {dim}") from None
    return _relu_values(xp, y) if relu else y


def _declare_cat(name: str, relu: bool) -> None:
    @library(
        f"quantized::{name}(Tensor[] qx, int dim, float? scale, int? zero_point) -> Tensor",
        half="native",
        type_rule=quantised_cat_type,
    )
    def cat(xp: Any, tensors: Sequence[Any], dim: int, scale: float | None, zero_point: int | None) -> QTensor:
        """Quantised tensors one after the other along ``dim``."""
        return concatenate(xp, f"quantized::{name}", tensors, dim, scale, zero_point, relu, False)


_declare_cat("cat", False)
_declare_cat("cat_relu", True)


@library(
    "quantized::matmul(Tensor qa, Tensor qb, float scale, int zero_point) -> Tensor qc",
    half="native",
    type_rule=quantised_matmul_type,
)
def quantized_matmul(xp: Any, a: Any, b: Any, scale: float, zero_point: int) -> QTensor:
    """The matrix product of two quantised tensors, quantised by the scale and zero point given."""
    _operands("quantized::matmul", a, b)
    y = plain("aten::matmul", xp, dequantize(xp, a), dequantize(xp, b))
    return requantize(xp, y, scale, zero_point, a.dtype)


# ------------------------------------------------------------------------------------------------- activations


def clamp_values(xp: Any, op: str, x: QTensor, low: Any, high: Any) -> QTensor:
    """The integers between those of ``low`` and ``high`` (None: no bound)."""
    check_per_tensor(op, x)
    y = x.values
    for bound, pick in ((low, xp.maximum), (high, xp.minimum)):
        if bound is not None:
            y = pick(y, quantize_values(xp, xp.asarray([bound], dtype=FLOAT32), x.scale, x.zero_point, x.dtype))
    return with_values(x, y.copy() if y is x.values else y)


@library("quantized::relu6(Tensor qx, bool inplace=False) -> Tensor", half="native", type_rule=same_type)
def relu6(xp: Any, x: Any, inplace: bool) -> QTensor:
    """The quantised tensor between 0 and 6; ``inplace`` writes it into the input."""
    check_quantised("quantized::relu6", qx=x)
    y = clamp_values(xp, "quantized::relu6", x, 0.0, 6.0)
    if inplace:
        x.values[...] = y.values
        return x  # type: ignore[no-any-return]
    return y


@library(
    "quantized::clamp(Tensor qx, Scalar? min=None, Scalar? max=None) -> Tensor qy", half="native", type_rule=same_type
)
def clamp(xp: Any, x: Any, low: Any, high: Any) -> QTensor:
    """The quantised tensor between two bounds."""
    check_quantised("quantized::clamp", qx=x)
    return clamp_values(xp, "quantized::clamp", x, low, high)


@library(
    "quantized::threshold(Tensor qx, Scalar threshold, Scalar value) -> Tensor qy", half="native", type_rule=same_type
)
def threshold(xp: Any, x: Any, bound: Any, value: Any) -> QTensor:
    """The quantised tensor with ``value`` where it is not above the threshold."""
    check_quantised("quantized::threshold", qx=x)
    real = dequantize(xp, x)
    y = xp.where(real > bound, real, np.float32(value))
    return requantize(xp, y, x.scale, x.zero_point, x.dtype)


@library(
    "quantized::leaky_relu(Tensor qx, Scalar negative_slope, bool inplace, float output_scale, int output_zero_point)"
    " -> Tensor",
    half="native",
    type_rule=same_type,
)
def leaky_relu(xp: Any, x: Any, negative_slope: Any, inplace: bool, scale: float, zero_point: int) -> QTensor:
    """Leaky relu, quantised by the scale and zero point given."""
    check_quantised("quantized::leaky_relu", qx=x)
    return element_by_element(xp, x, scale, zero_point, lambda y: xp.where(y > 0, y, y * np.float32(negative_slope)))


_OUT = "float output_scale, int output_zero_point"

# Operators that are the plain one between dequantising and quantising: the schema's arguments, the plain operator, and
# how its arguments follow from theirs.
_THROUGH_FLOAT: tuple[tuple[str, str, str, Callable[..., tuple[Any, ...]]], ...] = (
    ("sigmoid", f"Tensor qx, {_OUT}", "aten::sigmoid", lambda: ()),
    ("hardswish", f"Tensor input, {_OUT}", "aten::hardswish", lambda: ()),
    ("softmax", f"Tensor qx, int dim, {_OUT}", "aten::softmax.int", lambda dim: (dim, None)),
    (
        "elu",
        f"Tensor self, {_OUT}, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1",
        "aten::elu",
        lambda alpha, scale, input_scale: (alpha, scale, input_scale),
    ),
    ("celu", f"Tensor self, {_OUT}, Scalar alpha=1", "aten::celu", lambda alpha: (alpha,)),
    ("dropout", f"Tensor self, {_OUT}, Scalar p=0.5, bool training=False", "aten::dropout", lambda p, t: (float(p), t)),
    ("prelu", f"Tensor qx, Tensor weight, {_OUT}", "aten::prelu", lambda weight: (weight,)),
    (
        "layer_norm",
        f"Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps, {_OUT}",
        "aten::layer_norm",
        lambda shape, weight, bias, eps: (shape, weight, bias, eps, False),
    ),
    (
        "group_norm",
        f"Tensor input, int num_groups, Tensor? weight, Tensor? bias, float eps, {_OUT}",
        "aten::group_norm",
        lambda groups, weight, bias, eps: (groups, weight, bias, eps, False),
    ),
    (
        "instance_norm",
        f"Tensor input, Tensor? weight, Tensor? bias, float eps, {_OUT}",
        "aten::instance_norm",
        lambda weight, bias, eps: (weight, bias, None, None, True, 0.1, eps, False),
    ),
)


_ELEMENTWISE = ("sigmoid", "hardswish", "elu", "celu")


def _declare_through_float(name: str, arguments: str, target: str, adapt: Callable[..., tuple[Any, ...]]) -> None:
    op = f"quantized::{name}"
    at = [a.split()[1] for a in arguments.split(", ")].index("output_scale")

    @library(f"{op}({arguments}) -> Tensor", half="native", type_rule=same_type)
    def run(xp: Any, x: Any, *args: Any) -> QTensor:
        """The plain operator's result for the dequantised tensor, quantised by the scale and zero point given."""
        check_quantised(op, input=x)
        scale, zero_point = args[at - 1 : at + 1]
        rest = args[: at - 1] + args[at + 1 :]
        rest = tuple(dequantize(xp, a) if type(a) is QTensor else a for a in rest)
        if name in _ELEMENTWISE:
            return element_by_element(xp, x, scale, zero_point, lambda y: plain(target, xp, y, *adapt(*rest)))
        y = plain(target, xp, dequantize(xp, x), *adapt(*rest))
        return requantize(xp, y, scale, zero_point, x.dtype)


for _row in _THROUGH_FLOAT:
    _declare_through_float(*_row)


# ------------------------------------------------------------------------------------------------- batch norm, pooling


def _batch_norm(
    xp: Any,
    op: str,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Array,
    var: Array,
    eps: float,
    scale: float,
    zero: int,
    relu: bool,
) -> QTensor:
    check_quantised(op, qx=x)
    check_per_tensor(op, x)
    if x.values.ndim < 2 or mean.shape != (x.shape[1],) or var.shape != mean.shape:
        raise ShapeError(f"{op}: mean of shape {mean.shape} and var of shape {var.shape} do not fit input {x.shape}")
    factor = 1 / xp.sqrt(var + np.float32(eps))
    if weight is not None:
        factor = factor * weight
    shift = -mean * factor if bias is None else bias - mean * factor
    shape = (1, -1) + (1,) * (x.values.ndim - 2)
    y = centred(x.values, x.zero_point)
    y *= (factor * np.float32(x.scale / scale)).astype(FLOAT32).reshape(shape)
    y += (shift / np.float32(scale)).astype(FLOAT32).reshape(shape)
    low, high = LIMITS[x.dtype]
    return QTensor(round_clip(xp, y, zero, zero if relu else low, high, STORED[x.dtype]), x.dtype, scale, zero)


def _declare_batch_norm(op: str, head: str, relu: bool) -> None:
    @library(
        f"{op}(Tensor {head}, Tensor? weight, Tensor? bias, Tensor mean, Tensor var, float eps, {_OUT}) -> Tensor",
        half="native",
        type_rule=same_type,
    )
    def run(
        xp: Any, x: Any, weight: Any, bias: Any, mean: Array, var: Array, eps: float, scale: float, zero_point: int
    ) -> QTensor:
        """Batch normalisation by the statistics given (and relu), quantised by the scale and zero point given."""
        return _batch_norm(xp, op, x, weight, bias, mean, var, eps, scale, zero_point, relu)


for _rank in ("", "1d", "2d", "3d"):
    _declare_batch_norm(f"quantized::batch_norm{_rank}", "qx", False)
    _declare_batch_norm(f"quantized::batch_norm{_rank}_relu", "qx", True)
_declare_batch_norm("aten::quantized_batch_norm", "input", False)


def _declare_max_pool(text: str, target: str) -> None:
    name = text.partition("(")[0]

    @library(text, half="native", type_rule=pooled_type)
    def run(xp: Any, x: Any, *args: Any) -> QTensor:
        """The largest integer of each window, under the input's scale."""
        check_quantised(name, input=x)
        return with_values(x, plain(target, xp, x.values, *args))


for _rank in ("1", "2"):
    _declare_max_pool(
        f"quantized::max_pool{_rank}d(Tensor qx, int[] kernel_size, int[] stride, int[] padding, int[] dilation, "
        "bool ceil_mode) -> Tensor",
        f"aten::max_pool{_rank}d",
    )
for _rank, _zero, _one in (("1", "[0]", "[1]"), ("2", "0", "1"), ("3", "0", "1")):
    _declare_max_pool(
        f"aten::quantized_max_pool{_rank}d(Tensor self, int[{_rank}] kernel_size, int[{_rank}] stride=[], "
        f"int[{_rank}] padding={_zero}, int[{_rank}] dilation={_one}, bool ceil_mode=False) -> Tensor",
        f"aten::max_pool{_rank}d",
    )

# Results of these have a fixed range, so PyTorch fixes their scale: scale and zero point by dtype.
FIXED_SCALES: dict[str, dict[int, tuple[float, int]]] = {
    name: {QUINT8: (scale, zero), QINT8: (scale, zero - 128), QINT32: (scale * 2.0**-8, 0)}
    for name, scale, zero in (
        ("aten::sigmoid", 2.0**-8, 0),
        ("aten::hardsigmoid", 2.0**-8, 0),
        ("aten::tanh", 2.0**-7, 128),
    )
}
