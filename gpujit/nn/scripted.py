"""Compiled modules in a tree of modules: walking it, its state and its modes, with the names that ``Module`` has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from gpujit.ir import types as T
from gpujit.ir.module import named_modules, submodules
from gpujit.ir.values import ScriptObject
from gpujit.support.errors import UnknownAttributeError

if TYPE_CHECKING:
    from gpujit.nn.state import IncompatibleKeys
    from gpujit.nn.typing import Tensor

_S = TypeVar("_S", bound="Scripted")


class Scripted:
    """What a compiled module has in common with one that is not; ``gpujit.ScriptModule`` makes it callable.

    Two of one object are equal, and stand for it in dicts and sets.
    """

    _object: ScriptObject
    # Hooks of its own are compiled with it.
    _load_state_dict_pre_hooks: Mapping[int, Any] = MappingProxyType({})
    _load_state_dict_post_hooks: Mapping[int, Any] = MappingProxyType({})
    _non_persistent_buffers_set: frozenset[str] = frozenset()

    def _wrapped(self: _S, module: ScriptObject) -> _S:
        """Another module of the same program."""
        raise NotImplementedError

    def _read(self, name: str) -> Any:
        """An attribute of this module for callers."""
        return self._object.get(name)

    def _own(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {n: self._read(n) for n in names if n in self._object.type.slot_of}

    def _on_host(self, value: Any) -> Any:
        """A state's value: a host array for one on this module's device. Raises DeviceError for one on another."""
        return value

    def _fill(self, array: Any, numbers: Any) -> None:
        """Copy numbers, of its shape and dtype, into a parameter or buffer."""
        array[...] = numbers

    @property
    def _parameters(self) -> dict[str, Any]:
        return self._own(self._object.type.parameters)

    @property
    def _buffers(self) -> dict[str, Any]:
        return self._own(self._object.type.buffers)

    @property
    def _modules(self: _S) -> dict[str, _S]:
        return {n: self._wrapped(m) for n, m in submodules(self._object)}

    # --------------------------------------------------------------------------------------------- contents

    def named_modules(
        self: _S, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, _S]]:
        """This module and all below it, with dotted names; a module met twice comes once unless asked for."""
        if not remove_duplicate:
            for path, module, _ in walk(self._object, f"{prefix}." if prefix else ""):
                yield path.removesuffix("."), self._wrapped(module)
            return
        memo = set() if memo is None else memo
        for name, module in named_modules(self._object, prefix):
            found = self._wrapped(module)
            if found not in memo:
                memo.add(found)
                yield name, found

    def modules(self: _S) -> Iterator[_S]:
        """The modules of ``named_modules``."""
        return (m for _, m in self.named_modules())

    def named_children(self: _S) -> Iterator[tuple[str, _S]]:
        """Modules that are attributes of this one."""
        yield from self._modules.items()

    def children(self: _S) -> Iterator[_S]:
        """The modules of ``named_children``."""
        return (m for _, m in self.named_children())

    def get_submodule(self: _S, target: str) -> _S:
        """The module of a dotted name; this module for "". Raises UnknownAttributeError naming what is missing."""
        module = self
        for name in target.split(".") if target else ():
            found = module._modules.get(name)
            if found is None:
                raise UnknownAttributeError(f"{target!r}: {module._object.type.name} has no submodule {name!r}")
            module = found
        return module

    def get_parameter(self, target: str) -> Any:
        """The parameter of a dotted name. Raises UnknownAttributeError when there is none."""
        return self._member(target, "parameter")

    def get_buffer(self, target: str) -> Any:
        """The buffer of a dotted name. Raises UnknownAttributeError when there is none."""
        return self._member(target, "buffer")

    def _member(self, target: str, kind: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        names = module._parameters if kind == "parameter" else module._buffers
        if name not in names:
            raise UnknownAttributeError(f"{target!r}: {module._object.type.name} has no {kind} {name!r}")
        return names[name]

    def _named(self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        owners = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in owners:
            for name, value in (module._parameters if kind == "parameter" else module._buffers).items():
                # What a module on a GPU holds is one object; callers get a new array of it each time.
                held = id(module._object.get(name))
                if value is None or held in seen:
                    continue
                if remove_duplicate:
                    seen.add(held)
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Names and arrays of the parameters; a shared one comes once unless asked for."""
        return self._named("parameter", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """The arrays of ``named_parameters``."""
        return (v for _, v in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Names and arrays of the buffers; a shared one comes once unless asked for."""
        return self._named("buffer", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """The arrays of ``named_buffers``."""
        return (v for _, v in self.named_buffers(recurse=recurse))

    # ------------------------------------------------------------------------------------------------ state

    def state_dict(
        self, prefix: str = "", *, destination: dict[str, Any] | None = None, keep_vars: bool = False
    ) -> dict[str, Any]:
        """Parameters and buffers by dotted name, module by module; the arrays are the module's own, not copies."""
        found: dict[str, Any] = {} if destination is None else destination
        for path, module, _ in walk(self._object, prefix):
            part = self._wrapped(module)
            for name, value in (*part._parameters.items(), *part._buffers.items()):
                if value is not None:
                    found[path + name] = value
        return found

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> IncompatibleKeys:
        """Copy arrays into the module's own by name; see ``gpujit.nn.Module.load_state_dict``. Arrays on the device of
        a module on a GPU may be among them."""
        # Loading and running modules needs no states.
        from gpujit.nn import state

        return state.load(self, state_dict, strict, assign)

    def _load_from_state_dict(self, *args: Any) -> None:
        from gpujit.nn import state

        state.load_own(self, *args)

    # ------------------------------------------------------------------------------------------------ modes

    def apply(self: _S, fn: Callable[[Any], Any]) -> _S:
        """The module itself, after ``fn`` was called on all submodules, and on it last."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def train(self: _S, mode: bool = True) -> _S:
        """Set ``training`` on every module; returns this one."""
        for _, module in named_modules(self._object):
            if module.type.attributes.get("training") == T.BOOL:
                module.set("training", bool(mode))
        return self

    def eval(self: _S) -> _S:
        """``train(False)``."""
        return self.train(False)

    def _replace_arrays(self, fn: Callable[[Tensor], Tensor]) -> None:
        for name, value in (*self._parameters.items(), *self._buffers.items()):
            if value is not None:
                self._object.set(name, fn(value))


def is_compiled(value: Any) -> bool:
    """Whether a value is a compiled module (and not an object of another compiled class)."""
    return isinstance(value, Scripted) and value._object.type.is_module


def walk(root: ScriptObject, prefix: str) -> Iterator[tuple[str, ScriptObject, int]]:
    """The modules of a tree with dotted path and depth, a shared one each time; none is entered again inside itself."""
    stack = [(prefix, root, 0)]
    above: list[int] = []
    while stack:
        path, module, depth = stack.pop()
        del above[depth:]
        if id(module) not in above:
            above.append(id(module))
            yield path, module, depth
            stack.extend(reversed([(f"{path}{n}.", m, depth + 1) for n, m in submodules(module)]))
