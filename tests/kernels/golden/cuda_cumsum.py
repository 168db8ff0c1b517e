# row: 256 threads a block, 256 a row, 1 elements wide, 32-bit indexes, warps of 32
# tile(a0: float32[2]) -> (o0: float32[2])
#   for d0 < n0
#   row d1 < n1
#   %0: float32 = load a0[d0, d1]
#   %1: float32 = cumsum %0
#   store o0[d0, d1], %1
from numba import cuda, types

from gpujit.kernels.cuda_device import (
    float32,
    int32,
    select,
    shuffle_up,
)


@cuda.jit
def kernel(a0, o0, n0, n1, s0):
    tid = int32(cuda.threadIdx.x)
    thread = int32(tid & 255)
    rows = int32(n0)
    units = int32(n1)
    stride = int32(cuda.gridDim.x * 1)
    row = int32(cuda.blockIdx.x)
    while row < rows:
        i0 = row
        carry1 = float32(0.0)
        start = int32(0)
        while start < units:
            u = int32(start + thread)
            has_one = u < units
            u = select(has_one, u, int32(units - 1))
            i1 = u
            offset1 = int32(i0 * s0 + i1)
            v0 = a0[offset1]
            v1 = select(has_one, v0, float32(0.0))
            v1_1 = shuffle_up(v1, 1)
            v1 = select((thread & 31) >= 1, v1_1 + v1, v1)
            v1_2 = shuffle_up(v1, 2)
            v1 = select((thread & 31) >= 2, v1_2 + v1, v1)
            v1_4 = shuffle_up(v1, 4)
            v1 = select((thread & 31) >= 4, v1_4 + v1, v1)
            v1_8 = shuffle_up(v1, 8)
            v1 = select((thread & 31) >= 8, v1_8 + v1, v1)
            v1_16 = shuffle_up(v1, 16)
            v1 = select((thread & 31) >= 16, v1_16 + v1, v1)
            shared0 = cuda.shared.array(8, types.float32)
            if (tid & 31) == 31:
                shared0[tid >> 5] = v1
            cuda.syncthreads()
            for warp in range(8):
                v1_w = shared0[0 + warp]
                if warp < (thread >> 5):
                    v1 = v1_w + v1
            v1 = carry1 + v1
            for warp in range(8):
                carry1 = carry1 + shared0[0 + warp]
            cuda.syncthreads()
            if has_one:
                o0[offset1] = v1
            start = int32(start + 256)
        row = int32(row + stride)
