"""PyTorch's own modules and functions through gpujit.trace, and traced functions that PyTorch loads and runs."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest

import gpujit
import gpujit.nn as nn
from gpujit.frontend.trace.check import difference
from gpujit.support.errors import TraceError, TracerWarning
from tests.compare import to_torch
from tests.frontend.trace.modules import Counted, Net
from tests.frontend.trace.samples import EXPRESSIONS, arrays
from tests.frontend.trace.test_realistic import CASES, SIZES
from tests.frontend.trace.test_table import compiled
from tests.nn.cases import CASES as LAYERS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)


def to_numpy(value):
    if isinstance(value, torch.Tensor):
        return value.detach().resolve_conj().numpy()
    if isinstance(value, (tuple, list)):
        return type(value)(map(to_numpy, value))
    return {k: to_numpy(v) for k, v in value.items()} if isinstance(value, dict) else value


# ------------------------------------------------------------------------------------------- through torch.jit


class TorchNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 6)
        self.second = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(6, 2))

    def forward(self, x):
        return self.second(self.first(x))


@pytest.mark.parametrize("example", [X, torch.from_numpy(X), (torch.from_numpy(X),)], ids=["array", "tensor", "tuple"])
def test_a_module_of_pytorch(example):
    net = TorchNet()
    traced = gpujit.trace(net, example)
    assert not difference(traced(Y), net(torch.from_numpy(Y)).detach().numpy(), 1e-6)
    assert [n for n, _ in traced.named_children()] == ["first", "second"]


def test_a_function_of_pytorch():
    traced = gpujit.trace(lambda x: torch.relu(x) + 1, torch.from_numpy(X))
    assert np.array_equal(traced(Y), np.maximum(Y, 0) + 1)


def test_several_methods_of_a_module_of_pytorch():
    class Two(TorchNet):
        def encode(self, x):
            return self.first(x)

    net = Two()
    traced = gpujit.trace_module(net, {"forward": torch.from_numpy(X), "encode": torch.from_numpy(X)})
    assert not difference(traced.encode(Y), net.encode(torch.from_numpy(Y)).detach().numpy(), 1e-6)


def branches(x):
    return x if x.sum() > 0 else -x


def test_warnings_of_pytorch_are_listed():
    with pytest.warns(TracerWarning, match="Python boolean"):
        traced = gpujit.trace(branches, torch.from_numpy(X))
    assert len(traced.trace_report)
    with pytest.raises(TraceError, match="strict tracing"):
        gpujit.trace(branches, torch.from_numpy(X), strict=True)


# ------------------------------------------------------------------------------------------- loaded by PyTorch

# Eigenvectors are given up to a factor; PyTorch's own archives do not tell view's two meanings apart.
OWN = ("np.linalg.eig(m)", "x.view(np.int64) * 0")


def in_pytorch(traced):
    """What PyTorch loads from the archive that a trace is saved as."""
    pytest.importorskip("gpujit.serialization.writer")
    file = io.BytesIO()
    traced.save(file)
    return torch.jit.load(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize("expression", [e for e in EXPRESSIONS if e not in OWN])
def test_pytorch_computes_the_same_from_the_saved_trace(expression):
    function, names = compiled(expression)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = in_pytorch(gpujit.trace(function, tuple(arrays()[n] for n in names), check_trace=False))
        given = tuple(arrays(1)[n] for n in names)
        single = any(arrays()[n].dtype.itemsize < 8 for n in names)
        assert not difference(to_numpy(loaded(*to_torch(given))), function(*given), 1e-5 if single else 1e-8)


@pytest.mark.parametrize(
    ("function", "inputs", "dtype"),
    [(f, i, d) for f, i, dtypes in CASES for d in dtypes],
    ids=[f"{f.__name__}-{np.dtype(d).name}" for f, _, dtypes in CASES for d in dtypes],
)
def test_pytorch_computes_the_same_for_all_sizes(function, inputs, dtype):
    given = [inputs(dtype, *s)[: function.__code__.co_argcount] for s in SIZES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = in_pytorch(gpujit.trace(function, given[0], check_trace=False))
        for args in given:
            found = to_numpy(loaded(*to_torch(args)))
            assert not difference(found, function(*args), 1e-4 if dtype == np.float32 else 1e-8)


@pytest.mark.parametrize("make", [Net, lambda: Counted(4)], ids=["Net", "Counted"])
def test_pytorch_runs_a_saved_module(make):
    module, plain = make(), make()
    loaded = in_pytorch(gpujit.trace(module, X))
    for x in (X, Y):
        assert not difference(to_numpy(loaded(torch.from_numpy(x))), plain(x), 1e-5)


@pytest.mark.parametrize("case", [c for c in LAYERS if not c.kwargs and not c.training], ids=lambda c: c.name)
def test_pytorch_runs_a_saved_layer(case):
    if case.seeded:
        pytest.skip("its random numbers are not PyTorch's after a layer was made")
    layer = case.build(nn).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = in_pytorch(gpujit.trace(layer, case.inputs, check_trace=False))
        found = to_numpy(loaded(*to_torch(case.inputs)))
        assert not difference(found, layer(*case.inputs), 1e-4)
