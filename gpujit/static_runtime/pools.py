"""Pooling as native steps: maxima and means of windows, and means over a given number of windows."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.graph import Node, Value
from gpujit.kernels.templates import pool
from gpujit.kernels.templates.bound import BoundTemplate
from gpujit.kernels.templates.choice import Choose, quickest
from gpujit.kernels.templates.planes import Window
from gpujit.passes.nodes import known
from gpujit.static_runtime.native import Made, of_template
from gpujit.static_runtime.places import Place
from gpujit.support.errors import ArgumentError, InternalError

Pair = tuple[int, int]


def native_pooling(
    node: Node, place_of: Callable[[Value], Place | None], result: Place, choose: Choose = quickest
) -> Made | None:
    """The native step of pooling contiguous float32 images; None for other nodes."""
    found = _OPERATORS.get(node.kind)
    if found is None:
        return None
    bind, rank = found
    x = place_of(node.inputs[0])
    if x is None or x.dtype != FLOAT32 or not x.lies_together or result.dtype != FLOAT32:
        return None
    lead = x.shape[:-rank]
    if len(lead) not in (1, 2) or result.shape[:-rank] != lead or not prod(x.shape) or not prod(result.shape):
        return None
    try:
        bound = bind(node, rank, prod(lead), _image(x.shape[-rank:]), _image(result.shape[-rank:]), choose)
    except (ArgumentError, InternalError):
        return None
    return None if bound is None else (of_template(bound), node.inputs[:1])


def _image(sizes: tuple[int, ...]) -> Pair:
    """Height and width."""
    return (1, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])


def _pair(numbers: Any, rank: int, first: int, least: int) -> Pair | None:
    """A list of one or two ints from ``least`` on as (y, x); ``first`` is what the missing dim has."""
    if not isinstance(numbers, list) or len(numbers) not in (1, rank):
        return None
    if any(type(n) is not int or n < least for n in numbers):
        return None
    return (first, numbers[0]) if rank == 1 else (numbers[0], numbers[-1])


def _largest(node: Node, rank: int, images: int, size: Pair, output: Pair, choose: Choose) -> BoundTemplate | None:
    _, kernel, stride, padding, dilation, _ = map(known, node.inputs)
    window = _window(rank, size, output, kernel, stride, padding, dilation)
    return None if window is None else pool.bind(pool.Pool("max", images, window), choose)


def _mean(node: Node, rank: int, images: int, size: Pair, output: Pair, choose: Choose) -> BoundTemplate | None:
    _, kernel, stride, padding, _, counts_padding, *rest = node.inputs
    window = _window(rank, size, output, known(kernel), known(stride), known(padding), [1])
    divisor = None
    if rest and not (rest[0].is_constant and rest[0].constant() is None):
        divisor = known(rest[0])
        if type(divisor) is not int or not divisor:
            return None
    if window is None or type(known(counts_padding)) is not bool:
        return None
    return pool.bind(pool.Pool("mean", images, window, known(counts_padding), divisor), choose)


def _adaptive_mean(node: Node, rank: int, images: int, size: Pair, output: Pair, choose: Choose) -> BoundTemplate:
    return pool.bind_adaptive("mean", images, size, output)


def _window(
    rank: int, size: Pair, output: Pair, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> Window | None:
    """The windows of a call whose result has ``output`` pixels; None when the operator would raise an error."""
    k = _pair(kernel, rank, 1, 1)
    s = _pair(stride, rank, 1, 1) if stride else k
    p, d = _pair(padding, rank, 0, 0), _pair(dilation, rank, 1, 1)
    if k is None or s is None or p is None or d is None:
        return None
    reach = [(t - 1) * step + 1 for t, step in zip(k, d, strict=True)]
    if any(before > r // 2 for before, r in zip(p, reach, strict=True)):
        return None
    # Rounding up, the last windows reach beyond the padding.
    more = [max(0, (o - 1) * s[i] + reach[i] - size[i] - 2 * p[i]) for i, o in enumerate(output)]
    window = Window(*size, k, s, p, d, (more[0], more[1]))
    return window if window.output == output else None


_Bind = Callable[[Node, int, int, Pair, Pair, Choose], BoundTemplate | None]
_OPERATORS: dict[str, tuple[_Bind, int]] = {
    "aten::max_pool1d": (_largest, 1),
    "aten::max_pool2d": (_largest, 2),
    "aten::avg_pool1d": (_mean, 1),
    "aten::avg_pool2d": (_mean, 2),
    "aten::adaptive_avg_pool1d": (_adaptive_mean, 1),
    "aten::adaptive_avg_pool2d": (_adaptive_mean, 2),
    "aten::_adaptive_avg_pool2d": (_adaptive_mean, 2),
}
