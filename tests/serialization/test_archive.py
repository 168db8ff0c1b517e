"""The container: what opens, what is refused, and what the refusal says."""

from __future__ import annotations

import io
import itertools
import pathlib
import pickle
import struct
import tempfile

import numpy as np
import pytest

from gpujit.serialization import zipindex
from gpujit.serialization.archive import Archive
from gpujit.support.errors import ArchiveError, VersionError
from tests.serialization.archives import CODE, Entry, pickled, script_archive, script_entries, text, write_zip


def refused(source, code, *words, error=ArchiveError, **options):
    """The message with which the source is refused; checks its code, and that it holds the words."""
    with pytest.raises(error) as caught:
        Archive(source, **options)
    assert caught.value.code == code
    message = str(caught.value)
    for word in words:
        assert word in message, message
    return message


# What opens ---------------------------------------------------------------------------------------------------------


def test_members_by_name_without_the_top_folder():
    with Archive(script_archive(storages={"0": b"abcd"}), "m.pt") as archive:
        assert archive.prefix == "m"
        assert archive.names() == [
            "data/0", "data.pkl", "code/__torch__.py", "constants.pkl", "version", "byteorder",
        ]  # fmt: skip
        assert archive.has("data/0") and not archive.has("m/data/0")
        assert archive.read("data/0") == b"abcd" == bytes(archive.view("data/0"))
        assert archive.read("code/__torch__.py") == CODE == bytes(archive.view("code/__torch__.py"))
        assert archive.size("code/__torch__.py") == len(CODE)
        assert archive.where("data.pkl") == "file m.pt, member m/data.pkl"
        assert (archive.version, archive.byteorder, archive.file) == (3, "little", "m.pt")
        assert archive.ts_code_roots() == []


def test_every_kind_of_source(tmp_path):
    data = script_archive(storages={"0": b"abcd"})
    path = tmp_path / "m.pt"
    path.write_bytes(data)
    written = io.BytesIO()
    written.write(data)  # stands at its end, as after saving
    behind = io.BytesIO(b"skip" + data)
    behind.seek(4)
    with open(path, "rb") as stream:
        for source in (
            str(path),
            path,
            data,
            bytearray(data),
            memoryview(data),
            io.BytesIO(data),
            written,
            behind,
            stream,
        ):
            assert Archive(source).read("data/0") == b"abcd"
    assert Archive(str(path)).file == str(path)
    assert Archive(data).file == "<bytes>"


def test_mapped_members_are_views_that_write_to_private_memory(tmp_path):
    path = tmp_path / "m.pt"
    path.write_bytes(script_archive(storages={"0": b"abcd" * 1000}))
    archive = Archive(path)
    array = np.frombuffer(archive.view("data/0"), np.uint8)
    again = np.frombuffer(archive.view("data/0"), np.uint8)
    array[0] = 0
    assert again[0] == 0 and np.shares_memory(array, again)
    archive.close()
    assert array[1] == ord("b")  # the mapping outlives the archive
    assert Archive(path).read("data/0")[:2] == b"ab"


def test_zip64_fields_comment_and_data_descriptor_flag():
    entries = script_entries()
    for e in entries:
        e.zip64 = True
    entries[0].flags |= 8
    entries[0].local_sizes = (0, 0, 0)
    archive = Archive(write_zip(entries, comment=b"made by hand", zip64_end=True))
    assert archive.read("code/__torch__.py") == CODE


def test_folder_entries_and_foreign_top_folders_are_passed_over():
    entries = [Entry("__MACOSX/"), Entry("__MACOSX/._m", b"x"), Entry("m/"), *script_entries()]
    archive = Archive(write_zip(entries))
    assert archive.prefix == "m" and len(archive.names()) == 5


def test_version_of_a_package_and_its_modules():
    root = pickled(b"N")
    entries = [
        Entry("p/.data/0.storage", b"abcd"),
        Entry("p/.data/ts_code/1/data.pkl", root),
        Entry("p/.data/ts_code/0/data.pkl", root),
        Entry("p/.data/ts_code/0/constants.pkl", pickled(b")")),
        Entry("p/.data/extern_modules", b""),
        Entry("p/.data/version", b"6\n"),
    ]
    archive = Archive(write_zip(entries))
    assert archive.ts_code_roots() == [0, 1] and archive.version == 6


def test_byteorder_is_little_unless_the_archive_says_big():
    def order(data):
        others = [e for e in script_entries() if e.name != "m/byteorder"]
        return Archive(write_zip([*others, *([] if data is None else [Entry("m/byteorder", data)])])).byteorder

    assert order(None) == "little" and order(b"big") == "big"
    with pytest.raises(ArchiveError, match="expected 'little' or 'big'") as caught:
        order(b"middle")
    assert caught.value.code == "byteorder"


def test_large_storages_are_checked_only_on_request():
    entries = script_entries()
    entries.append(Entry("m/data/0", bytes(70000), crc=1))
    data = write_zip(entries)
    assert len(Archive(data).view("data/0")) == 70000
    for archive, take in ((Archive(data, check=True), "view"), (Archive(data), "read")):
        with pytest.raises(ArchiveError, match="checksum") as caught:
            getattr(archive, take)("data/0")
        assert caught.value.code == "crc" and caught.value.member == "m/data/0"


# What is no archive -------------------------------------------------------------------------------------------------


def test_paths_that_name_no_file(tmp_path):
    refused(tmp_path / "absent.pt", "not-a-file", "no such file", "absent.pt", "check the path")
    refused(tmp_path, "not-a-file", "folder")
    refused("/dev/null", "not-a-file", "no regular file")
    refused("a\0b", "not-a-file")
    refused(3, "not-a-file", "int")
    refused(io.StringIO("text"), "not-a-file", "mode 'rb'")


def test_empty_sources(tmp_path):
    (tmp_path / "e.pt").write_bytes(b"")
    refused(tmp_path / "e.pt", "empty", "e.pt")
    refused(b"", "empty")
    refused(io.BytesIO(), "empty")


@pytest.mark.parametrize(
    ("head", "code", "word"),
    [
        (b"\n<!DOCTYPE html><html>", "html", "web page"),
        (b"<HTML>", "html", "download link"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "lfs-pointer", "git lfs pull"),
        (b"\x1c\0\0\0PTMF\0\0", "lite", "flatbuffer"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02", "state-dict", "before PyTorch 1.6"),
        (pickle.dumps({"a": 1}, 4), "state-dict", "protocol 4"),
        (struct.pack("<Q", 20) + b'{"w":{"dtype":"F32"}}', "other-archive", "safetensors"),
        (b"\x08\x07\x12\x07pytorch", "other-archive", "ONNX"),
        (b"\x1f\x8b\x08\0\0", "other-archive", "another kind of archive"),
        (b"hello", "not-a-zip", "b'hello'"),
    ],
)
def test_files_of_another_kind(head, code, word):
    refused(head, code, word)


def test_truncated_archives():
    data = script_archive()
    refused(data[:-1], "truncated", "cut short")
    refused(data[:100], "truncated", "100 bytes")
    refused(b"PK\3\4", "truncated")
    refused(data[:64] + data[300:], "truncated", "missing")
    for end in range(2, len(data), 37):
        with pytest.raises(ArchiveError):
            Archive(data[:end])


# Zip archives without a program --------------------------------------------------------------------------------------


def test_state_dicts_are_named_with_their_keys():
    body = b"}(" + b"".join(text(f"layer{i}.weight") + b"N" for i in range(12)) + b"u"
    data = write_zip([Entry("a/data.pkl", pickled(body)), Entry("a/version", b"3")])
    message = refused(data, "state-dict", "'layer0.weight'", "'layer9.weight'", "and 2 more", "torch.jit.script")
    assert "layer10" not in message


def test_checkpoints_with_foreign_objects_are_not_made():
    evil = b"cos\nsystem\n" + text("echo") + b"\x85R"
    holder = b"}(" + text("hyper_parameters") + evil + text("state_dict") + b"ccollections\nOrderedDict\n)Ru"
    for body, word in ((holder, "'hyper_parameters', 'state_dict'"), (evil, "os.system"), (b"junk", "pickled object")):
        refused(write_zip([Entry("a/data.pkl", pickled(body)), Entry("a/version", b"3")]), "state-dict", word)


def test_state_dict_written_by_torch():
    torch = pytest.importorskip("torch")
    stream = io.BytesIO()
    torch.save(torch.nn.Linear(2, 3).state_dict(), stream)
    refused(stream.getvalue(), "state-dict", "the keys 'weight', 'bias'")
    stream = io.BytesIO()
    torch.save({"epoch": 3}, stream, _use_new_zipfile_serialization=False)
    refused(stream.getvalue(), "state-dict", "PyTorch 1.6")


def test_archives_of_other_kinds():
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(2))
    refused(stream.getvalue(), "other-archive", "numpy.load")
    refused(write_zip([Entry("[Content_Types].xml"), Entry("word/document.xml")]), "other-archive", "office")
    refused(write_zip([Entry("x/y.txt"), Entry("x/z.txt")]), "other-archive", "'x/y.txt', 'x/z.txt'")
    refused(write_zip([]), "other-archive", "nothing")
    bytecode = [Entry("m/bytecode.pkl", b""), Entry("m/data.pkl", b""), Entry("m/constants.pkl", b"")]
    refused(write_zip(bytecode), "lite", "bytecode")
    assert Archive(write_zip(bytecode), kind="any").has("bytecode.pkl")
    refused(write_zip([Entry("m/model.json")]), "version", "PyTorch 1.0", error=VersionError)
    refused(write_zip([Entry("p/.data/extern_modules")]), "other-archive", "torch.package")


def test_missing_members():
    for gone in ("data.pkl", "constants.pkl", "version"):
        entries = [e for e in script_entries() if e.name != f"m/{gone}"]
        refused(write_zip(entries), "missing-member", f"'{gone}'")
    with pytest.raises(ArchiveError, match=r"no member 'data/7'") as caught:
        Archive(script_archive()).read("data/7")
    assert caught.value.code == "missing-member"


@pytest.mark.parametrize("version", [b"1", b"3\n", b"10\n"])
def test_versions_in_range(version):
    assert Archive(script_archive(version=version)).version == int(version)


@pytest.mark.parametrize("version", [b"0", b"11\n", b"-1", b"three", b"", b"9" * 20, "３".encode()])
def test_versions_out_of_range(version):
    words = (version.decode().strip(), "1 to 10") if version in (b"0", b"11\n") else ()
    refused(script_archive(version=version), "version", *words, error=VersionError)
    refused(script_archive(version=b"3" + b" " * 100), "size")


# Hostile archives -----------------------------------------------------------------------------------------------------


def with_extra(*extra, **options):
    """A TorchScript archive with more members."""
    return write_zip([*script_entries(), *extra], **options)


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "m/../x",
        "../x",
        "m/..",
        "m\\x",
        "C:/x",
        "m/x\0y",
        "m//x",
        "./m",
        "",
        "m/" + "x" * 1023,
        b"m/\xff\xfe",
    ],
)
def test_names_that_lead_elsewhere(name):
    refused(with_extra(Entry(name, b"x")), "bad-member-name")


def test_links_and_folders_with_content():
    refused(with_extra(Entry("m/link", b"/etc/passwd", attributes=0o120777 << 16)), "bad-member-name", "symbolic link")
    refused(with_extra(Entry("m/folder/", b"x")), "bad-member-name", "folder")


def test_two_members_of_one_name():
    refused(with_extra(Entry("m/version", b"4")), "duplicate-member", "m/version")


def test_members_that_overlap():
    # A member whose data holds another whole member, listed too.
    inner = write_zip([Entry("m/data/in", b"secret", align=1)])
    start = with_extra(Entry("m/data/out", inner)).index(b"m/data/in") - 30
    nested = with_extra(Entry("m/data/out", inner), Entry("m/data/in", b"secret", header=start))
    refused(nested, "overlap", "m/data/out")
    long = with_extra(Entry("m/data/out", b"x", size=40, packed=40))
    refused(long, "overlap", "directory")


def test_sizes_that_lie():
    refused(with_extra(Entry("m/data/0", b"x", size=5)), "size", "stored in 1 bytes")
    refused(with_extra(Entry("m/data/0", b"x", size=1 << 30, packed=1 << 30)), "size", "file has")
    refused(with_extra(Entry("m/data/0", b"x", header=1 << 30)), "size")
    refused(with_extra(Entry("m/data/0", b"x", header=3)), "size", "no member starts")
    refused(with_extra(Entry("m/data/0", b"x", local_sizes=(1, 2, 3))), "size", "disagree")
    refused(with_extra(Entry("m/data/0", b"x", local_name=b"m/data/1")), "bad-member-name", "different names")
    refused(with_extra(count=2000), "size")
    refused(with_extra(directory_at=1 << 20), "truncated")
    refused(with_extra(directory_at=0), "size")
    wide = script_entries()
    wide[0].size = wide[0].packed = 0xFFFFFFFF
    refused(write_zip(wide), "size", "zip64")


def test_deflated_members_never_give_more_than_declared():
    short = Archive(with_extra(Entry("m/data/0", bytes(5000), deflate=True, size=100)))
    long = Archive(with_extra(Entry("m/data/0", bytes(100), deflate=True, size=5000)))
    for archive, word in ((short, "more"), (long, "100")):
        with pytest.raises(ArchiveError, match=word) as caught:
            archive.view("data/0")
        assert caught.value.code == "size"
    with pytest.raises(ArchiveError, match="damaged") as caught:
        Archive(with_extra(Entry("m/data/0", b"\xff\xff\xff", method=8))).read("data/0")
    assert caught.value.code == "crc"


def test_bombs():
    refused(with_extra(Entry("m/code/x.py", b"", deflate=True, size=1 << 31)), "bomb", "deflate cannot do that")
    packed = bytes(600 << 10)
    many = [Entry(f"m/code/{i}.py", packed, method=8, size=299 << 20) for i in range(2)]
    refused(with_extra(*many), "bomb", "refused")


def test_encrypted_and_oddly_packed_members():
    refused(with_extra(Entry("m/x", b"x", flags=0x801)), "encrypted", "decrypt")
    refused(with_extra(Entry("m/x", b"x", method=14)), "unsupported-compression", "method 14")


def test_too_many_members(monkeypatch):
    refused(with_extra(count=1 << 20, zip64_end=True), "too-many-members", str(1 << 20))
    monkeypatch.setattr(zipindex, "MAX_MEMBERS", 4)
    refused(script_archive(), "too-many-members", "5 members")


def test_split_archives():
    data = bytearray(script_archive())
    data[-18] = 1
    refused(bytes(data), "size", "split")


def test_members_of_real_zips_agree_with_zipfile():
    import zipfile

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as z:
        for i, method in itertools.product(range(5), (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)):
            z.writestr(f"top/{method}/ä{i}", bytes([i]) * 1000 * i, method)
    archive = Archive(stream.getvalue(), kind="any")
    with zipfile.ZipFile(stream) as z:
        assert {n: z.read(f"top/{n}") for n in archive.names()} == {n: archive.read(n) for n in archive.names()}
        assert len(archive.names()) == 10


@pytest.mark.filterwarnings("ignore")
def test_opening_a_file_written_by_torch():
    torch = pytest.importorskip("torch")
    module = torch.jit.trace(torch.nn.Linear(2, 3), torch.zeros(1, 2))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "linear.pt"
        torch.jit.save(module, str(path), _extra_files={"note.txt": b"hello"})
        archive = Archive(path, check=True)
        assert archive.prefix == "linear" and archive.version == 3
        assert archive.read("extra/note.txt") == b"hello"
        assert len(archive.view("data/0")) in (12, 24)
        # A folder, with a number in the file's name, when the process traced one before.
        (code,) = (
            n for n in archive.names() if n.startswith("code/__torch__/torch/nn/modules/linear") and n.endswith(".py")
        )
        assert b"class Linear(Module):" in archive.read(code)
