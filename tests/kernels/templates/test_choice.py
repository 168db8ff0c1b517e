"""The code that templates choose from: all of it gives the same numbers, and what is at hand is preferred."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from gpujit.kernels import supply
from gpujit.kernels.target import host
from gpujit.kernels.templates import attention, bound, choice, conv, gemm, pool, rnn
from gpujit.kernels.templates.bound import BoundTemplate, Code
from gpujit.kernels.templates.choice import Choose, Thrifty, Way
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.planes import Window
from gpujit.support.config import config
from tests.kernels.templates.test_gemm import numbers

Bind = Callable[[Choose], BoundTemplate]
# Ways tried of each choice, beside the best.
TRIED = 2


def codes(bind: Bind) -> list[Code]:
    """The best code, and some of all the other."""
    found: list[Code] = []

    def record(best: Way, others: Callable[[], Sequence[Way]]) -> Code:
        ways = {way.code.spec: way.code for way in others() if way.code.spec != best.code.spec}
        picked = np.random.default_rng(len(ways)).permutation(len(ways))[:TRIED]
        found.extend([best.code, *(list(ways.values())[k] for k in picked)])
        return best.code

    bind(record)
    return found


def check(
    bind: Bind,
    arrays: Sequence[np.ndarray],
    *outs: tuple[int, ...],
    behind: Sequence[np.ndarray] = (),
    may_be_alone: bool = False,
) -> None:
    """All code, of which there is a choice, gives the very same numbers, whichever other numbers lie around."""
    found = []
    for code in codes(bind):
        results = [np.full(shape, np.nan, np.float32) for shape in outs]
        template = bind(lambda best, others, code=code: code)
        assert template.code.spec == code.spec
        template(*arrays, *results, *behind)
        found.append(results)
    assert len(found) > 1 or may_be_alone
    for results in found:
        assert not any(np.isnan(x).any() for x in results)
        assert [x.tobytes() for x in results] == [x.tobytes() for x in found[0]]


@pytest.mark.parametrize(("m", "n", "k"), [(2, 10, 37), (5, 64, 128), (7, 100, 65), (13, 70, 3), (64, 48, 50)])
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_products(m: int, n: int, k: int, activation: str | None) -> None:
    rng = np.random.default_rng(m)
    a, w, bias = numbers(rng, m, k), numbers(rng, k, n), numbers(rng, n)
    problem = gemm.Gemm(m, n, k, (0, 0, k, 1), (0, 0, n, 1), epilogue=Epilogue(bias=True, activation=activation))
    check(lambda choose: gemm.bind(problem, w, bias, spec=gemm.plan(problem, choose=choose)), [a], (m, n))


@pytest.mark.parametrize("strides", [(0, 0, 45, 1), (0, 0, 1, 33)])
def test_products_of_two_arrays(strides: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    m, n, k = 9, 45, 33
    a, b = numbers(rng, m, k), numbers(rng, k * n)
    problem = gemm.Gemm(m, n, k, (0, 0, k, 1), (0, 0, n, 1), strides)
    check(lambda choose: gemm.bind(problem, spec=gemm.plan(problem, choose=choose)), [a, b], (m, n))


@pytest.mark.parametrize(("queries", "keys"), [(3, 3), (6, 20), (7, 7), (11, 13), (20, 600), (23, 23)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(queries: int, keys: int, is_causal: bool) -> None:
    rng = np.random.default_rng(queries)
    q, k, v = (numbers(rng, 2, n, 40) for n in (queries, keys, keys))
    s, t = (0, queries * 40, 40), (0, keys * 40, 40)
    problem = attention.Attention(1, 2, queries, keys, 40, 40, s, t, t, s, 0.2, None, is_causal)
    check(lambda choose: attention.bind(problem, choose), [q, k, v], q.shape)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize(("steps", "batch", "threads"), [(4, 1, 1), (3, 5, 1), (7, 2, 2)])
def test_recurrent(kind: str, steps: int, batch: int, threads: int) -> None:
    rng = np.random.default_rng(batch)
    size = 128 if threads > 1 else 21
    gates = 4 if kind == "lstm" else 3
    layer = rnn.Layer(numbers(rng, gates * size, 7) * 0.2, numbers(rng, gates * size, size) * 0.1)
    state = (batch * size, size)
    problem = rnn.Rnn(
        kind, steps, batch, size, 1, 1, (batch * 7, 7, 1), state, state if kind == "lstm" else (0, 0),
        (batch * size, size),
    )  # fmt: skip
    given = [numbers(rng, steps, batch, 7), *(numbers(rng, 1, batch, size) for _ in range(gates - 2))]
    last = [(1, batch, size)] * (gates - 2)
    # Up to three rows of three gates are in 16 registers, and no two such tiles round alike.
    check(
        lambda choose: rnn.bind(problem, [layer], threads=threads, choose=choose),
        given,
        (steps, batch, size),
        *last,
        may_be_alone=kind == "gru" and host().width < 16,
    )


CONVOLUTIONS = [
    ("dense", (16, 24), Window(9, 11, (3, 3), (1, 1), (1, 1))),
    ("dense", (16, 24), Window(9, 40, (3, 3), (2, 2), (1, 1))),
    ("dense", (16, 5), Window(9, 11, (1, 1))),
    ("pixels", (16, 24), Window(3, 5, (1, 1))),
    ("few", (16, 40), Window(5, 5, (3, 3), (2, 2))),
    ("rows", (3, 3), Window(20, 23, (3, 3), (1, 1), (1, 1))),
    ("winograd2", (16, 20), Window(14, 14, (3, 3), (1, 1), (1, 1))),
    ("winograd4", (16, 20), Window(30, 14, (3, 3), (1, 1), (1, 1))),
]


@pytest.mark.parametrize(("method", "channels", "window"), CONVOLUTIONS)
def test_convolutions(method: str, channels: tuple[int, int], window: Window) -> None:
    rng = np.random.default_rng(3)
    problem = conv.Conv(2, *channels, window, epilogue=Epilogue(bias=True, activation="relu"))
    x, w = numbers(rng, 2, channels[0], window.height, window.width), numbers(rng, *channels[::-1], *window.kernel)
    bias = numbers(rng, channels[1])
    check(
        lambda choose: conv.bind(problem, w, bias, method, choose=choose), [x], (2, channels[1], *window.output)
    )


@pytest.mark.parametrize("kind", ["max", "mean"])
def test_pooling(kind: str) -> None:
    x = numbers(np.random.default_rng(4), 5, 19, 37)
    problem = pool.Pool(kind, 5, Window(19, 37, (3, 3), (2, 2), (1, 1)))
    check(lambda choose: pool.bind(problem, choose), [x], (5, *problem.window.output))


# What is preferred ----------------------------------------------------------------------------------------------------


class Shelf:
    """Ways of one choice by name, of which some are compiled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *compiled: str) -> None:
        self.compiled = set(compiled)
        monkeypatch.setattr(Code, "is_at_hand", lambda code: code.spec in self.compiled)

    def choose(self, thrifty: Thrifty, *ways: tuple[str, float, int]) -> str:
        made = [Way(cost * 1e9, Code("some", name, str), serves) for name, cost, serves in ways]
        chosen: Any = thrifty(made[0], lambda: made).spec
        return str(chosen)


def test_what_is_at_hand_is_taken_where_it_takes_little_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(monkeypatch, "near", "far")
    assert shelf.choose(Thrifty(), ("best", 1.0, 0), ("near", 1.2, 0), ("far", 2.0, 0)) == "near"
    assert shelf.choose(Thrifty(), ("best", 1.0, 0), ("far", 2.0, 0)) == "best"
    shelf.compiled.add("best")
    assert shelf.choose(Thrifty(), ("best", 1.0, 0), ("near", 1.2, 0)) == "best"


def test_code_is_at_hand_once_it_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, thrifty = Shelf(monkeypatch), Thrifty()
    assert shelf.choose(thrifty, ("near", 1.0, 0)) == "near"
    assert shelf.choose(thrifty, ("best", 1.0, 0), ("near", 1.2, 0)) == "near"
    assert shelf.choose(Thrifty(), ("best", 1.0, 0), ("near", 1.2, 0)) == "best"


def test_new_code_serves_many_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(monkeypatch)
    assert shelf.choose(Thrifty(), ("best", 1.0, 2), ("wide", 1.1, 5), ("wider", 1.2, 6)) == "wide"


def test_what_takes_no_time_need_not_be_best(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(monkeypatch, "other")
    assert shelf.choose(Thrifty(), ("best", 1e-9, 0), ("other", choice.STEP / 1e10, 0)) == "other"


def test_code_of_other_processes_is_at_hand(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = Code("pool", pool.PoolSpec("max", 2, 1, 4, 1), pool.render)
    with config(cache=True, cache_dir=str(tmp_path)):
        monkeypatch.setattr(bound, "_kernels", {})
        assert not code.is_at_hand()
        code.address()
        assert code.is_at_hand()
        # Another process would find it on disk.
        monkeypatch.setattr(bound, "_kernels", {})
        before = supply.counters.compiled
        assert code.is_at_hand() and code.address() and supply.counters.compiled == before
    with config(cache=False):
        monkeypatch.setattr(bound, "_kernels", {})
        assert not code.is_at_hand()
