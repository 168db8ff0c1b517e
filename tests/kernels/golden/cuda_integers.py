# points: 256 threads a block, 1 a row, 4 elements wide, 32-bit indexes, warps of 32
# tile(a0: int32[1], a1: uint8[1]) -> (o0: int32[1], o1: bool[1])
#   for d0 < n0
#   %0: int32 = load a0[d0]
#   %1: uint8 = load a1[d0]
#   %2: int32 = cast %1
#   %3: int32 = mod %0, %2
#   %4: int32 = mul %3, %2
#   %5: int32 = const 7
#   %6: int32 = maximum %4, %5
#   %7: bool = lt %6, %0
#   store o0[d0], %6
#   store o1[d0], %7
from numba import cuda

from gpujit.kernels.cuda_device import (
    int32,
    remainder,
    select,
    udiv,
    uint8,
    vload4,
    vstore4,
)


@cuda.jit
def kernel(a0, a1, o0, o1, n0):
    tid = int32(cuda.threadIdx.x)
    vectors = udiv(n0, int32(4))
    units = int32(vectors)
    stride = int32(cuda.gridDim.x * 256)
    u = int32(cuda.blockIdx.x * 256 + tid)
    while u < units:
        i0 = u
        at = int32(i0 * 4)
        v0_0, v0_1, v0_2, v0_3 = vload4(a0, at)
        v1_0, v1_1, v1_2, v1_3 = vload4(a1, at)
        v2_0 = int32(v1_0)
        v2_1 = int32(v1_1)
        v2_2 = int32(v1_2)
        v2_3 = int32(v1_3)
        v3_0 = remainder(v0_0, v2_0)
        v3_1 = remainder(v0_1, v2_1)
        v3_2 = remainder(v0_2, v2_2)
        v3_3 = remainder(v0_3, v2_3)
        v4_0 = int32(v3_0 * v2_0)
        v4_1 = int32(v3_1 * v2_1)
        v4_2 = int32(v3_2 * v2_2)
        v4_3 = int32(v3_3 * v2_3)
        v6_0 = select(v4_0 > int32(7), v4_0, int32(7))
        v6_1 = select(v4_1 > int32(7), v4_1, int32(7))
        v6_2 = select(v4_2 > int32(7), v4_2, int32(7))
        v6_3 = select(v4_3 > int32(7), v4_3, int32(7))
        v7_0 = v6_0 < v0_0
        v7_1 = v6_1 < v0_1
        v7_2 = v6_2 < v0_2
        v7_3 = v6_3 < v0_3
        vstore4(o0, at, v6_0, v6_1, v6_2, v6_3)
        vstore4(o1, at, uint8(v7_0), uint8(v7_1), uint8(v7_2), uint8(v7_3))
        u = int32(u + stride)
