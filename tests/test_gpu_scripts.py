"""The scripts for a machine with a GPU, as far as they run without one (the rest: ci/cuda_sim.sh, and a GPU)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("llvmlite")

ROOT = Path(__file__).parents[1]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """bench/gpu.py as a module, without time for torch.compile."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    spec = importlib.util.spec_from_file_location("bench_gpu", ROOT / "bench" / "gpu.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.COMPILES = dict.fromkeys(module.COMPILES, float("inf"))
    yield module


@pytest.mark.torch
def test_the_benchmark_compares_on_the_cpu(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    place = bench.Place("cpu", shortest=0.0, rounds=1)
    run = bench.Run(place, True)
    run.ends = time.monotonic() + 600
    with torch.no_grad():
        run.attempt("add", lambda: bench.measure_kernel(run, bench.CASES[0], float("nan")))
        run.attempt("mlp", lambda: bench.measure_model(run, "mlp", 1, "float32"))
    assert run.faults == []
    (kernel,), (model,) = run.rows["kernels"], run.rows["models"]
    assert kernel["bytes"] == 480 and {"gpujit_us", "eager_us", "jit_us"} <= kernel.keys()
    assert {"gpujit_us", "no_graphs_us", "eager_us", "jit_us", "over_jit", "goal"} <= model.keys()
    assert run.skipped == ["add: no time for torch.compile", "mlp, batch 1, float32: no time for torch.compile"]


def test_wrong_results_and_faults_are_found_out(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    run = bench.Run(bench.Place("cpu"), True)
    right = [np.ones(3, np.float32)]
    assert run.right("same", right, right, "float32") and run.faults == []
    assert not run.right("off", [np.full(3, 1.01, np.float32)], right, "float32")
    assert run.right("half", [np.full(3, 1.01, np.float16)], right, "float16")
    for wrong in ([np.full(3, np.nan, np.float32)], [np.ones(4, np.float32)], []):
        assert not run.right("other", wrong, right, "float32")
    run.attempt("broken", lambda: 1 / 0)
    assert len(run.faults) == 5 and run.faults[-1] == "broken: ZeroDivisionError: division by zero"
    run.ends = 0.0
    run.attempt("late", lambda: 1 / 0)
    assert run.skipped == ["late: no time is left"]


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="all that it needs may be here")
def test_without_packages_nothing_is_checked_and_it_says_so(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "ci" / "gpu_run.py"), "--json", str(tmp_path / "out.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "packages are missing: " in done.stderr
    assert not (tmp_path / "out.json").exists()
