"""Random tensors and fills; every entry has effects, since it moves the generator on.

Uniform, normal, integer, Bernoulli and derived draws are PyTorch's CPU values for equal seeds. Poisson, binomial and
gamma draws only match in distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BOOL_, FLOAT32, FLOAT64, INT64
from gpujit.ir.values import Array, Device
from gpujit.ops.families.memory.create import OPTIONS, check_layout, like, new_empty_array
from gpujit.ops.families.random.samplers import DIGITS, Sampler, integer_numbers, normal_numbers, uniform_numbers
from gpujit.ops.generator import DEFAULT, Generator, manual_seed
from gpujit.ops.layout import cast, out_forms
from gpujit.ops.registry import library, prim
from gpujit.ops.rules.factories import cast_type, permutation_type, second_sized_type, sized_type, third_sized_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

GENERATOR = "Generator? generator=None"


def is_floating(dtype: np.dtype[Any]) -> bool:
    return dtype in DIGITS


def require_floating(dtype: np.dtype[Any], op: str) -> None:
    if not is_floating(dtype):
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


def check_range(low: int, high: int, dtype: np.dtype[Any], op: str) -> None:
    if low >= high:
        raise OpError(f"{op}: high {high} must exceed low {low}")
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if low < info.min or high - 1 > info.max:
            raise OpError(f"{op}: the range {low} to {high - 1} doesn't fit dtype {dtype}")
    elif dtype == BOOL_ and (low < 0 or high > 2):
        raise OpError(f"{op}: the range {low} to {high - 1} doesn't fit dtype bool")


# What stands in for an argument an overload of randint_like lacks: 0 as lower bound, no generator.
MISSING: dict[int, Any] = {-1: 0, -2: None}


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
        check_range(low, high, y.dtype, op)
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
        check_range(low, high, y.dtype, f"{op}_like")
        return fill(xp, y, generator, integer_numbers, low, high)

    def reordered(places: tuple[int, ...]) -> Callable[..., Array]:
        def body(xp: Any, x: Array, *args: Any) -> Array:
            """Integers in the shape of ``self``."""
            low, high, generator = (MISSING[i] if i < 0 else args[i] for i in places)
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
