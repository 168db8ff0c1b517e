"""Writes into attributes as steps on a GPU: what an operator would store is computed, and copied to where it belongs.

All that aliases of an attribute might be is known before a run, or the graph has no plan: an attribute that is written
is read and written under its own name and through views of it. Whether others share its memory is looked at when a plan
runs (see ``Apart``). Small tensors of integers lie on the host, where operators write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import nan, prod
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import FLOAT32, FLOAT64
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.values import DeviceTensor
from gpujit.kernels.launches import DeviceStep
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.attributes import GET, SET
from gpujit.passes.analysis.effects import entry_of, hidden_writes
from gpujit.passes.nodes import constant_before, insert_node, insert_op, replace_node
from gpujit.passes.specialise.outside import may_be_looked_at
from gpujit.passes.unmutate.operators import functional_form
from gpujit.static_runtime.device_tiles import cast_program, program_step
from gpujit.static_runtime.device_views import copied, started
from gpujit.static_runtime.places import Place, Places, are_apart, contiguous, facts_of
from gpujit.support.errors import GpujitError

BATCH_NORM = "aten::batch_norm"
# What takes tensors out of containers, and what makes these.
_TAKING = ("prim::ListUnpack", "prim::TupleUnpack", "prim::TupleIndex", "aten::__getitem__", "aten::values")
_MAKING = ("prim::ListConstruct", "prim::TupleConstruct")


def attribute_of(value: Value) -> Value | None:
    """The attribute that a tensor is, or is a view of, as far as operators say; None for others."""
    while True:
        node = value.node
        if node.kind == GET:
            return value if isinstance(value.type, T.TensorType) else None
        op = entry_of(node)
        is_view = op is not None and op.kind == "view" and op.form == "functional"
        if not is_view and node.kind not in ("prim::unchecked_cast", "prim::ListUnpack"):
            return None
        value = node.inputs[0]


def is_on_host(value: Value) -> bool:
    """Whether an attribute's tensor is one of those that stay on the host."""
    facts = facts_of(value)
    return facts is not None and may_be_looked_at(np.broadcast_to(np.zeros((), facts[1]), facts[0]))


@dataclass(frozen=True, slots=True)
class Writes:
    """The writes into attributes of a graph: ``puts`` are copies of the second input to the first one, on the device;
    ``hosted`` are nodes that write tensors on the host, with these; ``refusals`` say why others are neither."""

    puts: set[Node]
    hosted: dict[Node, list[Value]]
    refusals: dict[Node, str]

    @property
    def known(self) -> set[Node]:
        """All nodes of which is known what they write."""
        return self.puts | self.hosted.keys()

    def attributes(self, node: Node, places: Places) -> list[Value] | None:
        """The attributes that a node writes; None when that is not known."""
        if node in self.hosted:
            return self.hosted[node]
        place = places.of(node.inputs[0])
        return None if place is None or place.root.node.kind != GET else [place.root]


def write_out_puts(graph: Graph) -> Writes:
    """Make each write into a tensor of an attribute a functional operator and a copy."""
    found = Writes(set(), {}, {})
    for node in list(graph.all_nodes()):
        op = entry_of(node)
        if op is None:
            continue
        written = [i for i, a in enumerate(op.schema.arguments) if a.is_write]
        hidden = list(hidden_writes(node, op))
        places = [*written, *hidden]
        owners = [o for i in places if (o := attribute_of(node.inputs[i])) is not None]
        if not owners or len(owners) != len(places):
            continue
        on_host = list(map(is_on_host, owners))
        if all(on_host):
            found.hosted[node] = owners
            if len(node.outputs) == len(written):
                for i, value in zip(written, node.outputs, strict=True):
                    value.replace_all_uses_with(node.inputs[i])
            continue
        if any(on_host):
            reason = "it writes into tensors on the host and on the device"
        elif hidden:
            reason = _norm(node, found.puts)
        else:
            reason = _functional(node, written, found.puts)
        if reason:
            found.refusals[node] = reason
    return found


def _functional(node: Node, written: Sequence[int], puts: set[Node]) -> str:
    """A node replaced by its functional form and copies, which are added to ``puts``; or the reason why not."""
    if any(facts_of(node.inputs[i]) is None for i in written) or len(node.outputs) != len(written):
        return "the tensor it writes is not of a known shape"
    targets = [node.inputs[i] for i in written]
    if node.kind == "aten::copy_":
        results = [node.inputs[1]]
    else:
        form = functional_form(node)
        if isinstance(form, str) or form.reshapes:
            return form if isinstance(form, str) else "it gives the tensor another shape"
        inputs = [v for i, v in enumerate(node.inputs) if i not in form.dropped]
        try:
            results = list(insert_node(node, form.op.full_name, inputs, node).outputs)
        except GpujitError as fault:
            return fault.message
    for target, result in zip(targets, results, strict=True):
        puts.add(_put(node, target, result))
    replace_node(node, targets)
    return ""


def _put(node: Node, target: Value, result: Value) -> Node:
    made = insert_op(node, "aten::copy_", [target, result, constant_before(node, False)], node)
    made.type = target.type
    return made.node


def _norm(node: Node, puts: set[Node]) -> str:
    """A batch norm in training whose statistics are computed by themselves; or the reason why not."""
    x, mean, var, momentum = (node.inputs[i] for i in (0, 3, 4, 6))
    facts = [facts_of(v) for v in (x, mean, var)]
    if node.kind != BATCH_NORM or any(f is None or f[1] not in (FLOAT32, FLOAT64) for f in facts):
        return "its statistics are written in another way"
    shape = facts[0][0] if facts[0] is not None else ()
    if len({f[1] for f in facts if f is not None}) != 1 or len(shape) < 2 or 0 in shape or not momentum.is_constant:
        return "its statistics are written in another way"
    keep, none = constant_before(node, False), constant_before(node, None, T.NONE)
    one, zero = constant_before(node, 1), constant_before(node, 0)
    axes = constant_before(node, [0, *range(2, len(shape))], T.ListType(T.INT))
    count = prod(shape) // shape[1]
    unbiased = constant_before(node, count / (count - 1) if count > 1 else nan)
    rest = constant_before(node, 1 - momentum.constant())
    means = insert_op(node, "aten::mean.dim", [x, axes, keep, none], node)
    spread = insert_op(node, "aten::var.correction", [x, axes, zero, keep], node)
    wide = insert_op(node, "aten::mul.Scalar", [spread, unbiased], node)
    for target, result in ((mean, means), (var, wide)):
        new = insert_op(node, "aten::mul.Scalar", [result, momentum], node)
        old = insert_op(node, "aten::mul.Scalar", [target, rest], node)
        puts.add(_put(node, target, insert_op(node, "aten::add.Tensor", [old, new, one], node)))
    # What is left is the norm by these statistics.
    for i, value in ((3, means), (4, spread), (5, constant_before(node, False))):
        node.set_input(i, value)
    return ""


def put_step(source: Place, target: Place) -> DeviceStep | str:
    """The step that copies a tensor, broadcast and converted, to a place; or why there is none."""
    missing = len(target.shape) - len(source.shape)
    if not are_apart(target.shape, target.strides, target.dtype.itemsize):
        return "it writes elements that share memory"
    fits = missing >= 0 and all(n in (1, m) for n, m in zip(source.shape, target.shape[max(missing, 0) :], strict=True))
    if not fits:
        return "what it writes does not fit"
    strides = (*[0] * missing, *(0 if n == 1 else s for n, s in zip(source.shape, source.strides, strict=True)))
    whole = replace(source, strides=strides, shape=target.shape)
    try:
        program = cast_program(source.dtype, target.dtype, len(target.shape))
        if source.root is target.root:
            # Elements are read before any is written.
            return _moved(whole, target)
        step = program_step(program, [whole], [target], target.shape, (), "copy")
    except GpujitError as fault:
        return fault.message
    return step or "its strides split elements"


def _moved(source: Place, target: Place) -> DeviceStep | str:
    begun = started([source.root], lambda v: source, target, same=0)
    if begun is None:
        return "its strides split elements"
    build, (x,), out = begun
    x = copied(build, x)
    program = cast_program(x.dtype, out.dtype, len(out.shape))
    build.tile(program, [x.laid], [out.laid], out.shape, label="copy")
    return build.finish()


# What may be planned --------------------------------------------------------------------------------------------------


def why_not(graph: Graph, order: Sequence[Node], places: Places, alias: AliasAnalysis, writes: Writes) -> str:
    """Why the writes of a graph cannot be those of a plan; empty when they can."""
    if not writes.known:
        return ""
    replaced = {n.attributes["name"] for n in order if n.kind == SET}
    memory = 0
    for node in writes.known:
        roots = writes.attributes(node, places)
        if roots is None:
            return f"{_where(node)} writes into an attribute through a view that is only known when it runs"
        if any(r.node.attributes["name"] in replaced or path_of(graph, r) is None for r in roots):
            return f"{_where(node)} writes into an attribute that the program replaces, or of an object it makes"
        for root in roots:
            memory |= alias.memory(root)
    position = {n: i for i, n in enumerate(order)}
    at = [position[n] for n in writes.known if n in position]
    for node in order:
        values = [*node.outputs, *(v for b in node.blocks for v in b.params)]
        for value in values:
            if value.uses and alias.memory(value) & memory and not _is_clear(graph, value, places, position, at):
                return f"{_where(node)} may give memory of an attribute that the program writes another name"
        if node.kind == SET and (reason := _stored_again(node, order, places, writes)):
            return reason
    return ""


def _stored_again(node: Node, order: Sequence[Node], places: Places, writes: Writes) -> str:
    """Why an attribute may share memory with one that is written, by what the graph stores in it."""
    place, name = places.of(node.inputs[1]), node.attributes["name"]
    roots = {p.root for n in writes.puts if (p := places.of(n.inputs[0])) is not None}
    is_shared = place is not None and place.root in roots
    if is_shared and any(n.kind == GET and n.attributes["name"] == name for n in order):
        return f"{name!r} is read, and may be a view of an attribute that the program writes"
    return ""


def _where(node: Node) -> str:
    return node.kind if node.source is None else f"{node.kind} ({node.source})"


def _is_clear(graph: Graph, value: Value, places: Places, position: dict[Node, int], writes: Sequence[int]) -> bool:
    """Whether it is known when a value has memory of an attribute: then it is its view, or shares none when a plan
    runs."""
    node, place = value.node, places.of(value)
    if isinstance(value.type, T.ClassType):
        return True
    if place is not None and place.root is not value:
        return place.root.node.kind == GET or place.root in graph.inputs
    if node.kind == GET:
        return path_of(graph, value) is not None
    if node.kind in _MAKING:
        # Whoever looks into it may copy what it holds.
        last = max((position.get(u.node, len(position)) for u in value.uses), default=0)
        return not any(position[node] < i < last for i in writes)
    if node.kind.startswith(_TAKING):
        held = node.inputs[0]
        while held.node.kind.startswith(_TAKING):
            held = held.node.inputs[0]
        return held in graph.inputs or held.node.kind == GET
    return False


def path_of(graph: Graph, value: Value) -> tuple[int, tuple[int, ...]] | None:
    """How an attribute is found from the graph's inputs: the number of one, and slots from object to object. None when
    that is only known at run time."""
    slots: list[int] = []
    while value.node.kind == GET:
        owner = value.node.inputs[0]
        if not isinstance(owner.type, T.ClassType):
            return None
        slots.append(owner.type.slot_of[value.node.attributes["name"]])
        value = owner
    if value not in graph.inputs:
        return None
    return graph.inputs.index(value), tuple(reversed(slots))


# What is looked at when a plan runs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Apart:
    """The attributes that a plan writes, and all others that it reads, by their paths."""

    written: tuple[tuple[int, tuple[int, ...]], ...]
    read: tuple[tuple[int, tuple[int, ...]], ...]

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether each tensor that is written lies together, and shares its memory with no other and no input."""
        spans: list[tuple[bool, int, int, bool]] = []
        for paths, is_written in ((self.written, True), (self.read, False)):
            for path in paths:
                if not all(_add(spans, x, is_written) for x in _tensors(_at(values, path))):
                    return False
        for value in values:
            for x in _tensors(value):
                _add(spans, x, False)
        spans.sort()
        end: dict[bool, tuple[int, int]] = {}
        for on_device, low, high, is_written in spans:
            # Ends of all, and of those that are written.
            last, written = end.get(on_device, (0, 0))
            if low < (last if is_written else written):
                return False
            end[on_device] = max(last, high), max(written, high) if is_written else written
        return True


def _at(values: Sequence[Any], path: tuple[int, tuple[int, ...]]) -> Any:
    found = values[path[0]]
    for slot in path[1]:
        found = found.slots[slot]
    return found


def _add(spans: list[tuple[bool, int, int, bool]], x: Any, is_written: bool) -> bool:
    """Note the memory of a tensor; False for one that is written and does not lie together."""
    on_device = type(x) is DeviceTensor
    if x.size:
        wanted = contiguous(x.shape, x.dtype)
        if is_written and any(n > 1 and s != w for n, s, w in zip(x.shape, x.strides, wanted, strict=True)):
            return False
        first = x.address if on_device else x.__array_interface__["data"][0]
        steps = [(n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)]
        low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
        spans.append((on_device, first + low, first + high + x.dtype.itemsize, is_written))
    return True


def _tensors(value: Any) -> Iterable[Any]:
    """The tensors of a caller's value, at any depth."""
    if type(value) in (DeviceTensor, np.ndarray):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in (*value.keys(), *value.values()):
            yield from _tensors(item)


def apart_of(graph: Graph, order: Sequence[Node], places: Places, writes: Writes) -> Apart | None:
    """What a plan with these writes looks at when it runs; None when there is nothing to be looked at."""
    if not writes.known:
        return None
    roots = [r for n in writes.known for r in writes.attributes(n, places) or ()]
    gets = [v for n in order if n.kind == GET for v in n.outputs if not isinstance(v.type, T.ClassType)]
    written, read = ({p for v in each if (p := path_of(graph, v)) is not None} for each in (roots, gets))
    return Apart(tuple(sorted(written)), tuple(sorted(read - written)))
