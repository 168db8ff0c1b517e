"""What of a program's results does not depend on padding: two specialisations compared, node by node.

Both are of one program, for inputs that differ in the size of one dim each. Where the two graphs are not the same, the
program asked for the size: it took another branch, ran a loop more often. Where a constant differs, a size went into
it; that is right for the shape of a result, which is checked, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.types import ListType, TensorType
from gpujit.passes import pipeline
from gpujit.passes.analysis.effects import entry_of, has_effect, has_own_effect, inner_nodes, is_deterministic
from gpujit.passes.containers import lower_containers
from gpujit.passes.dce import eliminate_dead_code
from gpujit.passes.infer.main import infer_types_pass
from gpujit.passes.padding import indexing, layers, products, shapes
from gpujit.passes.padding.elements import of_entry
from gpujit.passes.padding.relations import (
    RULES,
    SAME,
    Call,
    Differs,
    Entry,
    Mixed,
    Mixes,
    Parts,
    Prefix,
    Relation,
    Same,
    Shape,
    Strided,
    Unread,
    is_same,
    leaves,
    shape_of,
)
from gpujit.passes.specialise.values import same_constant
from gpujit.passes.tuples import lower_tuples
from gpujit.passes.unmutate.main import remove_tensor_mutation
from gpujit.support.errors import GpujitError, PaddingError

# These modules fill the table of rules when they are imported.
FAMILIES = (indexing, layers, products, shapes)

# What makes in-place writes functional and removes containers; nothing that folds, or that sizes may decide.
PREPARED = (
    lower_tuples,
    lower_containers,
    remove_tensor_mutation,
    infer_types_pass,
    eliminate_dead_code,
)

_CONTAINERS = ("prim::ListConstruct", "prim::TupleConstruct")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The dim that is padded: its size without, and with the padding."""

    kept: int
    padded: int


def prepare(graph: Graph) -> Graph:
    """A specialised graph as ``prove`` wants it; it is changed."""
    pipeline.run(graph, PREPARED)
    return graph


def prove(kept: Graph, padded: Graph, longer: Mapping[int, int], sizes: Sizes) -> tuple[Relation, ...]:
    """How the results of a program for padded inputs contain those without: a relation for each output.

    Args:
        kept, padded: the program specialised for inputs without and with the padding, and prepared.
        longer: by the position of a padded input its dim.
        sizes: of that dim.
    Raises PaddingError, with the operator, its place and the reason, when results may depend on the padding.
    """
    comparison = _Comparison(kept, padded, sizes)
    for i, (a, b) in enumerate(zip(kept.inputs, padded.inputs, strict=True)):
        comparison.bind(a, b, Prefix(longer[i]) if i in longer else SAME, None)
    comparison.block(kept.block, padded.block)
    found = []
    for a, b in zip(kept.outputs, padded.outputs, strict=True):
        relation = comparison.relation(a, b)
        for leaf in leaves(relation):
            if isinstance(leaf, Mixed):
                raise PaddingError(leaf.reason, where=leaf.where)
            if isinstance(leaf, Unread):
                raise PaddingError("a result has no value")
            if isinstance(leaf, Strided):
                name = f"dim {leaf.dim} of a result"
                raise PaddingError(f"{name} joins the padded dim with those before it")
            if isinstance(leaf, Differs):
                raise PaddingError(f"it returns {leaf.kept!r}, or {leaf.padded!r} for the padded size {sizes.padded}")
        if isinstance(a.type, ListType) and not isinstance(relation, (Parts, Same)):
            raise PaddingError("it returns a list of tensors whose sizes are not known beforehand")
        found.append(relation)
    return tuple(found)


class _Comparison:
    """Two graphs on the way from their inputs to their outputs."""

    def __init__(self, kept: Graph, padded: Graph, sizes: Sizes) -> None:
        self.sizes = sizes
        self.relations: dict[Value, Relation] = {}
        self.partner: dict[Value, Value] = {}

    def relation(self, kept: Value, padded: Value) -> Relation:
        """How one value relates to its partner. Raises PaddingError when that is another one's."""
        if kept.is_constant or padded.is_constant:
            if not (kept.is_constant and padded.is_constant):
                raise PaddingError(self.other_program(kept.node, padded.node), where=place_of(kept.node))
            a, b = kept.constant(), padded.constant()
            return SAME if equal(a, b) else Differs(a, b)
        if self.partner.get(kept) is not padded:
            raise PaddingError(self.other_program(kept.node, padded.node), where=place_of(kept.node))
        return self.relations[kept]

    def other_program(self, kept: Node | None, padded: Node | None) -> str:
        names = ["nothing" if n is None else n.kind for n in (kept, padded)]
        return (
            f"the program does something else for the padded size: {names[0]} with {self.sizes.kept}, "
            f"{names[1]} with {self.sizes.padded}"
        )

    def bind(self, kept: Value, padded: Value, relation: Relation, node: Node | None) -> None:
        """Note a value's relation, after a look at the shapes."""
        if isinstance(kept.type, TensorType) and isinstance(relation, (Same, Prefix, Strided)):
            relation = self.checked(shape_of(kept), shape_of(padded), relation, node)
        elif isinstance(relation, (Prefix, Strided)) and not isinstance(kept.type, ListType):
            relation = Mixed(f"what is padded becomes a {kept.type}", place_of(node))
        self.relations[kept] = relation
        self.partner[kept] = padded

    def checked(self, kept: Shape | None, padded: Shape | None, relation: Relation, node: Node | None) -> Relation:
        """A relation that the shapes agree with."""
        where = place_of(node)
        name = "an input" if node is None else node.kind
        if kept is None or padded is None:
            if isinstance(relation, Same) and node is None:
                return relation
            return Mixed(f"{name}: the shape of its result is not known beforehand, or its arguments do not fit", where)
        if isinstance(relation, (Prefix, Strided)):
            at, outer = relation.dim, relation.outer if isinstance(relation, Strided) else 1
            fits = len(kept) == len(padded) and 0 <= at < len(kept) and self.is_longer(kept[at], padded[at], outer)
            if fits and all(a == b for d, (a, b) in enumerate(zip(kept, padded, strict=True)) if d != at):
                return relation if isinstance(relation, Strided) else Prefix(at, kept[at], relation.below)
        elif kept == padded:
            return relation
        return Mixed(f"{name}: the shape of its result is {list(kept)}, and {list(padded)} for the padded size", where)

    def is_longer(self, kept: int, padded: int, outer: int) -> bool:
        """Whether sizes are so many times those of the padded dim, in so many equal pieces."""
        times = kept // self.sizes.kept
        is_whole = times > 0 and times % outer == 0
        return is_whole and (kept, padded) == (times * self.sizes.kept, times * self.sizes.padded)

    def block(self, kept: Block, padded: Block) -> None:
        """Note what the nodes of two blocks make of what they read."""
        nodes = [[n for n in b.nodes if n.kind != "prim::Constant"] for b in (kept, padded)]
        for one, other in zip_longest(*nodes):
            self.node(one, other)

    def node(self, kept: Node | None, padded: Node | None) -> None:
        """Note what one node makes of what it reads."""
        is_one = kept is not None and padded is not None and _is_same_node(kept, padded)
        if kept is None or padded is None or not is_one:
            raise PaddingError(self.other_program(kept, padded), where=place_of(kept or padded))
        given = [self.relation(a, b) for a, b in zip(kept.inputs, padded.inputs, strict=True)]
        if has_effect(kept) or not is_deterministic(kept):
            acting = next((n for n in (kept, *inner_nodes(kept)) if _acts(n)), kept)
            message = f"{acting.kind} {_effect_of(acting)}, which padding would change"
            raise PaddingError(message, where=place_of(acting))
        found = self.results(kept, padded, given)
        for a, b, relation in zip(kept.outputs, padded.outputs, found, strict=True):
            self.bind(a, b, relation, kept if not all(map(is_same, given)) else None)

    def results(self, kept: Node, padded: Node, given: Sequence[Relation]) -> Sequence[Relation]:
        count = len(kept.outputs)
        if kept.kind in _CONTAINERS:
            return [Parts(tuple(given))]
        if kept.kind == "prim::DictConstruct":
            keys = [v.constant() if v.is_constant else object() for v in kept.inputs[::2]]
            if all(map(is_same, given[::2])) and len(set(map(repr, keys))) == len(keys):
                return [Parts(tuple(given[1::2]))]
        if kept.kind in ("prim::ListUnpack", "prim::TupleUnpack"):
            return given[0].items if isinstance(given[0], Parts) else [given[0]] * count
        if kept.kind == "prim::Uninitialized":
            return [Unread()]
        if kept.kind == "prim::unchecked_cast":
            return given
        try:
            return self.by_rule(kept, padded, given)
        except Mixes as reason:
            return [Mixed(f"{kept.kind}: {reason}", place_of(kept))] * count
        except GpujitError as fault:
            # A rule asked an operator, which refused.
            return [Mixed(f"{kept.kind}: {fault.message}", place_of(kept))] * count

    def by_rule(self, kept: Node, padded: Node, given: Sequence[Relation]) -> Sequence[Relation]:
        count = len(kept.outputs)
        if kept.kind == "prim::If" and is_same(given[0]):
            return self.by_branches(kept, padded)
        if not kept.blocks and all(map(is_same, given)):
            return [SAME] * count
        op = entry_of(kept)
        call = None if op is None else Call(op, kept, padded, given)
        entry = None if call is None else _entry_for(call)
        # What only decides shapes, which are checked, may be anything.
        free = () if op is None or entry is None else entry.shapes
        names = [""] * len(given) if op is None else [a.name for a in op.schema.arguments]
        read = [r for name, r in zip(names, given, strict=False) if name not in free]
        mixed = next((r for r in leaves(Parts(tuple(read))) if isinstance(r, Mixed)), None)
        if mixed is not None:
            return [mixed] * count
        if kept.blocks:
            raise Mixes("it is a branch or loop at run time, which may depend on what is padded")
        if (reason := _sized(read)) is not None:
            raise Mixes(reason)
        if op is None or call is None or entry is None:
            raise Mixes("no rule says which of its results the padding leaves as they are")
        found = entry.rule(call) if entry.strided else of_rows(call, entry)
        if op.kind == "view" and isinstance(found, Prefix) and isinstance(given[0], Prefix):
            # A view has no other numbers, unless it casts them.
            is_cast = getattr(kept.inputs[0].type, "dtype", None) != getattr(kept.outputs[0].type, "dtype", None)
            found = replace(found, below=0 if is_cast else given[0].below)
        return found if isinstance(found, tuple) else [found] * count

    def by_branches(self, kept: Node, padded: Node) -> Sequence[Relation]:
        """What both branches agree on, of which one is taken with and without padding."""
        found = []
        for a, b in zip(kept.blocks, padded.blocks, strict=True):
            self.block(a, b)
            found.append([self.relation(v, w) for v, w in zip(a.returns, b.returns, strict=True)])
        return [self.joined(kept, one, other) for one, other in zip(*found, strict=True)]

    def joined(self, node: Node, one: Relation, other: Relation) -> Relation:
        """A relation that two results have in common."""
        for relation in (one, other):
            if isinstance(relation, (Mixed, Differs)):
                return relation
        if isinstance(one, Unread) or isinstance(other, Unread):
            return other if isinstance(one, Unread) else one
        if isinstance(one, Prefix) and isinstance(other, Prefix) and one.dim == other.dim:
            return Prefix(one.dim)
        if one == other or (is_same(one) and is_same(other)):
            return one if one == other else SAME
        if isinstance(one, Parts) and isinstance(other, Parts) and len(one.items) == len(other.items):
            return Parts(tuple(self.joined(node, a, b) for a, b in zip(one.items, other.items, strict=True)))
        return Mixed(f"{node.kind}: its branches are padded along different dims", place_of(node))


def _entry_for(call: Call) -> Entry | None:
    """The rule for an operator, its own or that of all its kind; None when there is none."""
    op = call.op
    if op.form != "functional":
        return None
    return RULES.get(op.full_name) or RULES.get(op.name) or (None if op.data_dependent else of_entry(call))


def of_rows(call: Call, entry: Entry) -> Relation | tuple[Relation, ...]:
    """What a rule says, for Strided operands as if they were Prefixes. Raises Mixes where it may not be asked so."""
    names = [a.name for a in call.op.schema.arguments]
    read = [r for n, r in zip(names, call.relations, strict=False) if n not in entry.shapes]
    outer = {r.outer if isinstance(r, Strided) else 1 for r in leaves(Parts(tuple(read))) if not isinstance(r, Same)}
    if outer <= {1}:
        return entry.rule(call)
    if not entry.rows or len(outer) > 1:
        raise Mixes("it is not known to keep rows apart whose dim was joined with another one")
    found = entry.rule(Call(call.op, call.kept, call.padded, [_strided(r, None) for r in call.relations]))
    times = outer.pop()
    return tuple(_strided(r, times) for r in found) if isinstance(found, tuple) else _strided(found, times)


def _strided(relation: Relation, outer: int | None) -> Relation:
    """A relation whose Strided parts are Prefixes (None), or the other way round."""
    if isinstance(relation, Parts):
        return Parts(tuple(_strided(r, outer) for r in relation.items))
    if outer is None:
        return Prefix(relation.dim) if isinstance(relation, Strided) else relation
    return Strided(relation.dim, outer) if isinstance(relation, Prefix) else relation


def _sized(given: Sequence[Relation]) -> str | None:
    """What to say of a number that the padded size went into."""
    for relation in given:
        for leaf in leaves(relation):
            if isinstance(leaf, Differs):
                return f"it computes with a size that is padded: {_short(leaf.kept)}, or {_short(leaf.padded)}"
    return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"a {type(value).__name__}"


def _is_same_node(kept: Node, padded: Node) -> bool:
    same_schema = (kept.schema is None) == (padded.schema is None) and (
        kept.schema is None or padded.schema is None or kept.schema.full_name == padded.schema.full_name
    )
    return (
        kept.kind == padded.kind
        and same_schema
        and len(kept.inputs) == len(padded.inputs)
        and len(kept.outputs) == len(padded.outputs)
        and kept.attributes.keys() == padded.attributes.keys()
        and all(equal(kept.attributes[k], padded.attributes[k]) for k in kept.attributes)
    )


def equal(a: Any, b: Any) -> bool:
    """Whether two constants are the same, tensors by dtype, shape and numbers."""
    if a is b:
        return True
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if type(a) is type(b) and isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    try:
        return same_constant(a, b)
    except (TypeError, ValueError):
        return False


def _acts(node: Node) -> bool:
    return has_own_effect(node) or (entry_of(node) is not None and not node.blocks and not is_deterministic(node))


def _effect_of(node: Node) -> str:
    op = entry_of(node)
    if not is_deterministic(node):
        return "draws random numbers"
    if node.kind == "prim::RaiseException":
        return "raises, depending on numbers"
    if node.kind == "prim::SetAttr":
        return "writes an attribute"
    if op is not None and op.schema.is_mutable:
        return "writes into memory that is seen from outside"
    if op is not None and op.hidden_writes:
        return "writes statistics, as in training mode"
    return "does more than give results"


def place_of(node: Node | None) -> str:
    """Where the author wrote a node."""
    if node is None or node.source is None:
        return ""
    place = node.source.original() or node.source
    return f"  {place.source.name}:{place.shown_line}\n{place.highlight()}"
