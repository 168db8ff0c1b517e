"""Convolutions and attention by cuDNN, through NVIDIA's front end: graphs of its operations become execution plans.

A plan is made once for each description of work, and asked for its room, before anything runs. Only what cuDNN itself
has is taken: the front end offers kernels that it compiles with other packages besides, which are passed over.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from gpujit.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64
from gpujit.kernels.launches import Attention, Convolution, LibraryCall
from gpujit.support.errors import DeviceError

_TYPES = {FLOAT32: "FLOAT", FLOAT64: "DOUBLE", FLOAT16: "HALF", BFLOAT16: "BFLOAT16"}
# Kernels whose results differ from run to run, or whose sums are of half types; and those by which an infinity or a NaN
# gets to results that have no part in it.
_AVOIDED = ("NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION", "FFT", "WINOGRAD")
# Kernels that round float32 numbers.
_ROUNDING = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS")
# Bytes that a plan may work in: runtimes keep them; and how many plans are kept for work to come.
MOST_ROOM, MOST_PLANS = 256 << 20, 1024
# The oldest versions that are taken: of the front end the first that was tried, of the library the first for CUDA 13.
LEAST_FRONT_END, LEAST_LIBRARY = (1, 32), (9, 12)
# Letters of a library's message that are worth showing.
_SHOWN = 160
_INSTALL = "pip install -U 'gpujit[cudnn]'"


def open_plans(cudnn: Any, driver: str) -> Plans | str:
    """What has plans on the current device, or why there are none.

    Args:
        cudnn: the front end's module.
        driver: the device and its driver, for people.
    """
    front_end = str(getattr(cudnn, "__version__", "0"))
    if _numbers(front_end) < LEAST_FRONT_END:
        return f"cuDNN's front end {front_end} is older than {_dotted(LEAST_FRONT_END)}: {_INSTALL}"
    try:
        number = int(cudnn.backend_version())
    except Exception as fault:
        return f"cuDNN itself is not found ({short(fault)}): {_INSTALL}"
    # From version 9 on two digits each for the minor one and the patch.
    library = (number // 10000, number // 100 % 100) if number >= 90000 else (number // 1000, number // 100 % 10)
    if library < LEAST_LIBRARY:
        return f"cuDNN {_dotted(library)} is older than {_dotted(LEAST_LIBRARY)}: {_INSTALL}"
    try:
        return Plans(cudnn, cudnn.create_handle())
    except Exception as fault:
        return f"cuDNN {_dotted(library)} does not work on {driver}; is the driver too old for it? ({short(fault)})"


def _numbers(version: str) -> tuple[int, ...]:
    """Major and minor version."""
    return tuple(int(n) for n in re.findall(r"\d+", version)[:2])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


class Plan:
    """An execution plan: ``uids`` number the arrays of the graph in the order of a LibraryCall's."""

    def __init__(self, graph: Any, uids: tuple[int, ...], room: int) -> None:
        self.graph, self.uids, self.room = graph, uids, room


class Plans:
    """Makes plans on one device, and keeps them. Threads may call it at the same time.

    A handle goes with one stream at a time, so that calls are put on streams one behind the other.

    Args:
        cudnn: the front end's module.
        handle: cuDNN's handle, of the device that is current when it is made; None to plan without a device.
        options: arguments of every graph, such as the properties of a device that is not there.
    """

    def __init__(self, cudnn: Any, handle: Any = None, **options: Any) -> None:
        self.cudnn, self.handle = cudnn, handle
        self._options = options if handle is None else {"handle": handle, **options}
        self._found: dict[Convolution | Attention, Plan | str] = {}
        self._lock = threading.RLock()

    def found(self, work: Convolution | Attention) -> Plan | str:
        """The plan of some work, or why there is none."""
        with self._lock:
            found = self._found.get(work)
            if found is None:
                try:
                    found = self._made(work)
                except Exception as fault:
                    # A graph that the library refuses, or an installation that does not work: there are other ways.
                    found = f"cuDNN does not do it: {short(fault)}"
                if len(self._found) >= MOST_PLANS:
                    del self._found[next(iter(self._found))]
            else:
                # Work that was asked for lately is forgotten last.
                del self._found[work]
            self._found[work] = found
            return found

    def call(self, call: LibraryCall, at: Callable[[int], int]) -> Callable[[int], None]:
        """What puts a call, whose plan there is, on a stream by its address. That raises DeviceError."""
        plan = self.found(call.work)
        if isinstance(plan, str):
            raise DeviceError(plan)
        if plan.room > call.room:
            # One that was made anew.
            raise DeviceError(f"cuDNN wants {plan.room:,} bytes to work in, where it said {call.room:,} before")
        arrays = {uid: at(x.array) + x.offset for uid, x in zip(plan.uids, call.arrays, strict=True)}
        workspace = at(call.workspace.array) + call.workspace.offset

        def put(stream: int) -> None:
            try:
                with self._lock:
                    self.cudnn.set_stream(self.handle, stream)
                    plan.graph.execute(arrays, workspace, self.handle)
            except Exception as fault:
                raise DeviceError(f"cuDNN failed: {short(fault)}") from None

        return put

    # Graphs

    def _made(self, work: Convolution | Attention) -> Plan:
        cudnn = self.cudnn
        compute = cudnn.data_type.DOUBLE if work.dtype == FLOAT64 else cudnn.data_type.FLOAT
        graph = cudnn.pygraph(
            io_data_type=getattr(cudnn.data_type, _TYPES[work.dtype]),
            intermediate_data_type=compute,
            compute_data_type=compute,
            **self._options,
        )
        *layouts, last = work.layouts
        uids = tuple(range(1, len(layouts) + 2))
        arrays = [
            graph.tensor(dim=list(x.shape), stride=list(x.steps), name=f"array_{uid}", uid=uid)
            for uid, x in zip(uids, layouts, strict=False)
        ]
        if isinstance(work, Convolution):
            out = _convolution(graph, work, arrays)
        else:
            out = _attention(cudnn, graph, work, arrays)
        out.set_output(True).set_uid(uids[-1]).set_dim(list(last.shape)).set_stride(list(last.steps))
        graph.validate()
        graph.deselect_workspace_greater_than(MOST_ROOM)
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        is_rounded = work.dtype != FLOAT32 or (isinstance(work, Convolution) and work.tf32)
        notes = (*_AVOIDED, *(() if is_rounded else _ROUNDING))
        graph.deselect_numeric_notes([getattr(cudnn.numerical_note, n) for n in notes])
        self._choose(graph)
        return Plan(graph, uids, int(graph.get_workspace_size()))

    def _choose(self, graph: Any) -> None:
        """Build the first plan of cuDNN's own that can be built. Raises the last one's fault."""
        refused: Exception = DeviceError("it has no kernel for it")
        for index in range(graph.get_execution_plan_count()):
            graph.select_plan(index)
            if graph.selected_engine is not None:
                continue
            try:
                graph.build_plans()
                return
            except self.cudnn.cudnnGraphNotSupportedError as fault:
                refused = fault
        raise refused


def _convolution(graph: Any, work: Convolution, arrays: Sequence[Any]) -> Any:
    """The result of a convolution.

    A relu stays a step of its own: none of cuDNN's quick kernels promises that NaN comes through one.
    """
    out = graph.conv_fprop(
        image=arrays[0], weight=arrays[1], pre_padding=list(work.before), post_padding=list(work.after),
        stride=list(work.stride), dilation=list(work.dilation),
    )  # fmt: skip
    return graph.add(a=out, b=arrays[2]) if work.has_bias else out


def _attention(cudnn: Any, graph: Any, work: Attention, arrays: Sequence[Any]) -> Any:
    """The result of an attention."""
    q, k, v = arrays[:3]
    more: dict[str, Any] = {}
    if work.bias is not None:
        more["bias"] = arrays[3]
    if work.is_causal:
        more |= {"diagonal_alignment": cudnn.diagonal_alignment.TOP_LEFT, "diagonal_band_right_bound": 0}
    return graph.sdpa(q=q, k=k, v=v, attn_scale=work.scale, generate_stats=False, **more)[0]


def short(fault: Exception) -> str:
    """The head of what a library says, or the kind of a fault without words."""
    text = str(fault).strip().split("\n")[0].strip()
    return (text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...") or type(fault).__name__
