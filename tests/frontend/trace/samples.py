"""Calls of NumPy that are traced: at least one for each entry of the tables. Names in them are the ARRAYS."""

from __future__ import annotations

from typing import Any

import numpy as np


def arrays(seed: int = 0) -> dict[str, Any]:
    """Inputs by name, of numbers that depend on the seed."""
    r = np.random.default_rng(seed)
    square = r.normal(size=(4, 4))
    nan = r.normal(size=(4, 5))
    nan[r.random((4, 5)) < 0.3] = np.nan
    nan[:, 0] = 1.0
    return {
        "x": r.normal(size=(4, 5)),
        "y": r.normal(size=(4, 5)),
        "v": r.normal(size=5),
        "w": r.uniform(0.1, 0.9, size=5),
        "u": r.uniform(0.1, 0.9, size=(4, 5)),
        "t": r.normal(size=(2, 3, 4)),
        "m": square @ square.T + 4 * np.eye(4),
        "q": r.normal(size=(4, 4)),
        "z": r.normal(size=(4, 5)) + 1j * r.normal(size=(4, 5)),
        "h": np.sort(r.normal(size=6)),
        "n": nan,
        "f": r.normal(size=(4, 5)).astype(np.float32),
        "i": r.integers(-5, 9, size=(4, 5)),
        "j": r.integers(1, 6, size=(4, 5)),
        "k": r.integers(0, 4, size=7),
        "g": r.integers(0, 200, size=(4, 5)).astype(np.uint8),
        "s": r.integers(-100, 100, size=(4, 5)).astype(np.int16),
        "b": r.random((4, 5)) < 0.5,
        "c": r.random((4, 5)) < 0.5,
        "d": r.normal(size=(3, 3)),
        "e": r.normal(size=(5, 3)),
    }


UFUNC_UNARY = {
    "u": "sqrt log log2 log10 log1p arcsin arccos arctanh reciprocal",
    "x": "negative positive absolute fabs exp exp2 expm1 square sin cos tan sinh cosh tanh arcsinh arctan degrees "
    "rad2deg radians deg2rad floor ceil trunc rint sign cbrt isnan isinf isfinite signbit modf frexp logical_not",
    "f": "sqrt exp tanh floor sign log1p",
    "n": "sign isnan absolute",
    "i": "negative absolute sign square invert exp sqrt isfinite floor logical_not positive",
    "g": "negative absolute sqrt invert",
    "s": "sin absolute",
    "b": "logical_not invert exp absolute",
    "j": "arccosh",
    "z": "exp conjugate absolute negative square sqrt sign isnan",
}
UFUNC_BINARY = {
    (
        "x",
        "y",
    ): "add subtract multiply divide floor_divide remainder fmod arctan2 hypot maximum minimum fmax fmin greater "
    "greater_equal less less_equal equal not_equal copysign heaviside logaddexp logaddexp2 logical_and logical_or "
    "logical_xor nextafter divmod",
    ("u", "x"): "power float_power",
    ("n", "x"): "maximum minimum fmax fmin",
    (
        "i",
        "j",
    ): "add subtract multiply divide floor_divide remainder fmod bitwise_and bitwise_or bitwise_xor left_shift "
    "right_shift gcd lcm maximum greater equal divmod logical_and power",
    ("g", "s"): "add multiply maximum less divide",
    ("f", "x"): "add divide",
    ("f", "i"): "multiply greater",
    ("b", "c"): "add multiply logical_and logical_xor bitwise_or maximum equal",
    ("b", "i"): "add multiply",
    ("z", "x"): "add multiply divide power",
    ("x", "j"): "ldexp power",
    ("m", "q"): "matmul",
}
_UFUNCS = [f"np.{n}({a})" for a, names in UFUNC_UNARY.items() for n in names.split()]
_UFUNCS += [f"np.{n}({', '.join(pair)})" for pair, names in UFUNC_BINARY.items() for n in names.split()]
_UFUNCS = [e.replace("np.power(i, j)", "np.power(j, j)").replace("np.left_shift(i", "np.left_shift(j") for e in _UFUNCS]

_OTHERS = """
np.add(x, 2)
np.add(f, 2.5)
np.subtract(2, f)
np.power(f, 2)
np.power(2, f)
np.divide(1, j)
np.add(g, 3)
np.multiply(i, 2.5)
np.less(g, 300)
np.add(x, y, dtype=np.float32)
np.add(f, np.float64(0.5))
np.add(f, np.float32(0.5))
np.maximum(x, 0)
np.vecdot(x, y)
np.matvec(q, m[0])
np.vecmat(m[0], q)
np.matmul(b, c.T)
np.matmul(t, q)
np.add.reduce(x)
np.add.reduce(x, axis=1, keepdims=True)
np.maximum.reduce(x, axis=None)
np.logical_or.reduce(b, axis=1)
np.multiply.reduce(x)
np.add.accumulate(x, axis=1)
np.maximum.accumulate(x)
np.multiply.outer(v, w)
x + y * 2 - 1 / u
-x % 3
x ** 2 + 2 ** x
x // 0.5
(x > 0) & (y < 1) | b
~b ^ c
i << 2 >> 1
x @ e
abs(x)
divmod(x, 0.7)
np.reshape(x, (2, -1))
x.reshape(x.shape[0], 1, -1)
x.reshape(-1)
np.ravel(x)
x.flatten()
np.copy(x)
x.copy()
np.astype(x, np.float32)
x.astype(np.int32)
x.astype(float, copy=False)
np.transpose(t, (2, 0, 1))
np.permute_dims(t, (1, 2, 0))
np.matrix_transpose(t)
np.linalg.matrix_transpose(t)
t.transpose(0, 2, 1)
t.T
t.mT
np.swapaxes(t, 0, 2)
np.moveaxis(t, 0, -1)
np.moveaxis(t, (0, 1), (-1, 0))
np.rollaxis(t, 2)
np.expand_dims(x, (0, 2))
np.squeeze(x[None])
np.squeeze(x[:, None], axis=1)
np.broadcast_to(v, (3, 5))
np.broadcast_arrays(x, v)
np.atleast_1d(x)
np.atleast_2d(v)
np.atleast_3d(x, v)
np.concatenate([x, y, i])
np.concatenate([x, y], axis=None)
np.concatenate([x, f], axis=-1)
np.concat([x, y], axis=1)
np.stack([x, y], axis=1)
np.vstack([x, v])
np.hstack([x, y])
np.hstack([v, w])
np.dstack([x, y])
np.column_stack([v, w])
np.block([[x, y], [y, x]])
np.append(x, y, axis=0)
np.append(x, 3.0)
np.unstack(t, axis=1)
np.split(x, 2)
np.split(x, [1, 3], axis=1)
np.array_split(x, 3, axis=1)
np.vsplit(x, 2)
np.hsplit(x, [2])
np.dsplit(t, 2)
np.tile(x, (2, 1, 3))
np.repeat(x, 3, axis=1)
np.repeat(x, 2)
np.repeat(v, [1, 2, 0, 3, 1])
np.flip(x)
np.flip(x, 1)
np.fliplr(x)
np.flipud(x)
np.rot90(x, 3)
np.roll(x, 2)
np.roll(x, (1, -2), axis=(0, 1))
np.roll(x, x.shape[0] // 2, axis=0)
np.pad(x, 1)
np.pad(x, ((1, 2), (0, 3)), constant_values=2.5)
np.pad(x, 2, mode='edge')
np.pad(x, ((2, 3), (1, 2)), mode='reflect')
np.pad(x, ((2, 3), (1, 4)), mode='symmetric')
np.pad(x, ((6, 3), (1, 7)), mode='wrap')
np.resize(x, (3, 7))
np.insert(x, 1, v, axis=0)
np.insert(v, 2, 7.0)
np.delete(x, 1, axis=1)
np.delete(v, -1)
np.lib.stride_tricks.sliding_window_view(x, 3, axis=1)
np.lib.stride_tricks.sliding_window_view(x, (2, 2))
np.meshgrid(v, h)
np.meshgrid(v, h, indexing='ij', sparse=True)
np.sum(x)
np.sum(x, axis=(0, 1))
np.sum(x, axis=1, keepdims=True)
np.sum(g, axis=0)
np.sum(s)
np.sum(b, axis=1)
np.sum(f, dtype=np.float64)
np.sum(x, where=b, initial=2.0)
np.sum(x, axis=0, where=v > 0)
x.sum(-1)
np.prod(x, axis=1)
np.prod(i)
np.prod(x, where=b, initial=0.5)
np.mean(x)
np.mean(i, axis=1)
np.mean(f, axis=0, keepdims=True)
np.mean(x, axis=1, where=u > 0.2)
np.mean(b)
np.mean(f, dtype=np.float64)
x.mean(axis=(0, 1))
np.var(x)
np.var(x, axis=1, ddof=1, keepdims=True)
np.var(z)
np.var(i, axis=0)
np.std(f, axis=1)
np.std(x, axis=0, correction=1)
np.std(x, where=u > 0.2)
np.max(x)
np.max(i, axis=1)
np.max(n, axis=1)
np.max(x, axis=0, initial=0.1, where=b)
np.amax(x, axis=(0, 1), keepdims=True)
np.min(x, axis=1, keepdims=True)
np.amin(g)
np.ptp(x, axis=1)
np.all(b)
np.all(x, axis=1)
np.any(b, axis=0, keepdims=True)
np.any(i == 3)
np.count_nonzero(i)
np.count_nonzero(b, axis=1)
np.argmax(x)
np.argmax(x, axis=1)
np.argmax(b, axis=1)
np.argmin(x, axis=0, keepdims=True)
np.argmax(x, keepdims=True)
np.cumsum(x)
np.cumsum(g, axis=1)
np.cumsum(b, axis=0)
np.cumprod(u, axis=1)
np.cumulative_sum(v)
np.cumulative_sum(x, axis=1, include_initial=True)
np.cumulative_prod(u, axis=0)
np.nancumsum(n, axis=1)
np.nancumprod(n, axis=1)
np.nansum(n, axis=1)
np.nanprod(n)
np.nanmean(n, axis=0)
np.nanvar(n, axis=1)
np.nanstd(n, ddof=1)
np.nanmax(n, axis=1)
np.nanmin(n)
np.nanmax(i, axis=0)
np.nanargmax(n, axis=1)
np.nanargmin(n, axis=1)
np.dot(x, e)
np.dot(v, w)
np.dot(t, q)
np.dot(q, np.stack([m, q]))
np.dot(x, 2.0)
np.vdot(x, y)
np.vdot(z, x)
np.inner(x, y)
np.inner(t, q)
np.outer(v, w)
np.linalg.outer(v, h)
np.tensordot(t, t, axes=([1, 2], [1, 2]))
np.tensordot(t, q, axes=1)
np.linalg.tensordot(x, e, axes=1)
np.einsum('ij,jk->ik', x, e)
np.einsum('bij,jk->bik', t, q)
np.einsum('ii->i', q)
np.einsum('ij,ij', x, y)
np.kron(d, q)
np.cross(d, d[::-1].copy())
np.cross(e, e + 1)
np.linalg.cross(d, d * 2 + 1)
np.linalg.matmul(q, m)
np.linalg.vecdot(x, y)
np.trace(q)
np.trace(i, offset=1)
np.linalg.trace(q)
np.diagonal(x, offset=1)
np.diagonal(t, axis1=1, axis2=2)
np.linalg.diagonal(t)
np.diag(v)
np.diag(x, k=-1)
np.diagflat(d, k=1)
np.vander(v, 3)
np.vander(v, 4, increasing=True)
np.linalg.inv(m)
np.linalg.det(q)
np.linalg.slogdet(m)
np.linalg.eig(m)
np.linalg.eigvals(m)
np.linalg.cholesky(m)
np.linalg.cholesky(m, upper=True)
np.linalg.eigh(m)
np.linalg.eigvalsh(m)
np.linalg.solve(m, x)
np.linalg.solve(m, m[0])
np.linalg.qr(x)
np.linalg.qr(x, mode='complete')
np.linalg.qr(x, mode='r')
np.linalg.svd(x, full_matrices=False)
np.linalg.svd(x, compute_uv=False)
np.linalg.svdvals(x)
np.linalg.pinv(x)
np.linalg.matrix_rank(x)
np.linalg.matrix_power(q, 3)
np.linalg.matrix_power(m, -1)
np.linalg.multi_dot([x, e, d])
np.linalg.tensorinv(m.reshape(4, 2, 2), ind=1)
np.linalg.tensorsolve(m, m[0])
np.linalg.cond(m)
np.linalg.cond(m, 1)
np.linalg.lstsq(e, v)
np.linalg.lstsq(e, x.T)
np.linalg.norm(x)
np.linalg.norm(x, axis=1)
np.linalg.norm(v, 1)
np.linalg.norm(v, np.inf)
np.linalg.norm(x, 'fro', axis=(0, 1), keepdims=True)
np.linalg.norm(x, 2)
np.linalg.norm(x, 'nuc')
np.linalg.norm(t)
np.linalg.vector_norm(x, axis=0)
np.linalg.matrix_norm(t)
np.fft.fft(x)
np.fft.fft(f, axis=0, norm='ortho')
np.fft.fft(v, n=8)
np.fft.ifft(z)
np.fft.rfft(x)
np.fft.irfft(z)
np.fft.irfft(np.fft.rfft(x), n=x.shape[-1])
np.fft.hfft(z)
np.fft.ihfft(v)
np.fft.fft2(x)
np.fft.ifft2(z)
np.fft.rfft2(x)
np.fft.irfft2(z)
np.fft.fftn(t)
np.fft.ifftn(z)
np.fft.rfftn(t)
np.fft.irfftn(z, s=(4, 8), axes=(0, 1))
np.fft.fftshift(x)
np.fft.ifftshift(x, axes=1)
np.fft.fftfreq(x.shape[1], 0.5)
np.fft.rfftfreq(x.shape[1])
np.zeros_like(i)
np.ones_like(x, dtype=np.int32)
np.full_like(x, 2.5)
np.full_like(i, v)
np.empty_like(x) * 0
np.tril(x)
np.triu(x, k=1)
np.zeros(x.shape) + x
np.zeros((x.shape[0], 2), dtype=np.float32)
np.ones(x.shape[1])
np.full(x.shape, 3)
np.full((2, x.shape[1]), v)
np.empty(x.shape) * 0
np.arange(x.shape[0])
np.arange(1, x.shape[1] * 2, 2)
np.arange(x.shape[0]) * 0.5
np.arange(x.shape[0], dtype=np.float32)
np.arange(0, x.shape[0], 0.5)
np.eye(x.shape[0])
np.eye(x.shape[0], x.shape[1], k=1, dtype=np.int32)
np.identity(x.shape[0])
np.tri(x.shape[0], x.shape[1], 1)
np.indices(x.shape)
np.linspace(0, 1, x.shape[1])
np.linspace(0.0, x.sum(), 7)
np.linspace(0, 10, x.shape[0], endpoint=False, retstep=True)
np.asarray(x, dtype=np.float32)
np.asanyarray(x)
np.ascontiguousarray(x.T)
np.array(x)
np.array([x[0, 0], x[1, 1] * 2, 3.0])
np.array([[v[0], 1], [w[2], v[1]]], dtype=np.float32)
np.logspace(0, x.sum(), 5)
np.logspace(0, 2, x.shape[0], base=2.0)
q[np.triu_indices(q.shape[0], 1)]
q[np.tril_indices(q.shape[0])]
q[np.diag_indices(q.shape[0])]
np.hanning(x.shape[1]) * v
np.hamming(x.shape[1]) * v
np.prod(x.shape) * v
np.where(b, x, y)
np.where(x > 0, x, 0)
np.where(b, f, 0)
np.where(b, i, 0.5)
np.where(x > 0)
np.select([x > 1, x > 0], [x, y], default=-1)
np.choose(k, [v[:1], w[:1], v[1:2], w[1:2]])
np.choose(k, [1, 2, 3, 4])
np.clip(x, -0.5, 0.5)
np.clip(i, 0, None)
np.clip(g, 10, 100)
np.clip(x, None, y)
np.clip(f, y, 2)
x.clip(min=0)
np.take(x, k, axis=0)
np.take(v, [0, -1, 2])
np.take(v, k + 3, mode='wrap')
np.take(v, k + 3, mode='clip')
np.take_along_axis(x, np.argsort(x, axis=1), axis=1)
np.take_along_axis(x, np.argmax(x, axis=1, keepdims=True) - 5, axis=1)
np.compress(v > 0, x, axis=1)
np.extract(x > 0, x)
np.nonzero(x > 0)
np.argwhere(i > 2)
np.flatnonzero(i > 2)
np.sort(x)
np.sort(x, axis=0)
np.sort(x, axis=None)
np.sort(n, axis=1)
np.argsort(x)
np.argsort(i, axis=0, kind='stable')
np.partition(x, 2, axis=1).sum(axis=1)
np.argpartition(x, 2, axis=1).sum(axis=1)
np.lexsort((k, k[::-1]))
np.searchsorted(h, v)
np.searchsorted(h, x, side='right')
np.searchsorted(w, v, sorter=np.argsort(w))
np.digitize(x, h)
np.digitize(x, h[::-1])
np.digitize(x, h, right=True)
np.unique(i)
np.unique(i, return_inverse=True, return_counts=True)
np.unique(i, return_index=True)
np.unique(i, axis=0)
np.sort(np.unique_values(i))
np.unique_counts(i)
np.unique_inverse(i)
np.isin(i, k)
np.isin(i, [1, 2], invert=True)
np.unique_all(i)
np.union1d(i, k)
np.intersect1d(i, k)
np.setdiff1d(i, k)
np.setxor1d(i, k)
np.array_equiv(i, i)
x[np.ix_(k[:3] % 4, v > -9)]
x[np.ix_([0, 2], [1, 3])]
np.unravel_index(k, (2, 3))
np.ravel_multi_index((k // 2, k % 2), (2, 2))
np.round(x, 2)
np.round(x)
np.around(x, 1)
np.round(x * 100, -1)
np.fix(x)
np.nan_to_num(n, nan=1.5)
np.real(z)
np.imag(z)
z.real + z.imag
np.imag(x)
np.angle(z)
np.angle(z, deg=True)
np.sinc(x)
np.i0(v)
np.isclose(x, y, atol=0.5)
np.allclose(x, x + 1e-12)
np.array_equal(i, i)
np.isneginf(x)
np.isposinf(x)
np.isreal(z)
np.iscomplex(z)
np.unwrap(x * 4)
np.median(x)
np.median(x, axis=1)
np.median(i, axis=0, keepdims=True)
np.median(n, axis=1)
np.nanmedian(n, axis=1)
np.quantile(x, 0.3)
np.quantile(x, [0.1, 0.5, 0.9], axis=1)
np.quantile(f, 0.25, axis=0, method='lower')
np.percentile(x, 75, axis=(0, 1))
np.percentile(i, [[10, 20], [80, 90]], axis=1, keepdims=True)
np.nanquantile(n, 0.4, axis=1)
np.nanpercentile(n, 40)
np.average(x)
np.average(x, axis=1, weights=w)
np.average(x, weights=u, returned=True)
np.cov(x)
np.cov(x, rowvar=False, ddof=0)
np.corrcoef(x)
np.corrcoef(v, w)
np.bincount(k)
np.bincount(k, weights=k * 0.5, minlength=9)
np.histogram(x, bins=6)
np.histogram(x, bins=5, range=(-1, 1))
np.histogram(x, bins=h)
np.histogram(x, bins=4, density=True)
np.histogram(g, bins=256, range=(0, 256))
np.histogram(x, bins=4, weights=u)
np.histogram_bin_edges(x, bins=7)
np.diff(x)
np.diff(x, n=2, axis=0)
np.diff(b, axis=1)
np.diff(v, prepend=0, append=w)
np.ediff1d(x, to_begin=0.0)
np.gradient(v)
np.gradient(x, 0.5, axis=1)
np.gradient(x)
np.trapezoid(x, dx=0.5)
np.trapezoid(v, x=h[:5])
np.convolve(v, h)
np.convolve(v, [0.25, 0.5, 0.25], mode='same')
np.convolve(h, v[:3], mode='valid')
np.convolve(k, [1, 2, 3])
np.correlate(h, v[:3])
np.correlate(v, h, mode='full')
np.correlate(v, w[:4], mode='same')
np.interp(x, h, h ** 2)
np.interp(x, h, h + 1, left=-1, right=9.0)
np.polyval(w, x)
np.polyval([1.0, -2.0, 0.5], x)
np.shape(x)[0] * v
np.ndim(x) * v
np.size(x) * v
np.size(x, 1) * v
np.iscomplexobj(z) * v
np.isrealobj(x) * v
x.astype(np.result_type(f, i))
np.can_cast(x, np.float32) * v
np.min_scalar_type(v).itemsize * v
np.shares_memory(x, y) * v
np.may_share_memory(x, x) * v
x[1]
x[-1, 2]
x[:, 1:-1]
x[::2, ::-1]
x[::-1]
x[3:0:-2]
x[-2::-1, 1:4]
x[4:1:-1]
x[None, ..., 0]
t[..., None, 1]
x[k]
x[k, :2]
t[:, [0, 2], 1]
t[0, :, [1, 2]]
t[[1, 0], :, 2]
t[:, [0, 2], [1, 3]]
x[x > 0]
x[v > 0.0, 1] if False else x[:, v > 0.0]
x[b]
x[np.arange(x.shape[0]), np.argmax(x, axis=1)]
x[:, k[:2]][::-1]
x[: x.shape[0] // 2]
x[x.shape[0] - 1]
x[k[0]]
x[..., :0]
x[[]]
x[:, None] - y[None, :]
x.T[1:, ::2]
x.item() if x.size == 1 else x
x.max() - x.min()
x.argsort(axis=1)
x.std(axis=0, ddof=1)
x.cumsum(axis=0)
x.round(1)
x.repeat(2, axis=0)
x.take([0, 1])
x.swapaxes(0, 1)
x.dot(e)
x.any()
x.all(axis=1)
x.nonzero()
x.view(np.int64) * 0
x.nbytes * v
"""
# Those whose result for inputs of other sizes is NumPy's own choice, or is fixed by what they say of a size.
FIXED = ("argsort", "np.linalg.eig", "np.linalg.lstsq", "np.polyval(w", "np.unstack")
EXPRESSIONS = [*_UFUNCS, *(line for line in _OTHERS.strip().splitlines() if line.strip())]
