"""One module called from many threads: same results, no lost writes, first calls and loads at the same time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import gpujit
from tests.programs import Obj, archive, forward, module

THREADS = 8


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    """Threads take turns after every few instructions, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """What ``work(0)`` to ``work(7)`` give when they start together."""
    barrier = Barrier(THREADS)

    def run(i: int) -> Any:
        barrier.wait()
        return work(i)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def source() -> str:
    """Calls through functions, methods, an interface and classes in several places."""
    body = "y = x\nfor i in range(n):\n  y = torch.add((self.i).step(y, ), __torch__.f(y, i, ))\nreturn y"
    text = module(forward("x: Tensor, n: int", body), "i : __torch__.I\nseen : List[int]")
    text += "class I(ModuleInterface):\n  def step(self, x: Tensor) -> Tensor:\n    pass\n"
    text += "class A(Module):\n  w : Tensor\n  def step(self, x: Tensor) -> Tensor:\n    return torch.mul(x, self.w)\n"
    for i in range(20):
        text += f"def f{i}(x: Tensor, n: int) -> Tensor:\n  return torch.add(torch.mul(x, {i}), n)\n"
    calls = "".join(f"  y = torch.add(y, __torch__.f{i}(x, n, ))\n" for i in range(20))
    return text + f"def f(x: Tensor, n: int) -> Tensor:\n  y = x\n{calls}  return torch.mul(y, 0.001)\n"


DATA = archive(source(), {"i": Obj("__torch__.A", {"w": np.full(4, 0.5)}), "seen": [0]})
X = np.arange(4.0)


def test_first_calls_from_many_threads_at_once() -> None:
    """Compiling happens on the first call; all callers wait for one result or make the same one."""
    want = gpujit.load(DATA)(X, 3)
    for _ in range(3):
        m = gpujit.load(DATA)
        for found in at_once(lambda i, m=m: m(X, 3)):
            np.testing.assert_array_equal(found, want)


def test_many_calls_give_the_same_results_as_one_after_another() -> None:
    m = gpujit.load(DATA)
    want = [m(X + i, i) for i in range(THREADS)]
    for i, found in enumerate(at_once(lambda i: [m(X + i, i) for _ in range(20)])):
        for result in found:
            np.testing.assert_array_equal(result, want[i])


def test_graphs_and_calls_at_the_same_time() -> None:
    m = gpujit.load(DATA)
    texts = at_once(lambda i: str(m.inlined_graph) if i % 2 else m(X, 1).tolist())
    assert len(set(texts[1::2])) == 1 and all(t == texts[0] for t in texts[::2])


def test_loads_from_many_threads_at_once() -> None:
    want = gpujit.load(DATA)(X, 2)
    for found in at_once(lambda i: gpujit.load(DATA)(X, 2)):
        np.testing.assert_array_equal(found, want)


def test_no_append_to_a_shared_list_is_lost() -> None:
    m = gpujit.load(
        archive(module(forward("n: int -> NoneType", "_0 = torch.append(self.l, n)"), "l : List[int]"), {"l": [0]})
    )
    at_once(lambda i: [m(i) for _ in range(100)])
    assert len(m.l) == 1 + 100 * THREADS and sorted(m.l) == sorted([0, *list(range(THREADS)) * 100])


def test_attributes_written_from_many_threads_hold_one_of_the_values() -> None:
    text = module(forward("x: Tensor -> Tensor", "self.last = torch.add(x, 1)\nreturn self.last"), "last : Tensor")
    m = gpujit.load(archive(text, {"last": np.zeros(3)}))
    for found in at_once(lambda i: [m(np.full(3, float(i))) for _ in range(50)]):
        assert all(len(set(r.tolist())) == 1 for r in found)
    assert m.last.tolist() in [[i + 1.0] * 3 for i in range(THREADS)]


def test_failures_in_one_thread_do_not_show_in_another() -> None:
    m = gpujit.load(archive(module(forward("x: Tensor", "return torch.mm(x, x)")), {}))

    def work(i: int) -> str:
        if i % 2:
            return str(m(np.eye(i + 1))[0, 0])
        with pytest.raises(gpujit.OpError) as caught:
            m(np.ones(i + 1))
        return str(caught.value)

    texts = at_once(work)
    assert texts[1::2] == ["1.0"] * 4 and all(t.count("in forward") == 1 for t in texts[::2])
