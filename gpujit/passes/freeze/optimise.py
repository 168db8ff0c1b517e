"""What is done with graphs whose weights are constants: the pipeline of freezing, folds into weights, the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpujit.ir.graph import Graph
from gpujit.passes.arithmetic import arithmetic, simplify_with_constants
from gpujit.passes.base import Pass
from gpujit.passes.containers import lower_containers
from gpujit.passes.control.exits import simplify_exits
from gpujit.passes.control.loops import unroll_constant_loops
from gpujit.passes.control.rank_checks import use_rank_checks
from gpujit.passes.cse import eliminate_common_subexpressions, pool_constants
from gpujit.passes.dce import eliminate_dead_code
from gpujit.passes.fold import fold
from gpujit.passes.freeze.batch_matmul import group_products
from gpujit.passes.freeze.constant_views import fold_constant_views
from gpujit.passes.freeze.fold_norm import NormFolder
from gpujit.passes.freeze.pool_equal import pool_equal
from gpujit.passes.idle import remove_idle
from gpujit.passes.peephole.main import peephole
from gpujit.passes.peephole.queries import answer_queries
from gpujit.passes.texts import join_texts
from gpujit.passes.tuples import lower_tuples
from gpujit.passes.unread import simplify_unread
from gpujit.support.progress import Stage

# Rounds after which cleaning stops; each finds what the one before uncovered.
MAX_ROUNDS = 20

CLEAN: tuple[Pass, ...] = (
    fold,
    eliminate_dead_code,
    eliminate_common_subexpressions,
    pool_constants,
    pool_equal,
    fold_constant_views,
    peephole,
    arithmetic,
    simplify_with_constants,
    simplify_unread,
    use_rank_checks,
    remove_idle,
    join_texts,
    answer_queries,
    unroll_constant_loops,
    lower_containers,
    lower_tuples,
    simplify_exits,
)


def clean(graph: Graph) -> bool:
    """Run the pipeline of freezing until nothing changes; whether anything did."""
    return until_unchanged(graph, CLEAN)


def until_unchanged(graph: Graph, passes: Sequence[Callable[[Graph], bool]]) -> bool:
    """Run passes in turn until each has found nothing since the last change; whether anything changed."""
    changed, quiet, step = False, 0, 0
    while quiet < len(passes) and step < MAX_ROUNDS * len(passes):
        if passes[step % len(passes)](graph):
            changed, quiet = True, 0
        quiet += 1
        step += 1
    return changed


@dataclass(eq=False)
class FrozenReport:
    """``folded``: how many nodes went into the weights before them. ``refused``: why others could not, a line each."""

    folded: int = 0
    refused: list[str] = field(default_factory=list)


def optimize_frozen(graphs: Sequence[Graph], *, numerics: bool) -> FrozenReport:
    """Optimise graphs with constant weights; with ``numerics`` results may differ by rounding.

    Equal folds in several graphs share their new weights.
    """
    folder = NormFolder(share=len(graphs) > 1)
    report = FrozenReport()
    steps: list[Callable[[Graph], bool]] = [clean, group_products]
    if numerics:
        steps.append(folder.run)
    with Stage("optimise", len(graphs)) as stage:
        for graph in graphs:
            stage.note = graph.name
            until_unchanged(graph, steps)
            report.refused += folder.refusals
            folder.refusals = []
            stage.advance()
    report.folded = folder.folded
    return report
