"""Attributes of modules on a device that records: what is copied, when, and whose memory it is."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import gpujit
import gpujit.modules
from gpujit import nn
from gpujit.modules import ScriptModule
from gpujit.support.errors import DeviceError, StateDictError
from tests.runtime.recording_device import DeviceArray, RecordingDevice, transfers
from tests.static_runtime.device_models import Mlp, numbers, scripted


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> RecordingDevice:
    """What ``cuda:0`` names."""
    found = RecordingDevice()
    monkeypatch.setattr(gpujit.modules, "open_device", lambda place: found)
    return found


def twice(make: Any) -> tuple[ScriptModule, ScriptModule]:
    """Two modules with the same numbers."""
    module = scripted(make())
    return module, gpujit.load(module.save_to_buffer())


def assert_close(value: Any, want: Any) -> None:
    if isinstance(want, (list, tuple)):
        assert len(value) == len(want)
        for a, b in zip(value, want, strict=True):
            assert_close(a, b)
        return
    np.testing.assert_allclose(value.get() if isinstance(value, DeviceArray) else value, want, 1e-5, 1e-5)


def write(x: DeviceArray, numbers: Any) -> None:
    """What a caller does with an array on the device."""
    x.device.view(x.tensor)[...] = numbers


def test_parameters_are_copied_once_and_read_where_they_lie(device: RecordingDevice) -> None:
    module, reference = twice(Mlp)
    module.to("cuda:0")
    for seed in range(4):
        x = numbers(3, 6, seed=seed)
        want = reference(x)
        device.forget()
        result = module(x)
        if seed:
            assert transfers(device) == [("upload", x.nbytes)]
            # The result's copy alone: parameters are not copied on the device either.
            assert [e[2] for e in device.events if e[0] == "copy"] == [want.nbytes]
        assert_close(result, want)
    assert module.plan_stats().replays == 3
    assert module.plan_stats().interpreted == 0


def test_replaced_parameters(device: RecordingDevice) -> None:
    module, reference = twice(Mlp)
    module.to("cuda:0")
    x = numbers(3, 6)
    for seed in range(8):
        module.last.bias = reference.last.bias = numbers(4, seed=seed)
        assert_close(module(x), reference(x))
        device.forget()
        module(x + 1)
        assert transfers(device) == [("upload", x.nbytes)]
    # A host array that was given is the module's own copy.
    given = numbers(4, seed=9)
    module.last.bias, reference.last.bias = given, given.copy()
    given[:] = 0
    assert_close(module(x), reference(x))
    assert_close(module.last.bias, reference.last.bias)


def test_arrays_on_the_device_are_shared_with_who_gave_or_read_them(device: RecordingDevice) -> None:
    module, reference = twice(Mlp)
    module.to("cuda:0")
    x = numbers(3, 6)
    module(x)
    write(module.last.bias, 2.0)
    reference.last.bias[:] = 2.0
    assert_close(module(x), reference(x))
    given = device.of(numbers(4))
    module.last.bias, reference.last.bias = given, numbers(4)
    assert_close(module(x), reference(x))
    write(given, 3.0)
    reference.last.bias[:] = 3.0
    assert_close(module(x), reference(x))
    write(module.state_dict()["first.weight"], 0.5)
    reference.first.weight[:] = 0.5
    assert_close(module(x), reference(x))
    write(dict(module.named_parameters())["first.bias"], -0.5)
    reference.first.bias[:] = -0.5
    assert_close(module(x), reference(x))


def test_a_parameter_given_to_another_module_or_as_an_input(device: RecordingDevice) -> None:
    module, reference = twice(Mlp)
    module.to("cuda:0")
    module.last.weight = module.last.weight
    assert_close(module(module.first.weight), reference(reference.first.weight))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("whole", np.arange(80, dtype="f4"))
        self.register_buffer("part", self.whole[8:28].reshape(5, 4))
        self.register_buffer("turned", self.whole[::-1][:20])

    def forward(self, i):
        return self.head(self.table(i)) + self.part.sum() + self.whole[:5] + self.turned[:5]


def test_shared_memory_stays_shared(device: RecordingDevice) -> None:
    module, reference = twice(Tied)
    for each in (module, reference):
        each.whole = np.arange(80, dtype="f4")
        each.part, each.turned = each.whole[8:28].reshape(5, 4), each.whole[::-1][:20]
    module.to("cuda:0")
    i = np.array([0, 3], np.int64)
    assert_close(module(i), reference(i))
    write(module.head.weight, 0.25)
    reference.head.weight[:] = 0.25
    assert_close(module.table.weight, reference.table.weight)
    write(module.whole, -2.0)
    reference.whole[:] = -2.0
    assert_close(module(i), reference(i))
    assert len(list(module.parameters())) == len(list(reference.parameters())) == 1
    module.to("cpu")
    module.whole[:] = reference.whole[:] = 7.0
    assert module.head.weight is module.table.weight
    assert_close(module(i), reference(i))


class State(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", np.zeros((2, 3), "f4"))
        self.register_buffer("steps", np.zeros((), "i8"))
        self.cell = nn.Linear(3, 3)

    def forward(self, x):
        self.state = self.cell(self.state) + x
        self.steps = self.steps + 1
        return self.state


def test_what_a_program_stores_stays_on_the_device(device: RecordingDevice) -> None:
    module, reference = twice(State)
    module.define("def reset(self):\n    self.state = torch.zeros([2, 3])")
    reference.define("def reset(self):\n    self.state = torch.zeros([2, 3])")
    module.to("cuda:0")
    for seed in range(6):
        x = numbers(2, 3, seed=seed)
        given = device.of(x)
        device.forget()
        result = module(given)
        # A small integer is looked at by plans; nothing else is copied.
        assert seed < 3 or all(nbytes == 8 for _, nbytes in transfers(device))
        assert_close(result, reference(x))
        write(result, np.nan)
        assert_close(module.state, reference.state)
        assert module.steps == reference.steps == seed + 1
        if seed == 3:
            module.reset()
            reference.reset()
            assert_close(module.state, reference.state)
    module.state = numbers(2, 3, seed=9)
    reference.state = numbers(2, 3, seed=9)
    assert_close(module(given), reference(x))


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("cache", np.zeros((4, 3), "f4"))
        self.register_buffer("view", np.zeros((3,), "f4"))

    def forward(self, x, i: int):
        y = self.norm(x)
        self.cache[i] = y[0]
        self.view = self.cache[i]
        self.view.mul_(2.0)
        return y.sum(0) + self.cache.sum(0) + self.view


def test_what_a_program_writes_in_place(device: RecordingDevice) -> None:
    module, reference = twice(Counted)
    module.train()
    reference.train()
    module.to("cuda:0")
    held = module.cache
    for k in range(4):
        x = numbers(5, 3, seed=k)
        assert_close(module(x, k), reference(x, k))
        for name, value in reference.state_dict().items():
            assert_close(module.state_dict()[name], value)
        assert_close(held, reference.cache)
    module.to("cpu")
    assert_close(module(x, 1), reference(x, 1))
    assert_close(module.cache, reference.cache)
    assert_close(module.view, reference.view)


SOURCE = """
    def remember(self, x):
        y = torch.relu(x) * 2
        self.items.append(y)
        self.items.append(self.items[0][0] + y)
        self.last = self.items[-1]
        self.table["x"] = y
        return self.items[0], self.last, self.table["x"]

    def total(self):
        return torch.stack(self.items).sum(), self.last
"""


class Containers(nn.Module):
    items: list[np.ndarray]
    table: dict[str, np.ndarray]

    def __init__(self):
        super().__init__()
        self.items = [numbers(2, 3)]
        self.table = {"x": numbers(2)}
        self.last = numbers(2, 3)

    def forward(self, x):
        return x


def test_tensors_in_containers(device: RecordingDevice) -> None:
    module, reference = twice(Containers)
    for each in (module, reference):
        each.define(SOURCE)
    module.to("cuda:0")
    for k in range(3):
        x = numbers(2, 3, seed=k)
        assert_close(module.remember(x), reference.remember(x))
        assert_close(module.total(), reference.total())
        assert_close(module.items, reference.items)
        assert_close(module.table["x"], reference.table["x"])
    again = gpujit.load(module.save_to_buffer())
    assert_close(again.items, reference.items)
    assert_close(module.remember(x), reference.remember(x))
    module.to("cpu")
    assert_close(module.total(), reference.total())


def test_to_the_cpu_and_back(device: RecordingDevice) -> None:
    module, reference = twice(State)
    x = numbers(2, 3)
    for place in ("cuda:0", "cpu", "cuda:0", "cpu"):
        module.to(place)
        assert_close(module(x), reference(x))
        assert_close(module.state, reference.state)
        kind = np.ndarray if place == "cpu" else DeviceArray
        assert all(isinstance(v, kind) for v in (module.state, module.cell.weight, module(x)))
        reference(x)
    module.state[:] = reference.state[:] = 1.0
    assert_close(module(x), reference(x))


def test_to_another_dtype_on_the_device(device: RecordingDevice) -> None:
    module, reference = twice(Mlp)
    module.to("cuda:0")
    x = numbers(3, 6)
    module(x)
    module.double()
    reference.double()
    assert_close(module(x.astype("f8")), reference(x.astype("f8")))
    assert module.last.bias.dtype == np.float64


def test_states_are_loaded_into_memory_on_the_device(device: RecordingDevice) -> None:
    module, reference = twice(Mlp)
    module.to("cuda:0")
    x = numbers(3, 6)
    bias = module.last.bias
    module(x)
    state = {k: numbers(*v.shape, seed=k == "last.bias") * 2 for k, v in reference.state_dict().items()}
    given = {**state, "last.weight": device.of(np.asfortranarray(state["last.weight"]))}
    for assign in (False, True):
        for each, numbers_of in ((module, given), (reference, state)):
            assert not any(each.load_state_dict(numbers_of, assign=assign))
        assert_close(module(x), reference(x))
        # What was read before is the parameter, until another one takes its place.
        assert_close(bias, state["last.bias"])
    # Its own state, of another dtype, and with what fits nothing.
    module.load_state_dict(module.state_dict())
    assert_close(module(x), reference(x))
    module.load_state_dict({k: v.astype("f8") for k, v in state.items()})
    assert_close(module(x), reference(x))
    with pytest.raises(StateDictError, match=r"last.bias: the module has shape \[4\], the state \[3\]"):
        module.load_state_dict({**given, "last.bias": device.of(numbers(3))})


def test_frozen_and_saved_on_the_device(device: RecordingDevice) -> None:
    module, reference = twice(State)
    module.to("cuda:0")
    x = numbers(2, 3)
    assert_close(module(x), reference(x))
    again = gpujit.load(module.save_to_buffer())
    frozen = gpujit.optimize_for_inference(module)
    want = reference(x)
    for each in (again, frozen, module):
        assert_close(each(x), want)
    assert isinstance(frozen.state, DeviceArray)


def test_warming_up_leaves_attributes_as_they_were(device: RecordingDevice) -> None:
    module, reference = twice(State)
    counted, other = twice(Counted)
    module.to("cuda:0")
    counted.train().to("cuda:0")
    other.train()
    x = numbers(5, 3)
    assert_close(counted(x, 1), other(x, 1))
    for _ in range(2):
        module.warmup([((2, 3),)])
        counted.warmup([((5, 3), 2)])
        assert_close(module(x[:2]), reference(x[:2]))
        assert_close(counted(x, 2), other(x, 2))
        assert_close(counted.cache, other.cache)


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + 1


def test_a_module_that_was_moved_as_a_part_of_another_one(device: RecordingDevice) -> None:
    inner, reference = twice(Mlp)
    outer, x = scripted(Outer(inner)), numbers(3, 6)
    planned = gpujit.optimize_for_inference(gpujit.freeze(inner, preserved_attrs=["first"]))
    assert_close(planned(x), reference(x))
    outer.to("cuda:0")
    want = reference(x) + 1
    assert_close(outer(x), want)
    for call in (lambda: inner(x), lambda: inner.save_to_buffer(), lambda: gpujit.freeze(inner)):
        with pytest.raises(DeviceError, match="is on a GPU: the module was moved there as a part of another one"):
            call()
    assert_close(inner.last.bias, reference.last.bias)
    assert_close(planned(x), reference(x))
    inner.to("cuda:0")
    assert_close(inner(x), want - 1)
    assert_close(outer(x), want)
    outer.to("cpu")
    inner.to("cpu")
    assert_close(inner(x), want - 1)
    assert_close(outer(x), want)


def test_no_memory_for_parameters_and_after(device: RecordingDevice) -> None:
    module, reference = twice(Mlp)
    module.to("cuda:0")
    x = numbers(3, 6)
    device.most_bytes = 100
    with pytest.raises(DeviceError, match=r"no memory on cuda:0 for an attribute float32\[.*\]"):
        module(x)
    device.most_bytes = 1 << 30
    assert_close(module(x), reference(x))


def test_what_the_host_reads_of_parameters_is_copied_once(device: RecordingDevice) -> None:
    module = scripted(Mlp())
    source = "def found(self, x):\n    return torch.inverse(self.first.weight[:5, :5]) + x"
    module.define(source)
    reference = gpujit.load(module.save_to_buffer())
    reference.define(source)
    module.to("cuda:0")
    x = numbers(5, 5)
    for k in range(3):
        device.forget()
        result = module.found(x)
        assert any(what == "download" for what, _ in transfers(device)) == (k == 0)
        assert_close(result, reference.found(x))
    write(module.first.weight, np.eye(8, 6))
    reference.first.weight[:] = np.eye(8, 6)
    assert_close(module.found(x), reference.found(x))


def test_streams_wait_for_what_was_stored_on_others(device: RecordingDevice) -> None:
    module, reference = twice(State)
    module.to("cuda:0")
    x = numbers(2, 3)
    device.current = 5
    module(x)
    reference(x)
    device.current = 7
    device.forget()
    assert isinstance(module.state, DeviceArray)
    assert ("follow", 7, 5) in device.events
    device.forget()
    assert_close(module(x), reference(x))
    assert ("follow", 7, 5) in device.events


def test_threads_that_call_at_the_same_time(device: RecordingDevice) -> None:
    module, reference = twice(Mlp)
    module.to("cuda:0")
    x = numbers(3, 6)
    want, found = reference(x), []
    threads = [threading.Thread(target=lambda: found.append(module(x))) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 6
    for each in found:
        assert_close(each, want)
