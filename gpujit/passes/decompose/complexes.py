"""Complex numbers as pairs of real ones, and Fourier transforms as products with matrices.

Kernels know no complex numbers; in memory they are pairs, so that ``view_as_real`` and ``view_as_complex`` cost
nothing. A product with the matrix of a transform is what a GPU is good at, up to some thousand points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.dtypes import FLOAT32, FLOAT64
from gpujit.ir.graph import Node, Value
from gpujit.ops import table
from gpujit.passes.decompose.writing import Writer, known_dtype, numbers_of
from gpujit.passes.peephole.facts import constant_of, known_shape, number_of

# Elements of the matrix of a transform.
MOST_MATRIX = 1 << 23
# The sum of windows under which ``istft`` refuses to divide by it.
LEAST_ENVELOPE = 1e-11
_PARTS = {np.dtype(np.complex64): FLOAT32, np.dtype(np.complex128): FLOAT64}
_NORMS = (None, "backward", "forward", "ortho")


def _real_of(value: Value) -> np.dtype | None:
    """The dtype of the parts of complex numbers; None for other tensors."""
    dtype = known_dtype(value)
    return None if dtype is None else _PARTS.get(dtype)


def is_complex(value: Value) -> bool:
    """Whether a value is a tensor known to be complex."""
    return _real_of(value) is not None


# Element by element ---------------------------------------------------------------------------------------------------


def _split(write: Writer, x: Value) -> tuple[Value, Value]:
    pairs = write("view_as_real", x)
    return write("select.int", pairs, -1, 0), write("select.int", pairs, -1, 1)


def _joined(write: Writer, real: Value, imaginary: Value) -> Value:
    return write("view_as_complex", write("stack", write.tensors(real, imaginary), -1))


def _needs_complex(node: Node) -> str | None:
    """Why the first operand is no complex tensor of a known shape."""
    x = node.inputs[0]
    return None if is_complex(x) and known_shape(x) is not None else "it is not known to be complex"


def _abs(write: Writer, node: Node) -> Value | str:
    return _needs_complex(node) or write("hypot", *_split(write, node.inputs[0]))


def _angle(write: Writer, node: Node) -> Value | str:
    fault = _needs_complex(node)
    if fault:
        return fault
    real, imaginary = _split(write, node.inputs[0])
    return write("atan2", imaginary, real)


def _exp(write: Writer, node: Node) -> Value | str:
    fault = _needs_complex(node)
    if fault:
        return fault
    real, turn = _split(write, node.inputs[0])
    size = write("exp", real)
    return _joined(write, write("mul.Tensor", size, write("cos", turn)), write("mul.Tensor", size, write("sin", turn)))


def _conj(write: Writer, node: Node) -> Value | str:
    fault = _needs_complex(node)
    if fault:
        return fault
    real, imaginary = _split(write, node.inputs[0])
    return _joined(write, real, write("neg", imaginary))


def _neg(write: Writer, node: Node) -> Value | str:
    return _needs_complex(node) or write("view_as_complex", write("neg", write("view_as_real", node.inputs[0])))


def _polar(write: Writer, node: Node) -> Value | str:
    size, turn = node.inputs
    if known_dtype(size, turn) not in (FLOAT32, FLOAT64) or known_shape(size) is None or known_shape(turn) is None:
        return "shapes and one dtype are not known"
    return _joined(write, write("mul.Tensor", size, write("cos", turn)), write("mul.Tensor", size, write("sin", turn)))


def _complex(write: Writer, node: Node) -> Value | str:
    real, imaginary = node.inputs
    if known_dtype(real, imaginary) not in (FLOAT32, FLOAT64) or known_shape(real) is None:
        return "shapes and one dtype are not known"
    if known_shape(real) != known_shape(imaginary):
        return "one is broadcast"
    return _joined(write, real, imaginary)


def _sum(write: Writer, node: Node) -> Value | str:
    """``add`` and ``sub``: parts with parts."""
    a, b, factor = node.inputs
    if known_dtype(a, b) not in _PARTS or known_shape(a) is None or known_shape(b) is None:
        return "both are not known to be complex"
    if type(number_of(factor)) not in (int, float):
        return "the factor is not known to be real"
    parts = [write("view_as_real", x) for x in (a, b)]
    return write("view_as_complex", write(f"{node.kind.removeprefix('aten::')}.Tensor", *parts, factor))


def _product(write: Writer, node: Node) -> Value | str:
    real = next((r for r in map(_real_of, node.inputs[:2]) if r is not None), None)
    sides = [_factor(write, x, real) for x in node.inputs[:2]]
    first, second = sides
    if first is None or second is None:
        return "shapes are not known, or parts have other dtypes"
    (a, b), (c, d) = first, second
    left = write.product(a, c), write.product(b, d)
    right = write.product(a, d), write.product(b, c)
    return _joined(write, write("sub.Tensor", *left), write("add.Tensor", *right))


def _factor(write: Writer, x: Value, real: np.dtype | None) -> tuple[Any, Any] | None:
    """The parts of a factor: tensors, or numbers."""
    if real is None:
        return None
    if x.is_constant and known_shape(x) in ((), None):
        number = complex(np.asarray(x.constant()).item())
        return float(real.type(number.real)), float(real.type(number.imag))
    if known_shape(x) is None or known_dtype(x) not in (real, *(k for k, v in _PARTS.items() if v == real)):
        return None
    return _split(write, x) if is_complex(x) else (x, 0.0)


def _quotient(write: Writer, node: Node) -> Value | str:
    """By real numbers."""
    x, by = node.inputs[:2]
    fault = _needs_complex(node)
    if fault:
        return fault
    number = number_of(by)
    if type(number) in (int, float):
        return write("view_as_complex", write("div.Scalar", write("view_as_real", x), number))
    if known_dtype(by) != _real_of(x) or known_shape(by) is None:
        return "it is not divided by real numbers of its parts' dtype"
    return write("view_as_complex", write("div.Tensor", write("view_as_real", x), write("unsqueeze", by, -1)))


# Transforms -----------------------------------------------------------------------------------------------------------

_REAL_RESULTS = ("fft_irfft", "fft_hfft")


@lru_cache(maxsize=32)
def _matrix(name: str, size: int, has_pairs: bool, points: int | None, norm: str | None, real: np.dtype) -> np.ndarray:
    """The matrix of a transform of real numbers, or of pairs of them, to real numbers or pairs."""
    op = table.by_full_name(f"aten::{name}")
    assert op is not None
    basis: np.ndarray = np.eye(size)
    if has_pairs:
        # The transform of 1, and that of i, at each place.
        basis = np.stack([basis, basis * 1j], 1).reshape(2 * size, size)
    y = op.kernel(np)(basis, points, -1, norm)
    found = np.ascontiguousarray(y).view(np.float64).astype(real)
    found.setflags(write=False)
    return found


def _transform(write: Writer, node: Node) -> Value | str:
    """A transform along one dim."""
    x, (points, d, norm) = node.inputs[0], map(constant_of, node.inputs[1:4])
    dtype, shape = known_dtype(x), known_shape(x)
    name = node.kind.removeprefix("aten::")
    if dtype is None or shape is None or not (points is None or type(points) is int) or norm not in _NORMS:
        return "dtype, shape or points are not known"
    real = _PARTS.get(dtype, dtype)
    if real not in (FLOAT32, FLOAT64) or type(d) is not int or not -len(shape) <= d < len(shape) or not prod(shape):
        return "it is not of float32 or float64, or there is nothing"
    has_pairs, d = dtype in _PARTS, d % len(shape)
    size = shape[d]
    gives_reals = name in _REAL_RESULTS
    count = points if points is not None else 2 * (size - 1) if gives_reals else size
    if count < 1 or (has_pairs and name in ("fft_rfft", "fft_ihfft")):
        return "the operator refuses it"
    if size * (1 + has_pairs) * count * 2 > MOST_MATRIX:
        return "it has too many points"
    matrix = _matrix(name, size, has_pairs, points, norm, real)
    rank = len(shape)
    order = [*(k for k in range(rank) if k != d), d]
    back = [order.index(k) for k in range(rank)]
    moved = x if d == rank - 1 else write("permute", x, order)
    outer = [shape[k] for k in order[:-1]]
    if has_pairs:
        moved = write("reshape", write("view_as_real", moved), [*outer, 2 * size])
    # One matrix for all rows.
    y = write("mm", write("reshape", moved, [prod(outer), moved_size(moved)]), write(matrix))
    if gives_reals:
        y = write("reshape", y, [*outer, matrix.shape[1]])
        return y if d == rank - 1 else write("clone", write("permute", y, back), 0)
    y = write("reshape", y, [*outer, matrix.shape[1] // 2, 2])
    if d != rank - 1:
        y = write("clone", write("permute", y, [*back, rank]), 0)
    return write("view_as_complex", y)


def moved_size(x: Value) -> int:
    """The size of the last dim, which is known."""
    shape = known_shape(x)
    assert shape
    return shape[-1]


def _transforms(first: str, last: str, is_last_first: bool) -> Callable[[Writer, Node], Value | str]:
    """Transforms along several dims, one after the other: ``last`` along the last of them."""

    def rewrite(write: Writer, node: Node) -> Value | str:
        x, sizes, dims, norm = node.inputs
        shape, s, named = known_shape(x), numbers_of(sizes), numbers_of(dims)
        if shape is None or constant_of(norm) not in _NORMS or (s is None and constant_of(sizes) is not None):
            return "shape and sizes are not known"
        if named is None and constant_of(dims) is not None:
            return "dims are not known"
        rank = len(shape)
        axes = named if named is not None else list(range(rank - len(shape if s is None else s), rank))
        if any(not -rank <= d < rank for d in axes) or len({d % rank for d in axes}) != len(axes) or not axes:
            return "the operator refuses it, or does nothing"
        points: list[int | None] = [None] * len(axes) if s is None else [None if n == -1 else n for n in s]
        if len(points) != len(axes):
            return "the operator refuses it"
        steps = [(first, d, n) for d, n in zip(axes[:-1], points, strict=False)]
        end = (last, axes[-1], points[-1])
        for name, d, n in [end, *steps] if is_last_first else [*steps, end]:
            x = write(name, x, n, d, norm)
        return x

    return rewrite


def _stft(write: Writer, node: Node) -> Value | str:
    is_centred = len(node.inputs) == 11
    x, window, rest = node.inputs[0], node.inputs[4], node.inputs[5:]
    n, hop, size = map(constant_of, node.inputs[1:4])
    center, mode = (constant_of(rest[0]), constant_of(rest[1])) if is_centred else (False, "reflect")
    normalized, half, complex_, aligned = map(constant_of, rest[2 if is_centred else 0 :])
    shape, dtype, frame = known_shape(x), known_dtype(x), known_shape(window)
    if shape is None or len(shape) not in (1, 2) or dtype not in (FLOAT32, FLOAT64) or type(n) is not int:
        return "shape, dtype or points are not known"
    hop, size = n // 4 if hop is None else hop, n if size is None else size
    if aligned or type(complex_) is not bool or type(half) not in (bool, type(None)) or type(normalized) is not bool:
        return "options are not known"
    has_window = constant_of(window) is not None
    if type(hop) is not int or type(size) is not int or not 0 < size <= n or hop < 1 or not prod(shape):
        return "the operator refuses it"
    if has_window and (frame != (size,) or known_dtype(window) != dtype):
        return "the window is not one of the signal's dtype"
    is_single = len(shape) == 1
    x = write("unsqueeze", x, 0) if is_single else x
    length = shape[-1]
    if center:
        if mode not in ("reflect", "constant", "replicate", "circular") or (mode == "reflect" and n // 2 >= length):
            return "the operator refuses it"
        x = write("pad", x, [n // 2, n // 2], mode, 0.0 if mode == "constant" else None)
        length += 2 * (n // 2)
    if n > length:
        return "the operator refuses it"
    rows = write("unfold", x, -1, n, hop)
    weights = _window(write, window if has_window else None, size, n, dtype)
    rows = rows if weights is None else write("mul.Tensor", rows, weights)
    name = "fft_fft" if half is False else "fft_rfft"
    y = write(name, rows, None, -1, "ortho" if normalized else None)
    y = write("transpose.int", y, 1, 2)
    y = write("squeeze.dim", y, 0) if is_single else y
    return y if complex_ else write("clone", write("view_as_real", y), 0)


def _window(write: Writer, window: Value | None, size: int, n: int, dtype: np.dtype) -> Value | None:
    """The window, centred in ``n`` points; None when it is all ones."""
    left = (n - size) // 2
    if size == n:
        return window
    if window is None:
        ones = np.zeros(n, dtype)
        ones[left : left + size] = 1
        return write(ones)
    return write("constant_pad_nd", window, [left, n - size - left], 0)


def _istft(write: Writer, node: Node) -> Value | str:
    x, window = node.inputs[0], node.inputs[4]
    n, hop, size, _, center, normalized, half, length, complex_ = map(constant_of, node.inputs[1:])
    shape, real = known_shape(x), _real_of(x)
    if shape is None or len(shape) not in (2, 3) or real is None or type(n) is not int or not prod(shape):
        return "shape, dtype or points are not known"
    hop, size = n // 4 if hop is None else hop, n if size is None else size
    if type(hop) is not int or type(size) is not int or not 0 < size <= n or hop < 1 or complex_ is not False:
        return "the operator refuses it, or gives complex numbers"
    if type(center) is not bool or type(normalized) is not bool or type(half) not in (bool, type(None)):
        return "options are not known"
    if not (length is None or type(length) is int):
        return "the length is not known"
    if not (window.is_constant and (constant_of(window) is None or known_dtype(window) == real)):
        return "the window is no constant, so that nobody knows where it is zero"
    values = np.ones(size, real) if constant_of(window) is None else np.asarray(constant_of(window))
    half = shape[-2] != n if half is None else half
    if values.shape != (size,) or shape[-2] != (n // 2 + 1 if half else n):
        return "the operator refuses it"
    weights = np.zeros(n, real)
    weights[(n - size) // 2 : (n - size) // 2 + size] = values
    count = shape[-1]
    total = n + hop * (count - 1)
    start = n // 2 if center else 0
    end = start + length if length is not None else total - n // 2 if center else total
    index, inside = _overlaps(n, hop, count, range(start, min(end, total)))
    scale = np.where(inside, (weights * weights)[index % n], 0).sum(-1, dtype=real)
    if not scale.size or not scale.min() > LEAST_ENVELOPE:
        return "the window leaves points without a value, which the operator refuses"
    is_single = len(shape) == 2
    spectra = write("transpose.int", write("unsqueeze", x, 0) if is_single else x, 1, 2)
    spectra = spectra if half else write("slice.Tensor", spectra, 2, 0, n // 2 + 1, 1)
    frames = write("fft_irfft", spectra, n, -1, "ortho" if normalized else None)
    frames = write("mul.Tensor", frames, write(weights))
    batch = 1 if is_single else shape[0]
    found = write("index_select", write("reshape", frames, [batch, count * n]), 1, write(index.reshape(-1)))
    found = write("reshape", found, [batch, *index.shape])
    y = write("sum.dim_IntList", write("where.ScalarOther", write(inside), found, 0.0), [-1], False)
    y = write("div.Tensor", y, write(scale))
    y = write("constant_pad_nd", y, [0, end - total], 0) if end > total else y
    return write("squeeze.dim", y, 0) if is_single else y


def _overlaps(n: int, hop: int, count: int, points: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """For each point the places in frames, one behind the other, that are added up there; and which of them count."""
    at = np.asarray(points, np.int64)[:, None]
    frame = at // hop - np.arange(-(-n // hop))
    place = at - frame * hop
    inside = (frame >= 0) & (frame < count) & (place < n)
    return np.where(inside, frame * n + place, 0), inside


# Those that are looked at only where a tensor is complex.
POINTWISE: dict[str, Callable[[Writer, Node], Value | str]] = {
    "abs": _abs,
    "angle": _angle,
    "exp": _exp,
    "neg": _neg,
    **dict.fromkeys(("conj", "_conj", "conj_physical", "_conj_physical"), _conj),
    **dict.fromkeys(("add.Tensor", "sub.Tensor"), _sum),
    **dict.fromkeys(("mul.Tensor", "mul.Scalar"), _product),
    **dict.fromkeys(("div.Tensor", "div.Scalar"), _quotient),
}
TRANSFORMS: dict[str, Callable[[Writer, Node], Value | str]] = {
    "polar": _polar,
    "complex": _complex,
    **dict.fromkeys([f"fft_{name}" for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")], _transform),
    **dict.fromkeys(("fft_fftn", "fft_fft2"), _transforms("fft_fft", "fft_fft", False)),
    **dict.fromkeys(("fft_ifftn", "fft_ifft2"), _transforms("fft_ifft", "fft_ifft", False)),
    **dict.fromkeys(("fft_rfftn", "fft_rfft2"), _transforms("fft_fft", "fft_rfft", True)),
    **dict.fromkeys(("fft_irfftn", "fft_irfft2"), _transforms("fft_ifft", "fft_irfft", False)),
    **dict.fromkeys(("stft", "stft.center"), _stft),
    "istft": _istft,
}
