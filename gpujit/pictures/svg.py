"""Pictures of graphs as SVG: one element, without anything from outside, for light, dark and printed pages.

Elements have ``data-`` attributes for scripts: ``data-id`` and ``data-kind`` on nodes and boxes, ``data-text`` with
what a search looks at, ``data-value`` on lines and labels of one value. The content of a box is in a group of its own,
with the lines in it, so that hiding that group folds the box.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpujit.pictures.layout import LINE, PAD, Layout, Path, lay_out, node_lines
from gpujit.pictures.model import ROOT, Picture, PictureBox, PictureNode, box_tags
from gpujit.pictures.style import style_sheet
from gpujit.pictures.text import FONT, SMALL, short, visible, width, xml, xml_lines
from gpujit.pictures.tones import TIER_NAMES

# What the legend needs where a picture has tiers.
LEGEND_WIDTH, LEGEND_HEIGHT = 680.0, 28.0


def svg_of(picture: Picture, layout: Layout | None = None, *, style: bool = True) -> str:
    """The picture as one ``svg`` element.

    Args:
        layout: of the picture, when there is one already.
        style: whether the element brings its style sheet; one is enough for all on a page.
    """
    return _Drawing(picture, layout or lay_out(picture)).text(style)


def number(value: float) -> str:
    """A coordinate: at most one digit behind the point."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


class _Drawing:
    def __init__(self, picture: Picture, layout: Layout) -> None:
        self.picture, self.layout = picture, layout
        self.children = picture.children()
        self.counts = picture.operators()
        self.paths: dict[str, list[Path]] = {}
        for path in layout.paths:
            self.paths.setdefault(path.box, []).append(path)

    def text(self, style: bool) -> str:
        legend = self.legend()
        w = number(max(self.layout.width, LEGEND_WIDTH if legend else 1))
        h = number(max(self.layout.height, 1) + LEGEND_HEIGHT * bool(legend))
        count, title = self.counts[ROOT], xml(self.picture.title)
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="gpujit-picture" role="img" viewBox="0 0 {w} {h}" '
            f'width="{w}" height="{h}" aria-label="{xml(short(self.picture.title, 80))}">',
            f"<title>{title}</title>",
            f"<desc>{xml(describe(self.picture, count))}</desc>",
        ]
        if style:
            out.append(f"<style>{style_sheet()}</style>")
        out += self.content(ROOT)
        out += legend
        out.append("</svg>\n")
        return "\n".join(out)

    def legend(self) -> list[str]:
        """What the colours of tiers mean; nothing where there are none."""
        present = {tag for n in self.picture.nodes.values() for tag in n.tags}
        present |= {tag for b in self.picture.boxes.values() for tag in b.tags}
        shown = [tag for tag in TIER_NAMES if tag in present]
        out = ['<g class="legend">'] if shown else []
        x, y = PAD, self.layout.height + PAD
        for tag in shown:
            out.append(f'<g class="{tag}">{_rect(x, y, FONT, FONT, 2)}</g>')
            out.append(
                f'<text class="small" x="{number(x + FONT + 4)}" y="{number(y + FONT - 2)}">{TIER_NAMES[tag]}</text>'
            )
            x += FONT + 4 + width(TIER_NAMES[tag], SMALL) + 2 * PAD
        return [*out, "</g>"] if shown else []

    def content(self, box: str) -> Iterator[str]:
        """What lies in a box: lines first, so that they pass behind nodes."""
        for path in self.paths.get(box, ()):
            yield self.path(path)
        for child in self.children[box]:
            if child in self.picture.boxes:
                yield from self.box(self.picture.boxes[child])
            else:
                yield self.node(self.picture.nodes[child])

    def box(self, box: PictureBox) -> Iterator[str]:
        rect = self.layout.rects[box.id]
        yield (
            f'<g class="box {" ".join(box_tags(box))}" data-id="{box.id}" data-kind="{box.kind}" '
            f'data-operators="{self.counts[box.id]}"{_data(box)}>'
        )
        yield f"<title>{_title(box, box.label)}</title>"
        yield _rect(rect.x, rect.y, rect.w, rect.h, 6)
        yield f'<text x="{number(rect.x + PAD)}" y="{number(rect.y + FONT + 3)}">{xml(short(box.label))}</text>'
        yield '<g class="content">'
        yield from self.content(box.id)
        yield "</g></g>"

    def node(self, node: PictureNode) -> str:
        rect = self.layout.rects[node.id]
        middle = number(rect.x + rect.w / 2)
        out = [
            f'<g class="node {" ".join(node.tags)}" data-id="{node.id}" data-kind="{xml(node.kind)}"{_data(node)}>',
            f"<title>{_title(node, node.label)}</title>",
            _rect(rect.x, rect.y, rect.w, rect.h, 4 if "op" in node.tags else 12),
        ]
        y = rect.y + PAD / 2 + FONT - 1
        for i, line in enumerate(node_lines(node.label, node.lines)):
            kind = "mid small" if i else "mid"
            out.append(f'<text class="{kind}" x="{middle}" y="{number(y)}">{xml(line)}</text>')
            y += LINE
        for label in self.layout.labels.get(node.id, ()):
            place = f'x="{number(label.x)}" y="{number(label.y)}"'
            out.append(f'<text class="shape" data-value="{label.value}" {place}>{xml(label.text)}</text>')
        return "".join([*out, "</g>"])

    def path(self, path: Path) -> str:
        edge = path.edge
        line = "".join(_points(hop, path.is_square) for hop in path.hops)
        title = f"%{edge.name} : {edge.label}" if edge.name else edge.label
        heads = "".join(f"M{number(x)} {number(y)}l-3.5 -6h7z" for x, y in path.heads)
        text = f'<path class="edge {edge.kind}" data-value="{edge.value}" data-source="{edge.source}" d="{line}">'
        text += f"<title>{xml(title)}</title></path>"
        return text + (f'<path class="head" data-value="{edge.value}" d="{heads}"/>' if heads else "")


def describe(picture: Picture, count: int) -> str:
    """What a picture has, in a sentence, for those who do not see it."""
    groups = sum(b.kind == "group" for b in picture.boxes.values())
    modules = sum(b.kind == "module" for b in picture.boxes.values())
    ends = [sum(n.kind == kind for n in picture.nodes.values()) for kind in ("input", "output")]
    return (
        f"A graph of {count} operators from {ends[0]} inputs to {ends[1]} outputs, in {modules} modules and "
        f"{groups} fusion groups."
    )


def _points(hop: list[tuple[float, float]], is_square: bool) -> str:
    (x, y), *rest = hop
    out = [f"M{number(x)} {number(y)}"]
    for nx, ny in rest:
        if abs(nx - x) < 0.05:
            if abs(ny - y) >= 0.05:
                out.append(f"V{number(ny)}")
        elif is_square:
            out.append(f"L{number(nx)} {number(ny)}")
        else:
            half = number((y + ny) / 2)
            out.append(f"C{number(x)} {half} {number(nx)} {half} {number(nx)} {number(ny)}")
        x, y = nx, ny
    return "".join(out)


def _rect(x: float, y: float, w: float, h: float, radius: float) -> str:
    return f'<rect x="{number(x)}" y="{number(y)}" width="{number(w)}" height="{number(h)}" rx="{number(radius)}"/>'


def _title(thing: PictureNode | PictureBox, label: str) -> str:
    return xml_lines([label, *(f"{name}: {value}" for name, value in thing.facts.items())])


def _data(thing: PictureNode | PictureBox) -> str:
    """Attributes for scripts: the module, and what is searched, in lower case."""
    module = thing.facts.get("module", "")
    words = [thing.label, thing.facts.get("operator", ""), module, thing.facts.get("source", "")]
    text = short(visible(" ".join(dict.fromkeys(w for w in words if w))).lower(), 300)
    return (f' data-module="{xml(module)}"' if module else "") + f' data-text="{xml(text)}"'
