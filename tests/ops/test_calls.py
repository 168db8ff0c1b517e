"""Operators called as functions of ``gpujit.ops``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpujit
import gpujit.ops
from gpujit.ir.values import Array
from gpujit.ops import calls
from gpujit.support.errors import ArgumentError, ShapeError, UnknownOperatorError

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def test_an_overload_follows_from_the_arguments() -> None:
    assert (gpujit.ops.add(X, 1) == X + 1).all() and gpujit.ops.add(X, 1).dtype == np.float32
    assert gpujit.ops.add(2, 3) == 5
    assert gpujit.ops.sum(X).shape == () and type(gpujit.ops.sum(X)) is np.ndarray
    assert gpujit.ops.sum(X, 1).shape == (3,) == gpujit.ops.sum(X, dim=[1]).shape
    assert gpujit.ops.max(X, 1)[1].tolist() == [3, 3, 3]
    assert gpujit.ops.view(X, 2, -1).shape == gpujit.ops.view(X, (2, 6)).shape == (2, 6)


def test_lists_defaults_and_dtypes() -> None:
    assert gpujit.ops.cat([X, X], dim=1).shape == (3, 8)
    assert gpujit.ops.zeros(2, 3).dtype == np.float32
    for dtype in ("float64", np.float64, np.dtype("float64")):
        assert gpujit.ops.zeros([2], dtype=dtype).dtype == np.float64
    assert gpujit.ops.ones([1], dtype=float).dtype == np.float32
    assert gpujit.ops.max_pool2d(X[None], 2).shape == (1, 1, 2)


def test_namespaces_are_those_of_pytorch() -> None:
    assert gpujit.ops.linalg.norm(X).shape == ()
    assert gpujit.ops.fft.rfft(X).shape == (3, 3)
    assert gpujit.ops.special.erf(X)[0, 0] < -0.99
    with pytest.raises(AttributeError, match="there is no operator aten::linalg_no_such"):
        gpujit.ops.linalg.no_such  # noqa: B018


def test_operators_of_a_program_are_reached_by_their_namespace() -> None:
    @gpujit.op("calls_test::twice(Tensor x) -> Tensor")
    def twice(m: Any, x: Array) -> Array:
        return x * 2

    try:
        assert (gpujit.ops.calls_test.twice(X) == X * 2).all()
    finally:
        gpujit.remove_op("calls_test::twice")
    with pytest.raises(AttributeError, match=r"gpujit\.ops has no operator 'calls_test'"):
        gpujit.ops.calls_test  # noqa: B018


@pytest.mark.parametrize("limit", [1, 100])
def test_overloads_declared_and_removed_between_two_calls_count(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(calls, "MAX_FOUND", limit)
    for change in (1, -1, 2):
        gpujit.op("calls_test::moved(Tensor x, int n) -> Tensor")(lambda m, x, n, by=change: x + by * n)
        try:
            for n in (3, 4):
                assert (gpujit.ops.calls_test.moved(X, n) == X + change * n).all()
                assert (gpujit.ops.relu(X) >= 0).all()
        finally:
            gpujit.remove_op("calls_test::moved")


def test_arguments_that_fit_nothing_are_refused_with_every_reason() -> None:
    with pytest.raises(ArgumentError, match=r"(?s)aten::relu: .*Expected a value of type 'Tensor'.*found type 'str'"):
        gpujit.ops.relu("x")
    with pytest.raises(ArgumentError, match="Unknown keyword argument 'axis'"):
        gpujit.ops.softmax(X, 1, axis=1)
    with pytest.raises(ArgumentError, match="dtype='float31' is no dtype"):
        gpujit.ops.zeros([2], dtype="float31")
    with pytest.raises(ArgumentError, match="a list of Tensor cannot hold the str at index 1"):
        gpujit.ops.cat([X, "x"])
    with pytest.raises(ArgumentError, match="dtype object cannot be a tensor"):
        gpujit.ops.relu(np.array([None]))
    with pytest.raises(ArgumentError, match="a object cannot be an argument"):
        gpujit.ops.relu(object())
    with pytest.raises(ShapeError):
        gpujit.ops.mm(X, X)
    with pytest.raises(UnknownOperatorError, match="no operator aten::no_such"):
        calls.call("aten::no_such", X)


def test_a_recorder_sees_calls_in_its_own_context_alone() -> None:
    seen: list[str] = []

    def record(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen.append(name)
        return calls.run(name, args, kwargs)

    with calls.recording(record):
        assert (gpujit.ops.relu(X) >= 0).all()
    gpujit.ops.neg(X)
    assert seen == ["aten::relu"]


def test_results_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X)
    for name, args in {
        "softmax": (1,), "var": (), "std": (1,), "pow": (2,), "flatten": (0, 1), "permute": ((1, 0),), "argmax": (),
        "clamp": (-1.0, 1.0), "cumsum": (0,), "topk": (2,), "unsqueeze": (-1,), "norm": (),
    }.items():  # fmt: skip
        found, expected = getattr(gpujit.ops, name)(X, *args), getattr(torch, name)(x, *args)
        for a, b in zip([found] if isinstance(found, np.ndarray) else found,
                        [expected] if isinstance(expected, torch.Tensor) else expected, strict=True):  # fmt: skip
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-6)
