"""Zip archives as PyTorch writes them: stored members whose data starts at multiples of 64, packed source."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

from gpujit.support.progress import Stage

ALIGNMENT = 64
_UTF8_NAMES = 0x800
_STORED, _DEFLATED = 0, 8
_MAX32 = 0xFFFFFFFF
# From these on, sizes, places and counts stand in the wider fields of zip64.
WIDE_BYTES, WIDE_COUNT = 0xFFFFFFFF, 0xFFFF


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: Any, /) -> Any: ...


@dataclass(slots=True)
class Member:
    """One member: its name under the top folder, its bytes, and whether to pack them if that makes them smaller."""

    name: str
    data: bytes | memoryview
    pack: bool = False


class ZipWriter:
    """Writes members one after another into a sink, which need not seek; ``close`` adds the directory.

    The bytes depend on the members alone: no times, no names of machines.
    """

    def __init__(self, sink: Sink, folder: str) -> None:
        self._sink = sink
        self._folder = folder
        self._at = 0
        self._directory: list[bytes] = []
        self._digests: list[tuple[str, int, int]] = []

    def _write(self, data: bytes | memoryview) -> None:
        self._sink.write(data)
        self._at += len(data)

    def add(self, member: Member) -> None:
        """Write one member."""
        size, crc = len(member.data), zlib.crc32(member.data)
        payload, method = member.data, _STORED
        if member.pack:
            packer = zlib.compressobj(9, zlib.DEFLATED, -15)
            packed = packer.compress(member.data) + packer.flush()
            if len(packed) < size:
                payload, method = packed, _DEFLATED
        name = f"{self._folder}/{member.name}".encode()
        header = self._at
        wide = size >= WIDE_BYTES or header >= WIDE_BYTES
        extra = struct.pack("<HHQQ", 1, 16, size, len(payload)) if wide else b""
        pad = -(header + 30 + len(name) + len(extra) + 4) % ALIGNMENT
        extra += struct.pack("<2sH", b"FB", pad) + b"Z" * pad
        sizes = (_MAX32, _MAX32) if wide else (len(payload), size)
        needed = 45 if wide else 20
        self._write(
            struct.pack(
                "<4sHHHHHIIIHH", b"PK\3\4", needed, _UTF8_NAMES, method, 0, 0, crc, *sizes, len(name), len(extra)
            )
            + name
            + extra
        )
        self._write(payload)
        more = struct.pack("<HHQQQ", 1, 24, size, len(payload), header) if wide else b""
        self._directory.append(
            struct.pack(
                "<4sHHHHHHIIIHHHHHII", b"PK\1\2", needed, needed, _UTF8_NAMES, method, 0, 0, crc, *sizes,
                len(name), len(more), 0, 0, 0, 0, _MAX32 if wide else header,
            ) + name + more
        )  # fmt: skip
        self._digests.append((member.name, size, crc))

    def serialization_id(self) -> str:
        """40 digits that depend on the names and on the contents of the members so far."""
        names = repr([d[0] for d in self._digests]).encode()
        contents = repr(self._digests).encode()
        parts = (int.from_bytes(blake2b(part, digest_size=8).digest(), "little") for part in (names, contents))
        return "".join(f"{part:020d}" for part in parts)

    def close(self) -> None:
        """Write the directory."""
        start, count = self._at, len(self._directory)
        for entry in self._directory:
            self._write(entry)
        size = self._at - start
        wide = count >= WIDE_COUNT or size >= WIDE_BYTES or start >= WIDE_BYTES
        if wide:
            end = self._at
            self._write(struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start))
            self._write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        fields = (0xFFFF, 0xFFFF, _MAX32, _MAX32) if wide else (count, count, size, start)
        self._write(struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, *fields, 0))


def write_archive(sink: Sink, members: Sequence[Member], folder: str = "archive") -> None:
    """Write a whole archive; its last member is the id that PyTorch gives each file, made of what it holds."""
    writer = ZipWriter(sink, folder)
    with Stage("write", sum(len(m.data) for m in members), unit="bytes") as stage:
        for member in members:
            writer.add(member)
            stage.advance(len(member.data))
    writer.add(Member(".data/serialization_id", writer.serialization_id().encode()))
    writer.close()
