"""Tile programs as steps: arguments, offsets, checks; run in the simulator where there is one."""

from __future__ import annotations

import numpy as np
import pytest

from gpujit.kernels import reference
from gpujit.kernels.cuda_steps import PART, Laid, StepBuilder, launch_of, step_of
from gpujit.kernels.launches import FLAGS, SCRATCH, Address, Launch, Number
from gpujit.kernels.tile_text import parse_program
from tests.kernels.cuda_programs import SAMPLES
from tests.static_runtime.device_help import SIMULATED, run_step

ADD = """tile(a0: float32[2], a1: float32[2]) -> (o0: float32[2])
  for d0 < n0, d1 < n1
  %0: float32 = load a0[d0, d1]
  %1: float32 = load a1[d0, d1]
  %2: float32 = add %0, %1
  store o0[d0, d1], %2
"""
in_simulator = pytest.mark.skipif(not SIMULATED, reason="kernels run in the simulator: NUMBA_ENABLE_CUDASIM=1")


def test_arguments_are_addresses_and_numbers_of_the_types_that_are_said() -> None:
    step = step_of(parse_program(ADD), [(8, (5, 1)), (0, (0, 1))], [(0, (3, 1))], (4, 3), label="add")
    (call,) = step.calls
    assert isinstance(call, Launch) and call.kernel.label == "add"
    assert [x for x in call.arguments if isinstance(x, Address)] == [Address(0, 8), Address(1), Address(2)]
    assert len(call.arguments) == len(call.kernel.arguments)
    for x, name in zip(call.arguments, call.kernel.arguments, strict=True):
        assert name == (x.type if isinstance(x, Number) else "*float32")


def test_offsets_decide_about_wide_loads() -> None:
    def source(offset: int) -> str:
        (call,) = step_of(parse_program(ADD), [(offset, (8, 1)), (0, (8, 1))], [(0, (8, 1))], (4, 8)).calls
        assert isinstance(call, Launch)
        return call.kernel.source

    assert source(0).count("vload4") > source(4).count("vload4")


def test_nothing_to_do_is_no_launch() -> None:
    at = Laid(Address(0), (3, 1))
    assert launch_of(parse_program(ADD), [at, at], [at], (0, 3)) is None


def test_scratch_constants_and_flags_are_numbered() -> None:
    build = StepBuilder([0, 4], [0])
    assert (build.operand(1), build.result()) == (Address(1, 4), Address(2))
    assert build.scratch(3) == Address(SCRATCH) and build.scratch(PART + 1) == Address(SCRATCH, PART)
    assert build.constant(np.ones((2, 3)).T) == Address(3) and build.constant(np.ones(1)) == Address(4)
    step = build.finish()
    assert step.scratch == 3 * PART and step.constants[0].flags.c_contiguous


def test_each_program_of_a_step_has_flags_of_its_own() -> None:
    sample = SAMPLES["gather"]
    build = StepBuilder([0, 0, 0], [0, 0])
    ins = [Laid(build.operand(k), s) for k, s in enumerate(sample.all_strides()[:3])]
    for k in range(2):
        build.tile(sample.program, ins, [Laid(build.result(k), sample.all_strides()[3])], sample.sizes, sample.params)
    step = build.finish()
    assert len(step.checks) == 2
    flags = [x for c in step.calls for x in c.arguments if isinstance(x, Address) and x.array == FLAGS]  # type: ignore[union-attr]
    assert flags == [Address(FLAGS), Address(FLAGS, 4)]


@in_simulator
def test_a_step_gives_what_the_program_says() -> None:
    x, y = np.arange(20, dtype="f4").reshape(4, 5)[:, 2:], np.ones((1, 3), "f4")
    got, want = np.zeros((4, 3), "f4"), np.zeros((4, 3), "f4")
    reference.run(parse_program(ADD), [x, np.broadcast_to(y, (4, 3))], [want], (4, 3))
    step = step_of(parse_program(ADD), [(0, (5, 1)), (0, (0, 1))], [(0, (3, 1))], (4, 3))
    assert run_step(step, [x, y], [got]) == ""
    np.testing.assert_array_equal(got, want)


@in_simulator
def test_a_failing_check_sets_its_flag() -> None:
    sample = SAMPLES["gather"]
    arrays = [np.ones((7, 8), "f4"), np.array([1, 7, 2]), np.ones(8, "f4")]
    step = step_of(sample.program, [(0, (8, 1)), (0, (1,)), (0, (1,))], [(0, (8, 1))], (3, 8), (7,))
    assert run_step(step, arrays, [np.zeros((3, 8), "f4")]) == "index out of range"
