"""Where nodes come from, and what tensors they work on, as a profile tells it."""

from __future__ import annotations

from gpujit.ir import types as T
from gpujit.ir.graph import Node, Value
from gpujit.ir.source import CallSite, SourceRange
from gpujit.profiler.data import Place, Tensor
from gpujit.static_runtime.places import facts_of
from gpujit.support.errors import GpujitError

# Characters kept of a line and of a name, which may come from a file.
WIDTH = 200


def place_of(node: Node) -> Place:
    """Where a node comes from."""
    return place_at(node.source, node.call)


def place_at(source: SourceRange | None, call: CallSite | None) -> Place:
    """A range of a source and the calls around it."""
    module = "" if call is None else call.module
    if source is None:
        return Place(module=cut(module))
    try:
        found = source.original()
    except GpujitError:
        # The archive's debug table is damaged; the rest of what is known stays.
        found = None
    original = "" if found is None else line_of(found)
    lines = source.source.lines()
    code = lines[source.line - 1].strip() if 1 <= source.line <= len(lines) else ""
    return Place(cut(line_of(source)), cut(original), cut(module), cut(code))


def line_of(source: SourceRange) -> str:
    """``code/__torch__.py:20``."""
    return f"{source.source.name}:{source.shown_line}"


def cut(text: str, width: int = WIDTH) -> str:
    """The text, or its beginning and a mark when it is long."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def tensor_of(value: Value, name: str = "") -> Tensor | None:
    """A value as a tensor of the profile; None when it is none."""
    if not isinstance(value.type, T.TensorType):
        return None
    facts = facts_of(value)
    name = cut(name or value.name)
    return Tensor(name, "", None) if facts is None else Tensor(name, str(facts[1]), tuple(facts[0]))
