"""Compiled functions and modules that are called in a trace: they stay calls; parameters and control flow stay."""

from __future__ import annotations

from io import BytesIO
from typing import Dict, List, NamedTuple, Optional, Tuple  # noqa: UP035 - the language of scripts has these

import numpy as np
import pytest

import gpujit
from gpujit import nn, ops
from gpujit.frontend.trace.check import difference
from gpujit.ir.verify import verify
from gpujit.nn.typing import Tensor
from gpujit.support.errors import ArgumentError, TraceError, TracerWarning

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32) - 1.0


class Branches(nn.Module):
    """A branch and a loop that a trace of it would lose."""

    def __init__(self, turns: int = 2) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.turns = turns

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) if bool(x.sum() > 0) else x * 3
        for i in range(self.turns):
            y = y + i
        return y

    @gpujit.export
    def scaled(self, x: Tensor, by: float = 2.0) -> Tensor:
        return self.linear(x) * by


class Around(nn.Module):
    def __init__(self, inner) -> None:
        super().__init__()
        self.inner = inner
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.inner(x))


def loaded(module):
    return gpujit.load(module.save_to_buffer())


def again(traced):
    """The traced module after it was saved and loaded."""
    for module in traced.modules():
        for method in module.methods.values():
            verify(method.graph)
    return loaded(traced)


def kinds(graph) -> set[str]:
    return {n.kind for n in graph.nodes}


@pytest.mark.parametrize("make", [gpujit.script, lambda m: loaded(gpujit.script(m))], ids=["scripted", "loaded"])
def test_a_compiled_submodule_keeps_its_parameters_and_branches(make):
    model = Around(make(Branches().eval()))
    traced = gpujit.trace(model, X, strict=True)
    assert list(traced.state_dict()) == list(model.state_dict())
    assert "inner.linear.weight" in model.state_dict()
    assert traced.inner == model.inner
    assert {"prim::If", "prim::Loop"} <= kinds(traced.inlined_graph)
    for x in (X, Y, -X, -Y):
        expected = model(x)
        assert not difference(traced(x), expected, 1e-6)
        assert not difference(again(traced)(x), expected, 1e-6)
        assert not difference(gpujit.freeze(again(traced).eval())(x), expected, 1e-6)


@pytest.mark.parametrize("prepare", [gpujit.freeze, gpujit.optimize_for_inference], ids=["frozen", "optimised"])
def test_submodules_that_are_frozen_or_optimised(prepare):
    model = Around(prepare(gpujit.script(Branches().eval()))).eval()
    for compiled in (gpujit.trace(model, X), gpujit.script(model)):
        for x in (X, Y):
            expected = model(x)
            assert not difference(again(compiled)(x), expected, 1e-5)
            assert not difference(gpujit.optimize_for_inference(compiled)(x), expected, 1e-5)


def test_compiled_submodules_are_scripted():
    inner = gpujit.script(nn.Linear(4, 4))
    model = nn.Sequential(inner, nn.ModuleList([inner])[0], nn.ReLU())
    scripted = gpujit.script(model)
    assert list(scripted.state_dict()) == list(model.state_dict())
    assert not difference(again(scripted)(X), model(X), 1e-6)
    inner.weight[...] = 0.0
    assert not difference(scripted(X), model(X), 1e-6)


def test_weights_are_saved_once():
    inner = gpujit.script(nn.Linear(200, 200))
    size = len(gpujit.trace(nn.Sequential(inner, inner), np.ones((1, 200), np.float32)).save_to_buffer())
    assert 160_000 < size < 175_000


def test_parameters_are_shared_with_the_compiled_module():
    inner = gpujit.script(nn.Linear(4, 4))
    traced = gpujit.trace(Around(inner), X)
    inner.weight[...] = 0.0
    inner.bias[...] = 1.0
    assert not difference(traced(X), Around(inner).last(np.ones((3, 4), np.float32)) * 0 + traced(Y[:3]), 1e-6)


def test_classes_of_one_name_stay_apart():
    # Both files have a class __torch__...Branches, with other constants.
    model = nn.Sequential(loaded(gpujit.script(Branches(1))), loaded(gpujit.script(Branches(5))), nn.Linear(4, 4))
    traced = gpujit.trace(model, X)
    for x in (X, Y):
        assert not difference(again(traced)(x), model(x), 1e-6)


def test_statistics_are_kept_and_put_back():
    inner = gpujit.script(nn.BatchNorm1d(4))
    model = Around(inner)
    traced = gpujit.trace(model, X)
    assert int(inner.num_batches_tracked) == 0
    assert not inner.running_mean.any()
    state = {k: v.copy() for k, v in model.state_dict().items()}
    found = traced(X)
    after = {k: v.copy() for k, v in model.state_dict().items()}
    model.load_state_dict(state)
    assert not difference(found, model(X), 1e-6)
    for name, array in model.state_dict().items():
        assert not difference(after[name], array, 1e-6)


def test_other_methods_attributes_and_inner_modules():
    class Uses(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = gpujit.script(Branches())

        def forward(self, x: Tensor) -> Tensor:
            y = self.inner.scaled(x, by=3) + self.inner.linear(x)
            return ops.add(ops.matmul(y, self.inner.linear.weight), self.inner.scaled(x, x.shape[0]))

    model = Uses()
    traced = gpujit.trace(model, X, strict=True)
    assert list(traced.state_dict()) == ["inner.linear.weight", "inner.linear.bias"]
    assert not difference(again(traced)(Y), model(Y), 1e-6)
    traced.inner.linear.weight[...] *= 2
    assert not difference(traced(Y), model(Y), 1e-6)


def test_a_submodule_that_calls_a_compiled_module_of_its_parent():
    class Child(nn.Module):
        def __init__(self, parent):
            super().__init__()
            object.__setattr__(self, "parent", [parent])

        def forward(self, x: Tensor) -> Tensor:
            return self.parent[0].inner(x) + 1

    class Parent(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = gpujit.script(Branches())
            self.child = Child(self)

        def forward(self, x: Tensor) -> Tensor:
            return self.child(x)

    model = Parent()
    traced = gpujit.trace(model, X, strict=True)
    assert not difference(again(traced)(Y), model(Y), 1e-6)


def before(module, args: Tuple[Tensor]) -> Tuple[Tensor]:  # noqa: UP006
    return (args[0] * 2,)


def after(module, args: Tuple[Tensor], result: Tensor) -> Tensor:  # noqa: UP006
    return result + args[0].sum()


def test_hooks_of_a_compiled_module():
    inner = nn.Linear(4, 4)
    inner.register_forward_pre_hook(before)
    inner.register_forward_hook(after)
    model = Around(gpujit.script(inner))
    traced = gpujit.trace(model, X, strict=True)
    assert not difference(again(traced)(Y), model(Y), 1e-6)
    assert not difference(model.inner(Y), inner(Y), 1e-6)


def test_containers_hold_compiled_modules():
    inner = gpujit.script(nn.Linear(4, 4))
    listed = nn.ModuleList([inner])
    listed.insert(0, gpujit.script(nn.Linear(4, 3)))
    held = nn.ModuleDict({"a": inner})
    assert [*listed.state_dict(), *held.state_dict()] == [
        "0.weight", "0.bias", "1.weight", "1.bias", "a.weight", "a.bias"
    ]  # fmt: skip
    assert held.get_parameter("a.weight") is inner.weight
    assert [n for n, _ in held.named_parameters()] == ["a.weight", "a.bias"]
    assert [n for n, _ in held.named_modules()] == ["", "a"]
    held.double().eval()
    assert inner.weight.dtype == np.float64
    assert not inner.training
    held.load_state_dict({"a.weight": np.ones((4, 4)), "a.bias": np.zeros(4)})
    assert inner.weight.all()
    assert "ScriptModule" in repr(held)


# ------------------------------------------------------------------------------------------------ functions


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


@gpujit.script
def branch(x: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        return x * 2
    return x - 1


@gpujit.script
def named(x: Tensor) -> Dict[str, Tensor]:  # noqa: UP006
    return {"low": x - 1, "high": x + 1}


@gpujit.script
def pair(x: Tensor) -> Pair:
    return Pair(x, x * 2)


@gpujit.script
def first(p: Pair, d: Dict[str, Tensor], many: List[Tensor], n: Optional[int] = None) -> Tensor:  # noqa: UP006, UP045
    return p.first + d["low"] + many[0] * (1 if n is None else n)


@gpujit.script
def positive(x: Tensor, none: bool = False) -> Optional[Tensor]:  # noqa: UP045
    return None if none else x.abs()


@gpujit.script
def several(x: Tensor) -> Tuple[int, List[Tensor], bool]:  # noqa: UP006
    return x.size(0), [x, x + 1], bool(x.sum() > 0)


@gpujit.script
def scaled(x: Tensor, by: float) -> Tensor:
    return x * by


@gpujit.script
def noise(n: int) -> Tensor:
    return ops.rand([n])


@gpujit.script
def bump(x: Tensor) -> None:
    x.add_(1)


def bumped(x):
    y = x * 1
    row = y[0]
    bump(y)
    return y + row


FUNCTIONS = {
    "branch": lambda x: branch(x) + 1,
    "dict": lambda x: named(x)["low"] * named(x)["high"],
    "named tuple": lambda x: pair(x).first + pair(x).second,
    "containers as arguments": lambda x: first(pair(x), named(x), [x], x.shape[0]),
    "a default": lambda x: first(pair(x), named(x), [x]),
    "an optional result": lambda x: positive(x) + 1,
    "numbers and lists": lambda x: x * several(x)[0] + several(x)[1][1],
    "an int where a float is wanted": lambda x: scaled(x, x.shape[0]) + scaled(x, 3),
    "writes": bumped,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function = FUNCTIONS[name]
    traced = gpujit.trace(function, X)
    assert not [d for d in traced.trace_report if not d.is_note and d.kind != "size"]
    assert "prim::CallFunction" in kinds(traced.graph)
    verify(traced.graph)
    for x in (X, Y, -X):
        assert not difference(traced(x), function(x), 1e-6)
        assert not difference(again(traced._as_module())(x), function(x), 1e-6)


def test_a_function_without_traced_arguments_is_recorded_too():
    traced = gpujit.trace(lambda x: x + noise(4), X, check_trace=False)
    assert not np.array_equal(traced(X), traced(X))


def test_an_optional_result_that_is_none_is_listed():
    with pytest.warns(TracerWarning, match="may be None, here None"):
        traced = gpujit.trace(lambda x: x if positive(x, True) is None else x * 2, X)
    assert np.array_equal(traced(X), X)
    # The other way round it fails where it is None.
    traced = gpujit.trace(lambda x, flag: positive(x, flag), (X, False))
    assert np.array_equal(traced(Y, False), np.abs(Y))
    with pytest.raises(gpujit.GpujitError, match="None"):
        traced(Y, True)


def test_what_compiled_code_calls_of_python_is_not_recorded():
    @gpujit.ignore
    def outside(x: Tensor) -> Tensor:
        return ops.mul(x, 2) + branch(x)

    @gpujit.script
    def calls(x: Tensor) -> Tensor:
        return outside(x)

    traced = gpujit.trace(lambda x: calls(x), X)
    assert kinds(traced.graph) == {"prim::Constant", "prim::CallFunction"}
    assert not difference(traced(Y), Y * 2 + branch(Y), 1e-6)


# -------------------------------------------------------------------------------------------------- refused


@gpujit.script
class Held:
    def __init__(self, x: Tensor) -> None:
        self.x = x


@gpujit.script
def holds(x: Tensor) -> Held:
    return Held(x)


@gpujit.script
def text(x: Tensor) -> str:
    return str(x.size(0))


INNER = gpujit.script(nn.Linear(4, 4))
REFUSED = {
    "a module that is no submodule": (lambda x: INNER(x), TraceError, "no part of what is traced"),
    "a method of one": (lambda x: INNER.forward(x), TraceError, "no part of what is traced"),
    "an object": (lambda x: holds(x), TraceError, "returns a Held|returns a .*Held"),
    "a text": (lambda x: text(x), TraceError, "returns a str"),
    "a missing argument": (lambda x: scaled(x), ArgumentError, r"takes \(x, by\)"),
    "an unknown argument": (lambda x: branch(x, y=1), ArgumentError, r"takes \(x\)"),
    "an argument of another type": (lambda x: branch(x.shape[0]), ArgumentError, "argument 'x'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    function, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        gpujit.trace(function, X)


def test_a_compiled_module_is_not_traced_again():
    assert gpujit.trace(INNER, X) is INNER
    with pytest.raises(ArgumentError, match="has graphs already"):
        gpujit.trace_module(INNER, {"forward": X})


@pytest.mark.torch
def test_torch_agrees():
    torch = pytest.importorskip("torch")
    file = BytesIO()

    class Inner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            if bool(x.sum() > 0):
                return self.linear(x)
            return x * 3

    class Outer(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.last = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.last(self.inner(x))

    torch.jit.save(torch.jit.script(Inner()), file)
    theirs = Outer(torch.jit.load(BytesIO(file.getvalue())))
    mine = Around(gpujit.load(file.getvalue()))
    mine.load_state_dict(theirs.state_dict())
    expected, found = torch.jit.trace(theirs, torch.from_numpy(X)), gpujit.trace(mine, X)
    assert list(found.state_dict()) == list(expected.state_dict())
    assert ("prim::If" in str(expected.inlined_graph)) == ("prim::If" in kinds(found.inlined_graph))
    back = torch.jit.load(BytesIO(found.save_to_buffer()))
    for x in (X, -X, Y):
        wanted = expected(torch.from_numpy(x)).detach().numpy()
        assert not difference(found(x), wanted, 1e-6)
        assert not difference(back(torch.from_numpy(x)).detach().numpy(), wanted, 1e-6)
