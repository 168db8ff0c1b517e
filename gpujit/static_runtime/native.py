"""Native steps: a kernel's address with its argument block, whose words of addresses are filled in by who runs it.

A fusion group becomes one through its program; so does a copy that makes a tensor contiguous. ``overwritten`` finds the
operand that a group may write its result over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import numpy as np

from gpujit.fuser.lower import Lowered
from gpujit.ir.graph import Value
from gpujit.ir.scalar import RecordError
from gpujit.kernels.cpu_launch import BoundKernel, prepare
from gpujit.kernels.cpu_nest import Geometry
from gpujit.kernels.index import Index, dim
from gpujit.kernels.schedule import passes
from gpujit.kernels.templates.bound import BoundTemplate
from gpujit.kernels.tile import Load, Reduce, Store, TileError, TileProgram
from gpujit.kernels.tile_build import Builder
from gpujit.static_runtime.places import Place
from gpujit.support.errors import InternalError


class Step(Protocol):
    """What a node becomes: a NativeKernel, or a DeviceStep."""

    @property
    def checks(self) -> tuple[str, ...]:
        """Messages of what it may find wrong."""

    @property
    def overwrites(self) -> tuple[tuple[int, ...], ...]:
        """For each result the operands that it may be written over."""


@dataclass(frozen=True, slots=True)
class NativeKernel:
    """A kernel bound to shapes and strides.

    ``words`` are its block with addresses left 0; ``arrays`` says which words take those of the operands and then of
    the results. Each part of the team needs ``scratch`` bytes; word ``scratch_slot`` takes their address,
    ``flags_slot`` that of one int64 for each message in ``checks``, which the kernel sets when the check fails.
    ``owner`` keeps alive what the addresses point to. ``overwrites[k]`` are the operands that result k may be written
    over. A kernel of several ``rounds`` runs once for each, whose words these are; scratch memory lasts over all of
    them.
    """

    address: int
    words: tuple[int, ...]
    arrays: tuple[int, ...]
    scratch: int
    scratch_slot: int
    flags_slot: int
    checks: tuple[str, ...]
    is_small: bool
    owner: object
    overwrites: tuple[tuple[int, ...], ...]
    rounds: tuple[tuple[int, ...], ...] = ()


# A native step and the tensors it reads, in the order of its words.
Made = tuple[NativeKernel, Sequence[Value]]
# What makes a native step of an operator's node, given where tensors and its first result lie; None when it cannot. One
# that makes steps of templates is also called with what these are to do to their result in the end.
Maker = Callable[..., Made | None]


@dataclass(frozen=True, slots=True)
class Request:
    """A tile program for operands and results at certain places, not yet compiled."""

    geometry: Geometry
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]


def request(
    program: TileProgram,
    inputs: Sequence[Place],
    outputs: Sequence[Place],
    sizes: Sequence[int],
    params: Sequence[int] = (),
) -> Request | None:
    """The program on tensors at these places; None when their strides are no whole numbers of elements."""
    ins = tuple(s for s in (p.steps for p in inputs) if s is not None)
    outs = tuple(s for s in (p.steps for p in outputs) if s is not None)
    if len(ins) != len(inputs) or len(outs) != len(outputs):
        return None
    return Request(Geometry(program, ins, outs, tuple(sizes), tuple(params)), tuple(inputs), tuple(outputs))


def of_group(lowered: Lowered, inputs: Sequence[Place], outputs: Sequence[Place]) -> Request | None:
    """What a fusion group asks for."""
    return request(lowered.program, inputs, outputs, lowered.sizes, lowered.params)


def of_copy(source: Place, target: Place) -> Request | None:
    """What a copy of a tensor asks for."""
    try:
        return request(copy_program(source.dtype, len(source.shape)), [source], [target], source.shape)
    except (TileError, RecordError):
        return None


@lru_cache(maxsize=256)
def copy_program(dtype: np.dtype, rank: int) -> TileProgram:
    """A program that copies each element. Raises TileError and RecordError for dtypes that kernels do not take."""
    build = Builder(rank)
    at = [dim(d) for d in range(rank)]
    build.store(build.output(dtype, rank), at, build.load(build.input(dtype, rank), at))
    return build.finish()


def compiled(requests: Sequence[Request]) -> list[NativeKernel | None]:
    """The kernels that are asked for, compiled side by side when they are new; None for those that cannot be had."""
    # Layers repeat, and ask for the same again.
    keys = [(r.geometry, *((p.shape, p.strides, p.dtype) for p in (*r.inputs, *r.outputs))) for r in requests]
    asked = dict(zip(keys, requests, strict=True))
    prepare([r.geometry for r in asked.values()])
    found = {key: _bound(r) for key, r in asked.items()}
    return [found[key] for key in keys]


def _bound(asked: Request) -> NativeKernel | None:
    program = asked.geometry.program
    try:
        bound = BoundKernel(*asked.geometry)
    except InternalError:
        return None
    slots = bound.call.nest.slots
    return NativeKernel(
        bound.address,
        tuple(int(w) for w in bound.words),
        tuple(range(len(asked.inputs) + len(asked.outputs))),
        int(bound.scratch),
        slots["scratch"],
        slots["flags"],
        tuple(c.message for c in bound.checks),
        bound.is_small,
        bound,
        tuple(overwritten(program, k, asked.inputs, asked.outputs) for k in range(len(asked.outputs))),
    )


def prepared(kernel: NativeKernel) -> NativeKernel:
    """The step with its code, which is compiled when it is new. Raises NotRendered, InternalError."""
    owner = kernel.owner
    if not isinstance(owner, BoundTemplate):
        return kernel
    owner.prepare()
    return replace(kernel, address=owner.address, words=tuple(int(w) for w in owner.words))


def of_template(
    bound: BoundTemplate, results: int = 1, behind: int = 0, overwrites: tuple[int, ...] = ()
) -> NativeKernel:
    """The step of a template whose last ``results`` arrays are what it makes, but for ``behind`` more operands.

    Its code is to come, see ``prepared``. The result, when there is one, may be written over the operands
    ``overwrites``.
    """
    end = len(bound.arrays) - behind
    start = end - results
    names = (*bound.arrays[:start], *bound.arrays[end:], *bound.arrays[start:end])
    scratch = bound.slots.get("scratch", 0) if bound.scratch_bytes else 0
    words = tuple(int(w) for w in bound.words)
    return NativeKernel(
        0,
        words,
        tuple(bound.slots[name] for name in names),
        bound.scratch_bytes,
        scratch,
        0,
        (),
        bound.is_small,
        bound,
        (overwrites,) * results,
        tuple(tuple(each.get(k, w) for k, w in enumerate(words)) for each in bound.rounds),
    )


def overwritten(
    program: TileProgram, output: int, inputs: Sequence[Place], outputs: Sequence[Place]
) -> tuple[int, ...]:
    """The operands that a result may be written over, as far as the program is concerned.

    Such an operand has the result's size of an element, shape and strides, and is read at the very index that is
    written, at each point before it is written and in no later run over the row, by a program whose stores to other
    results do not matter to it. Then nothing that is still to be read has been overwritten, in whichever order points
    are worked through.
    """
    stores = [e for e in program.effects if isinstance(e, Store) and e.array == output]
    if len(stores) != 1 or stores[0].mask is not None:
        return ()
    if any(isinstance(i, Reduce) and i.is_scan for i in program.body):
        return ()
    store, target = stores[0], outputs[output]
    found = []
    for k, place in enumerate(inputs):
        same = place.dtype.itemsize == target.dtype.itemsize and place.shape == target.shape
        if same and _same_steps(place, target) and _reads_before(program, k, store):
            found.append(k)
    return tuple(found)


def _same_steps(a: Place, b: Place) -> bool:
    return all(s == t or n == 1 for s, t, n in zip(a.strides, b.strides, a.shape, strict=True))


def _reads_before(program: TileProgram, operand: int, store: Store) -> bool:
    loads = {v for v, item in enumerate(program.body) if isinstance(item, Load) and item.array == operand}
    for v in loads:
        item = program.body[v]
        assert isinstance(item, Load)
        if item.mask is not None or not _same_index(item.coords, store.coords):
            return False
    runs = passes(program)
    reading = [i for i, run in enumerate(runs) if loads & {*run.full, *run.row}]
    writing = [i for i, run in enumerate(runs) if store in (*run.effects, *run.row_effects)]
    # Within a run over a row, a point's loads come before its stores, and those of a row before its points.
    if len(writing) != 1 or any(loads & set(run.row) for run in runs) or any(store in run.row_effects for run in runs):
        return False
    return not reading or max(reading) <= writing[0]


def _same_index(a: Sequence[Index], b: Sequence[Index]) -> bool:
    return len(a) == len(b) and all(str(i) == str(k) for i, k in zip(a, b, strict=True))
