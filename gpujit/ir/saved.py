"""What values hold, to be put back after a run that may change it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gpujit.ir.values import DeviceTensor, ScriptObject


class Saved:
    """Arrays, lists, dicts and objects with all below them as they are now.

    ``restore`` makes arrays, lists, dicts and objects hold what they held; they stay the same objects.
    """

    def __init__(self, values: Iterable[Any]) -> None:
        self._held: dict[int, tuple[Any, Any]] = {}
        stack = list(values)
        while stack:
            value = stack.pop()
            if id(value) in self._held:
                continue
            if isinstance(value, ScriptObject):
                self._held[id(value)] = value, list(value.slots)
                stack += value.slots
            elif isinstance(value, list):
                self._held[id(value)] = value, list(value)
                stack += value
            elif isinstance(value, dict):
                self._held[id(value)] = value, dict(value)
                stack += value.values()
            elif isinstance(value, tuple):
                stack += value
            elif isinstance(value, DeviceTensor):
                if hasattr(value.owner, "saved"):
                    self._held[id(value)] = value, value.owner.saved()
            elif isinstance(value, np.ndarray) and value.flags.writeable:
                self._held[id(value)] = value, value.copy()

    def restore(self) -> None:
        """Put everything back."""
        for value, before in self._held.values():
            if isinstance(value, ScriptObject):
                value.slots[:] = before
            elif isinstance(value, list):
                value[:] = before
            elif isinstance(value, dict):
                value.clear()
                value.update(before)
            elif callable(before):
                before()
            elif not np.array_equal(value, before):
                value[...] = before
