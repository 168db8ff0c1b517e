"""``gpujit.nn.Module``: names, walking, state, hooks, modes, copies and text. No torch needed."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.nn import hooks
from gpujit.support.errors import (
    ArgumentError,
    DeviceError,
    GpujitError,
    LayerError,
    StateDictError,
    UnknownAttributeError,
)


class Net(nn.Module):
    """Layers, a parameter and two buffers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.scale = nn.Parameter(np.ones(4, np.float32))
        self.register_buffer("shift", np.zeros(4, np.float32))
        self.register_buffer("scratch", np.zeros(2, np.float32), persistent=False)
        self.register_parameter("missing", None)
        self.plain = np.arange(3)

    def forward(self, x):
        return self.norm(self.first(x)) * self.scale + self.shift


KEYS = [
    "scale", "shift", "first.weight", "first.bias", "norm.weight", "norm.bias", "norm.running_mean",
    "norm.running_var", "norm.num_batches_tracked",
]  # fmt: skip


def x(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# ---------------------------------------------------------------------------------------- attributes


def test_arrays_are_plain_and_registered_by_name():
    net = Net()
    assert type(net.scale) is np.ndarray
    assert net._parameters["scale"] is net.scale
    assert "scale" not in vars(net)
    assert net.missing is None
    assert vars(net)["plain"] is net.plain
    net.scale = np.full(4, 2.0, np.float32)
    assert net._parameters["scale"][0] == 2
    net.plain = nn.Parameter(net.plain)
    assert list(net._parameters) == ["scale", "missing", "plain"]
    assert "plain" not in vars(net)
    del net.plain
    assert not hasattr(net, "plain")


def test_a_marked_buffer_is_registered():
    net = Net()
    net.plain = nn.Buffer(net.plain)
    net.hidden = nn.Buffer(np.zeros(1), persistent=False)
    assert net._buffers["plain"] is net.plain
    assert "plain" in net.state_dict()
    assert "hidden" not in net.state_dict()
    net.plain = nn.Parameter(net.plain)
    assert "plain" not in net._buffers


def test_a_marked_parameter_passes_for_its_array():
    p = nn.Parameter(np.ones((2, 3), np.float32))
    assert (p.shape, p.dtype, len(p)) == ((2, 3), np.float32, 2)
    assert gpujit.ops.sum(p) == 6
    nn.init.zeros_(p)
    assert not p.data.any()
    p[0] = 1
    assert np.asarray(p).sum() == 3


@pytest.mark.parametrize(
    ("action", "error", "text"),
    [
        (lambda n: n.absent, UnknownAttributeError, "Net has no attribute 'absent'"),
        (lambda n: setattr(n, "scale", "text"), ArgumentError, "scale is a parameter"),
        (lambda n: setattr(n, "shift", 3), ArgumentError, "shift is a buffer"),
        (lambda n: setattr(n, "first", 3), ArgumentError, "first is a submodule"),
        (lambda n: n.register_buffer("a.b", np.zeros(1)), ArgumentError, "no dot"),
        (lambda n: n.register_buffer("forward", np.zeros(1)), ArgumentError, "exists already"),
        (lambda n: n.register_parameter("shift", np.zeros(1)), ArgumentError, "exists already"),
        (lambda n: n.register_parameter("new", [1, 2]), ArgumentError, "a tensor is needed"),
        (lambda n: n.register_parameter("new", np.array(["a"])), ArgumentError, "tensors cannot have"),
        (lambda n: n.add_module("new", np.zeros(1)), ArgumentError, "a Module is needed"),
        (lambda n: n.get_submodule("first.deep"), UnknownAttributeError, "no submodule 'deep'"),
        (lambda n: n.get_parameter("first.shift"), UnknownAttributeError, "no parameter 'shift'"),
        (lambda n: n.get_buffer("scale"), UnknownAttributeError, "no buffer 'scale'"),
        (lambda n: n.train(1), ArgumentError, "must be a bool"),
        (lambda n: n.register_forward_hook(None), ArgumentError, "a hook is a function"),
        (lambda n: n.to("int64"), ArgumentError, "floating"),
        (lambda n: n.to("cuda"), DeviceError, "live on the CPU"),
        (lambda n: n.to(dtype="float31"), ArgumentError, "is no dtype"),
        (lambda n: nn.Module(3), ArgumentError, "takes no arguments"),
        (lambda n: n.load_state_dict([1]), ArgumentError, "a dict of arrays"),
        (lambda n: nn.Linear(2, 2, device="cuda:1"), DeviceError, "live on the CPU"),
        (lambda n: nn.Linear(2, 2, dtype="text"), ArgumentError, "is no dtype"),
    ],
)
def test_refusals_say_what_is_wrong(action, error, text):
    with pytest.raises(error, match=text):
        action(Net())


def test_attributes_before_init_are_refused():
    class Early(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(1, 1)

    with pytest.raises(UnknownAttributeError, match=r"before Module\.__init__"):
        Early()


def test_a_module_without_forward_says_so():
    with pytest.raises(NotImplementedError, match="has no forward"):
        nn.Module()(1)


# ---------------------------------------------------------------------------------------- walking


def test_walking_gives_each_once_under_its_first_name():
    shared = nn.Linear(2, 2)
    net = nn.Sequential(shared, nn.ReLU(), shared)
    net[1].weight = shared.weight
    assert [n for n, _ in net.named_modules()] == ["", "0", "1"]
    assert [n for n, _ in net.named_modules(prefix="m", remove_duplicate=False)] == ["m", "m.0", "m.1", "m.2"]
    assert [n for n, _ in net.named_children()] == ["0", "1"]
    assert [n for n, _ in net.named_parameters()] == ["0.weight", "0.bias"]
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4
    assert list(net.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_walking_by_name():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == [k for k in KEYS if k not in ("shift", *KEYS[6:])]
    assert [n for n, _ in net.named_parameters(recurse=False)] == ["scale"]
    assert [n for n, _ in net.named_buffers()] == ["shift", "scratch", *KEYS[6:]]
    assert len(list(net.parameters())) == 5
    assert len(list(net.buffers())) == 5
    assert list(net.children()) == [net.first, net.norm]
    assert net.get_submodule("norm") is net.norm
    assert net.get_submodule("") is net
    assert net.get_parameter("first.weight") is net.first.weight
    assert net.get_buffer("norm.running_var") is net.norm.running_var
    net.set_submodule("first", nn.Identity())
    assert isinstance(net.first, nn.Identity)
    assert {"first", "scale", "shift"} <= set(dir(net))


# ---------------------------------------------------------------------------------------- state


def test_state_is_the_modules_own_arrays_in_order():
    net = Net()
    state = net.state_dict()
    assert list(state) == KEYS
    assert state["scale"] is net.scale
    assert state._metadata["norm"] == {"version": 2}
    there = {"other": 1}
    assert net.state_dict(destination=there, prefix="net.") is there
    assert list(there) == ["other", *(f"net.{k}" for k in KEYS)]


def test_loading_copies_and_converts():
    net, other = Net(), Net()
    held = net.first.weight
    assert net.load_state_dict({k: v.astype(np.float64) for k, v in other.state_dict().items()}) == ([], [])
    assert net.first.weight is held
    assert held.dtype == np.float32
    np.testing.assert_array_equal(held, other.first.weight)
    assert str(net.load_state_dict(other.state_dict())) == "<All keys matched successfully>"
    net.load_state_dict({**other.state_dict(), "scale": np.ones(4, np.float16)}, assign=True)
    assert net.first.weight is other.first.weight
    assert net.scale.dtype == np.float16


def test_what_does_not_fit_is_named():
    net = Net()
    state = dict(net.state_dict())
    del state["scale"]
    state["first.weight"] = np.zeros((2, 3), np.float32)
    state |= {"scratch": np.zeros(2), "first.extra": np.zeros(1), "missing": np.zeros(1), "other.thing.x": np.zeros(1)}
    with pytest.raises(StateDictError) as caught:
        net.load_state_dict(state)
    text = str(caught.value)
    assert "missing keys: scale" in text
    assert "unexpected keys: scratch, missing, other.thing.x, first.extra" in text
    assert "first.weight: the module has shape [4, 3], the state [2, 3]" in text
    assert isinstance(caught.value, RuntimeError)
    state["first.weight"] = net.first.weight
    found = net.load_state_dict(state, strict=False)
    assert found.missing_keys == ["scale"]
    assert set(found.unexpected_keys) == {"scratch", "first.extra", "missing", "other.thing.x"}
    with pytest.raises(StateDictError, match=r"scale: a tensor is needed, found str"):
        net.load_state_dict({**net.state_dict(), "scale": "text"})


def test_states_of_before_batches_were_counted_load():
    norm = nn.BatchNorm1d(3)
    state = {k: v for k, v in norm.state_dict().items() if k != "num_batches_tracked"}
    assert norm.load_state_dict(state) == ([], [])
    with pytest.raises(StateDictError, match="num_batches_tracked"):
        versioned = norm.state_dict()
        del versioned["num_batches_tracked"]
        norm.load_state_dict(versioned)


def test_state_hooks_and_extra_state():
    class Counted(nn.Linear):
        count = 5

        def get_extra_state(self):
            return np.array(self.count)

        def set_extra_state(self, state):
            self.count = int(state)

    layer, seen = Counted(1, 1), []
    layer.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append("before"))
    layer.register_state_dict_post_hook(lambda m, state, prefix, meta: state.update(more=state.pop(f"{prefix}bias")))
    state = layer.state_dict()
    assert seen == ["before"]
    assert list(state) == ["weight", "_extra_state", "more"]
    del state["more"]
    other = Counted(1, 1)
    other.count = 0
    other.register_load_state_dict_pre_hook(lambda m, s, prefix, *rest: s.setdefault(f"{prefix}bias", np.zeros(1)))
    other.register_load_state_dict_post_hook(lambda m, keys: seen.append(keys))
    assert other.load_state_dict(state) == ([], [])
    assert other.count == 5
    assert seen[1] == ([], [])
    layer.register_state_dict_post_hook(lambda m, state, prefix, meta: state)
    with pytest.raises(ArgumentError, match="returns None"):
        layer.state_dict()


# ---------------------------------------------------------------------------------------- hooks


def test_hooks_see_and_change_calls():
    layer, seen = nn.Linear(2, 2), []
    given = x(3, 2)
    plain = layer(given)
    first = layer.register_forward_pre_hook(lambda m, args: seen.append("pre") or (args[0] * 2,))
    second = layer.register_forward_hook(lambda m, args, out: seen.append("post") or out + 1)
    layer.register_forward_hook(lambda m, args, out: seen.append("ahead"), prepend=True)
    np.testing.assert_array_equal(layer(given), layer.forward(given * 2) + 1)
    assert seen == ["pre", "ahead", "post"]
    first.remove()
    second.remove()
    second.remove()
    np.testing.assert_array_equal(layer(given), plain)


def test_hooks_with_keywords_and_hooks_that_are_always_called():
    layer, seen = nn.Linear(2, 2), []
    with layer.register_forward_pre_hook(lambda m, args, kw: ((kw["input"],), {}), with_kwargs=True):
        layer.register_forward_hook(lambda m, args, kw, out: seen.append(kw), with_kwargs=True)
        layer(input=x(1, 2))
    assert seen == [{}]
    layer.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    with pytest.raises(GpujitError):
        layer(x(1, 3))
    assert seen[1:] == [None]
    layer.register_forward_pre_hook(lambda m, args, kw: 3, with_kwargs=True)
    with pytest.raises(ArgumentError, match="pre-hook"):
        layer(x(1, 2))


def test_calls_can_be_taken_over():
    net, seen = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), []

    def caller(module, args, kwargs):
        seen.append(type(module).__name__)
        return hooks.run(module, args, kwargs)

    with hooks.calling(caller):
        net(x(1, 2))
    net(x(1, 2))
    assert seen == ["Sequential", "Linear", "ReLU"]


# ---------------------------------------------------------------------------------------- modes, dtypes, copies


def test_modes_reach_all_modules():
    net = Net()
    assert net.training
    assert net.eval() is net
    assert not net.norm.training
    assert net.train().norm.training
    names = []
    assert net.apply(lambda m: names.append(type(m).__name__)) is net
    assert names == ["Linear", "BatchNorm1d", "Net"]


@pytest.mark.parametrize(
    ("convert", "dtype"),
    [
        (lambda n: n.double(), np.float64),
        (lambda n: n.half(), np.float16),
        (lambda n: n.bfloat16(), ml_dtypes.bfloat16),
        (lambda n: n.double().float(), np.float32),
        (lambda n: n.to("cpu", np.float64), np.float64),
        (lambda n: n.to(np.zeros(1, np.float16)), np.float16),
        (lambda n: n.cpu().to(device="cpu", dtype="float16"), np.float16),
    ],
)
def test_floating_arrays_change_dtype(convert, dtype):
    net = Net()
    net.tied = nn.Parameter(net.scale)
    assert convert(net) is net
    assert net.first.weight.dtype == dtype
    assert net.norm.running_mean.dtype == dtype
    assert net.norm.num_batches_tracked.dtype == np.int64
    assert net.tied is net.scale
    result = net.eval()(x(2, 3).astype(dtype))
    assert result.dtype == dtype


def test_constructors_take_a_dtype():
    assert nn.Linear(2, 3, dtype="float64").weight.dtype == np.float64
    assert nn.Conv2d(1, 1, 2, dtype=np.float16, device="cpu").bias.dtype == np.float16


@pytest.mark.parametrize("through", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_stand_on_their_own(through):
    net = nn.ModuleDict({"a": Net(), "rnn": nn.LSTM(2, 3)})
    net["tied"] = nn.Linear(3, 4)
    net["tied"].weight = net["a"].first.weight
    other = through(net)
    assert other["tied"].weight is other["a"].first.weight
    assert all(a is b for a, b in zip(other["rnn"]._flat_weights, other["rnn"]._parameters.values(), strict=True))
    np.testing.assert_array_equal(other["a"](x(3, 3)), net["a"](x(3, 3)))
    other["a"].first.weight[...] = 0
    assert net["a"].first.weight.any()
    assert repr(other) == repr(net)


def test_recurrent_layers_use_the_weights_they_show():
    layer = nn.GRU(2, 3)
    given = x(4, 1, 2)
    layer.weight_ih_l0 = np.zeros_like(layer.weight_ih_l0)
    assert layer._flat_weights[0] is layer.weight_ih_l0
    before = layer(given)[0]
    layer.double()
    assert layer(given.astype(np.float64))[0].dtype == np.float64
    np.testing.assert_allclose(layer(given.astype(np.float64))[0], before, 1e-5)
    assert layer.all_weights == [layer._flat_weights]


# ---------------------------------------------------------------------------------------- text


def test_text_is_nested():
    net = nn.Sequential(
        nn.Linear(2, 3), nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Tanh()]), nn.ModuleDict({"a": nn.GELU()})
    )
    assert repr(net) == (
        "Sequential(\n"
        "  (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (1): ModuleList(\n"
        "    (0-1): 2 x ReLU()\n"
        "    (2): Tanh()\n"
        "  )\n"
        "  (2): ModuleDict(\n"
        "    (a): GELU(approximate='none')\n"
        "  )\n"
        ")"
    )
    assert repr(nn.ModuleList()) == "ModuleList()"


def test_every_public_layer_can_be_reached():
    assert set(dir(nn)) >= set(nn.__all__)
    for name in nn.__all__:
        assert getattr(nn, name).__doc__, name
    with pytest.raises(AttributeError, match="no layer 'Linea'"):
        nn.Linea  # noqa: B018
    for name in nn.functional.__all__:
        assert callable(getattr(nn.functional, name)), name
    with pytest.raises(AttributeError, match="no function 'relo'"):
        nn.functional.relo  # noqa: B018


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "in_channels=3 must be divisible"),
        (lambda: nn.Conv2d(4, 4, 3, groups=0), "groups must be positive"),
        (lambda: nn.Conv2d(4, 4, 3, padding="some"), "'same' or 'valid'"),
        (lambda: nn.Conv2d(4, 4, 3, padding="same", stride=2), "stride 1"),
        (lambda: nn.Conv2d(4, 4, 3, padding_mode="mirror"), "padding_mode"),
        (lambda: nn.ConvTranspose2d(4, 4, 3, padding_mode="reflect"), "only be zeros"),
        (lambda: nn.ConvTranspose2d(4, 4, 3, padding="same"), "must be numbers"),
        (lambda: nn.GroupNorm(3, 4), "divisible"),
        (lambda: nn.Embedding(3, 4, padding_idx=3), "outside a table"),
        (lambda: nn.Embedding(3, 4, _weight=np.zeros((3, 5))), "must have shape"),
        (lambda: nn.Embedding.from_pretrained(np.zeros(3)), "2 dimensions"),
        (lambda: nn.Dropout(1.2), "from 0 to 1"),
        (lambda: nn.Hardtanh(1, 0), "must exceed"),
        (lambda: nn.RNN(2, 3, nonlinearity="sin"), "tanh or relu"),
        (lambda: nn.RNNCell(2, 3, nonlinearity="sin"), "tanh or relu"),
        (lambda: nn.LSTM(2, 0), "hidden_size must be a positive int"),
        (lambda: nn.LSTM(2, 3, proj_size=3), "below hidden_size"),
        (lambda: nn.RNNBase("GRU", 2, 3, proj_size=1), "only LSTM"),
        (lambda: nn.LSTM(2, 3, 2, dropout=2), "from 0 to 1"),
        (lambda: nn.MultiheadAttention(6, 4), "divisible by num_heads"),
        (lambda: nn.TransformerEncoderLayer(4, 2, activation="sin"), "relu, gelu"),
        (lambda: nn.MultiMarginLoss(p=3), "p must be 1 or 2"),
        (lambda: nn.TripletMarginLoss(margin=0), "positive"),
        (lambda: nn.FractionalMaxPool2d(2), "output_size or output_ratio"),
        (lambda: nn.FractionalMaxPool2d(2, output_ratio=1.5), "between 0 and 1"),
        (lambda: nn.Bilinear(0, 1, 1), "must be positive"),
        (lambda: nn.init.eye_(np.zeros(3)), "2 dimensions"),
        (lambda: nn.init.xavier_uniform_(np.zeros(3)), "at least 2 dimensions"),
        (lambda: nn.init.calculate_gain("sin"), "no gain"),
        (lambda: nn.init.kaiming_normal_(np.zeros((2, 2)), mode="fan"), "fan_in or fan_out"),
    ],
)
def test_settings_that_make_no_layer(build, text):
    with pytest.raises(LayerError, match=text) as caught:
        build()
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("layer", "shape", "text"),
    [
        (lambda: nn.BatchNorm2d(3), (2, 3), "4 dimensions"),
        (lambda: nn.InstanceNorm1d(3), (3,), "2 or 3 dimensions"),
        (lambda: nn.LSTM(3, 2), (4, 1, 2), "3 features"),
        (lambda: nn.GRU(3, 2), (4,), "2 or 3 dimensions"),
        (lambda: nn.GRUCell(3, 2), (1, 1, 3), "1 or 2 dimensions"),
        (lambda: nn.Softmax2d(), (2,), "3 or 4 dimensions"),
        (lambda: nn.BatchNorm1d(3), (1, 3), "more than one value"),
        (lambda: nn.Linear(3, 2), (4,), "linear"),
    ],
)
def test_inputs_that_do_not_fit(layer, shape, text):
    with pytest.raises(GpujitError, match=text):
        layer()(x(*shape))
