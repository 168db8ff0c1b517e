"""What a library does on a GPU: what it is asked for, and why not; in which order, where and on what it is called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32
from gpujit.kernels.launches import Attention, Convolution, DeviceStep, LibraryCall
from gpujit.modules import ScriptModule
from gpujit.static_runtime.device_libraries import Asked
from gpujit.support.config import config
from gpujit.support.errors import DeviceError
from tests.gpu.test_libraries import CASES, function
from tests.runtime.recording_device import CAPTURING, DEFAULT_STREAM, DeviceArray, RecordingDevice
from tests.static_runtime.device_help import TOLERANCE, calls, check, turned
from tests.static_runtime.device_models import numbers, scripted
from tests.static_runtime.help import f32

ATTENTION = "aten::scaled_dot_product_attention"


@pytest.fixture
def device() -> RecordingDevice:
    found = RecordingDevice()
    found.library_room = 1000
    return found


def placed(module: ScriptModule, device: RecordingDevice) -> ScriptModule:
    found = gpujit.freeze(module)
    found._program.place(device)
    return gpujit.optimize_for_inference(found)


def assert_close(got: Any, want: np.ndarray) -> None:
    assert isinstance(got, DeviceArray) and got.dtype == want.dtype
    tolerance = TOLERANCE[want.dtype.name]
    np.testing.assert_allclose(got.get().astype("f8"), want.astype("f8"), tolerance, 4 * tolerance)


class Filters(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 5, 3, stride=2, dilation=2, bias=False)

    def forward(self, x):
        return self.b(self.a(x).relu())


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 16)

    def forward(self, x):
        y = self.linear(x).unflatten(2, [2, 8]).transpose(1, 2)
        return gpujit.ops.scaled_dot_product_attention(y, y, y, is_causal=True)


def asked(room: int | str = 64) -> tuple[Asked, list[Convolution | Attention]]:
    seen: list[Convolution | Attention] = []

    def answer(work: Convolution | Attention) -> int | str:
        seen.append(work)
        return room

    return Asked(answer), seen


def library_calls(step: DeviceStep) -> list[LibraryCall]:
    return [c for c in step.calls if isinstance(c, LibraryCall)]


# --------------------------------------------------------------------------------------------------------- when it runs


def test_order_arguments_and_streams(device: RecordingDevice) -> None:
    module, x = scripted(Filters()), numbers(2, 3, 9, 9)
    found, want = placed(module, device), module(x)
    assert_close(found(x), want)
    kinds = [k for k in device.kinds() if k in ("library", "launch", "gemm")]
    # A relu is a kernel of its own behind the library's work.
    assert kinds == ["library", "launch", "library"]
    first = [e for e in device.events if e[0] == "library"]
    assert [e[1] for e in first] == [DEFAULT_STREAM] * 2
    assert [e[2].has_bias for e in first] == [True, False]
    # Plans were asked for before anything was put on a stream, each once.
    assert [e[2] for e in device.events if e[0] == "room"] == [e[2] for e in first]
    assert max(i for i, e in enumerate(device.events) if e[0] == "room") < device.kinds().index("library")

    device.forget()
    assert_close(found(x), want)
    # Nothing is allocated between these two, and no plan asked for.
    start, end = device.kinds().index("begin"), device.kinds().index("end")
    assert device.kinds()[start:] == ["begin", *kinds, "end", "replay", "allocate", "copy"]
    assert {e[1] for e in device.events[start : end + 1]} == {CAPTURING}
    assert [e[2:] for e in device.events if e[0] == "library"] == [e[2:] for e in first]

    device.forget()
    device.current = 7
    assert_close(found(x * 2), module(x * 2))
    assert "library" not in device.kinds() and device.kinds().count("replay") == 1


def test_call_by_call_the_caller_s_stream_is_used(device: RecordingDevice) -> None:
    module, x = scripted(Filters()), numbers(1, 3, 9, 9)
    with config(disable=("graphs",)):
        found = placed(module, device)
        for stream in (7, 9):
            device.current = stream
            device.forget()
            assert_close(found(x), module(x))
            assert [e[1] for e in device.events if e[0] == "library"] == [stream] * 2


@pytest.mark.parametrize("room", [0, 1, 1000, 1 << 20])
def test_what_it_works_in_is_planned(device: RecordingDevice, room: int) -> None:
    """The device writes over all of it, and looks that it lies in the runtime's memory."""
    device.library_room = room
    module, x = scripted(Filters()), numbers(2, 3, 9, 9)
    found = placed(module, device)
    for _ in range(3):
        assert_close(found(x), module(x))
    wants = [e[2] for e in device.events if e[0] == "allocate"]
    assert max(wants) >= room


def test_weights_are_not_copied(device: RecordingDevice) -> None:
    """A convolution reads attributes where they lie, and constants go to the device once."""
    module, x = scripted(Filters()), numbers(2, 3, 9, 9)
    loose = gpujit.load(module.save_to_buffer())
    loose._program.place(device)
    want = module(x)
    for _ in range(3):
        assert_close(loose(x), want)
    sizes = sorted(e[2] for e in device.events if e[0] == "upload" and e[2] != x.nbytes)
    held = sorted(p.nbytes for p in module.parameters())
    assert sizes == held
    assert not any(e[2] in held for e in device.events if e[0] == "copy")
    # A new number in a weight is seen.
    weight = loose.b.weight
    device.view(weight.tensor)[...] *= 2
    assert_close(loose(x), want * 2)


def test_a_library_that_fails_says_where(device: RecordingDevice) -> None:
    module, x = scripted(Filters()), numbers(2, 3, 9, 9)
    found = placed(module, device)
    device.library_fault = "cuDNN failed: CUDNN_STATUS_EXECUTION_FAILED"
    with pytest.raises(DeviceError, match=r"aten::conv2d at .*conv\.py.*: cuDNN failed: CUDNN_STATUS_EXECUTION_FAILED"):
        found(x)
    device.library_fault = ""
    assert_close(found(x), module(x))


def test_attention_of_half_types(device: RecordingDevice) -> None:
    module = scripted(Heads()).half()
    x = numbers(2, 5, 3).astype(np.float16)
    found = placed(module, device)
    for _ in range(3):
        assert_close(found(x), module(x))
    (work,) = [e[2] for e in device.events if e[0] == "room"]
    assert isinstance(work, Attention) and work.is_causal
    # Turned tensors are read as they lie.
    assert (work.q.shape, work.q.steps) == ((2, 2, 5, 8), (80, 8, 16, 1))
    assert work.q == work.k == work.v
    assert [k for k in device.kinds() if k in ("library", "launch", "gemm")] == ["gemm", "library"] * 2
    assert "cuDNN" in found.explain()


# ----------------------------------------------------------------------------------------------------------- why it not


def test_a_plan_that_cannot_be_had_is_own_kernels_with_the_reason(device: RecordingDevice) -> None:
    device.library_room = "cuDNN does not do it: no engine for it"
    module, x = scripted(Filters()), numbers(2, 3, 9, 9)
    found = placed(module, device)
    for _ in range(3):
        assert_close(found(x), module(x))
    text = found.explain()
    assert text.count("cuDNN does not do it: no engine for it") == 2
    # The relu is then the product's, which says why a library does not do it.
    assert "aten::conv2d+relu" in text and "library" not in device.kinds()


def test_the_switch(device: RecordingDevice) -> None:
    module, x = scripted(Filters()), numbers(2, 3, 9, 9)
    with config(disable=("cudnn",)):
        found = placed(module, device)
        assert_close(found(x), module(x))
        assert found.explain().count("the switch 'disable' turns cuDNN off") == 2
    assert "room" not in device.kinds()


@pytest.mark.parametrize("is_on", [False, True])
def test_tf32_is_a_switch(is_on: bool) -> None:
    arguments = [f32(1, 2, 5), f32(3, 2, 2, seed=1), None, [1], [0], [1], 1]
    with config(tf32=is_on):
        library, seen = asked()
        check("aten::conv1d", arguments, asked=library)
        check("aten::conv1d", [x.astype("f2") if isinstance(x, np.ndarray) else x for x in arguments], asked=library)
    assert [w.tf32 for w in seen if isinstance(w, Convolution)] == [is_on, False]


def test_images_that_do_not_lie_together_are_copied() -> None:
    library, seen = asked()
    step = check("aten::conv1d", [turned(f32(2, 3, 8)), f32(4, 3, 2, seed=1), f32(4), [1], [1], [1], 1], asked=library)
    assert calls(step) == "lc" and len(seen) == 1
    # Behind what the library works in lies the copy, or before it: they do not overlap.
    call = library_calls(step)[0]
    copy, room = call.arrays[0], call.workspace
    assert copy.array == room.array < 0
    nbytes = 2 * 3 * 8 * 4
    assert copy.offset + nbytes <= room.offset or room.offset + 64 <= copy.offset
    assert step.scratch >= nbytes + 64


SIDES = [x.astype(FLOAT16) for x in (f32(2, 4, 3, 8), f32(2, 4, 5, 8, seed=1), f32(2, 4, 5, 16, seed=2))]
TURNED = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in SIDES]
GROUPED = [SIDES[0], *(np.ascontiguousarray(x[:, ::2]) for x in SIDES[1:])]


def rest(mask: Any = None, is_causal: bool = False, scale: Any = None, grouped: bool = False) -> list[Any]:
    return [mask, 0.0, is_causal, scale, grouped]


@pytest.mark.parametrize(
    ("sides", "more", "constants"),
    [
        (SIDES, rest(), ()),
        ([x.astype(BFLOAT16) for x in SIDES], rest(), ()),
        (SIDES, rest(is_causal=True), ()),
        (SIDES, rest(scale=0.7), ()),
        (TURNED, rest(is_causal=True), ()),
        (GROUPED, rest(grouped=True), ()),
        (SIDES, rest(f32(3, 5, seed=3).astype(FLOAT16)), (3,)),
        (SIDES, rest(f32(2, 1, 3, 5, seed=3).astype(FLOAT16)), (3,)),
        ([x[0] for x in SIDES], rest(), ()),
        ([x[0, 0] for x in SIDES], rest(), ()),
    ],
)
def test_attentions_that_a_library_does(sides: list[np.ndarray], more: list[Any], constants: tuple[int, ...]) -> None:
    library, seen = asked()
    step = check(ATTENTION, [*sides, *more], constants, asked=library)
    assert calls(step) == "c" and not library.refusal
    (work,) = seen
    assert isinstance(work, Attention) and all(len(x.shape) == 4 for x in work.layouts)
    assert len(library_calls(step)[0].arrays) == len(work.layouts) == 4 + (more[0] is not None)
    assert (work.is_causal, work.bias is None) == (more[1 + 1], more[0] is None)
    assert work.scale == pytest.approx(more[3] or 8**-0.5)


ALL_SHOWN = np.ones((3, 5), np.bool_)
HIDDEN = np.array([[0, 0, 0, 0, -np.inf]] * 3, FLOAT16)


@pytest.mark.parametrize(
    ("sides", "more", "constants", "reason"),
    [
        ([x.astype("f4") for x in SIDES], rest(), (), "is for float16 and bfloat16: others would be rounded"),
        ([x.astype("f8") for x in SIDES], rest(), (), "is for float16 and bfloat16"),
        (SIDES, rest(ALL_SHOWN), (3,), "keys are all hidden"),
        (SIDES, rest(np.zeros((3, 5), FLOAT16)), (), "keys are all hidden"),
        (SIDES, rest(HIDDEN), (3,), "keys are all hidden"),
        (SIDES, rest(scale=0.0), (), "scales above 0"),
        (SIDES, rest(scale=-1.0), (), "scales above 0"),
        ([np.ascontiguousarray(x[..., :4]) for x in SIDES], rest(), (), "in multiples of 8"),
        ([np.zeros((1, 1, 2, 264), FLOAT16)] * 3, rest(), (), "up to 256 numbers a head"),
        ([turned(x) for x in SIDES], rest(), (), "rows that lie together"),
        ([np.zeros((1, 2, 3, 9), FLOAT16)[..., :8]] * 3, rest(), (), "begin at multiples of 16 bytes"),
        (SIDES, rest(), (), "no engine"),
    ],
)
def test_attentions_that_a_library_does_not_do(
    sides: list[np.ndarray], more: list[Any], constants: tuple[int, ...], reason: str
) -> None:
    """Own kernels do them, and rows whose keys are all hidden become zeros there."""
    library, seen = asked("no engine" if reason == "no engine" else 64)
    step = check(ATTENTION, [*sides, *more], constants, asked=library)
    assert "c" not in calls(step) and reason in library.refusal
    assert len(seen) == (reason == "no engine")


# --------------------------------------------------------------------------- the cases that a card runs (ci/gpu.sh)

# Attention of float32 is not the library's, and threads of own kernels wait for each other, which they cannot here.
BY_LIBRARY = [(n, d) for n, (*_, dtypes) in CASES.items() for d in dtypes if not ("attention" in n and d == FLOAT32)]


@pytest.mark.parametrize(("name", "dtype"), BY_LIBRARY, ids=str)
def test_cases_of_the_script_for_a_card(name: str, dtype: np.dtype, device: RecordingDevice) -> None:
    module, inputs = function(name, dtype)
    want = module(*inputs)
    module._program.place(device)
    fast = gpujit.optimize_for_inference(module)
    for _ in range(3):
        assert_close(fast(*inputs), want)
    assert "library" in device.kinds() and "device library" in fast.explain()
