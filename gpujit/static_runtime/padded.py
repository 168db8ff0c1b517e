"""An executor that pads inputs to buckets, so that few plans serve many sizes.

Only where it is proven that what is kept of the results stays the same (``passes.padding``); everything else is an
error, never another answer. What is added repeats the last row, so that no operator meets numbers it would not meet
without. A size above all buckets, and one of 0, has a plan of its own.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from gpujit.ir.graph import Graph
from gpujit.passes.padding.main import Sizes, prepare, prove
from gpujit.passes.padding.relations import Parts, Prefix, Relation
from gpujit.passes.specialise.guards import Guard
from gpujit.runtime.executor import Executor, key_of_values
from gpujit.runtime.fused import is_close
from gpujit.runtime.outputs import Targets, put
from gpujit.runtime.stats import PlanStats
from gpujit.static_runtime.buckets import Bucket
from gpujit.support.config import config
from gpujit.support.errors import GpujitError, InternalError, PaddingError

log = logging.getLogger("gpujit.plan")

# Kinds of inputs whose fit is kept, specialised graphs, and kinds of buffers.
MAX_FITS, MAX_GRAPHS, MAX_BUFFERS = 1024, 16, 16


@dataclass(frozen=True, slots=True)
class Change:
    """One dim of one input that grows."""

    position: int
    dim: int
    kept: int
    padded: int
    bucket: Bucket


@dataclass(slots=True)
class _Fit:
    """What becomes of inputs of one kind.

    Args:
        changes: none for those that run as they are.
        relations: how results contain those without the padding, for dims that grow one after the other.
        guards: what the proofs assume of attributes.
        is_alone: whether they have a plan of their own: for a size above all buckets, or where padding fails.
        fault: why they cannot be padded.
        note: what to say of them.
        is_checked: whether the results were compared with those without padding.
    """

    changes: tuple[Change, ...] = ()
    relations: tuple[Relation, ...] = ()
    guards: tuple[Guard, ...] = ()
    is_alone: bool = False
    fault: PaddingError | None = None
    note: str = ""
    is_checked: bool = False


class PaddedExecutor(Executor):
    """An Executor for a function whose inputs have buckets.

    Args:
        buckets: dims of inputs, whose positions do not count ``self``.
        others: as for an Executor.
    """

    def __init__(self, buckets: Sequence[Bucket], *others: Any, **options: Any) -> None:
        super().__init__(*others, **options)
        self.buckets = tuple(replace(b, position=b.position + self._first) for b in buckets)
        self._fits: OrderedDict[Any, _Fit] = OrderedDict()
        self._graphs: OrderedDict[Any, tuple[Graph, tuple[Guard, ...]]] = OrderedDict()
        self._buffers: dict[Any, list[np.ndarray]] = {}
        self._proving = threading.Lock()
        self._padded = self._fitting = self._alone = self._rows = 0

    def __call__(self, values: list[Any], out: Targets | None = None) -> Any:
        """The function's result; inputs are padded and results cut. Raises PaddingError where that is not proven."""
        given, finish = self.fitted(values)
        if finish is None:
            return super().__call__(values, out)
        try:
            result = super().__call__(given)
        except GpujitError as fault:
            # Either it fails without padding too, and says so of the inputs themselves, or it must do without.
            result = super().__call__(values, out)
            self._run_alone(values, fault)
            return result
        result = finish(result)
        return result if out is None else put(result, out)

    def quick(self) -> None:
        """Nothing: each call is looked at for its sizes, and counted."""

    def _run_alone(self, values: list[Any], fault: GpujitError) -> None:
        """Note that inputs of this kind run as they are from now on."""
        message = f"{self.function.name} runs without padding what fails with it: {fault.message}"
        log.warning(message)
        self._fits[key_of_values(values[self._first :])] = _Fit(is_alone=True, note=message)

    def fitted(self, values: list[Any]) -> tuple[list[Any], Callable[[Any], Any] | None]:
        """Values of a bucket's sizes, and what cuts a result for them; or the given ones, and None."""
        try:
            key = key_of_values(values[self._first :])
        except TypeError:
            return values, None
        fit = self._fits.get(key)
        if fit is None or not all(g.holds(values) for g in fit.guards):
            fit = self._decided(key, values)
        if fit.fault is not None:
            # One for each call: tracebacks grow.
            raise PaddingError(fit.fault.message, where=fit.fault.where)
        if not fit.changes:
            self._fitting += not fit.is_alone
            self._alone += fit.is_alone
            return values, None
        filled = self._filled(values, fit.changes)
        if filled is None:
            self._alone += 1
            return values, None
        self._padded += 1
        self._rows += sum(c.padded - c.kept for c in fit.changes)
        given, buffers = filled
        return given, partial(self._finish, fit, values, buffers)

    def _finish(self, fit: _Fit, values: list[Any], buffers: list[tuple[Any, np.ndarray]], result: Any) -> Any:
        for relation in fit.relations:
            result = cut(result, relation)
        result = _apart(result, [b for _, b in buffers])
        if config.check_padding and not fit.is_checked:
            _compare(result, self.interpret(values), self.function.name)
            fit.is_checked = True
        for key, buffer in buffers:
            self._buffers.setdefault(key, []).append(buffer)
        return result

    # Padding

    def _filled(
        self, values: list[Any], changes: Sequence[Change]
    ) -> tuple[list[Any], list[tuple[Any, np.ndarray]]] | None:
        """The values with padded arrays, and these, with what they are kept under.

        None when one array is given in several places that are not padded alike: a program may ask whether it is one.
        """
        given, buffers = list(values), []
        groups = {p: tuple(g) for p, g in groupby(changes, lambda c: c.position)}
        dims_of = {p: [(c.dim, c.padded) for c in g] for p, g in groups.items()}
        first: dict[int, int] = {}
        for position, value in enumerate(values):
            if isinstance(value, np.ndarray):
                other = first.setdefault(id(value), position)
                if dims_of.get(other) != dims_of.get(position):
                    return None
        for position, dims in groups.items():
            array = values[position]
            if first[id(array)] != position:
                given[position] = given[first[id(array)]]
                continue
            shape = list(array.shape)
            for c in dims:
                shape[c.dim] = c.padded
            key = position, tuple(shape), array.dtype
            buffer = self._buffer(key)
            _fill(buffer, array, dims)
            given[position] = buffer
            buffers.append((key, buffer))
        return given, buffers

    def _buffer(self, key: Any) -> np.ndarray:
        """An array that nobody else uses, with any numbers."""
        idle = self._buffers.get(key)
        if idle:
            with suppress(IndexError):
                return idle.pop()
        elif len(self._buffers) > MAX_BUFFERS:
            self._buffers = {}
        _, shape, dtype = key
        return np.empty(shape, dtype)

    # Proofs

    def _decided(self, key: Any, values: list[Any]) -> _Fit:
        with self._proving:
            fit = self._fits.get(key)
            if fit is None or not all(g.holds(values) for g in fit.guards):
                fit = self._fits[key] = self._fit_of(values)
                while len(self._fits) > MAX_FITS:
                    self._fits.popitem(last=False)
        return fit

    def _fit_of(self, values: list[Any]) -> _Fit:
        changes, is_beyond = [], False
        for bucket, array in self._bucketed(values):
            dim = bucket.dim % array.ndim
            size, holding = array.shape[dim], bucket.holding(array.shape[dim])
            if size == 0:
                # There is no row to repeat.
                return _Fit()
            is_beyond |= holding is None
            if holding is not None and holding != size:
                changes.append(Change(bucket.position, dim, size, holding, bucket))
        if not changes:
            return self._early(values, is_beyond)
        return self._proven(values, tuple(changes))

    def _early(self, values: list[Any], is_beyond: bool) -> _Fit:
        """Inputs that fit as they are; where others could not be padded to their sizes, they are told so at once."""
        smaller = []
        for bucket, array in self._bucketed(values):
            dim = bucket.dim % array.ndim
            size = array.shape[dim]
            if bucket.holding(size) == size and size - 1 > max(bucket.below(size), 1):
                smaller.append(Change(bucket.position, dim, size - 1, size, bucket))
        if not smaller or is_beyond:
            return _Fit(is_alone=is_beyond)
        shapes = self._shapes(values)
        for change in smaller:
            shapes[change.position][change.dim] = change.kept
        found = self._proven(_with_shapes(values, shapes), tuple(smaller))
        return _Fit(guards=found.guards, fault=found.fault)

    def _bucketed(self, values: list[Any]) -> Iterator[tuple[Bucket, np.ndarray]]:
        for bucket in self.buckets:
            array = values[bucket.position]
            if type(array) is not np.ndarray:
                continue
            if not -array.ndim <= bucket.dim < array.ndim:
                message = f"{self.function.name}: {bucket.name} has {array.ndim} dims, and buckets for dim {bucket.dim}"
                raise PaddingError(message)
            yield bucket, array

    def _proven(self, values: list[Any], changes: tuple[Change, ...]) -> _Fit:
        """The fit of values that grow so, dim after dim; those of several inputs that agree are one."""
        groups: dict[Any, list[Change]] = {}
        for c in changes:
            groups.setdefault((c.dim, c.kept, c.padded, c.bucket.sizes), []).append(c)
        shapes = self._shapes(values)
        for c in changes:
            shapes[c.position][c.dim] = c.padded
        relations: list[Relation] = []
        guards: list[Guard] = []
        try:
            padded, assumed = self._graph_for(_with_shapes(values, shapes))
            guards += assumed
            for group in groups.values():
                for c in group:
                    shapes[c.position][c.dim] = c.kept
                kept, assumed = self._graph_for(_with_shapes(values, shapes))
                guards += assumed
                sizes = Sizes(group[0].kept, group[0].padded)
                found = prove(kept, padded, {c.position: c.dim for c in group}, sizes)
                relations.append(found[0] if len(found) == 1 else Parts(found))
                padded = kept
        except GpujitError as fault:
            return _Fit(guards=tuple(guards), fault=self._refusal(changes, fault))
        return _Fit(tuple(sorted(changes, key=lambda c: c.position)), tuple(relations), tuple(guards))

    def _shapes(self, values: list[Any]) -> dict[int, list[int]]:
        return {b.position: list(x.shape) for b, x in self._bucketed(values)}

    def _graph_for(self, values: list[Any]) -> tuple[Graph, tuple[Guard, ...]]:
        """The prepared graph for values, of whose tensors only shape and dtype count, and what it assumes."""
        key = key_of_values(values[self._first :])
        found = self._graphs.get(key)
        if found is None or not all(g.holds(values) for g in found[1]):
            made = self.specialised_only(values)
            guards = tuple(g for g in made.guards if not g.path.startswith("input "))
            found = self._graphs[key] = prepare(made.graph), guards
            while len(self._graphs) > MAX_GRAPHS:
                self._graphs.popitem(last=False)
        return found

    def _refusal(self, changes: Sequence[Change], fault: GpujitError) -> PaddingError:
        sizes = ", ".join(
            f"dim {c.dim} of {c.bucket.name or f'input {c.position}'} cannot be padded from {c.kept} to {c.padded}"
            for c in changes
        )
        return PaddingError(f"{self.function.name}: {sizes}: {fault.message}", where=fault.where)

    # What was done

    def explain(self) -> str:
        """What buckets were used for, before what an Executor says."""
        named = "; ".join(str(replace(b, position=b.position - self._first)) for b in self.buckets)
        counts = (
            f"{self.function.name} pads {named}: {self._padded} calls were padded by {self._rows} rows in all, "
            f"{self._fitting} fitted, {self._alone} had sizes with plans of their own"
        )
        faults = [f.note if f.fault is None else f.fault.message for f in list(self._fits.values())]
        faults = list(dict.fromkeys(filter(None, faults)))
        return "\n".join([counts, *faults]) + "\n\n" + super().explain()

    def stats(self) -> PlanStats:
        """What was done so far."""
        idle = sum(b.nbytes for buffers in list(self._buffers.values()) for b in list(buffers))
        found = super().stats()
        return replace(
            found,
            memory=found.memory + idle,
            padded=self._padded,
            rows=self._rows,
            fitting=self._fitting,
            alone=self._alone,
        )


def _with_shapes(values: list[Any], shapes: dict[int, list[int]]) -> list[Any]:
    """The values with arrays of other shapes, which take no memory."""
    given = list(values)
    for position, shape in shapes.items():
        given[position] = np.broadcast_to(np.zeros((), values[position].dtype), shape)
    return given


def _fill(buffer: np.ndarray, array: np.ndarray, changes: Sequence[Change]) -> None:
    """Put an array first in a buffer, and repeat its last elements along each dim behind it."""
    at = [slice(None)] * buffer.ndim
    for c in changes:
        at[c.dim] = slice(0, c.kept)
    buffer[tuple(at)] = array
    for c in changes:
        last, behind = list(at), list(at)
        last[c.dim], behind[c.dim] = slice(c.kept - 1, c.kept), slice(c.kept, c.padded)
        buffer[tuple(behind)] = buffer[tuple(last)]
        at[c.dim] = slice(None)


def cut(result: Any, relation: Relation) -> Any:
    """What is kept of a result."""
    if isinstance(relation, Prefix):
        return result[(slice(None),) * relation.dim + (slice(0, relation.kept),)]
    if not isinstance(relation, Parts):
        return result
    if isinstance(result, dict):
        return {k: cut(v, r) for (k, v), r in zip(result.items(), relation.items, strict=True)}
    return _like(result, [cut(v, r) for v, r in zip(result, relation.items, strict=True)])


def _like(container: Any, parts: list[Any]) -> Any:
    if isinstance(container, tuple):
        return container._make(parts) if hasattr(container, "_make") else tuple(parts)
    return parts


def _apart(result: Any, buffers: Sequence[np.ndarray]) -> Any:
    """A result that shares no memory with buffers, which later calls fill."""
    if isinstance(result, np.ndarray):
        return result.copy() if any(np.may_share_memory(result, b) for b in buffers) else result
    if isinstance(result, dict):
        return {k: _apart(v, buffers) for k, v in result.items()}
    if isinstance(result, (list, tuple)):
        return _like(result, [_apart(v, buffers) for v in result])
    return result


def _compare(result: Any, wanted: Any, name: str) -> None:
    """Raises InternalError when a result is not what the interpreter computes without padding."""
    if isinstance(wanted, np.ndarray):
        is_same = result.shape == wanted.shape and result.dtype == wanted.dtype
        if not is_same or not is_close(result, wanted):
            raise InternalError(f"{name}: padded inputs give another result than those without padding")
    elif isinstance(wanted, dict):
        for key in wanted:
            _compare(result[key], wanted[key], name)
    elif isinstance(wanted, (list, tuple)):
        for a, b in zip(result, wanted, strict=True):
            _compare(a, b, name)
