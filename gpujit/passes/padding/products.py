"""Rules for products of matrices, and attention."""

from __future__ import annotations

from collections.abc import Sequence

from gpujit.passes.padding.relations import SAME, Call, Mixes, Parts, Prefix, Relation, along, is_same, rule

CONTRACTS = "it sums products along the dim along which the padding lies"


def agreed(dims: Sequence[int | None]) -> Relation:
    """The relation of a result along which the padding would lie along these of its dims. Raises Mixes for several."""
    found = {d for d in dims if d is not None}
    if len(found) > 1:
        raise Mixes("its arguments are padded along different dims")
    return Prefix(found.pop()) if found else SAME


def broadcast(dim: int | None, given: int, rank: int) -> int | None:
    """The dim of a result of ``rank`` dims that a dim of an operand with ``given`` of them lies along."""
    return None if dim is None else dim + rank - given


def of_product(call: Call, left: str, right: str, rank: int) -> list[int | None]:
    """The dims of a product's result along which its padding lies, by operands. Raises Mixes for a summed dim."""
    a, b = call.dim(left), call.dim(right)
    m, n = len(call.shape(left)), len(call.shape(right))
    if (a is not None and a == m - 1) or (b is not None and b == max(n - 2, 0)):
        raise Mixes(CONTRACTS)
    # Of the two matrix dims a vector has but the summed one, which the result has not.
    if a is not None:
        a = rank - (2 if n > 1 else 1) if a == m - 2 else a + rank + (n == 1) - m
    if b is not None:
        b = rank - 1 if b == n - 1 else b + rank + (m == 1) - n
    return [a, b]


@rule("mm", "bmm", "matmul", "mv", "linalg_matmul", rows=True)
def product(call: Call) -> Relation:
    """Rows of the left, columns of the right, and matrices of a batch each by themselves."""
    first, second = [a.name for a in call.op.schema.arguments[:2]]
    return agreed(of_product(call, first, second, len(call.result()[0])))


@rule("addmm", "baddbmm", "addmv", rows=True)
def added_product(call: Call) -> Relation:
    """A product added to what is broadcast to it."""
    summand, first, second = [a.name for a in call.op.schema.arguments[:3]]
    rank = len(call.result()[0])
    dims = of_product(call, first, second, rank)
    return agreed([*dims, broadcast(call.dim(summand), len(call.shape(summand)), rank)])


@rule("linear", rows=True)
def linear(call: Call) -> Relation:
    """Each row along the last dim by itself."""
    call.need_same("weight", "bias")
    dim = call.dim("input")
    if dim == len(call.shape("input")) - 1:
        raise Mixes(CONTRACTS)
    return SAME if dim is None else Prefix(dim)


@rule("outer", "ger")
def outer(call: Call) -> Relation:
    """Each element of one vector with each of the other."""
    first, second = call.dim("self"), call.dim("vec2")
    return agreed([None if first is None else 0, None if second is None else 1])


@rule("bilinear")
def bilinear(call: Call) -> Relation:
    """Each pair of rows along the last dims by itself."""
    call.need_same("weight", "bias")
    dims = {call.dim("input1"), call.dim("input2")}
    if dims == {None}:
        return SAME
    dim = dims.pop()
    if dims or dim is None:
        raise Mixes("its arguments are padded along different dims")
    along(dim, "sums products along", [len(call.shape("input1")) - 1])
    return Prefix(dim)


@rule("cdist", "_cdist_forward")
def distances(call: Call) -> Relation:
    """The distance of each row of one to each of the other; how it is computed depends on how many rows there are."""
    rank = len(call.result()[0])
    for name in ("x1", "x2"):
        given = len(call.shape(name))
        along(call.dim(name), "computes in another way for more of", [given - 2, given - 1])
    return agreed([broadcast(call.dim(n), len(call.shape(n)), rank) for n in ("x1", "x2")])


@rule("cosine_similarity", "pairwise_distance")
def similarity(call: Call) -> Relation:
    """A number for each two rows along a dim; the operands are broadcast."""
    given = [len(call.shape(n)) for n in ("x1", "x2")]
    rank = max(given)
    is_cosine = call.op.name == "aten::cosine_similarity"
    at = call.axis("dim", rank) if is_cosine else rank - 1
    keeps = not is_cosine and call.value("keepdim")
    found = agreed([broadcast(call.dim(n), k, rank) for n, k in zip(("x1", "x2"), given, strict=True)])
    if not isinstance(found, Prefix):
        return found
    along(found.dim, "computes along", [at])
    return Prefix(found.dim - (at < found.dim and not keeps))


@rule("einsum")
def summed_products(call: Call) -> Relation:
    """Dims have letters: one that the result has too is not summed over."""
    equation = call.value("equation").replace(" ", "")
    operands = call["tensors"]
    left, arrow, right = equation.partition("->")
    if "." in equation or not isinstance(operands, Parts):
        raise Mixes("what its dims stand for is not written out")
    letters = left.split(",")
    if not arrow:
        right = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    found = set()
    for names, relation in zip(letters, operands.items, strict=True):
        if isinstance(relation, Prefix):
            found.add(names[relation.dim])
        elif not is_same(relation):
            raise Mixes("an argument depends on the padding")
    if not found:
        return SAME
    letter = found.pop()
    if found:
        raise Mixes("its arguments are padded along different dims")
    if letter not in right:
        raise Mixes(CONTRACTS)
    for names, relation in zip(letters, operands.items, strict=True):
        # A diagonal, or a dim of size 1 that is repeated, is another matter.
        if names.count(letter) > 1 or (letter in names and not isinstance(relation, Prefix)):
            raise Mixes(f"it joins dims of the letter {letter!r}, along which the padding lies")
    return Prefix(right.index(letter))


@rule("scaled_dot_product_attention")
def attention(call: Call) -> Relation:
    """Each of a batch, and each query, by itself.

    Not keys, even where no query sees those behind its own place: a weight of zero times NaN or infinity is NaN.
    """
    if call.value("dropout_p") != 0:
        raise Mixes("it drops numbers at random")
    ranks = {n: len(call.shape(n)) for n in ("query", "key", "value")}
    rank = len(call.result()[0])
    dims = {n: call.dim(n) for n in ranks}
    mask = call.dim("attn_mask")
    if any(dims[n] == ranks[n] - 1 for n in ranks):
        raise Mixes(CONTRACTS)
    if any(dims[n] == ranks[n] - 2 for n in ("key", "value")):
        raise Mixes("every query sees all keys, those of the padding among them")
    if call.value("enable_gqa") and rank - 3 in [broadcast(dims[n], ranks[n], rank) for n in ranks]:
        raise Mixes("it shares keys between heads, along which the padding lies")
    found = [broadcast(dims[n], ranks[n], rank) for n in ranks]
    if mask is not None:
        given = len(call.shape("attn_mask"))
        if mask == given - 1:
            raise Mixes("its mask is padded along the keys")
        found.append(broadcast(mask, given, rank))
    return agreed(found)
