# points: 256 threads a block, 1 a row, 4 elements wide, 32-bit indexes, warps of 32
# tile(a0: float32[2], a1: int64[1], a2: float32[1]) -> (o0: float32[2])
#   for d0 < n0, d1 < n1
#   params p0
#   %0: int64 = load a1[d0]
#   %1: bool = inside 0 <= %0 < p0
#   %2: float32 = load a0[%0, d1] if %1 else 0.0
#   %3: float32 = load a2[d1]
#   %4: float32 = add %2, %3
#   check %1, "index out of range"
#   store o0[d0, d1], %4
from numba import cuda

from gpujit.kernels.cuda_device import (
    float32,
    int32,
    int64,
    udiv,
    urem,
    vload4,
    vstore4,
)


@cuda.jit
def kernel(a1, a0, a2, o0, flags, n0, n1, p0, ta0_0, ta0_1, s0):
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
        v0 = a1[i0]
        v1 = (v0 >= int32(0)) & (v0 < p0)
        v2_0 = a0[int64(v0 * ta0_0 + at * ta0_1)] if v1 else float32(0.0)
        v2_1 = a0[int64(v0 * ta0_0 + int32(at + 1) * ta0_1)] if v1 else float32(0.0)
        v2_2 = a0[int64(v0 * ta0_0 + int32(at + 2) * ta0_1)] if v1 else float32(0.0)
        v2_3 = a0[int64(v0 * ta0_0 + int32(at + 3) * ta0_1)] if v1 else float32(0.0)
        v3_0, v3_1, v3_2, v3_3 = vload4(a2, at)
        v4_0 = v2_0 + v3_0
        v4_1 = v2_1 + v3_1
        v4_2 = v2_2 + v3_2
        v4_3 = v2_3 + v3_3
        if not v1:
            flags[0] = int32(1)
        offset1 = int32(i0 * s0 + at)
        vstore4(o0, offset1, v4_0, v4_1, v4_2, v4_3)
        u = int32(u + stride)
