"""From a module to an archive that PyTorch's ``torch.jit.load`` and ours read: pickles, source, tables, storages.

The same module gives the same bytes, wherever it is written to.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.values import ScriptObject
from gpujit.ops.families.quantized.pack import pack_state
from gpujit.serialization.debug_tables import DebugTableWriter
from gpujit.serialization.naming import TypeNames
from gpujit.serialization.pickler import GetState, Pickler
from gpujit.serialization.python_print import PrintedFile, ProgramPrinter
from gpujit.serialization.target import write_to
from gpujit.serialization.tensor_store import TensorStore
from gpujit.serialization.trainable import Trainable
from gpujit.serialization.zipindex import BAD_NAME
from gpujit.serialization.zipwrite import Member, write_archive
from gpujit.support.errors import SaveError

RunMethod = Callable[[Any, list[Any]], Any]


def save(
    root: ScriptObject,
    target: Any,
    *,
    extra_files: Mapping[str, Any] | None = None,
    run_method: RunMethod,
    trainable: Trainable | None = None,
    debug: bool = True,
) -> None:
    """Write a module as a TorchScript archive.

    Args:
        root: the module; its type, the types of its attributes and the functions its methods call are written as
            source.
        target: a path or a file object. A path is replaced when all is written, and untouched on any error.
        extra_files: contents of ``extra/NAME`` by name, str or bytes.
        run_method: runs a method (for ``__getstate__``), given the Function and its arguments.
        trainable: which tensors require a gradient; without it, parameters of floating numbers do.
        debug: write tables of where the source comes from, as far as that is known.
    Raises SaveError, which names the attribute or the line that cannot be saved.
    """
    members = archive_members(root, extra_files=extra_files, run_method=run_method, trainable=trainable, debug=debug)
    write_to(target, lambda sink: write_archive(sink, members))


def save_to_bytes(
    root: ScriptObject,
    *,
    extra_files: Mapping[str, Any] | None = None,
    run_method: RunMethod,
    trainable: Trainable | None = None,
    debug: bool = True,
) -> bytes:
    """The bytes ``save`` would write."""
    out = io.BytesIO()
    save(root, out, extra_files=extra_files, run_method=run_method, trainable=trainable, debug=debug)
    return out.getvalue()


def archive_members(
    root: ScriptObject,
    *,
    extra_files: Mapping[str, Any] | None,
    run_method: RunMethod,
    trainable: Trainable | None,
    debug: bool,
) -> list[Member]:
    """The archive's members in PyTorch's order. Everything that can fail for the module's sake does so here."""
    if not root.type.is_module:
        raise SaveError(f"an object of {root.type.name} is no module; only modules are saved")
    names = TypeNames()
    printer = ProgramPrinter(names)
    get_state = _state_getter(run_method)
    def pickle_constants() -> tuple[TensorStore, bytes]:
        store, literals = TensorStore("constants"), printer.literals
        # PyTorch has no constants that require a gradient.
        pickler = Pickler(store, names, get_state, pack_state, _never, "the table of constants")
        return store, pickler.dumps(tuple(literals.values), T.TupleType(tuple(literals.types)))

    members = [Member(f"extra/{name}", data) for name, data in _checked_extra(extra_files or {}).items()]

    data = TensorStore("data")
    # The root's name comes first, so that it keeps it.
    names.name(root.type)
    pickler = Pickler(data, names, get_state, pack_state, trainable or Trainable(), "the module")
    pickled = pickler.dumps(root, root.type)
    files = printer.files()
    constants, constants_pickle = pickle_constants()
    while names.has_unwritten:
        # An object among the constants held something of a class that no code names.
        files = printer.files()
        constants, constants_pickle = pickle_constants()

    members += [Member(name, content) for name, content in data.members()]
    members.append(Member("data.pkl", pickled))
    for file in files:
        members += _source_members(file, debug)
    members += [Member(name, content) for name, content in constants.members()]
    members.append(Member("constants.pkl", constants_pickle))
    members.append(Member("version", f"{printer.version}\n".encode()))
    members.append(Member("byteorder", sys.byteorder.encode()))
    return members


def _checked_extra(extra_files: Mapping[str, Any]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, content in extra_files.items():
        if not isinstance(name, str) or not name or name.endswith("/") or BAD_NAME.search(name):
            raise SaveError(f"_extra_files: {name!r} is no name for a file in an archive")
        if isinstance(content, str):
            content = content.encode()
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise SaveError(f"_extra_files: the content of {name!r} is a {type(content).__name__}; give str or bytes")
        found[name] = bytes(content)
    return found


def _never(tensor: Any, is_parameter: bool) -> bool:
    return False


def _state_getter(run_method: RunMethod) -> GetState:
    def get_state(object_: ScriptObject) -> Any:
        return run_method(object_.type.methods["__getstate__"], [object_])

    return get_state


def _source_members(file: PrintedFile, debug: bool) -> list[Member]:
    name = f"code/{file.path.replace('.', '/')}.py"
    found = [Member(name, file.code.text.encode(), pack=True)]
    if debug:
        table = DebugTableWriter()
        for offset, place in file.code.rows:
            table.add(offset, place)
        content = table.dumps()
        if content:
            found.append(Member(f"{name}.debug_pkl", content, pack=True))
    return found
