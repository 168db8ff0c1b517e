"""What runtimes keep between runs: arenas go with their plans, and large ones only wait as long as there is room."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import gpujit
from gpujit.runtime import executor
from gpujit.static_runtime import idle
from gpujit.static_runtime.idle import Idle, pool
from gpujit.static_runtime.steps import Options
from tests.programs import archive, forward, module
from tests.static_runtime.help import f32, from_text

ROOT = Path(__file__).parents[2]


class Thing:
    """Something large."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "_shelf", idle._Shelf())
    monkeypatch.setattr(idle, "MOST", 100)


def test_what_came_longest_ago_is_dropped_first() -> None:
    pools = [Idle[Thing]() for _ in range(4)]
    for p in pools[:3]:
        p.append(Thing(40))
    assert [len(p) for p in pools] == [0, 1, 1, 0]
    # What runs is not counted, and comes back as the latest.
    pools[1].append(pools[1].pop())
    pools[3].append(Thing(40))
    assert [len(p) for p in pools] == [0, 1, 0, 1]
    pools[0].append(Thing(1000))
    assert [len(p) for p in pools] == [1, 0, 0, 0]


def test_a_plan_that_many_threads_run_keeps_all_of_its_own() -> None:
    mine, other = Idle[Thing](), Idle[Thing]()
    other.append(Thing(30))
    for _ in range(5):
        mine.append(Thing(60))
    assert (len(mine), len(other)) == (5, 0)


def test_nothing_is_kept_alive() -> None:
    shelf = idle._shelf
    kept = Idle[Thing]()
    kept.append(Thing(40))
    gone = weakref.ref(next(iter(kept)))
    del kept
    assert gone() is None and not shelf._entries and shelf._total == 0


def test_small_ones_are_a_list() -> None:
    assert isinstance(pool(idle.LARGE - 1), list) and isinstance(pool(idle.LARGE), Idle)


def test_threads_lose_and_count_nothing_twice() -> None:
    pools = [Idle[Thing]() for _ in range(3)]

    def work(k: int) -> None:
        for i in range(300):
            p = pools[(k + i) % 3]
            try:
                thing = p.pop()
            except IndexError:
                thing = Thing(30)
            p.append(thing)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    waiting = sum(len(p) for p in pools)
    assert waiting and idle._shelf._total == sum(e.size for e in idle._shelf._entries.values()) == 30 * waiting


LAYERS = """
    graph(%x : Float(N, 512), %w : Float(512, 512)):
      %1 : Float(N, 512) = aten::mm(%x, %w)
      %2 : Float(N, 512) = aten::relu(%1)
      %3 : Float(N, 512) = aten::mm(%2, %w)
      return (%3)"""


def test_large_arenas_of_many_sizes_are_given_back_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "MOST", 5 << 20)
    w = f32(512, 512) / 16
    modules = {n: from_text(LAYERS.replace("N", str(n)), Options(out_bytes=0)) for n in (600, 900, 1200)}
    for n in (600, 900, 1200, 600, 900, 1200):
        x = f32(n, 512)
        np.testing.assert_allclose(modules[n].run([x, w]), np.maximum(x @ w, 0) @ w, rtol=1e-3, atol=1e-4)
        assert modules[n].memory().runtimes == 1
        assert sum(m.memory().arena * len(m._idle) for m in modules.values() if m._plan is not None) <= 5 << 20


def test_a_dropped_plan_frees_its_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "MAX_PLANS", 2)
    fast = gpujit.optimize_for_inference(gpujit.load(archive(module(forward(
        "x: Tensor", "return torch.mm(torch.relu(torch.mm(x, torch.t(x))), x)")))))  # fmt: skip
    run = fast._program.executor(fast._object.type.methods["forward"])
    arenas = []
    for n in (40, 50, 60, 70):
        fast(f32(n, 8))
        (runtime,) = run.plans()[-1].runner._idle
        arenas.append(weakref.ref(runtime.memory))
        del runtime
    assert [a() is None for a in arenas] == [True, True, False, False]
    assert run.counters.dropped == 2


SIZES = """
import sys, numpy as np, gpujit
from tests.static_runtime.help import CORPUS, read_case

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096

fast = gpujit.optimize_for_inference(gpujit.load(CORPUS / "convs_script.pt").eval())
case = read_case(CORPUS / "convs_script.pt")
seen = []
for k in range(500):
    fast(*[np.repeat(x, 1 + k * 7919 % 500, axis=0) for x in case])
    seen.append(resident())
print(max(seen[100:200]), max(seen[400:]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_memory_stays_the_same_over_many_sizes() -> None:
    out = subprocess.run([sys.executable, "-c", SIZES], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    early, late = map(int, out.split())
    assert late < 1.1 * early
