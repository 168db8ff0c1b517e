"""The CUDA renderer against the NumPy one, in Numba's simulator: run with NUMBA_ENABLE_CUDASIM=1 (``ci/cuda_sim.sh``)."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("kernels run on a GPU, or in the simulator: NUMBA_ENABLE_CUDASIM=1", allow_module_level=True)
pytest.importorskip("numba_cuda")

from gpujit.kernels import cuda_launch
from gpujit.kernels.cuda_ops import NotRendered
from gpujit.kernels.cuda_tile import Limits
from gpujit.kernels.reference import run
from gpujit.support.errors import GpujitError, OpError
from tests.kernels.programs import Case
from tests.kernels.random_programs import assert_close, cases

# Warps of 4 threads and blocks of 8, so that everything that happens between warps and blocks happens in few threads.
SMALL = Limits(block=8, row_block=16, warp=4, kept=8, busy=64, split=1)
WHOLE = Limits(block=8, row_block=8, warp=8, kept=16, busy=64, split=2)
REREAD = Limits(block=4, row_block=8, warp=2, kept=1, busy=1, split=1, bytes=4)


def same_as_reference(case: Case, limits: Limits, blocks: int = 2):
    """The kernel that ran; both renderers gave the same. Skips what has no answer."""
    want, got = case.fresh(), case.fresh()
    try:
        run(case.program, want.inputs, want.outputs, case.sizes, case.params)
    except GpujitError:
        # An index out of range or an empty row: nothing is promised then.
        assume(False)
    try:
        kernel = cuda_launch.run(case.program, got.inputs, got.outputs, case.sizes, case.params, limits, blocks)
    except NotRendered:
        assume(False)
    text = case.program.text if kernel is None else kernel.text
    assert_close(got.outputs, want.outputs, text)
    return kernel


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(), st.sampled_from([SMALL, WHOLE, REREAD]), st.sampled_from([1, 3]))
def test_random_programs(case, limits, blocks) -> None:
    same_as_reference(case, limits, blocks)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(max_size=24, max_dims=2, max_steps=5), st.sampled_from([SMALL, WHOLE, REREAD]))
def test_random_programs_over_whole_vectors_and_rests(case, limits) -> None:
    same_as_reference(case, limits)
