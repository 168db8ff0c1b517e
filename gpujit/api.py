"""Archives in and out with torch.jit's names: ``load``, ``load_package``, ``save``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpujit.modules import ScriptModule, module_object
from gpujit.ops.families.quantized import main as quantized
from gpujit.passes.analysis.effects import inner_nodes
from gpujit.passes.inline import inlined
from gpujit.program import Program
from gpujit.serialization import reader


def load(
    f: Any,
    map_location: Any = None,
    _extra_files: dict[str, Any] | None = None,
    _restore_shapes: bool = False,
    *,
    device: Any = None,
) -> ScriptModule:
    """A module from a TorchScript archive (as torch.jit.load), or the only one of a torch.package archive.

    Args:
        f: a path, bytes, or a readable file object.
        map_location: where storages go and what device literals in the code become: a device such as ``"cpu"``, a dict
            from device to device, or a function of (storage, location).
        _extra_files: names of extra files; their values are filled in (bytes where the given value is bytes, else str).
        _restore_shapes: accepted for compatibility; types in graphs carry no shapes.
        device: where the module runs, as ``ScriptModule.to`` takes it: ``"cpu"``, ``"cuda:0"``, ``"auto"``. Storages go
            to the host then, unless map_location says otherwise.
    Returns: the root module. Weights of a file given by path are mapped, not copied; writing to them stays in memory.
    Raises LoadError or one of its subclasses, and DeviceError for a device that is not there; nothing of the file is
    run and nothing is written.
    """
    if device is not None and map_location is None:
        map_location = "cpu"
    modules = _read(f, map_location, _extra_files, package=False)
    module = next(iter(modules.values()))
    return module if device is None else module.to(device=device)


def load_package(f: Any, map_location: Any = None) -> dict[int | str, ScriptModule]:
    """All TorchScript modules of an archive written by torch.package.PackageExporter.

    Args:
        f: a path, bytes, or a readable file object.
        map_location: as for ``load``.
    Returns: the modules by where the package keeps them: the pickle's name (``models/net``), then the attributes that
        lead to the module in the pickled object (``models/accentor.homosolver.model``). A module that no readable
        pickle names goes by its number. The package's Python code and objects are not made, run or imported.
    Raises LoadError or one of its subclasses.
    """
    return _read(f, map_location, None, package=True)


def _read(
    f: Any, map_location: Any, extra_files: dict[str, Any] | None, *, package: bool
) -> dict[int | str, ScriptModule]:
    program = Program(np)
    loaded = reader.read(
        f,
        map_location=map_location,
        extra_files=extra_files,
        run_method=program.run,
        unpack_custom=quantized.unpack_state,
        package=package,
    )
    program.loaded = loaded
    if loaded.uses_quantised:
        program.lowerer.rules = quantized.QTENSOR_RULES
    return {key: ScriptModule(root, program) for key, root in loaded.modules.items()}


def save(m: ScriptModule, f: Any, _extra_files: Mapping[str, Any] | None = None) -> None:
    """Write a module as a TorchScript archive, for ``gpujit.load`` and ``torch.jit.load`` (as torch.jit.save).

    Args:
        m: a module, also a frozen one. What it holds now is written, as it is in memory.
        f: a path or a file object to write bytes to. A file at that path is replaced when the new one is whole, and
            stays as it was on any error.
        _extra_files: contents of extra files by name, str or bytes.
    The same module gives the same bytes.
    Raises SaveError for what cannot be saved (naming it) and for a target that cannot be written.
    """
    module_object(m, "save")
    m.save(f, _extra_files)


# Operators that PyTorch's lite interpreter has in any case, and which its lists leave out.
_IN_ANY_CASE = frozenset(
    ("aten::__is__", "aten::__isnot__", "aten::__not__", "aten::dim", "aten::format", "prim::NumToTensor.Scalar",
     "prim::device", "prim::dtype", "prim::is_cuda")
)  # fmt: skip


def export_opnames(m: ScriptModule) -> list[str]:
    """The operators, with their overloads, that the module's methods and what they call need, sorted.

    As in PyTorch without those that its lite interpreter has in any case; its own list is taken after some
    folding, and may be shorter.
    """
    object_ = module_object(m, "export_opnames")
    found: set[str] = set()
    for function in object_.type.methods.values():
        nodes = [n for outer in inlined(function.graph).nodes for n in (outer, *inner_nodes(outer))]
        found |= {n.schema.full_name for n in nodes if n.schema is not None}
    return sorted(found - _IN_ANY_CASE)
