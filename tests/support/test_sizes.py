"""Numbers of bytes for people."""

from __future__ import annotations

from gpujit.support.sizes import size_text


def test_sizes_have_the_unit_that_fits() -> None:
    given = (0, 999, 1000, 1_234_567, 5 * 10**12, 1.5e3)
    assert [size_text(n) for n in given] == ["0 B", "999 B", "1.0 kB", "1.2 MB", "5000.0 GB", "1.5 kB"]
