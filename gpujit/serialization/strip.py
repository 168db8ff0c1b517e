"""Archives without what only tells where a program came from."""

from __future__ import annotations

from typing import Any

from gpujit.serialization.archive import Archive
from gpujit.serialization.target import write_to
from gpujit.serialization.zipwrite import Member, Sink, ZipWriter

_ID = ".data/serialization_id"


def strip(source: Any, target: Any) -> tuple[int, int]:
    """Write an archive again without its debug tables, which hold the author's source lines and their files' paths.

    Code, constants and weights are copied as they are.
    Args:
        source: path, bytes or readable file object.
        target: a path or a file object; may be the path read from.
    Returns: how many tables were left out, and their bytes unpacked.
    Raises LoadError for what is no TorchScript archive, SaveError for a target that cannot be written.
    """
    # Every checksum is compared: new ones are made of the bytes copied.
    with Archive(source, check=True) as archive:
        names = archive.names()
        tables = [n for n in names if n.endswith(".debug_pkl")]
        kept = [n for n in names if n not in set(tables) and n != _ID]
        members = [Member(n, archive.view(n), pack=n.endswith(".py")) for n in kept]

        def write(sink: Sink) -> None:
            writer = ZipWriter(sink, archive.prefix or "archive")
            for member in members:
                writer.add(member)
            if _ID in names:
                writer.add(Member(_ID, writer.serialization_id().encode()))
            writer.close()

        write_to(target, write)
        return len(tables), sum(archive.size(n) for n in tables)
