"""Nested results against expected ones, as the fixtures store them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

# Absolute and relative tolerance by dtype: two good libraries differ by rounding and order of summation.
TOLERANCE = {"float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2), "float32": (1e-4, 1e-3), "float64": (1e-10, 1e-10)}


def from_json(value: Any) -> Any:
    """The value that tests/frontend/make_language.py described."""
    if isinstance(value, list):
        return [from_json(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        dtype = ml_dtypes.bfloat16 if value["tensor"] == "bfloat16" else value["tensor"]
        return np.array(value["values"], dtype=dtype).reshape(value["shape"])
    if "complex" in value:
        return complex(*value["complex"])
    if "tuple" in value:
        return tuple(from_json(v) for v in value["tuple"])
    if "dict" in value:
        return {from_json(k): from_json(v) for k, v in value["dict"]}
    return value


def from_meta(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """The value a corpus file describes: ``meta`` is the nesting, ``arrays`` hold the numbers."""
    kind = meta["t"]
    if kind == "tensor":
        array = arrays[meta["key"]]
        return array.view(ml_dtypes.bfloat16) if meta.get("dtype") == "bfloat16" else array
    if kind in ("list", "tuple"):
        items = [from_meta(m, arrays) for m in meta["items"]]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return dict(zip(meta["keys"], (from_meta(m, arrays) for m in meta["items"]), strict=True))
    return None if kind == "none" else meta["v"]


def to_torch(value: Any) -> Any:
    """The same value with tensors of their own memory instead of arrays, in lists, tuples and dicts as well."""
    import torch

    if isinstance(value, np.ndarray):
        if value.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(value.view(np.int16).copy()).view(torch.bfloat16)
        return torch.from_numpy(value.copy())
    if isinstance(value, (list, tuple)):
        return type(value)(to_torch(v) for v in value)
    if isinstance(value, dict):
        return {k: to_torch(v) for k, v in value.items()}
    return value


def assert_same(got: Any, want: Any, where: str = "result") -> None:
    """Same nesting, types, dtypes and shapes; floats within the dtype's tolerance, everything else equal."""
    if isinstance(want, np.ndarray):
        assert isinstance(got, np.ndarray), f"{where}: {type(got).__name__} instead of an array"
        assert (got.dtype, got.shape) == (want.dtype, want.shape), (
            f"{where}: {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
        )
        kind = want.dtype.kind
        if kind in "fcV":
            wide = np.complex128 if kind == "c" else np.float64
            absolute, relative = TOLERANCE.get(str(want.dtype), (1e-4, 1e-3))
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), atol=absolute, rtol=relative, err_msg=where)
        else:
            np.testing.assert_array_equal(got, want, err_msg=where)
    elif isinstance(want, (list, tuple)):
        assert isinstance(got, type(want)) and len(got) == len(want), f"{where}: {got!r}, not {want!r}"
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            assert_same(g, w, f"{where}[{i}]")
    elif isinstance(want, dict):
        assert isinstance(got, dict) and list(got) == list(want), f"{where}: {got!r}, not {want!r}"
        for key in want:
            assert_same(got[key], want[key], f"{where}[{key!r}]")
    elif isinstance(want, float):
        assert type(got) is float and (got == want or abs(got - want) <= 1e-9 * abs(want) or want != want), (
            f"{where}: {got!r}, not {want!r}"
        )
    elif isinstance(want, complex):
        assert type(got) is complex and abs(got - want) <= 1e-9 * abs(want), f"{where}: {got!r}, not {want!r}"
    else:
        assert type(got) is type(want) and got == want, f"{where}: {got!r}, not {want!r}"
