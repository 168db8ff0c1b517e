"""The CUDA renderer: a tile program as the readable Python source of a ``@cuda.jit`` kernel.

``render`` writes it; ``cuda_compile`` and ``cuda_launch`` turn it into machine code and run it. The source imports
device functions from ``cuda_device`` alone, so that the very same text runs in Numba's simulator. How threads are laid
out is said in ``cuda_tile``. Loops that all threads of a block must go through together (shuffles, shared memory) have
the same count in each; a thread without a row or an element of its own works on the last one and stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from gpujit.ir.dtypes import kind_of
from gpujit.kernels.cuda_ops import (
    DEVICE_NAMES,
    HALF_NAMES,
    NAME,
    NotRendered,
    cast,
    constant,
    held,
    literal,
    operation,
)
from gpujit.kernels.cuda_reduce import Accumulator, Threads, high, low, scan
from gpujit.kernels.cuda_source import Source, Spot
from gpujit.kernels.cuda_tile import COLUMN, POINTS, CudaKernel, Place, moves, stride_name
from gpujit.kernels.index import DIM, DIV, PARAM, SIZE, Index
from gpujit.kernels.schedule import Pass
from gpujit.kernels.tile import (
    Call,
    Check,
    Compute,
    Const,
    Count,
    Effect,
    Inside,
    Load,
    Position,
    Reduce,
    Store,
    indexes_of,
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


def checks_of(kernel: CudaKernel) -> list[Check]:
    """The checks, in the order of their flags."""
    return [e for e in kernel.program.effects if isinstance(e, Check)]


class _Kernel:
    def __init__(self, kernel: CudaKernel) -> None:
        self.kernel, self.p, self.tile = kernel, kernel.program, kernel.tile
        self.s = Source()
        self.int = f"int{kernel.tile.bits}"
        self.lane = kernel.lane
        items = moves(self.p)
        self.place_of = {id(item): place for item, place in zip(items, kernel.places, strict=True)}
        self.threads = Threads(self.s, kernel.tile, kernel.tile.layout == COLUMN)
        # Half numbers that are only stored are rounded when they are packed.
        self.only_stored = self.find_only_stored()
        self.offsets = 0

    def find_only_stored(self) -> set[int]:
        readers: dict[int, list[object]] = {}
        for item in (*self.p.body, *self.p.effects):
            for v in operands_of(item):
                readers.setdefault(v, []).append(item)
        return {
            v
            for v, item in enumerate(self.p.body)
            if item.dtype in HALF_NAMES and all(isinstance(r, Store) for r in readers.get(v, ()))
        }

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

    def copies(self, v: int, spot: Spot) -> int:
        return spot.width if self.lane in self.p.varies[v] else 1

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

    def along(self, d: int, spot: Spot, j: int) -> str:
        """The place along a dim of copy ``j``."""
        at = spot.place(d, self.lane)
        return f"{at} + {j}" if d == self.lane and j else at

    # Values

    def is_scan(self, v: int) -> bool:
        item = self.p.body[v]
        return isinstance(item, Reduce) and item.is_scan

    def fill(self, spot: Spot, values: Iterable[int], here: Callable[[int], bool], exists: str | None = None) -> None:
        """Compute those of the values that belong here and are not known yet."""
        for v in values:
            if spot.find(v) is not None or not here(v):
                continue
            item = self.p.body[v]
            if isinstance(item, Reduce):
                if item.is_scan:
                    (x,) = self.names(item.operand, spot, 1)
                    name = f"v{v}{spot.mark}"
                    scan(self.s, item, x, name, f"carry{v}", exists, self.threads)
                    spot.values[v] = (name,)
                continue
            spot.values[v] = self.compute(v, spot)

    def names(self, v: int, spot: Spot, count: int) -> list[str]:
        found = spot.find(v)
        if found is None:
            raise NotRendered(f"%{v} is not known where it is read")
        return [found[j % len(found)] for j in range(count)]

    def compute(self, v: int, spot: Spot) -> tuple[str, ...]:
        """Lines that compute a value; the names of its copies."""
        item, count = self.p.body[v], self.copies(v, spot)
        if isinstance(item, Const):
            return (constant(item),)
        if isinstance(item, Load):
            return self.load(v, item, spot, count)
        if isinstance(item, Compute):
            operands = [self.names(u, spot, count) for u in item.operands]
            source = self.p.body[item.operands[0]].dtype
            if item.op == "cast":
                if v in self.only_stored:
                    texts = [x if held(source) == "float32" else f"float32({x})" for x in operands[0]]
                else:
                    texts = [cast(x, source, item.dtype) for x in operands[0]]
            else:
                dtype = item.dtype if item.op == "where" else source
                texts = [operation(item.op, [o[j] for o in operands], dtype) for j in range(count)]
        elif isinstance(item, Count):
            texts = [f"{held(item.dtype)}({' * '.join(f'n{d}' for d in self.p.row_dims)})"]
        elif isinstance(item, Position):
            texts = [f"int64({self.evaluate(item.index, spot, j)})" for j in range(count)]
        elif isinstance(item, Inside):
            texts = [self.inside(item, spot, j) for j in range(count)]
        elif isinstance(item, Call):
            raise NotRendered(f"the function {item.name}")
        else:
            raise NotRendered(f"{item}")
        return self.assign(v, spot, texts)

    def assign(self, v: int, spot: Spot, texts: Sequence[str]) -> tuple[str, ...]:
        names = self.new_names(v, spot, len(texts))
        for name, text in zip(names, texts, strict=True):
            if NAME.fullmatch(text):
                continue
            self.s.line(f"{name} = {text}")
        return tuple(text if NAME.fullmatch(text) else name for name, text in zip(names, texts, strict=True))

    def new_names(self, v: int, spot: Spot, count: int) -> list[str]:
        name = f"v{v}{spot.mark}"
        return [f"{name}_{j}" for j in range(count)] if count > 1 else [name]

    def inside(self, item: Inside, spot: Spot, j: int) -> str:
        parts = []
        for bound in item.bounds:
            low, at, high = (self.evaluate(i, spot, j) for i in (bound.low, bound.index, bound.high))
            parts.append(f"({at} >= {low})")
            parts.append(f"({at} < {high})")
        return " & ".join(parts) or "True"

    def evaluate(self, i: Index, spot: Spot, j: int) -> str:
        """An index at copy ``j``, of the kernel's index type, or int64 when it names values."""
        terms = []
        for product, factor in i.terms:
            alone = len(product) == 1 and factor == 1
            parts = [self.atom(atom, spot, j, alone) for atom in product]
            if factor != 1 or not parts:
                parts.append(str(factor))
            terms.append(" * ".join(parts))
        text = " + ".join(terms) or "0"
        if i.values():
            is_one = len(i.terms) == 1 and len(i.terms[0][0]) == 1 and i.terms[0][1] == 1 and not i.terms[0][0][0].args
            return text if is_one else f"int64({text})"
        return text if NAME.fullmatch(text) else f"{self.int}({text})"

    def atom(self, atom: object, spot: Spot, j: int, alone: bool = False) -> str:
        kind, number, args = atom.kind, atom.number, atom.args  # type: ignore[attr-defined]
        if args:
            wide = bool(args[0].values() or args[1].values())
            a, b = (self.evaluate(arg, spot, j) for arg in args)
            if wide:
                a, b = (f"int64({x})" for x in (a, b))
            return f"{'udiv' if kind == DIV else 'urem'}({a}, {b})"
        if kind == DIM:
            at = self.along(number, spot, j)
            return f"({at})" if " " in at and not alone else at
        if kind in (SIZE, PARAM):
            return f"{kind}{number}"
        (name,) = self.names(number, spot, j + 1)[j:]
        return name if self.p.body[number].dtype.name == "int64" else f"int64({name})"

    # Memory

    def offset(self, item: Load | Store, place: Place, spot: Spot, j: int) -> str:
        """The offset of copy ``j`` in elements."""
        if place.steps is None:
            return self.evaluated_offset(item, spot, j)
        named = frozenset().union(*(c.dims() for c in item.coords)) if item.coords else frozenset()
        terms = []
        for d, step in enumerate(place.steps):
            if step == "0" or d not in named:
                continue
            at = self.along(d, spot, 0 if d == self.lane else j)
            terms.append(at if step == "1" else f"({at}) * {step}" if " " in at else f"{at} * {step}")
        text = " + ".join(terms) or "0"
        base = text if NAME.fullmatch(text) else f"{self.int}({text})"
        if "*" in text:
            # Computed once for all accesses that step alike.
            if text not in spot.offsets:
                self.offsets += 1
                spot.offsets[text] = f"offset{self.offsets}"
                self.s.line(f"{spot.offsets[text]} = {base}")
            base = spot.offsets[text]
        if not j or self.lane not in named:
            return base
        step = place.steps[self.lane]
        if step == "0":
            return base
        return f"{self.int}({base} + {j if step == '1' else f'{j} * {step}'})"

    def evaluated_offset(self, item: Load | Store, spot: Spot, j: int) -> str:
        strides = [stride_name(isinstance(item, Store), item.array, k) for k in range(len(item.coords))]
        terms = [f"{self.evaluate(c, spot, j)} * {s}" for c, s in zip(item.coords, strides, strict=True)]
        kind = "int64" if any(c.values() for c in item.coords) else self.int
        return f"{kind}({' + '.join(terms) or '0'})"

    def load(self, v: int, item: Load, spot: Spot, count: int) -> tuple[str, ...]:
        place = self.place_of[id(item)]
        pointer, half = self.kernel.pointer_name(place.pointer), HALF_NAMES.get(item.dtype, "")
        held(item.dtype)
        masks = None if item.mask is None else self.names(item.mask, spot, count)
        is_bool = item.dtype.name == "bool"
        uniform = masks is None or len(spot.find(item.mask) or ()) == 1  # type: ignore[arg-type]
        if place.is_wide and count > 1 and uniform:
            names = self.new_names(v, spot, count)
            at = self.offset(item, place, spot, 0)
            suffix = f"_{half}" if half else ""
            moved = f"{', '.join(names)} = vload{count}{suffix}({pointer}, {at})"
            if masks is None:
                self.s.line(moved)
            else:
                other = literal(0, item.dtype) if item.other is None else constant(item.other)
                raw = f"uint8({int(item.other.value)})" if is_bool and item.other is not None else other
                with self.s.block(f"if {masks[0]}:"):
                    self.s.line(moved)
                with self.s.block("else:"):
                    self.s.line(f"{' = '.join(names)} = {raw}")
            if not is_bool:
                return tuple(names)
            truths = [f"{n}b" for n in names]
            for truth, name in zip(truths, names, strict=True):
                self.s.line(f"{truth} = {name} != 0")
            return tuple(truths)
        texts = []
        for j in range(count):
            read = f"{pointer}[{self.offset(item, place, spot, j)}]"
            read = f"{half}({read})" if half else f"{read} != 0" if is_bool else read
            if masks is not None:
                other = literal(0, item.dtype) if item.other is None else constant(item.other)
                read = f"({read}) if {masks[j]} else {other}" if is_bool else f"{read} if {masks[j]} else {other}"
            texts.append(read)
        return self.assign(v, spot, texts)

    def effect(self, effect: Effect, spot: Spot) -> None:
        s = self.s
        varies = frozenset().union(
            *(i.dims() for i in indexes_of(effect)), *(self.p.varies[v] for v in operands_of(effect))
        )
        count = spot.width if self.lane in varies else 1
        if isinstance(effect, Check):
            number = checks_of(self.kernel).index(effect)
            for name in dict.fromkeys(self.names(effect.value, spot, count)):
                with s.block(f"if not {name}:"):
                    s.line(f"flags[{number}] = int32(1)")
            return
        place = self.place_of[id(effect)]
        pointer = self.kernel.pointer_name(place.pointer)
        dtype = self.p.outputs[effect.array].dtype
        half = HALF_NAMES.get(dtype, "")
        values = self.names(effect.value, spot, count)
        masks = None if effect.mask is None else self.names(effect.mask, spot, count)
        uniform = masks is None or len(spot.find(effect.mask) or ()) == 1  # type: ignore[arg-type]
        if dtype.name == "bool":
            values = [f"uint8({x})" for x in values]
        if place.is_wide and count > 1 and uniform:
            at = self.offset(effect, place, spot, 0)
            suffix = f"_{half}" if half else ""
            with s.guarded(None if masks is None else masks[0]):
                s.line(f"vstore{count}{suffix}({pointer}, {at}, {', '.join(values)})")
            return
        for j in range(count):
            at = self.offset(effect, place, spot, j)
            with s.guarded(None if masks is None else masks[j]):
                s.line(f"{pointer}[{at}] = {f'to_{half}({values[j]})' if half else values[j]}")
