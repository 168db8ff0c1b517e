"""Dropout inside other operators, attention and recurrent layers: what is dropped, and PyTorch's draws."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import ops
from gpujit.ir.parser import parse_graph
from gpujit.ops import table
from gpujit.passes.analysis.effects import is_deterministic, is_pure
from gpujit.support.errors import OpError
from tests.ops.check import run

SDPA = "aten::scaled_dot_product_attention"
MATH = "aten::_scaled_dot_product_attention_math"
FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"
P = 0.4


def make(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers of about half unit size."""
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * 0.5).astype(np.float32)


def test_probabilities_of_attention_are_dropped() -> None:
    q, k, v = make(2, 3, 4, 8), make(2, 3, 5, 8, seed=1), make(2, 3, 5, 6, seed=2)
    weights = run(MATH, q, k, v)[1]
    gpujit.manual_seed(7)
    kept = ops.dropout(weights, P, True)
    for _ in range(2):
        gpujit.manual_seed(7)
        np.testing.assert_allclose(run(SDPA, q, k, v, None, P), kept @ v, atol=1e-6)
    gpujit.manual_seed(7)
    y, shown = run(MATH, q, k, v, None, P)
    np.testing.assert_allclose(y, kept @ v, atol=1e-6)
    np.testing.assert_array_equal(shown, kept)
    assert not run(SDPA, q, k, v, None, 1.0).any()


def test_a_given_mask_drops() -> None:
    q, k, v = make(2, 4, 8), make(2, 5, 8, seed=1), make(2, 5, 6, seed=2)
    keep = np.random.default_rng(0).random((2, 4, 5)) > P
    weights = run(MATH, q, k, v)[1]
    y, shown = run(MATH, q, k, v, None, P, False, keep)
    np.testing.assert_array_equal(shown, weights * keep)
    np.testing.assert_allclose(y, (weights * keep) @ v / (1 - P), atol=1e-6)
    np.testing.assert_array_equal(run(MATH, q, k, v, None, 0.0, False, keep)[1], weights)


RECURRENT = {
    "lstm": (4, lambda h: [h, h * 0.5]),
    "gru": (3, lambda h: h),
    "rnn_tanh": (1, lambda h: h),
    "rnn_relu": (1, lambda h: h),
}


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("directions", [1, 2])
def test_what_goes_between_layers_is_dropped(name: str, directions: int) -> None:
    gates, states = RECURRENT[name]
    x, h, width = make(5, 2, 4), make(3 * directions, 2, 6), 6 * directions
    params: list[list[np.ndarray]] = []
    for k in range(3):
        size = 4 if k == 0 else width
        params.append(
            [
                w
                for d in range(directions)
                for w in (make(6 * gates, size, seed=k + d), make(6 * gates, 6, seed=9 + k + d))
            ]
        )
    flat = [w for layer in params for w in layer]
    rest = (P, True, directions == 2)
    gpujit.manual_seed(3)
    y, *final = run(f"aten::{name}.input", x, states(h), flat, False, 3, *rest, False)
    gpujit.manual_seed(3)
    packed = run(f"aten::{name}.data", x.reshape(10, 4), np.full(5, 2), states(h), flat, False, 3, *rest)
    np.testing.assert_array_equal(packed[0].reshape(y.shape), y)
    gpujit.manual_seed(3)
    step = x
    for k in range(3):
        own = states(h[k * directions : (k + 1) * directions])
        step, *last = run(f"aten::{name}.input", step, own, params[k], False, 1, *rest, False)
        for a, b in zip(last, final, strict=True):
            np.testing.assert_allclose(a, b[k * directions : (k + 1) * directions], atol=1e-6)
        if k < 2:
            step = ops.dropout(step, P, True)
    np.testing.assert_allclose(step, y, atol=1e-6)
    again = run(f"aten::{name}.input", x, states(h), flat, False, 3, P, False, directions == 2, False)[0]
    assert not np.array_equal(again, y)


@pytest.mark.parametrize(
    ("call", "draws"),
    [
        ("%y : Tensor = aten::scaled_dot_product_attention(%x, %x, %x, %n, %p, %no, %n, %no)", True),
        ("%y : Tensor = aten::scaled_dot_product_attention(%x, %x, %x, %n, %zero, %no, %n, %no)", False),
        ("%y : Tensor, %h : Tensor = aten::gru(%x, %x, %l, %no, %i, %p, %yes, %no, %no)", True),
        ("%y : Tensor, %h : Tensor = aten::gru(%x, %x, %l, %no, %i, %p, %no, %no, %no)", False),
        ("%y : Tensor, %h : Tensor = aten::gru(%x, %x, %l, %no, %i, %zero, %yes, %no, %no)", False),
    ],
)
def test_only_what_drops_draws(call: str, draws: bool) -> None:
    graph = parse_graph(
        f"""graph(%x : Tensor, %l : Tensor[]):
  %p : float = prim::Constant[value=0.5]()
  %zero : float = prim::Constant[value=0.]()
  %no : bool = prim::Constant[value=0]()
  %yes : bool = prim::Constant[value=1]()
  %n : NoneType = prim::Constant()
  %i : int = prim::Constant[value=2]()
  {call}
  return (%y)"""
    )
    node = list(graph.nodes)[-1]
    assert is_pure(node) is is_deterministic(node) is not draws


@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_probabilities_outside_of_the_range(p: float) -> None:
    with pytest.raises(OpError, match=rf"dropout must lie in \[0, 1\], found {p}"):
        run(SDPA, *[make(1, 2, 3)] * 3, None, p)


def test_flash_attention_drops_nothing() -> None:
    with pytest.raises(OpError, match="dropout_p must be 0"):
        run(FLASH, *[make(1, 1, 2, 3)] * 3, 0.5)


def test_attributes_that_switch_draws_are_arguments() -> None:
    for op in table.registered():
        for name in op.active_if:
            op.schema.index_of(name)


# ------------------------------------------------------------------------------------------------ PyTorch's draws


def attention_cases(torch: Any) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions with dropout inside attention, and their inputs."""
    sdpa = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (torch.from_numpy(make(2, 4, n, 8, seed=i)) for i, n in enumerate((7, 9, 9)))
    mask = torch.from_numpy(make(7, 9))
    mha = torch.nn.MultiheadAttention(8, 2, dropout=P).requires_grad_(False)
    return {
        "plain": (lambda q, k, v: sdpa(q, k, v, dropout_p=P), (q, k, v)),
        "causal": (lambda q, k, v: sdpa(q * 2, k, v, dropout_p=P, is_causal=True) + 1, (q, k, v)),
        "all": (lambda q, k, v: sdpa(q, k, v, dropout_p=1.0), (q, k, v)),
        "added": (lambda q, k, v, m: sdpa(q, k, v, m, dropout_p=P), (q, k, v, mask)),
        "hidden": (lambda q, k, v, m: sdpa(q, k, v, m > 0, dropout_p=P), (q, k, v, mask)),
        "groups": (lambda q, k, v: sdpa(q, k[:, :2], v[:, :2], dropout_p=P, enable_gqa=True), (q, k, v)),
        "multi-head": (lambda x: mha(x, x, x), (torch.from_numpy(make(5, 3, 8)),)),
    }


def layer_cases(torch: Any) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Recurrent layers with dropout between them, and their inputs."""
    x = torch.from_numpy(make(5, 3, 6))
    found: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
    for name in ("LSTM", "GRU", "RNN"):
        for first in (False, True):
            for both in (False, True):
                layer = getattr(torch.nn, name)(6, 7, 3, dropout=P, batch_first=first, bidirectional=both)
                layer.requires_grad_(False)
                found[f"{name} {first} {both}"] = (lambda x, layer=layer: layer(x)[0], (x,))
    return found


def same_draws(torch: Any, f: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """What is traced of ``f`` must give PyTorch's numbers for equal seeds, interpreted and planned, call after call."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sizes that its layers check
        traced = torch.jit.trace(f, args, check_trace=False)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    module = gpujit.load(file)
    arrays = [x.numpy() for x in args]
    for run_ in (module, gpujit.optimize_for_inference(module, example_inputs=tuple(arrays))):
        torch.manual_seed(5)
        gpujit.manual_seed(5)
        for _ in range(3):
            want, got = traced(*args), run_(*arrays)
            pairs = zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]
            for a, b in pairs:
                np.testing.assert_allclose(b, a.detach().numpy(), atol=1e-5)
        assert float(gpujit.ops.rand([])) == float(torch.rand(()))


@pytest.mark.torch
def test_attention_has_pytorchs_draws() -> None:
    torch = pytest.importorskip("torch")
    for f, args in attention_cases(torch).values():
        same_draws(torch, f, args)


@pytest.mark.torch
def test_recurrent_layers_have_pytorchs_draws() -> None:
    torch = pytest.importorskip("torch")
    for f, args in layer_cases(torch).values():
        same_draws(torch, f, args)
