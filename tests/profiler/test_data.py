"""Profiles as data: through JSON and back, and what is computed of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpujit.profiler.data import Ratio, Times, profile_from_json
from gpujit.profiler.plain import as_plain
from gpujit.support.errors import ArgumentError
from tests.profiler.samples import HOSTILE, profile, step


def test_a_profile_survives_json() -> None:
    made = profile(HOSTILE)
    text = json.dumps(made.as_json(), allow_nan=False)
    assert profile_from_json(text) == made == profile_from_json(made.as_json())


def test_what_is_computed_is_in_the_json_too() -> None:
    found = profile().as_json()
    first = found["steps"][0]
    assert first["bandwidth"] == pytest.approx(8192 / 6e-5) and first["rate"] == pytest.approx(1000 / 6e-5)
    assert found["total"] == pytest.approx(1e-4) and found["inputs"][0]["text"] == "float32[4, 8]"
    assert found["format"] == "gpujit-profile"


def without(data: dict[str, Any], *path: Any) -> dict[str, Any]:
    at: Any = data
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("[", "this is not"),
        ("[]", "lacks the format"),
        ({**profile().as_json(), "version": 99}, "version 99"),
        (without(profile().as_json(), "steps"), "steps is missing"),
        (without(profile().as_json(), "steps", 1, "tier"), r"profile.steps\[1\]: tier is missing"),
        ({**profile().as_json(), "groups": 3}, "profile.groups: expected a list, found int"),
        ({**profile().as_json(), "steady": [1]}, "profile.steady: expected an object, found list"),
        ({**profile().as_json(), "file": True}, "profile.file: expected str, found bool"),
        ("[" * 100_000, "this is not"),
    ],
)
def test_what_is_no_profile_is_refused_with_the_place(data: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        profile_from_json(data)


def test_times() -> None:
    times = Times.of([3.0, 1.0, 2.0, 4.0, 100.0])
    assert (times.median, times.low, times.high, times.least, times.runs) == (3.0, 2.0, 4.0, 1.0, 5)
    assert times.spread == pytest.approx(1 / 3)
    assert Times.of([2.0]) == Times(2.0, 2.0, 2.0, 2.0, 1)
    with pytest.raises(ArgumentError, match="no runs"):
        Times.of([])


def test_ratios_are_taken_round_by_round() -> None:
    # The machine was slow in the second round, for both sides.
    found = Ratio.of([2.0, 200.0, 2.0], [1.0, 100.0, 1.0])
    assert (found.median, found.low, found.high, found.rounds) == (2.0, 2.0, 2.0, 3)
    assert Ratio.of([0.0], [0.0]).median == 1.0


def test_unknown_amounts_have_no_rates() -> None:
    bare = step(0, "x", 1e-6, bytes_read=None, flops=None)
    assert (bare.bytes_moved, bare.bandwidth, bare.rate, bare.intensity) == (None, None, None, None)
    assert step(0, "x", 0.0).bandwidth is None


def test_groups_and_kernels_are_found_by_number_and_key() -> None:
    made = profile()
    assert made.group(0) is made.groups[0] and made.kernel("k0") is made.kernels[0] and made.kernel("?") is None
    with pytest.raises(ArgumentError, match="no group 7 among 1"):
        made.group(7)


def test_plain_is_plain() -> None:
    assert as_plain(((1, None), "a")) == [[1, None], "a"]
