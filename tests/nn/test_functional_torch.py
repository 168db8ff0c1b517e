"""``gpujit.nn.functional``, ``init`` and ``utils`` against PyTorch's, where no layer covers them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.nn import functional as F
from gpujit.nn import init
from gpujit.nn.utils import fusion, rnn
from gpujit.ops.generator import Generator
from gpujit.support.errors import LayerError
from tests.nn.cases import floats, ints
from tests.nn.test_torch import check, to_torch

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

X = floats(2, 3, 6, 5)
THETA = floats(2, 2, 3)
GRID = floats(2, 4, 3, 2)

CALLS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "interpolate-area": ("interpolate", (X,), {"size": (3, 4), "mode": "area"}),
    "interpolate-area-factor": ("interpolate", (X,), {"scale_factor": 0.5, "mode": "area"}),
    "interpolate-nearest-exact": ("interpolate", (X,), {"scale_factor": (1.7, 0.6), "mode": "nearest-exact"}),
    "interpolate-antialias": ("interpolate", (X,), {"size": (3, 3), "mode": "bilinear", "antialias": True}),
    "interpolate-bicubic-antialias": ("interpolate", (X,), {"size": 4, "mode": "bicubic", "antialias": True}),
    "interpolate-lanczos": ("interpolate", (X,), {"size": 4, "mode": "lanczos", "antialias": True}),
    "interpolate-1d": ("interpolate", (X[0],), {"size": 4}),
    "interpolate-3d-exact": ("interpolate", (X[None],), {"size": (2, 4, 4), "mode": "nearest-exact"}),
    "interpolate-3d-area": ("interpolate", (X[None],), {"size": (2, 4, 4), "mode": "area"}),
    "upsample": ("upsample", (X,), {"scale_factor": 2, "mode": "bilinear", "align_corners": True}),
    "grid_sample": ("grid_sample", (X, GRID), {"align_corners": False}),
    "grid_sample-border": ("grid_sample", (X, GRID), {"mode": "nearest", "padding_mode": "border"}),
    "grid_sample-bicubic": ("grid_sample", (X, GRID), {"mode": "bicubic", "padding_mode": "reflection"}),
    "affine_grid": ("affine_grid", (THETA, [2, 3, 4, 5]), {"align_corners": True}),
    "pad": ("pad", (X, (1, 2)), {"value": 2.0}),
    "pad-reflect": ("pad", (X, [1, 2, 0, 3]), {"mode": "reflect"}),
    "normalize": ("normalize", (X,), {}),
    "normalize-p": ("normalize", (X, 3.0, -1), {"eps": 1.0}),
    "softmax-legacy": ("softmax", (X,), {}),
    "log_softmax-legacy": ("log_softmax", (X[0],), {}),
    "one_hot": ("one_hot", (ints(5, 3, 2), 6), {}),
    "cosine_similarity": ("cosine_similarity", (X, X + 1), {}),
    "pdist": ("pdist", (floats(5, 3),), {}),
    "bilinear": ("bilinear", (floats(4, 2), floats(4, 3), floats(5, 2, 3), None), {}),
    "glu": ("glu", (floats(4, 6),), {}),
    "logsigmoid": ("logsigmoid", (X,), {}),
    "gelu": ("gelu", (X,), {"approximate": "tanh"}),
    "embedding": ("embedding", (ints(6, 4), floats(6, 3)), {"padding_idx": -2}),
    "l1_loss-weight": ("l1_loss", (X, X * 2), {"weight": np.abs(X)}),
    "mse_loss-weight": ("mse_loss", (X, X * 2), {"weight": np.abs(X), "reduction": "sum"}),
    "huber_loss-weight": ("huber_loss", (X, X * 3), {"weight": np.abs(X), "reduction": "none"}),
    "mse_loss-broadcast": ("mse_loss", (X, X[:, :1]), {}),
    "mse_loss-old": ("mse_loss", (X, X * 2), {"size_average": False}),
    "l1_loss-old": ("l1_loss", (X, X * 2), {"reduce": False}),
    "smooth_l1_loss-zero": ("smooth_l1_loss", (X, X * 2), {"beta": 0.0}),
    "kl_div-none": ("kl_div", (X, np.abs(X)), {"reduction": "none"}),
    "gaussian_nll_loss-number": ("gaussian_nll_loss", (X, X * 2, 0.5), {}),
    "scaled_dot_product_attention": ("scaled_dot_product_attention", (X, X, X), {"is_causal": True}),
    "conv2d": ("conv2d", (X, floats(4, 3, 2, 2)), {"padding": 1}),
    "max_pool2d": ("max_pool2d", (X, 2), {}),
    "max_pool2d-indices": ("max_pool2d", (X, 2), {"return_indices": True}),
    "max_pool1d-indices": ("max_pool1d", (X[0], 2, None, 0, 1, False, True), {}),
    "adaptive_max_pool2d-indices": ("adaptive_max_pool2d", (X, (2, None), True), {}),
    "local_response_norm": ("local_response_norm", (X, 2), {}),
    "layer_norm": ("layer_norm", (X, [5]), {}),
    "hardtanh": ("hardtanh", (X,), {"min_val": 0.0}),
    "threshold": ("threshold", (X, 0.2, 1.0), {}),
    "tanhshrink": ("tanhshrink", (X,), {}),
    "multilabel_soft_margin_loss": (
        "multilabel_soft_margin_loss", (floats(3, 4), ints(2, 3, 4).astype(np.float32)), {"weight": floats(4)},
    ),
    "pixel_shuffle": ("pixel_shuffle", (floats(1, 4, 2, 3), 2), {}),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", list(CALLS))
def test_same_results(name):
    function, args, kwargs = CALLS[name]
    plain = {k: v for k, v in kwargs.items() if not isinstance(v, np.ndarray)}
    expected = getattr(torch.nn.functional, function)(
        *map(to_torch, args), **plain, **{k: to_torch(v) for k, v in kwargs.items() if k not in plain}
    )
    check(getattr(F, function)(*args, **kwargs), expected, 1e-5)


def test_gumbel_softmax_draws_the_same():
    logits = floats(4, 5)
    for hard in (False, True):
        torch.manual_seed(1)
        gpujit.manual_seed(1)
        expected = torch.nn.functional.gumbel_softmax(torch.from_numpy(logits), tau=0.7, hard=hard)
        check(F.gumbel_softmax(logits, tau=0.7, hard=hard), expected, 1e-5)


REFUSED: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], str]] = {
    "both sizes": ("interpolate", (X,), {"size": 3, "scale_factor": 2.0}, "not both"),
    "no size": ("interpolate", (X,), {}, "is needed"),
    "corners of nearest": ("interpolate", (X,), {"size": 3, "align_corners": True}, "align_corners"),
    "wrong mode": ("interpolate", (X,), {"size": 3, "mode": "trilinear"}, "does not go"),
    "too many sizes": ("interpolate", (X,), {"size": (1, 2, 3)}, "needs 2 numbers"),
    "grid mode": ("grid_sample", (X, GRID), {"mode": "linear"}, "bilinear"),
    "reduction": ("l1_loss", (X, X), {"reduction": "avg"}, "none, mean or sum"),
    "probability": ("dropout", (X, 1.5), {}, "0 to 1"),
    "negative variance": ("gaussian_nll_loss", (X, X, -np.abs(X)), {}, "negative"),
    "variance's shape": ("gaussian_nll_loss", (X, X, np.abs(X[:1, :1])), {}, "does not fit"),
    "margin": ("triplet_margin_loss", (X, X, X), {"margin": -1.0}, "positive"),
    "targets": ("binary_cross_entropy", (np.abs(X), X[0]), {}, "must be equal"),
    "bags": ("embedding_bag", (ints(3, 4), floats(3, 2)), {}, "needs offsets"),
    "bag weights": ("embedding_bag", (ints(3, 4, 1), floats(3, 2)), {"per_sample_weights": floats(4, 1)}, "mode sum"),
    "one value": ("batch_norm", (floats(1, 3), None, None), {"training": True}, "more than one value"),
    "bounds": ("hardtanh", (X, 2.0, 1.0), {}, "exceeds"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_both_refuse(name):
    function, args, kwargs, text = REFUSED[name]
    with pytest.raises(LayerError, match=text):
        getattr(F, function)(*args, **kwargs)
    plain = {k: to_torch(v) for k, v in kwargs.items()}
    with pytest.raises((ValueError, NotImplementedError)):
        getattr(torch.nn.functional, function)(*map(to_torch, args), **plain)


# ---------------------------------------------------------------------------------------- init

FILLS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "uniform_": ("uniform_", (3, 5), {"a": -1.0, "b": 2.0}),
    "normal_": ("normal_", (3, 4), {"mean": 1.0, "std": 0.3}),
    "trunc_normal_": ("trunc_normal_", (6, 5), {"std": 1.5}),
    "trunc_normal_-tail": ("trunc_normal_", (6, 5), {"mean": 3.0, "a": -1.0, "b": 1.5}),
    "constant_": ("constant_", (3,), {"val": 2.5}),
    "ones_": ("ones_", (3,), {}),
    "zeros_": ("zeros_", (3,), {}),
    "eye_": ("eye_", (3, 5), {}),
    "dirac_": ("dirac_", (6, 2, 3, 4), {"groups": 2}),
    "xavier_uniform_": ("xavier_uniform_", (4, 3, 2), {"gain": 2.0}),
    "xavier_normal_": ("xavier_normal_", (4, 3), {}),
    "kaiming_uniform_": ("kaiming_uniform_", (4, 3, 2, 2), {"mode": "fan_out", "nonlinearity": "relu"}),
    "kaiming_normal_": ("kaiming_normal_", (4, 3), {"a": 0.1}),
    "orthogonal_": ("orthogonal_", (3, 5), {"gain": 1.5}),
    "orthogonal_-tall": ("orthogonal_", (5, 3), {}),
    "sparse_": ("sparse_", (6, 4), {"sparsity": 0.4}),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", list(FILLS))
def test_same_first_values(name, dtype):
    function, shape, kwargs = FILLS[name]
    torch.manual_seed(5)
    gpujit.manual_seed(5)
    expected = getattr(torch.nn.init, function)(torch.empty(shape, dtype=getattr(torch, dtype)), **kwargs)
    x = np.empty(shape, dtype)
    assert getattr(init, function)(x, **kwargs) is x
    check(x, expected, 1e-6 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("name", ["linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"])
def test_same_gains(name):
    assert init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)


def test_a_generator_of_ones_own():
    x = init.uniform_(np.empty(4, np.float32), generator=Generator(3))
    expected = torch.empty(4).uniform_(generator=torch.Generator().manual_seed(3))
    check(x, expected, 0.0)


# ---------------------------------------------------------------------------------------- utils


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("enforce_sorted", [False, True])
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_packed_sequences(kind, enforce_sorted, batch_first):
    lengths = np.array([5, 3, 2]) if enforce_sorted else np.array([2, 5, 3])
    x = floats(3, 5, 4) if batch_first else floats(5, 3, 4)
    theirs, mine = getattr(torch.nn, kind)(4, 6, 2, bidirectional=True), getattr(nn, kind)(4, 6, 2, bidirectional=True)
    mine.load_state_dict(theirs.state_dict())
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        to_torch(x), to_torch(lengths), batch_first, enforce_sorted
    )  # fmt: skip
    expected, state = theirs(packed)
    ours = rnn.pack_padded_sequence(x, lengths, batch_first, enforce_sorted)
    check(tuple(ours), tuple(packed), 0.0)
    found, our_state = mine(ours)
    check(our_state, state, 1e-5)
    check(
        rnn.pad_packed_sequence(found, batch_first, 0.5, 7),
        torch.nn.utils.rnn.pad_packed_sequence(expected, batch_first, 0.5, 7),
        1e-5,
    )
    hx = floats(4, 3, 6)
    given = (hx, hx + 1) if kind == "LSTM" else hx
    check(mine(ours, given)[1], theirs(packed, to_torch(given))[1], 1e-5)


def test_sequences_of_unequal_length():
    sequences = [floats(n, 2, seed=n) for n in (2, 4, 3)]
    as_torch = [torch.from_numpy(s) for s in sequences]
    for side in ("left", "right"):
        check(
            rnn.pad_sequence(sequences, True, 1.5, side),
            torch.nn.utils.rnn.pad_sequence(as_torch, True, 1.5, side),
            0.0,
        )
    packed = rnn.pack_sequence(sequences, enforce_sorted=False)
    check(tuple(packed), tuple(torch.nn.utils.rnn.pack_sequence(as_torch, enforce_sorted=False)), 0.0)
    for one, other in zip(rnn.unpack_sequence(packed), sequences, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("transpose", [False, True])
def test_batch_norm_folded_into_a_convolution(transpose):
    kind = "ConvTranspose2d" if transpose else "Conv2d"
    conv, bn = getattr(nn, kind)(3, 4, 3, bias=False).eval(), nn.BatchNorm2d(4).eval()
    bn.load_state_dict(
        {k: floats(4, seed=i, low=0.5) for i, k in enumerate(("weight", "bias", "running_mean", "running_var"))},
        strict=False,
    )
    fused = fusion.fuse_conv_bn_eval(conv, bn, transpose)
    np.testing.assert_allclose(fused(X), bn(conv(X)), 1e-4, 1e-5)
    theirs, their_bn = getattr(torch.nn, kind)(3, 4, 3, bias=False).eval(), torch.nn.BatchNorm2d(4).eval()
    theirs.load_state_dict({k: torch.from_numpy(v) for k, v in conv.state_dict().items()})
    their_bn.load_state_dict({k: torch.from_numpy(v) for k, v in bn.state_dict().items()})
    expected = torch.nn.utils.fusion.fuse_conv_bn_eval(theirs, their_bn, transpose)
    check(fused.weight, expected.weight, 1e-6)
    check(fused.bias, expected.bias, 1e-6)


def test_batch_norm_folded_into_a_linear_layer():
    linear, bn = nn.Linear(3, 4).eval(), nn.BatchNorm1d(4).eval()
    bn.running_mean = floats(4)
    bn.running_var = floats(4, low=0.5)
    x = floats(5, 3)
    np.testing.assert_allclose(fusion.fuse_linear_bn_eval(linear, bn)(x), bn(linear(x)), 1e-4, 1e-5)
    with pytest.raises(ValueError, match="evaluation"):
        fusion.fuse_linear_bn_eval(linear.train(), bn)
