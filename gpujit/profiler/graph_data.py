"""A picture of a graph as the data that the report's page draws from, a part at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpujit.ir.graph import Graph, Node
from gpujit.ir.module_path import module_path
from gpujit.pictures.build import Mark
from gpujit.pictures.model import ROOT, Picture, PictureNode
from gpujit.profiler.data import Profile, StepProfile
from gpujit.profiler.graphs import every_node
from gpujit.profiler.places import line_of
from gpujit.support.units import time_text

# Nodes of one graph that a page gets.
MAX_NODES = 20_000
# Children of a box: longer lists are cut into stretches, so that unfolding one draws no more than that.
MAX_CHILDREN = 48
# Boxes inside one another: what lies further in stands in the innermost of these.
MAX_DEPTH = 32
# A tag of nodes that a group computes, with its number.
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
    groups = _groups(picture)
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
                    group = groups.get(id_, -1) if inner.kind == "group" else -1
                    label = f"group {group}: {inner.label}" if group >= 0 else inner.label
                    kind = "fusion group" if inner.kind == "group" else inner.kind
                    scopes.append({"p": home, "l": shown(label), "k": kind, "g": group})
                    homes[id_] = len(scopes) - 1
                todo.append((id_, homes[id_], depth + 1))
    nodes = [_node(picture.nodes[id_], placed[id_], groups.get(id_, -1), shown) for id_ in order]
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


def steps_of(graph: Graph, profile: Profile) -> dict[Node, StepProfile]:
    """Which step computes each node, told by operator, source line and module, whatever stage the graph is at.

    Nodes that are the same in all of these are told apart by their order; where there are more of them than steps (some
    were folded away, or joined), nobody knows, and they are left out.
    """
    wanted: dict[tuple[str, str, str], list[StepProfile]] = {}
    groups = {g.number: g for g in profile.groups}
    for step in profile.steps:
        group = None if step.group is None else groups.get(step.group)
        operators, places = (step.operators, (step.place,)) if group is None else (group.operators, group.places)
        for operator, place in zip(operators, places, strict=False):
            if place.archive:
                wanted.setdefault((operator, place.archive, place.module), []).append(step)
    keys = {
        n: (n.kind.rpartition("::")[2], line_of(n.source), module_path(n))
        for n in every_node(graph)
        if n.source is not None
    }
    counts = Counter(keys.values())
    found: dict[Node, StepProfile] = {}
    taken: Counter[tuple[str, str, str]] = Counter()
    for node, key in keys.items():
        if key in wanted and len(wanted[key]) == counts[key]:
            found[node] = wanted[key][taken[key]]
            taken[key] += 1
    return found


def mark_of(step: StepProfile) -> Mark:
    """What a picture says of a node that a step computes."""
    tags = () if step.group is None else (f"{GROUP_TAG}{step.group}",)
    return Mark(tags, (("runs on", step.tier), ("its step takes", time_text(step.seconds.median))))


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


def _groups(picture: Picture) -> dict[str, int]:
    """The group of nodes that have one, and of the boxes around them."""
    found: dict[str, int] = {}
    for id_, node in picture.nodes.items():
        for tag in node.tags:
            if tag.startswith(GROUP_TAG):
                for each in (id_, picture.parent(id_)):
                    found.setdefault(each, int(tag[len(GROUP_TAG) :]))
    return found


def _node(node: PictureNode, scope: int, group: int, shown: Callable[[str], str]) -> dict[str, Any]:
    return {
        "p": scope,
        "l": shown(node.label),
        "t": shown(", ".join(node.lines)),
        "g": group,
        "e": int(not {"op", "control"} & set(node.tags)),
        "f": [[shown(name), shown(text)] for name, text in node.facts.items()],
    }
