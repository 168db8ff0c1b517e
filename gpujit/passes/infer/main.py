"""Dtypes and shapes pushed forward through a whole graph, sizes followed as numbers or symbolic expressions.

What holds for every run is written into the types of values; ``Facts`` holds what types cannot say: ints, lists of ints
and flags that are known, and the numbers in traced 0-dim tensors. Ifs join what both blocks give, loops are repeated
until what they carry no longer changes. Sizes that differ become unknown, so that this ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpujit.ir.graph import Graph, Value
from gpujit.ir.symbols import Sym
from gpujit.ir.types import TensorType
from gpujit.ops.rules.common import Unknown
from gpujit.passes.base import graph_pass
from gpujit.passes.infer import kinds as infer_kinds
from gpujit.passes.infer.engine import Engine, Facts, from_type, refined
from gpujit.support.errors import ArgumentError

# Importing it fills the table of handlers.
KINDS = infer_kinds


def infer_types(graph: Graph, inputs: Sequence[Any] | None = None) -> Facts:
    """What holds of the graph's values whenever its inputs are as said; types of values are refined in place.

    Args:
        inputs: for each input a TensorType (sizes may be Sym), a number or other value, a list or tuple of these, or
            UNKNOWN; a module stands for itself, its tensors for their types. By default the types on the graph.
    Raises ArgumentError when the inputs are fewer or more than the graph's, or of other types.
    """
    engine = Engine(graph)
    given = [from_type(v.type) for v in graph.inputs] if inputs is None else list(inputs)
    if len(given) != len(graph.inputs):
        raise ArgumentError(f"{graph.name or 'the graph'} has {len(graph.inputs)} inputs, found {len(given)} types")
    while True:
        for value, known in zip(graph.inputs, given, strict=True):
            engine.set(value, _checked(value, known))
        engine.block(graph.block)
        if not engine.found_reshaped():
            break
    engine.write_types()
    return engine.facts


@graph_pass("infer_types")
def infer_types_pass(graph: Graph) -> bool:
    """Refine the types of all values by those already on the graph's inputs and constants."""
    engine = Engine(graph)
    while True:
        for value in graph.inputs:
            engine.set(value, from_type(value.type))
        engine.block(graph.block)
        if not engine.found_reshaped():
            break
    return engine.write_types()


def symbolic_inputs(inputs: Sequence[Any], dims: dict[tuple[int, int], int | Sym]) -> list[Any]:
    """Example types with some sizes replaced: ``dims`` maps (input, dim) to a symbol or expression."""
    found = []
    for i, given in enumerate(inputs):
        if isinstance(given, TensorType) and given.shape is not None:
            shape = tuple(dims.get((i, k), n) for k, n in enumerate(given.shape))
            given = TensorType(given.dtype, shape)
        found.append(given)
    return found


def _checked(value: Value, known: Any) -> Any:
    """What is said of an input, with what its type says. Raises ArgumentError when these contradict."""
    t = value.type
    if isinstance(t, TensorType):
        if not isinstance(known, TensorType):
            if isinstance(known, Unknown):
                return from_type(t)
            raise ArgumentError(f"input {value.name or '?'} is a {t}; give a TensorType, not {known!r}")
        merged = refined(t, known)
        if merged is None:
            raise ArgumentError(f"input {value.name or '?'} is a {t}, which {known} contradicts")
        return TensorType(merged.dtype, merged.shape)
    return known
