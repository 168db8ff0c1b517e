"""The ways gpujit runs a model, as functions that compute the same: interpreted, with fused kernels, planned.

A module on a GPU has plans in any case. There the tiers are what plans gain: operators one by one, as they were loaded;
frozen and fused, put on the stream call by call; and as graphs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpujit.cli.inputs import Chosen, positive
from gpujit.support.config import Overrides, Settings
from gpujit.support.errors import ArgumentError

if TYPE_CHECKING:
    from gpujit.modules import ScriptModule

Call = Callable[..., Any]
# What runs nodes one by one, what has kernels for groups of nodes, and what is one native call on planned memory.
TIERS = ("interpreter", "fused", "planned")


def add_plan_arguments(command: argparse.ArgumentParser) -> None:
    """``--threads`` and ``--weights``, for commands that make plans."""
    from gpujit.inference import WEIGHTS

    command.add_argument(
        "--threads", type=positive, metavar="N", help="threads of plans (default: what affinity and quota allow)"
    )
    command.add_argument(
        "--weights", choices=WEIGHTS, default=WEIGHTS[0], help="what plans keep constant matrices as (default: float32)"
    )


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What ``add_plan_arguments`` asked for, as arguments of the functions below."""
    return {"threads": arguments.threads, "weights": arguments.weights}


def optimised(model: Chosen, threads: int | None = None, weights: str = "float32") -> ScriptModule:
    """The module frozen, as if in eval mode, and optimised, with the chosen method among those that are kept."""
    # Inspecting and interpreting need no passes, which take longer to import than all the rest.
    from gpujit.inference import optimize_for_inference

    others = () if model.method.name == "forward" else (model.method.name,)
    return optimize_for_inference(model.module, others, threads=threads, weights=weights)


def planned(model: Chosen, threads: int | None = None, weights: str = "float32") -> Call:
    """The method of a copy that plans its calls."""
    return _method(optimised(model, threads, weights), model)


def fused(model: Chosen, threads: int | None = None, weights: str = "float32") -> Call:
    """The method of a copy that specialises and fuses, and leaves the rest to the interpreter."""
    off = ("static",) if model.device == "cpu" else ("graphs",)
    return _without(off, _method(optimised(model, threads, weights), model))


def interpreted(model: Chosen, threads: int | None = None, weights: str = "float32") -> Call:
    """The method as it was loaded, in eval mode."""
    model.module.eval()
    return model.call if model.device == "cpu" else _without(("fusion", "graphs"), model.call)


def make(name: str, model: Chosen, threads: int | None = None, weights: str = "float32") -> Call:
    """What runs a model in one of ``TIERS``. A model that keeps state has a state of its own in each."""
    return {"interpreter": interpreted, "fused": fused, "planned": planned}[name](model, threads, weights)


def _method(module: ScriptModule, model: Chosen) -> Call:
    return module if model.method.name == "forward" else module.methods[model.method.name]


def _without(parts: tuple[str, ...], call: Call) -> Call:
    """A function that is called with parts turned off, by their names in the switch ``disable``."""

    def turned_off(settings: Settings) -> Settings:
        return replace(settings, disable=(*settings.disable, *parts))

    overrides = Overrides(turned_off)

    def run(*values: Any) -> Any:
        token = overrides.begin()
        try:
            return call(*values)
        finally:
            overrides.end(token)

    return run


def named(text: str | None, default: str) -> list[str]:
    """The names in a list separated by commas. Raises ArgumentError for one that is none."""
    found = [name.strip() for name in (default if text is None else text).split(",") if name.strip()]
    for name in found:
        if name not in TIERS:
            raise ArgumentError(f"{name!r} is no tier; there are {', '.join(TIERS)}")
    if not found:
        raise ArgumentError(f"no tier is named; there are {', '.join(TIERS)}")
    return list(dict.fromkeys(found))
