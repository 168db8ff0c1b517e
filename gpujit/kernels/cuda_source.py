"""Lines of Python source with their indentation, and places at which values of a program have names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field


class Source:
    """Lines under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block under ``head``; ``pass`` when nothing is written."""
        self.line(head)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    @contextmanager
    def guarded(self, condition: str | None) -> Iterator[None]:
        """A block under ``if``, or none when there is no condition."""
        if condition is None:
            yield
            return
        with self.block(f"if {condition}:"):
            yield


@dataclass
class Spot:
    """A place in the code at which values are computed; those of the spots around it are known here too.

    ``width`` copies of each value that varies along the lanes: the first for the place ``lane`` along the lanes' dim.
    ``index`` names the place along the other dims. ``valid`` is the condition under which this place exists. Names of
    values computed here end with ``mark``.
    """

    outer: Spot | None = None
    width: int = 1
    lane: str | None = None
    index: Mapping[int, str] = field(default_factory=dict)
    valid: str | None = None
    mark: str = ""
    values: dict[int, tuple[str, ...]] = field(default_factory=dict)
    offsets: dict[str, str] = field(default_factory=dict)

    def find(self, value: int) -> tuple[str, ...] | None:
        """The names of a value's copies; None when it is not known here."""
        spot: Spot | None = self
        while spot is not None:
            found = spot.values.get(value)
            if found is not None:
                return found
            spot = spot.outer
        return None

    def place(self, dim: int, lane_dim: int) -> str:
        """The place along a dim, that of the first copy."""
        spot: Spot | None = self
        while spot is not None:
            if dim == lane_dim and spot.lane is not None:
                return spot.lane
            if dim != lane_dim and dim in spot.index:
                return spot.index[dim]
            spot = spot.outer
        raise KeyError(dim)
