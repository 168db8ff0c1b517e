"""Values of random types through the pickler and our own reader; the opcodes are those PyTorch's reader knows."""

from __future__ import annotations

import math
import pickletools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import gpujit
from gpujit.ir import types as T
from gpujit.ir.values import EnumValue, ScriptObject, parse_device
from gpujit.serialization.writer import save_to_bytes
from tests.serialization.saved import members

COLOR = T.EnumType("__torch__.Color", T.STR, {"RED": "r", "BLUE": "b"})
POINT = T.TupleType((T.INT, T.OptionalType(T.STR)), "__torch__.Point", ("x", "y"))

# What torch/csrc/jit/serialization/unpickler.cpp takes, as far as writers use it.
OPCODES = {
    "PROTO", "GLOBAL", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "MARK", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "EMPTY_TUPLE", "EMPTY_LIST", "APPENDS", "EMPTY_DICT", "SETITEMS", "NEWOBJ", "REDUCE", "BUILD", "BINPERSID",
    "BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "NONE", "NEWTRUE", "NEWFALSE", "STOP",
}  # fmt: skip

_INTS = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([0, 255, 256, 65535, 65536, -1, 1 << 31, -(1 << 31)])
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
_ARRAYS = st.builds(
    lambda dtype, shape, start: (np.arange(math.prod(shape)) + start).astype(dtype).reshape(shape),
    st.sampled_from([np.float32, np.int64, np.bool_, np.complex64, np.uint8]),
    st.sampled_from([(), (3,), (2, 2), (0, 2)]),
    st.integers(0, 5),
)
_SIMPLE: list[tuple[T.Type, st.SearchStrategy[Any]]] = [
    (T.INT, _INTS),
    (T.FLOAT, st.floats()),
    (T.BOOL, st.booleans()),
    (T.STR, _TEXTS),
    (T.COMPLEX, st.complex_numbers(allow_nan=False)),
    (T.NONE, st.none()),
    (T.DEVICE, st.sampled_from(["cpu", "cuda:3"]).map(parse_device)),
    (T.TENSOR, _ARRAYS),
    (COLOR, st.sampled_from([EnumValue(COLOR, "RED", "r"), EnumValue(COLOR, "BLUE", "b")])),
]
_KEYS = [(T.INT, _INTS), (T.STR, _TEXTS), (T.BOOL, st.booleans())]


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 0) -> tuple[T.Type, Any]:
    """A type and a value of it."""
    kind = draw(st.sampled_from(["simple"] if depth == 3 else ["simple", "list", "dict", "tuple", "optional", "point"]))
    if kind == "simple":
        t, values = draw(st.sampled_from(_SIMPLE))
        return t, draw(values)
    if kind == "point":
        return POINT, (draw(_INTS), draw(st.none() | _TEXTS))
    if kind == "tuple":
        items = draw(st.lists(typed_values(depth=depth + 1), max_size=5))
        return T.TupleType(tuple(t for t, _ in items)), tuple(v for _, v in items)
    element, value = draw(typed_values(depth=depth + 1))
    if kind == "optional":
        return T.optional(element), draw(st.sampled_from([None, value]))
    count = draw(st.integers(0, 3))
    if kind == "list":
        # The same value several times: lists and tensors met twice are references.
        return T.ListType(element), [value] * count
    key, keys = draw(st.sampled_from(_KEYS))
    return T.DictType(key, element), {draw(keys): value for _ in range(count)}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, EnumValue):
        return isinstance(b, EnumValue) and (a.name, a.value) == (b.name, b.value)
    if isinstance(a, (list, tuple)):
        return isinstance(b, type(a)) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and (a == b or (a != a and b != b))


@settings(max_examples=200)
@given(st.lists(typed_values(), max_size=4))
def test_values_of_random_types_come_back(items: list[tuple[T.Type, Any]]) -> None:
    cls = T.ClassType("__torch__.M", is_module=True)
    for i, (t, _) in enumerate(items):
        cls.add_attribute(f"a{i}", t)
    data = save_to_bytes(ScriptObject(cls, [v for _, v in items]), run_method=_nothing)
    assert {op.name for op, _, _ in pickletools.genops(members(data)["data.pkl"])} <= OPCODES
    loaded = gpujit.load(data, map_location=lambda storage, place: None)
    for i, (_, value) in enumerate(items):
        assert same(value, loaded._object.get(f"a{i}"))
    assert loaded.save_to_buffer() == data


def _nothing(function: Any, arguments: list[Any]) -> Any:
    raise AssertionError("no method is run")


def test_different_classes_of_one_name_are_told_apart() -> None:
    """The second moves into a module of its own, as in PyTorch; the pickle and the source agree."""
    inner = [T.ClassType("__torch__.pkg.Sub", is_module=True) for _ in range(3)]
    inner[0].add_attribute("n", T.INT)
    inner[1].add_attribute("s", T.STR)
    root = T.ClassType("__torch__.M", is_module=True)
    for i, t in enumerate(inner):
        root.add_attribute(f"sub{i}", t)
    subs = [ScriptObject(inner[0], [1]), ScriptObject(inner[1], ["x"]), ScriptObject(inner[2], [])]
    data = save_to_bytes(ScriptObject(root, list(subs)), run_method=_nothing)
    names = [n for n in members(data) if n.startswith("code/")]
    assert names == [
        "code/__torch__.py", "code/__torch__/pkg.py", "code/__torch__/pkg/___torch_mangle_0.py",
        "code/__torch__/pkg/___torch_mangle_1.py",
    ]  # fmt: skip
    loaded = gpujit.load(data)
    assert (loaded.sub0.n, loaded.sub1.s) == (1, "x")
    assert loaded.save_to_buffer() == data


def test_names_that_source_cannot_have_are_changed() -> None:
    t = T.ClassType("main.<locals>.class", is_module=True)
    t.add_attribute("1", T.INT)
    data = save_to_bytes(ScriptObject(t, [3]), run_method=_nothing)
    loaded = gpujit.load(data)
    assert loaded._object.type.name == "__torch__.main._locals_.class_"
    assert loaded._object.get("1") == 3
