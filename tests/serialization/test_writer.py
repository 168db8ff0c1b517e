"""Saving modules: what comes back, what the archive looks like, and what happens when it cannot be written."""

from __future__ import annotations

import errno
import io
import json
import os
import struct
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit
from gpujit.ir.values import QTensor, SparseTensor
from gpujit.serialization import zipwrite
from gpujit.support.errors import SaveError
from tests.compare import assert_same, from_json, from_meta
from tests.programs import Obj, Place, Typed, View, archive, module
from tests.serialization.archives import Entry, write_zip
from tests.serialization.saved import again, code, members
from tests.serialization.test_debug import row, table

CORPUS = Path(__file__).parent.parent / "models" / "corpus"
NAMES = sorted(p.stem for p in CORPUS.glob("*.pt"))
LANGUAGE = zipfile.ZipFile(Path(__file__).parent.parent / "frontend" / "language.zip")
RUNS: dict[str, list[dict[str, Any]]] = json.loads(LANGUAGE.read("expected.json"))
LINEAR = module(
    """
    def forward(self: __torch__.M,
      x: Tensor) -> Tensor:
      weight = self.weight
      return torch.matmul(x, weight)
    """,
    "weight : Tensor\nbuffer : Tensor\ntraining : bool",
    parameters=["weight"],
    buffers=["buffer"],
)


def linear(**options: Any) -> gpujit.ScriptModule:
    attributes = {"weight": np.eye(2, dtype=np.float32), "buffer": np.arange(3), "training": False}
    return gpujit.load(archive(LINEAR, attributes, **options))


def holding(value: Any, type_: str = "Tensor") -> gpujit.ScriptModule:
    """A module with one attribute ``a``."""
    return gpujit.load(archive(module("", f"a : {type_}"), {"a": value}))


# ------------------------------------------------------------------------------------------------- whole programs


@pytest.mark.parametrize("name", NAMES)
def test_models_come_back_whole(name: str) -> None:
    """PyTorch's outputs from a model saved by gpujit; saved again the same bytes, and no more than PyTorch's."""
    with np.load(CORPUS / f"{name}.npz") as stored:
        arrays = {k: stored[k] for k in stored.files if k != "meta"}
        meta = json.loads(str(stored["meta"]))
    original = gpujit.load(CORPUS / f"{name}.pt")
    data = original.save_to_buffer()
    assert original.save_to_buffer() == data
    loaded = gpujit.load(data)
    assert loaded.save_to_buffer() == data
    assert len(data) <= (CORPUS / f"{name}.pt").stat().st_size
    result = loaded(*[from_meta(m, arrays) for m in meta["inputs"]])
    assert_same(result, from_meta(meta["output"], arrays), name)
    assert list(loaded.state_dict()) == list(original.state_dict())
    for key, value in original.state_dict().items():
        assert_same(loaded.state_dict()[key], value, key)


@pytest.mark.parametrize("name", [n for n in NAMES if "Model" not in n])
def test_frozen_models_come_back_whole(name: str) -> None:
    with np.load(CORPUS / f"{name}.npz") as stored:
        arrays = {k: stored[k] for k in stored.files if k != "meta"}
        meta = json.loads(str(stored["meta"]))
    frozen = gpujit.freeze(gpujit.load(CORPUS / f"{name}.pt").eval())
    data = frozen.save_to_buffer()
    second = gpujit.load(data).save_to_buffer()
    assert gpujit.load(second).save_to_buffer() == second
    inputs = [from_meta(m, arrays) for m in meta["inputs"]]
    assert_same(gpujit.load(data)(*inputs), frozen(*inputs), name)


@pytest.mark.parametrize("name", RUNS)
def test_programs_over_the_whole_language_come_back(name: str) -> None:
    """The results and the errors of PyTorch, in the order in which the runs were made."""
    data = gpujit.load(LANGUAGE.read(f"{name}.pt")).save_to_buffer()
    loaded = gpujit.load(data)
    assert loaded.save_to_buffer() == data
    for run in RUNS[name]:
        arguments = from_json(run["args"])
        if "error" in run:
            with pytest.raises(gpujit.GpujitError) as caught:
                gpujit.load(data)(*arguments)
            if name != "shape_error":
                assert run["error"].removeprefix("RuntimeError: ") in str(caught.value)
        else:
            assert_same(loaded(*arguments), from_json(run["result"]), name)


# --------------------------------------------------------------------------------------------------- the archive


def test_the_archive_is_laid_out_as_pytorch_does() -> None:
    data = linear().save_to_buffer(_extra_files={"note.txt": "hé", "raw": b"\0\1"})
    names = [
        "extra/note.txt", "extra/raw", "data/0", "data/1", "data.pkl", "code/__torch__.py", "constants.pkl", "version",
        "byteorder", ".data/serialization_id",
    ]  # fmt: skip
    found = members(data)
    assert list(found) == names
    assert found["version"] == b"3\n"
    assert found["byteorder"] == sys.byteorder.encode()
    assert found["constants.pkl"] == b"\x80\x02)."
    assert len(found[".data/serialization_id"]) == 40 and found[".data/serialization_id"].isdigit()
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        assert z.testzip() is None
        for info in z.infolist():
            packed = info.filename.endswith(".py")
            assert info.compress_type == (zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED), info.filename
            name_size, extra_size = struct.unpack("<HH", data[info.header_offset + 26 : info.header_offset + 30])
            assert (info.header_offset + 30 + name_size + extra_size) % 64 == 0
            assert info.date_time == (1980, 0, 0, 0, 0, 0)
    files: dict[str, Any] = {"note.txt": "", "raw": b"", "none": ""}
    gpujit.load(data, _extra_files=files)
    assert files == {"note.txt": "hé", "raw": b"\0\1", "none": ""}


def test_large_archives_have_wide_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes and places beyond 32 bits are written as zip64 says; here the limits are lowered instead."""
    monkeypatch.setattr(zipwrite, "WIDE_BYTES", 100)
    monkeypatch.setattr(zipwrite, "WIDE_COUNT", 2)
    data = linear().save_to_buffer()
    assert b"PK\6\6" in data
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        assert z.testzip() is None and len(z.infolist()) == 8
        assert any(i.extract_version == 45 for i in z.infolist())
    np.testing.assert_array_equal(gpujit.load(data).weight, np.eye(2))
    for name, raw in members(data).items():
        if name.startswith("data/"):
            assert data.index(raw) % 64 == 0


def test_what_is_saved_is_what_the_module_holds_now() -> None:
    changed = linear()
    changed.weight[...] = 7
    changed.buffer = np.arange(5.0)
    changed.train()
    loaded = again(changed)
    np.testing.assert_array_equal(loaded.weight, np.full((2, 2), 7))
    np.testing.assert_array_equal(loaded.buffer, np.arange(5.0))
    assert loaded.training is True
    assert [n for n, _ in loaded.named_parameters()] == ["weight"]
    half = again(linear().half())
    assert half.weight.dtype == np.float16


def test_a_file_may_be_written_over_the_one_that_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    weight = np.random.default_rng(0).random((200, 200), np.float32)
    path.write_bytes(archive(LINEAR, {"weight": weight, "buffer": np.arange(3), "training": False}))
    loaded = gpujit.load(path)
    loaded.save(path)
    np.testing.assert_array_equal(loaded.weight, weight)
    np.testing.assert_array_equal(gpujit.load(path).weight, weight)


def test_targets(tmp_path: Path) -> None:
    model = linear()
    data = model.save_to_buffer()
    path = tmp_path / "m.pt"
    gpujit.save(model, path)
    model.save(str(tmp_path / "n.ts"))
    assert path.read_bytes() == (tmp_path / "n.ts").read_bytes() == data
    buffer = io.BytesIO()
    model.save(buffer)
    assert buffer.getvalue() == data
    with open(tmp_path / "o.pt", "wb", buffering=0) as stream:
        model.save(stream)
    assert (tmp_path / "o.pt").read_bytes() == data
    link = tmp_path / "link.pt"
    link.symlink_to(path)
    path.write_bytes(b"old")
    path.chmod(0o640)
    model.save(link)
    assert link.is_symlink() and path.read_bytes() == data and path.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.pt", "m.pt", "n.ts", "o.pt"]


# -------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (None, "NoneType"), (None, "Optional[int]"), (3, "Optional[int]"), (True, "bool"), (-1, "int"), (255, "int"),
        (256, "int"), (65536, "int"), (-(1 << 63), "int"), ((1 << 63) - 1, "int"), (0.1, "float"),
        (float("-inf"), "float"), (1 + 2j, "complex"), ("", "str"), ("é\n\0", "str"), ([1, 2], "List[int]"),
        ([1.5], "List[float]"), ([True], "List[bool]"), (Typed(["a"], "List[str]"), "List[str]"),
        (Typed([], "List[Optional[int]]"), "List[Optional[int]]"), ((), "Tuple[()]"), ((1, "a"), "Tuple[int, str]"),
        ((1, 2, 3, 4), "Tuple[int, int, int, int]"), (Typed({"a": 1}, "Dict[str, int]"), "Dict[str, int]"),
        (Typed({}, "Dict[int, Tensor]"), "Dict[int, Tensor]"), (5, "Any"), (Typed([1], "List[int]"), "Any"),
        (Typed(["a"], "List[str]"), "Union[List[int], List[str]]"),
        ((1, "x"), "Union[Tuple[str, str], Tuple[int, str]]"),
    ],
)  # fmt: skip
def test_values_come_back(value: Any, type_: str) -> None:
    original = holding(value, type_)
    loaded = again(original)
    a, b = original.a, loaded.a
    assert a == b and type(a) is type(b)
    assert f"  a : {type_}\n" in code(loaded.save_to_buffer())


def test_nan_and_devices_come_back() -> None:
    assert np.isnan(again(holding(float("nan"), "float")).a)
    loaded = holding(Place("cuda:1"), "Device")
    assert str(again(loaded).a) == "cuda:1"


@pytest.mark.parametrize(
    "dtype",
    [
        np.uint8, np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64, np.complex64,
        np.complex128, np.bool_, ml_dtypes.bfloat16, np.uint16, np.uint32, np.uint64, ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e4m3fn,
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3), (1, 1)])
def test_arrays_of_every_dtype_come_back(dtype: Any, shape: tuple[int, ...]) -> None:
    model = holding(np.zeros(1, np.float32))
    model.a = np.ones(shape, dtype)
    loaded = again(model)
    assert loaded.a.dtype == dtype and loaded.a.shape == shape
    np.testing.assert_array_equal(loaded.a.astype(np.float64), np.ones(shape))


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a.T, lambda a: a[::2, 1:], lambda a: a[::-1], lambda a: a[:, None], lambda a: a[1],
        lambda a: np.broadcast_to(a[0], (5, 4)), lambda a: a.astype(">f4"), lambda a: np.asfortranarray(a),
        lambda a: a.view([("x", "f4"), ("y", "f4")])["y"],
    ],
)  # fmt: skip
def test_arrays_of_every_layout_come_back(make: Any) -> None:
    model = holding(np.zeros(1, np.float32))
    value = make(np.arange(12, dtype=np.float32).reshape(3, 4))
    model.a = value
    loaded = again(model)
    np.testing.assert_array_equal(loaded.a, value)


def shared(*views: View) -> gpujit.ScriptModule:
    names = [f"v{i}" for i in range(len(views))]
    source = module("", "\n".join(f"{n} : Tensor" for n in names))
    return gpujit.load(archive(source, dict(zip(names, views, strict=True))))


def storages(model: gpujit.ScriptModule) -> list[int]:
    """Sizes of the archive's storages in bytes."""
    return [len(v) for k, v in members(model.save_to_buffer()).items() if k.startswith("data/")]


def test_views_of_one_storage_stay_views_of_one() -> None:
    flat = np.arange(12, dtype=np.float32)
    model = shared(View(flat, (6,), (1,)), View(flat, (3, 2), (1, 3), 6), View(flat, (4,), (0,), 2))
    assert storages(model) == [48]
    loaded = again(model)
    loaded.v0[2] = 99
    np.testing.assert_array_equal(loaded.v2, np.full(4, 99))
    np.testing.assert_array_equal(loaded.v1, [[6, 9], [7, 10], [8, 11]])
    assert loaded.v2.strides == (0,) and loaded.v1.base is not None


def test_one_array_in_two_places_stays_one() -> None:
    w = np.ones(3, np.float32)
    loaded = again(shared(w, w))  # type: ignore[arg-type]
    assert loaded.v0 is loaded.v1


def test_a_buffer_that_is_mostly_unused_is_not_dragged_along() -> None:
    flat = np.arange(1000, dtype=np.float32)
    assert storages(shared(View(flat, (2,), (1,)), View(flat, (2,), (1,), 900))) == [8, 8]
    assert storages(shared(View(flat, (2,), (1,)), View(flat, (2,), (1,), 1))) == [12]


def test_views_of_other_types_get_a_storage_of_their_own() -> None:
    """PyTorch's reader gives all tensors over a storage the element type it met first."""
    model = shared(np.zeros(4, np.float32), np.zeros(1, np.int32))  # type: ignore[arg-type]
    model.v0 = np.ones(4, np.float32)
    model.v1 = model.v0.view(np.int32)
    assert storages(model) == [16, 16]


def test_lists_dicts_and_objects_that_are_shared_stay_shared() -> None:
    source = module("", "a : List[int]\nb : List[int]\nc : __torch__.K\nd : __torch__.K")
    source += "class K:\n  n : int\n"
    numbers, k = Typed([1, 2], "List[int]"), Obj("__torch__.K", {"n": 1})
    loaded = again(gpujit.load(archive(source, {"a": numbers, "b": numbers, "c": k, "d": k})))
    object_ = loaded._object
    assert object_.get("a") is object_.get("b")
    assert object_.get("c") is object_.get("d")


def test_quantised_and_sparse_tensors_come_back() -> None:
    model = holding(np.zeros(1, np.float32))
    values = np.arange(6, dtype=np.int8).reshape(2, 3)
    for value in (
        QTensor(values, 12, 0.5, 3),
        QTensor(values.view(np.uint8), 13, np.asarray([0.5, 0.25]), np.asarray([1, 2]), 0),
        QTensor(values.view(np.uint8), 13, np.asarray([0.5, 0.25], np.float32), np.asarray([1.5, 2], np.float32), 0),
    ):
        model._object.set("a", value)
        loaded = again(model).a
        assert (loaded.dtype, loaded.axis) == (value.dtype, value.axis)
        for got, want in ((loaded.values, value.values), (loaded.scale, value.scale)):
            np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(loaded.zero_point, value.zero_point)
    sparse = SparseTensor(1, (np.asarray([[0, 2]]), np.ones(2, np.float32)), (4,))
    model._object.set("a", sparse)
    loaded = again(model).a
    assert (loaded.layout, loaded.shape) == (1, (4,))
    np.testing.assert_array_equal(loaded.parts[0], [[0, 2]])


@pytest.mark.parametrize("flag", [b"\x88", b"\x89"])
def test_requires_grad_is_what_the_file_said(flag: bytes) -> None:
    """New parameters follow suit: where the file marks none as trainable, they are not either."""
    data = archive(LINEAR, {"weight": np.eye(2, dtype=np.float32), "buffer": np.arange(3), "training": False})
    entries = members(data)
    # The first tensor's flag stands before its (empty) hooks.
    at = entries["data.pkl"].index(b"ccollections\nOrderedDict\n")
    assert entries["data.pkl"][at - 1 : at] == b"\x89"
    entries["data.pkl"] = entries["data.pkl"][: at - 1] + flag + entries["data.pkl"][at:]
    model = gpujit.load(write_zip(Entry(f"m/{n}", raw) for n, raw in entries.items()))

    def is_trainable(name: str) -> bool:
        loaded = again(model)
        assert loaded._program.loaded is not None
        return loaded._program.loaded.trainable(loaded._object.get(name), False)

    assert (is_trainable("weight"), is_trainable("buffer")) == (flag == b"\x88", False)
    model.weight = np.ones((2, 2), np.float32)
    model.buffer = np.ones(3, np.float32)
    assert (is_trainable("weight"), is_trainable("buffer")) == (flag == b"\x88", False)
    model.weight = np.ones((2, 2), np.int64)
    assert not is_trainable("weight")


def test_state_methods_are_run() -> None:
    source = module(
        """
        def __getstate__(self: __torch__.M) -> Tuple[int, str]:
          n = self.n
          return (torch.mul(n, 10), "state")
        def __setstate__(self: __torch__.M, state: Tuple[int, str]) -> NoneType:
          n, _0, = state
          self.n = torch.add(n, 1)
          return None
        """,
        "n : int",
    )
    model = gpujit.load(archive(source, (4, "state")))
    assert model.n == 5
    assert again(model).n == 51


# -------------------------------------------------------------------------------------------------- debug tables


def test_errors_of_a_saved_module_still_show_the_authors_source() -> None:
    """The table is written anew: its offsets are those of the printed code."""
    source = module(
        """
        def forward(self: __torch__.M, x: Tensor) -> Tensor:
          y = torch.add(x, 1)
          return torch.matmul(y, torch.zeros([7]))
        """
    )
    author = "def forward(self, x):\n    y = x + 1\n    return y @ torch.zeros(7)\n"
    at = source.index("torch.matmul")
    place = row(at, author, "model.py", 10, author.index("y @"), len(author) - 1)
    model = gpujit.load(archive(source, debug={"__torch__.py": table((place,))}))
    for loaded in (model, again(model), again(again(model))):
        with pytest.raises(gpujit.GpujitError) as caught:
            loaded(np.ones(3, np.float32))
        assert 'File "model.py", line 12' in str(caught.value)
        assert "return y @ torch.zeros(7)" in str(caught.value)


def test_a_module_without_tables_gets_none() -> None:
    assert not [n for n in members(linear().save_to_buffer()) if n.endswith(".debug_pkl")]


# -------------------------------------------------------------------------------------------------------- errors


def test_what_cannot_be_saved_is_named() -> None:
    source = module("", "sub : __torch__.S\ntraining : bool") + "class S(Module):\n  a : List[Any]\n  b : Any\n"
    model = gpujit.load(archive(source, {"sub": Obj("__torch__.S", {"a": [], "b": 1}), "training": False}))
    cases: list[tuple[str, Any, str]] = [
        ("b", object(), "the module.sub.b holds a builtins.object, which cannot be saved"),
        ("a", [1, threading.Lock()], r"the module.sub.a\[1\] holds a _thread.lock"),
        ("b", {1: object()}, r"the module.sub.b holds a dict whose type cannot be told from Any"),
        ("b", 1 << 70, "the module.sub.b holds the integer .*, which is outside 64 bits"),
        ("b", np.asarray(["text"]), "the module.sub.b is an array of dtype <U4, which tensors cannot have"),
    ]
    for name, value, message in cases:
        model.sub._object.set(name, value)
        with pytest.raises(SaveError, match=message):
            model.save_to_buffer()
        model.sub._object.set(name, [] if name == "a" else 1)
    loop: list[Any] = [1]
    loop.append(loop)
    model.sub._object.set("a", loop)
    with pytest.raises(SaveError, match="contains itself"):
        model.save_to_buffer()


def test_extra_files_are_checked() -> None:
    with pytest.raises(SaveError, match="content of 'n' is a int"):
        linear().save_to_buffer(_extra_files={"n": 3})
    for name in ("", "a/../../b", "/etc/x", "a\\b", "a\0", "folder/"):
        with pytest.raises(SaveError, match="no name for a file"):
            linear().save_to_buffer(_extra_files={name: b""})


def test_only_modules_are_saved(tmp_path: Path) -> None:
    with pytest.raises(gpujit.ArgumentError, match="save expects a ScriptModule"):
        gpujit.save(object(), tmp_path / "m.pt")  # type: ignore[arg-type]


class FullDisk(io.RawIOBase):
    """A file that takes so many bytes and no more."""

    def __init__(self, room: int) -> None:
        self.room = room

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        taken = min(len(data), self.room)
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= taken
        return taken


@pytest.mark.parametrize("room", [0, 1, 100, 700])
def test_a_full_disk_is_an_error(room: int) -> None:
    with pytest.raises(SaveError, match="No space left"):
        linear().save(FullDisk(room))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_that_is_full() -> None:
    with pytest.raises(SaveError, match="/dev/full cannot be written: No space left"):
        linear().save("/dev/full")


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on file sizes")
def test_nothing_is_left_when_a_file_cannot_grow(tmp_path: Path) -> None:
    """The file that was there stays, and no part of a new one is left beside it."""
    path = tmp_path / "m.pt"
    linear().save(path)
    before = path.read_bytes()
    program = f"""
import resource, signal, sys, gpujit
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
model = gpujit.load({str(path)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
try:
    model.save({str(path)!r})
except gpujit.SaveError as e:
    print(e.code, e)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("save-target") and "cannot be written: File too large" in done.stdout
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.pt"]


def test_a_fault_of_the_module_leaves_the_target_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    path.write_bytes(b"old")
    model = holding(1, "Any")
    model._object.set("a", object())
    with pytest.raises(SaveError):
        model.save(path)
    buffer = io.BytesIO()
    with pytest.raises(SaveError):
        model.save(buffer)
    assert path.read_bytes() == b"old" and buffer.getvalue() == b""
    assert [p.name for p in tmp_path.iterdir()] == ["m.pt"]


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    model = linear()
    with pytest.raises(SaveError, match="No such file or directory"):
        model.save(tmp_path / "none" / "m.pt")
    with pytest.raises(SaveError, match="it is a folder"):
        model.save(tmp_path)
    with pytest.raises(SaveError, match="path or a file object"):
        model.save(3)
    with pytest.raises(SaveError, match="mode 'wb'"):
        model.save(io.StringIO())
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        with pytest.raises(SaveError, match="Permission denied"):
            model.save(tmp_path / "m.pt")
        tmp_path.chmod(0o700)
    assert list(tmp_path.iterdir()) == []
