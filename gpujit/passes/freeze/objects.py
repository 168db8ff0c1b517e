"""The objects of a frozen module: copies with what is still needed, and the memory its methods write into."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.values import QTensor, ScriptObject, SparseTensor
from gpujit.passes.analysis.attributes import Key, arrays_in, reachable, span


class Cloner:
    """Copies objects.

    Args:
        needed: attributes to be kept, by the id of their object. Objects without an entry vanish.
        written: attributes written in place: their memory is copied, so that the old module does not change.
        escaped: objects to be copied whole, with memory and under their own class.
        whole: values whose objects are copied whole and share their memory.
    ``copies`` maps ids of old objects to the new ones.
    """

    def __init__(
        self,
        needed: dict[int, set[str]],
        written: set[Key],
        escaped: dict[int, ScriptObject],
        whole: Iterable[Any],
    ) -> None:
        self.needed = needed
        self.written = written
        self.escaped = escaped
        self.whole = {id(o): o for o in reachable(whole)}
        self.copies: dict[int, ScriptObject] = {}
        self.values: dict[int, Any] = {}
        self.names: dict[str, int] = {}
        self.memory = _Memory()
        self.kept: list[Any] = []

    def copy_module(self, root: ScriptObject) -> ScriptObject:
        """A copy of the module with all that is needed below it."""
        for object_ in reachable([root]):
            for name, value in zip(object_.type.attributes, object_.slots, strict=True):
                if (id(object_), name) in self.written or id(object_) in self.escaped:
                    self.memory.add(value)
        return self.object(root)

    def object(self, old: ScriptObject) -> ScriptObject:
        found = self.copies.get(id(old))
        if found is not None:
            return found
        if id(old) in self.escaped or id(old) in self.whole:
            new = self.copies[id(old)] = ScriptObject(old.type, list(old.slots))
            names = list(old.type.attributes)
            wanted = set(self.needed.get(id(old), ())) if old.type.is_module else set()
            assert wanted <= set(names)
        else:
            new = self.copies[id(old)] = ScriptObject(self.type(old.type))
            wanted = self.needed.get(id(old), set())
            names = [n for n in old.type.attributes if n in wanted or self.leads_on(old.get(n))]
        partial = new.type is not old.type
        if partial:
            new.slots = [None] * len(names)
        for slot, name in enumerate(names):
            value = self.value(old.get(name), (id(old), name) in self.written or id(old) in self.escaped)
            new.slots[slot] = value
            if partial:
                moved = isinstance(value, ScriptObject)
                new.type.add_attribute(name, value.type if moved else old.type.attributes[name])
        if partial:
            new.type.parameters = tuple(n for n in old.type.parameters if n in new.type.slot_of)
            new.type.buffers = tuple(n for n in old.type.buffers if n in new.type.slot_of)
        return new

    def leads_on(self, value: Any) -> bool:
        """Whether something needed lies in or below the value."""
        return isinstance(value, ScriptObject) and any(
            id(o) in self.needed or id(o) in self.whole for o in reachable([value])
        )

    def type(self, old: T.ClassType) -> T.ClassType:
        """A new class with the old one's name, or a mangled one when the name is taken."""
        number = self.names.get(old.name, 0)
        self.names[old.name] = number + 1
        place, _, last = old.name.rpartition(".")
        name = f"{place}.___torch_mangle_frozen_{number}.{last}" if number else old.name
        return T.ClassType(name, old.is_module, constants=dict(old.constants))

    def value(self, old: Any, own_memory: bool) -> Any:
        """A copy of an attribute's value; containers are new, a shared one stays shared."""
        if isinstance(old, ScriptObject):
            return self.object(old)
        if isinstance(old, (list, dict)):
            if id(old) in self.values:
                return self.values[id(old)]
            self.kept.append(old)
            if isinstance(old, list):
                copied: list[Any] = []
                self.values[id(old)] = copied
                copied.extend(self.value(v, own_memory) for v in old)
                return copied
            entries: dict[Any, Any] = {}
            self.values[id(old)] = entries
            entries.update((k, self.value(v, own_memory)) for k, v in old.items())
            return entries
        if isinstance(old, tuple):
            items = [self.value(v, own_memory) for v in old]
            if all(a is b for a, b in zip(items, old, strict=True)):
                return old
            return type(old)(*items) if hasattr(old, "_fields") else tuple(items)
        return self.memory.copy(old) if own_memory else old


class _Memory:
    """Copies of arrays in which those that overlapped still overlap."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        self.buffers: dict[tuple[int, int], np.ndarray] = {}
        self.merged: list[tuple[int, int]] | None = None
        self.arrays: dict[int, tuple[Any, Any]] = {}

    def add(self, value: Any) -> None:
        """Tell of arrays that will be copied."""
        self.spans += [span(a) for a in arrays_in(value) if a.size]

    def copy(self, value: Any) -> Any:
        found = self.arrays.get(id(value))
        if found is not None:
            return found[1]
        new = value
        if isinstance(value, np.ndarray):
            new = self.array(value)
        elif isinstance(value, QTensor):
            new = QTensor(self.array(value.values), value.dtype, value.scale, value.zero_point, value.axis)
        elif isinstance(value, SparseTensor):
            new = SparseTensor(value.layout, tuple(map(self.array, value.parts)), value.shape)
        # The old value is kept: ids are only unique among living objects.
        self.arrays[id(value)] = (value, new)
        return new

    def array(self, old: np.ndarray) -> np.ndarray:
        if not old.size:
            return old.copy()
        if self.merged is None:
            self.merged = _merge(self.spans)
        low, high = span(old)
        start, end = next((a, b) for a, b in self.merged if a <= low and high <= b)
        buffer = self.buffers.get((start, end))
        if buffer is None:
            buffer = self.buffers[start, end] = np.zeros(end - start, np.uint8)
        new: np.ndarray = np.ndarray(old.shape, old.dtype, buffer, old.ctypes.data - start, old.strides)
        new[...] = old
        return new


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if merged and low < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged
