"""The planner as a pure function: no overlap, never below the bound, the same plan each time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.static_runtime.plan import Lifetime, live_bytes, overlaps, plan_arena


@st.composite
def lifetimes(draw: st.DrawFn) -> list[Lifetime]:
    found = []
    for _ in range(draw(st.integers(0, 40))):
        first = draw(st.integers(0, 30))
        last = first + draw(st.integers(0, 12))
        found.append(Lifetime(first, last, draw(st.one_of(st.integers(0, 5000), st.sampled_from([0, 64, 4096])))))
    return found


def by_looking_at_all_pairs(given: list[Lifetime], offsets: tuple[int, ...]) -> bool:
    for i, a in enumerate(given):
        for k, b in enumerate(given[:i]):
            together = a.first <= b.last and b.first <= a.last
            shared = offsets[i] < offsets[k] + b.size and offsets[k] < offsets[i] + a.size and a.size and b.size
            if together and shared:
                return True
    return False


@given(lifetimes(), st.sampled_from([1, 64, 256]))
@settings(max_examples=60)
def test_values_alive_together_never_overlap(found: list[Lifetime], align: int) -> None:
    plan = plan_arena(found, align)
    assert not by_looking_at_all_pairs(found, plan.offsets)
    assert overlaps(found, plan.offsets) is None
    assert all(o % align == 0 and o >= 0 for o in plan.offsets)
    assert plan.size >= max((o + t.size for o, t in zip(plan.offsets, found, strict=True)), default=0)
    assert plan.size >= plan.bound >= live_bytes(found)
    assert plan_arena(found, align) == plan


@given(lifetimes(), st.data())
def test_the_check_sees_what_all_pairs_see(found: list[Lifetime], data: st.DataObject) -> None:
    offsets = tuple(data.draw(st.integers(0, 60)) * 64 for _ in found)
    assert (overlaps(found, offsets) is not None) == by_looking_at_all_pairs(found, offsets)


def test_a_chain_needs_two_buffers() -> None:
    plan = plan_arena([Lifetime(i, i + 1, 1000) for i in range(50)])
    assert plan.size == plan.bound == 2 * 1024


def test_a_large_value_takes_the_room_of_small_ones() -> None:
    plan = plan_arena([Lifetime(0, 1, 640), Lifetime(0, 1, 640), Lifetime(2, 3, 1280)])
    assert plan.size == 1280


def test_values_of_no_bytes_take_no_room() -> None:
    assert plan_arena([Lifetime(0, 5, 0), Lifetime(0, 5, 64)]).size == 64
    assert plan_arena([]).size == 0


def test_what_is_no_lifetime_is_refused() -> None:
    with pytest.raises(ValueError, match="from step 3 to 2"):
        plan_arena([Lifetime(3, 2, 8)])
    with pytest.raises(ValueError, match="-1 bytes"):
        plan_arena([Lifetime(0, 2, -1)])
