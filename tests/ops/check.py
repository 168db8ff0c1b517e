"""Shared by the operator tests: run one entry on NumPy, and compare it with PyTorch when PyTorch is installed."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpujit.ir.schema import Argument
from gpujit.ir.types import TensorType
from gpujit.ops import table
from gpujit.ops.infer import infer
from gpujit.ops.infer_cases import type_of
from gpujit.ops.infer_check import admits, checked
from gpujit.ops.registry import Op

TOLERANCE = {
    "float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-5, "complex64": 2e-5, "float64": 1e-9, "complex128": 1e-9,
}  # fmt: skip


def run(name: str, *args: Any) -> Any:
    """Result of the entry ``aten::add.Tensor`` for positional arguments; missing trailing ones take their defaults.

    What it returns must be what its type rule says, also when the rule is not told every size.
    """
    op = table.by_full_name(name)
    assert op is not None, f"{name} is not in the table"
    full = list(args)
    for argument in op.schema.arguments[len(args) :]:
        assert argument.has_default, f"{name}: argument {argument.name} has no default"
        full.append(argument.default)
    types = [type_of(a) for a in full]
    before = [[a.tobytes() for a in arrays_in(x)] for x in full]
    with np.errstate(all="ignore"):
        result = checked(op, op.kernel(np))(*full)
    check_hidden(op, types, result)
    check_memory(op, before, full, result)
    return result


def check_memory(op: Op, before: Sequence[Any], args: Sequence[Any], result: Any) -> None:
    """What was written, and what results share memory with, must be declared with the entry."""
    arguments, returns = op.schema.arguments, op.schema.returns
    written = [
        a for argument, x in zip(arguments, args, strict=False) if is_written(op, argument) for a in arrays_in(x)
    ]
    for argument, old, new in zip(arguments, before, args, strict=False):
        for text, array in zip(old, arrays_in(new), strict=not is_written(op, argument)):
            if not any(np.may_share_memory(array, w) for w in written):
                assert array.tobytes() == text, f"{op.full_name} writes {argument.name}, which its schema does not mark"
    if op.may_alias or op.kind == "prim":
        return
    results = result if isinstance(result, tuple) and len(returns) > 1 else (result,)
    for returned, value in zip(returns, results, strict=False):
        names = names_of(returned)
        if "*" in names:
            continue
        pairs = list(zip(arguments, args, strict=False))
        marked = [a for argument, x in pairs if names & names_of(argument) for a in arrays_in(x)]
        for argument, x in pairs:
            for array in arrays_in(x):
                if any(array is m or np.may_share_memory(array, m) for m in marked):
                    continue
                shared = any(a is array or np.shares_memory(a, array) for a in arrays_in(value))
                assert not shared, f"{op.full_name} returns memory of {argument.name}; declare may_alias=True"


def is_written(op: Op, argument: Argument) -> bool:
    """Whether the entry declares that it writes an argument, or what is in it."""
    marks = (argument.alias, argument.element_alias)
    return argument.name in op.hidden_writes or any(m is not None and m.is_write for m in marks)


def arrays_in(value: Any) -> list[np.ndarray]:
    """The arrays in a value, lists and tuples gone through."""
    if isinstance(value, (list, tuple)):
        return [a for v in value for a in arrays_in(v)]
    return [value] if isinstance(value, np.ndarray) else []


def names_of(argument: Argument) -> set[str]:
    """The alias sets of an argument or return."""
    return {n for m in (argument.alias, argument.element_alias) if m is not None for n in m.before}


def check_hidden(op: Op, types: Sequence[Any], result: Any) -> None:
    """With some sizes not known, the inferred type must still admit what was returned."""
    draw = random.Random(f"{op.full_name}{[t.shape for t in types if isinstance(t, TensorType)]}")

    def hide(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(hide, value))
        if not isinstance(value, TensorType) or value.shape is None:
            return value
        return TensorType(value.dtype, tuple(None if draw.random() < 0.5 else n for n in value.shape))

    hidden = [hide(t) for t in types]
    inferred = infer(op, hidden)
    shown = f"{op.full_name}({', '.join(map(str, hidden))})"
    assert not op.schema.returns or admits(inferred, result), f"{shown}: {inferred} does not admit {type_of(result)}"


def to_torch(value: Any) -> Any:
    """The same value with tensors instead of arrays (strides kept)."""
    import torch

    if isinstance(value, np.ndarray):
        if value.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(value.view(np.int16).copy()).view(torch.bfloat16)
        if any(s < 0 for s in value.strides):
            value = value.copy()
        return torch.from_numpy(value) if value.dtype != np.uint16 else torch.from_numpy(value.copy())
    if isinstance(value, list):
        return [to_torch(v) for v in value]
    if isinstance(value, tuple):
        return tuple(to_torch(v) for v in value)
    return value


def from_torch(value: Any) -> Any:
    """Arrays instead of tensors."""
    import torch

    if isinstance(value, torch.Tensor):
        value = value.detach().resolve_conj().resolve_neg()
        if value.dtype == torch.bfloat16:
            return value.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return value.numpy()
    if isinstance(value, (list, tuple)):
        return type(value)(from_torch(v) for v in value)
    return value


def assert_same(got: Any, want: Any, tolerance: float | None = None, where: str = "result") -> None:
    """Same structure, dtypes, shapes and values (NaN equals NaN); floats within the dtype's tolerance."""
    if isinstance(want, (list, tuple)):
        assert isinstance(got, (list, tuple)) and len(got) == len(want), f"{where}: {got!r} against {want!r}"
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            assert_same(g, w, tolerance, f"{where}[{i}]")
    elif isinstance(want, np.ndarray):
        assert isinstance(got, np.ndarray), f"{where}: {type(got)} instead of an array"
        assert got.dtype == want.dtype, f"{where}: dtype {got.dtype}, expected {want.dtype}"
        assert got.shape == want.shape, f"{where}: shape {got.shape}, expected {want.shape}"
        tol = TOLERANCE.get(str(want.dtype)) if tolerance is None else tolerance
        if tol is None:
            np.testing.assert_array_equal(got, want, err_msg=where)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tol, atol=tol, err_msg=where)
    elif isinstance(want, float):
        assert type(got) is type(want), f"{where}: {got!r} against {want!r}"
        np.testing.assert_allclose(got, want, rtol=1e-12, err_msg=where)
    else:
        assert type(got) is type(want) and got == want, f"{where}: {got!r} against {want!r}"


def against_torch(name: str, *args: Any, tolerance: float | None = None, strides: bool = False) -> None:
    """Compare an entry with PyTorch on these arguments, results and written-to ones alike. Skips without PyTorch."""
    torch = pytest.importorskip("torch")
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    theirs_args = copy.deepcopy([to_torch(copy.deepcopy(a)) for a in args])
    packet = getattr(getattr(torch.ops, namespace), base)
    op = table.by_full_name(name)
    assert op is not None, f"{name} is not in the table"
    arguments = op.schema.arguments
    positional = [a for a, s in zip(theirs_args, arguments, strict=False) if not s.kwarg_only]
    keywords = {s.name: a for a, s in zip(theirs_args, arguments, strict=False) if s.kwarg_only}
    with torch.no_grad():
        want = from_torch(getattr(packet, overload or "default")(*positional, **keywords))
    ours_args = [copy.deepcopy(a) for a in args]
    got = run(name, *ours_args)
    assert_same(got, want, tolerance, name)
    if strides and isinstance(want, np.ndarray):
        assert got.strides == want.strides, f"{name}: strides {got.strides}, expected {want.strides}"
    for i, (ours, theirs) in enumerate(zip(ours_args, theirs_args, strict=True)):
        if isinstance(ours, np.ndarray):
            assert_same(ours, from_torch(theirs), tolerance, f"{name}: argument {i} after the call")
