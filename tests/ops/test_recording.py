"""Every pointwise entry, recorded and run by the reference renderer, gives what the table gives."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpujit.ir.recorded import Recorded
from gpujit.ir.scalar import Expr, RecordError, walk
from gpujit.kernels.reference import run
from gpujit.ops import table
from gpujit.ops.record import can_record, opaque_function, record
from gpujit.ops.registry import Op
from gpujit.support.errors import DTypeError, OpError
from tests.kernels.programs import operator_case
from tests.ops.check import assert_same

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "int8", "bool")
# Their results are complex, which kernels are not.
COMPLEX = {"aten::polar", "aten::complex"}
POINTWISE = [op for op in table.registered() if op.kind == "pointwise" and op.form == "functional"]
FLOATS = (0.3, -0.7, 1.5, -2.0, 0.0, -0.0, 1.0, -1.0, 3.25, 8.5, -11.0, 20.5, math.nan, math.inf, -math.inf, 0.01)
WHOLE = (0, 1, -1, 2, -3, 5, 7, -8, 100, 3, 4, -2, 6, 1, 2, 9)
DIVISORS = (1, -1, 2, -3, 5, 7, -8, 100, 3, 4, -2, 6, 1, 2, 9, 11)


def dtype_of(name: str) -> np.dtype:
    return BF16 if name == "bfloat16" else np.dtype(name)


def tensor(dtype: str, shape: tuple[int, ...], shift: int, nonzero: bool = False) -> np.ndarray:
    """Edge values of a dtype, each place another one; strided, and never contiguous above one dim."""
    count = math.prod(shape)
    values: Any = FLOATS if "float" in dtype else DIVISORS if nonzero else WHOLE
    flat = np.array([values[(i * 5 + shift) % len(values)] for i in range(count)])
    if dtype == "uint8":
        flat = np.abs(flat)
    return flat.astype(dtype_of(dtype)).reshape(shape[::-1]).T


def arguments(op: Op, dtype: str, shapes: list[tuple[int, ...]], numbers: tuple[Any, ...]) -> list[Any] | None:
    """Arguments for an entry; None when it takes something else."""
    found: list[Any] = []
    tensors = 0
    for a in op.schema.arguments:
        kind = str(a.type)
        if kind in ("Tensor", "Tensor?"):
            shape = shapes[tensors % len(shapes)]
            if a.name in ("mask", "condition"):
                found.append(tensor("bool", shape, tensors))
            elif a.name == "value" and op.name == "aten::masked_fill":
                found.append(tensor(dtype, (), 2))
            else:
                # Integers must not be divided by zero, nor shifted by negative numbers that C leaves open.
                found.append(tensor(dtype, shape, 3 * tensors, nonzero=tensors > 0))
            tensors += 1
        elif "Scalar" in kind:
            found.append(a.default if a.has_default and a.default is not None else numbers[len(found) % len(numbers)])
        elif a.has_default and a.default is not None:
            found.append(a.default)
        elif kind == "bool":
            found.append(False)
        elif "int" in kind:
            found.append(2)
        elif "float" in kind:
            found.append(0.125)
        elif "str" in kind:
            found.append("trunc")
        elif a.has_default:
            found.append(None)
        else:
            return None
    return found


SHAPES = [
    [(4, 4), (4, 4)],
    [(3, 1, 5), (2, 5)],
    [(), ()],
    [(16,), ()],
    [(0, 3), (3,)],
]  # fmt: skip


def check(op: Op, dtype: str, shapes: list[tuple[int, ...]], numbers: tuple[Any, ...]) -> bool:
    """Whether the entry takes these; then the recorded one must agree with it."""
    args = arguments(op, dtype, shapes, numbers)
    if args is None:
        return False
    if op.name == "aten::prelu" and args[1].ndim:
        # One weight for each channel, which are dim 1.
        channels = args[0].shape[1] if args[0].ndim > 1 else 1
        args[1] = tensor(dtype, (channels,), 3)
    try:
        with np.errstate(all="ignore"):
            want = op.kernel(np)(*args)
    except OpError as error:
        if isinstance(error, DTypeError):
            with pytest.raises((DTypeError, RecordError)):
                operator_case(op, args)
        return False
    case = operator_case(op, args)
    run(case.program, case.inputs, case.outputs, case.sizes, case.params, opaque_function)
    (got,) = case.outputs
    shown = ", ".join(f"{a.dtype}{a.shape}" if isinstance(a, np.ndarray) else str(a) for a in args)
    assert_same(got, want, where=f"{op.full_name}({shown})")
    if np.issubdtype(want.dtype, np.floating) and op.name not in ROUNDED:
        both = (got == 0) & (want == 0)
        np.testing.assert_array_equal(np.signbit(got[both]), np.signbit(want[both]), err_msg=f"{op.full_name}: zeros")
    return True


# Their zeros may come out with either sign: exact formulas and approximations differ there.
ROUNDED = {"aten::gelu", "aten::erf", "aten::special_erf"}


@pytest.mark.parametrize("op", POINTWISE, ids=lambda op: op.full_name)
def test_recorded_entry_computes_what_the_table_does(op: Op) -> None:
    if op.name in COMPLEX:
        with pytest.raises(RecordError):
            record(op, [Recorded(Expr("input", (), np.dtype("f4"), None), 1)] * 2)
        return
    done = 0
    for i, dtype in enumerate(DTYPES):
        whole = "float" not in dtype
        numbers: tuple[Any, ...] = (True,) if dtype == "bool" else (2, 3) if whole else (0.5, 2, 1.25)
        for j, shapes in enumerate(SHAPES):
            # All shapes in float32, one of them in each other dtype.
            if dtype == "float32" or i % len(SHAPES) == j or j == 0:
                done += check(op, dtype, shapes, numbers)
    assert done >= 2, f"{op.full_name} was compared {done} times"


def test_numbers_of_another_kind_promote() -> None:
    add = table.by_full_name("aten::add.Tensor")
    mul = table.by_full_name("aten::mul.Scalar")
    assert add is not None and mul is not None
    for op, args in (
        (mul, [np.arange(4), 1.5]),
        (mul, [np.arange(4, dtype=np.uint8), 300]),
        (add, [np.arange(4), np.array(0.5, np.float64), 1]),
        (add, [np.arange(4, dtype=np.float16), np.array(0.5, np.float64), 1]),
        (add, [np.arange(4, dtype=np.float16), np.arange(4).astype(BF16), 1]),
        (add, [np.arange(4, dtype=np.int8), np.arange(4, dtype=np.uint8), 2]),
    ):
        case = operator_case(op, args)
        run(case.program, case.inputs, case.outputs, case.sizes)
        assert_same(case.outputs[0], op.kernel(np)(*args))


def test_no_float64_in_kernels_of_float32() -> None:
    x = Recorded(Expr("input", (), np.dtype("f4"), None), 1)
    for name in ("gelu", "silu", "mish", "softplus", "hardswish", "elu", "sigmoid", "erf", "rsqrt", "logit"):
        op = table.by_full_name(f"aten::{name}")
        assert op is not None
        args = [x] + [a.default for a in op.schema.arguments[1:]]
        for node in walk(record(op, args).results):
            assert node.dtype != np.float64, f"{name}: {node}"


def test_integer_division_by_zero_is_a_check() -> None:
    op = table.by_full_name("aten::floor_divide")
    assert op is not None
    case = operator_case(op, [np.array([4, 7]), np.array([2, 0])])
    with pytest.raises(OpError, match="integer division by zero"):
        run(case.program, case.inputs, case.outputs, case.sizes)


def test_in_place_forms_store_in_the_dtype_of_their_target() -> None:
    op = table.by_full_name("aten::add_.Tensor")
    assert op is not None
    half, wide = (Recorded(Expr("input", (), np.dtype(d), None), 1) for d in ("f2", "f8"))
    assert record(op, [half, wide, 1]).results[0].dtype == np.float16
    whole = Recorded(Expr("input", (), np.dtype("i8"), None), 1)
    with pytest.raises(RecordError, match="float64 cannot be stored in a tensor of int64"):
        record(op, [whole, wide, 1])


def test_what_has_no_scalar_body_is_refused() -> None:
    op = table.by_full_name("aten::matmul")
    assert op is not None and not can_record(op)
    with pytest.raises(RecordError, match="aten::matmul: a library operator"):
        record(op, [])
    with pytest.raises(RecordError, match="no operator that is recorded as a call"):
        opaque_function("aten::exp")
