"""Results that are copied into another layout at once: a transposed view made contiguous, or reshaped."""

from __future__ import annotations

from collections.abc import Callable

from gpujit.fuser.facts import Facts
from gpujit.fuser.geometry import Geometry
from gpujit.fuser.places import flat, simplified
from gpujit.fuser.tensors import shape_of
from gpujit.ir.graph import Node, Value
from gpujit.kernels.index import dim


def chain_to_copy(value: Value, inside: set[Node], facts: Facts, is_view: Callable[[Node], bool]) -> list[Node]:
    """The views from a group's result to a copy of it, if that is all that others read of it; else none.

    ``inside``: the group's nodes; ``is_view``: whether a node may be seen as a view.
    """
    chain: list[Node] = []
    maps: list[Geometry] = []
    last = 0
    current = value
    while True:
        readers = {use.node for use in current.uses if use.node not in inside}
        if len(readers) != 1:
            break
        (node,) = readers
        if not is_view(node) or not facts.of(node).keeps_all or any(u.index for u in current.uses if u.node is node):
            break
        view = facts.of(node).view
        assert view is not None
        chain.append(node)
        maps.append(view[1][0])
        current = node.output
        if _copies(shape_of(value), maps, facts.of(node).functional):
            last = len(chain)
    return chain[:last]


def _copies(shape: tuple[int, ...], maps: list[Geometry], op: object) -> bool:
    """Whether the last of some views of a contiguous tensor copies: its elements are not evenly spaced there."""
    if not any(m.steps is not None and not m.is_identity for m in maps[:-1]):
        return False
    last = maps[-1]
    coords = tuple(map(dim, range(len(last.result))))
    at = coords
    for m in reversed(maps):
        at = m.place(at)
    place = simplified(flat(at, shape), last.result)
    if last.is_reshape:
        return any(atom.args for atom in place.atoms())
    # An operator that gives its operand as it is unless it has to be copied (contiguous).
    return last.is_identity and getattr(op, "scalar", None) is not None and place != flat(coords, last.result)
