"""Contractions over named indices: ``einsum``, ``tensordot``, ``bilinear``.

Two operands meet in one batched gemm: each is transposed to (batch, own, shared) order first. What an equation means
for operands of given shapes is worked out once and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from gpujit.ir.values import Array
from gpujit.ops.families.matrices.matmul import check_same_dtype
from gpujit.ops.promotion import result_type
from gpujit.ops.registry import library
from gpujit.ops.rules.products import bilinear_type, einsum_type
from gpujit.support.errors import OpError, ShapeError

_OP = "aten::einsum"


@dataclass(frozen=True, slots=True)
class _Equation:
    """Labels of the operands' dims and the result's; dims under an ellipsis are ``.0``, ``.1`` from the right."""

    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]


def _labels(text: str, ndim: int | None, where: str) -> tuple[str, ...]:
    """Labels of a subscript; with ``ndim`` an ellipsis stands for the dims left over."""
    head, dots, tail = text.partition("...")
    if any(not (c.isascii() and c.isalpha()) for c in head + tail):
        raise OpError(f"{_OP}: subscripts must be letters and one '...', found {text!r} for {where}")
    named = len(head) + len(tail)
    if ndim is None:
        return (*head, *tail)
    hidden = ndim - named
    if hidden < 0 or (hidden and not dots):
        raise ShapeError(f"{_OP}: subscripts {text!r} name {named} dims, {where} has {ndim}")
    return (*head, *(f".{hidden - 1 - i}" for i in range(hidden)), *tail)


@lru_cache(maxsize=1024)
def _parse(equation: str, ndims: tuple[int, ...]) -> _Equation:
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(ndims):
        raise OpError(f"{_OP}: the equation {equation!r} names {len(texts)} operands, {len(ndims)} were given")
    operands = tuple(_labels(t, n, f"operand {i}") for i, (t, n) in enumerate(zip(texts, ndims, strict=True)))
    everything = [x for labels in operands for x in labels]
    hidden = sorted({x for x in everything if x[0] == "."}, key=lambda x: -int(x[1:]))
    if not arrow:
        once = sorted(x for x in set(everything) if x[0] != "." and everything.count(x) == 1)
        return _Equation(operands, (*hidden, *once))
    head, dots, tail = right.partition("...")
    _labels(right, None, "the result")
    result = (*head, *(hidden if dots else ()), *tail)
    for x in result:
        if result.count(x) > 1:
            raise OpError(f"{_OP}: subscript {x!r} appears twice in the result of {equation!r}")
        if x not in everything:
            raise OpError(f"{_OP}: subscript {x!r} of the result is in no operand of {equation!r}")
    return _Equation(operands, result)


def _diagonal(x: Array, labels: tuple[str, ...]) -> tuple[Array, tuple[str, ...]]:
    """``x`` with each label once: repeated ones are read along their diagonal."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            if x.shape[i] != x.shape[j]:
                raise ShapeError(
                    f"{_OP}: subscript {label!r} is repeated over dims of {x.shape[i]} and {x.shape[j]} elements"
                )
            x = x.diagonal(0, i, j)
            labels = (*(s for k, s in enumerate(labels) if k not in (i, j)), label)
    return x, labels


def _arrange(x: Array, labels: tuple[str, ...], wanted: tuple[str, ...]) -> Array:
    order = tuple(labels.index(s) for s in wanted)
    return x if order == tuple(range(len(order))) else x.transpose(order)


def _sum_labels(x: Array, labels: tuple[str, ...], gone: set[str], xp: Any) -> tuple[Array, tuple[str, ...]]:
    if not gone:
        return x, labels
    axes = tuple(i for i, s in enumerate(labels) if s in gone)
    return xp.asarray(x.sum(axis=axes)), tuple(s for s in labels if s not in gone)


def contract_pair(
    xp: Any, a: Array, la: tuple[str, ...], b: Array, lb: tuple[str, ...], keep: set[str]
) -> tuple[Array, tuple[str, ...]]:
    """The product of two labelled arrays, summed over every label that ``keep`` lacks; and the labels of the result.

    A dim of one element broadcasts against the other operand's dim of the same label.
    """
    # A label that only one operand has, or only one has with more than one element, is summed there at once.
    size_a, size_b = dict(zip(la, a.shape, strict=True)), dict(zip(lb, b.shape, strict=True))
    a, la = _sum_labels(a, la, {s for s in la if s not in keep and (s not in size_b or size_b[s] == 1 < size_a[s])}, xp)
    b, lb = _sum_labels(b, lb, {s for s in lb if s not in keep and (s not in size_a or size_a[s] == 1 < size_b[s])}, xp)
    shared = [s for s in la if s in lb]
    inner = tuple(s for s in shared if s not in keep)
    if not inner:
        labels = (*la, *(s for s in lb if s not in la))
        left = _arrange(a, la, la).reshape(a.shape + (1,) * (len(labels) - len(la)))
        present = tuple(s for s in labels if s in lb)
        right = _arrange(b, lb, present)
        right = right[tuple(slice(None) if s in lb else None for s in labels)]
        if a.dtype != b.dtype:
            dtype = result_type(a, b)
            left, right = left.astype(dtype), right.astype(dtype)
        return xp.asarray(left * right), tuple(labels)
    check_same_dtype(_OP, **{"one operand": a, "the other": b})
    batch = tuple(s for s in shared if s in keep)
    # A kept dim of one element on either side broadcasts in matmul when it is a batch dim, so batch dims stay unmerged.
    own_a = tuple(s for s in la if s not in shared)
    own_b = tuple(s for s in lb if s not in shared)
    left = _arrange(a, la, batch + own_a + inner)
    right = _arrange(b, lb, batch + inner + own_b)
    n = len(batch)
    rows, k = left.shape[n : n + len(own_a)], left.shape[n + len(own_a) :]
    columns = right.shape[n + len(inner) :]
    depth = prod(k)
    left = left.reshape((*left.shape[:n], prod(rows), depth))
    right = right.reshape((*right.shape[:n], depth, prod(columns)))
    y = left.dot(right) if not n else xp.matmul(left, right)
    return y.reshape(y.shape[:n] + rows + columns), batch + own_a + own_b


def _check_sizes(equation: str, tensors: Sequence[Array], labels: Sequence[tuple[str, ...]]) -> None:
    sizes: dict[str, int] = {}
    for x, names in zip(tensors, labels, strict=True):
        for s, n in zip(names, x.shape, strict=True):
            known = sizes.get(s, 1)
            if n not in (1, known) and known != 1:
                raise ShapeError(f"{_OP}: subscript {s!r} of {equation!r} stands for {known} and for {n} elements")
            sizes[s] = n if n != 1 else known


@dataclass(frozen=True, slots=True)
class _Pair:
    """A contraction of two operands as one gemm: how each is transposed and reshaped, and the result after it."""

    orders: tuple[tuple[int, ...], tuple[int, ...]]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    batched: bool
    result_shape: tuple[int, ...]
    result_order: tuple[int, ...]


@lru_cache(maxsize=2048)
def _plan_pair(equation: str, shape_a: tuple[int, ...], shape_b: tuple[int, ...]) -> _Pair | None:
    """The plan of the common case: no diagonal, no dim summed alone, none broadcast. None for all others."""
    parsed = _parse(equation, (len(shape_a), len(shape_b)))
    (la, lb), result = parsed.operands, parsed.result
    size_a, size_b = dict(zip(la, shape_a, strict=True)), dict(zip(lb, shape_b, strict=True))
    shared = [s for s in la if s in size_b]
    inner = [s for s in shared if s not in result]
    own_a = [s for s in la if s not in size_b]
    own_b = [s for s in lb if s not in size_a]
    if len(size_a) < len(la) or len(size_b) < len(lb) or not inner or not set(own_a + own_b) <= set(result):
        return None
    if any(size_a[s] != size_b[s] for s in shared):
        return None
    batch = [s for s in shared if s in result]
    lead = tuple(size_a[s] for s in batch)
    rows, columns = tuple(size_a[s] for s in own_a), tuple(size_b[s] for s in own_b)
    k = prod(size_a[s] for s in inner)
    names = batch + own_a + own_b
    return _Pair(
        (tuple(map(la.index, batch + own_a + inner)), tuple(map(lb.index, batch + inner + own_b))),
        ((*lead, prod(rows), k), (*lead, k, prod(columns))),
        bool(batch),
        lead + rows + columns,
        tuple(map(names.index, result)),
    )


def contract(xp: Any, equation: str, tensors: Sequence[Array]) -> Array:
    """What ``einsum`` returns."""
    if len(tensors) == 2:
        a, b = tensors
        plan = _plan_pair(equation, a.shape, b.shape)
        if plan is not None:
            if a.dtype is not b.dtype or a.dtype.kind == "b":
                check_same_dtype(_OP, **{"one operand": a, "the other": b})
            (order_a, order_b), (shape_a, shape_b) = plan.orders, plan.shapes
            a, b = a.transpose(order_a).reshape(shape_a), b.transpose(order_b).reshape(shape_b)
            y = xp.matmul(a, b) if plan.batched else a.dot(b)
            return y.reshape(plan.result_shape).transpose(plan.result_order)
    parsed = _parse(equation, tuple(x.ndim for x in tensors))
    _check_sizes(equation, tensors, parsed.operands)
    pairs = [_diagonal(x, labels) for x, labels in zip(tensors, parsed.operands, strict=True)]
    x, labels = pairs[0]
    for i in range(1, len(pairs)):
        later = set(parsed.result).union(*(p[1] for p in pairs[i + 1 :]))
        x, labels = contract_pair(xp, x, labels, *pairs[i], later)
    gone = set(labels).difference(parsed.result)
    if gone and x.dtype.kind in "bui":
        x = x.astype("int64")
    x, labels = _sum_labels(x, labels, gone, xp)
    return _arrange(x, labels, parsed.result)


@library(
    "aten::einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor", type_rule=einsum_type, may_alias=True
)
def einsum(xp: Any, equation: str, tensors: Sequence[Array], path: Sequence[int] | None) -> Array:
    """Sums of products over named indices, as in ``bij,bjk->bik``; operands are taken from left to right."""
    if not tensors:
        raise OpError(f"{_OP}: needs at least one operand")
    return contract(xp, equation, tensors)


@library("aten::tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor", out="out")
def tensordot(xp: Any, a: Array, b: Array, dims_a: Sequence[int], dims_b: Sequence[int]) -> Array:
    """Sums of products over pairs of dims; the other dims of ``a`` come first, then those of ``b``."""
    op = "aten::tensordot"
    if len(dims_a) != len(dims_b):
        raise ShapeError(f"{op}: dims_self {list(dims_a)} and dims_other {list(dims_b)} must be equally many")
    check_same_dtype(op, self=a, other=b)
    for name, x, dims in (("self", a, dims_a), ("other", b, dims_b)):
        if any(not -x.ndim <= d < x.ndim for d in dims) or len({d % max(x.ndim, 1) for d in dims}) != len(dims):
            raise ShapeError(f"{op}: dims {list(dims)} are not distinct dims of {name}, of shape {x.shape}")
    ia, ib = [d % a.ndim for d in dims_a], [d % b.ndim for d in dims_b]
    for i, j in zip(ia, ib, strict=True):
        if a.shape[i] != b.shape[j]:
            # PyTorch broadcasts a contracted dim of one element: the other operand is summed over it.
            if a.shape[i] == 1:
                b = b.sum(axis=j, keepdims=True, dtype=b.dtype)
            elif b.shape[j] == 1:
                a = a.sum(axis=i, keepdims=True, dtype=a.dtype)
            else:
                raise ShapeError(f"{op}: dim {i} of self has {a.shape[i]} elements, dim {j} of other {b.shape[j]}")
    own_a = [i for i in range(a.ndim) if i not in ia]
    own_b = [j for j in range(b.ndim) if j not in ib]
    rows, columns = [a.shape[i] for i in own_a], [b.shape[j] for j in own_b]
    k = prod(a.shape[i] for i in ia)
    left = a.transpose(own_a + ia).reshape(prod(rows), k)
    right = b.transpose(ib + own_b).reshape(k, prod(columns))
    return left.dot(right).reshape(rows + columns)


@library(
    "aten::bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor", type_rule=bilinear_type
)
def bilinear(xp: Any, x1: Array, x2: Array, w: Array, bias: Array | None) -> Array:
    """``x1 @ w[o] @ x2 + bias`` for each output ``o``; ``x1 [..., I]``, ``x2 [..., J]``, ``w [O, I, J]``."""
    op = "aten::bilinear"
    check_same_dtype(op, input1=x1, input2=x2, weight=w)
    fits = w.ndim == 3 and min(x1.ndim, x2.ndim) >= 1 and x1.shape[:-1] == x2.shape[:-1]
    if not fits or (x1.shape[-1], x2.shape[-1]) != w.shape[1:]:
        raise ShapeError(f"{op}: inputs {x1.shape} and {x2.shape} do not fit a weight [O, I, J] of shape {w.shape}")
    o, i, j = w.shape
    lead = x1.shape[:-1]
    n = prod(lead)
    half = x1.reshape(n, i).dot(w.transpose(1, 0, 2).reshape(i, o * j)).reshape(n, o, j)
    y = xp.matmul(half, x2.reshape(n, j, 1)).reshape((*lead, o))
    if bias is not None:
        if bias.shape != (o,):
            raise ShapeError(f"{op}: bias has shape {bias.shape}, the weight gives {o} outputs")
        y += bias
    return y


@library(
    "aten::_trilinear(Tensor i1, Tensor i2, Tensor i3, int[] expand1, int[] expand2, int[] expand3, int[] sumdim, "
    "int unroll_dim=1) -> Tensor",
    out="out",
)
def trilinear(
    xp: Any,
    a: Array,
    b: Array,
    c: Array,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int,
) -> Array:
    """The sum over ``sumdim`` of the product of three tensors, each first given a dim of one at its ``expand`` dims."""
    n = a.ndim + len(expand1)
    hidden = [tuple(str(d) for d in range(n) if d not in e) for e in (expand1, expand2, expand3)]
    result = tuple(str(d) for d in range(n) if d not in sumdim)
    x, labels = contract_pair(xp, a, hidden[0], b, hidden[1], {*result, *hidden[2]})
    x, labels = contract_pair(xp, x, labels, c, hidden[2], set(result))
    x, labels = _sum_labels(x, labels, set(labels).difference(result), xp)
    return _arrange(x, labels, result)
