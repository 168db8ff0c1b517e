# column: 1024 threads a block, 128 a row, 4 elements wide, 32-bit indexes, warps of 32
# tile(a0: float32[2]) -> (o0: float32[1])
#   for d0 < n0
#   row d1 < n1
#   %0: float32 = load a0[d1, d0]
#   %1: float32 = mul %0, %0
#   %2: float32 = sum %1
#   store o0[d0], %2
from numba import cuda, types

from gpujit.kernels.cuda_device import (
    float32,
    int32,
    select,
    udiv,
    vload4,
    vstore4,
)


@cuda.jit
def kernel(a0, o0, n0, n1, s0):
    tid = int32(cuda.threadIdx.x)
    vectors = udiv(n0, int32(4))
    thread = int32(tid >> 3)
    group = int32(tid & 7)
    rows = int32(vectors)
    units = int32(n1)
    stride = int32(cuda.gridDim.x * 8)
    first = int32(cuda.blockIdx.x * 8)
    while first < rows:
        row = int32(first + group)
        has_row = row < rows
        row = select(has_row, row, int32(rows - 1))
        i0 = row
        at = int32(i0 * 4)
        r2_0 = float32(0.0)
        r2_1 = float32(0.0)
        r2_2 = float32(0.0)
        r2_3 = float32(0.0)
        u = thread
        while u < units:
            i1 = u
            offset1 = int32(at + i1 * s0)
            v0_0, v0_1, v0_2, v0_3 = vload4(a0, offset1)
            v1_0 = v0_0 * v0_0
            v1_1 = v0_1 * v0_1
            v1_2 = v0_2 * v0_2
            v1_3 = v0_3 * v0_3
            if has_row:
                r2_0 = r2_0 + v1_0
                r2_1 = r2_1 + v1_1
                r2_2 = r2_2 + v1_2
                r2_3 = r2_3 + v1_3
            u = int32(u + 128)
        shared0 = cuda.shared.array(1024, types.float32)
        shared0[tid] = r2_0
        cuda.syncthreads()
        if thread < 64:
            r2_0_64x = shared0[tid + 512]
            r2_0 = r2_0 + r2_0_64x
            shared0[tid] = r2_0
        cuda.syncthreads()
        if thread < 32:
            r2_0_32x = shared0[tid + 256]
            r2_0 = r2_0 + r2_0_32x
            shared0[tid] = r2_0
        cuda.syncthreads()
        if thread < 16:
            r2_0_16x = shared0[tid + 128]
            r2_0 = r2_0 + r2_0_16x
            shared0[tid] = r2_0
        cuda.syncthreads()
        if thread < 8:
            r2_0_8x = shared0[tid + 64]
            r2_0 = r2_0 + r2_0_8x
            shared0[tid] = r2_0
        cuda.syncthreads()
        if thread < 4:
            r2_0_4x = shared0[tid + 32]
            r2_0 = r2_0 + r2_0_4x
            shared0[tid] = r2_0
        cuda.syncthreads()
        if thread < 2:
            r2_0_2x = shared0[tid + 16]
            r2_0 = r2_0 + r2_0_2x
            shared0[tid] = r2_0
        cuda.syncthreads()
        if thread < 1:
            r2_0_1x = shared0[tid + 8]
            r2_0 = r2_0 + r2_0_1x
            shared0[tid] = r2_0
        cuda.syncthreads()
        r2_0 = shared0[group]
        cuda.syncthreads()
        shared1 = cuda.shared.array(1024, types.float32)
        shared1[tid] = r2_1
        cuda.syncthreads()
        if thread < 64:
            r2_1_64x = shared1[tid + 512]
            r2_1 = r2_1 + r2_1_64x
            shared1[tid] = r2_1
        cuda.syncthreads()
        if thread < 32:
            r2_1_32x = shared1[tid + 256]
            r2_1 = r2_1 + r2_1_32x
            shared1[tid] = r2_1
        cuda.syncthreads()
        if thread < 16:
            r2_1_16x = shared1[tid + 128]
            r2_1 = r2_1 + r2_1_16x
            shared1[tid] = r2_1
        cuda.syncthreads()
        if thread < 8:
            r2_1_8x = shared1[tid + 64]
            r2_1 = r2_1 + r2_1_8x
            shared1[tid] = r2_1
        cuda.syncthreads()
        if thread < 4:
            r2_1_4x = shared1[tid + 32]
            r2_1 = r2_1 + r2_1_4x
            shared1[tid] = r2_1
        cuda.syncthreads()
        if thread < 2:
            r2_1_2x = shared1[tid + 16]
            r2_1 = r2_1 + r2_1_2x
            shared1[tid] = r2_1
        cuda.syncthreads()
        if thread < 1:
            r2_1_1x = shared1[tid + 8]
            r2_1 = r2_1 + r2_1_1x
            shared1[tid] = r2_1
        cuda.syncthreads()
        r2_1 = shared1[group]
        cuda.syncthreads()
        shared2 = cuda.shared.array(1024, types.float32)
        shared2[tid] = r2_2
        cuda.syncthreads()
        if thread < 64:
            r2_2_64x = shared2[tid + 512]
            r2_2 = r2_2 + r2_2_64x
            shared2[tid] = r2_2
        cuda.syncthreads()
        if thread < 32:
            r2_2_32x = shared2[tid + 256]
            r2_2 = r2_2 + r2_2_32x
            shared2[tid] = r2_2
        cuda.syncthreads()
        if thread < 16:
            r2_2_16x = shared2[tid + 128]
            r2_2 = r2_2 + r2_2_16x
            shared2[tid] = r2_2
        cuda.syncthreads()
        if thread < 8:
            r2_2_8x = shared2[tid + 64]
            r2_2 = r2_2 + r2_2_8x
            shared2[tid] = r2_2
        cuda.syncthreads()
        if thread < 4:
            r2_2_4x = shared2[tid + 32]
            r2_2 = r2_2 + r2_2_4x
            shared2[tid] = r2_2
        cuda.syncthreads()
        if thread < 2:
            r2_2_2x = shared2[tid + 16]
            r2_2 = r2_2 + r2_2_2x
            shared2[tid] = r2_2
        cuda.syncthreads()
        if thread < 1:
            r2_2_1x = shared2[tid + 8]
            r2_2 = r2_2 + r2_2_1x
            shared2[tid] = r2_2
        cuda.syncthreads()
        r2_2 = shared2[group]
        cuda.syncthreads()
        shared3 = cuda.shared.array(1024, types.float32)
        shared3[tid] = r2_3
        cuda.syncthreads()
        if thread < 64:
            r2_3_64x = shared3[tid + 512]
            r2_3 = r2_3 + r2_3_64x
            shared3[tid] = r2_3
        cuda.syncthreads()
        if thread < 32:
            r2_3_32x = shared3[tid + 256]
            r2_3 = r2_3 + r2_3_32x
            shared3[tid] = r2_3
        cuda.syncthreads()
        if thread < 16:
            r2_3_16x = shared3[tid + 128]
            r2_3 = r2_3 + r2_3_16x
            shared3[tid] = r2_3
        cuda.syncthreads()
        if thread < 8:
            r2_3_8x = shared3[tid + 64]
            r2_3 = r2_3 + r2_3_8x
            shared3[tid] = r2_3
        cuda.syncthreads()
        if thread < 4:
            r2_3_4x = shared3[tid + 32]
            r2_3 = r2_3 + r2_3_4x
            shared3[tid] = r2_3
        cuda.syncthreads()
        if thread < 2:
            r2_3_2x = shared3[tid + 16]
            r2_3 = r2_3 + r2_3_2x
            shared3[tid] = r2_3
        cuda.syncthreads()
        if thread < 1:
            r2_3_1x = shared3[tid + 8]
            r2_3 = r2_3 + r2_3_1x
            shared3[tid] = r2_3
        cuda.syncthreads()
        r2_3 = shared3[group]
        cuda.syncthreads()
        if has_row and thread == 0:
            vstore4(o0, at, r2_0, r2_1, r2_2, r2_3)
        first = int32(first + stride)
