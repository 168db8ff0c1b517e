"""What notebooks show of graphs and modules: small pieces of HTML without scripts, every name escaped."""

from __future__ import annotations

from collections.abc import Iterator

from gpujit.ir.graph import Graph
from gpujit.ir.module import submodules
from gpujit.ir.printer import print_graph
from gpujit.ir.values import QTensor, ScriptObject
from gpujit.pictures.build import picture_of
from gpujit.pictures.data import with_parts
from gpujit.pictures.model import ROOT
from gpujit.pictures.svg import describe, svg_of
from gpujit.pictures.text import short, xml
from gpujit.support.units import bytes_text

# Nodes of a graph's picture, characters of its text, and lines of a tree of modules that are shown.
NODES = 120
TEXT = 20_000
MODULES = 300
DEPTH = 24

_FRAME = "max-height:40em;overflow:auto;border:1px solid #8c959f55;border-radius:6px;padding:4px"


def framed(svg: str, below: str = "") -> str:
    """An SVG element in a frame that scrolls."""
    return f'<div style="{_FRAME}">{svg}</div>{below}'


def noted(text: str) -> str:
    """A line below a picture; nothing for no text."""
    return f"<div><small>{xml(text)}</small></div>" if text else ""


def graph_html(graph: Graph) -> str:
    """A graph: what it has, and behind that its picture, folded where it is large, and its text."""
    picture = picture_of(graph)
    shown = with_parts(picture).folded_to(NODES)
    note = noted(f"folded to {len(shown.nodes):,} of {len(picture.nodes):,} nodes" if shown is not picture else "")
    text = print_graph(graph)
    cut = "" if len(text) <= TEXT else f"\n... and {len(text) - TEXT:,} characters more"
    summary = f"<b>{xml(short(picture.title, 80))}</b> {xml(describe(picture, picture.operators()[ROOT]))}"
    body = "\n".join(map(xml, text[:TEXT].split("\n"))) + cut
    return (
        f"<details><summary>{summary}</summary>{framed(svg_of(shown))}{note}"
        f'<details><summary>text</summary><pre style="{_FRAME}">{body}</pre></details></details>'
    )


def module_html(root: ScriptObject) -> str:
    """A module: its class, what its weights take, its methods, and its tree of modules, a level at a time."""
    lines = list(_tree(root, 0, [MODULES], []))
    count, size = _weights(root, set())
    methods = ", ".join(f"<code>{xml(short(name))}</code>" for name in list(root.type.methods)[:20])
    return (
        f"<details open><summary><b>{xml(short(root.type.name, 80))}</b> {count:,} parameters, "
        f"{bytes_text(size)} with buffers</summary>"
        f'<div style="margin-left:1em">methods: {methods or "none"}</div>{"".join(lines)}</details>'
    )


def _tree(module: ScriptObject, depth: int, left: list[int], above: list[int]) -> Iterator[str]:
    """The modules below one, in elements that open."""
    for child_name, child in submodules(module):
        if id(child) in above:
            continue
        left[0] -= 1
        if left[0] < 0:
            if left[0] == -1:
                yield '<div style="margin-left:1em">...</div>'
            return
        count, _ = _weights(child, set())
        head = (
            f"<code>{xml(short(child_name))}</code> {xml(short(child.type.name.rpartition('.')[2]))}"
            f" <small>{count:,} parameters</small>"
        )
        inner = list(_tree(child, depth + 1, left, [*above, id(module)])) if depth < DEPTH else []
        if inner:
            yield f'<details style="margin-left:1em"><summary>{head}</summary>{"".join(inner)}</details>'
        else:
            yield f'<div style="margin-left:2em">{head}</div>'


def _weights(module: ScriptObject, seen: set[int]) -> tuple[int, int]:
    """Elements of the parameters of a module and those below it, and bytes with buffers; each array once."""
    count = size = 0
    stack = [module]
    visited: set[int] = set()
    while stack:
        current = stack.pop()
        if id(current) in visited:
            continue
        visited.add(id(current))
        for names, is_parameter in ((current.type.parameters, True), (current.type.buffers, False)):
            for name in names:
                value = current.get(name) if name in current.type.slot_of else None
                array = value.values if isinstance(value, QTensor) else value
                if array is None or id(value) in seen:
                    continue
                seen.add(id(value))
                count += int(getattr(array, "size", 0)) * is_parameter
                size += int(getattr(array, "nbytes", 0))
        stack += [m for _, m in submodules(current)]
    return count, size
