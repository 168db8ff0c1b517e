"""copy.copy and copy.deepcopy of frozen and optimised modules: what is shared, and what stays optimised."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.ir.module import named_modules
from gpujit.ir.verify import verify
from tests.runtime.recording_device import RecordingDevice
from tests.static_runtime.test_device import placed

X = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
FLOAT16 = np.dtype("float16")


class Counts(nn.Module):
    """A layer, a buffer that each call adds to, and a branch on it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("calls", np.zeros(1, "float32"))

    def forward(self, x: gpujit.Tensor) -> gpujit.Tensor:
        self.calls += 1
        return self.layer(x) * self.calls


class Tree(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Counts()
        self.second = Counts()

    def forward(self, x: gpujit.Tensor) -> gpujit.Tensor:
        return self.second(self.first(x))

    @gpujit.export
    def total(self) -> gpujit.Tensor:
        return self.first.calls + self.second.calls


def frozen() -> gpujit.ScriptModule:
    return gpujit.freeze(gpujit.script(Tree().eval()), ["total"])


def optimised() -> gpujit.ScriptModule:
    return gpujit.optimize_for_inference(gpujit.script(Tree().eval()), ["total"], threads=1, strict=True)


MAKE: tuple[Callable[[], gpujit.ScriptModule], ...] = (frozen, optimised)


@pytest.mark.parametrize("make", MAKE)
def test_a_deep_copy_has_its_own_state_and_the_same_weights(make: Any) -> None:
    module, same = make(), make()
    module.load_state_dict(same.state_dict())
    for function in (module, same):
        function(X)
    deep = copy.deepcopy(module)
    want = module(X)
    assert float(module.total()[0]) == 4 and float(deep.total()[0]) == 2
    for _ in range(2):
        got = deep(X)
        np.testing.assert_array_equal(got, want)
        want = module(X)
    assert float(deep.total()[0]) == 6 and float(module.total()[0]) == 8


@pytest.mark.parametrize("make", MAKE)
def test_a_copy_shares_state_and_submodules(make: Any) -> None:
    module = make()
    flat = copy.copy(module)
    module(X)
    flat(X)
    assert float(module.total()[0]) == float(flat.total()[0]) == 4
    assert flat != module and flat.first == module.first


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("kind", [copy.copy, copy.deepcopy])
def test_what_edits_one_leaves_the_other_alone(make: Any, kind: Any) -> None:
    module = gpujit.freeze(gpujit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()))
    if make is optimised:
        module = gpujit.optimize_for_inference(module)
    want = module(X)
    made = kind(module)
    made.half()
    assert made(X.astype(FLOAT16)).dtype == FLOAT16
    got = module(X)
    assert got.dtype == np.float32 and np.array_equal(got, want)
    other = kind(module)
    module.half()
    assert other(X).dtype == np.float32
    assert "float16" in str(module.graph) and "float16" not in str(other.graph)


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("kind", [copy.copy, copy.deepcopy])
def test_graphs_of_copies_verify_name_their_classes_and_are_saved(make: Any, kind: Any) -> None:
    made = kind(make())
    for _, object_ in named_modules(made._object):
        for function in object_.type.methods.values():
            verify(function.graph)
            assert function.graph.inputs[0].type is object_.type is function.schema.arguments[0].type
    again = gpujit.load(made.save_to_buffer())
    assert np.allclose(again(X), made(X)) and again.total() == made.total()


def test_a_copy_of_an_optimised_module_has_plans_of_its_own_with_the_same_options() -> None:
    module = optimised()
    module(X)
    made = copy.deepcopy(module)
    assert module.plan_stats().made == 1 and made.plan_stats().made == 0
    made(X)
    assert made.plan_stats().made == 1 and "arena" in made.explain()
    # Options: sizes that plans are made for are those of the copy's own forward.
    padded = gpujit.optimize_for_inference(
        gpujit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()), buckets={0: {0: (8,)}}
    )
    want = padded(X)
    again = copy.deepcopy(copy.deepcopy(padded))
    for rows in (1, 3, 5):
        again(X[:1].repeat(rows, 0))
    np.testing.assert_array_equal(again(X), want)
    assert again.plan_stats().made == 1


def test_a_copy_of_a_frozen_module_can_be_optimised_and_the_other_way_round() -> None:
    module = frozen()
    made = gpujit.optimize_for_inference(copy.deepcopy(module))
    assert np.allclose(made(X), module(X), 1e-5, 1e-5)
    assert "runs on the interpreter" in module.explain() and "runs on the interpreter" not in made.explain()


def test_a_copy_of_a_module_on_a_device_is_on_the_cpu() -> None:
    module = gpujit.script(Tree().eval())
    want, found = copy.deepcopy(module), placed(module, RecordingDevice())
    for _ in range(2):
        found(X)
        want(X)
    made = copy.deepcopy(found)
    got = made(X)
    assert isinstance(got, np.ndarray) and np.allclose(got, want(X), 1e-5, 1e-5)
    # The module itself goes on where it was.
    assert np.allclose(found(X).get(), got, 1e-5, 1e-5)


def test_a_module_of_python_with_a_frozen_one_inside_is_copied() -> None:
    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = frozen()

        def forward(self, x: gpujit.Tensor) -> gpujit.Tensor:
            return self.inner(x)

    module = Holds()
    made = copy.deepcopy(module)
    np.testing.assert_array_equal(made(X), module(X))
    made(X)
    assert float(made.inner.total()[0]) == 4 and float(module.inner.total()[0]) == 2


@pytest.mark.torch
def test_copies_share_what_pytorch_s_copies_of_frozen_modules_share() -> None:
    torch = pytest.importorskip("torch")
    data = gpujit.script(Tree().eval()).save_to_buffer()

    def counts(module: Any, x: Any) -> list[float]:
        """Calls that the module, its copy and its deep copy count, each called once, the module twice."""
        module(x)
        flat, deep = copy.copy(module), copy.deepcopy(module)
        for each in (flat, deep, module):
            each(x)
        return [float(each.total().sum()) for each in (module, flat, deep)]

    with torch.no_grad():
        theirs = torch.jit.freeze(torch.jit.load(io.BytesIO(data)).eval(), ["total"])
        want = counts(theirs, torch.from_numpy(X))
    for make in (gpujit.freeze, gpujit.optimize_for_inference):
        ours = make(gpujit.load(data).eval(), ["total"])
        assert counts(ours, X) == want
