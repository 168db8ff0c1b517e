"""Run-time values against types: isinstance, tolist, what callers pass, and what attributes take."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit
from gpujit.ir import types as T
from gpujit.ir.type_parser import parse_type
from gpujit.ir.values import Device, EnumValue, Future, QTensor, ScriptObject
from gpujit.runtime.values import as_array, convert, describe, has_type, tensor_to_list
from gpujit.support.errors import OpError
from tests.programs import archive, forward, module

E = T.EnumType("__torch__.E", T.INT, {"A": 1})
K = T.ClassType("__torch__.K")
ARRAY = np.ones((2, 3), np.float32)
QUANTISED = QTensor(np.ones(2, np.int8), 12, 1.0, 0)


@pytest.mark.parametrize(
    ("type_", "yes", "no"),
    [
        ("int", [0, -1], [True, 1.0, None, ARRAY]),
        ("float", [0.5, np.inf], [1, True, 1j]),
        ("bool", [True], [1, 0]),
        ("number", [1, 1.5, 1j], [True, "a"]),
        ("Tensor", [ARRAY, QUANTISED], [1.5, [ARRAY], None]),
        ("str", ["a"], [b"a"]),
        ("NoneType", [None], [0, False]),
        ("int?", [None, 3], [1.5]),
        ("Union[int, str]", [1, "a"], [True, None, 1.5]),
        ("int[]", [[], [1, 2]], [[1, True], (1,), None]),
        ("int?[]", [[None, 1]], [["a"]]),
        ("Dict(str, int)", [{}, {"a": 1}], [{1: 1}, {"a": "b"}, []]),
        ("(int, str)", [(1, "a")], [(1,), [1, "a"], (1, 2)]),
        ("Any", [1, None, ARRAY], []),
        ("Device", [Device("cpu")], ["cpu"]),
        ("Future(int)", [Future(1)], [1]),
    ],
)
def test_has_type(type_: str, yes: list[Any], no: list[Any]) -> None:
    t = parse_type(type_)
    assert all(has_type(v, t) for v in yes) and not any(has_type(v, t) for v in no)


def test_has_type_of_classes_and_enums() -> None:
    assert has_type(ScriptObject(K), K) and not has_type(ScriptObject(T.ClassType("__torch__.K")), K)
    assert has_type(EnumValue(E, "A", 1), E) and not has_type(1, E)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ARRAY, "float32[2, 3]"),
        (np.float16(1), "float16[]"),
        (3, "int 3"),
        (True, "bool True"),
        ("a" * 100, "str"),
        (None, "NoneType"),
        ([1, "a"], "list of (int 1, str 'a')"),
        ([1] * 100, "list"),
        ({"a": 1}, "dict"),
        (object, "type"),
        (EnumValue(E, "A", 1), "value of __torch__.E"),
        (ScriptObject(K), "value of __torch__.K"),
    ],
)
def test_describe(value: Any, text: str) -> None:
    assert describe(value) == text


@pytest.mark.parametrize(
    ("array", "type_", "want"),
    [
        (np.array(3), T.INT, 3),
        (np.array([1.5, 2.5], np.float32), T.ListType(T.FLOAT), [1.5, 2.5]),
        (np.array([[True]]), T.ListType(T.ListType(T.BOOL)), [[True]]),
        (np.array([1j]), T.ListType(T.COMPLEX), [1j]),
        (np.array([1], np.uint8), T.ListType(T.INT), [1]),
        (np.array(1.5, ml_dtypes.bfloat16), T.FLOAT, 1.5),
    ],
)
def test_tolist(array: np.ndarray, type_: T.Type, want: Any) -> None:
    found = tensor_to_list(array, type_)
    assert found == want and type(found) is type(want)


@pytest.mark.parametrize(
    ("array", "type_", "text"),
    [
        (np.ones((2, 2)), T.ListType(T.FLOAT), "List[float] has 1 dimensions, the tensor has 2"),
        (np.ones(2), T.FLOAT, "float has 0 dimensions, the tensor has 1"),
        (np.ones(2), T.ListType(T.INT), "List[int] does not fit a tensor of dtype float64"),
        (np.ones(2, bool), T.ListType(T.INT), "List[int] does not fit a tensor of dtype bool"),
        (np.ones(2), T.ListType(T.STR), "List[str] does not fit"),
    ],
)
def test_tolist_that_does_not_fit(array: np.ndarray, type_: T.Type, text: str) -> None:
    with pytest.raises(OpError, match=r"tolist: ") as caught:
        tensor_to_list(array, type_)
    assert text in str(caught.value)


def test_arrays_are_not_copied() -> None:
    for value in (ARRAY, ARRAY.T, ARRAY[::-1], np.broadcast_to(ARRAY, (4, 2, 3)), memory_owner(ARRAY)):
        assert np.shares_memory(as_array(value), ARRAY)
    assert as_array(QUANTISED) is QUANTISED


def memory_owner(array: np.ndarray) -> Any:
    class Owner:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return array

    return Owner()


@pytest.mark.parametrize("dtype", ["<U3", "S3", "O", "M8[s]", "m8[s]", [("a", int)], "V4"])
def test_dtypes_that_tensors_cannot_have(dtype: Any) -> None:
    with pytest.raises(gpujit.ArgumentError, match="which tensors cannot have"):
        gpujit.load(archive(module(forward("x: Tensor", "return x")), {}))(np.zeros(2, dtype))


def test_long_double_is_no_tensor_dtype() -> None:
    if np.dtype(np.longdouble).itemsize > 8:
        with pytest.raises(gpujit.ArgumentError):
            gpujit.load(archive(module(forward("x: Tensor", "return x")), {}))(np.zeros(2, np.longdouble))


def test_named_tuples_are_made_of_tuples_and_lists() -> None:
    t = T.TupleType((T.INT, T.FLOAT), "__torch__.P", ("x", "y"))
    found = convert((True, 2), t)
    assert found == (1, 2.0) and found.y == 2.0 and type(found).__name__ == "P"
    assert convert([1, 2], t) == (1, 2.0)


def test_a_failing_array_method_is_the_callers_error() -> None:
    class Broken:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data"):
        gpujit.load(archive(module(forward("x: Tensor", "return x")), {}))(Broken())
