"""Named tuples of passes, and what runs them until nothing changes."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from gpujit.ir.graph import Graph
from gpujit.passes.arithmetic import arithmetic, simplify_with_constants
from gpujit.passes.base import Pass, may_change
from gpujit.passes.containers import lower_containers
from gpujit.passes.control.exits import simplify_exits
from gpujit.passes.control.if_conversion import convert_ifs
from gpujit.passes.control.licm import hoist_loop_invariants
from gpujit.passes.control.loops import unroll_constant_loops
from gpujit.passes.control.rank_checks import use_rank_checks
from gpujit.passes.cse import eliminate_common_subexpressions, pool_constants
from gpujit.passes.dce import eliminate_dead_code
from gpujit.passes.decompose.attention import fuse_attention
from gpujit.passes.decompose.einsum import write_out_attention_products
from gpujit.passes.decompose.for_device import write_out_for_device
from gpujit.passes.decompose.main import decompose_moves
from gpujit.passes.decompose.products import fuse_addmm
from gpujit.passes.fold import fold
from gpujit.passes.freeze import optimise as frozen
from gpujit.passes.freeze.batch_matmul import group_products
from gpujit.passes.freeze.pool_equal import pool_equal
from gpujit.passes.infer.main import infer_types_pass
from gpujit.passes.inline import inline
from gpujit.passes.peephole.device import on_cpu
from gpujit.passes.peephole.fills import fill_by_dtype
from gpujit.passes.peephole.main import peephole
from gpujit.passes.peephole.parts import name_parts
from gpujit.passes.peephole.permutes import join_permutes
from gpujit.passes.peephole.queries import answer_queries
from gpujit.passes.scalars import numbers_instead_of_tensors
from gpujit.passes.tuples import lower_tuples
from gpujit.passes.unmutate.main import remove_tensor_mutation
from gpujit.support.errors import ArgumentError, InternalError

log = logging.getLogger("gpujit.passes")

# Rounds after which passes that go on changing the graph are taken to undo each other.
MAX_ROUNDS = 200

# Fewer nodes for the same program: nothing is computed twice, in vain, or again in every run of a loop.
CLEANUP: tuple[Pass, ...] = (
    pool_constants,
    eliminate_common_subexpressions,
    hoist_loop_invariants,
    eliminate_dead_code,
)

# Local rules that types make safe: every result stays what it was to the last bit.
SIMPLIFY: tuple[Pass, ...] = (
    infer_types_pass,
    fold,
    numbers_instead_of_tensors,
    answer_queries,
    peephole,
    join_permutes,
    arithmetic,
    simplify_with_constants,
    eliminate_dead_code,
)

# No calls, tuples, lists, dicts and in-place writes where nobody can tell; known loops are unrolled.
FUNCTIONAL: tuple[Pass, ...] = (
    inline,
    fold,
    simplify_exits,
    unroll_constant_loops,
    lower_tuples,
    lower_containers,
    remove_tensor_mutation,
    eliminate_dead_code,
)

# What freezing does to graphs whose weights are constants, besides folds into the weights.
FREEZE = frozen.CLEAN

# All that makes a graph of any origin cheaper to run on the CPU; results may differ by rounding.
OPTIMIZE: tuple[Pass, ...] = (
    *FUNCTIONAL[:-1],
    use_rank_checks,
    on_cpu,
    *SIMPLIFY[:-1],
    write_out_attention_products,
    fuse_attention,
    group_products,
    fuse_addmm,
    *CLEANUP,
)

# For graphs that ``specialise`` made, before the fuser: quick, as each new shape of the inputs pays for it. Sums stay
# beside products, where the fuser joins them with what follows. Results may differ by rounding.
SPECIALISED: tuple[Pass, ...] = (
    pool_constants,
    pool_equal,
    fold,
    lower_tuples,
    lower_containers,
    remove_tensor_mutation,
    infer_types_pass,
    on_cpu,
    fill_by_dtype,
    numbers_instead_of_tensors,
    answer_queries,
    peephole,
    join_permutes,
    arithmetic,
    simplify_with_constants,
    write_out_attention_products,
    fuse_attention,
    group_products,
    decompose_moves,
    name_parts,
    convert_ifs,
    eliminate_common_subexpressions,
    hoist_loop_invariants,
    eliminate_dead_code,
)

# The same for a GPU: what it has no kernel for is written out in what it has some for.
ON_DEVICE: tuple[Pass, ...] = tuple(
    each for p in SPECIALISED for each in ((write_out_for_device, p) if p is name_parts else (p,))
)

PIPELINES: dict[str, tuple[Pass, ...]] = {
    "cleanup": CLEANUP,
    "simplify": SIMPLIFY,
    "functional": FUNCTIONAL,
    "freeze": FREEZE,
    "optimize": OPTIMIZE,
    "specialised": SPECIALISED,
    "on_device": ON_DEVICE,
}
# Those whose results are the same to the last bit.
EXACT = ("cleanup", "simplify", "functional", "freeze")


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
    # Passes in a row that found nothing; after all of them in a row the graph is finished, be it amid a round.
    quiet = 0
    for number in range(MAX_ROUNDS if rounds is None else rounds):
        changes = []
        for each in passes:
            if each(graph):
                changes.append(each.name)
                quiet = 0
            else:
                quiet += 1
            if quiet >= len(passes) or not may_change():
                break
        log.debug("round %d over %s: %s", number + 1, graph.name, ", ".join(changes) or "no change")
        changed |= bool(changes)
        if quiet >= len(passes) or not may_change():
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
