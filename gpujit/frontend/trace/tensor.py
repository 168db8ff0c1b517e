"""Traced arrays: what a NumPy array has means what NumPy means by it, all other names are PyTorch's operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpujit.frontend.trace.numbers import TracedCount, TracedNumber
from gpujit.frontend.trace.numpy_calls import Call, attach, call_function, call_ufunc, store
from gpujit.frontend.trace.state import Traced
from gpujit.ops import table

# Methods of arrays that are functions of NumPy, too.
_METHODS: dict[str, Any] = {
    "all": np.all, "any": np.any, "argmax": np.argmax, "argmin": np.argmin, "argsort": np.argsort,
    "argpartition": np.argpartition, "choose": np.choose, "clip": np.clip, "compress": np.compress,
    "conj": np.conjugate, "conjugate": np.conjugate, "cumprod": np.cumprod, "cumsum": np.cumsum,
    "diagonal": np.diagonal, "dot": np.dot, "max": np.max, "mean": np.mean, "min": np.min, "nonzero": np.nonzero,
    "prod": np.prod, "ravel": np.ravel, "repeat": np.repeat, "round": np.round, "searchsorted": np.searchsorted,
    "squeeze": np.squeeze, "std": np.std, "sum": np.sum, "swapaxes": np.swapaxes, "take": np.take, "trace": np.trace,
    "var": np.var,
}  # fmt: skip
_TORCH_ONLY = ("dim", "keepdim")


class TracedTensor(Traced, np.lib.mixins.NDArrayOperatorsMixin):
    """An array of the graph."""

    __slots__ = ("_sizes",)

    def __init__(self, tracer: Any, concrete: Any, value: Any) -> None:
        super().__init__(tracer, concrete, value)
        self._sizes: tuple[Any, ...] | None = None

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return call_ufunc(self._tracer, ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return call_function(self._tracer, function, args, kwargs)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """NumPy, as that of a plain array; what it does with traced arrays is recorded."""
        return np

    # ------------------------------------------------------------------------------- what Python takes

    def _taken(self, kind: str, what: str) -> Any:
        self._tracer.check(self)
        self._tracer.lost(kind, what)
        return self._concrete

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self._taken("array", "an array"), dtype, copy=True)

    def __bool__(self) -> bool:
        return bool(self._taken("branch", "the truth of an array's element"))

    def __int__(self) -> int:
        return int(self._taken("number", "an int of an array's element"))

    def __float__(self) -> float:
        return float(self._taken("number", "a float of an array's element"))

    def __complex__(self) -> complex:
        return complex(self._taken("number", "a complex number of an array's element"))

    def __index__(self) -> int:
        from gpujit.frontend.trace.places import segment

        text = segment(self._tracer.places.here()[0])
        kind = "loop" if "range(" in text or text.lstrip().startswith("for ") else "number"
        return int(self._taken(kind, "an int of an array's element").__index__())

    def __len__(self) -> int:
        return len(self._taken("number", "the length of an array"))

    def __iter__(self) -> Iterator[Any]:
        if not self._concrete.ndim:
            raise TypeError("iteration over a 0-d array")
        self._taken("loop", "the rows of an array")
        return iter([self[i] for i in range(self._concrete.shape[0])])

    def __contains__(self, item: Any) -> bool:
        return bool((self == item).any())

    def item(self, *at: Any) -> Any:
        """The element as Python's number, which the trace holds as it is in this run."""
        return self._taken("number", "an array's element").item(*at)

    def tolist(self) -> Any:
        """The elements as Python's numbers, which the trace holds as they are in this run."""
        return self._taken("array", "a list").tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """The elements' bytes, which the trace holds as they are in this run."""
        return bytes(self._taken("array", "bytes").tobytes(order))

    def numpy(self) -> Any:
        """The array itself; what is done to it is recorded on."""
        return self

    def __repr__(self) -> str:
        return f"traced {self._concrete!r}"

    def __hash__(self) -> int:
        return id(self)

    # ----------------------------------------------------------------------------------- what it is

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes, which are ints of the graph."""
        self._tracer.check(self)
        if self._sizes is None:
            dims = range(self._concrete.ndim)
            self._sizes = tuple(self._tracer.call("aten::size", (self, d)) for d in dims)
        return self._sizes

    @property
    def size(self) -> Any:
        """The number of elements; ``x.size()`` and ``x.size(0)`` are PyTorch's."""
        count = self._tracer.call("aten::numel", (self,))
        found = TracedCount(self._tracer, count._concrete, count._value)
        found._owner = self
        return found

    @property
    def ndim(self) -> int:
        return int(self._concrete.ndim)

    def dim(self) -> int:
        return self.ndim

    @property
    def dtype(self) -> Any:
        return self._concrete.dtype

    @property
    def itemsize(self) -> int:
        return int(self._concrete.itemsize)

    @property
    def nbytes(self) -> Any:
        return self.size * self.itemsize

    @property
    def device(self) -> str:
        return "cpu"

    @property
    def T(self) -> Any:  # noqa: N802  # NumPy's name
        return np.transpose(self)

    @property
    def mT(self) -> Any:  # noqa: N802  # NumPy's name
        return np.swapaxes(self, -1, -2)

    @property
    def real(self) -> Any:
        return np.real(self)

    @real.setter
    def real(self, value: Any) -> None:
        np.real(self)[...] = value

    @property
    def imag(self) -> Any:
        return np.imag(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        np.imag(self)[...] = value

    @property
    def flat(self) -> Any:
        return iter(np.ravel(self))

    # ------------------------------------------------------------------------------ subscripts and writes

    def __getitem__(self, key: Any) -> Any:
        from gpujit.frontend.trace.index import get

        return get(Call(self._tracer, "indexing"), self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        from gpujit.frontend.trace.index import put

        put(Call(self._tracer, "assignment"), self, key, value)

    def fill(self, value: Any) -> None:
        """Set every element."""
        self[...] = value

    def sort(self, axis: int = -1, **options: Any) -> Any:
        """Sort in place, as NumPy; with ``dim`` or ``descending`` it is PyTorch's."""
        if {*options} & {"dim", "descending"}:
            return self._tracer.call("aten::sort", (self,), options)
        store(self._tracer, self, np.sort(self, axis=axis, **options))
        self._concrete.sort(axis=axis, **options)
        return None

    def itemset(self, *args: Any) -> None:
        self[tuple(args[:-1])] = args[-1]

    # ------------------------------------------------------------------------------------------- methods

    def astype(self, dtype: Any, order: Any = "K", casting: Any = "unsafe", subok: Any = True, copy: Any = True) -> Any:
        """The array in another dtype: a copy, unless ``copy`` is False and it has that dtype."""
        call = Call(self._tracer, "astype")
        call.expected = self._concrete.astype(dtype, order=order, casting=casting, copy=copy)
        return attach(call, call.cast(self, call.expected.dtype), call.expected, [self])

    def copy(self, order: Any = "C") -> Any:
        return np.copy(self)

    def __copy__(self) -> Any:
        return np.copy(self)

    def __deepcopy__(self, memo: Any) -> Any:
        return np.copy(self)

    def reshape(self, *shape: Any, order: str = "C", copy: Any = None) -> Any:
        wanted = shape[0] if len(shape) == 1 and not _is_size(shape[0]) else shape
        return np.reshape(self, wanted, order=order)  # type: ignore[call-overload]

    def transpose(self, *axes: Any) -> Any:
        if not axes or axes == (None,):
            return np.transpose(self)
        return np.transpose(self, axes[0] if len(axes) == 1 and not _is_size(axes[0]) else axes)

    def flatten(self, *args: Any, **kwargs: Any) -> Any:
        """A copy with one axis; with numbers it is PyTorch's ``flatten(start_dim, end_dim)``."""
        if any(not isinstance(a, str) for a in (*args, *kwargs.values())):
            return self._tracer.call("aten::flatten", (self, *args), kwargs)
        return np.copy(np.ravel(self, *args, **kwargs))

    def view(self, *args: Any) -> Any:
        """PyTorch's view with sizes; with a dtype the same bytes in it, as NumPy."""
        if len(args) == 1 and not _is_size(args[0]) and not isinstance(args[0], (tuple, list)):
            call = Call(self._tracer, "view")
            call.expected = self._concrete.view(args[0])
            from gpujit.frontend.trace.state import dtype_code

            return attach(call, call.op("view", self, dtype=dtype_code(call.expected.dtype)), call.expected, [self])
        sizes = list(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else list(args)
        return self._tracer.call("aten::view", (self, sizes))

    def ptp(self, axis: Any = None) -> Any:
        return np.ptp(self, axis=axis)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function = _METHODS.get(name)
        has_operator = bool(table.by_name(f"aten::{name}"))
        if function is None and not has_operator:
            raise AttributeError(f"a traced array has no attribute {name!r}: neither NumPy's arrays nor PyTorch have")

        def method(*args: Any, **kwargs: Any) -> Any:
            if function is None or (has_operator and any(k in kwargs for k in _TORCH_ONLY)):
                return self._tracer.call(f"aten::{name}", (self, *args), kwargs)
            return function(self, *args, **kwargs)

        method.__name__ = name
        return method


def _is_size(value: Any) -> bool:
    return isinstance(value, (int, np.integer, TracedNumber)) or (
        isinstance(value, TracedTensor) and not value._concrete.ndim
    )


def _inplace(name: str) -> Callable[[Any, Any], Any]:
    """An operator with assignment: arrays are written, NumPy's numbers are replaced, as in NumPy."""
    written = getattr(np.lib.mixins.NDArrayOperatorsMixin, f"__i{name}__")
    plain = getattr(np.lib.mixins.NDArrayOperatorsMixin, f"__{name}__")

    def method(self: Any, other: Any) -> Any:
        return plain(self, other) if isinstance(self._concrete, np.generic) else written(self, other)

    return method


for _name in (
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "xor", "or",
):  # fmt: skip
    setattr(TracedTensor, f"__i{_name}__", _inplace(_name))
