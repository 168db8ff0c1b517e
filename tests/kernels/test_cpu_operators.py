"""Every recorded operator on the CPU renderer against the NumPy one: dtypes, strides, broadcasts, edge values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from gpujit.ir.scalar import RecordError
from gpujit.kernels import cpu_launch
from gpujit.kernels.reference import run
from gpujit.kernels.tile import NotRendered
from gpujit.ops import table
from gpujit.ops.record import opaque_function
from gpujit.ops.registry import Op
from gpujit.ops.rows import OPAQUE
from gpujit.support.errors import OpError
from tests.kernels.programs import operator_case
from tests.kernels.random_programs import assert_close
from tests.ops.test_recording import COMPLEX, DTYPES, POINTWISE, arguments
from tests.ops.test_row_recording import AFTER, BOOL, F16, F32, F64, I64, INF, tensor

# Whole vectors and a rest, contiguous and not; broadcasts; a number; nothing.
SHAPES = [[(41, 5), (41, 5)], [(3, 1, 37), (2, 37)], [(), ()], [(70,), ()], [(0, 3), (3,)]]
# Their expressions call a function that has no vector code.
NO_CODE = {"lgamma", "mvlgamma", "special_gammaln", "special_multigammaln", "polygamma", "binary_cross_entropy"}


def check(op: Op, args: list[Any] | None) -> bool:
    """Whether the entry takes these and has code; then both renderers must agree."""
    if args is None:
        return False
    try:
        case = operator_case(op, args)
    except (OpError, RecordError):
        return False
    want, got = case.fresh(), case.fresh()
    shown = f"{op.full_name}({', '.join(f'{a.dtype}{a.shape}' if isinstance(a, np.ndarray) else str(a) for a in args)})"
    try:
        cpu_launch.run(case.program, got.inputs, got.outputs, case.sizes, case.params)
    except NotRendered:
        assert op.scalar is OPAQUE or op.name.partition("::")[2] in NO_CODE, f"{shown} has no code"
        return True
    except OpError:
        with pytest.raises(OpError):
            run(case.program, want.inputs, want.outputs, case.sizes, case.params, opaque_function)
        return True
    run(case.program, want.inputs, want.outputs, case.sizes, case.params, opaque_function)
    assert_close(got.outputs, want.outputs, f"{shown}\n{case.program.text}")
    return True


def pointwise(op: Op, dtype: str, shapes: list[tuple[int, ...]]) -> bool:
    whole = "float" not in dtype
    numbers: tuple[Any, ...] = (True,) if dtype == "bool" else (2, 3) if whole else (0.5, 2, 1.25)
    args = arguments(op, dtype, shapes, numbers)
    if args is not None and op.name == "aten::prelu":
        args[1] = args[1].reshape(-1)[:1]
    return check(op, args)


@pytest.mark.parametrize("op", [op for op in POINTWISE if op.name not in COMPLEX], ids=lambda op: op.full_name)
def test_pointwise(op: Op) -> None:
    turn = POINTWISE.index(op)
    done = pointwise(op, "float32", SHAPES[0])
    done += pointwise(op, "float32", SHAPES[1 + turn % 4])
    done += pointwise(op, DTYPES[1 + turn % 8], SHAPES[turn % 2])
    done += pointwise(op, "int64", SHAPES[3])
    assert done


@pytest.mark.slow
@pytest.mark.parametrize("op", [op for op in POINTWISE if op.name not in COMPLEX], ids=lambda op: op.full_name)
def test_pointwise_in_all_dtypes(op: Op) -> None:
    assert sum(pointwise(op, dtype, SHAPES[0]) for dtype in DTYPES)


@pytest.mark.parametrize("name", sorted(AFTER))
def test_rows(name: str) -> None:
    op = table.by_full_name(f"aten::{name}")
    assert op is not None
    turn = sorted(AFTER).index(name)
    done = 0
    for number, after in enumerate(AFTER[name]):
        shape = ((2, 37, 4), (3, 5, 70), (40, 3, 2))[(turn + number) % 3]
        if "prod" in name:
            # Of long rows a part overflows in one order and meets a zero in another.
            shape = (2, 3, 4)
        dtype = (F32, F64, F16, I64, BOOL)[(turn + number) % 5]
        done += check(op, [tensor(shape, F32, special=True), *after])
        done += check(op, [np.ascontiguousarray(tensor(shape, dtype)), *after])
        if number == 0:
            done += check(op, [np.full(shape, -INF, F32), *after])
    assert done
