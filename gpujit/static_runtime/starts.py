"""What a product or convolution makes of other tensors before it reads it, so that it never lies in memory as a whole.

A template makes a few rows of its operand at a time with the kernel of the program that would have made all of it, and
reads them while they are in the cache. That saves writing and reading a tensor and room for it in the arena; it costs a
call for each lot of rows, and is lost where many threads each need all of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpujit.fuser.cost import INSTRUCTION
from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.graph import Value
from gpujit.kernels.templates.producer import Producer, Source
from gpujit.static_runtime.native import Request
from gpujit.static_runtime.places import Place, contiguous
from gpujit.support.errors import ArgumentError

# Operators whose templates can make an operand.
STARTED = frozenset(
    f"aten::{name}" for name in ("linear", "mm", "bmm", "matmul", "addmm", "conv1d", "conv2d", "_convolution")
)
# Nanoseconds that a step of its own costs, its barrier included; a call for some rows; a piece of a row.
STEP, CALL, PIECE = 300.0, 80.0, 8.0
# Nanoseconds that a byte of the tensor takes to be written and read, where a cache holds it, and where it does not. (What
# was measured: 0.006 to 0.011 of tensors of up to 1.5 MB, 0.025 of one of 6 MB.)
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
    if result.dtype != FLOAT32 or result.strides != contiguous(result.shape, result.dtype):
        raise ArgumentError(f"templates multiply contiguous float32, not {result.dtype}")
    source = Source(geometry.program, geometry.inputs, result.shape, geometry.sizes, geometry.params)
    return Start(value, source, tuple(operands))


def why_not_worth(producer: Producer, inputs: int, result: int) -> str:
    """Why a tensor of ``result`` bytes is better made first, of ``inputs`` bytes; '' when it is not.

    Counted is what all threads do together: each makes for itself what one step would have shared among them.
    """
    again = (producer.times - 1) * (INSTRUCTION * producer.call.work + NEAR * inputs)
    calls = CALL * producer.calls * producer.times + PIECE * producer.pieces
    saved = STEP + result * (NEAR if result <= CACHE else FAR)
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
