"""Views as index maps: where an element of the result lies in the operand.

Each function takes the place ``coords`` of an element of a view's result, one ``Index`` per dim, and returns its
place in the operand; those that leave parts of the result to something else (pad, cat, stack) return bounds beside it.
Maps of views on views are these functions applied one after the other, from the result back.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpujit.kernels.index import Index, div, index, mod
from gpujit.kernels.tile import Bound

Coords = tuple[Index, ...]
Place = tuple[Coords, tuple[Bound, ...]]


def permute(coords: Coords, dims: Sequence[int]) -> Coords:
    """Of a result whose dim i is the operand's dim ``dims[i]``."""
    found = list(coords)
    for at, d in zip(coords, dims, strict=True):
        found[d] = at
    return tuple(found)


def expand(coords: Coords, repeated: Sequence[bool]) -> Coords:
    """Of a broadcast operand, aligned at the last dim; ``repeated[i]``: its dim i has size 1, and is spread."""
    kept = coords[len(coords) - len(repeated) :]
    return tuple(index(0) if r else at for at, r in zip(kept, repeated, strict=True))


def select(coords: Coords, dim: int, at: Index | int) -> Coords:
    """Of the part at one place along ``dim`` of the operand."""
    return (*coords[:dim], index(at), *coords[dim:])


def squeeze(coords: Coords, dims: Sequence[int]) -> Coords:
    """Of a result without the operand's dims ``dims``, all of size 1."""
    found = list(coords)
    for d in sorted(dims):
        found.insert(d, index(0))
    return tuple(found)


def unsqueeze(coords: Coords, dim: int) -> Coords:
    """Of a result with one more dim, of size 1, at ``dim``."""
    return (*coords[:dim], *coords[dim + 1 :])


def slice_(coords: Coords, dim: int, start: Index | int, step: Index | int = 1) -> Coords:
    """Of every ``step``-th place along ``dim`` from ``start`` on."""
    return _changed(coords, dim, start + coords[dim] * step)


def flip(coords: Coords, dims: Sequence[int], sizes: Sequence[Index | int]) -> Coords:
    """Of an operand turned round along ``dims``, whose sizes are ``sizes``."""
    for d, n in zip(dims, sizes, strict=True):
        coords = _changed(coords, d, n - 1 - coords[d])
    return coords


def roll(coords: Coords, dim: int, start: Index | int, size: Index | int) -> Coords:
    """Of an operand moved round along ``dim``: its place ``start``, from 0 to size - 1, comes first."""
    return _changed(coords, dim, mod(coords[dim] + start, size))


def reshape(
    coords: Coords,
    result: Sequence[int],
    operand: Sequence[int],
    result_sizes: Sequence[Index | int],
    operand_sizes: Sequence[Index | int],
) -> Coords:
    """Of the same elements in the same order under another shape.

    ``result`` and ``operand`` are the shapes in numbers, which decide how dims merge and split; ``result_sizes`` and
    ``operand_sizes`` the same shapes as the program writes them.
    """
    found: list[Index] = [index(0)] * len(operand)
    i = j = 0
    while i < len(operand) and j < len(result):
        # The smallest groups of dims that hold equally many elements; without any elements all is one group.
        first_i, first_j, have, want = i, j, operand[i], result[j]
        i, j = i + 1, j + 1
        while have != want or have == 0:
            if i == len(operand) and j == len(result):
                break
            if j == len(result) or (i < len(operand) and have <= want):
                have, i = have * operand[i], i + 1
            else:
                want, j = want * result[j], j + 1
        flat = index(0)
        for k in range(first_j, j):
            if result[k] != 1:
                flat = flat * result_sizes[k] + coords[k]
        inner = [k for k in range(first_i, i) if operand[k] != 1]
        for k in reversed(inner[1:]):
            found[k] = mod(flat, operand_sizes[k])
            flat = div(flat, operand_sizes[k])
        if inner:
            found[inner[0]] = flat
    return tuple(found)


def pad(coords: Coords, pads: Sequence[tuple[int, Index | int, Index | int]]) -> Place:
    """Of an operand with more places around it: (dim, places before it, its size) for each dim that grew."""
    bounds = []
    for d, before, n in pads:
        coords = _changed(coords, d, coords[d] - before)
        bounds.append(Bound(index(0), coords[d], index(n)))
    return coords, tuple(bounds)


def cat(coords: Coords, dim: int, sizes: Sequence[Index | int]) -> list[Place]:
    """Of operands one after the other along ``dim``, where they have ``sizes``; one place for each."""
    places: list[Place] = []
    start = index(0)
    for n in sizes:
        at = coords[dim] - start
        places.append((_changed(coords, dim, at), (Bound(index(0), at, index(n)),)))
        start = start + n
    return places


def stack(coords: Coords, dim: int, count: int) -> list[Place]:
    """Of ``count`` operands along a new dim ``dim``; one place for each."""
    at = coords[dim]
    return [(unsqueeze(coords, dim), (Bound(index(k), at, index(k + 1)),)) for k in range(count)]


def _changed(coords: Coords, dim: int, at: Index) -> Coords:
    return (*coords[:dim], at, *coords[dim + 1 :])
