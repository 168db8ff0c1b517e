"""``parametrizations.orthogonal``: orthonormal columns, PyTorch's numbers and names."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.nn.utils import parametrizations, parametrize
from gpujit.support.errors import ArgumentError, LayerError
from tests.nn.cases import floats

MAPS = (None, "matrix_exp", "cayley", "householder")
SHAPES = ((4, 4), (6, 3), (3, 6), (2, 5, 3), (2, 3, 3))


class Holds(nn.Module):
    """One parameter, which calls are multiplied by."""

    def __init__(self, weight: np.ndarray) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Any) -> Any:
        return gpujit.ops.matmul(x, self.weight)


def assert_orthonormal(q: np.ndarray) -> None:
    if q.shape[-2] < q.shape[-1]:
        q = np.swapaxes(q, -2, -1)
    product = np.conj(np.swapaxes(q, -2, -1)) @ q
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(q.shape[-1]), product.shape), atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("kind", "base"), itertools.product(MAPS, (True, False)))
def test_weights_are_orthonormal_and_can_be_set(shape: tuple[int, ...], kind: str | None, base: bool) -> None:
    module = parametrizations.orthogonal(Holds(floats(*shape)), orthogonal_map=kind, use_trivialization=base)
    assert module.weight.shape == shape and module.weight.dtype == np.float32
    assert_orthonormal(module.weight)
    # Whatever the original is, it stays so.
    original = module.parametrizations.weight.original
    if kind in ("matrix_exp", "cayley"):
        original[...] = floats(*shape, seed=3)
        assert_orthonormal(module.weight)
    q = np.array(parametrizations.orthogonal(Holds(floats(*shape, seed=5)), orthogonal_map=kind).weight)
    chosen = kind or ("matrix_exp" if shape[-1] == shape[-2] else "householder")
    if base or chosen == "householder":
        module.weight = q
        np.testing.assert_allclose(module.weight, q, atol=1e-5)
    else:
        with pytest.raises(NotImplementedError, match="use_trivialization"):
            module.weight = q


def test_complex_weights() -> None:
    weight = (floats(3, 3) + 1j * floats(3, 3, seed=1)).astype("complex64")
    for kind in (None, "cayley"):
        assert_orthonormal(parametrizations.orthogonal(Holds(weight), orthogonal_map=kind).weight)
    with pytest.raises(ArgumentError, match="is for real numbers"):
        parametrizations.orthogonal(Holds(weight), orthogonal_map="householder")


def test_modules_are_copied_traced_and_have_their_weight_again() -> None:
    module = parametrizations.orthogonal(nn.Linear(3, 5)).eval()
    x = floats(2, 3)
    want = module(x)
    np.testing.assert_array_equal(copy.deepcopy(module)(x), want)
    traced = gpujit.trace(module, (x,))
    np.testing.assert_allclose(gpujit.load(traced.save_to_buffer())(x), want, 1e-5, 1e-6)
    assert sorted(module.state_dict()) == [
        "bias", "parametrizations.weight.0.base", "parametrizations.weight.original"
    ]  # fmt: skip
    parametrize.remove_parametrizations(module, "weight")
    np.testing.assert_array_equal(module(x), want)


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("none", {}, "has no parameter or buffer 'none'"),
        ("bias", {}, "at least 2 dimensions are needed, found 1"),
        ("weight", {"orthogonal_map": "qr"}, "is one of 'matrix_exp', 'cayley', 'householder'; found 'qr'"),
    ],
)
def test_what_cannot_be_orthogonal_is_refused(name: str, options: Any, why: str) -> None:
    with pytest.raises((ArgumentError, LayerError), match=why):
        parametrizations.orthogonal(nn.Linear(3, 3), name, **options)
    module = parametrizations.orthogonal(nn.Linear(3, 3))
    with pytest.raises(ArgumentError, match=r"the shape \[3, 3\] is needed"):
        module.weight = np.zeros((2, 3), "float32")


@pytest.mark.torch
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("kind", "base"), itertools.product(MAPS, (True, False)))
def test_weights_are_pytorch_s(shape: tuple[int, ...], kind: str | None, base: bool) -> None:
    torch = pytest.importorskip("torch")

    class Theirs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.from_numpy(floats(*shape)))

    make = torch.nn.utils.parametrizations.orthogonal
    options: dict[str, Any] = {"orthogonal_map": kind, "use_trivialization": base}
    theirs = make(Theirs(), **options)
    ours = parametrizations.orthogonal(Holds(floats(*shape)), **options)
    np.testing.assert_allclose(ours.weight, theirs.weight.detach().numpy(), atol=1e-5)
    # States move both ways, with other numbers in the original.
    state = {n: t.detach().numpy().copy() for n, t in theirs.state_dict().items()}
    assert sorted(state) == sorted(ours.state_dict())
    moved = state["parametrizations.weight.original"]
    moved += np.where(np.eye(*shape[-2:], dtype=bool), 0, 0.3 * floats(*shape, seed=7)).astype("float32")
    ours.load_state_dict(state)
    theirs.load_state_dict({n: torch.from_numpy(a) for n, a in state.items()})
    np.testing.assert_allclose(ours.weight, theirs.weight.detach().numpy(), atol=1e-5)
