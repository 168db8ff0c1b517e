"""What executors did, as numbers. Apart from them, since they take long to import."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class PlanStats:
    """Plans of a method, or of all methods of a module.

    Args:
        hits: calls that found a plan.
        made: plans made.
        dropped: plans dropped, as others were used more recently.
        interpreted: calls that ran on the interpreter.
        kept: plans there are.
        pending: plans being made in the background.
        memory: bytes of the arenas that plans keep between calls.
        captures: CUDA graphs recorded of runs of steps on a GPU.
        replays: runs of steps that were such a graph.
        fallbacks: runs of steps on a GPU for which there was none; ``explain`` says why.
        padded: calls whose inputs were padded to a bucket.
        rows: how many rows that added in all.
        fitting: calls whose inputs had the sizes of a bucket, or no rows.
        alone: calls with a size above all buckets, or one that cannot be padded.
        quickened: kept plans whose first kernels were exchanged for quicker ones, compiled in the background.
    """

    hits: int = 0
    made: int = 0
    dropped: int = 0
    interpreted: int = 0
    kept: int = 0
    pending: int = 0
    memory: int = 0
    captures: int = 0
    replays: int = 0
    fallbacks: int = 0
    padded: int = 0
    rows: int = 0
    fitting: int = 0
    alone: int = 0
    quickened: int = 0

    def __add__(self, other: PlanStats) -> PlanStats:
        """Both together."""
        return PlanStats(*[getattr(self, f.name) + getattr(other, f.name) for f in fields(self)])

    def __str__(self) -> str:
        buckets = (
            f"; {self.padded} calls were padded to a bucket by {self.rows} rows, {self.fitting} fitted one, "
            f"{self.alone} had sizes with plans of their own"
        )
        quickened = f"{self.quickened} of them with quicker kernels than at first; " if self.quickened else ""
        return (
            f"{self.kept} plans ({self.made} made, {self.dropped} dropped, {self.pending} being made); {quickened}"
            f"{self.hits} calls found one, {self.interpreted} were interpreted; {self.memory:,} bytes of arenas"
            f"{buckets if self.padded + self.fitting + self.alone else ''}"
        )
