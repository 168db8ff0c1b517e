"""Padding layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gpujit import ops
from gpujit.nn.module import Module
from gpujit.nn.parameter import sizes
from gpujit.nn.typing import Sizes, Tensor


class _Padding(Module):
    __constants__: ClassVar[Sequence[str]] = ("padding",)
    padding: tuple[int, ...]

    def _set_up(self, dims: int, padding: Sizes) -> None:
        self.padding = sizes(padding, 2 * dims, f"{type(self).__name__}: padding")

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_Padding):
    """Margins of one value round the last dimension: left, right."""

    __constants__ = ("padding", "value")
    value: float

    def __init__(self, padding: Sizes, value: float) -> None:
        super().__init__()
        self._set_up(1, padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return ops.pad(input, self.padding, "constant", float(self.value))

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad2d(_Padding):
    """Margins of one value round the last two dimensions: left, right, top, bottom."""

    __constants__ = ("padding", "value")
    value: float

    def __init__(self, padding: Sizes, value: float) -> None:
        super().__init__()
        self._set_up(2, padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return ops.pad(input, self.padding, "constant", float(self.value))

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad3d(_Padding):
    """Margins of one value round the last three dimensions: left, right, top, bottom, front, back."""

    __constants__ = ("padding", "value")
    value: float

    def __init__(self, padding: Sizes, value: float) -> None:
        super().__init__()
        self._set_up(3, padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return ops.pad(input, self.padding, "constant", float(self.value))

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ReflectionPad1d(_Padding):
    """Margins of what lies inside, mirrored, round the last dimension: left, right."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__()
        self._set_up(1, padding)

    def forward(self, input: Tensor) -> Tensor:
        return ops.pad(input, self.padding, "reflect")


class ReflectionPad2d(_Padding):
    """Margins of what lies inside, mirrored, round the last two dimensions: left, right, top, bottom."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__()
        self._set_up(2, padding)

    def forward(self, input: Tensor) -> Tensor:
        return ops.pad(input, self.padding, "reflect")


class ReflectionPad3d(_Padding):
    """Margins of what lies inside, mirrored, round the last three dimensions: left, right, top, bottom, front, back."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__()
        self._set_up(3, padding)

    def forward(self, input: Tensor) -> Tensor:
        return ops.pad(input, self.padding, "reflect")


class ReplicationPad1d(_Padding):
    """Margins of the values at the edge, round the last dimension: left, right."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__()
        self._set_up(1, padding)

    def forward(self, input: Tensor) -> Tensor:
        return ops.pad(input, self.padding, "replicate")


class ReplicationPad2d(_Padding):
    """Margins of the values at the edge, round the last two dimensions: left, right, top, bottom."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__()
        self._set_up(2, padding)

    def forward(self, input: Tensor) -> Tensor:
        return ops.pad(input, self.padding, "replicate")


class ReplicationPad3d(_Padding):
    """Margins of the values at the edge, round the last three dimensions: left, right, top, bottom, front, back."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__()
        self._set_up(3, padding)

    def forward(self, input: Tensor) -> Tensor:
        return ops.pad(input, self.padding, "replicate")


class CircularPad1d(_Padding):
    """Margins of what lies at the other end, round the last dimension: left, right."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__()
        self._set_up(1, padding)

    def forward(self, input: Tensor) -> Tensor:
        return ops.pad(input, self.padding, "circular")


class CircularPad2d(_Padding):
    """Margins of what lies at the other end, round the last two dimensions: left, right, top, bottom."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__()
        self._set_up(2, padding)

    def forward(self, input: Tensor) -> Tensor:
        return ops.pad(input, self.padding, "circular")


class CircularPad3d(_Padding):
    """Margins of what lies at the other end, round the last three dimensions: left, right, top, bottom, front, back."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__()
        self._set_up(3, padding)

    def forward(self, input: Tensor) -> Tensor:
        return ops.pad(input, self.padding, "circular")


class ZeroPad1d(ConstantPad1d):
    """Margins of zeros round the last dimension: left, right."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Margins of zeros round the last two dimensions: left, right, top, bottom."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Margins of zeros round the last three dimensions: left, right, top, bottom, front, back."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"
