"""Shapes that come and go: few kernels are compiled for them, and results do not depend on which there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.kernels import supply
from gpujit.kernels.templates import bound
from gpujit.support.config import config
from tests.static_runtime.help import f32


class Cell(nn.Module):
    """A recurrent layer, whose sequence is the result."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(12, 40, batch_first=True)

    def forward(self, x):
        return self.inner(x)[0]


class Attention(nn.Module):
    """One head over all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(self.q(x), self.k(x), x)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(96, 130), nn.ReLU(), nn.Linear(130, 10))


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(), nn.Conv2d(32, 48, 1), nn.ReLU(),
    )  # fmt: skip


# What makes the module, the shapes, and how many kernels the first one may compile and all others together.
CASES = {
    "perceptron": (perceptron, [(n, 96) for n in (3, *range(1, 33))], 12),
    "rows": (lambda: nn.Sequential(nn.LayerNorm(50), nn.Softmax(-1)), [(n, 50) for n in range(2, 30)], 0),
    "attention": (Attention, [(2, n, 64) for n in range(1, 31)], 12),
    "recurrent": (Cell, [(n, 5, 12) for n in range(1, 17)], 3),
    "images": (images, [(1, 3, n, n + 3) for n in range(12, 40, 2)], 4),
}


@pytest.fixture(autouse=True)
def nothing_at_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No kernel of a template is there, nor on disk."""
    monkeypatch.setattr(bound, "_kernels", {})
    with config(cache=False, threads=1):
        yield


def made(make: Callable[[], nn.Module]) -> gpujit.ScriptModule:
    gpujit.manual_seed(5)
    return gpujit.optimize_for_inference(gpujit.script(make().eval()))


@pytest.mark.parametrize("name", CASES)
def test_new_shapes_compile_little_and_round_alike(name: str) -> None:
    make, shapes, most = CASES[name]
    module = made(make)
    module(f32(*shapes[0]))
    before = supply.counters.compiled
    results = [module(f32(*shape, seed=k)) for k, shape in enumerate(shapes)]
    assert supply.counters.compiled - before <= most
    # A module's first plan has the quickest code, whatever there is.
    for k in range(0, len(shapes), 4):
        assert made(make)(f32(*shapes[k], seed=k)).tobytes() == results[k].tobytes(), shapes[k]


def test_code_of_steps_that_are_joined_is_not_compiled() -> None:
    module = made(lambda: nn.Sequential(nn.Linear(20, 30), nn.ReLU()))
    module(f32(4, 20))
    assert [key[0][1].epilogue.activation for key in bound._kernels] == ["relu"]


def test_steps_whose_joint_code_is_not_at_hand_stay_apart() -> None:
    linear = nn.Linear(20, 30)
    x = f32(4, 20)
    for part, given in ((linear, x), (nn.Sequential(nn.ReLU()), f32(4, 30))):
        gpujit.optimize_for_inference(gpujit.script(part.eval()))(given)
    plain = gpujit.script(nn.Sequential(linear, nn.ReLU()).eval())
    module = gpujit.optimize_for_inference(plain, compile="never")
    np.testing.assert_allclose(module(x), plain(x), rtol=1e-5, atol=1e-6)
    assert [key[0][1].epilogue.activation for key in bound._kernels] == [None]
    # With the code of both in one step, that is what runs.
    gpujit.optimize_for_inference(plain)(x)
    assert "relu" in [key[0][1].epilogue.activation for key in bound._kernels]
    kinds = [
        [list(p.runner.plan([]).kinds.values()).count("native") for p in m._program.executors()[0].plans()]
        for m in (module, again(plain, x))
    ]
    assert kinds == [[2], [1]]


def again(plain: gpujit.ScriptModule, x: np.ndarray) -> gpujit.ScriptModule:
    """A module that may not compile, after a call."""
    module = gpujit.optimize_for_inference(plain, compile="never")
    np.testing.assert_allclose(module(x), plain(x), rtol=1e-5, atol=1e-6)
    return module
