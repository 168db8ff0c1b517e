"""Runs tile programs in plain NumPy: the oracle for compiled kernels, and a place to watch one work.

``run`` computes each instruction for all points at once; ``reference_tiles`` goes tile by tile, as compiled kernels do.
Sums and products of floats are taken in float64 and rounded once, so a compiled kernel is compared with the right
answer rather than with another order of rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BOOL_, kind_of
from gpujit.kernels.index import DIM, PARAM, SIZE, VALUE, Index
from gpujit.kernels.tile import (
    Call,
    Check,
    Compute,
    Const,
    Count,
    Effect,
    Inside,
    Instruction,
    Load,
    Position,
    Reduce,
    Store,
    TileError,
    TileProgram,
)
from gpujit.support.errors import OpError

# Functions of Call instructions, by name.
Functions = Callable[[str], Callable[..., Any]]
# Called with the number of an instruction and its result, after each.
Watch = Callable[[int, Any], None]


def no_functions(name: str) -> Callable[..., Any]:
    raise TileError(f"tile: no function {name!r} was given to the reference renderer")


def run(
    program: TileProgram,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    sizes: Sequence[int],
    params: Sequence[int] = (),
    functions: Functions = no_functions,
    watch: Watch | None = None,
) -> None:
    """Run the program on whole arrays; results go into ``outputs``.

    Raises OpError with the message of a check that fails, and TileError: arrays that are not what the program says, an
    index out of range, an empty row where its reduction has no answer.
    """
    state = State(program, inputs, outputs, sizes, params, functions)
    points = Points(tuple(0 for _ in sizes), tuple(sizes), tuple(sizes))
    with np.errstate(all="ignore"):
        values: dict[int, Any] = {}
        for number, item in enumerate(program.body):
            values[number] = state.compute(item, values, points)
            if watch is not None:
                watch(number, values[number])
        for effect in program.effects:
            state.perform(effect, values, points)


class Points:
    """A box of the iteration space: its first place, its lengths, and the sizes of the space.

    Along dims where it hangs over the edge, the places beyond it are not ``inside``.
    """

    def __init__(self, first: Sequence[int], lengths: Sequence[int], sizes: Sequence[int]) -> None:
        self.shape = tuple(lengths)
        self.grid: dict[int, Any] = {}
        self.inside: Any = True
        for d, (start, n) in enumerate(zip(first, lengths, strict=True)):
            at = np.arange(start, start + n).reshape((-1,) + (1,) * (len(lengths) - d - 1))
            self.grid[d] = at
            if start + n > sizes[d]:
                self.inside = self.inside & (at < sizes[d])


class State:
    """A call under way: the program and what it was called with."""

    def __init__(
        self,
        program: TileProgram,
        inputs: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        sizes: Sequence[int],
        params: Sequence[int],
        functions: Functions,
    ) -> None:
        for word, arrays, types in (("input", inputs, program.inputs), ("output", outputs, program.outputs)):
            found = [(a.dtype, a.ndim) for a in arrays]
            if found != [(t.dtype, t.rank) for t in types]:
                raise TileError(f"tile: {word}s are {found}, the program takes {list(types)}")
        if (len(sizes), len(params)) != (program.dims, program.params):
            raise TileError(
                f"tile: {len(sizes)} sizes and {len(params)} params, the program has {program.dims} dims and "
                f"{program.params} params"
            )
        self.program, self.inputs, self.outputs, self.functions = program, inputs, outputs, functions
        self.sizes = tuple(sizes)
        self.known: Mapping[tuple[str, Any], Any] = {(SIZE, k): n for k, n in enumerate(sizes)} | {
            (PARAM, k): n for k, n in enumerate(params)
        }

    def index(self, i: Index, values: Mapping[int, Any], points: Points) -> Any:
        """The numbers an index stands for at these points."""
        here = {(DIM, d): at for d, at in points.grid.items()}
        read = {(VALUE, v): values[v].astype(np.int64) for v in i.values()}
        return i.evaluate({**self.known, **here, **read})

    def places(self, item: Load | Store, values: Mapping[int, Any], points: Points, used: Any) -> tuple[Any, ...]:
        """Indexes into the array, 0 where nothing is used. Raises TileError for one out of range that is used."""
        array = (self.outputs if isinstance(item, Store) else self.inputs)[item.array]
        found = []
        for d, (i, n) in enumerate(zip(item.coords, array.shape, strict=True)):
            at = np.asarray(self.index(i, values, points))
            wrong = used & ((at < 0) | (at >= n)) & np.ones(points.shape, bool)
            if wrong.any():
                worst = np.broadcast_to(at, wrong.shape)[wrong][0]
                raise TileError(f"tile: {i} is {worst} in dim {d} of an array of shape {array.shape}, in {item}")
            found.append(np.where((at < 0) | (at >= n), 0, at))
        return tuple(found)

    def compute(self, item: Instruction, values: Mapping[int, Any], points: Points) -> Any:
        """The result of one instruction at these points, broadcastable to their shape."""
        program = self.program
        if isinstance(item, Load):
            used = points.inside if item.mask is None else points.inside & values[item.mask]
            array = self.inputs[item.array]
            at = self.places(item, values, points, used)
            if not array.size:
                # Nothing of it is used, or places would have failed.
                loaded: Any = np.zeros((1,) * len(points.shape), array.dtype)
            else:
                loaded = array[at] if at else array[()]
            if item.mask is None or item.other is None:
                return np.asarray(loaded)
            return np.where(values[item.mask], loaded, np.asarray(item.other.value, item.dtype))
        if isinstance(item, Const):
            return np.asarray(item.value, dtype=item.dtype)
        if isinstance(item, Count):
            return np.asarray(math.prod(self.sizes[d] for d in program.row_dims)).astype(item.dtype)
        if isinstance(item, Position):
            return np.asarray(self.index(item.index, values, points), dtype=np.int64)
        if isinstance(item, Inside):
            inside: Any = np.True_
            for b in item.bounds:
                low, at, high = (self.index(i, values, points) for i in (b.low, b.index, b.high))
                inside = inside & np.asarray((low <= at) & (at < high))
            return np.asarray(inside)
        if isinstance(item, Reduce):
            return reduce_row(item, values[item.operand], points.shape, program.rows)
        operands = [values[v] for v in item.operands]
        if isinstance(item, Call):
            return np.asarray(self.functions(item.name)(*operands)).astype(item.dtype)
        return compute(item, operands)

    def perform(self, effect: Effect, values: Mapping[int, Any], points: Points) -> None:
        """Store or check at these points."""
        if isinstance(effect, Check):
            if not (values[effect.value] | ~np.asarray(points.inside) | np.zeros(points.shape, bool)).all():
                raise OpError(effect.message)
            return
        used = points.inside if effect.mask is None else points.inside & values[effect.mask]
        at = self.places(effect, values, points, used)
        dims = frozenset().union(*(i.dims() for i in effect.coords))
        # A value for each row is stored once: the box is one place long along row dims.
        rows = self.program.row_dims
        shape = tuple(n if d not in rows or dims & set(rows) else 1 for d, n in enumerate(points.shape))
        places = [np.broadcast_to(_first(a, shape), shape) for a in at]
        chosen = np.broadcast_to(_first(np.asarray(used), shape), shape)
        value = np.broadcast_to(_first(np.asarray(values[effect.value]), shape), shape)
        if at:
            self.outputs[effect.array][tuple(p[chosen] for p in places)] = value[chosen]
        elif chosen.any():
            self.outputs[effect.array][()] = value[chosen][0]


def _first(x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """``x`` cut down to what broadcasts to ``shape``, which is shorter where it is 1 long."""
    lead = len(shape) - x.ndim
    return x[tuple(slice(0, 1) if shape[lead + d] == 1 else slice(None) for d in range(x.ndim))]


# ---------------------------------------------------------------------------------------------- the vocabulary


def _truth(x: Any) -> Any:
    return x != 0


def _by_math(function: Callable[[float], float]) -> Callable[[Any], Any]:
    vectorised = np.vectorize(function, otypes=[np.float64])
    return lambda x: vectorised(x).astype(x.dtype) if x.size else x.copy()


def _lgamma(x: float) -> float:
    if math.isnan(x) or math.isinf(x):
        return abs(x)
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


def _no_zero(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def call(a: Any, b: Any) -> Any:
        if b.dtype.kind == "f":
            return function(a, b)
        return np.where(b == 0, b.dtype.type(0), function(a, np.where(b == 0, b.dtype.type(1), b)))

    return call


_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "maximum": np.maximum,
    "minimum": np.minimum, "fmax": np.fmax, "fmin": np.fmin, "pow": np.power,
    "floordiv": _no_zero(np.floor_divide), "mod": _no_zero(np.remainder), "fmod": _no_zero(np.fmod),
    "neg": np.negative, "abs": np.absolute, "atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign,
    "logaddexp": np.logaddexp, "logaddexp2": np.logaddexp2, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "rint": np.rint, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
    "log2": np.log2, "log10": np.log10, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "sqrt": np.sqrt, "erf": _by_math(math.erf), "erfc": _by_math(math.erfc),
    "lgamma": _by_math(_lgamma), "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "signbit": np.signbit, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "shl": np.left_shift, "shr": np.right_shift, "gcd": np.gcd, "lcm": np.lcm, "where": np.where,
}  # fmt: skip


def compute(item: Compute, operands: Sequence[Any]) -> Any:
    """A scalar operation on arrays of the right dtypes."""
    if item.op == "cast":
        return _truth(operands[0]) if item.dtype == BOOL_ else operands[0].astype(item.dtype)
    y = np.asarray(_NUMPY[item.op](*operands))
    if y.dtype != item.dtype:
        raise TileError(f"tile: NumPy's {item.op} gives {y.dtype}, the program says {item.dtype}")
    return y


_REDUCTIONS: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "any": np.logical_or, "all": np.logical_and}
_EXTREMES: dict[str, Any] = {"max": np.maximum, "min": np.minimum}


def reduce_row(item: Reduce, x: Any, shape: Sequence[int], rows: int) -> Any:
    """An operation over the last ``rows`` dims of ``x``, broadcast to ``shape``; those dims stay, with size 1."""
    outer = len(shape) - rows
    # Where x does not vary along outer dims its result does not either.
    lead = (1,) * (len(shape) - np.ndim(x)) + np.shape(x)
    x = np.broadcast_to(x, (*lead[:outer], *shape[outer:]))
    axes = tuple(range(outer, len(shape)))
    if item.is_scan:
        step = np.add if item.op == "cumsum" else np.multiply
        return step.accumulate(x, axis=-1, dtype=_wide(x.dtype)).astype(x.dtype)
    if item.op in _REDUCTIONS:
        y = _REDUCTIONS[item.op].reduce(x, axis=axes, dtype=_wide(x.dtype), keepdims=True)
        return np.asarray(y).astype(item.dtype)
    if not x.size and any(n == 0 for n in shape[outer:]):
        if math.prod(shape[:outer]):
            raise TileError(f"tile: {item.op} of an empty row")
        return np.zeros((*lead[:outer], *(1,) * rows), item.dtype)
    if item.op in _EXTREMES:
        return np.asarray(_EXTREMES[item.op].reduce(x, axis=axes, keepdims=True)).astype(item.dtype)
    flat = x.reshape(*lead[:outer], -1)
    place = (np.argmax if item.op == "argmax" else np.argmin)(flat, axis=-1)
    return np.asarray(place).reshape(*lead[:outer], *(1,) * rows).astype(item.dtype)


def _wide(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float64) if kind_of(dtype) == 2 else dtype
