"""``gpujit optimise FILE -o OUT``: a frozen, simplified copy that ``torch.jit.load`` reads too."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpujit.cli.agree import Difference, called, difference_table, differences, problems
from gpujit.cli.compare import bounds_of
from gpujit.cli.inputs import INPUTS, Chosen, add_model_arguments, check_count, load, method_of, read_inputs
from gpujit.cli.output import print_json, safe, styled, time_text
from gpujit.ir.dtypes import BY_NAME
from gpujit.serialization.target import write_to
from gpujit.support.progress import Stage
from gpujit.support.units import bytes_text

if TYPE_CHECKING:
    from gpujit.modules import ScriptModule

DESCRIPTION = """Write a copy of a model that is frozen (attributes that never change are constants) and simplified:
batch norms are folded into the weights before them, what is constant is computed, what is dead is gone. PyTorch loads
the copy as well. With inputs, it is called before it is written, as it is and as it will be loaded, and has to give
what the model gives; if it does not, nothing is written and the exit code is 1."""
EXAMPLES = f"""{INPUTS}
examples:
  gpujit optimise model.pt 1x3x224x224 -o fast.pt
  gpujit optimise model.pt 1x3x224x224 -o half.pt --dtype float16
  gpujit optimise model.pt -o fast.pt --keep encode --keep head.classes"""

# Reasons against folds that are told.
_SHOWN = 10
DTYPES = ("float16", "bfloat16", "float32", "float64")


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_model_arguments(command)
    command.add_argument("-o", "--output", required=True, metavar="OUT", help="where to write; may be FILE itself")
    command.add_argument(
        "--dtype", choices=DTYPES, help="dtype of floating-point weights, and of the casts in the code"
    )
    command.add_argument(
        "--keep", action="append", default=[], metavar="NAME",
        help="a method, attribute or submodule to keep besides forward (and --method); may be given again",
    )  # fmt: skip
    command.add_argument("--exact", action="store_true", help="only what changes no bit: no folds into weights")
    command.add_argument("--rtol", type=float, metavar="X", help="as for gpujit compare")
    command.add_argument("--atol", type=float, metavar="X", help="as for gpujit compare")


def execute(arguments: argparse.Namespace) -> int:
    from gpujit import api
    from gpujit.inference import freeze

    bounds = bounds_of(arguments)
    module = load(arguments.file).eval()
    method = method_of(module, arguments.method)
    values = list(read_inputs(arguments.inputs, arguments.seed))
    if values:
        check_count(values, method)
    kept = list(dict.fromkeys([*arguments.keep, *([] if method.name == "forward" else [method.name])]))
    start = time.perf_counter()
    frozen = freeze(module, kept, optimize_numerics=not arguments.exact)
    if arguments.dtype is not None:
        frozen.to(arguments.dtype, casts=True)
    data = frozen.save_to_buffer()
    seconds = time.perf_counter() - start
    found: list[Difference] = []
    if values or not _required(method):
        given = _converted(values, arguments.dtype)
        with Stage("check", 3) as stage:
            wanted = _converted(called(_call(module, method.name), values, arguments.seed), arguments.dtype)
            for name, copy in (("", frozen), ("loaded: ", api.load(data, map_location="cpu"))):
                stage.advance()
                got = _converted(called(_call(copy, method.name), given, arguments.seed), arguments.dtype)
                found += [replace(d, output=name + d.output) for d in differences(got, wanted, bounds)]
    is_fine = all(d.is_fine for d in found)
    before, nodes = os.path.getsize(arguments.file), _nodes(module, method.name)
    if is_fine:
        write_to(arguments.output, lambda sink: sink.write(data))
    facts = {
        "file": arguments.output, "ok": is_fine, "checked": bool(found),
        "bytes_before": before, "bytes_after": len(data),
        "nodes_before": nodes, "nodes_after": _nodes(frozen, method.name), "folded": frozen._program.report.folded,
        "not_folded": frozen._program.report.refused, "seconds": round(seconds, 3),
        "outputs": [d.as_json() for d in found],
    }  # fmt: skip
    if arguments.json:
        print_json(facts)
    else:
        print(as_text(facts, found))
    return 0 if is_fine else 1


def _required(method: Any) -> bool:
    return any(not a.has_default for a in method.schema.arguments[1:])


def _call(module: ScriptModule, name: str) -> Callable[..., Any]:
    return Chosen(module, method_of(module, name), [], 0.0).call


def _nodes(module: ScriptModule, name: str) -> int:
    """Operators of a method with all that it calls."""
    graph = module.methods[name].inlined_graph
    return sum(1 for n in graph.all_nodes() if n.kind != "prim::Constant")


def _converted(value: Any, dtype: str | None) -> Any:
    """A value with its floating-point arrays in another dtype, in lists, tuples and dicts as well."""
    if dtype is None:
        return value
    if isinstance(value, np.ndarray):
        is_floating = value.dtype.kind == "f" or value.dtype == BY_NAME["bfloat16"].dtype
        return value.astype(BY_NAME[dtype].dtype) if is_floating else value
    if isinstance(value, dict):
        return {k: _converted(v, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_converted(v, dtype) for v in value]
        return value._make(items) if hasattr(value, "_make") else type(value)(items)
    return value


def as_text(facts: dict[str, Any], found: list[Difference]) -> str:
    """What was done, for people."""
    if not facts["ok"]:
        return "\n".join(
            [
                difference_table(found),
                *problems(found),
                styled("nothing was written: it does not compute the same", "red"),
            ]
        )
    checked = f", {len(found)} outputs compared" if facts["checked"] else "; not called: no inputs were given"
    nodes = f"{facts['nodes_before']} -> {facts['nodes_after']} nodes"
    size = f"{bytes_text(facts['bytes_before'])} -> {bytes_text(facts['bytes_after'])}"
    lines = [f"{safe(facts['file'])}: {nodes}, {size}, in {time_text(facts['seconds'])}{checked}"]
    if facts["folded"]:
        lines.append(f"folded {facts['folded']} nodes into the weights before them")
    # Additions and multiplications that are no part of a norm are not missed by anybody.
    norms = [reason for reason in facts["not_folded"] if "aten::batch_norm" in reason]
    lines += [f"not folded: {safe(reason)}" for reason in norms[:_SHOWN]]
    if len(norms) > _SHOWN:
        lines.append(f"  ... and {len(norms) - _SHOWN} more (--json has them)")
    return "\n".join(lines)
