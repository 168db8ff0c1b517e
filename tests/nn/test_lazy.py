"""Lazy layers: what they are before the first call, what it makes of them, and states loaded before it."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.nn.parameter import UninitializedBuffer, UninitializedParameter
from gpujit.support.errors import ArgumentError, LayerError, SourceError, StateDictError
from tests.nn.cases import floats

X1, X2, X3 = floats(2, 4, 9), floats(2, 4, 5, 6), floats(2, 4, 3, 4, 5)
# What makes each, the same layer with its sizes, and an input.
LAZY: dict[str, tuple[Any, Any, np.ndarray]] = {
    "LazyLinear": (lambda n: n.LazyLinear(3), lambda n: n.Linear(6, 3), X2),
    "LazyLinear-no-bias": (lambda n: n.LazyLinear(3, bias=False), lambda n: n.Linear(6, 3, bias=False), X2),
    "LazyConv1d": (lambda n: n.LazyConv1d(6, 3, padding=1), lambda n: n.Conv1d(4, 6, 3, padding=1), X1),
    "LazyConv2d": (lambda n: n.LazyConv2d(6, 3, groups=2), lambda n: n.Conv2d(4, 6, 3, groups=2), X2),
    "LazyConv2d-unbatched": (lambda n: n.LazyConv2d(6, 3, bias=False), lambda n: n.Conv2d(4, 6, 3, bias=False), X2[0]),
    "LazyConv3d": (lambda n: n.LazyConv3d(2, 2, stride=2), lambda n: n.Conv3d(4, 2, 2, stride=2), X3),
    "LazyConvTranspose1d": (lambda n: n.LazyConvTranspose1d(6, 3), lambda n: n.ConvTranspose1d(4, 6, 3), X1),
    "LazyConvTranspose2d": (
        lambda n: n.LazyConvTranspose2d(6, 3, stride=2, output_padding=1, groups=2),
        lambda n: n.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2),
        X2,
    ),
    "LazyConvTranspose3d": (lambda n: n.LazyConvTranspose3d(2, 2), lambda n: n.ConvTranspose3d(4, 2, 2), X3),
    "LazyBatchNorm1d": (lambda n: n.LazyBatchNorm1d(bias=False), lambda n: n.BatchNorm1d(4, bias=False), X1),
    "LazyBatchNorm2d": (lambda n: n.LazyBatchNorm2d(momentum=None), lambda n: n.BatchNorm2d(4, momentum=None), X2),
    "LazyBatchNorm3d": (
        lambda n: n.LazyBatchNorm3d(affine=False, eps=1e-3), lambda n: n.BatchNorm3d(4, affine=False, eps=1e-3), X3
    ),
    "LazyInstanceNorm1d": (
        lambda n: n.LazyInstanceNorm1d(),
        lambda n: n.InstanceNorm1d(4, affine=True, track_running_stats=True),
        X1,
    ),
    "LazyInstanceNorm2d": (
        lambda n: n.LazyInstanceNorm2d(track_running_stats=False), lambda n: n.InstanceNorm2d(4, affine=True), X2
    ),
    "LazyInstanceNorm3d": (
        lambda n: n.LazyInstanceNorm3d(affine=False), lambda n: n.InstanceNorm3d(4, track_running_stats=True), X3
    ),
}  # fmt: skip


def state_of(module: Any) -> dict[str, np.ndarray]:
    return {k: np.array(v) for k, v in module.state_dict().items()}


def assert_same_state(a: Any, b: Any) -> None:
    found, wanted = state_of(a), state_of(b)
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, 1e-6, 1e-6)


@pytest.mark.parametrize("name", LAZY)
def test_the_first_call_makes_the_plain_layer(name):
    lazy, plain, x = LAZY[name]
    gpujit.manual_seed(5)
    made = lazy(nn)
    assert made.has_uninitialized_params() == bool(made.state_dict())
    gpujit.manual_seed(5)
    expected = plain(nn)
    gpujit.manual_seed(5)
    found = made(x)
    assert type(made) is type(expected)
    assert repr(made) == repr(expected)
    np.testing.assert_allclose(found, expected(x), 1e-6, 1e-6)
    assert_same_state(made, expected)
    assert not made._forward_pre_hooks
    assert vars(made).keys() == vars(expected).keys()


@pytest.mark.parametrize("name", LAZY)
def test_a_state_may_be_loaded_before_the_first_call(name):
    lazy, plain, x = LAZY[name]
    trained = plain(nn)
    trained(x)
    layer = lazy(nn)
    assert layer.load_state_dict(trained.state_dict()) == ([], [])
    assert not layer.has_uninitialized_params()
    np.testing.assert_allclose(layer(x), trained(x), 1e-6, 1e-6)
    assert_same_state(layer, trained)
    assert type(layer) is type(trained)


def test_what_stands_for_an_array():
    layer = nn.LazyBatchNorm1d()
    assert isinstance(layer.weight, UninitializedParameter)
    assert isinstance(layer.running_mean, UninitializedBuffer)
    assert [n for n, _ in layer.named_parameters()] == ["weight", "bias"]
    assert repr(layer.weight) == "<UninitializedParameter>"
    for use in (lambda: np.asarray(layer.weight), lambda: layer.weight.shape, lambda: gpujit.ops.relu(layer.weight)):
        with pytest.raises((LayerError, AttributeError)):
            use()
    assert layer.double().weight.dtype == np.float64
    assert layer(X1.astype(np.float64)).dtype == np.float64


def test_states_without_values():
    lazy, other = nn.LazyLinear(3), nn.LazyLinear(3)
    assert lazy.load_state_dict(other.state_dict()) == ([], [])
    assert lazy.has_uninitialized_params()
    with pytest.raises(StateDictError, match="weight: the state has no values for it yet"):
        nn.Linear(4, 3).load_state_dict(other.state_dict())


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_wait_for_their_own_first_call(again):
    net = nn.Sequential(nn.LazyConv2d(3, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    second = again(net)
    assert second(X2).shape == (2, 2)
    assert net[0].has_uninitialized_params()
    assert type(second[0]) is nn.Conv2d
    assert type(net[3]) is nn.LazyLinear


def test_a_net_of_lazy_layers_is_scripted_and_traced_after_its_first_call():
    net = nn.Sequential(nn.LazyConv2d(3, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2)).eval()
    with pytest.raises(SourceError, match="call the lazy module once before it is scripted"):
        gpujit.script(net)
    with pytest.raises(ArgumentError, match="call the lazy module once before it is traced"):
        gpujit.trace(net, X2)
    expected = net(X2)
    for compiled in (gpujit.script(net), gpujit.trace(net, X2)):
        np.testing.assert_allclose(compiled(X2), expected, 1e-6, 1e-6)


@pytest.mark.parametrize(
    ("make", "x", "message"),
    [
        (lambda: nn.LazyConv2d(3, 3), X1[0, 0], "an input of 3 or 4 dimensions"),
        (lambda: nn.LazyConv1d(6, 3, groups=3), X1, "in_channels=4 must be divisible by groups=3"),
        (lambda: nn.LazyConv1d(5, 3, groups=2), X1, "out_channels=5 must be divisible by groups=2"),
        (lambda: nn.LazyBatchNorm1d(), X1[0, 0], "at least 2 dimensions"),
    ],
)
def test_inputs_that_do_not_fit(make, x, message):
    layer = make()
    with pytest.raises(LayerError, match=message):
        layer(x)
    assert layer.has_uninitialized_params()


def test_an_input_that_does_not_fit_the_state():
    layer = nn.LazyLinear(3)
    layer.load_state_dict(nn.Linear(4, 3).state_dict())
    with pytest.raises(LayerError, match="has 6 features, the weight 4"):
        layer(X2)


def test_parameters_that_are_set_again_keep_their_place():
    layer = nn.Linear(2, 2)
    layer.weight = nn.Parameter(np.ones((2, 2), np.float32))
    assert list(layer.state_dict()) == ["weight", "bias"]


@pytest.mark.torch
@pytest.mark.parametrize("name", LAZY)
def test_torch_agrees(name):
    torch = pytest.importorskip("torch")
    lazy, _, x = LAZY[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine, theirs = lazy(nn), lazy(torch.nn)
        assert repr(mine) == repr(theirs)
        assert list(mine.state_dict()) == list(theirs.state_dict())
        early = lazy(nn)
        torch.manual_seed(4)
        gpujit.manual_seed(4)
        expected, found = theirs(torch.from_numpy(x)), mine(x)
    np.testing.assert_allclose(found, expected.detach().numpy(), 1e-5, 1e-5)
    assert repr(mine) == repr(theirs)
    assert_same_state(mine, theirs)
    assert early.load_state_dict(theirs.state_dict()) == ([], [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = lazy(torch.nn)
        other.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in mine.state_dict().items()})
    assert_same_state(mine, other)
