"""Live Python functions and source text to functions of the IR: the entry of scripting.

One Compiler serves the whole process: a function scripted twice is one function, and a class is one type.
"""

from __future__ import annotations

import ast
import inspect
import re
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any

from gpujit.frontend import python_names as names_
from gpujit.frontend.lang import fail, range_of
from gpujit.frontend.python_source import Names, modifier, names_of, parse_definition, python_source
from gpujit.frontend.script_classes import Classes
from gpujit.frontend.script_definition import Definition
from gpujit.frontend.script_module import Modules
from gpujit.frontend.script_resolver import ScriptResolver
from gpujit.ir import types as T
from gpujit.ir.module import Function
from gpujit.ir.source import Source
from gpujit.support.errors import SourceError

Where = Callable[[str], SourceError]


class Compiler:
    """Compiles functions, classes and modules; remembers what it compiled."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.overloads: dict[Any, Any] = {}
        self.functions: dict[Any, Function] = {}
        self.mine: dict[Function, None] = {}
        self.running: list[Function] = []
        self.taken: dict[str, int] = {}
        self.classes = Classes(self)
        self.modules = Modules(self)

    # ---------------------------------------------------------------------------------------------- names

    def qualified(self, obj: Any) -> str:
        """A name for a Python object under ``__torch__`` that nothing else has."""
        module = getattr(obj, "_gpujit_module", None) or getattr(obj, "__module__", None) or ""
        module = "" if module == "__main__" else f".{module}"
        name = re.sub(r"\W", "_", getattr(obj, "__name__", type(obj).__name__))
        return self.unique(f"__torch__{module}", name)

    def unique(self, prefix: str, name: str) -> str:
        """``prefix.name``, or a mangled form of it when that is taken."""
        full = f"{prefix}.{name}"
        count = self.taken.get(full, 0)
        self.taken[full] = count + 1
        return full if count == 0 else f"{prefix}.___torch_mangle_{count - 1}.{name}"

    # ------------------------------------------------------------------------------------------- functions

    def function(self, fn: Any) -> Function:
        """The Function of a Python function; not compiled yet. Raises SourceError when there is no source."""
        fn = inspect.unwrap(fn) if not isinstance(fn, types.FunctionType) else fn
        known = self.functions.get(fn)
        if known is None:
            known = self.make(fn, self.qualified(fn), None)
            self.functions[fn] = known
        return known

    def make(self, fn: types.FunctionType, name: str, self_type: T.Type | None) -> Function:
        """A Function for a Python function or method, under a given name."""
        unsupported = getattr(fn, "__script_unsupported", None)
        if isinstance(unsupported, str):
            raise SourceError(unsupported)
        source, node = python_source(fn)
        if not isinstance(node, ast.FunctionDef):
            raise SourceError(f"{name} is no function")
        defaults = {}
        code = fn.__code__
        positional = code.co_varnames[: code.co_argcount]
        for argument, value in zip(reversed(positional), reversed(fn.__defaults__ or ()), strict=False):
            defaults[argument] = value
        defaults.update(fn.__kwdefaults__ or {})
        resolver = ScriptResolver(self, names_of(fn), source, name)
        return self.define(name, source, node, resolver, self_type, defaults, modifier(fn), fn)

    def define(
        self, name: str, source: Source, node: ast.FunctionDef, resolver: ScriptResolver, self_type: T.Type | None,
        defaults: dict[str, Any] | None, kind: str = "", python: Any = None,
    ) -> Function:  # fmt: skip
        """A Function for a definition's syntax.

        Args:
            defaults: the values of default arguments; None when they are written in the syntax only.
            kind: ``ignore`` for a function that Python runs, ``unused`` for one that raises when called.
        """
        body = Definition(self, name, source, node, resolver, self_type, defaults, kind, python)
        function = Function(name, body.signature, body.graph, source=range_of(source, node))
        body.function = function
        self.mine[function] = None
        return function

    def compile(self, function: Function, where: Where | None = None) -> Function:
        """Compile a function now. Raises SourceError with the place of the fault and of the call, ``where``."""
        if function not in self.mine or function._graph is not None or not function.has_body:
            return function
        if function in self.running:
            text = (
                f"function '{function.short_name}' is called recursively. Recursive calls are not supported; "
                "write a loop"
            )
            raise where(text) if where is not None else SourceError(text)
        self.running.append(function)
        try:
            function.graph  # noqa: B018  # made when first asked for
        except SourceError as e:
            if where is not None:
                call = where("")
                e.where += f"\n'{function.short_name}' is being compiled since it was called from here\n{call.where}"
            raise
        finally:
            self.running.pop()
        return function

    def text_functions(
        self, text: str, name: str = "<string>", self_type: T.ClassType | None = None, prefix: str = "__torch__",
        names: Mapping[str, Any] | None = None,
    ) -> dict[str, Function]:  # fmt: skip
        """The functions that source text defines, by name; methods of ``self_type`` when one is given.

        Raises SourceError for anything but function definitions, and for what does not compile.
        """
        source, tree = parse_definition(text, name, 1)
        found: dict[str, Function] = {}
        inner: dict[str, Any] = {}
        scope = Names(inner, *([names] if names is not None else []), names_.DEFAULT_NAMES)
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef):
                raise fail(f"'{type(node).__name__}' is not expected here; only functions are defined", source, node)
            if node.name in found:
                raise fail(f"{node.name!r} is defined twice", source, node)
            full = f"{self_type.name}.{node.name}" if self_type is not None else f"{prefix}.{node.name}"
            resolver = ScriptResolver(self, scope, source, full)
            function = self.define(full, source, node, resolver, self_type, None)
            found[node.name] = function
            if self_type is None:
                inner[node.name] = function
            else:
                self_type.methods[node.name] = function
        try:
            for function in found.values():
                self.compile(function)
        except SourceError:
            if self_type is not None:
                for key in found:
                    self_type.methods.pop(key, None)
            raise
        return found


COMPILER = Compiler()
