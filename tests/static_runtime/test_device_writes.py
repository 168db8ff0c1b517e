"""Attributes that programs write in place, on a device that records: as on the CPU, call after call."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpujit
import gpujit.modules
from gpujit import nn
from gpujit.modules import ScriptModule
from gpujit.static_runtime.device_writes import Apart
from tests.runtime.recording_device import DeviceArray, RecordingDevice, transfers
from tests.static_runtime.device_models import numbers, scripted


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> RecordingDevice:
    """What ``cuda:0`` names."""
    found = RecordingDevice()
    monkeypatch.setattr(gpujit.modules, "open_device", lambda place: found)
    return found


class Held(nn.Module):
    """Buffers of several kinds, and whatever ``forward`` a test gives it."""

    def __init__(self):
        super().__init__()
        for name, x in buffers().items():
            self.register_buffer(name, x)

    def forward(self, x):
        return x


def buffers() -> dict[str, np.ndarray]:
    return {
        "a": numbers(4, 3, seed=1),
        "b": numbers(4, 3, seed=2),
        "c": np.zeros((), "f4"),
        "n": np.arange(3),
        "wide": np.arange(40).reshape(8, 5),
        "h": numbers(2, 3).astype("f2"),
        "none": np.zeros((0, 3), "f4"),
    }


def module_of(body: str, name: str = "run") -> ScriptModule:
    """A module on the CPU with such a method."""
    found = scripted(Held())
    lines = indent(dedent(body).strip(), "    ")
    found.define(f"def {name}(self, x, i):\n{lines}\n")
    return found


def assert_close(value: Any, want: Any) -> None:
    if isinstance(want, (list, tuple)):
        for a, b in zip(value, want, strict=True):
            assert_close(a, b)
        return
    value = value.get() if isinstance(value, DeviceArray) else value
    if isinstance(want, np.ndarray):
        assert (value.shape, value.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(value, want, 1e-5, 1e-5)


def assert_same_state(module: Any, reference: Any) -> None:
    for name, value in reference.state_dict().items():
        assert_close(module.state_dict()[name], value)


def compare(module: ScriptModule, calls: list[tuple[Any, ...]], method: str = "run") -> ScriptModule:
    """Call a module on the device and a copy of it on the CPU: results and state are the same after each call."""
    reference = gpujit.load(module.save_to_buffer())
    module.to("cuda:0")
    for k, arguments in enumerate(calls):
        copies = [x.copy() for x in arguments]
        assert_close(getattr(module, method)(*arguments), getattr(reference, method)(*copies))
        if k != 1:
            assert_same_state(module, reference)
    assert_same_state(gpujit.load(module.save_to_buffer()), reference)
    return module


X, AT = numbers(4, 3, seed=3), np.array([2, 0])
CALLS = [(numbers(4, 3, seed=k), (AT + k) % 4) for k in range(4)]

PROGRAMS = {
    "numbers": """
        self.a.add_(x)
        self.a.mul_(0.5)
        self.c.add_(x.sum())
        return self.a + self.c
    """,
    "rows": """
        self.a[i[0]] = x[0]
        self.b[1:3] = x[:2] * 2
        return self.a.sum(0) + self.b
    """,
    "columns": """
        self.a[:, 1] = x[:, 0]
        self.b[:, 0:2].add_(self.a[:, 1:])
        return self.b
    """,
    "indexes": """
        self.a.index_copy_(0, i, x[:2])
        self.b[i] = x[:2]
        self.b.index_add_(0, i, x[1:3])
        return self.a + self.b
    """,
    "inner indexes": """
        self.wide[:, i] = torch.ones(8, 2, dtype=torch.int64)
        return self.wide.sum() + x
    """,
    "scatter": """
        self.a.scatter_(0, i.view(2, 1).expand(2, 3), x)
        self.a.masked_fill_(x > 1, 7.0)
        return self.a
    """,
    "converted": """
        self.h.copy_(x[:2])
        self.wide.copy_(x[0, 0])
        self.a.copy_(i[0])
        return self.h, self.wide
    """,
    "filled": """
        self.a.zero_()
        self.b.fill_(2.5)
        self.none.add_(1.0)
        self.h[1].zero_()
        return self.a + self.b
    """,
    "itself": """
        self.a.copy_(self.a)
        self.a[1:].copy_(self.a[:3])
        self.b.add_(self.b)
        self.a.t()[:3].mul_(x[:3].t()[:, :3].t()[0, 0])
        return self.a
    """,
    "small": """
        self.n.add_(1)
        self.n[0] = 5
        self.a[self.n[1] % 4] = x[0]
        return self.a + self.n
    """,
    "read before and after": """
        y = self.a * 2
        z = self.a[1]
        self.a.add_(x)
        return y, z, self.a[1] + z
    """,
    "on the host": """
        y = torch.inverse(self.a[:3] + 5 * x[:3])
        self.a[:3] = y
        z = torch.inverse(self.a[:3])
        self.a.add_(1.0)
        return z, torch.inverse(self.a[:3])
    """,
    "branch": """
        if bool(x[0, 0] > 0):
            self.a.add_(x)
        else:
            self.b[i] = x[:2]
        return self.a + self.b
    """,
    "loop": """
        k = 0
        while bool(self.a[0, 0] < 3.0) and k < 3:
            self.a.add_(x.abs())
            self.b[1] = self.a[0]
            k += 1
        return self.a, self.b
    """,
    "lists": """
        y = torch.cat([self.a, x])
        self.a.add_(1.0)
        z = torch.stack([self.a, self.b])
        self.b.sub_(x)
        return y, z
    """,
    "stored": """
        self.b = self.a[1:2].expand(4, 3) + x
        self.a.add_(1.0)
        return self.a + x
    """,
    "two at a time": """
        self.a.addcmul_(x, x, value=0.5)
        self.b.lerp_(x, 0.25)
        self.a.clamp_(-1.0, 1.0)
        self.b.relu_()
        return self.a * self.b
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_attributes_are_written_where_they_lie(name: str, device: RecordingDevice) -> None:
    module = compare(module_of(PROGRAMS[name]), CALLS)
    assert module.plan_stats().interpreted == 0, module.run.explain()
    assert "ran on the host" not in module.run.explain()


def test_nothing_but_inputs_is_copied_and_graphs_are_replayed(device: RecordingDevice) -> None:
    body = "self.a.index_copy_(0, i, x[:2])\nself.b[i] = x[:2]\nself.c.add_(1.0)\n"
    module = module_of(body + "return torch.softmax(self.a @ self.b.t(), -1)")
    compare(module, CALLS)
    device.forget()
    module.run(*CALLS[0])
    # What is written out of range is told to the host.
    assert transfers(device) == [("upload", X.nbytes), ("upload", AT.nbytes), ("download", 8)]
    assert device.kinds().count("replay") == 1 and "launch" not in device.kinds()
    # The result's copy alone: no cache is copied.
    assert [e[2] for e in device.events if e[0] == "copy"] == [4 * 4 * 4]


def test_a_cache_is_written_and_not_copied(device: RecordingDevice) -> None:
    body = "self.a.index_copy_(0, i, x[:2])\nself.b[0] = x[0]\n"
    module = module_of(body + "self.a[1:3].index_fill_(0, i[1:], 3.0)\nreturn x")
    module.to("cuda:0")
    module.run(X, np.array([1, 0]))
    text = module.run.explain()
    assert text.count("into an attribute") == 2 and "2 launches" not in text


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.plain = nn.BatchNorm1d(3), nn.BatchNorm2d(3), nn.BatchNorm1d(3, affine=False)

    def forward(self, x):
        return self.two(x).sum([2, 3]) + self.one(x[:, :, 0]).sum(2) + self.plain(x[:, :, 0, 0])


def test_batch_norms_in_training(device: RecordingDevice) -> None:
    found = Norms()
    found.train()
    module = scripted(found)
    module.train()
    compare(module, [(numbers(4, 3, 2, 5, seed=k),) for k in range(3)], "forward")
    assert module.plan_stats().interpreted == 0
    assert "host            aten::batch_norm" not in module.explain()


def test_memory_that_others_have(device: RecordingDevice) -> None:
    body = "self.a.add_(x)\nreturn self.a + self.b + x"
    for change in ("tied", "strided", "none"):
        module = module_of(body)
        reference = gpujit.load(module.save_to_buffer())
        for each in (module, reference):
            whole = numbers(12, 3, seed=4)
            if change == "tied":
                each.a, each.b = whole[:4], whole[2:6]
            elif change == "strided":
                each.a = whole[::3]
        module.to("cuda:0")
        for x, i in CALLS:
            assert_close(module.run(x, i), reference.run(x, i))
            assert_same_state(module, reference)
        assert module.plan_stats().interpreted == (0 if change == "none" else len(CALLS))
        assert ("4 calls ran on the host" in module.run.explain()) == (change != "none")


def test_an_attribute_given_as_an_input(device: RecordingDevice) -> None:
    module = module_of("self.a.add_(1.0)\nself.n.add_(1)\nreturn self.a + x, self.n + i")
    reference = gpujit.load(module.save_to_buffer())
    module.to("cuda:0")
    for name in ("a", "b", "n"):
        arguments = [
            (getattr(m, name) if name != "n" else X, m.n if name == "n" else AT[:1]) for m in (module, reference)
        ]
        assert_close(module.run(*arguments[0]), reference.run(*arguments[1]))
        assert_same_state(module, reference)
    assert module.plan_stats().interpreted == 2


def test_streams_wait_for_what_was_written_on_others(device: RecordingDevice) -> None:
    module = module_of("self.a.add_(x)\nreturn x")
    module.to("cuda:0")
    device.current = 5
    module.run(X, AT)
    device.current = 7
    device.forget()
    assert isinstance(module.a, DeviceArray)
    assert ("follow", 7, 5) in device.events


def test_an_index_out_of_range(device: RecordingDevice) -> None:
    module = module_of("self.a.index_copy_(0, i, x[:2])\nreturn self.a")
    module.to("cuda:0")
    module.run(X, AT)
    with pytest.raises(gpujit.GpujitError, match="out of range"):
        module.run(X, np.array([0, 4]))
    module.a, module.b = numbers(4, 3), numbers(4, 3)
    want = numbers(4, 3)
    want[AT] = X[:2]
    assert_close(module.run(X, AT), want)


# Programs that are left to the host, and what explain says of them.
REFUSED = {
    "it writes into its input 'x'": """
        x.add_(1.0)
        self.a.add_(x)
        return x
    """,
    "replaces": """
        self.a.add_(x)
        self.a = x * 2
        return self.a
    """,
    "may be a view of an attribute": """
        self.a.add_(x)
        y = self.b + 1
        for k in range(int(i[0])):
            self.b = self.a[:]
            y = y + self.b
        return y
    """,
    "another name": """
        y = self.a if bool(x[0, 0] > 0) else self.b
        self.a.add_(x)
        return y + 1
    """,
    "through a view that is only known": """
        k = 0
        while bool(self.a[0, 0] < 3.0) and k < 3:
            self.a[k] = x[0] + 3
            k += 1
        return x
    """,
    "not of a known shape": """
        self.wide.view(-1)[int(i[0]):].fill_(3)
        return x
    """,
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_left_to_the_host(reason: str, device: RecordingDevice) -> None:
    calls = [(numbers(4, 3, seed=k), (AT + k) % 4) for k in range(3)]
    module = compare(module_of(REFUSED[reason]), calls)
    assert module.plan_stats().interpreted == 3
    assert reason in module.run.explain()


# Any program ----------------------------------------------------------------------------------------------------------

VIEWS = [
    "self.a", "self.b", "self.a[1]", "self.a[1:3]", "self.a[:, 2]", "self.b.t()", "self.b[::2]", "self.a[i[0]]",
    "self.c",
]  # fmt: skip
WRITES = [
    "{v}.add_({e})", "{v}.mul_(0.5)", "{v}.copy_({e})", "{v}.zero_()", "{v}.clamp_(-1.0, 1.0)", "y = y + {v}.sum()",
    "y = y * 0.5 + {e}", "self.a[i] = x[:2]", "self.b.index_add_(0, i, x[:2])",
]  # fmt: skip
VALUES = ["x[0, 0]", "y.sum()", "self.a[0, 0]", "self.b.mean()", "self.c", "1.0"]
STATEMENTS = st.tuples(st.sampled_from(WRITES), st.sampled_from(VIEWS), st.sampled_from(VALUES))


@given(st.lists(STATEMENTS, min_size=2, max_size=6))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
def test_any_program(device: RecordingDevice, statements: list[tuple[str, str, str]]) -> None:
    lines = [w.format(v=v, e=e if "copy_" not in w or e != "1.0" else "x[0, 1]") for w, v, e in statements]
    module = module_of("\n".join(["y = x * 1.5", *lines, "return y, self.a + 0, self.b"]))
    compare(module, CALLS[:3])


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4), st.booleans()), max_size=6))
def test_memory_is_apart(spans: list[tuple[int, int, bool]]) -> None:
    memory = np.zeros(20, "f4")
    tensors = [memory[first : first + size] for first, size, _ in spans]
    written = tuple((k, ()) for k, (_, _, is_written) in enumerate(spans) if is_written)
    wanted = all(not np.shares_memory(tensors[k], x) for k, _ in written for j, x in enumerate(tensors) if j != k)
    # All of them are inputs; those that are written are, too, so each is met twice unless it is left out there.
    values: list[Any] = [_Object(x) if (k, ()) in written else x for k, x in enumerate(tensors)]
    assert Apart(tuple((k, (0,)) for k, _ in written), ()).holds(values) == wanted


class _Object:
    """Has an attribute."""

    def __init__(self, x: np.ndarray) -> None:
        self.slots = [x]
