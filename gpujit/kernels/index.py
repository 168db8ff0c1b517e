"""Index expressions: whole numbers computed from the place in an iteration space and from run-time sizes.

An ``Index`` is a polynomial with whole coefficients over atoms: dims ``d0`` and their sizes ``n0``, run-time numbers
``p0``, values ``%0`` of the program (gathers), and ``div`` and ``mod`` of two index expressions. It is kept in one
normal form, so that equal maps have equal text. ``div`` and ``mod`` are defined for a first operand that is not
negative and a second above 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

DIM, SIZE, PARAM, VALUE, DIV, MOD = "d", "n", "p", "%", "div", "mod"


@dataclass(frozen=True)
class Atom:
    """``kind`` and ``number`` of a dim, size, parameter or value; ``args`` of a div or mod.

    While a program is being built the number of a value is the expression itself.
    """

    kind: str
    number: Any = None
    args: tuple[Index, ...] = ()

    def __str__(self) -> str:
        return self._text

    def __hash__(self) -> int:
        return self._hash

    # Both are asked for again and again, and go down all that is in a div or mod.

    @cached_property
    def _text(self) -> str:
        if self.args:
            return f"{self.kind}({self.args[0]}, {self.args[1]})"
        return f"{self.kind}{self.number}"

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.number, self.args))

    def __reduce__(self) -> tuple[Any, ...]:
        # Without what is kept: hashes differ from process to process.
        return Atom, (self.kind, self.number, self.args)


Product = tuple[Atom, ...]


@dataclass(frozen=True)
class Index:
    """The sum of ``terms``: products of atoms, each with its factor; ordered by text, no factor 0."""

    terms: tuple[tuple[Product, int], ...] = ()

    def __str__(self) -> str:
        return self._text

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __reduce__(self) -> tuple[Any, ...]:
        return Index, (self.terms,)

    @cached_property
    def _text(self) -> str:
        shown = ""
        for product, factor in self.terms:
            sign = "-" if factor < 0 else "+"
            parts = [str(a) for a in product]
            if abs(factor) != 1 or not parts:
                parts.append(str(abs(factor)))
            term = "*".join(parts)
            shown += f" {sign} {term}" if shown else f"-{term}" if factor < 0 else term
        return shown or "0"

    @property
    def constant(self) -> int | None:
        """The number it is, None when it is not one."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    def __add__(self, other: Index | int) -> Index:
        return _sum([*self.terms, *index(other).terms])

    __radd__ = __add__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: Index | int) -> Index:
        return self + index(other) * -1

    def __rsub__(self, other: Index | int) -> Index:
        return index(other) - self

    def __mul__(self, other: Index | int) -> Index:
        return _sum((a + b, x * y) for a, x in self.terms for b, y in index(other).terms)

    __rmul__ = __mul__

    def atoms(self) -> frozenset[Atom]:
        """All atoms in it, those inside div and mod included."""
        return self._atoms

    def dims(self) -> frozenset[int]:
        """The dims it names."""
        return self._dims

    def values(self) -> tuple[Any, ...]:
        """The values it names, in order of their text."""
        return self._values

    @cached_property
    def _atoms(self) -> frozenset[Atom]:
        found: set[Atom] = set()
        for product, _ in self.terms:
            found.update(product)
            for atom in product:
                for arg in atom.args:
                    found |= arg._atoms
        return frozenset(found)

    @cached_property
    def divisions(self) -> int:
        """How many different div and mod are in it."""
        return sum(bool(a.args) for a in self._atoms)

    @cached_property
    def _dims(self) -> frozenset[int]:
        return frozenset(a.number for a in self._atoms if a.kind == DIM)

    @cached_property
    def _values(self) -> tuple[Any, ...]:
        return tuple(a.number for a in sorted((a for a in self._atoms if a.kind == VALUE), key=str))

    def factor_of(self, dim: int) -> Index | None:
        """What it grows by from one ``d{dim}`` to the next; None when that is not the same everywhere."""
        steps: list[tuple[Product, int]] = []
        for product, factor in self.terms:
            count = sum(a.kind == DIM and a.number == dim for a in product)
            inside = any(dim in arg.dims() for a in product for arg in a.args)
            if count > 1 or inside:
                return None
            if count:
                rest = tuple(a for a in product if not (a.kind == DIM and a.number == dim))
                if any(a.kind in (DIM, VALUE) or a.args for a in rest):
                    return None
                steps.append((rest, factor))
        return _sum(steps)

    def replace(self, change: Callable[[Atom], Index | None]) -> Index:
        """It with some atoms replaced; ``change`` returns None for those that stay."""
        total = index(0)
        for product, factor in self.terms:
            term = index(factor)
            for atom in product:
                new = change(atom)
                if new is None and atom.args:
                    make = div if atom.kind == DIV else mod
                    new = make(atom.args[0].replace(change), atom.args[1].replace(change))
                term = term * (Index((((atom,), 1),)) if new is None else new)
            total = total + term
        return total

    def evaluate(self, known: Mapping[tuple[str, Any], Any]) -> Any:
        """Its number, from those of its atoms by (kind, number): integers or arrays of them."""
        total: Any = 0
        for product, factor in self.terms:
            term: Any = factor
            for atom in product:
                if atom.args:
                    a, b = (arg.evaluate(known) for arg in atom.args)
                    term = term * (a // b if atom.kind == DIV else a % b)
                else:
                    term = term * known[atom.kind, atom.number]
            total = total + term
        return total


def _sum(terms: Iterable[tuple[Product, int]]) -> Index:
    found: dict[Product, int] = {}
    for product, factor in terms:
        key = tuple(sorted(product, key=str))
        found[key] = found.get(key, 0) + factor
    left = [(product, factor) for product, factor in found.items() if factor]
    # Numbers alone come last.
    return Index(tuple(sorted(left, key=lambda t: (not t[0], [str(a) for a in t[0]]))))


def index(value: Index | int) -> Index:
    """An index expression of a number; itself when it is one."""
    if isinstance(value, Index):
        return value
    return Index((((), int(value)),)) if value else Index()


def _atom(kind: str, number: Any) -> Index:
    return Index((((Atom(kind, number),), 1),))


def dim(k: int) -> Index:
    """The place along dim ``k``."""
    return _atom(DIM, k)


def size(k: int) -> Index:
    """How many places dim ``k`` has."""
    return _atom(SIZE, k)


def param(k: int) -> Index:
    """The run-time number ``k``."""
    return _atom(PARAM, k)


def value(number: Any) -> Index:
    """The value ``number`` of the program."""
    return _atom(VALUE, number)


def _split(a: Index, b: Index) -> tuple[Index, Index] | None:
    """(q, r) with a = q * b + r where r is surely at least 0 and less than b; None when it is not seen."""
    if len(b.terms) != 1 or b.terms[0][1] <= 0:
        return None
    divisor, factor = b.terms[0]
    quotient: list[tuple[Product, int]] = []
    rest: list[tuple[Product, int]] = []
    for product, f in a.terms:
        left = list(product)
        for atom in divisor:
            if atom not in left:
                break
            left.remove(atom)
        else:
            if f % factor == 0:
                quotient.append((tuple(left), f // factor))
                continue
        rest.append((product, f))
    r = _sum(rest)
    number = r.constant
    if number is not None:
        below = number == 0 or (0 < number < factor and not divisor)
    else:
        # A place along the dim whose size is the divisor.
        below = (
            len(r.terms) == 1
            and r.terms[0][1] == 1
            and len(r.terms[0][0]) == 1
            and r.terms[0][0][0].kind == DIM
            and factor == 1
            and divisor == (Atom(SIZE, r.terms[0][0][0].number),)
        )
    return (_sum(quotient), r) if below else None


def div(a: Index | int, b: Index | int) -> Index:
    """a / b without its fraction, simplified where that is seen."""
    a, b = index(a), index(b)
    split = _split(a, b)
    return split[0] if split else Index((((Atom(DIV, None, (a, b)),), 1),))


def mod(a: Index | int, b: Index | int) -> Index:
    """What ``div`` leaves of ``a``."""
    a, b = index(a), index(b)
    split = _split(a, b)
    return split[1] if split else Index((((Atom(MOD, None, (a, b)),), 1),))
