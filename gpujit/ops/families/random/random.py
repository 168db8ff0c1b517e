"""Random tensors and fills; every entry has effects, since it moves the generator on.

Uniform, normal, integer, Bernoulli and derived draws are PyTorch's CPU values for equal seeds. Poisson, binomial and
gamma draws only match in distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BOOL_, FLOAT32, FLOAT64, HALF_TYPES, INT64
from gpujit.ir.values import Array, Device
from gpujit.ops.families.memory.create import OPTIONS, check_layout, like, new_empty_array
from gpujit.ops.families.memory.views import broadcast_shape, expanded_shape
from gpujit.ops.families.random.samplers import (
    DIGITS,
    Sampler,
    any_numbers,
    bernoulli_numbers,
    cauchy_numbers,
    exponential_numbers,
    geometric_numbers,
    integer_numbers,
    log_normal_numbers,
    normal_numbers,
    uniform_numbers,
)
from gpujit.ops.families.rows.search import row_search
from gpujit.ops.families.rows.sorting import topk
from gpujit.ops.generator import DEFAULT, Generator, manual_seed
from gpujit.ops.layout import cast, empty_preserved, expand_to, out_forms
from gpujit.ops.registry import library, prim
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.reduce import multinomial_type
from gpujit.ops.rules.views import (
    cast_type,
    normal_sized_type,
    normal_type,
    permutation_type,
    second_sized_type,
    sized_type,
    third_sized_type,
)
from gpujit.ops.writes import check_writable
from gpujit.support.errors import DTypeError, OpError, ShapeError

_GENERATOR = "Generator? generator=None"


def _is_floating(dtype: np.dtype[Any]) -> bool:
    return dtype in DIGITS


def _require_floating(dtype: np.dtype[Any], op: str) -> None:
    if not _is_floating(dtype):
        raise DTypeError(f"{op}: a floating dtype is needed, found {dtype}")


# ------------------------------------------------------------------------------------------------ placing


def fill(xp: Any, x: Array, generator: Generator | None, sampler: Sampler, *parameters: Any) -> Array:
    """``x`` filled with draws, in the order its elements lie in memory."""
    g = generator or DEFAULT
    if x.dtype.kind == "c":
        # Real and imaginary parts are draws of their own.
        fill(xp, x[..., None].view(FLOAT32 if x.itemsize == 8 else FLOAT64), generator, sampler, *parameters)
        return x
    with g.lock:
        values = sampler(g, x.size, x.dtype, bool(x.flags.c_contiguous), *parameters)
    view = x
    if not x.flags.c_contiguous:
        view = x.transpose(sorted(range(x.ndim), key=lambda d: -abs(x.strides[d])))
    view[...] = xp.asarray(cast(values, x.dtype).reshape(view.shape))
    return x


def _declare_sized(name: str, sampler: Sampler, parameters: Callable[[Any], tuple[Any, ...]]) -> None:
    """rand and randn: of a size, with and without generator, and like another tensor."""
    op = f"aten::{name}"

    def of_size(
        xp: Any,
        size: list[int],
        generator: Generator | None,
        dtype: int | None,
        layout: int | None,
        device: Device | None,
    ) -> Array:
        check_layout(layout, op)
        y = new_empty_array(xp, size, dtype, device, op)
        if y.dtype.kind in "biu":
            raise DTypeError(f"{op}: a floating or complex dtype is needed, found {y.dtype}")
        return fill(xp, y, generator, sampler, *parameters(y.dtype))

    def plain(xp: Any, size: list[int], dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Array:
        """A new tensor of draws."""
        return of_size(xp, size, None, dtype, layout, device)

    def seeded(
        xp: Any, size: list[int], generator: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any
    ) -> Array:
        """A new tensor of draws from a generator."""
        return of_size(xp, size, generator, dtype, layout, device)

    def alike(xp: Any, x: Array, dtype: Any, layout: Any, device: Any, pin_memory: Any, memory_format: Any) -> Array:
        """A new tensor of draws, of the shape of ``self``."""
        return alike_seeded(xp, x, None, dtype, layout, device, pin_memory, memory_format)

    def alike_seeded(
        xp: Any, x: Array, generator: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any, memory_format: Any
    ) -> Array:
        """A new tensor of draws from a generator, of the shape of ``self``."""
        y = like(xp, x, dtype, layout, device, memory_format, f"{op}_like")
        if y.dtype.kind in "biu":
            raise DTypeError(f"{op}_like: a floating or complex dtype is needed, found {y.dtype}")
        return fill(xp, y, generator, sampler, *parameters(y.dtype))

    g, m, w = "Generator? generator", "MemoryFormat? memory_format=None", "Tensor(a!) out) -> Tensor(a!)"
    library(f"{op}(SymInt[] size, *, {OPTIONS}) -> Tensor", half="native", random=True, type_rule=sized_type)(plain)
    library(
        f"{op}.generator(SymInt[] size, *, {g}, {OPTIONS}) -> Tensor", half="native", random=True, type_rule=sized_type
    )(seeded)
    out_forms(f"{op}.out(SymInt[] size, *, {w}", of=op)
    out_forms(f"{op}.generator_out(SymInt[] size, *, {g}, {w}", of=f"{op}.generator")
    library(f"{op}_like(Tensor self, *, {OPTIONS}, {m}) -> Tensor", half="native", random=True, type_rule=cast_type)(
        alike
    )
    library(
        f"{op}_like.generator(Tensor self, *, {g}, {OPTIONS}, {m}) -> Tensor",
        half="native",
        random=True,
        type_rule=cast_type,
    )(alike_seeded)
    out_forms(f"{op}_like.out(Tensor self, *, {m}, {w}", of=f"{op}_like")
    out_forms(f"{op}_like.generator_out(Tensor self, *, {g}, {m}, {w}", of=f"{op}_like.generator")


_declare_sized("rand", uniform_numbers, lambda dtype: (0.0, 1.0))
# A complex normal number has variance 1, half of it in each part.
_declare_sized("randn", normal_numbers, lambda dtype: (0.0, 0.5**0.5 if dtype.kind == "c" else 1.0))


def _check_range(low: int, high: int, dtype: np.dtype[Any], op: str) -> None:
    if low >= high:
        raise OpError(f"{op}: high {high} must exceed low {low}")
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if low < info.min or high - 1 > info.max:
            raise OpError(f"{op}: the range {low} to {high - 1} doesn't fit dtype {dtype}")
    elif dtype == BOOL_ and (low < 0 or high > 2):
        raise OpError(f"{op}: the range {low} to {high - 1} doesn't fit dtype bool")


# What stands in for an argument an overload of randint_like lacks: 0 as lower bound, no generator.
_MISSING: dict[int, Any] = {-1: 0, -2: None}


def _declare_integers() -> None:
    op = "aten::randint"
    options = OPTIONS.replace("dtype=None", "dtype=4")
    g, w = "Generator? generator", "Tensor(a!) out) -> Tensor(a!)"

    def of_size(
        xp: Any, low: int, high: int, size: Any, generator: Any, dtype: Any, layout: Any, device: Any, pin: Any
    ) -> Array:
        """A new tensor of integers from ``low`` to below ``high``."""
        check_layout(layout, op)
        y = new_empty_array(xp, size, dtype, device, op, INT64)
        _check_range(low, high, y.dtype, op)
        return fill(xp, y, generator, integer_numbers, low, high)

    def high_only(xp: Any, high: int, size: Any, *options: Any) -> Array:
        """A new tensor of integers from 0 to below ``high``."""
        return of_size(xp, 0, high, size, None, *options)

    def high_seeded(xp: Any, high: int, size: Any, generator: Any, *options: Any) -> Array:
        """A new tensor of integers from 0 to below ``high``, from a generator."""
        return of_size(xp, 0, high, size, generator, *options)

    def low_high(xp: Any, low: int, high: int, size: Any, *options: Any) -> Array:
        """A new tensor of integers from ``low`` to below ``high``."""
        return of_size(xp, low, high, size, None, *options)

    forms = (
        ("", "SymInt high, SymInt[] size, *", high_only),
        ("generator", f"SymInt high, SymInt[] size, *, {g}", high_seeded),
        ("low", "SymInt low, SymInt high, SymInt[] size, *", low_high),
        ("low_generator", f"SymInt low, SymInt high, SymInt[] size, *, {g}", of_size),
    )
    for overload, arguments, body in forms:
        dot = f".{overload}" if overload else ""
        rule = third_sized_type if overload.startswith("low") else second_sized_type
        library(f"{op}{dot}({arguments}, {options}) -> Tensor", half="native", random=True, type_rule=rule)(body)
    for overload, arguments, _ in forms:
        out_forms(
            f"{op}.{overload + '_' if overload else ''}out({arguments}, {w}", of=f"{op}.{overload}" if overload else op
        )

    def alike(
        xp: Any, x: Array, low: Any, high: Any, generator: Any, dtype: Any, layout: Any, device: Any, pin: Any, m: Any
    ) -> Array:
        """Integers from ``low`` to below ``high``, in the shape of ``self``."""
        y = like(xp, x, dtype, layout, device, m, f"{op}_like")
        _check_range(low, high, y.dtype, f"{op}_like")
        return fill(xp, y, generator, integer_numbers, low, high)

    def reordered(places: tuple[int, ...]) -> Callable[..., Array]:
        def body(xp: Any, x: Array, *args: Any) -> Array:
            """Integers in the shape of ``self``."""
            low, high, generator = (_MISSING[i] if i < 0 else args[i] for i in places)
            number = high.item() if hasattr(high, "dtype") else high
            return alike(xp, x, low, number, generator, *args[max(places) + 1 :])

        return body

    m = "MemoryFormat? memory_format=None"
    forms_like = (
        ("", "SymInt high, *", (-1, 0, -2), "out"),
        ("Tensor", "Tensor high, *", (-1, 0, -2), "Tensor_out"),
        ("low_dtype", "SymInt low, SymInt high, *", (0, 1, -2), "low_dtype_out"),
        ("generator", f"SymInt high, *, {g}", (-1, 0, 1), "generator_out"),
        ("Tensor_generator", f"Tensor high, *, {g}", (-1, 0, 1), "Tensor_generator_out"),
        ("low_generator_dtype", f"SymInt low, SymInt high, *, {g}", (0, 1, 2), "low_generator_dtype_out"),
    )
    for overload, arguments, places, out in forms_like:
        name = f"{op}_like.{overload}" if overload else f"{op}_like"
        library(
            f"{name}(Tensor self, {arguments}, {OPTIONS}, {m}) -> Tensor",
            half="native",
            random=True,
            type_rule=cast_type,
        )(reordered(places))
        out_forms(f"{op}_like.{out}(Tensor self, {arguments}, {m}, {w}", of=name)

    perm = "aten::randperm"

    def permutation(xp: Any, n: int, generator: Any, dtype: Any, layout: Any, device: Any, pin: Any) -> Array:
        """The integers from 0 to below ``n`` in random order."""
        y = new_empty_array(xp, (max(n, 0),), dtype, device, perm, INT64)
        if n < 0:
            raise ShapeError(f"{perm}: n must not be negative, found {n}")
        if (y.dtype in DIGITS and n > 1 << DIGITS[y.dtype]) or (y.dtype.kind in "iu" and n - 1 > np.iinfo(y.dtype).max):
            raise OpError(f"{perm}: n {n} is too large for dtype {y.dtype}")
        state = generator or DEFAULT
        with state.lock:
            words = state.words(max(n - 1, 0)).astype(np.int64)
        # The exchanges depend on each other, so this is one pass over Python integers.
        targets = (words % np.arange(n, 1, -1) + np.arange(max(n - 1, 0))).tolist()
        order = list(range(n))
        for i, j in enumerate(targets):
            order[i], order[j] = order[j], order[i]
        y[...] = xp.asarray(cast(np.array(order, np.int64), y.dtype))
        return y

    def permuted(xp: Any, n: int, *options: Any) -> Array:
        """The integers from 0 to below ``n`` in random order."""
        return permutation(xp, n, None, *options)

    library(f"{perm}(SymInt n, *, {options}) -> Tensor", half="native", random=True, type_rule=permutation_type)(
        permuted
    )
    library(
        f"{perm}.generator(SymInt n, *, {g}, {options}) -> Tensor",
        half="native",
        random=True,
        type_rule=permutation_type,
    )(permutation)
    out_forms(f"{perm}.out(SymInt n, *, {w}", of=perm)
    out_forms(f"{perm}.generator_out(SymInt n, *, {g}, {w}", of=f"{perm}.generator")


_declare_integers()


# ------------------------------------------------------------------------------------------------ fills


def _check_uniform(dtype: np.dtype[Any], low: float, high: float, op: str) -> None:
    if not _is_floating(dtype) and dtype.kind != "c":
        raise DTypeError(f"{op}: a floating dtype is needed, found {dtype}")
    if not low <= high:
        raise OpError(f"{op}: from {low} must not exceed to {high}")


def _check_normal(dtype: np.dtype[Any], mean: float, std: float, op: str) -> None:
    if not _is_floating(dtype) and dtype.kind != "c":
        raise DTypeError(f"{op}: a floating dtype is needed, found {dtype}")
    if not std >= 0:
        raise OpError(f"{op}: the standard deviation must not be negative, found {std}")


def _check_exponential(dtype: np.dtype[Any], rate: float, op: str) -> None:
    _require_floating(dtype, op)
    if not rate > 0:
        raise OpError(f"{op}: lambda must be positive, found {rate}")


def _check_geometric(dtype: np.dtype[Any], p: float, op: str) -> None:
    if not 0 < p < 1:
        raise OpError(f"{op}: p must lie between 0 and 1, found {p}")


def _check_log_normal(dtype: np.dtype[Any], mean: float, std: float, op: str) -> None:
    _require_floating(dtype, op)
    if not std > 0:
        raise OpError(f"{op}: the standard deviation must be positive, found {std}")


def _check_cauchy(dtype: np.dtype[Any], median: float, sigma: float, op: str) -> None:
    _require_floating(dtype, op)
    if not sigma > 0:
        raise OpError(f"{op}: sigma must be positive, found {sigma}")


def _normal_fill(xp: Any, x: Array, generator: Generator | None, mean: float, std: float) -> Array:
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

        rest = f"{arguments}, *, {_GENERATOR}"
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
        _check_range(low, high, dtype, op)
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

        text = f"{arguments}{_GENERATOR}"
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


# ------------------------------------------------------------------------------------------------ normal


@library(
    f"aten::normal_(Tensor(a!) self, float mean=0., float std=1., *, {_GENERATOR}) -> Tensor(a!)",
    half="native",
    random=True,
)
def normal_in_place(xp: Any, x: Array, mean: float, std: float, generator: Generator | None) -> Array:
    """``self`` filled with normal numbers."""
    _check_normal(x.dtype, mean, std, "aten::normal_")
    check_writable(x, "aten::normal_")
    return _normal_fill(xp, x, generator, mean, std)


def _declare_normal() -> None:
    op = "aten::normal"

    def check_std(std: Array) -> None:
        if std.dtype.kind == "c" or (std.size and not std.min() >= 0):
            raise OpError(f"{op}: standard deviations must be real and not negative")

    def scaled(xp: Any, mean: Any, std: Any, generator: Generator | None) -> Array:
        tensors = [v for v in (mean, std) if hasattr(v, "dtype")]
        first = tensors[0]
        _check_normal(first.dtype, 0.0, 0.0, op)
        shape = first.shape if len(tensors) == 1 else broadcast_shape((mean.shape, std.shape), op)
        y = _normal_fill(xp, xp.empty(shape, first.dtype), generator, 0.0, std if isinstance(std, float) else 1.0)
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
        _check_normal(y.dtype, mean, std, op)
        return _normal_fill(xp, y, generator, mean, std)

    for overload, arguments, body in (
        ("Tensor_float", "Tensor mean, float std=1.", tensor_float),
        ("float_Tensor", "float mean, Tensor std", float_tensor),
        ("Tensor_Tensor", "Tensor mean, Tensor std", tensor_tensor),
    ):
        text = f"{op}.{overload}({arguments}, *, {_GENERATOR}) -> Tensor"
        library(text, half="native", random=True, out=f"{overload}_out", type_rule=normal_type)(body)
    sized = "float mean, float std, SymInt[] size, *, "
    library(
        f"{op}.float_float({sized}{_GENERATOR}, {OPTIONS}) -> Tensor",
        half="native",
        random=True,
        type_rule=normal_sized_type,
    )(float_float)
    out_forms(f"{op}.float_float_out({sized}{_GENERATOR}, Tensor(a!) out) -> Tensor(a!)", of=f"{op}.float_float")

    def like_out(xp: Any, x: Array, mean: float, std: float, generator: Generator | None, out: Array) -> Array:
        """``out`` filled with normal numbers."""
        return normal_in_place(xp, out, mean, std, generator)

    library(
        f"{op}.out(Tensor self, float mean=0., float std=1., *, {_GENERATOR}, Tensor(a!) out) -> Tensor(a!)",
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
    _require_floating(p.dtype, op)
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

    rest = f"*, {_GENERATOR}) -> Tensor"
    library(f"{op}(Tensor self, {rest}", half="native", random=True, out="out", type_rule=same_type)(of_itself)
    library(f"{op}.p(Tensor self, float p, {rest}", half="native", random=True, type_rule=same_type)(by_number)
    library(
        f"{op}.Tensor(Tensor self, Tensor p, {rest}", half="native", random=True, out="Tensor_out", type_rule=same_type
    )(by_tensor)
    out_forms(f"{op}.float_out(Tensor self, float p=0.5, *, {_GENERATOR}, Tensor(a!) out) -> Tensor(a!)", of=f"{op}.p")
    library(f"{op}_.Tensor(Tensor(a!) self, Tensor p, {rest}(a!)", half="native", random=True)(in_place_tensor)
    library(f"{op}_.float(Tensor(a!) self, float p=0.5, {rest}(a!)", half="native", random=True)(in_place_number)


_declare_bernoulli()


# ------------------------------------------------------------------------------------------------ other distributions


@library(
    f"aten::multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, {_GENERATOR}) -> Tensor",
    half="native",
    random=True,
    out="out",
    type_rule=multinomial_type,
)
def multinomial(xp: Any, x: Array, num_samples: int, replacement: bool, generator: Generator | None) -> Array:
    """For each row of weights ``num_samples`` indices, drawn in proportion to the weights."""
    op = "aten::multinomial"
    _require_floating(x.dtype, op)
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
        _require_floating(x.dtype, "aten::poisson")
        if x.size and not x.min() >= 0:
            raise OpError("aten::poisson: rates must not be negative")
        return with_numpy(x, generator, lambda r, rate: r.poisson(rate), xp)

    def binomial(xp: Any, count: Array, prob: Array, generator: Generator | None) -> Array:
        """Numbers of successes in ``count`` trials of probability ``prob``."""
        _require_floating(count.dtype, "aten::binomial")
        return with_numpy(
            count, generator, lambda r, n: r.binomial(n.astype(np.int64), np.asarray(prob, np.float64)), xp
        )

    def standard_gamma(xp: Any, x: Array, generator: Generator | None) -> Array:
        """Gamma draws of unit scale whose shapes are the elements."""
        _require_floating(x.dtype, "aten::_standard_gamma")
        return with_numpy(x, generator, lambda r, alpha: r.standard_gamma(alpha), xp)

    def dirichlet(xp: Any, x: Array, generator: Generator | None) -> Array:
        """Dirichlet draws, one for each row of concentrations."""
        _require_floating(x.dtype, "aten::_sample_dirichlet")

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
            f"aten::{name}({arguments}, {_GENERATOR}) -> Tensor",
            half="native",
            random=True,
            out="out",
            type_rule=same_type,
        )(body)


_declare_by_numpy()


# ------------------------------------------------------------------------------------------------ generators


@prim("aten::manual_seed(int seed) -> ()", effects=True)
def manual_seed_entry(seed: int) -> None:
    """Starts the default generator anew."""
    manual_seed(seed)


@prim("aten::manual_seed.generator(Generator(a!) self, int seed) -> Generator(a!)", effects=True)
def manual_seed_generator(generator: Generator, seed: int) -> Generator:
    """The generator, started anew."""
    return generator.manual_seed(seed)


@prim("aten::seed(Generator(a!) self) -> int", effects=True)
def new_seed(generator: Generator) -> int:
    """A new seed, which the generator now runs from."""
    return generator.seed()


@prim("aten::initial_seed(Generator self) -> int")
def initial_seed(generator: Generator) -> int:
    """The seed a generator was started from, as a signed 64-bit integer."""
    seed = generator.initial_seed()
    return seed - (1 << 64) if seed >= 1 << 63 else seed


@prim("aten::Generator(*, Device? device=None, int? seed=None) -> Generator", effects=True)
def make_generator(device: Device | None, seed: int | None) -> Generator:
    """A new generator; PyTorch starts one without a seed from 67280421310721."""
    return Generator(67280421310721 if seed is None else seed)


__all__ = ["DEFAULT", "Generator", "fill", "manual_seed"]
