"""Kernels made ready before a plan's first run: those that it then asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from gpujit.fuser.fuse import Fused
from gpujit.ir.graph import Graph, Value
from gpujit.kernels import cpu_launch, supply
from gpujit.runtime.ready import contiguous, expected, make_ready
from tests.fuser.help import array, fuse_free, read, run
from tests.kernels.cache_help import own_cache

# Two groups, before and after a product.
TEXT = """
graph(%x : Float(4, 6), %y : Float(6)):
  %one : int = prim::Constant[value=1]()
  %a = aten::add(%x, %y, %one)
  %b = aten::exp(%a)
  %t = aten::mm(%x, %w)
  %m = aten::mm(%b, %w)
  %c = aten::tanh(%m)
  %d = aten::mul(%c, %t)
  return (%b, %d)
"""


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with own_cache(tmp_path, monkeypatch):
        yield


def fused(text: str = TEXT) -> tuple[Graph, Fused]:
    graph = read(text.replace("%y : Float(6)", "%y : Float(6), %w : Float(6, 6)"))
    return graph, fuse_free(graph)


def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of kernels that were not there, by request, from now on."""
    found: list[int] = []
    real = supply._make

    def make(wanted: Any, mine: Any) -> None:
        found.append(len(mine))
        real(wanted, mine)

    monkeypatch.setattr(supply, "_make", make)
    return found


def test_the_kernels_of_a_plan_are_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, result = fused()
    requests = asked(monkeypatch)
    make_ready(result.programs.values(), {})
    assert requests == [2]
    run(graph, result, [array(4, 6), array(6), array(6, 6)])
    assert requests == [2]
    # Each plan was used, none is left behind.
    assert not cpu_launch._planned


def test_arrays_that_are_known_count_as_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, result = fused()
    x = array(6, 4).T
    requests = asked(monkeypatch)
    make_ready(result.programs.values(), {graph.inputs[0]: x})
    run(graph, result, [x, array(6), array(6, 6)])
    assert requests == [2]


def test_a_wrong_guess_costs_a_kernel_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, result = fused()
    x, y, w = array(6, 4).T, array(6), array(6, 6)
    requests = asked(monkeypatch)
    make_ready(result.programs.values(), {})
    got = run(graph, result, [x, y, w])
    assert requests == [2, 1]
    np.testing.assert_allclose(got[0], np.exp(x + y), rtol=1e-5)


def test_what_cannot_be_made_ready_is_left_for_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    _, result = fused()

    def refuses(*_: Any) -> Any:
        raise supply.InternalError("no memory for code")

    monkeypatch.setattr(supply, "_load", refuses)
    make_ready(result.programs.values(), {})
    for low in result.programs.values():
        found = expected(low, {})
        assert found is not None
        with pytest.raises(supply.InternalError, match="no memory"):
            supply.address(cpu_launch.plan(found).nest)


def test_unknown_shapes_are_not_guessed() -> None:
    _, result = fused()
    low = next(iter(result.programs.values()))
    for value in low.inputs:
        value.type = type(value.type)(getattr(value.type, "dtype", None), None)
    assert expected(low, {}) is None
    known: dict[Value, np.ndarray] = {v: array(4, 6) for v in low.inputs}
    assert expected(low, known) is not None


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (2, 1, 4), (0,), (2, 0, 3), (1, 1)])
def test_contiguous_is_as_numpy_has_it(shape: tuple[int, ...]) -> None:
    assert contiguous(shape) == cpu_launch.strides_of(np.empty(shape, np.float32))
