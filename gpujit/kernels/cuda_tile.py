"""How a CUDA kernel walks a tile program: which threads share a row, elements a thread, widths of loads; its arguments.

A ``CudaKernel`` is all that the source depends on; sizes, steps in memory and addresses are arguments. ``plan_cuda``
chooses one for a call's strides, by fixed rules: dims that lie in memory as one are merged first. Three layouts:

- ``points``: no rows. A thread takes ``width`` neighbours along the lanes' dim, over and over through the grid.
- ``row``: the lanes' dim lies within rows. ``threads`` neighbouring threads share a row; a block has several rows, or a
  row has a whole block.
- ``column``: the lanes' dim lies across rows, so that neighbouring threads have neighbouring rows and read neighbouring
  elements. ``threads`` threads of a block, ``block // threads`` apart, share a row.

A row's elements are read again for each pass (``items`` 0), or each thread keeps ``items`` times ``width`` of them in
registers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gpujit.kernels.index import DIM, DIV, PARAM, SIZE, VALUE, Index
from gpujit.kernels.schedule import (
    Access,
    Pass,
    Strides,
    accesses,
    collapse,
    index_bits,
    is_even,
    lane_dim,
    moves,
    offset_at_zero,
    passes,
)
from gpujit.kernels.tile import Load, Reduce, Store, TileProgram, indexes_of

POINTS, ROW, COLUMN = "points", "row", "column"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan may use of a GPU. Tests make it small, the simulator being slow."""

    # Threads of a block of points or of several rows; and of a block that has one row.
    block: int = 256
    row_block: int = 1024
    warp: int = 32
    # Bytes of the widest load, and elements of a row that a thread keeps.
    bytes: int = 16
    kept: int = 16
    # Instructions of a source, all copies counted, above which it is written with fewer of them.
    body: int = 640
    # Threads that keep the whole GPU busy; and elements of a row that are worth a thread when there are fewer rows.
    busy: int = 132 * 2048
    split: int = 8

    @property
    def multiprocessors(self) -> int:
        """How many of them those threads keep busy."""
        return max(self.busy // 2048, 1)


# Multiprocessors of the usual GPU of each compute capability.
_PROCESSORS = {(7, 5): 40, (8, 0): 108, (8, 6): 84, (8, 9): 128, (9, 0): 132, (10, 0): 148, (12, 0): 170}


def limits_of(capability: tuple[int, int]) -> Limits:
    """What plans may use of any GPU of a compute capability, or of the nearest one below that is known.

    Equal for all of them, so that kernels compiled ahead are those that plans ask for.
    """
    known = [c for c in _PROCESSORS if c <= capability] or [min(_PROCESSORS)]
    return replace(Limits(), busy=_PROCESSORS[max(known)] * 2048)


_MOST = Limits()
_limits: ContextVar[Limits] = ContextVar("gpujit_cuda_limits", default=_MOST)


def limits_here() -> Limits:
    """What plans may use of a GPU unless they are told otherwise: of most GPUs, or as ``within`` says."""
    return _limits.get()


@contextmanager
def within(limits: Limits) -> Iterator[None]:
    """A block in which ``limits_here`` gives these limits, in the running thread alone."""
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)


@dataclass(frozen=True, slots=True)
class Tile:
    """The parameters of a kernel."""

    layout: str
    block: int
    threads: int
    width: int
    items: int
    bits: int
    warp: int
    # Whether the last elements along the lanes' dim may be fewer than ``width``.
    has_tail: bool = False

    @property
    def groups(self) -> int:
        """Rows, or vectors of points, that a block has at one time."""
        return self.block // self.threads

    def __str__(self) -> str:
        items = f", {self.items} times" if self.items else ""
        tail = ", a rest" if self.has_tail else ""
        return (
            f"{self.layout}: {self.block} threads a block, {self.threads} a row, {self.width} elements wide"
            f"{items}{tail}, {self.bits}-bit indexes, warps of {self.warp}"
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where one load or store goes: the number of its pointer argument, and its step along each dim.

    A step is ``0``, ``1`` or the name of an argument; ``steps`` is None where indexes are evaluated at each point.
    ``is_wide``: elements along the lanes' dim are moved at once.
    """

    pointer: int
    steps: tuple[str, ...] | None
    is_wide: bool


@dataclass(frozen=True)
class CudaKernel:
    """What the source of a kernel follows from."""

    program: TileProgram
    lane: int
    tile: Tile
    places: tuple[Place, ...]
    # For each pointer argument: whether it is an output, and the array.
    pointers: tuple[tuple[bool, int], ...]
    # Names of the numbers that follow sizes and parameters: steps, and strides of arrays whose indexes are evaluated.
    numbers: tuple[str, ...]

    @cached_property
    def text(self) -> str:
        """Text that differs when the source would."""
        lines = [str(self.tile), f"lanes along d{self.lane}"]
        lines += [
            f"{p.pointer} {'evaluated' if p.steps is None else ' '.join(p.steps)}{' wide' * p.is_wide}"
            for p in self.places
        ]
        lines += [f"{self.pointers} {self.numbers}", self.program.text]
        return "\n".join(lines)

    @cached_property
    def key(self) -> str:
        """The hash that names the compiled kernel."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        return passes(self.program)

    def pointer_name(self, number: int) -> str:
        """The argument's name: that of the array, with letters when several point into it."""
        is_output, array = self.pointers[number]
        same = [k for k, p in enumerate(self.pointers) if p == (is_output, array)]
        name = f"{'o' if is_output else 'a'}{array}"
        return name if len(same) == 1 else name + letters(same.index(number))


@dataclass(frozen=True)
class CudaCall:
    """A kernel and the numbers of one call: all arguments but addresses."""

    kernel: CudaKernel
    # Elements to add to the array's address, for each pointer argument.
    firsts: tuple[int, ...]
    # Sizes, parameters, then the kernel's ``numbers``.
    words: tuple[int, ...]
    # Vectors of points, or rows; none of them means there is nothing to do.
    units: int

    @property
    def blocks(self) -> int:
        """Blocks that would have work."""
        return -(-self.units // self.kernel.tile.groups)


def plan_cuda(
    program: TileProgram,
    inputs: Sequence[Strides],
    outputs: Sequence[Strides],
    sizes: Sequence[int],
    params: Sequence[int] = (),
    addresses: Sequence[int] | None = None,
    limits: Limits | None = None,
) -> CudaCall:
    """The kernel for arrays of these strides, in elements, and its arguments.

    ``addresses``: those of inputs, then outputs, of which only the alignment matters; aligned ones when None.
    ``limits``: those of ``limits_here`` when None.
    """
    limits = limits or limits_here()
    merged = collapse(program, inputs, outputs, sizes, params).with_a_dim
    p, sizes, params, ins, outs = merged.program, merged.sizes, merged.params, merged.inputs, merged.outputs
    found = accesses(p, ins, outs, sizes, params)
    if addresses is None:
        addresses = [0] * (len(ins) + len(outs))
    known = {(SIZE, k): n for k, n in enumerate(sizes)} | {(PARAM, k): n for k, n in enumerate(params)}
    # Where indexes are evaluated anyway they say it all.
    firsts = [
        offset_at_zero(item, ins, outs, sizes, params) if is_even(item, access) else 0
        for item, access in zip(moves(p), found, strict=True)
    ]
    lane, layout = _lane(p, found, sizes)
    aligned = [_aligned(p, a, first, lane, sizes, addresses, len(ins)) for a, first in zip(found, firsts, strict=True)]
    width = _width(p, found, aligned, lane, sizes, layout, limits)
    wide = [
        width > 1 and n > 0 and _fits(p, a, width, n) and not (a.is_store and _has_mask_along(p, item, lane))
        for item, a, n in zip(moves(p), found, aligned, strict=True)
    ]
    tile = _tile(p, lane, layout, width, sizes, limits)
    tile = replace(tile, bits=_bits(p, ins, outs, sizes, known))
    kernel, numbers = _arguments(p, found, firsts, wide, ins, outs, lane, tile)
    pointer_firsts = [0] * len(kernel.pointers)
    for place, first in zip(kernel.places, firsts, strict=True):
        pointer_firsts[place.pointer] = first
    units = math.prod(sizes[d] for d in range(p.dims - p.rows))
    if layout != ROW and sizes[lane]:
        units = units // sizes[lane] * -(-sizes[lane] // width)
    words = (*sizes, *params, *numbers)
    return CudaCall(kernel, tuple(pointer_firsts), words, units)


def _has_mask_along(p: TileProgram, item: Load | Store, lane: int) -> bool:
    return item.mask is not None and lane in p.varies[item.mask]


def has_scan(program: TileProgram) -> bool:
    return any(isinstance(i, Reduce) and i.is_scan for i in program.body)


def _lane(p: TileProgram, found: Sequence[Access], sizes: Sequence[int]) -> tuple[int, str]:
    lane = lane_dim(p, found, sizes)
    if lane is None:
        lane = p.dims - 1
    if not p.rows:
        return lane, POINTS
    if lane not in p.row_dims:
        return lane, COLUMN
    return (p.dims - 1 if has_scan(p) else lane), ROW


def _itemsize(p: TileProgram, a: Access) -> int:
    return (p.outputs if a.is_store else p.inputs)[a.array].dtype.itemsize


def _aligned(
    p: TileProgram, a: Access, first: int, lane: int, sizes: Sequence[int], addresses: Sequence[int], inputs: int
) -> int:
    """The bytes (2, 4, 8 or 16) that every vector along the lanes would be aligned to; 0 for no contiguous access."""
    if any(s is None for s in a.steps) or a.steps[lane] != 1:
        return 0
    itemsize = _itemsize(p, a)
    at = addresses[a.array + (inputs if a.is_store else 0)] + first * itemsize
    found = math.gcd(at, 16)
    for d, step in enumerate(a.steps):
        if d != lane and sizes[d] > 1:
            found = math.gcd(found, (step or 0) * itemsize)
    return found


def _fits(p: TileProgram, a: Access, width: int, aligned: int) -> bool:
    return aligned % min(16, width * _itemsize(p, a)) == 0


def _width(
    p: TileProgram,
    found: Sequence[Access],
    aligned: Sequence[int],
    lane: int,
    sizes: Sequence[int],
    layout: str,
    limits: Limits,
) -> int:
    """Elements a thread takes at once: where most contiguous bytes can be moved so, and the body stays short."""
    contiguous = [a for a in found if a.steps[lane] == 1]
    if not contiguous or has_scan(p):
        return 1
    # The width that suits elements of the size that most bytes are of.
    bytes_of: dict[int, int] = {}
    for a in contiguous:
        bytes_of[_itemsize(p, a)] = bytes_of.get(_itemsize(p, a), 0) + _itemsize(p, a)
    width = min(8, limits.bytes // max(bytes_of, key=lambda size: (bytes_of[size], size)))
    total = sum(bytes_of.values())
    while width > 1:
        moved = sum(_itemsize(p, a) for a, n in zip(found, aligned, strict=True) if n and _fits(p, a, width, n))
        whole = sizes[lane] % width == 0 or (layout == POINTS and sizes[lane] > width)
        if whole and 2 * moved > total and len(p.body) * width <= limits.body:
            return width
        width //= 2
    return 1


def _power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def _tile(p: TileProgram, lane: int, layout: str, width: int, sizes: Sequence[int], limits: Limits) -> Tile:
    base = Tile(layout, limits.block, 1, width, 0, 32, limits.warp)
    if layout == POINTS:
        return replace(base, has_tail=sizes[lane] % width != 0)
    rows = math.prod(sizes[d] for d in range(p.dims - p.rows))
    points = math.prod(sizes[d] for d in p.row_dims)
    reuses = any(item.repeated for item in passes(p))
    if layout == ROW:
        units = points // width
        most = max(limits.kept // width, 1)
        if has_scan(p) and p.rows > 1:
            threads = 1
        elif units <= limits.warp:
            threads = _power_of_two(units)
        else:
            threads = max(min(_power_of_two(-(-units // min(most, 4))), limits.row_block), limits.warp)
        block = max(threads, limits.block // 2)
    else:
        rows //= width
        units, most = points, max(limits.kept // width, 1)
        # Where columns are few their blocks are narrow, 128 bytes wide, and so more.
        groups = limits.warp if rows // limits.warp >= limits.busy // 2048 else max(limits.warp // width, 1)
        threads = 1
        while not has_scan(p) and threads * rows < limits.busy and threads * limits.split <= units:
            if 2 * threads * groups > limits.row_block:
                break
            threads *= 2
        block = max(groups * threads, limits.block // 2)
    items = -(-units // threads)
    keeps = reuses and 0 < items <= most and not has_scan(p) and len(p.body) * width * items <= limits.body
    return replace(base, block=block, threads=threads, items=items if keeps else 0)


# ------------------------------------------------------------------------------------------------------ arguments


def _arguments(
    p: TileProgram,
    found: Sequence[Access],
    firsts: Sequence[int],
    wide: Sequence[bool],
    ins: Sequence[Strides],
    outs: Sequence[Strides],
    lane: int,
    tile: Tile,
) -> tuple[CudaKernel, list[int]]:
    """The kernel, and the values of its ``numbers``."""
    pointers: dict[tuple[bool, int, int], int] = {}
    named: dict[tuple[int, ...], tuple[str, ...]] = {}
    names: list[str] = []
    values: list[int] = []
    places: list[Place] = []
    for item, a, first, is_wide in zip(moves(p), found, firsts, wide, strict=True):
        pointer = pointers.setdefault((a.is_store, a.array, first), len(pointers))
        if not is_even(item, a):
            places.append(Place(pointer, None, False))
            strides = (outs if a.is_store else ins)[a.array]
            for k, stride in enumerate(strides):
                name = stride_name(a.is_store, a.array, k)
                if name not in names:
                    names.append(name)
                    values.append(stride)
            continue
        steps = tuple(int(s or 0) for s in a.steps)
        if steps not in named:
            # Accesses that step alike share their offsets.
            shown = []
            for step in steps:
                if step in (0, 1):
                    shown.append(str(step))
                    continue
                name = f"s{sum(n.startswith('s') for n in names)}"
                names.append(name)
                values.append(step)
                shown.append(name)
            named[steps] = tuple(shown)
        places.append(Place(pointer, named[steps], is_wide))
    kept = tuple((is_output, array) for is_output, array, _ in pointers)
    return CudaKernel(p, lane, tile, tuple(places), kept, tuple(names)), values


def letters(number: int) -> str:
    """a, b, ..., z, aa, ab, ... for 0, 1, ..."""
    first = "" if number < 26 else letters(number // 26 - 1)
    return first + chr(ord("a") + number % 26)


def stride_name(is_store: bool, array: int, dim: int) -> str:
    """The argument that holds an array's stride."""
    return f"t{'o' if is_store else 'a'}{array}_{dim}"


def _bits(
    p: TileProgram, ins: Sequence[Strides], outs: Sequence[Strides], sizes: Sequence[int], known: Mapping[Any, int]
) -> int:
    """32 when no index of the call, nor any part of one, can leave 32 bits."""
    # A grid's stride is added to the last index before it is compared.
    room = (1 << 31) - (1 << 24)
    if index_bits([], [], sizes) == 64 or math.prod(max(n, 1) for n in sizes) > room:
        return 64
    places: dict[Any, tuple[int, int]] = {k: (v, v) for k, v in known.items()}
    places |= {(DIM, d): (0, max(n - 1, 0)) for d, n in enumerate(sizes)}
    for item in (*p.body, *p.effects):
        reach = 0
        strides = [1] * len(indexes_of(item))
        if isinstance(item, (Load, Store)):
            strides = list((outs if isinstance(item, Store) else ins)[item.array])
        for i, stride in zip(indexes_of(item), strides, strict=True):
            if i.values():
                # Bounded by the array, which masks or the caller see to.
                continue
            low, high = _interval(i, places)
            reach += max(abs(low), abs(high)) * max(abs(stride), 1)
        if reach > room:
            return 64
    return 32


def _interval(i: Index, places: Mapping[Any, tuple[int, int]]) -> tuple[int, int]:
    """Bounds of the size that an index, summed up term by term, may have."""
    low = high = 0
    for product, factor in i.terms:
        a, b = factor, factor
        for atom in product:
            if atom.args:
                first, second = (_interval(arg, places) for arg in atom.args)
                c, d = (0, max(first[1], 0)) if atom.kind == DIV else (0, max(second[1], first[1], 0))
            elif atom.kind == VALUE:
                c, d = 0, 0
            else:
                c, d = places[atom.kind, atom.number]
            corners = (a * c, a * d, b * c, b * d)
            a, b = min(corners), max(corners)
        low, high = low + min(a, 0), high + max(b, 0)
    return low, high
