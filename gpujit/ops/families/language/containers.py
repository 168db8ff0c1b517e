"""Lists and dicts: Python's own, changed in place where TorchScript changes them.

Tensors as dict keys are the same key when they are the same tensor. Arrays cannot be dict keys in Python, so a dict
with Tensor keys holds ``TensorKey`` objects; ``dict_key`` makes them and ``key_value`` gives the array back.
Source: PyTorch's registrations of list and dict operators; every quirk kept here was seen with torch 2.13.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from gpujit.ir.values import Array, ScriptObject
from gpujit.ops.families.language.convert import item_of, truth_of
from gpujit.ops.families.language.scalar import greatest, least
from gpujit.ops.numbers import INT_MAX, wrap32
from gpujit.ops.registry import prim
from gpujit.ops.rules.values import element_type, first_size_type, list_slice_type
from gpujit.ops.text import value_text
from gpujit.support.errors import OpError, ShapeError

Dict = dict[Any, Any]


# ----------------------------------------------------------------------------------------------------- list elements


def _index_error(op: str, items: list[Any], index: int) -> OpError:
    return OpError(f"aten::{op}: list index out of range: {index} in a list of {len(items)}")


@prim("aten::__getitem__.t(t[](a) list, int idx) -> t(*)", type_rule=element_type)
def list_get(items: list[Any], index: int) -> Any:
    """The element at an index, counted from the end when negative."""
    try:
        return items[index]
    except IndexError:
        raise _index_error("__getitem__", items, index) from None


prim("aten::select.t(t[](a) list, int idx) -> t(*)")(list_get)


@prim("aten::_set_item.t(t[](a!) l, int idx, t(b -> *) el) -> t[](a!)")
def list_set(items: list[Any], index: int, value: Any) -> list[Any]:
    """The list itself, with the element at the index replaced."""
    try:
        items[index] = value
    except IndexError:
        raise _index_error("_set_item", items, index) from None
    return items


@prim("aten::append.t(t[](a!) self, t(c -> *) el) -> t[](a!)")
def list_append(items: list[Any], value: Any) -> list[Any]:
    """The list itself, one longer."""
    items.append(value)
    return items


prim("aten::extend.t(t[](a!) self, t[] other) -> ()")(list.extend)
prim("aten::insert.t(t[](a!) self, int idx, t(b -> *) el) -> ()")(list.insert)
prim("aten::reverse.t(t[](a!) self) -> ()")(list.reverse)
prim("aten::clear.t(t[](a!) self) -> ()")(list.clear)


@prim("aten::pop.t(t[](a!) self, int idx=-1) -> t(*)")
def list_pop(items: list[Any], index: int) -> Any:
    """The element at the index, which leaves the list."""
    if not items:
        raise OpError("aten::pop: pop from empty list; check its length first")
    try:
        return items.pop(index)
    except IndexError:
        raise _index_error("pop", items, index) from None


@prim("aten::Delete.t(t[](a!) self, int idx) -> ()")
def list_delete(items: list[Any], index: int) -> None:
    """Nothing; the element at the index leaves the list."""
    if not items:
        raise OpError("aten::Delete: pop index out of range; the list is empty")
    try:
        del items[index]
    except IndexError:
        raise _index_error("Delete", items, index) from None


# -------------------------------------------------------------------------------------------------------- whole lists


@prim("aten::add.t(t[] a, t[] b) -> t[]")
def list_add(a: list[Any], b: list[Any]) -> list[Any]:
    """A new list of the elements of both."""
    return a + b


@prim("aten::add_.t(t[](a!) self, t[] b) -> t[]")
def list_add_(a: list[Any], b: list[Any]) -> list[Any]:
    """The first list itself, grown by the second."""
    a.extend(b)
    return a


@prim("aten::mul.left_t(t[] l, int n) -> t[]", may_fail=True)
def list_repeat(items: list[Any], n: int) -> list[Any]:
    """A new list of the elements ``n`` times."""
    return items * n


prim("aten::mul.right_(int n, t[] l) -> t[]", may_fail=True)(lambda n, items: items * n)


@prim("aten::mul_.t(t[](a!) l, int n) -> t[](a!)", may_fail=True)
def list_repeat_(items: list[Any], n: int) -> list[Any]:
    """The list itself, its elements ``n`` times."""
    items *= n
    return items


@prim("aten::slice.t(t[] l, int? start=None, int? end=None, int step=1) -> t[]", type_rule=list_slice_type)
def list_slice(items: list[Any], start: int | None, end: int | None, step: int) -> list[Any]:
    """A new list of the elements from ``start`` to ``end``; an end of 2**63 - 1 means none."""
    if step == 0:
        raise OpError("aten::slice: List slice should have non-zero step; use a positive or negative one")
    return items[None if start == INT_MAX else start : None if end == INT_MAX else end : step]


prim("aten::list.t(t[] l) -> t[]")(list)
prim("aten::copy.t(t[](a) self) -> t[]")(list)


@prim("prim::rangelist(int n) -> int[]", may_fail=True)
def range_list(n: int) -> list[int]:
    """The numbers below ``n``."""
    if n < 0:
        raise OpError(f"prim::rangelist: a list cannot have {n} elements")
    return list(range(n))


prim("aten::len.t(t[] a) -> int", type_rule=first_size_type, never_raises=True)(len)


@prim("aten::len.Tensor(Tensor t) -> int", type_rule=first_size_type)
def len_tensor(x: Array) -> int:
    """The size of the first dimension. Raises ShapeError for a 0-dim tensor."""
    if not x.shape:
        raise ShapeError("aten::len: len() of a 0-d tensor; give it a dimension first")
    return x.shape[0]  # type: ignore[no-any-return]


# -------------------------------------------------------------------------------------------------- comparing elements


def _equal_floats(a: list[float], b: list[float]) -> bool:
    # Python takes one nan object for equal to itself inside lists.
    return a is b or (len(a) == len(b) and all(map(operator.eq, a, b)))


def _tensor_equals(op: str) -> Callable[[Array, Array], bool]:
    return lambda a, b: truth_of(a == b, op)


_tensors_equal = _tensor_equals("aten::eq")


def _equal_tensors(a: list[Array], b: list[Array]) -> bool:
    return len(a) == len(b) and all(map(_tensors_equal, a, b))


_LIST_EQUALITY: dict[str, Callable[[Any, Any], bool]] = {
    "int": operator.eq,
    "float": _equal_floats,
    "Tensor": _equal_tensors,
    "bool": operator.eq,
    "str": operator.eq,
}


def _declare_equality(kind: str, equal: Callable[[Any, Any], bool]) -> None:
    prim(f"aten::eq.{kind}_list({kind}[] a, {kind}[] b) -> bool")(equal)
    prim(f"aten::ne.{kind}_list({kind}[] a, {kind}[] b) -> bool")(lambda a, b: not equal(a, b))


for _kind, _equal in _LIST_EQUALITY.items():
    _declare_equality(_kind, _equal)


def position(items: Iterable[Any], value: Any, equal: Callable[[Any, Any], bool]) -> int:
    """The index of the first element equal to ``value``, or -1."""
    for i, x in enumerate(items):
        if equal(value, x):
            return i
    return -1


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.6g}" if type(value) is float else value_text(value)


def _declare_search(kind: str, equal: Callable[[Any, Any], bool]) -> None:
    def index(items: list[Any], value: Any) -> int:
        found = position(items, value, equal)
        if found < 0:
            raise OpError(f"aten::index: '{_shown(value)}' is not in list; the list has {len(items)} elements")
        return found

    def remove(items: list[Any], value: Any) -> None:
        found = position(items, value, equal)
        if found < 0:
            raise OpError(f"aten::remove: list.remove(x): x not in list; '{_shown(value)}' was looked for")
        del items[found]

    def count(items: list[Any], value: Any) -> int:
        return sum(1 for x in items if equal(value, x))

    prim(f"aten::remove.{kind}({kind}[](a!) self, {kind} el) -> ()")(remove)
    prim(f"aten::index.list_{kind}({kind}[] self, {kind} el) -> int")(index)
    prim(f"aten::count.{kind}({kind}[] self, {kind} el) -> int")(count)


for _kind in ("int", "float", "bool", "Tensor", "str"):
    _declare_search(_kind, _tensor_equals("aten::index") if _kind == "Tensor" else operator.eq)

prim("aten::__contains__.int_list(int[] l, int item) -> bool")(lambda items, x: x in items)
prim("aten::__contains__.str_list(str[] l, str item) -> bool")(lambda items, x: x in items)


# ------------------------------------------------------------------------------------------------------------- sorting


def sort_key(value: Any) -> Any:
    """What an element is sorted by. Raises OpError for what has no order."""
    if isinstance(value, tuple):
        return tuple(map(sort_key, value))
    if isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "dtype"):
        return item_of(value, "aten::sort")
    name = value.type.name if isinstance(value, ScriptObject) else type(value).__name__
    raise OpError(
        f"aten::sort: elements of type {name} cannot be sorted; only tensors, ints, floats, bools, strs and tuples of "
        "these can"
    )


def _sort(items: list[Any], reverse: bool) -> None:
    items.sort(key=None if items and type(items[0]) in _ORDERED else sort_key, reverse=reverse)


_ORDERED = frozenset((bool, int, float, str))


def _sorted(items: list[Any]) -> list[Any]:
    return sorted(items, key=None if items and type(items[0]) in _ORDERED else sort_key)


for _kind in ("int", "float", "Tensor", "bool", "str"):
    prim(f"aten::sort.{_kind}({_kind}[](a!) self, bool reverse=False) -> ()")(_sort)
    prim(f"aten::sorted.{_kind}({_kind}[](a) input) -> {_kind}[]")(_sorted)
prim("aten::sort.any(t[](a!) self, bool reverse=False) -> ()", may_fail=True)(_sort)
prim("aten::sorted.any(t[](a) self) -> t[]", may_fail=True)(_sorted)


# ------------------------------------------------------------------------------------------------ a list to one value


@prim("aten::sum.int(int[] self) -> int")
def sum_int(values: list[int]) -> int:
    """The sum, wrapped to 32 bits as PyTorch's is."""
    total = sum(values)
    return total if -(2**31) <= total < 2**31 else wrap32(total)


def _sum_from(zero: Any, values: list[Any]) -> Any:
    # Python's sum() of floats compensates for rounding.
    total = zero
    for v in values:
        total += v
    return total


prim("aten::sum.float(float[] self) -> float")(lambda values: _sum_from(0.0, values))
prim("aten::sum.complex(complex[] self) -> complex")(lambda values: _sum_from(0j, values))
prim("aten::sum.bool(bool[] self) -> int")(sum)
for _kind in ("str", "int", "float", "bool"):
    prim(f"aten::any.{_kind}({_kind}[] self) -> bool")(any)
for _kind in ("int", "float", "bool"):
    prim(f"aten::all.{_kind}({_kind}[] self) -> bool")(all)


def _declare_extreme(
    name: str, kind: str, choose: Callable[[Any, Any], Any], better: Callable[[Any, Any], Any]
) -> None:
    def of_one(values: list[Any]) -> Any:
        if not values:
            raise OpError(f"prim::{name}: {name}() arg is an empty sequence; give at least one number")
        best = values[0]
        for v in values:
            best = choose(v, best)
        return best

    def of_two(left: list[Any], right: list[Any]) -> list[Any]:
        for a, b in zip(left, right, strict=False):
            if a != b:
                return left if better(a, b) else right
        return right if better(len(right), len(left)) else left

    prim(f"prim::{name}.{kind}_list({kind}[] l, {kind}[] r) -> {kind}[]")(of_two)
    prim(f"prim::{name}.self_{kind}({kind}[] self) -> {kind}")(of_one)


for _kind in ("int", "float", "bool"):
    _declare_extreme("min", _kind, least, operator.lt)
    _declare_extreme("max", _kind, greatest, operator.gt)


# --------------------------------------------------------------------------------------------------------------- dicts


class TensorKey:
    """A tensor as a dict key: equal to itself only."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __hash__(self) -> int:
        return id(self.array)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorKey) and other.array is self.array


def dict_key(value: Any) -> Any:
    """What stands in a dict for a TorchScript key: the key itself, or a TensorKey for a tensor."""
    return TensorKey(value) if hasattr(value, "dtype") else value


def key_value(key: Any) -> Any:
    """The TorchScript key for what stands in a dict."""
    return key.array if type(key) is TensorKey else key


def _key_error(key: Any) -> OpError:
    return OpError(f"KeyError: {value_text(key)}")


def _no_change(key: Any) -> Any:
    return key


def _dict_ops(kind: str) -> dict[str, tuple[str, Callable[..., Any]]]:
    """Schema tail and body by operator for one type of keys."""
    is_tensor = kind == "Tensor"
    into: Callable[[Any], Any] = TensorKey if is_tensor else _no_change
    out_of: Callable[[Any], Any] = key_value if is_tensor else _no_change
    missing = object()

    def get(d: Dict, key: Any) -> Any:
        try:
            return d[into(key)]
        except KeyError:
            raise _key_error(key) from None

    def pop(d: Dict, key: Any) -> Any:
        value = d.pop(into(key), missing)
        if value is missing:
            raise _key_error(key)
        return value

    def delete(d: Dict, key: Any) -> None:
        pop(d, key)

    def set_item(d: Dict, key: Any, value: Any) -> None:
        d[into(key)] = value

    def popitem(d: Dict) -> tuple[Any, Any]:
        # The first one, not the last as in Python.
        for key in d:
            return out_of(key), d.pop(key)
        raise OpError("aten::popitem: popitem(): dictionary is empty; check its length first")

    def keys(d: Dict) -> list[Any]:
        return [k.array for k in d] if is_tensor else list(d)

    def items(d: Dict) -> list[tuple[Any, Any]]:
        return [(k.array, v) for k, v in d.items()] if is_tensor else list(d.items())

    def values(d: Dict) -> list[Any]:
        return list(d.values())

    def contains(d: Dict, key: Any) -> bool:
        return into(key) in d

    def get_or_none(d: Dict, key: Any) -> Any:
        return d.get(into(key))

    def get_or(d: Dict, key: Any, default: Any) -> Any:
        return d.get(into(key), default)

    def setdefault(d: Dict, key: Any, default: Any) -> Any:
        return d.setdefault(into(key), default)

    def pop_or(d: Dict, key: Any, default: Any) -> Any:
        return d.pop(into(key), default)

    def from_pairs(pairs: list[tuple[Any, Any]]) -> Dict:
        return {into(k): v for k, v in pairs}

    k, d, dw = kind, f"Dict({kind}, t)", f"Dict({kind}, t)(a!)"
    return {
        f"len.Dict_{k}": (f"({d} self) -> int", len),
        f"keys.{k}": (f"({d} self) -> {k}[](*)", keys),
        f"values.{k}": (f"({d} self) -> t[](*)", values),
        f"__getitem__.Dict_{k}": (f"({d} self, {k} key) -> t(*)", get),
        f"get.{k}": (f"({d} self, {k} key) -> t(*)?", get_or_none),
        f"get.default_{k}": (f"({d} self, {k} key, t default_value) -> t(*)", get_or),
        f"setdefault.{k}": (f"({dw} self, {k}(b -> *) key, t(c -> *) default_value) -> t(*)", setdefault),
        f"Delete.Dict_{k}": (f"({dw} self, {k} key) -> ()", delete),
        f"pop.Dict_{k}": (f"({dw} self, {k} key) -> t(*)", pop),
        f"pop.Dict_default_{k}": (f"({dw} self, {k} key, t default_value) -> t(*)", pop_or),
        f"popitem.{k}": (f"({dw} self) -> (({k}, t))", popitem),
        f"clear.{k}": (f"({dw} self) -> ()", dict.clear),
        f"update.{k}": (f"({dw} self, {dw} to_add) -> ()", dict.update),
        f"items.{k}": (f"({d} self) -> (({k}, t)[])", items),
        f"copy.Dict_{k}": (f"({d}(a) self) -> {d}", dict),
        f"__contains__.{k}": (f"({d} dict, {k} key) -> bool", contains),
        f"_set_item.{k}": (f"({dw} l, {k}(b -> *) idx, t(c -> *) v) -> ()", set_item),
        f"dict.{k}": (f"(({k}, tVal)[] inputs) -> Dict({k}, tVal)", from_pairs),
        f"dict.Dict_{k}": (f"({d}(a) self) -> {d}", dict),
    }


@prim("aten::dict() -> Dict(str, Tensor)")
def empty_dict() -> Dict:
    """An empty dict."""
    return {}


for _kind in ("str", "int", "bool", "float", "complex", "Tensor"):
    for _name, (_tail, _body) in _dict_ops(_kind).items():
        prim(f"aten::{_name}{_tail}")(_body)

prim("aten::__contains__.float_list(float[] l, float item) -> bool")(
    lambda items, x: position(items, x, operator.eq) >= 0
)
# Any[] takes tuples of mixed types too.
prim("aten::len.any(Any[] a) -> int", type_rule=first_size_type)(len)
