"""Compiled kernels on disk, shared by processes and models: object files under the hash of what they were made from.

An entry is ``HASH.o``, an object file with a checksum behind it (tools for object files read it as it is), and
``HASH.ll``, the tile program and the LLVM IR it was compiled from, for people. A pack, ``HASH.pack``, holds the objects
of a whole plan, so that a start reads one file; ``HASH.txt`` names what is in it. ``HASH.cubin`` is a kernel for one
kind of GPU, ``HASH.py`` its source (see ``cuda_cache``). ``HASH.tune`` is what tuning chose for a program and its
strides; ``HASH.why`` holds what was measured.

Files are written under another name and renamed: a reader finds a whole one or none, whatever other processes do. What
cannot be read, or is damaged, is as good as absent. What cannot be written is given up with one warning.

An object file is code, so the folder must belong to this user (or root) and nobody else may write in it. Names are made
from hashes alone, links are not followed, and files of other owners are not read.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import struct
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpujit.kernels.cache_files import TEMPORARY, listed, read, remove, unsafe, write
from gpujit.support.config import config
from gpujit.support.errors import CacheWarning, InternalError
from gpujit.support.forks import after_fork

log = logging.getLogger("gpujit.cache")

FORMAT = 1
_SEAL = b"gpujit1\n"
_TRAILER = len(_SEAL) + 32
# Age at which a file that was never renamed belongs to a process that died, in seconds.
_ABANDONED = 3600
# What is kept when there is too much: a share of the limit, so that not every write clears up.
_KEPT_SHARE = 0.75
# Writes between two looks at what other processes have added.
_WRITES_BETWEEN_SCANS = 64
_HASH = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"([0-9a-f]{64})\.(o|ll|cubin|py|pack|txt|tune|why)")
# In a pack before each object file: its key and its length.
_PACKED = struct.Struct("<64sQ")

KERNEL, PACK, TUNED, CUBIN = "o", "pack", "tune", "cubin"
_SOURCE = {KERNEL: "ll", PACK: "txt", TUNED: "why", CUBIN: "py"}


def seal(image: bytes, label: str = "") -> bytes:
    """An object file as it should lie on disk: with a checksum over it and its name. LLVM crashes on damaged ones."""
    return image + _digest(image, label) + _SEAL


def unseal(data: bytes, label: str = "") -> bytes:
    """The object file that was sealed. Raises InternalError when a byte is wrong or missing, or the name is another."""
    image, digest = data[:-_TRAILER], data[-_TRAILER : -len(_SEAL)]
    if not data.endswith(_SEAL) or len(data) < _TRAILER or digest != _digest(image, label):
        raise InternalError("the object file is damaged: its checksum does not fit")
    return image


def _digest(image: bytes, label: str) -> bytes:
    found = hashlib.sha256(label.encode() + b"\0")
    found.update(image)
    return found.digest()


# Modules that have no part in what CPU kernels look like, by the start of their names; reading them takes time.
_NO_PART = (
    "__init__", "autotune", "cuda", "numba", "reference", "team.", "cache", "promises", "supply", "cpu_launch",
    "build_worker",
)  # fmt: skip


@cache
def code_version(part: str = "") -> str:
    """A hash of the code that turns programs into machine code: another version of it makes other kernels.

    ``part`` is a folder in ``kernels`` whose code counts as well. Empty when the code is not in files of its own, as in
    a zip archive.
    """
    here = Path(__file__).parent
    found = hashlib.sha256()
    try:
        for folder in dict.fromkeys((here, here / part)):
            for name in sorted(os.listdir(folder)):
                # Installed without sources, the compiled files stand for them.
                if name.endswith((".py", ".pyc")) and not name.startswith(_NO_PART):
                    found.update((folder / name).read_bytes())
        for path in sorted(p for name in ("scalar", "dtypes") for p in (here.parent / "ir").glob(f"{name}.py*")):
            found.update(path.read_bytes())
    except OSError:
        return ""
    return found.hexdigest()[:16]


def key_of(text: str, host: str, part: str = "") -> str:
    """The name of what ``text`` describes, for the machine and tools that ``host`` stands for. ``part``: see above."""
    return hashlib.sha256(f"kernel {FORMAT}\n{code_version(part)}\n{host}\n{text}".encode()).hexdigest()


def pack_key(keys: Sequence[str]) -> str:
    """The name of the pack of these kernels."""
    return hashlib.sha256("\n".join((f"pack {FORMAT}", *sorted(keys))).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """What lies in the cache under one hash; ``used`` is when it was last read or written, in seconds."""

    key: str
    kind: str
    size: int
    used: float
    files: tuple[Path, ...]

    def source(self) -> str:
        """The readable text beside the object; empty when there is none."""
        path = self.files[0].with_name(f"{self.key}.{_SOURCE[self.kind]}")
        data = read(path)
        return "" if data is None else data.decode("utf-8", "replace")


@dataclass(slots=True)
class Counters:
    """What a store did: entries found, not found, found damaged, written, removed for want of room."""

    hits: int = 0
    misses: int = 0
    damaged: int = 0
    written: int = 0
    evicted: int = 0


class Store:
    """A folder of entries of at most ``limit`` bytes. Threads and processes may use one at the same time.

    Only ``clear`` raises for what is wrong with folder or disk: reading finds nothing then, and the first write that
    fails warns and is the last.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self.counters = Counters()
        self._lock = threading.Lock()
        self._is_safe: bool | None = None
        self._is_writable = limit > 0
        self._size: int | None = None
        self._writes = 0

    # Reading

    def get(self, key: str, kind: str = KERNEL) -> bytes | None:
        """The object file of that name, None when there is none that can be used."""
        path = self.path(key, kind)
        data = read(path, touch=True) if self._usable() else None
        if data is None:
            self.counters.misses += 1
            return None
        try:
            image = unseal(data, f"{key}.{kind}")
        except InternalError as fault:
            self.counters.damaged += 1
            log.info("%s: %s", path, fault.message)
            remove(path)
            return None
        self.counters.hits += 1
        return image

    def has(self, key: str, kind: str = KERNEL) -> bool:
        """Whether there is a file of that name, which may turn out to be damaged."""
        return bool(self._usable()) and self.path(key, kind).is_file()

    def get_pack(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Object files by kernel from the pack of these kernels; empty when there is no such pack."""
        data = self.get(pack_key(keys), PACK)
        found: dict[str, bytes] = {}
        at = 0
        while data is not None and at < len(data):
            key, length = _PACKED.unpack_from(data, at)
            at += _PACKED.size
            found[key.decode()] = data[at : at + length]
            at += length
        return found

    # Writing

    def put(self, key: str, image: bytes, source: str, kind: str = KERNEL) -> None:
        """Keep an object file and the text it was made from."""
        if not self._is_writable or self._usable() is False:
            return
        data, text = seal(image, f"{key}.{kind}"), source.encode()
        size = len(data) + len(text)
        if size > self.limit:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # It may be another one than last time.
            self._is_safe = None
            if not self._usable():
                return
            with self._lock:
                self._make_room(size)
            write(self.path(key, _SOURCE[kind]), text)
            write(self.path(key, kind), data)
        except OSError as fault:
            self._is_writable = False
            _warn(self.folder, f"compiled kernels cannot be kept in {self.folder}: {fault.strerror or fault}")
            return
        self.counters.written += 1

    def put_pack(self, keys: Sequence[str], images: dict[str, bytes]) -> None:
        """Keep the object files of a plan of these kernels in one file; one that could not be made may be absent."""
        data = b"".join(_PACKED.pack(k.encode(), len(images[k])) + images[k] for k in sorted(images))
        self.put(pack_key(keys), data, "\n".join(("kernels of one plan:", *sorted(images), "")), PACK)

    def _make_room(self, size: int) -> None:
        self._writes += 1
        if self._size is None or self._writes % _WRITES_BETWEEN_SCANS == 0:
            self._size = sum(e.size for e in self.entries())
        self._size += size
        if self._size > self.limit:
            self._size = self.shrink(int(self.limit * _KEPT_SHARE) - size) + size

    def shrink(self, limit: int) -> int:
        """Remove what was not used for longest until at most ``limit`` bytes are left; how many are."""
        found = sorted(self.entries(), key=lambda e: e.used)
        total = sum(e.size for e in found)
        for entry in found:
            if total <= limit:
                break
            self._drop(entry)
            total -= entry.size
            self.counters.evicted += 1
        return total

    def _drop(self, entry: Entry) -> None:
        for path in entry.files:
            remove(path)

    # The whole of it

    def path(self, key: str, suffix: str) -> Path:
        """Where a file of an entry lies. Raises InternalError for a key that is no hash."""
        if _HASH.fullmatch(key) is None:
            raise InternalError(f"{key!r} is no hash")
        return self.folder / key[:2] / f"{key}.{suffix}"

    def entries(self) -> list[Entry]:
        """Everything in the folder. Files that writers left behind when they died are removed."""
        found: dict[str, list[tuple[str, Path, os.stat_result]]] = {}
        for path, facts in self._files():
            named = _FILE.fullmatch(path.name)
            if named is not None:
                found.setdefault(named[1], []).append((named[2], path, facts))
            elif TEMPORARY.fullmatch(path.name) and time.time() - facts.st_mtime > _ABANDONED:
                remove(path)
        entries = []
        for key, files in found.items():
            suffixes = {suffix for suffix, _, _ in files}
            kind = next((k for k in (PACK, TUNED, CUBIN) if suffixes & {k, _SOURCE[k]}), KERNEL)
            used = max(facts.st_mtime for suffix, _, facts in files if suffix == kind or kind not in suffixes)
            size = sum(facts.st_size for _, _, facts in files)
            entries.append(Entry(key, kind, size, used, tuple(sorted(path for _, path, _ in files))))
        return sorted(entries, key=lambda e: e.key)

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Plain files one level down, in folders named by two digits."""
        for folder in listed(self.folder):
            if re.fullmatch("[0-9a-f]{2}", folder.name) and folder.is_dir(follow_symlinks=False):
                for file in listed(Path(folder.path)):
                    try:
                        if file.is_file(follow_symlinks=False):
                            yield Path(file.path), file.stat(follow_symlinks=False)
                    except OSError:
                        # Another process removed it.
                        continue

    def clear(self) -> tuple[int, int]:
        """Remove all entries; how many there were and their bytes. Raises OSError for one that cannot be removed."""
        count = size = 0
        for entry in self.entries():
            for path in entry.files:
                path.unlink(missing_ok=True)
            count += 1
            size += entry.size
        for path, _ in list(self._files()):
            if TEMPORARY.fullmatch(path.name):
                path.unlink(missing_ok=True)
        self._size = None
        return count, size

    def _usable(self) -> bool | None:
        """Whether the folder is there and safe; None when it is not there."""
        if self._is_safe is None:
            fault = unsafe(self.folder)
            if fault == "":
                return None
            self._is_safe = fault is None
            if fault is not None:
                _warn(self.folder, f"compiled kernels are not kept: {fault}")
        return self._is_safe


_warned: set[Path] = set()


def _warn(folder: Path, text: str) -> None:
    """Say it once for a folder."""
    if folder not in _warned:
        _warned.add(folder)
        text += "; GPUJIT_CACHE_DIR names another folder, GPUJIT_CACHE=0 does without"
        warnings.warn(text, CacheWarning, stacklevel=2)


def default_folder() -> Path:
    """Where kernels are kept when nothing else is said: ``gpujit`` in the user's cache folder, as XDG has it.

    A home that is not known gives a relative path, which ``store`` refuses.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        local = os.environ.get("LOCALAPPDATA", "") if sys.platform == "win32" else ""
        base = local or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "gpujit"


def folder() -> Path:
    """The folder in use."""
    return Path(os.path.abspath(os.path.expanduser(config.cache_dir))) if config.cache_dir else default_folder()


_stores: dict[tuple[Path, int], Store] = {}
# Another thread of the parent may have held one's lock.
after_fork(_stores.clear)


def store() -> Store | None:
    """The store that the switches name; None when kernels are not kept."""
    if not config.cache or not code_version():
        return None
    place = folder()
    if not place.is_absolute():
        _warn(place, "compiled kernels are not kept: this user has no home folder")
        return None
    return _stores.setdefault((place, config.cache_limit), Store(place, config.cache_limit))
