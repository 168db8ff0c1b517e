"""Writing a result into a tensor that is already there, under PyTorch's rules: kinds, shapes, shared elements."""

from __future__ import annotations

from collections.abc import Sequence

from gpujit.ir.values import Array
from gpujit.ops.promotion import can_cast
from gpujit.support.errors import DTypeError, ShapeError


def check_writable(target: Array, op: str) -> None:
    """Refuse to write where several elements share one place (an expanded tensor). Raises ShapeError."""
    if 0 in target.strides and target.size:
        shared = any(st == 0 and n > 1 for st, n in zip(target.strides, target.shape, strict=True))
        if not shared:
            return
        raise ShapeError(
            f"{op}: the tensor written to, of shape {target.shape}, has elements that share memory (it was expanded); "
            "clone it first"
        )


def check_write(target: Array, value: Array, op: str) -> None:
    """Refuse what ``write_into`` can't store, before anything is written.

    Raises DTypeError when the result's kind does not fit the target, ShapeError when it would have to grow.
    """
    if value.dtype != target.dtype and not can_cast(value.dtype, target.dtype):
        raise DTypeError(f"{op}: a result of dtype {value.dtype} can't be cast to the tensor's dtype {target.dtype}")
    if value.shape != target.shape:
        raise ShapeError(f"{op}: the result has shape {value.shape}, the tensor written to has {target.shape}")
    check_writable(target, op)


def write_into(target: Array, value: Array, op: str) -> Array:
    """Store ``value`` into ``target`` under PyTorch's rule for in-place results; returns ``target``.

    Raises what ``check_write`` raises.
    """
    check_write(target, value, op)
    target[...] = value
    return target


def write_all(targets: Sequence[Array], values: Sequence[Array], op: str) -> tuple[Array, ...]:
    """Store several results, once all have been checked; returns the targets. Raises as ``check_write`` does."""
    for target, value in zip(targets, values, strict=True):
        check_write(target, value, op)
    for target, value in zip(targets, values, strict=True):
        target[...] = value
    return tuple(targets)
