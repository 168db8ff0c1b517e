"""Assignments: targets of every kind, unpacking, annotations, attributes, augmented assignment, ``del``."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from gpujit.frontend.lang import Items
from gpujit.frontend.script_calls import ScriptCallEmitter
from gpujit.ir import types as T
from gpujit.ir.graph import Value

# Operators of augmented assignment to tensors: in place where there is an in-place one.
_TENSOR_AUGMENTED: dict[type, str] = {
    ast.Add: "aten::add_", ast.Sub: "aten::sub_", ast.Mult: "aten::mul_", ast.Div: "aten::div_",
    ast.Mod: "aten::fmod_", ast.BitOr: "aten::bitwise_or", ast.BitAnd: "aten::bitwise_and",
    ast.BitXor: "aten::bitwise_xor", ast.Pow: "aten::pow", ast.LShift: "aten::__ilshift__",
    ast.RShift: "aten::__irshift__",
}  # fmt: skip


class AssignmentEmitter(ScriptCallEmitter):
    """Emits assignments. ``frames`` hold what names meant where the blocks around this point begin."""

    frames: list[dict[str, Any]]

    def assign_statement(self, s: ast.Assign) -> bool:
        comment = getattr(s, "type_comment", None)
        if comment is not None:
            self.annotated_assignment(s.targets[0], self.comment_type(comment, s), s.value, s)
            return False
        if len(s.targets) > 1:
            value = self.meaning(s.value, None)
            for target in s.targets:
                self.bind(target, value, s)
            return False
        self.assign(s.targets[0], s.value, s)
        return False

    def assign(self, target: ast.expr, source: ast.expr, at: ast.stmt) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            unpack = len(target.elts)
            self.bind(target, self.meaning(source, None, unpack), at)
            return
        self.bind(target, self.meaning(source, self.attribute_hint(target)), at)

    def comment_type(self, comment: str, s: ast.stmt) -> T.Type:
        """The type of a ``# type: List[int]`` comment."""
        result: T.Type = self.resolver.types.read(self.resolver.types.parse(comment, s))
        return result

    def attribute_hint(self, target: ast.expr) -> T.Type | None:
        """The declared type of an attribute that is assigned to, for the literal it is given."""
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            owner = self.scope.get(target.value.id)
            if isinstance(owner, Value) and isinstance(owner.type, T.ClassType):
                return owner.type.attributes.get(target.attr) or self.resolver.declared_attribute(
                    owner.type, target.attr
                )
        return None

    def annotated_statement(self, s: ast.AnnAssign) -> bool:
        if s.value is None:
            if isinstance(s.target, ast.Attribute):
                raise self.error("an annotation without a value is not part of TorchScript", s)
            raise self.error("Expected a value: an annotation alone declares nothing in TorchScript", s)
        self.annotated_assignment(s.target, self.resolver.annotation(s.annotation, self.source), s.value, s)
        return False

    def annotated_assignment(self, target: ast.expr, type_: T.Type, source: ast.expr, s: ast.stmt) -> None:
        value = self.typed(type_, source, s)
        if isinstance(target, ast.Name):
            if self.frames and target.id in self.frames[-1]:
                raise self.error(
                    f"Attempting to declare and annotate the type of variable '{target.id}' that is already defined "
                    "in an outer block",
                    s,
                )
            if value.type != type_:
                value = self.value_of("prim::unchecked_cast", (value,), type_, s)
        self.bind(target, value, s)

    def typed(self, type_: T.Type, source: ast.expr, s: ast.AST) -> Value:
        """A value for a place declared with a type."""
        value = self.tolist_as(type_, source, s)
        if value is None:
            value = self.as_value(self.meaning(source, type_), source)
        if not T.is_subtype(value.type, type_):
            fitted = self.converted(value, type_, s)
            if fitted is None:
                raise self.error(
                    f"Variable is annotated with type {type_.annotation()} but is being assigned to a value of type "
                    f"{value.type.annotation()}",
                    s,
                )
            value = fitted
        return value

    def bind(self, target: ast.expr, meaning: Any, node: ast.AST) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            self.bind_all(target.elts, meaning, node)
        elif isinstance(target, ast.Name):
            self.bind_name(target.id, meaning, node)
        elif isinstance(target, ast.Subscript):
            self.store_item(target, self.as_value(meaning, node), node)
        elif isinstance(target, ast.Attribute):
            self.store_attribute(target, self.as_value(meaning, node), node)
        else:
            raise self.error(f"cannot assign to '{type(target).__name__}'", node)

    def bind_name(self, name: str, meaning: Any, node: ast.AST) -> None:
        outer = self.frames[-1].get(name) if self.frames else None
        if isinstance(outer, Value):
            given = self.as_value(meaning, node)
            value = self.converted(given, outer.type, node, implicit=True)
            if value is None:
                value = given
                raise self.error(
                    f"Variable '{name}' previously had type {outer.type.annotation()} but is now being assigned to a "
                    f"value of type {value.type.annotation()}",
                    node,
                )
            meaning = value
        elif outer is not None and self.frames:
            raise self.error(f"Cannot re-assign '{name}' because it has type value and {name} is not a value", node)
        if isinstance(meaning, Value) and not meaning.name and not meaning.is_constant:
            meaning.name = name
        self.scope[name] = meaning

    def bind_all(self, targets: Sequence[ast.expr], meaning: Any, node: ast.AST) -> None:
        """Unpack into several targets, one of which may be starred."""
        starred = [i for i, t in enumerate(targets) if isinstance(t, ast.Starred)]
        if len(starred) > 1:
            raise self.error("Only one starred expression is allowed on the left-hand side", node)
        values = self.unpacked(meaning, len(targets), bool(starred), node)
        if starred:
            at, after = starred[0], len(targets) - 1 - starred[0]
            middle = [self.as_value(v, node) for v in values[at : len(values) - after]]
            whole = self.value_of("prim::TupleConstruct", middle, T.TupleType(tuple(v.type for v in middle)), node)
            values = [*values[:at], whole, *values[len(values) - after :]]
        for target, value in zip(targets, values, strict=True):
            self.bind(target.value if isinstance(target, ast.Starred) else target, value, node)

    def unpacked(self, meaning: Any, count: int, starred: bool, node: ast.AST) -> list[Any]:
        if isinstance(meaning, Items):
            values = meaning.values
        else:
            value = self.as_value(meaning, node)
            t = value.type
            if isinstance(t, T.TupleType):
                unpack = self.emit("prim::TupleUnpack", (value,), node)
                values = [unpack.add_output(e) for e in t.elements]
            elif isinstance(t, T.ListType):
                if starred:
                    raise self.error("a list cannot be unpacked into a starred target; its length is not known", node)
                unpack = self.emit("prim::ListUnpack", (value,), node)
                return [unpack.add_output(t.element) for _ in range(count)]
            elif isinstance(t, T.TensorType):
                raise self.error("Tensor cannot be used as a tuple; write x.unbind(0)", node)
            else:
                raise self.error(f"Provided value of type {t.annotation()} cannot be unpacked", node)
        fixed = count - starred
        if len(values) < fixed or (len(values) > fixed and not starred):
            problem = "not enough" if len(values) < fixed else "too many"
            raise self.error(
                f"{problem} values to unpack: expected {fixed}{' or more' if starred else ''}, found {len(values)}",
                node,
            )
        return values

    def store_attribute(self, target: ast.Attribute, value: Value, node: ast.AST) -> None:
        owner = self.expression(target.value)
        t = owner.type
        if not isinstance(t, T.ClassType):
            raise self.error(f"{t.annotation()} has no attributes to assign to", node)
        self.resolver.ensure_attribute(t, target.attr, value, self.name, lambda text: self.error(text, node))
        if target.attr not in t.attributes:
            setter = f"__{target.attr}_setter"
            if setter in self.method_names(t):
                self.call_named(owner, setter, [value], node)
                return
            raise self.error(f"{self.resolver.missing_attribute(t, target.attr)}", node)
        wanted = t.attributes[target.attr]
        if not T.is_subtype(value.type, wanted):
            fitted = self.converted(value, wanted, node)
            if fitted is None:
                raise self.error(
                    f"Wrong type for attribute assignment. Expected {wanted.annotation()} but got "
                    f"{value.type.annotation()}",
                    node,
                )
            value = fitted
        self.emit("prim::SetAttr", (owner, value), node, {"name": target.attr})

    def augmented_statement(self, s: ast.AugAssign) -> bool:
        if isinstance(s.target, ast.Subscript):
            self.augment_item(s, s.target)
            return False
        old = self.expression(s.target)
        self.bind(s.target, self.augmented(s, old, self.expression(s.value)), s)
        return False

    def augmented(self, s: ast.AugAssign, old: Value, value: Value) -> Value:
        op = type(s.op)
        if op in (ast.FloorDiv, ast.MatMult):
            raise self.error(f"unsupported kind of augmented assignment: {op.__name__}; write it out", s)
        if isinstance(old.type, T.TensorType):
            return self.call_value(_TENSOR_AUGMENTED[op], [old, value], s)
        if isinstance(old.type, T.ListType):
            if op not in (ast.Add, ast.Mult):
                raise self.error("of augmented assignments, lists have '+=' and '*=' only", s)
            self.call_value("aten::add_" if op is ast.Add else "aten::mul_", [old, value], s)
            return old
        method = {ast.Add: "__iadd__", ast.Sub: "__isub__", ast.Mult: "__imul__", ast.Div: "__itruediv__"}.get(op)
        if method is not None and self.has_method(old, method):
            return self.call_named(old, method, [value], s)
        if op is ast.Mod and old.type != T.STR and not isinstance(old.type, T.ClassType):
            # The language's '%=' is C's fmod, unlike its '%'.
            return self.call_value("aten::fmod", [old, value], s)
        return self.operate(op, old, value, s)
