"""Native steps that put tensors together: ``cat``, ``stack``, borders that mirror what is inside."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any

from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.graph import Node, Value
from gpujit.kernels.templates import pieces
from gpujit.kernels.templates.pieces import Piece
from gpujit.passes.nodes import elements_of, known
from gpujit.static_runtime.native import Made, of_template
from gpujit.static_runtime.places import Place
from gpujit.support.errors import ArgumentError, InternalError

# Floats above which a library's copies take no longer, and share nothing with the steps around them.
MOST_FLOATS = 1 << 16


def native_assembly(node: Node, place_of: Callable[[Value], Place | None], result: Place) -> Made | None:
    """The native step of a node that puts float32 tensors together; None for others and for large ones."""
    reader = _READERS.get(node.kind)
    if reader is None or result.dtype != FLOAT32 or prod(result.shape) > MOST_FLOATS:
        return None
    found = reader(node, place_of, result)
    if found is None:
        return None
    parts, operands = found
    try:
        return of_template(pieces.bind(parts, len(operands))), operands
    except (ArgumentError, InternalError):
        return None


Found = tuple[list[Piece], list[Value]]


def _float(value: Value, place_of: Callable[[Value], Place | None]) -> Place | None:
    place = place_of(value)
    return None if place is None or place.dtype != FLOAT32 or place.steps is None else place


def _joined(node: Node, place_of: Callable[[Value], Place | None], result: Place, is_new: bool) -> Found | None:
    """Tensors side by side along a dim, which is a new one for ``stack``."""
    operands, dim = elements_of(node.inputs[0]), known(node.inputs[1])
    if operands is None or type(dim) is not int:
        return None
    rank = len(result.shape)
    if not rank or not -rank <= dim < rank:
        return None
    dim %= rank
    parts: list[Piece] = []
    first = 0
    for k, value in enumerate(operands):
        place = _float(value, place_of)
        if place is None or place.steps is None or len(place.shape) != rank - is_new:
            return None
        shape, steps = place.shape, place.steps
        size = 1 if is_new else shape[dim]
        if is_new:
            shape, steps = (*shape[:dim], 1, *shape[dim:]), (*steps[:dim], 0, *steps[dim:])
        if (*shape[:dim], *shape[dim + 1 :]) != (*result.shape[:dim], *result.shape[dim + 1 :]):
            return None
        rows, inner = _run(shape[:dim], steps[:dim]), _run(shape[dim:], steps[dim:])
        if rows is None or inner is None:
            return None
        behind = prod(result.shape[dim + 1 :])
        parts.append(
            Piece(k, prod(shape[:dim]), prod(shape[dim:]), 0, rows, inner, first * behind, result.shape[dim] * behind)
        )
        first += size
    return (parts, operands) if operands and first == result.shape[dim] else None


def _run(shape: tuple[int, ...], steps: tuple[int, ...]) -> int | None:
    """The one stride at which all elements of these dims lie; None when there is none."""
    dims = [(n, s) for n, s in zip(shape, steps, strict=True) if n != 1]
    if not dims:
        return 1
    for (_, outer), (n, inner) in pairwise(dims):
        if outer != n * inner:
            return None
    return dims[-1][1]


def _padded(node: Node, place_of: Callable[[Value], Place | None], result: Place) -> Found | None:
    """Rows with borders that mirror what is inside."""
    x, pad, *rest = node.inputs
    sizes = known(pad)
    is_mirrored = node.kind == "aten::reflection_pad1d" or (bool(rest) and known(rest[0]) == "reflect")
    place = _float(x, place_of)
    if not is_mirrored or not _are_ints(sizes, 2) or place is None or place.steps is None or not place.shape:
        return None
    left, right = sizes
    length, step = place.shape[-1], place.steps[-1]
    rows, row = prod(place.shape[:-1]), _run(place.shape[:-1], place.steps[:-1])
    whole = left + length + right
    if row is None or not (0 <= left < length and 0 <= right < length):
        return None
    if result.shape != (*place.shape[:-1], whole):
        return None
    parts = [
        Piece(0, rows, left, left * step, row, -step, 0, whole),
        Piece(0, rows, length, 0, row, step, left, whole),
        Piece(0, rows, right, (length - 2) * step, row, -step, left + length, whole),
    ]
    return [p for p in parts if p.length], [x]


def _are_ints(numbers: Any, count: int) -> bool:
    return isinstance(numbers, list) and len(numbers) == count and all(type(n) is int for n in numbers)


_READERS: dict[str, Callable[[Node, Callable[[Value], Place | None], Place], Found | None]] = {
    "aten::cat": lambda node, place_of, result: _joined(node, place_of, result, is_new=False),
    "aten::stack": lambda node, place_of, result: _joined(node, place_of, result, is_new=True),
    "aten::pad": _padded,
    "aten::reflection_pad1d": _padded,
}
