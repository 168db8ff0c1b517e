# row: 128 threads a block, 32 a row, 4 elements wide, 1 times, 32-bit indexes, warps of 32
# tile(a0: float32[3], a1: bool[2]) -> (o0: float32[3])
#   for d0 < n0, d1 < n1
#   row d2 < n2
#   %0: bool = load a1[d1, d2]
#   %1: float32 = load a0[d0, d1, d2]
#   %2: float32 = const 0.125
#   %3: float32 = mul %1, %2
#   %4: float32 = const -inf
#   %5: float32 = where %0, %3, %4
#   %6: float32 = max %5
#   %7: float32 = sub %5, %6
#   %8: float32 = exp %7
#   %9: float32 = sum %8
#   %10: float32 = div %8, %9
#   store o0[d0, d1, d2], %10
from numba import cuda

from gpujit.kernels.cuda_device import (
    INF,
    exp,
    float32,
    int32,
    maximum,
    select,
    shuffle_xor,
    udiv,
    urem,
    vload4,
    vstore4,
)


@cuda.jit
def kernel(a1, a0, o0, n0, n1, n2, s0, s1, s2):
    tid = int32(cuda.threadIdx.x)
    thread = int32(tid & 31)
    group = int32(tid >> 5)
    rows = int32(n0 * n1)
    vectors = udiv(n2, int32(4))
    units = int32(vectors)
    stride = int32(cuda.gridDim.x * 4)
    first = int32(cuda.blockIdx.x * 4)
    while first < rows:
        row = int32(first + group)
        has_row = row < rows
        row = select(has_row, row, int32(rows - 1))
        i1 = urem(row, n1)
        rest1 = udiv(row, n1)
        i0 = rest1
        ua = thread
        has_a = has_row and ua < units
        ua = select(ua < units, ua, int32(units - 1))
        i2a = ua
        ata = int32(i2a * 4)
        r6 = float32(-INF)
        offset1 = int32(i1 * s0 + ata)
        v0a_0b, v0a_1b, v0a_2b, v0a_3b = vload4(a1, offset1)
        v0a_0 = v0a_0b != 0
        v0a_1 = v0a_1b != 0
        v0a_2 = v0a_2b != 0
        v0a_3 = v0a_3b != 0
        offset2 = int32(i0 * s1 + i1 * s2 + ata)
        v1a_0, v1a_1, v1a_2, v1a_3 = vload4(a0, offset2)
        v3a_0 = v1a_0 * float32(0.125)
        v3a_1 = v1a_1 * float32(0.125)
        v3a_2 = v1a_2 * float32(0.125)
        v3a_3 = v1a_3 * float32(0.125)
        v5a_0 = select(v0a_0, v3a_0, float32(-INF))
        v5a_1 = select(v0a_1, v3a_1, float32(-INF))
        v5a_2 = select(v0a_2, v3a_2, float32(-INF))
        v5a_3 = select(v0a_3, v3a_3, float32(-INF))
        if has_a:
            r6 = maximum(r6, maximum(maximum(v5a_0, v5a_1), maximum(v5a_2, v5a_3)))
        r6_16x = shuffle_xor(r6, 16)
        r6 = maximum(r6, r6_16x)
        r6_8x = shuffle_xor(r6, 8)
        r6 = maximum(r6, r6_8x)
        r6_4x = shuffle_xor(r6, 4)
        r6 = maximum(r6, r6_4x)
        r6_2x = shuffle_xor(r6, 2)
        r6 = maximum(r6, r6_2x)
        r6_1x = shuffle_xor(r6, 1)
        r6 = maximum(r6, r6_1x)
        r9 = float32(0.0)
        v7a_0 = v5a_0 - r6
        v7a_1 = v5a_1 - r6
        v7a_2 = v5a_2 - r6
        v7a_3 = v5a_3 - r6
        v8a_0 = exp(v7a_0)
        v8a_1 = exp(v7a_1)
        v8a_2 = exp(v7a_2)
        v8a_3 = exp(v7a_3)
        if has_a:
            r9 = r9 + ((v8a_0 + v8a_1) + (v8a_2 + v8a_3))
        r9_16x = shuffle_xor(r9, 16)
        r9 = r9 + r9_16x
        r9_8x = shuffle_xor(r9, 8)
        r9 = r9 + r9_8x
        r9_4x = shuffle_xor(r9, 4)
        r9 = r9 + r9_4x
        r9_2x = shuffle_xor(r9, 2)
        r9 = r9 + r9_2x
        r9_1x = shuffle_xor(r9, 1)
        r9 = r9 + r9_1x
        v10a_0 = v8a_0 / r9
        v10a_1 = v8a_1 / r9
        v10a_2 = v8a_2 / r9
        v10a_3 = v8a_3 / r9
        if has_a:
            vstore4(o0, offset2, v10a_0, v10a_1, v10a_2, v10a_3)
        first = int32(first + stride)
