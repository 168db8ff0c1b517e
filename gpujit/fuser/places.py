"""Index expressions over dims of known sizes: simpler where the sizes show how, and where finer dims would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpujit.kernels.index import DIM, DIV, MOD, Atom, Index, div, index, mod

# More than any offset.
_ENDLESS = 1 << 62


def simplified(i: Index, sizes: Sequence[int]) -> Index:
    """An equal index with fewer div and mod; dim k runs from 0 up to before ``sizes[k]``."""
    if not any(a.args for a in i.atoms()):
        return i
    total = index(0)
    for product, factor in i.terms:
        term = index(factor)
        for atom in product:
            term = term * (_apart(atom, sizes) if atom.args else Index((((atom,), 1),)))
        total = total + term
    return total


def _apart(atom: Atom, sizes: Sequence[int]) -> Index:
    a, b = (simplified(x, sizes) for x in atom.args)
    n = b.constant
    if n is not None and n > 0:
        whole = index(0)
        rest = index(0)
        for product, factor in a.terms:
            if factor % n == 0:
                whole = whole + Index(((product, factor // n),))
            else:
                rest = rest + Index(((product, factor),))
        low, high = bounds(rest, sizes)
        if low >= 0 and high < n:
            return whole if atom.kind == DIV else rest
    return div(a, b) if atom.kind == DIV else mod(a, b)


def bounds(i: Index, sizes: Sequence[int]) -> tuple[int, int]:
    """The smallest and the largest number it may be, as far as is seen."""
    low = high = 0
    for product, factor in i.terms:
        ends = [factor]
        for atom in product:
            least, most = _bounds_of(atom, sizes)
            ends = [e * x for e in ends for x in (least, most)]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _bounds_of(atom: Atom, sizes: Sequence[int]) -> tuple[int, int]:
    if atom.kind == DIM:
        return 0, max(sizes[atom.number] - 1, 0)
    if atom.args:
        n = atom.args[1].constant
        if n is not None and n > 0:
            low, high = bounds(atom.args[0], sizes)
            return (max(low, 0) // n, max(high, 0) // n) if atom.kind == DIV else (0, n - 1)
    return -_ENDLESS, _ENDLESS


def breaks(i: Index, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Dims, each with the size of the inner one of two parts into which it would have to be split to get rid of a div
    or mod."""
    for atom in i.atoms():
        if atom.kind not in (DIV, MOD):
            continue
        n = atom.args[1].constant
        if n is None:
            continue
        for product, factor in atom.args[0].terms:
            if len(product) != 1 or product[0].kind != DIM or factor <= 0 or n % factor:
                continue
            d, inner = product[0].number, n // factor
            if 1 < inner < sizes[d] and sizes[d] % inner == 0:
                yield d, inner


def flat(place: Sequence[Index], shape: Sequence[int]) -> Index:
    """The number of an element in the order of memory of a contiguous array."""
    total = index(0)
    for at, n in zip(place, shape, strict=True):
        total = total * n + at
    return total
