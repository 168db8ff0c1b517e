"""Transposed convolutions of one, two and three dimensions."""

from __future__ import annotations

from typing import Any

from gpujit import ops
from gpujit.nn.conv import _Convolution
from gpujit.nn.typing import Sizes, Tensor
from gpujit.support.errors import LayerError


class _Transposed(_Convolution):
    """What transposed convolutions have."""

    def _set_up_transposed(self, dims: int, padding: Any, padding_mode: str, *rest: Any) -> None:
        name = type(self).__name__
        if padding_mode != "zeros":
            raise LayerError(f"{name}: padding_mode can only be zeros, found {padding_mode!r}")
        if isinstance(padding, str):
            raise LayerError(f"{name}: padding must be numbers, found {padding!r}")
        in_channels, out_channels, kernel_size, stride, dilation, output_padding, groups, bias, device, dtype = rest
        self._set_up(
            dims,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            True,
            output_padding,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _output_padding(self, input: Tensor, output_size: list[int] | None) -> list[int]:
        """What to add to the smallest output to get ``output_size``; the layer's own setting when that is None."""
        if output_size is None:
            return list(self.output_padding)
        # The language indexes tuples by constants only.
        stride, dilation, kernel = list(self.stride), list(self.dilation), list(self.kernel_size)
        padding: list[int] = list(self.padding)  # type: ignore[arg-type]  # never a str here
        spatial = len(kernel)
        given = len(output_size)
        if given != spatial and given != input.ndim:
            raise LayerError(f"output_size needs {spatial} or {input.ndim} numbers, found {given}")
        found: list[int] = []
        for i in range(spatial):
            wanted = output_size[given - spatial + i]
            length = input.shape[input.ndim - spatial + i]
            least = (length - 1) * stride[i] - 2 * padding[i] + dilation[i] * (kernel[i] - 1) + 1
            if wanted < least or wanted > least + stride[i] - 1:
                raise LayerError(
                    f"output_size[{i}] must be from {least} to {least + stride[i] - 1} for an input of {length}, "
                    f"found {wanted}"
                )
            found.append(wanted - least)
        return found


class ConvTranspose1d(_Transposed):
    """The transposed convolution of ``[N, C, L]`` (or without N) with ``weight [in, out / groups, k]``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._set_up_transposed(
            1,
            padding,
            padding_mode,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            dilation,
            output_padding,
            groups,
            bias,
            device,
            dtype,
        )

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        extra = self._output_padding(input, output_size)
        return ops.conv_transpose1d(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )


class ConvTranspose2d(_Transposed):
    """The transposed convolution of ``[N, C, H, W]`` (or without N) with ``weight [in, out / groups, kH, kW]``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._set_up_transposed(
            2,
            padding,
            padding_mode,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            dilation,
            output_padding,
            groups,
            bias,
            device,
            dtype,
        )

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        extra = self._output_padding(input, output_size)
        return ops.conv_transpose2d(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )


class ConvTranspose3d(_Transposed):
    """The transposed convolution of ``[N, C, D, H, W]`` (or no N) with ``weight [in, out / groups, kD, kH, kW]``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._set_up_transposed(
            3,
            padding,
            padding_mode,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            dilation,
            output_padding,
            groups,
            bias,
            device,
            dtype,
        )

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        extra = self._output_padding(input, output_size)
        return ops.conv_transpose3d(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )
