"""What CUDA kernels are planned and how their sources read; needs neither Numba nor a GPU."""

from __future__ import annotations

import io
import subprocess
import sys
import tokenize

import numpy as np
import pytest

from gpujit.ir import scalar
from gpujit.ir.scalar import Expr
from gpujit.kernels.cuda_ops import held
from gpujit.kernels.cuda_tile import COLUMN, POINTS, ROW, Limits, plan_cuda
from gpujit.kernels.index import dim, value
from gpujit.kernels.numba_cuda import argument_types, render
from gpujit.kernels.tile import NotRendered, TileProgram
from gpujit.kernels.tile_build import Builder
from tests.kernels.cuda_programs import SAMPLES, golden_file

F32, F64, F16, I64, BOOL = (np.dtype(d) for d in ("f4", "f8", "f2", "i8", "?"))


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_golden_sources(name: str) -> None:
    source = render(SAMPLES[name].call().kernel)
    assert source == golden_file(name).read_text(encoding="utf-8"), (
        "the source changed: python -m tests.kernels.cuda_programs writes it anew"
    )
    compile(source, name, "exec")


def test_no_golden_file_is_left_over() -> None:
    assert {p.name for p in golden_file("x").parent.glob("cuda_*.py")} == {golden_file(n).name for n in SAMPLES}


def test_rendering_imports_no_numba() -> None:
    code = (
        "import sys; from tests.kernels.cuda_programs import SAMPLES, render\n"
        "import gpujit.kernels.cuda_launch\n"
        "render(SAMPLES['softmax'].call().kernel)\n"
        "assert not {'numba', 'llvmlite', 'cuda'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def pointwise(dtype: np.dtype = F32, dims: int = 1, op: str = "neg") -> TileProgram:
    builder = Builder(dims)
    at = tuple(dim(d) for d in range(dims))
    x = builder.load(builder.input(dtype, dims), at)
    wide = scalar.cast(x, F32) if dtype == F16 else x
    builder.store(builder.output(dtype, dims), at, scalar.cast(scalar.apply(op, wide), dtype))
    return builder.finish()


def rows(op: str = "sum", scale: bool = False) -> TileProgram:
    builder = Builder(2, 1)
    x = builder.load(builder.input(F32, 2), (dim(0), dim(1)))
    y = scalar.reduce(op, x)
    if scale:
        builder.store(builder.output(F32, 2), (dim(0), dim(1)), scalar.apply("sub", x, y))
    else:
        builder.store(builder.output(y.dtype, 1), (dim(0),), y)
    return builder.finish()


@pytest.mark.parametrize(
    ("dtype", "length", "address", "width"),
    [
        (F32, 4096, 0, 4),
        (F32, 4096, 8, 2),  # only the input's address is off
        (F32, 4096, 4, 1),
        (F32, 3, 0, 2),
        (F32, 1, 0, 1),
        (F64, 4096, 0, 2),
        (F16, 4096, 0, 8),
        (F16, 4096, 2, 1),
    ],
)
def test_loads_are_as_wide_as_addresses_allow(dtype: np.dtype, length: int, address: int, width: int) -> None:
    kernel = plan_cuda(pointwise(dtype), [(1,)], [(1,)], (length,), (), [address, address]).kernel
    assert kernel.tile.width == width and kernel.tile.has_tail == (length % width != 0)
    assert f"vload{width}" in render(kernel) if width > 1 else "vload" not in render(kernel)


def test_rows_that_do_not_start_aligned_are_read_one_by_one() -> None:
    for stride, width in ((768, 4), (770, 2), (771, 1)):
        assert plan_cuda(pointwise(dims=2), [(stride, 1)], [(stride, 1)], (64, 700)).kernel.tile.width == width


def test_a_strided_store_keeps_wide_loads_when_most_bytes_gain() -> None:
    kernel = plan_cuda(pointwise(), [(1,)], [(3,)], (4096,)).kernel
    assert kernel.tile.width == 4 and [p.is_wide for p in kernel.places] == [True, False]
    assert "o0[int32(offset1 + 2 * s0)]" in render(kernel)


@pytest.mark.parametrize(
    ("length", "count", "threads", "items"),
    [
        (4, 512, 1, 1),
        (64, 512, 16, 1),
        (128, 512, 32, 1),
        (768, 512, 64, 3),
        (16384, 64, 1024, 4),
        (20000, 64, 1024, 0),
    ],
)
def test_threads_of_a_row(length: int, count: int, threads: int, items: int) -> None:
    tile = plan_cuda(rows(scale=True), [(length, 1)], [(length, 1)], (count, length)).kernel.tile
    assert (tile.layout, tile.width, tile.threads, tile.items) == (ROW, 4, threads, items)


def test_rows_across_memory_are_columns() -> None:
    for count, length, threads in ((768, 4096, 128), (1 << 21, 64, 1), (768, 4, 1)):
        call = plan_cuda(rows(), [(1, count)], [(1,)], (count, length))
        assert (call.kernel.tile.layout, call.kernel.tile.threads) == (COLUMN, threads)
        assert call.units == count // 4


def test_what_happens_once_a_row_does_not_choose_the_lanes() -> None:
    assert plan_cuda(rows("argmax"), [(1000, 1)], [(1,)], (512, 1000)).kernel.tile.layout == ROW


def test_contiguous_dims_become_one_and_share_a_kernel() -> None:
    one = plan_cuda(pointwise(), [(1,)], [(1,)], (4096,))
    two = plan_cuda(pointwise(dims=2), [(64, 1)], [(64, 1)], (64, 64))
    assert one.kernel.key == two.kernel.key and one.words == two.words == (4096,) and one.units == 1024
    assert one.kernel.tile.layout == POINTS
    other = plan_cuda(pointwise(), [(1,)], [(1,)], (4096,), (), None, Limits(block=128))
    assert other.kernel.key != one.kernel.key


@pytest.mark.parametrize(("count", "bits"), [(1 << 20, 32), (1 << 31, 64), ((1 << 31) - 1, 64)])
def test_long_spaces_have_long_indexes(count: int, bits: int) -> None:
    kernel = plan_cuda(pointwise(np.dtype("u1"), op="not"), [(1,)], [(1,)], (count,)).kernel
    assert kernel.tile.bits == bits and argument_types(kernel) == ["*uint8", "*uint8", f"int{bits}"]
    assert f"int{bits}(u + stride)" in render(kernel)


def test_far_strides_have_long_indexes() -> None:
    assert plan_cuda(pointwise(), [(1 << 20,)], [(1,)], (4096,)).kernel.tile.bits == 64
    assert plan_cuda(pointwise(), [(1 << 18,)], [(1,)], (4096,)).kernel.tile.bits == 32


def test_gathers_look_at_all_bits_of_an_index() -> None:
    source = render(SAMPLES["gather"].call().kernel)
    assert "(v0 >= int32(0)) & (v0 < p0)" in source
    builder = Builder(1)
    short = builder.load(builder.input(np.dtype("i4"), 1), (dim(0),))
    builder.store(builder.output(F32, 1), (dim(0),), builder.load(builder.input(F32, 1), (value(short) * 2,)))
    assert "[int64(int64(int64(v0_3) * 2) * ta1_0)]" in render(
        plan_cuda(builder.finish(), [(1,)] * 2, [(1,)], (64,)).kernel
    )


def test_offsets_of_arrays_that_step_alike_are_computed_once() -> None:
    source = render(SAMPLES["gelu_bias_residual"].call().kernel)
    assert source.count("* s0") <= 1


def test_no_literal_is_left_to_become_float64() -> None:
    for sample in SAMPLES.values():
        tokens = list(tokenize.generate_tokens(io.StringIO(render(sample.call().kernel)).readline))
        for k, token in enumerate(tokens):
            if token.type == tokenize.NUMBER and not token.string.isdigit():
                before = [t.string for t in tokens[k - 3 : k] if t.string != "-"]
                assert before[-2:] == ["float32", "("], token.line


def test_masked_loads_are_wide_where_all_lanes_hold() -> None:
    source = render(SAMPLES["cat_pad"].call().kernel)
    assert "if v0_0 & v0_1 & v0_2 & v0_3:\n            v1_0, v1_1, v1_2, v1_3 = vload4(a0, offset1)" in source
    assert "v1_3 = a0[int32(offset1 + 3)] if v0_3 else float32(0.0)" in source
    # One mask for all lanes: nothing is read where it does not hold.
    assert "if v5:\n            v6_0, v6_1, v6_2, v6_3 = vload4(" in source and "v6_3 = float32(1.0)" in source
    # Where rows of the first part start at odd places its loads are single ones.
    sample = SAMPLES["cat_pad"]
    strides = [(101, 1), (92, 1), (192, 1)]
    odd = plan_cuda(sample.program, strides, [(192, 1)], (64, 192), (100, 2, 60)).kernel
    assert [p.is_wide for p in odd.places] == [False, True, True, True] and "vload4(a0" not in render(odd)


def test_what_has_no_code_is_refused() -> None:
    builder = Builder(1)
    x = builder.load(builder.input(F32, 1), (dim(0),))
    builder.store(builder.output(F32, 1), (dim(0),), Expr("call", (x,), F32, "aten::lgamma"))
    with pytest.raises(NotRendered, match="the function aten::lgamma"):
        render(plan_cuda(builder.finish(), [(1,)], [(1,)], (4,)).kernel)
    with pytest.raises(NotRendered, match="values of complex64"):
        held(np.dtype("c8"))


def test_a_program_of_one_point() -> None:
    builder = Builder(0)
    builder.store(builder.output(F32, 0), (), builder.load(builder.input(F32, 0), ()))
    call = plan_cuda(builder.finish(), [()], [()], ())
    assert call.units == 1 and "o0[int32(0)] = v0" in render(call.kernel)


def test_masked_gathers_are_not_wide() -> None:
    builder = Builder(1)
    table, at = builder.input(F32, 1), builder.input(I64, 1)
    where = builder.load(at, (dim(0),))
    ok = scalar.apply("ge", where, scalar.const(0, I64))
    builder.store(builder.output(F32, 1), (dim(0),), builder.load(table, (value(where),), ok, 5.0))
    kernel = plan_cuda(builder.finish(), [(1,), (1,)], [(1,)], (64,)).kernel
    assert [p.is_wide for p in kernel.places] == [True, False, True] and kernel.tile.width == 2
    assert "a0[int64(v0_1 * ta0_0)] if v2_1 else float32(5.0)" in render(kernel)
