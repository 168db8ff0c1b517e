# points: 256 threads a block, 1 a row, 4 elements wide, 32-bit indexes, warps of 32
# tile(a0: float32[2], a1: float32[2]) -> (o0: float32[2])
#   for d0 < n0, d1 < n1
#   %0: float32 = load a0[d1, d0]
#   %1: float32 = load a1[d0, d1]
#   %2: float32 = add %0, %1
#   store o0[d0, d1], %2
from numba import cuda

from gpujit.kernels.cuda_device import (
    int32,
    udiv,
    urem,
    vload4,
    vstore4,
)


@cuda.jit
def kernel(a0, a1, o0, n0, n1, s0, s1):
    tid = int32(cuda.threadIdx.x)
    vectors = udiv(n1, int32(4))
    units = int32(n0 * vectors)
    stride = int32(cuda.gridDim.x * 256)
    u = int32(cuda.blockIdx.x * 256 + tid)
    while u < units:
        i1 = urem(u, vectors)
        rest1 = udiv(u, vectors)
        i0 = rest1
        at = int32(i1 * 4)
        offset1 = int32(i0 + at * s0)
        v0_0 = a0[offset1]
        v0_1 = a0[int32(offset1 + 1 * s0)]
        v0_2 = a0[int32(offset1 + 2 * s0)]
        v0_3 = a0[int32(offset1 + 3 * s0)]
        offset2 = int32(i0 * s1 + at)
        v1_0, v1_1, v1_2, v1_3 = vload4(a1, offset2)
        v2_0 = v0_0 + v1_0
        v2_1 = v0_1 + v1_1
        v2_2 = v0_2 + v1_2
        v2_3 = v0_3 + v1_3
        vstore4(o0, offset2, v2_0, v2_1, v2_2, v2_3)
        u = int32(u + stride)
