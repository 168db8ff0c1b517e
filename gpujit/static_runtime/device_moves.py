"""Operators that fetch elements from elsewhere as steps on a GPU: resampled images, edges, shuffled pixels, and parts
that are written into copies of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.dtypes import FLOAT64
from gpujit.ir.graph import Node
from gpujit.kernels.cuda_moves import EDGES, edged, gated, resampled, taken, takes
from gpujit.kernels.cuda_steps import StepBuilder
from gpujit.kernels.cuda_windows import Windows, columns, computed
from gpujit.ops.families.layers.resample import MODES, tables_of
from gpujit.passes.nodes import known
from gpujit.static_runtime.device_tiles import MadeStep, PlaceOf
from gpujit.static_runtime.device_views import PRODUCT_TYPES, View, copy, restate, started
from gpujit.static_runtime.places import Place

# Places that a pixel is a sum of.
MOST_TAPS = 64
# What adds a step's calls, given the views of its tensors and of its result; False when it cannot.
Make = Callable[[StepBuilder, Node, list[View], View], bool]


def device_move(node: Node, place_of: PlaceOf, result: Place) -> MadeStep | None:
    """The step of a node that moves elements; None for other nodes."""
    make, count = _OPERATORS.get(node.kind, (None, 0))
    if make is None or len(node.outputs) != 1:
        return None
    operands = node.inputs[:count]
    begun = started(operands, place_of, result) if takes([result.dtype]) else None
    if begun is None:
        return None
    build, views, out = begun
    if not all(prod(v.shape) for v in (*views, out)):
        return None
    return (build.finish(), operands) if make(build, node, views, out) else None


# Images ---------------------------------------------------------------------------------------------------------------


def _resample(build: StepBuilder, node: Node, views: list[View], out: View) -> bool:
    rank, mode, aligns = MODES[node.kind]
    (x,) = views
    _, _, *rest = map(known, node.inputs)
    align = rest.pop(0) if aligns else False
    is_vec = node.schema is not None and node.schema.full_name.endswith(".vec")
    scales: Any = (rest[0] if rest[0] is not None else [None] * rank) if is_vec else rest
    if type(align) is not bool or not isinstance(scales, list) or len(scales) != rank:
        return False
    if any(s is not None and type(s) not in (int, float) for s in scales) or len(x.shape) != rank + 2:
        return False
    if x.shape[:2] != out.shape[:2] or (not mode.startswith("nearest") and out.dtype not in PRODUCT_TYPES):
        return False
    image, pixels = x.shape[2:], out.shape[2:]
    tables = tables_of(image, pixels, scales, mode, align, out.dtype == FLOAT64)
    kind = computed(out.dtype)
    places, weights = [], []
    for n, table in zip(pixels, tables, strict=True):
        taps = ((np.arange(n), None, None),) if table is None else table.taps
        at = np.stack([index for index, _, _ in taps]).astype(np.int32)
        by = np.stack([np.ones(n) if w is None else w for _, w, _ in taps]).astype(kind)
        for row, (_, _, ended) in zip(at, taps, strict=True):
            if ended is not None:
                row[ended] = -1
        places.append(at)
        weights.append(by)
    counts = tuple(len(p) for p in places)
    if prod(counts) > MOST_TAPS:
        return False
    has_weights = not mode.startswith("nearest")
    inputs = [x.laid]
    for at, by in zip(places, weights, strict=True):
        for array in (at, by) if has_weights else (at,):
            inputs.append(View(build.constant(array), array.shape, (array.shape[1], 1), array.dtype).laid)
    build.tile(resampled(x.dtype, counts, has_weights), inputs, [out.laid], out.shape, image, label=node.kind)
    return True


def _edges(build: StepBuilder, node: Node, views: list[View], out: View) -> bool:
    (x,) = views
    if node.kind == "aten::pad":
        mode = known(node.inputs[2])
    else:
        mode = "reflect" if "reflection" in node.kind else "replicate"
    pads = known(node.inputs[1])
    if mode not in EDGES or not isinstance(pads, list) or any(type(n) is not int for n in pads):
        return False
    rank = len(x.shape)
    if len(pads) == 1 and node.kind != "aten::pad":
        pads = pads * (2 * int(node.kind[-2]))
    if len(pads) % 2 or len(pads) > 2 * rank or len(out.shape) != rank:
        return False
    params: list[int] = []
    dims = tuple(rank - 1 - k for k in range(len(pads) // 2))
    for d, low, high in zip(dims, pads[::2], pads[1::2], strict=True):
        n = x.shape[d]
        # Other elements than the tensor has once are refused by the operator.
        most = {"reflect": n - 1, "circular": n}.get(mode)
        if out.shape[d] != n + low + high or min(low, high) < 0 or (most is not None and max(low, high) > most):
            return False
        params += [low, n]
    build.tile(edged(x.dtype, rank, dims, mode), [x.laid], [out.laid], out.shape, params, label=f"pad {mode}")
    return True


def _shuffle(build: StepBuilder, node: Node, views: list[View], out: View) -> bool:
    """Channels become pixels, or pixels channels."""
    (x,) = views
    factor = known(node.inputs[1])
    if type(factor) is not int or factor < 1 or len(x.shape) < 3:
        return False
    small, large = (x, out) if node.kind == "aten::pixel_shuffle" else (out, x)
    k = len(x.shape) - 3
    c, h, w = small.shape[k:]
    if large.shape[k:] != (c // factor**2, h * factor, w * factor) or c % factor**2:
        return False
    small = small.split(k, c // factor**2).split(k + 1, factor)
    large = large.split(k + 1, h).split(k + 3, w)
    # (channels, down, across, rows, columns), and (channels, rows, down, columns, across).
    small = _ordered(small, (*range(k + 1), k + 3, k + 1, k + 4, k + 2))
    copy(build, *((small, large) if node.kind == "aten::pixel_shuffle" else (large, small)))
    return True


def _ordered(x: View, order: tuple[int, ...]) -> View:
    return x._replace(shape=tuple(x.shape[d] for d in order), steps=tuple(x.steps[d] for d in order))


def _channels(build: StepBuilder, node: Node, views: list[View], out: View) -> bool:
    (x,) = views
    groups = known(node.inputs[1])
    if type(groups) is not int or groups < 1 or len(x.shape) < 3 or x.shape[1] % groups:
        return False
    x, out = x.split(1, groups), out.split(1, x.shape[1] // groups)
    copy(build, _ordered(x, (0, 2, 1, *range(3, len(x.shape)))), out)
    return True


def _columns(build: StepBuilder, node: Node, views: list[View], out: View) -> bool:
    (x,) = views
    numbers = [known(v) for v in node.inputs[1:]]
    if any(not isinstance(n, list) or len(n) != 2 or any(type(i) is not int for i in n) for n in numbers):
        return False
    taps, dilation, padding, stride = (tuple(n) for n in numbers)
    if len(x.shape) not in (3, 4) or len(out.shape) != len(x.shape) - 1:
        return False
    if len(x.shape) == 3:
        x, out = (v._replace(shape=(1, *v.shape), steps=(0, *v.steps)) for v in (x, out))
    image = x.shape[2:]
    places = tuple(
        (n + 2 * p - d * (t - 1) - 1) // s + 1
        for n, t, d, p, s in zip(image, taps, dilation, padding, stride, strict=True)
    )
    if out.shape != (x.shape[0], x.shape[1] * prod(taps), prod(places)):
        return False
    whole = out.split(1, x.shape[1]).split(2, taps[0]).split(4, places[0])
    windows = Windows(image, stride, padding, dilation)
    build.tile(columns(x.dtype, 2), [x.laid], [whole.laid], whole.shape, windows.numbers, label="columns")
    return True


# Parts of tensors -----------------------------------------------------------------------------------------------------


def _select_scatter(build: StepBuilder, node: Node, views: list[View], out: View) -> bool:
    x, source = views
    d, number = known(node.inputs[2]), known(node.inputs[3])
    rank = len(out.shape)
    if type(d) is not int or type(number) is not int or not -rank <= d < rank:
        return False
    d %= rank
    if not -out.shape[d] <= number < out.shape[d] or source.shape != (*out.shape[:d], *out.shape[d + 1 :]):
        return False
    restate(build, x, out)
    target = out.part(d, number % out.shape[d], 1)
    shape, steps = target.shape, target.steps
    copy(build, source, target._replace(shape=(*shape[:d], *shape[d + 1 :]), steps=(*steps[:d], *steps[d + 1 :])))
    return True


def _slice_scatter(build: StepBuilder, node: Node, views: list[View], out: View) -> bool:
    x, source = views
    d, start, end, step = map(known, node.inputs[2:])
    rank = len(out.shape)
    if type(d) is not int or type(step) is not int or step < 1 or not -rank <= d < rank:
        return False
    if any(n is not None and type(n) is not int for n in (start, end)):
        return False
    d %= rank
    places = range(*slice(start, end, step).indices(out.shape[d]))
    if not places or source.shape != (*out.shape[:d], len(places), *out.shape[d + 1 :]):
        return False
    restate(build, x, out)
    target = out.part(d, places.start, len(places))
    copy(build, source, target._replace(steps=(*out.steps[:d], out.steps[d] * step, *out.steps[d + 1 :])))
    return True


def _repeat(build: StepBuilder, node: Node, views: list[View], out: View) -> bool:
    """Each element as often as a constant says; how often must be known, as the result's shape depends on it."""
    (x,) = views
    if node.schema is None or node.schema.full_name != "aten::repeat_interleave.self_Tensor":
        return False
    repeats, d = node.inputs[1], known(node.inputs[2])
    if not repeats.is_constant or repeats.constant().ndim > 1:
        return False
    if d is None:
        if not x.lies_together:
            return False
        d, x = 0, x._replace(shape=(prod(x.shape),), steps=(1,))
    rank = len(x.shape)
    if type(d) is not int or not -rank <= d < rank or len(out.shape) != rank:
        return False
    d %= rank
    times = repeats.constant()
    if times.size not in (1, x.shape[d]) or (times < 0).any():
        return False
    places = np.repeat(np.arange(x.shape[d]), times)
    if out.shape != (*x.shape[:d], len(places), *x.shape[d + 1 :]):
        return False
    index = View(build.constant(places), places.shape, (1,), places.dtype)
    build.tile(taken(x.dtype, rank, d), [x.laid, index.laid], [out.laid], out.shape, label="repeat")
    return True


def _gate(build: StepBuilder, node: Node, views: list[View], out: View) -> bool:
    (x,) = views
    d, rank = known(node.inputs[1]), len(out.shape)
    if type(d) is not int or not -rank <= d < rank or out.dtype not in PRODUCT_TYPES:
        return False
    d %= rank
    half = out.shape[d]
    if x.shape != (*out.shape[:d], 2 * half, *out.shape[d + 1 :]):
        return False
    halves = [x.part(d, k * half, half).laid for k in range(2)]
    build.tile(gated(x.dtype, rank), halves, [out.laid], out.shape, label="glu")
    return True


# Each with the number of its operands.
_OPERATORS: dict[str, tuple[Make, int]] = {
    **dict.fromkeys(MODES, (_resample, 1)),
    **{f"aten::{name}_pad{rank}d": (_edges, 1) for name in ("reflection", "replication") for rank in (1, 2, 3)},
    "aten::pad": (_edges, 1),
    "aten::pixel_shuffle": (_shuffle, 1),
    "aten::pixel_unshuffle": (_shuffle, 1),
    "aten::channel_shuffle": (_channels, 1),
    "aten::native_channel_shuffle": (_channels, 1),
    "aten::im2col": (_columns, 1),
    "aten::select_scatter": (_select_scatter, 2),
    "aten::slice_scatter": (_slice_scatter, 2),
    "aten::repeat_interleave": (_repeat, 1),
    "aten::glu": (_gate, 1),
}
