"""Modules and layers, as in ``torch.nn``, with NumPy arrays for tensors. Each is loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# Public names by the module that has them.
_LAYERS = {
    "activation": (
        "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid",
        "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus", "Softshrink", "Softsign",
        "Tanh", "Tanhshrink", "Threshold",
    ),
    "adaptive": ("AdaptiveLogSoftmaxWithLoss",),
    "attention": ("MultiheadAttention",),
    "class_loss": (
        "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CrossEntropyLoss", "MultiLabelMarginLoss",
        "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "NLLLoss2d", "TripletMarginWithDistanceLoss",
    ),
    "container": ("ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"),
    "conv": ("Conv1d", "Conv2d", "Conv3d"),
    "conv_transpose": ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
    "distance": ("CosineSimilarity", "PairwiseDistance"),
    "dropout": ("AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"),
    "embedding": ("Embedding", "EmbeddingBag"),
    "lazy": (
        "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d",
        "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
        "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear",
    ),
    "linear": ("Bilinear", "Identity", "Linear"),
    "loss": (
        "CosineEmbeddingLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss",
        "MarginRankingLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss",
    ),
    "module": ("Module",),
    "norms": (
        "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "CrossMapLRN2d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d",
        "InstanceNorm3d", "LayerNorm", "LocalResponseNorm", "RMSNorm", "SyncBatchNorm",
    ),
    "padding": (
        "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
        "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
        "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
    ),
    "parameter": ("Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter"),
    "pooling": (
        "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
        "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d",
        "MaxPool2d", "MaxPool3d",
    ),
    "rnn": ("GRU", "LSTM", "RNN"),
    "rnn_base": ("RNNBase",),
    "rnn_cells": ("GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"),
    "shuffle": ("ChannelShuffle", "Flatten", "Fold", "PixelShuffle", "PixelUnshuffle", "Unflatten", "Unfold"),
    "softmax": ("LogSoftmax", "Softmax", "Softmax2d", "Softmin"),
    "transformer": (
        "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
        "TransformerEncoderLayer",
    ),
    "unpooling": ("FractionalMaxPool2d", "FractionalMaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"),
    "upsampling": ("Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"),
}  # fmt: skip
_HOMES = {name: module for module, names in _LAYERS.items() for name in names}
_PACKAGES = ("functional", "init", "utils")

__all__ = [*_HOMES, *_PACKAGES]

if TYPE_CHECKING:
    from gpujit.nn import functional, init, utils
    from gpujit.nn.activation import (
        CELU,
        ELU,
        GELU,
        GLU,
        SELU,
        Hardshrink,
        Hardsigmoid,
        Hardswish,
        Hardtanh,
        LeakyReLU,
        LogSigmoid,
        Mish,
        PReLU,
        ReLU,
        ReLU6,
        RReLU,
        Sigmoid,
        SiLU,
        Softplus,
        Softshrink,
        Softsign,
        Tanh,
        Tanhshrink,
        Threshold,
    )
    from gpujit.nn.adaptive import AdaptiveLogSoftmaxWithLoss
    from gpujit.nn.attention import MultiheadAttention
    from gpujit.nn.class_loss import (
        BCELoss,
        BCEWithLogitsLoss,
        CrossEntropyLoss,
        CTCLoss,
        MultiLabelMarginLoss,
        MultiLabelSoftMarginLoss,
        MultiMarginLoss,
        NLLLoss,
        NLLLoss2d,
        TripletMarginWithDistanceLoss,
    )
    from gpujit.nn.container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
    from gpujit.nn.conv import Conv1d, Conv2d, Conv3d
    from gpujit.nn.conv_transpose import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
    from gpujit.nn.distance import CosineSimilarity, PairwiseDistance
    from gpujit.nn.dropout import AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout
    from gpujit.nn.embedding import Embedding, EmbeddingBag
    from gpujit.nn.lazy import (
        LazyBatchNorm1d,
        LazyBatchNorm2d,
        LazyBatchNorm3d,
        LazyConv1d,
        LazyConv2d,
        LazyConv3d,
        LazyConvTranspose1d,
        LazyConvTranspose2d,
        LazyConvTranspose3d,
        LazyInstanceNorm1d,
        LazyInstanceNorm2d,
        LazyInstanceNorm3d,
        LazyLinear,
    )
    from gpujit.nn.linear import Bilinear, Identity, Linear
    from gpujit.nn.loss import (
        CosineEmbeddingLoss,
        GaussianNLLLoss,
        HingeEmbeddingLoss,
        HuberLoss,
        KLDivLoss,
        L1Loss,
        MarginRankingLoss,
        MSELoss,
        PoissonNLLLoss,
        SmoothL1Loss,
        SoftMarginLoss,
        TripletMarginLoss,
    )
    from gpujit.nn.module import Module
    from gpujit.nn.norms import (
        BatchNorm1d,
        BatchNorm2d,
        BatchNorm3d,
        CrossMapLRN2d,
        GroupNorm,
        InstanceNorm1d,
        InstanceNorm2d,
        InstanceNorm3d,
        LayerNorm,
        LocalResponseNorm,
        RMSNorm,
        SyncBatchNorm,
    )
    from gpujit.nn.padding import (
        CircularPad1d,
        CircularPad2d,
        CircularPad3d,
        ConstantPad1d,
        ConstantPad2d,
        ConstantPad3d,
        ReflectionPad1d,
        ReflectionPad2d,
        ReflectionPad3d,
        ReplicationPad1d,
        ReplicationPad2d,
        ReplicationPad3d,
        ZeroPad1d,
        ZeroPad2d,
        ZeroPad3d,
    )
    from gpujit.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
    from gpujit.nn.pooling import (
        AdaptiveAvgPool1d,
        AdaptiveAvgPool2d,
        AdaptiveAvgPool3d,
        AdaptiveMaxPool1d,
        AdaptiveMaxPool2d,
        AdaptiveMaxPool3d,
        AvgPool1d,
        AvgPool2d,
        AvgPool3d,
        LPPool1d,
        LPPool2d,
        LPPool3d,
        MaxPool1d,
        MaxPool2d,
        MaxPool3d,
    )
    from gpujit.nn.rnn import GRU, LSTM, RNN
    from gpujit.nn.rnn_base import RNNBase
    from gpujit.nn.rnn_cells import GRUCell, LSTMCell, RNNCell, RNNCellBase
    from gpujit.nn.shuffle import ChannelShuffle, Flatten, Fold, PixelShuffle, PixelUnshuffle, Unflatten, Unfold
    from gpujit.nn.softmax import LogSoftmax, Softmax, Softmax2d, Softmin
    from gpujit.nn.transformer import (
        Transformer,
        TransformerDecoder,
        TransformerDecoderLayer,
        TransformerEncoder,
        TransformerEncoderLayer,
    )
    from gpujit.nn.unpooling import FractionalMaxPool2d, FractionalMaxPool3d, MaxUnpool1d, MaxUnpool2d, MaxUnpool3d
    from gpujit.nn.upsampling import Upsample, UpsamplingBilinear2d, UpsamplingNearest2d


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _PACKAGES:
        return import_module(f"gpujit.nn.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"gpujit.nn has no layer {name!r}")
    value = getattr(import_module(f"gpujit.nn.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PACKAGES})
