"""What a GPU benchmark compares, as functions without arguments: gpujit's module on a device, and PyTorch's ways.

PyTorch may be absent, as in the simulator; then there is gpujit alone, and NumPy's interpreter says what is right.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from results import arrays

import gpujit
from gpujit.runtime.device import GpuDevice, open_device
from gpujit.support.config import config

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

Call = Callable[[], Any]
# How far results may lie from what is right, as a share of the largest number.
FURTHEST = {"float32": 2e-3, "float16": 3e-2}


@dataclass
class Place:
    """Where it all runs: ``cuda:0``, or ``cpu`` to try the benchmark itself."""

    name: str
    device: GpuDevice | None = None
    shortest: float = 0.02
    rounds: int = 5
    clock: Callable[[], float] = field(default=time.perf_counter)

    def __post_init__(self) -> None:
        if self.name != "cpu":
            self.device = open_device(self.name)

    @property
    def has_torch(self) -> bool:
        """Whether PyTorch runs here, too."""
        return torch is not None and (self.name == "cpu" or bool(torch.cuda.is_available()))

    def synchronise(self) -> None:
        """Wait for all work of this thread's streams."""
        if self.device is not None:
            with self.device.here():
                self.device.synchronise(self.device.stream())
        if self.has_torch and self.name != "cpu":
            torch.cuda.synchronize()

    def given(self, arrays: list[np.ndarray]) -> list[Any]:
        """Arrays as gpujit is called with them, on the device."""
        if self.device is None or not hasattr(self.device, "capability"):
            return list(arrays)
        import cupy

        with self.device.here():
            return [cupy.asarray(x) for x in arrays]

    def tensors(self, arrays: list[np.ndarray]) -> list[Any]:
        """Arrays as PyTorch's tensors, on the device."""
        return [torch.from_numpy(x).to(self.name) for x in arrays]

    def times(self, calls: dict[str, Call]) -> dict[str, float]:
        """Median seconds of each call, from interleaved rounds; what a GPU has not done yet is waited for."""
        counts = dict.fromkeys(calls, 1)
        for name, call in calls.items() if self.shortest else ():
            call()
            self.synchronise()
            start = self.clock()
            call()
            self.synchronise()
            counts[name] = max(1, min(2000, int(self.shortest / max(self.clock() - start, 1e-6))))
        found: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(self.rounds):
            for name, call in calls.items():
                start = self.clock()
                for _ in range(counts[name]):
                    call()
                self.synchronise()
                found[name].append((self.clock() - start) / counts[name])
        return {name: median(f) for name, f in found.items()}


def distance(got: Any, wanted: Any) -> float:
    """The largest difference as a share of the largest number; infinite for other shapes."""
    a, b = list(arrays(got)), list(arrays(wanted))
    if [x.shape for x in a] != [x.shape for x in b] or not a:
        return float("inf")
    worst = 0.0
    for x, y in zip(a, b, strict=True):
        wide, right = x.astype(np.float64), y.astype(np.float64)
        if not np.array_equal(np.isfinite(wide), np.isfinite(right)):
            return float("inf")
        finite = np.isfinite(right)
        scale = float(np.abs(right[finite]).max(initial=1e-6))
        worst = max(worst, float(np.abs(wide[finite] - right[finite]).max(initial=0)) / scale)
    return worst


def optimised(archive: bytes, place: Place) -> Any:
    """gpujit's module for an archive, on the device."""
    return gpujit.optimize_for_inference(gpujit.load(io.BytesIO(archive), device=place.name))


def ours(archive: bytes, place: Place, arrays: list[np.ndarray], others: list[Any], without: str = "") -> Call:
    """gpujit's call; ``without`` is a part to turn off, as the switch ``disable`` names it."""
    module, given = optimised(archive, place), place.given(arrays)
    with config(disable=(without,)) if without else nullcontext():
        # A plan, and a graph of it, are made at the first calls.
        for _ in range(3):
            module(*given, *others)
    return lambda: module(*given, *others)


def interpreted(archive: bytes, arrays: list[np.ndarray], others: list[Any]) -> Any:
    """What NumPy computes, operator by operator, in float32."""
    module = gpujit.load(io.BytesIO(archive), device="cpu")
    return module(*arrays, *others)
