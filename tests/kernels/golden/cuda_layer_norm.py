# row: 128 threads a block, 64 a row, 4 elements wide, 3 times, 32-bit indexes, warps of 32
# tile(a0: float32[2], a1: float32[1], a2: float32[1]) -> (o0: float32[2], o1: float32[1])
#   for d0 < n0
#   row d1 < n1
#   %0: float32 = load a0[d0, d1]
#   %1: float32 = sum %0
#   %2: float32 = count
#   %3: float32 = div %1, %2
#   %4: float32 = sub %0, %3
#   %5: float32 = mul %4, %4
#   %6: float32 = sum %5
#   %7: float32 = div %6, %2
#   %8: float32 = const 9.999999747378752e-06
#   %9: float32 = add %7, %8
#   %10: float32 = sqrt %9
#   %11: float32 = div %4, %10
#   %12: float32 = load a1[d1]
#   %13: float32 = mul %11, %12
#   %14: float32 = load a2[d1]
#   %15: float32 = add %13, %14
#   store o0[d0, d1], %15
#   store o1[d0], %3
from numba import cuda, types

from gpujit.kernels.cuda_device import (
    float32,
    int32,
    select,
    shuffle_xor,
    sqrt,
    udiv,
    vload4,
    vstore4,
)


@cuda.jit
def kernel(a0, a1, a2, o0, o1, n0, n1, s0):
    tid = int32(cuda.threadIdx.x)
    v2 = float32(n1)
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
        r1 = float32(0.0)
        offset1 = int32(i0 * s0 + ata)
        v0a_0, v0a_1, v0a_2, v0a_3 = vload4(a0, offset1)
        offset2 = int32(i0 * s0 + atb)
        v0b_0, v0b_1, v0b_2, v0b_3 = vload4(a0, offset2)
        offset3 = int32(i0 * s0 + atc)
        v0c_0, v0c_1, v0c_2, v0c_3 = vload4(a0, offset3)
        if has_a:
            r1 = r1 + ((v0a_0 + v0a_1) + (v0a_2 + v0a_3))
        if has_b:
            r1 = r1 + ((v0b_0 + v0b_1) + (v0b_2 + v0b_3))
        if has_c:
            r1 = r1 + ((v0c_0 + v0c_1) + (v0c_2 + v0c_3))
        r1_16x = shuffle_xor(r1, 16)
        r1 = r1 + r1_16x
        r1_8x = shuffle_xor(r1, 8)
        r1 = r1 + r1_8x
        r1_4x = shuffle_xor(r1, 4)
        r1 = r1 + r1_4x
        r1_2x = shuffle_xor(r1, 2)
        r1 = r1 + r1_2x
        r1_1x = shuffle_xor(r1, 1)
        r1 = r1 + r1_1x
        shared0 = cuda.shared.array(4, types.float32)
        if (tid & 31) == 0:
            shared0[tid >> 5] = r1
        cuda.syncthreads()
        r1 = shared0[(tid >> 6) * 2 + (tid & 1)]
        r1_1x = shuffle_xor(r1, 1)
        r1 = r1 + r1_1x
        cuda.syncthreads()
        v3 = r1 / v2
        if has_row and thread == 0:
            o1[i0] = v3
        r6 = float32(0.0)
        v4a_0 = v0a_0 - v3
        v4a_1 = v0a_1 - v3
        v4a_2 = v0a_2 - v3
        v4a_3 = v0a_3 - v3
        v5a_0 = v4a_0 * v4a_0
        v5a_1 = v4a_1 * v4a_1
        v5a_2 = v4a_2 * v4a_2
        v5a_3 = v4a_3 * v4a_3
        v4b_0 = v0b_0 - v3
        v4b_1 = v0b_1 - v3
        v4b_2 = v0b_2 - v3
        v4b_3 = v0b_3 - v3
        v5b_0 = v4b_0 * v4b_0
        v5b_1 = v4b_1 * v4b_1
        v5b_2 = v4b_2 * v4b_2
        v5b_3 = v4b_3 * v4b_3
        v4c_0 = v0c_0 - v3
        v4c_1 = v0c_1 - v3
        v4c_2 = v0c_2 - v3
        v4c_3 = v0c_3 - v3
        v5c_0 = v4c_0 * v4c_0
        v5c_1 = v4c_1 * v4c_1
        v5c_2 = v4c_2 * v4c_2
        v5c_3 = v4c_3 * v4c_3
        if has_a:
            r6 = r6 + ((v5a_0 + v5a_1) + (v5a_2 + v5a_3))
        if has_b:
            r6 = r6 + ((v5b_0 + v5b_1) + (v5b_2 + v5b_3))
        if has_c:
            r6 = r6 + ((v5c_0 + v5c_1) + (v5c_2 + v5c_3))
        r6_16x = shuffle_xor(r6, 16)
        r6 = r6 + r6_16x
        r6_8x = shuffle_xor(r6, 8)
        r6 = r6 + r6_8x
        r6_4x = shuffle_xor(r6, 4)
        r6 = r6 + r6_4x
        r6_2x = shuffle_xor(r6, 2)
        r6 = r6 + r6_2x
        r6_1x = shuffle_xor(r6, 1)
        r6 = r6 + r6_1x
        shared1 = cuda.shared.array(4, types.float32)
        if (tid & 31) == 0:
            shared1[tid >> 5] = r6
        cuda.syncthreads()
        r6 = shared1[(tid >> 6) * 2 + (tid & 1)]
        r6_1x = shuffle_xor(r6, 1)
        r6 = r6 + r6_1x
        cuda.syncthreads()
        v7 = r6 / v2
        v9 = v7 + float32(9.999999747378752e-06)
        v10 = sqrt(v9)
        v11a_0 = v4a_0 / v10
        v11a_1 = v4a_1 / v10
        v11a_2 = v4a_2 / v10
        v11a_3 = v4a_3 / v10
        v12a_0, v12a_1, v12a_2, v12a_3 = vload4(a1, ata)
        v13a_0 = v11a_0 * v12a_0
        v13a_1 = v11a_1 * v12a_1
        v13a_2 = v11a_2 * v12a_2
        v13a_3 = v11a_3 * v12a_3
        v14a_0, v14a_1, v14a_2, v14a_3 = vload4(a2, ata)
        v15a_0 = v13a_0 + v14a_0
        v15a_1 = v13a_1 + v14a_1
        v15a_2 = v13a_2 + v14a_2
        v15a_3 = v13a_3 + v14a_3
        v11b_0 = v4b_0 / v10
        v11b_1 = v4b_1 / v10
        v11b_2 = v4b_2 / v10
        v11b_3 = v4b_3 / v10
        v12b_0, v12b_1, v12b_2, v12b_3 = vload4(a1, atb)
        v13b_0 = v11b_0 * v12b_0
        v13b_1 = v11b_1 * v12b_1
        v13b_2 = v11b_2 * v12b_2
        v13b_3 = v11b_3 * v12b_3
        v14b_0, v14b_1, v14b_2, v14b_3 = vload4(a2, atb)
        v15b_0 = v13b_0 + v14b_0
        v15b_1 = v13b_1 + v14b_1
        v15b_2 = v13b_2 + v14b_2
        v15b_3 = v13b_3 + v14b_3
        v11c_0 = v4c_0 / v10
        v11c_1 = v4c_1 / v10
        v11c_2 = v4c_2 / v10
        v11c_3 = v4c_3 / v10
        v12c_0, v12c_1, v12c_2, v12c_3 = vload4(a1, atc)
        v13c_0 = v11c_0 * v12c_0
        v13c_1 = v11c_1 * v12c_1
        v13c_2 = v11c_2 * v12c_2
        v13c_3 = v11c_3 * v12c_3
        v14c_0, v14c_1, v14c_2, v14c_3 = vload4(a2, atc)
        v15c_0 = v13c_0 + v14c_0
        v15c_1 = v13c_1 + v14c_1
        v15c_2 = v13c_2 + v14c_2
        v15c_3 = v13c_3 + v14c_3
        if has_a:
            vstore4(o0, offset1, v15a_0, v15a_1, v15a_2, v15a_3)
        if has_b:
            vstore4(o0, offset2, v15b_0, v15b_1, v15b_2, v15b_3)
        if has_c:
            vstore4(o0, offset3, v15c_0, v15c_1, v15c_2, v15c_3)
        first = int32(first + stride)
