"""Reductions over rows in CUDA sources: accumulators, their combination across threads, and running sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpujit.ir.dtypes import kind_of
from gpujit.kernels.cuda_ops import NAME, combine, held, neutral, wins
from gpujit.kernels.cuda_source import Source
from gpujit.kernels.cuda_tile import Tile
from gpujit.kernels.tile import Reduce


class Threads:
    """The threads that share a row, and how they pass numbers to each other."""

    def __init__(self, source: Source, tile: Tile, is_column: bool) -> None:
        self.s, self.tile, self.is_column = source, tile, is_column
        # Shared arrays are told apart by the line they are made on, so each is made where it is first used.
        self.arrays = 0

    def shared(self, count: int, kind: str) -> str:
        """The name of a new shared array."""
        name = f"shared{self.arrays}"
        self.arrays += 1
        self.s.line(f"{name} = cuda.shared.array({count}, types.{'uint8' if kind == 'bool' else kind})")
        return name

    def sync(self) -> None:
        self.s.line("cuda.syncthreads()")


def low(count: int, number: str = "tid") -> str:
    """The rest of a thread's number by a power of two."""
    return f"{number} & {count - 1}"


def high(count: int, number: str = "tid") -> str:
    """A thread's number divided by a power of two."""
    return f"{number} >> {count.bit_length() - 1}" if count > 1 else number


def _stored(text: str, kind: str) -> str:
    return f"uint8({text})" if kind == "bool" else text


def _loaded(text: str, kind: str) -> str:
    return f"{text} != 0" if kind == "bool" else text


class Accumulator:
    """What one reduction has so far, in one thread: a number, and its place in the row for argmax and argmin."""

    def __init__(self, source: Source, item: Reduce, dtype: np.dtype, mark: str, index: str) -> None:
        self.s, self.op, self.dtype, self.mark, self.index = source, item.op, dtype, mark, index
        self.is_place = item.op in ("argmax", "argmin")
        self.name, self.at = f"r{mark}", f"w{mark}"
        self.kinds = [held(dtype)] + [index] * self.is_place
        self.names = [self.name] + [self.at] * self.is_place

    def begin(self) -> None:
        """Lines that start it."""
        self.s.line(f"{self.name} = {neutral(self.op, self.dtype)}")
        if self.is_place:
            # -1: nothing was taken yet, so that a row of the neutral number alone has its place too.
            self.s.line(f"{self.at} = {self.index}(-1)")

    def take(self, xs: Sequence[str], positions: Sequence[str]) -> None:
        """Lines that take in numbers from these places."""
        if self.is_place:
            for x, position in zip(xs, positions, strict=True):
                self._replace(f"{wins(self.op, x, self.name, self.dtype)} | ({self.at} < 0)", x, position)
            return
        # In pairs, so that additions do not wait for each other.
        level = list(xs)
        while len(level) > 1:
            level = [
                f"{self._plain(level[i], level[i + 1])}" if i + 1 < len(level) else level[i]
                for i in range(0, len(level), 2)
            ]
        self.s.line(f"{self.name} = {combine(self.op, self.name, level[0], self.dtype)}")

    def _replace(self, condition: str, x: str, at: str) -> None:
        self.s.line(f"better = {condition}")
        self.s.line(f"{self.name} = select(better, {x}, {self.name})")
        self.s.line(f"{self.at} = select(better, {at}, {self.at})")

    def _plain(self, a: str, b: str) -> str:
        text = combine(self.op, a, b, self.dtype)
        return text if text.endswith(")") and NAME.match(text) else f"({text})"

    def merge(self, names: Sequence[str]) -> None:
        """Lines that take in what another thread has."""
        if not self.is_place:
            self.s.line(f"{self.name} = {combine(self.op, self.name, names[0], self.dtype)}")
            return
        x, at = names
        mine, my_at = self.name, self.at
        better = wins(self.op, x, mine, self.dtype)
        worse = wins(self.op, mine, x, self.dtype)
        tied = f"((not {worse}) & ({at} < {my_at}))"
        self._replace(f"({at} >= 0) & (({my_at} < 0) | {better} | {tied})", x, at)

    def across(self, threads: Threads) -> str:
        """Lines that combine the threads of a row; the name of the result, which all of them have."""
        t = threads.tile
        if t.threads > 1:
            if threads.is_column:
                self._by_memory(threads)
            else:
                self._by_shuffles(min(t.threads, t.warp))
                if t.threads > t.warp:
                    self._between_warps(threads)
        if self.is_place:
            self.s.line(f"v{self.mark} = int64({self.at})")
            return f"v{self.mark}"
        return self.name

    def _by_shuffles(self, count: int) -> None:
        step = count // 2
        while step:
            others = [f"{name}_{step}x" for name in self.names]
            for other, name in zip(others, self.names, strict=True):
                self.s.line(f"{other} = shuffle_xor({name}, {step})")
            self.merge(others)
            step //= 2

    def _between_warps(self, threads: Threads) -> None:
        s, t = self.s, threads.tile
        warps = t.threads // t.warp
        arrays = [threads.shared(t.block // t.warp, kind) for kind in self.kinds]
        with s.block(f"if ({low(t.warp)}) == 0:"):
            for array, name, kind in zip(arrays, self.names, self.kinds, strict=True):
                s.line(f"{array}[{high(t.warp)}] = {_stored(name, kind)}")
        threads.sync()
        lane = low(warps)
        if t.groups > 1:
            lane = f"({high(t.threads)}) * {warps} + ({lane})"
        # Each thread takes one warp's number, over and over: shuffles within ``warps`` lanes combine them all.
        for array, name, kind in zip(arrays, self.names, self.kinds, strict=True):
            s.line(f"{name} = {_loaded(f'{array}[{lane}]', kind)}")
        self._by_shuffles(warps)
        threads.sync()

    def _by_memory(self, threads: Threads) -> None:
        s, t = self.s, threads.tile
        arrays = [threads.shared(t.block, kind) for kind in self.kinds]

        def put() -> None:
            for array, name, kind in zip(arrays, self.names, self.kinds, strict=True):
                s.line(f"{array}[tid] = {_stored(name, kind)}")

        put()
        threads.sync()
        step = t.threads // 2
        while step:
            with s.block(f"if thread < {step}:"):
                others = [f"{name}_{step}x" for name in self.names]
                for array, other, kind in zip(arrays, others, self.kinds, strict=True):
                    s.line(f"{other} = {_loaded(f'{array}[tid + {step * t.groups}]', kind)}")
                self.merge(others)
                put()
            threads.sync()
            step //= 2
        group = "group" if t.groups > 1 else "0"
        for array, name, kind in zip(arrays, self.names, self.kinds, strict=True):
            s.line(f"{name} = {_loaded(f'{array}[{group}]', kind)}")
        threads.sync()


def scan(source: Source, item: Reduce, x: str, name: str, carry: str, exists: str | None, threads: Threads) -> None:
    """Lines that give the running number ``name`` at this thread's element; ``carry`` is that before, and moves on."""
    s, t, dtype = source, threads.tile, item.dtype
    assert kind_of(dtype), "a running number of bools"
    if t.threads == 1:
        s.line(f"{name} = {combine(item.op, carry, x, dtype)}")
        s.line(f"{carry} = {name}")
        return
    idle = neutral(item.op, dtype)
    s.line(f"{name} = select({exists}, {x}, {idle})" if exists else f"{name} = {x}")
    lanes = min(t.threads, t.warp)
    step = 1
    while step < lanes:
        s.line(f"{name}_{step} = shuffle_up({name}, {step})")
        before = combine(item.op, f"{name}_{step}", name, dtype)
        s.line(f"{name} = select(({low(lanes, 'thread')}) >= {step}, {before}, {name})")
        step *= 2
    if t.threads <= t.warp:
        s.line(f"{name} = {combine(item.op, carry, name, dtype)}")
        s.line(f"{carry} = shuffle_last({name}, {t.threads})")
        return
    warps = t.threads // t.warp
    array = threads.shared(t.block // t.warp, held(dtype))
    with s.block(f"if ({low(t.warp)}) == {t.warp - 1}:"):
        s.line(f"{array}[{high(t.warp)}] = {name}")
    threads.sync()
    first = "0" if t.groups == 1 else f"({high(t.threads)}) * {warps}"
    with s.block(f"for warp in range({warps}):"):
        s.line(f"{name}_w = {array}[{first} + warp]")
        with s.block(f"if warp < ({high(t.warp, 'thread')}):"):
            s.line(f"{name} = {combine(item.op, f'{name}_w', name, dtype)}")
    s.line(f"{name} = {combine(item.op, carry, name, dtype)}")
    with s.block(f"for warp in range({warps}):"):
        s.line(f"{carry} = {combine(item.op, carry, f'{array}[{first} + warp]', dtype)}")
    threads.sync()
