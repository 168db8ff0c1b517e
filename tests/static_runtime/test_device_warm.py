"""What is compiled ahead is what a device of that kind asks for: same plans, same kernels, on a device that records."""

from __future__ import annotations

import pytest

pytest.importorskip("llvmlite")

import gpujit
from gpujit.kernels.cuda_tile import limits_of
from gpujit.kernels.launches import DeviceKernel, Launch
from gpujit.runtime.device import At, Call
from gpujit.static_runtime.device_warm import Found, Target, WarmExecutor
from tests.models.test_corpus import case
from tests.runtime.recording_device import RecordingDevice


class Asked(RecordingDevice):
    """Notes the kernels that it is to compile, and launches none."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = limits_of((8, 0))
        self.kernels: set[DeviceKernel] = set()

    def compile(self, kernels: list[DeviceKernel]) -> set[DeviceKernel]:
        self.kernels.update(kernels)
        return super().compile(kernels)

    def launch(self, launch: Launch, at: At) -> Call:
        return lambda stream: None


@pytest.mark.parametrize("name", ["mlp", "bert_trace", "lstm_script", "mobilenet_trace", "half", "loop_rnn"])
def test_kernels_are_those_that_a_device_asks_for(name: str) -> None:
    found, device = Found(), Asked()
    for on_device in (False, True):
        module, inputs, _ = case(name)
        frozen = gpujit.freeze(module.eval())
        program = frozen._program
        if on_device:
            program.place(device)
            gpujit.optimize_for_inference(frozen)
        else:
            target = Target(limits=limits_of((8, 0)))
            program.optimise(lambda f, p=program, t=target: WarmExecutor(f, p.lowerer.rules, found, t))
        frozen(*inputs)
    assert found.plans == 1 and found.unplanned == []
    assert set(found.kernels) == device.kernels and found.kernels
    assert all(launched.operators for launched in found.kernels.values())
