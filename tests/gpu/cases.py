"""Operators of the table with arguments, as graphs that a device plans: pointwise, rows, views, matrices, layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpujit.fuser.fuse import Fused, fuse
from gpujit.ir.dtypes import code_of
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.scalar import RecordError
from gpujit.ir.types import TensorType
from gpujit.kernels.cuda_tile import Limits, within
from gpujit.kernels.launches import DeviceKernel, Launch
from gpujit.ops import table
from gpujit.passes.nodes import insert_node
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.device_build import build_device
from gpujit.static_runtime.device_decide import DeviceDecisions
from gpujit.static_runtime.steps import Options
from gpujit.support.errors import GpujitError
from tests.ops.test_recording import COMPLEX, DTYPES, POINTWISE, arguments
from tests.ops.test_row_recording import AFTER, F16, F32, I64, tensor

SHAPES = [(6, 5), (6, 5)]


@dataclass(frozen=True, eq=False)
class Case:
    """An operator's full name and its arguments. ``then``: an operator of one tensor that uses the result, as a view
    alone runs nothing."""

    name: str
    args: tuple[Any, ...]
    then: str = ""

    def __str__(self) -> str:
        shown = (f"{a.dtype}{list(a.shape)}" if isinstance(a, np.ndarray) else str(a)[:20] for a in self.args)
        return f"{self.name}({', '.join(shown)})"

    def expected(self) -> tuple[np.ndarray, ...] | None:
        """What the table gives on NumPy; None where it refuses the arguments, or gives no tensors."""
        op = table.by_full_name(self.name)
        assert op is not None
        try:
            with np.errstate(all="ignore"):
                found = op.kernel(np)(*self.args)
        except GpujitError:
            return None
        results = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        return results if all(isinstance(r, np.ndarray) for r in results) else None

    def tensors(self) -> list[np.ndarray]:
        """The arguments that are tensors, those in lists as well."""
        found: list[np.ndarray] = []
        for a in self.args:
            found += [x for x in (a if isinstance(a, list) else [a]) if isinstance(x, np.ndarray)]
        return found

    def graph(self) -> tuple[Graph, Fused, Lowerer]:
        """A graph of the tensors among the arguments, fused, and what lowers the rest. Raises GpujitError."""
        op = table.by_full_name(self.name)
        assert op is not None
        graph = Graph("one")

        def given(x: np.ndarray) -> Value:
            return graph.add_input(TensorType(code_of(x.dtype), x.shape))

        inputs = []
        for argument, x in zip(op.schema.arguments, self.args, strict=False):
            if isinstance(x, np.ndarray):
                inputs.append(given(x))
            elif isinstance(x, list) and x and isinstance(x[0], np.ndarray):
                items = Node("prim::ListConstruct", [given(v) for v in x])
                graph.block.append(items)
                inputs.append(items.add_output(argument.type))
            else:
                inputs.append(graph.constant(x, argument.type))
        end = graph.block.return_node
        for value in insert_node(end, self.name, inputs, end).outputs:
            if self.then:
                value = insert_node(end, self.then, [value], end).outputs[0]
            graph.add_output(value)
        return graph, fuse(graph), Lowerer(np)

    def kernels(self, limits: Limits) -> list[DeviceKernel]:
        """What a device with these limits has to have compiled; none when there is no plan."""
        try:
            graph, fused, lowerer = self.graph()
            with within(limits):
                plan = build_device(DeviceDecisions(graph, fused.programs, lowerer, Options()))
        except (GpujitError, RecordError):
            return []
        return [call.kernel for step in plan.steps.values() for call in step.calls if isinstance(call, Launch)]


def pointwise() -> Iterator[Case]:
    """Every pointwise operator, in float32 and in one other dtype."""
    for turn, op in enumerate(POINTWISE):
        if op.name in COMPLEX:
            continue
        for dtype in ("float32", DTYPES[1 + turn % 8]):
            whole = "float" not in dtype
            numbers: tuple[Any, ...] = (True,) if dtype == "bool" else (2, 3) if whole else (0.5, 2, 1.25)
            args = arguments(op, dtype, SHAPES, numbers)
            if args is not None:
                if op.name == "aten::prelu":
                    args[1] = args[1].reshape(-1)[:1]
                yield Case(op.full_name, tuple(args))


def rows() -> Iterator[Case]:
    """Every operator over rows that is recorded, along several dims."""
    for turn, name in enumerate(sorted(AFTER)):
        for number, after in enumerate(AFTER[name][:2]):
            dtype = (F32, F16, I64)[(turn + number) % 3]
            yield Case(f"aten::{name}", (tensor((3, 5, 4), F32, special=not number), *after))
            yield Case(f"aten::{name}", (tensor((3, 5, 4), dtype), *after))


def _f(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)


def views() -> Iterator[Case]:
    """Views, each read by an operator: what they cost nothing for must still be the right elements."""
    x = _f(4, 6, 8)
    for name, *rest in (
        ("transpose.int", 0, 2), ("permute", [2, 0, 1]), ("select.int", 1, 2), ("slice.Tensor", 1, 1, 6, 2),
        ("unsqueeze", 1), ("view", [24, 8]), ("reshape", [4, 48]), ("flatten.using_ints", 0, 1), ("narrow", 2, 2, 4),
        ("movedim.int", 0, 2), ("swapaxes", 0, 1), ("diagonal", 0, 0, 2), ("unfold", 2, 4, 2),
        ("expand_as", _f(4, 6, 8)), ("unflatten.int", 2, [2, 4]), ("as_strided", [4, 3], [48, 8], 5),
    ):  # fmt: skip
        yield Case(f"aten::{name}", (x, *rest), "aten::neg")
    yield Case("aten::expand", (_f(4, 1, 8), [4, 6, 8], False), "aten::neg")
    yield Case("aten::squeeze.dim", (_f(4, 1, 8), 1), "aten::neg")
    yield Case("aten::t", (_f(4, 6),), "aten::neg")


def matrices_and_layers() -> Iterator[Case]:
    """Products, convolutions, pools, norms, and operators that move elements."""
    a, b, c = _f(5, 6), _f(6, 7), _f(5, 7)
    image, ids = _f(2, 4, 9, 8), np.array([[0, 3], [5, 1]])
    found: list[tuple[Any, ...]] = [
        ("mm", a, b), ("addmm", c, a, b, 1, 1), ("bmm", _f(3, 4, 5), _f(3, 5, 2)), ("matmul", _f(2, 3, 4, 5), _f(5, 6)),
        ("linear", _f(3, 4, 6), _f(8, 6), _f(8)), ("baddbmm", _f(3, 4, 2), _f(3, 4, 5), _f(3, 5, 2), 1, 1),
        ("conv2d", image, _f(6, 4, 3, 3), _f(6), [1, 1], [1, 1], [1, 1], 1),
        ("conv2d", image, _f(4, 1, 3, 3), None, [2, 2], [1, 1], [1, 1], 4),
        ("conv1d", _f(2, 4, 9), _f(6, 4, 3), _f(6), [1], [0], [1], 1),
        ("max_pool2d", image, [2, 2], [2, 2], [0, 0], [1, 1], False),
        ("avg_pool2d", image, [2, 2], [2, 2], [0, 0], False, True, None),
        ("adaptive_avg_pool2d", image, [1, 1]),
        ("layer_norm", _f(4, 16), [16], _f(16), _f(16), 1e-5, True),
        ("batch_norm", image, _f(4), _f(4), _f(4), np.abs(_f(4)) + 1, False, 0.1, 1e-5, True),
        ("embedding", _f(8, 5), ids, -1, False, False), ("index_select", _f(6, 5), 0, np.array([0, 5, 2])),
        ("gather", _f(4, 5), 1, np.array([[0, 4], [1, 1], [2, 0], [3, 3]]), False),
        ("cat", [a, _f(3, 6)], 0), ("stack", [a, a + 1], 1), ("constant_pad_nd", a, [1, 2, 0, 1], 0.5),
        ("roll", a, [1], [0]), ("flip", a, [1]), ("tril", a, 0), ("repeat", a, [2, 1]),
        ("scaled_dot_product_attention", _f(1, 2, 4, 8), _f(1, 2, 6, 8), _f(1, 2, 6, 8), None, 0.0, False, None, False),
        ("upsample_nearest2d", image, [18, 16], None, None), ("pixel_shuffle", image, 2),
    ]  # fmt: skip
    for name, *args in found:
        yield Case(f"aten::{name}", tuple(args))


def every() -> list[Case]:
    """All cases that the table takes."""
    return [c for c in (*views(), *matrices_and_layers(), *rows(), *pointwise()) if c.expected() is not None]
