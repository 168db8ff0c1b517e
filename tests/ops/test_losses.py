"""Losses against hand-worked values, formulas and PyTorch."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.layers.class_losses
import gpujit.ops.families.layers.losses  # noqa: F401  # importing declares the entries
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, assert_same, run

BFLOAT16 = ml_dtypes.bfloat16
NONE, MEAN, SUM = 0, 1, 2
LOG2 = math.log(2)


def f(*values: Any) -> Any:
    return np.array(values if len(values) > 1 else values[0], dtype=np.float32)


def i(*values: Any) -> Any:
    return np.array(values if len(values) > 1 else values[0], dtype=np.int64)


def tensor(shape: Any, dtype: Any = np.float32, seed: int = 1) -> np.ndarray:
    """Numbers of about unit size."""
    return np.asarray(np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def log_softmax(x: np.ndarray, axis: int) -> Any:
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def labels(shape: Any, classes: int, seed: int = 2) -> Any:
    return np.random.default_rng(seed).integers(0, classes, shape)


EVEN = f([[0.0, 0.0]])
ROWS = f([[-1.0, -2.0], [-3.0, -4.0]])

EXPECTED: list[tuple[str, tuple[Any, ...], Any]] = [
    ("aten::mse_loss", (f(1.0, 4.0), f(2.0, 2.0)), f(2.5)),
    ("aten::mse_loss", (f(1.0, 4.0), f(2.0, 2.0), NONE), f(1.0, 4.0)),
    ("aten::mse_loss", (f([]), f([])), f(math.nan)),
    ("aten::l1_loss", (f(1.0, 4.0), f(2.0, 2.0), SUM), f(3.0)),
    ("aten::l1_loss", (i(1, 4), i(2, 2), SUM), i(3)),
    ("aten::smooth_l1_loss", (f(0.5, 3.0), f(0.0, 0.0), NONE), f(0.125, 2.5)),
    ("aten::smooth_l1_loss", (f(0.5, 3.0), f(0.0, 0.0), NONE, 2.0), f(0.0625, 2.0)),
    ("aten::smooth_l1_loss", (f(0.5, 3.0), f(0.0, 0.0), SUM, 0.0), f(3.5)),
    ("aten::huber_loss", (f(0.5, 3.0), f(0.0, 0.0), NONE, 2.0), f(0.125, 4.0)),
    ("aten::binary_cross_entropy", (f(0.5, 0.0), f(1.0, 1.0), None, NONE), f(LOG2, 100.0)),
    ("aten::binary_cross_entropy", (f(0.5, 0.5), f(1.0, 0.0), f(2.0, 0.0)), f(LOG2)),
    ("aten::binary_cross_entropy_with_logits", (f(0.0, 1000.0), f(1.0, 1.0), None, None, NONE), f(LOG2, 0.0)),
    (
        "aten::binary_cross_entropy_with_logits",
        (f(0.0, -1000.0), f(1.0, 1.0), None, f([3.0]), NONE),
        f(3 * LOG2, 3000.0),
    ),
    ("aten::kl_div", (f(0.0, math.log(0.5)), f(0.0, 1.0), NONE), f(0.0, LOG2)),
    ("aten::kl_div", (f(0.0), f(-LOG2), SUM, True), f(-0.5 * LOG2)),
    ("aten::poisson_nll_loss", (f(0.0, 1.0), f(1.0, 2.0), True, False, 1e-8, NONE), f(1.0, math.e - 2)),
    (
        "aten::poisson_nll_loss",
        (f([1.0]), f([2.0]), False, True, 0.0, NONE),
        f([2 * LOG2 - 1 + 0.5 * math.log(4 * math.pi)]),
    ),
    ("aten::hinge_embedding_loss", (f(0.25, 0.25), f(1.0, -1.0), 1.0, NONE), f(0.25, 0.75)),
    (
        "aten::cosine_embedding_loss",
        (f([[1.0, 0.0]] * 2), f([[0.0, 1.0], [2.0, 0.0]]), i(1, -1), 0.25, NONE),
        f(1.0, 0.75),
    ),
    ("aten::margin_ranking_loss", (f(1.0, 1.0), f(0.0, 0.0), f(1.0, -1.0), 0.5, NONE), f(0.0, 1.5)),
    ("aten::triplet_margin_loss", (f([[0.0]]), f([[2.0]]), f([[1.0]]), 1.0, 2.0, 0.0, False, NONE), f([2.0])),
    ("aten::triplet_margin_loss", (f([[0.0]]), f([[2.0]]), f([[2.5]]), 1.0, 2.0, 0.0, True, NONE), f([2.5])),
    ("aten::soft_margin_loss", (f(0.0, -200.0), f(1.0, 1.0), NONE), f(LOG2, math.inf)),
    ("aten::nll_loss", (ROWS, i(0, 1)), f(2.5)),
    ("aten::nll_loss", (ROWS, i(0, 1), f(3.0, 1.0)), f(7 / 4)),
    ("aten::nll_loss", (ROWS, i(0, -100), None, NONE), f(1.0, 0.0)),
    ("aten::nll_loss", (ROWS, i(-100, -100)), f(math.nan)),
    ("aten::nll_loss", (ROWS[0], i(1), None, SUM), f(2.0)),
    ("aten::nll_loss_forward", (ROWS, i(0, 1), f(3.0, 1.0), SUM, -100), (f(7.0), f(4.0))),
    ("aten::nll_loss_forward", (ROWS, i(0, 1), None, NONE, -100), (f(1.0, 4.0), f(0.0))),
    ("aten::nll_loss2d", (ROWS.reshape(1, 2, 1, 2), i([[[1, 0]]]), None, NONE), f([[[3.0, 2.0]]])),
    ("aten::nll_loss_nd", (ROWS.reshape(1, 2, 2), i([[1, 0]]), None, SUM), f(5.0)),
    ("aten::cross_entropy_loss", (EVEN, i([1])), f(LOG2)),
    ("aten::cross_entropy_loss", (EVEN, f([[0.5, 0.5]])), f(LOG2)),
    ("aten::cross_entropy_loss", (EVEN[0], i(0), None, NONE), f(LOG2)),
    ("aten::multi_margin_loss", (f([[0.1, 0.2, 0.4]]), i([1]), 1, 1, None, NONE), f([0.7])),
    ("aten::multi_margin_loss", (f(0.1, 0.2, 0.4), i(1), 2, 1), f(0.75)),
    ("aten::multilabel_margin_loss", (f(0.1, 0.2, 0.4, 0.8), i(3, 0, -1, 1)), f(0.85)),
    ("aten::multilabel_margin_loss_forward", (f(0.1, 0.2), i(1, -1), SUM), (f(0.45), f(0.0, 1.0))),
    ("aten::mse_loss_backward", (f(1.0), f(1.0, 4.0), f(2.0, 2.0), MEAN), f(-1.0, 2.0)),
    ("aten::smooth_l1_loss_backward", (f(1.0), f(0.5, -3.0), f(0.0, 0.0), SUM, 1.0), f(0.5, -1.0)),
    ("aten::huber_loss_backward", (f(1.0), f(0.5, -3.0), f(0.0, 0.0), SUM, 2.0), f(0.5, -2.0)),
    ("aten::soft_margin_loss_backward", (f(1.0), f(0.0, 0.0), f(1.0, -1.0), SUM), f(-0.5, 0.5)),
    ("aten::binary_cross_entropy_backward", (f(1.0), f(0.5, 0.5), f(1.0, 0.0), None, SUM), f(-2.0, 2.0)),
    ("aten::nll_loss_backward", (f(1.0), ROWS, i(0, 1), None, MEAN, -100, f(2.0)), f([[-0.5, 0.0], [0.0, -0.5]])),
]


@pytest.mark.parametrize("name, args, want", EXPECTED, ids=[f"{n}-{k}" for k, (n, _, _) in enumerate(EXPECTED)])
def test_expected_value(name: str, args: tuple[Any, ...], want: Any) -> None:
    assert_same(run(name, *args), want)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_is_its_formula(weighted: bool, smoothing: float) -> None:
    x, y = tensor((4, 3, 5), np.float64), labels((4, 5), 3)
    y[1, 2] = -100
    w = np.array([0.5, 1.0, 2.0]) if weighted else np.ones(3)
    weight = w if weighted else None
    logp = log_softmax(x, 1)
    there = y != -100
    safe = np.where(there, y, 0)
    picked = np.take_along_axis(logp, safe[:, None], 1)[:, 0]
    per_label = np.where(there, w[safe], 0)
    each = -(1 - smoothing) * picked * per_label - smoothing / 3 * np.where(there, (logp * w[:, None]).sum(1), 0)
    assert_same(run("aten::cross_entropy_loss", x, y, weight, NONE, -100, smoothing), each)
    assert_same(run("aten::cross_entropy_loss", x, y, weight, SUM, -100, smoothing), np.asarray(each.sum()))
    assert_same(
        run("aten::cross_entropy_loss", x, y, weight, MEAN, -100, smoothing), np.asarray(each.sum() / per_label.sum())
    )


def ctc_by_enumeration(logp: np.ndarray, target: list[int], blank: int) -> float:
    """Minus the log of the summed probability of every path that collapses to ``target``."""
    steps, classes = logp.shape
    found = 0.0
    for path in itertools.product(range(classes), repeat=steps):
        merged = [k for k, _ in itertools.groupby(path)]
        if [k for k in merged if k != blank] == target:
            found += math.exp(sum(logp[t, c] for t, c in enumerate(path)))
    return -math.log(found) if found else math.inf


def test_ctc_loss_sums_all_alignments() -> None:
    logp = log_softmax(tensor((5, 3, 3), np.float64), 2)
    targets = [[1, 2], [2, 2], [1]]
    frames = [5, 4, 2]
    want = [ctc_by_enumeration(logp[: frames[n], n], targets[n], 0) for n in range(3)]
    padded = i([[1, 2], [2, 2], [1, 0]])
    got = run("aten::ctc_loss.IntList", logp, padded, frames, [2, 2, 1], 0, NONE)
    np.testing.assert_allclose(got, want, rtol=1e-10)
    flat = run("aten::ctc_loss.Tensor", logp, i(1, 2, 2, 2, 1), i(frames), i(2, 2, 1), 0, NONE)
    np.testing.assert_allclose(flat, want, rtol=1e-10)
    mean = run("aten::ctc_loss.IntList", logp, padded, frames, [2, 2, 1])
    np.testing.assert_allclose(mean, np.mean(np.array(want) / [2, 2, 1]), rtol=1e-10)
    last = run("aten::ctc_loss.IntList", logp[..., ::-1], 2 - padded, frames, [2, 2, 1], 2, NONE)
    np.testing.assert_allclose(last, want, rtol=1e-10)


def test_ctc_loss_of_too_few_frames_is_infinite() -> None:
    logp = log_softmax(tensor((2, 1, 3)), 2)
    assert run("aten::ctc_loss.IntList", logp, i([[1, 1]]), [2], [2], 0, SUM) == math.inf
    assert run("aten::ctc_loss.IntList", logp, i([[1, 1]]), [2], [2], 0, SUM, True) == 0


# ------------------------------------------------------------------------------------------- PyTorch is the judge

FLOATS = (np.float32, np.float64, np.float16, BFLOAT16)
PAIRS = [
    ("mse_loss", ()),
    ("l1_loss", ()),
    ("smooth_l1_loss", (0.7,)),
    ("huber_loss", (0.7,)),
    ("binary_cross_entropy_with_logits", None),
    ("kl_div", ()),
    ("hinge_embedding_loss", None),
    ("soft_margin_loss", ()),
]


@pytest.mark.torch
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
@pytest.mark.parametrize("name, more", PAIRS, ids=[n for n, _ in PAIRS])
def test_pairs_agree_with_torch(name: str, more: Any, reduction: int, dtype: Any) -> None:
    # Half types are computed in float32 here, and step by step in half precision there.
    loose = {np.float16: 1e-2, BFLOAT16: 8e-2}.get(dtype)
    for shape in ((3, 4), (), (0, 2)):
        x, y = tensor(shape, dtype), np.asarray(np.abs(tensor(shape, dtype, seed=2)))
        if name == "hinge_embedding_loss":
            args: tuple[Any, ...] = (np.asarray(np.where(y > 0.5, 1, -1)).astype(dtype), 0.8, reduction)
        elif name == "binary_cross_entropy_with_logits":
            args = (y, None, np.asarray(1.5, dtype), reduction)
        else:
            args = (y, reduction, *more)
        against_torch(f"aten::{name}", x, *args, tolerance=loose)


@pytest.mark.torch
def test_broadcasting_and_promotion_agree_with_torch() -> None:
    x = tensor((3, 4))
    against_torch("aten::mse_loss", x, tensor((4,), np.float64))
    against_torch("aten::smooth_l1_loss", x, tensor((3, 1)), NONE, 1.0)
    against_torch("aten::l1_loss", x, i(1, 2, 3, 4))
    against_torch("aten::l1_loss", tensor((3,), np.float32) + 1j * tensor(3), x[:, 0].copy())
    against_torch("aten::binary_cross_entropy", np.clip(np.abs(x), 0, 1), np.clip(x, 0, 1), tensor((4,)), MEAN)
    against_torch("aten::poisson_nll_loss", np.abs(x), np.abs(tensor((3, 4), seed=2)) * 4, False, True, 1e-8, MEAN)
    against_torch("aten::margin_ranking_loss", x, tensor((4,), seed=3), np.sign(x), 0.5, NONE)
    against_torch("aten::cosine_embedding_loss", x, tensor((3, 4), seed=2), i(1, -1, 1), 0.1, NONE)
    for p, swap in ((2.0, False), (1.0, True)):
        against_torch("aten::triplet_margin_loss", x, x[::-1].copy(), x + 1, 0.5, p, 1e-6, swap, MEAN)


@pytest.mark.torch
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, BFLOAT16])
def test_class_losses_agree_with_torch(reduction: int, dtype: Any) -> None:
    w = np.array([0.5, 1.0, 2.0, 0.1]).astype(dtype)
    loose = 6e-2 if dtype is BFLOAT16 else None
    for shape in ((5, 4), (4,), (2, 4, 3), (2, 4, 3, 2), (0, 4)):
        x = tensor(shape, dtype)
        y = labels(shape[:1] + shape[2:] if len(shape) > 1 else (), 4)
        if y.size > 2:
            y.reshape(-1)[1] = -100
        for weight in (None, w):
            against_torch("aten::nll_loss_nd", x, y, weight, reduction, tolerance=loose)
            against_torch("aten::cross_entropy_loss", x, y, weight, reduction, -100, 0.1, tolerance=loose)
            if len(shape) == 2:
                against_torch("aten::nll_loss_forward", x, y, weight, reduction, -100, tolerance=loose)
            if len(shape) == 4:
                against_torch("aten::nll_loss2d_forward", x, y, weight, reduction, -100, tolerance=loose)
    x = tensor((5, 4), dtype)
    share = np.exp(log_softmax(tensor((5, 4), np.float32, seed=3), 1)).astype(dtype)
    against_torch("aten::cross_entropy_loss", x, share, w, reduction, -100, 0.3, tolerance=loose)
    if dtype is not BFLOAT16:
        y = labels((5,), 4)
        for p, weight in ((1, None), (2, w)):
            against_torch("aten::multi_margin_loss", x, y, p, 0.6, weight, reduction)
        marks = i([[0, 1, -1, 2], [3, -1, 0, 0], [-1, 0, 1, 2], [2, 2, -1, 0], [0, 1, 2, 3]])
        against_torch("aten::multilabel_margin_loss_forward", x, marks, reduction)


@pytest.mark.torch
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_gradients_agree_with_torch(reduction: int) -> None:
    x, y = tensor((3, 4), np.float64), tensor((3, 4), np.float64, seed=2)
    grad = tensor((3, 4) if reduction == NONE else (), np.float64, seed=3)
    against_torch("aten::mse_loss_backward", grad, x, y, reduction)
    against_torch("aten::smooth_l1_loss_backward", grad, x, y, reduction, 0.5)
    against_torch("aten::huber_loss_backward", grad, x, y, reduction, 0.5)
    against_torch("aten::soft_margin_loss_backward", grad, x, y, reduction)
    inside = np.clip(np.abs(x), 0.1, 0.9)
    against_torch("aten::binary_cross_entropy_backward", grad, inside, np.clip(y, 0, 1), None, reduction)
    target, w = i(0, -100, 3), np.array([0.5, 1.0, 2.0, 0.1])
    loss, share = run("aten::nll_loss_forward", x, target, w, reduction, -100)
    each = tensor(loss.shape, np.float64, seed=4)
    against_torch("aten::nll_loss_backward", each, x, target, w, reduction, -100, share)


@pytest.mark.torch
def test_ctc_agrees_with_torch() -> None:
    logp = log_softmax(tensor((12, 4, 6), np.float64), 2)
    y = labels((4, 5), 5) + 1
    y[0, 1] = y[0, 0]
    for reduction in (NONE, MEAN, SUM):
        against_torch("aten::ctc_loss.IntList", logp, y, [12, 10, 12, 5], [5, 3, 1, 5], 0, reduction, True)
        against_torch("aten::ctc_loss.Tensor", logp, y.reshape(-1), i(12, 12, 12, 12), i(5, 5, 5, 5), 0, reduction)
    against_torch("aten::_ctc_loss", logp, y, [12, 12, 12, 12], [5, 5, 5, 5])


ERRORS: list[tuple[str, tuple[Any, ...], type, str]] = [
    ("aten::mse_loss", (f(1.0, 2.0), f(1.0, 2.0, 3.0)), ShapeError, "aten::mse_loss: shapes .* do not broadcast"),
    ("aten::mse_loss", (i(1, 2), i(1, 2)), DTypeError, "aten::mse_loss: expected floating"),
    ("aten::smooth_l1_loss", (f(1.0), f(1.0), MEAN, -1.0), OpError, "beta must not be negative"),
    ("aten::huber_loss", (f(1.0), f(1.0), MEAN, 0.0), OpError, "delta must be positive"),
    ("aten::binary_cross_entropy", (f(2.0), f(1.0)), OpError, "elements of input must lie between 0 and 1"),
    ("aten::binary_cross_entropy", (f(0.5), f([1.0])), ShapeError, "they must be the same"),
    ("aten::nll_loss", (ROWS, i(0, 2)), ShapeError, "aten::nll_loss: label 2 is out of bounds for 2 classes"),
    ("aten::nll_loss", (ROWS, f(0.0, 1.0)), DTypeError, "labels must be integers"),
    ("aten::nll_loss", (ROWS, i(0, 1, 1)), ShapeError, r"need labels of shape \(2,\)"),
    ("aten::nll_loss2d", (ROWS, i(0, 1)), ShapeError, "expected scores of 4 dims"),
    ("aten::cross_entropy_loss", (ROWS, i(0, 1), f(1.0, 1.0, 1.0)), ShapeError, "weight has shape"),
    ("aten::cross_entropy_loss", (ROWS, i(0, 1), None, MEAN, -100, 1.5), OpError, "label_smoothing must lie"),
    ("aten::multi_margin_loss", (ROWS, i(0, 1), 3), OpError, "p must be 1 or 2"),
    ("aten::multilabel_margin_loss", (ROWS, i(0, 1)), ShapeError, "need labels of the same shape"),
    ("aten::ctc_loss.IntList", (np.zeros((3, 1, 2), np.float32), i([[1]]), [4], [1]), ShapeError, "input lengths"),
    ("aten::ctc_loss.IntList", (np.zeros((3, 1, 2), np.float32), i([[1]]), [3], [1], 2), OpError, "blank 2"),
    ("aten::cosine_embedding_loss", (ROWS, ROWS, i([[1]])), ShapeError, "needs inputs of one dim more"),
]


@pytest.mark.parametrize("name, args, error, text", ERRORS, ids=[f"{e[0]}-{k}" for k, e in enumerate(ERRORS)])
def test_refused(name: str, args: tuple[Any, ...], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        run(name, *args)


@pytest.mark.torch
def test_half_beside_float32_gives_float32() -> None:
    x, y = tensor((3, 4), np.float16), tensor((3, 4), seed=2)
    for a, b in ((x, y), (y, x), (x, x)):
        against_torch("aten::mse_loss", a, b, tolerance=2e-3)
        against_torch("aten::smooth_l1_loss", a, b, tolerance=2e-3)
        against_torch("aten::cosine_similarity", a, b, tolerance=2e-3)
