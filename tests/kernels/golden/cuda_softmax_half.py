# ruff: noqa: E501
# row: 128 threads a block, 64 a row, 8 elements wide, 2 times, 32-bit indexes, warps of 32
# tile(a0: float16[2]) -> (o0: float16[2])
#   for d0 < n0
#   row d1 < n1
#   %0: float16 = load a0[d0, d1]
#   %1: float32 = cast %0
#   %2: float32 = max %1
#   %3: float32 = sub %1, %2
#   %4: float32 = exp %3
#   %5: float32 = sum %4
#   %6: float32 = div %4, %5
#   %7: float16 = cast %6
#   store o0[d0, d1], %7
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
    vload8_f16,
    vstore8_f16,
)


@cuda.jit
def kernel(a0, o0, n0, n1, s0):
    tid = int32(cuda.threadIdx.x)
    thread = int32(tid & 63)
    group = int32(tid >> 6)
    rows = int32(n0)
    vectors = udiv(n1, int32(8))
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
        ata = int32(i1a * 8)
        ub = int32(thread + 64)
        has_b = has_row and ub < units
        ub = select(ub < units, ub, int32(units - 1))
        i1b = ub
        atb = int32(i1b * 8)
        r2 = float32(-INF)
        offset1 = int32(i0 * s0 + ata)
        v0a_0, v0a_1, v0a_2, v0a_3, v0a_4, v0a_5, v0a_6, v0a_7 = vload8_f16(a0, offset1)
        offset2 = int32(i0 * s0 + atb)
        v0b_0, v0b_1, v0b_2, v0b_3, v0b_4, v0b_5, v0b_6, v0b_7 = vload8_f16(a0, offset2)
        if has_a:
            r2 = maximum(r2, maximum(maximum(maximum(v0a_0, v0a_1), maximum(v0a_2, v0a_3)), maximum(maximum(v0a_4, v0a_5), maximum(v0a_6, v0a_7))))
        if has_b:
            r2 = maximum(r2, maximum(maximum(maximum(v0b_0, v0b_1), maximum(v0b_2, v0b_3)), maximum(maximum(v0b_4, v0b_5), maximum(v0b_6, v0b_7))))
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
        shared0 = cuda.shared.array(4, types.float32)
        if (tid & 31) == 0:
            shared0[tid >> 5] = r2
        cuda.syncthreads()
        r2 = shared0[(tid >> 6) * 2 + (tid & 1)]
        r2_1x = shuffle_xor(r2, 1)
        r2 = maximum(r2, r2_1x)
        cuda.syncthreads()
        r5 = float32(0.0)
        v3a_0 = v0a_0 - r2
        v3a_1 = v0a_1 - r2
        v3a_2 = v0a_2 - r2
        v3a_3 = v0a_3 - r2
        v3a_4 = v0a_4 - r2
        v3a_5 = v0a_5 - r2
        v3a_6 = v0a_6 - r2
        v3a_7 = v0a_7 - r2
        v4a_0 = exp(v3a_0)
        v4a_1 = exp(v3a_1)
        v4a_2 = exp(v3a_2)
        v4a_3 = exp(v3a_3)
        v4a_4 = exp(v3a_4)
        v4a_5 = exp(v3a_5)
        v4a_6 = exp(v3a_6)
        v4a_7 = exp(v3a_7)
        v3b_0 = v0b_0 - r2
        v3b_1 = v0b_1 - r2
        v3b_2 = v0b_2 - r2
        v3b_3 = v0b_3 - r2
        v3b_4 = v0b_4 - r2
        v3b_5 = v0b_5 - r2
        v3b_6 = v0b_6 - r2
        v3b_7 = v0b_7 - r2
        v4b_0 = exp(v3b_0)
        v4b_1 = exp(v3b_1)
        v4b_2 = exp(v3b_2)
        v4b_3 = exp(v3b_3)
        v4b_4 = exp(v3b_4)
        v4b_5 = exp(v3b_5)
        v4b_6 = exp(v3b_6)
        v4b_7 = exp(v3b_7)
        if has_a:
            r5 = r5 + (((v4a_0 + v4a_1) + (v4a_2 + v4a_3)) + ((v4a_4 + v4a_5) + (v4a_6 + v4a_7)))
        if has_b:
            r5 = r5 + (((v4b_0 + v4b_1) + (v4b_2 + v4b_3)) + ((v4b_4 + v4b_5) + (v4b_6 + v4b_7)))
        r5_16x = shuffle_xor(r5, 16)
        r5 = r5 + r5_16x
        r5_8x = shuffle_xor(r5, 8)
        r5 = r5 + r5_8x
        r5_4x = shuffle_xor(r5, 4)
        r5 = r5 + r5_4x
        r5_2x = shuffle_xor(r5, 2)
        r5 = r5 + r5_2x
        r5_1x = shuffle_xor(r5, 1)
        r5 = r5 + r5_1x
        shared1 = cuda.shared.array(4, types.float32)
        if (tid & 31) == 0:
            shared1[tid >> 5] = r5
        cuda.syncthreads()
        r5 = shared1[(tid >> 6) * 2 + (tid & 1)]
        r5_1x = shuffle_xor(r5, 1)
        r5 = r5 + r5_1x
        cuda.syncthreads()
        v6a_0 = v4a_0 / r5
        v6a_1 = v4a_1 / r5
        v6a_2 = v4a_2 / r5
        v6a_3 = v4a_3 / r5
        v6a_4 = v4a_4 / r5
        v6a_5 = v4a_5 / r5
        v6a_6 = v4a_6 / r5
        v6a_7 = v4a_7 / r5
        v6b_0 = v4b_0 / r5
        v6b_1 = v4b_1 / r5
        v6b_2 = v4b_2 / r5
        v6b_3 = v4b_3 / r5
        v6b_4 = v4b_4 / r5
        v6b_5 = v4b_5 / r5
        v6b_6 = v4b_6 / r5
        v6b_7 = v4b_7 / r5
        if has_a:
            vstore8_f16(o0, offset1, v6a_0, v6a_1, v6a_2, v6a_3, v6a_4, v6a_5, v6a_6, v6a_7)
        if has_b:
            vstore8_f16(o0, offset2, v6b_0, v6b_1, v6b_2, v6b_3, v6b_4, v6b_5, v6b_6, v6b_7)
        first = int32(first + stride)
