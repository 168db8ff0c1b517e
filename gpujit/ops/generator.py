"""The random number generator: MT19937, with the very streams of PyTorch's CPU generator for equal seeds.

Source: ATen/CPUGeneratorImpl.cpp and ATen/core/TransformationHelper.h; checked value by value in tests.
"""

from __future__ import annotations

import secrets
import threading
from typing import Any

import numpy as np

_MASK64 = (1 << 64) - 1
# Sizes from which PyTorch fills whole blocks of normal numbers instead of drawing them one by one.
BLOCK = 16


class Generator:
    """A stream of random numbers; safe to use from several threads.

    ``seed`` is any 64-bit integer, negative ones count back from 2**64; None takes one from the operating system.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.lock = threading.RLock()
        self._seed = 0
        self._words = np.random.RandomState(0)
        # Normal numbers come in pairs; the second waits here.
        self._spare: float | None = None
        self.manual_seed(secrets.randbits(53) if seed is None else seed)

    def manual_seed(self, seed: int) -> Generator:
        """The generator itself, started anew."""
        with self.lock:
            self._seed = seed & _MASK64
            # Only the low 32 bits reach the state, as in PyTorch.
            self._words = np.random.RandomState(self._seed & 0xFFFFFFFF)
            self._spare = None
        return self

    def seed(self) -> int:
        """A new seed from the operating system, which the generator now runs from."""
        self.manual_seed(secrets.randbits(53))
        return self._seed

    def initial_seed(self) -> int:
        """The seed the stream was started from."""
        return self._seed

    def state(self) -> Any:
        """Where the stream is, for ``restore``."""
        with self.lock:
            return self._seed, self._words.get_state(), self._spare

    def restore(self, state: Any) -> None:
        """Go on from where the stream was."""
        with self.lock:
            self._seed, words, self._spare = state
            self._words.set_state(words)

    @property
    def numpy(self) -> np.random.RandomState:
        """NumPy's view of the same stream, for distributions that need not match PyTorch's values."""
        return self._words

    def words(self, n: int) -> Any:
        """``n`` numbers of 32 bits."""
        return self._words.randint(0, 1 << 32, size=n, dtype=np.uint32)

    def words64(self, n: int) -> Any:
        """``n`` numbers of 64 bits; the first word drawn is the upper half."""
        w = self.words(2 * n).astype(np.uint64)
        return (w[0::2] << np.uint64(32)) | w[1::2]

    def floats(self, n: int) -> Any:
        """``n`` float32 numbers from 0 to below 1, of 24 bits each."""
        return (self.words(n) & np.uint32(0xFFFFFF)).astype(np.float32) * np.float32(2.0**-24)

    def doubles(self, n: int) -> Any:
        """``n`` float64 numbers from 0 to below 1, of 53 bits each."""
        w = self.words(2 * n)
        return (w[0::2] & np.uint32(0x1FFFFF)) * 2.0**-21 + w[1::2] * 2.0**-53

    def normals(self, n: int) -> Any:
        """``n`` standard normal float64 numbers, drawn in pairs; half a pair waits for the next call."""
        out = np.empty(n, np.float64)
        at = 0
        if self._spare is not None and n:
            out[0], self._spare, at = self._spare, None, 1
        pairs = (n - at + 1) // 2
        if pairs:
            u = self.doubles(2 * pairs)
            radius = np.sqrt(-2.0 * np.log1p(-u[1::2]))
            angle = 2.0 * np.pi * u[0::2]
            both = np.empty(2 * pairs)
            np.multiply(radius, np.cos(angle), out=both[0::2])
            np.multiply(radius, np.sin(angle), out=both[1::2])
            out[at:] = both[: n - at]
            if (n - at) % 2:
                self._spare = float(both[-1])
        return out

    def normal_blocks(self, n: int, double: bool, draw_all: bool) -> Any:
        """``n >= 16`` standard normal numbers in blocks of 16, as float64 or float32.

        What does not fill a block is covered by a last block over the final 16 places. ``draw_all``: the first pass
        draws a number for every place, also for those the last block covers.
        """
        draw = self.doubles if double else self.floats
        whole = n // BLOCK * BLOCK
        out = np.empty(n, np.float64 if double else np.float32)
        out[:whole] = _box_muller(draw(n if draw_all else whole)[:whole])
        if whole != n:
            out[n - BLOCK :] = _box_muller(draw(BLOCK))
        return out


def _box_muller(u: Any) -> Any:
    """Normal numbers from uniform ones: in each block of 16 the first eight give radii, the others angles."""
    u = u.reshape(-1, 2, BLOCK // 2)
    radius = np.sqrt(-2 * np.log(1 - u[:, 0]))
    angle = u[:, 1] * u.dtype.type(2 * np.pi)
    out = np.empty_like(u)
    np.multiply(radius, np.cos(angle), out=out[:, 0])
    np.multiply(radius, np.sin(angle), out=out[:, 1])
    return out.reshape(-1)


DEFAULT = Generator()


def manual_seed(seed: int) -> Generator:
    """The default generator, started anew from ``seed``."""
    return DEFAULT.manual_seed(seed)
