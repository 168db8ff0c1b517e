"""The functional form of a call that writes: what it would have stored, computed without storing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpujit.ir.dtypes import IR_NAMES, code_of, numpy_dtype
from gpujit.ir.graph import Node
from gpujit.ir.types import TensorType, Type
from gpujit.ops import table
from gpujit.ops.infer import infer
from gpujit.ops.promotion import can_cast
from gpujit.ops.registry import Op
from gpujit.passes.analysis.effects import entry_of
from gpujit.passes.nodes import known
from gpujit.passes.unmutate.views import is_identity
from gpujit.support.errors import DTypeError, GpujitError, ShapeError

# Dtypes tried for a tensor whose dtype is not known: one of each kind and size that promotes in its own way.
_TRIED = tuple(
    code_of(np.dtype(d)) for d in (np.uint8, np.int32, np.int64, np.float16, np.float32, np.float64, np.complex64, bool)
)


@dataclass(frozen=True, slots=True)
class Functional:
    """How a writing call is computed without the write.

    ``op`` takes the call's inputs but for those at ``dropped``; result i is what the call would store in input
    ``written[i]``, once it is cast to that tensor's dtype where ``casts[i]`` says so. ``reshapes``: the call writes no
    element, but gives the tensor itself another shape.
    """

    op: Op
    written: tuple[int, ...]
    dropped: tuple[int, ...]
    casts: tuple[bool, ...]
    reshapes: bool = False


def functional_form(node: Node) -> Functional | str:
    """The functional form of a node that writes into tensors, or the reason why there is none."""
    op = entry_of(node)
    if op is None:
        return f"{node.kind} is not in the operator table"
    written = tuple(i for i, a in enumerate(op.schema.arguments) if a.is_write)
    for i in written:
        if not isinstance(node.inputs[i].type, TensorType):
            return f"it writes into a {node.inputs[i].type}"
    pure = pure_op(op)
    if pure is None:
        return f"{op.full_name} has no functional form"
    if pure.kind == "view":
        # A view that shows just its input is no change at all.
        return Functional(pure, written, (), (False,), reshapes=not is_identity(pure.full_name))
    dropped = () if _is_inplace(op) else written
    if len(written) != len(pure.schema.returns):
        return f"{op.full_name} writes {len(written)} tensors, {pure.full_name} returns {len(pure.schema.returns)}"
    args = [known(v) for i, v in enumerate(node.inputs) if i not in dropped]
    casts = []
    for position, i in enumerate(written):
        own = None if dropped else i
        needed = _cast_needed(pure, args, own, position, node.inputs[i].type)
        if isinstance(needed, str):
            return needed
        casts.append(needed)
    return Functional(pure, written, dropped, tuple(casts))


def pure_op(op: Op) -> Op | None:
    """The entry that returns what ``op`` stores: the one it is derived from, or its namesake without the writes."""
    if op.derived_from is not None:
        pure = op.derived_from
        return None if pure.schema.is_mutable else pure
    arguments = op.schema.arguments
    name = op.name
    if _is_inplace(op):
        name = name[:-1]
    else:
        # What it writes has to be what it returns: others update a state besides.
        if not all(r.alias is not None and r.alias.is_write for r in op.schema.returns):
            return None
        arguments = tuple(a for a in arguments if not a.is_write)
    for candidate in table.by_name(name):
        schema = candidate.schema
        if (
            not schema.is_mutable
            and [a.type for a in schema.arguments] == [a.type for a in arguments]
            # The first is 'self' in one and 'input' in the other.
            and [a.name for a in schema.arguments[1:]] == [a.name for a in arguments[1:]]
            and all(isinstance(r.type, TensorType) for r in schema.returns)
        ):
            return candidate
    return None


def _is_inplace(op: Op) -> bool:
    return op.form == "inplace" or (op.form == "functional" and op.name.endswith("_"))


def _cast_needed(pure: Op, args: Sequence[Any], own: int | None, position: int, target: Type) -> bool | str:
    """Whether result ``position`` has to be cast to the dtype of the tensor it replaces; a text when it cannot be."""
    assert isinstance(target, TensorType)
    dtypes = (target.dtype,) if target.dtype is not None else _TRIED
    answers = []
    for dtype in dtypes:
        tried = list(args)
        if own is not None:
            tried[own] = TensorType(dtype, target.shape)
        try:
            result = infer(pure, tried)
        except (ShapeError, DTypeError) as error:
            if target.dtype is not None:
                return f"it fails: {error.message}"
            continue
        except GpujitError:
            return True
        result = result[position] if isinstance(result, tuple) else result
        if not isinstance(result, TensorType):
            return True
        if result.shape is not None and target.shape is not None and not _fits(result.shape, target.shape):
            return f"its result of shape {list(result.shape)} does not fit the tensor's {list(target.shape)}"
        if result.dtype is None:
            return True
        if result.dtype == dtype:
            answers.append(False)
        elif can_cast(numpy_dtype(result.dtype), numpy_dtype(dtype)):
            return True
        elif target.dtype is not None:
            return f"a result of {IR_NAMES[result.dtype]} is not cast to {IR_NAMES[dtype]}"
        # Where the cast is refused the call fails as it is, so that the case does not matter.
    return not answers


def _fits(a: tuple[int | None, ...], b: tuple[int | None, ...]) -> bool:
    return len(a) == len(b) and all(m is None or n is None or m == n for m, n in zip(a, b, strict=True))
