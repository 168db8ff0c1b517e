"""Type inference through the kinds of the language: constants, containers, attributes, ifs and loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.graph import Node
from gpujit.ir.symbols import Sym
from gpujit.ir.values import QTensor, ScriptObject, SparseTensor
from gpujit.ops.infer_cases import join, type_of
from gpujit.ops.rules.common import UNKNOWN, ListOf, Unknown
from gpujit.passes.infer.engine import HANDLERS, Blank, Engine, from_type, plain

# Rounds of a loop after which everything it carries counts as unknown.
MAX_ROUNDS = 16
# Constant lists up to this long are followed element by element.
_LONGEST = 256


def _constant(engine: Engine, node: Node) -> None:
    engine.set(node.output, _of_value(node.attributes.get("value"), node.output.type))


def _of_value(value: Any, t: T.Type) -> Any:
    if isinstance(value, (np.ndarray, QTensor, SparseTensor)):
        return type_of(value)
    if isinstance(value, (list, tuple)) and len(value) <= _LONGEST:
        return type(value)(_of_value(v, T.ANY) for v in value) if type(value) in (list, tuple) else UNKNOWN
    if value is None or isinstance(value, (bool, int, float, complex, str, ScriptObject)):
        return value
    return from_type(t)


def _get_attribute(engine: Engine, node: Node) -> None:
    owner, name = engine.get(node.inputs[0]), node.attributes["name"]
    t = node.output.type
    declared = from_type(t)
    if isinstance(owner, ScriptObject) and not engine.all_written and (node.inputs[0].type, name) not in engine.written:
        if name in owner.type.slot_of:
            value = owner.get(name)
            if value is None:
                declared = None
            elif isinstance(t, T.ClassType) and not isinstance(value, ScriptObject):
                # Of objects of custom classes (packed weights) type rules may read sizes.
                declared = value
            elif isinstance(value, (np.ndarray, QTensor, ScriptObject)):
                declared = type_of(value) if not isinstance(value, ScriptObject) else value
        elif name in owner.type.constants:
            declared = _of_value(owner.type.constants[name][1], t)
    engine.set(node.output, declared)


def _make_list(engine: Engine, node: Node) -> None:
    items = [engine.get(v) for v in node.inputs]
    engine.set(node.output, items if engine.is_settled(node.output) else from_type(node.output.type))


def _make_tuple(engine: Engine, node: Node) -> None:
    engine.set(node.output, tuple(engine.get(v) for v in node.inputs))


def _unpack(engine: Engine, node: Node) -> None:
    held = engine.get(node.inputs[0])
    if isinstance(held, (list, tuple)) and len(held) == len(node.outputs):
        for value, item in zip(node.outputs, held, strict=True):
            engine.set(value, item)
    elif isinstance(held, ListOf):
        for value in node.outputs:
            engine.set(value, held.element)
    else:
        engine.unknown(node)


def _tuple_index(engine: Engine, node: Node) -> None:
    held, index = (engine.get(v) for v in node.inputs)
    if isinstance(held, tuple) and type(index) is int and -len(held) <= index < len(held):
        engine.set(node.output, held[index])
    else:
        engine.unknown(node)


def _tuple_slice(engine: Engine, node: Node) -> None:
    held = engine.get(node.inputs[0])
    if isinstance(held, tuple):
        engine.set(node.output, held[node.attributes["beg"] : node.attributes["end"]])
    else:
        engine.unknown(node)


def _same(engine: Engine, node: Node) -> None:
    held = engine.get(node.inputs[0])
    engine.set(node.output, from_type(node.output.type) if isinstance(held, Unknown) or held is None else held)
    if node.inputs[0] in engine.numbers:
        engine.numbers[node.output] = engine.numbers[node.inputs[0]]


_NEVER = Blank()


def _uninitialized(engine: Engine, node: Node) -> None:
    engine.set(node.output, _NEVER)


def _joined(a: Any, b: Any) -> Any:
    if isinstance(a, Blank):
        return b
    if isinstance(b, Blank):
        return a
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(map(_joined, a, b))
    if a is b:
        return a
    if isinstance(a, ScriptObject) or isinstance(b, ScriptObject):
        return UNKNOWN
    if isinstance(a, Sym) or isinstance(b, Sym):
        return a if a == b else Unknown(int) if {type(a), type(b)} <= {int, Sym} else UNKNOWN
    if isinstance(a, Unknown) and isinstance(b, Unknown) and a.type is b.type:
        return a
    return join(a, b)


def _if(engine: Engine, node: Node) -> None:
    condition = engine.get(node.inputs[0])
    before = dict(engine.numbers)
    ends = []
    for block in node.blocks:
        engine.numbers.update(before)
        engine.block(block)
        ends.append([engine.get(v) for v in block.returns])
        before = {v: n for v, n in before.items() if v in engine.numbers}
    for v in [v for v in engine.numbers if v not in before]:
        del engine.numbers[v]
    for i, value in enumerate(node.outputs):
        a, b = ends[0][i], ends[1][i]
        if type(condition) is bool:
            found = a if condition else b
        else:
            found = _joined(a, b)
        if isinstance(found, Unknown) and not isinstance(found, Blank):
            found = from_type(plain(value.type))
        engine.set(value, found)


def _loop(engine: Engine, node: Node) -> None:
    _, _, *carried = node.inputs
    (block,) = node.blocks
    state = [engine.get(v) for v in carried]
    engine.set(block.params[0], Unknown(int))
    # A number known before the loop may be written in it.
    engine.numbers.clear()
    for rounds in range(MAX_ROUNDS + 1):
        if rounds == MAX_ROUNDS:
            state = [from_type(plain(v.type)) for v in block.params[1:]]
        for value, known in zip(block.params[1:], state, strict=True):
            if isinstance(known, Unknown) and not isinstance(known, Blank):
                known = from_type(plain(value.type))
            engine.set(value, known)
        engine.numbers.clear()
        engine.block(block)
        after = [_joined(known, engine.get(v)) for known, v in zip(state, block.returns[1:], strict=True)]
        if rounds == MAX_ROUNDS or all(map(_same_fact, state, after)):
            break
        state = after
    engine.numbers.clear()
    for value, known in zip(node.outputs, state, strict=True):
        if isinstance(known, Unknown) and not isinstance(known, Blank):
            known = from_type(plain(value.type))
        engine.set(value, known)


def _same_fact(a: Any, b: Any) -> bool:
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return isinstance(a, Unknown) and isinstance(b, Unknown) and type(a) is type(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same_fact, a, b))
    return bool(repr(a) == repr(b)) if isinstance(a, float) else bool(a == b)


def _isinstance(engine: Engine, node: Node) -> None:
    engine.set(node.output, Unknown(bool))


HANDLERS |= {
    "prim::Constant": _constant, "prim::GetAttr": _get_attribute, "prim::ListConstruct": _make_list,
    "prim::TupleConstruct": _make_tuple, "prim::TupleUnpack": _unpack, "prim::ListUnpack": _unpack,
    "prim::TupleIndex": _tuple_index, "prim::TupleSlice": _tuple_slice, "prim::unchecked_cast": _same,
    "prim::Uninitialized": _uninitialized, "prim::If": _if, "prim::Loop": _loop, "prim::isinstance": _isinstance,
}  # fmt: skip
