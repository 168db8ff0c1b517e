"""Running a fusion group: its kernel, bound to the strides of what it is called with."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.fuser.lower import Lowered
from gpujit.ir.dtypes import numpy_dtype
from gpujit.kernels.cpu_launch import BoundKernel, strides_of

# Kernels bound for different strides that one group keeps.
MAX_BOUND = 16


class FusedStep:
    """A group as a function of arrays; several results come as a tuple. Safe from many threads."""

    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered
        self._shapes = [(v.type.shape, numpy_dtype(v.type.dtype)) for v in lowered.outputs]  # type: ignore[attr-defined]
        self._bound: dict[Any, BoundKernel] = {}

    def __call__(self, *arrays: Any) -> Any:
        key = tuple([x.strides for x in arrays])
        bound = self._bound.get(key)
        outs = [np.empty(shape, dtype) for shape, dtype in self._shapes]
        if bound is None:
            bound = self.bind([strides_of(x) for x in arrays], [strides_of(x) for x in outs])
            if len(self._bound) >= MAX_BOUND:
                self._bound.clear()
            self._bound[key] = bound
        bound([*arrays, *outs])
        return outs[0] if len(outs) == 1 else tuple(outs)

    def bind(self, inputs: list[tuple[int, ...]], outputs: list[tuple[int, ...]]) -> BoundKernel:
        """The kernel for inputs and outputs of these strides, in elements."""
        low = self.lowered
        return BoundKernel(low.program, inputs, outputs, low.sizes, low.params)
