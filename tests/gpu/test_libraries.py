"""Convolutions and attention by a library and by own kernels: both give what the CPU gives, call by call and in graphs.

Where there is no library the comparison with it is left out, with the reason. The simulator has none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import gpujit
from gpujit.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64
from gpujit.kernels.launches import Convolution
from gpujit.runtime.device import GpuDevice, is_simulated
from gpujit.support.config import config
from tests.gpu.test_models import host

pytestmark = pytest.mark.gpu

# Of the largest number.
FURTHEST = {FLOAT32: 1e-5, FLOAT64: 1e-12, FLOAT16: 4e-3, BFLOAT16: 3e-2}
TF32 = 4e-3
PROBE = Convolution((1, 4, 6, 6), (4, 4, 3, 3), (1, 4, 4, 4), False, (1, 1), (0, 0), (0, 0), (1, 1), 1, FLOAT32)

Q, K = (2, 4, 40, 64), (2, 4, 56, 64)
# The function's body, the shapes of what it takes, and its dtypes.
CASES: dict[str, tuple[str, list[tuple[int, ...]], tuple[np.dtype, ...]]] = {
    "conv1d, tiny": ("torch.conv1d(x, y, z)", [(1, 2, 6), (2, 2, 3), (2,)], (FLOAT32,)),
    "conv1d": ("torch.conv1d(x, y, z)", [(2, 8, 40), (16, 8, 3), (16,)], (FLOAT32, FLOAT16)),
    "conv2d": (
        "torch.conv2d(x, y, z, [2, 1], [1, 0])",
        [(2, 16, 14, 15), (32, 16, 3, 3), (32,)],
        (FLOAT32, FLOAT64, FLOAT16, BFLOAT16),
    ),
    "conv2d, one tap": ("torch.conv2d(x, y)", [(2, 32, 7, 7), (16, 32, 1, 1)], (FLOAT32, FLOAT16)),
    "conv2d, dilated": ("torch.conv2d(x, y, None, 1, 2, 2)", [(1, 8, 12, 12), (8, 8, 3, 3)], (FLOAT32,)),
    "conv2d, groups": ("torch.conv2d(x, y, None, 1, 1, 1, 2)", [(2, 16, 9, 9), (8, 8, 3, 3)], (FLOAT32, FLOAT16)),
    "conv2d, same": ("torch.conv2d(x, y, None, 1, 'same')", [(1, 4, 9, 8), (8, 4, 2, 2)], (FLOAT32,)),
    "conv2d, then relu": ("torch.relu(torch.conv2d(x, y, z))", [(2, 8, 9, 9), (8, 8, 3, 3), (8,)], (FLOAT32,)),
    "conv2d, turned": ("torch.conv2d(x.transpose(1, 3), y)", [(1, 9, 9, 4), (4, 4, 3, 3)], (FLOAT32, FLOAT16)),
    "conv3d": ("torch.conv3d(x, y, z, 1, 1)", [(1, 4, 5, 6, 7), (8, 4, 3, 3, 3), (8,)], (FLOAT32, FLOAT16)),
    "attention": ("F(x, y, z)", [Q, K, K], (FLOAT16, BFLOAT16, FLOAT32)),
    "attention, causal": ("F(x, y, z, None, 0.0, True)", [Q, K, K], (FLOAT16, BFLOAT16)),
    "attention, causal, fewer keys": ("F(y, x, z, None, 0.0, True)", [Q, K, Q], (FLOAT16,)),
    "attention, scaled": ("F(x, y, z, None, 0.0, False, scale=0.3)", [Q, K, K], (FLOAT16,)),
    "attention, one query": ("F(x, y, z)", [(2, 4, 1, 64), K, K], (FLOAT16,)),
    "attention, heads share keys": (
        "F(x, y, z, enable_gqa=True)",
        [Q, (2, 2, 56, 64), (2, 2, 56, 64)],
        (FLOAT16,),
    ),
    "attention, turned": (
        "F(x.transpose(1, 2), y.transpose(1, 2), z.transpose(1, 2))",
        [(2, 40, 4, 64), (2, 56, 4, 64), (2, 56, 4, 64)],
        (FLOAT16, BFLOAT16),
    ),
    "attention, wide heads": ("F(x, y, z)", [(1, 2, 24, 128), (1, 2, 24, 128), (1, 2, 24, 128)], (FLOAT16,)),
}
IN_THE_SIMULATOR = ("conv1d, tiny",)
NUMBERED = [
    (name, dtype)
    for name, (_, _, dtypes) in CASES.items()
    for dtype in dtypes
    if not is_simulated() or (name in IN_THE_SIMULATOR and dtype == FLOAT32)
]


def function(name: str, dtype: np.dtype) -> tuple[gpujit.ScriptModule, list[np.ndarray]]:
    body, shapes, _ = CASES[name]
    names = ["x", "y", "z"][: len(shapes)]
    module = gpujit.script(gpujit.nn.Module())
    body = body.replace("F(", "torch.scaled_dot_product_attention(")
    module.define(f"def forward(self, {', '.join(f'{n}: Tensor' for n in names)}) -> Tensor:\n    return {body}\n")
    random = np.random.default_rng(0)
    return module, [random.standard_normal(s).astype(dtype) for s in shapes]


def distance(got: Any, want: np.ndarray) -> float:
    """The largest difference, as a share of the largest number."""
    got = host(got)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    wide = want.astype(np.float64)
    return float(np.abs(got.astype(np.float64) - wide).max() / np.abs(wide).max())


def library_of(device: GpuDevice) -> str:
    """Why the device has no library; empty where it has one."""
    found = device.room(PROBE)
    return found if isinstance(found, str) else ""


# Each case one way, then the other: what there is no time for is left out of both.
@pytest.mark.parametrize(("name", "dtype"), NUMBERED, ids=str)
@pytest.mark.parametrize("is_on", [False, True], ids=["own", "library"])
def test_results_are_the_cpu_s(name: str, dtype: np.dtype, is_on: bool, device: GpuDevice) -> None:
    reason = library_of(device)
    if is_on and reason:
        pytest.skip(reason)
    module, inputs = function(name, dtype)
    want = module(*inputs)
    fast = gpujit.optimize_for_inference(module.to(device.name))
    with config(disable=() if is_on else ("cudnn",)):
        distances = [distance(fast(*inputs), want) for _ in range(3)]
    assert max(distances) <= FURTHEST[dtype], distances
    assert fast.plan_stats().interpreted == 0
    text = fast.explain()
    if is_on:
        # Of these only attention of float32 is not the library's.
        assert ("cuDNN's attention is for" if dtype == FLOAT32 and "attention" in name else "device library") in text
    else:
        assert "the switch 'disable' turns cuDNN off" in text or is_simulated()


@pytest.mark.skipif(is_simulated(), reason="the simulator has no library")
def test_tf32_is_used_only_when_it_is_asked_for(device: GpuDevice) -> None:
    if reason := library_of(device):
        pytest.skip(reason)
    module, inputs = function("conv2d", FLOAT32)
    want = module(*inputs)
    with config(tf32=True):
        fast = gpujit.optimize_for_inference(module.to(device.name))
        assert distance(fast(*inputs), want) <= TF32


@pytest.mark.skipif(is_simulated(), reason="the simulator has no library")
def test_graphs_have_the_library_s_calls(device: GpuDevice) -> None:
    if reason := library_of(device) or device.capture_refusal:
        pytest.skip(reason)
    module, inputs = function("conv2d, then relu", FLOAT32)
    several = [[inputs[0] * 2.0**k, *inputs[1:]] for k in range(4)]
    wants = [module(*given) for given in several]
    fast = gpujit.optimize_for_inference(module.to(device.name))
    for given, want in zip(several, wants, strict=True):
        assert distance(fast(*given), want) <= FURTHEST[FLOAT32]
    stats = fast.plan_stats()
    assert (stats.captures, stats.replays) == (1, 3)


@pytest.mark.skipif(is_simulated(), reason="the simulator has no library")
def test_nan_and_infinity_stay_where_they_belong(device: GpuDevice) -> None:
    if reason := library_of(device):
        pytest.skip(reason)
    module, inputs = function("conv2d, then relu", FLOAT32)
    inputs[0][0, 0, 4, 4], inputs[0][1, 0, 4, 4] = np.nan, np.inf
    want = module(*inputs)
    got = host(gpujit.optimize_for_inference(module.to(device.name))(*inputs))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
