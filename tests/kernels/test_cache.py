"""Entries on disk: whole or absent, bounded, safe among processes, and never in the way when the disk is not well."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from gpujit.kernels import cache, cache_files
from gpujit.kernels.cache import Store
from gpujit.support.config import config, from_environment
from gpujit.support.errors import ArgumentError, CacheWarning, InternalError

A, B, C = "a" * 64, "b" * 64, "c" * 64
IMAGE = bytes(range(256)) * 4
posix = pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "kernels", 1 << 20)


def again(store: Store) -> Store:
    """The same folder as another process sees it."""
    return Store(store.folder, store.limit)


def files(store: Store) -> list[str]:
    return sorted(p.name for p in store.folder.rglob("*") if p.is_file())


def test_what_was_put_is_found(store: Store) -> None:
    assert store.get(A) is None and not store.folder.exists()
    store.put(A, IMAGE, "the source")
    assert again(store).get(A) == IMAGE and store.get(B) is None
    assert store.path(A, "ll").read_text() == "the source"
    assert files(store) == [f"{A}.ll", f"{A}.o"]
    assert (store.counters.hits, store.counters.misses, store.counters.written) == (0, 2, 1)


def test_the_object_file_comes_first_for_other_tools(store: Store) -> None:
    store.put(A, IMAGE, "")
    assert store.path(A, "o").read_bytes().startswith(IMAGE)


def test_a_pack_holds_the_kernels_of_a_plan(store: Store) -> None:
    store.put_pack([B, A, C], {A: IMAGE, B: b""})
    assert again(store).get_pack([A, C, B]) == {A: IMAGE, B: b""}
    assert store.get_pack([A, B]) == {}
    assert A in store.path(cache.pack_key([A, B, C]), "txt").read_text()


def test_only_hashes_name_files(store: Store) -> None:
    for name in ("../../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n", ""):
        with pytest.raises(InternalError, match="is no hash"):
            store.path(name, "o")


# ------------------------------------------------------------------------------------------------------ damage


def damages() -> list[tuple[str, bytes]]:
    whole = cache.seal(IMAGE, f"{A}.o")
    found = [(f"cut to {n}", whole[:n]) for n in (0, 1, 8, 39, 40, 41, len(IMAGE), len(whole) - 9, len(whole) - 1)]
    # The image, the checksum behind it, the mark at the end.
    for at in (0, 1, 500, len(IMAGE) - 1, len(IMAGE), len(IMAGE) + 31, len(IMAGE) + 32, len(whole) - 1):
        for bit in (0, 7):
            found.append((f"bit {bit} of byte {at}", whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]))
    found += [("more behind", whole + b"\0"), ("more before", b"\0" + whole), ("zeros", bytes(len(whole)))]
    found.append(("another kernel's", cache.seal(IMAGE, f"{B}.o")))
    found.append(("a pack", cache.seal(IMAGE, f"{A}.pack")))
    return found


@pytest.mark.parametrize(("name", "data"), damages(), ids=[name for name, _ in damages()])
def test_a_damaged_entry_is_noticed_and_replaced(store: Store, name: str, data: bytes) -> None:
    store.put(A, IMAGE, "")
    path = store.path(A, "o")
    path.write_bytes(data)
    assert store.get(A) is None and store.counters.damaged == 1
    assert not path.exists()
    store.put(A, IMAGE, "")
    assert store.get(A) == IMAGE


@posix
def test_links_pipes_and_files_others_may_write_are_not_read(store: Store, tmp_path: Path) -> None:
    store.put(A, IMAGE, "")
    path = store.path(A, "o")
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert store.get(A) is None
    path.unlink()
    os.mkfifo(path)
    assert store.get(A) is None
    path.unlink()
    elsewhere.rename(path)
    path.chmod(0o666)
    assert store.get(A) is None
    path.chmod(0o644)
    assert store.get(A) == IMAGE


@posix
def test_a_link_in_the_place_of_a_subfolder_is_not_listed_or_cleared(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other", 1 << 20)
    other.put(A, IMAGE, "")
    store.put(B, IMAGE, "")
    (store.folder / "aa").symlink_to(other.folder / "aa")
    assert [e.key for e in store.entries()] == [B]
    assert store.clear()[0] == 1 and other.get(A) == IMAGE


@posix
def test_the_folder_is_for_its_owner_alone(store: Store) -> None:
    store.put(A, IMAGE, "")
    assert store.folder.stat().st_mode & 0o777 == 0o700
    assert store.path(A, "o").stat().st_mode & 0o777 == 0o600


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720])
def test_a_folder_others_may_write_in_is_not_used(store: Store, mode: int) -> None:
    store.put(A, IMAGE, "")
    store.folder.chmod(mode)
    other = again(store)
    with pytest.warns(CacheWarning, match="may write in it"):
        assert other.get(A) is None
    other.put(B, IMAGE, "")
    assert not store.path(B, "o").exists()


@posix
def test_a_folder_of_another_user_is_not_used(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(A, IMAGE, "")
    if os.geteuid() == 0:
        os.chown(store.folder, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.warns(CacheWarning, match="other users own"):
        assert again(store).get(A) is None


# ------------------------------------------------------------------------------------- disks that are not well


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["open", "replace", "mkdir"])
def test_what_cannot_be_written_is_one_warning(
    store: Store, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    store.put(A, IMAGE, "")
    real = getattr(os, call)

    def fails(path: object, *rest: object, **named: object) -> object:
        if call != "open" or (rest and isinstance(rest[0], int) and rest[0] & os.O_CREAT):
            raise OSError(number, os.strerror(number))
        return real(path, *rest, **named)

    monkeypatch.setattr(os, call, fails)
    other = again(store)
    with pytest.warns(CacheWarning, match=os.strerror(number)) as said:
        other.put(B, IMAGE, "")
        other.put(C, IMAGE, "")
    assert len(said) == 1 and "GPUJIT_CACHE=0" in str(said[0].message)
    # Reading goes on, and nothing half-written stays.
    assert other.get(A) == IMAGE and other.get(B) is None
    assert files(store) == [f"{A}.ll", f"{A}.o"]


def test_a_disk_that_fills_while_a_file_is_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    def opened(file: int, mode: str) -> Full:
        os.close(file)
        return Full()

    with monkeypatch.context() as m:
        m.setattr(cache_files, "open", opened, raising=False)
        with pytest.warns(CacheWarning, match="No space left"):
            store.put(A, IMAGE, "")
    assert files(store) == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a user whom permissions stop")
def test_a_folder_that_is_only_read(store: Store) -> None:
    store.put(A, IMAGE, "")
    os.utime(store.path(A, "o"), (1, 1))
    for folder in (store.folder / "aa", store.folder):
        folder.chmod(0o500)
    other = again(store)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert other.get(A) == IMAGE
    with pytest.warns(CacheWarning):
        other.put(B, IMAGE, "")
    store.folder.chmod(0o700)


def test_a_file_in_the_folder_s_place(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    store = Store(place, 1 << 20)
    with pytest.warns(CacheWarning, match="is no folder"):
        assert store.get(A) is None
    store.put(A, IMAGE, "")
    below = Store(place / "below", 1 << 20)
    with pytest.warns(CacheWarning, match="Not a directory"):
        assert below.get(A) is None
        below.put(A, IMAGE, "")


# ----------------------------------------------------------------------------------------------- what is kept


def aged(store: Store, key: str, age: float) -> None:
    then = time.time() - age
    os.utime(store.path(key, "o"), (then, then))


def test_the_least_recently_used_go(tmp_path: Path) -> None:
    keys = [f"{n:064x}" for n in range(19)]
    store = Store(tmp_path, 20_000)
    for n, key in enumerate(keys[:15]):
        store.put(key, IMAGE, "x" * 100)
        aged(store, key, 10_000 - n)
    assert store.get(keys[0]) == IMAGE  # Used again: now the youngest.
    for key in keys[15:]:
        store.put(key, IMAGE, "x" * 100)
        assert sum(e.size for e in store.entries()) <= store.limit
    left = {e.key for e in store.entries()}
    assert keys[0] in left and keys[-1] in left and not left & set(keys[1:4])
    assert store.counters.evicted == len(keys) - len(left)
    assert {p.stem for p in tmp_path.rglob("*.ll")} == {p.stem for p in tmp_path.rglob("*.o")} == left


def test_what_other_processes_add_counts(tmp_path: Path) -> None:
    mine, others = Store(tmp_path, 100_000), Store(tmp_path, 1 << 30)
    mine.put(A, IMAGE, "")
    for n in range(150):
        others.put(f"{n:064x}", IMAGE, "")
    for n in range(200, 200 + cache._WRITES_BETWEEN_SCANS):
        mine.put(f"{n:064x}", IMAGE, "")
    assert sum(e.size for e in mine.entries()) <= mine.limit


def test_what_is_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "kernels", 1000)
    store.put(A, IMAGE, "")
    assert not store.folder.exists()
    Store(tmp_path / "kernels", 0).put(A, b"", "")
    assert not store.folder.exists()


def test_a_use_is_noted_but_not_each(store: Store) -> None:
    store.put(A, IMAGE, "")
    aged(store, A, 30)
    before = store.path(A, "o").stat().st_mtime
    store.get(A)
    assert store.path(A, "o").stat().st_mtime == before
    aged(store, A, 3000)
    store.get(A)
    assert time.time() - store.path(A, "o").stat().st_mtime < 100


def test_leftovers_of_dead_writers_go(store: Store) -> None:
    store.put(A, IMAGE, "")
    old, new = (store.folder / "aa" / f".tmp-{n:016x}" for n in (1, 2))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    store.entries()
    assert not old.exists() and new.exists()
    store.clear()
    assert files(store) == []


# ------------------------------------------------------------------------------------------------------- names


def test_a_key_tells_kernels_machines_and_code_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    here = cache.key_of("lane 0", "host")
    assert here == cache.key_of("lane 0", "host")
    assert len({here, cache.key_of("lane 1", "host"), cache.key_of("lane 0", "another host")}) == 3
    monkeypatch.setattr(cache, "code_version", lambda part="": "another")
    assert cache.key_of("lane 0", "host") != here


def test_the_code_s_version_covers_all_that_renders(tmp_path: Path) -> None:
    """A module that the renderer imports must count, whatever it is called."""
    script = (
        "import sys, gpujit.kernels.cpu, gpujit.kernels.build\n"
        "print(*(n.rpartition('.')[2] for n in sys.modules if n.startswith('gpujit.kernels.')))"
    )
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    names = found.stdout.split()
    assert "cpu_reduce" in names and "math_exp" in names
    assert sorted(n for n in names if n.startswith(cache._NO_PART)) == ["cache", "cache_files"]


def test_the_order_of_a_plan_s_kernels_does_not_matter() -> None:
    assert cache.pack_key([A, B]) == cache.pack_key([B, A]) != cache.pack_key([A])


def test_the_folder_follows_the_switch_then_xdg_then_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    with config(cache_dir=str(tmp_path / "mine")):
        assert cache.folder() == tmp_path / "mine"
    with config(cache_dir="~/kernels"):
        assert cache.folder() == tmp_path / "kernels"
    with config(cache_dir=""):
        assert cache.folder() == tmp_path / "xdg" / "gpujit"
        # A relative one is to be ignored.
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        assert cache.folder() == tmp_path / ".cache" / "gpujit"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    cache._warned.clear()
    with config(cache_dir=""):
        with pytest.warns(CacheWarning, match="no home folder"):
            assert cache.store() is None
        assert cache.store() is None


def test_the_switch_turns_it_off() -> None:
    with config(cache=False):
        assert cache.store() is None
    assert cache.store() is not None


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("64k", 1 << 16), ("256M", 1 << 28), ("1.5GB", 3 << 29), (" 2 MiB ", 2 << 20), ("0", 0)],
)
def test_sizes(text: str, size: int) -> None:
    assert from_environment({"GPUJIT_CACHE_LIMIT": text}).cache_limit == size


@pytest.mark.parametrize("text", ["", "many", "-1", "nan", "inf", "12X", "1e99"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ArgumentError, match="GPUJIT_CACHE_LIMIT"):
        from_environment({"GPUJIT_CACHE_LIMIT": text})


# --------------------------------------------------------------------------------------------------- processes

MANY = """
import sys
from pathlib import Path
from gpujit.kernels.cache import Store
me = int(sys.argv[2])
store = Store(Path(sys.argv[1]), int(sys.argv[3]))
keys = [f"{n:064x}" for n in range(12)]
for turn in range(40):
    for n, key in enumerate(keys):
        data = bytes([n]) * (1000 + n)
        if (turn + n + me) % 3 == 0:
            store.put(key, data, f"source {n}")
        found = store.get(key)
        assert found is None or found == data
assert store.counters.damaged == 0, store.counters
print(store.counters.hits)
"""


@pytest.mark.parametrize("limit", [1 << 20, 8_000])
def test_processes_write_and_read_the_same_entries(tmp_path: Path, limit: int) -> None:
    arguments = [sys.executable, "-W", "error", "-c", MANY, str(tmp_path / "kernels")]
    running = [
        subprocess.Popen([*arguments, str(n), str(limit)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    for process in running:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert int(out) > 0
    names = files(Store(tmp_path / "kernels", limit))
    assert not [n for n in names if n.startswith(".tmp")]
    if limit > 1000_000:
        assert len(names) == 24
