"""Plans of cuDNN on a stand-in for its front end, and the names of the front end where it is installed."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64
from gpujit.kernels.launches import Address, Attention, Convolution, Layout, LibraryCall
from gpujit.ops import table
from gpujit.runtime import cudnn as implementation
from gpujit.runtime.cudnn import MOST_ROOM, Plan, Plans, open_plans
from gpujit.runtime.simulated_device import HostBacked
from gpujit.support.errors import DeviceError
from tests.runtime.fake_cuda import Machine, cupy_device
from tests.runtime.fake_cudnn import DataType, FrontEnd, Note, Offered
from tests.runtime.recording_device import LIMITS
from tests.runtime.test_cublas import StandIn
from tests.static_runtime.device_models import numbers, scripted

DTYPES = [FLOAT32, FLOAT64, FLOAT16, BFLOAT16]
TOLERANCE = {FLOAT32: 1e-5, FLOAT64: 1e-12, FLOAT16: 2e-3, BFLOAT16: 1.6e-2}


@pytest.fixture
def cudnn() -> FrontEnd:
    return FrontEnd(HostBacked())


def plans_of(cudnn: FrontEnd) -> Plans:
    found = open_plans(cudnn, "a card")
    assert isinstance(found, Plans)
    return found


def convolution(
    rank: int = 2, has_bias: bool = True, stride: int = 1, after: int = 1, dilation: int = 1, groups: int = 1,
    dtype: np.dtype = FLOAT32, tf32: bool = False,
) -> Convolution:  # fmt: skip
    size = (6 + 1 + after - 2 * dilation - 1) // stride + 1
    return Convolution(
        (2, 4, *[6] * rank), (6, 4 // groups, *[3] * rank), (2, 6, *[size] * rank), has_bias, (stride,) * rank,
        (1,) * rank, (after,) * rank, (dilation,) * rank, groups, dtype, tf32,
    )  # fmt: skip


def attention(
    keys: int = 5, shared: int = 1, bias: tuple[int, ...] | None = None, is_causal: bool = False,
    is_turned: bool = False, dtype: np.dtype = FLOAT16, scale: float = 0.25,
) -> Attention:  # fmt: skip
    def layout(heads: int, rows: int) -> Layout:
        if not is_turned:
            return Layout.together((2, heads, rows, 8))
        return Layout((2, heads, rows, 8), (rows * heads * 8, 8, heads * 8, 1))

    added = None if bias is None else Layout.together(bias)
    theirs = layout(4 // shared, keys)
    return Attention(layout(4, 3), theirs, theirs, layout(4, 3), added, scale, is_causal, dtype)


def done(cudnn: FrontEnd, plans: Plans, work: Convolution | Attention, stream: int = 7) -> tuple[np.ndarray, list[Any]]:
    """What a call gives, and its operands."""
    memory, held = cudnn.memory, []
    size = work.dtype.itemsize
    plan = plans.found(work)
    assert isinstance(plan, Plan), plan
    views = []
    for k, x in enumerate(work.layouts):
        held.append(memory.allocate(size * (1 + sum((n - 1) * s for n, s in zip(x.shape, x.steps, strict=True)))))
        whole = held[-1].bytes[: held[-1].nbytes].view(work.dtype)
        views.append(np.lib.stride_tricks.as_strided(whole, x.shape, [s * size for s in x.steps]))
        views[-1][...] = numbers(*x.shape, seed=k) if k < len(work.layouts) - 1 else 7
    held.append(memory.allocate(plan.room + 1))
    call = LibraryCall(work, tuple(Address(k) for k in range(len(views))), Address(len(views)), plan.room)
    plans.call(call, lambda number: held[number].address)(stream)
    assert cudnn.log[-1][0] == stream
    return views[-1], views[:-1]


def assert_right(got: np.ndarray, want: np.ndarray, dtype: np.dtype) -> None:
    assert (got.shape, got.dtype) == (want.shape, dtype)
    np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), TOLERANCE[dtype], 4 * TOLERANCE[dtype])


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype("f8")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "work",
    [
        *[convolution(rank=n, has_bias=b) for n in (1, 2, 3) for b in (False, True)],
        convolution(stride=2),
        convolution(after=0),
        convolution(dilation=2, after=3),
        convolution(groups=2),
        convolution(rank=1, groups=2, stride=2, dilation=2, has_bias=False),
    ],
    ids=str,
)
def test_convolutions(cudnn: FrontEnd, work: Convolution, dtype: np.dtype) -> None:
    work = replace(work, dtype=dtype)
    out, (x, weight, *bias) = done(cudnn, plans_of(cudnn), work)
    op = table.by_full_name(f"aten::conv{len(work.stride)}d")
    assert op is not None
    around = [(0, 0), (0, 0), *zip(work.before, work.after, strict=True)]
    b = wide(bias[0]).ravel() if bias else None
    rest = [list(work.stride), [0] * len(work.stride), list(work.dilation), work.groups]
    assert_right(out, op.kernel(np)(np.pad(wide(x), around), wide(weight), b, *rest), dtype)
    # Sums of half types are float32, and are rounded once.
    wanted = DataType.DOUBLE if dtype == FLOAT64 else DataType.FLOAT
    assert {(g.compute, g.intermediate) for g in cudnn.graphs} == {(wanted, wanted)}


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize(
    "work",
    [
        attention(),
        attention(scale=1.5, shared=2),
        *[attention(is_causal=True, keys=n) for n in (2, 3, 5)],
        *[attention(bias=shape) for shape in ((1, 1, 1, 5), (2, 1, 3, 5), (1, 4, 1, 5), (2, 4, 3, 5))],
        attention(is_turned=True, shared=4, is_causal=True),
    ],
    ids=str,
)
def test_attention(cudnn: FrontEnd, work: Attention, dtype: np.dtype) -> None:
    work = replace(work, dtype=dtype)
    out, (q, k, v, *bias) = done(cudnn, plans_of(cudnn), work)
    op = table.by_full_name("aten::scaled_dot_product_attention")
    assert op is not None
    added = wide(bias[0]) if bias else None
    want = op.kernel(np)(wide(q), wide(k), wide(v), added, 0.0, work.is_causal, work.scale, q.shape[1] != k.shape[1])
    assert_right(out, want, dtype)
    assert [(g.compute, g.intermediate) for g in cudnn.graphs] == [(DataType.FLOAT, DataType.FLOAT)]


@pytest.mark.parametrize(
    ("work", "is_rounded"),
    [
        (convolution(), False),
        (convolution(tf32=True), True),
        (convolution(dtype=FLOAT64), True),
        (convolution(dtype=FLOAT16), True),
        (attention(), True),
    ],
)
def test_kernels_that_round_more_than_was_asked_for_are_passed_over(
    cudnn: FrontEnd, work: Any, is_rounded: bool
) -> None:
    always = ("NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION", "FFT", "WINOGRAD")
    cudnn.offered = [Offered(k, (note,)) for k, note in enumerate(always)]
    cudnn.offered += [Offered(100, ("TENSOR_CORE",)), Offered(200, ("STRICT_NAN_PROP",))]
    found = plans_of(cudnn).found(work)
    assert isinstance(found, Plan) and found.room == (100 if is_rounded else 200)
    assert (Note.DOWN_CONVERT_INPUTS in cudnn.graphs[0].barred) is not is_rounded


def test_the_first_plan_of_cudnn_s_own_that_can_be_built(cudnn: FrontEnd) -> None:
    cudnn.offered = [Offered(1, engine="sdpa_fwd"), Offered(2, fault="not on this card"), Offered(MOST_ROOM + 1)]
    cudnn.offered += [Offered(48), Offered(5)]
    plans = plans_of(cudnn)
    found = plans.found(convolution())
    assert isinstance(found, Plan) and found.room == 48
    assert plans.found(convolution()) is found and len(cudnn.graphs) == 1
    assert plans.found(convolution(stride=2)) is not found


def test_why_there_is_no_plan(cudnn: FrontEnd) -> None:
    plans = plans_of(cudnn)
    cudnn.offered = []
    assert plans.found(convolution()) == "cuDNN does not do it: no engine proposed a plan for this graph"
    # It is not asked again.
    cudnn.offered = [Offered()]
    assert isinstance(plans.found(convolution()), str) and len(cudnn.graphs) == 1
    assert plans.found(attention(dtype=FLOAT32)) == "cuDNN does not do it: sdpa is for half types"
    cudnn.offered = [Offered(fault="x" * 500)]
    reason = plans.found(convolution(stride=2))
    assert isinstance(reason, str) and len(reason) < 200 and reason.endswith("x...")
    cudnn.offered = [Offered(engine="python")]
    assert plans.found(convolution(rank=1)) == "cuDNN does not do it: it has no kernel for it"
    with pytest.raises(DeviceError, match="it has no kernel for it"):
        plans.call(LibraryCall(convolution(rank=1), (), Address(0), 0), lambda number: 0)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (
            {"__version__": "1.31.4"},
            r"cuDNN's front end 1\.31\.4 is older than 1\.32: pip install -U 'gpujit\[cudnn\]'",
        ),
        ({"version": 91104}, r"cuDNN 9\.11 is older than 9\.12: pip install"),
        ({"version": 8907}, r"cuDNN 8\.9 is older than 9\.12: pip install"),
        ({"library_fault": "no symbol\nmore"}, r"cuDNN itself is not found \(no symbol\): pip install"),
        ({"handle_fault": "NOT_INITIALIZED"}, r"cuDNN 9\.28 does not work on a card; is the driver .* \(NOT_I"),
    ],
)
def test_installations_that_do_not_do(cudnn: FrontEnd, facts: dict[str, Any], reason: str) -> None:
    vars(cudnn).update(facts)
    found = open_plans(cudnn, "a card")
    assert isinstance(found, str)
    assert re.match(reason, found), found


def test_only_so_many_plans_are_kept(cudnn: FrontEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementation, "MOST_PLANS", 2)
    plans = plans_of(cudnn)
    one, two, three = (convolution(stride=n) for n in (1, 2, 3))
    first = plans.found(one)
    plans.found(two)
    assert plans.found(one) is first
    plans.found(three)
    assert plans.found(one) is first and len(cudnn.graphs) == 3
    # Made anew, it may need more than there is room for.
    cudnn.offered = [Offered(500)]
    with pytest.raises(DeviceError, match="cuDNN wants 500 bytes to work in, where it said 0 before"):
        plans.call(LibraryCall(two, (), Address(0), 0), lambda number: 0)
    assert len(cudnn.graphs) == 4


def test_a_call_that_fails(cudnn: FrontEnd) -> None:
    plans = plans_of(cudnn)
    cudnn.execute_fault = "CUDNN_STATUS_EXECUTION_FAILED\nand more"
    with pytest.raises(DeviceError, match=r"^cuDNN failed: CUDNN_STATUS_EXECUTION_FAILED$"):
        done(cudnn, plans, convolution())


def test_calls_of_threads_keep_their_streams(cudnn: FrontEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    plans, seen = plans_of(cudnn), []
    switch = sys.getswitchinterval()
    submit = cudnn.submit

    def watched(stream: int, work: Any) -> None:
        seen.append((stream, plans.handle.stream))
        submit(stream, work)

    cudnn.submit = watched

    def run(stream: int) -> None:
        for _ in range(20):
            done(cudnn, plans, convolution(rank=1), stream)

    monkeypatch.setattr(cudnn, "log", _Last())
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run, args=(n,)) for n in (1, 2, 3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(switch)
    assert len(seen) == 60 and all(a == b for a, b in seen)
    assert len(cudnn.graphs) == 1


class _Last(threading.local):
    """A log of which each thread sees its own last entry."""

    def append(self, entry: tuple[int, int]) -> None:
        self.entry = entry

    def __getitem__(self, _: int) -> tuple[int, int]:
        return self.entry


# ---------------------------------------------------------------------------------------------------- in a CupyDevice


class Filters(nn.Module):
    def __init__(self, padding: int):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3, padding=padding), nn.Conv2d(4, 4, 3, padding=padding, stride=2)

    def forward(self, x):
        return self.b(self.a(x).relu())


def opened(machine: Machine, module: Any, monkeypatch: pytest.MonkeyPatch, cudnn: Any) -> Any:
    lt = StandIn()
    lt.expected, lt.submit = None, machine.submit
    monkeypatch.setattr(module, "_products", lambda: (module.Products(lt), ""))
    monkeypatch.setattr(module, "util", SimpleNamespace(find_spec=lambda name: None if cudnn is None else name))
    load = importlib.import_module

    def imported(name: str) -> Any:
        if name != "cudnn":
            return load(name)
        if isinstance(cudnn, Exception):
            raise cudnn
        return cudnn

    monkeypatch.setattr(module, "importlib", SimpleNamespace(import_module=imported))
    device = module.CupyDevice(0, "NVIDIA H200", (9, 0), "driver of CUDA 13.0")
    device.limits = LIMITS
    return device


def placed(device: Any, module: Any) -> Any:
    found = gpujit.freeze(module)
    found._program.place(device)
    return gpujit.optimize_for_inference(found)


def test_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    cudnn = FrontEnd(machine.memory, machine.submit)
    cudnn.offered = [Offered(640)]
    with cupy_device(machine, monkeypatch) as loaded:
        device = opened(machine, loaded, monkeypatch, cudnn)
        module = scripted(Filters(1))
        found = placed(device, module)
        for seed in range(4):
            x = numbers(2, 3, 6, 6, seed=seed)
            np.testing.assert_allclose(found(x).get(), module(x), 1e-5, 1e-5)
        # The first run by calls, then one that is captured, whose stream is another one.
        assert [e[0] for e in cudnn.log] == [machine.null.ptr] * 2 + [device._capturing.ptr] * 2
        assert len({e[1] for e in cudnn.log}) == 1
        stats = found.plan_stats()
        assert (stats.captures, stats.replays, stats.fallbacks) == (1, 3, 0)
        text = found.explain()
        assert text.count("device library") == 2 and text.count("cuDNN") == 2


@pytest.mark.parametrize(
    ("cudnn", "reason"),
    [
        (None, r"cuDNN's front end is not installed: pip install 'gpujit\[cudnn\]'"),
        (ImportError("no libcudart"), r"cuDNN's front end cannot be imported \(ImportError: no libcudart\)"),
        (SimpleNamespace(), r"cuDNN's front end 0 is older than 1\.32"),
    ],
)
def test_without_cudnn_own_kernels_do_it(cudnn: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    with cupy_device(machine, monkeypatch) as loaded:
        # Kernels begin before images that have padding, which the stand-in for CUDA takes amiss.
        module = scripted(Filters(0))
        found = placed(opened(machine, loaded, monkeypatch, cudnn), module)
        x = numbers(2, 3, 6, 6)
        np.testing.assert_allclose(found(x).get(), module(x), 1e-5, 1e-5)
        assert len(re.findall(reason, found.explain())) == 2


# ------------------------------------------------------------------------------------------------- the real front end


def test_names_are_those_of_the_front_end() -> None:
    cudnn = pytest.importorskip("cudnn")
    for enumeration, names in {
        "data_type": [t.name for t in DataType],
        "numerical_note": [n.name for n in Note],
        "heur_mode": ["A", "FALLBACK"],
        "diagonal_alignment": ["TOP_LEFT"],
    }.items():
        for name in names:
            assert hasattr(getattr(cudnn, enumeration), name), f"{enumeration}.{name}"
    assert issubclass(cudnn.cudnnGraphNotSupportedError, Exception)
    for name in ("create_handle", "set_stream", "backend_version", "__version__"):
        assert hasattr(cudnn, name), name
    for name, given in {
        "tensor": {"dim", "stride", "name", "uid"},
        "execute": {"tensor_dict", "workspace", "handle"},
        "create_execution_plans": {"heuristics"},
        "select_plan": {"index"},
        "deselect_workspace_greater_than": {"workspace_limit"},
        "deselect_numeric_notes": {"notes"},
    }.items():
        assert given <= set(inspect.signature(getattr(cudnn.pygraph, name)).parameters), name
    for name in ("validate", "build_operation_graph", "build_plans", "get_workspace_size", "get_execution_plan_count"):
        assert callable(getattr(cudnn.pygraph, name)), name
    assert isinstance(cudnn.pygraph.selected_engine, property)
    assert {"conv_fprop", "add", "sdpa"} <= set(dir(cudnn.pygraph))
