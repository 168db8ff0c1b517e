"""Plans whose code was at hand get the quickest code later, compiled in the background for sizes that come back.

Both give the same numbers, to the last bit (see ``kernels.templates.choice``), so that a plan may be exchanged between
any two calls.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from gpujit.static_runtime.native import Maker
from gpujit.support.errors import GpujitError


class Exchanged(Protocol):
    """What has a plan that can be exchanged."""

    def exchange(self, maker: Maker) -> bool:
        """Make the plan with this maker, and use it from the next call on; whether it has other code. Raises
        GpujitError."""


@dataclass
class Quicker:
    """What to do about quicker code for one plan, and what became of that.

    Args:
        maker: makes native steps of the quickest code.
        is_wanted: whether the plan, which is there by then, has other code.
        submit: has something done when there is nothing else to do.
    """

    maker: Maker
    is_wanted: Callable[[], bool]
    submit: Callable[[Callable[[], object]], object]
    is_asked: bool = False
    is_tried: bool = False
    is_done: bool = False
    fault: str = ""

    def ask(self, graph: Exchanged) -> None:
        """Have the plan exchanged, unless that was asked before. It is not, if nobody holds the graph by then."""
        if not self.is_asked and self.is_wanted():
            self.is_asked = True
            self.submit(partial(self._exchange, weakref.ref(graph)))

    def _exchange(self, ref: weakref.ref[Exchanged]) -> None:
        graph = ref()
        if graph is None:
            return
        try:
            self.is_done |= graph.exchange(self.maker)
        except GpujitError as fault:
            self.fault = fault.message
        self.is_tried = True

    def __str__(self) -> str:
        if self.is_done:
            return "the quickest kernels for these sizes, compiled in the background, have taken the first ones' place"
        if not self.is_wanted() or (self.is_tried and not self.fault):
            # What was tried was not taken, or it made no difference.
            return ""
        if self.fault:
            return f"its kernels were at hand; the quickest for these sizes cannot be had: {self.fault}"
        return "its kernels were at hand; the quickest for these sizes are compiled in the background once it is used"
