"""Rules for operators that move elements, or make new ones: views, copies, concatenations, factories, sorting."""

from __future__ import annotations

from math import prod

import numpy as np

from gpujit.passes.padding.relations import SAME, Call, Mixes, Parts, Prefix, Relation, Shape, Strided, along, rule


def differing(call: Call, index: int = 0) -> int | None:
    """The only dim in which a result's shapes differ; None when they are equal. Raises Mixes for any other two."""
    kept, padded = call.result(index)
    if len(kept) != len(padded):
        raise Mixes("its result has another number of dims for the padded size")
    found = [d for d, (a, b) in enumerate(zip(kept, padded, strict=True)) if a != b]
    if len(found) > 1:
        raise Mixes("its result has other sizes along several dims for the padded size")
    return found[0] if found else None


@rule(
    "view", "reshape", "_unsafe_view", "_reshape_alias", "reshape_as", "view_as", "flatten", "unflatten", "ravel",
    "view_copy", shapes=("size", "shape", "stride", "sizes", "other"), strided=True,
)  # fmt: skip
def resized(call: Call) -> Relation:
    """Elements in their order: as many pieces as before, of each of which the first part is kept."""
    name = call.op.schema.arguments[0].name
    relation, to = call[name], differing(call)
    if isinstance(relation, Strided):
        dim, outer = relation.dim, relation.outer
    elif isinstance(relation, Prefix):
        dim, outer = relation.dim, 1
    else:
        call.need_same(name)
        return SAME
    given, (kept, padded) = call.shape(name), call.result()
    if to is None:
        raise Mixes(f"it takes dim {dim} apart, along which the padding lies")
    pieces, before = prod(given[:dim]) * outer, prod(kept[:to])
    # All pieces lie along dims before, or are joined with the padded one.
    if before == 0 or pieces % before or kept[to] % (pieces // before) or padded[to] % (pieces // before):
        raise Mixes(f"it takes dim {dim} apart, along which the padding lies")
    return Prefix(to) if pieces == before else Strided(to, pieces // before)


@rule("view.dtype", "view_copy.dtype", "view_as_complex", "view_as_complex_copy")
def reinterpreted(call: Call) -> Relation:
    """The last dim counts bytes of other elements, or parts of numbers."""
    dim = call.dim("self")
    along(dim, "takes apart", [len(call.shape("self")) - 1])
    return SAME if dim is None else Prefix(dim)


@rule(
    "permute", "transpose", "t", "movedim", "moveaxis", "swapaxes", "swapdims", "numpy_T", "mT", "mH", "adjoint",
    "matrix_H", "unsqueeze", "permute_copy", "transpose_copy", "t_copy", "unsqueeze_copy",
    rows=True,
)  # fmt: skip
def permuted(call: Call) -> Relation:
    """Dims in another order: that of an array whose sizes tell them apart."""
    first, *others = call.op.schema.arguments
    dim = call.dim(first.name)
    if dim is None:
        return SAME
    sizes = range(2, 2 + len(call.shape(first.name)))
    moved = call.op.kernel(np)(np.zeros(tuple(sizes), np.bool_), *[call.value(a.name) for a in others])
    return Prefix(moved.shape.index(sizes[dim]))


@rule(
    "detach", "alias", "lift", "lift_fresh", "prim::data", "positive", "real", "imag", "conj", "_conj",
    "resolve_conj", "resolve_neg", "detach_copy", "alias_copy", "lift_fresh_copy", "to.prim_other",
    "view_as_real", "view_as_real_copy", rows=True,
)  # fmt: skip
def unmoved(call: Call) -> Relation:
    """Each element stays where it is."""
    return call[call.op.schema.arguments[0].name]


@rule("tril", "triu")
def triangle(call: Call) -> Relation:
    """The place of an element decides what becomes of it."""
    return call["self"]


@rule("expand", "expand_as", "broadcast_to", "expand_copy", shapes=("size", "other"))
def expanded(call: Call) -> Relation:
    """Dims of size 1 are repeated, and new ones put before all others."""
    dim, to, given = call.dim("self"), differing(call), call.shape("self")
    return _repeated(dim, to, given, len(call.result()[0]), 1)


@rule("repeat", "tile", shapes=("repeats", "dims"))
def repeated(call: Call) -> Relation:
    """The whole along each dim several times, so that the padding may only follow what is repeated no further."""
    dim, to, given = call.dim("self"), differing(call), call.shape("self")
    kept, _ = call.result()
    if dim is not None and kept[dim + len(kept) - len(given)] != given[dim]:
        raise Mixes(f"it repeats dim {dim}, along which the padding lies")
    return _repeated(dim, to, given, len(kept), None)


def _repeated(dim: int | None, to: int | None, given: Shape, rank: int, needed: int | None) -> Relation:
    new = rank - len(given)
    if dim is not None:
        return Prefix(dim + new)
    if to is None:
        return SAME
    if to >= new and needed is not None and given[to - new] != needed:
        raise Mixes("it gives a dim another size")
    return Prefix(to)


@rule("repeat_interleave.self_int")
def interleaved(call: Call) -> Relation:
    """Each element several times, one beside the other."""
    dim = call.dim("self")
    if dim is None:
        return SAME
    if call.value("dim") is None and dim != 0 and prod(call.shape("self")[:dim]) != 1:
        raise Mixes(f"it joins dim {dim}, along which the padding lies, with dims before it")
    return Prefix(0 if call.value("dim") is None else dim)


@rule("squeeze", "squeeze_copy")
def squeezed(call: Call) -> Relation:
    """Dims of size 1 (among the given ones) are left out."""
    dim, given = call.dim("self"), call.shape("self")
    if dim is None:
        return SAME
    every = len(call.op.schema.arguments) == 1
    named = range(len(given)) if every else call.axes("dim", len(given))
    if given[dim] == 1:
        along(dim, "may leave out", named)
    return Prefix(dim - sum(given[d] == 1 for d in set(named) if d < dim))


@rule("slice.Tensor", "slice_copy", "narrow", "narrow_copy", shapes=("end", "length"))
def sliced(call: Call) -> Relation:
    """Some of one dim; all of it, or a part that lies within what is kept, where the padding lies."""
    dim, given = call.dim("self"), call.shape("self")
    at = call.axis("dim", len(given))
    start, step = call.value("start") or 0, 1
    if call.op.name.startswith("aten::slice"):
        step = call.value("step")
    if type(start) is not int:
        raise Mixes("where it starts is not known beforehand")
    if dim != at:
        # Equal sizes and starts (from the end, too, as that is the same in both) mean equal parts.
        if differing(call) != dim:
            raise Mixes("it takes another part for the padded size")
        return SAME if dim is None else Prefix(dim)
    kept, padded = call.result()
    if start == 0 and step == 1 and kept[at] == given[at]:
        return Prefix(at)
    if start >= 0 and kept == padded and start + (kept[at] - 1) * step < given[at]:
        return SAME
    raise Mixes(f"it takes a part of dim {at}, along which the padding lies")


@rule("select.int", "select_copy.int")
def selected(call: Call) -> Relation:
    """One of a dim; one of those that are kept, where the padding lies."""
    dim, given = call.dim("self"), call.shape("self")
    at, index = call.axis("dim", len(given)), call.value("index")
    if dim == at:
        if type(index) is not int or not 0 <= index < given[at]:
            raise Mixes(f"it counts from the end of dim {at}, along which the padding lies")
        return SAME
    return SAME if dim is None else Prefix(dim - (at < dim))


@rule("unbind", "unbind_copy")
def unbound(call: Call) -> Relation:
    """Each of a dim."""
    dim = call.dim("self")
    at = call.axis("dim", len(call.shape("self")))
    along(dim, "takes apart", [at])
    return SAME if dim is None else Prefix(dim - (at < dim))


@rule(
    "chunk", "split.Tensor", "split.sizes", "split", "split_with_sizes", "tensor_split.sections",
    "tensor_split.indices", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "split_copy",
    "split_with_sizes_copy", "flip", "roll", "sort", "argsort", "topk", "cummax", "cummin", "logcumsumexp", "glu",
    "unfold", "diff", "fft_fft", "fft_ifft", "fft_rfft", "fft_irfft", "fft_hfft", "fft_ihfft", "fft_fft2", "fft_ifft2",
    "fft_rfft2", "fft_irfft2", "fft_fftn", "fft_ifftn", "fft_rfftn", "fft_irfftn", "fft_fftshift", "fft_ifftshift",
    rows=True,
)  # fmt: skip
def within_dims(call: Call) -> Relation:
    """Each row along the named dims by itself; the number of dims stays."""
    dim, rank = call.dim("self"), len(call.shape("self"))
    names = [a.name for a in call.op.schema.arguments]
    name = next(n for n in ("dim", "dims", "dimension") if n in names)
    at = call.axes(name, rank) if call.value(name) not in ([], None) else list(range(rank))
    if call.op.name == "aten::diff":
        call.need_same("prepend", "append")
    along(dim, "works along", at)
    return SAME if dim is None else Prefix(dim)


@rule("kthvalue", "median.dim", "nanmedian.dim", "mode")
def one_of_each(call: Call) -> Relation:
    """One element of each row along a dim."""
    dim = call.dim("self")
    at = call.axis("dim", len(call.shape("self")))
    along(dim, "works along", [at])
    return SAME if dim is None else Prefix(dim - (at < dim and not call.value("keepdim")))


@rule("cat", "concat", "concatenate", "stack", "column_stack")
def joined(call: Call) -> Relation:
    """Several beside each other along a dim, an old or a new one."""
    parts = call["tensors"]
    if not isinstance(parts, Parts) or not all(isinstance(p, Prefix) for p in parts.items):
        raise Mixes("it puts what is padded beside what is not")
    dims = {p.dim for p in parts.items if isinstance(p, Prefix)}
    if len(dims) != 1:
        raise Mixes("it puts tensors beside each other whose padding lies along different dims")
    dim, rank = dims.pop(), len(call.result()[0])
    if call.op.name == "aten::column_stack":
        if rank < 2 or dim != 0:
            raise Mixes("it joins columns")
        return Prefix(0)
    at = call.axis("dim", rank)
    if call.op.name == "aten::stack":
        return Prefix(dim + (at <= dim))
    along(dim, "joins", [at])
    return Prefix(dim)


@rule(
    "zeros", "ones", "full", "empty", "new_zeros", "new_ones", "new_full", "new_empty", "empty_like",
    shapes=("size", "self"),
)  # fmt: skip
def made(call: Call) -> Relation:
    """Every element the same, whatever the size; of another tensor only shape or kind are used."""
    to = differing(call)
    return SAME if to is None else Prefix(to)


@rule("arange", shapes=("end",))
def counted(call: Call) -> Relation:
    """Whole numbers from a start that is the same, so that each depends on its place alone."""
    names = [a.name for a in call.op.schema.arguments]
    first, step = [call.value(n) if n in names else k for n, k in (("start", 0), ("step", 1))]
    kept, padded = call.result()
    if type(first) is not int or type(step) is not int or step < 1 or kept == padded:
        raise Mixes("it counts in another way for the padded size")
    # Codes of int32 and int64: smaller types may not hold all numbers.
    is_wide = getattr(call.kept.output.type, "dtype", None) in (3, 4)
    return Prefix(0, below=kept[0] if is_wide and (first, step) == (0, 1) else 0)


@rule(
    "pad", "constant_pad_nd", "_pad_enum", "_pad_circular", "reflection_pad1d", "reflection_pad2d",
    "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d",
)  # fmt: skip
def padded(call: Call) -> Relation:
    """Elements put before and behind those along the last dims."""
    dim = call.dim("self")
    names = [a.name for a in call.op.schema.arguments]
    amounts = call.value("pad" if "pad" in names else "padding")
    rank = len(call.shape("self"))
    if dim is None:
        return SAME
    at = 2 * (rank - 1 - dim)
    if at < len(amounts) and any(amounts[at : at + 2]):
        raise Mixes(f"it puts elements beside dim {dim}, along which the padding lies")
    return Prefix(dim)


@rule("to.other", "type_as", shapes=("other",), rows=True)
def cast_as(call: Call) -> Relation:
    """Of another tensor only the dtype is used."""
    return call["self"]


@rule("one_hot")
def one_hot(call: Call) -> Relation:
    """A row for each number; how long is only known when it is given."""
    if call.value("num_classes") < 0:
        raise Mixes("how many classes there are depends on all numbers")
    return call["self"]
