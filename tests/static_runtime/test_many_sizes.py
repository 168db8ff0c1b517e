"""One module that meets many input sizes: a bounded number of plans is kept, and answers stay right."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

import gpujit
from gpujit.runtime.executor import MAX_PLANS
from gpujit.static_runtime.run import Arena
from gpujit.static_runtime.steps import StaticPlan
from gpujit.testing import assert_same_values
from tests.static_runtime.help import CORPUS, f32

SIZES = MAX_PLANS + 36


def alive(kind: type) -> int:
    gc.collect()
    return sum(type(x) is kind for x in gc.get_objects())


@pytest.mark.parametrize(
    ("name", "shape_of"),
    [("mlp", lambda i: (i + 1, 8)), ("mobilenet_trace", lambda i: (1, 3, 16 + i % 10, 16 + i // 10))],
)
def test_plans_of_many_sizes_are_dropped(name: str, shape_of) -> None:
    path = Path(CORPUS, f"{name}.pt")
    plain, module = gpujit.load(path), gpujit.optimize_for_inference(gpujit.load(path))
    plans, runtimes = alive(StaticPlan), alive(Arena)
    for i in np.random.default_rng(0).permutation(SIZES):
        x = f32(*shape_of(int(i)), seed=int(i))
        assert_same_values(module(x), plain(x), rtol=1e-4, atol=1e-5)
    assert alive(StaticPlan) - plans <= MAX_PLANS
    assert alive(Arena) - runtimes <= MAX_PLANS
