"""Scalar operations of tile programs on LLVM vectors: one function for each name of ``ir.scalar.SCALAR_OPS``.

Half types are held as float32 whose value is one of the half type: ``cast`` to them rounds. NaN, infinities, -0.0 and
wrapping integers mean what the table in ``ir.scalar`` says; divisions of integers by 0 give 0 and never trap.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpujit.kernels.math import FUNCTIONS
from gpujit.kernels.tile import NotRendered
from gpujit.kernels.vector import ELEMENTS, Emitter, Vector

HALF = ("float16", "bfloat16")


def held(dtype: np.dtype) -> str:
    """The element type that values of ``dtype`` have in registers. Raises NotRendered for one without."""
    name = dtype.name
    if name in HALF:
        return "float32"
    if name not in ELEMENTS:
        raise NotRendered(f"values of {name}")
    return name


def cast(e: Emitter, x: Vector, source: np.dtype, target: np.dtype) -> Vector:
    """``x`` of the program's dtype ``source`` as ``target``."""
    if source.name in HALF and target.name == source.name:
        return x
    if target.name == "float16":
        x = e.cast(x, "float32")
        return x._new(e.builder.fpext(e.half_precision(x), x.value.type))
    if target.name == "bfloat16":
        x = e.cast(x, "float32")
        bits = e.bitcast(x, "uint32")
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return e.select(x != x, x, e.bitcast(rounded, "float32"))
    return e.cast(x, held(target))


def compute(e: Emitter, op: str, operands: list[Vector]) -> Vector:
    """The operation on vectors of equally many lanes. Raises NotRendered for an operation without code."""
    made = _OPS.get(op)
    if made is not None:
        return made(e, *operands)
    function = FUNCTIONS.get(_MATH.get(op, op))
    if function is None or operands[0].element.kind != "f":
        raise NotRendered(f"{op} of {operands[0].dtype}")
    return function(e, *operands)


# Where the table of vector functions uses another name.
_MATH = {"rint": "round"}


def _fmax(e: Emitter, x: Vector, y: Vector) -> Vector:
    larger = e.select(x > y, x, y)
    return e.select(y != y, x, larger) if x.element.kind == "f" else larger


def _fmin(e: Emitter, x: Vector, y: Vector) -> Vector:
    smaller = e.select(x < y, x, y)
    return e.select(y != y, x, smaller) if x.element.kind == "f" else smaller


def _divide(e: Emitter, x: Vector, y: Vector) -> tuple[Vector, Vector, Vector]:
    """(quotient towards zero, divisor, is zero) of integers: 0 and -1, which trap, are divided by in other ways."""
    zero = y == 0
    if x.element.kind == "u":
        safe = e.select(zero, 1, y)
        return x._new(e.builder.udiv(x.value, safe.value)), safe, zero
    minus = y == -1
    safe = e.select(zero | minus, 1, y)
    return e.select(minus, -x, x._new(e.builder.sdiv(x.value, safe.value))), e.select(zero, 1, y), zero


def _floordiv(e: Emitter, x: Vector, y: Vector) -> Vector:
    if x.element.kind == "f":
        rest = FUNCTIONS["fmod"](e, x, y)
        quotient = (x - rest) / y
        quotient = e.select((rest != 0) & ((y < 0) ^ (rest < 0)), quotient - 1, quotient)
        whole = e.floor(quotient)
        whole = e.select(quotient - whole > 0.5, whole + 1, whole)
        whole = e.select(quotient == 0, e.copysign(x.like(0.0), x / y), whole)
        return e.select(y == 0, x / y, whole)
    quotient, divisor, zero = _divide(e, x, y)
    if x.element.kind == "i":
        rest = x - quotient * divisor
        quotient = e.select((rest != 0) & ((rest ^ divisor) < 0), quotient - 1, quotient)
    return e.select(zero, 0, quotient)


def _mod(e: Emitter, x: Vector, y: Vector) -> Vector:
    if x.element.kind == "f":
        return FUNCTIONS["remainder"](e, x, y)
    quotient, divisor, zero = _divide(e, x, y)
    rest = x - quotient * divisor
    if x.element.kind == "i":
        rest = e.select((rest != 0) & ((rest ^ divisor) < 0), rest + divisor, rest)
    return e.select(zero, 0, rest)


def _fmod(e: Emitter, x: Vector, y: Vector) -> Vector:
    if x.element.kind == "f":
        return FUNCTIONS["fmod"](e, x, y)
    quotient, divisor, zero = _divide(e, x, y)
    return e.select(zero, 0, x - quotient * divisor)


def _pow(e: Emitter, x: Vector, y: Vector) -> Vector:
    if x.element.kind == "f":
        return FUNCTIONS["pow"](e, x, y)
    # Squares of x for the bits of y that are set. A dozen instructions a bit are many, so it is a loop.
    b = e.builder
    entry = b.block
    body, done = b.append_basic_block("power"), b.append_basic_block("powered")
    one = x.like(1)
    b.branch(body)
    b.position_at_end(body)
    phis = [b.phi(x.value.type) for _ in range(3)]
    base, left, result = (x._new(p) for p in phis)
    following = (
        base * base,
        left._new(b.lshr(left.value, one.value)),
        e.select((left & 1) != 0, result * base, result),
    )
    for phi, start, after in zip(phis, (x, y, one), following, strict=True):
        phi.add_incoming(start.value, entry)
        phi.add_incoming(after.value, body)
    b.cbranch(e.any(following[1] != 0).value, body, done)
    b.position_at_end(done)
    return following[2]


def _logaddexp(exp: str, scale: float) -> Callable[[Emitter, Vector, Vector], Vector]:
    """log(exp(x) + exp(y)) to the base of ``exp``, in which log1p(t) is ``scale`` times the natural one."""

    def build(e: Emitter, x: Vector, y: Vector) -> Vector:
        more = FUNCTIONS["log1p"](e, FUNCTIONS[exp](e, -e.abs(x - y)))
        return e.select((x == y) & (e.abs(x) == float("inf")), x, e.maximum(x, y) + more * scale)

    return build


def _shift_left(e: Emitter, x: Vector, y: Vector) -> Vector:
    fits = (y >= 0) & (y < x.element.bits)
    return e.select(fits, x << e.select(fits, y, 0), 0)


def _shift_right(e: Emitter, x: Vector, y: Vector) -> Vector:
    fits = (y >= 0) & (y < x.element.bits)
    return x >> e.select(fits, y, x.element.bits - 1)


def _sign_bit(e: Emitter, x: Vector) -> Vector:
    return e.bitcast(x, f"int{x.element.bits}") < 0


def _gcd(e: Emitter, x: Vector, y: Vector) -> Vector:
    """Euclid's steps until no lane has a rest."""
    b = e.builder
    x, y = e.abs(x), e.abs(y)
    entry = b.block
    body, done = b.append_basic_block("gcd"), b.append_basic_block("gcd.done")
    b.branch(body)
    b.position_at_end(body)
    phis = [b.phi(x.value.type) for _ in range(2)]
    large, small = (x._new(p) for p in phis)
    over = small == 0
    rest = _fmod(e, large, small)
    following = (e.select(over, large, small), e.select(over, 0, e.abs(rest)))
    for phi, start, after in zip(phis, (x, y), following, strict=True):
        phi.add_incoming(start.value, entry)
        phi.add_incoming(after.value, b.block)
    b.cbranch(e.any(following[1] != 0).value, body, done)
    b.position_at_end(done)
    return e.abs(following[0])


def _lcm(e: Emitter, x: Vector, y: Vector) -> Vector:
    common = _gcd(e, x, y)
    quotient, _, zero = _divide(e, x, common)
    return e.abs(e.select(zero, 0, quotient * y))


_OPS: dict[str, Callable[..., Vector]] = {
    "add": lambda e, x, y: x + y,
    "sub": lambda e, x, y: x - y,
    "mul": lambda e, x, y: x * y,
    "div": lambda e, x, y: x / y,
    "neg": lambda e, x: -x,
    "abs": lambda e, x: e.abs(x),
    "maximum": lambda e, x, y: e.maximum(x, y),
    "minimum": lambda e, x, y: e.minimum(x, y),
    "fmax": _fmax,
    "fmin": _fmin,
    "pow": _pow,
    "floordiv": _floordiv,
    "mod": _mod,
    "fmod": _fmod,
    "copysign": lambda e, x, y: e.copysign(x, y),
    "logaddexp": _logaddexp("exp", 1.0),
    "logaddexp2": _logaddexp("exp2", 1.4426950408889634),
    "eq": lambda e, x, y: x == y if x.dtype != "bool" else ~(x ^ y),
    "ne": lambda e, x, y: x != y if x.dtype != "bool" else x ^ y,
    "lt": lambda e, x, y: x < y if x.dtype != "bool" else ~x & y,
    "le": lambda e, x, y: x <= y if x.dtype != "bool" else ~x | y,
    "gt": lambda e, x, y: x > y if x.dtype != "bool" else x & ~y,
    "ge": lambda e, x, y: x >= y if x.dtype != "bool" else x | ~y,
    "isnan": lambda e, x: x != x,
    "isinf": lambda e, x: e.abs(x) == float("inf"),
    "isfinite": lambda e, x: e.abs(x) < float("inf"),
    "signbit": _sign_bit,
    "and": lambda e, x, y: x & y,
    "or": lambda e, x, y: x | y,
    "xor": lambda e, x, y: x ^ y,
    "not": lambda e, x: ~x,
    "shl": _shift_left,
    "shr": _shift_right,
    "gcd": _gcd,
    "lcm": _lcm,
    "where": lambda e, c, x, y: e.select(c, x, y),
}
