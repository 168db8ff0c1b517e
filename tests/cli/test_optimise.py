"""``gpujit optimise``: a smaller program that computes the same, or nothing at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.cli.main import main
from gpujit.ir.module import Function
from tests.cli.shells import CLASSIFIER, MLP
from tests.programs import archive, forward, module


def call(capsys: pytest.CaptureFixture[str], *arguments: str, name: str = "optimise") -> tuple[int, Any, str]:
    code = main([name, *arguments, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out.pt"


def test_a_smaller_program_that_computes_the_same(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, facts, err = call(capsys, CLASSIFIER, "2x3x32x32", "-o", str(target))
    assert (code, err) == (0, "") and facts["ok"] is True and facts["checked"] is True
    assert facts["nodes_after"] < facts["nodes_before"] / 3 and facts["folded"] == 3 and facts["not_folded"] == []
    assert facts["bytes_after"] == target.stat().st_size < facts["bytes_before"]
    assert {o["output"] for o in facts["outputs"]} >= {"out['scores']", "loaded: out['scores']"}
    x = np.ones((2, 3, 32, 32), np.float32)
    wanted, got = gpujit.load(CLASSIFIER)(x), gpujit.load(target)(x)
    np.testing.assert_allclose(got["scores"], wanted["scores"], rtol=1e-5)
    assert os.listdir(target.parent) == ["out.pt"]


def test_for_people_and_under_its_other_name(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", MLP, "-o", str(target)]) == 0
    out = capsys.readouterr().out
    assert f"{target}: 33 -> 5 nodes, " in out and out.endswith("; not called: no inputs were given\n")
    assert main(["optimise", CLASSIFIER, "2x3x32x32", "-o", str(target)]) == 0
    assert "4 outputs compared\nfolded 3 nodes into" in capsys.readouterr().out


def test_norms_that_cannot_be_folded_are_told(tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It takes its statistics from the batch."""
    body = "y = torch.conv2d(x, self.w)\nreturn torch.batch_norm(y, None, None, None, None, True, 0.1, 1e-05, False)"
    source = module(forward("x: Tensor", body), "w : Tensor", parameters=["w"])
    path = tmp_path / "m.pt"
    path.write_bytes(archive(source, {"w": np.ones((2, 3, 1, 1), np.float32)}))
    assert main(["optimise", str(path), "1x3x4x4", "-o", str(target)]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("not folded: ")]
    assert "aten::batch_norm" in line and "code/__torch__.py:" in line
    assert len(call(capsys, str(path), "1x3x4x4", "-o", str(target))[1]["not_folded"]) >= 1


def test_exact_folds_nothing(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, facts, _ = call(capsys, CLASSIFIER, "2x3x32x32", "-o", str(target), "--exact")
    assert code == 0 and facts["folded"] == 0 and {o["max_abs"] for o in facts["outputs"]} == {0.0}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_another_dtype(dtype: str, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, facts, _ = call(capsys, MLP, "2x8", "-o", str(target), "--dtype", dtype)
    assert code == 0 and {o["dtype"] for o in facts["outputs"]} == {dtype}
    x = np.ones((2, 8), np.float32).astype(gpujit.load(target)(np.ones((2, 8), facts["outputs"][0]["dtype"])).dtype)
    assert str(gpujit.load(target)(x).dtype) == dtype


def test_what_is_to_stay(tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = module(
        forward("x: Tensor", "return torch.mul(x, self.w)")
        + "def twice(self: __torch__.M, x: Tensor) -> Tensor:\n  return torch.mul(x, 2)\n",
        "w : Tensor\nclasses : List[str]",
        parameters=["w"],
    )
    path = tmp_path / "m.pt"
    path.write_bytes(archive(source, {"w": np.full(2, 3, np.float32), "classes": ["a", "b"]}))
    assert call(capsys, str(path), "2", "-o", str(target), "--keep", "twice", "--keep", "classes")[0] == 0
    found = gpujit.load(target)
    assert sorted(found.methods) == ["forward", "twice"] and found.classes == ["a", "b"]
    assert call(capsys, str(path), "2", "-o", str(target), "--method", "twice")[0] == 0
    assert sorted(gpujit.load(target).methods) == ["forward", "twice"]
    code, facts, _ = call(capsys, str(path), "-o", str(target), "--keep", "nothing")
    assert code == 4 and facts["error"] == "freeze" and "nothing" in facts["message"]


def test_the_file_itself_may_be_the_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.pt"
    path.write_bytes(Path(MLP).read_bytes())
    assert call(capsys, str(path), "2x8", "-o", str(path))[0] == 0
    assert gpujit.load(path)(np.ones((2, 8), np.float32)).shape == (2, 4) and os.listdir(tmp_path) == ["m.pt"]


def test_nothing_is_written_when_it_computes_something_else(
    target: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpujit import inference

    freeze = inference.freeze

    def wrong(module: Any, *arguments: Any, **options: Any) -> Any:
        found = freeze(module, *arguments, **options)
        (function,) = found._object.type.methods.values()
        assert isinstance(function, Function)
        for node in function.graph.all_nodes():
            if node.kind == "aten::linear":
                for value in node.inputs[2:]:
                    value.node.attributes["value"] = value.constant() + 1
        return found

    monkeypatch.setattr(inference, "freeze", wrong)
    target.write_bytes(b"old")
    code, facts, _ = call(capsys, MLP, "2x8", "-o", str(target))
    assert code == 1 and facts["ok"] is False and any(not o["ok"] for o in facts["outputs"])
    assert main(["optimise", MLP, "2x8", "-o", str(target)]) == 1
    assert "nothing was written" in capsys.readouterr().out
    assert target.read_bytes() == b"old" and os.listdir(target.parent) == ["out.pt"]


def test_targets_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, text in (
        (tmp_path / "none" / "o.pt", "No such file"),
        (tmp_path, "is a folder"),
        ("/dev/full", "No space"),
    ):
        code, facts, err = call(capsys, MLP, "-o", str(place))
        assert code == 2 and facts["error"] == "save-target" and text in err
    assert os.listdir(tmp_path) == []


def test_faults(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in ((["none.pt"], 3), ([MLP, "2x9"], 4), ([MLP, "2x8", "--method", "f"], 2), ([MLP, "2y"], 2)):
        assert call(capsys, *arguments, "-o", str(target))[0] == code
    assert not target.exists()


@pytest.mark.torch
def test_pytorch_loads_the_copy_and_computes_the_same(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    assert call(capsys, CLASSIFIER, "2x3x32x32", "-o", str(target))[0] == 0
    x = torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)
    wanted, got = torch.jit.load(CLASSIFIER).eval()(x), torch.jit.load(str(target))(x)
    torch.testing.assert_close(got["scores"], wanted["scores"])
