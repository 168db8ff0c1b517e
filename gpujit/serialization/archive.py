"""The container of a .pt file: members by name, without copies, whatever holds the bytes.

A path is mapped privately: arrays over the mapping may be written, which copies the touched pages and leaves the file
alone. The mapping lives as long as any array that looks into it. Nobody may shorten the file meanwhile; replacing it by
renaming another over it is safe.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
import zlib
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any, Literal, NoReturn

from gpujit.serialization import diagnose
from gpujit.serialization.zipindex import DEFLATED, Buffer, Member, read_index, shown
from gpujit.support.errors import ArchiveError, VersionError

MIN_VERSION, MAX_VERSION = 1, 10
# Larger storages are checked against their CRC only on request: mapping them must not read them.
ALWAYS_CHECKED_BYTES = 1 << 16

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes]
Kind = Literal["script", "any"]

_TS_ROOT = re.compile(r"\.data/ts_code/(\d{1,6})/data\.pkl\Z")


class Archive:
    """A zip archive with one top folder, as TorchScript and torch.package write it.

    Args:
        source: path, bytes, or readable file object (read from where it stands; from its start when at its end).
        name: what messages call it; the path, when there is one, else ``<bytes>``.
        check: compare every member's bytes with its CRC, large storages too.
        kind: ``script`` refuses what is no TorchScript program (state dicts, lite-interpreter files, other archives)
            and versions outside 1..10; ``any`` takes every sound zip.
    Raises ArchiveError, VersionError.
    """

    def __init__(self, source: Source, name: str = "", *, check: bool = False, kind: Kind = "script") -> None:
        self.check = check
        self.file = name or _name_of(source)
        self._buffer = _open(source, self.file)
        self._view = memoryview(self._buffer)
        if bytes(self._view[:2]) != b"PK":
            self._raise(diagnose.not_a_zip(bytes(self._view[:65536]), len(self._view)))
        members = read_index(self._buffer, self.file)
        self.prefix = _top_folder(members)
        if self.prefix:
            start = len(self.prefix) + 1
            top = self.prefix + "/"
            members = {n[start:]: m for n, m in members.items() if n.startswith(top)}
        self._members = members
        self._version: int | None = None
        # Told of the bytes of every member that is read.
        self.on_read: Callable[[int], None] | None = None
        if kind == "script":
            finding = diagnose.not_a_script(members, self.prefix, self.read)
            if finding is not None:
                self._raise(finding)
            self.version  # noqa: B018  # refuses versions outside the range now, not halfway through loading

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the bytes. Arrays and views that look into them keep them alive on their own."""
        self._members = {}
        self._view = memoryview(b"")
        self._buffer = b""

    def names(self) -> list[str]:
        """Names of the members under the top folder, without it, in the order of the directory."""
        return list(self._members)

    def has(self, name: str) -> bool:
        """Whether there is a member of that name (without the top folder)."""
        return name in self._members

    def packed_bytes(self) -> int:
        """Bytes of all members as they lie in the archive."""
        return sum(m.packed for m in self._members.values())

    def size(self, name: str) -> int:
        """Unpacked bytes of a member. Raises ArchiveError: there is none."""
        return self._member(name).size

    def where(self, name: str) -> str:
        """Text that places a member in messages: ``file m.pt, member m/data.pkl``."""
        return f"file {self.file}, member {self._full(name)}"

    def read(self, name: str) -> bytes:
        """The bytes of a member, checked against its CRC."""
        member = self._member(name)
        if self.on_read is not None:
            self.on_read(member.packed)
        data = bytes(self._unpack(name, member))
        self._check_crc(name, member, data)
        return data

    def view(self, name: str) -> memoryview:
        """The bytes of a member without a copy where it is stored; writable when the archive is mapped or was read.

        Members of more than 64 KiB are compared with their CRC only when the archive was opened with ``check=True``.
        """
        member = self._member(name)
        if self.on_read is not None:
            self.on_read(member.packed)
        data = self._unpack(name, member)
        if self.check or member.size <= ALWAYS_CHECKED_BYTES:
            self._check_crc(name, member, data)
        return data

    @property
    def version(self) -> int:
        """The file format's version, 1 to 10. Raises VersionError: none, or outside that range."""
        if self._version is None:
            name = ".data/version" if self.has(".data/version") else "version"
            if not self.has(name):
                raise ArchiveError(
                    "the archive has no member 'version', so how to read it is unknown; "
                    "was it written by torch.jit.save, and is it whole?",
                    file=self.file,
                    code="missing-member",
                )
            text = self._small_text(name)
            if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
                raise VersionError(
                    f"the version is {shown(text)}, not a number; the file is damaged",
                    file=self.file,
                    member=self._full(name),
                )
            version = int(text)
            if not MIN_VERSION <= version <= MAX_VERSION:
                way_out = (
                    "update gpujit, or save the model with an older PyTorch" if version else "save the model again"
                )
                raise VersionError(
                    f"the archive has format version {version}; versions {MIN_VERSION} to {MAX_VERSION} are supported: "
                    f"{way_out}",
                    file=self.file,
                    member=self._full(name),
                )
            self._version = version
        return self._version

    @property
    def byteorder(self) -> Literal["little", "big"]:
        """Order of the bytes of numbers in storages; ``little`` when the archive does not say."""
        if not self.has("byteorder"):
            return "little"
        text = self._small_text("byteorder")
        if text == "little":
            return "little"
        if text == "big":
            return "big"
        raise ArchiveError(
            f"the byte order is {shown(text)}; expected 'little' or 'big': the file is damaged",
            file=self.file,
            member=self._full("byteorder"),
            code="byteorder",
        )

    def ts_code_roots(self) -> list[int]:
        """Numbers N of the modules in a torch.package archive (``.data/ts_code/N/data.pkl``); empty for other files.

        Their code lies under ``.data/ts_code/code/`` and their storages are the members ``.data/*.storage``.
        """
        return sorted(int(m.group(1)) for m in map(_TS_ROOT.match, self._members) if m is not None)

    def _full(self, name: str) -> str:
        full = f"{self.prefix}/{name}" if self.prefix else name
        return full if full.isascii() and full.isprintable() and len(full) <= 200 else shown(full)

    def _member(self, name: str) -> Member:
        try:
            return self._members[name]
        except KeyError:
            raise ArchiveError(
                f"the archive has no member {shown(name)}; the file is damaged, or no TorchScript program",
                file=self.file,
                code="missing-member",
            ) from None

    def _small_text(self, name: str) -> str:
        if self._member(name).size > 64:
            raise ArchiveError(
                f"the member should hold a short text but has {self.size(name)} bytes; the file is damaged",
                file=self.file,
                member=self._full(name),
                code="size",
            )
        return self.read(name).decode("latin-1").strip()

    def _unpack(self, name: str, member: Member) -> memoryview:
        packed = self._view[member.offset : member.offset + member.packed]
        if member.method != DEFLATED:
            return packed
        inflate = zlib.decompressobj(-15)
        try:
            # One byte more than declared: more output than that is never made.
            data = inflate.decompress(packed, member.size + 1)
        except zlib.error as error:
            self._fail("crc", f"the packed bytes are damaged ({error}); get the file again", name)
        if len(data) != member.size or not inflate.eof:
            found = "more" if len(data) > member.size else str(len(data))
            self._fail("size", f"it is declared to have {member.size} bytes but unpacks to {found}", name)
        return memoryview(data)

    def _check_crc(self, name: str, member: Member, data: bytes | memoryview) -> None:
        if zlib.crc32(data) != member.crc:
            self._fail("crc", "the bytes do not fit their checksum: the file is damaged; get it again", name)

    def _fail(self, code: str, message: str, name: str) -> NoReturn:
        raise ArchiveError(message, file=self.file, member=self._full(name), code=code) from None

    def _raise(self, finding: diagnose.Finding) -> NoReturn:
        kind = VersionError if finding.code == "version" else ArchiveError
        raise kind(finding.message, file=self.file, code=finding.code)


def _name_of(source: Source) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else "<bytes>"


def _top_folder(members: dict[str, Member]) -> str:
    """The folder all members should lie under; with several, the first that looks like a program's.

    Empty when the members lie in no common folder, as in most archives of other kinds.
    """
    tops = list(dict.fromkeys(n.partition("/")[0] for n in members if "/" in n))
    for top in tops:
        if any(f"{top}/{n}" in members for n in ("data.pkl", ".data/version", "version")):
            return top
    return tops[0] if len(tops) == 1 and all("/" in n for n in members) else ""


def _open(source: Source, file: str) -> Buffer:
    if isinstance(source, bytes):
        data: Buffer = source
    elif isinstance(source, (bytearray, memoryview)):
        data = bytes(source)  # the caller may go on writing into it
    elif isinstance(source, (str, os.PathLike)):
        return _map(source, file)
    elif hasattr(source, "read"):
        data = _read(source, file)
    else:
        raise ArchiveError(
            f"expected a path, bytes or a readable file object, got {type(source).__name__}", code="not-a-file"
        )
    if not len(data):
        raise ArchiveError("there are no bytes to load; was the model written there?", file=file, code="empty")
    return data


def _map(path: str | os.PathLike[str], file: str) -> Buffer:
    try:
        with open(path, "rb", buffering=0) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ArchiveError("the path names no regular file; give a .pt file", file=file, code="not-a-file")
            if status.st_size == 0:
                raise ArchiveError(
                    "the file is empty: the copy or download failed; get it again", file=file, code="empty"
                )
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    except IsADirectoryError:
        raise ArchiveError("the path names a folder; give the .pt file in it", file=file, code="not-a-file") from None
    except FileNotFoundError:
        raise ArchiveError(
            f"there is no such file (working folder: {os.getcwd()}); check the path", file=file, code="not-a-file"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ArchiveError(f"the file cannot be read: {reason}", file=file, code="not-a-file") from None


def _read(stream: Any, file: str) -> Buffer:
    """The rest of a file object's bytes; all of them when it stands at its end, as after writing."""
    data = stream.read()
    if isinstance(data, (bytes, bytearray)) and not data and hasattr(stream, "seek"):
        stream.seek(0)
        data = stream.read()
    if not isinstance(data, (bytes, bytearray)):
        raise ArchiveError(
            f"the file object gives {type(data).__name__}, not bytes; open it with mode 'rb'",
            file=file,
            code="not-a-file",
        )
    # A copy of our own, so that parameters can be written in place: streams may hand out their own memory.
    return bytearray(data)
