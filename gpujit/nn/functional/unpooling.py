"""Max pooling at random places, and what max pooling left put back where it was."""

from __future__ import annotations

from gpujit import ops
from gpujit.nn.typing import BooleanDispatch, BroadcastingList1, BroadcastingList2, BroadcastingList3, Tensor
from gpujit.support.errors import LayerError


def _fractional_sizes(
    input: Tensor, output_size: list[int] | None, output_ratio: list[float] | None, spatial: int
) -> list[int]:
    if output_size is not None:
        return output_size
    if output_ratio is None:
        raise LayerError("fractional_max_pool: output_size or output_ratio is needed")
    sizes: list[int] = []
    for i in range(spatial):
        sizes.append(int(input.shape[input.ndim - spatial + i] * output_ratio[i]))
    return sizes


def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: BroadcastingList2[int],
    output_size: BroadcastingList2[int] | None = None,
    output_ratio: BroadcastingList2[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Maxima of windows at random distances, ``output_size`` of them or that part of the input, and where they are."""
    if output_size is not None and isinstance(output_size, int):
        output_size = [output_size, output_size]
    if output_ratio is not None and isinstance(output_ratio, float):
        output_ratio = [output_ratio, output_ratio]
    sizes = _fractional_sizes(input, output_size, output_ratio, 2)
    if _random_samples is None:
        batch = 1 if input.ndim == 3 else input.shape[0]
        _random_samples = ops.rand([batch, input.shape[input.ndim - 3], 2], dtype=input.dtype)
    return ops.fractional_max_pool2d(input, kernel_size, sizes, _random_samples)


def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: BroadcastingList3[int],
    output_size: BroadcastingList3[int] | None = None,
    output_ratio: BroadcastingList3[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Maxima of windows at random distances, ``output_size`` of them or that part of the input, and where they are."""
    if output_size is not None and isinstance(output_size, int):
        output_size = [output_size, output_size, output_size]
    if output_ratio is not None and isinstance(output_ratio, float):
        output_ratio = [output_ratio, output_ratio, output_ratio]
    sizes = _fractional_sizes(input, output_size, output_ratio, 3)
    if _random_samples is None:
        batch = 1 if input.ndim == 4 else input.shape[0]
        _random_samples = ops.rand([batch, input.shape[input.ndim - 4], 3], dtype=input.dtype)
    return ops.fractional_max_pool3d(input, kernel_size, sizes, _random_samples)


def _fractional_max_pool2d(
    input: Tensor,
    kernel_size: BroadcastingList2[int],
    output_size: BroadcastingList2[int] | None = None,
    output_ratio: BroadcastingList2[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor:
    """Maxima of windows at random distances; with ``return_indices``, and where they are."""
    return fractional_max_pool2d_with_indices(input, kernel_size, output_size, output_ratio, False, _random_samples)[0]


def _fractional_max_pool3d(
    input: Tensor,
    kernel_size: BroadcastingList3[int],
    output_size: BroadcastingList3[int] | None = None,
    output_ratio: BroadcastingList3[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor:
    """Maxima of windows at random distances; with ``return_indices``, and where they are."""
    return fractional_max_pool3d_with_indices(input, kernel_size, output_size, output_ratio, False, _random_samples)[0]


fractional_max_pool2d = BooleanDispatch(
    "fractional_max_pool2d", "return_indices", 4, False, fractional_max_pool2d_with_indices, _fractional_max_pool2d
)
fractional_max_pool3d = BooleanDispatch(
    "fractional_max_pool3d", "return_indices", 4, False, fractional_max_pool3d_with_indices, _fractional_max_pool3d
)


def unpool_sizes(
    input: list[int], kernel_size: list[int], stride: list[int], padding: list[int], output_size: list[int] | None
) -> list[int]:
    """The spatial sizes that max unpooling gives: ``output_size``'s last ones, checked, or those that fit exactly.

    Raises LayerError when ``output_size`` is further than one stride from those.
    """
    spatial = len(kernel_size)
    exact: list[int] = []
    for i in range(spatial):
        exact.append((input[len(input) - spatial + i] - 1) * stride[i] + kernel_size[i] - 2 * padding[i])
    if output_size is None:
        return exact
    wanted = output_size[2:] if len(output_size) == spatial + 2 else output_size
    if len(wanted) != spatial:
        raise LayerError(f"max_unpool: output_size needs {spatial} or {spatial + 2} elements, found {output_size}")
    for i in range(spatial):
        if wanted[i] <= exact[i] - stride[i] or wanted[i] >= exact[i] + stride[i]:
            raise LayerError(f"max_unpool: output_size {wanted} is too far from {exact}")
    return wanted


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: BroadcastingList1[int],
    stride: BroadcastingList1[int] | None = None,
    padding: BroadcastingList1[int] = 0,
    output_size: list[int] | None = None,
) -> Tensor:
    """Zeros with the maxima that ``max_pool1d`` left where they were."""
    kernel = [kernel_size] if isinstance(kernel_size, int) else kernel_size
    step = kernel
    if stride is not None:
        step = [stride] if isinstance(stride, int) else stride
    margin = [padding] if isinstance(padding, int) else padding
    sizes = unpool_sizes(ops.size(input), kernel, step, margin, output_size)
    return ops.squeeze(ops.max_unpool2d(ops.unsqueeze(input, -1), ops.unsqueeze(indices, -1), [sizes[0], 1]), -1)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    padding: BroadcastingList2[int] = 0,
    output_size: list[int] | None = None,
) -> Tensor:
    """Zeros with the maxima that ``max_pool2d`` left where they were."""
    kernel = [kernel_size, kernel_size] if isinstance(kernel_size, int) else kernel_size
    step = kernel
    if stride is not None:
        step = [stride, stride] if isinstance(stride, int) else stride
    margin = [padding, padding] if isinstance(padding, int) else padding
    return ops.max_unpool2d(input, indices, unpool_sizes(ops.size(input), kernel, step, margin, output_size))


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: BroadcastingList3[int],
    stride: BroadcastingList3[int] | None = None,
    padding: BroadcastingList3[int] = 0,
    output_size: list[int] | None = None,
) -> Tensor:
    """Zeros with the maxima that ``max_pool3d`` left where they were."""
    kernel = [kernel_size, kernel_size, kernel_size] if isinstance(kernel_size, int) else kernel_size
    step = kernel
    if stride is not None:
        step = [stride, stride, stride] if isinstance(stride, int) else stride
    margin = [padding, padding, padding] if isinstance(padding, int) else padding
    sizes = unpool_sizes(ops.size(input), kernel, step, margin, output_size)
    return ops.max_unpool3d(input, indices, sizes, step, margin)
