"""The lines of a CUDA source that compute values at one place, read and write memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpujit.kernels.cuda_ops import HALF_NAMES, NAME, cast, constant, held, literal, operation
from gpujit.kernels.cuda_reduce import Threads, scan
from gpujit.kernels.cuda_source import Source, Spot
from gpujit.kernels.cuda_tile import COLUMN, CudaKernel, Place, stride_name
from gpujit.kernels.index import DIM, DIV, PARAM, SIZE, Index
from gpujit.kernels.schedule import moves
from gpujit.kernels.tile import (
    Call,
    Check,
    Compute,
    Const,
    Count,
    Effect,
    Inside,
    Load,
    NotRendered,
    Position,
    Reduce,
    Store,
    indexes_of,
    operands_of,
)


def checks_of(kernel: CudaKernel) -> list[Check]:
    """The checks, in the order of their flags."""
    return [e for e in kernel.program.effects if isinstance(e, Check)]


class Values:
    """A kernel's source under construction, and how single values are written."""

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

    def copies(self, v: int, spot: Spot) -> int:
        return spot.width if self.lane in self.p.varies[v] else 1

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
            if abs(factor) != 1 or not parts:
                parts.append(str(abs(factor)))
            sign = "-" if factor < 0 else "+"
            terms.append(f"{sign} {' * '.join(parts)}")
        text = " ".join(terms).removeprefix("+ ") or "0"
        text = f"-{text[2:]}" if text.startswith("- ") else text
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
        texts = []
        for j in range(count):
            read = f"{pointer}[{self.offset(item, place, spot, j)}]"
            texts.append(f"{half}({read})" if half else f"{read} != 0" if is_bool else read)
        if place.is_wide and count > 1:
            return self.wide_load(v, item, spot, texts, masks)
        if masks is not None:
            other = constant(item.other) if item.other else literal(0, item.dtype)
            texts = [f"({x})" if is_bool else x for x in texts]
            texts = [f"{x} if {mask} else {other}" for x, mask in zip(texts, masks, strict=True)]
        return self.assign(v, spot, texts)

    def wide_load(
        self, v: int, item: Load, spot: Spot, single: Sequence[str], masks: Sequence[str] | None
    ) -> tuple[str, ...]:
        """Lines that load all copies at once where all masks hold, if there are any; elsewhere one by one."""
        s, count = self.s, len(single)
        place = self.place_of[id(item)]
        pointer, half = self.kernel.pointer_name(place.pointer), HALF_NAMES.get(item.dtype, "")
        names = self.new_names(v, spot, count)
        at = self.offset(item, place, spot, 0)

        def load(names: Sequence[str]) -> None:
            if item.dtype.name != "bool":
                s.line(f"{', '.join(names)} = vload{count}{f'_{half}' if half else ''}({pointer}, {at})")
                return
            bits = [f"{name}b" for name in names]
            s.line(f"{', '.join(bits)} = vload{count}({pointer}, {at})")
            for name, bit in zip(names, bits, strict=True):
                s.line(f"{name} = {bit} != 0")

        if masks is None:
            load(names)
            return tuple(names)
        different = list(dict.fromkeys(masks))
        with s.block(f"if {' & '.join(different)}:"):
            load(names)
        with s.block("else:"):
            other = constant(item.other) if item.other else literal(0, item.dtype)
            for name, text, mask in zip(names, single, masks, strict=True):
                # One mask for all of them does not hold here.
                chosen = f"({text})" if "!=" in text else text
                s.line(f"{name} = {other}" if len(different) == 1 else f"{name} = {chosen} if {mask} else {other}")
        return tuple(names)

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
