"""What an array module or Python says about arguments that do not fit, said by the operator instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpujit.ir.dtypes import BY_CODE
from gpujit.support.errors import DTypeError, GpujitError, OpError, ShapeError

if TYPE_CHECKING:
    from gpujit.ops.registry import Op

# What bodies raise for inputs that do not fit when they leave it to the array module to find out.
RAW_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, NotImplementedError, TypeError,
    ValueError,
)  # fmt: skip


def found_text(op: Op, args: Sequence[Any]) -> str:
    """The arguments of a call for an error message: ``self float32[2, 3], dim 4``."""
    parts = [f"{a.name or i} {_value_text(x)}" for i, (a, x) in enumerate(zip(op.schema.arguments, args, strict=False))]
    return ", ".join(parts) or "no arguments"


def _value_text(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        return f"{dtype}[{', '.join(map(str, getattr(value, 'shape', ())))}]"
    if isinstance(value, (list, tuple)):
        shown = [_value_text(v) for v in value[:8]]
        return f"[{', '.join([*shown, *(['...'] if len(value) > 8 else [])])}]"
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def refusal(op: Op, args: Sequence[Any], error: Exception) -> Exception:
    """The operator's own error for what an array module or Python says about its arguments; others as they are.

    The body is asked first: what ends up here are the mistakes that no check of its own names better.
    """
    if isinstance(error, GpujitError):
        return error
    text = str(error).strip().split("\n")[0][:300]
    arrays = [x for x in args if hasattr(x, "dtype")]
    found = f"it was called with {found_text(op, args)}"
    if isinstance(error, MemoryError) or any(w in text for w in ("array is too big", "Maximum allowed", "is too long")):
        reason = f"the result, or a part of it, is too large for memory ({text or 'no memory left'})"
        return OpError(f"{op.full_name}: {reason}; {found}, use smaller sizes", code="memory")
    if "broadcast" in text:
        shapes = " and ".join(str(x.shape) for x in arrays)
        return ShapeError(
            f"{op.full_name}: shapes {shapes} do not broadcast; from the last dim on sizes must be equal or 1; {found}"
        )
    for a, x in zip(op.schema.arguments, args, strict=False):
        if a.text.startswith("ScalarType") and x is not None and (x not in BY_CODE or BY_CODE[x].dtype is None):
            name = BY_CODE[x].name if x in BY_CODE else f"code {x}"
            return DTypeError(f"{op.full_name}: {a.name} {name} is no dtype that arrays have here; {found}")
    if "ufunc" in text or "numpy boolean" in text:
        dtypes = " and ".join(str(x.dtype) for x in arrays)
        return DTypeError(f"{op.full_name}: not defined for {dtypes}; cast the inputs to another dtype first; {found}")
    if isinstance(error, OverflowError):
        dtype = arrays[0].dtype if arrays else "of the result"
        return OpError(f"{op.full_name}: a number does not fit the dtype {dtype} ({text}); {found}")
    # No ShapeError: what it was about is not known.
    return OpError(f"{op.full_name}: the arguments do not fit together ({type(error).__name__}: {text}); {found}")
