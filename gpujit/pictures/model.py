"""What a picture of a graph shows, as data: nodes, the boxes they lie in, and the values that go between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from gpujit.pictures.tones import HUES

ROOT = "root"
# A folded box names its operators when it has at most so many.
_NAMED = 2


@dataclass(slots=True)
class PictureNode:
    """One operator, input or output.

    Args:
        kind: the operator (``aten::conv2d``), or input, output, control, folded.
        label: its first line; ``lines`` are those below it, such as arguments that are constants.
        tags: what it is, for style: op, input, output, control, folded, ``tier-...``.
        parent: the box it lies in.
        facts: names and values for the title and the search, unshortened.
    """

    id: str
    kind: str
    label: str
    lines: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    parent: str = ROOT
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class PictureBox:
    """A part of a graph: a module, a fusion group, a branch or loop, one of their blocks, or a part of a long list.

    Args:
        kind: module, group, if, loop, block, part.
        number: of a group.
    """

    id: str
    kind: str
    label: str
    tags: tuple[str, ...] = ()
    parent: str = ROOT
    facts: dict[str, str] = field(default_factory=dict)
    number: int = 0


@dataclass(frozen=True, slots=True)
class PictureEdge:
    """A value from the node that makes it to one that reads it; ``target`` may be a box.

    Args:
        value: names the value; all edges of one value go the same way as far as they can.
        label: dtype and shape.
        kind: data, or control for what only says where a branch goes on.
    """

    source: str
    target: str
    value: str
    label: str = ""
    name: str = ""
    kind: str = "data"


@dataclass(slots=True)
class Picture:
    """Nodes and boxes by their ids, in the order of the program, and the edges between them.

    The children of every box, with edges between what lies inside them, form a graph without cycles.
    """

    title: str
    nodes: dict[str, PictureNode] = field(default_factory=dict)
    boxes: dict[str, PictureBox] = field(default_factory=dict)
    edges: list[PictureEdge] = field(default_factory=list)

    def parent(self, id_: str) -> str:
        """The box around a node or box; ROOT around the outermost ones."""
        node = self.nodes.get(id_)
        return node.parent if node is not None else self.boxes[id_].parent

    def around(self, id_: str) -> Iterator[str]:
        """The boxes around a node or box, the innermost first, ROOT last."""
        while id_ != ROOT:
            id_ = self.parent(id_)
            yield id_

    def children(self) -> dict[str, list[str]]:
        """What lies directly in each box, and in ROOT, in the order of the program."""
        found: dict[str, list[str]] = {ROOT: [], **{b: [] for b in self.boxes}}
        for id_ in self._program_order():
            found[self.parent(id_)].append(id_)
        return found

    def operators(self) -> dict[str, int]:
        """How many operators lie in each box, however deep, and in ROOT for all."""
        found = dict.fromkeys((ROOT, *self.boxes), 0)
        for id_, node in self.nodes.items():
            if "op" in node.tags:
                for box in self.around(id_):
                    found[box] += 1
        return found

    def without_empty_boxes(self) -> Picture:
        """The picture less boxes that nothing lies in, and edges to them."""
        full = {box for id_ in self.nodes for box in self.around(id_)}
        if all(b in full for b in self.boxes):
            return self
        boxes = {id_: b for id_, b in self.boxes.items() if id_ in full}
        edges = [e for e in self.edges if e.target in boxes or e.target in self.nodes]
        return Picture(self.title, self.nodes, boxes, edges)

    def folded(self, boxes: Collection[str]) -> Picture:
        """The picture with each of these boxes as one node, which has the edges of all that lies in it."""
        inside: dict[str, str] = {}
        for id_ in (*self.nodes, *self.boxes):
            outermost = ""
            for each in (id_, *self.around(id_)):
                if each in boxes:
                    outermost = each
            inside[id_] = outermost or id_
        labels: dict[str, list[str]] = {}
        nodes: dict[str, PictureNode] = {}
        for id_, node in self.nodes.items():
            if inside[id_] == id_:
                nodes[id_] = node
            elif "op" in node.tags:
                labels.setdefault(inside[id_], []).append(node.label)
        for id_ in dict.fromkeys(inside.values()):
            if id_ in self.boxes and id_ in boxes:
                nodes[id_] = _folded(self.boxes[id_], labels.get(id_, []))
        order = {id_: i for i, id_ in enumerate(self._program_order())}
        kept = {id_: b for id_, b in self.boxes.items() if inside[id_] == id_ and id_ not in boxes}
        edges: dict[tuple[str, str, str], PictureEdge] = {}
        for edge in self.edges:
            source, target = inside[edge.source], inside[edge.target]
            if source != target:
                edges.setdefault((source, target, edge.value), replace(edge, source=source, target=target))
        ordered = dict(sorted(nodes.items(), key=lambda item: order[item[0]]))
        return Picture(self.title, ordered, kept, list(edges.values())).without_empty_boxes()

    def folded_to(self, most: int) -> Picture:
        """The picture with boxes folded, the innermost first, until at most ``most`` nodes are left, if that can be."""
        if len(self.nodes) <= most:
            return self
        depth = {id_: sum(1 for _ in self.around(id_)) for id_ in self.boxes}
        for level in range(max(depth.values(), default=0), 0, -1):
            found = self.folded({id_ for id_, d in depth.items() if d >= level})
            if len(found.nodes) <= most or level == 1:
                return found
        return self

    def inside(self, box: str) -> Picture:
        """What lies in a box, as a picture of its own; values from and to the outside end at nodes named after them."""
        within = {id_ for id_ in (*self.nodes, *self.boxes) if box in (id_, *self.around(id_))} - {box}
        found = Picture(self.boxes[box].label)
        for id_ in within & self.nodes.keys():
            node = self.nodes[id_]
            found.nodes[id_] = replace(node, parent=ROOT) if node.parent == box else node
        for id_ in within & self.boxes.keys():
            inner = self.boxes[id_]
            found.boxes[id_] = replace(inner, parent=ROOT) if inner.parent == box else inner
        edges: dict[tuple[str, str, str], PictureEdge] = {}
        for edge in self.edges:
            source, target = edge.source, edge.target
            if source not in within and target not in within:
                continue
            if source not in within:
                source = f"in-{edge.value}"
                found.nodes.setdefault(source, _end(source, "input", edge))
            if target not in within:
                target = f"out-{edge.value}"
                found.nodes.setdefault(target, _end(target, "output", edge))
            edges.setdefault((source, target, edge.value), replace(edge, source=source, target=target))
        order = {id_: i for i, id_ in enumerate(self.nodes)}
        found.nodes = dict(sorted(found.nodes.items(), key=lambda item: order.get(item[0], len(order))))
        found.boxes = {id_: found.boxes[id_] for id_ in self.boxes if id_ in found.boxes}
        found.edges = list(edges.values())
        return found

    def _program_order(self) -> Iterable[str]:
        """Boxes stand where the first of their nodes does."""
        found: dict[str, None] = {}
        for id_ in self.nodes:
            path = [id_]
            for each in self.around(id_):
                if each == ROOT or each in found:
                    break
                path.append(each)
            for each in reversed(path):
                found[each] = None
        for id_ in self.boxes:
            found.setdefault(id_)
        return found


def _end(id_: str, kind: str, edge: PictureEdge) -> PictureNode:
    return PictureNode(id_, kind, edge.name or kind, tags=(kind,))


def _folded(box: PictureBox, labels: list[str]) -> PictureNode:
    """The node for a box with such operators."""
    text = ", ".join(labels) if len(labels) <= _NAMED else f"{len(labels):,} operators"
    facts = {"operators": f"{len(labels):,}", **box.facts}
    return PictureNode(
        box.id, "folded", box.label, (text,) if text else (), ("folded", *box_tags(box)), box.parent, facts
    )


def box_tags(box: PictureBox) -> tuple[str, ...]:
    """What a box is, for style: its kind, the colour of a group, its tags."""
    return (box.kind, *([f"hue-{box.number % len(HUES)}"] if box.kind == "group" else []), *box.tags)
