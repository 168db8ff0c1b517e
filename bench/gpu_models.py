"""Models of usual shape with random weights, written once for ``torch.nn`` and for ``gpujit.nn``.

``make(name, nn, functional)`` gives a module to script, in eval mode, and the shapes and dtypes of its inputs for a
batch. Nothing else is needed than the layers themselves: images that run benchmarks have no model collections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Inputs = list[tuple[tuple[int, ...], str]]
TOKENS = 128


def resnet(nn: Any, functional: Any, layers: tuple[int, ...], deep: bool, size: int = 224) -> tuple[Any, Inputs]:
    """A residual net of basic or bottleneck blocks."""

    def unit(c_in: int, c_out: int, kernel: int, stride: int, relu: bool = True) -> Any:
        conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(c_out), *([nn.ReLU()] if relu else []))

    class Block(nn.Module):
        def __init__(self, c_in: int, width: int, stride: int) -> None:
            super().__init__()
            c_out = width * 4 if deep else width
            if deep:
                parts = [unit(c_in, width, 1, 1), unit(width, width, 3, stride), unit(width, c_out, 1, 1, False)]
            else:
                parts = [unit(c_in, width, 3, stride), unit(width, width, 3, 1, False)]
            self.body = nn.Sequential(*parts)
            same = stride == 1 and c_in == c_out
            self.shortcut = nn.Identity() if same else unit(c_in, c_out, 1, stride, False)
            self.relu = nn.ReLU()

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.relu(self.body(x) + self.shortcut(x))

    class Resnet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            blocks, c_in = [], 64
            for k, count in enumerate(layers):
                width = 64 << k
                for n in range(count):
                    blocks.append(Block(c_in, width, 2 if k and not n else 1))
                    c_in = width * 4 if deep else width
            self.stem = nn.Sequential(unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
            self.blocks = nn.Sequential(*blocks)
            self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(c_in, 1000))

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.head(self.blocks(self.stem(x)))

    return Resnet(), [((3, size, size), "float32")]


def encoder_layers(nn: Any, functional: Any, width: int, heads: int, inner: int, first: bool) -> type:
    """A layer of a transformer's encoder, which normalises its input first or its result."""
    F = functional

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = heads
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)

        def forward(self, x):  # type: ignore[no-untyped-def]
            n, t, c = x.size(0), x.size(1), x.size(2)
            qkv = self.qkv(x).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
            found = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
            return self.out(found.transpose(1, 2).reshape(n, t, c))

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = first
            self.attention = Attention()
            self.inner = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x):  # type: ignore[no-untyped-def]
            if self.first:
                x = x + self.attention(self.norm1(x))
                return x + self.inner(self.norm2(x))
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.inner(x))

    return Layer


def bert(nn: Any, functional: Any, width: int, layers: int, heads: int, tokens: int = TOKENS) -> tuple[Any, Inputs]:
    """Embeddings of words and places, and an encoder."""
    layer = encoder_layers(nn, functional, width, heads, 4 * width, False)

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(1000, width), nn.Embedding(512, width)
            self.norm = nn.LayerNorm(width)
            self.layers = nn.Sequential(*(layer() for _ in range(layers)))

        def forward(self, ids):  # type: ignore[no-untyped-def]
            places = self.places.weight[: ids.size(1)]
            return self.layers(self.norm(self.words(ids) + places))

    return Bert(), [((tokens,), "int64")]


def vit(nn: Any, functional: Any, width: int, layers: int, heads: int, size: int = 224) -> tuple[Any, Inputs]:
    """A vision transformer on patches of 16 by 16 pixels."""
    layer = encoder_layers(nn, functional, width, heads, 4 * width, True)

    class Vit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, 16, 16)
            self.places = nn.Embedding((size // 16) ** 2, width)
            self.layers = nn.Sequential(*(layer() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

        def forward(self, x):  # type: ignore[no-untyped-def]
            x = self.patches(x).flatten(2).transpose(1, 2) + self.places.weight
            return self.head(self.norm(self.layers(x)).mean(1))

    return Vit(), [((3, size, size), "float32")]


def mlp(nn: Any, functional: Any) -> tuple[Any, Inputs]:
    parts = [nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64)]
    return nn.Sequential(*parts), [((256,), "float32")]


# The sizes that benchmarks measure, and small ones of the same structure.
MODELS: dict[str, Callable[[Any, Any], tuple[Any, Inputs]]] = {
    "mlp": mlp,
    "resnet50": lambda nn, f: resnet(nn, f, (3, 4, 6, 3), True),
    "bert_base": lambda nn, f: bert(nn, f, 768, 12, 12),
    "deit_tiny": lambda nn, f: vit(nn, f, 192, 12, 3),
    "resnet18": lambda nn, f: resnet(nn, f, (2, 2, 2, 2), False),
    "bert_small": lambda nn, f: bert(nn, f, 256, 2, 4, 32),
    "resnet_tiny": lambda nn, f: resnet(nn, f, (1, 1), False, 8),
    "bert_tiny": lambda nn, f: bert(nn, f, 16, 1, 2, 4),
    "deit_toy": lambda nn, f: vit(nn, f, 16, 1, 2, 32),
}


def make(name: str, nn: Any, functional: Any) -> tuple[Any, Inputs]:
    """A model in eval mode, and what it takes for each element of a batch."""
    model, inputs = MODELS[name](nn, functional)
    return model.eval(), inputs


def draw(inputs: Inputs, batch: int) -> list[np.ndarray]:
    """Random inputs for a batch; integers are below 1000."""
    random = np.random.default_rng(0)
    return [
        random.integers(0, 1000, (batch, *shape)) if dtype == "int64"
        else random.standard_normal((batch, *shape), dtype=np.float32)
        for shape, dtype in inputs
    ]  # fmt: skip
