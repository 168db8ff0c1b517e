"""Lists and dicts: values, errors, and that the very list or dict is changed."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

from gpujit.ir.types import ClassType
from gpujit.ir.values import ScriptObject
from gpujit.ops import table
from gpujit.ops.families.language.containers import TensorKey, dict_key, key_value
from gpujit.ops.registry import registered
from gpujit.support.errors import GpujitError, OpError, ShapeError
from tests.ops.check import assert_same, run

NAN = math.nan
X, Y = np.array(2.0), np.array([3], np.int32)

# Name, arguments, result, the first argument afterwards.
LISTS: list[tuple[str, list[Any], Any, Any]] = [
    ("__getitem__.t", [[1, 2, 3], -1], 3, [1, 2, 3]),
    ("select.t", [[1, 2, 3], 0], 1, [1, 2, 3]),
    ("_set_item.t", [[1, 2], -1, 5], [1, 5], [1, 5]),
    ("append.t", [[1], 2], [1, 2], [1, 2]),
    ("extend.t", [[1], [2, 3]], None, [1, 2, 3]),
    ("insert.t", [[1, 2], -100, 0], None, [0, 1, 2]),
    ("insert.t", [[1, 2], 100, 0], None, [1, 2, 0]),
    ("insert.t", [[1, 2], -1, 0], None, [1, 0, 2]),
    ("reverse.t", [[1, 2, 3]], None, [3, 2, 1]),
    ("clear.t", [[1, 2]], None, []),
    ("pop.t", [[1, 2, 3]], 3, [1, 2]),
    ("pop.t", [[1, 2, 3], 0], 1, [2, 3]),
    ("Delete.t", [[1, 2, 3], -2], None, [1, 3]),
    ("add.t", [[1], [2]], [1, 2], [1]),
    ("add_.t", [[1], [2]], [1, 2], [1, 2]),
    ("mul.left_t", [[1, 2], 2], [1, 2, 1, 2], [1, 2]),
    ("mul.right_", [2, ["a"]], ["a", "a"], 2),
    ("mul_.t", [[1, 2], 2], [1, 2, 1, 2], [1, 2, 1, 2]),
    ("mul_.t", [[1, 2], 0], [], []),
    ("slice.t", [[1, 2, 3, 4], 1, None, 2], [2, 4], [1, 2, 3, 4]),
    ("slice.t", [[1, 2, 3, 4], None, None, -1], [4, 3, 2, 1], [1, 2, 3, 4]),
    ("slice.t", [[1, 2, 3], 1, 2**63 - 1], [2, 3], [1, 2, 3]),
    ("slice.t", [[1, 2, 3], -2, -1], [2], [1, 2, 3]),
    ("list.t", [[1]], [1], [1]),
    ("copy.t", [[1]], [1], [1]),
    ("len.t", [[1, 2]], 2, [1, 2]),
    ("len.any", [(1, "a")], 2, (1, "a")),
    ("eq.int_list", [[1, 2], [1, 2]], True, [1, 2]),
    ("ne.int_list", [[1], [1, 2]], True, [1]),
    ("eq.float_list", [[0.0], [-0.0]], True, [0.0]),
    ("eq.bool_list", [[True], [False]], False, [True]),
    ("ne.str_list", [["a"], ["a"]], False, ["a"]),
    ("eq.Tensor_list", [[X, Y], [X + 0, Y + 0]], True, [X, Y]),
    ("ne.Tensor_list", [[X], [X + 1]], True, [X]),
    ("ne.Tensor_list", [[X], []], True, [X]),
    ("__contains__.int_list", [[1, 2], 2], True, [1, 2]),
    ("__contains__.str_list", [["a"], "b"], False, ["a"]),
    ("__contains__.float_list", [[0.5], 0.5], True, [0.5]),
    ("index.list_int", [[3, 4, 4], 4], 1, [3, 4, 4]),
    ("index.list_Tensor", [[X, Y], np.array(3)], 1, [X, Y]),
    ("count.str", [["a", "b", "a"], "a"], 2, ["a", "b", "a"]),
    ("count.Tensor", [[X, Y, X], np.array(2)], 2, [X, Y, X]),
    ("count.bool", [[True, False], True], 1, [True, False]),
    ("remove.float", [[0.5, 1.5, 0.5], 0.5], None, [1.5, 0.5]),
    ("remove.Tensor", [[X, Y], np.array(3)], None, [X]),
    ("sort.int", [[3, 1, 2], False], None, [1, 2, 3]),
    ("sort.str", [["b", "a"], True], None, ["b", "a"]),
    ("sort.Tensor", [[Y, X], False], None, [X, Y]),
    ("sort.any", [[(2, "b"), (1, "z"), (1, "a")], False], None, [(1, "a"), (1, "z"), (2, "b")]),
    ("sorted.float", [[2.0, -1.0]], [-1.0, 2.0], [2.0, -1.0]),
    ("sorted.bool", [[True, False]], [False, True], [True, False]),
    ("sorted.any", [[(1, 2.0), (0, 3.0)]], [(0, 3.0), (1, 2.0)], [(1, 2.0), (0, 3.0)]),
    ("sum.int", [[1, 2, 3]], 6, [1, 2, 3]),
    ("sum.int", [[2**31, 1]], -(2**31) + 1, [2**31, 1]),
    ("sum.float", [[0.1] * 10], 0.9999999999999999, [0.1] * 10),
    ("sum.complex", [[1j, 2 + 0j]], 2 + 1j, [1j, 2 + 0j]),
    ("sum.bool", [[True, True]], 2, [True, True]),
    ("any.str", [["", ""]], False, ["", ""]),
    ("any.float", [[NAN]], True, [NAN]),
    ("all.int", [[]], True, []),
    ("all.bool", [[True, False]], False, [True, False]),
]


@pytest.mark.parametrize("name, args, expected, after", LISTS, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(LISTS)])
def test_lists(name: str, args: list[Any], expected: Any, after: Any) -> None:
    args = [copy.copy(a) for a in args]
    got = run(f"aten::{name}", *args)
    assert_same(got, expected)
    assert_same(args[0], after)
    op = table.by_full_name(f"aten::{name}")
    assert op is not None
    if op.schema.is_mutable and isinstance(got, list):
        assert got is args[0]
    elif isinstance(got, list):
        assert got is not args[0]


def test_nan_equals_no_element() -> None:
    items = [NAN]
    assert run("aten::count.float", items, NAN) == 0 and not run("aten::__contains__.float_list", items, NAN)
    assert not run("aten::eq.float_list", items, [NAN]) and run("aten::ne.float_list", items, [NAN])


def test_extremes_of_lists() -> None:
    assert run("prim::min.self_int", [3, 1, 2]) == 1 and run("prim::max.self_float", [0.5, 2.5]) == 2.5
    assert run("prim::max.self_bool", [False, True]) is True
    assert run("prim::min.self_float", [1.0, NAN]) == 1.0 and math.isnan(run("prim::min.self_float", [NAN, 1.0]))
    left, right = [1, 2], [1, 3]
    assert run("prim::min.int_list", left, right) is left and run("prim::max.int_list", left, right) is right
    assert run("prim::max.float_list", [1.0], [1.0, 0.0]) == [1.0, 0.0]
    assert run("prim::min.bool_list", [True], [False, True]) == [False, True]
    assert run("prim::rangelist", 3) == [0, 1, 2]


ERRORS: list[tuple[str, tuple[Any, ...], type[GpujitError], str]] = [
    ("aten::__getitem__.t", ([1], 5), OpError, "list index out of range: 5 in a list of 1"),
    ("aten::_set_item.t", ([1], -2, 0), OpError, "list index out of range"),
    ("aten::pop.t", ([],), OpError, "pop from empty list"),
    ("aten::pop.t", ([1], 7), OpError, "list index out of range"),
    ("aten::Delete.t", ([], 0), OpError, "pop index out of range"),
    ("aten::Delete.t", ([1], 7), OpError, "list index out of range"),
    ("aten::slice.t", ([1], None, None, 0), OpError, "List slice should have non-zero step"),
    ("aten::index.list_int", ([1], 77), OpError, "'77' is not in list"),
    ("aten::index.list_float", ([], 0.5), OpError, "'0.5' is not in list"),
    ("aten::index.list_bool", ([], True), OpError, "'1' is not in list"),
    ("aten::index.list_str", ([], "u"), OpError, "'u' is not in list"),
    ("aten::remove.int", ([1], 77), OpError, r"list.remove\(x\): x not in list"),
    ("aten::index.list_Tensor", ([np.zeros(2)], np.zeros(2)), ShapeError, "more than one value is ambiguous"),
    ("aten::eq.Tensor_list", ([np.zeros(2)], [np.zeros(2)]), ShapeError, "more than one value is ambiguous"),
    ("aten::sort.any", ([ScriptObject(ClassType("K"))], False), OpError, "elements of type K cannot be sorted"),
    ("aten::len.Tensor", (np.array(1),), ShapeError, r"len\(\) of a 0-d tensor"),
    ("prim::min.self_int", ([],), OpError, r"min\(\) arg is an empty sequence"),
    ("prim::max.self_bool", ([],), OpError, r"max\(\) arg is an empty sequence"),
    ("prim::rangelist", (-1,), OpError, "cannot have -1 elements"),
    ("aten::popitem.str", ({},), OpError, r"popitem\(\): dictionary is empty"),
]


@pytest.mark.parametrize("name, args, error, text", ERRORS, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(ERRORS)])
def test_errors(name: str, args: tuple[Any, ...], error: type[GpujitError], text: str) -> None:
    with pytest.raises(error, match=text):
        run(name, *args)


KEYS: dict[str, tuple[Any, Any, str]] = {
    "str": ("a", "q", "q"),
    "int": (1, 3, "3"),
    "bool": (True, False, "False"),
    "float": (1.5, 0.5, "0.5"),
    "complex": (2 + 0j, 1j, r"0\.\+1\.j"),
    "Tensor": (X, Y, " 3"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_dicts(kind: str) -> None:
    key, other, shown = KEYS[kind]
    d: dict[Any, Any] = {dict_key(key): "v"}
    assert run(f"aten::len.Dict_{kind}", d) == 1
    assert_same(run(f"aten::keys.{kind}", d), [key])
    assert run(f"aten::values.{kind}", d) == ["v"]
    assert_same(run(f"aten::items.{kind}", d), [(key, "v")])
    assert run(f"aten::__getitem__.Dict_{kind}", d, key) == "v"
    assert run(f"aten::__contains__.{kind}", d, key) and not run(f"aten::__contains__.{kind}", d, other)
    assert run(f"aten::get.{kind}", d, other) is None and run(f"aten::get.{kind}", d, key) == "v"
    assert run(f"aten::get.default_{kind}", d, other, "w") == "w"
    assert run(f"aten::setdefault.{kind}", d, other, "w") == "w" and run(f"aten::setdefault.{kind}", d, key, "x") == "v"
    run(f"aten::_set_item.{kind}", d, key, "new")
    assert run(f"aten::values.{kind}", d) == ["new", "w"]
    copied = run(f"aten::copy.Dict_{kind}", d)
    again = run(f"aten::dict.Dict_{kind}", d)
    assert copied == d == again and copied is not d and again is not d
    assert run(f"aten::pop.Dict_{kind}", copied, key) == "new" and len(copied) == 1 and len(d) == 2
    assert run(f"aten::pop.Dict_default_{kind}", copied, key, "none") == "none"
    run(f"aten::update.{kind}", copied, d)
    assert_same(run(f"aten::keys.{kind}", copied), [other, key])
    # The first one goes first.
    assert_same(run(f"aten::popitem.{kind}", copied), (other, "w"))
    run(f"aten::Delete.Dict_{kind}", d, key)
    assert_same(run(f"aten::keys.{kind}", d), [other])
    run(f"aten::clear.{kind}", d)
    assert d == {}
    assert_same(
        run(f"aten::items.{kind}", run(f"aten::dict.{kind}", [(key, 1), (other, 2), (key, 3)])), [(key, 3), (other, 2)]
    )
    for name in ("__getitem__", "pop", "Delete"):
        with pytest.raises(OpError, match=f"KeyError: {shown}"):
            run(f"aten::{name}.Dict_{kind}", {}, other)


def test_empty_dict_is_new() -> None:
    assert run("aten::dict") == {} and run("aten::dict") is not run("aten::dict")


def test_equal_tensors_are_different_keys() -> None:
    a, b = np.zeros(2), np.zeros(2)
    d = {dict_key(a): 1, dict_key(b): 2}
    assert run("aten::__getitem__.Dict_Tensor", d, b) == 2 and len(d) == 2
    assert key_value(dict_key(a)) is a and key_value("k") == "k"
    assert TensorKey(a) == TensorKey(a) and TensorKey(a) != TensorKey(b)


def test_a_script_of_lists_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    unit = torch.jit.CompilationUnit(
        "def f(a: List[int], b: List[int], i: int, j: int, k: int):\n"
        "  c = a[i:j:k] + b * 2\n"
        "  a.extend(b)\n"
        "  a.insert(i, j)\n"
        "  a.sort(reverse=True)\n"
        "  d = a.pop(0)\n"
        "  a.reverse()\n"
        "  return c, a, d, a.count(j), min(a, b), max(a, b), sum(c), j in a, sorted(b)\n"
    )
    rng = np.random.default_rng(0)
    for _ in range(40):
        a, b = ([int(v) for v in rng.integers(-5, 6, rng.integers(1, 6))] for _ in range(2))
        i, j, k = (int(v) for v in rng.integers(-7, 8, 3))
        k = k or 1
        want = unit.f(list(a), list(b), i, j, k)
        c = run("aten::add.t", run("aten::slice.t", a, i, j, k), run("aten::mul.left_t", b, 2))
        run("aten::extend.t", a, b)
        run("aten::insert.t", a, i, j)
        run("aten::sort.int", a, True)
        d = run("aten::pop.t", a, 0)
        run("aten::reverse.t", a)
        extremes = run("prim::min.int_list", a, b), run("prim::max.int_list", a, b)
        total, found = run("aten::sum.int", c), run("aten::__contains__.int_list", a, j)
        got = (c, a, d, run("aten::count.int", a, j), *extremes, total, found, run("aten::sorted.int", b))
        assert_same(got, want)


def test_every_schema_is_pytorchs_own() -> None:
    torch = pytest.importorskip("torch")
    theirs = {str(s).replace("SymInt", "int") for s in torch._C._jit_get_all_schemas()}
    ours = [op for op in registered() if op.kind == "prim" and ("[" in op.text or "Dict(" in op.text)]
    assert len(ours) > 150
    assert [op.text for op in ours if op.text not in theirs] == []
