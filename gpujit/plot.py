"""Pictures of models: graphs at each stage, fusion, and memory plans.

What the functions return shows itself in a notebook, saves itself as SVG, DOT, JSON or text, and becomes a figure of
matplotlib where that is installed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cached_property
from typing import Any

from gpujit.ir.graph import Graph
from gpujit.pictures.data import MOST_SHOWN, data_of, views_of, with_parts
from gpujit.pictures.dot import dot_of
from gpujit.pictures.layout import lay_out
from gpujit.pictures.memory import MemoryPlan, memory_svg
from gpujit.pictures.model import Picture
from gpujit.pictures.notebook import framed, noted
from gpujit.pictures.svg import svg_of
from gpujit.scripting import ScriptFunction
from gpujit.serialization.target import write_to
from gpujit.stages import STAGES, Stage, stage_of
from gpujit.static_runtime.module import PlannedGraph
from gpujit.static_runtime.report import MemoryReport
from gpujit.support.errors import ArgumentError

__all__ = ["STAGES", "GraphPlot", "MemoryPlot", "fusion", "graph", "memory_plan"]


def graph(
    target: Any,
    *inputs: Any,
    stage: str | None = None,
    method: str = "forward",
    fold: int | None = None,
    as_matplotlib: bool = False,
) -> Any:
    """A picture of a model's graph: a GraphPlot, or a figure with ``as_matplotlib``.

    Args:
        target: a ScriptModule, StaticModule, ScriptFunction or Graph.
        inputs: of the stages "fused" and "plan", something for each argument: for a tensor an array, a shape, or a pair
            of shape and dtype. Without them the plan that was used last is shown.
        stage: "source" has calls as calls, "inlined" the bodies in their place, "frozen" weights as constants, "fused"
            what is made for the inputs, with fusion groups, and "plan" also what runs each node. Without one: "fused"
            when there are inputs, else "frozen" for modules and "source" for graphs and functions.
        method: of a module.
        fold: fold boxes, the innermost first, until at most so many nodes are left.
    Raises ArgumentError for what these cannot be, and what freezing raises; without matplotlib when a figure is asked
    for.
    """
    if stage is None:
        stage = "fused" if inputs else "source" if isinstance(target, (Graph, ScriptFunction)) else "frozen"
    if fold is not None and (type(fold) is not int or fold < 1):
        raise ArgumentError(f"fold is a number of nodes, at least 1; found {fold!r}")
    found = GraphPlot(stage_of(target, stage, inputs, method), fold)
    return found.matplotlib() if as_matplotlib else found


def fusion(target: Any, *inputs: Any, method: str = "forward", as_matplotlib: bool = False) -> Any:
    """``graph`` at the stage "fused": operators that are computed together lie in coloured boxes."""
    return graph(target, *inputs, stage="fused", method=method, as_matplotlib=as_matplotlib)


def memory_plan(target: Any, *inputs: Any, method: str = "forward", as_matplotlib: bool = False) -> Any:
    """A picture of where values lie in memory, step by step: a MemoryPlot, or a figure with ``as_matplotlib``.

    Args:
        target: a ScriptModule, StaticModule or Graph, or what ``StaticModule.memory_report`` gives.
        inputs: as for ``graph``.
    Raises ArgumentError where there is no plan.
    """
    if isinstance(target, MemoryReport):
        found = MemoryPlot(target, "memory plan")
    else:
        stage = stage_of(target, "plan", inputs, method)
        assert stage.plan is not None and isinstance(stage.plan.runner, PlannedGraph)
        found = MemoryPlot(stage.plan.runner.report(), f"memory plan of {stage.title}")
    return found.matplotlib() if as_matplotlib else found


class _Plot:
    """What all plots can do."""

    @property
    def svg(self) -> str:
        """One SVG element, which needs nothing from outside."""
        raise NotImplementedError

    def _forms(self) -> dict[str, Callable[[], str]]:
        return {".svg": lambda: self.svg}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file in the form that its name's end asks for.

        It is written beside its place and renamed: whatever goes wrong, what was there stays.
        Raises ArgumentError for other ends, SaveError when writing fails.
        """
        form = os.path.splitext(os.fspath(path))[1].lower()
        forms = self._forms()
        if form not in forms:
            raise ArgumentError(f"{os.fspath(path)!r}: names of pictures end in {', '.join(forms)}")
        text = forms[form]()
        write_to(path, lambda sink: sink.write(text.encode()))

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return framed(self._repr_svg_())


class GraphPlot(_Plot):
    """A graph at one stage, as picture and text."""

    def __init__(self, stage: Stage, fold: int | None = None) -> None:
        self.stage = stage
        self._fold = fold

    def __repr__(self) -> str:
        return f"<GraphPlot of {self.stage.title}, {self.stage.name}: {len(self.picture.nodes)} nodes>"

    @cached_property
    def picture(self) -> Picture:
        """Nodes, boxes and edges as data; folded when that was asked for."""
        found = self.stage.picture()
        return found if self._fold is None else with_parts(found).folded_to(self._fold)

    @property
    def svg(self) -> str:
        return svg_of(self.picture)

    @property
    def dot(self) -> str:
        """Text for Graphviz."""
        return dot_of(self.picture)

    @property
    def text(self) -> str:
        """The graph's text; of a plan what runs each node."""
        return self.stage.text()

    @property
    def data(self) -> dict[str, Any]:
        """Nodes, boxes and edges with their places, ready for JSON."""
        return {"stage": self.stage.name, **data_of(self.picture, lay_out(self.picture))}

    @property
    def views(self) -> dict[str, str]:
        """The picture in pieces of a few hundred nodes: SVG elements without style, the whole one's under "root"."""
        return views_of(self.picture)

    def _forms(self) -> dict[str, Callable[[], str]]:
        return {
            ".svg": lambda: self.svg,
            ".dot": lambda: self.dot,
            ".gv": lambda: self.dot,
            ".json": lambda: json.dumps(self.data),
            ".txt": lambda: self.text,
        }

    def matplotlib(self) -> Any:
        """A ``matplotlib.figure.Figure``. Raises ArgumentError without matplotlib."""
        from gpujit.pictures.mpl import picture_figure

        return picture_figure(self.picture)

    def _shown(self) -> Picture:
        """What a notebook shows at once."""
        return with_parts(self.picture).folded_to(MOST_SHOWN) if len(self.picture.nodes) > MOST_SHOWN else self.picture

    def _repr_svg_(self) -> str:
        return svg_of(self._shown())

    def _repr_html_(self) -> str:
        shown = self._shown()
        note = ""
        if shown is not self.picture:
            note = f"folded to {len(shown.nodes):,} of {len(self.picture.nodes):,} nodes; save(path) writes them all"
        return framed(svg_of(shown), noted(note))


class MemoryPlot(_Plot):
    """A memory plan as picture."""

    def __init__(self, plan: MemoryPlan, title: str) -> None:
        self.plan, self.title = plan, title

    def __repr__(self) -> str:
        return f"<MemoryPlot of {len(self.plan.values)} values in {self.plan.arena} bytes>"

    @property
    def svg(self) -> str:
        return memory_svg(self.plan, self.title)

    def matplotlib(self) -> Any:
        """A ``matplotlib.figure.Figure``. Raises ArgumentError without matplotlib."""
        from gpujit.pictures.mpl import memory_figure

        return memory_figure(self.plan, self.title)
