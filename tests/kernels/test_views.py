"""Index maps of views against NumPy's views."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpujit.ir import scalar
from gpujit.kernels import views
from gpujit.kernels.index import Index, dim, index, size
from gpujit.kernels.reference import run
from gpujit.kernels.tile_build import Builder

Coords = tuple[Index, ...]


def through(x: np.ndarray, shape: Sequence[int], place: Callable[[Coords], Coords]) -> tuple[np.ndarray, str]:
    """The view of ``x`` that a map describes, and the text of the load."""
    builder = Builder(len(shape))
    at = tuple(dim(d) for d in range(len(shape)))
    y = builder.load(builder.input(x.dtype, x.ndim), place(at))
    builder.store(builder.output(x.dtype, len(shape)), at, y)
    out = np.full(shape, -1, x.dtype)
    program = builder.finish()
    run(program, [x], [out], shape)
    return out, next(line for line in program.text.splitlines() if "load" in line).split("load ")[1]


X = np.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("want", "place", "text"),
    [
        (X.transpose(2, 0, 1), lambda c: views.permute(c, (2, 0, 1)), "a0[d1, d2, d0]"),
        (X[:, 1:, ::2], lambda c: views.slice_(views.slice_(c, 1, 1), 2, 0, 2), "a0[d0, d1 + 1, d2*2]"),
        (X[1], lambda c: views.select(c, 0, 1), "a0[1, d0, d1]"),
        (X[:, None], lambda c: views.unsqueeze(c, 1), "a0[d0, d2, d3]"),
        (X[::-1, :, ::-1], lambda c: views.flip(c, (0, 2), (2, 4)), "a0[-d0 + 1, d1, -d2 + 3]"),
        (np.roll(X, 1, 2), lambda c: views.roll(c, 2, 3, 4), "a0[d0, d1, mod(d2 + 3, 4)]"),
        (
            X.reshape(6, 4),
            lambda c: views.reshape(c, (6, 4), (2, 3, 4), (6, 4), (2, 3, 4)),
            "a0[div(d0, 3), mod(d0, 3), d1]",
        ),
        (
            X.reshape(2, 12),
            lambda c: views.reshape(c, (2, 12), (2, 3, 4), (size(0), size(1)), (2, 3, 4)),
            "a0[d0, div(d1, 4), mod(d1, 4)]",
        ),
    ],
)  # fmt: skip
def test_views(want: np.ndarray, place: Callable[[Coords], Coords], text: str) -> None:
    got, shown = through(X, want.shape, place)
    np.testing.assert_array_equal(got, want)
    assert shown == text


def test_dims_of_size_one() -> None:
    x = np.arange(3).reshape(1, 3, 1)
    np.testing.assert_array_equal(through(x, (2, 3, 4), lambda c: views.expand(c, (True, False, True)))[0],
                                  np.broadcast_to(x, (2, 3, 4)))  # fmt: skip
    np.testing.assert_array_equal(through(x, (3,), lambda c: views.squeeze(c, (0, 2)))[0], x[0, :, 0])
    got, text = through(x, (3, 1), lambda c: views.reshape(c, (3, 1), (1, 3, 1), (size(0), 1), (1, size(0), 1)))
    np.testing.assert_array_equal(got, x.reshape(3, 1))
    assert text == "a0[0, d0, 0]"


def shapes_of(count: int) -> st.SearchStrategy[list[int]]:
    """Shapes with that many elements."""

    @st.composite
    def build(draw: st.DrawFn) -> list[int]:
        left, found = count, []
        while left > 1:
            n = draw(st.sampled_from([k for k in range(2, left + 1) if left % k == 0]))
            found.append(n)
            left //= n
        for _ in range(draw(st.integers(0, 2))):
            found.insert(draw(st.integers(0, len(found))), 1)
        return found

    return build()


@given(st.sampled_from([1, 6, 24, 36, 0]).flatmap(lambda n: st.tuples(shapes_of(n), shapes_of(n))))
def test_reshapes(shapes: tuple[list[int], list[int]]) -> None:
    operand, result = shapes
    x = np.arange(math.prod(operand)).reshape(operand)
    got, _ = through(x, result, lambda c: views.reshape(c, result, operand, result, operand))
    np.testing.assert_array_equal(got, x.reshape(result))
    # With sizes that are only known at run time.
    sizes = [size(d) for d in range(len(result))]
    got, text = through(x, result, lambda c: views.reshape(c, result, operand, sizes, operand))
    np.testing.assert_array_equal(got, x.reshape(result))
    if operand == result:
        assert text == f"a0[{', '.join(f'd{d}' if n != 1 else '0' for d, n in enumerate(result))}]"


def test_empty_reshapes() -> None:
    for operand, result in (([2, 0, 3], [0, 5]), ([0], [3, 0, 2]), ([0, 4], [0])):
        got, _ = through(np.zeros(operand), result, lambda c, o=operand, r=result: views.reshape(c, r, o, r, o))
        assert got.shape == tuple(result)


def test_a_reshape_and_back_is_no_map() -> None:
    there = views.reshape(
        (dim(0), dim(1), dim(2)), (2, 3, 4), (6, 4), (size(0), size(1), size(2)), (size(0) * size(1), size(2))
    )
    back = views.reshape(there, (6, 4), (2, 3, 4), (size(0) * size(1), size(2)), (size(0), size(1), size(2)))
    assert back == (dim(0), dim(1), dim(2))


def test_pad_cat_and_stack() -> None:
    a, b = np.arange(6).reshape(2, 3), np.arange(4).reshape(2, 2) + 10

    def parts(
        shape: Sequence[int], of: Callable[[Coords], list[views.Place]], arrays: Sequence[np.ndarray]
    ) -> np.ndarray:
        builder = Builder(len(shape))
        at = tuple(dim(d) for d in range(len(shape)))
        y = scalar.const(-5, a.dtype)
        for x, (coords, bounds) in zip(arrays, of(at), strict=True):
            mask = builder.inside(*bounds)
            y = scalar.where(mask, builder.load(builder.input(x.dtype, x.ndim), coords, mask), y)
        builder.store(builder.output(a.dtype, len(shape)), at, y)
        out = np.zeros(shape, a.dtype)
        run(builder.finish(), list(arrays), [out], shape)
        return out

    got = parts((2, 5), lambda c: views.cat(c, 1, (3, 2)), (a, b))
    np.testing.assert_array_equal(got, np.concatenate((a, b), 1))
    got = parts((2, 2, 3), lambda c: views.stack(c, 1, 2), (a, a + 1))
    np.testing.assert_array_equal(got, np.stack((a, a + 1), 1))
    got = parts((4, 4), lambda c: [views.pad(c, [(0, 1, 2), (1, index(0), 3)])], (a,))
    np.testing.assert_array_equal(got, np.pad(a, ((1, 1), (0, 1)), constant_values=-5))
