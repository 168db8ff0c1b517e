"""How entries say what kernels are recorded from, where their bodies do not: ``OPAQUE`` functions, ``Rows``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpujit.ops.axes import axes_of

# A pointwise entry whose body cannot be recorded (its loops end by the data): it becomes a call by name.
OPAQUE: Final = "opaque"


@dataclass(frozen=True, slots=True)
class Rows:
    """What an operator over rows does to one row, as a body for a ``Recorder``.

    ``body`` takes what the entry's body takes, with a Recorded in place of each tensor, and returns one Recorded or a
    tuple of them: results of ``m.sum`` and its like are one number for each row, all others have an element for each of
    the row.

    Args:
        axes: the dims a row lies along, from the number of dims of the first tensor and the arguments by position; None
            stands for all of them. A number of dims that a row covers from the end is common: see ``last_dims``.
        keeps: whether dims of results with one number a row stay, as dims of size 1; from the arguments.
        aligned: for tensors beside the first, by their argument's name, the dim of the first tensor that their dim 0
            lies along; the others broadcast.
        groups: how many groups dim 1 of the first tensor is split into, from the arguments; None when it is not.
            ``axes`` then count the groups and what is in one as two dims.
        exact: tensors of half types arrive as they are, and results stay as they are.
    """

    axes: Callable[[int, Sequence[Any]], tuple[int, ...] | None]
    body: Callable[..., Any]
    keeps: Callable[[Sequence[Any]], bool] = lambda args: False
    aligned: Mapping[str, int] = field(default_factory=dict)
    groups: Callable[[Sequence[Any]], int] | None = None
    exact: bool = False


def dims_at(position: int, op: str) -> Callable[[int, Sequence[Any]], tuple[int, ...] | None]:
    """Rows along the dims that the argument at ``position`` names: a dim, a list of them, or None for all."""
    return lambda ndim, args: axes_of(ndim, args[position], op)


def listed_dims_at(position: int, op: str) -> Callable[[int, Sequence[Any]], tuple[int, ...] | None]:
    """As ``dims_at``, except that an empty list names no dims."""
    return lambda ndim, args: () if args[position] == [] else axes_of(ndim, args[position], op)


def all_dims(ndim: int, args: Sequence[Any]) -> tuple[int, ...] | None:
    """One row of all elements."""
    return None


def no_dims(ndim: int, args: Sequence[Any]) -> tuple[int, ...] | None:
    """No rows: element by element, for the sake of ``aligned``."""
    return ()


def by_element(body: Callable[..., Any]) -> Rows:
    """What an operator that is not declared as pointwise does to one element, dtypes being its own affair."""
    return Rows(no_dims, body, exact=True)


def dims_from(first: int) -> Callable[[int, Sequence[Any]], tuple[int, ...] | None]:
    """Rows along all dims from ``first`` on."""
    return lambda ndim, args: tuple(range(first, ndim))


def last_dims(position: int) -> Callable[[int, Sequence[Any]], tuple[int, ...] | None]:
    """Rows along as many of the last dims as the list at ``position`` is long."""
    return lambda ndim, args: tuple(range(ndim - len(args[position]), ndim))


def flag_at(position: int) -> Callable[[Sequence[Any]], bool]:
    """The bool argument at ``position``."""
    return lambda args: bool(args[position])
