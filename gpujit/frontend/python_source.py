"""Live Python functions as text and syntax, and the names they see."""

from __future__ import annotations
import __future__

import ast
import builtins
import copy
import inspect
import linecache
import textwrap
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gpujit.frontend.lang import fail, parse_python
from gpujit.ir.source import Source
from gpujit.support.errors import SourceError

_MODIFIER = "_torchscript_modifier"


class Names(Mapping[str, Any]):
    """The names a Python function sees: its closure, its module's globals, Python's builtins."""

    def __init__(self, *scopes: Mapping[str, Any]) -> None:
        self.scopes = scopes

    def __getitem__(self, name: str) -> Any:
        for scope in self.scopes:
            if name in scope:
                return scope[name]
        raise KeyError(name)

    def __iter__(self) -> Any:
        return iter({n for s in self.scopes for n in s})

    def __len__(self) -> int:
        return len(set(self))


def names_of(fn: types.FunctionType) -> Names:
    """The names a function sees. Free variables that have no value yet are left out."""
    free: dict[str, Any] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            free[name] = cell.cell_contents
        except ValueError:
            continue
    return Names(free, fn.__globals__, vars(builtins))


def modifier(fn: Any) -> str:
    """What a decorator said about a function: ``export``, ``ignore``, ``unused``, or ``""``."""
    text = getattr(fn, _MODIFIER, "")
    return str(text).split(" ")[0].strip("_") if isinstance(text, str) else ""


def parse_definition(text: str, name: str, first_line: int) -> tuple[Source, ast.Module]:
    """The source and syntax tree of Python text. Raises SourceError that shows the line when it does not parse."""
    source = Source(name, textwrap.dedent(text), first_line=first_line)
    try:
        try:
            tree = parse_python(source.text, type_comments=True)
        except SyntaxError:
            # A comment that only looks like a type.
            tree = parse_python(source.text)
    except SyntaxError as e:
        at = ast.Pass()
        at.lineno, at.col_offset = e.lineno or 1, max((e.offset or 1) - 1, 0)
        at.end_lineno, at.end_col_offset = at.lineno, at.col_offset + 1
        raise fail(f"this is no Python source: {e.msg}", source, at) from None
    except (ValueError, RecursionError, MemoryError) as e:
        raise SourceError(f"source of {name} cannot be parsed: {e}") from None
    return source, tree


def python_source(obj: Any) -> tuple[Source, ast.FunctionDef | ast.ClassDef]:
    """Source and syntax of a live function or class. Raises SourceError when its source is not to be had."""
    try:
        lines, first = inspect.getsourcelines(obj)
        filename = inspect.getsourcefile(obj) or "<unknown>"
    except (OSError, TypeError):
        raise SourceError(
            f"Can't get source for {obj!r}. TorchScript requires source access in order to carry out compilation; "
            "put the function in a file, or give its text to gpujit.CompilationUnit"
        ) from None
    source, tree = parse_definition("".join(lines), filename, first)
    found = tree.body[0] if tree.body else None
    if not isinstance(found, (ast.FunctionDef, ast.ClassDef)):
        raise SourceError(
            f"{getattr(obj, '__name__', obj)} is no function written with 'def'; lambdas and async functions are not "
            f'part of TorchScript\n  File "{filename}", line {first}'
        )
    return source, found


def signatures_in_source(fn: types.FunctionType) -> list[types.FunctionType]:
    """Functions for the definitions of this name, each with a decorator, that stand above a module's function: the
    signatures of ``_overload``, for when nothing else has them any more. Their decorators are not called."""
    found: list[types.FunctionType] = []
    for node in ast.walk(_syntax_of_file(inspect.getsourcefile(fn) or "")):
        if not isinstance(node, ast.FunctionDef) or node.name != fn.__name__ or not node.decorator_list:
            continue
        if node.lineno >= fn.__code__.co_firstlineno:
            continue
        bare = copy.copy(node)
        bare.decorator_list = []
        # Annotations are read as text; what defaults name is the module's.
        flags = __future__.annotations.compiler_flag
        code = compile(ast.Module([bare], []), fn.__code__.co_filename, "exec", flags, dont_inherit=True)
        made: dict[str, Any] = {}
        exec(code, dict(fn.__globals__), made)
        found.append(made[fn.__name__])
    return found


@lru_cache(maxsize=8)
def _syntax_of_file(path: str) -> ast.Module:
    return parse_python("".join(linecache.getlines(path)))


def python_function(obj: Any) -> Any:
    """The Python function behind a bound method or a function that torch scripted; anything else as it is."""
    if isinstance(obj, types.MethodType):
        return obj.__func__
    inner = getattr(obj, "_torchdynamo_inline", None)
    return inner if type(obj).__name__ == "ScriptFunction" and isinstance(inner, types.FunctionType) else obj


def is_module_class(cls: type) -> bool:
    """Whether a class is one of modules, torch's or gpujit's, by what it has."""
    return all(hasattr(cls, n) for n in ("register_buffer", "named_parameters", "register_forward_hook"))
