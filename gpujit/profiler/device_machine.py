"""What a device reaches at most: bytes per second of copies, small and large, and from the host; operations per second.

Measured once between events on the stream, and kept on disk as the processor's ceilings are, by card, driver and limits
of plans. Sizes follow from how many threads keep the device busy, so that small devices (and simulated ones) are asked
for little. Numbers are the best of several runs.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from gpujit.ir import scalar
from gpujit.ir.dtypes import FLOAT16, FLOAT32
from gpujit.kernels.cuda_steps import step_of
from gpujit.kernels.cuda_tile import within
from gpujit.kernels.index import dim
from gpujit.kernels.launches import Address, DeviceStep, Gemm, Launch, Matrix
from gpujit.kernels.tile import TileProgram
from gpujit.kernels.tile_build import Builder
from gpujit.profiler.data import BUS, Ceiling, Machine, Peak
from gpujit.profiler.machine import Ceilings, kept_ceilings, machine
from gpujit.runtime.device import GpuDevice, Handle, allocate
from gpujit.static_runtime.device_timer import CallTimer, StepWork
from gpujit.static_runtime.native import copy_program
from gpujit.support.errors import GpujitError
from gpujit.support.progress import Stage
from gpujit.support.units import bytes_text

# Part of the identity: another way of measuring makes other numbers.
_METHOD = 1
_RUNS = 5
# Bytes of a copy's source for each thread that the device has: in caches of any size, of most, and of none.
_COPIES = (8, 64, 512)
# Elements for each thread, and multiply-and-adds for each element, of the kernel that only computes.
_ELEMENTS, _CHAIN = 32, 128
# Rows of a product's matrices: as many threads as that times itself, up to the most.
_MOST_ROWS = 4096


def device_machine(device: GpuDevice, measure: bool = True) -> Machine:
    """This machine with a device; with what that reaches unless ``measure`` is False.

    Raises DeviceError when there is no memory to measure with.
    """
    here = replace(machine(False), device=f"{device.name}, {device.description}")
    if not measure:
        return here
    facts = (_METHOD, device.description, device.limits, device.workspace)
    identity = "device-" + hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
    bandwidths, peaks = kept_ceilings(identity, partial(measured, device))
    return replace(here, bandwidths=bandwidths, peaks=peaks)


def measured(device: GpuDevice) -> Ceilings:
    """Bandwidths and peaks of a device. Raises DeviceError."""
    busy = device.limits.busy
    bandwidths, peaks = [], []
    with device.here(), Stage("measure what the device reaches", len(_COPIES) + 4) as stage:
        for each in _COPIES:
            nbytes = each * busy
            level = "memory" if each == _COPIES[-1] else bytes_text(2 * nbytes)
            bandwidths.append(Ceiling(level, 2 * nbytes, 2 * nbytes / _copy_seconds(device, nbytes)))
            stage.advance()
        bandwidths.append(Ceiling(BUS, _COPIES[-1] * busy, _bus(device, _COPIES[-1] * busy)))
        stage.advance()
        rates = [2 * _CHAIN * _ELEMENTS * busy / _step_seconds(device, _chain_step(device), 4 * _ELEMENTS * busy)]
        stage.advance()
        rates += _product_rates(device, FLOAT32)
        stage.advance()
        peaks.append(Peak(1, max(rates)))
        # Units for half types take both at the same rate.
        halves = _product_rates(device, FLOAT16)
        peaks += [Peak(1, rate, dtype) for dtype in ("float16", "bfloat16") for rate in halves]
        stage.advance()
    return tuple(bandwidths), tuple(peaks)


def _copy_seconds(device: GpuDevice, nbytes: int) -> float:
    """What the fastest copy takes: that of a kernel as plans have them, or the device's own."""
    with within(device.limits):
        step = step_of(copy_program(FLOAT32, 1), [(0, (1,))], [(0, (1,))], [nbytes // 4], label="copy")
    return _step_seconds(device, step, nbytes)


def _step_seconds(device: GpuDevice, step: DeviceStep, nbytes: int) -> float:
    """The best time of a step with one operand and one result of so many bytes."""
    kernels = [c.kernel for c in step.calls if isinstance(c, Launch)]
    if device.compile(kernels):
        raise GpujitError(f"{device.name}: a kernel that measures cannot be compiled")
    work = StepWork(device, step, (nbytes, nbytes), device.stream())
    return _best(CallTimer(device, work.calls))


def _best(timer: CallTimer) -> float:
    # Events may be closer to each other than their clock's steps.
    return max(min(timer.seconds() for _ in range(_RUNS)), 1e-9)


def _bus(device: GpuDevice, nbytes: int) -> float:
    """Bytes per second from the host's usual memory."""
    source, target = np.zeros(nbytes, np.uint8), allocate(device, nbytes, "an array to measure copies with")

    def upload(stream: Handle) -> None:
        device.upload(target.address, source, stream)

    # In a graph it would be read later.
    return nbytes / _best(CallTimer(device, [upload], is_recorded=False))


@lru_cache(maxsize=1)
def _chain() -> TileProgram:
    """One number of each, multiplied and added to many times."""
    build = Builder(1)
    x = build.load(build.input(FLOAT32, 1), [dim(0)])
    total, factor = x, scalar.const(0.5, FLOAT32)
    for _ in range(_CHAIN):
        total = scalar.apply("add", scalar.apply("mul", total, factor), x)
    build.store(build.output(FLOAT32, 1), [dim(0)], total)
    return build.finish()


def _chain_step(device: GpuDevice) -> DeviceStep:
    with within(device.limits):
        return step_of(_chain(), [(0, (1,))], [(0, (1,))], [_ELEMENTS * device.limits.busy], label="multiply-and-add")


def _product_rates(device: GpuDevice, dtype: np.dtype) -> list[float]:
    """Operations per second of a large product of matrices; nothing where there is no library for it."""
    n = _rows(device.limits.busy)
    memory = [allocate(device, n * n * dtype.itemsize, "matrices to measure products with") for _ in range(3)]
    # A card is faster on zeros, which cost it less power.
    numbers = np.random.default_rng(0).standard_normal(n * n, np.float32).astype(dtype)
    for each in memory:
        device.upload(each.address, numbers, device.stream())
    workspace = allocate(device, max(device.workspace, 1), "libraries to work in")
    try:
        call = device.gemm(_gemm(n, dtype), lambda k: memory[k].address, workspace.address)
        return [2.0 * n**3 / _best(CallTimer(device, [call]))]
    except GpujitError:
        return []


def _rows(busy: int) -> int:
    """Rows of matrices of a product that keeps a device busy."""
    n = 8
    while n < _MOST_ROWS and n * n < 64 * busy:
        n *= 2
    return n


def _gemm(n: int, dtype: np.dtype) -> Gemm:
    a, b, out = (Matrix(Address(k), n, n, n, 1) for k in range(3))
    return Gemm(a, b, out, 1, dtype)
