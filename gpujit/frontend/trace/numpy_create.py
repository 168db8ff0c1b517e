"""NumPy's functions that make arrays: of a size, like another array, from numbers of the graph.

``zeros`` and its like do not ask their arguments whether they are traced, so while a function is traced they are
replaced in NumPy's namespace for the code of that function; ``recorded`` says by what.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gpujit.frontend.trace.current import CURRENT
from gpujit.frontend.trace.numbers import TracedNumber
from gpujit.frontend.trace.numpy_calls import Call, attach, load_tables, records
from gpujit.frontend.trace.numpy_shape import sizes_of
from gpujit.frontend.trace.places import is_library
from gpujit.frontend.trace.state import Traced, holds_traced

# ------------------------------------------------------------------------------------------ like another array


def _like(name: str) -> Callable[..., Any]:
    def body(
        call: Call, a: Any, dtype: Any = None, order: Any = "K", subok: Any = True, shape: Any = None, *,
        device: Any = None,
    ) -> Any:  # fmt: skip
        sizes = list(call.tensor(a).shape) if shape is None else sizes_of(shape)
        return call.op(name, sizes, dtype=call.dtype)

    return body


for _name in ("zeros", "ones"):
    records(getattr(np, f"{_name}_like"))(_like(_name))


@records(np.empty_like)
def empty_like(
    call: Call, prototype: Any, /, dtype: Any = None, order: Any = "K", subok: Any = True, shape: Any = None, *,
    device: Any = None,
) -> Any:  # fmt: skip
    # What is in it nobody may rely on; zeros are the same in each run.
    sizes = list(call.tensor(prototype).shape) if shape is None else sizes_of(shape)
    call.expected = np.zeros_like(call.expected)
    return call.op("zeros", sizes, dtype=call.dtype)


@records(np.full_like)
def full_like(
    call: Call, a: Any, fill_value: Any, dtype: Any = None, order: Any = "K", subok: Any = True, shape: Any = None, *,
    device: Any = None,
) -> Any:  # fmt: skip
    sizes = list(call.tensor(a).shape) if shape is None else sizes_of(shape)
    return _full(call, sizes, fill_value, call.dtype)


@records(np.tril)
def tril(call: Call, m: Any, k: Any = 0) -> Any:
    return call.op("tril", call.tensor(m), k)


@records(np.triu)
def triu(call: Call, m: Any, k: Any = 0) -> Any:
    return call.op("triu", call.tensor(m), k)


@records(np.fill_diagonal, raw=True)
def fill_diagonal(call: Call, a: Any, val: Any, wrap: Any = False) -> None:
    from gpujit.frontend.trace.numpy_calls import store

    if not isinstance(a, Traced) or a._concrete.ndim != 2 or wrap:
        raise call.refuse("only the diagonal of a traced matrix is filled")
    view = call.op("diagonal", a, 0, 0, 1)
    store(call.tracer, view, call.tensor(val, a._concrete.dtype))
    np.fill_diagonal(*call.tracer.concrete([a, val]))


# ------------------------------------------------------------------------------------------------ of a size


def _plain(call: Call, function: Any, args: Any, kwargs: Any) -> Any:
    return function(*call.tracer.concrete(list(args)), **call.tracer.concrete(dict(kwargs)))


def _filled(name: str) -> Callable[..., Any]:
    def body(
        call: Call, shape: Any, dtype: Any = float, order: Any = "C", *, device: Any = None, like: Any = None
    ) -> Any:
        return call.op("zeros" if name == "empty" else name, sizes_of(shape), dtype=call.dtype)

    return body


def _full(call: Call, sizes: list[Any], value: Any, dtype: Any) -> Any:
    if isinstance(value, (Traced, np.ndarray)) and not isinstance(value, TracedNumber):
        return call.op("clone", call.op("expand", call.tensor(value, dtype), sizes))
    if isinstance(value, TracedNumber):
        return call.op("full", sizes, value, dtype=dtype)
    number = np.asarray(value).astype(dtype)
    if number.ndim:
        return call.op("clone", call.op("expand", call.tensor(number), sizes))
    return call.op("full", sizes, number.item(), dtype=dtype)


def _full_of_size(
    call: Call,
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Any:
    return _full(call, sizes_of(shape), fill_value, call.dtype)


def _arange(call: Call, *args: Any, dtype: Any = None, device: Any = None, like: Any = None, **kwargs: Any) -> Any:
    bounds = [*args]
    for name in ("start", "stop", "step"):
        if name in kwargs:
            bounds.append(kwargs[name])
    if "stop" in kwargs and "start" not in kwargs and not args:
        bounds = [0, kwargs["stop"], kwargs.get("step", 1)]
    bounds = [_number(call, b) for b in bounds]
    if call.dtype.kind == "f" and call.dtype != np.float64:
        return call.cast(call.op("arange", *bounds, dtype=np.float64), call.dtype)
    return call.op("arange", *bounds, dtype=call.dtype)


def _number(call: Call, item: Any) -> Any:
    """A bound as a number of the graph."""
    if isinstance(item, Traced) and not isinstance(item, TracedNumber):
        return call.op("item", item)
    return item.item() if isinstance(item, np.generic) else item


def _eye(
    call: Call, N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: Any = "C", *, device: Any = None,
    like: Any = None,
) -> Any:  # fmt: skip
    N = sizes_of(N)[0]
    columns = N if M is None else sizes_of(M)[0]
    if not isinstance(k, Traced) and int(k) == 0:
        return call.op("eye", N, columns, dtype=call.dtype)
    rows = call.op("unsqueeze", call.op("arange", N), 1)
    return call.cast(call.op("eq", call.op("arange", columns), call.op("add", rows, k)), call.dtype)


def _identity(call: Call, n: Any, dtype: Any = None, *, like: Any = None) -> Any:
    n = sizes_of(n)[0]
    return call.op("eye", n, n, dtype=call.dtype)


def _tri(call: Call, N: Any, M: Any = None, k: Any = 0, dtype: Any = float, *, like: Any = None) -> Any:
    N = sizes_of(N)[0]
    rows = call.op("unsqueeze", call.op("arange", N), 1)
    columns = call.op("arange", N if M is None else sizes_of(M)[0])
    return call.cast(call.op("le", columns, call.op("add", rows, k)), call.dtype)


def _indices(call: Call, dimensions: Any, dtype: Any = int, sparse: Any = False) -> Any:
    sizes = sizes_of(dimensions)
    grids = []
    for d, size in enumerate(sizes):
        shape: list[Any] = [1] * len(sizes)
        shape[d] = -1
        grid = call.op("reshape", call.op("arange", size), shape)
        grids.append(call.cast(grid if sparse else call.op("expand", grid, sizes), dtype))
    return tuple(grids) if sparse else call.op("stack", grids, 0)


@records(np.linspace)
def linspace(
    call: Call, start: Any, stop: Any, num: Any = 50, endpoint: Any = True, retstep: Any = False, dtype: Any = None,
    axis: Any = 0, *, device: Any = None,
) -> Any:  # fmt: skip
    low, high = (call.tensor(v, np.float64) for v in (start, stop))
    if axis != 0:
        raise call.refuse("axis= other than 0")
    count = sizes_of(num)[0]
    gaps = count - 1 if endpoint else count
    low, high = call.op("broadcast_tensors", [low, high])
    at = call.op("reshape", call.op("arange", count, dtype=np.float64), [-1, *[1] * low._concrete.ndim])
    span = call.op("sub", high, low)
    concrete_gaps = call.tracer.concrete(gaps)
    step = call.op("div", span, gaps) if concrete_gaps else call.op("mul", span, np.nan)
    found = (
        call.op("add", call.op("mul", at, step), low) if concrete_gaps else call.op("add", call.op("mul", at, 0), low)
    )
    if endpoint and concrete_gaps:
        # The last one is the end itself, whatever the rounding.
        found = call.op("cat", [call.op("slice", found, 0, 0, -1, 1), call.op("unsqueeze", high, 0)], 0)
    target = call.dtype
    if target.kind in "iu":
        found = call.op("floor", found)
    found = call.cast(found, target)
    return (found, step) if retstep else found


@records(np.logspace)
def logspace(
    call: Call, start: Any, stop: Any, num: Any = 50, endpoint: Any = True, base: Any = 10.0, dtype: Any = None,
    axis: Any = 0,
) -> Any:  # fmt: skip
    wanted, call.expected = call.expected, np.empty(0)
    powers = linspace(call, start, stop, num, endpoint, axis=axis)
    call.expected = wanted
    return call.cast(call.op("pow", call.tensor(base, np.float64), powers), wanted.dtype)


def _triangle(name: str) -> Callable[..., Any]:
    def body(call: Call, n: Any, k: Any = 0, m: Any = None) -> Any:
        rows, columns = sizes_of(n)[0], sizes_of(n if m is None else m)[0]
        found = call.op(name, rows, columns, k)
        return call.op("select", found, 0, 0), call.op("select", found, 0, 1)

    return body


def _diagonal(call: Call, n: Any, ndim: Any = 2) -> Any:
    return (call.op("arange", sizes_of(n)[0]),) * int(ndim)


def _fftfreq(name: str) -> Callable[..., Any]:
    def body(call: Call, n: Any, d: Any = 1.0, device: Any = None) -> Any:
        half = (n - 1) // 2 + 1
        if name == "rfftfreq":
            at = call.op("arange", 0, n // 2 + 1, dtype=np.float64)
        else:
            negative = call.op("arange", 0 - n // 2, 0, dtype=np.float64)
            at = call.op("cat", [call.op("arange", 0, half, dtype=np.float64), negative], 0)
        return call.op("mul", at, 1.0 / (n * d))

    return body


# --------------------------------------------------------------------------------- from numbers and lists


def _asarray(copies: bool) -> Callable[..., Any]:
    def body(call: Call, a: Any, dtype: Any = None, order: Any = None, **options: Any) -> Any:
        x = call.cast(call.tensor(a), call.expected.dtype)
        return call.op("clone", x) if copies and options.get("copy", True) else x

    return body


def _product(call: Call, a: Any, axis: Any = None, **options: Any) -> Any:
    return math.prod(a)


_WINDOWS = {"hanning": (0.5, 0.5), "hamming": (0.54, 0.46)}


def _window(name: str) -> Callable[..., Any]:
    def body(call: Call, M: Any) -> Any:
        a, b = _WINDOWS[name]
        at = call.op("arange", 0, M, dtype=np.float64)
        wave = call.op("cos", call.op("div", call.op("mul", at, 2 * math.pi), M - 1))
        return call.op("rsub", call.op("mul", wave, b), a)

    return body


# What replaces a function of NumPy's, and whether it does so for arguments that are not traced, too: what these make is
# there to be written into.
_REPLACED: dict[tuple[Any, str], tuple[Callable[..., Any], bool]] = {
    (np, "zeros"): (_filled("zeros"), True),
    (np, "ones"): (_filled("ones"), True),
    (np, "empty"): (_filled("empty"), True),
    (np, "full"): (_full_of_size, True),
    (np, "arange"): (_arange, False),
    (np, "eye"): (_eye, False),
    (np, "identity"): (_identity, False),
    (np, "tri"): (_tri, False),
    (np, "indices"): (_indices, False),
    (np, "linspace"): (linspace, False),
    (np, "logspace"): (logspace, False),
    (np, "tril_indices"): (_triangle("tril_indices"), False),
    (np, "triu_indices"): (_triangle("triu_indices"), False),
    (np, "diag_indices"): (_diagonal, False),
    (np, "asarray"): (_asarray(False), False),
    (np, "asanyarray"): (_asarray(False), False),
    (np, "ascontiguousarray"): (_asarray(False), False),
    (np, "array"): (_asarray(True), False),
    (np, "hanning"): (_window("hanning"), False),
    (np, "hamming"): (_window("hamming"), False),
    (np.fft, "fftfreq"): (_fftfreq("fftfreq"), False),
    (np.fft, "rfftfreq"): (_fftfreq("rfftfreq"), False),
}


def _record(body: Callable[..., Any], original: Any, args: Any, kwargs: Any) -> Any:
    tracer = CURRENT.get()
    assert tracer is not None
    call = Call(tracer, f"numpy.{original.__name__}")
    call.expected = _plain(call, original, args, kwargs)
    if original.__name__ == "empty":
        call.expected = np.zeros_like(call.expected)
    from gpujit.frontend.trace.numpy_calls import traced_in

    return attach(call, body(call, *args, **kwargs), call.expected, traced_in([args, kwargs]))


def _replacement(original: Any, body: Callable[..., Any], always: bool) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        code = sys._getframe(1).f_code
        # Compiled code, such as numpy.random's, has no frame of its own: the one seen does not name the function then.
        if CURRENT.get() is None or is_library(code.co_filename) or original.__name__ not in code.co_names:
            return original(*args, **kwargs)
        traced = holds_traced(args) or holds_traced(kwargs)
        if not traced and (not always or not _fits(original, args, kwargs)):
            return _literal(original(*args, **kwargs), [args, kwargs])
        return _record(body, original, args, kwargs)

    function.__name__ = function.__qualname__ = original.__name__
    function.__doc__ = original.__doc__
    return function


def _literal(made: Any, given: Any) -> Any:
    """An array that a traced function made, remembered as a literal unless it was made of another array."""
    tracer = CURRENT.get()
    if tracer is not None and isinstance(made, np.ndarray) and not _holds_array(given):
        tracer.literals[id(made)] = made
    return made


def _holds_array(item: Any) -> bool:
    if isinstance(item, dict):
        item = list(item.values())
    if isinstance(item, (list, tuple)):
        return any(map(_holds_array, item))
    return hasattr(item, "__array__") and not isinstance(item, (np.generic, type))


def _fits(original: Any, args: Any, kwargs: Any) -> bool:
    """Whether a tensor can hold what is made."""
    from gpujit.ir.dtypes import is_tensor_dtype

    return is_tensor_dtype(original(*args, **kwargs).dtype)


def _product_replacement(original: Any) -> Callable[..., Any]:
    def function(a: Any, *args: Any, **kwargs: Any) -> Any:
        sizes = (
            isinstance(a, (tuple, list))
            and holds_traced(a)
            and all(isinstance(v, (int, np.integer, TracedNumber)) for v in a)
        )
        if CURRENT.get() is not None and sizes and not args and not kwargs:
            return math.prod(a)
        return original(a, *args, **kwargs)

    return function


_LOCK = threading.Lock()
_DEPTH = 0
_ORIGINALS: dict[tuple[Any, str], Any] = {}


@contextmanager
def recorded() -> Iterator[None]:
    """While it lasts, NumPy's functions that make arrays are recorded where a traced function calls them.

    Other threads, and code of libraries, get NumPy's own.
    """
    global _DEPTH
    # The tables name NumPy's own functions.
    load_tables()
    with _LOCK:
        _DEPTH += 1
        if _DEPTH == 1:
            for (module, name), (body, always) in _REPLACED.items():
                original = _ORIGINALS[module, name] = getattr(module, name)
                setattr(module, name, _replacement(original, body, always))
            _ORIGINALS[np, "prod"] = np.prod
            np.prod = _product_replacement(np.prod)
    try:
        yield
    finally:
        with _LOCK:
            _DEPTH -= 1
            if not _DEPTH:
                for (module, name), original in _ORIGINALS.items():
                    setattr(module, name, original)
