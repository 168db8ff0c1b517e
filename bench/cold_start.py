"""Cold start: from a process's start to its first result, for each way to run a TorchScript file.

Usage: python bench/cold_start.py [--only silero,resnet18] [--rounds 7] [--silero silero_vad.jit] [--no-compile]

Each measurement is a process of its own that imports the library, loads the file, makes one call and says that it has
the result; the time is the wall clock of the parent, from before the process is started. Rounds are interleaved,
medians in milliseconds. Beside it stands the process's processor time, which other work on the machine changes less.
``warm`` and ``cold`` tell whether compiled kernels are on disk already: gpujit's, and for
torch.compile those of its own cache.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]

_START = "import sys, numpy as np; path = sys.argv[1]; rest = [16000] if 'silero' in path else []\n"
_ARRAY = "x = np.load(path[:-2] + 'npz')['arr_0']\n"
_TENSOR = _ARRAY + "import torch; torch.set_num_threads(1); x = torch.from_numpy(x)\n"
_DONE = "\nprint('done', flush=True); import os; os._exit(0)"

INTERPRETED = "import gpujit; m = gpujit.load(path); m(x, *rest)"
PLANNED = "import gpujit; m = gpujit.optimize_for_inference(gpujit.load(path)); m(x, *rest)"
JIT = "m = torch.jit.load(path)\nwith torch.no_grad(): m(x, *rest)"
FROZEN = "m = torch.jit.optimize_for_inference(torch.jit.load(path).eval())\nwith torch.no_grad(): m(x, *rest)"
COMPILED = """
sys.path.insert(0, BENCH)
from pathlib import Path
from model_cases import built
m = torch.compile(built(Path(path).stem)[0])
with torch.no_grad(): m(x)"""
ONNX = """
import onnxruntime as o
options = o.SessionOptions(); options.intra_op_num_threads = 1
s = o.InferenceSession(path[:-2] + 'onnx', options, providers=['CPUExecutionProvider'])
names = [i.name for i in s.get_inputs()]
if rest: s.run(None, {'input': np.concatenate([np.zeros((1, 64), np.float32), x], 1),
                      'state': np.zeros((2, 1, 128), np.float32), 'sr': np.array(16000)})
else: s.run(None, {names[0]: x})"""

# Name, program, and the variable of the folder that has to be empty for a cold start.
WAYS = (
    ("gpujit, interpreter", _ARRAY + INTERPRETED, None),
    ("gpujit planned, warm", _ARRAY + PLANNED, None),
    ("gpujit planned, cold", _ARRAY + PLANNED, "GPUJIT_CACHE_DIR"),
    ("torch.jit", _TENSOR + JIT, None),
    ("torch.jit, optimised", _TENSOR + FROZEN, None),
    ("torch.compile, warm", _TENSOR + COMPILED, None),
    ("torch.compile, cold", _TENSOR + COMPILED, "TORCHINDUCTOR_CACHE_DIR"),
    ("onnx runtime", _ARRAY + ONNX, None),
)


def seconds(program: str, path: Path, environment: dict[str, str]) -> tuple[float, float] | None:
    """Wall clock until a process says that it has its result, and its processor time; None when it fails."""
    program = _START + program.replace("BENCH", repr(str(ROOT / "bench"))) + _DONE
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        answer = process.stdout.readline()
        took = time.perf_counter() - start
        if answer.strip() != b"done":
            print(process.stderr.read().decode(errors="replace")[-400:], file=sys.stderr)
            return None
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
    return took, usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="silero,resnet18", help="cases, separated by commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--silero", type=Path, default=ROOT / ".ci-work" / "models" / "silero_vad.jit")
    parser.add_argument("--folder", type=Path, help="where the models are kept; by default they are made anew")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    arguments = parser.parse_args()
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "GPUJIT_THREADS")
    common = {**os.environ, **dict.fromkeys(names, "1"), "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.folder or Path(made, "models")
        cases = [sys.executable, str(ROOT / "bench" / "model_cases.py"), str(folder), "--only", arguments.only]
        subprocess.run([*cases, "--silero", str(arguments.silero)], check=True, env=common)
        # Installed packages have compiled bytecode: so has this checkout, from the first round on.
        common.pop("PYTHONDONTWRITEBYTECODE", None)
        common["PYTHONPYCACHEPREFIX"] = str(Path(made, "bytecode"))
        warm = {v: str(Path(made, v)) for _, _, v in WAYS if v is not None}
        print("| case | way | ms | processor ms |\n| --- | --- | ---: | ---: |")
        for case in arguments.only.split(","):
            path = folder / f"{case}.pt"
            ways = [w for w in WAYS if path.exists() and (arguments.compile or "compile" not in w[0])]
            ways = [w for w in ways if not ("compile" in w[0] and case == "silero")]
            found: dict[str, list[tuple[float, float]]] = {}
            # The first round fills the caches and does not count.
            for number in range(arguments.rounds + 1):
                for name, program, variable in ways:
                    slow = variable == "TORCHINDUCTOR_CACHE_DIR"
                    if slow and number > 2:
                        continue
                    with tempfile.TemporaryDirectory() as empty:
                        took = seconds(program, path, common | warm | ({variable: empty} if variable else {}))
                    if number and took is not None:
                        found.setdefault(name, []).append(took)
            for name, times in found.items():
                wall, own = (median(t[k] for t in times) * 1e3 for k in (0, 1))
                print(f"| {case} | {name} | {wall:,.0f} | {own:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
