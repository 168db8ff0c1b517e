"""What emitting needs everywhere: nodes, constants, conversions and operator calls of one graph under construction."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from gpujit.frontend.lang import (
    FunctionRef,
    Meaning,
    Path,
    fail,
    range_of,
)
from gpujit.ir import types as T
from gpujit.ir.dtypes import BY_NAME
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.schema import Schema
from gpujit.ir.source import Source, SourceRange
from gpujit.ir.values import Device
from gpujit.ops import overloads, table
from gpujit.support.errors import SourceError


class Resolver(Protocol):
    """What an emitter asks about names. See ArchiveResolver."""

    file: str
    version: int | None
    overloads: dict[Any, overloads.Match]

    def lookup(self, name: str) -> Meaning | None: ...

    def member(self, path: str, name: str, where: Any) -> Meaning: ...

    def annotation(self, node: ast.expr, source: Source, depth: int = 0) -> T.Type: ...

    def constant_named(self, name: str, source: Source, node: ast.AST) -> Any: ...

    @property
    def map_device(self) -> Any: ...


class BaseEmitter(ABC):
    """Emits into one graph. ``scope`` maps names to what they mean at this point of the program."""

    def __init__(self, graph: Graph, block: Block, source: Source, resolver: Resolver, name: str) -> None:
        self.graph = graph
        self.block = block
        self.source = source
        self.resolver = resolver
        self.name = name
        self.scope: dict[str, Any] = {}
        self.undefined: dict[str, str] = {}
        self.constants: dict[Any, Value] = {}
        self.last_constant: Node = graph.block.param_node
        # Values of the function around a closure, and the inputs of its graph that stand for them.
        self.captured: dict[Value, Value] = {}

    def error(self, message: str, node: ast.AST) -> SourceError:
        return fail(message, self.source, node, self.resolver.file, self.name)

    def range(self, node: ast.AST) -> SourceRange:
        return range_of(self.source, node)

    def emit(self, kind: str, inputs: Sequence[Value], at: ast.AST, attributes: dict[str, Any] | None = None) -> Node:
        node = Node(kind, inputs, attributes)
        node.source = self.range(at)
        return self.block.append(node)

    def value_of(
        self, kind: str, inputs: Sequence[Value], type_: T.Type, at: ast.AST, attributes: dict[str, Any] | None = None
    ) -> Value:
        return self.emit(kind, inputs, at, attributes).add_output(type_)

    def constant(self, value: Any, type_: T.Type, at: ast.AST) -> Value:
        """A constant, kept at the top of the graph so that it is seen everywhere; equal ones are one."""
        key: Any
        if isinstance(value, (bool, int, str, type(None), Device)):
            key = (type_, type(value), value)
        elif isinstance(value, (float, complex)):
            key = (type_, type(value), repr(value))
        else:
            key = (type_, id(value))
        found = self.constants.get(key)
        if found is None:
            node = Node("prim::Constant", (), {} if value is None else {"value": value})
            node.source = self.range(at)
            node.insert_after(self.last_constant)
            self.last_constant = node
            found = self.constants[key] = node.add_output(type_)
        return found

    def constant_of_type(self, value: Any, type_: T.Type, node: ast.AST) -> Value:
        """A constant whose Python value may be of a mutable kind: lists are built anew where they are used."""
        if isinstance(value, list) and isinstance(type_, T.ListType):
            items = [self.constant_of_type(v, type_.element, node) for v in value]
            return self.value_of("prim::ListConstruct", items, type_, node)
        if isinstance(value, tuple) and isinstance(type_, T.TupleType):
            items = [self.constant_of_type(v, t, node) for v, t in zip(value, type_.elements, strict=True)]
            return self.value_of("prim::TupleConstruct", items, type_, node)
        if isinstance(value, dict) and isinstance(type_, T.DictType):
            pairs = [
                x
                for k, v in value.items()
                for x in (self.constant(k, type_.key, node), self.constant_of_type(v, type_.value, node))
            ]
            return self.value_of("prim::DictConstruct", pairs, type_, node)
        if isinstance(type_, T.OptionalType) and value is not None:
            type_ = type_.element
        if isinstance(value, int) and not isinstance(value, bool) and type_ == T.FLOAT:
            value = float(value)
        return self.constant(value, type_ if value is not None else T.NONE, node)

    def expression(self, node: ast.expr, hint: T.Type | None = None) -> Value:
        """The value of an expression; ``hint`` is the type the place wants, used for literals only."""
        return self.as_value(self.meaning(node, hint), node)

    def as_value(self, meaning: Any, node: ast.AST) -> Value:
        if isinstance(meaning, Value):
            return meaning
        if isinstance(meaning, FunctionRef):
            return self.constant(meaning.function, T.FUNCTION, node)
        if isinstance(meaning, Path):
            raise self.error(f"{meaning.name!r} is not defined in the archive's source", node)
        raise self.error("this name is not a value", node)

    def fit(self, value: Value, wanted: T.Type, node: ast.AST, what: str) -> Value:
        """The value where type ``wanted`` is needed: as it is when its type allows, else converted, else an error."""
        if T.is_subtype(value.type, wanted):
            return value
        plain = wanted.element if isinstance(wanted, T.OptionalType) else wanted
        if (
            isinstance(value.type, T.TupleType)
            and isinstance(plain, T.TupleType)
            and value.node.kind == "prim::TupleConstruct"
        ):
            if len(value.type.elements) == len(plain.elements):
                if plain.name is None or all(map(T.is_subtype, value.type.elements, plain.elements)):
                    items = [self.fit(v, t, node, what) for v, t in zip(value.node.inputs, plain.elements, strict=True)]
                    return self.value_of("prim::TupleConstruct", items, plain, node)
        if (
            isinstance(value.type, T.ListType)
            and value.node.kind == "prim::ListConstruct"
            and isinstance(plain, T.ListType)
        ):
            if not value.node.inputs or all(T.is_subtype(v.type, plain.element) for v in value.node.inputs):
                return self.value_of("prim::ListConstruct", list(value.node.inputs), plain, node)
        if value.type == T.ANY:
            return self.value_of("prim::unchecked_cast", (value,), wanted, node)
        for op, kinds in (("aten::Float.Scalar", (T.FLOAT,)), ("aten::Int.Scalar", (T.INT,))):
            if value.type == T.NUMBER and plain in kinds:
                return self.convert(value, op, node)
        raise self.error(f"Expected a value of type '{wanted}' for {what} but instead found type '{value.type}'.", node)

    def call_operator(
        self, name: str, positional: list[Value], keywords: dict[str, Value], node: ast.AST, unpack: int = 0
    ) -> Any:
        """The result of an operator call: a value, or the constant None when it returns nothing."""
        candidates = overloads.candidates_for(name, self.resolver.version)
        if not candidates:
            return self.unknown_operator(name, positional, keywords, node, unpack)
        types = {k: v.type for k, v in keywords.items()}
        match = overloads.resolve(candidates, (v.type for v in positional), types, self.resolver.overloads)
        if not isinstance(match, overloads.Match):
            lines = [f"Arguments for call to {name} are not valid. These variants are available:"]
            for schema, reason in match[:12]:
                lines += [f"  {schema}", f"    {reason}"]
            raise self.error("\n".join(lines), node)
        inputs = self.apply(match, (*positional, *keywords.values()), node)
        out = self.emit(match.schema.name, inputs, node)
        out.schema = match.schema
        return self.results(out, match.results, node)

    def results(self, node: Node, types: Sequence[T.Type], at: ast.AST) -> Value:
        """One value for all results of a node: itself, a tuple of them, or None."""
        if len(types) == 1:
            return node.add_output(types[0])
        if not types:
            return self.constant(None, T.NONE, at)
        outputs = [node.add_output(t) for t in types]
        return self.value_of("prim::TupleConstruct", outputs, T.TupleType(tuple(types)), at)

    def unknown_operator(
        self, name: str, positional: list[Value], keywords: dict[str, Value], node: ast.AST, unpack: int
    ) -> Value:
        """A call that raises when it is reached; until then its result fits everywhere."""
        # The names of keyword arguments are kept for writing the program out again.
        names = {"keywords": list(keywords)} if keywords else None
        out = self.emit(name, (*positional, *keywords.values()), node, names)
        return self.results(out, [T.UNKNOWN] * max(unpack, 1), node)

    def apply(self, match: overloads.Match, values: Sequence[Value], node: ast.AST) -> list[Value]:
        """The node inputs a match asks for, conversions emitted."""
        inputs: list[Value] = []
        for step in match.steps:
            kind = step.kind
            if kind == "value":
                inputs.append(values[step.index])
            elif kind == "default":
                inputs.append(self.default(step.default, step.type, node))
            elif kind == "convert":
                inputs.append(self.convert(values[step.index], step.op, node))
            elif kind == "repeat":
                inputs.append(self.value_of("prim::ListConstruct", [values[step.index]] * step.count, step.type, node))
            elif kind == "pack":
                packed = values[step.index : step.index + step.count]
                inputs.append(self.value_of("prim::ListConstruct", packed, step.type, node))
            else:
                value = values[step.index]
                assert isinstance(value.type, T.TupleType)
                unpack = self.emit("prim::TupleUnpack", (value,), node)
                parts = [unpack.add_output(t) for t in value.type.elements]
                inputs.append(self.value_of("prim::ListConstruct", parts, step.type, node))
        return inputs

    def default(self, value: Any, type_: T.Type, node: ast.AST) -> Value:
        plain = type_.element if isinstance(type_, T.OptionalType) else type_
        if isinstance(value, list) and isinstance(plain, T.ListType):
            return self.constant_of_type(value, plain, node)
        if isinstance(value, str) and plain == T.INT:
            # A dtype default is written by name in schemas.
            value = BY_NAME[value].code if value in BY_NAME else 4
        if plain == T.NUMBER and value is not None:
            plain = T.INT if isinstance(value, int) else T.FLOAT
        return self.constant_of_type(value, plain, node)

    def convert(self, value: Value, op: str, node: ast.AST) -> Value:
        entry = table.by_full_name(op)
        if entry is None:
            raise self.error(f"the conversion {op} is missing from the operator table", node)
        out = self.emit(entry.name, (value,), node)
        out.schema = entry.schema
        return out.add_output(entry.schema.returns[0].type)

    def match_function(
        self, schema: Schema, positional: list[Value], keywords: dict[str, Value], node: ast.AST
    ) -> list[Value]:
        """Inputs for a call of a function or method (its object, if any, is the first positional argument)."""
        types, named = [v.type for v in positional], {k: v.type for k, v in keywords.items()}
        for convert in (False, True):
            match = overloads.match_schema(schema, types, named, convert)
            if isinstance(match, overloads.Match):
                return self.apply(match, (*positional, *keywords.values()), node)
        raise self.error(f"Arguments for call are not valid: {match}\n  {schema}", node)

    def cast(self, name: str, value: Value, node: ast.AST) -> Value:
        wanted = {"int": T.INT, "float": T.FLOAT, "bool": T.BOOL, "complex": T.COMPLEX, "str": T.STR}[name]
        if value.type == wanted:
            return value
        op = {
            "int": "aten::Int",
            "float": "aten::Float",
            "bool": "aten::Bool",
            "complex": "aten::Complex",
            "str": "aten::str",
        }[name]
        if name == "bool" and isinstance(value.type, (T.ListType, T.DictType)):
            length = self.as_value(self.call_operator("aten::len", [value], {}, node), node)
            return self.as_value(self.call_operator("aten::Bool", [length], {}, node), node)
        return self.as_value(self.call_operator(op, [value], {}, node), node)

    @abstractmethod
    def meaning(self, node: ast.expr, hint: T.Type | None, unpack: int = 0) -> Any:
        """What an expression means: a Value, or a name that is none. ``hint`` is the type its place wants, used for
        literals only; ``unpack`` is how many names it is assigned to."""
