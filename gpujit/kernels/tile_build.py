"""Building tile programs from recorded expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BOOL_, INT64
from gpujit.ir.scalar import ROW_OPS, Expr, const
from gpujit.kernels.index import VALUE, Index, index, param, value
from gpujit.kernels.tile import (
    ArrayType,
    Bound,
    Call,
    Check,
    Compute,
    Const,
    Count,
    Effect,
    Inside,
    Instruction,
    Load,
    Position,
    Reduce,
    Store,
    TileError,
    TileProgram,
    verify,
)


class Builder:
    """Collects the expressions of a program; ``finish`` makes it.

    Values are ``ir.scalar.Expr`` nodes, whose leaves come from ``load``, ``position`` and ``inside``.
    """

    def __init__(self, dims: int, rows: int = 0) -> None:
        self.dims, self.rows, self.params = dims, rows, 0
        self.inputs: list[ArrayType] = []
        self.outputs: list[ArrayType] = []
        self._effects: list[tuple[Any, ...]] = []

    def input(self, dtype: np.dtype, rank: int) -> int:
        """The number of a new input."""
        self.inputs.append(ArrayType(np.dtype(dtype), rank))
        return len(self.inputs) - 1

    def output(self, dtype: np.dtype, rank: int) -> int:
        """The number of a new output."""
        self.outputs.append(ArrayType(np.dtype(dtype), rank))
        return len(self.outputs) - 1

    def param(self) -> Index:
        """A new run-time integer."""
        self.params += 1
        return param(self.params - 1)

    def load(
        self, array: int, coords: Sequence[Index | int], mask: Expr | None = None, other: bool | int | float = 0
    ) -> Expr:
        """An element of an input; ``other`` where the mask does not hold."""
        where = tuple(index(c) for c in coords)
        dtype = self.inputs[array].dtype
        number = const(other, dtype).value
        operands = () if mask is None else (mask,)
        return Expr("input", operands, dtype, ("load", array, where, number))

    def position(self, at: Index | int) -> Expr:
        """An index as an int64 number."""
        return Expr("input", (), INT64, ("position", index(at)))

    def inside(self, *bounds: Bound) -> Expr:
        """Whether all bounds hold."""
        return Expr("input", (), BOOL_, ("inside", bounds))

    def store(self, array: int, coords: Sequence[Index | int], x: Expr, mask: Expr | None = None) -> None:
        """Write ``x`` into an output."""
        self._effects.append(("store", array, tuple(index(c) for c in coords), x, mask))

    def check(self, condition: Expr, message: str) -> None:
        """Let the run fail where the condition does not hold."""
        self._effects.append(("check", condition, message))

    def finish(self) -> TileProgram:
        """The verified program."""
        numbering = _Numbering()
        effects: list[Effect] = []
        for effect in self._effects:
            if effect[0] == "check":
                item: Effect = Check(numbering.number(effect[1]), effect[2])
            else:
                _, array, coords, x, mask = effect
                v = numbering.number(x)
                m = None if mask is None else numbering.number(mask)
                item = Store(array, tuple(numbering.resolve(c) for c in coords), v, m)
            if item not in effects:
                effects.append(item)
        return verify(
            TileProgram(
                tuple(self.inputs),
                tuple(self.outputs),
                self.dims,
                self.rows,
                self.params,
                tuple(numbering.body),
                tuple(effects),
            )
        )


class _Numbering:
    """Gives expressions their place in a body; equal ones share it."""

    def __init__(self) -> None:
        self.body: list[Instruction] = []
        self._places: dict[Instruction, int] = {}
        # Expressions are kept alive, so that an id stays one node's.
        self._done: dict[int, tuple[Expr, int]] = {}

    def number(self, root: Expr) -> int:
        stack = [root]
        while stack:
            x = stack[-1]
            if id(x) in self._done:
                stack.pop()
                continue
            waiting = [y for y in (*x.operands, *_values_of(x)) if id(y) not in self._done]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            self._done[id(x)] = (x, self._place(self._instruction(x)))
        return self._done[id(root)][1]

    def resolve(self, i: Index) -> Index:
        """The index with values as numbers instead of expressions."""
        found = i.values()
        if not found:
            return i
        for x in found:
            self.number(x)
        return i.replace(lambda a: value(self._done[id(a.number)][1]) if a.kind == VALUE else None)

    def _place(self, item: Instruction) -> int:
        found = self._places.get(item)
        if found is None:
            found = self._places[item] = len(self.body)
            self.body.append(item)
        return found

    def _instruction(self, x: Expr) -> Instruction:
        operands = tuple(self._done[id(y)][1] for y in x.operands)
        if x.op == "const":
            return Const(x.value, x.dtype)
        if x.op == "count":
            return Count(x.dtype)
        if x.op == "call":
            return Call(x.value, operands, x.dtype)
        if x.op in ROW_OPS:
            return Reduce(x.op, operands[0], x.dtype)
        if x.op != "input":
            return Compute(x.op, operands, x.dtype)
        kind, *what = x.value if isinstance(x.value, tuple) else (None,)
        if kind == "load":
            array, coords, other = what
            where = tuple(self.resolve(c) for c in coords)
            if not operands:
                return Load(array, where, x.dtype)
            return Load(array, where, x.dtype, operands[0], Const(other, x.dtype))
        if kind == "position":
            return Position(self.resolve(what[0]))
        if kind == "inside":
            bounds = (Bound(*(self.resolve(i) for i in (b.low, b.index, b.high))) for b in what[0])
            return Inside(tuple(sorted(bounds, key=lambda b: (str(b.index), str(b.low), str(b.high)))))
        raise TileError(f"tile: a leaf {x.value!r} that this builder did not make")


def _values_of(x: Expr) -> list[Expr]:
    if x.op != "input" or not isinstance(x.value, tuple):
        return []
    kind, *what = x.value
    if kind == "load":
        found = what[1]
    elif kind == "position":
        found = (what[0],)
    else:
        found = tuple(i for b in what[0] for i in (b.low, b.index, b.high))
    return [v for i in found for v in i.values()]
