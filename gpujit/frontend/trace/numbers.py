"""Numbers the graph knows: sizes of arrays and what is computed from them.

They are no subclasses of int, float and bool: where Python takes the number itself (``range(n)``, ``if n > 3``), one of
``__index__``, ``__bool__``, ``__int__`` and ``__float__`` is called, and the place is listed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.frontend.trace.places import segment
from gpujit.frontend.trace.state import Traced

_PLAIN = (bool, int, float)


class TracedNumber(Traced):
    """Arithmetic that is recorded. Arrays and NumPy's numbers take over as they do with Python's."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from gpujit.frontend.trace.numpy_calls import call_ufunc

        return call_ufunc(self._tracer, ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from gpujit.frontend.trace.numpy_calls import call_function

        return call_function(self._tracer, function, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        self._taken("number", "a number")
        return np.asarray(self._concrete, dtype)

    def _taken(self, kind: str, what: str) -> Any:
        """Python takes the number; the place is listed."""
        tracer = self._tracer
        tracer.check(self)
        tracer.lost(kind, f"{what}, here {self._concrete}")
        return self._concrete

    def __neg__(self) -> Any:
        return self._tracer.call("aten::neg", (_arithmetic(self),))

    def __pos__(self) -> Any:
        return _arithmetic(self)

    def __abs__(self) -> Any:
        return self._tracer.call("prim::abs", (_arithmetic(self),))

    def __bool__(self) -> bool:
        return bool(self._taken("branch", f"the truth of {_A[type(self._concrete)]}"))

    def __int__(self) -> int:
        return int(self._taken("number", "an int"))

    def __float__(self) -> float:
        return float(self._taken("number", "a float"))

    def __complex__(self) -> complex:
        return complex(self._taken("number", "a complex number"))

    def __hash__(self) -> int:
        return hash(self._taken("number", "a key"))

    def __repr__(self) -> str:
        return repr(self._concrete)

    def __format__(self, spec: str) -> str:
        return format(self._concrete, spec)

    def __trunc__(self) -> Any:
        return self._tracer.call("aten::Int", (self,))

    def __floor__(self) -> Any:
        return self._tracer.call("aten::floor", (self,)) if isinstance(self, TracedFloat) else self

    def __ceil__(self) -> Any:
        return self._tracer.call("aten::ceil", (self,)) if isinstance(self, TracedFloat) else self

    def __round__(self, digits: Any = None) -> Any:
        if isinstance(self, TracedFloat):
            if digits is None:
                return self._tracer.call("aten::Int", (self._tracer.call("aten::round", (self,)),))
            return round(self.__float__(), digits)
        return self


class TracedInt(TracedNumber):
    """An int of the graph, such as a size."""

    __slots__ = ()

    def __index__(self) -> int:
        place, _ = self._tracer.places.here()
        looping = "range(" in segment(place) or segment(place).lstrip().startswith("for ")
        return int(self._taken("loop" if looping else "number", "an int"))


class TracedFloat(TracedNumber):
    """A float of the graph."""

    __slots__ = ()

    def is_integer(self) -> bool:
        return float(self).is_integer()


class TracedBool(TracedNumber):
    """A bool of the graph."""

    __slots__ = ()

    def __index__(self) -> int:
        return int(self._taken("number", "a bool"))


class TracedCount(TracedInt):
    """NumPy's ``x.size``, the number of elements; called, it is PyTorch's ``x.size()``."""

    __slots__ = ("_owner",)
    _owner: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not args and not kwargs:
            return self._owner.shape
        return self._tracer.call("aten::size", (self._owner, *args), kwargs)


NUMBERS: dict[type, type[TracedNumber]] = {int: TracedInt, float: TracedFloat, bool: TracedBool}
_A = {int: "an int", float: "a float", bool: "a comparison"}


def _power(tracer: Any, a: Any, b: Any, result: Any) -> Any:
    found = tracer.call("aten::pow", (a, b))
    # The operator gives a float for two ints.
    return tracer.call("aten::Int", (found,)) if type(result) is int and type(found._concrete) is float else found


def _named(name: str) -> Callable[[Any, Any, Any, Any], Any]:
    return lambda tracer, a, b, result: tracer.call(name, (a, b))


_BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any, Any, Any], Any]]] = {
    "add": (operator.add, _named("aten::add")),
    "sub": (operator.sub, _named("aten::sub")),
    "mul": (operator.mul, _named("aten::mul")),
    "truediv": (operator.truediv, _named("aten::div")),
    "floordiv": (operator.floordiv, _named("aten::floordiv")),
    "mod": (operator.mod, _named("aten::remainder")),
    "pow": (operator.pow, _power),
    "and": (operator.and_, _named("aten::__and__")),
    "or": (operator.or_, _named("aten::__or__")),
    "xor": (operator.xor, _named("aten::__xor__")),
    "lshift": (operator.lshift, _named("aten::__lshift__")),
    "rshift": (operator.rshift, _named("aten::__rshift__")),
    "lt": (operator.lt, _named("aten::lt")),
    "le": (operator.le, _named("aten::le")),
    "gt": (operator.gt, _named("aten::gt")),
    "ge": (operator.ge, _named("aten::ge")),
    "eq": (operator.eq, _named("aten::eq")),
    "ne": (operator.ne, _named("aten::ne")),
}
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def _arithmetic(value: Any) -> Any:
    """A bool as the int that arithmetic makes of it."""
    if isinstance(value, TracedBool):
        return value._tracer.call("aten::Int", (value,))
    return int(value) if isinstance(value, bool) else value


def _operator(name: str, swapped: bool) -> Callable[[Any, Any], Any]:
    python, record = _BINARY[name]
    logical = name in ("and", "or", "xor", "eq", "ne")

    def method(self: TracedNumber, other: Any) -> Any:
        if not isinstance(other, TracedNumber) and type(other) not in _PLAIN:
            return NotImplemented
        tracer = self._tracer
        a, b = (other, self) if swapped else (self, other)
        x, y = tracer.concrete(a), tracer.concrete(b)
        result = python(x, y)
        both = type(x) is bool and type(y) is bool
        if not (logical and both):
            a, b = _arithmetic(a), _arithmetic(b)
        return record(tracer, a, b, result)

    method.__name__ = f"__{'r' if swapped else ''}{name}__"
    return method


for _name in _BINARY:
    setattr(TracedNumber, f"__{_name}__", _operator(_name, False))
    if _name not in _COMPARISONS:
        setattr(TracedNumber, f"__r{_name}__", _operator(_name, True))
