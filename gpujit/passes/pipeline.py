"""Named tuples of passes, and what runs them until nothing changes."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from gpujit.ir.graph import Graph
from gpujit.passes.base import Pass, may_change
from gpujit.passes.cse import eliminate_common_subexpressions, pool_constants
from gpujit.passes.dce import eliminate_dead_code
from gpujit.passes.licm import hoist_loop_invariants
from gpujit.support.errors import ArgumentError, InternalError

log = logging.getLogger("gpujit.passes")

# Rounds after which passes that go on changing the graph are taken to undo each other.
MAX_ROUNDS = 200

CLEANUP: tuple[Pass, ...] = (
    pool_constants,
    eliminate_common_subexpressions,
    hoist_loop_invariants,
    eliminate_dead_code,
)

PIPELINES: dict[str, tuple[Pass, ...]] = {"cleanup": CLEANUP}


def run(graph: Graph, pipeline: str | Sequence[Pass], *, rounds: int | None = None) -> bool:
    """Run the passes of a pipeline in order, again and again until none changes the graph; whether any did.

    Each pass verifies, dumps and counts fuel as ``Pass`` does; without fuel the rest is left out.
    Args:
        pipeline: the passes, or the name of some in ``PIPELINES``.
        rounds: go through the passes so many times at most, and stop there.
    Raises ArgumentError when there is no pipeline of that name, InternalError when the passes never come to an end
    (only without ``rounds``).
    """
    passes = named(pipeline) if isinstance(pipeline, str) else tuple(pipeline)
    changed = False
    for number in range(MAX_ROUNDS if rounds is None else rounds):
        changes = [each.name for each in passes if each(graph)]
        log.debug("round %d over %s: %s", number + 1, graph.name, ", ".join(changes) or "no change")
        changed |= bool(changes)
        if not changes or not may_change():
            return changed
    if rounds is None:
        raise InternalError(f"after {MAX_ROUNDS} rounds these passes still change the graph: {', '.join(changes)}")
    return changed


def named(name: str) -> tuple[Pass, ...]:
    """The passes of a pipeline. Raises ArgumentError when there is none of that name."""
    found = PIPELINES.get(name)
    if found is None:
        raise ArgumentError(f"there is no pipeline {name!r}; there are {', '.join(sorted(PIPELINES))}")
    return found
