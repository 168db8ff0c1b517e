"""The element types of tensors: TorchScript's codes, names and NumPy's dtypes, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One element type.

    ``code`` is the integer TorchScript uses for it, ``ir_name`` its name in graph text, ``name`` its name in the Python
    API, ``storage`` the prefix of its storage class, ``dtype`` the NumPy dtype that holds it (None when none can).
    """

    code: int
    ir_name: str
    name: str
    dtype: np.dtype | None
    storage: str = ""


def _d(t: object) -> np.dtype:
    return np.dtype(t)  # type: ignore[call-overload, no-any-return]  # ml_dtypes' scalar classes have no stubs


SCALAR_TYPES: tuple[ScalarType, ...] = (
    ScalarType(0, "Byte", "uint8", _d(np.uint8)),
    ScalarType(1, "Char", "int8", _d(np.int8)),
    ScalarType(2, "Short", "int16", _d(np.int16)),
    ScalarType(3, "Int", "int32", _d(np.int32)),
    ScalarType(4, "Long", "int64", _d(np.int64)),
    ScalarType(5, "Half", "float16", _d(np.float16)),
    ScalarType(6, "Float", "float32", _d(np.float32)),
    ScalarType(7, "Double", "float64", _d(np.float64)),
    ScalarType(8, "ComplexHalf", "complex32", None),
    ScalarType(9, "ComplexFloat", "complex64", _d(np.complex64)),
    ScalarType(10, "ComplexDouble", "complex128", _d(np.complex128)),
    ScalarType(11, "Bool", "bool", _d(np.bool_)),
    ScalarType(12, "QInt8", "qint8", None),
    ScalarType(13, "QUInt8", "quint8", None),
    ScalarType(14, "QInt32", "qint32", None),
    ScalarType(15, "BFloat16", "bfloat16", _d(ml_dtypes.bfloat16)),
    ScalarType(23, "Float8_e5m2", "float8_e5m2", _d(ml_dtypes.float8_e5m2)),
    ScalarType(24, "Float8_e4m3fn", "float8_e4m3fn", _d(ml_dtypes.float8_e4m3fn)),
    ScalarType(25, "Float8_e5m2fnuz", "float8_e5m2fnuz", _d(ml_dtypes.float8_e5m2fnuz)),
    ScalarType(26, "Float8_e4m3fnuz", "float8_e4m3fnuz", _d(ml_dtypes.float8_e4m3fnuz)),
    ScalarType(27, "UInt16", "uint16", _d(np.uint16)),
    ScalarType(28, "UInt32", "uint32", _d(np.uint32)),
    ScalarType(29, "UInt64", "uint64", _d(np.uint64)),
    ScalarType(44, "Float8_e8m0fnu", "float8_e8m0fnu", _d(ml_dtypes.float8_e8m0fnu)),
)

BY_CODE: dict[int, ScalarType] = {s.code: s for s in SCALAR_TYPES}
BY_NAME: dict[str, ScalarType] = {s.name: s for s in SCALAR_TYPES}
BY_IR_NAME: dict[str, ScalarType] = {s.ir_name: s for s in SCALAR_TYPES}
IR_NAMES: dict[int, str] = {s.code: s.ir_name for s in SCALAR_TYPES}
_CODE_OF: dict[np.dtype, int] = {s.dtype: s.code for s in SCALAR_TYPES if s.dtype is not None}

BFLOAT16 = _d(ml_dtypes.bfloat16)
FLOAT16 = _d(np.float16)
FLOAT32 = _d(np.float32)
FLOAT64 = _d(np.float64)
INT64 = _d(np.int64)
BOOL_ = _d(np.bool_)
HALF_TYPES: frozenset[np.dtype] = frozenset((FLOAT16, BFLOAT16))
# No arithmetic of their own: numbers of these types are only stored and converted.
FLOAT8_TYPES: frozenset[np.dtype] = frozenset(
    s.dtype for s in SCALAR_TYPES if s.dtype is not None and "8_e" in s.ir_name
)
# What the constant matrices of products may be kept as.
WEIGHT_TYPES: tuple[np.dtype, ...] = (FLOAT32, BFLOAT16, _d(np.int8))


def code_of(dtype: np.dtype) -> int:
    """TorchScript's code of a NumPy dtype. Raises KeyError for a dtype tensors cannot have (str, object, ...)."""
    return _CODE_OF[dtype]


def is_tensor_dtype(dtype: np.dtype) -> bool:
    """Whether tensors can have this dtype."""
    return dtype in _CODE_OF


def numpy_dtype(code: int) -> np.dtype:
    """The NumPy dtype of a ScalarType code.

    Raises KeyError for an unknown code and TypeError for one that NumPy cannot hold (complex32, quantised types).
    """
    dtype = BY_CODE[code].dtype
    if dtype is None:
        raise TypeError(f"{BY_CODE[code].name} has no NumPy dtype")
    return dtype


@cache
def kind_of(dtype: np.dtype) -> int:
    """The kind of a dtype for promotion: 0 bool, 1 integer, 2 floating, 3 complex."""
    if dtype == BOOL_:
        return 0
    if dtype.kind in "iu":
        return 1
    return 3 if dtype.kind == "c" else 2
