"""Modules while they are traced: their parameters are values of the graph, and their calls are scopes.

A module is anything with ``_parameters``, ``_buffers`` and ``_modules``, dicts by name. While one is traced the arrays
in the first two are replaced by traced ones, and calls of submodules are noticed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpujit.frontend.trace.current import CURRENT
from gpujit.frontend.trace.state import Traced, Tracer
from gpujit.ir import types as T
from gpujit.ir.graph import Value
from gpujit.ir.module import submodules
from gpujit.ir.saved import Saved
from gpujit.ir.values import ScriptObject
from gpujit.nn.hooks import calling, run
from gpujit.nn.module import Module
from gpujit.nn.parameter import is_uninitialized
from gpujit.nn.scripted import is_compiled
from gpujit.support.errors import ArgumentError

# Stands in the flat graph for an attribute of a module; ``methods`` makes prim::GetAttr of it.
ATTRIBUTE, SET_ATTRIBUTE = "trace::attribute", "trace::set_attribute"


def is_module(item: Any) -> bool:
    """Whether something can be traced as a module."""
    return all(isinstance(getattr(item, name, None), dict) for name in ("_parameters", "_buffers", "_modules"))


@dataclass(eq=False)
class Scope:
    """One call of a module while it is traced; ``parent`` is the call around it."""

    part: Part
    parent: Scope | None


@dataclass(eq=False)
class Part:
    """One module object: its class in the graph and its object, which all the names that it has share.

    ``module`` is the live one; None for a compiled module, which has its methods already.
    """

    module: Any
    object: ScriptObject
    children: dict[str, Part] = field(default_factory=dict)

    def path_to(self, other: Part) -> list[str] | None:
        """Names that lead from here to another part; None when it is not below."""
        pending: list[tuple[Part, list[str]]] = [(self, [])]
        seen: set[int] = set()
        while pending:
            part, path = pending.pop(0)
            if part is other:
                return path
            if id(part) not in seen:
                seen.add(id(part))
                pending += [(child, [*path, name]) for name, child in part.children.items()]
        return None


class ModuleTree:
    """A module with all below it, made into classes and objects of the IR.

    Arrays are shared with the module, as torch.jit.trace shares them.
    """

    def __init__(self, module: Any) -> None:
        self._parts: dict[int, Part] = {}
        self._names: dict[str, int] = {}
        self.root = self._part(module)

    @property
    def parts(self) -> list[Part]:
        """The modules, each once."""
        return list(self._parts.values())

    @property
    def live_parts(self) -> list[Part]:
        """Those of modules that are not compiled."""
        return [part for part in self._parts.values() if part.module is not None]

    def part_of(self, module: Any) -> Part | None:
        """The part of a live module, or of a compiled one's object; None for a foreign one."""
        return self._parts.get(id(module))

    def _compiled(self, module: ScriptObject) -> Part:
        """The part of a compiled module, which is itself what the graph has."""
        part = self._parts.get(id(module))
        if part is None:
            part = self._parts[id(module)] = Part(None, module)
            part.children.update((n, self._compiled(m)) for n, m in submodules(module))
        return part

    def _part(self, module: Any) -> Part:
        if is_compiled(module):
            return self._compiled(module._object)
        known = self._parts.get(id(module))
        if known is not None:
            return known
        class_type = T.ClassType(self._name(type(module)), is_module=True)
        part = self._parts[id(module)] = Part(module, ScriptObject(class_type))
        slots = part.object.slots
        for items in (module._parameters, module._buffers):
            for name, value in items.items():
                if is_uninitialized(value):
                    raise ArgumentError(
                        f"{type(module).__name__}: {name!r} has no values yet; call the lazy module once before it is "
                        "traced"
                    )
                class_type.add_attribute(name, T.NONE if value is None else T.TENSOR)
                slots.append(None if value is None else array_of(value))
        class_type.parameters = tuple(n for n, v in module._parameters.items() if v is not None)
        class_type.buffers = tuple(n for n, v in module._buffers.items() if v is not None)
        class_type.add_attribute("training", T.BOOL)
        slots.append(bool(getattr(module, "training", False)))
        for name, child in module._modules.items():
            if child is not None and is_module(child):
                below = part.children[name] = self._part(child)
                class_type.add_attribute(name, below.object.type)
                slots.append(below.object)
        return part

    def _name(self, cls: type) -> str:
        """A class's name in the graph: traced modules of one class differ, so each has a name of its own."""
        home = ".".join(p if p.isidentifier() else "_" for p in cls.__module__.split("."))
        name = cls.__name__ if cls.__name__.isidentifier() else "Module"
        plain = f"__torch__.{home}.{name}"
        if plain not in self._names:
            self._names[plain] = 0
            return plain
        number = len(self._names) + sum(self._names.values()) - 1
        self._names[plain] += 1
        return f"__torch__.{home}.___torch_mangle_{number}.{name}"


def array_of(value: Any) -> Any:
    """A parameter as the plain array that shares its memory."""
    return value if type(value) is np.ndarray else np.asarray(value)


class State:
    """What a module's arrays hold, to be put back after runs that write buffers."""

    def __init__(self, tree: ModuleTree) -> None:
        self._held = [
            (items, name, value, np.array(array_of(value)))
            for part in tree.live_parts
            for items in (part.module._parameters, part.module._buffers)
            for name, value in items.items()
            if value is not None
        ]
        self._objects = Saved(part.object for part in tree.parts)

    def restore(self) -> None:
        """Put everything back."""
        for items, name, value, numbers in self._held:
            items[name] = value
            array = array_of(value)
            if not np.array_equal(array, numbers, equal_nan=array.dtype.kind in "fc"):
                array[...] = numbers
        self._objects.restore()


@contextmanager
def placed(tracer: Tracer, tree: ModuleTree) -> Iterator[None]:
    """While it lasts, the tree's parameters and buffers are traced and its calls are scopes."""
    state = State(tree)
    held: list[tuple[Part, dict[str, Any], str, Traced]] = []
    tracer.scope = Scope(tree.root, None)
    attribute_scope, tracer.scope = tracer.scope, None
    for part in tree.live_parts:
        for items in (part.module._parameters, part.module._buffers):
            for name, value in list(items.items()):
                if value is not None:
                    traced = tracer.wrap(array_of(value), _attribute(tracer, part, name), T.TENSOR)
                    tracer.attributes[id(value)] = (value, traced._value)
                    items[name] = traced
                    held.append((part, items, name, traced))
    for part in tree.parts:
        if part.module is None:
            # Code that got at an array behind the tracer's back.
            for name, value in zip(part.object.type.attributes, part.object.slots, strict=True):
                if type(value) is np.ndarray and id(value) not in tracer.attributes:
                    tracer.attributes[id(value)] = value, _attribute(tracer, part, name)
    tracer.scope = attribute_scope
    tracer.tree = tree
    try:
        # Modules of gpujit.nn say themselves when they are called; classes of others are made to.
        foreign = {_call_owner(type(part.module)) for part in tree.live_parts if not isinstance(part.module, Module)}
        with calling(_scoped(run)), _noticed(foreign):
            yield
        for part, items, name, traced in held:
            if items.get(name) is not traced:
                _assigned(tracer, part, name, items.get(name))
    finally:
        held.clear()
        state.restore()


def _attribute(tracer: Tracer, part: Part, name: str) -> Value:
    return tracer.node(ATTRIBUTE, [], {"part": part, "name": name}).add_output(T.TENSOR)


def _assigned(tracer: Tracer, part: Part, name: str, value: Any) -> None:
    """An attribute was given another array: the graph stores it at its end."""
    from gpujit.frontend.trace.numpy_calls import Call

    new = Call(tracer, name).tensor(value)
    tracer.node(SET_ATTRIBUTE, [new._value], {"part": part, "name": name})


_LOCK = threading.Lock()
# Classes whose calls are noticed: their own __call__, and by how many traces they are.
_NOTICED: dict[type, tuple[Any, int]] = {}


def _call_owner(cls: type) -> type:
    """The class that a module's ``__call__`` is defined in."""
    return next(c for c in cls.__mro__ if "__call__" in vars(c))


@contextmanager
def _noticed(classes: set[type]) -> Iterator[None]:
    """While it lasts, calls of modules of these classes are scopes for the trace that runs them."""
    with _LOCK:
        for cls in classes:
            original, count = _NOTICED.get(cls, (vars(cls)["__call__"], 0))
            if not count:
                type.__setattr__(cls, "__call__", _replacement(original))
            _NOTICED[cls] = (original, count + 1)
    try:
        yield
    finally:
        with _LOCK:
            for cls in classes:
                original, count = _NOTICED.pop(cls)
                if count > 1:
                    _NOTICED[cls] = (original, count - 1)
                else:
                    type.__setattr__(cls, "__call__", original)


def _scoped(call: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> Any:
    """What calls a module of the traced tree as a scope."""

    def scoped(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tracer = CURRENT.get()
        part = None if tracer is None or tracer.tree is None else tracer.tree.part_of(module)
        # The outermost call is the method that is traced.
        if tracer is None or part is None or (part is tracer.tree.root and tracer.scope.parent is None):
            return call(module, args, kwargs)
        tracer.scope = Scope(part, tracer.scope)
        try:
            return call(module, args, kwargs)
        finally:
            tracer.scope = tracer.scope.parent

    return scoped


def _replacement(original: Any) -> Any:
    """A ``__call__`` that calls modules as scopes."""
    scoped = _scoped(lambda module, args, kwargs: original(module, *args, **kwargs))
    return lambda self, *args, **kwargs: scoped(self, args, kwargs)
