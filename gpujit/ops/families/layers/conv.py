"""The operators of convolution: by rank, of any rank, by the names of single kernels."""

from __future__ import annotations

from typing import Any

from gpujit.ir.values import Array
from gpujit.ops.families.layers.convolve import convolve
from gpujit.ops.families.layers.convolve_transposed import convolve_transposed
from gpujit.ops.into import OfBody, by_parts, fits
from gpujit.ops.registry import library
from gpujit.ops.rules.windows import conv_tbc_type, conv_transpose_type, conv_type, convolution_type, depthwise_type
from gpujit.ops.strided import expand_list, padded, shape_text
from gpujit.support.errors import ShapeError


def _image_axis(x: Array, w: Array, *rest: Any) -> int | None:
    return 0 if x.ndim == w.ndim else None


_BY_IMAGE = by_parts(_image_axis)


def _conv_into(body: Any) -> Any:
    """The out-variant of a convolution: image by image, and products with 1x1 kernels straight into the result."""
    parts = _BY_IMAGE.make(body)

    def into(xp: Any, out: Array, x: Array, w: Array, bias: Array | None, *rest: Any) -> Any:
        if _is_product(x, w, bias, *rest) and fits(out, (x.shape[0], w.shape[0], *x.shape[2:]), x.dtype):
            target = out.reshape(x.shape[0], w.shape[0], -1) if out.flags.c_contiguous else None
            if target is not None:
                xp.matmul(w.reshape(w.shape[0], -1), x.reshape(x.shape[0], x.shape[1], -1), out=target)
                if bias is not None:
                    target += bias[:, None]
                return None
        return parts(xp, out, x, w, bias, *rest)

    return into


def _is_product(x: Array, w: Array, bias: Array | None, stride: Any, padding: Any, dilation: Any, *rest: Any) -> bool:
    """Whether a convolution with these arguments is a product of matrices as they lie."""
    groups = rest[0] if len(rest) == 1 else rest[2] if len(rest) > 2 and not rest[0] else 0
    return (
        groups == 1
        and x.ndim == w.ndim > 2
        and x.shape[1] == w.shape[1]
        and set(w.shape[2:]) == {1}
        and set(stride) == {1}
        and (padding == "valid" or (padding != "same" and not any(padding)))
        and w.dtype == x.dtype
        and (bias is None or (bias.dtype == x.dtype and bias.shape == w.shape[:1]))
    )


def _declare(rank: int) -> None:
    name = f"conv{rank}d"
    head = "(Tensor input, Tensor weight, Tensor? bias=None, "
    ones, zeros = [1] * rank, [0] * rank
    op = f"aten::{name}"

    @library(
        f"{op}{head}int[{rank}] stride={ones}, int[{rank}] padding={zeros}, int[{rank}] dilation={ones}, "
        "int groups=1) -> Tensor",
        type_rule=conv_type,
        into=OfBody(_conv_into),
    )
    def conv(
        xp: Any,
        x: Array,
        w: Array,
        bias: Array | None,
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        groups: int,
    ) -> Array:
        """Cross-correlation of the input with the weight, plus bias."""
        return convolve(xp, op, x, w, bias, stride, padding, dilation, groups, rank)

    @library(
        f'{op}.padding{head}int[{rank}] stride={ones}, str padding="valid", int[{rank}] dilation={ones}, '
        "int groups=1) -> Tensor",
        type_rule=conv_type,
        into=OfBody(_conv_into),
    )
    def conv_named(
        xp: Any,
        x: Array,
        w: Array,
        bias: Array | None,
        stride: list[int],
        padding: str,
        dilation: list[int],
        groups: int,
    ) -> Array:
        """Cross-correlation with padding ``same`` or ``valid``."""
        return convolve(xp, op, x, w, bias, stride, padding, dilation, groups, rank)

    transposed = f"aten::conv_transpose{rank}d"

    @library(
        f"{transposed}{'' if rank == 1 else '.input'}{head}int[{rank}] stride={ones}, int[{rank}] padding={zeros}, "
        f"int[{rank}] output_padding={zeros}, int groups=1, int[{rank}] dilation={ones}) -> Tensor",
        type_rule=conv_transpose_type,
        into=_BY_IMAGE,
    )
    def conv_transpose(
        xp: Any, x: Array, w: Array, bias: Array | None, stride: list[int], padding: list[int],
        output_padding: list[int], groups: int, dilation: list[int],
    ) -> Array:  # fmt: skip
        """Every input element times the kernel, summed where the products meet, plus bias."""
        return convolve_transposed(xp, transposed, x, w, bias, stride, padding, output_padding, groups, dilation, rank)


for _rank in (1, 2, 3):
    _declare(_rank)


def _convolution(
    xp: Any, op: str, x: Array, w: Array, bias: Array | None, stride: list[int], padding: list[int],
    dilation: list[int], transposed: bool, output_padding: list[int], groups: int,
) -> Array:  # fmt: skip
    rank = w.ndim - 2
    if transposed:
        return convolve_transposed(xp, op, x, w, bias, stride, padding, output_padding, groups, dilation, rank)
    return convolve(xp, op, x, w, bias, stride, padding, dilation, groups, rank)


_NUMBERS = (
    "Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, bool transposed, "
    "int[] output_padding, int groups"
)
_SWITCHES = "bool benchmark, bool deterministic, bool cudnn_enabled"


@library(
    f"aten::_convolution.deprecated({_NUMBERS}, {_SWITCHES}) -> Tensor",
    type_rule=convolution_type,
    into=OfBody(_conv_into),
)
def convolution_deprecated(
    xp: Any, x: Array, w: Array, bias: Array | None, stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, output_padding: list[int], groups: int, benchmark: bool, deterministic: bool, cudnn: bool,
) -> Array:  # fmt: skip
    """Convolution or its transpose, of the rank the weight has."""
    return _convolution(
        xp, "aten::_convolution", x, w, bias, stride, padding, dilation, transposed, output_padding, groups
    )


@library(
    f"aten::_convolution({_NUMBERS}, {_SWITCHES}, bool allow_tf32) -> Tensor",
    out="out",
    type_rule=convolution_type,
    into=OfBody(_conv_into),
)
def convolution_traced(
    xp: Any, x: Array, w: Array, bias: Array | None, stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, output_padding: list[int], groups: int, benchmark: bool, deterministic: bool, cudnn: bool,
    tf32: bool,
) -> Array:  # fmt: skip
    """Convolution or its transpose, of the rank the weight has."""
    return _convolution(
        xp, "aten::_convolution", x, w, bias, stride, padding, dilation, transposed, output_padding, groups
    )


@library(f"aten::convolution({_NUMBERS}) -> Tensor", out="out", type_rule=convolution_type, into=OfBody(_conv_into))
@library(
    f"aten::convolution_overrideable({_NUMBERS}) -> Tensor",
    out="out",
    type_rule=convolution_type,
    into=OfBody(_conv_into),
)
def convolution(
    xp: Any, x: Array, w: Array, bias: Array | None, stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, output_padding: list[int], groups: int,
) -> Array:  # fmt: skip
    """Convolution or its transpose, of the rank the weight has."""
    return _convolution(
        xp, "aten::convolution", x, w, bias, stride, padding, dilation, transposed, output_padding, groups
    )


@library(
    "aten::_convolution_mode(Tensor input, Tensor weight, Tensor? bias, int[] stride, str padding, int[] dilation, "
    "int groups) -> Tensor",
    type_rule=conv_type,
    into=OfBody(_conv_into),
)
def convolution_mode(
    xp: Any, x: Array, w: Array, bias: Array | None, stride: list[int], padding: str, dilation: list[int], groups: int
) -> Array:
    """Convolution with padding ``same`` or ``valid``, of the rank the weight has."""
    return convolve(xp, "aten::_convolution_mode", x, w, bias, stride, padding, dilation, groups, w.ndim - 2)


@library(
    "aten::mkldnn_convolution(Tensor self, Tensor weight, Tensor? bias, int[] padding, int[] stride, int[] dilation, "
    "int groups) -> Tensor",
    out="out",
    type_rule=conv_type,
)
def mkldnn_convolution(
    xp: Any,
    x: Array,
    w: Array,
    bias: Array | None,
    padding: list[int],
    stride: list[int],
    dilation: list[int],
    groups: int,
) -> Array:
    """Convolution; the name of another library's kernel for it, which exported programs may hold."""
    return convolve(xp, "aten::mkldnn_convolution", x, w, bias, stride, padding, dilation, groups, w.ndim - 2)


def _declare_kernels(name: str, rank: int, transposed: bool, dilated: bool, grouped: bool) -> None:
    """The names of single CPU and GPU kernels: convolution with the kernel's size given once more."""
    op = f"aten::{name}"
    ones, zeros = [1] * rank, [0] * rank
    plain = "" if grouped else f"={ones}"
    text = f"{op}(Tensor self, Tensor weight, int[{rank}] kernel_size, Tensor? bias{'' if grouped else '=None'}, "
    text += f"int[{rank}] stride{plain}, int[{rank}] padding{'' if grouped else f'={zeros}'}"
    text += f", int[{rank}] output_padding={zeros}" if transposed else ""
    text += f", int[{rank}] dilation{plain}" if dilated else ""

    rule = conv_transpose_type if transposed else depthwise_type if grouped else conv_type

    @library(text + ") -> Tensor", out="out", type_rule=rule)
    def kernel(
        xp: Any,
        x: Array,
        w: Array,
        kernel_size: list[int],
        bias: Array | None,
        stride: list[int],
        padding: list[int],
        *rest: list[int],
    ) -> Array:
        """Convolution (or its transpose) with a kernel of the size given."""
        if w.shape[2:] != expand_list(op, "kernel_size", kernel_size, rank):
            raise ShapeError(f"{op}: kernel_size is {list(kernel_size)}, the weight has shape {shape_text(w.shape)}")
        dilation = rest[-1] if dilated else [1]
        if transposed:
            return convolve_transposed(xp, op, x, w, bias, stride, padding, rest[0], 1, dilation, rank)
        return convolve(xp, op, x, w, bias, stride, padding, dilation, w.shape[0] if grouped else 1, rank)


for _row in (
    ("_conv_depthwise2d", 2, False, True, True),
    ("conv_depthwise3d", 3, False, True, True),
    ("thnn_conv2d", 2, False, False, False),
    ("slow_conv3d", 3, False, False, False),
    ("slow_conv_transpose2d", 2, True, True, False),
    ("slow_conv_transpose3d", 3, True, True, False),
    ("slow_conv_dilated2d", 2, False, True, False),
    ("slow_conv_dilated3d", 3, False, True, False),
):
    _declare_kernels(*_row)


@library(
    "aten::conv_tbc(Tensor self, Tensor weight, Tensor bias, int pad=0) -> Tensor", out="out", type_rule=conv_tbc_type
)
def conv_tbc(xp: Any, x: Array, w: Array, bias: Array, pad: int) -> Array:
    """Convolution over the first dim of ``x [T, B, C]`` with ``w [K, C, O]``."""
    op = "aten::conv_tbc"
    if x.ndim != 3 or w.ndim != 3 or bias.ndim != 1:
        raise ShapeError(f"{op}: self has {x.ndim} dims, weight {w.ndim}, bias {bias.ndim}; expected 3, 3 and 1")
    if w.shape[1] != x.shape[2] or bias.shape[0] != w.shape[2]:
        raise ShapeError(
            f"{op}: self {shape_text(x.shape)} and bias {shape_text(bias.shape)} do not fit "
            f"weight {shape_text(w.shape)}"
        )
    length = x.shape[0] + 2 * pad - w.shape[0] + 1
    if length < 0 or pad < 0:
        raise ShapeError(f"{op}: {x.shape[0]} steps with pad={pad} are fewer than the kernel's {w.shape[0]}")
    x = padded(xp, x.transpose(1, 2, 0), (pad,), (pad,)).transpose(2, 0, 1) if pad else x
    y = xp.zeros((length, x.shape[1], w.shape[2]), x.dtype)
    y += bias
    for t in range(w.shape[0]):
        y += xp.matmul(x[t : t + length], w[t])
    return y
