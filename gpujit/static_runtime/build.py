"""From a specialised, fused graph to a static plan: the static graph, its code, and the blocks of native steps.

The plan's code is the interpreter's: native runs are single instructions in it, and planned tensors are constants,
which each runtime fills in with arrays of its own arena. Branches and loops are its jumps, around the runs and
instructions of their blocks; values that go round a loop, or come out of a branch, are arrays in its registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpujit.fuser.lower import Lowered
from gpujit.ir.graph import Block, Graph, Node, Value, copy_node
from gpujit.ir.printer import SUBGRAPH
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.decide import Decisions
from gpujit.static_runtime.native import Maker, NativeKernel
from gpujit.static_runtime.order import RETURN
from gpujit.static_runtime.places import Place, Strides
from gpujit.static_runtime.plan import Lifetime
from gpujit.static_runtime.steps import NativeStep, Operand, Options, OutStep, Segment, Slot, StaticPlan

NATIVE_RUN = "prim::NativeRun"
# Nodes that only hold what they are given: made where their first reader stands, so that native runs are not cut.
HOLDERS = ("prim::ListConstruct", "prim::TupleConstruct")


def build(
    source: Graph,
    programs: Mapping[Node, Lowered],
    lowerer: Lowerer,
    strides: Mapping[str, Strides],
    options: Options,
    maker: Maker | None = None,
) -> StaticPlan:
    """The plan of a graph for tensors of these strides (in bytes, by the name that ``name_of`` gives a value)."""
    return Emit(Decisions(source, programs, lowerer, strides, options, maker)).finish()


class Emit:
    """Makes the static graph and its code from what was decided."""

    # Whether a native step that checks something is the last one of its run.
    ends_at_checks = True

    def __init__(self, build: Decisions) -> None:
        self.build = build
        self.places, self.order = build.places, build.order
        self.graph = Graph(build.graph.name)
        # The block that nodes are added to.
        self.block = self.graph.block
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
        self.wanted = self.find_wanted()

    def finish(self) -> StaticPlan:
        build = self.build
        for node in build.graph.all_nodes():
            if node.kind == "prim::Constant":
                copy_node(node, self.graph.block, self.new)
        self.steps_of(build.graph.block)
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
            arena=build.plan,
            values=values,
            lifetimes=lives,
            buffers=build.buffers,
            offsets=[build.offset[v] for v in values],
            dtypes=[self.dtype(v) for v in values],
            order=self.order,
            kinds=build.kinds,
            names=build.names,
            separate=sum(t.size for t in lives),
            is_quiet=all(self.is_quiet(n) for n in self.order),
            is_straight=not any(n.kind == RETURN for n in self.order),
            made_outputs=self.made_outputs(),
            reads_attributes=any(n.kind == "prim::GetAttr" for n in build.graph.all_nodes()),
            apart=build.apart,
            orders=self.dim_orders(),
        )

    def steps_of(self, block: Block) -> None:
        """Make the steps of a block of the graph at the end of ``self.block``, and have that return what it does."""
        build = self.build
        for node in block.nodes:
            if node not in build.kinds:
                # A constant, or done by the step of another node.
                continue
            if node in build.natives:
                self.pending.append(node)
                if build.natives[node].checks and self.ends_at_checks:
                    # What it finds is raised before anything else happens, at the place of this node.
                    self.flush()
            elif node in self.places.views:
                if any(v in self.wanted and self.slot_of(v) is None for v in node.outputs):
                    self.python(node)
            elif node.kind in HOLDERS:
                self.waiting[node.output] = node
            elif node.kind == "prim::GetAttr" and node.inputs[0] in self.new:
                # No native step writes attributes, or makes objects: it is read before those that still wait to run.
                copy_node(node, self.block, self.new)
            elif node.blocks:
                self.control(node)
            else:
                self.python(node)
        self.flush()
        for value in block.returns:
            self.block.add_return(self.get(value))

    def control(self, node: Node) -> None:
        """A branch or loop."""
        self.flush()
        # What waits is made out here: blocks may run often, or not at all.
        read = self.read_in(node) if self.waiting else ()
        for value in [v for v in self.waiting if v in self.wanted and v in read]:
            self.get(value)
        new = self.like(node)
        self.block.append(new)
        around = self.block
        for block in node.blocks:
            self.block = new.add_block()
            for value in block.params:
                self.new[value] = self.block.add_param(value.type, value.name)
            self.steps_of(block)
        self.block = around
        for value in node.outputs:
            self.new[value] = new.add_output(value.type, value.name)

    def read_in(self, node: Node) -> set[Value]:
        """What a branch or loop reads, and what the steps in its blocks do."""
        build = self.build
        start, found = build.position[node], set(node.inputs)
        for inner in self.order[start : build.position[node.blocks[-1].return_node]]:
            found.update(inner.inputs)
            found.update(build.operands.get(inner, ()))
        found.update(v for b in node.blocks for v in b.returns)
        return found

    def like(self, node: Node) -> Node:
        """A node of the same kind in no block, on what it reads."""
        new = Node(node.kind, [self.get(v) for v in node.inputs], dict(node.attributes))
        new.schema, new.source, new.call = node.schema, node.source, node.call
        return new

    def is_quiet(self, node: Node) -> bool:
        """Whether a node computes nothing with NumPy."""
        plain = node.kind.startswith("prim::") and SUBGRAPH not in node.attributes
        return plain or self.build.kinds[node] in ("native", "view")

    def life(self, value: Value) -> Lifetime:
        place = self.places.of(value)
        assert place is not None
        return Lifetime(self.build.position[value.node], self.build.last[value], place.nbytes)

    def dtype(self, value: Value) -> np.dtype:
        place = self.places.of(value)
        assert place is not None
        return place.dtype

    def find_wanted(self) -> set[Value]:
        """Values that must be there as Python objects."""
        build = self.build
        found = set(build.graph.outputs)
        for node in reversed(self.order):
            if node in build.natives:
                # What is neither planned nor constant comes in as an array.
                found.update(p.root for p in map(self.places.of, build.operands[node]) if p is not None)
            elif node in self.places.views or node.kind in HOLDERS:
                if any(v in found and self.slot_of(v) is None for v in node.outputs):
                    found.update(node.inputs)
            else:
                found.update(node.inputs)
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
                # All blocks may read it.
                node = Node("prim::Constant", (), {"value": slot}).insert_after(self.graph.block.param_node)
                known = self.slots[key] = node.add_output(value.type, value.name)
            self.new[value] = known
            return known
        node = self.waiting.pop(value)
        for each in node.inputs:
            self.get(each)
        copy_node(node, self.block, self.new)
        return self.new[value]

    def python(self, node: Node) -> None:
        """A node that is one of the interpreter's instructions, or some."""
        self.flush()
        build = self.build
        op = build.outs.get(node)
        if op is not None:
            slots = tuple(s for s in map(self.slot_of, node.outputs) if s is not None)
            step = OutStep(build.position[node], op.out_kernel(np), slots)
            new = self.like(node)
            self.block.append(new)
            for value in node.outputs:
                new.add_output(value.type, value.name)
            self.steps[new] = step  # type: ignore[assignment]  # a runtime makes it callable
            return
        for value in node.inputs:
            self.get(value)
        new = copy_node(node, self.block, self.new)
        if node in build.fallback:
            self.steps[new] = build.fallback[node]

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
            assert isinstance(kernel, NativeKernel)
            for words in kernel.rounds or (kernel.words,):
                steps.append(self.native_step(node, kernel, words, given, made))
        segment = Segment(len(self.segments), steps, self.operand_list(given), self.operand_list(made))
        self.segments.append(segment)
        new = Node(NATIVE_RUN, [self.get(v) for v in given])
        new.source, new.call = nodes[-1].source, nodes[-1].call
        self.block.append(new)
        for value in made:
            self.new[value] = new.add_output(value.type, value.name)
        self.steps[new] = segment  # type: ignore[assignment]  # a runtime makes it callable

    def native_step(
        self,
        node: Node,
        kernel: NativeKernel,
        words: Sequence[int],
        given: dict[Value, list[tuple[int, int]]],
        made: dict[Value, list[tuple[int, int]]],
    ) -> NativeStep:
        """A step whose block has these words, and what has to be put into them."""
        first = len(self.words)
        self.words += words
        operands = [p for p in map(self.places.of, self.build.operands[node]) if p is not None]
        for k, place in enumerate(operands):
            self.address(first + kernel.arrays[k], place, made if place.root in made else given)
        for k, value in enumerate(node.outputs):
            result = self.places.of(value)
            assert result is not None
            root = result.root
            if root is value and value not in self.build.offset:
                made.setdefault(value, [])
            self.address(first + kernel.arrays[len(operands) + k], result, made if root in made else given)
        if kernel.scratch:
            self.scratch_words.append(first + kernel.scratch_slot)
            self.scratch = max(self.scratch, kernel.scratch)
        if kernel.checks:
            self.flag_words.append((first + kernel.flags_slot, self.checks))
            self.checks += len(kernel.checks)
        self.functions.append(kernel.address)
        return NativeStep(node, self.build.position[node], kernel, first)

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

    def dim_orders(self) -> dict[Node, tuple[int, ...]]:
        found = {}
        for node in self.build.natives:
            for place in map(self.places.of, node.outputs):
                if place is not None and not place.lies_together:
                    found[node] = place.order
        return found

    def made_outputs(self) -> dict[int, Operand]:
        made = {o.value: o for s in self.segments for o in s.made}
        outputs: Sequence[Value] = self.build.graph.outputs
        if len(outputs) == 1 and outputs[0].node.kind == "prim::TupleConstruct":
            outputs = outputs[0].node.inputs
        return {i: made[v] for i, v in enumerate(outputs) if v in made}
