"""Computes the polynomials of gpujit/kernels/math_coefficients.py: Chebyshev interpolants at 60 digits, then rounded.

    python ci/fit_polynomials.py            writes the file (needs mpmath)
    python ci/fit_polynomials.py --errors   prints the largest relative error of each instead

A function with a zero or a known first term is divided by what is known, so that the interpolant's absolute error is
the relative error of the result. An interpolant at Chebyshev's points is within a small factor of the minimax one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import mpmath as mp

mp.mp.dps = 60
F = Callable[[mp.mpf], mp.mpf]


class Fit(NamedTuple):
    """``name``: polynomial of ``degree`` in x near ``function`` between ``low`` and ``high``, rounded to ``bits``."""

    name: str
    function: F
    low: float | mp.mpf
    high: float | mp.mpf
    degree: int
    bits: int
    comment: str


def interpolant(function: F, low: mp.mpf, high: mp.mpf, degree: int) -> list[mp.mpf]:
    """Coefficients, lowest first, of the polynomial through Chebyshev's points of the interval."""
    low, high, n = mp.mpf(low), mp.mpf(high), degree + 1
    middle, half = (low + high) / 2, (high - low) / 2
    nodes = [mp.cos(mp.pi * (2 * k + 1) / (2 * n)) for k in range(n)]
    values = [function(middle + half * t) for t in nodes]
    chebyshev = [
        (1 if j == 0 else 2) * sum(v * mp.cos(j * mp.pi * (2 * k + 1) / (2 * n)) for k, v in enumerate(values)) / n
        for j in range(n)
    ]
    # Powers of t, by the recurrence T[j + 1] = 2 t T[j] - T[j - 1]; then of x, by expanding ((x - middle) / half) ** j.
    powers, before, now = [mp.mpf(0)] * n, [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]
    for j, c in enumerate(chebyshev):
        current = before if j == 0 else now
        for i, t in enumerate(current):
            powers[i] += c * t
        if j:
            following = [mp.mpf(0), *(2 * t for t in now)]
            for i, t in enumerate(before):
                following[i] -= t
            before, now = now, following
    result = [mp.mpf(0)]
    for c in reversed(powers):
        shifted = [mp.mpf(0)] * (len(result) + 1)
        for i, r in enumerate(result):
            shifted[i + 1] += r / half
            shifted[i] -= r * middle / half
        shifted[0] += c
        result = shifted
    return result[:n]


def rounded(number: mp.mpf, bits: int) -> float:
    """``number`` as the nearest float of 24 or 53 bits."""
    with mp.workprec(bits):
        return float(+number)


LN2 = mp.log(2)
ROOT = mp.sqrt(2)
LOG_LOW, LOG_HIGH = ROOT / 2 - 1, ROOT - 1


def exp_tail(x: mp.mpf) -> mp.mpf:
    return (mp.exp(x) - 1 - x) / x**2


def log_tail(x: mp.mpf) -> mp.mpf:
    return (mp.log1p(x) - x + x * x / 2) / x**3


def log_base_tail(base: mp.mpf) -> F:
    """(log1p(x) - x) / x**2 for a logarithm whose base has the natural logarithm ``base``."""
    return lambda x: (mp.log1p(x) / x - 1) / base / x


def log_square(z: mp.mpf) -> mp.mpf:
    """(atanh(s) - s) / s**3 with z = s * s."""
    s = mp.sqrt(z)
    return (mp.atanh(s) - s) / (s * z)


def odd(f: F) -> F:
    """(f(x) - x) / x**3 with z = x * x, for an odd f with slope 1."""

    def tail(z: mp.mpf) -> mp.mpf:
        x = mp.sqrt(z)
        return (f(x) - x) / (x * z)

    return tail


def cos_tail(z: mp.mpf) -> mp.mpf:
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def erf_ratio(z: mp.mpf) -> mp.mpf:
    x = mp.sqrt(z)
    return mp.erf(x) / x - 1


def erfcx_of(q: mp.mpf) -> mp.mpf:
    """exp(x * x) * erfc(x) * (1 + 2x) with q = (x - 4) / (x + 4)."""
    x = 4 * (1 + q) / (1 - q)
    return mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x)


QUARTER = (mp.pi / 4) ** 2 * mp.mpf("1.0002")
HALF_LN2 = LN2 / 2 * mp.mpf("1.0002")
FITS = (
    Fit("EXP32", exp_tail, -HALF_LN2, HALF_LN2, 5, 24, "(exp(x) - 1 - x) / x**2"),
    Fit("EXP64", exp_tail, -HALF_LN2, HALF_LN2, 10, 53, "the same"),
    Fit("EXP2_32", lambda x: (mp.mpf(2) ** x - 1) / x, -0.5001, 0.5001, 5, 24, "(2**x - 1) / x"),
    Fit("EXP2_64", lambda x: (mp.mpf(2) ** x - 1) / x, -0.5001, 0.5001, 11, 53, "the same"),
    Fit("EXP2_MEDIUM", lambda x: (mp.mpf(2) ** x - 1) / x, -0.5001, 0.5001, 6, 53, "the same, for float32 results"),
    Fit("LOG32", log_tail, LOG_LOW, LOG_HIGH, 8, 24, "(log1p(x) - x + x**2 / 2) / x**3"),
    Fit("LOG2_32", log_base_tail(LN2), LOG_LOW, LOG_HIGH, 8, 24, "(log2(1 + x) - x / ln 2) / x**2"),
    Fit("LOG10_32", log_base_tail(mp.log(10)), LOG_LOW, LOG_HIGH, 8, 24, "(log10(1 + x) - x / ln 10) / x**2"),
    Fit("LOG64", log_square, 0, mp.mpf("0.02950"), 7, 53, "(atanh(s) - s) / s**3 in s**2"),
    Fit("LOG_MEDIUM", log_square, 0, mp.mpf("0.02950"), 3, 53, "the same, for float32 results"),
    Fit("SIN32", odd(mp.sin), 0, QUARTER, 2, 24, "(sin(x) - x) / x**3 in x**2"),
    Fit("SIN64", odd(mp.sin), 0, QUARTER, 5, 53, "the same"),
    Fit("COS32", cos_tail, 0, QUARTER, 2, 24, "(cos(x) - 1 + x**2 / 2) / x**4 in x**2"),
    Fit("COS64", cos_tail, 0, QUARTER, 6, 53, "the same"),
    Fit("ASIN32", odd(mp.asin), 0, 0.3907, 6, 24, "(asin(x) - x) / x**3 in x**2"),
    Fit("ASIN64", odd(mp.asin), 0, 0.2501, 13, 53, "the same"),
    Fit("ATAN32", odd(mp.atan), 0, 1, 9, 24, "(atan(x) - x) / x**3 in x**2"),
    Fit("ATAN64", odd(mp.atan), 0, 1, 19, 53, "the same"),
    Fit("TANH32", odd(mp.tanh), 0, mp.mpf("0.303"), 4, 24, "(tanh(x) - x) / x**3 in x**2"),
    Fit("ERF32", erf_ratio, 0, 1, 7, 24, "erf(x) / x - 1 in x**2"),
    Fit("LOG_ERFC32", lambda x: mp.log(mp.erfc(x)), 1, 4, 8, 24, "log(erfc(x))"),
    Fit("EXP_SHORT", exp_tail, -LN2 / 32, LN2 / 32, 1, 24, "(exp(x) - 1 - x) / x**2 within ln 2 / 32"),
    Fit("TAN32", odd(mp.tan), 0, QUARTER, 6, 24, "(tan(x) - x) / x**3 in x**2"),
    Fit("SINH32", odd(mp.sinh), 0, 1, 3, 24, "(sinh(x) - x) / x**3 in x**2"),
    Fit("SINH64", odd(mp.sinh), 0, 1, 7, 53, "the same"),
    Fit("ATANH32", odd(mp.atanh), 0, 0.2501, 6, 24, "(atanh(x) - x) / x**3 in x**2"),
    Fit("ERF64", erf_ratio, 0, 1, 12, 53, "the same"),
    Fit("ERFCX64", erfcx_of, -1, mp.mpf(24) / 32, 22, 53, "exp(x * x) * erfc(x) * (1 + 2x) in (x - 4) / (x + 4)"),
    Fit("ERFCX_MEDIUM", erfcx_of, -1, mp.mpf(7) / 15, 12, 53, "the same, for float32 results"),
)  # fmt: skip


def safe(function: F) -> F:
    """Takes the limit at 0, where the quotients above are 0 / 0."""
    tiny = mp.mpf(10) ** -20
    return lambda x: function(tiny) if abs(x) < tiny else function(x)


def parts(number: mp.mpf, bits: int, count: int) -> list[float]:
    """``number`` as a sum of floats, each the nearest to what those before it leave."""
    result = []
    for _ in range(count):
        result.append(rounded(number, bits))
        number -= mp.mpf(result[-1])
    return result


def exp_table() -> list[list[float]]:
    """2**(j / 16) as float32, and what is missing to it."""
    return [list(row) for row in zip(*(parts(mp.mpf(2) ** (mp.mpf(j) / 16), 24, 2) for j in range(16)))]


def erf_table() -> list[list[float]]:
    """For each quarter i / 4 the coefficients in u of erf(i / 4 + u), one row a power; of erf(u) - u for i = 0."""
    eighth = mp.mpf(1) / 8
    columns = [[mp.mpf(0), *interpolant(safe(lambda u: mp.erf(u) / u - 1), 0, eighth, 4)]]
    # Lifted towards the end by half an ulp of float32, so that it reaches 1 where the table does.

    def last(u: mp.mpf) -> mp.mpf:
        return mp.erf(mp.mpf(15) / 4 + u) + mp.mpf("3.3e-8") * ((u + eighth) * 4) ** 4

    for i in range(1, 15):
        columns.append(interpolant(lambda u, i=i: mp.erf(mp.mpf(i) / 4 + u), -eighth, eighth, 5))  # type: ignore[misc]
    columns.append(interpolant(last, -eighth, eighth, 5))
    return [[rounded(column[power], 24) for column in columns] for power in range(6)]


# Columns of the tables by quarters of octaves: the low five bits of exponent and two bits of the mantissa. The column
# before an eighth stands for all that is below it.
BELOW, OCTAVES, COLUMNS = 15, range(-3, 4), 32


def quarters(function: F, below: list[mp.mpf], degree: int) -> list[list[mp.mpf]]:
    """For each quarter of an octave from 1/8 to 12 the coefficients of ``function(middle + u)``; ``below`` for less."""
    columns = [[mp.mpf(0)] * (degree + 1) for _ in range(COLUMNS)]
    columns[BELOW] = below
    for octave in OCTAVES:
        for quarter in range(4 if octave < 3 else 2):
            low = mp.mpf(2) ** octave * (4 + quarter) / 4
            half = mp.mpf(2) ** octave / 8
            at = (4 * (octave + 127) + quarter) % COLUMNS
            columns[at] = interpolant(lambda u, m=low + half: function(m + u), -half, half, degree)  # type: ignore[misc]
    return columns


def tanh_table() -> list[list[float]]:
    """Coefficients of tanh by powers of u; below an eighth of tanh(u) - u."""
    below = [mp.mpf(0), *interpolant(safe(lambda u: mp.tanh(u) / u - 1), mp.mpf(0), mp.mpf(1) / 8, 5)]
    columns = quarters(mp.tanh, below, 6)
    return [[rounded(column[power], 24) for column in columns] for power in range(7)]


def erfcx_table() -> list[list[float]]:
    """Coefficients of exp(x * x) * erfc(x) by powers of u."""

    def erfcx(x: mp.mpf) -> mp.mpf:
        return mp.exp(x * x) * mp.erfc(x)

    columns = quarters(erfcx, interpolant(erfcx, mp.mpf(0), mp.mpf(1) / 8, 7), 7)
    return [[rounded(column[power], 24) for column in columns] for power in range(8)]


TABLES = (
    ("EXP2_TABLE", exp_table, "2**(j / 16): the float32 number, and the rest"),
    ("ERF_TABLE", erf_table, "erf(i / 4 + u) by powers of u: one row a power, one column a quarter"),
    ("TANH_TABLE", tanh_table, "tanh by powers of u, one column a quarter of an octave"),
    ("ERFCX_TABLE", erfcx_table, "exp(x * x) * erfc(x) in the same way"),
)


SPLITS = (
    ("LN2", mp.log(2), 2),
    ("LOG2_E", 1 / mp.log(2), 2),
    ("LOG10_E", 1 / mp.log(10), 2),
    ("LOG10_2", mp.log10(2), 2),
    ("HALF_PI", mp.pi / 2, 3),
)


def error(fit: Fit, coefficients: list[float]) -> float:
    """The largest relative error against the function, at points between the nodes."""
    low, high = mp.mpf(fit.low), mp.mpf(fit.high)
    worst = mp.mpf(0)
    for k in range(200):
        x = low + (high - low) * (mp.mpf(2 * k + 1) / 400)
        if abs(x) < mp.mpf(10) ** -12:
            continue
        want = fit.function(x)
        worst = max(worst, abs(mp.polyval([mp.mpf(c) for c in reversed(coefficients)], x) / want - 1))
    return float(worst)


def main(arguments: list[str]) -> None:
    lines = [
        '"""Polynomials of the vector functions, lowest power first. Made by ci/fit_polynomials.py; do not edit."""',
        "",
    ]
    for fit in FITS:
        coefficients = [rounded(c, fit.bits) for c in interpolant(safe(fit.function), fit.low, fit.high, fit.degree)]
        if "--errors" in arguments:
            print(f"{fit.name:14} degree {fit.degree:2}  {error(fit, coefficients):.1e}")
        lines += [f"# {fit.comment}", f"{fit.name} = (", *(f"    {c!r}," for c in coefficients), ")", ""]
    for name, make, comment in TABLES:
        lines += [f"# {comment}", f"{name} = ("]
        for row in make():
            lines += ["    (", *(f"        {entry!r}," for entry in row), "    ),"]
        lines += [")", ""]
    for name, number, count in SPLITS:
        for bits, suffix in ((24, "32"), (53, "64")):
            lines += [f"{name}_{suffix} = {tuple(parts(number, bits, count))!r}"]
    lines.append("")
    if "--errors" not in arguments:
        target = Path(__file__).resolve().parent.parent / "gpujit" / "kernels" / "math_coefficients.py"
        target.write_text("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
