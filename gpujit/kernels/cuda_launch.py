"""CUDA sources as functions, and programs run by Numba's simulator.

Numba is imported when the first kernel needs it.
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

from gpujit.kernels.cuda_tile import CudaKernel, Limits, plan_cuda
from gpujit.kernels.cuda_values import checks_of
from gpujit.kernels.numba_cuda import render
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
