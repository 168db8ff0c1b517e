"""Steps on a GPU from tile programs and kernel sources: launches whose arguments are addresses of numbered arrays.

Arrays, scratch memory included, are taken to begin at multiples of ``ALIGNED`` bytes: whoever runs a step sees to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from gpujit.kernels import cuda_split
from gpujit.kernels.cuda_split import Array, slices_of, split
from gpujit.kernels.cuda_tile import CudaCall, CudaKernel, Limits, limits_here, plan_cuda
from gpujit.kernels.cuda_values import checks_of
from gpujit.kernels.launches import FLAGS, SCRATCH, Address, Call, DeviceKernel, DeviceStep, Launch, Number
from gpujit.kernels.numba_cuda import argument_types, render
from gpujit.kernels.schedule import Strides, collapse
from gpujit.kernels.tile import TileProgram

# Bytes at whose multiples arrays begin; and those parts of scratch memory.
ALIGNED, PART = 16, 256


class Laid(NamedTuple):
    """An array of a step: the address of its first element, and its strides in elements."""

    at: Address
    steps: Strides


def launch_of(
    program: TileProgram,
    inputs: Sequence[Laid],
    outputs: Sequence[Laid],
    sizes: Sequence[int],
    params: Sequence[int] = (),
    label: str = "tile",
    first_check: int = 0,
    limits: Limits | None = None,
) -> tuple[Launch, tuple[str, ...]] | None:
    """One launch that runs a program, and the messages of its checks, whose flags begin with number ``first_check``.

    None when there is nothing to do. Raises NotRendered.
    """
    arrays = [*inputs, *outputs]
    call = _planned(program, inputs, outputs, sizes, params, limits)
    if not call.units:
        return None
    kernel = call.kernel
    arguments: list[Address | Number] = []
    for (is_output, number), first in zip(kernel.pointers, call.firsts, strict=True):
        at = arrays[number + (len(inputs) if is_output else 0)].at
        dtype = (kernel.program.outputs if is_output else kernel.program.inputs)[number].dtype
        arguments.append(Address(at.array, at.offset + first * dtype.itemsize))
    messages = tuple(c.message for c in checks_of(kernel))
    if messages:
        arguments.append(Address(FLAGS, 4 * first_check))
    arguments += [Number(int(w), f"int{kernel.tile.bits}") for w in call.words]
    return Launch(_device_kernel(kernel, label), call.blocks, tuple(arguments)), messages


def _planned(
    program: TileProgram,
    inputs: Sequence[Laid],
    outputs: Sequence[Laid],
    sizes: Sequence[int],
    params: Sequence[int],
    limits: Limits | None,
) -> CudaCall:
    ins, outs = [x.steps for x in inputs], [x.steps for x in outputs]
    return plan_cuda(program, ins, outs, sizes, params, [x.at.offset for x in (*inputs, *outputs)], limits)


def _together(shape: Sequence[int]) -> Strides:
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


@lru_cache(maxsize=1024)
def _device_kernel(kernel: CudaKernel, label: str) -> DeviceKernel:
    return DeviceKernel(render(kernel), tuple(argument_types(kernel)), kernel.tile.block, label)


class StepBuilder:
    """A step under construction: ``operands`` and ``results`` number its arrays; calls are added in order."""

    def __init__(self, operands: Sequence[int], results: Sequence[int]) -> None:
        """Args: for each array the bytes from its root's start to its first element."""
        self._arrays = [Address(k, offset) for k, offset in enumerate((*operands, *results))]
        self._operands = len(operands)
        self._calls: list[Call] = []
        self._scratch = 0
        self._checks: list[str] = []
        self._constants: list[np.ndarray] = []
        self._overwrites: dict[int, tuple[int, ...]] = {}
        self._restates = (0, 0)

    def operand(self, k: int) -> Address:
        """The first element of an operand."""
        return self._arrays[k]

    def result(self, k: int = 0) -> Address:
        """The first element of a result."""
        return self._arrays[self._operands + k]

    def scratch(self, nbytes: int) -> Address:
        """Memory of the step's own."""
        at = Address(SCRATCH, self._scratch)
        self._scratch += -(-nbytes // PART) * PART
        return at

    def constant(self, array: np.ndarray) -> Address:
        """An array that goes to the device once; its elements lie together there."""
        self._constants.append(np.ascontiguousarray(array))
        return Address(len(self._arrays) + len(self._constants) - 1)

    def check(self, message: str) -> Address:
        """The flag that a kernel sets when a check of its own fails."""
        self._checks.append(message)
        return Address(FLAGS, 4 * (len(self._checks) - 1))

    def add(self, call: Call) -> None:
        """One more call."""
        self._calls.append(call)

    def kernel(
        self, source: str, label: str, block: int, grid: int, arguments: Sequence[tuple[str, Address] | Number]
    ) -> None:
        """A launch of a source; addresses come with the type they point to."""
        types = tuple(x.type if isinstance(x, Number) else f"*{x[0]}" for x in arguments)
        values = tuple(x if isinstance(x, Number) else x[1] for x in arguments)
        self.add(Launch(DeviceKernel(source, types, block, label), grid, values))

    def tile(
        self,
        program: TileProgram,
        inputs: Sequence[Laid],
        outputs: Sequence[Laid],
        sizes: Sequence[int],
        params: Sequence[int] = (),
        label: str = "tile",
        limits: Limits | None = None,
    ) -> None:
        """Launches that run a program: one, or more where rows are few and long. Raises NotRendered."""
        limits = limits or limits_here()
        merged = None
        if program.rows and prod(sizes) >= cuda_split.LONG:
            strides = [x.steps for x in inputs], [x.steps for x in outputs]
            merged = collapse(program, *strides, sizes, params).with_a_dim
            call = _planned(program, inputs, outputs, sizes, params, limits)
            slices = slices_of(call, merged.sizes, limits.multiprocessors)
        if merged is None or slices == 1:
            self._one(program, inputs, outputs, sizes, params, label, limits)
            return
        parts, scratch = split(merged, slices)
        arrays = {Array("scratch", k): Laid(self.scratch(x.nbytes), _together(x.shape)) for k, x in enumerate(scratch)}
        arrays |= {Array("input", k): Laid(x.at, s) for k, (x, s) in enumerate(zip(inputs, merged.inputs, strict=True))}
        arrays |= {
            Array("output", k): Laid(x.at, s) for k, (x, s) in enumerate(zip(outputs, merged.outputs, strict=True))
        }
        for part in parts:
            ins, outs = [arrays[a] for a in part.inputs], [arrays[a] for a in part.outputs]
            self._one(part.program, ins, outs, part.sizes, part.params, label, limits)

    def _one(
        self,
        program: TileProgram,
        inputs: Sequence[Laid],
        outputs: Sequence[Laid],
        sizes: Sequence[int],
        params: Sequence[int],
        label: str,
        limits: Limits,
    ) -> None:
        found = launch_of(program, inputs, outputs, sizes, params, label, len(self._checks), limits)
        if found is not None:
            self.add(found[0])
            self._checks += found[1]

    def overwrites(self, result: int, operands: tuple[int, ...]) -> None:
        """Say which operands a result may be written over."""
        self._overwrites[result] = operands

    @property
    def count(self) -> int:
        """Calls so far."""
        return len(self._calls)

    def restated(self, first: int) -> None:
        """Say that calls from this number on copy the first operand to the first result, which lies as that does, and
        that no other call reads the operand: the result may be written over it."""
        self._restates = first, len(self._calls)
        self.overwrites(0, (0,))

    def finish(self) -> DeviceStep:
        """The step."""
        results = len(self._arrays) - self._operands
        return DeviceStep(
            tuple(self._calls),
            self._scratch,
            tuple(self._checks),
            tuple(self._overwrites.get(k, ()) for k in range(results)),
            tuple(self._constants),
            self._restates,
        )


def step_of(
    program: TileProgram,
    inputs: Sequence[tuple[int, Strides]],
    outputs: Sequence[tuple[int, Strides]],
    sizes: Sequence[int],
    params: Sequence[int] = (),
    label: str = "tile",
    limits: Limits | None = None,
) -> DeviceStep:
    """The step that runs a program on operands and results at offsets in bytes, with strides in elements.

    Raises NotRendered.
    """
    build = StepBuilder([offset for offset, _ in inputs], [offset for offset, _ in outputs])
    ins = [Laid(build.operand(k), steps) for k, (_, steps) in enumerate(inputs)]
    outs = [Laid(build.result(k), steps) for k, (_, steps) in enumerate(outputs)]
    build.tile(program, ins, outs, sizes, params, label, limits)
    return build.finish()
