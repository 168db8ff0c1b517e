"""A process of ``gpujit bench``: one contender, loaded and called here alone, so that none disturbs another.

It reads ``FOLDER/task``, answers with a line of JSON when it is ready, and then with one for each line that asks for a
round. Other frameworks are imported here, by name, and nowhere else in gpujit. With ``export`` as another argument it
writes the model as ``FOLDER/model.onnx``, or into ``FOLDER/why`` why not.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import IO, Any

import numpy as np

# Seconds that the calls of one round take at least, and calls before any is counted.
SHORTEST, WARM = 0.01, 2


@dataclass(frozen=True)
class Task:
    """What to run: the contender's name, where it is to run, the model's file and method, its inputs, all of them, and
    an ONNX file."""

    name: str
    device: str
    file: str
    method: str
    values: list[Any]
    threads: int
    weights: str
    seed: int
    onnx: str


class Absent(Exception):
    """A contender that cannot be had here, and why."""


@dataclass(frozen=True)
class Running:
    """A contender that is ready.

    Args:
        call: runs the model, and returns when its results are there.
        on_host: makes of its result one that is not on a device.
        device: where it runs, and, when that was to be chosen, ``choice`` says why.
    """

    call: Callable[[], Any]
    on_host: Callable[[Any], Any] = lambda result: result
    device: str = "cpu"
    choice: str = ""


def command(folder: Path, *more: str) -> list[str]:
    """What starts such a process."""
    # With the parent's path and not with the folder the user is in, where there may be anything.
    code = f"import sys; sys.path[:] = {sys.path!r}; from gpujit.cli.bench_worker import main; main()"
    return [sys.executable, "-c", code, str(folder), *more]


def main() -> None:
    """Serve until the parent closes the pipe."""
    folder = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    # Nothing else may write among the answers.
    os.dup2(2, 1)
    # Written by the parent, which is this user's.
    task: Task = pickle.loads((folder / "task").read_bytes())
    if "export" in sys.argv:
        export(task, folder)
    else:
        serve(task, folder, answers)


def serve(task: Task, folder: Path, answers: IO[str]) -> None:
    """Answer until nobody asks any more."""

    def answer(**facts: Any) -> None:
        answers.write(json.dumps(facts) + "\n")
        answers.flush()

    warnings.simplefilter("ignore")
    try:
        call, facts, count = prepared(task, folder)
    except Absent as fault:
        answer(absent=str(fault))
        return
    except Exception as fault:
        answer(error=f"{type(fault).__name__}: {fault}", device_fault=_device_fault(fault))
        return
    answer(**facts)
    for _ in sys.stdin:
        call()
        start = time.perf_counter()
        for _ in range(count):
            call()
        answer(seconds=(time.perf_counter() - start) / count)


def _device_fault(fault: Exception) -> dict[str, str] | None:
    """What a DeviceError is made of."""
    is_one = type(fault).__name__ == "DeviceError"
    return {name: getattr(fault, name) for name in ("message", "where", "code")} if is_one else None


def prepared(task: Task, folder: Path) -> tuple[Callable[[], Any], dict[str, Any], int]:
    """The contender's call, what getting there took, and how many calls make a round. Outputs go into the folder."""
    start = time.perf_counter()
    make, version = _MAKERS[task.name](task)
    if task.name == "onnxruntime" and not task.onnx:
        # In a process of its own: what PyTorch takes is not ONNX Runtime's.
        began = time.perf_counter()
        subprocess.run(command(folder, "export"), stdin=subprocess.DEVNULL, check=False)
        if not (folder / "model.onnx").exists():
            why = folder / "why"
            raise Absent(why.read_text() if why.exists() else "the export to ONNX ended without a model")
        make, start = partial(make, str(folder / "model.onnx")), start + time.perf_counter() - began
    imported = time.perf_counter()
    running = make()
    call = running.call
    loaded = time.perf_counter()
    result = call()
    first = time.perf_counter()
    arrays = list(leaves(running.on_host(result)))
    np.savez(folder / "outputs.npz", *[_plain(a) for a in arrays])
    for _ in range(WARM):
        began = time.perf_counter()
        call()
    seconds = time.perf_counter() - began
    facts = {
        "version": version,
        "device": running.device,
        "choice": running.choice,
        "import_seconds": imported - start,
        "load_seconds": loaded - imported,
        "first_call_seconds": first - loaded,
        "memory": _most_memory(),
    }
    return call, facts, max(1, int(SHORTEST / max(seconds, 1e-7)))


def leaves(value: Any) -> Iterator[np.ndarray]:
    """All tensors inside a result, in order, as arrays; numbers as well."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from leaves(v)
    elif hasattr(value, "detach"):
        value = value.detach().cpu()
        yield (value.float() if "bfloat16" in str(value.dtype) else value).numpy()
    elif isinstance(value, (np.ndarray, bool, int, float)):
        yield np.asarray(value)


def _plain(array: np.ndarray) -> np.ndarray:
    # NumPy's files hold no bfloat16.
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _most_memory() -> int:
    """The most memory this process had so far, in bytes; 0 where nobody knows."""
    try:
        usage = import_module("resource").getrusage(0).ru_maxrss
    except ImportError:
        return 0
    return int(usage) * (1 if sys.platform == "darwin" else 1024)


Maker = Callable[..., Running]


def _gpujit(task: Task) -> tuple[Maker, str]:
    from gpujit import __version__
    from gpujit.cli import inputs, tiers
    from gpujit.ops.families.random.random import manual_seed

    def make() -> Running:
        module = inputs.load(task.file, task.device)
        model = inputs.Chosen(module, inputs.method_of(module, task.method), task.values, 0.0)
        call = tiers.make(task.name, model, task.threads, task.weights)
        values = model.on_device(task.values)
        manual_seed(task.seed)

        def run() -> Any:
            result = call(*values)
            model.wait()
            return result

        choice = module._program.choice if task.device == "auto" else ""
        here = (lambda: call(*values)) if model.device == "cpu" else run
        return Running(here, model.on_host, model.device, choice)

    return make, __version__


def _module(name: str, package: str) -> tuple[Any, str]:
    """A package that may not be installed, and its version. Raises Absent."""
    try:
        return import_module(name), metadata.version(package)
    except ImportError as fault:
        raise Absent(f"{package} is not installed here ({fault})") from None


def _torch(threads: int, device: str = "cpu") -> tuple[Any, str]:
    torch, version = _module("torch", "torch")
    if device != "cpu" and not torch.cuda.is_available():
        raise Absent("the PyTorch that is installed here sees no GPU")
    torch.set_num_threads(threads)
    with suppress(RuntimeError):
        torch.set_num_interop_threads(1)
    torch.set_grad_enabled(False)
    return torch, version


def _tensors(torch: Any, values: list[Any], device: str = "cpu") -> list[Any]:
    found = []
    for v in values:
        if isinstance(v, np.ndarray) and v.dtype.kind == "V":
            found.append(torch.from_numpy(v.view(np.int16).copy()).view(torch.bfloat16))
        else:
            found.append(torch.from_numpy(v.copy()) if isinstance(v, np.ndarray) else v)
    return found if device == "cpu" else [v.to(device) if hasattr(v, "detach") else v for v in found]


def _waiting(torch: Any, call: Callable[[], Any], device: str) -> Callable[[], Any]:
    """A call that returns when its results are there."""
    if device == "cpu":
        return call

    def run() -> Any:
        result = call()
        torch.cuda.synchronize(device)
        return result

    return run


def _jit(task: Task) -> tuple[Maker, str]:
    """torch.jit as it loads the file, frozen, or optimised for inference: the fastest that computes the same."""
    torch, version = _torch(task.threads, task.device)

    def make() -> Running:
        given = _tensors(torch, task.values, task.device)

        def load() -> Any:
            return torch.jit.load(task.file, map_location=task.device).eval()

        def calls(module: Any) -> Callable[[], Any]:
            method = module if task.method == "forward" else getattr(module, task.method)
            return _waiting(torch, lambda: method(*given), task.device)

        keep = [] if task.method == "forward" else [task.method]
        found = [load]
        wanted = _twice(torch, calls(load()), task.seed)
        others: list[Callable[[], Any]] = [
            lambda: torch.jit.freeze(load(), preserved_attrs=keep),
            lambda: torch.jit.optimize_for_inference(load(), other_methods=keep),
        ]
        for optimise in others:
            # A module that writes its attributes may compute something else when it is frozen.
            with suppress(Exception):
                got = _twice(torch, calls(optimise()), task.seed)
                if all(a.shape == b.shape and np.allclose(a, b, 1e-3, 1e-3) for a, b in zip(got, wanted, strict=True)):
                    found.append(optimise)
        if len(found) > 1:
            found.sort(key=lambda load: shortest(calls(load())))
        torch.manual_seed(task.seed)
        return Running(calls(found[0]()), device=task.device)

    return make, version


def _twice(torch: Any, call: Callable[[], Any], seed: int) -> list[np.ndarray]:
    torch.manual_seed(seed)
    return [np.array(_plain(a), np.float64) for _ in range(2) for a in leaves(call())]


def shortest(call: Callable[[], Any]) -> float:
    """Seconds of the shortest of some calls."""
    found = []
    for _ in range(6):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def _compile(task: Task) -> tuple[Maker, str]:
    """torch.compile of what torch.export makes of the program: it does not take TorchScript itself."""
    torch, version = _torch(task.threads, task.device)

    def make() -> Running:
        if task.method != "forward":
            raise Absent("it takes forward only")
        given = _tensors(torch, task.values, task.device)
        loaded = torch.jit.load(task.file, map_location=task.device).eval()
        try:
            converter = import_module("torch._export.converter").TS2EPConverter
            program = converter(loaded, tuple(given)).convert().module()
        except Exception as fault:
            raise Absent(f"torch.export does not take this program ({_first_line(fault)})") from None
        compiled = torch.compile(program)
        torch.manual_seed(task.seed)
        return Running(_waiting(torch, lambda: compiled(*given), task.device), device=task.device)

    return make, version


def _onnxruntime(task: Task) -> tuple[Maker, str]:
    """ONNX Runtime on the file that was given, or on what torch.onnx makes of the program."""
    runtime, version = _module("onnxruntime", "onnxruntime")
    providers: list[Any] = ["CPUExecutionProvider"]
    kind, _, number = task.device.partition(":")
    if kind == "cuda":
        providers.insert(0, (_ONNX_CUDA, {"device_id": int(number or 0)}))
        if _ONNX_CUDA not in runtime.get_available_providers():
            raise Absent("the ONNX Runtime that is installed here has no part for GPUs (onnxruntime-gpu has)")

    def make(model: str = task.onnx) -> Running:
        if task.method != "forward":
            raise Absent("it takes forward only")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = task.threads, 1
        options.log_severity_level = 3
        session = runtime.InferenceSession(model, options, providers=providers)
        if kind == "cuda" and _ONNX_CUDA not in session.get_providers():
            # It says so on standard error, and goes on without.
            raise Absent("ONNX Runtime cannot use the GPU here")
        arrays = [v if isinstance(v, np.ndarray) else np.asarray(v) for v in task.values if v is not None]
        wanted = session.get_inputs()
        if len(arrays) < len(wanted):
            raise Absent(f"the ONNX model has {len(wanted)} inputs, {len(arrays)} are given")
        # Numbers that the export fixed are no inputs any more.
        feed = dict(zip((i.name for i in wanted), arrays, strict=False))
        if kind == "cuda":
            return _bound(runtime, session, feed, task.device)
        return Running(lambda: session.run(None, feed))

    return make, version


def _bound(runtime: Any, session: Any, feed: dict[str, np.ndarray], device: str) -> Running:
    """A session whose inputs and results lie on a GPU."""
    kind, _, number = device.partition(":")
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_ortvalue_input(name, runtime.OrtValue.ortvalue_from_numpy(array, kind, int(number or 0)))
    for output in session.get_outputs():
        binding.bind_output(output.name, kind, int(number or 0))

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return Running(run, lambda _: binding.copy_outputs_to_cpu(), device)


def export(task: Task, folder: Path) -> None:
    """Write the model as ONNX, or why that cannot be."""
    beside = folder / "model.tmp"
    try:
        torch, _ = _torch(task.threads)
        module = torch.jit.load(task.file, map_location="cpu").eval()
        torch.onnx.export(module, tuple(_tensors(torch, task.values)), str(beside), dynamo=False)
        beside.rename(folder / "model.onnx")
    except Exception as fault:
        text = str(fault) if isinstance(fault, Absent) else f"torch.onnx does not export it ({_first_line(fault)})"
        (folder / "why").write_text(f"{text}; give --onnx FILE")


def _first_line(fault: Exception) -> str:
    return f"{type(fault).__name__}: {(str(fault).strip().splitlines() or [''])[0][:200]}"


_MAKERS: dict[str, Callable[[Task], tuple[Maker, str]]] = {
    "interpreter": _gpujit,
    "fused": _gpujit,
    "planned": _gpujit,
    "torch.jit": _jit,
    "torch.compile": _compile,
    "onnxruntime": _onnxruntime,
}
_ONNX_CUDA = "CUDAExecutionProvider"
PEERS = ("torch.jit", "torch.compile", "onnxruntime")
