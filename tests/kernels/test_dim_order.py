"""Programs over dims in the order of memory compute what they did, and are those of contiguous arrays."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpujit.kernels.dim_order import in_memory_order
from gpujit.kernels.index import dim, index, size
from gpujit.kernels.reference import run
from gpujit.kernels.tile import Bound, NotRendered
from gpujit.kernels.tile_build import Builder
from gpujit.support.errors import GpujitError
from tests.kernels.programs import Case
from tests.kernels.random_programs import assert_close, cases

F32 = np.dtype(np.float32)


def elements(arrays: Sequence[np.ndarray]) -> list[tuple[int, ...]]:
    return [tuple(s // x.itemsize for s in x.strides) for x in arrays]


def lying(x: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """A copy of an array whose dims lie in memory in this order."""
    return np.copy(x.transpose(order), order="C").transpose(np.argsort(order))


def as_strided(arrays: Sequence[np.ndarray], strides: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Arrays with their dims in the order of other strides (in elements), which are theirs in another order."""
    found = []
    for x, wanted in zip(arrays, strides, strict=True):
        left = list(range(x.ndim))
        order = []
        for s in wanted:
            k = next(k for k in left if x.strides[k] // x.itemsize == s)
            left.remove(k)
            order.append(k)
        found.append(x.transpose(order))
    return found


def copy_program(sizes: Sequence[int], place: Sequence[int]) -> Case:
    """A copy of an array whose dim ``place[k]`` is dim k of the result."""
    x = np.arange(np.prod(sizes), dtype=F32).reshape([sizes[place.index(k)] for k in range(len(sizes))])
    build = Builder(len(sizes))
    at = [dim(d) for d in range(len(sizes))]
    read = build.load(build.input(F32, len(sizes)), [at[list(place).index(k)] for k in range(len(sizes))])
    build.store(build.output(F32, len(sizes)), at, read)
    out = np.empty_like(x).transpose(place)
    return Case(build.finish(), [x], [out], tuple(sizes))


@pytest.mark.parametrize(
    ("sizes", "place"),
    [((4, 3), (1, 0)), ((2, 5, 3), (0, 2, 1)), ((2, 5, 3), (2, 0, 1)), ((2, 3, 4, 5), (0, 3, 1, 2))],
)
def test_a_permuted_call_is_the_contiguous_one(sizes: tuple[int, ...], place: tuple[int, ...]) -> None:
    case = copy_program(sizes, place)
    program, ins, outs, lengths = in_memory_order(
        case.program, elements(case.inputs), elements(case.outputs), case.sizes, ()
    )
    plain = copy_program(lengths, range(len(sizes)))
    assert program.text == plain.program.text
    assert (list(ins), list(outs)) == (elements(plain.inputs), elements(plain.outputs))
    run(program, as_strided(case.inputs, ins), as_strided(case.outputs, outs), lengths)
    np.testing.assert_array_equal(case.outputs[0], case.inputs[0].transpose(place))


def test_results_in_the_order_of_their_dims_change_nothing() -> None:
    x = np.zeros((3, 4, 5), F32)
    program = copy_program(x.shape, (0, 1, 2)).program
    # Dims of size 1, and inputs in other orders, are no reason.
    for strides, sizes in (((20, 5, 1), (3, 4, 5)), ((20, 20, 1), (3, 1, 5)), ((4, 1, 1), (3, 4, 1))):
        found = in_memory_order(program, [(1, 3, 12)], [strides], sizes, ())
        assert found[0] is program and found[3] == sizes


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_positions_bounds_and_sizes_are_renamed(order: tuple[int, ...]) -> None:
    build = Builder(2)
    inside = build.inside(Bound(index(2), dim(0) + dim(1), size(0) * 2))
    x = build.load(build.input(F32, 2), [size(0) - dim(0) - 1, dim(1)], inside)
    build.store(build.output(F32, 2), [dim(0), dim(1)], x)
    build.store(build.output(np.dtype(np.int64), 2), [dim(0), dim(1)], build.position(dim(0) * size(1) + dim(1)))
    program, sizes = build.finish(), (3, 7)
    source = np.random.default_rng(0).standard_normal(sizes, F32)
    wanted = [np.empty(sizes, F32), np.empty(sizes, np.int64)]
    run(program, [source], wanted, sizes)
    got = [lying(np.zeros_like(w), order) for w in wanted]
    changed, ins, outs, lengths = in_memory_order(program, elements([source]), elements(got), sizes, ())
    assert (changed is program) == (order == (0, 1))
    run(changed, as_strided([source], ins), as_strided(got, outs), lengths)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=100)
@given(cases(), st.randoms(use_true_random=False))
def test_random_programs_with_results_in_any_order(case: Case, random: Random) -> None:
    cpu_launch = pytest.importorskip("gpujit.kernels.cpu_launch")
    want, got = case.fresh(), case.fresh()
    orders = [random.sample(range(o.ndim), o.ndim) for o in got.outputs]
    got.outputs = [lying(o, order) for o, order in zip(got.outputs, orders, strict=True)]
    try:
        run(case.program, want.inputs, want.outputs, case.sizes, case.params)
        cpu_launch.run(case.program, got.inputs, got.outputs, case.sizes, case.params)
    except (GpujitError, NotRendered):
        assume(False)
    assert_close(got.outputs, want.outputs, case.program.text)
