"""The largest error of float32 vector functions over every bit pattern, in ulp.

    python ci/sweep_math.py                      all functions of one argument: hours
    python ci/sweep_math.py --step 997 exp tanh  every 997th pattern of two of them: seconds
    python ci/sweep_math.py --portable           without AVX-512's instructions, eight lanes

Exits 1 if a function is more than 2 ulp off. gelu and gelu_tanh count in ulp of their argument where that is kinder.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpujit.kernels.math import FUNCTIONS
from gpujit.kernels.target import host
from tests.kernels.math_reference import REFERENCE, apply, build, worst

BLOCK = 1 << 22


def largest(name: str, step: int, lanes: int, avx512: bool | None) -> tuple[float, str]:
    """The largest error of one function, and a line that says where."""
    kernel = build(name, "float32", lanes, avx512)
    result = (-1.0, "")
    for start in range(0, 1 << 32, BLOCK * step):
        bits = np.arange(start, min(start + BLOCK * step, 1 << 32), step, dtype=np.uint64)
        x = bits.astype(np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            want = REFERENCE[name](x.astype(np.float64))
        result = max(result, worst(name, apply(kernel, x), want, x))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="FUNCTION")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--portable", action="store_true")
    options = parser.parse_args()
    lanes, avx512 = (8, False) if options.portable else (host().width, None)
    failed = 0
    for name in options.names or [n for n, f in FUNCTIONS.items() if f.arity == 1]:
        error, text = largest(name, options.step, lanes, avx512)
        failed += error > 2
        print(f"{error:5.2f}  {text}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
