"""Grids and combinations: meshgrid, cartesian_prod, combinations, vander, block_diag, one_hot, indices of triangles."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from gpujit.ir.dtypes import FLOAT32, INT64
from gpujit.ir.values import Array, Device
from gpujit.ops.families.memory.create import OPTIONS
from gpujit.ops.layout import cast, dtype_of, expand_to, module_for, out_forms
from gpujit.ops.promotion import DEFAULT_FLOAT, result_type
from gpujit.ops.registry import library
from gpujit.ops.rules.data import one_hot_type
from gpujit.ops.rules.factories import triangle_indices_type
from gpujit.ops.rules.pieces import meshgrid_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

# PyTorch makes combinations from a grid with one dim an element, of which a tensor has at most 64.
_LONGEST_ROW = 64


def _grids(xp: Any, tensors: list[Array], indexing: str, op: str) -> list[Array]:
    if indexing not in ("ij", "xy"):
        raise OpError(f"{op}: indexing must be 'ij' or 'xy', found {indexing!r}")
    for t in tensors:
        if t.ndim > 1:
            raise ShapeError(f"{op}: tensors of at most one dim are needed, found shape {list(t.shape)}")
        if t.dtype != tensors[0].dtype:
            raise DTypeError(f"{op}: all tensors must have one dtype, found {tensors[0].dtype} and {t.dtype}")
    flat = [t.reshape(-1) for t in tensors]
    swap = indexing == "xy" and len(flat) > 1
    if swap:
        flat[0], flat[1] = flat[1], flat[0]
    shape = tuple(t.size for t in flat)
    n = len(shape)
    grids = [expand_to(xp, t.reshape([-1 if d == i else 1 for d in range(n)]), shape) for i, t in enumerate(flat)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return grids


@library("aten::meshgrid(Tensor[] tensors) -> Tensor[]", half="native", type_rule=meshgrid_type, may_alias=True)
def meshgrid(xp: Any, tensors: list[Array]) -> list[Array]:
    """For each tensor its values along a dim of their own, expanded over those of the others."""
    return _grids(xp, tensors, "ij", "aten::meshgrid")


@library(
    "aten::meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]",
    half="native",
    type_rule=meshgrid_type,
    may_alias=True,
)
def meshgrid_indexing(xp: Any, tensors: list[Array], indexing: str) -> list[Array]:
    """As meshgrid; ``xy`` exchanges the first two dims."""
    return _grids(xp, tensors, indexing, "aten::meshgrid")


@library("aten::cartesian_prod(Tensor[] tensors) -> Tensor", half="native", may_alias=True)
def cartesian_prod(xp: Any, tensors: list[Array]) -> Array:
    """All combinations of one element from each 1-dim tensor, as rows."""
    for t in tensors:
        if t.ndim != 1:
            raise ShapeError(f"aten::cartesian_prod: 1-dim tensors are needed, found shape {list(t.shape)}")
    if not tensors:
        raise ShapeError("aten::cartesian_prod: at least one tensor is needed, found an empty list")
    if len(tensors) == 1:
        return tensors[0]
    grids = _grids(xp, tensors, "ij", "aten::cartesian_prod")
    y = xp.empty((*grids[0].shape, len(grids)), tensors[0].dtype)
    for i, g in enumerate(grids):
        y[..., i] = g
    return y.reshape(-1, len(grids))


@library("aten::combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor", half="native")
def combinations(xp: Any, x: Array, r: int, with_replacement: bool) -> Array:
    """All combinations of ``r`` elements of a 1-dim tensor, in order, as rows."""
    if x.ndim != 1 or r < 0:
        raise ShapeError(
            f"aten::combinations: a 1-dim tensor and r >= 0 are needed, found shape {list(x.shape)} and r {r}"
        )
    if r == 0:
        return xp.empty(0, x.dtype)
    n = x.size
    if r > _LONGEST_ROW and (with_replacement or r <= n):
        raise OpError(f"aten::combinations: r is {r}, rows of more than {_LONGEST_ROW} elements are not supported")
    if r > n and not (with_replacement and n):
        return xp.empty((0, r), x.dtype)
    index = xp.arange(n)[:, None]
    for _ in range(r - 1):
        # Each row grows by every index after (or from) its last one.
        last = index[:, -1]
        counts = n - last - (0 if with_replacement else 1)
        rows = xp.repeat(xp.arange(len(index)), counts)
        first = xp.cumsum(counts) - counts
        step = xp.arange(rows.size) - first[rows] + last[rows] + (0 if with_replacement else 1)
        index = xp.concatenate((index[rows], step[:, None]), axis=1)
    return x[index]


@library("aten::vander(Tensor x, int? N=None, bool increasing=False) -> Tensor", half="native")
def vander(xp: Any, x: Array, n: int | None, increasing: bool) -> Array:
    """Powers of a 1-dim tensor as columns, falling unless ``increasing``."""
    if x.ndim != 1:
        raise ShapeError(f"aten::vander: a 1-dim tensor is needed, found shape {list(x.shape)}")
    columns = x.size if n is None else n
    if columns < 0:
        raise ShapeError(f"aten::vander: N must not be negative, found {columns}")
    target = INT64 if x.dtype.kind in "biu" else x.dtype
    y = xp.empty(
        (x.size, columns), FLOAT32 if x.dtype.kind not in "biufc" or (x.itemsize == 2 and target != INT64) else target
    )
    if columns:
        y[:, 0] = 1
        y[:, 1:] = x[:, None]
        y[:, 1:] = xp.cumprod(y[:, 1:], axis=1)
    return cast(y if increasing else y[:, ::-1].copy(), target)


@library("aten::block_diag(Tensor[] tensors) -> Tensor", half="native")
def block_diag(xp: Any, tensors: list[Array]) -> Array:
    """A matrix with the tensors as blocks along its diagonal; 0- and 1-dim ones count as one row."""
    if not tensors:
        return xp.empty((1, 0), DEFAULT_FLOAT)
    for t in tensors:
        if t.ndim > 2:
            raise ShapeError(f"aten::block_diag: tensors of at most 2 dims are needed, found shape {list(t.shape)}")
    blocks = [t if t.ndim == 2 else t.reshape(1, -1) for t in tensors]
    dtype = blocks[0].dtype
    for b in blocks[1:]:
        dtype = result_type(xp.empty(1, dtype), xp.empty(1, b.dtype))
    rows = [0, *accumulate(b.shape[0] for b in blocks)]
    columns = [0, *accumulate(b.shape[1] for b in blocks)]
    y = xp.zeros((rows[-1], columns[-1]), dtype)
    for b, r, c in zip(blocks, rows, columns, strict=False):
        y[r : r + b.shape[0], c : c + b.shape[1]] = cast(b, dtype)
    return y


@library("aten::one_hot(Tensor self, int num_classes=-1) -> Tensor", half="native", type_rule=one_hot_type)
def one_hot(xp: Any, x: Array, num_classes: int) -> Array:
    """int64 rows of zeros with a one at each class; ``num_classes`` -1 takes the largest class."""
    op = "aten::one_hot"
    if x.dtype != INT64:
        raise DTypeError(f"{op}: an int64 tensor is needed, found {x.dtype}")
    if x.size == 0:
        if num_classes <= 0:
            raise ShapeError(f"{op}: the number of classes can't be read from an empty tensor; give num_classes")
        return xp.zeros((*x.shape, num_classes), INT64)
    low, high = int(x.min()), int(x.max())
    if low < 0:
        raise ShapeError(f"{op}: class {low} is negative")
    if num_classes == -1:
        num_classes = high + 1
    elif num_classes < 1 or high >= num_classes:
        raise ShapeError(f"{op}: class {high} is not below num_classes {num_classes}")
    y = xp.zeros((x.size, num_classes), INT64)
    y.reshape(-1)[xp.arange(0, x.size * num_classes, num_classes) + x.reshape(-1)] = 1
    return y.reshape(*x.shape, num_classes)


out_forms("aten::block_diag.out(Tensor[] tensors, *, Tensor(a!) out) -> Tensor(a!)", of="aten::block_diag")


def _declare_triangle_indices() -> None:
    for name, lower in (("tril_indices", True), ("triu_indices", False)):

        def indices(
            xp: Any,
            row: int,
            col: int,
            offset: int,
            dtype: int | None,
            layout: int | None,
            device: Device | None,
            pin_memory: bool | None,
            *,
            op: str = f"aten::{name}",
            lower: bool = lower,
        ) -> Array:
            """Row and column numbers of a triangle, as two rows, in row order."""
            if row < 0 or col < 0:
                raise ShapeError(f"{op}: sizes {row} and {col} must not be negative")
            target = INT64 if dtype is None else dtype_of(dtype, op)
            module = module_for(xp, device, op)
            r, c = module.arange(row)[:, None], module.arange(col)
            inside = (c - r <= offset) if lower else (c - r >= offset)
            found = inside.nonzero()
            y = module.empty((2, found[0].size), target)
            y[0], y[1] = found
            return y

        arguments = "int row, int col, int offset=0"
        options = OPTIONS.replace("dtype=None", "dtype=4")
        library(f"aten::{name}({arguments}, *, {options}) -> Tensor", half="native", type_rule=triangle_indices_type)(
            indices
        )
        out_forms(f"aten::{name}.out({arguments}, *, Tensor(a!) out) -> Tensor(a!)", of=f"aten::{name}")


_declare_triangle_indices()
