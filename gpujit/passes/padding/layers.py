"""Rules for layers: convolutions, pooling, norms, resampling, recurrent layers and cells, whole encoder layers."""

from __future__ import annotations

import re

from gpujit.passes.padding.relations import SAME, Call, Mixed, Mixes, Parts, Prefix, Relation, along, is_same, rule

_CONV = (
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "_convolution",
    "convolution", "_convolution_mode", "convolution_overrideable", "mkldnn_convolution", "thnn_conv2d",
)  # fmt: skip


@rule(*_CONV)
def convolved(call: Call) -> Relation:
    """Each of a batch by itself."""
    first, weight, *_ = [a.name for a in call.op.schema.arguments]
    call.need_same(weight, *(["bias"] if any(a.name == "bias" for a in call.op.schema.arguments) else []))
    dim = call.dim(first)
    if dim is None:
        return SAME
    is_batch = len(call.shape(first)) == len(call.shape(weight))
    if dim != 0 or not is_batch:
        raise Mixes(f"it reads neighbours along dim {dim}, along which the padding lies, or sums over it")
    return Prefix(0)


def _leading(call: Call, name: str, dims: int) -> Relation:
    """What is done along the last dims alone."""
    dim, rank = call.dim(name), len(call.shape(name))
    along(dim, "reads neighbours along", range(rank - dims, rank))
    return SAME if dim is None else Prefix(dim)


@rule(
    *(f"{kind}{n}d" for n in (1, 2, 3) for kind in ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool")),
    *(f"max_pool{n}d_with_indices" for n in (1, 2, 3)), "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
)  # fmt: skip
def pooled(call: Call) -> Relation:
    """Each plane by itself."""
    dims = re.search(r"(\d)d", call.op.name)
    assert dims is not None
    return _leading(call, "self", int(dims[1]))


@rule("pixel_shuffle", "pixel_unshuffle")
def shuffled(call: Call) -> Relation:
    """Each image by itself."""
    return _leading(call, "self", 3)


@rule(
    "channel_shuffle", "native_channel_shuffle", "im2col", "col2im", "grid_sampler", "grid_sampler_2d",
    "grid_sampler_3d",
)  # fmt: skip
def of_batch(call: Call) -> Relation:
    """Each of a batch by itself, all arguments being batches."""
    tensors = [a.name for a in call.op.schema.arguments if str(a.type) == "Tensor"]
    dims = {call.dim(n) for n in tensors}
    if dims == {None}:
        return SAME
    full = 4 if call.op.name in ("aten::im2col",) else 3
    if dims != {0} or len(call.shape(tensors[0])) < full:
        raise Mixes("only the dim of the batch is known to stay by itself")
    return Prefix(0)


@rule("affine_grid_generator", shapes=("size",))
def grid_of(call: Call) -> Relation:
    """A grid for each matrix."""
    return call["theta"]


@rule("stft")
def spectra(call: Call) -> Relation:
    """Each signal of a batch by itself."""
    if any(a.name == "window" for a in call.op.schema.arguments):
        call.need_same("window")
    return _leading(call, "self", 1)


@rule(
    *(f"upsample_{kind}" for kind in (
        "nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")),
    *(f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)),
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "__interpolate", "__upsample", "__upsample_bilinear",
    "__upsample_nearest",
)  # fmt: skip
def resampled(call: Call) -> Relation:
    """Each channel of each image by itself."""
    name = call.op.schema.arguments[0].name
    dim = call.dim(name)
    along(dim, "reads neighbours along", range(2, len(call.shape(name))))
    return SAME if dim is None else Prefix(dim)


# -------------------------------------------------------------------------------------------------------------- norms

_PARAMETERS = ("weight", "bias", "running_mean", "running_var")


@rule(
    "batch_norm", "native_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit",
    "instance_norm",
)  # fmt: skip
def normed_by_statistics(call: Call) -> Relation | tuple[Relation, ...]:
    """Element by element, with statistics that were taken before; those of a batch depend on all of it."""
    names = [a.name for a in call.op.schema.arguments]
    if any(n in names for n in _PARAMETERS):
        call.need_same(*(n for n in _PARAMETERS if n in names))
    dim = call.dim("input")
    if dim is None:
        return SAME
    if call.op.name == "aten::instance_norm":
        first = 2 if call.value("use_input_stats") else dim + 1
        along(dim, "takes statistics along", range(first, len(call.shape("input"))))
    elif "training" in names and call.value("training"):
        raise Mixes("it takes statistics over the batch, as in training mode")
    elif "running_mean" not in names or not call.has("running_mean"):
        raise Mixes("it takes statistics over the batch, as it has none of its own")
    along(dim, "has parameters for", [1])
    # What native forms return besides is empty, or the statistics.
    return (Prefix(dim), *[SAME] * (len(call.kept.outputs) - 1))


@rule("group_norm")
def group_normed(call: Call) -> Relation:
    """Each of a batch by itself."""
    call.need_same("weight", "bias")
    dim = call.dim("input")
    along(dim, "takes statistics along", range(1, len(call.shape("input"))))
    return SAME if dim is None else Prefix(dim)


@rule("native_layer_norm", rows=True)
def layer_normed(call: Call) -> Relation:
    """Each row along the last dims by itself; mean and deviation have those as dims of size 1."""
    call.need_same("weight", "bias")
    return _leading(call, "input", len(call.value("normalized_shape")))


# --------------------------------------------------------------------------------------------------------- recurrent


@rule("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")
def recurrent(call: Call) -> Relation | tuple[Relation, ...]:
    """Each sequence by itself, and each step on those before; the last state is that after the padding."""
    call.need_same("params")
    if call.value("train") and call.value("dropout") != 0:
        raise Mixes("it drops numbers at random")
    dim, rank = call.dim("input"), len(call.shape("input"))
    states = call["hx"]
    states = states if isinstance(states, Parts) else Parts((states,))
    others = len(call.kept.outputs) - 1
    if dim is None:
        if not is_same(states):
            raise Mixes("its states are padded, and its input is not")
        return SAME
    batch = 0 if call.value("batch_first") else 1
    if rank == 3 and dim == batch:
        if not all(isinstance(s, Prefix) and s.dim == 1 for s in states.items):
            raise Mixes("its states are not padded along the batch")
        return (Prefix(dim), *[Prefix(1)] * others)
    steps = 0 if rank == 2 else 1 - batch
    if dim == steps and not call.value("bidirectional") and is_same(states):
        last = Mixed("its last state is that after the padding")
        return (Prefix(dim), *[last] * others)
    raise Mixes(f"it runs along dim {dim}, along which the padding lies, in both directions or over features")


@rule("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def cell(call: Call) -> Relation:
    """Each row by itself."""
    names = [a.name for a in call.op.schema.arguments]
    call.need_same(*(n for n in names if n not in ("input", "hx")))
    states = call["hx"]
    states = states if isinstance(states, Parts) else Parts((states,))
    dim = call.dim("input")
    if dim is None and is_same(states):
        return SAME
    if dim != 0 or len(call.shape("input")) != 2 or not all(isinstance(s, Prefix) and s.dim == 0 for s in states.items):
        raise Mixes("its input and states are not all padded along the batch")
    return Prefix(0)


# ------------------------------------------------------------------------------------------------------ whole layers


@rule("_transformer_encoder_layer_fwd", "_native_multi_head_attention")
def encoder_layer(call: Call) -> Relation | tuple[Relation, ...]:
    """Each sequence of a batch by itself; its steps see each other."""
    arguments = [a.name for a in call.op.schema.arguments]
    batches = [n for n in ("src", "query", "key", "value") if n in arguments]
    call.need_same(*(n for n in arguments if n not in batches and n != "mask"))
    dims = {call.dim(n) for n in batches}
    mask = call.dim("mask")
    if dims == {None} and mask is None:
        return SAME
    if dims != {0} or len(call.shape(batches[0])) != 3:
        raise Mixes("steps of a sequence see each other")
    # Kinds of masks: 0 is for places [T, T], 1 for keys [B, T], 2 has all dims.
    if call.has("mask") and (mask, call.value("mask_type")) not in ((None, 0), (0, 1), (0, 2)):
        raise Mixes("its mask is padded along another dim than the batch")
    return Prefix(0)
