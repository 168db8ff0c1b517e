"""Refuses tracked files that do not belong in the repository: large ones, build output, machine paths."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MAX_BYTES = 1_000_000
FORBIDDEN = re.compile(r"(^|/)(__pycache__|\.venv[^/]*|build|dist|[^/]*\.egg-info)(/|$)|\.(pyc|so|o|whl)$")
# Home and temporary folders of whoever wrote a line.
MACHINE_PATH = re.compile(rb"/(?:home|Users|root)/[a-z][\w.-]*/|/tmp/(?!x)[a-z]+/")


def main() -> int:
    faults = []
    for name in subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines():
        path = Path(name)
        if not path.is_file():
            continue
        if path.stat().st_size > MAX_BYTES:
            faults.append(f"{name}: {path.stat().st_size} bytes, over {MAX_BYTES}")
        if FORBIDDEN.search(name):
            faults.append(f"{name}: build output")
        if path.suffix in (".py", ".md", ".cfg", ".toml", ".sh", "") and MACHINE_PATH.search(path.read_bytes()):
            faults.append(f"{name}: a path of somebody's machine")
    print("\n".join(faults) or "tree is clean")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
