"""Why something cannot be fused."""

from __future__ import annotations


class NotFused(Exception):
    """Nodes that cannot be one program; the message says why."""
