"""Buckets for layers of PyTorch, traced and scripted: the results are PyTorch's, and two plans serve eight sizes."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import gpujit

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


class Attention(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 4, batch_first=batch_first)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x, x)[0]


class Recurrent(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0] * 2


def encoder(batch_first: bool) -> Any:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=batch_first), 2)


# A layer, and the dim of the batch.
LAYERS: dict[str, tuple[Any, int]] = {
    "attention": (lambda: Attention(True), 0),
    "attention, steps first": (lambda: Attention(False), 1),
    "encoder": (lambda: encoder(True), 0),
    "encoder, steps first": (lambda: encoder(False), 1),
    "gru, steps first": (lambda: Recurrent(nn.GRU(16, 8, bidirectional=True)), 1),
    "lstm": (lambda: Recurrent(nn.LSTM(16, 8, 2, batch_first=True)), 0),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv1d(5, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Upsample(scale_factor=2),
            nn.ConvTranspose1d(8, 4, 2), nn.InstanceNorm1d(4), nn.AdaptiveMaxPool1d(3), nn.Flatten(), nn.Linear(12, 3),
        ),
        0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("is_traced", [True, False], ids=["traced", "scripted"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_give_what_pytorch_gives(name: str, is_traced: bool) -> None:
    make, dim = LAYERS[name]
    torch.manual_seed(0)
    layer = make().eval()
    shape = [6, 5, 16]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        given = (torch.randn(shape),)
        made = torch.jit.trace(layer, given, check_trace=False) if is_traced else torch.jit.script(layer)
    file = io.BytesIO()
    torch.jit.save(made, file)
    file.seek(0)
    padded = gpujit.optimize_for_inference(gpujit.load(file), buckets={0: {dim: (4, 8)}})
    for n in (1, 2, 3, 4, 6, 8):
        shape[dim] = n
        x = torch.randn(shape)
        with torch.no_grad():
            same(padded(x.numpy()), layer(x))
    stats = padded.plan_stats()
    assert (stats.made, stats.padded, stats.fitting) == (2, 4, 2)


def same(got: Any, wanted: Any) -> None:
    if isinstance(wanted, tuple):
        for a, b in zip(got, wanted, strict=True):
            same(a, b)
    else:
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-3, atol=1e-5)
