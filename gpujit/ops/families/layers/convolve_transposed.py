"""Transposed convolution: columns scattered back into the image."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

from gpujit.ir.values import Array
from gpujit.ops.families.layers.convolve_plan import Plan, check_arrays, check_common, check_numbers
from gpujit.ops.strided import add_windows, expand_list, shape_text
from gpujit.support.errors import ShapeError

# --------------------------------------------------------------------------------------- transposed convolution


@lru_cache(maxsize=512)
def _transposed_plan(
    op: str, x: tuple[int, ...], w: tuple[int, ...], stride_: tuple[int, ...], padding_: tuple[int, ...],
    extra_: tuple[int, ...], dilation_: tuple[int, ...], groups: int, rank: int,
) -> Plan:  # fmt: skip
    batched = check_common(op, x, w, rank, groups)
    if not batched:
        x = (1, *x)
    stride = expand_list(op, "stride", stride_, rank)
    padding = expand_list(op, "padding", padding_, rank)
    dilation = expand_list(op, "dilation", dilation_, rank)
    extra = expand_list(op, "output_padding", extra_, rank)
    check_numbers(op, stride, dilation, padding)
    if x[1] != w[0]:
        raise ShapeError(f"{op}: input has {x[1]} channels, weight {shape_text(w)} needs {w[0]}")
    if w[0] % groups:
        raise ShapeError(f"{op}: weight {shape_text(w)} takes {w[0]} channels, groups={groups} does not divide them")
    if any(e < 0 or e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise ShapeError(
            f"{op}: output_padding is {list(extra)}, it must be smaller than stride {list(stride)} "
            f"or dilation {list(dilation)}"
        )
    kernel = w[2:]
    outs = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, s, p, d, k, e in zip(x[2:], stride, padding, dilation, kernel, extra, strict=True)
    )
    if min(outs) < 1:
        raise ShapeError(
            f"{op}: input {shape_text(x)} with kernel {shape_text(kernel)}, stride {list(stride)} and padding "
            f"{list(padding)} leaves an output of size {shape_text(outs)}"
        )
    o = w[1] * groups
    tiles = kernel == stride and max(dilation) == 1 and not any(padding) and not any(extra)
    result = (x[0], o, *outs) if batched else (o, *outs)
    path = "tiles" if tiles else "scatter"
    return Plan(batched, rank, stride, padding, padding, dilation, groups, kernel, outs, x[1], o, path, result, None)


def convolve_transposed(
    xp: Any, op: str, x: Array, w: Array, bias: Array | None, stride: Sequence[int], padding: Sequence[int],
    output_padding: Sequence[int], groups: int, dilation: Sequence[int], rank: int,
) -> Array:  # fmt: skip
    """Transposed convolution of ``x [N, C, *spatial]`` with ``w [C, O / groups, *kernel]``."""
    plan = _transposed_plan(
        op, x.shape, w.shape, tuple(stride), tuple(padding), tuple(output_padding), tuple(dilation), groups, rank
    )  # fmt: skip
    check_arrays(op, x, w, bias, plan.out_channels)
    if 0 in plan.result:
        return xp.empty(plan.result, x.dtype)
    if not plan.batched:
        x = x[None]
    n, c, sizes, o = x.shape[0], plan.channels, x.shape[2:], plan.out_channels
    length = prod(sizes)
    if groups == 1:
        flat = xp.matmul(w.reshape(c, -1).T, x.reshape(n, c, length))
    else:
        matrix = w.reshape(groups, c // groups, -1).transpose(0, 2, 1)
        flat = xp.matmul(matrix, x.reshape(n, groups, c // groups, length))
    columns = flat.reshape(n, o, *plan.kernel, *sizes)
    if plan.path == "tiles":
        pairs = [axis for i in range(rank) for axis in (2 + rank + i, 2 + i)]
        y = columns.transpose(0, 1, *pairs).reshape(n, o, *plan.outs)
    else:
        full = tuple(m + 2 * p for m, p in zip(plan.outs, plan.low, strict=True))
        y = add_windows(xp, columns, full, plan.stride, plan.dilation)
        if any(plan.low):
            y = y[(..., *(slice(p, p + m) for p, m in zip(plan.low, plan.outs, strict=True)))]
            if bias is None:
                y = xp.ascontiguousarray(y)
    if bias is not None:
        y = xp.add(y, bias.reshape(-1, *(1,) * rank), order="C")
    return y.reshape(plan.result)
