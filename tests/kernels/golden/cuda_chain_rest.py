# points: 256 threads a block, 1 a row, 4 elements wide, a rest, 32-bit indexes, warps of 32
# tile(a0: float32[1], a1: float32[1]) -> (o0: float32[1])
#   for d0 < n0
#   %0: float32 = load a0[d0]
#   %1: float32 = load a1[d0]
#   %2: float32 = mul %0, %1
#   %3: float32 = const 0.5
#   %4: float32 = add %2, %3
#   %5: float32 = tanh %4
#   %6: float32 = neg %0
#   %7: float32 = exp %6
#   %8: float32 = const 1.0
#   %9: float32 = add %7, %8
#   %10: float32 = div %8, %9
#   %11: float32 = mul %5, %10
#   %12: float32 = sub %11, %1
#   %13: float32 = const 0.0
#   %14: float32 = maximum %12, %13
#   store o0[d0], %14
from numba import cuda

from gpujit.kernels.cuda_device import (
    exp,
    float32,
    int32,
    maximum,
    tanh,
    udiv,
    vload4,
    vstore4,
)


@cuda.jit
def kernel(a0, a1, o0, n0):
    tid = int32(cuda.threadIdx.x)
    vectors = udiv(int32(n0 + 3), int32(4))
    units = int32(vectors)
    stride = int32(cuda.gridDim.x * 256)
    u = int32(cuda.blockIdx.x * 256 + tid)
    while u < units:
        i0 = u
        at = int32(i0 * 4)
        if at + 4 <= n0:
            v0_0, v0_1, v0_2, v0_3 = vload4(a0, at)
            v1_0, v1_1, v1_2, v1_3 = vload4(a1, at)
            v2_0 = v0_0 * v1_0
            v2_1 = v0_1 * v1_1
            v2_2 = v0_2 * v1_2
            v2_3 = v0_3 * v1_3
            v4_0 = v2_0 + float32(0.5)
            v4_1 = v2_1 + float32(0.5)
            v4_2 = v2_2 + float32(0.5)
            v4_3 = v2_3 + float32(0.5)
            v5_0 = tanh(v4_0)
            v5_1 = tanh(v4_1)
            v5_2 = tanh(v4_2)
            v5_3 = tanh(v4_3)
            v6_0 = -v0_0
            v6_1 = -v0_1
            v6_2 = -v0_2
            v6_3 = -v0_3
            v7_0 = exp(v6_0)
            v7_1 = exp(v6_1)
            v7_2 = exp(v6_2)
            v7_3 = exp(v6_3)
            v9_0 = v7_0 + float32(1.0)
            v9_1 = v7_1 + float32(1.0)
            v9_2 = v7_2 + float32(1.0)
            v9_3 = v7_3 + float32(1.0)
            v10_0 = float32(1.0) / v9_0
            v10_1 = float32(1.0) / v9_1
            v10_2 = float32(1.0) / v9_2
            v10_3 = float32(1.0) / v9_3
            v11_0 = v5_0 * v10_0
            v11_1 = v5_1 * v10_1
            v11_2 = v5_2 * v10_2
            v11_3 = v5_3 * v10_3
            v12_0 = v11_0 - v1_0
            v12_1 = v11_1 - v1_1
            v12_2 = v11_2 - v1_2
            v12_3 = v11_3 - v1_3
            v14_0 = maximum(v12_0, float32(0.0))
            v14_1 = maximum(v12_1, float32(0.0))
            v14_2 = maximum(v12_2, float32(0.0))
            v14_3 = maximum(v12_3, float32(0.0))
            vstore4(o0, at, v14_0, v14_1, v14_2, v14_3)
        else:
            one = at
            while one < n0:
                v0 = a0[one]
                v1 = a1[one]
                v2 = v0 * v1
                v4 = v2 + float32(0.5)
                v5 = tanh(v4)
                v6 = -v0
                v7 = exp(v6)
                v9 = v7 + float32(1.0)
                v10 = float32(1.0) / v9
                v11 = v5 * v10
                v12 = v11 - v1
                v14 = maximum(v12, float32(0.0))
                o0[one] = v14
                one = int32(one + 1)
        u = int32(u + stride)
