"""Tests on types answered before run time: ``is None``, ``isinstance``."""

from __future__ import annotations

from collections.abc import Sequence

from gpujit.ir import types as T
from gpujit.ir.graph import Node, Value


def decided(node: Node) -> bool | None:
    """What a test on types will say for every value its inputs may have; None when it depends, or is no such test."""
    if node.kind == "prim::isinstance":
        return is_instance(node.inputs[0].type, node.attributes["types"])
    if node.kind in ("aten::__is__", "aten::__isnot__") and len(node.inputs) == 2:
        same = _is_same(*node.inputs)
        return same if same is None or node.kind == "aten::__is__" else not same
    return None


def is_instance(actual: T.Type, wanted: Sequence[T.Type]) -> bool | None:
    """Whether values of one type are instances of one of ``wanted``; None when some may be and some not."""
    members = T.members_of(actual)
    if all(any(_always_is(m, w) for w in wanted) for m in members):
        return True
    if all(_are_apart(m, w) for m in members for each in wanted for w in T.members_of(each)):
        return False
    return None


def _is_same(a: Value, b: Value) -> bool | None:
    if a.type == T.NONE and b.type == T.NONE:
        return True
    if T.NONE not in (a.type, b.type):
        return None
    other = b.type if a.type == T.NONE else a.type
    if _is_open(other) or T.may_be_none(other):
        return None
    return False


# What ``isinstance`` tells apart by the kind of a value alone.
_DISTINCT = (T.INT, T.FLOAT, T.BOOL, T.STR, T.NONE, T.COMPLEX, T.DEVICE)


def _is_open(t: T.Type) -> bool:
    """Whether values of the type may be of any other one too."""
    return isinstance(t, T.InterfaceType) or (isinstance(t, T.SimpleType) and t not in _DISTINCT)


def _always_is(actual: T.Type, wanted: T.Type) -> bool:
    # A list says nothing of its element type while it is empty, and a tensor's declared facts are no test.
    if isinstance(wanted, T.TensorType):
        return isinstance(actual, T.TensorType)
    if isinstance(actual, (T.ListType, T.DictType, T.TupleType)):
        return actual == wanted
    return not isinstance(actual, T.InterfaceType) and actual != T.UNKNOWN and T.is_subtype(actual, wanted)


def _are_apart(actual: T.Type, wanted: T.Type) -> bool:
    if _is_open(actual) or _is_open(wanted):
        return False
    if isinstance(actual, T.SimpleType) and isinstance(wanted, T.SimpleType):
        return actual != wanted
    return type(actual) is not type(wanted)
