"""Runs steps on a GPU without one: launches in Numba's simulator, or tile programs by the NumPy renderer where there is
none; calls of libraries through NumPy.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from gpujit.ir import types as T
from gpujit.ir.dtypes import code_of
from gpujit.ir.graph import Graph, Node, Value
from gpujit.kernels import cuda_steps, reference
from gpujit.kernels.cuda_steps import Laid
from gpujit.kernels.launches import FLAGS, SCRATCH, Address, DeviceStep, Gemm, Launch, LibraryCall, Matrix
from gpujit.kernels.tile import TileProgram
from gpujit.ops import table
from gpujit.passes.nodes import infer_types
from gpujit.runtime.simulated_device import do_work
from gpujit.static_runtime.device_makers import device_step
from gpujit.static_runtime.places import Place, contiguous, facts_of
from gpujit.support.errors import OpError
from tests.static_runtime.help import run_graph

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


def graph_of(name: str, arguments: list[Any], constants: Collection[int] = ()) -> tuple[Graph, Node, list[np.ndarray]]:
    """A graph of one operator whose arrays, those in lists too, are inputs but for some arguments by position."""
    op = table.by_full_name(name)
    assert op is not None
    graph, given = Graph("device"), []

    def add(x: np.ndarray) -> Value:
        given.append(x)
        return graph.add_input(T.TensorType(code_of(x.dtype), x.shape))

    inputs = []
    for k, (x, argument) in enumerate(zip(arguments, op.schema.arguments, strict=True)):
        if isinstance(x, np.ndarray) and k in constants:
            inputs.append(graph.constant(x, T.TensorType(code_of(x.dtype), x.shape)))
        elif isinstance(x, np.ndarray):
            inputs.append(add(x))
        elif isinstance(x, list) and any(isinstance(y, np.ndarray) for y in x):
            has_none = any(y is None for y in x)
            items = Node("prim::ListConstruct", [graph.constant(None, T.NONE) if y is None else add(y) for y in x])
            items.add_output(T.ListType(T.OptionalType(T.TENSOR) if has_none else T.TENSOR))
            graph.block.append(items)
            inputs.append(items.output)
        else:
            inputs.append(graph.constant(x, T.NONE if x is None else argument.type))
    node = Node(op.name, inputs)
    node.schema = op.schema
    graph.block.append(node)
    for _ in op.schema.returns:
        node.add_output()
    for value, found in zip(node.outputs, infer_types(node, op), strict=True):
        value.type = found
        graph.add_output(value)
    return graph, node, given


def places_of(graph: Graph, node: Node, given: Sequence[np.ndarray]) -> dict[Value, Place]:
    """Where the arrays lie, and contiguous results."""
    places = {v: Place(v, 0, x.strides, x.shape, x.dtype) for v, x in zip(graph.inputs, given, strict=True)}
    for value in node.inputs:
        if value.is_constant and isinstance(value.constant(), np.ndarray):
            x = value.constant()
            places[value] = Place(value, 0, x.strides, x.shape, x.dtype)
    for value in node.outputs:
        facts = facts_of(value)
        assert facts is not None
        places[value] = Place(value, 0, contiguous(*facts), *facts)
    return places


class Recorded(NamedTuple):
    """The program of a launch and what it is called with."""

    launch: Launch
    program: TileProgram
    inputs: Sequence[Laid]
    outputs: Sequence[Laid]
    sizes: Sequence[int]
    params: Sequence[int]


# By the id of the launch, which is kept alive here.
PROGRAMS: dict[int, Recorded] = {}


def record_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the programs of all launches that are made from here on."""
    PROGRAMS.clear()
    make = cuda_steps.launch_of

    def launch_of(
        program: TileProgram, inputs: Any, outputs: Any, sizes: Any, params: Any = (), *rest: Any, **options: Any
    ) -> Any:
        found = make(program, inputs, outputs, sizes, params, *rest, **options)
        if found is not None:
            PROGRAMS[id(found[0])] = Recorded(found[0], program, inputs, outputs, sizes, params)
        return found

    monkeypatch.setattr(cuda_steps, "launch_of", launch_of)


def can_run(step: DeviceStep) -> bool:
    """Whether all calls of a step can be run here."""
    return SIMULATED or all(not isinstance(c, Launch) or id(c) in PROGRAMS for c in step.calls)


class Strided:
    """An array of unknown shape, for ``kernels.reference``: what is outside its memory reads as something wrong."""

    def __init__(self, flat: np.ndarray, first: int, steps: Sequence[int]) -> None:
        self.flat, self.first, self.steps = flat, first, steps
        self.dtype, self.ndim, self.size, self.shape = flat.dtype, len(steps), 1, (1 << 40,) * len(steps)

    def __getitem__(self, at: Any) -> Any:
        places = np.asarray(self._places(at))
        inside = (places >= 0) & (places < len(self.flat))
        return np.where(inside, self.flat[np.clip(places, 0, len(self.flat) - 1)], np.asarray(99).astype(self.dtype))

    def __setitem__(self, at: Any, x: Any) -> None:
        places = np.asarray(self._places(at))
        assert ((places >= 0) & (places < len(self.flat))).all()
        self.flat[places] = x

    def _places(self, at: Any) -> Any:
        return self.first + sum(i * s for i, s in zip(at, self.steps, strict=True))


class Memory:
    """The bytes of each array; an address is an array and a place in it."""

    def __init__(self, step: DeviceStep, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        arrays = [*operands, *results, *(x.copy() for x in step.constants)]
        self.bytes: dict[int, np.ndarray] = {k: bytes_of(x) for k, x in enumerate(arrays)}
        self.bytes[SCRATCH] = np.full(step.scratch, 0xC5, np.uint8)
        self.checks = step.checks
        self.flags = np.zeros(len(step.checks), np.int32)
        self.bytes[FLAGS] = self.flags.view(np.uint8)

    def fail(self, message: str) -> None:
        """Set the flag of a check."""
        self.flags[self.checks.index(message)] = 1

    def elements(self, at: Address, dtype: Any) -> np.ndarray:
        """What lies from an address on."""
        found = self.bytes[at.array][at.offset :]
        return found[: len(found) // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(dtype)

    def matrix(self, m: Matrix, batches: int, dtype: np.dtype) -> np.ndarray:
        """The matrices as a view."""
        flat = self.elements(m.at, dtype)
        assert m.row == 1 or m.column == 1 or 1 in (m.rows, m.columns), m
        last = (batches - 1) * m.batch + (m.rows - 1) * m.row + (m.columns - 1) * m.column
        assert 0 <= last < len(flat), m
        size = dtype.itemsize
        steps = (m.batch * size, m.row * size, m.column * size)
        return np.lib.stride_tricks.as_strided(flat, (batches, m.rows, m.columns), steps)


def bytes_of(x: np.ndarray) -> np.ndarray:
    """The memory of an array that begins at its first element and has no negative strides, as bytes."""
    assert all(s >= 0 for s in x.strides)
    length = sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) + x.itemsize if x.size else 0
    return np.lib.stride_tricks.as_strided(x.ravel()[:1].view(np.uint8) if not x.size else _bytes(x), (length,), (1,))


def _bytes(x: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(x, (1,), (x.itemsize,)).view(np.uint8)


def run_step(step: DeviceStep, operands: Sequence[np.ndarray], results: Sequence[np.ndarray], blocks: int = 2) -> str:
    """Run all calls of a step; the message of a check that failed, else an empty text."""
    memory = Memory(step, operands, results)
    for call in step.calls:
        if isinstance(call, Launch):
            _launch(call, memory, blocks)
        elif isinstance(call, Gemm):
            _gemm(call, memory)
        else:
            _library(call, memory)
    return step.checks[int(memory.flags.argmax())] if memory.flags.any() else ""


def _launch(call: Launch, memory: Memory, blocks: int) -> None:
    if not SIMULATED:
        _by_reference(PROGRAMS[id(call)], memory)
        return
    assert len(call.arguments) == len(call.kernel.arguments)
    pointer = importlib.import_module("gpujit.kernels.cuda_simulated").Pointer
    function = importlib.import_module("gpujit.kernels.cuda_launch").simulated(call.kernel.source)
    arguments: list[Any] = []
    for x, name in zip(call.arguments, call.kernel.arguments, strict=True):
        if isinstance(x, Address):
            assert name.startswith("*")
            dtype = np.dtype(name[1:])
            assert not x.offset % dtype.itemsize
            whole = memory.elements(Address(x.array, x.offset % dtype.itemsize), dtype)
            arguments.append(pointer(whole, x.offset // dtype.itemsize))
        else:
            assert x.type == name
            arguments.append(np.dtype(name).type(x.value))
    function[min(call.grid, blocks), call.kernel.block](*arguments)  # type: ignore[index]


def _by_reference(call: Recorded, memory: Memory) -> None:
    arrays = []
    types = [*call.program.inputs, *call.program.outputs]
    for x, t in zip([*call.inputs, *call.outputs], types, strict=True):
        size = t.dtype.itemsize
        assert not x.at.offset % size
        flat = memory.elements(Address(x.at.array), t.dtype)
        arrays.append(Strided(flat, x.at.offset // size, x.steps))
    count = len(call.inputs)
    try:
        reference.run(call.program, arrays[:count], arrays[count:], call.sizes, call.params)  # type: ignore[arg-type]
    except OpError as fault:
        memory.fail(fault.message)


def _gemm(call: Gemm, memory: Memory) -> None:
    wide = np.float64 if call.dtype == np.float64 else np.float32
    a, b, out = (memory.matrix(m, call.batches, call.dtype) for m in (call.a, call.b, call.out))
    assert a.shape[2] == b.shape[1] and out.shape[1:] == (a.shape[1], b.shape[2])
    result = call.alpha * (a.astype(wide) @ b.astype(wide))
    if call.beta:
        result = result + call.beta * out.astype(wide)
    if call.bias is not None:
        result = result + memory.elements(call.bias, call.dtype)[: out.shape[2]].astype(wide)
    if call.ending == "relu":
        result = np.maximum(result, 0)
    elif call.ending:
        gelu = table.by_full_name("aten::gelu")
        assert gelu is not None and call.ending == "gelu"
        result = gelu.kernel(np)(result, "none")
    out[...] = result.astype(call.dtype)


def _library(call: LibraryCall, memory: Memory) -> None:
    size = call.work.dtype.itemsize
    arrays = [
        np.lib.stride_tricks.as_strided(memory.elements(at, call.work.dtype), x.shape, [s * size for s in x.steps])
        for at, x in zip(call.arrays, call.work.layouts, strict=True)
    ]
    do_work(call.work, arrays)


# Operators ------------------------------------------------------------------------------------------------------------

TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "float16": 2e-3, "bfloat16": 2e-2}


def step_for(
    name: str, arguments: list[Any], constants: Collection[int] = (), **options: Any
) -> tuple[DeviceStep, list[np.ndarray], list[np.ndarray], Any] | None:
    """The step of an operator, its operands, empty results, and what the interpreter gives."""
    graph, node, given = graph_of(name, arguments, constants)
    places = places_of(graph, node, given)
    made = device_step(node, places.get, places[node.outputs[0]], **options)
    if made is None:
        return None
    step, values = made
    arrays = dict(zip(graph.inputs, given, strict=True))
    outs = [np.full(places[v].shape, 7, places[v].dtype) for v in node.outputs]
    operands = [v.constant() if v.is_constant else arrays[v] for v in values]
    return step, operands, outs, run_graph(graph, given)


def check(name: str, arguments: list[Any], constants: Collection[int] = (), **options: Any) -> DeviceStep:
    """The operator's step; where kernels run, its results are the interpreter's."""
    found = step_for(name, arguments, constants, **options)
    assert found is not None, f"{name} has no step"
    step, operands, outs, wanted = found
    if can_run(step):
        assert run_step(step, operands, outs) == ""
        for got, want in zip(outs, wanted if isinstance(wanted, (tuple, list)) else [wanted], strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            tolerance = TOLERANCE.get(want.dtype.name, 0)
            kind = np.float64 if want.dtype.kind in "fV" else want.dtype
            np.testing.assert_allclose(got.astype(kind), want.astype(kind), rtol=tolerance, atol=tolerance * 4)
    return step


def calls(step: DeviceStep) -> str:
    """A letter for each call."""
    return "".join({Launch: "l", Gemm: "g", LibraryCall: "c"}[type(c)] for c in step.calls)


def turned(x: np.ndarray, a: int = -1, b: int = -2) -> np.ndarray:
    """The same numbers with two dims exchanged in memory."""
    return np.ascontiguousarray(x.swapaxes(a, b)).swapaxes(a, b)
