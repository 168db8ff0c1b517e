"""Weight norm and spectral norm of the older kind: a hook computes the weight before each call."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from gpujit import ops
from gpujit.nn import functional as F
from gpujit.nn import init
from gpujit.nn.conv_transpose import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from gpujit.nn.module import Module
from gpujit.nn.parameter import Parameter, Uninitialized, new
from gpujit.nn.typing import Tensor
from gpujit.support.errors import ArgumentError

_M = TypeVar("_M", bound=Module)


def default_dim(module: Module) -> int:
    """The dimension of a layer's weight that counts the outputs."""
    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0


class _Computed:
    """A hook that computes an array of a module before each call; subclasses say how."""

    def __init__(self, name: str) -> None:
        self.name = name

    def compute(self, module: Any) -> Tensor:
        raise NotImplementedError

    def put(self, module: Module) -> None:
        """Hook it into a module, which has no parameter of this name any more."""
        setattr(module, self.name, self.compute(module))
        module.register_forward_pre_hook(self)
        module.register_forward_hook(_After(self.name), always_call=True)

    def __call__(self, module: Module, args: tuple[Any, ...]) -> None:
        held, found = getattr(module, self.name), self.compute(module)
        setattr(module, self.name, found)
        if type(found) is not np.ndarray:
            # What stands for an array while a call is recorded is of no use after it.
            module.__dict__[f"_{self.name}_before"] = held


class _After:
    """The hook after it: a module keeps arrays only."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: Module, args: tuple[Any, ...], result: Any) -> None:
        held = module.__dict__.pop(f"_{self.name}_before", None)
        if held is not None:
            setattr(module, self.name, held)


def _weight(module: Module, name: str, kind: type[_Computed]) -> Tensor:
    """A module's parameter that is to be computed from now on, taken out of its table."""
    if any(isinstance(h, kind) and h.name == name for h in module._forward_pre_hooks.values()):
        raise ArgumentError(f"{type(module).__name__}.{name} has this norm already")
    weight = module._parameters.get(name)
    if weight is None or isinstance(weight, Uninitialized):
        why = "is none of its parameters" if weight is None else "has no values yet; call the lazy module first"
        raise ArgumentError(f"{type(module).__name__}: {name!r} {why}")
    return weight


def _removed(module: Module, name: str, kind: type[_Computed]) -> Any:
    """Take a norm's hooks out of a module; the norm."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and hook.name == name:
            del module._forward_pre_hooks[key]
            for other, after in list(module._forward_hooks.items()):
                if isinstance(after, _After) and after.name == name:
                    del module._forward_hooks[other]
                    module._forward_hooks_always_called.pop(other, None)
            return hook
    raise ArgumentError(f"{type(module).__name__}.{name} has no such norm")


class WeightNorm(_Computed):
    """``weight_g / |weight_v| * weight_v`` along a dimension."""

    def __init__(self, name: str, dim: int | None) -> None:
        super().__init__(name)
        self.dim = -1 if dim is None else dim

    def compute(self, module: Any) -> Tensor:
        return ops._weight_norm(getattr(module, f"{self.name}_v"), getattr(module, f"{self.name}_g"), self.dim)


def weight_norm(module: _M, name: str = "weight", dim: int | None = 0) -> _M:
    """The module, one of whose parameters is now its length along ``dim``, ``_g``, times its direction, ``_v``."""
    norm = WeightNorm(name, dim)
    weight = _weight(module, name, WeightNorm)
    delattr(module, name)
    module.register_parameter(f"{name}_g", ops.norm_except_dim(weight, 2, norm.dim))
    module.register_parameter(f"{name}_v", weight)
    norm.put(module)
    return module


def remove_weight_norm(module: _M, name: str = "weight") -> _M:
    """The module with a plain parameter again."""
    norm = _removed(module, name, WeightNorm)
    weight = norm.compute(module)
    for part in (name, f"{name}_g", f"{name}_v"):
        delattr(module, part)
    setattr(module, name, Parameter(weight))
    return module


class SpectralNorm(_Computed):
    """``weight_orig`` over its largest singular value, which power iterations in training mode estimate."""

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__(name)
        if n_power_iterations <= 0:
            raise ArgumentError(f"spectral_norm: n_power_iterations must be positive, found {n_power_iterations}")
        self.n_power_iterations = n_power_iterations
        self.dim = dim
        self.eps = eps

    def matrix(self, weight: Tensor) -> Tensor:
        """The weight with the dimension first and all others as one."""
        moved = ops.movedim(weight, self.dim, 0)
        return ops.reshape(moved, [moved.shape[0], -1])

    def compute(self, module: Any) -> Tensor:
        return self.computed(module, False)

    def computed(self, module: Any, iterate: bool) -> Tensor:
        """The weight, after iterations if they are wanted."""
        weight = getattr(module, f"{self.name}_orig")
        u, v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        matrix = self.matrix(weight)
        for _ in range(self.n_power_iterations if iterate else 0):
            ops.copy_(v, F.normalize(ops.mv(ops.t(matrix), u), dim=0, eps=self.eps))
            ops.copy_(u, F.normalize(ops.mv(matrix, v), dim=0, eps=self.eps))
        return ops.div(weight, ops.dot(u, ops.mv(matrix, v)))

    def __call__(self, module: Module, args: tuple[Any, ...]) -> None:
        if module.training:
            self.computed(module, True)
        super().__call__(module, args)


def spectral_norm(
    module: _M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> _M:
    """The module, one of whose parameters is now ``<name>_orig`` divided by its largest singular value.

    ``dim`` counts the outputs: 0, or 1 for transposed convolutions, unless it is given. Each call in training mode
    improves the estimate, in the buffers ``<name>_u`` and ``<name>_v``, by ``n_power_iterations``.
    """
    norm = SpectralNorm(name, n_power_iterations, default_dim(module) if dim is None else dim, eps)
    weight = _weight(module, name, SpectralNorm)
    drawn = [init.normal_(new((n,), weight.dtype), 0, 1) for n in norm.matrix(weight).shape]
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    for suffix, start in zip("uv", drawn, strict=True):
        module.register_buffer(f"{name}_{suffix}", F.normalize(start, dim=0, eps=eps))
    norm.put(module)
    # As in PyTorch the weight is what it was until the first call.
    setattr(module, name, weight)
    return module


def remove_spectral_norm(module: _M, name: str = "weight") -> _M:
    """The module with a plain parameter again."""
    norm = _removed(module, name, SpectralNorm)
    weight = norm.compute(module)
    for part in (name, f"{name}_u", f"{name}_v", f"{name}_orig"):
        delattr(module, part)
    module.register_parameter(name, weight)
    return module
