"""What callers get wrong on a GPU, on a device that records: the error names it, and the module works afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpujit
import gpujit.modules
from gpujit import nn
from gpujit.modules import ScriptModule
from gpujit.support.errors import DeviceError, GpujitError
from tests.runtime.recording_device import DEFAULT_STREAM, RecordingDevice
from tests.static_runtime.device_models import Mlp, OneLayer, numbers, scripted
from tests.static_runtime.test_device import assert_close, got, placed


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> RecordingDevice:
    """What ``cuda:0`` names."""
    found = RecordingDevice()
    monkeypatch.setattr(gpujit.modules, "open_device", lambda place: found)
    return found


def holding(device: RecordingDevice) -> ScriptModule:
    module = scripted(Mlp())
    module.define("""
    def held(self, xs: List[Tensor], d: Dict[str, Tensor], t: Tuple[Tensor, int]):
        return xs[0] + d["a"] + t[0]
    """)
    module.to("cuda:0")
    return module


# What is done with a module, an array on its device and one on another.
ELSEWHERE: dict[str, Callable[[ScriptModule, Any, Any], Any]] = {
    "an input": lambda m, x, other: m(other),
    "by name": lambda m, x, other: m(x=other),
    "in a list": lambda m, x, other: m.held([other], {"a": x}, (x, 1)),
    "in a dict": lambda m, x, other: m.held([x], {"a": other}, (x, 1)),
    "in a tuple": lambda m, x, other: m.held([x], {"a": x}, (other, 1)),
    "out": lambda m, x, other: m(x, out=other),
    "an attribute": lambda m, x, other: setattr(m.last, "bias", other),
    "a state": lambda m, x, other: m.load_state_dict({**m.state_dict(), "last.bias": other}),
}


@pytest.mark.parametrize("how", ELSEWHERE)
def test_arrays_on_another_device(how: str, device: RecordingDevice) -> None:
    module, x = holding(device), numbers(3, 6)
    want = got(module(x))
    other = RecordingDevice("cuda:1").of(numbers(4) if how in ("an attribute", "a state") else x)
    with pytest.raises(DeviceError, match="on cuda:1, while the module is on cuda:0; copy it there first"):
        ELSEWHERE[how](module, device.of(x), other)
    assert_close(module(x), want)


class Several(nn.Module):
    """Steps, a library's product, views and an operator of the host."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x).relu()
        return y.t().softmax(0), y.sum(0), x[1:], x.reshape(-1), y.cummax(-1)[0]


LAYOUTS: dict[str, Callable[[], np.ndarray]] = {
    "together": lambda: numbers(3, 4),
    "turned": lambda: numbers(4, 3).T,
    "every second": lambda: numbers(6, 8)[::2, ::2],
    "backwards": lambda: numbers(3, 4)[::-1, ::-1],
    "repeated": lambda: np.broadcast_to(numbers(1, 4), (3, 4)),
    "overlapping": lambda: np.lib.stride_tricks.sliding_window_view(numbers(6), 4),
    "from the middle": lambda: numbers(5, 5)[1:4, 1:],
    "no rows": lambda: numbers(0, 4),
    "no rows, turned": lambda: numbers(4, 0).T,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_on_the_device_in_any_layout(layout: str, device: RecordingDevice) -> None:
    module = scripted(Several())
    found, x = placed(module, device), LAYOUTS[layout]()
    given = device.of(x)
    assert given.strides == x.strides
    for _ in range(3):
        assert_close(found(given), module(x))
    np.testing.assert_array_equal(given.get(), x)
    assert found.plan_stats().interpreted == 0


def test_arrays_without_elements(device: RecordingDevice) -> None:
    module = scripted(nn.Linear(4, 0))
    found = placed(module, device)
    for x in (numbers(3, 4), numbers(0, 4)):
        assert_close(found(device.of(x)), module(x))
        out = device.of(np.zeros((len(x), 0), "f4"))
        assert found(x, out=out) is out
    with pytest.raises(GpujitError, match="4"):
        found(device.of(numbers(0, 3)))


class WritesAndComputes(OneLayer):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", np.zeros((), np.float32))

    def forward(self, x):
        self.seen += 1.0
        y = self.linear(x)
        return y.cummax(-1)[0] + y


# What may be allocated at once: less than a plan's memory, an attribute, a tensor of the host's, a result.
@pytest.mark.parametrize("most", range(0, 1200, 48))
def test_out_of_memory_anywhere(most: int, device: RecordingDevice) -> None:
    module, x = scripted(WritesAndComputes()), numbers(16, 4)
    want = gpujit.load(module.save_to_buffer())(x)
    module.to("cuda:0")
    device.most_bytes = most
    for _ in range(2):
        try:
            found = module(x)
        except DeviceError as fault:
            assert fault.code == "device-memory"
            assert "there is no memory on cuda:0 for" in fault.message
            assert f"{most:,} of {2 * most:,} bytes are free" in fault.message and "bytes are needed" in fault.message
        else:
            assert_close(found, want)
    device.most_bytes = 1 << 30
    for _ in range(3):
        assert_close(module(x), want)


def test_out_of_memory_for_what_the_host_made(device: RecordingDevice) -> None:
    """A function without a plan: its results are copied to the device."""
    module, x = scripted(nn.Identity()), numbers(64)
    module.define("""
    def run(self, x):
        x[0] = 1.0
        return torch.cat([x, x])
    """)
    module.to("cuda:0")
    want = np.concatenate([x, x])
    want[[0, 64]] = 1.0
    device.most_bytes = 300
    with pytest.raises(DeviceError, match=r"for a tensor float32\[128\]: 512 bytes are needed; 300 of 600") as fault:
        module.run(x)
    assert fault.value.code == "device-memory"
    device.most_bytes = 1 << 30
    assert_close(module.run(x), want)


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("kind", ["host", "device"])
def test_a_stream_that_was_destroyed(kind: str, is_new: bool, device: RecordingDevice) -> None:
    """Before there is a plan, and when graphs are replayed; numbers that are on the device already are not copied."""
    module, x = scripted(Mlp()), numbers(3, 6)
    found = placed(module, device)
    for _ in range(0 if is_new else 3):
        found(x)
    device.current, device.destroyed = 5, {5}
    for _ in range(2):
        with pytest.raises(DeviceError, match="cuda:0: the current stream was destroyed"):
            found(device.of(x) if kind == "device" else x)
    device.current = DEFAULT_STREAM
    for _ in range(3):
        assert_close(found(x), module(x))
    assert found.plan_stats().interpreted == 0


def test_attributes_on_a_stream_that_was_destroyed(device: RecordingDevice) -> None:
    module = scripted(Mlp())
    want = module.last.bias.copy()
    module.to("cuda:0")
    device.current, device.destroyed = 5, {5}
    with pytest.raises(DeviceError, match="the current stream was destroyed"):
        _ = module.last.bias
    device.current = DEFAULT_STREAM
    assert_close(module.last.bias, want)
    device.current = 5
    with pytest.raises(DeviceError, match="the current stream was destroyed"):
        module.to("cpu")
    device.current = DEFAULT_STREAM
    assert_close(module.last.bias, want)
    assert_close(module(numbers(3, 6)), scripted_like(module)(numbers(3, 6)))


def scripted_like(module: ScriptModule) -> ScriptModule:
    """A copy on the CPU."""
    return gpujit.load(module.save_to_buffer())


FORKED: dict[str, Callable[[ScriptModule, Any], Any]] = {
    "a call": lambda m, x: m(x),
    "a method": lambda m, x: m.held([x], {"a": x}, (x, 1)),
    "reading a parameter": lambda m, x: m.last.bias,
    "assigning one": lambda m, x: setattr(m.last, "bias", numbers(4)),
    "its state": lambda m, x: m.state_dict(),
    "to the cpu": lambda m, x: m.to("cpu"),
    "saving": lambda m, x: m.save_to_buffer(),
    "freezing": lambda m, x: gpujit.freeze(m),
    "warming up": lambda m, x: gpujit.optimize_for_inference(m).warmup([x]),
}


@pytest.mark.parametrize("what", FORKED)
def test_after_a_fork(what: str, device: RecordingDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's state is not there in a child: nothing is asked of it, and the parent goes on."""
    module, x = holding(device), numbers(3, 6)
    want = got(module(x))
    device.forget()
    parent = device.pid
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: parent + 1)
        with pytest.raises(DeviceError, match=f"cuda:0 was opened by process {parent}.*'spawn'.*after the fork"):
            FORKED[what](module, x)
        assert not device.events
    assert_close(module(x), want)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_real_fork(device: RecordingDevice) -> None:
    module, x = holding(device), numbers(3, 6)
    want = got(module(x))
    child = os.fork()
    if not child:
        status = 1
        try:
            module(x)
        except DeviceError as fault:
            status = 0 if "'spawn'" in fault.message else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert_close(module(x), want)
