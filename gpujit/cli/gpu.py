"""NVIDIA's driver and the GPUs it knows, asked through its C library alone."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

# What cuInit answers, by number: what it means and what to do.
_ANSWERS = {
    100: ("the driver finds no GPU", "check nvidia-smi and CUDA_VISIBLE_DEVICES"),
    101: ("CUDA_VISIBLE_DEVICES names no GPU", "unset CUDA_VISIBLE_DEVICES or correct it"),
    803: ("the driver is older than its own libraries", "restart the machine, or install the driver again"),
    804: ("the driver is too old for the libraries installed beside it", "update the NVIDIA driver"),
    999: ("the driver cannot be started", "check nvidia-smi; restarting the machine often helps"),
}
_CAPABILITY = (75, 76)


@dataclass(frozen=True, slots=True)
class Gpu:
    """What the driver says: the CUDA version it supports, a line for each GPU; or what is wrong and what to do."""

    version: str = ""
    devices: tuple[str, ...] = ()
    problem: str = ""
    remedy: str = ""
    is_absent: bool = False


def driver() -> Gpu:
    """What there is of NVIDIA's driver and GPUs."""
    names = ["nvcuda.dll"] if sys.platform == "win32" else ["libcuda.so.1", "libcuda.so"]
    for name in names:
        try:
            return asked(ctypes.CDLL(name))
        except OSError:
            continue
    problem = "no NVIDIA driver here: models run on the processor"
    return Gpu(problem=problem, remedy="to use a GPU, install NVIDIA's driver and gpujit[cuda]", is_absent=True)


def asked(library: Any) -> Gpu:
    """What a driver's library answers."""
    answer = int(library.cuInit(0))
    if answer:
        problem, remedy = _ANSWERS.get(answer, (f"the driver answers with error {answer}", "check nvidia-smi"))
        return Gpu(problem=problem, remedy=remedy)
    number = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(number))
    count = ctypes.c_int()
    library.cuDeviceGetCount(ctypes.byref(count))
    version = f"{number.value // 1000}.{number.value % 1000 // 10}"
    return Gpu(version, tuple(_device(library, k) for k in range(count.value)))


def _device(library: Any, number: int) -> str:
    device = ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(device), number)
    name = ctypes.create_string_buffer(256)
    library.cuDeviceGetName(name, 256, device)
    size = ctypes.c_size_t()
    library.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    parts = []
    for attribute in _CAPABILITY:
        value = ctypes.c_int()
        library.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        parts.append(str(value.value))
    return f"{name.value.decode(errors='replace')}, {size.value / 1e9:.1f} GB, compute capability {'.'.join(parts)}"
