"""Layers of ``gpujit.nn`` scripted, and run by PyTorch: results, statistics and random numbers of the layer itself."""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.nn import functional as F
from gpujit.nn.typing import BooleanDispatch, Tensor
from gpujit.nn.utils import rnn
from gpujit.support.errors import SourceError
from tests.compare import to_torch
from tests.nn.cases import CASES, Case, floats


def fresh(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return tuple(map(fresh, value)) if isinstance(value, tuple) else value


def check(found: Any, expected: Any, tolerance: float = 1e-6) -> None:
    if isinstance(expected, np.ndarray):
        assert type(found) is np.ndarray
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, 1e-5, tolerance)
    elif isinstance(expected, tuple):
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            check(f, e, tolerance)
    else:
        assert found == expected


def layer_of(case: Case) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return case.build(nn).train(case.training)


def compare(compiled: Any, layer: Any, case: Case) -> None:
    start = {k: v.copy() for k, v in layer.state_dict().items()}
    for seed in (3, 4):
        gpujit.manual_seed(seed)
        found = compiled(*map(fresh, case.inputs), **{k: fresh(v) for k, v in case.kwargs.items()})
        after = {k: v.copy() for k, v in layer.state_dict().items()}
        # Arrays are shared with the layer.
        layer.load_state_dict(start)
        gpujit.manual_seed(seed)
        check(found, layer(*map(fresh, case.inputs), **{k: fresh(v) for k, v in case.kwargs.items()}))
        for name, array in layer.state_dict().items():
            check(after[name], array)
        start = after


# tests/frontend/test_script_layers.py runs the others.
STATEFUL = [c for c in CASES if c.scriptable and (c.training or c.seeded)]


@pytest.mark.parametrize("case", STATEFUL, ids=[c.name for c in STATEFUL])
def test_scripted(case):
    layer = layer_of(case)
    compare(gpujit.script(layer), layer, case)


@pytest.mark.parametrize("case", [c for c in CASES if not c.scriptable], ids=lambda c: c.name)
def test_what_torch_refuses_is_refused(case):
    with pytest.raises(SourceError):
        gpujit.script(layer_of(case))


FUNCTIONS = [n for n in sorted(F._HOMES) if n != "triplet_margin_with_distance_loss"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_compile(name):
    function = getattr(F, name)
    for one in (function.if_true, function.if_false) if isinstance(function, BooleanDispatch) else (function,):
        assert list(gpujit.script(one).graph.nodes)


@pytest.mark.parametrize(
    "name", ["pack_padded_sequence", "pad_packed_sequence", "pad_sequence", "unpad_sequence", "pack_sequence"]
)
def test_sequence_functions_compile(name):
    assert list(gpujit.script(getattr(rnn, name)).graph.nodes)


def resample(x: Tensor) -> Tensor:
    y = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
    y = F.max_pool2d(y, 2)
    y = F.max_pool2d(y, kernel_size=[2, 2], stride=1)
    y = F.adaptive_avg_pool2d(y, 3)
    y = F.interpolate(y, size=[5, 6])
    y = F.interpolate(y, size=(6, 5))
    y = F.interpolate(y, 7)
    y = F.pad(y, [1, 1], value=2.0)
    z, places = F.max_pool2d(y, 2, return_indices=True)
    z = F.max_unpool2d(z, places, 2)
    z = F.unfold(z, 2, stride=2)
    return F.gelu(F.normalize(F.dropout(z, 0.1, False)), approximate="tanh")


def packed_lstm_inputs(x: Tensor, lengths: Tensor) -> Tensor:
    packed = rnn.pack_padded_sequence(x, lengths, True, False)
    padded, _lengths = rnn.pad_packed_sequence(packed, True, 1.5)
    return padded


@pytest.mark.parametrize(
    ("function", "inputs"),
    [(resample, (floats(1, 2, 8, 8),)), (packed_lstm_inputs, (floats(3, 4, 2), np.array([2, 4, 3])))],
)
def test_functions_of_ones_own(function, inputs):
    check(gpujit.script(function)(*inputs), function(*inputs))


@pytest.mark.torch
@pytest.mark.parametrize("case", [c for c in CASES if c.scriptable], ids=lambda c: c.name)
def test_saved_for_torch(case):
    torch = pytest.importorskip("torch")
    layer = layer_of(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = gpujit.script(layer)
        theirs = torch.jit.load(BytesIO(compiled.save_to_buffer()))
        torch.manual_seed(3)
        expected = theirs(*map(to_torch, case.inputs), **{k: to_torch(v) for k, v in case.kwargs.items()})
    gpujit.manual_seed(3)
    found = compiled(*map(fresh, case.inputs), **{k: fresh(v) for k, v in case.kwargs.items()})

    def arrays(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().numpy()
        return tuple(map(arrays, value)) if isinstance(value, (tuple, list)) else value

    check(found, arrays(expected), 1e-5)
