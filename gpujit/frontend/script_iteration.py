"""What a ``for`` goes over: ranges, containers, tensors, modules; ``enumerate``, ``zip`` and ``reversed`` of them."""

from __future__ import annotations

import ast
from typing import Any

from gpujit.frontend.lang import Items, Walk
from gpujit.frontend.script_conditions import ConditionEmitter
from gpujit.frontend.script_indexing import IndexEmitter
from gpujit.ir import types as T
from gpujit.ir.graph import Value


class IterationEmitter(ConditionEmitter, IndexEmitter):
    """Emits iterables, and the lists and tuples made of them."""

    def range_(self, node: ast.Call, hint: T.Type | None) -> Walk:
        positional, keywords = self.arguments(node)
        if keywords or not 1 <= len(positional) <= 3:
            raise self.error(f"range expected 1 to 3 arguments, got {len(positional) + len(keywords)}", node)
        for i, v in enumerate(positional):
            if not T.is_subtype(v.type, T.INT):
                raise self.error(
                    f"all inputs of range must be ints, found {v.type.annotation()} in argument {i}; write int(...)",
                    node,
                )
        zero, one = self.constant(0, T.INT, node), self.constant(1, T.INT, node)
        if len(positional) == 1:
            return Walk(positional[0], lambda i: i)
        start, stop = positional[:2]
        step = positional[2] if len(positional) == 3 else one
        length = self.call_value("aten::__range_length", [start, stop, step], node)
        if start is zero and step is one:
            return Walk(length, lambda i: i)
        return Walk(length, lambda i: self.call_value("aten::__derive_index", [i, start, step], node))

    def enumerate_(self, node: ast.Call, hint: T.Type | None) -> Walk:
        start: Value = self.constant(0, T.INT, node)
        if len(node.args) == 2:
            start = self.expression(node.args[1])
        for k in node.keywords:
            if k.arg != "start":
                raise self.error(f"enumerate has no argument {k.arg!r}", node)
            start = self.expression(k.value)
        if not 1 <= len(node.args) <= 2:
            raise self.error("enumerate expected at least 1 and at most 2 arguments", node)
        walk = self.walk(self.meaning(node.args[0], None), node)
        known = start.constant() if start.is_constant else None

        def counted(i: Value) -> Value:
            return i if known == 0 else self.call_value("aten::add", [i, start], node)

        if walk.items is not None:
            if known is None:
                raise self.error("enumerate over modules or tuples needs a constant start", node)
            pairs = [Items([self.constant(known + k, T.INT, node), m]) for k, m in enumerate(walk.items)]
            return Walk(None, lambda i: None, pairs)
        return Walk(walk.length, lambda i: Items([counted(i), walk.at(i)]))

    def zip_(self, node: ast.Call, hint: T.Type | None) -> Walk:
        if not node.args or node.keywords:
            raise self.error("zip expected at least 1 argument", node)
        walks = [self.walk(self.meaning(a, None), a) for a in node.args]
        unrolled = [w for w in walks if w.items is not None]
        if unrolled:
            if len(unrolled) < len(walks):
                raise self.error(
                    "Can't iterate over a module list or tuple with a value that does not have a statically "
                    "determinable length",
                    node,
                )
            counts = {len(w.items or ()) for w in walks}
            if len(counts) > 1:
                raise self.error("Can't iterate over module lists or tuples of different lengths together", node)
            return Walk(None, lambda i: None, [Items(list(p)) for p in zip(*(w.items or () for w in walks))])
        lengths = [w.length for w in walks if w.length is not None]
        length = lengths[0]
        if len(lengths) > 1:
            every = self.value_of("prim::ListConstruct", lengths, T.ListType(T.INT), node)
            length = self.call_value("prim::min", [every], node)
        return Walk(length, lambda i: Items([w.at(i) for w in walks]))

    def reversed_(self, node: ast.Call, hint: T.Type | None) -> Any:
        self.expect_arguments(node, 1)
        meaning = self.meaning(node.args[0], None)
        walk = self.walk(meaning, node)
        if walk.items is not None:
            return Walk(None, walk.at, walk.items[::-1])
        assert walk.length is not None
        length, one = walk.length, self.constant(1, T.INT, node)

        def at(i: Value) -> Any:
            back = self.call_value("aten::sub", [self.call_value("aten::sub", [length, i], node), one], node)
            return walk.at(back)

        return Walk(length, at)

    def walk(self, meaning: Any, node: ast.AST) -> Walk:
        """How a loop goes over something. Raises SourceError for what cannot be iterated over."""
        if isinstance(meaning, Walk):
            return meaning
        if isinstance(meaning, Items):
            return Walk(None, lambda i: None, meaning.values)
        value = self.as_value(meaning, node)
        t = value.type
        if isinstance(t, T.TupleType):
            unpack = self.emit("prim::TupleUnpack", (value,), node)
            return Walk(None, lambda i: None, [unpack.add_output(e) for e in t.elements])
        if isinstance(t, T.DictType):
            value = self.call_value("aten::keys", [value], node)
            t = value.type
        if isinstance(t, T.ListType) or t == T.STR:
            length = self.call_value("aten::len", [value], node)
            return Walk(length, lambda i: self.call_value("aten::__getitem__", [value, i], node))
        if isinstance(t, T.TensorType):
            length = self.call_value("aten::len", [value], node)
            zero = self.constant(0, T.INT, node)
            return Walk(length, lambda i: self.call_value("aten::select", [value, zero, i], node))
        if isinstance(t, T.ClassType):
            items = self.resolver.container_items(self, value, node)
            if items is not None:
                names = self.resolver.iterates_names(t)
                keys = [self.constant(n, T.STR, node) for n in items]
                return Walk(None, lambda i: None, list(keys if names else items.values()))
            if self.has_method(value, "__len__") and self.has_method(value, "__getitem__"):
                length = self.call_named(value, "__len__", [], node)
                return Walk(length, lambda i: self.call_named(value, "__getitem__", [i], node))
        raise self.error(f"'{t.annotation()}' object is not iterable", node)

    def list_call(self, node: ast.Call, hint: T.Type | None) -> Any:
        if not node.args:
            return self.list_(ast.copy_location(ast.List(elts=[], ctx=ast.Load()), node), hint)
        self.expect_arguments(node, 1)
        meaning = self.meaning(node.args[0], None)
        if isinstance(meaning, Value):
            if isinstance(meaning.type, T.ListType) or meaning.type == T.STR:
                return self.call_operator("aten::list", [meaning], {}, node)
            if isinstance(meaning.type, T.TupleType):
                return self.tuple_as_list(meaning, node)
        walk = self.walk(meaning, node)
        if walk.items is not None:
            if not all(isinstance(m, Value) for m in walk.items):
                return Items(walk.items)
            pack = self.value_of(
                "prim::TupleConstruct", walk.items, T.TupleType(tuple(v.type for v in walk.items)), node
            )
            return self.tuple_as_list(pack, node)
        result = self.value_of("prim::ListConstruct", (), T.ListType(T.TENSOR), node)
        target = ast.copy_location(ast.Name(id="@element", ctx=ast.Store()), node)

        def body() -> None:
            element = self.as_value(self.scope["@element"], node)
            result.type = T.ListType(T.TENSOR if isinstance(element.type, T.TensorType) else element.type)
            self.call_operator("aten::append", [result, element], {}, node)

        self.simple_loop(walk, target, body, node)
        return result

    def tuple_call(self, node: ast.Call, hint: T.Type | None) -> Any:
        self.expect_arguments(node, 1)
        meaning = self.meaning(node.args[0], None)
        walk = self.walk(meaning, node)
        if walk.items is None:
            raise self.error("tuple() needs something whose length is known at compile time", node)
        values = [self.as_value(m, node) for m in walk.items]
        return self.value_of("prim::TupleConstruct", values, T.TupleType(tuple(v.type for v in values)), node)

    def tuple_as_list(self, value: Value, node: ast.AST) -> Value:
        assert isinstance(value.type, T.TupleType)
        unpack = self.emit("prim::TupleUnpack", (value,), node)
        parts = [unpack.add_output(t) for t in value.type.elements]
        joint: T.Type | None = parts[0].type if parts else T.TENSOR
        for p in parts:
            joint = None if joint is None else T.unify(joint, p.type)
        if joint is None:
            raise self.error(f"the elements of {value.type} have no type in common", node)
        return self.value_of("prim::ListConstruct", parts, T.ListType(joint), node)
