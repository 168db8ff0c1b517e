"""Elements written at places that index tensors say: tile programs cannot, as their places must not depend on data."""

from __future__ import annotations

from functools import lru_cache

from gpujit.kernels.cuda_ops import DEVICE_NAMES, NAME
from gpujit.kernels.cuda_source import Source

BLOCK = 256


@lru_cache(maxsize=32)
def source(count: int) -> str:
    """The kernel that writes values at the places of ``count`` index tensors along the first dims of a tensor.

    Arguments: the tensor, values (places, rest), indexes (places,) as int64, the flag of the check that they are within
    the tensor; as int64 how many places there are, elements of the rest, then sizes and strides of the first dims.
    Negative indexes count from the end.
    """
    s = Source()
    indexes = [f"i{k}" for k in range(count)]
    sizes, strides = [f"n{k}" for k in range(count)], [f"s{k}" for k in range(count)]
    s.line("@cuda.jit")
    with s.block(f"def kernel({', '.join(['o', 'v', *indexes, 'flags', 'places', 'rest', *sizes, *strides])}):"):
        s.line(f"u = int64(int64(cuda.blockIdx.x) * {BLOCK} + cuda.threadIdx.x)")
        with s.block("while u < places * rest:"):
            s.line("place = udiv(u, rest)")
            s.line("at = urem(u, rest)")
            s.line("inside = True")
            for k in range(count):
                s.line(f"k{k} = i{k}[place]")
                s.line(f"k{k} = select(k{k} < 0, int64(k{k} + n{k}), k{k})")
                s.line(f"inside = inside & (k{k} >= 0) & (k{k} < n{k})")
                s.line(f"at = int64(at + k{k} * s{k})")
            with s.block("if inside:"):
                s.line("o[at] = v[u]")
            with s.block("else:"):
                s.line("flags[0] = int32(1)")
            s.line(f"u = int64(u + int64(cuda.gridDim.x) * {BLOCK})")
    used = sorted({n for line in s.lines for n in NAME.findall(line)} & DEVICE_NAMES)
    head = [f"# put: values at the places of {count} index tensors", "from numba import cuda", ""]
    head += ["from gpujit.kernels.cuda_device import (", *(f"    {name}," for name in used), ")", "", ""]
    return "\n".join([*head, *s.lines]) + "\n"
