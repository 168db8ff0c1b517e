"""Modules whose arrays are not filled."""

from __future__ import annotations

import inspect
from typing import Any

from gpujit.nn.init import skipped
from gpujit.nn.module import Module
from gpujit.support.errors import ArgumentError


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Any:
    """A module of that class, made with these arguments, whose arrays are not filled; no random numbers are drawn.

    For what is given its values afterwards: ``load_state_dict`` alone is quicker then. As in PyTorch the class takes an
    argument ``device``. Raises ArgumentError for other classes.
    """
    if not isinstance(module_cls, type) or not issubclass(module_cls, Module):
        raise ArgumentError(f"skip_init: a class of modules is needed, found {module_cls!r}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise ArgumentError(f"skip_init: {module_cls.__name__} takes no argument 'device'")
    with skipped():
        return module_cls(*args, **kwargs)
