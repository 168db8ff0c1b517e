"""Makes examples/classifier.pt: a small scripted image classifier with random weights.

Usage: python -m examples.make_classifier   (needs torch)
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict  # noqa: UP035  # torch.jit.script reads this spelling

import torch
from torch import Tensor, nn

from tests.strip_debug import without_debug

TARGET = Path(__file__).with_name("classifier.pt")


class Block(nn.Module):
    """Depthwise-separable convolution with a residual connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.pointwise = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.pointwise(self.norm(self.depthwise(x))))


class Classifier(nn.Module):
    """Images [N, 3, H, W] to scores, the best class, and how many images were seen so far."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList([Block(16) for _ in range(3)])
        self.head = nn.Linear(16, classes)
        self.seen = 0

    def forward(self, images: Tensor, top: int = 1) -> Dict[str, Tensor]:  # noqa: UP006  # as above
        if images.dim() != 4:
            raise ValueError(f"expected images of 4 dimensions, got {images.dim()}")
        x = torch.relu(self.stem(images))
        for block in self.blocks:
            x = block(x)
        scores = torch.softmax(self.head(x.mean([2, 3])), dim=1)
        self.seen += images.size(0)
        values, classes = scores.topk(top, dim=1)
        return {"scores": values, "classes": classes}


def main() -> None:
    torch.manual_seed(0)
    model = torch.jit.script(Classifier().eval())
    TARGET.write_bytes(without_debug(model.save_to_buffer()))


if __name__ == "__main__":
    main()
