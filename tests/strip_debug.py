"""Rewrites TorchScript archives without their debug tables, which hold paths of the machine they were made on.

Usage: python -m tests.strip_debug SOURCE.pt... TARGET_FOLDER
"""

from __future__ import annotations

import io
import struct
import sys
import zipfile
from pathlib import Path

ALIGNMENT = 64


def without_debug(data: bytes) -> bytes:
    """The archive less its debug tables; members stay stored or deflated as they were and start at multiples of 64."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w") as target:
        for item in source.infolist():
            if item.filename.endswith(".debug_pkl"):
                continue
            member = zipfile.ZipInfo(item.filename, (1980, 1, 1, 0, 0, 0))
            member.compress_type = item.compress_type
            pad = -(out.tell() + 30 + len(item.filename.encode()) + 4) % ALIGNMENT
            member.extra = struct.pack("<2sH", b"FB", pad) + b"Z" * pad
            target.writestr(member, source.read(item))
    return out.getvalue()


def main(arguments: list[str]) -> None:
    *sources, folder = arguments
    for name in sources:
        path = Path(name)
        (Path(folder) / path.name).write_bytes(without_debug(path.read_bytes()))


if __name__ == "__main__":
    main(sys.argv[1:])
