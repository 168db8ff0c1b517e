"""cuDNN's front end in host memory, as far as ``runtime/cudnn.py`` uses it, with its rules.

Graphs are computed as they were described, in the type that they are told to compute in. What the front end does not
know is an AttributeError or a TypeError here too.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BFLOAT16
from gpujit.ir.values import DeviceTensor
from gpujit.ops import table
from gpujit.runtime.simulated_device import HostBacked


class NotSupported(Exception):
    """cudnnGraphNotSupportedError."""


class DataType(enum.Enum):
    FLOAT, DOUBLE, HALF, BFLOAT16 = "f4", "f8", "f2", "bfloat16"

    @property
    def dtype(self) -> np.dtype:
        return BFLOAT16 if self is DataType.BFLOAT16 else np.dtype(self.value)


class Note(enum.Enum):
    (
        TENSOR_CORE, DOWN_CONVERT_INPUTS, REDUCED_PRECISION_REDUCTION, FFT, NONDETERMINISTIC, WINOGRAD, STRICT_NAN_PROP,
    ) = range(7)  # fmt: skip


class Mode(enum.Enum):
    A, B, FALLBACK, OPENSOURCE = range(4)


class Alignment(enum.Enum):
    TOP_LEFT, BOTTOM_RIGHT = range(2)


class Offered:
    """A plan that the library offers for any graph. ``engine``: who else than cuDNN has it."""

    def __init__(self, room: int = 0, notes: tuple[str, ...] = (), fault: str = "", engine: str | None = None) -> None:
        self.room, self.fault, self.engine = room, fault, engine
        self.notes = {Note[n] for n in notes}


class FrontEnd:
    """The module ``cudnn``. ``log`` has each execution: the stream, the handle's device, and where it works."""

    data_type, numerical_note, heur_mode, diagonal_alignment = DataType, Note, Mode, Alignment
    cudnnGraphNotSupportedError = NotSupported  # noqa: N815  # the front end's name

    def __init__(self, memory: HostBacked, submit: Callable[[int, Callable[[], None]], None] | None = None) -> None:
        self.__version__ = "1.32.0"
        self.version = 92801
        self.library_fault = self.handle_fault = self.execute_fault = ""
        self.memory = memory
        self.submit = submit or (lambda stream, work: work())
        self.offered = [Offered()]
        self.graphs: list[Graph] = []
        self.log: list[tuple[int, int]] = []

    def backend_version(self) -> int:
        if self.library_fault:
            raise RuntimeError(self.library_fault)
        return self.version

    def create_handle(self) -> Any:
        if self.handle_fault:
            raise RuntimeError(self.handle_fault)
        return SimpleNamespace(stream=0)

    def set_stream(self, handle: Any, stream: int) -> None:
        assert type(stream) is int
        handle.stream = stream

    def pygraph(self, **options: Any) -> Graph:
        found = Graph(self, **options)
        self.graphs.append(found)
        return found


class Tensor:
    """A tensor of a graph; virtual unless it has a number and is an input or an output."""

    def __init__(self, dim: list[int], stride: list[int], uid: int = -1) -> None:
        self.dim, self.stride, self.uid, self.is_output = dim, stride, uid, False

    def set_output(self, is_output: bool) -> Tensor:
        self.is_output = is_output
        return self

    def set_uid(self, uid: int) -> Tensor:
        self.uid = uid
        return self

    def set_dim(self, dim: list[int]) -> Tensor:
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        self.stride = stride
        return self


class Graph:
    """A ``pygraph``."""

    def __init__(
        self,
        home: FrontEnd,
        *,
        io_data_type: DataType,
        intermediate_data_type: DataType,
        compute_data_type: DataType,
        handle: Any,
    ) -> None:
        self.home, self.handle = home, handle
        self.io, self.intermediate, self.compute = io_data_type, intermediate_data_type, compute_data_type
        self.tensors: list[Tensor] = []
        self.steps: list[tuple[Tensor, Callable[[dict[Tensor, np.ndarray]], np.ndarray]]] = []
        self.arguments: dict[str, Any] = {}
        self.stage = 0
        self.most_room = 1 << 62
        self.barred: set[Note] = set()
        self.selected, self.built = 0, False

    # Description

    def tensor(self, *, dim: list[int], stride: list[int], name: str, uid: int) -> Tensor:
        assert len(dim) == len(stride) and all(type(n) is int for n in (*dim, *stride)) and name
        self.tensors.append(Tensor(dim, stride, uid))
        return self.tensors[-1]

    def _add(self, work: Callable[[dict[Tensor, np.ndarray]], np.ndarray]) -> Tensor:
        self.steps.append((Tensor([], []), work))
        return self.steps[-1][0]

    def conv_fprop(
        self,
        *,
        image: Tensor,
        weight: Tensor,
        pre_padding: list[int],
        post_padding: list[int],
        stride: list[int],
        dilation: list[int],
    ) -> Tensor:
        rank = len(image.dim) - 2
        assert {len(x) for x in (pre_padding, post_padding, stride, dilation)} == {rank}
        groups = image.dim[1] // weight.dim[1]
        op = table.by_full_name(f"aten::conv{rank}d")
        assert op is not None
        kernel = op.kernel(np)

        def work(at: dict[Tensor, np.ndarray]) -> np.ndarray:
            around = [(0, 0), (0, 0), *zip(pre_padding, post_padding, strict=True)]
            return kernel(np.pad(at[image], around), at[weight], None, stride, [0] * rank, dilation, groups)

        return self._add(work)

    def add(self, *, a: Tensor, b: Tensor) -> Tensor:
        return self._add(lambda at: at[a] + at[b])

    def sdpa(
        self,
        *,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_scale: float,
        generate_stats: bool,
        bias: Tensor | None = None,
        diagonal_alignment: Alignment = Alignment.BOTTOM_RIGHT,
        diagonal_band_right_bound: int | None = None,
    ) -> tuple[Tensor, None]:
        assert type(attn_scale) is float and generate_stats is False
        if self.io not in (DataType.HALF, DataType.BFLOAT16):
            raise NotSupported("sdpa is for half types")

        def work(at: dict[Tensor, np.ndarray]) -> np.ndarray:
            shared = q.dim[1] // k.dim[1]
            keys, values = (np.repeat(at[x], shared, axis=1) for x in (k, v))
            scores = at[q] @ keys.swapaxes(-1, -2) * at[q].dtype.type(attn_scale)
            if bias is not None:
                scores = scores + at[bias]
            if diagonal_band_right_bound is not None:
                assert diagonal_alignment is Alignment.TOP_LEFT
                rows, columns = np.ogrid[: scores.shape[2], : scores.shape[3]]
                scores = np.where(columns > rows + diagonal_band_right_bound, -np.inf, scores)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            return (weights / weights.sum(-1, keepdims=True)).astype(scores.dtype) @ values

        return self._add(work), None

    # Plans

    def _reach(self, stage: int) -> None:
        assert self.stage == stage - 1, "called out of order"
        self.stage = stage

    def validate(self) -> None:
        self._reach(1)

    def deselect_workspace_greater_than(self, workspace_limit: int) -> None:
        assert self.stage < 3
        self.most_room = workspace_limit

    def build_operation_graph(self) -> None:
        self._reach(2)

    def create_execution_plans(self, heuristics: list[Mode]) -> None:
        self._reach(3)
        assert heuristics == [Mode.A, Mode.FALLBACK]
        if not self.home.offered:
            raise NotSupported("no engine proposed a plan for this graph\nand more")

    def deselect_numeric_notes(self, notes: list[Note]) -> None:
        assert self.stage == 3, "marks plans that are there"
        self.barred |= set(notes)

    def get_execution_plan_count(self) -> int:
        return len(self.home.offered)

    def select_plan(self, index: int) -> None:
        self.selected, self.built = index, False

    @property
    def selected_engine(self) -> str | None:
        return self.home.offered[self.selected].engine

    def build_plans(self) -> None:
        plan = self.home.offered[self.selected]
        if plan.notes & self.barred or plan.room > self.most_room:
            raise NotSupported("Deselecting execution plan")
        if plan.fault:
            raise NotSupported(plan.fault)
        self.built = True

    def get_workspace_size(self) -> int:
        assert self.built
        return self.home.offered[self.selected].room

    # Execution

    def execute(self, arrays: dict[int, int], workspace: int, handle: Any) -> None:
        assert self.built and handle is self.handle and all(type(x) is int for x in (workspace, *arrays.values()))
        out = self.steps[-1][0]
        assert out.is_output and set(arrays) == {x.uid for x in (*self.tensors, out)}
        if self.home.execute_fault:
            raise RuntimeError(self.home.execute_fault)
        assert not any(x % 16 for x in arrays.values())
        room = self.home.offered[self.selected].room
        held, start = self.home.memory.memory_at(workspace) if room else (np.empty(0, np.uint8), 0)
        assert not room or start + room <= len(held)
        self.home.log.append((handle.stream, workspace))

        def view(x: Tensor) -> np.ndarray:
            strides = tuple(s * self.io.dtype.itemsize for s in x.stride)
            found = DeviceTensor(arrays[x.uid], tuple(x.dim), strides, self.io.dtype, None)
            return self.home.memory.view(found)

        def work() -> None:
            held[start : start + room] = 0xA5
            at = {x: view(x).astype(self.compute.dtype) for x in self.tensors}
            with np.errstate(all="ignore"):
                for result, step in self.steps:
                    at[result] = step(at).astype(self.intermediate.dtype)
            view(out)[...] = at[out]

        self.home.submit(handle.stream, work)
