"""Matrix products by cuBLASLt, through nvmath-python's bindings: all is chosen and prepared before the first call.

cuBLASLt has matrices by columns. A product whose result lies by rows is computed as its transpose, so that a bias for
each column of ours is one for each row of the library's, as that takes it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64
from gpujit.kernels.launches import Gemm, Matrix
from gpujit.support.errors import InternalError

# cudaDataType and cublasComputeType_t.
_TYPES = {FLOAT32: 0, FLOAT64: 1, FLOAT16: 2, BFLOAT16: 14}
_COMPUTE_32, _COMPUTE_64, _COMPUTE_TF32 = 68, 70, 77
_TURNED = 1
_INT32, _UINT32, _INT64, _UINT64 = ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64


class Products:
    """Makes products. Threads may call it at the same time.

    Args:
        lt: the bindings' module ``nvmath.bindings.cublasLt``.
    """

    def __init__(self, lt: Any) -> None:
        self.lt = lt
        self.handle = lt.create()

    def product(
        self, gemm: Gemm, addresses: tuple[int, int, int, int], workspace: int, room: int, tf32: bool = False
    ) -> Product:
        """A product with the addresses of a, b, out and the bias (0 without one); ``tf32``: whether float32 numbers
        may be rounded to TF32. Raises InternalError."""
        return Product(self, gemm, addresses, workspace, room, tf32)


class Product:
    """One product, ready to be put on streams; ``__call__`` takes a stream's address."""

    def __init__(
        self, owner: Products, gemm: Gemm, addresses: tuple[int, int, int, int], workspace: int, room: int, tf32: bool
    ) -> None:
        lt = owner.lt
        self._lt = lt
        # What was made, and what it is given back by.
        self._destroy: list[tuple[Callable[[int], None], int]] = []
        a, b, out, bias = addresses
        left, right = (gemm.a, a), (gemm.b, b)
        by_rows = gemm.out.column == 1
        if not by_rows and gemm.bias is not None:
            raise InternalError("cuBLAS adds no bias to a result that lies by columns")
        # The first matrix of the library has the result's rows, as the library sees them.
        first, second = (right, left) if by_rows else (left, right)
        is_double = gemm.dtype == FLOAT64
        kind = _TYPES[gemm.dtype]
        scale = _TYPES[FLOAT64] if is_double else _TYPES[FLOAT32]
        compute = _COMPUTE_64 if is_double else _COMPUTE_32
        if tf32 and gemm.dtype == FLOAT32:
            compute = _COMPUTE_TF32
        self._description = lt.matmul_desc_create(compute, scale)
        self._keep(lt.matmul_desc_destroy, self._description)
        attribute = lt.MatmulDescAttribute
        layouts = []
        for (matrix, _), name in ((first, attribute.TRANSA), (second, attribute.TRANSB)):
            # Seen by columns, a matrix by rows is its transpose; so is the product.
            if (matrix.column == 1) != by_rows:
                self._describe(name, _INT32(_TURNED))
            layouts.append(self._layout(kind, matrix, gemm.batches))
        layouts.append(self._layout(kind, gemm.out, gemm.batches))
        epilogue = _epilogue(lt, gemm)
        self._describe(attribute.EPILOGUE, _UINT32(epilogue))
        if gemm.bias is not None:
            self._describe(attribute.BIAS_POINTER, _UINT64(bias))
        numbers = np.float64 if is_double else np.float32
        self._alpha, self._beta = np.array(gemm.alpha, numbers), np.array(gemm.beta, numbers)
        self._algorithm = self._heuristic(owner.handle, layouts, (first[1], second[1], out), room)
        self._arguments = (
            owner.handle, self._description, self._alpha.ctypes.data, first[1], layouts[0], second[1], layouts[1],
            self._beta.ctypes.data, out, layouts[2], out, layouts[2], self._algorithm.ctypes.data, workspace, room,
        )  # fmt: skip

    def __call__(self, stream: int) -> None:
        self._lt.matmul(*self._arguments, stream)

    def __del__(self) -> None:
        for destroy, handle in getattr(self, "_destroy", ()):
            destroy(handle)

    def _keep(self, destroy: Callable[[int], None], handle: int) -> None:
        self._destroy.append((destroy, handle))

    def _describe(self, name: Any, value: Any) -> None:
        self._lt.matmul_desc_set_attribute(self._description, int(name), ctypes.addressof(value), ctypes.sizeof(value))

    def _layout(self, kind: int, matrix: Matrix, batches: int) -> int:
        """The matrix as the library sees it: by columns."""
        lt = self._lt
        by_rows = matrix.column == 1
        rows, columns = (matrix.columns, matrix.rows) if by_rows else (matrix.rows, matrix.columns)
        step = matrix.row if by_rows else matrix.column
        found: int = lt.matrix_layout_create(kind, rows, columns, max(step, rows))
        self._keep(lt.matrix_layout_destroy, found)
        if batches > 1:
            name = lt.MatrixLayoutAttribute
            for attribute, value in (
                (name.BATCH_COUNT, _INT32(batches)),
                (name.STRIDED_BATCH_OFFSET, _INT64(matrix.batch)),
            ):
                lt.matrix_layout_set_attribute(found, int(attribute), ctypes.addressof(value), ctypes.sizeof(value))
        return found

    def _heuristic(self, handle: int, layouts: list[int], addresses: tuple[int, int, int], room: int) -> np.ndarray:
        """The algorithm that the library would choose for memory aligned like this."""
        lt = self._lt
        preference = lt.matmul_preference_create()
        try:
            name = lt.MatmulPreferenceAttribute
            values: list[tuple[Any, Any]] = [(name.MAX_WORKSPACE_BYTES, _UINT64(room))]
            a, b, out = (min(256, x & -x) if x else 256 for x in addresses)
            values += [(name.MIN_ALIGNMENT_A_BYTES, _UINT32(a)), (name.MIN_ALIGNMENT_B_BYTES, _UINT32(b))]
            values += [(name.MIN_ALIGNMENT_C_BYTES, _UINT32(out)), (name.MIN_ALIGNMENT_D_BYTES, _UINT32(out))]
            for attribute, value in values:
                lt.matmul_preference_set_attribute(
                    preference, int(attribute), ctypes.addressof(value), ctypes.sizeof(value)
                )
            found = np.zeros(1, lt.matmul_heuristic_result_dtype)
            count = np.zeros(1, np.int32)
            lt.matmul_algo_get_heuristic(
                handle, self._description, layouts[0], layouts[1], layouts[2], layouts[2], preference, 1,
                found.ctypes.data, count.ctypes.data,
            )  # fmt: skip
        finally:
            lt.matmul_preference_destroy(preference)
        if not count[0]:
            raise InternalError("cuBLAS has no algorithm for a product")
        # The algorithm is the first thing in the result.
        return found


def _epilogue(lt: Any, gemm: Gemm) -> int:
    """What the library does to the sums in the end. Raises InternalError: its gelu is another function than ours."""
    name = lt.Epilogue
    if gemm.ending == "":
        return int(name.DEFAULT if gemm.bias is None else name.BIAS)
    if gemm.ending == "relu":
        return int(name.RELU if gemm.bias is None else name.RELU_BIAS)
    raise InternalError(f"cuBLAS does not end a product with {gemm.ending}")
