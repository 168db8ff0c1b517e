"""Factorisations and solves that NumPy lacks: LU, LDL, triangular solves, reflectors, Cholesky with a report.

Matrices come as ``[..., m, n]``; every step of an algorithm runs over the whole batch. Batches are flattened first, so
the arrays here have three dims. Source of the algorithms: Golub and Van Loan, "Matrix Computations", chapters 3 to 5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.ir.values import Array
from gpujit.support.errors import DTypeError, OpError, ShapeError


def check_matrix(op: str, a: Array, name: str = "A", square: bool = False) -> None:
    """Refuse what is no batch of matrices of 32- or 64-bit floats or complex numbers. Raises ShapeError, DTypeError."""
    if a.ndim < 2:
        raise ShapeError(f"{op}: The input tensor {name} must have at least 2 dimensions, its shape is {a.shape}")
    if square and a.shape[-1] != a.shape[-2]:
        raise ShapeError(f"{op}: {name} must be batches of square matrices, its shape is {a.shape}")
    if a.dtype.kind not in "fc" or a.dtype.itemsize < 4:
        raise DTypeError(f"{op}: Expected a floating point or complex tensor (32 or 64 bit) as {name}, got {a.dtype}")


def check_pair(op: str, a: Array, b: Array) -> None:
    """Refuse operands of two dtypes. Raises DTypeError."""
    if a.dtype != b.dtype:
        raise DTypeError(f"{op}: Expected A and B to have the same dtype, but found A of {a.dtype} and B of {b.dtype}")


def transposed(a: Array) -> Array:
    """A view with the last two dims swapped."""
    return a.swapaxes(-1, -2)


def adjoint(a: Array) -> Array:
    """The conjugate transpose of matrices."""
    a = a.swapaxes(-1, -2)
    return a.conj() if a.dtype.kind == "c" else a


def flat(a: Array, dims: int = 2) -> Array:
    """All batch dims as one; the last ``dims`` stay."""
    return (
        a.reshape((-1, *a.shape[a.ndim - dims :]))
        if a.size
        else a.reshape((count_of(a, dims), *a.shape[a.ndim - dims :]))
    )


def count_of(a: Array, dims: int = 2) -> int:
    """How many matrices a batch holds."""
    n = 1
    for s in a.shape[: a.ndim - dims]:
        n *= s
    return n


def broadcast_batches(op: str, xp: Any, a: Array, b: Array) -> tuple[Array, Array, tuple[int, ...]]:
    """Both batches of matrices, expanded to a common batch shape and flattened; and that shape."""
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ShapeError(f"{op}: batch dims of shapes {a.shape} and {b.shape} do not broadcast") from None
    a = xp.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = xp.broadcast_to(b, (*batch, *b.shape[-2:]))
    return flat(a), flat(b), batch


# ------------------------------------------------------------------------------------------------- checks and reports


def check_info(op: str, info: Array, what: str) -> None:
    """Raise OpError for the first matrix of a batch that failed; ``what`` has a place for the number reported."""
    if not info.any():
        return
    bad = int(np.flatnonzero(info.reshape(-1))[0])
    where = f"(Batch element {bad}): " if info.ndim else ""
    raise OpError(f"{op}: {where}{what.format(int(info.reshape(-1)[bad]))}")


def check_rows(op: str, a: Array, b: Array, left: bool) -> None:
    have = b.shape[-2] if left else b.shape[-1]
    if have != a.shape[-1]:
        raise ShapeError(f"{op}: Incompatible shapes of A and B for the equation: {a.shape} and {b.shape}")


def lapack(op: str, routine: Any, *args: Any, **options: Any) -> Any:
    try:
        return routine(*args, **options)
    except ValueError as e:  # numpy.linalg.LinAlgError is one
        raise OpError(f"{op}: {e}") from None


# ------------------------------------------------------------------------------------------------- LU


def _size(x: Array) -> Array:
    # LAPACK picks pivots by the sum of real and imaginary parts.
    return abs(x.real) + abs(x.imag) if x.dtype.kind == "c" else abs(x)


def lu_factor(xp: Any, a: Array) -> tuple[Array, Array, Array]:
    """L and U in one array, the row each step swapped with (from 1), and the first step without a pivot (0: none)."""
    shape = a.shape
    a = flat(a).copy()
    count, m, n = a.shape
    steps = min(m, n)
    pivots = xp.empty((count, steps), np.int32)
    info = xp.zeros(count, np.int32)
    every = xp.arange(count)
    for j in range(steps):
        p = _size(a[:, j:, j]).argmax(axis=1) + j
        pivots[:, j] = p + 1
        rows = a[every, p]
        a[every, p] = a[:, j]
        a[:, j] = rows
        pivot = a[:, j, j]
        zero = pivot == 0
        if zero.any():
            info[zero & (info == 0)] = j + 1
            pivot = xp.where(zero, 1, pivot)
        a[:, j + 1 :, j] /= pivot[:, None]
        a[:, j + 1 :, j + 1 :] -= a[:, j + 1 :, j, None] * a[:, None, j, j + 1 :]
    return a.reshape(shape), pivots.reshape((*shape[:-2], steps)), info.reshape(shape[:-2])


def permutation(xp: Any, pivots: Array, m: int) -> Array:
    """The row of the original matrix that ends in each place, for flattened pivots ``[count, steps]``."""
    count, steps = pivots.shape
    order = xp.broadcast_to(xp.arange(m), (count, m)).copy()
    every = xp.arange(count)
    for j in range(steps):
        p = pivots[:, j].astype(np.int64) - 1
        there = order[every, p]
        order[every, p] = order[:, j]
        order[:, j] = there
    return order


def check_pivots(op: str, lu: Array, pivots: Array) -> None:
    """Refuse pivots that are not those of a factorisation. Raises ShapeError, DTypeError, OpError."""
    if pivots.dtype != np.int32:
        raise DTypeError(f"{op}: pivots should be a Tensor of scalar type torch.int32, it is {pivots.dtype}")
    if pivots.shape != (*lu.shape[:-2], min(lu.shape[-2:])):
        raise ShapeError(f"{op}: pivots of shape {pivots.shape} do not fit LU of shape {lu.shape}")
    if pivots.size and (int(pivots.min()) < 1 or int(pivots.max()) > lu.shape[-2]):
        raise OpError(f"{op}: pivots given to it must all be greater or equal to 1 and at most {lu.shape[-2]}")


def lu_unpack(xp: Any, lu: Array, pivots: Array) -> tuple[Array, Array, Array]:
    """P, L and U with ``P @ L @ U`` the matrix that was factored."""
    m, n = lu.shape[-2:]
    k = min(m, n)
    lower = xp.tril(lu[..., :, :k], -1)
    lower[..., xp.arange(k), xp.arange(k)] = 1
    upper = xp.triu(lu[..., :k, :])
    order = permutation(xp, flat(pivots, 1), m)
    p = xp.zeros((order.shape[0], m, m), lu.dtype)
    p[xp.arange(order.shape[0])[:, None], order, xp.arange(m)] = 1
    return p.reshape((*lu.shape[:-2], m, m)), lower, upper


def lu_solve(xp: Any, lu: Array, pivots: Array, b: Array, adjoint_: bool) -> Array:
    """Solutions of ``A @ x = b`` (or with A's adjoint) for flattened batches."""
    m = lu.shape[-1]
    order = permutation(xp, pivots, m)
    every = xp.arange(order.shape[0])[:, None]
    if not adjoint_:
        x = solve_triangular(xp, lu, b[every, order], False, True)
        return solve_triangular(xp, lu, x, True, False)
    x = solve_triangular(xp, adjoint(lu), b, False, False)
    x = solve_triangular(xp, adjoint(lu), x, True, True)
    y = xp.empty_like(x)
    y[every, order] = x
    return y


def solve_from_lu(xp: Any, op: str, lu: Array, pivots: Array, b: Array, left: bool, adjoint_: bool) -> Array:
    """X with ``A @ X = B`` (or ``X @ A = B``, or A's adjoint) from A's factorisation, batches broadcast."""
    check_matrix(op, lu, "LU", square=True)
    check_matrix(op, b, "B")
    check_pair(op, lu, b)
    check_pivots(op, lu, pivots)
    check_rows(op, lu, b, left)
    fl, fb, batch = broadcast_batches(op, xp, lu, b)
    fp = flat(xp.broadcast_to(pivots, (*batch, pivots.shape[-1])), 1)
    if left:
        return lu_solve(xp, fl, fp, fb, adjoint_).reshape((*batch, *b.shape[-2:]))
    # X @ A = B is A's adjoint times X's adjoint.
    return adjoint(lu_solve(xp, fl, fp, adjoint(fb), not adjoint_)).reshape((*batch, *b.shape[-2:]))


# ------------------------------------------------------------------------------------------------- triangles


def solve_triangular(xp: Any, a: Array, b: Array, upper: bool, unit: bool) -> Array:
    """Solutions of ``a @ x = b``, flattened, reading one triangle of ``a``; a zero on the diagonal gives inf."""
    x = b.copy()
    n = a.shape[-1]
    for i in range(n - 1, -1, -1) if upper else range(n):
        known = slice(i + 1, n) if upper else slice(0, i)
        if known.start < known.stop:
            x[:, i] -= xp.matmul(a[:, None, i, known], x[:, known])[:, 0]
        if not unit:
            x[:, i] /= a[:, i, i, None]
    return x


# ------------------------------------------------------------------------------------------------- Cholesky, LDL


def cholesky(xp: Any, a: Array) -> tuple[Array, Array]:
    """Lower factors of flattened matrices, and for each the first minor that is not positive (0: all are)."""
    count, n = a.shape[:2]
    info = xp.zeros(count, np.int32)
    try:
        return xp.linalg.cholesky(a), info
    except ValueError:  # numpy.linalg.LinAlgError is one
        pass
    y = xp.tril(a)
    for j in range(n):
        if j:
            y[:, j:, j] -= xp.matmul(y[:, j:, :j], y[:, j, :j, None].conj())[..., 0]
        pivot = y[:, j, j].real.copy()
        bad = ~(pivot > 0)
        info[bad & (info == 0)] = j + 1
        root = xp.sqrt(xp.where(bad, 1, pivot))
        y[:, j, j] = xp.where(bad, pivot, root)
        y[:, j + 1 :, j] /= root[:, None]
    return y, info


def ldl_factor(xp: Any, a: Array, hermitian: bool) -> tuple[Array, Array, Array]:
    """L (unit, below the diagonal) and D in one array, pivots as LAPACK's ``sytrf('L')`` counts them, and a report.

    Bunch and Kaufman's diagonal pivoting, one matrix after the other, as their blocks of one or two rows differ.
    A negative pair of pivots marks a block of two. Source: Golub and Van Loan, 4.4.
    """
    alpha = (1 + 17**0.5) / 8
    a = a.copy()
    count, n = a.shape[:2]
    pivots = xp.zeros((count, n), np.int32)
    info = xp.zeros(count, np.int32)
    for b in range(count):
        m, k = a[b], 0
        while k < n:
            step, p = 1, k
            here = abs(m[k, k].real) if hermitian else _size(m[k : k + 1, k])[0]
            column = _size(m[k + 1 :, k])
            q = k + 1 + int(column.argmax()) if k + 1 < n else k
            most = column.max() if k + 1 < n else 0
            if max(here, most) == 0:
                if info[b] == 0:
                    info[b] = k + 1
            elif here < alpha * most:
                other = max(_size(m[q, k:q]).max(), _size(m[q + 1 :, q]).max() if q + 1 < n else 0)
                if here < alpha * most * (most / other):
                    diagonal = abs(m[q, q].real) if hermitian else _size(m[q : q + 1, q])[0]
                    p = q
                    if diagonal < alpha * other:
                        step = 2
            j = k + step - 1
            if p != j:
                _swap_symmetric(m, j, p, k, hermitian)
            if step == 1:
                if m[k, k] != 0 and k + 1 < n:
                    v = m[k + 1 :, k].copy()
                    w = v.conj() if hermitian else v
                    m[k + 1 :, k + 1 :] -= xp.tril(v[:, None] * (w / m[k, k]))
                    m[k + 1 :, k] /= m[k, k]
                pivots[b, k] = p + 1
            else:
                if k + 2 < n:
                    corner = m[k + 1, k].conj() if hermitian else m[k + 1, k]
                    d = xp.asarray([[m[k, k], corner], [m[k + 1, k], m[k + 1, k + 1]]])
                    v = m[k + 2 :, k : k + 2].copy()
                    w = xp.matmul(v, xp.linalg.inv(d).astype(m.dtype))
                    m[k + 2 :, k + 2 :] -= xp.tril(xp.matmul(w, (v.conj() if hermitian else v).T))
                    m[k + 2 :, k : k + 2] = w
                pivots[b, k : k + 2] = -(p + 1)
            k += step
    return a, pivots, info


def _swap_symmetric(m: Array, i: int, p: int, k: int, hermitian: bool) -> None:
    """Swap rows and columns ``i < p`` of the trailing matrix from ``k`` on, of which the lower triangle is stored."""
    below = m[p + 1 :, i].copy()
    m[p + 1 :, i] = m[p + 1 :, p]
    m[p + 1 :, p] = below
    middle = m[i + 1 : p, i].copy()
    m[i + 1 : p, i] = m[p, i + 1 : p].conj() if hermitian else m[p, i + 1 : p]
    m[p, i + 1 : p] = middle.conj() if hermitian else middle
    if hermitian:
        m[p, i] = m[p, i].conj()
    corner = m[i, i].copy()
    m[i, i] = m[p, p]
    m[p, p] = corner
    if i > k:
        row = m[i, k:i].copy()
        m[i, k:i] = m[p, k:i]
        m[p, k:i] = row


def ldl_solve(xp: Any, ld: Array, pivots: Array, b: Array, hermitian: bool) -> Array:
    """Solutions of ``A @ x = b`` from a factorisation by ``ldl_factor``, for flattened batches."""
    x = b.copy()
    n = ld.shape[1]
    for i in range(ld.shape[0]):
        m, y, piv = ld[i], x[i], [int(v) for v in pivots[i]]
        blocks, k = [], 0
        while k < n:
            step = 1 if piv[k] > 0 else 2
            j, p = k + step - 1, abs(piv[k]) - 1
            if p != j:
                y[[j, p]] = y[[p, j]]
            y[k + step :] -= xp.matmul(m[k + step :, k : k + step], y[k : k + step])
            if step == 1:
                y[k] /= m[k, k]
            else:
                corner = m[k + 1, k].conj() if hermitian else m[k + 1, k]
                d = xp.asarray([[m[k, k], corner], [m[k + 1, k], m[k + 1, k + 1]]])
                y[k : k + 2] = xp.linalg.solve(d, y[k : k + 2])
            blocks.append((k, step, j, p))
            k += step
        for k, step, j, p in reversed(blocks):
            below = m[k + step :, k : k + step].T
            y[k : k + step] -= xp.matmul(below.conj() if hermitian else below, y[k + step :])
            if p != j:
                y[[j, p]] = y[[p, j]]
    return x


# ------------------------------------------------------------------------------------------------- reflectors


def _reflector(xp: Any, a: Array, i: int) -> Array:
    v = a[:, i:, i].copy()
    v[:, 0] = 1
    return v


def reflect(xp: Any, a: Array, tau: Array, c: Array, left: bool, adjoint_: bool) -> Array:
    """``Q @ c`` or ``c @ Q`` (or with Q's adjoint), flattened; Q is the product of ``a``'s reflectors."""
    c = c.copy()
    k = tau.shape[1]
    # Reading from the left, Q is H0 H1 ...; the factor next to c acts first.
    for i in range(k) if left == adjoint_ else range(k - 1, -1, -1):
        v = _reflector(xp, a, i)
        t = tau[:, i].conj() if adjoint_ else tau[:, i]
        if left:
            row = xp.matmul(v[:, None].conj(), c[:, i:])
            c[:, i:] -= (t[:, None] * v)[:, :, None] * row
        else:
            column = xp.matmul(c[:, :, i:], v[:, :, None])
            c[:, :, i:] -= column * (t[:, None] * v.conj())[:, None]
    return c
