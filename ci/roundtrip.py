"""Saves models with gpujit and loads them with PyTorch, and the other way round: the same results everywhere.

Usage: roundtrip.py [--frozen] FILE_OR_FOLDER...    Needs PyTorch.

For each NAME.pt, with inputs in NAME.npz where there is one: gpujit loads and saves it, twice with the same bytes;
PyTorch loads that and computes what the original computes; gpujit loads what PyTorch writes of that and computes what
it computes for the original. Sizes are compared with those of the file PyTorch writes, and its source for both is too.
``--frozen`` freezes in between.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

import gpujit  # noqa: E402
from tests.compare import from_meta, to_torch  # noqa: E402


def inputs_of(path: Path) -> list[Any] | None:
    """The inputs stored beside a model, or None."""
    stored = path.with_suffix(".npz")
    if not stored.is_file():
        return None
    with np.load(stored) as data:
        if "meta" not in data.files:
            return None
        arrays = {k: data[k] for k in data.files if k != "meta"}
        return [from_meta(m, arrays) for m in json.loads(str(data["meta"]))["inputs"]]


def difference(a: Any, b: Any) -> float:
    """The largest relative difference of two nested results; inf where they differ in kind."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        a, b = (t.detach().dequantize() if t.is_quantized else t.detach() for t in (a, b))
        a, b = (t.float().numpy() if t.dtype == torch.bfloat16 else t.resolve_conj().numpy() for t in (a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return float("inf")
        if a.dtype.kind not in "fcV":
            return 0.0 if np.array_equal(a, b) else float("inf")
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        x, y = a.astype(wide), b.astype(wide)
        if np.array_equal(x, y, equal_nan=True):
            return 0.0
        scale = max(float(np.nanmax(np.abs(x), initial=0.0)), 1e-6)
        gap = np.abs(x - y)
        same = np.isnan(x) == np.isnan(y)
        return float(np.nanmax(gap, initial=0.0)) / scale if bool(same.all()) else float("inf")
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        return max(map(difference, a, b), default=0.0)
    if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b):
        return max((difference(a[k], b[k]) for k in a), default=0.0)
    return 0.0 if a == b or a != a else float("inf")


def run_torch(module: Any, inputs: list[Any]) -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        return module(*to_torch(inputs))


def run_gpujit(module: Any, inputs: list[Any]) -> Any:
    gpujit.manual_seed(0)
    return module(*inputs)


def source_in(archive: bytes) -> dict[str, str]:
    """The source files of an archive, without the numbers that make names unique."""
    with zipfile.ZipFile(io.BytesIO(archive)) as z:
        files = {n.partition("/")[2]: z.read(n).decode() for n in z.namelist() if n.endswith(".py")}
    return {n: re.sub(r"(?<=[A-Za-z_])\d+\b", "", text) for n, text in files.items()}


def check(path: Path, frozen: bool) -> tuple[list[str], str]:
    """What is wrong with one model's way round, and a remark."""
    found: list[str] = []
    remark = ""
    try:
        reference = torch.jit.load(str(path), map_location="cpu")
    except RuntimeError as error:
        return [], f", but not judged: PyTorch does not load the original ({str(error).strip().splitlines()[0]})"
    original = gpujit.load(path, map_location="cpu")
    if frozen:
        original = gpujit.freeze(original.eval())
    data = original.save_to_buffer()
    if original.save_to_buffer() != data:
        found.append("saved twice, the bytes differ")
    inputs = inputs_of(path)
    tolerance = 0.0
    if frozen:
        reference = torch.jit.freeze(reference.eval())
        if inputs is not None:
            # Folding batch norms changes results by rounding, in some models much; state is kept by some.
            plain, folded = (torch.jit.load(str(path), map_location="cpu").eval() for _ in range(2))
            folded = torch.jit.freeze(folded)
            tolerance = max(1e-4, 2 * difference(run_torch(plain, inputs), run_torch(folded, inputs)))
    theirs = reference.save_to_buffer()
    if len(data) > len(theirs):
        text = f"{len(data)} bytes, PyTorch writes {len(theirs)}"
        if frozen:
            # What each of the two freezes need not be the same.
            remark = f" ({text})"
        else:
            found.append(text)
    in_torch = torch.jit.load(io.BytesIO(data))
    back = in_torch.save_to_buffer()
    again = gpujit.load(back)
    if not frozen:
        if gpujit.load(data).save_to_buffer() != data:
            found.append("loaded and saved again, the bytes differ")
        ours, reference_source = source_in(back), source_in(theirs)
        different = [n for n in {**ours, **reference_source} if ours.get(n) != reference_source.get(n)]
        if different:
            # Such as default arguments written out: another text, though not another meaning.
            remark = f" (PyTorch writes other source for {len(different)} of {len(ours)} files)"
    if inputs is not None:
        gap = difference(run_torch(reference, inputs), run_torch(in_torch, inputs))
        if gap > tolerance:
            found.append(f"PyTorch computes something else: {gap:.2g}")
        gap = difference(run_gpujit(original, inputs), run_gpujit(again, inputs))
        if gap > 0.0:
            found.append(f"gpujit computes something else from PyTorch's file: {gap:.2g}")
    return found, remark


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--frozen", action="store_true", help="freeze before saving")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    files = [f for p in arguments.paths for f in (sorted(p.rglob("*.pt")) if p.is_dir() else [p])]
    failed = 0
    for path in files:
        try:
            found, remark = check(path, arguments.frozen)
        except Exception as error:
            found, remark = [f"{type(error).__name__}: {str(error)[:1500]}"], ""
        failed += bool(found)
        print(f"{path.name}: {'; '.join(found) or 'same'}{remark}", flush=True)
    print(f"{len(files) - failed} of {len(files)} go round")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())
