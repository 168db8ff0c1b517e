"""The planner of an executor: makes what runs a specialised graph on planned memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from gpujit.fuser.lower import Lowered
from gpujit.ir.graph import Graph, Node
from gpujit.kernels.templates.choice import Thrifty, quickest
from gpujit.runtime.executor import Planner
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.makers import native_step
from gpujit.static_runtime.module import PlannedGraph, at_once, not_at_all
from gpujit.static_runtime.quicker import Quicker
from gpujit.static_runtime.steps import Options
from gpujit.support import background

_REPLAN = {"ahead": at_once, "background": background.submit, "never": not_at_all}


def planner_of(compile: str, options: Options = Options()) -> Planner:  # noqa: B008  # it is frozen
    """What plans graphs with these options; ``compile`` is the executor's."""
    return _Planner(compile, options).plan


class _Planner:
    """Plans the graphs of one function, for one kind of inputs after the other.

    The first plan has the quickest code for its shapes. Later ones are for shapes that come and go: they prefer code
    that need not be compiled. In the background the quickest is compiled for those that come back.
    """

    def __init__(self, compile: str, options: Options) -> None:
        self._compile, self._options = compile, options
        self._is_first = True

    def plan(self, graph: Graph, programs: Mapping[Node, Lowered], lowerer: Lowerer) -> PlannedGraph:
        """The graph, to be planned when it is first run."""
        best = partial(native_step, weights=self._options.weights, choose=quickest)
        maker, quicker = best, None
        if not self._is_first:
            thrifty = Thrifty()
            maker = partial(best, choose=thrifty)
            if self._compile == "background":
                quicker = Quicker(best, lambda: thrifty.has_settled, background.submit_idle)
        self._is_first = False
        return PlannedGraph(
            graph, programs, lowerer, self._options, maker, _REPLAN[self._compile], quicker=quicker
        )
