"""What templates make of constant weights, made once and kept as long as the weights are."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

_packs: dict[tuple[int, Hashable], tuple[weakref.ref[np.ndarray], Any]] = {}
_lock = threading.Lock()


def kept(weights: np.ndarray, key: Hashable, make: Callable[[], T]) -> T:
    """What ``make`` gives, called when nothing was made of these very weights under ``key`` yet.

    Nobody may write into the weights or the result. Threads that ask at the same time may both make it; one is kept.
    """
    whole = (id(weights), key)
    with _lock:
        found = _packs.get(whole)
    if found is not None and found[0]() is weights:
        kept_already: T = found[1]
        return kept_already
    made = make()
    with _lock:
        found = _packs.get(whole)
        if found is not None and found[0]() is weights:
            others: T = found[1]
            return others
        _packs[whole] = weakref.ref(weights, lambda ref: _forget(whole, ref)), made
    return made


def _forget(whole: tuple[int, Hashable], ref: weakref.ref[np.ndarray]) -> None:
    # An array made since may lie at the same address: what is kept for that one stays. No lock: a collection may come
    # while this thread holds it.
    found = _packs.get(whole)
    if found is not None and found[0] is ref:
        _packs.pop(whole, None)
