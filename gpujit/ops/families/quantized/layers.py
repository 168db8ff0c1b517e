"""Linear and convolution layers on quantised tensors, and their packed parameters.

Sums of products of 8-bit integers are computed on floats, exactly: in float32 where no sum can reach 2**24, else in
float64. Only the step back to 8 bits rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np

from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.values import Array, QTensor
from gpujit.ops.families.layers.convolve import convolve
from gpujit.ops.families.layers.convolve_transposed import convolve_transposed
from gpujit.ops.families.quantized.qtensor import (
    LIMITS,
    QUINT8,
    STORED,
    centred,
    channel_shape,
    check_per_tensor,
    check_quantised,
    choose_parameters,
    quantize_values,
    round_clip,
)
from gpujit.ops.registry import library, prim
from gpujit.ops.rules.quantised import packed_conv_type, packed_linear_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

_EXACT = 1 << 24
_LINEAR = "__torch__.torch.classes.quantized.LinearPackedParamsBase"


class _Weight:
    """What the kernels need of a quantised weight, worked out once."""

    weight: Any

    @cached_property
    def matrix(self) -> Array:
        """The weight's integers less their zero points, in float32."""
        w = self.weight
        zero = w.zero_point if w.axis is None else w.zero_point.astype(FLOAT32).reshape(channel_shape(w))
        return centred(w.values, zero)

    @cached_property
    def wide(self) -> Array:
        """The same in float64."""
        return self.matrix.astype("float64")

    @cached_property
    def reach(self) -> float:
        """A bound on the sum of any output's weights without their signs."""
        m = self.matrix
        return float(abs(m).reshape(m.shape[0], -1).sum(axis=1).max()) if m.size else 0.0

    @cached_property
    def scales(self) -> Any:
        """One float32 scale, or one for each output channel."""
        w = self.weight
        return np.float32(w.scale) if w.axis is None else w.scale.astype(FLOAT32)


@dataclass(eq=False)
class LinearPackedParams(_Weight):
    """Weight ``[N, K]`` (quantised, or floats that were rounded to half precision) and bias of a linear layer."""

    weight: Any
    bias: Array | None = None

    # What programs call on such objects.
    script_methods: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "unpack": lambda p: (p.weight, p.bias), "bias": lambda p: p.bias,
    }  # fmt: skip

    @property
    def state(self) -> tuple[Any, Array | None]:
        """What an archive stores."""
        return self.weight, self.bias


@dataclass(eq=False)
class ConvPackedParams(_Weight):
    """Weight, bias and numbers of a convolution; one over one dim is stored as one over two, the first of size 1."""

    weight: QTensor
    bias: Array | None
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    output_padding: tuple[int, ...] = ()
    transpose: bool = False

    script_methods: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "unpack": lambda p: (p.weight, p.bias), "weight": lambda p: p.weight, "bias": lambda p: p.bias,
        "stride": lambda p: list(p.stride), "padding": lambda p: list(p.padding),
        "dilation": lambda p: list(p.dilation), "groups": lambda p: p.groups, "transpose": lambda p: p.transpose,
        "output_padding": lambda p: list(p.output_padding or (0,) * len(p.stride)),
    }  # fmt: skip

    @property
    def state(self) -> tuple[Any, ...]:
        """What an archive stores: version, numbers and weight, bias."""
        rank = len(self.stride)
        extra = self.output_padding or (0,) * rank
        numbers = [rank, *self.stride, *self.padding, *self.dilation, *extra, self.groups, int(self.transpose)]
        return "2", [np.array(numbers, np.int16), self.weight], [self.bias]


# ------------------------------------------------------------------------------------------------- linear


def _check_linear(op: str, x: Any, p: Any, quantised: bool) -> None:
    if not isinstance(p, LinearPackedParams) or (quantised and type(p.weight) is not QTensor):
        raise OpError(f"{op}: W_prepack must be packed parameters of a {'quantised ' if quantised else ''}linear layer")
    shape = x.shape
    if not shape or shape[-1] != p.weight.shape[1]:
        raise ShapeError(f"{op}: input of shape {tuple(shape)} does not fit a weight of shape {tuple(p.weight.shape)}")


def _sums(x: Array, p: LinearPackedParams, largest: int) -> Array:
    """Exact sums of products ``[rows, N]`` of centred integers, rounded to float32 at the end."""
    if p.reach * largest < _EXACT:
        return x.dot(p.matrix.T)
    return x.astype("float64").dot(p.wide.T).astype(FLOAT32)


def _largest(code: int, zero_point: int) -> int:
    low, high = LIMITS[code]
    return max(zero_point - low, high - zero_point)


def requantize(
    xp: Any,
    sums: Array,
    bias: Array | None,
    input_scale: float,
    weight_scale: Any,
    scale: float,
    zero: int,
    code: int,
    relu: bool,
) -> Array:
    """Sums of products as integers under the output's scale; per-channel scales broadcast over ``sums``."""
    product = np.float32(input_scale) * weight_scale
    if bias is not None:
        sums += bias / product
    sums *= product / np.float32(scale)
    low, high = LIMITS[code]
    return round_clip(xp, sums, zero, zero if relu else low, high, STORED[code])


def _linear(xp: Any, op: str, x: Any, p: Any, scale: float, zero_point: int, relu: bool) -> QTensor:
    check_quantised(op, X=x)
    check_per_tensor(op, x)
    _check_linear(op, x, p, True)
    shape = x.values.shape
    rows = centred(x.values, x.zero_point).reshape(prod(shape[:-1]), shape[-1])
    sums = _sums(rows, p, _largest(x.dtype, x.zero_point))
    values = requantize(xp, sums, p.bias, x.scale, p.scales, scale, zero_point, x.dtype, relu)
    return QTensor(values.reshape((*shape[:-1], sums.shape[1])), x.dtype, scale, zero_point)


def dynamic_linear(xp: Any, op: str, x: Array, p: Any, reduce_range: bool, relu: bool = False) -> Array:
    """A float32 input quantised on the fly by its own range, times a quantised weight, in float32."""
    if getattr(x, "dtype", None) != FLOAT32:
        raise DTypeError(f"{op}: X must be float32, it is {getattr(x, 'dtype', type(x).__name__)}")
    _check_linear(op, x, p, True)
    shape = x.shape
    rows = x.reshape(prod(shape[:-1]), shape[-1])
    if rows.size:
        scale, zero = choose_parameters(float(rows.min()), float(rows.max()), 0, 255, reduce_range)
        sums = _sums(centred(quantize_values(xp, rows, scale, zero, QUINT8), zero), p, max(zero, 255 - zero))
        sums *= np.float32(scale) * p.scales
    else:
        sums = xp.zeros((rows.shape[0], p.weight.shape[0]), FLOAT32)
    if p.bias is not None:
        sums += p.bias
    if relu:
        xp.maximum(sums, 0, out=sums)
    return sums.reshape((*shape[:-1], sums.shape[1]))


def half_linear(xp: Any, op: str, x: Array, p: Any, relu: bool = False) -> Array:
    """A float32 input times a weight of half precision, in float32."""
    _check_linear(op, x, p, False)
    y = x.reshape(prod(x.shape[:-1]), x.shape[-1]).dot(p.weight.astype(FLOAT32, copy=False).T)
    if p.bias is not None:
        y += p.bias
    if relu:
        xp.maximum(y, 0, out=y)
    return y.reshape((*x.shape[:-1], y.shape[1]))


def _declare_linear(relu: bool) -> None:
    name = "quantized::linear_relu" if relu else "quantized::linear"

    @library(
        f"{name}(Tensor X, {_LINEAR} W_prepack, float Y_scale_i, int Y_zero_point_i) -> Tensor Y",
        half="native",
        type_rule=packed_linear_type,
    )
    def static(xp: Any, x: Any, p: Any, scale: float, zero_point: int) -> QTensor:
        """``X @ W.T + b`` (and relu), quantised by the scale and zero point given."""
        return _linear(xp, name, x, p, scale, zero_point, relu)

    @library(
        f"{name}_dynamic(Tensor X, {_LINEAR} W_prepack, bool reduce_range=False) -> Tensor Y",
        half="native",
        type_rule=packed_linear_type,
    )
    def dynamic(xp: Any, x: Array, p: Any, reduce_range: bool) -> Array:
        """``X @ W.T + b`` (and relu) in float32; X is quantised by its own range."""
        return dynamic_linear(xp, f"{name}_dynamic", x, p, reduce_range, relu)

    @library(
        f"{name}_dynamic_fp16(Tensor X, {_LINEAR} W_prepack) -> Tensor Y", half="native", type_rule=packed_linear_type
    )
    def half(xp: Any, x: Array, p: Any) -> Array:
        """``X @ W.T + b`` (and relu) in float32, for a weight of half precision."""
        return half_linear(xp, f"{name}_dynamic_fp16", x, p, relu)


_declare_linear(False)
_declare_linear(True)


@library(
    f"quantized::linear_leaky_relu(Tensor X, {_LINEAR} W_prepack, float Y_scale_i, int Y_zero_point_i, "
    "float negative_slope) -> Tensor Y",
    half="native",
    type_rule=packed_linear_type,
)
def linear_leaky_relu(xp: Any, x: Any, p: Any, scale: float, zero_point: int, negative_slope: float) -> QTensor:
    """A quantised linear layer followed by leaky relu; nothing is rounded in between."""
    y = _linear_float(xp, "quantized::linear_leaky_relu", x, p)
    y = xp.where(y > 0, y, y * np.float32(negative_slope))
    return QTensor(quantize_values(xp, y, scale, zero_point, x.dtype), x.dtype, scale, zero_point)


@library(
    f"quantized::linear_tanh(Tensor X, {_LINEAR} W_prepack, float Y_scale_i, int Y_zero_point_i) -> Tensor Y",
    half="native",
    type_rule=packed_linear_type,
)
def linear_tanh(xp: Any, x: Any, p: Any, scale: float, zero_point: int) -> QTensor:
    """A quantised linear layer followed by tanh; nothing is rounded in between."""
    y = xp.tanh(_linear_float(xp, "quantized::linear_tanh", x, p))
    return QTensor(quantize_values(xp, y, scale, zero_point, x.dtype), x.dtype, scale, zero_point)


def _linear_float(xp: Any, op: str, x: Any, p: Any) -> Array:
    check_quantised(op, X=x)
    check_per_tensor(op, x)
    _check_linear(op, x, p, True)
    shape = x.values.shape
    rows = centred(x.values, x.zero_point).reshape(prod(shape[:-1]), shape[-1])
    y = _sums(rows, p, _largest(x.dtype, x.zero_point))
    y *= np.float32(x.scale) * p.scales
    if p.bias is not None:
        y += p.bias
    return y.reshape((*shape[:-1], y.shape[1]))


@library(f"quantized::linear_prepack(Tensor W, Tensor? B=None) -> {_LINEAR} W_prepack", half="native")
def linear_prepack(xp: Any, weight: Any, bias: Array | None) -> LinearPackedParams:
    """Packed parameters of a quantised linear layer."""
    check_quantised("quantized::linear_prepack", W=weight)
    if weight.values.ndim != 2:
        raise ShapeError(f"quantized::linear_prepack: W must be a matrix, its shape is {weight.shape}")
    return LinearPackedParams(weight, bias)


@library(f"quantized::linear_prepack_fp16(Tensor W, Tensor? B=None) -> {_LINEAR} W_prepack", half="native")
def linear_prepack_fp16(xp: Any, weight: Array, bias: Array | None) -> LinearPackedParams:
    """Packed parameters of a linear layer whose weight is rounded to half precision."""
    if getattr(weight, "dtype", None) != FLOAT32 or weight.ndim != 2:
        raise DTypeError("quantized::linear_prepack_fp16: W must be a float32 matrix")
    return LinearPackedParams(round_to_half(weight), bias)


def round_to_half(weight: Array) -> Array:
    """``weight`` in float32, with the values of half precision; what is too large becomes the largest one."""
    return weight.clip(-65504, 65504).astype("float16").astype(FLOAT32)


def _declare_linear_unpack(name: str) -> None:
    @prim(f"quantized::{name}({_LINEAR} W_prepack) -> (Tensor W_origin, Tensor? B_origin)")
    def unpack(p: Any) -> tuple[Any, Array | None]:
        """Weight and bias of packed parameters."""
        if not isinstance(p, LinearPackedParams):
            raise OpError(f"quantized::{name}: W_prepack must be packed parameters of a linear layer")
        return p.weight, p.bias


_declare_linear_unpack("linear_unpack")
_declare_linear_unpack("linear_unpack_fp16")


# ------------------------------------------------------------------------------------------------- convolution


def _conv_sums(xp: Any, op: str, x: Array, largest: int, p: ConvPackedParams) -> Array:
    rank = len(p.stride)
    exact = p.reach * largest < _EXACT and not p.transpose
    w = p.matrix if exact else p.wide
    x = x if exact else x.astype("float64")
    if p.transpose:
        extra = p.output_padding or (0,) * rank
        y = convolve_transposed(xp, op, x, w, None, p.stride, p.padding, extra, p.groups, p.dilation, rank)
    else:
        y = convolve(xp, op, x, w, None, p.stride, p.padding, p.dilation, p.groups, rank)
    return y.astype(FLOAT32, copy=False)


def _by_channel(values: Any, ndim: int, rank: int) -> Any:
    """One number, or one for each channel, shaped to broadcast over the output."""
    if getattr(values, "ndim", 0) == 0:
        return values
    return values.reshape((1,) * (ndim - rank - 1) + (-1,) + (1,) * rank)


def _check_conv(op: str, p: Any, rank: int, transpose: bool) -> None:
    if not isinstance(p, ConvPackedParams) or len(p.stride) != max(rank, 2):
        raise OpError(f"{op}: packed_weight must be packed parameters of a convolution over {rank} dims")
    if p.transpose != transpose:
        raise OpError(f"{op}: packed_weight belongs to a {'transposed' if p.transpose else 'plain'} convolution")


def _conv(xp: Any, op: str, x: Any, p: Any, scale: float, zero: int, rank: int, relu: bool, transpose: bool) -> QTensor:
    check_quantised(op, qx=x)
    check_per_tensor(op, x)
    _check_conv(op, p, rank, transpose)
    values = x.values
    if rank == 1:
        # One dim is kept as two, the first of size 1.
        values = values[..., None, :]
    sums = _conv_sums(xp, op, centred(values, x.zero_point), _largest(x.dtype, x.zero_point), p)
    dims = len(p.stride)
    bias = None if p.bias is None else _by_channel(p.bias, sums.ndim, dims)
    scales = _by_channel(p.scales, sums.ndim, dims)
    y = requantize(xp, sums, bias, x.scale, scales, scale, zero, x.dtype, relu)
    return QTensor(y[..., 0, :] if rank == 1 else y, x.dtype, scale, zero)


def _conv_dynamic(xp: Any, op: str, x: Array, p: Any, reduce_range: bool, rank: int, transpose: bool) -> Array:
    _check_conv(op, p, rank, transpose)
    if getattr(x, "dtype", None) != FLOAT32 or not x.size:
        raise DTypeError(f"{op}: the input must be a float32 tensor that is not empty")
    scale, zero = choose_parameters(float(x.min()), float(x.max()), 0, 255, reduce_range)
    values = centred(quantize_values(xp, x, scale, zero, QUINT8), zero)
    if rank == 1:
        values = values[..., None, :]
    y = _conv_sums(xp, op, values, max(zero, 255 - zero), p)
    dims = len(p.stride)
    y *= np.float32(scale) * _by_channel(p.scales, y.ndim, dims)
    if p.bias is not None:
        y += _by_channel(p.bias, y.ndim, dims)
    return y[..., 0, :] if rank == 1 else y


def _pack(
    op: str, weight: Any, bias: Array | None, stride: Sequence[int], padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int], groups: int, rank: int, transpose: bool,
) -> ConvPackedParams:  # fmt: skip
    check_quantised(op, weight=weight)
    if weight.values.ndim != rank + 2:
        raise ShapeError(f"{op}: weight must have {rank + 2} dims, its shape is {weight.shape}")
    for name, numbers in (("stride", stride), ("padding", padding), ("dilation", dilation)):
        if len(numbers) != rank:
            raise ShapeError(f"{op}: {name} must hold {rank} numbers, found {list(numbers)}")
    one, none = ((1,), (0,)) if rank == 1 else ((), ())
    if rank == 1:
        w = weight.values
        weight = QTensor(w[:, :, None], weight.dtype, weight.scale, weight.zero_point, weight.axis)
    return ConvPackedParams(
        weight, bias, one + tuple(stride), none + tuple(padding), one + tuple(dilation), groups,
        none + tuple(output_padding) if output_padding else (), transpose,
    )  # fmt: skip


def _unpack_conv(op: str, p: Any, rank: int) -> tuple[QTensor, Array | None]:
    if not isinstance(p, ConvPackedParams):
        raise OpError(f"{op}: packed_weights must be packed parameters of a convolution")
    w = p.weight
    if rank == 1:
        w = QTensor(w.values[:, :, 0], w.dtype, w.scale, w.zero_point, w.axis)
    return w, p.bias


def _declare_conv(rank: int) -> None:
    base = f"__torch__.torch.classes.quantized.Conv{max(rank, 2)}dPackedParamsBase"
    name = f"quantized::conv{rank}d"
    tail = "float output_scale, int output_zero_point) -> Tensor"
    dot = "" if rank == 1 else ".new"

    def declare_run(full: str, relu: bool) -> None:
        @library(f"{full}{dot}(Tensor qx, {base} packed_weight, {tail}", half="native", type_rule=packed_conv_type)
        def run(xp: Any, x: Any, p: Any, scale: float, zero_point: int) -> QTensor:
            """The convolution (and relu) of a quantised tensor, quantised by the scale and zero point given."""
            return _conv(xp, full, x, p, scale, zero_point, rank, relu, False)

        if rank > 1:

            @library(
                f"{full}(Tensor qx, {base} weight, int[] stride, int[] padding, int[] dilation, int groups, {tail}",
                half="native",
                type_rule=packed_conv_type,
            )
            def run_old(
                xp: Any,
                x: Any,
                p: Any,
                stride: Any,
                padding: Any,
                dilation: Any,
                groups: int,
                scale: float,
                zero_point: int,
            ) -> QTensor:
                """The same; the numbers that count are the packed ones."""
                return _conv(xp, full, x, p, scale, zero_point, rank, relu, False)

    declare_run(name, False)
    declare_run(f"{name}_relu", True)

    @library(
        f"{name}_dynamic(Tensor qx, {base} packed_weight, bool reduce_range=False) -> Tensor",
        half="native",
        type_rule=packed_conv_type,
    )
    def dynamic(xp: Any, x: Array, p: Any, reduce_range: bool) -> Array:
        """The convolution of a float32 tensor that is quantised by its own range, in float32."""
        return _conv_dynamic(xp, f"{name}_dynamic", x, p, reduce_range, rank, False)

    numbers = "int[] stride, int[] padding, int[] dilation, int groups"

    def pack(
        xp: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> ConvPackedParams:
        """Packed parameters of a convolution."""
        return _pack(f"{name}_prepack", weight, bias, stride, padding, (), dilation, groups, rank, False)

    def unpack(p: Any) -> tuple[QTensor, Array | None]:
        """Weight and bias of packed parameters."""
        return _unpack_conv(f"{name}_unpack", p, rank)

    library(f"{name}_prepack(Tensor weight, Tensor? bias, {numbers}) -> {base}", half="native")(pack)
    returned = "(Tensor unpacked_weights, Tensor? B_origin)"
    prim(f"{name}_unpack({base} packed_weights) -> {returned}")(unpack)
    if rank == 2:
        library(f"quantized::conv_prepack(Tensor weight, Tensor? bias, {numbers}) -> {base}", half="native")(pack)
        prim(f"quantized::conv_unpack({base} packed_weights) -> {returned}")(unpack)

    turned = f"quantized::conv_transpose{rank}d"

    @library(f"{turned}(Tensor qx, {base} packed_weight, {tail}", half="native", type_rule=packed_conv_type)
    def transposed(xp: Any, x: Any, p: Any, scale: float, zero_point: int) -> QTensor:
        """The transposed convolution of a quantised tensor, quantised by the scale and zero point given."""
        return _conv(xp, turned, x, p, scale, zero_point, rank, False, True)

    @library(
        f"{turned}_dynamic(Tensor qx, {base} packed_weight, bool reduce_range=False) -> Tensor",
        half="native",
        type_rule=packed_conv_type,
    )
    def transposed_dynamic(xp: Any, x: Array, p: Any, reduce_range: bool) -> Array:
        """The transposed convolution of a float32 tensor that is quantised by its own range, in float32."""
        return _conv_dynamic(xp, f"{turned}_dynamic", x, p, reduce_range, rank, True)

    @library(
        f"{turned}_prepack(Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] output_padding, "
        "int[] dilation, "
        f"int groups) -> {base}",
        half="native",
    )
    def transposed_pack(
        xp: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int
    ) -> ConvPackedParams:
        """Packed parameters of a transposed convolution."""
        return _pack(f"{turned}_prepack", weight, bias, stride, padding, output_padding, dilation, groups, rank, True)

    @prim(f"{turned}_unpack({base} packed_weights) -> {returned}")
    def transposed_unpack(p: Any) -> tuple[QTensor, Array | None]:
        """Weight and bias of packed parameters."""
        return _unpack_conv(f"{turned}_unpack", p, rank)

    if rank > 1:
        for prefix in (name, turned):
            for part in ("stride", "padding", "output_padding", "dilation"):
                prim(f"{prefix}_{part}({base} packed_weights) -> int[]")(_numbers_of(part))
            prim(f"{prefix}_groups({base} packed_weights) -> int")(lambda p: p.groups)
            prim(f"{prefix}_transpose({base} packed_weights) -> int")(lambda p: int(p.transpose))


def _numbers_of(part: str) -> Any:
    def read(p: ConvPackedParams) -> list[int]:
        """One of the packed parameters' lists of numbers."""
        return list(getattr(p, part) or (0,) * len(p.stride))

    return read


for _rank in (1, 2, 3):
    _declare_conv(_rank)
