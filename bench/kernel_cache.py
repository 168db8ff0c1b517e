"""What a kernel costs before it first runs: rendered, compiled and loaded, or loaded from the cache.

Usage: python bench/kernel_cache.py [FOLDER] [--kernels 20] [--json OUT]

Kernels come from the models of a corpus folder (docs/models.md), by default the tests' own. Times are processor time of
one thread where one thread works (a busy machine does not change them much), and wall time where processes share the
work.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import logging
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import llvmlite.binding as llvm
from corpus import read_case

import gpujit
from gpujit.kernels import cache, cpu_launch, native, supply
from gpujit.kernels.cpu import render
from gpujit.kernels.cpu_nest import Nest
from gpujit.support.config import config

# A process that has the kernels of a pickle made ready, at once or one by one, and says how long it took.
PROCESS = """
import pickle, sys, time
from gpujit.kernels import cpu_launch, native, supply
nests = pickle.load(open(sys.argv[1], "rb"))
wall, cpu = time.perf_counter(), time.process_time()
if sys.argv[2] == "plan":
    supply.prepare(nests)
    each = []
else:
    each = []
    for nest in nests:
        start = time.process_time()
        supply.address(nest)
        each.append(time.process_time() - start)
print(time.perf_counter() - wall, time.process_time() - cpu, supply.counters.compiled, *each)
"""


def collect(folder: Path, count: int) -> list[Nest]:
    """Nests of the folder's models, evenly taken from all of them."""
    found: dict[str, Nest] = {}
    real = cpu_launch.supply.prepare

    def prepare(nests: Any) -> None:
        found.update((n.key, n) for n in nests)

    logging.disable(logging.WARNING)
    cpu_launch.supply.prepare = prepare
    try:
        with tempfile.TemporaryDirectory() as place, config(cache_dir=place):
            for path in sorted(folder.glob("*.pt")):
                inputs, _ = read_case(path)
                try:
                    gpujit.optimize_for_inference(gpujit.load(path), example_inputs=inputs)
                except gpujit.GpujitError:
                    # Not what is measured here.
                    continue
    finally:
        cpu_launch.supply.prepare = real
    nests = list(found.values())
    return nests[:: max(len(nests) // count, 1)][:count]


def stages(nest: Nest) -> dict[str, float]:
    """Milliseconds of each step from a nest to an address."""
    times: dict[str, float] = {}

    def timed(name: str, run: Callable[[], Any]) -> Any:
        start = time.thread_time()
        found = run()
        times[name] = (time.thread_time() - start) * 1e3
        return found

    machine = native._machine(2)
    text = timed("render", lambda: render(nest, "kernel"))
    module = timed("parse", lambda: llvm.parse_assembly(text))
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    timed("verify", module.verify)
    timed("tidy", lambda: native._optimise(module, machine, native.TIDY))
    image = bytes(timed("emit", lambda: machine.emit_object(module)))
    timed("load", lambda: native.Library(image).address("kernel"))
    times["all"] = sum(times.values())
    return times


def process(nests: Path, mode: str, place: str, **environment: str) -> dict[str, Any]:
    """One run of PROCESS."""
    variables = {"GPUJIT_CACHE_DIR": place, "PYTHONPATH": str(ROOT)} | environment
    command = [sys.executable, "-c", PROCESS, str(nests), mode]
    words = subprocess.run(
        command, env=os.environ | variables, check=True, capture_output=True, text=True
    ).stdout.split()
    each = [float(x) * 1e3 for x in words[3:]]
    return {"wall": float(words[0]) * 1e3, "cpu": float(words[1]) * 1e3, "compiled": int(words[2]), "each": each}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "tests" / "models" / "corpus")
    parser.add_argument("--kernels", type=int, default=20)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    nests = collect(arguments.folder, arguments.kernels)
    stages(nests[0])
    rows = [stages(n) for n in nests]
    found: dict[str, Any] = {"kernels": len(nests)}
    for name in rows[0]:
        found[f"cold, {name}"] = statistics.median(r[name] for r in rows)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "nests.pickle")
        path.write_bytes(pickle.dumps(nests))
        for workers in (False, True):
            switches = {} if workers else {"GPUJIT_DISABLE": "workers"}
            cold = process(path, "plan", str(Path(place, f"plan{workers}")), **switches)
            found[f"cold plan, wall{', workers allowed' if workers else ''}"] = cold["wall"]
        cold = process(path, "each", str(Path(place, "each")))
        runs = [process(path, "each", str(Path(place, "each"))) for _ in range(5)]
        found["warm, first of a process"] = statistics.median(r["each"][0] for r in runs)
        found["warm, each further"] = statistics.median(x for r in runs for x in r["each"][1:])
        runs += [process(path, "plan", str(Path(place, "planFalse"))) for _ in range(5)]
        found["warm plan"] = statistics.median(r["cpu"] for r in runs[5:])
        found["compiled when warm"] = sum(r["compiled"] for r in runs)
    for name, value in found.items():
        print(f"{name:32} {value:8.2f}{' ms' if isinstance(value, float) else ''}")
    assert cold["compiled"] == len(nests) and found["compiled when warm"] == 0
    assert cache.code_version() and supply.counters.refused == 0
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
