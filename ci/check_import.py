"""Checks what importing gpujit costs: no heavy package is loaded, and it takes at most 1.5 times importing NumPy."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

HEAVY = ("numba", "llvmlite", "networkx", "cupy", "torch", "scipy", "rich", "jinja2")
LIMIT = 1.5


def seconds(code: str) -> float:
    """Time a fresh interpreter takes for ``code``, its start-up left out."""
    timed = f"import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, check=True).stdout)


def main() -> int:
    code = "import sys, gpujit; print(' '.join(m for m in sys.argv[1:] if m in sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True
    ).stdout.split()
    if loaded:
        print(f"import gpujit loads {loaded}")
        return 1
    code = "import sys, gpujit.api; print(' '.join(m for m in sys.argv[1:] if m in sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True
    ).stdout.split()
    if loaded:
        print(f"import gpujit.api loads {loaded}")
        return 1
    ours, numpys = [], []
    for _ in range(9):
        ours.append(seconds("import gpujit"))
        numpys.append(seconds("import numpy"))
    ratio = median(ours) / median(numpys)
    print(f"import gpujit {median(ours) * 1e3:.1f} ms, import numpy {median(numpys) * 1e3:.1f} ms, ratio {ratio:.2f}")
    return 1 if ratio > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
