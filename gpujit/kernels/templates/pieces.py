"""Arrays put together from parts of others: concatenation, stacking, borders that mirror what is inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from gpujit.kernels.target import host
from gpujit.kernels.templates.body import TemplateBody, template
from gpujit.kernels.templates.bound import BoundTemplate, Code
from gpujit.kernels.vector import Vector
from gpujit.support.errors import ArgumentError

# More arrays are put together by a library.
MOST = 16
# Floats below which one thread is as quick as the team.
WORTH_A_TEAM = 100_000


class Piece(NamedTuple):
    """``rows`` runs of ``length`` floats from array ``source``; offsets and strides are in floats.

    Args:
        step: stride within a run of the source, such as -1; runs of the result lie together.
    """

    source: int
    rows: int
    length: int
    source_offset: int
    source_row: int
    step: int
    out_offset: int
    out_row: int


class PiecesSpec(NamedTuple):
    """The code for so many arrays."""

    arrays: int
    lanes: int


def slots(arrays: int) -> tuple[str, ...]:
    """The words of the kernel's block."""
    return (*(f"x{k}" for k in range(arrays)), "out", "table", "pieces")


def render(spec: PiecesSpec) -> str:
    """The kernel's LLVM IR."""
    texts: list[str] = []
    with template(slots(spec.arrays), texts) as k:
        arrays = [k.array(f"x{n}") for n in range(spec.arrays)]
        with k.loop(0, k.word("pieces")) as piece:
            first = piece * len(Piece._fields)
            words = [k.e.load(k.array("table"), (first + n).value, "int64", 1) for n in range(len(Piece._fields))]
            _write(k, spec, arrays, words)
    return texts[0]


def _write(k: TemplateBody, spec: PiecesSpec, arrays: Sequence[ir.Value], words: Sequence[Vector]) -> None:
    """One piece, whose numbers are words."""
    number, rows, length, source_offset, source_row, step, out_offset, out_row = words
    source = arrays[0]
    for n, other in enumerate(arrays[1:], 1):
        source = k.builder.select((number == n).value, other, source)
    source, out = k.at(source, source_offset), k.at(k.array("out"), out_offset)
    low, high = k.share(rows)
    with k.loop(low, high) as row:
        line, to = k.at(source, row * source_row), k.at(out, row * out_row)
        with k.builder.if_else((step == 1).value) as (together, apart):
            with together:
                k.vector_loop(
                    length, spec.lanes, lambda i, mask: k.put(to, i, k.floats(line, i, spec.lanes, mask), mask)
                )
            with apart, k.loop(0, length) as i:
                k.put(to, i, k.floats(line, i * step, 1))


def bind(pieces: Sequence[Piece], arrays: int) -> BoundTemplate:
    """The kernel to call with that many arrays and the result. Raises ArgumentError."""
    if not pieces or not 1 <= arrays <= MOST:
        raise ArgumentError(f"{len(pieces)} pieces of {arrays} arrays: from 1 to {MOST} arrays are put together")
    if any(not 0 <= p.source < arrays or min(p.rows, p.length) < 0 for p in pieces):
        raise ArgumentError(f"a piece is of none of {arrays} arrays, or has less than nothing in it")
    spec = PiecesSpec(arrays, host().width)
    return BoundTemplate(
        Code("pieces", spec, render),
        slots(arrays),
        {"pieces": len(pieces)},
        [*(f"x{k}" for k in range(arrays)), "out"],
        constants={"table": np.array(pieces, np.int64)},
        is_small=sum(p.rows * p.length for p in pieces) < WORTH_A_TEAM,
    )
