"""Calls of modules with other parameters and buffers than their own."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from gpujit.nn.module import Module
from gpujit.nn.parameter import to_array
from gpujit.nn.utils.parametrize import is_parametrized
from gpujit.support.errors import ArgumentError


def functional_call(
    module: Module,
    parameters_and_buffers: MutableMapping[str, Any] | Sequence[MutableMapping[str, Any]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """What the module gives with other arrays in the place of its own, which it has again afterwards.

    Args:
        parameters_and_buffers: arrays by dotted name, or several such dicts without a name in common. Where the call
            sets a parameter or buffer anew, the dict holds that in the end. Names the module has not are ignored.
        args: the arguments; what is no tuple is the only one.
        tie_weights: an array that has several names in the module is replaced under all of them by what is given for
            one.
        strict: the names have to be all those of the module.
    Raises ArgumentError for names that ``strict`` forbids, several values for one array, a name in two dicts, what a
    parametrization computes, and compiled modules, which are in the place of ``module`` or have one of the arrays.
    Not for one module in several threads at once.
    """
    if not isinstance(module, Module):
        raise ArgumentError(f"functional_call: a Module is needed, found a {type(module).__name__}")
    dicts = [parameters_and_buffers] if isinstance(parameters_and_buffers, Mapping) else list(parameters_and_buffers)
    given: dict[str, Any] = {}
    for each in dicts:
        if not isinstance(each, Mapping):
            raise ArgumentError(f"functional_call: arrays by name are needed, found a {type(each).__name__}")
        twice = sorted(given.keys() & each.keys())
        if twice:
            raise ArgumentError(f"functional_call: several dicts have {', '.join(map(repr, twice))}")
        given.update(each)
    places = _places(module, given)
    names = _tied(module, given) if tie_weights else {name: name for name in given}
    if strict:
        _check_names(module, names)
    places.update(_places(module, names))
    own = {name: table[key] for name, (table, key) in places.items()}
    placed = {n: None if given[names[n]] is None else to_array(given[names[n]], n) for n in places}
    try:
        for name, (table, key) in places.items():
            table[key] = placed[name]
        rest = () if args is None else args if isinstance(args, tuple) else (args,)
        return module(*rest, **(kwargs or {}))
    finally:
        for each in dicts:
            for name in each.keys() & places.keys():
                table, key = places[name]
                if table[key] is not placed[name]:
                    each[name] = table[key]
        for name, (table, key) in places.items():
            table[key] = own[name]


def _places(module: Module, names: Mapping[str, Any]) -> dict[str, tuple[dict[str, Any], str]]:
    """For each name the module has, the table that holds its array and the name there."""
    found: dict[str, tuple[dict[str, Any], str]] = {}
    for name in names:
        *above, last = name.split(".")
        owner: Any = module
        for part in above:
            owner = owner._modules.get(part) if isinstance(owner, Module) else owner
        if owner is None:
            continue
        if not isinstance(owner, Module):
            raise ArgumentError(f"functional_call: {name!r} is an array of a compiled module, which keeps its own")
        if is_parametrized(owner, last):
            raise ArgumentError(
                f"functional_call: {name!r} is computed; give "
                f"{'.'.join([*above, 'parametrizations', last, 'original'])!r} or what else it is computed from"
            )
        for table in (owner._parameters, owner._buffers):
            if last in table:
                found[name] = table, last
    return found


def _arrays(module: Module) -> dict[str, Any]:
    """All parameters and buffers by all their names."""
    named = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    return dict(named)


def _tied(module: Module, given: Mapping[str, Any]) -> dict[str, str]:
    """The name whose value each name gets: those given, and the other names of the same arrays."""
    same: dict[int, list[str]] = {}
    for name, array in _arrays(module).items():
        same.setdefault(id(array), []).append(name)
    found = {name: name for name in given}
    for names in same.values():
        with_value = [n for n in names if n in given]
        if len(names) == 1 or not with_value:
            continue
        if any(given[n] is not given[with_value[0]] for n in with_value):
            raise ArgumentError(
                f"functional_call: {', '.join(map(repr, names))} are one array, and several values are given for it; "
                "tie_weights=False takes them apart"
            )
        found.update({n: n if n in given else with_value[0] for n in names})
    return found


def _check_names(module: Module, names: Mapping[str, Any]) -> None:
    own = _arrays(module).keys()
    unknown, missing = sorted(names.keys() - own), sorted(own - names.keys())
    if unknown or missing:
        lines = [f"\n  {what} names: {', '.join(n)}" for what, n in (("missing", missing), ("unknown", unknown)) if n]
        raise ArgumentError(f"functional_call: not the names of {type(module).__name__}:{''.join(lines)}")
