"""``gpujit.nn.utils``: norms of weights, parametrizations, vectors of parameters; PyTorch is the judge of numbers."""

from __future__ import annotations

import copy
import pickle
import warnings
from io import BytesIO
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import nn, ops
from gpujit.nn import utils
from gpujit.nn.typing import Tensor
from gpujit.nn.utils import parametrizations, parametrize
from gpujit.support.errors import ArgumentError, LayerError, SourceError
from tests.nn.cases import floats

X = floats(2, 4, 6)
# What makes each layer of a package, its utils and its parametrizations; what removes the norm again.
NORMS: dict[str, tuple[Any, Any]] = {
    "weight_norm": (lambda n, u: u.weight_norm(n.Conv1d(4, 3, 2)), lambda u, m: u.remove_weight_norm(m)),
    "weight_norm-whole": (
        lambda n, u: u.weight_norm(n.Conv1d(4, 3, 2), dim=None),
        lambda u, m: u.remove_weight_norm(m),
    ),
    "weight_norm-dim": (lambda n, u: u.weight_norm(n.Linear(6, 3), dim=1), lambda u, m: u.remove_weight_norm(m)),
    "spectral_norm": (lambda n, u: u.spectral_norm(n.Conv1d(4, 3, 2)), lambda u, m: u.remove_spectral_norm(m)),
    "spectral_norm-transposed": (
        lambda n, u: u.spectral_norm(n.ConvTranspose1d(4, 3, 2), n_power_iterations=3, eps=1e-6),
        lambda u, m: u.remove_spectral_norm(m),
    ),
    "parametrized weight_norm": (
        lambda n, u: u.parametrizations.weight_norm(n.Conv1d(4, 3, 2)),
        lambda u, m: u.parametrize.remove_parametrizations(m, "weight"),
    ),
    "parametrized weight_norm-whole": (
        lambda n, u: u.parametrizations.weight_norm(n.Linear(6, 3), dim=None),
        lambda u, m: u.parametrize.remove_parametrizations(m, "weight"),
    ),
    "parametrized spectral_norm": (
        lambda n, u: u.parametrizations.spectral_norm(n.ConvTranspose1d(4, 3, 2), n_power_iterations=2),
        lambda u, m: u.parametrize.remove_parametrizations(m, "weight"),
    ),
    "parametrized spectral_norm of a vector": (
        lambda n, u: u.parametrizations.spectral_norm(n.Conv1d(4, 3, 2), "bias"),
        lambda u, m: u.parametrize.remove_parametrizations(m, "bias"),
    ),
    "both": (
        lambda n, u: u.parametrizations.spectral_norm(u.parametrizations.weight_norm(n.Conv1d(4, 3, 2))),
        lambda u, m: u.parametrize.remove_parametrizations(m, "weight"),
    ),
}


def made(name: str, seed: int = 0) -> Any:
    gpujit.manual_seed(seed)
    return NORMS[name][0](nn, utils)


@pytest.mark.torch
@pytest.mark.parametrize("name", NORMS)
def test_norms_are_those_of_torch(name):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    mine = made(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = NORMS[name][0](torch.nn, torch.nn.utils)
    assert repr(mine) == repr(theirs)
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in theirs.named_parameters()]

    def compare():
        assert list(mine.state_dict()) == list(theirs.state_dict())
        for key, tensor in theirs.state_dict().items():
            np.testing.assert_allclose(mine.state_dict()[key], tensor.numpy(), 1e-5, 1e-6)
        np.testing.assert_allclose(mine(X), theirs(torch.from_numpy(X)).detach().numpy(), 1e-5, 1e-5)

    compare()
    compare()  # the first call in training mode changed the estimates
    mine.eval()
    theirs.eval()
    compare()
    other = made(name, 1).eval()
    assert other.load_state_dict(theirs.state_dict()) == ([], [])
    np.testing.assert_allclose(other(X), mine(X), 1e-5, 1e-5)
    NORMS[name][1](utils, mine)
    NORMS[name][1](torch.nn.utils, theirs)
    compare()
    assert repr(mine) == repr(theirs)
    assert not mine._forward_hooks
    assert not mine._forward_pre_hooks


@pytest.mark.parametrize("name", NORMS)
def test_norms_are_traced_and_saved(name):
    layer = made(name).eval()
    traced = gpujit.trace(layer, X, strict=True)
    assert set(traced.state_dict()) == set(layer.state_dict())
    expected = layer(X)
    assert type(vars(layer).get("weight", expected)) is np.ndarray
    np.testing.assert_allclose(traced(X), expected, 1e-6, 1e-6)
    for value in traced.parameters():
        value *= 1.5
    np.testing.assert_allclose(gpujit.load(traced.save_to_buffer())(X), layer(X), 1e-5, 1e-5)


@pytest.mark.torch
def test_traces_are_read_by_torch():
    torch = pytest.importorskip("torch")
    layer = made("parametrized weight_norm")
    theirs = torch.jit.load(BytesIO(gpujit.trace(layer, X).save_to_buffer()))
    np.testing.assert_allclose(theirs(torch.from_numpy(X)).detach().numpy(), layer(X), 1e-5, 1e-5)


@pytest.mark.parametrize("name", NORMS)
def test_norms_are_not_scripted_and_are_copied(name):
    layer = made(name).eval()
    with pytest.raises(SourceError, match=r"remove_parametrizations first|hooks are functions written with"):
        gpujit.script(layer)
    second = copy.deepcopy(layer)
    for value in second.parameters():
        value *= 0
    assert not np.array_equal(second(X), layer(X))
    NORMS[name][1](utils, layer)
    np.testing.assert_allclose(gpujit.script(layer)(X), layer(X), 1e-6, 1e-6)


def test_states_of_the_older_weight_norm_are_taken():
    old, new = made("weight_norm", 1), made("parametrized weight_norm", 2)
    assert new.load_state_dict(old.state_dict()) == ([], [])
    np.testing.assert_allclose(new(X), old(X), 1e-6, 1e-6)


class Symmetric(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        upper = ops.triu(x)
        return ops.add(upper, ops.transpose(ops.triu(x, 1), 0, 1))

    def right_inverse(self, x: Tensor) -> Tensor:
        return ops.triu(x)


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return ops.mul(x, 2)


class Counts(nn.Module):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        Counts.calls += 1
        return x


class Wide(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return ops.cat([x, x])


def test_parametrizations_of_ones_own():
    layer = nn.Linear(3, 3)
    register = parametrize.register_parametrization
    assert register(layer, "weight", Symmetric()) is layer
    assert np.array_equal(layer.weight, layer.weight.T)
    before = layer.weight
    register(layer, "weight", Doubled())
    assert np.array_equal(layer.weight, before * 2)
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert type(layer).__name__ == "ParametrizedLinear"
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    assert parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    with pytest.raises(LayerError, match="has no right_inverse"):
        layer.weight = before
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert np.array_equal(layer.weight, before * 2)
    assert list(layer.state_dict()) == ["bias", "weight"]


def test_values_are_set_through_the_parametrization():
    layer = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    layer.weight = np.arange(9, dtype=np.float32).reshape(3, 3)
    assert layer.weight.tolist() == [[0, 1, 2], [1, 4, 5], [2, 5, 8]]
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight.tolist() == [[0, 1, 2], [0, 4, 5], [0, 0, 8]]


def test_buffers_stay_buffers():
    layer = parametrize.register_parametrization(nn.BatchNorm1d(3), "running_mean", Doubled())
    assert [n for n, _ in layer.named_buffers()][-1] == "parametrizations.running_mean.original"
    parametrize.remove_parametrizations(layer, "running_mean")
    assert "running_mean" in layer._buffers


def test_cached_arrays_are_computed_once():
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Counts())
    Counts.calls = 0
    with parametrize.cached(), parametrize.cached():
        assert layer.weight is layer.weight
        layer(np.ones((1, 2), np.float32))
    assert Counts.calls == 1
    layer(np.ones((1, 2), np.float32))
    assert Counts.calls == 2


def test_parametrizations_that_do_not_fit():
    layer = nn.Linear(2, 2)
    with pytest.raises(ArgumentError, match=r"gives float32\[4, 2\] for float32\[2, 2\]"):
        parametrize.register_parametrization(layer, "weight", Wide())
    with pytest.raises(ArgumentError, match="has no parameter or buffer 'other'"):
        parametrize.register_parametrization(layer, "other", Wide())
    with pytest.raises(ArgumentError, match="has no parametrization of 'weight'"):
        parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    parametrize.register_parametrization(layer, "weight", Wide(), unsafe=True)
    with pytest.raises(ArgumentError, match="is made of several arrays"):
        parametrize.remove_parametrizations(parametrizations.weight_norm(nn.Linear(2, 2)), "weight", False)
    with pytest.raises(ArgumentError, match="save its state_dict"):
        pickle.dumps(layer)


def test_norms_that_do_not_fit():
    layer = utils.weight_norm(nn.Linear(2, 2))
    for call, message in (
        (lambda: utils.weight_norm(layer), "has this norm already"),
        (lambda: utils.weight_norm(nn.Linear(2, 2), "other"), "is none of its parameters"),
        (lambda: utils.weight_norm(nn.LazyLinear(2)), "call the lazy module first"),
        (lambda: utils.remove_weight_norm(nn.Linear(2, 2)), "has no such norm"),
        (lambda: utils.remove_spectral_norm(layer), "has no such norm"),
        (lambda: utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=0), "must be positive"),
        (lambda: parametrizations.spectral_norm(nn.Linear(2, 2), n_power_iterations=0), "must be positive"),
        (lambda: parametrizations.spectral_norm(nn.Linear(2, 2), dim=2), "is none of the weight's 2 dimensions"),
        (lambda: parametrizations.spectral_norm(nn.Linear(2, 2), "other"), "has no parameter or buffer 'other'"),
    ):
        with pytest.raises(ArgumentError, match=message):
            call()


def test_parameters_as_one_vector():
    layer = nn.Linear(3, 2)
    vector = utils.parameters_to_vector(layer.parameters())
    assert vector.tolist() == [*layer.weight.ravel().tolist(), *layer.bias.tolist()]
    held = layer.weight
    utils.vector_to_parameters(np.arange(8, dtype=np.float32), layer.parameters())
    assert held.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert layer.bias.tolist() == [6, 7]
    with pytest.raises(ArgumentError, match="a vector of 8 numbers is needed"):
        utils.vector_to_parameters(np.zeros(7, np.float32), layer.parameters())
    assert held[0, 1] == 1
