"""Type rules of products of matrices, and of what else is asked of square ones."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gpujit.ir.types import TensorType
from gpujit.ops.rules.common import (
    DType,
    ListOf,
    Rule,
    Shape,
    Size,
    Unknown,
    broadcast,
    cast,
    dtype_of,
    like,
    need_rank,
    promoted,
    same_dtype,
    same_size,
    shape_of,
    size_of,
    tensor,
    texts,
)
from gpujit.ops.symbolic import NotKnown
from gpujit.support.errors import DTypeError, ShapeError

# --------------------------------------------------------------------------------------------------------- matrices


def _one_dtype(op: str, *tensors: TensorType | None) -> DType | None:
    """The dtype operands share. Raises DTypeError when two are known and differ."""
    known = [d for t in tensors if t is not None and (d := dtype_of(t)) is not None]
    if len(set(known)) > 1:
        raise DTypeError(f"{op}: operands have dtypes {' and '.join(map(str, known))}; cast them to one dtype")
    return known[0] if known and all(t is None or t.dtype is not None for t in tensors) else None


def product_shape(a: Shape, b: Shape, op: str) -> Shape:
    """The shape of a matrix product: vectors lose their dim, batch dims broadcast. Raises ShapeError."""
    if not a or not b:
        raise ShapeError(f"{op}: both tensors need at least 1 dim, found {len(a)} and {len(b)}")
    message = f"{op}: shapes {texts(a)} and {texts(b)} can't be multiplied; the inner sizes differ"
    same_size(a[-1], b[-2] if len(b) > 1 else b[0], message)
    batch = broadcast([a[:-2], b[:-2]], op)
    return (*batch, *(a[-2:-1] if len(a) > 1 else ()), *(b[-1:] if len(b) > 1 else ()))


def matmul_type(a: TensorType, b: TensorType, *, op: str) -> TensorType:
    """The product of matrices or vectors, batch dims broadcast."""
    return tensor(_one_dtype(op, a, b), product_shape(shape_of(a), shape_of(b), op))


def ranked_product_type(left: int, right: int) -> Rule:
    """A rule: the product of operands of these ranks, batches alike."""

    def rule(a: TensorType, b: TensorType, *, out_dtype: Any = None, op: str) -> TensorType:
        """The product."""
        dtype = _one_dtype(op, a, b)
        x = shape_of(a) if a.shape is not None else (None,) * left
        y = shape_of(b) if b.shape is not None else (None,) * right
        if len(x) != left or len(y) != right:
            raise ShapeError(f"{op}: expected {left} and {right} dims, found {len(x)} and {len(y)}")
        if left == 3:
            message = f"{op}: batches of shapes {texts(x)} and {texts(y)} can't be multiplied"
            batch = same_size(x[0], y[0], message)
            same_size(x[2], y[1], message)
            return cast(tensor(dtype, (batch, x[1], y[2])), out_dtype)
        return cast(tensor(dtype, product_shape(x, y, op)), out_dtype)

    return rule


def added_product_type(left: int, right: int) -> Rule:
    """A rule: the product of the second and third argument, to which the first is added."""
    product = ranked_product_type(left, right)

    def rule(x: TensorType, a: TensorType, b: TensorType, *, out_dtype: Any = None, op: str) -> TensorType:
        """The product plus something."""
        found: TensorType = product(a, b, out_dtype=out_dtype, op=op)
        if x.shape is not None and found.shape is not None and broadcast([x.shape, found.shape], op) != found.shape:
            known = None not in x.shape and None not in found.shape
            if known:
                raise ShapeError(f"{op}: self of shape {texts(x.shape)} does not broadcast to {texts(found.shape)}")
        return found

    return rule


def addbmm_type(x: TensorType, a: TensorType, b: TensorType, *, op: str) -> TensorType:
    """The sum of a batch of products, plus something."""
    found: TensorType = ranked_product_type(3, 3)(a, b, op=op)
    return like(found, shape_of(found)[1:])


def linear_type(x: TensorType, weight: TensorType, bias: TensorType | None = None, *, op: str) -> TensorType:
    """Rows of ``x`` times the transposed weight: the last size becomes the number of outputs."""
    dtype = _one_dtype(op, x, weight, bias)
    shape, w = shape_of(x), need_rank(weight, (1, 2), op, "weight")
    if not shape:
        raise ShapeError(f"{op}: the input needs at least one dim")
    message = f"{op}: input {texts(shape)} and weight {texts(w)} do not agree in their last size"
    same_size(shape[-1], w[-1], message)
    return tensor(dtype, (*shape[:-1], *w[:-1]))


def outer_type(a: TensorType, b: TensorType, *, op: str) -> TensorType:
    """All products of two vectors."""
    return tensor(promoted(a, b), (*need_rank(a, (1,), op), *need_rank(b, (1,), op)))


def addr_type(x: TensorType, a: TensorType, b: TensorType, *, op: str) -> TensorType:
    """All products of two vectors, plus something."""
    return tensor(promoted(x, a, b), (*need_rank(a, (1,), op), *need_rank(b, (1,), op)))


def einsum_type(equation: Any, tensors: Any, *, op: str) -> TensorType:
    """The sizes that the letters of an equation have."""
    if isinstance(equation, Unknown) or isinstance(tensors, (Unknown, ListOf)):
        raise NotKnown
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise ShapeError(f"{op}: {equation!r} has {len(terms)} operands, {len(tensors)} tensors were given")
    sizes: dict[str, Size] = {}
    spread: list[Shape] = []
    for term, x in zip(terms, tensors, strict=True):
        shape = shape_of(x)
        before, dots, after = term.partition("...")
        width = len(shape) - len(before) - len(after)
        if width < 0 or (width and not dots):
            raise ShapeError(f"{op}: {term!r} of {equation!r} does not fit a tensor of {len(shape)} dims")
        if dots:
            spread.append(shape[len(before) : len(before) + width])
        rest = shape[len(before) + width :] if after else ()
        for letter, n in (*zip(before, shape, strict=False), *zip(after, rest, strict=True)):
            if letter in sizes:
                sizes[letter] = broadcast([(sizes[letter],), (n,)], op)[0]
            else:
                sizes[letter] = n
    if not arrow:
        letters = left.replace(",", "").replace("...", "")
        right = ("..." if spread else "") + "".join(sorted(c for c in sizes if letters.count(c) == 1))
    found: list[Size] = []
    for part in re.findall(r"\.\.\.|.", right):
        if part == "...":
            found += broadcast(spread, op)
        elif part in sizes:
            found.append(sizes[part])
        else:
            raise ShapeError(f"{op}: {part!r} in the result of {equation!r} is in no operand")
    return tensor(same_dtype(*tensors), found)


def bilinear_type(a: TensorType, b: TensorType, weight: TensorType) -> TensorType:
    """The leading sizes, and one output for each slice of the weight."""
    return tensor(same_dtype(a, b, weight), (*shape_of(a)[:-1], shape_of(weight)[0]))


# ------------------------------------------------------------------------------------------------ matrices, factored


def inverse_type(x: TensorType, *, op: str) -> TensorType:
    """Square matrices."""
    _square(x, op)
    return TensorType(x.dtype, x.shape)


def _square(x: TensorType, op: str) -> Shape:
    shape = shape_of(x)
    if len(shape) < 2:
        raise ShapeError(f"{op}: at least 2 dims are needed, found shape {texts(shape)}")
    same_size(shape[-1], shape[-2], f"{op}: the matrices must be square, found shape {texts(shape)}")
    return shape


def determinant_type(x: TensorType, *, op: str) -> TensorType:
    """One number for each square matrix."""
    return like(x, _square(x, op)[:-2])


def frequencies_type(n: Any, *, dtype: Any, op: str) -> TensorType:
    """Frequencies of a transform of ``n`` samples (half of them for ``rfft``)."""
    size = size_of(n)
    if "rfft" in op and size is not None:
        size = size // 2 + 1
    return cast(tensor(np.dtype(np.float32), (size,)), dtype)
