"""Fused graphs against PyTorch (eager, jit, compile), ONNX Runtime and numexpr, in one run with interleaved rounds.

Usage: python bench/fusion.py [--threads 1] [--only chain] [--peers eager,jit,onnx] [--rounds 15] [--markdown]

Needs torch; onnx and onnxruntime, numexpr, and a C++ compiler for torch.compile: a peer that is not there is left out.
Each case is a function that torch.jit traces; gpujit loads the file, so that all sides compute the same graph.
Times are medians of a call in microseconds. ``best`` is gpujit's speed over the fastest peer's: above 1 is faster.
For cases bound by memory, ``copy`` is the share of the bandwidth that copying an array of the same size reaches here.
"""

from __future__ import annotations

import os
import sys

_threads = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "GPUJIT_THREADS"):
    os.environ[_name] = _threads

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import gpujit

SHORTEST = 0.002
PEERS = ("eager", "jit", "compile", "onnx", "numexpr")


@dataclass(frozen=True)
class Case:
    """A function of tensors, its inputs, and the least bytes it must move."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    expression: str | None = None

    def bytes(self) -> int:
        with torch.no_grad():
            out = self.function(*self.inputs)
        outs = out if isinstance(out, tuple) else (out,)
        return sum(t.numel() * t.element_size() for t in (*self.inputs, *outs))


def chain(n: int) -> tuple[Callable[..., Any], str]:
    """A chain of ``n`` pointwise operators over two tensors, and the same for numexpr."""

    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x
        for i in range(n):
            kind = i % 6
            if kind == 0:
                z = z * y
            elif kind == 1:
                z = torch.relu(z + 0.5)
            elif kind == 2:
                z = torch.sigmoid(z)
            elif kind == 3:
                z = z - x
            elif kind == 4:
                z = torch.tanh(z)
            else:
                z = z * 1.5 + y
        return z

    text = "x"
    for i in range(n):
        text = (
            f"({text}) * y",
            f"where(({text}) + half > zero, ({text}) + half, zero)",
            f"one / (one + exp(-({text})))",
            f"({text}) - x",
            f"tanh({text})",
            f"({text}) * onehalf + y",
        )[i % 6]
    return run, text


def cases() -> list[Case]:
    """All cases."""
    torch.manual_seed(0)

    def t(*shape: int) -> torch.Tensor:
        return torch.randn(*shape)

    found = []
    for n in (3, 12, 30):
        run, text = chain(n)
        for size in (1_000, 65_536, 1_000_000, 4_000_000):
            # numexpr's compiler takes exponential time for the longer texts.
            found.append(Case(f"chain of {n} on {size}", run, (t(size), t(size)), text if n <= 6 else None))
    found += [
        Case("add on 4000000", lambda x, y: x + y, (t(4_000_000), t(4_000_000)), "x + y"),
        Case("silu on 65536", lambda x: x * torch.sigmoid(x) * 1.0001, (t(65_536),), "x / (one + exp(-x))"),
        Case("softmax 512x768", lambda x: torch.softmax(x, -1), (t(512, 768),)),
        Case("softmax 12x197x197", lambda x: torch.softmax(x * 0.125, -1), (t(12, 197, 197),)),
        Case("softmax dim 1 of 8x128x1000", lambda x: torch.softmax(x, 1), (t(8, 128, 1000),)),
        Case("log_softmax 64x32000", lambda x: torch.log_softmax(x, -1), (t(64, 32000),)),
        Case("layer norm 512x768", lambda x, w, b: F.layer_norm(x, (768,), w, b), (t(512, 768), t(768), t(768))),
        Case(
            "softmax, add, layer norm 512x768",
            lambda x, y, w, b: F.layer_norm(torch.softmax(x, -1) + y, (768,), w, b),
            (t(512, 768), t(512, 768), t(768), t(768)),
        ),
        Case(
            "gelu, bias, residual 512x3072",
            lambda x, b, r: F.gelu(x + b) + r,
            (t(512, 3072), t(3072), t(512, 3072)),
        ),
        Case(
            "masked softmax 8x12x128x128",
            lambda x, m: torch.softmax((x * 0.125).masked_fill(m, float("-inf")), -1),
            (t(8, 12, 128, 128), (torch.ones(128, 128).triu(1) > 0)),
        ),
        Case(
            "batch norm, relu 64x56x56",
            lambda x, w, b, m, v: F.relu(F.batch_norm(x, m, v, w, b)),
            (t(1, 64, 56, 56), t(64), t(64), t(64), t(64).abs() + 0.5),
        ),
        Case(
            "batch norm, add, relu 8x256x14x14",
            lambda x, r, w, b, m, v: F.relu(F.batch_norm(x, m, v, w, b) + r),
            (t(8, 256, 14, 14), t(8, 256, 14, 14), t(256), t(256), t(256), t(256).abs() + 0.5),
        ),
        Case(
            "hardswish and scale 1x96x56x56",
            lambda x, s: F.hardswish(x) * torch.sigmoid(s),
            (t(1, 96, 56, 56), t(1, 96, 1, 1)),
        ),
        Case("transposed add 1024x1024", lambda x, y: x.t() * 2 + y, (t(1024, 1024), t(1024, 1024))),
        Case("permute and scale 16x128x768", lambda x: x.permute(0, 2, 1) * 0.5 + 1, (t(16, 128, 768),)),
        Case("row by column 2000x2000", lambda x, y: torch.tanh(x + y), (t(2000, 1), t(1, 2000))),
        Case("column sum 4096x512", lambda x: (x * x).sum(0), (t(4096, 512),)),
        Case("row mean and variance 4096x512", lambda x: (x.mean(-1), x.var(-1)), (t(4096, 512),)),
        Case(
            "rotary embedding 1x12x128x64",
            lambda q, c, s: q * c + torch.cat((-q[..., 32:], q[..., :32]), -1) * s,
            (t(1, 12, 128, 64), t(128, 64), t(128, 64)),
        ),
        Case(
            "rms norm, gate 256x1024",
            lambda x, g, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w * F.silu(g),
            (t(256, 1024), t(256, 1024), t(1024)),
        ),
    ]
    return found


class _Function(torch.nn.Module):
    """A function as a module, which can be saved."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


# The sides ----------------------------------------------------------------------------------------------------------


def ours(case: Case, path: Path) -> Callable[[], Any]:
    module = gpujit.optimize_for_inference(gpujit.load(path), example_inputs=[x.numpy() for x in case.inputs])
    inputs = [x.numpy() for x in case.inputs]
    return lambda: module(*inputs)


def peer(name: str, case: Case, traced: Any) -> Callable[[], Any] | None:
    """A call of the peer, or None when it is not installed or does not take the case."""
    if name == "eager":
        return lambda: case.function(*case.inputs)
    if name == "jit":
        frozen = torch.jit.optimize_for_inference(torch.jit.freeze(traced.eval()))
        return lambda: frozen(*case.inputs)
    if name == "compile":
        compiled = torch.compile(case.function)
        try:
            compiled(*case.inputs)
        except Exception:
            return None
        return lambda: compiled(*case.inputs)
    if name == "onnx":
        return onnx_peer(case, traced)
    return numexpr_peer(case)


def onnx_peer(case: Case, traced: Any) -> Callable[[], Any] | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    names = [f"i{k}" for k in range(len(case.inputs))]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = Path(folder) / "m.onnx"
        try:
            torch.onnx.export(traced, case.inputs, str(file), input_names=names, dynamo=False, opset_version=17)
        except Exception:
            return None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(_threads)
        session = onnxruntime.InferenceSession(file.read_bytes(), options, providers=["CPUExecutionProvider"])
    used = {i.name for i in session.get_inputs()}
    feed = {n: x.numpy() for n, x in zip(names, case.inputs) if n in used}
    return lambda: session.run(None, feed)


def numexpr_peer(case: Case) -> Callable[[], Any] | None:
    try:
        import numexpr
    except ImportError:
        return None
    if case.expression is None:
        return None
    text = case.expression
    values = {n: x.numpy() for n, x in zip("xy", case.inputs)}
    one = np.float32(1)
    values |= {"one": one, "zero": np.float32(0), "half": np.float32(0.5), "onehalf": np.float32(1.5)}
    return lambda: numexpr.evaluate(text, local_dict=values)


# Measuring ----------------------------------------------------------------------------------------------------------


# With one thread the processor's time is measured, which other programs on the machine disturb less.
clock = time.process_time if _threads == "1" else time.perf_counter
# Seconds until another side's threads sleep.
IDLE = 0.05


def times(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median microseconds of a call of each side, in interleaved rounds."""
    counts = {}
    for name, call in sides.items():
        for _ in range(3):
            call()
        start = clock()
        call()
        counts[name] = max(1, int(SHORTEST / max(clock() - start, 1e-7)))
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, call in sides.items():
            n = counts[name]
            if _threads != "1":
                # The other sides' threads wait awake for a while, on the processors that this one's need.
                time.sleep(IDLE)
                call()
            start = clock()
            for _ in range(n):
                call()
            found[name].append((clock() - start) / n)
    return {name: median(t) * 1e6 for name, t in found.items()}


def measure(case: Case, peers: list[str], rounds: int) -> dict[str, Any]:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(_Function(case.function).eval(), case.inputs, check_trace=False)
        path = Path(folder) / "case.pt"
        torch.jit.save(traced, str(path))
        sides = {"gpujit": ours(case, path)}
        for name in peers:
            call = peer(name, case, traced)
            if call is not None:
                sides[name] = call
        wanted = case.function(*case.inputs)
        got = sides["gpujit"]()
        for a, b in zip(got if isinstance(got, tuple) else (got,), wanted if isinstance(wanted, tuple) else (wanted,)):
            np.testing.assert_allclose(a, b.numpy(), rtol=2e-4, atol=2e-5, err_msg=case.name)
        size = case.bytes()
        a = np.ones(max(size // 8, 1), np.float32)
        b = np.ones_like(a)
        sides["copy"] = lambda: np.copyto(b, a)
        row = times(sides, rounds)
    copy = row.pop("copy")
    fastest = min((v for k, v in row.items() if k != "gpujit"), default=float("nan"))
    return {"case": case.name, **row, "best": fastest / row["gpujit"], "copy": copy / row["gpujit"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose names contain one of these, joined by commas")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    peers = [p for p in arguments.peers.split(",") if p]
    rows = []
    columns = ["gpujit", *peers]
    bar = " | "
    if arguments.markdown:
        print(f"| case | {bar.join(columns)} | best | copy |\n| --- |{' ---: |' * (len(columns) + 2)}")
    for case in cases():
        if arguments.only and not any(part in case.name for part in arguments.only.split(",")):
            continue
        row = measure(case, peers, arguments.rounds)
        rows.append(row)
        cells = [f"{row[c]:.0f}" if row.get(c, 0) >= 100 else f"{row[c]:.1f}" if c in row else "-" for c in columns]
        numbers = [f"{row['best']:.2f}", f"{row['copy']:.2f}"]
        if arguments.markdown:
            print(f"| {row['case']} | {bar.join([*cells, *numbers])} |", flush=True)
        else:
            shown = "  ".join(f"{c} {v}" for c, v in zip([*columns, "best", "copy"], [*cells, *numbers]))
            print(f"{row['case']:34} {shown}", flush=True)
    if rows:
        behind = [r["case"] for r in rows if r["best"] < 1]
        mean = geometric_mean([r["best"] for r in rows])
        print(f"\nfastest peer over gpujit, geometric mean of {len(rows)}: {mean:.2f}")
        print(f"behind the fastest peer: {', '.join(behind) or 'none'}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
