# row: 1024 threads a block, 1024 a row, 4 elements wide, 32-bit indexes, warps of 32
# tile(a0: float32[2]) -> (o0: float32[2])
#   for d0 < n0
#   row d1 < n1
#   %0: float32 = load a0[d0, d1]
#   %1: float32 = max %0
#   %2: float32 = sub %0, %1
#   %3: float32 = exp %2
#   %4: float32 = sum %3
#   %5: float32 = div %3, %4
#   store o0[d0, d1], %5
from numba import cuda, types

from gpujit.kernels.cuda_device import (
    INF,
    exp,
    float32,
    int32,
    maximum,
    shuffle_xor,
    udiv,
    vload4,
    vstore4,
)


@cuda.jit
def kernel(a0, o0, n0, n1, s0):
    tid = int32(cuda.threadIdx.x)
    thread = int32(tid & 1023)
    rows = int32(n0)
    vectors = udiv(n1, int32(4))
    units = int32(vectors)
    stride = int32(cuda.gridDim.x * 1)
    row = int32(cuda.blockIdx.x)
    while row < rows:
        i0 = row
        r1 = float32(-INF)
        u = thread
        while u < units:
            i1 = u
            at = int32(i1 * 4)
            offset1 = int32(i0 * s0 + at)
            v0_0, v0_1, v0_2, v0_3 = vload4(a0, offset1)
            r1 = maximum(r1, maximum(maximum(v0_0, v0_1), maximum(v0_2, v0_3)))
            u = int32(u + 1024)
        r1_16x = shuffle_xor(r1, 16)
        r1 = maximum(r1, r1_16x)
        r1_8x = shuffle_xor(r1, 8)
        r1 = maximum(r1, r1_8x)
        r1_4x = shuffle_xor(r1, 4)
        r1 = maximum(r1, r1_4x)
        r1_2x = shuffle_xor(r1, 2)
        r1 = maximum(r1, r1_2x)
        r1_1x = shuffle_xor(r1, 1)
        r1 = maximum(r1, r1_1x)
        shared0 = cuda.shared.array(32, types.float32)
        if (tid & 31) == 0:
            shared0[tid >> 5] = r1
        cuda.syncthreads()
        r1 = shared0[tid & 31]
        r1_16x = shuffle_xor(r1, 16)
        r1 = maximum(r1, r1_16x)
        r1_8x = shuffle_xor(r1, 8)
        r1 = maximum(r1, r1_8x)
        r1_4x = shuffle_xor(r1, 4)
        r1 = maximum(r1, r1_4x)
        r1_2x = shuffle_xor(r1, 2)
        r1 = maximum(r1, r1_2x)
        r1_1x = shuffle_xor(r1, 1)
        r1 = maximum(r1, r1_1x)
        cuda.syncthreads()
        r4 = float32(0.0)
        u1 = thread
        while u1 < units:
            i1_1 = u1
            at_1 = int32(i1_1 * 4)
            offset2 = int32(i0 * s0 + at_1)
            v0_1_0, v0_1_1, v0_1_2, v0_1_3 = vload4(a0, offset2)
            v2_1_0 = v0_1_0 - r1
            v2_1_1 = v0_1_1 - r1
            v2_1_2 = v0_1_2 - r1
            v2_1_3 = v0_1_3 - r1
            v3_1_0 = exp(v2_1_0)
            v3_1_1 = exp(v2_1_1)
            v3_1_2 = exp(v2_1_2)
            v3_1_3 = exp(v2_1_3)
            r4 = r4 + ((v3_1_0 + v3_1_1) + (v3_1_2 + v3_1_3))
            u1 = int32(u1 + 1024)
        r4_16x = shuffle_xor(r4, 16)
        r4 = r4 + r4_16x
        r4_8x = shuffle_xor(r4, 8)
        r4 = r4 + r4_8x
        r4_4x = shuffle_xor(r4, 4)
        r4 = r4 + r4_4x
        r4_2x = shuffle_xor(r4, 2)
        r4 = r4 + r4_2x
        r4_1x = shuffle_xor(r4, 1)
        r4 = r4 + r4_1x
        shared1 = cuda.shared.array(32, types.float32)
        if (tid & 31) == 0:
            shared1[tid >> 5] = r4
        cuda.syncthreads()
        r4 = shared1[tid & 31]
        r4_16x = shuffle_xor(r4, 16)
        r4 = r4 + r4_16x
        r4_8x = shuffle_xor(r4, 8)
        r4 = r4 + r4_8x
        r4_4x = shuffle_xor(r4, 4)
        r4 = r4 + r4_4x
        r4_2x = shuffle_xor(r4, 2)
        r4 = r4 + r4_2x
        r4_1x = shuffle_xor(r4, 1)
        r4 = r4 + r4_1x
        cuda.syncthreads()
        u2 = thread
        while u2 < units:
            i1_2 = u2
            at_2 = int32(i1_2 * 4)
            offset3 = int32(i0 * s0 + at_2)
            v0_2_0, v0_2_1, v0_2_2, v0_2_3 = vload4(a0, offset3)
            v2_2_0 = v0_2_0 - r1
            v2_2_1 = v0_2_1 - r1
            v2_2_2 = v0_2_2 - r1
            v2_2_3 = v0_2_3 - r1
            v3_2_0 = exp(v2_2_0)
            v3_2_1 = exp(v2_2_1)
            v3_2_2 = exp(v2_2_2)
            v3_2_3 = exp(v2_2_3)
            v5_2_0 = v3_2_0 / r4
            v5_2_1 = v3_2_1 / r4
            v5_2_2 = v3_2_2 / r4
            v5_2_3 = v3_2_3 / r4
            vstore4(o0, offset3, v5_2_0, v5_2_1, v5_2_2, v5_2_3)
            u2 = int32(u2 + 1024)
        row = int32(row + stride)
