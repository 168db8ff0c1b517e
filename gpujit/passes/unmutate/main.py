"""In-place operators made functional where nobody can tell.

Memory becomes a variable: every write makes a new value of it, ifs and loops hand it on, and a view that is read after
a write is made again from the newest value. Left alone is memory that others may see when it is written (inputs,
attributes, constants, elements of containers), and writes that have no functional form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.types import TensorType, Type
from gpujit.passes.analysis.effects import entry_of
from gpujit.passes.base import declined, graph_pass, may_change, spend
from gpujit.passes.unmutate.cells import Cells, Handover, Write, loops_around, owners
from gpujit.passes.unmutate.operators import Functional, functional_form
from gpujit.passes.unmutate.views import UNPACK, VIEWS, Writer, let_copy, why_not

NAME = "remove_tensor_mutation"


@graph_pass(NAME)
def remove_tensor_mutation(graph: Graph) -> bool:
    """Make writes into tensors functional where nobody else sees the tensor."""
    if not any(_writes_tensor(node) for node in graph.all_nodes()):
        return False
    cells = Cells(graph)
    chosen = _choose(cells)
    if not chosen.writes:
        return False
    _Rebuild(graph, cells, chosen).run()
    return True


def _writes_tensor(node: Node) -> bool:
    op = entry_of(node)
    return op is not None and any(a.is_write and isinstance(a.type, TensorType) for a in op.schema.arguments)


# ------------------------------------------------------------------------------------------------------- choosing


class _Chosen:
    """Cells that become variables, and how each node that writes them is replaced."""

    def __init__(self) -> None:
        self.cells: set[Value] = set()
        self.writes: dict[Node, Functional] = {}
        # Cells whose later values may have another memory order than the first.
        self.reordered: set[Value] = set()


def _choose(cells: Cells) -> _Chosen:
    chosen = _Chosen()
    refused: set[Node] = set()
    found: list[dict[Node, Functional]] = []
    for group in _groups(cells):
        result = _judge(cells, group)
        if isinstance(result, str):
            for write in group.writes:
                declined(NAME, write.node, result)
                refused.add(write.node)
        else:
            found.append(result)
    # A node that writes several cells is replaced only when all of them become variables.
    while any(refused.intersection(forms) for forms in found):
        for forms in found:
            if refused.intersection(forms):
                refused.update(forms)
        found = [forms for forms in found if not refused.intersection(forms)]
    for i, forms in enumerate(found):
        if not may_change(int(i > 0)):
            break
        if i:
            spend()
        chosen.writes.update(forms)
        for node, form in forms.items():
            for index in form.written:
                (root,) = cells.roots_of(node.inputs[index])
                chosen.cells.add(root)
                if sum(isinstance(v.type, TensorType) for v in node.inputs) > 1:
                    chosen.reordered.add(root)
    return chosen


class _Group:
    """Writes that are made functional together or not at all, since they may be to the same memory."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.handovers: list[Handover] = []


def _groups(cells: Cells) -> list[_Group]:
    origins = cells.origins()
    leader: dict[Value, Value] = {}

    def find(value: Value) -> Value:
        while leader.get(value, value) is not value:
            leader[value] = leader.get(leader[value], leader[value])
            value = leader[value]
        return value

    written = [cell for cell in cells.cells.values() if cell.writes]
    for cell in written:
        first, *others = origins[cell.root]
        for other in others:
            leader[find(other)] = find(first)
    groups: dict[Value, _Group] = {}
    for cell in written:
        for origin in origins[cell.root]:
            group = groups.setdefault(find(origin), _Group())
        group.writes.extend(cell.writes)
    for handover in cells.handovers:
        for leading in {find(origin) for origin in origins[handover.cell]}:
            if leading in groups:
                groups[leading].handovers.append(handover)
    return list(groups.values())


def _judge(cells: Cells, group: _Group) -> dict[Node, Functional] | str:
    """How each write of a group is replaced, or why they stay."""
    if all(cells.cells[write.cell].is_foreign for write in group.writes):
        return "others see the tensor"
    position = cells.order.position
    last = max(position[write.node] for write in group.writes)
    repeats = any(True for write in group.writes for _ in loops_around(write.node))
    for handover in group.handovers:
        over = position[handover.place] > last and not repeats
        reason = _conflict(cells, handover, [] if over else group.writes)
        if reason is not None:
            return reason
    forms: dict[Node, Functional] = {}
    for write in group.writes:
        if cells.cells[write.cell].is_foreign:
            continue
        if len(cells.roots_of(write.value)) != 1:
            return "it may write into one of several tensors"
        reason = _unwritable(cells, write.value)
        if reason is not None:
            return reason
        form = functional_form(write.node)
        if isinstance(form, str):
            return form
        if write.index not in form.written:
            return "it writes into an argument that it does not return"
        if form.reshapes and not _is_plain(cells, write, group):
            return "it gives a tensor with other names another shape"
        forms[write.node] = form
    return forms


def _is_plain(cells: Cells, write: Write, group: _Group) -> bool:
    """Whether a tensor has no other names and is written only where it is made, so that it may change its shape."""
    root = write.cell
    if root in cells.viewed or cells.cells[root].is_received or any(h.target is not None for h in group.handovers):
        return False
    return all(other.cell is root and other.node.block is root.node.block for other in group.writes)


def _conflict(cells: Cells, handover: Handover, writes: list[Write]) -> str | None:
    """Why memory that is handed on may be seen to change under another name; None when it is not."""
    order, place = cells.order, handover.place
    cell = cells.cells[handover.cell]

    def is_seen(write: Write) -> bool:
        received = cells.cells[write.cell].is_received
        return order.may_follow(write.node, place, None if received else write.cell)

    written = any(map(is_seen, writes))
    if handover.target is None:
        if written:
            return "it is written after others may see it"
        for node in cells.foreign_writers if cell.writes else ():
            if node is place or order.may_follow(node, place, handover.cell):
                if cells.alias.may_write(node, handover.cell):
                    return "others may write it"
        return None
    if not written:
        return None
    if cell.is_foreign:
        return "it may be an input, an attribute or another tensor that others see"
    for use in cell.uses:
        if use != handover.use and cells.reads_elements(use):
            if use.node is place or order.may_follow(use.node, place, handover.cell):
                return "it may share memory with a tensor that is read later"
    return None


def _unwritable(cells: Cells, value: Value) -> str | None:
    """Why what is written through a value cannot be put back into its cell."""
    (root,) = cells.roots_of(value)
    value = cells.same(value)
    while value is not root:
        name = cells.makers[value]
        if name not in VIEWS:
            return f"it writes through {name}"
        reason = why_not(value.node, name)
        if reason is not None:
            return reason
        value = cells.same(cells.sources[value][0])
    return None


# ----------------------------------------------------------------------------------------------------- rebuilding


class _Rebuild:
    """Walks the graph in order with the newest value of each cell at hand."""

    def __init__(self, graph: Graph, cells: Cells, chosen: _Chosen) -> None:
        self.graph = graph
        self.cells = cells
        self.chosen = chosen
        # The newest value of each cell.
        self.newest: dict[Value, Value] = {}
        # (value, newest values of its cells) -> what it is then; one dict a block, the innermost last.
        self.known: list[dict[tuple[Value, tuple[Value, ...]], Value]] = [{}]
        # Found while the graph still is what the analysis has seen.
        self.whole = {n for n, form in chosen.writes.items() if _copies_whole(cells, chosen, n, form)}
        self.inside: dict[Node, list[Value]] = {}
        for node in chosen.writes:
            for i in chosen.writes[node].written:
                (root,) = cells.roots_of(node.inputs[i])
                for owner in owners(node):
                    held = self.inside.setdefault(owner, [])
                    if root not in held:
                        held.append(root)

    def run(self) -> None:
        self.block(self.graph.block)
        for node in self.chosen.writes:
            node.remove_all_inputs()
        for node in self.chosen.writes:
            node.destroy()

    def block(self, block: Block) -> None:
        self.define(block.params)
        for node in list(block.nodes):
            if node in self.chosen.writes:
                self.write(node, self.chosen.writes[node])
                continue
            self.update_inputs(node)
            if node.blocks:
                self.inner(node)
            self.reshape_freely(node)
            self.define(node.outputs)
        self.update_inputs(block.return_node)

    # ------------------------------------------------------------------------------------------------ values

    def define(self, values: Iterable[Value]) -> None:
        for value in values:
            if self.cells.same(value) is not value:
                continue
            roots = self.cells.roots_of(value)
            if value in self.chosen.cells:
                self.newest[value] = value
            elif roots and any(r in self.chosen.cells for r in roots):
                self.known[-1][value, self.state(roots)] = value

    def state(self, roots: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(self.newest.get(r, r) for r in roots)

    def update_inputs(self, node: Node) -> None:
        for i, value in enumerate(node.inputs):
            roots = self.cells.roots_of(value)
            if any(r in self.chosen.cells for r in roots):
                node.set_input(i, self.now(value, node))

    def now(self, value: Value, place: Node) -> Value:
        """What a value shows at ``place``; views are made again there when they are out of date."""
        value = self.cells.same(value)
        roots = self.cells.roots_of(value)
        if not any(r in self.chosen.cells for r in roots):
            return value
        if value in self.chosen.cells:
            return self.newest[value]
        key = (value, self.state(roots))
        for known in reversed(self.known):
            if key in known:
                return known[key]
        node = value.node
        new = Writer(place).new(node.kind, [self.now(v, place) for v in self.cells.sources[value]])
        new.attributes, new.schema = dict(node.attributes), node.schema
        new.source, new.call = node.source, node.call
        for out in node.outputs:
            self.known[-1][out, key[1]] = new.add_output(_steady(out.type))
        self.reshape_freely(new)
        return new.outputs[value.index]

    def reshape_freely(self, node: Node) -> None:
        """Let a view of a cell whose memory order may have changed copy."""
        if node.kind == "aten::view" and node.schema is not None and node.schema.overload == "":
            if any(r in self.chosen.reordered for r in self.cells.roots_of(node.outputs[0])):
                let_copy(node)

    # ------------------------------------------------------------------------------------------------- nodes

    def write(self, node: Node, form: Functional) -> None:
        w = Writer(node)
        inputs = [self.now(v, node) for v in node.inputs]
        if node in self.whole:
            self.put(w, node.inputs[0], inputs[1])
            return
        new = w.new(form.op.name, [v for i, v in enumerate(inputs) if i not in form.dropped])
        new.schema = form.op.schema
        results: list[Value] = []
        for i, casts in zip(form.written, form.casts, strict=True):
            t = _steady(node.output.type if form.reshapes else inputs[i].type)
            results.append(new.add_output(_castable(t) if casts else t))
        for i, casts, result in zip(form.written, form.casts, results, strict=True):
            t = _steady(inputs[i].type)
            value = w.cast(result, inputs[i], t) if casts else result
            self.put(w, node.inputs[i], value)

    def put(self, w: Writer, value: Value, elements: Value) -> None:
        """Make ``elements`` what a value shows, and its cell accordingly."""
        value = self.cells.same(value)
        if value in self.chosen.cells:
            self.newest[value] = elements
            return
        node = value.node
        put_back = VIEWS[self.cells.makers[value]].put_back
        assert put_back is not None
        source = self.cells.sources[value][0]
        if node.kind == UNPACK:
            pieces = [elements if out is value else self.now(out, w.place) for out in node.outputs]
            self.put(w, source, w.new("prim::ListConstruct", pieces).add_output(source.type))
            state = self.state(self.cells.roots_of(value))
            self.known[-1].update(zip(((out, state) for out in node.outputs), pieces, strict=True))
            return
        changed = put_back(w, node, self.now(source, w.place), elements, _steady(source.type))
        self.put(w, source, changed)
        self.known[-1][value, self.state(self.cells.roots_of(value))] = elements

    def inner(self, node: Node) -> None:
        threaded = [r for r in self.inside.get(node, ()) if r in self.newest and self.is_needed(r, node)]
        before = dict(self.newest)
        ends: list[list[Value]] = []
        is_loop = node.kind == "prim::Loop"
        for root in threaded if is_loop else ():
            node.add_input(self.newest[root])
        for block in node.blocks:
            self.newest = dict(before)
            self.known.append({})
            for root in threaded if is_loop else ():
                self.newest[root] = block.add_param(_steady(root.type), root.name)
            self.block(block)
            ends.append([self.newest[r] for r in threaded])
            self.known.pop()
        self.newest = before
        for block, values in zip(node.blocks, ends, strict=True):
            for value in values:
                block.add_return(value)
        for root in threaded:
            self.newest[root] = node.add_output(_steady(root.type), root.name)

    def is_needed(self, root: Value, node: Node) -> bool:
        """Whether the memory is used after an if that writes it, or by the next round of the if or loop."""
        end = node.blocks[-1].return_node
        uses = self.cells.cells[root].uses
        return node.kind == "prim::Loop" or any(self.cells.order.may_follow(u.node, end, root) for u in uses)


def _copies_whole(cells: Cells, chosen: _Chosen, node: Node, form: Functional) -> bool:
    """Whether a copy has just the elements of its source, which nobody writes or sees afterwards."""
    if form.op.full_name != "aten::copy":
        return False
    target, source = node.inputs[:2]
    t = target.type
    assert isinstance(t, TensorType)
    if t.dtype is None or t.shape is None or None in t.shape or _steady(source.type) != _steady(t):
        return False
    alias = cells.alias
    return (
        alias.is_fresh(source)
        and not alias.escapes(source)
        and all(writer in chosen.writes for writer in alias.writers(source))
    )


def _steady(t: Type) -> Type:
    """What a write cannot change of a type: dtype, shape and device, but not the memory order."""
    return TensorType(t.dtype, t.shape, None, t.device) if isinstance(t, TensorType) else t


def _castable(t: Type) -> Type:
    return TensorType(None, t.shape, None, t.device) if isinstance(t, TensorType) else T.TENSOR
