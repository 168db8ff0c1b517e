"""Elements put or added at places that index tensors say, as steps on a GPU: scatter, index_add and its like, one_hot.

Elements of one place are taken in order, one thread for all of a line's, so that results are the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.dtypes import FLOAT32, HALF_TYPES, INT64
from gpujit.ir.graph import Node, Value
from gpujit.kernels.cuda_moves import takes
from gpujit.kernels.cuda_steps import StepBuilder
from gpujit.kernels.cuda_templates import scatter
from gpujit.kernels.cuda_tile import limits_here
from gpujit.kernels.launches import Number
from gpujit.passes.nodes import elements_of, known
from gpujit.static_runtime.device_puts import NAMES as PUTS
from gpujit.static_runtime.device_puts import as_numbers
from gpujit.static_runtime.device_tiles import MadeStep, PlaceOf, cast_program
from gpujit.static_runtime.device_views import View, copy, restate, scratch_view, started
from gpujit.static_runtime.places import Place

# Elements that one thread takes one after the other.
MOST_IN_LINE = 4096


@dataclass(frozen=True, slots=True)
class Lines:
    """What is written: ``shape`` of all lines, with the strides that tensor, elements and indexes have along it;
    ``length`` of a line, with the strides of elements and indexes; dims of the tensor that the indexes are for."""

    shape: Sequence[int]
    out: Sequence[int]
    values: Sequence[int]
    index: Sequence[int]
    length: int
    value_step: int
    index_step: int
    dims: Sequence[int]


def device_scatter(node: Node, place_of: PlaceOf, result: Place) -> MadeStep | None:
    """The step of a node that scatters; None for other nodes, and for long lines."""
    make = _OPERATORS.get(node.kind)
    if make is None or len(node.outputs) != 1 or not takes([result.dtype]):
        return None
    work = _Work(node, place_of, result)
    return work.finished() if make(work) else None


class _Work:
    """A step under construction."""

    def __init__(self, node: Node, place_of: PlaceOf, result: Place) -> None:
        self.node, self.place_of, self.result = node, place_of, result
        self.name = node.schema.full_name if node.schema is not None else node.kind
        self.operands: list[Value] = []

    def begin(self, operands: list[Value], same: int) -> list[View] | None:
        """Views of the operands, of which the first ``same`` are of the result's dtype; None when they are none."""
        begun = started(operands, self.place_of, self.result, same=same)
        if begun is None or not begun[2].lies_together:
            return None
        self.operands = operands
        self.build, views, self.out = begun
        return views

    def finished(self) -> MadeStep:
        """The step."""
        return self.build.finish(), self.operands

    def number(self, value: Any) -> View | None:
        """One element of the result's dtype; None for a number that it does not hold."""
        kinds: dict[str, Any] = {"b": bool, "i": int, "u": int}
        if not isinstance(value, kinds.get(self.out.dtype.kind, (int, float))):
            return None
        try:
            array = np.array([value], self.out.dtype)
        except OverflowError:
            return None
        return View(self.build.constant(array), (1,), (1,), array.dtype)

    def summed(self, values: View) -> View:
        """Elements as they are added: those of half types as float32, since sums are rounded once."""
        if values.dtype not in HALF_TYPES:
            return values
        wide = scratch_view(self.build, values.shape, FLOAT32)
        _cast(self.build, values, wide)
        return wide

    def add(
        self, x: View | None, values: View, indexes: Sequence[View], lines: Lines, *, is_sum: bool, **more: Any
    ) -> bool:
        """Write into a copy of ``x``; None is a tensor of zeros. Sums have the dtype of ``values``."""
        build, out = self.build, self.out
        if lines.length > MOST_IN_LINE:
            return False
        start = View(build.constant(np.zeros(1, out.dtype)), (1,), (0,), out.dtype) if x is None else x
        target = out
        if values.dtype != out.dtype:
            target = scratch_view(build, out.shape, values.dtype)
            _cast(build, start, target)
        elif x is None:
            copy(build, start, target)
        else:
            restate(build, start, target)
        if prod(lines.shape) * lines.length:
            self._launch(target, values, indexes, lines, is_sum=is_sum, **more)
        if target is not out:
            _cast(build, target, out)
        return True

    def _launch(
        self, target: View, values: View, indexes: Sequence[View], lines: Lines, *, is_sum: bool, factor: Any = 1,
        wraps: bool = False,
    ) -> None:  # fmt: skip
        build = self.build
        spec = scatter.Spec(
            target.dtype, len(lines.shape), len(indexes), is_sum, factor != 1, wraps, limits_here().block
        )
        flag = build.check(f"{self.node.kind}: an index is out of range")
        each = zip(lines.shape, lines.out, lines.values, lines.index, strict=True)
        count = prod(lines.shape)
        numbers = [count, lines.length, *(n for four in each for n in four), lines.value_step, lines.index_step]
        for d in lines.dims:
            numbers += [target.shape[d], target.steps[d]]
        build.kernel(
            scatter.source(spec),
            "scatter",
            spec.block,
            -(-count // spec.block),
            [
                (spec.word, target.at),
                (spec.word, values.at),
                *(("int64", v.at) for v in indexes),
                ("int32", flag),
                *(Number(n, "int64") for n in numbers),
                *([Number(factor, spec.word)] if factor != 1 else []),
            ],
        )


def _cast(build: StepBuilder, source: View, target: View) -> None:
    """Write a tensor's elements, broadcast, as another dtype."""
    missing = len(target.shape) - len(source.shape)
    steps = (*[0] * missing, *(0 if n == 1 else s for n, s in zip(source.shape, source.steps, strict=True)))
    program = cast_program(source.dtype, target.dtype, len(target.shape))
    build.tile(program, [source._replace(steps=steps).laid], [target.laid], target.shape, label="cast")


def _dim(x: View, d: Any) -> int | None:
    """A dim counted from the front; None when there is none of that number."""
    rank = len(x.shape)
    return d % rank if type(d) is int and -rank <= d < rank else None


# Along a dim, with an index for each element --------------------------------------------------------------------------


def _scatter(work: _Work) -> bool:
    node, name = work.node, work.name
    _, dim, index_value, source = node.inputs[:4]
    is_sum = name == "aten::scatter_add"
    if name in ("aten::scatter.reduce", "aten::scatter.value_reduce"):
        if known(node.inputs[4]) != "add":
            return False
        is_sum = True
    has_tensor = "value" not in name
    views = work.begin([node.inputs[0], *([source] if has_tensor else []), index_value], 2 if has_tensor else 1)
    if views is None:
        return False
    x, index = views[0], views[-1]
    d = _dim(x, known(dim))
    values = views[1] if has_tensor else work.number(known(source))
    if d is None or values is None or len(index.shape) != len(x.shape) or index.dtype.kind != "i":
        return False
    others = [e for e in range(len(x.shape)) if e != d]
    if any(index.shape[e] > x.shape[e] for e in others):
        return False
    if is_sum:
        values = work.summed(values)
    steps: Sequence[int] = (0,) * len(x.shape)
    if has_tensor:
        if len(values.shape) != len(x.shape) or any(a > b for a, b in zip(index.shape, values.shape, strict=True)):
            return False
        steps = values.steps
    if index.dtype != INT64:
        index = as_numbers(work.build, index, index.shape)
    lines = Lines(
        [index.shape[e] for e in others], [work.out.steps[e] for e in others], [steps[e] for e in others],
        [index.steps[e] for e in others], index.shape[d], steps[d], index.steps[d], [d],
    )  # fmt: skip
    return work.add(x, values, [index], lines, is_sum=is_sum)


# Along a dim, with an index for each slice ----------------------------------------------------------------------------


def _slices(work: _Work) -> bool:
    node, name = work.node, work.name
    _, dim, index_value, source, *rest = node.inputs
    has_tensor = not name.startswith("aten::index_fill.int_Scalar")
    views = work.begin([node.inputs[0], *([source] if has_tensor else []), index_value], 2 if has_tensor else 1)
    if views is None:
        return False
    x, index = views[0], views[-1]
    d, factor = _dim(x, known(dim)), known(rest[0]) if rest else 1
    values = views[1] if has_tensor else work.number(known(source))
    if d is None or values is None or len(index.shape) > 1 or index.dtype.kind != "i":
        return False
    if factor != 1 and (work.out.dtype.kind not in "fiu" or work.out.dtype in HALF_TYPES):
        return False
    if type(factor) is not int and not (type(factor) is float and work.out.dtype.kind == "f"):
        return False
    if node.kind == "aten::index_add":
        values = work.summed(values)
    count = prod(index.shape)
    steps: Sequence[int] = (0,) * len(x.shape)
    if node.kind == "aten::index_fill":
        if prod(values.shape) != 1:
            return False
    elif values.shape == (*x.shape[:d], count, *x.shape[d + 1 :]):
        steps = values.steps
    else:
        return False
    others = [e for e in range(len(x.shape)) if e != d]
    numbers = as_numbers(work.build, index, (count,)) if count else index
    lines = Lines(
        [x.shape[e] for e in others], [work.out.steps[e] for e in others], [steps[e] for e in others],
        [0] * len(others), count, steps[d], 1, [d],
    )  # fmt: skip
    return work.add(x, values, [numbers], lines, is_sum=node.kind == "aten::index_add", factor=factor)


# Several indexes ------------------------------------------------------------------------------------------------------


def _put(work: _Work) -> bool:
    """``index_put`` that adds, or whose indexes are for dims side by side that are not the first ones."""
    node = work.node
    listed = elements_of(node.inputs[1]) if len(node.inputs) == 4 else None
    is_sum = known(node.inputs[3]) if listed else None
    if listed is None or type(is_sum) is not bool:
        return False
    given = [k for k, v in enumerate(listed) if known(v) is not None]
    views = work.begin([node.inputs[0], node.inputs[2], *(listed[k] for k in given)], 2)
    if views is None or not given or given != list(range(given[0], given[-1] + 1)):
        return False
    x, values, *indexes = views
    first, end, out = given[0], given[-1] + 1, work.out
    if end > len(x.shape) or any(v.dtype.kind != "i" for v in indexes):
        return False
    try:
        shape = np.broadcast_shapes(*(v.shape for v in indexes))
        whole = (*x.shape[:first], *shape, *x.shape[end:])
        if np.broadcast_shapes(values.shape, whole) != whole:
            return False
    except ValueError:
        return False
    if not prod(whole):
        copy(work.build, x, out)
        return True
    kept = scratch_view(work.build, whole, out.dtype)
    copy(work.build, values, kept)
    before, length, rest = prod(x.shape[:first]), prod(shape), prod(x.shape[end:])
    numbers = [as_numbers(work.build, v, shape) for v in indexes]
    if is_sum:
        kept = work.summed(kept)
    kept = kept._replace(shape=(before, length, rest), steps=(length * rest, rest, 1))
    # Lines of one dim need no other.
    sides = [(before, prod(x.shape[first:]), length * rest)] if before > 1 else []
    sides.append((rest, 1, 1))
    sizes, outs, steps = (list(each) for each in zip(*sides, strict=True))
    lines = Lines(sizes, outs, steps, [0] * len(sides), length, rest, 1, list(range(first, end)))
    return work.add(x, kept, numbers, lines, is_sum=is_sum, wraps=True)


def _one_hot(work: _Work) -> bool:
    views = work.begin([work.node.inputs[0]], 1)
    if views is None:
        return False
    (x,), out = views, work.out
    classes = known(work.node.inputs[1])
    if x.dtype != INT64 or type(classes) is not int or classes < 1 or out.shape != (*x.shape, classes):
        return False
    one = work.number(1)
    assert one is not None
    lines = Lines(x.shape, out.steps[:-1], [0] * len(x.shape), x.steps, 1, 0, 0, [len(x.shape)])
    return work.add(None, one, [x], lines, is_sum=False)


_OPERATORS: dict[str, Callable[[_Work], bool]] = {
    **dict.fromkeys(("aten::scatter", "aten::scatter_add"), _scatter),
    **dict.fromkeys(("aten::index_add", "aten::index_copy", "aten::index_fill"), _slices),
    **dict.fromkeys(PUTS, _put),
    "aten::one_hot": _one_hot,
}
