"""Makes tests/frontend/language.zip: each program of snippets.py scripted and saved by PyTorch, and what PyTorch gives.

Usage: python -m tests.frontend.make_language   (needs torch)
"""

from __future__ import annotations

import enum
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import torch

from tests.frontend import snippets
from tests.strip_debug import without_debug


def describe(value: Any) -> Any:
    """A value as JSON: tensors by dtype, shape and numbers; tuples, dicts and complex numbers are marked."""
    if isinstance(value, torch.Tensor):
        return {
            "tensor": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "values": value.flatten().tolist(),
        }
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", None)
        return {"tuple": [describe(v) for v in value], "fields": list(fields) if fields else None}
    if isinstance(value, list):
        return [describe(v) for v in value]
    if isinstance(value, dict):
        return {"dict": [[describe(k), describe(v)] for k, v in value.items()]}
    if isinstance(value, enum.Enum):
        return {"enum": value.name}
    return value


def main() -> None:
    expected: dict[str, Any] = {}
    with zipfile.ZipFile(Path(__file__).with_name("language.zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, program, inputs in snippets.CASES:
            is_module = isinstance(program, type) or name == "Hooked"
            program = program().eval() if is_module else program
            scripted = program if isinstance(program, torch.jit.ScriptModule) else torch.jit.script(program)
            data = without_debug(scripted.save_to_buffer())
            loaded = torch.jit.load(io.BytesIO(data))
            runs = []
            for arguments in inputs:
                described = describe(arguments)
                try:
                    with torch.no_grad():
                        runs.append({"args": described, "result": describe(loaded(*arguments))})
                except Exception as e:
                    runs.append({"args": described, "error": str(e).strip().split("\n")[-1]})
            expected[name] = runs
            info = zipfile.ZipInfo(f"{name}.pt", (1980, 1, 1, 0, 0, 0))
            archive.writestr(info, data)
        archive.writestr(zipfile.ZipInfo("expected.json", (1980, 1, 1, 0, 0, 0)), json.dumps(expected, indent=0))


if __name__ == "__main__":
    main()
