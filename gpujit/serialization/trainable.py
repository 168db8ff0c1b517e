"""Which tensors require a gradient. Nothing here computes any, but files say it, and PyTorch heeds it."""

from __future__ import annotations

import weakref
from typing import Any

from gpujit.ir.dtypes import kind_of


class Trainable:
    """What a file said of its tensors, and a rule for those it did not have."""

    def __init__(self) -> None:
        # Arrays cannot be keys; a reference tells whether an id still is the same array's.
        self._flags: dict[int, tuple[weakref.ref[Any], bool]] = {}
        self._any: bool | None = None

    def note(self, tensor: Any, flag: bool) -> None:
        """Remember what a file says."""
        try:
            self._flags[id(tensor)] = weakref.ref(tensor), flag
        except TypeError:
            return  # quantised and sparse tensors
        self._any = flag or bool(self._any)

    def __call__(self, tensor: Any, is_parameter: bool) -> bool:
        """Whether a tensor requires a gradient: as its file said, else whether it is a parameter of numbers that can.

        In a module whose file marked none, new parameters are none either.
        """
        known = self._flags.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        return is_parameter and self._any is not False and kind_of(tensor.dtype) >= 2
