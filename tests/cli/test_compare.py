"""``gpujit compare``: two files or the tiers of one, and the operator where two copies of a program part."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.cli.main import main
from tests.cli.shells import MLP
from tests.programs import archive, forward, module

BODY = """y = torch.add(x, self.w)
z = torch.relu(y)
if bool(torch.gt(torch.sum(z), 0)):
  z = torch.mul(z, self.v)
else:
  z = torch.neg(z)
return (z, torch.size(z, 0))"""
SOURCE = module(forward("x: Tensor -> Tuple[Tensor, int]", BODY), "w : Tensor\nv : Tensor", parameters=["w", "v"])


def write(path: Path, w: float, v: float, source: str = SOURCE) -> str:
    path.write_bytes(archive(source, {"w": np.full(3, w, np.float32), "v": np.full(3, v, np.float32)}))
    return str(path)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["compare", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_tiers_of_one_file(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, MLP, "2x8", "--threads", "1", "--calls", "2")
    assert (code, err) == (0, "")
    assert "fused against interpreter\n" in out and "planned against interpreter\n" in out
    assert "call 1: out" in out and out.endswith("the same\n")


def test_tiers_of_one_file_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, MLP, "2x8", "--tiers", "interpreter,planned", "--threads", "1", "--json")
    found = json.loads(out)
    assert code == 0 and found["ok"] is True and found["expected"] == "interpreter"
    (section,) = found["compared"]
    assert section["what"] == "planned against interpreter"
    (output,) = section["outputs"]
    assert output["ok"] is True and output["dtype"] == "float32" and 0 <= output["of_largest"] < 1e-5
    assert set(output) == {"output", "dtype", "shape", "max_abs", "max_relative", "of_largest", "problem", "ok"}


def test_the_same_file_twice(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, MLP, MLP, "2x8", "--json")
    found = json.loads(out)
    assert code == 0 and found["compared"][0]["outputs"][0]["max_abs"] == 0 and found["first_divergence"] is None


def test_the_first_operator_that_differs_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a.pt", 1, 2), write(tmp_path / "b.pt", 1, 3)
    threads = set(threading.enumerate())
    code, out, err = call(capsys, a, b, "3")
    assert (code, err) == (1, "")
    assert "MISMATCH" in out and out.endswith("not the same\n")
    assert "first difference: aten::mul, after 5 operators, at code/__torch__.py:10\n" in out
    assert "  z = torch.mul(z, self.v)\n" in out
    code, out, _ = call(capsys, a, b, "3", "--json")
    found = json.loads(out)
    parted = found["first_divergence"]
    assert code == 1 and found["ok"] is False
    assert (parted["operator"], parted["number"], parted["line"]) == ("aten::mul", 5, "z = torch.mul(z, self.v)")
    assert " of 3 numbers, first out[" in parted["difference"]["problem"] and parted["difference"]["ok"] is False
    assert set(threading.enumerate()) <= threads


def test_a_branch_that_data_takes_is_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = """y = torch.relu(x)
if bool(torch.gt(torch.sum(self.w), 0)):
  z = torch.mul(y, self.v)
else:
  z = torch.neg(y)
return z"""
    source = module(forward("x: Tensor", body), "w : Tensor\nv : Tensor", parameters=["w", "v"])
    a, b = write(tmp_path / "a.pt", 1, 2, source), write(tmp_path / "b.pt", -1, 2, source)
    code, out, _ = call(capsys, a, b, "3", "--json")
    assert code == 1 and json.loads(out)["first_divergence"]["operator"] == "aten::sum"


def test_random_numbers_are_the_same_on_both_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = "y = torch.add(x, torch.rand_like(x))\nz = torch.add(y, torch.rand_like(x))\nreturn torch.mul(z, self.v)"
    source = module(forward("x: Tensor", body), "w : Tensor\nv : Tensor", parameters=["w", "v"])
    a, b = write(tmp_path / "a.pt", 1, 2, source), write(tmp_path / "b.pt", 1, 3, source)
    assert call(capsys, a, a, "3")[0] == 0
    code, out, _ = call(capsys, a, b, "3", "--json")
    assert code == 1 and json.loads(out)["first_divergence"]["operator"] == "aten::mul"


def test_other_programs_are_compared_by_their_outputs_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = module(
        forward("x: Tensor -> Tuple[Tensor, int]", "return (torch.neg(x), 3)"),
        "w : Tensor\nv : Tensor",
        parameters=["w", "v"],
    )
    a, b = write(tmp_path / "a.pt", 1, 2), write(tmp_path / "b.pt", 1, 2, other)
    code, out, _ = call(capsys, a, b, "3")
    assert code == 1 and "first difference: instruction" in out
    assert json.loads(call(capsys, a, b, "3", "--json")[1])["no_divergence"].startswith("instruction")


def test_shapes_that_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    programs = [
        module(forward("x: Tensor", f"return torch.unsqueeze(torch.add(x, self.w), {d})"), "w : Tensor\nv : Tensor")
        for d in (0, 1)
    ]
    a, b = (write(tmp_path / f"{i}.pt", 1, 2, s) for i, s in enumerate(programs))
    code, out, _ = call(capsys, a, b, "3")
    assert code == 1 and "out: shapes 3x1 and 1x3" in out


def test_bounds_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a.pt", 1, 2), write(tmp_path / "b.pt", 1, 2.02)
    assert call(capsys, a, b, "3")[0] == 1
    assert call(capsys, a, b, "3", "--rtol", "0.02")[0] == 0
    assert call(capsys, a, b, "3", "--rtol", "0", "--atol", "10")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([MLP, "2x8", "--tiers", "quick"], 2, "'quick' is no tier; there are interpreter, fused, planned"),
        ([MLP, "2x8", "--tiers", "planned"], 2, "on two tiers or more"),
        ([MLP, "2x8", "--tiers", ","], 2, "no tier is named"),
        ([MLP], 2, "a value is missing for input"),
        ([MLP, "2x8", "--rtol", "-1"], 2, "--rtol is a number from 0 on"),
        ([MLP, "2x8", "--atol", "nan"], 2, "--atol is a number from 0 on"),
        ([MLP, "2x8", "--seed", "-1"], 2, "a seed is a number from 0 on"),
        ([MLP, "none.pt", "2x8"], 3, "there is no such file"),
        (["none.pt", "2x8"], 3, "there is no such file"),
        ([MLP, "2x9"], 4, "aten::linear"),
        ([MLP, MLP, "2x9"], 4, "mlp.pt: aten::linear"),
        ([MLP, "2x8", "--method", "other"], 2, "the model has no method 'other'"),
    ],
)
def test_faults(arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, *arguments)
    assert (status, out) == (code, "") and text in err and "Traceback (most" not in err


def test_the_file_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also by a model that writes its inputs and attributes."""
    body = "self.count = torch.add(self.count, 1)\nreturn torch.add_(x, self.count)"
    source = module(forward("x: Tensor", body), "count : Tensor", buffers=["count"])
    path = tmp_path / "m.pt"
    path.write_bytes(archive(source, {"count": np.zeros((), np.float32)}))
    before = path.read_bytes()
    code, _, _ = call(capsys, str(path), "3", "--calls", "3", "--threads", "1")
    assert code == 0 and path.read_bytes() == before
    assert call(capsys, str(path), str(path), "3", "--calls", "2")[0] == 0
    assert gpujit.load(path)(np.zeros(1, np.float32))[0] == 1


def test_names_are_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = module(
        forward("x: Tensor -> Dict[str, Tensor]", 'return {"\\x1b[31mred": torch.mul(x, self.v)}'), "v : Tensor"
    )
    paths = []
    for i in range(2):
        paths.append(str(tmp_path / f"{i}\x1b[2J.pt"))
        Path(paths[-1]).write_bytes(archive(source, {"v": np.full(3, i, np.float32)}))
    text: list[Any] = [*call(capsys, *paths, "3"), *call(capsys, *paths, "3", "--json")]
    assert text[0] == 1 and not any("\x1b" in str(t) for t in text)
    assert "\\x1b[31mred" in text[1]
