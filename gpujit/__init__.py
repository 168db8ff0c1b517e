"""TorchScript without PyTorch. Public names are loaded when first used, so that the import costs next to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives.
_PUBLIC = {
    "export_opnames": "gpujit.api",
    "load": "gpujit.api",
    "load_package": "gpujit.api",
    "save": "gpujit.api",
    "freeze": "gpujit.inference",
    "optimize_for_inference": "gpujit.inference",
    "run_frozen_optimizations": "gpujit.inference",
    "ScriptModule": "gpujit.modules",
    "ScriptMethod": "gpujit.modules",
    "StaticModule": "gpujit.static",
    "StaticModuleOptions": "gpujit.static",
    "StaticRuntime": "gpujit.static",
    "trace": "gpujit.tracing",
    "trace_module": "gpujit.tracing",
    "script": "gpujit.scripting",
    "script_if_tracing": "gpujit.scripting",
    "CompilationUnit": "gpujit.scripting",
    "ScriptFunction": "gpujit.scripting",
    "Attribute": "gpujit.frontend.markers",
    "Final": "gpujit.frontend.markers",
    "Future": "gpujit.frontend.markers",
    "Tensor": "gpujit.frontend.markers",
    "annotate": "gpujit.frontend.markers",
    "export": "gpujit.frontend.markers",
    "fork": "gpujit.frontend.markers",
    "ignore": "gpujit.frontend.markers",
    "interface": "gpujit.frontend.markers",
    "is_scripting": "gpujit.frontend.markers",
    "is_tracing": "gpujit.frontend.markers",
    "isinstance": "gpujit.frontend.markers",
    "unused": "gpujit.frontend.markers",
    "wait": "gpujit.frontend.markers",
    "fuse": "gpujit.fuser.decorator",
    "manual_seed": "gpujit.ops.families.random.random",
    "op": "gpujit.ops.user",
    "profile": "gpujit.profiler.collect",
    "profile_module": "gpujit.profiler.core",
    "remove_op": "gpujit.ops.user",
    "GpujitError": "gpujit.support.errors",
    "LoadError": "gpujit.support.errors",
    "ArgumentError": "gpujit.support.errors",
    "OpError": "gpujit.support.errors",
    "SaveError": "gpujit.support.errors",
    "ScriptRuntimeError": "gpujit.support.errors",
    "Error": "gpujit.support.errors",
    "TraceError": "gpujit.support.errors",
    "TraceCheckError": "gpujit.support.errors",
    "TracerWarning": "gpujit.support.errors",
}

# Names of torch.jit that programs use although they are not public there, or that have another name here.
_HABITS = {
    "_unwrap_optional": ("gpujit.frontend.markers", "_unwrap_optional"),
    "_overload": ("gpujit.frontend.markers", "_overload"),
    "_overload_method": ("gpujit.frontend.markers", "_overload_method"),
    "RecursiveScriptModule": ("gpujit.modules", "ScriptModule"),
    "TopLevelTracedModule": ("gpujit.tracing", "TracedModule"),
    "TracedModule": ("gpujit.tracing", "TracedModule"),
    "TracingCheckError": ("gpujit.support.errors", "TraceCheckError"),
}

# Packages that are reached as attributes.
_PACKAGES = ("nn", "ops", "plot")

__all__ = ["__version__", *_PACKAGES, *_PUBLIC]

if TYPE_CHECKING:
    from gpujit import nn, ops, plot
    from gpujit.api import export_opnames, load, load_package, save
    from gpujit.frontend.markers import (
        Attribute,
        Final,
        Future,
        Tensor,
        annotate,
        export,
        fork,
        ignore,
        interface,
        is_scripting,
        is_tracing,
        isinstance,
        unused,
        wait,
    )
    from gpujit.fuser.decorator import fuse
    from gpujit.inference import freeze, optimize_for_inference, run_frozen_optimizations
    from gpujit.modules import ScriptMethod, ScriptModule
    from gpujit.ops.families.random.random import manual_seed
    from gpujit.ops.user import op, remove_op
    from gpujit.profiler.collect import profile
    from gpujit.profiler.core import profile_module
    from gpujit.scripting import CompilationUnit, ScriptFunction, script, script_if_tracing
    from gpujit.static import StaticModule, StaticModuleOptions, StaticRuntime
    from gpujit.support.errors import (
        ArgumentError,
        Error,
        GpujitError,
        LoadError,
        OpError,
        SaveError,
        ScriptRuntimeError,
        TraceCheckError,
        TraceError,
        TracerWarning,
    )
    from gpujit.tracing import trace, trace_module


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _PACKAGES:
        return import_module(f"gpujit.{name}")
    home, original = _HABITS.get(name, (_PUBLIC.get(name), name))
    if home is None:
        from gpujit.support.absent import ABSENT

        reason = f" of torch.jit: {ABSENT[name]}" if name in ABSENT else ""
        raise AttributeError(f"module 'gpujit' has no attribute {name!r}{reason}")
    value = getattr(import_module(home), original)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES, *_PUBLIC})
