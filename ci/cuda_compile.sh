#!/usr/bin/env bash
# CUDA kernels to machine code for sm_80 and sm_90, and what can be said of it. No GPU, no driver.
# Needs what pip install '.[cuda,test]' brings. Usage: cuda_compile.sh [PYTHON [MODELS]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${1:-python3}
# Has silero_vad.jit, whose plans are checked as well (ci/fetch_models.sh).
models=${2:-}
export OMP_NUM_THREADS=1
"$python" -m pytest -q tests/kernels/test_cuda_render.py tests/kernels/test_cuda_intrinsics.py tests/kernels/test_cuda_cache.py \
    tests/cli/test_warm.py tests/profiler/test_device_machine.py
"$python" ci/check_cuda_kernels.py --self-test
"$python" ci/check_cuda_kernels.py --vocabulary
"$python" ci/check_cuda_kernels.py
"$python" ci/check_cuda_models.py ${models:+--models "$models"}
