"""One native step for a product or convolution and what makes its operand, and where there must be two."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32
from gpujit.ir.parser import parse_graph
from gpujit.kernels.index import dim
from gpujit.kernels.templates.producer import Producer, Source
from gpujit.kernels.tile_build import Builder
from gpujit.static_runtime import decide
from gpujit.static_runtime.makers import native_step
from gpujit.static_runtime.starts import why_not_worth, widened
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError
from gpujit.testing import resolve_node
from tests.static_runtime.help import f32, from_graph, native_plan

HEAD = """
graph(%x : Float(2, 40, 32), %r : Float(2, 40, 48), %h : BFloat16(2, 40, 32), %m : Float(2, 4, 40, 40)):
  %w : Float(48, 32) = prim::Constant[value=CONSTANTS.c0]()
  %bias : Float(48) = prim::Constant[value=CONSTANTS.c1]()
  %g : Float(32) = prim::Constant[value=CONSTANTS.c2]()
  %square : Float(32, 32) = prim::Constant[value=CONSTANTS.c3]()
  %one : int = prim::Constant[value=1]()
  %last : int = prim::Constant[value=-1]()
  %six : int = prim::Constant[value=6]()
  %n : int = prim::Constant[value=32]()
  %zero : int = prim::Constant[value=0]()
  %ten : int = prim::Constant[value=10]()
  %eighty : int = prim::Constant[value=80]()
  %eps : float = prim::Constant[value=1e-05]()
  %half : float = prim::Constant[value=0.5]()
  %no : bool = prim::Constant[value=0]()
  %yes : bool = prim::Constant[value=1]()
  %nothing : NoneType = prim::Constant()
  %none : str = prim::Constant[value="none"]()
  %size : int[] = prim::ListConstruct(%n)
  %flat : int[] = prim::ListConstruct(%eighty, %n)
"""
CONSTANTS = [f32(48, 32, seed=1) / 4, f32(48, seed=2), f32(32, seed=3), f32(32, 32, seed=4) / 4]
GIVEN = [
    f32(2, 40, 32),
    f32(2, 40, 48, seed=5),
    f32(2, 40, 32, seed=6).astype(BFLOAT16),
    f32(2, 4, 40, 40, seed=7),
]
X, Y, R = "Float(2, 40, 32)", "Float(2, 40, 48)", "Float(2, 40, 48)"
LINEAR = f"%z : {Y} = aten::linear(%y, %w, %bias)"
NORM = f"%y : {X} = aten::layer_norm(%x, %size, %g, %g, %eps, %no)"


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    with config(threads=1):
        yield


def planned(
    lines: str,
    result: str,
    given: list[Any] = GIVEN,
    head: str = HEAD,
    constants: Any = CONSTANTS,
    tolerance: float = 1e-4,
) -> tuple[int, str]:
    """How many native steps a graph of these lines has, and what explains them; it computes what is interpreted."""
    module = native_plan(head, lines, result, given, constants, tolerance, tolerance)
    explained = module.explain()
    assert all(s in explained or not s for s in module.plan(given).apart.values())
    return sum(len(s.steps) for s in module.plan(given).segments), explained


# What may come before

BEFORE = {
    "layer_norm": NORM,
    "relu": f"%y : {X} = aten::relu(%x)",
    "gelu": f"%y : {X} = aten::gelu(%x, %none)",
    "scaled": f"%y : {X} = aten::mul(%x, %g)",
    "softmax": f"%y : {X} = aten::softmax(%x, %last, %nothing)",
    "cast": f"%y : {X} = aten::to(%h, %six, %no, %no, %nothing)",
    "cumsum": f"%y : {X} = aten::cumsum(%x, %last, %nothing)",
}


@pytest.mark.parametrize("name", BEFORE)
@pytest.mark.parametrize("threads", [1, 2])
def test_one_step(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "why_not_worth", lambda *given: "")
    with config(threads=threads):
        steps, explained = planned(f"{BEFORE[name]}\n{LINEAR}", "%z")
    assert steps == 1
    kind = {"scaled": "mul", "cast": "to"}.get(name, name)
    assert f"native template {kind}+linear" in explained


def test_what_follows_is_in_the_step_too() -> None:
    lines = f"{NORM}\n{LINEAR}\n%1 : {Y} = aten::gelu(%z, %none)\n%2 : {Y} = aten::add(%1, %r, %one)"
    steps, explained = planned(lines, "%2")
    assert steps == 1
    assert "layer_norm+linear+gelu+add" in explained or "layer_norm+linear" in explained


def test_a_residual_that_is_normalised_is_not_written_over() -> None:
    # In place of %a the result would be read by rows that are made later.
    lines = f"""
        %a : {X} = aten::mul(%x, %x)
        %y : {X} = aten::layer_norm(%a, %size, %g, %g, %eps, %no)
        %z : {X} = aten::linear(%y, %square, %g)
        %1 : {X} = aten::add(%a, %z, %one)
        %2 : {X} = aten::neg(%1)"""
    for threads in (1, 3):
        with config(threads=threads):
            planned(lines, "%2")


def test_views_between() -> None:
    lines = f"""
        {NORM}
        %v : Float(80, 32) = aten::view(%y, %flat)
        %z : Float(80, 48) = aten::linear(%v, %w, %bias)"""
    assert planned(lines, "%z")[0] == 1


def test_a_probability_times_values() -> None:
    values = "%v : Float(2, 4, 40, 12) = aten::mul(%q, %q)"
    head = HEAD.replace("%m : Float(2, 4, 40, 40)", "%m : Float(2, 4, 40, 40), %q : Float(2, 4, 40, 12)")
    lines = f"""
        {values}
        %y : Float(2, 4, 40, 40) = aten::softmax(%m, %last, %nothing)
        %z : Float(2, 4, 40, 12) = aten::matmul(%y, %v)"""
    for threads in (1, 2):
        with config(threads=threads):
            steps, explained = planned(lines, "%z", [*GIVEN, f32(2, 4, 40, 12, seed=8)], head)
        assert steps == 2, explained
        assert "softmax+matmul" in explained


# What must be a step of its own

APART = {
    "others read it": (f"{NORM}\n{LINEAR}\n%2 : {X} = aten::neg(%y)", "%z, %2", "others read it, too"),
    "it is returned": (f"{NORM}\n{LINEAR}", "%z, %y", "others read it, too"),
    "it is the right one": (
        """
        %y : Float(2, 40, 32) = aten::relu(%x)
        %t : Float(2, 32, 40) = aten::transpose(%y, %one, %last)
        %z : Float(2, 40, 40) = aten::matmul(%x, %t)""",
        "%z",
        "the right one of two matrices",
    ),
    "it is both": (
        f"""
        {NORM}
        %t : Float(2, 32, 40) = aten::transpose(%y, %one, %last)
        %z : Float(2, 40, 40) = aten::matmul(%y, %t)""",
        "%z",
        "the right one of two matrices",
    ),
    "a part of it": (
        f"""
        {NORM}
        %p : Float(40, 32) = aten::select(%y, %zero, %one)
        %z : Float(40, 48) = aten::linear(%p, %w, %bias)""",
        "%z",
        "only a part of it is read",
    ),
    "it lies otherwise": (
        """
        %s : Float(2, 32, 40) = aten::transpose(%x, %one, %last)
        %y : Float(2, 32, 40) = aten::relu(%s)
        %t : Float(2, 40, 32) = aten::transpose(%y, %one, %last)
        %z : Float(2, 40, 48) = aten::linear(%t, %w, %bias)""",
        "%z",
        "it reads numbers that lie apart",
    ),
}


@pytest.mark.parametrize("name", APART)
def test_two_steps(name: str) -> None:
    lines, result, why = APART[name]
    steps, explained = planned(lines, result)
    assert steps >= 2
    assert f"not a part of the step that reads it: {why}" in explained or why in explained


def test_what_it_is_made_of_may_not_be_written_before_it_is_read() -> None:
    lines = f"""
        %a : {X} = aten::neg(%x)
        %b : {X} = aten::mul(%x, %x)
        %y : {X} = aten::relu(%a)
        %c : {X} = aten::add_(%a, %b, %one)
        %z : {Y} = aten::linear(%y, %w, %bias)"""
    planned(lines, "%z, %c")


def test_a_loop_does_not_make_again_what_is_made_before_it() -> None:
    lines = f"""
        {NORM}
        %s : {Y} = prim::Loop(%ten, %yes, %r)
          block0(%i : int, %t : {Y}):
            %z : {Y} = aten::linear(%y, %w, %bias)
            %u : {Y} = aten::add(%t, %z, %one)
            -> (%yes, %u)"""
    _, explained = planned(lines, "%s")
    assert "outside of the branch or loop" in explained


# Convolutions

IMAGES = """
graph(%x : Float(2, 16, 20, 20)):
  %w : Float(24, 16, 3, 3) = prim::Constant[value=CONSTANTS.c0]()
  %bias : Float(24) = prim::Constant[value=CONSTANTS.c1]()
  %g : Float(16) = prim::Constant[value=CONSTANTS.c2]()
  %one : int = prim::Constant[value=1]()
  %half : float = prim::Constant[value=0.5]()
  %eps : float = prim::Constant[value=1e-05]()
  %no : bool = prim::Constant[value=0]()
  %ones : int[] = prim::ListConstruct(%one, %one)
"""
IN, OUT = "Float(2, 16, 20, 20)", "Float(2, 24, 20, 20)"
FILTERS = [f32(24, 16, 3, 3, seed=1) / 8, f32(24, seed=2), np.abs(f32(16, seed=3)) + 0.5]
NORMED = f"%b : {IN} = aten::batch_norm(%x, %g, %g, %g, %g, %no, %eps, %eps, %no)\n%y : {IN} = aten::relu(%b)"


@pytest.mark.parametrize("before", [NORMED, f"%y : {IN} = aten::exp(%x)", f"%y : {IN} = aten::add(%x, %half, %one)"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_border_of_a_convolution_stays_zero(before: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "why_not_worth", lambda *given: "")
    lines = f"{before}\n%z : {OUT} = aten::conv2d(%y, %w, %bias, %ones, %ones, %ones, %one)"
    with config(threads=threads):
        steps, explained = planned(lines, "%z", [f32(2, 16, 20, 20)], IMAGES, FILTERS)
    assert steps == 1
    assert "+conv2d" in explained


def test_numbers_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "why_not_worth", lambda *given: "")
    x = f32(2, 16, 20, 20)
    x[0, 3, 5, 5], x[1, 2, 0, 0], x[1, 4, 19, 19] = np.nan, -np.inf, np.inf
    lines = f"  %y : {IN} = aten::relu(%x)\n  %z : {OUT} = aten::conv2d(%y, %w, %bias, %ones, %ones, %ones, %one)"
    graph = parse_graph(f"{IMAGES.strip()}\n{lines}\n  return (%z)", resolve=resolve_node, constants=FILTERS)
    got = from_graph(graph, maker=native_step).run([x.copy()])
    monkeypatch.setattr(decide.Decisions, "put_starts", lambda self, asked: None)
    # Where NaN goes is the convolution's to say.
    np.testing.assert_array_equal(got, from_graph(graph, maker=native_step).run([x.copy()]))
    assert np.isnan(got).any()
    attention = f32(2, 4, 40, 40)
    attention[:, :, :, 30:] = -np.inf
    attention[0, 0, 0] = -np.inf
    lines = """
        %y : Float(2, 4, 40, 40) = aten::softmax(%m, %last, %nothing)
        %z : Float(2, 4, 40, 40) = aten::matmul(%y, %m)"""
    given = [*GIVEN[:3], np.where(np.isinf(attention), -50, attention).astype(np.float32)]
    planned(lines, "%z", given)


# Half types

TYPES = {"Half": FLOAT16, "BFloat16": BFLOAT16}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_half_products(name: str, threads: int) -> None:
    dtype = TYPES[name]
    head = f"""
        graph(%x : {name}(2, 40, 32), %q : {name}(2, 32, 24), %t : {name}(2, 24, 32)):
          %w : {name}(48, 32) = prim::Constant[value=CONSTANTS.c0]()
          %bias : {name}(48) = prim::Constant[value=CONSTANTS.c1]()
          %one : int = prim::Constant[value=1]()
          %two : int = prim::Constant[value=2]()"""
    head = textwrap.dedent(head)
    constants = [x.astype(dtype) for x in CONSTANTS]
    given = [f32(2, 40, 32).astype(dtype), f32(2, 32, 24, seed=1).astype(dtype), f32(2, 24, 32, seed=1).astype(dtype)]
    lines = f"""
        %0 : {name}(2, 40, 48) = aten::linear(%x, %w, %bias)
        %1 : {name}(2, 40, 24) = aten::bmm(%x, %q)
        %2 : {name}(2, 32, 24) = aten::transpose(%t, %one, %two)
        %3 : {name}(2, 40, 24) = aten::matmul(%x, %2)
        %4 : {name}(2, 32, 40) = aten::transpose(%x, %one, %two)
        %5 : {name}(2, 24, 40) = aten::matmul(%t, %4)
        %6 : {name}(2, 40, 32) = aten::relu(%x)
        %7 : {name}(2, 40, 48) = aten::linear(%6, %w, %bias)"""
    with config(threads=threads):
        steps, explained = planned(lines, "%0, %1, %3, %5, %7", given, head, constants, 2e-2)
    # Rounding to the half type is a cast that the template does, one after an activation is not undone.
    assert steps == 5, explained
    assert "relu+linear" in explained


@pytest.mark.parametrize("name", TYPES)
def test_half_convolutions(name: str) -> None:
    dtype = TYPES[name]
    head = IMAGES.replace("Float(", f"{name}(")
    lines = f"%y : {IN} = aten::exp(%x)\n%z : {OUT} = aten::conv2d(%y, %w, %bias, %ones, %ones, %ones, %one)"
    lines = lines.replace("Float(", f"{name}(")
    given, constants = [f32(2, 16, 20, 20).astype(dtype) / dtype.type(4)], [x.astype(dtype) for x in FILTERS]
    steps, explained = planned(lines, "%z", given, head, constants, 3e-2)
    assert steps == 1
    assert "exp+conv2d" in explained


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_models_beside_torch(name: str) -> None:
    import io

    import torch

    import gpujit

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.deep = (
                torch.nn.Conv2d(3, 16, 3, padding=1),
                torch.nn.Conv2d(16, 16, 3, padding=1, groups=16),
            )
            self.wide, self.norm = torch.nn.Linear(16, 40), torch.nn.LayerNorm(40)
            self.out = torch.nn.Linear(40, 24)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.deep(torch.nn.functional.silu(self.conv(x)))
            x = self.wide(torch.relu(x).flatten(2).transpose(1, 2))
            return self.out(torch.nn.functional.relu(self.norm(x)))

    torch.manual_seed(0)
    dtype = getattr(torch, name)
    model, x = Model().eval().to(dtype), torch.randn(2, 3, 12, 12).to(dtype)
    stored = io.BytesIO()
    with torch.no_grad():
        torch.jit.save(torch.jit.freeze(torch.jit.script(model)), stored)
        want = model(x).float().numpy()
    stored.seek(0)
    planned_model = gpujit.optimize_for_inference(gpujit.load(stored), example_inputs=[x])
    got = np.asarray(planned_model(x))
    assert got.dtype == {"float16": FLOAT16, "bfloat16": BFLOAT16}[name]
    np.testing.assert_allclose(got.astype(np.float32), want, atol=0.03 if name == "bfloat16" else 0.004)
    explained = planned_model.explain()
    assert "layer_norm+relu+linear" in explained
    assert "numpy " not in explained


# Legality and cost


def test_widened_programs_round_once() -> None:
    builder = Builder(1)
    x = builder.load(builder.input(BFLOAT16, 1), [dim(0)])
    builder.store(builder.output(BFLOAT16, 1), [dim(0)], x)
    program = widened(builder.finish())
    assert program.outputs[0].dtype == FLOAT32
    assert widened(program) is program
    builder = Builder(1)
    builder.store(builder.output(np.dtype("f8"), 1), [dim(0)], builder.load(builder.input(np.dtype("f8"), 1), [dim(0)]))
    with pytest.raises(ArgumentError, match="not float64"):
        widened(builder.finish())


def producer(times: float, calls: int, pieces: int, late: float) -> Producer:
    builder = Builder(2)
    builder.store(
        builder.output(FLOAT32, 2), [dim(0), dim(1)], builder.load(builder.input(FLOAT32, 2), [dim(0), dim(1)])
    )
    call = Source(builder.finish(), ((64, 1),), (64, 64), (64, 64)).rows(64, 64, False)
    return Producer(call, 64, times, calls, 0, pieces, late)


@settings(max_examples=60)
@given(
    st.floats(1, 8), st.integers(1, 1000), st.integers(0, 1000), st.floats(0, 1e5), st.integers(0, 1 << 24),
    st.floats(0, 3), st.integers(0, 100), st.floats(0, 1e4),
)  # fmt: skip
def test_what_costs_more_is_not_worth_more(
    times: float, calls: int, pieces: int, late: float, size: int, more: float, more_calls: int, later: float
) -> None:
    first = producer(times, calls, pieces, late)
    second = producer(times + more, calls + more_calls, pieces, late + later)
    if why_not_worth(first, size, size):
        assert why_not_worth(second, size, size)
    # What has to be done all the same costs nothing more.
    assert not why_not_worth(first, size, size, first)
    assert not why_not_worth(producer(1, 1, 0, 0), size, size)


def test_reasons_of_cost() -> None:
    assert "computed 8 times" in why_not_worth(producer(8, 1, 0, 0), 1 << 20, 1 << 14)
    assert "500 pieces" in why_not_worth(producer(1, 1, 500, 0), 0, 1 << 10)
    assert "wait for each other" in why_not_worth(producer(1, 1, 0, 1e6), 0, 1 << 10)
    assert "in 900 calls" in why_not_worth(producer(1, 900, 0, 0), 0, 1 << 10)
