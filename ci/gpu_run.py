"""Everything that needs a GPU, within six minutes: operators, tiny models, cuDNN, tests, then benchmarks; one table.

    python ci/gpu_run.py [--json OUT] [--seconds 350] [--models DIR] [--dry-run]

Each section has a share of the seconds and says what it left out. The exit status is 0 when all is well, 1 when a check
fails or is cut short, 2 where there is no GPU to use or a package is missing. ``--dry-run`` runs a few tiny cases in
Numba's simulator.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

# What a section may take of the whole, its command, and how its result is read.
SHARES = {"operators": 0.19, "models": 0.19, "libraries": 0.1, "tests": 0.06, "benchmarks": 0.46}
# Seconds after its share at which a section is ended.
GRACE = 10
NEEDED = ("numpy", "ml_dtypes", "numba", "llvmlite", "networkx", "pytest", "hypothesis")
ON_A_GPU = ("numba_cuda", "cupy", "cuda.core")


@dataclass
class Section:
    """What became of a section: ``outcome`` is ok, FAILED or CUT SHORT."""

    name: str
    outcome: str
    seconds: float
    details: str
    left_out: list[str]
    faults: list[str]


def missing(names: tuple[str, ...]) -> list[str]:
    """Packages that cannot be imported."""

    def is_there(name: str) -> bool:
        try:
            return find_spec(name) is not None
        except ImportError:
            return False

    return [name for name in names if not is_there(name)]


def run(command: list[str], environment: dict[str, str], seconds: float) -> int | None:
    """The exit status; None when it was ended, with all processes that it started."""
    child = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    try:
        return child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def tests(name: str, paths: list[str], seconds: float, environment: dict[str, str], scratch: Path) -> Section:
    """A section of tests marked ``gpu``; those for which there is no time are skipped."""
    report = scratch / f"{name}.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "gpu",
        "--gpu-seconds",
        str(seconds),
    ]
    started = time.monotonic()
    status = run([*command, f"--junitxml={report}", "-o", "junit_family=xunit2", *paths], environment, seconds + GRACE)
    taken = time.monotonic() - started
    if status is None or not report.exists():
        outcome = "CUT SHORT" if status is None else "FAILED"
        return Section(name, outcome, taken, "no report", [], [f"exit status {status}"])
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    faults, left_out = [], []
    for case in ElementTree.parse(report).iter("testcase"):
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        skip = case.find("skipped")
        counts["failed" if bad is not None else "skipped" if skip is not None else "passed"] += 1
        if bad is not None:
            faults.append(f"{case.get('name')}: {(bad.get('message') or '').splitlines()[0][:160]}")
        elif skip is not None:
            left_out.append(f"{case.get('name')}: {skip.get('message')}")
    details = ", ".join(f"{n} {k}" for k, n in counts.items() if n)
    is_well = status == 0 and counts["passed"] > 0
    return Section(name, "ok" if is_well else "FAILED", taken, details or "none ran", left_out, faults)


def benchmarks(seconds: float, environment: dict[str, str], scratch: Path, options: list[str]) -> tuple[Section, Any]:
    """The section of bench/gpu.py, and what it found."""
    report = scratch / "bench.json"
    command = [sys.executable, "bench/gpu.py", "--seconds", str(seconds), "--json", str(report), *options]
    started = time.monotonic()
    status = run(command, environment, seconds + GRACE)
    taken = time.monotonic() - started
    if not report.exists():
        outcome = "CUT SHORT" if status is None else "FAILED"
        return Section("benchmarks", outcome, taken, "no report", [], [f"exit status {status}"]), None
    found = json.loads(report.read_text())
    rows = [r for name in ("kernels", "models") for r in found[name]]
    met = sum(r.get("goal") is True for r in rows)
    details = f"{len(rows)} rows, {met} of {sum('goal' in r for r in rows)} goals met"
    outcome = "ok" if status == 0 else "FAILED"
    return Section("benchmarks", outcome, taken, details, found["skipped"], found["faults"]), found


def table(sections: list[Section]) -> str:
    """The sections for people."""
    rows = [
        ("section", "result", "seconds", "what"),
        *((s.name, s.outcome, f"{s.seconds:.0f}", s.details) for s in sections),
    ]
    widths = [max(len(r[k]) for r in rows) for k in range(4)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    for s in sections:
        lines += [f"{s.name}: WRONG: {text}" for text in s.faults]
        lines += [f"{s.name}: left out: {text}" for text in s.left_out[:5]]
        if len(s.left_out) > 5:
            lines.append(f"{s.name}: left out: {len(s.left_out) - 5} more (see the JSON file)")
    return "\n".join(lines)


def device_or_reason(is_dry: bool) -> tuple[str, str]:
    """The device's description, or why there is none."""
    lacking = missing((*NEEDED, *(() if is_dry else ON_A_GPU)))
    if lacking:
        return "", f"packages are missing: {', '.join(lacking)} (ci/gpu.sh --prepare fetches what is small)"
    # Not imported before it is known that it can be.
    from gpujit.runtime.device import open_device
    from gpujit.support.errors import DeviceError

    try:
        device = open_device("cuda:0")
    except DeviceError as fault:
        return "", fault.message
    return device.description, "" if is_dry else compiling_fault(device)


def compiling_fault(device: Any) -> str:
    """Why kernels cannot be compiled here; an empty text when they can."""
    from gpujit.kernels import cuda_cache
    from gpujit.kernels.cuda_templates import put
    from gpujit.kernels.launches import DeviceKernel
    from gpujit.support.errors import GpujitError

    types = ("*uint32", "*uint32", "*int64", "*int32", *["int64"] * 4)
    try:
        cuda_cache.cubin(DeviceKernel(put.source(1), types, put.BLOCK, "put"), device.capability)
    except GpujitError as fault:
        return f"no kernel can be compiled with numba-cuda {metadata.version('numba-cuda')}: {fault.message}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write everything there")
    parser.add_argument("--seconds", type=float, default=350, help="for everything together")
    parser.add_argument("--models", type=Path, help="folder with silero_vad.jit")
    parser.add_argument("--only", default=",".join(SHARES), help="sections, separated by commas")
    parser.add_argument("--dry-run", action="store_true", help="a few tiny cases in Numba's simulator")
    arguments = parser.parse_args()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    if arguments.dry_run:
        environment["NUMBA_ENABLE_CUDASIM"] = os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    if arguments.models is not None:
        environment["GPUJIT_TEST_MODELS"] = str(arguments.models.resolve())
    started = time.monotonic()
    what, reason = device_or_reason(arguments.dry_run)
    if reason:
        print(f"nothing was checked: {reason}", file=sys.stderr)
        return 2
    print(what, flush=True)
    sections: list[Section] = []
    found = None
    wanted = [name for name in SHARES if name in arguments.only.split(",")]
    with tempfile.TemporaryDirectory() as room:
        # Kernels compiled by one section serve the next ones, and nothing older does.
        environment.setdefault("GPUJIT_CACHE_DIR", str(Path(room, "kernels")))
        for k, name in enumerate(wanted):
            left = arguments.seconds - (time.monotonic() - started) - GRACE
            seconds = max(left * SHARES[name] / sum(SHARES[n] for n in wanted[k:]), 1)
            print(f"\n=== {name}: at most {seconds:.0f} s", flush=True)
            if name == "benchmarks":
                options = ["--dry-run"] if arguments.dry_run else []
                options += ["--models", str(arguments.models)] if arguments.models is not None else []
                section, found = benchmarks(seconds, environment, Path(room), options)
            else:
                rest = [f"--ignore=tests/gpu/test_{n}.py" for n in ("operators", "models", "libraries")]
                paths = ["tests/gpu", *rest] if name == "tests" else [f"tests/gpu/test_{name}.py"]
                section = tests(name, paths, seconds, environment, Path(room))
            sections.append(section)
    print(f"\n{what}\n{table(sections)}\n{time.monotonic() - started:.0f} s in all")
    if arguments.json is not None:
        report = {"device": what, "seconds": round(time.monotonic() - started, 1), "benchmarks": found}
        report["sections"] = [asdict(s) for s in sections]
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if all(s.outcome == "ok" for s in sections) else 1


if __name__ == "__main__":
    sys.exit(main())
