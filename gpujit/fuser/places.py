"""Index expressions over dims of known sizes: simpler where the sizes show how, and where finer dims would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpujit.kernels.index import DIM, DIV, MOD, Atom, Index, div, index, mod

# More than any offset.
_ENDLESS = 1 << 62


def simplified(i: Index, sizes: Sequence[int]) -> Index:
    """An equal index with fewer div and mod; dim k runs from 0 up to before ``sizes[k]``."""
    return Sized(sizes).simplified(i)


def bounds(i: Index, sizes: Sequence[int]) -> tuple[int, int]:
    """The smallest and the largest number it may be, as far as is seen."""
    return Sized(sizes).bounds(i)


class Sized:
    """What is known of indices when dim k runs from 0 up to before ``sizes[k]``. A div or mod, which may be in many
    places of one index and of others, is looked at once."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self._simpler: dict[Atom, Index] = {}
        self._bounds: dict[Atom, tuple[int, int]] = {}

    def simplified(self, i: Index) -> Index:
        """See the function."""
        if not i.divisions:
            return i
        total = index(0)
        for product, factor in i.terms:
            term = index(factor)
            for atom in product:
                term = term * (self._apart(atom) if atom.args else Index((((atom,), 1),)))
            total = total + term
        return total

    def _apart(self, atom: Atom) -> Index:
        found = self._simpler.get(atom)
        if found is None:
            found = self._simpler[atom] = self._taken_apart(atom)
        return found

    def _taken_apart(self, atom: Atom) -> Index:
        a, b = map(self.simplified, atom.args)
        n = b.constant
        if n is not None and n > 0:
            whole = index(0)
            rest = index(0)
            for product, factor in a.terms:
                if factor % n == 0:
                    whole = whole + Index(((product, factor // n),))
                else:
                    rest = rest + Index(((product, factor),))
            low, high = self.bounds(rest)
            if low >= 0 and high < n:
                return whole if atom.kind == DIV else rest
        return div(a, b) if atom.kind == DIV else mod(a, b)

    def bounds(self, i: Index) -> tuple[int, int]:
        """See the function."""
        low = high = 0
        for product, factor in i.terms:
            ends = [factor]
            for atom in product:
                least, most = self._bounds_of(atom)
                ends = [e * x for e in ends for x in (least, most)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def _bounds_of(self, atom: Atom) -> tuple[int, int]:
        found = self._bounds.get(atom)
        if found is None:
            found = self._bounds[atom] = self._ends(atom)
        return found

    def _ends(self, atom: Atom) -> tuple[int, int]:
        if atom.kind == DIM:
            return 0, max(self.sizes[atom.number] - 1, 0)
        if atom.args:
            n = atom.args[1].constant
            if n is not None and n > 0:
                low, high = self.bounds(atom.args[0])
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
