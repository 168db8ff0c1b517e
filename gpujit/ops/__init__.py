"""Operators: the table of entries, and every one of them as a function, ``gpujit.ops.relu(x)``."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # Looked up when asked for: importing the package, as every module of it does, loads no operator.
    # A module's name comes here as well, before ``from gpujit.ops import table`` imports the module.
    from importlib.util import find_spec

    found = None
    if not name.startswith("__") and find_spec(f"gpujit.ops.{name}") is None:
        from gpujit.ops.calls import lookup

        found = lookup(name)
    if found is None:
        raise AttributeError(f"gpujit.ops has no operator {name!r}; docs/operators.md lists them")
    return found
