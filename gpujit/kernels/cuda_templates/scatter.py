"""Elements put or added at places along a dim that index tensors say.

A thread takes all elements of a line, one after the other: places that come more than once are served in order, so that
results do not depend on how threads run, and the last of several elements that are put at one place stays.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpujit.ir.dtypes import BOOL_
from gpujit.kernels.cuda_ops import DEVICE_NAMES, NAME, held
from gpujit.kernels.cuda_source import Source


class Spec(NamedTuple):
    """What the source depends on.

    ``rank``: dims that a line is a place in; ``indexes``: index tensors, each for a dim of its own. ``is_sum``:
    elements are added, of ``dtype``; else they are moved as bits. ``has_factor``: times a number. ``wraps``: negative
    indexes count from the end.
    """

    dtype: np.dtype
    rank: int
    indexes: int = 1
    is_sum: bool = False
    has_factor: bool = False
    wraps: bool = False
    block: int = 256

    @property
    def word(self) -> str:
        """The type that elements are read as."""
        if self.is_sum and self.dtype != BOOL_:
            return held(self.dtype)
        return f"uint{8 * self.dtype.itemsize}"


@lru_cache(maxsize=128)
def source(spec: Spec) -> str:
    """The kernel.

    Arguments: the tensor, elements, indexes as int64, the flag of the check that they are within the tensor; as int64
    how many lines there are and elements of a line; for each dim of lines its size, and the strides of the tensor, of
    the elements and of indexes; the strides of elements and indexes along a line; for each index the tensor's size and
    stride; then the factor.
    """
    s = Source()
    indexes = range(spec.indexes)
    dims = [f"{x}{d}" for d in range(spec.rank) for x in ("n", "so", "sv", "si")]
    ends = [f"{x}{k}" for k in indexes for x in ("m", "t")]
    names = ["o", "v", *(f"i{k}" for k in indexes), "flags", "lines", "length", *dims, "sv", "si", *ends]
    s.line("@cuda.jit")
    with s.block(f"def kernel({', '.join([*names, *(['factor'] if spec.has_factor else [])])}):"):
        s.line(f"u = int64(int64(cuda.blockIdx.x) * {spec.block} + cuda.threadIdx.x)")
        with s.block("while u < lines:"):
            s.line("rest = u")
            for name in ("at_o", "at_v", "at_i"):
                s.line(f"{name} = int64(0)")
            for d in reversed(range(spec.rank)):
                s.line(f"c = urem(rest, n{d})")
                s.line(f"rest = udiv(rest, n{d})")
                for x in "ovi":
                    s.line(f"at_{x} = int64(at_{x} + c * s{x}{d})")
            s.line("j = int64(0)")
            with s.block("while j < length:"):
                s.line("at = at_o")
                s.line("inside = True")
                for k in indexes:
                    s.line(f"k{k} = i{k}[at_i]")
                    if spec.wraps:
                        s.line(f"k{k} = select(k{k} < 0, int64(k{k} + m{k}), k{k})")
                    s.line(f"inside = inside & (k{k} >= 0) & (k{k} < m{k})")
                    s.line(f"at = int64(at + k{k} * t{k})")
                with s.block("if inside:"):
                    s.line(f"o[at] = {_combined(spec)}")
                with s.block("else:"):
                    s.line("flags[0] = int32(1)")
                s.line("at_v = int64(at_v + sv)")
                s.line("at_i = int64(at_i + si)")
                s.line("j = int64(j + 1)")
            s.line(f"u = int64(u + int64(cuda.gridDim.x) * {spec.block})")
    used = sorted({n for line in s.lines for n in NAME.findall(line)} & DEVICE_NAMES)
    way = "added" if spec.is_sum else "put"
    head = [f"# scatter: {spec.word} {way} at the places of {spec.indexes} index tensors"]
    head += ["from numba import cuda", "", "from gpujit.kernels.cuda_device import ("]
    return "\n".join([*head, *(f"    {name}," for name in used), ")", "", "", *s.lines]) + "\n"


def _combined(spec: Spec) -> str:
    if not spec.is_sum:
        return "v[at_v]"
    added = f"{spec.word}(v[at_v] * factor)" if spec.has_factor else "v[at_v]"
    return f"{spec.word}(o[at] {'|' if spec.dtype == BOOL_ else '+'} {added})"
