"""The device of CuPy and NVIDIA's packages, on stand-ins for both in host memory."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.modules import ScriptModule
from gpujit.runtime.cublas import Products
from gpujit.support.errors import DeviceError
from tests.runtime.fake_cuda import CUDARuntimeError, Machine, OutOfMemoryError, Pointer, Stream, cupy_device
from tests.runtime.recording_device import LIMITS
from tests.runtime.test_cublas import StandIn
from tests.static_runtime.device_models import Mlp, numbers, scripted

FACTS = (0, "NVIDIA H200", (9, 0), "driver of CUDA 13.0")


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture(params=["cublaslt", "cupy"])
def device(request: Any, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with cupy_device(machine, monkeypatch) as module:
        if request.param == "cublaslt":
            lt = StandIn()
            lt.expected, lt.submit = None, machine.submit
            monkeypatch.setattr(module, "_products", lambda: (Products(lt), ""))
        else:
            monkeypatch.setattr(module.util, "find_spec", lambda name: None)
        found = module.CupyDevice(*FACTS)
        assert found.limits.warp == 32 and (found.workspace > 0) is (request.param == "cublaslt")
        found.limits = LIMITS
        yield found


def placed(device: Any) -> tuple[ScriptModule, ScriptModule]:
    module = gpujit.freeze(scripted(Mlp()))
    reference = gpujit.freeze(module)
    module._program.place(device)
    return reference, gpujit.optimize_for_inference(module)


def test_a_model(device: Any, machine: Machine) -> None:
    reference, found = placed(device)
    for seed in range(4):
        x = numbers(3, 6, seed=seed)
        y = found(x)
        assert type(y).__name__ == "Bound"
        np.testing.assert_allclose(y.get(), reference(x), 1e-5, 1e-6)
    stats = found.plan_stats()
    if device.workspace:
        assert (stats.captures, stats.replays, stats.fallbacks) == (1, 3, 0)
        assert [e for e in machine.log if e[0] == "graph"] == [("graph", machine.null.ptr)] * 3
    else:
        assert (stats.captures, stats.fallbacks) == (0, 4)
        assert "pip install 'nvmath-python[cu13]'" in found.explain()
    # A kernel is loaded once.
    assert len(machine.loaded) == len(set(machine.loaded))
    assert max(e[1][0] for e in machine.log if e[0] == "launch") <= device.most_blocks


def test_arrays_come_and_go(device: Any, machine: Machine) -> None:
    reference, found = placed(device)
    x = numbers(6, 3).T
    memory = machine.memory.allocate(x.nbytes)
    memory.bytes.view("f4")[...] = x.T.ravel()
    kind = type(
        device.array(SimpleNamespace(shape=(), dtype="f4", address=memory.address, strides=(), nbytes=4, owner=0))
    )
    array = kind(x.shape, x.dtype, Pointer(memory.address, memory), x.strides)
    given: list[Any] = [
        array,
        # Numba's, PyTorch's on a GPU, PyTorch's on the host.
        SimpleNamespace(
            __cuda_array_interface__={"data": (memory.address, False)}, shape=x.shape, dtype=x.dtype, strides=x.strides
        ),
        Torch(array, 2),
        Torch(x, 1),
        x,
    ]
    for each in given:
        np.testing.assert_allclose(found(each).get(), reference(x), 1e-5, 1e-6)
    out = found(x)
    assert found(x * 2, out=out) is out
    np.testing.assert_allclose(out.get(), reference(x * 2), 1e-5, 1e-6)
    array.device.id = 1
    with pytest.raises(DeviceError, match="an array on cuda:1, while the module is on cuda:0"):
        found(array)
    with pytest.raises(DeviceError, match="a Torch that cannot be used on cuda:0: it is sparse"):
        found(Torch(None, 2))


class Torch:
    """A tensor of PyTorch's, which gives itself away when it is detached."""

    def __init__(self, array: Any, kind: int, is_detached: bool = False) -> None:
        self.array, self.kind, self.is_detached = array, kind, is_detached

    def detach(self) -> Torch:
        return Torch(self.array, self.kind, True)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("handed_over stands for it")

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        assert self.kind == 1
        return np.asarray(self.array)

    def handed_over(self, kind: type) -> Any:
        assert self.is_detached
        if self.array is None:
            raise BufferError("it is sparse\nand more")
        return self.array


def test_attributes_lie_on_the_device(device: Any, machine: Machine) -> None:
    module = scripted(Mlp())
    reference = gpujit.load(module.save_to_buffer())
    module._program.place(device)
    x = numbers(3, 6)
    for _ in range(3):
        np.testing.assert_allclose(module(x).get(), reference(x), 1e-5, 1e-6)
    bias = module.last.bias
    np.testing.assert_array_equal(bias.get(), reference.last.bias)
    bias.host()[...] = 2.0
    reference.last.bias[:] = 2.0
    x = x + 1
    machine.log.clear()
    np.testing.assert_allclose(module(x).get(), reference(x), 1e-5, 1e-6)
    assert [e[2] for e in machine.log if e[0] == "memcpy" and e[1] == 1] == [x.nbytes]
    module.first.bias = bias.__class__((8,), np.dtype("f4"), bias.data, (0,))
    reference.first.bias = np.full(8, 2.0, "f4")
    np.testing.assert_allclose(module(x).get(), reference(x), 1e-5, 1e-6)


def test_a_stream_that_cuda_core_does_not_know(device: Any, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, known = machine.launch, []

    def launched(stream: Any, *more: Any) -> None:
        number, pointer = stream.__cuda_stream__()
        known.append(number)
        launch(machine.streams[pointer], *more)

    monkeypatch.delattr(Stream, "__cuda_stream__")
    monkeypatch.setattr(importlib.import_module(type(device).__module__).core, "launch", launched)
    reference, found = placed(device)
    x = numbers(3, 6)
    np.testing.assert_allclose(found(x).get(), reference(x), 1e-5, 1e-6)
    assert known and not any(known)


def test_host_memory_that_cuda_reads_later(device: Any, machine: Machine) -> None:
    reference, found = placed(device)
    x = numbers(3, 6)
    found(x)
    x[0] = 3
    machine.log.clear()
    found(x)
    assert ("synchronize", machine.null.ptr) not in machine.log
    machine.pinned.add(x.ctypes.data)
    x[1] = 3
    np.testing.assert_allclose(found(x).get(), reference(x), 1e-5, 1e-6)
    # Before the caller may write into it again.
    copied = machine.log.index(("memcpy", 1, x.nbytes, machine.null.ptr), 3)
    assert machine.log[copied + 1] == ("synchronize", machine.null.ptr)


def test_streams(device: Any, machine: Machine) -> None:
    reference, found = placed(device)
    x = numbers(3, 6)
    found(x)
    found(x)
    other = device._capturing.__class__(machine)
    machine.log.clear()
    with other:
        np.testing.assert_allclose(found(x).get(), reference(x), 1e-5, 1e-6)
    assert machine.log[0] == ("wait", other.ptr, machine.null.ptr)
    assert {e[-1] for e in machine.log[1:]} == {other.ptr}
    # The stream that ran last is gone: everything is waited for instead.
    other.destroy()
    machine.log.clear()
    np.testing.assert_allclose(found(x).get(), reference(x), 1e-5, 1e-6)
    assert machine.log[0] == ("synchronize", 0)
    with other, pytest.raises(DeviceError, match="the current stream was destroyed"):
        found(x)
    np.testing.assert_allclose(found(x).get(), reference(x), 1e-5, 1e-6)


def test_out_of_memory(device: Any, machine: Machine) -> None:
    reference, found = placed(device)
    x = numbers(3, 6)
    machine.most_bytes = 100
    with pytest.raises(DeviceError, match="bytes are needed; 100 of 200 bytes are free") as fault:
        found(x)
    assert fault.value.code == "device-memory" and machine.freed == 1
    machine.most_bytes = 1 << 30
    np.testing.assert_allclose(found(x).get(), reference(x), 1e-5, 1e-6)


def test_errors_of_cuda_are_device_errors(device: Any, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = placed(device)

    def fails(*_: Any) -> None:
        raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    monkeypatch.setattr(machine, "submit", fails)
    with pytest.raises(DeviceError, match="cuda:0: cudaErrorIllegalAddress"):
        found(numbers(3, 6))


@pytest.mark.parametrize(
    "text", ["cudaErrorMemoryAllocation: out of memory", "CUDA_ERROR_OUT_OF_MEMORY: out of memory", ""]
)
def test_memory_that_libraries_want(
    text: str, device: Any, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To load code, for graphs, or to work in; with no text it is CuPy's own pool that has none."""
    reference, found = placed(device)
    x = numbers(3, 6)

    def fails(*_: Any) -> None:
        raise CUDARuntimeError(text) if text else OutOfMemoryError("Out of memory allocating 1,024 bytes")

    for calls in range(3):
        with monkeypatch.context() as now:
            now.setattr(machine, "submit", fails)
            with pytest.raises(DeviceError, match=r"no memory on cuda:0: .*; .* bytes are free") as fault:
                found(x + calls)
            assert fault.value.code == "device-memory"
        np.testing.assert_allclose(found(x).get(), reference(x), 1e-5, 1e-6)


def test_bindings_that_cannot_be_used(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    class NotSupportedError(Exception):
        pass

    def create() -> int:
        raise NotSupportedError("libcublasLt.so.13 is not found")

    with cupy_device(machine, monkeypatch) as module:
        monkeypatch.setattr(module.util, "find_spec", lambda name: name)
        monkeypatch.setattr(module.importlib, "import_module", lambda name: SimpleNamespace(create=create))
        found = module.CupyDevice(*FACTS)
    assert "cuBLASLt is not to be had (NotSupportedError: libcublasLt.so.13" in found.capture_refusal
    assert not found.workspace
