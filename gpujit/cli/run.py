"""``gpujit run FILE``: run a model on arrays from files or on random ones of given shapes."""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

import numpy as np

from gpujit.cli.inputs import INPUTS, add_device_argument, add_model_arguments, chosen, positive
from gpujit.cli.output import print_json, safe, table, time_text
from gpujit.cli.tiers import add_plan_arguments, options_of, planned
from gpujit.cli.values import describe, flatten, shape_text, write_npz
from gpujit.support.progress import Stage

DESCRIPTION = """Run a model on the interpreter, or with --optimise as a plan of fused kernels, and print what it gives
and how long it takes. Inputs are arrays from files, random numbers of given shapes, or values."""
EXAMPLES = f"""{INPUTS}
examples:
  gpujit run model.pt 1x3x224x224
  gpujit run bert.pt 1x128:int64:1000 mask.npy --optimise --repeat 20
  gpujit run vad.jit 1x512 int=16000 --out result.npz"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_model_arguments(command)
    add_device_argument(command)
    command.add_argument(
        "--repeat", type=positive, default=1, metavar="N", help="call it N times and show the median time"
    )
    command.add_argument(
        "--optimise", "--optimize", action="store_true", help="freeze it, fuse and plan: gpujit.optimize_for_inference"
    )
    add_plan_arguments(command)
    command.add_argument("--out", metavar="FILE.npz", help="write the outputs there")


def execute(arguments: argparse.Namespace) -> int:
    model = chosen(arguments)
    call = model.call
    if arguments.optimise:
        call = planned(model, **options_of(arguments))
    times = []
    result = None
    with Stage("calls", arguments.repeat) as stage:
        for _ in range(arguments.repeat):
            start = time.perf_counter()
            result = call(*model.values)
            model.wait()
            times.append(time.perf_counter() - start)
            stage.advance()
    outputs = dict(flatten(model.on_host(result)))
    if arguments.out:
        write_npz(arguments.out, outputs)
    report = {
        "file": arguments.file,
        "method": arguments.method,
        "device": model.device,
        # Modules on a GPU have plans in any case.
        "tier": "planned" if arguments.optimise or model.device != "cpu" else "interpreter",
        "outputs": {name: describe(value) for name, value in outputs.items()},
        "load_ms": round(model.load_seconds * 1e3, 3),
        "first_call_ms": round(times[0] * 1e3, 3),
        "median_call_ms": round(median(times[1:] or times) * 1e3, 3),
        "calls": len(times),
    }
    if arguments.json:
        print_json(report)
    else:
        print(as_text(report, outputs))
    return 0


def as_text(report: dict[str, Any], outputs: dict[str, Any]) -> str:
    """The report for people."""
    rows = []
    for name, facts in report["outputs"].items():
        if "dtype" in facts:
            spread = (
                f"min {facts['min']:.6g}  max {facts['max']:.6g}  mean {facts['mean']:.6g}" if "min" in facts else ""
            )
            rows.append((name, facts["dtype"], shape_text(facts["shape"]), spread))
        else:
            rows.append((name, "", "", repr(facts["value"])))
    lines = [table(rows, ("output", "dtype", "shape", "values"), indent="")]
    first = next((v for v in outputs.values() if isinstance(v, np.ndarray) and v.size), None)
    if first is not None:
        numbers = " ".join(f"{v:.6g}" if first.dtype.kind in "fV" else str(v) for v in first.reshape(-1)[:8].tolist())
        lines.append(f"first values: {safe(numbers)}{' ...' if first.size > 8 else ''}")
    times = [f"load {time_text(report['load_ms'] / 1e3)}", f"first call {time_text(report['first_call_ms'] / 1e3)}"]
    if report["calls"] > 1:
        times.append(f"then {time_text(report['median_call_ms'] / 1e3)} (median of {report['calls'] - 1})")
    where = "" if report["device"] == "cpu" else f" on {report['device']}"
    lines.append(", ".join(times) + where)
    return "\n".join(lines)
