"""``gpujit inspect``: everything in a file, for people and for programs, without running it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.cli.main import main
from tests.programs import Obj, View, archive, forward, module

SOURCE = module(
    """
    def forward(self: __torch__.M, x: Tensor, n: int=2, names: Optional[List[str]]=None) -> Tuple[Tensor, int]:
      y = torch.add(torch.mul(x, self.w), ops.fancy.scale(x, 2))
      z = torch.frobnicate(y)
      ops.prim.RaiseException("never run by inspect")
      return (z, n)
    """,
    "w : Tensor\ncount : Tensor\ntraining : bool\nsub : __torch__.S",
    parameters=["w"],
    buffers=["count"],
)
SOURCE += "class S(Module):\n  __parameters__ = ['w', ]\n  __buffers__ = []\n  w : Tensor\n"
SOURCE += "  def __setstate__(self, s: int) -> NoneType:\n    pass\n"


def model(**options: Any) -> bytes:
    w = View(np.ones(6, np.float32), (2, 3), (3, 1), device="cuda:1")
    attributes = {
        "w": w,
        "count": np.zeros((), np.int64),
        "training": True,
        "sub": Obj("__torch__.S", {"w": np.ones(4, np.float16)}),
    }
    return archive(SOURCE, attributes, version=4, **options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "m.pt").write_bytes(model())
    return tmp_path / "m.pt"


def test_json_holds_everything(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    ops = found.pop("operators")
    assert found == {
        "file": str(path),
        "version": 4,
        "class": "__torch__.M",
        "training": True,
        "methods": ["forward(Tensor x, int n=2, str[]? names=None) -> (Tensor, int)"],
        "modules": 2,
        "parameters": [
            {"name": "w", "dtype": "float32", "shape": [2, 3], "elements": 6, "bytes": 24},
            {"name": "sub.w", "dtype": "float16", "shape": [4], "elements": 4, "bytes": 8},
        ],
        "buffers": [{"name": "count", "dtype": "int64", "shape": [], "elements": 1, "bytes": 8}],
        "elements": 10,
        "bytes": 40,
        "dtypes": {"float32": 1, "float16": 1, "int64": 1},
        "devices": ["cpu", "cuda:1"],
    }
    assert ops["counts"] == {
        "aten::add": 1,
        "aten::mul": 1,
        "fancy::scale": 1,
        "aten::frobnicate": 1,
        "prim::RaiseException": 1,
    }
    assert (ops["distinct"], ops["calls"], ops["covered"]) == (5, 5, 3)
    assert ops["missing"] == {"fancy::scale": ["code/__torch__.py:9"], "aten::frobnicate": ["code/__torch__.py:10"]}


def test_text_for_people(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    for line in (
        "version     4",
        "class       __torch__.M, 2 modules",
        "parameters  10 in 2 tensors",
        "size        40 B with buffers",
        "dtypes      float32 (1), float16 (1), int64 (1)",
        "devices     cpu, cuda:1",
        "operators   3 of 5 known, 5 calls",
        "warning     the module was saved in training mode; call eval() for inference behaviour",
        "  forward(Tensor x, int n=2, str[]? names=None) -> (Tensor, int)",
        "  w      float32  2x3",
        "  sub.w  float16  4",
        "  count  int64  scalar",
        "operators without an entry (calling them raises)",
        "  fancy::scale      code/__torch__.py:9",
    ):
        assert f"{line}\n" in text, line


def test_long_lists_are_cut_unless_all_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"p{i}" for i in range(30)]
    source = module("", "\n".join(f"{n} : Tensor" for n in names), parameters=names)
    (tmp_path / "m.pt").write_bytes(archive(source, {n: np.ones(1) for n in names}))
    main(["inspect", str(tmp_path / "m.pt")])
    text = capsys.readouterr().out
    assert "p19" in text and "p20" not in text and "  ... and 10 more (--all shows them)" in text
    main(["inspect", str(tmp_path / "m.pt"), "--all"])
    text = capsys.readouterr().out
    assert "p29" in text and "more" not in text


def test_an_empty_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.pt").write_bytes(archive(module(""), {}))
    assert main(["inspect", str(tmp_path / "m.pt")]) == 0
    text = capsys.readouterr().out
    assert "dtypes      none" in text and "devices     none" in text and "training" not in text


def test_operators_of_every_form_are_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = "y = annotate(List[int], x.tolist())\nf = torch.append(y, 1)\nz = (self.l).copy()\n"
    body += 'k = ops.quantized.nothing(x)\nw = "a".frob()\nreturn x'
    (tmp_path / "m.pt").write_bytes(archive(module(forward("x: Tensor", body), "l : List[int]"), {"l": [1]}))
    main(["inspect", str(tmp_path / "m.pt"), "--json"])
    ops = json.loads(capsys.readouterr().out)["operators"]
    assert set(ops["missing"]) == {"quantized::nothing"} and ops["counts"]["aten::append"] == 1


def test_what_inspect_lists_is_what_raises_when_called(path: Path) -> None:
    m = gpujit.load(path, map_location="cpu")
    with pytest.raises(gpujit.OpError, match="operator fancy::scale has no entry"):
        m(np.ones((2, 3), np.float32))
