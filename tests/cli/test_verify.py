"""``gpujit verify``: a sound file passes every check, and each kind of fault fails the one that is for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpujit.cli import tiers
from gpujit.cli.main import main
from gpujit.modules import ScriptModule
from tests.cli.shells import MLP
from tests.programs import archive, forward, module

CHECKS = ["bytes", "graphs", "operators", "saved again", "interpreter", "fused", "planned", "loaded again"]
STATE = module(
    forward(
        "x: Tensor",
        "self.count = torch.add(self.count, 1)\nreturn torch.add(torch.mul(x, self.count), torch.rand_like(x))",
    ),
    "count : Tensor",
    buffers=["count"],
)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, tuple[str, str]], str]:
    """The exit code, checks by name, and errors."""
    code = main(["verify", *arguments, "--json", "--threads", "1"])
    out, err = capsys.readouterr()
    found = json.loads(out)
    return code, {c["check"]: (c["status"], c["text"]) for c in found.get("checks", [])}, err


def write(path: Path, source: str, attributes: dict[str, Any]) -> str:
    path.write_bytes(archive(source, attributes))
    return str(path)


def test_a_sound_file(capsys: pytest.CaptureFixture[str]) -> None:
    code, checks, err = call(capsys, MLP, "2x8")
    assert (code, err, list(checks)) == (0, "", CHECKS)
    assert {status for status, _ in checks.values()} == {"ok"}
    assert checks["interpreter"][1] == "6 calls on 2 samples" and "outputs of 6 calls agree" in checks["planned"][1]


def test_a_sound_file_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "m.pt", module(forward("x: Tensor", "return x")), {})
    assert main(["verify", path, "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ok"] * 8
    assert [line[9:21].strip() for line in lines] == CHECKS


def test_state_and_random_numbers_are_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "m.pt", STATE, {"count": np.zeros((), np.float32)})
    code, checks, _ = call(capsys, path, "4", "--calls", "4")
    assert code == 0, checks


def test_without_inputs_nothing_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    code, checks, _ = call(capsys, MLP)
    assert code == 0
    assert [status for status, _ in checks.values()] == ["ok"] * 4 + ["skipped"] * 4
    assert "no inputs were given" in checks["planned"][1]


def test_operators_that_are_not_known_are_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = module(
        forward("x: Tensor", "if bool(self.on):\n  y = torch.frobnicate(x)\nelse:\n  y = x\nreturn y"), "on : bool"
    )
    path = write(tmp_path / "m.pt", source, {"on": False})
    code, checks, _ = call(capsys, path, "3")
    assert code == 0 and checks["operators"][0] == "note"
    assert "aten::frobnicate  code/__torch__.py:" in checks["operators"][1]


def test_damaged_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = module(forward("x: Tensor", "return torch.mul(x, self.w)"), "w : Tensor", parameters=["w"])
    data = bytearray(archive(source, {"w": np.zeros(100_000, np.float32)}))
    data[data.index(b"\0" * 1000) + 500] ^= 1
    (tmp_path / "m.pt").write_bytes(data)
    code, checks, _ = call(capsys, str(tmp_path / "m.pt"))
    assert code == 1 and checks["bytes"][0] == "failed" and "checksum" in checks["bytes"][1]
    assert checks["graphs"][0] == "ok"


def test_a_method_that_does_not_compile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = module(
        forward("x: Tensor", "return x") + "def other(self: __torch__.M, x: Tensor) -> Tensor:\n  return y\n"
    )
    path = write(tmp_path / "m.pt", source, {})
    code, checks, _ = call(capsys, path, "3")
    assert code == 1 and checks["graphs"][0] == "failed" and "other" in checks["graphs"][1]
    assert checks["planned"][0] == "ok"


def test_a_tier_that_computes_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tiers.make

    def wrong(name: str, model: Any, threads: int | None = None) -> Callable[..., Any]:
        call = make(name, model, threads)
        return (lambda *a: call(*a) * np.float32(1.1)) if name == "planned" else call

    monkeypatch.setattr(tiers, "make", wrong)
    code, checks, _ = call(capsys, MLP, "2x8")
    assert code == 1 and checks["fused"][0] == "ok" and checks["planned"][0] == "failed"
    assert checks["planned"][1].startswith("sample 0, call 0: out: ")
    assert main(["verify", MLP, "2x8"]) == 1
    assert "failed   planned" in capsys.readouterr().out


def test_a_file_that_is_saved_as_another(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    save = ScriptModule.save_to_buffer
    count = iter(range(100))
    monkeypatch.setattr(ScriptModule, "save_to_buffer", lambda self: save(self, {"n": str(next(count))}))
    code, checks, _ = call(capsys, MLP)
    assert code == 1 and checks["saved again"] == ("failed", "what was loaded again is saved as other bytes")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([MLP, "2x9"], 4, "aten::linear"),
        (["none.pt"], 3, "there is no such file"),
        ([MLP, "2x8", "--method", "f"], 2, "no method 'f'"),
        ([MLP, "2y8"], 2, "neither an array file"),
    ],
)
def test_faults(arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, checks, err = call(capsys, *arguments)
    assert (status, checks) == (code, {}) and text in err
