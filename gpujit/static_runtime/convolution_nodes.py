"""What the operators that are convolutions are called with, whatever runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpujit.ir.graph import Node, Value
from gpujit.passes.nodes import known


class Arguments(NamedTuple):
    """What a convolution is called with; numbers as they are known."""

    x: Value
    weights: Value
    bias: Value
    stride: Any
    padding: Any
    dilation: Any
    groups: Any
    transposed: Any = False
    output_padding: Any = None


def convolution_of(node: Node) -> Arguments | None:
    """The arguments of a node that is a convolution."""
    name = None if node.schema is None else node.schema.full_name
    reader = _READERS.get(name or "")
    return None if reader is None else reader(node.inputs)


def _plain(inputs: Sequence[Value]) -> Arguments:
    x, w, bias, *numbers = inputs
    return Arguments(x, w, bias, *map(known, numbers))


def _general(inputs: Sequence[Value]) -> Arguments:
    x, w, bias, *numbers = inputs[:9]
    stride, padding, dilation, transposed, output_padding, groups = map(known, numbers)
    return Arguments(x, w, bias, stride, padding, dilation, groups, transposed, output_padding)


def _turned(inputs: Sequence[Value]) -> Arguments:
    x, w, bias, *numbers = inputs
    stride, padding, output_padding, groups, dilation = map(known, numbers)
    return Arguments(x, w, bias, stride, padding, dilation, groups, True, output_padding)


_READERS = {
    **{f"aten::conv{rank}d{padding}": _plain for rank in (1, 2, 3) for padding in ("", ".padding")},
    "aten::_convolution_mode": _plain,
    **{f"aten::{name}": _general for name in ("convolution", "_convolution", "_convolution.deprecated")},
    "aten::conv_transpose1d": _turned,
    "aten::conv_transpose2d.input": _turned,
    "aten::conv_transpose3d.input": _turned,
}
