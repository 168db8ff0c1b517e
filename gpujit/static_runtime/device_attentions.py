"""Attention as a step on a GPU: by a library; else one kernel for few scores, two products and a softmax for many.

Products of large matrices are quicker in a library, and then scores are worth writing to memory.
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite, prod, sqrt
from typing import NamedTuple

import numpy as np

from gpujit.ir import scalar
from gpujit.ir.dtypes import BOOL_, HALF_TYPES
from gpujit.ir.graph import Node, Value
from gpujit.kernels.cuda_steps import ALIGNED, StepBuilder
from gpujit.kernels.cuda_templates import attention
from gpujit.kernels.cuda_windows import computed, widened
from gpujit.kernels.index import dim, index
from gpujit.kernels.launches import Attention, Layout, Number
from gpujit.kernels.tile import Bound, TileProgram
from gpujit.kernels.tile_build import Builder
from gpujit.passes.nodes import known
from gpujit.static_runtime.device_libraries import Asked, add_call
from gpujit.static_runtime.device_tiles import MadeStep, PlaceOf
from gpujit.static_runtime.device_views import PRODUCT_TYPES, View, multiply, scratch_view, started, together
from gpujit.static_runtime.places import Place

# Scores, of half types and others, up to which they are not worth two more launches; and what they may take in memory.
FEW_HALF_SCORES, FEW_SCORES, MOST_BYTES = 1 << 19, 1 << 20, 1 << 30
# Keys that one block goes over in not much more time than launches take.
FEW_KEYS = 1024
# Numbers a head that a library's attention takes: up to so many, in multiples of so many.
MOST_LIBRARY_DEPTH, LIBRARY_DEPTHS = 256, 8
_ROOM = (1 << 31) - (1 << 24)


def device_attention(node: Node, place_of: PlaceOf, result: Place, asked: Asked | None = None) -> MadeStep | None:
    """The step of ``scaled_dot_product_attention`` of floating-point tensors of up to four dims; None for others."""
    if node.kind != "aten::scaled_dot_product_attention" or len(node.inputs) != 8 or result.dtype not in PRODUCT_TYPES:
        return None
    *values, mask, dropout, causal, scale, grouped = node.inputs
    has_mask = not (mask.is_constant and mask.constant() is None)
    operands = [*values, *([mask] if has_mask else [])]
    if known(dropout) != 0:
        return None
    is_causal, is_grouped, factor = known(causal), known(grouped), known(scale)
    if type(is_causal) is not bool or type(is_grouped) is not bool or (is_causal and has_mask):
        return None
    begun = started(operands, place_of, result, same=3)
    if begun is None:
        return None
    build, views, out = begun
    if not all(prod(v.shape) for v in (*views, out)):
        return None
    if any(not 2 <= len(v.shape) <= 4 or len(v.shape) != len(views[0].shape) for v in (*views[:3], out)):
        return None
    q, k, v, out = (_of_four(x) for x in (*views[:3], out))
    (batches, heads, queries, depth), keys, columns = q.shape, v.shape[2], v.shape[3]
    theirs = k.shape[1]
    if k.shape != (batches, theirs, keys, depth) or v.shape[:2] != k.shape[:2] or heads % theirs:
        return None
    if out.shape != (batches, heads, queries, columns) or (heads != theirs and not is_grouped):
        return None
    shown = _spread(views[3], (batches, heads, queries, keys)) if has_mask else None
    if has_mask and (shown is None or shown.dtype not in (BOOL_, result.dtype)):
        return None
    if factor is None:
        factor = 1 / sqrt(depth)
    if type(factor) not in (int, float):
        return None
    bias = _Bias(views[3], mask) if has_mask else None
    done = (
        (asked is not None and _by_library(build, (q, k, v), bias, out, float(factor), is_causal, asked))
        or _fused(build, (q, k, v), shown, out, float(factor), is_causal)
        or _composed(build, (q, k, v), shown, out, float(factor), is_causal)
    )
    return (build.finish(), operands) if done else None


def _of_four(x: View) -> View:
    """The view as (batch, heads, rows, numbers)."""
    missing = 4 - len(x.shape)
    return x._replace(shape=(*[1] * missing, *x.shape), steps=(*[0] * missing, *x.steps))


def _spread(mask: View, scores: tuple[int, ...]) -> View | None:
    """A mask broadcast to all scores; None when it does not fit."""
    if len(mask.shape) > 4:
        return None
    mask = _of_four(mask)
    if any(n not in (1, m) for n, m in zip(mask.shape, scores, strict=True)):
        return None
    return mask._replace(
        shape=scores, steps=tuple(0 if n == 1 else s for n, s in zip(mask.shape, mask.steps, strict=True))
    )


# By a library ---------------------------------------------------------------------------------------------------------


class _Bias(NamedTuple):
    """What is added to scores, or says which are hidden: as it lies, and as the node reads it."""

    view: View
    value: Value


def _by_library(
    build: StepBuilder,
    sides: tuple[View, View, View],
    bias: _Bias | None,
    out: View,
    factor: float,
    is_causal: bool,
    asked: Asked,
) -> bool:
    refusal = _refusal((*sides, out), bias, factor)
    if refusal:
        asked.refuse(refusal)
        return False
    views = [*sides, *([] if bias is None else [_of_four(bias.view)]), out]
    q, k, v, *added, to = (_layout(x) for x in views)
    work = Attention(q, k, v, to, added[0] if added else None, factor, is_causal, out.dtype)
    arrays = [x.at for x in views]
    room = asked.room(work, arrays)
    if room is None:
        return False
    add_call(build, work, arrays, room)
    return True


def _refusal(views: tuple[View, ...], bias: _Bias | None, factor: float) -> str:
    """Why a library's results might not be those of the operator; empty when they are."""
    size = views[0].dtype.itemsize
    if views[0].dtype not in HALF_TYPES:
        return "cuDNN's attention is for float16 and bfloat16: others would be rounded"
    if bias is not None and not _is_finite(bias):
        return "cuDNN does not say what a row becomes whose keys are all hidden, and this mask may hide them"
    if not (isfinite(factor) and factor > 0):
        return "cuDNN's attention takes scales above 0"
    if any(x.shape[3] > MOST_LIBRARY_DEPTH or x.shape[3] % LIBRARY_DEPTHS for x in views):
        return f"cuDNN's attention takes up to {MOST_LIBRARY_DEPTH} numbers a head, in multiples of {LIBRARY_DEPTHS}"
    for x in views:
        if x.steps[3] != 1 or any(
            n > 1 and (s <= 0 or s * size % ALIGNED) for n, s in zip(x.shape[:3], x.steps, strict=False)
        ):
            return f"cuDNN's attention takes rows that lie together and begin at multiples of {ALIGNED} bytes"
    return ""


def _is_finite(bias: _Bias) -> bool:
    """Whether a bias is known, and hides nothing."""
    if bias.view.dtype == BOOL_ or not bias.value.is_constant:
        return False
    return bool(np.isfinite(bias.value.constant().astype(np.float32)).all())


def _layout(x: View) -> Layout:
    """A view as libraries see it: along a dim of one element there is no stride to tell."""
    usual = together(x.shape)
    return Layout(x.shape, tuple(u if n == 1 else s for n, s, u in zip(x.shape, x.steps, usual, strict=True)))


# One kernel -----------------------------------------------------------------------------------------------------------


def _fused(
    build: StepBuilder, sides: tuple[View, View, View], mask: View | None, out: View, factor: float, is_causal: bool
) -> bool:
    q, k, v = sides
    (batches, heads, queries, depth), (_, theirs, keys, columns) = q.shape, v.shape
    scores = batches * heads * queries * keys
    few = FEW_HALF_SCORES if out.dtype in HALF_TYPES else FEW_SCORES
    is_few = scores <= few and keys <= FEW_KEYS
    if not attention.takes(out.dtype) or (not is_few and scores * out.dtype.itemsize <= MOST_BYTES):
        return False
    views = (q, k, v, out, *(() if mask is None else (mask,)))
    if any(abs(s) >= _ROOM for x in views for s in x.steps) or scores // keys >= _ROOM:
        return False
    if any(x.steps[3] != 1 and x.shape[3] != 1 for x in (q, k, v, out)):
        return False
    kind = None if mask is None else mask.dtype
    spec = attention.spec_of(out.dtype, depth, columns, kind, is_causal, batches * heads, queries)
    if spec is None:
        return False
    numbers = [batches, heads, heads // theirs, queries, keys, *q.steps[:3], *k.steps[:3], *v.steps[:3]]
    numbers += [*out.steps[:3], *(() if mask is None else mask.steps)]
    pointers = [(_pointed(x.dtype), x.at) for x in (q, k, v, *(() if mask is None else (mask,)), out)]
    build.kernel(
        attention.source(spec),
        "attention",
        spec.block,
        attention.grid(spec, batches, heads, queries),
        [*pointers, *(Number(n, "int32") for n in numbers), Number(factor, "float32")],
    )
    return True


def _pointed(dtype: np.dtype) -> str:
    return "uint16" if dtype in HALF_TYPES else "uint8" if dtype == BOOL_ else dtype.name


# Products and a softmax -----------------------------------------------------------------------------------------------


def _composed(
    build: StepBuilder, sides: tuple[View, View, View], mask: View | None, out: View, factor: float, is_causal: bool
) -> bool:
    q, k, v = sides
    heads, theirs = q.shape[1], k.shape[1]
    if heads != theirs:
        # Heads of queries that share one of keys are one more dim.
        q, out = (x.split(1, theirs) for x in (q, out))
        k, v = (
            x._replace(shape=(*x.shape[:2], 1, *x.shape[2:]), steps=(*x.steps[:2], 0, *x.steps[2:])) for x in (k, v)
        )
    scores = scratch_view(build, (*out.shape[:-1], k.shape[-2]), out.dtype)
    if not multiply(build, q, k.turned, scores, factor):
        return False
    whole = scores._replace(shape=(q.shape[0], heads, *scores.shape[-2:]))
    keys, queries = whole.shape[3], whole.shape[2]
    whole = whole._replace(steps=(heads * queries * keys, queries * keys, keys, 1))
    inputs = [whole, *([] if mask is None else [mask])]
    program = softmax(out.dtype, None if mask is None else mask.dtype, is_causal)
    build.tile(program, [x.laid for x in inputs], [whole.laid], whole.shape, label="softmax")
    return multiply(build, scores, v, out)


@lru_cache(maxsize=32)
def softmax(dtype: np.dtype, mask: np.dtype | None, is_causal: bool) -> TileProgram:
    """Scores (batch, heads, queries, keys) as weights; a row whose keys are all hidden becomes zeros."""
    builder = Builder(4, 1)
    at = [dim(k) for k in range(4)]
    x = widened(builder.load(builder.input(dtype, 4), at))
    hidden = scalar.const(-np.inf, computed(dtype))
    if is_causal:
        x = scalar.where(builder.inside(Bound(index(0), dim(3), dim(2) + 1)), x, hidden)
    if mask is not None:
        shown = builder.load(builder.input(mask, 4), at)
        x = scalar.where(shown, x, hidden) if mask == BOOL_ else scalar.apply("add", x, widened(shown))
    top = scalar.reduce("max", x)
    is_safe = mask is not None or is_causal
    if is_safe:
        top = scalar.where(scalar.apply("eq", top, hidden), scalar.const(0.0, top.dtype), top)
    weight = scalar.apply("exp", scalar.apply("sub", x, top))
    total = scalar.reduce("sum", weight)
    if is_safe:
        none = scalar.apply("eq", total, scalar.const(0.0, total.dtype))
        total = scalar.where(none, scalar.const(1.0, total.dtype), total)
    builder.store(builder.output(dtype, 4), at, scalar.cast(scalar.apply("div", weight, total), dtype))
    return builder.finish()
