"""What callers give to a module on a GPU, and results written into arrays that they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpujit.ir.arrays import describe
from gpujit.ir.values import DeviceTensor
from gpujit.runtime.device import GpuDevice, contiguous_copy, to_host
from gpujit.runtime.outputs import targets_of
from gpujit.support.errors import ArgumentError


def arguments(device: GpuDevice, value: Any) -> Any:
    """A caller's value in which arrays on the device are DeviceTensors; lists, tuples and dicts are looked into.

    Raises DeviceError for an array on another device.
    """
    if isinstance(value, (bool, int, float, str, type(None), np.ndarray)):
        return value
    if type(value) is list or isinstance(value, tuple):
        items = [arguments(device, v) for v in value]
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value
        return value._make(items) if hasattr(value, "_make") else type(value)(items)
    if type(value) is dict:
        return {k: arguments(device, v) for k, v in value.items()}
    found = device.tensor(value)
    return value if found is None else found


@dataclass(frozen=True, slots=True)
class Target:
    """An array that a caller gives for a result, as it was given and as it is written."""

    given: Any
    memory: DeviceTensor | np.ndarray


def device_targets(device: GpuDevice, out: Any) -> Sequence[Target | None]:
    """What a caller gave as ``out``: an array, or a tuple or list of arrays and None, on the device or the host.

    Raises ArgumentError for anything else, and DeviceError for arrays on another device.
    """
    many = isinstance(out, (tuple, list))
    found: list[Target | None] = []
    for i, given in enumerate(out if many else [out]):
        memory = None if given is None else device.tensor(given)
        if memory is not None:
            found.append(Target(given, memory))
        elif given is None and many:
            found.append(None)
        else:
            try:
                (host,) = targets_of([given]) if given is not None else targets_of(given)
            except ArgumentError as fault:
                raise ArgumentError(fault.message.replace("out[0]", f"out[{i}]" if many else "out")) from None
            assert host is not None
            found.append(Target(given, host))
    return found


def put_on_device(device: GpuDevice, result: Any, targets: Sequence[Target | None]) -> Any:
    """The result with the given arrays in the place of its own, which are copied into them; a NamedTuple stays one.

    Raises ArgumentError when numbers, shapes or dtypes do not fit; then nothing was written.
    """
    parts = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(parts) != len(targets):
        raise ArgumentError(f"out has {len(targets)} arrays for {len(parts)} outputs")
    copies: list[tuple[Target, DeviceTensor]] = []
    for i, (target, made) in enumerate(zip(targets, parts, strict=True)):
        if target is None:
            continue
        if not isinstance(made, DeviceTensor):
            raise ArgumentError(f"out[{i}] is {describe(target.given)}, the output is no tensor: {describe(made)}")
        if (made.shape, made.dtype) != (target.memory.shape, target.memory.dtype):
            raise ArgumentError(f"out[{i}] is {describe(target.given)}, the output is {made.dtype}{list(made.shape)}")
        copies.append((target, made))
        parts[i] = target.given
    stream = device.stream()
    if len(copies) > 1:
        # Targets may overlap what other results are views of.
        copies = [(t, contiguous_copy(device, x, stream)) for t, x in copies]
    for target, made in copies:
        if not made.nbytes:
            continue
        if isinstance(target.memory, DeviceTensor):
            device.copy(target.memory, made, stream)
        else:
            target.memory[...] = to_host(device, made, stream)
    if isinstance(result, tuple):
        return result._make(parts) if hasattr(result, "_make") else tuple(parts)
    return parts if isinstance(result, list) else parts[0]
