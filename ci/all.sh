#!/usr/bin/env bash
# Lint, types, import contracts; the README's own two commands; tests with PyTorch as the judge; conformance; corpus.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
work=${CI_WORK:-$PWD/.ci-work}
mkdir -p "$work"

step() { printf '\n=== %s (%ss)\n' "$1" "$SECONDS"; }

step "README: run the example"
bash ci/readme_command.sh run
step "README: install and test"
bash ci/readme_command.sh test

step "environment for the checks"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q -e '.[test,dev]'
python=$work/venv/bin/python

step "lint, types, import contracts"
bash ci/lint.sh "$python"
step "install size and import time"
"$python" ci/check_import.py

step "CUDA kernels: simulator, machine code for sm_80 and sm_90"
python3 -m venv "$work/cuda"
"$work/cuda/bin/pip" install -q -e '.[cuda,test]'
bash ci/cuda_sim.sh "$work/cuda/bin/python"
bash ci/cuda_compile.sh "$work/cuda/bin/python"

step "real models nobody here wrote"
bash ci/fetch_models.sh "$work/models"
export GPUJIT_TEST_MODELS=$work/models

step "tests with PyTorch as the judge"
"$work/venv/bin/pip" install -q torch==2.13.0 expecttest
"$python" -m pytest -q -m 'torch or not torch' --durations=10
step "interpreter against PyTorch, one run"
"$python" bench/silero.py "$work/models/silero_vad.jit"
step "every operator of PyTorch's operator database"
"$python" ci/opinfo.py
printf '\n=== done (%ss)\n' "$SECONDS"
