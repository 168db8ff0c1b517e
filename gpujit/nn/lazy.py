"""Lazy layers: the first input decides their sizes, makes their arrays, and turns them into the plain class."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.nn import conv, conv_transpose, linear, norms
from gpujit.nn.module import Module
from gpujit.nn.parameter import Uninitialized, UninitializedBuffer, UninitializedParameter
from gpujit.nn.typing import Sizes, Tensor
from gpujit.support.errors import LayerError


class LazyModule(Module):
    """What lazy layers have: a hook before the first call that makes the arrays.

    ``cls_to_become`` is the class that the module has from then on; None keeps it.
    """

    cls_to_become: type[Module] | None = None

    def _wait_for_input(self) -> None:
        """Called at the end of the constructor."""
        self._initialize_hook = self.register_forward_pre_hook(_on_first_call, with_kwargs=True)

    def has_uninitialized_params(self) -> bool:
        """Whether an array is still to be made."""
        return any(isinstance(v, Uninitialized) for v in (*self._parameters.values(), *self._buffers.values()))

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Make the arrays for an input; classes define it."""
        raise NotImplementedError(f"{type(self).__name__} defines no initialize_parameters")

    def _make(self, **shapes: tuple[int, ...]) -> None:
        for name, shape in shapes.items():
            held = getattr(self, name)
            if isinstance(held, Uninitialized):
                setattr(self, name, held.materialize(shape))


def _on_first_call(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        raise LayerError(f"{type(module).__name__}: initialize_parameters has not made all arrays")
    module._initialize_hook.remove()
    del module._initialize_hook
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become


class LazyLinear(LazyModule, linear.Linear):
    """Linear whose ``in_features`` is the size of the first input's last dimension."""

    cls_to_become = linear.Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)
        self._wait_for_input()

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        features = input.shape[-1]
        if self.has_uninitialized_params():
            self.in_features = features
            self._make(weight=(self.out_features, features), bias=(self.out_features,))
            self.reset_parameters()
        if self.in_features == 0:
            # A state was loaded before the first call.
            if features != self.weight.shape[-1]:
                raise LayerError(f"LazyLinear: the input has {features} features, the weight {self.weight.shape[-1]}")
            self.in_features = features


class _LazyConvolution(LazyModule, conv._Convolution):
    """What lazy convolutions have: ``in_channels`` is the first input's."""

    def _wait(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)
        self._wait_for_input()

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        if not self.has_uninitialized_params():
            return
        name, dims = type(self).__name__, len(self.kernel_size)
        if input.ndim not in (dims + 1, dims + 2):
            raise LayerError(f"{name}: an input of {dims + 1} or {dims + 2} dimensions is needed, found {input.ndim}")
        self.in_channels = input.shape[-dims - 1]
        for what, channels in (("in_channels", self.in_channels), ("out_channels", self.out_channels)):
            if channels % self.groups != 0:
                raise LayerError(f"{name}: {what}={channels} must be divisible by groups={self.groups}")
        outer, inner = self.out_channels, self.in_channels
        if self.transposed:
            outer, inner = inner, outer
        self._make(weight=(outer, inner // self.groups, *self.kernel_size), bias=(self.out_channels,))
        self.reset_parameters()


class LazyConv1d(_LazyConvolution, conv.Conv1d):
    """Conv1d whose ``in_channels`` is the first input's."""

    cls_to_become = conv.Conv1d

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._wait(out_channels, bias, device, dtype)


class LazyConv2d(_LazyConvolution, conv.Conv2d):
    """Conv2d whose ``in_channels`` is the first input's."""

    cls_to_become = conv.Conv2d

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._wait(out_channels, bias, device, dtype)


class LazyConv3d(_LazyConvolution, conv.Conv3d):
    """Conv3d whose ``in_channels`` is the first input's."""

    cls_to_become = conv.Conv3d

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._wait(out_channels, bias, device, dtype)


class LazyConvTranspose1d(_LazyConvolution, conv_transpose.ConvTranspose1d):
    """ConvTranspose1d whose ``in_channels`` is the first input's."""

    cls_to_become = conv_transpose.ConvTranspose1d

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype
        )
        self._wait(out_channels, bias, device, dtype)


class LazyConvTranspose2d(_LazyConvolution, conv_transpose.ConvTranspose2d):
    """ConvTranspose2d whose ``in_channels`` is the first input's."""

    cls_to_become = conv_transpose.ConvTranspose2d

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype
        )
        self._wait(out_channels, bias, device, dtype)


class LazyConvTranspose3d(_LazyConvolution, conv_transpose.ConvTranspose3d):
    """ConvTranspose3d whose ``in_channels`` is the first input's."""

    cls_to_become = conv_transpose.ConvTranspose3d

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype
        )
        self._wait(out_channels, bias, device, dtype)


class _LazyNorm(LazyModule, norms._ChannelNorm):
    """What lazy norms have: ``num_features`` is the number of the first input's channels."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = np.zeros((), np.int64)
        self._wait_for_input()

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if not self.has_uninitialized_params():
            return
        if input.ndim < 2:
            raise LayerError(f"{type(self).__name__}: an input of at least 2 dimensions is needed, found {input.ndim}")
        self.num_features = input.shape[1]
        shape = (self.num_features,)
        self._make(weight=shape, bias=shape, running_mean=shape, running_var=shape)
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNorm, norms.BatchNorm1d):
    """BatchNorm1d whose ``num_features`` is the number of the first input's channels."""

    cls_to_become = norms.BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, norms.BatchNorm2d):
    """BatchNorm2d whose ``num_features`` is the number of the first input's channels."""

    cls_to_become = norms.BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, norms.BatchNorm3d):
    """BatchNorm3d whose ``num_features`` is the number of the first input's channels."""

    cls_to_become = norms.BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, norms.InstanceNorm1d):
    """InstanceNorm1d whose ``num_features`` is the number of the first input's channels."""

    cls_to_become = norms.InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, norms.InstanceNorm2d):
    """InstanceNorm2d whose ``num_features`` is the number of the first input's channels."""

    cls_to_become = norms.InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, norms.InstanceNorm3d):
    """InstanceNorm3d whose ``num_features`` is the number of the first input's channels."""

    cls_to_become = norms.InstanceNorm3d
