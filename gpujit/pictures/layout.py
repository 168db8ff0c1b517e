"""Where everything in a picture lies: a layered layout, box by box from the inside out.

Every box is laid out by itself; values that enter or leave it do so at ports on its border, and for what lies around
it, it is an item like others. Lines run downwards, and around what they do not lead to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpujit.pictures.model import ROOT, Picture, PictureEdge
from gpujit.pictures.rows import Line, Rows, arrange, ranks
from gpujit.pictures.text import FONT, SMALL, short, width

LINE = 15.0
PAD = 8.0
# Between items of a row, beside a line, and between rows.
GAP = 18.0
LINE_GAP = 10.0
ROW_GAP = 30.0
BOX_PAD = 12.0
HEADER = 22.0
# Lines that pass rows are given room in each, as long as there are not too many of those places.
MIN_PLACES = 2_000
PLACES_PER_ITEM = 4
# Room for a line beside all rows.
LANE = 8.0
LANES = 24
# Values that leave a node each at a place of its own.
MAX_PORTS = 4


@dataclass(slots=True)
class Rect:
    """A place in the picture."""

    x: float
    y: float
    w: float
    h: float


@dataclass(slots=True)
class Path:
    """A value's line inside one box: ``hops`` are lists of points, ``heads`` where it arrives at what reads it.

    The pieces between points go down; where they go sideways too, they are drawn as curves, unless ``is_square``.
    """

    box: str
    edge: PictureEdge
    hops: list[list[tuple[float, float]]] = field(default_factory=list)
    heads: list[tuple[float, float]] = field(default_factory=list)
    is_square: bool = False


@dataclass(slots=True)
class Label:
    """Text at a place: its middle, and the line it stands on."""

    x: float
    y: float
    text: str
    value: str


@dataclass(slots=True)
class Layout:
    """Places of all nodes and boxes, lines, and labels of values below what makes them."""

    width: float
    height: float
    rects: dict[str, Rect]
    paths: list[Path]
    labels: dict[str, list[Label]]


# Pairs of items, in rows that follow each other, that a value's line connects.
_Route = list[tuple[int, int]]


@dataclass(slots=True)
class _Item:
    """Something to be placed in a box."""

    w: float
    h: float
    # How far down it is drawn: labels stand below that.
    drawn: float
    ins: dict[str, float] = field(default_factory=dict)
    outs: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Level:
    """A box with everything in it placed, the box's upper left corner at 0."""

    w: float
    h: float
    rects: dict[str, Rect]
    paths: list[Path]
    ins: dict[str, float]
    outs: dict[str, float]


def lay_out(picture: Picture) -> Layout:
    """The layout of a picture; the same one each time."""
    return _Layouter(picture).run()


def node_lines(label: str, lines: Sequence[str]) -> list[str]:
    """The text in a node, a line each, shortened."""
    return [short(label), *map(short, lines)]


class _Layouter:
    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.children = picture.children()
        self.levels: dict[str, _Level] = {}
        self.items: dict[str, _Item] = {}
        # For each box its lines: from a child, or None for its border, to a child or its border; with the edge.
        self.links: dict[str, dict[str, list[tuple[str | None, str | None, PictureEdge]]]] = {}
        self.seen: set[tuple[str, str, str | None, str | None]] = set()
        self.made: dict[str, dict[str, str]] = {}
        for edge in picture.edges:
            self.link(edge)
            if edge.kind == "data":
                self.made.setdefault(edge.source, {}).setdefault(edge.value, edge.label)

    def link(self, edge: PictureEdge) -> None:
        """Cut an edge where it goes through the borders of boxes."""
        picture = self.picture
        above = list(picture.around(edge.source))
        below = list(picture.around(edge.target))
        common = next(box for box in above if box in below)
        i, j = above.index(common), below.index(common)
        source = [edge.source, *above[:i]]
        target = [edge.target, *below[:j]]
        for k in range(1, len(source)):
            self.add(source[k], source[k - 1], None, edge)
        self.add(common, source[-1], target[-1], edge)
        for k in range(1, len(target)):
            self.add(target[k], None, target[k - 1], edge)

    def add(self, box: str, source: str | None, target: str | None, edge: PictureEdge) -> None:
        key = (box, edge.value, source, target)
        if key not in self.seen:
            self.seen.add(key)
            self.links.setdefault(box, {}).setdefault(edge.value, []).append((source, target, edge))

    def run(self) -> Layout:
        order: list[str] = []
        stack = [ROOT]
        while stack:
            box = stack.pop()
            order.append(box)
            stack += [c for c in self.children[box] if c in self.picture.boxes]
        for box in reversed(order):
            for child in self.children[box]:
                self.items[child] = self.item(child)
            self.levels[box] = _Box(self, box).solve()
        root = self.levels[ROOT]
        found = Layout(root.w, root.h, {}, [], {})
        origins: dict[str, tuple[float, float]] = {ROOT: (0.0, 0.0)}
        for box in order:
            x, y = origins[box]
            for child, rect in self.levels[box].rects.items():
                found.rects[child] = Rect(x + rect.x, y + rect.y, rect.w, rect.h)
                origins[child] = (x + rect.x, y + rect.y)
            for path in self.levels[box].paths:
                path.hops = [[(x + a, y + b) for a, b in hop] for hop in path.hops]
                path.heads = [(x + a, y + b) for a, b in path.heads]
                found.paths.append(path)
        for id_ in self.picture.nodes:
            found.labels[id_] = self.labels(id_, found.rects[id_])
        return found

    def item(self, id_: str) -> _Item:
        """What a child of a box takes: a box as it was laid out, a node as its text needs."""
        if id_ in self.picture.boxes:
            level = self.levels[id_]
            return _Item(level.w, level.h, level.h, level.ins, level.outs)
        node = self.picture.nodes[id_]
        lines = node_lines(node.label, node.lines)
        w = max([width(lines[0], FONT), *(width(t, SMALL) for t in lines[1:])]) + 2 * PAD
        texts = self.texts(id_)
        w = max(w, max([width(t, SMALL) for t in texts.values()], default=0) * len(texts) + PAD)
        drawn = LINE * len(lines) + PAD
        outs = {value: w * (k + 0.5) / len(texts) for k, value in enumerate(texts)} if len(texts) > 1 else {}
        return _Item(w, drawn + (LINE if any(texts.values()) else 0), drawn, {}, outs)

    def texts(self, id_: str) -> dict[str, str]:
        """What stands below a node: the dtype and shape of each value that leaves it."""
        values = self.made.get(id_, {})
        if len(values) > MAX_PORTS:
            return {"": f"{len(values)} values"}
        return {value: short(text, 30) for value, text in values.items()}

    def labels(self, id_: str, rect: Rect) -> list[Label]:
        item, texts = self.items[id_], self.texts(id_)
        y = rect.y + item.drawn + SMALL + 1
        return [Label(rect.x + item.outs.get(v, rect.w / 2), y, t, v) for v, t in texts.items() if t]


class _Box:
    """The layout of one box."""

    def __init__(self, layouter: _Layouter, box: str) -> None:
        self.layouter, self.box = layouter, box
        self.links = layouter.links.get(box, {})
        self.names = layouter.children[box]
        self.number = {name: i for i, name in enumerate(self.names)}
        self.items = [layouter.items[n] for n in self.names]
        self.ins = [v for v, found in self.links.items() if any(a is None for a, _, _ in found)]
        self.outs = [v for v, found in self.links.items() if any(b is None for _, b, _ in found)]

    def solve(self) -> _Level:
        """Place everything."""
        picture = self.layouter.picture
        # Rows: the entries, then the children, then the exits.
        pairs = {(self.number[a], self.number[b]): None for f in self.links.values() for a, b, _ in f if a and b}
        top = [n in picture.nodes and picture.nodes[n].kind == "input" for n in self.names]
        rank = [r + 1 for r in ranks(len(self.names), list(pairs), top)]
        last = max(rank, default=0) + 1
        if self.box == ROOT:
            # Outputs stand in the last row.
            for i, name in enumerate(self.names):
                if name in picture.nodes and picture.nodes[name].kind == "output":
                    rank[i] = last - 1
        rows: list[list[int]] = [[] for _ in range(last + 1)]
        for i, r in enumerate(rank):
            rows[r].append(i)
        level = Rows(rows, [i.w for i in self.items], [GAP] * len(self.items), [])
        self.entries = {v: self.place(level, 0, LINE_GAP) for v in self.ins}
        self.exits = {v: self.place(level, last, LINE_GAP) for v in self.outs}
        routes = self.route(level, rank, last)
        arrange(level)
        return self.finish(level, rank, last, routes)

    def place(self, level: Rows, row: int, gap: float) -> int:
        """A new item without size."""
        level.widths.append(0.0)
        level.gaps.append(gap)
        number = len(level.widths) - 1
        level.rows[row].append(number)
        return number

    def ends(self, value: str, rank: Sequence[int], last: int) -> tuple[int, int, list[tuple[int, int]]]:
        """Of a value: what it comes from and its row, and where it goes with the rows."""
        found = self.links[value]
        source = found[0][0]
        start = self.entries[value] if source is None else self.number[source]
        row = 0 if source is None else rank[start]
        goals = []
        for _, b, _ in found:
            goals.append((self.exits[value], last) if b is None else (self.number[b], rank[self.number[b]]))
        return start, row, goals

    def route(self, level: Rows, rank: Sequence[int], last: int) -> dict[str, _Route]:
        """For each value the pairs of items, in rows that follow each other, that its line connects.

        Those that would need too much room, the longest, have none: they go around all rows.
        """
        lengths = {}
        for value in self.links:
            _, row, goals = self.ends(value, rank, last)
            lengths[value] = max(r for _, r in goals) - row - 1
        budget = MIN_PLACES + PLACES_PER_ITEM * len(self.items)
        routes: dict[str, _Route] = {}
        far = set()
        for value in sorted(lengths, key=lambda v: lengths[v]):
            budget -= lengths[value]
            if budget < 0 and lengths[value] > 2:
                far.add(value)
        for value in self.links:
            if value in far:
                continue
            start, row, goals = self.ends(value, rank, last)
            pairs: _Route = []
            chain = {row: start}
            for r in range(row + 1, max(r for _, r in goals)):
                place = chain[r] = self.place(level, r, LINE_GAP)
                pairs.append((chain[r - 1], place))
            for goal, r in goals:
                pairs.append((chain[r - 1], goal))
            routes[value] = pairs
            for a, b in pairs:
                weight = 4.0 if a >= len(self.items) and b >= len(self.items) else 1.0
                level.lines.append(Line(a, b, self.out_port(a, value), self.in_port(b, value), weight))
        return routes

    def out_port(self, item: int, value: str) -> float:
        if item >= len(self.items):
            return 0.0
        found = self.items[item]
        return found.outs.get(value, found.w / 2)

    def in_port(self, item: int, value: str) -> float:
        if item >= len(self.items):
            return 0.0
        found = self.items[item]
        return found.ins.get(value, found.w / 2)

    def finish(self, level: Rows, rank: Sequence[int], last: int, routes: Mapping[str, _Route]) -> _Level:
        """Rows one below the other, and the lines between them."""
        is_root = self.box == ROOT
        pad = BOX_PAD
        row_of: dict[int, int] = {i: r for r, row in enumerate(level.rows) for i in row}
        heights = [max([self.items[i].h for i in row if i < len(self.items)], default=0.0) for row in level.rows]
        tops: list[float] = []
        y = pad if is_root else HEADER
        for r, height in enumerate(heights):
            tops.append(y)
            is_empty_end = r in (0, last) and not level.rows[r]
            # Ports lie on the border, not far from what is inside.
            gap = 0.0 if is_empty_end else ROW_GAP * (0.4 if not is_root and (r == 0 or r == last - 1) else 1.0)
            y += height + (gap if r < last else 0.0)
        bottom = y + (pad if is_root else 0.0)
        span = max([level.x[i] + level.widths[i] for i in range(len(level.widths))], default=0.0)
        lanes = [v for v in self.links if v not in routes]
        inner = span + LANE * min(len(lanes), LANES)
        if not is_root:
            name = short(self.layouter.picture.boxes[self.box].label)
            inner = max(inner, width(name, FONT) + 2 * PAD)
        shift = pad + (inner - span - LANE * min(len(lanes), LANES)) / 2
        x = [v + shift for v in level.x]
        rects = {
            name: Rect(x[i], tops[rank[i]], self.items[i].w, self.items[i].drawn) for i, name in enumerate(self.names)
        }
        found = _Level(inner + 2 * pad, bottom, rects, [], {}, {})
        borders = (0.0, bottom)
        for value, number in self.entries.items():
            found.ins[value] = x[number]
        for value, number in self.exits.items():
            found.outs[value] = x[number]

        def start(item: int, value: str) -> tuple[float, float, float]:
            """Where a line leaves an item, and the end of its row."""
            r = row_of[item]
            if item < len(self.items):
                return x[item] + self.out_port(item, value), tops[r] + self.items[item].drawn, tops[r] + heights[r]
            return x[item], borders[0] if r == 0 else tops[r], tops[r] + heights[r]

        def end(item: int, value: str) -> tuple[float, float]:
            r = row_of[item]
            if item < len(self.items):
                return x[item] + self.in_port(item, value), tops[r]
            return x[item], borders[1] if r == last else tops[r]

        readers = {(v, b): e for v, f in self.links.items() for _, b, e in f if b is not None and b == e.target}
        for value, pairs in routes.items():
            path = Path(self.box, self.links[value][0][2])
            for a, b in pairs:
                x1, y1, y2 = start(a, value)
                x3, y3 = end(b, value)
                path.hops.append([(x1, y1), (x1, y2), (x3, y3)])
                if b < len(self.items) and (value, self.names[b]) in readers:
                    path.heads.append((x3, y3))
            found.paths.append(path)
        for k, value in enumerate(lanes):
            lane = pad + shift - pad + span + LANE * (k % LANES + 1)
            path = Path(self.box, self.links[value][0][2], is_square=True)
            first, row, goals = self.ends(value, rank, last)
            x1, y1, y2 = start(first, value)
            for goal, r in goals:
                x3, y3 = end(goal, value)
                before = tops[r - 1] + heights[r - 1]
                turn, back = y2 + ROW_GAP / 3, max(before, y3 - ROW_GAP / 3) if r != row + 1 else y2 + ROW_GAP / 3
                path.hops.append([(x1, y1), (x1, turn), (lane, turn), (lane, back), (x3, back), (x3, y3)])
                if goal < len(self.items) and (value, self.names[goal]) in readers:
                    path.heads.append((x3, y3))
            found.paths.append(path)
        return found
