"""What a NumPy function computes, as steps from arrays to arrays, and the one kernel that runs them.

A ``Step`` has a shape and a dtype and says how one element comes from its operands' elements. Steps that reduce share
one operand shape and one set of axes: the rows of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from gpujit.ir import scalar
from gpujit.ir.scalar import Expr, RecordError
from gpujit.kernels.index import dim, index
from gpujit.kernels.tile import TileProgram
from gpujit.kernels.tile_build import Builder
from gpujit.kernels.views import Coords, expand

Make = Callable[[Sequence[Expr]], "tuple[Expr, Sequence[tuple[Expr, str]]]"]


@dataclass(frozen=True, eq=False)
class Step:
    """One operation, or an argument (``argument`` is its number).

    ``axes``: the dims of its operand that it reduces; ``keepdims``: whether they stay, with size 1.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    operands: tuple[Step, ...] = ()
    make: Make | None = None
    argument: int | None = None
    axes: tuple[int, ...] | None = None
    keepdims: bool = False


@dataclass(frozen=True)
class Kernel:
    """A program, the arguments it reads and the shapes and dtypes of what it writes."""

    program: TileProgram
    arguments: tuple[int, ...]
    outputs: tuple[tuple[tuple[int, ...], np.dtype], ...]
    sizes: tuple[int, ...]


def all_steps(roots: Iterable[Step]) -> list[Step]:
    """All steps that ``roots`` are made of, operands first."""
    done: dict[Step, None] = {}
    stack = [(step, False) for step in roots]
    while stack:
        step, is_ready = stack.pop()
        if step in done:
            continue
        if is_ready:
            done[step] = None
        else:
            stack.append((step, True))
            stack += [(s, False) for s in step.operands]
    return list(done)


def kernel_of(results: Sequence[Step]) -> Kernel:
    """One kernel for all results. Raises RecordError when one is not enough."""
    return _Lowering(results).run()


@dataclass
class _Lowering:
    results: Sequence[Step]
    numbers: dict[int, int] = field(default_factory=dict)
    done: dict[tuple[Step, Coords], Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        reductions = [s for s in all_steps(self.results) if s.axes is not None]
        kinds = dict.fromkeys((s.operands[0].shape, s.axes) for s in reductions)
        if len(kinds) > 1:
            found = " and ".join(f"{list(axes or ())} of {list(shape)}" for shape, axes in kinds)
            raise RecordError(f"it reduces {found}; one kernel reduces the same dims of the same shape everywhere")
        self.axes: tuple[int, ...] = ()
        if kinds:
            (self.frame, axes) = next(iter(kinds))
            self.axes = axes or ()
        else:
            self.frame = max((s.shape for s in self.results), key=lambda shape: (prod(shape), len(shape)))
        order = [d for d in range(len(self.frame)) if d not in self.axes] + list(self.axes)
        self.sizes = tuple(self.frame[d] for d in order)
        self.coords: Coords = tuple(dim(order.index(d)) for d in range(len(self.frame)))
        self.builder = Builder(len(order), len(self.axes))

    def run(self) -> Kernel:
        outputs = []
        for step in self.results:
            at = self.place_of(step)
            self.builder.store(self.builder.output(step.dtype, len(step.shape)), at, self.element(step, at))
            outputs.append((step.shape, step.dtype))
        return Kernel(self.builder.finish(), tuple(self.numbers), tuple(outputs), self.sizes)

    def place_of(self, step: Step) -> Coords:
        """Where a result lies in the kernel's space."""
        if step.shape == self.frame:
            return self.coords
        if self.axes:
            if step.shape == tuple(1 if d in self.axes else n for d, n in enumerate(self.frame)):
                return tuple(index(0) if d in self.axes else c for d, c in enumerate(self.coords))
            if step.shape == tuple(n for d, n in enumerate(self.frame) if d not in self.axes):
                return tuple(c for d, c in enumerate(self.coords) if d not in self.axes)
        raise RecordError(
            f"a result of shape {list(step.shape)} beside {list(self.frame)} needs a kernel of its own; "
            "split the function"
        )

    def element(self, step: Step, at: Coords) -> Expr:
        """The element of a step at a place. Recursion is as deep as the function's longest chain of steps."""
        found = self.done.get((step, at))
        if found is None:
            found = self.done[step, at] = self.computed(step, at)
        return found

    def computed(self, step: Step, at: Coords) -> Expr:
        if step.argument is not None:
            number = self.numbers.get(step.argument)
            if number is None:
                number = self.numbers[step.argument] = self.builder.input(step.dtype, len(step.shape))
            return self.builder.load(number, expand(at, [n == 1 for n in step.shape]))
        assert step.make is not None
        if step.axes is not None:
            outer = [c for d, c in enumerate(self.coords) if d not in self.axes]
            own = [c for d, c in enumerate(at) if not (step.keepdims and d in step.axes)]
            sizes = [n for d, n in enumerate(self.frame) if d not in self.axes]
            if any(n != 1 and a != b for a, b, n in zip(own, outer, sizes, strict=True)):
                raise RecordError(
                    "a reduction's result is read in another order than it is computed in; split the function"
                )
            places = [self.coords]
        else:
            places = [expand(at, [n == 1 for n in s.shape]) for s in step.operands]
        x, checks = step.make([self.element(s, place) for s, place in zip(step.operands, places, strict=True)])
        for condition, message in checks:
            self.builder.check(condition, message)
        return scalar.cast(x, step.dtype)
