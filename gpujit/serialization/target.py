"""Where an archive is written: a path, which gets the whole file or stays as it was, or a file object."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable
from typing import IO, Any

from gpujit.serialization.zipwrite import Sink
from gpujit.support.errors import SaveError

Target = str | os.PathLike[str] | IO[bytes]


def write_to(target: Any, write: Callable[[Sink], None]) -> None:
    """Have ``write`` put bytes into a target.

    A path is written beside itself under another name, flushed to disk, and renamed: whatever goes wrong, what was
    there stays. A file object gets the bytes from where it stands.
    Raises SaveError: the target is none, or writing failed.
    """
    if isinstance(target, (str, os.PathLike)):
        path = os.fspath(target)
        try:
            _write_path(path, write)
        except OSError as e:
            raise _failed(path, e) from None
    elif hasattr(target, "write"):
        try:
            write(_Whole(target))
        except OSError as e:
            raise _failed(str(getattr(target, "name", "<file object>")), e) from None
    else:
        raise SaveError(f"expected a path or a file object to write to, found a {type(target).__name__}")


class _Whole:
    """A file object that may take less than it is given, as unbuffered ones do."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: Any) -> None:
        left = memoryview(data)
        while len(left):
            try:
                taken = self._stream.write(left)
            except TypeError as e:
                raise SaveError(f"the file object does not take bytes ({e}); open it with mode 'wb'") from None
            if taken is None:
                return
            left = left[taken:]


def _failed(path: str, error: OSError) -> SaveError:
    reason = error.strerror or str(error)
    return SaveError(f"{path} cannot be written: {reason}; nothing was left there", code="save-target")


def _write_path(path: str, write: Callable[[Sink], None]) -> None:
    place = os.path.realpath(path)
    try:
        mode: int | None = os.stat(place).st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(None, "it is a folder")
        # A pipe or a device cannot be renamed over.
        with open(place, "wb") as stream:
            write(stream)
        return
    folder, name = os.path.split(place)
    beside = os.path.join(folder, f".{name[:100]}.{secrets.token_hex(6)}.tmp")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as stream:
            if mode is not None:
                os.chmod(beside, stat.S_IMODE(mode))
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
