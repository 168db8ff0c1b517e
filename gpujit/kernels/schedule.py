"""In which order a tile program is worked through, which dims may merge, and along which one memory is contiguous.

All of it follows from the program and from the strides of a call; nothing here knows a target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpujit.kernels.index import DIM, PARAM, SIZE, Index, dim, index, param, size
from gpujit.kernels.tile import (
    ArrayType,
    Bound,
    Effect,
    Inside,
    Instruction,
    Load,
    Position,
    Reduce,
    Store,
    TileProgram,
    indexes_of,
    operands_of,
    verify,
)

# Strides of one array, in elements.
Strides = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """One run over a row, for each row.

    First ``row`` values are computed and ``row_effects`` happen, once. Then at each point of the row: the values
    ``full`` in this order (of which ``repeated`` were computed in an earlier pass too), then ``effects``; ``reduces``
    take their operands in. When the run is over the results of ``reduces`` are there.
    """

    row: tuple[int, ...]
    row_effects: tuple[Effect, ...]
    full: tuple[int, ...]
    repeated: tuple[int, ...]
    reduces: tuple[int, ...]
    effects: tuple[Effect, ...]


def passes(program: TileProgram) -> tuple[Pass, ...]:
    """The passes, in order. A program without row dims has one, in which all values are ``full``."""
    row_dims = frozenset(program.row_dims)
    in_row = [bool(v & row_dims) or not row_dims for v in program.varies]
    stages: list[int] = []
    for number, item in enumerate(program.body):
        stage = max((stages[v] for v in operands_of(item)), default=0)
        stages.append(stage + (isinstance(item, Reduce) and not in_row[number]))

    def effect_at(effect: Effect) -> tuple[int, bool]:
        values = operands_of(effect)
        named = frozenset().union(*(i.dims() for i in indexes_of(effect)))
        full = any(in_row[v] for v in values) or bool(named & row_dims) or not row_dims
        return max(stages[v] for v in values), full

    placed = [(effect, *effect_at(effect)) for effect in program.effects]
    reduces = [n for n, item in enumerate(program.body) if isinstance(item, Reduce) and not in_row[n]]
    count = 1 + max([s for _, s, _ in placed] + [stages[n] for n in reduces], default=0)
    found: list[Pass] = []
    seen: set[int] = set()
    for s in range(count):
        here = tuple(n for n in reduces if stages[n] == s + 1)
        effects = tuple(e for e, at, full in placed if at == s and full)
        roots = [v for n in here for v in operands_of(program.body[n])] + [v for e in effects for v in operands_of(e)]
        full = _closure(program, roots, in_row)
        row = (n for n, at in enumerate(stages) if at == s and not in_row[n] and n not in reduces)
        found.append(
            Pass(
                tuple(row),
                tuple(e for e, at, is_full in placed if at == s and not is_full),
                full,
                tuple(v for v in full if v in seen),
                here,
                effects,
            )
        )
        seen.update(full)
    return tuple(found)


def _closure(program: TileProgram, roots: Sequence[int], in_row: Sequence[bool]) -> tuple[int, ...]:
    """The values that ``roots`` need at each point of a row, themselves included, in order."""
    needed: set[int] = set()
    stack = [v for v in roots if in_row[v]]
    while stack:
        v = stack.pop()
        if v not in needed:
            needed.add(v)
            stack.extend(u for u in operands_of(program.body[v]) if in_row[u])
    return tuple(sorted(needed))


def index_bits(shapes: Sequence[Sequence[int]], strides: Sequence[Strides], sizes: Sequence[int]) -> int:
    """32 when every offset and the number of points fit 32 bits with a sign, else 64; of all arrays of a call."""
    points = 1
    for n in sizes:
        points *= max(n, 1)
    largest = [sum((n - 1) * abs(t) for n, t in zip(shape, s, strict=True)) for shape, s in zip(shapes, strides)]
    return 32 if max([points, *largest]) < 1 << 31 else 64


# ---------------------------------------------------------------------------------------------- steps in memory


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store: the array, and how far its offset moves from one place to the next along each dim.

    A step is in elements; None when it is not the same everywhere.
    """

    is_store: bool
    array: int
    steps: tuple[int | None, ...]


def moves(program: TileProgram) -> list[Load | Store]:
    """Loads and stores, in the order of ``accesses``."""
    return [item for item in (*program.body, *program.effects) if isinstance(item, (Load, Store))]


def is_even(item: Load | Store, access: Access) -> bool:
    """Whether the offset grows evenly along all dims from a number that is known before the run."""
    return all(s is not None for s in access.steps) and not any(c.values() for c in item.coords)


def offset_at_zero(
    item: Load | Store,
    inputs: Sequence[Strides],
    outputs: Sequence[Strides],
    sizes: Sequence[int],
    params: Sequence[int],
) -> int:
    """The offset in elements at the first point of the space; its indexes must not name values."""
    known = {(SIZE, k): n for k, n in enumerate(sizes)} | {(PARAM, k): n for k, n in enumerate(params)}
    strides = (outputs if isinstance(item, Store) else inputs)[item.array]
    at_zero = (c.replace(lambda a: index(0) if a.kind == DIM else None) for c in item.coords)
    return int(sum(c.evaluate(known) * s for c, s in zip(at_zero, strides, strict=True)))


def accesses(
    program: TileProgram,
    inputs: Sequence[Strides],
    outputs: Sequence[Strides],
    sizes: Sequence[int],
    params: Sequence[int],
) -> tuple[Access, ...]:
    """All loads and stores of a program, with the steps they take in a call with these strides."""
    known = {(SIZE, k): n for k, n in enumerate(sizes)} | {(PARAM, k): n for k, n in enumerate(params)}
    found: list[Access] = []
    for item in moves(program):
        strides = (outputs if isinstance(item, Store) else inputs)[item.array]
        steps: list[int | None] = []
        for d in range(program.dims):
            total: int | None = 0
            for at, stride in zip(item.coords, strides, strict=True):
                factor = at.factor_of(d)
                if total is None or factor is None or any(d in program.varies[v] for v in at.values()):
                    total = None
                else:
                    total += factor.evaluate(known) * stride
            steps.append(total)
        found.append(Access(isinstance(item, Store), item.array, tuple(steps)))
    return tuple(found)


def lane_dim(program: TileProgram, found: Sequence[Access], sizes: Sequence[int]) -> int | None:
    """The dim to lay vector lanes along: that of the most contiguous bytes; None for a program of one point.

    Stores count twice, a step of 0 counts half; what happens once for each row counts nothing. Among equals the last
    dim that is not 1 long.
    """
    inner = [a for a in found if any(a.steps[d] != 0 for d in program.row_dims)]
    found = inner or found
    best: tuple[float, int] | None = None
    for d in range(program.dims):
        if sizes[d] == 1:
            continue
        score = 0.0
        for access in found:
            array = (program.outputs if access.is_store else program.inputs)[access.array]
            weight = array.dtype.itemsize * (2.0 if access.is_store else 1.0)
            score += weight if access.steps[d] == 1 else weight / 2 if access.steps[d] == 0 else 0
        if best is None or score >= best[0]:
            best = (score, d)
    return None if best is None else best[1]


# ------------------------------------------------------------------------------------------------ merging dims


@dataclass(frozen=True, slots=True)
class Merge:
    """An array whose dims ``dim`` and ``dim + 1`` become one, with the stride of the second.

    ``shifts`` are what indexes add to the first dim, and the parameter that is added to the one in its place.
    """

    is_output: bool
    array: int
    dim: int
    shifts: tuple[tuple[Index, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Collapsed:
    """A program of fewer dims for the same call, its arrays' strides, and what became of the arrays, in this order.

    ``params`` are those of the call, and further ones.
    """

    program: TileProgram
    sizes: tuple[int, ...]
    inputs: tuple[Strides, ...]
    outputs: tuple[Strides, ...]
    merges: tuple[Merge, ...]
    params: tuple[int, ...] = ()

    @property
    def with_a_dim(self) -> Collapsed:
        """The same, of at least one dim: a program of a single point is one over a dim of size 1."""
        if self.program.dims:
            return self
        return replace(self, program=replace(self.program, dims=1), sizes=(1,))


def collapse(
    program: TileProgram,
    inputs: Sequence[Strides],
    outputs: Sequence[Strides],
    sizes: Sequence[int],
    params: Sequence[int] = (),
    longest: int | None = None,
) -> Collapsed:
    """The program with neighbouring dims merged where all arrays lie in memory as if they were one.

    Only dims that arrays are indexed with as they are, or shifted (a slice), merge; dims inside sums, masks and
    positions stay. The last dim is not made longer than ``longest``.
    """
    ins, outs, lengths, numbers = list(inputs), list(outputs), list(sizes), list(params)
    merges: list[Merge] = []
    d = program.dims - 2
    while d >= 0:
        is_long = longest is not None and d == program.dims - 2 and lengths[d] * lengths[d + 1] > longest
        found = None if is_long else _merges_at(program, d, ins, outs, lengths, numbers)
        if found is not None:
            whole, numbers = found
            program = _merged(program, d, whole, len(numbers))
            for merge in whole:
                strides = (outs if merge.is_output else ins)[merge.array]
                shorter = strides[: merge.dim] + strides[merge.dim + 1 :]
                (outs if merge.is_output else ins)[merge.array] = shorter
            lengths[d : d + 2] = [lengths[d] * lengths[d + 1]]
            merges.extend(whole)
        d -= 1
    return Collapsed(program, tuple(lengths), tuple(ins), tuple(outs), tuple(merges), tuple(numbers))


def _merges_at(
    program: TileProgram,
    d: int,
    inputs: Sequence[Strides],
    outputs: Sequence[Strides],
    sizes: Sequence[int],
    params: Sequence[int],
) -> tuple[list[Merge], list[int]] | None:
    """How arrays change when dims d and d + 1 become one, and all parameters then; None when they cannot."""
    if (d in program.row_dims) != (d + 1 in program.row_dims) or _has_scan(program, d + 1):
        return None
    places: dict[tuple[bool, int], set[int | None]] = {}
    shifts: dict[tuple[bool, int], dict[Index, None]] = {}
    for item in (*program.body, *program.effects):
        if not isinstance(item, (Load, Store)):
            if any({d, d + 1} & i.dims() or _names_size(i, d) for i in indexes_of(item)):
                return None
            continue
        found = _pair_at(item, d)
        if found is None:
            return None
        at, shift = found
        which = (isinstance(item, Store), item.array)
        places.setdefault(which, set()).add(at if at >= 0 else None)
        if shift.terms:
            shifts.setdefault(which, {})[shift] = None
    merges: list[Merge] = []
    numbers = list(params)
    known = {(SIZE, k): n for k, n in enumerate(sizes)} | {(PARAM, k): n for k, n in enumerate(params)}
    for (is_output, array), where in places.items():
        if where == {None}:
            continue
        if len(where) > 1:
            # One array read in two ways: its dims are one way or the other.
            return None
        (k,) = where
        assert k is not None
        strides = (outputs if is_output else inputs)[array]
        if sizes[d] != 1 and sizes[d + 1] != 1 and strides[k] != strides[k + 1] * sizes[d + 1]:
            return None
        if sizes[d + 1] == 1 and sizes[d] != 1:
            # The second stride is the one that stays, and means nothing.
            return None
        named = []
        for shift in shifts.get((is_output, array), ()):
            distance = shift.evaluate(known) * strides[k]
            step = strides[k + 1]
            if distance % step if step else distance:
                return None
            named.append((shift, len(numbers)))
            numbers.append(distance // step if step else 0)
        merges.append(Merge(is_output, array, k, tuple(named)))
    return merges, numbers


def _has_scan(program: TileProgram, d: int) -> bool:
    return d in program.row_dims and any(isinstance(i, Reduce) and i.is_scan for i in program.body)


def _names_size(i: Index, d: int) -> bool:
    return any(a.kind == SIZE and a.number in (d, d + 1) for a in i.atoms())


def _pair_at(item: Load | Store, d: int) -> tuple[int, Index] | None:
    """The array's dim that dim d indexes, followed by that of d + 1, and what is added to it; -1 when neither is named;
    None otherwise."""
    if any(_names_size(at, d) and at.dims() for at in item.coords):
        return None
    for k, at in enumerate(item.coords):
        if d in at.dims():
            shift = at - dim(d)
            others = [c for j, c in enumerate(item.coords) if j not in (k, k + 1)]
            ok = not shift.dims() and not shift.values() and k + 1 < len(item.coords)
            ok = ok and item.coords[k + 1] == dim(d + 1) and not any({d, d + 1} & c.dims() for c in others)
            return (k, shift) if ok and not any(_names_size(c, d) for c in others) else None
    return None if any(d + 1 in c.dims() or _names_size(c, d) for c in item.coords) else (-1, index(0))


def _merged(program: TileProgram, d: int, merges: Sequence[Merge], params: int) -> TileProgram:
    # d and d + 1 are d from now on, and what lies behind them moves up.
    def moved(i: Index) -> Index:
        def change(a: object) -> Index | None:
            kind, number = a.kind, a.number  # type: ignore[attr-defined]
            if kind in (DIM, SIZE) and number > d + 1:
                return dim(number - 1) if kind == DIM else size(number - 1)
            return None

        return i.replace(change)

    at = {(m.is_output, m.array): m for m in merges}

    def coords(item: Load | Store) -> tuple[Index, ...]:
        merge = at.get((isinstance(item, Store), item.array))
        if merge is None:
            return tuple(moved(c) for c in item.coords)
        k = merge.dim
        shifted = next((param(number) for shift, number in merge.shifts if item.coords[k] == dim(d) + shift), index(0))
        before, behind = map(moved, item.coords[:k]), map(moved, item.coords[k + 2 :])
        return (*before, dim(d) + shifted, *behind)

    def instruction(item: Instruction) -> Instruction:
        if isinstance(item, Load):
            return replace(item, coords=coords(item))
        if isinstance(item, Position):
            return replace(item, index=moved(item.index))
        if isinstance(item, Inside):
            return replace(item, bounds=tuple(Bound(moved(b.low), moved(b.index), moved(b.high)) for b in item.bounds))
        return item

    def arrays(types: Sequence[ArrayType], is_output: bool) -> tuple[ArrayType, ...]:
        return tuple(ArrayType(a.dtype, a.rank - ((is_output, i) in at)) for i, a in enumerate(types))

    return verify(
        replace(
            program,
            inputs=arrays(program.inputs, False),
            outputs=arrays(program.outputs, True),
            dims=program.dims - 1,
            rows=program.rows - (d in program.row_dims),
            params=params,
            body=tuple(map(instruction, program.body)),
            effects=tuple(replace(e, coords=coords(e)) if isinstance(e, Store) else e for e in program.effects),
        )
    )
