"""Layers scripted by gpujit give what they give eagerly: those of gpujit.nn, and, where torch is there, of torch.nn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.ir.verify import verify
from tests.nn.cases import CASES, Case

SCRIPTABLE = [c for c in CASES if c.scriptable and not c.seeded]


def flat(value: Any) -> list[Any]:
    """The tensors of a nested result in order, those that are None left out."""
    if isinstance(value, (list, tuple)):
        return [v for part in value for v in flat(part)]
    return [] if value is None else [value.detach().numpy() if hasattr(value, "detach") else np.asarray(value)]


def assert_equal(got: Any, want: Any, tolerance: float) -> None:
    found, wanted = flat(got), flat(want)
    assert len(found) == len(wanted)
    for g, w in zip(found, wanted, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, atol=tolerance, rtol=10 * tolerance)


@pytest.mark.parametrize("case", SCRIPTABLE, ids=lambda c: c.name)
def test_layers_of_gpujit(case: Case) -> None:
    layer = case.build(nn).train(case.training)
    scripted = gpujit.script(layer)
    # In this order: a scripted layer shares its buffers with the live one.
    state = {k: np.copy(v) for k, v in layer.state_dict().items()}
    want = layer(*case.inputs, **case.kwargs)
    layer.load_state_dict(state)
    assert_equal(scripted(*case.inputs, **case.kwargs), want, case.tolerance)
    for method in scripted.methods.values():
        verify(method.graph)


TORCH_LAYERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "linear": (lambda n: n.Linear(4, 3), "2"), "conv": (lambda n: n.Conv2d(4, 6, 3, padding=1), "4"),
    "conv_same": (lambda n: n.Conv2d(4, 6, 3, padding="same"), "4"),
    "conv_reflect": (lambda n: n.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), "4"),
    "conv_transpose": (lambda n: n.ConvTranspose2d(4, 6, 3, stride=2), "4"),
    "batch_norm": (lambda n: n.BatchNorm2d(4), "4"),
    "layer_norm": (lambda n: n.LayerNorm(8), "4"), "group_norm": (lambda n: n.GroupNorm(2, 4), "4"),
    "lstm": (lambda n: n.LSTM(4, 5, 2, batch_first=True, bidirectional=True), "s"), "gru": (lambda n: n.GRU(4, 5), "s"),
    "attention": (lambda n: n.TransformerEncoderLayer(4, 2, 8, batch_first=True), "s"),
    "encoder": (lambda n: n.TransformerEncoder(n.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2), "s"),
    "pool": (lambda n: n.Sequential(n.MaxPool2d(2), n.AvgPool2d(2), n.AdaptiveAvgPool2d(1), n.Flatten()), "4"),
    "pool_indices": (lambda n: n.MaxPool2d(2, return_indices=True), "4"),
    "upsample": (lambda n: n.Upsample(scale_factor=2.0, mode="bilinear", align_corners=False), "4"),
    "activations": (lambda n: n.Sequential(n.ReLU(), n.GELU(), n.SiLU(), n.Hardtanh(), n.PReLU(), n.Softmax(1)), "4"),
    "dropout": (lambda n: n.Sequential(n.Dropout(0.5), n.Linear(4, 2)), "2"),
    "shuffle": (lambda n: n.Sequential(n.PixelShuffle(2), n.ReflectionPad2d(1)), "4"),
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("name", TORCH_LAYERS)
def test_layers_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    build, kind = TORCH_LAYERS[name]
    layer = build(torch.nn).eval()
    x = {"2": torch.randn(3, 4), "4": torch.randn(2, 4, 8, 8), "s": torch.randn(2, 6, 4)}[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = gpujit.script(layer)
        assert_equal(scripted(x.numpy()), layer(x), 1e-5)


@pytest.mark.torch
def test_a_torch_layer_shares_its_memory() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(2, 2)
    scripted = gpujit.script(layer)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.fill_(3)
    np.testing.assert_array_equal(scripted(np.ones((1, 2), np.float32)), [[3, 3]])
