"""What every graph must satisfy, one function per invariant.

``verify`` runs ``check_links`` and then ``INVARIANTS``, in order. All take time in proportion to the graph's size.
Facts nobody knows are not faulted: operators without a schema, classes without attributes (placeholders made by the
parser), constants whose value the text did not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import code_of, is_tensor_dtype
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.module import Function
from gpujit.ir.printer import SUBGRAPH, OpaqueConstant, print_node
from gpujit.ir.schema import Argument, Schema
from gpujit.ir.types import is_subtype
from gpujit.ir.values import Device, EnumValue, QTensor, ScriptObject, SparseTensor
from gpujit.support.errors import VerifyError

# A fault: the node it lies in, and what is wrong.
Fail = Callable[[Node, str], NoReturn]


def verify(graph: Graph) -> None:
    """Check every invariant, in subgraphs held as attributes as well.

    Raises VerifyError: the message names the invariant, the node (printed) and the block it is in.
    """
    pending = [graph]
    while pending:
        current = pending.pop()
        nodes = check_links(current, _failing("links", None))
        for invariant in INVARIANTS:
            invariant(current, nodes, _failing(invariant.__name__.removeprefix("check_"), current))
        for node in nodes:
            pending += [a for a in node.attributes.values() if isinstance(a, Graph)]


def _failing(invariant: str, graph: Graph | None) -> Fail:
    """What reports a fault. Without a graph its text is not asked for: while links are broken it may have no end."""

    def fail(node: Node, what: str) -> NoReturn:
        raise VerifyError(f"{invariant}: {what}", where=_where(node, graph))

    return fail


def _where(node: Node, graph: Graph | None) -> str:
    lines = [f"  node   {print_node(node, graph)}", f"  block  {_block_name(node.block, graph)}"]
    if node.source is not None:
        lines.append(f"  source {node.source}")
    return "\n".join(lines)


def _block_name(block: Block | None, graph: Graph | None) -> str:
    if block is None:
        return "none"
    owner = block.owner
    if owner is None:
        return "the graph's own"
    number = next((i for i, b in enumerate(owner.blocks) if b is block), None)
    return f"block{'?' if number is None else number} of {print_node(owner, graph)}"


def check_links(graph: Graph, fail: Fail) -> list[Node]:
    """Nodes form rings; nodes, blocks, graph and outputs point at each other. Returns the nodes in order, parameters
    and returns included."""
    found: list[Node] = []
    order: list[Block | Node] = [graph.block]
    if graph.block.owner is not None:
        fail(graph.block.owner, "a graph's own block has an owner")
    while order:
        item = order.pop()
        if isinstance(item, Node):
            found.append(item)
            for i, value in enumerate(item.outputs):
                if value.node is not item or value.index != i:
                    fail(item, f"output {i} does not know that it is output {i} of this node")
            for block in item.blocks:
                if block.owner is not item:
                    fail(item, "one of its blocks has another owner")
            order.extend(reversed(item.blocks))
            continue
        if item.graph is not graph:
            fail(item.return_node, "the block points to another graph")
        inner = [item.param_node]
        # Each step checks the way back, so the walk cannot run in circles.
        while True:
            node = inner[-1]
            if node.block is not item:
                fail(node, "the node points to another block than the one it is in")
            if node is item.return_node:
                break
            following = node.next
            if following is None or following.prev is not node:
                fail(node, "the next node does not point back at this one")
            inner.append(following)
        if item.return_node.next is not item.param_node or item.param_node.prev is not item.return_node:
            fail(item.return_node, "the ring does not close")
        for node, kind in ((item.param_node, "prim::Param"), (item.return_node, "prim::Return")):
            if node.kind != kind or node.blocks:
                fail(node, f"expected {kind} without blocks")
        if item.param_node.inputs or item.return_node.outputs:
            fail(item.param_node, "a prim::Param has inputs, or a prim::Return outputs")
        order.extend(reversed(inner))
    return found


def check_scope(graph: Graph, nodes: Sequence[Node], fail: Fail) -> None:
    """What a node reads is defined before it, in its block or in one around it."""
    position = {node: i for i, node in enumerate(nodes)}
    for node in nodes:
        for i, value in enumerate(node.inputs):
            definer = value.node
            start = position.get(definer)
            if start is None or value not in definer.outputs[value.index : value.index + 1]:
                fail(node, f"input {i}, {_name(value, graph)}, is no value of this graph")
            inside = position[definer.blocks[-1].return_node] if definer.blocks else start
            assert definer.block is not None
            if position[node] <= inside:
                fail(node, f"input {i}, {_name(value, graph)}, is read before it is defined")
            if position[node] > position[definer.block.return_node]:
                fail(node, f"input {i}, {_name(value, graph)}, is defined in {_block_name(definer.block, graph)}")


def check_uses(graph: Graph, nodes: Sequence[Node], fail: Fail) -> None:
    """``value.uses`` lists exactly the inputs that read the value."""
    read: dict[Value, int] = {}
    for node in nodes:
        for value in node.inputs:
            read[value] = read.get(value, 0) + 1
    present = set(nodes)
    for node in nodes:
        for value in node.outputs:
            uses = value.uses
            for use in uses:
                if use.node not in present:
                    fail(node, f"{_name(value, graph)} lists a use by {use.node.kind}, which is not in the graph")
                if not (0 <= use.index < len(use.node.inputs) and use.node.inputs[use.index] is value):
                    fail(use.node, f"{_name(value, graph)} is said to be input {use.index}, but is not")
            if len(set(uses)) != len(uses):
                fail(node, f"{_name(value, graph)} lists a use twice")
            if len(uses) != read.get(value, 0):
                fail(node, f"{_name(value, graph)} lists {len(uses)} uses and is read {read.get(value, 0)} times")


def check_if(graph: Graph, nodes: Sequence[Node], fail: Fail) -> None:
    """prim::If: a bool, two blocks without parameters, each of which returns values that fit the outputs."""
    for node in nodes:
        if node.kind != "prim::If":
            continue
        if len(node.inputs) != 1 or node.inputs[0].type != T.BOOL:
            fail(node, f"takes one bool, found {_types(node.inputs)}")
        if len(node.blocks) != 2:
            fail(node, f"has {len(node.blocks)} blocks instead of 2")
        for number, block in enumerate(node.blocks):
            if block.params:
                fail(node, f"block{number} has parameters")
            _check_flow(node, f"block{number}", block.returns, node.outputs, fail)


def check_loop(graph: Graph, nodes: Sequence[Node], fail: Fail) -> None:
    """prim::Loop: trip count, condition, carried values; a block (i, carried...) -> (condition, carried...)."""
    for node in nodes:
        if node.kind != "prim::Loop":
            continue
        if len(node.inputs) < 2 or node.inputs[0].type != T.INT or node.inputs[1].type != T.BOOL:
            fail(node, f"takes an int, a bool and carried values, found {_types(node.inputs)}")
        if len(node.blocks) != 1:
            fail(node, f"has {len(node.blocks)} blocks instead of 1")
        block = node.blocks[0]
        if not block.params or block.params[0].type != T.INT:
            fail(node, f"the block's first parameter is the int trip, found {_types(block.params)}")
        if not block.returns or block.returns[0].type != T.BOOL:
            fail(node, f"the block first returns the bool condition, found {_types(block.returns)}")
        carried = node.inputs[2:]
        _check_flow(node, "the carried values, given to the block's parameters,", carried, block.params[1:], fail)
        _check_flow(node, "the block's results, given to its parameters,", block.returns[1:], block.params[1:], fail)
        _check_flow(node, "the carried values", carried, node.outputs, fail)
        _check_flow(node, "the block's results", block.returns[1:], node.outputs, fail)


def _check_flow(node: Node, what: str, given: Sequence[Value], wanted: Sequence[Value], fail: Fail) -> None:
    if len(given) != len(wanted):
        fail(node, f"{what}: {len(given)} values for {len(wanted)}")
    for i, (value, target) in enumerate(zip(given, wanted, strict=True)):
        if not is_subtype(value.type, target.type):
            fail(node, f"{what}: value {i} is {value.type}, which does not fit {target.type}")


# Their result has the type the program asserts, whatever is known of the input.
_UNCHECKED = ("prim::unchecked_cast", "prim::unchecked_unwrap_optional")


def check_schema(graph: Graph, nodes: Sequence[Node], fail: Fail) -> None:
    """Inputs and outputs agree with the operator's schema in number and type."""
    for node in nodes:
        if node.schema is not None:
            reason = misfit(node, node.schema)
            if reason is not None:
                fail(node, reason)


def misfit(node: Node, schema: Schema) -> str | None:
    """Why the node's inputs and outputs cannot be those of the schema, None when they can."""
    given, wanted = len(node.inputs), len(schema.arguments)
    if given < wanted or (given > wanted and not schema.is_vararg):
        return f"{schema} takes {wanted} arguments, found {given}"
    given, wanted = len(node.outputs), len(schema.returns)
    if given < wanted or (given > wanted and not schema.is_varret):
        return f"{schema} returns {wanted} values, found {given}"
    binding: dict[str, T.Type] = {}
    pairs = list(zip(schema.arguments, node.inputs, strict=False))
    # Variables first, from all arguments; then every argument against what they came to mean.
    for argument, value in pairs:
        if argument.type.has_var and not _bind(value.type, argument.type, binding):
            return f"argument {argument.name} of {schema} cannot be {value.type}"
    for argument, value in pairs:
        if not _fits_argument(value.type, argument, binding):
            return f"argument {argument.name} of {schema} cannot be {value.type}"
    for i, (returned, value) in enumerate(zip(schema.returns, node.outputs, strict=False)):
        if node.kind not in _UNCHECKED and not _fits_return(value.type, returned.type, binding):
            return f"output {i} of {schema} cannot be {value.type}"
    return None


def _fits_return(actual: T.Type, formal: T.Type, binding: dict[str, T.Type]) -> bool:
    declared = _meaning(formal, binding)
    if declared is not None:
        # Type inference may know more than the schema says.
        return is_subtype(actual, declared) or is_subtype(declared, actual)
    # A variable that no argument bound is bound by the result.
    trial = dict(binding)
    declared = _meaning(formal, trial) if _bind(actual, formal, trial) else None
    return declared is not None and is_subtype(actual, declared)


def _fits_argument(actual: T.Type, argument: Argument, binding: dict[str, T.Type]) -> bool:
    wanted = _meaning(argument.type, binding)
    # None given for an optional of an unbound variable.
    if wanted is None or is_subtype(actual, wanted):
        return True
    if argument.length is None:
        return False
    # A lone number stands for a broadcasting list.
    lone = wanted.element if isinstance(wanted, T.OptionalType) else wanted
    return isinstance(lone, T.ListType) and is_subtype(actual, lone.element)


def _meaning(formal: T.Type, binding: dict[str, T.Type]) -> T.Type | None:
    """The type with its variables replaced, None when one of them is not bound."""
    if not formal.has_var:
        return formal
    if any(isinstance(t, T.VarType) and t.name not in binding for t in T.walk(formal)):
        return None
    return T.substitute(formal, binding)


def _bind(actual: T.Type, formal: T.Type, binding: dict[str, T.Type]) -> bool:
    """Whether the shapes of both types agree; variables get the type that holds all their uses."""
    if isinstance(formal, T.VarType):
        known = binding.get(formal.name)
        both = actual if known is None else T.unify(known, actual)
        if both is not None:
            binding[formal.name] = both
        return both is not None
    if not formal.has_var:
        return True
    if isinstance(formal, T.OptionalType):
        if actual == T.NONE:
            return True
        return _bind(actual.element if isinstance(actual, T.OptionalType) else actual, formal.element, binding)
    if isinstance(formal, T.BoxType) and isinstance(actual, T.BoxType) and formal.kind != actual.kind:
        return False
    if type(actual) is not type(formal) or len(actual.children()) != len(formal.children()):
        return False
    return all(_bind(a, f, binding) for a, f in zip(actual.children(), formal.children(), strict=True))


def check_constant(graph: Graph, nodes: Sequence[Node], fail: Fail) -> None:
    """prim::Constant: one output, no inputs, and a value of the output's type (none at all for None)."""
    for node in nodes:
        if node.kind != "prim::Constant":
            continue
        if node.inputs or node.blocks or len(node.outputs) != 1:
            fail(node, "has one output and neither inputs nor blocks")
        value = node.attributes.get("value")
        if not holds(value, node.outputs[0].type):
            fail(node, f"a {type(value).__name__} does not fit {node.outputs[0].type}")


def holds(value: Any, t: T.Type) -> bool:
    """Whether a run-time value is of type ``t``. OpaqueConstants fit every type that is not always written out."""
    check = _PYTHON.get(t)
    if check is not None:
        return isinstance(value, check) and not (isinstance(value, bool) and t in (T.INT, T.NUMBER))
    if isinstance(value, OpaqueConstant):
        return True
    if isinstance(t, (T.OptionalType, T.UnionType)):
        return any(holds(value, m) for m in T.members_of(t))
    if isinstance(t, T.TensorType):
        return _holds_tensor(value, t)
    if isinstance(t, T.ListType):
        return isinstance(value, list) and all(holds(v, t.element) for v in value)
    if isinstance(t, T.TupleType):
        return (
            isinstance(value, tuple)
            and len(value) == len(t.elements)
            and all(holds(v, e) for v, e in zip(value, t.elements, strict=True))
        )
    if isinstance(t, T.DictType):
        return isinstance(value, dict) and all(holds(k, t.key) and holds(v, t.value) for k, v in value.items())
    if isinstance(t, T.EnumType):
        return isinstance(value, EnumValue) and value.type == t
    if isinstance(t, T.ClassType) and isinstance(value, ScriptObject):
        return value.type == t
    # Interfaces, custom classes, generators, streams and what else is opaque here.
    return value is not None or t == T.ANY


_PYTHON: dict[T.Type, type | tuple[type, ...]] = {
    T.INT: int,
    T.FLOAT: float,
    T.BOOL: bool,
    T.COMPLEX: complex,
    T.STR: str,
    T.NONE: type(None),
    T.NUMBER: (int, float, complex),
    T.DEVICE: Device,
    T.FUNCTION: Function,
    T.ANY_LIST: list,
    T.ANY_TUPLE: tuple,
    T.ANY_ENUM: EnumValue,
}


def _holds_tensor(value: Any, t: T.TensorType) -> bool:
    if isinstance(value, np.generic):
        # A 0-dim tensor is a 0-dim array.
        return False
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if not isinstance(shape, tuple):
        return False
    if isinstance(value, (QTensor, SparseTensor)):
        code = value.dtype if isinstance(value, QTensor) else t.dtype
    elif isinstance(dtype, np.dtype) and is_tensor_dtype(dtype):
        code = code_of(dtype)
    else:
        return False
    return is_subtype(T.TensorType(code, shape, t.strides, t.device, t.requires_grad), t)


def check_attributes(graph: Graph, nodes: Sequence[Node], fail: Fail) -> None:
    """prim::GetAttr and prim::SetAttr name an attribute of the object's class and agree with its type."""
    for node in nodes:
        if node.kind not in ("prim::GetAttr", "prim::SetAttr"):
            continue
        is_get = node.kind == "prim::GetAttr"
        if (len(node.inputs), len(node.outputs)) != ((1, 1) if is_get else (2, 0)):
            fail(node, "takes an object" if is_get else "takes an object and a value, and returns nothing")
        name, owner = node.attributes.get("name"), node.inputs[0].type
        if not isinstance(name, str):
            fail(node, "has no attribute 'name'")
        if isinstance(owner, T.InterfaceType) and not owner.methods:
            continue
        if not isinstance(owner, T.ClassType):
            fail(node, f"reads from a class, found {owner}")
        if not owner.attributes:
            continue
        declared = owner.attributes.get(name)
        if declared is None and is_get and name in owner.constants:
            declared = owner.constants[name][0]
        if declared is None:
            fail(node, f"{owner} has no attribute {name}; it has {', '.join(owner.attributes)}"[:400])
        found = node.outputs[0].type if is_get else node.inputs[1].type
        # Reading may know more than the declaration says.
        if not (is_subtype(found, declared) or (is_get and is_subtype(declared, found))):
            fail(node, f"attribute {name} of {owner} is {declared}, found {found}")


def check_containers(graph: Graph, nodes: Sequence[Node], fail: Fail) -> None:
    """Lists, tuples and dicts are made of, and taken apart into, as many values of such types as their type says."""
    for node in nodes:
        rule = _CONTAINERS.get(node.kind)
        if rule is None:
            continue
        is_made, check = rule
        held = node.outputs if is_made else node.inputs
        if len(held) != 1:
            fail(node, f"has {len(held)} {'outputs' if is_made else 'inputs'} instead of 1")
        parts = [v.type for v in (node.inputs if is_made else node.outputs)]
        # A NamedTuple that the parser was not told about.
        if isinstance(held[0].type, T.ClassType) and not held[0].type.attributes:
            continue
        wanted = check(held[0].type, len(parts))
        if wanted is None or len(wanted) != len(parts):
            fail(node, f"{len(parts)} values for {held[0].type}")
        for i, (part, element) in enumerate(zip(parts, wanted, strict=True)):
            if not (is_subtype(part, element) if is_made else is_subtype(element, part) or is_subtype(part, element)):
                fail(node, f"value {i} is {part}, {held[0].type} needs {element}")


def _elements(t: T.Type, count: int) -> Sequence[T.Type] | None:
    return t.elements if isinstance(t, T.TupleType) else None


def _repeated(t: T.Type, count: int) -> Sequence[T.Type] | None:
    return [t.element] * count if isinstance(t, T.ListType) else None


def _pairs(t: T.Type, count: int) -> Sequence[T.Type] | None:
    return [t.key, t.value] * (count // 2) if isinstance(t, T.DictType) else None


_CONTAINERS: dict[str, tuple[bool, Callable[[T.Type, int], Sequence[T.Type] | None]]] = {
    "prim::TupleConstruct": (True, _elements),
    "prim::TupleUnpack": (False, _elements),
    "prim::ListConstruct": (True, _repeated),
    "prim::ListUnpack": (False, _repeated),
    "prim::DictConstruct": (True, _pairs),
}

# Their output is a handle to what the subgraph returns.
_DEFERRED = ("prim::fork", "prim::awaitable")


def check_subgraphs(graph: Graph, nodes: Sequence[Node], fail: Fail) -> None:
    """A node with a subgraph gives it as many values as it takes and has as many outputs as it returns."""
    for node in nodes:
        subgraph = node.attributes.get(SUBGRAPH)
        if not isinstance(subgraph, Graph):
            continue
        if len(node.inputs) != len(subgraph.inputs):
            fail(node, f"gives {len(node.inputs)} values to a subgraph of {len(subgraph.inputs)} inputs")
        for i, (value, parameter) in enumerate(zip(node.inputs, subgraph.inputs, strict=True)):
            if not (is_subtype(value.type, parameter.type) or is_subtype(parameter.type, value.type)):
                fail(node, f"input {i} is {value.type}, the subgraph takes {parameter.type}")
        wanted = 1 if node.kind in _DEFERRED else len(subgraph.outputs)
        if len(node.outputs) != wanted:
            fail(node, f"has {len(node.outputs)} outputs instead of {wanted}")


def _name(value: Value, graph: Graph) -> str:
    return f"%{value.name}" if value.name else f"output {value.index} of {value.node.kind}"


def _types(values: Sequence[Value]) -> str:
    return f"({', '.join(str(v.type) for v in values)})"


# After check_links, on which all others rely.
INVARIANTS: tuple[Callable[[Graph, Sequence[Node], Fail], None], ...] = (
    check_scope,
    check_uses,
    check_if,
    check_loop,
    check_schema,
    check_constant,
    check_attributes,
    check_containers,
    check_subgraphs,
)
