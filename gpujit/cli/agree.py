"""Whether two results are the same: for each output how far apart they are, and whether that is more than rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gpujit.cli.output import safe, styled, table
from gpujit.cli.values import flatten, shape_text
from gpujit.ir.values import QTensor, SparseTensor

# What rounding may do, as a share of the largest number of an output; by dtype. Others have to be equal.
TOLERANCE = {"float64": 1e-7, "float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2, "complex128": 1e-7, "complex64": 1e-3}


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far numbers may be from those expected: ``atol + rtol * |expected|``.

    Without ``rtol`` that of ``TOLERANCE`` for the dtype, without ``atol`` as much as ``rtol`` of the largest number.
    """

    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One output of two.

    ``max_abs`` and ``max_relative`` are the largest differences, ``of_largest`` the first as a share of the largest
    number expected; None for what is no array of numbers. ``problem`` says what does not agree; empty when all does.
    """

    output: str
    dtype: str
    shape: str
    max_abs: float | None = None
    max_relative: float | None = None
    of_largest: float | None = None
    problem: str = ""

    @property
    def is_fine(self) -> bool:
        """Whether it agrees."""
        return not self.problem

    def as_json(self) -> dict[str, Any]:
        """The same for JSON."""
        return {**asdict(self), "ok": self.is_fine}


def differences(got: Any, wanted: Any, bounds: Bounds = Bounds()) -> list[Difference]:  # it is frozen
    """The differences of two results, leaf by leaf; outputs that only one has among them."""
    found, expected = dict(flatten(got)), dict(flatten(wanted))
    result = [
        Difference(name, "", "", problem="only one of the two has it")
        for name in {**expected, **found}
        if name not in found or name not in expected
    ]
    return [
        *(_difference(name, found[name], value, bounds) for name, value in expected.items() if name in found),
        *result,
    ]


def _difference(name: str, got: Any, wanted: Any, bounds: Bounds) -> Difference:
    if isinstance(got, QTensor) and isinstance(wanted, QTensor):
        same = np.array_equal(got.scale, wanted.scale) and np.array_equal(got.zero_point, wanted.zero_point)
        problem = "" if same else "scales or zero points differ"
        got, wanted = got.values, wanted.values
        return _arrays(name, got, wanted, bounds, problem)
    if isinstance(got, SparseTensor) and isinstance(wanted, SparseTensor):
        parts = zip(got.parts, wanted.parts, strict=False)
        bad = got.shape != wanted.shape or len(got.parts) != len(wanted.parts)
        bad = bad or any(not _arrays(name, a, b, bounds).is_fine for a, b in parts)
        return Difference(name, "sparse", shape_text(wanted.shape), problem="sparse tensors differ" if bad else "")
    if isinstance(got, np.ndarray) and isinstance(wanted, np.ndarray):
        return _arrays(name, got, wanted, bounds)
    if type(got) is not type(wanted):
        return Difference(name, "", "", problem=f"a {type(got).__name__} and a {type(wanted).__name__}")
    if isinstance(wanted, (bool, int, str, type(None))):
        problem = "" if got == wanted else f"{got!r} and {wanted!r}"
        return Difference(name, type(wanted).__name__, "", problem=problem)
    if isinstance(wanted, (float, complex)):
        found = _arrays(name, np.asarray(got), np.asarray(wanted), bounds)
        return Difference(
            name, type(wanted).__name__, "", found.max_abs, found.max_relative, found.of_largest, found.problem
        )
    # Objects of classes: what they hold is not compared.
    return Difference(name, type(wanted).__name__, "")


def _arrays(name: str, got: np.ndarray, wanted: np.ndarray, bounds: Bounds, problem: str = "") -> Difference:
    dtype, shape = str(wanted.dtype), shape_text(wanted.shape)
    if got.dtype != wanted.dtype:
        dtype, problem = f"{got.dtype}/{wanted.dtype}", problem or f"dtypes {got.dtype} and {wanted.dtype}"
    if got.shape != wanted.shape:
        other = shape_text(got.shape)
        return Difference(name, dtype, f"{other}/{shape}", problem=f"shapes {other} and {shape}")
    if not wanted.size:
        return Difference(name, dtype, shape, 0.0, 0.0, 0.0, problem)
    kind = np.complex128 if "c" in (got.dtype.kind, wanted.dtype.kind) else np.float64
    a, b = got.astype(kind), wanted.astype(kind)
    with np.errstate(all="ignore"):
        # Equal infinities, and NaN in the same places, are no difference.
        same = (got == wanted) | (np.isnan(a) & np.isnan(b))
        apart = np.where(same, 0.0, np.abs(a - b))
        size = np.abs(b)
        relative = np.where(apart == 0, 0.0, apart / size)
        largest = float(np.max(size, where=np.isfinite(size), initial=0.0))
        far = float(np.max(apart))
        if str(wanted.dtype) in TOLERANCE:
            rtol = TOLERANCE[str(wanted.dtype)] if bounds.rtol is None else bounds.rtol
            atol = rtol * largest if bounds.atol is None else bounds.atol
            wrong = ~same & ~(np.isfinite(apart) & (apart <= atol + rtol * size))
        else:
            # Large integers may be apart and have the same nearest float.
            wrong = ~same & ~(apart <= bounds.atol) if bounds.atol else ~same
    count = int(np.count_nonzero(wrong))
    if count and not problem:
        # The first of them, which says more than the largest.
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        place = f"[{', '.join(map(str, at))}]" if at else ""
        problem = f"{count} of {wrong.size} numbers, first {name}{place}: {got[at]} and {wanted[at]}"
    share = far / largest if largest else (0.0 if far == 0 else float("inf"))
    return Difference(name, dtype, shape, far, float(np.max(relative)), share, problem)


def fresh(values: Sequence[Any]) -> list[Any]:
    """Copies of inputs, which a model may write into."""
    return deepcopy(list(values))


def called(call: Callable[..., Any], values: Sequence[Any], seed: int) -> Any:
    """A result, with random numbers that are the same for the same seed."""
    from gpujit.ops.families.random.random import manual_seed

    manual_seed(seed)
    return call(*fresh(values))


def difference_table(found: Iterable[Difference]) -> str:
    """The differences for people."""
    rows = [
        (d.output, d.dtype, d.shape, _number(d.max_abs), _number(d.max_relative), "ok" if d.is_fine else "MISMATCH")
        for d in found
    ]
    return table(rows, ("output", "dtype", "shape", "max abs", "max rel", ""), indent="", right=(3, 4))


def problems(found: Iterable[Difference]) -> list[str]:
    """A line for each output that does not agree."""
    return [styled(f"{safe(d.output)}: {safe(d.problem)}", "red") for d in found if not d.is_fine]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
