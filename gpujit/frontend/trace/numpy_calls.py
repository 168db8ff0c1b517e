"""Calls of NumPy: run by NumPy on this run's arrays, and recorded as operators that give the same numbers.

A table entry composes operators; what NumPy itself returned says which dtype and which memory the result has to have,
and the casts and copies that this takes are recorded. So NumPy decides promotion, not PyTorch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpujit.frontend.trace.numbers import TracedNumber
from gpujit.frontend.trace.state import Traced, Tracer, dtype_code, holds_traced, root
from gpujit.ir import types as T
from gpujit.ir.dtypes import is_tensor_dtype
from gpujit.support.errors import DTypeError, InternalError


class Call:
    """One call of a NumPy function: what its table entry records with. ``expected`` is what NumPy returned."""

    def __init__(self, tracer: Tracer, name: str, expected: Any = None) -> None:
        self.tracer = tracer
        self.name = name
        self.expected = expected

    @property
    def dtype(self) -> Any:
        """The dtype NumPy returned, of the first result."""
        found = self.expected[0] if isinstance(self.expected, (tuple, list)) else self.expected
        return found.dtype

    def op(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Record ``aten::name``. Raises TraceError for a dtype that NumPy takes and the operator does not."""
        try:
            return self.tracer.call(f"aten::{name}", args, kwargs)
        except DTypeError as error:
            raise self.refuse(error.message) from None

    def tensor(self, item: Any, dtype: Any = None) -> Any:
        """Anything as a traced tensor, cast to ``dtype`` when given."""
        if isinstance(item, TracedNumber):
            found = self.tracer.call("prim::NumToTensor", (item,))
            return self.cast(found, np.asarray(item._concrete).dtype if dtype is None else dtype)
        if isinstance(item, Traced):
            return item if dtype is None else self.cast(item, dtype)
        if isinstance(item, (list, tuple)) and holds_traced(item):
            # As NumPy makes an array of nested lists.
            return self.cast(
                self.nested(item), np.asarray(self.tracer.concrete(item)).dtype if dtype is None else dtype
            )
        array = np.asarray(item)
        silent = not isinstance(item, np.ndarray)
        if silent and dtype is not None:
            array, dtype = array.astype(dtype), None
        found = self.tracer.wrap(array, self.tracer.array(array, silent=silent), T.TENSOR)
        return found if dtype is None else self.cast(found, dtype)

    def nested(self, item: Any) -> Any:
        """A traced tensor of nested lists."""
        if not isinstance(item, (list, tuple)):
            return self.tensor(item)
        parts = [self.nested(v) for v in item]
        dtype = np.result_type(*(p._concrete.dtype for p in parts))
        return self.op("stack", [self.cast(p, dtype) for p in parts], 0)

    def cast(self, x: Any, dtype: Any) -> Any:
        """A tensor of another dtype; itself when it has it already."""
        if x._concrete.dtype == np.dtype(dtype):
            return x
        if not is_tensor_dtype(np.dtype(dtype)):
            raise self.tracer.error(f"{self.name}: a tensor cannot have the dtype {np.dtype(dtype)}")
        return self.op("to", x, dtype_code(dtype))

    def refuse(self, what: str) -> Exception:
        """The error for something that has no counterpart among the operators."""
        return self.tracer.error(f"{self.name} cannot be traced: {what}")


Body = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """What records a function. ``raw`` bodies see to everything themselves, NumPy's result included."""

    body: Body
    signature: inspect.Signature
    raw: bool = False


FUNCTIONS: dict[Any, Entry] = {}


def records(*functions: Any, raw: bool = False) -> Callable[[Body], Body]:
    """Declare what records NumPy functions. Parameters are named and ordered as NumPy's, after a ``Call``."""

    def declare(body: Body) -> Body:
        for function in functions:
            FUNCTIONS[function] = Entry(body, inspect.signature(body), raw)
        return body

    return declare


def since_numpy(name: str) -> list[Any]:
    """A function that is newer than the oldest NumPy that is supported, if it is there."""
    return [getattr(np, name)] if hasattr(np, name) else []


def load_tables() -> None:
    """Enter all table files."""
    from gpujit.frontend.trace import (  # noqa: F401  # imported for what they declare
        numpy_create,
        numpy_linalg,
        numpy_reduce,
        numpy_search,
        numpy_shape,
        numpy_statistics,
    )


def traced_in(item: Any) -> list[Any]:
    """The traced tensors in nested lists, tuples and dicts."""
    if isinstance(item, Traced):
        return [] if isinstance(item, TracedNumber) else [item]
    if isinstance(item, dict):
        item = list(item.values())
    return [t for v in item for t in traced_in(v)] if isinstance(item, (list, tuple)) else []


def name_of(function: Any) -> str:
    """``numpy.linalg.norm``."""
    return f"{getattr(function, '__module__', 'numpy')}.{getattr(function, '__name__', function)}"


def call_function(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    """What ``__array_function__`` does."""
    load_tables()
    call = Call(tracer, name_of(function))
    entry = FUNCTIONS.get(function)
    if entry is None:
        raise tracer.error(
            f"{call.name} cannot be traced; compose it of functions that can (docs/tracing.md lists them), "
            "or compute it outside of the traced function"
        )
    if entry.raw:
        return entry.body(call, *args, **kwargs)
    try:
        bound = entry.signature.bind(call, *args, **kwargs)
    except TypeError as error:
        raise call.refuse(str(error)) from None
    out = bound.arguments.pop("out", None)
    plain_args, plain_kwargs = tracer.concrete(list(bound.args[1:])), tracer.concrete(dict(bound.kwargs))
    call.expected = function(*plain_args, **plain_kwargs)
    result = attach(call, entry.body(*bound.args, **bound.kwargs), call.expected, traced_in([args, kwargs]))
    if out is None:
        return result
    into(tracer, out, result)
    # For NumPy's own word on whether the result may be cast to what ``out`` has.
    function(*plain_args, **plain_kwargs, out=tracer.concrete(out))
    return out


def into(tracer: Tracer, out: Any, result: Any) -> None:
    """Record a write of the whole result into ``out``; NumPy has still to write it."""
    if not isinstance(out, Traced):
        raise tracer.error("out= is an array that is no part of the trace; make it inside the traced function")
    store(tracer, out, result)


def store(tracer: Tracer, target: Any, source: Any) -> None:
    """Record ``target[...] = source``; NumPy's own write is the caller's business."""
    source = (
        source
        if isinstance(source, Traced) and not isinstance(source, TracedNumber)
        else Call(tracer, "assignment").tensor(source, target._concrete.dtype)
    )
    from gpujit.ops import table

    op = table.by_full_name("aten::copy_")
    if op is None:
        raise InternalError("tracing needs the operator aten::copy_")
    node = tracer.node("aten::copy_", [tracer.value(target), tracer.value(source), tracer.scalar(False)])
    node.schema = op.schema
    node.add_output(T.TENSOR)
    tracer.wrote(target)


def attach(call: Call, got: Any, expected: Any, sources: list[Any]) -> Any:
    """What the function sees: the recorded value, made to agree with NumPy's result in dtype and memory."""
    if isinstance(expected, (tuple, list)):
        items = [attach(call, g, e, sources) for g, e in zip(got, expected, strict=True)]
        if isinstance(expected, tuple):
            return expected._make(items) if hasattr(expected, "_make") else tuple(items)
        return items
    if not isinstance(expected, (np.ndarray, np.generic)):
        return got
    tracer = call.tracer
    if not is_tensor_dtype(expected.dtype):
        raise call.refuse(f"its result has the dtype {expected.dtype}, which tensors cannot have")
    got = call.cast(call.tensor(got), expected.dtype)
    if got._concrete.shape != expected.shape:
        raise InternalError(f"{call.name} was recorded with shape {got._concrete.shape}, NumPy has {expected.shape}")
    bases = {id(root(s._concrete)) for s in sources}
    if isinstance(expected, np.generic):
        if id(root(got._concrete)) in bases:
            got = tracer.protect(got, expected)
        return tracer._tensor(tracer, expected, got._value)
    shares = id(root(expected)) in bases
    if not shares and id(root(got._concrete)) in bases:
        got = tracer.protect(got, expected)
    result = tracer._tensor(tracer, expected, got._value)
    if shares and id(root(got._concrete)) != id(root(expected)) and expected.size:
        tracer.detach(result, root(expected))
    return result


def call_ufunc(tracer: Tracer, ufunc: Any, method: str, inputs: Any, kwargs: dict[str, Any]) -> Any:
    """What ``__array_ufunc__`` does."""
    from gpujit.frontend.trace.numpy_ufuncs import METHODS, UFUNCS, compose

    call = Call(tracer, f"numpy.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}"))
    if method != "__call__":
        load_tables()
        found = METHODS.get(method)
        if found is None:
            raise call.refuse("this method of ufuncs has no counterpart among the operators")
        return found(call, ufunc, *inputs, **kwargs)
    if ufunc not in UFUNCS:
        raise call.refuse("no operator does that")
    kwargs = dict(kwargs)
    outs, where = kwargs.pop("out", None), kwargs.pop("where", True)
    plain = tracer.concrete(list(inputs))
    options = {k: v for k, v in kwargs.items() if k in ("dtype", "signature", "axis", "axes", "keepdims")}
    extra = tracer.concrete(options)
    call.expected = ufunc(*plain, **extra)
    got = compose(call, ufunc, inputs, options)
    result = attach(call, got, call.expected, traced_in(list(inputs)))
    if where is not True:
        if outs is None:
            raise call.refuse("where= without out= leaves elements unset; use numpy.where")
        result = call.op("where", call.tensor(where), result, call.cast(outs[0], result._concrete.dtype))
    if outs is None:
        return result
    results = result if isinstance(result, tuple) else (result,)
    for out, one in zip(outs, results, strict=True):
        if out is not None:
            into(tracer, out, one)
    ufunc(*plain, **extra, **tracer.concrete({"out": outs, "where": where}))
    kept = tuple(one if out is None else out for out, one in zip(outs, results, strict=True))
    return kept if len(kept) > 1 else kept[0]
