"""``torch.nn.functional``'s functions: operators under their names there, and functions made of several of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# Operators, by the names they have here.
_OPERATORS = {
    name: name for name in (
        "linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
        "conv_transpose3d", "conv_tbc", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "gelu",
        "hardshrink", "softshrink", "softplus", "prelu", "celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "rrelu_",
        "selu_", "threshold_", "cosine_similarity", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle",
        "channel_shuffle", "native_channel_shuffle", "one_hot", "scaled_dot_product_attention",
    )
} | {"logsigmoid": "log_sigmoid"}  # fmt: skip

# Functions, by the module that has them; no module has the name of a function, which it would hide.
_FUNCTIONS = {
    "activation": (
        "celu", "elu", "glu", "gumbel_softmax", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log_softmax",
        "mish", "relu", "relu6", "rrelu", "selu", "sigmoid", "silu", "softmax", "softmin", "softsign", "tanh",
        "tanhshrink", "threshold",
    ),
    "attention": ("multi_head_attention_forward",),
    "class_loss": (
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "ctc_loss", "multi_margin_loss",
        "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "triplet_margin_with_distance_loss",
    ),
    "dropping": ("alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"),
    "lookup": ("embedding", "embedding_bag"),
    "loss": (
        "cosine_embedding_loss", "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss",
        "margin_ranking_loss", "mse_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
        "triplet_margin_loss",
    ),
    "norms": (
        "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "normalize", "rms_norm",
    ),
    "pooling": (
        "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool1d_with_indices",
        "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d",
        "adaptive_max_pool3d_with_indices", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d",
        "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices",
    ),
    "unpooling": (
        "fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
        "fractional_max_pool3d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d",
    ),
    "vision": (
        "affine_grid", "fold", "grid_sample", "interpolate", "pad", "unfold", "upsample", "upsample_bilinear",
        "upsample_nearest",
    ),
}  # fmt: skip
_HOMES = {name: module for module, names in _FUNCTIONS.items() for name in names}

if not TYPE_CHECKING:
    __all__ = sorted({*_OPERATORS, *_HOMES})


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _OPERATORS:
        from gpujit import ops

        value = getattr(ops, _OPERATORS[name])
    elif name in _HOMES:
        value = getattr(import_module(f"gpujit.nn.functional.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"gpujit.nn.functional has no function {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_OPERATORS, *_HOMES})
