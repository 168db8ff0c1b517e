#!/usr/bin/env bash
# Lint, types, import contracts; the README's own two commands; tests with PyTorch as the judge; conformance; corpus.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Several processes share the tests: more threads in each would only wait for one another.
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
work=${CI_WORK:-$PWD/.ci-work}
mkdir -p "$work"

step() { printf '\n=== %s (%ss)\n' "$1" "$SECONDS"; }

# One processor's work that runs beside the steps: NAME COMMAND..., and later what it printed, or failure.
beside() { "${@:2}" >"$work/$1.log" 2>&1 & pids[$1]=$!; }
outcome() {
    step "$1"
    wait "${pids[$1]}" || { cat "$work/$1.log"; exit 1; }
    tail -n 20 "$work/$1.log"
}
declare -A pids
trap 'kill "${pids[@]}" 2>/dev/null || true' EXIT

# Kernels in the simulator, and machine code for sm_80 and sm_90.
cuda() {
    python3 -m venv "$work/cuda"
    "$work/cuda/bin/pip" install -q -e '.[cuda,test]'
    bash ci/cuda_sim.sh "$work/cuda/bin/python"
    bash ci/cuda_compile.sh "$work/cuda/bin/python" "$work/models"
}

# Written pages in a browser.
browser() {
    python3 -m venv "$work/browser"
    "$work/browser/bin/pip" install -q -e '.[test,browser]'
    bash ci/browser.sh "$work/browser/bin/python"
}

step "real models nobody here wrote"
bash ci/fetch_models.sh "$work/models"
step "README: run the example"
bash ci/readme_command.sh run
beside cuda cuda
step "README: install and test"
bash ci/readme_command.sh test

step "environment for the checks"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q -e '.[test,dev,docs]'
python=$work/venv/bin/python

step "lint, types, import contracts"
bash ci/lint.sh "$python"
step "documentation"
bash ci/docs.sh "$python" "$work/docs"
step "install size and import time"
"$python" ci/check_import.py
export GPUJIT_TEST_MODELS=$work/models
outcome cuda
beside browser browser

"$work/venv/bin/pip" install -q torch==2.13.0 expecttest
# Every operator of PyTorch's operator database.
beside opinfo "$python" ci/opinfo.py
step "tests with PyTorch as the judge"
"$python" -m pytest -q -n auto -m 'torch or not torch' --durations=10
outcome opinfo
outcome browser
step "interpreter against PyTorch, one run"
"$python" bench/silero.py "$work/models/silero_vad.jit"
printf '\n=== done (%ss)\n' "$SECONDS"
