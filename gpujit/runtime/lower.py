"""Graph to Code: registers are given out, calls are inlined, last uses are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.module import Function
from gpujit.ir.source import CallSite
from gpujit.ir.values import namedtuple_class
from gpujit.ops import table
from gpujit.ops.infer_check import checked
from gpujit.ops.overloads import candidates_for, resolve
from gpujit.passes.autocast import with_casts
from gpujit.passes.inline import compile_callees
from gpujit.runtime import bytecode as bc
from gpujit.runtime.constructs import (
    call_python,
    create_object,
    enum_name,
    enum_value,
    make_dict,
    nowait,
    quantised,
    tuple_index,
    tuple_slice,
    unknown_operator,
    wait,
)
from gpujit.runtime.values import is_instance, tensor_to_list
from gpujit.support.config import config
from gpujit.support.errors import InternalError, LimitError

# Beyond these a call gets a frame of its own: files can be written whose full inlining is exponential.
MAX_INLINED_INSTRUCTIONS = 20_000
MAX_INLINE_DEPTH = 48
# Calls and blocks around a call that may still be inlined: each costs the lowerer a few frames of Python's.
MAX_INLINE_NESTING = 96

_SMALL = (T.INT, T.FLOAT, T.BOOL, T.STR, T.NONE, T.DEVICE, T.NUMBER, T.COMPLEX)


_ARITHMETIC = frozenset(("aten::add", "aten::sub", "aten::mul", "aten::div"))


class Lowerer:
    """Lowers the functions of one module for one array module; codes are kept per function.

    Args:
        xp: numpy, or cupy for a module on a GPU.
        rules: replacements for operators on quantised inputs, by full name (see ops.quantized); empty when the
            module has none.
    """

    def __init__(self, xp: Any, rules: dict[str, Callable[..., Any]] | None = None) -> None:
        self.xp = xp
        self.rules = rules or {}
        self._codes: dict[Function, bc.Code] = {}
        # What reads and writes attributes, given the slot first; None for slots as they are.
        self.attributes: tuple[Callable[..., Any], Callable[..., Any]] | None = None
        # What runs a node in place of its own kernel; a fusion group without one runs its subgraph's operators.
        self.fused: Mapping[Node, Callable[..., Any]] = {}

    def find(self, function: Function) -> bc.Code | None:
        """The code of a function that was lowered before."""
        return self._codes.get(function)

    def code(self, function: Function) -> bc.Code:
        """The code of a function or method. Raises SourceError when its source does not compile."""
        found = self._codes.get(function)
        if found is None:
            compile_callees(function.graph)
            try:
                found = _FunctionLowerer(self, function.name).function(function)
            except RecursionError:
                raise LimitError(f"the blocks of {function.name} are nested too deeply") from None
            self._codes[function] = found
        return found

    def graph_code(self, graph: Graph) -> bc.Code:
        """The code of a graph that belongs to no function (a fork's body, a parsed text)."""
        return _FunctionLowerer(self, graph.name).graph(graph)

    def operator(self, node: Node) -> Callable[..., Any]:
        """What runs the operator of a node."""
        return _FunctionLowerer(self, "").kernel(node)


class _FunctionLowerer:
    def __init__(self, owner: Lowerer, name: str) -> None:
        self.owner = owner
        self.result = bc.Code(name, 0)
        self.registers: dict[Value, int] = {}
        self.constants: dict[Any, int] = {}
        self.known: dict[int, Any] = {}
        # Registers that more than one value lives in. They are not released: which of the values is the last one in
        # use is not tracked across blocks and inlined calls.
        self.shared: set[int] = set()
        # Tuples that are never made, because every reader takes them apart.
        self.parts: dict[Value, list[Value]] = {}
        self.stack: list[Function] = []
        self.call: CallSite | None = None
        self.nesting = 0

    # ---------------------------------------------------------------------------------------------- registers

    def new_register(self) -> int:
        self.result.template.append(None)
        return len(self.result.template) - 1

    def constant(self, value: Any) -> int:
        """The register that always holds this value."""
        if isinstance(value, (bool, int, str, type(None))):
            key: Any = (type(value), value)
        elif isinstance(value, float):
            key = (float, repr(value))
        else:
            key = id(value)
        found = self.constants.get(key)
        if found is None:
            found = self.constants[key] = self.new_register()
            self.result.template[found] = value
            self.known[found] = value
        return found

    def of(self, value: Value) -> int:
        return self.registers[value]

    def define(self, value: Value) -> int:
        register = self.registers[value] = self.new_register()
        return register

    def add(self, node: Node | None, *instruction: Any) -> int:
        code = self.result
        code.instructions.append(instruction)
        code.places.append((None, None) if node is None else (node.source, self.call))
        code.kinds.append("" if node is None else node.kind)
        return len(code.instructions) - 1

    def patch(self, at: int, position: int, target: int) -> None:
        old = self.result.instructions[at]
        self.result.instructions[at] = (*old[:position], target, *old[position + 1 :])

    # ---------------------------------------------------------------------------------------------- functions

    def function(self, function: Function) -> bc.Code:
        self.stack.append(function)
        return self.graph(with_casts(function.graph))

    def graph(self, graph: Graph) -> bc.Code:
        self.result.inputs = len(graph.inputs)
        for value in graph.inputs:
            self.define(value)
        self.block(graph.block, release_params=True)
        if len(graph.outputs) == 1:
            result = self.of(graph.outputs[0])
        else:
            result = self.new_register()
            self.add(None, bc.TUPLE, tuple(self.of(v) for v in graph.outputs), result, ())
        self.add(graph.block.return_node, bc.RETURN, result, ())
        return self.result

    def block(self, block: Block, release_params: bool) -> None:
        """Lower a block's nodes. Values defined here are released after the last node of this block that needs them."""
        self.nesting += 1
        last = _last_uses(block)
        dying: dict[Node, list[Value]] = {}
        kept = set(block.returns)
        values = list(block.params) if release_params else []
        for node in block.nodes:
            values.extend(node.outputs)
        for value in values:
            user = last.get(value, value.node)
            if user is not block.param_node and value not in kept and value.type not in _SMALL:
                dying.setdefault(user, []).append(value)
        for node in block.nodes:
            self.node(node, dying.get(node, ()))
        self.nesting -= 1

    def releases(self, dying: Sequence[Value]) -> tuple[int, ...]:
        out: list[int] = []
        for value in dying:
            register = self.registers.get(value)
            if register is not None and register not in self.known and register not in self.shared:
                out.append(register)
        return tuple(out)

    def alias(self, value: Value, source: Value) -> None:
        """Make ``value`` another name of ``source``'s register."""
        register = self.registers[value] = self.of(source)
        self.shared.add(register)

    # -------------------------------------------------------------------------------------------------- nodes

    def node(self, node: Node, dying: Sequence[Value]) -> None:
        step = self.owner.fused.get(node)
        if step is not None:
            ins = tuple(self.of(v) for v in node.inputs)
            self.emit_op(node, step, ins, tuple(self.define(v) for v in node.outputs), dying)
            return
        handler = _HANDLERS.get(node.kind)
        if handler is not None:
            handler(self, node, dying)
        else:
            self.operator(node, dying)

    def operator(self, node: Node, dying: Sequence[Value]) -> None:
        fn = self.kernel(node)
        ins = tuple(self.of(v) for v in node.inputs)
        if node.kind in _ARITHMETIC and len(ins) > 1 and node.inputs[1].is_constant:
            other = node.inputs[1].constant()
            if getattr(other, "ndim", None) == 0 and other.dtype.kind != "b":
                # A traced Python number is stored as a 0-dim tensor; PyTorch's executor makes it a number again, which
                # has the lower place in promotion.
                ins = (ins[0], self.constant(other.item()), *ins[2:])
        outs = tuple(self.define(v) for v in node.outputs)
        self.emit_op(node, fn, ins, outs, dying)

    def emit_op(
        self, node: Node, fn: Callable[..., Any], ins: tuple[int, ...], outs: tuple[int, ...], dying: Sequence[Value]
    ) -> None:
        free = self.releases(dying)
        if len(outs) > 1:
            self.add(node, bc.OPM, fn, ins, outs, free)
            return
        out = outs[0] if outs else self.new_register()
        if len(ins) == 1:
            self.add(node, bc.OP1, fn, *ins, out, free)
        elif len(ins) == 2:
            self.add(node, bc.OP2, fn, *ins, out, free)
        elif len(ins) == 3:
            self.add(node, bc.OP3, fn, *ins, out, free)
        else:
            self.add(node, bc.OP, fn, ins, out, free)

    def kernel(self, node: Node) -> Callable[..., Any]:
        schema = node.schema
        if schema is None:
            # A graph read from text names no overload.
            candidates = candidates_for(node.kind)
            match = resolve(candidates, (v.type for v in node.inputs), {}) if candidates else ()
            if isinstance(match, tuple):
                return partial(unknown_operator, node.kind, [str(v.type) for v in node.inputs])
            schema = match.schema
        name = schema.full_name
        op = table.by_full_name(name)
        if op is None:
            return partial(unknown_operator, name, [str(v.type) for v in node.inputs])
        fn = op.kernel(self.owner.xp)
        rule = self.owner.rules.get(name)
        if rule is not None:
            fn = quantised(fn, partial(rule, self.owner.xp))
        return checked(op, fn) if config.check_types else fn

    def get_attribute(self, node: Node, dying: Sequence[Value]) -> None:
        (owner,) = node.inputs
        slot = self.slot(owner, node)
        out = self.define(node.output)
        if self.owner.attributes is not None and not isinstance(node.output.type, T.ClassType):
            get = partial(self.owner.attributes[0], slot)
            self.add(node, bc.OP1, get, self.of(owner), out, self.releases(dying))
            return
        self.add(node, bc.GET, self.of(owner), slot, out, self.releases(dying))

    def set_attribute(self, node: Node, dying: Sequence[Value]) -> None:
        owner, value = node.inputs
        slot = self.slot(owner, node)
        if self.owner.attributes is not None:
            set_ = partial(self.owner.attributes[1], slot)
            operands = self.of(owner), self.of(value), self.new_register()
            self.add(node, bc.OP2, set_, *operands, self.releases(dying))
            return
        self.add(node, bc.SET, self.of(owner), slot, self.of(value), self.releases(dying))

    def slot(self, owner: Value, node: Node) -> int:
        t = owner.type
        name = node.attributes["name"]
        if not isinstance(t, T.ClassType) or name not in t.slot_of:
            raise InternalError(f"{node.kind}: {t} has no attribute {name!r}")
        return t.slot_of[name]

    def constant_node(self, node: Node, dying: Sequence[Value]) -> None:
        self.registers[node.output] = self.constant(node.attributes.get("value"))

    def same(self, node: Node, dying: Sequence[Value]) -> None:
        self.alias(node.output, node.inputs[0])

    def uninitialized(self, node: Node, dying: Sequence[Value]) -> None:
        self.registers[node.output] = self.constant(None)

    def list_construct(self, node: Node, dying: Sequence[Value]) -> None:
        ins = tuple(self.of(v) for v in node.inputs)
        if all(i in self.known for i in ins) and _only_read(node.output):
            # Nobody can change or keep it: one list serves every run.
            value = [self.known[i] for i in ins]
            register = self.new_register()
            self.result.template[register] = value
            self.known[register] = value
            self.registers[node.output] = register
            return
        self.add(node, bc.LIST, ins, self.define(node.output), self.releases(dying))

    def tuple_construct(self, node: Node, dying: Sequence[Value]) -> None:
        ins = tuple(self.of(v) for v in node.inputs)
        t = node.output.type
        if isinstance(t, T.TupleType) and t.name is not None:
            self.emit_op(node, namedtuple_class(t), ins, (self.define(node.output),), dying)
            return
        uses = node.output.uses
        if uses and all(u.node.kind in ("prim::TupleUnpack", "prim::TupleIndex") for u in uses):
            # Taken apart again: the parts are read directly, no tuple is made.
            if all(u.node.kind == "prim::TupleUnpack" or _constant_index(u.node) is not None for u in uses):
                self.parts[node.output] = list(node.inputs)
                self.shared.update(ins)
                return
        self.add(node, bc.TUPLE, ins, self.define(node.output), self.releases(dying))

    def tuple_unpack(self, node: Node, dying: Sequence[Value]) -> None:
        source = node.inputs[0]
        if source in self.parts:
            for value, part in zip(node.outputs, self.parts[source], strict=True):
                self.alias(value, part)
            return
        outs = tuple(self.define(v) for v in node.outputs)
        self.add(node, bc.UNPACK, self.of(source), outs, self.releases(dying))

    def list_unpack(self, node: Node, dying: Sequence[Value]) -> None:
        outs = tuple(self.define(v) for v in node.outputs)
        self.add(node, bc.LISTUNPACK, self.of(node.inputs[0]), outs, self.releases(dying))

    def tuple_index(self, node: Node, dying: Sequence[Value]) -> None:
        source = node.inputs[0]
        if source in self.parts:
            index = _constant_index(node)
            assert index is not None
            self.alias(node.output, self.parts[source][index])
            return
        ins = (self.of(source), self.of(node.inputs[1]))
        self.emit_op(node, tuple_index, ins, (self.define(node.output),), dying)

    def tuple_slice(self, node: Node, dying: Sequence[Value]) -> None:
        fn = partial(tuple_slice, node.attributes["beg"], node.attributes["end"])
        self.emit_op(node, fn, (self.of(node.inputs[0]),), (self.define(node.output),), dying)

    def dict_construct(self, node: Node, dying: Sequence[Value]) -> None:
        ins = tuple(self.of(v) for v in node.inputs)
        self.emit_op(node, make_dict, ins, (self.define(node.output),), dying)

    def if_(self, node: Node, dying: Sequence[Value]) -> None:
        outs = [self.define(v) for v in node.outputs]
        jump = self.add(node, bc.JUMP_FALSE, self.of(node.inputs[0]), -1, ())
        yes, no = node.blocks
        self.block(yes, release_params=False)
        self.leave(node, yes, outs)
        if any(True for _ in no.nodes) or outs:
            leave = self.add(node, bc.JUMP, -1, ())
            self.patch(jump, 2, len(self.result.instructions))
            self.block(no, release_params=False)
            self.leave(node, no, outs)
            self.patch(leave, 1, len(self.result.instructions))
        else:
            self.patch(jump, 2, len(self.result.instructions))
        self.release(node, dying)

    def leave(self, node: Node, block: Block, targets: Sequence[int]) -> None:
        """Hand a block's results over to ``targets``; what was made inside the block is held nowhere else."""
        made = [v for v in block.returns if v.node.block is block and v.node is not block.param_node]
        free = set(self.releases([v for v in made if v.type not in _SMALL])) - set(targets)
        self.move(node, [self.of(v) for v in block.returns], targets, tuple(free))

    def move(self, node: Node, sources: Sequence[int], targets: Sequence[int], free: tuple[int, ...] = ()) -> None:
        pairs = tuple((s, t) for s, t in zip(sources, targets, strict=True) if s != t)
        if pairs:
            self.add(node, bc.MOVE, pairs, free)

    def release(self, node: Node, dying: Sequence[Value]) -> None:
        free = self.releases(dying)
        if free:
            self.add(node, bc.FREE, free)

    def loop(self, node: Node, dying: Sequence[Value]) -> None:
        trips, condition, *carried = node.inputs
        (block,) = node.blocks
        counter = self.define(block.params[0])
        flag = self.new_register()
        params = [self.define(v) for v in block.params[1:]]
        zero = self.constant(0)
        # The counter is copied: a program may hold the index of an iteration that is over.
        sources = [zero, self.of(condition), *(self.of(v) for v in carried)]
        self.move(node, sources, [counter, flag, *params])
        head = self.add(node, bc.LOOP, counter, self.of(trips), flag, -1, ())
        self.block(block, release_params=False)
        self.leave(node, block, [flag, *params])
        self.add(node, bc.NEXT, counter, head, ())
        self.patch(head, 4, len(self.result.instructions))
        # What the loop returns stays where it was carried.
        self.registers.update(zip(node.outputs, params, strict=True))
        self.release(node, dying)

    def call_function(self, node: Node, dying: Sequence[Value]) -> None:
        target = node.inputs[0]
        function = target.constant()
        self.invoke(node, function, node.inputs[1:], dying)

    def call_method(self, node: Node, dying: Sequence[Value]) -> None:
        owner = node.inputs[0]
        name = node.attributes["name"]
        if isinstance(owner.type, T.ClassType) and name in owner.type.methods:
            self.invoke(node, owner.type.methods[name], node.inputs, dying)
            return
        ins = tuple(self.of(v) for v in node.inputs)
        self.add(node, bc.CALLM, name, ins, self.define(node.output), self.releases(dying))

    def invoke(self, node: Node, function: Function, arguments: Sequence[Value], dying: Sequence[Value]) -> None:
        fits = (
            len(self.result.instructions) < MAX_INLINED_INSTRUCTIONS
            and len(self.stack) < MAX_INLINE_DEPTH
            and self.nesting < MAX_INLINE_NESTING
        )
        if not fits or function in self.stack:
            ins = tuple(self.of(v) for v in arguments)
            getter = partial(self.owner.code, function)
            self.add(node, bc.CALL, getter, ins, self.define(node.output), self.releases(dying))
            return
        graph = function.graph
        saved_call = self.call
        # The same callee may be inlined more than once: its values get new registers each time.
        inner = _values_of(graph)
        saved_registers = {v: self.registers[v] for v in inner if v in self.registers}
        saved_parts = {v: self.parts.pop(v) for v in inner if v in self.parts}
        for parameter, value in zip(graph.inputs, arguments, strict=True):
            self.registers[parameter] = self.of(value)
        self.call = CallSite(function.name, node.source, self.call)
        self.stack.append(function)
        self.block(graph.block, release_params=False)
        self.stack.pop()
        self.call = saved_call
        result = self.of(graph.outputs[0])
        for v in inner:
            self.registers.pop(v, None)
        self.registers.update(saved_registers)
        self.parts.update(saved_parts)
        self.registers[node.output] = result
        if any(result == self.of(v) for v in arguments):
            self.shared.add(result)
        self.release(node, dying)

    def raise_(self, node: Node, dying: Sequence[Value]) -> None:
        message = self.of(node.inputs[0])
        name = self.of(node.inputs[1]) if len(node.inputs) > 1 else -1
        self.add(node, bc.RAISE, message, name, ())

    def isinstance_(self, node: Node, dying: Sequence[Value]) -> None:
        fn = partial(is_instance, types=tuple(node.attributes["types"]))
        self.emit_op(node, fn, (self.of(node.inputs[0]),), (self.define(node.output),), dying)

    def tolist(self, node: Node, dying: Sequence[Value]) -> None:
        wanted = node.attributes.get("type", node.output.type)
        fn = partial(tensor_to_list, type_=wanted)
        self.emit_op(node, fn, (self.of(node.inputs[0]),), (self.define(node.output),), dying)

    def create_object(self, node: Node, dying: Sequence[Value]) -> None:
        t = node.output.type
        assert isinstance(t, T.ClassType)
        self.emit_op(node, partial(create_object, t), (), (self.define(node.output),), dying)

    def enum_attribute(self, node: Node, dying: Sequence[Value]) -> None:
        fn = enum_name if node.kind == "prim::EnumName" else enum_value
        self.emit_op(node, fn, (self.of(node.inputs[0]),), (self.define(node.output),), dying)

    def enter(self, node: Node, dying: Sequence[Value]) -> None:
        self.add(node, bc.ENTER, self.of(node.inputs[0]), self.define(node.output), ())

    def exit(self, node: Node, dying: Sequence[Value]) -> None:
        self.add(node, bc.EXIT, self.of(node.inputs[0]), self.define(node.output), ())

    def python_op(self, node: Node, dying: Sequence[Value]) -> None:
        fn = partial(call_python, node.attributes["call"], node.attributes["name"], node.output.type)
        self.emit_op(node, fn, tuple(self.of(v) for v in node.inputs), (self.define(node.output),), dying)

    def fork(self, node: Node, dying: Sequence[Value]) -> None:
        code = _FunctionLowerer(self.owner, node.attributes["Subgraph"].name).graph(node.attributes["Subgraph"])
        ins = tuple(self.of(v) for v in node.inputs)
        self.add(node, bc.FORK, code, ins, self.define(node.output), self.releases(dying))

    def fusion_group(self, node: Node, dying: Sequence[Value]) -> None:
        ins = tuple(self.of(v) for v in node.inputs)
        outs = tuple(self.define(v) for v in node.outputs)
        code = _FunctionLowerer(self.owner, self.result.name).graph(node.attributes["Subgraph"])
        if len(outs) == 1:
            self.add(node, bc.CALL, lambda: code, ins, outs[0], self.releases(dying))
            return
        whole = self.new_register()
        self.add(node, bc.CALL, lambda: code, ins, whole, self.releases(dying))
        self.add(node, bc.UNPACK, whole, outs, ())

    def wait(self, node: Node, dying: Sequence[Value]) -> None:
        self.emit_op(node, wait, (self.of(node.inputs[0]),), (self.define(node.output),), dying)

    def nowait(self, node: Node, dying: Sequence[Value]) -> None:
        self.emit_op(node, nowait, (self.of(node.inputs[0]),), (self.define(node.output),), dying)


_HANDLERS: dict[str, Callable[[_FunctionLowerer, Node, Sequence[Value]], None]] = {
    "prim::Constant": _FunctionLowerer.constant_node,
    "prim::GetAttr": _FunctionLowerer.get_attribute,
    "prim::SetAttr": _FunctionLowerer.set_attribute,
    "prim::unchecked_cast": _FunctionLowerer.same,
    "prim::Uninitialized": _FunctionLowerer.uninitialized,
    "prim::ListConstruct": _FunctionLowerer.list_construct,
    "prim::TupleConstruct": _FunctionLowerer.tuple_construct,
    "prim::TupleUnpack": _FunctionLowerer.tuple_unpack,
    "prim::ListUnpack": _FunctionLowerer.list_unpack,
    "prim::TupleIndex": _FunctionLowerer.tuple_index,
    "prim::TupleSlice": _FunctionLowerer.tuple_slice,
    "prim::DictConstruct": _FunctionLowerer.dict_construct,
    "prim::If": _FunctionLowerer.if_,
    "prim::Loop": _FunctionLowerer.loop,
    "prim::CallFunction": _FunctionLowerer.call_function,
    "prim::CallMethod": _FunctionLowerer.call_method,
    "prim::RaiseException": _FunctionLowerer.raise_,
    "prim::isinstance": _FunctionLowerer.isinstance_,
    "prim::tolist": _FunctionLowerer.tolist,
    "prim::CreateObject": _FunctionLowerer.create_object,
    "prim::EnumName": _FunctionLowerer.enum_attribute,
    "prim::EnumValue": _FunctionLowerer.enum_attribute,
    "prim::Enter": _FunctionLowerer.enter,
    "prim::Exit": _FunctionLowerer.exit,
    "prim::PythonOp": _FunctionLowerer.python_op,
    "prim::fork": _FunctionLowerer.fork,
    "prim::FusionGroup": _FunctionLowerer.fusion_group,
    "prim::awaitable": _FunctionLowerer.fork,
    "prim::awaitable_wait": _FunctionLowerer.wait,
    "prim::awaitable_nowait": _FunctionLowerer.nowait,
    "aten::wait": _FunctionLowerer.wait,
}


# Operators with an opcode or handler instead of an entry in the table.
BUILT_IN = frozenset(_HANDLERS)


def _values_of(graph: Graph) -> list[Value]:
    found = list(graph.inputs)
    for node in graph.all_nodes():
        found.extend(node.outputs)
        for block in node.blocks:
            found.extend(block.params)
    return found


def _last_uses(block: Block) -> dict[Value, Node]:
    """For each value read inside the block, the last node of the block itself that reads it or holds a reader."""
    last: dict[Value, Node] = {}
    for node in block.nodes:
        stack = [node]
        while stack:
            current = stack.pop()
            for value in current.inputs:
                last[value] = node
            for inner in current.blocks:
                for value in inner.returns:
                    last[value] = node
                stack.extend(inner.nodes)
    return last


def _only_read(value: Value) -> bool:
    """Whether every use is an operator's argument that is neither written nor aliased."""
    for use in value.uses:
        schema = use.node.schema
        if schema is None or use.index >= len(schema.arguments):
            return False
        argument = schema.arguments[use.index]
        if argument.alias is not None or argument.element_alias is not None:
            return False
    return True


def _constant_index(node: Node) -> int | None:
    index = node.inputs[1]
    return index.constant() if index.is_constant else None
