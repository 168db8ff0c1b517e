"""Automatic casts of ``torch.autocast``: operators inside its contexts get their operands cast, and the contexts go.

The operators of each kind, and what is cast, are those of PyTorch's pass on a graph whose calls are inlined; they are
fewer than those of its eager mode. What a fork runs is outside the context it stands in, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.dtypes import FLOAT32, code_of
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.printer import SUBGRAPH
from gpujit.ir.values import Device
from gpujit.ops.families.language.environment import get_autocast_dtype
from gpujit.passes.analysis.effects import entry_of
from gpujit.passes.analysis.evaluate import evaluate
from gpujit.passes.analysis.placement import BY_DEVICE, FULL, REDUCED
from gpujit.passes.base import declined, graph_pass
from gpujit.passes.dce import eliminate_dead_code
from gpujit.passes.fold import fold
from gpujit.passes.freeze.constant_views import fold_constant_views
from gpujit.passes.inline import callee, inlined
from gpujit.passes.nodes import constant_before, insert_op
from gpujit.support.errors import SourceError

# Classes of the contexts, and the device of those that are for one.
_CLASSES = {
    "torch.amp.autocast_mode.autocast": None,
    "torch.autocast_mode.autocast": None,
    "torch.cpu.amp.autocast_mode.autocast": "cpu",
    "torch.cuda.amp.autocast_mode.autocast": "cuda",
}

_TO_REDUCED = frozenset(f"aten::{name}" for name in (
    "_convolution", "_thnn_fused_gru_cell", "_thnn_fused_lstm_cell", "addbmm", "addmm", "addmv", "addr", "baddbmm",
    "bmm", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "convolution", "cudnn_convolution",
    "cudnn_convolution_transpose", "gru_cell", "linear", "lstm_cell", "matmul", "mm", "mv", "prelu", "rnn_relu_cell",
    "rnn_tanh_cell",
))  # fmt: skip
_TO_FULL = frozenset(f"aten::{name}" for name in (
    "acos", "asin", "binary_cross_entropy_with_logits", "cdist", "cosh", "cosine_embedding_loss", "cosine_similarity",
    "dist", "erfinv", "exp", "expm1", "frobenius_norm", "gelu", "group_norm", "hinge_embedding_loss", "kl_div",
    "l1_loss", "layer_norm", "log", "log10", "log1p", "log2", "logsumexp", "margin_ranking_loss", "mse_loss",
    "multi_margin_loss", "multilabel_margin_loss", "native_layer_norm", "nll_loss", "nll_loss2d", "nuclear_norm",
    "pdist", "pow", "reciprocal", "renorm", "rsqrt", "sinh", "smooth_l1_loss", "soft_margin_loss", "softplus", "tan",
    "triplet_margin_loss",
))  # fmt: skip
# Cast unless the program names a dtype; softmax only where CUDA's casts are on.
_TO_FULL_WITHOUT_DTYPE = frozenset(
    f"aten::{name}" for name in ("cumprod", "cumsum", "log_softmax", "prod", "softmax", "sum")
)
# Cast unless all operands are known to be of other dtypes than float32.
_TO_WIDEST = frozenset(f"aten::{name}" for name in (
    "add", "addcdiv", "addcmul", "atan2", "bilinear", "cross", "div", "dot", "equal", "index_put", "mul", "sub",
    "tensordot",
))  # fmt: skip

_FLOAT32 = code_of(FLOAT32)


@dataclass(frozen=True, slots=True)
class Casts:
    """Whether operands are cast on the devices, and to what."""

    cuda: bool = False
    cpu: bool = False
    cuda_dtype: int = get_autocast_dtype("cuda")
    cpu_dtype: int = get_autocast_dtype("cpu")


def with_casts(graph: Graph) -> Graph:
    """The graph itself when no context of autocast can be reached; else a copy, calls inlined, with casts in it.

    Raises as ``inlined`` and ``autocast``.
    """
    if not any(_is_context(n) for g in _reachable(graph) for n in g.all_nodes()):
        return graph
    made = inlined(graph)
    # Not as a pass: the graph means something else without it, so fuel does not leave it out.
    autocast.run(made)
    return made


@graph_pass("autocast")
def autocast(graph: Graph) -> bool:
    """Cast operands inside the contexts of autocast, and remove the contexts. Calls are to be inlined before.

    Raises SourceError for a context whose switch, device or dtype is not known before run time, that is chosen at run
    time, or is for a device that has no casts; for a call that cannot be inlined; and for binary_cross_entropy, which
    is not safe in half precision.
    """
    changed = False
    for node in list(graph.all_nodes()):
        changed |= _deferred(node)
    objects: list[Value] = []
    _block(graph.block, Casts(), objects)
    for value in dict.fromkeys(objects):
        _remove_if_unread(value.node)
    return changed or bool(objects)


def settle_casts(graph: Graph, device: Device) -> bool:
    """Make casts independent of where an operand lies, which is ``device`` for all; whether any changed.

    Casts of constant weights are computed, once for all plans that are made of the graph.
    """
    changed = False
    for node in list(graph.all_nodes()):
        subgraph = node.attributes.get(SUBGRAPH)
        if isinstance(subgraph, Graph):
            # What a fork runs may be shared with the graph of another device.
            copied = subgraph.copy()
            if settle_casts(copied, device):
                node.attributes[SUBGRAPH] = copied
                changed = True
        for pair in BY_DEVICE.get(node.kind, ()):
            holds = node.inputs[pair[0] if device.type == "cuda" else pair[1]]
            for i in pair:
                if node.inputs[i] is not holds:
                    node.set_input(i, holds)
                    changed = True
    if changed:
        # Not as passes: casts that the first run computes would be computed in all.
        for compute in (fold_constant_views, fold, eliminate_dead_code):
            compute.run(graph)
    return changed


def _reachable(graph: Graph) -> Iterator[Graph]:
    """The graph and those of all it may call."""
    seen = {graph}
    graphs = [graph]
    for current in graphs:
        yield current
        for node in current.all_nodes():
            function = callee(node)
            inner = node.attributes.get(SUBGRAPH) if function is None else function.graph
            if isinstance(inner, Graph) and inner not in seen:
                seen.add(inner)
                graphs.append(inner)


def _deferred(node: Node) -> bool:
    """Cast inside what a fork runs; the graph may be shared, so a copy takes its place."""
    subgraph = node.attributes.get(SUBGRAPH)
    if not isinstance(subgraph, Graph):
        return False
    casting = with_casts(subgraph)
    if casting is subgraph:
        return False
    node.attributes[SUBGRAPH] = casting
    return True


# ---------------------------------------------------------------------------------------------------------- contexts


def _is_context(node: Node) -> bool:
    return node.kind in ("prim::Enter", "prim::Exit") and _class_of(node.inputs[0]) in _CLASSES


def _class_of(value: Value) -> str | None:
    t = value.type
    if not isinstance(t, T.ClassType):
        return None
    parts = [p for p in t.name.split(".") if not p.startswith("___torch_mangle_")]
    return ".".join(parts).removeprefix("__torch__.")


def _block(block: Block, outside: Casts, objects: list[Value]) -> None:
    """Cast in a block that stands where ``outside`` holds; contexts begin and end in one block."""
    entered: list[Casts] = []
    for node in list(block.nodes):
        now = entered[-1] if entered else outside
        if _is_context(node):
            objects.append(node.inputs[0])
            if node.kind == "prim::Enter":
                entered.append(_opened(node, now))
                node.output.replace_all_uses_with(node.inputs[0])
            elif entered:
                entered.pop()
            else:
                raise _refused(node, "autocast's context ends in another block than it begins in")
            _drop(node)
            continue
        for inner in node.blocks:
            _block(inner, now, objects)
        if now.cuda or now.cpu:
            _cast_operands(node, now)


def _opened(node: Node, now: Casts) -> Casts:
    """What holds inside the context that ``node`` enters."""
    made = node.inputs[0].node
    if made.kind != "prim::CreateObject":
        raise _refused(
            node, "which context of autocast this is must be known before run time; write torch.autocast(...) here"
        )
    fields: dict[str, Value] = {}
    for use in made.output.uses:
        if use.node.kind == "prim::SetAttr" and use.index == 0:
            name = use.node.attributes["name"]
            if name in fields or use.node.block is not made.block:
                raise _refused(node, f"autocast's attribute {name!r} must be set once, in its context's __init__")
            fields[name] = use.node.inputs[1]
    device = _field(node, fields, "device", "device_type", _CLASSES[_class_of(made.output) or ""])
    enabled = _field(node, fields, "_enabled", "enabled", None)
    if device not in ("cpu", "cuda", "mps"):
        raise _refused(node, f"autocast for device {device!r} is not supported; name 'cpu' or 'cuda'")
    dtype = _field(node, fields, "fast_dtype", "dtype", get_autocast_dtype(device))
    if device == "cuda":
        return replace(now, cuda=enabled, cuda_dtype=dtype)
    return replace(now, cpu=enabled, cpu_dtype=dtype) if device == "cpu" else now


def _field(node: Node, fields: dict[str, Value], name: str, argument: str, otherwise: Any) -> Any:
    if name not in fields:
        if otherwise is None:
            raise _refused(node, f"the class of autocast's context in this file has no attribute {name!r}")
        return otherwise
    known = _known(fields[name], 0)
    if known is None:
        raise _refused(node, f"autocast's argument {argument!r} must be a constant")
    return known[0]


def _known(value: Value, depth: int) -> tuple[Any] | None:
    """The value of a number, text or None that follows from constants; None when it does not."""
    if value.is_constant:
        return (value.constant(),)
    node = value.node
    # Files can hold chains that make Python's stack overflow.
    if depth > 50 or node.kind in ("prim::Param", "prim::Loop"):
        return None
    if node.kind == "prim::If":
        condition = _known(node.inputs[0], depth + 1)
        if condition is None:
            return None
        chosen = node.blocks[0 if condition[0] else 1]
        return _known(chosen.returns[node.outputs.index(value)], depth + 1)
    inputs = [_known(v, depth + 1) for v in node.inputs]
    if any(i is None for i in inputs):
        return None
    if node.kind == "prim::unchecked_cast":
        return inputs[0]
    results = evaluate(node, [i[0] for i in inputs if i is not None])
    return None if results is None or len(results) != 1 else (results[0],)


def _drop(node: Node) -> None:
    """Remove the node of a context; what ``__exit__`` gives is None."""
    if node.kind == "prim::Exit" and node.output.uses:
        node.output.replace_all_uses_with(constant_before(node, None, T.NONE))
    node.destroy()


def _remove_if_unread(made: Node) -> None:
    """Remove an object that is only written into."""
    if made.kind != "prim::CreateObject":
        return
    uses = list(made.output.uses)
    if all(use.node.kind == "prim::SetAttr" and use.index == 0 for use in uses):
        for use in uses:
            use.node.destroy()
        made.destroy()


# ------------------------------------------------------------------------------------------------------------- casts


def _cast_operands(node: Node, casts: Casts) -> None:
    if node.kind in ("prim::CallMethod", "prim::CallFunction"):
        raise _refused(node, "a call that is only known at run time cannot stand inside a context of autocast")
    if node.kind == "aten::binary_cross_entropy":
        raise _refused(
            node,
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast; use "
            "binary_cross_entropy_with_logits, or switch autocast off around it (enabled=False)",
        )
    to = _policy(node, casts)
    if to is None:
        return
    op = entry_of(node)
    schema = node.schema if op is None else op.schema
    if schema is not None and schema.is_mutable:
        declined("autocast", node, "it writes into an operand")
        return
    flags: tuple[Any, ...] = (casts.cuda, casts.cpu)
    if to == REDUCED:
        flags += (casts.cuda_dtype, casts.cpu_dtype)
    for operand in dict.fromkeys(node.inputs):
        if not isinstance(operand.type, T.TensorType) or operand.node.kind == to:
            continue
        cast = insert_op(node, to, (operand, *(constant_before(node, f) for f in flags)), node)
        for i, value in enumerate(node.inputs):
            if value is operand:
                node.set_input(i, cast)


def _policy(node: Node, casts: Casts) -> str | None:
    """The operator that casts the operands of this one."""
    kind = node.kind
    if kind in _TO_REDUCED:
        return REDUCED
    if kind in _TO_FULL:
        return FULL
    if kind in _TO_FULL_WITHOUT_DTYPE:
        if kind == "aten::softmax" and not casts.cuda:
            return None
        return None if _names_a_dtype(node) else FULL
    if kind in _TO_WIDEST:
        tensors = [v.type for v in node.inputs if isinstance(v.type, T.TensorType)]
        return FULL if any(t.dtype in (None, _FLOAT32) for t in tensors) else None
    return None


def _names_a_dtype(node: Node) -> bool:
    op = entry_of(node)
    schema = node.schema if op is None else op.schema
    names = [] if schema is None else [a.name for a in schema.arguments]
    return "dtype" in names and node.inputs[names.index("dtype")].type != T.NONE


def _refused(node: Node, message: str) -> SourceError:
    at = node.source
    where = "" if at is None else f'  File "{at.source.name}", line {at.shown_line}\n{at.highlight()}'
    return SourceError(message, where=where)
