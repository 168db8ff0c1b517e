"""Whether a CUDA device can be used, and what to do when it cannot; opening it imports CuPy."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, util
from typing import Any

from gpujit.support.errors import DeviceError

INSTALL = "pip install 'gpujit[cuda,gpu]'"
DRIVERS = "https://www.nvidia.com/drivers"
# What NVIDIA's compilers of CUDA 13 make code for at least.
LEAST_CAPABILITY = (7, 5)
# Packages by the names they are imported by.
PACKAGES = {"cupy": "cupy", "cuda.core": "cuda-core", "numba_cuda": "numba-cuda"}


@dataclass(frozen=True, slots=True)
class Found:
    """What a machine has: missing packages, CUDA versions as NVIDIA writes them (13020 is 13.2; 0 for no driver),
    devices as (name, compute capability), and what asking for the devices raised."""

    missing: tuple[str, ...] = ()
    driver: int = 0
    toolkit: int = 0
    devices: tuple[tuple[str, tuple[int, int]], ...] = ()
    fault: str = ""


def version(number: int) -> str:
    """A CUDA version for people."""
    return f"{number // 1000}.{number % 1000 // 10}"


def problem(found: Found, index: int) -> str:
    """Why a device cannot be used and what to do; an empty text when it can."""
    name = f"cuda:{index}"
    if found.missing:
        return f"{name} needs packages that are not installed: {', '.join(found.missing)}; {INSTALL}"
    if not found.driver:
        return (
            f"{name} needs NVIDIA's driver, and this machine (or container) has none, while the toolkit is of CUDA "
            f"{version(found.toolkit)}; install the driver from {DRIVERS}, start containers with --gpus all, or use "
            "device='cpu'"
        )
    if found.driver // 1000 < found.toolkit // 1000:
        return (
            f"{name}: NVIDIA's driver is too old: it serves CUDA {version(found.driver)}, and the toolkit installed is "
            f"of CUDA {version(found.toolkit)}; install a newer driver from {DRIVERS}, or packages for CUDA "
            f"{found.driver // 1000}"
        )
    if not found.devices:
        return (
            f"{name} is not there: the driver (CUDA {version(found.driver)}) sees no GPU"
            + (f" ({found.fault})" if found.fault else "")
            + "; look at nvidia-smi and CUDA_VISIBLE_DEVICES, or use device='cpu'"
        )
    if not 0 <= index < len(found.devices):
        names = ", ".join(f"cuda:{i} ({n})" for i, (n, _) in enumerate(found.devices))
        return f"{name} is not there: this machine has {names}"
    card, capability = found.devices[index]
    if capability < LEAST_CAPABILITY:
        wanted = ".".join(map(str, LEAST_CAPABILITY))
        return (
            f"{name} ({card}) is too old: its compute capability is {'.'.join(map(str, capability))}, and kernels of "
            f"CUDA {version(found.toolkit)} need {wanted}; use device='cpu'"
        )
    return ""


def look(load: Callable[[str], Any] = importlib.import_module) -> Found:
    """What this machine has."""
    missing = tuple(shown for name, shown in PACKAGES.items() if not _is_installed(name))
    if missing:
        return Found(missing)
    try:
        runtime = load("cupy").cuda.runtime
    except ImportError as fault:
        return Found((f"cupy (it cannot be imported: {str(fault).splitlines()[0]})",))
    driver, toolkit = int(runtime.driverGetVersion()), int(runtime.runtimeGetVersion())
    devices: list[tuple[str, tuple[int, int]]] = []
    fault_text = ""
    if driver // 1000 >= toolkit // 1000:
        try:
            for i in range(int(runtime.getDeviceCount())):
                facts = runtime.getDeviceProperties(i)
                devices.append((_text(facts["name"]), (int(facts["major"]), int(facts["minor"]))))
        except runtime.CUDARuntimeError as fault:
            fault_text = str(fault)
    return Found((), driver, toolkit, tuple(devices), fault_text)


def _is_installed(name: str) -> bool:
    try:
        return util.find_spec(name) is not None
    except ImportError:
        return False


def _version(name: str) -> str:
    """The version of a package; CuPy has another name for each CUDA."""
    for each in (name, f"{name}-cuda13x", f"{name}-cuda12x"):
        try:
            return metadata.version(each)
        except metadata.PackageNotFoundError:
            continue
    return "of an unknown version"


def _text(name: bytes | str) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def open(index: int | None) -> Any:
    """The device of a number; None asks for the current one. Raises DeviceError that says what to do."""
    found = look()
    if index is None:
        index = 0
        if not problem(found, 0):
            index = int(importlib.import_module("cupy").cuda.runtime.getDevice())
    text = problem(found, index)
    if text:
        raise DeviceError(text)
    card, capability = found.devices[index]
    try:
        made = importlib.import_module("gpujit.runtime.cupy_device").CupyDevice
        return made(index, card, capability, f"driver of CUDA {version(found.driver)}")
    except (ImportError, AttributeError) as fault:
        # Versions that lack what is used here.
        installed = ", ".join(f"{name} {_version(name)}" for name in ("cupy", "cuda-core", "numba-cuda"))
        raise DeviceError(
            f"cuda:{index}: the packages that are installed do not do ({installed}): {fault}; {INSTALL}"
        ) from fault
