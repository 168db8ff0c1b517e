"""Attention in one kernel: ``softmax(q @ k.T * scale + mask) @ v`` for a block of queries at a time.

A block of threads keeps some queries in shared memory and goes over the keys, some at a time; what it has is scaled
again when a larger score is found (online softmax), so that scores are never written to memory. Threads are ``down``
times ``across``: each has every ``down``-th query and every ``across``-th key and column of the result, in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpujit.ir.dtypes import BOOL_, FLOAT32
from gpujit.kernels.cuda_ops import DEVICE_NAMES, HALF_NAMES, NAME
from gpujit.kernels.cuda_source import Source

# Widest rows of queries, keys and values; bytes of shared memory that a block may have.
MOST_COLUMNS, MOST_SHARED = 128, 48 << 10
# Blocks that give each multiprocessor one.
BUSY = 132


class Spec(NamedTuple):
    """What the source depends on.

    ``depth`` numbers of a query or key, ``columns`` of a value. ``mask`` is the dtype of a mask: bool, or one that is
    added. Each thread has ``rows`` queries and ``keys`` keys; ``down`` times ``across`` threads, the latter a power of
    two that divides a warp.
    """

    dtype: np.dtype
    depth: int
    columns: int
    mask: np.dtype | None = None
    is_causal: bool = False
    rows: int = 2
    keys: int = 4
    down: int = 16
    across: int = 8

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.down * self.across

    @property
    def queries(self) -> int:
        """Queries of a block."""
        return self.down * self.rows

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block."""
        keys = self.across * self.keys
        numbers = self.queries * (self.depth + 1) + keys * (self.depth + 1)
        return 4 * (numbers + keys * self.columns + self.queries * (keys + 1))


def spec_of(
    dtype: np.dtype, depth: int, columns: int, mask: np.dtype | None, is_causal: bool, heads: int, queries: int
) -> Spec | None:
    """The spec for rows of these lengths, with blocks for a whole GPU if there is work for them; None for long rows.

    Args: ``heads`` are those of all batches.
    """
    if max(depth, columns) > MOST_COLUMNS:
        return None
    for rows in (2, 1):
        for keys in (4, 2):
            spec = Spec(dtype, depth, columns, mask, is_causal, rows, keys)
            fits = spec.shared <= MOST_SHARED and rows * columns <= MOST_COLUMNS
            if fits and (rows == 1 or grid(spec, 1, heads, queries) >= BUSY):
                return spec
    return None


# Behind the pointers; strides are in elements, those of a mask too.
NUMBERS = (
    "batches", "heads", "group", "queries", "keys",
    "q_batch", "q_head", "q_row", "k_batch", "k_head", "k_row", "v_batch", "v_head", "v_row", "o_batch", "o_head",
    "o_row",
)  # fmt: skip
MASK_NUMBERS = ("m_batch", "m_head", "m_row", "m_key")


@lru_cache(maxsize=64)
def source(spec: Spec) -> str:
    """The kernel's source.

    Arguments: q, k, v, the mask if there is one, and the result; ``NUMBERS`` as int32; ``MASK_NUMBERS`` if there is a
    mask; ``scale``, a float32. ``group`` heads of queries share one of keys.
    """
    s = _Source(spec)
    s.write()
    body = s.lines
    used = sorted({n for line in body for n in NAME.findall(line)} & DEVICE_NAMES)
    head = [f"# attention: {spec.queries} queries and {spec.across * spec.keys} keys a block of {spec.block} threads"]
    head += ["from numba import cuda, types", "", "from gpujit.kernels.cuda_device import ("]
    return "\n".join([*head, *(f"    {name}," for name in used), ")", "", "", *body]) + "\n"


class _Source(Source):
    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.keys = spec.across * spec.keys
        self.wide = spec.depth + 1
        # Columns of the result that a thread has.
        self.each = -(-spec.columns // spec.across)

    def read(self, dtype: np.dtype, text: str) -> str:
        half = HALF_NAMES.get(dtype)
        return f"{half}({text})" if half else text

    def write(self) -> None:
        spec = self.spec
        pointers = ["q", "k", "v", *(["mask"] if spec.mask is not None else []), "o"]
        numbers = [*NUMBERS, *(MASK_NUMBERS if spec.mask is not None else ()), "scale"]
        self.line("@cuda.jit")
        with self.block(f"def kernel({', '.join([*pointers, *numbers])}):"):
            self.line("tid = int32(cuda.threadIdx.x)")
            self.line(f"tx = int32(tid & {spec.across - 1})")
            self.line(f"ty = int32(tid >> {spec.across.bit_length() - 1})")
            for name, count in (
                ("q_part", spec.queries * self.wide),
                ("k_part", self.keys * self.wide),
                ("v_part", self.keys * spec.columns),
                ("p_part", spec.queries * (self.keys + 1)),
            ):
                self.line(f"{name} = cuda.shared.array({count}, types.float32)")
            self.line(f"parts = int32(udiv(int32(queries + {spec.queries - 1}), int32({spec.queries})))")
            self.line("units = int32(batches * heads * parts)")
            self.line("unit = int32(cuda.blockIdx.x)")
            with self.block("while unit < units:"):
                self.unit()
                self.line("unit = int32(unit + int32(cuda.gridDim.x))")

    def unit(self) -> None:
        spec = self.spec
        self.line(f"first = int32(urem(unit, parts) * {spec.queries})")
        self.line("rest = udiv(unit, parts)")
        self.line("head = urem(rest, heads)")
        self.line("batch = udiv(rest, heads)")
        self.line("shared_head = udiv(head, group)")
        self.line("q_at = int64(batch) * q_batch + int64(head) * q_head")
        self.line("k_at = int64(batch) * k_batch + int64(shared_head) * k_head")
        self.line("v_at = int64(batch) * v_batch + int64(shared_head) * v_head")
        self.line("o_at = int64(batch) * o_batch + int64(head) * o_head")
        if spec.mask is not None:
            self.line("m_at = int64(batch) * m_batch + int64(head) * m_head")
        self.fill("q", "q_part", "first", "queries", spec.queries, spec.depth, self.wide, scaled=True)
        for i in range(spec.rows):
            self.line(f"top{i} = float32(-INF)")
            self.line(f"sum{i} = float32(0.0)")
            for c in range(self.each):
                self.line(f"o{i}_{c} = float32(0.0)")
        self.line("last = keys")
        if spec.is_causal:
            # No query of these sees a key behind the last one of them.
            self.line(f"last = select(first + {spec.queries} < keys, int32(first + {spec.queries}), keys)")
        self.line("start = int32(0)")
        with self.block("while start < last:"):
            self.fill("k", "k_part", "start", "keys", self.keys, spec.depth, self.wide)
            self.fill("v", "v_part", "start", "keys", self.keys, spec.columns, spec.columns)
            self.line("cuda.syncthreads()")
            self.scores()
            self.line("cuda.syncthreads()")
            self.products()
            self.line("cuda.syncthreads()")
            self.line(f"start = int32(start + {self.keys})")
        self.store()

    def fill(
        self, name: str, part: str, first: str, count: str, rows: int, columns: int, wide: int, scaled: bool = False
    ) -> None:
        """Rows of an operand into shared memory, zeros behind the last one."""
        self.line(f"u_{name} = tid")
        with self.block(f"while u_{name} < {rows * columns}:"):
            self.line(f"r_{name} = udiv(u_{name}, int32({columns}))")
            self.line(f"c_{name} = urem(u_{name}, int32({columns}))")
            self.line(f"at_{name} = int32({first} + r_{name})")
            self.line(f"x_{name} = float32(0.0)")
            with self.block(f"if at_{name} < {count}:"):
                read = self.read(self.spec.dtype, f"{name}[{name}_at + int64(at_{name}) * {name}_row + c_{name}]")
                self.line(f"x_{name} = {read}{' * scale' if scaled else ''}")
            self.line(f"{part}[int32(r_{name} * {wide} + c_{name})] = x_{name}")
            self.line(f"u_{name} = int32(u_{name} + {self.spec.block})")

    def scores(self) -> None:
        """Scores of these keys, as weights in shared memory; tops, sums and results scaled to the new tops."""
        spec = self.spec
        for i in range(spec.rows):
            for j in range(spec.keys):
                self.line(f"s{i}_{j} = float32(0.0)")
        for i in range(spec.rows):
            self.line(f"a{i} = int32((ty + {i * spec.down}) * {self.wide})")
        for j in range(spec.keys):
            self.line(f"b{j} = int32((tx + {j * spec.across}) * {self.wide})")
        right = [f"k_part[int32(b{j} + d)]" for j in range(spec.keys)]
        self.sums("s", "d", spec.depth, "q_part", "y", right)
        for i in range(spec.rows):
            self.line(f"row{i} = int32(first + ty + {i * spec.down})")
            for j in range(spec.keys):
                self.line(f"key{j} = int32(start + tx + {j * spec.across})")
                seen = f"key{j} < keys"
                if spec.is_causal:
                    seen = f"({seen}) & (key{j} <= row{i})"
                if spec.mask is None:
                    self.line(f"s{i}_{j} = select({seen}, s{i}_{j}, float32(-INF))")
                    continue
                with self.block(f"if (key{j} < keys) & (row{i} < queries):"):
                    at = f"m_at + int64(row{i}) * m_row + int64(key{j}) * m_key"
                    if spec.mask == BOOL_:
                        self.line(f"s{i}_{j} = select(mask[{at}] != 0, s{i}_{j}, float32(-INF))")
                    else:
                        self.line(f"s{i}_{j} = s{i}_{j} + {self.read(spec.mask, f'mask[{at}]')}")
                with self.block("else:"):
                    self.line(f"s{i}_{j} = float32(-INF)")
            self.line(f"new{i} = top{i}")
            for j in range(spec.keys):
                self.line(f"new{i} = maximum(new{i}, s{i}_{j})")
            step = spec.across // 2
            while step:
                self.line(f"new{i} = maximum(new{i}, shuffle_xor(new{i}, {step}))")
                step //= 2
            # A row without a key that counts so far is compared with 0: -inf - -inf would be NaN.
            self.line(f"base{i} = select(new{i} == float32(-INF), float32(0.0), new{i})")
            self.line(f"less{i} = exp(top{i} - base{i})")
            self.line(f"top{i} = new{i}")
            self.line(f"sum{i} = sum{i} * less{i}")
            for j in range(spec.keys):
                self.line(f"w{i}_{j} = exp(s{i}_{j} - base{i})")
                self.line(f"sum{i} = sum{i} + w{i}_{j}")
                at = f"int32((ty + {i * spec.down}) * {self.keys + 1} + tx + {j * spec.across})"
                self.line(f"p_part[{at}] = w{i}_{j}")
            for c in range(self.each):
                self.line(f"o{i}_{c} = o{i}_{c} * less{i}")

    def products(self) -> None:
        """Weights times values."""
        spec = self.spec
        is_whole = spec.columns % spec.across == 0
        for i in range(spec.rows):
            self.line(f"a{i} = int32((ty + {i * spec.down}) * {self.keys + 1})")
        for c in range(self.each):
            at = f"int32(tx + {c * spec.across})"
            is_last = c == self.each - 1 and not is_whole
            self.line(f"c{c} = {f'select({at} < {spec.columns}, {at}, int32({spec.columns - 1}))' if is_last else at}")
        right = [f"v_part[int32(key * {spec.columns} + c{c})]" for c in range(self.each)]
        self.sums("o", "key", self.keys, "p_part", "z", right)

    def sums(self, name: str, at: str, count: int, left: str, factor: str, right: Sequence[str]) -> None:
        """Add ``count`` products to each number of a thread: those of its rows in ``left``, and of what ``right`` says
        for a column."""
        rows = range(self.spec.rows)
        self.line(f"{at} = int32(0)")
        with self.block(f"while {at} < {count}:"):
            for i in rows:
                self.line(f"x{i} = {left}[int32(a{i} + {at})]")
            for j, text in enumerate(right):
                self.line(f"{factor}{j} = {text}")
            for i in rows:
                for j in range(len(right)):
                    self.line(f"{name}{i}_{j} = {name}{i}_{j} + x{i} * {factor}{j}")
            self.line(f"{at} = int32({at} + 1)")

    def store(self) -> None:
        spec = self.spec
        half = HALF_NAMES.get(spec.dtype)
        is_safe = spec.mask is not None or spec.is_causal
        for i in range(spec.rows):
            step = spec.across // 2
            while step:
                self.line(f"sum{i} = sum{i} + shuffle_xor(sum{i}, {step})")
                step //= 2
            if is_safe:
                # A row whose keys are all hidden gives zeros.
                self.line(f"sum{i} = select(sum{i} == float32(0.0), float32(1.0), sum{i})")
            self.line(f"by{i} = float32(1.0) / sum{i}")
            self.line(f"row{i} = int32(first + ty + {i * spec.down})")
            with self.block(f"if row{i} < queries:"):
                for c in range(self.each):
                    at = f"o_at + int64(row{i}) * o_row + tx + {c * spec.across}"
                    value = f"o{i}_{c} * by{i}"
                    is_last = c == self.each - 1 and spec.columns % spec.across
                    with self.guarded(f"tx + {c * spec.across} < {spec.columns}" if is_last else None):
                        self.line(f"o[{at}] = {f'to_{half}({value})' if half else value}")


def grid(spec: Spec, batches: int, heads: int, queries: int) -> int:
    """Blocks that have work."""
    return batches * heads * -(-queries // spec.queries)


def takes(dtype: np.dtype) -> bool:
    """Whether there is a kernel for tensors of this dtype."""
    return dtype == FLOAT32 or dtype in HALF_NAMES
