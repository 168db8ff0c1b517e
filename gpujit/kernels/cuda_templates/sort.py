"""Rows sorted by a bitonic network, with the places that elements came from; equal elements keep their order.

Elements are compared by keys: unsigned integers in the order that elements have, in which NaN is greater than all
numbers and -0.0 is 0.0. Pairs of a key and a place are all different, so that any network sorts them as a stable sort
does. A row of up to a tile's length is sorted by one block in shared memory. Longer ones lie in scratch memory, as long
as the next power of two: tiles of them are sorted, then merged by exchanges over memory, down to distances that a tile
has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpujit.ir.dtypes import BFLOAT16, BOOL_, FLOAT16
from gpujit.kernels.cuda_ops import DEVICE_NAMES, NAME
from gpujit.kernels.cuda_source import Source

# Elements of a tile, whose keys and places fit into 48 KiB of shared memory.
MOST_TILE = 4096
_INFINITY = {FLOAT16: 0x7C00, BFLOAT16: 0x7F80, np.dtype("f4"): 0x7F800000, np.dtype("f8"): 0x7FF0000000000000}


class Spec(NamedTuple):
    """What sources depend on: the elements' dtype, the order, elements of a tile (a power of two), threads."""

    dtype: np.dtype
    is_descending: bool
    tile: int
    block: int

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return 8 * self.dtype.itemsize

    @property
    def key(self) -> str:
        """The type of keys."""
        return "uint64" if self.bits == 64 else "uint32"


def takes(dtype: np.dtype) -> bool:
    """Whether elements of a dtype have keys."""
    return dtype in _INFINITY or dtype == BOOL_ or dtype.kind in "iu"


@lru_cache(maxsize=128)
def rows(spec: Spec, has_values: bool, has_places: bool) -> str:
    """The kernel that sorts rows of up to a tile's length.

    Arguments: elements, as unsigned integers of their size; sorted ones and their places (int64), where wanted; as
    int64 the number of rows, elements of a row, how many are wanted, and the distance between elements of a row, which
    is also how many rows lie side by side.
    """
    s = _Source(spec)
    outputs = [*(["v"] if has_values else []), *(["o"] if has_places else [])]
    with s.kernel(["x", *outputs, "rows", "n", "count", "step"], is_shared=True):
        s.line("row = int64(cuda.blockIdx.x)")
        with s.block("while row < rows:"):
            s.line("side = urem(row, step)")
            s.line("start = int64((row - side) * n + side)")
            s.load("n", "x[start + i * step]")
            s.network("int32(0)", f"int32({spec.tile})")
            s.line("begin = int64((row - side) * count + side)")
            s.pick("places[i]", "tid", str(spec.block), has_values, has_places)
            s.line("cuda.syncthreads()")
            s.line("row = int64(row + cuda.gridDim.x)")
    return s.text("sort: rows")


@lru_cache(maxsize=64)
def tiles(spec: Spec) -> str:
    """The kernel that sorts each tile of rows in scratch memory, every other one the other way round.

    Arguments: elements; keys and places (int32) of rows with a power of two of elements; as int64 the number of rows,
    elements of a row, that power, and the distance between elements.
    """
    s = _Source(spec)
    with s.kernel(["x", "k", "p", "rows", "n", "wide", "step"], is_shared=True), s.each_tile():
        s.line("side = urem(row, step)")
        s.line("start = int64((row - side) * n + side + first * step)")
        s.load("int64(n - first)", "x[start + i * step]")
        s.network("first", f"int32({spec.tile})")
        s.store()
    return s.text("sort: tiles")


@lru_cache(maxsize=64)
def exchange(spec: Spec) -> str:
    """The kernel that exchanges elements at a distance from each other.

    Arguments: keys, places; as int64 pairs in all, elements of a row, that of a sorted part once it is merged, and the
    distance. All but the first are powers of two.
    """
    s = _Source(spec)
    with s.kernel(["k", "p", "pairs", "wide", "size", "half"]):
        s.line(f"t = int64(int64(cuda.blockIdx.x) * {spec.block} + tid)")
        with s.block("while t < pairs:"):
            s.compare("k", "p", "int64", "(low & (wide - 1)) & size")
            s.line(f"t = int64(t + int64(cuda.gridDim.x) * {spec.block})")
    return s.text("sort: exchange")


@lru_cache(maxsize=64)
def merge(spec: Spec) -> str:
    """The kernel that does all exchanges of a merge within tiles.

    Arguments: keys, places; as int64 the number of rows, elements of a row, and that of a part once it is merged.
    """
    s = _Source(spec)
    with s.kernel(["k", "p", "rows", "wide", "size"], is_shared=True), s.each_tile():
        s.line("i = tid")
        with s.block(f"while i < {spec.tile}:"):
            s.line("keys[i] = k[at + i]")
            s.line("places[i] = p[at + i]")
            s.line(f"i = int32(i + {spec.block})")
        s.line("cuda.syncthreads()")
        s.halves("first", "size", f"int32({spec.tile // 2})")
        s.store()
    return s.text("sort: merge")


@lru_cache(maxsize=64)
def pick(spec: Spec, has_values: bool, has_places: bool) -> str:
    """The kernel that writes the first elements of sorted rows.

    Arguments: elements, places, sorted elements and their places (int64), where wanted; as int64 the number of rows,
    elements of a row, the power of two, how many are wanted, and the distance between elements.
    """
    s = _Source(spec)
    outputs = [*(["v"] if has_values else []), *(["o"] if has_places else [])]
    with s.kernel(["x", "p", *outputs, "rows", "n", "wide", "count", "step"]):
        s.line(f"u = int64(int64(cuda.blockIdx.x) * {spec.block} + tid)")
        with s.block("while u < rows * count:"):
            s.line("row = udiv(u, count)")
            s.line("i = urem(u, count)")
            s.line("side = urem(row, step)")
            s.line("start = int64((row - side) * n + side)")
            s.line("begin = int64((row - side) * count + side)")
            s.picked("p[row * wide + i]", has_values, has_places)
            s.line(f"u = int64(u + int64(cuda.gridDim.x) * {spec.block})")
    return s.text("sort: pick")


class _Source(Source):
    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec

    @contextmanager
    def kernel(self, arguments: list[str], is_shared: bool = False) -> Iterator[None]:
        """The kernel's head; its body is the block."""
        spec = self.spec
        self.line("@cuda.jit")
        with self.block(f"def kernel({', '.join(arguments)}):"):
            self.line("tid = int32(cuda.threadIdx.x)")
            if is_shared:
                self.line(f"keys = cuda.shared.array({spec.tile}, types.{spec.key})")
                self.line(f"places = cuda.shared.array({spec.tile}, types.int32)")
            yield

    @contextmanager
    def each_tile(self) -> Iterator[None]:
        """A block for each tile of rows of ``wide`` elements: ``first`` of the row, ``at`` in memory."""
        tile = self.spec.tile
        self.line(f"parts = udiv(wide, int64({tile}))")
        self.line("unit = int64(cuda.blockIdx.x)")
        with self.block("while unit < rows * parts:"):
            self.line("row = udiv(unit, parts)")
            self.line(f"first = int32(urem(unit, parts) * {tile})")
            self.line("at = int64(row * wide + first)")
            yield
            self.line("unit = int64(unit + cuda.gridDim.x)")

    def load(self, count: str, element: str) -> None:
        """Keys and places of a tile; keys behind the first ``count`` come after all others."""
        spec = self.spec
        self.line("i = tid")
        with self.block(f"while i < {spec.tile}:"):
            self.line(f"key = {spec.key}({(1 << int(spec.key[4:])) - 1})")
            with self.block(f"if i < {count}:"):
                self.line(f"b = {spec.key}({element})")
                self.key_of_bits()
            self.line("keys[i] = key")
            self.line("places[i] = int32(i + first)" if "first" in count else "places[i] = i")
            self.line(f"i = int32(i + {spec.block})")
        self.line("cuda.syncthreads()")

    def key_of_bits(self) -> None:
        """The key of an element whose bits are ``b``."""
        spec = self.spec
        key, top, whole = spec.key, 1 << (spec.bits - 1), (1 << spec.bits) - 1
        if spec.dtype in _INFINITY:
            self.line(f"m = {key}(b & {key}({top - 1}))")
            self.line(f"key = select(b >= {key}({top}), {key}({key}({whole}) - b), {key}(b + {key}({top})))")
            self.line(f"key = select(m == {key}(0), {key}({top}), key)")
            self.line(f"key = select(m > {key}({_INFINITY[spec.dtype]}), {key}({whole}), key)")
        elif spec.dtype.kind == "i":
            self.line(f"key = {key}(b ^ {key}({top}))")
        else:
            self.line("key = b")
        if spec.is_descending:
            self.line(f"key = {key}({key}({whole}) - key)")

    def network(self, first: str, last: str) -> None:
        """Sort the tile, whose first element is number ``first`` of its row: upwards where the bit ``last`` of that is
        0."""
        self.line("size = int32(2)")
        with self.block(f"while size <= {last}:"):
            self.halves(first, "size", "int32(size >> 1)")
            self.line("size = int32(size << 1)")

    def halves(self, first: str, size: str, half: str) -> None:
        """Exchanges at the distance ``half`` and all smaller ones."""
        self.line(f"half = {half}")
        with self.block("while half > 0:"):
            self.line("t = tid")
            with self.block(f"while t < {self.spec.tile // 2}:"):
                self.compare("keys", "places", "int32", f"({first} + low) & {size}")
                self.line(f"t = int32(t + {self.spec.block})")
            self.line("cuda.syncthreads()")
            self.line("half = int32(half >> 1)")

    def compare(self, keys: str, places: str, kind: str, way: str) -> None:
        """Exchange the pair number ``t`` if it is not in order: upwards where ``way`` is 0."""
        self.line(f"low = {kind}(2 * t - (t & (half - 1)))")
        self.line(f"high = {kind}(low + half)")
        self.line(f"a = {keys}[low]")
        self.line(f"b = {keys}[high]")
        self.line(f"c = {places}[low]")
        self.line(f"d = {places}[high]")
        self.line("is_after = (a > b) | ((a == b) & (c > d))")
        with self.block(f"if is_after == (({way}) == 0):"):
            for array, low, high in ((keys, "b", "a"), (places, "d", "c")):
                self.line(f"{array}[low] = {low}")
                self.line(f"{array}[high] = {high}")

    def store(self) -> None:
        """The tile to scratch memory."""
        self.line("i = tid")
        with self.block(f"while i < {self.spec.tile}:"):
            self.line("k[at + i] = keys[i]")
            self.line("p[at + i] = places[i]")
            self.line(f"i = int32(i + {self.spec.block})")
        self.line("cuda.syncthreads()")

    def pick(self, place: str, first: str, step: str, has_values: bool, has_places: bool) -> None:
        """Write the first elements of a row."""
        self.line(f"i = {first}")
        with self.block("while i < count:"):
            self.picked(place, has_values, has_places)
            self.line(f"i = int32(i + {step})")

    def picked(self, place: str, has_values: bool, has_places: bool) -> None:
        self.line(f"place = int64({place})")
        if has_values:
            self.line("v[begin + i * step] = x[start + place * step]")
        if has_places:
            self.line("o[begin + i * step] = place")

    def text(self, what: str) -> str:
        """The source."""
        spec = self.spec
        used = sorted({n for line in self.lines for n in NAME.findall(line)} & DEVICE_NAMES)
        way = "descending" if spec.is_descending else "ascending"
        head = [f"# {what} of {spec.dtype}, {way}, {spec.tile} elements for {spec.block} threads"]
        head += ["from numba import cuda, types", "", "from gpujit.kernels.cuda_device import ("]
        return "\n".join([*head, *(f"    {name}," for name in used), ")", "", "", *self.lines]) + "\n"
