"""What CUDA kernels call: LLVM intrinsics on a GPU, plain Python in Numba's simulator.

Sources that ``numba_cuda`` writes import from here and from nowhere else, so one source runs in both worlds. Importing
this module imports Numba; ``NUMBA_ENABLE_CUDASIM`` decides once for the whole process.
"""

from __future__ import annotations

from numba import config

SIMULATED = bool(config.ENABLE_CUDASIM)

if SIMULATED:
    from gpujit.kernels.cuda_simulated import *
else:
    from gpujit.kernels.cuda_intrinsics import *
