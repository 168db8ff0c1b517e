"""The native templates against PyTorch, one operation at a time, in one interleaved run.

    PYTHONPATH=. python bench/templates.py [--threads 1] [--rounds 15] [--only conv]

Milliseconds are minima over the rounds; with one thread they are processor time, which other programs disturb less.
GFLOP/s count what the direct algorithm multiplies and adds. Needs PyTorch.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

arguments = argparse.ArgumentParser()
arguments.add_argument("--threads", type=int, default=1)
arguments.add_argument("--rounds", type=int, default=15)
arguments.add_argument("--only", default="")
options = arguments.parse_args()
os.environ["OMP_NUM_THREADS"] = os.environ["GPUJIT_THREADS"] = str(options.threads)

import numpy as np
import torch

from gpujit.kernels.templates import attention, conv, gemm, pool, rnn
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.planes import Window

torch.set_num_threads(options.threads)
torch.set_grad_enabled(False)
rng = np.random.default_rng(0)


class Case(NamedTuple):
    """Two ways to compute one thing; ``work`` in operations of floats, ``error`` relative to the largest number."""

    name: str
    work: float
    ours: Callable[[], object]
    theirs: Callable[[], object]
    error: float


def numbers(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def difference(got: np.ndarray, want: torch.Tensor) -> float:
    expected = want.numpy()
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def linear(m: int, k: int, n: int) -> Case:
    a, w, bias, c = numbers(m, k), numbers(k, n), numbers(n), np.empty((m, n), np.float32)
    kernel = gemm.bind(gemm.Gemm(m, n, k, (0, 0, k, 1), (0, 0, n, 1), epilogue=Epilogue(bias=True)), w, bias)
    ta, tw, tb = torch.from_numpy(a), torch.from_numpy(w.T.copy()), torch.from_numpy(bias)

    def theirs() -> torch.Tensor:
        return torch.nn.functional.linear(ta, tw, tb)

    kernel(a, c)
    return Case(f"linear {m}x{k}x{n}", 2.0 * m * k * n, lambda: kernel(a, c), theirs, difference(c, theirs()))


def scores(heads: int, length: int, width: int) -> Case:
    q, key = numbers(heads, length, width), numbers(heads, length, width)
    c = np.empty((heads, length, length), np.float32)
    strides = (0, length * width)
    kernel = gemm.bind(
        gemm.Gemm(
            length, length, width, (*strides, width, 1), (0, length * length, length, 1), (*strides, 1, width),
            batch=heads, inner=heads,
        )
    )  # fmt: skip
    tq, tk = torch.from_numpy(q), torch.from_numpy(key)

    def theirs() -> torch.Tensor:
        return torch.bmm(tq, tk.transpose(1, 2))

    kernel(q, key, c)
    work = 2.0 * heads * length * length * width
    return Case(f"q @ k.T {heads}x{length}x{width}", work, lambda: kernel(q, key, c), theirs, difference(c, theirs()))


def weighted(heads: int, length: int, width: int) -> Case:
    p, v = numbers(heads, length, length), numbers(heads, length, width)
    c = np.empty((heads, length, width), np.float32)
    square, flat = length * length, length * width
    kernel = gemm.bind(
        gemm.Gemm(
            length, width, length, (0, square, length, 1), (0, flat, width, 1), (0, flat, width, 1), batch=heads,
            inner=heads,
        )
    )  # fmt: skip
    tp, tv = torch.from_numpy(p), torch.from_numpy(v)

    def theirs() -> torch.Tensor:
        return torch.bmm(tp, tv)

    kernel(p, v, c)
    name = f"p @ v {heads}x{length}x{width}"
    return Case(name, 2.0 * heads * square * width, lambda: kernel(p, v, c), theirs, difference(c, theirs()))


def convolution(
    channels: int, size: int, filters: int, kernel: int, stride: int = 1, groups: int = 1, method: str | None = None
) -> Case:
    window = Window(size, size, (kernel, kernel), (stride, stride), (kernel // 2, kernel // 2))
    problem = conv.Conv(1, channels, filters, window, groups, Epilogue(bias=True, activation="relu"))
    x, w = numbers(1, channels, size, size), numbers(filters, channels // groups, kernel, kernel)
    bias, out = numbers(filters), np.empty((1, filters, *window.output), np.float32)
    bound = conv.bind(problem, w, bias, method)
    tx, tw, tb = (torch.from_numpy(t) for t in (x, w, bias))

    def theirs() -> torch.Tensor:
        return torch.nn.functional.conv2d(tx, tw, tb, stride, kernel // 2, 1, groups).relu_()

    bound(x, out)
    kind = "depthwise" if groups == channels else "conv" if groups == 1 else "grouped"
    name = f"{kind} {channels},{size} -> {filters} {kernel}x{kernel}/{stride} {method or conv.method_of(problem)}"
    return Case(name, 2.0 * problem.work, lambda: bound(x, out), theirs, difference(out, theirs()))


def attended(heads: int, length: int, width: int, is_causal: bool = False) -> Case:
    q, key, value = (numbers(1, heads, length, width) for _ in range(3))
    out = np.empty_like(q)
    strides = (heads * length * width, length * width, width)
    kernel = attention.bind(
        attention.Attention(
            1, heads, length, length, width, width, strides, strides, strides, strides, width**-0.5,
            is_causal=is_causal,
        )
    )  # fmt: skip
    tq, tk, tv = (torch.from_numpy(x) for x in (q, key, value))

    def theirs() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(tq, tk, tv, is_causal=is_causal)

    kernel(q, key, value, out)
    name = f"attention {heads}x{length}x{width}{' causal' if is_causal else ''}"
    work = 4.0 * heads * length * length * width / (2 if is_causal else 1)
    return Case(name, work, lambda: kernel(q, key, value, out), theirs, difference(out, theirs()))


def pooled(channels: int, size: int, kind: str, kernel: int, stride: int) -> Case:
    x = numbers(1, channels, size, size)
    tx = torch.from_numpy(x)
    if kernel == size:
        bound = pool.bind_adaptive(kind, channels, (size, size), (1, 1))
        out = np.empty((1, channels, 1, 1), np.float32)

        def theirs() -> torch.Tensor:
            return torch.nn.functional.adaptive_avg_pool2d(tx, 1)
    else:
        padding = kernel // 2 if kernel > 2 else 0
        window = Window(size, size, (kernel, kernel), (stride, stride), (padding, padding))
        bound = pool.bind(pool.Pool(kind, channels, window))
        out = np.empty((1, channels, *window.output), np.float32)
        function = torch.nn.functional.max_pool2d if kind == "max" else torch.nn.functional.avg_pool2d

        def theirs() -> torch.Tensor:
            return function(tx, kernel, stride, padding)

    bound(x, out)
    work = float(out.size * kernel * kernel)
    name = f"pool {kind} {channels},{size} {kernel}x{kernel}/{stride}"
    return Case(name, work, lambda: bound(x, out), theirs, difference(out, theirs()))


def recurrent(kind: str, steps: int, batch: int, inputs: int, size: int, layers: int, directions: int = 1) -> Case:
    theirs_of = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind]
    model = theirs_of(inputs, size, layers, bidirectional=directions == 2).eval()
    flat = [p.numpy() for p in model.parameters()]
    x, y = numbers(steps, batch, inputs), np.empty((steps, batch, directions * size), np.float32)
    count = 2 if kind == "lstm" else 1
    first = [numbers(layers * directions, batch, size) for _ in range(count)]
    last = [np.empty_like(s) for s in first]
    whole = (batch * size, size)
    kernel = rnn.bind(
        rnn.Rnn(
            kind, steps, batch, size, layers, directions, (batch * inputs, inputs, 1), whole, whole,
            (batch * directions * size, directions * size),
        ),
        [rnn.Layer(*flat[k : k + 4]) for k in range(0, len(flat), 4)],
    )  # fmt: skip
    tx = torch.from_numpy(x)
    states = [torch.from_numpy(s) for s in first]
    given = tuple(states) if count == 2 else states[0]
    compiled = torch.jit.freeze(torch.jit.trace(model, (tx, given)))

    def theirs() -> torch.Tensor:
        found: torch.Tensor = compiled(tx, given)[0]
        return found

    def ours() -> None:
        kernel(x, *first, y, *last)

    ours()
    weights = sum(w.size for w in flat if w.ndim == 2)
    name = f"{kind} {layers}x{size}{' both ways' if directions == 2 else ''}, {batch} of {steps} steps of {inputs}"
    return Case(name, 2.0 * steps * batch * weights, ours, theirs, difference(y, theirs()))


def cases() -> Iterator[Callable[[], Case]]:
    for m, k, n in [
        (197, 768, 3072), (197, 3072, 768), (128, 256, 256), (128, 256, 1024), (64, 512, 512), (1, 512, 512),
        (1, 768, 3072), (4, 512, 512),
    ]:  # fmt: skip
        yield lambda m=m, k=k, n=n: linear(m, k, n)
    for heads, length, width in [(12, 197, 64), (192, 49, 32)]:
        yield lambda h=heads, n=length, w=width: scores(h, n, w)
        yield lambda h=heads, n=length, w=width: weighted(h, n, w)
    for c, size, f in [(64, 56, 64), (128, 28, 128), (256, 14, 256), (512, 7, 512)]:
        yield lambda c=c, size=size, f=f: convolution(c, size, f, 3, method="dense")
        for m in (2, 4):
            yield lambda c=c, size=size, f=f, m=m: convolution(c, size, f, 3, method=f"winograd{m}")
    for c, size, f, kernel, stride in [
        (3, 224, 64, 7, 2), (3, 224, 32, 3, 2), (64, 56, 128, 3, 2), (256, 14, 512, 3, 2), (64, 56, 128, 1, 2),
        (64, 56, 256, 1, 1), (256, 56, 64, 1, 1), (512, 28, 128, 1, 1), (1024, 14, 256, 1, 1), (2048, 7, 512, 1, 1),
        (512, 7, 2048, 1, 1), (96, 14, 576, 1, 1), (24, 28, 88, 1, 1),
        (240, 1, 64, 1, 1),
    ]:  # fmt: skip
        yield lambda c=c, size=size, f=f, kernel=kernel, stride=stride: convolution(c, size, f, kernel, stride)
    for c, size, kernel, stride in [
        (32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (240, 28, 5, 1), (240, 28, 3, 2), (480, 14, 5, 1),
        (672, 14, 5, 2), (960, 7, 3, 1), (960, 7, 5, 1), (96, 56, 7, 1),
    ]:  # fmt: skip
        yield lambda c=c, size=size, kernel=kernel, stride=stride: convolution(c, size, c, kernel, stride, c)
    yield lambda: convolution(128, 56, 128, 3, 1, 32)
    for heads, length, width, is_causal in [(12, 197, 64, False), (12, 128, 64, False), (6, 64, 64, True)]:
        yield lambda h=heads, n=length, w=width, c=is_causal: attended(h, n, w, c)
    for channels, size, kind, kernel, stride in [
        (64, 112, "max", 3, 2), (128, 28, "mean", 2, 2), (192, 35, "mean", 3, 1), (512, 7, "mean", 7, 1),
    ]:  # fmt: skip
        yield lambda c=channels, s=size, q=kind, k=kernel, t=stride: pooled(c, s, q, k, t)
    for given in [
        ("lstm", 50, 1, 128, 256, 2), ("lstm", 50, 16, 128, 256, 2), ("lstm", 1, 1, 128, 128, 1),
        ("lstm", 100, 4, 80, 128, 1, 2), ("gru", 50, 1, 128, 256, 2), ("gru", 50, 64, 64, 100, 1),
    ]:  # fmt: skip
        yield lambda given=given: recurrent(*given)


def main() -> None:
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    print(f"{'case':44} {'ours ms':>8} {'torch ms':>8} {'GFLOP/s':>8} {'ratio':>6} {'error':>8}")
    for make in cases():
        case = make()
        if options.only not in case.name:
            continue
        best = [float("inf")] * 2
        for _ in range(options.rounds):
            for which, run in enumerate((case.ours, case.theirs)):
                start = clock()
                run()
                best[which] = min(best[which], clock() - start)
        ours, theirs = best
        print(
            f"{case.name:44} {ours * 1e3:8.3f} {theirs * 1e3:8.3f} {case.work / ours / 1e9:8.0f} {theirs / ours:6.2f} "
            f"{case.error:8.0e}"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
