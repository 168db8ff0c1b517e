"""Convolutions as native steps: ``conv1d``, ``conv2d`` and what is traced of them, through the conv templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.graph import Node, Value
from gpujit.kernels.templates import conv
from gpujit.kernels.templates.choice import Choose, quickest
from gpujit.kernels.templates.planes import Window
from gpujit.static_runtime.convolution_nodes import convolution_of
from gpujit.static_runtime.endings import NO_ENDING, Ending
from gpujit.static_runtime.native import Made
from gpujit.static_runtime.places import Place
from gpujit.static_runtime.starts import Start, cast_start, is_half
from gpujit.support.errors import ArgumentError, InternalError

# Nodes that are taken.
NAMES = ("aten::conv1d", "aten::conv2d", "aten::_convolution", "aten::_convolution_mode")


def native_convolution(
    node: Node,
    place_of: Callable[[Value], Place | None],
    result: Place,
    ending: Ending = NO_ENDING,
    start: Start | None = None,
    choose: Choose = quickest,
) -> Made | None:
    """The native step of a convolution of contiguous images, float32 or half, with constant weights; None for others.

    Half types are multiplied as float32, and the result is rounded once. ``choose``: which of the tiles that round
    alike.

    Raises ArgumentError, InternalError with the reason why the step cannot make what ``start`` says.
    """
    found = convolution_of(node) if node.kind in NAMES else None
    if found is None or found.transposed is not False:
        return None
    if not found.weights.is_constant or not found.bias.is_constant:
        return None
    x, weights, bias = place_of(found.x), found.weights.constant(), found.bias.constant()
    if x is None or not x.lies_together or (x.dtype != FLOAT32 and not is_half(x)):
        return None
    if not all(y is None or y.dtype == x.dtype for y in (weights, bias, result)):
        return None
    rank = len(x.shape) - 2
    if rank not in (1, 2) or weights.ndim != rank + 2 or len(result.shape) != rank + 2:
        return None
    height, width = (1, x.shape[2]) if rank == 1 else x.shape[2:]
    matrix = weights.reshape(*weights.shape[:2], 1, weights.shape[2]) if rank == 1 else weights
    stride, dilation = _pair(found.stride, rank, 1), _pair(found.dilation, rank, 1)
    if stride is None or dilation is None or type(found.groups) is not int:
        return None
    padding = _padding(found.padding, rank, matrix.shape[2:], stride, dilation)
    if padding is None:
        return None
    window = Window(height, width, matrix.shape[2:], stride, padding, dilation)
    described = conv.Conv(
        x.shape[0],
        x.shape[1],
        matrix.shape[0],
        window,
        found.groups,
        ending.epilogue(bias is not None, result.dtype),
    )
    wanted = window.output[1:] if rank == 1 else window.output
    if result.shape != (x.shape[0], matrix.shape[0], *wanted):
        return None
    own = None
    try:
        if start is not None and not start.is_read(found.x, place_of):
            raise ArgumentError("it is not the images")
        if start is None and is_half(x):
            own, _ = cast_start(found.x, x)
        made = start or own
        source = None if made is None else made.source
        bound = conv.bind(described, matrix, bias, owner=weights, source=source, choose=choose)
    except (ArgumentError, InternalError):
        if start is not None:
            raise
        return None
    return ending.step(bound, [found.x] if made is None else made.operands)


def _padding(
    padding: Any, rank: int, taps: tuple[int, ...], stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int] | None:
    """Zeros before and after, as (y, x), for numbers or ``same`` and ``valid``; None where there are more on one side,
    and for what the operator refuses."""
    if padding == "valid":
        return 0, 0
    if padding != "same":
        return _pair(padding, rank, 0)
    y, x = ((t - 1) * step for t, step in zip(taps, dilation, strict=True))
    return None if y % 2 or x % 2 or stride != (1, 1) else (y // 2, x // 2)


def _pair(numbers: Any, rank: int, first: int) -> tuple[int, int] | None:
    """A list of one or two ints as (y, x); ``first`` is what the missing dim has."""
    if not isinstance(numbers, list) or any(type(n) is not int for n in numbers) or len(numbers) not in (1, rank):
        return None
    if rank == 1:
        return first, numbers[0]
    return numbers[0], numbers[-1]
