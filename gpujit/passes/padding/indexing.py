"""Rules for operators that read and write at places given by numbers."""

from __future__ import annotations

from gpujit.passes.padding.relations import SAME, Call, Mixes, Parts, Prefix, Relation, Same, along, is_same, rule


@rule("embedding")
def embedded(call: Call) -> Relation:
    """A row of the same table for each index."""
    call.need_same("weight")
    return call["indices"]


@rule("gather")
def gathered(call: Call) -> Relation:
    """For each place of the index one element along a dim."""
    source, index = call.dim("self"), call.dim("index")
    at = call.axis("dim", len(call.shape("index")))
    if index is None:
        # It reads less than all of what is padded.
        along(source, "reads at any place of", [at])
        return SAME
    if source is None or (source == index and source != at):
        return Prefix(index)
    raise Mixes("it reads what is padded at places that are not")


@rule("index_select")
def chosen(call: Call) -> Relation:
    """Some of one dim, by their numbers."""
    source, index = call.dim("self"), call.dim("index")
    at = call.axis("dim", len(call.shape("self")))
    if index is not None:
        call.need_same("self")
        return Prefix(at)
    along(source, "reads at any place of", [at])
    return SAME if source is None else Prefix(source)


@rule("index.Tensor", "index.Tensor_hacked_twin", "_unsafe_index.Tensor", "_unsafe_index.Tensor_hacked_twin")
def indexed(call: Call) -> Relation:
    """Tensors of numbers for some dims, broadcast together; all of the others."""
    listed = call.kept.inputs[1].node
    given = call["indices"]
    if listed.kind != "prim::ListConstruct" or not isinstance(given, Parts):
        raise Mixes("its indices are not known one by one")
    used = []
    for position, (value, relation) in enumerate(zip(listed.inputs, given.items, strict=True)):
        shape = getattr(value.type, "shape", None)
        if value.is_constant and value.constant() is None:
            continue
        code = getattr(value.type, "dtype", None)
        if shape is None or code is None or None in shape:
            raise Mixes("the shapes of its indices are not known beforehand")
        # Codes of bool and uint8: those are masks, which choose as many as are true.
        if code in (0, 11):
            raise Mixes("it chooses by a mask")
        used.append((position, len(shape), relation))
    if not used:
        return call["self"]
    rank = max((n for _, n, _ in used), default=0)
    positions = [p for p, _, _ in used]
    front = 0 if positions != list(range(positions[0], positions[0] + len(positions))) else positions[0]
    source = call.dim("self")
    dims = {r.dim + rank - n for _, n, r in used if isinstance(r, Prefix)}
    if not all(isinstance(r, (Same, Prefix)) for _, _, r in used) or len(dims) > 1:
        raise Mixes("its indices depend on the padding in several ways")
    if dims:
        if source is not None:
            _need_count(call, source, used)
        return Prefix(front + dims.pop())
    if source is None:
        return SAME
    along(source, "reads at any place of", positions)
    left = sum(p < source for p in positions)
    # Dims of the indices stand before those that are left, or amid them.
    return Prefix(source - left + (rank if front <= source - left else 0))


def _need_count(call: Call, source: int, used: list[tuple[int, int, Relation]]) -> None:
    """Raises Mixes unless what is read along the padded dim is surely among what is kept."""
    size = call.shape("self")[source]
    for position, _, relation in used:
        if position == source and isinstance(relation, Prefix) and 0 < relation.below <= size:
            return
    raise Mixes(f"it reads at any place of dim {source}, along which the padding lies")


@rule("scatter.value", "scatter.src", "scatter_add", "scatter.reduce", "scatter.value_reduce", "scatter_reduce.two")
def scattered(call: Call) -> Relation:
    """Elements written along a dim at places that a tensor says."""
    tensors = ["self", "index"] + (["src"] if any(a.name == "src" for a in call.op.schema.arguments) else [])
    dims = {call.dim(n) for n in tensors}
    if dims == {None}:
        return SAME
    dim = dims.pop()
    if dims or dim is None:
        raise Mixes("it writes what is padded into what is not, or the other way round")
    along(dim, "writes at any place of", [call.axis("dim", len(call.shape("self")))])
    if call.shape("index")[dim] != call.shape("self")[dim]:
        raise Mixes("what it writes beside what is kept depends on the padded size")
    return Prefix(dim)


@rule("index_add", "index_copy", "index_fill")
def written(call: Call) -> Relation:
    """Some of one dim replaced or added to, by their numbers."""
    call.need_same("index")
    dim = call.dim("self")
    names = [a.name for a in call.op.schema.arguments]
    if "source" in names:
        if call.dim("source") != dim:
            raise Mixes("it writes what is padded into what is not, or the other way round")
    else:
        call.need_same("value")
    along(dim, "writes at any place of", [call.axis("dim", len(call.shape("self")))])
    return SAME if dim is None else Prefix(dim)


@rule("select_scatter", "slice_scatter", "diagonal_scatter", shapes=("end",))
def part_written(call: Call) -> Relation:
    """A part of one dim replaced."""
    if call.op.name == "aten::diagonal_scatter":
        raise Mixes("it writes a diagonal")
    dim, source = call.dim("self"), call.dim("src")
    at = call.axis("dim", len(call.shape("self")))
    is_one = call.op.name == "aten::select_scatter"
    if dim == at and dim is not None and not is_one:
        whole = call.value("start") in (0, None) and call.value("step") == 1
        if whole and source == dim and call.shape("src") == call.shape("self"):
            return Prefix(dim)
    along(dim, "writes a part of", [at])
    if "end" in [a.name for a in call.op.schema.arguments] and dim is not None and not is_same(call["end"]):
        raise Mixes("where it ends depends on the padded size")
    if dim is None:
        call.need_same("src", *([] if is_one else ["end"]))
        return SAME
    # What is written has no dim for the selected one, or may be the same for all.
    if source != dim - (is_one and at < dim):
        raise Mixes("it writes what is padded into what is not, or the other way round")
    return Prefix(dim)
