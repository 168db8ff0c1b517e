"""The CUDA renderer against the NumPy one, in Numba's simulator, where NUMBA_ENABLE_CUDASIM=1 (``ci/cuda_sim.sh``)."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("kernels run on a GPU, or in the simulator: NUMBA_ENABLE_CUDASIM=1", allow_module_level=True)
pytest.importorskip("numba_cuda")

from gpujit.ir import scalar
from gpujit.ir.scalar import RecordError
from gpujit.kernels import cuda_launch
from gpujit.kernels.cuda_simulated import Pointer
from gpujit.kernels.cuda_tile import COLUMN, POINTS, ROW, CudaKernel, Limits
from gpujit.kernels.index import dim, index
from gpujit.kernels.reference import run
from gpujit.kernels.tile import Bound, Call, NotRendered
from gpujit.kernels.tile_build import Builder
from gpujit.ops import table
from gpujit.ops.registry import Op
from gpujit.support.errors import GpujitError, OpError
from tests.kernels.cuda_programs import SAMPLES
from tests.kernels.programs import Case, operator_case
from tests.kernels.random_programs import assert_close, cases
from tests.ops.test_recording import COMPLEX, POINTWISE, arguments
from tests.ops.test_row_recording import AFTER
from tests.ops.test_row_recording import tensor as row_tensor

# Warps of 4 threads and blocks of 8, so that everything that happens between warps and blocks happens in few threads.
SMALL = Limits(block=8, row_block=16, warp=4, kept=8, busy=64, split=1)
WHOLE = Limits(block=8, row_block=8, warp=8, kept=16, busy=64, split=2)
REREAD = Limits(block=4, row_block=8, warp=2, kept=1, busy=1, split=1, bytes=4)


def same_as_reference(case: Case, limits: Limits, blocks: int = 2) -> CudaKernel | None:
    """The kernel that ran: both renderers gave the same. Raises what either of them refuses."""
    want, got = case.fresh(), case.fresh()
    run(case.program, want.inputs, want.outputs, case.sizes, case.params)
    kernel = cuda_launch.run(case.program, got.inputs, got.outputs, case.sizes, case.params, limits, blocks)
    assert_close(got.outputs, want.outputs, case.program.text if kernel is None else kernel.text)
    return kernel


def agree(case: Case, limits: Limits, blocks: int = 2) -> None:
    try:
        same_as_reference(case, limits, blocks)
    except (GpujitError, NotRendered):
        # An index out of range or an empty row: nothing is promised then. Or a function without code.
        assume(False)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(), st.sampled_from([SMALL, WHOLE, REREAD]), st.sampled_from([1, 3]))
def test_random_programs(case, limits, blocks) -> None:
    agree(case, limits, blocks)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(max_size=24, max_dims=2, max_steps=5), st.sampled_from([SMALL, WHOLE, REREAD]))
def test_random_programs_over_whole_vectors_and_rests(case, limits) -> None:
    agree(case, limits)


# ---------------------------------------------------------------------------------------------------- operators


@pytest.mark.parametrize("op", [op for op in POINTWISE if op.name not in COMPLEX], ids=lambda op: op.full_name)
def test_pointwise_entries(op: Op) -> None:
    done = 0
    for dtype in ("float32", "bfloat16", "int32", "bool"):
        for limits, shapes in ((SMALL, [(10,), (10,)]), (WHOLE, [(2, 1, 4), (2, 4)])):
            args = arguments(op, dtype, list(shapes), (1.5, 2) if "float" in dtype else (2, 3))
            if args is None:
                continue
            if op.name == "aten::prelu":
                args[1] = args[1].reshape(-1)[: shapes[0][1] if len(shapes[0]) > 1 else 1]
            try:
                with np.errstate(all="ignore"):
                    op.kernel(np)(*args)
                case = operator_case(op, args)
            except (OpError, RecordError):
                continue
            done += 1
            if any(isinstance(item, Call) for item in case.program.body):
                with pytest.raises(NotRendered, match="the function aten::"):
                    cuda_launch.run(case.program, case.inputs, case.outputs, case.sizes, case.params, limits)
                continue
            kernel = same_as_reference(case, limits)
            assert kernel is not None and kernel.tile.layout == POINTS
    assert done, f"{op.full_name} was never compared"


@pytest.mark.parametrize("name", sorted(AFTER))
def test_rows_entries(name: str) -> None:
    op = table.by_full_name(f"aten::{name}")
    assert op is not None
    done = 0
    for after in AFTER[name][:2]:
        for dtype in (np.dtype("f4"), np.dtype("f2"), np.dtype("i8")):
            args = [row_tensor((2, 3, 4), dtype, special=dtype == np.dtype("f4")), *after]
            try:
                case = operator_case(op, args)
            except (OpError, RecordError):
                continue
            kernel = same_as_reference(case, SMALL)
            assert kernel is not None and kernel.tile.layout in (ROW, COLUMN)
            done += 1
    assert done, f"{name} was never compared"


# ---------------------------------------------------------------------------------- layouts, warps, kept elements


def row_case(op: str, x: np.ndarray, rows: int = 1, scale: bool = False) -> Case:
    """A reduction over the last dims, or with ``scale`` each element beside its row's result."""
    builder = Builder(x.ndim, rows)
    at = tuple(dim(d) for d in range(x.ndim))
    element = builder.load(builder.input(x.dtype, x.ndim), at)
    y = scalar.reduce(op, element)
    if scale:
        y = scalar.apply("sub", element, y)
    full = scale or op in scalar.SCANS
    builder.store(builder.output(y.dtype, x.ndim if full else x.ndim - rows), at if full else at[: x.ndim - rows], y)
    return Case(builder.finish(), [x], [np.ones(x.shape if full else x.shape[: x.ndim - rows], y.dtype)], x.shape)


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).permutation(int(np.prod(shape))).reshape(shape).astype("f4") / 4 - 3


@pytest.mark.parametrize("op", ["sum", "max", "argmax", "argmin", "cumsum"])
@pytest.mark.parametrize(
    ("length", "limits", "threads", "items"),
    [
        (3, SMALL, 4, 0),  # threads of a warp without an element
        (16, SMALL, 4, 0),  # a warp
        (37, SMALL, 16, 0),  # warps of a block
        (24, REREAD, 8, 0),
        (40, WHOLE, 8, 0),
    ],
)
def test_rows_by_threads(op: str, length: int, limits: Limits, threads: int, items: int) -> None:
    kernel = same_as_reference(row_case(op, numbers((3, length))), limits)
    assert kernel is not None and kernel.tile.layout == ROW
    if op != "cumsum":
        assert (kernel.tile.threads, kernel.tile.items) == (threads, items)


@pytest.mark.parametrize(("length", "threads", "items"), [(12, 4, 1), (16, 4, 1), (32, 4, 2), (64, 8, 2), (41, 16, 3)])
def test_rows_kept_in_registers(length: int, threads: int, items: int) -> None:
    kernel = same_as_reference(row_case("sum", numbers((3, length)), scale=True), SMALL)
    assert kernel is not None and (kernel.tile.threads, kernel.tile.items) == (threads, items)


@pytest.mark.parametrize("op", ["sum", "max", "argmin", "cumsum"])
@pytest.mark.parametrize(("rows", "length", "scale"), [(5, 9, False), (8, 40, False), (8, 9, True), (12, 1, True)])
def test_columns(op: str, rows: int, length: int, scale: bool) -> None:
    if scale and op.startswith("arg"):
        op = "min"
    case = row_case(op, np.ascontiguousarray(numbers((rows, length)).T).T, scale=scale)
    if op == "cumsum" or scale:
        case.outputs[0] = np.ascontiguousarray(case.outputs[0].T).T
    kernel = same_as_reference(case, SMALL)
    assert kernel is not None and (kernel.tile.layout == COLUMN or length == 1)


@pytest.mark.parametrize("limits", [SMALL, WHOLE, REREAD])
def test_nan_wins_and_the_first_of_equals_is_found(limits: Limits) -> None:
    x = numbers((4, 20))
    x[0, 3] = x[0, 17] = np.nan
    x[1] = -np.inf
    x[2, 5] = x[2, 6] = x[2, 19] = 100
    for op in ("max", "min", "argmax", "argmin"):
        same_as_reference(row_case(op, x), limits)
        same_as_reference(row_case(op, np.ascontiguousarray(x.T).T), limits)
    out = row_case("argmax", x)
    cuda_launch.run(out.program, out.inputs, out.outputs, out.sizes, (), limits)
    assert out.outputs[0].tolist()[:3] == [3, 0, 5]


def test_empty_rows_and_empty_spaces() -> None:
    same_as_reference(row_case("sum", np.zeros((3, 0), "f4")), SMALL)
    same_as_reference(row_case("sum", np.zeros((3, 0), "f4"), scale=True), SMALL)
    assert same_as_reference(row_case("max", np.zeros((0, 3), "f4")), SMALL) is None


def test_reductions_over_two_dims_that_do_not_merge() -> None:
    wide = numbers((3, 4, 12))
    for op in ("sum", "argmax"):
        same_as_reference(row_case(op, wide[..., :8], rows=2), SMALL)
        same_as_reference(row_case(op, wide.transpose(0, 2, 1), rows=2), SMALL)
    same_as_reference(row_case("cumsum", wide[..., :8], rows=2), SMALL)


# ------------------------------------------------------------------------------------------------- golden programs

# Sizes along each dim that the simulator can run, and what may not shrink: a parameter that depends on them.
TINY = {"cat_pad": (16, 192), "gather": (5, 40), "batch_norm_relu": (2, 3, 12), "masked_softmax": (2, 3, 20)}


@pytest.mark.parametrize("name", sorted(SAMPLES))
@pytest.mark.parametrize("limits", [SMALL, WHOLE, REREAD])
def test_golden_programs(name: str, limits: Limits) -> None:
    sample = SAMPLES[name]
    p = sample.program
    sizes = TINY[name] if name in TINY else {1: (43,), 2: (6, 24)}[p.dims]
    params = {"cat_pad": (100, 2, 12), "gather": (7,)}.get(name, ())
    random = np.random.default_rng(1)
    case = Case(p, [], [], sizes, params)
    was = dict(zip(sample.sizes, sizes, strict=True))
    for k, shape in enumerate(sample.shapes):
        shape = tuple(was.get(n, n) for n in shape)
        if name == "cat_pad":
            shape = [(16, 100), (16, 92), (12, 192), (16, 192)][k]
        elif name == "gather":
            shape = [(7, 40), (5,), (40,), (5, 40)][k]
        dtype = [*p.inputs, *p.outputs][k].dtype
        x = np.asarray(
            random.integers(0 if name in ("gather", "integers") else -8, 9, shape) / (4 if dtype.kind in "fV" else 1)
        )
        x = np.abs(x).astype(dtype) if (name, k) == ("batch_norm_relu", 2) else x.astype(dtype)
        if (name, k) == ("gather", 1):
            x = np.array([0, 6, 3, 3, 1])
        (case.inputs if k < len(p.inputs) else case.outputs).append(x)
    same_as_reference(case, limits, blocks=3)


def test_a_mask_that_ends_within_a_vector() -> None:
    builder = Builder(1)
    inside = builder.inside(Bound(index(0), dim(0), builder.param()))
    x = builder.load(builder.input(np.dtype("f4"), 1), (dim(0),), inside, 7.0)
    builder.store(builder.output(np.dtype("f4"), 1), (dim(0),), x)
    case = Case(builder.finish(), [np.arange(8, dtype="f4")], [np.zeros(16, "f4")], (16,), (6,))
    kernel = same_as_reference(case, SMALL)
    assert kernel is not None and kernel.tile.width == 4 and all(p.is_wide for p in kernel.places)


def test_checks_say_what_failed() -> None:
    sample = SAMPLES["gather"]
    table_, at, bias, out = np.ones((7, 8), "f4"), np.array([1, 7, 2]), np.ones(8, "f4"), np.zeros((3, 8), "f4")
    with pytest.raises(OpError, match="index out of range"):
        cuda_launch.run(sample.program, [table_, at, bias], [out], (3, 8), (7,), SMALL)
    np.testing.assert_array_equal(out[[0, 2]], 2)


def test_pointers_find_what_lies_outside() -> None:
    inside = np.arange(8, dtype="f4")
    pointer = Pointer(inside[2:6][::-1])
    assert pointer[0] == 5 and pointer[np.int32(-3)] == 2
    for at in (1, -4):
        with pytest.raises(IndexError, match="of memory for 4"):
            pointer[at]
    aligned = Pointer(inside)
    assert aligned.wide(4, 4) == slice(4, 8)
    with pytest.raises(ValueError, match="not aligned"):
        aligned.wide(1, 4)


def test_a_source_runs_in_the_simulator_only_where_numba_has_one() -> None:
    source = cuda_launch.render(SAMPLES["chain"].call().kernel)
    assert cuda_launch.simulated(source) is cuda_launch.simulated(source)
