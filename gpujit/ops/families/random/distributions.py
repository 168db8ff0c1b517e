"""In-place fills with random numbers of one distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BOOL_
from gpujit.ir.values import Array
from gpujit.ops.families.random.random import GENERATOR, check_range, fill, is_floating, require_floating
from gpujit.ops.families.random.samplers import (
    DIGITS,
    Sampler,
    any_numbers,
    cauchy_numbers,
    exponential_numbers,
    geometric_numbers,
    integer_numbers,
    log_normal_numbers,
    normal_numbers,
    uniform_numbers,
)
from gpujit.ops.generator import Generator
from gpujit.ops.layout import empty_preserved
from gpujit.ops.registry import library
from gpujit.ops.rules.common import same_type
from gpujit.ops.writes import check_writable
from gpujit.support.errors import DTypeError, OpError

# ------------------------------------------------------------------------------------------------ fills


def _check_uniform(dtype: np.dtype[Any], low: float, high: float, op: str) -> None:
    if not is_floating(dtype) and dtype.kind != "c":
        raise DTypeError(f"{op}: a floating dtype is needed, found {dtype}")
    if not low <= high:
        raise OpError(f"{op}: from {low} must not exceed to {high}")


def check_normal(dtype: np.dtype[Any], mean: float, std: float, op: str) -> None:
    if not is_floating(dtype) and dtype.kind != "c":
        raise DTypeError(f"{op}: a floating dtype is needed, found {dtype}")
    if not std >= 0:
        raise OpError(f"{op}: the standard deviation must not be negative, found {std}")


def _check_exponential(dtype: np.dtype[Any], rate: float, op: str) -> None:
    require_floating(dtype, op)
    if not rate > 0:
        raise OpError(f"{op}: lambda must be positive, found {rate}")


def _check_geometric(dtype: np.dtype[Any], p: float, op: str) -> None:
    if not 0 < p < 1:
        raise OpError(f"{op}: p must lie between 0 and 1, found {p}")


def _check_log_normal(dtype: np.dtype[Any], mean: float, std: float, op: str) -> None:
    require_floating(dtype, op)
    if not std > 0:
        raise OpError(f"{op}: the standard deviation must be positive, found {std}")


def _check_cauchy(dtype: np.dtype[Any], median: float, sigma: float, op: str) -> None:
    require_floating(dtype, op)
    if not sigma > 0:
        raise OpError(f"{op}: sigma must be positive, found {sigma}")


def normal_fill(xp: Any, x: Array, generator: Generator | None, mean: float, std: float) -> Array:
    """``x`` filled with normal numbers; a complex one's variance is shared by its parts, the mean is that of both."""
    return fill(xp, x, generator, normal_numbers, mean, std * 0.5**0.5 if x.dtype.kind == "c" else std)


def _declare_fills() -> None:
    """The in-place fills, and their functional forms that only take shape, dtype and layout from ``self``."""
    table: tuple[tuple[str, str, Sampler, Callable[..., None]], ...] = (
        ("uniform", "float from=0., float to=1.", uniform_numbers, _check_uniform),
        ("exponential", "float lambd=1.", exponential_numbers, _check_exponential),
        ("geometric", "float p", geometric_numbers, _check_geometric),
        ("log_normal", "float mean=1., float std=2.", log_normal_numbers, _check_log_normal),
        ("cauchy", "float median=0., float sigma=1.", cauchy_numbers, _check_cauchy),
    )
    for name, arguments, sampler, check in table:

        def filled(
            xp: Any, x: Array, *args: Any, name: str = name, sampler: Sampler = sampler, check: Any = check
        ) -> Array:
            """``self`` filled with draws."""
            *parameters, generator = args
            check(x.dtype, *parameters, f"aten::{name}_")
            check_writable(x, f"aten::{name}_")
            return fill(xp, x, generator, sampler, *parameters)

        def made(xp: Any, x: Array, *args: Any, filled: Callable[..., Array] = filled) -> Array:
            """A tensor like ``self`` filled with draws."""
            return filled(xp, empty_preserved(xp, x), *args)

        rest = f"{arguments}, *, {GENERATOR}"
        library(
            f"aten::{name}(Tensor self, {rest}) -> Tensor", half="native", random=True, out="out", type_rule=same_type
        )(made)
        library(f"aten::{name}_(Tensor(a!) self, {rest}) -> Tensor(a!)", half="native", random=True)(filled)


_declare_fills()


def _declare_random() -> None:
    def limits(dtype: np.dtype[Any], low: int, high: int | None, op: str) -> tuple[int, int]:
        if high is None:
            largest = 1 << DIGITS[dtype] if dtype in DIGITS else 1 if dtype == BOOL_ else int(np.iinfo(dtype).max)
            return low, largest + 1
        check_range(low, high, dtype, op)
        return low, high

    def between(xp: Any, x: Array, low: int, high: int | None, generator: Generator | None) -> Array:
        """``self`` filled with integers from ``from`` to below ``to`` (to the largest of its dtype without one)."""
        check_writable(x, "aten::random_")
        return fill(xp, x, generator, integer_numbers, *limits(x.dtype, low, high, "aten::random_"))

    def below(xp: Any, x: Array, high: int, generator: Generator | None) -> Array:
        """``self`` filled with integers from 0 to below ``to``."""
        return between(xp, x, 0, high, generator)

    def anything(xp: Any, x: Array, generator: Generator | None) -> Array:
        """``self`` filled with integers over all its dtype holds."""
        check_writable(x, "aten::random_")
        return fill(xp, x, generator, any_numbers)

    for overload, arguments, body, out in (
        (".from", "int from, int? to, *, ", between, "from_out"),
        (".to", "int to, *, ", below, "to_out"),
        ("", "*, ", anything, "out"),
    ):

        def made(xp: Any, x: Array, *args: Any, body: Callable[..., Array] = body) -> Array:
            """A tensor like ``self`` filled with integers."""
            return body(xp, empty_preserved(xp, x), *args)

        text = f"{arguments}{GENERATOR}"
        library(
            f"aten::random{overload}(Tensor self, {text}) -> Tensor",
            half="native",
            random=True,
            out=out,
            type_rule=same_type,
        )(made)
        library(
            f"aten::random_{overload}(Tensor(a!) self, {text}) -> Tensor(a!)",
            half="native",
            random=True,
            type_rule=same_type,
        )(body)


_declare_random()
