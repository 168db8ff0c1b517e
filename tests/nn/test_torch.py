"""Layers of ``gpujit.nn`` against ``torch.nn``'s: same state, same inputs, same outputs, and same first values."""

from __future__ import annotations

import importlib
import inspect
import warnings
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.ir.dtypes import BFLOAT16
from tests.compare import to_torch
from tests.nn.cases import CASES, Case

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
IDS = [c.name for c in CASES]


def ours(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return tuple(map(ours, value)) if isinstance(value, tuple) else value


def check(found: Any, expected: Any, tolerance: float) -> None:
    if isinstance(expected, torch.Tensor):
        wanted = expected.detach().numpy()
        assert type(found) is np.ndarray
        assert found.dtype == wanted.dtype
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, tolerance, tolerance)
    elif isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            check(f, e, tolerance)
    else:
        assert found == expected


def pair(case: Case, dtype: str = "float32") -> tuple[Any, Any]:
    """The layer of both packages with equal, and not trivial, state."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, mine = case.build(torch.nn), case.build(nn)
    draw = np.random.default_rng(1)
    for name, tensor in theirs.state_dict().items():
        if tensor.is_floating_point():
            low = 0.5 if "var" in name else -0.5
            tensor.copy_(torch.from_numpy(draw.uniform(low, 1.0, tuple(tensor.shape))))
    theirs, mine = theirs.to(getattr(torch, dtype)), mine.to(dtype)
    theirs.train(case.training)
    mine.train(case.training)
    assert mine.load_state_dict(theirs.state_dict()) == ([], [])
    return mine, theirs


def cast(value: Any, dtype: str) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype(dtype) if value.dtype == np.float32 else value
    return tuple(cast(v, dtype) for v in value) if isinstance(value, tuple) else value


def compare(case: Case, dtype: str, tolerance: float) -> None:
    mine, theirs = pair(case, dtype)
    inputs = cast(case.inputs, dtype)
    kwargs = {k: cast(v, dtype) for k, v in case.kwargs.items()}
    for _ in range(2):  # the second call meets the statistics that the first one left
        torch.manual_seed(3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = theirs(*map(to_torch, inputs), **{k: to_torch(v) for k, v in kwargs.items()})
        gpujit.manual_seed(3)
        found = mine(*map(ours, inputs), **{k: ours(v) for k, v in kwargs.items()})
        check(found, expected, tolerance)
    for name, tensor in theirs.state_dict().items():
        check(mine.state_dict()[name], tensor, tolerance)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_same_outputs(case):
    compare(case, "float32", case.tolerance)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_same_outputs_in_double_precision(case):
    compare(case, "float64", 1e-11)


@pytest.mark.parametrize("cutoffs", [[2, 5, 9], [7]])
@pytest.mark.parametrize("bias", [0.0, 9.0, -9.0])
def test_adaptive_softmax_finds_the_most_likely_class(cutoffs, bias):
    # A bias moves rows between the head and the clusters.
    case = Case("", lambda package: package.AdaptiveLogSoftmaxWithLoss(6, 12, cutoffs, 2.0, True), ())
    mine, theirs = pair(case)
    x = np.random.default_rng(0).standard_normal((9, 6)).astype(np.float32)
    with torch.no_grad():
        for layer in (mine, theirs):
            layer.head.bias[: cutoffs[0]] += bias
        check(mine.log_prob(x), theirs.log_prob(torch.from_numpy(x)), 1e-5)
        check(mine.predict(x), theirs.predict(torch.from_numpy(x)), 0)
    assert {type(mine(x, np.arange(9))).__name__, *mine(x, np.arange(9))._fields} == {"_ASMoutput", "output", "loss"}


HALF = (
    "Linear", "Conv2d", "ConvTranspose2d", "LayerNorm", "BatchNorm2d-train", "Embedding", "GELU", "Softmax", "LSTM",
    "MultiheadAttention", "TransformerEncoderLayer", "MaxPool2d", "AvgPool1d", "Upsample-bilinear",
    "CrossEntropyLoss-label_smoothing",
)  # fmt: skip


@pytest.mark.parametrize("name", HALF)
def test_same_outputs_in_bfloat16(name):
    (case,) = (c for c in CASES if c.name == name)
    mine, theirs = pair(case, "bfloat16")
    assert mine.load_state_dict(theirs.state_dict()) == ([], [])

    def half(value):
        return value.astype(BFLOAT16) if getattr(value, "dtype", None) == np.float32 else value

    found = mine(*map(half, case.inputs))
    expected = theirs(*(t.bfloat16() if t.is_floating_point() else t for t in map(to_torch, case.inputs)))
    for f, e in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected)), strict=True):
        if isinstance(e, torch.Tensor):
            assert f.dtype == BFLOAT16
            np.testing.assert_allclose(f.astype(np.float32), e.detach().float().numpy(), 0.03, 0.03)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_same_first_values_and_state_keys(case):
    torch.manual_seed(11)
    gpujit.manual_seed(11)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, mine = case.build(torch.nn), case.build(nn)
    expected, found = theirs.state_dict(), mine.state_dict()
    assert list(found) == list(expected)
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    for name, tensor in expected.items():
        if case.name.startswith("Embedding"):
            # PyTorch's vectorised logarithm and sine of normal numbers differ from NumPy's in the last place.
            np.testing.assert_allclose(found[name], tensor.numpy(), 1e-6, 1e-7)
        else:
            assert np.array_equal(found[name], tensor.numpy()), name


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_same_text(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert repr(case.build(nn)) == repr(case.build(torch.nn))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_state_goes_back_to_torch(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, mine = case.build(torch.nn), case.build(nn)
    state = {k: torch.from_numpy(v) for k, v in mine.state_dict().items()}
    theirs.load_state_dict(state)
    for name, tensor in theirs.state_dict().items():
        assert np.array_equal(mine.state_dict()[name], tensor.numpy())


# Names of torch.nn that are not here, as docs/nn.md says; what its modules import, and what trains, is none of them.
MISSING = {
    "nn": {"Container", "DataParallel", "LinearCrossEntropyLoss", "LinearCrossEntropyOptions", "factory_kwargs"},
    "functional": {
        "grouped_mm", "linear_cross_entropy", "scaled_grouped_mm", "scaled_mm", "assert_int_or_pair",
    },
    "init": {
        "constant", "dirac", "eye", "kaiming_normal", "kaiming_uniform", "normal", "orthogonal", "sparse", "uniform",
        "xavier_normal", "xavier_uniform",
    },
    "utils": {
        "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm",
        "convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format",
    },
    "utils.rnn": set(),
    "utils.parametrize": {"transfer_parametrizations_and_params"},
    "utils.parametrizations": set(),
}  # fmt: skip


@pytest.mark.parametrize("home", MISSING)
def test_names_that_are_missing_are_known(home):
    package = "torch.nn" if home == "nn" else f"torch.nn.{home}"
    mine = importlib.import_module(package.replace("torch", "gpujit"))
    theirs = importlib.import_module(package)
    public = getattr(theirs, "__all__", None) or [n for n in vars(theirs) if not n.startswith("_")]
    names = [n for n in public if str(getattr(getattr(theirs, n), "__module__", "torch.nn")).startswith("torch.nn")]
    if home != "utils":
        names = [n for n in names if not inspect.ismodule(getattr(theirs, n))]
    names = [n for n in names if callable(getattr(theirs, n)) or inspect.ismodule(getattr(theirs, n))]
    names = [n for n in names if home == "nn" or not n[0].isupper() or n in getattr(theirs, "__all__", ())]
    assert {n for n in names if not hasattr(mine, n)} == MISSING[home]


# Constructors that take anything in PyTorch, or whose default is a function of the package's own.
VARIADIC = {
    "RNN", "LSTM", "GRU", "Identity", "NLLLoss2d", "Transformer", "TransformerEncoderLayer", "TransformerDecoderLayer",
}  # fmt: skip


def parameters(f: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.default, p.kind) for p in inspect.signature(f).parameters.values()]


@pytest.mark.parametrize("name", sorted(set(nn.__all__) - VARIADIC - {"functional", "init", "utils", "Module"}))
def test_constructors_have_the_same_arguments(name):
    theirs = getattr(torch.nn, name)
    if theirs.__init__ is torch.nn.Module.__init__:
        assert getattr(nn, name).__init__ is nn.Module.__init__
    else:
        assert parameters(getattr(nn, name)) == parameters(theirs)


@pytest.mark.parametrize("name", sorted(nn.functional._HOMES))
def test_functions_have_the_same_arguments(name):
    function, theirs = getattr(nn.functional, name), getattr(torch.nn.functional, name)
    if isinstance(function, nn.typing.BooleanDispatch):
        theirs = getattr(torch.nn.functional, f"{name}_with_indices")
        for one in (function.if_true, function.if_false):
            assert parameters(one) == parameters(theirs)
            assert list(inspect.signature(one).parameters)[function.position] == function.argument
    else:
        assert parameters(function) == parameters(theirs)
