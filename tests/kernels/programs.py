"""Tile programs of single operators, for tests of renderers: how lowering makes them, at its smallest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpujit.ir.recorded import Recorded
from gpujit.kernels import views
from gpujit.kernels.index import dim, index
from gpujit.kernels.tile import TileProgram
from gpujit.kernels.tile_build import Builder
from gpujit.ops.record import Recording, record
from gpujit.ops.registry import Op
from gpujit.ops.rows import Rows


@dataclass
class Case:
    """A program and one call of it; ``outputs`` are filled by a renderer."""

    program: TileProgram
    inputs: list[np.ndarray]
    outputs: list[np.ndarray]
    sizes: tuple[int, ...]
    params: tuple[int, ...] = ()

    def fresh(self) -> Case:
        """The same call with outputs of its own, full of something wrong."""
        outputs = [np.full_like(o, 1) for o in self.outputs]
        return Case(self.program, self.inputs, outputs, self.sizes, self.params)


def operator_case(op: Op, args: Sequence[Any]) -> Case:
    """A pointwise entry, or one over rows, of arrays and Python values, as one kernel."""
    rows_of = op.scalar if isinstance(op.scalar, Rows) else None
    tensors = [a for a in args if isinstance(a, np.ndarray)]
    shape = np.broadcast_shapes(*(a.shape for a in tensors)) if op.kind == "pointwise" else tensors[0].shape
    groups = rows_of.groups(args) if rows_of and rows_of.groups else None
    if groups is not None:
        # Dim 1 is two dims from here on.
        shape = (shape[0], groups, shape[1] // groups, *shape[2:])
    if op.kind != "pointwise" and not shape:
        # A number is a row of one.
        shape, args = (1,), [a.reshape(1) if isinstance(a, np.ndarray) and not a.ndim else a for a in args]
    rank = len(shape)
    axes: tuple[int, ...] = ()
    if op.kind != "pointwise" and rows_of is not None:
        found = rows_of.axes(rank, args)
        axes = tuple(range(rank)) if found is None else found
    rows = len(axes)
    order = [d for d in range(rank) if d not in axes] + list(axes)
    # Dim k of the space is the tensor's dim order[k].
    sizes = tuple(shape[d] for d in order)
    coords = tuple(dim(order.index(d)) for d in range(rank))
    builder = Builder(len(sizes), rows)
    arrays: list[np.ndarray] = []
    values: list[Any] = []
    aligned = rows_of.aligned if rows_of else {}
    for argument, a in zip(op.schema.arguments, args, strict=True):
        if not isinstance(a, np.ndarray):
            values.append(a)
            continue
        ndim = a.ndim
        if groups is not None:
            a = a.reshape(shape if a.ndim > 1 else (groups, -1))
        if argument.name in aligned:
            first = aligned[argument.name]
            at = coords[first : first + a.ndim] if len(coords) >= first + a.ndim else (index(0),) * a.ndim
        else:
            at = coords
        arrays.append(a)
        at = views.expand(at, [n == 1 for n in a.shape])
        values.append(Recorded(builder.load(builder.input(a.dtype, a.ndim), at), ndim))
    recording = record(op, values)
    for condition, message in recording.checks:
        builder.check(condition, message)
    return _finish(builder, recording, arrays, shape, axes, coords, sizes)


def _finish(
    builder: Builder, recording: Recording, arrays: list[np.ndarray], shape: Any, axes: Any, coords: Any, sizes: Any
) -> Case:
    outputs: list[np.ndarray] = []
    reduced = [varies_in_row(builder, r) for r in recording.results]
    for result, full in zip(recording.results, reduced, strict=True):
        if full:
            found, at = tuple(shape), coords
        elif recording.keepdim:
            found = tuple(1 if d in axes else n for d, n in enumerate(shape))
            at = tuple(index(0) if d in axes else c for d, c in enumerate(coords))
        else:
            found = tuple(n for d, n in enumerate(shape) if d not in axes)
            at = tuple(c for d, c in enumerate(coords) if d not in axes)
        outputs.append(np.ones(found, result.dtype))
        builder.store(builder.output(result.dtype, len(found)), at, result)
    return Case(builder.finish(), arrays, outputs, sizes)


def varies_in_row(builder: Builder, result: Any) -> bool:
    """Whether a result has an element for each of the row."""
    if not builder.rows:
        return True
    probe = Builder(builder.dims, builder.rows)
    probe.inputs = builder.inputs
    probe.check(_as_bool(result), "")
    program = probe.finish()
    return bool(program.varies[program.effects[0].value] & set(program.row_dims))


def _as_bool(x: Any) -> Any:
    return Recorded(x).astype(bool).expr
