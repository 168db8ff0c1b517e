"""Makes tests/models/accentor.json: what PyTorch gives for the stress models that the package silero-stress ships.

Usage: python -m tests.models.make_accentor FOLDER   (needs torch; ci/fetch_models.sh fills the folder)

The package's own Python runs, from the archive; what it gives its TorchScript modules and gets back is written down.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.models.sentences import BELARUSIAN, RUSSIAN, UKRAINIAN

LANGUAGES = {"accentor": RUSSIAN, "accentor-ukr": UKRAINIAN, "accentor-bel": BELARUSIAN}


def load(path: Path) -> Any:
    """The package's object with the weights restored that it keeps as bytes, as its loader does."""
    with path.open("rb") as stream:
        found = torch.package.PackageImporter(stream).load_pickle("accentor_models", "accentor")  # type: ignore[attr-defined]
    if hasattr(found, "homosolver"):
        owner = found.homosolver.model.bert
        table = owner.embeddings.word_embeddings
    else:
        owner = found.accentor.model
        table = owner.embedding
    table.weight.data = owner.scale * (table.weight.data.clone() - owner.zero_point)
    return found


class Recorder:
    """Stands in for a TorchScript module and notes down its calls."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.calls: list[dict[str, Any]] = []

    def __call__(self, *args: Any) -> Any:
        result = self.module(*args)
        self.calls.append({"inputs": [plain(a) for a in args], "output": plain(result)})
        return result


def plain(value: Any) -> Any:
    """A value for JSON; numbers keep five digits."""
    if isinstance(value, torch.Tensor):
        array = value.detach().numpy()
        return [[float(f"{x:.5g}") for x in row] for row in array] if array.dtype.kind == "f" else array.tolist()
    return [plain(v) for v in value] if isinstance(value, (tuple, list)) else value


def main(folder: str) -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for name, sentences in LANGUAGES.items():
        stress = load(Path(folder) / f"{name}.pt")
        owners = {part: getattr(stress, part) for part in ("accentor", "homosolver") if hasattr(stress, part)}
        recorders: dict[str, Recorder] = {}
        for part, owner in owners.items():
            owner.model = recorders[f"{part}.model"] = Recorder(owner.model)
        accented = [stress(s) for s in sentences]
        found[name] = {"accented": accented, "calls": {key: r.calls for key, r in recorders.items()}}
        print(name, {key: len(r.calls) for key, r in recorders.items()}, *accented, sep="\n  ")
    path = Path(__file__).with_name("accentor.json")
    path.write_text(json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    print(path.stat().st_size, "bytes; numpy", np.__version__, "torch", torch.__version__)


if __name__ == "__main__":
    main(sys.argv[1])
