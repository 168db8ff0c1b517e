"""Small models that run on devices of several kinds."""

from __future__ import annotations

import numpy as np

import gpujit
from gpujit import nn
from gpujit.modules import ScriptModule


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def scripted(model: nn.Module) -> ScriptModule:
    found = gpujit.script(model)
    assert isinstance(found, ScriptModule)
    return found.eval()


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.last(self.first(x).relu()).softmax(-1)


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 4)

    def forward(self, i):
        return self.table(i).sigmoid()


class OneLayer(nn.Module):
    """What a test adds ``forward`` to."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
