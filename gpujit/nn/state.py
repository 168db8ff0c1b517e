"""What ``state_dict`` collects, and how ``load_state_dict`` puts it back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpujit.nn.parameter import Uninitialized, is_uninitialized, to_array
from gpujit.nn.scripted import Scripted
from gpujit.support.errors import ArgumentError, StateDictError

if TYPE_CHECKING:
    from gpujit.nn.module import Module

EXTRA_STATE = "_extra_state"
# PyTorch's name of the attribute in which a state_dict keeps the version of every module.
METADATA = "_metadata"


class StateDict(OrderedDict[str, Any]):
    """Arrays by dotted name; ``_metadata`` has each module's version."""

    _metadata: dict[str, dict[str, Any]]


class IncompatibleKeys(NamedTuple):
    """Keys the module has and the state_dict lacks, and the other way round."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def collect(module: Module, destination: dict[str, Any] | None, prefix: str, keep_vars: bool) -> dict[str, Any]:
    """What ``Module.state_dict`` gives."""
    found: Any = StateDict() if destination is None else destination
    if destination is None:
        found._metadata = OrderedDict()
    metadata = {"version": module._version}
    if hasattr(found, METADATA):
        found._metadata[prefix.rstrip(".")] = metadata
    for hook in module._state_dict_pre_hooks.values():
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(found, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(destination=found, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for hook in module._state_dict_hooks.values():
        if hook(module, found, prefix, metadata) is not None:
            raise ArgumentError("a hook after state_dict changes the dict in place, and returns None")
    result: dict[str, Any] = found
    return result


def _own(module: Module | Scripted) -> dict[str, Any]:
    """A module's own parameters and persistent buffers by name."""
    persistent = {n: b for n, b in module._buffers.items() if n not in module._non_persistent_buffers_set}
    return {n: a for n, a in {**module._parameters, **persistent}.items() if a is not None}


def save_own(module: Module, destination: dict[str, Any], prefix: str) -> None:
    """Put a module's own arrays into ``destination``."""
    for name, array in _own(module).items():
        destination[prefix + name] = array
    extra = getattr(type(module), "get_extra_state", None)
    if extra is not None:
        destination[prefix + EXTRA_STATE] = extra(module)


def load(module: Module | Scripted, state_dict: Any, strict: bool, assign: bool) -> IncompatibleKeys:
    """What ``Module.load_state_dict`` does."""
    if not isinstance(state_dict, Mapping):
        raise ArgumentError(f"load_state_dict: a dict of arrays is needed, found a {type(state_dict).__name__}")
    versions = getattr(state_dict, METADATA, {})
    found: dict[str, Any] = OrderedDict(state_dict)
    keys = IncompatibleKeys([], [])
    errors: list[str] = []

    def visit(m: Module | Scripted, prefix: str) -> None:
        metadata = dict(versions.get(prefix.rstrip("."), {}))
        if assign:
            metadata["assign_to_params_buffers"] = True
        for hook in m._load_state_dict_pre_hooks.values():
            hook(m, found, prefix, metadata, strict, *keys, errors)
        m._load_from_state_dict(found, prefix, metadata, True, *keys, errors)
        for name, child in m._modules.items():
            if child is not None:
                visit(child, f"{prefix}{name}.")
        for hook in m._load_state_dict_post_hooks.values():
            hook(m, keys)

    visit(module, "")
    if strict:
        for kind, names in (("unexpected", keys.unexpected_keys), ("missing", keys.missing_keys)):
            if names:
                errors.insert(0, f"{kind} keys: {', '.join(names)}")
    if errors:
        shown = "\n  ".join(errors)
        raise StateDictError(f"load_state_dict: the state does not fit {type(module).__name__}\n  {shown}")
    return keys


def _made(module: Any, name: str, held: Uninitialized, given: Any) -> Any:
    """A lazy module's array for a state's, which decides its shape; None while that has none either."""
    shape = None if is_uninitialized(given) else getattr(given, "shape", None)
    if shape is not None:
        setattr(module, name, held.materialize(shape))
    return None if shape is None else getattr(module, name)


def load_own(
    module: Module | Scripted,
    state_dict: dict[str, Any],
    prefix: str,
    metadata: dict[str, Any],
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    """Take a module's own arrays from ``state_dict``; names that fit nothing and shapes that differ are listed."""
    own = _own(module)
    for name, array in own.items():
        key = prefix + name
        if key not in state_dict:
            if strict:
                missing.append(key)
            continue
        if isinstance(array, Uninitialized):
            array = _made(module, name, array, state_dict[key])
            if array is None:
                continue
        if is_uninitialized(state_dict[key]):
            errors.append(f"{key}: the state has no values for it yet")
            continue
        try:
            given = state_dict[key]
            given = to_array(module._on_host(given) if isinstance(module, Scripted) else given, key)
        except ArgumentError as e:
            errors.append(str(e))
            continue
        # Scalars were saved as arrays of one element by early versions of PyTorch.
        if given.shape == (1,) and array.shape == ():
            given = given[0].reshape(())
        if given.shape != array.shape:
            errors.append(f"{key}: the module has shape {list(array.shape)}, the state {list(given.shape)}")
        elif metadata.get("assign_to_params_buffers"):
            setattr(module, name, given)
        else:
            with np.errstate(all="ignore"):
                given = given.astype(array.dtype, copy=False)
            if isinstance(module, Scripted):
                module._fill(array, given)
            else:
                array[...] = given
    set_extra = getattr(type(module), "set_extra_state", None)
    if set_extra is not None:
        if prefix + EXTRA_STATE in state_dict:
            set_extra(module, state_dict[prefix + EXTRA_STATE])
        elif strict:
            missing.append(prefix + EXTRA_STATE)
    for key in state_dict:
        if key.startswith(prefix):
            name, dot, _ = key[len(prefix) :].partition(".")
            if name == EXTRA_STATE and not dot:
                fits = set_extra is not None
            else:
                fits = name in (module._modules if dot else own)
            if not fits:
                unexpected.append(key)
