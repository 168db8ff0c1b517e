"""Operators whose meaning changed: what they meant in files of older format versions.

Each entry stands in for one overload of today's operator in files with a version below ``until``.
Source: PyTorch's operator upgraders (18 overloads as of 2.13); their effects were found by experiment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpujit.ir.dtypes import code_of, kind_of
from gpujit.ir.values import Array
from gpujit.ops.promotion import DEFAULT_FLOAT, result_type
from gpujit.ops.registry import Body, Op, by_full_name, library
from gpujit.support.errors import InternalError

# (operator, version below which it applies) -> overload -> entry
_HISTORIC: dict[str, tuple[int, dict[str, Op]]] = {}


def _until(version: int, replaces: str, schema: str) -> Callable[[Body], Body]:
    """Declare what ``replaces`` meant below ``version``; ``schema`` names the entry itself."""

    def declare(body: Body) -> Body:
        library(schema, half="native")(body)
        name, _, overload = replaces.partition(".")
        entry = by_full_name(schema[: schema.index("(")])
        if entry is None:
            raise InternalError(f"{schema} was not entered")
        _HISTORIC.setdefault(name, (version, {}))[1][overload] = entry
        return body

    return declare


def historic(name: str, version: int) -> dict[str, Op]:
    """Entries, by overload, that stand in for today's ``name`` in files of that format version."""
    until, entries = _HISTORIC.get(name, (0, {}))
    return entries if version < until else {}


# Overloads whose meaning changed, and the first file version that has the new one.
_CHANGED: dict[str, int] = {
    f"aten::{name}{'.' if overload else ''}{overload}": version
    for name, version, overloads in (
        ("div", 4, ("Tensor", "Scalar", "out", "Tensor_mode", "Scalar_mode", "out_mode")),
        ("div_", 4, ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")),
        ("full", 5, ("", "out")),
        ("linspace", 8, ("", "out")),
        ("logspace", 9, ("", "out")),
        ("gelu", 10, ("", "out")),
    )
    for overload in overloads
}


def changed_at(name: str) -> int:
    """The least file version in which an operator, named with its overload, means what it does today; 0 for any."""
    return _CHANGED.get(name, 0)


def _today(name: str, xp: Any) -> Callable[..., Any]:
    op = by_full_name(name)
    if op is None:
        raise InternalError(f"{name} is missing from the operator table")
    return op.kernel(xp)


def _truncates(*operands: Any) -> bool:
    """Whether old division of these operands was integer division: neither side is floating or complex."""
    return kind_of(result_type(*operands)) < 2


@_until(4, "aten::div.Tensor", "upgrader::div_Tensor_0_3(Tensor self, Tensor other) -> Tensor")
def div_tensor(xp: Any, x: Array, other: Array) -> Array:
    """True division when either side is floating, truncating integer division otherwise."""
    mode = "trunc" if _truncates(x, other) else None
    return _today("aten::div.Tensor_mode", xp)(x, other, mode)


@_until(4, "aten::div.Scalar", "upgrader::div_Scalar_0_3(Tensor self, Scalar other) -> Tensor")
def div_scalar(xp: Any, x: Array, other: Any) -> Array:
    """As ``div_tensor`` with a number on the right."""
    mode = "trunc" if _truncates(x, other) else None
    return _today("aten::div.Scalar_mode", xp)(x, other, mode)


@_until(4, "aten::div.out", "upgrader::div_out_0_3(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)")
def div_out(xp: Any, x: Array, other: Array, out: Array) -> Array:
    """As ``div_tensor``, except that a floating result tensor makes it true division."""
    mode = "trunc" if _truncates(x, other, out) else None
    return _today("aten::div.out_mode", xp)(x, other, mode, out)


@_until(4, "aten::div_.Tensor", "upgrader::div__Tensor_0_3(Tensor(a!) self, Tensor other) -> Tensor(a!)")
def div_inplace_tensor(xp: Any, x: Array, other: Array) -> Array:
    """``div_tensor`` written into ``self``."""
    mode = "trunc" if _truncates(x, other) else None
    return _today("aten::div_.Tensor_mode", xp)(x, other, mode)


@_until(4, "aten::div_.Scalar", "upgrader::div__Scalar_0_3(Tensor(a!) self, Scalar other) -> Tensor(a!)")
def div_inplace_scalar(xp: Any, x: Array, other: Any) -> Array:
    """``div_scalar`` written into ``self``."""
    mode = "trunc" if _truncates(x, other) else None
    return _today("aten::div_.Scalar_mode", xp)(x, other, mode)


_OPTIONS = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"


@_until(5, "aten::full", f"upgrader::full_0_4(int[] size, Scalar fill_value, *, {_OPTIONS}) -> Tensor")
def full(xp: Any, size: list[int], value: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Array:
    """``full`` whose result is floating even for an integer fill value."""
    if dtype is None and not isinstance(value, complex):
        dtype = code_of(DEFAULT_FLOAT)
    return _today("aten::full", xp)(size, value, dtype, layout, device, pin_memory)


@_until(5, "aten::full.out", "upgrader::full_out_0_4(int[] size, Scalar fill_value, *, Tensor(a!) out) -> Tensor(a!)")
def full_out(xp: Any, size: list[int], value: Any, out: Array) -> Array:
    """``full`` into a given tensor."""
    return _today("aten::full.out", xp)(size, value if isinstance(value, complex) else float(value), out)


@_until(
    8, "aten::linspace", f"upgrader::linspace_0_7(Scalar start, Scalar end, int? steps=None, *, {_OPTIONS}) -> Tensor"
)
def linspace(xp: Any, start: Any, end: Any, steps: Any, *options: Any) -> Array:
    """``linspace`` of 100 steps unless told otherwise."""
    return _today("aten::linspace", xp)(start, end, 100 if steps is None else steps, *options)


@_until(
    8,
    "aten::linspace.out",
    "upgrader::linspace_out_0_7(Scalar start, Scalar end, int? steps=None, *, Tensor(a!) out) -> Tensor(a!)",
)
def linspace_out(xp: Any, start: Any, end: Any, steps: Any, out: Array) -> Array:
    """``linspace`` of 100 steps unless told otherwise, into a given tensor."""
    return _today("aten::linspace.out", xp)(start, end, 100 if steps is None else steps, out)


@_until(
    9,
    "aten::logspace",
    f"upgrader::logspace_0_8(Scalar start, Scalar end, int? steps=None, float base=10., *, {_OPTIONS}) -> Tensor",
)
def logspace(xp: Any, start: Any, end: Any, steps: Any, base: float, *options: Any) -> Array:
    """``logspace`` of 100 steps unless told otherwise."""
    return _today("aten::logspace", xp)(start, end, 100 if steps is None else steps, base, *options)


@_until(
    9,
    "aten::logspace.out",
    "upgrader::logspace_out_0_8(Scalar start, Scalar end, int? steps=None, float base=10., *, "
    "Tensor(a!) out) -> Tensor(a!)",
)
def logspace_out(xp: Any, start: Any, end: Any, steps: Any, base: float, out: Array) -> Array:
    """``logspace`` of 100 steps unless told otherwise, into a given tensor."""
    return _today("aten::logspace.out", xp)(start, end, 100 if steps is None else steps, base, out)


@_until(10, "aten::gelu", "upgrader::gelu_0_9(Tensor self) -> Tensor")
def gelu(xp: Any, x: Array) -> Array:
    """``gelu`` without approximation: the argument did not exist."""
    return _today("aten::gelu", xp)(x, "none")


@_until(10, "aten::gelu.out", "upgrader::gelu_out_0_9(Tensor self, *, Tensor(a!) out) -> Tensor(a!)")
def gelu_out(xp: Any, x: Array, out: Array) -> Array:
    """``gelu`` without approximation, into a given tensor."""
    return _today("aten::gelu.out", xp)(x, "none", out)
