"""Dropout in its variants, and rrelu: identity (or a fixed slope) outside training, random in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpujit.ir.dtypes import BOOL_, FLOAT32, FLOAT64, HALF_TYPES
from gpujit.ir.values import Array
from gpujit.ops import element_bodies
from gpujit.ops.families.random.random import fill
from gpujit.ops.families.random.samplers import bernoulli_numbers
from gpujit.ops.generator import DEFAULT, Generator
from gpujit.ops.into import copied
from gpujit.ops.layout import cast, empty_preserved, out_forms
from gpujit.ops.promotion import to_floating
from gpujit.ops.registry import library
from gpujit.ops.rows import by_element
from gpujit.ops.rules.common import floating_type, masked_type, same_type
from gpujit.ops.writes import check_writable, write_into
from gpujit.support.errors import DTypeError, OpError, ShapeError

# The value SELU saturates at, negated: what alpha dropout puts in place of a dropped element.
_ALPHA = 1.7580993408473766


def _noise(xp: Any, x: Array, p: float, feature: bool, op: str) -> Array:
    """Zeros and ones (with probability 1 - p), one for each element or for each channel."""
    if feature:
        if x.ndim < 2:
            raise ShapeError(f"{op}: at least 2 dims are needed, shape {list(x.shape)} has {x.ndim}")
        noise = xp.empty((*x.shape[:2], *(1,) * (x.ndim - 2)), x.dtype)
    else:
        noise = empty_preserved(xp, x)
    return fill(xp, noise, None, bernoulli_numbers, 1.0 - p)


def dropped(xp: Any, x: Array, p: float, op: str) -> Array:
    """``x`` in training: each element is 0 with probability ``p``, else it is divided by ``1 - p``. Raises OpError."""
    if not 0 <= p <= 1:
        raise OpError(f"{op}: the probability of dropout must lie in [0, 1], found {p}")
    return x if p == 0 or x.size == 0 else _dropped(xp, x, p, False, False, op)


def _dropped(xp: Any, x: Array, p: float, feature: bool, alpha: bool, op: str) -> Array:
    """``x`` with elements or channels dropped."""
    half = x.dtype in HALF_TYPES
    wide = x.astype(FLOAT32) if half else x
    if p == 1:
        return cast(wide * wide.dtype.type(0), x.dtype)
    noise = _noise(xp, x, p, feature, op)
    if not alpha:
        # The noise itself has the tensor's dtype, so its scale is rounded to it first.
        noise *= (noise.dtype.type(1) / noise.dtype.type(1.0 - p)) if not half else noise.dtype.type(1.0 / (1.0 - p))
        return cast(wide * cast(noise, wide.dtype), x.dtype)
    a = 1.0 / ((_ALPHA * _ALPHA * p + 1.0) * (1.0 - p)) ** 0.5
    n = cast(noise, wide.dtype)
    kind = wide.dtype.type
    shift = (n - kind(1)) * kind(_ALPHA * a) + kind(_ALPHA * a * p)
    return cast(wide * (n * kind(a)) + shift, x.dtype)


def _declare_dropouts() -> None:
    for name, feature, alpha in (
        ("dropout", False, False),
        ("feature_dropout", True, False),
        ("alpha_dropout", False, True),
        ("feature_alpha_dropout", True, True),
    ):
        op = f"aten::{name}"

        def check(x: Array, p: float, op: str) -> None:
            if not 0 <= p <= 1:
                raise OpError(f"{op}: p must lie in [0, 1], found {p}")
            if x.dtype.kind in "biu":
                raise DTypeError(f"{op}: a floating dtype is needed in training, found {x.dtype}")

        def dropout(
            xp: Any, x: Array, p: float, train: bool, *, op: str = op, feature: bool = feature, alpha: bool = alpha
        ) -> Array:
            """The tensor itself outside training; else with elements dropped and the rest scaled to keep the mean."""
            if not train or p == 0 or x.size == 0:
                return x
            check(x, p, op)
            return _dropped(xp, x, p, feature, alpha, op)

        def into(xp: Any, out: Array, x: Array, p: float, train: bool) -> Any:
            return NotImplemented if train and p and x.size else copied(out, x)

        def dropout_in_place(
            xp: Any,
            x: Array,
            p: float,
            train: bool,
            *,
            op: str = f"{op}_",
            feature: bool = feature,
            alpha: bool = alpha,
        ) -> Array:
            """The tensor itself, in training with elements dropped and the rest scaled to keep the mean."""
            if not train or p == 0 or x.size == 0:
                return x
            check(x, p, op)
            check_writable(x, op)
            x[...] = _dropped(xp, x, p, feature, alpha, op)
            return x

        library(
            f"{op}(Tensor input, float p, bool train) -> Tensor",
            half="native",
            random=True,
            active_if=("train",),
            may_alias=True,
            type_rule=same_type,
            into=into,
            scalar=by_element(element_bodies.undropped(op)),
        )(dropout)
        library(
            f"{op}_(Tensor(a!) self, float p, bool train) -> Tensor(a!)",
            half="native",
            random=True,
            active_if=("train",),
        )(dropout_in_place)


_declare_dropouts()


@library(
    "aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)",
    half="native",
    random=True,
    active_if=("train",),
    may_alias=True,
    type_rule=masked_type,
)
def native_dropout(xp: Any, x: Array, p: float, train: bool | None) -> tuple[Array, Array]:
    """The tensor with elements dropped, and the mask of those kept."""
    op = "aten::native_dropout"
    if train is False or x.size == 0:
        return x, xp.ones(x.shape, BOOL_)
    if not 0 <= p <= 1:
        raise OpError(f"{op}: p must lie in [0, 1], found {p}")
    if x.dtype.kind in "biu":
        raise DTypeError(f"{op}: a floating dtype is needed in training, found {x.dtype}")
    mask = fill(xp, empty_preserved(xp, x, BOOL_), None, bernoulli_numbers, 1.0 - p)
    wide = x.astype(FLOAT32) if x.dtype in HALF_TYPES else x
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    return cast(wide * mask * wide.dtype.type(scale), x.dtype), mask


@library(
    "aten::native_dropout_backward(Tensor grad_output, Tensor mask, float scale) -> Tensor",
    half="native",
    out="out",
    type_rule=floating_type,
)
def native_dropout_backward(xp: Any, grad: Array, mask: Array, scale: float) -> Array:
    """The gradient where elements were kept, scaled."""
    if grad.dtype in HALF_TYPES:
        return cast(grad.astype(FLOAT32) * mask * FLOAT32.type(scale), grad.dtype)
    wide = cast(grad, to_floating(grad.dtype))
    return wide * mask * wide.dtype.type(scale)


out_forms(
    "aten::native_dropout.out(Tensor input, float p, bool? train, *, Tensor(a!) out0, Tensor(b!) out1) "
    "-> (Tensor(a!), Tensor(b!))",
    of="aten::native_dropout",
)


# ------------------------------------------------------------------------------------------------ rrelu


def _rrelu(
    xp: Any, x: Array, lower: float, upper: float, training: bool, generator: Generator | None, op: str
) -> tuple[Array, Array | None]:
    """Negative elements times a slope: the middle one, or in training a drawn one for each; and the slopes drawn."""
    if x.dtype.kind in "biuc":
        raise DTypeError(f"{op}: a floating dtype is needed, found {x.dtype}")
    if not lower <= upper:
        raise OpError(f"{op}: lower {lower} must not exceed upper {upper}")
    wide = x.astype(FLOAT32) if x.dtype in HALF_TYPES else x
    if not training:
        slope = wide.dtype.type((lower + upper) / 2)
        return cast(xp.where(wide > 0, wide, wide * slope), x.dtype), None
    negative = wide <= 0
    g = generator or DEFAULT
    with g.lock:
        drawn = g.doubles(int(negative.sum())) * (upper - lower) + lower
    slopes = xp.ones(x.shape, FLOAT64)
    slopes[negative] = xp.asarray(drawn)
    slopes = slopes.astype(wide.dtype)
    return cast(wide * slopes, x.dtype), cast(slopes, x.dtype)


def _declare_rrelu() -> None:
    slopes = "Scalar lower=0.125, Scalar upper=0.33333333333333331, bool training=False, Generator? generator=None"

    def with_noise(in_place: bool, op: str) -> Callable[..., Array]:
        def body(
            xp: Any, x: Array, noise: Array, lower: Any, upper: Any, training: bool, generator: Generator | None
        ) -> Array:
            """Negative elements times a slope; in training the slopes drawn are stored in ``noise``."""
            y, drawn = _rrelu(xp, x, lower, upper, training, generator, op)
            if drawn is not None:
                noise[...] = drawn
            if not in_place:
                return y
            check_writable(x, op)
            x[...] = y
            return x

        return body

    @library(
        f"aten::rrelu(Tensor self, {slopes}) -> Tensor",
        half="native",
        inplace=True,
        random=True,
        active_if=("training",),
        type_rule=same_type,
    )
    def rrelu(xp: Any, x: Array, lower: Any, upper: Any, training: bool, generator: Generator | None) -> Array:
        """Negative elements times a slope: the mean of both, or in training one drawn for each."""
        return _rrelu(xp, x, lower, upper, training, generator, "aten::rrelu")[0]

    op = "aten::rrelu_with_noise"
    library(
        f"{op}(Tensor self, Tensor(b!) noise, {slopes}) -> Tensor",
        half="native",
        random=True,
        active_if=("training",),
        type_rule=same_type,
    )(with_noise(False, op))
    library(
        f"{op}_(Tensor(a!) self, Tensor(b!) noise, {slopes}) -> Tensor(a!)",
        half="native",
        random=True,
        active_if=("training",),
    )(with_noise(True, f"{op}_"))

    def with_noise_out(xp: Any, x: Array, noise: Array, *args: Any) -> Array:
        """``out`` with negative elements times a slope."""
        *rest, out = args
        return write_into(out, with_noise(False, op)(xp, x, noise, *rest), f"{op}.out")

    library(
        f"aten::rrelu_with_noise.out(Tensor self, Tensor(b!) noise, {slopes}, *, Tensor(a!) out) -> Tensor(a!)",
        half="native",
        random=True,
        active_if=("training",),
    )(with_noise_out)


_declare_rrelu()
