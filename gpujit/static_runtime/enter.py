"""Entering a native run: one call that sees to its arrays' layouts, takes their addresses and runs the steps.

A job is a row of int64 words: the address of the team's ``run`` and its four arguments, the number of arrays, the
address of a table, that of the arrays' type, and then the addresses of the array objects. The table says for each array
its rank, the address of its dtype, how many block words name it, its shape, its strides, and for each word its address
and what to add. The call answers 0, or the number (from 1 on) of the first array that lies otherwise; then nothing was
run.

Array objects are read as NumPy's C interface lays them out, which is compared with what Python says first.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from gpujit.kernels import supply
from gpujit.kernels.native import TIDY

_RUN, TEAM, _FUNCTIONS, _BLOCKS, _COUNT, _ARRAYS, _TABLE, _KIND, OBJECTS = range(9)

# The type ends the header of every object; behind it: data, rank, shape, strides, base, dtype.
_HEAD = object.__basicsize__
_TYPE, DATA, _RANK, _SHAPE, _STRIDES, _DTYPE = _HEAD - 8, _HEAD, _HEAD + 8, _HEAD + 16, _HEAD + 24, _HEAD + 40

_NAME = "gpujit_plan_enter"


def _word(name: str, number: int, kind: str = "i64") -> str:
    return f"""
  %{name}.at = getelementptr i64, ptr %job, i64 {number}
  %{name} = load {kind}, ptr %{name}.at"""


def _field(name: str, offset: int, kind: str) -> str:
    return f"""
  %{name}.at = getelementptr i8, ptr %object, i64 {offset}
  %{name} = load {kind}, ptr %{name}.at"""


def enter_ir() -> str:
    """LLVM IR of ``int64 gpujit_plan_enter(int64 *job)``."""
    return f"""
define i64 @{_NAME}(ptr %job) {{
entry:{_word("arrays", _ARRAYS)}{_word("table", _TABLE, "ptr")}{_word("kind", _KIND)}
  %objects = getelementptr i64, ptr %job, i64 {OBJECTS}
  %any = icmp sgt i64 %arrays, 0
  br i1 %any, label %array, label %run
array:
  %k = phi i64 [0, %entry], [%number, %placed]
  %at = phi ptr [%table, %entry], [%at.next, %placed]
  %number = add i64 %k, 1
  %object.at = getelementptr ptr, ptr %objects, i64 %k
  %object = load ptr, ptr %object.at
  %rank = load i64, ptr %at
{_field("type", _TYPE, "i64")}
  %is.array = icmp eq i64 %type, %kind
  br i1 %is.array, label %look, label %other
look:
  %dtype.wanted.at = getelementptr i64, ptr %at, i64 1
  %dtype.wanted = load ptr, ptr %dtype.wanted.at
  %words.at = getelementptr i64, ptr %at, i64 2
  %words = load i64, ptr %words.at
  %shape.wanted = getelementptr i64, ptr %at, i64 3
  %strides.wanted = getelementptr i64, ptr %shape.wanted, i64 %rank
  %pairs = getelementptr i64, ptr %strides.wanted, i64 %rank
{_field("dtype", _DTYPE, "ptr")}
{_field("rank.found", _RANK, "i32")}
  %rank.wide = sext i32 %rank.found to i64
  %same.dtype = icmp eq ptr %dtype, %dtype.wanted
  %same.rank = icmp eq i64 %rank.wide, %rank
  %same = and i1 %same.dtype, %same.rank
  br i1 %same, label %dims, label %other
dims:{_field("shape", _SHAPE, "ptr")}{_field("strides", _STRIDES, "ptr")}
  %flat = icmp eq i64 %rank, 0
  br i1 %flat, label %place, label %dim
dim:
  %d = phi i64 [0, %dims], [%d.next, %dim.same]
  %n.at = getelementptr i64, ptr %shape, i64 %d
  %n = load i64, ptr %n.at
  %n.wanted.at = getelementptr i64, ptr %shape.wanted, i64 %d
  %n.wanted = load i64, ptr %n.wanted.at
  %s.at = getelementptr i64, ptr %strides, i64 %d
  %s = load i64, ptr %s.at
  %s.wanted.at = getelementptr i64, ptr %strides.wanted, i64 %d
  %s.wanted = load i64, ptr %s.wanted.at
  %same.n = icmp eq i64 %n, %n.wanted
  %same.s = icmp eq i64 %s, %s.wanted
  %single = icmp eq i64 %n, 1
  %free = or i1 %same.s, %single
  %same.dim = and i1 %same.n, %free
  br i1 %same.dim, label %dim.same, label %other
dim.same:
  %d.next = add i64 %d, 1
  %d.more = icmp slt i64 %d.next, %rank
  br i1 %d.more, label %dim, label %place
place:{_field("data", DATA, "i64")}
  br label %word
word:
  %w = phi i64 [0, %place], [%w.next, %word]
  %w.two = shl i64 %w, 1
  %target.at = getelementptr i64, ptr %pairs, i64 %w.two
  %target = load ptr, ptr %target.at
  %offset.at = getelementptr i64, ptr %target.at, i64 1
  %offset = load i64, ptr %offset.at
  %address = add i64 %data, %offset
  store i64 %address, ptr %target
  %w.next = add i64 %w, 1
  %w.more = icmp slt i64 %w.next, %words
  br i1 %w.more, label %word, label %placed
placed:
  %pair.words = shl i64 %words, 1
  %at.next = getelementptr i64, ptr %pairs, i64 %pair.words
  %more = icmp slt i64 %number, %arrays
  br i1 %more, label %array, label %run
run:
{_word("function", _RUN, "ptr")}
{_word("team", TEAM, "ptr")}
{_word("functions", _FUNCTIONS, "ptr")}
{_word("blocks", _BLOCKS, "ptr")}
{_word("count", _COUNT)}
  call void %function(ptr %team, ptr %functions, ptr %blocks, i64 %count)
  ret i64 0
other:
  ret i64 %number
}}
"""


def _reads_arrays() -> bool:
    """Whether array objects are laid out as the native code takes them to be."""
    if sys.implementation.name != "cpython":
        return False
    base = np.zeros((3, 4, 5), np.float32)
    for x in (base, base[::2, :, 1:].T, base[0, 0, 0:1].view(np.int32), np.zeros(()), base.astype(bool)):
        if x.__sizeof__() < _DTYPE + 8 or ctypes.c_void_p.from_address(id(x) + _TYPE).value != id(np.ndarray):
            return False

        def word(offset: int, kind: type, of: int = id(x)) -> int:
            return int(kind.from_address(of + offset).value or 0)  # type: ignore[attr-defined]

        pointer = ctypes.c_void_p
        if word(DATA, pointer) != x.__array_interface__["data"][0] or word(_RANK, ctypes.c_int32) != x.ndim:
            return False
        if word(_DTYPE, pointer) != id(x.dtype):
            return False
        for offset, wanted in ((_SHAPE, x.shape), (_STRIDES, x.strides)):
            start = word(offset, pointer)
            if x.ndim and tuple((ctypes.c_int64 * x.ndim).from_address(start)) != wanted:
                return False
    return True


READS_ARRAYS = _reads_arrays()
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


@cache
def enter() -> Callable[[int], int]:
    """The native function, compiled at the first call."""
    library = supply.module(enter_ir(), enter_ir, TIDY)
    function = _PROTOTYPE(library.address(_NAME))
    _kept.append(library)
    return function


_kept: list[object] = []

Layout = tuple[tuple[int, ...], tuple[int, ...], np.dtype, Sequence[tuple[int, int]]]


class Job:
    """The words of a job, and its table. ``objects[OBJECTS + k]`` is to be set to the ``id`` of array k, and
    ``objects[TEAM]`` may be changed.

    Args:
        run: the address of the team's ``run``.
        team, functions, blocks, count: what it is called with.
        arrays: shape, strides, dtype, and the addresses of block words with what to add to the array's.
    """

    def __init__(self, run: int, team: int, functions: int, blocks: int, count: int, arrays: Sequence[Layout]) -> None:
        table: list[int] = []
        for shape, strides, dtype, words in arrays:
            table += [len(shape), id(dtype), len(words), *shape, *strides]
            table += [n for pair in words for n in pair]
        # Dtypes whose addresses are compared stay alive.
        self.kept = [a[2] for a in arrays]
        self.table = (ctypes.c_int64 * max(len(table), 1))(*table)
        first = (run, team, functions, blocks, count, len(arrays), ctypes.addressof(self.table), id(np.ndarray))
        self.objects = (ctypes.c_int64 * (OBJECTS + len(arrays)))(*first, *[0] * len(arrays))
        self.address = ctypes.addressof(self.objects)
