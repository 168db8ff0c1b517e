"""``gpujit warm``: kernels of plans for GPUs that are not here, and for the CPU; what is reported, what goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import gpujit
from gpujit.cli.main import main
from gpujit.cli.warm import architectures
from gpujit.kernels import build, cuda_cache, supply
from gpujit.kernels.cuda_cache import Compiled
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError, DeviceError, InternalError
from tests.kernels.cache_help import forget, own_cache
from tests.programs import archive, forward, module

ROOT = Path(__file__).parents[2]
# A sum in registers, a product and what follows it; and a method with a state that makes two plans.
SOURCE = module(
    forward("x: Tensor, w: Tensor", "return torch.relu(torch.add(torch.mm(x, w), torch.exp(torch.neg(w))))")
    + "def other(self: __torch__.M, a: Tensor) -> Tensor:\n  return torch.softmax(a, 1)\n"
    + "def unknown(self: __torch__.M, a: Tensor) -> Tensor:\n  return torch.cummax(a, -1)[0]\n"
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "m.pt").write_bytes(archive(SOURCE, {}))
    return str(tmp_path / "m.pt")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, and nothing in memory."""
    with own_cache(tmp_path / "kernels", monkeypatch) as found:
        yield found


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A compiler that takes all but kernels with an exponential for sm_80; and what it compiled."""
    found: list[str] = []

    def compile_source(source: str, arguments: Any, capability: tuple[int, int], block: int) -> Compiled:
        if "exp(" in source and capability == (8, 0):
            raise ValueError("no exponentials")
        found.append(source)
        return Compiled("entry", source.encode(), 0.25)

    made = SimpleNamespace(compile_source=compile_source, supported=lambda: [(8, 0), (9, 0)])
    monkeypatch.setattr(cuda_cache, "_compiler", lambda: made)
    monkeypatch.setattr(cuda_cache, "toolchain", lambda: "numba-cuda 0.30.0")
    return found


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["warm", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_kernels_are_compiled_once_for_each_gpu(
    path: str,
    folder: Path,
    compiler: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = (path, "4x8", "--method", "other", "--arch", "sm_90", "--json")
    code, out, _ = call(capsys, *arguments)
    found = json.loads(out)
    assert code == 0 and found["failures"] == [] and found["plans"] == 1 and found["launches"] == 1
    assert found["architectures"] == [
        {"architecture": "sm_90", "kernels": 1, "compiled": 1, "cached": 0, "failed": 0, "seconds": 0.25}
    ]
    assert found["cache"] == str(folder) and len(compiler) == 1 and len(list(folder.rglob("*.cubin"))) == 1
    forget(monkeypatch)
    (row,) = json.loads(call(capsys, *arguments)[1])["architectures"]
    assert (row["cached"], row["compiled"], len(compiler)) == (1, 0, 1)
    # Other sizes of the same kind are the same kernel.
    (row,) = json.loads(call(capsys, path, "8x8", *arguments[2:])[1])["architectures"]
    assert (row["cached"], row["compiled"], len(compiler)) == (1, 0, 1)


def test_failures_name_the_group_and_its_line(
    path: str, compiler: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(capsys, path, "4x4", "4x4", "--arch", "sm_80,sm_90", "--json")
    found = json.loads(out)
    assert code == 4
    rows = {row["architecture"]: row for row in found["architectures"]}
    assert found["library_calls"] == 1 and found["launches"] >= 1
    assert rows["sm_80"]["failed"] == 1 and rows["sm_90"]["failed"] == 0 and rows["sm_90"]["compiled"] > 0
    (fault,) = found["failures"]
    assert fault["architecture"] == "sm_80" and "exp" in fault["group"] and "code/__torch__.py:" in fault["place"]
    assert "cannot be compiled for sm_80: ValueError: no exponentials" in fault["reason"]
    code, out, _ = call(capsys, path, "4x4", "4x4", "--arch", "sm_80")
    assert code == 4 and "sm_80: no kernel for " in out and " at code/__torch__.py:" in out


def test_what_runs_on_the_host_is_told(path: str, compiler: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, path, "4x4", "--method", "unknown", "--arch", "sm_90", "--json")
    host = json.loads(out)["host"]
    assert code == 0 and [h["group"] for h in host] == ["aten::cummax"] and host[0]["reason"]
    out = call(capsys, path, "4x4", "--method", "unknown", "--arch", "sm_90")[1]
    assert "1 operators have no step on a GPU" in out


def test_what_has_no_plan_on_a_gpu_is_told(
    tmp_path: Path, compiler: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.pt").write_bytes(archive(module(forward("x: Tensor", "return torch.add_(x, 1)")), {}))
    code, out, _ = call(capsys, str(tmp_path / "m.pt"), "4", "--arch", "sm_90", "--json")
    found = json.loads(out)
    assert code == 4 and found["plans"] == 0 and "writes into its input" in found["unplanned"][0]
    assert "no plan on a GPU: " in call(capsys, str(tmp_path / "m.pt"), "4", "--arch", "sm_90")[1]


def test_the_cpu_is_warmed_when_nothing_else_is_said(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = call(capsys, path, "4x8", "--method", "other", "--json")
    (row,) = json.loads(out)["architectures"]
    assert code == 0 and row["architecture"] == "cpu" and row["compiled"] > 0 and row["failed"] == 0
    forget(monkeypatch)
    (row,) = json.loads(call(capsys, path, "4x8", "--method", "other", "--json")[1])["architectures"]
    assert row["cached"] > 0 and row["compiled"] == 0
    # What was warmed is what a call needs.
    forget(monkeypatch)
    before = supply.counters.compiled
    fast = gpujit.optimize_for_inference(gpujit.load(path), ["other"])
    fast.methods["other"](np.ones((4, 8), np.float32))
    assert supply.counters.compiled == before


@pytest.mark.filterwarnings("ignore::gpujit.support.errors.FusionWarning")
def test_groups_without_a_kernel_are_failures(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(nest: Any, name: str) -> build.Built:
        raise InternalError("no such instruction")

    monkeypatch.setattr(build, "build", refuse)
    code, out, _ = call(capsys, path, "4x8", "--method", "other", "--json")
    (row,), (fault,) = json.loads(out)["architectures"], json.loads(out)["failures"]
    assert code == 4 and row["failed"] == 1 and fault["architecture"] == "cpu"
    assert fault["group"] == "softmax" and fault["place"].startswith("code/__torch__.py:")


def test_a_state_is_as_it_was_and_every_plan_is_made(
    tmp_path: Path, compiler: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    source = module(
        forward(
            "x: Tensor",
            "if torch.eq(self.n, 0):\n  _0 = torch.exp2(x)\nelse:\n  _0 = torch.tanh(x)\n"
            "self.n = torch.add(self.n, 1)\nreturn _0",
        ),
        "n : int",
    )
    (tmp_path / "m.pt").write_bytes(archive(source, {"n": 0}))
    code, out, _ = call(capsys, str(tmp_path / "m.pt"), "8", "--arch", "sm_90", "--json")
    found = json.loads(out)
    assert code == 0 and found["plans"] >= 2, out
    text = "".join(compiler)
    assert "exp2(" in text and "tanh(" in text


def test_the_table_for_people(path: str, compiler: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, path, "4x8", "--method", "other", "--arch", "sm_90,cpu")
    lines = out.splitlines()
    assert (code, err) == (0, "") and lines[0].split() == [
        "architecture",
        "kernels",
        "cached",
        "compiled",
        "failed",
        "time",
    ]
    assert [line.split()[0] for line in lines[1:3]] == ["cpu", "sm_90"] and "kept in" in lines[-1]
    with config(cache=False):
        assert "not kept" in call(capsys, path, "4x8", "--method", "other", "--arch", "sm_90")[1]


@pytest.mark.parametrize("text", ["", ",", "sm_", "90", "sm_90;sm_80", "gpu", "sm_9a", "sm_90,\x1b[31m"])
def test_what_is_no_architecture(path: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, path, "4x8", "--arch", text)
    assert code == 2 and "architecture" in err and "\x1b" not in err


def test_architectures() -> None:
    assert architectures("sm_80, cpu,sm_120,sm_80") == {"sm_80": (8, 0), "cpu": None, "sm_120": (12, 0)}
    with pytest.raises(ArgumentError):
        architectures(" ")


def test_a_gpu_that_no_compiler_knows(path: str, compiler: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, path, "4x8", "--arch", "sm_30")
    assert code == 2 and "compiles nothing for sm_30, but for sm_80, sm_90" in err


def test_without_the_extra_the_command_says_what_to_install(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise DeviceError("numba-cuda is not installed: pip install 'gpujit[cuda]'")

    monkeypatch.setattr(cuda_cache, "toolchain", missing)
    code, _, err = call(capsys, path, "4x8", "--arch", "sm_90")
    assert code == 4 and "error[device]" in err and "pip install 'gpujit[cuda]'" in err


@pytest.mark.parametrize(
    ("arguments", "code"), [(("4x8",), 2), (("4x8", "4x9"), 4), (("4x8", "4x8", "--method", "none"), 2)]
)
def test_bad_input(
    path: str, compiler: list[str], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int
) -> None:
    assert call(capsys, path, *arguments, "--arch", "sm_90")[0] == code


def test_a_file_that_is_none(tmp_path: Path, compiler: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.pt").write_bytes(b"no model")
    assert call(capsys, str(tmp_path / "x.pt"), "4", "--arch", "sm_90")[0] == 3


@pytest.mark.skipif(
    find_spec("numba_cuda") is None or os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", reason="numba-cuda compiles it"
)
def test_a_model_is_warmed_without_a_gpu(path: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, path, "8x8", "8x8", "--arch", "sm_80,sm_90", "--json")
    found = json.loads(out)
    assert code == 0 and [r["compiled"] > 0 for r in found["architectures"]] == [True, True]
    listed = subprocess.run(
        [sys.executable, "-m", "gpujit", "cache", "ls"], cwd=ROOT, capture_output=True, text=True, check=True,
        env=os.environ | {"GPUJIT_CACHE_DIR": str(folder)},
    ).stdout  # fmt: skip
    assert "sm_80" in listed and "sm_90" in listed
