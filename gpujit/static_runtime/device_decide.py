"""What becomes of each node of a graph whose tensors live on a GPU.

As in ``decide``, but that a step is one of the device's, and that what has none runs on the host: its operands are
copied there and its results back. A tensor that an operator writes into stays on the host, where the write is seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpujit.fuser.fuse import FUSION_GROUP
from gpujit.fuser.lower import Lowered
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.printer import SUBGRAPH
from gpujit.kernels.launches import DeviceKernel, DeviceStep, Launch
from gpujit.kernels.tile import TileError
from gpujit.passes.analysis.effects import entry_of, is_pure
from gpujit.passes.decompose.einsum import write_out_einsum
from gpujit.runtime.device import NO_PLAN
from gpujit.runtime.device_executor import written_inputs
from gpujit.runtime.explain import label_of
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.decide import Decisions
from gpujit.static_runtime.device_makers import device_step
from gpujit.static_runtime.device_tiles import converts, copy_step, group_step
from gpujit.static_runtime.endings import Ending
from gpujit.static_runtime.order import RETURN
from gpujit.static_runtime.places import Place, contiguous, facts_of
from gpujit.static_runtime.steps import Options
from gpujit.support.config import config
from gpujit.support.errors import DeviceError


class DeviceDecisions(Decisions):
    """What becomes of each node of a copy of a graph; ``refusals`` say why nodes have no step on the device.

    Args:
        has_convolution: whether the device has a library for convolutions.
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
        has_convolution: bool = False,
        refused: Collection[DeviceKernel] = (),
    ) -> None:
        self.refusals: dict[Node, str] = {}
        self.has_convolution, self.refused = has_convolution, refused
        # Nodes that are done in the step of another one.
        self.ended_by: dict[Node, Node] = {}
        super().__init__(source, programs, lowerer, {}, options, None)

    def rewrite(self) -> None:
        """Products by ``einsum`` become views and products that are steps."""
        write_out_einsum(self.graph)

    def classify(self) -> None:
        """Fill ``natives``, ``kinds`` and ``refusals``."""
        written = written_inputs(self.graph, self.alias)
        if written:
            text = f"it writes into its input {written[0].name or '?'!r}, which operators on the host do"
            raise DeviceError(text, code=NO_PLAN)
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
            if place is None or not isinstance(self.natives[first], DeviceStep):
                continue
            made = device_step(first, self.places.of, place, Ending("relu"), self.has_convolution)
            if made is None or self.placed(made[1]) is None or not self.is_to_be_had(made[0]):
                continue
            self.natives[node], self.operands[node] = made
            self.ended_by[first] = node
            del self.natives[first], self.operands[first]
        self.order = [n for n in self.order if n not in self.ended_by]
        self.position = {n: i for i, n in enumerate(self.order)}

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
        own = node in self.places.copies or node in self.places.rounds
        if entry_of(node) is None and node.kind != FUSION_GROUP and not own:
            return "a construct of the language"
        results = self.placed(node.outputs)
        if not results:
            return "its results are no tensors of known shapes"
        if any(p.strides != contiguous(p.shape, p.dtype) for p in results):
            return "its result does not lie together"
        if not own and any(self.alias.is_written(v) for v in node.outputs):
            return "an operator writes into its result"
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
        try:
            found = device_step(node, self.places.of, result, has_convolution=self.has_convolution)
        except TileError as fault:
            return str(fault)
        if found is None or self.placed(found[1]) is None:
            operands = ", ".join(str(v.type) for v in node.inputs if facts_of(v) is not None)
            return f"no kernel takes it for {operands or 'no operands'}"
        self.operands[node] = found[1]
        return found[0]


def _is_relu(node: Node) -> bool:
    """Whether a node, or all that is in a group, is one relu."""
    inner = node.attributes.get(SUBGRAPH)
    nodes = [n for n in inner.nodes if n.kind != "prim::Constant"] if isinstance(inner, Graph) else [node]
    return len(nodes) == 1 and nodes[0].kind == "aten::relu" and len(node.inputs) == 1
