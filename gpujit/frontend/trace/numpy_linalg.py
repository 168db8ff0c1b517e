"""NumPy's products, linear algebra and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.frontend.trace.numpy_calls import Call, records
from gpujit.frontend.trace.numpy_reduce import _UNSET, given, total
from gpujit.frontend.trace.numpy_shape import axes_of, sizes_of


def pair(call: Call, a: Any, b: Any) -> tuple[Any, Any]:
    """Two tensors of the dtype they promote to."""
    x, y = call.tensor(a), call.tensor(b)
    dtype = np.result_type(x._concrete.dtype, y._concrete.dtype)
    return call.cast(x, dtype), call.cast(y, dtype)


def _numeric(call: Call, x: Any) -> Any:
    """Truth values as ints: products of matrices take no bools."""
    return call.cast(x, np.int64) if x._concrete.dtype == bool else x


def _conjugate(call: Call, x: Any) -> Any:
    return call.op("conj_physical", x) if x._concrete.dtype.kind == "c" else x


@records(np.dot)
def dot(call: Call, a: Any, b: Any, out: Any = None) -> Any:
    x, y = pair(call, a, b)
    n, m = x._concrete.ndim, y._concrete.ndim
    if n == 0 or m == 0:
        return call.op("mul", x, y)
    x, y = _numeric(call, x), _numeric(call, y)
    if m <= 2 and (n <= 2 or m == 1):
        return call.op("matmul", x, y)
    return call.op("tensordot", x, y, [n - 1], [m - 2 if m > 1 else 0])


@records(np.vdot)
def vdot(call: Call, a: Any, b: Any, /) -> Any:
    x, y = (_numeric(call, call.op("reshape", v, [-1])) for v in pair(call, a, b))
    return call.op("matmul", _conjugate(call, x), y)


@records(np.inner)
def inner(call: Call, a: Any, b: Any, /) -> Any:
    x, y = pair(call, a, b)
    if not x._concrete.ndim or not y._concrete.ndim:
        return call.op("mul", x, y)
    x, y = _numeric(call, x), _numeric(call, y)
    return call.op("tensordot", x, y, [x._concrete.ndim - 1], [y._concrete.ndim - 1])


@records(np.outer, np.linalg.outer)
def outer(call: Call, a: Any, b: Any, out: Any = None) -> Any:
    x, y = pair(call, a, b)
    return call.op("mul", call.op("reshape", x, [-1, 1]), call.op("reshape", y, [1, -1]))


@records(np.tensordot)
def tensordot(call: Call, a: Any, b: Any, axes: Any = 2) -> Any:
    x, y = pair(call, a, b)
    x, y = _numeric(call, x), _numeric(call, y)
    n, m = x._concrete.ndim, y._concrete.ndim
    if isinstance(axes, (int, np.integer)):
        left, right = list(range(n - int(axes), n)), list(range(int(axes)))
    else:
        left, right = axes_of(axes[0]), axes_of(axes[1])
    return call.op("tensordot", x, y, [d % n for d in left], [d % m for d in right])


@records(np.linalg.tensordot)
def linalg_tensordot(call: Call, x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    return tensordot(call, x1, x2, axes)


@records(np.einsum)
def einsum(call: Call, *operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    equation, *arrays = operands
    if not isinstance(equation, str):
        raise call.refuse("subscripts as lists; write them as text")
    found = [call.tensor(a) for a in arrays]
    dtype = np.result_type(*(f._concrete.dtype for f in found))
    dtype = np.dtype(np.int64) if dtype.kind == "b" else dtype
    return call.op("einsum", equation.replace(" ", ""), [call.cast(f, dtype) for f in found])


@records(np.kron)
def kron(call: Call, a: Any, b: Any) -> Any:
    return call.op("kron", *pair(call, a, b))


@records(np.cross)
def cross(call: Call, a: Any, b: Any, axisa: Any = -1, axisb: Any = -1, axisc: Any = -1, axis: Any = None) -> Any:
    x, y = pair(call, a, b)
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = call.op("movedim", x, [int(axisa)], [-1]), call.op("movedim", y, [int(axisb)], [-1])
    if x._concrete.shape[-1] != 3 or y._concrete.shape[-1] != 3:
        raise call.refuse("vectors of two components")
    x, y = call.op("broadcast_tensors", [x, y])
    found = call.op("linalg_cross", x, y, dim=-1)
    return call.op("movedim", found, [-1], [int(axisc)])


@records(np.linalg.cross)
def linalg_cross(call: Call, x1: Any, x2: Any, /, *, axis: Any = -1) -> Any:
    return cross(call, x1, x2, axis=axis)


@records(np.linalg.matmul)
def linalg_matmul(call: Call, x1: Any, x2: Any, /) -> Any:
    return call.op("matmul", *pair(call, x1, x2))


@records(np.linalg.vecdot)
def linalg_vecdot(call: Call, x1: Any, x2: Any, /, *, axis: Any = -1) -> Any:
    x, y = pair(call, x1, x2)
    return total(call, call.op("mul", _conjugate(call, x), y), int(axis), False)


@records(np.trace)
def trace(
    call: Call, a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1, dtype: Any = None, out: Any = None
) -> Any:
    found = call.op("diagonal", call.tensor(a), int(offset), int(axis1), int(axis2))
    return total(call, found, -1, False, call.expected.dtype)


@records(np.linalg.trace)
def linalg_trace(call: Call, x: Any, /, *, offset: Any = 0, dtype: Any = None) -> Any:
    return trace(call, x, offset, -2, -1, dtype)


@records(np.diagonal)
def diagonal(call: Call, a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Any:
    return call.op("diagonal", call.tensor(a), int(offset), int(axis1), int(axis2))


@records(np.linalg.diagonal)
def linalg_diagonal(call: Call, x: Any, /, *, offset: Any = 0) -> Any:
    return call.op("diagonal", call.tensor(x), int(offset), -2, -1)


@records(np.diag)
def diag(call: Call, v: Any, k: Any = 0) -> Any:
    v = call.tensor(v)
    return call.op("diag_embed", v, int(k)) if v._concrete.ndim == 1 else call.op("diagonal", v, int(k))


@records(np.diagflat)
def diagflat(call: Call, v: Any, k: Any = 0) -> Any:
    return call.op("diag_embed", call.op("reshape", call.tensor(v), [-1]), int(k))


@records(np.vander)
def vander(call: Call, x: Any, N: Any = None, increasing: Any = False) -> Any:
    x = call.cast(call.tensor(x), call.dtype)
    count = x.shape[0] if N is None else N
    powers = call.op("arange", count)
    powers = powers if increasing else call.op("flip", powers, [0])
    return call.op("pow", call.op("unsqueeze", x, 1), powers)


# ------------------------------------------------------------------------------------------------- numpy.linalg


def inexact(call: Call, a: Any) -> Any:
    """A tensor that can be decomposed: ints and bools as float64, as NumPy takes them."""
    x = call.tensor(a)
    return call.cast(x, np.float64) if x._concrete.dtype.kind in "iub" else x


def _simple(name: str) -> Callable[[Call, Any], Any]:
    def body(call: Call, a: Any) -> Any:
        return call.op(name, inexact(call, a))

    return body


for _function, _name in (
    (np.linalg.inv, "linalg_inv"), (np.linalg.det, "linalg_det"), (np.linalg.slogdet, "linalg_slogdet"),
):  # fmt: skip
    records(_function)(_simple(_name))


@records(np.linalg.eig)
def eig(call: Call, a: Any) -> Any:
    return _maybe_real(call, call.op("linalg_eig", inexact(call, a)))


@records(np.linalg.eigvals)
def eigvals(call: Call, a: Any) -> Any:
    return _maybe_real(call, call.op("linalg_eigvals", inexact(call, a)))


def _maybe_real(call: Call, found: Any) -> Any:
    """Complex results as NumPy gives them: as real ones when all imaginary parts are zero."""
    if call.dtype.kind == "c":
        call.tracer.lost("branch", "NumPy gives complex eigenvalues because not all are real")
        return found
    call.tracer.lost("branch", "NumPy gives real eigenvalues because all are real")
    return tuple(call.op("real", f) for f in found) if isinstance(found, tuple) else call.op("real", found)


@records(np.linalg.cholesky)
def cholesky(call: Call, a: Any, /, *, upper: Any = False) -> Any:
    return call.op("linalg_cholesky", inexact(call, a), upper=bool(upper))


@records(np.linalg.eigh)
def eigh(call: Call, a: Any, UPLO: Any = "L") -> Any:
    return call.op("linalg_eigh", inexact(call, a), str(UPLO))


@records(np.linalg.eigvalsh)
def eigvalsh(call: Call, a: Any, UPLO: Any = "L") -> Any:
    return call.op("linalg_eigvalsh", inexact(call, a), str(UPLO))


@records(np.linalg.solve)
def solve(call: Call, a: Any, b: Any) -> Any:
    x, y = pair(call, inexact(call, a), inexact(call, b))
    if y._concrete.ndim == 1 and x._concrete.ndim > 2:
        return call.op("squeeze", call.op("linalg_solve", x, call.op("unsqueeze", y, -1)), -1)
    return call.op("linalg_solve", x, y)


@records(np.linalg.qr)
def qr(call: Call, a: Any, mode: Any = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        raise call.refuse(f"mode={mode!r}")
    q, r = call.op("linalg_qr", inexact(call, a), str(mode))
    return r if mode == "r" else (q, r)


@records(np.linalg.svd)
def svd(call: Call, a: Any, full_matrices: Any = True, compute_uv: Any = True, hermitian: Any = False) -> Any:
    x = inexact(call, a)
    if hermitian:
        raise call.refuse("hermitian=True; use numpy.linalg.eigh")
    return call.op("linalg_svd", x, bool(full_matrices)) if compute_uv else call.op("linalg_svdvals", x)


@records(np.linalg.svdvals)
def svdvals(call: Call, x: Any, /) -> Any:
    return call.op("linalg_svdvals", inexact(call, x))


@records(np.linalg.pinv)
def pinv(call: Call, a: Any, rcond: Any = None, hermitian: Any = False, *, rtol: Any = _UNSET) -> Any:
    x = inexact(call, a)
    cut = rcond if rcond is not None else given(rtol)
    # NumPy's default, which does not depend on the size.
    cut = (1e-15 if rcond is None and given(rtol) is None else None) if cut is None else cut
    if cut is None:
        return call.op("linalg_pinv", x, hermitian=bool(hermitian))
    return call.op("linalg_pinv", x, float(cut), bool(hermitian))


@records(np.linalg.matrix_rank)
def matrix_rank(call: Call, A: Any, tol: Any = None, hermitian: Any = False, *, rtol: Any = None) -> Any:
    x = inexact(call, A)
    if x._concrete.ndim < 2:
        return call.cast(call.op("any", call.op("ne", x, 0)), np.int64)
    if tol is not None:
        return call.op("linalg_matrix_rank", x, atol=float(tol), rtol=0.0, hermitian=bool(hermitian))
    if rtol is not None:
        return call.op("linalg_matrix_rank", x, rtol=float(rtol), hermitian=bool(hermitian))
    return call.op("linalg_matrix_rank", x, hermitian=bool(hermitian))


@records(np.linalg.matrix_power)
def matrix_power(call: Call, a: Any, n: Any) -> Any:
    x = call.tensor(a)
    if int(n) < 0:
        x = inexact(call, x)
    return call.op("linalg_matrix_power", x, int(n))


@records(np.linalg.multi_dot)
def multi_dot(call: Call, arrays: Any, *, out: Any = None) -> Any:
    found = [call.tensor(a) for a in arrays]
    dtype = np.result_type(*(f._concrete.dtype for f in found))
    return call.op("linalg_multi_dot", [call.cast(f, dtype) for f in found])


@records(np.linalg.tensorinv)
def tensorinv(call: Call, a: Any, ind: Any = 2) -> Any:
    return call.op("linalg_tensorinv", inexact(call, a), int(ind))


@records(np.linalg.tensorsolve)
def tensorsolve(call: Call, a: Any, b: Any, axes: Any = None) -> Any:
    x, y = pair(call, inexact(call, a), inexact(call, b))
    return call.op("linalg_tensorsolve", x, y, None if axes is None else axes_of(axes))


@records(np.linalg.cond)
def cond(call: Call, x: Any, p: Any = None) -> Any:
    return call.op("linalg_cond", inexact(call, x), p if p is None or isinstance(p, str) else float(p))


@records(np.linalg.lstsq)
def lstsq(call: Call, a: Any, b: Any, rcond: Any = None) -> Any:
    x, y = pair(call, inexact(call, a), inexact(call, b))
    vector = y._concrete.ndim == 1
    y = call.op("unsqueeze", y, -1) if vector else y
    cut = None if rcond is None or rcond == -1 else float(rcond)
    found = call.op("matmul", call.op("linalg_pinv", x, np.finfo(x._concrete.dtype).eps if cut is None else cut), y)
    values = call.op("linalg_svdvals", x)
    rank = call.op("linalg_matrix_rank", x)
    left = call.op("sum", call.op("square", call.op("abs", call.op("sub", y, call.op("matmul", x, found)))), [0])
    call.tracer.lost("branch", "NumPy gives residuals only for more rows than columns, and full rank")
    if call.expected[1].size == 0:
        left = call.op("slice", left, 0, 0, 0, 1)
    rank = call.cast(rank, np.int64)
    return call.op("squeeze", found, -1) if vector else found, left, rank, values


@records(np.linalg.norm)
def norm(call: Call, x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Any:
    x = inexact(call, x)
    dims = None if axis is None else axes_of(axis)
    if ord is None:
        return call.op("linalg_vector_norm", x, 2.0, dims, bool(keepdims))
    count = x._concrete.ndim if dims is None else len(dims)
    if count == 1:
        return call.op("linalg_vector_norm", x, float(ord), dims, bool(keepdims))
    dims = [-2, -1] if dims is None else dims
    return call.op("linalg_matrix_norm", x, ord if isinstance(ord, str) else float(ord), dims, bool(keepdims))


@records(np.linalg.vector_norm)
def vector_norm(call: Call, x: Any, /, *, axis: Any = None, keepdims: Any = False, ord: Any = 2) -> Any:
    return call.op(
        "linalg_vector_norm", inexact(call, x), float(ord), None if axis is None else axes_of(axis), bool(keepdims)
    )


@records(np.linalg.matrix_norm)
def matrix_norm(call: Call, x: Any, /, *, keepdims: Any = False, ord: Any = "fro") -> Any:
    return call.op(
        "linalg_matrix_norm", inexact(call, x), ord if isinstance(ord, str) else float(ord), [-2, -1], bool(keepdims)
    )


# --------------------------------------------------------------------------------------------------- numpy.fft


def _size(n: Any) -> Any:
    return None if n is None else sizes_of(n)[0]


def _one(name: str) -> Callable[..., Any]:
    def body(call: Call, a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: Any = None) -> Any:
        return call.op(f"fft_{name}", _spectral(call, a), _size(n), int(axis), norm)

    return body


def _spectral(call: Call, a: Any) -> Any:
    x = call.tensor(a)
    return call.cast(x, np.float64) if x._concrete.dtype.kind in "iub" else x


def _many(name: str, default: Any) -> Callable[..., Any]:
    def body(call: Call, a: Any, s: Any = None, axes: Any = default, norm: Any = None, out: Any = None) -> Any:
        x = _spectral(call, a)
        sizes = None if s is None else sizes_of(s)
        if axes is None:
            count = x._concrete.ndim if sizes is None else len(sizes)
            axes = list(range(-count, 0))
        return call.op(f"fft_{name}", x, sizes, axes_of(axes), norm)

    return body


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    records(getattr(np.fft, _name))(_one(_name))
for _name in ("fft2", "ifft2", "rfft2", "irfft2"):
    records(getattr(np.fft, _name))(_many(_name.replace("2", "n"), (-2, -1)))
for _name in ("fftn", "ifftn", "rfftn", "irfftn"):
    records(getattr(np.fft, _name))(_many(_name, None))


@records(np.fft.fftshift)
def fftshift(call: Call, x: Any, axes: Any = None) -> Any:
    return call.op("fft_fftshift", call.tensor(x), None if axes is None else axes_of(axes))


@records(np.fft.ifftshift)
def ifftshift(call: Call, x: Any, axes: Any = None) -> Any:
    return call.op("fft_ifftshift", call.tensor(x), None if axes is None else axes_of(axes))
