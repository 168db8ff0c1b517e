"""Results written into arrays that a caller gives: ``out=``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpujit.ir.arrays import describe
from gpujit.support.errors import ArgumentError

# An array for each output, None for one that is to be made anew.
Targets = Sequence[np.ndarray | None]


def targets_of(out: Any) -> Targets:
    """What a caller gave as ``out``: an array, or a tuple or list of arrays and None.

    Raises ArgumentError for anything else, for arrays that cannot be written, and for those with two elements at one
    place.
    """
    given = list(out) if isinstance(out, (tuple, list)) else [out]
    for i, target in enumerate(given):
        if target is None and isinstance(out, (tuple, list)):
            continue
        name = f"out[{i}]" if isinstance(out, (tuple, list)) else "out"
        if type(target) is not np.ndarray:
            raise ArgumentError(f"{name} is a {describe(target)}; results are written into NumPy arrays")
        if not target.flags.writeable:
            raise ArgumentError(f"{name} is read-only: results cannot be written into it")
        if _meets_itself(target):
            raise ArgumentError(
                f"{name} has several elements at one place (strides {target.strides} for the shape {target.shape}); "
                "give an array with memory of its own for each"
            )
    return given


def put(result: Any, targets: Targets) -> Any:
    """The result with the given arrays in the place of its own, which are copied into them; a NamedTuple stays one.

    Arrays may overlap the result's: each gets what the result was before. Raises ArgumentError when numbers, shapes or
    dtypes do not fit; then nothing was written.
    """
    parts = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(parts) != len(targets):
        raise ArgumentError(f"out has {len(targets)} arrays for {len(parts)} outputs")
    copied: list[tuple[np.ndarray, np.ndarray]] = []
    for i, (target, made) in enumerate(zip(targets, parts, strict=True)):
        if target is None or target is made:
            continue
        if type(made) is not np.ndarray:
            raise ArgumentError(f"out[{i}] is {describe(target)}, the output is no tensor: {describe(made)}")
        check_fit(i, target, made.shape, made.dtype)
        copied.append((target, made))
        parts[i] = target
    for k, (target, made) in enumerate(copied):
        # Read before anything that it shares memory with is written.
        if any(np.may_share_memory(made, other) for j, (other, _) in enumerate(copied) if j != k):
            copied[k] = target, made.copy()
    for k, x in enumerate(parts):
        # What is returned as it is must not change either.
        if type(x) is np.ndarray and targets[k] is None and any(np.may_share_memory(x, t) for t, _ in copied):
            parts[k] = x.copy()
    for target, made in copied:
        target[...] = made
    if isinstance(result, tuple):
        return result._make(parts) if hasattr(result, "_make") else tuple(parts)
    return parts if isinstance(result, list) else parts[0]


def check_fit(i: int, target: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raises ArgumentError when output ``i`` of this shape and dtype does not fit its array."""
    if (shape, dtype) != (target.shape, target.dtype):
        raise ArgumentError(f"out[{i}] is {describe(target)}, the output is {dtype}{list(shape)}")


def _meets_itself(x: np.ndarray) -> bool:
    """Whether elements may lie at one place: no way of slicing and transposing a plain array does that."""
    extent = x.itemsize
    for step, n in sorted((abs(s), n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1):
        if step < extent:
            return x.size > 0
        extent += step * (n - 1)
    return False
