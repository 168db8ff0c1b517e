# points: 256 threads a block, 1 a row, 4 elements wide, 32-bit indexes, warps of 32
# tile(a0: float32[2], a1: float32[2], a2: float32[2]) -> (o0: float32[2])
#   for d0 < n0, d1 < n1
#   params p0, p1, p2
#   %0: bool = inside 0 <= d1 < p0
#   %1: float32 = load a0[d0, d1] if %0 else 0.0
#   %2: bool = inside p0 <= d1 < n1
#   %3: float32 = load a1[d0, d1 - p0] if %2 else 0.0
#   %4: float32 = where %0, %1, %3
#   %5: bool = inside p1 <= d0 < p1 + p2
#   %6: float32 = load a2[d0 - p1, d1] if %5 else 1.0
#   %7: float32 = mul %4, %6
#   store o0[d0, d1], %7
from numba import cuda

from gpujit.kernels.cuda_device import (
    float32,
    int32,
    select,
    udiv,
    urem,
    vload4,
    vstore4,
)


@cuda.jit
def kernel(a0, a1, a2, o0, n0, n1, p0, p1, p2, s0, s1, s2):
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
        v0_0 = (at >= int32(0)) & (at < p0)
        v0_1 = (int32(at + 1) >= int32(0)) & (int32(at + 1) < p0)
        v0_2 = (int32(at + 2) >= int32(0)) & (int32(at + 2) < p0)
        v0_3 = (int32(at + 3) >= int32(0)) & (int32(at + 3) < p0)
        offset1 = int32(i0 * s0 + at)
        if v0_0 & v0_1 & v0_2 & v0_3:
            v1_0, v1_1, v1_2, v1_3 = vload4(a0, offset1)
        else:
            v1_0 = a0[offset1] if v0_0 else float32(0.0)
            v1_1 = a0[int32(offset1 + 1)] if v0_1 else float32(0.0)
            v1_2 = a0[int32(offset1 + 2)] if v0_2 else float32(0.0)
            v1_3 = a0[int32(offset1 + 3)] if v0_3 else float32(0.0)
        v2_0 = (at >= p0) & (at < n1)
        v2_1 = (int32(at + 1) >= p0) & (int32(at + 1) < n1)
        v2_2 = (int32(at + 2) >= p0) & (int32(at + 2) < n1)
        v2_3 = (int32(at + 3) >= p0) & (int32(at + 3) < n1)
        offset2 = int32(i0 * s1 + at)
        if v2_0 & v2_1 & v2_2 & v2_3:
            v3_0, v3_1, v3_2, v3_3 = vload4(a1, offset2)
        else:
            v3_0 = a1[offset2] if v2_0 else float32(0.0)
            v3_1 = a1[int32(offset2 + 1)] if v2_1 else float32(0.0)
            v3_2 = a1[int32(offset2 + 2)] if v2_2 else float32(0.0)
            v3_3 = a1[int32(offset2 + 3)] if v2_3 else float32(0.0)
        v4_0 = select(v0_0, v1_0, v3_0)
        v4_1 = select(v0_1, v1_1, v3_1)
        v4_2 = select(v0_2, v1_2, v3_2)
        v4_3 = select(v0_3, v1_3, v3_3)
        v5 = (i0 >= p1) & (i0 < int32(p1 + p2))
        offset3 = int32(i0 * s2 + at)
        if v5:
            v6_0, v6_1, v6_2, v6_3 = vload4(a2, offset3)
        else:
            v6_0 = float32(1.0)
            v6_1 = float32(1.0)
            v6_2 = float32(1.0)
            v6_3 = float32(1.0)
        v7_0 = v4_0 * v6_0
        v7_1 = v4_1 * v6_1
        v7_2 = v4_2 * v6_2
        v7_3 = v4_3 * v6_3
        vstore4(o0, offset3, v7_0, v7_1, v7_2, v7_3)
        u = int32(u + stride)
