"""The planner of an executor: makes what runs a specialised graph on planned memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from gpujit.fuser.lower import Lowered
from gpujit.ir.graph import Graph, Node
from gpujit.runtime.executor import Planner
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.module import PlannedGraph, at_once, not_at_all
from gpujit.static_runtime.steps import Options
from gpujit.support import background

_REPLAN = {"ahead": at_once, "background": background.submit, "never": not_at_all}


def planner_of(compile: str, options: Options = Options()) -> Planner:  # noqa: B008  # it is frozen
    """What plans graphs with these options; ``compile`` is the executor's."""
    return partial(_planned, compile, options)


def _planned(
    compile: str, options: Options, graph: Graph, programs: Mapping[Node, Lowered], lowerer: Lowerer
) -> PlannedGraph:
    return PlannedGraph(graph, programs, lowerer, options, replan=_REPLAN[compile])
