"""Tile programs as steps on a GPU: fusion groups, copies, and single operators that the fuser has a program for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from gpujit.fuser.errors import NotFused
from gpujit.fuser.facts import Facts
from gpujit.fuser.lower import Lowered, lower
from gpujit.ir import scalar
from gpujit.ir.graph import Node, Value
from gpujit.ir.scalar import RecordError
from gpujit.kernels.cuda_autotune import limits_for
from gpujit.kernels.cuda_steps import step_of
from gpujit.kernels.index import dim
from gpujit.kernels.launches import DeviceStep
from gpujit.kernels.tile import NotRendered, TileError, TileProgram
from gpujit.kernels.tile_build import Builder
from gpujit.passes.analysis.effects import entry_of, has_own_effect
from gpujit.static_runtime.native import copy_program, overwritten
from gpujit.static_runtime.places import Place

# A step on a GPU and the tensors it reads, in the order of its arrays.
MadeStep = tuple[DeviceStep, Sequence[Value]]
PlaceOf = Callable[[Value], Place | None]


def program_step(
    program: TileProgram,
    inputs: Sequence[Place],
    outputs: Sequence[Place],
    sizes: Sequence[int],
    params: Sequence[int] = (),
    label: str = "tile",
) -> DeviceStep | None:
    """The step of a program on tensors at these places; None when it has no code, or strides split elements."""
    ins = [(p.offset, s) for p in inputs if (s := p.steps) is not None and not p.offset % p.dtype.itemsize]
    outs = [(p.offset, s) for p in outputs if (s := p.steps) is not None and not p.offset % p.dtype.itemsize]
    if len(ins) != len(inputs) or len(outs) != len(outputs):
        return None
    try:
        limits = limits_for(program, ins, outs, sizes, params, [extent(p) for p in (*inputs, *outputs)])
        step = step_of(program, ins, outs, sizes, params, label, limits)
    except NotRendered:
        return None
    found = tuple(overwritten(program, k, inputs, outputs) for k in range(len(outputs)))
    return replace(step, overwrites=found)


def extent(place: Place) -> int:
    """Bytes from the start of a place's memory to the end of its last element."""
    if not place.nbytes:
        return 0
    last = sum((n - 1) * s for n, s in zip(place.shape, place.strides, strict=True))
    return place.offset + last + place.dtype.itemsize


def group_step(lowered: Lowered, inputs: Sequence[Place], outputs: Sequence[Place], label: str) -> DeviceStep | None:
    """The step of a fusion group."""
    return program_step(lowered.program, inputs, outputs, lowered.sizes, lowered.params, label)


def copy_step(source: Place, target: Place) -> DeviceStep | None:
    """The step of a copy of a tensor."""
    try:
        program = copy_program(source.dtype, len(source.shape))
    except (TileError, RecordError):
        return None
    return program_step(program, [source], [target], source.shape, (), "copy")


def converts(node: Node, place_of: PlaceOf, result: Place) -> bool:
    """Whether an operator that may return its operand makes a new tensor here, of another dtype."""
    op = entry_of(node)
    if op is None or op.scalar is None or not node.inputs or len(node.outputs) != 1:
        # Without a body: bits seen as another type, parts of complex numbers.
        return False
    place = place_of(node.inputs[0])
    return place is not None and place.shape == result.shape and place.dtype != result.dtype


def _converted(node: Node, place_of: PlaceOf, result: Place) -> MadeStep | None:
    place = place_of(node.inputs[0])
    if place is None:
        return None
    try:
        program = cast_program(place.dtype, result.dtype, len(result.shape))
    except (TileError, RecordError):
        return None
    step = program_step(program, [place], [result], result.shape, (), "cast")
    return None if step is None else (step, node.inputs[:1])


@lru_cache(maxsize=256)
def cast_program(source: np.dtype, target: np.dtype, rank: int) -> TileProgram:
    """A program that converts each element. Raises TileError and RecordError for dtypes that kernels do not take."""
    build = Builder(rank)
    at = [dim(d) for d in range(rank)]
    x = build.load(build.input(source, rank), at)
    build.store(build.output(target, rank), at, scalar.cast(x, target))
    return build.finish()


def single_step(node: Node, place_of: PlaceOf, result: Place) -> MadeStep | None:
    """The step of an operator that is a group of its own: pointwise, over rows, or one that moves elements."""
    op = entry_of(node)
    if op is None or has_own_effect(node):
        return None
    if op.kind == "view":
        return _converted(node, place_of, result) if converts(node, place_of, result) else None
    facts = Facts()
    try:
        # What no index map or expression says is refused here, and not looked at when it is lowered.
        facts.of(node).require()
        lowered = lower([node], node.outputs, facts)
    except NotFused:
        return None
    ins = [p for v in lowered.inputs if (p := place_of(v)) is not None]
    outs = [p for v in lowered.outputs if (p := place_of(v)) is not None]
    if len(ins) != len(lowered.inputs) or len(outs) != len(lowered.outputs):
        return None
    step = group_step(lowered, ins, outs, node.kind)
    return None if step is None else (step, lowered.inputs)
