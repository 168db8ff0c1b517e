"""Modules: parameters as attributes, submodules as methods, buffers that are written, objects that are shared."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest

import gpujit
from gpujit import ops
from gpujit.frontend.trace.check import difference
from gpujit.ir.verify import verify
from gpujit.support.errors import ArgumentError, TraceError, TracerWarning
from tests.frontend.trace.modules import Counted, Linear, Module, Nested, Net

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)


def all_methods(traced):
    return [m for module in traced.modules() for m in module.methods.values()]


def test_a_module_keeps_its_submodules_as_methods():
    net = Net()
    traced = gpujit.trace(net, X)
    assert [n for n, _ in traced.named_parameters()] == ["first.weight", "first.bias", "second.weight", "second.bias"]
    kinds = [n.kind for n in traced.graph.nodes]
    assert kinds.count("prim::CallMethod") == 3
    assert "aten::linear" not in kinds
    assert "aten::linear" in [n.kind for n in traced.first.forward.graph.nodes]
    assert not difference(traced(Y), net(Y), 1e-6)
    for method in all_methods(traced):
        verify(method.graph)
    verify(traced.inlined_graph)


def test_a_module_that_is_called_twice_has_two_methods_and_one_object():
    traced = gpujit.trace(Net(), X)
    assert traced.first == traced.again
    assert set(traced.first.methods) == {"forward", "forward1"}


def test_parameters_are_shared_with_the_module():
    net = Net()
    traced = gpujit.trace(net, X)
    net.first.weight[...] = 0.0
    assert not difference(traced(X), net(X), 1e-6)


def test_the_module_is_as_before():
    nested = Nested()
    before = dict(nested.net.first._parameters)
    with pytest.warns(TracerWarning, match="container"):
        gpujit.trace(nested, (X, (X, X)))
    assert all(nested.net.first._parameters[k] is v for k, v in before.items())
    assert not nested.counted.count
    assert not nested.counted.running.any()
    assert Module.__call__ is vars(Module)["__call__"]
    assert Module.__call__.__qualname__ == "Module.__call__"


def test_buffers_are_written_in_place_and_replaced():
    plain, model = Counted(4), Counted(4)
    traced = gpujit.trace(model, X)
    for x in (X, Y, X):
        assert not difference(traced(x), plain(x), 1e-6)
    assert np.allclose(traced.running, plain.running)
    assert traced.count == plain.count == 3
    kinds = [n.kind for n in traced.graph.nodes]
    assert "prim::SetAttr" in kinds
    assert "aten::copy_" in kinds


def test_nested_modules_and_inputs():
    nested = Nested()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TracerWarning)
        traced = gpujit.trace(nested, (X, (X, X)))
    assert not difference(traced(Y, (Y, Y * 2)), Nested()(Y, (Y, Y * 2)), 1e-6)
    assert repr(traced).count("original_name=Linear") == 3


def test_several_methods_of_one_module():
    net = Net()
    traced = gpujit.trace_module(net, {"forward": X, "encode": (X,)})
    assert set(traced.methods) == {"forward", "encode"}
    assert not difference(traced.encode(Y), net.encode(Y), 1e-6)
    assert not difference(traced(Y), net(Y), 1e-6)
    by_name = gpujit.trace_module(net, {"encode": {"x": X}}, example_inputs_is_kwarg=True)
    assert not difference(by_name.encode(Y), net.encode(Y), 1e-6)


def test_a_submodule_that_reads_values_of_its_caller():
    class Reads(Module):
        def forward(self, x):
            return x + outside["value"]

    class Gives(Module):
        def __init__(self):
            super().__init__()
            self.reads = Reads()

        def forward(self, x):
            outside["value"] = x * 2
            found = self.reads(x)
            outside.clear()
            return found

    outside: dict[str, object] = {}
    traced = gpujit.trace(Gives(), X, check_trace=False)
    assert len(list(traced.reads.forward.graph.inputs)) == 3
    assert np.array_equal(traced(Y), Y * 3)


def test_a_caller_that_reads_values_of_its_submodule():
    class Shows(Module):
        def forward(self, x):
            self.hidden = x * 2
            return self.hidden + 1

    class Looks(Module):
        def __init__(self):
            super().__init__()
            self.shows = Shows()

        def forward(self, x):
            y = self.shows(x)
            z = y + self.shows.hidden
            self.shows.hidden = None
            return z

    traced = gpujit.trace(Looks(), X, check_trace=False)
    assert np.allclose(traced(Y), Y * 4 + 1)
    assert "prim::TupleUnpack" in [n.kind for n in traced.graph.nodes]


def test_parameters_of_a_parent_that_a_child_reads():
    class Child(Module):
        def __init__(self, parent):
            super().__init__()
            object.__setattr__(self, "parent", [parent])

        def forward(self, x):
            return ops.matmul(x, self.parent[0].weight)

    class Parent(Module):
        def __init__(self):
            super().__init__()
            self.parameter("weight", np.eye(4, dtype=np.float32) * 3)
            self.child = Child(self)

        def forward(self, x):
            return self.child(x)

    traced = gpujit.trace(Parent(), X)
    assert np.array_equal(traced(Y), Y * 3)
    assert list(traced.child._object.type.attributes) == ["training"]


def test_a_value_kept_in_an_attribute_is_a_leak():
    class Keeps(Module):
        def forward(self, x):
            self.kept = x * 2
            return x

    with pytest.warns(TracerWarning, match="leak"):
        traced = gpujit.trace(Keeps(), X, check_trace=False)
    assert [d.kind for d in traced.trace_report] == ["leak"]


def test_modules_without_parameters_of_some_names():
    class Half(Linear):
        def __init__(self):
            super().__init__(4, 2)
            self._parameters["bias"] = None

    half = Half()
    traced = gpujit.trace(half, X)
    assert [n for n, _ in traced.named_parameters()] == ["weight"]
    assert not difference(traced(Y), half(Y), 1e-6)


def test_freezing_and_optimising_a_traced_module():
    net = Net()
    traced = gpujit.trace(net, X)
    for found in (gpujit.freeze(traced.eval()), gpujit.optimize_for_inference(traced)):
        assert not difference(found(Y), net(Y), 1e-5)


def test_methods_that_are_not_there_are_refused():
    with pytest.raises(ArgumentError, match="no method 'backward'"):
        gpujit.trace_module(Net(), {"backward": X})
    with pytest.raises(ArgumentError, match="expects a dict"):
        gpujit.trace_module(Net(), X)
    with pytest.raises(ArgumentError, match="expects a module"):
        gpujit.trace_module(lambda x: x, {"forward": X})


def test_modules_of_one_class_are_traced_in_several_threads():
    failures = []

    def work(seed):
        net = Linear(4, 3, seed)
        for _ in range(5):
            if difference(gpujit.trace(net, X)(Y), net(Y), 1e-6):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    assert Module.__call__.__qualname__ == "Module.__call__"


def test_strict_tracing_of_a_module():
    class Branches(Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(TraceError, match="branch"):
        gpujit.trace(Branches(), X, strict=True)
