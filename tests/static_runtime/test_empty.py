"""Planned modules on tensors without elements: what the interpreter gives, or the error it raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.support.errors import GpujitError
from tests.programs import archive, forward, module

INFINITY = 'float("inf")'
ROWS = [
    "torch.amax(y, [{0}])", "torch.amin(y, [{0}])", "torch.argmax(y, {0})", "torch.argmin(y, {0})", "torch.max(y, {0})",
    "torch.min(y, {0})", "torch.linalg_vector_norm(y, inf, [{0}])", "torch.sum(y, [{0}])", "torch.mean(y, [{0}])",
    "torch.prod(y, {0})", "torch.var(y, [{0}])", "torch.logsumexp(y, [{0}])", "torch.softmax(y, {0})",
    "torch.cumsum(y, {0})", "torch.median(y, {0})", "torch.all(y, {0})", "torch.linalg_vector_norm(y, 2, [{0}])",
]  # fmt: skip
ALL = ["torch.max(y)", "torch.min(y)", "torch.argmax(y)", "torch.sum(y)", "torch.linalg_vector_norm(y, inf)"]
VIEWS = ["torch.glu(y)", "torch.cat([y, y], 1)", "torch.transpose(y, 0, 1)", "torch.reflection_pad1d(y, [1, 1])"]


def load(expression: str) -> gpujit.ScriptModule:
    pair = expression.startswith(("torch.max(y, ", "torch.min(y, ", "torch.median(y, "))
    result = "z, _ = " if pair else "z = "
    last = result + expression.replace("inf", INFINITY)
    lines = ["y = torch.add(torch.mul(x, 2.), 1.)", last, "return torch.mul(z, 2)"]
    return gpujit.load(archive(module(forward("x: Tensor -> Tensor", "\n".join(lines))), {}))


def outcome(call: Any, x: np.ndarray) -> Any:
    try:
        with np.errstate(all="ignore"):
            return call(x)
    except GpujitError as fault:
        return type(fault), str(fault).splitlines()[0]


def assert_alike(expression: str, shape: tuple[int, ...], first: tuple[int, ...]) -> None:
    """The same for the module's first sizes, and for those that come after others."""
    plain = load(expression)
    x = np.zeros(shape, np.float32)
    want = outcome(plain, x)
    planned = gpujit.optimize_for_inference(plain, example_inputs=[np.zeros(first, np.float32)])
    for _ in range(2):
        got = outcome(planned, x)
        assert type(got) is type(want), (got, want)
        if isinstance(want, tuple):
            assert got == want
        else:
            assert got.shape == want.shape and got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
@pytest.mark.parametrize("text", ROWS)
def test_rows(text: str, shape: tuple[int, int], dim: int) -> None:
    assert_alike(text.format(dim), shape, (3, 4))


@pytest.mark.parametrize("text", ALL)
def test_everything(text: str) -> None:
    assert_alike(text, (0, 4), (3, 4))


@pytest.mark.parametrize("shape", [(0, 0, 4), (0, 4), (4, 0, 4), (3, 4, 0)])
@pytest.mark.parametrize("text", VIEWS)
def test_views(text: str, shape: tuple[int, ...]) -> None:
    assert_alike(text, shape, (3, 4, 4))
