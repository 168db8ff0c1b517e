"""Views that look where a tensor's elements say: planned, they follow the elements of each call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.ir import types as T
from gpujit.ops import table
from gpujit.ops.registry import Op
from tests.ops.check import run
from tests.programs import archive, forward, module

# Each with what it is given beside x, call after call.
STARTS = [np.array(n) for n in (2, 0, 3, -3, 1)]
CUTS = [np.array(n) for n in ([2, 4], [0, 1], [3, 3], [1, 5])]
BODIES = {
    "alone": ("return torch.mul(torch.narrow(x, 0, at, 2), 2.)", STARTS),
    "between kernels": (
        """y = torch.add(x, torch.relu(x))
return torch.abs(torch.add(torch.narrow(y, 0, at, 2), 1.))""",
        STARTS,
    ),
    "of other dims": ("y = torch.relu(torch.t(x))\nreturn torch.sigmoid(torch.narrow(y, -1, at, 2))", STARTS),
    "computed": (
        """y = torch.neg(x)
return torch.exp(torch.narrow(y, 0, torch.remainder(torch.add(at, 6), 3), 2))""",
        STARTS,
    ),
    "into a product": ("y = torch.narrow(torch.tanh(x), 0, at, 2)\nreturn torch.matmul(y, torch.t(y))", STARTS),
    "returned": ("return torch.narrow(torch.tanh(x), 0, at, 2)", STARTS),
    "written": (
        """y = torch.add(x, 1.)
z = torch.narrow(y, 0, at, 2)
w = torch.mul_(z, 3.)
return torch.add(y, torch.sum(z))""",
        STARTS,
    ),
    "of a view": (
        """y = torch.narrow(torch.select(torch.stack([x, torch.neg(x)]), 0, 1), 0, at, 2)
return torch.mul(y, y)""",
        STARTS,
    ),
    "parts": (
        """y = torch.relu(x)
a, b, c = torch.tensor_split(y, at, 0)
return torch.cat([c, torch.neg(b), a])""",
        CUTS,
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_each_call_looks_where_its_tensor_says(name: str) -> None:
    body, positions = BODIES[name]
    plain = gpujit.load(archive(module(forward("x: Tensor, at: Tensor -> Tensor", body)), {}))
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    planned = gpujit.optimize_for_inference(plain, example_inputs=[x, positions[0]])
    for at in [*positions, *positions]:
        want, got = plain(x.copy(), at), planned(x.copy(), at)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-6)


def other_tensors(op: Op) -> list[str]:
    """The tensor arguments of an operator behind its first."""
    arguments = op.schema.arguments[1:]
    return [a.name for a in arguments if any(isinstance(t, T.TensorType) for t in T.walk(a.type))]


VIEWS = [op for op in table.registered() if op.kind == "view" and other_tensors(op)]


@pytest.mark.parametrize("op", VIEWS, ids=lambda op: op.full_name)
def test_only_shapes_matter_where_that_is_declared(op: Op) -> None:
    x = np.arange(8.0).reshape(2, 4)

    def starts(other: np.ndarray) -> Any:
        found = run(
            op.full_name, x, *([0] if "narrow" in op.name else []), other, *([1] if "narrow" in op.name else [])
        )
        found = found if isinstance(found, list) else [found]
        return [(y.__array_interface__["data"][0] - x.__array_interface__["data"][0], y.shape) for y in found]

    declared = set(op.asked_for_shape) == set(other_tensors(op))
    others = [np.zeros((2, 4)), np.ones((2, 4))] if declared else [np.array(0), np.array(1)]
    if op.name == "aten::tensor_split":
        others = [np.array([0]), np.array([1])]
    assert (starts(others[0]) == starts(others[1])) is declared
