"""Representative tile programs with the shapes of a call, for what is checked of CUDA kernels without a GPU.

``python -m tests.kernels.cuda_programs`` writes their sources to ``tests/kernels/golden``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from gpujit.kernels.cuda_tile import CudaCall, Limits, plan_cuda
from gpujit.kernels.numba_cuda import render
from gpujit.kernels.tile import TileProgram
from gpujit.kernels.tile_text import parse_program

GOLDEN = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Sample:
    """A program and a call of it: shapes of all arrays, inputs first, or strides where they are not contiguous."""

    text: str
    shapes: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    params: tuple[int, ...] = ()
    strides: tuple[tuple[int, ...] | None, ...] = ()

    @property
    def program(self) -> TileProgram:
        return parse_program(self.text)

    def all_strides(self) -> list[tuple[int, ...]]:
        """Strides of all arrays in elements."""
        found = []
        for k, shape in enumerate(self.shapes):
            given = self.strides[k] if k < len(self.strides) else None
            found.append(tuple(math.prod(shape[d + 1 :]) for d in range(len(shape))) if given is None else given)
        return found

    def call(self, limits: Limits = Limits()) -> CudaCall:  # noqa: B008
        """The plan for a GPU."""
        program, strides = self.program, self.all_strides()
        count = len(program.inputs)
        return plan_cuda(program, strides[:count], strides[count:], self.sizes, self.params, None, limits)


_CHAIN = """tile(a0: float32[1], a1: float32[1]) -> (o0: float32[1])
  for d0 < n0
  %0: float32 = load a0[d0]
  %1: float32 = load a1[d0]
  %2: float32 = mul %0, %1
  %3: float32 = const 0.5
  %4: float32 = add %2, %3
  %5: float32 = tanh %4
  %6: float32 = neg %0
  %7: float32 = exp %6
  %8: float32 = const 1.0
  %9: float32 = add %7, %8
  %10: float32 = div %8, %9
  %11: float32 = mul %5, %10
  %12: float32 = sub %11, %1
  %13: float32 = const 0.0
  %14: float32 = maximum %12, %13
  store o0[d0], %14
"""
_GELU = """tile(a0: float32[2], a1: float32[1], a2: float32[2]) -> (o0: float32[2])
  for d0 < n0, d1 < n1
  %0: float32 = load a0[d0, d1]
  %1: float32 = load a1[d1]
  %2: float32 = add %0, %1
  %3: float32 = const 0.7071067690849304
  %4: float32 = mul %2, %3
  %5: float32 = erf %4
  %6: float32 = const 1.0
  %7: float32 = add %5, %6
  %8: float32 = const 0.5
  %9: float32 = mul %2, %8
  %10: float32 = mul %9, %7
  %11: float32 = load a2[d0, d1]
  %12: float32 = add %10, %11
  store o0[d0, d1], %12
"""
_TRANSPOSED = """tile(a0: float32[2], a1: float32[2]) -> (o0: float32[2])
  for d0 < n0, d1 < n1
  %0: float32 = load a0[d1, d0]
  %1: float32 = load a1[d0, d1]
  %2: float32 = add %0, %1
  store o0[d0, d1], %2
"""
_SOFTMAX = """tile(a0: {t}[2]) -> (o0: {t}[2])
  for d0 < n0
  row d1 < n1
  %0: {t} = load a0[d0, d1]
  %1: float32 = cast %0
  %2: float32 = max %1
  %3: float32 = sub %1, %2
  %4: float32 = exp %3
  %5: float32 = sum %4
  %6: float32 = div %4, %5
  %7: {t} = cast %6
  store o0[d0, d1], %7
"""
_SOFTMAX_F32 = """tile(a0: float32[2]) -> (o0: float32[2])
  for d0 < n0
  row d1 < n1
  %0: float32 = load a0[d0, d1]
  %1: float32 = max %0
  %2: float32 = sub %0, %1
  %3: float32 = exp %2
  %4: float32 = sum %3
  %5: float32 = div %3, %4
  store o0[d0, d1], %5
"""
_LAYER_NORM = """tile(a0: float32[2], a1: float32[1], a2: float32[1]) -> (o0: float32[2], o1: float32[1])
  for d0 < n0
  row d1 < n1
  %0: float32 = load a0[d0, d1]
  %1: float32 = sum %0
  %2: float32 = count
  %3: float32 = div %1, %2
  %4: float32 = sub %0, %3
  %5: float32 = mul %4, %4
  %6: float32 = sum %5
  %7: float32 = div %6, %2
  %8: float32 = const 9.999999747378752e-06
  %9: float32 = add %7, %8
  %10: float32 = sqrt %9
  %11: float32 = div %4, %10
  %12: float32 = load a1[d1]
  %13: float32 = mul %11, %12
  %14: float32 = load a2[d1]
  %15: float32 = add %13, %14
  store o0[d0, d1], %15
  store o1[d0], %3
"""
_COLUMN_SUM = """tile(a0: float32[2]) -> (o0: float32[1])
  for d0 < n0
  row d1 < n1
  %0: float32 = load a0[d1, d0]
  %1: float32 = mul %0, %0
  %2: float32 = sum %1
  store o0[d0], %2
"""
_MASKED_SOFTMAX = """tile(a0: float32[3], a1: bool[2]) -> (o0: float32[3])
  for d0 < n0, d1 < n1
  row d2 < n2
  %0: bool = load a1[d1, d2]
  %1: float32 = load a0[d0, d1, d2]
  %2: float32 = const 0.125
  %3: float32 = mul %1, %2
  %4: float32 = const -inf
  %5: float32 = where %0, %3, %4
  %6: float32 = max %5
  %7: float32 = sub %5, %6
  %8: float32 = exp %7
  %9: float32 = sum %8
  %10: float32 = div %8, %9
  store o0[d0, d1, d2], %10
"""
_CAT_PAD = """tile(a0: float32[2], a1: float32[2], a2: float32[2]) -> (o0: float32[2])
  for d0 < n0, d1 < n1
  params p0, p1, p2
  %0: bool = inside 0 <= d1 < p0
  %1: float32 = load a0[d0, d1] if %0 else 0.0
  %2: bool = inside p0 <= d1 < n1
  %3: float32 = load a1[d0, d1 - p0] if %2 else 0.0
  %4: float32 = where %0, %1, %3
  %5: bool = inside p1 <= d0 < p1 + p2
  %6: float32 = load a2[d0 - p1, d1] if %5 else 1.0
  %7: float32 = mul %4, %6
  store o0[d0, d1], %7
"""
_GATHER = """tile(a0: float32[2], a1: int64[1], a2: float32[1]) -> (o0: float32[2])
  for d0 < n0, d1 < n1
  params p0
  %0: int64 = load a1[d0]
  %1: bool = inside 0 <= %0 < p0
  %2: float32 = load a0[%0, d1] if %1 else 0.0
  %3: float32 = load a2[d1]
  %4: float32 = add %2, %3
  check %1, "index out of range"
  store o0[d0, d1], %4
"""
_BFLOAT16 = """tile(a0: bfloat16[1], a1: bfloat16[1]) -> (o0: bfloat16[1])
  for d0 < n0
  %0: bfloat16 = load a0[d0]
  %1: float32 = cast %0
  %2: bfloat16 = load a1[d0]
  %3: float32 = cast %2
  %4: float32 = mul %1, %3
  %5: float32 = tanh %4
  %6: bfloat16 = cast %5
  store o0[d0], %6
"""
_BATCH_NORM = """tile(a0: float32[3], a1: float32[1], a2: float32[1], a3: float32[1], a4: float32[1]) -> \
(o0: float32[3])
  for d0 < n0, d1 < n1, d2 < n2
  %0: float32 = load a0[d0, d1, d2]
  %1: float32 = load a1[d1]
  %2: float32 = sub %0, %1
  %3: float32 = load a2[d1]
  %4: float32 = const 9.999999747378752e-06
  %5: float32 = add %3, %4
  %6: float32 = sqrt %5
  %7: float32 = div %2, %6
  %8: float32 = load a3[d1]
  %9: float32 = mul %7, %8
  %10: float32 = load a4[d1]
  %11: float32 = add %9, %10
  %12: float32 = const 0.0
  %13: float32 = maximum %11, %12
  store o0[d0, d1, d2], %13
"""
_RUNNING = """tile(a0: float32[2]) -> (o0: float32[2])
  for d0 < n0
  row d1 < n1
  %0: float32 = load a0[d0, d1]
  %1: float32 = cumsum %0
  store o0[d0, d1], %1
"""
_ARGMAX = """tile(a0: float32[2]) -> (o0: int64[1], o1: float32[1])
  for d0 < n0
  row d1 < n1
  %0: float32 = load a0[d0, d1]
  %1: int64 = argmax %0
  %2: float32 = max %0
  store o0[d0], %1
  store o1[d0], %2
"""
_INTEGERS = """tile(a0: int32[1], a1: uint8[1]) -> (o0: int32[1], o1: bool[1])
  for d0 < n0
  %0: int32 = load a0[d0]
  %1: uint8 = load a1[d0]
  %2: int32 = cast %1
  %3: int32 = mod %0, %2
  %4: int32 = mul %3, %2
  %5: int32 = const 7
  %6: int32 = maximum %4, %5
  %7: bool = lt %6, %0
  store o0[d0], %6
  store o1[d0], %7
"""

SAMPLES: dict[str, Sample] = {
    "chain": Sample(_CHAIN, ((65536,), (65536,), (65536,)), (65536,)),
    "chain_rest": Sample(_CHAIN, ((1003,), (1003,), (1003,)), (1003,)),
    "gelu_bias_residual": Sample(_GELU, ((512, 768), (768,), (512, 768), (512, 768)), (512, 768)),
    "transposed": Sample(_TRANSPOSED, ((768, 512), (512, 768), (512, 768)), (512, 768)),
    "softmax": Sample(_SOFTMAX_F32, ((512, 768), (512, 768)), (512, 768)),
    "softmax_long_rows": Sample(_SOFTMAX_F32, ((16, 100000), (16, 100000)), (16, 100000)),
    "softmax_half": Sample(_SOFTMAX.format(t="float16"), ((512, 768), (512, 768)), (512, 768)),
    "layer_norm": Sample(_LAYER_NORM, ((512, 768), (768,), (768,), (512, 768), (512,)), (512, 768)),
    "column_sum": Sample(_COLUMN_SUM, ((4096, 768), (768,)), (768, 4096)),
    "masked_softmax": Sample(_MASKED_SOFTMAX, ((12, 128, 128), (128, 128), (12, 128, 128)), (12, 128, 128)),
    "cat_pad": Sample(_CAT_PAD, ((64, 100), (64, 92), (60, 192), (64, 192)), (64, 192), (100, 2, 60)),
    "gather": Sample(_GATHER, ((1000, 768), (128,), (768,), (128, 768)), (128, 768), (1000,)),
    "bfloat16": Sample(_BFLOAT16, ((65536,), (65536,), (65536,)), (65536,)),
    "batch_norm_relu": Sample(
        _BATCH_NORM, ((8, 64, 3136), (64,), (64,), (64,), (64,), (8, 64, 3136)), (8, 64, 3136)
    ),
    "cumsum": Sample(_RUNNING, ((64, 1000), (64, 1000)), (64, 1000)),
    "argmax": Sample(_ARGMAX, ((512, 1000), (512,), (512,)), (512, 1000)),
    "integers": Sample(_INTEGERS, ((4096,), (4096,), (4096,), (4096,)), (4096,)),
}  # fmt: skip


def golden_file(name: str) -> Path:
    return GOLDEN / f"cuda_{name}.py"


def update() -> None:
    """Write the golden sources anew."""
    for name, sample in SAMPLES.items():
        golden_file(name).write_text(render(sample.call().kernel), encoding="utf-8")


if __name__ == "__main__":
    update()
