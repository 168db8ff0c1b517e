"""Pooling and its inverse."""

from __future__ import annotations

from gpujit import ops
from gpujit.nn.typing import BooleanDispatch, BroadcastingList1, BroadcastingList2, BroadcastingList3, Tensor
from gpujit.support.errors import LayerError


def _max_pool1d(
    input: Tensor,
    kernel_size: BroadcastingList1[int],
    stride: BroadcastingList1[int] | None = None,
    padding: BroadcastingList1[int] = 0,
    dilation: BroadcastingList1[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """The maximum of each window; with ``return_indices``, and where it is. ``stride`` None is ``kernel_size``."""
    step = kernel_size if stride is None else stride
    return ops.max_pool1d(input, kernel_size, step, padding, dilation, ceil_mode)


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: BroadcastingList1[int],
    stride: BroadcastingList1[int] | None = None,
    padding: BroadcastingList1[int] = 0,
    dilation: BroadcastingList1[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """The maximum of each window, and where it is along the last dimension."""
    step = kernel_size if stride is None else stride
    return ops.max_pool1d_with_indices(input, kernel_size, step, padding, dilation, ceil_mode)


def _max_pool2d(
    input: Tensor,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    padding: BroadcastingList2[int] = 0,
    dilation: BroadcastingList2[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """The maximum of each window; with ``return_indices``, and where it is. ``stride`` None is ``kernel_size``."""
    step = kernel_size if stride is None else stride
    return ops.max_pool2d(input, kernel_size, step, padding, dilation, ceil_mode)


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    padding: BroadcastingList2[int] = 0,
    dilation: BroadcastingList2[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """The maximum of each window, and where it is in the flat image."""
    step = kernel_size if stride is None else stride
    return ops.max_pool2d_with_indices(input, kernel_size, step, padding, dilation, ceil_mode)


def _max_pool3d(
    input: Tensor,
    kernel_size: BroadcastingList3[int],
    stride: BroadcastingList3[int] | None = None,
    padding: BroadcastingList3[int] = 0,
    dilation: BroadcastingList3[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """The maximum of each window; with ``return_indices``, and where it is. ``stride`` None is ``kernel_size``."""
    step = kernel_size if stride is None else stride
    return ops.max_pool3d(input, kernel_size, step, padding, dilation, ceil_mode)


def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: BroadcastingList3[int],
    stride: BroadcastingList3[int] | None = None,
    padding: BroadcastingList3[int] = 0,
    dilation: BroadcastingList3[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """The maximum of each window, and where it is in the flat volume."""
    step = kernel_size if stride is None else stride
    return ops.max_pool3d_with_indices(input, kernel_size, step, padding, dilation, ceil_mode)


max_pool1d = BooleanDispatch("max_pool1d", "return_indices", 6, False, max_pool1d_with_indices, _max_pool1d)
max_pool2d = BooleanDispatch("max_pool2d", "return_indices", 6, False, max_pool2d_with_indices, _max_pool2d)
max_pool3d = BooleanDispatch("max_pool3d", "return_indices", 6, False, max_pool3d_with_indices, _max_pool3d)


def sizes_or_input(sizes: list[int], input: list[int]) -> list[int]:
    """``sizes``, those that are None taken from the last sizes of the input. Raises LayerError for too many."""
    # The language's lists have no elements None where ints are declared; only Python's callers give them.
    if len(input) <= len(sizes):
        raise LayerError(f"an input of more than {len(sizes)} dimensions is needed, found one of size {input}")
    found: list[int] = []
    for i, size in enumerate(sizes):
        if size is None:
            found.append(input[len(input) - len(sizes) + i])
        else:
            found.append(size)
    return found


def adaptive_avg_pool2d(input: Tensor, output_size: BroadcastingList2[int]) -> Tensor:
    """Means of windows that divide the input into ``output_size``, of which an element None keeps the input's size."""
    if isinstance(output_size, int):
        return ops.adaptive_avg_pool2d(input, [output_size, output_size])
    return ops.adaptive_avg_pool2d(input, sizes_or_input(output_size, ops.size(input)))


def adaptive_avg_pool3d(input: Tensor, output_size: BroadcastingList3[int]) -> Tensor:
    """Means of windows that divide the input into ``output_size``, of which an element None keeps the input's size."""
    if isinstance(output_size, int):
        return ops.adaptive_avg_pool3d(input, [output_size, output_size, output_size])
    return ops.adaptive_avg_pool3d(input, sizes_or_input(output_size, ops.size(input)))


def _adaptive_max_pool1d(input: Tensor, output_size: BroadcastingList1[int], return_indices: bool = False) -> Tensor:
    """Maxima of windows that divide the input into ``output_size``; with ``return_indices``, and where they are."""
    return ops.adaptive_max_pool1d(input, output_size)[0]


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: BroadcastingList1[int], return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """Maxima of windows that divide the input into ``output_size``, and where they are."""
    return ops.adaptive_max_pool1d(input, output_size)


def _adaptive_max_pool2d(input: Tensor, output_size: BroadcastingList2[int], return_indices: bool = False) -> Tensor:
    """Maxima of windows that divide the input into ``output_size``; with ``return_indices``, and where they are."""
    return adaptive_max_pool2d_with_indices(input, output_size)[0]


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: BroadcastingList2[int], return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """Maxima of windows that divide the input into ``output_size``, and where they are in the flat image."""
    if isinstance(output_size, int):
        return ops.adaptive_max_pool2d(input, [output_size, output_size])
    return ops.adaptive_max_pool2d(input, sizes_or_input(output_size, ops.size(input)))


def _adaptive_max_pool3d(input: Tensor, output_size: BroadcastingList3[int], return_indices: bool = False) -> Tensor:
    """Maxima of windows that divide the input into ``output_size``; with ``return_indices``, and where they are."""
    return adaptive_max_pool3d_with_indices(input, output_size)[0]


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: BroadcastingList3[int], return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """Maxima of windows that divide the input into ``output_size``, and where they are in the flat volume."""
    if isinstance(output_size, int):
        return ops.adaptive_max_pool3d(input, [output_size, output_size, output_size])
    return ops.adaptive_max_pool3d(input, sizes_or_input(output_size, ops.size(input)))


adaptive_max_pool1d = BooleanDispatch(
    "adaptive_max_pool1d", "return_indices", 2, False, adaptive_max_pool1d_with_indices, _adaptive_max_pool1d
)
adaptive_max_pool2d = BooleanDispatch(
    "adaptive_max_pool2d", "return_indices", 2, False, adaptive_max_pool2d_with_indices, _adaptive_max_pool2d
)
adaptive_max_pool3d = BooleanDispatch(
    "adaptive_max_pool3d", "return_indices", 2, False, adaptive_max_pool3d_with_indices, _adaptive_max_pool3d
)


def _root(means: Tensor, elements: int, norm_type: float) -> Tensor:
    """The ``norm_type``-norm of windows of ``elements`` from the means of their powers."""
    sums = ops.mul(ops.mul(ops.sign(means), ops.relu(ops.abs(means))), elements)
    return ops.pow(sums, 1.0 / norm_type)


def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: int,
    stride: BroadcastingList1[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The ``norm_type``-norm of each window."""
    powers = ops.pow(input, norm_type)
    step = [kernel_size] if stride is None else stride
    return _root(ops.avg_pool1d(powers, kernel_size, step, 0, ceil_mode), kernel_size, norm_type)


def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The ``norm_type``-norm of each window."""
    kernel = [kernel_size, kernel_size] if isinstance(kernel_size, int) else kernel_size
    elements = kernel[0] * kernel[1]
    powers = ops.pow(input, norm_type)
    step = kernel_size if stride is None else stride
    return _root(ops.avg_pool2d(powers, kernel_size, step, 0, ceil_mode), elements, norm_type)


def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: BroadcastingList3[int],
    stride: BroadcastingList3[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The ``norm_type``-norm of each window."""
    kernel = [kernel_size, kernel_size, kernel_size] if isinstance(kernel_size, int) else kernel_size
    elements = kernel[0] * kernel[1] * kernel[2]
    powers = ops.pow(input, norm_type)
    step = kernel_size if stride is None else stride
    return _root(ops.avg_pool3d(powers, kernel_size, step, 0, ceil_mode), elements, norm_type)
