"""Batch norm folded into the layer before it, for evaluation."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar

import numpy as np

from gpujit.nn.conv import _Convolution
from gpujit.nn.linear import Linear
from gpujit.nn.norms import _BatchNorm
from gpujit.nn.parameter import Parameter
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError

_C = TypeVar("_C", bound=_Convolution)


def fuse_conv_bn_eval(conv: _C, bn: _BatchNorm, transpose: bool = False) -> _C:
    """A copy of the convolution that also does what the batch norm after it does in evaluation mode.

    Raises LayerError unless both are in evaluation mode and the norm has running statistics.
    """
    if conv.training or bn.training:
        raise LayerError("fuse_conv_bn_eval: both layers must be in evaluation mode; call eval() first")
    fused = deepcopy(conv)
    mean, var, eps, weight, offset = _statistics(bn)
    fused.weight, bias = fuse_conv_bn_weights(conv.weight, conv.bias, mean, var, eps, weight, offset, transpose)
    _set_bias(fused, bias)
    return fused


def fuse_linear_bn_eval(linear: Linear, bn: _BatchNorm) -> Linear:
    """A copy of the linear layer that also does what the batch norm after it does in evaluation mode.

    Raises LayerError unless both are in evaluation mode, the norm has running statistics, and as many features as the
    layer gives, or one.
    """
    if linear.training or bn.training:
        raise LayerError("fuse_linear_bn_eval: both layers must be in evaluation mode; call eval() first")
    if bn.num_features not in (1, linear.out_features):
        raise LayerError(f"fuse_linear_bn_eval: {linear.out_features} features do not fit a norm of {bn.num_features}")
    fused = deepcopy(linear)
    fused.weight, bias = fuse_linear_bn_weights(linear.weight, linear.bias, *_statistics(bn))
    _set_bias(fused, bias)
    return fused


def _set_bias(layer: Any, bias: Tensor) -> None:
    layer.bias = Parameter(bias)


def _statistics(bn: _BatchNorm) -> tuple[Any, ...]:
    if bn.running_mean is None or bn.running_var is None:
        raise LayerError("a batch norm without running statistics cannot be fused")
    return bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias


def _scale(mean: Tensor, var: Tensor, eps: float, weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """The affine map that a batch norm is: factor and offset."""
    factor = (np.ones_like(var) if weight is None else weight) * (1 / np.sqrt(var + np.asarray(eps, var.dtype)))
    return factor, (np.zeros_like(mean) if bias is None else bias) - mean * factor


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Tensor, Tensor]:
    """Weight and bias of a convolution followed by a batch norm. ``transpose``: it is a transposed convolution."""
    factor, offset = _scale(bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    bias = offset if conv_b is None else conv_b * factor + offset
    return (conv_w * factor.reshape(shape)).astype(conv_w.dtype), bias.astype(conv_w.dtype)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Weight and bias of a linear layer followed by a batch norm."""
    factor, offset = _scale(bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    bias = offset if linear_b is None else linear_b * factor + offset
    return (linear_w * factor.reshape(-1, 1)).astype(linear_w.dtype), bias.astype(linear_w.dtype)
