# points: 256 threads a block, 1 a row, 8 elements wide, 32-bit indexes, warps of 32
# tile(a0: bfloat16[1], a1: bfloat16[1]) -> (o0: bfloat16[1])
#   for d0 < n0
#   %0: bfloat16 = load a0[d0]
#   %1: float32 = cast %0
#   %2: bfloat16 = load a1[d0]
#   %3: float32 = cast %2
#   %4: float32 = mul %1, %3
#   %5: float32 = tanh %4
#   %6: bfloat16 = cast %5
#   store o0[d0], %6
from numba import cuda

from gpujit.kernels.cuda_device import (
    int32,
    tanh,
    udiv,
    vload8_bf16,
    vstore8_bf16,
)


@cuda.jit
def kernel(a0, a1, o0, n0):
    tid = int32(cuda.threadIdx.x)
    vectors = udiv(n0, int32(8))
    units = int32(vectors)
    stride = int32(cuda.gridDim.x * 256)
    u = int32(cuda.blockIdx.x * 256 + tid)
    while u < units:
        i0 = u
        at = int32(i0 * 8)
        v0_0, v0_1, v0_2, v0_3, v0_4, v0_5, v0_6, v0_7 = vload8_bf16(a0, at)
        v2_0, v2_1, v2_2, v2_3, v2_4, v2_5, v2_6, v2_7 = vload8_bf16(a1, at)
        v4_0 = v0_0 * v2_0
        v4_1 = v0_1 * v2_1
        v4_2 = v0_2 * v2_2
        v4_3 = v0_3 * v2_3
        v4_4 = v0_4 * v2_4
        v4_5 = v0_5 * v2_5
        v4_6 = v0_6 * v2_6
        v4_7 = v0_7 * v2_7
        v5_0 = tanh(v4_0)
        v5_1 = tanh(v4_1)
        v5_2 = tanh(v4_2)
        v5_3 = tanh(v4_3)
        v5_4 = tanh(v4_4)
        v5_5 = tanh(v4_5)
        v5_6 = tanh(v4_6)
        v5_7 = tanh(v4_7)
        vstore8_bf16(o0, at, v5_0, v5_1, v5_2, v5_3, v5_4, v5_5, v5_6, v5_7)
        u = int32(u + stride)
