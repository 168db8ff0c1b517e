"""A reader of pickles that can only make what it was given to make.

Nothing is imported and no code is run by name: a pickle names things, and only names in the mapping given to
``Unpickler`` (and ``__torch__`` classes, through ``find_class``) mean something. Reading is one loop without recursion,
its work bounded by the number of bytes. Opcodes: what PyTorch's own picklers write (protocol 2), and what Python's
pickler writes up to protocol 5 for the same kinds of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Any, NoReturn, Protocol

from gpujit.ir.values import Device, EnumValue
from gpujit.support.errors import GpujitError, InternalError, LimitError, PickleError

# Marks that may be open at once, and containers and objects that may lie inside each other.
MAX_DEPTH = 1000
MAX_PICKLE_BYTES = 128 << 20
# TorchScript's integers have 64 bits; Python's pickler may spend a ninth byte on the sign.
MAX_INT_BYTES = 9

_I32 = Struct("<i").unpack_from
_U32 = Struct("<I").unpack_from
_U64 = Struct("<Q").unpack_from
_F64 = Struct(">d").unpack_from
_SCALARS = frozenset((str, int, float, bool, complex, type(None), bytes, Device))
# By opcode, how many bytes of operand follow it.
_WIDTHS = {0x58: 4, 0x4D: 2, 0x4B: 1, 0x4A: 4, 0x71: 1, 0x72: 4, 0x68: 1, 0x6A: 4, 0x47: 8, 0x8A: 1, 0x8B: 4, 0x80: 1}
_WIDTHS[0x95] = 8
# By opcode, how many bytes the length of the following string takes.
_BYTES_OPS = {0x43: 1, 0x42: 4, 0x8E: 8}  # SHORT_BINBYTES, BINBYTES, BINBYTES8
_TEXT_OPS = {0x8C: 1, 0x8D: 8}  # SHORT_BINUNICODE, BINUNICODE8


class Malformed(Exception):
    """Raised by handlers whose arguments do not fit; the unpickler turns it into a PickleError that says where."""


class ClassHandler(Protocol):
    """What a ``__torch__`` class name stands for while reading. ``find_class`` gives one for each class it knows."""

    def new(self) -> object:
        """A fresh object without state."""

    def build(self, obj: Any, state: Any) -> None:
        """Fill ``obj``, which ``new`` made; ``state`` is the pickled dict of attributes, or what __getstate__ gave."""

    def reduce(self, arg: Any) -> object:
        """The value that calling the class makes (enums: ``arg`` is the member's value)."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """Stands for something that was named in a pickle and not made (``Unpickler(opaque=True)`` only)."""

    name: Any


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    call: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class _Class:
    name: str
    handler: ClassHandler


class Unpickler:
    """Reads one pickle.

    Args:
        data: the pickle's bytes.
        globals: by ``module.name``: a function from the tuple of arguments to the value, or a plain value to push. A
            function raises Malformed when its arguments do not fit.
        persistent: from a persistent id to the value it stands for.
        where: places the pickle in messages, such as ``file m.pt, member m/data.pkl``.
        find_class: from (module, name) of a ``__torch__`` class to its ClassHandler, or None when there is none.
        opaque: let every other name stand for an Opaque instead of refusing it; to look at what a foreign pickle holds.
    """

    def __init__(
        self,
        data: bytes,
        *,
        globals: Mapping[str, object],
        persistent: Callable[[Any], object],
        where: str,
        find_class: Callable[[str, str], ClassHandler | None] | None = None,
        opaque: bool = False,
    ) -> None:
        self.data = data
        self.where = where
        self._globals = globals
        self._persistent = persistent
        self._find_class = find_class
        self._opaque = opaque
        self._named: dict[tuple[str, str], object] = {}
        # Containers whose contents a handler has seen, by id: they may not change any more. Values keep ids alive.
        self._sealed: dict[int, object] = {}
        self._unbuilt: dict[int, tuple[_Class, object]] = {}
        self._states: dict[int, tuple[object, object]] = {}

    def load(self) -> Any:
        """The pickled value. Things pickled once and referred to again are one object.

        No container or object in it contains itself, and none lies deeper than MAX_DEPTH.
        Raises PickleError: damaged, hostile, or naming something outside the allow-list. Errors of handlers pass.
        """
        data, end = self.data, len(self.data)
        if end > MAX_PICKLE_BYTES:
            self._fail("pickle-size", f"the pickle has {end} bytes; the limit is {MAX_PICKLE_BYTES}", 0)
        stack: list[Any] = []
        marked: list[list[Any]] = []
        memo: dict[int, Any] = {}
        pos = at = op = 0
        # Ordered by how often an opcode occurs in files; one loop with local names, as a call per opcode costs twice.
        try:
            while True:
                at = pos
                op = data[pos]
                pos += 1
                if op == 0x58:  # BINUNICODE
                    start = pos + 4
                    pos = start + _U32(data, pos)[0]
                    if pos > end:
                        self._fail_length(at)
                    text = data[start:pos].decode()
                    stack.append(text)
                    # Nearly every string is put in the memo at once: do it without another turn.
                    op = data[pos]
                    if op == 0x72:
                        pos += 1
                        memo[_U32(data, pos)[0]] = text
                        pos += 4
                    elif op == 0x71:
                        pos += 1
                        memo[data[pos]] = text
                        pos += 1
                elif op == 0x4D:  # BININT2
                    stack.append(data[pos] | data[pos + 1] << 8)
                    pos += 2
                elif op == 0x4B:  # BININT1
                    stack.append(data[pos])
                    pos += 1
                elif op == 0x4A:  # BININT
                    stack.append(_I32(data, pos)[0])
                    pos += 4
                elif op == 0x87:  # TUPLE3
                    c = stack.pop()
                    b = stack.pop()
                    stack[-1] = (stack[-1], b, c)
                elif op == 0x71:  # BINPUT
                    memo[data[pos]] = stack[-1]
                    pos += 1
                elif op == 0x72:  # LONG_BINPUT
                    memo[_U32(data, pos)[0]] = stack[-1]
                    pos += 4
                elif op == 0x68:  # BINGET
                    stack.append(memo[data[pos]])
                    pos += 1
                elif op == 0x28:  # MARK
                    if len(marked) >= MAX_DEPTH:
                        self._fail("pickle-depth", f"values are nested more than {MAX_DEPTH} deep", at)
                    marked.append(stack)
                    stack = []
                elif op == 0x74:  # TUPLE
                    items = stack
                    stack = marked.pop()
                    stack.append(tuple(items))
                elif op == 0x52:  # REDUCE
                    arg = stack.pop()
                    stack[-1] = self._reduce(stack[-1], arg, at)
                elif op == 0x5D:  # EMPTY_LIST
                    stack.append([])
                elif op == 0x65:  # APPENDS
                    items = stack
                    stack = marked.pop()
                    self._extend(stack[-1], items, at)
                elif op == 0x6A:  # LONG_BINGET
                    stack.append(memo[_U32(data, pos)[0]])
                    pos += 4
                elif op == 0x29:  # EMPTY_TUPLE
                    stack.append(())
                elif op == 0x89:  # NEWFALSE
                    stack.append(False)
                elif op == 0x88:  # NEWTRUE
                    stack.append(True)
                elif op == 0x4E:  # NONE
                    stack.append(None)
                elif op == 0x63:  # GLOBAL
                    middle = data.index(b"\n", pos, pos + 1024)
                    last = data.index(b"\n", middle + 1, middle + 1025)
                    stack.append(self._global(data[pos:middle].decode(), data[middle + 1 : last].decode(), at))
                    pos = last + 1
                elif op == 0x51:  # BINPERSID
                    stack[-1] = self._call("a persistent id", self._persistent, stack[-1], at=at)
                elif op == 0x7D:  # EMPTY_DICT
                    stack.append({})
                elif op == 0x75:  # SETITEMS
                    items = stack
                    stack = marked.pop()
                    self._set_items(stack[-1], items, at)
                elif op == 0x81:  # NEWOBJ
                    arg = stack.pop()
                    stack[-1] = self._new(stack[-1], arg, at)
                elif op == 0x62:  # BUILD
                    state = stack.pop()
                    self._build(stack[-1], state, at)
                elif op == 0x85:  # TUPLE1
                    stack[-1] = (stack[-1],)
                elif op == 0x86:  # TUPLE2
                    b = stack.pop()
                    stack[-1] = (stack[-1], b)
                elif op == 0x47:  # BINFLOAT
                    stack.append(_F64(data, pos)[0])
                    pos += 8
                elif op == 0x8A or op == 0x8B:  # LONG1, LONG4
                    length, width = (data[pos], 1) if op == 0x8A else (_U32(data, pos)[0], 4)
                    start = pos + width
                    pos = start + length
                    if length > MAX_INT_BYTES:
                        self._fail("pickle-number", f"an integer of {length} bytes; TorchScript's have 8", at)
                    if pos > end:
                        self._fail_length(at)
                    stack.append(int.from_bytes(data[start:pos], "little", signed=True))
                elif op == 0x80:  # PROTO
                    if not 2 <= data[pos] <= 5:
                        self._fail("pickle-opcode", f"pickle protocol {data[pos]}; expected 2 to 5", at)
                    pos += 1
                elif op == 0x2E:  # STOP
                    if len(stack) != 1 or marked:
                        self._fail("pickle-stack", "the pickle stops with values left over; it is damaged", at)
                    self._check_result(stack[0], at)
                    return stack[0]
                elif op == 0x61:  # APPEND
                    item = stack.pop()
                    self._extend(stack[-1], (item,), at)
                elif op == 0x73:  # SETITEM
                    item = stack.pop()
                    key = stack.pop()
                    self._set_items(stack[-1], (key, item), at)
                elif op == 0x6C:  # LIST
                    items = stack
                    stack = marked.pop()
                    stack.append(items)
                elif op == 0x64:  # DICT
                    items = stack
                    stack = marked.pop()
                    made: dict[Any, Any] = {}
                    self._set_items(made, items, at)
                    stack.append(made)
                elif op in _TEXT_OPS or op in _BYTES_OPS:
                    width = _TEXT_OPS.get(op) or _BYTES_OPS[op]
                    start = pos + width
                    pos = start + int.from_bytes(data[pos:start], "little")
                    if start > end or pos > end:
                        self._fail_length(at)
                    stack.append(data[start:pos].decode() if op in _TEXT_OPS else data[start:pos])
                elif op == 0x94:  # MEMOIZE
                    memo[len(memo)] = stack[-1]
                elif op == 0x95:  # FRAME
                    if _U64(data, pos)[0] > end - pos - 8:
                        self._fail_length(at)
                    pos += 8
                elif op == 0x93:  # STACK_GLOBAL
                    name = stack.pop()
                    module = stack.pop()
                    if type(name) is not str or type(module) is not str:
                        self._fail("pickle-global", "a global is named by something else than two texts", at)
                    stack.append(self._global(module, name, at))
                elif op == 0x30:  # POP
                    if stack:
                        stack.pop()
                    else:
                        stack = marked.pop()
                elif op == 0x31:  # POP_MARK
                    stack = marked.pop()
                else:
                    self._fail(
                        "pickle-opcode",
                        f"opcode {op:#04x} does not occur in TorchScript files; the file is damaged",
                        at,
                    )
        except KeyError as error:
            self._fail("pickle-memo", f"memo entry {error} is read before it is written; the pickle is damaged", at)
        except UnicodeDecodeError:
            self._fail("pickle-text", "a text is not UTF-8; the pickle is damaged", at)
        except ValueError:
            self._fail("pickle-truncated", "the name of a global does not end; the pickle is damaged", at)
        except (IndexError, StructError):
            # Reads beyond the data raise as well as reads below the stack's bottom.
            if at >= end or pos + _WIDTHS.get(op, 0) > end:
                self._fail("pickle-truncated", f"the pickle breaks off before its end ({end} bytes are here)", at)
            self._fail("pickle-stack", f"opcode {op:#04x} finds fewer values than it takes; the pickle is damaged", at)

    def _fail(self, code: str, message: str, at: int) -> NoReturn:
        where = f"  in {self.where}" if self.where else ""
        raise PickleError(f"{message} (at byte {at})", where=where, code=code) from None

    def _fail_length(self, at: int) -> NoReturn:
        self._fail("pickle-truncated", f"a value is longer than the pickle, which has {len(self.data)} bytes", at)

    def _call(self, name: str, call: Callable[..., object], *args: Any, at: int) -> Any:
        """What a handler gives. Faults of handlers must not look like faults of the pickle, nor the other way round."""
        try:
            return call(*args)
        except Malformed as error:
            self._fail("pickle-arguments", f"{name}: {error}", at)
        except GpujitError:
            raise
        except MemoryError:
            raise LimitError(f"there is not enough memory to read {name} (at byte {at} of {self.where})") from None
        except Exception as error:
            raise InternalError(f"reading {name} at byte {at} of {self.where}: {error!r}") from error

    def _global(self, module: str, name: str, at: int) -> object:
        found = self._named.get((module, name))
        if found is None:
            found = self._named[module, name] = self._resolve(module, name, at)
        return found

    def _resolve(self, module: str, name: str, at: int) -> object:
        full = f"{module}.{name}"
        if full in self._globals:
            value = self._globals[full]
            return _Function(full, value) if callable(value) else value
        if self._find_class is not None and (module == "__torch__" or module.startswith("__torch__.")):
            handler = self._call("a class", self._find_class, module, name, at=at)
            if handler is None:
                self._fail("pickle-global", f"class {ascii(full)[:200]} is used, which the file does not define", at)
            return _Class(full, handler)
        if not self._opaque:
            self._fail(
                "pickle-global",
                f"the pickle names {ascii(full)[:200]}, which no TorchScript file needs; nothing was run. If the file "
                "is from someone else, do not open it with Python's pickle either",
                at,
            )
        return Opaque(full)

    def _reduce(self, function: object, arg: Any, at: int) -> Any:
        if type(function) is _Function:
            if type(arg) is not tuple:
                self._fail("pickle-arguments", f"{function.name}: called with a {type(arg).__name__}, not a tuple", at)
            value = self._call(function.name, function.call, arg, at=at)
            if arg and value is arg[0] and type(value) in (list, dict):
                self._sealed[id(value)] = value
            return value
        if type(function) is _Class:
            return self._call(function.name, function.handler.reduce, arg, at=at)
        if not isinstance(function, Opaque):
            self._fail("pickle-arguments", f"a {type(function).__name__} is called like a function", at)
        return Opaque(function.name)

    def _new(self, cls: object, arg: Any, at: int) -> Any:
        if isinstance(cls, Opaque):
            return Opaque(cls.name)
        if type(cls) is not _Class or type(arg) is not tuple or arg:
            self._fail("pickle-arguments", f"an object is made from a {type(cls).__name__}, not from a class", at)
        obj = self._call(cls.name, cls.handler.new, at=at)
        self._unbuilt[id(obj)] = (cls, obj)
        return obj

    def _build(self, obj: Any, state: Any, at: int) -> None:
        entry = self._unbuilt.pop(id(obj), None)
        if entry is None:
            # torch.save gives an OrderedDict's own attributes this way (_metadata); they mean nothing here.
            if type(obj) is dict or isinstance(obj, Opaque):
                return
            self._fail("pickle-arguments", f"a {type(obj).__name__} is given a state; only new objects take one", at)
        cls = entry[0]
        self._states[id(obj)] = (obj, state)
        self._call(cls.name, cls.handler.build, obj, state, at=at)

    def _extend(self, target: Any, items: Iterable[Any], at: int) -> None:
        if type(target) is not list:
            if isinstance(target, Opaque):
                return
            self._fail("pickle-arguments", f"items are appended to a {type(target).__name__}, not a list", at)
        if id(target) in self._sealed:
            self._fail("pickle-arguments", "a list is changed after its type was checked; the file is hostile", at)
        target.extend(items)

    def _set_items(self, target: Any, items: Sequence[Any], at: int) -> None:
        if type(target) is not dict:
            if isinstance(target, Opaque):
                return
            self._fail("pickle-arguments", f"a key is set in a {type(target).__name__}, not a dict", at)
        if len(items) & 1:
            self._fail("pickle-stack", "a dict's key has no value; the pickle is damaged", at)
        if id(target) in self._sealed:
            self._fail("pickle-arguments", "a dict is changed after its type was checked; the file is hostile", at)
        keys = items[::2]
        for key in keys:
            if type(key) not in _SCALARS and not _may_be_key(key):
                self._fail("pickle-key", f"a dict has a key of type {type(key).__name__}, which cannot be one", at)
        target.update(zip(keys, items[1::2], strict=True))

    def _check_result(self, root: Any, at: int) -> None:
        if self._unbuilt:
            self._fail("pickle-stack", "an object was made but never given its attributes; the pickle is damaged", at)
        states = self._states
        kinds: set[type] = {list, tuple, dict}
        kinds.update(type(obj) for obj, _ in states.values())

        def inner(value: Any) -> list[Any]:
            kind = type(value)
            if kind is dict:
                parts = list(value.values())
            elif kind is list or kind is tuple:
                parts = value
            else:
                parts = [states[id(value)][1]] if id(value) in states else []
            # Long lists of numbers are common; this looks at each item's type in C.
            return [] if kinds.isdisjoint(map(type, parts)) else [p for p in parts if type(p) in kinds]

        # Longest way down from each container; -1 while it is on the way itself. Shared parts are walked once.
        depth: dict[int, int] = {}
        path: list[tuple[Any, list[Any]]] = [(root, inner(root))]
        depth[id(root)] = -1
        while path:
            value, todo = path[-1]
            if not todo:
                path.pop()
                below = max((depth.get(id(p), 0) for p in inner(value)), default=0)
                depth[id(value)] = below + 1
                if below >= MAX_DEPTH:
                    self._fail("pickle-depth", f"values are nested more than {MAX_DEPTH} deep", at)
                continue
            part = todo.pop()
            seen = depth.get(id(part))
            if seen is None:
                if len(path) >= MAX_DEPTH:
                    self._fail("pickle-depth", f"values are nested more than {MAX_DEPTH} deep", at)
                depth[id(part)] = -1
                path.append((part, inner(part)))
            elif seen == -1:
                self._fail("pickle-cycle", "a value contains itself, which no TorchScript value can", at)


def _may_be_key(key: object) -> bool:
    """Whether hashing is safe and shallow: a flat tuple of scalars, or an enum member."""
    if type(key) is tuple:
        return _SCALARS.issuperset(map(type, key))
    return type(key) is EnumValue and type(key.value) in _SCALARS


def ordered_dict(args: tuple[Any, ...]) -> dict[Any, Any]:
    """The dict that ``collections.OrderedDict(*args)`` stands for; dicts keep their order."""
    if not args:
        return {}
    made: dict[Any, Any] = {}
    if len(args) != 1 or type(args[0]) is not list:
        raise Malformed("expected no argument or a list of pairs")
    for pair in args[0]:
        if type(pair) not in (list, tuple) or len(pair) != 2 or (type(pair[0]) not in _SCALARS):
            raise Malformed("expected a list of pairs whose keys are texts or numbers")
        made[pair[0]] = pair[1]
    return made
