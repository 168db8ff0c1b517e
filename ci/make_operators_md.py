"""Writes docs/operators.md from the operator table. Usage: make_operators_md.py [--check]

``--check`` writes nothing and fails when the committed file is not what would be written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gpujit.fuser.moves import MOVES  # noqa: E402
from gpujit.ops import table  # noqa: E402
from gpujit.ops.families.quantized import main as quantized  # noqa: E402
from gpujit.ops.record import can_record  # noqa: E402
from gpujit.ops.registry import Op  # noqa: E402
from gpujit.ops.rows import OPAQUE  # noqa: E402

TARGET = ROOT / "docs" / "operators.md"
BASELINE = ROOT / "ci" / "opinfo_baseline.json"
MISSES = ROOT / "ci" / "opinfo_misses.json"
HALF = (
    "With bfloat16, float16 and complex64 (`opinfo.py --dtypes bfloat16,float16,complex64`) 546 of 567 operators pass",
    "all samples, 4116 of 4172 samples pass. Operators on half types compute in float32 and round once, where PyTorch",
    "rounds between steps: `addbmm`, `addr`, `cross`, `grid_sampler_2d` and `_3d`, `grid_sample`, transposed",
    "convolution, trilinear and bicubic interpolation, `adaptive_avg_pool3d`, `instance_norm`, `cumulative_trapezoid`",
    "and the losses `mse`, `soft_margin`, `triplet_margin` and `poisson_nll` then differ in the last places of some",
    "samples. `sort` and `argsort` order ties differently, and `matrix_exp` refuses float16.",
)
HEAD = """\
# Operators

Made from the operator table by `ci/make_operators_md.py`; {entries} entries under {names} names. One row an operator:

- **overloads**: names of its schemas, `-` for the one without a name. Derived in-place forms (`add_`) have no rows.
- **kind**: `pointwise` (element by element), `reduction` (rows to values, norms), `library` (a kernel of its own),
  `view` (shares memory with its input), `prim` (Python values).
- **forms**: `in-place` and `out=` exist besides the plain form.
- **refuses**: kinds of dtype that a pointwise operator does not take.
- **type rule**: how its result's type follows from its arguments' types: `explicit` (a rule of its own; `(data)` where
  sizes depend on numbers), `automatic` (broadcasting and promotion, or the schema alone), `probed` (run on small
  arrays).
- **out-variant**: `yes` when it computes in a given array without a hidden temporary.
- **fusible**: may become part of a fused kernel: it has an expression for one element or row, or copies or shows
  elements through an index map.
- **quantised**: takes quantised tensors as well.
- **ONNX**: the operator of the same meaning, where it is one.

[Operators of your own](custom_ops.md) are added with `gpujit.op`.
"""
COLUMNS = (
    "operator", "overloads", "kind", "forms", "refuses", "type rule", "out-variant", "fusible", "quantised", "ONNX",
)  # fmt: skip
_RULES = {"rule": "explicit", "data": "explicit (data)", "probe": "probed"}


def rule_kind(op: Op) -> str:
    """How the result's type is found: ``explicit``, ``explicit (data)``, ``automatic`` or ``probed``."""
    try:
        from gpujit.ops.infer import kind_of_rule
    except ImportError:
        return "explicit" if op.type_rule is not None else "automatic" if op.kind == "pointwise" else "probed"
    return _RULES.get(kind_of_rule(op), "automatic")


def has_out_variant(op: Op) -> bool:
    """Whether results are computed in given arrays."""
    return bool(getattr(op, "has_out_variant", False))


def is_fusible(op: Op) -> bool:
    """Whether the fuser may take it into a kernel: recorded, a copy of elements it knows as an index map, or a view."""
    functional = op.derived_from or op
    recorded = can_record(op) and functional.scalar is not OPAQUE
    return recorded or functional.full_name in MOVES or functional.kind == "view"


def distinct(values: Sequence[str]) -> str:
    """The different ones, in order of appearance."""
    return ", ".join(dict.fromkeys(v for v in values if v))


def row(name: str, ops: Sequence[Op], forms: set[str]) -> str:
    """The row of all entries of one name. ``forms`` are the derived forms that exist."""
    plain = [op for op in ops if op.form == "functional"] or list(ops)
    onnx = [op.onnx if isinstance(op.onnx, str) else "yes" if op.onnx is not None else "" for op in ops]
    cells = (
        f"`{name.partition('::')[2]}`",
        ", ".join(op.overload or "-" for op in ops),
        distinct([op.kind for op in ops]),
        ", ".join(form for form in ("in-place", "out=") if form in forms),
        distinct([key for op in ops for key in op.refuse]),
        distinct([rule_kind(op) for op in plain]),
        "yes" if any(map(has_out_variant, ops)) else "",
        "yes" if any(map(is_fusible, ops)) else "",
        "yes" if any(op.full_name in quantized.QTENSOR_RULES for op in ops) else "",
        distinct(onnx),
    )
    return "| " + " | ".join(cells) + " |"


def forms_of(name: str, ops: Sequence[Op]) -> set[str]:
    """``in-place`` and ``out=`` where the operator has such a form, derived or with a body of its own."""
    forms = set()
    if table.by_name(f"{name}_"):
        forms.add("in-place")
    if any(a.is_write and a.kwarg_only for op in ops for a in op.schema.arguments):
        forms.add("out=")
    return forms


def misses() -> list[str]:
    """The section on what PyTorch's operator database finds."""
    counts = json.loads(BASELINE.read_text())
    reasons = json.loads(MISSES.read_text())
    failing = {name: n for name, n in counts.items() if n[0] < n[1]}
    passed, total = (sum(n[i] for n in counts.values()) for i in (0, 1))
    whole = len(counts) - len(failing)
    lines = [
        "## Against PyTorch's operator database",
        "",
        "Every operator of `torch.testing`'s database (torch 2.13; float32, float64, int64, bool; up to 6 samples",
        f"each) is traced, saved, loaded and compared: {whole} of {len(counts)} operators pass all",
        f"samples, {passed} of {total} samples pass. `ci/opinfo.py` compares with these counts. What is missing:",
        "",
        "| operator | samples that pass | reason |",
        "| --- | --- | --- |",
    ]
    for name, (a, b) in failing.items():
        # A bar, as in split|list_args, would end the cell.
        shown = name.replace("|", "\\|")
        lines.append(f"| `{shown}` | {a} of {b} | {reasons.get(name, 'not looked into')} |")
    return [*lines, "", *HALF]


def page() -> str:
    """The text of docs/operators.md."""
    by_name: dict[str, list[Op]] = {}
    for op in table.registered():
        by_name.setdefault(op.name, []).append(op)
    rows: dict[str, list[str]] = {}
    for name in sorted(by_name):
        ops = by_name[name]
        if all(op.form == "inplace" for op in ops):
            continue
        rows.setdefault(name.partition("::")[0], []).append(row(name, ops, forms_of(name, ops)))
    entries = sum(map(len, by_name.values()))
    lines = [HEAD.format(entries=entries, names=len(by_name))]
    for namespace, found in rows.items():
        lines += [f"## {namespace}", "", f"| {' | '.join(COLUMNS)} |", "|" + " --- |" * len(COLUMNS), *found, ""]
    return "\n".join([*lines, *misses()]) + "\n"


def main() -> int:
    text = page()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text)
        return 0
    if TARGET.is_file() and TARGET.read_text() == text:
        return 0
    print("docs/operators.md is not what the operator table says; run ci/make_operators_md.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
