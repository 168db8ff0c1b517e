"""What pictures show, in which forms, and that names from files cannot break any of them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpujit
from gpujit import nn
from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node
from gpujit.ir.source import CallSite, Source, SourceRange
from gpujit.ir.values import Device
from gpujit.pictures.build import Mark, picture_of
from gpujit.pictures.data import data_of, views_of
from gpujit.pictures.dot import dot_of, quoted
from gpujit.pictures.layout import lay_out
from gpujit.pictures.model import Picture, PictureNode
from gpujit.pictures.style import style_sheet
from gpujit.pictures.svg import svg_of
from gpujit.pictures.text import LABEL, short, visible, width, xml
from gpujit.pictures.values import constant_text, type_text
from tests.pictures.graphs import GOLDEN, HOSTILE, PICTURES, branches, forms, layers, many, parsed

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", PICTURES)
def test_golden_pictures(name: str) -> None:
    for form, text in forms(PICTURES[name]()).items():
        assert text == (GOLDEN / f"{name}.{form}").read_text(encoding="utf-8"), (
            f"{name}.{form} differs from what is kept; `python -m tests.pictures.graphs` writes all anew: look at them"
        )


# ---------------------------------------------------------------------------------------------------- what is shown


def test_modules_constants_lists_and_places() -> None:
    picture = layers()
    assert [(b.label, b.facts["module"]) for b in picture.boxes.values()] == [("block", "block"), ("act", "block.act")]
    nodes = {n.label: n for n in picture.nodes.values()}
    assert list(nodes) == ["x", "y", "relu", "add", "softmax", "cat", "output"]
    assert nodes["add"].lines == ("alpha=2",) and nodes["cat"].lines == ("dim=1",)
    # What is not known of an argument, and what its default says, is left out.
    assert nodes["softmax"].lines == ("dim=1",)
    assert nodes["relu"].facts["source"] == "code/m.py:2:2" and nodes["relu"].facts["line"] == "b = relu(x)"
    assert nodes["relu"].parent == "b1" and nodes["add"].parent == "b0"
    edges = {(picture.nodes[e.source].label, picture.nodes[e.target].label): e.label for e in picture.edges}
    assert edges["x", "cat"] == edges["softmax", "cat"] == "float32[2, 4]" and ("x", "relu") in edges
    assert edges["cat", "output"] == "float32[4, 4]"


def test_branches_loops_groups_and_marks() -> None:
    picture = branches()
    assert [(b.kind, b.label) for b in picture.boxes.values()] == [
        ("if", "if"),
        ("block", "then"),
        ("loop", "loop"),
        ("group", "exp+tanh"),
    ]
    labels = {id_: n.label for id_, n in picture.nodes.items()}
    edges = {(labels.get(e.source), labels.get(e.target, e.target)) for e in picture.edges if e.kind == "data"}
    assert ("x", "neg") in edges and ("neg", "result") in edges and ("x", "result") in edges
    assert ("result", "for each round") in edges and ("add", "next round") in edges and ("next round", "exp") in edges
    assert ("tanh", "output") in edges
    assert any(e.kind == "control" and e.target == "b1" for e in picture.edges)
    (group,) = [b for b in picture.boxes.values() if b.kind == "group"]
    assert group.tags == ("tier-native-kernel",) and group.facts["operators"] == "exp, tanh"
    root = ET.fromstring(svg_of(picture))
    legend = [t.text for g in root.findall(f"{SVG}g[@class='legend']") for t in g.iter(f"{SVG}text")]
    assert legend == ["native kernel", "numpy"]


def test_a_branch_without_operators_says_what_it_gives() -> None:
    picture = picture_of(
        parsed(
            """
            graph(%flag : bool):
              %a : int = prim::Constant[value=256]()
              %b : int = prim::Constant[value=32]()
              %c : int = prim::If(%flag)
                block0():
                  -> (%a)
                block1():
                  -> (%b)
              return (%c)"""
        )
    )
    (result,) = [n for n in picture.nodes.values() if n.label == "result"]
    assert result.lines == ("then: 256", "else: 32") and [b.kind for b in picture.boxes.values()] == ["if"]


def test_calls_weights_and_attributes_of_a_module_as_written() -> None:
    module = gpujit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval())
    picture = picture_of(module.graph)
    assert [n.label for n in picture.nodes.values() if n.kind == "prim::CallMethod"] == ["0.forward", "1.forward"]
    inlined = picture_of(module.inlined_graph)
    (linear,) = [n for n in inlined.nodes.values() if n.kind == "aten::linear"]
    assert linear.lines == ("weight=self.0.weight", "bias=self.0.bias")
    assert [b.facts["module"] for b in inlined.boxes.values() if b.kind == "module"] == ["0", "1"]


def test_a_group_lies_in_the_module_around_all_its_operators() -> None:
    graph = parsed(
        """
        graph(%x : Tensor):
          %g : Tensor = prim::FusionGroup_0(%x)
          return (%g)
        with prim::FusionGroup_0 = graph(%p : Tensor):
          %q : Tensor = aten::exp(%p)
          %r : Tensor = aten::tanh(%q)
          return (%r)"""
    )
    (node,) = graph.nodes
    for inner, path in zip(node.attributes["Subgraph"].nodes, ("a.b.c", "a.b.d"), strict=True):
        inner.call = CallSite("f", None, None, path)
    node.call = inner.call
    assert [b.label for b in picture_of(graph).boxes.values()] == ["a", "b", "exp+tanh"]


def test_an_empty_graph() -> None:
    picture = picture_of(Graph())
    assert picture.title == "graph" and not picture.nodes
    assert ET.fromstring(svg_of(picture)).tag == f"{SVG}svg"
    assert dot_of(picture).startswith("digraph") and data_of(picture)["nodes"] == []
    assert list(views_of(picture)) == ["root"]


def test_outputs_that_are_inputs_or_constants() -> None:
    picture = picture_of(parsed("graph(%x : Tensor):\n  %c : int = prim::Constant[value=7]()\n  return (%x, %c)"))
    assert [n.lines for n in picture.nodes.values()] == [(), ("Tensor",), ("7",)]
    assert [(e.source, e.target) for e in picture.edges] == [("n0", "n1")]


@pytest.mark.parametrize(
    ("value", "declared", "text"),
    [
        (True, "", "True"),
        (6, "ScalarType?", "float32"),
        (6, "int", "6"),
        (0.1, "", "0.1"),
        (float("inf"), "", "inf"),
        ("a\nb", "", '"a\\nb"'),
        ("x" * 300, "", '"' + "x" * 200 + '"...'),
        (list(range(9)), "", "[0, 1, 2, 3, 4, 5, 6, 7, ...]"),
        ((1, None), "", "(1, None)"),
        (np.array(1.5, np.float32), "", "1.5"),
        (np.array([1, 2]), "", "[1, 2]"),
        (np.zeros((3, 4), np.float32), "", "float32[3, 4]"),
        (Device("cpu"), "", "cpu"),
        (1 + 2j, "", "(1+2j)"),
    ],
)
def test_constants_in_few_words(value: object, declared: str, text: str) -> None:
    assert constant_text(value, declared) == text


def test_types_in_few_words() -> None:
    assert type_text(T.TensorType(6, (1, None))) == "float32[1, *]"
    assert type_text(T.TensorType(6)) == "float32" and type_text(T.TENSOR) == "Tensor"
    assert type_text(T.ListType(T.INT)) == "int[]"


# ------------------------------------------------------------------------------------------------------ bad names


def hostile() -> Picture:
    """A graph whose every name is hostile."""
    graph = Graph(HOSTILE)
    x = graph.add_input(name=HOSTILE)
    node = graph.block.append(Node(f"evil::{HOSTILE}", [x], {HOSTILE: HOSTILE}))
    node.call = CallSite(HOSTILE, None, None, HOSTILE)
    node.source = SourceRange(Source(HOSTILE, HOSTILE), 1, 0, 1, 1)
    graph.add_output(node.add_output(name=HOSTILE))
    marks = {node: Mark((), ((HOSTILE, HOSTILE),))}
    return picture_of(graph, marks=marks)


def test_hostile_names_break_no_svg() -> None:
    text = svg_of(hostile())
    root = ET.fromstring(text)
    assert not any(e.tag.endswith("script") for e in root.iter())
    assert {c for c in text if not c.isprintable()} == {"\n"}
    assert max(len(e.text or "") for e in root.iter(f"{SVG}text")) <= LABEL
    titles = [e.text or "" for e in root.iter(f"{SVG}title")]
    # The whole name stands in the title, and its line ends and escapes as text.
    assert any("x" * 10_000 in t and "\\x1b[31m\\n" in t and "\\u202e" in t for t in titles)
    assert root.attrib["aria-label"].startswith("</title><script>")


def test_hostile_names_break_no_dot() -> None:
    text = dot_of(hostile())
    assert {c for c in text if not c.isprintable()} == {"\n"}
    # Outside strings there are only names that pictures give.
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    assert "script" not in outside and "alert" not in outside and outside.count("{") == outside.count("}")
    assert max(map(len, text.splitlines())) < 2_000


def test_hostile_names_break_no_json() -> None:
    data = data_of(hostile(), lay_out(hostile()))
    assert json.loads(json.dumps(data)) == data
    assert data["title"] == HOSTILE


@given(st.text())
def test_any_text_becomes_well_formed(text: str) -> None:
    assert visible(text).isprintable() and visible(visible(text)) == visible(text)
    assert ET.fromstring(f'<a b="{xml(text)}">{xml(text)}</a>').text == (visible(text) or None)
    assert len(short(text)) <= LABEL and short(text).isprintable()
    assert re.fullmatch(r'"(?:[^"\\\n]|\\.)*"', quoted(text))
    assert width(text, 10) >= 0


@given(st.text(min_size=1, max_size=60))
def test_any_label_is_drawn(text: str) -> None:
    picture = Picture(text, {"n0": PictureNode("n0", text, text, (text,), ("op",), facts={text: text})})
    assert ET.fromstring(svg_of(picture)) is not None


def test_lone_surrogates_can_be_written() -> None:
    picture = Picture("\ud800", {"n0": PictureNode("n0", "k", "\udfff")})
    assert svg_of(picture).encode() and dot_of(picture).encode()


# -------------------------------------------------------------------------------------------------------- big ones


def test_big_pictures_come_in_pieces() -> None:
    picture = picture_of(many(1500, depth=2))
    views = views_of(picture, 100)
    assert len(views) > 10
    folded = re.findall(r'class="node folded[^"]*" data-id="(\w+)"', views["root"])
    assert folded and set(folded) <= set(views)
    for text in views.values():
        root = ET.fromstring(text)
        assert len([g for g in root.iter(f"{SVG}g") if "node" in g.get("class", "").split()]) < 600
    seen = {i for text in views.values() for i in re.findall(r'class="node op" data-id="(\w+)"', text)}
    assert seen == {i for i, n in picture.nodes.items() if "op" in n.tags}


def test_folding_a_box_merges_its_edges() -> None:
    folded = layers().folded(["b0"])
    assert [(n.label, n.lines) for n in folded.nodes.values()] == [
        ("x", ()),
        ("y", ("Tensor",)),
        ("block", ("3 operators",)),
        ("cat", ("dim=1",)),
        ("output", ("float32[4, 4]",)),
    ]
    assert [(e.source, e.target) for e in folded.edges] == [("n0", "b0"), ("b0", "n5"), ("n0", "n5"), ("n5", "n6")]
    inside = layers().inside("b0")
    assert {n.kind for n in inside.nodes.values()} == {"input", "output", "aten::relu", "aten::add", "aten::softmax"}
    (group,) = [n for n in branches().folded(["b4"]).nodes.values() if n.kind == "folded"]
    assert group.label == "exp+tanh" and group.lines == ("exp, tanh",)
    assert group.tags == ("folded", "group", "hue-0", "tier-native-kernel")
    assert layers().folded_to(3).nodes.keys() == folded.nodes.keys()


def test_content_of_boxes_can_be_hidden_and_found() -> None:
    root = ET.fromstring(svg_of(layers()))
    (box,) = [g for g in root.iter(f"{SVG}g") if g.get("data-id") == "b0"]
    (content,) = [g for g in box if g.get("class") == "content"]
    inner = {g.get("data-id") for g in content.iter(f"{SVG}g")}
    assert {"b1", "n2", "n3", "n4"} <= inner and box.get("data-operators") == "3"
    (node,) = [g for g in root.iter(f"{SVG}g") if g.get("data-id") == "n3"]
    assert node.get("data-text") == "add aten::add.tensor block code/m.py:2:2"
    assert [p.get("data-value") for p in content.iter(f"{SVG}path") if "edge" in p.get("class", "")]


def test_a_page_needs_one_style_sheet() -> None:
    picture = layers()
    assert "<style>" in svg_of(picture) and "<style>" not in svg_of(picture, style=False)
    assert "url(" not in svg_of(picture) and "href" not in svg_of(picture)


def test_programs_without_variables_find_plain_colours() -> None:
    for rule in style_sheet(memory=True).splitlines():
        names, _, body = rule.partition("{")
        declared = [d.partition(":")[0::2] for d in body.rstrip("}").split(";")]
        for i, (name, value) in enumerate(declared):
            if value.startswith("var("):
                assert declared[i - 1][0] == name and "var(" not in declared[i - 1][1], names
