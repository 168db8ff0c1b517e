"""Attention as a native step: ``scaled_dot_product_attention`` through the attention template."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt

import numpy as np

from gpujit.ir.dtypes import BOOL_, FLOAT32
from gpujit.ir.graph import Node, Value
from gpujit.kernels.templates import attention
from gpujit.kernels.templates.choice import Choose, quickest
from gpujit.passes.nodes import known
from gpujit.static_runtime.native import Made, of_template
from gpujit.static_runtime.places import Place
from gpujit.support.errors import ArgumentError, InternalError

_NAME = "aten::scaled_dot_product_attention"
Sizes = tuple[int, ...]


def native_attention(
    node: Node, place_of: Callable[[Value], Place | None], result: Place, choose: Choose = quickest
) -> Made | None:
    """The native step of attention of float32 tensors whose rows lie together; None for others.

    A mask is float32 and added, or bool. With dropout, and where the operator raises errors, the node is left to the
    interpreter.
    """
    if node.kind != _NAME or result.dtype != FLOAT32 or len(node.inputs) != 8:
        return None
    query, key, value, mask, dropout, causal, scale, grouped = node.inputs
    q, k, v = (_rows(place_of(x)) for x in (query, key, value))
    if q is None or k is None or v is None or known(dropout) != 0:
        return None
    is_causal, is_grouped = known(causal), known(grouped)
    if type(is_causal) is not bool or type(is_grouped) is not bool:
        return None
    lead, (queries, depth) = q.shape[:-2], q.shape[-2:]
    keys, columns = v.shape[-2:]
    if k.shape[-2:] != (keys, depth) or len(lead) not in (1, 2) or not prod(result.shape) or not keys or not depth:
        return None
    if result.shape != (*lead, queries, columns) or k.shape[:-2] != v.shape[:-2]:
        return None
    heads, theirs = lead[-1], k.shape[-3] if len(k.shape) > 2 else 1
    if is_grouped and (k.shape[:-3] != lead[:-1] or not theirs or heads % theirs):
        return None
    if not is_grouped and k.shape[:-2] != lead:
        return None
    factor = 1 / sqrt(depth)
    if not (scale.is_constant and scale.constant() is None):
        factor = known(scale)
        if type(factor) not in (int, float):
            return None
    operands, mask_steps, place = [query, key, value], None, None
    if not (mask.is_constant and mask.constant() is None):
        place = _rows(place_of(mask), FLOAT32, BOOL_)
        mask_steps = None if place is None or is_causal else _spread(place, (*lead, queries, keys))
        if mask_steps is None:
            return None
        operands.append(mask)
    elements = result.steps
    if elements is None:
        return None
    described = attention.Attention(
        prod(lead[:-1]), heads, queries, keys, depth, columns,
        _three(q.steps), _three(k.steps), _three(v.steps), _three(elements), factor, mask_steps, is_causal,
        heads // theirs if is_grouped else 1, place is not None and place.dtype == BOOL_,
    )  # fmt: skip
    try:
        bound = attention.bind(described, choose)
    except (ArgumentError, InternalError):
        return None
    # The template takes its mask last, behind the result.
    return of_template(bound, behind=len(operands) - 3), operands


def _rows(x: Place | None, *dtypes: np.dtype) -> Place | None:
    """The place of a tensor whose rows lie together, of float32 or of one of some dtypes."""
    if x is None or x.dtype not in (dtypes or (FLOAT32,)) or len(x.shape) < 2 or x.steps is None or not prod(x.shape):
        return None
    return x if x.steps[-1] == 1 or x.shape[-1] == 1 else None


def _three(steps: Sizes | None) -> tuple[int, int, int]:
    """Strides of batch, head and row."""
    assert steps is not None
    outer, inner, row = (0, *steps[:-1])[-3:]
    return outer, inner, row


def _spread(mask: Place, scores: Sizes) -> tuple[int, int, int] | None:
    """Strides of a mask spread over the scores; None when it does not fit, or has one number for all keys."""
    steps = mask.steps
    if steps is None or len(mask.shape) > len(scores) or mask.shape[-1] != scores[-1]:
        return None
    missing = len(scores) - len(mask.shape)
    shape, steps = (*[1] * missing, *mask.shape), (*[0] * missing, *steps)
    if any(n not in (1, m) for n, m in zip(shape, scores, strict=True)):
        return None
    return _three(tuple(0 if n == 1 else s for n, s in zip(shape, steps, strict=True)))
