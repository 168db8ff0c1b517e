"""Vectors inside Numba functions: types float32x16 and the like, operators, functions that become LLVM instructions.

Generated kernel source reads as arithmetic:

    def kernel(block):
        source, target, n = argument(block, 0), argument(block, 1), argument(block, 2)
        for i in range(0, n - 15, 16):
            x = load(float32x16, source, i)
            store(float32x16, target, i, x * sigmoid(x) + 1.0)

Addresses are int64; an index counts elements. A type as first argument says what lies in memory: float16x16 and
bfloat16x16 arrive as float32x16, boolx16 (bytes) as a mask. Numba compiles no Python for any of these: each is an
intrinsic that writes its instructions through kernels.vector, so that its compile time is that of the instructions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numba.core.types
import numba.core.typing.templates
import numba.extending
from llvmlite import ir

from gpujit.kernels.math import FUNCTIONS
from gpujit.kernels.target import host
from gpujit.kernels.vector import ELEMENTS, I8, Emitter, Vector

# Numba annotates too little of itself to be checked against.
types: Any = numba.core.types
templates: Any = numba.core.typing.templates
extending: Any = numba.extending


def intrinsic(function: Callable[..., Any]) -> Any:
    """A function for generated source that writes its own LLVM instructions: given types, its signature and writer."""
    return extending.intrinsic(function)


class VectorType(types.Type):  # type: ignore[misc]
    """Numba's type of a vector in a register, or of what ``load`` and ``store`` find in memory."""

    def __init__(self, dtype: str, lanes: int) -> None:
        self.dtype = dtype
        self.lanes = lanes
        super().__init__(name=f"{dtype}x{lanes}")

    @property
    def register(self) -> VectorType:
        """The type a value of this memory type has once loaded."""
        return vector_type("float32", self.lanes) if self.dtype in ("float16", "bfloat16") else self


_TYPES: dict[tuple[str, int], VectorType] = {}
_SCALARS: dict[str, Any] = {name: types.boolean if name == "bool" else getattr(types, name, None) for name in ELEMENTS}


def vector_type(dtype: str, lanes: int) -> VectorType:
    """The one type object of ``lanes`` elements of ``dtype``."""
    key = (dtype, lanes)
    if key not in _TYPES:
        _TYPES[key] = VectorType(dtype, lanes)
    return _TYPES[key]


@extending.register_model(VectorType)
class _VectorModel(extending.models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: VectorType) -> None:
        element = ELEMENTS[fe_type.dtype].type
        super().__init__(dmm, fe_type, element if fe_type.lanes == 1 else ir.VectorType(element, fe_type.lanes))


def _emitter(builder: ir.IRBuilder) -> Emitter:
    return Emitter(builder, ("contract",), host().avx512)


def _value(e: Emitter, kind: Any, value: ir.Value, like: VectorType | None = None) -> Vector:
    """A Numba value as a Vector; a number becomes the element type of ``like``, in all its lanes."""
    if isinstance(kind, VectorType):
        return Vector(e, value, kind.dtype, kind.lanes)
    if isinstance(kind, types.Boolean) or kind == types.boolean:
        if value.type == I8:
            value = e.builder.trunc(value, ir.IntType(1))
        scalar = Vector(e, value, "bool", 1)
    else:
        scalar = Vector(e, value, str(types.unliteral(kind)), 1)
    if like is None:
        return scalar
    return e.broadcast(e.cast(scalar, like.dtype), like.lanes)


def _is_number(kind: Any) -> bool:
    return isinstance(kind, types.Number | types.Boolean)


def _common(kinds: Sequence[Any]) -> VectorType | None:
    """The one vector type among operands that are vectors of it or numbers; None when they do not fit."""
    vectors = {k for k in kinds if isinstance(k, VectorType)}
    if len(vectors) != 1 or not all(isinstance(k, VectorType) or _is_number(k) for k in kinds):
        return None
    return next(iter(vectors))


def _plain(kinds: Sequence[Any]) -> list[Any]:
    """Argument types of a signature: literals as what they are literals of, but type arguments as they are."""
    return [k if isinstance(k, VectorType | types.TypeRef) else types.unliteral(k) for k in kinds]


# Operators

_ARITHMETIC: dict[Any, Callable[[Any, Any], Any]] = {
    op: op
    for op in (
        operator.add, operator.sub, operator.mul, operator.truediv,
        operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
    )
}  # fmt: skip
_IN_PLACE = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}  # fmt: skip
_COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
_UNARY = (operator.neg, operator.invert)


def _declare_binary(key: Any, compute: Callable[[Any, Any], Any], mask: bool) -> None:
    class Template(templates.AbstractTemplate):  # type: ignore[misc]
        def generic(self, args: Sequence[Any], kws: dict[str, Any]) -> Any:
            kind = _common(args) if len(args) == 2 else None
            if kind is None:
                return None
            return (vector_type("bool", kind.lanes) if mask else kind)(*_plain(args))

    Template.key = key
    templates.infer_global(key)(Template)

    def lower(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        e, kind = _emitter(builder), _common(sig.args)
        left, right = (_value(e, k, a, kind) for k, a in zip(sig.args, args))
        return compute(left, right).value

    for left, right in ((VectorType, VectorType), (VectorType, types.Any), (types.Any, VectorType)):
        extending.lower_builtin(key, left, right)(lower)


def _declare_unary(key: Any) -> None:
    class Template(templates.AbstractTemplate):  # type: ignore[misc]
        def generic(self, args: Sequence[Any], kws: dict[str, Any]) -> Any:
            return args[0](*args) if len(args) == 1 and isinstance(args[0], VectorType) else None

    Template.key = key
    templates.infer_global(key)(Template)

    def lower(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        return key(_value(_emitter(builder), sig.args[0], args[0])).value

    extending.lower_builtin(key, VectorType)(lower)


for _op, _compute in _ARITHMETIC.items():
    _declare_binary(_op, _compute, mask=False)
for _op, _plain_op in _IN_PLACE.items():
    _declare_binary(_op, _plain_op, mask=False)
for _op in _COMPARISONS:
    _declare_binary(_op, _op, mask=True)
for _op in _UNARY:
    _declare_unary(_op)


# Functions. `emit` gets the emitter and Vectors (types for type arguments) and returns a Vector, or None.

Emit = Callable[..., Any]


def _signature(result: Any, kinds: Sequence[Any], emit: Emit, like: VectorType | None = None) -> tuple[Any, Any]:
    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        e = _emitter(builder)
        values = [
            k.instance_type if isinstance(k, types.TypeRef) else _value(e, k, a, like) for k, a in zip(sig.args, args)
        ]
        got = emit(e, *values)
        return context.get_dummy_value() if got is None else got.value

    return result(*_plain(kinds)), codegen


def _scalar_of(kind: VectorType) -> Any:
    return _SCALARS[kind.dtype]


def _typed(kind: Any) -> VectorType | None:
    return kind.instance_type if isinstance(kind, types.TypeRef) else None


@intrinsic
def argument(typingctx: Any, block: Any, slot: Any) -> Any:
    """Argument ``slot`` of the block, an int64."""
    return _signature(types.int64, (block, slot), lambda e, b, s: e.load(b.value, s.value, "int64", 1))


@intrinsic
def argument_float(typingctx: Any, block: Any, slot: Any) -> Any:
    """Argument ``slot`` of the block, a float64."""
    return _signature(types.float64, (block, slot), lambda e, b, s: e.load(b.value, s.value, "float64", 1))


@intrinsic
def load(typingctx: Any, kind: Any, address: Any, index: Any) -> Any:
    """The vector at element ``index``."""

    def emit(e: Emitter, t: VectorType, a: Vector, i: Vector) -> Vector:
        return e.load(a.value, i.value, t.dtype, t.lanes)

    return _signature(_typed(kind).register, (kind, address, index), emit)  # type: ignore[union-attr]


@intrinsic
def load_masked(typingctx: Any, kind: Any, address: Any, index: Any, mask: Any) -> Any:
    """The vector at element ``index`` where the mask is set, 0 elsewhere; memory there is not touched."""

    def emit(e: Emitter, t: VectorType, a: Vector, i: Vector, m: Vector) -> Vector:
        return e.load(a.value, i.value, t.dtype, t.lanes, m)

    return _signature(_typed(kind).register, (kind, address, index, mask), emit)  # type: ignore[union-attr]


@intrinsic
def load_strided(typingctx: Any, kind: Any, address: Any, index: Any, stride: Any) -> Any:
    """The elements at ``index``, ``index + stride``, ..."""

    def emit(e: Emitter, t: VectorType, a: Vector, i: Vector, s: Vector) -> Vector:
        return e.load(a.value, i.value, t.dtype, t.lanes, stride=s.value)

    return _signature(_typed(kind).register, (kind, address, index, stride), emit)  # type: ignore[union-attr]


@intrinsic
def load_strided_masked(typingctx: Any, kind: Any, address: Any, index: Any, stride: Any, mask: Any) -> Any:
    """The elements at ``index``, ``index + stride``, ... where the mask is set, 0 elsewhere."""

    def emit(e: Emitter, t: VectorType, a: Vector, i: Vector, s: Vector, m: Vector) -> Vector:
        return e.load(a.value, i.value, t.dtype, t.lanes, m, s.value)

    return _signature(_typed(kind).register, (kind, address, index, stride, mask), emit)  # type: ignore[union-attr]


@intrinsic
def load_scalar(typingctx: Any, kind: Any, address: Any, index: Any) -> Any:
    """One element, in every lane."""

    def emit(e: Emitter, t: VectorType, a: Vector, i: Vector) -> Vector:
        return e.broadcast(e.load(a.value, i.value, t.dtype, 1), t.lanes)

    return _signature(_typed(kind).register, (kind, address, index), emit)  # type: ignore[union-attr]


@intrinsic
def gather(typingctx: Any, kind: Any, address: Any, indices: Any, mask: Any) -> Any:
    """The elements at a vector of int64 indices where the mask is set, 0 elsewhere."""

    def emit(e: Emitter, t: VectorType, a: Vector, i: Vector, m: Vector) -> Vector:
        return e.gather(a.value, i, t.dtype, m)

    return _signature(_typed(kind).register, (kind, address, indices, mask), emit)  # type: ignore[union-attr]


@intrinsic
def store(typingctx: Any, kind: Any, address: Any, index: Any, value: Any) -> Any:
    """Writes the vector at element ``index``, converted to the type in memory."""

    def emit(e: Emitter, t: VectorType, a: Vector, i: Vector, v: Vector) -> None:
        e.store(a.value, i.value, v, t.dtype)

    return _signature(types.void, (kind, address, index, value), emit)


@intrinsic
def store_stream(typingctx: Any, kind: Any, address: Any, index: Any, value: Any) -> Any:
    """Like ``store``, past the caches; the place must be aligned to the vector's size."""

    def emit(e: Emitter, t: VectorType, a: Vector, i: Vector, v: Vector) -> None:
        e.store(a.value, i.value, v, t.dtype, stream=True)

    return _signature(types.void, (kind, address, index, value), emit)


@intrinsic
def store_masked(typingctx: Any, kind: Any, address: Any, index: Any, value: Any, mask: Any) -> Any:
    """Like ``store``, where the mask is set."""

    def emit(e: Emitter, t: VectorType, a: Vector, i: Vector, v: Vector, m: Vector) -> None:
        e.store(a.value, i.value, v, t.dtype, m)

    return _signature(types.void, (kind, address, index, value, mask), emit)


@intrinsic
def store_strided(typingctx: Any, kind: Any, address: Any, index: Any, stride: Any, value: Any) -> Any:
    """Writes the lanes at ``index``, ``index + stride``, ..."""

    def emit(e: Emitter, t: VectorType, a: Vector, i: Vector, s: Vector, v: Vector) -> None:
        e.store(a.value, i.value, v, t.dtype, stride=s.value)

    return _signature(types.void, (kind, address, index, stride, value), emit)


@intrinsic
def scatter(typingctx: Any, kind: Any, address: Any, indices: Any, value: Any, mask: Any) -> Any:
    """Writes the lanes where the mask is set at a vector of int64 indices."""

    def emit(e: Emitter, t: VectorType, a: Vector, i: Vector, v: Vector, m: Vector) -> None:
        e.scatter(a.value, i, v, t.dtype, m)

    return _signature(types.void, (kind, address, indices, value, mask), emit)


@intrinsic
def prefetch(typingctx: Any, kind: Any, address: Any, index: Any) -> Any:
    """Asks for an element's cache line."""

    def emit(e: Emitter, t: VectorType, a: Vector, i: Vector) -> None:
        e.prefetch(a.value, i.value, t.dtype)

    return _signature(types.void, (kind, address, index), emit)


@intrinsic
def broadcast(typingctx: Any, kind: Any, number: Any) -> Any:
    """A number in every lane."""
    target = _typed(kind)
    return _signature(target, (kind, number), lambda e, t, v: e.broadcast(e.cast(v, t.dtype), t.lanes))


@intrinsic
def iota(typingctx: Any, kind: Any) -> Any:
    """0, 1, 2, ... by lane."""
    return _signature(_typed(kind), (kind,), lambda e, t: e.iota(t.dtype, t.lanes))


@intrinsic
def tail_mask(typingctx: Any, kind: Any, count: Any) -> Any:
    """Set in the first ``count`` lanes of a vector of that type."""
    target = vector_type("bool", _typed(kind).lanes)  # type: ignore[union-attr]
    return _signature(target, (kind, count), lambda e, t, n: e.tail_mask(e.cast(n, "int64"), t.lanes))


@intrinsic
def cast(typingctx: Any, kind: Any, value: Any) -> Any:
    """The lanes as another element type, as PyTorch converts."""
    return _signature(_typed(kind), (kind, value), lambda e, t, v: e.cast(v, t.dtype))


@intrinsic
def bitcast(typingctx: Any, kind: Any, value: Any) -> Any:
    """The same bits as another element type of that size."""
    return _signature(_typed(kind), (kind, value), lambda e, t, v: e.bitcast(v, t.dtype))


@intrinsic
def select(typingctx: Any, mask: Any, first: Any, second: Any) -> Any:
    """``first`` where the mask is set, else ``second``; one of them may be a number."""
    kind = _common((first, second))
    if kind is None or not isinstance(mask, VectorType):
        return None

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        e = _emitter(builder)
        m, x, y = (_value(e, k, a, like) for k, a, like in zip(sig.args, args, (None, kind, kind)))
        return e.select(m, x, y).value

    return kind(mask, *_plain((first, second))), codegen


@intrinsic
def fma(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once; numbers stand for vectors of them."""
    kind = _common((x, y, z))
    return None if kind is None else _signature(kind, (x, y, z), lambda e, a, b, c: e.fma(a, b, c), kind)


@intrinsic
def maximum(typingctx: Any, x: Any, y: Any) -> Any:
    """The larger of each pair; NaN where either is NaN."""
    kind = _common((x, y))
    return None if kind is None else _signature(kind, (x, y), lambda e, a, b: e.maximum(a, b), kind)


@intrinsic
def minimum(typingctx: Any, x: Any, y: Any) -> Any:
    """The smaller of each pair; NaN where either is NaN."""
    kind = _common((x, y))
    return None if kind is None else _signature(kind, (x, y), lambda e, a, b: e.minimum(a, b), kind)


@intrinsic
def absolute(typingctx: Any, x: Any) -> Any:
    """|x|."""
    return _signature(x, (x,), lambda e, a: e.abs(a))


@intrinsic
def copysign(typingctx: Any, x: Any, y: Any) -> Any:
    """|x| with the sign of ``y``."""
    kind = _common((x, y))
    return None if kind is None else _signature(kind, (x, y), lambda e, a, b: e.copysign(a, b), kind)


@intrinsic
def reduce_sum(typingctx: Any, x: Any) -> Any:
    """The sum of the lanes, always added in the same tree."""
    return _signature(_scalar_of(x), (x,), lambda e, a: e.sum(a))


@intrinsic
def reduce_max(typingctx: Any, x: Any) -> Any:
    """The largest lane; NaN if one is NaN."""
    return _signature(_scalar_of(x), (x,), lambda e, a: e.reduce(a, e.maximum))


@intrinsic
def reduce_min(typingctx: Any, x: Any) -> Any:
    """The smallest lane; NaN if one is NaN."""
    return _signature(_scalar_of(x), (x,), lambda e, a: e.reduce(a, e.minimum))


@intrinsic
def any_lane(typingctx: Any, mask: Any) -> Any:
    """Whether a lane of the mask is set."""
    return _signature(types.boolean, (mask,), lambda e, m: e.any(m))


@intrinsic
def all_lanes(typingctx: Any, mask: Any) -> Any:
    """Whether every lane of the mask is set."""
    return _signature(types.boolean, (mask,), lambda e, m: e.all(m))


def _math_intrinsic(name: str) -> Any:
    function = FUNCTIONS[name]

    def one(typingctx: Any, x: Any) -> Any:
        return _signature(x, (x,), lambda e, a: function(e, a)) if isinstance(x, VectorType) else None

    def two(typingctx: Any, x: Any, y: Any) -> Any:
        kind = _common((x, y))
        return None if kind is None else _signature(kind, (x, y), lambda e, a, b: function(e, a, b), kind)

    body = one if function.arity == 1 else two
    body.__name__, body.__qualname__, body.__doc__ = name, name, function.build.__doc__
    return intrinsic(body)


math_functions: dict[str, Any] = {name: _math_intrinsic(name) for name in FUNCTIONS}


def namespace(lanes: int | None = None) -> dict[str, Any]:
    """The names generated source may use: all functions, and types of ``lanes`` lanes (and of 1) as ``float32x16``."""
    lanes = lanes or host().width
    functions: tuple[Any, ...] = (
        argument, argument_float, load, load_masked, load_strided, load_strided_masked, load_scalar, gather, store,
        store_stream, store_masked, store_strided, scatter, prefetch, broadcast, iota, tail_mask, cast, bitcast,
        select, fma, maximum, minimum, absolute, copysign, reduce_sum, reduce_max, reduce_min, any_lane, all_lanes,
    )  # fmt: skip
    names: dict[str, Any] = {f.__name__: f for f in functions} | math_functions
    for dtype in ELEMENTS:
        for n in {1, lanes}:
            names[f"{dtype}x{n}"] = vector_type(dtype, n)
    return names
