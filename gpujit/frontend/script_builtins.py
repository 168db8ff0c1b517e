"""Python's builtin functions and the functions with a syntax of their own, and methods of containers and numbers."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from gpujit.frontend.lang import FunctionRef, Items, MethodRef, PythonValue, Walk, words
from gpujit.frontend.literals import literal
from gpujit.frontend.python_names import NTUPLES
from gpujit.frontend.script_conditions import ConditionEmitter
from gpujit.frontend.script_indexing import IndexEmitter
from gpujit.ir import types as T
from gpujit.ir.dtypes import BY_NAME
from gpujit.ir.graph import Graph, Value
from gpujit.ir.values import parse_device
from gpujit.ops import table
from gpujit.support.errors import DeviceError

# Builtin functions that are operators, in the namespace where they are found.
_OPERATORS: dict[str, str] = {
    "len": "aten::len", "abs": "prim::abs", "min": "prim::min", "max": "prim::max", "sum": "aten::sum",
    "any": "aten::any", "all": "aten::all", "round": "aten::round", "divmod": "aten::divmod", "pow": "aten::pow",
    "ord": "aten::ord", "chr": "aten::chr", "hex": "aten::hex", "oct": "aten::oct", "bin": "aten::bin",
    "hash": "aten::hash", "sorted": "aten::sorted", "floordiv": "aten::floordiv",
}  # fmt: skip
_METHODS = {"len": "__len__", "abs": "__abs__", "str": "__str__", "hash": "__hash__", "sorted": "", "bool": "__bool__",
            "int": "__int__", "float": "__float__"}  # fmt: skip
_STRING_METHODS = frozenset(
    words(
        "upper lower capitalize title swapcase isalnum isalpha isdecimal isdigit isidentifier islower isnumeric "
        "isprintable isspace istitle isupper find rfind index rindex count split rsplit splitlines partition "
        "rpartition join strip lstrip rstrip replace startswith endswith ljust rjust center zfill expandtabs format"
    )
)
# Methods that convert a tensor, by the dtype they convert to.
TENSOR_CASTS: dict[str, str] = {
    "byte": "uint8", "char": "int8", "double": "float64", "float": "float32", "int": "int32", "long": "int64",
    "short": "int16", "bool": "bool", "half": "float16", "bfloat16": "bfloat16",
}  # fmt: skip
_LIST_METHODS = frozenset(words("append extend insert pop remove reverse sort clear copy count index"))
_DICT_METHODS = frozenset(words("keys values items get setdefault pop popitem update clear copy"))


class BuiltinEmitter(ConditionEmitter, IndexEmitter):
    """Emits builtin functions and methods."""

    def special(self, name: str, node: ast.Call, hint: T.Type | None) -> Any:
        handler = _SPECIALS.get(name)
        if handler is not None:
            return handler(self, node, hint)
        if name in _OPERATORS:
            return self.builtin(name, node)
        raise self.error(f"{name} is not supported in TorchScript", node)

    def builtin(self, name: str, node: ast.Call) -> Any:
        if len(node.args) == 1 and not node.keywords:
            meaning = self.meaning(node.args[0], None)
            if name == "len":
                length = self.static_length(meaning, node)
                if length is not None:
                    return self.constant(length, T.INT, node)
            value = self.as_value(meaning, node)
            method = _METHODS.get(name)
            if method and self.has_method(value, method):
                return self.call_named(value, method, [], node)
            return self.call_builtin(name, [value], {}, node)
        positional, keywords = self.arguments(node)
        return self.call_builtin(name, positional, keywords, node)

    def call_builtin(self, name: str, positional: list[Value], keywords: dict[str, Value], node: ast.AST) -> Any:
        operator = _OPERATORS[name]
        if positional and isinstance(positional[0].type, T.TensorType) and name in ("abs", "min", "max"):
            operator = f"aten::{name}"
        if name in ("min", "max") and len(positional) > 1 and all(v.type == T.BOOL for v in positional):
            positional = [self.cast("int", v, node) for v in positional]
        if name in ("min", "max") and len(positional) > 2:
            result = positional[0]
            for other in positional[1:]:
                result = self.call_value(operator, [result, other], node)
            return result
        if name in ("any", "all", "sum", "min", "max") and positional and isinstance(positional[0].type, T.TupleType):
            positional = [self.tuple_as_list(positional[0], node), *positional[1:]]
        return self.call_operator(operator, positional, keywords, node)

    def static_length(self, meaning: Any, node: ast.AST) -> int | None:
        if isinstance(meaning, Items):
            return len(meaning.values)
        if isinstance(meaning, Value):
            if isinstance(meaning.type, T.TupleType):
                return len(meaning.type.elements)
            if isinstance(meaning.type, T.ClassType):
                items = self.resolver.container_items(self, meaning, node)
                return None if items is None else len(items)
        return None

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

    # --------------------------------------------------------------------------------------------------- casts

    def cast_call(self, node: ast.Call, hint: T.Type | None) -> Any:
        callee = node.func
        meaning = self.meaning(callee, None)
        name = meaning.name
        if len(node.args) != 1 or node.keywords:
            if name == "complex" and len(node.args) == 2:
                positional, _ = self.arguments(node)
                return self.call_operator("aten::Complex", positional, {}, node)
            if not node.args and not node.keywords:
                return self.constant({"int": 0, "float": 0.0, "bool": False, "complex": 0j, "str": ""}[name],
                                     {"int": T.INT, "float": T.FLOAT, "bool": T.BOOL, "complex": T.COMPLEX,
                                      "str": T.STR}[name], node)  # fmt: skip
            raise self.error(f"{name}() takes one argument", node)
        value = self.expression(node.args[0])
        method = _METHODS.get(name)
        if method and self.has_method(value, method):
            return self.call_named(value, method, [], node)
        if name == "bool":
            return self.truth(value, node)
        return self.cast(name, value, node)

    def print_(self, node: ast.Call, hint: T.Type | None) -> Any:
        positional, keywords = self.arguments(node)
        if keywords:
            raise self.error("print takes no keyword arguments in TorchScript", node)
        self.emit("prim::Print", positional, node)
        return self.constant(None, T.NONE, node)

    def annotate_(self, node: ast.Call, hint: T.Type | None) -> Any:
        self.expect_arguments(node, 2)
        type_ = self.resolver.annotation(node.args[0], self.source)
        value = self.tolist_as(type_, node.args[1], node)
        if value is None:
            value = self.as_value(self.meaning(node.args[1], type_), node.args[1])
        if not T.is_subtype(value.type, type_):
            op = self.implicit_conversion(value.type, type_)
            if op is not None:
                return self.convert(value, op, node)
            fitted = self.converted(value, type_, node)
            if fitted is None:
                raise self.error(
                    f"expected an expression of type {type_.annotation()} but found {value.type.annotation()}", node
                )
            value = fitted
        if value.type != type_:
            value = self.value_of("prim::unchecked_cast", (value,), type_, node)
        return value

    def condition_call(self, node: ast.Call, hint: T.Type | None) -> Any:
        return self.condition(node)

    def getattr_(self, node: ast.Call, hint: T.Type | None) -> Any:
        return self.get_attribute(node)

    # ------------------------------------------------------------------------------------------------ iteration

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

    def dict_call(self, node: ast.Call, hint: T.Type | None) -> Any:
        plain = hint if isinstance(hint, T.DictType) else None
        if node.args and isinstance(node.args[0], (ast.DictComp, ast.Dict, ast.List, ast.ListComp)) is False:
            value = self.expression(node.args[0])
            if isinstance(value.type, T.DictType) and not node.keywords:
                return self.call_operator("aten::dict", [value], {}, node)
        if len(node.args) > 1:
            raise self.error("dict takes one positional argument", node)
        result: Value | None = None
        if node.args:
            value = self.expression(node.args[0], plain)
            result = self.as_value(self.call_operator("aten::dict", [value], {}, node), node)
        keys: list[ast.expr | None] = [ast.copy_location(ast.Constant(k.arg), node) for k in node.keywords]
        literal_dict = ast.copy_location(ast.Dict(keys=keys, values=[k.value for k in node.keywords]), node)
        if result is None:
            return self.dict_(literal_dict, plain)
        for k in node.keywords:
            key, item = self.constant(k.arg, T.STR, node), self.expression(k.value)
            self.call_operator("aten::_set_item", [result, key, item], {}, node)
        return result

    def dict_(self, node: ast.Dict, hint: T.Type | None) -> Value:
        result = super().dict_(node, hint)
        assert isinstance(result.type, T.DictType)
        key = result.type.key
        if key not in (T.STR, T.INT, T.FLOAT, T.BOOL, T.COMPLEX) and not isinstance(key, T.TensorType):
            raise self.error(
                f"Cannot create dict for key type '{key}', only int, float, complex, Tensor, device and string keys "
                "are supported",
                node,
            )
        for v in result.node.inputs[1::2]:
            if not T.is_subtype(v.type, result.type.value):
                raise self.error(
                    f"Dict type annotation '{result.type.annotation()}' did not match the type of an actual value "
                    f"{v.type.annotation()}",
                    node,
                )
        for v in result.node.inputs[::2]:
            if not T.is_subtype(v.type, result.type.key):
                raise self.error(
                    f"Dict type annotation '{result.type.annotation()}' did not match the type of an actual key "
                    f"{v.type.annotation()}",
                    node,
                )
        return result

    # -------------------------------------------------------------------------------------------------- methods

    def builtin_method(self, owner: Value, name: str, node: ast.Call) -> Any:
        t = owner.type
        if isinstance(t, T.TensorType) and name in TENSOR_CASTS and not node.args and not node.keywords:
            code = self.constant(BY_NAME[TENSOR_CASTS[name]].code, T.INT, node)
            return self.call_value("aten::to", [owner, code], node)
        if isinstance(t, T.BoxType) and name == "wait":
            return self.value_of("aten::wait", (owner,), t.element, node)
        known: Any = None
        if t == T.STR:
            known = _STRING_METHODS
        elif isinstance(t, T.ListType):
            known = _LIST_METHODS
        elif isinstance(t, T.DictType):
            known = _DICT_METHODS
        if (known is not None and name not in known) or (not table.by_name(f"aten::{name}") and name != "tolist"):
            raise self.error(f"'{t.annotation()}' object has no attribute or method '{name}'", node)
        if name == "tolist":
            raise self.error(
                "Expected type hint for result of tolist(); write 'y: List[...] = x.tolist()' with its type", node
            )
        positional, keywords = self.arguments(node)
        if name == "extend" and isinstance(t, T.ListType) and positional:
            if isinstance(positional[0].type, T.TupleType):
                positional = [self.tuple_as_list(positional[0], node)]
        return self.call_operator(f"aten::{name}", [owner, *positional], keywords, node)

    # ------------------------------------------------------------------------------------------- fork and devices

    def fork_call(self, node: ast.Call, hint: T.Type | None) -> Value:
        """``fork(f, *args)``: the call becomes a graph of its own."""
        if not node.args:
            raise self.error("fork needs a function", node)
        callee = self.meaning(node.args[0], None)
        if isinstance(callee, PythonValue):
            callee = self.resolver.callable_meaning(self, callee.object, node)
        if isinstance(callee, Value):
            callee = MethodRef(callee, "forward")
        if not isinstance(callee, (FunctionRef, MethodRef)):
            raise self.error("fork needs a function or a method", node)
        call = ast.copy_location(ast.Call(func=node.args[0], args=node.args[1:], keywords=node.keywords), node)
        result = self.as_value(self.call_meaning(callee, call, None), node)
        made = result.node
        made.unlink()
        graph = Graph(f"{self.name}.forked")
        values = list(dict.fromkeys(v for v in made.inputs if not v.is_constant))
        inside: dict[Value, Value] = {v: graph.add_input(v.type, v.name) for v in values}
        for i, v in enumerate(made.inputs):
            if v.is_constant:
                inside.setdefault(v, graph.constant(v.constant(), v.type))
            made.set_input(i, inside[v])
        _move_into(graph, made)
        graph.add_output(result)
        return self.value_of("prim::fork", values, T.future(result.type), node, {"Subgraph": graph})

    def wait_call(self, node: ast.Call, hint: T.Type | None) -> Value:
        self.expect_arguments(node, 1)
        value = self.expression(node.args[0])
        if not isinstance(value.type, T.BoxType):
            raise self.error(f"wait takes a Future, found {value.type.annotation()}", node)
        return self.value_of("aten::wait", (value,), value.type.element, node)

    def device_call(self, node: ast.Call, hint: T.Type | None) -> Any:
        text = literal(node.args[0]) if len(node.args) == 1 and not node.keywords else None
        if isinstance(text, str):
            try:
                return self.constant(parse_device(text), T.DEVICE, node)
            except DeviceError as e:
                raise self.error(e.message, node) from None
        return self.operator_call("aten::device", node, 0)

    def ntuple(self, node: ast.Call, hint: T.Type | None) -> Any:
        """``_pair(x)`` and its like: an int repeated, a sequence as a list."""
        meaning = self.meaning(node.func, None)
        self.expect_arguments(node, 1)
        value = self.expression(node.args[0])
        if isinstance(value.type, T.TupleType):
            return self.tuple_as_list(value, node)
        if isinstance(value.type, T.ListType):
            return value
        return self.value_of("prim::ListConstruct", [value] * NTUPLES[meaning.name], T.ListType(value.type), node)

    def first_argument(self, node: ast.Call, hint: T.Type | None) -> Any:
        return self.expression(node.args[0])

    def nothing(self, node: ast.Call, hint: T.Type | None) -> Any:
        return self.constant(None, T.NONE, node)

    def size_call(self, node: ast.Call, hint: T.Type | None) -> Any:
        self.expect_arguments(node, 1)
        return self.meaning(node.args[0], T.ListType(T.INT))

    @abstractmethod
    def get_attribute(self, node: ast.Call) -> Any: ...

    @abstractmethod
    def has_attribute(self, node: ast.Call) -> bool: ...

    @abstractmethod
    def implicit_conversion(self, found: T.Type, wanted: T.Type) -> str | None: ...

    @abstractmethod
    def converted(self, value: Value, wanted: T.Type, node: ast.AST, *, implicit: bool = False) -> Value | None: ...

    @abstractmethod
    def tolist_as(self, type_: T.Type, source: ast.expr, node: ast.AST) -> Value | None: ...

    @abstractmethod
    def call_meaning(self, callee: Any, node: ast.Call, hint: T.Type | None) -> Any: ...


def _move_into(graph: Graph, node: Any) -> None:
    graph.block.append(node)


_SPECIALS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("int", "float", "bool", "complex", "str"), BuiltinEmitter.cast_call),
    "print": BuiltinEmitter.print_, "annotate": BuiltinEmitter.annotate_, "range": BuiltinEmitter.range_,
    **dict.fromkeys(("isinstance", "hasattr", "is_scripting", "is_tracing", "false"), BuiltinEmitter.condition_call),
    "getattr": BuiltinEmitter.getattr_, "enumerate": BuiltinEmitter.enumerate_, "zip": BuiltinEmitter.zip_,
    "reversed": BuiltinEmitter.reversed_, "list": BuiltinEmitter.list_call, "tuple": BuiltinEmitter.tuple_call,
    "dict": BuiltinEmitter.dict_call, "fork": BuiltinEmitter.fork_call, "wait": BuiltinEmitter.wait_call,
    **dict.fromkeys(NTUPLES, BuiltinEmitter.ntuple), "nothing": BuiltinEmitter.nothing,
    "first_argument": BuiltinEmitter.first_argument,
    "unwrap_optional": lambda self, node, hint: self.operator_call("aten::_unwrap_optional", node, 0),
    "device": BuiltinEmitter.device_call, "Size": BuiltinEmitter.size_call,
}  # fmt: skip
