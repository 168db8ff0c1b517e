"""torch.package archives: where they keep TorchScript modules, and what the pickles beside them call those.

Such an archive holds Python source, pickled objects of its classes, and for each scripted module among them a folder
``.data/ts_code/N``. The Python parts are neither run nor imported: a pickle is read only as an outline of what lies in
what, which is enough to say that module 0 is attribute ``model`` of the object pickled as ``models/accentor``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpujit.serialization.archive import Archive
from gpujit.serialization.unpickle import MAX_PICKLE_BYTES, Opaque, Unpickler
from gpujit.support.errors import GpujitError

# What pickles of a package call to get a scripted module, given its number as text.
_UNPACK = "torch.jit._script.unpackage_script_module"
_MAX_NAME = 1000


@dataclass(frozen=True, slots=True)
class Layout:
    """Where an archive keeps its program.

    ``code`` is the folder of the source. ``modules`` gives for each module the folder of its pickles. ``data`` and
    ``constants`` are the folders of the storages those pickles refer to. Folders end in a slash or are empty.
    """

    code: str
    modules: dict[int, str]
    data: str
    constants: str
    is_package: bool


def layout_of(archive: Archive) -> Layout:
    """The layout of a TorchScript archive (one module) or of a torch.package archive (any number)."""
    numbers = archive.ts_code_roots()
    if archive.has("data.pkl") or not numbers:
        return Layout("code/", {0: ""}, "data", "constants", is_package=False)
    folders = {n: f".data/ts_code/{n}/" for n in numbers}
    return Layout(".data/ts_code/code/", folders, ".data", ".data", is_package=True)


def module_keys(archive: Archive) -> dict[int, int | str]:
    """For each module of a package the name it goes by: the pickle and the attributes that lead to it.

    A module pickled by itself has the pickle's name (``models/net``), one inside an object its place there
    (``models/accentor.model``). One that no readable pickle refers to keeps its number.
    """
    names: dict[int, str] = {}
    for member in archive.names():
        if _may_be_pickle(archive, member):
            for number, path in _outline(archive, member):
                name = f"{member}.{path}" if path else member
                if len(name) <= _MAX_NAME:
                    names.setdefault(number, name)
    keys: dict[int, int | str] = {}
    for number in archive.ts_code_roots():
        name = names.get(number, "")
        keys[number] = name if name and name not in keys.values() else number
    return keys


def _may_be_pickle(archive: Archive, member: str) -> bool:
    if member.startswith(".data/") or member.endswith(".py") or not 2 < archive.size(member) <= MAX_PICKLE_BYTES:
        return False
    try:
        head = bytes(archive.view(member)[:2])
    except GpujitError:
        return False
    return head[0] == 0x80 and 2 <= head[1] <= 5


def _outline(archive: Archive, member: str) -> Iterator[tuple[int, str]]:
    """Numbers of the modules a pickle refers to, with the shortest way to each; none when it cannot be read."""
    try:
        data = archive.read(member)
        root = _Outliner(data, globals={}, persistent=_persistent, where=archive.where(member), opaque=True).load()
    except GpujitError:
        # The names are a convenience: the modules load without them.
        return iter(())
    return iter(_paths(root).items())


@dataclass(eq=False, slots=True)
class _Thing:
    """An object that a foreign pickle would make: the values it would be made from."""

    parts: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Module:
    number: int


def _persistent(pid: object) -> object:
    if type(pid) is tuple and len(pid) == 4 and pid[0] == "reduce_package" and pid[2] == Opaque(_UNPACK):
        arguments = pid[3]
        if type(arguments) is tuple and len(arguments) == 1 and type(arguments[0]) is str:
            text = arguments[0]
            if text.isascii() and text.isdigit() and len(text) <= 6:
                return _Module(int(text))
    return _Thing()


class _Outliner(Unpickler):
    """Reads a pickle of unknown classes. Every call and every object becomes a _Thing that holds what it was given."""

    def _reduce(self, function: object, arg: Any, at: int) -> Any:
        return _Thing([arg])

    def _new(self, cls: object, arg: Any, at: int) -> Any:
        return _Thing([arg])

    def _build(self, obj: Any, state: Any, at: int) -> None:
        if type(obj) is _Thing:
            obj.parts.append(state)

    def _extend(self, target: Any, items: Any, at: int) -> None:
        if type(target) is list:
            target.extend(items)
        elif type(target) is _Thing:
            target.parts.append(list(items))

    def _set_items(self, target: Any, items: Sequence[Any], at: int) -> None:
        # Other keys than texts and integers name no place; hashing them might not be safe.
        pairs = {k: v for k, v in zip(items[::2], items[1::2], strict=False) if type(k) in (str, int)}
        if type(target) is dict:
            target.update(pairs)
        elif type(target) is _Thing:
            target.parts.append(pairs)

    def _check_result(self, root: Any, at: int) -> None:
        """Cycles and objects without state are normal in Python's own pickles."""


def _paths(root: object) -> dict[int, str]:
    found: dict[int, str] = {}
    seen: set[int] = set()
    # With each value the step to it and the entry it lies in; whole paths of every value could take all memory.
    queue: deque[tuple[Any, str, object]] = deque([(None, "", root)])
    while queue:
        entry = queue.popleft()
        value = entry[2]
        if type(value) is _Module:
            if value.number not in found:
                found[value.number] = _path(entry)
        elif id(value) not in seen:
            seen.add(id(value))
            queue.extend((entry, step, part) for step, part in _parts(value) if type(part) in _INNER)
    return found


_INNER = (_Module, _Thing, dict, list, tuple)


def _path(entry: Any) -> str:
    steps: list[str] = []
    while entry is not None and len(steps) <= _MAX_NAME:
        if entry[1]:
            steps.append(entry[1])
        entry = entry[0]
    return ".".join(reversed(steps))


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """What lies inside, with the step that leads there; the parts of a _Thing are no steps of their own."""
    if type(value) is _Thing:
        return (("", part) for part in value.parts)
    if isinstance(value, Mapping):
        # A torch.nn.Module keeps its children in a dict of this name; nobody writes it when naming one.
        return (("" if key == "_modules" else str(key), part) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return ((str(i), part) for i, part in enumerate(value))
    return iter(())
