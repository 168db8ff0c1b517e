"""Pictures as data for JSON, with or without places, so that a page can draw what is looked at and leave the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpujit.pictures.layout import Layout, lay_out
from gpujit.pictures.model import ROOT, Picture, PictureBox
from gpujit.pictures.svg import svg_of
from gpujit.pictures.text import short

# Nodes that a page shows at once without becoming slow.
MOST_SHOWN = 400
# Children of a box above which neighbours are put in boxes of their own.
MOST_CHILDREN = 200


def data_of(picture: Picture, layout: Layout | None = None) -> dict[str, Any]:
    """Nodes, boxes and edges, ready for JSON; with places when there is a layout."""

    def place(id_: str) -> dict[str, Any]:
        if layout is None:
            return {}
        rect = layout.rects[id_]
        return {"place": [round(v, 1) for v in (rect.x, rect.y, rect.w, rect.h)]}

    counts = picture.operators()
    return {
        "title": picture.title,
        "operators": counts[ROOT],
        "nodes": [
            {
                "id": n.id, "kind": n.kind, "label": n.label, "lines": list(n.lines), "tags": list(n.tags),
                "parent": None if n.parent == ROOT else n.parent, "facts": n.facts, **place(n.id),
            }
            for n in picture.nodes.values()
        ],
        "boxes": [
            {
                "id": b.id, "kind": b.kind, "label": b.label, "tags": list(b.tags),
                "parent": None if b.parent == ROOT else b.parent, "operators": counts[b.id], "facts": b.facts,
                **({"number": b.number} if b.kind == "group" else {}), **place(b.id),
            }
            for b in picture.boxes.values()
        ],
        "edges": [
            {
                "from": e.source, "to": e.target, "value": e.value, "label": e.label, "name": e.name, "kind": e.kind,
            }
            for e in picture.edges
        ],
        **({} if layout is None else {"width": round(layout.width, 1), "height": round(layout.height, 1)}),
    }  # fmt: skip


def views_of(picture: Picture, most: int = MOST_SHOWN) -> dict[str, str]:
    """The picture in pieces that are each quick to show: SVG elements without style sheets, by box.

    ``root`` is the whole picture, folded to about ``most`` nodes. Every box that is folded in one piece has a piece of
    its own (the ``data-id`` of the folded node is its key), itself folded where it is large.
    """
    whole = with_parts(picture)
    found: dict[str, str] = {}
    stack = [(ROOT, whole)]
    while stack:
        key, part = stack.pop()
        shown = part.folded_to(most)
        found[key] = svg_of(shown, lay_out(shown), style=False)
        stack += [(id_, part.inside(id_)) for id_, n in shown.nodes.items() if n.kind == "folded" and id_ not in found]
    return found


def with_parts(picture: Picture, most: int = MOST_CHILDREN) -> Picture:
    """The picture with runs of children of large boxes put in boxes of kind ``part``, so that it can be folded.

    Boxes with at most ``most`` children stay as they are.
    """
    large = {box: found for box, found in picture.children().items() if len(found) > most}
    if not large:
        return picture
    # Imported here alone: small pictures need no library of graphs.
    import networkx as nx

    levels = {box: nx.DiGraph() for box in large}
    for box, found in large.items():
        levels[box].add_nodes_from(found)
    for edge in picture.edges:
        inner = edge.source
        ends = {}
        for outer in picture.around(edge.source):
            ends[outer] = inner
            inner = outer
        inner = edge.target
        for outer in picture.around(edge.target):
            if outer in ends:
                if outer in levels and ends[outer] != inner:
                    levels[outer].add_edge(ends[outer], inner)
                break
            inner = outer
    result = Picture(picture.title, dict(picture.nodes), dict(picture.boxes), list(picture.edges))
    for box, found in large.items():
        position = {id_: i for i, id_ in enumerate(found)}
        ends_ = {i for i in found if i in picture.nodes and picture.nodes[i].kind in ("input", "output")}
        # Runs of an order in which everything comes before what reads it have no cycles between them.
        sorted_ = nx.lexicographical_topological_sort(levels[box], key=position.__getitem__)
        order = [i for i in sorted_ if i not in ends_]
        size = max(most // 2, -(-len(order) // most))
        for start in range(0, len(order), size):
            _put(result, box, order[start : start + size], start)
    return result


def _put(picture: Picture, box: str, children: list[str], start: int) -> None:
    """A new box around some children of ``box``."""
    first, last = (picture.nodes.get(c) or picture.boxes[c] for c in (children[0], children[-1]))
    span = f"{start + 1} to {start + len(children)}"
    label = f"{span}: {short(first.label, 14)} \N{HORIZONTAL ELLIPSIS} {short(last.label, 14)}"
    made = PictureBox(f"p{len(picture.boxes)}", "part", label, parent=box)
    picture.boxes[made.id] = made
    for child in children:
        if child in picture.nodes:
            picture.nodes[child] = replace(picture.nodes[child], parent=made.id)
        else:
            picture.boxes[child] = replace(picture.boxes[child], parent=made.id)
