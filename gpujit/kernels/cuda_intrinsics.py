"""Device functions as Numba intrinsics: LLVM instructions, calls of libdevice and inline PTX.

Types are checked where a kernel is typed: a call that fits no form ends compilation there. Both operands of an
operation have one type, and nothing here widens a float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.cuda import types as numba_types
from numba.cuda.extending import intrinsic

# Numba has no description of these for type checkers.
types: Any = numba_types

INF = math.inf
NAN = math.nan
float32, float64 = types.float32, types.float64
int8, int16, int32, int64 = types.int8, types.int16, types.int32, types.int64
uint8, uint16, uint32, uint64 = types.uint8, types.uint16, types.uint32, types.uint64

I1, I16, I32, I64, F32, F64, F16 = (
    ir.IntType(1), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.DoubleType(), ir.HalfType(),
)  # fmt: skip

# What builds the LLVM value of a call from those of its operands; the Numba type is the first operand's.
Build = Callable[[ir.IRBuilder, Any, Sequence[ir.Value]], ir.Value]


def _function(module: ir.Module, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
    found = module.globals.get(name)
    return found if found is not None else ir.Function(module, ir.FunctionType(result, arguments), name)


def _make(name: str, arity: int, build: Build, result: Any = None, fits: Callable[[Any], bool] | None = None) -> Any:
    """An intrinsic of ``arity`` operands of one type; the result has it too, or is ``result``."""

    def typed(*operands: Any) -> Any:
        first = operands[0]
        if isinstance(first, types.Literal) or (fits is not None and not fits(first)):
            return None
        if any(x != first for x in operands[1:]):
            return None

        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return build(builder, first, values)

        return (first if result is None else result)(*operands), code

    if arity == 1:

        def unary(typingctx: Any, x: Any) -> Any:
            return typed(x)

        chosen: Any = unary
    else:

        def binary(typingctx: Any, x: Any, y: Any) -> Any:
            return typed(x, y)

        chosen = binary
    chosen.__name__ = chosen.__qualname__ = name
    return intrinsic(chosen)


def _is_float(t: Any) -> bool:
    return isinstance(t, types.Float)


def _is_integer(t: Any) -> bool:
    return isinstance(t, types.Integer)


# ------------------------------------------------------------------------------------------------------ half types


def _f16_to_f32(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    return b.fpext(b.bitcast(v[0], F16), F32)


def _bf16_to_f32(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    return b.bitcast(b.shl(b.zext(v[0], I32), I32(16)), F32)


def _f32_to_f16(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    return b.bitcast(b.fptrunc(v[0], F16), I16)


def _f32_to_bf16(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    return b.asm(ir.FunctionType(I16, [F32]), "cvt.rn.bf16.f32 $0, $1;", "=h,f", [v[0]], side_effect=False)


f16 = _make("f16", 1, _f16_to_f32, types.float32, lambda t: t == types.uint16)
bf16 = _make("bf16", 1, _bf16_to_f32, types.float32, lambda t: t == types.uint16)
to_f16 = _make("to_f16", 1, _f32_to_f16, types.uint16, lambda t: t == types.float32)
to_bf16 = _make("to_bf16", 1, _f32_to_bf16, types.uint16, lambda t: t == types.float32)


# --------------------------------------------------------------------------------------------- wide loads and stores


def _address(
    b: ir.IRBuilder, pointer: ir.Value, index: ir.Value, index_type: Any, element: ir.Type, vector: Any
) -> Any:
    wide = index
    if index.type.width < 64:
        wide = b.sext(index, I64) if index_type.signed else b.zext(index, I64)
    at = b.gep(b.bitcast(pointer, element.as_pointer()), [wide], source_etype=element)
    return b.bitcast(at, vector.as_pointer())


def _vector(element: ir.Type, count: int, itemsize: int) -> tuple[ir.Type, int]:
    """The LLVM type to move, of words of 4 bytes where elements are smaller, and the alignment."""
    size = count * itemsize
    align = min(size, 16)
    if itemsize < 4 and size >= 4:
        return ir.VectorType(I32, size // 4), align
    return ir.VectorType(element, count), align


def _element(pointer: Any) -> tuple[ir.Type, int]:
    t = pointer.dtype
    if t == types.float32:
        return F32, 4
    if t == types.float64:
        return F64, 8
    return ir.IntType(t.bitwidth), t.bitwidth // 8


def _loads(count: int, half: str = "") -> Any:
    unpack = {"f16": _f16_to_f32, "bf16": _bf16_to_f32}.get(half)

    def vload(typingctx: Any, pointer: Any, index: Any) -> Any:
        if not isinstance(pointer, types.CPointer) or not _is_integer(index):
            return None
        element, itemsize = _element(pointer)
        given = pointer.dtype if unpack is None else types.float32
        tuple_type = types.UniTuple(given, count)

        def code(context: Any, b: Any, signature: Any, values: Any) -> Any:
            moved, align = _vector(element, count, itemsize)
            at = _address(b, values[0], values[1], index, element, moved)
            found = b.load(at, align=align, typ=moved)
            words = [b.extract_element(found, I32(k)) for k in range(moved.count)]
            items = []
            for k in range(count):
                each = count // moved.count
                word, low = words[k // each], k % each * itemsize * 8
                # Cut by shifts: a load that is seen as shorter elements is split into narrower ones.
                if half == "bf16":
                    word = b.and_(word, I32(-65536)) if low else b.shl(word, I32(16))
                    items.append(b.bitcast(word, F32))
                    continue
                if each > 1:
                    word = b.trunc(b.lshr(word, I32(low)) if low else word, element)
                items.append(word if unpack is None else unpack(b, None, [word]))
            return context.make_tuple(b, tuple_type, items)

        return tuple_type(pointer, index), code

    vload.__name__ = vload.__qualname__ = f"vload{count}_{half}".rstrip("_")
    return intrinsic(vload)


def _pair_asm(b: ir.IRBuilder, half: str, low: ir.Value, high: ir.Value) -> ir.Value:
    return b.asm(
        ir.FunctionType(I32, [F32, F32]), f"cvt.rn.{half}x2.f32 $0, $1, $2;", "=r,f,f", [high, low], side_effect=False
    )


def _store_code(count: int, half: str, pointer: Any, index: Any) -> Any:
    if not isinstance(pointer, types.CPointer) or not _is_integer(index):
        return None
    element, itemsize = _element(pointer)

    def code(context: Any, b: Any, signature: Any, values: Any) -> Any:
        moved, align = _vector(element, count, itemsize)
        items = values[2:]
        if half:
            packed = ir.Constant(moved, ir.Undefined)
            for k in range(count // 2):
                packed = b.insert_element(packed, _pair_asm(b, half, items[2 * k], items[2 * k + 1]), I32(k))
        else:
            packed = ir.Constant(ir.VectorType(element, count), ir.Undefined)
            for k, x in enumerate(items):
                packed = b.insert_element(packed, x, I32(k))
            packed = b.bitcast(packed, moved)
        b.store(packed, _address(b, values[0], values[1], index, element, moved), align=align)
        return context.get_dummy_value()

    return code


def _stores(count: int, half: str = "") -> Any:
    def typed(pointer: Any, index: Any, *items: Any) -> Any:
        code = _store_code(count, half, pointer, index)
        wanted = types.float32 if half else getattr(pointer, "dtype", None)
        if code is None or any(x != wanted for x in items):
            return None
        return types.void(pointer, index, *items), code

    if count == 2:

        def vstore2(typingctx: Any, pointer: Any, index: Any, a: Any, b: Any) -> Any:
            return typed(pointer, index, a, b)

        chosen: Any = vstore2
    elif count == 4:

        def vstore4(typingctx: Any, pointer: Any, index: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
            return typed(pointer, index, a, b, c, d)

        chosen = vstore4
    else:

        def vstore8(
            typingctx: Any, pointer: Any, index: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any
        ) -> Any:
            return typed(pointer, index, a, b, c, d, e, f, g, h)

        chosen = vstore8
    chosen.__name__ = chosen.__qualname__ = f"vstore{count}_{half}".rstrip("_")
    return intrinsic(chosen)


vload2, vload4, vload8 = (_loads(n) for n in (2, 4, 8))
vload2_f16, vload4_f16, vload8_f16 = (_loads(n, "f16") for n in (2, 4, 8))
vload2_bf16, vload4_bf16, vload8_bf16 = (_loads(n, "bf16") for n in (2, 4, 8))
vstore2, vstore4, vstore8 = (_stores(n) for n in (2, 4, 8))
vstore2_f16, vstore4_f16, vstore8_f16 = (_stores(n, "f16") for n in (2, 4, 8))
vstore2_bf16, vstore4_bf16, vstore8_bf16 = (_stores(n, "bf16") for n in (2, 4, 8))


# ------------------------------------------------------------------------------------------------------ arithmetic


@intrinsic
def select(typingctx: Any, condition: Any, a: Any, b: Any) -> Any:
    """``a`` where the condition holds, else ``b``; both are there already."""
    if condition != types.boolean or a != b:
        return None

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.select(context.cast(builder, values[0], types.boolean, types.boolean), values[1], values[2])

    return a(condition, a, b), code


udiv = _make("udiv", 2, lambda b, t, v: b.udiv(*v), fits=_is_integer)
urem = _make("urem", 2, lambda b, t, v: b.urem(*v), fits=_is_integer)


def _libdevice(b: ir.IRBuilder, t: Any, name: str, values: Sequence[ir.Value]) -> ir.Value:
    kind = values[0].type
    full = f"__nv_{name}f" if t == types.float32 else f"__nv_{name}"
    return b.call(_function(b.module, full, kind, [kind] * len(values)), values)


def _extreme(larger: bool) -> Build:
    word, comparison = ("max", ">") if larger else ("min", "<")

    def build(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
        x, y = v
        if t == types.float32:
            return b.asm(ir.FunctionType(F32, [F32, F32]), f"{word}.NaN.f32 $0, $1, $2;", "=f,f,f", [x, y], False)
        # x where it wins or is NaN, but never beside a NaN in y.
        wins = b.fcmp_unordered(comparison, x, y)
        is_number = b.fcmp_ordered("ord", y, y)
        return b.select(b.and_(wins, is_number), x, y)

    return build


maximum = _make("maximum", 2, _extreme(True), fits=_is_float)
minimum = _make("minimum", 2, _extreme(False), fits=_is_float)


def _integer_divide(b: ir.IRBuilder, t: Any, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """(quotient towards zero, divisor without 0, is zero); by 0 and -1 without the instruction."""
    zero = b.icmp_unsigned("==", y, y.type(0))
    if not t.signed:
        safe = b.select(zero, y.type(1), y)
        return b.udiv(x, safe), safe, zero
    minus = b.icmp_unsigned("==", y, y.type(-1))
    safe = b.select(b.or_(zero, minus), y.type(1), y)
    return b.select(minus, b.neg(x), b.sdiv(x, safe)), b.select(zero, y.type(1), y), zero


def _rest(b: ir.IRBuilder, t: Any, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value, ir.Value]:
    """(quotient, rest, divisor, is zero, whether the rest has the other sign) of integers."""
    quotient, divisor, zero = _integer_divide(b, t, x, y)
    rest = b.sub(x, b.mul(quotient, divisor))
    signs = b.icmp_signed("<", b.xor(rest, divisor), rest.type(0)) if t.signed else I1(0)
    other = b.and_(b.icmp_unsigned("!=", rest, rest.type(0)), signs)
    return quotient, rest, divisor, zero, other


def _fmod(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    if _is_float(t):
        return _libdevice(b, t, "fmod", v)
    _, rest, _, zero, _ = _rest(b, t, *v)
    return b.select(zero, rest.type(0), rest)


def _remainder(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    x, y = v
    if not _is_float(t):
        _, rest, divisor, zero, other = _rest(b, t, x, y)
        return b.select(zero, rest.type(0), b.select(other, b.add(rest, divisor), rest))
    kind, nought = x.type, ir.Constant(x.type, 0.0)
    rest = b.call(_function(b.module, "__nv_fmodf" if kind == F32 else "__nv_fmod", kind, [kind, kind]), [x, y])
    unequal = b.xor(b.fcmp_ordered("<", rest, nought), b.fcmp_ordered("<", y, nought))
    moved = b.select(b.and_(b.fcmp_unordered("!=", rest, nought), unequal), b.fadd(rest, y), rest)
    signed = _libdevice(b, t, "copysign", [nought, y])
    return b.select(b.fcmp_ordered("==", rest, nought), signed, moved)


def _floor_divide(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    x, y = v
    if not _is_float(t):
        quotient, _, _, zero, other = _rest(b, t, x, y)
        quotient = b.select(other, b.sub(quotient, quotient.type(1)), quotient)
        return b.select(zero, quotient.type(0), quotient)
    nought, one, half = (ir.Constant(x.type, c) for c in (0.0, 1.0, 0.5))
    rest = _libdevice(b, t, "fmod", v)
    quotient = b.fdiv(b.fsub(x, rest), y)
    unequal = b.xor(b.fcmp_ordered("<", rest, nought), b.fcmp_ordered("<", y, nought))
    quotient = b.select(b.and_(b.fcmp_unordered("!=", rest, nought), unequal), b.fsub(quotient, one), quotient)
    whole = _libdevice(b, t, "floor", [quotient])
    whole = b.select(b.fcmp_ordered(">", b.fsub(quotient, whole), half), b.fadd(whole, one), whole)
    divided = b.fdiv(x, y)
    signed = _libdevice(b, t, "copysign", [nought, divided])
    whole = b.select(b.fcmp_ordered("==", quotient, nought), signed, whole)
    return b.select(b.fcmp_ordered("==", y, nought), divided, whole)


fmod = _make("fmod", 2, _fmod)
remainder = _make("remainder", 2, _remainder)
floor_divide = _make("floor_divide", 2, _floor_divide)


def _loop(
    b: ir.IRBuilder, start: Sequence[ir.Value], step: Callable[..., Sequence[ir.Value]], goes: Callable[..., ir.Value]
) -> Sequence[ir.Value]:
    """``state = step(*state)`` at least once and as long as ``goes(*state)``; the last state."""
    before = b.block
    body, done = b.append_basic_block("again"), b.append_basic_block("done")
    b.branch(body)
    b.position_at_end(body)
    phis = [b.phi(x.type) for x in start]
    for phi, x in zip(phis, start, strict=True):
        phi.add_incoming(x, before)
    following = step(*phis)
    for phi, x in zip(phis, following, strict=True):
        phi.add_incoming(x, b.block)
    b.cbranch(goes(*following), body, done)
    b.position_at_end(done)
    return following


def _power(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    if _is_float(t):
        return _libdevice(b, t, "pow", v)
    one, none = v[0].type(1), v[0].type(0)

    def step(base: Any, left: Any, result: Any) -> Sequence[ir.Value]:
        odd = b.icmp_unsigned("!=", b.and_(left, one), none)
        return b.mul(base, base), b.lshr(left, one), b.select(odd, b.mul(result, base), result)

    return _loop(b, (*v, one), step, lambda base, left, result: b.icmp_unsigned("!=", left, none))[2]


def _absolute(b: ir.IRBuilder, t: Any, x: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed("<", x, x.type(0)), b.neg(x), x) if t.signed else x


def _gcd(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    none = v[0].type(0)

    def step(large: Any, small: Any) -> Sequence[ir.Value]:
        over = b.icmp_unsigned("==", small, none)
        rest = _fmod(b, t, (large, small))
        return b.select(over, large, small), b.select(over, none, _absolute(b, t, rest))

    start = [_absolute(b, t, x) for x in v]
    return _absolute(b, t, _loop(b, start, step, lambda large, small: b.icmp_unsigned("!=", small, none))[0])


def _lcm(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    x, y = (_absolute(b, t, each) for each in v)
    quotient, _, zero = _integer_divide(b, t, x, _gcd(b, t, v))
    return b.select(zero, quotient.type(0), b.mul(quotient, y))


def _shift_left(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    fits = b.icmp_unsigned("<", v[1], v[1].type(t.bitwidth))
    return b.select(fits, b.shl(v[0], b.select(fits, v[1], v[1].type(0))), v[0].type(0))


def _shift_right(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    fits = b.icmp_unsigned("<", v[1], v[1].type(t.bitwidth))
    if not t.signed:
        return b.select(fits, b.lshr(v[0], b.select(fits, v[1], v[1].type(0))), v[0].type(0))
    return b.ashr(v[0], b.select(fits, v[1], v[1].type(t.bitwidth - 1)))


power = _make("power", 2, _power)
gcd = _make("gcd", 2, _gcd, fits=_is_integer)
lcm = _make("lcm", 2, _lcm, fits=_is_integer)
shift_left = _make("shift_left", 2, _shift_left, fits=_is_integer)
shift_right = _make("shift_right", 2, _shift_right, fits=_is_integer)


def _log_add(exp_name: str, log_name: str, factor: float) -> Build:
    def build(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
        x, y = v
        kind = x.type
        top = _extreme(True)(b, t, v)
        apart = _libdevice(b, t, "fabs", [b.fsub(x, y)])
        small = _libdevice(b, t, exp_name, [b.fsub(ir.Constant(kind, -0.0), apart)])
        more = b.fmul(_libdevice(b, t, log_name, [small]), ir.Constant(kind, factor))
        endless = b.fcmp_ordered("==", _libdevice(b, t, "fabs", [x]), ir.Constant(kind, math.inf))
        return b.select(b.and_(b.fcmp_ordered("==", x, y), endless), x, b.fadd(top, more))

    return build


logaddexp = _make("logaddexp", 2, _log_add("exp", "log1p", 1.0), fits=_is_float)
# log2(1 + t) = log1p(t) / log(2)
LOG_ADD_2 = _log_add("exp2", "log1p", 1.4426950408889634)
logaddexp2 = _make("logaddexp2", 2, LOG_ADD_2, fits=_is_float)


def _by_libdevice(name: str, arity: int = 1) -> Any:
    return _make(name, arity, lambda b, t, v: _libdevice(b, t, name, v), fits=_is_float)


atan2, hypot, copysign, fmax, fmin = (_by_libdevice(n, 2) for n in ("atan2", "hypot", "copysign", "fmax", "fmin"))
fabs, floor, ceil, trunc, rint = (_by_libdevice(n) for n in ("fabs", "floor", "ceil", "trunc", "rint"))
exp, exp2, expm1, log, log1p, log2, log10 = (
    _by_libdevice(n) for n in ("exp", "exp2", "expm1", "log", "log1p", "log2", "log10")
)
sin, cos, tan, asin, acos, atan = (_by_libdevice(n) for n in ("sin", "cos", "tan", "asin", "acos", "atan"))
sinh, cosh, tanh, asinh, acosh, atanh = (_by_libdevice(n) for n in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"))
sqrt, erf, erfc, lgamma = (_by_libdevice(n) for n in ("sqrt", "erf", "erfc", "lgamma"))


def _is_infinite(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    return b.fcmp_ordered("==", _libdevice(b, t, "fabs", v), ir.Constant(v[0].type, math.inf))


def _is_finite(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    return b.fcmp_ordered("<", _libdevice(b, t, "fabs", v), ir.Constant(v[0].type, math.inf))


def _sign_bit(b: ir.IRBuilder, t: Any, v: Sequence[ir.Value]) -> ir.Value:
    bits = I32 if t == types.float32 else I64
    return b.icmp_signed("<", b.bitcast(v[0], bits), bits(0))


isinf = _make("isinf", 1, _is_infinite, types.boolean, _is_float)
isfinite = _make("isfinite", 1, _is_finite, types.boolean, _is_float)
signbit = _make("signbit", 1, _sign_bit, types.boolean, _is_float)


# -------------------------------------------------------------------------------------------- threads of a warp


def _word_shuffle(b: ir.IRBuilder, mode: str, word: ir.Value, operand: ir.Value) -> ir.Value:
    function = _function(b.module, f"llvm.nvvm.shfl.sync.{mode}.i32", I32, [I32] * 4)
    return b.call(function, [I32(-1), word, operand, I32(0 if mode == "up" else 31)])


def _shuffle(b: ir.IRBuilder, mode: str, x: ir.Value, operand: ir.Value) -> ir.Value:
    """The instruction on words of 4 bytes, for a value of any type."""
    kind = x.type
    if kind in (F32, F64):
        bits = I32 if kind == F32 else I64
        return b.bitcast(_shuffle(b, mode, b.bitcast(x, bits), operand), kind)
    if kind.width < 32:
        return b.trunc(_word_shuffle(b, mode, b.zext(x, I32), operand), kind)
    if kind.width == 32:
        return _word_shuffle(b, mode, x, operand)
    low = _word_shuffle(b, mode, b.trunc(x, I32), operand)
    high = _word_shuffle(b, mode, b.trunc(b.lshr(x, I64(32)), I32), operand)
    return b.or_(b.zext(low, I64), b.shl(b.zext(high, I64), I64(32)))


def _make_shuffle(name: str, mode: str, operand: Callable[[ir.IRBuilder, ir.Value], ir.Value]) -> Any:
    def shuffle(typingctx: Any, x: Any, number: Any) -> Any:
        if not _is_integer(number):
            return None

        def code(context: Any, b: Any, signature: Any, values: Any) -> Any:
            by = values[1]
            by = b.trunc(by, I32) if by.type.width > 32 else by
            return _shuffle(b, mode, values[0], operand(b, by))

        return x(x, number), code

    shuffle.__name__ = shuffle.__qualname__ = name
    return intrinsic(shuffle)


def _last_of(b: ir.IRBuilder, group: ir.Value) -> ir.Value:
    lane = b.call(_function(b.module, "llvm.nvvm.read.ptx.sreg.tid.x", I32, []), [])
    return b.or_(b.and_(lane, I32(31)), b.sub(group, I32(1)))


shuffle_xor = _make_shuffle("shuffle_xor", "bfly", lambda b, by: by)
shuffle_up = _make_shuffle("shuffle_up", "up", lambda b, by: by)
shuffle_last = _make_shuffle("shuffle_last", "idx", _last_of)
