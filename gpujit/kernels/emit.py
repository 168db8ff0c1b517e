"""Kernels written as LLVM IR directly: arguments from the block, loops, and the vectors of kernels.vector inside.

    writer = KernelWriter()
    with writer.kernel("scale") as k:
        source, target, n = k.pointer(0), k.pointer(1), k.integer(2)

        def body(i, mask):
            x = k.e.load(source, i.value, "float32", 16, mask)
            k.e.store(target, i.value, x * 2.0, mask=mask)

        k.vector_loop(n, 16, body)
    image = native.compile_ir([str(writer)])

The same machine code as from generated Numba source comes out, in a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from gpujit.kernels.target import host
from gpujit.kernels.vector import I64, Emitter, Vector


class KernelWriter:
    """One LLVM module being written; ``str`` is its text."""

    def __init__(self) -> None:
        # A context of its own: llvmlite numbers named types per context, and texts must be equal for equal kernels.
        self.module = ir.Module(context=ir.Context())

    def __str__(self) -> str:
        return str(self.module)

    @contextmanager
    def kernel(
        self, name: str, flags: Sequence[str] = ("contract",), avx512: bool | None = None
    ) -> Iterator[KernelBody]:
        """A new function ``void name(int64 block)``; returns at the end of the ``with``.

        ``avx512`` says whether its instructions may be used; None asks the machine.
        """
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [I64]), name)
        function.attributes.add("nounwind")
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        yield KernelBody(Emitter(builder, flags, host().avx512 if avx512 is None else avx512), function.args[0])
        builder.ret_void()


class KernelBody:
    """The inside of a kernel: ``e`` emits vectors, the methods read arguments and open loops."""

    def __init__(self, emitter: Emitter, block: ir.Value) -> None:
        self.e = emitter
        self.builder = emitter.builder
        self._block = block

    def number(self, value: int) -> Vector:
        """A constant int64."""
        return self.e.constant("int64", 1, value)

    def integer(self, slot: int) -> Vector:
        """Argument ``slot`` of the block, an int64."""
        return self.e.load(self._block, slot, "int64", 1)

    def float(self, slot: int) -> Vector:
        """Argument ``slot`` of the block, a float64."""
        return self.e.load(self._block, slot, "float64", 1)

    def pointer(self, slot: int) -> ir.Value:
        """Argument ``slot`` of the block, an address to load from and store to."""
        return self.e.pointer(self.integer(slot).value)

    @contextmanager
    def loop(self, start: Vector | int, stop: Vector | int, step: int = 1) -> Iterator[Vector]:
        """The int64 index in a loop from ``start`` up to but without ``stop``."""
        b = self.builder
        first = self.number(start) if isinstance(start, int) else start
        last = self.number(stop) if isinstance(stop, int) else stop
        entry = b.block
        body = b.append_basic_block("loop")
        done = b.append_basic_block("done")
        b.cbranch((first < last).value, body, done)
        b.position_at_end(body)
        index = b.phi(I64)
        index.add_incoming(first.value, entry)
        i = Vector(self.e, index, "int64", 1)
        yield i
        # nsw, since signed overflow would stop LLVM from strength reduction.
        following = Vector(self.e, b.add(index, self.number(step).value, flags=("nsw",)), "int64", 1)
        index.add_incoming(following.value, b.block)
        b.cbranch((following < last).value, body, done)
        b.position_at_end(done)

    @contextmanager
    def carried_loop(
        self, start: Vector | int, stop: Vector | int, step: int, state: Sequence[Vector]
    ) -> Iterator[Carried]:
        """A loop that carries values: read ``now``, set ``following``; afterwards ``now`` holds the last ones."""
        b = self.builder
        first = self.number(start) if isinstance(start, int) else start
        last = self.number(stop) if isinstance(stop, int) else stop
        entry = b.block
        test = b.append_basic_block("test")
        body = b.append_basic_block("carried")
        done = b.append_basic_block("done")
        b.branch(test)
        b.position_at_end(test)
        index = b.phi(I64)
        index.add_incoming(first.value, entry)
        phis = [b.phi(v.value.type) for v in state]
        for phi, v in zip(phis, state):
            phi.add_incoming(v.value, entry)
        carried = Carried(Vector(self.e, index, "int64", 1), [v._new(phi) for phi, v in zip(phis, state)])
        b.cbranch((carried.index < last).value, body, done)
        b.position_at_end(body)
        yield carried
        index.add_incoming(b.add(index, self.number(step).value, flags=("nsw",)), b.block)
        for phi, v in zip(phis, carried.following):
            phi.add_incoming(v.value, b.block)
        b.branch(test)
        b.position_at_end(done)

    def vector_loop(
        self, count: Vector, lanes: int, body: Callable[[Vector, Vector | None], None], unroll: int = 1
    ) -> None:
        """Calls ``body(index, mask)`` for whole vectors (mask None), then once for the rest of the elements."""
        whole = count & -lanes
        if unroll > 1:
            groups = count & -(lanes * unroll)
            with self.loop(0, groups, lanes * unroll) as i:
                for u in range(unroll):
                    body(i + u * lanes, None)
            with self.loop(groups, whole, lanes) as i:
                body(i, None)
        else:
            with self.loop(0, whole, lanes) as i:
                body(i, None)
        if lanes > 1:
            with self.builder.if_then((whole < count).value):
                body(whole, self.e.tail_mask(count - whole, lanes))


class Carried:
    """What ``carried_loop`` gives: the index, the values as this round finds them, and a list for the next round's."""

    def __init__(self, index: Vector, now: Sequence[Vector]) -> None:
        self.index, self.now = index, list(now)
        self.following: list[Vector] = list(now)
