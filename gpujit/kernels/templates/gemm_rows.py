"""Products whose left matrix is made on the way: how its rows are shared out to threads, and in which lots."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gpujit.kernels.templates.producer import Producer, Source, spread
from gpujit.support.errors import ArgumentError
from gpujit.support.threads import thread_count

if TYPE_CHECKING:
    from gpujit.kernels.templates.gemm import Gemm
    from gpujit.kernels.templates.gemm_code import GemmSpec

# Bytes of A that are made at a time: they are to stay in the second-level cache beside a panel of B.
MADE_BYTES = 1 << 18
# Operations that a thread does in a nanosecond, for how long others wait for it.
OPERATIONS = 100
# Rows of a thread that hide that B is read, and nanoseconds for a byte of it where they do not.
MANY_ROWS, READ = 64, 0.004
# Bytes of A that are made at a time where B is packed on the way, once for all rows.
MADE_AT_ONCE = 1 << 20


class Production(NamedTuple):
    """How the rows of A are made: in ``chunks``, of nearly equal size, for each of ``splits`` parts of the panels."""

    kind: str
    producer: Producer
    chunks: int
    splits: int
    first: tuple[int, int]
    strides: tuple[int, int]


def _shares(tiles: int, chunks: int, lots: int, splits: int, threads: int) -> tuple[float, int]:
    """How much more than its share the slowest thread does, and how many lots are made by one more thread.

    Lots are the ``chunks`` that each matrix's ``tiles`` come in, one matrix behind the other.
    """
    ends = [divmod(lots * splits * t // threads, splits) for t in range(threads + 1)]

    def before(lot: int, split: int) -> int:
        matrix, number = divmod(lot, chunks)
        first, last = (tiles * n // chunks for n in (number, number + 1))
        return (matrix * tiles + first) * splits + split * (last - first)

    done = [before(*end) for end in ends]
    work = [b - a for a, b in pairwise(done)]
    return max(work) * threads / sum(work) - 1, sum(split != 0 for _, split in ends)


def kind_of(gemm: Gemm) -> str:
    """Whether what is made is "rows" or "columns" of the left matrix. Raises ArgumentError when it is neither."""
    _, _, along_m, along_k = gemm.a
    if along_k == 1 or gemm.k == 1:
        return "rows"
    if along_m == 1 or gemm.m == 1:
        return "columns"
    raise ArgumentError("neither rows nor columns of the matrix lie together")


def production(gemm: Gemm, spec: GemmSpec, source: Source) -> Production:
    """How the source makes the left matrix of a product with this register tile.

    Raises ArgumentError with the reason why A is not made."""
    outer, inner, along_m, along_k = gemm.a
    kind = kind_of(gemm)
    length, apart = (gemm.k, along_m) if kind == "rows" else (gemm.m, along_k)
    others = gemm.m if kind == "rows" else gemm.k
    groups = gemm.batch // gemm.inner
    if (apart != length and others > 1) or (groups > 1 and outer % length) or (gemm.inner > 1 and inner % length):
        raise ArgumentError("the matrix is a part of what is made")
    last = (groups - 1) * outer + (gemm.inner - 1) * inner + others * length
    if min(outer, inner, 0) < 0 or last > source.elements:
        raise ArgumentError("the matrix is not what is made")
    # Panels that are packed on the way are packed for all rows.
    at_once = spec.source in ("rows", "columns")
    if at_once and 4 * gemm.m * gemm.k > MADE_AT_ONCE:
        raise ArgumentError("all of it is needed at a time, and it is long")
    panels, tiles, threads = -(-gemm.n // spec.tile), -(-gemm.m // spec.rows), thread_count()
    chunks = 1 if at_once else -(-tiles // max(1, MADE_BYTES // (4 * gemm.k * spec.rows)))
    if not at_once and gemm.batch % threads:
        # As many for each thread: one that two of them work on is made twice.
        chunks = min(tiles, -(-chunks // threads) * threads)
    lots, splits = gemm.batch * chunks, panels if threads > 1 else 1
    late, again = _shares(tiles, chunks, lots, splits, threads)
    waiting = late * 2 * gemm.batch * gemm.m * gemm.n * gemm.k / OPERATIONS
    if gemm.batch < threads and gemm.m < MANY_ROWS * threads:
        # Each thread reads all of B, not its share, and few rows do not hide that.
        waiting += READ * 4 * gemm.k * gemm.n * (min(chunks, threads) - 1)
    chunk = -(-tiles // chunks) * spec.rows
    pitch = spread(length if kind == "rows" else chunk)
    call = source.rows(length, pitch, is_part=kind == "columns")
    made = Producer(
        call, (chunk if kind == "rows" else gemm.k) * pitch, 1 + again / lots, lots,
        late=waiting,
    )  # fmt: skip
    strides = (pitch, 1) if kind == "rows" else (1, pitch)
    return Production(kind, made, chunks, splits, (outer // length, inner // length), strides)
