"""The ways gpujit runs a model, as functions that compute the same: interpreted, with fused kernels, planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpujit.cli.inputs import Chosen
from gpujit.support.config import Overrides, Settings
from gpujit.support.errors import ArgumentError

if TYPE_CHECKING:
    from gpujit.modules import ScriptModule

Call = Callable[..., Any]
# What runs nodes one by one, what has kernels for groups of nodes, and what is one native call on planned memory.
TIERS = ("interpreter", "fused", "planned")


def optimised(model: Chosen, threads: int | None = None) -> ScriptModule:
    """The module frozen, as if in eval mode, and optimised, with the chosen method among those that are kept."""
    # Inspecting and interpreting need no passes, which take longer to import than all the rest.
    from gpujit.inference import optimize_for_inference

    others = () if model.method.name == "forward" else (model.method.name,)
    return optimize_for_inference(model.module, others, threads=threads)


def planned(model: Chosen, threads: int | None = None) -> Call:
    """The method of a copy that plans its calls."""
    return _method(optimised(model, threads), model)


def fused(model: Chosen, threads: int | None = None) -> Call:
    """The method of a copy that specialises and fuses, and leaves the rest to the interpreter."""
    call = _method(optimised(model, threads), model)
    unplanned = Overrides(_without_plans)

    def run(*values: Any) -> Any:
        token = unplanned.begin()
        try:
            return call(*values)
        finally:
            unplanned.end(token)

    return run


def interpreted(model: Chosen, threads: int | None = None) -> Call:
    """The method as it was loaded, in eval mode."""
    model.module.eval()
    return model.call


def make(name: str, model: Chosen, threads: int | None = None) -> Call:
    """What runs a model in one of ``TIERS``. A model that keeps state has a state of its own in each."""
    return {"interpreter": interpreted, "fused": fused, "planned": planned}[name](model, threads)


def _method(module: ScriptModule, model: Chosen) -> Call:
    return module if model.method.name == "forward" else module.methods[model.method.name]


def _without_plans(settings: Settings) -> Settings:
    return replace(settings, disable=(*settings.disable, "static"))


def named(text: str | None, default: str) -> list[str]:
    """The names in a list separated by commas. Raises ArgumentError for one that is none."""
    found = [name.strip() for name in (default if text is None else text).split(",") if name.strip()]
    for name in found:
        if name not in TIERS:
            raise ArgumentError(f"{name!r} is no tier; there are {', '.join(TIERS)}")
    if not found:
        raise ArgumentError(f"no tier is named; there are {', '.join(TIERS)}")
    return list(dict.fromkeys(found))
