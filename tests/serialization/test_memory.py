"""Weights are mapped: loading a large file must not cost memory of its size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.programs import archive, forward, module

MEGABYTES = 100

# Measured in a process of its own, whose peak nothing else has raised.
PROGRAM = """
import sys
import gpujit
module = gpujit.load(sys.argv[1])
assert module.weight.nbytes == int(sys.argv[2])
# getrusage would give the peak of the process this one was forked from, when that is larger.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) * 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from Linux's /proc")
def test_loading_100_megabytes_copies_no_weights(tmp_path: Path) -> None:
    weight = np.zeros((MEGABYTES << 18,), np.float32)
    weight[::4096] = 1.5
    body = "return torch.add(x, torch.select(self.weight, 0, 0))"
    source = module(forward("x: Tensor", body), "weight : Tensor", parameters=["weight"])
    path = tmp_path / "large.pt"
    path.write_bytes(archive(source, {"weight": weight}))
    size = path.stat().st_size
    assert size > MEGABYTES << 20
    command = [sys.executable, "-c", PROGRAM, str(path), str(weight.nbytes)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    peak = int(ran.stdout)
    # The interpreter, NumPy and gpujit are in there too.
    assert peak < 1.3 * size, f"peak {peak >> 20} MB for a file of {size >> 20} MB"


def test_writing_to_a_mapped_weight_leaves_the_file_alone(tmp_path: Path) -> None:
    import gpujit

    body = "_0 = torch.add_(self.weight, x)\nreturn torch.sum(self.weight)"
    source = module(forward("x: Tensor", body), "weight : Tensor", parameters=["weight"])
    path = tmp_path / "small.pt"
    path.write_bytes(archive(source, {"weight": np.zeros(1000, np.float32)}))
    before = path.read_bytes()
    loaded = gpujit.load(path)
    assert float(loaded(np.float32(2.0))) == 2000.0
    assert float(loaded(np.float32(1.0))) == 3000.0
    assert path.read_bytes() == before
    assert float(gpujit.load(path)(np.float32(0.0))) == 0.0
