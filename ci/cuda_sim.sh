#!/usr/bin/env bash
# What needs a GPU, in Numba's simulator: kernels against the NumPy renderer, plans against the CPU, and the script for a
# GPU on a few tiny cases. No GPU, no driver. Usage: cuda_sim.sh [PYTHON]
# Apart from cuda_compile.sh: a process has either the simulator or the compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${1:-python3}
export NUMBA_ENABLE_CUDASIM=1 OMP_NUM_THREADS=1
"$python" -m pytest -q tests/kernels/test_numba_cuda.py tests/kernels/test_cuda_steps.py \
    tests/kernels/test_cuda_split.py tests/static_runtime/test_device_makers.py \
    tests/static_runtime/test_device_layers.py tests/static_runtime/test_device_sim.py \
    tests/static_runtime/test_device_sorts.py tests/static_runtime/test_device_scatters.py \
    tests/static_runtime/test_device_timer.py tests/static_runtime/test_device_written_sim.py \
    tests/cli/test_bench_device.py --durations=5
exec bash ci/gpu.sh "$python" --dry-run
