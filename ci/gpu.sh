#!/usr/bin/env bash
# Everything that needs a GPU, in at most six minutes, from a clean tree: ci/gpu_run.py says what, and prints one table.
# Needs numba, numba-cuda, cupy, networkx, and for comparisons torch; nvmath-python for products inside of CUDA graphs;
# nvidia-cudnn-frontend and cuDNN for convolutions and attention by cuDNN, which are left out without.
#   gpu.sh [PYTHON] [OPTIONS of gpu_run.py]     run; exit status 0, 1 (something is wrong) or 2 (no GPU, no packages)
#   gpu.sh --prepare [PYTHON]                   fetch what is small and often absent to .ci-work/gpu-packages, for a
#                                               machine with the same Python that has no network
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
packages=$PWD/.ci-work/gpu-packages
if [ "${1:-}" = --prepare ]; then
    "${2:-python3}" -m pip install -q --upgrade --target "$packages" --no-deps \
        ml_dtypes pytest iniconfig pluggy packaging pygments hypothesis sortedcontainers rich markdown-it-py mdurl \
        nvidia-cudnn-frontend
    echo "fetched to $packages"
    exit 0
fi
python=python3
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
    python=$1
    shift
fi
# What the image has comes first.
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
[ ! -d "$packages" ] || export PYTHONPATH=$site:$packages${PYTHONPATH:+:$PYTHONPATH}
export PYTHONDONTWRITEBYTECODE=1
models=.ci-work/models
[ ! -f "$models/silero_vad.jit" ] || set -- --models "$models" "$@"
exec "$python" ci/gpu_run.py "$@"
