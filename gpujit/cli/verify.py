"""``gpujit verify FILE``: whether a file is whole and sound, and computes the same however it is run or saved."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpujit import api
from gpujit.cli import tiers
from gpujit.cli.agree import called, differences
from gpujit.cli.compare import bounds_of
from gpujit.cli.inputs import (
    INPUTS,
    Chosen,
    add_model_arguments,
    check_count,
    load,
    method_of,
    positive,
    read_inputs,
)
from gpujit.cli.inspect import operators
from gpujit.cli.output import print_json, safe, styled, table
from gpujit.cli.values import flatten
from gpujit.ir.module import Function, named_modules
from gpujit.ir.verify import verify
from gpujit.passes.inline import compile_callees
from gpujit.serialization.archive import Archive
from gpujit.support.errors import ArgumentError, GpujitError
from gpujit.support.progress import Stage

if TYPE_CHECKING:
    from gpujit.modules import ScriptModule

DESCRIPTION = """Check a file: every byte against its checksum, every graph against the rules of graphs, which operators
are known, whether the interpreter, fused kernels and the plan give the same for inputs, call after call, and whether
what was saved and loaded again is the same. Without inputs, a method that needs some is not called.

The exit code is 1 when a check fails. Operators that are not known do not fail a check: they raise when they are
reached."""
EXAMPLES = f"""{INPUTS}
examples:
  gpujit verify model.pt
  gpujit verify model.pt 1x3x224x224 --samples 5
  gpujit verify vad.jit 1x512 int=16000 --calls 10 --json"""

OK, FAILED, SKIPPED, NOTE = "ok", "failed", "skipped", "note"
_STYLES = {OK: "green", FAILED: "bold red", SKIPPED: "yellow", NOTE: "yellow"}
# Faults of one check that are told.
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its name, how it went, and what was seen."""

    name: str
    status: str
    text: str


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_model_arguments(command)
    command.add_argument(
        "--samples", type=positive, metavar="N", default=2, help="draw random inputs N times (default: 2)"
    )
    command.add_argument("--calls", type=positive, metavar="N", default=3, help="calls on each of them (default: 3)")
    command.add_argument("--rtol", type=float, metavar="X", help="as for gpujit compare")
    command.add_argument("--atol", type=float, metavar="X", help="as for gpujit compare")
    command.add_argument("--threads", type=positive, metavar="N", help="threads of plans")


def execute(arguments: argparse.Namespace) -> int:
    bounds_of(arguments)
    module = load(arguments.file)
    method_of(module, arguments.method)
    samples = [list(read_inputs(arguments.inputs, arguments.seed + k)) for k in range(arguments.samples)]
    checks = [
        _attempt("bytes", lambda: _bytes(arguments.file)),
        _attempt("graphs", lambda: _graphs(module)),
        _operators(module),
        _attempt("saved again", lambda: _saved(module)),
        *_calls(arguments, samples),
    ]
    is_fine = all(c.status != FAILED for c in checks)
    if arguments.json:
        found = [{"check": c.name, "status": c.status, "text": c.text} for c in checks]
        print_json({"file": arguments.file, "ok": is_fine, "checks": found})
        return 0 if is_fine else 1
    for c in checks:
        first, *more = safe(c.text).split("\n")
        print(f"{styled(f'{c.status:8}', _STYLES[c.status])} {c.name:12} {first}")
        for line in more:
            print(f"  {line}")
    return 0 if is_fine else 1


def _attempt(name: str, check: Callable[[], str]) -> Check:
    """A check that returns what it saw, or raises what is wrong."""
    try:
        return Check(name, OK, check())
    except GpujitError as fault:
        return Check(name, FAILED, str(fault))


def _bytes(file: str) -> str:
    with Archive(file, check=True) as archive:
        names = archive.names()
        with Stage("check bytes", archive.packed_bytes(), unit="bytes") as stage:
            archive.on_read = stage.advance
            for name in names:
                archive.view(name)
        return f"{len(names)} members agree with their checksums"


def _functions(module: ScriptModule) -> Iterator[Function]:
    """The methods of all modules; those of one class once."""
    seen: set[int] = set()
    for _, owner in named_modules(module._object):
        for function in owner.type.methods.values():
            if id(function) not in seen:
                seen.add(id(function))
                yield function


def _graphs(module: ScriptModule) -> str:
    functions = list(_functions(module))
    nodes, faults = 0, []
    with Stage("check graphs", len(functions)) as stage:
        for function in functions:
            stage.note = function.name
            try:
                compile_callees(function.graph)
                verify(function.graph)
                nodes += sum(1 for _ in function.graph.all_nodes())
            except GpujitError as fault:
                faults.append(f"{function.name}: {fault}")
            stage.advance()
    if faults:
        more = [f"and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
        raise GpujitError("\n".join([f"{len(faults)} of {len(functions)} are not sound", *faults[:_SHOWN], *more]))
    return f"{len(functions)} functions, {nodes} nodes"


def _operators(module: ScriptModule) -> Check:
    found = operators(module._program.loaded)
    if not found["missing"]:
        return Check("operators", OK, f"all {found['distinct']} are known")
    rows = [(name, ", ".join(places[:4])) for name, places in found["missing"].items()]
    head = f"{len(rows)} of {found['distinct']} are not known; calling them raises"
    return Check("operators", NOTE, f"{head}\n{table(rows, indent='', width=None)}")


def _saved(module: ScriptModule) -> str:
    """Whether the module, saved and loaded again, has the same methods and tensors, and is saved as the same."""
    with Stage("save and load"):
        data = module.save_to_buffer()
        again = api.load(data, map_location="cpu")
        if again.save_to_buffer() != data:
            raise GpujitError("what was loaded again is saved as other bytes")
    for name, method in module.methods.items():
        other = again.methods.get(name)
        if other is None or str(other.schema) != str(method.schema):
            raise GpujitError(f"method {name} is another one: {'there is none' if other is None else other.schema}")
    before, after = module.state_dict(), again.state_dict()
    if list(before) != list(after):
        raise GpujitError("parameters and buffers have other names")
    for name, value in before.items():
        if not _identical(value, after[name]):
            raise GpujitError(f"{name} has other numbers")
    return f"{len(data)} bytes, methods and {len(before)} tensors are the same"


def _identical(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return all(d.is_fine for d in differences(a, b))


def _calls(arguments: argparse.Namespace, samples: list[list[Any]]) -> Iterator[Check]:
    """The tiers, and the module as it was saved, against the interpreter."""
    # Checks so far may have compiled and called parts of the first one.
    module = load(arguments.file)
    model = Chosen(module, method_of(module, arguments.method), [], 0.0)
    try:
        check_count(samples[0], model.method)
    except ArgumentError as fault:
        if arguments.inputs:
            raise
        for name in ("interpreter", *tiers.TIERS[1:], "loaded again"):
            yield Check(name, SKIPPED, f"no inputs were given: {fault.message}")
        return
    # Each gets its state now, before any is called.
    made = {name: _made(name, model, arguments) for name in (*tiers.TIERS[1:], "loaded again")}
    expected = _results(arguments, tiers.interpreted(model), samples)
    count = len(expected)
    outputs = sum(1 for result in expected for _ in flatten(result))
    yield Check("interpreter", OK, f"{count} calls on {len(samples)} samples")
    for name, call in made.items():
        yield _attempt(name, partial(_agree, arguments, name, call, samples, expected, outputs))


def _made(name: str, model: Chosen, arguments: argparse.Namespace) -> Callable[..., Any]:
    """What runs the model in a tier, or as it is saved and loaded again. What it raises comes when it is called."""
    try:
        if name != "loaded again":
            return tiers.make(name, model, arguments.threads)
        again = api.load(model.module.eval().save_to_buffer(), map_location="cpu")
        return Chosen(again, method_of(again, arguments.method), [], 0.0).call
    except GpujitError as fault:
        return partial(_raise, fault)


def _raise(fault: GpujitError, *values: Any) -> None:
    raise fault


def _results(arguments: argparse.Namespace, call: Callable[..., Any], samples: list[list[Any]]) -> list[Any]:
    found = []
    with Stage("call the interpreter", len(samples) * arguments.calls) as stage:
        for k, values in enumerate(samples):
            for _ in range(arguments.calls):
                found.append(called(call, values, arguments.seed + k))
                stage.advance()
    return found


def _agree(
    arguments: argparse.Namespace,
    name: str,
    call: Callable[..., Any],
    samples: list[list[Any]],
    expected: list[Any],
    outputs: int,
) -> str:
    bounds, furthest = bounds_of(arguments), 0.0
    wanted = iter(expected)
    with Stage(f"call {name}", len(expected)) as stage:
        for k, values in enumerate(samples):
            for number in range(arguments.calls):
                for d in differences(called(call, values, arguments.seed + k), next(wanted), bounds):
                    if not d.is_fine:
                        raise GpujitError(f"sample {k}, call {number}: {d.output}: {d.problem}")
                    furthest = max(furthest, d.of_largest or 0.0)
                stage.advance()
    return f"{outputs} outputs of {len(expected)} calls agree, to {furthest:.1e} of the largest number"
