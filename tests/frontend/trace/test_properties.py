"""Properties: dtypes of results for all pairs of dtypes, subscripts of all kinds, other sizes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpujit
from gpujit.frontend.trace.check import difference
from gpujit.support.errors import TraceError

DTYPES = [
    np.dtype(n)
    for n in (
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint16",
        "uint32",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    )
]
BINARY = ("add", "multiply", "subtract", "divide", "maximum", "less", "equal", "power", "arctan2", "hypot")
UNARY = ("negative", "absolute", "sqrt", "exp", "square", "floor", "sign", "isnan", "logical_not", "tanh")
NUMBERS = (True, 3, -2, 2.5, 1 + 2j, np.float32(0.5), np.float64(1.5), np.int8(3), np.uint8(200), np.float16(0.25))


def sample(dtype, shape=(2, 3), seed=0):
    r = np.random.default_rng(seed)
    if dtype.kind == "b":
        return r.random(shape) < 0.5
    if dtype.kind in "iu":
        return r.integers(1, 5, size=shape).astype(dtype)
    values = r.uniform(0.5, 2.0, size=shape)
    return (values + 1j * r.uniform(0.5, 2.0, size=shape)).astype(dtype) if dtype.kind == "c" else values.astype(dtype)


def compare(function, *inputs):
    """The trace and NumPy agree, or NumPy refuses the inputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = function(*inputs)
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            with pytest.raises(type(error)):
                gpujit.trace(function, inputs, check_trace=False)
            return
        if not hasattr(expected, "dtype") or expected.dtype not in DTYPES:
            return
        try:
            traced = gpujit.trace(function, inputs, check_trace=False)
        except TraceError as error:
            # NumPy orders complex numbers, PyTorch does not.
            assert "complex" in error.message
            return
        tolerance = 1e-2 if any(np.asarray(v).dtype.itemsize <= 2 for v in (*inputs, expected)) else 1e-5
        assert not difference(traced(*inputs), expected, tolerance)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("a", DTYPES, ids=str)
def test_pairs_of_dtypes_promote_as_in_numpy(name, a):
    function = getattr(np, name)
    for b in DTYPES:
        compare(function, sample(a), sample(b, seed=1))
        # NumPy's 0-dim arrays count as much as any other.
        compare(function, sample(a), sample(b, (), 2))
        compare(function, sample(a, ()), sample(b, seed=3))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_numbers_promote_as_in_numpy(name, number):
    function = getattr(np, name)
    for a in DTYPES:
        compare(lambda x: function(x, number), sample(a))
        compare(lambda x: function(number, x), sample(a))


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_of_all_dtypes(name):
    for a in DTYPES:
        compare(getattr(np, name), sample(a))


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "var", "cumsum", "any", "argmax", "median", "ptp"])
def test_reductions_of_all_dtypes(name):
    for a in DTYPES:
        compare(getattr(np, name), sample(a))
        compare(lambda x: getattr(np, name)(x, axis=1), sample(a))


def test_casts_between_all_dtypes():
    for a in DTYPES:
        for b in DTYPES:
            compare(lambda x, b=b: x.astype(b), sample(a))
            compare(lambda x, b=b: _assigned(x, b), sample(a))


def _assigned(x, dtype):
    y = np.zeros(x.shape, dtype=dtype)
    y[...] = x
    return y


def test_in_place_operators_of_all_pairs():
    for a in DTYPES:
        for b in DTYPES:
            compare(_added, sample(a), sample(b, seed=1))


def _added(x, y):
    z = x.copy()
    z += y
    return z


# ----------------------------------------------------------------------------------------------------- subscripts

SHAPE = (4, 5, 3)
bounds = st.none() | st.integers(-7, 7)
slices = st.builds(slice, bounds, bounds, st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3]))


@st.composite
def subscripts(draw, arrays=True):
    """A subscript of an array of SHAPE, which NumPy may refuse."""
    items = []
    count = draw(st.integers(0, 3))
    lists = draw(st.integers(1, 3))
    for d in range(count):
        kinds = ["slice", "int", "full"] + (["list", "list"] if arrays else [])
        kind = draw(st.sampled_from(kinds))
        if kind == "slice":
            items.append(draw(slices))
        elif kind == "int":
            items.append(draw(st.integers(-SHAPE[d], SHAPE[d] - 1)))
        elif kind == "full":
            items.append(slice(None))
        else:
            items.append(draw(st.lists(st.integers(-SHAPE[d], SHAPE[d] - 1), min_size=lists, max_size=lists)))
    for _ in range(draw(st.integers(0, 2))):
        items.insert(draw(st.integers(0, len(items))), None)
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), Ellipsis)
    return tuple(items)


@settings(max_examples=250, deadline=None)
@given(subscripts())
def test_reading_by_any_subscript(key):
    compare(lambda x: x[key] * 1, np.arange(60.0).reshape(SHAPE))


@settings(max_examples=150, deadline=None)
@given(subscripts())
def test_writing_by_any_subscript(key):
    def function(x):
        y = x.copy()
        y[key] = -1.0
        z = x.copy()
        z[key] = x[key] * 2 + 1
        return y + z

    # Where one place is named twice, NumPy writes the last; here both values are the same.
    compare(function, np.arange(60.0).reshape(SHAPE))


@settings(max_examples=80, deadline=None)
@given(subscripts(arrays=False), subscripts(arrays=False))
def test_views_of_views_are_written_through(first, second):
    def function(x):
        y = x.copy()
        view = y[first]
        if view.ndim:
            view[...] = view * 2
        try:
            inner = view[second]
        except IndexError:
            return y
        if inner.ndim:
            inner[...] = -3.0
        return y

    steps = [i.step for i in (*first, *second) if isinstance(i, slice) and i.step is not None]
    if any(s < 0 for s in steps):
        # A view that runs backwards is a copy in the graph, and says so when it is written.
        return
    compare(function, np.arange(60.0).reshape(SHAPE))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**12 - 1), st.booleans())
def test_masks(bits, inverted):
    mask = np.array([(bits >> i) & 1 for i in range(12)], dtype=bool).reshape(3, 4)

    def function(x, m):
        m = ~m if inverted else m
        y = x.copy()
        y[m] = x[m] * 2
        y[m] += 1
        return np.append(y, x[m])

    compare(function, np.arange(12.0).reshape(3, 4), mask)


@settings(max_examples=40, deadline=None)
@given(bounds, bounds, st.sampled_from([-2, -1, 1, 2]), st.integers(2, 9))
def test_slices_of_other_sizes(start, stop, step, size):
    """A slice that is traced for one size is that slice for all others."""

    def function(x):
        return x[start:stop:step] * 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = gpujit.trace(function, (np.arange(5.0),), check_trace=False)
    assert np.array_equal(traced(np.arange(float(size))), function(np.arange(float(size))))


VIEWS = {
    "transpose": lambda x: x.T,
    "swap": lambda x: np.swapaxes(x, 0, -1),
    "move": lambda x: np.moveaxis(x, 0, -1),
    "row": lambda x: x[1:],
    "even": lambda x: x[..., ::2],
    "last": lambda x: x[-1] if x.ndim > 1 else x,
    "new": lambda x: x[:, None],
    "expand": lambda x: np.expand_dims(x, 0),
    "squeeze": lambda x: x[None].squeeze(0),
    "flat": np.ravel,
    "reshape": lambda x: x.reshape(-1, 2) if x.size % 2 == 0 else x,
    "diagonal": lambda x: np.linalg.diagonal(x[:, :, None]) if x.ndim == 2 else x,
    "rest": lambda x: np.split(x, [1])[1],
    "copy": np.copy,
    "double": lambda x: x * 2,
    "same": lambda x: np.asarray(x),
    "cast": lambda x: x.astype(np.float64, copy=False),
    "at least": np.atleast_2d,
}


def _scale(x):
    x *= 3


def _replace(x):
    x[...] = x + 1


def _first(x):
    x[:1] = -1


WRITES = {"scale": _scale, "replace": _replace, "fill": lambda x: x.fill(2.0), "first": _first}


@settings(max_examples=250, deadline=None)
@given(st.lists(st.sampled_from([*VIEWS, *WRITES]), min_size=1, max_size=8))
def test_programs_of_views_and_writes(steps):
    """Whatever is a view in NumPy shows in the trace what is written to what it is a view of, and the other way."""

    def function(x):
        base = x + 0
        seen = [base]
        for step in steps:
            if step in VIEWS:
                seen.append(VIEWS[step](seen[-1]))
            elif seen[-1].flags.writeable if isinstance(seen[-1], np.ndarray) else True:
                WRITES[step](seen[-1])
        return tuple(seen)

    inputs = (np.arange(24.0).reshape(2, 3, 4),)
    try:
        expected = function(*inputs)
    except (ValueError, IndexError):
        return
    if not all(v.flags.writeable for v in expected):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = gpujit.trace(function, inputs, check_trace=False)
    if not traced.trace_report.of_kind("view"):
        assert not difference(traced(*inputs), expected, 1e-12)
