"""Fourier transforms against the sum that defines them, and against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpujit.ops.families.signal.spectral
import gpujit.ops.families.signal.stft  # noqa: F401  declares the entries
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, run


def make(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Numbers of about unit size."""
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape) * 2
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def dft(x: Any, sign: int) -> Any:
    """The transform of the last dim by its definition."""
    n = x.shape[-1]
    return x @ np.exp(sign * 2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)


def test_definition() -> None:
    x = make(3, 7, dtype=np.complex128)
    np.testing.assert_allclose(run("aten::fft_fft", x), dft(x, -1), atol=1e-10)
    np.testing.assert_allclose(run("aten::fft_ifft", x), dft(x, 1) / 7, atol=1e-10)
    np.testing.assert_allclose(run("aten::fft_rfft", x.real), dft(x.real, -1)[:, :4], atol=1e-10)
    np.testing.assert_allclose(run("aten::fft_ihfft", x.real), dft(x.real, 1)[:, :4] / 7, atol=1e-10)
    np.testing.assert_allclose(run("aten::fft_fftn", x), dft(dft(x, -1).T, -1).T, atol=1e-10)
    np.testing.assert_allclose(run("aten::fft_irfft", dft(x.real, -1)[:, :4], 7), x.real, atol=1e-10)
    np.testing.assert_allclose(run("aten::fft_hfft", dft(x.real, 1)[:, :4] / 7, 7), x.real, atol=1e-10)
    np.testing.assert_allclose(run("aten::_fft_c2c", x, [1], 1, True), dft(x, -1) / np.sqrt(7), atol=1e-10)
    np.testing.assert_allclose(run("aten::_fft_c2c", x, [1], 2, True), dft(x, -1) / 7, atol=1e-10)


def test_single_precision_stays_single() -> None:
    assert run("aten::fft_fft", make(4)).dtype == np.complex64
    assert run("aten::fft_fft", np.arange(4)).dtype == np.complex64
    assert run("aten::fft_irfft", make(4)).dtype == np.float32
    assert run("aten::fft_fft", make(4, dtype=np.float64)).dtype == np.complex128


def test_frequencies_and_shifts() -> None:
    np.testing.assert_allclose(run("aten::fft_fftfreq", 5, 0.5), np.array([0, 0.4, 0.8, -0.8, -0.4]), atol=1e-7)
    np.testing.assert_allclose(run("aten::fft_rfftfreq", 4, 2.0), np.array([0, 0.125, 0.25]), atol=1e-7)
    np.testing.assert_array_equal(run("aten::fft_fftshift", np.arange(5)), [3, 4, 0, 1, 2])
    np.testing.assert_array_equal(run("aten::fft_ifftshift", np.arange(5)), [2, 3, 4, 0, 1])
    np.testing.assert_array_equal(run("aten::fft_fftshift", np.arange(6).reshape(2, 3), [1]), [[2, 0, 1], [5, 3, 4]])


NORMS = [None, "backward", "ortho", "forward"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.int64, np.bool_, np.uint8])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_dim_against_torch(name: str, dtype: Any) -> None:
    if name in ("rfft", "ihfft") and dtype is np.complex64:
        with pytest.raises(DTypeError, match="real"):
            run(f"aten::fft_{name}", make(4, dtype=dtype))
        return
    x = abs(make(3, 6)).astype(dtype) if np.dtype(dtype).kind in "bui" else make(3, 6, dtype=dtype)
    for norm in NORMS:
        for n, dim in ((None, -1), (4, 0), (9, 1), (1, 1)):
            against_torch(f"aten::fft_{name}", x, n, dim, norm)
    against_torch(f"aten::fft_{name}", x.T[:, ::2])


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_several_dims_against_torch(name: str, dtype: Any) -> None:
    if name in ("rfft", "ihfft") and dtype is np.complex64:
        with pytest.raises(DTypeError, match="real"):
            run(f"aten::fft_{name}n", make(4, 4, dtype=dtype))
        return
    x = make(2, 3, 4, dtype=dtype)
    for norm in NORMS:
        against_torch(f"aten::fft_{name}2", x, None, [-2, -1], norm)
        against_torch(f"aten::fft_{name}n", x, None, None, norm)
        against_torch(f"aten::fft_{name}n", x, [4, -1], [0, -1], norm)
        against_torch(f"aten::fft_{name}n", x, [2, 5], None, norm)


@pytest.mark.parametrize("normalization", [0, 1, 2])
def test_inner_transforms_against_torch(normalization: int) -> None:
    c = make(3, 4, dtype=np.complex64)
    for forward in (False, True):
        against_torch("aten::_fft_c2c", c, [0, 1], normalization, forward)
    for onesided in (False, True):
        against_torch("aten::_fft_r2c", make(3, 4), [1, 0], normalization, onesided)
    for size in (6, 7):
        against_torch("aten::_fft_c2r", c, [0, 1], normalization, size)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize(("hop", "length"), [(None, None), (3, 6), (5, 8)])
def test_stft_against_torch(normalized: bool, complex_: bool, hop: int | None, length: int | None) -> None:
    window = None if length is None else np.hanning(length).astype(np.float32)
    for x in (make(40), make(2, 40)):
        against_torch("aten::stft", x, 8, hop, length, window, normalized, None, complex_)
        against_torch("aten::stft", x, 8, hop, length, window, normalized, False, complex_)
        for mode in ("reflect", "constant", "replicate"):
            against_torch("aten::stft.center", x, 8, hop, length, window, True, mode, normalized, True, complex_)
        against_torch("aten::stft", x, 8, hop, length, window, normalized, True, complex_, True)


def test_stft_of_complex_signals_has_both_sides() -> None:
    against_torch("aten::stft", make(30, dtype=np.complex64), 8)
    against_torch("aten::stft", make(30), 8, None, None, make(8, dtype=np.complex64))


def test_frames_are_transformed_one_by_one() -> None:
    x, window = make(20, dtype=np.float64), np.hanning(8)
    y = run("aten::stft", x, 8, 4, None, window, False, True, True)
    for t in range(4):
        np.testing.assert_allclose(y[:, t], dft(x[4 * t : 4 * t + 8] * window, -1)[:5], atol=1e-10)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("length", [None, 30, 50])
def test_istft_against_torch(center: bool, normalized: bool, length: int | None) -> None:
    window = np.hamming(8).astype(np.float32)
    spectra = make(2, 5, 12, dtype=np.complex64)
    against_torch("aten::istft", spectra, 8, 3, 8, window, center, normalized, None, length)
    against_torch(
        "aten::istft", make(8, 12, dtype=np.complex64), 8, 2, None, None, center, normalized, False, length, True
    )


def test_istft_undoes_stft() -> None:
    x, window = make(2, 64, dtype=np.float64), np.hanning(17)[:16]
    y = run("aten::stft.center", x, 16, 4, None, window, True, "reflect", False, True, True)
    np.testing.assert_allclose(run("aten::istft", y, 16, 4, None, window, True, False, None, 64), x, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "args", "error", "text"),
    [
        ("aten::fft_fft", (make(3), 0), ShapeError, "data points"),
        ("aten::fft_fft", (make(3), None, 1), ShapeError, "dim 1"),
        ("aten::fft_fft", (make(3), None, 0, "best"), OpError, "normalization mode 'best'"),
        ("aten::fft_fft", (make(3).astype(np.float16),), DTypeError, "float16"),
        ("aten::fft_fftn", (make(2, 3), None, [0, 0]), ShapeError, "unique"),
        ("aten::fft_fftn", (make(2, 3), [2], [0, 1]), ShapeError, "same length"),
        ("aten::fft_irfft", (make(1),), ShapeError, "data points"),
        ("aten::_fft_c2c", (make(3), [0], 0, True), DTypeError, "complex"),
        ("aten::stft", (make(3), 8, None, None, None, False, None, True), ShapeError, "n_fft"),
        ("aten::stft", (make(20), 8), OpError, "return_complex"),
        ("aten::stft", (make(20), 8, None, 6, np.ones(8, np.float32), False, None, True), ShapeError, "win_length"),
        ("aten::stft", (np.arange(20), 8, None, None, None, False, None, True), DTypeError, "int64"),
        (
            "aten::stft.center",
            (make(3), 8, None, None, None, True, "reflect", False, None, True),
            ShapeError,
            "longer signal",
        ),
        ("aten::istft", (make(5, 3), 8), DTypeError, "complex"),
        ("aten::istft", (make(4, 3, dtype=np.complex64), 8), ShapeError, "5 frequencies"),
        ("aten::istft", (make(5, 3, dtype=np.complex64), 8, 8, 8, np.zeros(8, np.float32)), OpError, "overlap add"),
        ("aten::fft_fftfreq", (0,), ShapeError, "positive"),
    ],
)
def test_errors(name: str, args: tuple[Any, ...], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        run(name, *args)
