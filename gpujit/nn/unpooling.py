"""Max pooling at random places, and max pooling undone."""

from __future__ import annotations

from typing import Any

from gpujit.nn import functional as F
from gpujit.nn.module import Module
from gpujit.nn.parameter import sizes, to_array
from gpujit.nn.typing import Sizes, Tensor
from gpujit.support.errors import LayerError


class _FractionalMaxPool(Module):
    __constants__ = ("kernel_size", "return_indices", "output_size", "output_ratio")
    return_indices: bool

    def _set_up(
        self, dims: int, kernel_size: Sizes, output_size: Any, output_ratio: Any, return_indices: bool, samples: Any
    ) -> None:
        name = type(self).__name__
        if (output_size is None) == (output_ratio is None):
            raise LayerError(f"{name}: give output_size or output_ratio, and not both")
        self.kernel_size = sizes(kernel_size, dims, f"{name}: kernel_size")
        self.return_indices = return_indices
        self.register_buffer("_random_samples", None if samples is None else to_array(samples, "_random_samples"))
        self.output_size = None if output_size is None else sizes(output_size, dims, f"{name}: output_size")
        self.output_ratio = None if output_ratio is None else sizes(output_ratio, dims, f"{name}: output_ratio")
        for ratio in self.output_ratio or ():
            if not 0 < ratio < 1:
                raise LayerError(f"{name}: output_ratio must be between 0 and 1, found {output_ratio}")


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maxima of windows at random distances: ``output_size`` of them, or that part of the input."""

    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        super().__init__()
        self._set_up(2, kernel_size, output_size, output_ratio, return_indices, _random_samples)

    # The type of the result follows from return_indices.
    def forward(self, input: Tensor):  # type: ignore[no-untyped-def]
        return F.fractional_max_pool2d(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class FractionalMaxPool3d(_FractionalMaxPool):
    """Maxima of windows at random distances: ``output_size`` of them, or that part of the input."""

    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        super().__init__()
        self._set_up(3, kernel_size, output_size, output_ratio, return_indices, _random_samples)

    # The type of the result follows from return_indices.
    def forward(self, input: Tensor):  # type: ignore[no-untyped-def]
        return F.fractional_max_pool3d(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class _MaxUnpool(Module):
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]

    def _set_up(self, dims: int, kernel_size: Sizes, stride: Sizes | None, padding: Sizes) -> None:
        name = type(self).__name__
        self.kernel_size = sizes(kernel_size, dims, f"{name}: kernel_size")
        self.stride = self.kernel_size if stride is None else sizes(stride, dims, f"{name}: stride")
        self.padding = sizes(padding, dims, f"{name}: padding")

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Zeros with the maxima that ``MaxPool1d`` left where they were."""

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()
        self._set_up(1, kernel_size, stride, padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: list[int] | None = None) -> Tensor:
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpool):
    """Zeros with the maxima that ``MaxPool2d`` left where they were."""

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()
        self._set_up(2, kernel_size, stride, padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: list[int] | None = None) -> Tensor:
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpool):
    """Zeros with the maxima that ``MaxPool3d`` left where they were."""

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()
        self._set_up(3, kernel_size, stride, padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: list[int] | None = None) -> Tensor:
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)
