"""Fourier transforms: the ``fft_*`` family and the three transforms beneath it.

Single precision stays single: float32 gives complex64. Normalisations carry PyTorch's names, which are NumPy's too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpujit.ir.dtypes import FLOAT32, numpy_dtype
from gpujit.ir.values import Array
from gpujit.ops.into import fits
from gpujit.ops.promotion import COMPLEX64, COMPLEX128
from gpujit.ops.registry import library
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.layers import fourier_type
from gpujit.ops.rules.products import frequencies_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

_SINGLE = (FLOAT32, COMPLEX64)
# A Hermitian transform is a real one run the other way, so its scale moves to the other side too.
_SWAPPED = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}
_NUMBERED = ("none", "ortho", "by_n")


def to_transformable(op: str, x: Array) -> Array:
    """``x`` in a floating or complex dtype; integers and bools become float32. Raises DTypeError for half types."""
    kind = x.dtype.kind
    if kind in "bui":
        return x.astype(FLOAT32)
    if kind not in "fc" or x.dtype.itemsize < 4:
        raise DTypeError(f"{op}: unsupported dtype {x.dtype}; cast it to float32 first")
    return x


def _result(y: Array, single: bool) -> Array:
    # NumPy 1 computes and returns double precision.
    if y.dtype.kind == "c":
        return y.astype(COMPLEX64 if single else COMPLEX128, copy=False)
    return y.astype(FLOAT32 if single else np.float64, copy=False)


def _check_norm(op: str, norm: str | None) -> None:
    if norm not in _SWAPPED:
        raise OpError(f"{op}: invalid normalization mode {norm!r}; use 'backward', 'ortho' or 'forward'")


def _axis(op: str, x: Array, dim: int) -> int:
    if not -x.ndim <= dim < x.ndim:
        raise ShapeError(f"{op}: dim {dim} is out of range for a tensor of {x.ndim} dims")
    return dim % int(x.ndim)


def _axes(
    op: str, x: Array, s: Sequence[int] | None, dim: Sequence[int] | None
) -> tuple[tuple[int, ...], list[int | None]]:
    """The axes to transform and the size asked for along each (None: as it is)."""
    if dim is None:
        axes = tuple(range(x.ndim)) if s is None else tuple(range(x.ndim - len(s), x.ndim))
        if axes and axes[0] < 0:
            raise ShapeError(f"{op}: s has {len(s or ())} sizes for a tensor of {x.ndim} dims")
    else:
        axes = tuple(_axis(op, x, d) for d in dim)
        if len(set(axes)) != len(axes):
            raise ShapeError(f"{op}: FFT dims must be unique, found {list(dim)}")
    if s is not None and len(s) != len(axes):
        raise ShapeError(f"{op}: when given, dim and s must have the same length, found {len(axes)} and {len(s)}")
    sizes = [None if s is None or s[i] == -1 else int(s[i]) for i in range(len(axes))]
    for n in sizes:
        if n is not None and n < 1:
            raise ShapeError(f"{op}: invalid number of data points ({n}) specified")
    return axes, sizes


def _check_points(op: str, x: Array, axis: int, n: int | None) -> None:
    if (x.shape[axis] if n is None else n) < 1:
        raise ShapeError(f"{op}: invalid number of data points ({x.shape[axis] if n is None else n}) specified")


# ------------------------------------------------------------------------------------------------- one dimension


def _declare_one(name: str, transform: str, real_input: bool = False) -> None:
    op = f"aten::fft_{name}"

    rule = fourier_type({"irfft": "real", "hfft": "real", "rfft": "half", "ihfft": "half"}.get(transform, "full"))
    gives_reals = transform in ("irfft", "hfft")

    def given(x: Array, n: int | None, dim: int, norm: str | None) -> tuple[Array, int]:
        """The input as it is transformed, and its axis."""
        _check_norm(op, norm)
        x = to_transformable(op, x)
        if real_input and x.dtype.kind == "c":
            raise DTypeError(f"{op}: expects a real input tensor, but got {x.dtype}")
        axis = _axis(op, x, dim)
        if gives_reals:
            points = 2 * (x.shape[axis] - 1) if n is None else n
            if points < 1:
                raise ShapeError(f"{op}: invalid number of data points ({points}) specified")
            if x.dtype.kind != "c":
                x = x.astype(COMPLEX64 if x.dtype in _SINGLE else COMPLEX128)
        else:
            _check_points(op, x, axis, n)
        return x, axis

    def into(xp: Any, out: Array, x: Array, n: int | None, dim: int, norm: str | None) -> Any:
        x, axis = given(x, n, dim, norm)
        points = n if n is not None else 2 * (x.shape[axis] - 1) if gives_reals else x.shape[axis]
        if transform in ("rfft", "ihfft"):
            points = points // 2 + 1
        single = x.dtype in _SINGLE
        dtype = (FLOAT32 if single else np.float64) if gives_reals else COMPLEX64 if single else COMPLEX128
        if not fits(out, (*x.shape[:axis], points, *x.shape[axis + 1 :]), dtype):
            return NotImplemented
        if transform == "hfft":
            # NumPy's own does not write into ``out``.
            xp.fft.irfft(x.conj(), n, axis, _SWAPPED[norm], out)
        else:
            getattr(xp.fft, transform)(x, n, axis, norm, out)
        return None

    @library(
        f"{op}(Tensor self, int? n=None, int dim=-1, str? norm=None) -> Tensor",
        out="out",
        half="native",
        type_rule=rule,
        into=into,
    )
    def one(xp: Any, x: Array, n: int | None, dim: int, norm: str | None) -> Array:
        """The transform along one dim, whose input is first cut or padded with zeros to ``n`` points."""
        single = x.dtype.kind in "bui" or x.dtype in _SINGLE
        x, axis = given(x, n, dim, norm)
        return _result(getattr(xp.fft, transform)(x, n, axis, norm), single)


for _name in ("fft", "ifft", "irfft", "hfft"):
    _declare_one(_name, _name)
for _name in ("rfft", "ihfft"):
    _declare_one(_name, _name, real_input=True)


# ------------------------------------------------------------------------------------------------- several dimensions


def _resize(x: Array, axes: Sequence[int], sizes: Sequence[int | None], xp: Any) -> Array:
    """``x`` cut or padded with zeros at the end of each axis."""
    for axis, n in zip(axes, sizes, strict=True):
        have = x.shape[axis]
        if n is None or n == have:
            continue
        if n < have:
            x = x[(slice(None),) * axis + (slice(0, n),)]
        else:
            y = xp.zeros((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype)
            y[(slice(None),) * axis + (slice(0, have),)] = x
            x = y
    return x


def _complex_axes(xp: Any, x: Array, axes: Sequence[int], forward: bool, norm: str | None) -> Array:
    one = xp.fft.fft if forward else xp.fft.ifft
    for axis in axes:
        x = one(x, None, axis, norm)
    return x


def _c2c(xp: Any, op: str, x: Array, s: Any, dim: Any, norm: str | None, forward: bool) -> Array:
    axes, sizes = _axes(op, x, s, dim)
    x = _resize(x, axes, sizes, xp)
    for axis in axes:
        _check_points(op, x, axis, None)
    if not axes:
        return x.astype(COMPLEX64 if x.dtype in _SINGLE else COMPLEX128)
    return _complex_axes(xp, x, axes, forward, norm)


def _r2c(xp: Any, op: str, x: Array, s: Any, dim: Any, norm: str | None) -> Array:
    if x.dtype.kind == "c":
        raise DTypeError(f"{op}: expects a real-valued input tensor, but got {x.dtype}")
    axes, sizes = _axes(op, x, s, dim)
    if not axes:
        raise ShapeError(f"{op}: must transform at least one axis")
    x = _resize(x, axes, sizes, xp)
    for axis in axes:
        _check_points(op, x, axis, None)
    return _complex_axes(xp, xp.fft.rfft(x, None, axes[-1], norm), axes[:-1], True, norm)


def _c2r(xp: Any, op: str, x: Array, s: Any, dim: Any, norm: str | None) -> Array:
    axes, sizes = _axes(op, x, s, dim)
    if not axes:
        raise ShapeError(f"{op}: must transform at least one axis")
    last = sizes[-1] if sizes[-1] is not None else 2 * (x.shape[axes[-1]] - 1)
    if last < 1:
        raise ShapeError(f"{op}: invalid number of data points ({last}) specified")
    x = _resize(x, axes[:-1], sizes[:-1], xp)
    for axis in axes[:-1]:
        _check_points(op, x, axis, None)
    if x.dtype.kind != "c":
        x = x.astype(COMPLEX64 if x.dtype in _SINGLE else COMPLEX128)
    # Cut first: only so many of the last axis' points are read.
    x = x[(slice(None),) * axes[-1] + (slice(0, last // 2 + 1),)]
    return xp.fft.irfft(_complex_axes(xp, x, axes[:-1], False, norm), last, axes[-1], norm)


def _fftn(xp: Any, op: str, x: Array, s: Any, dim: Any, norm: str | None) -> Array:
    return _c2c(xp, op, x, s, dim, norm, True)


def _ifftn(xp: Any, op: str, x: Array, s: Any, dim: Any, norm: str | None) -> Array:
    return _c2c(xp, op, x, s, dim, norm, False)


def _hfftn(xp: Any, op: str, x: Array, s: Any, dim: Any, norm: str | None) -> Array:
    return _c2r(xp, op, x.conj(), s, dim, _SWAPPED[norm])


def _ihfftn(xp: Any, op: str, x: Array, s: Any, dim: Any, norm: str | None) -> Array:
    return _r2c(xp, op, x, s, dim, _SWAPPED[norm]).conj()


def _declare_many(name: str, transform: Callable[..., Array]) -> None:
    def run(xp: Any, op: str, x: Array, s: Any, dim: Any, norm: str | None) -> Array:
        _check_norm(op, norm)
        x = to_transformable(op, x)
        return _result(transform(xp, op, x, s, dim, norm), x.dtype in _SINGLE)

    @library(
        f"aten::fft_{name}2(Tensor self, int[1]? s=None, int[1] dim=[-2, -1], str? norm=None) -> Tensor",
        out="out",
        half="native",
    )
    def two(xp: Any, x: Array, s: Sequence[int] | None, dim: Sequence[int], norm: str | None) -> Array:
        """The transform along two dims, by default the last two."""
        return run(xp, f"aten::fft_{name}2", x, s, dim, norm)

    @library(
        f"aten::fft_{name}n(Tensor self, int[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
        out="out",
        half="native",
    )
    def many(xp: Any, x: Array, s: Sequence[int] | None, dim: Sequence[int] | None, norm: str | None) -> Array:
        """The transform along several dims: those named, the last ``len(s)``, or all."""
        return run(xp, f"aten::fft_{name}n", x, s, dim, norm)


for _name, _transform in (
    ("fft", _fftn),
    ("ifft", _ifftn),
    ("rfft", _r2c),
    ("irfft", _c2r),
    ("hfft", _hfftn),
    ("ihfft", _ihfftn),
):
    _declare_many(_name, _transform)


# ------------------------------------------------------------------------------------------------- what lies beneath


def _numbered(op: str, normalization: int, forward: bool) -> str:
    """NumPy's name for PyTorch's number: 0 no scale, 1 by the root of n, 2 by n."""
    if not 0 <= normalization < len(_NUMBERED):
        raise OpError(f"{op}: normalization must be 0, 1 or 2, found {normalization}")
    if normalization == 1:
        return "ortho"
    return "backward" if forward == (normalization == 0) else "forward"


@library("aten::_fft_c2c(Tensor self, int[] dim, int normalization, bool forward) -> Tensor", out="out", half="native")
def fft_c2c(xp: Any, x: Array, dim: Sequence[int], normalization: int, forward: bool) -> Array:
    """The complex transform along ``dim``, forward or backward."""
    op = "aten::_fft_c2c"
    if x.dtype.kind != "c":
        raise DTypeError(f"{op}: expects a complex tensor, found {x.dtype}")
    return _result(_c2c(xp, op, x, None, dim, _numbered(op, normalization, forward), forward), x.dtype in _SINGLE)


@library("aten::_fft_r2c(Tensor self, int[] dim, int normalization, bool onesided) -> Tensor", out="out", half="native")
def fft_r2c(xp: Any, x: Array, dim: Sequence[int], normalization: int, onesided: bool) -> Array:
    """The forward transform of real input; ``onesided`` keeps half of the last dim, which determines the rest."""
    op = "aten::_fft_r2c"
    if x.dtype.kind != "f":
        raise DTypeError(f"{op}: expects a floating point tensor, found {x.dtype}")
    norm = _numbered(op, normalization, True)
    y = _r2c(xp, op, x, None, dim, norm) if onesided else _c2c(xp, op, x, None, dim, norm, True)
    return _result(y, x.dtype in _SINGLE)


@library(
    "aten::_fft_c2r(Tensor self, int[] dim, int normalization, int last_dim_size) -> Tensor", out="out", half="native"
)
def fft_c2r(xp: Any, x: Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    """The backward transform of Hermitian input to ``last_dim_size`` real points."""
    op = "aten::_fft_c2r"
    if x.dtype.kind != "c":
        raise DTypeError(f"{op}: expects a complex tensor, found {x.dtype}")
    sizes = [x.shape[_axis(op, x, d)] for d in dim[:-1]] + [last_dim_size]
    return _result(_c2r(xp, op, x, sizes, dim, _numbered(op, normalization, False)), x.dtype in _SINGLE)


# ------------------------------------------------------------------------------------------------- frequencies, shifts


def _declare_frequencies(name: str) -> None:
    op = f"aten::fft_{name}"

    @library(
        f"{op}(int n, float d=1., *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
        "bool? pin_memory=None)"
        " -> Tensor",
        type_rule=frequencies_type,
    )
    def frequencies(xp: Any, n: int, d: float, dtype: int | None, layout: Any, device: Any, pin_memory: Any) -> Array:
        """The frequencies of the points of a transform of size ``n`` at sample spacing ``d``."""
        if n < 1:
            raise ShapeError(f"{op}: n must be positive, found {n}")
        result = FLOAT32 if dtype is None else numpy_dtype(dtype)
        if result.kind in "bui":
            raise DTypeError(f"{op}: requires a floating point or complex dtype, found {result}")
        # Whole numbers divided once in the result's precision, as PyTorch does.
        y = (xp.fft.fftfreq(n, 1.0 / n) if name == "fftfreq" else xp.fft.rfftfreq(n, 1.0 / n)).round().astype(result)
        y *= result.type(1.0 / (n * d))
        return y

    @library(f"{op}.out(int n, float d=1., *, Tensor(a!) out) -> Tensor(a!)")
    def frequencies_out(xp: Any, n: int, d: float, out: Array) -> Array:
        """The frequencies written into ``out``."""
        y = frequencies(xp, n, d, None, None, None, None)
        if out.shape != y.shape:
            raise ShapeError(f"{op}.out: out has shape {out.shape}, the result {y.shape}")
        out[...] = y
        return out


_declare_frequencies("fftfreq")
_declare_frequencies("rfftfreq")


def _declare_shift(name: str) -> None:
    op = f"aten::fft_{name}"

    @library(f"{op}(Tensor self, int[1]? dim=None) -> Tensor", half="native", type_rule=same_type)
    def shift(xp: Any, x: Array, dim: Sequence[int] | None) -> Array:
        """The tensor rolled by half along ``dim`` (by default all): frequency 0 moves to or from the middle."""
        axes = tuple(range(x.ndim)) if dim is None else tuple(_axis(op, x, d) for d in dim)
        shifts = tuple(x.shape[a] // 2 if name == "fftshift" else -(x.shape[a] // 2) for a in axes)
        return xp.roll(x, shifts, axes) if axes else x.copy()


_declare_shift("fftshift")
_declare_shift("ifftshift")
