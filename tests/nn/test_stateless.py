"""Calls of modules with other arrays than their own, and modules whose arrays are not filled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import nn, ops
from gpujit.nn import init, utils
from gpujit.nn.typing import Tensor
from gpujit.nn.utils import parametrizations
from gpujit.nn.utils.stateless import functional_call
from gpujit.support.errors import ArgumentError
from tests.nn.cases import floats

X = floats(2, 4)


class Tied(nn.Module):
    """Two layers with one weight, and a buffer that is set anew in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("calls", np.zeros(1, "float32"))

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        self.calls = ops.add(self.calls, 1)
        return ops.mul(self.second(self.first(x)), scale)


def test_other_arrays_for_a_call() -> None:
    module, other = Tied(), Tied()
    own = dict(module.named_parameters())
    given = dict(other.named_parameters()) | dict(other.named_buffers())
    want, before = other(X), module(X)
    given["calls"] = np.full(1, 7, "float32")
    np.testing.assert_array_equal(functional_call(module, given, X), want)
    np.testing.assert_array_equal(functional_call(module, given, (X, 2.0)), want * 2)
    np.testing.assert_array_equal(functional_call(module, given, X, {"scale": 2.0}), want * 2)
    # What the call sets is in the dict; the module has its own again.
    assert given["calls"].tolist() == [10] and module.calls.tolist() == [1]
    assert all(a is own[n] for n, a in module.named_parameters())
    np.testing.assert_array_equal(module(X), before)
    # Of several dicts, and of what is not there, as well.
    state = ({n: a for n, a in given.items() if "bias" in n}, {"first.weight": given["first.weight"], "none.such": X})
    np.testing.assert_array_equal(functional_call(module, state, X), want)


def test_arrays_of_several_names() -> None:
    module = Tied()
    zero = np.zeros((4, 4), "float32")
    both = functional_call(module, {"second.weight": zero}, X)
    one = functional_call(module, {"second.weight": zero}, X, tie_weights=False)
    np.testing.assert_array_equal(both, np.broadcast_to(module.second.bias, (2, 4)))
    np.testing.assert_array_equal(one, both)
    first = functional_call(module, {"first.weight": zero}, X, tie_weights=False)
    assert not np.array_equal(first, both)
    with pytest.raises(ArgumentError, match=r"'first.weight', 'second.weight' are one array, and several"):
        functional_call(module, {"second.weight": zero, "first.weight": zero + 1}, X)
    functional_call(module, {"second.weight": zero, "first.weight": zero + 1}, X, tie_weights=False)


def test_the_module_has_its_own_arrays_after_a_fault() -> None:
    module = Tied()
    weight = module.first.weight
    with pytest.raises(gpujit.GpujitError):
        functional_call(module, {"first.weight": np.zeros((3, 3), "float32")}, X)
    assert module.first.weight is weight and module.second.weight is weight


def test_names_are_checked() -> None:
    module = Tied()
    with pytest.raises(ArgumentError, match=r"missing names: calls, first.bias, second.bias\n  unknown names: q"):
        functional_call(module, {"q": X, "first.weight": module.first.weight}, X, strict=True)
    with pytest.raises(ArgumentError, match="several dicts have 'q'"):
        functional_call(module, [{"q": X}, {"q": X}], X)
    with pytest.raises(ArgumentError, match="found a list"):
        functional_call(module, [[]], X)  # type: ignore[list-item]
    with pytest.raises(ArgumentError, match="a Module is needed, found a ScriptModule"):
        functional_call(gpujit.script(nn.Linear(4, 4)), {}, X)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"'0.weight' is an array of a compiled module"):
        functional_call(nn.Sequential(gpujit.script(nn.Linear(4, 4))), {"0.weight": X}, X)
    with pytest.raises(ArgumentError, match=r"give 'parametrizations.weight.original'"):
        functional_call(parametrizations.spectral_norm(nn.Linear(4, 4)), {"weight": X}, X)


@pytest.mark.torch
@pytest.mark.parametrize("tie", [True, False])
def test_the_results_are_pytorch_s(tie: bool) -> None:
    torch = pytest.importorskip("torch")

    class Theirs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.second.weight = self.first.weight
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.calls = self.calls + 1
            return self.second(self.first(x))

    ours, theirs = Tied(), Theirs()
    ours.load_state_dict({n: t.numpy() for n, t in theirs.state_dict().items()})
    given = {"first.weight": floats(4, 4, seed=3), "second.bias": floats(4, seed=4), "calls": np.ones(1, "float32")}
    tensors = {n: torch.from_numpy(a.copy()) for n, a in given.items()}
    with torch.no_grad():
        want = torch.func.functional_call(theirs, tensors, torch.from_numpy(X), tie_weights=tie)
    np.testing.assert_allclose(functional_call(ours, given, X, tie_weights=tie), want.numpy(), 1e-5, 1e-6)
    assert given["calls"].tolist() == tensors["calls"].tolist() == [2]


# ------------------------------------------------------------------------------------------------------------ skip_init

LAYERS = {
    "Linear": (4, 3), "Conv2d": (2, 3, 3), "ConvTranspose1d": (2, 3, 3), "BatchNorm2d": (4,), "LayerNorm": (4,),
    "Embedding": (5, 3), "LSTM": (3, 4), "GRUCell": (3, 4), "MultiheadAttention": (4, 2), "Bilinear": (2, 3, 4),
    "TransformerEncoderLayer": (4, 2), "PReLU": (3,),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_skipped_modules_have_the_arrays_and_draw_nothing(name: str) -> None:
    cls: Any = getattr(nn, name)
    gpujit.manual_seed(3)
    want = nn.Linear(4, 4).weight
    gpujit.manual_seed(3)
    made = utils.skip_init(cls, *LAYERS[name])
    np.testing.assert_array_equal(nn.Linear(4, 4).weight, want)
    plain = cls(*LAYERS[name])
    assert {n: (a.shape, a.dtype) for n, a in made.state_dict().items()} == {
        n: (a.shape, a.dtype) for n, a in plain.state_dict().items()
    }
    assert made.load_state_dict(plain.state_dict()) == ([], [])


def test_functions_of_init_fill_again_afterwards() -> None:
    array = np.zeros((3, 4), "float32")
    with init.skipped():
        for fill in (
            init.uniform_, init.normal_, init.trunc_normal_, init.ones_, init.eye_, init.xavier_uniform_,
            init.xavier_normal_, init.kaiming_uniform_, init.kaiming_normal_, init.orthogonal_,
        ):  # fmt: skip
            assert fill(array) is array and not array.any()
        assert init.sparse_(array, 0.1) is init.constant_(array, 3.0) is array and not array.any()
        init.dirac_(np.zeros((2, 2, 3), "float32"))
    assert init.ones_(array).all()


def test_what_cannot_be_skipped_is_refused() -> None:
    class Plain(nn.Module):
        pass

    with pytest.raises(ArgumentError, match="Plain takes no argument 'device'"):
        utils.skip_init(Plain)
    with pytest.raises(ArgumentError, match="a class of modules is needed"):
        utils.skip_init(int)  # type: ignore[type-var]
