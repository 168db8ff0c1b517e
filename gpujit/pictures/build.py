"""From a graph of the IR, at any stage, to a picture: operators in boxes for modules, groups, branches and loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.module import Function
from gpujit.ir.module_path import module_path, object_path
from gpujit.ir.printer import SUBGRAPH
from gpujit.ir.source import SourceRange
from gpujit.pictures.model import ROOT, Picture, PictureBox, PictureEdge, PictureNode
from gpujit.pictures.values import HOLDERS, arguments, is_folded, type_text, value_text

# Argument lines below an operator's name.
_LINES = 3
FUSION_GROUP = "prim::FusionGroup"


@dataclass(frozen=True, slots=True)
class Mark:
    """What is known of a node besides the graph: tags for its style, and facts for its title."""

    tags: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


def picture_of(graph: Graph, title: str = "", marks: Mapping[Node, Mark] | None = None) -> Picture:
    """The picture of a graph.

    Args:
        title: what it is of; the graph's name by default.
        marks: what else is known of its nodes.
    """
    builder = _Builder(Picture(title or graph.name or "graph"), marks or {})
    for value in graph.inputs:
        if not isinstance(value.type, (T.ClassType, T.InterfaceType)):
            builder.input(value)
    builder.block(graph.block, ROOT, ())
    builder.outputs(graph.outputs)
    return builder.picture.without_empty_boxes()


class _Builder:
    def __init__(self, picture: Picture, marks: Mapping[Node, Mark]) -> None:
        self.picture, self.marks = picture, marks
        # The id of what makes a value; for a value from inside a box, that of the node in it.
        self.makers: dict[Value, str] = {}
        self.labels: dict[Value, str] = {}
        # The last box for a part of a module path, by the box around it and the part.
        self.modules: dict[tuple[str, str], str] = {}
        # For each box, which of its children reads which others.
        self.readers: dict[str, dict[str, set[str]]] = {ROOT: {}}
        self.groups = 0
        self.seen: set[tuple[str, str, str]] = set()

    # ------------------------------------------------------------------------------------------------- making things

    def node(self, kind: str, label: str, parent: str, **more: Any) -> PictureNode:
        made = PictureNode(f"n{len(self.picture.nodes)}", kind, label, parent=parent, **more)
        self.picture.nodes[made.id] = made
        return made

    def box(self, kind: str, label: str, parent: str, node: Node | None = None, **more: Any) -> PictureBox:
        made = PictureBox(f"b{len(self.picture.boxes)}", kind, label, parent=parent, **more)
        self.picture.boxes[made.id] = made
        self.readers[made.id] = {}
        if node is not None:
            made.facts.update(_facts(node))
            self.mark(made, node)
        return made

    def mark(self, made: PictureNode | PictureBox, node: Node) -> None:
        mark = self.marks.get(node)
        if mark is not None:
            made.tags += mark.tags
            made.facts.update(mark.facts)

    def made(self, node: PictureNode, values: Iterable[Value]) -> None:
        """Note that a node makes these values."""
        for value in values:
            self.makers[value] = node.id

    def edge(self, source: str, target: str, value: str, label: str, name: str, kind: str = "data") -> None:
        if (source, target, value) in self.seen:
            return
        self.seen.add((source, target, value))
        self.picture.edges.append(PictureEdge(source, target, value, label, name, kind))
        around = list(self.picture.around(target))
        inner = source
        for outer in self.picture.around(source):
            if outer in around:
                at = around.index(outer)
                self.readers[outer].setdefault(inner, set()).add(around[at - 1] if at else target)
                return
            inner = outer

    def read(self, value: Value, target: str) -> None:
        """Edges for a value that a node or box reads; for a folded list, of what is in it."""
        for each in self.parts(value):
            maker = self.makers.get(each)
            if maker is None:
                continue
            name = each.name or ""
            self.edge(maker, target, f"{maker}.{self.number(each)}", type_text(each.type), name)

    def number(self, value: Value) -> str:
        """A name for one of the values that a node of the picture makes."""
        found = self.labels.get(value)
        if found is None:
            found = self.labels[value] = str(len(self.labels))
        return found

    def parts(self, value: Value) -> Iterator[Value]:
        if value not in self.makers and value.node.kind in HOLDERS and is_folded(value.node):
            for inner in value.node.inputs:
                yield from self.parts(inner)
        else:
            yield value

    # --------------------------------------------------------------------------------------------------- the program

    def input(self, value: Value) -> None:
        facts = {"input": value.name, "type": str(value.type)}
        # What readers are given stands below it.
        lines = () if value.uses else (type_text(value.type),)
        made = self.node("input", value.name or "input", ROOT, lines=lines, tags=("input",))
        made.facts.update(facts)
        self.made(made, [value])

    def outputs(self, values: Sequence[Value]) -> None:
        for value in values:
            made = self.node("output", "output", ROOT, lines=(type_text(value.type),), tags=("output",))
            made.facts.update({"output": value.name, "type": str(value.type)})
            text = value_text(value)
            if text is not None:
                made.lines = (text,)
            self.read(value, made.id)

    def block(self, block: Block, parent: str, base: tuple[str, ...]) -> None:
        """The nodes of a block, in boxes for their modules, in a box whose own module is ``base``."""
        for node in block.nodes:
            if is_folded(node):
                continue
            path = _path(node)
            rest = path[len(base) :] if path[: len(base)] == base else path
            makers = {m for v in _reads(node) for p in self.parts(v) if (m := self.makers.get(p)) is not None}
            home = self.home(parent, rest, makers)
            inner = base + rest if path[: len(base)] == base else path
            if node.kind == "prim::If":
                self.branch(node, home, inner)
            elif node.kind == "prim::Loop":
                self.loop(node, home, inner)
            elif isinstance(node.attributes.get(SUBGRAPH), Graph):
                self.subgraph(node, home, inner)
            else:
                self.operator(node, home)

    def home(self, box: str, path: Sequence[str], makers: Iterable[str]) -> str:
        """The box of a module inside ``box``; another one of the same name where the last one's nodes cannot be
        together with a reader of these, because what lies between them is outside."""
        makers = list(makers)
        for part in path:
            known = self.modules.get((box, part))
            if known is None or self.would_cycle(box, known, makers):
                facts = {"module": ".".join([*self.module_of(box), part])}
                known = self.box("module", part, box, facts=facts).id
                self.modules[box, part] = known
            box = known
        return box

    def module_of(self, box: str) -> list[str]:
        """The module path of a box."""
        for each in (box, *(self.picture.around(box) if box != ROOT else ())):
            if each != ROOT and "module" in self.picture.boxes[each].facts:
                path = self.picture.boxes[each].facts["module"]
                return path.split(".") if path else []
        return []

    def would_cycle(self, box: str, child: str, makers: Sequence[str]) -> bool:
        """Whether one of these nodes reads, through others, something in ``child`` while it lies beside it in
        ``box``."""
        others = set()
        for maker in makers:
            inner = maker
            for outer in self.picture.around(maker):
                if outer == box:
                    if inner != child:
                        others.add(inner)
                    break
                inner = outer
        if not others:
            return False
        readers = self.readers[box]
        stack, seen = [child], {child}
        while stack:
            for reader in readers.get(stack.pop(), ()):
                if reader in others:
                    return True
                if reader not in seen:
                    seen.add(reader)
                    stack.append(reader)
        return False

    def operator(self, node: Node, parent: str) -> None:
        given = arguments(node)
        made = self.node(node.kind, _label(node), parent, tags=("op",))
        made.lines = tuple(
            text if name.startswith("argument ") else f"{name}={text}" for name, text in list(given.items())[:_LINES]
        )
        if len(given) > _LINES:
            made.lines = (*made.lines[:-1], f"{made.lines[-1]}, ...")
        made.facts.update(_facts(node))
        made.facts.update((f"argument {name}" if name in made.facts else name, text) for name, text in given.items())
        self.mark(made, node)
        for value in node.inputs:
            self.read(value, made.id)
        self.made(made, node.outputs)

    def subgraph(self, node: Node, parent: str, base: tuple[str, ...]) -> None:
        """A fusion group, or code that runs later, with what it consists of."""
        graph = node.attributes[SUBGRAPH]
        assert isinstance(graph, Graph)
        is_group = node.kind == FUSION_GROUP
        names = [_label(n) for n in graph.nodes if not is_folded(n)]
        label = "+".join(names) if is_group else node.kind.partition("::")[2]
        box = self.box("group" if is_group else "block", label, parent, node, number=self.groups)
        self.groups += is_group
        if is_group:
            box.facts["operators"] = ", ".join(names)
            box.facts["module"] = ".".join(base)
        for inner, outer in zip(graph.inputs, node.inputs, strict=True):
            self.alias(inner, outer)
        if is_group:
            for each in graph.nodes:
                if not is_folded(each):
                    self.operator(each, box.id)
        else:
            self.block(graph.block, box.id, base)
        for outer, inner in zip(node.outputs, graph.outputs, strict=False):
            self.alias(outer, inner)

    def alias(self, value: Value, other: Value) -> None:
        """``value`` is what ``other`` is."""
        for each in self.parts(other):
            maker = self.makers.get(each)
            if maker is not None:
                self.makers[value] = maker
                self.labels[value] = self.number(each)
                return

    def branch(self, node: Node, parent: str, base: tuple[str, ...]) -> None:
        box = self.box("if", "if", parent, node)
        head = self.node("control", "if", box.id, tags=("control",))
        head.facts.update(_facts(node))
        self.read(node.inputs[0], head.id)
        head.lines = tuple(arguments(node).values())
        ends = []
        is_skipped = False
        for block, name in zip(node.blocks, ("then", "else"), strict=False):
            inner = self.box("block", name, box.id)
            first = len(self.picture.nodes)
            self.block(block, inner.id, base)
            if len(self.picture.nodes) > first:
                self.edge(head.id, inner.id, f"{head.id}.{name}", name, "", "control")
            else:
                is_skipped = True
            ends.append((name, block.returns))
        if not node.outputs:
            return
        foot = self.node("control", "result", box.id, tags=("control",))
        foot.facts.update(_facts(node))
        if is_skipped:
            self.edge(head.id, foot.id, f"{head.id}.result", "", "", "control")
        for name, returns in ends:
            texts = [text for value in returns if (text := value_text(value)) is not None]
            if texts:
                foot.lines += (f"{name}: {', '.join(texts)}",)
            for value in returns:
                self.read(value, foot.id)
        self.made(foot, node.outputs)

    def loop(self, node: Node, parent: str, base: tuple[str, ...]) -> None:
        box = self.box("loop", "loop", parent, node)
        head = self.node("control", "for each round", box.id, tags=("control",))
        head.facts.update(_facts(node))
        head.lines = tuple(f"{name}={text}" for name, text in _loop_arguments(node).items())
        for value in node.inputs:
            self.read(value, head.id)
        block = node.blocks[0]
        self.made(head, block.params)
        self.block(block, box.id, base)
        foot = self.node("control", "next round", box.id, tags=("control",))
        foot.facts.update(_facts(node))
        self.edge(head.id, foot.id, f"{head.id}.result", "", "", "control")
        for value in block.returns:
            self.read(value, foot.id)
        self.made(foot, node.outputs)


# ---------------------------------------------------------------------------------------------------- facts on a node


def _loop_arguments(node: Node) -> dict[str, str]:
    found = {"most": value_text(node.inputs[0]), "while": value_text(node.inputs[1])}
    return {k: v for k, v in found.items() if v is not None and not (k == "while" and v == "True")}


def _reads(node: Node) -> Iterator[Value]:
    """What a node reads, and what the nodes in its blocks do."""
    yield from node.inputs
    stack = list(node.blocks)
    while stack:
        block = stack.pop()
        yield from block.returns
        for inner in block.nodes:
            yield from inner.inputs
            stack.extend(inner.blocks)


def _path(node: Node) -> tuple[str, ...]:
    """The module a node belongs to; that around all operators of a group."""
    graph = node.attributes.get(SUBGRAPH)
    if node.kind != FUSION_GROUP or not isinstance(graph, Graph):
        path = module_path(node)
        return tuple(path.split(".")) if path else ()
    found: tuple[str, ...] | None = None
    for inner in graph.nodes:
        if is_folded(inner):
            continue
        path = module_path(inner)
        parts = tuple(path.split(".")) if path else ()
        if found is None:
            found = parts
        else:
            same = 0
            while same < min(len(found), len(parts)) and found[same] == parts[same]:
                same += 1
            found = found[:same]
    return found or ()


def _label(node: Node) -> str:
    """What an operator is called: ``conv2d``, ``layer1.forward``, ``set seen``."""
    name = node.attributes.get("name")
    if node.kind == "prim::CallMethod":
        path = object_path(node.inputs[0])
        return f"{path}.{name}" if path else str(name)
    if node.kind == "prim::CallFunction":
        target = node.inputs[0]
        function = target.constant() if target.is_constant else None
        return function.short_name if isinstance(function, Function) else "call"
    if node.kind in ("prim::GetAttr", "prim::SetAttr"):
        return f"{'get' if node.kind == 'prim::GetAttr' else 'set'} {name}"
    space, _, kind = node.kind.partition("::")
    return kind if space in ("aten", "prim") else node.kind


def _facts(node: Node) -> dict[str, str]:
    """What the title of a node says."""
    found = {"operator": node.kind if node.schema is None else node.schema.full_name}
    path = module_path(node)
    if path:
        found["module"] = path
    for i, value in enumerate(node.outputs):
        found["output" if len(node.outputs) == 1 else f"output {i}"] = f"%{value.name or '?'} : {value.type}"
    if node.source is not None:
        found["source"] = str(node.source)
        found["line"] = _line(node.source)
        original = node.source.original()
        if original is not None:
            found["original"] = str(original)
            found["original line"] = _line(original)
    return {k: v for k, v in found.items() if v}


def _line(place: SourceRange) -> str:
    lines = place.source.lines()
    return lines[place.line - 1].strip()[:400] if 1 <= place.line <= len(lines) else ""
