"""Buckets: padded calls against unpadded ones, plans and counters, refusals, threads, bad options."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import gpujit
from gpujit import StaticModule, StaticModuleOptions
from gpujit.ir.parser import parse_graph
from gpujit.nn import functional as F
from gpujit.static_runtime.buckets import Bucket
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError, InternalError, OpError, PaddingError
from gpujit.testing import resolve_node

nn = gpujit.nn
Tensor = gpujit.Tensor
SIZES = (4, 16, 20)


def f32(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ids(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 11, shape)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3), nn.Softmax(-1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, stride=2)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return self.head(y.mean([2, 3]))


class Encoder(nn.Module):
    """Embeddings, self-attention with a mask of its own, and a network, as BERT has them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 16)
        self.places = nn.Embedding(12, 16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)
        self.pool = nn.Linear(16, 16)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        b, t = ids.size(0), ids.size(1)
        mask = torch.zeros([b, 1, 1, t]).masked_fill((ids == 0)[:, None, None, :], -10000.0)
        x = self.words(ids) + self.places(torch.arange(t).unsqueeze(0).expand(b, t))
        q, k, v = self.qkv(x).view(b, t, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        w = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / 2.0 + mask, -1)
        y = torch.matmul(w, v).transpose(1, 2).reshape(b, t, 16)
        x = self.norm(x + self.out(y))
        return x, torch.tanh(self.pool(x[:, 0]))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(6, 8, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y, (h, c) = self.layer(x)
        return {"steps": y, "state": h, "last": self.head(y[:, -1])}


class Two(nn.Module):
    """Two inputs of one batch, a third without, and a result that has none."""

    def forward(self, x: Tensor, y: Tensor, scale: Tensor) -> tuple[Tensor, list[Tensor], int]:
        return x * scale + y, [scale * 2, x.transpose(0, 1), x[0]], x.size(1)


import torch_stand_in  # noqa: E402
