"""Control flow: branches taken or kept, loops unrolled or kept, calls followed, forks run where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.source import CallSite
from gpujit.passes.analysis.effects import inner_nodes
from gpujit.passes.inline import callee
from gpujit.passes.specialise.evaluator import Evaluator, TooLarge, Unreachable, handles
from gpujit.passes.specialise.language import as_it_is
from gpujit.passes.specialise.merge import Conflict, Merge, Template
from gpujit.passes.specialise.values import Abstract, Blank, Dyn, Known, Ref, State, Task, is_within
from gpujit.support.errors import LimitError

# Attempts at a branch or loop that stays, each with more objects made before it.
MAX_ATTEMPTS = 40


@contextmanager
def emitting_into(ev: Evaluator, block: Block) -> Iterator[None]:
    """Emit into a block that only some runs reach."""
    outer, ev.block = ev.block, block
    ev.nesting += 1
    try:
        yield
    finally:
        ev.block = outer
        ev.nesting -= 1


class Mark:
    """A point to go back to: what was emitted since is taken out, and the state is as it was."""

    def __init__(self, ev: Evaluator) -> None:
        self.ev = ev
        self.block = ev.block
        self.last = ev.block.return_node.prev
        self.count = ev.count
        self.state = ev.state.copy()

    def back(self) -> None:
        """Undo. May be called again."""
        ev = self.ev
        ev.block = self.block
        node = self.block.return_node.prev
        while node is not self.last:
            assert node is not None
            before = node.prev
            ev.reasons.pop(node, None)
            node.destroy()
            node = before
        ev.count = self.count
        ev.state = self.state.copy()


# ------------------------------------------------------------------------------------------------------------- if


@handles("prim::If")
def if_(ev: Evaluator, node: Node) -> None:
    """The branch that is known to be taken, in place of the node; else both."""
    condition = ev.get(node.inputs[0])
    if isinstance(condition, Blank):
        for output in node.outputs:
            ev.bind(output, Blank(output.type))
        return
    if isinstance(condition, Known):
        results = ev.run(node.blocks[0 if condition.value else 1])
        for output, known in zip(node.outputs, results, strict=True):
            ev.bind(output, known)
        return
    _dynamic_if(ev, node, condition)


def _dynamic_if(ev: Evaluator, node: Node, condition: Abstract) -> None:
    mark = Mark(ev)
    forced: dict[Ref, None] = {}
    for _ in range(MAX_ATTEMPTS):
        for ref in forced:
            ev.place(ref, None, node)
        base = ev.state.copy()
        made = ev.emit("prim::If", [ev.place(condition)], node)
        ends: list[tuple[list[Abstract] | None, State]] = []
        for block in node.blocks:
            ev.state = base.copy()
            target = made.add_block()
            results: list[Abstract] | None
            with emitting_into(ev, target):
                try:
                    results = ev.run(block)
                except Unreachable:
                    results = None
            ends.append((results, ev.state))
        merge = Merge(ev, made, base, ends)
        try:
            outputs = merge.run([output.type for output in node.outputs])
        except Conflict as conflict:
            new = [ref for ref in conflict.refs if ref not in forced]
            if not new:
                raise LimitError(f"the branches of {node!r} cannot be merged") from None
            forced.update(dict.fromkeys(new))
            mark.back()
            continue
        if all(results is None for results, _ in ends):
            raise Unreachable
        ev.reasons[made] = "its condition depends on data"
        for output, known in zip(node.outputs, outputs, strict=True):
            ev.bind(output, known)
        return
    raise LimitError(f"the branches of {node!r} were not merged in {MAX_ATTEMPTS} attempts")


# ----------------------------------------------------------------------------------------------------------- loop


@handles("prim::Loop")
def loop(ev: Evaluator, node: Node) -> None:
    """Unrolled when trip count and condition are known each time; else kept."""
    trips, condition, *carried = (ev.get(v) for v in node.inputs)
    if isinstance(condition, Known) and (isinstance(trips, Known) or not condition.value):
        mark = Mark(ev)
        try:
            _unroll(ev, node, trips, condition, carried)
            return
        except TooLarge as reason:
            mark.back()
            why = str(reason)
    else:
        why = "its trip count or condition depends on data"
    _dynamic_loop(ev, node, trips, condition, carried, why)


def _unroll(ev: Evaluator, node: Node, trips: Abstract, condition: Abstract, carried: list[Abstract]) -> None:
    (block,) = node.blocks
    turn = 0
    while isinstance(condition, Known) and condition.value and isinstance(trips, Known) and turn < trips.value:
        if ev.count > ev.limit or turn > ev.limit:
            raise TooLarge(f"unrolled it has more than {ev.limit} nodes")
        for param, known in zip(block.params, (Known(turn, T.INT), *carried), strict=True):
            ev.bind(param, known)
        condition, *carried = ev.run(block)
        turn += 1
    if not isinstance(condition, Known):
        if not (isinstance(trips, Known) and turn >= trips.value):
            raise TooLarge("its condition depends on data")
    for output, known in zip(node.outputs, carried, strict=True):
        ev.bind(output, known)


def _dynamic_loop(
    ev: Evaluator, node: Node, trips: Abstract, condition: Abstract, carried: list[Abstract], why: str
) -> None:
    (block,) = node.blocks
    mark = Mark(ev)
    template = Template(carried)
    forced: dict[Ref, None] = {}
    forgotten: dict[Ref, None] = {}
    written: dict[tuple[Ref, str], T.Type] = {}
    lost: dict[Value, None] = {}
    reshaped: dict[Value, None] = {}
    spoiled: frozenset[type] = frozenset()
    for _ in range(MAX_ATTEMPTS):
        for ref in forced:
            ev.place(ref, None, node)
        for ref in forgotten:
            ev.state.contents.pop(ref, None)
        ev.state.spoiled |= spoiled
        for key, t in written.items():
            ev.state.attributes.pop(key, None)
            ev.state.stale[key] = t
        for value in lost:
            ev.state.arrays.pop(value, None)
        for value in reshaped:
            ev.state.renamed[value] = ev.untyped(value)
        starts = template.holes(carried)
        inputs = [ev.place(trips, T.INT, node), ev.place(condition, T.BOOL, node)]
        inputs += [ev.place(known, t, node) for known, t in zip(starts, template.types, strict=True)]
        base = ev.state.copy()
        made = ev.emit("prim::Loop", inputs, node)
        target = made.add_block()
        ev.bind(block.params[0], Dyn(target.add_param(T.INT)))
        params = [Dyn(target.add_param(t)) for t in template.types]
        for param, known in zip(block.params[1:], template.fill(params), strict=True):
            ev.bind(param, known)
        with emitting_into(ev, target):
            try:
                again, *results = ev.run(block)
                reached = True
            except Unreachable:
                again, results, reached = Blank(T.BOOL), list(template.fill(params)), False
            end = ev.state
            stable = template.widen(ev, results, [p.type for p in block.params[1:]]) if reached else True
            stable &= _changes(ev, base, end, forced, forgotten, written, lost)
            # Containers first met in here, and changed: the next turn does not find them as they were.
            stable &= all(
                ref in base.places or ref not in end.places or end.contents.get(ref) is found
                for ref, found in ev.met.items()
            )
            stable &= end.spoiled == base.spoiled
            spoiled |= end.spoiled
            for value, now in end.renamed.items():
                if base.renamed.get(value) is not now and not is_within(value, made):
                    reshaped[value] = None
                    stable = False
            if stable:
                target.add_return(ev.place(again, T.BOOL, node))
                for known, t in zip(template.holes(results), template.types, strict=True):
                    target.add_return(ev.place(known, t, node))
        if not stable:
            mark.back()
            continue
        ev.state = base
        outputs = [Dyn(made.add_output(t)) for t in template.types]
        for output, known in zip(node.outputs, template.fill(outputs), strict=True):
            ev.bind(output, known)
        ev.reasons[made] = why
        return
    raise LimitError(f"what {node!r} carries was not found in {MAX_ATTEMPTS} attempts")


def _changes(
    ev: Evaluator,
    base: State,
    end: State,
    forced: dict[Ref, None],
    forgotten: dict[Ref, None],
    written: dict[tuple[Ref, str], T.Type],
    lost: dict[Value, None],
) -> bool:
    """Note what a loop's body changed that was there before; whether that is nothing new."""
    stable = True
    for ref, contents in base.contents.items():
        if ref not in base.places and ref in end.places and ref not in forced:
            forced[ref] = None
            stable = False
        if end.contents.get(ref) != contents:
            if ref not in forced:
                forced[ref] = None
            forgotten[ref] = None
            stable = False
    for key in {*end.attributes, *end.stale}:
        ref, _ = key
        changed = end.stale.get(key) != base.stale.get(key)
        before, after = base.attributes.get(key), end.attributes.get(key)
        if ref in base.places or ref in ev.owners:
            if not changed and (before is None or before is after):
                continue
            t = end.stale.get(key, T.ANY)
            joined = ev.join(t, written[key]) if key in written else _type_before(base, key, t, ev)
            if written.get(key) != joined or base.attributes.get(key) is not None:
                written[key] = joined
                stable = False
        elif _existed(base, ref) and before is not after:
            # An object of the program's own is changed: it has to exist at run time.
            forced[ref] = None
            stable = False
        elif ref in end.places and _existed(base, ref) and ref not in forced:
            forced[ref] = None
            stable = False
    for value in base.arrays:
        if value not in end.arrays:
            lost[value] = None
            stable = False
    return stable


def _existed(base: State, ref: Ref) -> bool:
    return ref in base.places or ref in base.contents


def _type_before(base: State, key: tuple[Ref, str], t: T.Type, ev: Evaluator) -> T.Type:
    known = base.attributes.get(key)
    if known is not None and not isinstance(known, Blank):
        return ev.join(known.type, t)
    if key in base.stale:
        return ev.join(base.stale[key], t)
    return T.TENSOR if isinstance(t, type(T.TENSOR)) else t


# ---------------------------------------------------------------------------------------------------------- calls


@handles("prim::CallFunction", "prim::CallMethod")
def call(ev: Evaluator, node: Node) -> None:
    """The body of what is called, in place of the call; methods of interfaces by the object they are called on."""
    values = [ev.get(v) for v in node.inputs]
    function = callee(node)
    if function is not None:
        arguments = values if node.kind == "prim::CallMethod" else values[1:]
        ev.bind(node.output, ev.call_function(function, arguments, node))
        return
    owner = values[0] if values else None
    if node.kind == "prim::CallMethod" and isinstance(owner, Ref) and isinstance(owner.type, T.ClassType):
        method = owner.type.methods.get(node.attributes["name"])
        if method is not None and method.has_body:
            ev.bind(node.output, ev.call_function(method, values, node))
            return
    as_it_is(ev, node)
    ev.forget_visible()


@handles("prim::fork", "prim::awaitable")
def fork(ev: Evaluator, node: Node) -> None:
    """The body, run here as the interpreter does, where nothing in it may raise and the future stays inside."""
    graph = node.attributes["Subgraph"]
    assert isinstance(graph, Graph)
    raises = any(inner.kind == "prim::RaiseException" for inner in inner_nodes(node))
    if raises or not _stays(node.output):
        _keep_fork(ev, node)
        return
    around = ev.call_of(node)
    site = CallSite(graph.name, node.source, around, "" if around is None else around.module)
    results = ev.run_graph(graph, [ev.get(v) for v in node.inputs], site)
    ev.bind(node.output, Task(results[0], node.output.type))


def _keep_fork(ev: Evaluator, node: Node) -> None:
    inputs = [ev.place(ev.get(v), None, node) for v in node.inputs]
    made = ev.emit(node.kind, inputs, node, dict(node.attributes))
    ev.bind(node.output, Dyn(made.add_output(node.output.type)))
    ev.forget_visible()


def _stays(future: Value) -> bool:
    return all(use.node.kind in ("aten::wait", "prim::awaitable_wait") for use in future.uses)


@handles("aten::wait", "prim::awaitable_wait")
def wait(ev: Evaluator, node: Node) -> None:
    """What the fork returned."""
    held = ev.get(node.inputs[0])
    if isinstance(held, Task):
        ev.bind(node.output, held.value)
        return
    as_it_is(ev, node)


@handles("prim::Enter", "prim::Exit")
def context_manager(ev: Evaluator, node: Node) -> None:
    """Kept: the interpreter leaves managers even when the program raises."""
    as_it_is(ev, node)
    ev.forget_visible()
