"""Every model of a corpus folder against what PyTorch computed for it when the folder was made.

Usage: python bench/corpus.py FOLDER --json OUT [--torch] [--fused] [--planned] [--delete]
(how to make a folder: docs/models.md)

A folder holds pairs of NAME.pt and NAME.npz: the archive; its inputs, PyTorch's outputs and their nesting. A model
passes when all outputs have the same nesting, dtypes and shapes and equal numbers (floats within the tolerance of
tests/compare.py). Detections may come in another order where scores are nearly equal: they are compared as sets.

``--torch`` (needs torch) looks closer at models that do not pass, and times all of them against torch.jit:

- the model is run in float64, by both; when the two agree to ``SAME`` and our float32 outputs are no further from them
  than ``FURTHER`` times PyTorch's own, the difference is one of rounding: counted as such, not as passed;
- where a model does not run in float64, our distance from PyTorch is compared with how far PyTorch's own outputs move
  when its inputs change by their last bit.

``--fused`` runs each model optimised as well: results of the first, second and third call must be the interpreter's,
and the time of a call with kernels is compared with that of the same plan without them, in turns (``--rounds`` of
them, processor time; ``fused_ratio`` is the median of the rounds' ratios).

``--planned`` runs each model planned (``optimize_for_inference``) and compares with the interpreter: calls 1, 2 and 100
(5 for large models), inputs of twice the batch and the first ones again where the model takes them, eight threads at
once where it keeps no state, and a call with what is free in the arena poisoned. ``apart`` is the largest distance as a
share of the largest number; what is beyond the tolerance but less than ``FURTHEST`` counts as rounding. ``arena`` is
the largest arena of its plans over the bytes alive at the worst step.

Exit code 1 when a model fails otherwise.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "GPUJIT_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from results import leaves

import gpujit
from gpujit.support.config import config
from gpujit.support.errors import FusionWarning
from tests.compare import assert_same, from_meta, to_torch

FURTHER = 2.0
SAME = 1e-8
# Share of a picture's boxes that may have no partner, and how far partners may lie apart, in pixels.
FURTHEST = 1e-2
# What an arena may take of the bytes alive at the worst step.
TIGHT = 1.05
# Seconds of a call from which on a model is large; threads that call at once.
LARGE, THREADS = 0.03, 8
BOXES_MISSED, BOX_DISTANCE = 0.05, 1.0
CALLS, ROUNDS = 3, 9


def read_case(path: Path) -> tuple[list[Any], Any]:
    """The inputs of a model and PyTorch's output."""
    with np.load(path.with_suffix(".npz")) as stored:
        arrays = {k: stored[k] for k in stored.files if k != "meta"}
        meta = json.loads(str(stored["meta"]))
    return [from_meta(m, arrays) for m in meta["inputs"]], from_meta(meta["output"], arrays)


def check(path: Path, with_torch: bool, fused: int = 0, planned: bool = False) -> dict[str, Any]:
    """What became of one model: ``status`` is ok, boxes, rounding or FAIL; times in seconds.

    ``fused`` is for how many rounds it runs with and without kernels.
    """
    row: dict[str, Any] = {"status": "FAIL"}
    try:
        inputs, want = read_case(path)
        start = time.perf_counter()
        module = gpujit.load(path)
        row["load"] = time.perf_counter() - start
        start = time.perf_counter()
        got = module(*inputs)
        row["first"] = time.perf_counter() - start
        row["status"] = compare(tuple(got) if hasattr(got, "_fields") else got, want)
    except (AssertionError, gpujit.GpujitError) as error:
        row["error"] = f"{type(error).__name__}: {str(error)[:1500]}"
        if with_torch and isinstance(error, AssertionError):
            row.update(judge(path, inputs, got, want))
    # Against the interpreter, whatever became of that.
    for name, wanted in (("planned", planned), ("fused", fused)):
        if wanted and "first" in row:
            try:
                row[name] = "FAIL"
                found = check_planned(path, inputs, row) if name == "planned" else check_fused(path, inputs, row, fused)
                row[name] = found
            except Exception as error:  # whatever it is, the other models are to be tried
                row[f"{name}_error"] = f"{type(error).__name__}: {str(error)[:1500]}"
    if with_torch and "first" in row:
        row.update(race(path, module, inputs))
    return row


def check_fused(path: Path, inputs: list[Any], row: dict[str, Any], rounds: int) -> str:
    """Add what became of the optimised model. Returns ok or rounding; raises AssertionError when it differs."""
    got = gpujit.load(path)(*inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FusionWarning)
        start = time.perf_counter()
        fused = gpujit.optimize_for_inference(gpujit.load(path))
        row["freeze"] = time.perf_counter() - start
        start = time.perf_counter()
        result = fused(*inputs)
        row["fused_first"] = time.perf_counter() - start
    statuses = [closeness(result, got, "fused, call 1", row)]
    with config(disable=("fuser",)):
        plain = gpujit.optimize_for_inference(gpujit.load(path))
        statuses.append(closeness(plain(*inputs), result, "fused against unfused", row))
    again = gpujit.load(path)
    for _ in range(2):
        wanted = again(*inputs)
    statuses.append(closeness(fused(*inputs), wanted, "fused, call 2", row))
    executor = fused._program.executor(fused._object.type.methods["forward"])
    row["groups"] = sum(len(p.steps) for p in executor.plans())
    row["reasons"] = list(executor.reasons())
    with_kernels, without = [], []
    start = time.perf_counter()
    fused(*inputs)
    count = max(1, int(0.01 / (time.perf_counter() - start)))
    for i in range(2 + rounds):
        for call, times in ((fused, with_kernels), (plain, without)):
            start = time.process_time()
            for _ in range(count):
                call(*inputs)
            if i >= 2:
                times.append((time.process_time() - start) / count)
    row["fused_call"], row["unfused_call"] = min(with_kernels), min(without)
    row["fused_ratio"] = median(b / a for a, b in zip(with_kernels, without, strict=True))
    return "rounding" if "rounding" in statuses else "ok"


def check_planned(path: Path, inputs: list[Any], row: dict[str, Any]) -> str:
    """Add what became of the planned model. Returns ok or rounding; raises AssertionError when it differs."""
    start = time.perf_counter()
    plain = gpujit.load(path)
    first = plain(*inputs)
    plain(*inputs)
    is_large = (time.perf_counter() - start) / 2 > LARGE
    last = 5 if is_large else 100
    wanted = {1: first}
    plain = gpujit.load(path)
    for call in range(1, last + 1):
        result = plain(*inputs)
        if call in (1, 2, last):
            wanted[call] = result
    keeps_state = not is_close(wanted[last], wanted[1])
    module = gpujit.optimize_for_inference(gpujit.load(path))
    statuses = []
    for call in range(1, last + 1):
        result = module(*inputs)
        if call in wanted:
            statuses.append(closeness(result, wanted[call], f"call {call}", row))
    if not keeps_state:
        doubled = [twice(x) for x in inputs]
        try:
            other = gpujit.load(path)(*doubled)
        except gpujit.GpujitError:
            other = None
        if other is not None:
            row["other_shapes"] = True
            statuses.append(closeness(module(*doubled), other, "twice the batch", row))
            statuses.append(closeness(module(*inputs), first, "the first shapes again", row))
        results: list[Any] = [None] * THREADS
        threads = [Thread(target=lambda k=k: results.__setitem__(k, module(*inputs))) for k in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for k, result in enumerate(results):
            statuses.append(closeness(result, first, f"thread {k}", row))
    with config(check_plan=True):
        checked = gpujit.optimize_for_inference(gpujit.load(path))
        for call in (1, 2):
            statuses.append(closeness(checked(*inputs), wanted[call], f"poisoned, call {call}", row))
    executor = module._program.executor(module._object.type.methods["forward"])
    row["reasons"] = list(executor.reasons())
    memories = [p.runner.memory() for p in executor.plans() if p.runner is not None]
    row["arena"] = max((m.arena / m.bound for m in memories if m.bound), default=None)
    return "rounding" if "rounding" in statuses else "ok"


def closeness(got: Any, want: Any, when: str, row: dict[str, Any]) -> str:
    """``ok`` or ``rounding``. Raises AssertionError, which says when, for larger differences."""
    pairs = list(zip(floats(got), floats(want), strict=False))
    apart = 0.0
    for a, b in pairs:
        if a.shape == b.shape and a.size:
            with np.errstate(all="ignore"):
                finite = np.isfinite(a) & np.isfinite(b)
                largest = float(np.abs(b[finite]).max(initial=1e-6))
                apart = max(apart, float(np.abs(a - b)[finite].max(initial=0)) / largest)
    row["apart"] = max(row.get("apart", 0.0), apart)
    try:
        compare(got, want)
        return "ok"
    except AssertionError as error:
        same = [(a.shape, np.isfinite(a).tolist()) == (b.shape, np.isfinite(b).tolist()) for a, b in pairs]
        if pairs and all(same) and apart <= FURTHEST and has_floats_alone(want):
            return "rounding"
        raise AssertionError(f"{when}: {error}") from None


def has_floats_alone(value: Any) -> bool:
    """Whether all tensors inside a value are of floats: others have to be equal."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return all(map(has_floats_alone, value))
    return not hasattr(value, "dtype") or value.dtype.kind in "fV"


def is_close(a: Any, b: Any) -> bool:
    try:
        compare(a, b)
    except AssertionError:
        return False
    return True


def twice(value: Any) -> Any:
    """A value whose tensors have their first dim twice."""
    if isinstance(value, np.ndarray) and value.ndim:
        return np.concatenate([value, value])
    if isinstance(value, dict):
        return {k: twice(v) for k, v in value.items()}
    return type(value)(map(twice, value)) if type(value) in (list, tuple) else value


def compare(got: Any, want: Any) -> str:
    """``ok``, or ``boxes`` where only the order of detections differs. Raises AssertionError."""
    try:
        assert_same(got, want)
        return "ok"
    except AssertionError:
        # Scripted detectors give (losses, detections).
        pair = isinstance(got, tuple) and len(got) == 2
        found, expected = (got[1], want[1]) if pair else (got, want)
        if not (isinstance(found, list) and found and isinstance(found[0], dict) and "boxes" in found[0]):
            raise
        assert len(found) == len(expected)
        for picture, wanted in zip(found, expected, strict=True):
            same_boxes(picture, wanted)
        return "boxes"


def same_boxes(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    """Each box has a partner of its own with nearly the same corners and score and the same label, but for a few."""
    assert set(got) == set(want)
    allowed = BOXES_MISSED * max(1, len(want["boxes"]))
    assert abs(len(got["boxes"]) - len(want["boxes"])) <= allowed
    free = np.ones(len(got["boxes"]), bool)
    missed = 0
    for box, score, label in zip(want["boxes"], want["scores"], want["labels"], strict=True):
        # A hundredth of the score weighs as much as a pixel.
        distance = np.abs(got["boxes"] - box).max(axis=1) + np.abs(got["scores"] - score) * 100
        distance[~free | (got["labels"] != label)] = np.inf
        nearest = int(distance.argmin()) if distance.size else -1
        if nearest < 0 or distance[nearest] > BOX_DISTANCE:
            missed += 1
        else:
            free[nearest] = False
    assert missed <= allowed, f"{missed} of {len(want['boxes'])} boxes have no partner"


# With PyTorch at hand -------------------------------------------------------------------------------------------------


def judge(path: Path, inputs: list[Any], got: Any, want: Any) -> dict[str, Any]:
    """Whether the difference from PyTorch is one of rounding; ``ours`` and ``theirs`` are largest distances."""
    import torch

    module = torch.jit.load(path)
    with torch.no_grad():
        try:
            module.double()
            exact = list(floats(module(*changed(inputs, lambda t: t.double()))))
            ours, theirs = distance(floats(got), exact), distance(floats(want), exact)
            apart = distance(floats(in_float64(path, inputs)), exact)
            measured = f"from float64, where both agree to {apart:.1e}"
            if apart > SAME * max(1.0, max(float(np.abs(x).max()) for x in exact if x.size)):
                return {"ours": ours, "theirs": theirs, "measured": measured}
        except RuntimeError:
            module = torch.jit.load(path)
            random = torch.Generator().manual_seed(0)

            def last_bit(t: torch.Tensor) -> torch.Tensor:
                return t * (1 + torch.finfo(t.dtype).eps * (torch.rand(t.shape, generator=random) * 2 - 1))

            moved = list(floats(module(*changed(inputs, last_bit))))
            ours, theirs = distance(floats(got), floats(want)), distance(moved, floats(want))
            measured = "inputs' last bit"
    status = "rounding" if ours <= FURTHER * theirs else "FAIL"
    return {"status": status, "ours": ours, "theirs": theirs, "measured": measured}


def in_float64(path: Path, inputs: list[Any]) -> Any:
    """The model's outputs when weights and inputs are float64."""

    def wide(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(wide(v) for v in value)
        return value.astype(np.float64) if getattr(value, "dtype", None) == np.float32 else value

    module = gpujit.load(path)
    for owner in module.modules():
        for name, value in (*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)):
            setattr(owner, name, wide(value))
    return module(*wide(inputs))


def floats(value: Any) -> Iterator[np.ndarray]:
    """All floating tensors inside a value, as float64 arrays."""
    for found in leaves(value):
        if not hasattr(found, "dtype"):
            continue
        if hasattr(found, "detach"):
            found = found.detach().double().numpy() if found.is_floating_point() else found.numpy()
        if found.dtype.kind in "fV":
            yield found.astype(np.float64)


def distance(a: Any, b: Any) -> float:
    """The largest difference between two runs of ``floats``."""
    pairs = list(zip(a, b, strict=True))
    if any(x.shape != y.shape for x, y in pairs):
        return float("inf")
    return max((float(np.abs(x - y).max()) for x, y in pairs if x.size), default=0.0)


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with tensors in place of arrays; floating ones go through ``change``."""
    if isinstance(value, np.ndarray):
        tensor = to_torch(value)
        return change(tensor) if tensor.is_floating_point() else tensor
    if isinstance(value, dict):
        return {k: changed(v, change) for k, v in value.items()}
    return type(value)(changed(v, change) for v in value) if isinstance(value, (list, tuple)) else value


def race(path: Path, module: gpujit.ScriptModule, inputs: list[Any]) -> dict[str, Any]:
    """Shortest times of a call, ours and torch.jit's, measured in turns after two calls of each."""
    import torch

    peer = torch.jit.load(path)
    tensors = to_torch(inputs)
    ours, theirs = [], []
    with torch.no_grad():
        for i in range(2 + CALLS):
            start = time.perf_counter()
            module(*inputs)
            middle = time.perf_counter()
            peer(*tensors)
            if i >= 2:
                ours.append(middle - start)
                theirs.append(time.perf_counter() - middle)
    return {"call": min(ours), "torch_call": min(theirs)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, required=True, help="a line for each model is added to this file")
    parser.add_argument("--torch", action="store_true", help="judge differences by float64, and time torch.jit too")
    parser.add_argument("--fused", action="store_true", help="run the models optimised, with and without kernels, too")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often they take turns (default {ROUNDS})")
    parser.add_argument("--only", default="*", help="names of models, as a pattern")
    parser.add_argument("--planned", action="store_true", help="compare the models, planned, with the interpreter, too")
    parser.add_argument("--delete", action="store_true", help="remove the files of models that pass, to save space")
    arguments = parser.parse_args()
    if arguments.torch:
        import torch

        torch.set_num_threads(1)
        with suppress(ImportError):
            import torchvision  # noqa: F401  # registers the operators that its models call
    counts: Counter[str] = Counter()
    ratios: list[float] = []
    broken = 0
    planned: Counter[str] = Counter()
    arenas: list[float] = []
    for path in sorted(arguments.folder.rglob("*.pt")):
        name = path.relative_to(arguments.folder).with_suffix("").as_posix()
        if not fnmatch(name, arguments.only):
            continue
        rounds = arguments.rounds if arguments.fused else 0
        row = {"name": name, **check(path, arguments.torch, rounds, arguments.planned)}
        with arguments.json.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        counts[row["status"]] += 1
        broken += "FAIL" in (row.get("fused"), row.get("planned"))
        if "planned" in row:
            planned[row["planned"]] += 1
        if "fused_call" in row:
            ratios.append(row["fused_ratio"])
        shown = ("load", "first", "call", "torch_call", "freeze", "fused_first", "fused_call", "unfused_call")
        times = " ".join(f"{k} {row[k]:.4f}" for k in shown if k in row)
        if "fused_ratio" in row:
            times += f" ratio {row['fused_ratio']:.3f}"
        if row.get("arena") is not None:
            arenas.append(row["arena"])
            times += f" arena {row['arena']:.3f}"
        if "planned" in row:
            times += f" planned {row['planned']}, {row.get('apart', 0):.0e} apart"
        fault = next((row[k] for k in ("error", "planned_error", "fused_error") if k in row), "")
        print(f"{row['status']:8} {name}  {times}  {fault[:200]!r}".removesuffix("  ''"), flush=True)
        if arguments.delete and row["status"] in ("ok", "boxes"):
            path.unlink()
            path.with_suffix(".npz").unlink()
    if ratios:
        print(f"kernels: {median(ratios):.2f} times as fast in the median, {min(ratios):.2f} at least; {broken} broken")
    if planned:
        print("planned: " + ", ".join(f"{n} {status}" for status, n in planned.most_common()))
    if arenas:
        tight = sum(a <= TIGHT for a in arenas)
        print(f"arenas: {tight} of {len(arenas)} within {TIGHT} of the bytes alive, {max(arenas):.3f} at most")
    print(", ".join(f"{n} {status}" for status, n in counts.most_common()) or "no models there")
    return 1 if counts["FAIL"] or broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
