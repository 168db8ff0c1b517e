"""Running CUDA kernels: through Numba's simulator, or as cubins that ``cuda.core`` loads and launches.

Numba and ``cuda.core`` are imported when the first kernel needs them.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import linecache
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gpujit.kernels.cuda_tile import CudaCall, CudaKernel, Limits, plan_cuda
from gpujit.kernels.cuda_values import checks_of
from gpujit.kernels.numba_cuda import argument_types, render
from gpujit.kernels.tile import TileProgram
from gpujit.support.errors import InternalError, OpError

# Blocks a multiprocessor works on at one time; more of them would only wait.
BLOCKS_EACH = 8

_numbers = itertools.count()


def load_source(source: str) -> Callable[..., None]:
    """The function ``kernel`` of a source. Its lines are found by tracebacks, and its file name is one of a kind."""
    # The simulator tells shared arrays apart by file and line.
    name = f"<cuda kernel {hashlib.sha256(source.encode()).hexdigest()[:12]} {next(_numbers)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names: dict[str, Any] = {}
    exec(compile(source, name, "exec"), names)
    found: Callable[..., None] = names["kernel"]
    return found


@lru_cache(maxsize=256)
def simulated(source: str) -> Callable[..., Any]:
    """The kernel of a source for the simulator. Raises InternalError where Numba was imported without it."""
    if not importlib.import_module("gpujit.kernels.cuda_device").SIMULATED:
        raise InternalError("kernels run on arrays of NumPy in the simulator only; set NUMBA_ENABLE_CUDASIM=1 first")
    return load_source(source)


def run(
    program: TileProgram,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    sizes: Sequence[int],
    params: Sequence[int] = (),
    limits: Limits = Limits(),  # noqa: B008
    blocks: int = 2,
) -> CudaKernel | None:
    """Run a program in the simulator with at most ``blocks`` blocks, as ``kernels.reference.run`` does.

    Returns the kernel that ran, None when the space is empty. Raises OpError with the message of a check that fails,
    NotRendered.
    """
    arrays = [*inputs, *outputs]
    call = plan_cuda(
        program,
        [strides_of(x) for x in inputs],
        [strides_of(x) for x in outputs],
        sizes,
        params,
        [x.__array_interface__["data"][0] for x in arrays],
        limits,
    )
    kernel = call.kernel
    function = simulated(render(kernel))
    if not call.units:
        return None
    pointer = importlib.import_module("gpujit.kernels.cuda_simulated").Pointer
    arguments: list[Any] = [
        pointer(arrays[array + (len(inputs) if is_output else 0)], first)
        for (is_output, array), first in zip(kernel.pointers, call.firsts, strict=True)
    ]
    checks = checks_of(kernel)
    flags = np.zeros(len(checks), np.int32)
    if checks:
        arguments.append(pointer(flags))
    integer = np.int32 if kernel.tile.bits == 32 else np.int64
    arguments += [integer(w) for w in call.words]
    function[min(call.blocks, blocks), kernel.tile.block](*arguments)  # type: ignore[index]
    if flags.any():
        raise OpError(checks[int(flags.argmax())].message)
    return kernel


def strides_of(x: np.ndarray) -> tuple[int, ...]:
    """Strides in elements."""
    return tuple(s // x.itemsize for s in x.strides)


def argument_block(call: CudaCall, addresses: Sequence[int], flags: int, inputs: int) -> list[Any]:
    """All arguments of a launch: addresses of inputs, then of outputs, become those of the pointers.

    ``flags``: the address of one zeroed int32 for each check, 0 when the kernel has none.
    """
    kernel, p = call.kernel, call.kernel.program
    found: list[Any] = []
    for (is_output, array), first in zip(kernel.pointers, call.firsts, strict=True):
        dtype = (p.outputs if is_output else p.inputs)[array].dtype
        found.append(addresses[array + (inputs if is_output else 0)] + first * dtype.itemsize)
    if checks_of(kernel):
        found.append(flags)
    integer = np.int32 if kernel.tile.bits == 32 else np.int64
    return [*found, *(integer(w) for w in call.words)]


class CudaFunction:
    """A compiled kernel, loaded on the current device. Not tried without a GPU: see ``run`` for the simulator."""

    def __init__(self, kernel: CudaKernel, compute_capability: tuple[int, int], multiprocessors: int) -> None:
        compiled = importlib.import_module("gpujit.kernels.cuda_compile").compile_source(
            render(kernel), argument_types(kernel), compute_capability, kernel.tile.block
        )
        self.core = importlib.import_module("cuda.core")
        # The object keeps the code loaded for as long as this one lives.
        self.object = self.core.ObjectCode.from_cubin(compiled.cubin, name=compiled.name)
        self.function = self.object.get_kernel(compiled.name)
        self.kernel, self.most_blocks = kernel, BLOCKS_EACH * multiprocessors

    def launch(self, stream: Any, call: CudaCall, arguments: Sequence[Any]) -> None:
        """Put a run on a stream of ``cuda.core``; ``arguments`` are those of ``argument_block``."""
        if not call.units:
            return
        config = self.core.LaunchConfig(grid=min(call.blocks, self.most_blocks), block=self.kernel.tile.block)
        self.core.launch(stream, config, self.function, *arguments)
