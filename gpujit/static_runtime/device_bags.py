"""``embedding_bag`` as a step on a GPU: sums and means of bags of rows. Maxima are left to the host."""

from __future__ import annotations

from math import prod

from gpujit.ir.dtypes import INT64
from gpujit.ir.graph import Node
from gpujit.kernels.cuda_steps import StepBuilder
from gpujit.kernels.cuda_templates import bags
from gpujit.kernels.cuda_tile import limits_here
from gpujit.kernels.launches import Number
from gpujit.passes.nodes import known
from gpujit.static_runtime.device_puts import as_numbers
from gpujit.static_runtime.device_tiles import MadeStep, PlaceOf
from gpujit.static_runtime.device_views import PRODUCT_TYPES, view_of
from gpujit.static_runtime.places import Place

# Ways to make one row of a bag.
SUM, MEAN = 0, 1


def device_bags(node: Node, place_of: PlaceOf, result: Place) -> MadeStep | None:
    """The step of ``embedding_bag``; None for other nodes."""
    if node.kind != "aten::embedding_bag" or result.dtype not in PRODUCT_TYPES or len(node.inputs) < 8:
        return None
    *tensors, _, mode, _, weights, has_last = node.inputs[:8]
    left_out = known(node.inputs[8]) if len(node.inputs) > 8 else None
    has_weights = not (weights.is_constant and weights.constant() is None)
    if known(mode) not in (SUM, MEAN) or known(has_last) is not False:
        return None
    if left_out is not None and type(left_out) is not int:
        return None
    operands = [*tensors, *([weights] if has_weights else [])]
    places = [p for v in operands if (p := place_of(v)) is not None]
    results = [p for v in node.outputs if (p := place_of(v)) is not None]
    if len(places) != len(operands) or len(results) != 4:
        return None
    build = StepBuilder([p.offset for p in places], [p.offset for p in results])
    views = [v for k, p in enumerate(places) if (v := view_of(p, build.operand(k))) is not None]
    outs = [v for k, p in enumerate(results) if (v := view_of(p, build.result(k))) is not None]
    if len(views) != len(places) or len(outs) != 4:
        return None
    table, index, first, *given = views
    y, bag_of, sizes, _ = outs
    shapes = len(table.shape), len(index.shape), len(first.shape)
    if shapes != (2, 1, 1) or any(v.dtype != result.dtype for v in (table, *given)) or index.dtype != INT64:
        return None
    (count,), (many,) = index.shape, first.shape
    if first.dtype.kind != "i" or y.shape != (many, table.shape[1]) or not prod(y.shape) or not prod(table.shape):
        return None
    if bag_of.shape != (count,) or sizes.shape != (many,) or any(v.dtype != INT64 for v in (bag_of, sizes)):
        return None
    if has_weights and (known(mode) != SUM or given[0].shape != (count,) or given[0].steps != (1,)):
        return None
    if not count:
        return None
    numbers = [as_numbers(build, v, v.shape) for v in (index, first)]
    spec = bags.Spec(table.dtype, known(mode) == MEAN, has_weights, limits_here().block)
    faults = "offsets do not fit the indices", "an index is out of range"
    flags = [build.check(f"{node.kind}: {text}") for text in faults]
    if left_out is not None and left_out < 0:
        left_out += table.shape[0]
    sizes_of_all = [many, table.shape[1], count, table.shape[0], *table.steps, -1 if left_out is None else left_out]
    build.kernel(
        bags.source(spec),
        "embedding_bag",
        spec.block,
        -(-prod(y.shape) // spec.block),
        [
            (spec.word, table.at),
            *(("int64", v.at) for v in numbers),
            *((spec.word, v.at) for v in given),
            (spec.word, y.at),
            *(("int64", v.at) for v in (bag_of, sizes)),
            *(("int32", flag) for flag in flags),
            *(Number(n, "int64") for n in sizes_of_all),
        ],
    )
    return build.finish(), operands
