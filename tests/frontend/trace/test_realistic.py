"""NumPy functions of a realistic kind, traced once and run for several sizes and dtypes, against NumPy."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import gpujit
from gpujit.frontend.trace.check import difference
from gpujit.ir.verify import verify

RNG = np.random.default_rng


def attention(x, wq, wk, wv, wo):
    b, s, d = x.shape
    h = 4

    def heads(t):
        return t.reshape(b, s, h, d // h).transpose(0, 2, 1, 3)

    q, k, v = heads(x @ wq), heads(x @ wk), heads(x @ wv)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(d // h).astype(x.dtype)
    scores = np.where(np.tril(np.ones((s, s), dtype=bool)), scores, -np.inf)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    return (scores @ v).transpose(0, 2, 1, 3).reshape(b, s, d) @ wo


def attention_inputs(dtype, b, s):
    r = RNG(b + s)
    return tuple(r.normal(size=n).astype(dtype) for n in ((b, s, 8), (8, 8), (8, 8), (8, 8), (8, 8)))


def preprocess(image):
    """Centre crop, scale, normalise, channels first."""
    h, w, _ = image.shape
    side = h // 2
    top, left = (h - side) // 2, (w - side) // 2
    crop = image[top : top + side, left : left + side]
    x = crop.astype(np.float32) / 255.0
    x = (x - np.array([0.485, 0.456, 0.406], dtype=np.float32)) / np.array([0.229, 0.224, 0.225], dtype=np.float32)
    return np.ascontiguousarray(x[..., ::-1].transpose(2, 0, 1))[None]


def image_inputs(dtype, h, w):
    return (RNG(h).integers(0, 256, size=(h, w, 3)).astype(dtype),)


def black_scholes(s, k, t, r, sigma):
    """Price of a call, with the normal distribution function by Abramowitz and Stegun 26.2.17."""

    def cdf(x):
        y = 1.0 / (1.0 + 0.2316419 * np.abs(x))
        poly = y * (0.319381530 + y * (-0.356563782 + y * (1.781477937 + y * (-1.821255978 + y * 1.330274429))))
        tail = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * poly
        return np.where(x >= 0, 1 - tail, tail)

    d1 = (np.log(s / k) + (r + sigma**2 / 2) * t) / (sigma * np.sqrt(t))
    d2 = d1 - sigma * np.sqrt(t)
    return s * cdf(d1) - k * np.exp(-r * t) * cdf(d2)


def options_inputs(dtype, n, _):
    r = RNG(n)
    spot, strike, years, sigma = (
        r.uniform(low, high, size=n).astype(dtype) for low, high in ((80, 120), (80, 120), (0.1, 2), (0.1, 0.5))
    )
    return spot, strike, years, 0.03, sigma


def kmeans_step(points, centres):
    apart = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=-1)
    nearest = apart.argmin(axis=1)
    member = (nearest[:, None] == np.arange(centres.shape[0])).astype(points.dtype)
    count = member.sum(axis=0)
    new = member.T @ points / np.maximum(count, 1)[:, None]
    return np.where(count[:, None] > 0, new, centres), nearest


def kmeans_inputs(dtype, n, k):
    r = RNG(n)
    return r.normal(size=(n, 3)).astype(dtype), r.normal(size=(k, 3)).astype(dtype)


def softmax_regression(x, w, b, labels):
    logits = x @ w + b
    logits = logits - np.max(logits, axis=1, keepdims=True)
    logp = logits - np.log(np.sum(np.exp(logits), axis=1, keepdims=True))
    n = x.shape[0]
    loss = -logp[np.arange(n), labels].mean()
    grad = np.exp(logp)
    grad[np.arange(n), labels] -= 1
    grad /= n
    return loss, x.T @ grad, grad.sum(axis=0)


def regression_inputs(dtype, n, c):
    r = RNG(n)
    return (
        r.normal(size=(n, 6)).astype(dtype),
        r.normal(size=(6, c)).astype(dtype),
        r.normal(size=c).astype(dtype),
        r.integers(0, c, size=n),
    )


def fft_filter(signal, cutoff):
    spectrum = np.fft.rfft(signal)
    frequency = np.fft.rfftfreq(signal.shape[-1])
    return np.fft.irfft(np.where(frequency <= cutoff, spectrum, 0), n=signal.shape[-1])


def signal_inputs(dtype, n, m):
    return RNG(n).normal(size=(m, n)).astype(dtype), 0.2


def moving_average(x, window=5):
    total = np.cumsum(np.pad(x, (1, 0)), dtype=float)
    return (total[window:] - total[:-window]) / window


def series_inputs(dtype, n, _):
    return (RNG(n).normal(size=n + 8).astype(dtype),)


def smoothed(x):
    return np.convolve(x, np.ones(3) / 3, mode="valid")


def pairwise_distances(a, b):
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T
    return np.sqrt(np.clip(squares, 0, None))


def pairs_inputs(dtype, n, m):
    r = RNG(n)
    return r.normal(size=(n, 4)).astype(dtype), r.normal(size=(m, 4)).astype(dtype)


def layer_norm(x, weight, bias, eps=1e-5):
    mean = x.mean(axis=-1, keepdims=True)
    var = x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(var + eps) * weight + bias


def norm_inputs(dtype, n, m):
    r = RNG(n)
    return r.normal(size=(n, m)).astype(dtype), r.normal(size=m).astype(dtype), r.normal(size=m).astype(dtype)


def rotary(x):
    """Rotary position embedding of [positions, channels]."""
    n, d = x.shape
    half = d // 2
    rate = 1.0 / 10000 ** (np.arange(half) / half)
    angle = np.arange(n)[:, None] * rate[None]
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    a, b = x[:, :half], x[:, half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def rotary_inputs(dtype, n, m):
    return (RNG(n).normal(size=(n, 2 * m)).astype(dtype),)


def overlap(boxes):
    """Areas in which boxes (x0, y0, x1, y1) lie over each other, over those they cover together."""
    top = np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    low = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    inter = np.prod(np.clip(low - top, 0, None), axis=-1)
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=-1)
    return inter / (area[:, None] + area[None] - inter)


def suppress(boxes, scores):
    """Keep boxes that no better one covers by more than half: non-maximum suppression without the chain."""
    order = np.argsort(-scores, kind="stable")
    boxes = boxes[order]
    covered = np.triu(overlap(boxes) > 0.5, k=1).any(axis=0)
    return boxes[~covered], order[~covered]


def boxes_inputs(dtype, n, _):
    r = RNG(n)
    corner = r.uniform(0, 10, size=(n, 2))
    return np.concatenate([corner, corner + r.uniform(1, 6, size=(n, 2))], 1).astype(dtype), r.random(n).astype(dtype)


def equalise(image):
    counts, _ = np.histogram(image, bins=256, range=(0, 256))
    total = counts.cumsum()
    first = total[np.argmax(total > 0)]
    scaled = np.round((total - first) / np.maximum(image.size - first, 1) * 255).astype(np.uint8)
    return scaled[image]


def grey_inputs(dtype, h, w):
    return (RNG(h).integers(20, 200, size=(h, w)).astype(dtype),)


def standardised(table):
    """Columns without their mean, by their deviation, those without any left alone; NaN is missing."""
    mean = np.nanmean(table, axis=0)
    std = np.nanstd(table, axis=0)
    scaled = (table - mean) / np.where(std > 0, std, 1)
    return np.nan_to_num(scaled), np.isnan(table).sum(axis=0)


def table_inputs(dtype, n, m):
    r = RNG(n)
    table = r.normal(size=(n, m)).astype(dtype)
    table[r.random((n, m)) < 0.2] = np.nan
    table[0] = 1
    return (table,)


def principal_axes(x):
    centred = x - x.mean(axis=0)
    values = np.linalg.eigvalsh(centred.T @ centred / (x.shape[0] - 1))
    return values[::-1], np.linalg.norm(centred, axis=1)


def least_squares(x, y):
    design = np.column_stack([np.ones(x.shape[0]), x])
    return np.linalg.solve(design.T @ design + 1e-3 * np.eye(design.shape[1]), design.T @ y)


def lines_inputs(dtype, n, m):
    r = RNG(n)
    return r.normal(size=(n, m)).astype(dtype), r.normal(size=n).astype(dtype)


def game_of_life(board):
    around = sum(np.roll(np.roll(board, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1)) - board
    return ((around == 3) | ((board == 1) & (around == 2))).astype(board.dtype)


def board_inputs(dtype, h, w):
    return (RNG(h).integers(0, 2, size=(h, w)).astype(dtype),)


def sobel(image):
    out = np.zeros(image.shape)
    out[1:-1, 1:-1] = np.hypot(
        image[1:-1, 2:] - image[1:-1, :-2] + 0.5 * (image[2:, 2:] - image[2:, :-2]),
        image[2:, 1:-1] - image[:-2, 1:-1] + 0.5 * (image[2:, 2:] - image[:-2, 2:]),
    )
    return out / out.max()


def grid_inputs(dtype, h, w):
    return (RNG(h).normal(size=(h + 2, w + 2)).astype(dtype),)


def confusion(labels, predicted):
    n = 4
    counts = np.bincount(labels * n + predicted, minlength=n * n).reshape(n, n)
    with np.errstate(invalid="ignore"):
        return counts, np.diag(counts) / np.maximum(counts.sum(axis=1), 1)


def labels_inputs(dtype, n, _):
    r = RNG(n)
    return r.integers(0, 4, size=n).astype(dtype), r.integers(0, 4, size=n).astype(dtype)


def power_iteration(a):
    v = np.ones(a.shape[0]) / np.sqrt(a.shape[0])
    for _ in range(10):
        v = a @ v
        v /= np.linalg.norm(v)
    return v, v @ a @ v


def matrix_inputs(dtype, n, _):
    a = RNG(n).normal(size=(n, n)).astype(dtype)
    return ((a @ a.T + np.eye(n, dtype=dtype)).astype(dtype),)


def scatter_mean(values, groups):
    total = np.zeros((4, values.shape[1]))
    np.add.at(total, groups, values)
    count = np.zeros(4)
    np.add.at(count, groups, 1)
    return total / np.maximum(count, 1)[:, None]


def groups_inputs(dtype, n, m):
    r = RNG(n)
    return r.normal(size=(n, m)).astype(dtype), r.integers(0, 4, size=n)


F = (np.float32, np.float64)
CASES = [
    (attention, attention_inputs, F),
    (preprocess, image_inputs, (np.uint8, np.float32)),
    (black_scholes, options_inputs, F),
    (kmeans_step, kmeans_inputs, F),
    (softmax_regression, regression_inputs, F),
    (fft_filter, signal_inputs, F),
    (moving_average, series_inputs, (*F, np.int32)),
    (smoothed, series_inputs, F),
    (pairwise_distances, pairs_inputs, F),
    (layer_norm, norm_inputs, F),
    (rotary, rotary_inputs, F),
    (overlap, boxes_inputs, F),
    (suppress, boxes_inputs, F),
    (equalise, grey_inputs, (np.uint8,)),
    (standardised, table_inputs, F),
    (principal_axes, norm_inputs, F),
    (least_squares, lines_inputs, F),
    (game_of_life, board_inputs, (np.int64, np.uint8)),
    (sobel, grid_inputs, F),
    (confusion, labels_inputs, (np.int64, np.int32)),
    (power_iteration, matrix_inputs, F),
    (scatter_mean, groups_inputs, F),
]
SIZES = ((9, 6), (12, 5), (7, 11), (30, 8))


@pytest.mark.parametrize(
    ("function", "inputs", "dtype"),
    [(f, i, d) for f, i, dtypes in CASES for d in dtypes],
    ids=[f"{f.__name__}-{np.dtype(d).name}" for f, _, dtypes in CASES for d in dtypes],
)
def test_one_trace_computes_what_numpy_does_for_all_sizes(function, inputs, dtype):
    takes = function.__code__.co_argcount
    given = [inputs(dtype, *s)[:takes] for s in SIZES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        traced = gpujit.trace(function, given[0])
        verify(traced.graph)
        assert not [d for d in traced.trace_report if d.kind not in ("constant", "data-size")], traced.trace_report
        for args in given:
            expected = function(*args)
            assert not difference(traced(*args), expected, 2e-5 if dtype == np.float32 else 1e-9)
