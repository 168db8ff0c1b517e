"""``gpujit doctor``: what there is here for gpujit, what is missing, and what to do about it."""

from __future__ import annotations

import argparse
import os
import platform
import secrets
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path

from gpujit import __version__
from gpujit.cli.gpu import Gpu, driver
from gpujit.cli.output import print_json, safe, styled, table, time_text
from gpujit.support import threads
from gpujit.support.config import Settings, config
from gpujit.support.errors import GpujitError
from gpujit.support.units import bytes_text

DESCRIPTION = """Show what gpujit finds here: versions, the processor, how many threads it may use, where compiled
kernels are kept and whether that works, whether kernels can be compiled, optional packages, GPUs with their
driver, and switches that are set. What is missing comes with one thing to do. The exit code is 1 when something that
gpujit needs does not work; what is merely not there is no failure."""
EXAMPLES = """examples:
  gpujit doctor
  gpujit doctor --json | jq '.checks[] | select(.status == "failed")'"""

OK, FAILED, NOTE, ABSENT = "ok", "failed", "note", "absent"
_STYLES = {OK: "green", FAILED: "bold red", NOTE: "yellow", ABSENT: "dim"}
# Packages that gpujit needs, and those that give it more, with what for and how to get them.
NEEDED = ("numpy", "ml_dtypes", "networkx", "llvmlite", "rich", "jinja2")
OPTIONAL = {
    "numba-cuda": ("compiles CUDA kernels", "pip install 'gpujit[cuda]'"),
    "cuda-toolkit": ("NVIDIA's compiler parts", "pip install 'gpujit[cuda]'"),
    "torch": ("a peer of gpujit bench", "pip install torch"),
    "onnxruntime": ("a peer of gpujit bench", "pip install onnxruntime"),
    "matplotlib": ("plots in notebooks", "pip install matplotlib"),
}
_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
# A kernel that does nothing, to see whether one can be made and loaded.
_KERNEL = "define void @gpujit_doctor() { ret void }"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: how it is, what was found, and what to do when it is not as it should be."""

    topic: str
    name: str
    status: str
    value: str
    advice: str = ""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The command takes no arguments of its own."""


def execute(arguments: argparse.Namespace) -> int:
    checks = list(examined())
    is_fine = all(c.status != FAILED for c in checks)
    if arguments.json:
        print_json({"ok": is_fine, "checks": [asdict(c) for c in checks]})
        return 0 if is_fine else 1
    for topic in dict.fromkeys(c.topic for c in checks):
        print(styled(topic, "bold"))
        rows = [(c.name, "" if c.status == OK else c.status, c.value) for c in checks if c.topic == topic]
        print(table(rows))
    advice = [c for c in checks if c.advice]
    if advice:
        print("\n" + styled("to do", "bold"))
        for c in advice:
            print(f"  {styled(c.status, _STYLES[c.status])} {safe(c.name)}: {safe(c.advice)}")
    print(
        "\n" + (styled("all that gpujit needs is there", "green") if is_fine else styled("something fails", "bold red"))
    )
    return 0 if is_fine else 1


def examined() -> Iterator[Check]:
    """Everything that is looked at, topic by topic."""
    yield from _versions()
    yield from _machine()
    yield from _threads()
    yield from _cache()
    yield _compiler()
    yield from _gpu(driver())
    yield from _optional()
    yield from _switches(os.environ)


def _version(package: str) -> str:
    """The installed version; empty when it is not installed. Nothing is imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _versions() -> Iterator[Check]:
    yield Check("versions", "gpujit", OK, __version__)
    yield Check("versions", "python", OK, f"{platform.python_version()} ({platform.python_implementation()})")
    yield Check("versions", "system", OK, platform.platform())
    for name in NEEDED:
        found = _version(name)
        advice = "" if found else f"pip install {name}"
        yield Check("versions", name, OK if found else FAILED, found or "not installed", advice)


def _machine() -> Iterator[Check]:
    name = platform.processor() or platform.machine()
    for line in _lines(_PROC / "cpuinfo"):
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    yield Check("machine", "processor", OK, name)
    try:
        # LLVM takes longer to import than all the rest to look at.
        from gpujit.kernels.target import host

        here = host()
    except (ImportError, GpujitError) as fault:
        yield Check("machine", "vectors", FAILED, str(fault), "pip install --force-reinstall llvmlite")
    else:
        known = [f for f in ("avx2", "fma", "avx512f", "neon", "sve") if f"+{f}" in here.features.split(",")]
        yield Check("machine", "vectors", OK, f"{here.width} floats ({here.cpu}: {', '.join(known) or 'basic'})")
    memory = _memory()
    if memory:
        yield Check("machine", "memory", OK, memory)


def _memory() -> str:
    found = ""
    for line in _lines(_PROC / "meminfo"):
        if line.startswith("MemTotal:"):
            found = bytes_text(int(line.split()[1]) * 1024)
    limit = next(iter(_lines(_CGROUP / "memory.max")), "max").strip()
    if limit.isdigit():
        found += f"; {bytes_text(int(limit))} for this container"
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _threads() -> Iterator[Check]:
    affinity = getattr(os, "sched_getaffinity", None)
    allowed = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    available, used = threads.available(), threads.thread_count()
    yield Check("threads", "processors", OK, f"{os.cpu_count()} in the machine, {allowed} for this process")
    if available < allowed:
        yield Check("threads", "quota", OK, f"{available} by the container's quota")
    advice = ""
    if used > available:
        advice = f"GPUJIT_THREADS asks for more than the {available} that there are: unset it or make it smaller"
    yield Check("threads", "threads", NOTE if advice else OK, f"{used} for plans and kernels", advice)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        value = os.environ.get(name)
        if value is not None:
            yield Check("threads", name, OK, f"{value} (what NumPy's products use)")


def _cache() -> Iterator[Check]:
    from gpujit.kernels import cache
    from gpujit.kernels.cache_files import unsafe

    folder = cache.folder()
    if not config.cache:
        yield Check("cache", "folder", NOTE, str(folder), "GPUJIT_CACHE is 0: each process compiles anew; unset it")
        return
    if not folder.is_absolute():
        yield Check("cache", "folder", FAILED, "this user has no home folder", "set GPUJIT_CACHE_DIR to a folder")
        return
    fault = unsafe(folder) or _unwritable(folder)
    if fault:
        advice = "make it this user's own and writable, or set GPUJIT_CACHE_DIR to another folder"
        yield Check("cache", "folder", FAILED, fault, advice)
        return
    entries = cache.Store(folder, config.cache_limit).entries()
    size = sum(e.size for e in entries)
    yield Check("cache", "folder", OK, str(folder))
    yield Check(
        "cache", "size", OK, f"{len(entries)} entries, {bytes_text(size)} of at most {bytes_text(config.cache_limit)}"
    )


def _unwritable(folder: Path) -> str:
    """Why nothing can be written into a folder, or into the one it would be made in; empty when it can."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    trial = folder / f".gpujit-{secrets.token_hex(6)}.tmp"
    try:
        with open(trial, "xb") as stream:
            stream.write(b"x")
        trial.unlink()
    except OSError as fault:
        return f"{folder} cannot be written: {fault.strerror or fault}"
    return ""


def _compiler() -> Check:
    start = time.perf_counter()
    try:
        from gpujit.kernels.native import Library, compile_ir

        Library(compile_ir([_KERNEL])).address("gpujit_doctor")
    except (ImportError, OSError, GpujitError) as fault:
        advice = "pip install --force-reinstall llvmlite; without it everything runs on the interpreter"
        return Check("compiler", "kernels", FAILED, str(fault), advice)
    return Check("compiler", "kernels", OK, f"compiled and loaded one in {time_text(time.perf_counter() - start)}")


def _gpu(found: Gpu) -> Iterator[Check]:
    if found.problem:
        yield Check("gpu", "driver", ABSENT if found.is_absent else NOTE, found.problem, found.remedy)
    else:
        yield Check("gpu", "driver", OK, f"supports CUDA {found.version}")
    for k, device in enumerate(found.devices):
        yield Check("gpu", f"device {k}", OK, device)


def _optional() -> Iterator[Check]:
    for name, (purpose, remedy) in OPTIONAL.items():
        found = _version(name)
        yield Check("optional", name, OK if found else ABSENT, found or f"not installed ({purpose}: {remedy})")


def _switches(environment: Iterable[str]) -> Iterator[Check]:
    """Switches that are set, and variables that look like some but are none."""
    known = {f.metadata["variable"]: f for f in fields(Settings)}
    for name in sorted(n for n in environment if n.startswith("GPUJIT_")):
        if name in known:
            value = getattr(config, known[name].name)
            yield Check("switches", name, OK, f"{value!r}: {known[name].metadata['help']}")
        else:
            yield Check("switches", name, NOTE, "no such switch", "unset it; gpujit config has the names there are")
    if sys.flags.optimize > 1:
        yield Check("switches", "python -OO", NOTE, "docstrings are gone", "run Python without -OO")
