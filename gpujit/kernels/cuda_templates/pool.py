"""The largest number of each window of an image, and where it lies: tile programs store no places of what they find."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpujit.kernels.cuda_ops import DEVICE_NAMES, HALF_NAMES, NAME, held
from gpujit.kernels.cuda_source import Source


class Spec(NamedTuple):
    """What the source depends on: floating-point numbers of ``dtype``, dims of pixels, whether windows divide the image
    into parts."""

    dtype: np.dtype
    rank: int
    is_adaptive: bool
    block: int = 256

    @property
    def word(self) -> str:
        """The type that pointers to numbers have."""
        return "uint16" if self.dtype in HALF_NAMES else self.dtype.name


@lru_cache(maxsize=64)
def source(spec: Spec) -> str:
    """The kernel.

    Arguments: images (images, channels, pixels ...); contiguous results, numbers and places in the image as int64; as
    int64 how many there are, channels, strides of images and channels; for each dim of pixels the image's size, its
    stride, and places; then, where the windows are no parts, stride, padding, dilation and taps.

    A NaN is larger than all before it, so the last one of a window is found.
    """
    s = Source()
    rank, half, kind = spec.rank, HALF_NAMES.get(spec.dtype), held(spec.dtype)
    each = ["n", "t", "m", *([] if spec.is_adaptive else ["s", "p", "d", "k"])]
    names = ["count", "channels", "image", "channel", *(f"{x}{e}" for e in range(rank) for x in each)]
    s.line("@cuda.jit")
    with s.block(f"def kernel({', '.join(['x', 'v', 'o', *names])}):"):
        s.line(f"u = int64(int64(cuda.blockIdx.x) * {spec.block} + cuda.threadIdx.x)")
        with s.block("while u < count:"):
            s.line("rest = u")
            for e in reversed(range(rank)):
                s.line(f"c{e} = urem(rest, m{e})")
                s.line(f"rest = udiv(rest, m{e})")
                _window(s, spec, e)
            s.line("base = int64(udiv(rest, channels) * image + urem(rest, channels) * channel)")
            s.line(f"best = {kind}(-INF)")
            s.line(f"place = {_place([f'first{e}' for e in range(rank)])}")
            _taps(s, spec, 0, f"{half}(x[at{rank - 1}])" if half else f"x[at{rank - 1}]")
            s.line(f"v[u] = {f'to_{half}(best)' if half else 'best'}")
            s.line("o[u] = place")
            s.line(f"u = int64(u + int64(cuda.gridDim.x) * {spec.block})")
    used = sorted({n for line in s.lines for n in NAME.findall(line)} & DEVICE_NAMES)
    head = [f"# pool: the largest of windows of {rank} dims, with places", "from numba import cuda", ""]
    head += ["from gpujit.kernels.cuda_device import (", *(f"    {name}," for name in used), ")", "", ""]
    return "\n".join([*head, *s.lines]) + "\n"


def _window(s: Source, spec: Spec, e: int) -> None:
    """Where a window begins and ends along a dim, on the image."""
    if spec.is_adaptive:
        s.line(f"first{e} = udiv(int64(c{e} * n{e}), m{e})")
        s.line(f"last{e} = udiv(int64((c{e} + 1) * n{e} + m{e} - 1), m{e})")
        return
    s.line(f"first{e} = int64(c{e} * s{e} - p{e})")
    s.line(f"last{e} = int64(first{e} + (k{e} - 1) * d{e} + 1)")
    s.line(f"last{e} = select(last{e} > n{e}, n{e}, last{e})")
    with s.block(f"if first{e} < 0:"):
        s.line(f"first{e} = int64(first{e} + udiv(int64(d{e} - 1 - first{e}), d{e}) * d{e})")


def _place(at: list[str]) -> str:
    """A place in the image."""
    found = at[0]
    for e, name in enumerate(at[1:], 1):
        found = f"({found}) * n{e} + {name}"
    return f"int64({found})"


def _taps(s: Source, spec: Spec, e: int, read: str) -> None:
    """Go over the window's pixels along a dim and those after it."""
    s.line(f"i{e} = first{e}")
    with s.block(f"while i{e} < last{e}:"):
        s.line(f"at{e} = int64({'base' if not e else f'at{e - 1}'} + i{e} * t{e})")
        if e + 1 < spec.rank:
            _taps(s, spec, e + 1, read)
        else:
            s.line(f"found = {read}")
            with s.block("if (found > best) | (found != found):"):
                s.line("best = found")
                s.line(f"place = {_place([f'i{k}' for k in range(spec.rank)])}")
        s.line(f"i{e} = int64(i{e} + {'1' if spec.is_adaptive else f'd{e}'})")
