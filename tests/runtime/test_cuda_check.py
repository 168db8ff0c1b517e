"""What is said where a GPU cannot be used: packages, driver, toolkit and card are named, and what to do."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

import gpujit
from gpujit import nn
from gpujit.runtime import cuda_check, device
from gpujit.runtime.cuda_check import Found, look, problem
from gpujit.support.errors import DeviceError
from tests.runtime.recording_device import RecordingDevice

CARD = ("NVIDIA H200", (9, 0))


@pytest.mark.parametrize(
    ("found", "index", "texts"),
    [
        (Found(("cupy", "cuda-core")), 0, ["not installed: cupy, cuda-core", "pip install 'gpujit[cuda,gpu]'"]),
        (Found((), 0, 13020), 0, ["needs NVIDIA's driver", "none", "CUDA 13.2", "--gpus all", "device='cpu'"]),
        (
            Found((), 12040, 13020),
            0,
            [
                "driver is too old",
                "serves CUDA 12.4",
                "of CUDA 13.2",
                "newer driver from https://",
                "packages for CUDA 12",
            ],
        ),
        (
            Found((), 13000, 13020, (), "cudaErrorNoDevice: no device"),
            0,
            ["sees no GPU (cudaErrorNoDevice", "nvidia-smi"],
        ),
        (Found((), 13000, 13020, ()), 0, ["sees no GPU;", "CUDA_VISIBLE_DEVICES"]),
        (Found((), 13000, 13020, (CARD,)), 2, ["cuda:2 is not there", "cuda:0 (NVIDIA H200)"]),
        (Found((), 13000, 13020, (("GTX 1080", (6, 1)),)), 0, ["(GTX 1080) is too old", "6.1", "need 7.5"]),
    ],
)
def test_what_is_missing(found: Found, index: int, texts: list[str]) -> None:
    text = problem(found, index)
    assert all(t in text for t in texts), text


def test_nothing_is_missing() -> None:
    # Minor versions of one major version work together.
    assert problem(Found((), 13000, 13020, (CARD, CARD)), 1) == ""


def runtime(**changes: Any) -> Any:
    class CudaError(RuntimeError):
        pass

    def no_device() -> int:
        raise CudaError("cudaErrorNoDevice: no CUDA-capable device is detected")

    facts: dict[str, Any] = {
        "CUDARuntimeError": CudaError,
        "driverGetVersion": lambda: 13000,
        "runtimeGetVersion": lambda: 13020,
        "getDeviceCount": lambda: 1,
        "getDeviceProperties": lambda i: {"name": b"NVIDIA H200", "major": 9, "minor": 0},
    }
    if changes.pop("is_empty", False):
        facts["getDeviceCount"] = no_device
    return SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(**(facts | changes))))


def test_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_check, "_is_installed", lambda name: True)
    assert look(lambda name: runtime()) == Found((), 13000, 13020, (CARD,))
    assert "cudaErrorNoDevice" in look(lambda name: runtime(is_empty=True)).fault
    # Nothing more is asked of a driver that is too old.
    old = look(lambda name: runtime(driverGetVersion=lambda: 12040, is_empty=True))
    assert old == Found((), 12040, 13020)

    def broken(name: str) -> Any:
        raise ImportError("libcublas.so.13: cannot open shared object file\nand much more")

    assert look(broken).missing == ("cupy (it cannot be imported: libcublas.so.13: cannot open shared object file)",)
    monkeypatch.setattr(cuda_check, "_is_installed", lambda name: name != "cupy")
    assert look(broken) == Found(("cupy",))


class Twice(nn.Module):
    def forward(self, x):
        return x * 2


@pytest.fixture
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_open", {})
    monkeypatch.setattr(device, "is_simulated", lambda: False)


def test_a_machine_without_a_gpu(no_devices: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_check, "look", lambda: Found((), 0, 13020))
    module = gpujit.script(Twice())
    for name in ("cuda", "cuda:0", "cuda:7"):
        with pytest.raises(DeviceError, match="needs NVIDIA's driver"):
            module.to(name)
    with pytest.raises(DeviceError, match="needs NVIDIA's driver"):
        module.cuda()
    with pytest.raises(DeviceError, match="mps is neither"):
        module.to("mps")
    # It is as it was.
    assert module._program.device is None
    assert module.to("auto") is module and module._program.device is None
    text = gpujit.optimize_for_inference(gpujit.freeze(module.eval())).explain()
    assert text.startswith("auto chose the CPU: cuda:0 needs NVIDIA's driver")


def test_auto_takes_a_gpu_that_works(no_devices: None, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []

    def make(*facts: Any) -> Any:
        made.append(facts)
        return SimpleNamespace(CupyDevice=lambda *facts: made.append(facts) or RecordingDevice(f"cuda:{facts[0]}"))

    real = importlib.import_module
    fakes = {
        "gpujit.runtime.cupy_device": make,
        "cupy": lambda name: runtime(getDevice=lambda: 1),
    }
    monkeypatch.setattr(cuda_check, "look", lambda: Found((), 13000, 13020, (CARD, CARD)))
    monkeypatch.setattr(
        cuda_check.importlib, "import_module", lambda name: fakes[name](name) if name in fakes else real(name)
    )
    module = gpujit.script(Twice())
    module.to("auto")
    assert module._program.choice == "auto chose cuda:1: a device that records"
    assert made[-1] == (1, "NVIDIA H200", (9, 0), "driver of CUDA 13.0")
    assert device.open_device("cuda:1") is module._program.device
    assert device.open_device("cuda:0").name == "cuda:0"
    assert module.to("cpu")._program.device is None


def test_packages_of_other_versions(no_devices: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def old(*facts: Any) -> Any:
        raise AttributeError("module 'cuda.core' has no attribute 'launch'")

    fakes = {"gpujit.runtime.cupy_device": SimpleNamespace(CupyDevice=old)}
    real = importlib.import_module
    monkeypatch.setattr(cuda_check, "look", lambda: Found((), 13000, 13020, (CARD,)))
    monkeypatch.setattr(cuda_check.importlib, "import_module", lambda name: fakes.get(name) or real(name))
    with pytest.raises(DeviceError, match=r"do not do \(cupy .*, cuda-core .*\): module 'cuda.core' has no attribute"):
        gpujit.script(Twice()).to("cuda:0")


def test_a_simulator_that_is_not_there(no_devices: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpujit.runtime import simulated_device

    monkeypatch.setattr(device, "is_simulated", lambda: True)
    real = importlib.import_module

    def missing(name: str) -> Any:
        if name == "gpujit.kernels.cuda_device":
            raise ImportError("No module named 'numba'")
        return real(name)

    monkeypatch.setattr(simulated_device.importlib, "import_module", missing)
    with pytest.raises(DeviceError, match="cannot be imported: No module named 'numba'; pip install"):
        device.open_device("cuda:0")
    fakes = {"gpujit.kernels.cuda_device": SimpleNamespace(SIMULATED=False)}
    monkeypatch.setattr(simulated_device.importlib, "import_module", lambda name: fakes.get(name) or real(name))
    with pytest.raises(DeviceError, match="set it before the process starts"):
        device.open_device("cuda:0")


def test_a_device_is_opened_once(no_devices: None, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr(cuda_check, "open", lambda index: opened.append(index) or RecordingDevice(f"cuda:{index or 0}"))
    first = device.open_device("cuda:0")
    assert device.open_device("cuda:0") is first
    assert opened == [0]
    first.pid += 1
    with pytest.raises(DeviceError, match="processes forked from it"):
        device.open_device("cuda:0")
