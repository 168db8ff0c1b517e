"""Which constants of a program lie in the same memory."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np


class ConstantMemory:
    """Groups constant arrays whose memory overlaps (views of one storage)."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []
        self._starts: list[int] | None = None
        # Keeps the arrays alive: addresses are only comparable among living ones.
        self._kept: list[Any] = []

    def add(self, value: Any) -> None:
        """Take an array in; other values are left alone."""
        span = _span(value)
        if span is not None:
            self._spans.append(span)
            self._kept.append(value)
            self._starts = None

    def group(self, value: Any) -> int | None:
        """The group of an array that was added; None for what was not, and for what has no address."""
        span = _span(value)
        if span is None or not self._spans:
            return None
        if self._starts is None:
            self._merge()
        assert self._starts is not None
        at = bisect_right(self._starts, span[0]) - 1
        if at < 0 or self._spans[at][1] < span[1]:
            return None
        return at

    def _merge(self) -> None:
        merged: list[tuple[int, int]] = []
        for start, end in sorted(self._spans):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        self._spans = merged
        self._starts = [start for start, _ in merged]


def _span(value: Any) -> tuple[int, int] | None:
    """First and last address of an array, None when it has none to compare (on a GPU, quantised, empty)."""
    if not isinstance(value, np.ndarray) or not value.size:
        return None
    start, end = np.lib.array_utils.byte_bounds(value)
    return start, end
