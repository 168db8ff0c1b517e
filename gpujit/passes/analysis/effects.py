"""What running a node does besides giving results: effects, draws of random numbers, errors.

Everything about operators comes from their entries in the table; ``BUILT_IN`` says the same of the kinds that the
language has besides operators. A node that neither knows has every effect there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpujit.ir import types as T
from gpujit.ir.dtypes import BY_CODE, kind_of, numpy_dtype
from gpujit.ir.graph import Block, Graph, Node
from gpujit.ir.printer import SUBGRAPH
from gpujit.ir.schema import Schema
from gpujit.ir.types import NONE
from gpujit.ir.verify import misfit
from gpujit.ops import table
from gpujit.ops.registry import Op

__all__ = [
    "BUILT_IN",
    "BuiltIn",
    "acts",
    "entry_of",
    "has_effect",
    "has_own_effect",
    "hidden_writes",
    "inner_nodes",
    "is_deterministic",
    "is_pure",
    "may_raise",
    "resolve_node",
]


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """Facts about a kind without an entry.

    Args:
        has_effect: it must run even when nobody reads it.
        may_raise: it may fail on values that fit its types.
        has_identity: it makes an object that can be told apart from an equal one (lists, dicts, objects).
    """

    has_effect: bool = False
    may_raise: bool = False
    has_identity: bool = False


# What a node with blocks or a subgraph does besides this, its inner nodes say.
BUILT_IN: dict[str, BuiltIn] = {
    "prim::Constant": BuiltIn(),
    "prim::Param": BuiltIn(has_effect=True),
    "prim::Return": BuiltIn(has_effect=True),
    "prim::If": BuiltIn(),
    "prim::Loop": BuiltIn(),
    "prim::GetAttr": BuiltIn(),
    "prim::SetAttr": BuiltIn(has_effect=True),
    "prim::unchecked_cast": BuiltIn(),
    "prim::Uninitialized": BuiltIn(),
    "prim::ListConstruct": BuiltIn(has_identity=True),
    "prim::DictConstruct": BuiltIn(has_identity=True),
    "prim::TupleConstruct": BuiltIn(),
    "prim::TupleUnpack": BuiltIn(),
    "prim::TupleIndex": BuiltIn(may_raise=True),
    "prim::TupleSlice": BuiltIn(),
    "prim::ListUnpack": BuiltIn(may_raise=True),
    "prim::CreateObject": BuiltIn(has_identity=True),
    "prim::isinstance": BuiltIn(),
    "prim::tolist": BuiltIn(may_raise=True, has_identity=True),
    "prim::EnumName": BuiltIn(),
    "prim::EnumValue": BuiltIn(),
    "prim::RaiseException": BuiltIn(has_effect=True, may_raise=True),
    "prim::Enter": BuiltIn(has_effect=True, may_raise=True),
    "prim::Exit": BuiltIn(has_effect=True, may_raise=True),
    "prim::CallFunction": BuiltIn(has_effect=True, may_raise=True),
    "prim::CallMethod": BuiltIn(has_effect=True, may_raise=True),
    "prim::FusionGroup": BuiltIn(may_raise=True),
    "prim::fork": BuiltIn(may_raise=True),
    "prim::awaitable": BuiltIn(may_raise=True),
    "aten::wait": BuiltIn(may_raise=True),
    "prim::awaitable_wait": BuiltIn(may_raise=True),
    "prim::awaitable_nowait": BuiltIn(),
}

_UNKNOWN = BuiltIn(has_effect=True, may_raise=True)


def resolve_node(node: Node) -> Schema | None:
    """The first overload in the operator table that fits the node's inputs and outputs, None when none does."""
    kind = node.kind
    op = table.by_full_name(kind) if "." in kind else None
    candidates = table.by_name(kind) if op is None else (op,)
    return next((op.schema for op in candidates if misfit(node, op.schema) is None), None)


def entry_of(node: Node) -> Op | None:
    """The operator a node runs, None for a built-in kind and for what the table does not know.

    A node that names no overload (read from text) is resolved by its types.
    """
    schema = node.schema
    if schema is None:
        if node.kind in BUILT_IN or not table.by_name(node.kind):
            return None
        schema = resolve_node(node)
        if schema is None:
            return None
    return table.by_full_name(schema.full_name)


def inner_nodes(node: Node) -> Iterator[Node]:
    """Every node in the blocks and the subgraph of a node, at any depth; the node itself is not among them."""
    stack: list[Block] = list(node.blocks)
    subgraph = node.attributes.get(SUBGRAPH)
    if isinstance(subgraph, Graph):
        stack.append(subgraph.block)
    while stack:
        for inner in stack.pop().nodes:
            yield inner
            stack.extend(inner.blocks)
            held = inner.attributes.get(SUBGRAPH)
            if isinstance(held, Graph):
                stack.append(held.block)


def _built_in(node: Node) -> BuiltIn:
    if isinstance(node.attributes.get(SUBGRAPH), Graph):
        # It runs the subgraph on its inputs, whatever it is called.
        return BUILT_IN.get(node.kind, BuiltIn())
    return BUILT_IN.get(node.kind, _UNKNOWN)


def is_active(node: Node, op: Op) -> bool:
    """Whether the effects, draws and hidden writes of the entry may happen: not while a flag of it is False or 0."""
    flags = (node.inputs[op.schema.index_of(name)] for name in op.active_if)
    return not any(flag.is_constant and flag.constant() == 0 for flag in flags)


def hidden_writes(node: Node, op: Op) -> tuple[int, ...]:
    """Positions of the arguments that the node may write although the schema does not mark them."""
    if not op.hidden_writes or not is_active(node, op):
        return ()
    positions = map(op.schema.index_of, op.hidden_writes)
    return tuple(i for i in positions if node.inputs[i].type != NONE)


def acts(node: Node) -> bool:
    """Whether the node itself (not those inside it) does something besides giving results and writing memory: prints,
    raises, draws random numbers, calls what is not known."""
    op = entry_of(node)
    if op is None:
        return _built_in(node).has_effect and node.kind != "prim::SetAttr"
    return op.effects and is_active(node, op)


def has_own_effect(node: Node) -> bool:
    """``has_effect`` without what the nodes inside it do."""
    op = entry_of(node)
    if op is None:
        return _built_in(node).has_effect
    if op.effects and is_active(node, op):
        return True
    return op.schema.is_mutable or _writes_elements(op.schema) or bool(hidden_writes(node, op))


def _writes_elements(schema: Schema) -> bool:
    return any(a.element_alias is not None and a.element_alias.is_write for a in schema.arguments)


def has_effect(node: Node) -> bool:
    """Whether the node must run even when nobody reads its results: it (or a node inside it) writes into memory or
    an attribute, prints, raises, draws random numbers, or is not known."""
    return has_own_effect(node) or any(map(has_own_effect, inner_nodes(node)))


def is_deterministic(node: Node) -> bool:
    """Whether equal inputs give equal results, every time."""

    def own(node: Node) -> bool:
        op = entry_of(node)
        if op is None:
            return not _built_in(node).has_effect or node.kind in ("prim::SetAttr", "prim::RaiseException")
        return not op.random or not is_active(node, op)

    return own(node) and all(map(own, inner_nodes(node)))


def is_pure(node: Node) -> bool:
    """Whether a node may be evaluated once, more often or never: no effects, deterministic, no writes.

    What it reads may still be written by others, and its results may share memory with what it reads: ask
    ``AliasAnalysis``.
    """
    return not has_effect(node) and is_deterministic(node)


def may_raise(node: Node) -> bool:
    """Whether evaluating the node may fail."""
    return _may_raise_itself(node) or any(map(_may_raise_itself, inner_nodes(node)))


def _may_raise_itself(node: Node) -> bool:
    op = entry_of(node)
    if op is None:
        return _built_in(node).may_raise
    if op.never_raises:
        return False
    # With complete types broadcasting was checked when the types were inferred; kinds of numbers may still be refused.
    if op.kind != "pointwise" or op.form != "functional" or not _is_typed(node):
        return True
    return bool(op.refuse) and any(_KINDS.get(v.type, _kind(v.type)) in op.refuse for v in node.inputs)


# What a refusal calls the numbers of a type.
_KINDS: dict[T.Type, str] = {T.BOOL: "bool", T.INT: "integer", T.FLOAT: "floating", T.COMPLEX: "complex"}
_KIND_NAMES = ("bool", "integer", "floating", "complex")


def _kind(t: T.Type) -> str | None:
    if not isinstance(t, T.TensorType) or t.dtype is None or BY_CODE[t.dtype].dtype is None:
        return None
    return _KIND_NAMES[kind_of(numpy_dtype(t.dtype))]


def _is_typed(node: Node) -> bool:
    """Whether all tensors have known dtypes and shapes, and everything else is a number or None."""

    def complete(t: T.Type) -> bool:
        if isinstance(t, T.TensorType):
            # Quantised tensors have rules of their own.
            plain = t.dtype is not None and BY_CODE[t.dtype].dtype is not None
            return plain and t.shape is not None and None not in t.shape
        return t in _KINDS or t == T.NONE

    return all(complete(v.type) for v in (*node.inputs, *node.outputs))
