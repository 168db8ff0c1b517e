"""What a pass is: a named function that edits a graph in place and says whether it did.

``graph_pass`` names one; ``PASSES`` holds all that were named so far. ``gpujit.passes.rewrite`` makes passes of text
rules.
Running a pass obeys the switches: ``pass_limit`` (fuel), ``verify``, ``print_after``, ``dump_dir``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from gpujit.ir.graph import Graph, Node
from gpujit.ir.printer import print_graph
from gpujit.ir.verify import verify
from gpujit.support.config import config
from gpujit.support.errors import InternalError, VerifyError

log = logging.getLogger("gpujit.passes")

PASSES: dict[str, Pass] = {}

_spent: ContextVar[int] = ContextVar("gpujit_pass_fuel_spent", default=0)
_dumps = count()


@dataclass(frozen=True, slots=True)
class Pass:
    """A graph-to-graph function with a name; calling it returns whether it changed the graph."""

    name: str
    run: Callable[[Graph], bool]

    def __call__(self, graph: Graph) -> bool:
        """Run the pass. Raises InternalError when what it leaves breaks an invariant (with ``verify`` on) or when it
        fails; the text holds the pass, the fault and both graphs."""
        if not may_change():
            return False
        checks = config.verify
        before = graph.copy() if checks else None
        try:
            changed = self.run(graph)
            if checks:
                verify(graph)
        except VerifyError as error:
            raise _broken(self.name, before, graph, error) from error
        if changed:
            spend()
            log.debug("%s changed %s", self.name, graph.name)
            if self.name in config.print_after or "all" in config.print_after:
                print(f"after {self.name}:\n{print_graph(graph)}", file=sys.stderr)
            dump(graph, self.name)
        return changed


def graph_pass(name: str) -> Callable[[Callable[[Graph], bool]], Pass]:
    """Name a function as a pass. Raises InternalError when the name is taken."""

    def make(run: Callable[[Graph], bool]) -> Pass:
        if name in PASSES:
            raise InternalError(f"pass {name} is declared twice")
        made = PASSES[name] = Pass(name, run)
        return made

    return make


def may_change(uncounted: int = 0) -> bool:
    """Whether fuel (``pass_limit``) is left for one more change, besides those made but not yet counted."""
    limit = config.pass_limit
    return limit is None or _spent.get() + uncounted < limit


def spend() -> None:
    """Count one change against the fuel. A pass of many independent edits calls it (after asking ``may_change``) for
    each but the last, so that a search by halves ends at one edit."""
    _spent.set(_spent.get() + 1)


def changes_made() -> int:
    """Changes counted so far in this context; ``pass_limit`` is compared with it."""
    return _spent.get()


class Edits:
    """Counts the independent edits of one run of a pass against the fuel; the last one is left to the pass itself."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = 0

    def may_edit(self) -> bool:
        """Whether fuel is left for one more edit."""
        limit = config.pass_limit
        return limit is None or _spent.get() + self._pending < limit

    def count(self) -> None:
        """Say that an edit was made."""
        if self._pending:
            spend()
        self._pending = 1


def declined(pass_name: str, node: Node, reason: str) -> None:
    """Log why a pass left a node as it is."""
    log.debug("%s: %s left as it is: %s", pass_name, node, reason)


def dump(graph: Graph, stage: str) -> None:
    """Write the graph as a numbered file into ``dump_dir``, when that is set."""
    folder = config.dump_dir
    if folder:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{next(_dumps):04d}-{stage}.ir").write_text(print_graph(graph), encoding="utf-8")


def _broken(name: str, before: Graph | None, graph: Graph, error: VerifyError) -> InternalError:
    if before is not None:
        dump(before, f"{name}-before")
    kept = ""
    try:
        dump(graph, f"{name}-broken")
        kept = print_graph(graph)
    except Exception as fault:  # a graph with broken links may not print
        kept = f"(does not print: {fault})"
    shown = print_graph(before) if before is not None else "(not kept)"
    return InternalError(
        f"pass {name} left a broken graph: {error.message}",
        where=f"{error.where}\nbefore {name}:\n{shown}\nafter {name}:\n{kept}",
    )
