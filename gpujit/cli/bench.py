"""``gpujit bench FILE``: the tiers of gpujit, and other runtimes when asked, timed in rounds that take turns."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from gpujit.cli import tiers
from gpujit.cli.agree import Bounds, Difference, differences
from gpujit.cli.bench_worker import PEERS, Task, command
from gpujit.cli.compare import bounds_of
from gpujit.cli.inputs import INPUTS, Chosen, add_model_arguments, chosen, positive
from gpujit.cli.output import print_json, safe, styled, table, time_text
from gpujit.ir.values import parse_device
from gpujit.support.errors import ArgumentError, DeviceError, ScriptRuntimeError
from gpujit.support.progress import Stage
from gpujit.support.threads import thread_count
from gpujit.support.units import bytes_text

DESCRIPTION = """Time calls of a model on gpujit's tiers and, with --peers, on torch.jit, torch.compile and ONNX Runtime
where they are installed. Each contender has a process of its own with the same number of threads; rounds of calls take
turns, so that a machine that slows down slows all. Shown are the median of the rounds, how far their middle half lies
apart, and the ratio to the first tier's rounds; loading and the first call, in which kernels are compiled or found on
disk, apart. Outputs of the first call are compared, and the exit code is 1 when they differ by more than rounding.

With --device they run on a GPU, or on each of several devices: inputs lie there already, and a call ends when its
results are there. Tiers on a GPU are plans in any case: "interpreter" of the operators one by one, as they were loaded,
"fused" of the frozen and fused model, both put there call by call; "planned" as graphs.

torch.compile takes no TorchScript: it gets what torch.export makes of the program. ONNX Runtime gets --onnx FILE, or
what torch.onnx makes of it. A contender that cannot be had is named with the reason."""
EXAMPLES = f"""{INPUTS}
examples:
  gpujit bench model.pt 1x3x224x224
  gpujit bench model.pt 1x3x224x224 --threads 4 --peers all
  gpujit bench model.pt 1x3x224x224 --device cuda:0,cpu
  gpujit bench bert.pt 1x128:int64:1000 --tiers planned --peers torch.jit,onnxruntime --onnx bert.onnx --json"""

# Seconds until another contender's threads sleep.
IDLE = 0.02
_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "GPUJIT_THREADS")


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_model_arguments(command)
    command.add_argument("--rounds", type=positive, metavar="N", default=20, help="rounds of calls (default: 20)")
    tiers.add_plan_arguments(command)
    command.add_argument(
        "--device", metavar="LIST", dest="devices", default="cpu",
        help="where they run: of cpu, cuda:0 or another GPU, auto for a GPU that works or else the CPU, with commas "
        "(default: cpu)",
    )  # fmt: skip
    command.add_argument(
        "--tiers", metavar="LIST", help=f"of {', '.join(tiers.TIERS)}, with commas (default: all, planned first)"
    )
    command.add_argument("--peers", metavar="LIST", default="", help=f"of {', '.join(PEERS)}, with commas; or all")
    command.add_argument("--onnx", metavar="FILE", default="", help="the same model as an ONNX file, for onnxruntime")
    command.add_argument("--rtol", type=float, metavar="X", help="as for gpujit compare")
    command.add_argument("--atol", type=float, metavar="X", help="as for gpujit compare")


def execute(arguments: argparse.Namespace) -> int:
    bounds = bounds_of(arguments)
    names = [*tiers.named(arguments.tiers, "planned,fused,interpreter"), *_peers(arguments.peers)]
    places = _devices(arguments.devices)
    model = chosen(arguments)
    threads = arguments.threads or thread_count()
    values = _with_defaults(model)
    with ExitStack() as stack:
        contenders = _started(stack, arguments, [(p, n) for p in places for n in names], values, threads)
        running = [c for c in contenders if not c.absent]
        with Stage("rounds", arguments.rounds) as stage:
            for number in range(arguments.rounds):
                # Nobody comes after the same one each time.
                turn = number % len(running)
                for c in (*running[turn:], *running[:turn]):
                    time.sleep(IDLE)
                    c.round()
                stage.advance()
    reference = running[0]
    rows = [c.facts(reference, bounds) for c in contenders]
    is_fine = all(not r["problem"] for r in rows)
    found = {
        "file": arguments.file, "method": arguments.method, "threads": threads, "rounds": arguments.rounds,
        "devices": list(dict.fromkeys(c.device for c in contenders)), "reference": reference.label, "ok": is_fine,
        "contenders": rows,
    }  # fmt: skip
    if arguments.json:
        print_json(found)
    else:
        print(as_text(found))
    return 0 if is_fine else 1


def _started(
    stack: ExitStack, arguments: argparse.Namespace, wanted: list[tuple[str, str]], values: list[Any], threads: int
) -> list[Contender]:
    """Contenders that are ready, or absent, for pairs of a place and a name; one for each that turn out to be the same.

    Raises ScriptRuntimeError, DeviceError.
    """
    contenders: dict[tuple[str, str], Contender] = {}
    # What "auto" and "cuda" turned out to be.
    known: dict[str, str] = {}
    with Stage("prepare", len(wanted)) as stage:
        for place, name in wanted:
            stage.note = name
            # Tiers come first, so that peers are asked for a device that has a number.
            device = known.get(place, place)
            if (device, name) not in contenders:
                task = Task(
                    name, device, os.path.abspath(arguments.file), arguments.method, values, threads,
                    arguments.weights, arguments.seed, os.path.abspath(arguments.onnx) if arguments.onnx else "",
                )  # fmt: skip
                made = stack.enter_context(Contender(task))
                made.start()
                known.setdefault(place, made.device)
                contenders.setdefault((made.device, name), made)
            stage.advance()
    return list(contenders.values())


def _peers(text: str) -> list[str]:
    names = [n.strip() for n in text.split(",") if n.strip()]
    if names == ["all"]:
        return list(PEERS)
    for name in names:
        if name not in PEERS:
            raise ArgumentError(f"{name!r} is no peer; there are {', '.join(PEERS)}")
    return list(dict.fromkeys(names))


def _devices(text: str) -> list[str]:
    """The places that a list names. Raises DeviceError for a name that is none, ArgumentError for none at all."""
    found = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in found:
        if name != "auto":
            parse_device(name)
    if not found:
        raise ArgumentError("no device is named; use cpu, cuda:0 or another GPU, or auto")
    return found


def _with_defaults(model: Chosen) -> list[Any]:
    """A value for every argument: converters want them all."""
    arguments = model.method.schema.arguments[1:]
    return [*model.values, *(a.default for a in arguments[len(model.values) :] if a.has_default)]


@dataclass
class Contender:
    """A process with one way to run the model."""

    task: Task
    times: list[float] = field(default_factory=list)
    ready: dict[str, Any] = field(default_factory=dict)
    outputs: list[np.ndarray] = field(default_factory=list)
    absent: str = ""

    @property
    def device(self) -> str:
        """Where it runs, or was to run."""
        return str(self.ready.get("device") or self.task.device)

    @property
    def label(self) -> str:
        """Its name, for people."""
        return self.task.name if self.device == "cpu" else f"{self.task.name} on {self.device}"

    def __enter__(self) -> Contender:
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        (self._folder / "task").write_bytes(pickle.dumps(self.task))
        self._log = self._stack.enter_context(open(self._folder / "log", "w+b"))
        self._process = subprocess.Popen(
            command(self._folder),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            # An interrupt from the keyboard is the parent's to handle.
            start_new_session=True,
            env={**os.environ, **dict.fromkeys(_VARIABLES, str(self.task.threads))},
        )  # fmt: skip
        return self

    def __exit__(self, *fault: object) -> None:
        # It may have started compilers of its own.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            # What was not written yet goes nowhere.
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]  # both are pipes
        self._stack.close()

    def start(self) -> None:
        """Wait until it is ready, or known not to be had. Raises ScriptRuntimeError when the model fails on gpujit, and
        DeviceError when its device cannot be used."""
        self.ready = self._answer()
        self.absent = self.ready.pop("absent", "")
        if "error" in self.ready:
            if self.task.name not in PEERS:
                if self.ready.get("device_fault"):
                    raise DeviceError(**self.ready["device_fault"])
                raise ScriptRuntimeError(f"{self.task.name}: {self.ready['error']}")
            self.absent = self.ready.pop("error")
        if not self.absent:
            with np.load(self._folder / "outputs.npz", allow_pickle=False) as found:
                self.outputs = [found[name] for name in found.files]

    def round(self) -> None:
        """Have it do a round of calls."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "seconds" not in answer:
            raise ScriptRuntimeError(f"{self.task.name}: {answer.get('error')}")
        self.times.append(answer["seconds"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        code = self._process.wait()
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip().splitlines()
        return {"error": f"its process ended with {code}{': ' + said[-1] if said else ''}"}

    def facts(self, reference: Contender, bounds: Bounds) -> dict[str, Any]:
        """What was measured, for JSON; seconds as milliseconds."""
        found: dict[str, Any] = {"name": self.label, "device": self.device, "absent": self.absent, "problem": ""}
        if self.absent:
            return found
        low, _, high = quantiles(self.times, n=4) if len(self.times) > 1 else (self.times[0],) * 3
        compared = _compared(self.outputs, reference.outputs, bounds)
        wrong = next((f"{d.output}: {d.problem}" for d in compared if not d.is_fine), "")
        return {
            **found,
            "version": self.ready["version"],
            "import_ms": self.ready["import_seconds"] * 1e3,
            "load_ms": self.ready["load_seconds"] * 1e3,
            "first_call_ms": self.ready["first_call_seconds"] * 1e3,
            "median_ms": median(self.times) * 1e3,
            "quarter_ms": low * 1e3,
            "three_quarters_ms": high * 1e3,
            "least_ms": min(self.times) * 1e3,
            # Round by round, as rounds are what the machine's moods have in common.
            "ratio": median(a / b for a, b in zip(self.times, reference.times, strict=True)),
            "memory": self.ready["memory"],
            "choice": self.ready["choice"],
            "of_largest": max((d.of_largest or 0.0 for d in compared), default=0.0),
            "problem": wrong,
        }


def _compared(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], bounds: Bounds) -> list[Difference]:
    if len(got) != len(wanted):
        return [Difference("out", "", "", problem=f"{len(got)} outputs instead of {len(wanted)}")]
    return [d for a, b in zip(got, wanted, strict=True) for d in differences(a, b, bounds)]


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.095 else f"{ratio:.1g}"


def as_text(found: dict[str, Any]) -> str:
    """What was measured, for people."""
    rows, notes = [], []
    for r in found["contenders"]:
        if r["absent"]:
            notes.append(f"no {r['name']}: {safe(r['absent'])}")
            continue
        spread = (r["three_quarters_ms"] - r["quarter_ms"]) / r["median_ms"]
        rows.append((
            safe(r["name"]), time_text(r["median_ms"] / 1e3), f"{spread:.0%}", _ratio(r["ratio"]),
            time_text(r["first_call_ms"] / 1e3), time_text(r["load_ms"] / 1e3), time_text(r["import_ms"] / 1e3),
            bytes_text(r["memory"]), "MISMATCH" if r["problem"] else f"{r['of_largest']:.0e}",
        ))  # fmt: skip
        if r["choice"]:
            notes.append(safe(r["choice"]))
        if r["problem"]:
            notes.append(styled(f"{r['name']} gives something else: {r['problem']}", "red"))
    header = ("", "median", "spread", "ratio", "first call", "load", "import", "memory", "apart")
    threads = f"{found['threads']} thread{'s' * (found['threads'] > 1)}"
    head = f"{found['method']}, {threads}, {found['rounds']} rounds; ratio: median over {found['reference']}'s"
    return "\n".join([head, table(rows, header, indent="", right=range(1, 9)), *dict.fromkeys(notes)])
