"""The small models that passes are tried on, with their inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.compare import from_meta

MODELS = sorted((Path(__file__).resolve().parents[1] / "models" / "corpus").glob("*.pt"))


def inputs_of(path: Path) -> list[Any]:
    """The example inputs of a model."""
    with np.load(path.with_suffix(".npz")) as stored:
        arrays = {k: stored[k] for k in stored.files if k != "meta"}
        meta = json.loads(str(stored["meta"]))
    return [from_meta(m, arrays) for m in meta["inputs"]]
