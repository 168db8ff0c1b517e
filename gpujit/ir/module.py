"""Functions and methods as data: a signature and a graph that is made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gpujit.ir.schema import Schema
from gpujit.ir.values import ScriptObject

if TYPE_CHECKING:
    from gpujit.ir.graph import Graph
    from gpujit.ir.source import SourceRange


class Function:
    """A compiled function or method.

    Args:
        name: qualified, such as ``__torch__.M.forward``.
        signature: gives the schema; called once, when first needed. Raises SourceError.
        body: gives the graph; called once, when first needed. None for an interface's method.
    """

    __slots__ = ("_body", "_graph", "_schema", "_signature", "name", "source")

    def __init__(
        self,
        name: str,
        signature: Callable[[], Schema],
        body: Callable[[], Graph] | None = None,
        source: SourceRange | None = None,
    ) -> None:
        self.name = name
        self.source = source
        self._signature = signature
        self._body = body
        self._schema: Schema | None = None
        self._graph: Graph | None = None

    def __repr__(self) -> str:
        return f"<Function {self.name}>"

    @property
    def short_name(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    @property
    def schema(self) -> Schema:
        """The declared signature; ``self`` is its first argument for a method."""
        if self._schema is None:
            self._schema = self._signature()
        return self._schema

    @property
    def has_body(self) -> bool:
        """Whether there is something to run (an interface's method has nothing)."""
        return self._body is not None

    @property
    def graph(self) -> Graph:
        """The body. Raises SourceError when it does not compile."""
        if self._graph is None:
            if self._body is None:
                raise AttributeError(f"{self.name} is declared by an interface and has no graph")
            self._graph = self._body()
        return self._graph


def submodules(module: ScriptObject) -> Iterator[tuple[str, ScriptObject]]:
    """Names and values of the attributes that are modules, in slot order."""
    for name, value in zip(module.type.attributes, module.slots, strict=True):
        if isinstance(value, ScriptObject) and value.type.is_module:
            yield name, value


def named_modules(module: ScriptObject, prefix: str = "") -> Iterator[tuple[str, ScriptObject]]:
    """The module and all modules below it with dotted names, each object once (as torch.nn.Module.named_modules)."""
    seen: set[int] = set()
    stack: list[tuple[str, ScriptObject]] = [(prefix, module)]
    while stack:
        name, current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield name, current
        children = [(f"{name}.{n}" if name else n, m) for n, m in submodules(current)]
        stack.extend(reversed(children))
