"""What becomes of each node of a graph whose tensors live on a GPU.

As in ``decide``, but that a step is one of the device's, and that what has none runs on the host: its operands are
copied there and its results back. Attributes are written on the device; any other tensor that an operator writes into
stays on the host, where the write is seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from gpujit.fuser.fuse import FUSION_GROUP
from gpujit.fuser.lower import Lowered
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.printer import SUBGRAPH
from gpujit.kernels.launches import DeviceKernel, DeviceStep, Launch
from gpujit.kernels.tile import TileError
from gpujit.passes.analysis.attributes import GET
from gpujit.passes.analysis.effects import entry_of, is_pure
from gpujit.passes.decompose.einsum import write_out_einsum
from gpujit.runtime.device import NO_PLAN
from gpujit.runtime.device_executor import written_inputs
from gpujit.runtime.explain import label_of
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.carried import Carried
from gpujit.static_runtime.decide import Decisions
from gpujit.static_runtime.device_libraries import Asked, Room, is_by_library
from gpujit.static_runtime.device_makers import device_step
from gpujit.static_runtime.device_tiles import converts, copy_step, group_step
from gpujit.static_runtime.device_writes import put_step, why_not, write_out_puts
from gpujit.static_runtime.endings import Ending
from gpujit.static_runtime.order import RETURN
from gpujit.static_runtime.places import Place, facts_of
from gpujit.static_runtime.steps import Options
from gpujit.support.config import config
from gpujit.support.errors import DeviceError


class DeviceDecisions(Decisions):
    """What becomes of each node of a copy of a graph; ``refusals`` say why nodes have no step on the device, and
    ``declined`` why those that have one are not done by a library.

    Args:
        room: what the device's library for convolutions and attention answers; None where there is none to ask.
        refused: kernels that cannot be compiled.
    Raises DeviceError when the graph writes into its inputs.
    """

    order_of = None

    def __init__(
        self,
        source: Graph,
        programs: Mapping[Node, Lowered],
        lowerer: Lowerer,
        options: Options,
        room: Room | None = None,
        refused: Collection[DeviceKernel] = (),
    ) -> None:
        self.refusals: dict[Node, str] = {}
        self.declined: dict[Node, str] = {}
        self.room, self.refused = room, refused
        # Nodes that are done in the step of another one.
        self.ended_by: dict[Node, Node] = {}
        super().__init__(source, programs, lowerer, {}, options, None)

    def rewrite(self) -> None:
        """Products by ``einsum`` become views and products that are steps, writes into attributes copies."""
        write_out_einsum(self.graph)
        self.writes = write_out_puts(self.graph)

    def carried(self) -> Carried:
        """With writes into attributes, which have memory of their own when the plan runs."""
        return replace(super().carried(), puts=self.writes.puts, apart=set(self.writes.hosted))

    def require_writes(self) -> None:
        """Raises DeviceError when the graph writes into its inputs, or in another way than steps can."""
        written = written_inputs(self.graph, self.alias, self.writes.known)
        reason = why_not(self.graph, self.order, self.places, self.alias, self.writes)
        for node in self.order:
            own = "" if reason or not written else self.writes.refusals.get(node)
            if own:
                reason = f"{node.kind} writes into an attribute: {own}"
        if written and not reason:
            reason = f"it writes into its input {written[0].name or '?'!r}"
        if reason:
            raise DeviceError(f"{reason}, which operators on the host do", code=NO_PLAN)

    def classify(self) -> None:
        """Fill ``natives``, ``kinds`` and ``refusals``."""
        self.require_writes()
        for node in self.order:
            if node in self.places.views:
                self.kinds[node] = "view"
            elif node.blocks or node.kind == RETURN:
                self.kinds[node] = "control"
            else:
                step = self.step(node)
                if step is not None:
                    self.natives[node] = step
        for node in self.places.rounds & self.natives.keys():
            if node.inputs[0].node not in self.natives:
                del self.natives[node], self.operands[node]
                self.refusals[node] = "what it writes over is on the host"
        if self.options.endings and "fusion" not in config.disable:
            self.put_relus()
        self.write_straight()
        for node in self.order:
            self.kinds.setdefault(node, "native" if node in self.natives else "interpreter")

    def put_relus(self) -> None:
        """Have products and convolutions end with the relu that alone reads them: its node becomes the step of both."""
        for node in [n for n in self.order if n in self.natives and _is_relu(n)]:
            read = self.places.of(node.inputs[0])
            if read is None or read.root.node not in self.natives:
                continue
            first = read.root.node
            place = self.joined(first, node, read)
            step = self.natives[first]
            if place is None or not isinstance(step, DeviceStep) or is_by_library(step):
                continue
            made = device_step(first, self.places.of, place, Ending("relu"))
            if made is None or self.placed(made[1]) is None or not self.is_to_be_had(made[0]):
                continue
            self.natives[node], self.operands[node] = made
            self.ended_by[first] = node
            if first in self.declined:
                self.declined[node] = self.declined.pop(first)
            del self.natives[first], self.operands[first]
        self.order = [n for n in self.order if n not in self.ended_by]
        self.position = {n: i for i, n in enumerate(self.order)}

    def write_straight(self) -> None:
        """Have steps whose result is only copied into an attribute write it there."""
        for put in [n for n in self.order if n in self.writes.puts]:
            if put not in self.natives:
                text = f"{self.refusals[put]}, so that an attribute is written on the host"
                raise DeviceError(text, code=NO_PLAN)
            made = self.straight(put)
            if made is not None:
                value = put.inputs[1]
                self.natives[value.node] = made
                self.ended_by[put] = value.node
                del self.natives[put], self.operands[put]
        self.order = [n for n in self.order if n not in self.ended_by]
        self.position = {n: i for i, n in enumerate(self.order)}

    def straight(self, put: Node) -> DeviceStep | None:
        """The step that writes its result where a copy would; with it, the result's place is that one."""
        value = put.inputs[1]
        node, target, own = value.node, self.places.of(put.output), self.places.of(value)
        if node not in self.natives or node in self.ended_by.values() or len(value.uses) != 1 or target is None:
            return None
        if own is None or own.root is not value or (own.shape, own.dtype) != (target.shape, target.dtype):
            return None
        if node.block is not put.block or node in self.places.copies or not target.lies_together:
            return None
        if any(self.touches(n, target) for n in self.order[self.position[node] + 1 : self.position[put]]):
            return None
        kept = self.operands[node]
        self.places.put(value, target)
        step = self.found_step(node)
        if isinstance(step, DeviceStep) and self.is_to_be_had(step) and self.may_write(step, node, target):
            return step
        self.places.put(value, own)
        self.operands[node] = kept
        return None

    def touches(self, node: Node, target: Place) -> bool:
        """Whether a node may read or write the memory that a place is in."""
        if node in self.places.views:
            return False
        if node not in self.natives:
            return node.kind != GET
        places = [*map(self.places.of, self.operands[node]), *map(self.places.of, node.outputs)]
        return any(p is None or p.root is target.root for p in places)

    def may_write(self, step: DeviceStep, node: Node, target: Place) -> bool:
        """Whether a step reads nothing of what its first result is written over, but where it may."""
        found = [p for p in map(self.places.of, self.operands[node]) if p is not None]
        return all(
            p.root is not target.root or (k in step.overwrites[0] and replace(p, dtype=target.dtype) == target)
            for k, p in enumerate(found)
        )

    def is_to_be_had(self, step: DeviceStep) -> bool:
        """Whether all its kernels can be compiled, as far as is known."""
        return not any(isinstance(c, Launch) and c.kernel in self.refused for c in step.calls)

    def step(self, node: Node) -> DeviceStep | None:
        """The step of a node, with ``operands`` then; None, with its reason in ``refusals``."""
        found = self.found_step(node)
        if isinstance(found, DeviceStep):
            if self.is_to_be_had(found):
                return found
            found = "its kernel cannot be compiled"
        self.operands.pop(node, None)
        self.refusals[node] = found
        return None

    def found_step(self, node: Node) -> DeviceStep | str:
        """The step of a node, or why it has none."""
        own = node in self.places.copies or node in self.places.rounds or node in self.writes.puts
        if entry_of(node) is None and node.kind != FUSION_GROUP and not own:
            return "a construct of the language"
        results = self.placed(node.outputs)
        if not results:
            return "its results are no tensors of known shapes"
        if not own and any(not p.lies_together for p in results):
            return "its result does not lie together"
        if not own and any(self.alias.is_written(v) for v in node.outputs):
            return "an operator writes into its result"
        if node in self.writes.puts:
            return self.put(node, results[0])
        if own:
            source = node.inputs[1 if node in self.places.rounds else 0]
            return self.copied(node, source, results[0])
        if node.kind == FUSION_GROUP:
            return self.grouped(node, results)
        return self.made(node, results[0])

    def copied(self, node: Node, source: Value, result: Place) -> DeviceStep | str:
        place = self.places.of(source)
        step = None if place is None else copy_step(place, result)
        if step is None:
            return f"no kernel copies elements of {result.dtype}"
        self.operands[node] = [source]
        return step

    def put(self, node: Node, result: Place) -> DeviceStep | str:
        """The copy into an attribute."""
        place = self.places.of(node.inputs[1])
        if place is None:
            return "what it writes is no tensor of a known shape"
        self.operands[node] = node.inputs[1:2]
        return put_step(place, result)

    def planned(self) -> list[Value]:
        """Results that lie in an attribute's memory are not in the arena."""
        return [v for v in super().planned() if (p := self.places.of(v)) is not None and p.root is v]

    def grouped(self, node: Node, results: list[Place]) -> DeviceStep | str:
        low = self.programs.get(node)
        if low is None or config.check_kernels:
            return "its kernels are checked on the host" if low is not None else "it has no program"
        values = node.inputs[: len(low.inputs)]
        operands = self.placed(values)
        step = None if operands is None else group_step(low, operands, results, label_of(node))
        if step is None:
            return "its program has no code for a GPU"
        self.operands[node] = values
        return step

    def made(self, node: Node, result: Place) -> DeviceStep | str:
        op = entry_of(node)
        assert op is not None
        if op.full_name in self.lowerer.rules:
            return "it may take quantised tensors"
        if op.form != "functional" or not is_pure(node):
            return "it does more than to compute its result"
        is_shared = op.may_alias or op.kind in ("view", "prim")
        if is_shared and not converts(node, self.places.of, result):
            return "its result may share an operand's memory"
        if "fuser" in config.disable:
            return "the switch 'disable' turns kernels off"
        asked = None if self.room is None else Asked(self.room)
        try:
            found = device_step(node, self.places.of, result, asked=asked)
        except TileError as fault:
            return str(fault)
        if found is None or self.placed(found[1]) is None:
            operands = ", ".join(str(v.type) for v in node.inputs if facts_of(v) is not None)
            return f"no kernel takes it for {operands or 'no operands'}"
        self.operands[node] = found[1]
        if asked is not None and asked.refusal:
            self.declined[node] = asked.refusal
        return found[0]


def _is_relu(node: Node) -> bool:
    """Whether a node, or all that is in a group, is one relu."""
    inner = node.attributes.get(SUBGRAPH)
    nodes = [n for n in inner.nodes if n.kind != "prim::Constant"] if isinstance(inner, Graph) else [node]
    return len(nodes) == 1 and nodes[0].kind == "aten::relu" and len(node.inputs) == 1
