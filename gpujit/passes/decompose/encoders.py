"""The layers that transformers' fast path is one operator for, written out: projections, attention, norms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import BOOL_, FLOAT32, FLOAT64
from gpujit.ir.graph import Node, Value
from gpujit.passes.decompose.writing import Writer, known_dtype
from gpujit.passes.peephole.facts import constant_of, known_shape, number_of


def multi_head_attention(write: Writer, node: Node) -> list[Value] | str:
    """``_native_multi_head_attention`` whose probabilities nobody reads."""
    query, key, value, width, heads, *weights, mask, _, _, kind = node.inputs
    if node.outputs[1].uses:
        return "its probabilities are read"
    y = _attended(write, (query, key, value), (width, heads), weights, (mask, kind))
    return y if isinstance(y, str) else [y, write.constant(None)]


def encoder_layer(write: Writer, node: Node) -> Value | str:
    """``_transformer_encoder_layer_fwd``."""
    x, width, heads = node.inputs[:3]
    attention, eps = node.inputs[3:7], number_of(node.inputs[9])
    is_gelu, is_first = map(constant_of, node.inputs[7:9])
    norms, network, (mask, kind) = node.inputs[10:14], node.inputs[14:18], node.inputs[18:20]
    if type(is_gelu) is not bool or type(is_first) is not bool or type(eps) is not float:
        return "options are not known"
    shape = known_shape(x)
    if shape is None or len(shape) != 3:
        return "shapes are not known"

    def norm(y: Value, weight: Value, bias: Value) -> Value:
        return write("layer_norm", y, list(shape[2:]), weight, bias, eps, False)

    given = norm(x, *norms[:2]) if is_first else x
    attended = _attended(write, (given, given, given), (width, heads), attention, (mask, kind))
    if isinstance(attended, str):
        return attended
    y = write("add.Tensor", attended, x, 1)
    residual = y if is_first else norm(y, *norms[:2])
    y = write("linear", norm(y, *norms[2:]) if is_first else residual, *network[:2])
    y = write("gelu", y, "none") if is_gelu else write("relu", y)
    y = write("add.Tensor", write("linear", y, *network[2:]), residual, 1)
    return y if is_first else norm(y, *norms[2:])


def _attended(
    write: Writer,
    tensors: tuple[Value, Value, Value],
    numbers: tuple[Value, Value],
    weights: Sequence[Value],
    masks: tuple[Value, Value],
) -> Value | str:
    """Attention of projected tensors, projected. Its weights are (in, in, out, out)."""
    width, heads = map(constant_of, numbers)
    shapes = [known_shape(x) for x in tensors]
    dtype = known_dtype(*tensors, *weights)
    if dtype not in (FLOAT32, FLOAT64) or any(s is None or len(s) != 3 or 0 in s for s in shapes):
        return "shapes and one dtype are not known"
    if type(width) is not int or type(heads) is not int or heads < 1 or width % heads:
        return "the number of heads is not known"
    into, bias = weights[:2]
    sizes = [s for s in shapes if s is not None]
    if known_shape(into) != (3 * width, width) or any(s[2] != width for s in sizes):
        return "the operator refuses it"
    (batch, queries, _), (_, keys, _) = sizes[:2]
    mask = _mask(write, *masks, (batch, heads, queries, keys), dtype)
    if isinstance(mask, str):
        return mask
    parts = []
    if tensors[0] is tensors[1] is tensors[2]:
        whole = write("reshape", write("linear", tensors[0], into, bias), [batch, queries, 3, heads, width // heads])
        parts = [write("transpose.int", write("select.int", whole, 2, k), 1, 2) for k in range(3)]
    else:
        for k, x in enumerate(tensors):
            rows = [write("slice.Tensor", w, 0, k * width, (k + 1) * width, 1) for w in (into, bias)]
            y = write("reshape", write("linear", x, *rows), [batch, -1, heads, width // heads])
            parts.append(write("transpose.int", y, 1, 2))
    y = write("scaled_dot_product_attention", *parts, mask, 0.0, False, None, False)
    y = write("reshape", write("transpose.int", y, 1, 2), [batch, queries, width])
    return write("linear", y, *weights[2:])


def _mask(write: Writer, mask: Value, kind: Value, scores: tuple[int, ...], dtype: np.dtype) -> Value | str:
    """The mask as attention takes it: what may be seen, or what is added."""
    if mask.type == T.NONE:
        return mask
    shape, asked = known_shape(mask), constant_of(kind)
    if shape is None:
        return "the mask's shape is not known"
    if known_dtype(mask) == dtype:
        fits = len(shape) <= 4 and all(n in (1, m) for n, m in zip(shape[::-1], scores[::-1], strict=False))
        return mask if fits else "the operator refuses it"
    if known_dtype(mask) != BOOL_:
        return "the mask's dtype is not known"
    if asked == 1 and shape == (scores[0], scores[3]):
        return write("reshape", write("logical_not", mask), [scores[0], 1, 1, scores[3]])
    if shape == scores or (asked == 0 and shape == scores[2:]):
        return write("logical_not", mask)
    return "the operator refuses it"
