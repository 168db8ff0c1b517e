"""Short-time Fourier transforms and their inverse.

Frames are a strided view of the signal; overlapping frames are added back in groups that do not overlap.
"""

from __future__ import annotations

from typing import Any

from gpujit.ir.values import Array
from gpujit.ops.promotion import COMPLEX64, COMPLEX128
from gpujit.ops.registry import library
from gpujit.ops.rules.layers import stft_type
from gpujit.support.errors import DTypeError, OpError, ShapeError


def _window(op: str, xp: Any, window: Array | None, win_length: int, n_fft: int, dtype: Any) -> Array | None:
    """The window, centred in ``n_fft`` points; None when it is all ones."""
    if window is not None and window.shape != (win_length,):
        raise ShapeError(
            f"{op}: expected a 1D window tensor of size equal to win_length={win_length}, got {window.shape}"
        )
    if win_length == n_fft:
        return window
    padded = xp.zeros(n_fft, dtype if window is None else window.dtype)
    left = (n_fft - win_length) // 2
    padded[left : left + win_length] = 1 if window is None else window
    return padded


def _pad_last(xp: Any, x: Array, left: int, right: int, mode: str) -> Array:
    n = x.shape[-1]
    if mode == "reflect" and max(left, right) >= n:
        raise ShapeError(
            f"aten::stft: reflect padding of {max(left, right)} needs a longer signal than {n}; use 'constant'"
        )
    modes = {"reflect": "reflect", "constant": "constant", "replicate": "edge", "circular": "wrap"}
    if mode not in modes:
        raise OpError(f"aten::stft: unknown pad_mode {mode!r}; use one of {', '.join(modes)}")
    return xp.pad(x, [(0, 0)] * (x.ndim - 1) + [(left, right)], modes[mode])


def _stft(
    xp: Any,
    x: Array,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: Array | None,
    normalized: bool,
    onesided: bool | None,
    return_complex: bool | None,
    align_to_window: bool | None,
    center: bool,
    pad_mode: str,
) -> Array:
    op = "aten::stft"
    hop = n_fft // 4 if hop_length is None else hop_length
    size = n_fft if win_length is None else win_length
    if x.dtype.kind not in "fc":
        raise DTypeError(f"{op}: expected a tensor of floating point or complex values, found {x.dtype}")
    if x.ndim not in (1, 2):
        raise ShapeError(f"{op}: expected a 1D or 2D tensor, got shape {x.shape}")
    is_complex = x.dtype.kind == "c" or (window is not None and window.dtype.kind == "c")
    if return_complex is None:
        if not is_complex:
            raise OpError(f"{op}: requires the return_complex parameter be given for real inputs")
        return_complex = True
    if align_to_window and center:
        raise OpError(f"{op}: align_to_window should only be set when center = false")
    single = x.ndim == 1
    if single:
        x = x[None]
    if center:
        x = _pad_last(xp, x, n_fft // 2, n_fft // 2, pad_mode)
    length = x.shape[1]
    if n_fft <= 0 or n_fft > length:
        raise ShapeError(f"{op}: expected 0 < n_fft <= {length}, but got n_fft={n_fft}")
    if hop <= 0 or not 0 < size <= n_fft:
        raise ShapeError(f"{op}: expected hop_length > 0 and 0 < win_length <= n_fft, got {hop} and {size}")
    weights = _window(op, xp, window, size, n_fft, x.dtype)
    if align_to_window:
        # Frames start where the window does, so the signal is extended by what the window leaves out on both sides.
        frames = 1 + (length - size) // hop
        left = (n_fft - size) // 2
        x = _pad_last(xp, x, left, n_fft - size - left, "constant")
    else:
        frames = 1 + (length - n_fft) // hop
    x = xp.ascontiguousarray(x)
    item = x.itemsize
    batch = x.shape[0]
    rows = xp.lib.stride_tricks.as_strided(x, (batch, frames, n_fft), (x.strides[0], hop * item, item))
    rows = rows.copy() if weights is None else rows * weights
    half = not is_complex if onesided is None else onesided
    if half and is_complex:
        raise OpError(f"{op}: cannot have onesided output if window or input is complex")
    norm = "ortho" if normalized else None
    y = (xp.fft.rfft if half else xp.fft.fft)(rows, None, 2, norm)
    y = y.astype(COMPLEX64 if x.dtype.itemsize == (8 if x.dtype.kind == "c" else 4) else COMPLEX128, copy=False)
    y = y.transpose(0, 2, 1)
    if single:
        y = y[0]
    if return_complex:
        return y
    real = y.real.dtype
    return xp.ascontiguousarray(y).view(real).reshape((*y.shape, 2))


@library(
    "aten::stft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, "
    "bool normalized=False, bool? onesided=None, bool? return_complex=None, bool? align_to_window=None) -> Tensor",
    half="native",
    type_rule=stft_type,
)
def stft(
    xp: Any,
    x: Array,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: Array | None,
    normalized: bool,
    onesided: bool | None,
    return_complex: bool | None,
    align_to_window: bool | None,
) -> Array:
    """Transforms of windowed frames ``[..., frequency, frame]``; with a last dim (real, imaginary) when not complex."""
    return _stft(
        xp,
        x,
        n_fft,
        hop_length,
        win_length,
        window,
        normalized,
        onesided,
        return_complex,
        align_to_window,
        False,
        "reflect",
    )


@library(
    "aten::stft.center(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, "
    'bool center=True, str pad_mode="reflect", bool normalized=False, bool? onesided=None, bool? return_complex=None, '
    "bool? align_to_window=None) -> Tensor",
    half="native",
    type_rule=stft_type,
)
def stft_center(
    xp: Any,
    x: Array,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: Array | None,
    center: bool,
    pad_mode: str,
    normalized: bool,
    onesided: bool | None,
    return_complex: bool | None,
    align_to_window: bool | None,
) -> Array:
    """Transforms of windowed frames, each centred on its point: the signal is padded by half a frame on both sides."""
    return _stft(
        xp,
        x,
        n_fft,
        hop_length,
        win_length,
        window,
        normalized,
        onesided,
        return_complex,
        align_to_window,
        center,
        pad_mode,
    )


def overlap_add(xp: Any, frames: Array, hop: int) -> Array:
    """The sum of frames ``[B, T, n]`` laid ``hop`` apart: ``[B, n + hop * (T - 1)]``."""
    batch, count, n = frames.shape
    parts = -(-n // hop)
    if parts * hop != n:
        padded = xp.zeros((batch, count, parts * hop), frames.dtype)
        padded[..., :n] = frames
        frames = padded
    frames = frames.reshape(batch, count, parts, hop)
    y = xp.zeros((batch, count + parts - 1, hop), frames.dtype)
    for k in range(parts):
        y[:, k : k + count] += frames[:, :, k]
    return y.reshape(batch, -1)[:, : n + hop * (count - 1)]


@library(
    "aten::istft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, "
    "bool center=True, "
    "bool normalized=False, bool? onesided=None, int? length=None, bool return_complex=False) -> Tensor",
    half="native",
)
def istft(
    xp: Any,
    x: Array,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: Array | None,
    center: bool,
    normalized: bool,
    onesided: bool | None,
    length: int | None,
    return_complex: bool,
) -> Array:
    """The signal whose frames have the transforms ``[..., frequency, frame]``, by least squares (overlap and add).

    Source: Griffin and Lim 1984, "Signal estimation from modified short-time Fourier transform", equation 6.
    """
    op = "aten::istft"
    hop = n_fft // 4 if hop_length is None else hop_length
    size = n_fft if win_length is None else win_length
    if x.dtype.kind != "c":
        raise DTypeError(
            f"{op}: requires a complex-valued input tensor matching the output from stft with return_complex=True"
        )
    if x.ndim not in (2, 3) or not x.size:
        raise ShapeError(
            f"{op}: expected a tensor [frequency, frame] or [batch, frequency, frame], found shape {x.shape}"
        )
    if hop <= 0 or not 0 < size <= n_fft:
        raise ShapeError(f"{op}: expected hop_length > 0 and 0 < win_length <= n_fft, got {hop} and {size}")
    half = x.shape[-2] != n_fft if onesided is None else onesided
    want = n_fft // 2 + 1 if half else n_fft
    if x.shape[-2] != want:
        raise ShapeError(f"{op}: expected {want} frequencies for n_fft={n_fft}, found {x.shape[-2]}")
    if return_complex and half:
        raise OpError(f"{op}: cannot have onesided input if the output is complex")
    real = x.real.dtype
    weights = _window(op, xp, window, size, n_fft, real)
    single = x.ndim == 2
    if single:
        x = x[None]
    spectra = x.transpose(0, 2, 1)
    count = spectra.shape[1]
    norm = "ortho" if normalized else None
    if return_complex:
        frames = xp.fft.ifft(spectra, None, 2, norm).astype(x.dtype, copy=False)
    else:
        frames = xp.fft.irfft(spectra[..., : n_fft // 2 + 1], n_fft, 2, norm).astype(real, copy=False)
    envelope = xp.ones(n_fft, real) if weights is None else weights * weights
    if weights is not None:
        frames = frames * weights
    y = overlap_add(xp, frames, hop)
    scale = overlap_add(xp, xp.broadcast_to(envelope, (1, count, n_fft)), hop)[0]
    total = n_fft + hop * (count - 1)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - n_fft // 2 if center else total
    y, scale = y[:, start:end], scale[start:end]
    if not scale.size or not float(abs(scale).min()) > 1e-11:
        raise OpError(
            f"{op}: window overlap add min is below 1e-11: the window leaves points of the signal without a value"
        )
    y = y / scale
    if end > total:
        y = _pad_last(xp, y, 0, end - total, "constant")
    return y[0] if single else y
