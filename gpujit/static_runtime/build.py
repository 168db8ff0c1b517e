"""From a specialised, fused graph to a static plan: what each node becomes, where values lie, and the code that runs it.

A node is one of these: a native step (a fusion group, a copy), whose kernel a run of native steps calls in one go; an
operator that writes its results into the arena; a view that costs nothing; or what the interpreter makes of it. The
plan's code is the interpreter's: native runs are single instructions in it, and planned tensors are constants, which
each runtime fills in with arrays of its own arena.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpujit.fuser.fuse import FUSION_GROUP
from gpujit.fuser.errors import NotFused
from gpujit.fuser.lower import Lowered, lower
from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value, copy_node
from gpujit.ops.registry import Op
from gpujit.passes.alias import AliasAnalysis
from gpujit.passes.effects import entry_of, inner_nodes, is_pure
from gpujit.runtime import bytecode as bc
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.lifetime import last_steps, lifetimes_of, may_be_planned, owner_of
from gpujit.static_runtime.native import Maker, NativeKernel, of_copy, of_group
from gpujit.static_runtime.places import Place, Places, Strides, contiguous, facts_of, reads_of
from gpujit.static_runtime.plan import Lifetime, Plan, plan_arena
from gpujit.support.config import config

NATIVE_RUN = "prim::NativeRun"
# Nodes that only hold what they are given: made where their first reader stands, so that native runs are not cut.
_HOLDERS = ("prim::ListConstruct", "prim::TupleConstruct")


@dataclass(frozen=True, slots=True)
class Options:
    """What a static module may do, as far as PyTorch's StaticModuleOptions have a meaning here.

    Args:
        enable_out_variant: operators write results into the arena; else only native steps do.
        optimize_memory: values that do not live at the same time share memory.
        reuse_operands: a group may write its result over an operand that nobody reads any more.
    """

    enable_out_variant: bool = True
    optimize_memory: bool = True
    reuse_operands: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A planned tensor: stands in the code until a runtime puts an array of its arena there."""

    offset: int
    shape: tuple[int, ...]
    strides: Strides
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class NativeStep:
    """A native step of a run: which block word gets which address is in the run."""

    node: Node
    position: int
    kernel: NativeKernel
    first_word: int


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that a native run is given, or makes anew each time, and the block words that name it.

    ``words`` are pairs of a word and the bytes to add to the address.
    """

    value: Value
    shape: tuple[int, ...]
    strides: Strides
    dtype: np.dtype
    words: tuple[tuple[int, int], ...]


@dataclass(eq=False)
class Segment:
    """Native steps that run in one call. ``made`` are results that outlive the run."""

    number: int
    steps: list[NativeStep]
    given: list[Operand]
    made: list[Operand]


@dataclass(frozen=True, slots=True, eq=False)
class OutStep:
    """An operator that leaves its results in the arena."""

    position: int
    kernel: Callable[..., Any]
    slots: tuple[Slot, ...]


@dataclass(eq=False)
class StaticPlan:
    """Everything about one graph that all its runtimes share."""

    graph: Graph
    code: bc.Code
    segments: list[Segment]
    words: np.ndarray
    arena_words: np.ndarray
    functions: np.ndarray
    scratch_words: np.ndarray
    flag_words: np.ndarray
    scratch: int
    checks: int
    arena: Plan
    values: list[Value]
    lifetimes: list[Lifetime]
    buffers: list[Lifetime]
    offsets: list[int]
    dtypes: list[np.dtype]
    order: list[Node]
    kinds: dict[Node, str]
    names: dict[Value, str]
    unplanned: int
    made_outputs: dict[int, Value] = field(default_factory=dict)
    reads_attributes: bool = False

    def constants(self) -> list[np.ndarray]:
        """Arrays that the graph holds."""
        nodes = self.order[0].graph.all_nodes() if self.order else ()
        found = [n.attributes.get("value") for n in nodes if n.kind == "prim::Constant"]
        return [x for x in found if isinstance(x, np.ndarray)]


def build(
    source: Graph,
    programs: Mapping[Node, Lowered],
    lowerer: Lowerer,
    strides: Mapping[str, Strides],
    options: Options,
    maker: Maker | None = None,
) -> StaticPlan:
    """The plan of a graph for tensors of these strides (in bytes, by the name that ``name_of`` gives a value)."""
    return _Build(source, programs, lowerer, strides, options, maker).run()


def copied(source: Graph) -> tuple[Graph, dict[Node, Node]]:
    """A copy of a graph, and its nodes by the nodes they were copied from, inner ones included."""
    graph = Graph(source.name)
    values = {v: graph.add_input(v.type, v.name) for v in source.inputs}
    nodes: dict[Node, Node] = {}
    for node in source.nodes:
        new = copy_node(node, graph.block, values)
        nodes[node] = new
        nodes.update(zip(inner_nodes(node), inner_nodes(new), strict=True))
    for value in source.outputs:
        graph.add_output(values[value])
    return graph, nodes


class _Build:
    def __init__(
        self,
        source: Graph,
        programs: Mapping[Node, Lowered],
        lowerer: Lowerer,
        strides: Mapping[str, Strides],
        options: Options,
        maker: Maker | None,
    ) -> None:
        self.options, self.lowerer, self.maker = options, lowerer, maker
        self.graph, nodes = copied(source)
        self.names = name_values(self.graph)
        self.programs = {nodes[n]: low for n, low in programs.items() if n in nodes}
        self.fallback = {nodes[n]: step for n, step in lowerer.fused.items() if n in nodes}
        by_value = {v: strides[name] for v, name in self.names.items() if name in strides}
        self.places = Places(self.graph, by_value)
        self.alias = AliasAnalysis(self.graph)
        self.order = [n for n in self.graph.nodes if n.kind != "prim::Constant"]
        self.position = {n: i for i, n in enumerate(self.order)}
        self.natives: dict[Node, NativeKernel] = {}
        self.operands: dict[Node, Sequence[Value]] = {}
        self.outs: dict[Node, Op] = {}
        self.kinds: dict[Node, str] = {}

    def run(self) -> StaticPlan:
        self.classify()
        planned = self.planned()
        self.last = last_steps(self.order, planned, self.places, self.alias)
        self.merged: dict[Value, Value] = {}
        owners, lives, arena = self.arena()
        if self.options.reuse_operands and arena.size:
            apart = self.merged
            self.merged = self.overwriting()
            if self.merged:
                # Written over an operand, values move less memory; but longer buffers may fit less well.
                together = self.arena()
                if together[2].size <= arena.size:
                    owners, lives, arena = together
                else:
                    self.merged = apart
        by_owner = dict(zip(owners, arena.offsets, strict=True))
        self.offset = {v: by_owner[owner_of(v, self.merged)] for v in self.last}
        return _Emit(self, arena, lives).finish()

    def arena(self) -> tuple[list[Value], list[Lifetime], Plan]:
        """Buffers by the value they are named by, and where they lie."""
        owners, buffers = lifetimes_of(self.order, self.last, self.merged)
        if not self.options.optimize_memory:
            buffers = [Lifetime(0, len(self.order), b.size) for b in buffers]
        return owners, buffers, plan_arena(buffers)

    # What becomes of a node

    def classify(self) -> None:
        """Fill ``natives`` and ``outs``."""
        for node in self.order:
            if node in self.places.views:
                self.kinds[node] = "view"
                continue
            kernel = self.native(node)
            if kernel is not None:
                self.natives[node] = kernel
                self.kinds[node] = "native"
                continue
            op = self.out_variant(node) if self.options.enable_out_variant else None
            if op is not None:
                self.outs[node] = op
                self.kinds[node] = "out"
            else:
                self.kinds[node] = "interpreter"

    def native(self, node: Node) -> NativeKernel | None:
        """The kernel of a node that is a native step; ``operands`` then says what it reads."""
        results = self.placed(node.outputs)
        if results is None or any(p.strides != contiguous(p.shape, p.dtype) for p in results) or not results:
            return None
        if self.maker is not None and node.kind != FUSION_GROUP:
            values = [v for v in node.inputs if isinstance(v.type, T.TensorType)]
            operands = self.placed(values)
            kernel = None if operands is None else self.maker(node, operands, results)
            if kernel is not None:
                self.operands[node] = values
                return kernel
        if node in self.places.copies:
            source = self.places.of(node.inputs[0])
            self.operands[node] = node.inputs[:1]
            return None if source is None else of_copy(source, results[0])
        # A check of kernels is done where each is called by itself.
        low = None if config.check_kernels else self.program(node)
        if low is None:
            return None
        values = node.inputs[: len(low.inputs)] if node.kind == FUSION_GROUP else list(low.inputs)
        operands = self.placed(values)
        self.operands[node] = values
        return None if operands is None else of_group(low, operands, results)

    def program(self, node: Node) -> Lowered | None:
        """The tile program of a group, or of an operator that would not be worth a call of its own."""
        if node.kind == FUSION_GROUP:
            return self.programs.get(node) if getattr(self.fallback.get(node), "is_fused", True) else None
        op = entry_of(node)
        if op is None or op.form != "functional" or op.kind in ("view", "prim") or "fuser" in config.disable:
            return None
        if op.full_name in self.lowerer.rules or not is_pure(node) or (op.kind != "pointwise" and op.scalar is None):
            return None
        try:
            return lower([node], list(node.outputs))
        except NotFused:
            return None

    def placed(self, values: Sequence[Value]) -> list[Place] | None:
        found = [self.places.of(v) for v in values]
        return None if any(p is None for p in found) else [p for p in found if p is not None]

    def out_variant(self, node: Node) -> Op | None:
        """The operator of a node that can write its results into given arrays."""
        op = entry_of(node)
        if op is None or op.form != "functional" or op.kind in ("view", "prim") or not op.has_out_variant:
            return None
        if node.blocks or not node.outputs or any(facts_of(v) is None for v in node.outputs):
            return None
        if op.full_name in self.lowerer.rules or config.check_types or op.may_alias:
            return None
        other = node.inputs[1] if len(node.inputs) > 1 else None
        if other is not None and other.is_constant and getattr(other.constant(), "ndim", None) == 0:
            # The interpreter may take it for a number.
            return None
        return op

    def planned(self) -> list[Value]:
        """The values that live in the arena. Operators that cannot have all results there keep none there."""
        found = []
        for node in self.order:
            if node in self.natives:
                found += [v for v in node.outputs if may_be_planned(v, self.alias)]
            elif node in self.outs:
                if all(may_be_planned(v, self.alias) for v in node.outputs):
                    found += node.outputs
                else:
                    del self.outs[node]
                    self.kinds[node] = "interpreter"
        return found

    def overwriting(self) -> dict[Value, Value]:
        """For results of groups that are written over an operand, that operand's memory."""
        merged: dict[Value, Value] = {}
        for node, kernel in self.natives.items():
            i = self.position[node]
            operands = [p for p in map(self.places.of, self.operands[node]) if p is not None]
            taken: set[Value] = set()
            for k, value in enumerate(node.outputs):
                if value not in self.last:
                    continue
                for j in kernel.overwrites[k]:
                    root = operands[j].root
                    if root in taken or self.last.get(root) != i or not self.is_whole(operands[j]):
                        continue
                    others = [n for n, p in enumerate(operands) if p.root is root]
                    if all(n in kernel.overwrites[k] for n in others) and not self.is_met_elsewhere(root, operands):
                        merged[value] = root
                        taken.add(root)
                        break
        return merged

    def is_whole(self, place: Place) -> bool:
        root = self.places.of(place.root)
        return root is not None and not place.offset and root.nbytes == place.nbytes

    def is_met_elsewhere(self, root: Value, operands: Sequence[Place]) -> bool:
        """Whether an operand in memory that is not planned may be a planned value's all the same."""
        return any(
            p.root not in self.last and not p.root.is_constant and self.alias.may_alias(p.root, root) for p in operands
        )


class _Emit:
    """Makes the static graph and its code from what was decided."""

    def __init__(self, build: _Build, arena: Plan, buffers: list[Lifetime]) -> None:
        self.build, self.arena, self.buffers = build, arena, buffers
        self.places, self.order = build.places, build.order
        self.graph = Graph(build.graph.name)
        self.new = {v: self.graph.add_input(v.type, v.name) for v in build.graph.inputs}
        self.steps: dict[Node, Callable[..., Any]] = {}
        self.segments: list[Segment] = []
        self.words: list[int] = []
        self.arena_words: list[tuple[int, int]] = []
        self.functions: list[int] = []
        self.scratch_words: list[int] = []
        self.flag_words: list[tuple[int, int]] = []
        self.scratch = self.checks = 0
        self.pending: list[Node] = []
        self.waiting: dict[Value, Node] = {}
        self.slots: dict[tuple[Any, ...], Value] = {}
        self.kept: list[np.ndarray] = []

    def finish(self) -> StaticPlan:
        build = self.build
        wanted = self.wanted()
        for node in build.graph.nodes:
            if node.kind == "prim::Constant":
                copy_node(node, self.graph.block, self.new)
        for node in self.order:
            if node in build.natives:
                self.pending.append(node)
                if build.natives[node].checks:
                    # What it finds is raised before anything else happens, at the place of this node.
                    self.flush()
            elif node in self.places.views:
                if any(v in wanted and self.slot_of(v) is None for v in node.outputs):
                    self.python(node)
            elif node.kind in _HOLDERS:
                self.waiting[node.output] = node
            else:
                self.python(node)
        self.flush()
        for value in build.graph.outputs:
            self.graph.add_output(self.get(value))
        lowerer = Lowerer(build.lowerer.xp, build.lowerer.rules)
        lowerer.fused = self.steps
        code = lowerer.graph_code(self.graph)
        values = list(build.last)
        lives = [self.life(v) for v in values]
        return StaticPlan(
            graph=self.graph,
            code=code,
            segments=self.segments,
            words=np.array(self.words, np.int64),
            arena_words=np.array(self.arena_words, np.int64).reshape(-1, 2),
            functions=np.array(self.functions, np.int64),
            scratch_words=np.array(self.scratch_words, np.int64),
            flag_words=np.array(self.flag_words, np.int64).reshape(-1, 2),
            scratch=self.scratch,
            checks=self.checks,
            arena=self.arena,
            values=values,
            lifetimes=lives,
            buffers=self.buffers,
            offsets=[build.offset[v] for v in values],
            dtypes=[self.dtype(v) for v in values],
            order=self.order,
            kinds=build.kinds,
            names=build.names,
            unplanned=sum(t.size for t in lives),
            made_outputs=self.made_outputs(),
            reads_attributes=any(n.kind == "prim::GetAttr" for n in build.graph.all_nodes()),
        )

    def life(self, value: Value) -> Lifetime:
        place = self.places.of(value)
        assert place is not None
        return Lifetime(self.build.position[value.node], self.build.last[value], place.nbytes)

    def dtype(self, value: Value) -> np.dtype:
        place = self.places.of(value)
        assert place is not None
        return place.dtype

    def wanted(self) -> set[Value]:
        """Values that must be there as Python objects."""
        build = self.build
        found = set(build.graph.outputs)
        for node in reversed(self.order):
            if node in build.natives:
                # What is neither planned nor constant comes in as an array.
                found.update(p.root for p in map(self.places.of, build.operands[node]) if p is not None)
            elif node in self.places.views or node.kind in _HOLDERS:
                if any(v in found and self.slot_of(v) is None for v in node.outputs):
                    found.update(node.inputs)
            else:
                found.update(reads_of(node))
        return found

    def slot_of(self, value: Value) -> Slot | None:
        """Where a tensor in the arena lies."""
        place = self.places.of(value)
        if place is None or place.root not in self.build.offset:
            return None
        return Slot(self.build.offset[place.root] + place.offset, place.shape, place.strides, place.dtype)

    def get(self, value: Value) -> Value:
        """The value in the static graph; what waits for its first reader is made now."""
        found = self.new.get(value)
        if found is not None:
            return found
        slot = self.slot_of(value)
        if slot is not None:
            key = (slot.offset, slot.shape, slot.strides, slot.dtype)
            known = self.slots.get(key)
            if known is None:
                node = Node("prim::Constant", (), {"value": slot})
                known = self.slots[key] = node.add_output(value.type, value.name)
                self.graph.block.append(node)
            self.new[value] = known
            return known
        node = self.waiting.pop(value)
        for each in node.inputs:
            self.get(each)
        copy_node(node, self.graph.block, self.new)
        return self.new[value]

    def python(self, node: Node) -> None:
        """A node that is one of the interpreter's instructions, or some."""
        self.flush()
        build = self.build
        op = build.outs.get(node)
        if op is not None:
            slots = tuple(s for s in map(self.slot_of, node.outputs) if s is not None)
            step = OutStep(build.position[node], op.out_kernel(np), slots)
            new = Node(node.kind, [self.get(v) for v in node.inputs], dict(node.attributes))
            new.schema, new.source, new.call = node.schema, node.source, node.call
            self.graph.block.append(new)
            for value in node.outputs:
                new.add_output(value.type, value.name)
            self.steps[new] = step  # type: ignore[assignment]  # a runtime makes it callable
            return
        for value in reads_of(node):
            if value.node.block is build.graph.block:
                self.get(value)
        new = copy_node(node, self.graph.block, self.new)
        for old, inner in zip((node, *inner_nodes(node)), (new, *inner_nodes(new)), strict=True):
            if old in build.fallback:
                self.steps[inner] = build.fallback[old]

    # Native runs

    def flush(self) -> None:
        """Make one run of the native steps gathered so far."""
        if not self.pending:
            return
        nodes, self.pending = self.pending, []
        given: dict[Value, list[tuple[int, int]]] = {}
        made: dict[Value, list[tuple[int, int]]] = {}
        steps = []
        for node in nodes:
            kernel = self.build.natives[node]
            first = len(self.words)
            self.words += kernel.words
            operands = [p for p in map(self.places.of, self.build.operands[node]) if p is not None]
            for k, place in enumerate(operands):
                self.address(first + kernel.arrays[k], place, made if place.root in made else given)
            for k, value in enumerate(node.outputs):
                place = self.places.of(value)
                assert place is not None
                if value not in self.build.offset:
                    made.setdefault(value, [])
                self.address(first + kernel.arrays[len(operands) + k], place, made)
            if kernel.scratch:
                self.scratch_words.append(first + kernel.scratch_slot)
                self.scratch = max(self.scratch, kernel.scratch)
            if kernel.checks:
                self.flag_words.append((first + kernel.flags_slot, self.checks))
                self.checks += len(kernel.checks)
            self.functions.append(kernel.address)
            steps.append(NativeStep(node, self.build.position[node], kernel, first))
        segment = Segment(len(self.segments), steps, self.operand_list(given), self.operand_list(made))
        self.segments.append(segment)
        new = Node(NATIVE_RUN, [self.get(v) for v in given])
        new.source, new.call = nodes[-1].source, nodes[-1].call
        self.graph.block.append(new)
        for value in made:
            self.new[value] = new.add_output(value.type, value.name)
        self.steps[new] = segment  # type: ignore[assignment]  # a runtime makes it callable

    def address(self, word: int, place: Place, dynamic: dict[Value, list[tuple[int, int]]]) -> None:
        """See to it that a block word names a place."""
        root = place.root
        if root in self.build.offset:
            self.arena_words.append((word, self.build.offset[root] + place.offset))
        elif root.is_constant:
            array = root.constant()
            self.words[word] = array.__array_interface__["data"][0] + place.offset
        else:
            dynamic.setdefault(root, []).append((word, place.offset))

    def operand_list(self, found: dict[Value, list[tuple[int, int]]]) -> list[Operand]:
        operands = []
        for value, words in found.items():
            place = self.places.of(value)
            assert place is not None
            operands.append(Operand(value, place.shape, place.strides, place.dtype, tuple(words)))
        return operands

    def made_outputs(self) -> dict[int, Value]:
        """Outputs, by position (of a tuple's elements when the only output is a tuple), made in native runs."""
        made = {o.value for s in self.segments for o in s.made}
        outputs: Sequence[Value] = self.build.graph.outputs
        if len(outputs) == 1 and outputs[0].node.kind == "prim::TupleConstruct":
            outputs = outputs[0].node.inputs
        return {i: v for i, v in enumerate(outputs) if v in made}


def name_values(graph: Graph) -> dict[Value, str]:
    """Names that are the same in each copy of a graph, for inputs and results of its own nodes."""
    found = {v: f"input {i}" for i, v in enumerate(graph.inputs)}
    for i, node in enumerate(graph.nodes):
        for k, value in enumerate(node.outputs):
            found[value] = f"node {i} {k}"
    return found
