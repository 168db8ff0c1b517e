"""Layers with weights kept as bfloat16 and int8, against float32 ones, torch.jit and PyTorch's dynamic int8 layers.

python bench/narrow_weights.py        one table; one thread, one process, interleaved rounds, medians
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import sys
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import gpujit

WEIGHTS = ("float32", "bfloat16", "int8")
CASES = [
    ((256, 512, 512, 64), 1),
    ((1024, 4096, 1024), 1),
    ((4096, 4096, 4096), 1),
    ((1024, 4096, 1024), 8),
    ((1024, 4096, 1024), 64),
]
ROUNDS, CALLS = 41, 5


def model(sizes: tuple[int, ...]) -> torch.nn.Module:
    """Linear layers with a relu behind each."""
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers).eval()


def sides(sizes: tuple[int, ...], rows: int) -> tuple[dict[str, Callable[[], Any]], np.ndarray]:
    """Calls by name, and what the model gives."""
    made, x = model(sizes), torch.randn(rows, sizes[0], generator=torch.Generator().manual_seed(1))
    file = gpujit.load(torch.jit.script(made).save_to_buffer())
    given = x.numpy()
    found: dict[str, Callable[[], Any]] = {}
    for weights in WEIGHTS:
        fast = gpujit.optimize_for_inference(file, weights=weights, threads=1, example_inputs=[given])
        found[weights] = lambda fast=fast: fast(given)
    frozen = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(made)))
    found["torch.jit"] = lambda: frozen(x)
    dynamic = torch.ao.quantization.quantize_dynamic(made, {torch.nn.Linear}, torch.qint8)
    found["torch dynamic int8"] = lambda: dynamic(x)
    return found, made(x).detach().numpy()


def main() -> int:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    names = [*WEIGHTS, "torch.jit", "torch dynamic int8"]
    print(f"| layers | rows | {' | '.join(names)} | bfloat16 over float32 | int8 over float32 | int8 over torch's |")
    print(f"| --- | ---: |{' ---: |' * (len(names) + 3)}")
    with torch.no_grad():
        for sizes, rows in CASES:
            found, wanted = sides(sizes, rows)
            times: dict[str, list[float]] = {name: [] for name in names}
            for _ in range(ROUNDS):
                for name in names:
                    found[name]()
                    start = time.perf_counter()
                    for _ in range(CALLS):
                        found[name]()
                    times[name].append((time.perf_counter() - start) / CALLS)
            t = {name: median(values) * 1e6 for name, values in times.items()}
            scale = np.abs(wanted).max()
            errors = {n: float(np.abs(np.asarray(found[n]()) - wanted).max() / scale) for n in names}
            cells = " | ".join(f"{t[n]:,.0f} us ({errors[n]:.0e})" for n in names)
            ratios = [t["float32"] / t["bfloat16"], t["float32"] / t["int8"], t["torch dynamic int8"] / t["int8"]]
            print(f"| {'-'.join(map(str, sizes))} | {rows} | {cells} | {' | '.join(f'{r:.2f}' for r in ratios)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
