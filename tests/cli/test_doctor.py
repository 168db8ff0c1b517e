"""``gpujit doctor``: what is there, what fails, and what to do, on machines of all kinds."""

# ruff: noqa: N802  # functions are called as NVIDIA calls them

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpujit import __version__
from gpujit.cli import doctor, gpu
from gpujit.cli.main import main
from gpujit.support.config import config


def call(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, str]]]:
    code = main(["doctor", "--json"])
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == "" and found["ok"] is (code == 0)
    assert all(set(c) == {"topic", "name", "status", "value", "advice"} for c in found["checks"])
    assert all(c["status"] in ("ok", "failed", "note", "absent") for c in found["checks"])
    return code, {c["name"]: c for c in found["checks"]}


@pytest.fixture
def place(tmp_path: Path) -> Any:
    with config(cache_dir=str(tmp_path / "kernels"), cache=True):
        yield tmp_path / "kernels"


def test_a_machine_that_is_well(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, checks = call(capsys)
    assert code == 0, [c for c in checks.values() if c["status"] == "failed"]
    assert checks["gpujit"]["value"] == __version__ and checks["llvmlite"]["value"][0].isdigit()
    assert "floats (" in checks["vectors"]["value"] and "for plans and kernels" in checks["threads"]["value"]
    assert checks["folder"]["value"] == str(place) and checks["size"]["value"].startswith("0 entries, 0 B of at most")
    assert checks["kernels"]["value"].startswith("compiled and loaded one in ")
    # Looking leaves nothing behind.
    assert not place.exists() and os.listdir(place.parent) == []


def test_for_people(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for text in ("versions\n  gpujit", "\ncache\n", "\noptional\n", "all that gpujit needs is there\n"):
        assert text in out


def test_a_cache_that_others_may_write_in_fails(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place.mkdir()
    place.chmod(0o777)
    code, checks = call(capsys)
    assert code == 1 and checks["folder"]["status"] == "failed" and "may write in it" in checks["folder"]["value"]
    assert "GPUJIT_CACHE_DIR" in checks["folder"]["advice"]
    assert main(["doctor"]) == 1
    assert "failed folder: make it" in capsys.readouterr().out


def test_a_cache_that_cannot_be_written_fails(capsys: pytest.CaptureFixture[str]) -> None:
    # Nobody, not even root, makes files there.
    with config(cache_dir="/proc/self/kernels", cache=True):
        code, checks = call(capsys)
    assert code == 1 and "cannot be written" in checks["folder"]["value"]


def test_a_cache_that_is_off_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    with config(cache=False):
        code, checks = call(capsys)
    assert code == 0 and checks["folder"]["status"] == "note" and "GPUJIT_CACHE is 0" in checks["folder"]["advice"]


def test_a_compiler_that_fails(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_KERNEL", "this is no program")
    code, checks = call(capsys)
    assert code == 1 and checks["kernels"]["status"] == "failed" and "llvmlite" in checks["kernels"]["advice"]


def test_packages_that_are_missing(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: "" if name in ("networkx", "torch") else "1.0")
    code, checks = call(capsys)
    assert code == 1 and checks["networkx"]["advice"] == "pip install networkx"
    assert checks["torch"]["status"] == "absent" and "pip install torch" in checks["torch"]["value"]


def test_more_threads_than_processors(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with config(threads=999):
        code, checks = call(capsys)
    assert code == 0 and checks["threads"]["status"] == "note" and "GPUJIT_THREADS" in checks["threads"]["advice"]


def test_switches_that_are_set_and_that_are_none(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUJIT_TRHEADS", "1")
    monkeypatch.setenv("GPUJIT_VERIFY", "0")
    code, checks = call(capsys)
    assert code == 0 and checks["GPUJIT_TRHEADS"]["value"] == "no such switch"
    assert checks["GPUJIT_VERIFY"]["value"] == "False: check every graph after each pass"


def test_a_machine_without_linux_files(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_PROC", Path("/nowhere"))
    monkeypatch.setattr(doctor, "_CGROUP", Path("/nowhere"))
    code, checks = call(capsys)
    assert code == 0 and checks["processor"]["value"] and "memory" not in checks


class Driver:
    """A driver's library that answers as it is told."""

    def __init__(self, answer: int) -> None:
        self.answer = answer

    def cuInit(self, flags: int) -> int:
        return self.answer

    def cuDriverGetVersion(self, number: Any) -> int:
        number._obj.value = 13020
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def cuDeviceGet(self, device: Any, number: int) -> int:
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:
        name.value = b"GPU \x1b[31m"
        return 0

    def cuDeviceTotalMem_v2(self, size: Any, device: Any) -> int:
        size._obj.value = 80 * 10**9
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:
        value._obj.value = 9 if attribute == 75 else 0
        return 0


def test_a_gpu(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(0))
    code, checks = call(capsys)
    assert code == 0 and checks["driver"]["value"] == "supports CUDA 13.2"
    assert checks["device 0"]["value"] == "GPU \x1b[31m, 80.0 GB, compute capability 9.0"
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "GPU \\x1b[31m, 80.0 GB" in out and "\x1b" not in out


@pytest.mark.parametrize(("answer", "text"), [(100, "finds no GPU"), (804, "too old"), (42, "answers with error 42")])
def test_a_driver_that_does_not_work(answer: int, text: str) -> None:
    found = gpu.asked(Driver(answer))
    assert text in found.problem and found.remedy and not found.is_absent and found.devices == ()


def test_no_driver(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert gpu.driver().is_absent
