"""``einsum`` of one or two tensors, written out in permute, sum, reshape and one product of matrices."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpujit.ir.graph import Graph, Node, Value
from gpujit.passes.base import declined, graph_pass
from gpujit.passes.nodes import insert_op, ints_before, replace_node
from gpujit.passes.peephole.facts import constant_of, full_name, known_shape, remove_unread, same_dtype

_EQUATION = re.compile(r"([A-Za-z]+),([A-Za-z]+)(?:->([A-Za-z]*))?\Z")


def write_out_einsum(graph: Graph) -> bool:
    """Write out the products of two tensors of known shapes; returns whether the graph changed."""
    changed = False
    for node in list(graph.all_nodes()):
        if full_name(node) != "aten::einsum":
            continue
        result = _written(node)
        if isinstance(result, str):
            declined("decompose: einsum", node, result)
            continue
        listed = node.inputs[1].node
        replace_node(node, [result])
        remove_unread([listed])
        changed = True
    return changed


@graph_pass("einsum_attention")
def write_out_attention_products(graph: Graph) -> bool:
    """Write out products in graphs that have a softmax too, so that attention in terms of them is found."""
    return any(full_name(node) == "aten::softmax.int" for node in graph.all_nodes()) and write_out_einsum(graph)


def _written(node: Node) -> Value | str:
    equation, maker = constant_of(node.inputs[0]), node.inputs[1].node
    found = _EQUATION.match(equation.replace(" ", "")) if isinstance(equation, str) else None
    if found is None or maker.kind != "prim::ListConstruct" or len(maker.inputs) != 2:
        return "the equation is not one of two tensors"
    if len(node.inputs[1].uses) > 1:
        return "the list of tensors has other readers"
    a, b = maker.inputs
    left, right = found.group(1), found.group(2)
    out = found.group(3)
    if out is None:
        # Letters that stand once, in order.
        out = "".join(sorted(c for c in {*left, *right} if (left + right).count(c) == 1))
    shapes = known_shape(a), known_shape(b)
    if shapes[0] is None or shapes[1] is None or same_dtype(a, b) is not None:
        return f"the tensors are {a.type} and {b.type}; shapes and one dtype have to be known"
    if len(shapes[0]) != len(left) or len(shapes[1]) != len(right):
        return "the equation does not fit the tensors"
    if any(len(set(s)) != len(s) for s in (left, right, out)) or not set(out) <= {*left, *right}:
        return "a letter stands twice in one place"
    sizes: dict[str, int] = {}
    for letters, shape in ((left, shapes[0]), (right, shapes[1])):
        for letter, size in zip(letters, shape, strict=True):
            if sizes.setdefault(letter, size) != size or not size:
                return "sizes differ, or are 0"
    if any(c not in out for c in {*left} ^ {*right}):
        return "a letter of one tensor only is added up"
    return _product(node, (a, left), (b, right), out, sizes)


def _product(node: Node, a: tuple[Value, str], b: tuple[Value, str], out: str, sizes: dict[str, int]) -> Value:
    """The product over letters that both tensors have and the result has not."""
    left, right = a[1], b[1]
    batch = [c for c in out if c in left and c in right]
    inner = [c for c in left if c in right and c not in out]
    rows = [c for c in out if c in left and c not in right]
    columns = [c for c in out if c in right and c not in left]

    def count(letters: Sequence[str]) -> int:
        n = 1
        for c in letters:
            n *= sizes[c]
        return n

    order = [*batch, *rows, *columns]
    if len(rows) == len(inner) == len(columns) == 1:
        first = _permuted(node, a[0], [left.index(c) for c in (*batch, *rows, *inner)])
        second = _permuted(node, b[0], [right.index(c) for c in (*batch, *inner, *columns)])
        y = insert_op(node, "aten::matmul", (first, second), node)
        return _permuted(node, y, [order.index(c) for c in out])
    n, m, k, p = count(batch), count(rows), count(inner), count(columns)
    first = _laid_out(node, a, [*batch, *rows, *inner], [n, m, k])
    second = _laid_out(node, b, [*batch, *inner, *columns], [n, k, p])
    y = insert_op(node, "aten::bmm", (first, second), node)
    y = _reshaped(node, y, [sizes[c] for c in order])
    return _permuted(node, y, [order.index(c) for c in out])


def _laid_out(node: Node, tensor: tuple[Value, str], order: Sequence[str], shape: Sequence[int]) -> Value:
    value, letters = tensor
    return _reshaped(node, _permuted(node, value, [letters.index(c) for c in order]), shape)


def _permuted(node: Node, value: Value, order: Sequence[int]) -> Value:
    if list(order) == list(range(len(order))):
        return value
    return insert_op(node, "aten::permute", (value, ints_before(node, order)), node)


def _reshaped(node: Node, value: Value, shape: Sequence[int]) -> Value:
    if known_shape(value) == tuple(shape):
        return value
    return insert_op(node, "aten::reshape", (value, ints_before(node, shape)), node)
