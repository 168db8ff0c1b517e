"""The table of element types."""

from __future__ import annotations

import numpy as np
import pytest

from gpujit.ir import dtypes
from gpujit.ir.dtypes import BY_CODE, BY_IR_NAME, BY_NAME, SCALAR_TYPES, code_of, is_tensor_dtype, kind_of, numpy_dtype


def test_every_entry_is_found_by_each_of_its_names() -> None:
    for entry in SCALAR_TYPES:
        assert BY_CODE[entry.code] is BY_NAME[entry.name] is BY_IR_NAME[entry.ir_name] is entry
        if entry.dtype is not None:
            assert code_of(entry.dtype) == entry.code
            assert numpy_dtype(entry.code) == entry.dtype
            assert is_tensor_dtype(entry.dtype)


def test_dtypes_tensors_cannot_have() -> None:
    assert not is_tensor_dtype(np.dtype("U3"))
    with pytest.raises(KeyError):
        code_of(np.dtype(object))
    with pytest.raises(TypeError, match="complex32 has no NumPy dtype"):
        numpy_dtype(8)
    with pytest.raises(KeyError):
        numpy_dtype(99)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("bool", 0), ("uint8", 1), ("int64", 1), ("float16", 2), ("bfloat16", 2), ("float8_e5m2", 2), ("complex64", 3)],
)
def test_kinds_for_promotion(name: str, kind: int) -> None:
    dtype = BY_NAME[name].dtype
    assert dtype is not None
    assert kind_of(dtype) == kind


def test_groups_of_dtypes() -> None:
    assert {str(d) for d in dtypes.HALF_TYPES} == {"float16", "bfloat16"}
    assert len(dtypes.FLOAT8_TYPES) == 5


@pytest.mark.torch
def test_codes_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    for entry in SCALAR_TYPES:
        torch_dtype = getattr(torch, entry.name, None)
        if torch_dtype is not None:
            graph = torch._C.parse_ir(f"graph(%x : {entry.ir_name}(2)):\n  return (%x)", False)
            assert next(graph.inputs()).type().dtype() == torch_dtype
