"""What a process forgets when it is forked: only the thread that forked goes on there."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

Action = TypeVar("Action", bound=Callable[[], object])


def after_fork(action: Action) -> Action:
    """Have this called in every process that is forked from this one; returns it. No effect without ``fork``."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)
    return action
