"""Small archives and pickles for tests, written byte by byte: right ones, and ones that are wrong in a chosen way."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass
class Entry:
    """One member; fields left at None are filled in rightly, others are written as they are, right or not."""

    name: str | bytes
    data: bytes = b""
    deflate: bool = False
    method: int | None = None
    size: int | None = None
    packed: int | None = None
    crc: int | None = None
    flags: int = 0x800
    attributes: int = 0
    header: int | None = None
    local_name: bytes | None = None
    align: int = 64
    zip64: bool = False
    local_sizes: tuple[int, int, int] | None = None


def write_zip(
    entries: Iterable[Entry],
    *,
    comment: bytes = b"",
    count: int | None = None,
    zip64_end: bool = False,
    directory_at: int | None = None,
) -> bytes:
    """The bytes of a zip archive. The last four arguments override what its end record says."""
    out = bytearray()
    central = bytearray()
    number = 0
    for e in entries:
        number += 1
        name = e.name.encode() if isinstance(e.name, str) else e.name
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        payload = packer.compress(e.data) + packer.flush() if e.deflate else e.data
        method = e.method if e.method is not None else 8 if e.deflate else 0
        size = len(e.data) if e.size is None else e.size
        packed = len(payload) if e.packed is None else e.packed
        crc = zlib.crc32(e.data) if e.crc is None else e.crc
        header = len(out) if e.header is None else e.header
        pad = -(len(out) + 30 + len(name) + 4) % e.align
        extra = struct.pack("<2sH", b"FB", pad) + b"Z" * pad
        local_name = name if e.local_name is None else e.local_name
        local = e.local_sizes or (crc, packed, size)
        out += struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, e.flags, method, 0, 0, *local, len(local_name), len(extra))
        out += local_name + extra + payload
        wide = b""
        fields = (packed, size, header)
        if e.zip64:
            wide = struct.pack("<HHQQQ", 1, 24, size, packed, header)
            fields = (0xFFFFFFFF,) * 3
        central += struct.pack(
            "<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, e.flags, method, 0, 0, crc, fields[0], fields[1],
            len(name), len(wide), 0, 0, 0, e.attributes, fields[2],
        )  # fmt: skip
        central += name + wide
    start = len(out) if directory_at is None else directory_at
    n = number if count is None else count
    at = len(out) + len(central)
    out += central
    if zip64_end:
        out += struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, n, n, len(central), start)
        out += struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)
        out += struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, len(comment))
    else:
        out += struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, n & 0xFFFF, n & 0xFFFF, len(central), start, len(comment))
    return bytes(out + comment)


def pickled(body: bytes) -> bytes:
    """A protocol 2 pickle of these opcodes."""
    return b"\x80\x02" + body + b"."


def text(value: str) -> bytes:
    """BINUNICODE."""
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def integer(value: int) -> bytes:
    """BININT, or LONG1 beyond 32 bits."""
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def tuple_of(*items: bytes) -> bytes:
    """MARK, items, TUPLE."""
    return b"(" + b"".join(items) + b"t"


def name(module: str, attribute: str) -> bytes:
    """GLOBAL."""
    return f"c{module}\n{attribute}\n".encode()


def ints(values: Sequence[int]) -> bytes:
    """A tuple of integers."""
    return tuple_of(*map(integer, values))


def storage(key: str, kind: str = "Float", numel: int = 4, device: str = "cpu") -> bytes:
    """A storage by its persistent id."""
    parts = (text("storage"), name("torch", f"{kind}Storage"), text(key), text(device), integer(numel))
    return tuple_of(*parts) + b"Q"


def tensor(
    storage_code: bytes,
    size: Sequence[int],
    stride: Sequence[int],
    offset: int = 0,
    bits: bytes = b"",
    grad: bool = False,
) -> bytes:
    """A tensor over a storage; ``bits`` is the seventh item."""
    hooks = name("collections", "OrderedDict") + b")R"
    items = (storage_code, integer(offset), ints(size), ints(stride), b"\x88" if grad else b"\x89", hooks, bits)
    return name("torch._utils", "_rebuild_tensor_v2") + tuple_of(*items) + b"R"


MODULE = name("__torch__", "M") + b")\x81}(" + text("training") + b"\x89ub"
CODE = b"class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n"


def script_entries(
    root: bytes = MODULE, storages: dict[str, bytes] | None = None, version: bytes = b"3\n"
) -> list[Entry]:
    """Members of a TorchScript archive whose data.pkl holds ``root``."""
    entries = [Entry(f"m/data/{key}", data) for key, data in (storages or {}).items()]
    return [
        *entries,
        Entry("m/data.pkl", pickled(root)),
        Entry("m/code/__torch__.py", CODE, deflate=True),
        Entry("m/constants.pkl", pickled(b")")),
        Entry("m/version", version),
        Entry("m/byteorder", b"little"),
    ]


def script_archive(root: bytes = MODULE, storages: dict[str, bytes] | None = None, version: bytes = b"3\n") -> bytes:
    """A whole TorchScript archive."""
    return write_zip(script_entries(root, storages, version))
