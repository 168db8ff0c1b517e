"""The native entry: what it takes for the planned array, and what it leaves to Python."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from gpujit.static_runtime import enter

pytestmark = pytest.mark.skipif(not enter.READS_ARRAYS, reason="array objects are laid out otherwise here")

calls: list[tuple[int, ...]] = []


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
def run(*given: int) -> None:
    calls.append(given)


def entered(planned: np.ndarray, *given: object) -> tuple[int, list[int]]:
    """The answer for given objects in place of arrays laid out as ``planned``, and the block words after it."""
    block = (ctypes.c_int64 * 4)()
    words = [(ctypes.addressof(block) + 8 * k, 8 * k) for k in range(2)]
    layout = (planned.shape, planned.strides, planned.dtype, words)
    where = ctypes.cast(run, ctypes.c_void_p).value or 0
    job = enter.Job(where, 11, 22, 33, 44, [layout] * len(given))
    for k, x in enumerate(given):
        job.objects[enter.OBJECTS + k] = id(x)
    return enter.enter()(job.address), list(block)


def address(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])


BASE = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
WIDE = np.broadcast_to(BASE[:1], (3, 4, 5))


@pytest.mark.parametrize(
    "x",
    [BASE, BASE[::2, ::-1, 1:], BASE.T, np.array(3, np.float32), BASE[:0], WIDE],
)
def test_arrays_that_lie_as_planned(x: np.ndarray) -> None:
    calls.clear()
    other = np.lib.stride_tricks.as_strided(x, x.shape, x.strides)
    assert entered(x, x, other) == (0, [address(x), address(x) + 8, 0, 0])
    assert calls == [(11, 22, 33, 44)]


def test_no_arrays_at_all() -> None:
    calls.clear()
    assert entered(BASE)[0] == 0
    assert len(calls) == 1


@pytest.mark.parametrize(
    "x",
    [
        BASE[:2], BASE[..., None], BASE[0], BASE.astype(np.float64), BASE.view(np.int32), BASE.astype(">f4"),
        BASE[::-1],
        BASE.transpose(1, 0, 2), WIDE, BASE.view(np.recarray), None, [BASE], 3,
    ],
    ids=lambda x: type(x).__name__,
)  # fmt: skip
def test_everything_else_is_left_to_python(x: object) -> None:
    calls.clear()
    assert entered(BASE, BASE, x)[0] == 2
    assert entered(BASE, x, BASE)[0] == 1
    assert not calls


def test_strides_of_single_elements_do_not_matter() -> None:
    x = np.zeros((4, 1, 3), np.float32)
    y = np.lib.stride_tricks.as_strided(x, x.shape, (12, 400, 4))
    assert x.strides != y.strides and entered(x, y)[0] == 0
