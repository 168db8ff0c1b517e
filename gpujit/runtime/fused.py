"""Running a fusion group: its kernel, bound to the strides of what it is called with."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from gpujit.fuser.lower import Lowered
from gpujit.ir.dtypes import kind_of, numpy_dtype
from gpujit.ir.graph import Node
from gpujit.ir.printer import SUBGRAPH
from gpujit.kernels import reference
from gpujit.kernels.cpu_launch import BoundKernel, strides_of
from gpujit.kernels.cpu_ops import NotRendered
from gpujit.ops.record import opaque_function
from gpujit.support.config import config
from gpujit.support.errors import FusionWarning, InternalError

# Kernels bound for different strides that one group keeps.
MAX_BOUND = 16
# Relative difference from the NumPy renderer that a self-check allows, by the size of a float.
TOLERANCE = {2: 2e-2, 4: 1e-3, 8: 1e-9}


class FusedStep:
    """A group as a function of arrays; several results come as a tuple. Safe from many threads.

    Args:
        lowered: the group's program.
        unfused: the same function, operator by operator: what runs when there is no kernel.
        node: the group's node, for messages.
        strict: raise instead of running unfused.
    """

    def __init__(self, lowered: Lowered, unfused: Callable[..., Any], node: Node, strict: bool = False) -> None:
        self.lowered, self.unfused, self.node, self.strict = lowered, unfused, node, strict
        self.is_fused = True
        self._shapes = [(v.type.shape, numpy_dtype(v.type.dtype)) for v in lowered.outputs]  # type: ignore[attr-defined]
        self._count = len(lowered.inputs)
        self._bound: dict[Any, BoundKernel] = {}

    def __call__(self, *operands: Any) -> Any:
        if not self.is_fused:
            return self.unfused(*operands)
        arrays = operands[: self._count]
        key = tuple([x.strides for x in arrays])
        bound = self._bound.get(key)
        outs = [np.empty(shape, dtype) for shape, dtype in self._shapes]
        if bound is None:
            try:
                bound = self.bind([strides_of(x) for x in arrays], [strides_of(x) for x in outs])
            except (NotRendered, InternalError) as fault:
                self.give_up(fault.message)
                return self.unfused(*operands)
            if len(self._bound) >= MAX_BOUND:
                self._bound.clear()
            self._bound[key] = bound
        bound([*arrays, *outs])
        if config.check_kernels:
            fault = self.difference(arrays, outs)
            if fault is not None:
                self.give_up(fault)
                return self.unfused(*operands)
        return outs[0] if len(outs) == 1 else tuple(outs)

    def bind(self, inputs: list[tuple[int, ...]], outputs: list[tuple[int, ...]]) -> BoundKernel:
        """The kernel for inputs and outputs of these strides, in elements. Raises NotRendered, InternalError."""
        low = self.lowered
        return BoundKernel(low.program, inputs, outputs, low.sizes, low.params)

    def difference(self, arrays: Any, outs: list[np.ndarray]) -> str | None:
        """How the kernel's results differ from the NumPy renderer's; None when they do not."""
        low = self.lowered
        wanted = [np.empty_like(x) for x in outs]
        reference.run(low.program, list(arrays), wanted, low.sizes, low.params, opaque_function)
        for i, (got, want) in enumerate(zip(outs, wanted, strict=True)):
            if kind_of(want.dtype) != 2:
                same = np.array_equal(got, want)
            else:
                wide = want.astype(np.float64)
                scale = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
                limit = TOLERANCE[want.dtype.itemsize]
                same = np.allclose(got.astype(np.float64), wide, limit, limit * scale, equal_nan=True)
            if not same:
                return f"result {i} of its kernel is not what the NumPy renderer computes"
        return None

    def give_up(self, reason: str) -> None:
        """Run unfused from now on, with a warning. Raises InternalError when ``strict``."""
        text = f"fusion group of {', '.join(self.operators())} runs unfused: {reason}{self.place()}"
        if self.strict:
            raise InternalError(text)
        self.is_fused = False
        warnings.warn(text, FusionWarning, stacklevel=2)

    def operators(self) -> list[str]:
        """Names of the group's operators."""
        return [n.kind for n in self.node.attributes[SUBGRAPH].all_nodes() if not n.kind.startswith("prim::")]

    def place(self) -> str:
        """The source lines of the group's operators."""
        places = dict.fromkeys(str(n.source) for n in self.node.attributes[SUBGRAPH].all_nodes() if n.source is not None)
        return f" ({'; '.join(places)})" if places else ""

    @property
    def saved_bytes(self) -> int:
        """Bytes that one call neither writes nor reads because its results between operators stay in registers."""
        total = 0
        graph = self.node.attributes[SUBGRAPH]
        outputs = set(graph.outputs)
        for node in graph.nodes:
            for value in node.outputs:
                shape, code = getattr(value.type, "shape", None), getattr(value.type, "dtype", None)
                if value in outputs or shape is None or code is None or None in shape:
                    continue
                total += 2 * prod(shape) * numpy_dtype(code).itemsize
        return total
