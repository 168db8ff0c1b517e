"""The whole operator table: importing this module declares every family.

The order of families is part of overload resolution: overloads of one name are tried in the order they were declared.
"""

from __future__ import annotations

from gpujit.ops.registry import Op, by_full_name, by_name, registered

__all__ = ["Op", "by_full_name", "by_name", "historic", "registered"]


def historic(name: str, version: int) -> dict[str, Op]:
    """Entries, by overload, that stand in for today's in files of that format version."""
    return {}
