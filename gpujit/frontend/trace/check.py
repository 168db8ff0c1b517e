"""Whether a trace computes what the function computes: run again, on the same inputs and on inputs of other sizes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpujit.frontend.trace.main import Recording, Step
from gpujit.frontend.trace.report import QUIET, Diagnostic
from gpujit.support.errors import GpujitError, TraceCheckError, TraceError, TracerWarning

# So many kinds of other sizes are tried at most.
_SIZES = 6


@dataclass(slots=True)
class Checker:
    """What a check needs of a trace.

    Args:
        recording: the trace to be checked.
        plain: runs the function as it is written, on (args, kwargs).
        run: runs the traced function.
        again: records the function anew on inputs, without warnings.
        tolerance: relative; the absolute one is a tenth of it.
        strict: raise TraceError where other sizes give another result.
    """

    recording: Recording
    plain: Callable[..., Any]
    run: Callable[..., Any]
    again: Callable[..., Recording]
    tolerance: float
    strict: bool = False

    def check(self, args: Sequence[Any], kwargs: dict[str, Any], others: Sequence[Sequence[Any]] = ()) -> None:
        """Check on the example inputs, on other ones that are given, and on some of other sizes.

        Raises TraceCheckError where the example inputs or those given show a difference. Other sizes that do are
        listed in the report, with a warning.
        """
        second = self.again(args, kwargs)
        self._same_inputs(args, kwargs, second)
        for other in others:
            found = self._difference(other, kwargs, None)
            if found:
                raise self._failed("check_inputs", found, self._first(self.again(other, kwargs)))
        if self.recording.is_random or self.recording.report.of_kind("random"):
            return
        for options in variations(args, kwargs):
            # Where one more is not taken, twice as many may be.
            any(self._other_sizes(varied, named) for varied, named in options)

    def _same_inputs(self, args: Sequence[Any], kwargs: dict[str, Any], second: Recording) -> None:
        first = self._first(second)
        if first is not None:
            step, other = first
            changed = step.kind == "prim::Constant" and other is not None and other.kind == step.kind
            what = "a constant" if changed else f"{step.kind} (the second run has {other.kind if other else 'nothing'})"
            self._list("random", what, step)
            return
        if self.recording.is_random:
            warnings.warn(
                "the trace draws random numbers, so that its results cannot be compared with the function's",
                TracerWarning,
                stacklevel=2,
            )
            return
        found = self._difference(args, kwargs, second)
        if found:
            raise self._failed("the example inputs", found, first)

    def _other_sizes(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether the function takes these inputs; a difference is listed."""
        try:
            second = self.again(args, kwargs)
        except Exception:
            return False
        found = self._difference(args, kwargs, second)
        if found:
            first = self._first(second)
            self._list("size", f"inputs of {_shapes(args, kwargs)}: {found}", None if first is None else first[0])
        return True

    def _list(self, kind: str, what: str, step: Step | None) -> None:
        diagnostic = Diagnostic(kind, what, None if step is None else step.place)
        if not self.recording.report.add(diagnostic):
            return
        if self.strict:
            raise TraceError(f"strict tracing: {diagnostic}")
        if kind not in QUIET:
            warnings.warn(str(diagnostic), TracerWarning, stacklevel=2)

    def _difference(self, args: Sequence[Any], kwargs: dict[str, Any], second: Recording | None) -> str:
        """How the trace differs from the function on these inputs; '' when it does not."""
        try:
            expected = self.plain(copied(args), copied(kwargs))
        except (AttributeError, TypeError):
            # Methods that PyTorch's tensors have and NumPy's arrays have not run in a trace only.
            expected = (second or self.again(args, kwargs)).returned
        try:
            found = self.run(copied(args), copied(kwargs))
        except GpujitError as error:
            return f"the trace fails: {error.message.splitlines()[0]}"
        return difference(found, expected, self.tolerance)

    def _first(self, second: Recording) -> tuple[Step, Step | None] | None:
        """The first step that another recording has otherwise."""
        return first_difference(self.recording.steps, second.steps)

    def _failed(self, what: str, found: str, first: tuple[Step, Step | None] | None) -> TraceCheckError:
        where = ""
        if first is not None and first[0].place is not None:
            place = first[0].place
            where = f"  first otherwise: {first[0].kind} at {place.source.name}:{place.shown_line}\n{place.highlight()}"
        return TraceCheckError(f"the trace does not compute what the function does on {what}: {found}", where=where)


def first_difference(a: Sequence[Step], b: Sequence[Step]) -> tuple[Step, Step | None] | None:
    """The first step of one recording that another has otherwise, with the other's; None when they are equal."""
    for i, step in enumerate(a):
        if i >= len(b):
            return step, None
        other = b[i]
        if (step.kind, step.operands) != (other.kind, other.operands) or not _same(step.constant, other.constant):
            return step, other
    return (b[len(a)], None) if len(b) > len(a) else None


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and (a is b or repr(a) == repr(b))


def difference(found: Any, expected: Any, tolerance: float) -> str:
    """How two results differ; '' when they agree in structure, dtypes, shapes and, within the tolerance, numbers."""
    if isinstance(expected, (tuple, list)):
        if not isinstance(found, (tuple, list)) or len(found) != len(expected):
            return f"{_kind(found)} instead of {_kind(expected)}"
        parts = zip(found, expected, strict=True)
        return next((f"result {i}: {d}" for i, (f, e) in enumerate(parts) if (d := difference(f, e, tolerance))), "")
    if isinstance(expected, dict):
        if not isinstance(found, dict) or list(found) != list(expected):
            return f"{_kind(found)} instead of {_kind(expected)}"
        return next((f"result {k!r}: {d}" for k in expected if (d := difference(found[k], expected[k], tolerance))), "")
    if not isinstance(expected, (np.ndarray, np.generic)):
        equal = found == expected or (found != found and expected != expected)
        if isinstance(expected, float) and isinstance(found, float):
            equal = bool(np.isclose(found, expected, rtol=tolerance, equal_nan=True))
        return "" if equal else f"{found!r} instead of {expected!r}"
    a, b = np.asarray(found), np.asarray(expected)
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
    if not a.size or a.tobytes() == b.tobytes():
        return ""
    if a.dtype.kind in "iub":
        return "" if np.array_equal(a, b) else f"{int(np.count_nonzero(a != b))} of {a.size} elements are otherwise"
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    scale = np.max(np.abs(b), where=np.isfinite(b), initial=0.0)
    if np.asarray(expected).dtype.itemsize <= 2:
        # NumPy sums numbers of two bytes in numbers of two bytes.
        tolerance, scale = max(tolerance, 2e-2), max(scale, 1.0)
    if np.allclose(a, b, rtol=tolerance, atol=tolerance * max(scale, 1e-6), equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
    return f"elements differ by up to {np.nanmax(apart):g}"


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def copied(value: Any) -> Any:
    """Inputs with arrays of their own, so that what a run writes is not seen by the next one."""
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(map(copied, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(copied, value))
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        return np.array(value)
    return value


Inputs = tuple[tuple[Any, ...], dict[str, Any]]


def variations(args: Sequence[Any], kwargs: dict[str, Any]) -> list[list[Inputs]]:
    """Inputs of other sizes: all axes of one size get another one together, one more or twice as many.

    Their elements are those of the example inputs, repeated, so that they stay within what the function expects.
    """
    sizes: dict[int, None] = {}
    _collect((tuple(args), kwargs), sizes)
    given: Inputs = (tuple(args), kwargs)
    found: list[list[Inputs]] = [
        [resized(given, size, size + 1), resized(given, size, size * 2)] for size in list(sizes)[:_SIZES]
    ]
    if len(sizes) > 1:
        every = given
        for size in sorted(sizes, reverse=True):
            every = resized(every, size, size + 1)
        found.append([every])
    return found


def _collect(value: Any, sizes: dict[int, None]) -> None:
    if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        # Axes of one element are there to be broadcast.
        sizes.update(dict.fromkeys(s for s in np.shape(value) if s > 1))
    elif isinstance(value, (tuple, list)):
        for v in value:
            _collect(v, sizes)
    elif isinstance(value, dict):
        _collect(list(value.values()), sizes)


def resized(value: Any, size: int, new: int) -> Any:
    """A value whose arrays have ``new`` elements along axes of ``size``."""
    if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        array = np.asarray(value)
        for d, s in enumerate(array.shape):
            if s == size:
                array = np.take(array, np.arange(new) % s, axis=d)
        return array
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make([resized(v, size, new) for v in value])
    if isinstance(value, (tuple, list)):
        return type(value)([resized(v, size, new) for v in value])
    if isinstance(value, dict):
        return {k: resized(v, size, new) for k, v in value.items()}
    return value


def _shapes(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    arrays = [a for a in (*args, *kwargs.values()) if hasattr(a, "shape")]
    return ", ".join(f"{a.dtype}{list(a.shape)}" for a in arrays)
