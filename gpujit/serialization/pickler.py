"""Values to pickles, inside the opcodes that PyTorch's own reader knows (protocol 2, no framing).

What is written once and meant in several places - an object, a list, a tensor - stays one object for the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from struct import pack
from typing import Any

from gpujit.frontend.literals import type_of_constant
from gpujit.ir import types as T
from gpujit.ir.values import Device, EnumValue, QTensor, ScriptObject, SparseTensor, is_int64
from gpujit.ops.families.quantized.pack import class_of
from gpujit.runtime.values import has_type
from gpujit.serialization.naming import CUSTOM_CLASSES, TypeNames
from gpujit.serialization.tensor_store import TensorStore
from gpujit.support.errors import GpujitError, SaveError

# Lists that have a constructor of their own; all others carry the text of their type.
_BUILDERS: dict[T.Type, str] = {
    T.INT: "build_intlist", T.FLOAT: "build_doublelist", T.BOOL: "build_boollist", T.TENSOR: "build_tensorlist",
}  # fmt: skip
# Python values that a declared type of number takes.
_PLAIN = (bool, int, float, complex, str, type(None), Device)
GetState = Callable[[ScriptObject], Any]
PackState = Callable[[str, Any], tuple[Any, T.Type]]


class Pickler:
    """Writes values of known types into one pickle.

    Args:
        store: takes the tensors' memory.
        names: gives classes their names in the file.
        get_state: runs ``__getstate__`` of an object.
        pack_state: from a C++ class's name and the object that stands for one, to its state and the state's type.
        trainable: whether a tensor requires a gradient, given also whether it is a parameter.
        root: how messages begin, such as ``module``.
    """

    def __init__(
        self,
        store: TensorStore,
        names: TypeNames,
        get_state: GetState,
        pack_state: PackState,
        trainable: Callable[[Any, bool], bool],
        root: str = "",
    ) -> None:
        self.store = store
        self.names = names
        self.get_state = get_state
        self.pack_state = pack_state
        self.trainable = trainable
        self.root = root
        # Bytes, and marks where a memo entry is read, or made of what stands before.
        self._out: list[bytes | _Get] = []
        self._known: set[Hashable] = set()
        # Keys hold ids: what they belong to must live as long.
        self._alive: list[Any] = []
        self._open: set[int] = set()
        self._states: dict[int, tuple[Any, T.Type]] = {}
        # Tensors that modules hold as parameters.
        self._parameters: set[int] = set()

    def dumps(self, value: Any, type_: T.Type) -> bytes:
        """The pickle of one value. Raises SaveError naming the attribute that cannot be saved."""
        # Which tensors share a storage is known when all were seen, so the first pass is for the store alone.
        self._pass(value, type_)
        self.store.settle()
        self._pass(value, type_)
        return self._assembled()

    def _pass(self, value: Any, type_: T.Type) -> None:
        self._out = [b"\x80\x02"]
        self._known = set()
        self._open = set()
        try:
            self._value(value, type_, self.root)
        except RecursionError:
            raise SaveError(f"{self.root or 'the value'} is nested too deeply to be saved") from None
        self._out.append(b".")

    def _assembled(self) -> bytes:
        used = {item.key for item in self._out if isinstance(item, _Get) and type(item) is not _Put}
        slots: dict[Hashable, int] = {}
        parts: list[bytes] = []
        for item in self._out:
            if isinstance(item, bytes):
                parts.append(item)
            elif type(item) is _Get:
                parts.append(memo_op(b"h", b"j", slots[item.key]))
            elif item.key in used:
                slots[item.key] = len(slots)
                parts.append(memo_op(b"q", b"r", slots[item.key]))
        return b"".join(parts)

    # ------------------------------------------------------------------------------------------------ pieces

    def _again(self, key: Hashable) -> bool:
        """Whether ``key`` was written before, in which case it is written as a reference."""
        if key in self._known:
            self._out.append(_Get(key))
            return True
        return False

    def _remember(self, key: Hashable) -> None:
        self._known.add(key)
        self._out.append(_Put(key))

    def _global(self, module: str, name: str) -> None:
        key = ("global", module, name)
        if not self._again(key):
            self._out.append(f"c{module}\n{name}\n".encode())
            self._remember(key)

    def _class(self, full: str) -> None:
        module, _, name = full.rpartition(".")
        self._global(module, name)

    def _text(self, value: str) -> None:
        key = ("text", value)
        if not self._again(key):
            self._out.append(text_op(value))
            self._remember(key)

    def _int(self, value: int) -> None:
        self._out.append(integer_op(value))

    def _tuple_of(self, count: int, write: Callable[[], None]) -> None:
        """A tuple whose ``count`` items ``write`` writes."""
        if count == 0:
            self._out.append(b")")
            return
        if count > 3:
            self._out.append(b"(")
        write()
        self._out.append({1: b"\x85", 2: b"\x86", 3: b"\x87"}.get(count, b"t"))

    def _sizes(self, values: tuple[int, ...]) -> None:
        self._tuple_of(len(values), lambda: self._out.extend(map(integer_op, values)))

    # ------------------------------------------------------------------------------------------------ values

    def _value(self, value: Any, t: T.Type, path: str) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self._plain(value, t, path)
        elif isinstance(value, ScriptObject):
            self._object(value, path)
        elif isinstance(value, EnumValue):
            self._class(self.names.name(value.type))
            self._plain(value.value, value.type.value_type, path)
            self._out.append(b"R")
        elif isinstance(t, T.ClassType) and t.name.startswith(CUSTOM_CLASSES):
            self._custom(value, t.name, path)
        elif kind is list:
            self._list(value, t, path)
        elif kind is dict:
            self._dict(value, t, path)
        elif isinstance(value, tuple):
            self._tuple(value, t, path)
        elif isinstance(value, (QTensor, SparseTensor)) or hasattr(value, "__array_interface__"):
            self._tensor(value, path)
        else:
            custom = class_of(value)
            if custom is not None:
                self._custom(value, custom.name, path)
                return
            raise self._fail(path, f"holds a {kind.__module__}.{kind.__qualname__}, which cannot be saved")

    def _fail(self, path: str, what: str) -> SaveError:
        return SaveError(f"{path or 'the value'} {what}", code="save-value")

    def _plain(self, value: Any, t: T.Type, path: str) -> None:
        out = self._out
        if value is None:
            out.append(b"N")
        elif value is True or value is False:
            out.append(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            if not is_int64(value):
                raise self._fail(path, f"holds the integer {value}, which is outside 64 bits")
            if t == T.FLOAT:
                out.append(b"G" + pack(">d", value))
            else:
                self._int(value)
        elif isinstance(value, float):
            out.append(b"G" + pack(">d", value))
        elif isinstance(value, str):
            self._text(value)
        elif isinstance(value, complex):
            self._global("builtins", "complex")
            out.append(b"G" + pack(">d", value.real) + b"G" + pack(">d", value.imag) + b"\x86R")
        else:
            self._global("torch", "device")
            self._text(str(value))
            out.append(b"\x85R")

    def _enter(self, value: Any, path: str) -> Hashable | None:
        """The memo key of a value with parts that is new; None when a reference to it was written instead."""
        if id(value) in self._open:
            raise self._fail(path, "contains itself, which no TorchScript value can")
        key = ("id", id(value))
        if self._again(key):
            return None
        self._open.add(id(value))
        self._alive.append(value)
        return key

    def _leave(self, value: Any, key: Hashable) -> None:
        self._remember(key)
        self._open.discard(id(value))

    def _object(self, value: ScriptObject, path: str) -> None:
        key = self._enter(value, path)
        if key is None:
            return
        t = value.type
        self._class(self.names.name(t))
        self._out.append(b")\x81")
        getstate = t.methods.get("__getstate__")
        if getstate is not None and "__setstate__" in t.methods:
            if id(value) not in self._states:
                try:
                    state = self.get_state(value)
                except GpujitError as e:
                    raise self._fail(path, f"cannot be saved: its __getstate__ failed: {e}") from e
                self._states[id(value)] = state, getstate.schema.returns[0].type
            self._value(*self._states[id(value)], path)
        else:
            self._out.append(b"}")
            self._parameters.update(id(value.get(n)) for n in t.parameters if n in t.slot_of)
            if t.attributes:
                self._out.append(b"(")
                for (name, declared), item in zip(t.attributes.items(), value.slots, strict=True):
                    self._text(name)
                    self._value(item, declared, f"{path}.{name}" if path else name)
                self._out.append(b"u")
        self._out.append(b"b")
        self._leave(value, key)

    def _custom(self, value: Any, name: str, path: str) -> None:
        key = self._enter(value, path)
        if key is None:
            return
        if id(value) not in self._states:
            try:
                self._states[id(value)] = self.pack_state(name, value)
            except GpujitError as e:
                raise self._fail(path, f"cannot be saved: {e.message}") from None
        self._class(name)
        self._out.append(b")\x81")
        self._value(*self._states[id(value)], path)
        self._out.append(b"b")
        self._leave(value, key)

    def _list(self, value: list[Any], t: T.Type, path: str) -> None:
        key = self._enter(value, path)
        if key is None:
            return
        declared = self._declared(value, t, T.ListType, path)
        element = declared.element
        builder = _BUILDERS.get(T.TENSOR if isinstance(element, T.TensorType) else element)
        self._global("torch.jit._pickle", builder or "restore_type_tag")
        self._out.append(b"]")
        if value:
            self._out.append(b"(")
            for i, item in enumerate(value):
                self._value(item, element, f"{path}[{i}]")
            self._out.append(b"e")
        if builder is None:
            self._text(self.names.text(declared))
        self._out.append(b"\x86R" if builder is None else b"\x85R")
        self._leave(value, key)

    def _dict(self, value: dict[Any, Any], t: T.Type, path: str) -> None:
        key = self._enter(value, path)
        if key is None:
            return
        declared = self._declared(value, t, T.DictType, path)
        self._global("torch.jit._pickle", "restore_type_tag")
        self._out.append(b"}")
        if value:
            self._out.append(b"(")
            for name, item in value.items():
                self._value(name, declared.key, path)
                self._value(item, declared.value, f"{path}[{name!r}]")
            self._out.append(b"u")
        self._text(self.names.text(declared))
        self._out.append(b"\x86R")
        self._leave(value, key)

    def _tuple(self, value: tuple[Any, ...], t: T.Type, path: str) -> None:
        members = [m for m in T.members_of(t) if isinstance(m, T.TupleType) and len(m.elements) == len(value)]
        types = members[0].elements if members else (T.ANY,) * len(value)

        def write() -> None:
            for i, (item, declared) in enumerate(zip(value, types, strict=True)):
                self._value(item, declared, f"{path}[{i}]")

        self._tuple_of(len(value), write)

    def _declared(self, value: Any, t: T.Type, kind: Any, path: str) -> Any:
        """The list's or dict's type: the declared one or, where that says nothing (Any), one found from the value."""
        members = [m for m in T.members_of(t) if isinstance(m, kind)]
        if members:
            return members[0] if len(members) == 1 else next((m for m in members if has_type(value, m)), members[0])
        found = type_of_constant(value)
        if not isinstance(found, kind):
            raise self._fail(path, f"holds a {type(value).__name__} whose type cannot be told from {t.annotation()}")
        return found

    # ----------------------------------------------------------------------------------------------- tensors

    def _tensor(self, value: Any, path: str) -> None:
        key = ("id", id(value))
        if self._again(key):
            return
        self._alive.append(value)
        if isinstance(value, QTensor):
            self._quantised(value, path)
        elif isinstance(value, SparseTensor):
            self._sparse(value, path)
        else:
            self._view("_rebuild_tensor_v2", value, None, path)
            self._flag_and_hooks(value)
            self._out.append(b"tR")
        self._remember(key)

    def _view(self, function: str, array: Any, code: int | None, path: str) -> None:
        """``function(storage, offset, size, stride``: what is the same for all kinds of tensors."""
        try:
            view = self.store.view(array, code)
        except SaveError as e:
            raise self._fail(path, e.message) from None
        self._global("torch._utils", function)
        self._out.append(b"(")
        # PyTorch takes two readings of one storage for two storages.
        key = ("storage", view.key)
        if not self._again(key):
            self._out.append(b"(")
            self._text("storage")
            self._global("torch", f"{view.type.ir_name}Storage")
            self._text(view.key)
            self._text("cpu")
            self._int(view.numel)
            self._out.append(b"tQ")
            self._remember(key)
        self._int(view.offset)
        self._sizes(view.size)
        self._sizes(view.stride)

    def _flag_and_hooks(self, value: Any) -> None:
        trainable = self.trainable(value, id(value) in self._parameters)
        self._out.append(b"\x88" if trainable else b"\x89")
        self._hooks()

    def _hooks(self) -> None:
        self._global("collections", "OrderedDict")
        self._out.append(b")R")

    def _quantised(self, value: QTensor, path: str) -> None:
        self._view("_rebuild_qtensor", value.values, value.dtype, path)
        if value.axis is None:
            self._global("torch", "per_tensor_affine")
            self._out.append(b"G" + pack(">d", float(value.scale)))
            self._int(int(value.zero_point))
            self._out.append(b"\x87")
        else:
            # Zero points that are no integers belong to another scheme.
            floating = value.zero_point.dtype.kind == "f"
            self._out.append(b"(")
            self._global("torch", "per_channel_affine_float_qparams" if floating else "per_channel_affine")
            self._tensor(value.scale, path)
            self._tensor(value.zero_point, path)
            self._int(value.axis)
            self._out.append(b"t")
        self._out.append(b"\x89")
        self._hooks()
        self._out.append(b"tR")

    def _sparse(self, value: SparseTensor, path: str) -> None:
        self._global("torch._utils", "_rebuild_sparse_tensor")
        self._out.append(b"(")
        self._int(value.layout)
        self._sizes(tuple(map(int, value.shape)))
        self._out.append(b"\x89")
        for part in value.parts:
            self._tensor(part, path)
        self._hooks()
        self._out.append(b"tR")


class _Get:
    __slots__ = ("key",)

    def __init__(self, key: Hashable) -> None:
        self.key = key


class _Put(_Get):
    __slots__ = ()


def text_op(value: str) -> bytes:
    """The opcode for a text."""
    raw = value.encode("utf-8", "surrogatepass")
    return b"X" + pack("<I", len(raw)) + raw


def memo_op(short: bytes, long: bytes, index: int) -> bytes:
    """The opcode that reads or writes a memo entry, given its forms for small and large numbers."""
    return short + pack("<B", index) if index < 256 else long + pack("<I", index)


def integer_op(value: int) -> bytes:
    """The shortest opcode for an integer of 64 bits."""
    if 0 <= value < 1 << 8:
        return b"K" + pack("<B", value)
    if 0 <= value < 1 << 16:
        return b"M" + pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + pack("<i", value)
    return b"\x8a\x08" + pack("<q", value)
