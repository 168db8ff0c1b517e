"""Of arguments may be known nothing, or only a rank: inference then says little, and raises nothing of its own."""

from __future__ import annotations

from typing import Any

import pytest

from gpujit.ir import types as T
from gpujit.ir.types import TensorType
from gpujit.ops.infer import UNKNOWN, infer
from gpujit.ops.registry import Op
from gpujit.ops.table import registered
from gpujit.support.errors import GpujitError

OPS = [op for op in registered() if op.type_rule is not None]


def argument(t: T.Type, tensor: TensorType) -> Any:
    """As little as an argument may be known by."""
    if isinstance(t, T.OptionalType):
        t = t.element
    if isinstance(t, T.TensorType):
        return tensor
    if isinstance(t, T.ListType) and isinstance(t.element, T.TensorType):
        return [tensor, tensor]
    return UNKNOWN


def faults(op: Op, tensor: TensorType, *, defaults: bool) -> list[str]:
    arguments = op.schema.arguments
    values = [a.default if defaults and a.has_default else argument(a.type, tensor) for a in arguments]
    try:
        infer(op, values)
    except GpujitError:
        pass  # no call with such arguments can succeed
    except Exception as error:
        return [f"{op.full_name} of {tensor}: {type(error).__name__}: {error}"]
    return []


@pytest.mark.parametrize("rank", [None, 0, 1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("dtype", [None, 6, 11])
def test_inference_never_fails_by_itself(rank: int | None, dtype: int | None) -> None:
    tensor = TensorType(dtype, None if rank is None else (None,) * rank)
    found = [f for op in OPS for defaults in (True, False) for f in faults(op, tensor, defaults=defaults)]
    assert not found, "\n".join(found)


def test_many_tensors_of_unknown_rank_are_not_all_tried() -> None:
    """Six ranks for each of sixteen weights would take longer than anyone waits."""
    lstm = next(op for op in OPS if op.full_name == "aten::lstm.input")
    weights = [TensorType(6)] * 16
    values = (TensorType(6), [TensorType(6)] * 2, weights, True, 4, 0.0, False, False, True)
    assert infer(lstm, values)
