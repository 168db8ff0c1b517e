"""Images sampled at the points of a grid, written out: where each point lies, and its neighbours by their weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from gpujit.ir.dtypes import FLOAT32, FLOAT64, INT64, code_of
from gpujit.ir.graph import Node, Value
from gpujit.ops.families.layers.grid import BICUBIC, NEAREST, REFLECTION, ZEROS
from gpujit.passes.decompose.writing import Writer, known_dtype, numbers_of
from gpujit.passes.peephole.facts import constant_of, known_shape

# PyTorch's, in the weights of bicubic interpolation.
_A = -0.75


def affine_grid(write: Writer, node: Node) -> Value | str:
    """``affine_grid_generator``: the product of a regular grid, which is a constant, and the maps."""
    theta, sizes, align = node.inputs[0], numbers_of(node.inputs[1]), constant_of(node.inputs[2])
    dtype, shape = known_dtype(theta), known_shape(theta)
    if dtype not in (FLOAT32, FLOAT64) or sizes is None or len(sizes) not in (4, 5) or type(align) is not bool:
        return "dtype and sizes are not known"
    rank = len(sizes) - 2
    if shape != (sizes[0], rank, rank + 1) or not prod(sizes):
        return "the operator refuses it, or there is nothing"
    base = np.ones((*sizes[2:], rank + 1), dtype)
    for axis, n in enumerate(sizes[2:]):
        line = np.linspace(-1, 1, n, dtype=dtype) if n > 1 else np.zeros(n, dtype)
        if not align:
            line = line * dtype.type((n - 1) / n)
        base[..., rank - 1 - axis] = line.reshape(-1, *(1,) * (rank - 1 - axis))
    points = write(base.reshape(1, -1, rank + 1))
    y = write("matmul", points, write("transpose.int", theta, 1, 2))
    return write("reshape", y, [sizes[0], *sizes[2:], rank])


def grid_sample(write: Writer, node: Node) -> Value | str:
    """``grid_sampler``, in the order in which the operator adds."""
    x, grid = node.inputs[:2]
    mode, padding, align = map(constant_of, node.inputs[2:5])
    shape, points = known_shape(x), known_shape(grid)
    if known_dtype(x, grid) not in (FLOAT32, FLOAT64) or shape is None or points is None:
        return "shapes and one dtype are not known"
    rank = len(shape) - 2
    if rank not in (2, 3) or len(points) != rank + 2 or points[0] != shape[0] or points[-1] != rank:
        return "the operator refuses it"
    if mode not in (0, 1, 2) or padding not in (0, 1, 2) or type(align) is not bool or (mode == BICUBIC and rank == 3):
        return "the operator refuses it"
    if not prod(shape) or not prod(points):
        return "there is nothing to sample"
    sampler = _Sampler(write, x, padding, align)
    flat = write("reshape", grid, [points[0], -1, rank])
    at = [sampler.pixels(write("select.int", flat, 2, rank - 1 - axis), n) for axis, n in enumerate(shape[2:])]
    if mode == BICUBIC:
        y = sampler.bicubic(at)
    else:
        at = [sampler.placed(a, n) for a, n in zip(at, shape[2:], strict=True)]
        y = sampler.fetch([write("round", a) for a in at]) if mode == NEAREST else sampler.linear(at)
    return write("reshape", y, [*shape[:2], *points[1:-1]])


class _Sampler:
    """Positions are ``[N, points]`` in pixels, what is found ``[N, C, points]``."""

    def __init__(self, write: Writer, x: Value, padding: int, align: bool) -> None:
        self.write, self.padding, self.align = write, padding, align
        shape = known_shape(x)
        assert shape is not None
        self.channels, self.sizes = shape[1], shape[2:]
        self.rows = write("reshape", x, [*shape[:2], prod(self.sizes)])

    def pixels(self, at: Value, n: int) -> Value:
        """Positions of numbers from -1 to 1."""
        write = self.write
        at = write("add.Scalar", at, 1)
        if self.align:
            return write("mul.Scalar", at, (n - 1) * 0.5)
        return write("mul.Scalar", write("sub.Scalar", write("mul.Scalar", at, n), 1), 0.5)

    def placed(self, at: Value, n: int) -> Value:
        """Positions that are where the padding has them."""
        write = self.write
        if self.padding == ZEROS:
            return at
        if self.padding == REFLECTION:
            at = self.reflected(at, n)
        # NaN goes to the first pixel of a plane, and to the last of a volume.
        if len(self.sizes) == 3:
            at = write("where.ScalarSelf", write("lt.Scalar", at, 0), 0.0, at)
        else:
            at = write("where.ScalarOther", write("gt.Scalar", at, 0), at, 0.0)
        return write("where.ScalarOther", write("lt.Scalar", at, n - 1), at, float(n - 1))

    def reflected(self, at: Value, n: int) -> Value:
        """Positions thrown back at the edges as often as it takes."""
        write = self.write
        low, span = (0.0, float(n - 1)) if self.align else (-0.5, float(n))
        if span <= 0:
            return write("zeros_like", at)
        at = write("abs", write("sub.Scalar", at, low))
        turns = write("floor", write("div.Scalar", at, span))
        rest = write("sub.Tensor", at, write("mul.Scalar", turns, span))
        is_even = write("eq.Scalar", write("remainder.Scalar", turns, 2), 0)
        back = write("add.Scalar", write("sub.Scalar", write("neg", rest), -span), low)
        return write("where.self", is_even, write("add.Scalar", rest, low), back)

    def fetch(self, places: Sequence[Value]) -> Value:
        """Pixels at whole positions; zeros outside."""
        write = self.write
        index = inside = None
        for at, n in zip(places, self.sizes, strict=True):
            good = write("logical_and", write("ge.Scalar", at, 0), write("lt.Scalar", at, n))
            inside = good if inside is None else write("logical_and", inside, good)
            whole = write("to.dtype", write("where.ScalarOther", good, at, 0.0), code_of(INT64))
            # What is known of it saves a check.
            whole = write("clamp", whole, 0, n - 1)
            index = whole if index is None else write("add.Tensor", write("mul.Scalar", index, n), whole)
        assert index is not None and inside is not None
        shape = known_shape(index)
        assert shape is not None
        index = write("expand", write("unsqueeze", index, 1), [shape[0], self.channels, shape[1]])
        found = write("gather", self.rows, 2, index)
        return write("where.ScalarOther", write("unsqueeze", inside, 1), found, 0.0)

    def linear(self, at: Sequence[Value]) -> Value:
        """The pixels around each point, by how near they are."""
        write = self.write
        low = [write("floor", a) for a in at]
        part = [write("sub.Tensor", a, b) for a, b in zip(at, low, strict=True)]
        other = [write("rsub.Scalar", p, 1) for p in part]
        total = None
        for corner in product((0, 1), repeat=len(at)):
            weights = [p if up else o for up, p, o in zip(corner, part, other, strict=True)]
            found = self.fetch([write("add.Scalar", b, 1) if up else b for up, b in zip(corner, low, strict=True)])
            total = self._added(total, found, weights)
        assert total is not None
        return total

    def bicubic(self, at: Sequence[Value]) -> Value:
        """The sixteen pixels around each point."""
        write = self.write
        low = [write("floor", a) for a in at]
        weights = [self._cubic(write("sub.Tensor", a, b)) for a, b in zip(at, low, strict=True)]
        places = [
            [self.placed(write("add.Scalar", b, k) if k else b, n) for k in (-1, 0, 1, 2)]
            for b, n in zip(low, self.sizes, strict=True)
        ]
        total = None
        for i, j in product(range(4), repeat=2):
            total = self._added(total, self.fetch([places[0][i], places[1][j]]), [weights[0][i], weights[1][j]])
        assert total is not None
        return total

    def _cubic(self, t: Value) -> list[Value]:
        """Weights of the pixels before, at and behind a point that lies ``t`` behind the second one."""
        write = self.write

        def near(s: Value) -> Value:
            y = write("sub.Scalar", write("mul.Scalar", s, _A + 2), _A + 3)
            return write("add.Scalar", write("mul.Tensor", write("mul.Tensor", y, s), s), 1)

        def far(s: Value) -> Value:
            y = write("sub.Scalar", write("mul.Scalar", s, _A), 5 * _A)
            y = write("add.Scalar", write("mul.Tensor", y, s), 8 * _A)
            return write("sub.Scalar", write("mul.Tensor", y, s), 4 * _A)

        before, behind = write("rsub.Scalar", t, 1), write("rsub.Scalar", t, 2)
        return [far(write("add.Scalar", t, 1)), near(t), near(before), far(behind)]

    def _added(self, total: Value | None, found: Value, weights: Sequence[Value]) -> Value:
        write = self.write
        weight = weights[0]
        for w in weights[1:]:
            weight = write("mul.Tensor", weight, w)
        term = write("mul.Tensor", found, write("unsqueeze", weight, 1))
        return term if total is None else write("add.Tensor", total, term)
