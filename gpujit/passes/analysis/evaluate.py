"""One node computed on known values, with the kernels the interpreter uses; nothing where that is unsafe or too large.

A known value is what a prim::Constant may hold: numbers, strings, None, devices, enum members, arrays, and lists,
tuples and dicts of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import code_of, is_tensor_dtype, numpy_dtype
from gpujit.ir.graph import Node
from gpujit.ir.values import Device, EnumValue, is_int64, namedtuple_class
from gpujit.ir.verify import holds
from gpujit.ops import table
from gpujit.ops.families.language.containers import dict_key
from gpujit.ops.infer import infer, is_expensive
from gpujit.ops.registry import Op
from gpujit.passes.analysis.effects import is_pure
from gpujit.passes.analysis.placement import depends_on_place

# A result larger than this many bytes (or characters, or list elements) has to be smaller than GROWTH times the inputs.
LARGE = 1 << 20
GROWTH = 2
# Elements of a list or string; the programs that count in lists make short ones.
LONG = 1 << 12
# Inputs of fewer elements than this are computed without asking first how large the result will be.
_SMALL = 1 << 8

_ARITHMETIC = frozenset(("aten::add", "aten::sub", "aten::mul", "aten::div"))


def evaluate(node: Node, args: Sequence[Any]) -> tuple[Any, ...] | None:
    """The values of the node's outputs for known inputs; None when it raises, has effects or needs too much memory.

    The results may share memory with the inputs. Warnings are the caller's to mute.
    """
    build = _BUILDERS.get(node.kind)
    try:
        if build is not None:
            results = build(node, args)
        else:
            op = None if node.schema is None else table.by_full_name(node.schema.full_name)
            if op is None or node.blocks or not is_pure(node) or not _is_affordable(op, args):
                return None
            if depends_on_place(node):
                return None
            result = op.kernel(np)(*_as_read(node, args))
            results = result if len(node.outputs) > 1 else (result,)
    except Exception:
        # Whatever it raises, it raises at run time as well, if it is ever reached.
        return None
    if not isinstance(results, tuple) or len(results) != len(node.outputs):
        return None
    return results if all(map(is_known_kind, results)) and not _has_grown(args, results) else None


def is_known_kind(value: Any) -> bool:
    """Whether a value is of a kind that a constant may hold; quantised tensors, objects and GPU arrays are not."""
    kind = type(value)
    if kind is int:
        return is_int64(value)
    if kind in _PLAIN:
        return True
    if kind is np.ndarray:
        return is_tensor_dtype(value.dtype)
    if kind is list or isinstance(value, tuple):
        return len(value) <= LONG and all(map(is_known_kind, value))
    if kind is dict:
        return len(value) <= LONG and all(map(is_known_kind, value)) and all(map(is_known_kind, value.values()))
    return False


_PLAIN = frozenset((bool, float, complex, str, type(None), Device, EnumValue))


def is_mutable(value: Any) -> bool:
    """Whether somebody could change a known value, or something inside it."""
    if isinstance(value, tuple):
        return any(map(is_mutable, value))
    return isinstance(value, (np.ndarray, list, dict))


def is_number_to_arithmetic(node: Node, index: int) -> bool:
    """Whether the interpreter reads a constant 0-dim tensor as a number there (as PyTorch reads a traced number)."""
    return index == 1 and node.kind in _ARITHMETIC


def _as_read(node: Node, args: Sequence[Any]) -> Sequence[Any]:
    if len(args) > 1 and is_number_to_arithmetic(node, 1) and node.inputs[1].is_constant:
        other = args[1]
        if isinstance(other, np.ndarray) and other.ndim == 0 and other.dtype.kind != "b":
            return (args[0], other.item(), *args[2:])
    return args


# ------------------------------------------------------------------------------------------------------- limits


def _is_affordable(op: Op, args: Sequence[Any]) -> bool:
    """Whether the result is known to be small, or not much larger than the inputs, before it is computed."""
    if not any(isinstance(t, T.TensorType) for r in op.schema.returns for t in T.walk(r.type)):
        return not is_expensive(op, tuple(args))
    numbers = [a for a in _flat(args) if type(a) is int]
    elements = sum(a.size for a in _flat(args) if isinstance(a, np.ndarray))
    sizes = prod(n for n in numbers if n > 1)
    if elements < _SMALL and sizes < LARGE // 64:
        return True
    result = infer(op, [_type_of(a) for a in args])
    results = result if isinstance(result, tuple) else (result,)
    wanted = 0
    for each in results:
        if not isinstance(each, T.TensorType):
            continue
        if each.shape is None or None in each.shape:
            return op.kind in ("view", "pointwise") and sizes < LARGE // 64
        size = 8 if each.dtype is None else numpy_dtype(each.dtype).itemsize
        wanted += prod(s for s in each.shape if s is not None) * size
    return wanted <= max(LARGE, GROWTH * 8 * elements)


def _has_grown(args: Sequence[Any], results: Sequence[Any]) -> bool:
    made = sum(a.nbytes for a in _flat(results) if isinstance(a, np.ndarray))
    if made > LARGE:
        return made > GROWTH * sum(a.nbytes for a in _flat(args) if isinstance(a, np.ndarray))
    return any(isinstance(a, str) and len(a) > LARGE for a in results)


def _flat(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found += _flat(value)
        else:
            found.append(value)
    return found


def _type_of(value: Any) -> Any:
    """An argument as type inference takes it."""
    if isinstance(value, np.ndarray):
        return T.TensorType(code_of(value.dtype), value.shape)
    if isinstance(value, list):
        return [_type_of(v) for v in value]
    return value


# ------------------------------------------------------------------- nodes that have no entry in the operator table


def _make_tuple(node: Node, args: Sequence[Any]) -> tuple[Any, ...]:
    t = node.output.type
    if isinstance(t, T.TupleType) and t.name is not None:
        return (namedtuple_class(t)(*args),)
    return (tuple(args),)


def _unpack(node: Node, args: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(args[0])


def _cast(node: Node, args: Sequence[Any]) -> tuple[Any, ...]:
    # In a branch that is never taken the value may be another: a constant of it would not fit its readers.
    return (args[0],) if holds(args[0], node.output.type) else ()


def _make_dict(node: Node, args: Sequence[Any]) -> tuple[Any, ...]:
    return (dict(zip(map(dict_key, args[::2]), args[1::2], strict=True)),)


_BUILDERS: dict[str, Callable[[Node, Sequence[Any]], tuple[Any, ...]]] = {
    "prim::ListConstruct": lambda node, args: (list(args),),
    "prim::TupleConstruct": _make_tuple,
    "prim::DictConstruct": _make_dict,
    "prim::TupleUnpack": _unpack,
    "prim::ListUnpack": _unpack,
    "prim::TupleIndex": lambda node, args: (args[0][args[1]],),
    "prim::TupleSlice": lambda node, args: (tuple(args[0][node.attributes["beg"] : node.attributes["end"]]),),
    "prim::unchecked_cast": _cast,
    "prim::EnumName": lambda node, args: (args[0].name,),
    "prim::EnumValue": lambda node, args: (args[0].value,),
}
