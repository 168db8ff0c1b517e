"""Lists and dicts whose contents are known while a graph is read: changes and reads of them are done beforehand.

A list or dict made in the graph is followed from node to node until others may keep or change it. As long as it is
followed, a change of it is only noted; what reads it as a whole gets a new one, made of what it holds by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ops.registry import Op
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import BUILT_IN, entry_of, inner_nodes
from gpujit.passes.base import graph_pass, may_change, spend
from gpujit.passes.nodes import constant_before, like
from gpujit.passes.tuples import replace_value

# Elements of a list that is made beforehand; longer ones are left to the run.
MAX_ELEMENTS = 4096
_SCALARS = (bool, int, float, complex, str)
_UNKNOWN: Any = object()


@graph_pass("lower_containers")
def lower_containers(graph: Graph) -> bool:
    """Do what can be done beforehand with lists and dicts that the graph makes and nobody else changes."""
    return _Follower(graph).run()


class _State:
    """What is known at one place of the graph."""

    def __init__(self, other: _State | None = None) -> None:
        # The contents of each list and dict that is followed: values of the graph; a dict's keys are constants.
        self.contents: dict[Value, Any] = {} if other is None else dict(other.contents)
        # The list or dict that stands for one that was changed.
        self.current: dict[Value, Value] = {} if other is None else dict(other.current)
        # Changed since it was last made.
        self.stale: set[Value] = set() if other is None else set(other.stale)


class _Follower:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.changed = False
        # Containers that may have lost their last reader, in order.
        self.replaced: dict[Value, None] = {}
        self._alias: AliasAnalysis | None = None
        self._original = {v for node in graph.all_nodes() for v in node.outputs if _is_container(v.type)}
        self._never_changes: dict[Value, bool] = {}

    def run(self) -> bool:
        if self._original:
            self.block(self.graph.block, _State())
            # Containers in containers: the outer one first.
            for value in reversed(list(self.replaced)):
                if not value.uses:
                    value.node.destroy()
        return self.changed

    def block(self, block: Block, state: _State) -> None:
        for node in block.nodes:
            self.node(node, state)
        self.hand_over(block.return_node, state)

    def node(self, node: Node, state: _State) -> None:
        if node.blocks:
            self.before_blocks(node, state)
            for block in node.blocks:
                self.block(block, _State(state))
            return
        op = entry_of(node)
        if op is not None and self.compute(node, op, state):
            return
        if node.kind == "prim::ListUnpack" and self.unpack(node, state):
            return
        self.hand_over(node, state, op)
        if node.kind == "prim::ListConstruct":
            state.contents[node.output] = list(node.inputs)
        elif node.kind == "prim::DictConstruct":
            keys = node.inputs[::2]
            if all(key.is_constant and type(key.constant()) in _SCALARS for key in keys):
                state.contents[node.output] = dict(zip((k.constant() for k in keys), node.inputs[1::2], strict=True))

    # ------------------------------------------------------------------------------------------------- readers

    def hand_over(self, node: Node, state: _State, op: Op | None = None) -> None:
        """Give a node the containers it reads as they are by now; follow those no further that it may keep."""
        for i, value in enumerate(node.inputs):
            if value in state.contents or value in state.current:
                node.set_input(i, self.made(value, node, state))
                if not _only_reads(node, i, op):
                    self.let_go(value, state)

    def before_blocks(self, node: Node, state: _State) -> None:
        """The same for what the blocks of a node read."""
        self.hand_over(node, state)
        used: dict[Value, bool] = {}
        for inner in _with_returns(node):
            for i, value in enumerate(inner.inputs):
                if value in state.contents:
                    used[value] = used.get(value, True) and _only_reads(inner, i, entry_of(inner))
        for value, is_read in used.items():
            self.made(value, node, state)
            if not is_read:
                self.let_go(value, state)

    def let_go(self, value: Value, state: _State) -> None:
        # One that was made again has another life than the analysis knows of.
        if value in state.current or not self.never_changes(value):
            state.contents.pop(value, None)

    def never_changes(self, value: Value) -> bool:
        """Whether no node of the graph writes into a container, in whoever's hands it is."""
        if value not in self._original:
            return False
        if value not in self._never_changes:
            if self._alias is None:
                self._alias = AliasAnalysis(self.graph)
            self._never_changes[value] = not self._alias.is_written(value)
        return self._never_changes[value]

    def made(self, value: Value, place: Node, state: _State) -> Value:
        """The container as it is at ``place``."""
        if value in state.stale:
            state.stale.discard(value)
            state.current[value] = self.make(state.contents[value], value.type, place, state)
        return state.current.get(value, value)

    def make(self, content: Any, type_: T.Type, place: Node, state: _State) -> Value:
        """A new list, dict or tuple of values; constants are made for others."""
        if isinstance(content, Value):
            return content
        if not isinstance(content, (list, dict, tuple)):
            return constant_before(place, content, _scalar_type(content, type_))
        kind, inputs = "prim::ListConstruct", content
        kinds: Iterable[T.Type] = [type_.element] * len(content) if isinstance(type_, T.ListType) else ()
        if isinstance(content, dict):
            assert isinstance(type_, T.DictType)
            kind, inputs = "prim::DictConstruct", [x for item in content.items() for x in item]
            kinds = [type_.key, type_.value] * len(content)
        elif isinstance(content, tuple):
            assert isinstance(type_, T.TupleType)
            kind, kinds = "prim::TupleConstruct", type_.elements
        parts = [self.make(x, t, place, state) for x, t in zip(inputs, kinds, strict=True)]
        new = like(Node(kind, parts), place).insert_before(place)
        return new.add_output(type_)

    # ---------------------------------------------------------------------------------------------- computing

    def unpack(self, node: Node, state: _State) -> bool:
        content = state.contents.get(node.inputs[0])
        if not isinstance(content, list) or len(content) != len(node.outputs):
            return False
        for out, value in zip(node.outputs, content, strict=True):
            replace_value(out, self.make(value, out.type, node, state))
        self.remove(node)
        return True

    def remove(self, node: Node) -> None:
        self.replaced.update(dict.fromkeys(v for v in node.inputs if _is_made(v)))
        node.destroy()
        self.changed = True

    def compute(self, node: Node, op: Op, state: _State) -> bool:
        """Do what the node would do with the containers it is given, if all it looks at is known."""
        if op.kind != "prim" or op.effects or not _is_about_containers(op, node):
            return False
        schema = op.schema
        args: list[Any] = []
        followed: dict[int, Value] = {}
        for i, (argument, value) in enumerate(zip(schema.arguments, node.inputs, strict=False)):
            arg = self.argument(argument.type, value, state)
            if arg is _UNKNOWN:
                return False
            if isinstance(arg, (list, dict)):
                followed[i] = value
                if argument.is_write and value not in state.contents:
                    return False
            args.append(arg)
        if len(args) != len(node.inputs) or _is_too_long(op, args):
            return False
        try:
            result = op.body(*args)
        except Exception:  # whatever it is, the run shall raise it
            return False
        results = [result] if len(node.outputs) == 1 else []
        if len(results) != len(node.outputs) or not all(_is_known(r, v.type) for r, v in zip(results, node.outputs)):
            return False
        if not may_change(int(self.changed)):
            return False
        if self.changed:
            spend()
        self.note(node, op, args, followed, results, state)
        return True

    def argument(self, formal: T.Type, value: Value, state: _State) -> Any:
        """What the operator's body is given: contents of containers, constants, and values it only passes on."""
        if isinstance(formal, (T.ListType, T.DictType)):
            content = state.contents.get(value, _UNKNOWN)
            if content is _UNKNOWN:
                return _UNKNOWN
            if isinstance(content, dict):
                return dict(content)
            if formal.has_var or formal == T.ListType(T.ANY):
                return list(content)
            constants = [v.constant() for v in content if v.is_constant]
            usable = len(constants) == len(content) and all(type(c) in _SCALARS for c in constants)
            return constants if usable else _UNKNOWN
        if formal.has_var:
            # Of a type that the operator knows nothing of: its body cannot look at it.
            return value
        if value.is_constant and (value.constant() is None or type(value.constant()) in _SCALARS):
            return value.constant()
        return _UNKNOWN

    def note(
        self, node: Node, op: Op, args: list[Any], followed: dict[int, Value], results: list[Any], state: _State
    ) -> None:
        """Put results in the place of the node, and remember what became of what it changed."""
        for i, value in enumerate(node.inputs):
            if i not in followed and (value in state.contents or value in state.current):
                # It goes into another container.
                new = self.made(value, node, state)
                state.contents.pop(value, None)
                for arg in args:
                    _replace_in(arg, value, new)
        for i, value in followed.items():
            if op.schema.arguments[i].is_write:
                content = args[i]
                if isinstance(content, list):
                    element = value.type.element if isinstance(value.type, T.ListType) else T.TENSOR
                    content = [self.make(x, element, node, state) for x in content]
                state.contents[value] = content
                state.stale.add(value)
        for out, result in zip(node.outputs, results, strict=True):
            same = next((followed[i] for i in followed if args[i] is result), None)
            if same is not None:
                out.replace_all_uses_with(same)
                continue
            if isinstance(result, Value) and result in state.current:
                result = state.current[result]
            new = self.make(result, out.type, node, state)
            if isinstance(result, (list, dict)):
                state.contents[new] = list(new.node.inputs) if isinstance(result, list) else result
            replace_value(out, new)
        self.remove(node)


def _is_container(t: T.Type) -> bool:
    return isinstance(t, (T.ListType, T.DictType))


def _is_made(value: Value) -> bool:
    return value.node.kind in ("prim::ListConstruct", "prim::DictConstruct")


def _is_about_containers(op: Op, node: Node) -> bool:
    """Whether the operator takes a list or dict, or makes one of nothing."""
    if not op.schema.arguments:
        return len(node.outputs) == 1 and _is_container(node.output.type)
    return any(_is_container(a.type) for a in op.schema.arguments)


def _is_known(result: Any, t: T.Type) -> bool:
    """Whether a result can be made of values and constants of the graph."""
    if isinstance(result, Value) or result is None:
        return True
    if isinstance(result, dict):
        return isinstance(t, T.DictType) and all(
            _is_known(k, t.key) and _is_known(v, t.value) for k, v in result.items()
        )
    if isinstance(result, list):
        short = len(result) <= MAX_ELEMENTS
        return short and isinstance(t, T.ListType) and all(_is_known(x, t.element) for x in result)
    if isinstance(result, tuple):
        return isinstance(t, T.TupleType) and len(t.elements) == len(result) and all(
            map(_is_known, result, t.elements)
        )  # fmt: skip
    return type(result) in _SCALARS


def _scalar_type(value: Any, t: T.Type) -> T.Type | None:
    return T.NONE if value is None else None


def _is_too_long(op: Op, args: Sequence[Any]) -> bool:
    """Whether a list would be repeated too often."""
    if op.name not in ("aten::mul", "aten::mul_"):
        return False
    length = next((len(a) for a in args if isinstance(a, list)), 0)
    return any(isinstance(a, int) and a * length > MAX_ELEMENTS for a in args)


def _replace_in(container: Any, old: Value, new: Value) -> None:
    if old is new:
        return
    if isinstance(container, list):
        container[:] = [new if x is old else x for x in container]
    elif isinstance(container, dict):
        for key, x in container.items():
            if x is old:
                container[key] = new


def _with_returns(node: Node) -> Iterable[Node]:
    """All nodes inside, with those that stand for what blocks return."""
    for block in node.blocks:
        yield block.return_node
    for inner in inner_nodes(node):
        yield inner
        for block in inner.blocks:
            yield block.return_node


def _only_reads(node: Node, index: int, op: Op | None) -> bool:
    """Whether a node neither changes nor keeps the container it is given."""
    if op is None:
        facts = BUILT_IN.get(node.kind)
        reads = ("prim::ListUnpack", "prim::isinstance", "prim::RaiseException")
        return facts is not None and node.kind in reads
    if op.may_alias or index >= len(op.schema.arguments):
        return False
    argument = op.schema.arguments[index]
    if argument.alias is None:
        return True
    if argument.alias.is_write or "*" in argument.alias.after:
        return False
    return not any(r.alias is not None and r.alias.before & argument.alias.before for r in op.schema.returns)
