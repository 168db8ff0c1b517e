"""``gpujit run FILE``: run a model on arrays from files or on random ones of given shapes."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any

import numpy as np

from gpujit import api, modules
from gpujit.cli.output import safe, table
from gpujit.ir.dtypes import BY_NAME
from gpujit.ir.schema import Argument
from gpujit.ir.values import QTensor
from gpujit.runtime.values import declaration
from gpujit.support.errors import ArgumentError

NAME = "run"
HELP = "run a model on arrays from files or on random inputs of given shapes; prints outputs and time"
EXAMPLES = """inputs, one for each argument of the method, in order:
  FILE.npy              one array
  FILE.npz              all its arrays, in the file's order
  1x3x224x224           random float32 numbers of that shape (normal distribution)
  1x12:int64            of that dtype; integers are drawn from 0 to 9, or up to :int64:100
  scalar:float32        a 0-dim tensor
  int=3, float=0.5, bool=true, str=text, none

examples:
  gpujit run model.pt 1x3x224x224
  gpujit run bert.pt 1x128:int64:1000 mask.npy --repeat 20
  gpujit run vad.jit 1x512 int=16000 --out result.npz"""

_SHAPE = re.compile(r"(scalar|\d+(?:x\d+)*)(?::([a-z]\w*))?(?::(\d+))?")
_VALUE = re.compile(r"(int|float|bool|str)=(.*)", re.DOTALL)
_MAX_ELEMENTS = 1 << 31


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", help="a TorchScript archive")
    command.add_argument("inputs", nargs="*", metavar="INPUT", help="array files, shapes or values; see below")
    command.add_argument("--method", default="forward", help="method to call (default: forward)")
    command.add_argument(
        "--repeat", type=_positive, default=1, metavar="N", help="call it N times and show the median time"
    )
    command.add_argument("--seed", type=int, default=0, help="seed of random inputs (default: 0)")
    command.add_argument("--out", metavar="FILE.npz", help="write the outputs there")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def execute(arguments: argparse.Namespace) -> int:
    start = time.perf_counter()
    module = api.load(arguments.file, map_location="cpu")
    load_time = time.perf_counter() - start
    methods = module.methods
    if arguments.method not in methods:
        raise ArgumentError(f"the model has no method {arguments.method!r}; it has {', '.join(sorted(methods))}")
    method = module if arguments.method == "forward" else methods[arguments.method]
    values = list(read_inputs(arguments.inputs, arguments.seed))
    check_count(values, methods[arguments.method])
    times = []
    result = None
    for _ in range(arguments.repeat):
        start = time.perf_counter()
        result = method(*values)
        times.append(time.perf_counter() - start)
    outputs = dict(flatten(result))
    if arguments.out:
        write_npz(arguments.out, outputs)
    report = {
        "file": arguments.file,
        "method": arguments.method,
        "outputs": {name: describe(value) for name, value in outputs.items()},
        "load_ms": round(load_time * 1e3, 3),
        "first_call_ms": round(times[0] * 1e3, 3),
        "median_call_ms": round(median(times[1:] or times) * 1e3, 3),
        "calls": len(times),
    }
    print(json.dumps(_for_json(report)) if arguments.json else as_text(report, outputs))
    return 0


def check_count(values: list[Any], method: modules.ScriptMethod) -> None:
    """Raise ArgumentError, with the signature, unless there is a value for each required argument."""
    wanted: list[Argument] = [a for a in method.schema.arguments[1:] if not a.has_default]
    if len(values) < len(wanted):
        missing = ", ".join(a.name for a in wanted[len(values) :])
        raise ArgumentError(
            f"{len(values)} inputs are given; a value is missing for {missing}. "
            f"Declaration: {declaration(method.schema, skip=1)}"
        )


def read_inputs(texts: Iterable[str], seed: int) -> Iterator[Any]:
    """The values that the command line's inputs stand for. Raises ArgumentError for text that stands for none."""
    random = np.random.default_rng(seed)
    for text in texts:
        if text.endswith(".npy"):
            yield _load(text)
        elif text.endswith(".npz"):
            yield from _load(text)
        elif text == "none":
            yield None
        elif m := _VALUE.fullmatch(text):
            yield _value(m.group(1), m.group(2))
        elif m := _SHAPE.fullmatch(text):
            yield _random(m, random)
        else:
            raise ArgumentError(
                f"input {text!r} is neither an array file nor a shape (1x3x224x224:float32) nor a value (int=3)"
            )


def _load(path: str) -> Any:
    """The array of a .npy file, or a list of those of a .npz file."""
    try:
        # Never pickled objects: they would run code from the file.
        with open(path, "rb") as stream:
            found = np.load(stream, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return found
            return [array for array in (found[name] for name in found.files) if array.dtype.kind not in "US"]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as e:
        raise ArgumentError(f"input file {path!r} cannot be read: {e}") from None


def _value(kind: str, text: str) -> Any:
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        return {"int": int, "float": float, "str": str}[kind](text)
    except (ValueError, KeyError):
        raise ArgumentError(f"{text!r} is no {kind}") from None


def _random(m: re.Match[str], random: np.random.Generator) -> Any:
    shape = () if m.group(1) == "scalar" else tuple(int(s) for s in m.group(1).split("x"))
    name = m.group(2) or "float32"
    known = BY_NAME.get(name)
    if known is None or known.dtype is None:
        raise ArgumentError(
            f"dtype {name!r} is not known; use one of {', '.join(n for n, s in BY_NAME.items() if s.dtype)}"
        )
    if np.prod(shape, dtype=float) > _MAX_ELEMENTS:
        raise ArgumentError(f"an input of shape {shape} is too large")
    if known.dtype.kind in "iu":
        high, most = int(m.group(3) or 10), int(np.iinfo(known.dtype).max)
        if not 0 < high <= most:
            raise ArgumentError(f"numbers below {high} cannot be drawn as {name}; give a limit from 1 to {most}")
        return random.integers(0, high, shape).astype(known.dtype)
    if known.dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    values = random.standard_normal(shape, dtype=np.float32)
    if known.dtype.kind == "c":
        values = values + 1j * random.standard_normal(shape, dtype=np.float32)
    return np.asarray(values).astype(known.dtype)


def flatten(value: Any, name: str = "out") -> Iterator[tuple[str, Any]]:
    """Leaves of a nested result with names such as ``out.boxes`` and ``out[1]``."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        for field, item in zip(value._fields, value, strict=True):
            yield from flatten(item, f"{name}.{field}")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from flatten(item, f"{name}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from flatten(item, f"{name}[{key!r}]")
    else:
        yield name, value


def describe(value: Any) -> dict[str, Any]:
    """An output for JSON: dtype, shape and a few numbers of an array, the value of anything else."""
    if isinstance(value, QTensor):
        return {"quantised": True, **describe(value.values)}
    if not isinstance(value, np.ndarray):
        return {"value": value if isinstance(value, (int, float, str, bool, type(None))) else str(value)}
    facts: dict[str, Any] = {"dtype": str(value.dtype), "shape": list(value.shape)}
    if value.size and value.dtype.kind != "c":
        wide = value.astype(np.float64)
        facts.update(min=float(wide.min()), max=float(wide.max()), mean=float(wide.mean()))
    return facts


def _for_json(value: Any) -> Any:
    """The report with numbers that JSON lacks as text: ``"nan"``, ``"inf"``."""
    if isinstance(value, dict):
        return {k: _for_json(v) for k, v in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def write_npz(path: str, outputs: dict[str, Any]) -> None:
    """Write the array outputs beside the target, then rename: no half-written file is left."""
    arrays = {n: v.values if isinstance(v, QTensor) else v for n, v in outputs.items()}
    arrays = {
        n: v.astype(np.float32) if isinstance(v, np.ndarray) and v.dtype.kind == "V" else v for n, v in arrays.items()
    }
    keep = {n: np.asarray(v) for n, v in arrays.items() if isinstance(v, (np.ndarray, int, float, bool, complex))}
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(suffix=".npz", dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, **keep)  # type: ignore[arg-type]  # the stub takes allow_pickle for a keyword's value
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def as_text(report: dict[str, Any], outputs: dict[str, Any]) -> str:
    """The report for people."""
    rows = []
    for name, facts in report["outputs"].items():
        if "dtype" in facts:
            shape = "x".join(map(str, facts["shape"])) or "scalar"
            spread = (
                f"min {facts['min']:.6g}  max {facts['max']:.6g}  mean {facts['mean']:.6g}" if "min" in facts else ""
            )
            rows.append((name, facts["dtype"], shape, spread))
        else:
            rows.append((name, "", "", repr(facts["value"])))
    lines = [table(rows, ("output", "dtype", "shape", "values"), indent="")]
    first = next((v for v in outputs.values() if isinstance(v, np.ndarray) and v.size), None)
    if first is not None:
        numbers = " ".join(f"{v:.6g}" if first.dtype.kind in "fV" else str(v) for v in first.reshape(-1)[:8].tolist())
        lines.append(f"first values: {safe(numbers)}{' ...' if first.size > 8 else ''}")
    lines.append(f"load {report['load_ms']:.1f} ms, first call {report['first_call_ms']:.2f} ms")
    if report["calls"] > 1:
        lines[-1] += f", then {report['median_call_ms']:.2f} ms (median of {report['calls'] - 1})"
    return "\n".join(lines)
