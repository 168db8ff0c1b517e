"""Covariance, correlation and histograms."""

from __future__ import annotations

from typing import Any

from gpujit.ir.dtypes import BOOL_, FLOAT64, INT64
from gpujit.ir.values import Array
from gpujit.ops.promotion import result_type, to_floating
from gpujit.ops.registry import out_form, reduction
from gpujit.ops.rules.data import bincount_type
from gpujit.ops.rules.reduce import histogram_count_type
from gpujit.support.errors import DTypeError, OpError, ShapeError


@reduction(
    "aten::cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor",
    half="promote",
)
def cov(m: Any, x: Array, correction: int, fweights: Array | None, aweights: Array | None) -> Array:
    """Covariance matrix of variables in rows and observations in columns; 0-dim for one variable."""
    if x.ndim > 2 or x.dtype == BOOL_:
        raise ShapeError(f"aten::cov: expected a matrix of numbers, found {x.dtype} of shape {x.shape}")
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    n = rows.shape[1]
    weights = None
    for name, w in (("fweights", fweights), ("aweights", aweights)):
        if w is None:
            continue
        if w.ndim > 1 or w.size != n:
            raise ShapeError(f"aten::cov: {name} has shape {w.shape}; it needs one number for each of {n} observations")
        if (w < 0).any():
            raise OpError(f"aten::cov: {name} must not be negative")
        w = w.reshape(-1)
        weights = w if weights is None else weights * w
    dtype = to_floating(result_type(x, aweights))
    rows = rows.astype(dtype, copy=False)
    if weights is None:
        centre = rows.sum(axis=1, keepdims=True) / n
        count: Any = n
    else:
        weights = weights.astype(dtype, copy=False)
        count = weights.sum()
        if n and count == 0:
            raise OpError("aten::cov: the weights sum to zero")
        centre = (rows * weights).sum(axis=1, keepdims=True) / count
    if weights is not None and aweights is not None and correction != 0:
        divisor = count - correction * (weights * aweights.reshape(-1)).sum() / count
    else:
        divisor = count - correction
    d = rows - centre
    right = d if weights is None else d * weights
    y = d @ right.T.conj() / m.asarray(max(divisor, 0), dtype=d.real.dtype)
    return (y.reshape(()) if y.size == 1 else y).astype(dtype, copy=False)


@reduction("aten::corrcoef(Tensor self) -> Tensor")
def corrcoef(m: Any, x: Array) -> Array:
    """Correlation matrix of variables in rows and observations in columns; 0-dim for one variable."""
    if x.ndim > 2:
        raise ShapeError(f"aten::corrcoef: expected a matrix, found shape {x.shape}")
    c = cov(m, x, 1, None, None)
    if c.ndim == 0:
        return c / c
    deviation = m.sqrt(c.diagonal().real)
    c = c / deviation[:, None] / deviation[None, :]
    if c.dtype.kind == "c":
        return (m.clip(c.real, -1, 1) + 1j * m.clip(c.imag, -1, 1)).astype(c.dtype)
    return m.clip(c, -1, 1)


# ---------------------------------------------------------------------------------------------------- histograms


@reduction(
    "aten::bincount(Tensor self, Tensor? weights=None, int minlength=0) -> Tensor",
    half="native",
    out="out",
    type_rule=bincount_type,
)
def bincount(m: Any, x: Array, weights: Array | None, minlength: int) -> Array:
    """How often each value 0, 1, 2, .. occurs, int64; the sum of its weights when there are any."""
    if minlength < 0:
        raise ShapeError(f"aten::bincount: minlength must not be negative, found {minlength}")
    if x.ndim != 1 or x.dtype.kind not in "ui" or (x.size and x.min() < 0):
        lowest = f" from {x.min()} up" if x.size and x.dtype.kind in "ui" else ""
        raise ShapeError(
            f"aten::bincount: expected integers from 0 up in 1 dim, found {x.dtype} of shape {x.shape}{lowest}"
        )
    if weights is not None and weights.shape != x.shape:
        raise ShapeError(f"aten::bincount: weights of shape {weights.shape} do not match the input's {x.shape}")
    x = x.astype(INT64, copy=False)
    if weights is None:
        return m.bincount(x, minlength=minlength).astype(INT64, copy=False)
    y = m.bincount(x, weights.astype(FLOAT64), minlength)
    return y.astype(weights.dtype if weights.dtype.char == "f" else FLOAT64, copy=False)


@reduction(
    "aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor",
    out="out",
    type_rule=histogram_count_type,
)
def histc(m: Any, x: Array, bins: int, min: float, max: float) -> Array:
    """Counts, in x's dtype, of ``bins`` equal bins from ``min`` to ``max`` (of the data, when both are equal)."""
    if x.dtype.char not in "fd":
        raise DTypeError(f"aten::histc: expected a floating tensor, found {x.dtype}")
    if bins <= 0:
        raise ShapeError(f"aten::histc: bins must be positive, found {bins}")
    low, high = x.dtype.type(min), x.dtype.type(max)
    if low == high and x.size:
        low, high = x.min(), x.max()
    if not (m.isfinite(low) and m.isfinite(high)):
        raise OpError(f"aten::histc: the range from {low} to {high} is not finite")
    if low == high:
        low, high = low - x.dtype.type(1), high + x.dtype.type(1)
    if low > high:
        raise OpError(f"aten::histc: max ({high}) must be larger than min ({low})")
    x = x.reshape(-1)
    x = x[(x >= low) & (x <= high)]
    # PyTorch's order of operations, so that values on an edge fall on the same side.
    slot = ((x - low) * x.dtype.type(bins) / (high - low)).astype(INT64)
    slot[slot == bins] = bins - 1
    return m.bincount(slot, minlength=bins).astype(x.dtype)


def _edges(m: Any, low: Any, high: Any, count: int, dtype: Any) -> Array:
    """``count`` evenly spaced numbers, the first half counted up from ``low``, the second down from ``high``."""
    low, high = dtype.type(low), dtype.type(high)
    if count == 1:
        return m.asarray([low])
    step = (high - low) / dtype.type(count - 1)
    i = m.arange(count, dtype=dtype)
    return m.where(i < count // 2, low + step * i, high - step * (count - 1 - i)).astype(dtype)


def _ranges(m: Any, x: Array, span: list[float] | None, op: str) -> list[tuple[Any, Any]]:
    width = x.shape[-1]
    if span:
        if len(span) != 2 * width:
            raise ShapeError(f"{op}: range has {len(span)} numbers; {width} dims need {2 * width}")
        pairs = [(x.dtype.type(span[2 * i]), x.dtype.type(span[2 * i + 1])) for i in range(width)]
    elif x.size == 0:
        pairs = [(x.dtype.type(0), x.dtype.type(1))] * width
    else:
        pairs = list(zip(x.reshape(-1, width).min(axis=0), x.reshape(-1, width).max(axis=0), strict=True))
    for low, high in pairs:
        if not (m.isfinite(low) and m.isfinite(high)) or low > high:
            raise OpError(f"{op}: the range from {low} to {high} is not finite and increasing")
    half = x.dtype.type(0.5)
    return [(low - half, high + half) if low == high else (low, high) for low, high in pairs]


def _histogram(m: Any, x: Array, edges: list[Array], weight: Array | None, density: bool, op: str) -> Array:
    """Counts of the rows of ``x [.., D]`` in the grid that ``edges`` span, in x's dtype."""
    width = x.shape[-1]
    if x.dtype.char not in "fd":
        raise DTypeError(f"{op}: expected a floating tensor, found {x.dtype}")
    if len(edges) != width:
        raise ShapeError(f"{op}: {len(edges)} sequences of edges for {width} dims")
    for e in edges:
        if e.dtype != x.dtype:
            raise DTypeError(f"{op}: edges of {e.dtype} for a tensor of {x.dtype}; they must be the same")
    rows = x.reshape(-1, width)
    if weight is not None and weight.shape != x.shape[:-1]:
        raise ShapeError(f"{op}: weights of shape {weight.shape} for values of shape {x.shape[:-1]}")
    shape = tuple(e.shape[0] - 1 for e in edges)
    inside = m.ones(rows.shape[0], dtype=BOOL_)
    flat = m.zeros(rows.shape[0], dtype=INT64)
    for d, e in enumerate(edges):
        column = rows[:, d]
        inside &= (column >= e[0]) & (column <= e[-1])
        slot = m.searchsorted(e, column, side="right") - 1
        # The last bin holds its right edge.
        flat = flat * shape[d] + m.minimum(slot, shape[d] - 1)
    size = 1
    for n in shape:
        size *= n
    chosen = None if weight is None else weight.reshape(-1)[inside].astype(FLOAT64)
    y = m.bincount(flat[inside], chosen, size).astype(x.dtype).reshape(shape)
    if density:
        y = y / y.sum()
        for d, e in enumerate(edges):
            y = y / m.diff(e).reshape((-1,) + (1,) * (len(shape) - d - 1))
    return y


@reduction(
    "aten::histogram.bins_tensor(Tensor self, Tensor bins, *, Tensor? weight=None, bool density=False) "
    "-> (Tensor hist, Tensor bin_edges)"
)
def histogram_edges(m: Any, x: Array, bins: Array, weight: Array | None, density: bool) -> tuple[Array, Array]:
    """Counts (or weights) of the bins between the given edges, and the edges."""
    if bins.ndim != 1 or bins.shape[0] == 0:
        raise ShapeError(f"aten::histogram: bins must be a 1-d tensor of edges, found shape {bins.shape}")
    weight = None if weight is None else weight.reshape(-1)
    return _histogram(m, x.reshape(-1, 1), [bins], weight, density, "aten::histogram"), bins.copy()


@reduction(
    "aten::histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None, bool "
    "density=False) "
    "-> (Tensor hist, Tensor bin_edges)"
)
def histogram_count(
    m: Any, x: Array, bins: int, range: list[float] | None, weight: Array | None, density: bool
) -> tuple[Array, Array]:
    """Counts (or weights) of ``bins`` equal bins over ``range`` (of the data, when None), and their edges."""
    _check_bins(bins, "aten::histogram")
    x = x.reshape(-1, 1)
    edges = _edges(m, *_ranges(m, x, range, "aten::histogram")[0], bins + 1, x.dtype)
    weight = None if weight is None else weight.reshape(-1)
    return _histogram(m, x, [edges], weight, density, "aten::histogram"), edges


for _overload, _head in (
    ("bins_tensor", "Tensor self, Tensor bins, *"),
    ("bin_ct", "Tensor self, int bins=100, *, float[]? range=None"),
):
    out_form(
        f"aten::histogram.{_overload}_out({_head}, Tensor? weight=None, bool density=False, Tensor(a!) hist, "
        "Tensor(b!) bin_edges) -> (Tensor(a!) hist, Tensor(b!) bin_edges)",
        f"aten::histogram.{_overload}",
    )


def _check_bins(bins: int, op: str) -> None:
    if bins < 1:
        raise ShapeError(f"{op}: bins is {bins}; it must be at least 1")


def _grid(m: Any, x: Array, bins: list[int], span: list[float] | None, op: str) -> list[Array]:
    for n in bins:
        _check_bins(n, op)
    if x.ndim < 2:
        raise ShapeError(f"{op}: expected a tensor of at least 2 dims, found shape {x.shape}")
    if len(bins) != x.shape[-1]:
        raise ShapeError(f"{op}: {len(bins)} numbers of bins for {x.shape[-1]} dims")
    pairs = _ranges(m, x, span, op)
    return [_edges(m, low, high, n + 1, x.dtype) for (low, high), n in zip(pairs, bins, strict=True)]


@reduction(
    "aten::histogramdd(Tensor self, int[] bins, float[]? range=None, Tensor? weight=None, bool density=False) "
    "-> (Tensor hist, Tensor[] bin_edges)"
)
def histogramdd(
    m: Any, x: Array, bins: list[int], range: list[float] | None, weight: Array | None, density: bool
) -> tuple[Array, list[Array]]:
    """Counts of the rows of ``x [.., D]`` in a grid of ``bins`` cells, and the edges along each dim."""
    edges = _grid(m, x, bins, range, "aten::histogramdd")
    return _histogram(m, x, edges, weight, density, "aten::histogramdd"), edges


@reduction(
    "aten::histogramdd.int_bins(Tensor self, int bins, float[]? range=None, Tensor? weight=None, bool density=False) "
    "-> (Tensor hist, Tensor[] bin_edges)"
)
def histogramdd_int(
    m: Any, x: Array, bins: int, range: list[float] | None, weight: Array | None, density: bool
) -> tuple[Array, list[Array]]:
    """Counts of the rows of ``x [.., D]`` in a grid of ``bins`` cells along every dim, and the edges."""
    edges = _grid(m, x, [bins] * (x.shape[-1] if x.ndim else 0), range, "aten::histogramdd")
    return _histogram(m, x, edges, weight, density, "aten::histogramdd"), edges


@reduction(
    "aten::histogramdd.TensorList_bins(Tensor self, Tensor[] bins, float[]? range=None, Tensor? weight=None, "
    "bool density=False) -> (Tensor hist, Tensor[] bin_edges)"
)
def histogramdd_edges(
    m: Any, x: Array, bins: list[Array], range: list[float] | None, weight: Array | None, density: bool
) -> tuple[Array, list[Array]]:
    """Counts of the rows of ``x [.., D]`` in the grid of the given edges, and the edges."""
    return _histogram(m, x, bins, weight, density, "aten::histogramdd"), [b.copy() for b in bins]


@reduction(
    "aten::_histogramdd_bin_edges(Tensor self, int[] bins, *, float[]? range=None, Tensor? weight=None, "
    "bool density=False) -> Tensor[]"
)
def histogramdd_bin_edges(
    m: Any, x: Array, bins: list[int], range: list[float] | None, weight: Array | None, density: bool
) -> list[Array]:
    """The edges along each dim of a grid of ``bins`` cells."""
    return _grid(m, x, bins, range, "aten::_histogramdd_bin_edges")


@reduction(
    "aten::_histogramdd_from_bin_cts(Tensor self, int[] bins, *, float[]? range=None, Tensor? weight=None, "
    "bool density=False) -> Tensor",
    out="out",
)
def histogramdd_from_counts(
    m: Any, x: Array, bins: list[int], range: list[float] | None, weight: Array | None, density: bool
) -> Array:
    """Counts of the rows of ``x [.., D]`` in a grid of ``bins`` cells."""
    return histogramdd(m, x, bins, range, weight, density)[0]


@reduction(
    "aten::_histogramdd_from_bin_tensors(Tensor self, Tensor[] bins, *, Tensor? weight=None, bool density=False) -> "
    "Tensor",
    out="out",
)
def histogramdd_from_edges(m: Any, x: Array, bins: list[Array], weight: Array | None, density: bool) -> Array:
    """Counts of the rows of ``x [.., D]`` in the grid of the given edges."""
    return _histogram(m, x, bins, weight, density, "aten::_histogramdd_from_bin_tensors")
