"""Sizes that are not numbers: integer expressions over symbols, in a normal form, with bounds.

A ``Sym`` is a sum of products of atoms with integer coefficients. Atoms are symbols (``SS(-1)``, a size that is the
same wherever it stands) and, opaque to arithmetic, ``floordiv``, ``mod``, ``min`` and ``max`` of expressions.
Expressions are equal when their normal forms are. Text: ``2*SS(-1)*SS(-2)+floordiv(SS(-1), 2)-3``; it parses back,
bounds excepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

Bound = int | None
# Larger expressions are given up: their size would grow without end.
MAX_TERMS = 32
MAX_DEPTH = 8
_LARGEST = 1 << 62


class TooLong(Exception):
    """An expression outgrew MAX_TERMS, MAX_DEPTH or 64 bits; what it stands for counts as not known."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """One unknown size, from ``low`` to ``high`` (None: no limit). Symbols are equal when their numbers are."""

    number: int
    low: int = field(default=1, compare=False)
    high: Bound = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"SS({-self.number})"


@dataclass(frozen=True, slots=True)
class Call:
    """``floordiv``, ``mod``, ``min`` or ``max`` of two expressions, which arithmetic does not look into."""

    name: str
    args: tuple[Size, Size]

    def __str__(self) -> str:
        return f"{self.name}({self.args[0]}, {self.args[1]})"


Atom = Symbol | Call
Monomial = tuple[Atom, ...]


class Sym:
    """An expression that is no plain number; made by ``symbol`` and arithmetic. Immutable."""

    __slots__ = ("__dict__", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: tuple[tuple[Monomial, int], ...] = tuple(sorted(terms.items(), key=_order))

    @cached_property
    def depth(self) -> int:
        """How deeply calls are nested."""
        return max((_depth(atom) for monomial, _ in self.terms for atom in monomial), default=0)

    @cached_property
    def text(self) -> str:
        """The expression as it is printed."""
        out = ""
        for monomial, factor in self.terms:
            sign = "-" if factor < 0 else "+" if out else ""
            shown = "*".join(map(str, monomial))
            number = str(abs(factor))
            out += sign + (number if not shown else shown if abs(factor) == 1 else f"{number}*{shown}")
        return out

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sym) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)


Size = int | Sym


def symbol(number: int, low: int = 1, high: Bound = None) -> Sym:
    """The symbol ``SS(-number)`` as an expression; by default a size of at least 1."""
    return Sym({(Symbol(number, low, high),): 1})


def symbols_in(size: Size | None) -> Iterator[Symbol]:
    """The symbols an expression is made of."""
    if isinstance(size, Sym):
        for monomial, _ in size.terms:
            for atom in monomial:
                if isinstance(atom, Symbol):
                    yield atom
                else:
                    for part in atom.args:
                        yield from symbols_in(part)


def _atom_order(atom: Atom) -> tuple[int, int, str]:
    return (0, atom.number, "") if isinstance(atom, Symbol) else (1, 0, str(atom))


def _order(term: tuple[Monomial, int]) -> tuple[int, list[tuple[int, int, str]]]:
    # Long products first, the plain number last.
    return (-len(term[0]), [_atom_order(a) for a in term[0]])


def _depth(atom: Atom) -> int:
    if isinstance(atom, Symbol):
        return 0
    return 1 + max((part.depth for part in atom.args if isinstance(part, Sym)), default=0)


def _terms(size: Size) -> dict[Monomial, int]:
    return dict(size.terms) if isinstance(size, Sym) else {(): size} if size else {}


def _made(terms: dict[Monomial, int]) -> Size:
    kept = {m: f for m, f in terms.items() if f}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    if len(kept) > MAX_TERMS or any(abs(f) > _LARGEST for f in kept.values()) or any(len(m) > 12 for m in kept):
        raise TooLong
    return Sym(kept)


def _called(name: str, a: Size, b: Size) -> Size:
    made = Sym({(Call(name, (a, b)),): 1})
    if made.depth > MAX_DEPTH:
        raise TooLong
    return made


# ------------------------------------------------------------------------------------------------------ arithmetic


def add(a: Size, b: Size) -> Size:
    """``a + b``. Raises TooLong, as do the others."""
    terms = _terms(a)
    for monomial, factor in _terms(b).items():
        terms[monomial] = terms.get(monomial, 0) + factor
    return _made(terms)


def neg(a: Size) -> Size:
    """``-a``."""
    return _made({m: -f for m, f in _terms(a).items()})


def sub(a: Size, b: Size) -> Size:
    """``a - b``."""
    return add(a, neg(b))


def mul(a: Size, b: Size) -> Size:
    """``a * b``."""
    terms: dict[Monomial, int] = {}
    for m, f in _terms(a).items():
        for n, g in _terms(b).items():
            product = tuple(sorted((*m, *n), key=_atom_order))
            terms[product] = terms.get(product, 0) + f * g
        if len(terms) > 4 * MAX_TERMS:
            raise TooLong
    return _made(terms)


def _divided(
    terms: Mapping[Monomial, int], by: tuple[Monomial, int]
) -> tuple[dict[Monomial, int], dict[Monomial, int]]:
    """The quotient of the terms that a product divides, and the terms it does not."""
    atoms, factor = by
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, f in terms.items():
        left = list(monomial)
        fits = f % factor == 0
        for atom in atoms:
            if atom in left:
                left.remove(atom)
            else:
                fits = False
        if fits:
            key = tuple(left)
            whole[key] = whole.get(key, 0) + f // factor
        else:
            rest[monomial] = f
    return whole, rest


def floordiv(a: Size, b: Size) -> Size:
    """``a // b``, rounded down; ``b`` must not be 0 (ZeroDivisionError when it is surely)."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 1:
        return a
    terms = _terms(b)
    if not terms:
        raise ZeroDivisionError
    if a == b and bounds(b)[0] is not None and is_positive(b):
        return 1
    if len(terms) == 1 and is_positive(b):
        # floor((x*b + r) / b) is x + floor(r / b).
        whole, rest = _divided(_terms(a), next(iter(terms.items())))
        if whole or not rest:
            remaining = _made(rest)
            return add(_made(whole), _small_quotient(remaining, b))
    return _small_quotient(a, b)


def _small_quotient(a: Size, b: Size) -> Size:
    if a == 0:
        return 0
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    low, high = bounds(a)
    least, most = bounds(b)
    if low is not None and high is not None and least is not None and low >= 0 and high < least:
        return 0
    if isinstance(b, int) and b > 0 and low is not None and high is not None and low // b == high // b:
        return low // b
    del most
    return _called("floordiv", a, b)


def mod(a: Size, b: Size) -> Size:
    """``a % b`` as in Python, with the sign of ``b``."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    terms = _terms(b)
    if not terms:
        raise ZeroDivisionError
    if len(terms) == 1 and is_positive(b):
        _, rest = _divided(_terms(a), next(iter(terms.items())))
        a = _made(rest)
        if a == 0:
            return 0
        if isinstance(a, int) and isinstance(b, int):
            return a % b
    low, high = bounds(a)
    least, _ = bounds(b)
    if low is not None and high is not None and least is not None and low >= 0 and high < least:
        return a
    return _called("mod", a, b)


def minimum(a: Size, b: Size) -> Size:
    """The smaller of two expressions."""
    low, high = bounds(sub(a, b))
    if high is not None and high <= 0:
        return a
    if low is not None and low >= 0:
        return b
    return _called("min", *sorted((a, b), key=str))


def maximum(a: Size, b: Size) -> Size:
    """The larger of two expressions."""
    low, high = bounds(sub(a, b))
    if low is not None and low >= 0:
        return a
    if high is not None and high <= 0:
        return b
    return _called("max", *sorted((a, b), key=str))


# --------------------------------------------------------------------------------------------------------- bounds


def bounds(size: Size) -> tuple[Bound, Bound]:
    """Numbers between which the expression surely lies; None where there is no such number."""
    if isinstance(size, int):
        return size, size
    found = size.__dict__.get("bounds")
    if found is None:
        found = size.__dict__["bounds"] = _bounds(size)
    return found


def _bounds(size: Sym) -> tuple[Bound, Bound]:
    low: Bound = 0
    high: Bound = 0
    for monomial, factor in size.terms:
        a, b = _product_bounds(monomial)
        a, b = (_scaled(a, factor), _scaled(b, factor)) if factor > 0 else (_scaled(b, factor), _scaled(a, factor))
        low = None if low is None or a is None else low + a
        high = None if high is None or b is None else high + b
    return low, high


def _scaled(n: Bound, factor: int) -> Bound:
    return None if n is None else n * factor


def _product_bounds(monomial: Monomial) -> tuple[Bound, Bound]:
    low: Bound = 1
    high: Bound = 1
    for atom in monomial:
        a, b = _atom_bounds(atom)
        if a is None or a < 0 or low is None:
            if len(monomial) == 1:
                return a, b
            return None, None
        low = low * a
        high = None if high is None or b is None else high * b
    return low, high


def _atom_bounds(atom: Atom) -> tuple[Bound, Bound]:
    if isinstance(atom, Symbol):
        return atom.low, atom.high
    (a, b), (c, d) = bounds(atom.args[0]), bounds(atom.args[1])
    if atom.name == "min":
        highs = [n for n in (b, d) if n is not None]
        return (None if a is None or c is None else min(a, c)), (min(highs) if highs else None)
    if atom.name == "max":
        lows = [n for n in (a, c) if n is not None]
        return (max(lows) if lows else None), (None if b is None or d is None else max(b, d))
    if c is None or c < 1:
        return None, None
    if atom.name == "mod":
        return 0, None if d is None else d - 1
    # Rounding down keeps order; a larger divisor brings the quotient nearer to 0.
    low = None if a is None else a // c if a < 0 else 0 if d is None else a // d
    high = None if b is None else b // c if b >= 0 else -1 if d is None else b // d
    return low, high


def is_positive(size: Size) -> bool:
    """Whether the expression surely is at least 1."""
    low, _ = bounds(size)
    return low is not None and low >= 1


# -------------------------------------------------------------------------------------------------- values and text


def evaluate(size: Size, values: Mapping[int, int]) -> int:
    """The number an expression is when symbols (by number) have these values. Raises KeyError for a missing one."""
    if isinstance(size, int):
        return size
    total = 0
    for monomial, factor in size.terms:
        product = factor
        for atom in monomial:
            product *= values[atom.number] if isinstance(atom, Symbol) else _call(atom, values)
        total += product
    return total


def _call(atom: Call, values: Mapping[int, int]) -> int:
    a, b = (evaluate(part, values) for part in atom.args)
    if atom.name == "floordiv":
        return a // b
    if atom.name == "mod":
        return a % b
    return min(a, b) if atom.name == "min" else max(a, b)


_TOKEN = re.compile(r"\s*(?:(\d{1,18})|SS\(\s*(-?\d{1,9})\s*\)|(floordiv|mod|min|max)\s*\(|([-+*(),]))")
_FUNCTIONS = {"floordiv": floordiv, "mod": mod, "min": minimum, "max": maximum}


def parse(text: str, pos: int, depth: int = 0) -> tuple[Size, int] | None:
    """The expression at a place in a text and where it ends; None when there is none."""
    if depth > 2 * MAX_DEPTH:
        return None
    total: Size = 0
    sign = 1
    m = _TOKEN.match(text, pos)
    if m is not None and m.group(4) == "-":
        sign, pos = -1, m.end()
    try:
        while True:
            product: Size = sign
            while True:
                found = _parse_factor(text, pos, depth)
                if found is None:
                    return None
                product, pos = mul(product, found[0]), found[1]
                m = _TOKEN.match(text, pos)
                if m is None or m.group(4) != "*":
                    break
                pos = m.end()
            total = add(total, product)
            if m is None or m.group(4) not in ("+", "-"):
                return total, pos
            sign, pos = (1 if m.group(4) == "+" else -1), m.end()
    except (TooLong, ZeroDivisionError):
        return None


def _parse_factor(text: str, pos: int, depth: int) -> tuple[Size, int] | None:
    m = _TOKEN.match(text, pos)
    if m is None:
        return None
    if m.group(1):
        return int(m.group(1)), m.end()
    if m.group(2):
        number = -int(m.group(2))
        return symbol(number), m.end()
    if not m.group(3):
        return None
    name, args, pos = m.group(3), [], m.end()
    for close in (",", ")"):
        found = parse(text, pos, depth + 1)
        if found is None:
            return None
        args.append(found[0])
        end = _TOKEN.match(text, found[1])
        if end is None or end.group(4) != close:
            return None
        pos = end.end()
    return _FUNCTIONS[name](args[0], args[1]), pos
