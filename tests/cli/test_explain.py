"""``gpujit explain``: groups, refusals and tiers of a plan, for people and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpujit.cli.main import main
from tests.cli.shells import CLASSIFIER
from tests.programs import archive, forward, module

BODY = "y = torch.exp(torch.mul(x, 2))\nz = torch.sort(torch.neg(y))\nreturn torch.relu((z)[0])"
SOURCE = module(forward("x: Tensor", BODY.replace("(z)[0]", "_0")).replace("z = torch", "_0, _1, = torch"))


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "m.pt").write_bytes(archive(SOURCE, {}))
    return str(tmp_path / "m.pt")


def test_json(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", path, "4x8", "--json", "--threads", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["file"] == path and found["method"] == "forward" and found["interpreted"] == []
    (plan,) = found["plans"]
    assert plan["inputs"] == ["float32[4, 8]"]
    first = plan["groups"][0]
    assert first["operators"] == ["mul", "exp", "neg"] and first["saved_bytes"] == 2 * 2 * 4 * 8 * 4
    assert all(p.startswith("code/__torch__.py:") for p in first["places"])
    (refusal,) = [r for r in plan["refusals"] if r["operator"] == "aten::sort"]
    assert "library operator" in refusal["reason"] and refusal["place"].startswith("code/__torch__.py:")
    assert sum(plan["tiers"].values()) == len(plan["nodes"]) and plan["tiers"]["native kernel"] >= 1
    assert {"tier", "operators", "place", "reason"} == set(plan["nodes"][0])
    assert plan["memory"]["arena"] >= plan["memory"]["bound"] > 0


def test_for_people(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", path, "4x8", "--threads", "1"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for text in (
        "forward for float32[4, 8]\n",
        "memory  arena ",
        "mul, exp, neg",
        "not fused\n",
        "aten::sort",
        "\nnodes\n",
    ):
        assert text in out, text


def test_long_lists_are_cut(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = "".join(f"x{k + 1}, _{k}, = torch.sort(x{k})\n" for k in range(40))
    (tmp_path / "m.pt").write_bytes(archive(module(forward("x0: Tensor", f"{lines}return x40")), {}))
    assert main(["explain", str(tmp_path / "m.pt"), "4"]) == 0
    assert "  ... and 10 more (--all shows them)" in capsys.readouterr().out
    assert main(["explain", str(tmp_path / "m.pt"), "4", "--all"]) == 0
    assert "more (--all" not in capsys.readouterr().out


def test_another_method(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = module(
        forward("x: Tensor", "return x")
        + "def twice(self: __torch__.M, x: Tensor) -> Tensor:\n  return torch.mul(x, 2)\n"
    )
    (tmp_path / "m.pt").write_bytes(archive(source, {}))
    assert main(["explain", str(tmp_path / "m.pt"), "4", "--method", "twice", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["method"] == "twice" and found["plans"][0]["nodes"][0]["operators"] == "aten::mul"


def test_faults(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in (([CLASSIFIER], 2), ([CLASSIFIER, "2"], 4), (["none.pt"], 3)):
        assert main(["explain", *arguments]) == code
        assert 'Traceback (most recent call last):\n  File "/' not in capsys.readouterr().err
