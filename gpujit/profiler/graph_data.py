"""A picture of a graph as the data that the report's page draws from, a part at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gpujit.ir.graph import Graph, Node
from gpujit.ir.module_path import module_path
from gpujit.ir.source import SourceRange
from gpujit.pictures.model import ROOT, Picture
from gpujit.profiler.data import GroupProfile

# Nodes of one graph that a page gets.
MAX_NODES = 20_000
# Children of a box: longer lists are cut into stretches, so that unfolding one draws no more than that.
MAX_CHILDREN = 48
# Boxes inside one another: what lies further in stands in the innermost of these.
MAX_DEPTH = 32
# A tag of nodes that go into a group later, with its number.
GROUP_TAG = "in-group-"


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph for the page; ``data`` is made of types that JSON has.

    ``scopes`` are boxes, parents before what lies in them, the first for the whole; ``nodes`` say in which they lie;
    ``edges`` are numbers of two nodes and the text beside the line.
    Args:
        nodes: how many nodes the graph has.
        left_out: how many of them are not in ``data``.
    """

    data: dict[str, Any]
    nodes: int
    left_out: int


def drawing(picture: Picture, name: str, title: str, shown: Callable[[str], str]) -> Drawing:
    """The picture as data.

    Args:
        name, title: of the stage: for ids in the page, and for people.
        shown: makes text from a file fit for the page.
    """
    order = list(picture.nodes)[:MAX_NODES]
    number = {id_: i for i, id_ in enumerate(order)}
    homes = {ROOT: 0}
    scopes: list[dict[str, Any]] = [{"p": -1, "l": "", "k": "graph", "g": -1}]
    todo = [(ROOT, 0, 0)]
    children = _in_order(picture, number)
    placed: dict[str, int] = {}
    while todo:
        box, scope, depth = todo.pop()
        for home, some in _stretches(picture, children[box], scope, scopes, shown):
            for id_ in some:
                inner = picture.boxes.get(id_)
                if inner is None:
                    placed[id_] = home
                    continue
                homes[id_] = home
                if depth < MAX_DEPTH:
                    group = inner.number if inner.kind == "group" else -1
                    label = f"group {group}: {inner.label}" if group >= 0 else inner.label
                    kind = "fusion group" if group >= 0 else inner.kind
                    scopes.append({"p": home, "l": shown(label), "k": kind, "g": group})
                    homes[id_] = len(scopes) - 1
                todo.append((id_, homes[id_], depth + 1))
    groups = {b.id: b.number for b in picture.boxes.values() if b.kind == "group"}
    nodes = [_node(picture, id_, placed[id_], groups, shown) for id_ in order]
    # An edge to a box goes to the first node in it.
    firsts: dict[str, int] = {}
    for i, id_ in enumerate(order):
        for each in (id_, *picture.around(id_)):
            firsts.setdefault(each, i)
    edges: dict[tuple[int, int, str], str] = {}
    for edge in picture.edges:
        source, target = firsts.get(edge.source), firsts.get(edge.target)
        if source is not None and target is not None and source != target:
            edges.setdefault((source, target, edge.value), shown(edge.label))
    data = {
        "name": name,
        "title": title,
        "scopes": scopes,
        "nodes": nodes,
        "edges": [[a, b, text] for (a, b, _), text in edges.items()],
    }
    return Drawing(data, len(picture.nodes), len(picture.nodes) - len(order))


def groups_before(graph: Graph, groups: Iterable[GroupProfile]) -> dict[Node, int]:
    """Which group each node of a graph that was not fused yet goes to, told by operator, source line and module.

    Nodes that are the same in all of these are told apart by their order; where there are more of them than groups have
    (some were not fused), they belong to nobody.
    """
    wanted: dict[tuple[str, str, str], list[int]] = {}
    for group in groups:
        for operator, place in zip(group.operators, group.places, strict=False):
            if place.archive:
                wanted.setdefault((operator, place.archive, place.module), []).append(group.number)
    keys = {
        n: (n.kind.rpartition("::")[2], place_text(n.source), module_path(n))
        for n in graph.all_nodes()
        if n.source is not None
    }
    counts = Counter(keys.values())
    found: dict[Node, int] = {}
    taken: Counter[tuple[str, str, str]] = Counter()
    for node, key in keys.items():
        if key in wanted and len(wanted[key]) == counts[key]:
            found[node] = wanted[key][taken[key]]
            taken[key] += 1
    return found


def place_text(source: SourceRange | None) -> str:
    """``code/__torch__.py:20``."""
    return "" if source is None else f"{source.source.name}:{source.shown_line}"


def _in_order(picture: Picture, number: dict[str, int]) -> dict[str, list[str]]:
    """The children of each box that have nodes among the numbered ones, by the first of them."""
    first: dict[str, int] = {}
    for id_, i in number.items():
        for each in (id_, *picture.around(id_)):
            if each in first:
                break
            first[each] = i
    # At the same node the box stands first: it holds the node.
    return {
        box: sorted((c for c in found if c in first), key=lambda c: first[c])
        for box, found in picture.children().items()
    }


def _stretches(
    picture: Picture, ids: list[str], scope: int, scopes: list[dict[str, Any]], shown: Callable[[str], str]
) -> list[tuple[int, list[str]]]:
    """Lists of children, each with the scope it stands in: the given one, or new ones inside it for long lists."""
    if len(ids) <= MAX_CHILDREN:
        return [(scope, ids)]
    found: list[tuple[int, list[str]]] = []
    parts = min(-(-len(ids) // MAX_CHILDREN), MAX_CHILDREN)
    size = -(-len(ids) // parts)
    for start in range(0, len(ids), size):
        some = ids[start : start + size]
        first = picture.nodes.get(some[0]) or picture.boxes[some[0]]
        label = f"{start + 1} to {start + len(some)} of {len(ids)}: {first.label} …"
        scopes.append({"p": scope, "l": shown(label), "k": "stretch", "g": -1})
        found += _stretches(picture, some, len(scopes) - 1, scopes, shown)
    return found


def _node(picture: Picture, id_: str, scope: int, groups: dict[str, int], shown: Callable[[str], str]) -> dict[str, Any]:
    node = picture.nodes[id_]
    group = next((groups[b] for b in picture.around(id_) if b in groups), -1)
    facts = []
    for tag in node.tags:
        if tag.startswith(GROUP_TAG):
            group = int(tag[len(GROUP_TAG) :])
    for name, text in node.facts.items():
        facts.append([shown(name), shown(text)])
    return {
        "p": scope,
        "l": shown(node.label),
        "t": shown(", ".join(node.lines)),
        "g": group,
        "e": int(not {"op", "control"} & set(node.tags)),
        "f": facts,
    }
