"""Models in the shape of well-known ones, small: what the report is opened for."""

from __future__ import annotations

from typing import Any

import numpy as np

import gpujit
from gpujit import nn

Tensor = gpujit.Tensor


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        if stride == 1:
            self.downsample = nn.Identity()
        else:
            self.downsample = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class ResNet18(nn.Module):
    """A stem, four layers of two blocks, a head."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Block(width, width, 1), Block(width, width, 1))
        self.layer2 = nn.Sequential(Block(width, 2 * width, 2), Block(2 * width, 2 * width, 1))
        self.layer3 = nn.Sequential(Block(2 * width, 4 * width, 2), Block(4 * width, 4 * width, 1))
        self.layer4 = nn.Sequential(Block(4 * width, 8 * width, 2), Block(8 * width, 8 * width, 1))
        self.fc = nn.Linear(8 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean([2, 3]))


class Layer(nn.Module):
    """Attention, then two linear layers, each added to what it was given and normed."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.intermediate = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU()
        self.output = nn.Linear(4 * width, width)
        self.output_norm = nn.LayerNorm(width)

    def split(self, x: Tensor) -> Tensor:
        return x.view([x.size(0), x.size(1), self.heads, x.size(2) // self.heads]).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        weights = (q.matmul(k.transpose(2, 3)) * 0.25).softmax(-1)
        mixed = weights.matmul(v).transpose(1, 2).reshape([x.size(0), x.size(1), x.size(2)])
        x = self.norm(self.dense(mixed) + x)
        return self.output_norm(self.output(self.gelu(self.intermediate(x))) + x)


class Bert(nn.Module):
    """Embeddings, layers, a pooled first token."""

    def __init__(self, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(100, width)
        self.norm = nn.LayerNorm(width)
        self.encoder = nn.Sequential(*[Layer(width, 2) for _ in range(layers)])
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.encoder(self.norm(self.words(ids)))
        return self.pooler(x[:, 0]).tanh()


class Same(nn.Module):
    """A graph without operators."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def resnet18() -> tuple[Any, list[np.ndarray]]:
    """The module and inputs for it."""
    gpujit.manual_seed(0)
    return gpujit.script(ResNet18().eval()), [np.random.default_rng(0).standard_normal((1, 3, 32, 32), np.float32)]


def bert() -> tuple[Any, list[np.ndarray]]:
    """The module and inputs for it."""
    gpujit.manual_seed(0)
    return gpujit.script(Bert().eval()), [np.random.default_rng(0).integers(0, 100, (1, 16))]
