"""PlannedGraph: given result arrays, errors, strides it learns, checks that find faults, reports, other steps."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from gpujit.ir.graph import Node, Value
from gpujit.kernels.tile_text import parse_program
from gpujit.static_runtime import arrays, decide
from gpujit.static_runtime.native import Made, compiled, request
from gpujit.static_runtime.native_run import SMALL
from gpujit.static_runtime.places import Place
from gpujit.static_runtime.products import native_product
from gpujit.static_runtime.steps import Options
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError, InternalError, LimitError, OpError, ScriptRaised
from tests.static_runtime.help import f32, from_text

# Groups with a product, which is no native step, between them.
LAYERS = """
    graph(%x : Float(8, 16), %w : Float(16, 16)):
      %1 : Float(8, 16) = aten::mm(%x, %w)
      %2 : Float(8, 16) = aten::relu(%1)
      %3 : Float(8, 16) = aten::mm(%2, %w)
      %4 : Float(8, 16) = aten::tanh(%3)
      %5 : Float(8, 16) = aten::mm(%4, %w)
      %6 : Float(8, 16) = aten::sigmoid(%5)
      return (%6)"""


def layers(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    y = np.tanh(np.maximum(x @ w, 0) @ w) @ w
    return 1 / (1 + np.exp(-y))


X, W = f32(8, 16), f32(16, 16, seed=1) / 4
EVERYTHING = Options(out_bytes=0)


def test_large_results_are_aligned() -> None:
    x = f32(200, 16)
    module = from_text(LAYERS.replace("Float(8, 16)", "Float(200, 16)"))
    assert x.nbytes > SMALL
    kept = [module.run([x + n, W]) for n in range(4)]
    assert all(y.ctypes.data % 64 == 0 for y in kept)


def test_results_are_new() -> None:
    module = from_text(LAYERS, EVERYTHING)
    first = module.run([X, W])
    second = module.run([X + 1, W])
    np.testing.assert_allclose(first, layers(X, W), rtol=1e-5)
    np.testing.assert_allclose(second, layers(X + 1, W), rtol=1e-5)
    assert not np.shares_memory(first, second)
    memory = module.memory()
    # Two values at a time: a product and what it is computed from.
    assert memory.arena == memory.bound == 2 * X.nbytes and memory.separate == 5 * X.nbytes


def test_memory_is_not_shared_when_that_is_not_wanted() -> None:
    module = from_text(LAYERS, Options(True, False, False, 0))
    np.testing.assert_allclose(module.run([X, W]), layers(X, W), rtol=1e-5)
    assert module.memory().arena == module.memory().separate


def test_operators_keep_their_own_results_without_out_variants() -> None:
    module = from_text(LAYERS, Options(enable_out_variant=False))
    np.testing.assert_allclose(module.run([X, W]), layers(X, W), rtol=1e-5)
    # What is between them is NumPy's too: a run of its own would gain nothing.
    assert "native" not in module.explain() and module.memory().planned == 0


def test_a_group_overwrites_an_operand_that_dies() -> None:
    text = """
        graph(%x : Float(8, 16), %w : Float(16, 16)):
          %1 : Float(8, 16) = aten::mm(%x, %w)
          %2 : Float(8, 16) = aten::relu(%1)
          %3 : Float(8, 16) = aten::mm(%2, %w)
          return (%3)"""
    for reuse, arena in ((True, X.nbytes), (False, 2 * X.nbytes)):
        module = from_text(text, Options(reuse_operands=reuse, out_bytes=0))
        with config(check_plan=True):
            np.testing.assert_allclose(module.run([X, W]), np.maximum(X @ W, 0) @ W, rtol=1e-4, atol=1e-5)
        assert module.memory().arena == arena


def test_an_operand_that_is_read_again_is_not_overwritten() -> None:
    text = """
        graph(%x : Float(8, 16), %w : Float(16, 16)):
          %1 : Float(8, 16) = aten::mm(%x, %w)
          %2 : Float(8, 16) = aten::relu(%1)
          %3 : Float(8, 16) = aten::mm(%2, %w)
          %4 : Float(16, 8) = aten::t(%1)
          %5 : Float(16, 16) = aten::mm(%4, %3)
          return (%5)"""
    module = from_text(text, EVERYTHING)
    with config(check_plan=True):
        y = X @ W
        np.testing.assert_allclose(module.run([X, W]), y.T @ (np.maximum(y, 0) @ W), rtol=1e-4, atol=1e-5)
    assert module.memory().overwritten == 0


# Arrays for results ---------------------------------------------------------------------------------------------------


def test_results_go_into_given_arrays() -> None:
    module = from_text(LAYERS)
    out = np.full_like(X, np.nan)
    result = module.run([X, W], out=[out])
    assert result is out
    np.testing.assert_allclose(out, layers(X, W), rtol=1e-5)
    again = module.run([X + 1, W])
    np.testing.assert_allclose(out, layers(X, W), rtol=1e-5)
    np.testing.assert_allclose(again, layers(X + 1, W), rtol=1e-5)


@pytest.mark.parametrize("kind", ["strided", "an input", "a weight", "part of an input"])
def test_given_arrays_that_cannot_be_written_at_once_get_copies(kind: str) -> None:
    text = LAYERS.replace("aten::sigmoid(%5)", "aten::add(%5, %x, %one)").replace(
        "%1 :", "%one : int = prim::Constant[value=1]()\n      %1 :"
    )
    module = from_text(text)
    buffer = np.zeros((16, 16), np.float32)
    x, w = buffer[:8], W.copy()
    x[...] = X
    if kind == "strided":
        out = np.zeros((8, 32), np.float32)[:, ::2]
    elif kind == "an input":
        out = x
    elif kind == "a weight":
        out = w[8:]
    else:
        out = buffer[4:12]
    wanted = np.tanh(np.maximum(X @ W, 0) @ W) @ W + X
    assert module.run([x, w], out=[out]) is out
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


def test_given_arrays_that_do_not_fit_are_refused() -> None:
    module = from_text(LAYERS)
    with pytest.raises(ArgumentError, match=r"out\[0\] is float64\[8, 16\], the output is float32\[8, 16\]"):
        module.run([X, W], out=[np.zeros((8, 16))])
    with pytest.raises(ArgumentError, match="out has 2 arrays for 1 outputs"):
        module.run([X, W], out=[None, None])
    np.testing.assert_allclose(module.run([X, W], out=[None]), layers(X, W), rtol=1e-5)


def test_one_array_given_twice_gets_the_last_result() -> None:
    text = """
        graph(%x : Float(8, 16)):
          %1 : Float(8, 16) = aten::relu(%x)
          %2 : Float(8, 16) = aten::neg(%x)
          %3 : (Tensor, Tensor) = prim::TupleConstruct(%1, %2)
          return (%3)"""
    module = from_text(text)
    out = [np.zeros_like(X), np.zeros_like(X)]
    result = module.run([X], out=out)
    assert result[0] is out[0] and result[1] is out[1]
    np.testing.assert_array_equal(out[0], np.maximum(X, 0))
    np.testing.assert_array_equal(out[1], -X)
    one = np.zeros_like(X)
    module.run([X], out=[one, one])
    np.testing.assert_array_equal(one, -X)


# Errors ---------------------------------------------------------------------------------------------------------------

LOOK_UP = """
    graph(%table : Float(5, 16), %i : Long(3), %w : Float(16, 16)):
      %minus : int = prim::Constant[value=-1]()
      %no : bool = prim::Constant[value=0]()
      %1 : Float(3, 16) = aten::embedding(%table, %i, %minus, %no, %no)
      %2 : Float(3, 16) = aten::relu(%1)
      %3 : Float(3, 16) = aten::mm(%2, %w)
      %4 : Float(3, 16) = aten::neg(%3)
      return (%4)"""


def test_an_error_leaves_the_module_usable() -> None:
    module = from_text(LOOK_UP)
    table = f32(5, 16)

    def wanted(i: Sequence[int]) -> np.ndarray:
        return -(np.maximum(table[list(i)], 0) @ W)

    for check in (False, True):
        with config(check_plan=check):
            np.testing.assert_allclose(module.run([table, np.array([4, 0, 1]), W]), wanted([4, 0, 1]), rtol=1e-5)
            for _ in range(2):
                with pytest.raises(OpError, match="index"):
                    module.run([table, np.array([4, 5, 1]), W])
            np.testing.assert_allclose(module.run([table, np.array([2, 2, 3]), W]), wanted([2, 2, 3]), rtol=1e-5)
    assert module.memory().runtimes == 1


def test_what_the_program_raises_comes_through() -> None:
    text = """
        graph(%x : Float(8, 16)):
          %m : str = prim::Constant[value="too large"]()
          %1 : Float(8, 16) = aten::relu(%x)
          %2 : Float() = aten::max(%1)
          %3 : float = aten::Float(%2)
          %limit : float = prim::Constant[value=100.]()
          %4 : bool = aten::gt(%3, %limit)
           = prim::If(%4)
            block0():
               = prim::RaiseException(%m)
              -> ()
            block1():
              -> ()
          %5 : Float(8, 16) = aten::neg(%1)
          return (%5)"""
    module = from_text(text)
    for _ in range(2):
        np.testing.assert_array_equal(module.run([X]), -np.maximum(X, 0))
        with pytest.raises(ScriptRaised, match="too large"):
            module.run([X + 1000])


def test_no_memory_is_an_error_with_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    module = from_text(LAYERS, EVERYTHING)
    plan = module.plan([X, W])
    real = np.empty

    def empty(shape: Any, *more: Any, **named: Any) -> np.ndarray:
        if shape == plan.arena.size + arrays.ALIGN:
            raise MemoryError
        return real(shape, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", empty)
        with pytest.raises(LimitError, match=f"no memory for an arena of {plan.arena.size} bytes"):
            module.run([X, W])
    np.testing.assert_allclose(module.run([X, W]), layers(X, W), rtol=1e-5)


def test_a_tensor_of_another_shape_than_planned_is_refused() -> None:
    module = from_text("graph(%x : Float(8, 16)):\n  %1 : Float(8, 16) = aten::relu(%x)\n  return (%1)")
    module.run([X])
    with pytest.raises(InternalError, match=r"planned to give float32\[8, 16\], but gave float32\[4, 16\]"):
        module.run([X[:4]])


# Strides --------------------------------------------------------------------------------------------------------------


def test_strides_are_learned_and_others_copied() -> None:
    text = """
        graph(%x : Float(8, 16)):
          %one : int = prim::Constant[value=1]()
          %end : int = prim::Constant[value=4]()
          %zero : int = prim::Constant[value=0]()
          %1 : Float(8, 4) = aten::slice(%x, %one, %zero, %end, %one)
          %2 : Float(8, 4) = aten::relu(%1)
          return (%2)"""
    module = from_text(text)
    orders = [X, np.asfortranarray(X), f32(16, 32)[::2, ::2], X[::-1], f32(1, 16).repeat(8, 0), X]
    for _ in range(3):
        for x in orders:
            np.testing.assert_array_equal(module.run([x]), np.maximum(x[:, :4], 0))


# Checks find faults ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strides", [(0, 0), (0, 4), (64, 0), (4, 4), (-4, 8)])
@pytest.mark.parametrize("is_first", [True, False])
def test_arrays_whose_elements_share_memory(strides: tuple[int, int], is_first: bool) -> None:
    module, memory = from_text(LAYERS), f32(200)
    start = memory[100:] if min(strides) < 0 else memory
    shared = np.lib.stride_tricks.as_strided(start, X.shape, strides)
    for x in ([shared] if is_first else [X, shared]) + [X, shared, X + 1, shared]:
        np.testing.assert_allclose(module.run([x, W]), layers(x, W), rtol=1e-4, atol=1e-6)


def test_poison_shows_a_lifetime_that_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        graph(%x : Float(8, 16), %w : Float(16, 16)):
          %1 : Float(8, 16) = aten::mm(%x, %w)
          %2 : Float(8, 16) = aten::mm(%1, %w)
          %3 : Float(8, 16) = aten::mm(%2, %w)
          %4 : Tensor[] = prim::ListConstruct(%1, %3)
          %zero : int = prim::Constant[value=0]()
          %5 : Float(16, 16) = aten::cat(%4, %zero)
          return (%5)"""
    wanted = np.concatenate([X @ W, X @ W @ W @ W])
    with config(check_plan=True):
        np.testing.assert_allclose(from_text(text, EVERYTHING).run([X, W]), wanted, rtol=1e-4, atol=1e-5)
        real = decide.last_steps
        monkeypatch.setattr(decide, "last_steps", lambda *a: {v: min(n, 1) for v, n in real(*a).items()})
        with pytest.raises((AssertionError, ValueError)):
            np.testing.assert_allclose(from_text(text, EVERYTHING).run([X, W]), wanted, rtol=1e-4, atol=1e-5)


def test_overlapping_buffers_are_found() -> None:
    module = from_text(LAYERS, EVERYTHING)
    plan = module.plan([X, W])
    plan.arena = type(plan.arena)((0,) * len(plan.arena.offsets), plan.arena.size, plan.arena.bound)
    with config(check_plan=True), pytest.raises(InternalError, match="buffers 0 and 1 of the arena overlap"):
        module.run([X, W])


# Reports and steps from outside ---------------------------------------------------------------------------------------


def test_reports() -> None:
    module = from_text(LAYERS, EVERYTHING)
    with pytest.raises(ArgumentError, match="no plan before its first run"):
        module.memory()
    profile = module.profile([X, W], runs=3)
    names = sorted(t.name for t in profile)
    assert names == ["aten::mm"] * 3 + ["aten::relu", "aten::sigmoid", "aten::tanh"]
    assert {t.tier for t in profile} == {"native", "out"}
    assert all(t.seconds > 0 for t in profile)
    assert "lower bound" in str(module.memory())
    lines = module.explain().splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["out", "native", "out", "native", "out", "native"]


PRODUCT = """tile(a0: float32[2], a1: float32[2]) -> (o0: float32[2])
  for d0 < n0, d1 < n1
  row d2 < n2
  %0: float32 = load a0[d0, d2]
  %1: float32 = load a1[d2, d1]
  %2: float32 = mul %0, %1
  %3: float32 = sum %2
  store o0[d0, d1], %3
"""


def test_other_operators_become_native_steps_through_a_maker() -> None:
    def maker(node: Node, place_of: Callable[[Value], Place | None], result: Place) -> Made | None:
        places = [place_of(v) for v in node.inputs]
        if node.kind != "aten::mm" or places[0] is None or places[1] is None:
            return None
        sizes = (*result.shape, places[0].shape[1])
        asked = request(parse_program(PRODUCT), [places[0], places[1]], [result], sizes)
        kernel = None if asked is None else compiled([asked])[0]
        return None if kernel is None else (kernel, node.inputs)

    module = from_text(LAYERS, maker=maker)
    for check in (False, True):
        with config(check_plan=check):
            np.testing.assert_allclose(module.run([X, W]), layers(X, W), rtol=1e-4)
    plan = module.plan([X, W])
    assert len(plan.segments) == 1 and len(plan.segments[0].steps) == 6


def test_a_check_of_kernels_leaves_groups_to_those_who_check() -> None:
    with config(check_kernels=True):
        module = from_text(LAYERS, maker=native_product)
        np.testing.assert_allclose(module.run([X, W]), layers(X, W), rtol=1e-5)
        assert not module.plan([X, W]).segments


def test_many_threads_and_one_arena_each() -> None:
    module = from_text(LAYERS, EVERYTHING)
    inputs = [f32(8, 16, seed=s) for s in range(8)]
    results: dict[int, np.ndarray] = {}

    def work(k: int) -> None:
        for _ in range(50):
            results[k] = module.run([inputs[k], W])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, x in enumerate(inputs):
        np.testing.assert_allclose(results[k], layers(x, W), rtol=1e-5)
    assert module.memory().runtimes <= 8


def test_large_steps_are_split_over_a_team() -> None:
    text = """
        graph(%x : Float(300, 700), %y : Float(300, 700)):
          %one : int = prim::Constant[value=1]()
          %1 : Float(300, 700) = aten::add(%x, %y, %one)
          %2 : Float(300, 700) = aten::softmax(%1, %one, %none)
          %3 : Float(700, 300) = aten::t(%2)
          %4 : Float(700, 300) = aten::exp(%3)
          %5 : Float(700, 700) = aten::mm(%4, %2)
          %6 : Float(700, 700) = aten::tanh(%5)
          return (%6)""".replace("%one :", "%none : NoneType = prim::Constant()\n          %one :", 1)
    x, y = f32(300, 700), f32(300, 700, seed=1)
    e = np.exp(x + y - (x + y).max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    wanted = np.tanh(np.exp(p.T) @ p)
    module = from_text(text, EVERYTHING)
    faults: list[BaseException] = []

    def work(threads: int) -> None:
        try:
            with config(threads=threads):
                for check in (False, True, False):
                    with config(check_plan=check):
                        np.testing.assert_allclose(module.run([x, y]), wanted, rtol=1e-4, atol=1e-6)
        except BaseException as fault:
            faults.append(fault)

    for threads in (1, 3, 2):
        work(threads)
    # Two plans at once: one has the team, the other works alone.
    together = [threading.Thread(target=work, args=(2,)) for _ in range(2)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert not faults, faults[0]
    assert any(not s.kernel.is_small for g in module.plan([x, y]).segments for s in g.steps)


def test_in_place_writes_reach_planned_values_and_inputs() -> None:
    text = """
        graph(%x : Float(8, 16), %w : Float(16, 16)):
          %one : int = prim::Constant[value=1]()
          %1 : Float(8, 16) = aten::mm(%x, %w)
          %2 : Float(16, 8) = aten::t(%1)
          %3 : Float(16, 8) = aten::relu_(%2)
          %4 : Float(8, 16) = aten::mm(%1, %w)
          %5 : Float(8, 16) = aten::add_(%x, %4, %one)
          %6 : Float(8, 16) = aten::neg(%1)
          return (%6)"""
    module = from_text(text, EVERYTHING)
    for check in (False, True):
        x = X.copy()
        with config(check_plan=check):
            result = module.run([x, W])
        y = np.maximum(X @ W, 0)
        np.testing.assert_allclose(result, -y, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(x, X + y @ W, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("maker", [None, native_product])
def test_arenas_go_with_the_module(maker: Any) -> None:
    module = from_text(LAYERS, EVERYTHING, maker)
    module.run([X, W])
    gc.collect()
    gc.disable()
    try:
        module.run([X, W])
        runtime = module.runtime([X, W])
        memory = weakref.ref(runtime.memory)
        del module, runtime
        assert memory() is None
    finally:
        gc.enable()


def test_numpy_warns_of_nothing() -> None:
    text = """
        graph(%x : Float(8, 16)):
          %dims : int[] = prim::Constant[value=[1]]()
          %no : bool = prim::Constant[value=0]()
          %1 : Float(8, 16) = aten::log(%x)
          %2 : Float(8) = aten::logsumexp(%1, %dims, %no)
          return (%2)"""
    module = from_text(text)
    with np.errstate(all="raise"):
        assert np.isnan(module.run([np.full((8, 16), -1, np.float32)])).all()
        assert set(np.geterr().values()) == {"raise"}


def test_the_graph_itself_is_not_changed() -> None:
    module = from_text(LAYERS, EVERYTHING)
    before = str(module.graph)
    values = copy.deepcopy([X, W])
    module.run(values)
    assert str(module.graph) == before
    np.testing.assert_array_equal(values[0], X)
