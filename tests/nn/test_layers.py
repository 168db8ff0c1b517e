"""Layers of ``gpujit.nn`` by numbers worked out here, and containers. No torch needed."""

from __future__ import annotations

import doctest
import re
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.nn import functional as F
from gpujit.support.errors import ArgumentError, LayerError
from tests.nn.cases import CASES, floats


def test_the_page_about_layers() -> None:
    page = (Path(__file__).parents[2] / "docs" / "nn.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    parsed = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "nn", "docs/nn.md", 0)
    report: list[str] = []
    failed, tried = doctest.DocTestRunner(verbose=False).run(parsed, out=report.append)
    assert tried > 10 and failed == 0, "".join(report)


def test_linear_is_a_matrix_product():
    layer, x = nn.Linear(3, 2), floats(5, 3)
    np.testing.assert_allclose(layer(x), x @ layer.weight.T + layer.bias, 1e-6)


def test_convolution_slides_a_window():
    layer, x = nn.Conv1d(1, 1, 2, bias=False), np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    layer.weight[...] = [[[1, 10]]]
    assert layer(x).tolist() == [[[10, 21, 32, 43]]]


def test_batch_norm_moves_its_statistics():
    norm, x = nn.BatchNorm1d(2, momentum=0.5), floats(8, 2)
    y = norm(x)
    np.testing.assert_allclose(y, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), 1e-4, 1e-5)
    np.testing.assert_allclose(norm.running_mean, 0.5 * x.mean(0), 1e-5)
    np.testing.assert_allclose(norm.running_var, 0.5 + 0.5 * x.var(0, ddof=1), 1e-5)
    assert norm.num_batches_tracked == 1
    assert norm.num_batches_tracked.shape == ()
    frozen = norm.running_mean.copy()
    expected = (x - frozen) / np.sqrt(norm.running_var + 1e-5)
    np.testing.assert_allclose(norm.eval()(x), expected, 1e-4, 1e-5)
    np.testing.assert_array_equal(norm.running_mean, frozen)
    norm.reset_running_stats()
    assert norm.running_var.tolist() == [1, 1]


def test_a_recurrent_step_by_hand():
    layer, x = nn.RNN(3, 2), floats(4, 1, 3)
    y, last = layer(x)
    h = np.zeros(2)
    for t in range(4):
        h = np.tanh(x[t, 0] @ layer.weight_ih_l0.T + layer.bias_ih_l0 + h @ layer.weight_hh_l0.T + layer.bias_hh_l0)
        np.testing.assert_allclose(y[t, 0], h, 1e-5)
    np.testing.assert_allclose(last[0, 0], h, 1e-5)


def test_attention_by_hand():
    layer, q, kv = nn.MultiheadAttention(4, 1, bias=False), floats(3, 1, 4), floats(5, 1, 4, seed=2)
    wq, wk, wv = layer.in_proj_weight[:4], layer.in_proj_weight[4:8], layer.in_proj_weight[8:]
    scores = (q[:, 0] @ wq.T) @ (kv[:, 0] @ wk.T).T / 2
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    y, found = layer(q, kv, kv)
    np.testing.assert_allclose(found[0], weights, 1e-5)
    np.testing.assert_allclose(y[:, 0], weights @ (kv[:, 0] @ wv.T) @ layer.out_proj.weight.T, 1e-5, 1e-6)
    assert layer(q, kv, kv, need_weights=False)[1] is None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"attn_mask": np.zeros((3, 4))}, r"\[3, 5\], found \[3, 4\]"),
        ({"key_padding_mask": np.zeros((5,), bool)}, "needs 2 dimensions"),
        ({"key_padding_mask": np.zeros((2, 5), bool)}, r"\[1, 5\]"),
        ({"is_causal": True}, "attn_mask, which is missing"),
    ],
)
def test_masks_that_do_not_fit(change, text):
    with pytest.raises(LayerError, match=text):
        nn.MultiheadAttention(4, 1)(floats(3, 1, 4), floats(5, 1, 4), floats(5, 1, 4), **change)


def test_the_causal_mask():
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    assert mask.tolist() == [[0, -np.inf, -np.inf], [0, 0, -np.inf], [0, 0, 0]]
    assert mask.dtype == np.float32


def test_a_loss_and_its_reductions():
    x, y = floats(3, 2), floats(3, 2, seed=5)
    each = (x - y) ** 2
    np.testing.assert_allclose(nn.MSELoss()(x, y), each.mean(), 1e-6)
    np.testing.assert_allclose(nn.MSELoss(reduction="sum")(x, y), each.sum(), 1e-6)
    np.testing.assert_allclose(nn.MSELoss(reduction="none")(x, y), each, 1e-6)
    assert nn.MSELoss(size_average=False).reduction == "sum"
    assert nn.MSELoss(reduce=False).reduction == "none"


def test_in_place_layers_write_into_their_input():
    x = floats(3, 4)
    assert nn.ReLU(inplace=True)(x) is x
    assert x.min() == 0


def test_first_values_follow_the_seed():
    gpujit.manual_seed(4)
    first = nn.Linear(3, 2).weight
    gpujit.manual_seed(4)
    np.testing.assert_array_equal(nn.Linear(3, 2).weight, first)
    assert np.abs(first).max() <= 3**-0.5
    assert not np.array_equal(nn.Linear(3, 2).weight, first)


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_every_layer_runs_on_doubles(case):
    layer = case.build(nn).train(case.training).double()
    for array in (*layer.parameters(), *layer.buffers()):
        assert array.dtype in (np.float64, np.int64)

    def wide(value):
        if isinstance(value, tuple):
            return tuple(map(wide, value))
        return value.astype(np.float64) if getattr(value, "dtype", None) == np.float32 else value

    result = layer(*map(wide, case.inputs), **{k: wide(v) for k, v in case.kwargs.items()})
    first = result[0] if isinstance(result, tuple) else result
    assert type(first) is np.ndarray
    assert first.dtype in (np.float64, np.int64)


# ---------------------------------------------------------------------------------------- containers


def test_sequential_by_place_and_name():
    net = nn.Sequential(OrderedDict(a=nn.Linear(2, 3), b=nn.ReLU()))
    assert net.a is net[0]
    assert list(net.state_dict()) == ["a.weight", "a.bias"]
    assert [type(m).__name__ for m in net[1:]] == ["ReLU"]
    assert list(net[:1]._modules) == ["a"]
    net.append(nn.Tanh())
    assert len(net) == 3
    assert isinstance(net[-1], nn.Tanh)
    joined = nn.Sequential(nn.ReLU()) + nn.Sequential(nn.Tanh())
    assert [type(m).__name__ for m in joined] == ["ReLU", "Tanh"]
    del net[0]
    assert list(net._modules) == ["b", "2"]
    with pytest.raises(IndexError, match="out of range"):
        net[5]


def test_module_lists():
    layers = nn.ModuleList([nn.ReLU()])
    layers += [nn.Tanh(), nn.Sigmoid()]
    layers.insert(1, nn.GELU())
    assert [type(m).__name__ for m in layers] == ["ReLU", "GELU", "Tanh", "Sigmoid"]
    assert isinstance(layers.pop(0), nn.ReLU)
    layers[0] = nn.SiLU()
    del layers[1:]
    joined = layers + nn.ModuleList([nn.ReLU()])
    assert [type(m).__name__ for m in joined] == ["SiLU", "ReLU"]
    assert list(layers._modules) == ["0"]
    with pytest.raises(ArgumentError, match="a Module is needed"):
        layers.append(3)


def test_module_dicts():
    layers = nn.ModuleDict({"a": nn.ReLU()})
    layers.update([("b", nn.Tanh())])
    layers["c"] = nn.GELU()
    assert list(layers) == ["a", "b", "c"]
    assert "b" in layers
    assert isinstance(layers.pop("b"), nn.Tanh)
    assert len(layers) == 2
    layers.clear()
    assert not list(layers.items())


def test_parameter_lists_and_dicts():
    several = nn.ParameterList([np.zeros(2), nn.Parameter(np.ones(3)), "text"])
    assert [n for n, _ in several.named_parameters()] == ["0", "1"]
    several.append(np.zeros(1))
    several[0] = np.full(2, 5.0)
    assert several[0].tolist() == [5, 5]
    assert len(several[1:3]) == 2
    assert "(1): Parameter containing: [float64 of size 3]" in repr(several)
    named = nn.ParameterDict({"a": np.zeros(2)})
    named["b"] = np.ones(1)
    assert list(named.state_dict()) == ["a", "b"]
    assert named.get("c", 7) == 7
    assert named.pop("a").shape == (2,)
    assert list(named.keys()) == ["b"]
    with pytest.raises(KeyError):
        named["a"]


def test_functions_of_two_kinds_choose_by_their_argument():
    x = floats(1, 1, 4)
    assert isinstance(F.max_pool1d(x, 2), np.ndarray)
    values, places = F.max_pool1d(x, 2, return_indices=True)
    np.testing.assert_array_equal(values[0, 0], x[0, 0, places[0, 0]])
    assert isinstance(F.max_pool1d(x, 2, None, 0, 1, False, True), tuple)
