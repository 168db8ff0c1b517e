"""Operands that a template makes itself, a few rows at a time, right before it reads them.

What makes them is the kernel of a tile program, compiled for being asked for rows: so whatever a program may do (casts,
activations, norms, softmax, concatenations) may come before a template, and the numbers are those that the program
gives by itself. They go into scratch memory of the thread that reads them. The kernel's block lies behind the words of
the template; each thread has a copy of it there, with addresses of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from llvmlite import ir

from gpujit.kernels import supply
from gpujit.kernels.cpu_nest import NestCall
from gpujit.kernels.cpu_plan import plan_rows
from gpujit.kernels.target import host
from gpujit.kernels.templates.body import TemplateBody
from gpujit.kernels.tile import NotRendered, TileProgram
from gpujit.kernels.vector import I64, POINTER, Vector
from gpujit.support.errors import ArgumentError

# The last words of a template that has a producer, before those of the producer's block: the kernel's address, how many
# words it has, which one takes the result's address, bytes from the thread's scratch memory to what is the
# producer's, and from there to the rows; and how many rows are made at a time.
SLOTS = ("producer", "producer_words", "producer_out", "producer_at", "producer_room", "producer_lot")
LINE = 64


@dataclass(frozen=True, slots=True)
class Source:
    """A program whose only result is a contiguous float32 array of ``shape``, and the numbers of its call."""

    program: TileProgram
    inputs: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    params: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        """Elements of the result."""
        return prod(self.shape)

    def rows(self, length: int, pitch: int, is_part: bool) -> NestCall:
        """The nest that makes rows of ``length`` elements, or parts of them. Raises ArgumentError with the reason."""
        if self.elements % length:
            raise ArgumentError(f"{self.elements} elements are no rows of {length}")
        try:
            call = plan_rows(
                self.program, self.inputs, self.shape, self.sizes, self.params, host().width, length, pitch
            )
        except NotRendered as fault:
            raise ArgumentError(fault.message) from fault
        if is_part and not call.nest.is_chunked:
            raise ArgumentError("numbers of a row depend on all of it, and only a part of each is needed at a time")
        return call


@dataclass(frozen=True, slots=True)
class Producer:
    """A source's kernel for certain rows, as part of a template's block.

    ``floats`` is the room for rows, ``lot`` how many are made at a time, where that is the producer's to say. Each
    element is made ``times`` times on average, and all of them in ``calls`` calls and ``pieces`` pieces of rows, if not
    whole rows are made. Threads wait ``late`` nanoseconds for each other, all together.
    """

    call: NestCall
    floats: int
    times: float = 1
    calls: int = 1
    lot: int = 0
    pieces: int = 0
    late: float = 0

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the words behind the template's own."""
        return (*SLOTS, *(f"producer{k}" for k in range(len(self.call.words))))

    @property
    def arrays(self) -> list[str]:
        """The words that take the addresses of what the producer reads."""
        return [f"producer{k}" for k in range(len(self.call.nest.program.inputs))]

    @property
    def dtypes(self) -> dict[str, type]:
        """The types of those arrays."""
        return {name: a.dtype.type for name, a in zip(self.arrays, self.call.nest.program.inputs, strict=True)}

    def scratch_bytes(self, at: int) -> int:
        """What a thread needs, with ``at`` bytes of its own before."""
        return _lines(at) + self._room + 4 * self.floats

    @property
    def _room(self) -> int:
        """Bytes before the rows: the copy of the block, and what the kernel needs itself."""
        nest = self.call.nest
        return _lines(8 * len(self.call.words)) + _lines(self.call.words[nest.slots["scratch_bytes"]])

    def words(self, at: int) -> dict[str, int]:
        """The words but the kernel's address, for memory that begins ``at`` bytes behind a thread's scratch memory."""
        nest = self.call.nest
        own = dict(zip(self.slots[len(SLOTS) :], self.call.words, strict=True))
        return own | {
            "producer_words": len(self.call.words),
            "producer_out": nest.slots["outputs"], "producer_at": _lines(at), "producer_room": self._room,
            "producer_lot": self.lot,
        }  # fmt: skip

    def address(self) -> int:
        """The address of the kernel. Raises NotRendered, InternalError when there is none."""
        return supply.address(self.call.nest)


def _lines(size: int) -> int:
    return -(-size // LINE) * LINE


def spread(length: int) -> int:
    """At least ``length`` floats, such that neighbouring rows do not share few sets of a cache."""
    pitch = -(-length // 16) * 16
    return pitch + 16 if pitch % 256 == 0 else pitch


# In a template's code -----------------------------------------------------------------------------------------------


def _own(k: TemplateBody) -> ir.Value:
    return k.e.pointer((k.integer_of(k.scratch()) + k.word("producer_at")).value)


def begin(k: TemplateBody) -> None:
    """Where a thread begins: its copy of the block."""
    first, count = len(k.slots), k.word("producer_words")
    own, block = _own(k), k.e.at(k.block, first, "int64")
    with k.loop(0, count) as i:
        k.e.store(own, i.value, k.e.load(block, i.value, "int64", 1))
    # The kernel's own scratch memory lies behind the copy.
    scratch = k.integer_of(own) + ((count * 8 + (LINE - 1)) & -LINE)
    k.e.store(own, (k.word("producer_out") + 1).value, scratch)


def rows_at(k: TemplateBody) -> ir.Value:
    """The address of the room for rows."""
    return k.e.pointer((k.integer_of(_own(k)) + k.word("producer_room")).value)


def make(k: TemplateBody, low: Vector, high: Vector, first: Vector | int, last: Vector, target: ir.Value) -> None:
    """Elements from ``first`` up to ``last`` of the rows from ``low`` up to ``high``; ``target``: where the first
    element of row 0 would be."""
    own, out = _own(k), k.word("producer_out")
    # Behind the result's address: scratch memory, flags, where parts of rows begin, bytes of scratch, where they end.
    k.e.store(own, out.value, k.integer_of(target))
    k.e.store(own, (out + 3).value, k.number(first) if isinstance(first, int) else first)
    k.e.store(own, (out + 5).value, last)
    k.builder.call(_Kernel(k.e.pointer(k.word("producer").value)), [own, low.value, high.value])


class _Kernel:
    """An address as llvmlite calls a function, which it does by name alone."""

    def __init__(self, address: ir.Value) -> None:
        self.type, self.get_reference = POINTER, address.get_reference
        self.function_type = ir.FunctionType(ir.VoidType(), [POINTER, I64, I64])


def array_types(producer: Producer | None) -> dict[str, type[np.generic]]:
    """The types of the arrays of a template that are not float32."""
    return {} if producer is None else producer.dtypes


def names(producer: Producer | None, name: str) -> Sequence[str]:
    """The arrays that stand for the operand ``name``."""
    return [name] if producer is None else producer.arrays
