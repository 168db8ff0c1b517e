"""Upsampling: nearest, linear, cubic, and the antialiased filters.

All are separable: for each dim a small table says which input elements an output element reads and with which weights.
Tables depend on sizes alone and are kept. Coordinates are computed in the dtype PyTorch uses (float32 unless the input
is float64), since a rounding difference there picks another pixel.
Source: PyTorch, aten/src/ATen/native/UpSample.h and cpu/UpSampleKernel.cpp.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil, floor
from typing import Any, NamedTuple

import numpy as np

from gpujit.ir.values import Array
from gpujit.ops.families.layers.pool import adaptive_avg_pool
from gpujit.ops.into import by_parts, longest
from gpujit.ops.registry import Body, Op, add_op, by_full_name, library
from gpujit.ops.rules.windows import interpolated_type, upsampled_type
from gpujit.ops.strided import shape_text
from gpujit.support.errors import DTypeError, OpError, ShapeError


class Table(NamedTuple):
    """Which elements of one dim an output element reads.

    ``taps[t]`` holds an index and a weight for each output, and the outputs (or None) whose window ends before it.
    ``repeat`` is the whole factor by which every element is repeated, 0 when it is not that simple.
    """

    taps: tuple[tuple[Any, Any, Any], ...]
    repeat: int
    same: bool


def _scale(n: int, size: int, align: bool, scale: float | None, real: Any) -> Any:
    if align:
        return real(n - 1) / real(size - 1) if size > 1 else real(0)
    return real(1.0 / scale) if scale is not None and scale > 0 else real(n) / real(size)


@lru_cache(maxsize=512)
def _nearest_table(n: int, size: int, exact: bool, scale: float | None, wide: bool, small: bool) -> Table:
    real: Any = np.float64 if wide else np.float32
    step = _scale(n, size, False, scale, real)
    at = np.arange(size).astype(real)
    where = (at + real(0.5)) * step if exact else at * step
    index = np.minimum(np.floor(where.astype(np.float32)).astype(np.int64), n - 1)
    if small and not exact and size in (n, 2 * n):
        # PyTorch's kernel for small images leaves a scale that was given aside here.
        index = np.arange(size) // (size // n)
    factor = size // n if size % n == 0 else 0
    repeat = factor if factor and np.array_equal(index, np.arange(size) // factor) else 0
    return Table(((index, None, None),), repeat, repeat == 1)


def _cubic(t: Any, a: float) -> list[Any]:
    """The four weights of cubic convolution at fraction ``t``. Source: Keys 1981."""

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


@lru_cache(maxsize=512)
def _linear_table(n: int, size: int, align: bool, scale: float | None, wide: bool) -> Table:
    real: Any = np.float64 if wide else np.float32
    step = _scale(n, size, align, scale, real)
    at = np.arange(size).astype(real)
    where = at * step if align else np.maximum((at + real(0.5)) * step - real(0.5), real(0))
    low = np.minimum(np.floor(where).astype(np.int64), n - 1)
    part = np.clip(where - low.astype(real), 0, 1).astype(real)
    high = low + (low < n - 1)
    same = size == n and not part.any() and bool(np.array_equal(low, np.arange(n)))
    return Table(((low, 1 - part, None), (high, part, None)), 0, same)


@lru_cache(maxsize=512)
def _cubic_table(n: int, size: int, align: bool, scale: float | None, wide: bool) -> Table:
    real: Any = np.float64 if wide else np.float32
    step = _scale(n, size, align, scale, real)
    at = np.arange(size).astype(real)
    where = at * step if align else (at + real(0.5)) * step - real(0.5)
    low = np.floor(where).astype(np.int64)
    part = (where - low.astype(real)).astype(real)
    taps = [(np.clip(low + k - 1, 0, n - 1), w.astype(real), None) for k, w in enumerate(_cubic(part, -0.75))]
    return Table(tuple(taps), 0, False)


def _triangle(x: Any) -> Any:
    return np.maximum(1 - abs(x), 0)


def _keys(x: Any) -> Any:
    x, a = abs(x), -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _lanczos(x: Any) -> Any:
    return np.where(abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


# Filter and its whole width.
_FILTERS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "bilinear": (_triangle, 2),
    "bicubic": (_keys, 4),
    "lanczos": (_lanczos, 6),
}


@lru_cache(maxsize=512)
def _filter_table(n: int, size: int, align: bool, scale: float | None, wide: bool, name: str) -> Table:
    # The filter widens with the step when the image shrinks, so that every input element counts.
    real: Any = np.float64 if wide else np.float32
    function, width = _FILTERS[name]
    step = _scale(n, size, align, scale, real)
    grow = max(step, real(1))
    support = real(width * 0.5) * grow
    center = step * (np.arange(size).astype(real) + real(0.5))
    low = np.maximum((center - support + real(0.5)).astype(np.int64), 0)
    high = np.minimum((center + support + real(0.5)).astype(np.int64), n)
    count = np.clip(high - low, 0, ceil(support) * 2 + 1)
    j = np.arange(max(int(count.max()), 1))
    weights = function((j + low[:, None] - center[:, None] + real(0.5)) * (real(1) / grow))
    weights = np.where(j < count[:, None], weights, 0)
    total = weights.sum(axis=1, keepdims=True)
    weights = (weights / np.where(total == 0, 1, total)).astype(real)
    taps = []
    for k in j.tolist():
        ended = np.flatnonzero(k >= count)
        taps.append((np.minimum(low + k, n - 1), weights[:, k], ended if ended.size else None))
    same = size == n and all(np.array_equal(w, (i == np.arange(n)).astype(real)) for i, w, _ in taps)
    return Table(tuple(taps), 0, bool(same))


def _repeat(xp: Any, x: Array, axis: int, times: int) -> Array:
    shape = (*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
    y = xp.empty(shape, x.dtype)
    lead = (slice(None),) * (axis + 1)
    for t in range(times):
        y[(*lead, t)] = x
    return y.reshape(*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :])


def _gather(xp: Any, x: Array, index: Any, axis: int) -> Array:
    return x.take(index if xp is np else xp.asarray(index), axis)


def apply_table(xp: Any, x: Array, axis: int, table: Table) -> Array:
    """``x`` with one dim resampled as the table says."""
    if table.same:
        return x
    if table.repeat:
        return _repeat(xp, x, axis, table.repeat)
    taps = table.taps
    if taps[0][1] is None:
        return _gather(xp, x, taps[0][0], axis)
    shape = (-1, *(1,) * (x.ndim - 1 - axis))
    total: Array = None
    for index, weight, ended in taps:
        term = _gather(xp, x, index, axis)
        if ended is not None:
            # Times weight zero is not enough where the element is infinite.
            term[(*(slice(None),) * axis, ended if xp is np else xp.asarray(ended))] = 0
        term *= xp.asarray(weight, x.dtype).reshape(shape)
        if total is None:
            total = term
        else:
            total += term
    return total


def _apply_bytes(xp: Any, x: Array, axis: int, table: Table) -> Array:
    """As ``apply_table`` for uint8, in PyTorch's fixed-point arithmetic: 16-bit weights, rounded after each dim."""
    if table.same:
        return x
    taps = [(index, weight.copy()) for index, weight, _ in table.taps]
    for (before, lost), (index, weight) in itertools.pairwise(taps):
        # Taps that meet at an edge are one tap before the weights are rounded.
        same = before == index
        weight[same] += lost[same]
        lost[same] = 0
    largest = max(float(abs(w).max()) for _, w in taps)
    bits = 0
    while bits < 22 and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    shape = (-1, *(1,) * (x.ndim - 1 - axis))
    total: Array = None
    for index, weight in taps:
        fixed = xp.asarray(np.trunc(weight * (1 << bits) + np.copysign(0.5, weight)), np.int32).reshape(shape)
        term = _gather(xp, x, index, axis) * fixed
        total = term if total is None else total + term
    return xp.clip((total + (1 << (bits - 1))) >> bits, 0, 255).astype(x.dtype)


def _check(op: str, x: Array, output: Sequence[int], rank: int) -> None:
    if x.ndim != rank + 2:
        raise ShapeError(f"{op}: input {shape_text(x.shape)} has {x.ndim} dims, expected {rank + 2}")
    if len(output) != rank:
        raise ShapeError(f"{op}: output_size is {list(output)}, expected {rank} numbers")
    if min(output) < 1 or 0 in x.shape[1:]:
        raise ShapeError(f"{op}: input {shape_text(x.shape)} and output size {list(output)} must be greater than 0")


def tables_of(
    image: Sequence[int], output: Sequence[int], scales: Sequence[float | None], mode: str, align: bool, wide: bool
) -> list[Table | None]:
    """The table of each dim, None for one that stays as it is; ``wide``: coordinates are float64."""
    nearest = mode.startswith("nearest")
    found: list[Table | None] = []
    for n, size, scale in zip(image, output, scales, strict=True):
        if nearest:
            # Up to this size PyTorch takes another kernel, which computes coordinates in float32 always.
            small = len(scales) == 2 and output[0] + output[1] <= 128
            found.append(_nearest_table(n, size, mode == "nearest-exact", scale, wide and not small, small))
        elif n == size and mode != "cubic":
            # Whatever scale was given; only cubic looks at it.
            found.append(None)
        elif mode == "linear":
            found.append(_linear_table(n, size, align, scale, wide))
        elif mode == "cubic":
            found.append(_cubic_table(n, size, align, scale, wide))
        else:
            found.append(_filter_table(n, size, align, scale, wide, mode))
    return found


def resample(
    xp: Any, op: str, x: Array, output: Sequence[int], scales: Sequence[float | None], mode: str, align: bool
) -> Array:
    """``x [N, C, *spatial]`` resampled to ``output``; a scale given replaces the ratio of sizes in coordinates."""
    rank = len(scales)
    _check(op, x, output, rank)
    if not mode.startswith("nearest") and x.dtype.kind != "f" and x.dtype != np.uint8:
        raise DTypeError(f"{op}: input is {x.dtype}, expected a floating dtype or uint8")
    fixed = not mode.startswith("nearest") and x.dtype == np.uint8
    tables = tables_of(x.shape[2:], output, scales, mode, align, fixed or x.dtype == np.float64)
    y = x
    # The last dim costs most, since its elements are fetched one by one: take it while the others are smallest.
    order = range(rank - 1, -1, -1) if fixed or output[0] >= x.shape[2] else range(rank)
    for axis in order:
        table = tables[axis]
        if table is not None:
            y = (_apply_bytes if fixed else apply_table)(xp, y, 2 + axis, table)
    return y.copy() if y is x else y


def output_size(op: str, x: Array, size: Sequence[int] | None, factors: Sequence[float] | None, rank: int) -> list[int]:
    """The output size a ``.vec`` overload asks for, by numbers or by factors (rounded towards zero)."""
    if (size is None) == (factors is None):
        raise OpError(f"{op}: exactly one of output_size and scale_factors must be given")
    if x.ndim != rank + 2:
        raise ShapeError(f"{op}: input {shape_text(x.shape)} has {x.ndim} dims, expected {rank + 2}")
    if size is not None:
        return list(size)
    assert factors is not None
    if len(factors) != rank:
        raise ShapeError(f"{op}: scale_factors is {list(factors)}, expected {rank} numbers")
    return [int(n * f) for n, f in zip(x.shape[2:], factors, strict=True)]


def resample_vec(
    xp: Any,
    op: str,
    x: Array,
    size: Sequence[int] | None,
    factors: Sequence[float] | None,
    rank: int,
    mode: str,
    align: bool,
) -> Array:
    """Resampling to a size, or by factors, which then also set the coordinates."""
    output = output_size(op, x, size, factors, rank)
    return resample(xp, op, x, output, (None,) * rank if factors is None else factors, mode, align)


def _expand(output: Sequence[int], rank: int) -> Sequence[int]:
    return list(output) * rank if len(output) == 1 else output


# By name: how many dims are resampled, in which mode, and whether there is ``align_corners``.
MODES: dict[str, tuple[int, str, bool]] = {}


def _declare(name: str, rank: int, mode: str, aligns: bool) -> None:
    op = f"aten::{name}"
    MODES[op] = rank, mode, aligns
    align_text = ", bool align_corners" if aligns else ""
    names = ("",) if rank == 1 else ("_d", "_h", "_w")[3 - rank :]
    scale_text = "".join(f", float? scales{s}=None" for s in names)
    half = "native" if mode.startswith("nearest") else "float32"
    arguments = f"Tensor self, int[{rank}] output_size{align_text}{scale_text}"
    # PyTorch lists the out= form of some of these behind the overload by factors.
    out_last = name.startswith("upsample_") or name in ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")

    def outer_dim(x: Array, *rest: Any) -> int | None:
        return longest(x.shape[:-rank]) if x.ndim > rank + 1 else None

    @library(
        f"{op}({arguments}) -> Tensor",
        half=half,
        out=None if out_last else "out",
        into=by_parts(outer_dim),
        type_rule=upsampled_type,
    )
    def plain(xp: Any, x: Array, output: list[int], *rest: Any) -> Array:
        """The input resampled to a size."""
        align, scales = (rest[0], rest[1:]) if aligns else (False, rest)
        return resample(xp, op, x, _expand(output, rank), scales, mode, align)

    text = f"Tensor input, int[]? output_size{align_text}, float[]? scale_factors"

    @library(f"{op}.vec({text}) -> Tensor", half=half, into=by_parts(outer_dim), type_rule=upsampled_type)
    def by_factors(xp: Any, x: Array, size: list[int] | None, *rest: Any) -> Array:
        """The input resampled to a size or by factors."""
        return resample_vec(xp, op, x, size, rest[-1], rank, mode, bool(rest[0]) if aligns else False)

    if out_last:
        _add_out(op, "out", arguments, plain, half)
    if name in ("upsample_nearest2d", "upsample_bilinear2d"):
        _add_out(f"{op}.vec", "vec_out", text, by_factors, half)


def _add_out(source: str, overload: str, arguments: str, body: Body, half: str) -> None:
    functional = by_full_name(source)
    assert functional is not None
    text = f"{functional.name}.{overload}({arguments}, *, Tensor(a!) out) -> Tensor(a!)"
    add_op(Op(text, "library", body, half=half, derived_from=functional, form="out"))


for _rank in (1, 2, 3):
    _declare(f"upsample_nearest{_rank}d", _rank, "nearest", False)
    _declare(f"_upsample_nearest_exact{_rank}d", _rank, "nearest-exact", False)
for _row in (
    ("upsample_linear1d", 1, "linear"),
    ("upsample_bilinear2d", 2, "linear"),
    ("upsample_trilinear3d", 3, "linear"),
    ("upsample_bicubic2d", 2, "cubic"),
    ("_upsample_bilinear2d_aa", 2, "bilinear"),
    ("_upsample_bicubic2d_aa", 2, "bicubic"),
    ("_upsample_lanczos2d_aa", 2, "lanczos"),
):
    _declare(*_row, True)


# -------------------------------------------------------------------- the builtin functions of older programs

_LINEAR_MODES = {"linear": 1, "bilinear": 2, "trilinear": 3}


def interpolate(
    xp: Any,
    op: str,
    x: Array,
    size: Any,
    factor: Any,
    mode: str,
    align: bool | None,
    recompute: bool | None,
    antialias: bool,
) -> Array:
    """What ``torch.nn.functional.interpolate`` computes; size and factor are one number, a list, or None."""
    rank = x.ndim - 2
    if rank not in (1, 2, 3):
        raise ShapeError(f"{op}: input {shape_text(x.shape)} has {x.ndim} dims, expected 3 to 5")
    if (size is None) == (factor is None):
        raise OpError(f"{op}: exactly one of size and scale_factor must be given")
    sizes: list[int] | None = None
    factors: list[float] | None = None
    if size is not None:
        sizes = list(size) if isinstance(size, (list, tuple)) else [size] * rank
        if recompute:
            raise OpError(f"{op}: recompute_scale_factor has no meaning when size is given")
    else:
        factors = [float(f) for f in factor] if isinstance(factor, (list, tuple)) else [float(factor)] * rank
    if len(sizes if sizes is not None else factors or ()) != rank:
        raise ShapeError(f"{op}: size or scale_factor must be one number or {rank} of them, found {size or factor}")
    if align is not None and mode in ("nearest", "nearest-exact", "area"):
        raise OpError(f"{op}: align_corners has no meaning in mode {mode!r}")
    if factors is not None and (recompute or mode == "area"):
        sizes, factors = [floor(n * f) for n, f in zip(x.shape[2:], factors, strict=True)], None
    if mode == "area":
        assert sizes is not None
        return adaptive_avg_pool(xp, op, x, sizes, rank)
    if mode in ("nearest", "nearest-exact"):
        return resample_vec(xp, op, x, sizes, factors, rank, mode, False)
    if antialias:
        if rank != 2 or mode not in _FILTERS:
            raise OpError(f"{op}: antialias needs 4 dims and mode 'bilinear', 'bicubic' or 'lanczos', found {mode!r}")
        return resample_vec(xp, op, x, sizes, factors, rank, mode, bool(align))
    if _LINEAR_MODES.get(mode) == rank:
        return resample_vec(xp, op, x, sizes, factors, rank, "linear", bool(align))
    if mode == "bicubic" and rank == 2:
        return resample_vec(xp, op, x, sizes, factors, rank, "cubic", bool(align))
    raise OpError(f"{op}: mode {mode!r} does not go with an input of {x.ndim} dims")


def _declare_builtins() -> None:
    for overload, size, factor in (
        (".scale_list", "int?", "float[]?"),
        (".size_list_scale_list", "int[]?", "float[]?"),
        ("", "int?", "float?"),
        (".size_list", "int[]?", "float?"),
    ):
        library(
            f"aten::__interpolate{overload}(Tensor input, {size} size=None, {factor} scale_factor=None, "
            'str mode="nearest", bool? align_corners=None, bool? recompute_scale_factor=None, '
            "bool antialias=False) -> Tensor",
            type_rule=interpolated_type,
        )(_interpolate)
    for overload, size in (("", "int?"), (".size_list", "int[]?")):
        library(
            f"aten::__upsample{overload}(Tensor input, {size} size=None, int? scale_factor=None, "
            'str mode="nearest", bool? align_corners=None) -> Tensor',
            type_rule=interpolated_type,
        )(_upsample)
        library(
            f"aten::__upsample_nearest{overload}(Tensor input, {size} size=None, int? scale_factor=None) -> Tensor",
            type_rule=interpolated_type,
        )(_nearest)
    for overload, size, factor in (
        ("", "int?", "int?"),
        (".size_list", "int[]?", "int?"),
        (".scale_list", "int?", "int[]?"),
        (".size_list_scale_list", "int[]?", "int[]?"),
    ):
        head = f"aten::__upsample_bilinear{overload}"
        text = f"{head}(Tensor input, {size} size=None, {factor} scale_factor=None) -> Tensor"
        library(text, type_rule=interpolated_type)(_bilinear)


def _interpolate(
    xp: Any, x: Array, size: Any, factor: Any, mode: str, align: bool | None, recompute: bool | None, antialias: bool
) -> Array:
    """The input resampled in the mode of that name."""
    return interpolate(xp, "aten::__interpolate", x, size, factor, mode, align, recompute, antialias)


def _upsample(xp: Any, x: Array, size: Any, factor: int | None, mode: str, align: bool | None) -> Array:
    """The input resampled in the mode of that name."""
    return interpolate(xp, "aten::__upsample", x, size, factor, mode, align, None, False)


def _nearest(xp: Any, x: Array, size: Any, factor: int | None) -> Array:
    """The input resampled without interpolation."""
    return interpolate(xp, "aten::__upsample_nearest", x, size, factor, "nearest", None, None, False)


def _bilinear(xp: Any, x: Array, size: Any, factor: Any) -> Array:
    """The input resampled linearly, corners kept in place."""
    return interpolate(xp, "aten::__upsample_bilinear", x, size, factor, "bilinear", True, None, False)


_declare_builtins()
