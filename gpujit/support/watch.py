"""Who watches what runs in a block of a program: a profiler, which sees calls and lends arenas that keep time.

Two variables, each asked once a call: one where a module is called, one where a planned graph takes an arena.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol


class Watch(Protocol):
    """What watches."""

    def wants(self) -> bool:
        """Whether it wants to see the call that comes now; it may pass over some, so as to cost little."""

    def call(self, target: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``run(*args, **kwargs)``, a call of ``target`` from outside; calls inside it are not seen."""

    def arena(self, graph: Any, plan: Any) -> Any:
        """An arena for a run of a planned graph, which is given back."""

    def give_back(self, graph: Any, arena: Any) -> None:
        """Take an arena back."""

    def recorder(self, graph: Any, plan: Any) -> Any:
        """What does a run of a graph on a device, and takes down when its steps began and ended
        (``static_runtime.device_clock.DeviceRecorder``)."""


# The watch that may want to see a call from outside, and, inside such a call, the one that lends arenas; None where
# nobody watches.
entering: ContextVar[Watch | None] = ContextVar("gpujit_entering", default=None)
running: ContextVar[Watch | None] = ContextVar("gpujit_running", default=None)


def unwatched() -> None:
    """Have nobody watch what runs in this context from now on."""
    entering.set(None)
    running.set(None)
