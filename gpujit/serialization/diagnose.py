"""What a file is when it is no TorchScript program: one sentence on what was found, one on what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gpujit.serialization.unpickle import Opaque, Unpickler, ordered_dict
from gpujit.serialization.zipindex import Member, shown
from gpujit.support.errors import GpujitError

_RESAVE = "build the model in PyTorch, load this file into it, and save torch.jit.script(model)"
_LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."

_CONTENTS: tuple[tuple[Callable[[str], bool], str], ...] = (
    (lambda n: n.endswith(".npy"), "a NumPy .npz archive; read it with numpy.load"),
    (lambda n: n == "[Content_Types].xml", "an office document"),
    (lambda n: n.startswith("META-INF/"), "a Java archive"),
    (lambda n: ".dist-info/" in n or n.endswith(".egg-info/PKG-INFO"), "a Python package (wheel)"),
    (lambda n: n.endswith(".onnx"), "a zip that holds an ONNX model"),
    (lambda n: n.endswith((".keras", "model.weights.h5")), "a Keras model"),
    (lambda n: n == "archive_format" or n.endswith("/archive_format"), "a torch.export (.pt2) archive"),
)  # fmt: skip


class Finding(NamedTuple):
    """Code and message of the error to raise."""

    code: str
    message: str


def not_a_zip(head: bytes, size: int) -> Finding:
    """What a file is that does not start with a zip signature. ``head`` holds its first 64 KiB or less."""
    text = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body")):
        return Finding(
            "html",
            "the file is a web page, not a model: the download link led to a page (a login, a consent form or an "
            "error); fetch the file itself",
        )
    if text.startswith(b"version https://git-lfs.github.com/spec/"):
        return Finding(
            "lfs-pointer",
            "the file is a Git LFS pointer, a small text that stands for the model; run 'git lfs pull' to get it",
        )
    if head[4:8] == b"PTMF":
        return Finding(
            "lite",
            "the file is a lite-interpreter model in flatbuffer form (PTMF), which holds no TorchScript code; save the "
            "model with torch.jit.save, or with _save_for_lite_interpreter and _use_flatbuffer=False",
        )
    if head.startswith(_LEGACY_MAGIC):
        return Finding(
            "state-dict",
            "the file is a checkpoint in the format torch.save had before PyTorch 1.6: it holds tensors or pickled "
            f"objects but no program; {_RESAVE}",
        )
    if len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5:
        return Finding(
            "state-dict",
            f"the file is a bare Python pickle (protocol {head[1]}): it holds objects but no program; {_RESAVE}",
        )
    if size > 10 and head[:8].endswith(b"\0\0") and head[8:9] == b"{":
        return Finding("other-archive", "the file is in safetensors form: it holds tensors but no program; " + _RESAVE)
    if head[:1] == b"\x08" and (
        b"onnx" in head[:256] or b"pytorch" in head[:256] or head[2:3] in (b"\x12", b"\x1a", b":")
    ):
        return Finding("other-archive", "the file looks like an ONNX model; run it with an ONNX runtime")
    if head.startswith((b"\x89HDF\r\n", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"7z\xbc\xaf", b"GGUF", b"Rar!")):
        return Finding(
            "other-archive",
            f"the file starts with {head[:4]!a}: another kind of archive; if a .pt file is in it, unpack it",
        )
    return Finding(
        "not-a-zip",
        f"the file does not start like a zip archive (its {size} bytes start with {head[:8]!a}), which every "
        "TorchScript file since PyTorch 1.0 is; check that it is the right file",
    )


def not_a_script(members: Mapping[str, Member], prefix: str, read: Callable[[str], bytes]) -> Finding | None:
    """What a sound zip archive is when it holds no TorchScript program; None when it does hold one.

    Args:
        members: names without the top folder.
        read: gives a member's bytes.
    """
    has_code = any(n.startswith("code/") for n in members)
    if "data.pkl" in members:
        if "bytecode.pkl" in members and not has_code:
            return Finding(
                "lite",
                "the archive is a lite-interpreter file: it holds bytecode (bytecode.pkl) but no code; open it with "
                "gpujit.mobile, or save the model with torch.jit.save",
            )
        if "constants.pkl" in members:
            return None
        if not has_code:
            return _state_dict(read)
        return _missing("constants.pkl")
    if any(n.startswith(".data/ts_code/") and n.endswith("/data.pkl") for n in members):
        return None
    if "model.json" in members or "attributes.pkl" in members:
        return Finding(
            "version",
            "the archive has the layout of PyTorch 1.0 to 1.3 (model.json, attributes.pkl), which is not supported; "
            "load it with PyTorch 1.4 or later and save it again",
        )
    if ".data/extern_modules" in members:
        return Finding(
            "other-archive",
            "the file is a torch.package archive without TorchScript: it holds Python code, which is not run",
        )
    for fits, what in _CONTENTS:
        if any(fits(n) for n in members):
            return Finding("other-archive", f"the file is {what}, not a TorchScript archive")
    if has_code or "constants.pkl" in members or "bytecode.pkl" in members:
        return _missing("data.pkl")
    some = ", ".join(shown(f"{prefix}/{n}" if prefix else n) for n in list(members)[:5]) or "nothing"
    return Finding(
        "other-archive",
        f"the file is a zip archive but not a TorchScript one: it holds {some}; expected data.pkl, constants.pkl and "
        "code/ under one top folder",
    )


def _missing(name: str) -> Finding:
    return Finding(
        "missing-member",
        f"the archive has no member '{name}', which every TorchScript file has; it was changed after saving: get it "
        "again",
    )


def _state_dict(read: Callable[[str], bytes]) -> Finding:
    try:
        root = Unpickler(
            read("data.pkl"),
            globals={"collections.OrderedDict": ordered_dict},
            persistent=Opaque,
            where="",
            opaque=True,
        ).load()
    except GpujitError:
        root = None
    if isinstance(root, dict):
        keys = ", ".join(shown(k) if isinstance(k, str) else ascii(k)[:100] for k in list(root)[:10])
        more = f" and {len(root) - 10} more" if len(root) > 10 else ""
        found = f"a dict with the keys {keys}{more}" if root else "an empty dict"
    elif isinstance(root, Opaque) and isinstance(root.name, str):
        found = f"an object of {shown(root.name)}"
    else:
        found = "a pickled object"
    return Finding(
        "state-dict",
        f"the file is a checkpoint written by torch.save, not a TorchScript program: it holds {found}, but no "
        f"code; {_RESAVE}",
    )
