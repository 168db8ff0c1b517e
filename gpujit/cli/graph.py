"""``gpujit graph FILE``: a graph at one stage, as text or as a picture."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from gpujit.cli.inputs import check_count, load, method_of, read_inputs
from gpujit.cli.output import safe
from gpujit.support.errors import ArgumentError

DESCRIPTION = """Show a model's graph at any stage, as text, SVG, DOT or JSON."""
EXAMPLES = """stages:
  source     as it is written, calls left as calls
  inlined    the bodies of what is called in place of the calls
  frozen     weights as constants, what is constant computed (default)
  fused      specialised for the inputs, with fusion groups; needs inputs
  plan       also what runs each node, and where its result lies; needs inputs

inputs are given as for run: 1x3x224x224, 1x12:int64, x.npy, int=3 ...

examples:
  gpujit graph model.pt -o model.svg
  gpujit graph model.pt 1x3x224x224 --stage fused -o fused.svg
  gpujit graph model.pt 1x3x224x224 --stage plan
  gpujit graph model.pt --stage source --format dot | dot -Tpdf > model.pdf"""

STAGES = ("source", "inlined", "frozen", "fused", "plan")
FORMATS = ("text", "svg", "dot", "json")
_BY_ENDING = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".json": "json", ".txt": "text"}


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", help="a TorchScript archive")
    command.add_argument("inputs", nargs="*", metavar="INPUT", help="array files, shapes or values; see below")
    command.add_argument("--stage", choices=STAGES, help="which graph (default: frozen, or fused with inputs)")
    command.add_argument(
        "--format", choices=FORMATS, help="how to show it (default: what OUT's name ends in, else text)"
    )
    command.add_argument("-o", "--output", metavar="OUT", help="write there instead of printing")
    command.add_argument("--method", default="forward", help="method to show (default: forward)")
    command.add_argument(
        "--fold", type=int, metavar="N", help="fold modules, the innermost first, until at most N nodes are left"
    )
    command.add_argument("--seed", type=int, default=0, help="seed of random inputs (default: 0)")


def execute(arguments: argparse.Namespace) -> int:
    form = _format(arguments)
    stage = arguments.stage or ("fused" if arguments.inputs else "frozen")
    if stage in ("fused", "plan"):
        values = list(read_inputs(arguments.inputs, arguments.seed))
    elif arguments.inputs:
        raise ArgumentError(f"the stage {stage!r} is the same for all inputs; leave {arguments.inputs[0]!r} out")
    else:
        values = []
    module = load(arguments.file)
    method = method_of(module, arguments.method)
    if stage in ("fused", "plan"):
        check_count(values, method)
    # Drawing needs the executor and LLVM, which take longer to import than other commands to run.
    from gpujit import plot
    from gpujit.serialization.target import write_to

    found = plot.graph(module, *values, stage=stage, method=arguments.method, fold=arguments.fold)
    text = _text(found, form)
    if arguments.output is None:
        print(safe(text) if form == "text" else text, end="" if text.endswith("\n") else "\n")
        return 0
    write_to(arguments.output, lambda sink: sink.write(text.encode()))
    facts = {
        "file": arguments.output, "stage": stage, "format": form, "bytes": len(text.encode()), **_counts(found),
    }  # fmt: skip
    if arguments.json:
        print(json.dumps(facts))
    else:
        counts = f"{facts['operators']} operators in {facts['modules']} modules and {facts['groups']} fusion groups"
        print(f"{safe(arguments.output)}: {stage}, {counts}")
    return 0


def _format(arguments: argparse.Namespace) -> str:
    if arguments.format:
        return str(arguments.format)
    if arguments.output is None:
        return "json" if arguments.json else "text"
    ending = os.path.splitext(arguments.output)[1].lower()
    if ending not in _BY_ENDING:
        raise ArgumentError(
            f"{arguments.output!r} ends in none of {', '.join(_BY_ENDING)}; say --format {'|'.join(FORMATS)}"
        )
    return _BY_ENDING[ending]


def _text(found: Any, form: str) -> str:
    if form == "json":
        return json.dumps(found.data) + "\n"
    return str(getattr(found, form))


def _counts(found: Any) -> dict[str, int]:
    picture = found.picture
    kinds = [box.kind for box in picture.boxes.values()]
    return {
        "operators": picture.operators()["root"], "nodes": len(picture.nodes), "edges": len(picture.edges),
        "modules": kinds.count("module"), "groups": kinds.count("group"),
    }  # fmt: skip
