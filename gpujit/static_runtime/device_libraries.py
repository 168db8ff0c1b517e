"""What makers of steps ask of a device's library, and the reasons why it does not do something."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpujit.kernels.cuda_steps import ALIGNED, StepBuilder
from gpujit.kernels.launches import Address, Attention, Convolution, DeviceStep, LibraryCall
from gpujit.support.config import config

# A device's answer: bytes to work in, or why its library does not do it.
Room = Callable[[Convolution | Attention], int | str]


class Asked:
    """A library as it is asked for one node. ``refusal``: why it does not do it; empty when it was not asked."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.refusal = ""

    def refuse(self, reason: str) -> None:
        """Take down why the library is not used."""
        self.refusal = reason

    def room(self, work: Convolution | Attention, arrays: Sequence[Address]) -> int | None:
        """Bytes that the library needs for work on arrays; None, with the reason kept, when it does not do it."""
        if "cudnn" in config.disable:
            self.refuse("the switch 'disable' turns cuDNN off")
        elif any(x.offset % ALIGNED for x in arrays):
            self.refuse(f"cuDNN takes arrays that begin at multiples of {ALIGNED} bytes")
        else:
            found = self._room(work)
            if isinstance(found, int):
                return found
            self.refuse(found)
        return None


def add_call(build: StepBuilder, work: Convolution | Attention, arrays: Sequence[Address], room: int) -> None:
    """A library's call, which works in the step's own memory."""
    build.add(LibraryCall(work, tuple(arrays), build.scratch(room), room))


def is_by_library(step: DeviceStep) -> bool:
    """Whether a library that was asked does a part of a step."""
    return any(isinstance(c, LibraryCall) for c in step.calls)
