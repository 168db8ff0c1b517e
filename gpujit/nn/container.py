"""Modules that hold others: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import index as to_index
from typing import Any

from gpujit.nn.module import Module, indent, is_submodule
from gpujit.nn.parameter import Parameter, is_array
from gpujit.nn.typing import Tensor
from gpujit.support.errors import ArgumentError


def _position(length: int, index: Any, name: str) -> int:
    """A list's index counted from its start. Raises IndexError outside it."""
    i: int = to_index(index)
    if not -length <= i < length:
        raise IndexError(f"{name}: index {i} is out of range for {length} elements")
    return i % length


class _Listed(Module):
    """Submodules under the names "0", "1" and so on."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __getitem__(self, index: Any) -> Any:
        values = list(self._modules.values())
        if isinstance(index, slice):
            return self._like(list(self._modules.items())[index])
        return values[_position(len(values), index, type(self).__name__)]

    def _like(self, items: list[tuple[str, Any]]) -> Any:
        raise NotImplementedError

    def __setitem__(self, index: Any, module: Module) -> None:
        names = list(self._modules)
        setattr(self, names[_position(len(names), index, type(self).__name__)], module)

    def __delitem__(self, index: Any) -> None:
        names = list(self._modules)
        doomed = names[index] if isinstance(index, slice) else [names[_position(len(names), index, "del")]]
        self._rename([m for n, m in self._modules.items() if n not in doomed])

    def _rename(self, modules: list[Any]) -> None:
        self._modules.clear()
        self._modules.update((str(i), m) for i, m in enumerate(modules))

    def insert(self, index: int, module: Module) -> Any:
        """Put a module before the one at ``index``."""
        if not is_submodule(module):
            raise ArgumentError(f"insert: a Module is needed, found a {type(module).__name__}")
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._rename(modules)
        return self

    def append(self, module: Module) -> Any:
        """The container itself with one more module at its end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """The container itself with more modules at its end."""
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, index: int = -1) -> Module:
        """The module at ``index``, which is taken out."""
        module: Module = self[index]
        del self[index]
        return module


class Sequential(_Listed):
    """Modules that are called in order, each with the result of the one before."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def _like(self, items: list[tuple[str, Any]]) -> Sequential:
        return type(self)(OrderedDict(items))

    def _rename(self, modules: list[Any]) -> None:
        if all(name.isdigit() for name in self._modules):
            super()._rename(modules)
        else:
            kept = [(n, m) for n, m in self._modules.items() if any(m is other for other in modules)]
            self._modules.clear()
            self._modules.update(kept)

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            return NotImplemented
        return Sequential(*self, *other)

    # The type of the result is that of the last module's.
    def forward(self, input: Tensor):  # type: ignore[no-untyped-def]
        for module in self:
            input = module(input)
        return input


class ModuleList(_Listed):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _like(self, items: list[tuple[str, Any]]) -> ModuleList:
        return type(self)(m for _, m in items)

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        self.extend(modules)
        return self

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        texts = [repr(m) for m in self]
        if not texts:
            return f"{self._get_name()}()"
        lines = []
        start = 0
        # Equal neighbours are shown once.
        for text, same in groupby(texts):
            count = len(list(same))
            if count == 1:
                lines.append(f"({start}): {indent(text)}")
            else:
                lines.append(f"({start}-{start + count - 1}): {count} x {indent(text)}")
            start += count
        return "\n  ".join([f"{self._get_name()}(", *lines]) + "\n)"


class ModuleDict(Module):
    """Modules by name, in the order they were put in."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take all modules out."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """The module of a name, which is taken out."""
        module = self[key]
        del self[key]
        return module

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def items(self) -> Any:
        """(name, module) pairs."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Put in modules from a dict, or from (name, module) pairs."""
        items = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        for key, module in items:
            self[key] = module


class ParameterList(Module):
    """A list of parameters: arrays become parameters, other values are kept as they are."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(self[i] for i in range(*index.indices(len(self))))
        return getattr(self, str(_position(len(self), index, "ParameterList")))

    def __setitem__(self, index: Any, value: Any) -> None:
        setattr(self, str(_position(len(self), index, "ParameterList")), _as_parameter(value))

    def append(self, value: Any) -> ParameterList:
        """The list itself with one more value at its end."""
        setattr(self, str(self._size), _as_parameter(value))
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """The list itself with more values at its end."""
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def extra_repr(self) -> str:
        return "\n".join(f"({i}): {_described(value)}" for i, value in enumerate(self))


class ParameterDict(Module):
    """Parameters by name: arrays become parameters, other values are kept as they are."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a name, or ``default``."""
        return getattr(self, key) if key in self._keys else default

    def pop(self, key: str) -> Any:
        """The value of a name, which is taken out."""
        value = self[key]
        del self[key]
        return value

    def keys(self) -> Any:
        """The names."""
        return self._keys.keys()

    def items(self) -> Any:
        """(name, value) pairs."""
        return [(key, self[key]) for key in self._keys]

    def values(self) -> Any:
        """The values."""
        return [self[key] for key in self._keys]

    def update(self, parameters: Any) -> None:
        """Put in values from a dict, or from (name, value) pairs."""
        items = parameters.items() if isinstance(parameters, (Mapping, ParameterDict)) else parameters
        for key, value in items:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(f"({key}): {_described(value)}" for key, value in self.items())


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if is_array(value) and not isinstance(value, Parameter) else value


def _described(value: Any) -> str:
    if not is_array(value):
        return f"Object of type: {type(value).__name__}"
    shape = "x".join(str(n) for n in value.shape)
    return f"Parameter containing: [{value.dtype} of size {shape}]"
