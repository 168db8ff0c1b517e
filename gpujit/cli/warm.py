"""``gpujit warm FILE``: compile the kernels that a model needs into the cache, for GPUs that are not here as well."""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpujit.cli.inputs import INPUTS, Chosen, add_model_arguments, chosen
from gpujit.cli.output import print_json, safe, table, time_text
from gpujit.support.errors import ArgumentError
from gpujit.support.progress import Stage

if TYPE_CHECKING:
    from gpujit.kernels.cuda_cache import Capability
    from gpujit.kernels.cuda_tile import Limits
    from gpujit.runtime.executor import Executor
    from gpujit.static_runtime.device_warm import Found

DESCRIPTION = """Plan a model for inputs of given kinds, and compile the kernels of the plan into the cache, so that no
later process has to. Kernels for GPUs are compiled without one; that needs the extra 'cuda'. Without --arch the kernels
are those of this machine's CPU."""
EXAMPLES = f"""{INPUTS}
examples:
  gpujit warm model.pt 1x3x224x224 --arch sm_80,sm_90
  gpujit warm bert.pt 1x128:int64:1000 --arch cpu,sm_89
  GPUJIT_CACHE_DIR=image/kernels gpujit warm vad.jit 1x512 int=16000 --arch sm_90 --json"""

CPU = "cpu"
_ARCHITECTURE = re.compile(r"sm_(\d{1,2})(\d)")
_FAILED = 4


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_model_arguments(command)
    command.add_argument(
        "--arch", metavar="NAMES", default=CPU,
        help="what to compile for: cpu, and NVIDIA's architectures such as sm_80,sm_90 (default: cpu)",
    )  # fmt: skip


def execute(arguments: argparse.Namespace) -> int:
    """Compile everything; 4 when some kernel or plan cannot be made. Raises ArgumentError, LoadError, DeviceError."""
    targets = architectures(arguments.arch)
    gpus = {name: capability for name, capability in targets.items() if capability is not None}
    if gpus:
        check_tools(gpus)
    started = time.perf_counter()
    model = chosen(arguments)
    found: dict[str, Any] = {"file": arguments.file, "method": arguments.method, "architectures": [], "failures": []}
    if CPU in targets:
        warm_cpu(model, found)
    if gpus:
        warm_gpus(needed(model, gpus), gpus, found)
    found["seconds"] = round(time.perf_counter() - started, 3)
    found["cache"] = _place()
    if arguments.json:
        print_json(found)
    else:
        print(as_text(found))
    return _FAILED if found["failures"] or found.get("unplanned") else 0


def architectures(text: str) -> dict[str, Capability | None]:
    """Compute capabilities by name; None for the CPU. Raises ArgumentError for what is no architecture."""
    found: dict[str, Capability | None] = {}
    for name in filter(None, (part.strip() for part in text.split(","))):
        m = _ARCHITECTURE.fullmatch(name)
        if m is None and name != CPU:
            raise ArgumentError(f"{name!r} is no architecture: write cpu, sm_80, or several as in sm_80,sm_90")
        found[name] = None if m is None else (int(m[1]), int(m[2]))
    if not found:
        raise ArgumentError("--arch names no architecture: write cpu, sm_80, or several as in sm_80,sm_90")
    return found


def check_tools(gpus: dict[str, Capability]) -> None:
    """Raises DeviceError where kernels cannot be compiled, ArgumentError for a GPU that there is no compiler for."""
    from gpujit.kernels import cuda_cache

    supported = cuda_cache.supported()
    for name, capability in gpus.items():
        if capability not in supported:
            known = ", ".join(map(cuda_cache.architecture, supported))
            raise ArgumentError(f"the toolkit that is installed compiles nothing for {name}, but for {known}")


# -------------------------------------------------------------------------------------------------------------- kernels


def needed(model: Chosen, gpus: Mapping[str, Capability]) -> dict[str, Found]:
    """What calls of the model need on each of these GPUs. Raises what such calls raise."""
    # What the help needs is little.
    from gpujit.kernels.cuda_tile import limits_of

    found: dict[Limits, Found] = {}
    with Stage("make plans", len(gpus)) as stage:
        for capability in gpus.values():
            limits = limits_of(capability)
            if limits not in found:
                found[limits] = _needed(model, limits)
            stage.advance()
    return {name: found[limits_of(capability)] for name, capability in gpus.items()}


def _needed(model: Chosen, limits: Limits) -> Found:
    from gpujit.cli.tiers import optimised
    from gpujit.ir.module import Function
    from gpujit.static_runtime.device_warm import Found, Target, WarmExecutor

    module = optimised(model)
    program, found, target = module._program, Found(), Target(limits=limits)

    def make(function: Function) -> WarmExecutor:
        return WarmExecutor(function, program.lowerer.rules, found, target)

    program.optimise(make)
    method = module.methods[model.method.name]
    method.warmup([tuple(model.values)])
    found.unplanned += program.executor(method._function).reasons()
    return found


def warm_gpus(needs: Mapping[str, Found], gpus: Mapping[str, Capability], report: dict[str, Any]) -> None:
    """Compile kernels for all of these GPUs, and add to the report what became of them."""
    from gpujit.kernels import cuda_cache
    from gpujit.support.errors import InternalError

    wanted = [(launched, name) for name in gpus for launched in needs[name].kernels.values()]
    ways = [""] * len(wanted)
    made = cuda_cache.prepare(
        [(launched.kernel, gpus[name]) for launched, name in wanted], lambda k, how: ways.__setitem__(k, how)
    )
    for name in gpus:
        mine = [(how, code) for (_, n), how, code in zip(wanted, ways, made, strict=True) if n == name]
        compiled = [c for how, c in mine if how == cuda_cache.COMPILED and not isinstance(c, InternalError)]
        report["architectures"].append(
            {
                "architecture": name, "kernels": len(mine), "compiled": len(compiled),
                "cached": sum(how in (cuda_cache.LOADED, cuda_cache.SHARED) for how, _ in mine),
                "failed": sum(isinstance(c, InternalError) for _, c in mine),
                "seconds": round(sum(c.seconds for c in compiled), 3),
            }
        )  # fmt: skip
    report["failures"] += [
        {"architecture": name, "group": launched.operators, "place": launched.place, "reason": code.message}
        for (launched, name), code in zip(wanted, made, strict=True)
        if isinstance(code, InternalError)
    ]
    # These do not depend on the kind of GPU.
    first = next(iter(needs.values()))
    report["plans"], report["launches"] = first.plans, first.launches
    report["library_calls"], report["unplanned"] = first.calls - first.launches, first.unplanned
    report["host"] = [{"group": h.operators, "place": h.place, "reason": h.reason} for h in first.host]


def warm_cpu(model: Chosen, report: dict[str, Any]) -> None:
    """Compile what a plan on this machine's CPU needs, and add to the report what became of it."""
    from gpujit.cli.tiers import optimised
    from gpujit.kernels import supply

    before = replace(supply.counters)
    started = time.perf_counter()
    module = optimised(model)
    method = module.methods[model.method.name]
    method.warmup([tuple(model.values)])
    executor: Executor = module._program.executor(method._function)
    failed = unfused(executor)
    compiled = supply.counters.compiled - before.compiled
    cached = supply.counters.loaded - before.loaded
    report["architectures"].append(
        {
            "architecture": CPU, "kernels": compiled + cached + len(failed), "compiled": compiled, "cached": cached,
            "failed": len(failed), "seconds": round(time.perf_counter() - started, 3),
        }
    )  # fmt: skip
    report["failures"] += [{"architecture": CPU, **each} for each in failed]


def unfused(executor: Executor) -> list[dict[str, str]]:
    """The fusion groups of all plans that have no kernel, with their lines of source."""
    from gpujit.fuser.fuse import FUSION_GROUP
    from gpujit.static_runtime.device_warm import place_of
    from gpujit.static_runtime.module import PlannedGraph

    found = []
    for plan in executor.plans():
        tiers = plan.runner.tiers() if isinstance(plan.runner, PlannedGraph) else ()
        for tier in tiers:
            if tier.node.kind == FUSION_GROUP and not tier.name.startswith("native"):
                found.append({"group": tier.label, "place": place_of(tier.node), "reason": tier.reason})
    return found


# --------------------------------------------------------------------------------------------------------------- report


def _place() -> str | None:
    """The folder that kernels are kept in; None when they are not."""
    from gpujit.kernels import cache

    store = cache.store()
    return None if store is None else str(store.folder)


def as_text(report: dict[str, Any]) -> str:
    """The report for people."""
    rows = [
        (a["architecture"], a["kernels"], a["cached"], a["compiled"], a["failed"], time_text(a["seconds"]))
        for a in report["architectures"]
    ]
    header = ("architecture", "kernels", "cached", "compiled", "failed", "time")
    lines = [table(rows, header, indent="", right=(1, 2, 3, 4, 5))]
    for each in report["failures"]:
        place = f" at {each['place']}" if each["place"] else ""
        lines.append(f"{each['architecture']}: no kernel for {safe(each['group'] + place)}: {safe(each['reason'])}")
    host = report.get("host", [])
    if host:
        counts = Counter(each["reason"] for each in host)
        lines.append(f"{len(host)} operators have no step on a GPU and run on the host (--json lists them):")
        lines.append(table(((n, reason) for reason, n in counts.most_common()), right=(0,)))
    lines += [f"no plan on a GPU: {safe(reason)}" for reason in report.get("unplanned", ())]
    if "plans" in report:
        plans = f"{report['plans']} plan{'s' * (report['plans'] != 1)}"
        lines.append(f"{plans} on a GPU, {report['launches']} launches, {report['library_calls']} calls of libraries")
    place = report["cache"]
    kept = f"kept in {safe(place)}" if place else "not kept: GPUJIT_CACHE is 0, or there is no folder for it"
    lines.append(f"{kept}; {time_text(report['seconds'])} in all")
    return "\n".join(lines)
