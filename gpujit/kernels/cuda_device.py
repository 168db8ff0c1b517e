"""What CUDA kernels call: LLVM intrinsics on a GPU, plain Python in Numba's simulator.

Sources that ``numba_cuda`` writes import from here and from nowhere else, so one source runs in both worlds. Importing
this module imports Numba; ``NUMBA_ENABLE_CUDASIM`` decides once for the whole process.
"""

from __future__ import annotations

import importlib
from typing import Any

import numba

from gpujit.kernels.cuda_ops import DEVICE_NAMES

_settings: Any = numba.config
SIMULATED = bool(_settings.ENABLE_CUDASIM)
# Only one of the two can be imported in a process.
_functions = importlib.import_module(f"gpujit.kernels.cuda_{'simulated' if SIMULATED else 'intrinsics'}")
globals().update({name: getattr(_functions, name) for name in DEVICE_NAMES})
