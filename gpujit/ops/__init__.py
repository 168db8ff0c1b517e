"""Operators: the table of entries, and every one of them as a function, ``gpujit.ops.relu(x)``."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _is_module(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(f"gpujit.ops.{name}") is not None


def __getattr__(name: str) -> Any:
    # Looked up when asked for: importing the package, as every module of it does, loads no operator.
    # A module's name comes here as well, before ``from gpujit.ops import table`` imports the module.
    found = None
    if not name.startswith("__") and not _is_module(name):
        from gpujit.ops.calls import lookup

        found = lookup(name)
    if found is None:
        raise AttributeError(f"gpujit.ops has no operator {name!r}; docs/operators.md lists them")
    return found
