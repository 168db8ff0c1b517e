"""Kernels of a plan made ready together, before its first run: read from one file, or compiled side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gpujit.fuser.lower import Lowered
from gpujit.ir.graph import Value
from gpujit.kernels.cpu_launch import prepare, strides_of
from gpujit.kernels.cpu_nest import Geometry

Strides = tuple[int, ...]


def make_ready(programs: Iterable[Lowered], known: Mapping[Value, np.ndarray]) -> None:
    """Have the kernels that these groups will most likely run.

    ``known`` are arrays that are there already, such as the plan's inputs. All others are taken to be contiguous, as
    operators make them; a group that meets something else gets its kernel when it does.
    """
    prepare(found for low in programs if (found := expected(low, known)) is not None)


def expected(lowered: Lowered, known: Mapping[Value, np.ndarray]) -> Geometry | None:
    """The call of a group that is most likely to come; None for shapes that are not known."""
    inputs = [_strides(value, known) for value in lowered.inputs]
    outputs = [_strides(value, {}) for value in lowered.outputs]
    whole = tuple(s for s in inputs if s is not None), tuple(s for s in outputs if s is not None)
    if len(whole[0]) < len(inputs) or len(whole[1]) < len(outputs):
        return None
    return Geometry(lowered.program, *whole, tuple(lowered.sizes), tuple(lowered.params))


def _strides(value: Value, known: Mapping[Value, np.ndarray]) -> Strides | None:
    array = known.get(value)
    if array is None and value.is_constant:
        array = value.node.attributes.get("value")
    if isinstance(array, np.ndarray):
        return strides_of(array)
    shape = getattr(value.type, "shape", None)
    return None if shape is None or None in shape else contiguous(shape)


def contiguous(shape: Sequence[int]) -> Strides:
    """Strides, in elements, of a fresh array; 0 where it has no elements, as NumPy gives them."""
    if 0 in shape:
        return (0,) * len(shape)
    strides = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))
