"""``weights=`` of ``optimize_for_inference`` and StaticModule: less memory, numbers of the stated precision."""

from __future__ import annotations

import numpy as np
import pytest

import gpujit
from gpujit import nn

# Of a result's largest magnitude: two layers of rounded weights.
PRECISION = {"float32": 1e-5, "bfloat16": 1e-2, "int8": 3e-2}


def _model() -> gpujit.ScriptModule:
    gpujit.manual_seed(0)
    return gpujit.script(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 48, bias=False)).eval())


@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize("weights", PRECISION)
def test_numbers_have_the_stated_precision(weights: str, rows: int) -> None:
    model, x = _model(), np.random.default_rng(1).standard_normal((rows, 64), dtype=np.float32)
    wanted = model(x)
    got = gpujit.optimize_for_inference(model, weights=weights)(x)
    error = np.abs(got - wanted).max() / np.abs(wanted).max()
    assert got.dtype == np.float32 and error < PRECISION[weights]
    # What was rounded shows, or nothing was.
    assert weights == "float32" or error > 1e-5


def test_explain_says_how_weights_are_kept() -> None:
    fast = gpujit.optimize_for_inference(_model(), weights="int8", example_inputs=[np.ones((1, 64), np.float32)])
    labels = [line for line in fast.explain().splitlines() if line.startswith("native template")]
    assert labels and all("(int8 weights)" in line for line in labels)


def test_packed_weights_take_less_memory() -> None:
    x = np.ones((1, 64), np.float32)
    packed = {}
    for weights in PRECISION:
        module = gpujit.StaticModule(_model(), gpujit.StaticModuleOptions(weights=weights))
        module(x)
        packed[weights] = module.memory_report().packed
    assert packed["bfloat16"] < 0.55 * packed["float32"] and packed["int8"] < 0.35 * packed["float32"]


def test_weights_that_int8_cannot_hold_stay() -> None:
    layer = nn.Linear(4, 3)
    layer.weight[0, 0] = np.inf
    model = gpujit.script(layer.eval())
    x = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(gpujit.optimize_for_inference(model, weights="int8")(x), model(x), rtol=1e-6)


def test_other_values_are_refused() -> None:
    with pytest.raises(gpujit.ArgumentError, match="weights is one of 'float32', 'bfloat16', 'int8'; found str 'int4'"):
        gpujit.optimize_for_inference(_model(), weights="int4")
    with pytest.raises(gpujit.ArgumentError, match="weights is one of"):
        gpujit.StaticModule(_model(), gpujit.StaticModuleOptions(weights=8))
