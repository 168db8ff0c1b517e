"""``gpujit strip``: the same program without what tells where it was written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gpujit
from gpujit.cli.main import main
from tests.programs import archive, module
from tests.serialization.saved import members
from tests.serialization.test_debug import row, table

SOURCE = module(
    """
    def forward(self: __torch__.M, x: Tensor) -> Tensor:
      return torch.mul(x, self.w)
    """,
    "w : Tensor",
    parameters=["w"],
)


def with_table() -> bytes:
    debug = {"__torch__.py": table((row(0, "secret source\n", "/elsewhere/model.py", 1, 0, 6),))}
    return archive(SOURCE, {"w": np.arange(3, dtype=np.float32)}, debug=debug, extra={"note": "kept"})


def test_debug_tables_go_and_all_else_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "m.pt", tmp_path / "small.pt"
    source.write_bytes(with_table())
    assert main(["strip", str(source), "-o", str(target)]) == 0
    assert "1 tables left out" in capsys.readouterr().out
    data = target.read_bytes()
    assert b"secret" not in data and b"/elsewhere" not in data
    before, after = members(source.read_bytes()), members(data)
    assert after == {n: raw for n, raw in before.items() if not n.endswith(".debug_pkl")}
    np.testing.assert_array_equal(gpujit.load(target)(np.ones(3, np.float32)), [0, 1, 2])
    assert main(["strip", str(source), "-o", str(target), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["tables"] == 1 and facts["bytes_after"] == len(data) < facts["bytes_before"]
    assert target.read_bytes() == data


def test_a_file_may_be_stripped_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.pt"
    path.write_bytes(gpujit.load(with_table()).save_to_buffer())
    assert any(n.endswith(".debug_pkl") for n in members(path.read_bytes()))
    assert main(["strip", str(path), "-o", str(path)]) == 0
    found = members(path.read_bytes())
    assert not any(n.endswith(".debug_pkl") for n in found)
    assert len(found[".data/serialization_id"]) == 40
    assert [p.name for p in tmp_path.iterdir()] == ["m.pt"]


def test_errors_leave_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.pt"
    path.write_bytes(b"no archive")
    assert main(["strip", str(path), "-o", str(tmp_path / "out.pt")]) == 3
    damaged = bytearray(archive(SOURCE, {"w": np.zeros(100_000, np.float32)}))
    damaged[damaged.index(b"\0" * 1000) + 500] ^= 1
    path.write_bytes(damaged)
    assert main(["strip", str(path), "-o", str(tmp_path / "out.pt")]) == 3
    assert "checksum" in capsys.readouterr().err
    path.write_bytes(with_table())
    assert main(["strip", str(path), "-o", str(tmp_path / "none" / "out.pt")]) == 2
    assert "save-target" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["m.pt"]
