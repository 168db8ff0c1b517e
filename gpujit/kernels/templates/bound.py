"""A template for arrays of certain sizes and strides: compiled when it is first needed, once for equal texts, run by
the worker team."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpujit.kernels import supply
from gpujit.kernels.native import TIDY, Library
from gpujit.kernels.target import host
from gpujit.kernels.team import alone, caller, team
from gpujit.support.errors import ArgumentError

if TYPE_CHECKING:
    from gpujit.kernels.templates.producer import Producer

LINE = 64

# With what renders each.
_kernels: dict[Hashable, tuple[Library, Callable[[], str]]] = {}
_lock = threading.Lock()


class Code(NamedTuple):
    """The code of a template: the template's name, what its code follows from, and what renders that."""

    name: str
    spec: Any
    render: Callable[[Any], str]

    @property
    def key(self) -> Hashable:
        """What the kernel is kept under."""
        return (self.name, self.spec), host()

    def address(self) -> int:
        """The address of the kernel, rendered and compiled when it is new. Raises NotRendered, InternalError."""
        key = self.key
        with _lock:
            found = _kernels.get(key)
        if found is None:
            found = supply.module(repr(key), self._text, TIDY, "templates", self.name), self._text
            with _lock:
                found = _kernels.setdefault(key, found)
        return found[0].address("kernel")

    def is_at_hand(self) -> bool:
        """Whether the kernel need not be compiled: this process has it, or the cache on disk."""
        key = self.key
        with _lock:
            if key in _kernels:
                return True
        return supply.is_kept(repr(key), TIDY, "templates")

    def _text(self) -> str:
        return self.render(self.spec)


def source_at(address: int) -> tuple[str, str] | None:
    """What the template's kernel at an address stands for, and its LLVM IR; None when there is none."""
    with _lock:
        found = list(_kernels.items())
    for key, (library, render) in found:
        if library.address("kernel") == address:
            return repr(key), render()
    return None


def aligned(shape: int | Sequence[int], dtype: type = np.float32) -> np.ndarray:
    """A new array of zeros that begins on a cache line's border."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    return room[start : start + size].view(dtype).reshape(shape)


_own = threading.local()


def _scratch(size: int) -> int:
    """The address of this thread's scratch memory, at least ``size`` bytes: fresh pages at each call cost more."""
    room = getattr(_own, "room", None)
    if room is None or room.nbytes < size + LINE:
        room = _own.room = np.empty(size + LINE, np.uint8)
    return -(-int(room.ctypes.data) // LINE) * LINE


class BoundTemplate:
    """A kernel with all words of its block but the addresses of arrays.

    Its code is had when it is first asked for.
    ``scratch_bytes`` is what each part needs of memory; ``arrays`` names the block's slots for the arrays of a call,
    and ``constants`` gives those that belong to the kernel: packed weights, tables. ``dtypes`` are those of arrays that
    are not float32; ``producer`` is what makes an operand, if something does. A kernel of several ``rounds`` is run
    once for each, with these words; all of a round is done before the next begins. Threads may call one at the same
    time.
    """

    def __init__(
        self,
        code: Code,
        slots: Sequence[str],
        words: Mapping[str, int],
        arrays: Sequence[str],
        scratch_bytes: int = 0,
        constants: Mapping[str, np.ndarray] | None = None,
        is_small: bool = False,
        dtypes: Mapping[str, type] | None = None,
        rounds: Sequence[Mapping[str, int]] = (),
        producer: Producer | None = None,
    ) -> None:
        self.code, self.arrays, self.producer = code, tuple(arrays), producer
        self._address = 0
        self.constants = dict(constants or {})
        self.scratch_bytes = -(-scratch_bytes // LINE) * LINE
        self.is_small = is_small
        self.words = np.zeros(len(slots), np.int64)
        self.slots = {name: k for k, name in enumerate(slots)}
        for name, value in words.items():
            self.words[self.slots[name]] = value
        for name, constant in self.constants.items():
            self.words[self.slots[name]] = constant.ctypes.data
        if "scratch_bytes" in self.slots:
            self.words[self.slots["scratch_bytes"]] = self.scratch_bytes
        self.rounds = [{self.slots[name]: value for name, value in each.items()} for each in rounds]
        self._places = [self.slots[name] for name in self.arrays]
        self._dtypes = [np.dtype((dtypes or {}).get(name, np.float32)) for name in self.arrays]

    @property
    def address(self) -> int:
        """The address of the kernel."""
        self.prepare()
        return self._address

    def prepare(self) -> None:
        """Have the kernel, and that of what makes an operand. Raises NotRendered, InternalError."""
        if not self._address:
            if self.producer is not None:
                self.words[self.slots["producer"]] = self.producer.address()
            self._address = self.code.address()

    def __call__(self, *arrays: np.ndarray) -> None:
        """Run on arrays of the geometry that was bound, in the order of ``arrays``. Raises ArgumentError for other
        types.
        """
        address, block = self.address, self.words.copy()
        for place, dtype, x in zip(self._places, self._dtypes, arrays, strict=True):
            if x.dtype != dtype:
                raise ArgumentError(f"a template for {dtype} got {x.dtype}")
            block[place] = x.__array_interface__["data"][0]
        parts, workers = 1, alone()
        if not self.is_small:
            threads = team()
            parts, workers = threads.size, threads.address
        if self.scratch_bytes:
            block[self.slots["scratch"]] = _scratch(self.scratch_bytes * parts)
        for words in self.rounds or [{}]:
            for place, value in words.items():
                block[place] = value
            # Addresses of data, not of array objects: none of the words is to be looked up.
            caller()(workers, address, block.ctypes.data, 0)
