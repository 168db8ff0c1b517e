"""Products for cuBLASLt on a stand-in for its bindings, which keeps the library's rules: matrices lie by columns."""

from __future__ import annotations

import ctypes
import enum
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpujit.ir.dtypes import BFLOAT16
from gpujit.kernels.launches import Address, Gemm, Matrix
from gpujit.runtime.cublas import Products
from gpujit.runtime.simulated_device import HostBacked
from gpujit.support.errors import InternalError

TYPES = {0: np.dtype("f4"), 1: np.dtype("f8"), 2: np.dtype("f2"), 14: BFLOAT16}


class StandIn:
    """``nvmath.bindings.cublasLt`` as far as products need it, on host memory."""

    class MatmulDescAttribute(enum.IntEnum):
        TRANSA, TRANSB, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8

    class MatrixLayoutAttribute(enum.IntEnum):
        BATCH_COUNT, STRIDED_BATCH_OFFSET = 5, 6

    class MatmulPreferenceAttribute(enum.IntEnum):
        MAX_WORKSPACE_BYTES = 1
        MIN_ALIGNMENT_A_BYTES, MIN_ALIGNMENT_B_BYTES, MIN_ALIGNMENT_C_BYTES, MIN_ALIGNMENT_D_BYTES = 5, 6, 7, 8

    class Epilogue(enum.IntEnum):
        DEFAULT, RELU, BIAS, RELU_BIAS = 1, 2, 4, 6

    matmul_heuristic_result_dtype = np.dtype([("algo", "u8", (8,)), ("workspace_size", "u8")])

    def __init__(self) -> None:
        self.things: dict[int, dict[Any, int]] = {}
        self.alive: Counter[str] = Counter()
        self.algorithms = 1
        # What is to be worked in, and where; None when that is not looked at. Who does the work.
        self.expected: tuple[int, int, int] | None = (12345, 4096, 9)
        self.submit: Callable[[int, Callable[[], None]], None] = lambda stream, work: work()

    def create(self) -> int:
        return 1

    def _new(self, kind: str, **facts: int) -> int:
        number = 1000 + len(self.things)
        self.things[number] = {"kind": hash(kind), **facts}
        self.alive[kind] += 1
        return number

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        return self._new("description", compute=compute, scale=scale)

    def matrix_layout_create(self, kind: int, rows: int, columns: int, ld: int) -> int:
        assert ld >= rows
        return self._new("layout", type=kind, rows=rows, columns=columns, ld=ld)

    def matmul_preference_create(self) -> int:
        return self._new("preference")

    def matmul_desc_destroy(self, number: int) -> None:
        self.alive["description"] -= 1

    def matrix_layout_destroy(self, number: int) -> None:
        self.alive["layout"] -= 1

    def matmul_preference_destroy(self, number: int) -> None:
        self.alive["preference"] -= 1

    def matmul_desc_set_attribute(self, number: int, name: int, at: int, size: int) -> None:
        assert size == (8 if name == 8 else 4)
        self.things[number][name] = int.from_bytes(ctypes.string_at(at, size), "little")

    def matrix_layout_set_attribute(self, number: int, name: int, at: int, size: int) -> None:
        assert size == (4 if name == 5 else 8)
        self.things[number][name] = int.from_bytes(ctypes.string_at(at, size), "little", signed=True)

    def matmul_preference_set_attribute(self, number: int, name: int, at: int, size: int) -> None:
        assert size == (8 if name == 1 else 4)
        self.things[number][name] = int.from_bytes(ctypes.string_at(at, size), "little")

    def matmul_algo_get_heuristic(self, handle: int, *rest: int) -> None:
        *_, preference, asked, results, count = rest
        assert asked == 1
        assert self.expected is None or self.things[preference][1] == self.expected[1]
        assert all(self.things[preference][k] in (2, 4, 8, 16, 32, 64, 128, 256) for k in (5, 6, 7, 8))
        ctypes.c_int32.from_address(count).value = self.algorithms
        ctypes.c_uint64.from_address(results).value = 77

    def matmul(self, handle: int, description: int, alpha: int, *rest: int) -> None:
        (a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm, workspace, room, stream) = rest
        assert (c, c_layout) == (d, d_layout) and self.expected in (None, (workspace, room, stream))
        assert ctypes.c_uint64.from_address(algorithm).value == 77
        self.submit(
            stream, lambda: self.multiply(description, alpha, beta, (a, a_layout), (b, b_layout), (d, d_layout))
        )

    def multiply(self, description: int, alpha: int, beta: int, *matrices: tuple[int, int]) -> None:
        facts = self.things[description]
        scale: Any = np.float64 if facts["scale"] == 1 else np.float32
        size = np.dtype(scale).itemsize
        one, other = (np.frombuffer(ctypes.string_at(x, size), scale)[0] for x in (alpha, beta))
        left, right, out = (self.matrix(x, k) for x, k in matrices)
        left = left.swapaxes(1, 2) if facts.get(3) else left
        right = right.swapaxes(1, 2) if facts.get(4) else right
        found = one * (left.astype(scale) @ right.astype(scale)) + (other * out.astype(scale) if other else 0)
        if facts[7] & 4:
            bias = self.matrix_of(facts[8], out.dtype, (1, out.shape[1], 1), (0, out.itemsize, 0))
            found = found + bias.astype(scale)
        out[...] = np.maximum(found, 0) if facts[7] & 2 else found

    def matrix(self, address: int, layout: int) -> np.ndarray:
        facts = self.things[layout]
        dtype = TYPES[facts["type"]]
        size = dtype.itemsize
        shape = (facts.get(5, 1), facts["rows"], facts["columns"])
        return self.matrix_of(address, dtype, shape, (facts.get(6, 0) * size, size, facts["ld"] * size))

    @staticmethod
    def matrix_of(address: int, dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
        length = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + dtype.itemsize
        memory = np.frombuffer((ctypes.c_char * length).from_address(address), np.uint8)
        return np.ndarray(shape, dtype, memory, 0, strides)


def matrix(rng: random.Random, number: int, rows: int, columns: int, batches: int, by_rows: bool) -> tuple[Matrix, int]:
    """A matrix somewhere in an array, and the elements that array has."""
    inner = columns if by_rows else rows
    step = inner + rng.choice([0, 0, 3])
    whole = step * (rows if by_rows else columns)
    batch = whole + rng.choice([0, 5])
    first = rng.choice([0, 4])
    row, column = (step, 1) if by_rows else (1, step)
    return Matrix(Address(number, 0), rows, columns, row, column, batch), first + batch * batches


@pytest.mark.parametrize("dtype", TYPES.values(), ids=str)
def test_products_are_what_the_plan_says(dtype: np.dtype) -> None:
    rng, device, lt = random.Random(3), HostBacked(), StandIn()
    products = Products(lt)
    for case in range(60):
        m, n, k, batches = (rng.choice([1, 2, 3, 5]) for _ in range(4))
        by_rows = rng.random() < 0.6
        a, a_size = matrix(rng, 0, m, k, batches, rng.random() < 0.5)
        b, b_size = matrix(rng, 1, k, n, batches, rng.random() < 0.5)
        out, out_size = matrix(rng, 2, m, n, batches, by_rows)
        bias = Address(3) if out.column == 1 and rng.random() < 0.5 else None
        call = Gemm(
            a, b, out, batches, dtype, rng.choice([1.0, 0.5]), rng.choice([0.0, 2.0]), bias, rng.choice(["", "relu"])
        )
        memories = [device.allocate(size * dtype.itemsize) for size in (a_size, b_size, out_size, n)]
        start = np.random.default_rng(case)
        for memory in memories:
            memory.bytes.view(dtype)[...] = start.integers(-4, 4, memory.nbytes // dtype.itemsize)
        before = memories[2].bytes.copy()

        def at(number: int, memories: Any = memories) -> int:
            return int(memories[number].address)

        device.product(call, at)()
        want, memories[2].bytes[...] = memories[2].bytes.copy(), before
        addresses = (at(0), at(1), at(2), 0 if bias is None else at(3))
        product = products.product(call, addresses, 12345, 4096)
        product(9)
        assert np.array_equal(memories[2].bytes, want), call
        del product
    assert not any(lt.alive.values())


def simple(**changes: Any) -> Gemm:
    x = Matrix(Address(0), 2, 2, 2, 1)
    facts: dict[str, Any] = {"a": x, "b": x, "out": x, "batches": 1, "dtype": np.dtype("f4")}
    return Gemm(**(facts | changes))


def test_tf32_is_used_only_when_asked_for() -> None:
    for dtype, tf32, wanted in (("f4", False, 68), ("f4", True, 77), ("f2", True, 68), ("f8", True, 70)):
        lt = StandIn()
        product = Products(lt).product(simple(dtype=np.dtype(dtype)), (256, 256, 256, 0), 12345, 4096, tf32)
        assert [t["compute"] for t in lt.things.values() if "compute" in t] == [wanted]
        del product


def test_what_the_library_does_not_do() -> None:
    lt = StandIn()
    by_columns = Matrix(Address(0), 2, 3, 1, 2)
    for call, text in (
        (simple(ending="gelu"), "does not end a product with gelu"),
        (simple(out=by_columns, bias=Address(1)), "adds no bias to a result that lies by columns"),
    ):
        with pytest.raises(InternalError, match=text):
            Products(lt).product(call, (256, 256, 256, 256), 12345, 4096)
    lt.algorithms = 0
    with pytest.raises(InternalError, match="no algorithm"):
        Products(lt).product(simple(), (256, 256, 256, 0), 12345, 4096)
    assert not any(lt.alive.values())
