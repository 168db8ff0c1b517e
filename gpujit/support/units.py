"""Numbers for people: times, sizes and rates with three digits and a unit that fits."""

from __future__ import annotations

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_STEPS = ("", "k", "M", "G", "T", "P")


def time_text(seconds: float) -> str:
    """``12.3 µs``."""
    for size, unit in _TIMES:
        if abs(seconds) >= size * 0.9995:
            return f"{_three(seconds / size)} {unit}"
    return "0 s" if seconds == 0 else f"{_three(seconds / 1e-9)} ns"


def bytes_text(amount: float) -> str:
    """``1.20 MB``, in powers of 1000."""
    return _scaled(amount, "B")


def rate_text(rate: float) -> str:
    """``45.0 GFLOP/s``."""
    return _scaled(rate, "FLOP/s")


def flops_text(amount: float) -> str:
    """``45.0 MFLOP``."""
    return _scaled(amount, "FLOP")


def _scaled(amount: float, unit: str) -> str:
    step = 0
    while abs(amount) >= 999.5 and step < len(_STEPS) - 1:
        amount /= 1000
        step += 1
    text = f"{amount:.0f}" if step == 0 and amount == int(amount) else _three(amount)
    return f"{text} {_STEPS[step]}{unit}"


def _three(number: float) -> str:
    """Three digits, or all of those before the point."""
    size = abs(number)
    return f"{number:.2f}" if size < 9.995 else f"{number:.1f}" if size < 99.95 else f"{number:.0f}"
