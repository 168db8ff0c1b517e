#!/usr/bin/env bash
# Downloads the packages that ship TorchScript files, without installing or importing them. Usage: fetch_models.sh DIR
set -euo pipefail
target=$1
mkdir -p "$target"
download=$(mktemp -d)
trap 'rm -rf "$download"' EXIT

# fetch REQUIREMENT FILE...: copies the named files of a package to the target, unless all of them are there.
fetch() {
    local requirement=$1 file missing=
    shift
    for file in "$@"; do
        [ -f "$target/$(basename "$file")" ] || missing=yes
    done
    [ -n "$missing" ] || return 0
    local work=$download/${requirement%%=*}
    python3 -m pip download -q --no-deps -d "$work" "$requirement"
    python3 -m zipfile -e "$work"/*.whl "$work/unpacked"
    for file in "$@"; do
        cp "$work/unpacked/$file" "$target/"
    done
}

fetch silero-vad==6.2.3 silero_vad/data/silero_vad.jit
fetch silero-stress==1.5 silero_stress/data/accentor.pt silero_stress/data/accentor-ukr.pt silero_stress/data/accentor-bel.pt
