"""Throughput of the vector functions against PyTorch, one thread, in one process run.

    python bench/vector_math.py                      table over all functions, 65,536 elements
    python bench/vector_math.py --dtype float64 exp  some of them, in another type
    python bench/vector_math.py --compile            what a kernel costs to compile

Arrays are aligned to 64 bytes, as a plan's arena is; medians over interleaved rounds.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpujit.kernels import native
from gpujit.kernels.emit import KernelWriter
from gpujit.kernels.math import FUNCTIONS
from gpujit.kernels.target import host
from gpujit.kernels.vector import Vector

POSITIVE = ("log", "log2", "log10", "sqrt", "rsqrt", "pow")
WITHIN_ONE = ("asin", "acos", "atanh")


def aligned(x: np.ndarray) -> np.ndarray:
    """A copy whose data begin at a multiple of 64."""
    raw = np.empty(x.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start : start + x.nbytes].view(x.dtype)
    copy[:] = x
    return copy


def write(name: str, dtype: str, chain: int = 1) -> str:
    """LLVM IR of a kernel that applies the function ``chain`` times."""
    function, lanes = FUNCTIONS[name], host().lanes(int(dtype[-2:]))
    writer = KernelWriter()
    with writer.kernel("bench") as k:
        places = [k.pointer(slot) for slot in range(function.arity + 1)]

        def body(i: Vector, mask: Vector | None) -> None:
            arguments = [k.e.load(p, i.value, dtype, lanes, mask, other=1) for p in places[:-1]]
            for _ in range(chain):
                arguments[0] = function(k.e, *arguments)
            k.e.store(places[-1], i.value, arguments[0], mask=mask)

        k.vector_loop(k.integer(function.arity + 1), lanes, body)
    return str(writer)


def inputs(name: str, dtype: str, n: int) -> list[np.ndarray]:
    x = np.random.default_rng(0).standard_normal(n) * 3
    if name in POSITIVE:
        first = np.abs(x) + 0.01
    elif name in WITHIN_ONE:
        first = np.tanh(x * 0.3)
    else:
        first = np.abs(x) + 1 if name == "acosh" else x
    return [aligned(a.astype(dtype)) for a in (first, np.roll(x, 7))[: FUNCTIONS[name].arity]]


def medians(candidates: list[Callable[[], object]], rounds: int) -> list[float]:
    """Microseconds of each, measured in turn so that a busy machine slows all alike."""
    times: list[list[float]] = [[] for _ in candidates]
    for _ in range(rounds):
        for i, call in enumerate(candidates):
            start = time.perf_counter()
            call()
            times[i].append((time.perf_counter() - start) * 1e6)
    return [statistics.median(t) for t in times]


def torch_function(name: str) -> Callable[..., object]:
    import torch
    import torch.nn.functional as F

    special = {
        "silu": F.silu, "gelu": F.gelu, "softplus": F.softplus, "log_sigmoid": F.logsigmoid,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    }  # fmt: skip
    return special.get(name) or getattr(torch, name)


def throughput(names: list[str], dtype: str, n: int, rounds: int) -> None:
    with_torch = importlib.util.find_spec("torch") is not None
    if with_torch:
        import torch

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
    print(f"{n} {dtype}, {host().cpu}, {host().width} floats a vector; us, median of {rounds}")
    ratios = []
    for name in names:
        arrays = inputs(name, dtype, n)
        out = aligned(np.empty_like(arrays[0]))
        kernel = native.Library(native.compile_ir([write(name, dtype)])).kernel("bench")
        block = native.pack_block([*arrays, out, n])
        address = block.ctypes.data
        candidates: list[Callable[[], object]] = [lambda k=kernel, a=address: k(a)]  # type: ignore[misc]
        if with_torch:
            tensors = [torch.from_numpy(a) for a in arrays]
            theirs_function = torch_function(name)
            candidates.append(lambda f=theirs_function, t=tensors: f(*t))  # type: ignore[misc]
        ours, *theirs = medians(candidates, rounds)
        line = f"{name:12} {ours:8.1f}"
        if theirs:
            ratios.append(theirs[0] / ours)
            line += f"   torch {theirs[0]:8.1f}   {ratios[-1]:5.2f}x"
        print(line, flush=True)
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.2f}x, slower in {sum(r < 0.97 for r in ratios)}")


def compile_cost(rounds: int) -> None:
    """Prints milliseconds a kernel, by the steps of making it."""
    for name, chain in (("floor", 1), ("exp", 1), ("silu", 1), ("tanh", 4), ("pow", 1)):
        times: dict[str, list[float]] = {}

        def timed(step: str, call: Callable[[], object], times: dict[str, list[float]] = times) -> object:
            start = time.perf_counter()
            result = call()
            times.setdefault(step, []).append((time.perf_counter() - start) * 1e3)
            return result

        for _ in range(rounds):
            text = timed("write", lambda: write(name, "float32", chain))  # noqa: B023
            image = timed("optimised", lambda: native.compile_ir([text]))  # type: ignore[list-item]  # noqa: B023
            timed("tidy", lambda: native.compile_ir([text], native.TIDY))  # type: ignore[list-item]  # noqa: B023
            timed("load", lambda: native.Library(image))  # type: ignore[arg-type]  # noqa: B023
        line = "  ".join(f"{step} {statistics.median(t):6.1f}" for step, t in times.items())
        print(f"{chain} x {name:8} ms: {line}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="FUNCTION")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--size", type=int, default=65536)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    if options.compile:
        compile_cost(min(options.rounds, 7))
    else:
        throughput(options.names or list(FUNCTIONS), options.dtype, options.size, options.rounds)


if __name__ == "__main__":
    main()
