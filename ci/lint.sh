#!/usr/bin/env bash
# Style, types and import contracts. Usage: lint.sh [PYTHON]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${1:-python3}
bin=$(dirname "$(command -v "$python")")
"$bin/ruff" check gpujit tests ci bench examples
"$bin/mypy"
"$bin/lint-imports"
"$python" ci/check_tree.py
"$python" ci/make_operators_md.py --check
