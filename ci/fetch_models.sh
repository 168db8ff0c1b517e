#!/usr/bin/env bash
# Downloads the packages that ship TorchScript files, without installing or importing them. Usage: fetch_models.sh DIR
set -euo pipefail
target=$1
mkdir -p "$target"
if [ ! -f "$target/silero_vad.jit" ]; then
    download=$(mktemp -d)
    trap 'rm -rf "$download"' EXIT
    python3 -m pip download -q --no-deps -d "$download" silero-vad==6.2.3
    python3 -m zipfile -e "$download"/silero_vad-*.whl "$download/unpacked"
    cp "$download/unpacked/silero_vad/data/silero_vad.jit" "$target/"
fi
