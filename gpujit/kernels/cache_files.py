"""Files of a folder that holds code: only this user's are read, whole ones or none are written, no link is followed."""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path

# Uses of a file closer together than this are not noted, in seconds.
USE_GRAIN = 60
LARGEST = 256 << 20
TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{16}")
# Absent on Windows.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def unsafe(folder: Path) -> str | None:
    """Why a folder cannot hold code that this process runs; None when it can, empty when there is no such folder."""
    try:
        facts = folder.stat()
    except FileNotFoundError:
        return ""
    except OSError as fault:
        return f"{folder}: {fault.strerror or fault}"
    if not stat.S_ISDIR(facts.st_mode):
        return f"{folder} is no folder"
    if not _is_ours(facts):
        return f"other users own {folder} or may write in it (chmod 700 would do)"
    return None


def _is_ours(facts: os.stat_result) -> bool:
    if sys.platform == "win32":
        # Permissions are not in these bits; folders of the user's profile are the user's own.
        return True
    return facts.st_uid in (os.geteuid(), 0) and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def listed(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing when it cannot be read."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def read(path: Path, touch: bool = False) -> bytes | None:
    """What a plain file of this user holds; None when there is none. ``touch`` notes that it was used."""
    try:
        descriptor = os.open(path, _READ)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        try:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode) or not _is_ours(facts) or facts.st_size > LARGEST:
                return None
            data = file.read()
        except OSError:
            return None
    if touch and time.time() - facts.st_mtime > USE_GRAIN:
        # It fails in a folder that is only read.
        with suppress(OSError):
            os.utime(path)
    return data


def write(path: Path, data: bytes) -> None:
    """The file with this content, at once. Raises OSError."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    temporary = path.with_name(f".tmp-{secrets.token_hex(8)}")
    try:
        with open(os.open(temporary, _WRITE, 0o600), "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        remove(temporary)
        raise


def remove(path: Path) -> None:
    """Remove a file if that is possible."""
    # Another user's, or on a disk that is only read: it stays.
    with suppress(OSError):
        path.unlink(missing_ok=True)
