"""The CUDA renderer: a tile program as the readable Python source of a ``@cuda.jit`` kernel.

``render`` writes it; ``cuda_compile`` and ``cuda_launch`` turn it into machine code and run it. The source imports
device functions from ``cuda_device`` alone, so that the very same text runs in Numba's simulator. How threads are laid
out is said in ``cuda_tile``. Loops that all threads of a block must go through together (shuffles, shared memory) have
the same count in each; a thread without a row or an element of its own works on the last one and stores nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from gpujit.ir.dtypes import kind_of
from gpujit.kernels.cuda_ops import (
    DEVICE_NAMES,
    HALF_NAMES,
    NAME,
    held,
    literal,
)
from gpujit.kernels.cuda_reduce import Accumulator, high, low
from gpujit.kernels.cuda_source import Spot
from gpujit.kernels.cuda_tile import COLUMN, POINTS, CudaKernel
from gpujit.kernels.cuda_values import Values, checks_of
from gpujit.kernels.schedule import Pass
from gpujit.kernels.tile import (
    Reduce,
    operands_of,
)


def render(kernel: CudaKernel) -> str:
    """The source of a module with one kernel, named ``kernel``. Raises NotRendered for what has no code here."""
    return _Kernel(kernel).write()


def argument_types(kernel: CudaKernel) -> list[str]:
    """The kernel's arguments in order: ``int32`` or ``int64``, and ``*float32`` for a pointer."""
    p = kernel.program
    found = []
    for is_output, array in kernel.pointers:
        dtype = (p.outputs if is_output else p.inputs)[array].dtype
        found.append("*uint16" if dtype in HALF_NAMES else "*uint8" if dtype.name == "bool" else f"*{held(dtype)}")
    if checks_of(kernel):
        found.append("*int32")
    count = p.dims + p.params + len(kernel.numbers)
    return found + [f"int{kernel.tile.bits}"] * count


class _Kernel(Values):
    # The whole

    def write(self) -> str:
        kernel, s = self.kernel, self.s
        arguments = [kernel.pointer_name(k) for k in range(len(kernel.pointers))]
        if checks_of(kernel):
            arguments.append("flags")
        arguments += [f"n{d}" for d in range(self.p.dims)] + [f"p{k}" for k in range(self.p.params)]
        arguments += kernel.numbers
        s.line("@cuda.jit")
        with s.block(f"def kernel({', '.join(arguments)}):"):
            s.line("tid = int32(cuda.threadIdx.x)")
            function = Spot()
            self.fill(function, range(len(self.p.body)), lambda v: not self.p.varies[v] and self.is_ready(v))
            if self.tile.layout == POINTS:
                self.points(function)
            else:
                self.rows(function)
        body = s.lines
        used = sorted({n for line in body for n in NAME.findall(line)} & DEVICE_NAMES)
        title = [f"# {line}".rstrip() for line in (str(self.tile), *self.p.text.splitlines())]
        if any(len(line) > 120 for line in (*title, *body)):
            title.insert(0, "# ruff: noqa: E501")
        modules = "cuda, types" if any("types." in line for line in body) else "cuda"
        head = [*title, f"from numba import {modules}", "", "from gpujit.kernels.cuda_device import ("]
        head += [f"    {name}," for name in used] + [")", "", ""]
        return "\n".join([*head, *body]) + "\n"

    def is_ready(self, v: int) -> bool:
        """Whether a value can be computed before any row."""
        item = self.p.body[v]
        return not isinstance(item, Reduce) and all(self.is_ready(u) for u in operands_of(item))

    def divided(self, text: str, by: int) -> str:
        return text if by == 1 else f"udiv({text}, {self.int}({by}))"

    def unravel(
        self, number: str, dims: Sequence[int], names: dict[int, str], lengths: dict[int, str], mark: str
    ) -> None:
        """Lines that name the place along each dim, the last one fastest."""
        for k, d in enumerate(reversed(dims)):
            last = k == len(dims) - 1
            name = f"i{d}{mark}"
            if last:
                self.s.line(f"{name} = {number}")
            else:
                self.s.line(f"{name} = urem({number}, {lengths[d]})")
                rest = f"rest{d}{mark}"
                self.s.line(f"{rest} = udiv({number}, {lengths[d]})")
                number = rest
            names[d] = name

    # Points without rows

    def points(self, function: Spot) -> None:
        s, t, lane = self.s, self.tile, self.lane
        lengths = {d: f"n{d}" for d in range(self.p.dims)}
        if t.width > 1:
            count = f"n{lane}" if not t.has_tail else f"{self.int}(n{lane} + {t.width - 1})"
            s.line(f"vectors = {self.divided(count, t.width)}")
            lengths[lane] = "vectors"
        order = [d for d in range(self.p.dims) if d != lane] + [lane]
        s.line(f"units = {self.int}({' * '.join(lengths[d] for d in order)})")
        with self.grid("u", f"{self.int}(cuda.blockIdx.x * {t.block} + tid)", "units", t.block):
            names: dict[int, str] = {}
            self.unravel("u", order, names, lengths, "")
            at = names.pop(lane)
            if t.width > 1:
                s.line(f"at = {self.int}({at} * {t.width})")
                at = "at"
            (only,) = self.kernel.passes
            if not t.has_tail:
                self.perform(only, Spot(function, t.width, at, names))
                return
            with s.block(f"if at + {t.width} <= n{lane}:"):
                self.perform(only, Spot(function, t.width, at, names))
            with s.block("else:"), self.stride_loop("one", "at", f"n{lane}", "1"):
                self.perform(only, Spot(function, 1, "one", names))

    @contextmanager
    def stride_loop(self, name: str, start: str, stop: str, step: str) -> Iterator[None]:
        """A loop whose steps the threads share. Not ``range``, for which Numba divides to find its length."""
        self.s.line(f"{name} = {start}")
        with self.s.block(f"while {name} < {stop}:"):
            yield
            self.s.line(f"{name} = {self.int}({name} + {step})")

    def grid(self, name: str, start: str, stop: str, step: int) -> AbstractContextManager[None]:
        self.s.line(f"stride = {self.int}(cuda.gridDim.x * {step})")
        return self.stride_loop(name, start, stop, "stride")

    def perform(self, item: Pass, spot: Spot) -> None:
        self.fill(spot, item.full, lambda v: True)
        for effect in item.effects:
            self.effect(effect, spot)

    # Rows

    def rows(self, function: Spot) -> None:
        s, t, lane = self.s, self.tile, self.lane
        is_column = t.layout == COLUMN
        outer = [d for d in range(self.p.dims - self.p.rows) if d != lane]
        lengths = {d: f"n{d}" for d in range(self.p.dims)}
        if is_column:
            if t.width > 1:
                s.line(f"vectors = {self.divided(f'n{lane}', t.width)}")
                lengths[lane] = "vectors"
            outer.append(lane)
        if t.threads > 1:
            s.line(f"thread = {self.int}({high(t.groups) if is_column else low(t.threads)})")
        if t.groups > 1:
            s.line(f"group = {self.int}({low(t.groups) if is_column else high(t.threads)})")
        s.line(f"rows = {self.int}({' * '.join([lengths[d] for d in outer] or ['1'])})")
        row_dims = list(self.p.row_dims)
        order = row_dims if is_column else [d for d in row_dims if d != lane] + [lane]
        if not is_column and t.width > 1:
            s.line(f"vectors = {self.divided(f'n{lane}', t.width)}")
            lengths[lane] = "vectors"
        s.line(f"units = {self.int}({' * '.join(lengths[d] for d in order)})")
        first = f"{self.int}(cuda.blockIdx.x * {t.groups})" if t.groups > 1 else f"{self.int}(cuda.blockIdx.x)"
        with self.grid("row" if t.groups == 1 else "first", first, "rows", t.groups):
            row, valid = "row", None
            if t.groups > 1:
                s.line(f"row = {self.int}(first + group)")
                s.line("has_row = row < rows")
                s.line(f"row = select(has_row, row, {self.int}(rows - 1))")
                valid = "has_row"
            names: dict[int, str] = {}
            if outer:
                self.unravel(row, outer, names, lengths, "")
            spot = Spot(function, 1, None, names, valid)
            if is_column:
                at = names.pop(lane)
                if t.width > 1:
                    s.line(f"at = {self.int}({at} * {t.width})")
                    at = "at"
                spot = Spot(function, t.width, at, names, valid)
            self.row(spot, order, lengths)

    def row(self, spot: Spot, order: list[int], lengths: dict[int, str]) -> None:
        t = self.tile
        kept = [self.kept_spot(spot, k, order, lengths) for k in range(t.items)]
        for number, item in enumerate(self.kernel.passes):
            self.fill(spot, item.row, lambda v: True)
            once = " and ".join(c for c in (spot.valid, "thread == 0" if t.threads > 1 else None) if c)
            if item.row_effects:
                with self.s.guarded(once or None):
                    for effect in item.row_effects:
                        self.effect(effect, spot)
            if not item.reduces and not item.effects:
                continue
            sums = {v: self.accumulators(v) for v in item.reduces}
            if t.items:
                # All loads before the first store or branch, so that they are under way together.
                for inside in kept:
                    self.fill(inside, item.full, lambda v: True)
                for inside in kept:
                    self.finish(item, inside, sums)
            else:
                self.loop(item, spot, order, lengths, sums, number)
            for v, parts in sums.items():
                spot.values[v] = tuple(part.across(self.threads) for part in parts)

    def accumulators(self, v: int) -> list[Accumulator]:
        item = self.p.body[v]
        assert isinstance(item, Reduce)
        dtype = self.p.body[item.operand].dtype
        count = self.tile.width if self.lane in self.p.varies[v] else 1
        marks = [f"{v}_{j}" if count > 1 else str(v) for j in range(count)]
        found = [Accumulator(self.s, item, dtype, mark, self.int) for mark in marks]
        for accumulator in found:
            accumulator.begin()
        return found

    def inside_row(self, spot: Spot, unit: str, order: list[int], lengths: dict[int, str], mark: str) -> Spot:
        """The spot of one unit of the row: names of its places are written."""
        names: dict[int, str] = {}
        self.unravel(unit, order, names, lengths, mark)
        if self.tile.layout == COLUMN:
            return Spot(spot, spot.width, spot.lane, names, spot.valid, mark)
        at = names.pop(self.lane)
        if self.tile.width > 1:
            self.s.line(f"at{mark} = {self.int}({at} * {self.tile.width})")
            at = f"at{mark}"
        return Spot(spot, self.tile.width, at, names, spot.valid, mark)

    def kept_spot(self, spot: Spot, k: int, order: list[int], lengths: dict[int, str]) -> Spot:
        mark, t = chr(ord("a") + k), self.tile
        start = "thread" if t.threads > 1 else f"{self.int}(0)"
        self.s.line(f"u{mark} = {start}" if not k else f"u{mark} = {self.int}({start} + {k * t.threads})")
        exists = f"u{mark} < units"
        self.s.line(f"has_{mark} = {exists if spot.valid is None else f'{spot.valid} and {exists}'}")
        self.s.line(f"u{mark} = select({exists}, u{mark}, {self.int}(units - 1))")
        inside = self.inside_row(spot, f"u{mark}", order, lengths, mark)
        inside.valid = f"has_{mark}"
        return inside

    def loop(
        self,
        item: Pass,
        spot: Spot,
        order: list[int],
        lengths: dict[int, str],
        sums: dict[int, list[Accumulator]],
        number: int,
    ) -> None:
        """The elements of a row in one pass, read as they come."""
        s, t = self.s, self.tile
        unit = f"u{number}" if number else "u"
        mark = f"_{number}" if number else ""
        scans = [v for v in item.full if self.is_scan(v)]
        for v in scans:
            scanned = self.p.body[v]
            assert isinstance(scanned, Reduce)
            s.line(f"carry{v} = {self.neutral(scanned)}")
        if not scans or t.threads == 1:
            start = "thread" if t.threads > 1 else f"{self.int}(0)"
            with self.stride_loop(unit, start, "units", str(t.threads)):
                inside = self.inside_row(spot, unit, order, lengths, mark)
                if scans and self.p.rows > 1:
                    # A running number starts again with each line of the last dim.
                    with s.block(f"if {inside.place(self.p.dims - 1, self.lane)} == 0:"):
                        for v in scans:
                            scanned = self.p.body[v]
                            assert isinstance(scanned, Reduce)
                            s.line(f"carry{v} = {self.neutral(scanned)}")
                self.fill(inside, item.full, lambda v: True)
                self.finish(item, inside, sums)
            return
        with self.stride_loop(f"start{mark}", f"{self.int}(0)", "units", str(t.threads)):
            s.line(f"{unit} = {self.int}(start{mark} + thread)")
            s.line(f"has_one{mark} = {unit} < units")
            s.line(f"{unit} = select(has_one{mark}, {unit}, {self.int}(units - 1))")
            inside = self.inside_row(spot, unit, order, lengths, mark)
            exists = f"has_one{mark}"
            inside.valid = exists if spot.valid is None else f"{spot.valid} and {exists}"
            self.fill(inside, item.full, lambda v: True, exists)
            self.finish(item, inside, sums)

    def neutral(self, item: Reduce) -> str:
        return literal((0 if item.op == "cumsum" else 1) * (1.0 if kind_of(item.dtype) == 2 else 1), item.dtype)

    def finish(self, item: Pass, spot: Spot, sums: dict[int, list[Accumulator]]) -> None:
        """What a pass does with the values of one unit of a row."""
        if not sums and not item.effects:
            return
        with self.s.guarded(spot.valid):
            for v, parts in sums.items():
                reduced = self.p.body[v]
                assert isinstance(reduced, Reduce)
                names = spot.find(reduced.operand)
                assert names is not None
                if len(parts) > 1:
                    for j, part in enumerate(parts):
                        part.take([names[j % len(names)]], [self.row_position(spot, 0)])
                    continue
                # A value that is the same for all lanes of a row is taken once for each of them.
                count = spot.width if self.lane in self.p.row_dims else 1
                parts[0].take(
                    [names[j % len(names)] for j in range(count)], [self.row_position(spot, j) for j in range(count)]
                )
            for effect in item.effects:
                self.effect(effect, spot)

    def row_position(self, spot: Spot, j: int) -> str:
        """The place in the row, its dims in order."""
        text = ""
        for d in self.p.row_dims:
            at = self.along(d, spot, j)
            text = f"({text}) * n{d} + {at}" if " " in text else f"{text} * n{d} + {at}" if text else at
        return f"{self.int}({text})"
