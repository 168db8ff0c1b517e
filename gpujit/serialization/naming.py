"""Names in a file to be written: a qualified name for each class and function, and types as annotations name them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator

from gpujit.ir import types as T
from gpujit.ir.module import Function

Definition = T.ClassType | T.InterfaceType | T.EnumType | T.TupleType | Function

CUSTOM_CLASSES = "__torch__.torch.classes."

# Names that mean something where serialized source uses them bare, and so cannot be those of values.
RESERVED = frozenset((
    *keyword.kwlist, "torch", "__torch__", "ops", "aten", "prim", "CONSTANTS", "attribute", "getattr", "hasattr",
    "annotate", "uninitialized", "unchecked_cast", "isinstance", "fork", "awaitable", "awaitable_wait",
    "awaitable_nowait", "rpc_async", "rpc_sync", "rpc_remote", "inf", "nan", "infj", "nanj", "int", "float", "bool",
    "complex", "str", "number", "list", "dict", "tuple", "print", "range", "Tensor", "List", "Dict", "Tuple",
    "Optional", "Union", "Any", "Final", "Future", "RRef", "Await", "NoneType", "Device", "Generator", "Stream",
    "Storage", "Layout", "ScalarType", "QScheme", "Capsule", "AnyClassType", "AnyEnumType",
))  # fmt: skip

_PART = re.compile(r"[^0-9A-Za-z_]")


def is_name(text: str) -> bool:
    """Whether a text can stand after a dot in serialized source."""
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text)


def identifier(text: str) -> str:
    """An identifier that resembles ``text``; empty when nothing of it can be kept."""
    found = _PART.sub("_", text).lstrip("0123456789")
    return found if found.strip("_") else ""


class UniqueNames:
    """Names of one function's values: each given out once, none reserved."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*RESERVED, *taken}
        self._next: dict[str, int] = {}

    def name(self, wanted: str) -> str:
        """``wanted`` or, when it is taken, the same with a number after it."""
        found = wanted
        while found in self._taken:
            number = self._next.get(wanted, 0)
            self._next[wanted] = number + 1
            found = f"{wanted}{number}"
        self._taken.add(found)
        return found

    def temporary(self) -> str:
        """The next of ``_0``, ``_1`` and so on."""
        while True:
            number = self._next.get("_", 0)
            self._next["_"] = number + 1
            found = f"_{number}"
            if found not in self._taken:
                self._taken.add(found)
                return found


class TypeNames:
    """Gives every class and function a name of its own, and remembers which were named, so that all get written.

    The first to ask for a name gets it; a different one with the same name moves into a module
    ``___torch_mangle_N``, as in PyTorch.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._tuples: dict[T.TupleType, str] = {}
        self._owners: dict[str, Definition] = {}
        self._mangled = 0
        self._todo: list[Definition] = []

    def name(self, definition: Definition) -> str:
        """The qualified name, as source and pickles write it."""
        is_tuple = isinstance(definition, T.TupleType)
        found = self._tuples.get(definition) if is_tuple else self._names.get(id(definition))  # type: ignore[arg-type]
        if found is None:
            wanted = str(definition.name)
            if isinstance(definition, T.ClassType) and wanted.startswith(CUSTOM_CLASSES):
                return wanted
            found = self._unique(wanted)
            self._owners[found] = definition
            if isinstance(definition, T.TupleType):
                self._tuples[definition] = found
            else:
                self._names[id(definition)] = found
            self._todo.append(definition)
        return found

    def unwritten(self) -> Iterator[tuple[str, Definition]]:
        """What was named and not given out here before, in the order of naming; grows while it is read."""
        while self._todo:
            definition = self._todo.pop(0)
            yield self.name(definition), definition

    @property
    def has_unwritten(self) -> bool:
        """Whether something was named that ``unwritten`` has not given out yet."""
        return bool(self._todo)

    def _unique(self, wanted: str) -> str:
        parts = [identifier(p) or "_" for p in wanted.split(".")]
        if parts[0] != "__torch__":
            parts.insert(0, "__torch__")
        if len(parts) == 1:
            parts.append("_")
        parts = [p + "_" if keyword.iskeyword(p) else p for p in parts]
        found = ".".join(parts)
        while found in self._owners:
            plain = [p for p in parts[:-1] if not p.startswith("___torch_mangle_")]
            found = ".".join((*plain, f"___torch_mangle_{self._mangled}", parts[-1]))
            self._mangled += 1
        return found

    def text(self, t: T.Type) -> str:
        """A type as an annotation."""
        if isinstance(t, (T.ClassType, T.InterfaceType, T.EnumType)):
            return self.name(t)
        if isinstance(t, T.TupleType):
            if t.name is not None:
                return self.name(t)
            return "Tuple[" + (", ".join(map(self.text, t.elements)) or "()") + "]"
        if isinstance(t, T.ListType):
            return f"List[{self.text(t.element)}]"
        if isinstance(t, T.DictType):
            return f"Dict[{self.text(t.key)}, {self.text(t.value)}]"
        if isinstance(t, T.OptionalType):
            return f"Optional[{self.text(t.element)}]"
        if isinstance(t, T.UnionType):
            return "Union[" + ", ".join(map(self.text, t.members)) + "]"
        if isinstance(t, T.BoxType):
            return f"{t.kind}[{self.text(t.element)}]"
        # Types of operators the table does not know say nothing; tensors are what most operators give.
        return "Tensor" if t == T.UNKNOWN else t.annotation()
