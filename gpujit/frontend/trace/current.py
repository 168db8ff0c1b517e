"""Which trace is going on. Apart from the tracer, so that asking loads no operator."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpujit.frontend.trace.state import Tracer

CURRENT: ContextVar[Tracer | None] = ContextVar("gpujit tracer", default=None)
