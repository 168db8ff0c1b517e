"""The CPU renderer against the NumPy one."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite")

from gpujit.kernels import cpu_launch, cpu_plan
from gpujit.kernels.reference import run
from gpujit.kernels.tile import NotRendered
from gpujit.support.config import config
from gpujit.support.errors import GpujitError
from tests.kernels.random_programs import assert_close, cases


@settings(max_examples=150)
@given(cases(), st.sampled_from([1, 2]))
def test_random_programs(case, threads) -> None:
    want, got = case.fresh(), case.fresh()
    try:
        run(case.program, want.inputs, want.outputs, case.sizes, case.params)
    except GpujitError:
        # An index out of range or an empty row: nothing is promised then.
        assume(False)
    try:
        with config(threads=threads):
            cpu_launch.run(case.program, got.inputs, got.outputs, case.sizes, case.params)
    except NotRendered:
        assume(False)
    assert_close(got.outputs, want.outputs, case.program.text)


@settings(max_examples=60)
@given(cases(max_size=40, max_dims=2, max_steps=5))
def test_random_programs_over_whole_vectors_and_rests(case) -> None:
    want, got = case.fresh(), case.fresh()
    try:
        run(case.program, want.inputs, want.outputs, case.sizes, case.params)
        cpu_launch.run(case.program, got.inputs, got.outputs, case.sizes, case.params)
    except GpujitError:
        assume(False)
    assert_close(got.outputs, want.outputs, case.program.text)


@settings(max_examples=100)
@given(cases(max_size=40, max_dims=2, max_steps=5), st.sampled_from([1, 3]))
def test_random_programs_as_large_arrays_are_walked(case, threads) -> None:
    want, got = case.fresh(), case.fresh()
    limits = {"STREAMED": 0, "STREAMED_TURNED": 0, "LONG_ROW": 1, "ONLINE": 1, "WORTH_A_TEAM": 0}
    with config(threads=threads), patch.multiple(cpu_plan, **limits), patch.object(cpu_launch, "WORTH_A_TEAM", 0):
        try:
            run(case.program, want.inputs, want.outputs, case.sizes, case.params)
            cpu_launch.run(case.program, got.inputs, got.outputs, case.sizes, case.params)
        except GpujitError:
            assume(False)
    assert_close(got.outputs, want.outputs, case.program.text)
