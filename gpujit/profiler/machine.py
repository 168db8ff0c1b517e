"""What this machine reaches at most: bytes per second of copies in each level of memory, and multiply-and-adds.

Measured once by native code, alone and with the whole team of threads, and kept on disk beside the compiled kernels
under the machine's identity: a later process reads it. Numbers are the best of several runs, since whatever else the
machine does only makes them smaller.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from gpujit.kernels import supply
from gpujit.kernels.cache import store
from gpujit.kernels.cache_files import read, write
from gpujit.kernels.target import host
from gpujit.kernels.team import alone, caller, team
from gpujit.profiler.data import BUS, Ceiling, Machine, Peak
from gpujit.support.config import config
from gpujit.support.progress import Stage
from gpujit.support.threads import thread_count

# Part of the identity: another way of measuring makes other numbers.
_METHOD = 2
_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
# Bytes of caches where the system does not tell.
_USUAL = {"L1": 32 << 10, "L2": 1 << 20, "L3": 16 << 20}
_LARGEST = 1 << 30
# Seconds that one run of a measurement takes at least, and how many there are.
_LEAST, _RUNS = 1e-3, 12
_CHAINS, _ROUNDS = 12, 20_000


def machine(measure: bool = True) -> Machine:
    """This machine; with what it reaches unless ``measure`` is False."""
    threads = thread_count()
    found = Machine(processor(), os.cpu_count() or 1, threads, f"{host().width} x float32")
    if not measure:
        return found
    bandwidths, peaks = kept_ceilings(_identity(found), measured)
    return replace(found, bandwidths=bandwidths, peaks=peaks)


@cache
def processor() -> str:
    """The processor's name, as the system tells it."""
    with suppress(OSError):
        for line in _CPUINFO.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip().lower() in ("model name", "cpu model", "processor name") and value.strip():
                return f"{value.strip()} ({host().cpu})"
    return platform.processor() or host().cpu or platform.machine()


def _identity(found: Machine) -> str:
    facts = (_METHOD, found.processor, found.cores, found.threads, found.vector, sorted(cache_sizes().items()))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


@cache
def cache_sizes() -> dict[str, int]:
    """Bytes of each level of cache that one processor reaches."""
    found = {}
    for folder in sorted(_CACHES.glob("index*")):
        with suppress(OSError, ValueError):
            if (folder / "type").read_text().strip() in ("Data", "Unified"):
                level = f"L{int((folder / 'level').read_text())}"
                text = (folder / "size").read_text().strip().upper()
                unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
                found[level] = int(text.rstrip("KMG")) * unit
    return found or dict(_USUAL)


Ceilings = tuple[tuple[Ceiling, ...], tuple[Peak, ...]]
_known: dict[str, Ceilings] = {}


def kept_ceilings(identity: str, measure: Callable[[], Ceilings]) -> Ceilings:
    """What is known of a machine; measured, and kept on disk, when that is nothing."""
    found = _known.get(identity)
    if found is None:
        found = _read(identity)
        if found is None:
            found = measure()
            _write(identity, found)
        _known[identity] = found
    return found


def _path(identity: str) -> Path | None:
    place = store()
    return None if place is None or not config.cache else place.folder / f"machine-{identity}.json"


def _read(identity: str) -> Ceilings | None:
    path = _path(identity)
    data = None if path is None else read(path)
    if data is None:
        return None
    # Damaged, or of another version: as good as absent.
    with suppress(ValueError, TypeError, KeyError):
        found = json.loads(data)
        bandwidths = tuple(
            Ceiling(str(b["level"]), int(b["size"]), float(b["bandwidth"]), int(b["threads"]))
            for b in found["bandwidths"]
        )
        peaks = tuple(Peak(int(p["threads"]), float(p["rate"]), str(p["dtype"])) for p in found["peaks"])
        if bandwidths and peaks and all(b.bandwidth > 0 for b in bandwidths) and all(p.rate > 0 for p in peaks):
            return bandwidths, peaks
    return None


def _write(identity: str, found: Ceilings) -> None:
    path = _path(identity)
    if path is None:
        return
    bandwidths, peaks = found
    data: dict[str, Any] = {
        "bandwidths": [
            {"level": b.level, "size": b.size, "bandwidth": b.bandwidth, "threads": b.threads} for b in bandwidths
        ],
        "peaks": [{"threads": p.threads, "rate": p.rate, "dtype": p.dtype} for p in peaks],
    }
    # Measured again by the next process where it cannot be kept.
    with suppress(OSError):
        write(path, json.dumps(data).encode())


def measured() -> Ceilings:
    """Bandwidths of all levels and peaks, alone and with all threads. Takes about a second."""
    sizes = cache_sizes()
    # Half of a cache holds what is read, half what is written; less, so that other data have room.
    working = {level: size * 3 // 4 for level, size in sorted(sizes.items())}
    last = max(sizes.values())
    working["memory"] = min(max(4 * last, 64 << 20), _LARGEST)
    counts = sorted({1, thread_count()})
    bandwidths = []
    with Stage("measure what the machine reaches", len(counts) * len(working)) as stage:
        for n in counts:
            for level, size in working.items():
                rate = _bandwidth(size if level in ("L3", "memory") else size * n, n)
                bandwidths.append(Ceiling(level, size, rate, n))
                stage.advance()
        peaks = tuple(Peak(n, _peak(n)) for n in counts)
    return tuple(bandwidths), peaks


def _best(call: Callable[[], None], amount: float) -> float:
    """Amount per second of the fastest of some runs of enough calls each."""
    call()
    start = perf_counter()
    call()
    repeats = max(1, int(_LEAST / max(perf_counter() - start, 1e-7)))
    found = []
    for _ in range(_RUNS if repeats > 1 else 4):
        start = perf_counter()
        for _ in range(repeats):
            call()
        found.append((perf_counter() - start) / repeats)
    return amount / min(found)


def _step(name: str, block: np.ndarray, threads: int) -> Callable[[], None]:
    """A call of a native step by so many threads."""
    address, run = _library().address(name), caller()
    at = int(block.ctypes.data)
    workers = alone() if threads == 1 else team().address

    def call() -> None:
        run(workers, address, at, 0)

    return call


def _bandwidth(size: int, threads: int) -> float:
    """Bytes read and written per second of copying half of ``size`` bytes to the other half."""
    line = 64 * host().width
    half = max(size // 2 // line * line, line * threads)
    memory = np.ones(2 * half + 64, np.uint8)
    start = -memory.ctypes.data % 64 + memory.ctypes.data
    # Calls cost more than copies of small caches' worth: the copy goes round inside.
    rounds = max(1, (1 << 20) // half)
    block = np.array([start, start + half, half // 64, rounds], np.int64)
    return _best(_step("gpujit_copy", block, threads), 2.0 * half * rounds)


def _peak(threads: int) -> float:
    """Floating-point operations per second of multiply-and-add on float32 vectors in registers."""
    parts = max(threads, 1)
    numbers = np.full(host().width * _CHAINS * parts, 0.5, np.float32)
    block = np.array([numbers.ctypes.data, parts], np.int64)
    return _best(_step("gpujit_peak", block, threads), 2.0 * _ROUNDS * _CHAINS * host().width * parts)


@cache
def _library() -> Any:
    text = _copy_ir() + _peak_ir()
    return supply.module(text, lambda: text, 1)


def _copy_ir() -> str:
    """``gpujit_copy(block, part, parts)``: block: from, to, lines of 64 bytes, rounds."""
    return """
define void @gpujit_copy(ptr %block, i64 %part, i64 %parts) {
entry:
  %to.at = getelementptr i64, ptr %block, i64 1
  %lines.at = getelementptr i64, ptr %block, i64 2
  %rounds.at = getelementptr i64, ptr %block, i64 3
  %from = load ptr, ptr %block
  %to = load ptr, ptr %to.at
  %lines = load i64, ptr %lines.at
  %rounds = load i64, ptr %rounds.at
  %p = mul i64 %lines, %part
  %first = udiv i64 %p, %parts
  %n = add i64 %part, 1
  %q = mul i64 %lines, %n
  %last = udiv i64 %q, %parts
  %any = icmp ult i64 %first, %last
  br i1 %any, label %round, label %out
round:
  %r = phi i64 [0, %entry], [%r.next, %done]
  br label %line
line:
  %i = phi i64 [%first, %round], [%i.next, %line]
  %source = getelementptr <16 x float>, ptr %from, i64 %i
  %target = getelementptr <16 x float>, ptr %to, i64 %i
  %x = load volatile <16 x float>, ptr %source, align 64
  store volatile <16 x float> %x, ptr %target, align 64
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %last
  br i1 %more, label %line, label %done
done:
  %r.next = add i64 %r, 1
  %again = icmp ult i64 %r.next, %rounds
  br i1 %again, label %round, label %out
out:
  ret void
}
"""


def _peak_ir() -> str:
    """``gpujit_peak(block, part, parts)``: block: numbers for each part, and for how many parts there are."""
    width = host().width
    kind, chains = f"<{width} x float>", range(_CHAINS)
    fma = f"@llvm.fma.v{width}f32"
    lines = [
        "define void @gpujit_peak(ptr %block, i64 %part, i64 %parts) {",
        "entry:",
        "  %numbers = load ptr, ptr %block",
        "  %count.at = getelementptr i64, ptr %block, i64 1",
        "  %count = load i64, ptr %count.at",
        "  br label %share",
        # A part that is alone does the work of all.
        "share:",
        "  %s = phi i64 [%part, %entry], [%s.next, %end]",
        f"  %skip = mul i64 %s, {width * _CHAINS}",
        "  %out = getelementptr float, ptr %numbers, i64 %skip",
        f"  %x = load {kind}, ptr %out, align 4",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [0, %share], [%n, %loop]",
    ]
    lines += [f"  %a{k} = phi {kind} [%x, %share], [%b{k}, %loop]" for k in chains]
    lines += [f"  %b{k} = call {kind} {fma}({kind} %a{k}, {kind} %x, {kind} %x)" for k in chains]
    lines += ["  %n = add i64 %i, 1", f"  %more = icmp ult i64 %n, {_ROUNDS}", "  br i1 %more, label %loop, label %end"]
    lines += ["end:"]
    for k in chains:
        lines += [f"  %at{k} = getelementptr {kind}, ptr %out, i64 {k}", f"  store {kind} %b{k}, ptr %at{k}, align 4"]
    lines += [
        "  %s.next = add i64 %s, %parts",
        "  %others = icmp ult i64 %s.next, %count",
        "  br i1 %others, label %share, label %done",
        "done:",
        "  ret void",
        "}",
        f"declare {kind} {fma}({kind}, {kind}, {kind})",
    ]
    return "\n".join(lines) + "\n"


def bandwidth_of(machine: Machine, size: int, threads: int) -> float | None:
    """Bytes per second that so many threads reach on so many bytes; None when that was not measured."""
    rows = [b for b in machine.bandwidths if b.level != BUS]
    rows = [b for b in rows if b.threads == _nearest(threads, [b.threads for b in rows])]
    rows.sort(key=lambda b: b.size)
    for row in rows:
        if size <= row.size * (1 if row.level in ("L3", "memory") else threads):
            return row.bandwidth
    return rows[-1].bandwidth if rows else None


def bus_of(machine: Machine) -> float | None:
    """Bytes per second from the host to the device; None when that was not measured."""
    return next((b.bandwidth for b in machine.bandwidths if b.level == BUS), None)


def peak_of(machine: Machine, threads: int, dtype: str = "float32") -> float | None:
    """Operations per second on numbers of a dtype (of float32 where none were measured for it) that so many threads
    reach; None when that was not measured."""
    peaks = [p for p in machine.peaks if p.dtype == dtype] or [p for p in machine.peaks if p.dtype == "float32"]
    wanted = _nearest(threads, [p.threads for p in peaks])
    return next((p.rate for p in peaks if p.threads == wanted), None)


def _nearest(threads: int, counts: list[int]) -> int:
    return min(counts, key=lambda n: abs(n - threads), default=threads)
