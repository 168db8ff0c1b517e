"""The recurrent template against float64 loops and the operators' own kernels: tails, layouts, layers, directions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.kernels.templates import rnn
from gpujit.kernels.templates.rnn import Layer, Rnn, bind, pack, plan
from gpujit.kernels.templates.rnn_code import GATES, render
from gpujit.ops import table
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError


def numbers(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)


def parameters(
    rng: np.random.Generator, kind: str, inputs: int, size: int, layers: int, directions: int, has_biases: bool
) -> list[list[np.ndarray]]:
    """Weights for each direction of each layer, small enough that states do not depend on them chaotically."""
    rows, scale = GATES[kind] * size, size**-0.5
    found = []
    for k in range(layers * directions):
        depth = inputs if k < directions else directions * size
        found.append([numbers(rng, rows, depth, scale=scale), numbers(rng, rows, size, scale=scale)])
        found[-1] += [numbers(rng, rows, scale=scale) for _ in range(2)] if has_biases else []
    return found


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def reference(kind: str, x: np.ndarray, h: np.ndarray, c: np.ndarray, groups: list[list[np.ndarray]], d: int) -> list:
    """Sequence and last states in float64, ``x`` being [T, B, inputs]."""
    h, c = h.astype(np.float64), c.astype(np.float64)
    rows = x.astype(np.float64)
    for layer in range(len(groups) // d):
        found = []
        for direction in range(d):
            k = layer * d + direction
            w_ih, w_hh, *biases = (w.astype(np.float64) for w in groups[k])
            b_ih, b_hh = biases or (0.0, 0.0)
            made = []
            for row in rows[::-1] if direction else rows:
                ours, theirs = row @ w_ih.T + b_ih, h[k] @ w_hh.T + b_hh
                if kind == "lstm":
                    i, f, g, o = np.split(ours + theirs, 4, 1)
                    c[k] = sigmoid(f) * c[k] + sigmoid(i) * np.tanh(g)
                    h[k] = sigmoid(o) * np.tanh(c[k])
                else:
                    (r, z, n), (hr, hz, hn) = np.split(ours, 3, 1), np.split(theirs, 3, 1)
                    update = sigmoid(z + hz)
                    h[k] = (1 - update) * np.tanh(n + sigmoid(r + hr) * hn) + update * h[k]
                made.append(h[k].copy())
            found.append(np.stack(made[::-1] if direction else made))
        rows = np.concatenate(found, 2)
    return [rows, h, c] if kind == "lstm" else [rows, h]


def check(
    kind: str,
    steps: int,
    batch: int,
    inputs: int,
    size: int,
    layers: int = 1,
    directions: int = 1,
    has_biases: bool = True,
    batch_first: bool = False,
    threads: int = 1,
) -> None:
    rng = np.random.default_rng(steps + batch)
    groups = parameters(rng, kind, inputs, size, layers, directions, has_biases)
    shape, width = (batch, steps) if batch_first else (steps, batch), directions * size
    x = numbers(rng, *shape, inputs)
    h, c = (numbers(rng, layers * directions, batch, size) for _ in range(2))
    # Rows of NaN round the results show whether anything is written outside.
    rooms = [np.full((n + 2, size), np.nan, np.float32) for n in (batch * steps * directions, *[h.size // size] * 2)]
    y, hn, cn = (room[1:-1].reshape(s) for room, s in zip(rooms, ((*shape, width), h.shape, c.shape), strict=True))

    def strides(features: int) -> tuple[int, int]:
        return (features, steps * features) if batch_first else (batch * features, features)

    whole = (batch * size, size)
    described = Rnn(kind, steps, batch, size, layers, directions, (*strides(inputs), 1), whole, whole, strides(width))
    given_h, given_c = h.copy(), c.copy()
    kernel = bind(described, [Layer(*g) for g in groups], threads=threads)
    assert bool(kernel.rounds) == plan(described, threads).is_divided == (threads > 1)
    if kind == "lstm":
        kernel(x, h, c, y, hn, cn)
    else:
        kernel(x, h, y, hn)
    got = [y, hn, cn] if kind == "lstm" else [y, hn]
    turned = x.swapaxes(0, 1) if batch_first else x
    wanted = reference(kind, turned, h, c, groups, directions)
    wanted[0] = wanted[0].swapaxes(0, 1) if batch_first else wanted[0]
    op = table.by_full_name(f"aten::{kind}.input")
    assert op is not None
    hx = [h, c] if kind == "lstm" else h
    flat = [w for g in groups for w in g]
    known = op.kernel(np)(x, hx, flat, has_biases, layers, 0.0, False, directions == 2, batch_first)
    for found, exact, usual in zip(got, wanted, known, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found, usual, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(h, given_h)
    np.testing.assert_array_equal(c, given_c)
    for room in rooms[: len(got)]:
        assert np.isnan(room[[0, -1]]).all() and not np.isnan(room[1:-1]).any()


SIZES = st.integers(1, 40)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(sorted(GATES)), st.integers(1, 9), st.integers(1, 14), SIZES, SIZES, st.integers(1, 3),
    st.integers(1, 2), st.booleans(), st.booleans(),
)  # fmt: skip
def test_any_size(
    kind: str, steps: int, batch: int, inputs: int, size: int, layers: int, directions: int, bias: bool, first: bool
) -> None:
    check(kind, steps, batch, inputs, size, layers, directions, bias, first)


@pytest.mark.parametrize("kind", GATES)
def test_gates_of_few_steps_at_a_time(kind: str) -> None:
    # Three lots of time steps, the last one short, from both ends.
    check(kind, 61, 26, 5, 48, 2, 2)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("threads", [1, 3])
def test_the_team_shares_a_batch(kind: str, threads: int) -> None:
    with config(threads=threads):
        check(kind, 8, 64, 24, 64, 2, 2)


@pytest.fixture
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small layers are divided, too."""
    monkeypatch.setattr(rnn, "WORTH_A_ROUND", 0)


@pytest.mark.usefixtures("worth_it")
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("kind", GATES)
def test_the_team_shares_the_units_of_few_sequences(kind: str, threads: int) -> None:
    """Whoever runs it: plans are made for some number of threads, and run by another."""
    with config(threads=threads, simd_width=4):
        check(kind, 1, 1, 5, 16, threads=2)
        check(kind, 9, 1, 7, 29, 3, 2, threads=2)
        check(kind, 7, 3, 5, 50, 2, 2, has_biases=False, batch_first=True, threads=3)


@pytest.mark.usefixtures("worth_it")
@pytest.mark.parametrize("kind", GATES)
def test_rounds_of_several_lots(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rnn, "AHEAD", 1)
    monkeypatch.setattr(rnn, "FEWEST_ROWS", 4)
    with config(threads=2, simd_width=4):
        check(kind, 11, 1, 6, 16, 2, 2, threads=2)


@pytest.mark.usefixtures("worth_it")
def test_numbers_do_not_depend_on_the_division() -> None:
    rng = np.random.default_rng(3)
    groups = parameters(rng, "lstm", 12, 64, 2, 1, True)
    x, h, c = numbers(rng, 6, 1, 12), numbers(rng, 2, 1, 64), numbers(rng, 2, 1, 64)
    described = Rnn("lstm", 6, 1, 64, 2, 1, (12, 12, 1), (64, 64), (64, 64), (64, 64))
    found = []
    with config(threads=2, simd_width=4):
        for threads in (1, 2):
            y, hn, cn = np.empty((6, 1, 64), np.float32), np.empty_like(h), np.empty_like(c)
            bind(described, [Layer(*g) for g in groups], threads=threads)(x, h, c, y, hn, cn)
            found.append([y, hn, cn])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_not_worth_dividing() -> None:
    described = Rnn("lstm", 5, 1, 256, 1, 1, (8, 8, 1), (256, 256), (256, 256), (256, 256))
    assert plan(described, 2).is_divided and not plan(described, 1).is_divided
    # Little work in a step, many sequences, more steps than may have a block each.
    assert not plan(described._replace(size=64), 2).is_divided
    assert not plan(described._replace(batch=64), 2).is_divided
    assert not plan(described._replace(steps=5000), 2).is_divided


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("kind", GATES)
def test_narrower_vectors(kind: str, width: int) -> None:
    with config(simd_width=width):
        check(kind, 3, 5, 7, 21, 2)


@pytest.mark.parametrize("kind", GATES)
def test_large_gates_saturate(kind: str) -> None:
    rng = np.random.default_rng(0)
    (group,) = parameters(rng, kind, 4, 8, 1, 1, True)
    x = numbers(rng, 5, 2, 4, scale=1e4)
    state = numbers(rng, 1, 2, 8)
    y, hn, cn = np.empty((5, 2, 8), np.float32), np.empty_like(state), np.empty_like(state)
    kernel = bind(Rnn(kind, 5, 2, 8, 1, 1, (8, 4, 1), (16, 8), (16, 8), (16, 8)), [Layer(*group)])
    kernel(x, *([state, state, y, hn, cn] if kind == "lstm" else [state, y, hn]))
    with np.errstate(over="ignore"):
        wanted = reference(kind, x, state, state, [group], 1)
    np.testing.assert_allclose(y, wanted[0], rtol=1e-4, atol=1e-5)
    x[2, 1, 0] = np.nan
    kernel(x, *([state, state, y, hn, cn] if kind == "lstm" else [state, y, hn]))
    assert np.isnan(y[2:, 1]).all() and not np.isnan(y[:2]).any() and not np.isnan(y[:, 0]).any()


@pytest.mark.parametrize("kind", GATES)
def test_only_the_last_states(kind: str) -> None:
    rng = np.random.default_rng(1)
    groups = parameters(rng, kind, 6, 10, 2, 1, True)
    x, h, c = numbers(rng, 4, 3, 6), numbers(rng, 2, 3, 10), numbers(rng, 2, 3, 10)
    hn, cn = np.empty_like(h), np.empty_like(c)
    kernel = bind(Rnn(kind, 4, 3, 10, 2, 1, (18, 6, 1), (30, 10), (30, 10)), [Layer(*g) for g in groups])
    kernel(x, *([h, c, hn, cn] if kind == "lstm" else [h, hn]))
    wanted = reference(kind, x, h, c, groups, 1)[1:]
    for found, exact in zip((hn, cn), wanted, strict=False):
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)


def test_packed_weights_hold_all_gates_of_some_units() -> None:
    w = np.arange(24, dtype=np.float32).reshape(12, 2)
    packed, where = pack("lstm", [Layer(w, np.ones((12, 3), np.float32))], 4)
    inputs, hidden, bias, new_bias, depth = where[0]
    assert (inputs, hidden, bias, new_bias, depth) == (0, 32, 32 + 48, 96, 2)
    tile = packed[:32].reshape(2, 4, 4)
    np.testing.assert_array_equal(tile[:, :, :3], w.reshape(4, 3, 2).transpose(2, 0, 1))
    assert not tile[:, :, 3].any() and not packed[bias:].any()


def test_equal_layers_have_equal_code() -> None:
    described = Rnn("gru", 3, 2, 16, 1, 1, (8, 4, 1), (32, 16), y=(32, 16))
    assert render(plan(described)) == render(plan(described._replace(layers=2)))


def test_impossible_layers() -> None:
    w, state = np.zeros((32, 4), np.float32), (16, 8)
    usual = Rnn("lstm", 3, 2, 8, 1, 1, (8, 4, 1), state, state, state)
    layer = Layer(w, np.zeros((32, 8), np.float32))
    with pytest.raises(ArgumentError, match="there are lstm, gru"):
        plan(usual._replace(kind="rnn"))
    with pytest.raises(ArgumentError, match="0 steps of 2 sequences"):
        plan(usual._replace(steps=0))
    with pytest.raises(ArgumentError, match="2 layers' directions were given, 1 described"):
        bind(usual, [layer, layer])
    with pytest.raises(ArgumentError, match=r"weights of shapes \(32, 4\) and \(32, 8\)"):
        bind(usual._replace(size=9), [layer])
    with pytest.raises(ArgumentError, match="a bias does not have 32 numbers"):
        bind(usual, [layer._replace(b_hh=np.zeros(8, np.float32))])
