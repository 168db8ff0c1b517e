"""Recurrent layers against one step after the other by the equations, and against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpujit.ops.families.layers.rnn  # noqa: F401  declares the entries
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, run

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def make(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Small numbers, so that states neither saturate nor grow."""
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * 0.3).astype(dtype)


def parameters(
    kind: str, size: int, hidden: int, layers: int, directions: int, biases: bool, project: int = 0
) -> list[Any]:
    """Weights of all layers in PyTorch's order."""
    found: list[Any] = []
    rows, out = GATES[kind] * hidden, project or hidden
    for layer in range(layers):
        for d in range(directions):
            seed = 10 * layer + d
            found += [make(rows, size, seed=seed), make(rows, out, seed=seed)]
            if biases:
                found += [make(rows, seed=seed), make(rows, seed=seed + 1)]
            if project:
                found.append(make(project, hidden, seed=seed))
        size = directions * out
    return found


def states(kind: str, layers: int, batch: int, hidden: int, project: int = 0) -> Any:
    if kind == "lstm":
        return [make(layers, batch, project or hidden), make(layers, batch, hidden, seed=7)]
    return make(layers, batch, hidden)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def step(kind: str, x: Any, h: Any, c: Any, w: list[Any]) -> tuple[Any, Any]:
    """One step by the equations, in float64."""
    w_ih, w_hh, b_ih, b_hh = (v.astype(np.float64) for v in w)
    a, b = x @ w_ih.T + b_ih, h @ w_hh.T + b_hh
    if kind == "lstm":
        i, f, g, o = np.split(a + b, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    if kind == "gru":
        (ar, az, an), (br, bz, bn) = np.split(a, 3, axis=-1), np.split(b, 3, axis=-1)
        z = sigmoid(az + bz)
        return (1 - z) * np.tanh(an + sigmoid(ar + br) * bn) + z * h, c
    return (np.tanh(a + b) if kind == "rnn_tanh" else np.maximum(a + b, 0)), c


@pytest.mark.parametrize("kind", GATES)
def test_equations(kind: str) -> None:
    x, w, h = make(3, 2, 4), parameters(kind, 4, 5, 1, 1, True), states(kind, 1, 2, 5)
    before = [v.copy() for v in (h if kind == "lstm" else [h])]
    got = run(f"aten::{kind}.input", x, h, w, True, 1, 0.0, False, False, False)
    hidden, cell = before[0][0].astype(np.float64), before[-1][0].astype(np.float64)
    for t in range(3):
        hidden, cell = step(kind, x[t].astype(np.float64), hidden, cell, w)
        np.testing.assert_allclose(got[0][t], hidden, atol=1e-6)
    np.testing.assert_allclose(got[1][0], hidden, atol=1e-6)
    if kind == "lstm":
        np.testing.assert_allclose(got[2][0], cell, atol=1e-6)
    # The states handed in stay as they were.
    for v, b in zip(h if kind == "lstm" else [h], before, strict=True):
        np.testing.assert_array_equal(v, b)
    single = run(f"aten::{kind}_cell", x[0], [v[0] for v in h] if kind == "lstm" else h[0], *w)
    np.testing.assert_allclose(single[0] if kind == "lstm" else single, got[0][0], atol=1e-6)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 1), (2, 2)])
def test_layers_against_torch(kind: str, biases: bool, batch_first: bool, layers: int, directions: int) -> None:
    x = make(3, 5, 4) if batch_first else make(5, 3, 4)
    h, w = states(kind, layers * directions, 3, 6), parameters(kind, 4, 6, layers, directions, biases)
    against_torch(f"aten::{kind}.input", x, h, w, biases, layers, 0.0, False, directions == 2, batch_first)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("directions", [1, 2])
def test_projections_against_torch(biases: bool, directions: int) -> None:
    w, h = parameters("lstm", 4, 6, 2, directions, biases, 3), states("lstm", 2 * directions, 3, 6, 3)
    against_torch("aten::lstm.input", make(5, 3, 4), h, w, biases, 2, 0.0, False, directions == 2, False)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("directions", [1, 2])
def test_packed_sequences_against_torch(kind: str, directions: int) -> None:
    h, w = states(kind, 2 * directions, 3, 6), parameters(kind, 4, 6, 2, directions, True)
    sizes = np.array([3, 3, 2, 1])
    against_torch(f"aten::{kind}.data", make(9, 4), sizes, h, w, True, 2, 0.0, False, directions == 2)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cells_against_torch(kind: str, biases: bool, dtype: Any) -> None:
    rows = GATES[kind] * 6
    h = [make(2, 6, dtype=dtype), make(2, 6, dtype=dtype, seed=1)] if kind == "lstm" else make(2, 6, dtype=dtype)
    b = (make(rows, dtype=dtype), make(rows, dtype=dtype, seed=1)) if biases else ()
    against_torch(
        f"aten::{kind}_cell", make(2, 4, dtype=dtype), h, make(rows, 4, dtype=dtype), make(rows, 6, dtype=dtype), *b
    )


def test_saturated_gates_stay_finite() -> None:
    w = [np.full((8, 1), s, np.float32) for s in (1e4,)] + [np.zeros((8, 2), np.float32)]
    for sign in (1, -1):
        h, c = run("aten::lstm_cell", np.full((1, 1), sign, np.float32), [np.ones((1, 2), np.float32)] * 2, *w)
        np.testing.assert_allclose(h, np.full((1, 2), np.tanh(2.0) if sign > 0 else 0), atol=1e-6)
        np.testing.assert_allclose(c, np.full((1, 2), 2.0 if sign > 0 else 0), atol=1e-6)


def test_half_precision_layers_return_it() -> None:
    w = [v.astype(np.float16) for v in parameters("gru", 4, 5, 1, 1, True)]
    y, h = run(
        "aten::gru.input",
        make(3, 2, 4, dtype=np.float16),
        make(1, 2, 5, dtype=np.float16),
        w,
        True,
        1,
        0.0,
        False,
        False,
        False,
    )
    wide, _ = run(
        "aten::gru.input",
        make(3, 2, 4),
        make(1, 2, 5),
        parameters("gru", 4, 5, 1, 1, True),
        True,
        1,
        0.0,
        False,
        False,
        False,
    )
    assert y.dtype == h.dtype == np.float16
    np.testing.assert_allclose(y.astype(np.float32), wide, atol=2e-3)


@pytest.mark.parametrize("batch_first", [False, True])
def test_packing_keeps_rows_step_by_step(batch_first: bool) -> None:
    x = np.arange(12.0).reshape(3, 2, 2)
    data, sizes = run(
        "aten::_pack_padded_sequence", x.swapaxes(0, 1) if batch_first else x, np.array([3, 1]), batch_first
    )
    np.testing.assert_array_equal(data, np.array([x[0, 0], x[0, 1], x[1, 0], x[2, 0]]))
    np.testing.assert_array_equal(sizes, [2, 1, 1])
    padded, lengths = run("aten::_pad_packed_sequence", data, sizes, batch_first, -1.0, 4)
    np.testing.assert_array_equal(lengths, [3, 1])
    y = padded.swapaxes(0, 1) if batch_first else padded
    assert y.shape == (4, 2, 2)
    np.testing.assert_array_equal(y[:3, 0], x[:, 0])
    np.testing.assert_array_equal(y[1:, 1], np.full((3, 2), -1.0))
    against_torch("aten::_pack_padded_sequence", make(4, 3, 2), np.array([4, 2, 1]), False)
    against_torch("aten::_pad_packed_sequence", make(7, 2), np.array([3, 2, 1, 1]), batch_first, 0.5, -1)


W = parameters("lstm", 4, 6, 1, 1, True)


@pytest.mark.parametrize(
    ("name", "args", "error", "text"),
    [
        (
            "aten::lstm.input",
            (make(2, 4), states("lstm", 1, 2, 6), W, True, 1, 0.0, False, False, False),
            ShapeError,
            "3 dim",
        ),
        (
            "aten::lstm.input",
            (make(0, 2, 4), states("lstm", 1, 2, 6), W, True, 1, 0.0, False, False, False),
            ShapeError,
            "length",
        ),
        (
            "aten::lstm.input",
            (make(5, 2, 3), states("lstm", 1, 2, 6), W, True, 1, 0.0, False, False, False),
            ShapeError,
            "features",
        ),
        (
            "aten::lstm.input",
            (make(5, 2, 4), states("lstm", 1, 1, 6), W, True, 1, 0.0, False, False, False),
            ShapeError,
            "batch",
        ),
        (
            "aten::lstm.input",
            (make(5, 2, 4), states("lstm", 2, 2, 6), W, True, 1, 0.0, False, False, False),
            ShapeError,
            "state",
        ),
        (
            "aten::lstm.input",
            (make(5, 2, 4), states("lstm", 2, 2, 6), W, True, 2, 0.0, False, False, False),
            OpError,
            "parameters",
        ),
        (
            "aten::lstm.input",
            (make(5, 2, 4, dtype=np.float64), states("lstm", 1, 2, 6), W, True, 1, 0.0, False, False, False),
            DTypeError,
            "float64",
        ),
        (
            "aten::lstm.data",
            (make(5, 4), np.array([2, 2]), states("lstm", 1, 2, 6), W, True, 1, 0.0, False, False),
            ShapeError,
            "5",
        ),
        (
            "aten::lstm.data",
            (make(3, 4), np.array([1, 2]), states("lstm", 1, 2, 6), W, True, 1, 0.0, False, False),
            ShapeError,
            "grow",
        ),
        ("aten::lstm_cell", (make(2, 3), [make(2, 6)] * 2, *W), ShapeError, "does not fit"),
        ("aten::lstm_cell", (make(2, 4), [make(2, 6)], *W), OpError, "hx"),
        ("aten::_pack_padded_sequence", (make(4, 2, 3), np.array([1, 4]), False), ShapeError, "decreasing"),
        ("aten::_pack_padded_sequence", (make(4, 2, 3), np.array([4, 0]), False), ShapeError, "larger than 0"),
        ("aten::_pack_padded_sequence", (make(4, 2, 3), np.array([5, 1]), False), ShapeError, "exceeds"),
        ("aten::_pad_packed_sequence", (make(3, 2), np.array([2, 1]), False, 0, 1), ShapeError, "total_length"),
    ],
)
def test_errors(name: str, args: tuple[Any, ...], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        run(name, *args)
