#!/usr/bin/env bash
# The documentation as web pages, with every warning an error. Needs the extra docs. Usage: docs.sh [PYTHON] [TARGET]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${1:-python3}
"$python" -m sphinx -W --keep-going -q -j auto -b html docs "${2:-build/docs}"
echo "documentation built"
