"""What plain operators do when an argument is a quantised tensor.

``RULES`` maps the full name of an operator to a function of the array module and the operator's arguments; the
interpreter asks it before the plain entry. Operators that only move elements, or compare them, run on the integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpujit.ir.values import QTensor
from gpujit.ops.families.quantized.arithmetic import FIXED_SCALES, clamp_values, concatenate, element_by_element, plain
from gpujit.ops.families.quantized.qtensor import (
    LIMITS,
    STORED,
    centred,
    check_per_tensor,
    check_quantised,
    dequantize,
    quantize,
    requantize,
    round_clip,
    with_values,
)
from gpujit.support.errors import OpError

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}

# Elements keep their values; per-channel tensors are refused where dims move or shrink.
_MOVES = (
    "view", "reshape", "flatten.using_ints", "permute", "transpose.int", "t", "unsqueeze", "squeeze", "squeeze.dim",
    "squeeze.dims", "select.int", "slice.Tensor", "narrow", "expand", "chunk", "split.Tensor", "split_with_sizes",
    "split.sizes",
    "unbind.int", "index_select", "repeat", "flip", "roll", "channel_shuffle", "pixel_shuffle", "pixel_unshuffle",
    "unfold",
    "movedim.int", "movedim.intlist", "unflatten.int", "tile", "unsafe_chunk", "unsafe_split.Tensor", "numpy_T", "mT",
    "swapaxes", "swapdims", "moveaxis.int", "moveaxis.intlist", "upsample_nearest1d", "upsample_nearest1d.vec",
    "upsample_nearest2d", "upsample_nearest2d.vec", "upsample_nearest3d", "upsample_nearest3d.vec", "as_strided",
    "max_pool1d", "max_pool2d", "max_pool3d", "index.Tensor", "gather", "diagonal", "reflection_pad1d",
    "reflection_pad2d",
    "replication_pad1d", "replication_pad2d", "view_as", "reshape_as", "expand_as", "_reshape_alias",
)  # fmt: skip
# Nothing moves, so any scheme will do.
_KEEPS = ("contiguous", "clone", "detach", "alias")
# Already where they are asked to be: quantised tensors live on the CPU.
_SAME = ("cpu", "to.device", "to.prim_Device", "detach_", "resolve_conj", "resolve_neg")


def _rewrap(x: QTensor, y: Any) -> Any:
    if isinstance(y, (list, tuple)):
        return type(y)(with_values(x, v) for v in y)
    return with_values(x, y)


def _on_integers(name: str, any_scheme: bool) -> Rule:
    def rule(xp: Any, x: Any, *args: Any) -> Any:
        """The operator's result on the integers, under the same scale."""
        check_quantised(name, self=x)
        if not any_scheme:
            check_per_tensor(name, x)
        values = tuple(a.values if type(a) is QTensor else a for a in args)
        return _rewrap(x, plain(name, xp, x.values, *values))

    return rule


def _same(xp: Any, x: Any, *args: Any) -> Any:
    """The tensor itself."""
    return x


for _name in _MOVES:
    RULES[f"aten::{_name}"] = _on_integers(f"aten::{_name}", False)
for _name in _KEEPS:
    RULES[f"aten::{_name}"] = _on_integers(f"aten::{_name}", True)
RULES["prim::data"] = _on_integers("prim::data", True)
for _name in _SAME:
    RULES[f"aten::{_name}"] = _same


def _averages(name: str) -> Rule:
    def rule(xp: Any, x: Any, *args: Any) -> QTensor:
        """The mean of integers, rounded to the nearest even one, under the same scale."""
        check_quantised(name, self=x)
        check_per_tensor(name, x)
        y = xp.array(plain(name, xp, centred(x.values, x.zero_point), *args))
        low, high = LIMITS[x.dtype]
        return with_values(x, round_clip(xp, y, x.zero_point, low, high, STORED[x.dtype]))

    return rule


for _name in ("avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
 "adaptive_avg_pool3d",
              "upsample_bilinear2d", "upsample_bilinear2d.vec"):  # fmt: skip
    RULES[f"aten::{_name}"] = _averages(f"aten::{_name}")


def _through_float(name: str, elementwise: bool) -> Rule:
    fixed = FIXED_SCALES.get(name)

    def rule(xp: Any, x: Any, *args: Any) -> QTensor:
        """The plain operator's result for the dequantised tensor, under the same scale or the one its range fixes."""
        check_quantised(name, self=x)
        check_per_tensor(name, x)
        rest = tuple(dequantize(xp, a) if type(a) is QTensor else a for a in args)
        scale, zero = fixed[x.dtype] if fixed else (x.scale, x.zero_point)
        if elementwise:
            return element_by_element(xp, x, scale, zero, lambda y: plain(name, xp, y, *rest))
        y = xp.asarray(plain(name, xp, dequantize(xp, x), *rest))
        return requantize(xp, y, scale, zero, x.dtype)

    return rule


for _name in ("sigmoid", "tanh", "hardsigmoid", "elu", "celu", "leaky_relu", "gelu", "hardswish", "threshold"):
    RULES[f"aten::{_name}"] = _through_float(f"aten::{_name}", True)
for _name in ("mean", "mean.dim", "prelu", "constant_pad_nd", "pad", "std", "std.dim"):
    RULES[f"aten::{_name}"] = _through_float(f"aten::{_name}", False)


def _into(rule: Rule) -> Rule:
    def write(xp: Any, x: Any, *args: Any) -> Any:
        """The rule's result, written into the tensor itself."""
        y = rule(xp, x, *args)
        x.values[...] = y.values
        x.scale, x.zero_point = y.scale, y.zero_point
        return x

    return write


def _relu(xp: Any, x: Any) -> QTensor:
    """Integers below the zero point raised to it."""
    check_quantised("aten::relu", self=x)
    check_per_tensor("aten::relu", x)
    return with_values(x, xp.maximum(x.values, x.values.dtype.type(x.zero_point)))


def _relu6(xp: Any, x: Any) -> QTensor:
    """The tensor between 0 and 6."""
    check_quantised("aten::relu6", self=x)
    return clamp_values(xp, "aten::relu6", x, 0.0, 6.0)


def _clamp(xp: Any, x: Any, low: Any, high: Any) -> QTensor:
    """The tensor between two bounds."""
    check_quantised("aten::clamp", self=x)
    return clamp_values(xp, "aten::clamp", x, low, high)


def _cat(xp: Any, tensors: Any, dim: int) -> QTensor:
    """Tensors one after the other under the first one's scale."""
    return concatenate(xp, "aten::cat", tensors, dim, None, None, False, False)


def _stack(xp: Any, tensors: Any, dim: int) -> QTensor:
    """Tensors along a new dim under the first one's scale."""
    return concatenate(xp, "aten::stack", tensors, dim, None, None, False, True)


def _copy(xp: Any, x: Any, source: Any, non_blocking: bool) -> Any:
    """``x``, overwritten by another tensor: as it is when quantised alike, else by the numbers it stands for."""
    check_quantised("aten::copy_", self=x)
    if type(source) is QTensor:
        x.values[...] = source.values
        x.scale, x.zero_point, x.axis, x.dtype = source.scale, source.zero_point, source.axis, source.dtype
    else:
        check_per_tensor("aten::copy_", x)
        x.values[...] = quantize(xp, source, x.scale, x.zero_point, x.dtype).values
    return x


def _dtype_refused(xp: Any, x: Any, *args: Any) -> Any:
    """Nothing. Raises OpError: only dequantize leads to another dtype."""
    raise OpError("aten::to: a quantised tensor cannot be cast; call dequantize first")


def _largest(xp: Any, x: Any) -> QTensor:
    """The largest element."""
    return with_values(x, xp.asarray(x.values.max()))


def _smallest(xp: Any, x: Any) -> QTensor:
    """The smallest element."""
    return with_values(x, xp.asarray(x.values.min()))


RULES.update({
    "aten::relu": _relu,
    "aten::relu_": _into(_relu),
    "aten::relu6": _relu6,
    "aten::relu6_": _into(_relu6),
    "aten::hardtanh": _clamp,
    "aten::hardtanh_": _into(_clamp),
    "aten::clamp": _clamp,
    "aten::clamp_": _into(_clamp),
    "aten::leaky_relu_": _into(RULES["aten::leaky_relu"]),
    "aten::elu_": _into(RULES["aten::elu"]),
    "aten::cat": _cat,
    "aten::concat": _cat,
    "aten::stack": _stack,
    "aten::copy_": _copy,
    "aten::to.dtype": _dtype_refused,
    "aten::max": _largest,
    "aten::min": _smallest,
})  # fmt: skip
