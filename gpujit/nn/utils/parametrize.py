"""Parametrizations: an array of a module computed from others each time it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import deepcopy
from typing import Any

from gpujit.nn.container import ModuleDict, ModuleList
from gpujit.nn.module import Module
from gpujit.nn.parameter import Buffer, Parameter, is_array, to_array
from gpujit.support.errors import ArgumentError, LayerError

# Arrays computed so far, by module and name; None outside of ``cached``.
_CACHE: ContextVar[dict[tuple[int, str], Any] | None] = ContextVar("gpujit.nn parametrizations", default=None)


@contextmanager
def cached() -> Iterator[None]:
    """While it lasts, every parametrized array is computed once. Not for what is traced."""
    token = _CACHE.set({} if _CACHE.get() is None else _CACHE.get())
    try:
        yield
    finally:
        _CACHE.reset(token)


class ParametrizationList(ModuleList):
    """The parametrizations of one array, applied in order, and what they start from.

    That is ``original``, or ``original0``, ``original1`` and so on where the first parametrization's ``right_inverse``
    gives several arrays. ``original`` of the constructor is a ``Parameter`` where the array was one.
    """

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False) -> None:
        if not modules:
            raise ArgumentError("ParametrizationList needs at least one module")
        super().__init__(modules)
        self.unsafe = unsafe
        array = to_array(original, "original")
        found: Any = array
        for module in reversed(list(modules)):
            inverse = getattr(module, "right_inverse", None)
            if inverse is not None:
                try:
                    found = inverse(found)
                except NotImplementedError:
                    continue
        self.is_tensor = is_array(found)
        starts = [found] if self.is_tensor else list(_arrays(found))
        self.ntensors = len(starts)
        if self.is_tensor and found.dtype != array.dtype:
            raise ArgumentError(f"right_inverse changes the dtype from {array.dtype} to {found.dtype}")
        kind = Parameter if isinstance(original, Parameter) else Buffer
        for name, start in zip(self.names(), starts, strict=True):
            setattr(self, name, kind(start))
        if not unsafe:
            _check_same(array, self(), "the parametrization")

    def names(self) -> list[str]:
        """The names of what the parametrizations start from."""
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]

    def right_inverse(self, value: Any) -> None:
        """Set the originals to what gives ``value``."""
        found: Any = to_array(value, "the value of a parametrized array")
        for module in reversed(list(self._modules.values())):
            inverse = getattr(module, "right_inverse", None)
            if inverse is None:
                raise LayerError(f"{type(module).__name__} has no right_inverse; set its originals instead")
            found = inverse(found)
        starts = [found] if self.is_tensor else list(_arrays(found))
        if len(starts) != self.ntensors:
            raise LayerError(f"right_inverse gives {len(starts)} arrays, {self.ntensors} are needed")
        for name, start in zip(self.names(), starts, strict=True):
            if start.dtype != getattr(self, name).dtype:
                raise LayerError(f"right_inverse gives {start.dtype} for {name} of {getattr(self, name).dtype}")
        for name, start in zip(self.names(), starts, strict=True):
            setattr(self, name, start)

    def forward(self) -> Any:
        modules = list(self._modules.values())
        result = modules[0](*(getattr(self, n) for n in self.names()))
        for module in modules[1:]:
            result = module(result)
        return result


def _arrays(value: Any) -> Sequence[Any]:
    if not isinstance(value, (tuple, list)) or not all(map(is_array, value)):
        raise ArgumentError(f"right_inverse gives an array, or a tuple or list of them; found a {type(value).__name__}")
    return value


def _check_same(before: Any, after: Any, what: str) -> None:
    if not is_array(after):
        raise ArgumentError(f"{what} gives an array; found a {type(after).__name__}")
    if (before.dtype, before.shape) != (after.dtype, after.shape):
        raise ArgumentError(
            f"{what} gives {after.dtype}{list(after.shape)} for {before.dtype}{list(before.shape)}; dtype and shape "
            "have to stay unless unsafe=True"
        )


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """The module, whose parameter or buffer ``tensor_name`` is now what ``parametrization`` makes of it.

    The module's class becomes one of its own, ``Parametrized...``; what the array is made of is in
    ``module.parametrizations[tensor_name]``. A method ``right_inverse`` of the parametrization says where to start
    from; ``unsafe`` allows that dtype and shape change.
    Raises ArgumentError for a name that is no array of the module, and for parametrizations that do not fit.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            before = getattr(module, tensor_name)
            after = parametrization(before)
            _check_same(before, after, "the parametrization")
            if hasattr(parametrization, "right_inverse"):
                with suppress(NotImplementedError):
                    _check_same(before, parametrization.right_inverse(after), "right_inverse")
        held = module.parametrizations[tensor_name]
        held.append(parametrization)
        held.unsafe |= unsafe
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ArgumentError(f"{type(module).__name__} has no parameter or buffer {tensor_name!r}")
    array = getattr(module, tensor_name)
    original = Parameter(array) if tensor_name in module._parameters else Buffer(array)
    made = ParametrizationList([parametrization], original, unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        module.__class__ = _parametrized_class(type(module))
        module.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, _property(tensor_name))
    module.parametrizations[tensor_name] = made
    return module


def _parametrized_class(cls: type) -> type:
    def refuse(self: Any) -> Any:
        raise ArgumentError("a parametrized module cannot be pickled; save its state_dict")

    def copied(self: Any, memo: dict[int, Any]) -> Any:
        replica = memo[id(self)] = self.__new__(type(self))
        replica.__dict__.update(deepcopy(self.__dict__, memo))
        return replica

    names = {"__getstate__": refuse, "__deepcopy__": copied, "__module__": cls.__module__}
    return type(f"Parametrized{cls.__name__}", (cls,), names)


def _property(name: str) -> property:
    def read(self: Any) -> Any:
        cache = _CACHE.get()
        if cache is None:
            return self.parametrizations[name]()
        key = id(self), name
        if key not in cache:
            cache[key] = self.parametrizations[name]()
        return cache[key]

    def write(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)

    # For the compiler of live modules.
    read.__dict__["__script_unsupported"] = (
        f"{name!r} is parametrized, which cannot be scripted; trace the module, or call remove_parametrizations first"
    )
    return property(read, write)


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Whether an array of a module is parametrized; any of them when no name is given."""
    held = getattr(module, "parametrizations", None)
    if not isinstance(held, ModuleDict):
        return False
    return len(held) > 0 if tensor_name is None else tensor_name in held


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """The module with a plain array again: what it was last, or, unless ``leave_parametrized``, what it started from.

    Raises ArgumentError when it is not parametrized, and when it started from several arrays.
    """
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"{type(module).__name__} has no parametrization of {tensor_name!r}")
    held = module.parametrizations[tensor_name]
    if not leave_parametrized and not held.is_tensor:
        raise ArgumentError(f"{tensor_name!r} is made of several arrays, none of which can take its place")
    array = getattr(module, tensor_name) if leave_parametrized else held.original
    is_parameter = held.names()[0] in held._parameters
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if is_parameter:
        module.register_parameter(tensor_name, array)
    else:
        module.register_buffer(tensor_name, array)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Any) -> type:
    """The class of a module, or what it was before its arrays were parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)
