"""``Module``: parameters, buffers and submodules under names, as in PyTorch, with plain NumPy arrays for tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

from gpujit.nn import hooks, state
from gpujit.nn.hooks import Hook, RemovableHandle
from gpujit.nn.parameter import (
    Buffer,
    Parameter,
    Uninitialized,
    UninitializedBuffer,
    UninitializedParameter,
    check_device,
    is_array,
    to_array,
    to_dtype,
)
from gpujit.nn.scripted import is_compiled
from gpujit.nn.typing import Tensor
from gpujit.support.errors import ArgumentError, UnknownAttributeError

_M = TypeVar("_M", bound="Module")
# What every module has from the start; each is a table of names or of hooks.
_TABLES = ("_parameters", "_buffers", "_modules")
_HOOK_TABLES = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)  # fmt: skip


def _forward_unimplemented(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands for ``forward`` where a module has none; compilers know it by its name."""
    raise NotImplementedError(f"module {type(self).__name__} has no forward")


class Module:
    """Base class of layers and models: subclasses set attributes in ``__init__`` and define ``forward``.

    An attribute set to a ``Parameter`` becomes a parameter, one set to a ``Buffer`` a buffer, one set to a Module a
    submodule; an array is a plain attribute unless ``register_buffer`` or ``register_parameter`` names it. Parameters
    and buffers are read as plain ``numpy.ndarray``, and setting one to another array replaces it.
    """

    _version = 1
    # Attributes that a compiler of a layer's source takes for constants.
    __constants__: ClassVar[Sequence[str]]
    training: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            raise ArgumentError(f"{type(self).__name__}: Module takes no arguments, found {args or kwargs}")
        d = self.__dict__
        d["training"] = True
        for name in (*_TABLES, *_HOOK_TABLES):
            d[name] = OrderedDict()
        d["_non_persistent_buffers_set"] = set()

    # What calling the module computes. Subclasses define it, with arguments of their own.
    forward: Callable[..., Any] = _forward_unimplemented

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return hooks.call(self, args, kwargs)

    # ------------------------------------------------------------------------------------ attributes

    def __getattr__(self, name: str) -> Any:
        for table in _TABLES:
            names = self.__dict__.get(table)
            if names is not None and name in names:
                return names[name]
        raise UnknownAttributeError(f"module {type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        d = self.__dict__
        registered = (
            isinstance(value, (Parameter, Buffer, Uninitialized))
            or is_submodule(value)
            or any(name in d.get(table, ()) for table in _TABLES)
        )
        if not registered:
            object.__setattr__(self, name, value)
            return
        if "_parameters" not in d:
            raise UnknownAttributeError(
                f"{name!r} is set before Module.__init__ ran; call super().__init__() first in {type(self).__name__}"
            )
        if isinstance(value, (Parameter, UninitializedParameter)):
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif isinstance(value, (Buffer, UninitializedBuffer)):
            self._forget(name, "_buffers")
            self.register_buffer(name, value, value.persistent)
        elif is_submodule(value):
            if name not in d["_modules"]:
                self._forget(name)
            d["_modules"][name] = value
        elif name in d["_modules"]:
            if value is not None:
                raise ArgumentError(
                    f"{type(self).__name__}.{name} is a submodule; it can be set to a Module or None, not to a "
                    f"{type(value).__name__}"
                )
            d["_modules"][name] = None
        else:
            table = d["_parameters"] if name in d["_parameters"] else d["_buffers"]
            if value is not None and not is_array(value):
                kind = "parameter" if table is d["_parameters"] else "buffer"
                raise ArgumentError(
                    f"{type(self).__name__}.{name} is a {kind}; it can be set to an array or None, not to a "
                    f"{type(value).__name__}"
                )
            # What stands for a tensor while a call is recorded stays what it is.
            table[name] = to_array(value, name) if hasattr(value, "detach") else value

    def __delattr__(self, name: str) -> None:
        if any(name in self.__dict__.get(table, ()) for table in _TABLES):
            self._forget(name)
        else:
            object.__delattr__(self, name)

    def _forget(self, name: str, but: str = "") -> None:
        """Take a name out of all tables but one, in which it keeps its place."""
        for table in _TABLES:
            if table != but:
                self.__dict__[table].pop(name, None)
        self.__dict__.pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __dir__(self) -> list[str]:
        own = (n for table in _TABLES for n in self.__dict__.get(table, ()) if n.isidentifier())
        return sorted({*super().__dir__(), *own})

    def __setstate__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        for name in _HOOK_TABLES:
            self.__dict__.setdefault(name, OrderedDict())

    # ------------------------------------------------------------------------------------ registration

    def _check_name(self, name: str, table: str) -> None:
        if not isinstance(name, str) or not name or "." in name:
            raise ArgumentError(
                f"{type(self).__name__}: {name!r} cannot be a name; it must have no dot, and not be empty"
            )
        if hasattr(self, name) and name not in self.__dict__[table]:
            raise ArgumentError(f"{type(self).__name__}: attribute {name!r} exists already")

    def register_parameter(self, name: str, param: Any) -> None:
        """Make an array (or ``Parameter``) a parameter; None reserves the name."""
        self._check_name(name, "_parameters")
        self._parameters[name] = _registered(param, f"parameter {name}")

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Make an array a buffer: part of ``state_dict`` if persistent, but no parameter. None reserves the name."""
        self._check_name(name, "_buffers")
        self._buffers[name] = _registered(tensor, f"buffer {name}")
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Make a module a submodule; None reserves the name."""
        if module is not None and not is_submodule(module):
            raise ArgumentError(f"submodule {name}: a Module is needed, found a {type(module).__name__}")
        self._check_name(name, "_modules")
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        """The same as ``add_module``."""
        self.add_module(name, module)

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before ``forward``; what it returns, unless None, replaces the arguments.

        With ``with_kwargs`` it is ``hook(module, args, kwargs)``, and it returns None or both.
        """
        return hooks.add(self._forward_pre_hooks, hook, prepend, (with_kwargs, self._forward_pre_hooks_with_kwargs))

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args, result)`` after ``forward``; what it returns, unless None, replaces the result.

        With ``with_kwargs`` it is ``hook(module, args, kwargs, result)``. With ``always_call`` it is called, with None
        for the result, when ``forward`` raises, too.
        """
        return hooks.add(
            self._forward_hooks,
            hook,
            prepend,
            (with_kwargs, self._forward_hooks_with_kwargs),
            (always_call, self._forward_hooks_always_called),
        )

    # ------------------------------------------------------------------------------------ walking

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this module and all below it, parents first; one used twice comes once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """This module and all below it."""
        return (m for _, m in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the direct submodules."""
        seen: set[Module] = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """The direct submodules."""
        return (m for _, m in self.named_children())

    def _named_members(
        self, table: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Tensor]]:
        seen: set[int] = set()
        owners = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for owner, module in owners:
            for name, array in getattr(module, table).items():
                if array is None or id(array) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(array))
                yield (f"{owner}.{name}" if owner else name), array

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, array) of the parameters."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """The parameters."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, array) of the buffers."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name; this module for "". Raises UnknownAttributeError naming what is missing."""
        module = self
        for name in target.split(".") if target else ():
            found = module._modules.get(name)
            if found is None:
                raise UnknownAttributeError(f"{target!r}: module {type(module).__name__} has no submodule {name!r}")
            module = found
        return module

    def get_parameter(self, target: str) -> Tensor:
        """The parameter of a dotted name. Raises UnknownAttributeError when there is none."""
        return self._get_member(target, "_parameters", "parameter")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of a dotted name. Raises UnknownAttributeError when there is none."""
        return self._get_member(target, "_buffers", "buffer")

    def _get_member(self, target: str, table: str, kind: str) -> Tensor:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        found = getattr(module, table)
        if name not in found:
            raise UnknownAttributeError(f"{target!r}: module {type(module).__name__} has no {kind} {name!r}")
        return found[name]

    def set_submodule(self, target: str, module: Module) -> None:
        """Put a module in place of the one of a dotted name."""
        path, _, name = target.rpartition(".")
        self.get_submodule(target)
        setattr(self.get_submodule(path), name, module)

    # ------------------------------------------------------------------------------------ modes and dtypes

    def apply(self: _M, fn: Callable[[Module], Any]) -> _M:
        """The module itself, after ``fn`` was called on all submodules, and on it last."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def train(self: _M, mode: bool = True) -> _M:
        """The module itself, now in training mode (or not), with all below it."""
        if not isinstance(mode, bool):
            raise ArgumentError(f"train: mode must be a bool, found a {type(mode).__name__}")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self: _M) -> _M:
        """The module itself, now in evaluation mode."""
        return self.train(False)

    def _apply(self: _M, fn: Callable[[Tensor], Tensor]) -> _M:
        # An array registered in two places stays one array.
        done: dict[int, tuple[Tensor, Tensor]] = {}

        def once(array: Tensor) -> Tensor:
            if id(array) not in done:
                done[id(array)] = (array, fn(array))
            return done[id(array)][1]

        for module in self.modules():
            module._replace_arrays(once)
        return self

    def _replace_arrays(self, fn: Callable[[Tensor], Tensor]) -> None:
        for table in (self._parameters, self._buffers):
            for name, array in table.items():
                if array is not None:
                    table[name] = fn(array)

    def to(self: _M, *args: Any, **kwargs: Any) -> _M:
        """The module itself, floating arrays of another dtype: ``to(dtype)``, ``to(device, dtype)``, ``to(tensor)``.

        Raises DeviceError for another device than the CPU, ArgumentError for a dtype that is not floating.
        """
        dtype = kwargs.pop("dtype", None)
        device = kwargs.pop("device", None)
        for unused in ("non_blocking", "copy", "memory_format"):
            kwargs.pop(unused, None)
        if kwargs:
            raise ArgumentError(f"to: unknown arguments {', '.join(kwargs)}")
        for value in args:
            if is_array(value):
                dtype = value.dtype
            elif (isinstance(value, str) and value.split(":")[0] in ("cpu", "cuda", "meta", "mps")) or type(
                value
            ).__name__ in ("device", "Device"):
                device = value
            elif value is not None and not isinstance(value, bool):
                dtype = value
        check_device(device)
        return self if dtype is None else self.type(dtype, floating=True)

    def type(self: _M, dst_type: Any, floating: bool = False) -> _M:
        """The module itself with all its arrays of another dtype; with ``floating``, only the floating ones."""
        dtype = to_dtype(dst_type)
        if floating and not _is_floating(dtype):
            raise ArgumentError(f"to: modules take floating and complex dtypes, found {dtype}")
        return self._apply(lambda a: a.astype(dtype, copy=False) if not floating or _is_floating(a.dtype) else a)

    def float(self: _M) -> _M:
        """The module itself, floating arrays as float32."""
        return self.type("float32", floating=True)

    def double(self: _M) -> _M:
        """The module itself, floating arrays as float64."""
        return self.type("float64", floating=True)

    def half(self: _M) -> _M:
        """The module itself, floating arrays as float16."""
        return self.type("float16", floating=True)

    def bfloat16(self: _M) -> _M:
        """The module itself, floating arrays as bfloat16."""
        return self.type("bfloat16", floating=True)

    def cpu(self: _M) -> _M:
        """The module itself: it lives on the CPU."""
        return self

    # ------------------------------------------------------------------------------------ state

    def state_dict(
        self, *, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by dotted name, in order; the arrays are the module's own, no copies."""
        return state.collect(self, destination, prefix, keep_vars)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> state.IncompatibleKeys:
        """Copy arrays into the module's own by name; the keys that were missing and those that were unexpected.

        Args:
            state_dict: arrays by dotted name; PyTorch tensors do as well. They are converted to the module's dtypes.
            strict: missing and unexpected keys are an error.
            assign: take the arrays themselves, with their dtypes, instead of copying.
        Raises StateDictError that lists every key or shape that does not fit.
        """
        return state.load(self, state_dict, strict, assign)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Put this module's own arrays into ``destination``; subclasses may add to it."""
        state.save_own(self, destination, prefix)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take this module's own arrays from ``state_dict``; subclasses may change keys first."""
        state.load_own(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    def register_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before ``state_dict`` collects this module."""
        return hooks.add(self._state_dict_pre_hooks, hook, False)

    def register_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` after ``state_dict`` collected this module.

        It changes the dict in place.
        """
        return hooks.add(self._state_dict_hooks, hook, False)

    def register_load_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Before loading call ``hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)``."""
        return hooks.add(self._load_state_dict_pre_hooks, hook, False)

    def register_load_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after loading; it may change the lists of keys in place."""
        return hooks.add(self._load_state_dict_post_hooks, hook, False)

    # ------------------------------------------------------------------------------------ text

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What the printed module says between its brackets; subclasses define it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {indent(repr(child))}" for name, child in self._modules.items()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return "\n  ".join([f"{self._get_name()}(", *lines, *children]) + "\n)"


def _registered(value: Any, place: str) -> Any:
    """What a table of arrays holds for a value."""
    return value if value is None or isinstance(value, Uninitialized) else to_array(value, place)


def is_submodule(value: Any) -> bool:
    """Whether a value can be below a module: one of its kind, or a compiled one."""
    return isinstance(value, Module) or is_compiled(value)


def indent(text: str) -> str:
    """``text`` with all lines but the first moved in."""
    return text.replace("\n", "\n  ")


def _is_floating(dtype: Any) -> bool:
    # ml_dtypes' types (bfloat16 and the 8-bit ones) are of kind V.
    return dtype.kind in "fcV"
