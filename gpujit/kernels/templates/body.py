"""The inside of a template's function ``void kernel(ptr block, i64 part, i64 parts)``: arguments by name, loops.

A template is rendered once for a register tile and an epilogue; sizes, strides and addresses are words of its block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from gpujit.kernels.emit import KernelBody
from gpujit.kernels.target import host
from gpujit.kernels.vector import I32, I64, POINTER, Emitter, Vector


@contextmanager
def template(slots: Sequence[str], texts: list[str]) -> Iterator[TemplateBody]:
    """A function ``kernel`` being written, whose block has a word for each of ``slots``; its text joins ``texts``."""
    module = ir.Module(context=ir.Context())
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, I64, I64]), "kernel")
    function.attributes.add("nounwind")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    yield TemplateBody(Emitter(builder, ("contract",), host().avx512), function.args, slots)
    builder.ret_void()
    texts.append(str(module))


class TemplateBody(KernelBody):
    """What kernels.emit offers, and arguments by name."""

    def __init__(self, emitter: Emitter, arguments: Sequence[ir.Value], slots: Sequence[str]) -> None:
        block, part, parts = arguments
        super().__init__(emitter, block)
        self.slots = {name: k for k, name in enumerate(slots)}
        self.part, self.parts = (Vector(emitter, v, "int64", 1) for v in (part, parts))
        self._entry = self.builder.block
        self._words: dict[str, Vector] = {}

    @property
    def block(self) -> ir.Value:
        """The address of the block."""
        return self._block

    def word(self, name: str) -> Vector:
        """An argument as an int64, read once, where the function begins."""
        found = self._words.get(name)
        if found is None:
            with self._at_entry():
                found = self.integer(self.slots[name])
            self._words[name] = found
        return found

    def array(self, name: str) -> ir.Value:
        """An argument that is an address."""
        return self.e.pointer(self.word(name).value)

    @contextmanager
    def _at_entry(self) -> Iterator[None]:
        # Before the branch that ends the block, where there is one already.
        with self.builder.goto_block(self._entry):
            yield

    def buffer(self, floats: int) -> ir.Value:
        """Room for so many float32 on the stack, on a cache line's border."""
        with self._at_entry():
            room = self.builder.alloca(ir.ArrayType(ir.FloatType(), floats))
            room.align = 64
        # llvmlite gives it a pointer type of its own.
        room.type = POINTER
        return room

    def scratch(self) -> ir.Value:
        """This part's own memory: ``scratch_bytes`` of it at ``scratch``."""
        return self.e.pointer((self.word("scratch") + self.word("scratch_bytes") * self.part).value)

    def outline(self, name: str, arguments: Sequence[ir.Value | Vector], write: Callable[..., None]) -> None:
        """Calls ``write(body, *arguments)`` as a function of its own.

        Constants of code that runs seldom would else be kept in registers, all through the innermost loops.
        """
        values = [a.value if isinstance(a, Vector) else a for a in arguments]
        module = self.builder.module
        name = f"{name}{len(module.functions)}"
        types = [POINTER, I64, I64, *(v.type for v in values)]
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), types), name)
        function.linkage = "internal"
        for attribute in ("nounwind", "noinline"):
            function.attributes.add(attribute)
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        inside = TemplateBody(Emitter(builder, self.e.flags, self.e.avx512), function.args[:3], list(self.slots))
        given = [
            Vector(inside.e, value, a.dtype, a.lanes) if isinstance(a, Vector) else value
            for a, value in zip(arguments, function.args[3:], strict=True)
        ]
        write(inside, *given)
        builder.ret_void()
        self.builder.call(function, [self._block, self.part.value, self.parts.value, *values])

    # Numbers

    def smaller(self, a: Vector, b: Vector | int) -> Vector:
        return self.e.minimum(a, b)

    def larger(self, a: Vector, b: Vector | int) -> Vector:
        return self.e.maximum(a, b)

    def quotient(self, a: Vector, n: Vector) -> Vector:
        """a / n for a >= 0 and n > 0."""
        return a._new(self.builder.udiv(a.value, n.value))

    def rest(self, a: Vector, n: Vector) -> Vector:
        """a % n for a >= 0 and n > 0."""
        return a._new(self.builder.urem(a.value, n.value))

    def share(self, total: Vector) -> tuple[Vector, Vector]:
        """This part's range of so many tasks, from and to."""
        return self.quotient(total * self.part, self.parts), self.quotient(total * (self.part + 1), self.parts)

    # Loops

    @contextmanager
    def repeat(self, count: Vector, state: Sequence[Vector]) -> Iterator[Turn]:
        """A loop of at least one turn that carries values, tested at its end; ``now`` holds the last ones after it."""
        b = self.builder
        entry, body = b.block, b.append_basic_block("repeat")
        done = b.append_basic_block("repeated")
        b.branch(body)
        b.position_at_end(body)
        index = b.phi(I64)
        index.add_incoming(ir.Constant(I64, 0), entry)
        phis = [b.phi(v.value.type) for v in state]
        for phi, v in zip(phis, state, strict=True):
            phi.add_incoming(v.value, entry)
        turn = Turn(Vector(self.e, index, "int64", 1), [v._new(phi) for phi, v in zip(phis, state, strict=True)])
        yield turn
        following = b.add(index, ir.Constant(I64, 1), flags=("nsw",))
        index.add_incoming(following, b.block)
        for phi, v in zip(phis, turn.following, strict=True):
            phi.add_incoming(v.value, b.block)
        b.cbranch(b.icmp_signed("<", following, count.value), body, done)
        b.position_at_end(done)
        turn.now = turn.following

    def floats(
        self, base: ir.Value, index: Vector | int, lanes: int, mask: Vector | None = None, dtype: str = "float32"
    ) -> Vector:
        """``lanes`` float32, or half types as such, from an address on; 0 where the mask is clear."""
        return self.e.load(base, index if isinstance(index, int) else index.value, dtype, lanes, mask)

    def put(
        self, base: ir.Value, index: Vector | int, x: Vector, mask: Vector | None = None, dtype: str | None = None
    ) -> None:
        self.e.store(base, index if isinstance(index, int) else index.value, x, dtype, mask=mask)

    def fetch(self, base: ir.Value, index: Vector) -> None:
        """Asks for a float32's cache line, to be in the second-level cache when it is needed."""
        hints = [ir.Constant(I32, n) for n in (0, 2, 1)]
        self.e.call("llvm.prefetch.p0", ir.VoidType(), [self.at(base, index), *hints])

    def at(self, base: ir.Value, index: Vector | int, dtype: str = "float32") -> ir.Value:
        """The address of an element."""
        return self.e.at(base, index if isinstance(index, int) else index.value, dtype)

    def integer_of(self, address: ir.Value) -> Vector:
        """An address as an int64."""
        return Vector(self.e, self.builder.ptrtoint(address, I64), "int64", 1)


class Turn:
    """One turn of a loop: its number, the values it finds, those that it leaves to the next."""

    def __init__(self, index: Vector, now: list[Vector]) -> None:
        self.index, self.now = index, now
        self.following: list[Vector] = list(now)


# Into so many parts at most, and so many sums in all, is a sum split.
MOST_PARTS = 8


def parts_of_sum(sums: int) -> int:
    """In how many parts ``multiply_tile`` adds up each of so many sums, which is all that its rounding depends on.

    The additions of one sum wait for each other: few sums are split into more of them.
    """
    parts = 1
    while sums * parts < MOST_PARTS:
        parts *= 2
    return parts


def multiply_tile(
    k: TemplateBody,
    rows: int,
    vectors: int,
    lanes: int,
    depth: Vector,
    left: Callable[[Vector, int], Vector],
    right: Callable[[Vector, int], Vector],
) -> list[list[Vector]]:
    """Sums over ``depth`` (at least 1) of left(i, row) * right(i, vector): scalars times vectors, in registers."""
    e = k.e
    split = parts_of_sum(rows * vectors)
    zero = e.constant("float32", lanes, 0.0)

    def step(sums: list[Vector], i: Vector) -> list[Vector]:
        loaded = [right(i, v) for v in range(vectors)]
        made = []
        for r in range(rows):
            scalar = e.broadcast(left(i, r), lanes)
            made += [e.fma(scalar, loaded[v], sums[r * vectors + v]) for v in range(vectors)]
        return made

    tile = rows * vectors
    if split == 1:
        with k.repeat(depth, [zero] * tile) as turn:
            turn.following = step(turn.now, turn.index)
        sums = turn.now
    else:
        whole = depth & -split
        with k.carried_loop(0, whole, split, [zero] * (tile * split)) as carried:
            carried.following = [
                x for u in range(split) for x in step(carried.now[u * tile : u * tile + tile], carried.index + u)
            ]
        parts = [carried.now[u * tile : u * tile + tile] for u in range(split)]
        while len(parts) > 1:
            parts = [[x + y for x, y in zip(a, b, strict=True)] for a, b in zip(parts[::2], parts[1::2], strict=True)]
        with k.carried_loop(whole, depth, 1, parts[0]) as carried:
            carried.following = step(carried.now, carried.index)
        sums = carried.now
    return [sums[r * vectors : r * vectors + vectors] for r in range(rows)]
