"""Language snippets as data: how they are written down, made into programs, run, and how outcomes are compared.

A snippet is source text that defines ``f``, and inputs. It is written with ``torch.`` names: these are PyTorch's where
it is the judge, and gpujit's own under an alias where it is not installed. Arrays stand for tensors.
"""

from __future__ import annotations

import copy
import importlib
import json
import linecache
import math
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gpujit
from gpujit.frontend.python_names import TorchPath
from tests.frontend import small_nn

TOPICS = (
    "flow", "numbers", "strings", "containers", "types", "classes", "tensors", "functions", "refused", "modules",
    "autocast",
)  # fmt: skip
EXPECTED = Path(__file__).with_name("language_expected.json")


@dataclass(frozen=True)
class Snippet:
    """One program, and the arguments of each of its runs."""

    name: str
    text: str
    inputs: tuple[tuple[Any, ...], ...]


def array(values: Any, dtype: str = "float32") -> np.ndarray:
    """A tensor among a snippet's inputs."""
    return np.array(values, dtype=dtype)


def expressions(prefix: str, parameters: str, lines: str, *inputs: tuple[Any, ...]) -> list[Snippet]:
    """One snippet for each line of ``lines``: a function of these parameters that returns the expression."""
    texts = [line.strip() for line in lines.strip().splitlines() if line.strip()]
    return [Snippet(f"{prefix}_{i}", f"def f({parameters}):\n    return {t}\n", inputs) for i, t in enumerate(texts)]


def program(name: str, text: str, *inputs: tuple[Any, ...]) -> Snippet:
    """A snippet given in full."""
    return Snippet(name, text.strip("\n") + "\n", inputs)


def all_snippets() -> list[Snippet]:
    """Every snippet of every topic."""
    found = [s for t in TOPICS for s in importlib.import_module(f"tests.frontend.language_{t}").SNIPPETS]
    assert len({s.name for s in found}) == len(found), "two snippets have one name"
    return found


# -------------------------------------------------------------------------------------------------------- making them


class _Eager(TorchPath):
    """A function of torch that snippets call while their module is made."""

    def __init__(self, path: str, call: Any) -> None:
        super().__init__(path)
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)


class TorchAlias:
    """``torch`` for snippets where there is no torch: names of the language lead to gpujit's."""

    jit = gpujit
    nn = small_nn
    tensor = _Eager("tensor", lambda values: np.array(values, dtype="float32"))
    ones = _Eager("ones", lambda *shape: np.ones(shape, dtype="float32"))
    zeros = _Eager("zeros", lambda *shape: np.zeros(shape, dtype="float32"))
    relu = _Eager("relu", lambda x: np.maximum(x, 0))

    def __getattr__(self, name: str) -> Any:
        return TorchPath(name)


def load(snippet: Snippet, torch: Any) -> types.ModuleType:
    """The snippet's module: its text run with ``torch`` and the names of typing in its globals."""
    name = f"language_snippets.{snippet.name}"
    file = f"/{name}.py"
    module = types.ModuleType(name)
    module.__file__ = file
    lines = snippet.text.splitlines(keepends=True)
    linecache.cache[file] = (len(snippet.text), None, lines, file)
    import sys

    sys.modules[name] = module
    names = vars(module)
    for n in ("Any", "Dict", "List", "NamedTuple", "Optional", "Tuple", "Union", "Final"):
        names[n] = getattr(typing, n)
    for n in ("enum", "math", "dataclasses"):
        names[n] = importlib.import_module(n)
    names["torch"], names["Tensor"] = torch, torch.Tensor
    exec(compile(snippet.text, file, "exec", dont_inherit=True), names)
    return module


def arguments(values: tuple[Any, ...], convert: Any) -> list[Any]:
    """A run's arguments, arrays through ``convert``; nothing is shared with the snippet."""

    def walk(v: Any) -> Any:
        if isinstance(v, np.ndarray):
            return convert(v.copy())
        if isinstance(v, (list, tuple)):
            return type(v)(walk(e) for e in v)
        if isinstance(v, dict):
            return {k: walk(e) for k, e in v.items()}
        return copy.deepcopy(v)

    return [walk(v) for v in values]


def plain(value: Any) -> Any:
    """A result as JSON that keeps types apart."""
    if hasattr(value, "detach"):
        value = value.detach().resolve_conj().resolve_neg()
        # NumPy has no bfloat16 of its own.
        if "bfloat16" in str(value.dtype):
            return {**plain(value.float()), "tensor": "bfloat16"}
        value = value.numpy()
    if isinstance(value, np.ndarray):
        numbers = value.astype("float32") if value.dtype.name == "bfloat16" else value
        flat = [[v.real, v.imag] if value.dtype.kind == "c" else v for v in numbers.ravel().tolist()]
        return {"tensor": str(value.dtype), "shape": list(value.shape), "values": flat}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, tuple):
        return {"tuple": [plain(v) for v in value], "fields": list(getattr(value, "_fields", ()))}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {"dict": [[plain(k), plain(v)] for k, v in value.items()]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"object": str(getattr(value, "name", None) or getattr(value, "type", None) or type(value).__name__)}


def same(got: Any, want: Any) -> bool:
    """Whether two results are equal in type and value, numbers within rounding."""
    if isinstance(want, float) or isinstance(got, float):
        if type(got) is not type(want):
            return False
        return (
            got == want or (math.isnan(got) and math.isnan(want)) or math.isclose(got, want, rel_tol=2e-5, abs_tol=1e-7)
        )
    if isinstance(want, list):
        return isinstance(got, list) and len(got) == len(want) and all(map(same, got, want))
    if isinstance(want, dict):
        return isinstance(got, dict) and got.keys() == want.keys() and all(same(got[k], want[k]) for k in want)
    return type(got) is type(want) and bool(got == want)


def expected() -> dict[str, Any]:
    """What PyTorch made of each snippet, as make_language_expected wrote it down."""
    found: dict[str, Any] = json.loads(EXPECTED.read_text())
    return found
