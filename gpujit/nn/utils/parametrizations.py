"""Parametrizations that PyTorch has: weight norm, spectral norm and orthogonal matrices."""

from __future__ import annotations

from typing import Any

from gpujit import ops
from gpujit.nn import functional as F
from gpujit.nn import init
from gpujit.nn.module import Module
from gpujit.nn.parameter import is_array, new
from gpujit.nn.typing import Tensor
from gpujit.nn.utils.norms import default_dim
from gpujit.nn.utils.orthogonal import orthogonal
from gpujit.nn.utils.parametrize import register_parametrization
from gpujit.support.errors import ArgumentError

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    """The length and the direction of slices along a dimension, multiplied."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return ops._weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Lengths and directions that give a weight."""
        return ops.norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int = 0) -> Module:
    """The module, one of whose arrays is now its length along ``dim`` times its direction.

    They are ``parametrizations.<name>.original0`` and ``original1``; states of the older ``weight_norm`` fit as well.
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def take_old_names(owner: Any, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module.register_load_state_dict_pre_hook(take_old_names)
    return module


class _SpectralNorm(Module):
    """A weight over its largest singular value, which power iterations in training mode estimate."""

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise ArgumentError(f"spectral_norm: dim={dim} is none of the weight's {weight.ndim} dimensions")
        if n_power_iterations <= 0:
            raise ArgumentError(f"spectral_norm: n_power_iterations must be positive, found {n_power_iterations}")
        self.dim = dim % weight.ndim
        self.eps = eps
        if weight.ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._matrix(weight)
            for name, length in zip(("_u", "_v"), matrix.shape, strict=True):
                drawn = init.normal_(new((length,), matrix.dtype), 0, 1)
                self.register_buffer(name, F.normalize(drawn, dim=0, eps=eps))
            self._power_method(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return ops.flatten(ops.movedim(weight, self.dim, 0), 1)

    def _power_method(self, matrix: Tensor, count: int) -> None:
        for _ in range(count):
            ops.copy_(self._u, F.normalize(ops.mv(matrix, self._v), dim=0, eps=self.eps))
            ops.copy_(self._v, F.normalize(ops.mv(ops.t(matrix), self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        return ops.div(weight, ops.dot(self._u, ops.mv(matrix, self._v)))

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself, which need not have norm one."""
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """The module, one of whose arrays is now divided by its largest singular value.

    ``dim`` counts the outputs: 0, or 1 for transposed convolutions, unless it is given. Each read in training mode
    improves the estimate by ``n_power_iterations``.
    """
    weight = getattr(module, name, None)
    if not is_array(weight):
        raise ArgumentError(f"{type(module).__name__} has no parameter or buffer {name!r}")
    dim = default_dim(module) if dim is None else dim
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
