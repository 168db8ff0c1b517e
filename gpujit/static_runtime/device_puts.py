"""``index_put`` as a step on a GPU: values at places that index tensors say, or one value where a mask holds."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from gpujit.ir import scalar
from gpujit.ir.dtypes import BOOL_, INT64
from gpujit.ir.graph import Node
from gpujit.kernels.cuda_moves import takes
from gpujit.kernels.cuda_steps import Laid, StepBuilder
from gpujit.kernels.cuda_templates import put
from gpujit.kernels.index import dim
from gpujit.kernels.launches import Number
from gpujit.kernels.tile import TileProgram
from gpujit.kernels.tile_build import Builder
from gpujit.passes.nodes import elements_of, known
from gpujit.static_runtime.device_tiles import MadeStep, PlaceOf, cast_program
from gpujit.static_runtime.device_views import View, copy, restate, scratch_view, started
from gpujit.static_runtime.places import Place

NAMES = ("aten::index_put", "aten::_unsafe_index_put")


def device_put(node: Node, place_of: PlaceOf, result: Place) -> MadeStep | None:
    """The step of ``index_put`` that does not add; None for other nodes. It has integer indexes of the first dims, or
    a mask of the whole tensor and one value.
    """
    if node.kind not in NAMES or len(node.inputs) != 4 or known(node.inputs[3]) is not False:
        return None
    listed = elements_of(node.inputs[1])
    if listed is None:
        return None
    operands = [node.inputs[0], node.inputs[2], *listed]
    begun = started(operands, place_of, result, same=2)
    if begun is None:
        return None
    build, views, out = begun
    if not out.lies_together or views[0].shape != out.shape:
        return None
    if not takes([out.dtype]) or not prod(out.shape) or not all(prod(v.shape) for v in views):
        return None
    x, values, *indexes = views
    way = _masked if len(indexes) == 1 and indexes[0].dtype == BOOL_ else _put
    return (build.finish(), operands) if way(build, x, values, indexes, out) else None


def _masked(build: StepBuilder, x: View, values: View, indexes: list[View], out: View) -> bool:
    (mask,) = indexes
    if prod(values.shape) != 1 or mask.shape != x.shape:
        return False
    one = values._replace(shape=x.shape, steps=(0,) * len(x.shape))
    program = _where(x.dtype, len(x.shape))
    build.tile(program, [mask.laid, one.laid, x.laid], [out.laid], out.shape, label="index_put")
    if x.lies_together:
        build.overwrites(0, (0,))
    return True


@lru_cache(maxsize=64)
def _where(dtype: np.dtype, rank: int) -> TileProgram:
    builder = Builder(rank)
    at = [dim(k) for k in range(rank)]
    mask, one, x = (builder.load(builder.input(t, rank), at) for t in (BOOL_, dtype, dtype))
    builder.store(builder.output(dtype, rank), at, scalar.where(mask, one, x))
    return builder.finish()


def _put(build: StepBuilder, x: View, values: View, indexes: list[View], out: View) -> bool:
    count = len(indexes)
    if not 1 <= count <= len(out.shape) or any(v.dtype.kind != "i" for v in indexes):
        return False
    try:
        shape = np.broadcast_shapes(*(v.shape for v in indexes))
        whole = (*shape, *out.shape[count:])
        if np.broadcast_shapes(values.shape, whole) != whole:
            return False
    except ValueError:
        return False
    restate(build, x, out)
    kept = values
    if values.shape != whole or not values.lies_together:
        kept = scratch_view(build, whole, out.dtype)
        copy(build, values, kept)
    numbers = [as_numbers(build, v, shape) for v in indexes]
    # Elements are moved as they are, whatever their type.
    word = f"uint{8 * out.dtype.itemsize}"
    flag = build.check("aten::index_put: an index is out of range")
    places, rest = prod(shape), prod(out.shape[count:])
    sizes = [places, rest, *out.shape[:count], *out.steps[:count]]
    build.kernel(
        put.source(count),
        "index_put",
        put.BLOCK,
        -(-places * rest // put.BLOCK),
        [
            (word, out.at),
            (word, kept.at),
            *(("int64", v.at) for v in numbers),
            ("int32", flag),
            *(Number(n, "int64") for n in sizes),
        ],
    )
    return True


def as_numbers(build: StepBuilder, x: View, shape: tuple[int, ...]) -> View:
    """Indexes as contiguous int64 of a shape."""
    if x.dtype == INT64 and x.shape == shape and x.lies_together:
        return x
    target = scratch_view(build, shape, INT64)
    own = (0 if n == 1 else s for n, s in zip(x.shape, x.steps, strict=True))
    steps = (*[0] * (len(shape) - len(x.shape)), *own)
    build.tile(cast_program(x.dtype, INT64, len(shape)), [Laid(x.at, steps)], [target.laid], shape, label="indexes")
    return target
