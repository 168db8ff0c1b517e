"""Few long rows on a GPU: each row is cut into slices for more blocks, and their results are combined by more launches.

A program with reductions becomes several over the same arrays and scratch memory. For each pass in which rows are
reduced: one that reduces slices, and one that combines these. Then one for all that happens at each point, with as many
threads as there are points. A program that only stores once for each row combines slices and stores in its last launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from gpujit.ir import scalar
from gpujit.ir.dtypes import BOOL_, kind_of
from gpujit.ir.scalar import Expr
from gpujit.kernels.cuda_tile import CudaCall
from gpujit.kernels.index import DIM, PARAM, SIZE, VALUE, Atom, Index, dim, index, param, size, value
from gpujit.kernels.schedule import Collapsed, Pass, passes
from gpujit.kernels.tile import (
    Bound,
    Call,
    Check,
    Compute,
    Const,
    Count,
    Effect,
    Inside,
    Load,
    Position,
    Reduce,
    Store,
    TileProgram,
)
from gpujit.kernels.tile_build import Builder

# Elements of a block below which more launches take longer than its one; and of a slice.
LONG, SLICE = 1 << 16, 1 << 13
# Where the results of slices are combined by the same operation.
COMBINED = frozenset(("sum", "prod", "max", "min", "any", "all"))


@dataclass(frozen=True, slots=True)
class Array:
    """An array of a part: an input or output of the whole, or scratch memory, by its number."""

    kind: str
    number: int


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory that parts pass numbers in, contiguous."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Part:
    """One launch: a program, its arrays in order, sizes and parameters."""

    program: TileProgram
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    sizes: tuple[int, ...]
    params: tuple[int, ...]


def slices_of(call: CudaCall, sizes: Sequence[int], multiprocessors: int) -> int:
    """Into how many slices the rows of a planned call are worth cutting; 1 when they are not.

    Args: ``sizes`` are those of the call's program.
    """
    p = call.kernel.program
    if not p.rows or not call.units or 2 * call.blocks > multiprocessors:
        return 1
    if any(isinstance(i, Reduce) and i.op not in COMBINED for i in p.body):
        return 1
    runs = [run for run in passes(p) if run.reduces]
    each = prod(sizes) // call.blocks
    if not runs or each < LONG * len(runs):
        return 1
    longest = max(sizes[d] for d in p.row_dims)
    return max(1, min(2 * multiprocessors // call.blocks, each // SLICE, longest // 2))


def split(merged: Collapsed, slices: int) -> tuple[list[Part], list[Scratch]]:
    """The parts of a program whose dims are merged, in order, and their scratch memory."""
    return _Split(merged, slices).run()


class _Split:
    def __init__(self, merged: Collapsed, slices: int) -> None:
        self.p, self.sizes, self.params = merged.program, merged.sizes, merged.params
        self.outer = self.p.dims - self.p.rows
        # The row dim that is cut, the length of a slice (a multiple of what wide loads need), and how many there are.
        self.cut = max(self.p.row_dims, key=lambda d: (self.sizes[d], -d))
        whole = self.sizes[self.cut]
        self.length = min(_up(_up(whole, slices) // slices, 8), whole)
        self.slices = -(-whole // self.length)
        self.scratch: list[Scratch] = []
        self.parts: list[Part] = []
        # Scratch memory of each reduction's result.
        self.results: dict[int, int] = {}

    def run(self) -> tuple[list[Part], list[Scratch]]:
        runs = passes(self.p)
        reducing = [run for run in runs if run.reduces]
        full = [e for run in runs for e in run.effects]
        row = [e for run in runs for e in run.row_effects]
        for k, run in enumerate(reducing):
            partial = self.reduce_slices(run)
            if k == len(reducing) - 1 and not full:
                self.combine(run, partial, row)
                return self.parts, self.scratch
            self.combine(run, partial, None)
        if row:
            self.effects(row, self.outer)
        if full:
            self.effects(full, self.p.dims)
        return self.parts, self.scratch

    def new_scratch(self, shape: Sequence[int], dtype: np.dtype) -> int:
        self.scratch.append(Scratch(tuple(shape), dtype))
        return len(self.scratch) - 1

    def reduce_slices(self, run: Pass) -> dict[int, int]:
        """Scratch memory of the slices' results, for each reduction."""
        build = _Rebuild(self, self.p.dims + 1, self.p.rows, is_sliced=True)
        lead = [dim(d) for d in range(self.outer + 1)]
        found = {}
        for v in run.reduces:
            item = self.p.body[v]
            assert isinstance(item, Reduce)
            x = build.value(item.operand)
            if build.is_inside is not None:
                x = scalar.where(build.is_inside, x, scalar.const(_neutral(item.op, x.dtype), x.dtype))
            number = self.new_scratch((*self.sizes[: self.outer], self.slices), item.dtype)
            build.store_scratch(number, lead, scalar.reduce(item.op, x))
            found[v] = number
        sizes = [*self.sizes[: self.outer], self.slices, *self.sizes[self.outer :]]
        sizes[self.cut + 1] = self.length
        self.parts.append(build.part(sizes))
        return found

    def combine(self, run: Pass, partial: Mapping[int, int], effects: Sequence[Effect] | None) -> None:
        """The rows' results: into scratch memory, or with effects that happen once for each row."""
        build = _Rebuild(self, self.outer + 1, 1)
        lead = [dim(d) for d in range(self.outer)]
        for v in run.reduces:
            item = self.p.body[v]
            assert isinstance(item, Reduce)
            x = build.load_scratch(partial[v], [*lead, dim(self.outer)])
            build.known[v] = scalar.reduce(item.op, x)
            if effects is None:
                self.results[v] = self.new_scratch(self.sizes[: self.outer], item.dtype)
                build.store_scratch(self.results[v], lead, build.known[v])
        for effect in effects or ():
            build.effect(effect)
        self.parts.append(build.part([*self.sizes[: self.outer], self.slices]))

    def effects(self, effects: Sequence[Effect], dims: int) -> None:
        """What happens at each point of the first dims, when all results of rows are there."""
        build = _Rebuild(self, dims, 0)
        for effect in effects:
            build.effect(effect)
        self.parts.append(build.part(self.sizes[:dims]))


class _Rebuild:
    """A part under construction: values of the whole program in a space with other dims."""

    def __init__(self, whole: _Split, dims: int, rows: int, is_sliced: bool = False) -> None:
        self.whole, self.p, self.is_sliced = whole, whole.p, is_sliced
        self.builder = Builder(dims, rows)
        self.known: dict[int, Expr] = {}
        self.inputs: dict[Array, int] = {}
        self.outputs: dict[Array, int] = {}
        self.numbers = list(whole.params)
        for _ in range(self.p.params):
            self.builder.param()
        # Sizes that this space does not have are parameters.
        self.extra: dict[int, Index] = {}
        self.length = self.parameter(whole.length) if is_sliced else None
        self.is_inside: Expr | None = None
        if is_sliced and whole.length * whole.slices != whole.sizes[whole.cut]:
            at = self.index(dim(whole.cut))
            self.is_inside = self.builder.inside(Bound(index(0), at, self.index(size(whole.cut))))

    def parameter(self, number: int) -> Index:
        self.numbers.append(number)
        return self.builder.param()

    def part(self, sizes: Sequence[int]) -> Part:
        return Part(self.builder.finish(), tuple(self.inputs), tuple(self.outputs), tuple(sizes), tuple(self.numbers))

    # Indexes

    def index(self, i: Index) -> Index:
        return i.replace(self.atom)

    def atom(self, a: Atom) -> Index | None:
        if a.kind == VALUE:
            return value(self.value(a.number))
        if a.kind == PARAM:
            return param(a.number)
        moved = a.number + 1 if self.is_sliced and a.kind in (DIM, SIZE) and a.number >= self.whole.outer else a.number
        if a.kind == DIM:
            if self.length is not None and a.number == self.whole.cut:
                return dim(self.whole.outer) * self.length + dim(moved)
            return dim(moved)
        if a.kind == SIZE:
            if a.number < self.whole.outer or (self.builder.dims >= self.p.dims and a.number != self.whole.cut):
                return size(moved)
            if a.number not in self.extra:
                self.extra[a.number] = self.parameter(self.whole.sizes[a.number])
            return self.extra[a.number]
        return None

    # Values

    def value(self, v: int) -> Expr:
        found = self.known.get(v)
        if found is None:
            found = self.known[v] = self.made(v)
        return found

    def made(self, v: int) -> Expr:
        item = self.p.body[v]
        if isinstance(item, Const):
            return scalar.const(item.value, item.dtype)
        if isinstance(item, Compute):
            return Expr(item.op, tuple(self.value(u) for u in item.operands), item.dtype)
        if isinstance(item, Call):
            return Expr("call", tuple(self.value(u) for u in item.operands), item.dtype, item.name)
        if isinstance(item, Load):
            return self.load(item)
        if isinstance(item, Position):
            return self.builder.position(self.index(item.index))
        if isinstance(item, Inside):
            bounds = (Bound(self.index(b.low), self.index(b.index), self.index(b.high)) for b in item.bounds)
            return self.builder.inside(*bounds)
        if isinstance(item, Count):
            count = index(1)
            for d in self.p.row_dims:
                count = count * self.index(size(d))
            return scalar.cast(self.builder.position(count), item.dtype)
        assert isinstance(item, Reduce)
        lead = [dim(d) for d in range(self.whole.outer)]
        return self.load_scratch(self.whole.results[v], lead)

    def load(self, item: Load) -> Expr:
        number = self.input(Array("input", item.array), item.dtype, len(item.coords))
        mask = None if item.mask is None else self.value(item.mask)
        other = 0 if item.other is None else item.other.value
        if self.is_inside is not None and any(c.dims() & {self.whole.cut} or c.values() for c in item.coords):
            mask = self.is_inside if mask is None else scalar.apply("and", mask, self.is_inside)
        return self.builder.load(number, [self.index(c) for c in item.coords], mask, other)

    def input(self, array: Array, dtype: np.dtype, rank: int) -> int:
        if array not in self.inputs:
            self.inputs[array] = self.builder.input(dtype, rank)
        return self.inputs[array]

    def load_scratch(self, number: int, at: Sequence[Index]) -> Expr:
        kept = self.whole.scratch[number]
        return self.builder.load(self.input(Array("scratch", number), kept.dtype, len(kept.shape)), at)

    # Effects

    def output(self, array: Array, dtype: np.dtype, rank: int) -> int:
        if array not in self.outputs:
            self.outputs[array] = self.builder.output(dtype, rank)
        return self.outputs[array]

    def store_scratch(self, number: int, at: Sequence[Index], x: Expr) -> None:
        kept = self.whole.scratch[number]
        self.builder.store(self.output(Array("scratch", number), kept.dtype, len(kept.shape)), at, x)

    def effect(self, effect: Effect) -> None:
        if isinstance(effect, Check):
            self.builder.check(self.value(effect.value), effect.message)
            return
        assert isinstance(effect, Store)
        x = self.value(effect.value)
        number = self.output(Array("output", effect.array), x.dtype, len(effect.coords))
        mask = None if effect.mask is None else self.value(effect.mask)
        self.builder.store(number, [self.index(c) for c in effect.coords], x, mask)


def _up(number: int, step: int) -> int:
    """The next multiple of ``step``."""
    return -(-number // step) * step


def _neutral(op: str, dtype: np.dtype) -> bool | int | float:
    """What changes nothing when it is combined."""
    if dtype == BOOL_:
        return op in ("all", "min")
    if op in ("sum", "any"):
        return 0
    if op in ("prod", "all"):
        return 1
    if kind_of(dtype) == 2:
        return -np.inf if op == "max" else np.inf
    info = np.iinfo(dtype)
    return int(info.min if op == "max" else info.max)
