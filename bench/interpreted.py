"""Whole models on gpujit's interpreter against torch.jit: the small ones of the tests, and three of usual size.

Usage: python bench/models.py --interpreter [--only bert,resnet] [--ops] [--rounds 9]     (needs torch)

The models of usual size are made here, with random weights: convolution stacks as in a residual and in a mobile
network, and a transformer. ``--ops`` also lists, per model, the operators that take the most time over PyTorch's for
the same arguments. One thread each, rounds interleaved, medians of processor time.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import io
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gpujit
from gpujit.ops import registry
from tests.compare import from_meta, to_torch

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "models" / "corpus"
# Seconds that one measurement of one side takes at least.
SHORTEST = 0.005


def corpus(wanted: list[str]) -> Iterator[tuple[str, bytes, list[Any]]]:
    """Name, archive and inputs of the small models."""
    for path in sorted(FOLDER.glob("*.pt")):
        if any(w in path.stem for w in wanted):
            with np.load(path.with_suffix(".npz")) as stored:
                arrays = {k: stored[k] for k in stored.files if k != "meta"}
                meta = json.loads(str(stored["meta"]))
            yield path.stem, path.read_bytes(), [from_meta(m, arrays) for m in meta["inputs"]]


def made(wanted: list[str]) -> Iterator[tuple[str, bytes, list[Any]]]:
    """Name, archive and inputs of the models of usual size."""
    import torch
    from torch import nn

    class Residual(nn.Module):
        def __init__(self, c: int, o: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(c, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o),
            )  # fmt: skip
            self.short = nn.Identity() if stride == 1 and c == o else nn.Conv2d(c, o, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            return torch.relu_(self.body(x) + self.short(x))

    class Mobile(nn.Module):
        def __init__(self, c: int, o: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(c, 6 * c, 1, bias=False), nn.BatchNorm2d(6 * c), nn.ReLU6(inplace=True),
                nn.Conv2d(6 * c, 6 * c, 3, stride, 1, groups=6 * c, bias=False), nn.BatchNorm2d(6 * c),
                nn.ReLU6(inplace=True), nn.Conv2d(6 * c, o, 1, bias=False), nn.BatchNorm2d(o),
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            return self.body(x)

    def stem(o: int, k: int) -> list[Any]:
        return [nn.Conv2d(3, o, k, 2, k // 2, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True)]

    def head(c: int) -> list[Any]:
        return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 1000)]

    def residual() -> Any:
        blocks = [Residual(c, o, s) for c, o, s in zip((64, 64, 64, 128, 128, 256, 256, 512),
                  (64, 64, 128, 128, 256, 256, 512, 512), (1, 1, 2, 1, 2, 1, 2, 1), strict=True)]  # fmt: skip
        return nn.Sequential(*stem(64, 7), nn.MaxPool2d(3, 2, 1), *blocks, *head(512))

    def mobile() -> Any:
        sizes = (16, 24, 24, 32, 32, 64, 64, 96, 160)
        strides = (2, 1, 2, 1, 2, 1, 1, 2)
        blocks = [Mobile(c, o, s) for c, o, s in zip(sizes, sizes[1:], strides, strict=False)]
        return nn.Sequential(*stem(16, 3), *blocks, *head(160))

    def transformer() -> Any:
        layer = nn.TransformerEncoderLayer(384, 6, 1536, activation="gelu", batch_first=True, norm_first=True)
        return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    tokens = np.random.default_rng(0).standard_normal((1, 197, 384)).astype(np.float32)
    text = ("transformer_197x384", transformer, tokens)
    for name, make, x in (("residual_224", residual, image), ("mobile_224", mobile, image), text):
        if not any(w in name for w in wanted):
            continue
        torch.manual_seed(0)
        model = make().eval()
        torch.backends.mha.set_fastpath_enabled(False)
        buffer = io.BytesIO()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.save(torch.jit.trace(model, torch.from_numpy(x)), buffer)
        yield name, buffer.getvalue(), [x]


def seconds(call: Callable[[], object], calls: int) -> float:
    """Processor time of one call, averaged over some."""
    start = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - start) / calls


def compare(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median times of both, measured in turns after some calls that do not count."""
    counts = []
    for call in (ours, theirs):
        seconds(call, 3)
        counts.append(max(1, int(SHORTEST / max(seconds(call, 3), 1e-6))))
    pairs = [(seconds(ours, counts[0]), seconds(theirs, counts[1])) for _ in range(rounds)]
    return median(p[0] for p in pairs), median(p[1] for p in pairs)


class Spy:
    """Kernels that remember one set of arguments per operator and shapes, and how often they came."""

    def __init__(self) -> None:
        self.calls: dict[Any, tuple[str, tuple[Any, ...], Callable[..., Any], list[int]]] = {}
        self._kernel = registry.Op.kernel

    def __enter__(self) -> Spy:
        spy, original = self, self._kernel

        def kernel(op: Any, xp: Any) -> Any:
            found = original(op, xp)
            if op.kind == "prim" or not op.name.startswith("aten::"):
                return found

            def call(*args: Any) -> Any:
                key = (op.full_name, *(getattr(a, "shape", str(a)) for a in args))
                spy.calls.setdefault(key, (op.full_name, args, found, [0]))[3][0] += 1
                return found(*args)

            return call

        registry.Op.kernel = kernel  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        registry.Op.kernel = self._kernel  # type: ignore[method-assign]

    def costs(self) -> list[tuple[float, float, int, str]]:
        """Seconds of gpujit and of PyTorch, number of calls and name, the largest difference first."""
        import torch

        total: dict[str, list[float]] = {}
        for name, args, kernel, (count,) in self.calls.values():
            base, _, overload = name.removeprefix("aten::").partition(".")
            try:
                call = getattr(getattr(torch.ops.aten, base), overload or "default")
                schema = call._schema.arguments
                values = [to_torch(a) for a in args]
                positional = [v for s, v in zip(schema, values, strict=False) if not s.kwarg_only]
                keywords = {s.name: v for s, v in zip(schema, values, strict=False) if s.kwarg_only}
                call(*positional, **keywords)
                ours, theirs = compare(
                    lambda k=kernel, a=args: k(*a), lambda c=call, p=positional, w=keywords: c(*p, **w), 3  # type: ignore[misc]
                )
            except Exception:
                # An enum, a device or an operator that torch.ops does not reach.
                continue
            row = total.setdefault(name, [0.0, 0.0, 0.0])
            row[0] += ours * count
            row[1] += theirs * count
            row[2] += count
        rows = [(a, b, int(n), name) for name, (a, b, n) in total.items()]
        return sorted(rows, key=lambda r: r[1] - r[0])


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ops", action="store_true", help="list the operators that lose the most time")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wanted = arguments.only.split(",")
    print(f"{'model':40} {'gpujit us':>11} {'torch.jit us':>13} {'ratio':>6}")
    for name, data, inputs in (*made(wanted), *corpus(wanted)):
        module, peer = gpujit.load(data), torch.jit.load(io.BytesIO(data))
        tensors = to_torch(inputs)
        with torch.no_grad():
            ours, theirs = compare(lambda: module(*inputs), lambda: peer(*tensors), arguments.rounds)  # noqa: B023
        print(f"{name:40} {ours * 1e6:11.1f} {theirs * 1e6:13.1f} {ours / theirs:6.2f}", flush=True)
        if arguments.ops:
            with Spy() as spy:
                watched = gpujit.load(data)
                watched(*inputs)
            with torch.no_grad(), np.errstate(all="ignore"):
                for a, b, count, op in spy.costs()[:8]:
                    print(f"    {op:45} {count:4} {a * 1e6:9.1f} {b * 1e6:9.1f} {a / b:6.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
