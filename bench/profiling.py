"""What profiling costs, and whether its numbers agree with one another and with calls that nobody watches.

Usage: python bench/profiling.py [FILE INPUT...] [--rounds 60] [--calls 200]

INPUTs are given as to ``gpujit run``; without a FILE it is examples/classifier.pt. All sides take turns in one process:

- off: what a call pays for being able to be profiled: two look-ups.
- on: calls in a block of ``gpujit.profile()`` against calls outside of it, and every call seen, as ``profile_module``
  sees them. Set GPUJIT_THREADS=1: the processor time of the calling thread is taken, which other work leaves alone.
- sum: the rows of a profile added up, against the call.
- fused, unfused: what the profile says of the whole plan, against what the plan's own benchmark says; and what the
  groups save, each by itself, added up, against what the whole saves.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from time import thread_time
from timeit import timeit
from typing import Any

import gpujit
from gpujit.cli.inputs import read_inputs
from gpujit.profiler.collect import Profiler
from gpujit.runtime.values import bind_arguments
from gpujit.support.watch import entering, running

EXAMPLE = Path(__file__).parents[1] / "examples" / "classifier.pt"


def seconds(call: Callable[[], Any], count: int) -> float:
    """Seconds of this thread's processor time for one of so many calls."""
    start = thread_time()
    for _ in range(count):
        call()
    return (thread_time() - start) / count


def overhead(call: Callable[[], Any], rounds: int, calls: int, samples: bool) -> tuple[float, float]:
    """A call outside, and how many times as long it takes in a profiled block.

    Of the rounds, in which both take turns, the first quartile counts: other work on the machine only adds to them.
    """
    profiler = Profiler(ceilings=False, samples=samples)
    with profiler.again():
        seconds(call, 30)
    found: dict[str, list[float]] = {"off": [], "on": []}
    for k in range(rounds):
        for side in ("off", "on") if k % 2 else ("on", "off"):
            call()
            if side == "off":
                found[side].append(seconds(call, calls))
                continue
            with profiler.again():
                found[side].append(seconds(call, calls))
    off, on = (quantiles(found[side], n=4)[0] for side in ("off", "on"))
    return off, on / off


def looking_up() -> float:
    """Seconds that the two look-ups of a call take while nobody watches."""
    count = 200_000
    looks = [timeit("if e() is not None: pass\nif r() is not None: pass", number=count,
                    globals={"e": entering.get, "r": running.get}) for _ in range(5)]  # fmt: skip
    return min(looks) / count


def show(path: str, given: Sequence[Any], rounds: int, calls: int) -> None:
    """Print all of one model."""
    module = gpujit.optimize_for_inference(gpujit.load(path))

    def call() -> Any:
        return module(*given)

    for _ in range(5):
        call()
    count = max(1, min(calls, int(0.02 / seconds(call, 3))))
    looks = looking_up()
    off, sampled = overhead(call, rounds, count, samples=True)
    _, all_seen = overhead(call, rounds, count, samples=False)
    print(f"{path}: a call takes {off * 1e6:.1f} us")
    print(f"  off: {looks * 1e9:.0f} ns of look-ups, {looks / off:.2%} of the call")
    print(f"  on: {sampled:.3f} times the call in a block; {all_seen:.3f} when every call is seen")
    found = gpujit.profile_module(module, given, rounds=rounds)
    print(f"  sum of steps over the call: {found.total / found.watched.median:.3f}")
    if found.fused is None or found.unfused is None or found.speedup is None:
        return
    function = module._object.type.methods["forward"]
    values = [module._object, *bind_arguments(function.schema, tuple(given), {}, skip=1)]
    plan = module._program.executor(function).plan_for(values)
    own = [plan.runner.benchmark(values, 5, rounds).seconds for _ in range(5)]
    print(f"  fused, by the profile {found.fused.median * 1e6:.1f} us, by the benchmark {median(own) * 1e6:.1f} us")
    timed = [g for g in found.groups if g.fused is not None and g.unfused is not None]
    saved = sum(g.unfused.median - g.fused.median for g in timed)
    whole = found.unfused.median - found.fused.median
    print(
        f"  unfused over fused {found.speedup.median:.3f} ({found.speedup.low:.3f} to {found.speedup.high:.3f}); "
        f"the groups save {saved * 1e6:.1f} us, the whole {whole * 1e6:.1f} us of {found.unfused.median * 1e6:.1f} us"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default=str(EXAMPLE))
    parser.add_argument("inputs", nargs="*", metavar="INPUT")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=200)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    inputs = arguments.inputs or (["1x3x32x32"] if arguments.file == str(EXAMPLE) else [])
    show(arguments.file, list(read_inputs(inputs, 0)), arguments.rounds, arguments.calls)


if __name__ == "__main__":
    main()
