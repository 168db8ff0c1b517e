"""Numbers as people read them."""

from __future__ import annotations

import pytest

from gpujit.support.units import bytes_text, flops_text, rate_text, time_text


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.0, "0 s"), (3.0, "3.00 s"), (123.4, "123 s"), (0.0123, "12.3 ms"), (1.5e-6, "1.50 µs"), (2e-9, "2.00 ns"),
        (0.9999e-3, "1.00 ms"), (4e-10, "0.40 ns"), (-2e-3, "-2.00 ms"), (9.999e-6, "10.0 µs"),
    ],
)  # fmt: skip
def test_times_have_three_digits_and_a_unit_that_fits(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


@pytest.mark.parametrize(
    "amount, text",
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (12_345, "12.3 kB"), (999_999, "1.00 MB"), (5e18, "5000 PB")],
)
def test_sizes_go_in_powers_of_1000(amount: float, text: str) -> None:
    assert bytes_text(amount) == text


def test_rates_and_operations() -> None:
    assert rate_text(4.5e10) == "45.0 GFLOP/s"
    assert flops_text(1_000_000) == "1.00 MFLOP"
