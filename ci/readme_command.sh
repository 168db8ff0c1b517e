#!/usr/bin/env bash
# Runs the README's code block that follows the comment <!-- ci: NAME -->, as a newcomer would, in a copy of the tree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
name=$1
block=$(awk -v mark="<!-- ci: $name -->" '
    $0 == mark { found = 1; next }
    found && /^```/ { if (inside) exit; inside = 1; next }
    inside { print }' README.md)
[ -n "$block" ] || { echo "README.md has no block marked '$name'" >&2; exit 1; }
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z | xargs -0 cp --parents -t "$copy"
cd "$copy"
printf '%s\n' "$block"
bash -euo pipefail -c "$block"
