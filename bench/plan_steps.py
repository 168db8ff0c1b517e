"""Where a plan's time goes: each step's shape, time, and its rate against what the machine reaches."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import prod
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

import gpujit
from gpujit.ir.graph import Graph, Node, Value
from gpujit.kernels import supply
from gpujit.kernels.target import host
from gpujit.static_runtime.places import facts_of
from gpujit.static_runtime.run import Arena, TimedArena

_ROUNDS, _CHAINS = 200_000, 12


def peak_gflops() -> float:
    """GFLOP/s of multiply-and-add on float32 vectors in registers, on one thread."""
    kind = f"<{host().width} x float>"
    chains = range(_CHAINS)
    lines = ["define void @gpujit_bench_peak(ptr %out) {", "entry:"]
    lines += [f"  %x = load {kind}, ptr %out, align 4", "  br label %loop"]
    lines += ["loop:", "  %i = phi i64 [0, %entry], [%n, %loop]"]
    lines += [f"  %a{k} = phi {kind} [%x, %entry], [%b{k}, %loop]" for k in chains]
    name = f"llvm.fma.v{host().width}f32"
    lines += [f"  %b{k} = call {kind} @{name}({kind} %a{k}, {kind} %x, {kind} %x)" for k in chains]
    lines += ["  %n = add i64 %i, 1", f"  %more = icmp ult i64 %n, {_ROUNDS}"]
    lines += ["  br i1 %more, label %loop, label %end", "end:"]
    for k in chains:
        lines += [f"  %at{k} = getelementptr {kind}, ptr %out, i64 {k}", f"  store {kind} %b{k}, ptr %at{k}, align 4"]
    lines += ["  ret void", "}", f"declare {kind} @{name}({kind}, {kind}, {kind})"]
    text = "\n".join(lines)
    library = supply.module(text, lambda: text, 1)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("gpujit_bench_peak"))
    numbers = np.full(host().width * _CHAINS, 0.5, np.float32)
    found = []
    for _ in range(9):
        start = perf_counter()
        call(numbers.ctypes.data)
        found.append(perf_counter() - start)
    return 2 * _ROUNDS * _CHAINS * host().width / min(found) / 1e9


def bandwidth(size: int) -> float:
    """GB/s, read and written together, of copying ``size`` bytes again and again."""
    a, b = np.ones(size, np.uint8), np.ones(size, np.uint8)
    repeats = max(1, (64 << 20) // size)
    found = []
    for _ in range(7):
        start = perf_counter()
        for _ in range(repeats):
            np.copyto(a, b)
        found.append((perf_counter() - start) / repeats)
    return 2 * size / min(found) / 1e9


def flops(node: Node) -> int:
    """Multiplications and additions of a node by its definition; 0 for what does few of them for each number."""
    shapes = [s[0] if (s := facts_of(v)) is not None else None for v in node.inputs]
    out = facts_of(node.outputs[0]) if node.outputs else None
    if out is None:
        return 0
    size, name = prod(out[0]), node.kind.partition("::")[2]
    if name in ("conv1d", "conv2d", "_convolution") and shapes[1]:
        return 2 * size * prod(shapes[1][1:])
    if name in ("linear", "mm", "bmm", "matmul") and shapes[0]:
        return 2 * size * shapes[0][-1]
    if name == "addmm" and shapes[1]:
        return 2 * size * shapes[1][-1]
    if name == "scaled_dot_product_attention" and shapes[0] and shapes[1]:
        return 4 * size * shapes[1][-2]
    if name in ("lstm", "gru"):
        weights = [v for v in node.inputs[2].node.inputs if (f := facts_of(v)) and len(f[0]) == 2]
        steps = prod(shapes[0][:-1]) if shapes[0] else 0
        return 2 * steps * sum(prod(f[0]) for v in weights if (f := facts_of(v)))
    return 0


def moved(nodes: list[Node]) -> int:
    """Bytes of the tensors that a step of these nodes reads and writes, each once."""
    inside = {v for n in nodes[:-1] for v in n.outputs}
    values = dict.fromkeys(v for n in nodes for v in (*n.inputs, *n.outputs) if v not in inside)
    facts = [facts_of(v) for v in values]
    return sum(prod(f[0]) * f[1].itemsize for f in facts if f is not None)


def parts(node: Node, order: set[Node]) -> list[Node]:
    """A step's node behind those that are done in the same step: they stand in no step of their own."""
    for value in node.inputs:
        first = value.node
        if first is not None and first not in order and first.kind not in ("prim::Constant", "prim::Param"):
            return [*parts(first, order), node]
    return [node]


def _label(nodes: list[Node]) -> str:
    names = []
    for node in nodes:
        inner = node.attributes.get("Subgraph")
        names += list(inner.all_nodes()) if isinstance(inner, Graph) else [node]
    kinds = [n.kind.partition("::")[2] for n in names if n.kind not in ("prim::Constant", "prim::ListConstruct")]
    return "+".join(f"{k} x{n}" if n > 1 else k for k, n in ((k, len(list(g))) for k, g in groupby(kinds)))


def _shape(value: Value) -> str:
    found = facts_of(value)
    return "-" if found is None else "x".join(map(str, found[0])) or "0-dim"


def _shapes(nodes: list[Node]) -> str:
    ins = [_shape(v) for v in nodes[0].inputs if facts_of(v) is not None]
    return f"{', '.join(ins[:3])} -> {', '.join(map(_shape, nodes[-1].outputs))}"


@dataclass(frozen=True)
class Step:
    """A step of a plan: its nodes (none for an instruction in Python), what runs it, the seconds of its shortest run.

    Other work on the machine only adds to them.
    """

    nodes: list[Node]
    tier: str
    label: str
    seconds: float
    # Processor time of the whole and of the larger of two parts, again and again by itself; 0 for steps in Python.
    alone: float = 0.0
    half: float = 0.0

    @property
    def flops(self) -> int:
        return sum(map(flops, self.nodes))


def in_parts(plan: Any, values: list[Any]) -> dict[int, tuple[float, float]]:
    """Processor seconds of each native step and of the larger of its two parts, which are run one after the other.

    So the work's division can be seen on a machine that has something else to do. A step finds its arrays in the cache.
    """
    runtime = Arena(plan)
    runtime.make_scratch(2)
    # Held, since steps write into the arrays of the last run.
    kept = [runtime.run(values) for _ in range(2)]
    found: dict[int, tuple[float, float]] = {}
    number = 0
    for segment in plan.segments:
        for step in segment.steps:
            call = _STEP(int(plan.functions[number]))
            block = int(runtime.block_addresses[number])
            number += 1
            half = max(_seconds(partial(call, block, part, 2)) for part in (0, 1))
            found[step.position] = _seconds(partial(call, block, 0, 1)), half
    del kept
    return found


_STEP = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def _seconds(call: Callable[[], Any]) -> float:
    """The shortest processor time of some calls."""
    call()
    start = process_time()
    call()
    count = max(1, int(2e-4 / (process_time() - start + 1e-9)))
    found = []
    for _ in range(5):
        start = process_time()
        for _ in range(count):
            call()
        found.append((process_time() - start) / count)
    return min(found)


def steps_of(path: Path, given: list[Any], rounds: int) -> tuple[list[Step], float]:
    """The steps of a model's plan, and the median seconds of a call."""
    module = gpujit.optimize_for_inference(gpujit.load(path))
    for _ in range(3):
        module(*given)
    executor = module._program.executor(module._object.type.methods["forward"])
    values = [module._object, *given]
    plan = executor.plan_for(values).runner.plan(values)
    runtime = TimedArena(plan)
    runtime.run(values)
    found: dict[int, list[float]] = defaultdict(list)
    whole = []
    for _ in range(rounds):
        runtime.recorder.clear()
        runtime.run(values)
        taken = runtime.recorder.taken()
        for number, seconds in zip(taken.numbers, taken.seconds[0].tolist(), strict=True):
            found[number].append(seconds)
        start = perf_counter()
        module(*given)
        whole.append(perf_counter() - start)
    order = set(plan.order)
    halves = in_parts(plan, values)
    steps = []
    for number, seconds in found.items():
        if number < 0:
            steps.append(Step([], "python", plan.code.kinds[-1 - number], min(seconds)))
            continue
        nodes = parts(plan.order[number], order)
        steps.append(Step(nodes, plan.kinds[nodes[-1]], _label(nodes), min(seconds), *halves.get(number, (0.0, 0.0))))
    return sorted(steps, key=lambda s: -s.seconds), median(whole)


def show(folder: Path, case: str, rounds: int) -> None:
    """Print the table of one case."""
    from model_cases import read

    name, path, given = next(row for row in read(folder, [case]))
    peak, near, far = peak_gflops(), bandwidth(256 << 10), bandwidth(64 << 20)
    steps, whole = steps_of(path, given, rounds)
    total = sum(s.seconds for s in steps)
    work = sum(s.flops for s in steps)
    print(f"{name}: a call {whole * 1e6:,.1f} us; the steps one by one {total * 1e6:,.1f} us; {len(steps)} steps")
    print(f"one thread: {peak:.0f} GFLOP/s; copies: {near:.0f} GB/s of 256 KB, {far:.0f} GB/s of 64 MB")
    floor = work / peak / 1e9
    print(f"{work / 1e9:.2f} GFLOP, {floor * 1e6:,.0f} us at that rate, {floor / whole:.2f} of the call")
    alone, half = sum(s.alone for s in steps), sum(s.half for s in steps)
    print(f"native steps alone: {alone * 1e6:,.1f} us, the larger halves {half * 1e6:,.1f} us ({alone / half:.2f})\n")
    for attribute in ("tier", "label"):
        sums: dict[str, float] = defaultdict(float)
        for step in steps:
            sums[getattr(step, attribute)] += step.seconds
        for label, seconds in sorted(sums.items(), key=lambda r: -r[1])[:14]:
            print(f"  {seconds / total:6.1%}  {label[:100]}")
    print(f"\n{'us':>9} {'share':>6} {'half us':>9} {'GFLOP/s':>8} {'GB/s':>6}  step")
    for step in steps:
        done = step.flops
        rate = f"{done / step.seconds / 1e9:8.0f}" if done else " " * 8
        bytes_rate = f"{moved(step.nodes) / step.seconds / 1e9:6.1f}" if step.nodes else " " * 6
        text = f"{step.label[:70]}  {_shapes(step.nodes)}" if step.nodes else step.label
        text = text if step.tier == "native" else f"[{step.tier}] {text}"
        half_us = f"{step.half * 1e6:9.1f}"
        print(f"{step.seconds * 1e6:9.1f} {step.seconds / total:6.1%} {half_us} {rate} {bytes_rate}  {text}")
