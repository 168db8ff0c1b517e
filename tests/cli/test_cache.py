"""``gpujit cache`` in both forms, on folders that are well and that are not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpujit.cli.main import EXIT_USAGE, main
from gpujit.kernels.cache import Store, pack_key
from gpujit.support.config import config

A, B = "a" * 64, "b" * 64
SOURCE = """; kernel gpujit_a, for a machine
; lane 0 1 1 16x4
; tile(a0: float32[1]) -> (o0: float32[1])
;   for d0 < n0
;   %0: float32 = load a0[d0]
;   %1: float32 = exp %0
;   %2: float32 = add %1, %0
;   store o0[d0], %2
; ModuleID = ""
define void @gpujit_a() { ret void }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "kernels"
    store = Store(place, 1 << 20)
    store.put(A, b"first", SOURCE)
    store.put_pack([A, B], {A: b"first", B: b"second"})
    os.utime(store.path(A, "o"), (1e9, 1e9))
    return place


def call(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str, code: int = 0) -> str:
    with config(cache_dir=str(folder)):
        assert main(["cache", *arguments]) == code
    out, err = capsys.readouterr()
    return err if code else out


def test_a_listing_says_what_each_entry_is(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    header, newest, oldest = call(capsys, folder, "ls").splitlines()
    assert header.split() == ["key", "kind", "size", "used", "what"]
    assert newest.split() == [pack_key([A, B])[:12], "plan", "346", "B", "just", "now", "2", "kernels"]
    assert oldest.split()[:2] == [A[:12], "kernel"] and oldest.endswith(" days ago  exp, add")


def test_the_listing_as_json(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    pack, kernel = json.loads(call(capsys, folder, "ls", "--json"))
    assert (kernel["key"], kernel["kind"], kernel["what"], kernel["used"]) == (A, "kernel", "exp, add", 1e9)
    assert kernel["bytes"] == sum(Path(f).stat().st_size for f in kernel["files"])
    assert [Path(f).suffix for f in kernel["files"]] == [".ll", ".o"]
    assert (pack["kind"], pack["what"]) == ("plan", "2 kernels")


def test_code_that_is_no_tile_program(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    Store(folder, 1 << 20).put(B, b"code", "; worker team\ndefine void @f() { ret void }\n")
    found = {r["key"]: r["what"] for r in json.loads(call(capsys, folder, "ls", "--json"))}
    assert found[B] == "worker team" and found[A] == "exp, add"


def test_an_empty_cache(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert call(capsys, absent, "ls") == f"no kernels in {absent}\n"
    assert json.loads(call(capsys, absent, "ls", "--json")) == []
    assert json.loads(call(capsys, absent, "clear", "--json"))["removed"] == 0
    assert not absent.exists()


def test_clearing_leaves_other_files_alone(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    other = folder / "aa" / "notes.txt"
    other.write_text("mine")
    found = json.loads(call(capsys, folder, "clear", "--json"))
    assert found["removed"] == 2 and found["bytes"] > 0
    assert [p for p in folder.rglob("*") if p.is_file()] == [other]
    assert call(capsys, folder, "clear") == f"removed 0 entries (0 B) from {folder}\n"


def test_where_names_the_folder_and_its_limits(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    with config(cache_limit=5_000_000):
        first, second = call(capsys, folder, "where").splitlines()
        found = json.loads(call(capsys, folder, "where", "--json"))
    assert first == str(folder) and second.startswith("2 entries, ") and second.endswith(" of at most 5.00 MB")
    assert (
        found["entries"] == 2 and found["enabled"] is True and found["problem"] is None and found["limit"] == 5_000_000
    )


def test_where_says_why_the_cache_is_not_used(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    with config(cache=False):
        assert "switched off: GPUJIT_CACHE is 0" in call(capsys, folder, "where")
    folder.chmod(0o777)
    assert "other users own" in call(capsys, folder, "where")
    assert "other users own" in json.loads(call(capsys, folder, "where", "--json"))["problem"]


def test_a_folder_that_others_may_write_in_is_not_cleared(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    folder.chmod(0o777)
    assert "may write in it" in call(capsys, folder, "clear", code=EXIT_USAGE)


def test_a_file_in_the_folder_s_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    assert "is no folder" in call(capsys, place, "clear", code=EXIT_USAGE)
    assert call(capsys, place, "ls") == f"no kernels in {place}\n"


def test_no_home(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with config(cache_dir=""):
        assert main(["cache", "where"]) == EXIT_USAGE
    assert "no home folder; GPUJIT_CACHE_DIR" in capsys.readouterr().err


def test_an_action_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["cache", "polish"])
    assert stopped.value.code == EXIT_USAGE
    assert "invalid choice: 'polish'" in capsys.readouterr().err
