"""``gpujit compare A [B]``: two files, or the ways one file can be run, output by output."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from typing import Any

from gpujit.cli import tiers
from gpujit.cli.agree import Bounds, Difference, called, difference_table, differences, fresh, problems
from gpujit.cli.inputs import (
    INPUTS,
    Chosen,
    add_model_arguments,
    check_count,
    chosen,
    is_input,
    load,
    method_of,
    positive,
)
from gpujit.cli.lockstep import Divergence, first_divergence, same_program
from gpujit.cli.output import print_json, safe, styled
from gpujit.support.errors import ArgumentError, GpujitError

DESCRIPTION = """Compare what two models give for the same inputs, or, with one file, what its tiers give: the
interpreter, fused kernels, and the plan. Each output is shown with its largest absolute and relative difference. Where
two files are the same program with other weights, both are run side by side to find the first operator that gives
something else.

Numbers agree up to ATOL + RTOL * |expected|. Without --rtol that is 1e-3 for float32, 1e-7 for float64, 1e-2 for
float16 and 5e-2 for bfloat16; without --atol as much of the largest number of the output. Integers, booleans and texts
have to be equal. The exit code is 1 when something is not."""
EXAMPLES = f"""{INPUTS}
examples:
  gpujit compare model.pt 1x3x224x224
  gpujit compare model.pt small.pt 1x3x224x224 --rtol 0.01
  gpujit compare a.pt b.pt image.npy --tiers planned --json"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_model_arguments(command)
    command.add_argument("--rtol", type=float, metavar="X", help="how far from a number, as a share of it")
    command.add_argument("--atol", type=float, metavar="X", help="how far from a number, besides")
    command.add_argument(
        "--tiers",
        metavar="LIST",
        help=f"of {', '.join(tiers.TIERS)}, with commas (default: all; the interpreter for two files)",
    )
    command.add_argument("--calls", type=positive, metavar="N", default=1, help="compare N calls, one after another")
    command.add_argument("--threads", type=positive, metavar="N", help="threads of plans")


def execute(arguments: argparse.Namespace) -> int:
    bounds = bounds_of(arguments)
    is_pair = bool(arguments.inputs) and not is_input(arguments.inputs[0])
    names = tiers.named(arguments.tiers, "interpreter" if is_pair else ",".join(tiers.TIERS))
    if is_pair:
        return _files(arguments, arguments.inputs.pop(0), names, bounds)
    if len(names) < 2:
        raise ArgumentError(f"one file is compared with itself on two tiers or more; --tiers names {names[0]} alone")
    model = chosen(arguments)
    calls = {name: tiers.make(name, model, arguments.threads) for name in names}
    found = {name: [Difference("", "", "")][:0] for name in names[1:]}
    for number in range(arguments.calls):
        wanted = called(calls[names[0]], model.values, arguments.seed + number)
        for name in names[1:]:
            got = called(calls[name], model.values, arguments.seed + number)
            found[name] += _numbered(differences(got, wanted, bounds), number, arguments.calls)
    sections = {f"{name} against {names[0]}": rows for name, rows in found.items()}
    return _show(arguments, {"file": arguments.file, "expected": names[0]}, sections, None, "")


def bounds_of(arguments: argparse.Namespace) -> Bounds:
    """``--rtol`` and ``--atol``. Raises ArgumentError for what are no distances."""
    for name in ("rtol", "atol"):
        value = getattr(arguments, name)
        if value is not None and not 0 <= value < float("inf"):
            raise ArgumentError(f"--{name} is a number from 0 on, found {value}")
    return Bounds(arguments.rtol, arguments.atol)


def _numbered(found: list[Difference], number: int, calls: int) -> list[Difference]:
    return found if calls == 1 else [replace(d, output=f"call {number}: {d.output}") for d in found]


def _files(arguments: argparse.Namespace, other: str, names: list[str], bounds: Bounds) -> int:
    one = chosen(arguments)
    module = load(other)
    two = Chosen(module, method_of(module, arguments.method), one.values, 0.0)
    check_count(two.values, two.method)
    sections, files = {}, (arguments.file, other)
    for name in names:
        calls = [tiers.make(name, m, arguments.threads) for m in (one, two)]
        rows = []
        for number in range(arguments.calls):
            seed = arguments.seed + number
            wanted, got = (_named(file, call, one.values, seed) for file, call in zip(files, calls, strict=True))
            rows += _numbered(differences(got, wanted, bounds), number, arguments.calls)
        sections[name] = rows
    divergence, reason = None, ""
    if any(not d.is_fine for rows in sections.values() for d in rows):
        reason = same_program(two.method, one.method)
        if not reason:
            # As it was loaded: calls may have changed its attributes.
            theirs, ours = (method_of(load(file).eval(), arguments.method) for file in (other, arguments.file))
            divergence = first_divergence(theirs, ours, lambda: fresh(one.values), bounds)
            reason = "" if divergence else "every operator of the interpreter gives the same"
    return _show(arguments, {"file": other, "expected": arguments.file}, sections, divergence, reason)


def _named(file: str, call: tiers.Call, values: list[Any], seed: int) -> Any:
    """A result; errors name the file."""
    try:
        return called(call, values, seed)
    except GpujitError as fault:
        fault.message = f"{file}: {fault.message}"
        raise


def _show(
    arguments: argparse.Namespace,
    what: dict[str, Any],
    sections: dict[str, list[Difference]],
    divergence: Divergence | None,
    reason: str,
) -> int:
    is_fine = all(d.is_fine for rows in sections.values() for d in rows)
    if arguments.json:
        parted = None if divergence is None else {**asdict(divergence), "difference": divergence.difference.as_json()}
        compared = [{"what": name, "outputs": [d.as_json() for d in rows]} for name, rows in sections.items()]
        print_json({**what, "ok": is_fine, "compared": compared, "first_divergence": parted, "no_divergence": reason})
        return 0 if is_fine else 1
    lines = []
    for name, rows in sections.items():
        lines += [styled(name, "bold"), difference_table(rows), *problems(rows), ""]
    if divergence is not None:
        d = divergence
        lines.append(f"first difference: {safe(d.operator)}, after {d.number} operators, at {safe(d.place)}")
        lines += [f"  {safe(d.line)}"] if d.line else []
        lines.append(f"  {safe(d.difference.problem)}")
    elif reason:
        lines.append(f"first difference: {safe(reason)}")
    lines.append(styled("the same", "green") if is_fine else styled("not the same", "red"))
    print("\n".join(lines))
    return 0 if is_fine else 1
