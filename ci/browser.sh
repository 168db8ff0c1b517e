#!/usr/bin/env bash
# Written pages in a real browser: tests marked "browser". Usage: browser.sh [PYTHON], which has the extra "browser".
# Chromium is taken from the system, or installed with apt-get where that is allowed. Without it nothing is checked,
# which is said, and is a failure when GPUJIT_REQUIRE_BROWSER is set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${1:-python3}

find_browser() {
    local name
    for name in "${GPUJIT_TEST_BROWSER:-}" chromium chromium-browser google-chrome google-chrome-stable; do
        [[ -n $name ]] && command -v "$name" && return
    done
    return 1
}

give_up() {
    echo "NOT CHECKED: $1; no page was opened in a browser" >&2
    [[ -z ${GPUJIT_REQUIRE_BROWSER:-} ]]
    exit
}

if ! find_browser >/dev/null; then
    [[ $(id -u) == 0 ]] || give_up "there is no chromium, and only root may install it"
    command -v apt-get >/dev/null || give_up "there is no chromium, and no apt-get to install it"
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core; } >/dev/null ||
        give_up "chromium could not be installed with apt-get"
    find_browser >/dev/null || give_up "apt-get installed no chromium"
fi
echo "browser: $(find_browser), $("$(find_browser)" --version 2>/dev/null)"
# A browser is there: that its tests are skipped is a fault from here on.
mapfile -t files < <(grep -rl --include='test_*.py' 'mark\.browser' tests)
GPUJIT_REQUIRE_BROWSER=1 "$python" -m pytest -q -p no:cacheprovider -m browser "${files[@]}" --durations=5
