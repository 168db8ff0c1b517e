"""``gpujit inspect FILE``: what is in an archive, without running any of it."""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from typing import Any

from gpujit import modules
from gpujit.cli.inputs import load
from gpujit.cli.output import print_json, safe, table
from gpujit.ir.module import named_modules
from gpujit.ir.values import QTensor
from gpujit.ops.table import by_name
from gpujit.runtime.lower import BUILT_IN
from gpujit.runtime.values import declaration
from gpujit.support.units import bytes_text

DESCRIPTION = """Show what is in an archive: format version, methods with their signatures, parameters, buffers, dtypes,
the devices it was saved from, and the operators its code calls, with those that gpujit does not know. Nothing of it is
run."""
EXAMPLES = """examples:
  gpujit inspect model.pt
  gpujit inspect model.pt --json | jq .operators.missing
  gpujit inspect model.pt --all"""

_SHOWN = 20


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help="a TorchScript archive")
    command.add_argument(
        "--all", action="store_true", help=f"list everything instead of the first {_SHOWN} of each kind"
    )


def execute(arguments: argparse.Namespace) -> int:
    module = load(arguments.file)
    facts = collect(module)
    if arguments.json:
        print_json(facts)
    else:
        print(as_text(facts, None if arguments.all else _SHOWN))
    return 0


def collect(module: modules.ScriptModule) -> dict[str, Any]:
    """Everything ``inspect`` shows, ready for JSON."""
    loaded = module._program.loaded
    assert loaded is not None
    parameters = [_tensor(n, v) for n, v in module.named_parameters()]
    buffers = [_tensor(n, v) for n, v in module.named_buffers()]
    tensors = parameters + buffers
    return {
        "file": loaded.archive.file,
        "version": loaded.version,
        "class": module._object.type.name,
        "training": bool(module.training) if "training" in module._object.type.attributes else None,
        "methods": [declaration(m.schema, skip=1) for m in module.methods.values()],
        "modules": sum(1 for _ in named_modules(module._object)),
        "parameters": parameters,
        "buffers": buffers,
        "elements": sum(t["elements"] for t in parameters),
        "bytes": sum(t["bytes"] for t in tensors),
        "dtypes": dict(Counter(t["dtype"] for t in tensors)),
        "devices": sorted(loaded.devices),
        "operators": operators(loaded),
    }


def _tensor(name: str, value: Any) -> dict[str, Any]:
    array = value.values if isinstance(value, QTensor) else value
    dtype = f"quantised {array.dtype}" if isinstance(value, QTensor) else str(getattr(array, "dtype", "?"))
    shape = list(getattr(array, "shape", ()))
    return {
        "name": name, "dtype": dtype, "shape": shape,
        "elements": int(getattr(array, "size", 0)), "bytes": int(getattr(array, "nbytes", 0)),
    }  # fmt: skip


def operators(loaded: Any) -> dict[str, Any]:
    """Names of the operators the source calls, how often, and for those without an entry where."""
    counts: Counter[str] = Counter()
    places: dict[str, list[str]] = {}
    for path, source in sorted(loaded.sources.items()):
        file = loaded.resolver.source_file(path)
        assert file is not None
        for definition in file.definitions.values():
            for node in ast.walk(definition):
                called = _operator_name(node)
                if called is not None:
                    counts[called] += 1
                    if called not in BUILT_IN and not by_name(called):
                        places.setdefault(called, []).append(f"{source.name}:{getattr(node, 'lineno', 0)}")
    return {
        "distinct": len(counts), "calls": sum(counts.values()), "covered": len(counts) - len(places),
        "counts": dict(counts.most_common()), "missing": places,
    }  # fmt: skip


def _operator_name(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    owner, name = node.func.value, node.func.attr
    if isinstance(owner, ast.Name) and owner.id == "torch":
        return f"aten::{name}"
    if isinstance(owner, ast.Attribute) and isinstance(owner.value, ast.Name) and owner.value.id == "ops":
        return f"{owner.attr}::{name}"
    return None


def as_text(facts: dict[str, Any], limit: int | None) -> str:
    """The facts for people."""
    ops = facts["operators"]
    lines = [
        f"file        {safe(facts['file'])}",
        f"version     {facts['version']}",
        f"class       {safe(facts['class'])}, {facts['modules']} modules",
        f"parameters  {facts['elements']:,} in {len(facts['parameters'])} tensors",
        f"size        {bytes_text(facts['bytes'])} with buffers",
        f"dtypes      {', '.join(f'{k} ({v})' for k, v in facts['dtypes'].items()) or 'none'}",
        f"devices     {safe(', '.join(facts['devices'])) or 'none'}",
        f"operators   {ops['covered']} of {ops['distinct']} known, {ops['calls']} calls",
    ]
    if facts["training"]:
        lines.append("warning     the module was saved in training mode; call eval() for inference behaviour")
    lines += ["", "methods", *(f"  {safe(m)}" for m in facts["methods"])]
    for kind in ("parameters", "buffers"):
        rows = [(t["name"], t["dtype"], "x".join(map(str, t["shape"])) or "scalar") for t in facts[kind]]
        lines += ["", kind, *_cut(rows, limit)] if rows else []
    lines += ["", "operators called", *_cut([(n, c) for n, c in ops["counts"].items()], limit)]
    if ops["missing"]:
        lines += ["", "operators without an entry (calling them raises)"]
        lines.append(table((n, ", ".join(p[:4]) + (" ..." if len(p) > 4 else "")) for n, p in ops["missing"].items()))
    return "\n".join(lines)


def _cut(rows: list[tuple[Any, ...]], limit: int | None) -> list[str]:
    shown = rows if limit is None else rows[:limit]
    more = [f"  ... and {len(rows) - len(shown)} more (--all shows them)"] if len(rows) > len(shown) else []
    return [table(shown), *more]
