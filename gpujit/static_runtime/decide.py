"""What becomes of each node of a specialised, fused graph, and which values live in the arena.

A node, of whichever block, is one of these: a native step (a fusion group, a single operator with a tile program, a
copy), whose kernel a run of native steps calls in one go; an operator that writes its results into the arena; a view
that costs nothing; a branch or loop around others; or what the interpreter makes of it. A product or convolution whose
result goes into an activation or a sum alone is made in that node's step, and is no node of the order any more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from gpujit.fuser import cost
from gpujit.fuser.errors import NotFused
from gpujit.fuser.facts import Facts
from gpujit.fuser.fuse import FUSION_GROUP
from gpujit.fuser.lower import Lowered, lower
from gpujit.ir.graph import Graph, Node, Value, copy_node
from gpujit.kernels.supply import NotCompiled
from gpujit.kernels.templates.bound import BoundTemplate
from gpujit.kernels.templates.producer import Producer
from gpujit.ops.registry import Op
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import entry_of, inner_nodes, is_pure
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.carried import Carried, keep_in_place
from gpujit.static_runtime.endings import NO_ENDING, Ending, endings
from gpujit.static_runtime.layout import strides_of
from gpujit.static_runtime.lifetime import last_steps, lifetimes_of, may_be_planned, owner_of
from gpujit.static_runtime.native import (
    Made,
    Maker,
    NativeKernel,
    Request,
    Step,
    compiled,
    of_copy,
    of_group,
    prepared,
)
from gpujit.static_runtime.order import RETURN, steps_of, within_rounds
from gpujit.static_runtime.places import Order, Place, Places, Strides
from gpujit.static_runtime.plan import Lifetime, Plan, plan_arena
from gpujit.static_runtime.starts import STARTED, start_of, why_not_worth
from gpujit.static_runtime.steps import Options
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError, InternalError

log = logging.getLogger("gpujit.plan")

# Operators that convert a tensor, and return it where there is nothing to convert.
CASTS = ("aten::to", "aten::type_as")


class Decisions:
    """What becomes of each node of a copy of a graph, and which values lie where in the arena."""

    # In which order results lie that are not contiguous; None where all are.
    order_of: Order | None = staticmethod(strides_of)

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
        # Before anything is rewritten: these are the names that values have in other copies.
        self.names = name_values(self.graph)
        self.rewrite()
        self.programs = {nodes[n]: low for n, low in programs.items() if n in nodes}
        self.fallback = {nodes[n]: step for n, step in lowerer.fused.items() if n in nodes}
        by_value = {v: strides[name] for v, name in self.names.items() if name in strides}
        self.places = Places(self.graph, by_value, self.carried(), self.order_of)
        self.alias = AliasAnalysis(self.graph)
        self.order = steps_of(self.graph)
        self.position = {n: i for i, n in enumerate(self.order)}
        self.natives: dict[Node, Step] = {}
        # How steps of templates were made: from which node, with which result and ending.
        self.recipes: dict[Node, tuple[Node, Place, Ending]] = {}
        # What became one step: the first node with its step, and what the second one asked for, with its operands.
        self.ended_steps: dict[Node, tuple[Node, tuple[Step, Sequence[Value]], Request, Sequence[Value]]] = {}
        # Operators that take as long as a call of a kernel would.
        self.doubtful: set[Node] = set()
        # Why what makes a template's operand is a step of its own.
        self.apart: dict[Node, str] = {}
        self.operands: dict[Node, Sequence[Value]] = {}
        self.outs: dict[Node, Op] = {}
        self.kinds: dict[Node, str] = {}
        self.last: dict[Value, int] = {}
        self.merged: dict[Value, Value] = {}
        self.offset: dict[Value, int] = {}
        self.decide()

    def rewrite(self) -> None:
        """Write out nodes of the graph that steps can be had for only then."""

    def carried(self) -> Carried:
        """What writes memory that was there before, and is seen to be."""
        return keep_in_place(self.graph)

    def decide(self) -> None:
        """Fill in everything."""
        self.classify()
        self.last = last_steps(self.order, self.planned(), self.places, self.alias, self.operands)
        owners, self.buffers, self.plan = self.arena()
        if self.options.reuse_operands and self.plan.size:
            self.merged = self.overwriting()
            # Written over an operand, values move less memory; but longer buffers may fit less well.
            together = self.arena()
            if together[2].size <= self.plan.size:
                owners, self.buffers, self.plan = together
            else:
                self.merged = {}
        by_owner = dict(zip(owners, self.plan.offsets, strict=True))
        self.offset = {v: by_owner[owner_of(v, self.merged)] for v in self.last}

    def arena(self) -> tuple[list[Value], list[Lifetime], Plan]:
        """Buffers by the value they are named by, and where they lie."""
        owners, buffers = lifetimes_of(self.order, self.last, self.merged)
        if not self.options.optimize_memory:
            buffers = [Lifetime(0, len(self.order), b.size) for b in buffers]
        return owners, buffers, plan_arena(buffers)

    # What becomes of a node

    def classify(self) -> None:
        """Fill ``natives`` and ``outs``."""
        asked: dict[Node, Request] = {}
        whole = self.order
        for node in self.order:
            if node in self.places.views:
                self.kinds[node] = "view"
                continue
            if node.blocks or node.kind == RETURN:
                self.kinds[node] = "control"
                continue
            found = self.native(node)
            if isinstance(found, NativeKernel):
                self.natives[node] = found
            elif found is not None:
                asked[node] = found
        if self.options.endings and "fusion" not in config.disable:
            self.put_ends(asked)
            self.put_starts(asked)
        self.have_code(asked, whole)
        self.leave_single(asked)
        for node, kernel in zip(asked, compiled(list(asked.values())), strict=True):
            if kernel is not None:
                self.natives[node] = kernel
        for node in self.places.rounds & self.natives.keys():
            # A copy that NumPy makes may have other strides, and would not be written itself.
            if node.inputs[0].node not in self.natives:
                del self.natives[node], self.operands[node]
        for node in self.order:
            if node in self.natives:
                self.kinds[node] = "native"
            elif node not in self.kinds:
                op = self.out_variant(node) if self.options.enable_out_variant else None
                self.kinds[node] = "interpreter" if op is None else "out"
                if op is not None:
                    self.outs[node] = op

    def native(self, node: Node) -> NativeKernel | Request | None:
        """The kernel, or what to compile, of a node that is a native step; ``operands`` then says what it reads."""
        results = self.placed(node.outputs)
        if not results or not all(p.is_dense for p in results):
            return None
        are_plain = all(p.lies_together for p in results)
        if self.maker is not None and are_plain and not config.check_kernels and self.may_be_made(node):
            made = self.maker(node, self.places.of, results[0])
            if made is not None and self.placed(made[1]) is not None:
                self.operands[node] = made[1]
                self.recipes[node] = node, results[0], NO_ENDING
                return made[0]
        if node in self.places.copies:
            source = self.places.of(node.inputs[0])
            self.operands[node] = node.inputs[:1]
            return None if source is None else of_copy(source, results[0])
        if node in self.places.rounds:
            self.operands[node] = node.inputs[1:2]
            source = self.places.of(node.inputs[1])
            return None if source is None else of_copy(source, results[0])
        # A check of kernels is done where each is called by itself.
        low = None if config.check_kernels else self.program(node)
        if low is None:
            return None
        values = node.inputs[: len(low.inputs)] if node.kind == FUSION_GROUP else list(low.inputs)
        operands = self.placed(values)
        self.operands[node] = values
        if node.kind != FUSION_GROUP and cost.fused(low) >= cost.alone(Facts().of(node)):
            self.doubtful.add(node)
        return None if operands is None else of_group(low, operands, results)

    def have_code(self, asked: dict[Node, Request], whole: Sequence[Node]) -> None:
        """Have the code of templates' steps, now that it is known which there are: those that were joined need none.

        A node without it is left to others; of a step that does what two nodes do, each gets its own again.
        """
        waiting, order = [*self.natives], set(self.order)
        while waiting:
            node = waiting.pop()
            kernel = self.natives[node]
            if not isinstance(kernel, NativeKernel):
                continue
            try:
                self.natives[node] = prepared(kernel)
            except InternalError as fault:
                if not isinstance(fault, NotCompiled):
                    log.warning("%s runs without a template: %s", node.kind, fault.message)
                del self.natives[node], self.operands[node]
                before = self.ended_steps.pop(node, None)
                if before is not None:
                    first, (self.natives[first], self.operands[first]), asked[node], self.operands[node] = before
                    order.add(first)
                    waiting.append(first)
        self.order = [n for n in whole if n in order]
        self.position = {n: i for i, n in enumerate(self.order)}

    # Steps of templates that do what follows them as well

    def put_ends(self, asked: dict[Node, Request]) -> None:
        """Make one step of a template's and of what is done to its result alone: take both off the list, and the first
        node out of the order."""
        gone: set[Node] = set()
        for node, request in list(asked.items()):
            program, values = request.geometry.program, self.operands[node]
            if self.maker is None or len(request.outputs) != 1:
                continue
            found = endings(program, values, request.inputs, request.outputs[0])
            # What was made last is likely to be there still, with all that it was made of.
            for k, ending in sorted(found, key=lambda f: -self.position.get(request.inputs[f[0]].root.node, -1)):
                first = request.inputs[k].root.node
                made = self.ended(first, node, request.inputs[k], ending)
                if made is None:
                    continue
                own = self.natives[first], self.operands[first]
                self.ended_steps[node] = first, own, request, values
                self.natives[node], self.operands[node] = made
                whole = self.places.of(request.inputs[k].root)
                assert whole is not None
                self.recipes[node] = first, self.at_end(node, whole), ending
                del self.natives[first], self.operands[first], asked[node]
                gone.add(first)
                break
        self.order = [n for n in self.order if n not in gone]
        self.position = {n: i for i, n in enumerate(self.order)}

    def ended(self, first: Node, node: Node, read: Place, ending: Ending) -> Made | None:
        """The step that does what two nodes do, at the place of the second; None when it cannot."""
        kernel, place = self.natives.get(first), self.joined(first, node, read)
        if self.maker is None or place is None:
            return None
        if not isinstance(kernel, NativeKernel) or not isinstance(kernel.owner, BoundTemplate):
            return None
        residual = None if ending.residual is None else self.places.of(ending.residual)
        if residual is not None and residual.root is read.root:
            return None
        made = self.maker(first, self.places.of, place, ending)
        return None if made is None or self.placed(made[1]) is None else made

    def joined(self, first: Node, node: Node, read: Place) -> Place | None:
        """The result of two nodes in one step, as the first one has it, at the place of the second one's, which alone
        reads all of it; None when they stay apart."""
        whole = self.places.of(read.root)
        if first.block is not node.block or first not in self.natives or whole is None:
            return None
        if not self.is_whole(read) or not self.is_read_by(read.root, node):
            return None
        if any(self.alias.is_written_between(v, first, node) for v in self.operands[first]):
            return None
        return self.at_end(node, whole)

    def at_end(self, node: Node, whole: Place) -> Place:
        """Where a template's result lies when ``node`` ends its step."""
        return Place(node.output, 0, whole.strides, whole.shape, whole.dtype)

    # Steps of templates that make what they read

    def put_starts(self, asked: dict[Node, Request]) -> None:
        """Have templates make an operand that nobody else reads: take its node off the list and out of the order."""
        gone: set[Node] = set()
        for node in reversed([n for n in self.order if n in self.recipes and n in self.natives]):
            first = self.recipes[node][0]
            kernel = self.natives[node]
            if self.maker is None or not (isinstance(kernel, NativeKernel) and isinstance(kernel.owner, BoundTemplate)):
                continue
            for root in dict.fromkeys(p.root for p in map(self.places.of, self.operands[node]) if p is not None):
                before = root.node
                if before not in asked or before in self.places.copies or before in self.places.rounds:
                    continue
                try:
                    self.natives[node], self.operands[node] = self.started(before, first, node, asked[before])
                except (ArgumentError, InternalError) as fault:
                    self.apart.setdefault(before, fault.message)
                    continue
                del asked[before], self.operands[before]
                gone.add(before)
                break
        self.order = [n for n in self.order if n not in gone]
        self.position = {n: i for i, n in enumerate(self.order)}

    def started(self, before: Node, first: Node, node: Node, request: Request) -> Made:
        """The step that does what ``before`` does and then what the step of ``node``, a template's for ``first``, does.

        Raises ArgumentError, InternalError with the reason why there is none.
        """
        if first.kind not in STARTED:
            raise ArgumentError(f"{first.kind} reads tensors in memory")
        if len(before.outputs) != 1 or not self.is_read_by(before.output, first):
            raise ArgumentError("others read it, too")
        if before.block is not node.block:
            raise ArgumentError("it is made outside of the branch or loop that reads it")
        if any(self.alias.is_written_between(v, before, node) for v in self.operands[before]):
            raise ArgumentError("what it is made of is written before it is read")
        _, result, ending = self.recipes[node]
        assert self.maker is not None
        start = start_of(before.output, request, self.operands[before])
        made = self.maker(first, self.places.of, result, ending, start)
        if made is None or self.placed(made[1]) is None or not isinstance(made[0].owner, BoundTemplate):
            raise ArgumentError("there is no such step")
        producer, kernel = made[0].owner.producer, self.natives[node]
        assert isinstance(producer, Producer) and isinstance(kernel, NativeKernel)
        assert isinstance(kernel.owner, BoundTemplate)
        inputs = sum({p.root: p.nbytes for p in request.inputs}.values())
        why_not = why_not_worth(producer, inputs, request.outputs[0].nbytes, kernel.owner.producer)
        if why_not:
            raise ArgumentError(why_not)
        return prepared(made[0]), made[1]

    def leave_single(self, asked: dict[Node, Request]) -> None:
        """Take operators off the list that would be a native run of their own between NumPy's, and gain nothing by it.

        What NumPy leaves in the arena is found there; other arrays must be handed to the run.
        """
        acting = [n for n in self.order if n not in self.places.views and (n.blocks or not n.kind.startswith("prim::"))]
        natives = self.natives.keys() | asked.keys()

        def is_numpy(node: Node, beside: Node) -> bool:
            return node not in natives and not node.blocks and node.block is beside.block

        for k, node in enumerate(acting):
            if k == 0 or node not in self.doubtful or node not in asked:
                continue
            before, behind = acting[k - 1], acting[k + 1 : k + 2]
            alone = is_numpy(before, node) and all(is_numpy(n, node) for n in behind)
            in_arena = self.options.enable_out_variant and self.out_variant(before) is not None
            if alone and not in_arena:
                del asked[node], self.operands[node]

    def is_read_by(self, value: Value, node: Node) -> bool:
        """Whether only this node reads a value, itself or through views."""
        return all(
            use.node is node
            or (use.node in self.places.views and all(self.is_read_by(v, node) for v in use.node.outputs))
            for use in value.uses
        )

    def may_be_made(self, node: Node) -> bool:
        """Whether a node is a plain operator that another step may stand for."""
        op = entry_of(node)
        return op is not None and op.form == "functional" and op.full_name not in self.lowerer.rules and is_pure(node)

    def program(self, node: Node) -> Lowered | None:
        """The tile program of a group, or of an operator that would not be worth a call of its own."""
        if node.kind == FUSION_GROUP:
            return self.programs.get(node) if getattr(self.fallback.get(node), "is_fused", True) else None
        op = entry_of(node)
        if op is None or op.form != "functional" or op.kind == "prim" or "fuser" in config.disable:
            return None
        # Each is worth its kernel here: a step costs nothing like a call.
        if (
            ((op.may_alias or op.kind == "view") and not self.is_cast(node))
            or op.full_name in self.lowerer.rules
            or not is_pure(node)
            or (op.kind != "pointwise" and op.scalar is None)
        ):
            return None
        try:
            return lower([node], list(node.outputs))
        except NotFused:
            return None

    def is_cast(self, node: Node) -> bool:
        """Whether a node only converts its operand, to another type than that has: then the result is no view of it."""
        if node.kind not in CASTS:
            return False
        given, made = self.places.of(node.inputs[0]), self.places.of(node.outputs[0])
        return given is not None and made is not None and given.dtype != made.dtype

    def placed(self, values: Sequence[Value]) -> list[Place] | None:
        found = [self.places.of(v) for v in values]
        return None if any(p is None for p in found) else [p for p in found if p is not None]

    def out_variant(self, node: Node) -> Op | None:
        """The operator of a node that can write its results into given arrays."""
        op = entry_of(node)
        if op is None or op.form != "functional" or op.kind in ("view", "prim") or not op.has_out_variant:
            return None
        results = self.placed(node.outputs)
        if node.blocks or not results or max(p.nbytes for p in results) < self.options.out_bytes:
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
        ends_with_a_round = within_rounds(self.order, self.alias)

        def fits(value: Value) -> bool:
            return may_be_planned(value, self.alias) and ends_with_a_round(value)

        for node in self.order:
            if node in self.places.rounds:
                # What it writes has a place.
                continue
            if node in self.natives:
                found += [v for v in node.outputs if fits(v)]
            elif node in self.outs:
                if all(map(fits, node.outputs)):
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
                for j in kernel.overwrites[k] if k < len(kernel.overwrites) else ():
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


def name_values(graph: Graph) -> dict[Value, str]:
    """Names that are the same in each copy of a graph, for inputs, results of nodes and parameters of inner blocks."""
    found = {v: f"input {i}" for i, v in enumerate(graph.inputs)}
    for i, node in enumerate(graph.all_nodes()):
        for k, value in enumerate(node.outputs):
            found[value] = f"node {i} {k}"
        for b, block in enumerate(node.blocks):
            for k, value in enumerate(block.params):
                found[value] = f"node {i} block {b} {k}"
    return found
