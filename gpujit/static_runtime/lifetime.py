"""Which values may live in the arena, and from which step to which.

A value is planned when its memory is made inside the graph and cannot be reached once the run is over: not from the
outputs, the inputs, an attribute, or whatever an unknown operator kept; and made inside a loop, not in its next round.
It lives until the last step that reads it, or reads anything that may share its memory: a view, a list or tuple that
holds it, the result of a branch or loop. Steps of inner blocks are steps like others (see order.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpujit.ir.graph import Node, Value
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.static_runtime.order import Rounds
from gpujit.static_runtime.places import Places, facts_of
from gpujit.static_runtime.plan import Lifetime

NOTHING: Mapping[Node, Sequence[Value]] = {}


def may_be_planned(value: Value, alias: AliasAnalysis) -> bool:
    """Whether a fresh tensor's memory is nobody's once the graph has run."""
    return facts_of(value) is not None and alias.is_fresh(value) and not alias.escapes(value)


def last_steps(
    order: Sequence[Node],
    planned: Iterable[Value],
    places: Places,
    alias: AliasAnalysis,
    operands: Mapping[Node, Sequence[Value]] = NOTHING,
) -> dict[Value, int]:
    """For each planned value the position in ``order`` of the last node that may read or write its memory.

    A value that is a known view of a planned one counts for that one alone; anything else counts for all planned values
    that it may share memory with.
    Args:
        operands: what native steps read, which may be more than their nodes do.
    """
    position = {node: i for i, node in enumerate(order)}
    rounds = Rounds(order)
    last = {value: position[value.node] for value in planned}
    memory = {value: alias.memory(value) for value in last}
    everything = 0
    for mask in memory.values():
        everything |= mask
    for i, node in enumerate(order):
        if node in places.views:
            # Whoever reads its result keeps the memory alive; itself, it is never run on it.
            continue
        opaque = 0
        for value in (*node.inputs, *operands.get(node, ())):
            place = places.of(value)
            if place is not None and place.root in last:
                last[place.root] = max(last[place.root], rounds.read_until(place.root, node, i))
            elif not value.is_constant:
                opaque |= alias.memory(value)
        if opaque & everything:
            for value, mask in memory.items():
                if mask & opaque:
                    last[value] = max(last[value], rounds.read_until(value, node, i))
    return last


def lifetimes_of(
    order: Sequence[Node], last: Mapping[Value, int], merged: Mapping[Value, Value]
) -> tuple[list[Value], list[Lifetime]]:
    """Buffers as (the value they are named by, lifetime): values that overwrite another share its buffer.

    Args:
        merged: for a value that is written over another one, that one.
    """
    position = {node: i for i, node in enumerate(order)}
    found: dict[Value, Lifetime] = {}
    for value in sorted(last, key=lambda v: (position[v.node], v.index)):
        facts = facts_of(value)
        assert facts is not None
        size = facts[1].itemsize
        for n in facts[0]:
            size *= n
        owner = owner_of(value, merged)
        old = found.get(owner)
        first = position[value.node]
        if old is None:
            found[owner] = Lifetime(first, last[value], size)
        else:
            found[owner] = Lifetime(old.first, max(old.last, last[value]), max(old.size, size))
    return list(found), list(found.values())


def owner_of(value: Value, merged: Mapping[Value, Value]) -> Value:
    """The first value in a buffer."""
    while value in merged:
        value = merged[value]
    return value
