"""CUDA sources to machine code: the one module that uses what numba-cuda does not promise, and NVIDIA's tools from pip.

Nothing here needs a GPU or a driver. Written against numba-cuda 0.30, which setup.cfg pins.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from numba.cuda import compiler as numba_compiler
from numba.cuda import types as numba_types
from numba.cuda.cudadrv import nvrtc as numba_nvrtc

from gpujit.kernels.cuda_cache import Compiled as Compiled
from gpujit.kernels.cuda_launch import load_source
from gpujit.support.errors import InternalError

# Numba has no description of these for type checkers.
types: Any = numba_types
compiler: Any = numba_compiler
nvrtc: Any = numba_nvrtc


@dataclass(frozen=True)
class Resources:
    """What a thread of a kernel takes, and the bytes of shared memory of a block."""

    registers: int
    stack: int
    shared: int
    local: int


def signature(argument_types: Sequence[str]) -> Any:
    """Numba's signature of a kernel with these arguments, as ``numba_cuda.argument_types`` gives them."""
    return types.void(
        *(types.CPointer(getattr(types, t[1:])) if t.startswith("*") else getattr(types, t) for t in argument_types)
    )


def compile_source(
    source: str, argument_types: Sequence[str], compute_capability: tuple[int, int], block: int | None = None
) -> Compiled:
    """The cubin of a source's kernel; ``block`` bounds its registers to what blocks of so many threads can have."""
    started = time.perf_counter()
    function = load_source(source.replace("@cuda.jit\n", "", 1))
    library, _ = compiler._compile_pyfunc_with_fixup(
        function,
        signature(argument_types),
        device=False,
        abi="numba",
        cc=compute_capability,
        launch_bounds=block,
    )
    cubin = library.get_cubin(cc=compute_capability)
    code = getattr(cubin, "code", cubin)
    return Compiled(library._entry_name, bytes(code), time.perf_counter() - started)


def supported() -> list[tuple[int, int]]:
    """The compute capabilities that the toolkit compiles for, the oldest first."""
    return sorted(nvrtc.get_supported_ccs())


def tool(name: str) -> str:
    """The path of a program of the ``cuda-toolkit`` packages. Raises InternalError when it is not installed."""
    for distribution in metadata.distributions():
        if (distribution.name or "").startswith("nvidia-"):
            for file in distribution.files or ():
                if file.name == name and file.parent.name == "bin":
                    return str(Path(str(distribution.locate_file(file))).resolve())
    raise InternalError(f"{name} is not installed: pip install 'cuda-toolkit[nvcc,cuobjdump,nvdisasm]==13.*'")


def _ask(program: str, options: Sequence[str], cubin: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        done = subprocess.run([tool(program), *options, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InternalError(f"{program} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def resources(compiled: Compiled) -> Resources:
    """Registers and memory of the kernel. Raises InternalError when cuobjdump says nothing of it."""
    text = _ask("cuobjdump", ["-res-usage"], compiled.cubin)
    after = text.partition(f"Function {compiled.name}:")[2]
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", after)
    if found is None:
        raise InternalError(f"cuobjdump names no resources of {compiled.name}:\n{text}")
    return Resources(*(int(n) for n in found.groups()))


def instructions(compiled: Compiled) -> list[str]:
    """The machine instructions' names with their modifiers, as LDG.E.128."""
    text = _ask("cuobjdump", ["-sass"], compiled.cubin)
    return re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", text)
