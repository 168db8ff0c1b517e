"""The directory of a zip file, checked: where each member's bytes lie, and that no two members share any.

``zipfile`` is not used: it takes data offsets on trust, and several of its leniencies (overlaps, duplicate names, lying
sizes) are how hostile archives work. Layout: PKWARE APPNOTE 6.3, sections 4.3 and 4.5.3.
"""

from __future__ import annotations

import mmap
import re
from struct import Struct
from typing import NamedTuple, NoReturn

from gpujit.support.errors import ArchiveError

Buffer = bytes | bytearray | mmap.mmap

STORED, DEFLATED = 0, 8

MAX_MEMBERS = 4 * 65536
MAX_NAME_BYTES = 1024
# Stored members are bounded by the file itself, so these two count what inflating would make out of nothing.
MAX_INFLATED_BYTES = 512 << 20
MAX_INFLATED_STORAGE_BYTES = 16 << 30
# Deflate cannot pack better than 1:1032; a larger ratio is a lie. Members under the floor are not worth refusing.
MAX_RATIO = 2000
RATIO_FLOOR = 1 << 20

_LOCAL = Struct("<4sHHHHHIIIHH")
_CENTRAL = Struct("<4sHHHHHHIIIHHHHHII")
_END = Struct("<4sHHHHIIH")
_END64 = Struct("<4sQHHIIQQQQ")
_LOCATOR64 = Struct("<4sIQI")
_EXTRA = Struct("<HH")
_U64 = Struct("<Q")

_ENCRYPTED = 0x1 | 0x40 | 0x2000
_UTF8 = 0x800
_HAS_DESCRIPTOR = 0x8
BAD_NAME = re.compile(r"\A/|\A[A-Za-z]:|[\\\0]|//|(?:\A|/)\.\.?(?:/|\Z)")
_STORAGE_NAME = re.compile(r"\A[^/]*/(?:data/|constants/|tensors/|\.data/[^/]*\.storage\Z)")


class Member(NamedTuple):
    """Where a member lies: ``offset`` is its first data byte, ``packed`` the bytes in the file, ``size`` unpacked."""

    offset: int
    packed: int
    size: int
    method: int
    crc: int


def shown(name: str) -> str:
    """A name from a file as it may stand in a message: quoted, escaped and not too long."""
    return ascii(name if len(name) <= 100 else name[:100] + "...")


def read_index(data: Buffer, file: str) -> dict[str, Member]:
    """Members of the zip file in ``data`` by their full names, in directory order. Folder entries are left out.

    Raises ArchiveError: anything wrong with the structure; its code names the kind (see docs/errors.md).
    """
    return _Reader(data, file).read()


class _Reader:
    def __init__(self, data: Buffer, file: str) -> None:
        self.data = data
        self.size = len(data)
        self.file = file

    def fail(self, code: str, message: str, name: str = "") -> NoReturn:
        member = shown(name) if name else ""
        raise ArchiveError(message, file=self.file, member=member, code=code) from None

    def read(self) -> dict[str, Member]:
        count, start, size = self.find_directory()
        data, end_of_data = self.data, start
        directory = bytes(data[start : start + size])
        members: dict[str, Member] = {}
        spans: list[tuple[int, int, str]] = []
        inflated = inflated_storage = 0
        pos = 0
        for number in range(count):
            if pos + 46 > size:
                self.fail("truncated", f"the directory ends after {number} of {count} members; download the file again")
            (
                signature, _, _, flags, method, _, _, crc, packed, unpacked, name_len, extra_len, comment_len, disk, _,
                attributes, header,
            ) = _CENTRAL.unpack_from(directory, pos)  # fmt: skip
            if signature != b"PK\1\2":
                self.fail("size", f"directory entry {number} does not start with a zip signature; the file is damaged")
            raw = directory[pos + 46 : pos + 46 + name_len]
            name = self.decode_name(raw, flags, name_len)
            extra = pos + 46 + name_len
            pos = extra + extra_len + comment_len
            if pos > size:
                self.fail("size", "its directory entry reaches beyond the directory; the file is damaged", name)
            if packed == 0xFFFFFFFF or unpacked == 0xFFFFFFFF or header == 0xFFFFFFFF:
                field = directory[extra : extra + extra_len]
                unpacked, packed, header = self.wide_fields(field, unpacked, packed, header, name)
            if flags & _ENCRYPTED:
                self.fail("encrypted", "the member is encrypted; decrypt the archive first", name)
            if attributes >> 28 == 0xA:
                self.fail("bad-member-name", "the member is a symbolic link, which no TorchScript archive has", name)
            if disk:
                self.fail("size", f"the member lies on disk {disk} of a split archive; join the parts first", name)
            offset = self.check_local(header, raw, flags, method, (crc, packed, unpacked), name)
            end = offset + packed
            if end > end_of_data:
                if end > self.size:
                    self.fail("size", f"it should end at byte {end}, but the file has {self.size}; get it again", name)
                self.fail("overlap", "its bytes overlap the archive's directory; the file is damaged or hostile", name)
            if method == STORED:
                if packed != unpacked:
                    self.fail("size", f"it is stored in {packed} bytes yet declared to have {unpacked}", name)
            elif method != DEFLATED:
                self.fail(
                    "unsupported-compression",
                    f"it is packed with zip method {method}; only stored (0) and deflate (8) occur in TorchScript "
                    "archives: zip it again with deflate",
                    name,
                )
            else:
                if unpacked > RATIO_FLOOR and unpacked > MAX_RATIO * packed:
                    self.fail("bomb", f"{packed} bytes claim to unpack to {unpacked}; deflate cannot do that", name)
                if _STORAGE_NAME.match(name):
                    inflated_storage += unpacked
                else:
                    inflated += unpacked
            if name in members:
                self.fail("duplicate-member", "two members have this name; which one counts is anyone's guess", name)
            spans.append((header, end, name))
            if raw.endswith(b"/"):
                if unpacked:
                    self.fail("bad-member-name", "a folder entry holds data", name)
                continue
            members[name] = Member(offset, packed, unpacked, method, crc)
        if inflated > MAX_INFLATED_BYTES or inflated_storage > MAX_INFLATED_STORAGE_BYTES:
            self.fail("bomb", f"the members claim to unpack to {inflated + inflated_storage} bytes; refused")
        self.check_overlaps(spans)
        return members

    def find_directory(self) -> tuple[int, int, int]:
        """(members, first byte, bytes) of the central directory."""
        tail_at = max(0, self.size - 65535 - 22)
        tail = bytes(self.data[tail_at:])
        at = tail.rfind(b"PK\5\6")
        if at < 0 or at + 22 > len(tail):
            self.fail(
                "truncated",
                f"the file starts like a zip archive but has no directory at its end ({self.size} bytes are here): "
                "the copy or download was cut short; get the file again",
            )
        _, disk, first_disk, here, count, size, start, _ = _END.unpack_from(tail, at)
        end = tail_at + at
        if count == 0xFFFF or here == 0xFFFF or size == 0xFFFFFFFF or start == 0xFFFFFFFF:
            if end >= 20 and self.data[end - 20 : end - 16] == b"PK\6\7":
                end, disk, first_disk, here, count, size, start = self.read_end64(end)
        if disk or first_disk or here != count:
            self.fail("size", "the archive is split over several files; join the parts first")
        if start + size > end:
            self.fail(
                "truncated",
                f"the directory should end at byte {start + size}, but only {end} bytes come before the end mark: "
                "part of the file is missing; get it again",
            )
        if count > MAX_MEMBERS:
            self.fail("too-many-members", f"the archive has {count} members; the limit is {MAX_MEMBERS}")
        if count * 46 > size:
            self.fail("size", f"{count} members cannot be listed in a directory of {size} bytes; the file is damaged")
        return count, start, size

    def read_end64(self, end: int) -> tuple[int, int, int, int, int, int, int]:
        """The fields of a zip64 end record, and where it starts."""
        _, _, at, disks = _LOCATOR64.unpack_from(self.data, end - 20)
        if disks > 1:
            self.fail("size", "the archive is split over several files; join the parts first")
        if at + 56 > end - 20 or self.data[at : at + 4] != b"PK\6\6":
            self.fail("truncated", "the zip64 end record is not where the file says; get the file again")
        _, _, _, _, disk, first_disk, here, count, size, start = _END64.unpack_from(self.data, at)
        return at, disk, first_disk, here, count, size, start

    def decode_name(self, raw: bytes, flags: int, length: int) -> str:
        if length > MAX_NAME_BYTES:
            self.fail("bad-member-name", f"a member's name has {length} bytes; the limit is {MAX_NAME_BYTES}")
        try:
            name = raw.decode("utf-8" if flags & _UTF8 or raw.isascii() else "cp437")
        except UnicodeDecodeError:
            self.fail("bad-member-name", f"the member name {raw[:100]!a} is not UTF-8")
        if not name or BAD_NAME.search(name):
            self.fail(
                "bad-member-name",
                f"the member name {shown(name)} is absolute, leaves its folder, or has a character no archive needs; "
                "the file is damaged or hostile",
            )
        return name

    def wide_fields(self, extra: bytes, size: int, packed: int, header: int, name: str) -> tuple[int, int, int]:
        """(size, packed, header) with saturated ones read from the zip64 extra field."""
        wide = [v == 0xFFFFFFFF for v in (size, packed, header)]
        values: list[int] = []
        at = 0
        while at + 4 <= len(extra):
            kind, length = _EXTRA.unpack_from(extra, at)
            at += 4
            if kind == 1 and at + length <= len(extra):
                values = [_U64.unpack_from(extra, i)[0] for i in range(at, at + length - 7, 8)]
                break
            at += length
        if len(values) < sum(wide):
            self.fail("size", "its sizes need a zip64 field that is missing or too short; the file is damaged", name)
        take = iter(values)
        size, packed, header = (next(take) if w else v for v, w in zip((size, packed, header), wide, strict=True))
        return size, packed, header

    def check_local(
        self, header: int, raw: bytes, flags: int, method: int, sizes: tuple[int, int, int], name: str
    ) -> int:
        """Offset of the member's data, from its local header, which must say the same as the directory."""
        if header + 30 > self.size:
            self.fail("size", f"it should start at byte {header}, but the file has {self.size}; get it again", name)
        (signature, _, local_flags, local_method, _, _, crc, packed, size, name_len, extra_len) = _LOCAL.unpack_from(
            self.data, header
        )
        if signature != b"PK\3\4":
            self.fail("size", f"no member starts at byte {header}, where the directory puts it; file is damaged", name)
        start = header + 30
        if name_len != len(raw) or self.data[start : start + name_len] != raw:
            self.fail("bad-member-name", "the directory and the member itself give different names", name)
        if local_method != method or (local_flags ^ flags) & _ENCRYPTED:
            self.fail("size", "the directory and the member itself disagree on how it is packed", name)
        if not local_flags & _HAS_DESCRIPTOR and (crc, packed, size) != sizes and 0xFFFFFFFF not in (packed, size):
            self.fail("size", "the directory and the member itself disagree on its size", name)
        return int(start + name_len + extra_len)

    def check_overlaps(self, spans: list[tuple[int, int, str]]) -> None:
        spans.sort()
        last_end, last = 0, ""
        for header, end, name in spans:
            if header < last_end:
                self.fail("overlap", f"its bytes overlap those of {shown(last)}; the file is damaged or hostile", name)
            last_end, last = end, name
