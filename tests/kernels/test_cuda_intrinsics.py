"""The LLVM code of CUDA device functions, compiled for the CPU and compared with NumPy (``ci/cuda_compile.sh``).

What libdevice computes is the C library's here; inline PTX, shuffles and wide loads have no meaning on a CPU, and are
seen to compile by ``ci/check_cuda_kernels.py``.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    pytest.skip("the simulator and LLVM code cannot share a process", allow_module_level=True)
pytest.importorskip("numba_cuda")

import llvmlite.binding as llvm
from llvmlite import ir
from numba.cuda import types

from gpujit.kernels import cuda_intrinsics as device
from gpujit.kernels.reference import compute
from gpujit.kernels.tile import Compute

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
_C = ctypes.CDLL(ctypes.util.find_library("m"))
for _name in (
    "fmod",
    "fmodf",
    "copysign",
    "copysignf",
    "floor",
    "floorf",
    "fabs",
    "fabsf",
    "exp",
    "log1p",
    "exp2",
    "pow",
):
    llvm.add_symbol(f"__nv_{_name}", ctypes.cast(getattr(_C, _name), ctypes.c_void_p).value)
_alive: list[Any] = []


def compiled(build: Callable[..., ir.Value], kind: Any, element: ir.Type, arity: int) -> Callable[..., np.ndarray]:
    """A function of arrays that calls the device function on each element."""
    module = ir.Module()
    pointer = element.as_pointer()
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer] * (arity + 1)), "f")
    b = ir.IRBuilder(f.append_basic_block())
    result = build(b, kind, [b.load(a, typ=element) for a in f.args[:arity]])
    if result.type == ir.IntType(1):
        result = b.zext(result, element) if isinstance(element, ir.IntType) else b.uitofp(result, element)
    b.store(result, f.args[arity])
    b.ret_void()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()
    _alive.append(engine)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (arity + 1))(engine.get_function_address("f"))

    def run(*arrays: np.ndarray) -> np.ndarray:
        out = np.empty_like(arrays[0])
        for k in range(out.size):
            call(*(a.ctypes.data + k * a.itemsize for a in arrays), out.ctypes.data + k * out.itemsize)
        return out

    return run


INTEGERS = {
    "int32": ir.IntType(32),
    "int64": ir.IntType(64),
    "uint8": ir.IntType(8),
    "uint32": ir.IntType(32),
    "int8": ir.IntType(8),
}
FLOATS = {"float64": ir.DoubleType(), "float32": ir.FloatType()}
ON_INTEGERS = {
    "floordiv": device._floor_divide, "mod": device._remainder, "fmod": device._fmod, "pow": device._power,
    "gcd": device._gcd, "lcm": device._lcm, "shl": device._shift_left, "shr": device._shift_right,
}  # fmt: skip
ON_FLOATS = {"floordiv": device._floor_divide, "mod": device._remainder, "fmod": device._fmod}


@pytest.mark.parametrize("dtype", sorted(INTEGERS))
@pytest.mark.parametrize("op", sorted(ON_INTEGERS))
def test_integers(op: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    values = [0, 1, 2, 3, 7, 31, 32, 64, 100, info.max, info.max - 1, info.min]
    values += [-1, -2, -3, -7, -64, info.min + 1] if info.min else []
    x, y = (a.reshape(-1) for a in np.meshgrid(np.array(values, dtype), np.array(values, dtype)))
    if op == "pow":
        x, y = x[y >= 0], y[y >= 0]
    if op in ("gcd", "lcm"):
        # The smallest number has no absolute value.
        keep = (x != info.min) & (y != info.min) if info.min else np.ones(x.shape, bool)
        x, y = x[keep], y[keep]
    with np.errstate(all="ignore"):
        want = compute(Compute(op, (), np.dtype(dtype)), (x, y))
    if op in ("floordiv", "mod", "fmod") and info.min:
        # Of the smallest number by -1 NumPy gives what the machine does.
        keep = ~((x == info.min) & (y == -1))
        x, y, want = x[keep], y[keep], want[keep]
    got = compiled(ON_INTEGERS[op], getattr(types, dtype), INTEGERS[dtype], 2)(x, y)
    np.testing.assert_array_equal(got, want, err_msg=f"{op} of {list(zip(x, y, strict=True))[:5]}..")


@pytest.mark.parametrize("dtype", sorted(FLOATS))
@pytest.mark.parametrize("op", sorted(ON_FLOATS))
def test_floats(op: str, dtype: str) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, 0.1, 1e30, -3.0, np.inf, -np.inf, np.nan]
    x, y = (a.reshape(-1) for a in np.meshgrid(np.array(values, dtype), np.array(values, dtype)))
    with np.errstate(all="ignore"):
        want = compute(Compute(op, (), np.dtype(dtype)), (x, y))
    got = compiled(ON_FLOATS[op], getattr(types, dtype), FLOATS[dtype], 2)(x, y)
    for a, b, g, w in zip(x, y, got, want, strict=True):
        assert (g == w and np.signbit(g) == np.signbit(w)) or (g != g and w != w), f"{op}({a}, {b}) is {g}, not {w}"


@pytest.mark.parametrize("larger", [True, False])
def test_extremes_keep_nan(larger: bool) -> None:
    values = np.array([0.0, 1.0, -2.0, np.inf, -np.inf, np.nan])
    x, y = (a.reshape(-1) for a in np.meshgrid(values, values))
    got = compiled(device._extreme(larger), types.float64, ir.DoubleType(), 2)(x, y)
    np.testing.assert_array_equal(got, (np.maximum if larger else np.minimum)(x, y))


@pytest.mark.parametrize(("build", "name"), [
    (device._is_infinite, "isinf"), (device._is_finite, "isfinite"), (device._sign_bit, "signbit"),
])  # fmt: skip
@pytest.mark.parametrize("dtype", sorted(FLOATS))
def test_questions(build: Any, name: str, dtype: str) -> None:
    x = np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan, -np.nan, 1e30], dtype)
    got = compiled(build, getattr(types, dtype), FLOATS[dtype], 1)(x)
    np.testing.assert_array_equal(got, getattr(np, name)(x))


def test_sums_of_logarithms() -> None:
    values = np.array([0.0, 1.0, -2.0, 300.0, np.inf, -np.inf, np.nan, -800.0])
    x, y = (a.reshape(-1) for a in np.meshgrid(values, values))
    for build, name in ((device._log_add("exp", "log1p", 1.0), "logaddexp"), (device.LOG_ADD_2, "logaddexp2")):
        got = compiled(build, types.float64, ir.DoubleType(), 2)(x, y)
        np.testing.assert_allclose(got, getattr(np, name)(x, y), rtol=1e-7, err_msg=name)
