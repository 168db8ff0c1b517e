"""Tiles of CUDA kernels chosen by measuring, with a timer of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from gpujit.kernels import cache, cuda_autotune
from gpujit.kernels.cuda_autotune import candidates, kernels_of, limits_for, measuring, tuned
from gpujit.kernels.cuda_steps import step_of
from gpujit.kernels.cuda_tile import Limits, limits_of, within
from gpujit.kernels.launches import DeviceKernel, DeviceStep
from gpujit.kernels.tile_text import parse_program
from gpujit.support.config import config
from tests.kernels.cuda_programs import SAMPLES

EXP = """tile(a0: float32[2]) -> (o0: float32[2])
  for d0 < n0, d1 < n1
  %0: float32 = load a0[d0, d1]
  %1: float32 = exp %0
  store o0[d0, d1], %1
"""
SIZES, STRIDES = (64, 4096), (4096, 1)
USUAL = Limits()
NBYTES = [4 * 64 * 4096] * 2


class FakeTimer:
    """Says what a function of the kernel's block and source gives, and counts."""

    def __init__(self, seconds: Callable[[int, str], float], name: str = "NVIDIA H100", refused: int = 512) -> None:
        self._seconds, self.name, self.asked, self._refused = seconds, name, 0, refused
        self.compiled: list[int] = []

    def refused(self, kernels: list[DeviceKernel]) -> set[DeviceKernel]:
        self.compiled += [k.block for k in kernels]
        return {k for k in kernels if k.block == self._refused}

    def seconds(self, step: DeviceStep, nbytes: Sequence[int]) -> float:
        assert list(nbytes) == NBYTES
        self.asked += 1
        (kernel,) = kernels_of(step)
        return self._seconds(kernel.block, kernel.source)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[None]:
    """A cache of the test's own."""
    with config(cache_dir=str(tmp_path / "kernels")):
        yield


def exp(timer: FakeTimer) -> Limits:
    return tuned(parse_program(EXP), [(0, STRIDES)], [(0, STRIDES)], SIZES, (), NBYTES, timer)


def test_the_fastest_is_taken_and_kept() -> None:
    timer = FakeTimer(lambda block, source: 2e-6 if block == 128 and "vload4" in source else 5e-6)
    found = exp(timer)
    assert (found.block, found.bytes) == (128, 16) and timer.asked > 0
    again = FakeTimer(lambda block, source: 1.0)
    assert exp(again) == found and again.asked == 0
    store = cache.store()
    assert store is not None
    (entry,) = [e for e in store.entries() if e.kind == cache.TUNED]
    text = entry.source()
    assert "NVIDIA H100" in text and "2.00 us" in text and text.count("taken") == 1 and "exp %0" in text


def test_what_is_hardly_faster_is_not_taken() -> None:
    assert exp(FakeTimer(lambda block, source: 0.98e-6 if block == 128 else 1e-6)) == USUAL


def test_equal_kernels_are_measured_once() -> None:
    timer = FakeTimer(lambda block, source: 1e-6)
    exp(timer)
    # Widths of 4, 2 and 1 element in blocks of 128, 256 and 512 threads, the last of which are refused.
    assert len(timer.compiled) == 9 and timer.asked == 6 * cuda_autotune.ROUNDS


def test_another_gpu_is_measured_anew() -> None:
    exp(FakeTimer(lambda block, source: 1e-6))
    other = FakeTimer(lambda block, source: 1e-6, "NVIDIA L4")
    exp(other)
    assert other.asked > 0


@pytest.mark.parametrize("kept", [b"", b"[1]", b'{"block": 128}', b'{"block": "many"}'])
def test_what_is_kept_but_none_is_measured_again(kept: bytes) -> None:
    exp(FakeTimer(lambda block, source: 1e-6))
    store = cache.store()
    assert store is not None
    (entry,) = [e for e in store.entries() if e.kind == cache.TUNED]
    store.put(entry.key, kept, "", cache.TUNED)
    timer = FakeTimer(lambda block, source: 1e-6)
    assert exp(timer) == USUAL and timer.asked > 0


def test_where_the_rules_own_kernel_cannot_be_compiled_nothing_is_measured() -> None:
    timer = FakeTimer(lambda block, source: 1e-6, refused=256)
    assert exp(timer) == USUAL and timer.asked == 0


def test_only_the_switch_and_a_gpu_make_plans_measure() -> None:
    call = (parse_program(EXP), [(0, STRIDES)], [(0, STRIDES)], SIZES, (), NBYTES)
    timer = FakeTimer(lambda block, source: 1e-6 if block == 128 else 5e-6)
    with config(autotune=True):
        assert limits_for(*call) == USUAL
    with measuring(timer):
        assert limits_for(*call) == USUAL and timer.asked == 0
        with config(autotune=True):
            assert limits_for(*call).block == 128 and timer.asked > 0


def test_small_limits_are_tuned_within() -> None:
    small = Limits(block=16, row_block=16, warp=4, kept=8, busy=64, split=1)
    with within(small):
        found = exp(FakeTimer(lambda block, source: 1e-6 if block == 8 else 5e-6))
    assert found.block == 8 and found.warp == 4


def test_calls_that_cannot_be_made_up_are_not_measured() -> None:
    never = FakeTimer(lambda block, source: 1 / 0)
    sample = SAMPLES["gather"]
    ins, outs = [(0, s) for s in sample.all_strides()[:3]], [(0, sample.all_strides()[3])]
    assert tuned(sample.program, ins, outs, sample.sizes, sample.params, [4] * 4, never) == USUAL
    for nbytes in ([1 << 40] * 2, [0, 0]):
        assert tuned(parse_program(EXP), [(0, STRIDES)], [(0, STRIDES)], SIZES, (), nbytes, never) == USUAL


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_rows_have_more_to_choose_from(name: str) -> None:
    sample = SAMPLES[name]
    count = len(sample.program.inputs)
    ins = [(0, s) for s in sample.all_strides()[:count]]
    outs = [(0, s) for s in sample.all_strides()[count:]]
    calls = {step_of(sample.program, ins, outs, sample.sizes, sample.params, "", c).calls for c in candidates(USUAL)}
    assert len(calls) > 3


def test_all_gpus_of_a_capability_are_planned_for_alike() -> None:
    assert limits_of((9, 0)) == USUAL and limits_of((8, 0)).busy == 108 * 2048
    # Those that nobody listed are as those just below.
    assert limits_of((8, 7)) == limits_of((8, 6)) and limits_of((99, 0)) == limits_of((12, 0))
    assert limits_of((5, 0)) == limits_of((7, 5))
