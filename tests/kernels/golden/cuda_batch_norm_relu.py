# points: 256 threads a block, 1 a row, 4 elements wide, 32-bit indexes, warps of 32
# tile(a0: float32[3], a1: float32[1], a2: float32[1], a3: float32[1], a4: float32[1]) -> (o0: float32[3])
#   for d0 < n0, d1 < n1, d2 < n2
#   %0: float32 = load a0[d0, d1, d2]
#   %1: float32 = load a1[d1]
#   %2: float32 = sub %0, %1
#   %3: float32 = load a2[d1]
#   %4: float32 = const 9.999999747378752e-06
#   %5: float32 = add %3, %4
#   %6: float32 = sqrt %5
#   %7: float32 = div %2, %6
#   %8: float32 = load a3[d1]
#   %9: float32 = mul %7, %8
#   %10: float32 = load a4[d1]
#   %11: float32 = add %9, %10
#   %12: float32 = const 0.0
#   %13: float32 = maximum %11, %12
#   store o0[d0, d1, d2], %13
from numba import cuda

from gpujit.kernels.cuda_device import (
    float32,
    int32,
    maximum,
    sqrt,
    udiv,
    urem,
    vload4,
    vstore4,
)


@cuda.jit
def kernel(a0, a1, a2, a3, a4, o0, n0, n1, n2, s0, s1):
    tid = int32(cuda.threadIdx.x)
    vectors = udiv(n2, int32(4))
    units = int32(n0 * n1 * vectors)
    stride = int32(cuda.gridDim.x * 256)
    u = int32(cuda.blockIdx.x * 256 + tid)
    while u < units:
        i2 = urem(u, vectors)
        rest2 = udiv(u, vectors)
        i1 = urem(rest2, n1)
        rest1 = udiv(rest2, n1)
        i0 = rest1
        at = int32(i2 * 4)
        offset1 = int32(i0 * s0 + i1 * s1 + at)
        v0_0, v0_1, v0_2, v0_3 = vload4(a0, offset1)
        v1 = a1[i1]
        v2_0 = v0_0 - v1
        v2_1 = v0_1 - v1
        v2_2 = v0_2 - v1
        v2_3 = v0_3 - v1
        v3 = a2[i1]
        v5 = v3 + float32(9.999999747378752e-06)
        v6 = sqrt(v5)
        v7_0 = v2_0 / v6
        v7_1 = v2_1 / v6
        v7_2 = v2_2 / v6
        v7_3 = v2_3 / v6
        v8 = a3[i1]
        v9_0 = v7_0 * v8
        v9_1 = v7_1 * v8
        v9_2 = v7_2 * v8
        v9_3 = v7_3 * v8
        v10 = a4[i1]
        v11_0 = v9_0 + v10
        v11_1 = v9_1 + v10
        v11_2 = v9_2 + v10
        v11_3 = v9_3 + v10
        v13_0 = maximum(v11_0, float32(0.0))
        v13_1 = maximum(v11_1, float32(0.0))
        v13_2 = maximum(v11_2, float32(0.0))
        v13_3 = maximum(v11_3, float32(0.0))
        vstore4(o0, offset1, v13_0, v13_1, v13_2, v13_3)
        u = int32(u + stride)
