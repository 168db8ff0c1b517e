# column: 1024 threads a block, 32 a row, 4 elements wide, 32-bit indexes, warps of 32
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
    udiv,
    vstore4,
)


@cuda.jit
def kernel(a0, o0, o1, n0, n1, s0):
    tid = int32(cuda.threadIdx.x)
    vectors = udiv(n0, int32(4))
    thread = int32((tid >> 5))
    group = int32((tid & 31))
    rows = int32(vectors)
    units = int32(n1)
    stride = int32(cuda.gridDim.x * 32)
    first = int32(cuda.blockIdx.x * 32)
    while first < rows:
        row = int32(first + group)
        has_row = row < rows
        row = select(has_row, row, int32(rows - 1))
        i0 = row
        at = int32(i0 * 4)
        r1_0 = float32(-INF)
        w1_0 = int32(-1)
        r1_1 = float32(-INF)
        w1_1 = int32(-1)
        r1_2 = float32(-INF)
        w1_2 = int32(-1)
        r1_3 = float32(-INF)
        w1_3 = int32(-1)
        r2_0 = float32(-INF)
        r2_1 = float32(-INF)
        r2_2 = float32(-INF)
        r2_3 = float32(-INF)
        u = thread
        while u < units:
            i1 = u
            offset1 = int32(at * s0 + i1)
            v0_0 = a0[offset1]
            v0_1 = a0[int32(offset1 + 1 * s0)]
            v0_2 = a0[int32(offset1 + 2 * s0)]
            v0_3 = a0[int32(offset1 + 3 * s0)]
            if has_row:
                if (v0_0 > r1_0 or (v0_0 != v0_0 and r1_0 == r1_0)) or w1_0 < 0:
                    r1_0 = v0_0
                    w1_0 = int32(i1)
                if (v0_1 > r1_1 or (v0_1 != v0_1 and r1_1 == r1_1)) or w1_1 < 0:
                    r1_1 = v0_1
                    w1_1 = int32(i1)
                if (v0_2 > r1_2 or (v0_2 != v0_2 and r1_2 == r1_2)) or w1_2 < 0:
                    r1_2 = v0_2
                    w1_2 = int32(i1)
                if (v0_3 > r1_3 or (v0_3 != v0_3 and r1_3 == r1_3)) or w1_3 < 0:
                    r1_3 = v0_3
                    w1_3 = int32(i1)
                r2_0 = maximum(r2_0, v0_0)
                r2_1 = maximum(r2_1, v0_1)
                r2_2 = maximum(r2_2, v0_2)
                r2_3 = maximum(r2_3, v0_3)
            u = int32(u + 32)
        shared0 = cuda.shared.array(1024, types.float32)
        shared1 = cuda.shared.array(1024, types.int32)
        shared0[tid] = r1_0
        shared1[tid] = w1_0
        cuda.syncthreads()
        if thread < 16:
            r1_0_16x = shared0[tid + 512]
            w1_0_16x = shared1[tid + 512]
            if w1_0_16x >= 0 and (w1_0 < 0 or (r1_0_16x > r1_0 or (r1_0_16x != r1_0_16x and r1_0 == r1_0)) or (not ((r1_0 > r1_0_16x or (r1_0 != r1_0 and r1_0_16x == r1_0_16x))) and w1_0_16x < w1_0)):
                r1_0 = r1_0_16x
                w1_0 = w1_0_16x
            shared0[tid] = r1_0
            shared1[tid] = w1_0
        cuda.syncthreads()
        if thread < 8:
            r1_0_8x = shared0[tid + 256]
            w1_0_8x = shared1[tid + 256]
            if w1_0_8x >= 0 and (w1_0 < 0 or (r1_0_8x > r1_0 or (r1_0_8x != r1_0_8x and r1_0 == r1_0)) or (not ((r1_0 > r1_0_8x or (r1_0 != r1_0 and r1_0_8x == r1_0_8x))) and w1_0_8x < w1_0)):
                r1_0 = r1_0_8x
                w1_0 = w1_0_8x
            shared0[tid] = r1_0
            shared1[tid] = w1_0
        cuda.syncthreads()
        if thread < 4:
            r1_0_4x = shared0[tid + 128]
            w1_0_4x = shared1[tid + 128]
            if w1_0_4x >= 0 and (w1_0 < 0 or (r1_0_4x > r1_0 or (r1_0_4x != r1_0_4x and r1_0 == r1_0)) or (not ((r1_0 > r1_0_4x or (r1_0 != r1_0 and r1_0_4x == r1_0_4x))) and w1_0_4x < w1_0)):
                r1_0 = r1_0_4x
                w1_0 = w1_0_4x
            shared0[tid] = r1_0
            shared1[tid] = w1_0
        cuda.syncthreads()
        if thread < 2:
            r1_0_2x = shared0[tid + 64]
            w1_0_2x = shared1[tid + 64]
            if w1_0_2x >= 0 and (w1_0 < 0 or (r1_0_2x > r1_0 or (r1_0_2x != r1_0_2x and r1_0 == r1_0)) or (not ((r1_0 > r1_0_2x or (r1_0 != r1_0 and r1_0_2x == r1_0_2x))) and w1_0_2x < w1_0)):
                r1_0 = r1_0_2x
                w1_0 = w1_0_2x
            shared0[tid] = r1_0
            shared1[tid] = w1_0
        cuda.syncthreads()
        if thread < 1:
            r1_0_1x = shared0[tid + 32]
            w1_0_1x = shared1[tid + 32]
            if w1_0_1x >= 0 and (w1_0 < 0 or (r1_0_1x > r1_0 or (r1_0_1x != r1_0_1x and r1_0 == r1_0)) or (not ((r1_0 > r1_0_1x or (r1_0 != r1_0 and r1_0_1x == r1_0_1x))) and w1_0_1x < w1_0)):
                r1_0 = r1_0_1x
                w1_0 = w1_0_1x
            shared0[tid] = r1_0
            shared1[tid] = w1_0
        cuda.syncthreads()
        r1_0 = shared0[group]
        w1_0 = shared1[group]
        cuda.syncthreads()
        v1_0 = int64(w1_0)
        shared2 = cuda.shared.array(1024, types.float32)
        shared3 = cuda.shared.array(1024, types.int32)
        shared2[tid] = r1_1
        shared3[tid] = w1_1
        cuda.syncthreads()
        if thread < 16:
            r1_1_16x = shared2[tid + 512]
            w1_1_16x = shared3[tid + 512]
            if w1_1_16x >= 0 and (w1_1 < 0 or (r1_1_16x > r1_1 or (r1_1_16x != r1_1_16x and r1_1 == r1_1)) or (not ((r1_1 > r1_1_16x or (r1_1 != r1_1 and r1_1_16x == r1_1_16x))) and w1_1_16x < w1_1)):
                r1_1 = r1_1_16x
                w1_1 = w1_1_16x
            shared2[tid] = r1_1
            shared3[tid] = w1_1
        cuda.syncthreads()
        if thread < 8:
            r1_1_8x = shared2[tid + 256]
            w1_1_8x = shared3[tid + 256]
            if w1_1_8x >= 0 and (w1_1 < 0 or (r1_1_8x > r1_1 or (r1_1_8x != r1_1_8x and r1_1 == r1_1)) or (not ((r1_1 > r1_1_8x or (r1_1 != r1_1 and r1_1_8x == r1_1_8x))) and w1_1_8x < w1_1)):
                r1_1 = r1_1_8x
                w1_1 = w1_1_8x
            shared2[tid] = r1_1
            shared3[tid] = w1_1
        cuda.syncthreads()
        if thread < 4:
            r1_1_4x = shared2[tid + 128]
            w1_1_4x = shared3[tid + 128]
            if w1_1_4x >= 0 and (w1_1 < 0 or (r1_1_4x > r1_1 or (r1_1_4x != r1_1_4x and r1_1 == r1_1)) or (not ((r1_1 > r1_1_4x or (r1_1 != r1_1 and r1_1_4x == r1_1_4x))) and w1_1_4x < w1_1)):
                r1_1 = r1_1_4x
                w1_1 = w1_1_4x
            shared2[tid] = r1_1
            shared3[tid] = w1_1
        cuda.syncthreads()
        if thread < 2:
            r1_1_2x = shared2[tid + 64]
            w1_1_2x = shared3[tid + 64]
            if w1_1_2x >= 0 and (w1_1 < 0 or (r1_1_2x > r1_1 or (r1_1_2x != r1_1_2x and r1_1 == r1_1)) or (not ((r1_1 > r1_1_2x or (r1_1 != r1_1 and r1_1_2x == r1_1_2x))) and w1_1_2x < w1_1)):
                r1_1 = r1_1_2x
                w1_1 = w1_1_2x
            shared2[tid] = r1_1
            shared3[tid] = w1_1
        cuda.syncthreads()
        if thread < 1:
            r1_1_1x = shared2[tid + 32]
            w1_1_1x = shared3[tid + 32]
            if w1_1_1x >= 0 and (w1_1 < 0 or (r1_1_1x > r1_1 or (r1_1_1x != r1_1_1x and r1_1 == r1_1)) or (not ((r1_1 > r1_1_1x or (r1_1 != r1_1 and r1_1_1x == r1_1_1x))) and w1_1_1x < w1_1)):
                r1_1 = r1_1_1x
                w1_1 = w1_1_1x
            shared2[tid] = r1_1
            shared3[tid] = w1_1
        cuda.syncthreads()
        r1_1 = shared2[group]
        w1_1 = shared3[group]
        cuda.syncthreads()
        v1_1 = int64(w1_1)
        shared4 = cuda.shared.array(1024, types.float32)
        shared5 = cuda.shared.array(1024, types.int32)
        shared4[tid] = r1_2
        shared5[tid] = w1_2
        cuda.syncthreads()
        if thread < 16:
            r1_2_16x = shared4[tid + 512]
            w1_2_16x = shared5[tid + 512]
            if w1_2_16x >= 0 and (w1_2 < 0 or (r1_2_16x > r1_2 or (r1_2_16x != r1_2_16x and r1_2 == r1_2)) or (not ((r1_2 > r1_2_16x or (r1_2 != r1_2 and r1_2_16x == r1_2_16x))) and w1_2_16x < w1_2)):
                r1_2 = r1_2_16x
                w1_2 = w1_2_16x
            shared4[tid] = r1_2
            shared5[tid] = w1_2
        cuda.syncthreads()
        if thread < 8:
            r1_2_8x = shared4[tid + 256]
            w1_2_8x = shared5[tid + 256]
            if w1_2_8x >= 0 and (w1_2 < 0 or (r1_2_8x > r1_2 or (r1_2_8x != r1_2_8x and r1_2 == r1_2)) or (not ((r1_2 > r1_2_8x or (r1_2 != r1_2 and r1_2_8x == r1_2_8x))) and w1_2_8x < w1_2)):
                r1_2 = r1_2_8x
                w1_2 = w1_2_8x
            shared4[tid] = r1_2
            shared5[tid] = w1_2
        cuda.syncthreads()
        if thread < 4:
            r1_2_4x = shared4[tid + 128]
            w1_2_4x = shared5[tid + 128]
            if w1_2_4x >= 0 and (w1_2 < 0 or (r1_2_4x > r1_2 or (r1_2_4x != r1_2_4x and r1_2 == r1_2)) or (not ((r1_2 > r1_2_4x or (r1_2 != r1_2 and r1_2_4x == r1_2_4x))) and w1_2_4x < w1_2)):
                r1_2 = r1_2_4x
                w1_2 = w1_2_4x
            shared4[tid] = r1_2
            shared5[tid] = w1_2
        cuda.syncthreads()
        if thread < 2:
            r1_2_2x = shared4[tid + 64]
            w1_2_2x = shared5[tid + 64]
            if w1_2_2x >= 0 and (w1_2 < 0 or (r1_2_2x > r1_2 or (r1_2_2x != r1_2_2x and r1_2 == r1_2)) or (not ((r1_2 > r1_2_2x or (r1_2 != r1_2 and r1_2_2x == r1_2_2x))) and w1_2_2x < w1_2)):
                r1_2 = r1_2_2x
                w1_2 = w1_2_2x
            shared4[tid] = r1_2
            shared5[tid] = w1_2
        cuda.syncthreads()
        if thread < 1:
            r1_2_1x = shared4[tid + 32]
            w1_2_1x = shared5[tid + 32]
            if w1_2_1x >= 0 and (w1_2 < 0 or (r1_2_1x > r1_2 or (r1_2_1x != r1_2_1x and r1_2 == r1_2)) or (not ((r1_2 > r1_2_1x or (r1_2 != r1_2 and r1_2_1x == r1_2_1x))) and w1_2_1x < w1_2)):
                r1_2 = r1_2_1x
                w1_2 = w1_2_1x
            shared4[tid] = r1_2
            shared5[tid] = w1_2
        cuda.syncthreads()
        r1_2 = shared4[group]
        w1_2 = shared5[group]
        cuda.syncthreads()
        v1_2 = int64(w1_2)
        shared6 = cuda.shared.array(1024, types.float32)
        shared7 = cuda.shared.array(1024, types.int32)
        shared6[tid] = r1_3
        shared7[tid] = w1_3
        cuda.syncthreads()
        if thread < 16:
            r1_3_16x = shared6[tid + 512]
            w1_3_16x = shared7[tid + 512]
            if w1_3_16x >= 0 and (w1_3 < 0 or (r1_3_16x > r1_3 or (r1_3_16x != r1_3_16x and r1_3 == r1_3)) or (not ((r1_3 > r1_3_16x or (r1_3 != r1_3 and r1_3_16x == r1_3_16x))) and w1_3_16x < w1_3)):
                r1_3 = r1_3_16x
                w1_3 = w1_3_16x
            shared6[tid] = r1_3
            shared7[tid] = w1_3
        cuda.syncthreads()
        if thread < 8:
            r1_3_8x = shared6[tid + 256]
            w1_3_8x = shared7[tid + 256]
            if w1_3_8x >= 0 and (w1_3 < 0 or (r1_3_8x > r1_3 or (r1_3_8x != r1_3_8x and r1_3 == r1_3)) or (not ((r1_3 > r1_3_8x or (r1_3 != r1_3 and r1_3_8x == r1_3_8x))) and w1_3_8x < w1_3)):
                r1_3 = r1_3_8x
                w1_3 = w1_3_8x
            shared6[tid] = r1_3
            shared7[tid] = w1_3
        cuda.syncthreads()
        if thread < 4:
            r1_3_4x = shared6[tid + 128]
            w1_3_4x = shared7[tid + 128]
            if w1_3_4x >= 0 and (w1_3 < 0 or (r1_3_4x > r1_3 or (r1_3_4x != r1_3_4x and r1_3 == r1_3)) or (not ((r1_3 > r1_3_4x or (r1_3 != r1_3 and r1_3_4x == r1_3_4x))) and w1_3_4x < w1_3)):
                r1_3 = r1_3_4x
                w1_3 = w1_3_4x
            shared6[tid] = r1_3
            shared7[tid] = w1_3
        cuda.syncthreads()
        if thread < 2:
            r1_3_2x = shared6[tid + 64]
            w1_3_2x = shared7[tid + 64]
            if w1_3_2x >= 0 and (w1_3 < 0 or (r1_3_2x > r1_3 or (r1_3_2x != r1_3_2x and r1_3 == r1_3)) or (not ((r1_3 > r1_3_2x or (r1_3 != r1_3 and r1_3_2x == r1_3_2x))) and w1_3_2x < w1_3)):
                r1_3 = r1_3_2x
                w1_3 = w1_3_2x
            shared6[tid] = r1_3
            shared7[tid] = w1_3
        cuda.syncthreads()
        if thread < 1:
            r1_3_1x = shared6[tid + 32]
            w1_3_1x = shared7[tid + 32]
            if w1_3_1x >= 0 and (w1_3 < 0 or (r1_3_1x > r1_3 or (r1_3_1x != r1_3_1x and r1_3 == r1_3)) or (not ((r1_3 > r1_3_1x or (r1_3 != r1_3 and r1_3_1x == r1_3_1x))) and w1_3_1x < w1_3)):
                r1_3 = r1_3_1x
                w1_3 = w1_3_1x
            shared6[tid] = r1_3
            shared7[tid] = w1_3
        cuda.syncthreads()
        r1_3 = shared6[group]
        w1_3 = shared7[group]
        cuda.syncthreads()
        v1_3 = int64(w1_3)
        shared8 = cuda.shared.array(1024, types.float32)
        shared8[tid] = r2_0
        cuda.syncthreads()
        if thread < 16:
            r2_0_16x = shared8[tid + 512]
            r2_0 = maximum(r2_0, r2_0_16x)
            shared8[tid] = r2_0
        cuda.syncthreads()
        if thread < 8:
            r2_0_8x = shared8[tid + 256]
            r2_0 = maximum(r2_0, r2_0_8x)
            shared8[tid] = r2_0
        cuda.syncthreads()
        if thread < 4:
            r2_0_4x = shared8[tid + 128]
            r2_0 = maximum(r2_0, r2_0_4x)
            shared8[tid] = r2_0
        cuda.syncthreads()
        if thread < 2:
            r2_0_2x = shared8[tid + 64]
            r2_0 = maximum(r2_0, r2_0_2x)
            shared8[tid] = r2_0
        cuda.syncthreads()
        if thread < 1:
            r2_0_1x = shared8[tid + 32]
            r2_0 = maximum(r2_0, r2_0_1x)
            shared8[tid] = r2_0
        cuda.syncthreads()
        r2_0 = shared8[group]
        cuda.syncthreads()
        shared9 = cuda.shared.array(1024, types.float32)
        shared9[tid] = r2_1
        cuda.syncthreads()
        if thread < 16:
            r2_1_16x = shared9[tid + 512]
            r2_1 = maximum(r2_1, r2_1_16x)
            shared9[tid] = r2_1
        cuda.syncthreads()
        if thread < 8:
            r2_1_8x = shared9[tid + 256]
            r2_1 = maximum(r2_1, r2_1_8x)
            shared9[tid] = r2_1
        cuda.syncthreads()
        if thread < 4:
            r2_1_4x = shared9[tid + 128]
            r2_1 = maximum(r2_1, r2_1_4x)
            shared9[tid] = r2_1
        cuda.syncthreads()
        if thread < 2:
            r2_1_2x = shared9[tid + 64]
            r2_1 = maximum(r2_1, r2_1_2x)
            shared9[tid] = r2_1
        cuda.syncthreads()
        if thread < 1:
            r2_1_1x = shared9[tid + 32]
            r2_1 = maximum(r2_1, r2_1_1x)
            shared9[tid] = r2_1
        cuda.syncthreads()
        r2_1 = shared9[group]
        cuda.syncthreads()
        shared10 = cuda.shared.array(1024, types.float32)
        shared10[tid] = r2_2
        cuda.syncthreads()
        if thread < 16:
            r2_2_16x = shared10[tid + 512]
            r2_2 = maximum(r2_2, r2_2_16x)
            shared10[tid] = r2_2
        cuda.syncthreads()
        if thread < 8:
            r2_2_8x = shared10[tid + 256]
            r2_2 = maximum(r2_2, r2_2_8x)
            shared10[tid] = r2_2
        cuda.syncthreads()
        if thread < 4:
            r2_2_4x = shared10[tid + 128]
            r2_2 = maximum(r2_2, r2_2_4x)
            shared10[tid] = r2_2
        cuda.syncthreads()
        if thread < 2:
            r2_2_2x = shared10[tid + 64]
            r2_2 = maximum(r2_2, r2_2_2x)
            shared10[tid] = r2_2
        cuda.syncthreads()
        if thread < 1:
            r2_2_1x = shared10[tid + 32]
            r2_2 = maximum(r2_2, r2_2_1x)
            shared10[tid] = r2_2
        cuda.syncthreads()
        r2_2 = shared10[group]
        cuda.syncthreads()
        shared11 = cuda.shared.array(1024, types.float32)
        shared11[tid] = r2_3
        cuda.syncthreads()
        if thread < 16:
            r2_3_16x = shared11[tid + 512]
            r2_3 = maximum(r2_3, r2_3_16x)
            shared11[tid] = r2_3
        cuda.syncthreads()
        if thread < 8:
            r2_3_8x = shared11[tid + 256]
            r2_3 = maximum(r2_3, r2_3_8x)
            shared11[tid] = r2_3
        cuda.syncthreads()
        if thread < 4:
            r2_3_4x = shared11[tid + 128]
            r2_3 = maximum(r2_3, r2_3_4x)
            shared11[tid] = r2_3
        cuda.syncthreads()
        if thread < 2:
            r2_3_2x = shared11[tid + 64]
            r2_3 = maximum(r2_3, r2_3_2x)
            shared11[tid] = r2_3
        cuda.syncthreads()
        if thread < 1:
            r2_3_1x = shared11[tid + 32]
            r2_3 = maximum(r2_3, r2_3_1x)
            shared11[tid] = r2_3
        cuda.syncthreads()
        r2_3 = shared11[group]
        cuda.syncthreads()
        if has_row and thread == 0:
            vstore4(o0, at, v1_0, v1_1, v1_2, v1_3)
            vstore4(o1, at, r2_0, r2_1, r2_2, r2_3)
        first = int32(first + stride)
