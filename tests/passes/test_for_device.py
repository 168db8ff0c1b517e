"""What is written out for a GPU: the same numbers as the operator's, and nothing of it left to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpujit.fuser.fuse import fuse
from gpujit.ir.graph import Graph
from gpujit.ir.verify import verify
from gpujit.passes import pipeline
from gpujit.passes.decompose.for_device import write_out_for_device
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.device_build import build_device
from gpujit.static_runtime.device_decide import DeviceDecisions
from gpujit.static_runtime.steps import Options
from gpujit.support.errors import OpError
from tests.static_runtime.device_help import graph_of
from tests.static_runtime.help import run_graph


def f(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def d(*shape: int) -> np.ndarray:
    return f(*shape).astype("f8")


def c(*shape: int, seed: int = 0) -> np.ndarray:
    return (f(*shape, seed=seed) + 1j * f(*shape, seed=seed + 9)).astype(np.complex64)


def with_edges(x: np.ndarray) -> np.ndarray:
    """Positions far outside, on the edges, and none at all."""
    x = x.copy()
    x.reshape(-1)[:12] = (-1, 1, 0, -3.5, 3.5, 1e6, -1e6, np.nan, -0.999, 0.999, 7, np.nan)
    return x


HANN = np.hanning(16).astype("f4") + np.float32(0.1)
SDPA = "aten::scaled_dot_product_attention"



def encoder(x: np.ndarray, mask: np.ndarray | None, kind: int | None, gelu: bool, first: bool) -> list[Any]:
    """The arguments of a layer of two heads of four numbers, and ten inside."""
    norms = [f(8, seed=k) for k in range(4)]
    return [
        x, 8, 2, f(24, 8), f(24), f(8, 8), f(8), gelu, first, 1e-5, *norms, f(10, 8), f(10), f(8, 10), f(8), mask, kind
    ]  # fmt: skip


def heads(mask: np.ndarray | None, kind: int | None, *sizes: int) -> list[Any]:
    tensors = [f(2, n, 8, seed=n) for n in sizes]
    return [*tensors, 8, 2, f(24, 8), f(24), f(8, 8), f(8), mask, False, True, kind]


HIDDEN = np.array([[0, 0, 1], [1, 1, 1]], bool)
LAYER, HEADS = "aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention"
# Positions of arguments that are constants, and what they are.
Case = tuple[str, list[Any]] | tuple[str, list[Any], tuple[int, ...]]
CASES: list[Case] = [
    ("aten::outer", [f(3), f(4)]),
    ("aten::ger", [np.arange(3), np.arange(2)]),
    ("aten::addr", [f(3, 4), f(3), f(4), 1, 0.5]),
    ("aten::cross", [f(2, 3), f(2, 3, seed=1), None]),
    ("aten::linalg_cross", [f(3, 4), f(3, 4, seed=1), 0]),
    ("aten::cdist", [f(2, 3, 5), f(4, 5, seed=1), 2.0, None]),
    ("aten::cdist", [d(3, 5), d(2, 5), 1.0, None]),
    ("aten::_grouped_mm", [f(7, 3), f(3, 3, 4), np.array([2, 2, 5], np.int32), None, None]),
    ("aten::_grouped_mm", [f(7, 3), f(2, 3, 4), np.array([3, 7], np.int32), None, None]),
    ("aten::einsum", ["i,d->id", [np.arange(3), f(4)], None]),
    ("aten::einsum", ["abc,bd -> dbac", [f(2, 3, 2), f(3, 4)], None]),
    ("aten::einsum", ["abc->cab", [f(2, 3, 4)], None]),
    ("aten::einsum", ["a,b,ca->bca", [f(2), f(3), f(4, 2)], None]),
    ("aten::einsum", [",a->a", [np.array(2.0, "f4"), f(3)], None]),
    (SDPA, [f(2, 4, 5, 8), f(2, 1, 6, 8), f(2, 1, 6, 8, seed=1), None, 0.0, False, None, False]),
    (SDPA, [f(2, 4, 5, 8), f(1, 4, 6, 8), f(4, 6, 3), f(2, 1, 5, 6) > 0, 0.0, False, 0.3, False]),
    (SDPA, [f(2, 2, 4, 5, 8), f(2, 2, 4, 6, 8), f(2, 1, 1, 6, 8), None, 0.0, True, None, False]),
    (SDPA, [f(2, 2, 4, 5, 8), f(2, 2, 4, 6, 8), f(2, 2, 4, 6, 8), f(2, 1, 5, 6), 0.0, False, None, False]),
    (SDPA, [f(2, 2, 4, 5, 8), f(2, 2, 4, 6, 8), f(2, 2, 4, 6, 8), f(5, 6), 0.0, False, None, False]),
    ("aten::roll", [f(3, 4), [5], []]),
    ("aten::rot90", [f(3, 4), 1, [0, 1]]),
    ("aten::rot90", [f(3, 4, 2), 3, [2, 0]]),
    ("aten::rot90", [f(3, 4), -2, [0, 1]]),
    ("aten::col2im", [f(2, 18, 9), [6, 6], [3, 3], [1, 1], [1, 1], [2, 2]]),
    ("aten::col2im", [f(6, 12), [5, 7], [2, 3], [2, 1], [0, 1], [1, 2]]),
    ("aten::diag", [f(4), 0]),
    ("aten::diag", [f(3), 2]),
    ("aten::diag", [f(3), -1]),
    ("aten::diag", [f(3, 5), 1]),
    ("aten::diag_embed", [f(2, 3), 0, -2, -1]),
    ("aten::diag_embed", [f(2, 3), -2, -2, -1]),
    ("aten::trace", [f(3, 5)]),
    ("aten::unfold_copy", [f(3, 9), 1, 3, 2]),
    ("aten::histc", [with_edges(f(40)), 5, -1.5, 1.0]),
    ("aten::histc", [np.array([0, 1, 2, 3, 3, 7, -1, 2], "f4"), 4, 0, 3]),
    ("aten::bucketize.Tensor", [with_edges(f(3, 6)), np.sort(f(5)), False, False]),
    ("aten::bucketize.Tensor", [np.array([0, 1, 2, 3]), np.array([0, 1, 1, 2]), True, True]),
    ("aten::searchsorted.Tensor", [np.sort(f(2, 5)), f(2, 3), False, False, None, None]),
    ("aten::searchsorted.Tensor", [np.array([0, 1, 1, 2]), np.array([[1, 2], [0, 3]]), False, False, "right", None]),
    ("aten::isin.Tensor_Tensor", [np.arange(6).reshape(2, 3), np.array([1, 4, 9]), False, False]),
    ("aten::isin.Tensor_Tensor", [np.arange(6), np.array([[1, 4]]), False, True]),
    ("aten::masked_scatter", [f(3, 4), f(3, 4, seed=1) > 0, f(20)]),
    ("aten::masked_scatter", [f(3, 4), f(4, seed=1) > 0, f(3, 4)]),
    ("aten::masked_scatter", [f(3, 4), np.zeros((3, 4), bool), f(1)]),
    ("aten::affine_grid_generator", [f(2, 2, 3), [2, 3, 4, 5], False]),
    ("aten::affine_grid_generator", [f(1, 3, 4), [1, 2, 3, 1, 2], True]),
    *(
        ("aten::grid_sampler", [f(2, 3, 5, 6), with_edges(f(2, 4, 3, 2)), mode, padding, align])
        for mode in range(3) for padding in range(3) for align in (False, True)
    ),
    *(
        ("aten::grid_sampler", [f(2, 3, 3, 4, 2), with_edges(f(2, 2, 4, 3, 3)), mode, padding, align])
        for mode in range(2) for padding in range(3) for align in (False, True)
    ),
    ("aten::grid_sampler_2d", [d(1, 1, 1, 3), d(1, 4, 3, 2), 0, 2, True]),
    (LAYER, encoder(f(2, 3, 8), None, None, False, False)),
    (LAYER, encoder(f(2, 3, 8), HIDDEN, 1, True, True)),
    (LAYER, encoder(f(2, 3, 8), np.triu(np.ones((3, 3), bool), 1), 0, True, False)),
    (LAYER, encoder(f(2, 3, 8), f(2, 1, 1, 3), None, False, True)),
    (HEADS, heads(None, None, 3, 5, 5)),
    (HEADS, heads(np.repeat(HIDDEN[:, None, None], 2, 1).repeat(4, 2), 2, 4, 3, 3)),
    # Complex numbers.
    ("aten::abs", [c(3, 4)]),
    ("aten::angle", [c(3, 4)]),
    ("aten::exp", [c(3, 4)]),
    ("aten::neg", [c(3, 4)]),
    ("aten::conj", [c(3, 4)]),
    ("aten::polar", [abs(f(3, 4)), f(4)]),
    ("aten::complex", [f(3, 4), f(3, 4, seed=1)]),
    ("aten::add.Tensor", [c(3, 4), c(4, seed=1), 2]),
    ("aten::sub.Tensor", [c(3, 4), c(1, seed=1), 1]),
    ("aten::mul.Tensor", [c(3, 4), c(4, seed=1)]),
    ("aten::mul.Tensor", [f(3, 4), c(3, 1, seed=1)]),
    ("aten::mul.Tensor", [c(3, 4), np.array(2 - 3j)], (1,)),
    ("aten::mul.Scalar", [c(3, 4), 2.5]),
    ("aten::div.Tensor", [c(3, 4), f(3, 1)]),
    ("aten::div.Scalar", [c(3, 4), 2.5]),
    *(("aten::fft_rfft", [f(3, 16), *rest]) for rest in ((None, -1, None), (9, 0, "ortho"), (20, 1, "forward"))),
    *(("aten::fft_irfft", [c(3, 9), *rest]) for rest in ((None, -1, None), (9, 0, "ortho"), (21, 1, None))),
    ("aten::fft_fft", [f(3, 7), None, -1, None]),
    ("aten::fft_fft", [c(2, 3, 7), 5, 1, "ortho"]),
    ("aten::fft_ifft", [c(5), None, 0, None]),
    ("aten::fft_hfft", [c(3, 5), None, -1, None]),
    ("aten::fft_ihfft", [f(3, 6), None, -1, "ortho"]),
    ("aten::fft_fftn", [f(3, 4, 5), None, None, None]),
    ("aten::fft_fft2", [c(3, 4, 5), [3, 6], [-2, -1], "ortho"]),
    ("aten::fft_ifft2", [c(3, 4), None, [-2, -1], None]),
    ("aten::fft_rfftn", [d(3, 4, 5), [2, -1], None, None]),
    ("aten::fft_rfft2", [f(3, 4, 5), None, [0, 2], None]),
    ("aten::fft_irfftn", [c(3, 4, 5), [4, 7], [0, 2], "forward"]),
    ("aten::stft.center", [f(2, 80), 16, 8, 16, HANN, True, "reflect", False, True, True, None]),
    ("aten::stft.center", [f(70), 16, 5, 10, HANN[:10], True, "constant", True, None, True, None]),
    ("aten::stft.center", [d(70), 16, None, None, None, True, "replicate", False, False, True, None]),
    ("aten::stft", [f(2, 80), 16, 8, 12, None, False, True, False, None]),
    ("aten::istft", [c(2, 9, 5), 16, 4, 16, HANN, True, False, True, None, False], (4,)),
    ("aten::istft", [c(9, 6), 16, 5, 12, HANN[:12], True, True, None, 20, False], (4,)),
    ("aten::istft", [c(9, 6), 16, 4, None, None, True, False, None, 40, False]),
]  # fmt: skip


def graph_for(number: int) -> tuple[Graph, list[np.ndarray]]:
    """The graph of a case, with its first result alone."""
    name, arguments, *constants = CASES[number]
    graph, _, given = graph_of(name, arguments, *constants)
    for k in reversed(range(1, len(graph.outputs))):
        graph.block.return_node.remove_input(k)
    return graph, given


@pytest.mark.parametrize("number", range(len(CASES)))
def test_the_operator_and_its_parts(number: int) -> None:
    name = CASES[number][0]
    graph, given = graph_for(number)
    want = run_graph(graph, given)
    before = graph.outputs[0].type
    assert write_out_for_device(graph), name
    verify(graph)
    assert not write_out_for_device(graph)
    got = run_graph(graph, given)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    after = graph.outputs[0].type
    assert before.shape is None or (after.dtype, after.shape) == (before.dtype, before.shape)
    tolerance = 1e-12 if want.dtype in ("f8", "c16") else 2e-5
    largest = abs(np.nan_to_num(want)).max(initial=0)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * (1 + largest))
    # Whole numbers are the very same.
    if want.dtype.kind in "bi" or name.endswith("histc"):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_nothing_is_left_to_the_host(number: int) -> None:
    graph, _ = graph_for(number)
    pipeline.run(graph, "on_device")
    fused = fuse(graph)
    plan = build_device(DeviceDecisions(graph, fused.programs, Lowerer(np), Options()))
    left = {n.kind: reason for n, reason in plan.host.items() if n.kind.startswith(("aten::", "prim::Fusion"))}
    assert not left


LEFT: list[Case] = [
    ("aten::outer", [f(3), f(2, 4)]),
    ("aten::cdist", [f(3, 4), f(2, 4), 3.0, None]),
    ("aten::cdist", [f(0, 4), f(2, 4), 2.0, None]),
    ("aten::_grouped_mm", [f(3, 4), f(4, 6), np.array([2, 4], np.int32), None, None]),
    ("aten::einsum", ["ij,jk->ik", [f(2, 3), f(3, 4)], None]),
    (SDPA, [f(2, 4, 5, 8), f(2, 4, 6, 8), f(2, 4, 6, 8), None, 0.0, False, None, False]),
    (SDPA, [f(2, 4, 5, 8), f(2, 2, 6, 8), f(2, 2, 6, 8), None, 0.0, False, None, True]),
    ("aten::roll", [f(3, 4), [1], [0]]),
    ("aten::histc", [f(40), 5, 0, 0]),
    ("aten::masked_scatter", [f(4), f(3, 4) > 0, f(20)]),
    ("aten::grid_sampler", [f(2, 3, 0, 6)[:, :, :, :], f(2, 4, 3, 2), 0, 0, False]),
    ("aten::abs", [f(3, 4)]),
    ("aten::div.Tensor", [c(3, 4), c(3, 4)]),
    ("aten::mul.Tensor", [c(3, 4), d(3, 4)]),
    ("aten::fft_rfft", [np.zeros((1, 1 << 13), "f4"), None, -1, None]),
    ("aten::fft_rfft", [f(3, 16), None, -1, "none"]),
    ("aten::istft", [c(2, 9, 5), 16, 4, 16, HANN, True, False, True, None, False]),
    ("aten::istft", [c(2, 9, 5), 16, 4, 16, np.zeros(16, "f4"), True, False, True, None, False], (4,)),
    # Somebody reads the probabilities.
    (HEADS, heads(None, None, 3, 3, 3)),
    (LAYER, encoder(f(2, 3, 8), np.zeros((3, 2), bool), 0, False, False)),
    ("aten::stft.center", [f(2, 6), 16, 8, 16, HANN, True, "reflect", False, True, True, None]),
]


@pytest.mark.parametrize("number", range(len(LEFT)))
def test_what_stays_in_one_piece(number: int) -> None:
    """Where it is a kernel's already, would take too much, or is refused by the operator, which says why."""
    name, arguments, *constants = LEFT[number]
    try:
        graph, _, _ = graph_of(name, arguments, *constants)
    except OpError:
        pytest.skip("no type rule takes it")
    before = [n.kind for n in graph.all_nodes()]
    assert not write_out_for_device(graph)
    assert [n.kind for n in graph.all_nodes()] == before


def test_a_mask_with_more_places_than_the_source_has_elements() -> None:
    graph, _, given = graph_of("aten::masked_scatter", [f(4), np.ones(4, bool), f(3)])
    with pytest.raises(OpError):
        run_graph(graph, given)
    assert write_out_for_device(graph)
    with pytest.raises(OpError):
        run_graph(graph, given)
