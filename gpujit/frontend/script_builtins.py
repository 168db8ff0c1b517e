"""Python's builtin functions and the functions with a syntax of their own, and methods of containers and numbers."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from gpujit.frontend.lang import FunctionRef, Items, MethodRef, PythonValue, words
from gpujit.frontend.literals import literal
from gpujit.frontend.python_names import NTUPLES
from gpujit.frontend.script_iteration import IterationEmitter
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


class BuiltinEmitter(IterationEmitter):
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
    "slice": BuiltinEmitter.slice_call,
}  # fmt: skip
