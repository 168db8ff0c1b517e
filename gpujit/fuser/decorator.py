"""``fuse``: a function of NumPy arrays and numbers as one kernel."""

from __future__ import annotations

import functools
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from gpujit.fuser.numpy_steps import Kernel, Step, kernel_of
from gpujit.fuser.numpy_trace import Traced, known_dtype
from gpujit.ir.dtypes import FLOAT64, INT64
from gpujit.ir.scalar import RecordError
from gpujit.kernels.cpu_launch import BoundKernel, strides_of
from gpujit.kernels.tile import NotRendered
from gpujit.support.errors import FusionWarning

F = TypeVar("F", bound=Callable[..., Any])

# Traces kept for each function (one for each dtypes and shapes), and kernels bound for other strides of one.
MAX_TRACES, MAX_BOUND = 256, 16
_NUMBERS = {int: INT64, float: FLOAT64}


@overload
def fuse(function: F, /) -> F: ...
@overload
def fuse(*, strict: bool = True) -> Callable[[F], F]: ...


def fuse(function: Any = None, /, *, strict: bool = True) -> Any:
    """The function, computed by one kernel: its temporary arrays never exist.

        @gpujit.fuse
        def softplus(x, scale):
            return np.log1p(np.exp(x * scale)) / scale

    It is traced when dtypes or shapes are new; a kernel serves all shapes of one number of dims. Arguments may be
    NumPy arrays of any strides, NumPy and Python numbers; other values are constants of the trace. Results are new
    arrays (numbers for 0-dim ones, as NumPy has it), in NumPy's dtypes. Ufuncs, np.where, np.clip and reductions along
    the same axes are understood; branches on elements, parts of arrays and writes into arguments are not.
    Args:
        strict: raise for what cannot be fused; else the function runs as it is, after a FusionWarning.
    Raises RecordError with what cannot be fused; and what NumPy raises for dtypes and shapes that do not fit.
    """
    if function is None:
        return lambda fn: fuse_function(fn, strict)
    return fuse_function(function, strict)


def fuse_function(function: Callable[..., Any], strict: bool) -> Callable[..., Any]:
    """The function as ``fuse`` makes it; ``cache`` on it holds its traces."""
    cache = _Traces(function, strict)

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        return cache(args, options)

    call.cache = cache  # type: ignore[attr-defined]
    return call


class _Traces:
    """The traces of one function. Threads may call it at the same time."""

    def __init__(self, function: Callable[..., Any], strict: bool) -> None:
        self.function, self.strict = function, strict
        self.name = getattr(function, "__name__", repr(function))
        self._found: OrderedDict[Any, _Trace | None] = OrderedDict()
        self._lock = threading.RLock()

    def __call__(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        names = tuple(options)
        values = (*args, *options.values()) if options else args
        key = (len(args), names, tuple(map(_key, values)))
        try:
            found = self._found[key]
        except KeyError:
            found = self.make(key, args, options, values)
        if found is None:
            return self.function(*args, **options)
        return found(values)

    def make(self, key: Any, args: tuple[Any, ...], options: dict[str, Any], values: Sequence[Any]) -> _Trace | None:
        """A new trace; None when the function runs as it is. Raises RecordError when ``strict``."""
        with self._lock:
            found: _Trace | None
            try:
                found = _Trace(self.function, len(args), tuple(options), values)
            except (RecordError, NotRendered) as fault:
                text = f"fuse {self.name}: {fault.message}"
                if self.strict:
                    raise RecordError(text) from None
                warnings.warn(f"{text}; it runs unfused", FusionWarning, stacklevel=4)
                found = None
            self._found[key] = found
            while len(self._found) > MAX_TRACES:
                self._found.popitem(last=False)
            return found


class _Trace:
    """A function for arguments of certain dtypes and shapes."""

    def __init__(self, function: Callable[..., Any], count: int, names: Sequence[str], values: Sequence[Any]) -> None:
        self.steps: dict[Step, int] = {}
        given = [self.argument(i, x) for i, x in enumerate(values)]
        self.result = function(*given[:count], **dict(zip(names, given[count:], strict=True)))
        self.wanted: list[Traced] = []
        self._collect(self.result)
        computed = list(dict.fromkeys(x.step for x in self.wanted if x.step not in self.steps))
        self.places = {step: i for i, step in enumerate(computed)}
        self.kernel: Kernel | None = kernel_of(computed) if computed else None
        self._bound: dict[Any, BoundKernel] = {}
        if self.kernel is not None:
            arrays = self.arrays(values)
            self.bound(arrays, self.outputs())

    def argument(self, number: int, x: Any) -> Any:
        """What the function sees of an argument."""
        if isinstance(x, (np.ndarray, np.generic)):
            if not known_dtype(x.dtype):
                raise RecordError(f"argument {number} is {x.dtype}, which kernels do not know")
            step = Step(x.shape, x.dtype, argument=number)
            self.steps[step] = number
            return Traced(step, is_argument=isinstance(x, np.ndarray))
        if type(x) in _NUMBERS:
            step = Step((), _NUMBERS[type(x)], argument=number)
            self.steps[step] = number
            return Traced(step, type(x))
        return x

    def _collect(self, result: Any) -> None:
        if isinstance(result, Traced):
            self.wanted.append(result)
        elif isinstance(result, (tuple, list)):
            for x in result:
                self._collect(x)
        elif isinstance(result, dict):
            for x in result.values():
                self._collect(x)

    def arrays(self, values: Sequence[Any]) -> list[np.ndarray]:
        """The arrays that the kernel reads."""
        assert self.kernel is not None
        found = []
        for number in self.kernel.arguments:
            x = values[number]
            if type(x) in _NUMBERS:
                x = np.array(x, _NUMBERS[type(x)])
            elif type(x) is not np.ndarray:
                x = np.asarray(x)
            if any(s % x.itemsize for s in x.strides):
                x = np.ascontiguousarray(x)
            found.append(x)
        return found

    def outputs(self) -> list[np.ndarray]:
        """New arrays for the results."""
        assert self.kernel is not None
        return [np.empty(shape, dtype) for shape, dtype in self.kernel.outputs]

    def bound(self, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> BoundKernel:
        """The kernel for the strides of these arrays. Raises NotRendered."""
        key = tuple([x.strides for x in arrays])
        found = self._bound.get(key)
        if found is None:
            kernel = self.kernel
            assert kernel is not None
            if len(self._bound) >= MAX_BOUND:
                self._bound.clear()
            strides = list(map(strides_of, arrays)), list(map(strides_of, outputs))
            found = self._bound[key] = BoundKernel(kernel.program, *strides, kernel.sizes)
        return found

    def __call__(self, values: Sequence[Any]) -> Any:
        outputs: list[np.ndarray] = []
        if self.kernel is not None:
            arrays, outputs = self.arrays(values), self.outputs()
            self.bound(arrays, outputs)([*arrays, *outputs])
        return self.filled(self.result, outputs, values)

    def filled(self, result: Any, outputs: Sequence[np.ndarray], values: Sequence[Any]) -> Any:
        """What the function returned, with arrays in place of traced ones."""
        if isinstance(result, Traced):
            if result.step in self.steps:
                return values[self.steps[result.step]]
            found = outputs[self.places[result.step]]
            if result.weak is not None:
                return found.item()
            return found if found.ndim else found[()]
        if isinstance(result, dict):
            return {k: self.filled(x, outputs, values) for k, x in result.items()}
        if isinstance(result, (tuple, list)):
            items = [self.filled(x, outputs, values) for x in result]
            return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
        return result


def _key(x: Any) -> Any:
    """Equal for arguments that one trace serves."""
    kind = type(x)
    if kind is np.ndarray or isinstance(x, (np.ndarray, np.generic)):
        return kind, x.dtype, x.shape
    if kind in _NUMBERS:
        return kind
    try:
        hash(x)
    except TypeError:
        raise RecordError(f"an argument of type {kind.__name__} is neither an array nor a number") from None
    return kind, x
