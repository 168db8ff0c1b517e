"""TorchScript without PyTorch. Public names are loaded when first used, so that the import costs next to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives.
_PUBLIC = {
    "load": "gpujit.api",
    "load_package": "gpujit.api",
    "freeze": "gpujit.inference",
    "optimize_for_inference": "gpujit.inference",
    "run_frozen_optimizations": "gpujit.inference",
    "ScriptModule": "gpujit.api",
    "ScriptMethod": "gpujit.api",
    "StaticModule": "gpujit.static",
    "StaticModuleOptions": "gpujit.static",
    "StaticRuntime": "gpujit.static",
    "fuse": "gpujit.fuser.decorator",
    "manual_seed": "gpujit.ops.families.random.random",
    "op": "gpujit.ops.user",
    "remove_op": "gpujit.ops.user",
    "GpujitError": "gpujit.support.errors",
    "LoadError": "gpujit.support.errors",
    "ArgumentError": "gpujit.support.errors",
    "OpError": "gpujit.support.errors",
    "ScriptRuntimeError": "gpujit.support.errors",
    "Error": "gpujit.support.errors",
}

__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:
    from gpujit.api import ScriptMethod, ScriptModule, load, load_package
    from gpujit.fuser.decorator import fuse
    from gpujit.inference import freeze, optimize_for_inference, run_frozen_optimizations
    from gpujit.ops.families.random.random import manual_seed
    from gpujit.ops.user import op, remove_op
    from gpujit.static import StaticModule, StaticModuleOptions, StaticRuntime
    from gpujit.support.errors import ArgumentError, Error, GpujitError, LoadError, OpError, ScriptRuntimeError


def __getattr__(name: str) -> Any:
    home = _PUBLIC.get(name)
    if home is None:
        raise AttributeError(f"module 'gpujit' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
