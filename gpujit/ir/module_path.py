"""Which module of a hierarchy a node belongs to: dotted paths, kept in call sites when calls are inlined."""

from __future__ import annotations

from gpujit.ir import types as T
from gpujit.ir.graph import Node, Value
from gpujit.ir.source import CallSite


def module_path(node: Node) -> str:
    """Dotted path, from the graph's own object, of the module whose method brought the node here.

    '' for what the object's own method does, and for graphs that were not inlined.
    """
    return "" if node.call is None else node.call.module


def object_path(value: Value) -> str | None:
    """Dotted path by which a graph reads an object from its first input; '' for that input itself.

    None for what is no object, and for an object that comes in another way.
    """
    names: list[str] = []
    while value.node.kind == "prim::GetAttr":
        names.append(str(value.node.attributes["name"]))
        value = value.node.inputs[0]
    block = value.node.block
    is_own = value.node.kind == "prim::Param" and value.index == 0 and block is not None and block.owner is None
    if not is_own or not isinstance(value.type, T.ClassType):
        return None
    return ".".join(reversed(names))


def dotted(outer: str, inner: str) -> str:
    """The path of what lies at ``inner`` inside ``outer``; either may be ''."""
    return f"{outer}.{inner}" if outer and inner else outer or inner


def joined(inner: CallSite | None, outer: CallSite | None) -> CallSite | None:
    """The call stack of a node that came through ``inner`` into a body that is now entered through ``outer``."""
    if inner is None or outer is None:
        return inner or outer
    result = outer
    for site in reversed(list(inner.frames())):
        result = CallSite(site.function, site.range, result, dotted(outer.module, site.module))
    return result
