"""Plans for a GPU on a device that records: what they ask of it, in which order, on which stream; what they raise."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.modules import ScriptModule
from gpujit.support.errors import ArgumentError, DeviceError, GpujitError, OpError
from tests.runtime.recording_device import CAPTURING, DEFAULT_STREAM, DeviceArray, RecordingDevice, transfers
from tests.static_runtime.device_models import Embedded, Mlp, OneLayer, numbers, scripted


def placed(module: ScriptModule, device: RecordingDevice, **options: Any) -> ScriptModule:
    """A frozen copy of a module on a device, optimised."""
    found = gpujit.freeze(module)
    found._program.place(device)
    return gpujit.optimize_for_inference(found, **options)


@pytest.fixture
def device() -> RecordingDevice:
    return RecordingDevice()


def got(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [got(v) for v in value]
    return value.get() if isinstance(value, DeviceArray) else value


def assert_close(value: Any, want: Any) -> None:
    if isinstance(want, (list, tuple)):
        assert len(value) == len(want)
        for a, b in zip(value, want, strict=True):
            assert_close(a, b)
        return
    assert isinstance(value, DeviceArray), f"a result on the host: {type(value)}"
    assert (value.shape, value.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(value.get().astype("f8"), want.astype("f8"), 1e-5, 1e-5)


# The first product ends with the relu.
CALLS = ["gemm", "gemm", "launch"]


def test_the_first_run_is_a_list_of_calls_the_second_a_capture_later_ones_replays(device: RecordingDevice) -> None:
    module, x = scripted(Mlp()), numbers(3, 6)
    found, want = placed(module, device), module(x)
    assert_close(found(x), want)
    kinds = device.kinds()
    start = kinds.index("gemm")
    assert kinds[start:] == [*CALLS, "allocate", "copy"]
    # Memory, weights and the input were there before; the input came last.
    assert kinds[start - 1] == "upload" and device.events[start - 1][2] == x.nbytes
    assert "compile" in kinds[:start] and kinds[:start].count("allocate") == 2 + 4
    first = [e[2:] for e in device.events if e[0] in CALLS]

    device.forget()
    assert_close(found(x), want)
    # The input's numbers are there already.
    assert device.kinds() == ["begin", *CALLS, "end", "replay", "allocate", "copy"]
    assert [e[1] for e in device.events[:5]] == [CAPTURING] * 5
    # What was captured are the very calls, with the very addresses.
    assert [e[2:] for e in device.events if e[0] in CALLS] == first

    for seed in (1, 2):
        device.forget()
        assert_close(found(numbers(3, 6, seed=seed)), module(numbers(3, 6, seed=seed)))
        assert device.kinds() == ["upload", "replay", "allocate", "copy"]
    stats = found.plan_stats()
    assert (stats.captures, stats.replays, stats.fallbacks) == (1, 3, 0)


def test_all_work_goes_to_the_caller_s_stream(device: RecordingDevice) -> None:
    found, x = placed(scripted(Mlp()), device), numbers(3, 6)
    for _ in range(2):
        found(x)
    for stream in (7, 7, 9, DEFAULT_STREAM):
        before = device.current
        device.forget()
        device.current = stream
        found(x)
        assert {e[1] for e in device.events} == {stream, None}
        # Memory that the other stream may still be reading is not written before that is done.
        follows = [("follow", stream, before)] if stream != before else []
        assert [e for e in device.events if e[0] == "follow"] == follows == device.events[: len(follows)]


def test_no_graph_where_the_device_cannot_capture(device: RecordingDevice) -> None:
    device.capture_refusal = "its products cannot be captured"
    module, x = scripted(Mlp()), numbers(3, 6)
    found = placed(module, device)
    for _ in range(3):
        assert_close(found(x), module(x))
    assert "begin" not in device.kinds() and device.kinds().count("gemm") == 6
    assert found.plan_stats().fallbacks == 3
    assert "no graph: its products cannot be captured (3 times)" in found.explain()


def test_a_capture_that_fails_is_not_tried_again(device: RecordingDevice) -> None:
    device.capture_fault = "an operation is not permitted when stream is capturing"
    module, x = scripted(Mlp()), numbers(3, 6)
    found = placed(module, device)
    for _ in range(4):
        assert_close(found(x), module(x))
    assert device.kinds().count("begin") == 1
    assert "no graph: capturing failed: an operation is not permitted" in found.explain()


def test_results_and_inputs_on_the_device(device: RecordingDevice) -> None:
    module = scripted(Mlp())
    found, x = placed(module, device), numbers(12, 6)
    for host in (x, x[::3], np.asfortranarray(x), x[::-1], x[:0], np.broadcast_to(x[:1], (5, 6))):
        given = device.of(host)
        device.forget()
        assert_close(found(given), module(host))
        # Nothing goes over the bus.
        assert not {"upload", "download"} & set(device.kinds()) or "compile" in device.kinds()
        assert np.array_equal(given.get(), host)


def test_weights_go_to_the_device_once(device: RecordingDevice) -> None:
    module = scripted(Mlp())
    found = placed(module, device)
    found(numbers(3, 6))
    device.forget()
    found(numbers(5, 6))
    assert [e[2] for e in device.events if e[0] == "upload"] == [5 * 6 * 4]


class Relus(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Conv2d(1, 2, 1)

    def forward(self, x):
        y = self.a(x).relu()
        z = self.b(y)
        return self.c(z.relu().view(1, 1, 2, 4)).relu(), z


def test_products_end_with_a_relu_that_alone_reads_them(device: RecordingDevice) -> None:
    module, x = scripted(Relus()), numbers(2, 4)
    found = placed(module, device)
    for _ in range(3):
        assert_close(found(x), module(x))
    text = found.explain()
    assert "aten::linear+relu" in text
    # The second product is a result as well.
    assert text.count("+relu") == 1 + ("conv2d+relu" in text)


class Highest(OneLayer):
    def forward(self, x):
        y = self.linear(x)
        z = y.cummax(-1)[0]
        return (z + y).relu()


def test_operators_of_the_host_stand_between_runs(device: RecordingDevice) -> None:
    module = scripted(Highest())
    found = placed(module, device)
    for seed in range(3):
        x = numbers(2, 4, seed=seed)
        device.forget()
        assert_close(found(device.of(x)), module(x))
    kinds = device.kinds()
    assert kinds == ["copy", "gemm", "download", "upload", "launch", "allocate", "copy"]
    assert [e[2] for e in device.events if e[0] in ("download", "upload")] == [32, 32]


class Looped(OneLayer):
    def forward(self, x):
        y = self.linear(x)
        n = 0
        while bool(y.abs().sum() < 100.0):
            y = y * 2.0 + 0.5
            if bool(y.max() > 5.0):
                y = y - 0.25
            n += 1
        return y, n


def test_branches_and_loops(device: RecordingDevice) -> None:
    module = scripted(Looped())
    found = placed(module, device)
    for seed in range(3):
        x = numbers(2, 4, seed=seed)
        y, n = found(x)
        want, rounds = module(x)
        assert_close(y, want)
        assert n == rounds > 1
    assert found.plan_stats().interpreted == 0


class Written(OneLayer):
    def forward(self, x):
        y = self.linear(x)
        for row in y.unbind(0):
            if bool(row.sum() > 0):
                row.add_(1.0)
        parts = [y, y * 2.0]
        if bool(x.sum() > 100.0):
            parts.append(x)
        return y.relu(), parts[-1]


def test_memory_that_operators_write_into(device: RecordingDevice) -> None:
    module = scripted(Written())
    found = placed(module, device)
    for seed in range(3):
        x = numbers(3, 4, seed=seed)
        assert_close(found(device.of(x)), module(x))
    assert found.plan_stats().interpreted == 0


class WritesInput(nn.Module):
    def forward(self, x):
        x[0] = 5.0
        return x + 1.0


def test_inputs_on_the_device_are_written_into(device: RecordingDevice) -> None:
    module, x = scripted(WritesInput()), numbers(2, 3)
    found, given, want = placed(module, device), device.of(x), x.copy()
    assert_close(found(given), module(want))
    assert np.array_equal(given.get(), want)
    assert "it writes into its input 'x'" in found.explain()
    with pytest.raises(DeviceError, match="writes into its input"):
        placed(module, device, strict=True)(given)


def test_tensors_of_a_list_are_written_into(device: RecordingDevice) -> None:
    module = scripted(nn.Identity())
    module.define("""
    def run(self, xs: List[Tensor], d: Dict[str, Tensor]):
        y = xs[0] * 2
        y.add_(1)
        xs[1].add_(y)
        return xs[1] + d["a"]
    """)
    arrays = [numbers(3), numbers(3, seed=1)]
    given, d = [device.of(x) for x in arrays], {"a": numbers(3)}
    want = module.run(arrays, d)
    module._program.place(device)
    assert_close(module.run(given, d), want)
    assert np.array_equal(given[1].get(), arrays[1])
    assert "it writes into its input 'xs'" in module.methods["run"].explain()


def test_checks_of_kernels_are_read_after_the_run(device: RecordingDevice) -> None:
    module, good, bad = scripted(Embedded()), np.array([[0, 4, 2]]), np.array([[0, 5, 2]])
    found, on_cpu = placed(module, device), gpujit.optimize_for_inference(gpujit.freeze(module))
    for _ in range(2):
        assert_close(found(good), module(good))
        with pytest.raises(OpError) as want:
            on_cpu(bad)
        with pytest.raises(OpError) as fault:
            found(bad)
        assert (fault.value.message, fault.value.where) == (want.value.message, want.value.where)
    device.forget()
    assert_close(found(good), module(good))
    kinds = device.kinds()
    assert kinds.index("download") > max(kinds.index("copy"), kinds.index("upload"))


def test_out_of_memory_and_after(device: RecordingDevice) -> None:
    module, x = scripted(Mlp()), numbers(3, 6)
    found = placed(module, device)
    device.most_bytes = 16
    with pytest.raises(DeviceError) as fault:
        found(x)
    assert fault.value.code == "device-memory"
    assert "there is no memory on cuda:0 for" in fault.value.message
    assert "bytes are needed; 16 of 32 bytes are free" in fault.value.message
    device.most_bytes = 1 << 20
    assert_close(found(x), module(x))
    # Of a result.
    device.most_bytes = 47
    with pytest.raises(GpujitError, match=r"a tensor float32\[3, 4\]: 48 bytes are needed"):
        found(x)
    device.most_bytes = 1 << 20
    assert_close(found(x), module(x))
    assert found.plan_stats().interpreted == 0


def test_memory_kept_for_other_inputs_is_given_back_when_there_is_no_more(device: RecordingDevice) -> None:
    module = scripted(Mlp())
    found = placed(module, device)
    found(numbers(3, 6))
    device.capacity = device.used() + 500
    for rows in (4, 3, 4, 5):
        x = numbers(rows, 6)
        assert_close(found(x), module(x))
        assert len(device._starts) < 10
    assert found.plan_stats().interpreted == 0
    assert found.plan_stats().made == 3


def test_arrays_on_another_device(device: RecordingDevice) -> None:
    other = RecordingDevice("cuda:1")
    found = placed(scripted(Mlp()), device)
    with pytest.raises(DeviceError, match="an array on cuda:1, while the module is on cuda:0; copy it there first"):
        found(other.of(numbers(3, 6)))


def test_a_stream_that_was_destroyed(device: RecordingDevice) -> None:
    module, x = scripted(Mlp()), numbers(3, 6)
    found = placed(module, device)
    found(x)
    device.current = 5
    device.destroyed = {5}
    with pytest.raises(DeviceError, match="the current stream was destroyed"):
        found(x)
    device.current = DEFAULT_STREAM
    assert_close(found(x), module(x))


def test_after_a_fork(device: RecordingDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    found, x = placed(scripted(Mlp()), device), numbers(3, 6)
    found(x)
    device.forget()
    parent = device.pid
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(DeviceError, match=f"was opened by process {parent}.*'spawn'"):
        found(x)
    assert not device.events


def test_kernels_that_cannot_be_compiled_leave_their_operators_to_the_host(device: RecordingDevice) -> None:
    module, x = scripted(Mlp()), numbers(3, 6)
    device.refused = {"softmax"}
    found = placed(module, device)
    for _ in range(2):
        assert_close(found(x), module(x))
    assert "host            softmax" in found.explain() and "its kernel cannot be compiled" in found.explain()
    assert device.kinds().count("compile") == 2


def test_a_device_without_a_compiler(device: RecordingDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    found, x = placed(scripted(Mlp()), device), numbers(3, 6)

    def compile(kernels: Any) -> Any:
        raise DeviceError("NVIDIA's toolkit, which compiles kernels for a GPU, is not found")

    monkeypatch.setattr(device, "compile", compile)
    for _ in range(2):
        # It is not left to the host in silence.
        with pytest.raises(DeviceError, match="toolkit"):
            found(x)


def test_results_in_given_arrays(device: RecordingDevice) -> None:
    module, x = scripted(Mlp()), numbers(3, 6)
    found, out = placed(module, device), device.of(np.zeros((3, 8), "f4")[:, ::2])
    assert found(x, out=out) is out
    assert_close(out, module(x))
    host = np.zeros((3, 4), np.float32)
    assert found(x, out=host) is host
    np.testing.assert_allclose(host, module(x), 1e-5)
    with pytest.raises(ArgumentError, match=r"the output is float32\[3, 4\]"):
        found(x, out=device.of(np.zeros((3, 4))))
    with pytest.raises(ArgumentError, match="out has 2 arrays for 1 outputs"):
        found(x, out=(out, None))


class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", np.zeros((2, 3), "f4"))

    def forward(self, x):
        self.state = self.state * 0.5 + x
        return self.state, self.state[0], x


def test_what_a_program_writes_into_an_attribute_stays_on_the_device(device: RecordingDevice) -> None:
    module = scripted(Kept())
    reference, found = gpujit.freeze(module), placed(module, device)
    for seed in range(4):
        x = numbers(2, 3, seed=seed)
        given, want = device.of(x), reference(x)
        device.forget()
        result = found(given)
        assert not seed or not transfers(device)
        assert_close(result, want)
    assert_close(found.state, reference.state)


def test_a_module_that_is_not_frozen(device: RecordingDevice) -> None:
    module, x = scripted(Mlp()), numbers(3, 6)
    want = module(x)
    module._program.place(device)
    assert_close(module(x), want)
    module._program.place(None)
    module.last.bias[...] += numbers(4)
    want = module(x)
    module._program.place(device)
    assert_close(module(x), want)


def test_lists_tuples_and_dicts(device: RecordingDevice) -> None:
    source = """
    def run(self, xs: List[Tensor], d: Dict[str, Tensor], t: Tuple[Tensor, int]):
        out: List[Tensor] = []
        for x in xs:
            out.append(x * 2)
        return out, torch.stack(xs), d["a"] + t[0], t[1]
    """
    module = scripted(nn.Identity())
    module.define(source)
    xs, a, b = [numbers(3), numbers(3, seed=1)], numbers(2), numbers(2, seed=3)
    want = module.run(xs, {"a": a}, (b, 4))
    module._program.place(device)
    found = module.run([device.of(x) for x in xs], {"a": device.of(a)}, (device.of(b), 4))
    assert_close(found[:3], want[:3])
    assert found[3] == 4
    assert module.plan_stats().interpreted == 0


def test_hooks_see_results_on_the_device(device: RecordingDevice) -> None:
    module, x = scripted(Mlp()), numbers(3, 6)
    module.define("def twice(self, x):\n    return self.forward(x) * 2")
    want = module.twice(x)
    found = gpujit.freeze(module, preserved_attrs=["twice"])
    found._program.place(device)
    assert_close(found.twice(device.of(x)), want)
    assert_close(found.forward(device.of(x)), module(x))


def test_memory_is_counted_and_given_back(device: RecordingDevice) -> None:
    found = placed(scripted(Mlp()), device)
    found(numbers(3, 6))
    before = len(device._starts)
    assert found.plan_stats().memory > 512
    result = found(numbers(3, 6))
    assert len(device._starts) == before + 1
    del result
    assert len(device._starts) == before
    del found
    gc.collect()
    assert len(device._starts) == 0


class Carried(OneLayer):
    def forward(self, x):
        h = self.linear(x)
        total = h * 0.0
        while bool(h.abs().sum() > 0.5):
            h = (h * 0.5).tanh()
            total = total + h
        return h, total, total.view(-1)


def test_tensors_that_go_round_a_loop(device: RecordingDevice) -> None:
    module = scripted(Carried())
    found = placed(module, device)
    for seed in range(3):
        x = numbers(2, 4, seed=seed)
        assert_close(found(x), module(x))
    assert found.plan_stats().interpreted == 0
    assert found.plan_stats().replays


def test_a_static_module_is_the_cpu_s(device: RecordingDevice) -> None:
    module = scripted(Mlp())
    module._program.place(device)
    with pytest.raises(ArgumentError, match=r"the module is on cuda:0; use gpujit\.optimize_for_inference"):
        gpujit.StaticModule(module)
