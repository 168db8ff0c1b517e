"""What new input shapes cost one module: kernels compiled, and the time until the first answer.

Usage: python bench/new_shapes.py [--threads 1] [--list]

Each model is called with one shape after the other, from the smallest on and then in another order in a module of its
own, without kernels on disk. ``--list`` names the kernels that were compiled, and for which shape.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def mlp() -> Any:
    """The perceptron of ``bench/models.py``."""
    from gpujit import nn

    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64))


def block() -> Any:
    """A layer of Bert, 256 wide."""
    from gpujit import nn
    from gpujit.nn import functional as F

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k = nn.Linear(256, 256), nn.Linear(256, 256)
            self.v, self.o = nn.Linear(256, 256), nn.Linear(256, 256)
            self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)
            self.first, self.second = nn.LayerNorm(256), nn.LayerNorm(256)

        def forward(self, x):  # scripted: a tensor
            b, t = x.shape[0], x.shape[1]
            q = self.q(x).reshape((b, t, 4, 64)).transpose(1, 2)
            k = self.k(x).reshape((b, t, 4, 64)).transpose(1, 2)
            v = self.v(x).reshape((b, t, 4, 64)).transpose(1, 2)
            a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape((b, t, 256))
            x = self.first(x + self.o(a))
            return self.second(x + self.down(F.gelu(self.up(x))))

    return Block()


def lstm() -> Any:
    """Two layers of 128 units."""
    from gpujit import nn

    return nn.LSTM(64, 128, 2, batch_first=True)


def convs() -> Any:
    """Some convolutions, pooled, and a classifier."""
    from gpujit import nn

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(), nn.Conv2d(32, 64, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def rows() -> Any:
    """What has no products: sums, a norm, softmax."""
    from gpujit import nn

    return nn.Sequential(nn.LayerNorm(100), nn.GELU(), nn.Softmax(dim=-1))


CASES: dict[str, tuple[Callable[[], Any], list[tuple[int, ...]]]] = {
    "rows and pointwise, 1 to 32 rows": (rows, [(n, 100) for n in range(1, 33)]),
    "mlp, batch 1 to 32": (mlp, [(n, 256) for n in range(1, 33)]),
    "Bert layer, 1 to 64 tokens": (block, [(1, n, 256) for n in range(1, 65)]),
    "Bert layer, batch 1 to 32": (block, [(n, 16, 256) for n in range(1, 33)]),
    "lstm, batch 1 to 32": (lstm, [(n, 10, 64) for n in range(1, 33)]),
    "lstm, 1 to 64 steps": (lstm, [(1, n, 64) for n in range(1, 65)]),
    "convolutions, batch 1 to 32": (convs, [(n, 3, 32, 32) for n in range(1, 33)]),
    "convolutions, 8 to 64 pixels": (convs, [(1, 3, n, n) for n in range(8, 65, 2)]),
}


def measure(name: str, is_shuffled: bool, lists: bool) -> None:
    """A line for one case in this process."""
    import gpujit
    from gpujit.kernels import supply

    make, shapes = CASES[name]
    random = np.random.default_rng(0)
    if is_shuffled:
        shapes = [shapes[k] for k in random.permutation(len(shapes))]
    gpujit.manual_seed(0)
    module = gpujit.optimize_for_inference(gpujit.script(make().eval()))
    found: list[tuple[int, float]] = []
    for shape in shapes:
        x = random.standard_normal(shape, np.float32)
        before, start = supply.counters.compiled, time.perf_counter()
        module(x)
        found.append((supply.counters.compiled - before, (time.perf_counter() - start) * 1e3))
        if lists and found[-1][0]:
            print(shape, found[-1])
    later = found[1:]
    counts = [n for n, _ in later]
    with_some = [ms for n, ms in later if n]
    without = [ms for n, ms in later if not n]
    cells = (
        f"{found[0][0]} | {sum(counts)} | {len(with_some)} of {len(later)} | "
        f"{median(with_some):.0f} ms" if with_some else f"{found[0][0]} | 0 | 0 of {len(later)} | -"
    )
    print(f"| {name}{', shuffled' * is_shuffled} | {cells} | {median(without or [0]):.0f} ms |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("--list", action="store_true", help="say for which shapes something was compiled")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        measure(arguments.child[0], arguments.child[1] == "1", arguments.list)
        return 0
    print("| case | first shape compiles | all others together | shapes that compile | such a call | other calls |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    environment = {**os.environ, "GPUJIT_THREADS": str(arguments.threads), "GPUJIT_CACHE": "0"}
    for name in CASES:
        for is_shuffled in "01":
            if arguments.only in name:
                command = [sys.executable, __file__, *sys.argv[1:], "--child", name, is_shuffled]
                subprocess.run(command, env=environment, check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
