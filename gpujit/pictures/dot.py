"""Pictures of graphs as DOT text for Graphviz: boxes are clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpujit.pictures.layout import node_lines
from gpujit.pictures.model import ROOT, Picture, PictureBox, PictureNode
from gpujit.pictures.text import short, visible
from gpujit.pictures.tones import GROUP_FILLS, TIER_COLOURS


def dot_of(picture: Picture) -> str:
    """The picture as one ``digraph``."""
    lines = [
        "digraph gpujit {",
        f"  label={quoted(short(picture.title, 80))}; labelloc=t; compound=true;",
        '  node [shape=box, style="rounded,filled", fillcolor="#f6f8fa", color="#8c959f"];',
        '  node [fontname="monospace", fontsize=10];',
        '  edge [color="#8c959f", fontname="monospace", fontsize=8];',
        '  graph [fontname="monospace", fontsize=10, color="#8c959f"];',
    ]
    children = picture.children()
    lines += _content(picture, children, ROOT, "  ")
    first = {box: _first(children, picture, box) for box in picture.boxes}
    for edge in picture.edges:
        options = [f"label={quoted(short(edge.label, 30))}"] if edge.label else []
        if edge.kind == "control":
            options.append("style=dashed")
        target = edge.target
        if target in picture.boxes:
            # Edges of DOT lead to nodes, and can be cut at the cluster around them.
            options.append(f"lhead=cluster_{target}")
            target = first[target]
        lines.append(
            f"  {edge.source} -> {target} [{', '.join(options)}];" if options else f"  {edge.source} -> {target};"
        )
    return "\n".join([*lines, "}\n"])


def quoted(text: str) -> str:
    """A string of DOT, in which nothing from a file has a meaning."""
    return '"' + visible(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _content(picture: Picture, children: Mapping[str, Sequence[str]], box: str, indent: str) -> Iterator[str]:
    for child in children[box]:
        if child in picture.nodes:
            yield indent + _node(picture.nodes[child])
            continue
        inner = picture.boxes[child]
        yield f"{indent}subgraph cluster_{child} {{"
        yield f"{indent}  {_box_style(inner)}"
        yield from _content(picture, children, child, indent + "  ")
        yield f"{indent}}}"


def _node(node: PictureNode) -> str:
    # \n in a label is DOT's own line end: each line is made harmless by itself.
    text = "\\n".join(quoted(line)[1:-1] for line in node_lines(node.label, node.lines))
    options = [f'label="{text}"', f"tooltip={quoted(short(_tip(node), 300))}"]
    colour = _colour(node.tags)
    if colour is not None:
        options.append(f'color="{colour}", penwidth=2')
    if "op" not in node.tags:
        options.append("shape=oval" if "folded" not in node.tags else "peripheries=2")
    return f"{node.id} [{', '.join(options)}];"


def _box_style(box: PictureBox) -> str:
    options = [f"label={quoted(short(box.label))}", "labeljust=l"]
    if box.kind == "group":
        fill = GROUP_FILLS[box.number % len(GROUP_FILLS)]
        options.append(f'style="filled,rounded"; fillcolor="{fill}"')
        colour = _colour(box.tags)
        if colour is not None:
            options.append(f'color="{colour}"; penwidth=2')
    else:
        options.append('style="rounded,dashed"' if box.kind == "module" else 'style="rounded"')
    return "; ".join(options) + ";"


def _colour(tags: Sequence[str]) -> str | None:
    """The colour of a tier among tags."""
    return next((TIER_COLOURS[t] for t in tags if t in TIER_COLOURS), None)


def _tip(node: PictureNode) -> str:
    return "; ".join(f"{name}: {value}" for name, value in node.facts.items())


def _first(children: Mapping[str, Sequence[str]], picture: Picture, box: str) -> str:
    """A node in a box."""
    stack = [box]
    while stack:
        for child in children[stack.pop()]:
            if child in picture.nodes:
                return child
            stack.append(child)
    return box
