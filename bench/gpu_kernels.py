"""Functions that fuse to few kernels, as TorchScript text, with inputs that are large enough to be bound by memory."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import gpujit
from gpujit import nn


@dataclass(frozen=True)
class Case:
    """``body`` is that of a function of tensors; ``shapes`` of its inputs, ``small`` ones to try it."""

    name: str
    body: str
    shapes: tuple[tuple[int, ...], ...]
    small: tuple[tuple[int, ...], ...]
    dtype: str = "float32"

    @property
    def names(self) -> list[str]:
        return [f"x{k}" for k in range(len(self.shapes))]

    @property
    def text(self) -> str:
        """A method ``forward``."""
        arguments = ", ".join(f"{n}: Tensor" for n in self.names)
        return f"def forward(self, {arguments}) -> Tensor:\n    return {self.body}\n"

    def inputs(self, is_small: bool) -> list[np.ndarray]:
        random = np.random.default_rng(0)
        shapes = self.small if is_small else self.shapes
        return [random.standard_normal(s, dtype=np.float32).astype(self.dtype) for s in shapes]

    def archive(self) -> bytes:
        """The function as a module's file."""
        module = gpujit.script(nn.Module())
        module.define(self.text)
        buffer = io.BytesIO()
        gpujit.save(module, buffer)
        return buffer.getvalue()

    def function(self) -> Callable[..., Any]:
        """The same for PyTorch, called with tensors alone. Needs torch."""
        import torch

        names: dict[str, Any] = {"torch": torch, "Tensor": torch.Tensor, "__name__": "case"}
        exec(self.text.replace("self, ", ""), names)
        found: Callable[..., Any] = names["forward"]
        return found


_N = 1 << 25
_ROWS = (8192, 4096)
_CHAIN = "torch.tanh(torch.relu(x0 * x1 + 0.5) * 1.5 - x0)"
CASES = (
    Case("add", "x0 + x1", ((_N,), (_N,)), ((40,), (40,))),
    Case("chain of 6", _CHAIN, ((_N,), (_N,)), ((40,), (40,))),
    Case(
        "gelu, bias, residual", "torch.nn.functional.gelu(x0 + x1) + x2",
        ((8192, 4096), (4096,), (8192, 4096)), ((3, 8), (8,), (3, 8)),
    ),
    Case("softmax", "torch.softmax(x0, -1)", (_ROWS,), ((4, 12),)),
    Case("softmax of long rows", "torch.softmax(x0, -1)", ((64, 1 << 19),), ((2, 40),)),
    Case(
        "layer norm", "torch.layer_norm(x0, [4096], x1, x2)",
        (_ROWS, (4096,), (4096,)), ((2, 4096), (4096,), (4096,)),
    ),
    Case(
        "rms norm, gate", "x0 * torch.rsqrt((x0 * x0).mean(-1, True) + 1e-6) * torch.nn.functional.silu(x1)",
        (_ROWS, _ROWS), ((3, 8), (3, 8)),
    ),
    Case("transposed add", "x0.t() * 2 + x1", ((4096, 8192), (8192, 4096)), ((4, 6), (6, 4))),
    Case("column sum", "(x0 * x0).sum(0)", ((16384, 2048),), ((6, 8),)),
    Case("chain of 6, half", _CHAIN, ((_N,), (_N,)), ((40,), (40,)), "float16"),
    Case("softmax, half", "torch.softmax(x0, -1)", (_ROWS,), ((4, 16),), "float16"),
)  # fmt: skip
