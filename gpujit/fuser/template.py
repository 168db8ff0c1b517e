"""Recorded operators with places for their operands, kept for every operator, dtypes and arguments that came up.

Recording runs an operator's body; putting other operands into what was recorded is much cheaper, and nodes repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

from gpujit.fuser.errors import NotFused
from gpujit.fuser.tensors import dtype_of, shape_of
from gpujit.ir import scalar
from gpujit.ir.graph import Value
from gpujit.ir.recorded import Recorded
from gpujit.ir.scalar import ROW_OPS, SCANS, Expr, RecordError, instructions, walk
from gpujit.ops.record import record
from gpujit.ops.registry import Op
from gpujit.support.errors import GpujitError

# What depends on the order in which the elements of a row come.
_IN_ORDER = SCANS | {"argmax", "argmin"}
_LIMIT = 8192


@dataclass(frozen=True)
class Template:
    """``results`` and ``checks`` as ``ops.record`` gives them, over leaves: ``leaves[i]`` stands for an element of
    argument i. An argument that only its dtype or shape is asked of has none."""

    results: tuple[Expr, ...]
    checks: tuple[tuple[Expr, str], ...]
    leaves: Mapping[int, Expr]

    @cached_property
    def cost(self) -> int:
        """Roughly how many instructions an element takes."""
        return instructions(self.results)

    @cached_property
    def has_rows(self) -> bool:
        """Whether it needs rows."""
        return any(x.op in ROW_OPS for x in walk(self.results))

    @cached_property
    def has_scan(self) -> bool:
        """Whether it makes running sums and the like."""
        return any(x.op in SCANS for x in walk(self.results))

    @cached_property
    def is_in_order(self) -> bool:
        """Whether the order of a row's elements matters."""
        return any(x.op in _IN_ORDER for x in walk(self.results))

    def filled(self, operands: Mapping[int, Expr]) -> tuple[tuple[Expr, ...], tuple[tuple[Expr, str], ...]]:
        """Results and checks for operands by position."""
        done: dict[Expr, Expr] = {leaf: operands[i] for i, leaf in self.leaves.items()}
        for x in walk((*self.results, *(c for c, _ in self.checks))):
            if x not in done:
                done[x] = _rebuilt(x, tuple([done[y] for y in x.operands]))
        return tuple([done[x] for x in self.results]), tuple([(done[c], text) for c, text in self.checks])


def _rebuilt(x: Expr, operands: tuple[Expr, ...]) -> Expr:
    # Casts and choices between constants come out as constants again.
    if x.op == "cast":
        return scalar.cast(operands[0], x.dtype)
    if x.op == "where":
        return scalar.where(*operands)
    return Expr(x.op, operands, x.dtype, x.value)


_templates: dict[str, Template | str] = {}
_lock = Lock()


def template_of(op: Op, arguments: Sequence[Any]) -> Template:
    """The template of an operator for arguments by position. Raises NotFused with the reason there is none."""
    shown = []
    for x in arguments:
        if isinstance(x, Value):
            shown.append(f"{dtype_of(x)}[{len(shape_of(x))}]")
        elif isinstance(x, list) and any(isinstance(v, Value) for v in x):
            raise NotFused(f"{op.full_name} takes a list of tensors")
        else:
            shown.append(repr(x))
    key = f"{op.full_name}({', '.join(shown)})"
    found = _templates.get(key)
    if found is None:
        found = _made(op, arguments)
        with _lock:
            if len(_templates) >= _LIMIT:
                _templates.clear()
            _templates[key] = found
    if isinstance(found, str):
        raise NotFused(found)
    return found


def _made(op: Op, arguments: Sequence[Any]) -> Template | str:
    leaves: dict[int, Expr] = {}
    values: list[Any] = []
    for i, x in enumerate(arguments):
        if isinstance(x, Value):
            leaves[i] = Expr("input", (), dtype_of(x))
            x = Recorded(leaves[i], len(shape_of(x)))
        values.append(x)
    try:
        recording = record(op, values)
    except (RecordError, GpujitError) as fault:
        return fault.message
    used = set(walk((*recording.results, *(c for c, _ in recording.checks))))
    return Template(recording.results, recording.checks, {i: x for i, x in leaves.items() if x in used})
