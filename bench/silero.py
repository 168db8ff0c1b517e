"""gpujit's interpreter against torch.jit on a real voice detector: loading and one chunk, in one run, one thread each.

Usage: python bench/silero.py silero_vad.jit [--check]     (needs torch; the model comes with ci/fetch_models.sh)

Rounds are interleaved and medians compared, so that noise of the machine meets both. ``--check`` fails when loading or
a chunk takes more than LIMIT times what torch.jit takes.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np

import gpujit

LIMIT = 2.0


def seconds(call: Callable[[], object], calls: int) -> float:
    """Time of one call, averaged over a few."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def compare(ours: Callable[[], object], theirs: Callable[[], object], rounds: int, calls: int) -> tuple[float, float]:
    """Median times of both, measured in turns."""
    for call in (ours, theirs):
        seconds(call, calls)
    pairs = [(seconds(ours, calls), seconds(theirs, calls)) for _ in range(rounds)]
    return median(p[0] for p in pairs), median(p[1] for p in pairs)


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--check", action="store_true", help=f"exit 1 when a ratio is above {LIMIT}")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path = arguments.model
    rows = []
    ours, theirs = compare(lambda: gpujit.load(path), lambda: torch.jit.load(path), rounds=7, calls=1)
    rows.append(("load", ours, theirs))
    for rate, size in ((16000, 512), (8000, 256)):
        model, peer = gpujit.load(path), torch.jit.load(path)
        audio = (np.random.default_rng(0).standard_normal((1, size)) * 0.1).astype(np.float32)
        tensor = torch.from_numpy(audio)
        with torch.no_grad():
            ours, theirs = compare(lambda: model(audio, rate), lambda: peer(tensor, rate), rounds=25, calls=40)  # noqa: B023
        rows.append((f"chunk of {size} at {rate} Hz", ours, theirs))
    print(f"{'case':26} {'gpujit us':>10} {'torch.jit us':>13} {'ratio':>6}")
    for name, a, b in rows:
        print(f"{name:26} {a * 1e6:10.1f} {b * 1e6:13.1f} {a / b:6.2f}")
    return 1 if arguments.check and max(a / b for _, a, b in rows) > LIMIT else 0


if __name__ == "__main__":
    raise SystemExit(main())
