"""The iteration space of a group, and where each of its values lies in it.

One value of the group, the anchor, gives the space: the operand of a reduction, whose reduced dims are the rows, or the
largest result. Places spread from it through views and operators to all values whose elements lie one to one in the
space, or, one for each row, in its outer part. Dims are split where the group sees them as several, so that no place
needs a division.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from gpujit.fuser.errors import NotFused
from gpujit.fuser.facts import Fact, Facts
from gpujit.fuser.geometry import Geometry
from gpujit.fuser.places import breaks, flat, simplified
from gpujit.fuser.tensors import elements_of, is_tensor, shape_of
from gpujit.ir.graph import Node, Value
from gpujit.kernels.index import Index, dim, index
from gpujit.kernels.views import Coords

# Of the anchor's dim k: the sizes of its parts, outermost first.
Parts = tuple[tuple[int, ...], ...]
_MOST_DIMS = 10
_MOST_ANCHORS = 3


class Space:
    """The space of some nodes.

    ``frame``: the anchor's sizes (dim 1 as two where rows are of groups of it); ``axes``: dims of it that make up rows;
    ``parts``: how each is split; ``sizes``: of the program's dims, rows last; ``places``: of values.
    Raises NotFused: the nodes share no space, or a result lies outside of it.
    """

    def __init__(
        self, nodes: Sequence[Node], outputs: Sequence[Value], facts: Facts, parts: Parts | None = None
    ) -> None:
        self.nodes, self.outputs, self.facts = nodes, outputs, facts
        self.over_rows = [f for f in map(facts.of, nodes) if f.rows is not None]
        self._users: dict[Value, list[Node]] = {}
        for node in nodes:
            for value in {*node.inputs, *node.outputs}:
                self._users.setdefault(value, []).append(node)
        self.axes: tuple[int, ...] = ()
        self.frame: tuple[int, ...] = ()
        self.is_grouped = False
        self.places: dict[Value, Coords] = {}
        for anchor in self._anchors():
            self._lay_out(anchor, parts)
            if all(v in self.places for v in outputs):
                break
        self._verify()

    # The anchor

    def _anchors(self) -> list[Value]:
        """Values that may give the space, the best first; a reduction's operand sets ``frame`` and ``axes``."""
        for fact in self.over_rows:
            if fact.axes:
                self.axes, self.frame = fact.axes, fact.shape
                self.is_grouped = fact.rows is not None and fact.rows.groups is not None
                return [fact.arguments[0]]
            if fact.rows is not None and fact.rows.groups is not None:
                raise NotFused(f"{fact.name} has no rows")
        largest = max(map(elements_of, self.outputs))
        inner = [v for n in self.nodes if self.facts.of(n).op is not None for v in n.outputs if is_tensor(v)]
        found = [v for v in (*self.outputs, *inner) if elements_of(v) == largest]
        # Those of most dims: what is seen as several dims somewhere should be several.
        found.sort(key=lambda v: -len(shape_of(v)))
        kinds: dict[tuple[int, ...], Value] = {}
        for value in found:
            kinds.setdefault(shape_of(value), value)
        return list(kinds.values())[:_MOST_ANCHORS]

    def _lay_out(self, anchor: Value, parts: Parts | None) -> None:
        """Number the dims and find the places, for one anchor."""
        self.anchor = anchor
        if not self.axes:
            self.frame = shape_of(anchor)
        if parts is None or len(parts) != len(self.frame):
            parts = tuple((n,) for n in self.frame)
        self.parts = parts
        outer = [(d, k) for d, sizes in enumerate(parts) for k in range(len(sizes)) if d not in self.axes]
        self.order = outer + [(d, k) for d in sorted(self.axes) for k in range(len(parts[d]))]
        self.sizes = tuple(parts[d][k] for d, k in self.order)
        self.row_dims = range(len(outer), len(self.order))
        number = {part: i for i, part in enumerate(self.order)}
        # Where a point lies along each dim of the frame.
        self.coords: Coords = tuple(
            flat([dim(number[d, k]) for k in range(len(sizes))], sizes) for d, sizes in enumerate(parts)
        )
        self.places = {}
        self._spread()

    # Places

    def _spread(self) -> None:
        coords = self.coords
        if self.is_grouped:
            coords = (coords[0], coords[1] * self.frame[2] + coords[2], *coords[3:])
        self._spread_from(self.anchor, coords)
        for value in self.outputs:
            # What nothing connects with the anchor may lie as it does.
            if value not in self.places and not self.axes and shape_of(value) == shape_of(self.anchor):
                self._spread_from(value, coords)

    def _spread_from(self, start: Value, coords: Coords) -> None:
        self.places[start] = coords
        waiting = [start]
        while waiting:
            for node in self._users.get(waiting.pop(), ()):
                for value, at in self._reached(node):
                    if value not in self.places:
                        self.places[value] = tuple([simplified(c, self.sizes) for c in at])
                        waiting.append(value)

    def _reached(self, node: Node) -> Iterable[tuple[Value, Coords]]:
        """Values of a node whose places follow from those that are known."""
        fact, places = self.facts.of(node), self.places
        if fact.view is not None:
            base, maps = fact.view
            return self._through(base, node.outputs, maps)
        if fact.functional is None or (fact.move is not None and not fact.move.is_in_place):
            return ()
        if fact.rows is not None and fact.axes:
            first = fact.arguments[0]
            full = [v for v in (first, *node.outputs) if shape_of(v) == shape_of(first)]
            known = next((places[v] for v in full if v in places), None)
            if known is None:
                return ()
            return [(first, known), *((v, self._result_place(fact, v, known)) for v in node.outputs)]
        if not is_tensor(node.outputs[0]):
            return ()
        shape = shape_of(node.outputs[0])
        same = [v for v in (*node.inputs, *node.outputs) if is_tensor(v) and shape_of(v) == shape]
        known = next((places[v] for v in same if v in places), None)
        return () if known is None else [(v, known) for v in same]

    def _through(
        self, base: Value, results: Sequence[Value], maps: Sequence[Geometry]
    ) -> Iterable[tuple[Value, Coords]]:
        for value, m in zip(results, maps, strict=False):
            if m.is_bijective:
                if base in self.places:
                    yield value, m.place_back(self.places[base])
                elif value in self.places:
                    yield base, m.place(self.places[value])

    def _result_place(self, fact: Fact, value: Value, at: Coords) -> Coords:
        """The place of a result, from that of the operand: full, or without the reduced dims."""
        assert fact.rows is not None
        shape, found = shape_of(fact.arguments[0]), shape_of(value)
        if len(found) == len(shape):
            if found == shape and not (fact.rows.keeps(fact.arguments) and all(shape[d] == 1 for d in fact.axes)):
                return at
            return tuple(index(0) if d in fact.axes else c for d, c in enumerate(at))
        if fact.rows.groups is not None:
            return self.coords[: len(found)]
        return tuple(c for d, c in enumerate(at) if d not in fact.axes)

    # What must hold

    def _verify(self) -> None:
        for value in self.outputs:
            if value not in self.places:
                raise NotFused(f"{value!r} does not lie in the group's iteration space of {list(self.frame)}")
        for fact in self.over_rows:
            if fact.axes:
                self.require_rows(fact)

    def require_rows(self, fact: Fact) -> Coords:
        """The place of a reduction's operand. Raises NotFused when what it reduces are not the group's rows."""
        place = self.places.get(fact.arguments[0])
        if place is None or not self._lies_in_rows(fact, place):
            dims = "all dims" if len(fact.axes) == len(fact.shape) else f"dims {list(fact.axes)}"
            raise NotFused(f"{fact.name} reduces {dims} of {fact.arguments[0]!r}, which are not the group's rows")
        return place

    def _lies_in_rows(self, fact: Fact, place: Coords) -> bool:
        assert fact.rows is not None
        if self.is_grouped or fact.rows.groups is not None:
            same = self.is_grouped and fact.rows.groups is not None
            return same and fact.shape == self.frame and place == self.places[self.anchor]
        inner: set[int] = set()
        outer: set[int] = set()
        for d, c in enumerate(place):
            (inner if d in fact.axes else outer).update(c.dims())
        long = {d for d in self.row_dims if self.sizes[d] != 1}
        if not long <= inner <= set(self.row_dims) or outer & long:
            return False
        if not fact.template.is_in_order:
            return True
        axes = sorted(fact.axes)
        if fact.template.has_scan and len(long) > 1:
            return False
        # The same elements in the same order.
        own = flat([place[d] for d in axes], [fact.shape[d] for d in axes])
        rows = flat([dim(d) for d in self.row_dims], [self.sizes[d] for d in self.row_dims])
        return self._without_short(own) == self._without_short(rows)

    def _without_short(self, i: Index) -> Index:
        """An index without the dims of size 1."""
        return i.replace(lambda a: index(0) if a.kind == "d" and self.sizes[a.number] == 1 else None)

    # Other dims

    def without_idle(self) -> Parts | None:
        """Parts without the dims of size 1 that a result does not name (a kernel must know that its points are apart);
        None when there are none."""
        named = [frozenset().union(*(c.dims() for c in self.places[v])) for v in self.outputs]
        idle = {d for d, n in enumerate(self.sizes) if n == 1 and any(d not in dims for dims in named)}
        if len(self.row_dims) == len(idle.intersection(self.row_dims)):
            idle -= set(self.row_dims)
        if not idle:
            return None
        parts: list[tuple[int, ...]] = [()] * len(self.frame)
        for number, (d, k) in enumerate(self.order):
            if number not in idle:
                parts[d] += (self.parts[d][k],)
        return tuple(parts)

    def finer(self, places: Iterable[Index]) -> Parts | None:
        """Parts in which these places need fewer divisions; None when there are none."""
        may_split_rows = not any(f.axes and f.template.has_scan for f in self.over_rows)
        cuts: dict[int, int] = {}
        for i in places:
            for d, inner in breaks(i, self.sizes):
                if (d not in self.row_dims or may_split_rows) and inner < cuts.get(d, inner + 1):
                    cuts[d] = inner
        if not cuts or len(self.sizes) + len(cuts) > _MOST_DIMS:
            return None
        return tuple(tuple(self._cut(d, cuts)) for d in range(len(self.frame)))

    def _cut(self, frame_dim: int, cuts: Mapping[int, int]) -> Iterable[int]:
        for number, (d, k) in enumerate(self.order):
            if d == frame_dim:
                n = self.parts[d][k]
                yield from (n // cuts[number], cuts[number]) if number in cuts else (n,)

    @property
    def points(self) -> int:
        """How many points it has."""
        return prod(self.sizes)
