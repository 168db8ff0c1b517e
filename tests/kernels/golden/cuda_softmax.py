# row: 128 threads a block, 64 a row, 4 elements wide, 3 times, 32-bit indexes, warps of 32
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
    select,
    shuffle_xor,
    udiv,
    vload4,
    vstore4,
)


@cuda.jit
def kernel(a0, o0, n0, n1, s0):
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
        ua = thread
        has_a = has_row and ua < units
        ua = select(ua < units, ua, int32(units - 1))
        i1a = ua
        ata = int32(i1a * 4)
        ub = int32(thread + 64)
        has_b = has_row and ub < units
        ub = select(ub < units, ub, int32(units - 1))
        i1b = ub
        atb = int32(i1b * 4)
        uc = int32(thread + 128)
        has_c = has_row and uc < units
        uc = select(uc < units, uc, int32(units - 1))
        i1c = uc
        atc = int32(i1c * 4)
        r1 = float32(-INF)
        offset1 = int32(i0 * s0 + ata)
        v0a_0, v0a_1, v0a_2, v0a_3 = vload4(a0, offset1)
        offset2 = int32(i0 * s0 + atb)
        v0b_0, v0b_1, v0b_2, v0b_3 = vload4(a0, offset2)
        offset3 = int32(i0 * s0 + atc)
        v0c_0, v0c_1, v0c_2, v0c_3 = vload4(a0, offset3)
        if has_a:
            r1 = maximum(r1, maximum(maximum(v0a_0, v0a_1), maximum(v0a_2, v0a_3)))
        if has_b:
            r1 = maximum(r1, maximum(maximum(v0b_0, v0b_1), maximum(v0b_2, v0b_3)))
        if has_c:
            r1 = maximum(r1, maximum(maximum(v0c_0, v0c_1), maximum(v0c_2, v0c_3)))
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
        shared0 = cuda.shared.array(4, types.float32)
        if (tid & 31) == 0:
            shared0[tid >> 5] = r1
        cuda.syncthreads()
        r1 = shared0[(tid >> 6) * 2 + (tid & 1)]
        r1_1x = shuffle_xor(r1, 1)
        r1 = maximum(r1, r1_1x)
        cuda.syncthreads()
        r4 = float32(0.0)
        v2a_0 = v0a_0 - r1
        v2a_1 = v0a_1 - r1
        v2a_2 = v0a_2 - r1
        v2a_3 = v0a_3 - r1
        v3a_0 = exp(v2a_0)
        v3a_1 = exp(v2a_1)
        v3a_2 = exp(v2a_2)
        v3a_3 = exp(v2a_3)
        v2b_0 = v0b_0 - r1
        v2b_1 = v0b_1 - r1
        v2b_2 = v0b_2 - r1
        v2b_3 = v0b_3 - r1
        v3b_0 = exp(v2b_0)
        v3b_1 = exp(v2b_1)
        v3b_2 = exp(v2b_2)
        v3b_3 = exp(v2b_3)
        v2c_0 = v0c_0 - r1
        v2c_1 = v0c_1 - r1
        v2c_2 = v0c_2 - r1
        v2c_3 = v0c_3 - r1
        v3c_0 = exp(v2c_0)
        v3c_1 = exp(v2c_1)
        v3c_2 = exp(v2c_2)
        v3c_3 = exp(v2c_3)
        if has_a:
            r4 = r4 + ((v3a_0 + v3a_1) + (v3a_2 + v3a_3))
        if has_b:
            r4 = r4 + ((v3b_0 + v3b_1) + (v3b_2 + v3b_3))
        if has_c:
            r4 = r4 + ((v3c_0 + v3c_1) + (v3c_2 + v3c_3))
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
        shared1 = cuda.shared.array(4, types.float32)
        if (tid & 31) == 0:
            shared1[tid >> 5] = r4
        cuda.syncthreads()
        r4 = shared1[(tid >> 6) * 2 + (tid & 1)]
        r4_1x = shuffle_xor(r4, 1)
        r4 = r4 + r4_1x
        cuda.syncthreads()
        v5a_0 = v3a_0 / r4
        v5a_1 = v3a_1 / r4
        v5a_2 = v3a_2 / r4
        v5a_3 = v3a_3 / r4
        v5b_0 = v3b_0 / r4
        v5b_1 = v3b_1 / r4
        v5b_2 = v3b_2 / r4
        v5b_3 = v3b_3 / r4
        v5c_0 = v3c_0 / r4
        v5c_1 = v3c_1 / r4
        v5c_2 = v3c_2 / r4
        v5c_3 = v3c_3 / r4
        if has_a:
            vstore4(o0, offset1, v5a_0, v5a_1, v5a_2, v5a_3)
        if has_b:
            vstore4(o0, offset2, v5b_0, v5b_1, v5b_2, v5b_3)
        if has_c:
            vstore4(o0, offset3, v5c_0, v5c_1, v5c_2, v5c_3)
        first = int32(first + stride)
