"""``gpujit.plot``: stages, memory plans, files, notebooks, matplotlib."""

from __future__ import annotations

import html.parser
import json
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import gpujit
from gpujit import nn, plot
from gpujit.ir.graph import Graph
from gpujit.pictures.notebook import graph_html, module_html
from gpujit.support.errors import ArgumentError, SaveError
from tests.pictures.graphs import HOSTILE, many, parsed
from tests.programs import archive, module
from tests.serialization.test_debug import row, table

EXAMPLE = Path(__file__).parents[1] / "examples" / "classifier.pt"
IMAGES = (2, 3, 16, 16)
ADDITIONS = "".join(f"  %{b} : Tensor = aten::neg(%{a})\n" for a, b in pairwise("abcde"))


@pytest.fixture(scope="module")
def classifier() -> gpujit.ScriptModule:
    return gpujit.load(EXAMPLE).eval()


def kinds(found: plot.GraphPlot) -> set[str]:
    return {b.kind for b in found.picture.boxes.values()}


def operators(found: plot.GraphPlot) -> list[str]:
    return [n.kind for n in found.picture.nodes.values() if "op" in n.tags]


def test_each_stage_of_a_module(classifier: gpujit.ScriptModule) -> None:
    found = {
        stage: plot.graph(classifier, *([IMAGES] if stage in ("fused", "plan") else []), stage=stage)
        for stage in plot.STAGES
    }
    assert "prim::CallMethod" in operators(found["source"])
    assert "prim::CallMethod" not in operators(found["inlined"]) and "module" in kinds(found["inlined"])
    assert "aten::batch_norm" not in operators(found["frozen"]) and "aten::conv2d" in operators(found["frozen"])
    groups = [b for b in found["fused"].picture.boxes.values() if b.kind == "group"]
    assert groups and all("memory traffic saved" in b.facts for b in groups)
    tags = {t for n in found["plan"].picture.nodes.values() for t in n.tags if t.startswith("tier-")}
    assert "tier-native-template" in tags and "tier-numpy" in tags
    facts = [n.facts for n in found["plan"].picture.nodes.values()]
    assert any("arena" in f for f in facts) and any("why" in f for f in facts)
    # Shapes are known for the inputs alone.
    assert any(e.label == "float32[2, 16, 8, 8]" for e in found["fused"].picture.edges)
    assert "native template" in found["plan"].text and found["frozen"].text.startswith("graph(")
    for each in found.values():
        assert ET.fromstring(each.svg) is not None and str(each.stage.name) in repr(each)


def test_the_stage_that_fits_what_is_given(classifier: gpujit.ScriptModule) -> None:
    assert plot.graph(classifier).stage.name == "frozen"
    assert plot.graph(classifier, IMAGES).stage.name == "fused" == plot.fusion(classifier, IMAGES).stage.name
    assert plot.graph(classifier.graph).stage.name == "source"


def test_the_module_stays_as_it_is(classifier: gpujit.ScriptModule) -> None:
    classifier.train()
    try:
        plot.graph(classifier, stage="frozen")
        plot.fusion(classifier, np.zeros(IMAGES, np.float32))
        assert classifier.training and classifier.seen == 0
    finally:
        classifier.eval()
    frozen = gpujit.freeze(classifier)
    plot.fusion(frozen, IMAGES)
    assert frozen.plan_stats().made == 0


def test_an_optimised_module_shows_its_last_plan() -> None:
    fast = gpujit.optimize_for_inference(gpujit.load(EXAMPLE).eval(), threads=1)
    with pytest.raises(ArgumentError, match="was not called yet"):
        plot.fusion(fast)
    fast(np.zeros(IMAGES, np.float32))
    assert any(e.label.startswith("float32[2, 3") for e in plot.fusion(fast).picture.edges)
    assert fast.plan_stats().made == 1
    assert any(e.label.startswith("float32[5, 3") for e in plot.graph(fast, (5, 3, 16, 16)).picture.edges)
    assert plot.memory_plan(fast).plan.arena > 0


def test_graphs_functions_and_static_modules() -> None:
    graph = parsed("graph(%x : Tensor):\n  %y : Tensor = aten::exp(%x)\n  %z : Tensor = aten::tanh(%y)\n  return (%z)")
    x = np.ones(1000, np.float32)
    assert operators(plot.graph(graph)) == ["aten::exp", "aten::tanh"]
    assert "group" in kinds(plot.fusion(graph, x))
    static = gpujit.StaticModule(graph, gpujit.StaticModuleOptions(threads=1))
    assert operators(plot.graph(static, stage="frozen")) == ["aten::exp", "aten::tanh"]
    with pytest.raises(ArgumentError, match="was not called yet"):
        plot.memory_plan(static)
    static(x)
    assert plot.memory_plan(static).plan == static.memory_report()
    assert plot.memory_plan(static.memory_report()).svg.startswith("<svg")

    of_module = gpujit.StaticModule(gpujit.load(EXAMPLE), gpujit.StaticModuleOptions(threads=1))
    assert any(e.label == "float32[2, 3, 16, 16]" for e in plot.fusion(of_module, IMAGES).picture.edges)
    traced = gpujit.trace(lambda x: np.exp(x) + 1.0, (x,))
    assert operators(plot.graph(traced)) == ["aten::exp", "aten::add"]

    def double(x: gpujit.Tensor) -> gpujit.Tensor:
        return (x * 2.0).relu()

    function = gpujit.script(double)
    assert operators(plot.graph(function)) == ["aten::mul", "aten::relu"]
    assert "group" in kinds(plot.fusion(function, x))


def test_places_in_the_archive_and_in_the_authors_file() -> None:
    source = module("def forward(self, x: Tensor) -> Tensor:\n  return torch.exp(x)\n")
    debug = {"__torch__.py": table((row(0, "y = exp(x)\n", "model.py", 7, 0, 10),))}
    (node,) = [
        n for n in plot.graph(gpujit.load(archive(source, debug=debug))).picture.nodes.values() if "op" in n.tags
    ]
    assert node.facts["source"].startswith("code/__torch__.py:") and node.facts["line"] == "return torch.exp(x)"
    assert node.facts["original"].startswith("model.py:7") and node.facts["original line"] == "y = exp(x)"


def test_other_methods() -> None:
    class Two(nn.Module):
        def forward(self, x: gpujit.Tensor) -> gpujit.Tensor:
            return x + 1.0

        @gpujit.export
        def other(self, x: gpujit.Tensor) -> gpujit.Tensor:
            return x.exp()

    two = gpujit.script(Two().eval())
    for stage in plot.STAGES:
        given = [(3,)] if stage in ("fused", "plan") else []
        assert operators(plot.graph(two, *given, stage=stage, method="other")) == ["aten::exp"]
    assert operators(plot.graph(gpujit.freeze(two, ["other"]), (3,), method="other")) == ["aten::exp"]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {"stage": "final"}, "no stage 'final'; stages are source, inlined"),
        ((), {"method": "backward"}, "no method 'backward'; it has forward"),
        ((), {"stage": "plan"}, "made for inputs"),
        ((IMAGES, 1, 2), {}, "3 values for 2 arguments"),
        (("text",), {}, "images"),
        ((), {"fold": 0}, "fold is a number of nodes"),
    ],
)
def test_what_cannot_be_shown(
    classifier: gpujit.ScriptModule, arguments: tuple[object, ...], options: dict[str, object], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        plot.graph(classifier, *arguments, **options)  # type: ignore[arg-type]


def test_what_is_no_model() -> None:
    with pytest.raises(ArgumentError, match="expected a ScriptModule"):
        plot.graph("model.pt")


def test_inputs_that_have_no_plan_say_why(monkeypatch: pytest.MonkeyPatch, classifier: gpujit.ScriptModule) -> None:
    monkeypatch.setattr("gpujit.passes.inline.MAX_NODES", 3)
    static = gpujit.StaticModule(parsed(f"graph(%a : Tensor):\n{ADDITIONS}  return (%e)"))
    with pytest.raises(ArgumentError, match=r"has no plan for these inputs: inlining .* gives more than 3 nodes"):
        plot.graph(static, np.ones(3, np.float32), stage="plan")


# ----------------------------------------------------------------------------------------------------------- files


def test_saved_in_each_form(classifier: gpujit.ScriptModule, tmp_path: Path) -> None:
    found = plot.graph(classifier)
    for name in ("a.svg", "a.dot", "a.gv", "a.json", "a.txt"):
        found.save(tmp_path / name)
    assert (tmp_path / "a.svg").read_text() == found.svg and (tmp_path / "a.dot").read_text() == found.dot
    data = json.loads((tmp_path / "a.json").read_text())
    assert data == found.data and data["stage"] == "frozen" and all("place" in n for n in data["nodes"])
    assert (tmp_path / "a.txt").read_text() == found.text
    plan = plot.memory_plan(classifier, IMAGES)
    plan.save(tmp_path / "m.SVG")
    assert (tmp_path / "m.SVG").read_text() == plan.svg
    with pytest.raises(ArgumentError, match=r"names of pictures end in \.svg"):
        plan.save(tmp_path / "m.png")
    with pytest.raises(SaveError, match="cannot be written"):
        found.save(tmp_path / "missing" / "a.svg")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.dot", "a.gv", "a.json", "a.svg", "a.txt", "m.SVG"]


def test_views_and_folding(classifier: gpujit.ScriptModule) -> None:
    found = plot.graph(classifier, fold=20)
    assert len(found.picture.nodes) <= 20 and any(n.kind == "folded" for n in found.picture.nodes.values())
    assert list(plot.graph(classifier).views) == ["root"]


# ------------------------------------------------------------------------------------------------------- notebooks


class Checker(html.parser.HTMLParser):
    """Finds elements that are not closed, and those that run something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "iframe", "img", "link") and not any(n.startswith("on") for n, _ in attrs)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(text: str) -> str:
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    return text


def test_what_a_notebook_shows(classifier: gpujit.ScriptModule) -> None:
    shown = checked(classifier._repr_html_())
    assert "Classifier" in shown and "<code>blocks</code>" in shown and "parameters" in shown and len(shown) < 10_000
    graph = checked(classifier.graph._repr_html_())
    assert "<svg" in graph and "graph(" in graph and graph.startswith("<details>")
    checked(plot.graph(classifier)._repr_html_())
    assert plot.memory_plan(classifier, IMAGES)._repr_svg_().startswith("<svg")


def test_big_graphs_are_folded_in_a_notebook() -> None:
    graph = many(1000)
    shown = checked(graph_html(graph))
    assert "folded to" in shown and "characters more" in shown and len(shown) < 200_000
    found = plot.graph(graph)
    assert "folded to" in checked(found._repr_html_()) and len(found._repr_svg_()) < len(found.svg)


def test_hostile_names_in_a_notebook() -> None:
    graph = Graph(HOSTILE)
    graph.add_output(graph.add_input(name=HOSTILE))
    checked(graph_html(graph))
    root = gpujit.script(nn.Sequential(nn.ReLU()))._object
    root.type.name = HOSTILE
    shown = checked(module_html(root))
    assert "&lt;script&gt;" in shown and len(shown) < 5_000


def test_a_notebook_shows_some_of_many_modules() -> None:
    root = gpujit.script(nn.Sequential(*[nn.ReLU() for _ in range(400)]))._object
    shown = checked(module_html(root))
    assert len(re.findall("ReLU", shown)) == 300 and "..." in shown


# ------------------------------------------------------------------------------------------------------ matplotlib


def test_figures_of_matplotlib(classifier: gpujit.ScriptModule, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = plot.graph(classifier, as_matplotlib=True)
    texts = [t.get_text() for t in figure.axes[0].texts]
    assert "conv2d" in texts and "images" in texts
    found = plot.memory_plan(classifier, IMAGES)
    figure = found.matplotlib()
    assert len(figure.axes[0].patches) == len(found.plan.values)
    figure.savefig(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 1000


def test_dollars_are_no_formulas() -> None:
    pytest.importorskip("matplotlib")
    graph = Graph("$x^{$")
    graph.add_output(graph.add_input(name="$\\frac{a}{"))
    plot.graph(graph).matplotlib().canvas.draw()


def test_without_matplotlib_there_is_an_error(classifier: gpujit.ScriptModule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ArgumentError, match=r"gpujit\[plot\]"):
        plot.graph(classifier, as_matplotlib=True)
