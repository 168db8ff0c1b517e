"""Convolutions and transposed convolutions of one, two and three dimensions."""

from __future__ import annotations

import math
from typing import Any

from gpujit import ops
from gpujit.nn import init
from gpujit.nn.module import Module
from gpujit.nn.parameter import Parameter, new, sizes
from gpujit.nn.typing import Sizes, Tensor
from gpujit.support.errors import LayerError

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Module):
    """What all convolutions have: their settings, ``weight`` and ``bias``."""

    __constants__ = (
        "stride", "padding", "dilation", "groups", "padding_mode", "output_padding", "in_channels", "out_channels",
        "kernel_size",
    )  # fmt: skip
    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: str | tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int
    padding_mode: str
    weight: Tensor
    # Margins before and after each dimension, the last one first, where ops.pad puts them.
    _reversed_padding_repeated_twice: list[int]

    def _set_up(
        self,
        dims: int,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        padding: Any,
        dilation: Sizes,
        transposed: bool,
        output_padding: Sizes,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
    ) -> None:
        name = type(self).__name__
        if groups <= 0:
            raise LayerError(f"{name}: groups must be positive, found {groups}")
        for what, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups != 0:
                raise LayerError(f"{name}: {what}={channels} must be divisible by groups={groups}")
        if padding_mode not in _PADDING_MODES:
            raise LayerError(f"{name}: padding_mode must be one of {', '.join(_PADDING_MODES)}, found {padding_mode!r}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = sizes(kernel_size, dims, f"{name}: kernel_size")
        self.stride = sizes(stride, dims, f"{name}: stride")
        self.dilation = sizes(dilation, dims, f"{name}: dilation")
        self.transposed = transposed
        self.output_padding = sizes(output_padding, dims, f"{name}: output_padding")
        self.groups = groups
        self.padding_mode = padding_mode
        margins = [0] * (2 * dims)
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise LayerError(f"{name}: padding must be numbers, 'same' or 'valid', found {padding!r}")
            if padding == "same":
                if any(s != 1 for s in self.stride):
                    raise LayerError(f"{name}: padding='same' needs stride 1, found {self.stride}")
                for i, (d, k) in enumerate(zip(reversed(self.dilation), reversed(self.kernel_size), strict=True)):
                    total = d * (k - 1)
                    margins[2 * i], margins[2 * i + 1] = total // 2, total - total // 2
            self.padding = padding
        else:
            self.padding = sizes(padding, dims, f"{name}: padding")
            margins = [p for p in reversed(self.padding) for _ in range(2)]
        self._reversed_padding_repeated_twice = margins
        outer, inner = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        self.weight = Parameter(new((outer, inner // groups, *self.kernel_size), dtype, device))
        self.register_parameter("bias", new((out_channels,), dtype, device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new first values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = math.prod(self.weight.shape[1:])
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        none = (0,) * len(self.kernel_size)
        one = (1,) * len(self.kernel_size)
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != none:
            text += f", padding={self.padding}"
        if self.dilation != one:
            text += f", dilation={self.dilation}"
        if self.output_padding != none:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class Conv1d(_Convolution):
    """Cross-correlation of ``[N, C, L]`` (or without N) with ``weight [out, in / groups, k]``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: str | Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._set_up(
            1,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            False,
            0,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        if self.padding_mode != "zeros":
            padded = ops.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
            return ops.conv1d(padded, self.weight, self.bias, self.stride, [0], self.dilation, self.groups)
        return ops.conv1d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv2d(_Convolution):
    """Cross-correlation of ``[N, C, H, W]`` (or without N) with ``weight [out, in / groups, kH, kW]``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: str | Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._set_up(
            2,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            False,
            0,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        if self.padding_mode != "zeros":
            padded = ops.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
            return ops.conv2d(padded, self.weight, self.bias, self.stride, [0, 0], self.dilation, self.groups)
        return ops.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv3d(_Convolution):
    """Cross-correlation of ``[N, C, D, H, W]`` (or without N) with ``weight [out, in / groups, kD, kH, kW]``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: str | Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._set_up(
            3,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            False,
            0,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        if self.padding_mode != "zeros":
            padded = ops.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
            return ops.conv3d(padded, self.weight, self.bias, self.stride, [0, 0, 0], self.dilation, self.groups)
        return ops.conv3d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
