"""Sums and means of bags of rows, whose bounds are data."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpujit.kernels.cuda_ops import DEVICE_NAMES, HALF_NAMES, NAME, held
from gpujit.kernels.cuda_source import Source


class Spec(NamedTuple):
    """What the source depends on: rows of floating-point ``dtype``, means or sums, whether each row has a weight."""

    dtype: np.dtype
    is_mean: bool
    has_weights: bool
    block: int = 256

    @property
    def word(self) -> str:
        """The type that pointers to numbers have."""
        return "uint16" if self.dtype in HALF_NAMES else self.dtype.name


@lru_cache(maxsize=32)
def source(spec: Spec) -> str:
    """The kernel.

    Arguments: rows; indexes of rows, where bags begin, weights of the indexes if they have some; the bags, the bag of
    each index, how many rows a bag has; flags of the checks of bounds and of indexes. All that is not of rows is int64.
    As int64 bags, numbers of a row, indexes, rows, their strides, and the index of rows that do not count.
    """
    s = Source()
    half, kind = HALF_NAMES.get(spec.dtype), held(spec.dtype)

    def read(text: str) -> str:
        return f"{half}({text})" if half else text

    names = ["w", "index", "first", *(["weight"] if spec.has_weights else []), "y", "bag_of", "sizes"]
    names += ["bounds", "inside", "bags", "width", "count", "rows", "row", "column", "left_out"]
    s.line("@cuda.jit")
    with s.block(f"def kernel({', '.join(names)}):"):
        s.line(f"u = int64(int64(cuda.blockIdx.x) * {spec.block} + cuda.threadIdx.x)")
        with s.block("while u < bags * width:"):
            s.line("bag = udiv(u, width)")
            s.line("c = urem(u, width)")
            s.line("j = first[bag]")
            s.line("end = count")
            with s.block("if bag + 1 < bags:"):
                s.line("end = first[bag + 1]")
            with s.block("if (j < 0) | (j > end) | (end > count) | ((bag == 0) & (j != 0)):"):
                s.line("bounds[0] = int32(1)")
                s.line("end = j")
            s.line(f"total = {kind}(0.0)")
            s.line("found = int64(0)")
            with s.block("while j < end:"):
                with s.block("if c == 0:"):
                    s.line("bag_of[j] = bag")
                s.line("i = index[j]")
                with s.block("if (i < 0) | (i >= rows):"):
                    s.line("inside[0] = int32(1)")
                with s.block("elif i != left_out:"):
                    term = read("w[i * row + c * column]")
                    s.line(f"total = total + {term}{' * ' + read('weight[j]') if spec.has_weights else ''}")
                    s.line("found = int64(found + 1)")
                s.line("j = int64(j + 1)")
            if spec.is_mean:
                s.line(f"total = total / {kind}(select(found > 0, found, int64(1)))")
            s.line(f"y[u] = {f'to_{half}(total)' if half else 'total'}")
            with s.block("if c == 0:"):
                s.line("sizes[bag] = found")
            s.line(f"u = int64(u + int64(cuda.gridDim.x) * {spec.block})")
    used = sorted({n for line in s.lines for n in NAME.findall(line)} & DEVICE_NAMES)
    head = [f"# bags: {'means' if spec.is_mean else 'sums'} of rows", "from numba import cuda", ""]
    head += ["from gpujit.kernels.cuda_device import (", *(f"    {name}," for name in used), ")", "", ""]
    return "\n".join([*head, *s.lines]) + "\n"
