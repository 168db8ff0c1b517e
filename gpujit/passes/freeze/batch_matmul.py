"""Several products of one tensor with constant weights made one product with the weights side by side.

Query, key and value of attention, or the branches of a gated unit, read the same activations. One large product runs
better than several small ones, and the activations are read once. The parts of its result are views.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import code_of
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ops import table
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.base import declined, graph_pass
from gpujit.passes.nodes import constant_before, insert_op, ints_before, like, replace_node
from gpujit.passes.peephole.facts import full_name, is_int, number_of, rank_of


@graph_pass("batch_matmul")
def group_products(graph: Graph) -> bool:
    """Make one product of several that read one tensor and constant weights."""
    groups = [group for block in _blocks(graph) for group in _groups(block)]
    if not groups:
        return False
    alias = AliasAnalysis(graph)
    changed = False
    for group in groups:
        reason = next((r for r in (_refusal(p, alias) for p in group) if r is not None), None)
        if reason is not None:
            declined("batch_matmul", group[0].node, reason)
            continue
        _join(group)
        changed = True
    return changed


@dataclass(frozen=True, slots=True)
class _Product:
    """``node`` multiplies ``input`` by a constant weight, whose results lie along ``axis``, and adds ``bias``."""

    node: Node
    input: Value
    weight: Value
    axis: int
    bias: Value | None


def _product(node: Node) -> _Product | None:
    name = full_name(node)
    if name == "aten::linear":
        x, weight, bias = node.inputs
        found = _Product(node, x, weight, 0, None if bias.type == T.NONE else bias)
    elif name in ("aten::mm", "aten::matmul"):
        found = _Product(node, node.inputs[0], node.inputs[1], 1, None)
    elif name == "aten::addmm" and all(is_int(number_of(v), 1) for v in node.inputs[3:5]):
        found = _Product(node, node.inputs[1], node.inputs[2], 1, node.inputs[0])
    else:
        return None
    array = _array(found.weight)
    if array is None or array.ndim != 2 or not array.size:
        return None
    if found.bias is not None:
        bias_array = _array(found.bias)
        if bias_array is None or bias_array.shape != (array.shape[found.axis],):
            return None
    return found


def _array(value: Value) -> np.ndarray | None:
    array = value.constant() if value.is_constant else None
    return array if isinstance(array, np.ndarray) else None


def _blocks(graph: Graph) -> Iterator[Block]:
    yield graph.block
    for node in graph.all_nodes():
        yield from node.blocks


def _groups(block: Block) -> list[list[_Product]]:
    """Products of one block that can become one: of one tensor, in one form, with weights of one dtype and length."""
    found: dict[tuple[object, ...], list[_Product]] = {}
    for node in block.nodes:
        product = _product(node)
        if product is None:
            continue
        weight = _array(product.weight)
        assert weight is not None
        bias = None if product.bias is None else _array(product.bias)
        key = (
            product.input, node.kind, weight.shape[1 - product.axis], weight.dtype, None if bias is None else bias.dtype
        )  # fmt: skip
        found.setdefault(key, []).append(product)
    return [group for group in found.values() if len(group) > 1]


def _refusal(product: _Product, alias: AliasAnalysis) -> str | None:
    """Why a product stays on its own."""
    result = product.node.output
    if rank_of(product.input) == 1 or (product.node.kind == "aten::matmul" and rank_of(product.input) is None):
        return f"the input is {product.input.type}, 2 dimensions have to be known at least"
    for constant in (product.weight, product.bias):
        if constant is not None and len(constant.uses) > 1:
            return f"{constant!r} has other readers, so that it would be kept twice"
        if constant is not None and alias.is_written(constant):
            return f"{constant!r} may be written"
    if alias.is_written(product.input):
        return "the input may be written"
    if alias.is_written(result) or alias.escapes(result):
        return "the result may be written, or is handed out and has to be memory of its own"
    return _depends_on_layout(result)


def _depends_on_layout(value: Value) -> str | None:
    """Why a reader of a tensor, or of a view of it, might see that it is a part of a larger one."""
    for use in value.uses:
        node = use.node
        op = table.by_full_name(full_name(node) or "")
        if op is None or full_name(node) in _BY_MEMORY:
            return f"{node.kind} may depend on the memory layout"
        if op.kind == "prim" and op.type_rule is None:
            return f"{node.kind} may tell the memory layout"
        # A view of a part has the part's gaps, ``aten::view`` as well, which becomes reshape.
        if op.kind == "view":
            for part in node.outputs:
                fault = _depends_on_layout(part)
                if fault is not None:
                    return fault
    return None


# Views that are defined by strides.
_BY_MEMORY = frozenset(("aten::as_strided", "aten::view.dtype", "aten::view_as", "aten::_reshape_alias"))


def _join(group: list[_Product]) -> None:
    """Put one product and its parts in the place of the first of ``group``.

    Before: ``%q = aten::linear(%x, %wq, %bq)``, ``%k = aten::linear(%x, %wk, %bk)``.
    After: ``%y = aten::linear(%x, %w, %b)``, ``%l = aten::split_with_sizes(%y, [n, m], -1)``,
    ``%q, %k = prim::ListUnpack(%l)``.
    """
    first = group[0]
    node, axis = first.node, first.axis
    weights = [w for w in (_array(p.weight) for p in group) if w is not None]
    biases = [b for b in (_array(p.bias) for p in group if p.bias is not None) if b is not None]
    weight = _constant(node, np.concatenate(weights, axis))
    if node.kind == "aten::addmm":
        inputs = [_constant(node, np.concatenate(biases)), first.input, weight, *node.inputs[3:]]
    elif node.kind == "aten::linear":
        bias = _constant(node, np.concatenate(biases)) if biases else constant_before(node, None, T.NONE)
        inputs = [first.input, weight, bias]
    else:
        inputs = [first.input, weight]
    schema = node.schema
    assert schema is not None
    whole = insert_op(node, schema.full_name, inputs, node)
    sizes = ints_before(node, [w.shape[axis] for w in weights])
    parts = insert_op(node, "aten::split_with_sizes", (whole, sizes, constant_before(node, -1, T.INT)), node)
    unpack = like(Node("prim::ListUnpack", [parts]), node).insert_before(node)
    constants = [v.node for p in group for v in (p.weight, p.bias) if v is not None]
    for product in group:
        part = unpack.add_output(product.node.output.type, product.node.output.name)
        _allow_copies(product.node.output)
        replace_node(product.node, [part])
    for constant in constants:
        constant.destroy()


def _constant(node: Node, array: np.ndarray) -> Value:
    return constant_before(node, array, T.TensorType(code_of(array.dtype), tuple(array.shape)))


def _allow_copies(value: Value) -> None:
    """Make ``view``, which refuses to copy, the ``reshape`` that copies where a part of a larger tensor demands it."""
    for use in value.uses:
        op = table.by_full_name(full_name(use.node) or "")
        if op is not None and op.full_name == "aten::view":
            reshape = table.by_full_name("aten::reshape")
            assert reshape is not None
            use.node.kind, use.node.schema = reshape.name, reshape.schema
        elif op is not None and op.kind == "view":
            for part in use.node.outputs:
                _allow_copies(part)
