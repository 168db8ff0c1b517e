"""Weights whose rows or columns are orthonormal, computed from a matrix without that."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit import ops
from gpujit.nn import init
from gpujit.nn.module import Module
from gpujit.nn.parameter import is_array, new
from gpujit.nn.typing import Tensor
from gpujit.nn.utils.parametrize import register_parametrization
from gpujit.support.errors import ArgumentError

MAPS = ("matrix_exp", "cayley", "householder")


def _transposed(x: Tensor) -> Tensor:
    return ops.transpose(x, -2, -1)


def _adjoint(x: Tensor) -> Tensor:
    x = _transposed(x)
    return ops.conj(x) if x.dtype.kind == "c" else x


def _signs(x: Tensor) -> Tensor:
    """A row of the signs on the diagonal."""
    return ops.unsqueeze(ops.sgn(ops.diagonal(x, 0, -2, -1)), -2)


def _made_orthogonal(x: Tensor) -> Tensor:
    reflectors, tau = ops.geqrf(x)
    return ops.mul(ops.linalg_householder_product(reflectors, tau), _signs(reflectors))


def _is_orthogonal(q: Tensor) -> bool:
    """Whether the columns are orthonormal, within rounding."""
    near = 10 * q.shape[-2] * float(np.finfo(q.dtype).eps)
    product = ops.matmul(_adjoint(q), q)
    return bool(np.allclose(product, np.eye(q.shape[-1], dtype=q.dtype), atol=near))


class _Orthogonal(Module):
    """What a map makes of a matrix, times ``base`` where there is one."""

    def __init__(self, shape: tuple[int, ...], orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        self.shape = shape
        self.orthogonal_map = orthogonal_map
        self.has_base = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        # Not of x: what decides here is the same in every call, and traces are to hold that.
        k, n = sorted(self.shape[-2:])
        is_wide = self.shape[-2] < self.shape[-1]
        if is_wide:
            x = _transposed(x)
        if self.orthogonal_map == "householder":
            low = ops.tril(x, -1)
            tau = ops.mul(ops.reciprocal(ops.add(ops.sum(ops.mul(low, low), [-2]), 1.0)), 2.0)
            q = ops.linalg_householder_product(low, tau)
            # The diagonal holds signs, as whole numbers.
            q = ops.mul(q, ops.unsqueeze(ops.trunc(ops.diagonal(x, 0, -2, -1)), -2))
        else:
            x = ops.tril(x)
            if n != k:
                x = ops.cat([x, ops.new_zeros(x, [*self.shape[:-2], n, n - k])], -1)
            a = ops.sub(x, _adjoint(x))
            if self.orthogonal_map == "matrix_exp":
                q = ops.matrix_exp(a)
            else:
                one = ops.eye(n, dtype=a.dtype)
                q = ops.linalg_solve(ops.add(one, a, alpha=-0.5), ops.add(one, a, alpha=0.5))
            if n != k:
                q = ops.narrow(q, -1, 0, k)
        if self.has_base:
            q = ops.matmul(self.base, q)
        return _transposed(q) if is_wide else q

    def right_inverse(self, q: Tensor) -> Tensor:
        """What the weight starts from; ``base``, where there is one, becomes ``q``, made orthogonal if it is not.

        Raises ArgumentError for another shape, and NotImplementedError where nothing is known to give ``q``.
        """
        if tuple(q.shape) != self.shape:
            raise ArgumentError(f"orthogonal: the shape {list(self.shape)} is needed, found {list(q.shape)}")
        is_wide = q.shape[-2] < q.shape[-1]
        tall = _transposed(q) if is_wide else q
        n, k = tall.shape[-2], tall.shape[-1]
        if self.has_base:
            if n != k:
                extra = init.normal_(new((*tall.shape[:-1], n - k), tall.dtype))
                tall = _made_orthogonal(np.concatenate([tall, extra], -1))
            elif not _is_orthogonal(tall):
                tall = _made_orthogonal(tall)
            self.base = np.array(tall)
            start = np.zeros_like(q)
            ops.diagonal(start, 0, -2, -1)[...] = -1
            return start
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                f"a weight by {self.orthogonal_map!r} cannot be set without use_trivialization; set its original"
            )
        a, tau = ops.geqrf(tall)
        # Of the products that give q the one with positive numbers on the diagonal of the other factor.
        diagonal = ops.diagonal(a, 0, -2, -1)
        diagonal[...] = np.sign(diagonal)
        diagonal[tau == 0] *= -1
        return np.array(_transposed(a) if is_wide else a)


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """The module, one of whose arrays is now a matrix with orthonormal columns, or rows where these are fewer.

    Args:
        name: an array of two dimensions; with more it is a batch of matrices.
        orthogonal_map: what makes it of ``parametrizations.<name>.original``: "matrix_exp", "cayley" or "householder";
            None for the first where it is square or complex, else the last.
        use_trivialization: start from the array itself, if need be made orthogonal, which is kept as the buffer
            ``parametrizations.<name>.0.base``; else only "householder" starts from there.
    Raises ArgumentError for other names, arrays and maps. Source: Lezcano-Casado 2019, "Trivializations for
    Gradient-Based Optimization on Manifolds".
    """
    weight: Any = getattr(module, name, None)
    if not is_array(weight):
        raise ArgumentError(f"{type(module).__name__} has no parameter or buffer {name!r}")
    if weight.ndim < 2:
        raise ArgumentError(f"orthogonal: at least 2 dimensions are needed, found {weight.ndim}")
    is_complex = weight.dtype.kind == "c"
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if is_complex or weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in MAPS:
        raise ArgumentError(f"orthogonal_map is one of {', '.join(map(repr, MAPS))}; found {orthogonal_map!r}")
    if is_complex and orthogonal_map == "householder":
        raise ArgumentError("orthogonal_map='householder' is for real numbers; use 'matrix_exp' or 'cayley'")
    made = _Orthogonal(tuple(weight.shape), orthogonal_map, use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)
