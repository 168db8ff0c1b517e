"""Layouts: nothing over something else, everything inside its box, lines downwards, the same each time, in time."""

from __future__ import annotations

from itertools import combinations, pairwise
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.pictures.build import picture_of
from gpujit.pictures.data import with_parts
from gpujit.pictures.layout import Layout, Rect, lay_out
from gpujit.pictures.model import ROOT, Picture, PictureBox, PictureEdge, PictureNode
from gpujit.pictures.rows import Line, Rows, arrange, ranks
from tests.pictures.graphs import PICTURES, many


def apart(a: Rect, b: Rect) -> bool:
    return a.x + a.w <= b.x + 0.01 or b.x + b.w <= a.x + 0.01 or a.y + a.h <= b.y + 0.01 or b.y + b.h <= a.y + 0.01


def check(picture: Picture, layout: Layout) -> None:
    """All that must hold of a layout."""
    children = picture.children()
    for box, found in children.items():
        for a, b in combinations(found, 2):
            assert apart(layout.rects[a], layout.rects[b]), (a, b)
        outer = Rect(0, 0, layout.width, layout.height) if box == ROOT else layout.rects[box]
        for child in found:
            r = layout.rects[child]
            assert r.x >= outer.x - 0.01 and r.x + r.w <= outer.x + outer.w + 0.01
            assert r.y >= outer.y - 0.01 and r.y + r.h <= outer.y + outer.h + 0.01
    arrived = set()
    for path in layout.paths:
        for hop in path.hops:
            assert hop[0][1] <= hop[-1][1] + 0.01
            if not path.is_square:
                assert all(a[1] <= b[1] + 0.01 for a, b in pairwise(hop))
        arrived |= {(path.edge.value, x, y) for x, y in path.heads}
    for edge in picture.edges:
        source, target = layout.rects[edge.source], layout.rects[edge.target]
        assert source.y + source.h <= target.y + 0.01, edge
        # Every edge arrives at the upper border of what reads it.
        assert any(
            v == edge.value and target.x - 0.01 <= x <= target.x + target.w + 0.01 and abs(y - target.y) < 0.01
            for v, x, y in arrived
        ), edge


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    """Nodes with any edges from earlier to later ones, in boxes that hold neighbours, as modules do."""
    picture = Picture("drawn")
    path: list[str] = []
    for i in range(draw(st.integers(0, 25))):
        for _ in range(draw(st.integers(0, min(2, len(path))))):
            path.pop()
        for _ in range(draw(st.integers(0, 2))):
            box = PictureBox(
                f"b{len(picture.boxes)}", "module", "m" * draw(st.integers(0, 30)), parent=(path or [ROOT])[-1]
            )
            picture.boxes[box.id] = box
            path.append(box.id)
        label = "n" * draw(st.integers(1, 20))
        lines = ("line",) * draw(st.integers(0, 2))
        node = PictureNode(f"n{i}", "op", label, lines, ("op",), (path or [ROOT])[-1])
        earlier = list(picture.nodes)
        picture.nodes[node.id] = node
        for source in draw(st.lists(st.sampled_from(earlier), max_size=4)) if earlier else []:
            value = draw(st.integers(0, 1))
            picture.edges.append(PictureEdge(source, node.id, f"{source}.{value}", "float32[1, 2]"))
    return picture.without_empty_boxes()


@settings(max_examples=60)
@given(pictures())
def test_nothing_overlaps_and_lines_go_down(picture: Picture) -> None:
    check(picture, lay_out(picture))


@settings(max_examples=40)
@given(pictures(), st.data())
def test_folded_pictures_are_pictures(picture: Picture, data: st.DataObject) -> None:
    names = sorted(picture.boxes)
    folded = picture.folded(set(data.draw(st.lists(st.sampled_from(names), max_size=5)))) if names else picture
    check(folded, lay_out(folded))
    for box in list(picture.boxes)[:3]:
        inside = picture.inside(box)
        check(inside, lay_out(inside))


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(0, 3))
def test_modules_that_are_left_and_entered_again_are_drawn_without_cycles(seed: int, count: int, depth: int) -> None:
    picture = picture_of(many(count, seed, depth=depth, reach=50))
    check(picture, lay_out(picture))
    assert len([n for n in picture.nodes.values() if n.kind == "aten::add"]) == count


@pytest.mark.parametrize("name", PICTURES)
def test_blocks_and_groups(name: str) -> None:
    picture = PICTURES[name]()
    check(picture, lay_out(picture))


def test_an_empty_picture_has_a_size() -> None:
    layout = lay_out(Picture("nothing"))
    assert layout.width > 0 and layout.rects == {} and layout.paths == []


def test_lines_that_would_need_too_much_room_go_around_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpujit.pictures.layout.MIN_PLACES", 0)
    monkeypatch.setattr("gpujit.pictures.layout.PLACES_PER_ITEM", 0)
    picture = picture_of(many(40, depth=2))
    layout = lay_out(picture)
    assert any(p.is_square for p in layout.paths)
    check(picture, layout)
    for path in layout.paths:
        if path.is_square:
            for hop in path.hops:
                # They pass where no node lies.
                for (x, y), (u, v) in pairwise(hop):
                    line = Rect(min(x, u) + 0.1, min(y, v) + 0.1, max(abs(u - x) - 0.2, 0), max(abs(v - y) - 0.2, 0))
                    assert all(apart(line, layout.rects[n]) for n in picture.nodes if picture.parent(n) == path.box)


def test_the_same_picture_has_the_same_layout() -> None:
    picture = picture_of(many(200, depth=2))
    assert lay_out(picture) == lay_out(picture)


@pytest.mark.parametrize("depth", [0, 2])
def test_five_thousand_operators_take_a_few_seconds_at_most(depth: int) -> None:
    graph = many(5000, depth=depth)
    start = process_time()
    picture = picture_of(graph)
    layout = lay_out(picture)
    # On a free machine it is less than two.
    assert process_time() - start < 15
    assert len(layout.rects) == len(picture.nodes) + len(picture.boxes) >= 5000


def test_parts_make_long_lists_foldable() -> None:
    picture = picture_of(many(1000))
    assert with_parts(picture, 2000) is picture
    parts = with_parts(picture, 100)
    kinds = [b.kind for b in parts.boxes.values()]
    assert kinds == ["part"] * 20
    folded = parts.folded_to(50)
    assert len(folded.nodes) <= 50 and any("operators" in n.lines[0] for n in folded.nodes.values() if n.lines)
    check(folded, lay_out(folded))


def test_a_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="no cycles"):
        ranks(2, [(0, 1), (1, 0)], [False, False])


def test_ranks_keep_readers_below_and_makers_near() -> None:
    assert ranks(4, [(0, 1), (1, 2), (3, 2)], [True, False, False, False]) == [0, 1, 2, 1]
    assert ranks(4, [(0, 1), (1, 2), (3, 2)], [True, False, False, True]) == [0, 1, 2, 0]


def test_an_order_without_crossings_is_found_and_lines_are_straight() -> None:
    level = Rows([[0, 1], [2, 3]], [10.0] * 4, [5.0] * 4, [Line(0, 3, 5, 5), Line(1, 2, 5, 5)])
    arrange(level)
    assert [level.x[0] < level.x[1], level.x[3] < level.x[2]] in ([True, True], [False, False])
    assert level.x[0] == pytest.approx(level.x[3]) and level.x[1] == pytest.approx(level.x[2])
