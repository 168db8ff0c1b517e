"""Pooling as steps on a GPU: maxima and means of windows, and adaptive means, by tile programs; maxima with their
places by a kernel of their own."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from gpujit.ir.dtypes import INT64
from gpujit.ir.graph import Node
from gpujit.kernels.cuda_pools import INSIDE, PADDED, adaptive_means, largest, means
from gpujit.kernels.cuda_steps import StepBuilder
from gpujit.kernels.cuda_templates import pool
from gpujit.kernels.cuda_tile import limits_here
from gpujit.kernels.cuda_windows import Sizes, Windows, for_dims
from gpujit.kernels.launches import Number
from gpujit.kernels.tile import TileProgram
from gpujit.passes.nodes import known
from gpujit.static_runtime.device_tiles import MadeStep, PlaceOf
from gpujit.static_runtime.device_views import PRODUCT_TYPES, View, view_of
from gpujit.static_runtime.places import Place

# Taps up to which each has its own code.
MOST_TAPS = 49
# A program, the sizes of its rows, and its parameters.
Pooling = tuple[TileProgram, Sizes, list[int]]


def device_pooling(node: Node, place_of: PlaceOf, result: Place) -> MadeStep | None:
    """The step of pooling floating-point images; None for other nodes."""
    if node.kind in _WITH_PLACES:
        return _with_places(node, place_of, result)
    found = _OPERATORS.get(node.kind)
    if found is None or result.dtype not in PRODUCT_TYPES or len(node.outputs) != 1:
        return None
    make, rank = found
    place = place_of(node.inputs[0])
    if place is None or place.dtype != result.dtype:
        return None
    build = StepBuilder([place.offset], [result.offset])
    x, out = view_of(place, build.operand(0)), view_of(result, build.result())
    if x is None or out is None or len(x.shape) not in (rank + 1, rank + 2) or len(out.shape) != len(x.shape):
        return None
    if x.shape[:-rank] != out.shape[:-rank] or not prod(x.shape) or not prod(out.shape):
        return None
    x, out = (_with_images(v, rank) for v in (x, out))
    pooling = make(node, x, out, rank)
    if pooling is None:
        return None
    program, rows, params = pooling
    build.tile(program, [x.laid], [out.laid], (*out.shape, *rows), params, label=node.kind)
    return build.finish(), node.inputs[:1]


def _with_images(x: View, rank: int) -> View:
    """The view with a dim for images, where there is but one."""
    return x if len(x.shape) == rank + 2 else x._replace(shape=(1, *x.shape), steps=(0, *x.steps))


def _largest(node: Node, x: View, out: View, rank: int) -> Pooling | None:
    _, kernel, stride, padding, dilation, _ = map(known, node.inputs)
    found = _windows(x, out, rank, kernel, stride, padding, dilation)
    if found is None:
        return None
    taps, windows, _ = found
    is_small = prod(taps) <= MOST_TAPS
    return largest(x.dtype, rank, taps if is_small else None), () if is_small else taps, windows.numbers


def _mean(node: Node, x: View, out: View, rank: int) -> Pooling | None:
    _, kernel, stride, padding, _, counts_padding, *rest = map(known, node.inputs)
    found = _windows(x, out, rank, kernel, stride, padding, [1])
    if found is None or type(counts_padding) is not bool:
        return None
    taps, windows, is_whole = found
    divisor: int | str = PADDED if counts_padding else INSIDE
    if rest and rest[0] is not None:
        if type(rest[0]) is not int or not rest[0]:
            return None
        divisor = rest[0]
    elif is_whole and (counts_padding or not any(windows.padding)):
        divisor = prod(taps)
    is_small = prod(taps) <= MOST_TAPS
    return means(x.dtype, rank, taps if is_small else None, divisor), () if is_small else taps, windows.numbers


def _adaptive_mean(node: Node, x: View, out: View, rank: int) -> Pooling | None:
    image, places = x.shape[2:], out.shape[2:]
    if all(n % m == 0 for n, m in zip(image, places, strict=True)):
        taps = tuple(n // m for n, m in zip(image, places, strict=True))
        return means(x.dtype, rank, None, prod(taps)), taps, Windows(image, taps, (0,) * rank, (1,) * rank).numbers
    longest = tuple(
        max(-(-(o + 1) * n // m) - o * n // m for o in range(m)) for n, m in zip(image, places, strict=True)
    )
    return adaptive_means(x.dtype, rank), longest, [*image, *places]


def _with_places(node: Node, place_of: PlaceOf, result: Place) -> MadeStep | None:
    """Maxima and where they lie."""
    rank, is_adaptive = _WITH_PLACES[node.kind]
    place = place_of(node.inputs[0])
    results = [p for v in node.outputs if (p := place_of(v)) is not None]
    if place is None or place.dtype != result.dtype or result.dtype not in PRODUCT_TYPES:
        return None
    if len(results) != 2 or results[1].dtype != INT64 or results[1].shape != result.shape:
        return None
    build = StepBuilder([place.offset], [p.offset for p in results])
    x = view_of(place, build.operand(0))
    outs = [v for k, p in enumerate(results) if (v := view_of(p, build.result(k))) is not None]
    if x is None or len(outs) != 2 or len(x.shape) not in (rank + 1, rank + 2):
        return None
    if len(outs[0].shape) != len(x.shape) or x.shape[:-rank] != outs[0].shape[:-rank]:
        return None
    if not prod(x.shape) or not prod(result.shape) or not all(v.lies_together for v in outs):
        return None
    x, out, _ = (_with_images(v, rank) for v in (x, *outs))
    each: list[Sizes] = [x.shape[2:], x.steps[2:], out.shape[2:]]
    if not is_adaptive:
        _, kernel, stride, padding, dilation, _ = map(known, node.inputs)
        found = _windows(x, out, rank, kernel, stride, padding, dilation)
        if found is None:
            return None
        taps, windows, _ = found
        each += [windows.stride, windows.padding, windows.dilation, taps]
    count = prod(result.shape)
    spec = pool.Spec(x.dtype, rank, is_adaptive, limits_here().block)
    numbers = [count, x.shape[1], *x.steps[:2], *(row[k] for k in range(rank) for row in each)]
    build.kernel(
        pool.source(spec),
        "max_pool with places",
        spec.block,
        -(-count // spec.block),
        [
            (spec.word, x.at),
            *((word, v.at) for word, v in zip((spec.word, "int64"), outs, strict=True)),
            *(Number(n, "int64") for n in numbers),
        ],
    )
    return build.finish(), node.inputs[:1]


def _windows(
    x: View, out: View, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Sizes, Windows, bool] | None:
    """Taps, windows and whether all of them end within the padding; None when the operator would raise an error."""
    k = for_dims(kernel, rank, 1)
    s = for_dims(stride, rank, 1) if stride else k
    p, d = for_dims(padding, rank, 0), for_dims(dilation, rank, 1)
    if k is None or s is None or p is None or d is None:
        return None
    reach = [(t - 1) * step + 1 for t, step in zip(k, d, strict=True)]
    if any(before > t // 2 for before, t in zip(p, k, strict=True)):
        return None
    image, places = x.shape[2:], out.shape[2:]
    last = [(o - 1) * step - before for o, step, before in zip(places, s, p, strict=True)]
    # Each window begins on the image or on the padding before it, and another one would end behind that after it.
    if any(at >= n + q for at, n, q in zip(last, image, p, strict=True)):
        return None
    ends = [at + r for at, r in zip(last, reach, strict=True)]
    if any(e + step <= n + q for e, step, n, q in zip(ends, s, image, p, strict=True)):
        return None
    return k, Windows(image, s, p, d), all(e <= n + q for e, n, q in zip(ends, image, p, strict=True))


# Each with the dims of pixels, and whether windows divide the image into parts.
_WITH_PLACES: dict[str, tuple[int, bool]] = {
    **{f"aten::max_pool{rank}d_with_indices": (rank, False) for rank in (1, 2, 3)},
    **{f"aten::adaptive_max_pool{rank}d": (rank, True) for rank in (1, 2, 3)},
}
_Make = Callable[[Node, View, View, int], Pooling | None]
_OPERATORS: dict[str, tuple[_Make, int]] = {
    **{f"aten::max_pool{rank}d": (_largest, rank) for rank in (1, 2, 3)},
    **{f"aten::avg_pool{rank}d": (_mean, rank) for rank in (1, 2, 3)},
    **{f"aten::adaptive_avg_pool{rank}d": (_adaptive_mean, rank) for rank in (1, 2, 3)},
    **{f"aten::_adaptive_avg_pool{rank}d": (_adaptive_mean, rank) for rank in (2, 3)},
}
