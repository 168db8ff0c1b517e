"""``gpujit run``: inputs from files, shapes and values; outputs printed, written, and as JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpujit import modules
from gpujit.cli.inputs import read_inputs
from gpujit.cli.main import main
from gpujit.cli.values import flatten
from gpujit.support.errors import ArgumentError
from tests.programs import archive, forward, module
from tests.runtime.recording_device import RecordingDevice

SOURCE = module(
    forward(
        'x: Tensor, n: int=2, name: str="a" -> __torch__.R',
        'return __torch__.R(torch.mul(x, n), [torch.sum(x), torch.neg(x)], {"k": torch.add(name, "!")}, n, None)',
    )
    + "def add(self: __torch__.M, a: Tensor, b: Tensor) -> Tensor:\n  return torch.add(a, b)\n"
    + "def nothing(self: __torch__.M) -> NoneType:\n  pass\n"
)
SOURCE += "class R(NamedTuple):\n  scaled : Tensor\n  parts : List[Tensor]\n"
SOURCE += "  texts : Dict[str, str]\n  n : int\n  none : NoneType\n"


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "m.pt").write_bytes(archive(SOURCE, {}))
    return str(tmp_path / "m.pt")


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["run", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_outputs_for_people(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.array([[1.0, 2.0], [3.0, -4.0]], np.float32))
    status, out, err = call(capsys, path, str(tmp_path / "x.npy"), "int=3", "str=b", "--repeat", "3")
    assert (status, err) == (0, "")
    lines = [line.split() for line in out.split("\n")]
    assert lines[0] == ["output", "dtype", "shape", "values"]
    assert lines[1] == ["out.scaled", "float32", "2x2", "min", "-12", "max", "9", "mean", "1.5"]
    assert lines[2][:3] == ["out.parts[0]", "float32", "scalar"] and lines[4] == ["out.texts['k']", "'b!'"]
    assert lines[5] == ["out.n", "3"] and lines[6] == ["out.none", "None"]
    assert "first values: 3 6 9 -12\n" in out and "then" in out and "(median of 2)" in out


def test_json(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, path, "2x3", "--json")
    found = json.loads(out)
    assert status == 0 and found["method"] == "forward" and found["calls"] == 1 and found["file"] == path
    assert list(found["outputs"]) == [
        "out.scaled",
        "out.parts[0]",
        "out.parts[1]",
        "out.texts['k']",
        "out.n",
        "out.none",
    ]
    assert found["outputs"]["out.scaled"]["shape"] == [2, 3] and found["outputs"]["out.n"] == {"value": 2}
    assert {"load_ms", "first_call_ms", "median_call_ms"} <= set(found)


def test_numbers_json_cannot_hold_stay_valid_json(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.array([np.nan, np.inf]))
    _, out, _ = call(capsys, path, str(tmp_path / "x.npy"), "--json")
    found = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found["outputs"]["out.scaled"]["dtype"] == "float64"


def test_outputs_in_a_file(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.npz"
    target.write_bytes(b"old")
    status, _, _ = call(capsys, path, "2:float64", "--out", str(target), "--seed", "5")
    assert status == 0
    with np.load(target) as found:
        assert sorted(found.files) == ["out.n", "out.parts[0]", "out.parts[1]", "out.scaled"]
        np.testing.assert_array_equal(found["out.scaled"], -2 * found["out.parts[1]"])
    assert sorted(os.listdir(tmp_path)) == ["m.pt", "out.npz"]


def test_a_failing_write_leaves_the_old_file_and_nothing_else(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.npz"
    target.write_bytes(b"old")

    def fails(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", fails)
    status, out, err = call(capsys, path, "2", "--out", str(target))
    assert status == 2 and out == "" and "No space left on device" in err and "Traceback" not in err
    assert target.read_bytes() == b"old" and sorted(os.listdir(tmp_path)) == ["m.pt", "out.npz"]


def test_a_folder_that_is_not_there(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = call(capsys, path, "2", "--out", str(tmp_path / "no" / "out.npz"))
    assert status == 2 and "No such file or directory" in err and "Traceback" not in err


def test_other_methods_and_npz_inputs(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "two.npz", b=np.ones(2), a=np.full(2, 5.0))
    status, out, _ = call(capsys, path, str(tmp_path / "two.npz"), "--method", "add")
    assert status == 0 and "first values: 6 6" in out
    status, out, _ = call(capsys, path, "--method", "nothing")
    assert status == 0 and "None" in out
    status, _, err = call(capsys, path, "--method", "other")
    assert status == 2 and "the model has no method 'other'; it has add, forward, nothing" in err


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([], "0 inputs are given; a value is missing for x. Declaration: forward(Tensor x, int n=2, str name="),
        (["2", "int=1", "str=a", "2"], "expected at most 3 positional arguments but received 4"),
        (["2", "float=1.5"], "expected a value of type 'int' for argument 'n' (position 1) but found float 1.5"),
        (["2x"], "input '2x' is neither an array file nor a shape"),
        (["2:float33"], "dtype 'float33' is not known; use one of"),
        (["int=x"], "'x' is no int"),
        (["bool=maybe"], "'maybe' is no bool"),
        (["none"], "argument 'x' (position 0) but found NoneType"),
        (["99999x99999"], "an input of shape (99999, 99999) is too large"),
        (["9999999999999999999999"], "is too large"),
        (["missing.npy"], "input file 'missing.npy' cannot be read"),
        (["2:int64:0"], "0"),
        (["2:int8:1000"], "1000"),
    ],
)
def test_inputs_that_do_not_fit(path: str, inputs: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, path, *inputs)
    assert status == 2 and out == "" and text in err and "Traceback" not in err


def test_pickled_arrays_and_damaged_files_are_refused(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY broken")
    (tmp_path / "bad.npz").write_bytes(b"PK\3\4 broken")
    (tmp_path / "empty.npy").write_bytes(b"")
    np.savez(tmp_path / "object.npz", a=np.array([{}], dtype=object))
    for name in ("object.npy", "bad.npy", "bad.npz", "empty.npy", "object.npz"):
        status, out, err = call(capsys, path, str(tmp_path / name))
        assert status == 2 and out == "" and f"{name}' cannot be read" in err and "Traceback" not in err, name


def test_inputs_from_text() -> None:
    texts = [
        "scalar",
        "2x3:float16",
        "4:int64:3",
        "0x2:uint8",
        "2:bool",
        "2:bfloat16",
        "2:complex64",
        "int=-3",
        "float=1e-3",
        "bool=True",
        "str=a=b",
        "none",
    ]
    found = list(read_inputs(texts, seed=1))
    arrays = found[:7]
    assert [(str(v.dtype), v.shape) for v in arrays] == [
        ("float32", ()),
        ("float16", (2, 3)),
        ("int64", (4,)),
        ("uint8", (0, 2)),
        ("bool", (2,)),
        ("bfloat16", (2,)),
        ("complex64", (2,)),
    ]
    assert found[2].max() < 3 and found[7:] == [-3, 0.001, True, "a=b", None]
    again = list(read_inputs(texts, seed=1))
    assert all(np.array_equal(x, y) for x, y in zip(arrays, again[:7], strict=True))
    assert not np.array_equal(found[1], list(read_inputs(texts, seed=2))[1])
    with pytest.raises(ArgumentError):
        list(read_inputs(["1x3x224x224:"], seed=0))


def test_flatten_names_every_leaf() -> None:
    assert dict(flatten(({"a": [1, (2,)]}, 3))) == {"out[0]['a'][0]": 1, "out[0]['a'][1][0]": 2, "out[1]": 3}


def test_the_example_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parent.parent.parent / "examples" / "classifier.pt"
    status, out, _ = call(capsys, str(example), "2x3x32x32", "--repeat", "2")
    assert status == 0 and "2x" in out and "load" in out


def test_a_device(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules, "open_device", lambda place: RecordingDevice(str(place)))
    np.save(tmp_path / "x.npy", np.array([[1.0, 2.0], [3.0, -4.0]], np.float32))
    for options in ((), ("--optimise",)):
        arguments = (path, str(tmp_path / "x.npy"), "int=3", "--device", "cuda:0", *options)
        status, out, err = call(capsys, *arguments, "--out", str(tmp_path / "o.npz"))
        assert (status, err) == (0, "") and "first values: 3 6 9 -12\n" in out and out.endswith(" on cuda:0\n")
        assert np.array_equal(np.load(tmp_path / "o.npz")["out.scaled"], np.array([[3, 6], [9, -12]], np.float32))
        found = json.loads(call(capsys, *arguments, "--json")[1])
        assert (found["device"], found["tier"]) == ("cuda:0", "planned")
        assert found["outputs"]["out.scaled"]["shape"] == [2, 2]


def test_a_device_that_is_none(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = call(capsys, path, "2x3", "--device", "toaster")
    assert status != 0 and "toaster" in err and "Traceback" not in err
