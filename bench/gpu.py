"""gpujit on a GPU against PyTorch: fused kernels as a share of the copy bandwidth, and whole models.

Usage: python bench/gpu.py [--seconds 180] [--only kernels,models] [--json OUT] [--models DIR] [--device cuda:0]
       python bench/gpu.py --dry-run [--device cuda:0 or cpu]      tiny cases; in Numba's simulator, or on the CPU

PyTorch is compared where it is installed: eager, torch.jit, torch.compile. Each section has a share of the seconds, and
what does not fit is left out and said so. The exit status is 1 when a result is wrong or a case fails; goals that are
missed are only shown: kernels at 90 % of the copy bandwidth and not behind torch.compile, batch 1 with graphs twice
torch.jit.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gpu_models
import numpy as np
from gpu_kernels import CASES, Case
from gpu_sides import FURTHEST, Place, distance, interpreted, optimised, ours, torch

import gpujit
from gpujit.ir.dtypes import FLOAT32
from gpujit.kernels.cuda_tile import within
from gpujit.kernels.launches import Convolution
from gpujit.runtime.device import is_simulated
from gpujit.static_runtime.device_tiles import copy_step
from gpujit.static_runtime.device_timer import DeviceTimer

SHARES = {"kernels": 0.4, "models": 0.6}
# Seconds that torch.compile takes at most for a kernel and a model, unless it took longer before.
COMPILES = {"kernels": 4.0, "models": 35.0}
GOAL_BANDWIDTH, GOAL_JIT = 0.9, 2.0
MODELS = ("mlp", "bert_base", "deit_tiny", "resnet50")
OURS = {"gpujit", "no graphs", "no cudnn"}
MODEL_COLUMNS = ("gpujit", "no_graphs", "no_cudnn", "eager", "jit", "compile")
TINY = ("mlp", "bert_tiny", "deit_toy")
SILERO = "silero_vad.jit"
COPY_BYTES = 1 << 28
# A convolution that any library does.
PROBE = Convolution((1, 4, 6, 6), (4, 4, 3, 3), (1, 4, 4, 4), False, (1, 1), (0, 0), (0, 0), (1, 1), 1, FLOAT32)


class Run:
    """A run of the benchmark: what was found, what was left out, what went wrong."""

    def __init__(self, place: Place, is_dry: bool) -> None:
        self.place, self.is_dry = place, is_dry
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in SHARES}
        self.skipped: list[str] = []
        self.faults: list[str] = []
        self.ends = float("inf")

    @property
    def has_cudnn(self) -> bool:
        """Whether there is cuDNN to turn off."""
        return self.place.device is not None and isinstance(self.place.device.room(PROBE), int)

    def left(self) -> float:
        """Seconds that the section has left."""
        return self.ends - time.monotonic()

    def attempt(self, name: str, work: Callable[[], None]) -> None:
        """Do a case, unless there is no time for it; a fault is noted."""
        if self.left() < 1:
            self.skipped.append(f"{name}: no time is left")
            return
        try:
            work()
        except Exception as fault:
            self.faults.append(f"{name}: {type(fault).__name__}: {str(fault).splitlines()[0] if str(fault) else ''}")
            print(f"| {name} | FAILS |", flush=True)
            traceback.print_exc(limit=6)

    def right(self, name: str, got: Any, wanted: Any, dtype: str) -> bool:
        """Whether a result is right; a fault when it is not."""
        apart = distance(got, wanted)
        if apart <= FURTHEST[dtype]:
            return True
        self.faults.append(f"{name}: results are {apart:.1e} apart")
        return False

    def compiled(self, section: str, name: str, make: Callable[[], Any]) -> Any:
        """What torch.compile makes; None when there is no time for it, or it fails."""
        if self.left() < COMPILES[section]:
            self.skipped.append(f"{name}: no time for torch.compile")
            return None
        started = time.monotonic()
        try:
            return make()
        except Exception as fault:
            self.skipped.append(f"{name}: torch.compile fails: {type(fault).__name__}")
            return None
        finally:
            COMPILES[section] = max(COMPILES[section], time.monotonic() - started)


# -------------------------------------------------------------------------------------------------------------- kernels


def copy_bandwidth(run: Run) -> float:
    """Bytes a second, read and written, of the fastest copy: the kernel's or the library's."""
    from gpujit.ir.graph import Graph
    from gpujit.ir.types import TensorType
    from gpujit.static_runtime.places import Place as Where

    device = run.place.device
    assert device is not None
    nbytes = 4096 if run.is_dry else COPY_BYTES
    value = Graph("copy").add_input(TensorType(6, (nbytes // 4,)))
    where = Where(value, 0, (4,), (nbytes // 4,), np.dtype(np.float32))
    with within(device.limits):
        step = copy_step(where, where)
    assert step is not None
    seconds = timer_of(run).seconds(step, [nbytes, nbytes])
    if run.place.has_torch:
        x = torch.zeros(nbytes // 4, device=run.place.name)
        y = torch.empty_like(x)
        seconds = min(seconds, run.place.times({"copy": lambda: y.copy_(x)})["copy"])
    return 2 * nbytes / seconds


def timer_of(run: Run) -> DeviceTimer:
    assert run.place.device is not None
    return DeviceTimer(run.place.device, counts=(1, 1, 1) if run.is_dry else None)


def kernel_seconds(run: Run, module: Any, biggest: int) -> tuple[float, int]:
    """The time of a plan's steps without the host's part, and how many kernels there are."""
    (plan,) = module._program.executor(module.methods["forward"]._function).plans()
    timer, total, count = timer_of(run), 0.0, 0
    made = plan.runner.plan()
    for segment in made.segments:
        for planned in segment.steps:
            total += timer.seconds(planned.step, [biggest] * len(planned.roots))
            count += len(planned.step.calls)
    return total, count


def measure_kernel(run: Run, case: Case, bandwidth: float) -> None:
    place, arrays = run.place, case.inputs(run.is_dry)
    archive = case.archive()
    calls = {"gpujit": ours(archive, place, arrays, [])}
    result = calls["gpujit"]()
    place.synchronise()
    wanted = interpreted(archive, [x.astype(np.float32) for x in arrays], []) if run.is_dry else None
    if place.has_torch:
        function, tensors = case.function(), place.tensors(arrays)
        wanted = function(*tensors)
        calls["eager"] = lambda: function(*tensors)
        traced = torch.jit.trace(function, tuple(tensors), check_trace=False)
        for _ in range(3):
            traced(*tensors)
        calls["jit"] = lambda: traced(*tensors)

        def compiled() -> Callable[[], Any]:
            found = torch.compile(function)
            found(*tensors)
            return lambda: found(*tensors)

        made = run.compiled("kernels", case.name, compiled)
        if made is not None:
            calls["compile"] = made
    if not run.right(case.name, result, wanted, case.dtype):
        return
    seconds = place.times(calls)
    least = sum(x.nbytes for x in arrays) + sum(x.nbytes for x in _host(result))
    row: dict[str, Any] = {"name": case.name, "bytes": least, **{f"{k}_us": v * 1e6 for k, v in seconds.items()}}
    if place.device is not None:
        module = optimised(archive, place)
        module(*place.given(arrays))
        biggest = max(*(x.nbytes for x in arrays), *(x.nbytes for x in _host(result)))
        kernel, row["kernels"] = kernel_seconds(run, module, biggest)
        row["kernel_us"] = kernel * 1e6
        row["share"] = least / kernel / bandwidth
        row["goal"] = row["share"] >= GOAL_BANDWIDTH and row["kernel_us"] <= row.get("compile_us", float("inf"))
    run.rows["kernels"].append(row)
    print(_row(row, ("name", "kernels", "kernel_us", "share", "gpujit_us", "eager_us", "jit_us", "compile_us", "goal")))


def _host(value: Any) -> list[Any]:
    return [value] if hasattr(value, "nbytes") else list(value)


def kernels(run: Run) -> None:
    """All fused functions."""
    bandwidth = copy_bandwidth(run) if run.place.device is not None else float("nan")
    print(f"\ncopy bandwidth {bandwidth / 1e9:,.1f} GB/s; microseconds; share: of the copy bandwidth\n")
    print("| function | kernels | on the device | share | gpujit | eager | torch.jit | torch.compile | goal |")
    print("| --- |" + " ---: |" * 8, flush=True)
    run.rows["kernels"].append({"name": "copy", "bandwidth": bandwidth})
    for case in CASES[:: 3 if run.is_dry else 1]:
        run.attempt(case.name, lambda case=case: measure_kernel(run, case, bandwidth))  # type: ignore[misc]


# --------------------------------------------------------------------------------------------------------------- models


def archive_of(name: str, dtype: str, place: Place) -> tuple[bytes, Any, gpu_models.Inputs]:
    """A model's file, PyTorch's model when there is PyTorch, and what it takes."""
    buffer = io.BytesIO()
    if place.has_torch:
        torch.manual_seed(0)
        model, inputs = gpu_models.make(name, torch.nn, torch.nn.functional)
        model = model.to(place.name, getattr(torch, dtype))
        torch.jit.save(torch.jit.script(model), buffer)
        return buffer.getvalue(), model, inputs
    made, inputs = gpu_models.make(name, gpujit.nn, gpujit.nn.functional)
    scripted = gpujit.script(made)
    if dtype == "float16":
        scripted.half()
    gpujit.save(scripted, buffer)
    return buffer.getvalue(), None, inputs


def measure_model(run: Run, name: str, batch: int, dtype: str) -> None:
    place = run.place
    archive, model, inputs = archive_of(name, dtype, place)
    arrays = [x.astype(dtype) if x.dtype == np.float32 else x for x in gpu_models.draw(inputs, batch)]
    label = f"{name}, batch {batch}, {dtype}"
    calls = {"gpujit": ours(archive, place, arrays, []), "no graphs": ours(archive, place, arrays, [], "graphs")}
    if run.has_cudnn:
        calls["no cudnn"] = ours(archive, place, arrays, [], "cudnn")
    wanted = None
    if model is not None:
        tensors = place.tensors(arrays)
        wanted = model(*tensors)
        calls["eager"] = lambda: model(*tensors)
        frozen = torch.jit.freeze(torch.jit.script(model))
        for _ in range(3):
            frozen(*tensors)
        calls["jit"] = lambda: frozen(*tensors)

        def compiled() -> Callable[[], Any]:
            found = torch.compile(model)
            found(*tensors)
            return lambda: found(*tensors)

        made = run.compiled("models", label, compiled)
        if made is not None:
            calls["compile"] = made
    elif run.is_dry:
        wanted = interpreted(archive, arrays, [])
    finish_model(run, label, calls, wanted, batch, dtype)


def finish_model(
    run: Run, label: str, calls: dict[str, Callable[[], Any]], wanted: Any, batch: int, dtype: str
) -> None:
    for name in OURS & calls.keys():
        if wanted is not None and not run.right(f"{label}, {name}", calls[name](), wanted, dtype):
            return
    seconds = run.place.times(calls)
    row: dict[str, Any] = {"name": label} | {f"{k.replace(' ', '_')}_us": v * 1e6 for k, v in seconds.items()}
    if "jit" in seconds:
        row["over_jit"] = seconds["jit"] / seconds["gpujit"]
        if batch == 1:
            row["goal"] = row["over_jit"] >= GOAL_JIT
    run.rows["models"].append(row)
    print(_row(row, ("name", *(f"{n}_us" for n in MODEL_COLUMNS), "over_jit", "goal")))


def measure_silero(run: Run, path: Path) -> None:
    """The voice detector on one chunk after the other: its state goes on, so that results are not compared here."""
    place, archive = run.place, path.read_bytes()
    arrays = [(np.random.default_rng(0).standard_normal((1, 512)) * 0.1).astype(np.float32)]
    calls = {
        "gpujit": ours(archive, place, arrays, [16000]),
        "no graphs": ours(archive, place, arrays, [16000], "graphs"),
    }
    if place.has_torch:
        module, tensors = torch.jit.load(io.BytesIO(archive), map_location=place.name).eval(), place.tensors(arrays)
        for _ in range(3):
            module(*tensors, 16000)
        calls["jit"] = lambda: module(*tensors, 16000)
    finish_model(run, "silero, batch 1, float32", calls, None, 1, "float32")


def models(run: Run, folder: Path | None) -> None:
    """All models; batch 1 first."""
    print("\nmicroseconds; goal: batch 1 with graphs twice torch.jit\n")
    print("| model | gpujit | without graphs | without cuDNN | eager | torch.jit | torch.compile | over jit | goal |")
    print("| --- |" + " ---: |" * 8, flush=True)
    names, batches = (TINY, (1, 2)) if run.is_dry else (MODELS, (1, 32))
    if folder is not None and (folder / SILERO).exists() and not is_simulated():
        run.attempt("silero", lambda: measure_silero(run, folder / SILERO))
    else:
        run.skipped.append(f"silero: {SILERO} was not given (--models)" if not is_simulated() else "silero: simulator")
    cases = [(n, b, d) for b in batches for d in ("float32", "float16") for n in names]
    for name, batch, dtype in cases[:: 5 if run.is_dry else 1]:
        run.attempt(f"{name}, batch {batch}, {dtype}", lambda c=(name, batch, dtype): measure_model(run, *c))  # type: ignore[misc]


def _row(row: dict[str, Any], keys: tuple[str, ...]) -> str:
    cells = []
    for key in keys:
        value = row.get(key)
        if isinstance(value, bool):
            cells.append("yes" if value else "no")
        elif isinstance(value, float):
            cells.append(f"{value:,.2f}" if value < 100 else f"{value:,.0f}")
        else:
            cells.append("-" if value is None else str(value))
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=180, help="for all sections together")
    parser.add_argument("--only", default="kernels,models", help="sections, separated by commas")
    parser.add_argument("--models", type=Path, help="folder with silero_vad.jit")
    parser.add_argument("--json", type=Path, help="write what was found there")
    parser.add_argument("--dry-run", action="store_true", help="tiny cases, each once")
    arguments = parser.parse_args()
    place = Place(arguments.device)
    if arguments.dry_run:
        place.shortest, place.rounds = 0.0, 1
    run = Run(place, arguments.dry_run)
    wanted = [name for name in SHARES if name in arguments.only.split(",")]
    what = place.device.description if place.device is not None else "the CPU"
    versions = f"gpujit {gpujit.__version__}" + (f", torch {torch.__version__}" if place.has_torch else ", no torch")
    print(f"{what}; {versions}; {datetime.now(timezone.utc):%Y-%m-%d}", flush=True)
    if place.has_torch:
        torch.set_grad_enabled(False)
        # As gpujit has it unless it is asked.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in wanted:
            whole = sum(SHARES[n] for n in wanted[wanted.index(name) :])
            left = arguments.seconds - (time.monotonic() - started)
            run.ends = time.monotonic() + left * SHARES[name] / whole
            if name == "kernels":
                kernels(run)
            else:
                models(run, arguments.models)
    print()
    for text in run.skipped:
        print(f"left out: {text}")
    for text in run.faults:
        print(f"WRONG: {text}")
    print(f"{sum(map(len, run.rows.values()))} rows, {len(run.faults)} faults, {time.monotonic() - started:.0f} s")
    if arguments.json:
        found = {
            "device": what, "versions": versions, "date": f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}",
            "seconds": round(time.monotonic() - started, 1), **run.rows, "skipped": run.skipped, "faults": run.faults,
        }  # fmt: skip
        arguments.json.write_text(json.dumps(_finite(found), indent=1) + "\n")
    return 1 if run.faults else 0


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


if __name__ == "__main__":
    raise SystemExit(main())
