"""Batches of 1 to 32 rows in random order: the first calls of a model with buckets against one without.

Usage: python bench/buckets.py [--calls 200] [--rounds 3] [--only mlp,lstm]

Each measurement is a process of its own, so that plans are made anew; compiled kernels lie on disk. Sides are
interleaved; numbers are medians of processor time, of one thread. Needs no torch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gpujit

nn = gpujit.nn
SIZES = 32
SIDES: dict[str, Any] = {"none": None, "powers": "powers", "by 4": tuple(range(4, SIZES + 1, 4))}


def mlp() -> tuple[Any, tuple[int, ...]]:
    """Three linear layers."""
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64)), (256,)


def conv() -> tuple[Any, tuple[int, ...]]:
    """Four convolutions on small images."""
    layers: list[Any] = []
    for n, m in ((3, 32), (32, 64), (64, 64), (64, 128)):
        layers += [nn.Conv2d(n, m, 3, padding=1), nn.BatchNorm2d(m), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10)), (3, 32, 32)


def encoder() -> tuple[Any, tuple[int, ...]]:
    """Two encoder layers, 128 wide, on 32 steps."""
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (32, 128)


def lstm() -> tuple[Any, tuple[int, ...]]:
    """One LSTM of 128 on 20 steps."""
    return nn.LSTM(64, 128, batch_first=True), (20, 64)


CASES = {f.__name__: f for f in (mlp, conv, encoder, lstm)}


def first_calls(case: str, side: str, calls: int) -> dict[str, float]:
    """Seconds of the first calls, plans made, and microseconds of a call after that."""
    gpujit.manual_seed(0)
    made, shape = CASES[case]()
    sizes = SIDES[side]
    model = gpujit.script(made.eval())
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((n, *shape)).astype(np.float32) for n in rng.integers(1, SIZES + 1, calls)]
    fast = gpujit.optimize_for_inference(model, threads=1, buckets=sizes and {0: {0: sizes}})
    took = []
    for _ in range(2):
        start = time.process_time()
        for x in batches:
            fast(x)
        took.append(time.process_time() - start)
    return {"first": took[0], "plans": fast.plan_stats().made, "later": took[1] / calls * 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(first_calls(*options.one, options.calls)))
        return
    print("| case | buckets | plans | first calls, ms | / without | a call later, us | / without |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for case in options.only.split(","):
        with tempfile.TemporaryDirectory() as cache:
            for side in SIDES:
                run(case, side, options.calls, cache)
            found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
            for _ in range(options.rounds):
                for side in SIDES:
                    found[side].append(run(case, side, options.calls, cache))
        report(case, found)


def run(case: str, side: str, calls: int, cache: str) -> dict[str, float]:
    """What a process of its own measures."""
    command = [sys.executable, __file__, "--calls", str(calls), "--one", case, side]
    environment = os.environ | {"GPUJIT_CACHE_DIR": cache, "OMP_NUM_THREADS": "1", "GPUJIT_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def report(case: str, found: dict[str, list[dict[str, float]]]) -> None:
    """A row for each side, with ratios of medians."""
    middle = {side: {k: median(r[k] for r in runs) for k in runs[0]} for side, runs in found.items()}
    base = middle["none"]
    for side, m in middle.items():
        print(
            f"| {case} | {side} | {m['plans']:.0f} | {m['first'] * 1e3:,.0f} | {m['first'] / base['first']:.2f} "
            f"| {m['later']:,.0f} | {m['later'] / base['later']:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
