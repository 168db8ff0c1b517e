"""Functions over gpujit.ops and tensor methods, writes, inputs and results of all forms, and sizes."""

from __future__ import annotations

import math
import threading
import warnings

import ml_dtypes
import numpy as np
import pytest

import gpujit
from gpujit import ops
from gpujit.frontend.trace.check import difference
from gpujit.ir.verify import verify
from gpujit.support.errors import ArgumentError, TraceCheckError, TraceError, TracerWarning

R = np.random.default_rng(0)
X = R.normal(size=(3, 4))
Y = R.normal(size=(5, 7))


def traced_quietly(function, inputs, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TracerWarning)
        traced = gpujit.trace(function, inputs, **options)
    verify(traced.graph)
    return traced


def kinds(traced):
    return [n.kind for n in traced.graph.nodes]


# -------------------------------------------------------------------------------------------------- gpujit.ops


def test_operators_and_factories_are_recorded():
    def function(x):
        mask = ops.ones([x.size(0), x.size(1)], dtype="bool")
        return ops.softmax(ops.where(mask, x, ops.zeros_like(x)), -1) + ops.arange(x.shape[1])

    traced = gpujit.trace(function, (X.astype(np.float32),))
    assert {"aten::ones", "aten::zeros_like", "aten::arange", "aten::softmax"} <= set(kinds(traced))
    given = Y.astype(np.float32)
    e = np.exp(given - given.max(-1, keepdims=True))
    assert np.allclose(traced(given), e / e.sum(-1, keepdims=True) + np.arange(7), atol=1e-6)


def test_methods_named_as_in_pytorch():
    def function(x):
        y = x.unsqueeze(0).permute(0, 2, 1).contiguous()
        y = y.view(1, -1, x.size(0)).sigmoid().clamp(0.1, 0.9)
        rank = y.flatten(1).dim()
        assert isinstance(rank, int)
        return y.softmax(dim=-1).sum(dim=1, keepdim=True), x.numel(), x.shape[0] + rank

    traced = traced_quietly(function, (X,))
    found, count, rank = traced(Y)
    s = np.clip(1 / (1 + np.exp(-Y.T)), 0.1, 0.9)
    e = np.exp(s)
    assert np.allclose(found, (e / e.sum(-1, keepdims=True)).sum(0)[None, None])
    assert (count, rank) == (35, 7)


def test_numpys_meaning_comes_first_and_dim_selects_pytorchs():
    def function(x):
        return x.max(axis=1), x.max(dim=1), x.std(), x.std(dim=0), x.transpose(1, 0), x.repeat(2)

    traced = traced_quietly(function, (X,))
    a, (values, places), s, std, t, r = traced(Y)
    assert np.array_equal(a, Y.max(1))
    assert np.array_equal(values, Y.max(1))
    assert np.array_equal(places, Y.argmax(1))
    assert np.isclose(s, Y.std())
    assert np.allclose(std, Y.std(axis=0, ddof=1))
    assert np.array_equal(t, Y.T)
    assert np.array_equal(r, np.repeat(Y, 2))


def test_random_operators_stay_operators():
    def function(x):
        return ops.dropout(x, 0.5, True) + ops.rand_like(x)

    with pytest.warns(TracerWarning, match="random numbers"):
        traced = gpujit.trace(function, (X,))
    assert {"aten::dropout", "aten::rand_like"} <= set(kinds(traced))
    assert not np.array_equal(traced(X), traced(X))


def test_in_place_operators_and_views():
    def function(x):
        y = ops.clone(x)
        ops.relu_(y)
        row = ops.select(y, 0, 0)
        ops.add_(row, 1.0)
        return y

    traced = gpujit.trace(function, (X,))
    expected = np.maximum(Y, 0)
    expected[0] += 1
    assert np.array_equal(traced(Y), expected)


# ------------------------------------------------------------------------------------------------------- writes


def slices(x):
    y = x * 1
    y[1:, ::2] = 7
    y[0] += x[1]
    view = y.T
    view[0] = -1
    return y


def columns(x):
    out = np.zeros((x.shape[1], x.shape[0]))
    for i in range(2):
        out[i] = x[:, i] * i
    out[-1, :] = x.sum(axis=1)
    return out


def masks(x):
    y = np.copy(x)
    y[y < 0] = 0
    y[np.abs(x) > 1] *= 2
    return y


def places(x):
    y = x.copy()
    y[[0, 2], 1:3] = x[[1, 1], 1:3]
    y[np.arange(2), np.array([3, 0])] = 5
    return y


def outs(x):
    y = np.empty_like(x)
    np.multiply(x, 2, out=y)
    np.add(y, 1, out=y, where=x > 0)
    np.sum(x, axis=0, out=y[0])
    np.clip(y, -1, 1, y)
    return y


def inplace(x):
    y = x + 0
    y -= 1
    y *= x
    y **= 2
    y //= 0.5
    y[...] = y / 3
    z = y.sum()
    before = z
    z += 1
    return y, z, before


def functions_that_write(x):
    y = x.copy()
    np.copyto(y, 0.5, where=x > 1)
    np.putmask(y, x < -1, 2.0)
    np.fill_diagonal(y, 3.0)
    np.put_along_axis(y, np.argmax(x, axis=1, keepdims=True), 9.0, axis=1)
    np.add.at(y, (np.array([0, 0, 1]), np.array([1, 1, 2])), 10.0)
    y.sort(axis=1)
    z = y[1:]
    z.fill(0.25)
    np.place(y, x > 2, 1.0)
    return y


def backwards(x):
    y = x.copy()
    y[::-1] = x
    y[1::-1, 2] = x[:2, 0]
    return y


def casts(x):
    y = (x * 10).astype(np.int32)
    y[0] = x[0] * 10
    y[:, 1] = 2.9
    z = np.array(x)
    z.real = 1.5
    return y, z


def overlapping(x):
    y = x.copy()
    y[1:] = y[:-1]
    y[:, :-1] += y[:, 1:]
    return y


def scalars_are_not_views(x):
    y = x.copy()
    first = y[0, 0]
    row = y[0]
    y[0, 0] = 100.0
    return first, row


@pytest.mark.parametrize(
    "function",
    [
        slices, columns, masks, places, outs, inplace, functions_that_write, backwards, casts, overlapping,
        scalars_are_not_views,
    ],
)  # fmt: skip
def test_writes_do_what_they_do_in_numpy(function):
    traced = traced_quietly(function, (X,))
    for seed in range(4):
        given = np.random.default_rng(seed).normal(size=(4, 5)) * 1.5
        kept = given.copy()
        assert not difference(traced(given), function(given.copy()), 1e-12)
        assert np.array_equal(given, kept)


def test_a_copy_that_nothing_depends_on_is_not_recorded():
    def function(x):
        return np.array(x).reshape(-1).astype(float) + np.positive(x).ravel()

    assert "aten::clone" not in kinds(gpujit.trace(lambda x: np.positive(x) + x[0, 0], (X,)))
    assert np.allclose(gpujit.trace(function, (X,))(Y), function(Y))


@pytest.mark.parametrize(
    "function",
    [
        np.copy, np.positive, lambda x: np.array(x), lambda x: x.astype(float), lambda x: x.astype(float).T,
        lambda x: x[0, 0], lambda x: (x.astype(float)[1:], x), lambda x: np.round(x.astype(int).astype(float)),
    ],
)  # fmt: skip
def test_what_is_a_copy_in_numpy_comes_back_as_a_copy(function):
    traced = gpujit.trace(function, (X,))
    given = X.copy()
    found = traced(given)
    found = found[0] if isinstance(found, tuple) else found
    kept = found.copy()
    given += 1
    assert np.array_equal(found, kept)


# ------------------------------------------------------------------------------------------ inputs and results


def test_inputs_of_all_forms():
    def function(pair, items, table, scale, count, flag, nothing=None):
        a, b = pair
        return a * scale + b * count + items[0] - items[1] + table["k"] * np.where(flag, 1.0, 2.0)

    given = ((X, X + 1), [X, X * 2], {"k": X}, 0.5, 3, True)
    traced = gpujit.trace(function, given)
    other = ((Y, Y * 2), [Y, Y - 4], {"k": Y}, 1.5, 2, False)
    assert np.allclose(traced(*other), function(*other))
    assert [str(v.type) for v in traced.graph.inputs] == [
        "(Tensor, Tensor)", "Tensor[]", "Dict(str, Tensor)", "float", "int", "bool",
    ]  # fmt: skip
    assert [v.name for v in traced.graph.inputs] == ["pair", "items", "table", "scale", "count", "flag"]


def test_inputs_by_name():
    def function(x, scale=None):
        return x * scale

    traced = gpujit.trace(function, (X,), example_kwarg_inputs={"scale": X})
    assert np.array_equal(traced(Y, scale=Y), Y * Y)
    only = gpujit.trace(function, example_kwarg_inputs={"x": X, "scale": X})
    assert np.array_equal(only(x=Y, scale=Y), Y * Y)


def test_results_of_all_forms():
    def function(x):
        return (x + 1, [x, x * 2]), x.shape[0], x.shape[0] / 2, x.shape[1] > 3

    traced = gpujit.trace(function, (X,))
    (a, b), n, half, many = traced(Y)
    assert np.array_equal(a, Y + 1)
    assert np.array_equal(b[1], Y * 2)
    assert (n, half, many) == (5, 2.5, True)


def test_a_single_array_needs_no_tuple():
    assert np.array_equal(gpujit.trace(lambda x: x + 1, X)(Y), Y + 1)


def test_the_callers_arrays_are_left_alone():
    def function(x):
        x *= 2
        return x

    kept = X.copy()
    traced_quietly(function, (kept,))
    assert np.array_equal(kept, X)


# -------------------------------------------------------------------------------------------------------- sizes


def sizes_in_many_ways(x):
    n, m = x.shape
    half = (n + 1) // 2
    k = max(m, 2) if False else m
    rest = -(-n // 2) + n % 2 - abs(2 - n) + n**2
    return (
        np.zeros((half, m * 2 - 1)), x[:half], x[n - half :], x.reshape(m, n), np.full(n, m / n), np.arange(k) * n,
        x * rest, x / math.prod(x.shape), x.size, np.tile(x, (2, n)), math.ceil(n / 2), math.floor(m / 2),
    )  # fmt: skip


def test_sizes_stay_sizes():
    traced = gpujit.trace(sizes_in_many_ways, (X,), strict=True, check_trace=False)
    for shape in ((3, 4), (5, 7), (1, 9), (8, 2)):
        given = R.normal(size=shape)
        assert not difference(traced(given), sizes_in_many_ways(given), 1e-12)


@pytest.mark.parametrize(
    ("function", "strict"),
    [
        (lambda xp, x: xp.mean(x, axis=0) + xp.astype(xp.sum(x), xp.float64), True),
        (lambda xp, x: xp.concat([x, xp.zeros(x.shape)], axis=0), True),
        (lambda xp, x: xp.where(x > 0, xp.pow(x, 2), xp.asarray(0.5)), True),
        (lambda xp, x: xp.permute_dims(xp.expand_dims(x, axis=0), (2, 0, 1)), True),
        (lambda xp, x: xp.linalg.vector_norm(x, axis=1) + xp.acos(xp.tanh(x[:, 0])), True),
        (lambda xp, x: xp.matmul(x, xp.matrix_transpose(x)), True),
        (lambda xp, x: xp.take(x, xp.argsort(x[:, 0], stable=True), axis=0), True),
        (lambda xp, x: xp.linspace(0, 1, x.shape[1]) * xp.cumulative_sum(x, axis=1), True),
        (lambda xp, x: xp.unique_counts(xp.astype(x, xp.int64)).counts, True),
        (lambda xp, x: xp.clip(xp.bitwise_left_shift(xp.astype(x * 4, xp.int32) & 3, 1), 0, 5), True),
    ],
)
def test_functions_of_the_array_api(function, strict):
    def written(x):
        return function(x.__array_namespace__(), x)

    traced = gpujit.trace(written, (X,), strict=strict)
    assert not difference(traced(Y), written(Y), 1e-12)


# --------------------------------------------------------------------------------------------------------- state


def test_traces_in_two_threads_do_not_meet():
    failures = []

    def work(k):
        for _ in range(5):
            traced = gpujit.trace(lambda x: np.zeros(x.shape) + x * k, (X,))
            if not np.array_equal(traced(Y), Y * k):
                failures.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_a_traced_function_that_is_called_in_a_trace_stays_a_function():
    inner = gpujit.trace(lambda a, b: (a + b, a.shape[0]), (X, X))

    def function(x):
        total, n = inner(x, b=x * 2)
        return total / n

    traced = gpujit.trace(function, (X,))
    assert "prim::CallFunction" in kinds(traced)
    assert np.allclose(traced(Y), Y * 3 / 5)
    with pytest.raises(ArgumentError, match="takes"):
        gpujit.trace(lambda x: inner(x), (X,))


def test_a_scripted_function_that_is_called_in_a_trace():
    seen = []

    def function(x):
        seen.append(gpujit.is_tracing())
        return until_small(x * 2, limit=5) + 1

    scripted_call = gpujit.trace(function, (X,))
    assert "prim::CallFunction" in kinds(scripted_call)
    assert not len(scripted_call.trace_report)
    large = Y * 100
    expected = large * 2
    while np.abs(expected).sum() > 5:
        expected = expected / 2
    assert np.allclose(scripted_call(large), expected + 1)
    assert True in seen
    assert not gpujit.is_tracing()


@gpujit.script_if_tracing
def until_small(x: gpujit.Tensor, limit: float, factor: float = 2.0) -> gpujit.Tensor:
    while float(x.abs().sum()) > limit:
        x = x / factor
    return x


def test_a_traced_function_as_a_module():
    module = gpujit.trace(lambda x: np.exp(x) + x.shape[0], (X,))._as_module()
    assert np.allclose(module(Y), np.exp(Y) + 5)
    verify(module.graph)


def test_what_has_a_graph_already_comes_back_as_it_is():
    traced = gpujit.trace(lambda x: x + 1, (X,))
    assert gpujit.trace(traced, (X,)) is traced
    module = traced._as_module()
    assert gpujit.trace(module, (X,)) is module


BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    "function",
    [
        np.exp, lambda x: x + 1.5, lambda x: x * 2 + x, np.sum, lambda x: x.mean(axis=1), lambda x: x.max(axis=0),
        lambda x: (x.astype(np.float32) * 3).astype(BFLOAT16), lambda x: np.where(x > 0, x, 0), lambda x: x.T[1:] + 0,
        lambda x: x + x.astype(np.float32), lambda x: np.cumsum(x, axis=1), lambda x: np.sort(x, axis=1),
        lambda x: np.full(x.shape, 2, dtype=BFLOAT16) + x, lambda x: np.concatenate([x, x]),
    ],
)  # fmt: skip
def test_bfloat16(function):
    given = Y.astype(BFLOAT16)
    traced = gpujit.trace(function, (X.astype(BFLOAT16),))
    assert not difference(traced(given), function(given), 1e-2)


def test_a_trace_in_a_trace_does_not_see_the_outer_values():
    def function(x):
        return gpujit.trace(lambda y: y + x, (X,), check_trace=False)(X)

    with pytest.raises(TraceError):
        traced_quietly(function, (X,))


def test_graphs_say_where_their_nodes_come_from():
    traced = gpujit.trace(lambda x: np.exp(x), (X,))
    node = next(n for n in traced.graph.nodes if n.kind == "aten::exp")
    assert node.source.source.name == __file__
    assert "np.exp(x)" in node.source.highlight()


def test_a_wrong_trace_is_found_by_running_it_again():
    state = [1.0]

    def function(x):
        state[0] += 1
        return x * state[0]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = gpujit.trace(function, (X,)).trace_report
    assert [d.kind for d in found] == ["random"]
    assert any("differs from run to run" in str(w.message) for w in caught)


def test_differences_are_told_apart():
    assert difference(X, X, 0) == ""
    assert "float32" in difference(X.astype(np.float32), X, 1)
    assert "elements differ" in difference(X + 1, X, 1e-5)
    assert "result 1" in difference((X, X), (X, X + 1), 1e-5)
    assert "of 2" in difference((X,), [X, X], 1e-5)
    assert "result 'k'" in difference({"k": X}, {"k": X * 2}, 1e-5)
    assert difference(1, 2, 1)
    assert issubclass(TraceCheckError, TraceError)
