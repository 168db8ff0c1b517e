"""The command line as users meet it: exit codes, one line for each fault, nothing raw from a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpujit.cli.main import main
from gpujit.cli.output import safe, table
from tests.programs import View, archive, archive_entries, forward, module
from tests.serialization import archives as a
from tests.serialization.archives import Entry, pickled, write_zip

OK = archive(module(forward("x: Tensor", "return torch.mm(x, x)"), "w : int"), {"w": 1})


def call(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    code = main([str(x) for x in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


STATE_DICT = write_zip(
    [
        Entry("m/data.pkl", pickled(b"}(" + a.text("conv.weight") + b"N" + a.text("epoch") + b"K\3u")),
        Entry("m/version", b"3\n"),
    ]
)
HEAD = b"<!DOCTYPE html><html>login</html>"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"


def changed(name: str, data: bytes) -> bytes:
    entries = archive_entries(module(""), {})
    for e in entries:
        if e.name == f"m/{name}":
            e.data = data
    return write_zip(entries)


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (b"", "empty", "the file is empty"),
        (b"hello world", "not-a-zip", "does not start like a zip archive"),
        (HEAD, "html", "the file is a web page"),
        (LFS, "lfs-pointer", "the file is a Git LFS pointer"),
        (OK[: len(OK) // 2], "truncated", ""),
        (OK[:-4], "truncated", ""),
        (STATE_DICT, "state-dict", "a dict with the keys 'conv.weight', 'epoch'"),
        (b"\x80\x02}q\x00.", "state-dict", "a bare Python pickle"),
        (b"\x89HDF\r\n\x1a\n" + bytes(50), "other-archive", "another kind of archive"),
        (b"\x00\x00\x00\x00PTMF" + bytes(50), "lite", "flatbuffer"),
        (write_zip([Entry("a.npy")]), "other-archive", "numpy.load"),
        (write_zip([Entry("m/data.pkl"), Entry("m/bytecode.pkl")]), "lite", "bytecode"),
        (write_zip([Entry("m/version", b"3"), Entry("m/code/a.py")]), "missing-member", "no member 'data.pkl'"),
        (changed("version", b"11\n"), "version", "format version 11"),
        (changed("version", b"0\n"), "version", "format version 0"),
        (changed("data.pkl", b"\x80\x02cos\nsystem\n."), "pickle-global", "os.system"),
        (changed("code/__torch__.py", b"class M(Module:"), "source", "this is not TorchScript source"),
        (changed("code/__torch__.py", b"import os\nos.system('x')\n"), "source", "not expected outside"),
    ],
)
@pytest.mark.parametrize("command", ["inspect", "run", "verify", "explain", "compare", "bench"])
def test_what_a_file_is_when_it_is_no_model(
    command: str, data: bytes, code: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "m.pt", data)
    status, out, err = call(capsys, command, path)
    first, *more = err.rstrip("\n").split("\n")
    assert status == 3 and out == "" and first.startswith(f"gpujit: error[{code}]: ") and text in first
    assert any(str(path) in line for line in more) and "Traceback" not in err
    status, out, _ = call(capsys, command, path, "--json")
    found = json.loads(out)
    assert status == 3 and found["error"] == code and text in found["message"] and found["file"] == str(path)


def test_a_missing_file_and_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, text in ((tmp_path / "none.pt", "there is no such file"), (tmp_path, "names a folder")):
        status, out, err = call(capsys, "inspect", path)
        assert (status, out) == (3, "") and text in err and "error[not-a-file]" in err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["run"],
        ["inspect", "a", "b"],
        ["run", "m.pt", "--repeat", "0"],
        ["run", "m.pt", "--repeat", "x"],
    ],
)
def test_usage_faults_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2 and "usage: gpujit" in capsys.readouterr().err


def test_usage_faults_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    for given, text in ((["run", "--json"], "FILE"), (["nothing", "--json"], "invalid choice: 'nothing'")):
        with pytest.raises(SystemExit) as caught:
            main(given)
        out, err = capsys.readouterr()
        found = json.loads(out)
        assert caught.value.code == 2 and found["error"] == "usage" and text in found["message"] and "usage:" in err


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, text in (
        (["--version"], "gpujit 0."),
        (["--help"], "inspect"),
        (["run", "--help"], "1x3x224x224"),
        (["inspect", "--help"], "examples:"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 0 and text in capsys.readouterr().out


def test_a_failing_model_exits_with_4_and_shows_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "m.pt", OK)
    status, out, err = call(capsys, "run", path, "2x3")
    assert (
        status == 4
        and out == ""
        and err.startswith("gpujit: error[shape]: aten::mm")
        and "return torch.mm(x, x)" in err
    )
    status, out, _ = call(capsys, "run", path, "2x3", "--json")
    found = json.loads(out)
    assert status == 4 and found["error"] == "shape" and "line 6, in forward" in found["where"]


HOSTILE = "\x1b[31mred\x07\r\n\u202e"


def test_names_from_a_file_reach_the_terminal_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = module(
        forward("x: Tensor", 'ops.prim.RaiseException(getattr(self, "\\x1b[31mred\\x07\\r\\n\\u202e"))\nreturn x'),
        '__annotations__["\\x1b[31mred\\x07\\r\\n\\u202e"] = str\n__annotations__["\\x1b]0;p"] = Tensor\n',
        parameters=["\\x1b]0;p"],
    )
    import numpy as np

    data = archive(source, {HOSTILE: HOSTILE, "\x1b]0;p": View(np.ones(2), (2,), (1,), device="\x1b[1mcpu")})
    path = write(tmp_path / "m\x1b[2J.pt", data)
    shown = []
    others = [(c, path, "2") for c in ("run", "verify", "explain", "compare")]
    others.append(("optimise", path, "2", "-o", tmp_path / "\x1b[2Jo.pt"))
    for arguments in (("inspect", path), ("inspect", path, "--all"), *others):
        _, out, err = call(capsys, *arguments)
        shown.append(out + err)
    bad = write(tmp_path / "n\x1b[2J.pt", archive(source.replace("= str", "= \x1b"), {}))
    shown.append("".join(call(capsys, "inspect", bad)[1:]))
    members = write(tmp_path / "o.pt", write_zip([Entry("m/\x1b[2J"), Entry("m/b")]))
    shown.append("".join(call(capsys, "inspect", members)[1:]))
    for text in shown:
        assert text and not {"\x1b", "\x07", "\r", "\u202e"} & set(text)
    assert "\\x1b[2J" in shown[0] and "\\x1b]0;p" in shown[0] and "\\x1b[31mred" in shown[2]


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    """As with ``gpujit inspect m.pt | head -1``."""
    methods = "".join(f"def f{i}(self, x: Tensor) -> Tensor:\n  return x\n" for i in range(3000))
    path = write(tmp_path / "m.pt", archive(module(methods), {}))
    command = [sys.executable, "-m", "gpujit", "inspect", str(path), "--all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline().startswith(b"file")
        child.stdout.close()
        assert child.stderr.read() == b"" and child.wait(30) == 0


def test_an_interrupt_exits_with_130(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpujit.api.load", interrupted)
    assert call(capsys, "inspect", "m.pt") == (130, "", "interrupted\n")


def test_text_for_terminals() -> None:
    assert safe("a\x1b[0m\tb\u202ec\nd ä") == "a\\x1b[0m\\tb\\u202ec\nd ä"
    assert table([("a", 1), ("long", "x\x1b")], ("n", "v")) == "  n     v\n  a     1\n  long  x\\x1b"
    assert table([]) == "" and table([("a",), ("b", "c")]) == "  a\n  b  c"
