"""``gpujit cache``: where compiled kernels are kept, what there is, and how to be rid of it."""

from __future__ import annotations

import argparse
import time
from typing import Any

from gpujit.cli.output import print_json, safe, table
from gpujit.kernels import cache
from gpujit.kernels.cache_files import unsafe
from gpujit.kernels.cuda_cache import architecture_of, heading_of
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError
from gpujit.support.units import bytes_text

DESCRIPTION = """Show or remove the compiled kernels that are kept on disk, so that a later process compiles nothing.
GPUJIT_CACHE_DIR names another folder, GPUJIT_CACHE_LIMIT another limit, and GPUJIT_CACHE=0 keeps none."""
EXAMPLES = """examples:
  gpujit cache where
  gpujit cache ls
  gpujit cache ls --json
  GPUJIT_CACHE_DIR=/srv/kernels gpujit cache clear"""

# Operations named in a row of the listing.
_SHOWN = 6
# Characters shown of what other code was made from.
_WIDTH = 60


def add_arguments(command: argparse.ArgumentParser) -> None:
    """What to do: ls, clear or where."""
    command.add_argument(
        "action", choices=("ls", "clear", "where"),
        help="ls: one line a kernel, last used first; clear: remove all; where: the folder, its size and its limit",
    )  # fmt: skip


def execute(arguments: argparse.Namespace) -> int:
    """Do it. Raises ArgumentError for a folder that is none, OSError for what cannot be removed."""
    action = {"ls": _list, "clear": _clear, "where": _where}[arguments.action]
    found, text = action(_store())
    if arguments.json:
        print_json(found)
    else:
        print(text)
    return 0


def _store() -> cache.Store:
    """The store of the folder in use, also when kernels are not kept just now. Raises ArgumentError."""
    folder = cache.folder()
    if not folder.is_absolute():
        raise ArgumentError("this user has no home folder; GPUJIT_CACHE_DIR names a folder for compiled kernels")
    return cache.Store(folder, config.cache_limit)


_KINDS = {cache.KERNEL: "kernel", cache.PACK: "plan", cache.TUNED: "tile", cache.CUBIN: "cubin"}


def _list(store: cache.Store) -> tuple[Any, str]:
    entries = sorted(store.entries(), key=lambda e: -e.used)
    rows = [
        {"key": e.key, "kind": _KINDS[e.kind], "bytes": e.size, "used": e.used}
        | {"what": _what(e), "architecture": _architecture(e), "files": [str(p) for p in e.files]}
        for e in entries
    ]
    if not rows:
        return rows, f"no kernels in {safe(str(store.folder))}"
    now = time.time()
    lines = [
        (e.key[:12], r["kind"], bytes_text(e.size), _age(now - e.used), r["what"])
        for e, r in zip(entries, rows, strict=True)
    ]
    return rows, table(lines, ("key", "kind", "size", "used", "what"), indent="")


def _architecture(entry: cache.Entry) -> str | None:
    """The kind of GPU that a kernel is for."""
    return architecture_of(entry.source()) or None if entry.kind == cache.CUBIN else None


def _what(entry: cache.Entry) -> str:
    """The operations of a kernel, how many kernels a plan has, or the heading of other code."""
    source = entry.source()
    if entry.kind == cache.PACK:
        return f"{max(source.count(chr(10)) - 1, 0)} kernels"
    if entry.kind == cache.TUNED:
        return "a tile that was measured"
    if entry.kind == cache.CUBIN:
        return heading_of(source)
    operations = []
    for line in source.splitlines():
        # ``;   %2: float32 = exp %1``
        if line.startswith(";   %"):
            name = line.partition(" = ")[2].split(" ", 1)[0]
            if name not in ("load", "const"):
                operations.append(name)
    names = list(dict.fromkeys(operations))
    if not names and source.startswith("; ") and not source.startswith("; kernel "):
        # A kernel that is no tile program: the worker team, a template.
        return source[2:].partition("\n")[0][:_WIDTH]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _age(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' * (count > 1)} ago"
    return "just now"


def _clear(store: cache.Store) -> tuple[Any, str]:
    fault = unsafe(store.folder)
    if fault:
        raise ArgumentError(fault)
    count, size = store.clear()
    text = f"removed {count} entr{'y' if count == 1 else 'ies'} ({bytes_text(size)}) from {safe(str(store.folder))}"
    return {"folder": str(store.folder), "removed": count, "bytes": size}, text


def _where(store: cache.Store) -> tuple[Any, str]:
    entries = store.entries()
    size = sum(e.size for e in entries)
    fault = unsafe(store.folder)
    found = {
        "folder": str(store.folder), "enabled": bool(config.cache), "entries": len(entries), "bytes": size,
        "limit": store.limit, "problem": fault or None,
    }  # fmt: skip
    full = f"{bytes_text(size)} of at most {bytes_text(store.limit)}"
    lines = [safe(str(store.folder)), f"{len(entries)} entries, {full}"]
    if not config.cache:
        lines.append("switched off: GPUJIT_CACHE is 0")
    if fault:
        lines.append(f"not used: {safe(fault)}")
    return found, "\n".join(lines)
