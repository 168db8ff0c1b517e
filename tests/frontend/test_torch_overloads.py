"""Functions of PyTorch with several signatures, scripted after PyTorch scripted them, which makes it forget those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpujit

torch: Any = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.torch


def scaled(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, scale_factor=2.0)


def sized(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, size=[5, 7], mode="bilinear")


def upsampled(x: torch.Tensor) -> torch.Tensor:
    return F.upsample(x, 6)


def by_count(x: torch.Tensor) -> torch.Tensor:
    return torch.tensordot(x, x, dims=1)


def by_lists(x: torch.Tensor) -> torch.Tensor:
    return torch.tensordot(x, x, dims=([1, 2], [1, 2]))


def by_tensor(x: torch.Tensor) -> torch.Tensor:
    return torch.tensordot(x, x, torch.tensor([[1, 2], [1, 2]]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fn", [scaled, sized, upsampled, by_count, by_lists, by_tensor])
@pytest.mark.parametrize("torch_is_first", [False, True])
def test_signatures_are_found(fn: Callable[..., Any], torch_is_first: bool) -> None:
    x = np.random.default_rng(0).standard_normal((1, 4, 4, 1) if "by" in fn.__name__ else (1, 2, 4, 4)).astype("f4")
    want = (torch.jit.script(fn) if torch_is_first else fn)(torch.from_numpy(x))
    np.testing.assert_allclose(gpujit.script(fn)(x), want.numpy(), rtol=1e-5, atol=1e-6)
