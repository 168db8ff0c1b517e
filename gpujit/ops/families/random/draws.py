"""Draws whose parameters are tensors: normal, Bernoulli, categories, and distributions that NumPy draws."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.dtypes import FLOAT32, FLOAT64, HALF_TYPES
from gpujit.ir.values import Array
from gpujit.ops.families.memory.create import OPTIONS, new_empty_array
from gpujit.ops.families.memory.views import broadcast_shape, expanded_shape
from gpujit.ops.families.random.distributions import check_normal, normal_fill
from gpujit.ops.families.random.random import GENERATOR, fill, require_floating
from gpujit.ops.families.random.samplers import bernoulli_numbers, exponential_numbers
from gpujit.ops.families.rows.search import row_search
from gpujit.ops.families.rows.sorting import topk
from gpujit.ops.generator import DEFAULT, Generator
from gpujit.ops.layout import cast, empty_preserved, expand_to, out_forms
from gpujit.ops.registry import library
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.factories import normal_sized_type, normal_type
from gpujit.ops.rules.reduce import multinomial_type
from gpujit.ops.writes import check_writable
from gpujit.support.errors import OpError, ShapeError

# ------------------------------------------------------------------------------------------------ normal


@library(
    f"aten::normal_(Tensor(a!) self, float mean=0., float std=1., *, {GENERATOR}) -> Tensor(a!)",
    half="native",
    random=True,
)
def normal_in_place(xp: Any, x: Array, mean: float, std: float, generator: Generator | None) -> Array:
    """``self`` filled with normal numbers."""
    check_normal(x.dtype, mean, std, "aten::normal_")
    check_writable(x, "aten::normal_")
    return normal_fill(xp, x, generator, mean, std)


def _declare_normal() -> None:
    op = "aten::normal"

    def check_std(std: Array) -> None:
        if std.dtype.kind == "c" or (std.size and not std.min() >= 0):
            raise OpError(f"{op}: standard deviations must be real and not negative")

    def scaled(xp: Any, mean: Any, std: Any, generator: Generator | None) -> Array:
        tensors = [v for v in (mean, std) if hasattr(v, "dtype")]
        first = tensors[0]
        check_normal(first.dtype, 0.0, 0.0, op)
        shape = first.shape if len(tensors) == 1 else broadcast_shape((mean.shape, std.shape), op)
        y = normal_fill(xp, xp.empty(shape, first.dtype), generator, 0.0, std if isinstance(std, float) else 1.0)
        wide = y.astype(FLOAT32) if y.dtype in HALF_TYPES else y
        if hasattr(std, "dtype"):
            wide = wide * std
        return cast(xp.asarray(wide + mean), y.dtype)

    def tensor_float(xp: Any, mean: Array, std: float, generator: Generator | None) -> Array:
        """Normal numbers, each with its own mean."""
        if not std >= 0:
            raise OpError(f"{op}: the standard deviation must not be negative, found {std}")
        return scaled(xp, mean, float(std), generator)

    def float_tensor(xp: Any, mean: float, std: Array, generator: Generator | None) -> Array:
        """Normal numbers, each with its own standard deviation."""
        check_std(std)
        return scaled(xp, mean, std, generator)

    def tensor_tensor(xp: Any, mean: Array, std: Array, generator: Generator | None) -> Array:
        """Normal numbers, each with its own mean and standard deviation."""
        check_std(std)
        return scaled(xp, mean, std, generator)

    def float_float(
        xp: Any,
        mean: float,
        std: float,
        size: list[int],
        generator: Any,
        dtype: Any,
        layout: Any,
        device: Any,
        pin: Any,
    ) -> Array:
        """A new tensor of normal numbers."""
        y = new_empty_array(xp, size, dtype, device, op)
        check_normal(y.dtype, mean, std, op)
        return normal_fill(xp, y, generator, mean, std)

    for overload, arguments, body in (
        ("Tensor_float", "Tensor mean, float std=1.", tensor_float),
        ("float_Tensor", "float mean, Tensor std", float_tensor),
        ("Tensor_Tensor", "Tensor mean, Tensor std", tensor_tensor),
    ):
        text = f"{op}.{overload}({arguments}, *, {GENERATOR}) -> Tensor"
        library(text, half="native", random=True, out=f"{overload}_out", type_rule=normal_type)(body)
    sized = "float mean, float std, SymInt[] size, *, "
    library(
        f"{op}.float_float({sized}{GENERATOR}, {OPTIONS}) -> Tensor",
        half="native",
        random=True,
        type_rule=normal_sized_type,
    )(float_float)
    out_forms(f"{op}.float_float_out({sized}{GENERATOR}, Tensor(a!) out) -> Tensor(a!)", of=f"{op}.float_float")

    def like_out(xp: Any, x: Array, mean: float, std: float, generator: Generator | None, out: Array) -> Array:
        """``out`` filled with normal numbers."""
        return normal_in_place(xp, out, mean, std, generator)

    library(
        f"{op}.out(Tensor self, float mean=0., float std=1., *, {GENERATOR}, Tensor(a!) out) -> Tensor(a!)",
        half="native",
        random=True,
    )(like_out)


_declare_normal()


# ------------------------------------------------------------------------------------------------ bernoulli


def _check_probability(p: float, op: str) -> None:
    if not 0 <= p <= 1:
        raise OpError(f"{op}: p must lie in [0, 1], found {p}")


def _bernoulli_by(xp: Any, x: Array, p: Array, generator: Generator | None, op: str) -> Array:
    """``x`` filled with 1 where a draw falls below the probability of its place, else 0."""
    require_floating(p.dtype, op)
    if p.size and not (p.min() >= 0 and p.max() <= 1):
        raise OpError(f"{op}: probabilities must lie in [0, 1]")
    if p.shape != x.shape:
        p = expand_to(xp, p, expanded_shape(p, x.shape, op))
    g = generator or DEFAULT
    with g.lock:
        u = g.doubles(x.size) if p.dtype == FLOAT64 else g.floats(x.size)
    # The type of p: PyTorch draws in it, and compares in it.
    x[...] = xp.asarray(u.reshape(x.shape)) < (p.astype(FLOAT32) if p.dtype in HALF_TYPES else p)
    return x


def _declare_bernoulli() -> None:
    op = "aten::bernoulli"

    def of_itself(xp: Any, x: Array, generator: Generator | None) -> Array:
        """1 with the probability that is the element, else 0."""
        return _bernoulli_by(xp, empty_preserved(xp, x), x, generator, op)

    def by_number(xp: Any, x: Array, p: float, generator: Generator | None) -> Array:
        """A tensor like ``self`` of ones with probability ``p``, zeros else."""
        return in_place_number(xp, empty_preserved(xp, x), p, generator)

    def by_tensor(xp: Any, x: Array, p: Array, generator: Generator | None) -> Array:
        """A tensor like ``self`` of ones with probabilities ``p``, zeros else."""
        return _bernoulli_by(xp, empty_preserved(xp, x), p, generator, op)

    def in_place_number(xp: Any, x: Array, p: float, generator: Generator | None) -> Array:
        """``self`` filled with ones with probability ``p``, zeros else."""
        _check_probability(p, f"{op}_")
        check_writable(x, f"{op}_")
        return fill(xp, x, generator, bernoulli_numbers, p)

    def in_place_tensor(xp: Any, x: Array, p: Array, generator: Generator | None) -> Array:
        """``self`` filled with ones with probabilities ``p``, zeros else."""
        check_writable(x, f"{op}_")
        return _bernoulli_by(xp, x, p, generator, f"{op}_")

    rest = f"*, {GENERATOR}) -> Tensor"
    library(f"{op}(Tensor self, {rest}", half="native", random=True, out="out", type_rule=same_type)(of_itself)
    library(f"{op}.p(Tensor self, float p, {rest}", half="native", random=True, type_rule=same_type)(by_number)
    library(
        f"{op}.Tensor(Tensor self, Tensor p, {rest}", half="native", random=True, out="Tensor_out", type_rule=same_type
    )(by_tensor)
    out_forms(f"{op}.float_out(Tensor self, float p=0.5, *, {GENERATOR}, Tensor(a!) out) -> Tensor(a!)", of=f"{op}.p")
    library(f"{op}_.Tensor(Tensor(a!) self, Tensor p, {rest}(a!)", half="native", random=True)(in_place_tensor)
    library(f"{op}_.float(Tensor(a!) self, float p=0.5, {rest}(a!)", half="native", random=True)(in_place_number)


_declare_bernoulli()


# ------------------------------------------------------------------------------------------------ other distributions


@library(
    f"aten::multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, {GENERATOR}) -> Tensor",
    half="native",
    random=True,
    out="out",
    type_rule=multinomial_type,
)
def multinomial(xp: Any, x: Array, num_samples: int, replacement: bool, generator: Generator | None) -> Array:
    """For each row of weights ``num_samples`` indices, drawn in proportion to the weights."""
    op = "aten::multinomial"
    require_floating(x.dtype, op)
    if x.ndim not in (1, 2) or x.shape[-1] == 0:
        raise ShapeError(f"{op}: one or two dims with at least one weight are needed, found shape {list(x.shape)}")
    if num_samples <= 0 or (not replacement and num_samples > x.shape[-1]):
        raise OpError(
            f"{op}: {num_samples} samples can't be drawn from {x.shape[-1]} weights; use replacement or fewer"
        )
    weights = x.astype(FLOAT32) if x.dtype in HALF_TYPES else x
    total = weights.sum(axis=-1, keepdims=True)
    if x.size and (not weights.min() >= 0 or not xp.isfinite(total).all() or not (total > 0).all()):
        raise OpError(f"{op}: weights must be finite, not negative, and not all zero in a row")
    g = generator or DEFAULT
    if not replacement:
        # The largest of weight / exponential is a draw without replacement; so are the runners-up.
        with g.lock:
            q = cast(exponential_numbers(g, x.size, weights.dtype, True, 1.0), weights.dtype).reshape(x.shape)
        return topk(xp, weights / xp.asarray(q), num_samples, -1, True, True)[1]
    bounds = xp.cumsum(weights, axis=-1, dtype=weights.dtype) / total
    bounds[..., -1] = 1
    with g.lock:
        u = xp.asarray(g.doubles(prod(x.shape[:-1]) * num_samples)).reshape(*x.shape[:-1], num_samples)
    return row_search(xp, bounds, u, False)


def _declare_by_numpy() -> None:
    """Distributions whose values come from NumPy's own methods on the same stream."""

    def with_numpy(x: Array, generator: Generator | None, draw: Callable[[Any, Any], Any], xp: Any) -> Array:
        g = generator or DEFAULT
        wide = x if isinstance(x, np.ndarray) else x.get()
        with g.lock:
            values = draw(g.numpy, cast(wide, FLOAT64))
        return xp.asarray(cast(np.asarray(values), x.dtype))

    def poisson(xp: Any, x: Array, generator: Generator | None) -> Array:
        """Poisson draws whose rates are the elements."""
        require_floating(x.dtype, "aten::poisson")
        if x.size and not x.min() >= 0:
            raise OpError("aten::poisson: rates must not be negative")
        return with_numpy(x, generator, lambda r, rate: r.poisson(rate), xp)

    def binomial(xp: Any, count: Array, prob: Array, generator: Generator | None) -> Array:
        """Numbers of successes in ``count`` trials of probability ``prob``."""
        require_floating(count.dtype, "aten::binomial")
        return with_numpy(
            count, generator, lambda r, n: r.binomial(n.astype(np.int64), np.asarray(prob, np.float64)), xp
        )

    def standard_gamma(xp: Any, x: Array, generator: Generator | None) -> Array:
        """Gamma draws of unit scale whose shapes are the elements."""
        require_floating(x.dtype, "aten::_standard_gamma")
        return with_numpy(x, generator, lambda r, alpha: r.standard_gamma(alpha), xp)

    def dirichlet(xp: Any, x: Array, generator: Generator | None) -> Array:
        """Dirichlet draws, one for each row of concentrations."""
        require_floating(x.dtype, "aten::_sample_dirichlet")

        def draw(r: Any, alpha: Any) -> Any:
            gammas = r.standard_gamma(alpha)
            return gammas / gammas.sum(axis=-1, keepdims=True)

        return with_numpy(x, generator, draw, xp)

    for name, arguments, body in (
        ("poisson", "Tensor self", poisson),
        ("binomial", "Tensor count, Tensor prob", binomial),
        ("_standard_gamma", "Tensor self", standard_gamma),
        ("_sample_dirichlet", "Tensor self", dirichlet),
    ):
        library(
            f"aten::{name}({arguments}, {GENERATOR}) -> Tensor",
            half="native",
            random=True,
            out="out",
            type_rule=same_type,
        )(body)


_declare_by_numpy()
