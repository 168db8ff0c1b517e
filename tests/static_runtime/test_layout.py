"""In which order results of elementwise operators and of groups lie, beside PyTorch's and the interpreter's."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.fuser.fuse import program_of
from gpujit.ir.printer import SUBGRAPH
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.decide import name_values
from gpujit.static_runtime.layout import dense_strides
from gpujit.static_runtime.module import PlannedGraph
from tests.static_runtime.help import f32, from_text


def steps(x: Any) -> tuple[int, ...]:
    """Strides in elements, 0 for dims that are too short to have any."""
    strides = x.stride() if not isinstance(x, np.ndarray) else [s // x.itemsize for s in x.strides]
    return tuple(s if n > 1 else 0 for s, n in zip(strides, x.shape, strict=True))


@pytest.mark.parametrize(
    ("shape", "operands", "wanted"),
    [
        ((), [], ()),
        ((3,), [(5,)], (1,)),
        ((2, 3), [(3, 1)], (3, 1)),
        ((2, 3), [(1, 2)], (1, 2)),
        ((2, 3), [(100, 7)], (3, 1)),
        # The first operand that can tell decides.
        ((2, 3), [(1, 2), (3, 1)], (1, 2)),
        ((2, 3), [(3, 1), (1, 2)], (3, 1)),
        ((2, 3), [(0, 1), (1, 2)], (1, 2)),
        ((2, 3), [(0, 1), (1, 0)], (3, 1)),
        ((2, 3), [(0, 0)], (3, 1)),
        # Backwards is as far as forwards.
        ((2, 3), [(-1, -2)], (1, 2)),
        # Channels last, alone and beside a number for each channel.
        ((2, 3, 4, 5), [(60, 1, 15, 3)], (60, 1, 15, 3)),
        ((2, 3, 4, 5), [(0, 1, 0, 0), (60, 1, 15, 3)], (60, 1, 15, 3)),
        # A dim of size 1 has no place of its own.
        ((4, 1, 3), [(1, 0, 4)], (1, 12, 4)),
    ],
)
def test_the_rule(shape: tuple[int, ...], operands: list[tuple[int, ...]], wanted: tuple[int, ...]) -> None:
    found = dense_strides(shape, 8, operands)
    assert [s // 8 for n, s in zip(shape, found, strict=True) if n > 1] == [
        w for n, w in zip(shape, wanted, strict=True) if n > 1
    ]
    # Every element has a place of its own, without gaps.
    places = sorted(sum(i * s for i, s in zip(at, found, strict=True)) for at in itertools.product(*map(range, shape)))
    assert places == list(range(0, 8 * len(places), 8))


@pytest.mark.torch
def test_the_rule_is_the_one_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    draw = random.Random(0)
    for _ in range(300):
        rank = draw.randint(1, 5)
        shape = [draw.choice((1, 2, 3, 4)) for _ in range(rank)]
        tensors = []
        for _ in range(draw.randint(1, 3)):
            own = [1 if draw.random() < 0.2 else n for n in shape]
            order = draw.sample(range(rank), rank)
            step = draw.choice((1, 1, 2))
            whole = torch.zeros([step * own[d] for d in order])[tuple(slice(None, None, step) for _ in order)]
            tensors.append(whole.permute([order.index(d) for d in range(rank)]))
        shape = list(torch.broadcast_shapes(*(t.shape for t in tensors)))
        along = [
            tuple(0 if k == 1 and n != 1 else s for k, n, s in zip(t.shape, shape, t.stride(), strict=True))
            for t in tensors
        ]
        result = [lambda x: -x, torch.add, torch.addcmul][len(tensors) - 1](*tensors)
        wanted = [s for s, n in zip(result.stride(), shape, strict=True) if n > 1]
        assert [s for s, n in zip(dense_strides(shape, 1, along), shape, strict=True) if n > 1] == wanted


# The table: what PyTorch, the interpreter and a plan make of a function ----------------------------------------------


def tensors(*made: Any) -> Callable[[Any], list[Any]]:
    """Tensors of these shapes, or of what a function makes of a contiguous one: (shape, function)."""

    def make(torch: Any) -> list[Any]:
        torch.manual_seed(0)
        return [torch.randn(m) if not m or not callable(m[-1]) else m[-1](torch.randn(m[0])) for m in made]

    return make


def channels_last(x: Any) -> Any:
    n, c, h, w = x.shape
    return x.reshape(n, h, w, c).permute(0, 3, 1, 2)


def turned(x: Any) -> Any:
    return x.transpose(-1, -2)


# A function, its inputs, and whether NumPy's order "K" is PyTorch's here.
CASES: dict[str, tuple[Callable[..., Any], Callable[[Any], list[Any]], bool]] = {
    "unary, contiguous": (lambda x: x.neg().abs(), tensors((3, 4)), True),
    "unary, permuted inside": (lambda x: x.permute(0, 2, 1) * 0.5 + 1, tensors((2, 3, 4)), True),
    "unary, permuted by the caller": (lambda x: x.tanh() * 2, tensors(((2, 3, 4), turned)), True),
    "unary, sliced and permuted": (lambda x: x[:, 1:].permute(2, 0, 1) * 2 + 1, tensors((3, 4, 5)), True),
    "unary, one operator": (lambda x: x.t().exp(), tensors((3, 4)), True),
    "binary, both permuted": (lambda x, y: x.t() * y.t() + 1, tensors((3, 4), (3, 4)), True),
    "binary, the first permuted": (lambda x, y: x.t() * 2 + y, tensors((3, 4), (4, 3)), False),
    "binary, the second permuted": (lambda x, y: y * 3 + x.t(), tensors((3, 4), (4, 3)), True),
    "broadcast, permuted": (lambda x, b: x.permute(0, 2, 1) * b + b, tensors((2, 3, 4), (4, 1)), True),
    "broadcast first": (lambda x, b: b * x.permute(0, 2, 1) + 1, tensors((2, 3, 4), (1, 3)), True),
    "broadcast, nothing said": (lambda x, y: (x + y).tanh(), tensors((5, 1), (1, 6)), True),
    "channels last": (lambda x: x.relu() * 2, tensors(((2, 3, 4, 5), channels_last)), True),
    "channels last by channel": (lambda x, b: b * x.relu(), tensors(((2, 3, 4, 5), channels_last), (3, 1, 1)), True),
    "channels last, one channel": (lambda x: x.relu() * 2, tensors(((2, 1, 4, 5), channels_last)), True),
    "sizes of 1": (lambda x: x.permute(2, 1, 0) * 2 + 1, tensors((3, 1, 4)), True),
    "expanded": (lambda x: x.expand(3, 4).t() * 2 + 1, tensors((1, 4)), True),
    "0-dim": (lambda x, y: x * y + 1, tensors((), ()), True),
    "0-dim beside permuted": (lambda x, y: y * x.t() + y, tensors((3, 4), ()), True),
    "empty": (lambda x: x.permute(0, 2, 1) * 2 + 1, tensors((2, 0, 4)), True),
    "a view behind": (lambda x: (x.permute(0, 2, 1) * 2 + 1).permute(2, 0, 1), tensors((2, 3, 4)), True),
    "contiguous behind": (lambda x: (x.permute(0, 2, 1) * 2).contiguous() + 1, tensors((2, 3, 4)), True),
    "reshaped behind": (lambda x: (x.permute(0, 2, 1) * 2).reshape(2, -1) + 1, tensors((2, 3, 4)), True),
    "cast": (lambda x: (x.t() * 2).double() + 1, tensors((3, 4)), True),
    "cast as a tensor of other shape": (lambda x, y: (x.t() > 0).type_as(y) * 2, tensors((3, 4), (4, 3, 2)), True),
    "cast as a tensor of other order": (lambda x, y: (x > 0).type_as(y.t()) + 1, tensors((3, 4), (4, 3)), True),
    "cast to a tensor of fewer dims": (lambda x, y: (x.t() > 0).to(y) * 2, tensors((3, 4), (2,)), True),
    "where": (lambda x, y: y.t().where(x.t() > 0, x.t()) + 1, tensors((3, 4), (3, 4)), True),
    "two results": (lambda x: (x.t() * 2, (x.t() * 2).contiguous() + 1), tensors((3, 4)), True),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", CASES)
def test_results_lie_as_those_of_pytorch(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    function, make, is_numpys = CASES[name]
    inputs = make(torch)
    wanted = function(*inputs)
    module, fast = loaded(function, inputs, tmp_path)
    arrays = [x.numpy() for x in inputs]
    for got, is_alike in ((module(*arrays), is_numpys), (fast(*arrays), True), (fast(*arrays), True)):
        for g, w in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, wanted)), strict=True):
            np.testing.assert_allclose(g, w.numpy(), rtol=1e-6)
            assert g.shape == tuple(w.shape) and g.dtype == w.numpy().dtype
            assert (steps(g) == steps(w)) == is_alike or not w.numel()


def loaded(function: Callable[..., Any], inputs: Sequence[Any], folder: Path) -> tuple[Any, Any]:
    """A function as a module that the interpreter runs, and one that is planned."""
    torch = pytest.importorskip("torch")

    class Module(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return function(*inputs)

    file = folder / "module.pt"
    torch.jit.save(torch.jit.trace(Module().eval(), tuple(inputs), check_trace=False), str(file))
    arrays = [x.numpy() for x in inputs]
    return gpujit.load(file), gpujit.optimize_for_inference(gpujit.load(file), example_inputs=arrays)


# Who reads a result, and what calls meet -----------------------------------------------------------------------------

HEAD = """
    graph(%x : Float(4, 6), %w : Float(4, 4)):
      %one : int = prim::Constant[value=1]()
      %no : bool = prim::Constant[value=0]()
      %two : float = prim::Constant[value=2.]()
      %size : int[] = prim::Constant[value=[-1]]()
      %dims : int[] = prim::Constant[value=[1, 0]]()
      %t : Float(6, 4) = aten::t(%x)
      %y : Float(6, 4) = aten::mul(%t, %two)"""
X, W = f32(4, 6), f32(4, 4, seed=1)
Y = X.T * 2


def read_by(*lines: str) -> Any:
    return from_text(HEAD + "".join(f"\n      {line}" for line in lines))


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        # A view that PyTorch refuses of a permuted tensor.
        (("%z : Float(24) = aten::view(%y, %size)", "return (%z)"), Y.ravel()),
        (("%z : Float(24) = aten::reshape(%y, %size)", "return (%z)"), Y.ravel()),
        (("%z : Float(6, 4) = aten::mm(%y, %w)", "return (%z)"), Y @ W),
        (("%z : bool = aten::is_contiguous(%y)", "return (%z)"), True),
        (("%z : int[] = aten::stride(%y)", "return (%z)"), [4, 1]),
    ],
)
def test_for_other_readers_results_are_contiguous(lines: tuple[str, ...], wanted: Any) -> None:
    got = read_by(*lines).run([X, W])
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    assert type(got) is type(wanted)


def test_one_reader_that_minds_is_enough() -> None:
    lines = ("%z : Float(24) = aten::view(%y, %size)", "%s : Float(24) = aten::tanh(%z)", "return (%y, %s)")
    y, s = read_by(*lines).run([X, W])
    np.testing.assert_array_equal(y, Y)
    np.testing.assert_allclose(s, np.tanh(Y.ravel()), rtol=1e-6)
    assert y.flags.c_contiguous


def test_what_lies_between_groups_may_be_permuted_too() -> None:
    # A sort, which is no kernel, stands between the groups.
    module = read_by(
        "%s : Float(6, 4), %i : Long(6, 4) = aten::sort(%t, %one, %no)",
        "%z : Float(6, 4) = aten::mul(%y, %s)",
        "%v : Float(4, 6) = aten::permute(%y, %dims)",
        "%e : Float(4, 6) = aten::exp(%v)",
        "return (%z, %e)",
    )
    for _ in range(3):
        z, e = module.run([X, W])
        np.testing.assert_allclose(z, Y * np.sort(X.T, 1), rtol=1e-6)
        np.testing.assert_allclose(e, np.exp(Y.T), rtol=1e-6)
    assert steps(z) == (1, 6) and steps(e) == (6, 1)


def test_the_order_is_that_of_the_call() -> None:
    text = """
        graph(%x : Float(3, 4)):
          %two : float = prim::Constant[value=2.]()
          %y : Float(3, 4) = aten::mul(%x, %two)
          %z : Float(3, 4) = aten::tanh(%y)
          return (%z)"""
    module = from_text(text)
    plain = f32(3, 4)
    permuted = np.asfortranarray(plain)
    # Contiguous operands give contiguous results whatever the plan was made for.
    for x in (permuted, plain, plain, permuted, permuted, plain, permuted, plain, plain):
        got = module.run([x])
        np.testing.assert_allclose(got, np.tanh(x * 2), rtol=1e-6)
        assert got.flags.c_contiguous or x is permuted
    fresh = from_text(text)
    assert fresh.run([permuted]).flags.f_contiguous


def test_given_arrays_of_any_order_are_filled() -> None:
    module = read_by("return (%y)")
    for out in (np.empty((6, 4), np.float32), np.empty((4, 6), np.float32).T, np.empty((6, 8), np.float32)[:, ::2]):
        assert module.run([X, W], out=[out]) is out
        np.testing.assert_array_equal(out, Y)
    # An operand's own memory: each number is read before it is written, or all of them are.
    x = X.copy()
    module.run([x, W], out=[x.T])
    np.testing.assert_array_equal(x.T, Y)
    (new,) = module.new_outputs([X, W])
    assert new is not None and steps(new) == (1, 6)


def test_strides_that_are_given_go_before_the_rule() -> None:
    graph = read_by("return (%y)").graph
    names = name_values(graph)
    (y,) = graph.outputs
    for strides, wanted in ({}, (1, 6)), ({names[y]: (16, 4)}, (4, 1)):
        programs = {n: program_of(n) for n in graph.nodes if SUBGRAPH in n.attributes}
        got = PlannedGraph(graph, programs, Lowerer(np), strides=strides).run([X, W])
        np.testing.assert_array_equal(got, Y)
        assert steps(got) == wanted


def test_it_is_said_which_results_are_permuted() -> None:
    module = read_by("return (%y)")
    module.run([X, W])
    assert "its result lies as its operands do, in the order of dims 1, 0" in module.explain()
    plain = read_by("%z : Float(6, 4) = aten::mm(%y, %w)", "return (%z)")
    plain.run([X, W])
    assert "in the order of dims" not in plain.explain()


def test_reductions_and_copies_in_a_group_make_it_contiguous() -> None:
    module = read_by(
        "%dim : int[] = prim::Constant[value=[1]]()",
        "%yes : bool = prim::Constant[value=1]()",
        "%none : NoneType = prim::Constant()",
        "%m : Float(6, 1) = aten::mean(%y, %dim, %yes, %none)",
        "%z : Float(6, 4) = aten::sub(%y, %m, %one)",
        "return (%z)",
    )
    got = module.run([X, W])
    np.testing.assert_allclose(got, Y - Y.mean(1, keepdims=True), rtol=1e-5, atol=1e-6)
    assert got.flags.c_contiguous
