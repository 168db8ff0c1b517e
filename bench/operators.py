"""The operator table on NumPy against PyTorch's operators: the most frequent ones of real models, one thread each.

Usage: python bench/operators.py [--only softmax,conv] [--planned] [--check] [--markdown] [--rounds 15]  (needs torch)

Each case calls a kernel of ``gpujit.ops.table`` and the operator of ``torch.ops`` with the same values. Cases are the
40 operators that the most models use, without views, numbers and constructors of lists, each with a small input (a tiny
model) and a large one (a residual network or a transformer, batch 1); after them others that fewer models use.
Rounds are interleaved and medians compared, so that noise of the machine meets both. ``--check`` fails when an operator
takes more than LIMIT times what PyTorch takes, or a convolution or matrix product more than GEMM_LIMIT times.

Without ``--planned`` it is the table on NumPy that is measured: what the interpreter calls. With it, each operator runs
as in an optimised module: compiled, weights packed, on planned memory; those that write into operands do not.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "GPUJIT_THREADS"):
    os.environ[_name] = "1"

import argparse
import math
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

from gpujit.fuser.fuse import fuse
from gpujit.ir.dtypes import code_of
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.types import TensorType
from gpujit.ops import table
from gpujit.passes.nodes import insert_node
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.module import PlannedGraph

LIMIT = 3.0
GEMM_LIMIT = 1.5
# Seconds that one measurement of one side takes at least, so that the clock's own cost does not count.
SHORTEST = 0.002
GEMM = ("aten::linear", "aten::_convolution", "aten::matmul", "aten::bmm", "aten::addmm")

_random = np.random.default_rng(0)


def f32(*shape: int) -> Any:
    """Normally distributed float32."""
    return _random.standard_normal(shape).astype(np.float32)


def ints(high: int, *shape: int) -> Any:
    """int64 below ``high``."""
    return _random.integers(0, high, shape)


def positive(*shape: int) -> Any:
    """float32 in [0.5, 1.5)."""
    return _random.random(shape, dtype=np.float32) + np.float32(0.5)


Case = tuple[str, str, tuple[Any, ...]]


def _conv(
    case: str, x: tuple[int, ...], w: tuple[int, ...], stride: int = 1, padding: int = 0, groups: int = 1
) -> Case:
    rank = len(w) - 2
    numbers = ([stride] * rank, [padding] * rank, [1] * rank, False, [0] * rank, groups, False, False, True, True)
    return "aten::_convolution", case, (f32(*x), f32(*w) / math.sqrt(np.prod(w[1:])), f32(w[0]), *numbers)


def frequent() -> Iterator[Case]:
    """Operator, name and arguments of each case of the 40 most frequent operators, by number of models."""
    small, large, image = (8, 32), (197, 768), (1, 64, 56, 56)
    yield "aten::linear", "8x32 to 64", (f32(8, 32), f32(64, 32), f32(64))
    yield "aten::linear", "197x768 to 3072", (f32(1, 197, 768), f32(3072, 768), f32(3072))
    yield "aten::linear", "1x2048 to 1000", (f32(1, 2048), f32(1000, 2048), f32(1000))
    yield "aten::add.Tensor", "8x32", (f32(*small), f32(*small), 1)
    yield "aten::add.Tensor", "64x56x56", (f32(*image), f32(*image), 1)
    yield _conv("3x3, 8 to 16 on 16x16", (1, 8, 16, 16), (16, 8, 3, 3), padding=1)
    yield _conv("3x3, 64 to 64 on 56x56", (1, 64, 56, 56), (64, 64, 3, 3), padding=1)
    yield _conv("3x3, 256 to 256 on 14x14", (1, 256, 14, 14), (256, 256, 3, 3), padding=1)
    yield _conv("3x3 stride 2, 128 to 256 on 28x28", (1, 128, 28, 28), (256, 128, 3, 3), 2, 1)
    yield _conv("7x7 stride 2, 3 to 64 on 224x224", (1, 3, 224, 224), (64, 3, 7, 7), 2, 3)
    yield _conv("1x1, 64 to 256 on 56x56", (1, 64, 56, 56), (256, 64, 1, 1))
    yield _conv("1x1, 512 to 128 on 7x7", (1, 512, 7, 7), (128, 512, 1, 1))
    yield _conv("16x16 stride 16, 3 to 768 on 224x224", (1, 3, 224, 224), (768, 3, 16, 16), 16)
    yield _conv("depthwise 3x3, 96 on 56x56", (1, 96, 56, 56), (96, 1, 3, 3), 1, 1, 96)
    yield _conv("depthwise 3x3 stride 2, 96 on 112x112", (1, 96, 112, 112), (96, 1, 3, 3), 2, 1, 96)
    yield _conv("depthwise 7x7, 96 on 56x56", (1, 96, 56, 56), (96, 1, 7, 7), 1, 3, 96)
    yield _conv("1-d 3, 64 to 128 on 100", (1, 64, 100), (128, 64, 3), 1, 1)
    yield "aten::mul.Tensor", "8x32", (f32(*small), f32(*small))
    yield "aten::mul.Tensor", "64x56x56 by channel", (f32(*image), f32(1, 64, 1, 1))
    yield "aten::layer_norm", "8x32", (f32(*small), [32], f32(32), f32(32), 1e-5, True)
    yield "aten::layer_norm", "197x768", (f32(*large), [768], f32(768), f32(768), 1e-5, True)
    yield "aten::gelu", "8x32", (f32(*small), "none")
    yield "aten::gelu", "197x3072", (f32(197, 3072), "none")
    yield "aten::adaptive_avg_pool2d", "16x8x8 to 1", (f32(1, 16, 8, 8), [1, 1])
    yield "aten::adaptive_avg_pool2d", "2048x7x7 to 1", (f32(1, 2048, 7, 7), [1, 1])
    channels = [(positive(c), f32(c), f32(c), positive(c)) for c in (8, 64)]
    yield "aten::batch_norm", "8x16x16", (f32(1, 8, 16, 16), *channels[0], False, 0.1, 1e-5, True)
    yield "aten::batch_norm", "64x56x56", (f32(*image), *channels[1], False, 0.1, 1e-5, True)
    yield "aten::cat", "2 of 8x32", ([f32(*small), f32(*small)], 1)
    yield "aten::cat", "3 of 64x56x56", ([f32(*image), f32(*image), f32(*image)], 1)
    yield "aten::mean.dim", "8x32 over the last", (f32(*small), [-1], False, None)
    yield "aten::mean.dim", "512x14x14 over 2 dims", (f32(1, 512, 14, 14), [2, 3], True, None)
    for case, shape in (("2x8x16", (1, 2, 8, 16)), ("12x197x64", (1, 12, 197, 64))):
        numbers = (None, 0.0, False, None, False)
        yield "aten::scaled_dot_product_attention", case, (f32(*shape), f32(*shape), f32(*shape), *numbers)
    yield "aten::relu_", "8x32", (f32(*small),)
    yield "aten::relu_", "64x112x112", (f32(1, 64, 112, 112),)
    yield "aten::index.Tensor", "32 by 8 rows", (f32(64, 32), [ints(64, 8)])
    yield "aten::index.Tensor", "bias table 169x12 by 2401", (f32(169, 12), [ints(169, 2401)])
    yield "aten::floor_divide", "0-dim", (np.asarray(768), np.asarray(12))
    yield "aten::floor_divide", "197x197 int64", (ints(1000, 197, 197), np.asarray(14))
    yield "aten::arange", "16", (16, None, None, None, None)
    yield "aten::arange", "4096", (4096, None, None, None, None)
    yield "aten::to.dtype", "8x32 int64 to float32", (ints(9, *small), 6, False, False, None)
    yield "aten::to.dtype", "512x512 bool to float32", (ints(2, 512, 512) > 0, 6, False, False, None)
    yield "aten::embedding", "99x32 by 13", (f32(99, 32), ints(99, 2, 13), -1, False, False)
    yield "aten::embedding", "30522x768 by 128", (f32(30522, 768), ints(30522, 1, 128), 0, False, False)
    yield "aten::softmax.int", "2x8x8", (f32(2, 8, 8), -1, None)
    yield "aten::softmax.int", "12x197x197", (f32(1, 12, 197, 197), -1, None)
    yield "aten::softmax.int", "1x128x1000 over dim 1", (f32(1, 128, 1000), 1, None)
    yield "aten::matmul", "2x8x16 by 2x16x8", (f32(2, 8, 16), f32(2, 16, 8))
    yield "aten::matmul", "12x197x64 by its transpose", (f32(1, 12, 197, 64), f32(1, 12, 197, 64).swapaxes(2, 3))
    yield "aten::matmul", "197x768 by 768x768", (f32(1, 197, 768), f32(768, 768))
    yield "aten::add_.Tensor", "8x32", (f32(*small), f32(*small), 1)
    yield "aten::add_.Tensor", "64x56x56", (f32(*image), f32(*image), 1)
    yield "aten::div.Tensor", "8x32 by 0-dim", (f32(*small), np.asarray(np.float32(8)))
    yield "aten::div.Tensor", "12x197x197", (f32(12, 197, 197), positive(12, 197, 197))
    yield "aten::__and__.Tensor", "1x1x8x8", (ints(2, 1, 1, 8, 8) > 0, ints(2, 1, 1, 8, 8) > 0)
    yield "aten::__and__.Tensor", "512x512", (ints(2, 512, 512) > 0, ints(2, 512, 512) > 0)
    yield "aten::sub.Tensor", "8x32", (f32(*small), f32(*small), 1)
    yield "aten::sub.Tensor", "197x768 by row", (f32(*large), f32(197, 1), 1)
    yield "aten::new_ones", "4", (f32(1), [4], 11, 0, None, False)
    yield "aten::new_ones", "512x512", (f32(1), [512, 512], 6, 0, None, False)
    window = ([3, 3], [2, 2], [1, 1], [1, 1], False)
    yield "aten::max_pool2d", "3x3 stride 2 on 8x16x16", (f32(1, 8, 16, 16), *window)
    yield "aten::max_pool2d", "3x3 stride 2 on 64x112x112", (f32(1, 64, 112, 112), *window)
    yield "aten::sigmoid", "8x32", (f32(*small),)
    yield "aten::sigmoid", "64x56x56", (f32(*image),)
    yield "aten::relu", "8x32", (f32(*small),)
    yield "aten::relu", "64x112x112", (f32(1, 64, 112, 112),)
    yield "aten::pow.Tensor_Scalar", "8x32 to 2", (f32(*small), 2)
    yield "aten::pow.Tensor_Scalar", "197x3072 to 3", (f32(197, 3072), 3.0)
    yield "aten::pad", "8x16x16 by 1", (f32(1, 8, 16, 16), [1, 1, 1, 1], "constant", None)
    yield "aten::pad", "64x56x56 by 1", (f32(*image), [0, 1, 0, 1], "constant", 0.0)
    yield "aten::neg", "8x32", (f32(*small),)
    yield "aten::neg", "12x197x64", (f32(12, 197, 64),)
    yield "aten::avg_pool2d", "2x2 on 8x16x16", (f32(1, 8, 16, 16), [2, 2], [2, 2], [0, 0], False, True, None)
    yield "aten::avg_pool2d", "2x2 on 256x56x56", (f32(1, 256, 56, 56), [2, 2], [2, 2], [0, 0], False, True, None)
    yield "aten::ge.Scalar", "4x8", (ints(9, 4, 8), 3)
    yield "aten::ge.Scalar", "512x512", (f32(512, 512), 0)
    yield "aten::tanh", "8x32", (f32(*small),)
    yield "aten::tanh", "197x3072", (f32(197, 3072),)
    yield "aten::le.Tensor", "1x8 by 8x1", (ints(8, 1, 8), ints(8, 8, 1))
    yield "aten::le.Tensor", "512 by 512x1", (ints(512, 512), ints(512, 512, 1))
    yield "aten::zeros", "4x8", ([4, 8], 6, 0, None, False)
    yield "aten::zeros", "512x512", ([512, 512], 6, 0, None, False)
    for name in ("aten::sin", "aten::cos"):
        yield name, "8x32", (f32(*small),)
        yield name, "1024x128", (f32(1024, 128) * np.float32(100),)
    yield "aten::rsub.Scalar", "8x32", (f32(*small), 1.0, 1)
    yield "aten::rsub.Scalar", "512x512", (f32(512, 512), 1.0, 1)
    yield "aten::silu", "8x32", (f32(*small),)
    yield "aten::silu", "64x56x56", (f32(*image),)
    # Large enough to stay what they are, however often.
    yield "aten::silu_", "8x32", (positive(*small) * np.float32(100),)
    yield "aten::silu_", "64x56x56", (positive(*image) * np.float32(100),)


def others() -> Iterator[Case]:
    """Cases of operators that fewer models use, or that cost much where they are used."""
    image = (1, 64, 56, 56)
    yield "aten::stack", "5 of 8x32", ([f32(8, 32) for _ in range(5)], 1)
    yield "aten::where.self", "12x197x197", (ints(2, 197, 197) > 0, f32(12, 197, 197), np.asarray(np.float32(-1e9)))
    yield "aten::masked_fill.Scalar", "64x49x49", (f32(64, 49, 49), ints(2, 64, 49, 49) > 0, -100.0)
    yield "aten::rsqrt", "197x1", (positive(197, 1),)
    yield "aten::exp", "197x768", (f32(197, 768),)
    yield "aten::group_norm", "32 groups on 64x56x56", (f32(*image), 32, positive(64), f32(64), 1e-5, True)
    yield "aten::sum.dim_IntList", "197x768 over dim 0", (f32(197, 768), [0], False, None)
    yield "aten::sum.dim_IntList", "197x768 over dim 1", (f32(197, 768), [1], False, None)
    yield "aten::cumsum", "1x128 int64", (ints(2, 1, 128), 1, None)
    yield "aten::cumsum", "128x1000", (f32(128, 1000), 1, None)
    yield "aten::cumsum", "128x1000 over dim 0", (f32(128, 1000), 0, None)
    yield "aten::logsumexp", "128x1000", (f32(128, 1000), [1], False)
    yield "aten::log_softmax.int", "128x1000", (f32(128, 1000), 1, None)
    yield "aten::hardsigmoid", "64x56x56", (f32(*image),)
    yield "aten::hardswish", "64x56x56", (f32(*image),)
    yield "aten::hardtanh_", "64x56x56", (f32(*image), 0.0, 6.0)
    yield "aten::leaky_relu", "64x56x56", (f32(*image), 0.1)
    yield "aten::clamp", "197x768", (f32(197, 768), -1.0, 1.0)
    yield "aten::gather", "128x1000", (f32(128, 1000), 1, ints(1000, 128, 100), False)
    yield "aten::index_select", "1000x256", (f32(1000, 256), 0, ints(1000, 500))
    yield "aten::repeat", "4x64x64", (f32(4, 64, 64), [2, 2, 1])
    yield "aten::roll", "56x56x96", (f32(1, 56, 56, 96), [-3, -3], [1, 2])
    yield "aten::upsample_nearest2d", "64x28x28 to 56x56", (f32(1, 64, 28, 28), [56, 56], None, None)
    yield "aten::upsample_bilinear2d", "21x28x28 to 224x224", (f32(1, 21, 28, 28), [224, 224], False, None, None)
    yield "aten::upsample_bilinear2d", "64x56x56 to 112x112", (f32(*image), [112, 112], True, None, None)
    yield "aten::upsample_bicubic2d", "64x14x14 to 16x16", (f32(1, 64, 14, 14), [16, 16], False, None, None)
    yield "aten::bmm", "12x197x64 by 12x64x197", (f32(12, 197, 64), f32(12, 64, 197))
    yield "aten::addmm", "197x768 by 768x768", (f32(768), f32(197, 768), f32(768, 768), 1, 1)
    yield "aten::sort", "128x1000", (f32(128, 1000), -1, False)
    yield "aten::topk", "128x1000, 5", (f32(128, 1000), 5, -1, True, True)
    yield "aten::argmax", "128x1000", (f32(128, 1000), 1, False)
    yield "aten::max.dim", "128x1000", (f32(128, 1000), 1, False)
    yield "aten::scatter.src", "128x1000", (f32(128, 1000), 1, ints(1000, 128, 100), f32(128, 100))
    yield "aten::index_put_", "1000x256", (f32(1000, 256), [ints(1000, 500)], f32(500, 256), True)
    yield "aten::tril", "512x512", (f32(512, 512), 0)
    yield "aten::linalg_vector_norm", "56x56x96", (f32(1, 56, 56, 96), 2, [1, 2], True, None)
    yield (
        "aten::conv_transpose2d.input", "2x2 stride 2, 64 to 32 on 56x56",
        (f32(*image), f32(64, 32, 2, 2), f32(32), [2, 2], [0, 0], [0, 0], 1, [1, 1]),
    )  # fmt: skip
    yield (
        "aten::lstm.input", "35x1x128, 1 layer",
        (f32(35, 1, 128), [f32(1, 1, 128)] * 2, [f32(512, 128), f32(512, 128), f32(512), f32(512)],
         True, 1, 0.0, False, False, False),
    )  # fmt: skip
    yield (
        "aten::gru.input", "35x1x128, 1 layer",
        (f32(35, 1, 128), f32(1, 1, 128), [f32(384, 128), f32(384, 128), f32(384), f32(384)],
         True, 1, 0.0, False, False, False),
    )  # fmt: skip


def to_torch(value: Any) -> Any:
    """The same value with tensors of the same strides instead of arrays."""
    import torch

    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy(order="K"))
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return [to_torch(v) for v in value]
    return value


def peer(name: str, args: tuple[Any, ...]) -> Callable[[], Any]:
    """The call of PyTorch's operator with these arguments."""
    import torch

    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    call = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    dtypes = {6: torch.float32, 11: torch.bool}
    for argument, value in zip(call._schema.arguments, args, strict=False):
        if argument.name == "dtype" and value is not None:
            value = dtypes[value]
        elif argument.name == "layout" and value is not None:
            value = torch.strided
        value = to_torch(value)
        if argument.kwarg_only:
            keywords[argument.name] = value
        else:
            positional.append(value)
    return lambda: call(*positional, **keywords)


def seconds(call: Callable[[], object], calls: int) -> float:
    """Processor time of one call (other work on the machine does not count), averaged over some."""
    start = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - start) / calls


def compare(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median times of both, measured in turns."""
    counts = []
    for call in (ours, theirs):
        call()
        counts.append(max(1, min(2000, int(SHORTEST / max(seconds(call, 3), 1e-7)))))
    pairs = [(seconds(ours, counts[0]), seconds(theirs, counts[1])) for _ in range(rounds)]
    return median(p[0] for p in pairs), median(p[1] for p in pairs)


def measure(case: Case, rounds: int, is_planned: bool) -> tuple[float, float]:
    """Seconds of one call of gpujit's kernel, or plan, and of PyTorch's operator."""
    import torch

    name, _, args = case
    op = table.by_full_name(name)
    if op is None:
        raise KeyError(name)
    kernel = op.kernel(np)
    plan = planned(name, args) if is_planned else None
    if plan is not None:
        with torch.no_grad():
            return compare(plan, peer(name, args), rounds)
    with torch.no_grad(), np.errstate(all="ignore"):
        return compare(lambda: kernel(*args), peer(name, args), rounds)


CONSTANTS = ("weight", "bias", "running_mean", "running_var", "mat2", "normalized_shape")


def planned(name: str, args: tuple[Any, ...]) -> Callable[[], Any] | None:
    """The call of a plan of this one operator; None for operators that write into their operands."""
    op = table.by_full_name(name)
    assert op is not None
    if any(a.is_write for a in op.schema.arguments):
        return None
    graph, values, inputs = Graph("one"), [], []

    def tensor(x: Any, argument: str) -> Value:
        kind = TensorType(code_of(x.dtype), x.shape)
        if argument in CONSTANTS and name.rpartition(".")[0] != "aten::matmul":
            return graph.constant(x, kind)
        values.append(x)
        return graph.add_input(kind)

    for argument, x in zip(op.schema.arguments, args, strict=False):
        if isinstance(x, np.ndarray):
            inputs.append(tensor(x, argument.name))
        elif isinstance(x, list) and x and isinstance(x[0], np.ndarray):
            items = Node("prim::ListConstruct", [tensor(v, argument.name) for v in x])
            graph.block.append(items)
            inputs.append(items.add_output(argument.type))
        else:
            inputs.append(graph.constant(x, argument.type))
    for value in insert_node(graph.block.return_node, name, inputs, graph.block.return_node).outputs:
        graph.add_output(value)
    fused = fuse(graph)
    module = PlannedGraph(graph, fused.programs, Lowerer(np))
    return lambda: module.run(values)


def limit(name: str) -> float:
    """How many times PyTorch's time an operator may take."""
    return GEMM_LIMIT if name in GEMM else LIMIT


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="parts of names or cases, separated by commas")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--planned", action="store_true", help="measure operators as optimised modules run them")
    parser.add_argument("--markdown", action="store_true", help="print tables for docs/performance.md")
    parser.add_argument("--check", action="store_true", help="exit 1 when an operator is slower than its limit")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wanted = arguments.only.split(",")
    slow = []
    for title, cases in (("the 40 most frequent", frequent()), ("others", others())):
        rows = []
        for case in cases:
            if any(w in f"{case[0]} {case[1]}" for w in wanted):
                ours, theirs = measure(case, arguments.rounds, arguments.planned)
                rows.append((ours / theirs, case[0].removeprefix("aten::"), case[1], ours * 1e6, theirs * 1e6))
                if ours > theirs * limit(case[0]):
                    slow.append(f"{case[0]} ({case[1]})")
        rows.sort(key=lambda r: r[0], reverse=True)
        if arguments.markdown:
            print(f"\n{title}:\n\n| operator | case | gpujit us | PyTorch us | ratio |")
            print("| --- | --- | ---: | ---: | ---: |")
            for ratio, op, text, a, b in rows:
                print(f"| {op} | {text} | {a:.1f} | {b:.1f} | {ratio:.2f} |")
        else:
            print(f"{title:30} {'case':36} {'gpujit us':>10} {'torch us':>10} {'ratio':>6}")
            for ratio, op, text, a, b in rows:
                print(f"{op:30} {text:36} {a:10.1f} {b:10.1f} {ratio:6.2f}")
    print(f"{len(slow)} slower than the limit{': ' if slow else ''}{', '.join(slow)}")
    return 1 if arguments.check and slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
