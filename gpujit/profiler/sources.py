"""The generated source behind native steps."""

from __future__ import annotations

import hashlib

from gpujit.kernels.cpu_launch import BoundKernel
from gpujit.kernels.launches import DeviceStep, Launch
from gpujit.kernels.templates.bound import BoundTemplate, source_at
from gpujit.profiler.data import KernelSource
from gpujit.static_runtime.native import NativeKernel

# Characters kept of one source.
LARGEST = 200_000


class Sources:
    """Sources of the kernels asked for, each once, by a short key."""

    def __init__(self) -> None:
        self._found: dict[str, KernelSource] = {}
        self._keys: dict[int, str] = {}

    def key(self, kernel: NativeKernel, title: str) -> str:
        """The key of a step's source; "" when it has none."""
        known = self._keys.get(kernel.address)
        if known is None:
            known = self._keys[kernel.address] = self._add(kernel, title)
        return known

    def device_key(self, step: DeviceStep, title: str) -> str:
        """The key of the source of a device step's kernels; "" when libraries do all of it."""
        kernels = dict.fromkeys(c.kernel for c in step.calls if isinstance(c, Launch))
        text = "\n\n".join(k.source for k in kernels)
        return self._keep(text, title, "Numba CUDA", text) if kernels else ""

    def all(self) -> tuple[KernelSource, ...]:
        """The sources, in the order in which they were asked for."""
        return tuple(self._found.values())

    def _add(self, kernel: NativeKernel, title: str) -> str:
        owner = kernel.owner
        if isinstance(owner, BoundKernel):
            # Loading kernels needs no renderer: it is imported for profiles alone.
            from gpujit.kernels.cpu import render

            nest = owner.call.nest
            name, text = nest.key, f"{_comment(nest.key)}\n{render(nest)}"
        elif isinstance(owner, BoundTemplate):
            found = source_at(owner.address)
            if found is None:
                return ""
            name, text = found[0], f"{_comment(found[0])}\n{found[1]}"
        else:
            return ""
        return self._keep(name, title, "llvm", text)

    def _keep(self, name: str, title: str, language: str, text: str) -> str:
        key = hashlib.sha256(name.encode()).hexdigest()[:16]
        self._found.setdefault(key, KernelSource(key, title, language, text[:LARGEST], len(text) > LARGEST))
        return key


def _comment(text: str) -> str:
    return "\n".join(f"; {line}".rstrip() for line in text.splitlines())
