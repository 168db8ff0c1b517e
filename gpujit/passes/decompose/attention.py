"""``softmax(Q K^T * scale + mask) V`` written out in parts, made one ``aten::scaled_dot_product_attention``.

Recognised are the forms in which libraries of models write it: ``matmul``, ``bmm`` or ``baddbmm``; the scale by ``mul``
or ``div`` on the query, the key or the scores; masks that are added, or filled in by ``masked_fill`` or ``where``;
casts around the softmax; views that split and join leading dims of the scores, as masks of windows need them; dropout
outside training.

The fused operator gives zeros for a row whose keys are all hidden by minus infinity, where softmax gives NaN. So a mask
is taken only when it is known to hold finite numbers, or to be a constant that leaves each row a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import ml_dtypes
import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import BOOL_, FLOAT32, HALF_TYPES
from gpujit.ir.graph import Graph, Node, Value
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.base import declined, graph_pass
from gpujit.passes.nodes import constant_before, insert_op, replace_node
from gpujit.passes.peephole.bounds import bounds_of, is_finite
from gpujit.passes.peephole.facts import (
    NOT_CONSTANT,
    constant_of,
    dtype_of,
    full_name,
    has_dtype,
    is_int,
    known_shape,
    number_of,
    rank_of,
    remove_unread,
    shape_of,
)

_MATMULS = ("aten::matmul", "aten::bmm")
_SDPA = "aten::scaled_dot_product_attention"


@graph_pass("attention_patterns")
def fuse_attention(graph: Graph) -> bool:
    """Replace attention written out in parts by the operator for it."""
    last = [node for node in graph.all_nodes() if full_name(node) in _MATMULS and _softmax_of(node.inputs[0])]
    if not last:
        return False
    alias = AliasAnalysis(graph)
    changed = False
    for node in last:
        found = _match(node, alias)
        if isinstance(found, str):
            declined("attention_patterns", node, found)
            continue
        _replace(node, found)
        changed = True
    return changed


@dataclass(slots=True)
class _Attention:
    """What the parts compute: ``scale`` times query and key, and masks.

    All of ``added`` are added to the scores. ``hiding`` is bool and hides the keys where it is equal to ``hidden``:
    their scores become ``fill``, before the other masks are added when ``hides_first``.
    """

    query: Value
    key: Value
    value: Value
    key_is_transposed: bool = True
    scale: float = 1.0
    added: list[_Mask] = field(default_factory=list)
    hiding: _Mask | None = None
    hidden: bool = True
    fill: float = 0.0
    hides_first: bool = False
    # Tensors that scale whole rows of scores, so that they may scale the query instead.
    factors: list[Value] = field(default_factory=list)
    # All nodes of the pattern whose results nobody else may read, last one first.
    parts: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class _Mask:
    """A tensor that fits the scores, once it is seen through ``views``: (operator, sizes), the first one first."""

    value: Value
    views: list[tuple[str, list[int]]] = field(default_factory=list)

    @property
    def sizes(self) -> tuple[int | None, ...] | None:
        """Its shape as the scores see it."""
        return tuple(self.views[-1][1]) if self.views else shape_of(self.value)

    def before(self, node: Node) -> Value:
        """The value that fits the scores."""
        found = self.value
        for name, sizes in self.views:
            list_ = constant_before(node, list(sizes), T.ListType(T.INT))
            rest = (constant_before(node, False, T.BOOL),) if name == "aten::expand" else ()
            found = insert_op(node, name, (found, list_, *rest), node)
        return found


def _softmax_of(value: Value) -> Node | None:
    """The softmax that made the probabilities, through what leaves them as they are."""
    while (name := full_name(value.node)) not in ("aten::softmax.int", "aten::_softmax"):
        if name not in _UNCHANGED and name != "aten::dropout":
            return None
        value = value.node.inputs[0]
    return value.node


# Nodes that change a tensor's dtype or memory only. Which dtypes are met is checked on the types.
_UNCHANGED = frozenset((
    "aten::to.dtype", "aten::to.prim_dtype", "aten::to.other", "aten::to.device", "aten::to.dtype_layout",
    "aten::type_as", "aten::contiguous", "aten::clone", "aten::detach", "aten::alias",
))  # fmt: skip


def _match(node: Node, alias: AliasAnalysis) -> _Attention | str:
    """The attention whose last product is ``node``, or why it is none."""
    found = _Attention(node.inputs[0], node.inputs[0], node.inputs[1])
    dtype = dtype_of(found.value)
    if dtype is None or dtype.kind not in "fV":
        return f"the values are {found.value.type}, a floating dtype has to be known"
    wide = FLOAT32 if dtype in HALF_TYPES else dtype
    value = node.inputs[0]
    while True:
        part = value.node
        fault = _enter(found, value, alias)
        if fault is not None:
            return fault
        if not has_dtype(value, dtype, wide):
            return f"{value!r} has another dtype than the values"
        name = full_name(part)
        if name in ("aten::softmax.int", "aten::_softmax"):
            break
        if name == "aten::dropout" and constant_of(part.inputs[2]) is not False:
            return "the probabilities go through a dropout that may be in training"
        value = part.inputs[0]
    if not has_dtype(node.inputs[0], dtype):
        return "the probabilities have another dtype than the values"
    rank = rank_of(part.output)
    if rank is None or rank < 3:
        return f"the scores are {part.output.type}, 3 dimensions have to be known at least"
    if constant_of(part.inputs[1]) not in (-1, rank - 1) or type(constant_of(part.inputs[1])) is not int:
        return "the softmax is not over the last dimension"
    fault = _match_scores(found, part.inputs[0], alias, dtype, wide)
    return fault if fault is not None else _check(found, part.output, alias, dtype) or found


def _enter(found: _Attention, value: Value, alias: AliasAnalysis) -> str | None:
    """Take the node that makes ``value`` into the pattern, or say why nobody may."""
    if len(value.uses) != 1:
        return f"{value!r} has other readers"
    if value.node.block is not value.uses[0].node.block:
        return f"{value!r} is made in another block"
    if alias.is_written(value):
        return f"{value!r} may be written"
    found.parts.append(value.node)
    return None


def _match_scores(found: _Attention, value: Value, alias: AliasAnalysis, dtype: np.dtype, wide: np.dtype) -> str | None:
    """Walk from the softmax back to the product of query and key. Returns why it is not reached."""
    while True:
        node = value.node
        fault = _enter(found, value, alias)
        if fault is not None:
            return fault
        if not has_dtype(value, dtype, wide):
            return f"the scores are {value.type}, the values {dtype}"
        name = full_name(node) or ""
        if name in _MATMULS:
            return _match_product(found, node.inputs[0], node.inputs[1], alias)
        if name in _VIEWS:
            fault = _look_through(found, node)
            if fault is not None:
                return fault
            value = node.inputs[0]
            continue
        if name == "aten::baddbmm":
            return _match_baddbmm(found, node, alias)
        step = _step(found, node, name)
        if isinstance(step, str):
            return step
        value = step


def _step(found: _Attention, node: Node, name: str) -> Value | str:
    """The scores before one node of mask, scale or cast."""
    if name in _UNCHANGED:
        return node.inputs[0]
    if name in _SCALES:
        factor = _factor(node)
        if factor is not None:
            found.scale *= factor
        elif name == "aten::mul.Tensor" and isinstance(node.inputs[1].type, T.TensorType):
            found.factors.append(node.inputs[1])
        else:
            return "the scores are scaled by what is no constant"
        return node.inputs[0]
    scaled = found.scale != 1.0 or bool(found.factors)
    if name == "aten::add.Tensor" and is_int(number_of(node.inputs[2]), 1):
        a, b = node.inputs[:2]
        if not _leads_to_product(a):
            a, b = b, a
        found.added.append(_Mask(b))
        # What is met first on the way back comes after the mask.
        return "the mask is scaled as well" if scaled else a
    if name in _FILLS:
        if found.hiding is not None:
            return "there are two masks that hide"
        scores, mask, fill, found.hidden = _FILLS[name]
        found.hides_first = bool(found.added)
        number = number_of(node.inputs[fill])
        if number is NOT_CONSTANT or isinstance(number, complex):
            return "hidden scores become what is no constant"
        found.hiding, found.fill = _Mask(node.inputs[mask]), float(number)
        if scaled and not (found.fill == -np.inf and found.scale > 0 and not found.factors):
            return "the mask is scaled as well"
        return node.inputs[scores]
    return f"the scores come from {node.kind}"


_VIEWS = frozenset(("aten::view", "aten::reshape", "aten::_unsafe_view", "aten::unsqueeze", "aten::squeeze.dim"))


def _look_through(found: _Attention, node: Node) -> str | None:
    """Go back over a view that splits or joins leading dims: masks met so far are seen as what is before it."""
    inner, outer = known_shape(node.inputs[0]), known_shape(node.output)
    if inner is None or outer is None or inner[-2:] != outer[-2:] or min(len(inner), len(outer)) < 2:
        return f"the scores are viewed from {node.inputs[0].type} as {node.output.type}"
    for mask in (*found.added, *([] if found.hiding is None else [found.hiding])):
        sizes = mask.sizes
        if sizes is None or len(sizes) > len(outer) or None in sizes:
            return f"the mask is {mask.value.type}, its shape has to be known"
        views = _views_of_mask([n for n in sizes if n is not None], outer, inner)
        if views is None:
            return f"a mask of type {mask.value.type} cannot be seen as the scores before they were viewed"
        mask.views += views
    return None


def _views_of_mask(
    sizes: Sequence[int], outer: Sequence[int], inner: Sequence[int]
) -> list[tuple[str, list[int]]] | None:
    """The views that make a mask for scores of the sizes ``outer`` one for ``inner``; None when there are none."""
    sizes = [1] * (len(outer) - len(sizes)) + list(sizes)
    expanded, seen = list(sizes), []
    i = j = 0
    while i < len(outer) and j < len(inner):
        # The fewest dims of both that hold the same number of elements.
        first, start, have, want = i, j, outer[i], inner[j]
        i, j = i + 1, j + 1
        while have != want:
            if have < want and i < len(outer):
                have, i = have * outer[i], i + 1
            elif want < have and j < len(inner):
                want, j = want * inner[j], j + 1
            else:
                return None
        if all(n == 1 for n in sizes[first:i]):
            seen += [1] * (j - start)
        else:
            expanded[first:i] = outer[first:i]
            seen += inner[start:j]
    if prod(outer[i:]) != 1 or prod(inner[j:]) != 1:
        return None
    views = [] if expanded == sizes else [("aten::expand", expanded)]
    return [*views, ("aten::reshape", [*seen, *inner[j:]])]


_SCALES = frozenset(("aten::mul.Tensor", "aten::mul.Scalar", "aten::div.Tensor", "aten::div.Scalar"))
# Positions of the scores, the mask and what hidden scores become; which truth value hides.
_FILLS = {
    "aten::masked_fill.Scalar": (0, 1, 2, True),
    "aten::masked_fill.Tensor": (0, 1, 2, True),
    "aten::where.self": (1, 0, 2, False),
    "aten::where.ScalarOther": (1, 0, 2, False),
    "aten::where.ScalarSelf": (2, 0, 1, True),
}


def _factor(node: Node) -> float | None:
    number = number_of(node.inputs[1])
    if type(number) not in (int, float) or not np.isfinite(number) or number == 0:
        return None
    return float(number) if "mul" in node.kind else 1.0 / float(number)


def _leads_to_product(value: Value) -> bool:
    """Whether scores are made by a product of matrices, through scales, casts and masks."""
    while (name := full_name(value.node)) not in _MATMULS and name != "aten::baddbmm":
        if name in _FILLS:
            value = value.node.inputs[_FILLS[name][0]]
        elif name in _SCALES or name in _UNCHANGED or name in _VIEWS:
            value = value.node.inputs[0]
        elif name == "aten::add.Tensor":
            a, b = value.node.inputs[:2]
            value = a if _leads_to_product(a) else b
        else:
            return False
    return True


def _match_product(found: _Attention, query: Value, key: Value, alias: AliasAnalysis) -> str | None:
    found.query, found.key = _unscaled(found, query), _unscaled(found, key)
    rank = rank_of(found.key)
    if rank is not None and _swaps_last_dims(found.key.node, rank):
        if alias.is_written(found.key):
            return "the key may be written"
        found.key, found.key_is_transposed = _unscaled(found, found.key.node.inputs[0]), False
    passed = (query, key, found.query, found.key, found.value)
    return "query, key or value may be written" if any(map(alias.is_written, passed)) else None


def _match_baddbmm(found: _Attention, node: Node, alias: AliasAnalysis) -> str | None:
    added, query, key, beta, alpha = node.inputs
    factor = number_of(alpha)
    if type(factor) not in (int, float) or not np.isfinite(factor):
        return "the product is scaled by what is no constant"
    # With beta=0 what is added counts for nothing, not even its NaNs.
    if number_of(beta) != 0:
        if number_of(beta) != 1 or found.scale != 1.0 or found.factors:
            return "the mask is scaled as well"
        found.added.append(_Mask(added))
    found.scale *= float(factor)
    return _match_product(found, query, key, alias)


def _unscaled(found: _Attention, value: Value) -> Value:
    while full_name(value.node) in _SCALES and has_dtype(value, dtype_of(value.node.inputs[0])):
        factor = _factor(value.node)
        if factor is None:
            break
        found.scale *= factor
        value = value.node.inputs[0]
    return value


def _swaps_last_dims(node: Node, rank: int) -> bool:
    name = full_name(node)
    if name in ("aten::transpose.int", "aten::swapaxes", "aten::swapdims"):
        dims = [constant_of(v) for v in node.inputs[1:3]]
        return all(type(d) is int for d in dims) and {d % rank for d in dims} == {rank - 2, rank - 1}
    if name == "aten::permute":
        order = constant_of(node.inputs[1])
        wanted = [*range(rank - 2), rank - 1, rank - 2]
        return isinstance(order, list) and len(order) == rank and [d % rank for d in order] == wanted
    return name == "aten::mT"


# -------------------------------------------------------------------------------------------------- what must hold


def _check(found: _Attention, scores: Value, alias: AliasAnalysis, dtype: np.dtype) -> str | None:
    """Why the operator would not compute the same."""
    rank = rank_of(scores)
    for value in (found.query, found.key, found.value):
        if not has_dtype(value, dtype) or rank_of(value) != rank:
            return f"query, key and value need one dtype and the rank of the scores, found {value.type}"
    for factor in found.factors:
        sizes, wanted = shape_of(factor), shape_of(found.query)
        fits = sizes and wanted and len(sizes) <= len(wanted) and sizes[-1] == 1
        pairs = zip(reversed(sizes or ()), reversed(wanted or ()), strict=False)
        if not fits or any(a != 1 and (a is None or a != b) for a, b in pairs):
            return f"the scores are scaled by {factor.type}, which may not be one number for each row"
        if not has_dtype(factor, dtype) or alias.is_written(factor):
            return f"the scores are scaled by {factor.type}, which may be written or have another dtype"
    for mask in (*found.added, *([] if found.hiding is None else [found.hiding])):
        fault = _fault_of_mask(mask, scores, alias)
        if fault is not None:
            return fault
    for mask in found.added:
        if not has_dtype(mask.value, dtype):
            return f"the mask is {mask.value.type}, the values {found.value.type}"
        if not is_finite(mask.value, alias):
            return "the mask may hide all keys of a row by minus infinity"
    if len(found.added) > 1 and not _stay_finite(found.added, alias, dtype):
        return "the masks together may hide all keys of a row by minus infinity"
    return None if found.hiding is None else _fault_of_hiding(found, found.hiding, dtype)


def _stay_finite(masks: Sequence[_Mask], alias: AliasAnalysis, dtype: np.dtype) -> bool:
    """Whether the sum of masks is known to overflow nowhere."""
    bounds = [b for m in masks if (b := bounds_of(m.value, alias)) is not None]
    largest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    return len(bounds) == len(masks) and all(abs(sum(ends)) < largest for ends in zip(*bounds, strict=True))


def _fault_of_mask(mask: _Mask, scores: Value, alias: AliasAnalysis) -> str | None:
    if alias.is_written(mask.value):
        return "the mask may be written"
    sizes, wanted = mask.sizes, shape_of(scores)
    if sizes is None or wanted is None or not 0 < len(sizes) <= len(wanted):
        return f"the mask is {mask.value.type}, its shape has to be known"
    for have, want in zip(reversed(sizes), reversed(wanted), strict=False):
        if have != 1 and (have is None or have != want):
            return f"a mask of type {mask.value.type} may not fit scores of type {scores.type}"
    return None


def _fault_of_hiding(found: _Attention, mask: _Mask, dtype: np.dtype) -> str | None:
    if not has_dtype(mask.value, BOOL_):
        return f"the mask is {mask.value.type} and no bool tensor"
    lowest = float(np.finfo(dtype).min) if dtype.kind == "f" else -np.inf
    if found.fill > lowest:
        return f"hidden scores become {found.fill}, which may be more than another score"
    if found.hides_first and found.fill != -np.inf:
        return "another mask is added to scores that are hidden"
    if _leaves_keys(mask.value, found.hidden):
        return None
    if found.fill == -np.inf or dtype != FLOAT32:
        return "the mask may hide all keys of a row"
    return None


def _leaves_keys(mask: Value, hidden: bool) -> bool:
    """Whether a mask is a constant that leaves at least one key in each row."""
    array = constant_of(mask)
    return isinstance(array, np.ndarray) and array.ndim > 0 and bool((array != hidden).any(axis=-1).all())


# ------------------------------------------------------------------------------------------------------ the new node


def _replace(node: Node, found: _Attention) -> None:
    """Put the operator in the place of the last product.

    Before: ``%o = aten::matmul(softmax(matmul(%q, transpose(%k)) * 0.125 + %mask), %v)``.
    After: ``%o = aten::scaled_dot_product_attention(%q, %k, %v, %mask, 0.0, False, 0.125, False)``.
    """

    def number(value: object, type_: T.Type) -> Value:
        return constant_before(node, value, type_)

    query, key = found.query, found.key
    for factor in found.factors:
        query = insert_op(node, "aten::mul.Tensor", (query, factor), node)
    if found.key_is_transposed:
        key = insert_op(node, "aten::transpose.int", (key, number(-2, T.INT), number(-1, T.INT)), node)
    mask = _mask_before(node, found)
    result = insert_op(
        node,
        _SDPA,
        (
            query, key, found.value, mask, number(0.0, T.FLOAT), number(False, T.BOOL),
            number(found.scale, T.FLOAT), number(False, T.BOOL),
        ),
        node,
    )  # fmt: skip
    replace_node(node, [result])
    remove_unread(reversed(found.parts))


def _mask_before(node: Node, found: _Attention) -> Value:
    """One mask for all: bool where keys are only hidden, else numbers that are added."""
    added = [mask.before(node) for mask in found.added]
    # The one met last was added first.
    total = added.pop() if added else None
    while added and total is not None:
        total = insert_op(node, "aten::add.Tensor", (total, added.pop(), constant_before(node, 1, T.INT)), node)
    if found.hiding is None:
        return constant_before(node, None, T.NONE) if total is None else total
    hiding = found.hiding.before(node)
    if total is None and _leaves_keys(found.hiding.value, found.hidden):
        return insert_op(node, "aten::logical_not", (hiding,), node) if found.hidden else hiding
    fill = constant_before(node, found.fill, T.FLOAT)
    other = constant_before(node, 0.0, T.FLOAT) if total is None else total
    form = "Scalar" if total is None else "ScalarSelf" if found.hidden else "ScalarOther"
    return insert_op(node, f"aten::where.{form}", (hiding, *((fill, other) if found.hidden else (other, fill))), node)
