"""What the two front ends share: parsed source with limits, and the kinds of things a name can mean."""

from __future__ import annotations

import ast
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Value
from gpujit.ir.module import Function
from gpujit.ir.source import Source, SourceRange
from gpujit.support.errors import SourceError

# Python 3.11 counts the depth of all threads' trees in one place, and fails when two are built at a time.
_PARSING = threading.Lock()

MAX_SOURCE_BYTES = 64 << 20
# Python's parser recurses, and so does the emitter; real code nests below 40 levels.
MAX_DEPTH = 120

# Statements and expressions of serialized code (what torch.jit.save writes under code/).
ALLOWED = frozenset(
    (
        ast.Module, ast.ClassDef, ast.FunctionDef, ast.arguments, ast.arg, ast.Import, ast.alias,
        ast.Return, ast.Assign, ast.AnnAssign, ast.If, ast.For, ast.While, ast.With, ast.withitem, ast.Pass, ast.Expr,
        ast.Call, ast.keyword, ast.Starred, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant,
        ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Load, ast.Store,
    )
)  # fmt: skip


def range_of(source: Source, node: ast.AST) -> SourceRange:
    """The stretch of source a syntax node covers."""
    line = getattr(node, "lineno", 1)
    column = getattr(node, "col_offset", 0)
    return SourceRange(
        source, line, column, getattr(node, "end_lineno", line) or line, getattr(node, "end_col_offset", column) or 0
    )


def fail(message: str, source: Source, node: ast.AST, file: str = "", function: str = "") -> SourceError:
    """A SourceError that shows the line."""
    where = range_of(source, node)
    name = f" in {function}" if function else ""
    error = SourceError(
        message, file=file, where=f'  File "{source.name}", line {where.shown_line}{name}\n{where.highlight()}'
    )
    error.member = source.name
    return error


def parse_python(text: str, *, type_comments: bool = False) -> ast.Module:
    """The syntax tree of Python text, with no warnings about it. Raises what ``ast.parse`` raises."""
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, type_comments=type_comments)


def parse_source(source: Source, file: str = "") -> ast.Module:
    """The syntax tree of a serialized source file, checked to use only what such files use.

    Nothing is evaluated. Raises SourceError naming the line: no Python, nested too deeply, or a construct outside the
    language.
    """
    if len(source.text) > MAX_SOURCE_BYTES:
        raise SourceError(
            f"source text of {len(source.text)} bytes is over the limit of {MAX_SOURCE_BYTES}",
            file=file,
            member=source.name,
        )
    try:
        tree = parse_python(source.text)
    except SyntaxError as e:
        at = ast.Pass()
        at.lineno, at.col_offset = e.lineno or 1, max((e.offset or 1) - 1, 0)
        at.end_lineno, at.end_col_offset = at.lineno, at.col_offset + 1
        raise fail(f"this is not TorchScript source: {e.msg}", source, at, file) from None
    except (RecursionError, MemoryError):
        raise SourceError("source is nested too deeply to be parsed", file=file, member=source.name) from None
    except ValueError as e:
        raise SourceError(f"this is not TorchScript source: {e}", file=file, member=source.name) from None
    check_tree(tree, source, file)
    return tree


def check_tree(tree: ast.Module, source: Source, file: str) -> None:
    """Raise SourceError unless the tree stays inside the language and the depth limit."""
    level: list[ast.AST] = [tree]
    depth = 0
    allowed = ALLOWED
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise fail(f"source is nested more than {MAX_DEPTH} levels deep", source, level[0], file)
        following: list[ast.AST] = []
        add = following.append
        for node in level:
            # ast.iter_child_nodes inlined: this runs over every node of every file at load time.
            for name in node._fields:
                child = getattr(node, name, None)
                if child.__class__ is list:
                    if child and name == "decorator_list":
                        raise fail("decorators are not part of serialized TorchScript", source, child[0], file)
                    for item in child:
                        if isinstance(item, ast.AST):
                            if item.__class__ not in allowed:
                                raise _unknown(item, node, source, file)
                            add(item)
                elif isinstance(child, ast.AST):
                    cls = child.__class__
                    if cls is ast.Load or cls is ast.Store:
                        continue
                    if cls not in allowed:
                        raise _unknown(child, node, source, file)
                    add(child)
        level = following


def _unknown(node: ast.AST, parent: ast.AST, source: Source, file: str) -> SourceError:
    at = node if hasattr(node, "lineno") else parent
    return fail(f"'{type(node).__name__}' is not part of serialized TorchScript", source, at, file)


def words(text: str) -> list[str]:
    """The words of a text: how tables of many names are written."""
    return text.split()


# ------------------------------------------------------------------------------------ what a name can mean


@dataclass(slots=True)
class Namespace:
    """``torch``, ``ops.prim``: calls of its attributes are operators ``prefix::name``."""

    prefix: str


@dataclass(slots=True)
class Path:
    """An unfinished qualified name, such as ``__torch__.torch.nn``."""

    name: str


@dataclass(slots=True)
class OperatorName:
    """An operator, overload still open."""

    name: str


@dataclass(slots=True)
class TypeRef:
    """A class used as a value: constructor, enum or argument of ``isinstance``."""

    type: T.Type


@dataclass(slots=True)
class FunctionRef:
    """A function known by name."""

    function: Function


@dataclass(slots=True)
class MethodRef:
    """A method of an object; calling it passes the object first."""

    object: Value
    name: str


@dataclass(slots=True)
class ClassMethodRef:
    """``Class.__new__``."""

    type: T.ClassType
    name: str


@dataclass(slots=True)
class Special:
    """A name with its own syntax: ``annotate``, ``isinstance``, ``int``, ``fork`` and so on."""

    name: str


@dataclass(slots=True)
class Closure:
    """A nested function: its syntax and the scope it was defined in."""

    node: ast.FunctionDef
    scope: dict[str, Any]


@dataclass(slots=True)
class PythonValue:
    """A live Python object of the scripted program that has no other meaning: a module, a class, a function."""

    object: Any


@dataclass(slots=True)
class Items:
    """A sequence known element by element, such as the modules of a ModuleList; loops over it are unrolled."""

    values: list[Any]


@dataclass(slots=True)
class Walk:
    """Something a ``for`` goes over: ``length`` and the element ``at`` an index, or ``items`` when all are known.

    ``length`` is None for what has no end of its own (the numbers of ``enumerate``).
    """

    length: Value | None
    at: Callable[[Value], Any]
    items: list[Any] | None = None


@dataclass(slots=True)
class Bounds:
    """A ``slice`` object: start, stop and step, each an int or None. It can only be a subscript."""

    parts: tuple[Value, Value, Value]


class Given(ast.expr):
    """Stands in syntax for a value that is there already."""

    def __init__(self, value: Value, at: ast.AST) -> None:
        super().__init__()
        self.value = value
        ast.copy_location(self, at)


@dataclass(slots=True)
class Inline:
    """Something whose call is emitted by a function of the call's syntax."""

    emit: Callable[[ast.Call], Any]


Meaning = (
    Value
    | Namespace
    | Path
    | OperatorName
    | TypeRef
    | FunctionRef
    | MethodRef
    | ClassMethodRef
    | Special
    | Closure
    | PythonValue
    | Items
    | Walk
    | Bounds
    | Inline
)
