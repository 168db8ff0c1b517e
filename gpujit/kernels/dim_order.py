"""Programs whose results lie in memory in another order than their dims, as programs over the dims in memory's order.

Then a call on permuted arrays is one on contiguous arrays, with its kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpujit.kernels.index import DIM, SIZE, Atom, Index, dim, size
from gpujit.kernels.schedule import Strides, accesses
from gpujit.kernels.tile import Bound, Effect, Inside, Instruction, Load, Position, Store, TileProgram, verify

# A program, its arrays' strides and its sizes.
Call = tuple[TileProgram, Sequence[Strides], Sequence[Strides], Sequence[int]]


def in_memory_order(
    program: TileProgram,
    inputs: Sequence[Strides],
    outputs: Sequence[Strides],
    sizes: Sequence[int],
    params: Sequence[int],
) -> Call:
    """An equal call in which outer dims come in the order of the first result's steps, the longest first, and the dims
    of each array in the order of its strides; the call itself where a result lies in the order of its dims."""
    order = _order(program, inputs, outputs, sizes, params)
    if order == list(range(program.dims)):
        return program, inputs, outputs, sizes
    new = {old: number for number, old in enumerate(order)}

    def renamed(a: Atom) -> Index | None:
        if a.kind == DIM:
            return dim(new[a.number])
        return size(new[a.number]) if a.kind == SIZE else None

    # The places of each array's dims, in their new order.
    ins, outs = [_descending(s) for s in inputs], [_descending(s) for s in outputs]

    def coords(item: Load | Store) -> tuple[Index, ...]:
        places = (outs if isinstance(item, Store) else ins)[item.array]
        return tuple(item.coords[k].replace(renamed) for k in places)

    def changed(item: Instruction) -> Instruction:
        if isinstance(item, Load):
            return replace(item, coords=coords(item))
        if isinstance(item, Position):
            return replace(item, index=item.index.replace(renamed))
        if isinstance(item, Inside):
            found = (Bound(*(i.replace(renamed) for i in (b.low, b.index, b.high))) for b in item.bounds)
            return replace(item, bounds=tuple(found))
        return item

    def effect(item: Effect) -> Effect:
        return replace(item, coords=coords(item)) if isinstance(item, Store) else item

    turned = replace(program, body=tuple(map(changed, program.body)), effects=tuple(map(effect, program.effects)))
    return (
        verify(turned),
        [tuple(s[k] for k in places) for s, places in zip(inputs, ins, strict=True)],
        [tuple(s[k] for k in places) for s, places in zip(outputs, outs, strict=True)],
        [sizes[d] for d in order],
    )


def _order(
    program: TileProgram,
    inputs: Sequence[Strides],
    outputs: Sequence[Strides],
    sizes: Sequence[int],
    params: Sequence[int],
) -> list[int]:
    """The dims in the order in which they lie in the first result; rows, and programs without results, as they are."""
    plain = list(range(program.dims))
    if program.rows or not outputs or all(list(s) == sorted(s, reverse=True) for s in outputs):
        return plain
    store = next(a for a in accesses(program, inputs, outputs, sizes, params) if a.is_store)
    if any(not s for s, n in zip(store.steps, sizes, strict=True) if n != 1):
        return plain
    # Dims of size 1 stay where they are: behind the dim before them.
    keys: list[int] = []
    for d in plain:
        keys.append(abs(store.steps[d] or 0) if sizes[d] != 1 or not keys else keys[-1])
    return sorted(plain, key=lambda d: -keys[d])


def _descending(strides: Strides) -> list[int]:
    return sorted(range(len(strides)), key=lambda k: -abs(strides[k]))
