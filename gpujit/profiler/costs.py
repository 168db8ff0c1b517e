"""What a step must do at least, by its operators' definitions: floating-point operations, and bytes read and written.

A multiply-and-add counts two operations; every other arithmetic operation and function of floats counts one; moving,
casting, comparing and choosing count none. Products, convolutions and the like are counted by the formulas below,
whatever algorithm computes them; everything that has a tile program by the instructions in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from gpujit.fuser.errors import NotFused
from gpujit.fuser.lower import lower
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.printer import SUBGRAPH
from gpujit.ir.scalar import SCALAR_OPS
from gpujit.kernels.tile import Compute, Reduce, TileProgram
from gpujit.passes.analysis.effects import entry_of
from gpujit.passes.nodes import known
from gpujit.static_runtime.places import facts_of

# Operators that read a part of their first operand, as large as the result.
_PICKS = ("embedding", "index_select", "index", "gather", "take", "take_along_dim", "slice", "select", "narrow")
_FREE = ("prim::Constant", "prim::ListConstruct", "prim::TupleConstruct", "prim::Param")

Shape = tuple[int, ...]


def flops_of(nodes: Sequence[Node]) -> int | None:
    """Floating-point operations of some nodes together, those of groups' subgraphs included; None when some node's are
    not known.
    """
    total = 0
    for node in expanded(nodes):
        found = _flops(node)
        if found is None:
            return None
        total += found
    return total


def expanded(nodes: Iterable[Node]) -> list[Node]:
    """The nodes with groups replaced by what is in them; constants and lists left out."""
    found: list[Node] = []
    for node in nodes:
        inner = node.attributes.get(SUBGRAPH)
        found += inner.all_nodes() if isinstance(inner, Graph) else [node]
    return [n for n in found if n.kind not in _FREE]


def bytes_of(inputs: Iterable[Value], outputs: Iterable[Value], readers: Sequence[Node]) -> tuple[int, int] | None:
    """Bytes that a step of ``readers`` reads and writes when each of its operands and results is met once.

    None when the shape of one is not known.
    """
    picked = {n.inputs[0] for n in expanded(readers) if n.kind.rpartition("::")[2] in _PICKS and n.inputs}
    written, read = 0, 0
    for value in outputs:
        facts = facts_of(value)
        if facts is None:
            return None
        written += prod(facts[0]) * facts[1].itemsize
    for value in flat(inputs):
        facts = facts_of(value)
        if facts is None:
            if "Tensor" in str(value.type) and not value.is_constant:
                return None
            continue
        size = min(prod(facts[0]), _memory(value)) * facts[1].itemsize
        read += min(size, written) if value in picked else size
    return read, written


def flat(values: Iterable[Value]) -> list[Value]:
    """Each value once, in the place of lists what is in them."""
    found: dict[Value, None] = {}
    for value in values:
        inner = value.node.inputs if value.node.kind == "prim::ListConstruct" else (value,)
        found.update(dict.fromkeys(inner))
    return list(found)


def _memory(value: Value) -> int:
    """Elements of the tensor that a value is a view of: an expanded one has more than there are in memory."""
    least = None
    while True:
        facts = facts_of(value)
        if facts is not None:
            least = prod(facts[0]) if least is None else min(least, prod(facts[0]))
        op = entry_of(value.node) if value.node.inputs else None
        if op is None or op.kind != "view":
            return 0 if least is None else least
        value = value.node.inputs[0]


def program_flops(program: TileProgram, sizes: Sequence[int]) -> int:
    """Floating-point operations of a tile program on a space of these sizes."""
    total = 0
    for item, varies in zip(program.body, program.varies, strict=True):
        if isinstance(item, Compute) and _is_arithmetic(item):
            total += prod(sizes[d] for d in varies)
        elif isinstance(item, Reduce) and item.dtype.kind in "fcV":
            total += prod(sizes[d] for d in program.varies[item.operand] | set(program.row_dims))
    return total


def _is_arithmetic(item: Compute) -> bool:
    op = SCALAR_OPS.get(item.op)
    return op is not None and op.result == "same" and item.dtype.kind in "fcV"


def _flops(node: Node) -> int | None:
    op = entry_of(node)
    if op is not None and op.kind == "view":
        return 0
    formula = _FORMULAS.get(node.kind.rpartition("::")[2])
    if formula is not None:
        return formula(node)
    if op is None or any(facts_of(v) is None for v in node.outputs):
        return None
    try:
        low = lower([node], list(node.outputs))
    except NotFused:
        return None
    return program_flops(low.program, low.sizes)


# ------------------------------------------------------------------------------------------------------- formulas


def _shape(value: Value) -> Shape | None:
    facts = facts_of(value)
    return None if facts is None else facts[0]


def _convolution(node: Node) -> int | None:
    out, weight = _shape(node.output), _shape(node.inputs[1])
    return None if out is None or weight is None else 2 * prod(out) * prod(weight[1:])


def _transposed(node: Node) -> int | None:
    x, weight = _shape(node.inputs[0]), _shape(node.inputs[1])
    return None if x is None or weight is None else 2 * prod(x) * prod(weight[1:])


def _general(node: Node) -> int | None:
    is_transposed = known(node.inputs[6])
    return _transposed(node) if is_transposed is True else _convolution(node)


def _product_of(operand: int) -> Callable[[Node], int | None]:
    """A product whose inner dim is the last one of an operand."""

    def count(node: Node) -> int | None:
        out, x = _shape(node.output), _shape(node.inputs[operand])
        return None if out is None or not x else 2 * prod(out) * x[-1]

    return count


def _attention(node: Node) -> int | None:
    query, key, value = (_shape(v) for v in node.inputs[:3])
    if not query or key is None or value is None or len(key) < 2 or not value:
        return None
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _recurrent(node: Node) -> int | None:
    """Layers over a sequence: the products of each element with all weights."""
    x = _shape(node.inputs[0])
    names = [a.name for a in node.schema.arguments] if node.schema is not None else []
    if x is None or "params" not in names:
        return None
    params = node.inputs[names.index("params")]
    if params.is_constant:
        shapes: list[Shape | None] = [getattr(w, "shape", None) for w in params.constant()]
    else:
        shapes = [_shape(v) for v in params.node.inputs]
    return 2 * prod(x[:-1]) * sum(prod(s) for s in shapes if s is not None and len(s) == 2)


def _cell(node: Node) -> int | None:
    x, *weights = (_shape(node.inputs[k]) for k in (0, 2, 3))
    return None if x is None or None in weights else 2 * prod(x[:-1]) * sum(prod(w) for w in weights if w is not None)


def _pool(node: Node) -> int | None:
    out, kernel = _shape(node.outputs[0]), known(node.inputs[1])
    if out is None or not isinstance(kernel, list) or not kernel or any(type(k) is not int for k in kernel):
        return None
    rank = int(node.kind.rstrip("d")[-1]) if node.kind[-2:-1].isdigit() else len(kernel)
    return prod(out) * (prod(kernel) if len(kernel) == rank else kernel[0] ** rank)


def _adaptive(node: Node) -> int | None:
    x = _shape(node.inputs[0])
    return None if x is None else prod(x)


_FORMULAS: dict[str, Callable[[Node], int | None]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "_convolution_mode"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed),
    **dict.fromkeys(("_convolution", "convolution"), _general),
    **dict.fromkeys(("linear", "mm", "bmm", "matmul", "mv", "dot"), _product_of(0)),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _product_of(1)),
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), _cell),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"), _pool),
    **dict.fromkeys(
        ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d", "adaptive_avg_pool3d"), _adaptive
    ),
}
