"""What models give back: the leaves of a nested result by name, each described, and written to a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gpujit.ir.values import QTensor
from gpujit.serialization.target import write_to


def flatten(value: Any, name: str = "out") -> Iterator[tuple[str, Any]]:
    """Leaves of a nested result with names such as ``out.boxes`` and ``out[1]``."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        for field, item in zip(value._fields, value, strict=True):
            yield from flatten(item, f"{name}.{field}")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from flatten(item, f"{name}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from flatten(item, f"{name}[{key!r}]")
    else:
        yield name, value


def describe(value: Any) -> dict[str, Any]:
    """An output for JSON: dtype, shape and a few numbers of an array, the value of anything else."""
    if isinstance(value, QTensor):
        return {"quantised": True, **describe(value.values)}
    if not isinstance(value, np.ndarray):
        return {"value": value if isinstance(value, (int, float, str, bool, type(None))) else str(value)}
    facts: dict[str, Any] = {"dtype": str(value.dtype), "shape": list(value.shape)}
    if value.size and value.dtype.kind != "c":
        wide = value.astype(np.float64)
        facts.update(min=float(wide.min()), max=float(wide.max()), mean=float(wide.mean()))
    return facts


def shape_text(shape: Any) -> str:
    """``2x3``, or ``scalar``."""
    return "x".join(map(str, shape)) or "scalar"


def write_npz(path: str, outputs: Mapping[str, Any]) -> None:
    """Write the array outputs to a file, which stays as it was on any error. Raises SaveError."""
    arrays = {n: v.values if isinstance(v, QTensor) else v for n, v in outputs.items()}
    # NumPy's files hold no bfloat16.
    arrays = {
        n: v.astype(np.float32) if isinstance(v, np.ndarray) and v.dtype.kind == "V" else v for n, v in arrays.items()
    }
    keep = {n: np.asarray(v) for n, v in arrays.items() if isinstance(v, (np.ndarray, int, float, bool, complex))}
    # The stub takes allow_pickle for a keyword's value.
    write_to(path, lambda stream: np.savez(_Stream(stream), **keep))  # type: ignore[arg-type]


class _Stream:
    """What a zip file is written to from front to back."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def write(self, data: Any) -> int:
        self._sink.write(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is kept back."""

    def read(self) -> bytes:
        """NumPy takes for a file what can be read."""
        return b""
