"""Tile programs: what a fused kernel computes, for whoever renders it (NumPy, Numba on a CPU, CUDA).

A ``TileProgram`` says what happens at each point of an iteration space, in no particular order of points:

- **Space.** ``dims`` dims ``d0, d1, ..`` of run-time sizes ``n0, n1, ..``; the last ``rows`` of them make up rows,
  which reductions turn into one number. ``params`` more run-time integers ``p0, ..`` (starts, shifts, other sizes).
- **Arrays.** ``inputs`` and ``outputs`` have a dtype and a rank. Pointers, sizes and strides (in elements) come at run
  time. An element is named by one ``Index`` per dim: ``load a0[d0, p0 + d1]`` reads
  ``a0.ptr[d0 * a0.stride[0] + (p0 + d1) * a0.stride[1]]``. So transposed, sliced and expanded arrays need no code of
  their own, and cat, pad and roll are index maps with masks (``views``).
- **Body.** Instructions in SSA form; ``%k`` is the result of ``body[k]``, one number of the stated dtype at each point.
  ``Load`` (nothing is read where its mask is false: it gives ``other``), ``Const``, ``Compute`` (an operation of
  ``ir.scalar.SCALAR_OPS``, or ``cast``, ``where``), ``Call`` (a function by name, which a renderer may refuse),
  ``Reduce`` (of ``ROW_OPS``), ``Count`` (elements in a row), ``Position`` (an Index as a number) and ``Inside``
  (whether Indexes lie within bounds). Half types are loaded, stored and cast; all else is done in float32 or wider.
- **Effects.** ``Store`` writes each point's value once; ``Check`` makes the whole run fail with its message when the
  value is false anywhere (stores may have happened).

A value varies along some dims only (``varies``): one that does not vary along the row dims is computed, and
stored, once for each row. ``schedule.passes`` orders the work: a pass runs over a row to feed reductions, later passes
use their results; values needed again are computed or read again, or kept, as the renderer likes.

Sizes, strides and numbers of elements are not part of the program: a new shape is a new call. What is: dtypes, ranks,
structure and constants. ``text`` prints it, ``tile_text.parse_program`` reads it back, ``key`` is the hash of the text.
``tile_build.Builder`` makes one from recorded expressions: it shares equal values, leaves out what no effect needs, and
numbers values in order of first use.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpujit.ir.dtypes import BOOL_, INT64, is_tensor_dtype, kind_of
from gpujit.ir.scalar import ROW_OPS, SCALAR_OPS, SCANS, same_number
from gpujit.kernels.index import DIM, PARAM, SIZE, VALUE, Index
from gpujit.support.errors import InternalError

# Part of every key: programs of another version mean something else.
FORMAT = 1


class TileError(InternalError):
    """A tile program that means nothing, or text that is none."""

    code = "tile"


class NotRendered(InternalError):
    """A program uses something that this renderer has no code for; the group runs unfused."""

    code = "not-rendered"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """An array as a program sees it."""

    dtype: np.dtype
    rank: int


@dataclass(frozen=True, slots=True)
class Bound:
    """low <= index < high."""

    low: Index
    index: Index
    high: Index


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """A number, exact in ``dtype``; NaN equals NaN and the zeros differ."""

    value: bool | int | float
    dtype: np.dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self.dtype == other.dtype and same_number(self.value, other.value)

    def __hash__(self) -> int:
        return hash((repr(self.value), self.dtype))


@dataclass(frozen=True, slots=True)
class Load:
    """The element ``coords`` of input ``array``; ``other`` where the value ``mask`` is false, and nothing is read."""

    array: int
    coords: tuple[Index, ...]
    dtype: np.dtype
    mask: int | None = None
    other: Const | None = None


@dataclass(frozen=True, slots=True)
class Compute:
    """A scalar operation, ``cast`` or ``where``."""

    op: str
    operands: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Call:
    """A function by name."""

    name: str
    operands: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Reduce:
    """An operation over the row."""

    op: str
    operand: int
    dtype: np.dtype

    @property
    def is_scan(self) -> bool:
        """Whether it gives a running number at each point, not one for each row."""
        return self.op in SCANS


@dataclass(frozen=True, slots=True)
class Count:
    """How many elements a row has."""

    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Position:
    """An index as an int64 number."""

    index: Index
    dtype: np.dtype = INT64


@dataclass(frozen=True, slots=True)
class Inside:
    """Whether all bounds hold."""

    bounds: tuple[Bound, ...]
    dtype: np.dtype = BOOL_


Instruction = Load | Const | Compute | Call | Reduce | Count | Position | Inside


@dataclass(frozen=True, slots=True)
class Store:
    """``value`` into the element ``coords`` of output ``array``, where ``mask`` holds."""

    array: int
    coords: tuple[Index, ...]
    value: int
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """The run fails with ``message`` when ``value`` is false at any point."""

    value: int
    message: str


Effect = Store | Check


@dataclass(frozen=True)
class TileProgram:
    """A kernel as data; see the module."""

    inputs: tuple[ArrayType, ...]
    outputs: tuple[ArrayType, ...]
    dims: int
    rows: int
    params: int
    body: tuple[Instruction, ...]
    effects: tuple[Effect, ...]

    @property
    def row_dims(self) -> range:
        """The dims that make up a row."""
        return range(self.dims - self.rows, self.dims)

    @cached_property
    def text(self) -> str:
        """The program as text, equal for equal programs."""
        return format_program(self)

    @cached_property
    def key(self) -> str:
        """The hash that names kernels made from it."""
        return hashlib.sha256(f"tile {FORMAT}\n{self.text}".encode()).hexdigest()

    @cached_property
    def varies(self) -> tuple[frozenset[int], ...]:
        """For each value the dims along which it may differ from point to point."""
        found: list[frozenset[int]] = []
        row = frozenset(self.row_dims)
        for item in self.body:
            dims = frozenset().union(*(i.dims() for i in indexes_of(item)), *(found[v] for v in operands_of(item)))
            if isinstance(item, Reduce):
                dims = dims | row if item.is_scan else dims - row
            found.append(dims)
        return tuple(found)

    def __str__(self) -> str:
        return self.text


def indexes_of(item: Instruction | Effect) -> tuple[Index, ...]:
    """All index expressions in an instruction or effect."""
    if isinstance(item, (Load, Store)):
        return item.coords
    if isinstance(item, Position):
        return (item.index,)
    if isinstance(item, Inside):
        return tuple(i for b in item.bounds for i in (b.low, b.index, b.high))
    return ()


def operands_of(item: Instruction | Effect) -> tuple[int, ...]:
    """Numbers of the values an instruction or effect reads, those inside its indexes and its mask included."""
    found: list[int] = []
    if isinstance(item, (Compute, Call)):
        found.extend(item.operands)
    elif isinstance(item, Reduce):
        found.append(item.operand)
    elif isinstance(item, (Store, Check)):
        found.append(item.value)
    for i in indexes_of(item):
        found.extend(i.values())
    if isinstance(item, (Load, Store)) and item.mask is not None:
        found.append(item.mask)
    return tuple(found)


# --------------------------------------------------------------------------------------------------------- text


def format_number(number: bool | int | float) -> str:
    """A constant as text that reads back as the same one."""
    return str(number)


def format_program(program: TileProgram) -> str:
    """The text of a program."""
    inputs = ", ".join(f"a{i}: {a.dtype}[{a.rank}]" for i, a in enumerate(program.inputs))
    outputs = ", ".join(f"o{i}: {a.dtype}[{a.rank}]" for i, a in enumerate(program.outputs))
    lines = [f"tile({inputs}) -> ({outputs})"]
    for word, dims in (("for", range(program.dims - program.rows)), ("row", program.row_dims)):
        if dims:
            lines.append(f"  {word} {', '.join(f'd{d} < n{d}' for d in dims)}")
    if program.params:
        lines.append(f"  params {', '.join(f'p{k}' for k in range(program.params))}")
    lines.extend(f"  %{k}: {item.dtype} = {_format(item)}" for k, item in enumerate(program.body))
    lines.extend(f"  {_format(effect)}" for effect in program.effects)
    return "\n".join(lines) + "\n"


def _format(item: Instruction | Effect) -> str:
    if isinstance(item, Load):
        text = f"load a{item.array}[{', '.join(map(str, item.coords))}]"
        if item.mask is None or item.other is None:
            return text
        return f"{text} if %{item.mask} else {format_number(item.other.value)}"
    if isinstance(item, Const):
        return f"const {format_number(item.value)}"
    if isinstance(item, Position):
        return f"position {item.index}"
    if isinstance(item, Inside):
        return "inside " + ", ".join(f"{b.low} <= {b.index} < {b.high}" for b in item.bounds)
    if isinstance(item, Count):
        return "count"
    if isinstance(item, Store):
        text = f"store o{item.array}[{', '.join(map(str, item.coords))}], %{item.value}"
        return text if item.mask is None else f"{text} if %{item.mask}"
    if isinstance(item, Check):
        return f"check %{item.value}, {json.dumps(item.message)}"
    name = f"call {json.dumps(item.name)}" if isinstance(item, Call) else item.op
    operands = ", ".join(f"%{v}" for v in operands_of(item))
    return f"{name} {operands}".rstrip()


# ------------------------------------------------------------------------------------------------ verification


def verify(program: TileProgram) -> TileProgram:
    """The program itself. Raises TileError with the line that is wrong: names out of range, dtypes that do not fit."""
    if not 0 <= program.rows <= program.dims:
        raise TileError(f"tile: {program.rows} of {program.dims} dims make up rows; that is not possible")
    for array in (*program.inputs, *program.outputs):
        if not is_tensor_dtype(array.dtype) or kind_of(array.dtype) == 3 or array.rank < 0:
            raise TileError(f"tile: an array of {array.dtype}[{array.rank}]; kernels take real tensors")
    for number, item in enumerate(program.body):
        fault = _fault(program, item, number)
        if fault:
            raise TileError(f"tile: %{number} ({type(item).__name__}): {fault}")
    for effect in program.effects:
        fault = _fault(program, effect, len(program.body)) or _effect_fault(program, effect)
        if fault:
            raise TileError(f"tile: {type(effect).__name__}: {fault}")
    return program


def _fault(program: TileProgram, item: Instruction | Effect, number: int) -> str | None:
    for v in operands_of(item):
        if not isinstance(v, int) or not 0 <= v < number:
            return f"reads %{v}, which is not defined before it"
    limits = {DIM: program.dims, SIZE: program.dims, PARAM: program.params}
    for i in indexes_of(item):
        for atom in i.atoms():
            if atom.kind in limits and not 0 <= atom.number < limits[atom.kind]:
                return f"{atom} in the index {i}: there are {limits[atom.kind]}"
            if atom.kind == VALUE and kind_of(program.body[atom.number].dtype) != 1:
                return f"{atom} in the index {i} is {program.body[atom.number].dtype}, no integer"
    if isinstance(item, (Load, Store)):
        arrays = program.inputs if isinstance(item, Load) else program.outputs
        if not 0 <= item.array < len(arrays):
            return f"array {item.array} of {len(arrays)}"
        array = arrays[item.array]
        if len(item.coords) != array.rank:
            return f"{len(item.coords)} indexes for an array of rank {array.rank}"
        dtype = item.dtype if isinstance(item, Load) else program.body[item.value].dtype
        if dtype != array.dtype:
            return f"{dtype} from or to an array of {array.dtype}; cast it"
        if item.mask is not None and program.body[item.mask].dtype != BOOL_:
            return f"the mask %{item.mask} is {program.body[item.mask].dtype}, not bool"
        if isinstance(item, Load) and (item.mask is None) != (item.other is None):
            return "a mask and the number beside it go together"
    if isinstance(item, Reduce):
        return _reduce_fault(program, item)
    return _compute_fault(program, item) if isinstance(item, Compute) else None


def _reduce_fault(program: TileProgram, item: Reduce) -> str | None:
    of = program.body[item.operand].dtype
    op = ROW_OPS.get(item.op)
    if op is None:
        return f"there is no operation over rows {item.op!r}"
    if not program.rows:
        return "a reduction in a program without row dims"
    if "bifc"[kind_of(of)] not in op.takes or item.dtype != (INT64 if op.result == "int64" else of):
        return f"{item.op} of {of} giving {item.dtype}"
    return None


def _compute_fault(program: TileProgram, item: Compute) -> str | None:
    dtypes = [program.body[v].dtype for v in item.operands]
    op = SCALAR_OPS.get(item.op)
    if item.op == "cast":
        fits = len(dtypes) == 1
    elif item.op == "where":
        fits = dtypes == [BOOL_, item.dtype, item.dtype]
    elif op is None:
        return f"there is no scalar operation {item.op!r}"
    else:
        fits = len(dtypes) == op.arity and all(d == dtypes[0] for d in dtypes)
        fits = fits and "bifc"[kind_of(dtypes[0])] in op.takes
        fits = fits and item.dtype == (BOOL_ if op.result == "bool" else dtypes[0])
    return None if fits else f"{item.op}({', '.join(map(str, dtypes))}) giving {item.dtype}"


def _effect_fault(program: TileProgram, effect: Effect) -> str | None:
    if isinstance(effect, Check):
        return None if program.body[effect.value].dtype == BOOL_ else "the value is not bool"
    if any(i.values() for i in effect.coords):
        return "its indexes name values: where a program writes must not depend on data"
    used = frozenset().union(*(i.dims() for i in effect.coords))
    needed = set(range(program.dims - program.rows))
    if (used | program.varies[effect.value]) & set(program.row_dims):
        needed |= set(program.row_dims)
    if effect.mask is None and needed - used:
        missing = ", ".join(f"d{d}" for d in sorted(needed - used))
        return f"its indexes do not name {missing}: several points would write one element"
    return None
