"""Conditions: what is known before run time, and what a condition says about the types of the names it reads."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from gpujit.frontend.lang import PythonValue, Special
from gpujit.frontend.script_operators import OperatorEmitter
from gpujit.ir import types as T
from gpujit.ir.graph import Value


@dataclass(slots=True)
class Condition:
    """A condition's value (or ``known``, when it is decided at compile time), and the types names have on each side."""

    value: Value | None
    known: bool | None = None
    yes: dict[str, T.Type] = field(default_factory=dict)
    no: dict[str, T.Type] = field(default_factory=dict)


class ConditionEmitter(OperatorEmitter):
    """Emits conditions."""

    def condition(self, node: ast.expr) -> Value:
        c = self.condition_of(node)
        return self.condition_value(c, node)

    def condition_value(self, c: Condition, node: ast.AST) -> Value:
        return self.constant(c.known, T.BOOL, node) if c.value is None else c.value

    def condition_of(self, node: ast.expr) -> Condition:
        """The condition an expression is, with what it says about types. Nothing is emitted for a known one."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            c = self.condition_of(node.operand)
            if c.known is not None:
                return Condition(None, not c.known, c.no, c.yes)
            assert c.value is not None
            return Condition(self.call_value("aten::__not__", [c.value], node), None, c.no, c.yes)
        if isinstance(node, ast.BoolOp):
            return self.bool_operation(node, node.values)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return self.is_condition(node)
        if isinstance(node, ast.Call):
            special = self.special_condition(node)
            if special is not None:
                return special
        value = self.expression(node)
        if value.is_constant and value.type == T.BOOL:
            return Condition(None, bool(value.constant()))
        return Condition(self.truth(value, node))

    def truth(self, value: Value, node: ast.AST) -> Value:
        """The value as a bool, as ``if value:`` takes it."""
        t = value.type
        if t == T.BOOL:
            return value
        if isinstance(t, T.ClassType) and "__bool__" in self.method_names(t):
            return self.call_named(value, "__bool__", [], node)
        if isinstance(t, (T.ListType, T.DictType)) or t == T.STR:
            length = self.call_value("aten::len", [value], node)
            return self.call_value("aten::Bool", [length], node)
        if isinstance(t, T.TensorType) or t in (T.INT, T.FLOAT, T.COMPLEX, T.NUMBER):
            return self.cast("bool", value, node)
        raise self.error(f"Could not cast value of type {t.annotation()} to bool", node)

    def bool_operation(self, node: ast.BoolOp, values: list[ast.expr]) -> Condition:
        """``a and b and c``: the second is evaluated only when the first leaves the answer open."""
        first = self.condition_of(values[0])
        if len(values) == 1:
            return first
        is_and = isinstance(node.op, ast.And)
        saved = dict(self.scope)
        if first.known is not None:
            if first.known is not is_and:
                return first
            self.refine(first.yes if is_and else first.no, node)
            rest = self.bool_operation(node, values[1:])
            self.scope = saved
        else:
            found: list[Condition] = []

            def more() -> Value:
                self.refine(first.yes if is_and else first.no, node)
                found.append(self.bool_operation(node, values[1:]))
                return self.condition_value(found[0], node)

            def settled() -> Value:
                return self.constant(not is_and, T.BOOL, node)

            assert first.value is not None
            value = self.choose(first.value, *((more, settled) if is_and else (settled, more)), node)
            self.scope = saved
            rest = found[0]
            if rest.known is not None and rest.known is not is_and:
                return Condition(None, rest.known)
            rest = Condition(value, None, rest.yes, rest.no)
        both = {**(first.yes if is_and else first.no), **(rest.yes if is_and else rest.no)}
        one, other = (first.no, rest.no) if is_and else (first.yes, rest.yes)
        # On the other side it is not known which of the two decided: a type holds when both say so.
        either = {n: T.union((one[n], other[n])) for n in one if n in other}
        return Condition(rest.value, rest.known, both if is_and else either, either if is_and else both)

    def choose(self, condition: Value, yes: Callable[[], Value], no: Callable[[], Value], node: ast.AST) -> Value:
        """``yes() if condition else no()``, each emitted in a block of its own; assignments inside are not seen."""
        out = self.emit("prim::If", (condition,), node)
        results: list[Value] = []
        for side in (yes, no):
            saved = self.inner(out.add_block())
            results.append(side())
            self.block, self.scope = saved
        joint = T.unify(results[0].type, results[1].type, default_to_union=True)
        assert joint is not None
        for block, value in zip(out.blocks, results, strict=True):
            block.add_return(value)
        return out.add_output(joint)

    # ------------------------------------------------------------------------------------ what is known about types

    def is_condition(self, node: ast.Compare) -> Condition:
        left, right = node.left, node.comparators[0]
        is_not = isinstance(node.ops[0], ast.IsNot)
        if _is_none(left) and not _is_none(right):
            left, right = right, left
        if not _is_none(right):
            name = "aten::__isnot__" if is_not else "aten::__is__"
            return Condition(self.call_value(name, [self.expression(left), self.expression(right)], node))
        value = self.expression(left)
        if value.type == T.NONE:
            return Condition(None, not is_not)
        if not T.may_be_none(value.type):
            return Condition(None, is_not)
        none = self.constant(None, T.NONE, node)
        result = self.call_value("aten::__isnot__" if is_not else "aten::__is__", [value, none], node)
        some = T.union(m for m in T.members_of(value.type) if m != T.NONE) if value.type != T.ANY else T.ANY
        if isinstance(left, ast.Name) and value.type != T.ANY:
            if_some: dict[str, T.Type] = {left.id: some}
            if_none: dict[str, T.Type] = {left.id: T.NONE}
            return Condition(result, None, *((if_some, if_none) if is_not else (if_none, if_some)))
        return Condition(result)

    def special_condition(self, node: ast.Call) -> Condition | None:
        if not isinstance(node.func, (ast.Name, ast.Attribute)):
            return None
        callee = self.meaning(node.func, None)
        if not isinstance(callee, Special):
            return None
        if callee.name == "isinstance":
            return self.isinstance_condition(node)
        if callee.name == "hasattr":
            return Condition(None, self.has_attribute(node))
        if callee.name in ("is_scripting", "is_tracing", "false"):
            return Condition(None, callee.name == "is_scripting")
        return None

    def isinstance_condition(self, node: ast.Call) -> Condition:
        self.expect_arguments(node, 2)
        meaning = self.meaning(node.args[0], None)
        asked = self.asked_types(node.args[1])
        if isinstance(meaning, PythonValue):
            return Condition(None, False)
        value = self.as_value(meaning, node)
        members = (value.type,) if value.type == T.ANY else T.members_of(value.type)
        inside = [m for m in members if any(_covers(a, m) for a in asked)]
        outside = [m for m in members if m not in inside]
        if not outside:
            return Condition(None, True)
        open_ones = [m for m in outside if any(T.is_subtype(a, m) for a in asked)]
        if not inside and not open_ones:
            return Condition(None, False)
        result = self.value_of("prim::isinstance", (value,), T.BOOL, node, {"types": asked})
        if not isinstance(node.args[0], ast.Name):
            return Condition(result)
        name = node.args[0].id
        narrowed = [*inside, *(a for a in asked if any(T.is_subtype(a, m) for m in open_ones))]
        return Condition(result, None, {name: T.union(narrowed)}, {name: T.union(outside)})

    def asked_types(self, node: ast.expr) -> list[T.Type]:
        """The types the second argument of ``isinstance`` names."""
        if isinstance(node, (ast.Tuple, ast.List)):
            return [t for e in node.elts for t in self.asked_types(e)]
        if isinstance(node, ast.Name):
            meaning = self.meaning(node, None)
            if isinstance(meaning, Special) and meaning.name in ("list", "tuple"):
                return [T.ANY_LIST if meaning.name == "list" else T.ANY_TUPLE]
        t = self.resolver.annotation(node, self.source)
        return list(T.members_of(t))

    def refine(self, types: dict[str, T.Type], at: ast.AST) -> None:
        """Give names the narrower types a condition told."""
        for name, type_ in types.items():
            value = self.scope.get(name)
            if not isinstance(value, Value) or value.type == type_:
                continue
            cast = self.value_of("prim::unchecked_cast", (value,), type_, at)
            cast.name = name
            self.original[cast] = value
            self.scope[name] = cast


def _covers(asked: T.Type, t: T.Type) -> bool:
    return T.is_subtype(t, asked)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
