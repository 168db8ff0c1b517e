"""What stands for an array while a NumPy function is traced: it takes ufuncs, functions and methods of arrays.

Dtypes are NumPy's own affair here (``ufunc.resolve_dtypes``, ``result_type``); PyTorch's promotion has no part in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gpujit.fuser.numpy_steps import Step
from gpujit.ir import scalar
from gpujit.ir.dtypes import FLOAT32, FLOAT64, HALF_TYPES, INT64, is_tensor_dtype, kind_of
from gpujit.ir.recorded import Recorded
from gpujit.ir.recorder import Recorder
from gpujit.ir.scalar import Expr, RecordError

# Of a Python number the type alone takes part in promotion.
_WEAK = {int: INT64, float: FLOAT64}
_DEGREE = np.pi / 180
# What leaves whole numbers as they are (and, of bools, their absolute value).
_WHOLE = ("floor", "ceil", "trunc")


def _refuse(what: str) -> NoReturn:
    raise RecordError(f"{what} cannot be a part of a kernel; move it out of the function")


class Traced(NDArrayOperatorsMixin):
    """An array, or a Python number (``weak`` is its type), known by the step that makes it."""

    __slots__ = ("is_argument", "step", "weak")
    __array_priority__ = 1000

    def __init__(self, step: Step, weak: type | None = None, is_argument: bool = False) -> None:
        self.step, self.weak, self.is_argument = step, weak, is_argument

    def __repr__(self) -> str:
        return f"<traced {self.dtype}{list(self.shape)}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes, as numbers: other shapes are traced again."""
        return self.step.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of its elements."""
        return self.step.dtype

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def real(self) -> Traced:
        """Itself: complex numbers are refused."""
        return self

    # What a kernel cannot know.

    def __bool__(self) -> bool:
        raise RecordError("a decision by an element (if, while, and, or, not) is not fused; choose with np.where")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Any:
        _refuse("a loop over an array")

    def __int__(self) -> int:
        _refuse("the value of an element")

    __index__ = __int__

    def __float__(self) -> float:
        _refuse("the value of an element")

    def __array__(self, *args: Any, **options: Any) -> Any:
        _refuse("a function that needs the array's values")

    def __getitem__(self, key: Any) -> Any:
        _refuse("a part of an array")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"'{name}' of an array")

    # Writing: into what the function made itself, which nobody else sees.

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is not Ellipsis and key != slice(None):
            _refuse("writing a part of an array")
        self._assign(_traced(value), "unsafe")

    def _assign(self, value: Traced, casting: str = "same_kind") -> Traced:
        if self.is_argument:
            raise RecordError("it writes into an argument (`x += y`); write `x = x + y` and return that")
        if value.weak is None and not np.can_cast(value.dtype, self.dtype, casting):  # type: ignore[arg-type]
            raise TypeError(f"cannot cast the result from {value.dtype} to {self.dtype} with casting rule {casting!r}")
        if np.broadcast_shapes(value.shape, self.shape) != self.shape:
            raise ValueError(f"a result of shape {list(value.shape)} cannot be written into {list(self.shape)}")
        self.step = Step(self.shape, self.dtype, (value.step,), lambda xs: (xs[0], ()))
        return self

    # NumPy's protocols.

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", None)
        if method == "reduce":
            name = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}.get(ufunc.__name__)
            name = {"logical_and": "all", "logical_or": "any"}.get(ufunc.__name__, name)
            if name is None:
                _refuse(f"np.{ufunc.__name__}.reduce")
            options.setdefault("axis", 0)
            found: Any = reduced(name, *inputs, **options)
        elif method != "__call__":
            _refuse(f"np.{ufunc.__name__}.{method}")
        else:
            found = called(ufunc, inputs, options)
        if out is None:
            return found
        if len(out) != 1 or not isinstance(out[0], Traced):
            _refuse("an out= array that is no argument")
        return out[0]._assign(found)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        known = _FUNCTIONS.get(function)
        if known is None:
            _refuse(f"np.{function.__name__}")
        return known(*args, **options)

    # Methods of arrays.

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Traced:
        """The same numbers in another dtype."""
        return _cast(self, np.dtype(dtype))

    def copy(self, order: str = "C") -> Traced:
        """An array of its own."""
        return Traced(self.step)

    def clip(self, *args: Any, **options: Any) -> Traced:
        """As np.clip."""
        return clip(self, *args, **options)

    def round(self, decimals: int = 0) -> Traced:
        """As np.round."""
        return around(self, decimals)

    def conj(self) -> Traced:
        """Itself."""
        return self

    conjugate = conj


def _method(name: str) -> Callable[..., Any]:
    def method(self: Traced, *args: Any, **options: Any) -> Any:
        return reduced(name, self, *args, **options)

    method.__name__ = name
    method.__doc__ = f"As np.{name}."
    return method


# ------------------------------------------------------------------------------------------------ element by element


def _traced(x: Any) -> Traced:
    """A number as a constant, a traced array as it is."""
    if isinstance(x, Traced):
        return x
    if type(x) in _WEAK:
        dtype = _WEAK[type(x)]
        if type(x) is int and not -(1 << 63) <= x < 1 << 63:
            _refuse(f"the number {x}, which is no int64,")
        number = scalar.const(x, dtype)
        return Traced(Step((), dtype, (), lambda xs: (number, ())), type(x))
    found = np.asarray(x)
    if found.ndim or isinstance(x, np.ndarray) or not known_dtype(found.dtype):
        _refuse(f"{type(x).__name__} {found.dtype}{list(found.shape)}, which is no argument,")
    value = scalar.const(found.item(), found.dtype)
    return Traced(Step((), found.dtype, (), lambda xs: (value, ())))


def known_dtype(dtype: np.dtype) -> bool:
    """Whether kernels know a dtype."""
    return dtype.isnative and is_tensor_dtype(dtype) and kind_of(dtype) != 3


def _cast(x: Traced, dtype: np.dtype) -> Traced:
    if not known_dtype(dtype):
        _refuse(f"{dtype}")
    return Traced(Step(x.shape, dtype, (x.step,), lambda xs: (xs[0], ())))


def called(ufunc: Any, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """A ufunc of traced arrays and numbers, in the dtypes in which NumPy computes it."""
    if ufunc is np.divmod:
        return called(np.floor_divide, inputs, options), called(np.remainder, inputs, options)
    dtype = options.get("dtype")
    if any(v is not None for k, v in options.items() if k not in ("dtype", "casting", "order", "subok")):
        _refuse(f"np.{ufunc.__name__} with {', '.join(options)}")
    if ufunc.nout != 1 or ufunc.signature is not None:
        _refuse(f"np.{ufunc.__name__}")
    operands = [_traced(x) for x in inputs]
    kinds = [x.weak or x.dtype for x in operands]
    asked = {} if dtype is None else {"signature": (None,) * ufunc.nin + (np.dtype(dtype),)}
    loop = ufunc.resolve_dtypes((*kinds, None), **asked)
    if not all(map(known_dtype, loop)):
        _refuse(f"np.{ufunc.__name__} in {loop[-1]}")
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    exponent = inputs[1] if ufunc in (np.power, np.float_power) and type(inputs[1]) in _WEAK else None

    def make(xs: Sequence[Expr]) -> tuple[Expr, Sequence[tuple[Expr, str]]]:
        m = Recorder()
        values: list[Any] = []
        for x, kind in zip(xs, loop, strict=False):
            x = scalar.cast(x, kind)
            values.append(Recorded(scalar.cast(x, FLOAT32) if kind in HALF_TYPES else x))
        if exponent is not None and kind_of(loop[0]) == 2:
            values[1] = exponent
        return _applied(m, ufunc, values).expr, m.checks

    # All numbers: a number comes out.
    weak = {2: float, 1: int}.get(kind_of(loop[-1])) if all(x.weak for x in operands) else None
    return Traced(Step(shape, loop[-1], tuple(x.step for x in operands), make), weak)


def _applied(m: Recorder, ufunc: Any, values: list[Any]) -> Any:
    name = ufunc.__name__
    if name in ("deg2rad", "radians"):
        return values[0] * _DEGREE
    if name in ("rad2deg", "degrees"):
        return values[0] * (1 / _DEGREE)
    if name == "positive" or (name in _WHOLE and kind_of(values[0].dtype) < 2):
        return values[0]
    if name == "reciprocal" and kind_of(values[0].dtype) < 2:
        _refuse("np.reciprocal of integers")
    if name == "absolute" and kind_of(values[0].dtype) == 0:
        return values[0]
    if name in ("reciprocal", "square", "sign", "logical_not", "conjugate"):
        return getattr(m, name)(*values)
    if name in ("power", "float_power"):
        base = values[0]
        if kind_of(base.dtype) == 1 and base.dtype.kind == "i":
            m.check(values[1] >= 0, "Integers to negative integer powers are not allowed.")
        return m.power(*values)
    try:
        return getattr(m, name)(*values)
    except RecordError:
        _refuse(f"np.{name} of {', '.join(str(getattr(x, 'dtype', x)) for x in values)}")


def where(condition: Any, *choices: Any) -> Traced:
    """As np.where with three arguments."""
    if len(choices) != 2:
        _refuse("np.where with one argument")
    c, a, b = (_traced(x) for x in (condition, *choices))
    dtype = np.result_type(*(x.weak(0) if x.weak else x.dtype for x in (a, b)))
    if not known_dtype(dtype):
        _refuse(f"np.where giving {dtype}")
    shape = np.broadcast_shapes(c.shape, a.shape, b.shape)

    def make(xs: Sequence[Expr]) -> tuple[Expr, Sequence[tuple[Expr, str]]]:
        chosen = scalar.where(scalar.cast(xs[0], np.dtype(bool)), scalar.cast(xs[1], dtype), scalar.cast(xs[2], dtype))
        return chosen, ()

    return Traced(Step(shape, dtype, (c.step, a.step, b.step), make))


def clip(x: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **options: Any) -> Traced:
    """As np.clip."""
    low, high = options.pop("min", a_min), options.pop("max", a_max)
    found = x if low is None else np.maximum(x, low, **options)
    found = found if high is None else np.minimum(found, high, **options)
    found = _traced(found)
    return found if out is None else out._assign(found)


def around(x: Any, decimals: int = 0, out: Any = None) -> Traced:
    """As np.round to whole numbers."""
    if decimals:
        _refuse("np.round to decimals")
    x = _traced(x)
    found = Traced(x.step) if kind_of(x.dtype) < 2 else _traced(np.rint(x))
    return found if out is None else out._assign(found)


def _full_like(
    x: Any, value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
) -> Traced:
    if shape is not None:
        _refuse("np.full_like with a shape")
    x, v = _traced(x), _traced(value)
    wanted = x.dtype if dtype is None else np.dtype(dtype)
    if not known_dtype(wanted):
        _refuse(f"{wanted}")
    return Traced(Step(x.shape, wanted, (v.step,), lambda xs: (xs[0], ())))


# ------------------------------------------------------------------------------------------------ over axes


def reduced(
    name: str, x: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **options: Any
) -> Any:
    """A reduction of a traced array along axes: sum, prod, max, min, any, all, argmax, argmin, mean, var, std."""
    x = _traced(x)
    ddof = options.pop("ddof", options.pop("correction", 0))
    odd = [k for k, v in options.items() if v is not np._NoValue and not (k == "where" and v is True)]
    if odd:
        _refuse(f"np.{name} with {', '.join(odd)}")
    keepdims = keepdims is not np._NoValue and bool(keepdims)
    axes = _axes(axis, x.ndim)
    if name in ("argmax", "argmin") and axis is not None and len(axes) != 1:
        raise TypeError(f"np.{name} takes one axis")
    count = prod(x.shape[d] for d in axes)
    if name in ("max", "min", "argmax", "argmin") and not count:
        raise ValueError(f"np.{name} of no elements has no answer")
    accumulator, result = _reduction_dtypes(name, x.dtype, dtype)
    if not known_dtype(accumulator) or not known_dtype(result):
        _refuse(f"np.{name} in {result}")
    shape = tuple(1 if d in axes else n for d, n in enumerate(x.shape) if keepdims or d not in axes)

    def make(xs: Sequence[Expr]) -> tuple[Expr, Sequence[tuple[Expr, str]]]:
        return _row(name, scalar.cast(xs[0], accumulator), ddof), ()

    if axes:
        found = Traced(Step(shape, result, (x.step,), make, axes=axes, keepdims=keepdims))
    elif name in ("argmax", "argmin"):
        found = Traced(_traced(np.int64(0)).step)
    elif name in ("var", "std"):
        _refuse(f"np.{name} of a number")
    else:
        found = _cast(x, result)
    return found if out is None else out._assign(found)


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    return tuple(sorted(np.lib.array_utils.normalize_axis_tuple(axis, ndim)))


def _reduction_dtypes(name: str, of: np.dtype, asked: Any) -> tuple[np.dtype, np.dtype]:
    """The dtype a reduction computes in, and that of its result, as NumPy chooses them."""
    if name in ("any", "all"):
        return np.dtype(bool), np.dtype(bool)
    if name in ("argmax", "argmin"):
        return (FLOAT32 if of in HALF_TYPES else of), INT64
    if name in ("max", "min"):
        return (FLOAT32 if of in HALF_TYPES else of), of
    if asked is not None:
        result = np.dtype(asked)
    elif name in ("sum", "prod"):
        result = of
        if of.kind in "bi" and of.itemsize < 8:
            result = INT64
        elif of.kind == "u":
            result = np.dtype(np.uint64)
    else:
        result = FLOAT64 if kind_of(of) < 2 else of
    return (FLOAT32 if result in HALF_TYPES else result), result


def _row(name: str, x: Expr, ddof: Any) -> Expr:
    if name in ("mean", "var", "std"):
        n = Expr("count", (), x.dtype)
        mean = scalar.apply("div", scalar.reduce("sum", x), n)
        if name == "mean":
            return mean
        from_mean = scalar.apply("sub", x, mean)
        total = scalar.reduce("sum", scalar.apply("mul", from_mean, from_mean))
        n = scalar.apply("sub", n, scalar.const(ddof, x.dtype)) if ddof else n
        found = scalar.apply("div", total, n)
        return scalar.apply("sqrt", found) if name == "std" else found
    return scalar.reduce(name, x)


_REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "mean", "var", "std")
for _name in _REDUCTIONS:
    setattr(Traced, _name, _method(_name))


def _function(name: str) -> Callable[..., Any]:
    return lambda x, *args, **options: reduced(name, x, *args, **options)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {getattr(np, name): _function(name) for name in _REDUCTIONS}
_FUNCTIONS |= {np.amax: _FUNCTIONS[np.max], np.amin: _FUNCTIONS[np.min]}
_FUNCTIONS |= {
    np.where: where,
    np.clip: clip,
    np.round: around,
    np.around: around,
    np.full_like: _full_like,
    np.zeros_like: lambda x, *args, **options: _full_like(x, 0, *args, **options),
    np.ones_like: lambda x, *args, **options: _full_like(x, 1, *args, **options),
    np.empty_like: lambda x, *args, **options: _full_like(x, 0, *args, **options),
    np.copy: lambda x, *args, **options: Traced(x.step),
    np.real: lambda x: x,
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x: x.size,
}
