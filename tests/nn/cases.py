"""Layers of ``gpujit.nn`` with inputs, made of the names that PyTorch has as well: ``case.build(nn)`` works for both.

Used to compare the two eagerly, and what tracing and scripting make of a layer with the layer itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


def floats(*shape: int, seed: int = 0, low: float | None = None, high: float = 1.0) -> np.ndarray:
    """Normal float32 numbers, or uniform ones from ``low`` to ``high``."""
    draw = np.random.default_rng(seed + 7 * len(shape))
    x = draw.standard_normal(shape) if low is None else draw.uniform(low, high, shape)
    return np.asarray(x, np.float32)


def ints(high: int, *shape: int, seed: int = 0, low: int = 0) -> np.ndarray:
    """int64 numbers from ``low`` to below ``high``."""
    return np.asarray(np.random.default_rng(seed).integers(low, high, shape), np.int64)


@dataclass
class Case:
    """A layer and its inputs.

    ``training`` says in which mode it runs; ``seeded``: it draws random numbers; ``scriptable``: PyTorch can script it.
    """

    name: str
    build: Callable[[Any], Any]
    inputs: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    training: bool = False
    seeded: bool = False
    tolerance: float = 1e-5
    scriptable: bool = True


CASES: list[Case] = []


def case(name: str, build: Callable[[Any], Any], *inputs: Any, **options: Any) -> None:
    """Add a case."""
    CASES.append(Case(name, build, inputs, **options))


X1, X2, X3 = floats(2, 4, 11), floats(2, 4, 9, 8), floats(2, 4, 6, 5, 7)

# ---------------------------------------------------------------------------------------- products, convolutions
case("Linear", lambda nn: nn.Linear(5, 3), floats(2, 4, 5))
case("Linear-no-bias", lambda nn: nn.Linear(5, 3, bias=False), floats(5))
case("Bilinear", lambda nn: nn.Bilinear(3, 4, 5), floats(6, 3), floats(6, 4, seed=1))
case("Identity", lambda nn: nn.Identity(7, a=1), floats(3))
case("Conv1d", lambda nn: nn.Conv1d(4, 6, 3), X1)
case("Conv1d-dilated", lambda nn: nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2), X1)
case("Conv1d-same", lambda nn: nn.Conv1d(4, 6, 4, padding="same"), X1)
case("Conv1d-circular", lambda nn: nn.Conv1d(4, 6, 3, padding=2, padding_mode="circular"), X1)
case("Conv1d-unbatched", lambda nn: nn.Conv1d(4, 6, 3), X1[0])
case("Conv2d", lambda nn: nn.Conv2d(4, 6, 3, padding=1), X2)
case("Conv2d-stride", lambda nn: nn.Conv2d(4, 8, (3, 2), stride=(2, 1), padding=(1, 0), bias=False), X2)
case("Conv2d-depthwise", lambda nn: nn.Conv2d(4, 8, 3, groups=4, dilation=2), X2)
case("Conv2d-same", lambda nn: nn.Conv2d(4, 6, (4, 3), padding="same", dilation=(1, 2)), X2)
case("Conv2d-valid", lambda nn: nn.Conv2d(4, 6, 3, padding="valid"), X2)
case("Conv2d-reflect", lambda nn: nn.Conv2d(4, 6, 3, padding=(1, 2), padding_mode="reflect"), X2)
case("Conv2d-replicate-same", lambda nn: nn.Conv2d(4, 6, (2, 3), padding="same", padding_mode="replicate"), X2)
case("Conv3d", lambda nn: nn.Conv3d(4, 3, 3, padding=(0, 1, 1), stride=(1, 2, 1)), X3)
case("ConvTranspose1d", lambda nn: nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1), X1)
case("ConvTranspose2d", lambda nn: nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, dilation=2), X2)
case(
    "ConvTranspose2d-size",
    lambda nn: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1),
    X2,
    kwargs={"output_size": [18, 15]},
)
case("ConvTranspose3d", lambda nn: nn.ConvTranspose3d(4, 3, 2, stride=2, bias=False), X3)

# ---------------------------------------------------------------------------------------- norms
case("BatchNorm1d", lambda nn: nn.BatchNorm1d(4), floats(5, 4))
case("BatchNorm1d-train", lambda nn: nn.BatchNorm1d(4), X1, training=True)
case("BatchNorm2d", lambda nn: nn.BatchNorm2d(4, eps=1e-3), X2)
case("BatchNorm2d-train", lambda nn: nn.BatchNorm2d(4, momentum=0.3), X2, training=True)
case("BatchNorm2d-cumulative", lambda nn: nn.BatchNorm2d(4, momentum=None), X2, training=True)
case("BatchNorm2d-no-affine", lambda nn: nn.BatchNorm2d(4, affine=False), X2)
case("BatchNorm2d-no-stats", lambda nn: nn.BatchNorm2d(4, track_running_stats=False), X2)
case("BatchNorm3d", lambda nn: nn.BatchNorm3d(4), X3)
case("BatchNorm3d-train", lambda nn: nn.BatchNorm3d(4), X3, training=True)
case("LayerNorm", lambda nn: nn.LayerNorm(8), X2)
case("LayerNorm-2d", lambda nn: nn.LayerNorm([9, 8], eps=1e-3), X2)
case("LayerNorm-no-bias", lambda nn: nn.LayerNorm(8, bias=False), X2)
case("LayerNorm-plain", lambda nn: nn.LayerNorm(8, elementwise_affine=False), X2)
case("RMSNorm", lambda nn: nn.RMSNorm(8), X2)
case("RMSNorm-eps", lambda nn: nn.RMSNorm([9, 8], eps=1e-2), X2)
case("GroupNorm", lambda nn: nn.GroupNorm(2, 4), X2)
case("GroupNorm-plain", lambda nn: nn.GroupNorm(4, 4, affine=False), X1)
case("InstanceNorm1d", lambda nn: nn.InstanceNorm1d(4), X1)
case("InstanceNorm2d", lambda nn: nn.InstanceNorm2d(4, affine=True), X2)
case("InstanceNorm2d-unbatched", lambda nn: nn.InstanceNorm2d(4), X2[0])
case("InstanceNorm2d-train", lambda nn: nn.InstanceNorm2d(4, track_running_stats=True), X2, training=True)
case("InstanceNorm2d-stats", lambda nn: nn.InstanceNorm2d(4, track_running_stats=True), X2)
case("InstanceNorm3d", lambda nn: nn.InstanceNorm3d(4), X3)
case("LocalResponseNorm", lambda nn: nn.LocalResponseNorm(3, alpha=1e-2), X2)
case("LocalResponseNorm-even", lambda nn: nn.LocalResponseNorm(2, k=2.0), X1)
case("CrossMapLRN2d", lambda nn: nn.CrossMapLRN2d(3, alpha=0.5, k=2.0), floats(2, 9, 4, 3))
case("CrossMapLRN2d-even", lambda nn: nn.CrossMapLRN2d(4, alpha=0.5), floats(2, 9, 4, 3))
case("CrossMapLRN2d-wide", lambda nn: nn.CrossMapLRN2d(11, beta=0.5), X2)
case("SyncBatchNorm", lambda nn: nn.SyncBatchNorm(4), X2)
case("SyncBatchNorm-train", lambda nn: nn.SyncBatchNorm(4, momentum=0.3, bias=False), floats(7, 4), training=True)
case(
    "SyncBatchNorm-converted",
    lambda nn: nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Sequential(nn.BatchNorm2d(4)), nn.ReLU())),
    X2,
)

# ---------------------------------------------------------------------------------------- many classes
case(
    "AdaptiveLogSoftmaxWithLoss",
    lambda nn: nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10, 15]),
    floats(9, 16),
    ints(20, 9),
)
case(
    "AdaptiveLogSoftmaxWithLoss-one",
    lambda nn: nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3], div_value=2.0, head_bias=True),
    floats(8),
    np.array(7),
)
case("AdaptiveLogSoftmaxWithLoss-head", lambda nn: nn.AdaptiveLogSoftmaxWithLoss(8, 12, [6]), floats(3, 8), ints(6, 3))

# ---------------------------------------------------------------------------------------- tables
case("Embedding", lambda nn: nn.Embedding(7, 5), ints(7, 3, 4))
case("Embedding-padding", lambda nn: nn.Embedding(7, 5, padding_idx=-1), ints(7, 3))
case("Embedding-norm", lambda nn: nn.Embedding(7, 5, max_norm=1.0), ints(7, 3, 4))
case("EmbeddingBag", lambda nn: nn.EmbeddingBag(7, 5), ints(7, 3, 4))
case("EmbeddingBag-offsets", lambda nn: nn.EmbeddingBag(7, 5, mode="max"), ints(7, 9), np.array([0, 2, 5]))
case(
    "EmbeddingBag-sum",
    lambda nn: nn.EmbeddingBag(7, 5, mode="sum", padding_idx=2, include_last_offset=True),
    ints(7, 9),
    np.array([0, 2, 5, 9]),
    floats(9),
)

# ---------------------------------------------------------------------------------------- activations
for _name, _args in {
    "ReLU": (), "ReLU6": (), "ELU": (0.7,), "SELU": (), "CELU": (1.3,), "LeakyReLU": (0.2,), "Threshold": (0.1, 2.0),
    "Hardtanh": (-0.5, 0.8), "Hardswish": (), "Hardsigmoid": (), "SiLU": (), "Mish": (), "GELU": (), "Sigmoid": (),
    "Tanh": (), "LogSigmoid": (), "Softsign": (), "Tanhshrink": (), "Hardshrink": (0.4,), "Softshrink": (0.3,),
    "Softplus": (2.0, 3.0), "Softmax": (1,), "LogSoftmax": (-1,), "Softmin": (0,), "GLU": (1,), "RReLU": (),
    "PReLU": (),
}.items():  # fmt: skip
    case(_name, lambda nn, name=_name, args=_args: getattr(nn, name)(*args), X2)
case("GELU-tanh", lambda nn: nn.GELU(approximate="tanh"), X2)
case("ReLU-inplace", lambda nn: nn.ReLU(inplace=True), X2)
case("SiLU-inplace", lambda nn: nn.SiLU(inplace=True), X2)
case("PReLU-channels", lambda nn: nn.PReLU(4, init=0.1), X2)
case("Softmax2d", lambda nn: nn.Softmax2d(), X2)

# ---------------------------------------------------------------------------------------- pooling
case("MaxPool1d", lambda nn: nn.MaxPool1d(3, stride=2, padding=1), X1)
case("MaxPool1d-indices", lambda nn: nn.MaxPool1d(3, return_indices=True), X1)
case("MaxPool2d", lambda nn: nn.MaxPool2d((3, 2), stride=2, ceil_mode=True), X2)
case("MaxPool2d-dilated", lambda nn: nn.MaxPool2d(2, stride=1, dilation=2), X2)
case("MaxPool2d-indices", lambda nn: nn.MaxPool2d(2, return_indices=True), X2)
case("MaxPool3d", lambda nn: nn.MaxPool3d(2), X3)
case("AvgPool1d", lambda nn: nn.AvgPool1d(3, padding=1), X1)
case("AvgPool2d", lambda nn: nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), X2)
case("AvgPool2d-divisor", lambda nn: nn.AvgPool2d(2, divisor_override=3), X2)
case("AvgPool3d", lambda nn: nn.AvgPool3d((2, 1, 3), ceil_mode=True), X3)
case("AdaptiveAvgPool1d", lambda nn: nn.AdaptiveAvgPool1d(4), X1)
case("AdaptiveAvgPool2d", lambda nn: nn.AdaptiveAvgPool2d((4, 3)), X2)
case("AdaptiveAvgPool2d-one", lambda nn: nn.AdaptiveAvgPool2d(1), X2)
case("AdaptiveAvgPool2d-None", lambda nn: nn.AdaptiveAvgPool2d((None, 3)), X2, scriptable=False)
case("AdaptiveAvgPool3d", lambda nn: nn.AdaptiveAvgPool3d(2), X3)
case("AdaptiveMaxPool1d", lambda nn: nn.AdaptiveMaxPool1d(4), X1)
case("AdaptiveMaxPool2d", lambda nn: nn.AdaptiveMaxPool2d((4, 3), return_indices=True), X2)
case("AdaptiveMaxPool3d", lambda nn: nn.AdaptiveMaxPool3d(2), X3)
case("LPPool1d", lambda nn: nn.LPPool1d(2, 3, stride=2), X1)
case("LPPool2d", lambda nn: nn.LPPool2d(3.0, (2, 3)), np.abs(X2))
case("LPPool3d", lambda nn: nn.LPPool3d(2, 2), X3)
case("FractionalMaxPool2d", lambda nn: nn.FractionalMaxPool2d(2, output_size=(4, 3)), X2, seeded=True)
case("FractionalMaxPool3d", lambda nn: nn.FractionalMaxPool3d(2, output_ratio=0.5), X3, seeded=True)
case("MaxUnpool1d", lambda nn: nn.MaxUnpool1d(2), floats(1, 2, 3), np.array([[[1, 2, 5], [0, 3, 4]]]))
case(
    "MaxUnpool2d",
    lambda nn: nn.MaxUnpool2d(2, stride=2),
    floats(1, 1, 2, 2),
    np.array([[[[1, 3], [9, 12]]]]),
    kwargs={"output_size": [5, 4]},
)
case("MaxUnpool3d", lambda nn: nn.MaxUnpool3d(2), floats(1, 1, 1, 1, 2), np.array([[[[[1, 3]]]]]))

# ---------------------------------------------------------------------------------------- dropout
case("Dropout", lambda nn: nn.Dropout(0.3), X2)
case("Dropout-train", lambda nn: nn.Dropout(0.3), X2, training=True, seeded=True)
case("Dropout1d-train", lambda nn: nn.Dropout1d(0.3), X1, training=True, seeded=True)
case("Dropout2d-train", lambda nn: nn.Dropout2d(0.3), X2, training=True, seeded=True)
case("Dropout3d-train", lambda nn: nn.Dropout3d(0.3), X3, training=True, seeded=True)
case("AlphaDropout-train", lambda nn: nn.AlphaDropout(0.3), X2, training=True, seeded=True)
case("FeatureAlphaDropout-train", lambda nn: nn.FeatureAlphaDropout(0.3), X2, training=True, seeded=True)
case("RReLU-train", lambda nn: nn.RReLU(), X2, training=True, seeded=True)

# ---------------------------------------------------------------------------------------- arrangement
for _d, _x in ((1, X1), (2, X2), (3, X3)):
    for _kind in ("Reflection", "Replication", "Circular", "Zero"):
        _margins = tuple(i % 3 for i in range(2 * _d))
        case(
            f"{_kind}Pad{_d}d", lambda nn, name=f"{_kind}Pad{_d}d", margins=_margins: getattr(nn, name)(margins), _x
        )  # fmt: skip
case("ConstantPad1d", lambda nn: nn.ConstantPad1d(2, 3.5), X1)
case("ConstantPad2d", lambda nn: nn.ConstantPad2d((1, 0, -1, 2), 3.5), X2)
case("ConstantPad3d", lambda nn: nn.ConstantPad3d(1, 0.5), X3)
case("Upsample-nearest", lambda nn: nn.Upsample(scale_factor=2), X2)
case("Upsample-linear", lambda nn: nn.Upsample(size=17, mode="linear"), X1)
case("Upsample-bilinear", lambda nn: nn.Upsample(scale_factor=(1.5, 2.0), mode="bilinear"), X2)
case("Upsample-corners", lambda nn: nn.Upsample(size=(12, 5), mode="bilinear", align_corners=True), X2)
case("Upsample-bicubic", lambda nn: nn.Upsample(scale_factor=1.7, mode="bicubic"), X2)
case("Upsample-trilinear", lambda nn: nn.Upsample(scale_factor=2, mode="trilinear"), X3)
case(
    "Upsample-recompute",
    lambda nn: nn.Upsample(scale_factor=1.3, mode="bilinear", recompute_scale_factor=True),
    X2,
)
case("UpsamplingNearest2d", lambda nn: nn.UpsamplingNearest2d(size=(13, 6)), X2)
case("UpsamplingBilinear2d", lambda nn: nn.UpsamplingBilinear2d(scale_factor=2), X2)
case("PixelShuffle", lambda nn: nn.PixelShuffle(2), X2)
case("PixelUnshuffle", lambda nn: nn.PixelUnshuffle(2), floats(2, 3, 4, 6))
case("ChannelShuffle", lambda nn: nn.ChannelShuffle(2), X2)
case("Flatten", lambda nn: nn.Flatten(), X2)
case("Unflatten", lambda nn: nn.Unflatten(1, (2, 2)), X2)
case("Unfold", lambda nn: nn.Unfold((3, 2), dilation=2, padding=1, stride=(1, 2)), X2)
case("Fold", lambda nn: nn.Fold((5, 6), (2, 3), stride=(1, 2), padding=(0, 1)), floats(2, 18, 12))

# ---------------------------------------------------------------------------------------- recurrent
SEQ = floats(6, 3, 5)
case("RNN", lambda nn: nn.RNN(5, 4), SEQ)
case("RNN-relu", lambda nn: nn.RNN(5, 4, 2, nonlinearity="relu", bidirectional=True), SEQ, floats(4, 3, 4, seed=3))
case("LSTM", lambda nn: nn.LSTM(5, 4), SEQ)
case("LSTM-deep", lambda nn: nn.LSTM(5, 4, 2, bidirectional=True, batch_first=True), SEQ)
case(
    "LSTM-state", lambda nn: nn.LSTM(5, 4, bias=False), SEQ, (floats(1, 3, 4, seed=3), floats(1, 3, 4, seed=4))
)  # fmt: skip
case("LSTM-proj", lambda nn: nn.LSTM(5, 4, 2, proj_size=3), SEQ)
case("LSTM-unbatched", lambda nn: nn.LSTM(5, 4), SEQ[:, 0].copy())
case("GRU", lambda nn: nn.GRU(5, 4, batch_first=True), SEQ, floats(1, 6, 4, seed=3))
case("GRU-deep", lambda nn: nn.GRU(5, 4, 3, bidirectional=True), SEQ)
case("RNNCell", lambda nn: nn.RNNCell(5, 4), floats(3, 5))
case("RNNCell-relu", lambda nn: nn.RNNCell(5, 4, nonlinearity="relu"), floats(5), floats(4, seed=2))
case("LSTMCell", lambda nn: nn.LSTMCell(5, 4), floats(3, 5))
case("LSTMCell-state", lambda nn: nn.LSTMCell(5, 4), floats(3, 5), (floats(3, 4, seed=2), floats(3, 4, seed=3)))
case("GRUCell", lambda nn: nn.GRUCell(5, 4, bias=False), floats(3, 5), floats(3, 4, seed=2))

# ---------------------------------------------------------------------------------------- attention
Q, KV = floats(4, 2, 8), floats(5, 2, 8, seed=5)
PADDING = np.array([[False, False, True, False, True], [False, False, False, False, False]])
CAUSAL = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
case("MultiheadAttention", lambda nn: nn.MultiheadAttention(8, 2), Q, Q, Q)
case(
    "MultiheadAttention-cross", lambda nn: nn.MultiheadAttention(8, 2), Q, KV, KV, kwargs={"key_padding_mask": PADDING}
)
case("MultiheadAttention-three", lambda nn: nn.MultiheadAttention(8, 4, bias=False), Q, KV, floats(5, 2, 8, seed=6))
case(
    "MultiheadAttention-no-weights",
    lambda nn: nn.MultiheadAttention(8, 2, batch_first=True),
    Q.swapaxes(0, 1).copy(),
    KV.swapaxes(0, 1).copy(),
    KV.swapaxes(0, 1).copy(),
    kwargs={"need_weights": False, "key_padding_mask": PADDING},
)
case(
    "MultiheadAttention-dims",
    lambda nn: nn.MultiheadAttention(8, 2, kdim=6, vdim=3, add_bias_kv=True, add_zero_attn=True),
    Q,
    floats(5, 2, 6, seed=5),
    floats(5, 2, 3, seed=6),
    kwargs={"average_attn_weights": False, "key_padding_mask": PADDING},
)
case(
    "MultiheadAttention-causal",
    lambda nn: nn.MultiheadAttention(8, 2),
    Q,
    Q,
    Q,
    kwargs={"attn_mask": CAUSAL, "need_weights": False, "is_causal": True},
)
case("MultiheadAttention-unbatched", lambda nn: nn.MultiheadAttention(8, 2), Q[:, 0], KV[:, 0], KV[:, 0])
case("TransformerEncoderLayer", lambda nn: nn.TransformerEncoderLayer(8, 2, 16), Q)
case(
    "TransformerEncoderLayer-gelu",
    lambda nn: nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=True, batch_first=True),
    Q,
    kwargs={"src_key_padding_mask": np.zeros((4, 2), bool)},
)
case(
    "TransformerEncoder",
    lambda nn: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16), 2, nn.LayerNorm(8), enable_nested_tensor=False
    ),
    Q,
    kwargs={"mask": CAUSAL},
)
case("TransformerDecoderLayer", lambda nn: nn.TransformerDecoderLayer(8, 2, 16), Q, KV)
case(
    "TransformerDecoder",
    lambda nn: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, norm_first=True), 2),
    Q,
    KV,
    kwargs={"tgt_mask": CAUSAL, "memory_key_padding_mask": np.where(PADDING, -np.inf, 0).astype(np.float32)},
)
case("Transformer", lambda nn: nn.Transformer(8, 2, 1, 1, 16), KV, Q)
case("TransformerEncoderLayer-train", lambda nn: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), Q, training=True)

# ---------------------------------------------------------------------------------------- containers, distances
case("Sequential", lambda nn: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)), floats(3, 5))
case("PairwiseDistance", lambda nn: nn.PairwiseDistance(1.0, keepdim=True), floats(3, 5), floats(3, 5, seed=2))
case("CosineSimilarity", lambda nn: nn.CosineSimilarity(dim=-1), floats(3, 5), floats(3, 5, seed=2))

# ---------------------------------------------------------------------------------------- losses
A, B = floats(4, 5), floats(4, 5, seed=9)
SIGNS = np.where(B > 0, 1.0, -1.0).astype(np.float32)
for _name, _args, _kwargs in (
    ("L1Loss", (A, B), {}),
    ("MSELoss", (A, B), {"reduction": "sum"}),
    ("SmoothL1Loss", (A, B), {"beta": 0.5}),
    ("HuberLoss", (A, B), {"delta": 0.7, "reduction": "none"}),
    ("KLDivLoss", (A, floats(4, 5, low=0.1)), {"reduction": "batchmean"}),
    ("KLDivLoss", (A, B), {"log_target": True}),
    ("PoissonNLLLoss", (A, np.abs(B)), {"full": True}),
    ("GaussianNLLLoss", (A, B, floats(4, 5, low=0.1)), {"full": True}),
    ("GaussianNLLLoss", (A, B, floats(4, low=0.1)), {}),
    ("SoftMarginLoss", (A, SIGNS), {}),
    ("HingeEmbeddingLoss", (A, SIGNS), {"margin": 0.6}),
    ("MarginRankingLoss", (A, B, SIGNS), {"margin": 0.3}),
    ("CosineEmbeddingLoss", (A, B, SIGNS[:, 0]), {"margin": 0.2}),
    ("TripletMarginLoss", (A, B, floats(4, 5, seed=4)), {"swap": True}),
    ("TripletMarginWithDistanceLoss", (A, B, floats(4, 5, seed=4)), {"reduction": "sum"}),
    ("NLLLoss", (A, ints(5, 4)), {"ignore_index": 2}),
    ("CrossEntropyLoss", (A, ints(5, 4)), {"label_smoothing": 0.1}),
    ("CrossEntropyLoss", (A, floats(4, 5, low=0.0)), {"reduction": "sum"}),
    ("BCELoss", (floats(4, 5, low=0.01), floats(4, 5, low=0.0, seed=3)), {}),
    ("BCEWithLogitsLoss", (A, floats(4, 5, low=0.0)), {"reduction": "none"}),
    ("MultiMarginLoss", (A, ints(5, 4)), {"p": 2}),
    ("MultiLabelMarginLoss", (A, np.array([[1, 3, -1, 0, 0]] * 4)), {}),
    ("MultiLabelSoftMarginLoss", (A, (SIGNS + 1) / 2), {}),
    (
        "CTCLoss",
        (
            np.log(np.full((6, 2, 4), 0.25, np.float32)),
            ints(4, 2, 3, low=1),
            np.array([6, 5]),
            np.array([3, 2]),
        ),
        {},
    ),
):
    _label = "".join(f"-{k}" for k in _kwargs)
    case(
        f"{_name}{_label}",
        lambda nn, name=_name, kwargs=_kwargs: getattr(nn, name)(**kwargs),
        *_args,
        scriptable=_name != "TripletMarginWithDistanceLoss",
    )


def block(nn: Any) -> Any:
    """A module with a list, a dict and shared weights."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
            self.named = nn.ModuleDict({"a": nn.Tanh(), "b": nn.LayerNorm(4)})

        def forward(self, x):  # type: ignore[no-untyped-def]
            for layer in self.layers:
                x = layer(x)
            for part in self.named.values():
                x = part(x)
            return self.layers[0](x)

    return Block()


case("containers", block, floats(3, 4))
