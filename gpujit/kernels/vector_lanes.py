"""Instructions between vectors: arithmetic by lane, conversions, and across the lanes. See kernels.vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from llvmlite import ir

from gpujit.kernels.vector_types import ELEMENTS, FLOAT, I32, Number, Splat, Vector, lanes_of


@lru_cache(4096)
def _constant(dtype: str, lanes: int, number: Number, sign: float) -> ir.Value:
    element = ELEMENTS[dtype]
    if element.kind == "f":
        with np.errstate(over="ignore"):
            number = float(np.float32(number)) if element.bits == 32 else float(number)
    else:
        number = int(number)
    scalar = ir.Constant(element.type, number)
    return scalar if lanes == 1 else Splat(lanes_of(element.type, lanes), scalar)


def _is_limit(x: Vector) -> bool:
    """Whether a float is a known number but 0: then one instruction compares and keeps NaN of the other operand."""
    scalar = x.value.scalar if isinstance(x.value, Splat) else x.value
    number = scalar.constant if isinstance(scalar, ir.Constant) else None
    return x.element.kind == "f" and isinstance(number, float) and number == number and number != 0


def _limit_last(x: Vector, y: Vector) -> tuple[Vector, Vector]:
    """Both, of which the second is the one that is known."""
    return (y, x) if _is_limit(x) else (x, y)


class LaneEmitter:
    """Where instructions go: an llvmlite builder, and the flags that float arithmetic gets.

    ``avx512`` allows instructions that only such machines have; without it the same functions take more steps.
    """

    def __init__(self, builder: ir.IRBuilder, flags: Sequence[str] = (), avx512: bool = False) -> None:
        self.builder = builder
        self.flags = tuple(flags)
        self.avx512 = avx512

    # Values

    def type(self, dtype: str, lanes: int) -> ir.Type:
        """LLVM's type of a value in a register."""
        return lanes_of(ELEMENTS[dtype].type, lanes)

    def constant(self, dtype: str, lanes: int, number: Number) -> Vector:
        """``number`` rounded to the element type, in every lane."""
        # -0.0 equals 0.0, so its sign is part of what is remembered.
        return Vector(self, _constant(dtype, lanes, number, math.copysign(1, number)), dtype, lanes)

    def iota(self, dtype: str, lanes: int) -> Vector:
        """0, 1, 2, ... by lane."""
        kind = ELEMENTS[dtype]
        numbers = [float(i) if kind.kind == "f" else i for i in range(lanes)]
        value = ir.Constant(kind.type, numbers[0]) if lanes == 1 else ir.Constant(lanes_of(kind.type, lanes), numbers)
        return Vector(self, value, dtype, lanes)

    def broadcast(self, scalar: Vector, lanes: int) -> Vector:
        """A scalar in every lane."""
        if lanes == scalar.lanes:
            return scalar
        if isinstance(scalar.value, ir.Constant):
            return Vector(self, Splat(lanes_of(scalar.element.type, lanes), scalar.value), scalar.dtype, lanes)
        undefined = ir.Constant(lanes_of(scalar.element.type, lanes), ir.Undefined)
        first = self.builder.insert_element(undefined, scalar.value, ir.Constant(I32, 0))
        order = ir.Constant(lanes_of(I32, lanes), [0] * lanes)
        return Vector(self, self.builder.shuffle_vector(first, undefined, order), scalar.dtype, lanes)

    def call(self, name: str, result: ir.Type, arguments: Sequence[ir.Value]) -> ir.Value:
        """A call of an LLVM intrinsic or of a C function, declared where needed."""
        known = self.builder.module.globals.get(name)
        if known is None:
            signature = ir.FunctionType(result, [a.type for a in arguments])
            known = ir.Function(self.builder.module, signature, name)
        return self.builder.call(known, arguments)

    def overloaded(self, name: str, *arguments: Vector) -> Vector:
        """LLVM's intrinsic ``name`` of equal vectors, lane by lane."""
        x = arguments[0]
        code = f"{'f' if x.element.kind == 'f' else 'i'}{x.element.bits}"
        full = f"llvm.{name}.{code}" if x.lanes == 1 else f"llvm.{name}.v{x.lanes}{code}"
        return Vector(self, self.call(full, x.value.type, [a.value for a in arguments]), x.dtype, x.lanes)

    # Lane by lane

    def fma(self, x: Vector, y: Vector | Number, z: Vector | Number) -> Vector:
        """x * y + z, rounded once."""
        return self.overloaded("fma", x, x._other(y), x._other(z))

    def polynomial(self, x: Vector, coefficients: Sequence[float]) -> Vector:
        """c0 + x * (c1 + x * (...)), by Horner."""
        result = x.like(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            result = self.fma(result, x, c)
        return result

    def select(self, mask: Vector, x: Vector | Number, y: Vector | Number) -> Vector:
        """``x`` where the mask is set, else ``y``; at least one of the two is a vector."""
        if not isinstance(x, Vector):
            assert isinstance(y, Vector)
            x = y.like(x)
        return x._new(self.builder.select(mask.value, x.value, x._other(y).value))

    def maximum(self, x: Vector, y: Vector | Number) -> Vector:
        """The larger; NaN where either is NaN."""
        x, y = _limit_last(x, x._other(y))
        if _is_limit(y):
            return self.select(x < y, y, x)
        larger = self.larger(x, y)
        return larger if x.element.kind != "f" else self.select(x != x, x, larger)

    def minimum(self, x: Vector, y: Vector | Number) -> Vector:
        """The smaller; NaN where either is NaN."""
        x, y = _limit_last(x, x._other(y))
        if _is_limit(y):
            return self.select(x > y, y, x)
        smaller = self.smaller(x, y)
        return smaller if x.element.kind != "f" else self.select(x != x, x, smaller)

    def larger(self, x: Vector, y: Vector) -> Vector:
        """The larger, ``y`` where either is NaN: one instruction."""
        return self.select(x > y, x, y)

    def smaller(self, x: Vector, y: Vector) -> Vector:
        """The smaller, ``y`` where either is NaN: one instruction."""
        return self.select(x < y, x, y)

    def unordered(self, x: Vector, y: Vector) -> Vector:
        """Whether either is NaN."""
        return Vector(self, self.builder.fcmp_unordered("uno", x.value, y.value), "bool", x.lanes)

    def clamp(self, x: Vector, low: Number, high: Number) -> Vector:
        """``x`` between two numbers; NaN stays NaN."""
        x = self.select(x > high, high, x)
        return self.select(x < low, low, x)

    def sqrt(self, x: Vector) -> Vector:
        return self.overloaded("sqrt", x)

    def abs(self, x: Vector) -> Vector:
        """|x|; the most negative integer stays itself."""
        if x.element.kind == "f":
            return self.overloaded("fabs", x)
        return x if x.element.kind in "ub" else self.select(x < 0, -x, x)

    def floor(self, x: Vector) -> Vector:
        return self.overloaded("floor", x)

    def ceil(self, x: Vector) -> Vector:
        return self.overloaded("ceil", x)

    def trunc(self, x: Vector) -> Vector:
        return self.overloaded("trunc", x)

    def round(self, x: Vector) -> Vector:
        """To the nearest whole number, halves to the even one."""
        return self.overloaded("rint", x)

    def copysign(self, x: Vector, sign: Vector) -> Vector:
        """|x| with the sign of the other."""
        return self.overloaded("copysign", x, sign)

    # Where the machine has one instruction for several

    def _avx512(self, name: str, arguments: Sequence[Vector], masked: bool, kept: Vector | None = None) -> Vector:
        """An AVX-512 instruction over vectors of any length: in 512-bit pieces, or one shorter piece.

        0 where ``kept`` is clear.
        """
        x = arguments[0]
        bits = x.lanes * x.element.bits
        if bits > 512:
            halves = []
            for which in (0, 1):
                mask = None if kept is None else self.half(kept, which)
                halves.append(self._avx512(name, [self.half(a, which) for a in arguments], masked, mask))
            return self.join(*halves)
        suffix = f"{'ps' if x.element.bits == 32 else 'pd'}.{bits}"
        mask_type = ir.IntType(max(x.lanes, 8))
        lanes_kept = ir.Constant(mask_type, -1)
        if kept is not None:
            lanes_kept = self.builder.bitcast(kept.value, ir.IntType(x.lanes))
            if x.lanes < 8:
                lanes_kept = self.builder.zext(lanes_kept, mask_type)
        values = [*(a.value for a in arguments), x.like(0.0).value, lanes_kept]
        if masked and bits == 512:
            values.append(ir.Constant(I32, 4))
        result = self.call(f"llvm.x86.avx512.{'mask.' if masked else ''}{name}.{suffix}", x.value.type, values)
        return x._new(result)

    def has_scale(self, x: Vector) -> bool:
        """Whether vectors like this one have AVX-512's instructions."""
        return self.avx512 and x.lanes * x.element.bits >= 128

    def scale(self, x: Vector, whole: Vector, n: Vector, kept: Vector | None = None) -> Vector:
        """x * 2**n, rounded once: the exponent as a float and as an integer; ``x`` near 1, the result any float.

        0 where ``kept`` is clear, where the other two may be anything if the machine ``has_scale``.
        """
        if self.has_scale(x):
            return self._avx512("scalef", [x, whole], masked=True, kept=kept)
        mantissa, bias = (23, 127) if x.element.bits == 32 else (52, 1023)
        first = n >> 1
        x = x * self.bitcast((first + bias) << mantissa, x.dtype)
        x = x * self.bitcast((n - first + bias) << mantissa, x.dtype)
        return x if kept is None else self.select(kept, x, 0.0)

    def reciprocal_medium(self, x: Vector) -> Vector:
        """1 / x of float64 to 44 bits, for numbers whose reciprocal float32 can hold: twice as fast as to divide."""
        r = self.cast(1 / self.cast(x, "float32"), "float64")
        return self.fma(self.fma(-x, r, 1.0), r, r)

    def reciprocal_close(self, x: Vector) -> Vector:
        """1 / x of positive normal float32 numbers below 2**126, within 2 ulp; the quotient itself of float64.

        On machines with AVX-512 without dividing, which takes several times as long.
        """
        if not self.has_scale(x) or x.dtype != "float32":
            return 1 / x
        r = self._avx512("rcp14", [x], masked=False)
        return self.fma(self.fma(-r, x, 1.0), r, r)

    def rsqrt14(self, x: Vector) -> Vector:
        """1 / sqrt(x) to 14 bits, exact at 0, infinity and NaN; for machines with AVX-512."""
        return self._avx512("rsqrt14", [x], masked=False)

    def has_table(self, x: Vector) -> bool:
        """Whether ``look_up`` works for vectors like this one."""
        return self.avx512 and x.dtype == "float32" and x.lanes % 16 == 0

    def look_up(self, table: Sequence[float], index: Vector) -> Vector:
        """The entries of a table of 16 floats at the low four bits of an int32 vector."""
        if index.lanes > 16:
            return self.join(self.look_up(table, self.half(index, 0)), self.look_up(table, self.half(index, 1)))
        kind = ir.VectorType(FLOAT, 16)
        arguments = [ir.Constant(kind, list(table)), index.value]
        return Vector(self, self.call("llvm.x86.avx512.permvar.sf.512", kind, arguments), "float32", 16)

    def octave_quarter(self, a: Vector) -> tuple[Vector, Vector, Vector]:
        """(column, u, is below) of float32 numbers from 0 on, for tables by quarters of octaves that begin at 1/8.

        ``u`` is the distance from the middle of the quarter; below 1/8 it is the number itself.
        """
        bits = self.bitcast(a, "int32")
        # The last number before an eighth stands for all of them.
        least = int(np.float32(0.125).view(np.int32)) - 1
        column = self.select(bits > least, bits, least) >> 21
        middle = self.bitcast((bits & -(1 << 21)) | (1 << 20), "float32")
        below = a < 0.125
        return column, self.select(below, a, a - middle), below

    def look_up_wide(self, table: Sequence[float], index: Vector) -> Vector:
        """The entries of a table of 32 floats at the low five bits of an int32 vector; where ``has_table`` says so."""
        if index.lanes > 16:
            low, high = (self.look_up_wide(table, self.half(index, k)) for k in (0, 1))
            return self.join(low, high)
        kind = ir.VectorType(FLOAT, 16)
        first, second = (ir.Constant(kind, list(part)) for part in (table[:16], table[16:]))
        found = self.call("llvm.x86.avx512.vpermi2var.ps.512", kind, [first, index.value, second])
        return Vector(self, found, "float32", 16)

    # Between types

    def bitcast(self, x: Vector, dtype: str) -> Vector:
        """The same bits as another element type of that size."""
        return Vector(self, self.builder.bitcast(x.value, self.type(dtype, x.lanes)), dtype, x.lanes)

    def cast(self, x: Vector, dtype: str) -> Vector:
        """``x`` as another element type, as PyTorch's CPU kernels convert.

        Float to integer truncates; NaN and what does not fit become the most negative number of int32 or int64, whose
        low bits narrower integers take. Wider integers wrap. Anything but zero, NaN included, is true.
        """
        if dtype == x.dtype:
            return x
        old, new, b = x.element, ELEMENTS[dtype], self.builder
        target = self.type(dtype, x.lanes)
        if dtype in ("float16", "bfloat16") or x.dtype in ("float16", "bfloat16"):
            raise TypeError(f"{x.dtype} to {dtype}: half types exist in memory only; load and store convert")
        if new.kind == "b":
            return x != 0
        if old.kind == "b":
            value = b.uitofp(x.value, target) if new.kind == "f" else b.zext(x.value, target)
        elif old.kind == "f" and new.kind == "f":
            value = b.fpext(x.value, target) if new.bits > old.bits else b.fptrunc(x.value, target)
        elif old.kind == "f":
            return self._to_integer(x, dtype)
        elif new.kind == "f":
            value = b.sitofp(x.value, target) if old.kind == "i" else b.uitofp(x.value, target)
        elif new.bits < old.bits:
            value = b.trunc(x.value, target)
        elif new.bits == old.bits:
            value = x.value
        else:
            value = b.sext(x.value, target) if old.kind == "i" else b.zext(x.value, target)
        return Vector(self, value, dtype, x.lanes)

    def _to_integer(self, x: Vector, dtype: str) -> Vector:
        bits = 64 if ELEMENTS[dtype].bits == 64 or dtype == "uint32" else 32
        wide = f"int{bits}"
        fits = (x >= -(2.0 ** (bits - 1))) & (x < 2.0 ** (bits - 1))
        # Out of range the instruction's result is undefined in LLVM, so those lanes are chosen elsewhere.
        whole = Vector(self, self.builder.fptosi(x.value, self.type(wide, x.lanes)), wide, x.lanes)
        return self.cast(self.select(fits, whole, -(2 ** (bits - 1))), dtype)

    # Across lanes

    def half(self, x: Vector, which: int) -> Vector:
        """The lower (0) or upper (1) half of the lanes."""
        size = x.lanes // 2
        order = ir.Constant(lanes_of(I32, size), list(range(which * size, which * size + size)))
        if size == 1:
            return self.lane(x, which)
        return Vector(self, self.builder.shuffle_vector(x.value, x.value, order), x.dtype, size)

    def join(self, low: Vector, high: Vector) -> Vector:
        """Twice the lanes: those of ``low``, then those of ``high``."""
        if low.lanes == 1:
            undefined = ir.Constant(lanes_of(low.element.type, 2), ir.Undefined)
            first = self.builder.insert_element(undefined, low.value, ir.Constant(I32, 0))
            both = self.builder.insert_element(first, high.value, ir.Constant(I32, 1))
            return Vector(self, both, low.dtype, 2)
        order = ir.Constant(lanes_of(I32, 2 * low.lanes), list(range(2 * low.lanes)))
        return Vector(self, self.builder.shuffle_vector(low.value, high.value, order), low.dtype, 2 * low.lanes)

    def lane(self, x: Vector, which: int) -> Vector:
        """One lane as a scalar."""
        if x.lanes == 1:
            return x
        return Vector(self, self.builder.extract_element(x.value, ir.Constant(I32, which)), x.dtype, 1)

    def reduce(self, x: Vector, combine: Callable[[Vector, Vector], Vector]) -> Vector:
        """All lanes combined in one scalar by a tree: lane i with lane i + lanes / 2, and so on."""
        while x.lanes > 1:
            x = combine(self.half(x, 0), self.half(x, 1))
        return x

    def sum(self, x: Vector) -> Vector:
        return self.reduce(x, lambda a, b: a + b)

    def any(self, mask: Vector) -> Vector:
        """Whether a lane is set, as a scalar bool."""
        if mask.lanes == 1:
            return mask
        whole = ir.IntType(mask.lanes)
        bits = self.builder.bitcast(mask.value, whole)
        return Vector(self, self.builder.icmp_unsigned("!=", bits, ir.Constant(whole, 0)), "bool", 1)

    def all(self, mask: Vector) -> Vector:
        """Whether every lane is set, as a scalar bool."""
        return ~self.any(~mask)

    def unless_rare(self, rare: Vector, usual: Vector, repair: Callable[[], Vector]) -> Vector:
        """``usual``, or where a lane is ``rare`` the result of ``repair()``, which runs in those cases alone."""
        condition, start = self.any(rare).value, self.builder.block
        with self.builder.if_then(condition, likely=False):
            repaired = repair()
            inside = self.builder.block
        phi = self.builder.phi(repaired.value.type)
        phi.add_incoming(repaired.value, inside)
        phi.add_incoming(usual.value, start)
        return usual._new(phi)
