"""What vectors are: element types, and ``Vector``, whose operators emit LLVM instructions. See kernels.vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from llvmlite import ir

if TYPE_CHECKING:
    from gpujit.kernels.vector_lanes import LaneEmitter


class Element(NamedTuple):
    """One element type: ``kind`` is f, i, u or b; ``storage`` the type it has in memory."""

    name: str
    kind: str
    bits: int
    type: ir.Type
    storage: ir.Type


HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
POINTER = ir.PointerType()

ELEMENTS: dict[str, Element] = {
    e.name: e
    for e in (
        Element("float64", "f", 64, DOUBLE, DOUBLE),
        Element("float32", "f", 32, FLOAT, FLOAT),
        # The two half types are computed in float32: they exist in memory only.
        Element("float16", "f", 16, HALF, HALF),
        Element("bfloat16", "f", 16, I16, I16),
        *(Element(f"{s}int{bits}", s or "i", bits, t, t) for s in ("", "u") for bits, t in
          ((8, I8), (16, I16), (32, I32), (64, I64))),
        Element("bool", "b", 1, I1, I8),
    )
}  # fmt: skip


class Splat(ir.Constant):  # type: ignore[misc]  # llvmlite has no type stubs
    """One number in every lane, written in one word: sixteen of them would be most of a kernel's text."""

    def __init__(self, kind: ir.Type, scalar: ir.Constant) -> None:
        self.type, self.scalar = kind, scalar
        self.constant = f"splat ({scalar})"

    def _get_reference(self) -> str:
        return str(self.constant)


_FLOAT_COMPARE = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}
Number = int | float | bool


def lanes_of(element: ir.Type, lanes: int) -> ir.Type:
    """LLVM's type of so many elements; one is the element itself."""
    return element if lanes == 1 else ir.VectorType(element, lanes)


class Vector:
    """A value of ``lanes`` elements; operators emit instructions. Both sides of an operator have one element type."""

    __slots__ = ("dtype", "emitter", "lanes", "value")
    __hash__ = None  # type: ignore[assignment]  # == compares lane by lane

    def __init__(self, emitter: LaneEmitter, value: ir.Value, dtype: str, lanes: int) -> None:
        self.emitter, self.value, self.dtype, self.lanes = emitter, value, dtype, lanes

    @property
    def element(self) -> Element:
        return ELEMENTS[self.dtype]

    def like(self, number: Number) -> Vector:
        """``number`` in every lane."""
        return self.emitter.constant(self.dtype, self.lanes, number)

    def _other(self, other: Vector | Number) -> Vector:
        if not isinstance(other, Vector):
            return self.like(other)
        if other.dtype != self.dtype or other.lanes != self.lanes:
            raise TypeError(
                f"{self.dtype}x{self.lanes} and {other.dtype}x{other.lanes} do not mix; cast or broadcast one"
            )
        return other

    def _new(self, value: ir.Value) -> Vector:
        return Vector(self.emitter, value, self.dtype, self.lanes)

    def _binary(self, other: Vector | Number, for_float: str, for_int: str) -> Vector:
        b, right = self.emitter.builder, self._other(other).value
        if self.element.kind == "f":
            return self._new(getattr(b, for_float)(self.value, right, flags=self.emitter.flags))
        return self._new(getattr(b, for_int)(self.value, right))

    def __add__(self, other: Vector | Number) -> Vector:
        return self._binary(other, "fadd", "add")

    def __sub__(self, other: Vector | Number) -> Vector:
        return self._binary(other, "fsub", "sub")

    def __mul__(self, other: Vector | Number) -> Vector:
        return self._binary(other, "fmul", "mul")

    def __truediv__(self, other: Vector | Number) -> Vector:
        return self._binary(other, "fdiv", "sdiv")

    def __radd__(self, other: Number) -> Vector:
        return self._other(other) + self

    def __rsub__(self, other: Number) -> Vector:
        return self._other(other) - self

    def __rmul__(self, other: Number) -> Vector:
        return self._other(other) * self

    def __rtruediv__(self, other: Number) -> Vector:
        return self._other(other) / self

    def __neg__(self) -> Vector:
        if self.element.kind == "f":
            return self._new(self.emitter.builder.fneg(self.value))
        return self.like(0) - self

    def __and__(self, other: Vector | Number) -> Vector:
        return self._new(self.emitter.builder.and_(self.value, self._other(other).value))

    def __or__(self, other: Vector | Number) -> Vector:
        return self._new(self.emitter.builder.or_(self.value, self._other(other).value))

    def __xor__(self, other: Vector | Number) -> Vector:
        return self._new(self.emitter.builder.xor(self.value, self._other(other).value))

    def __invert__(self) -> Vector:
        return self ^ (True if self.dtype == "bool" else -1)

    def __lshift__(self, other: Vector | Number) -> Vector:
        return self._new(self.emitter.builder.shl(self.value, self._other(other).value))

    def __rshift__(self, other: Vector | Number) -> Vector:
        """Arithmetic for signed elements, logical for unsigned ones."""
        shift = self.emitter.builder.ashr if self.element.kind == "i" else self.emitter.builder.lshr
        return self._new(shift(self.value, self._other(other).value))

    def compare(self, operator: str, other: Vector | Number) -> Vector:
        """A mask. IEEE: every comparison with NaN is false, but ``!=``."""
        right, b = self._other(other).value, self.emitter.builder
        if self.element.kind == "f":
            code = _FLOAT_COMPARE[operator]
            compare = b.fcmp_unordered if code[0] == "u" else b.fcmp_ordered
            return Vector(self.emitter, compare(operator, self.value, right), "bool", self.lanes)
        compare = b.icmp_signed if self.element.kind == "i" else b.icmp_unsigned
        return Vector(self.emitter, compare(operator, self.value, right), "bool", self.lanes)

    def __lt__(self, other: Vector | Number) -> Vector:
        return self.compare("<", other)

    def __le__(self, other: Vector | Number) -> Vector:
        return self.compare("<=", other)

    def __gt__(self, other: Vector | Number) -> Vector:
        return self.compare(">", other)

    def __ge__(self, other: Vector | Number) -> Vector:
        return self.compare(">=", other)

    def __eq__(self, other: Vector | Number) -> Vector:  # type: ignore[override]
        return self.compare("==", other)

    def __ne__(self, other: Vector | Number) -> Vector:  # type: ignore[override]
        return self.compare("!=", other)
