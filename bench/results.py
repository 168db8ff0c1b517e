"""What is in the result of a call, whoever computed it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


def leaves(value: Any) -> Iterator[Any]:
    """All that lists, tuples and dicts hold, at any depth."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from leaves(v)
    else:
        yield value


def arrays(value: Any) -> Iterator[np.ndarray]:
    """All tensors inside a result, on the host."""
    for found in leaves(value):
        if hasattr(found, "detach"):
            yield found.detach().cpu().numpy()
        elif isinstance(found, np.ndarray):
            yield found
        elif hasattr(found, "get"):
            yield found.get()
