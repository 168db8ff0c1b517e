"""What a product or convolution does to its sums before it stores them, found in the program of who reads its result.

A program ends a step when it computes, from the numbers at each point, the number at that very point: an activation
that templates have, with a residual added before or behind it. Activations are known by what the operators for them
record, whatever the operators in the program were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gpujit.fuser.lower import lower
from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.types import TensorType
from gpujit.kernels.index import dim
from gpujit.kernels.templates.bound import BoundTemplate
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.tile import Call, Compute, Const, Instruction, Load, Store, TileProgram
from gpujit.ops import table
from gpujit.static_runtime.native import Made, of_template
from gpujit.static_runtime.places import Place, contiguous

# Longer programs are not looked at: no activation is as long.
LONGEST = 64


class Ending(NamedTuple):
    """What is done to a step's sums; the residual has the result's size and lies in the same order."""

    activation: str | None = None
    residual: Value | None = None
    residual_last: bool = False

    @property
    def operands(self) -> tuple[Value, ...]:
        """What is read at the end."""
        return () if self.residual is None else (self.residual,)

    def step(self, bound: BoundTemplate, operands: Sequence[Value]) -> Made:
        """The step of a template with this ending, whose other operands are given.

        Each number of a residual is read just before the result's number at its place is written, so the result may be
        written over it.
        """
        operands = [*operands, *self.operands]
        behind = len(self.operands)
        return of_template(bound, behind=behind, overwrites=(len(operands) - 1,) * behind), operands

    def epilogue(self, has_bias: bool, result: np.dtype) -> Epilogue:
        """The same for a template, with a result of this type."""
        return Epilogue(has_bias, self.residual is not None, self.activation, self.residual_last, result.name)


NO_ENDING = Ending()


def endings(
    program: TileProgram, values: Sequence[Value], places: Sequence[Place], result: Place
) -> Iterator[tuple[int, Ending]]:
    """Inputs of a program whose makers could do all that it does, and what they would do.

    Args:
        values: the inputs; ``places`` says where they, and the result, lie.
    """
    if len(places) not in (1, 2) or len(program.outputs) != 1 or program.rows or len(program.body) > LONGEST:
        return
    store = program.effects[0]
    if len(program.effects) != 1 or not isinstance(store, Store) or store.mask is not None:
        return
    if any(p.shape != result.shape or p.dtype != FLOAT32 or not _is_plain(p) for p in (*places, result)):
        return
    if not _is_everywhere(store, result, program.dims) or not all(_is_alike(i, store, result) for i in program.body):
        return
    numbers: dict[Any, int] = {}
    loads = [numbers.setdefault(("load", k), len(numbers)) for k in range(len(places))]
    found = _number(program.body, store.value, dict(enumerate(loads)), numbers)
    for k, x in enumerate(loads):
        if len(loads) == 1:
            ways = [(Ending(name), _number(body, last, {0: x}, numbers)) for name, body, last in _activations()]
        else:
            other, residual = loads[1 - k], values[1 - k]
            before = _sum(x, other, numbers)
            ways = [(Ending(None, residual), before)]
            for name, body, last in _activations():
                ways.append((Ending(name, residual), _number(body, last, {0: before}, numbers)))
                activated = _number(body, last, {0: x}, numbers)
                ways.append((Ending(name, residual, True), _sum(activated, other, numbers)))
        yield from ((k, ending) for ending, number in ways if number == found)


def _is_plain(x: Place) -> bool:
    return x.strides == contiguous(x.shape, x.dtype)


def _is_everywhere(store: Store, result: Place, dims_of_space: int) -> bool:
    """Whether each dim of the result is a dim of the space: each element is a point of its own."""
    dims = [str(i) for i, n in zip(store.coords, result.shape, strict=True) if n != 1]
    return len({*dims}) == len(dims) and {*dims} <= {str(dim(d)) for d in range(dims_of_space)}


def _is_alike(item: Instruction, store: Store, result: Place) -> bool:
    """Whether an instruction computes with float32 numbers of the point that is stored."""
    if item.dtype != FLOAT32:
        return False
    if not isinstance(item, Load):
        return isinstance(item, (Const, Compute, Call))
    if item.mask is not None or len(item.coords) != len(store.coords):
        return False
    return all(n == 1 or str(a) == str(b) for a, b, n in zip(item.coords, store.coords, result.shape, strict=True))


# Equal values get equal numbers -----------------------------------------------------------------------------------

_COMMUTES = ("add", "mul", "maximum", "minimum")


def _number(body: Sequence[Instruction], wanted: int, arrays: Mapping[int, int], numbers: dict[Any, int]) -> int:
    """The number of a value in ``body``, whose loads have the numbers in ``arrays``."""
    found: list[int] = []
    for item in body:
        if isinstance(item, Load):
            found.append(arrays[item.array])
            continue
        key: Any
        if isinstance(item, Const):
            key = ("const", repr(float(item.value)))
        else:
            assert isinstance(item, (Compute, Call))
            name = ("call", item.name) if isinstance(item, Call) else item.op
            operands = [found[v] for v in item.operands]
            key = (name, *(sorted(operands) if name in _COMMUTES else operands))
        found.append(numbers.setdefault(key, len(numbers)))
    return found[wanted]


def _sum(x: int, y: int, numbers: dict[Any, int]) -> int:
    return numbers.setdefault(("add", *sorted((x, y))), len(numbers))


# Activations as they are recorded ---------------------------------------------------------------------------------

# Operators with what they get behind the tensor; "times" multiplies the tensor by the result.
_RECORDED: tuple[tuple[str, str, tuple[Any, ...], bool], ...] = (
    ("relu", "aten::relu", (), False),
    ("relu", "aten::clamp_min", (0.0,), False),
    ("relu6", "aten::relu6", (), False),
    ("relu6", "aten::hardtanh", (0.0, 6.0), False),
    ("hardsigmoid", "aten::hardsigmoid", (), False),
    ("hardswish", "aten::hardswish", (), False),
    ("hardswish", "aten::hardsigmoid", (), True),
    ("sigmoid", "aten::sigmoid", (), False),
    ("silu", "aten::silu", (), False),
    ("silu", "aten::sigmoid", (), True),
    ("tanh", "aten::tanh", (), False),
    ("gelu", "aten::gelu", ("none",), False),
    ("gelu_tanh", "aten::gelu", ("tanh",), False),
)


@lru_cache(maxsize=1)
def _activations() -> tuple[tuple[str, Sequence[Instruction], int], ...]:
    """Each form of each activation: its name for a template, a body with one load, and the value that it gives."""
    found = []
    for name, op, arguments, is_factor in _RECORDED:
        graph = Graph(name)
        x = graph.add_input(_TYPE)
        nodes = [_node(graph, op, [x, *arguments])]
        if is_factor:
            nodes.append(_node(graph, "aten::mul.Tensor", [x, nodes[0].output]))
        program = lower(nodes, [nodes[-1].output]).program
        store = program.effects[0]
        assert isinstance(store, Store)
        found.append((name, program.body, store.value))
    return tuple(found)


_TYPE = TensorType(6, (8,))


def _node(graph: Graph, name: str, arguments: Sequence[Any]) -> Node:
    op = table.by_full_name(name)
    assert op is not None
    inputs = [
        x if isinstance(x, Value) else graph.constant(x, a.type)
        for x, a in zip(arguments, op.schema.arguments, strict=True)
    ]
    node = Node(op.name, inputs)
    node.schema = op.schema
    node.add_output(_TYPE)
    graph.block.append(node)
    return node
