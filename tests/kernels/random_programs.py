"""Random tile programs with calls of them, for tests of renderers (a hypothesis strategy).

What is drawn has one right answer: values that went through rounding (sums, exp, ..) only meet operations that do not
magnify a last digit, so results are compared within a tolerance (``assert_close``); everything else is exact.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from gpujit.ir import scalar
from gpujit.ir.dtypes import kind_of
from gpujit.ir.scalar import Expr
from gpujit.kernels import views
from gpujit.kernels.index import Index, dim, index, size, value
from gpujit.kernels.tile import Bound
from gpujit.kernels.tile_build import Builder
from tests.kernels.programs import Case

BOOL, I32, I64, F32, F64 = (np.dtype(d) for d in ("?", "i4", "i8", "f4", "f8"))
U8, F16, BF16 = np.dtype("u1"), np.dtype("f2"), np.dtype(ml_dtypes.bfloat16)
DTYPES = (F32, F32, F32, F64, F16, BF16, I32, I64, U8, BOOL)
SPECIAL = (np.nan, np.inf, -np.inf, -0.0)

# On floats that are exact: results stay exact, whatever jumps.
_EXACT_FLOAT = ("maximum", "minimum", "fmax", "fmin", "add", "sub", "mul", "copysign")
_EXACT_UNARY = ("floor", "ceil", "trunc", "rint", "neg", "abs")
# On any floats: the results are rounded, and differ by little where operands do.
_SMOOTH = ("add", "sub", "mul", "maximum", "minimum")
_SMOOTH_UNARY = ("tanh", "neg", "abs", "sin", "atan")
_ROUNDED_UNARY = ("exp", "tanh", "sqrt", "log1p", "cos", "sin", "erf", "exp2", "log", "rsqrt", "sigmoid")
_INTEGER = ("add", "sub", "mul", "maximum", "minimum", "and", "or", "xor", "floordiv", "mod", "fmod")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


class _Maker:
    """A program under construction and the arrays of its call."""

    def __init__(self, draw: Any, sizes: Sequence[int], rows: int, dtypes: Sequence[np.dtype]) -> None:
        self.draw, self.sizes, self.dtypes = draw, tuple(sizes), dtypes
        self.builder = Builder(len(sizes), rows)
        self.random = np.random.default_rng(draw(st.integers(0, 1 << 16)))
        self.arrays: list[np.ndarray] = []
        self.params: list[int] = []
        # (expression, whether it is exact)
        self.values: list[tuple[Expr, bool]] = []

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def array(self, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
        """Small numbers, some special ones among floats; contiguous, transposed or with gaps."""
        spread = np.asarray(self.random.integers(-8, 9, tuple(shape)))
        if kind_of(dtype) == 2:
            x = np.asarray(spread / 4)
            if self.draw(st.booleans()) and x.size:
                x[self.random.random(x.shape) < 0.1] = self.pick(SPECIAL)
        else:
            x = np.asarray(np.abs(spread) if dtype == U8 else spread)
        x = x.astype(dtype)
        how = self.pick(("plain", "transposed", "gaps", "backwards"))
        if how == "transposed" and x.ndim > 1:
            return np.ascontiguousarray(x.swapaxes(0, -1)).swapaxes(0, -1)
        if how == "gaps" and x.ndim:
            wide = np.zeros((*x.shape[:-1], x.shape[-1] * 2), dtype)
            wide[..., ::2] = x
            return wide[..., ::2]
        if how == "backwards" and x.ndim:
            return np.ascontiguousarray(x[::-1])[::-1]
        return x

    def load(self) -> None:
        """An input read through a random view."""
        dtype = self.pick(self.dtypes)
        dims = len(self.sizes)
        coords = tuple(dim(d) for d in range(dims))
        shape = list(self.sizes)
        mask, other = None, 0
        how = self.pick(
            ("plain", "plain", "expand", "permute", "slice", "flip", "pad", "roll", "gather", "merge", "few")
        )
        d = self.pick(range(dims)) if dims else None
        if d is None or how == "plain":
            pass
        elif how == "expand":
            repeated = [self.draw(st.booleans()) for _ in shape]
            coords = views.expand(coords, repeated)
            shape = [1 if r else n for n, r in zip(shape, repeated, strict=True)]
        elif how == "few":
            coords, shape = coords[d:], shape[d:]
        elif how == "permute":
            order = self.draw(st.permutations(range(dims)))
            coords = views.permute(coords, order)
            # Dim i of the result is the operand's dim order[i].
            shape = [self.sizes[order.index(k)] for k in range(dims)]
        elif how == "slice":
            step, start = self.pick((1, 2)), self.param(self.pick((0, 1, 3)))
            coords = views.slice_(coords, d, start, step)
            shape[d] = shape[d] * step + self.params[-1]
        elif how == "flip":
            coords = views.flip(coords, [d], [size(d)])
        elif how == "pad":
            before, inner = self.pick((0, 1, 2)), self.pick((0, 1, 2, 5))
            start, length = self.param(before), self.param(inner)
            coords, bounds = views.pad(coords, [(d, start, length)])
            mask, other = self.builder.inside(*bounds), 1
            shape[d] = inner
        elif how == "roll":
            start = self.param(self.pick(range(max(shape[d], 1))))
            coords = views.roll(coords, d, start, size(d))
        elif how == "gather":
            table = self.pick((1, 4))
            where, reach = self.positions(table), self.param(table)
            bound = Bound(index(0), value(where), reach)
            mask, other = self.builder.inside(bound), 0
            coords = (*coords[:d], value(where), *coords[d + 1 :])
            shape[d] = table
        elif how == "merge":
            # The same elements as one dim.
            coords = (sum_of_places(dims),)
            shape = [int(np.prod(self.sizes))]
        number = self.builder.input(dtype, len(shape))
        self.arrays.append(self.array(dtype, shape))
        x = self.builder.load(number, coords, mask, other)
        self.add(x if dtype not in (F16, BF16) else scalar.cast(x, F32), True)

    def positions(self, reach: int) -> Expr:
        """A table's index read from memory, some of it out of range."""
        number = self.builder.input(I64, len(self.sizes))
        self.arrays.append(np.asarray(self.random.integers(-1, reach + 1, self.sizes)))
        return self.builder.load(number, tuple(dim(d) for d in range(len(self.sizes))))

    def param(self, number: int) -> Index:
        self.params.append(number)
        return self.builder.param()

    def add(self, x: Expr, exact: bool) -> None:
        self.values.append((x, exact))

    def of_kind(self, *kinds: int) -> list[tuple[Expr, bool]]:
        return [v for v in self.values if kind_of(v[0].dtype) in kinds]

    def step(self) -> None:
        """One more value, most often of the last ones."""
        before = len(self.values)
        for _ in range(4):
            self.try_step()
            if len(self.values) > before:
                return

    def try_step(self) -> None:
        x, exact = self.pick(self.values[-3:])
        kind = kind_of(x.dtype)
        way = self.pick(("unary", "binary", "binary", "compare", "where", "cast", "position", "reduce", "reduce"))
        partners = [v for v in self.values if v[0].dtype == x.dtype]
        y, exact_too = self.pick(partners)
        both = exact and exact_too
        if way == "reduce":
            if self.builder.rows:
                self.reduce(x, exact)
        elif way == "unary":
            self.unary(x, exact)
        elif way == "binary" and kind == 2:
            if both:
                # Products of exact floats may need more digits than there are.
                name = self.pick(_EXACT_FLOAT)
                self.add(scalar.apply(name, x, y), name in ("maximum", "minimum", "fmax", "fmin", "copysign"))
            else:
                self.add(scalar.apply(self.pick(_SMOOTH), x, y), False)
        elif way == "binary":
            names = _INTEGER if kind == 1 else ("and", "or", "xor")
            self.add(scalar.apply(self.pick(names), x, y), both)
        elif way == "compare" and both:
            self.add(scalar.apply(self.pick(_COMPARISONS), x, y), True)
        elif way == "where":
            conditions = self.of_kind(0)
            if conditions:
                condition, known = self.pick(conditions)
                self.add(scalar.where(condition, x, y), both and known)
        elif way == "cast":
            wanted = self.pick((F32, F64, I32, I64, BOOL))
            # Infinities and NaN have no integer.
            if kind < 2 or kind_of(wanted) == 2:
                if exact or kind_of(wanted) == 2:
                    self.add(scalar.cast(x, wanted), exact and (kind < 2 and wanted == F64))
        elif way == "position" and self.sizes:
            self.add(self.builder.position(dim(self.pick(range(len(self.sizes)))) * 2 + 1), True)

    def unary(self, x: Expr, exact: bool) -> None:
        kind = kind_of(x.dtype)
        if kind == 0:
            self.add(scalar.apply("not", x), exact)
        elif kind == 1:
            self.add(scalar.apply(self.pick(("neg", "abs", "not")), x), exact)
        elif not exact:
            self.add(scalar.apply(self.pick(_SMOOTH_UNARY), x), False)
        elif self.draw(st.booleans()):
            self.add(scalar.apply(self.pick(_EXACT_UNARY), x), True)
        else:
            name = self.pick(_ROUNDED_UNARY)
            one = scalar.const(1.0, x.dtype)
            if name == "rsqrt":
                y = scalar.apply("div", one, scalar.apply("sqrt", x))
            elif name == "sigmoid":
                y = scalar.apply("div", one, scalar.apply("add", one, scalar.apply("exp", scalar.apply("neg", x))))
            else:
                y = scalar.apply(name, x)
            self.add(y, False)

    def reduce(self, x: Expr, exact: bool) -> None:
        empty = any(n == 0 for n in self.sizes[len(self.sizes) - self.builder.rows :])
        kind = kind_of(x.dtype)
        names = {0: ["any", "all"], 1: ["sum", "prod", "cumsum"], 2: ["sum", "sum", "prod", "cumsum"]}[kind]
        if not empty:
            names += ["max", "min"]
            if exact:
                names += ["argmax", "argmin"]
        name = self.pick(names)
        keeps = exact and (kind < 2 or name in ("max", "min", "argmax", "argmin"))
        self.add(scalar.reduce(name, x), keeps)


def sum_of_places(dims: int) -> Index:
    """The place in a contiguous array over the whole space."""
    flat = index(0)
    for d in range(dims):
        flat = flat * size(d) + dim(d)
    return flat


@st.composite
def cases(
    draw: Any, max_size: int = 6, max_dims: int = 3, dtypes: Sequence[np.dtype] = DTYPES, max_steps: int = 12
) -> Case:
    """A program with a call of it; ``outputs`` are to be filled."""
    dims = draw(st.sampled_from([0, *range(1, max_dims + 1), *range(1, max_dims + 1)]))
    # No places at all are rare, so that most programs do something.
    some = st.integers(1, max_size)
    sizes = draw(st.lists(some if draw(st.integers(0, 5)) else st.integers(0, max_size), min_size=dims, max_size=dims))
    rows = draw(st.integers(0, len(sizes)))
    make = _Maker(draw, sizes, rows, dtypes)
    for _ in range(draw(st.integers(1, 3))):
        make.load()
    for _ in range(draw(st.integers(2, max_steps))):
        make.step()
    outputs: list[np.ndarray] = []
    everything = tuple(dim(d) for d in range(len(sizes)))
    chosen = [make.values[-1], *(make.pick(make.values) for _ in range(draw(st.integers(0, 2))))]
    for x, _ in chosen:
        dtype = make.pick((F16, BF16)) if x.dtype == F32 and draw(st.integers(0, 4)) == 0 else x.dtype
        stored = scalar.cast(x, dtype)
        probe = Builder(len(sizes), rows)
        probe.inputs, probe.params = make.builder.inputs, make.builder.params
        probe.check(scalar.cast(x, BOOL), "")
        program = probe.finish()
        full = not rows or program.varies[program.effects[0].value] & set(program.row_dims) or draw(st.booleans())
        outer = len(sizes) if full else len(sizes) - rows
        number = make.builder.output(dtype, outer)
        at = everything[:outer]
        shape = tuple(sizes[:outer])
        if outer > 1 and draw(st.booleans()):
            # Into a transposed array.
            at, shape = at[::-1], shape[::-1]
        outputs.append(np.ones(shape, dtype))
        make.builder.store(number, at, stored)
    return Case(make.builder.finish(), make.arrays, outputs, tuple(sizes), tuple(make.params))


_IN_FLOAT32 = re.compile(r"^ *%\d+: float32 = (?!load|const|cast|where)", re.MULTILINE)


def assert_close(got: Sequence[np.ndarray], want: Sequence[np.ndarray], text: str = "") -> None:
    """Integers and bools equal; floats within what another order of rounding allows."""
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        if kind_of(w.dtype) < 2:
            np.testing.assert_array_equal(g, w, err_msg=f"output {i} of\n{text}")
            continue
        wide = w.astype(np.float64)
        finite = np.abs(wide[np.isfinite(wide)])
        scale = float(finite.max(initial=1.0))
        # A float64 result may come from numbers that were computed in float32.
        computed = F32 if w.dtype == F64 and _IN_FLOAT32.search(text) else w.dtype
        tolerance = {F16: 4e-3, BF16: 3e-2, F32: 2e-4, F64: 1e-9}[computed]
        close = {"rtol": tolerance, "atol": tolerance * min(scale, 1e30)}
        np.testing.assert_allclose(g.astype(np.float64), wide, err_msg=f"output {i} of\n{text}", **close)
