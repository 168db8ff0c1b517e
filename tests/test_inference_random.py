"""Random programs on attributes: lists and dicts that are changed, replaced and tied, numbers, tensors, caches.

Planned, at once or in the background, a module gives the interpreter's results, leaves its state, and its lists and
dicts are one object where the interpreter's are.
"""

from __future__ import annotations

import copy
import random
import textwrap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite")

import gpujit
from gpujit.testing import assert_same_values
from tests.programs import Typed
from tests.test_inference import X, load, until_planned

ATTRIBUTES = """
n : int
f : float
s : str
a : List[int]
b : List[int]
l : List[Tensor]
d : Dict[str, Tensor]
e : Dict[str, Tensor]
t : Tensor
u : Tensor
v : Optional[Tensor]
p : Tuple[int, Tensor]
"""
STATEMENTS = (
    "self.n = torch.add(self.n, 1)",
    "self.f = torch.mul(self.f, 0.5)",
    'self.s = torch.add(self.s, "x")',
    "_a = torch.append(self.a, self.n)",
    "_b = torch.append(self.b, 7)",
    "self.b = self.a",
    "self.a = self.b",
    "self.a = [self.n]",
    "_l = torch.append(self.l, torch.mean(y, [0], True))",
    "_t = torch.neg_(self.l[0])",
    "self.l = [self.t]",
    "self.d = self.e",
    "self.e = self.d",
    '_d = torch._set_item(self.d, "k", torch.mean(y, [0], True))',
    "self.t = torch.add(self.t, torch.mean(x, [0], True))",
    "_t = torch.add_(self.t, 1.)",
    "_t = torch.mul_(self.u, 0.5)",
    "self.u = self.t",
    "self.t = self.u",
    "self.v = torch.mean(y, [0], True)",
    "self.v = None",
    "self.p = (self.n, torch.mean(y, [0], True))",
    "y = torch.relu(torch.add(y, self.u))",
    "y = torch.add(y, self.t)",
    "y = torch.add(y, torch.len(self.a))",
    "y = torch.mul(y, torch.len(self.b))",
    "y = torch.add(y, self.a[0])",
    "y = torch.add(y, torch.len(self.l))",
    "y = torch.add(y, self.l[-1])",
    'y = torch.add(y, self.e["k"])',
    "y = torch.add(y, torch.len(self.s))",
    "y = torch.mul(y, self.f)",
    "y = torch.add(y, (self.p)[1])",
    "y = torch.add(y, (self.p)[0])",
    "_t = torch.relu_(y)",
    "y = torch.tanh(y)",
    "y = torch.matmul(y, torch.matmul(torch.t(self.t), self.u))",
    "w = self.v\nif torch.__isnot__(w, None):\n  w0 = unchecked_cast(Tensor, w)\n  y = torch.add(y, w0)\nelse:\n  pass",
)
CONDITIONS = (
    "torch.gt(self.n, 3)",
    "torch.gt(torch.len(self.a), 4)",
    "torch.gt(torch.item(torch.sum(y)), 1.)",
    "torch.gt(torch.size(x, 0), 2)",
    "torch.gt(self.f, 0.1)",
    "torch.eq(torch.len(self.s), 2)",
)


def row(value: float) -> np.ndarray:
    return np.full((1, 4), value, np.float32)


def values() -> dict[str, Any]:
    return {
        "n": 0, "f": 0.5, "s": "", "a": [1], "b": [2], "l": Typed([row(1)], "List[Tensor]"),
        "d": Typed({"k": row(1)}, "Dict[str, Tensor]"), "e": Typed({"k": row(0)}, "Dict[str, Tensor]"),
        "t": row(0), "u": row(1), "v": None, "p": (1, row(1)),
    }  # fmt: skip


def block(draw: random.Random, depth: int = 0) -> str:
    lines = []
    for _ in range(draw.randint(2, 3 if depth else 7)):
        kind = draw.random()
        if kind < 0.2 and depth < 2:
            inner = [textwrap.indent(block(draw, depth + 1), "  ") for _ in range(2)]
            lines.append(f"if {draw.choice(CONDITIONS)}:\n{inner[0]}\nelse:\n{inner[1]}")
        elif kind < 0.28 and depth < 2:
            trips = draw.choice(("2", "self.n", "torch.size(x, 0)", "int(torch.sum(torch.gt(y, 0.)))"))
            lines.append(f"for i{depth} in range({trips}):\n{textwrap.indent(block(draw, depth + 1), '  ')}")
        else:
            lines.append(draw.choice(STATEMENTS))
    return "\n".join(lines)


def state(m: gpujit.ScriptModule, names: list[str]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Attributes, and which lists and dicts among them are one."""
    found = {k: m._object.get(k) for k in names}
    containers = [k for k in names if isinstance(found[k], (list, dict))]
    return copy.deepcopy(found), [(a, b) for a in containers for b in containers if found[a] is found[b]]


def check(seed: int) -> None:
    draw = random.Random(seed)
    text = f"y = torch.mul(x, 1.)\n{block(draw)}\nreturn y"
    kept = list(values()) if draw.random() < 0.6 else None

    def made() -> gpujit.ScriptModule:
        return load(text, attributes=ATTRIBUTES.strip(), values=values())

    plain = made()
    fast = gpujit.optimize_for_inference(made(), kept, compile=draw.choice(("ahead", "ahead", "background")))
    names = list(fast._object.type.attributes)
    for call in range(14):
        rows = draw.randint(1, 3) if call > 3 else 3
        x = X[:rows] * np.float32(draw.choice((0.1, -0.1)))
        given = x.copy(), x.copy()
        where = f"seed {seed}, call {call}\n{text}"
        wanted = plain(given[0])
        if not np.isfinite(wanted).all() or np.abs(wanted).max() > 1e5:
            break
        assert_same_values(fast(given[1]), wanted, where, rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(given[1], given[0], where)
        (found, one), (expected, same) = state(fast, names), state(plain, names)
        assert one == same, where
        assert_same_values(found, expected, where, rtol=1e-3, atol=1e-4)
    until_planned(fast)


@given(st.integers(0, 1 << 30))
@settings(max_examples=20)
def test_programs_on_attributes(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300))
def test_many_programs_on_attributes(seed: int) -> None:
    check(seed)
