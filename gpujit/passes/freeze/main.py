"""A module with its constant attributes moved into the graphs of its methods.

The module given is left as it is: objects are made anew, weights are shared unless a method writes into them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import code_of, is_tensor_dtype
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.module import named_modules
from gpujit.ir.printer import SUBGRAPH
from gpujit.ir.values import Device, EnumValue, QTensor, ScriptObject, SparseTensor
from gpujit.ir.verify import holds
from gpujit.passes.analysis.attributes import (
    GET,
    SET,
    AttributeFacts,
    Key,
    answer_about_object,
    attribute_facts,
    is_custom,
    is_mutable,
    reachable,
    scopes_of,
)
from gpujit.passes.analysis.evaluate import is_number_to_arithmetic
from gpujit.passes.autocast import with_casts
from gpujit.passes.freeze.methods import FrozenFunction
from gpujit.passes.freeze.objects import Cloner
from gpujit.passes.inline import inline, inlined
from gpujit.support.errors import FreezeError
from gpujit.support.progress import Stage

Clean = Callable[[Graph], bool]


@dataclass(eq=False)
class Method:
    """A method that stays: its object, its name there, and its graph, in which all calls are inlined."""

    owner: ScriptObject
    name: str
    graph: Graph


@dataclass(eq=False)
class _Kept:
    """What the caller wants to stay."""

    methods: list[tuple[ScriptObject, str]]
    attributes: set[Key]
    whole: list[ScriptObject]


def freeze_object(
    root: ScriptObject,
    preserved: Sequence[str] = (),
    *,
    preserve_parameters: bool = False,
    clean: Clean,
    finish: Clean | None = None,
) -> ScriptObject:
    """A new module whose methods hold as constants all attributes that no method writes.

    Args:
        root: the module, in eval mode.
        preserved: names, dotted below submodules, of methods, attributes and submodules to keep besides ``forward``.
            Other methods, attributes nobody reads any more and submodules without either are not in the result.
        preserve_parameters: keep all parameters as attributes.
        clean: the pipeline that folds constants and removes what is dead, run until nothing changes.
        finish: run on each graph at the end.
    Raises FreezeError for a module in training mode, an unknown name, and a call through an interface whose object may
    change; the module is untouched then.
    """
    _check_eval(root)
    kept = _resolve(root, preserved, preserve_parameters)
    methods = [Method(owner, name, _inlined_graph(owner, name)) for owner, name in kept.methods]
    _inline_interface_calls(root, methods)
    # Methods of preserved submodules are left as they are, but what they write is not constant.
    others = [Method(o, n, _inlined_graph(o, n)) for o in reachable(kept.whole) for n in o.type.methods]
    with Stage("freeze"):
        _fold(root, methods, others, kept, clean, in_place=False)
        facts = _fold(root, methods, others, kept, clean, in_place=True)
    for method in methods:
        if finish is not None:
            finish(method.graph)
    return _rebuild(root, methods, kept, facts)


# ---------------------------------------------------------------------------------------------- what is to be kept


def _check_eval(root: ScriptObject) -> None:
    training = [
        path or "the module itself"
        for path, module in named_modules(root)
        if "training" in module.type.slot_of and module.get("training") is True
    ]
    if training:
        shown = ", ".join(training[:5]) + (f" and {len(training) - 5} more" if len(training) > 5 else "")
        raise FreezeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module "
            f"before freezing. In training mode: {shown}"
        )


def _resolve(root: ScriptObject, preserved: Sequence[str], preserve_parameters: bool) -> _Kept:
    if isinstance(preserved, str):
        raise FreezeError(f"preserved_attrs is the text {preserved!r}; give a list of names")
    kept = _Kept([], set(), [])
    hooks = (*root.type.forward_pre_hooks, *root.type.forward_hooks)
    wanted = [(root, name) for name in ("forward", *hooks) if name in root.type.methods]
    for path in preserved:
        owner, name = _owner_of(root, path)
        t = owner.type
        if name in t.methods:
            wanted.append((owner, name))
            continue
        accessors = [n for n in (f"__{name}_getter", f"__{name}_setter") if n in t.methods]
        if name not in t.slot_of:
            if accessors or name in t.constants:
                wanted += [(owner, n) for n in accessors]
                continue
            raise _unknown(owner, path, name)
        kept.attributes.add((id(owner), name))
        value = owner.get(name)
        kept.whole.append(value)
    if preserve_parameters:
        for _, module in named_modules(root):
            names = (n for n in module.type.parameters if n in module.type.slot_of)
            kept.attributes.update((id(module), n) for n in names)
    for object_ in reachable(kept.whole):
        kept.attributes.update((id(object_), n) for n in object_.type.attributes)
    kept.methods = list({(id(o), n): (o, n) for o, n in wanted}.values())
    if not kept.methods:
        raise FreezeError(
            f"{root.type.name} has no method 'forward'; name the methods to keep in preserved_attrs, "
            f"of {sorted(root.type.methods)}"
        )
    return kept


def _owner_of(root: ScriptObject, path: str) -> tuple[ScriptObject, str]:
    if not isinstance(path, str):
        raise FreezeError(f"preserved_attrs holds a {type(path).__name__}; give names, such as 'sub.weight'")
    owner = root
    *above, name = path.split(".")
    for part in above:
        value = owner.get(part) if part in owner.type.slot_of else None
        if not isinstance(value, ScriptObject):
            raise _unknown(owner, path, part)
        owner = value
    return owner, name


def _unknown(owner: ScriptObject, path: str, name: str) -> FreezeError:
    t = owner.type
    return FreezeError(
        f"preserved_attrs: unknown name {path!r}: {t.name} has no {name!r}; "
        f"its methods are {sorted(t.methods)}, its attributes {list(t.attributes)}"[:2000]
    )


# ------------------------------------------------------------------------------------------------------- inlining


def _inlined_graph(owner: ScriptObject, name: str) -> Graph:
    graph = inlined(with_casts(owner.type.methods[name].graph))
    # Not as a pass: freezing is one whole, which fuel does not cut.
    inline.run(graph)
    return graph


def _inline_interface_calls(root: ScriptObject, methods: Sequence[Method]) -> None:
    """Give values of an interface the class of the one object they can be, and inline their methods."""
    for method in methods:
        while any(n.kind == "prim::CallMethod" for n in _nodes_with_forks(method.graph)):
            facts = attribute_facts(root, [(m.owner, m.graph) for m in methods], in_place=False)
            refined = False
            for scope in scopes_of(method.owner, method.graph, facts.assigned):
                for value, object_ in scope.objects.items():
                    if not isinstance(value.type, T.ClassType):
                        value.type = object_.type
                        refined = True
            if not refined:
                break
            inline.run(method.graph)
        for node in _nodes_with_forks(method.graph):
            if node.kind == "prim::CallMethod":
                raise FreezeError(
                    f"{method.name} calls {node.attributes['name']!r} of a value of {node.inputs[0].type}, and which "
                    "object that is is only known at run time (its attribute is assigned); such a module cannot be "
                    "frozen",
                    where="" if node.source is None else f"  at {node.source}",
                )


def _nodes_with_forks(graph: Graph) -> Iterator[Node]:
    for node in graph.all_nodes():
        yield node
        subgraph = node.attributes.get(SUBGRAPH)
        if isinstance(subgraph, Graph):
            yield from _nodes_with_forks(subgraph)


# ------------------------------------------------------------------------------------- attributes become constants


def _fold(
    root: ScriptObject,
    methods: Sequence[Method],
    others: Sequence[Method],
    kept: _Kept,
    clean: Clean,
    *,
    in_place: bool,
) -> AttributeFacts:
    """Turn reads into constants and clean up, until nothing changes: a branch that goes may have held a write.

    In the first of two runs (``in_place=False``) immutable attributes go, which takes no alias analysis.
    """
    cleaned = in_place
    while True:
        facts = attribute_facts(root, [(m.owner, m.graph) for m in (*methods, *others)], in_place=in_place)
        folder = _Folder(facts, kept.attributes, in_place)
        changed = [folder.method(m) for m in methods]
        if cleaned and not any(changed):
            return facts
        changed = [_clean_all(m.graph, clean) for m in methods]
        cleaned = True
        if not any(changed):
            return facts


def _clean_all(graph: Graph, clean: Clean) -> bool:
    changed = False
    for node in graph.all_nodes():
        subgraph = node.attributes.get(SUBGRAPH)
        if isinstance(subgraph, Graph):
            changed |= _clean_all(subgraph, clean)
            for i in reversed(range(len(subgraph.inputs))):
                if not subgraph.inputs[i].uses:
                    subgraph.block.param_node.remove_output(i)
                    node.remove_input(i)
                    changed = True
    return clean(graph) or changed


class _Folder:
    """Replaces reads of attributes that never change by constants, and questions about objects by their answers."""

    def __init__(self, facts: AttributeFacts, preserved: set[Key], mutable_too: bool) -> None:
        self.facts = facts
        self.preserved = preserved
        self.mutable_too = mutable_too

    def method(self, method: Method) -> bool:
        changed = False
        for scope in scopes_of(method.owner, method.graph, self.facts.assigned):
            made: dict[Any, Value] = {}
            for node in list(scope.graph.all_nodes()):
                changed |= self.read(node, scope.objects, scope.graph, made)
                changed |= self.question(node, scope.objects, scope.graph, made)
        return changed

    def read(self, node: Node, objects: dict[Value, ScriptObject], graph: Graph, made: dict[Any, Value]) -> bool:
        owner = objects.get(node.inputs[0]) if node.kind == GET else None
        if owner is None or node.output in objects or not node.output.uses:
            return False
        name = node.attributes["name"]
        if name not in owner.type.slot_of or (id(owner), name) in self.preserved or self.facts.is_kept(owner, name):
            return False
        value, declared = owner.get(name), owner.type.attributes[name]
        t = constant_type(value, declared)
        if t is None or (is_mutable(t) and not self.mutable_too) or not _stays_a_tensor(node.output, value):
            return False
        node.output.replace_all_uses_with(_constant_at_top(graph, value, t, node, made))
        node.destroy()
        return True

    def question(self, node: Node, objects: dict[Value, ScriptObject], graph: Graph, made: dict[Any, Value]) -> bool:
        for position, value in enumerate(node.inputs):
            if value in objects and len(node.outputs) == 1 and node.output.uses:
                answer = answer_about_object(node, position, objects[value])
                if answer is not None:
                    node.output.replace_all_uses_with(_constant_at_top(graph, answer, T.BOOL, node, made))
                    node.destroy()
                    return True
        return False


def _constant_at_top(graph: Graph, value: Any, t: T.Type, like: Node, made: dict[Any, Value]) -> Value:
    """A constant every block sees, one for each object or number."""
    simple = isinstance(value, (bool, int, float, complex, str, type(None)))
    key = (type(value), repr(value), str(t)) if simple else id(value)
    found = made.get(key)
    if found is None:
        node = Node("prim::Constant", (), {} if value is None else {"value": value})
        node.source, node.call = like.source, like.call
        first = graph.block.param_node.next
        assert first is not None
        node.insert_before(first)
        found = made[key] = node.add_output(t, like.output.name)
    return found


def constant_type(value: Any, declared: T.Type) -> T.Type | None:
    """The type of a constant made of an attribute's value, None when the value cannot be a constant."""
    if value is None:
        return T.NONE
    if isinstance(declared, (T.OptionalType, T.UnionType)):
        fitting = (m for m in T.members_of(declared) if m != T.NONE and holds(value, m))
        return next((t for t in (constant_type(value, m) for m in fitting) if t is not None), None)
    if isinstance(declared, T.TensorType):
        if isinstance(value, SparseTensor):
            return T.TENSOR
        code = value.dtype if isinstance(value, QTensor) else _dtype_code(value)
        return None if code is None else T.TensorType(code, tuple(value.shape))
    if is_custom(declared):
        return declared
    return declared if _is_plain(value) and holds(value, declared) else None


def _dtype_code(value: Any) -> int | None:
    dtype = getattr(value, "dtype", None)
    return code_of(dtype) if isinstance(dtype, np.dtype) and is_tensor_dtype(dtype) else None


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return isinstance(
        value,
        (bool, int, float, complex, str, type(None), Device, EnumValue, np.ndarray, QTensor, SparseTensor),
    )


def _stays_a_tensor(value: Value, held: Any) -> bool:
    """Whether a constant instead of ``value`` would be read as the tensor it is.

    A constant of no dimensions that comes second in arithmetic is read as a Python number, which promotes differently.
    Where operands can be exchanged, they are.
    """
    if not isinstance(held, np.ndarray) or held.ndim or held.dtype.kind == "b":
        return True
    numbers = [use.node for use in value.uses if is_number_to_arithmetic(use.node, use.index)]
    if not all(_is_commutative(node) for node in numbers):
        return False
    for node in numbers:
        first = node.inputs[0]
        if first is not value:
            node.set_input(0, value)
            node.set_input(1, first)
    return all(not is_number_to_arithmetic(use.node, use.index) for use in value.uses)


def _is_commutative(node: Node) -> bool:
    if not isinstance(node.inputs[0].type, T.TensorType) or not isinstance(node.inputs[1].type, T.TensorType):
        return False
    if node.kind == "aten::mul":
        return True
    return node.kind == "aten::add" and node.inputs[2].is_constant and node.inputs[2].constant() == 1


# ------------------------------------------------------------------------------------------------ the new module


def _rebuild(root: ScriptObject, methods: Sequence[Method], kept: _Kept, facts: AttributeFacts) -> ScriptObject:
    needed: dict[int, set[str]] = {id(m.owner): set() for m in methods}
    for i, name in kept.attributes:
        needed.setdefault(i, set()).add(name)
    scopes = [s for m in methods for s in scopes_of(m.owner, m.graph, facts.assigned)]
    for scope in scopes:
        for node in scope.graph.all_nodes():
            if node.kind in (GET, SET) and node.inputs[0] in scope.objects:
                needed.setdefault(id(scope.objects[node.inputs[0]]), set()).add(node.attributes["name"])
    cloner = Cloner(needed, facts.written, facts.escaped, kept.whole)
    new_root = cloner.copy_module(root)
    for scope in scopes:
        for value, object_ in scope.objects.items():
            value.type = cloner.copies[id(object_)].type
    for method in methods:
        owner = cloner.copies[id(method.owner)].type
        if owner is method.owner.type:
            # An object that got away keeps its class, whose methods are the old ones.
            continue
        owner.methods[method.name] = FrozenFunction(method.owner.type.methods[method.name], owner, method.graph)
    t, old = new_root.type, root.type
    t.forward_pre_hooks, t.forward_hooks = old.forward_pre_hooks, old.forward_hooks
    return new_root
