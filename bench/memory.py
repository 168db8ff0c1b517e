"""Memory: the most that a process ever held for one model, and whether new input sizes make it hold more and more.

Usage: python bench/memory.py [--only resnet18,bert] [--silero silero_vad.jit] [--sizes 500]

First a table of the peak resident memory (MB) of processes that load a model and call it ten times: gpujit planned
and interpreted, torch.jit, ONNX Runtime. Beside it the same for a process that only imports the library. Then
``--sizes`` different input sizes for one module, in one process: resident memory after each tenth of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = "silero,mlp_b1,lstm,resnet18,mobilenet_v3_small,bert"

_START = """
import sys, numpy as np
path = sys.argv[1]; rest = [16000] if 'silero' in path else []
with np.load(path[:-2] + 'npz') as stored: given = [stored[k] for k in stored.files]
"""
_GPUJIT = "import gpujit\n"
_TORCH = "import torch; torch.set_num_threads(1); torch.set_grad_enabled(False)\n"
_ONNX = "import onnxruntime as o\n"
WAYS = {
    "gpujit planned": (
        _GPUJIT,
        "m = gpujit.optimize_for_inference(gpujit.load(path))\nfor _ in range(10): m(*given, *rest)",
    ),
    "gpujit interpreter": (_GPUJIT, "m = gpujit.load(path)\nfor _ in range(10): m(*given, *rest)"),
    "torch.jit": (
        _TORCH,
        "m = torch.jit.load(path).eval()\nm = m if rest else torch.jit.freeze(m)\n"
        "given = [torch.from_numpy(x) for x in given]\nfor _ in range(10): m(*given, *rest)",
    ),
    "onnx runtime": (
        _ONNX,
        "options = o.SessionOptions(); options.intra_op_num_threads = 1\n"
        "s = o.InferenceSession(path[:-2] + 'onnx', options, providers=['CPUExecutionProvider'])\n"
        "feed = dict(zip([i.name for i in s.get_inputs()], given))\n"
        "if rest: feed = {'input': np.concatenate([np.zeros((1, 64), np.float32), *given], 1),\n"
        "                 'state': np.zeros((2, 1, 128), np.float32), 'sr': np.array(16000)}\n"
        "for _ in range(10): s.run(None, feed)",
    ),
}

SIZES = """
import sys, numpy as np, gpujit
path, count = sys.argv[1], int(sys.argv[2])
with np.load(path[:-2] + 'npz') as stored: x = stored['arr_0']
m = gpujit.optimize_for_inference(gpujit.load(path))
def resident():
    with open('/proc/self/statm') as file: return int(file.read().split()[1]) * 4096 / 1e6
random = np.random.default_rng(0)
for number, i in enumerate(random.permutation(count)):
    # Rows of a matrix, or pixels of an image.
    shape = (i + 1, *x.shape[1:]) if x.ndim == 2 else (1, 3, 32 + i % 25, 32 + i // 25)
    m(random.standard_normal(shape, dtype=np.float32))
    if (number + 1) % max(1, count // 10) == 0: print(f'{resident():.0f}', end=' ', flush=True)
print()
"""


def peak(program: str, path: Path, environment: dict[str, str]) -> float | None:
    """MB that a process held at most; None when it fails."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        print(errors.decode(errors="replace")[-300:], file=sys.stderr)
        return None
    return usage.ru_maxrss / 1024 * 1.048576


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=DEFAULT, help="cases, separated by commas")
    parser.add_argument("--silero", type=Path, default=ROOT / ".ci-work" / "models" / "silero_vad.jit")
    parser.add_argument("--folder", type=Path, help="where the models are kept; by default they are made anew")
    parser.add_argument("--sizes", type=int, default=500, help="input sizes for one module; 0 leaves that out")
    arguments = parser.parse_args()
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "GPUJIT_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, "1"), "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.folder or Path(made)
        make = [sys.executable, str(ROOT / "bench" / "model_cases.py"), str(folder)]
        wanted = f"{arguments.only},mlp_b64,resnet18" if arguments.sizes else arguments.only
        subprocess.run([*make, "--only", wanted, "--silero", str(arguments.silero)], check=True, env=environment)
        print(f"| case | {' | '.join(WAYS)} |\n| --- |{' ---: |' * len(WAYS)}")
        cases = [folder / f"{case}.pt" for case in arguments.only.split(",")]
        for name, path in (("(import)", cases[0]), *((p.stem, p) for p in cases if p.exists())):
            found = []
            for start, body in WAYS.values():
                # Compiled kernels are on disk from the first of two runs on.
                runs = [peak(_START + start + (body if name == path.stem else ""), path, environment) for _ in range(2)]
                found.append("-" if runs[1] is None else f"{runs[1]:,.0f}")
            print(f"| {name} | {' | '.join(found)} |", flush=True)
        for case in ("mlp_b64", "resnet18") if arguments.sizes else ():
            print(f"\n{case}: MB after each tenth of {arguments.sizes} sizes: ", end="", flush=True)
            program = [sys.executable, "-c", SIZES, str(folder / f"{case}.pt"), str(arguments.sizes)]
            subprocess.run(program, check=True, env=environment)


if __name__ == "__main__":
    main()
