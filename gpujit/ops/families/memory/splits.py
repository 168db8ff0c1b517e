"""Views that cut a tensor into several along a dim: split, chunk, tensor_split, unbind and their relatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from gpujit.ir.values import Array
from gpujit.ops.into import copied_all
from gpujit.ops.layout import BEFORE, out_forms, wrap_dim
from gpujit.ops.registry import library, type_rule_of, view
from gpujit.ops.rules.data import tensor_split_type
from gpujit.ops.rules.pieces import (
    chunk_type,
    split_sizes_type,
    split_type,
    tensor_split_indices_type,
    tensor_split_sections_type,
    unbind_type,
)
from gpujit.support.errors import ShapeError


def _dim_of(x: Array, dim: int, op: str) -> int:
    if x.ndim == 0:
        raise ShapeError(f"{op}: a 0-dim tensor can't be cut; at least one dim is needed")
    return dim if 0 <= dim < x.ndim else wrap_dim(dim, x.ndim, op)


def _cut(x: Array, d: int, bounds: Sequence[int]) -> list[Array]:
    """Pieces between successive bounds."""
    if d == 0:
        return [x[a:b] for a, b in pairwise(bounds)]
    before = BEFORE[d]
    return [x[(*before, slice(a, b))] for a, b in pairwise(bounds)]


def _by_size(x: Array, size: int, dim: int, op: str) -> list[Array]:
    d = _dim_of(x, dim, op)
    n = x.shape[d]
    if size < 0 or (size == 0 and n):
        raise ShapeError(f"{op}: split size {size} doesn't fit dim {dim} of size {n}; it must be positive")
    if n == 0:
        return [x[...]]
    return _cut(x, d, [*range(0, n, size), n])


def _by_sizes(x: Array, sizes: Sequence[int], dim: int, op: str) -> list[Array]:
    d = _dim_of(x, dim, op)
    bounds = [0]
    for s in sizes:
        bounds.append(bounds[-1] + s)
    if bounds[-1] != x.shape[d] or (sizes and min(sizes) < 0):
        raise ShapeError(f"{op}: split sizes {list(sizes)} must add up to {x.shape[d]}, the size of dim {dim}")
    return _cut(x, d, bounds)


def _by_chunks(x: Array, chunks: int, dim: int, op: str) -> list[Array]:
    d = _dim_of(x, dim, op)
    if chunks <= 0:
        raise ShapeError(f"{op}: the number of chunks must be positive, found {chunks}")
    n = x.shape[d]
    if n == 0:
        return _cut(x, d, [0] * (chunks + 1))
    return _by_size(x, -(-n // chunks), d, op)


def _by_sections(x: Array, sections: int, dim: int, op: str) -> list[Array]:
    d = _dim_of(x, dim, op)
    if sections <= 0:
        raise ShapeError(f"{op}: the number of sections must be positive, found {sections}")
    size, longer = divmod(x.shape[d], sections)
    return _cut(x, d, [i * size + min(i, longer) for i in range(sections + 1)])


def _by_indices(x: Array, indices: Sequence[int], dim: int, op: str) -> list[Array]:
    d = _dim_of(x, dim, op)
    starts, ends = [0, *indices], [*indices, x.shape[d]]
    before = BEFORE[d]
    return [x[(*before, slice(a, b))] for a, b in zip(starts, ends, strict=True)]


@view("aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]", type_rule=split_type)
def split(xp: Any, x: Array, split_size: int, dim: int) -> list[Array]:
    """Pieces of ``split_size`` along ``dim``; the last may be smaller."""
    return _by_size(x, split_size, dim, "aten::split")


@view(
    "aten::split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]", type_rule=split_sizes_type
)
def split_sizes(xp: Any, x: Array, split_size: list[int], dim: int) -> list[Array]:
    """Pieces of the given sizes along ``dim``."""
    return _by_sizes(x, split_size, dim, "aten::split")


@view("aten::split(Tensor(a -> *) self, int[] split_sizes, int dim=0) -> Tensor(a)[]", type_rule=split_sizes_type)
def split_list(xp: Any, x: Array, split_sizes: list[int], dim: int) -> list[Array]:
    """Pieces of the given sizes along ``dim``."""
    return _by_sizes(x, split_sizes, dim, "aten::split")


@view(
    "aten::split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]",
    type_rule=split_sizes_type,
)
def split_with_sizes(xp: Any, x: Array, split_sizes: list[int], dim: int) -> list[Array]:
    """Pieces of the given sizes along ``dim``."""
    return _by_sizes(x, split_sizes, dim, "aten::split_with_sizes")


@view("aten::chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]", type_rule=chunk_type)
def chunk(xp: Any, x: Array, chunks: int, dim: int) -> list[Array]:
    """At most ``chunks`` pieces of one size along ``dim``; the last may be smaller."""
    return _by_chunks(x, chunks, dim, "aten::chunk")


@view(
    "aten::tensor_split.sections(Tensor(a -> *) self, SymInt sections, int dim=0) -> Tensor(a)[]",
    type_rule=tensor_split_sections_type,
)
def tensor_split_sections(xp: Any, x: Array, sections: int, dim: int) -> list[Array]:
    """Exactly ``sections`` pieces along ``dim``, the first ones longer by one where it doesn't divide."""
    return _by_sections(x, sections, dim, "aten::tensor_split")


@view(
    "aten::tensor_split.indices(Tensor(a -> *) self, SymInt[] indices, int dim=0) -> Tensor(a)[]",
    type_rule=tensor_split_indices_type,
)
def tensor_split_indices(xp: Any, x: Array, indices: list[int], dim: int) -> list[Array]:
    """Pieces between successive indices of ``dim``."""
    return _by_indices(x, indices, dim, "aten::tensor_split")


@view(
    "aten::tensor_split.tensor_indices_or_sections(Tensor(a -> *) self, Tensor tensor_indices_or_sections, int dim=0) "
    "-> Tensor(a)[]",
    type_rule=tensor_split_type,
)
def tensor_split_tensor(xp: Any, x: Array, tensor_indices_or_sections: Array, dim: int) -> list[Array]:
    """As tensor_split by a number (0-dim int64 tensor) or by indices (1-dim)."""
    where = tensor_indices_or_sections
    if where.dtype != "int64" or where.ndim > 1:
        raise ShapeError(
            f"aten::tensor_split: indices or sections must be an int64 tensor of 0 or 1 dims, "
            f"found {where.dtype} of {where.ndim}"
        )
    if where.ndim:
        return _by_indices(x, where.tolist(), dim, "aten::tensor_split")
    return _by_sections(x, int(where), dim, "aten::tensor_split")


def _declare_named_splits() -> None:
    for name, least, dims in (("hsplit", 1, (0, 1)), ("vsplit", 2, (0, 0)), ("dsplit", 3, (2, 2))):

        def dim_of(x: Array, *, name: str = name, least: int = least, dims: tuple[int, int] = dims) -> int:
            if x.ndim < least:
                raise ShapeError(f"aten::{name}: at least {least} dims are needed, shape {list(x.shape)} has {x.ndim}")
            return dims[x.ndim > 1]

        def equal(
            xp: Any, x: Array, sections: int, *, name: str = name, dim_of: Callable[[Array], int] = dim_of
        ) -> list[Array]:
            """Exactly ``sections`` pieces of one size."""
            d = dim_of(x)
            if sections <= 0 or x.shape[d] % sections:
                raise ShapeError(f"aten::{name}: {sections} sections don't divide dim {d} of size {x.shape[d]}")
            return _by_sections(x, sections, d, f"aten::{name}")

        def at(
            xp: Any, x: Array, indices: list[int], *, name: str = name, dim_of: Callable[[Array], int] = dim_of
        ) -> list[Array]:
            """Pieces between successive indices."""
            return _by_indices(x, indices, dim_of(x), f"aten::{name}")

        view(f"aten::{name}.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]")(equal)
        view(f"aten::{name}.array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]")(at)


_declare_named_splits()


@view("aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]", type_rule=unbind_type)
def unbind(xp: Any, x: Array, dim: int) -> list[Array]:
    """All slices along ``dim``, without that dim."""
    d = _dim_of(x, dim, "aten::unbind")
    if d == 0:
        return [x[i, ...] for i in range(x.shape[0])]
    before = BEFORE[d]
    return [x[(*before, i, ...)] for i in range(x.shape[d])]


def _declare_unaliased() -> None:
    """unsafe_* promise that nobody writes through the pieces, *_copy ones are copies."""
    sizes, size = "SymInt[] split_sizes, int dim=0", "SymInt split_size, int dim=0"
    unsafe = (
        ("unsafe_split.Tensor", size, split),
        ("unsafe_split_with_sizes", sizes, split_with_sizes),
        ("unsafe_chunk", "int chunks, int dim=0", chunk),
    )
    for name, arguments, of in unsafe:
        rule = type_rule_of(f"aten::{name.replace('unsafe_', '')}")
        text = f"aten::{name}(Tensor self, {arguments}) -> Tensor[]"
        library(text, half="native", type_rule=rule, may_alias=True)(of)
    copies = (
        ("split_copy.Tensor", size, split),
        ("split_with_sizes_copy", sizes, split_with_sizes),
        ("unbind_copy.int", "int dim=0", unbind),
    )
    for name, arguments, of in copies:

        def copied(xp: Any, *args: Any, of: Callable[..., list[Array]] = of) -> list[Array]:
            """Contiguous copies of the pieces."""
            return [piece.copy() for piece in of(xp, *args)]

        def into(xp: Any, outs: Sequence[Array], *args: Any, of: Callable[..., list[Array]] = of) -> Any:
            return copied_all(outs, of(xp, *args))

        rule = type_rule_of(f"aten::{name.replace('_copy', '')}")
        library(f"aten::{name}(Tensor self, {arguments}) -> Tensor[]", half="native", into=into, type_rule=rule)(copied)
    for name, arguments, out in (
        ("unsafe_split.Tensor", size, "Tensor_out"),
        ("unsafe_split_with_sizes", sizes, "out"),
        ("split_copy.Tensor", size, "Tensor_out"),
        ("split_with_sizes_copy", sizes, "out"),
        ("unbind_copy.int", "int dim=0", "int_out"),
    ):
        base = name.partition(".")[0]
        out_forms(f"aten::{base}.{out}(Tensor self, {arguments}, *, Tensor(a!)[] out) -> ()", of=f"aten::{name}")


_declare_unaliased()
