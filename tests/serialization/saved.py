"""What tests of saving look at: members of an archive, and modules that were saved and loaded again."""

from __future__ import annotations

import io
import zipfile

import gpujit


def members(data: bytes) -> dict[str, bytes]:
    """The archive's members without the top folder, in their order."""
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        return {n.partition("/")[2]: z.read(n) for n in z.namelist()}


def code(data: bytes, path: str = "__torch__") -> str:
    """One source file."""
    return members(data)[f"code/{path}.py"].decode()


def again(module: gpujit.ScriptModule) -> gpujit.ScriptModule:
    """The module saved and loaded."""
    return gpujit.load(module.save_to_buffer())
