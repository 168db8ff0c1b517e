"""Views as functions: how what is written through a view gets back into the tensor it shows.

A view in ``VIEWS`` always shares memory with its input, and shows the same elements when it is made again from another
tensor of the same shape. Its rule gives that tensor with new elements in place of those the view shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Node, Value
from gpujit.ops import table
from gpujit.passes.nodes import constant_before, insert_node, like
from gpujit.passes.peephole.facts import NOT_CONSTANT, constant_of


class Writer:
    """Puts nodes before ``place``, in the name of that node."""

    def __init__(self, place: Node) -> None:
        self.place = place

    def op(self, full_name: str, inputs: Sequence[Value], type_: T.Type) -> Value:
        """The result of a new node of the operator; defaults are filled in."""
        return insert_node(self.place, full_name, inputs, self.place, (type_,)).output

    def constant(self, value: Any, type_: T.Type) -> Value:
        """A constant; None has no attribute."""
        return constant_before(self.place, value, type_)

    def ints(self, values: Sequence[int]) -> Value:
        """A list of constants."""
        items = [self.constant(v, T.INT) for v in values]
        return self.new("prim::ListConstruct", items).add_output(T.ListType(T.INT))

    def cast(self, value: Value, like: Value, type_: T.Type) -> Value:
        """``value`` in the dtype of ``like``, which is ``type_``'s when that is known."""
        if isinstance(type_, T.TensorType) and type_.dtype is not None:
            return self.op("aten::to.dtype", (value, self.constant(type_.dtype, T.INT)), type_)
        return self.op("aten::type_as", (value, like), type_)

    def new(self, kind: str, inputs: Sequence[Value]) -> Node:
        """A new node, still without outputs."""
        return like(Node(kind, inputs), self.place).insert_before(self.place)


def let_copy(node: Node) -> None:
    """Turn ``aten::view`` into ``aten::reshape``, which also takes memory in another order."""
    entry = table.by_full_name("aten::reshape")
    assert entry is not None
    node.kind, node.schema = entry.name, entry.schema


# (writer, the view's node, the tensor it shows, the view's new elements, type of the result) -> that tensor, changed
PutBack = Callable[[Writer, Node, Value, Value, T.Type], Value]


@dataclass(frozen=True, slots=True)
class View:
    """``put_back`` is None where writing through the view is never made functional; ``unless`` says why not here."""

    put_back: PutBack | None = None
    unless: Callable[[Node], str | None] = lambda node: None


def _scatter(full_name: str) -> PutBack:
    """The operator that takes the tensor, the elements, and the view's other arguments."""

    def put_back(w: Writer, node: Node, base: Value, elements: Value, t: T.Type) -> Value:
        return w.op(full_name, (base, elements, *node.inputs[1:]), t)

    return put_back


def _same(w: Writer, node: Node, base: Value, elements: Value, t: T.Type) -> Value:
    return elements


def _reshaped(w: Writer, node: Node, base: Value, elements: Value, t: T.Type) -> Value:
    return w.op("aten::reshape_as", (elements, base), t)


def _moved_back(full_name: str, swap: bool = False) -> PutBack:
    """The dims moved back by the operator; the copy keeps the memory order that the tensor had."""

    def put_back(w: Writer, node: Node, base: Value, elements: Value, t: T.Type) -> Value:
        rest = node.inputs[1:]
        moved = w.op(full_name, (elements, *(reversed(rest) if swap else rest)), t)
        return _ordered_like(w, base, moved, t)

    return put_back


def _ordered_like(w: Writer, base: Value, elements: Value, t: T.Type) -> Value:
    return w.op("aten::copy", (base, elements), t)


def _unpermuted(w: Writer, node: Node, base: Value, elements: Value, t: T.Type) -> Value:
    dims = constant_of(node.inputs[1])
    order = [d % len(dims) for d in dims]
    back = [order.index(i) for i in range(len(order))]
    return _ordered_like(w, base, w.op("aten::permute", (elements, w.ints(back)), t), t)


def _unless_permutation(node: Node) -> str | None:
    dims = constant_of(node.inputs[1])
    if dims is NOT_CONSTANT or sorted(d % len(dims) for d in dims) != list(range(len(dims))):
        return "the dims of a permutation written through are not known"
    return None


def _joined(full_name: str) -> PutBack:
    """All pieces of a tensor, a list of them, put together along the last argument of the view."""

    def put_back(w: Writer, node: Node, base: Value, elements: Value, t: T.Type) -> Value:
        return w.op(full_name, (elements, node.inputs[-1]), t)

    return put_back


def _unnarrowed(w: Writer, node: Node, base: Value, elements: Value, t: T.Type) -> Value:
    _, dim, start, length = node.inputs
    end = constant_of(length)
    first = constant_of(start)
    stop = w.op("aten::add.int", (start, length), T.INT) if end is NOT_CONSTANT else w.constant(first + end, T.INT)
    return w.op("aten::slice_scatter", (base, elements, dim, start, stop), t)


def _unless_narrow(node: Node) -> str | None:
    # A negative start counts from the end, where start + length is no end.
    start = constant_of(node.inputs[2])
    if start is NOT_CONSTANT or start < 0:
        return "the start of a narrowed part written through is not a known positive number"
    return None


UNPACK = "prim::ListUnpack"

VIEWS: dict[str, View] = {
    "aten::alias": View(_same),
    "aten::detach": View(_same),
    "aten::lift_fresh": View(_same),
    "aten::positive": View(_same),
    "aten::_unwrap_optional": View(_same),
    "prim::data": View(_same),
    "prim::unchecked_cast": View(_same),
    "prim::unchecked_unwrap_optional": View(_same),
    # Lists of pieces, each of which is a view of its own once the list is unpacked.
    "aten::split.Tensor": View(_joined("aten::cat")),
    "aten::split.sizes": View(_joined("aten::cat")),
    "aten::split": View(_joined("aten::cat")),
    "aten::split_with_sizes": View(_joined("aten::cat")),
    "aten::chunk": View(_joined("aten::cat")),
    "aten::tensor_split.sections": View(_joined("aten::cat")),
    "aten::tensor_split.indices": View(_joined("aten::cat")),
    "aten::unbind.int": View(_joined("aten::stack")),
    # What is put back is the list with another piece.
    UNPACK: View(_same),
    "aten::select.int": View(_scatter("aten::select_scatter")),
    "aten::slice.Tensor": View(_scatter("aten::slice_scatter")),
    "aten::diagonal": View(_scatter("aten::diagonal_scatter")),
    "aten::narrow": View(_unnarrowed, _unless_narrow),
    "aten::view": View(_reshaped),
    "aten::view_as": View(_reshaped),
    "aten::unflatten.int": View(_reshaped),
    "aten::squeeze": View(_reshaped),
    "aten::squeeze.dim": View(_reshaped),
    "aten::squeeze.dims": View(_reshaped),
    "aten::unsqueeze": View(_reshaped),
    "aten::transpose.int": View(_moved_back("aten::transpose.int")),
    "aten::swapaxes": View(_moved_back("aten::swapaxes")),
    "aten::swapdims": View(_moved_back("aten::swapdims")),
    "aten::t": View(_moved_back("aten::t")),
    "aten::numpy_T": View(_moved_back("aten::numpy_T")),
    "aten::numpy_T.a": View(_moved_back("aten::numpy_T.a")),
    "aten::mT": View(_moved_back("aten::mT")),
    "aten::mT.a": View(_moved_back("aten::mT.a")),
    "aten::movedim.int": View(_moved_back("aten::movedim.int", swap=True)),
    "aten::movedim.intlist": View(_moved_back("aten::movedim.intlist", swap=True)),
    "aten::moveaxis.int": View(_moved_back("aten::moveaxis.int", swap=True)),
    "aten::moveaxis.intlist": View(_moved_back("aten::moveaxis.intlist", swap=True)),
    "aten::permute": View(_unpermuted, _unless_permutation),
    # Several of their elements are one place in memory: nothing is written through them.
    "aten::expand": View(),
    "aten::expand_as": View(),
    "aten::broadcast_to": View(),
    "aten::unfold": View(),
}


def is_identity(name: str) -> bool:
    """Whether the view shows just what its input does."""
    view = VIEWS.get(name)
    return view is not None and view.put_back is _same


def why_not(node: Node, name: str) -> str | None:
    """Why what is written through the view at ``node`` cannot be put back, None when it can."""
    view = VIEWS[name]
    if view.put_back is None:
        return f"it writes through {name}"
    return view.unless(node)
