"""Where tensors lie: which memory, from which byte on, with which strides, as far as that is known before a run.

Views of a tensor whose strides are known cost nothing at run time when only native steps read them: they are an offset
and strides. Strides are those of the inputs a plan is made for; tensors made by operators are taken to be contiguous,
but for those that ``layout`` has in another order, until one was seen that is not so. Whoever runs a plan checks both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import code_of, numpy_dtype
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ops.registry import Op
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import entry_of, has_own_effect
from gpujit.passes.nodes import constant_before, insert_op
from gpujit.support.errors import GpujitError

if TYPE_CHECKING:
    from gpujit.static_runtime.carried import Carried

Strides = tuple[int, ...]

# A stand-in of more bytes is not made, even though nobody fills it.
LARGEST = 1 << 40
# Operators whose templates read images that lie together.
_READ_IMAGES = frozenset(
    f"aten::{name}"
    for name in (
        "conv1d", "conv2d", "_convolution", "_convolution_mode", "convolution", "max_pool1d", "max_pool2d",
        "avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d",
    )
)  # fmt: skip
# Nodes that write no tensors, whatever else they do.
_NO_WRITERS = ("prim::SetAttr", "prim::RaiseException")
# Elements of a view that copies up to which it is found out in which order it does.
LARGEST_COPY = 1 << 24


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor's elements: ``offset`` bytes behind the first element of the tensor ``root``, ``strides`` in bytes."""

    root: Value
    offset: int
    strides: Strides
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def steps(self) -> Strides | None:
        """Strides in elements; None when they are no whole numbers of them."""
        size = self.dtype.itemsize
        return None if any(s % size for s in self.strides) else tuple(s // size for s in self.strides)

    @property
    def lies_together(self) -> bool:
        """Whether the elements lie as in a contiguous array; strides of dims of one element do not matter."""
        wanted = contiguous(self.shape, self.dtype)
        return all(n == 1 or a == b for a, b, n in zip(self.strides, wanted, self.shape, strict=True))

    @property
    def order(self) -> tuple[int, ...]:
        """The dims from the one of the longest steps inwards."""
        return tuple(sorted(range(len(self.shape)), key=lambda d: -abs(self.strides[d])))

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie side by side, the dims in whichever order."""
        step = self.dtype.itemsize
        for stride, n in sorted((s, n) for s, n in zip(self.strides, self.shape, strict=True) if n != 1):
            if stride != step:
                return False
            step *= max(n, 1)
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize


def facts_of(value: Value) -> tuple[tuple[int, ...], np.dtype] | None:
    """Shape and dtype of a tensor whose type says both; None for everything else."""
    t = value.type
    if not isinstance(t, T.TensorType) or t.dtype is None or t.shape is None:
        return None
    if any(type(n) is not int for n in t.shape):
        return None
    try:
        return tuple(int(n or 0) for n in t.shape), numpy_dtype(t.dtype)
    except TypeError:
        return None


def are_apart(shape: Sequence[int], strides: Strides, itemsize: int) -> bool:
    """Whether each element of a tensor surely has memory of its own: other numbers may be written where it lies."""
    end = itemsize
    for step, n in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if step < end:
            return False
        end = step * n
    return True


def contiguous(shape: Sequence[int], dtype: np.dtype) -> Strides:
    """Strides in bytes of an array whose last dim lies together."""
    found = []
    step = dtype.itemsize
    for n in reversed(shape):
        found.append(step)
        step *= max(n, 1)
    return tuple(reversed(found))


# From a result and where other tensors lie to the result's strides; None when it is to be contiguous.
Order = Callable[[Value, Callable[[Value], "Place | None"]], "Strides | None"]


class Places:
    """The places of a graph's values, those of inner blocks included.

    Views that copy (a reshape of a transposed tensor) are replaced in the graph by a copy and a view of it.
    Args:
        strides: those of inputs and of operators' results that are not contiguous.
        carried: copies made for loops.
        order: gives strides of results that shall not be contiguous; None where all are.
    """

    def __init__(
        self, graph: Graph, strides: Mapping[Value, Strides], carried: Carried, order: Order | None = None
    ) -> None:
        self._strides, self._order = strides, order
        self._places: dict[Value, Place] = {}
        self._lists: dict[Value, list[Place]] = {}
        # Copies made here, or for loops: the first input is what is copied, and the result is contiguous.
        self.copies: set[Node] = set(carried.entries)
        # Copies of the second input into the first one, which is one of those.
        self.rounds = carried.rounds
        # Copies of the second input into the first one, which is memory from outside.
        self.puts = carried.puts
        # Views whose results are known places.
        self.views: set[Node] = set()
        # Built when it is first asked about; None when there is nobody to write anything.
        self._alias: AliasAnalysis | None = None
        self._graph = graph
        self._apart = carried.rounds | carried.puts | carried.apart
        self._is_written = any(
            has_own_effect(n) and n.kind not in _NO_WRITERS and n not in self._apart for n in graph.all_nodes()
        )
        self._block(graph.block)

    def of(self, value: Value) -> Place | None:
        """Where a tensor lies; None when that is not known."""
        return self._places.get(value)

    def put(self, value: Value, place: Place) -> None:
        """Have a result lie somewhere else, in another tensor's memory."""
        self._places[value] = place

    def parts_of(self, value: Value) -> list[Place] | None:
        """Where the tensors of a list lie that a view made; None when that is not known."""
        return self._lists.get(value)

    def _block(self, block: Block) -> None:
        for value in block.params:
            self._own(value)
        for node in list(block.nodes):
            for inner in node.blocks:
                self._block(inner)
            self._node(node)

    def _own(self, value: Value) -> None:
        facts = facts_of(value)
        if facts is None:
            return
        shape, dtype = facts
        strides = self._strides.get(value)
        if strides is None and self._order is not None and value.node.inputs:
            strides = self._order(value, self.of)
        self._places[value] = Place(value, 0, contiguous(shape, dtype) if strides is None else strides, shape, dtype)

    def _node(self, node: Node) -> None:
        if node.kind == "prim::Constant":
            array = node.attributes.get("value")
            if type(array) is np.ndarray:
                self._places[node.output] = Place(node.output, 0, array.strides, array.shape, array.dtype)
            return
        if node in self.rounds or (node in self.puts and node.inputs[0] in self._places):
            self._places[node.output] = self._places[node.inputs[0]]
            return
        if node.kind == "prim::ListUnpack":
            parts = self._lists.get(node.inputs[0])
            if parts is not None and len(parts) == len(node.outputs):
                self._places.update(zip(node.outputs, parts, strict=True))
                self.views.add(node)
                return
        if node.kind == "prim::unchecked_cast" and node.inputs[0] in self._places and facts_of(node.output):
            self._places[node.output] = self._places[node.inputs[0]]
            self.views.add(node)
            return
        op = entry_of(node)
        if op is not None and op.kind == "view" and self._view(node, op):
            return
        if node.kind in _READ_IMAGES:
            self._line_up(node)
        for value in node.outputs:
            self._own(value)

    def _view(self, node: Node, op: Op) -> bool:
        base = self._places.get(node.inputs[0])
        arguments = self._arguments(node, op)
        if base is None or arguments is None or prod(base.shape) * base.dtype.itemsize > LARGEST:
            return False
        memory, x = stand_in(base.shape, base.strides, base.dtype)
        try:
            results = op.kernel(np)(x, *arguments)
        except GpujitError:
            # It will be raised when the program runs.
            return False
        found = results if isinstance(results, (list, tuple)) else [results]
        if self._is_written and self._depends_on_strides(node, op, base, arguments):
            # Strides are checked when a plan is run; then it would be too late to find that memory is another.
            return False
        if not all(type(y) is np.ndarray and (not y.size or np.may_share_memory(memory, y)) for y in found):
            return self._copying(node, op, base, arguments, results)
        start = x.__array_interface__["data"][0]
        places = []
        for y in found:
            offset = y.__array_interface__["data"][0] - start if y.size else 0
            places.append(Place(base.root, base.offset + offset, y.strides, y.shape, y.dtype))
        if len(node.outputs) == 1 and isinstance(node.output.type, T.ListType):
            self._lists[node.output] = places
        elif len(node.outputs) == len(places) and all(map(facts_of, node.outputs)):
            self._places.update(zip(node.outputs, places, strict=True))
        else:
            return False
        self.views.add(node)
        return True

    def _line_up(self, node: Node) -> None:
        """Have a node read a contiguous copy of its first operand, where that lies otherwise."""
        x = node.inputs[0]
        base = self._places.get(x)
        if base is None or not 0 < prod(base.shape) <= LARGEST_COPY:
            return
        if not base.lies_together:
            node.set_input(0, self._copy(node, x, base))

    def _copy(self, node: Node, x: Value, base: Place) -> Value:
        """A contiguous copy of a tensor, made before a node."""
        copy = insert_op(node, "aten::clone", [x, constant_before(node, 0, T.INT)], node)
        facts = facts_of(x)
        copy.type = x.type if facts is not None else T.TensorType(code_of(base.dtype), base.shape)
        self._places[copy] = Place(copy, 0, contiguous(base.shape, base.dtype), base.shape, base.dtype)
        self.copies.add(copy.node)
        return copy

    def _depends_on_strides(self, node: Node, op: Op, base: Place, arguments: list[Any]) -> bool:
        """Whether a view of memory that is written may share it or not, depending on the strides of its operand."""
        if base.root.node in self.copies:
            return False
        strides = tuple(2 * s for s in contiguous(base.shape[::-1], base.dtype)[::-1])
        memory, x = stand_in(base.shape, strides, base.dtype)
        try:
            y = op.kernel(np)(x, *arguments)
        except GpujitError:
            # Such strides are refused, not copied.
            return False
        found = y if isinstance(y, (list, tuple)) else [y]
        if all(type(y) is np.ndarray and (not y.size or np.may_share_memory(memory, y)) for y in found):
            return False
        if self._alias is None:
            self._alias = AliasAnalysis(self._graph)
        writers = {w for v in (node.inputs[0], *node.outputs) for w in self._alias.writers(v)}
        return not writers <= self._apart

    def _arguments(self, node: Node, op: Op) -> list[Any] | None:
        """What is behind the first argument, with stand-ins for tensors whose shape alone matters; None where it is
        not known."""
        found: list[Any] = []
        for i, value in enumerate(node.inputs[1:], 1):
            if value.is_constant:
                found.append(value.constant())
            elif value.node.kind == "prim::ListConstruct" and all(v.is_constant for v in value.node.inputs):
                found.append([v.constant() for v in value.node.inputs])
            else:
                facts = facts_of(value)
                if facts is None or not op.asks_for_shape(i):
                    return None
                found.append(np.broadcast_to(np.zeros((), facts[1]), facts[0]))
        return found

    def _copying(self, node: Node, op: Op, base: Place, arguments: list[Any], y: Any) -> bool:
        """Whether a view that copies was replaced by a copy of its operand and a view of that."""
        facts = facts_of(node.output) if len(node.outputs) == 1 else None
        if facts is None or type(y) is not np.ndarray or (y.shape, y.dtype) != facts or y.dtype != base.dtype:
            return False
        count = prod(base.shape)
        if y.size != count or not y.flags.c_contiguous or not 0 < count <= LARGEST_COPY:
            return False
        if any(s % base.dtype.itemsize for s in base.strides):
            return False
        steps = tuple(s // base.dtype.itemsize * 8 for s in base.strides)
        memory, numbers = stand_in(base.shape, steps, np.dtype(np.int64))
        memory.view(np.int64)[:] = np.arange(memory.size // 8)
        if not np.array_equal(op.kernel(np)(numbers, *arguments).ravel(), numbers.ravel()):
            return False
        x = node.inputs[0]
        copy = self._copy(node, x, base)
        result = copy
        if base.shape != y.shape:
            size = constant_before(node, list(y.shape), T.ListType(T.INT))
            result = insert_op(node, "aten::view", [copy, size], node)
            self._places[result] = Place(copy, 0, contiguous(y.shape, y.dtype), y.shape, y.dtype)
            self.views.add(result.node)
        result.type = node.output.type
        node.output.replace_all_uses_with(result)
        node.destroy()
        return True


def stand_in(shape: tuple[int, ...], strides: Strides, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Memory that nobody fills, and a tensor in it."""
    low = sum(min(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True) if n)
    high = sum(max(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True) if n)
    memory = np.empty(high - low + dtype.itemsize, np.uint8)
    return memory, np.ndarray(shape, dtype, memory, -low, strides)
