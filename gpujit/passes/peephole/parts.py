"""Tensors cut into a list of parts that is taken apart at once: each part by itself, as a slice or a selection."""

from __future__ import annotations

from itertools import accumulate

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value
from gpujit.passes.base import declined, graph_pass
from gpujit.passes.nodes import constant_before, insert_op, replace_node
from gpujit.passes.peephole.facts import constant_of, full_name, known_shape, remove_unread, shape_of

# Where the dimension stands among the arguments.
_CUTS = {
    "aten::chunk": 2,
    "aten::split": 2,
    "aten::split.Tensor": 2,
    "aten::split.sizes": 2,
    "aten::split_with_sizes": 2,
    "aten::tensor_split.sections": 2,
    "aten::tensor_split.indices": 2,
    "aten::unbind.int": 1,
}


@graph_pass("peephole_parts")
def name_parts(graph: Graph) -> bool:
    """``a, b = chunk(x, 2, dim)`` becomes two slices, ``a, b = unbind(x)`` two selections.

    Parts are views either way; by themselves they can be fused with what reads them, and those that nobody reads go.
    Left as they are: lists that anybody else sees, and parts whose sizes are not known.
    """
    changed = False
    for node in list(graph.all_nodes()):
        if node.kind == "prim::ListUnpack":
            changed |= _named(node)
    return changed


def _named(unpack: Node) -> bool:
    listed = unpack.inputs[0]
    cut = listed.node
    at = _CUTS.get(full_name(cut) or "")
    if at is None:
        return False
    if len(listed.uses) > 1:
        declined("peephole_parts", unpack, f"{listed!r} has other readers")
        return False
    x, dim, shape = cut.inputs[0], constant_of(cut.inputs[at]), shape_of(cut.inputs[0])
    if type(dim) is not int or not shape or not -len(shape) <= dim < len(shape):
        declined("peephole_parts", unpack, f"dimension {dim!r} of {x.type} is not known")
        return False
    dim %= len(shape)
    parts: list[tuple[int, ...]]
    if cut.kind == "aten::unbind":
        fits = shape[dim] == len(unpack.outputs)
        name, parts = "aten::select.int", [(dim, i) for i in range(len(unpack.outputs))]
    else:
        sizes = [_size(part, dim) for part in unpack.outputs]
        ends = list(accumulate(n or 0 for n in sizes))
        fits = None not in sizes and ends[-1:] == [shape[dim]]
        name = "aten::slice.Tensor"
        parts = [(dim, end - (n or 0), end, 1) for n, end in zip(sizes, ends, strict=True)]
    if not fits:
        declined("peephole_parts", unpack, f"the parts of {x.type} are not known")
        return False
    # Where the cut was made: the tensor may get other sizes between there and here.
    replace_node(unpack, [_part(cut, x, name, numbers) for numbers in parts])
    remove_unread([cut])
    return True


def _size(part: Value, dim: int) -> int | None:
    shape = known_shape(part)
    return None if shape is None or dim >= len(shape) else shape[dim]


def _part(before: Node, x: Value, name: str, numbers: tuple[int, ...]) -> Value:
    return insert_op(before, name, (x, *(constant_before(before, n, T.INT) for n in numbers)), before)
