"""What a product or convolution makes of other tensors before it reads it, so that it never lies in memory as a whole.

A template makes a few rows of its operand at a time with the kernel of the program that would have made all of it, and
reads them while they are in the cache. That saves writing and reading a tensor and room for it in the arena; it costs a
call for each lot of rows, and is lost where many threads each need all of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gpujit.fuser.cost import INSTRUCTION
from gpujit.ir.dtypes import FLOAT32, HALF_TYPES
from gpujit.ir.graph import Value
from gpujit.ir.scalar import cast
from gpujit.kernels.index import dim
from gpujit.kernels.templates.producer import Producer, Source
from gpujit.kernels.tile import ArrayType, Compute, Store, TileProgram
from gpujit.kernels.tile_build import Builder
from gpujit.static_runtime.native import Request
from gpujit.static_runtime.places import Place, Strides, contiguous
from gpujit.support.errors import ArgumentError

# Operators whose templates can make an operand.
STARTED = frozenset(
    f"aten::{name}"
    for name in ("linear", "mm", "bmm", "matmul", "addmm", "conv1d", "conv2d", "_convolution", "_convolution_mode")
)
# Nanoseconds that a step of its own costs, its barrier included; a call for some rows; a piece of a row.
STEP, CALL, PIECE = 300.0, 80.0, 8.0
# Nanoseconds that a byte of the tensor takes to be written and read, where a cache holds it, and where it does not
# (measured: 0.006 to 0.011 of tensors of up to 1.5 MB, 0.025 of one of 6 MB).
NEAR, FAR = 0.008, 0.025
CACHE = 2 << 20


@dataclass(frozen=True, slots=True)
class Start:
    """A tensor that its reader makes of others."""

    value: Value
    source: Source
    operands: tuple[Value, ...]

    def is_read(self, value: Value, place_of: Callable[[Value], Place | None]) -> bool:
        """Whether a tensor is this one, or a view that begins where it does. Raises ArgumentError for another view."""
        place = place_of(value)
        if place is None or place.root is not self.value:
            return False
        if place.offset:
            raise ArgumentError("only a part of it is read")
        return True


def start_of(value: Value, request: Request, operands: Sequence[Value]) -> Start:
    """The start that makes a request's result. Raises ArgumentError with the reason why there is none."""
    geometry, (result,) = request.geometry, request.outputs
    if result.strides != contiguous(result.shape, result.dtype):
        raise ArgumentError("its result does not lie together")
    program = widened(geometry.program)
    return Start(
        value, Source(program, geometry.inputs, result.shape, geometry.sizes, geometry.params), tuple(operands)
    )


def widened(program: TileProgram) -> TileProgram:
    """A program of one result with what it stores as float32, after rounding to a half type if that is its type.

    Raises ArgumentError for others.
    """
    (result,), store = program.outputs, program.effects[0]
    if result.dtype == FLOAT32:
        return program
    if result.dtype not in HALF_TYPES or not isinstance(store, Store) or len(program.effects) != 1:
        raise ArgumentError(f"templates multiply float32 and half types, not {result.dtype}")
    body = (*program.body, Compute("cast", (store.value,), FLOAT32))
    return replace(
        program,
        outputs=(ArrayType(FLOAT32, result.rank),),
        body=body,
        effects=(replace(store, value=len(body) - 1),),
    )


def cast_start(value: Value, place: Place) -> tuple[Start, Strides]:
    """The start that makes float32 of a tensor of a half type, and the strides of its dims in what that makes.

    Elements keep the order they have in memory. Raises ArgumentError.
    """
    steps = place.steps
    if steps is None or not is_half(place):
        raise ArgumentError(f"{place.dtype} is no half type")
    order = sorted(range(len(steps)), key=lambda d: (-steps[d], d))
    shape = tuple(place.shape[d] for d in order)
    program = _cast_program(place.dtype, len(shape))
    source = Source(program, (tuple(steps[d] for d in order),), shape, shape)
    made = contiguous(shape, FLOAT32)
    return Start(value, source, (value,)), tuple(made[order.index(d)] // FLOAT32.itemsize for d in range(len(steps)))


def is_half(place: Place) -> bool:
    """Whether a tensor is of a half type."""
    return place.dtype in HALF_TYPES


@lru_cache(maxsize=64)
def _cast_program(dtype: np.dtype, rank: int) -> TileProgram:
    build = Builder(rank)
    at = [dim(d) for d in range(rank)]
    build.store(build.output(FLOAT32, rank), at, cast(build.load(build.input(dtype, rank), at), FLOAT32))
    return build.finish()


def why_not_worth(producer: Producer, inputs: int, result: int, instead: Producer | None = None) -> str:
    """Why a tensor of ``result`` bytes is better made first, of ``inputs`` bytes; '' when it is not.

    Counted is what all threads do together: each makes for itself what one step would have shared among them.
    ``instead`` is what the template would need all the same, to cast the tensor.
    """
    again, calls = _again(producer, inputs), _calls(producer)
    saved = STEP + result * (NEAR if result <= CACHE else FAR)
    if instead is not None:
        saved += _again(instead, result) + _calls(instead) + instead.late
    if again + calls + producer.late <= saved:
        return ""
    if again > saved:
        times = f"{producer.times:.2f}".rstrip("0").rstrip(".")
        return f"each element would be computed {times} times, which takes longer than to store and read it"
    if producer.pieces:
        return f"it would be made in {producer.pieces} pieces of rows, which takes longer than to store and read it"
    if producer.late > saved:
        return "threads would wait for each other longer than it takes to store and read it"
    return f"it would be made in {producer.calls} calls, which take longer than to store and read it"


def _again(producer: Producer, inputs: int) -> float:
    return (producer.times - 1) * (INSTRUCTION * producer.call.work + NEAR * inputs)


def _calls(producer: Producer) -> float:
    return CALL * producer.calls * producer.times + PIECE * producer.pieces
