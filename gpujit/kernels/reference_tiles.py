"""Runs tile programs in NumPy as compiled kernels do: tile by tile, pass by pass over rows in pieces, edges masked.

It shows that a program does not depend on the order of its points, and that what ``schedule.passes`` says suffices.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpujit.ir.dtypes import kind_of
from gpujit.kernels.reference import Functions, Points, State, no_functions, reduce_row
from gpujit.kernels.schedule import passes
from gpujit.kernels.tile import Reduce, TileError, TileProgram


def run_tiles(
    program: TileProgram,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    sizes: Sequence[int],
    params: Sequence[int] = (),
    functions: Functions = no_functions,
    tile: Sequence[int] | None = None,
) -> None:
    """``reference.run`` in tiles of ``tile`` places along each dim (3 by default); it raises the same errors."""
    state = State(program, inputs, outputs, sizes, params, functions)
    lengths = tuple(tile) if tile is not None else (3,) * program.dims
    outer = program.dims - program.rows
    with np.errstate(all="ignore"):
        for first in _starts(sizes[:outer], lengths[:outer]):
            _run_rows(state, first, lengths)


def _starts(sizes: Sequence[int], lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(0, n, step) for n, step in zip(sizes, lengths, strict=True)))


def _run_rows(state: State, first: tuple[int, ...], lengths: tuple[int, ...]) -> None:
    """All passes over the rows of one tile."""
    program, sizes = state.program, state.sizes
    outer = len(first)
    row_sizes = sizes[outer:]
    # One place stands for the whole row, which may be empty, in what is the same along it.
    ones = (1,) * len(row_sizes)
    whole = Points((*first, *(0 for _ in row_sizes)), (*lengths[:outer], *ones), (*sizes[:outer], *ones))
    row_values: dict[int, Any] = {}
    for work in passes(program):
        for v in work.row:
            row_values[v] = state.compute(program.body[v], row_values, whole)
        for effect in work.row_effects:
            state.perform(effect, row_values, whole)
        if not work.full and not work.reduces and not work.effects:
            continue
        partial: dict[int, Any] = {}
        running: dict[int, Any] = {}
        for start in _starts(row_sizes, lengths[outer:]):
            points = Points((*first, *start), lengths, sizes)
            values = dict(row_values)
            for v in work.full:
                item = program.body[v]
                values[v] = state.compute(item, values, points)
                if isinstance(item, Reduce):
                    # A running value goes on from the piece before, along the last dim.
                    if start[-1] and v in running:
                        step = np.add if item.op == "cumsum" else np.multiply
                        values[v] = step(running[v], values[v])
                    running[v] = values[v][..., -1:]
            for effect in work.effects:
                state.perform(effect, values, points)
            for v in work.reduces:
                partial[v] = _take_in(state, v, values, points, partial.get(v))
        for v in work.reduces:
            row_values[v] = _result(state, v, partial.get(v), lengths[:outer])


def _take_in(state: State, number: int, values: dict[int, Any], points: Points, before: Any) -> Any:
    """The reduction so far, with one more piece of the row."""
    program, item = state.program, state.program.body[number]
    assert isinstance(item, Reduce)
    x = np.broadcast_to(values[item.operand], points.shape)
    inside = np.broadcast_to(points.inside, points.shape)
    if item.op in ("argmax", "argmin"):
        return _take_in_place(state, item, x, inside, points, before)
    y = reduce_row(item, np.where(inside, x, _neutral(item.op, x.dtype)), points.shape, program.rows)
    if before is None:
        return y
    step = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "any": np.logical_or,
            "all": np.logical_and}[item.op]  # fmt: skip
    return step(before, y)


def _neutral(op: str, dtype: np.dtype) -> Any:
    if op in ("sum", "any"):
        return dtype.type(0)
    if op in ("prod", "all"):
        return dtype.type(1)
    low = op in ("max", "argmax")
    if kind_of(dtype) == 0:
        return np.bool_(not low)
    if kind_of(dtype) == 1:
        return np.iinfo(dtype).min if low else np.iinfo(dtype).max
    return np.asarray(-np.inf if low else np.inf).astype(dtype)


def _take_in_place(state: State, item: Reduce, x: Any, inside: Any, points: Points, before: Any) -> Any:
    """The best number and its place in the row so far: NaN beats all, the earlier place beats an equal one."""
    rows, sizes = state.program.rows, state.sizes
    outer = len(sizes) - rows
    at: Any = 0
    for d in state.program.row_dims:
        at = at * sizes[d] + points.grid[d]
    flat = x.reshape(*points.shape[:outer], -1)
    places = np.broadcast_to(at, points.shape).reshape(flat.shape)
    valid = inside.reshape(flat.shape)
    # A place of -1 is none yet.
    nothing = np.full(flat.shape[:-1], -1)
    best, where = before if before is not None else (np.zeros(nothing.shape, x.dtype), nothing)
    for k in range(flat.shape[-1]):
        number, place, ok = flat[..., k], places[..., k], valid[..., k]
        beats = number > best if item.op == "argmax" else number < best
        nan, nan_best = number != number, best != best
        equal = (number == best) | (nan & nan_best)
        takes = ok & ((where < 0) | ((nan | beats) & ~nan_best) | (equal & (place < where)))
        best, where = np.where(takes, number, best), np.where(takes, place, where)
    return best, where


def _result(state: State, number: int, partial: Any, lengths: Sequence[int]) -> Any:
    program, item = state.program, state.program.body[number]
    assert isinstance(item, Reduce)
    shape = (*lengths, *(1,) * program.rows)
    if partial is None:
        if item.op not in ("sum", "prod", "any", "all"):
            raise TileError(f"tile: {item.op} of an empty row")
        return np.full(shape, _neutral(item.op, item.dtype), item.dtype)
    if item.op in ("argmax", "argmin"):
        return np.asarray(partial[1]).reshape(shape).astype(item.dtype)
    return np.asarray(partial).astype(item.dtype)
