"""Pooling layers."""

from __future__ import annotations

from gpujit import ops
from gpujit.nn import functional as F
from gpujit.nn.module import Module
from gpujit.nn.parameter import sizes
from gpujit.nn.typing import Sizes, Tensor


class _MaxPool(Module):
    __constants__ = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")
    return_indices: bool
    ceil_mode: bool

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The maximum of each window; with ``return_indices``, and where it is."""

    # The type of the result follows from return_indices.
    def forward(self, input: Tensor):  # type: ignore[no-untyped-def]
        return F.max_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )


class MaxPool2d(_MaxPool):
    """The maximum of each window; with ``return_indices``, and where it is."""

    # The type of the result follows from return_indices.
    def forward(self, input: Tensor):  # type: ignore[no-untyped-def]
        return F.max_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )


class MaxPool3d(_MaxPool):
    """The maximum of each window; with ``return_indices``, and where it is."""

    # The type of the result follows from return_indices.
    def forward(self, input: Tensor):  # type: ignore[no-untyped-def]
        return F.max_pool3d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )


class AvgPool1d(Module):
    """The mean of each window."""

    __constants__ = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
    ceil_mode: bool
    count_include_pad: bool

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = sizes(kernel_size, 1, "AvgPool1d: kernel_size")
        self.stride = self.kernel_size if stride is None else sizes(stride, 1, "AvgPool1d: stride")
        self.padding = sizes(padding, 1, "AvgPool1d: padding")
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return ops.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPool(Module):
    __constants__ = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
    ceil_mode: bool
    count_include_pad: bool
    divisor_override: int | None

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(_AvgPool):
    """The mean of each window, or its sum over ``divisor_override``."""

    def forward(self, input: Tensor) -> Tensor:
        return ops.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool3d(_AvgPool):
    """The mean of each window, or its sum over ``divisor_override``."""

    def forward(self, input: Tensor) -> Tensor:
        return ops.avg_pool3d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class _AdaptiveAvgPool(Module):
    __constants__ = ("output_size",)

    def __init__(self, output_size: Sizes) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means of windows that divide the input into ``output_size``."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means of windows that divide the input into ``output_size``."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means of windows that divide the input into ``output_size``."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)


class _AdaptiveMaxPool(Module):
    __constants__ = ("output_size", "return_indices")
    return_indices: bool

    def __init__(self, output_size: Sizes, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maxima of windows that divide the input into ``output_size``; with ``return_indices``, and where they are."""

    # The type of the result follows from return_indices.
    def forward(self, input: Tensor):  # type: ignore[no-untyped-def]
        return F.adaptive_max_pool1d(input, self.output_size, return_indices=self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maxima of windows that divide the input into ``output_size``; with ``return_indices``, and where they are."""

    # The type of the result follows from return_indices.
    def forward(self, input: Tensor):  # type: ignore[no-untyped-def]
        return F.adaptive_max_pool2d(input, self.output_size, return_indices=self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maxima of windows that divide the input into ``output_size``; with ``return_indices``, and where they are."""

    # The type of the result follows from return_indices.
    def forward(self, input: Tensor):  # type: ignore[no-untyped-def]
        return F.adaptive_max_pool3d(input, self.output_size, return_indices=self.return_indices)


class _LPPool(Module):
    __constants__ = ("norm_type", "kernel_size", "stride", "ceil_mode")
    norm_type: float
    ceil_mode: bool

    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """The ``norm_type``-norm of each window."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPool):
    """The ``norm_type``-norm of each window."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPool):
    """The ``norm_type``-norm of each window."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)
