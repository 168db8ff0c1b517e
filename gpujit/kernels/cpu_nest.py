"""How a CPU kernel walks a tile program: which dim lies across vector lanes, what is unrolled, its argument block.

A ``Nest`` is all that the machine code depends on; sizes, strides and addresses come in the block. ``cpu_plan`` chooses
one for a call.

Tasks are the points of the outer dims (without the lanes' dim), times chunks of the lanes' dim when it is an outer one.
A kernel does tasks ``count * part / parts`` up to ``count * (part + 1) / parts``, chunk by chunk.

The block holds 8-byte words: addresses of inputs, of outputs, of scratch memory and of the checks' flags; the chunk;
bytes of scratch memory for each part; three counters of tasks, where a row has several; sizes; parameters; for each
access its first offset and its step along each dim; and the strides of all arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from gpujit.ir.dtypes import kind_of
from gpujit.ir.scalar import HEAVY_COST, SCALAR_OPS
from gpujit.kernels.cpu_ops import held
from gpujit.kernels.index import DIM, dim
from gpujit.kernels.schedule import (
    Pass,
    moves,
    passes,
)
from gpujit.kernels.tile import Call, Compute, Const, Instruction, Load, Reduce, Store, TileProgram, operands_of
from gpujit.kernels.vector import ELEMENTS

# Along the lanes an access is contiguous, the same element for all lanes, some steps apart, or anywhere.
ONE, SAME, STEPS, ANY = "1", "0", "s", "*"
# Added when offsets along other dims do not grow evenly, so that the index is evaluated each time.
EVALUATED = "~"
# Parts of a row that is cut, always the same ones, so that a result does not depend on the number of threads.
SEGMENTS = 16
# Places further on along rows whose numbers are asked for where lanes lie across rows.
AHEAD = 16
# Vectors of a block whose squares are turned, along the lanes and along the band.
ACROSS, ALONG = 4, 4
# Vector instructions from which on a value is kept for later runs over a row: less takes no longer than reading it.
WORTH_KEEPING = 8
# Elements of a block of a row whose maximum and sum of exponentials are taken together.
BLOCK = 4096
# Vectors computed side by side.
MAX_UNROLL = 4


class Geometry(NamedTuple):
    """What decides how a program runs: strides in elements, sizes and parameters."""

    program: TileProgram
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    params: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """What may be chosen freely: the lanes' dim, vectors side by side, elements of a chunk; None: by rule."""

    lane: int | None = None
    unroll: int | None = None
    chunk: int | None = None


BY_RULE = Tile()


@dataclass(frozen=True)
class Nest:
    """What the code of a kernel follows from."""

    program: TileProgram
    lane: int
    classes: tuple[str, ...]
    width: int
    unroll: int
    # A task dim along which loads are contiguous that are not along the lanes: squares of both dims are read along it
    # and turned in registers.
    turned: int | None = None
    # Results are written past the caches.
    streams: bool = False
    # A task is one of SEGMENTS parts of a row in one of the runs over it.
    segmented: bool = False
    # Rows are long: a maximum and the sum of exponentials below it are taken together, block by block.
    online: bool = False
    # Parts are given as the first task and the one behind the last, of which each is a row in memory; of rows whose
    # elements do not depend on each other, the block says which part is to be made: see ``cpu_plan.plan_rows``.
    ranged: bool = False
    # A row is ``unroll`` vectors, written out, which stay in registers from one run over it to the next. The last one
    # is full, or ("cut") some of its lanes are behind the row's end.
    whole: Literal["", "full", "cut"] = ""

    @property
    def key(self) -> str:
        """Text that differs when the machine code would."""
        turned = "" if self.turned is None else f" turned {self.turned}"
        streams = " streams" * self.streams + " segmented" * self.segmented + " online" * self.online
        streams += " ranged" * self.ranged + (f" whole {self.whole}" if self.whole else "")
        how = f"lane {self.lane} {' '.join(self.classes)} {self.width}x{self.unroll}{turned}{streams}"
        return f"{how}\n{self.program.text}"

    @property
    def across_rows(self) -> bool:
        """Whether each lane has a row of its own; else lanes lie within a row (or there are no rows)."""
        return bool(self.program.rows) and self.lane not in self.program.row_dims

    @property
    def is_chunked(self) -> bool:
        """Whether tasks are chunks of the lanes' dim as well."""
        return self.lane not in self.program.row_dims

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        return passes(self.program)

    @cached_property
    def task_dims(self) -> tuple[int, ...]:
        """Outer dims without the lanes' one."""
        return tuple(d for d in range(self.program.dims - self.program.rows) if d != self.lane)

    @cached_property
    def nest_dims(self) -> tuple[int, ...]:
        """Row dims without the lanes' one."""
        return tuple(d for d in self.program.row_dims if d != self.lane)

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Values at each point that later passes read from memory instead of computing them again.

        Of a long computation that is only its end: what leads to a value that is kept is not needed again, and what
        little is computed from one is cheap.
        """
        if self.whole:
            return ()
        found: set[int] = set()
        for item in self.passes:
            repeated = set(item.repeated)
            costs = self._costs(found)
            stack = self._roots(item)
            seen: set[int] = set()
            while stack:
                v = stack.pop()
                if v in seen or v in found:
                    continue
                seen.add(v)
                if v in repeated and self.lane in self.program.varies[v] and costs[v] >= WORTH_KEEPING:
                    found.add(v)
                elif not self._is_known(v):
                    stack.extend(operands_of(self.program.body[v]))
        return tuple(sorted(found))

    def needed(self, item: Pass) -> set[int]:
        """Values that a pass computes or reads, when those kept by earlier passes need not be computed."""
        loaded = {v for v in item.repeated if v in self.kept}
        stack = self._roots(item)
        found: set[int] = set()
        while stack:
            v = stack.pop()
            if v not in found:
                found.add(v)
                if v not in loaded and not self._is_known(v):
                    stack.extend(operands_of(self.program.body[v]))
        return found

    def is_heavy(self, item: Pass) -> bool:
        """Whether a pass computes functions of many instructions at each vector."""
        loaded = {v for v in item.repeated if v in self.kept}
        here = (self.program.body[v] for v in self.needed(item) & set(item.full) - loaded)
        return any(isinstance(i, Call) or _is_heavy(i) for i in here)

    def _roots(self, item: Pass) -> list[int]:
        """What a pass is there for: operands of its reductions and of what it stores."""
        roots = [self._reduction(v).operand for v in item.reduces]
        return roots + [v for effect in item.effects for v in operands_of(effect)]

    def _is_known(self, v: int) -> bool:
        """Whether a value is the result of a reduction, which no later pass computes again."""
        item = self.program.body[v]
        return isinstance(item, Reduce) and not item.is_scan

    def _reduction(self, v: int) -> Reduce:
        item = self.program.body[v]
        assert isinstance(item, Reduce)
        return item

    @cached_property
    def kept_in(self) -> dict[int, int]:
        """Kept values that lie where a result goes which is written last, with the access that writes it.

        Nothing may be read once the first of them is written, since a result may lie in an operand's memory.
        """
        runs, p = self.passes, self.program
        if len(self.kept) != 1 or len(runs) < 2:
            return {}
        (v,) = self.kept
        first = next(i for i, run in enumerate(runs) if v in run.full)
        reads = [u for u in runs[first].full if u > v and isinstance(p.body[u], Load)]
        for run in runs[first + 1 :]:
            reads += [u for u in {*self.needed(run), *run.row} if isinstance(p.body[u], Load)]
        stores = [e for e in p.effects if isinstance(e, Store)]
        if reads or any(run.effects or run.row_effects for run in runs[:-1]) or runs[-1].row_effects:
            return {}
        for k, item in enumerate(moves(p)):
            if not isinstance(item, Store) or item.mask is not None or self.classes[k] != ONE:
                continue
            alone = sum(s.array == item.array for s in stores) == 1
            named = {a.number for c in item.coords for a in c.atoms() if c == dim(a.number) and a.kind == DIM}
            same = p.outputs[item.array].dtype == p.body[v].dtype and p.body[v].dtype.name == self.held(v) != "bool"
            if alone and same and len(named) == p.dims == len(item.coords):
                return {v: k}
        return {}

    @cached_property
    def fetched(self) -> tuple[int, ...]:
        """Accesses of the first run over a row that are asked for before they are needed."""
        if self.segmented or len(self.passes) < 2 or not (self.nest_dims if self.across_rows else self.task_dims):
            return ()
        first = {id(self.program.body[v]) for v in self.passes[0].full}
        return tuple(k for k, i in enumerate(moves(self.program)) if id(i) in first and self.classes[k] == ONE)

    @cached_property
    def written_later(self) -> tuple[int, ...]:
        """Results of the last run over a row, whose memory is asked for while the second one computes."""
        # That of longer rows would not stay in the caches until then.
        if not self.fetched or self.across_rows or self.online or len(self.passes) < 3:
            return ()
        if not self.is_heavy(self.passes[1]):
            return ()
        last = {id(e) for e in self.passes[-1].effects}
        found = [k for k, i in enumerate(moves(self.program)) if id(i) in last and self.classes[k] == ONE]
        return tuple(k for k in found if k not in self.kept_in.values())

    @cached_property
    def fetching(self) -> Pass | None:
        """The run during which they are: where lanes lie in a row, the second one asks for the next row's numbers.

        Where lanes lie across rows, the first run asks for those of places further on.
        """
        if not self.fetched:
            return None
        return self.passes[0] if self.across_rows else self.passes[1]

    @cached_property
    def divisors(self) -> frozenset[int]:
        """Values that many points are divided by: their inverses are computed beforehand."""
        p = self.program
        found = set()
        for v, item in enumerate(p.body):
            if isinstance(item, Compute) and item.op == "div" and kind_of(item.dtype) == 2:
                y = item.operands[1]
                by = p.body[y]
                # A power of two becomes a product anyway.
                simple = isinstance(by, Const) and (by.value <= 0 or math.frexp(by.value)[0] == 0.5)
                if p.varies[y] < p.varies[v] and not simple:
                    found.add(y)
        return frozenset(found)

    @cached_property
    def instructions(self) -> int:
        """Roughly how many vector instructions all runs take for each vector of a row, when none computes again."""
        items = (self.program.body[v] for v in {v for run in self.passes for v in run.full})
        return len(self.reductions) + sum(HEAVY_COST if isinstance(i, Call) or _is_heavy(i) else 1 for i in items)

    @cached_property
    def exponentials_below(self) -> frozenset[int]:
        """Exponentials of numbers less their row's maximum, which are 0 at most."""
        p = self.program
        found = set()
        for v, item in enumerate(p.body):
            less = p.body[item.operands[0]] if isinstance(item, Compute) and item.op == "exp" else None
            if isinstance(less, Compute) and less.op == "sub":
                top = p.body[less.operands[1]]
                if isinstance(top, Reduce) and (top.op, top.operand) == ("max", less.operands[0]):
                    found.add(v)
        return frozenset(found)

    @cached_property
    def costs(self) -> tuple[int, ...]:
        """Roughly how many vector instructions each value takes when everything below it is computed again."""
        return self._costs(frozenset())

    def _costs(self, kept: Set[int]) -> tuple[int, ...]:
        """The same where some values are read from memory."""
        classes = iter(self.classes)
        found: list[int] = []
        for v, item in enumerate(self.program.body):
            cost = HEAVY_COST if isinstance(item, Call) or _is_heavy(item) else 1
            if isinstance(item, Load) and next(classes)[0] in (STEPS, ANY):
                cost = 16
            if v in kept:
                cost = 1
            elif not self._is_known(v):
                cost += sum(found[u] for u in set(operands_of(item)))
            found.append(cost)
        return tuple(found)

    # The argument block

    @cached_property
    def slots(self) -> dict[str, int]:
        """Where each part of the block begins; ``words`` is its length."""
        p = self.program
        at: dict[str, int] = {}
        position = 0
        parts = (
            ("inputs", len(p.inputs)), ("outputs", len(p.outputs)), ("scratch", 1), ("flags", 1), ("chunk", 1),
            ("scratch_bytes", 1), ("ended", 3), ("sizes", p.dims), ("params", p.params),
            ("accesses", len(self.classes) * (1 + p.dims)),
            ("input_strides", sum(a.rank for a in p.inputs)), ("output_strides", sum(a.rank for a in p.outputs)),
        )  # fmt: skip
        for name, count in parts:
            at[name] = position
            position += count
        at["words"] = position
        return at

    def scratch_bytes(self, sizes: Sequence[int]) -> int:
        """Bytes of scratch memory that each part needs for these sizes."""
        # A bool takes a byte.
        scratch = [v for v in self.kept if v not in self.kept_in]
        kept = sum(self.scratch_elements(sizes) * max(ELEMENTS[self.held(v)].bits // 8, 1) for v in scratch)
        if self.segmented:
            # All parts share what the first one has.
            rows = math.prod(sizes[d] for d in self.task_dims)
            return rows * (8 * SEGMENTS * len(self.reductions) + kept)
        return kept

    @cached_property
    def reductions(self) -> tuple[int, ...]:
        """The reductions of all runs."""
        return tuple(v for item in self.passes for v in item.reduces)

    def scratch_elements(self, sizes: Sequence[int]) -> int:
        """Elements kept of one value: those of a row (lane after lane), and whole vectors at its end."""
        others = 1
        for d in self.nest_dims:
            others *= sizes[d]
        lanes = self.width * self.unroll
        return others * (lanes if self.across_rows else sizes[self.lane] + lanes)

    def held(self, value: int) -> str:
        """The element type of a kept value: masks are kept as bytes."""
        return held(self.program.body[value].dtype)


@dataclass(frozen=True)
class NestCall:
    """A nest and the numbers of one call: everything in the block but addresses."""

    nest: Nest
    sizes: tuple[int, ...]
    words: tuple[int, ...]
    tasks: int
    work: int


def _is_heavy(item: Instruction) -> bool:
    return isinstance(item, Compute) and item.op in SCALAR_OPS and SCALAR_OPS[item.op].cost >= HEAVY_COST
