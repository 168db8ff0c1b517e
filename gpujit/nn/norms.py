"""Normalisations along channels, samples, groups and last dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit import ops
from gpujit.nn import functional as F
from gpujit.nn import init
from gpujit.nn.module import Module
from gpujit.nn.parameter import new, ones, zeros
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError

_COUNT = "num_batches_tracked"


class _ChannelNorm(Module):
    """What batch and instance norms have: an affine map of channels, and running statistics."""

    _version = 2
    __constants__ = ("track_running_stats", "momentum", "eps", "num_features", "affine")
    num_features: int
    eps: float
    momentum: float | None
    affine: bool
    track_running_stats: bool

    def _set_up(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: Any,
        dtype: Any,
        bias: bool,
    ) -> None:
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        shape = (num_features,)
        self.register_parameter("weight", new(shape, dtype, device) if affine else None)
        self.register_parameter("bias", new(shape, dtype, device) if affine and bias else None)
        self.register_buffer("running_mean", zeros(shape, dtype, device) if track_running_stats else None)
        self.register_buffer("running_var", ones(shape, dtype, device) if track_running_stats else None)
        self.register_buffer(_COUNT, zeros((), "int64", device) if track_running_stats else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Start the running statistics anew."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Start anew: the affine map does nothing."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        # The count of batches came with version 2.
        version = local_metadata.get("version")
        if (version is None or version < 2) and self.track_running_stats and prefix + _COUNT not in state_dict:
            own = self.num_batches_tracked
            state_dict[prefix + _COUNT] = np.zeros((), np.int64) if own is None else own
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_ChannelNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._set_up(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        factor = 0.0
        if self.momentum is not None:
            factor = self.momentum
        if self.training and self.track_running_stats:
            if self.num_batches_tracked is not None:
                ops.add_(self.num_batches_tracked, 1)
                if self.momentum is None:
                    # The plain mean of all batches so far.
                    factor = 1.0 / float(self.num_batches_tracked)
        from_batch = self.training
        if not from_batch:
            from_batch = self.running_mean is None and self.running_var is None
        keeps = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if keeps else None,
            self.running_var if keeps else None,
            self.weight,
            self.bias,
            from_batch,
            factor,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Batch norm of ``[N, C]`` or ``[N, C, L]``."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim != 2 and input.ndim != 3:
            raise LayerError(f"BatchNorm1d: an input of 2 or 3 dimensions is needed, found {input.ndim}")


class BatchNorm2d(_BatchNorm):
    """Batch norm of ``[N, C, H, W]``."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim != 4:
            raise LayerError(f"BatchNorm2d: an input of 4 dimensions is needed, found {input.ndim}")


class BatchNorm3d(_BatchNorm):
    """Batch norm of ``[N, C, D, H, W]``."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim != 5:
            raise LayerError(f"BatchNorm3d: an input of 5 dimensions is needed, found {input.ndim}")


class SyncBatchNorm(_BatchNorm):
    """Batch norm of ``[N, C, ...]``, with PyTorch's name for that of several processes.

    A program runs in one process here, where PyTorch's is a plain batch norm as well; ``process_group`` is kept only.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any | None = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise LayerError(f"SyncBatchNorm: an input of at least 2 dimensions is needed, found {input.ndim}")
        if input.shape[1] == 0:
            raise LayerError("SyncBatchNorm: an input with channels is needed, found 0")

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any | None = None) -> Module:
        """The module with every batch norm below it (or itself) replaced by one of this class with the same arrays."""
        result = module
        if isinstance(module, _BatchNorm):
            made = cls(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                process_group, bias=module.bias is not None,
            )  # fmt: skip
            for name in ("weight", "bias", "running_mean", "running_var", _COUNT):
                setattr(made, name, getattr(module, name))
            made.training = module.training
            result = made
        for name, child in list(module.named_children()):
            if isinstance(child, Module):
                result._modules[name] = cls.convert_sync_batchnorm(child, process_group)
        return result


class _InstanceNorm(_ChannelNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._set_up(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def _no_batch_dim(self) -> int:
        raise NotImplementedError

    def _norm(self, input: Tensor) -> Tensor:
        momentum = 0.0
        if self.momentum is not None:
            momentum = self.momentum
        from_input = self.training or not self.track_running_stats
        return F.instance_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, from_input, momentum, self.eps
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if input.ndim == self._no_batch_dim():
            return ops.squeeze(self._norm(ops.unsqueeze(input, 0)), 0)
        return self._norm(input)


class InstanceNorm1d(_InstanceNorm):
    """Instance norm of ``[N, C, L]`` or ``[C, L]``."""

    def _no_batch_dim(self) -> int:
        return 2

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim != 2 and input.ndim != 3:
            raise LayerError(f"InstanceNorm1d: an input of 2 or 3 dimensions is needed, found {input.ndim}")


class InstanceNorm2d(_InstanceNorm):
    """Instance norm of ``[N, C, H, W]`` or ``[C, H, W]``."""

    def _no_batch_dim(self) -> int:
        return 3

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim != 3 and input.ndim != 4:
            raise LayerError(f"InstanceNorm2d: an input of 3 or 4 dimensions is needed, found {input.ndim}")


class InstanceNorm3d(_InstanceNorm):
    """Instance norm of ``[N, C, D, H, W]`` or ``[C, D, H, W]``."""

    def _no_batch_dim(self) -> int:
        return 4

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim != 4 and input.ndim != 5:
            raise LayerError(f"InstanceNorm3d: an input of 4 or 5 dimensions is needed, found {input.ndim}")


class GroupNorm(Module):
    """Layer norm over groups of channels."""

    __constants__ = ("num_groups", "num_channels", "eps", "affine")
    num_groups: int
    num_channels: int
    eps: float
    affine: bool

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise LayerError(f"GroupNorm: num_channels={num_channels} must be divisible by num_groups={num_groups}")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.register_parameter("weight", ones((num_channels,), dtype, device) if affine else None)
        self.register_parameter("bias", zeros((num_channels,), dtype, device) if affine and bias else None)

    def reset_parameters(self) -> None:
        """Start anew: the affine map does nothing."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LayerNorm(Module):
    """x less its mean, over its deviation, along the last dimensions, whose sizes are ``normalized_shape``."""

    __constants__ = ("normalized_shape", "eps", "elementwise_affine")
    normalized_shape: tuple[int, ...]
    eps: float
    elementwise_affine: bool

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", ones(shape, dtype, device) if elementwise_affine else None)
        self.register_parameter("bias", zeros(shape, dtype, device) if elementwise_affine and bias else None)

    def reset_parameters(self) -> None:
        """Start anew: the affine map does nothing."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return ops.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """x over the root of its mean square along the last dimensions, whose sizes are ``normalized_shape``."""

    __constants__ = ("normalized_shape", "eps", "elementwise_affine")
    normalized_shape: tuple[int, ...]
    eps: float | None
    elementwise_affine: bool

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", ones(shape, dtype, device) if elementwise_affine else None)

    def reset_parameters(self) -> None:
        """Start anew: the scale does nothing."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return ops.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class LocalResponseNorm(Module):
    """x over a power of the mean square of neighbouring channels."""

    __constants__ = ("size", "alpha", "beta", "k")
    size: int
    alpha: float
    beta: float
    k: float

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """x over a power of the mean square of neighbouring channels of ``[N, C, H, W]``.

    Unlike LocalResponseNorm it slides a sum along the channels, which, as PyTorch's does, never lets go of the first.
    """

    size: int
    alpha: float
    beta: float
    k: float

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4:
            raise LayerError(f"CrossMapLRN2d: an input of 4 dimensions is needed, found {input.ndim}")
        squares = ops.square(input)
        channels = input.shape[1]
        reach = (self.size - 1) // 2 + 1
        total = ops.sum(ops.slice(squares, 1, 0, reach), 1)
        scales = [total]
        for c in range(1, channels):
            if c < channels - reach + 1:
                total = ops.add(total, ops.select(squares, 1, c + reach - 1))
            if c > reach:
                total = ops.sub(total, ops.select(squares, 1, c - reach))
            scales.append(total)
        scale = ops.add(ops.mul(ops.stack(scales, 1), self.alpha / self.size), self.k)
        return ops.mul(ops.pow(scale, -self.beta), input)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
