"""``gpujit explain FILE``: what was fused for given inputs, what that saves, what was not, what runs each node."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from gpujit.cli.agree import called
from gpujit.cli.inputs import INPUTS, add_model_arguments, chosen
from gpujit.cli.output import print_json, safe, styled, table
from gpujit.cli.tiers import add_plan_arguments, optimised, options_of
from gpujit.support.errors import ArgumentError
from gpujit.support.units import bytes_text

if TYPE_CHECKING:
    from gpujit.runtime.executor import Plan

DESCRIPTION = """Make a plan for given inputs and show it: the groups of operators that became one kernel, with their
source lines and the memory traffic that saves; operators that were not fused, and why; what runs each node, and why
nothing better; and the memory of the plan. docs/running.md has the names of the tiers."""
EXAMPLES = f"""{INPUTS}
examples:
  gpujit explain model.pt 1x3x224x224
  gpujit explain model.pt 1x3x224x224 --all
  gpujit explain bert.pt 1x128:int64:1000 --json | jq '.plans[0].groups[].saved_bytes'"""

_SHOWN = 30


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_model_arguments(command)
    command.add_argument(
        "--all", action="store_true", help=f"show everything instead of the first {_SHOWN} of each kind"
    )
    add_plan_arguments(command)


def execute(arguments: argparse.Namespace) -> int:
    model = chosen(arguments)
    module = optimised(model, **options_of(arguments))
    is_forward = model.method.name == "forward"
    called(module if is_forward else module.methods[model.method.name], model.values, arguments.seed)
    method = module.methods.get(model.method.name)
    if method is None:
        raise ArgumentError(f"the optimised model has no method {model.method.name!r}")
    executor = module._program.executor(method._function)
    plans = [_plan(p, executor) for p in executor.plans()]
    found = {
        "file": arguments.file, "method": model.method.name, "plans": plans,
        "interpreted": [f"{reason}" for reason in executor.reasons()],
    }  # fmt: skip
    if arguments.json:
        print_json(found)
    else:
        print(as_text(found, None if arguments.all else _SHOWN))
    return 0


def _plan(plan: Plan, executor: Any) -> dict[str, Any]:
    """A plan for JSON."""
    # What it takes is loaded by now.
    from gpujit.fuser.fuse import FUSION_GROUP
    from gpujit.fuser.report import report_of
    from gpujit.static_runtime.module import PlannedGraph

    groups = [report_of(n) for n in plan.graph.all_nodes() if n.kind == FUSION_GROUP]
    runner = plan.runner
    nodes = []
    memory = None
    if isinstance(runner, PlannedGraph):
        for t in runner.tiers({r.node: r.reason for r in plan.fused.refusals}):
            place = "" if t.node.source is None else str(t.node.source)
            nodes.append({"tier": t.name, "operators": t.label, "place": place, "reason": t.reason})
        report = runner.report()
        memory = {
            "arena": report.arena, "bound": report.bound, "separate": report.separate, "scratch": report.scratch,
            "weights": report.weights, "packed": report.packed, "outputs": report.outputs,
        }  # fmt: skip
    return {
        "inputs": [str(i) for i in plan.specialised.key.inputs[executor._first :]],
        "groups": [
            {"operators": list(g.operators), "places": list(g.places), "saved_bytes": g.saved_bytes} for g in groups
        ],
        "refusals": [
            {"operator": r.node.kind, "place": "" if r.node.source is None else str(r.node.source), "reason": r.reason}
            for r in plan.fused.refusals
        ],
        "tiers": dict(Counter(n["tier"] for n in nodes)),
        "nodes": nodes,
        "memory": memory,
    }


def as_text(found: dict[str, Any], limit: int | None) -> str:
    """The plans for people."""
    parts = []
    for plan in found["plans"]:
        parts.append(styled(f"{found['method']} for {', '.join(plan['inputs'])}", "bold"))
        parts.append(f"tiers   {', '.join(f'{count} {name}' for name, count in plan['tiers'].items()) or 'none'}")
        if plan["memory"] is not None:
            m = plan["memory"]
            parts.append(
                f"memory  arena {bytes_text(m['arena'])} ({bytes_text(m['separate'])} if nothing were shared), "
                f"weights {bytes_text(m['weights'])} and {bytes_text(m['packed'])} packed"
            )
        saved = sum(g["saved_bytes"] for g in plan["groups"])
        parts += ["", f"{len(plan['groups'])} groups, {bytes_text(saved)} of memory traffic saved in a call"]
        rows: list[tuple[Any, ...]] = [
            (k, ", ".join(g["operators"]), _lines(g["places"]), bytes_text(g["saved_bytes"]))
            for k, g in enumerate(plan["groups"])
        ]
        parts += _cut(rows, ("group", "operators", "lines", "saved"), limit, right=(0, 3))
        counted = Counter((r["operator"], r["place"], r["reason"]) for r in plan["refusals"])
        if counted:
            parts += ["", "not fused"]
            rows = [(name, place, reason) for name, place, reason in counted]
            parts += _cut(rows, ("operator", "line", "reason"), limit)
        parts += ["", "nodes"]
        rows = [(n["tier"], n["operators"], n["place"], n["reason"]) for n in plan["nodes"]]
        parts += [*_cut(rows, ("tier", "operators", "line", "reason"), limit), ""]
    parts += [f"runs on the interpreter: {safe(reason)}" for reason in found["interpreted"]]
    return "\n".join(parts).rstrip("\n")


def _lines(places: list[str]) -> str:
    """Source lines, each once."""
    return ", ".join(dict.fromkeys(p for p in places if p))


def _cut(
    rows: list[tuple[Any, ...]], header: tuple[str, ...], limit: int | None, right: tuple[int, ...] = ()
) -> list[str]:
    if not rows:
        return []
    shown = rows if limit is None else rows[:limit]
    more = [f"  ... and {len(rows) - len(shown)} more (--all shows them)"] if len(rows) > len(shown) else []
    return [table(shown, header, right=right), *more]
