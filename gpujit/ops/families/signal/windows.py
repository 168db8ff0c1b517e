"""Window functions of signal processing, computed in double precision and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpujit.ir.values import Array, Device
from gpujit.ops.families.memory.create import OPTIONS
from gpujit.ops.layout import cast, dtype_of, module_for, out_forms
from gpujit.ops.promotion import DEFAULT_FLOAT
from gpujit.ops.registry import library
from gpujit.ops.rules.factories import window_type
from gpujit.support.errors import DTypeError, ShapeError

TAU = 6.283185307179586


def _window(
    xp: Any,
    length: int,
    periodic: bool,
    dtype: int | None,
    device: Device | None,
    op: str,
    shape: Callable[[Any, Array, int], Array],
) -> Array:
    """A window of ``length`` samples; a periodic one is the first part of a window longer by one."""
    target = DEFAULT_FLOAT if dtype is None else dtype_of(dtype, op)
    if target.kind in "biuc":
        raise DTypeError(f"{op}: a floating dtype is needed, found {target}")
    if length < 0:
        raise ShapeError(f"{op}: the length must not be negative, found {length}")
    module = module_for(xp, device, op)
    if length < 2:
        return module.ones(length, dtype=target)
    last = length if periodic else length - 1
    return cast(shape(module, module.arange(length, dtype="float64"), last), target)


def _cosines(*weights: float) -> Callable[[Any, Array, int], Array]:
    """A sum of cosines with alternating signs."""

    def shape(xp: Any, n: Array, last: int) -> Array:
        y = xp.full(n.shape, weights[0])
        for k, w in enumerate(weights[1:], 1):
            y += (-w if k % 2 else w) * xp.cos(n * (TAU * k / last))
        return y

    return shape


def _triangle(xp: Any, n: Array, last: int) -> Array:
    y = n * (2.0 / last)
    return xp.minimum(y, 2.0 - y)


def _kaiser(beta: float) -> Callable[[Any, Array, int], Array]:
    def shape(xp: Any, n: Array, last: int) -> Array:
        r = n * (2.0 / last) - 1.0
        return xp.i0(beta * xp.sqrt(xp.maximum(0.0, 1.0 - r * r))) / xp.i0(xp.asarray([float(beta)]))

    return shape


def _declare() -> None:
    families: tuple[tuple[str, tuple[tuple[str, str], ...], Callable[..., Callable[[Any, Array, int], Array]]], ...] = (
        ("hann", (("", ""), ("periodic", ", bool periodic")), lambda: _cosines(0.5, 0.5)),
        (
            "hamming",
            (
                ("", ""),
                ("periodic", ", bool periodic"),
                ("periodic_alpha", ", bool periodic, float alpha"),
                ("periodic_alpha_beta", ", bool periodic, float alpha, float beta"),
            ),
            lambda alpha=0.54, beta=0.46: _cosines(alpha, beta),
        ),
        ("blackman", (("", ""), ("periodic", ", bool periodic")), lambda: _cosines(0.42, 0.5, 0.08)),
        ("bartlett", (("", ""), ("periodic", ", bool periodic")), lambda: _triangle),
        (
            "kaiser",
            (("", ""), ("periodic", ", bool periodic"), ("beta", ", bool periodic, float beta")),
            lambda beta=12.0: _kaiser(beta),
        ),
    )
    for family, overloads, make in families:
        name = f"aten::{family}_window"

        def window(xp: Any, length: int, *args: Any, op: str = name, make: Callable[..., Any] = make) -> Array:
            """A window of ``length`` samples; float32 unless a dtype is given."""
            *given, dtype, _, device, _ = args
            periodic = given[0] if given else True
            return _window(xp, length, periodic, dtype, device, op, make(*given[1:]))

        for overload, arguments in overloads:
            full_name = f"{name}.{overload}" if overload else name
            library(
                f"{full_name}(int window_length{arguments}, *, {OPTIONS}) -> Tensor",
                half="native",
                type_rule=window_type,
            )(window)
        for overload, arguments in overloads:
            full_name = f"{name}.{overload}" if overload else name
            out = f"{overload}_out" if overload else "out"
            out_forms(f"{name}.{out}(int window_length{arguments}, *, Tensor(a!) out) -> Tensor(a!)", of=full_name)


_declare()
