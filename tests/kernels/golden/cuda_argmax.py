# ruff: noqa: E501
# row: 128 threads a block, 64 a row, 4 elements wide, 32-bit indexes, warps of 32
# tile(a0: float32[2]) -> (o0: int64[1], o1: float32[1])
#   for d0 < n0
#   row d1 < n1
#   %0: float32 = load a0[d0, d1]
#   %1: int64 = argmax %0
#   %2: float32 = max %0
#   store o0[d0], %1
#   store o1[d0], %2
from numba import cuda, types

from gpujit.kernels.cuda_device import (
    INF,
    float32,
    int32,
    int64,
    maximum,
    select,
    shuffle_xor,
    udiv,
    vload4,
)


@cuda.jit
def kernel(a0, o0, o1, n0, n1, s0):
    tid = int32(cuda.threadIdx.x)
    thread = int32(tid & 63)
    group = int32(tid >> 6)
    rows = int32(n0)
    vectors = udiv(n1, int32(4))
    units = int32(vectors)
    stride = int32(cuda.gridDim.x * 2)
    first = int32(cuda.blockIdx.x * 2)
    while first < rows:
        row = int32(first + group)
        has_row = row < rows
        row = select(has_row, row, int32(rows - 1))
        i0 = row
        r1 = float32(-INF)
        w1 = int32(-1)
        r2 = float32(-INF)
        u = thread
        while u < units:
            i1 = u
            at = int32(i1 * 4)
            offset1 = int32(i0 * s0 + at)
            v0_0, v0_1, v0_2, v0_3 = vload4(a0, offset1)
            if has_row:
                better = ((v0_0 > r1) | ((v0_0 != v0_0) & (r1 == r1))) | (w1 < 0)
                r1 = select(better, v0_0, r1)
                w1 = select(better, int32(at), w1)
                better = ((v0_1 > r1) | ((v0_1 != v0_1) & (r1 == r1))) | (w1 < 0)
                r1 = select(better, v0_1, r1)
                w1 = select(better, int32(at + 1), w1)
                better = ((v0_2 > r1) | ((v0_2 != v0_2) & (r1 == r1))) | (w1 < 0)
                r1 = select(better, v0_2, r1)
                w1 = select(better, int32(at + 2), w1)
                better = ((v0_3 > r1) | ((v0_3 != v0_3) & (r1 == r1))) | (w1 < 0)
                r1 = select(better, v0_3, r1)
                w1 = select(better, int32(at + 3), w1)
                r2 = maximum(r2, maximum(maximum(v0_0, v0_1), maximum(v0_2, v0_3)))
            u = int32(u + 64)
        r1_16x = shuffle_xor(r1, 16)
        w1_16x = shuffle_xor(w1, 16)
        better = (w1_16x >= 0) & ((w1 < 0) | ((r1_16x > r1) | ((r1_16x != r1_16x) & (r1 == r1))) | ((not ((r1 > r1_16x) | ((r1 != r1) & (r1_16x == r1_16x)))) & (w1_16x < w1)))
        r1 = select(better, r1_16x, r1)
        w1 = select(better, w1_16x, w1)
        r1_8x = shuffle_xor(r1, 8)
        w1_8x = shuffle_xor(w1, 8)
        better = (w1_8x >= 0) & ((w1 < 0) | ((r1_8x > r1) | ((r1_8x != r1_8x) & (r1 == r1))) | ((not ((r1 > r1_8x) | ((r1 != r1) & (r1_8x == r1_8x)))) & (w1_8x < w1)))
        r1 = select(better, r1_8x, r1)
        w1 = select(better, w1_8x, w1)
        r1_4x = shuffle_xor(r1, 4)
        w1_4x = shuffle_xor(w1, 4)
        better = (w1_4x >= 0) & ((w1 < 0) | ((r1_4x > r1) | ((r1_4x != r1_4x) & (r1 == r1))) | ((not ((r1 > r1_4x) | ((r1 != r1) & (r1_4x == r1_4x)))) & (w1_4x < w1)))
        r1 = select(better, r1_4x, r1)
        w1 = select(better, w1_4x, w1)
        r1_2x = shuffle_xor(r1, 2)
        w1_2x = shuffle_xor(w1, 2)
        better = (w1_2x >= 0) & ((w1 < 0) | ((r1_2x > r1) | ((r1_2x != r1_2x) & (r1 == r1))) | ((not ((r1 > r1_2x) | ((r1 != r1) & (r1_2x == r1_2x)))) & (w1_2x < w1)))
        r1 = select(better, r1_2x, r1)
        w1 = select(better, w1_2x, w1)
        r1_1x = shuffle_xor(r1, 1)
        w1_1x = shuffle_xor(w1, 1)
        better = (w1_1x >= 0) & ((w1 < 0) | ((r1_1x > r1) | ((r1_1x != r1_1x) & (r1 == r1))) | ((not ((r1 > r1_1x) | ((r1 != r1) & (r1_1x == r1_1x)))) & (w1_1x < w1)))
        r1 = select(better, r1_1x, r1)
        w1 = select(better, w1_1x, w1)
        shared0 = cuda.shared.array(4, types.float32)
        shared1 = cuda.shared.array(4, types.int32)
        if (tid & 31) == 0:
            shared0[tid >> 5] = r1
            shared1[tid >> 5] = w1
        cuda.syncthreads()
        r1 = shared0[(tid >> 6) * 2 + (tid & 1)]
        w1 = shared1[(tid >> 6) * 2 + (tid & 1)]
        r1_1x = shuffle_xor(r1, 1)
        w1_1x = shuffle_xor(w1, 1)
        better = (w1_1x >= 0) & ((w1 < 0) | ((r1_1x > r1) | ((r1_1x != r1_1x) & (r1 == r1))) | ((not ((r1 > r1_1x) | ((r1 != r1) & (r1_1x == r1_1x)))) & (w1_1x < w1)))
        r1 = select(better, r1_1x, r1)
        w1 = select(better, w1_1x, w1)
        cuda.syncthreads()
        v1 = int64(w1)
        r2_16x = shuffle_xor(r2, 16)
        r2 = maximum(r2, r2_16x)
        r2_8x = shuffle_xor(r2, 8)
        r2 = maximum(r2, r2_8x)
        r2_4x = shuffle_xor(r2, 4)
        r2 = maximum(r2, r2_4x)
        r2_2x = shuffle_xor(r2, 2)
        r2 = maximum(r2, r2_2x)
        r2_1x = shuffle_xor(r2, 1)
        r2 = maximum(r2, r2_1x)
        shared2 = cuda.shared.array(4, types.float32)
        if (tid & 31) == 0:
            shared2[tid >> 5] = r2
        cuda.syncthreads()
        r2 = shared2[(tid >> 6) * 2 + (tid & 1)]
        r2_1x = shuffle_xor(r2, 1)
        r2 = maximum(r2, r2_1x)
        cuda.syncthreads()
        if has_row and thread == 0:
            o0[i0] = v1
            o1[i0] = r2
        first = int32(first + stride)
