"""What templates make of constant weights, made once and kept as long as the weights are."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable

import numpy as np

_packs: dict[tuple[int, Hashable], tuple[weakref.ref[np.ndarray], np.ndarray]] = {}
_lock = threading.Lock()


def kept(weights: np.ndarray, key: Hashable, make: Callable[[], np.ndarray]) -> np.ndarray:
    """What ``make`` gives, called when nothing was made of these very weights under ``key`` yet.

    Nobody may write into the weights or the result. Threads that ask at the same time may both make it; one is kept.
    """
    whole = (id(weights), key)
    with _lock:
        found = _packs.get(whole)
    if found is not None and found[0]() is weights:
        return found[1]
    made = make()
    with _lock:
        found = _packs.get(whole)
        if found is not None and found[0]() is weights:
            return found[1]
        _packs[whole] = weakref.ref(weights, lambda ref: _forget(whole, ref)), made
    return made


def _forget(whole: tuple[int, Hashable], ref: weakref.ref[np.ndarray]) -> None:
    # An array made since may lie at the same address: what is kept for that one stays. No lock: a collection may come
    # while this thread holds it.
    found = _packs.get(whole)
    if found is not None and found[0] is ref:
        _packs.pop(whole, None)
