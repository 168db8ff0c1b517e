"""Functions of one operand: exponentials, trigonometry, rounding, signs, parts of complex numbers."""

from __future__ import annotations

import math
from typing import Any

from gpujit.ir.dtypes import BFLOAT16, FLOAT16
from gpujit.ir.values import Array
from gpujit.ops import element_bodies
from gpujit.ops.aliases import alias
from gpujit.ops.families.elementwise.pointwise import CAST_TO_FLOAT, FLOAT_ONLY, NO_BOOL, REAL_ONLY
from gpujit.ops.into import by_parts, fits, longest
from gpujit.ops.numeric import filled, filled_into
from gpujit.ops.promotion import real_of
from gpujit.ops.registry import library, out_form, pointwise
from gpujit.ops.rows import by_element
from gpujit.ops.rules.common import frexp_type, same_type
from gpujit.support.errors import DTypeError

# Functions that are one call of the array module: its name there, and the ONNX operator where there is one.
_FUNCTIONS = {
    "exp": ("exp", "Exp"), "exp2": ("exp2", None), "expm1": ("expm1", None),
    "log": ("log", "Log"), "log1p": ("log1p", None), "log2": ("log2", None), "log10": ("log10", None),
    "sin": ("sin", "Sin"), "cos": ("cos", "Cos"), "tan": ("tan", "Tan"),
    "asin": ("arcsin", "Asin"), "acos": ("arccos", "Acos"), "atan": ("arctan", "Atan"),
    "sinh": ("sinh", "Sinh"), "cosh": ("cosh", "Cosh"), "tanh": ("tanh", "Tanh"),
    "asinh": ("arcsinh", "Asinh"), "acosh": ("arccosh", "Acosh"), "atanh": ("arctanh", "Atanh"),
    "sqrt": ("sqrt", "Sqrt"),
}  # fmt: skip


def _declare_function(name: str, function: str, onnx: str | None) -> None:
    @pointwise(f"aten::{name}(Tensor self) -> Tensor", result="float", inplace=True, out="out", onnx=onnx, into=True)
    def body(m: Any, x: Array) -> Array:
        """That function of every element; integers and bools become floats."""
        return getattr(m, function)(x)


for _name, (_function, _onnx) in _FUNCTIONS.items():
    _declare_function(_name, _function, _onnx)
for _name in ("sin", "cos", "tan", "sinh", "cosh", "tanh"):
    alias(f"aten::arc{_name}", f"aten::a{_name}")


@pointwise("aten::rsqrt(Tensor self) -> Tensor", result="float", inplace=True, out="out", into=True)
def rsqrt(m: Any, x: Array) -> Array:
    """1 / sqrt(x)."""
    y = m.sqrt(x)
    return m.divide(1, y, out=y) if x.ndim else m.divide(1, y)


@pointwise(
    "aten::reciprocal(Tensor self) -> Tensor", result="float", inplace=True, out="out", onnx="Reciprocal", into=True
)
def reciprocal(m: Any, x: Array) -> Array:
    """1 / x."""
    return m.divide(1, x)


@pointwise("aten::square(Tensor self) -> Tensor", result="integer", inplace=True, out="out", into=True)
def square(m: Any, x: Array) -> Array:
    """x * x; of bools as integers."""
    return m.multiply(x, x)


def _sigmoid_into(m: Any, out: Array, x: Array) -> Any:
    return filled_into(m, out, _sigmoid, x)


@pointwise(
    "aten::sigmoid(Tensor self) -> Tensor",
    result="float", inplace=True, out="out", onnx="Sigmoid", into=_sigmoid_into,
)  # fmt: skip
def sigmoid(m: Any, x: Array) -> Array:
    """1 / (1 + exp(-x)); an overflow of exp gives the right 0."""
    return filled(m, _sigmoid, x)


def _sigmoid(m: Any, x: Any, y: Any) -> None:
    m.negative(x, out=y)
    m.exp(y, out=y)
    m.add(y, 1, out=y)
    m.reciprocal(y, out=y)


@pointwise(
    "aten::logit(Tensor self, float? eps=None) -> Tensor", result="float", refuse=REAL_ONLY, inplace=True, out="out"
)
def logit(m: Any, x: Array, eps: float | None) -> Array:
    """log(x / (1 - x)), with x first kept within [eps, 1 - eps]."""
    if eps is not None:
        x = m.minimum(m.maximum(x, eps), 1 - eps)
    return m.log(x / (1 - x))


@pointwise("aten::sinc(Tensor self) -> Tensor", result="float", inplace=True, out="out")
def sinc(m: Any, x: Array) -> Array:
    """sin(pi x) / (pi x), and 1 at 0."""
    y = x * math.pi
    return m.where(x == 0, 1, m.sin(y) / y)


@pointwise("aten::deg2rad(Tensor self) -> Tensor", result="float", refuse=REAL_ONLY, inplace=True, out="out", into=True)
def deg2rad(m: Any, x: Array) -> Array:
    """Degrees in radians."""
    return m.multiply(x, math.pi / 180)


@pointwise("aten::rad2deg(Tensor self) -> Tensor", result="float", refuse=REAL_ONLY, inplace=True, out="out", into=True)
def rad2deg(m: Any, x: Array) -> Array:
    """Radians in degrees."""
    return m.multiply(x, 180 / math.pi)


# ----------------------------------------------------------------------------------------------------- rounding

_NO_ROUNDING = {**NO_BOOL, **REAL_ONLY}


def _declare_rounding(name: str, function: str, onnx: str | None) -> None:
    @pointwise(
        f"aten::{name}(Tensor self) -> Tensor", refuse=_NO_ROUNDING, inplace=True, out="out", onnx=onnx, into=True
    )
    def body(m: Any, x: Array) -> Array:
        """Whole numbers in the dtype of ``x``; integers come back as they are."""
        return x.copy() if x.dtype.kind in "iu" else getattr(m, function)(x)


# rint rounds half to even, as PyTorch's round does.
_ROUNDINGS = {
    "floor": ("floor", "Floor"),
    "ceil": ("ceil", "Ceil"),
    "trunc": ("trunc", None),
    "round": ("rint", "Round"),
}
for _name, (_function, _onnx) in _ROUNDINGS.items():
    _declare_rounding(_name, _function, _onnx)
alias("aten::fix", "aten::trunc")


@pointwise(
    "aten::round.decimals(Tensor self, *, int decimals) -> Tensor", refuse=FLOAT_ONLY, inplace=True, out="decimals_out"
)
def round_decimals(m: Any, x: Array, decimals: int) -> Array:
    """``x`` rounded half to even at that many decimal places; negative ones stand left of the point."""
    if decimals == 0:
        return m.rint(x)
    ten = 10.0 ** abs(decimals)
    return m.rint(x * ten) / ten if decimals > 0 else m.rint(x / ten) * ten


@pointwise("aten::special_round(Tensor self, *, int decimals=0) -> Tensor", refuse=_NO_ROUNDING, out="out")
def special_round(m: Any, x: Array, decimals: int) -> Array:
    """``x`` rounded half to even at that many decimal places."""
    if decimals == 0 and x.dtype.kind in "iu":
        return x.copy()
    return round_decimals(m, x, decimals)


def _frac_into(m: Any, out: Array, x: Array) -> None:
    m.subtract(x, m.trunc(x, out=None if out is x else out), out=out)


@pointwise("aten::frac(Tensor self) -> Tensor", refuse=FLOAT_ONLY, inplace=True, out="out", into=_frac_into)
def frac(m: Any, x: Array) -> Array:
    """x - trunc(x), which has the sign of ``x``."""
    return m.subtract(x, m.trunc(x))


# -------------------------------------------------------------------------------------- signs and complex parts


@pointwise("aten::neg(Tensor self) -> Tensor", refuse={"bool": "use `~` or logical_not to invert a mask"},
           inplace=True, out="out", onnx="Neg", into=True)  # fmt: skip
def neg(m: Any, x: Array) -> Array:
    """-x; unsigned integers wrap."""
    return m.negative(x)


@pointwise(
    "aten::abs(Tensor self) -> Tensor", result="real", refuse=NO_BOOL, inplace=True, out="out", onnx="Abs", into=True
)
def abs_(m: Any, x: Array) -> Array:
    """The magnitude; of complex numbers a real tensor."""
    return m.absolute(x)


alias("aten::negative", "aten::neg")
alias("aten::absolute", "aten::abs")


@pointwise("aten::sign(Tensor self) -> Tensor", refuse={"complex": "use sgn"}, inplace=True, out="out", onnx="Sign")
def sign(m: Any, x: Array) -> Array:
    """-1, 0 or 1 by the sign; NaN gives 0."""
    kind = x.dtype.kind
    if kind == "b":
        return x.copy()
    return m.subtract(x > 0, x < 0, dtype=x.dtype) if kind == "f" else m.sign(x)


@pointwise("aten::sgn(Tensor self) -> Tensor", inplace=True, out="out")
def sgn(m: Any, x: Array) -> Array:
    """x / |x|, and 0 at 0."""
    if x.dtype.kind != "c":
        return sign(m, x)
    size = m.absolute(x)
    zero = size == 0
    return m.where(zero, 0, x / m.where(zero, 1, size))


@pointwise("aten::signbit(Tensor self) -> Tensor", result="bool", refuse=REAL_ONLY, out="out", into=True)
def signbit(m: Any, x: Array) -> Array:
    """Whether the sign bit is set, as it is in -0."""
    return m.signbit(x) if x.dtype.kind == "f" else x < 0


def _angle_into(m: Any, out: Array, x: Array) -> Any:
    kind = x.dtype.kind
    if kind not in "fc" or not fits(out, x.shape, real_of(x.dtype)):
        return NotImplemented
    if kind == "c":
        m.arctan2(x.imag, x.real, out=out)
        return None
    m.multiply(x < 0, math.pi, out=out, dtype=x.dtype)
    m.copyto(out, x, where=m.isnan(x))
    return None


@pointwise("aten::angle(Tensor self) -> Tensor", result="any", out="out", into=_angle_into)
def angle(m: Any, x: Array) -> Array:
    """The angle of complex numbers; of reals 0 or pi, NaN for NaN."""
    kind = x.dtype.kind
    if kind == "c":
        return m.arctan2(x.imag, x.real)
    y = m.multiply(x < 0, math.pi, dtype=x.dtype if kind == "f" else m.float32)
    return m.where(m.isnan(x), x, y) if kind == "f" else y


@pointwise("aten::conj_physical(Tensor self) -> Tensor", inplace=True, out="out", into=True)
def conj_physical(m: Any, x: Array) -> Array:
    """The complex conjugate, in memory of its own."""
    return m.conjugate(x) if x.dtype.kind == "c" else x.copy()


@pointwise("aten::_conj_physical(Tensor self) -> Tensor", out="out", into=True)
def conj_physical_(m: Any, x: Array) -> Array:
    """The complex conjugate, in memory of its own."""
    return conj_physical(m, x)


@pointwise("aten::isreal(Tensor self) -> Tensor", result="bool")
def isreal(m: Any, x: Array) -> Array:
    """Whether the imaginary part is zero."""
    return x.imag == 0 if x.dtype.kind == "c" else m.ones_like(x, dtype=bool)


# ------------------------------------------------------------------------------------------- float bits and NaN

# Of float16 and bfloat16, whose largest number a body computing in float32 would not know.
_LARGEST = {FLOAT16: 65504.0, BFLOAT16: 3.3895313892515355e38}


def _any_axis(x: Array, *numbers: Any) -> int | None:
    return longest(x.shape)


@library(
    "aten::nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
    half="native", inplace=True, out="out",
    type_rule=same_type, into=by_parts(_any_axis), scalar=by_element(element_bodies.nan_to_num(_LARGEST)),
)  # fmt: skip
def nan_to_num(xp: Any, x: Array, nan: float | None, posinf: float | None, neginf: float | None) -> Array:
    """``x`` with NaN and the infinities replaced: by 0 and the dtype's largest and smallest number by default."""
    dtype = x.dtype
    if dtype.kind == "c":
        y = xp.empty_like(x)
        y.real = nan_to_num(xp, x.real, nan, posinf, neginf)
        y.imag = nan_to_num(xp, x.imag, nan, posinf, neginf)
        return y
    if dtype.kind in "biu":
        return x.copy()
    largest = _LARGEST[dtype] if dtype in _LARGEST else float(xp.finfo(dtype).max)
    y = x.copy()
    y[xp.isnan(x)] = 0.0 if nan is None else nan
    y[x == math.inf] = largest if posinf is None else posinf
    y[x == -math.inf] = -largest if neginf is None else neginf
    return y


@library("aten::frexp.Tensor(Tensor self) -> (Tensor mantissa, Tensor exponent)", type_rule=frexp_type)
def frexp(xp: Any, x: Array) -> tuple[Array, Array]:
    """Mantissa in [0.5, 1) and int32 exponent with x = mantissa * 2**exponent."""
    if x.dtype.kind != "f":
        raise DTypeError(f"aten::frexp: {x.dtype} tensors are not supported; {CAST_TO_FLOAT}")
    mantissa, exponent = xp.frexp(x)
    return mantissa, xp.asarray(exponent, dtype=xp.int32)


out_form(
    "aten::frexp.Tensor_out(Tensor self, *, Tensor(a!) mantissa, Tensor(b!) exponent) "
    "-> (Tensor(a!) mantissa, Tensor(b!) exponent)",
    "aten::frexp.Tensor",
)


@pointwise(
    "static_runtime::signed_log1p(Tensor input) -> Tensor", result="float", refuse=REAL_ONLY, operands=("input",)
)
def signed_log1p(m: Any, x: Array) -> Array:
    """sign(x) * log(1 + |x|)."""
    return m.sign(x) * m.log1p(m.absolute(x))
