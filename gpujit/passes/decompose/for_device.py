"""Operators that a GPU has no kernel for, written out in some that it has.

On the CPU each runs in one piece; on a GPU the host would run it, and its tensors would go there and back. Shapes are
known by then. Where the parts would take a multiple of the operator's memory, or where what they do with wrong numbers
differs, the operator stays.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import FLOAT32, FLOAT64, INT64, code_of
from gpujit.ir.graph import Graph, Node, Value
from gpujit.passes.base import declined, graph_pass
from gpujit.passes.decompose.complexes import POINTWISE, TRANSFORMS, is_complex
from gpujit.passes.decompose.encoders import encoder_layer, multi_head_attention
from gpujit.passes.decompose.grids import affine_grid, grid_sample
from gpujit.passes.decompose.writing import Writer, known_dtype, numbers_of
from gpujit.passes.nodes import replace_node
from gpujit.passes.peephole.facts import constant_of, full_name, known_shape, number_of

# Elements of what is compared with each other at most, and of products of which but some are wanted.
MOST_COMPARED, MOST_PRODUCTS = 1 << 24, 1 << 26
_REAL = (FLOAT32, FLOAT64)


@graph_pass("write_out_for_device")
def write_out_for_device(graph: Graph) -> bool:
    """Write out the operators in ``OPERATORS`` whose types are known."""
    changed = False
    while True:
        nodes = [n for n in graph.all_nodes() if _rewrite_of(n) is not None]
        # What is written out may have parts that can be, too.
        replaced = [_replaced(node) for node in nodes]
        if not any(replaced):
            return changed
        changed = True


def _rewrite_of(node: Node) -> Rewrite | None:
    name = full_name(node)
    if name in OPERATORS:
        return OPERATORS[name]
    found = None if name is None else _OF_COMPLEX.get(name)
    return found if found is not None and any(map(is_complex, node.inputs)) else None


def _replaced(node: Node) -> bool:
    before, rewrite = node.prev, _rewrite_of(node)
    assert rewrite is not None
    result = rewrite(Writer(node), node)
    if isinstance(result, str):
        declined("write_out_for_device", node, result)
        while node.prev is not None and node.prev is not before:
            node.prev.destroy()
        return False
    replace_node(node, result if isinstance(result, list) else [result])
    return True


# Products -------------------------------------------------------------------------------------------------------------


def _outer(write: Writer, node: Node) -> Value | str:
    return _outer_product(write, *node.inputs[:2])


def _outer_product(write: Writer, a: Value, b: Value) -> Value | str:
    if len(known_shape(a) or ()) != 1 or len(known_shape(b) or ()) != 1:
        return "they are no vectors of known sizes"
    return write("mul.Tensor", write("unsqueeze", a, 1), b)


def _addr(write: Writer, node: Node) -> Value | str:
    x, a, b, beta, alpha = node.inputs
    if known_dtype(x, a, b) not in _REAL or number_of(beta) != 1 or type(number_of(alpha)) not in (int, float):
        return "dtypes or factors are not known, or it adds nothing"
    outer = _outer_product(write, a, b)
    return outer if isinstance(outer, str) else write("add.Tensor", x, outer, alpha)


def _cross(write: Writer, node: Node) -> Value | str:
    a, b = node.inputs[:2]
    d, shape = constant_of(node.inputs[2]), known_shape(a)
    if shape is None or shape != known_shape(b) or known_dtype(a, b) is None:
        return "shapes and one dtype are not known"
    if d is None:
        d = next((k for k, n in enumerate(shape) if n == 3), None)
    if type(d) is not int or not -len(shape) <= d < len(shape) or shape[d] != 3:
        return "the dim is not known, or has not 3 elements"
    first = write("mul.Tensor", write("roll", a, [-1], [d]), write("roll", b, [-2], [d]))
    second = write("mul.Tensor", write("roll", a, [-2], [d]), write("roll", b, [-1], [d]))
    return write("sub.Tensor", first, second)


def _cdist(write: Writer, node: Node) -> Value | str:
    a, b = node.inputs[:2]
    p, shapes = number_of(node.inputs[2]), (known_shape(a), known_shape(b))
    if known_dtype(a, b) not in _REAL or shapes[0] is None or shapes[1] is None or p not in (1, 2):
        return "dtype, shapes or a norm of 1 or 2 are not known"
    if min(len(shapes[0]), len(shapes[1])) < 2 or not prod(shapes[0]) or not prod(shapes[1]):
        return "there is nothing to measure"
    one = write("sub.Tensor", write("unsqueeze", a, -2), write("unsqueeze", b, -3))
    if p == 1:
        return write("sum.dim_IntList", write("abs", one), [-1], False)
    return write("sqrt", write("sum.dim_IntList", write("mul.Tensor", one, one), [-1], False))


def _grouped(write: Writer, node: Node) -> Value | str:
    """Rows of one matrix by the matrix of their group: all products, of which each row takes its own."""
    a, b, ends, bias, dtype = node.inputs
    left, right, count = known_shape(a), known_shape(b), known_shape(ends)
    if left is None or right is None or count is None or known_dtype(a, b) not in _REAL:
        return "dtype or shapes are not known"
    if (len(left), len(right), len(count)) != (2, 3, 1) or count[0] != right[0] or 0 in (*left, *right):
        return "it is not rows that are grouped"
    if constant_of(bias) is not None or constant_of(dtype) is not None:
        return "it does more than the product"
    if right[0] * left[0] * right[2] > MOST_PRODUCTS:
        return "all products would take too much memory"
    places = write(np.arange(left[0]))
    ends = write("to.dtype", ends, code_of(INT64))
    # Ends that are not behind a row; rows behind the last one are zeros.
    number = write("sum.dim_IntList", write("le.Tensor", ends, write("unsqueeze", places, 1)), [1], False)
    inside = write("lt.Scalar", number, right[0])
    number = write("clamp", number, 0, right[0] - 1)
    index = write("expand", write("reshape", number, [1, left[0], 1]), [1, left[0], right[2]])
    found = write("squeeze.dim", write("gather", write("matmul", a, b), 0, index), 0)
    return write("where.ScalarOther", write("unsqueeze", inside, 1), found, 0.0)


def _outer_einsum(write: Writer, node: Node) -> Value | str:
    """Products of tensors of any dtypes of which nothing is added up; of one tensor, a view."""
    equation, made = constant_of(node.inputs[0]), node.inputs[1].node
    if not isinstance(equation, str) or made.kind != "prim::ListConstruct" or not made.inputs:
        return "equation or tensors are not known"
    sides, arrow, out = equation.replace(" ", "").partition("->")
    letters = sides.split(",")
    if not arrow or any((s and not s.isalpha()) or len(set(s)) != len(s) for s in (*letters, out)):
        return "the equation has not tensors of plain letters, each once"
    if len(letters) != len(made.inputs) or {*"".join(letters)} != {*out}:
        return "something is added up"
    product = None
    for value, own in zip(made.inputs, letters, strict=True):
        shape = known_shape(value)
        if shape is None or len(shape) != len(own):
            return "shapes are not known"
        part = write("permute", value, [own.index(c) for c in out if c in own])
        for k, c in enumerate(out):
            if c not in own:
                part = write("unsqueeze", part, k)
        product = part if product is None else write("mul.Tensor", product, part)
    return "there is nothing" if product is None else product


# Attention ------------------------------------------------------------------------------------------------------------


def _attention(write: Writer, node: Node) -> Value | str:
    """Queries, keys and values as those of one kernel: broadcast, and of at most four dims."""
    q, k, v, mask, *rest = node.inputs
    shapes = [known_shape(x) for x in (q, k, v)]
    if any(s is None or len(s) < 2 for s in shapes) or known_dtype(q, k, v) is None or constant_of(rest[3]):
        return "shapes and one dtype are not known"
    wide = max(len(s) for s in shapes if s is not None)
    leads = [(*[1] * (wide - len(s)), *s[:-2]) for s in shapes if s is not None]
    try:
        lead = np.broadcast_shapes(*leads)
    except ValueError:
        return "the operator refuses it"
    if all(s == lead for s in leads) and wide <= 4:
        return "it is so already"
    masks = known_shape(mask)
    if mask.type != T.NONE and (masks is None or (len(masks) > 2 and prod(lead) > 1)):
        masks = None if masks is None else np.broadcast_shapes(masks, (*lead, 1, 1))
        if masks is None or masks[:-2] != lead:
            return "the mask has more dims"
        mask = write("expand", mask, list(masks))
    found = []
    for x, s in zip((q, k, v), shapes, strict=True):
        assert s is not None
        x = write("expand", x, [*lead, *s[-2:]])
        found.append(write("reshape", x, [prod(lead[:-1]), *lead[-1:], *s[-2:]]) if wide > 4 else x)
    if wide > 4 and masks is not None and len(masks) > 2:
        mask = write("reshape", mask, [prod(lead[:-1]), *lead[-1:], *masks[-2:]])
    y = write("scaled_dot_product_attention", *found, mask, *rest)
    last = known_shape(y)
    return write("reshape", y, [*lead, *last[-2:]]) if wide > 4 and last is not None else y


# Moves ----------------------------------------------------------------------------------------------------------------


def _roll(write: Writer, node: Node) -> Value | str:
    x, (shifts, dims) = node.inputs[0], map(numbers_of, node.inputs[1:3])
    shape = known_shape(x)
    if shape is None or shifts is None or dims != [] or len(shifts) != 1 or not prod(shape):
        return "it goes along dims"
    return write("reshape", write("roll", write("reshape", x, [-1]), shifts, [0]), list(shape))


def _rot90(write: Writer, node: Node) -> Value | str:
    x, turns, dims = node.inputs[0], number_of(node.inputs[1]), numbers_of(node.inputs[2])
    shape = known_shape(x)
    if shape is None or type(turns) is not int or dims is None or len(dims) != 2 or not turns % 4:
        return "numbers are not known, or nothing turns"
    planes = {1: dims[1:], 2: dims, 3: dims[:1]}[turns % 4]
    y = write("flip", x, planes)
    return write("clone", write("transpose.int", y, *dims)) if turns % 2 else y


def _col2im(write: Writer, node: Node) -> Value | str:
    """Each pixel as the sum of the places in columns that it went to."""
    x, shape = node.inputs[0], known_shape(node.inputs[0])
    numbers = [_pair(numbers_of(v)) for v in node.inputs[1:]]
    if shape is None or len(shape) not in (2, 3) or any(n is None for n in numbers) or not prod(shape):
        return "shape and numbers are not known"
    sizes, taps, dilation, padding, stride = (n for n in numbers if n is not None)
    axes = []
    for n, t, d, p, s in zip(sizes, taps, dilation, padding, stride, strict=True):
        count = (n + 2 * p - d * (t - 1) - 1) // s + 1
        # The position of the window in which a tap meets a pixel, and whether there is one.
        at = np.arange(n)[:, None] + p - d * np.arange(t)
        axes.append((at // s, (at % s == 0) & (at >= 0) & (at < count * s), count))
    (rows, has_row, high), (columns, has_column, across) = axes
    places = high * across
    if shape[-1] != places or shape[-2] % prod(taps):
        return "the operator refuses it"
    tap = np.arange(taps[0])[:, None] * taps[1] + np.arange(taps[1])
    # [height, width, taps down, taps across]
    index = tap * places + rows[:, None, :, None] * across + columns[None, :, None, :]
    inside = has_row[:, None, :, None] & has_column[None, :, None, :]
    flat = write("reshape", x, [*shape[:-2], shape[-2] // prod(taps), prod(taps) * places])
    found = write("index_select", flat, -1, write(np.where(inside, index, 0).reshape(-1)))
    lead = [*shape[:-2], shape[-2] // prod(taps)]
    found = write("reshape", found, [*lead, *sizes, prod(taps)])
    found = write("where.ScalarOther", write(inside.reshape(*sizes, -1)), found, 0.0)
    return write("sum.dim_IntList", found, [-1], False)


def _pair(numbers: list[int] | None) -> list[int] | None:
    return None if numbers is None or len(numbers) not in (1, 2) else numbers * (3 - len(numbers))


def _diag(write: Writer, node: Node) -> Value | str:
    x, offset = node.inputs[0], number_of(node.inputs[1])
    shape = known_shape(x)
    if shape is None or type(offset) is not int or len(shape) not in (1, 2):
        return "shape or offset are not known"
    if len(shape) == 2:
        return write("clone", write("diagonal", x, offset))
    return _on_diagonal(write, x, shape[0], offset)


def _on_diagonal(write: Writer, x: Value, n: int, offset: int) -> Value | str:
    """Zeros but for the diagonal of the last two dims."""
    if known_dtype(x) not in _REAL or not n:
        return "the dtype is not known to be float32 or float64"
    size = n + abs(offset)
    mask = np.eye(size, k=offset, dtype=bool)
    pads = [offset, 0] if offset > 0 else [0, -offset]
    row = write("constant_pad_nd", x, pads, 0) if offset else x
    return write("where.ScalarOther", write(mask), write("unsqueeze", row, -2), 0.0)


def _diag_embed(write: Writer, node: Node) -> Value | str:
    x, *rest = node.inputs
    offset, first, second = map(number_of, rest)
    shape = known_shape(x)
    if not shape or type(offset) is not int or (first, second) != (-2, -1):
        return "shape or dims are not known, or not the last ones"
    return _on_diagonal(write, x, shape[-1], offset)


def _trace(write: Writer, node: Node) -> Value | str:
    if known_dtype(node.inputs[0]) not in _REAL:
        return "the dtype is not known to be float32 or float64"
    return write("sum", write("diagonal", node.inputs[0]))


def _unfold_copy(write: Writer, node: Node) -> Value:
    return write("clone", write("unfold", *node.inputs))


def _zeros_like(write: Writer, node: Node) -> Value | str:
    """What has no values yet, and may have any."""
    if known_shape(node.inputs[0]) is None:
        return "the shape is not known"
    return write("zeros_like", *node.inputs)


# Search ---------------------------------------------------------------------------------------------------------------


def _histc(write: Writer, node: Node) -> Value | str:
    x, bins, low, high = node.inputs[0], *map(number_of, node.inputs[1:])
    dtype, shape = known_dtype(x), known_shape(x)
    if dtype not in _REAL or shape is None or type(bins) is not int or bins < 1 or not prod(shape):
        return "dtype, shape or bins are not known"
    if not all(type(n) in (int, float) and np.isfinite(n) for n in (low, high)) or not low < high:
        return "the range is that of the data"
    low, high = (float(dtype.type(n)) for n in (low, high))
    x = write("reshape", x, [-1])
    inside = write("logical_and", write("ge.Scalar", x, low), write("le.Scalar", x, high))
    span = float(dtype.type(high) - dtype.type(low))
    slot = write("div.Scalar", write("mul.Scalar", write("sub.Scalar", x, low), bins), span)
    slot = write("to.dtype", write("where.ScalarOther", inside, slot, 0.0), code_of(INT64))
    slot = write("clamp", slot, 0, bins - 1)
    if bins * prod(shape) > MOST_COMPARED:
        return "there are too many bins"
    hit = write("eq.Tensor", write(np.arange(bins)[:, None]), slot)
    counts = write("sum.dim_IntList", write("logical_and", hit, inside), [1], False)
    return write("to.dtype", counts, code_of(dtype))


def _found(write: Writer, edges: Value, x: Value, is_right: Any, is_int32: Any, has_rows: bool) -> Value | str:
    """How many edges come before each number; NaN comes after all."""
    sizes, shape = known_shape(edges), known_shape(x)
    if sizes is None or shape is None or not sizes or type(is_right) is not bool or type(is_int32) is not bool:
        return "shapes are not known"
    if prod(sizes[-1:]) * prod(shape) > MOST_COMPARED or known_dtype(edges, x) is None or 0 in (*sizes, *shape):
        return "there are too many edges, or dtypes differ"
    if has_rows:
        edges = write("unsqueeze", edges, -2)
    x = write("unsqueeze", x, -1)
    behind = write("logical_not", write("gt.Tensor" if is_right else "ge.Tensor", edges, x))
    count = write("sum.dim_IntList", behind, [-1], False)
    return write("to.dtype", count, code_of(np.dtype(np.int32))) if is_int32 else count


def _bucketize(write: Writer, node: Node) -> Value | str:
    x, edges, is_int32, is_right = node.inputs
    return _found(write, edges, x, constant_of(is_right), constant_of(is_int32), False)


def _searchsorted(write: Writer, node: Node) -> Value | str:
    edges, x, is_int32, is_right, side, sorter = node.inputs
    named, sizes, shape = constant_of(side), known_shape(edges), known_shape(x)
    if constant_of(sorter) is not None or named not in (None, "left", "right") or sizes is None or shape is None:
        return "the edges are sorted by another tensor, or shapes are not known"
    if len(sizes) > 1 and sizes[:-1] != shape[:-1]:
        return "the operator refuses it"
    right = constant_of(is_right) if named is None else named == "right"
    return _found(write, edges, x, right, constant_of(is_int32), len(sizes) > 1)


def _isin(write: Writer, node: Node) -> Value | str:
    x, tests, _, invert = node.inputs
    shape, sizes = known_shape(x), known_shape(tests)
    if shape is None or sizes is None or not prod(sizes) or not prod(shape) or type(constant_of(invert)) is not bool:
        return "shapes are not known"
    if prod(shape) * prod(sizes) > MOST_COMPARED or known_dtype(x, tests) is None:
        return "there is too much to compare, or dtypes differ"
    found = write("any.dim", write("eq.Tensor", write("unsqueeze", x, -1), write("reshape", tests, [-1])), -1)
    return write("logical_not", found) if constant_of(invert) else found


def _masked_scatter(write: Writer, node: Node) -> Value | str:
    """Elements of the source in order, one for each place where the mask holds."""
    x, mask, source = node.inputs
    shape, sizes = known_shape(x), known_shape(source)
    if shape is None or sizes is None or known_shape(mask) is None or known_dtype(x, source) is None:
        return "shapes and one dtype are not known"
    if np.broadcast_shapes(shape, known_shape(mask) or ()) != shape or not prod(sizes) or not prod(shape):
        return "the mask has more elements"
    if known_dtype(mask) != np.dtype(bool):
        return "the mask is not known to be bool"
    wide = write("expand", mask, list(shape))
    flat = write("to.dtype", write("reshape", wide, [-1]), code_of(INT64))
    place = write("clamp_min", write("sub.Scalar", write("cumsum", flat, 0), 1), 0)
    # Where the mask does not hold nothing is read; one element too many is refused.
    place = write("mul.Tensor", place, flat)
    found = write("index_select", write("reshape", source, [-1]), 0, place)
    return write("where.self", wide, write("reshape", found, list(shape)), x)


Rewrite = Callable[[Writer, Node], "Value | list[Value] | str"]

OPERATORS: dict[str, Rewrite] = {
    f"aten::{name}": rewrite
    for name, rewrite in {
        **dict.fromkeys(("outer", "ger"), _outer),
        "addr": _addr,
        **dict.fromkeys(("cross", "linalg_cross"), _cross),
        "cdist": _cdist,
        "_grouped_mm": _grouped,
        "einsum": _outer_einsum,
        "scaled_dot_product_attention": _attention,
        "_native_multi_head_attention": multi_head_attention,
        "_transformer_encoder_layer_fwd": encoder_layer,
        "roll": _roll,
        "rot90": _rot90,
        "col2im": _col2im,
        "diag": _diag,
        "diag_embed": _diag_embed,
        "trace": _trace,
        "unfold_copy": _unfold_copy,
        "empty_like": _zeros_like,
        "histc": _histc,
        "bucketize.Tensor": _bucketize,
        "searchsorted.Tensor": _searchsorted,
        "isin.Tensor_Tensor": _isin,
        "masked_scatter": _masked_scatter,
        "affine_grid_generator": affine_grid,
        **dict.fromkeys(("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), grid_sample),
        **TRANSFORMS,
    }.items()
}
_OF_COMPLEX: dict[str, Rewrite] = {f"aten::{name}": rewrite for name, rewrite in POINTWISE.items()}
