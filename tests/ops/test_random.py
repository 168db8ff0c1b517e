"""Random numbers: PyTorch's own values for equal seeds, distributions, effects on the generator, refusals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.layers.dropout  # noqa: F401  # declares the entries
from gpujit.ir.dtypes import BY_CODE
from gpujit.ops.families.random.random import manual_seed
from gpujit.ops.generator import DEFAULT, Generator
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import assert_same, from_torch, run

BF16 = ml_dtypes.bfloat16
SEED = 1234


def seeded(name: str, *args: Any) -> Any:
    manual_seed(SEED)
    return run(name, *args)


def test_known_values() -> None:
    manual_seed(42)
    np.testing.assert_allclose(run("aten::rand", [3]), [0.88226926, 0.91500396, 0.38286376], rtol=1e-7)
    manual_seed(42)
    np.testing.assert_allclose(run("aten::randn", [3]), [0.33669037, 0.1288094, 0.23446237], rtol=1e-6)
    manual_seed(42)
    assert run("aten::randperm", 10).tolist() == [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]
    manual_seed(42)
    assert run("aten::randint", 10, [3]).tolist() == [2, 7, 6]
    manual_seed(42)
    assert run("aten::bernoulli_.float", np.empty(8), 0.3).tolist() == [1, 1, 1, 1, 0, 0, 0, 0]


# Our call and PyTorch's, from the same seed; one more draw follows, so that consumption must agree too.
SAME: list[tuple[str, tuple[Any, ...], Callable[[Any], Any]]] = [
    *[
        (
            f"aten::{name}",
            ([n], code),
            lambda t, name=name, n=n, code=code: getattr(t, name)(n, dtype=getattr(t, BY_CODE[code].name)),
        )
        for name in ("rand", "randn")
        for n in (0, 1, 5, 15, 16, 20, 40, 101)
        for code in (5, 6, 7, 9, 15)
    ],
    *[
        ("aten::randint.low", (low, high, [7]), lambda t, low=low, high=high: t.randint(low, high, (7,)))
        for low, high in (
            (0, 10),
            (-5, 5),
            (0, 1 << 27),
            (0, 1 << 28),
            (-(1 << 31), 1 << 31),
            (0, 1 << 40),
            (-(1 << 62), 1 << 62),
        )
    ],
    ("aten::randint", (200, [3, 2], 0), lambda t: t.randint(200, (3, 2), dtype=t.uint8)),
    ("aten::randint", (100, [5], 6), lambda t: t.randint(100, (5,), dtype=t.float32)),
    ("aten::randperm", (1,), lambda t: t.randperm(1)),
    ("aten::randperm", (1000,), lambda t: t.randperm(1000)),
    ("aten::randperm", (9, 6), lambda t: t.randperm(9, dtype=t.float32)),
    ("aten::bernoulli", (np.linspace(0, 1, 20, dtype=np.float32),), lambda t: t.bernoulli(t.linspace(0, 1, 20))),
    ("aten::bernoulli", (np.full(9, 0.4),), lambda t: t.bernoulli(t.full((9,), 0.4, dtype=t.float64))),
    ("aten::bernoulli.p", (np.zeros((4, 5), np.float32), 0.7), lambda t: t.bernoulli(t.zeros(4, 5), 0.7)),
    ("aten::bernoulli_.float", (np.zeros(30, np.int64), 0.2), lambda t: t.zeros(30, dtype=t.int64).bernoulli_(0.2)),
    (
        "aten::bernoulli_.Tensor",
        (np.zeros((2, 3)), np.array([0.1, 0.5, 0.9])),
        lambda t: t.zeros(2, 3, dtype=t.float64).bernoulli_(t.tensor([0.1, 0.5, 0.9], dtype=t.float64)),
    ),
    ("aten::uniform_", (np.zeros((3, 4), np.float32), 2.0, 5.0), lambda t: t.zeros(3, 4).uniform_(2, 5)),
    ("aten::uniform_", (np.zeros((3, 4)).T, -1.0, 1.0), lambda t: t.zeros(3, 4, dtype=t.float64).t().uniform_(-1, 1)),
    ("aten::normal_", (np.zeros((6, 4), np.float32), 1.0, 2.0), lambda t: t.zeros(6, 4).normal_(1, 2)),
    ("aten::normal_", (np.zeros((6, 4), np.float32).T, 1.0, 2.0), lambda t: t.zeros(6, 4).t().normal_(1, 2)),
    ("aten::normal_", (np.zeros(5, np.complex64), -2.0, 0.5), lambda t: t.zeros(5, dtype=t.complex64).normal_(-2, 0.5)),
    ("aten::exponential_", (np.zeros(7, np.float32), 2.0), lambda t: t.zeros(7).exponential_(2.0)),
    ("aten::geometric_", (np.zeros(7, np.int64), 0.3), lambda t: t.zeros(7, dtype=t.int64).geometric_(0.3)),
    ("aten::log_normal_", (np.zeros(20, np.float32),), lambda t: t.zeros(20).log_normal_()),
    ("aten::cauchy_", (np.zeros(7),), lambda t: t.zeros(7, dtype=t.float64).cauchy_()),
    *[
        (
            "aten::random_",
            (np.zeros(5, BY_CODE[code].dtype),),
            lambda t, code=code: t.zeros(5, dtype=getattr(t, BY_CODE[code].name)).random_(),
        )
        for code in (0, 1, 2, 3, 4, 5, 6, 7, 11, 15)
    ],
    ("aten::random_.from", (np.zeros(5, np.int64), -3, 9), lambda t: t.zeros(5, dtype=t.int64).random_(-3, 9)),
    ("aten::random_.to", (np.zeros(5, np.float32), 9), lambda t: t.zeros(5).random_(9)),
    ("aten::normal.Tensor_float", (np.arange(20, dtype=np.float32), 0.5), lambda t: t.normal(t.arange(20.0), 0.5)),
    ("aten::normal.float_Tensor", (3.0, np.arange(5, dtype=np.float32)), lambda t: t.normal(3.0, t.arange(5.0))),
    (
        "aten::normal.Tensor_Tensor",
        (np.arange(4.0), np.ones((3, 1))),
        lambda t: t.normal(t.arange(4.0).double(), t.ones(3, 1).double()),
    ),
    ("aten::normal.float_float", (1.0, 2.0, [18]), lambda t: t.normal(1.0, 2.0, (18,))),
    ("aten::rand_like", (np.zeros((3, 2), np.float32).T,), lambda t: t.rand_like(t.zeros(3, 2).t())),
    ("aten::randn_like", (np.zeros((5, 4), np.float64),), lambda t: t.randn_like(t.zeros(5, 4, dtype=t.float64))),
    ("aten::randint_like", (np.zeros((2, 3), np.float32), 9), lambda t: t.randint_like(t.zeros(2, 3), 9)),
    (
        "aten::randint_like.low_dtype",
        (np.zeros((2, 3), np.int64), 3, 9),
        lambda t: t.randint_like(t.zeros(2, 3, dtype=t.int64), 3, 9),
    ),
    *[
        (
            f"aten::{name}",
            (np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4), p, True),
            lambda t, name=name, p=p: getattr(t, name)(
                t.from_numpy(np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)), p, True
            ),
        )
        for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
        for p in (0.0, 0.1, 0.5, 1.0)
    ],
    ("aten::dropout", (np.ones(9, BF16), 0.3, True), lambda t: t.dropout(t.ones(9, dtype=t.bfloat16), 0.3, True)),
    ("aten::dropout", (np.ones(9, np.float16), 0.3, True), lambda t: t.dropout(t.ones(9, dtype=t.float16), 0.3, True)),
    ("aten::dropout_", (np.ones((3, 4), np.float32).T, 0.3, True), lambda t: t.dropout_(t.ones(3, 4).t(), 0.3, True)),
    ("aten::native_dropout", (np.ones(9, np.float32), 0.3, True), lambda t: t.native_dropout(t.ones(9), 0.3, True)),
    ("aten::native_dropout", (np.ones(9, np.float32), 0.3, False), lambda t: t.native_dropout(t.ones(9), 0.3, False)),
    (
        "aten::rrelu",
        (np.linspace(-1, 1, 9, dtype=np.float32), 0.1, 0.3, True),
        lambda t: t.rrelu(t.linspace(-1, 1, 9), 0.1, 0.3, True),
    ),
    (
        "aten::rrelu_with_noise",
        (np.linspace(-1, 1, 9, dtype=np.float32), np.zeros(9, np.float32), 0.1, 0.3, True),
        lambda t: t.ops.aten.rrelu_with_noise(t.linspace(-1, 1, 9), t.zeros(9), 0.1, 0.3, True),
    ),
    (
        "aten::multinomial",
        (np.array([[0.1, 0.2, 0.7], [1, 0, 0]], np.float32), 9, True),
        lambda t: t.multinomial(t.tensor([[0.1, 0.2, 0.7], [1, 0, 0]]), 9, True),
    ),
    (
        "aten::multinomial",
        (np.arange(1, 30, dtype=np.float32), 6, False),
        lambda t: t.multinomial(t.arange(1.0, 30.0), 6, False),
    ),
]


@pytest.mark.parametrize(("name", "args", "theirs"), SAME, ids=lambda v: v if isinstance(v, str) else "")
def test_same_values_and_consumption_as_torch(name: str, args: tuple[Any, ...], theirs: Callable[[Any], Any]) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(SEED)
    want = from_torch(theirs(torch))
    after = torch.rand(3).numpy()
    got = seeded(name, *args)
    assert_same(got, want)
    np.testing.assert_array_equal(run("aten::rand", [3]), after)


def test_half_a_pair_of_normals_waits_for_the_next_call() -> None:
    whole = seeded("aten::randn", [6])
    manual_seed(SEED)
    parts = [run("aten::randn", [n]) for n in (1, 2, 3)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_negative_and_large_seeds() -> None:
    torch = pytest.importorskip("torch")
    for seed in (-5, 2**63 - 1, 0):
        torch.manual_seed(seed)
        run("aten::manual_seed", seed)
        np.testing.assert_array_equal(run("aten::rand", [4]), torch.rand(4).numpy())


def test_generators_are_independent() -> None:
    g = run("aten::Generator", None, 7)
    first = run("aten::rand.generator", [4], g)
    manual_seed(3)
    assert run("aten::manual_seed.generator", g, 7) is g and run("aten::initial_seed", g) == 7
    np.testing.assert_array_equal(run("aten::rand.generator", [4], g), first)
    manual_seed(7)
    np.testing.assert_array_equal(run("aten::rand", [4]), first)
    assert run("aten::seed", g) == g.initial_seed()
    assert Generator(-1).initial_seed() == 2**64 - 1 and run("aten::initial_seed", Generator(-1)) == -1


def test_dropout_outside_training_is_the_input_itself() -> None:
    x = np.ones((2, 3), np.float32)
    state = DEFAULT.words(1)
    for name in ("dropout", "dropout_", "feature_dropout", "alpha_dropout", "alpha_dropout_", "feature_alpha_dropout"):
        assert run(f"aten::{name}", x, 0.5, False) is x
        assert run(f"aten::{name}", x, 0.0, True) is x
    assert state.shape == (1,) and (x == 1).all()


def test_dropout_keeps_the_mean_and_zeroes_a_share() -> None:
    y = seeded("aten::dropout", np.ones(100_000, np.float32), 0.25, True)
    assert abs((y == 0).mean() - 0.25) < 0.01 and abs(y.mean() - 1) < 0.01
    channels = seeded("aten::feature_dropout", np.ones((20, 50, 3), np.float32), 0.5, True)
    assert ((channels == channels[:, :, :1]).all()) and 0.4 < (channels == 0).mean() < 0.6


@pytest.mark.parametrize(
    ("name", "args", "mean", "variance"),
    [
        ("aten::poisson", (np.full(50_000, 4.0),), 4, 4),
        ("aten::binomial", (np.full(50_000, 10.0), np.full(50_000, 0.3)), 3, 2.1),
        ("aten::_standard_gamma", (np.full(50_000, 2.0),), 2, 2),
        ("aten::uniform", (np.zeros(50_000), 0.0, 1.0), 0.5, 1 / 12),
        ("aten::exponential", (np.zeros(50_000), 2.0), 0.5, 0.25),
        ("aten::geometric", (np.zeros(50_000), 0.5), 2, 2),
        ("aten::log_normal", (np.zeros(50_000), 0.0, 0.5), 1.1331, 0.3647),
        ("aten::random.to", (np.zeros(50_000), 11), 5, 10),
        ("aten::randn", ([50_000],), 0, 1),
    ],
)
def test_moments(name: str, args: tuple[Any, ...], mean: float, variance: float) -> None:
    y = seeded(name, *args)
    assert y.dtype == (np.float32 if name == "aten::randn" else np.float64)
    assert abs(y.mean() - mean) < 0.05 * max(mean, 0.5) and abs(y.var() - variance) < 0.06 * variance


def test_dirichlet_rows_add_to_one() -> None:
    y = seeded("aten::_sample_dirichlet", np.full((5, 3), 0.7, np.float32))
    np.testing.assert_allclose(y.sum(-1), 1, rtol=1e-5)


def test_multinomial_without_replacement_repeats_nothing() -> None:
    y = seeded("aten::multinomial", np.ones((4, 9), np.float32), 9)
    assert all(sorted(row) == list(range(9)) for row in y.tolist())


def test_concurrent_draws_never_hand_out_a_number_twice() -> None:
    manual_seed(SEED)
    whole = np.sort(run("aten::rand", [8000], 7))
    manual_seed(SEED)
    parts: list[np.ndarray] = []
    threads = [
        threading.Thread(target=lambda: parts.extend(run("aten::rand", [100], 7) for _ in range(20))) for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), whole)


def test_out_forms() -> None:
    out = np.empty(3, np.float64)
    assert seeded("aten::rand.out", [3], out) is out
    want = seeded("aten::rand", [3], 7)
    np.testing.assert_array_equal(out, want)
    assert seeded("aten::bernoulli.float_out", np.zeros(3), 0.5, None, out) is out


ERRORS: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("aten::rand", ([2], 4), DTypeError, "aten::rand: a floating or complex dtype"),
    ("aten::rand", ([-1],), ShapeError, "aten::rand: size"),
    ("aten::randint", (0, [2]), OpError, "high 0 must exceed low 0"),
    ("aten::randint", (300, [2], 0), OpError, "doesn't fit dtype uint8"),
    ("aten::randperm", (-1,), ShapeError, "negative"),
    ("aten::randperm", (3000, 5), OpError, "too large for dtype float16"),
    ("aten::normal_", (np.zeros(2), 0.0, -1.0), OpError, "must not be negative"),
    ("aten::normal_", (np.zeros(2, np.int64),), DTypeError, "floating"),
    ("aten::uniform_", (np.zeros(2), 2.0, 1.0), OpError, "must not exceed"),
    ("aten::bernoulli_.float", (np.zeros(2), 1.5), OpError, r"p must lie in \[0, 1\], found 1.5"),
    ("aten::bernoulli", (np.full(2, 2.0),), OpError, "must lie in"),
    ("aten::bernoulli", (np.zeros(2, np.int64),), DTypeError, "floating"),
    ("aten::exponential_", (np.zeros(2), 0.0), OpError, "lambda"),
    ("aten::geometric_", (np.zeros(2), 1.0), OpError, "between 0 and 1"),
    ("aten::multinomial", (np.ones(3), 4), OpError, "4 samples can't be drawn from 3"),
    ("aten::multinomial", (np.zeros(3), 1), OpError, "not all zero"),
    ("aten::dropout", (np.ones(3), 1.5, True), OpError, "p must lie"),
    ("aten::dropout", (np.ones(3, np.int64), 0.5, True), DTypeError, "floating"),
    ("aten::feature_dropout", (np.ones(3), 0.5, True), ShapeError, "at least 2 dims"),
    ("aten::poisson", (np.full(2, -1.0),), OpError, "negative"),
    ("aten::uniform_", (np.broadcast_to(np.zeros(1), (3,)),), ShapeError, "share memory"),
]


@pytest.mark.parametrize(("name", "args", "error", "message"), ERRORS, ids=lambda v: v if isinstance(v, str) else "")
def test_errors(name: str, args: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(name, *args)
