"""How many threads this process may use: what is asked for, else what affinity and the container's quota allow."""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path

from gpujit.support.config import current

_CGROUP = Path("/sys/fs/cgroup")


def thread_count() -> int:
    """The switch ``threads`` when it is set, else ``available()``; at least 1."""
    wanted = current().threads
    return _available() if wanted is None else max(1, int(wanted))


@cache
def _available() -> int:
    # Asked on every call of a kernel: reading the cgroup's files each time would take longer than small kernels do.
    return available()


def available(root: Path = _CGROUP) -> int:
    """Processors this process may run on, less when a cgroup's quota (version 2 or 1, under ``root``) allows less."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = _quota(root)
    # Part of a processor still runs a thread: rounding up keeps it busy.
    return max(1, count if quota is None else min(count, math.ceil(quota)))


def _quota(root: Path) -> float | None:
    """Processors' worth of time that a container gets; None when there is no limit."""
    try:
        limit, period = (root / "cpu.max").read_text().split()[:2]
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        old = root / "cpu"
        limit_us = int((old / "cpu.cfs_quota_us").read_text())
        return None if limit_us <= 0 else limit_us / int((old / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError, ZeroDivisionError):
        return None
