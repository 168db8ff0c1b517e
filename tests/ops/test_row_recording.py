"""Every entry that says what it does to a row, recorded and run by the NumPy renderers, gives what the table gives."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpujit.ir.dtypes import code_of
from gpujit.ir.recorded import Recorded
from gpujit.ir.scalar import Expr, RecordError
from gpujit.ir.values import Device
from gpujit.kernels.reference import run
from gpujit.kernels.reference_tiles import run_tiles
from gpujit.ops import table
from gpujit.ops.record import record
from gpujit.ops.rows import Rows
from gpujit.support.errors import OpError
from tests.kernels.programs import operator_case
from tests.ops.check import assert_same

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64, I32, I64, U8, BOOL = (np.dtype(d) for d in ("f2", "f4", "f8", "i4", "i8", "u1", "?"))
INF, NAN = math.inf, math.nan
ENTRIES = [op for op in table.registered() if isinstance(op.scalar, Rows) and op.form == "functional"]
ROWS = {op.full_name for op in ENTRIES if not op.scalar.exact}


def tensor(shape: tuple[int, ...], dtype: np.dtype = F32, special: bool = False) -> np.ndarray:
    """Numbers of both signs, all different among floats, laid out backwards."""
    x = np.asarray(np.random.default_rng(len(shape)).permutation(math.prod(shape)).reshape(shape[::-1]).T / 8 - 1.5)
    if special and x.size:
        x.flat[:: max(x.size // 3, 1)] = (NAN, INF, -INF, 0.0)[: len(x.flat[:: max(x.size // 3, 1)])]
    return (np.abs(x * 8) % 5 if dtype in (U8, BOOL) else x * 8 if dtype.kind == "i" else x).astype(dtype)


DTYPE = {"float16": code_of(F16), "float32": code_of(F32), "float64": code_of(F64), "int64": code_of(I64)}
SOFT: list[tuple[Any, ...]] = [(-1, None), (0, None), (1, DTYPE["float64"]), (-1, DTYPE["float16"])]
DIMS: list[tuple[Any, ...]] = [([1], False), ([0, 2], True), ([], False), ([-1], True)]
ONE: list[tuple[Any, ...]] = [(0, False), (-1, True)]
WITH_DTYPE = [(*a, None) for a in DIMS] + [([1], False, DTYPE["float64"]), ([1], False, DTYPE["float16"])]
WHOLE = [(None,), (DTYPE["float64"],), (DTYPE["float16"],)]
SPREAD = [(True,), (False,)]
SPREAD_DIM = [([1], True, False), ([0, 2], False, True), (None, True, False)]
SPREAD_CORRECTION = [([1], 1, False), ([0, 2], 0, True), (None, None, False), ([1], 2.5, False), ([1], 30, False)]
VARIANCES = ("var", "std", "var_mean", "std_mean")
ORDERS = (2, 1, 0, INF, -INF, 3, 2.5, -1.5)

# Arguments after the first tensor, of shape [2, 3, 4].
AFTER: dict[str, list[tuple[Any, ...]]] = {
    "softmax.int": SOFT, "special_softmax": SOFT, "log_softmax.int": SOFT, "special_log_softmax": SOFT,
    "_safe_softmax": SOFT, "_softmax": [(0, False), (-1, False)], "_log_softmax": [(0, False), (-1, False)],
    "logsumexp": DIMS, "special_logsumexp": DIMS, "amax": DIMS, "amin": DIMS, "max": [()], "min": [()],
    "max.dim": ONE, "min.dim": ONE, "argmax": [*ONE, (None, False)], "argmin": [*ONE, (None, True)],
    "aminmax": [*ONE, (None, False)], "sum.dim_IntList": WITH_DTYPE, "mean.dim": WITH_DTYPE, "nansum": WITH_DTYPE,
    "sum": WHOLE, "mean": WHOLE, "prod": WHOLE, "prod.dim_int": [(*a, None) for a in ONE],
    "cumsum": [(0, None), (-1, None), (1, DTYPE["float64"])], "cumprod": [(0, None), (-1, None), (1, DTYPE["int64"])],
    "any": [()], "all": [()], "any.dim": ONE, "all.dim": ONE, "any.dims": [([1], True), (None, False)],
    "all.dims": [([0, 1], False)], "count_nonzero": [(1,), (None,)], "count_nonzero.dim_IntList": [([0, 2],)],
    "norm.Scalar": [(p,) for p in ORDERS], "norm.ScalarOpt_dim": [(p, [1], True) for p in ORDERS],
    "norm.ScalarOpt_dim_dtype": [(None, [1], False, DTYPE["float64"])],
    "norm.ScalarOpt_dtype": [(2, DTYPE["float64"]), (2, DTYPE["float32"])],
    "linalg_vector_norm": [(p, [0, 2], False, None) for p in ORDERS] + [(2, None, False, DTYPE["float64"])],
    **dict.fromkeys(VARIANCES, SPREAD), **dict.fromkeys((f"{n}.dim" for n in VARIANCES), SPREAD_DIM),
    **dict.fromkeys((f"{n}.correction" for n in VARIANCES), SPREAD_CORRECTION),
}  # fmt: skip


def check(name: str, args: list[Any]) -> bool:
    """Whether the entry takes these; then both renderers must agree with it."""
    op = table.by_full_name(name)
    assert op is not None
    try:
        with np.errstate(all="ignore"):
            want = op.kernel(np)(*args)
    except OpError:
        with pytest.raises((OpError, RecordError)):
            operator_case(op, args)
        return False
    wanted = want if isinstance(want, tuple) else (want,)
    case = operator_case(op, args)
    shown = ", ".join(f"{a.dtype}{a.shape}" if isinstance(a, np.ndarray) else str(a) for a in args)
    for renderer in (run, run_tiles):
        got = case.fresh()
        renderer(case.program, got.inputs, got.outputs, case.sizes)
        for g, w in zip(got.outputs, wanted, strict=True):
            assert_same(g.reshape(w.shape) if g.size == w.size else g, w, where=f"{name}({shown})")
    return True


@pytest.mark.parametrize("name", sorted(AFTER))
def test_rows(name: str) -> None:
    done = 0
    for after in AFTER[name]:
        for dtype in (F32, F64, F16, BF16, I64, I32, U8, BOOL):
            done += check(f"aten::{name}", [tensor((2, 3, 4), dtype), *after])
        done += check(f"aten::{name}", [tensor((2, 3, 4), F32, special=True), *after])
        done += check(f"aten::{name}", [np.full((2, 3, 4), -INF, F32), *after])
    assert done >= 4, f"{name} was compared {done} times"


@pytest.mark.parametrize("name", ["sum", "max", "softmax.int", "argmin", "cumsum", "var", "norm.Scalar"])
def test_a_number_is_a_row_of_one(name: str) -> None:
    assert check(f"aten::{name}", [np.asarray(2.5, F32), *AFTER[name][0]])


@pytest.mark.parametrize("name", ["sum.dim_IntList", "mean.dim", "var.correction", "any.dim", "prod.dim_int"])
def test_empty_tensors(name: str) -> None:
    for shape in ((2, 0, 4), (0, 3, 4)):
        after = [1 if name.endswith(("any.dim", "int")) else [1], *AFTER[name][0][1:]]
        assert check(f"aten::{name}", [np.zeros(shape, F32), *after])


def test_norms_over_rows_with_weights() -> None:
    for dtype in (F32, F64, F16, BF16):
        x, w, b = tensor((2, 6, 5), dtype), tensor((5,), dtype), tensor((5,), dtype)
        for weight, bias in ((w, b), (None, b), (w, None), (None, None)):
            assert check("aten::layer_norm", [x, [5], weight, bias, 1e-5, True])
        assert check("aten::layer_norm", [x, [6, 5], tensor((6, 5), dtype), None, 1e-5, True])
        assert check("aten::rms_norm", [x, [5], w, None]) and check("aten::rms_norm", [x, [6, 5], None, 0.1])
        c, d = tensor((6,), dtype), tensor((6,), dtype)
        for weight, bias in ((c, d), (None, d), (c, None), (None, None)):
            assert check("aten::group_norm", [x, 3, weight, bias, 1e-5, True])
            assert check("aten::instance_norm", [x, weight, bias, None, None, True, 0.1, 1e-5, True])
            assert check("aten::batch_norm", [x, weight, bias, d, np.abs(c), False, 0.1, 1e-5, True])
        assert check("aten::group_norm", [tensor((2, 6), dtype), 2, c, d, 1e-5, True])
    half = tensor((2, 6, 5), F16)
    wide = [tensor((6,), F32), tensor((6,), F32), tensor((6,), F32), np.ones(6, F32)]
    assert check("aten::batch_norm", [half, *wide, False, 0.1, 1e-5, True])
    assert check("aten::layer_norm", [half, [5], tensor((5,), F32), None, 1e-5, True])


def test_all_that_say_what_they_do_are_tested() -> None:
    others = {"layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm", "prelu"}
    assert {f"aten::{n}" for n in others | set(AFTER)} == ROWS


def test_what_cannot_be_recorded_says_so() -> None:
    x = Recorded(Expr("input", (), F32, None), 3)
    v = Recorded(Expr("input", (), F32, None), 1)
    norm, every = table.by_full_name("aten::batch_norm"), table.by_full_name("aten::any.dims")
    assert norm is not None and every is not None
    with pytest.raises(RecordError, match="statistics of the input itself"):
        record(norm, [x, None, None, v, v, True, 0.1, 1e-5, True])
    with pytest.raises(RecordError, match="it reduces no dims"):
        record(every, [x, [], False])


# -------------------------------------------------------------------------------------------- casts, copies, fills

CODES = (*DTYPE.values(), code_of(U8), code_of(BOOL), code_of(BF16))
OPTIONS = (None, None, None)
ELEMENTS: dict[str, list[tuple[Any, ...]]] = {
    "to.dtype": [(c, False, True, None) for c in CODES], "to.device": [(None, c, False, False, None) for c in CODES],
    "to.dtype_layout": [(c, *OPTIONS, False, True, 1) for c in CODES],
    "to.prim_Device": [(None, c, False, True) for c in CODES], "to.prim_dtype": [(c, False, True) for c in CODES],
    "_to_copy": [(c, *OPTIONS, False, None) for c in (*CODES, None)],
    "to.other": [(np.zeros(2, d), False, False, None) for d in (F16, F32, U8)], "contiguous": [(0,)],
    "type_as": [(np.zeros((), d),) for d in (F16, BF16, F32, I64, U8)], "clone": [(None,), (0,)],
    **{f"_cast_{n}": [(False,)] for n in ("Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double")},
    "zeros_like": [(c, *OPTIONS, None) for c in (None, code_of(F16))],
    "ones_like": [(c, *OPTIONS, None) for c in (None, code_of(U8))],
    "full_like": [(3, c, *OPTIONS, None) for c in (None, code_of(F16), code_of(I64))],
    "fill.Scalar": [(1,), (True,)], "fill.Tensor": [(np.asarray(2.5, F32),), (np.asarray(3),)], "zero": [()],
    "copy": [(tensor((3, 4), d), False) for d in (F32, F16, I64)], "lift": [()], "lift_fresh_copy": [()],
    "nan_to_num": [(None, None, None), (1.5, 2.0, -3.0)],
    **{f"{n}dropout": [(0.5, False), (0.0, True)] for n in ("", "feature_", "alpha_", "feature_alpha_")},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(ELEMENTS))
def test_casts_copies_and_fills(name: str) -> None:
    op = table.by_full_name(f"aten::{name}")
    assert op is not None
    done = 0
    for after in ELEMENTS[name]:
        for dtype in (F32, F64, F16, BF16, I64, U8, BOOL):
            x = tensor((2, 3, 4), dtype)
            after = tuple(
                Device("cpu") if op.schema.arguments[i + 1].name == "device" else a for i, a in enumerate(after)
            )
            done += check(f"aten::{name}", [np.abs(x) if dtype != BOOL else x, *after])
        if name == "nan_to_num":
            for dtype in (F32, F64, F16, BF16):
                done += check(f"aten::{name}", [tensor((2, 3, 4), F32, special=True).astype(dtype), *after])
    assert done >= 7


def test_all_copies_are_tested() -> None:
    assert {f"aten::{n}" for n in ELEMENTS} == {op.full_name for op in ENTRIES if op.scalar.exact}


def test_moves_and_formats_are_no_kernels() -> None:
    x = Recorded(Expr("input", (), F32, None), 4)
    for name, args, message in (
        ("to.device", (Device("cuda"), 6, False, False, None), "a move to cuda is no kernel"),
        ("clone", (2,), "memory format 2"),
        ("dropout", (0.5, True), "random numbers are not drawn"),
    ):
        op = table.by_full_name(f"aten::{name}")
        assert op is not None
        with pytest.raises(RecordError, match=message):
            record(op, [x, *args])
