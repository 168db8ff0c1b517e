"""What a trace would lose silently is listed with its line: a test for each kind of place."""

from __future__ import annotations

import inspect
import random
import time
import warnings

import numpy as np
import pytest

import gpujit
from gpujit.frontend.trace.report import KINDS
from gpujit.support.errors import ArgumentError, TraceCheckError, TraceError, TracerWarning

X = np.arange(1.0, 13.0).reshape(3, 4)
KEPT: list[object] = []
OUTSIDE = np.array([1.0, 2.0, 3.0, 4.0])


def line_of(function, text):
    """The number of the function's line that holds the text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def report(function, *inputs, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TracerWarning)
        return gpujit.trace(function, inputs, **options).trace_report


def branch_on_a_tensor(x):
    if x.sum() > 0:  # here
        return x
    return -x


def branch_on_a_size(x):
    if x.shape[0] > 2:  # here
        return x
    return -x


def branch_in_while(x):
    while x.max() > 2:  # here
        x = x / 2
    return x


def branch_in_and(x):
    return x if x[0, 0] > 0 and True else -x  # here


def branch_in_assert(x):
    assert x.shape[0] == 3  # here
    return x + 1


def branch_on_shapes(x, y):
    if x.shape == y.shape:  # here
        return x + y
    return x


def branch_in_min(x):
    return x[: min(x.shape[0], 2)]  # here


def branch_in_membership(x):
    return x * (1 if 3.0 in x else 2)  # here


def loop_over_a_range(x):
    total = x[0] * 0
    for i in range(x.shape[0]):  # here
        total = total + x[i]
    return total


def loop_over_rows(x):
    total = x[0] * 0
    for row in x:  # here
        total = total + row
    return total


def loop_in_a_comprehension(x):
    return np.stack([row * 2 for row in x])  # here


def loop_by_zip(x):
    return np.stack([a + b for a, b in zip(x, x)])  # here


def number_by_float(x):
    return x * float(x[0, 1])  # here


def number_by_int(x):
    return x * int(x[0, 1])  # here


def number_by_item(x):
    return x * x[0, 1].item()  # here


def number_by_len(x):
    return x * len(x)  # here


def number_by_math(x):
    import math

    return x * math.sqrt(x.shape[1])  # here


def number_by_index(x):
    return x[:, [0, 1, 2, 3][x.shape[0]]]  # here


def number_as_a_key(x):
    return x * {3: 2.0}.get(x.shape[0], 1.0)  # here


def array_by_a_name_of_its_own(x):
    return x + FROM_NUMPY(x)  # here


def array_by_tolist(x):
    return x + np.array(x.tolist())  # here


def array_written_into_a_plain_one(x):
    out = np.array([0.0, 0.0, 0.0])
    out[:] = x[:, 0]  # here
    return x[:, 1] + out


def constant_closed_over(x):
    return x @ OUTSIDE  # here


def constant_returned(x):
    return x + 1, OUTSIDE


def constant_number_returned(x):
    return x + 1, 3


def random_of_numpy(x):
    return x + np.random.default_rng().normal(size=4)  # here


def random_of_numpy_legacy(x):
    return x * np.random.rand()  # here


def random_of_python(x):
    return x * random.random()  # here


def random_by_time(x):
    return x * time.perf_counter()  # here


def writes_into_its_input(x):
    x[0] = 0.0  # here
    return x + 1


def adds_to_its_input(x):
    x += 1  # here
    return x


def writes_into_a_view_of_its_input(x):
    y = x.T
    np.exp(y, out=y)  # here
    return y


def writes_under_a_flipped_view(x):
    y = x + 0
    back = y[::-1]
    y[0] = 7.0  # here
    return back


def keeps_a_value(x):
    y = x * 2  # here
    KEPT.append(y)
    return y + 1


def returns_a_dict(x):
    return {"double": x * 2, "half": x / 2}


def masks(x):
    return x[x > 3]  # here


def finds(x):
    return np.nonzero(x > 3)[0]  # here


FROM_NUMPY = np.asarray

CASES = [
    ("branch", branch_on_a_tensor, (X,)),
    ("branch", branch_on_a_size, (X,)),
    ("branch", branch_in_while, (X,)),
    ("branch", branch_in_and, (X,)),
    ("branch", branch_in_assert, (X,)),
    ("branch", branch_on_shapes, (X, X)),
    ("branch", branch_in_min, (X,)),
    ("branch", branch_in_membership, (X,)),
    ("loop", loop_over_a_range, (X,)),
    ("loop", loop_over_rows, (X,)),
    ("loop", loop_in_a_comprehension, (X,)),
    ("loop", loop_by_zip, (X,)),
    ("number", number_by_float, (X,)),
    ("number", number_by_int, (X,)),
    ("number", number_by_item, (X,)),
    ("number", number_by_len, (X,)),
    ("number", number_by_math, (X,)),
    ("number", number_by_index, (X,)),
    ("number", number_as_a_key, (X,)),
    ("array", array_by_a_name_of_its_own, (X,)),
    ("array", array_by_tolist, (X,)),
    ("array", array_written_into_a_plain_one, (X,)),
    ("constant", constant_closed_over, (X,)),
    ("random", random_of_numpy, (X,)),
    ("random", random_of_numpy_legacy, (X,)),
    ("random", random_of_python, (X,)),
    ("random", random_by_time, (X,)),
    ("input-write", writes_into_its_input, (X,)),
    ("input-write", adds_to_its_input, (X,)),
    ("input-write", writes_into_a_view_of_its_input, (X,)),
    ("leak", keeps_a_value, (X,)),
    ("data-size", masks, (X,)),
    ("data-size", finds, (X,)),
]


@pytest.mark.parametrize(("kind", "function", "inputs"), CASES, ids=[f"{k}-{f.__name__}" for k, f, _ in CASES])
def test_a_place_is_listed_with_its_line(kind, function, inputs):
    KEPT.clear()
    found = report(function, *inputs).of_kind(kind)
    assert found
    assert [d.line for d in found] == [line_of(function, "# here")]
    assert found[0].file == __file__
    assert "# here" in str(found[0])
    KEPT.clear()


@pytest.mark.parametrize(("kind", "function", "inputs"), CASES, ids=[f"{k}-{f.__name__}" for k, f, _ in CASES])
def test_strict_tracing_raises_at_what_is_lost(kind, function, inputs):
    if kind == "data-size":
        assert gpujit.trace(function, inputs, strict=True).trace_report.of_kind(kind)
        return
    with pytest.raises(TraceError, match="strict tracing"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gpujit.trace(function, inputs, strict=True)
    KEPT.clear()


def test_a_view_of_numpys_that_the_graph_has_as_a_copy_is_listed_when_it_is_written():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TraceCheckError):
            gpujit.trace(writes_under_a_flipped_view, (X,))
        found = gpujit.trace(writes_under_a_flipped_view, (X,), check_trace=False).trace_report.of_kind("view")
    assert [d.line for d in found] == [line_of(writes_under_a_flipped_view, "# here")]


@pytest.mark.parametrize("function", [constant_returned, constant_number_returned])
def test_constants_that_are_returned_are_listed(function):
    assert report(function, X).of_kind("constant")


def test_a_dict_that_is_returned_is_listed_and_comes_back():
    with pytest.warns(TracerWarning, match="container"):
        traced = gpujit.trace(returns_a_dict, (X,))
    found = traced(X + 1)
    assert list(found) == ["double", "half"]
    assert np.array_equal(found["double"], (X + 1) * 2)


def test_sizes_that_were_fixed_show_when_other_sizes_are_tried():
    found = report(loop_over_a_range, X).of_kind("size")
    assert found
    assert "float64[4, 4]" in found[0].what
    # The first step that the other run has otherwise: the turn that the trace lacks.
    assert found[0].line == line_of(loop_over_a_range, "total = total + x[i]")


def test_a_place_is_listed_once_however_often_it_is_reached():
    def function(x):
        for _ in range(3):
            if x[0, 0] > 0:
                x = x + 1
        return x

    assert len(report(function, X).of_kind("branch")) == 1


def test_each_loss_is_a_warning_at_its_line():
    with pytest.warns(TracerWarning) as caught:
        gpujit.trace(branch_on_a_tensor, (X,))
    assert caught[0].filename == __file__
    assert caught[0].lineno == line_of(branch_on_a_tensor, "# here")
    assert "branch" in str(caught[0].message)


def test_nothing_is_listed_where_nothing_is_lost():
    def function(x):
        n, m = x.shape
        return (x.reshape(m, n) / np.sqrt(n)).sum(axis=0) + np.arange(n) * x.mean()

    found = gpujit.trace(function, (X,), strict=True)
    assert not len(found.trace_report)
    y = np.random.default_rng(0).normal(size=(5, 7))
    assert np.allclose(found(y), function(y))


def test_every_kind_has_a_test():
    shown = {kind for kind, _, _ in CASES} | {"view", "container", "size"}
    assert shown == set(KINDS)


def test_a_constant_that_changes_is_copied_when_it_is_read():
    weights = np.ones(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = gpujit.trace(lambda x: x @ weights, (X,))
    weights[:] = 5.0
    assert np.array_equal(traced(X), X.sum(axis=1))


def test_a_value_that_leaked_cannot_be_used_afterwards():
    KEPT.clear()
    report(keeps_a_value, X, check_trace=False)
    with pytest.raises(TraceError, match="kept after its trace was over"):
        KEPT[0] + 1
    KEPT.clear()


# ---------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (("text",), "is a str"),
        ((object(),), "is a object"),
        ((np.array(["a"]),), "dtype <U1"),
        (({1.5: X},), "keys of a dict"),
        (([X, (X,)],), "of one type"),
        (([],), "have to be there"),
        ((lambda: 0,), "is a function"),
    ],
)
def test_inputs_that_cannot_be_traced_are_refused(inputs, message):
    with pytest.raises(ArgumentError, match=message):
        gpujit.trace(lambda x: x, inputs)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: {x.sum()} and {1}, "returns a set"),
        (lambda x: (a for a in (x,)), "returns a generator"),
        (lambda x: {1.5: x}, "keys are not all str"),
        (lambda x: [x, (x,)], "list of unlike values"),
        (lambda x: np.apply_along_axis(sum, 0, x), "numpy.apply_along_axis cannot be traced"),
        (lambda x: np.bitwise_count(x.astype(np.int64)), "bitwise_count cannot be traced"),
        (lambda x: np.reshape(x, (2, 6), order="F"), "order='F'"),
        (lambda x: np.pad(x, 1, mode="maximum"), "mode='maximum'"),
        (lambda x: x.astype("U5"), "dtype <U5"),
        (lambda x: np.add.reduceat(x, [0, 1]), "no counterpart"),
        (lambda x: x.frobnicate(), "no attribute 'frobnicate'"),
    ],
)
def test_what_no_graph_can_hold_is_refused(function, message):
    with pytest.raises((TraceError, AttributeError), match=message), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gpujit.trace(function, (X,))


def test_an_error_names_the_line():
    def function(x):
        y = x + 1
        return np.reshape(y, (2, 6), order="F")  # here

    with pytest.raises(TraceError) as caught:
        gpujit.trace(function, (X,))
    assert f"{__file__}:{line_of(function, '# here')} in function" in str(caught.value)
    assert 'order="F"' in str(caught.value)


def test_what_the_function_raises_itself_is_raised():
    with pytest.raises(ValueError, match="could not be broadcast"):
        gpujit.trace(lambda x: x + np.ones(7), (X,))


@pytest.mark.parametrize("call", [lambda: gpujit.trace(3, (X,)), lambda: gpujit.trace(lambda x: x)])
def test_calls_without_a_function_or_inputs_are_refused(call):
    with pytest.raises(ArgumentError):
        call()


def test_numpy_is_as_before_after_a_trace_that_failed():
    before = np.zeros, np.asarray, np.prod
    with pytest.raises(ZeroDivisionError):
        gpujit.trace(lambda x: 1 // 0, (X,))
    assert (np.zeros, np.asarray, np.prod) == before


def test_a_difference_on_given_inputs_is_raised():
    with pytest.raises(TraceCheckError, match="check_inputs"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gpujit.trace(branch_on_a_tensor, (X,), check_inputs=[(-X,)])
