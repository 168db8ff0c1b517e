"""Whole models, planned, against torch.jit frozen, torch.compile and ONNX Runtime: all in one run, rounds interleaved.

Usage: python bench/models.py [--threads 1,2] [--only bert,resnet] [--no-compile] [--silero silero_vad.jit] [--json OUT]
       python bench/models.py --steps resnet18 [--threads 1]
       python bench/models.py --interpreter [--ops]     (gpujit's interpreter against torch.jit: bench/interpreted.py)

Needs torch; cases of packages that are not installed are left out, and peers that are not. Each thread count has a
process of its own. Outputs are compared with torch.jit's first. One thread: medians of processor time; more: of wall
clock, for which the machine should have nothing else to do. ``--steps`` says where a plan's time goes: for each step
its shape, time, and GFLOP/s or GB/s against what the machine reaches in a loop of nothing but that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from results import arrays

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

# Seconds that one measurement of one side takes at least.
SHORTEST = 0.01
# How far outputs may lie from torch.jit's, as a share of the largest number.
FURTHEST = 2e-3
# Seconds until another side's threads sleep.
IDLE = 0.02
PEERS = ("torch.jit", "torch.compile", "onnx runtime")


def sides(path: Path, given: list[Any], threads: int, with_compile: bool) -> dict[str, Callable[[], Any]]:
    """What is to be timed, by name; peers that cannot be had are told on standard error."""
    import peers

    makers: dict[str, Callable[[], Any]] = {
        "gpujit": lambda: peers.gpujit_call(path, given),
        "torch.jit": lambda: peers.jit_call(path, given),
        "torch.compile": lambda: peers.compile_call(path, given) if with_compile else None,
        "onnx runtime": lambda: peers.onnx_call(path, given, threads),
    }
    found = {}
    wanted: list[np.ndarray] = []
    for name in ("torch.jit", "gpujit", *PEERS[1:]):
        try:
            call = makers[name]()
            if call is None:
                continue
            got = list(arrays(call()))
            wanted = wanted or got
            # torch.jit compiles at its first calls.
            for _ in range(2):
                call()
        except Exception as fault:
            print(f"{path.stem}: no {name}: {type(fault).__name__}: {str(fault)[:300]}", file=sys.stderr)
            continue
        apart = max(distance(a, b) for a, b in zip(got, wanted, strict=False))
        if apart > FURTHEST:
            print(f"{path.stem}: {name} is {apart:.1e} from torch.jit", file=sys.stderr)
            continue
        found[name] = call
    return found


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference as a share of the largest number."""
    if a.shape != b.shape:
        return float("inf")
    return float(np.abs(a.astype(np.float64) - b).max(initial=0)) / float(np.abs(b).max(initial=1e-6))


def times(calls: dict[str, Callable[[], Any]], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Median seconds of each call, from interleaved rounds."""
    counts = {}
    for name, call in calls.items():
        start = time.perf_counter()
        call()
        counts[name] = max(1, int(SHORTEST / max(time.perf_counter() - start, 1e-7)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            # Idle threads of the side before spin for some milliseconds, and the caches hold what it left there.
            time.sleep(IDLE)
            call()
            start = clock()
            for _ in range(counts[name]):
                call()
            found[name].append((clock() - start) / counts[name])
    return {name: median(f) for name, f in found.items()}


def measure(folder: Path, arguments: argparse.Namespace) -> None:
    """The table of one thread count, in this process."""
    import torch
    from model_cases import read

    threads = int(arguments.threads)
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    rows: list[dict[str, float]] = []
    print(f"\n{threads} thread{'s' * (threads > 1)}, microseconds; best is the fastest peer's time over gpujit's\n")
    print("| case | gpujit | " + " | ".join(PEERS) + " | best | jit |")
    print("| --- |" + " ---: |" * (len(PEERS) + 3), flush=True)
    for name, path, given in read(folder, arguments.only.split(",")):
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calls = sides(path, given, threads, arguments.compile)
            row = times(calls, arguments.rounds, clock)
        if "gpujit" not in row:
            continue
        rows.append(row)
        ours = row["gpujit"]
        peers = [v for k, v in row.items() if k != "gpujit"]
        best = f"{min(peers) / ours:.2f}" if peers else "-"
        jit = f"{row['torch.jit'] / ours:.2f}" if "torch.jit" in row else "-"
        cells = [f"{row[k] * 1e6:,.{1 if row[k] < 1e-4 else 0}f}" if k in row else "-" for k in ("gpujit", *PEERS)]
        print(f"| {name} | " + " | ".join(cells) + f" | {best} | {jit} |", flush=True)
        if arguments.json is not None:
            with arguments.json.open("a", encoding="utf-8") as out:
                out.write(json.dumps({"name": name, "threads": threads, **row}) + "\n")
        torch.compiler.reset()
    both = [r for r in rows if len(r) > 1]
    if both:
        fastest = exp(sum(log(min(v for k, v in r.items() if k != "gpujit") / r["gpujit"]) for r in both) / len(both))
        jits = [log(r["torch.jit"] / r["gpujit"]) for r in both if "torch.jit" in r]
        print(f"\ngeometric mean: {fastest:.2f} over the fastest peer, {exp(sum(jits) / len(jits)):.2f} over torch.jit")


def environment(threads: int) -> dict[str, str]:
    """Variables that give every library so many threads."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "GPUJIT_THREADS")
    return {**os.environ, **{name: str(threads) for name in names}}


def main() -> int:
    if "--interpreter" in sys.argv:
        rest = [a for a in sys.argv[1:] if a != "--interpreter"]
        return subprocess.call([sys.executable, str(ROOT / "bench" / "interpreted.py"), *rest])
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--interpreter", action="store_true", help="the interpreter; other options as interpreted.py's")
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--threads", default="1,2", help="thread counts, separated by commas")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--steps", metavar="CASE", help="where the time of one case's plan goes")
    parser.add_argument("--silero", type=Path, default=ROOT / ".ci-work" / "models" / "silero_vad.jit")
    parser.add_argument("--folder", type=Path, help="where the models are kept; by default they are made anew")
    parser.add_argument("--json", type=Path, help="a line for each row is added to this file")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        if arguments.steps:
            from plan_steps import show

            show(arguments.folder, arguments.steps, arguments.rounds)
        else:
            measure(arguments.folder, arguments)
        return 0
    with tempfile.TemporaryDirectory() as room:
        folder = arguments.folder or Path(room)
        cases = str(ROOT / "bench" / "model_cases.py")
        only = arguments.steps or arguments.only
        made = [sys.executable, cases, str(folder), "--only", only, "--silero", str(arguments.silero)]
        subprocess.run(made, check=True)
        own = ["--folder", str(folder), "--child"]
        for threads in arguments.threads.split(","):
            command = [sys.executable, __file__, *sys.argv[1:], *own, "--threads", threads]
            code = subprocess.run(command, env=environment(int(threads)), check=False).returncode
            if code:
                return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
