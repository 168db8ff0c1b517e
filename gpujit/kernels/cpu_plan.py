"""Which nest a call gets: by rules, from the program, the strides and the sizes.

Dims are put in the order of the results' memory, and those that lie in memory as one are merged first, so that a call
of any rank on dense arrays runs the kernel of one dim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gpujit.kernels.cpu_nest import (
    ACROSS,
    ALONG,
    ANY,
    BY_RULE,
    EVALUATED,
    MAX_UNROLL,
    ONE,
    SAME,
    SEGMENTS,
    STEPS,
    Nest,
    NestCall,
    Tile,
)
from gpujit.kernels.dim_order import in_memory_order
from gpujit.kernels.schedule import (
    Access,
    Strides,
    accesses,
    collapse,
    is_even,
    lane_dim,
    moves,
    offset_at_zero,
)
from gpujit.kernels.tile import Compute, Const, Load, NotRendered, Reduce, Store, TileProgram, operands_of

# Elements of a chunk when lanes lie along a dim whose neighbours are far apart in memory, and when they do not.
CHUNK_FAR, CHUNK = 512, 16_384
# How many values of vectors side by side may be alive at a time.
REGISTERS = 28
# Vectors of a row that is written out, and instructions for all of them where they are more than are side by side: in
# turns with loops, softmax and layer norm over 5 to 15 vectors took 0.65 to 0.98 of the time, and no longer to compile.
WHOLE, WHOLE_INSTRUCTIONS = 15, 640
# Bytes of a call from which on results are written past the caches, which saves reading what is overwritten. When two
# kernels worked on each other's results of 16 MB that cost 14 %; of 32 MB it gained 35 %.
STREAMED = 32 << 20
# The same where squares are turned, whose lines are written far from each other.
STREAMED_TURNED = 8 << 20
# Elements times instructions below which a kernel runs on the caller's thread: a million takes 12 to 40 us there, and
# waking the team takes 40 to 60.
WORTH_A_TEAM = 2_000_000
# Rows are cut that are fewer than FEW_ROWS, and LONG_ROW elements long; where they are run over again, fewer than
# FEW_ROWS_AGAIN: a row of its own stays in a thread's cache.
FEW_ROWS, FEW_ROWS_AGAIN, LONG_ROW = 8, 4, 1 << 16
# Elements of a row from which on a maximum and a sum of exponentials take one run. Shorter rows gain nothing, since a
# processor's own cache holds them.
ONLINE = 1 << 17
# Rows shorter than this have lanes across rows instead, when there are enough rows.
SHORT_ROW = 12


def plan_nest(
    program: TileProgram,
    inputs: Sequence[Strides],
    outputs: Sequence[Strides],
    sizes: Sequence[int],
    params: Sequence[int],
    floats: int,
    tile: Tile = BY_RULE,
) -> NestCall:
    """The nest for arrays of these strides (in elements) on a machine whose registers hold ``floats`` float32.

    ``tile`` overrules what the rules would choose; its lane is a dim of the merged program.
    """
    program, inputs, outputs, sizes = in_memory_order(program, inputs, outputs, sizes, params)
    merged = collapse(program, inputs, outputs, sizes, params).with_a_dim
    p, sizes, params, ins, outs = merged.program, merged.sizes, merged.params, merged.inputs, merged.outputs
    found = accesses(p, ins, outs, sizes, params)
    lane = _lane(p, found, sizes) if tile.lane is None else tile.lane
    items = moves(p)
    classes = tuple(_class(i, a, lane) for i, a in zip(items, found, strict=True))
    width, unroll = _width(p, floats), 1
    nest = Nest(p, lane, classes, width, unroll)
    unroll, turned = tile.unroll or _unroll(nest, sizes[lane]), _turned(nest, found, sizes)
    streams = _streams(nest, found, sizes, STREAMED if turned is None else STREAMED_TURNED)
    online = sizes[lane] >= ONLINE and _sums_exponentials(nest)
    nest = Nest(p, lane, classes, width, unroll, turned, streams, _is_segmented(nest, sizes), online)
    if tile.unroll is None:
        nest = _with_whole_rows(nest, sizes)
    far = any(c[0] == STEPS for c in classes)
    chunk = nest.width * nest.unroll if nest.across_rows else tile.chunk or (CHUNK_FAR if far else CHUNK)
    words = _words(nest, found, ins, outs, sizes, params, chunk)
    tasks = 1
    for d in nest.task_dims:
        tasks *= sizes[d]
    if nest.turned is not None:
        blocks = -(-sizes[lane] // (ACROSS * width)) * -(-sizes[nest.turned] // (ALONG * width))
        tasks = tasks // max(sizes[nest.turned], 1) * blocks
    elif nest.segmented:
        tasks *= SEGMENTS * len(nest.passes)
    elif nest.is_chunked:
        tasks *= -(-sizes[lane] // chunk)
    return NestCall(nest, tuple(sizes), words, tasks, _work(nest, sizes))


def plan_rows(
    program: TileProgram,
    inputs: Sequence[Strides],
    shape: Sequence[int],
    sizes: Sequence[int],
    params: Sequence[int],
    floats: int,
    row: int,
    pitch: int,
) -> NestCall:
    """The nest for one that makes some rows of its only result, ``row`` elements of a contiguous array of ``shape``
    each, ``pitch`` elements apart, when somebody needs them. Raises NotRendered with the reason.

    Rows are numbered as they follow each other in the result; the kernel makes those from its second argument up to its
    third one. When elements of a row do not depend on each other, these are only the ones from the block's ``chunk`` up
    to ``ended``.
    """
    if len(program.outputs) != 1 or len(program.effects) != 1 or not isinstance(program.effects[0], Store):
        raise NotRendered("it has more than one result, or checks")
    if any(isinstance(i, Reduce) and i.op in ("argmax", "argmin") for i in program.body):
        raise NotRendered("it looks for places")
    steps: list[int] = []
    step = 1
    for n in reversed(shape):
        if step >= row and step % row:
            raise NotRendered(f"rows of {row} elements are no rows of its result")
        steps.append(step if step < row else step // row * pitch)
        step *= n
    merged = collapse(program, inputs, [tuple(reversed(steps))], sizes, params, row).with_a_dim
    p, sizes, params, ins, outs = merged.program, merged.sizes, merged.params, merged.inputs, merged.outputs
    found = accesses(p, ins, outs, sizes, params)
    lane = p.dims - 1
    items = moves(p)
    classes = tuple(_class(i, a, lane) for i, a in zip(items, found, strict=True))
    nest = Nest(p, lane, classes, _width(p, floats), 1, ranged=True)
    if sizes[lane] != row or nest.nest_dims or p.rows > 1:
        raise NotRendered(f"it does not compute rows of {row} elements")
    step, wanted = pitch, [1]
    for n in reversed(sizes[:lane]):
        wanted.append(step)
        step *= n
    store = found[-1]
    if items[-1].mask is not None or any(
        s != w and n != 1 for s, w, n in zip(store.steps, reversed(wanted), sizes, strict=True)
    ):
        raise NotRendered("it writes its result in another order")
    if any(c[0] in (STEPS, ANY) for c in classes):
        raise NotRendered("along a row it reads numbers that lie apart")
    online = row >= ONLINE and _sums_exponentials(nest)
    nest = Nest(p, lane, classes, nest.width, _unroll(nest, row), online=online, ranged=True)
    nest = _with_whole_rows(nest, sizes)
    words = _words(nest, found, ins, outs, sizes, params, 0)
    return NestCall(nest, tuple(sizes), words, math.prod(sizes[:lane]), _work(nest, sizes))


def _words(
    nest: Nest,
    found: Sequence[Access],
    inputs: Sequence[Strides],
    outputs: Sequence[Strides],
    sizes: Sequence[int],
    params: Sequence[int],
    chunk: int,
) -> tuple[int, ...]:
    """The block but for addresses, ``chunk`` elements in one."""
    p = nest.program
    words: list[int] = [0] * len(p.inputs) + [0] * len(p.outputs)
    words += [0, 0, chunk, nest.scratch_bytes(sizes), 0, 0, 0, *sizes, *params]
    for item, access in zip(moves(p), found, strict=True):
        first = offset_at_zero(item, inputs, outputs, sizes, params) if is_even(item, access) else 0
        words += [first, *(int(s or 0) for s in access.steps)]
    words += [s for group in (inputs, outputs) for strides in group for s in strides]
    return tuple(words)


def _work(nest: Nest, sizes: Sequence[int]) -> int:
    each = 1 + sum(nest.costs[-1:])
    if nest.program.rows:
        # The last value may come after all the work, such as a mean.
        each = max(each, sum(len(nest.needed(item)) + len(item.reduces) for item in nest.passes))
    return math.prod(sizes) * each


def _lane(program: TileProgram, found: Sequence[Access], sizes: Sequence[int]) -> int:
    last = program.dims - 1
    scans = any(isinstance(i, Reduce) and i.is_scan for i in program.body)
    lane = lane_dim(program, found, sizes)
    if lane is None:
        return last
    if scans:
        return last
    if program.rows and lane in program.row_dims:
        row = 1
        for d in program.row_dims:
            row *= sizes[d]
        outer = [d for d in range(program.dims - program.rows) if sizes[d] >= 4 * SHORT_ROW]
        if row < SHORT_ROW and outer:
            return max(outer, key=lambda d: (sizes[d] >= 64, d))
    return lane


def _class(item: Load | Store, access: Access, lane: int) -> str:
    step = access.steps[lane]
    if step is None:
        return ANY
    kind = ONE if step == 1 else SAME if step == 0 else STEPS
    return kind if is_even(item, access) else kind + EVALUATED


def _width(program: TileProgram, floats: int) -> int:
    """Lanes: as many as a register holds of the widest numbers computed with."""
    dtypes = [a.dtype for a in (*program.inputs, *program.outputs)]
    dtypes += [i.dtype for i in program.body if isinstance(i, Compute)]
    widest = max((d.itemsize for d in dtypes), default=4)
    # Half types are computed in float32, and one-byte types rarely stay alone.
    return max(floats * 4 // max(widest, 4), 1)


def _turned(nest: Nest, found: Sequence[Access], sizes: Sequence[int]) -> int | None:
    """The dim to turn squares along; None when nothing is gained, or the program is not simple enough."""
    program, width = nest.program, nest.width
    plain = all(isinstance(i, (Const, Compute)) or (isinstance(i, Load) and i.mask is None) for i in program.body)
    plain = plain and all(isinstance(e, Store) and e.mask is None for e in program.effects)
    if program.rows or not plain or width < 4 or sizes[nest.lane] < width:
        return None
    if any(c not in (ONE, SAME, STEPS) for c in nest.classes):
        return None
    apart = [a for a, c in zip(found, nest.classes, strict=True) if c == STEPS]
    if not apart or any(a.is_store or program.inputs[a.array].dtype.kind == "b" for a in apart):
        return None
    for d in nest.task_dims:
        if sizes[d] >= width and all(a.steps[d] == 1 for a in apart):
            return d
    return None


def _streams(nest: Nest, found: Sequence[Access], sizes: Sequence[int], least: int) -> bool:
    """Whether results are written past the caches: whole vectors of many megabytes, which nobody reads again here."""
    p = nest.program
    stores = [e for e in p.effects if isinstance(e, Store)]
    whole = all(e.mask is None for e in stores) and all(
        c == ONE for a, c in zip(found, nest.classes, strict=True) if a.is_store
    )
    if p.rows or not stores or not whole or nest.width == 1:
        return False
    total = 0
    for access in found:
        itemsize = (p.outputs if access.is_store else p.inputs)[access.array].dtype.itemsize
        total += itemsize * math.prod(n for n, step in zip(sizes, access.steps, strict=True) if step != 0)
    return total >= least


def _is_segmented(nest: Nest, sizes: Sequence[int]) -> bool:
    """Whether rows are cut: few long ones, in which no place depends on those before it."""
    reduces = [i for i in nest.program.body if isinstance(i, Reduce)]
    if not reduces or nest.across_rows or nest.nest_dims or sizes[nest.lane] < LONG_ROW:
        return False
    if any(i.is_scan or i.op in ("argmax", "argmin") for i in reduces):
        return False
    if _work(nest, sizes) < WORTH_A_TEAM:
        return False
    runs_again = any(item.full for item in nest.passes[1:])
    return math.prod(sizes[d] for d in nest.task_dims) < (FEW_ROWS_AGAIN if runs_again else FEW_ROWS)


def _sums_exponentials(nest: Nest) -> bool:
    """Whether the first runs over a row give the maximum of x, then the sum of exp(x - maximum), and nothing else."""
    p = nest.program
    if nest.across_rows or nest.nest_dims or len(nest.passes) < 3 or nest.kept:
        return False
    first, second = nest.passes[:2]
    if len(first.reduces) != 1 or len(second.reduces) != 1 or second.row:
        return False
    if any((run.effects or run.row_effects) for run in (first, second)):
        return False
    (top,), (total,) = first.reduces, second.reduces
    reduced, summed = p.body[top], p.body[total]
    assert isinstance(reduced, Reduce) and isinstance(summed, Reduce)
    e = p.body[summed.operand]
    below = p.body[e.operands[0]] if isinstance(e, Compute) and e.op == "exp" else None
    return (
        (reduced.op, summed.op) == ("max", "sum")
        and isinstance(below, Compute)
        and below.op == "sub"
        and below.operands == (reduced.operand, top)
    )


def _with_whole_rows(nest: Nest, sizes: Sequence[int]) -> Nest:
    """The nest with rows in registers where they are short, and run over several times."""
    count = -(-sizes[nest.lane] // nest.width)
    if nest.width == 1 or nest.across_rows or nest.nest_dims or nest.segmented or nest.online:
        return nest
    if len(nest.passes) < 2 or not 1 <= count <= WHOLE:
        return nest
    if count > MAX_UNROLL and count * nest.instructions > WHOLE_INSTRUCTIONS:
        return nest
    return replace(nest, unroll=count, whole="cut" if sizes[nest.lane] % nest.width else "full")


def _unroll(nest: Nest, length: int) -> int:
    """Vectors side by side: enough to hide the waits of long chains, as far as registers hold what is alive."""
    unroll = MAX_UNROLL
    while unroll > 1 and (nest.width * unroll > length or unroll * _alive(nest) > REGISTERS):
        unroll //= 2
    return unroll


def _alive(nest: Nest) -> int:
    """The most values of a vector that are known and still needed at one place."""
    body = nest.program.body
    last: dict[int, int] = {}
    for number, item in enumerate(body):
        for v in operands_of(item):
            last[v] = number
    for effect in nest.program.effects:
        for v in operands_of(effect):
            last[v] = len(body)
    most = 1
    alive: set[int] = set()
    for number in range(len(body)):
        alive = {v for v in alive if last[v] > number}
        if nest.lane in nest.program.varies[number] and last.get(number, -1) > number:
            alive.add(number)
        most = max(most, len(alive))
    return most
