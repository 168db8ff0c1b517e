"""Where the machine code of a CUDA kernel comes from: this process has it, or the cache on disk, or it is compiled.

Code is for one kind of GPU, whose compute capability is part of its name on disk, so that no other kind gets it. No GPU
is needed, nor a driver; what is on disk needs neither Numba nor NVIDIA's toolkit.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from gpujit.kernels import build as builds
from gpujit.kernels import cache as files
from gpujit.kernels.build import Built
from gpujit.kernels.launches import DeviceKernel
from gpujit.kernels.promises import Counters, Promises
from gpujit.kernels.supply import NotCompiled
from gpujit.support import background
from gpujit.support.config import config
from gpujit.support.errors import DeviceError, InternalError
from gpujit.support.forks import after_fork

INSTALL = "pip install 'gpujit[cuda]'"
FORMAT = 1
# A worker takes two seconds to start, a kernel half of one.
WORKERS = builds.Kind(__name__, each=4, patience=5.0)
# Packages whose versions change what is compiled. Those of NVIDIA's toolkit are absent where the system has one.
_COMPILER = ("numba-cuda", "numba", "llvmlite")
_TOOLKIT = ("nvidia-nvvm", "nvidia-nvjitlink", "nvidia-cuda-nvrtc", "nvidia-cuda-nvcc")
_TOOLKIT_FOLDERS = ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")
# Characters of a label that stand in the heading of a source on disk.
_LABEL = 100
_KEPT = re.compile(r"# for (sm_\d+),")

Capability = tuple[int, int]


@dataclass(frozen=True)
class Compiled:
    """Machine code for one kind of GPU. ``seconds`` is what compiling took."""

    # The entry's name has a number of the compiling process in it, so it belongs to the code.
    name: str
    cubin: bytes
    seconds: float


counters = Counters()
# Code by the name it has on disk.
_kernels: Promises[Compiled] = Promises()
# Numba's compiler and NVIDIA's linker are used by one thread at a time.
_compiling = threading.RLock()

# What became of a kernel.
SHARED, LOADED, COMPILED, REFUSED = "shared", "loaded", "compiled", "refused"
# Told of each kernel as it is ready: its number, and one of the above. Several threads call it.
Progress = Callable[[int, str], None]


@after_fork
def _after_fork() -> None:
    """Who held the lock in the parent is not here."""
    global _compiling
    _compiling = threading.RLock()


def architecture(capability: Capability) -> str:
    """A compute capability as NVIDIA's tools write it: ``sm_90``."""
    return f"sm_{capability[0]}{capability[1]}"


# ------------------------------------------------------------------------------------------------------------- names


@cache
def toolchain() -> str:
    """The versions of what compiles, a line each. Raises DeviceError when numba-cuda is not installed."""
    lines = []
    for name in (*_COMPILER, *_TOOLKIT):
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            if name in _COMPILER:
                raise DeviceError(f"{name}, which compiles kernels for a GPU, is not installed: {INSTALL}") from None
    for folder in (os.environ.get(v) for v in _TOOLKIT_FOLDERS):
        if len(lines) < len(_COMPILER) + len(_TOOLKIT) and folder:
            lines.append(f"toolkit {_system_toolkit(Path(folder))}")
    return "\n".join(lines)


def _system_toolkit(folder: Path) -> str:
    """What tells a toolkit that pip did not install from another one."""
    try:
        version = json.loads((folder / "version.json").read_text())["cuda"]["version"]
    except (OSError, ValueError, KeyError, TypeError):
        version = "of unknown version"
    return f"{version} in {folder}"


@cache
def code_version() -> str:
    """A hash of the code that kernels call and are compiled by."""
    found = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted(p for p in (*here.glob("cuda*.py*"), *here.glob("templates/cuda*.py*")) if p.is_file()):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def key_of(kernel: DeviceKernel, capability: Capability) -> str:
    """The name of a kernel's code on disk. Raises DeviceError when numba-cuda is not installed."""
    text = "\n".join(
        (
            f"cubin {FORMAT} {code_version()} {architecture(capability)} {kernel.block}",
            toolchain(), " ".join(kernel.arguments), kernel.source,
        )
    )  # fmt: skip
    return hashlib.sha256(text.encode()).hexdigest()


# ---------------------------------------------------------------------------------------------------------- compiling


def build(kernel: DeviceKernel, capability: Capability) -> Built:
    """A kernel's code as it is kept, and its source for people. Raises InternalError, DeviceError without a toolkit."""
    target = architecture(capability)
    compiler: Any = _compiler()
    try:
        with _compiling:
            found: Compiled = compiler.compile_source(kernel.source, kernel.arguments, capability, kernel.block)
    except Exception as fault:
        # Numba has no class for what its compiler raises, and the toolkit's parts have one each.
        if _is_missing_library(fault):
            raise _no_compiler(fault) from None
        lines = [line for line in str(fault).splitlines() if line.strip()] or [""]
        raise InternalError(
            f"{_heading(kernel.label)} cannot be compiled for {target}: {type(fault).__name__}: {lines[0]}"
        ) from fault
    head = {"architecture": target, "entry": found.name, "seconds": round(found.seconds, 3)}
    source = f"# for {target}, {kernel.block} threads a block: {_heading(kernel.label)}\n"
    source += "".join(f"# {line}\n" for line in toolchain().splitlines()) + kernel.source
    return Built(json.dumps(head).encode() + b"\n" + found.cubin, source)


def greeting() -> bytes:
    """What a worker says first: its code and tools must be the parent's."""
    return f"gpujit cuda worker {code_version()} {toolchain()}".encode()


def _compiler() -> Any:
    if os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0"):
        raise DeviceError("Numba's simulator has no compiler: unset NUMBA_ENABLE_CUDASIM")
    try:
        return import_module("gpujit.kernels.cuda_compile")
    except ImportError as fault:
        raise DeviceError(f"kernels for a GPU cannot be compiled ({fault}): {INSTALL}") from None


def supported() -> list[Capability]:
    """The compute capabilities that kernels can be compiled for. Raises DeviceError without the tools."""
    toolchain()
    compiler = _compiler()
    try:
        found: list[Capability] = compiler.supported()
    except Exception as fault:
        raise _no_compiler(fault) from None
    return found


def _no_compiler(fault: Exception) -> Exception:
    """The error for a part of NVIDIA's toolkit that was looked for in vain; the fault itself when it is another one."""
    if _is_missing_library(fault):
        return DeviceError(f"NVIDIA's toolkit, which compiles kernels for a GPU, is not found: {INSTALL}")
    return fault


def _is_missing_library(fault: BaseException) -> bool:
    """Whether a part of NVIDIA's toolkit was looked for in vain."""
    return any("DynamicLibNotFound" in c.__name__ or c.__name__ == "NvvmSupportError" for c in type(fault).__mro__)


def architecture_of(source: str) -> str:
    """The architecture that a source kept beside code says it was compiled for; empty for another text."""
    found = _KEPT.match(source)
    return "" if found is None else found[1]


def heading_of(source: str) -> str:
    """What such a source says it is."""
    return source.partition("\n")[0].removeprefix("# for ")


def _heading(label: str) -> str:
    """A label on one line of plain text: it may have names from a file in it."""
    return "".join(c if c.isprintable() else "?" for c in label)[:_LABEL]


def _opened(image: bytes, capability: Capability) -> Compiled:
    """The code that was kept. Raises InternalError for what is none, or is for another GPU."""
    head, _, cubin = image.partition(b"\n")
    try:
        facts = json.loads(head)
        name, target, seconds = facts["entry"], facts["architecture"], float(facts["seconds"])
    except (ValueError, KeyError, TypeError):
        raise InternalError("what is kept is no CUDA kernel") from None
    if target != architecture(capability) or not isinstance(name, str) or not cubin:
        raise InternalError(f"what is kept is for {target}, not {architecture(capability)}")
    return Compiled(name, cubin, seconds)


# ------------------------------------------------------------------------------------------------------------- asking


def cubin(kernel: DeviceKernel, compute_capability: Capability) -> Compiled:
    """A kernel's code for GPUs of this compute capability. Raises InternalError for one that cannot be compiled,
    NotCompiled where none may be, DeviceError without numba-cuda or NVIDIA's toolkit."""
    found = prepare([(kernel, compute_capability)])[0]
    if isinstance(found, InternalError):
        raise found
    return found


def prepare(
    wanted: Sequence[tuple[DeviceKernel, Capability]], progress: Progress | None = None
) -> list[Compiled | InternalError]:
    """The code of each kernel, compiled in several processes when many are new; or why there is none.

    Raises DeviceError without numba-cuda or NVIDIA's toolkit.
    """
    keys = [key_of(kernel, capability) for kernel, capability in wanted]
    first: dict[str, int] = {}
    for k, key in enumerate(keys):
        first.setdefault(key, k)

    def tell(key: str, how: str) -> None:
        if progress is not None:
            progress(first[key], how)

    with _kernels.ask(first) as (found, mine):
        counters.shared += len(keys) - len(mine)
        if mine:
            _make({key: wanted[first[key]] for key in mine}, mine, tell)
    results: list[Compiled | InternalError] = []
    for k, key in enumerate(keys):
        problem = found[key].exception()
        if progress is not None and (key not in mine or first[key] != k):
            progress(k, SHARED if problem is None else REFUSED)
        if problem is not None and not isinstance(problem, InternalError):
            raise problem
        results.append(found[key].result() if problem is None else problem)
    return results


def _make(
    wanted: dict[str, tuple[DeviceKernel, Capability]],
    mine: dict[str, Future[Compiled]],
    tell: Callable[[str, str], None],
) -> None:
    """Fulfil what this thread has promised."""
    store = files.store()
    missing = []
    for key, future in mine.items():
        image = None if store is None else store.get(key, files.CUBIN)
        if image is not None:
            try:
                future.set_result(_opened(image, wanted[key][1]))
            except InternalError as fault:
                files.log.warning("a kernel from the cache is compiled again: %s", fault.message)
            else:
                counters.loaded += 1
                tell(key, LOADED)
                continue
        missing.append(key)
    if missing and "compile" in config.disable:
        for key in missing:
            _kernels.refuse(key, mine[key], NotCompiled())
            tell(key, REFUSED)
        return
    if not missing:
        return
    # Said before processes are started in vain.
    _compiler()
    background.checkpoint()

    def done(k: int, result: Built | InternalError) -> None:
        key = missing[k]
        if isinstance(result, InternalError):
            counters.refused += 1
            _kernels.refuse(key, mine[key], result)
            tell(key, REFUSED)
            return
        counters.compiled += 1
        mine[key].set_result(_opened(result.image, wanted[key][1]))
        if store is not None:
            store.put(key, result.image, result.source, files.CUBIN)
        tell(key, COMPILED)

    started = time.perf_counter()
    builds.run_all([wanted[key] for key in missing], WORKERS, done)
    files.log.info("%d CUDA kernels compiled in %.1f s", len(missing), time.perf_counter() - started)
