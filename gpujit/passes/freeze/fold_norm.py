"""Batch norms and arithmetic with constants folded into the weights of the convolution or linear layer before them.

New weights are computed in float32 (float64 for float64 weights) and stored in the dtype of the old ones. What is
not folded is left as it is, with a reason. A convolution's output is taken to have a batch dimension, unless its type
says otherwise: only then does a batch norm after it normalise the channels the weights are of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import BFLOAT16, HALF_TYPES, code_of
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.printer import print_node
from gpujit.passes.analysis.ranks import Ranks
from gpujit.passes.base import declined, graph_pass, may_change, spend

NAME = "fold_norm"
_FLOATS = ("float16", "float32", "float64")
_BATCH_NORM = "aten::batch_norm"
# Weights whose rounding in a half type is worse than this, relative to the largest of their channel, are not folded.
_EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True, slots=True)
class Layer:
    """Constant weights of a node. ``weight`` has its output channels along ``axis``, in ``groups`` parts one after the
    other when it is a transposed convolution's; None as ``rank`` stands for a linear layer."""

    weight: np.ndarray
    bias: np.ndarray | None
    axis: int
    groups: int
    rank: int | None

    @property
    def channels(self) -> int:
        return int(self.weight.shape[self.axis]) * self.groups

    def along_channels(self, scale: np.ndarray) -> np.ndarray:
        """``scale``, one number per output channel or one for all, in a shape that multiplies the weight."""
        if scale.size == 1:
            return scale.reshape((1,) * self.weight.ndim)
        if self.axis == 0:
            return scale.reshape(-1, *(1,) * (self.weight.ndim - 1))
        # A transposed convolution's weight is [in, out / groups, ...], inputs of one group together.
        per_group = scale.reshape(self.groups, 1, -1)
        inputs = self.weight.shape[0] // self.groups
        rows = np.broadcast_to(per_group, (self.groups, inputs, per_group.shape[2]))
        return rows.reshape(self.weight.shape[0], -1, *(1,) * (self.weight.ndim - 2))


@dataclass(eq=False)
class NormFolder:
    """Folds in graphs. ``refusals`` gets a line for each node that could have been folded and was not.

    ``share``: equal folds in several graphs give the same new weights; the old ones stay alive meanwhile.
    """

    share: bool = False
    refusals: list[str] = field(default_factory=list)
    folded: int = 0
    _known: dict[Any, tuple[np.ndarray, np.ndarray | None, tuple[Any, ...]]] = field(default_factory=dict)

    def run(self, graph: Graph) -> bool:
        """Fold until nothing changes; whether anything did."""
        changed = False
        self.refusals.clear()
        ranks = Ranks()
        for node in list(graph.all_nodes()):
            while node.block is not None and may_change():
                user = _only_user(node)
                if user is None or not self.fold(node, user, ranks):
                    break
                if changed:
                    spend()
                changed = True
        return changed

    def fold(self, node: Node, user: Node, ranks: Ranks) -> bool:
        find = _SCALES.get(user.kind)
        layer = _layer_of(node) if find is not None else None
        if find is None or layer is None:
            return False
        if isinstance(layer, str):
            return self.refuse(user, layer)
        change = find(node, user, layer, ranks)
        if isinstance(change, str):
            return self.refuse(user, change)
        scale, shift, parts = change
        key = (node.kind, id(layer.weight), id(layer.bias), user.kind, *map(_key, parts))
        known = self._known.get(key) if self.share else None
        if known is None:
            made = _new_weights(layer, scale, shift)
            if isinstance(made, str):
                return self.refuse(user, made)
            known = (*made, (layer.weight, layer.bias, *parts))
            if self.share:
                self._known[key] = known
        weight, bias, _ = known
        self.folded += 1
        _set_constant(node, 1, weight)
        if bias is not None:
            _set_constant(node, 2, bias)
        if ranks.of(node.output) is None:
            node.output.type = user.output.type
        node.output.name = user.output.name
        user.output.replace_all_uses_with(node.output)
        inputs = list(user.inputs)
        user.destroy()
        for value in inputs:
            _drop_constant(value)
        return True

    def refuse(self, node: Node, reason: str) -> bool:
        declined(NAME, node, reason)
        place = "" if node.source is None else f" at {node.source}"
        self.refusals.append(f"{print_node(node)}{place}: {reason}")
        return False


@graph_pass(NAME)
def fold_norm(graph: Graph) -> bool:
    """Fold batch norms, and additions and multiplications of constants, into the constant weights before them."""
    return NormFolder().run(graph)


# ----------------------------------------------------------------------------------------------------- the weights


# What they tell of a tensor stays when its numbers are scaled and shifted.
_QUERIES = ("aten::dim", "aten::size", "prim::dtype", "prim::device", "aten::numel")


def _only_user(node: Node) -> Node | None:
    """The one node that reads the numbers of a node's result."""
    if len(node.outputs) != 1:
        return None
    users = {use.node for use in node.outputs[0].uses if use.node.kind not in _QUERIES}
    if len(users) != 1:
        return None
    (user,) = users
    return user if user.block is node.block and len(user.outputs) == 1 else None


def _layer_of(node: Node) -> Layer | str | None:
    """The constant weights of a convolution or linear layer, the reason why there are none, or None for other nodes."""
    convolution = _LAYERS.get(node.kind)
    if convolution is None or len(node.inputs) < 3:
        return None
    transposed, groups = convolution
    weight, bias = node.inputs[1], node.inputs[2]
    if not weight.is_constant or not bias.is_constant:
        return "the weights before it are no constants"
    w, b = weight.constant(), bias.constant()
    if not _is_floating(w) or (b is not None and (not _is_floating(b) or b.ndim != 1)):
        return "the weights before it are no floating-point arrays"
    if isinstance(transposed, int):
        flag = node.inputs[transposed]
        if not flag.is_constant:
            return "whether the convolution before it is transposed is not known"
        is_transposed = bool(flag.constant())
    else:
        is_transposed = transposed == "yes"
    number = 1
    if is_transposed:
        if not node.inputs[groups].is_constant:
            return "the number of groups of the convolution before it is not known"
        number = node.inputs[groups].constant()
    is_linear = node.kind == "aten::linear"
    if (is_linear and w.ndim != 2) or (not is_linear and w.ndim < 3):
        return f"the weight before it has {w.ndim} dimensions"
    layer = Layer(w, b, 1 if is_transposed else 0, number, None if is_linear else w.ndim)
    if b is not None and b.size != layer.channels:
        return f"the bias before it has {b.size} elements, not {layer.channels}"
    return layer


# Kind: whether it is transposed ("no", "yes", or the input that says so) and which input holds the number of groups.
_LAYERS: dict[str, tuple[str | int, int]] = {
    "aten::linear": ("no", 0),
    **{f"aten::conv{r}d": ("no", 6) for r in (1, 2, 3)},
    **{f"aten::conv_transpose{r}d": ("yes", 6) for r in (1, 2, 3)},
    "aten::_convolution_mode": ("no", 6),
    "aten::convolution": (6, 8),
    "aten::_convolution": (6, 8),
}


def _is_floating(value: Any) -> bool:
    return isinstance(value, np.ndarray) and (value.dtype.name in _FLOATS or value.dtype == BFLOAT16)


def _new_weights(
    layer: Layer, scale: np.ndarray | None, shift: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None] | str:
    """weight * scale and bias * scale + shift in the weight's dtype, or the reason why that would be too inexact."""
    dtype = layer.weight.dtype
    wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    weight, bias = layer.weight, layer.bias
    with np.errstate(all="ignore"):
        if scale is not None:
            exact = layer.weight.astype(wide, copy=False) * layer.along_channels(scale).astype(wide)
            weight = exact.astype(dtype, copy=False)
            reason = _lost(exact, weight, layer)
            if reason:
                return reason
        if bias is not None or shift is not None:
            total = np.zeros(layer.channels, np.float64) if bias is None else bias.astype(np.float64)
            if scale is not None:
                total = total * scale
            if shift is not None:
                total = total + shift
            bias = total.astype(dtype if layer.bias is None else layer.bias.dtype)
            if not np.isfinite(bias.astype(wide)).all():
                return "the new bias would not be finite"
    return weight, bias


def _lost(exact: np.ndarray, weight: np.ndarray, layer: Layer) -> str:
    """Why the rounded weight is too far from the exact one, or ''."""
    if not np.isfinite(exact).all():
        return "the new weights would not be finite"
    if weight.dtype not in HALF_TYPES:
        return ""
    rounded = weight.astype(exact.dtype)
    if not np.isfinite(rounded).all():
        return f"the new weights do not fit {weight.dtype}"
    axes = tuple(i for i in range(exact.ndim) if i != layer.axis)
    error = np.abs(rounded - exact).max(axis=axes, initial=0)
    largest = np.abs(exact).max(axis=axes, initial=0)
    return (
        f"the new weights lose precision in {weight.dtype}" if (error > _EPS[weight.dtype.name] * largest).any() else ""
    )


def _set_constant(node: Node, index: int, array: np.ndarray) -> None:
    old = node.inputs[index]
    if old.is_constant and old.constant() is array:
        return
    constant = Node("prim::Constant", (), {"value": array})
    constant.source, constant.call = node.source, node.call
    constant.insert_before(node)
    node.set_input(index, constant.add_output(T.TensorType(code_of(array.dtype), array.shape), old.name))
    _drop_constant(old)


def _drop_constant(value: Value) -> None:
    """Remove a constant nobody reads: it holds the old weights."""
    if value.is_constant and not value.uses and value.node.block is not None:
        value.node.destroy()


def _key(part: Any) -> Any:
    return id(part) if isinstance(part, np.ndarray) else (type(part), part)


# ------------------------------------------------------------------------------------------------- what is folded in

# scale and shift, each one number per channel or one for all, and the constants they were made of; or a reason.
Change = tuple["np.ndarray | None", "np.ndarray | None", tuple[Any, ...]] | str


def _of_batch_norm(node: Node, user: Node, layer: Layer, ranks: Ranks) -> Change:
    if len(user.inputs) != 9 or user.inputs[0] is not node.output:
        return "it does not normalise the layer's output"
    values = user.inputs[1:8]
    if not all(v.is_constant for v in values):
        return "its statistics or parameters are no constants"
    weight, bias, mean, var, training, _, eps = (v.constant() for v in values)
    if training:
        return "it is in training mode"
    if mean is None or var is None:
        return "it has no running statistics: it normalises each batch by its own"
    rank = ranks.of(node.output)
    if layer.rank is None and rank != 2:
        found = "of unknown rank" if rank is None else f"of rank {rank}"
        return f"the linear layer's output is {found}: only of rank 2 are its channels those of the norm"
    if layer.rank is not None and rank is not None and rank != layer.rank:
        return f"the convolution's output has {rank} dimensions, {layer.rank} with a batch: its channels are others"
    parts = (weight, bias, mean, var)
    for part in parts:
        if part is not None and not (_is_floating(part) and part.shape == (layer.channels,)):
            return f"it has not one parameter for each of {layer.channels} channels"
        half = layer.weight.dtype in HALF_TYPES
        if part is not None and part.dtype != layer.weight.dtype and not (half and part.dtype == np.float32):
            return f"its parameters are {part.dtype}, the weights {layer.weight.dtype}"
    with np.errstate(all="ignore"):
        scale = 1 / np.sqrt(var.astype(np.float64) + float(eps))
        if weight is not None:
            scale = scale * weight.astype(np.float64)
        shift = -mean.astype(np.float64) * scale
        if bias is not None:
            shift = shift + bias.astype(np.float64)
    return scale, shift, (*parts, float(eps))


def _operand(node: Node, user: Node, layer: Layer, ranks: Ranks, commutes: bool) -> np.ndarray | str:
    """The constant beside the layer's output, as float64, with one element or one per channel."""
    if layer.rank is None:
        return "only a batch norm is folded into a linear layer"
    left, right = user.inputs[0], user.inputs[1]
    if right is node.output and left is not node.output:
        if not commutes:
            return "the layer's output is the second operand"
        other = left
    else:
        other = right
    if not other.is_constant:
        return "the other operand is no constant"
    value = other.constant()
    if isinstance(value, (bool, int, float)):
        return np.float64(value).reshape(1)
    if not isinstance(value, np.ndarray) or not (_is_floating(value) or value.dtype.kind in "iub"):
        return "the other operand is neither a real array nor a number"
    if value.ndim and _is_floating(value) and value.dtype != layer.weight.dtype:
        return (
            f"the other operand is {value.dtype}, the weights {layer.weight.dtype}: the result's dtype is the wider one"
        )
    if value.ndim >= layer.rank and ranks.of(node.output) != layer.rank:
        return f"the other operand has {value.ndim} dimensions, and whether the layer's output has them is not known"
    if value.ndim > layer.rank:
        return f"the other operand has {value.ndim} dimensions, more than the layer's output"
    per_channel = (layer.channels, *(1,) * (layer.rank - 2))
    shape = value.shape[1:] if value.ndim == layer.rank and value.shape[0] == 1 else value.shape
    if value.size != 1 and shape != per_channel:
        return f"the other operand has shape {list(value.shape)}: not one number for each of {layer.channels} channels"
    if node.output is not user.inputs[0] and user.kind.endswith("_"):
        return "it writes into the constant"
    return value.astype(np.float64).reshape(-1)


def _alpha(user: Node) -> float | None:
    if len(user.inputs) < 3:
        return 1.0
    value = user.inputs[2]
    alpha = value.constant() if value.is_constant else None
    return float(alpha) if isinstance(alpha, (int, float)) else None


def _of_sum(sign: float) -> Callable[[Node, Node, Layer, Ranks], Change]:
    def find(node: Node, user: Node, layer: Layer, ranks: Ranks) -> Change:
        alpha = _alpha(user)
        if alpha is None:
            return "its alpha is no constant"
        operand = _operand(node, user, layer, ranks, commutes=sign > 0 and alpha == 1)
        if isinstance(operand, str):
            return operand
        shift = np.broadcast_to(operand * (sign * alpha), (layer.channels,))
        return None, shift, (_source(node, user), sign * alpha)

    return find


def _of_product(node: Node, user: Node, layer: Layer, ranks: Ranks) -> Change:
    operand = _operand(node, user, layer, ranks, commutes=True)
    if isinstance(operand, str):
        return operand
    return (operand, None, (_source(node, user), "mul")) if np.isfinite(operand).all() else "its factor is not finite"


def _of_quotient(node: Node, user: Node, layer: Layer, ranks: Ranks) -> Change:
    if len(user.inputs) != 2:
        return "its quotient is rounded"
    operand = _operand(node, user, layer, ranks, commutes=False)
    if isinstance(operand, str):
        return operand
    if not np.isfinite(operand).all() or not operand.all():
        return "its divisor is zero or not finite"
    return 1 / operand, None, (_source(node, user), "div")


def _source(node: Node, user: Node) -> Any:
    other = user.inputs[1] if user.inputs[0] is node.output else user.inputs[0]
    return other.constant()


_SCALES: dict[str, Callable[[Node, Node, Layer, Ranks], Change]] = {_BATCH_NORM: _of_batch_norm}
for _suffix in ("", "_"):
    _SCALES[f"aten::add{_suffix}"] = _of_sum(1.0)
    _SCALES[f"aten::sub{_suffix}"] = _of_sum(-1.0)
    _SCALES[f"aten::mul{_suffix}"] = _of_product
    _SCALES[f"aten::div{_suffix}"] = _of_quotient
