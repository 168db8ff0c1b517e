"""Running a fusion group: its kernel, bound to the strides of what it is called with."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpujit.fuser.lower import Lowered
from gpujit.fuser.report import report_of
from gpujit.ir.dtypes import kind_of, numpy_dtype
from gpujit.ir.graph import Node
from gpujit.kernels import reference
from gpujit.kernels.cpu_launch import BoundKernel, strides_of
from gpujit.kernels.supply import NotCompiled
from gpujit.kernels.tile import NotRendered
from gpujit.ops.record import opaque_function
from gpujit.support.config import config
from gpujit.support.errors import FusionWarning, InternalError

# Kernels bound for different strides that one group keeps.
MAX_BOUND = 16
# Bytes of a result that is worth aligning, and of a memory line.
LARGE, LINE = 1 << 20, 64
# Relative difference from the NumPy renderer that a self-check allows, by the size of a float.
TOLERANCE = {2: 2e-2, 4: 1e-3, 8: 1e-9}


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A new array that begins at a memory line, as stores that pass by the caches need it."""
    memory = np.empty(math.prod(shape) * dtype.itemsize + LINE, np.uint8)
    return np.ndarray(shape, dtype, memory, -memory.ctypes.data % LINE)


class FusedStep:
    """A group as a function of arrays; several results come as a tuple. Safe from many threads.

    What the kernel refuses (an index out of range) raises OpError with the operator's name. With the switch
    ``check_kernels`` on when a kernel is first called, its results are compared with the NumPy renderer's at each call.
    Args:
        lowered: the group's program.
        unfused: the same function, operator by operator: what runs when there is no kernel.
        node: the group's node, for messages.
        strict: raise instead of running unfused.
    """

    def __init__(self, lowered: Lowered, unfused: Callable[..., Any], node: Node, strict: bool = False) -> None:
        self.lowered, self.unfused, self.node, self.strict = lowered, unfused, node, strict
        self.is_fused = True
        self._shapes = [
            (v.type.shape, d := numpy_dtype(v.type.dtype), math.prod(v.type.shape) * d.itemsize >= LARGE)  # type: ignore[attr-defined]
            for v in lowered.outputs
        ]
        self._count = len(lowered.inputs)
        self._bound: dict[Any, Callable[[Sequence[Any]], None]] = {}

    def __call__(self, *operands: Any) -> Any:
        if not self.is_fused:
            return self.unfused(*operands)
        # Operands that no expression needs come behind the program's inputs.
        arrays = operands if len(operands) == self._count else operands[: self._count]
        outs = [empty(shape, dtype) if large else np.empty(shape, dtype) for shape, dtype, large in self._shapes]
        key = tuple([x.strides for x in arrays])
        try:
            bound = self._bound.get(key) or self.bind(key, arrays, outs)
            bound((*arrays, *outs))
        except NotCompiled:
            # As its caller wants it: no reason to warn.
            if self.strict:
                raise
            self.is_fused = False
            return self.unfused(*operands)
        except (NotRendered, InternalError) as fault:
            self.give_up(fault.message)
            return self.unfused(*operands)
        return outs[0] if len(outs) == 1 else tuple(outs)

    def bind(self, key: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[Sequence[Any]], None]:
        """The kernel for arrays with the strides of these, kept under ``key``. Raises NotRendered, InternalError."""
        low = self.lowered
        found: Callable[[Sequence[Any]], None]
        if any(s % x.itemsize for x in inputs for s in x.strides):
            # Elements that lie at parts of their size from each other (fields of records): a kernel counts elements.
            whole = [np.ascontiguousarray(x) for x in inputs]
            inner = self.bind(tuple([x.strides for x in whole]), whole, outputs)
            found = _OfCopies(inner, len(inputs))
        else:
            found = BoundKernel(
                low.program, list(map(strides_of, inputs)), list(map(strides_of, outputs)), low.sizes, low.params
            )
            if config.check_kernels:
                found = _Checked(found, low)
        if len(self._bound) >= MAX_BOUND:
            self._bound.clear()
        self._bound[key] = found
        return found

    def give_up(self, reason: str) -> None:
        """Run unfused from now on, with a warning. Raises InternalError when ``strict``."""
        found = report_of(self.node)
        places = list(dict.fromkeys(filter(None, found.places)))
        place = f" ({'; '.join(places)})" if places else ""
        text = f"fusion group of {', '.join(found.operators)} runs unfused: {reason}{place}"
        if self.strict:
            raise InternalError(text)
        self.is_fused = False
        warnings.warn(text, FusionWarning, stacklevel=3)

    @property
    def saved_bytes(self) -> int:
        """Bytes that one call neither writes nor reads because its results between operators stay in registers."""
        return report_of(self.node).saved_bytes


class _OfCopies:
    """A kernel on contiguous copies of its inputs."""

    def __init__(self, kernel: Callable[[Sequence[Any]], None], count: int) -> None:
        self.kernel, self.count = kernel, count

    def __call__(self, arrays: Sequence[Any]) -> None:
        self.kernel((*map(np.ascontiguousarray, arrays[: self.count]), *arrays[self.count :]))


class _Checked:
    """A kernel whose results are compared with the NumPy renderer's. Raises InternalError when they differ."""

    def __init__(self, kernel: Callable[[Sequence[Any]], None], lowered: Lowered) -> None:
        self.kernel, self.lowered = kernel, lowered

    def __call__(self, arrays: Sequence[Any]) -> None:
        low, count = self.lowered, len(self.lowered.inputs)
        self.kernel(arrays)
        wanted = [np.empty_like(x) for x in arrays[count:]]
        reference.run(low.program, arrays[:count], wanted, low.sizes, low.params, opaque_function)
        for i, (got, want) in enumerate(zip(arrays[count:], wanted, strict=True)):
            if not is_close(got, want):
                raise InternalError(f"result {i} of its kernel is not what the NumPy renderer computes")


def is_close(got: np.ndarray, want: np.ndarray) -> bool:
    """Whether results are what a self-check wants, within its tolerance for floats."""
    if kind_of(want.dtype) != 2:
        return np.array_equal(got, want)
    wide = want.astype(np.float64)
    scale = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
    limit = TOLERANCE[want.dtype.itemsize]
    return bool(np.allclose(got.astype(np.float64), wide, limit, limit * scale, equal_nan=True))
