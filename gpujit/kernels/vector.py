"""Vectors (and scalars) as expressions over LLVM's IR: ``emit(x * 2 + 1)`` writes the instructions as it is evaluated.

An ``Emitter`` stands at a place in an LLVM function; a ``Vector`` is a value there with an element type and a number of
lanes, one lane being a scalar. Needs llvmlite alone.

Arithmetic carries the fast-math flag ``contract`` only when the emitter is told so; exact sequences have none.
NaN and infinities always mean what they mean, so ``nnan`` and ``ninf`` never appear.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from gpujit.kernels.vector_lanes import LaneEmitter
from gpujit.kernels.vector_types import (
    DOUBLE,
    ELEMENTS,
    FLOAT,
    HALF,
    I1,
    I8,
    I16,
    I32,
    I64,
    POINTER,
    Element,
    Number,
    Vector,
    lanes_of,
)

__all__ = ["ELEMENTS", "I1", "I8", "I16", "I32", "I64", "POINTER", "Element", "Emitter", "Number", "Vector"]


class Emitter(LaneEmitter):
    """Everything a kernel's body needs: what ``LaneEmitter`` does in registers, and loads and stores.

    ``avx512`` allows instructions that only such machines have; without it the same functions take more steps.
    """

    def pointer(self, address: ir.Value) -> ir.Value:
        """A pointer from an address, which may be an integer."""
        return self.builder.inttoptr(address, POINTER) if isinstance(address.type, ir.IntType) else address

    def at(self, address: ir.Value, index: ir.Value | int, dtype: str) -> ir.Value:
        """The address of element ``index`` behind an address."""
        if isinstance(index, int):
            index = ir.Constant(I64, index)
        return self.builder.gep(self.pointer(address), [index], source_etype=ELEMENTS[dtype].storage)

    def load(
        self,
        address: ir.Value,
        index: ir.Value | int,
        dtype: str,
        lanes: int,
        mask: Vector | None = None,
        stride: ir.Value | int | None = None,
        other: Number = 0,
    ) -> Vector:
        """``lanes`` elements from ``index`` on (``stride`` elements apart); ``other`` where the mask is clear.

        The half types arrive as float32, bool (a byte in memory) as a mask.
        """
        element = ELEMENTS[dtype]
        if stride is not None and lanes > 1:
            return self._gather(address, index, stride, dtype, lanes, mask, other)
        place, size = self.at(address, index, dtype), element.storage
        alignment = _bytes(size)
        if mask is None:
            raw = self.builder.load(place, align=alignment, typ=lanes_of(size, lanes))
        elif lanes == 1:
            raw = self._load_scalar_if(place, element, mask, other)
        else:
            kind = lanes_of(size, lanes)
            filler = self._filler(element, lanes, other)
            arguments = [place, ir.Constant(I32, alignment), mask.value, filler]
            raw = self.call(f"llvm.masked.load.{_code(kind)}.p0", kind, arguments)
        return self._widen(raw, dtype, lanes)

    def _filler(self, element: Element, lanes: int, other: Number) -> ir.Value:
        if element.name == "bfloat16":
            if other != 0:
                bits = int(np.float32(other).view(np.uint32)) >> 16
                return self.constant("uint16", lanes, bits).value
            return self.constant("uint16", lanes, 0).value
        if element.name == "bool":
            return self.constant("uint8", lanes, int(other)).value
        return self.constant(element.name, lanes, other).value

    def _load_scalar_if(self, place: ir.Value, element: Element, mask: Vector, other: Number) -> ir.Value:
        size = element.storage
        start = self.builder.block
        with self.builder.if_then(mask.value):
            loaded = self.builder.load(place, align=_bytes(size), typ=size)
            inside = self.builder.block
        phi = self.builder.phi(size)
        phi.add_incoming(loaded, inside)
        phi.add_incoming(self._filler(element, 1, other), start)
        return phi

    def _gather(
        self,
        address: ir.Value,
        index: ir.Value | int,
        stride: ir.Value | int,
        dtype: str,
        lanes: int,
        mask: Vector | None,
        other: Number,
    ) -> Vector:
        step = ir.Constant(I64, stride) if isinstance(stride, int) else stride
        offsets = self.iota("int64", lanes) * self.broadcast(Vector(self, step, "int64", 1), lanes)
        return self.gather(self.at(address, index, dtype), offsets, dtype, mask, other)

    def gather(
        self, address: ir.Value, indices: Vector, dtype: str, mask: Vector | None = None, other: Number = 0
    ) -> Vector:
        """The elements at int64 ``indices``; ``other`` where the mask is clear."""
        element, lanes = ELEMENTS[dtype], indices.lanes
        if lanes == 1:
            return self.load(address, indices.value, dtype, 1, mask, other=other)
        places = self._places(address, indices, element)
        kind = lanes_of(element.storage, lanes)
        if mask is None:
            mask = self.constant("bool", lanes, True)
        arguments = [places, ir.Constant(I32, _bytes(element.storage)), mask.value, self._filler(element, lanes, other)]
        raw = self.call(f"llvm.masked.gather.{_code(kind)}.v{lanes}p0", kind, arguments)
        return self._widen(raw, dtype, lanes)

    def _places(self, address: ir.Value, indices: Vector, element: Element) -> ir.Value:
        base = self.pointer(address)
        places = self.builder.gep(base, [indices.value], source_etype=element.storage)
        # llvmlite types a getelementptr by its base; with a vector of indices LLVM makes a vector of pointers.
        places.type = ir.VectorType(POINTER, indices.lanes)
        return places

    def _widen(self, raw: ir.Value, dtype: str, lanes: int) -> Vector:
        b = self.builder
        if dtype == "float16":
            return Vector(self, b.fpext(raw, self.type("float32", lanes)), "float32", lanes)
        if dtype == "bfloat16":
            wide = Vector(self, b.zext(raw, self.type("uint32", lanes)), "uint32", lanes)
            return self.bitcast(wide << 16, "float32")
        if dtype == "bool":
            return Vector(self, raw, "uint8", lanes) != 0
        return Vector(self, raw, dtype, lanes)

    def _narrow(self, x: Vector, dtype: str) -> ir.Value:
        if dtype in ("float16", "bfloat16"):
            x = self.cast(x, "float32")
            if dtype == "float16":
                return self.half_precision(x)
            bits = self.bitcast(x, "uint32")
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            return self.cast(self.select(x != x, 0x7FC0, rounded), "uint16").value
        if dtype == "bool":
            return self.cast(self.cast(x, "bool"), "uint8").value
        return self.cast(x, dtype).value

    def half_precision(self, x: Vector) -> ir.Value:
        """Float32 numbers rounded to LLVM's half."""
        # LLVM would make one step of this and one from double before it: that is other numbers and, of a scalar, a
        # call of a function that there is not.
        name = "f32" if x.lanes == 1 else f"v{x.lanes}f32"
        kept = self.call(f"llvm.arithmetic.fence.{name}", x.value.type, [x.value])
        return self.builder.fptrunc(kept, lanes_of(HALF, x.lanes))

    def store(
        self,
        address: ir.Value,
        index: ir.Value | int,
        x: Vector,
        dtype: str | None = None,
        mask: Vector | None = None,
        stride: ir.Value | int | None = None,
        stream: bool = False,
    ) -> None:
        """Writes the lanes where the mask is set, converted to ``dtype`` (the half types round to nearest even).

        ``stream`` writes past the caches; the address must then be a multiple of the vector's size.
        """
        dtype = dtype or x.dtype
        element, raw = ELEMENTS[dtype], self._narrow(x, dtype)
        alignment = _bytes(element.storage)
        if stride is not None and x.lanes > 1:
            step = ir.Constant(I64, stride) if isinstance(stride, int) else stride
            offsets = self.iota("int64", x.lanes) * self.broadcast(Vector(self, step, "int64", 1), x.lanes)
            self.scatter(self.at(address, index, dtype), offsets, x, dtype, mask)
            return
        place = self.at(address, index, dtype)
        if mask is None:
            stored = self.builder.store(raw, place, align=alignment * x.lanes if stream else alignment)
            if stream:
                stored.set_metadata("nontemporal", self.builder.module.add_metadata([ir.Constant(I32, 1)]))
        elif x.lanes == 1:
            with self.builder.if_then(mask.value):
                self.builder.store(raw, place, align=alignment)
        else:
            arguments = [raw, place, ir.Constant(I32, alignment), mask.value]
            self.call(f"llvm.masked.store.{_code(raw.type)}.p0", ir.VoidType(), arguments)

    def scatter(
        self, address: ir.Value, indices: Vector, x: Vector, dtype: str | None = None, mask: Vector | None = None
    ) -> None:
        """Writes lanes to the elements at int64 ``indices``, in the order of the lanes."""
        dtype = dtype or x.dtype
        element = ELEMENTS[dtype]
        if x.lanes == 1:
            self.store(address, indices.value, x, dtype, mask)
            return
        raw = self._narrow(x, dtype)
        if mask is None:
            mask = self.constant("bool", x.lanes, True)
        places = self._places(address, indices, element)
        arguments = [raw, places, ir.Constant(I32, _bytes(element.storage)), mask.value]
        self.call(f"llvm.masked.scatter.{_code(raw.type)}.v{x.lanes}p0", ir.VoidType(), arguments)

    def prefetch(self, address: ir.Value, index: ir.Value | int, dtype: str, to_write: bool = False) -> None:
        """Asks for the cache line of an element to be read, or written, soon."""
        arguments = [self.at(address, index, dtype), *(ir.Constant(I32, n) for n in (int(to_write), 3, 1))]
        self.call("llvm.prefetch.p0", ir.VoidType(), arguments)

    def tail_mask(self, count: Vector, lanes: int) -> Vector:
        """Set in the first ``count`` lanes, all of them from ``lanes`` on; ``count`` is an int64 scalar."""
        # 32-bit lanes are enough, and cheap, once the count cannot exceed the number of lanes.
        few = self.cast(self.select(count > lanes, lanes, count), "int32")
        return self.iota("int32", lanes) < self.broadcast(few, lanes)


def _bytes(storage: ir.Type) -> int:
    for element in ELEMENTS.values():
        if element.storage is storage:
            return max(element.bits // 8, 1)
    raise KeyError(storage)


def _code(kind: ir.Type) -> str:
    """LLVM's name of a vector type in the name of an intrinsic."""
    element = kind.element
    names = {HALF: "f16", FLOAT: "f32", DOUBLE: "f64"}
    return f"v{kind.count}{names[element] if element in names else 'i' + str(element.width)}"
