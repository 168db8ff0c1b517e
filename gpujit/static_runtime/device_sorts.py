"""Sorting along a dim as steps on a GPU: sort, argsort, msort and topk."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from gpujit.ir.dtypes import INT64
from gpujit.ir.graph import Node, Value
from gpujit.kernels.cuda_steps import StepBuilder
from gpujit.kernels.cuda_templates import sort
from gpujit.kernels.cuda_tile import limits_here
from gpujit.kernels.launches import Address, Number
from gpujit.passes.nodes import known
from gpujit.static_runtime.device_tiles import MadeStep, PlaceOf
from gpujit.static_runtime.device_views import View, copy, scratch_view, view_of
from gpujit.static_runtime.places import Place

# Elements of a row, and of all rows with what is added to make each a power of two.
MOST_ELEMENTS, MOST_IN_ALL = 1 << 18, 1 << 24


class Sorting(NamedTuple):
    """What an operator asks for: the first ``wanted`` elements, None for all; values, places or both."""

    dim: object
    is_descending: object
    wanted: object = None
    has_values: bool = True
    has_places: bool = True


def _sorting(node: Node) -> Sorting | None:
    numbers = [known(v) for v in node.inputs[1:]]
    if node.kind in ("aten::sort", "aten::argsort"):
        dim, is_descending = numbers[-2:]
        return Sorting(dim, is_descending, has_values=node.kind == "aten::sort")
    if node.kind == "aten::msort":
        return Sorting(0, False, has_places=False)
    if node.kind == "aten::topk":
        count, dim, largest, _ = numbers
        return Sorting(dim, largest, count) if type(count) is int else None
    return None


def device_sort(node: Node, place_of: PlaceOf, result: Place) -> MadeStep | None:
    """The step of a node that sorts; None for other nodes, and for very long rows."""
    found = _sorting(node)
    if found is None or type(found.dim) is not int or type(found.is_descending) is not bool:
        return None
    place = place_of(node.inputs[0])
    results = [p for v in node.outputs if (p := place_of(v)) is not None]
    if place is None or len(results) != len(node.outputs) or not sort.takes(place.dtype):
        return None
    build = StepBuilder([place.offset], [p.offset for p in results])
    x = view_of(place, build.operand(0))
    outs = [view for k, p in enumerate(results) if (view := view_of(p, build.result(k))) is not None]
    if x is None or len(outs) != len(results) or not all(v.lies_together or not prod(v.shape) for v in outs):
        return None
    wanted = [x.dtype] * found.has_values + [INT64] * found.has_places
    if [v.dtype for v in outs] != wanted or not _sorts(build, x, outs, found):
        return None
    operands: list[Value] = [node.inputs[0]]
    return build.finish(), operands


def _sorts(build: StepBuilder, x: View, outs: list[View], found: Sorting) -> bool:
    if not x.shape:
        x, outs = (x._replace(shape=(1,), steps=(1,)), [v._replace(shape=(1,), steps=(1,)) for v in outs])
    d, rank = found.dim, len(x.shape)
    if type(d) is not int or not -rank <= d < rank:
        return False
    d %= rank
    n = x.shape[d]
    count = found.wanted if type(found.wanted) is int else n
    if not 0 <= count <= n or any(v.shape != (*x.shape[:d], count, *x.shape[d + 1 :]) for v in outs):
        return False
    if not prod(x.shape) or not count:
        return True
    wide = max(2, 1 << (n - 1).bit_length())
    rows, step = prod(x.shape) // n, prod(x.shape[d + 1 :])
    if n > MOST_ELEMENTS or rows * wide > MOST_IN_ALL:
        return False
    if not x.lies_together:
        whole = scratch_view(build, x.shape, x.dtype)
        copy(build, x, whole)
        x = whole
    tile = min(wide, sort.MOST_TILE)
    limits = limits_here()
    spec = sort.Spec(x.dtype, bool(found.is_descending), tile, min(limits.block, max(tile // 2, limits.warp)))
    work = _Work(build, spec, x, outs, found, (rows, n, count, step))
    if tile == wide:
        work.at_once()
    else:
        work.in_parts(wide)
    return True


class _Work:
    """The launches of a step under construction."""

    def __init__(
        self,
        build: StepBuilder,
        spec: sort.Spec,
        x: View,
        outs: list[View],
        found: Sorting,
        sizes: tuple[int, int, int, int],
    ) -> None:
        self.build, self.spec, self.found = build, spec, found
        self.rows, self.n, self.count, self.step = sizes
        word = f"uint{spec.bits}"
        self.x = word, x.at
        self.outs = [(word if found.has_values and not k else "int64", v.at) for k, v in enumerate(outs)]

    def launch(self, source: str, units: int, *arguments: tuple[str, Address] | int) -> None:
        """A launch with a block for each unit."""
        values = [Number(x, "int64") if isinstance(x, int) else x for x in arguments]
        self.build.kernel(source, "sort", self.spec.block, units, values)

    def at_once(self) -> None:
        """Rows that fit into a tile."""
        source = sort.rows(self.spec, self.found.has_values, self.found.has_places)
        self.launch(source, self.rows, self.x, *self.outs, self.rows, self.n, self.count, self.step)

    def in_parts(self, wide: int) -> None:
        """Rows of several tiles, which are merged."""
        spec, build, rows = self.spec, self.build, self.rows
        keys = spec.key, build.scratch(rows * wide * int(spec.key[4:]) // 8)
        places = "int32", build.scratch(rows * wide * 4)
        units = rows * wide // spec.tile
        self.launch(sort.tiles(spec), units, self.x, keys, places, rows, self.n, wide, self.step)
        size = 2 * spec.tile
        while size <= wide:
            half = size // 2
            while half >= spec.tile:
                pairs = rows * wide // 2
                self.launch(sort.exchange(spec), -(-pairs // spec.block), keys, places, pairs, wide, size, half)
                half //= 2
            self.launch(sort.merge(spec), units, keys, places, rows, wide, size)
            size *= 2
        source = sort.pick(spec, self.found.has_values, self.found.has_places)
        blocks = -(-rows * self.count // spec.block)
        self.launch(source, blocks, self.x, places, *self.outs, rows, self.n, wide, self.count, self.step)
