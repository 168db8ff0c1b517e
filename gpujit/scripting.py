"""``script`` and what it returns: functions, classes and modules of live Python code as TorchScript."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from gpujit.frontend.markers import is_tracing
from gpujit.frontend.python_source import is_module_class, modifier, python_function
from gpujit.frontend.script import COMPILER
from gpujit.frontend.script_classes import is_interface
from gpujit.frontend.trace.compiled import call_function
from gpujit.frontend.trace.current import CURRENT
from gpujit.ir import types as T
from gpujit.ir.graph import Graph
from gpujit.ir.module import Function
from gpujit.ir.schema import Schema
from gpujit.modules import ScriptModule, wrap
from gpujit.passes.inline import inlined
from gpujit.program import Program
from gpujit.runtime.values import bind_arguments, convert_attribute
from gpujit.support.errors import ArgumentError, SourceError, UnknownAttributeError

V = TypeVar("V")


class ScriptFunction:
    """A scripted function: call it, or look at its ``schema``, ``graph`` and ``code``."""

    def __init__(self, function: Function, program: Program | None = None) -> None:
        self._gpujit_function = function
        self._program = program if program is not None else Program(np)
        self.__name__ = function.short_name
        self.__doc__ = None

    @property
    def name(self) -> str:
        """The function's own name."""
        return self._gpujit_function.short_name

    @property
    def qualified_name(self) -> str:
        """The name under ``__torch__``."""
        return self._gpujit_function.name

    @property
    def schema(self) -> Schema:
        """The signature."""
        return self._gpujit_function.schema

    @property
    def graph(self) -> Graph:
        """The graph, calls left as calls."""
        return self._gpujit_function.graph

    @property
    def inlined_graph(self) -> Graph:
        """The graph with known calls replaced by their bodies."""
        return inlined(self._gpujit_function.graph)

    @property
    def code(self) -> str:
        """The function as an archive would hold it."""
        # Running needs no printer.
        from gpujit.serialization.python_print import print_function

        return print_function(self._gpujit_function)[0]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function. Tensors may be anything with ``__array__`` or ``__dlpack__``; results are NumPy arrays.

        Raises ArgumentError for arguments that do not fit, ScriptRuntimeError or OpError when the program fails.
        """
        function = self._gpujit_function
        tracer = CURRENT.get()
        if tracer is not None:
            # In the trace of another function it stays a function of its own.
            return call_function(tracer, function, args, kwargs, self._run)
        return wrap(self._run(list(args), kwargs), self._program)

    def _run(self, args: list[Any], kwargs: dict[str, Any] | None = None) -> Any:
        function = self._gpujit_function
        return self._program.run(function, bind_arguments(function.schema, tuple(args), kwargs or {}))

    def _as_module(self) -> ScriptModule:
        from gpujit.serialization.placeholder import placeholder_module

        return ScriptModule(placeholder_module(self._gpujit_function), self._program)

    def save(self, f: Any, _extra_files: Mapping[str, Any] | None = None) -> None:
        """Write the function as a TorchScript archive; it is loaded as a module. See ``gpujit.save``."""
        self._as_module().save(f, _extra_files)

    def save_to_buffer(self, _extra_files: Mapping[str, Any] | None = None) -> bytes:
        """The bytes that ``save`` writes."""
        return self._as_module().save_to_buffer(_extra_files)

    def __repr__(self) -> str:
        return f"<gpujit.ScriptFunction {self.qualified_name}>"


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """Compile a function, class or module (as torch.jit.script). The other arguments are accepted for compatibility.

    Args:
        obj: a Python function: all it calls is compiled with it. A class: objects of it can be made and used by
            scripted code; the class itself is returned. A module (of gpujit.nn, or of torch.nn with its tensors
            shared): its ``forward``, what it calls and what is marked with ``export`` are compiled.
    Returns: a ScriptFunction, the class, or a ScriptModule. What is scripted already comes back as it is.
    Raises SourceError, with the line, for code outside the language; ArgumentError for what cannot be scripted.
    """
    if isinstance(obj, (ScriptFunction, ScriptModule)):
        return obj
    with COMPILER.lock:
        if inspect.isclass(obj):
            return _script_class(obj)
        if is_module_class(type(obj)):
            program = Program(np)
            return ScriptModule(COMPILER.modules.script(obj, _convert), program)
        unsupported = getattr(obj, "__script_unsupported", None)
        if isinstance(unsupported, str):
            raise ArgumentError(f"{getattr(obj, '__name__', obj)}: {unsupported}")
        fn = python_function(inspect.unwrap(obj) if callable(obj) else obj)
        if isinstance(fn, types.FunctionType):
            function = COMPILER.compile(COMPILER.function(fn))
            scripted = ScriptFunction(function)
            scripted.__doc__ = fn.__doc__
            return scripted
    raise ArgumentError(
        f"script takes a function, a class or a module; found a {type(obj).__name__}. Objects of other classes can be "
        "made inside scripted code"
    )


def _script_class(cls: type) -> type:
    if is_module_class(cls) and not is_interface(cls):
        raise ArgumentError(
            f"Type '{cls.__name__}' cannot be compiled since it inherits from nn.Module, consider passing an instance "
            "instead"
        )
    t = COMPILER.classes.type_of_class(cls)
    if t is None:
        raise ArgumentError(f"class {cls.__name__} cannot be scripted")
    if isinstance(t, T.ClassType):
        for name in list(COMPILER.classes.method_names(t)):
            method = t.methods.get(name) or COMPILER.classes.make_method(t, name, SourceError)
            if method is not None and not modifier(method):
                COMPILER.compile(method)
    return cls


def _convert(value: Any, t: T.Type, owner: str, name: str) -> Any:
    if isinstance(t, T.InterfaceType) or (value is None and t == T.NONE):
        return value
    return convert_attribute(value, t, owner, name)


class CompilationUnit:
    """Functions compiled from source text (as torch.jit.CompilationUnit); they are attributes by name.

    In the text, ``torch``, ``math``, ``Tensor`` and the names of ``typing`` are known without being imported.
    Raises SourceError, with the line, for text outside the language.
    """

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        self._functions: dict[str, ScriptFunction] = {}
        self._program = Program(np)
        if lang is not None:
            self.define(lang)

    def define(self, lang: str, rcb: Any = None, _frames_up: int = 0) -> None:
        """Compile further functions; they may call those defined before. All or none are defined."""
        with COMPILER.lock:
            for name, function in COMPILER.text_functions(lang, names=dict(self._functions)).items():
                self._functions[name] = ScriptFunction(function, self._program)

    def get_functions(self) -> list[ScriptFunction]:
        """All functions, in the order they were defined."""
        return list(self._functions.values())

    def find_function(self, name: str) -> ScriptFunction | None:
        """The function of that name; None when there is none."""
        return self._functions.get(name)

    def __getattr__(self, name: str) -> ScriptFunction:
        found: ScriptFunction | None = self.__dict__.get("_functions", {}).get(name)
        if found is None:
            raise UnknownAttributeError(f"the CompilationUnit defines no function {name!r}")
        return found


def script_if_tracing(fn: Callable[..., V]) -> Callable[..., V]:
    """A function that is scripted when it is called while a trace is recorded, and run by Python at any other time."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> V:
        if is_tracing():
            result: V = script(fn)(*args, **kwargs)
            return result
        return fn(*args, **kwargs)

    wrapper.__original_fn = fn  # type: ignore[attr-defined]
    wrapper.__script_if_tracing_wrapper = True  # type: ignore[attr-defined]
    return wrapper
