"""What live Python objects mean in scripted code: builtins, ``math``, ``torch`` names, operators, constants.

``torch`` is not imported: its objects are recognised by the module and name they carry, and source text without
Python around it (``define``, ``CompilationUnit``) reaches the same names through TorchPath.
"""

from __future__ import annotations

import builtins
import enum
import math
import sys
import types
import typing
from typing import Any

import numpy as np

from gpujit.frontend.lang import OperatorName, PythonValue, Special, words
from gpujit.ir import types as T
from gpujit.ir.dtypes import BY_NAME
from gpujit.ir.values import Device, parse_device
from gpujit.ops import table

_BUILTIN_NAMES = words(
    "len abs min max sum any all round divmod pow ord chr hex oct bin hash sorted int float bool complex str print "
    "range isinstance hasattr getattr enumerate zip reversed list tuple dict slice"
)
_BUILTINS: dict[int, str] = {id(getattr(builtins, n)): n for n in _BUILTIN_NAMES}
# What to write in the place of builtins that the language has not.
_INSTEAD: dict[int, str] = {
    id(super): "methods are compiled without the bases of their class. Give the method of the base class a name that "
    "the class does not define again, and call it as self.<name>(...)",
    id(open): "files are read outside, and their contents passed in",
    id(input): "read it outside, and pass it in",
    id(set): "use a list, or a dict with the elements as keys",
    id(frozenset): "use a list, or a dict with the elements as keys",
    id(map): "write a comprehension", id(filter): "write a loop with 'if'",
    id(type): "use isinstance",
    id(setattr): "write self.<name> = value", id(iter): "write a 'for' loop", id(next): "write a 'for' loop",
    id(eval): "code is compiled ahead", id(exec): "code is compiled ahead",
}  # fmt: skip
# Functions of ``torch.jit`` and of ``gpujit`` with a meaning of their own in scripted code.
JIT_NAMES = frozenset(
    ("annotate", "isinstance", "fork", "_fork", "wait", "_wait", "is_scripting", "is_tracing", "unchecked_cast")
)
_FALSE_FUNCTIONS = frozenset(
    ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "is_compiling",
     "is_dynamo_compiling")
)  # fmt: skip
# Layouts and memory formats by their codes.
_CODES = {
    "strided": 0, "sparse_coo": 1, "sparse_csr": 2, "_mkldnn": 3, "contiguous_format": 0, "preserve_format": 1,
    "channels_last": 2, "channels_last_3d": 3,
}  # fmt: skip
_DTYPE_ALIASES = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64",
                  "short": "int16", "cfloat": "complex64", "cdouble": "complex128"}  # fmt: skip
_NUMBERS = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan, "tau": math.tau}
# Functions torch compiles from their Python source, although a builtin operator of their name exists.
_FROM_SOURCE = frozenset(("stft", "istft", "lu", "cdist", "norm", "unique", "unique_consecutive", "tensordot"))
# Operators of torch's submodules are spelled with a prefix.
_PREFIXES = {
    "": "", "functional": "", "_C._nn": "", "nn.functional": "", "_C._VariableFunctions": "", "_VF": "",
    "special": "special_", "linalg": "linalg_", "fft": "fft_", "_C._linalg": "", "_C._special": "", "_C._fft": "",
    "Tensor": "", "_C.TensorBase": "",
}  # fmt: skip


class TorchPath:
    """A name below ``torch`` where there is no torch: ``torch.nn.functional`` is TorchPath("nn.functional")."""

    def __init__(self, path: str = "") -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return TorchPath(f"{self._path}.{name}" if self._path else name)

    def __repr__(self) -> str:
        return f"torch.{self._path}" if self._path else "torch"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TorchPath) and other._path == self._path

    def __hash__(self) -> int:
        return hash(self._path)


TENSOR_PATH = TorchPath("Tensor")

# What names mean in source text that has no Python module around it.
DEFAULT_NAMES: dict[str, Any] = {
    **vars(builtins),
    **{n: getattr(typing, n) for n in ("Any", "Dict", "Final", "List", "Optional", "Tuple", "Union", "NamedTuple")},
    "Tensor": TENSOR_PATH, "torch": TorchPath(), "math": math, "annotate": TorchPath("jit.annotate"),
    "fork": TorchPath("jit.fork"), "wait": TorchPath("jit.wait"), "Future": TorchPath("jit.Future"),
    "Device": TorchPath("device"), "Generator": TorchPath("Generator"), "NoneType": type(None),
    "number": TorchPath("number"), "inf": math.inf, "nan": math.nan,
}  # fmt: skip


def torch_path(obj: Any) -> str | None:
    """The dotted name below ``torch`` of an object that belongs to torch, or stands for one; None for others."""
    if isinstance(obj, TorchPath):
        return obj._path
    if isinstance(obj, types.ModuleType):
        full = obj.__name__
        return "" if full == "torch" else full[6:] if full.startswith("torch.") else None
    module = getattr(obj, "__module__", None) or ""
    if not isinstance(module, str):
        return None
    name: Any = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if not isinstance(name, str):
        return None
    if name.startswith("_VariableFunctionsClass."):
        return name.partition(".")[2]
    if module == "torch" or module.startswith("torch."):
        return f"{module[6:]}.{name}".lstrip(".")
    return None


def meaning_of(obj: Any) -> Any:
    """What a Python object means: a Special, an OperatorName, a constant to be made, or a PythonValue."""
    special = _BUILTINS.get(id(obj))
    if special is not None:
        return Special(special)
    marker = getattr(obj, "_gpujit_special", None)
    if isinstance(marker, str):
        return Special(marker)
    if getattr(obj, "__module__", None) in ("_warnings", "warnings") and getattr(obj, "__name__", "") == "warn":
        return OperatorName("aten::warn")
    if isinstance(obj, types.BuiltinFunctionType):
        if obj.__name__.removeprefix("_") in _FALSE_FUNCTIONS:
            return Special("false")
        if obj.__module__ in ("math", "cmath") and table.by_name(f"aten::{obj.__name__}"):
            return OperatorName(f"aten::{obj.__name__}")
        if obj.__module__ == "_operator" and table.by_name(f"aten::{obj.__name__}"):
            return OperatorName(f"aten::{obj.__name__}")
    operator = getattr(obj, "operator", None) if isinstance(obj, types.FunctionType) else None
    if isinstance(operator, str) and obj.__module__ == "gpujit.ops":
        return OperatorName(operator)
    path = torch_path(obj)
    if path is not None:
        found = torch_meaning(path, obj)
        if found is not None:
            return found
    return PythonValue(obj)


# Functions of torch's Python sources that stand for something short.
_SHORT = {
    "autograd.grad_mode.set_grad_enabled": OperatorName("aten::set_grad_enabled"),
    "nn.functional._no_grad_embedding_renorm_": OperatorName("aten::embedding_renorm_"),
    "nn.functional.assert_int_or_pair": Special("nothing"),
    "nn.modules.utils._list_with_default": Special("first_argument"),
}
# Modules of torch whose names are operators of tensors as well.
_MODULES = frozenset(("cuda", "cpu"))
NTUPLES = {"_single": 1, "_pair": 2, "_triple": 3, "_quadruple": 4}


def torch_meaning(path: str, obj: Any) -> Any:
    """What the name ``torch.<path>`` means; None when it is nothing special."""
    owner, _, name = path.rpartition(".")
    if path in _SHORT:
        return _SHORT[path]
    if getattr(obj, "__module__", "") == "torch.nn.modules.utils" and getattr(obj, "__name__", "") in NTUPLES:
        return Special(obj.__name__)
    if name in _FALSE_FUNCTIONS:
        return Special("false")
    jit = owner in ("jit", "jit._script", "_jit_internal", "jit._async", "jit._trace", "jit._serialization")
    if jit and name in JIT_NAMES:
        return Special({"_fork": "fork", "_wait": "wait", "is_tracing": "is_tracing"}.get(name, name))
    if jit and name == "_unwrap_optional":
        return Special("unwrap_optional")
    if path in ("_jit_internal.is_scripting", "_jit_internal.annotate"):
        return Special(name)
    if path in ("device", "Size"):
        return Special(path)
    if (isinstance(obj, (types.ModuleType, type)) and not isinstance(obj, TorchPath)) or path in _MODULES:
        return None
    plain = isinstance(obj, TorchPath)
    if plain and owner == "" and (name in BY_NAME or name in _DTYPE_ALIASES):
        return BY_NAME[_DTYPE_ALIASES.get(name, name)].code
    if plain and owner == "" and name in _CODES:
        return _CODES[name]
    if plain and owner == "" and name in _NUMBERS:
        return _NUMBERS[name]
    if isinstance(obj, types.FunctionType):
        return OperatorName(f"aten::{name}") if _is_builtin_operator(name, obj) else None
    prefix = _PREFIXES.get(owner)
    if prefix is not None:
        for full in dict.fromkeys((f"aten::{prefix}{name}", f"aten::{name}")):
            if table.by_name(full):
                return OperatorName(full)
    if owner.startswith("ops."):
        return OperatorName(f"{owner[4:]}::{name}")
    if not plain and isinstance(obj, types.BuiltinFunctionType) and table.by_name(f"aten::{name}"):
        return OperatorName(f"aten::{name}")
    return None


def _is_builtin_operator(name: str, obj: Any) -> bool:
    """Whether a Python function of torch stands for the operator of its name."""
    torch: Any = sys.modules.get("torch")
    return getattr(torch, name, None) is obj and name not in _FROM_SOURCE and bool(table.by_name(f"aten::{name}"))


def constant_of(obj: Any) -> tuple[Any, T.Type] | None:
    """An object as a constant of the language with its type; None when it cannot be one."""
    if obj is None:
        return None, T.NONE
    simple = {bool: T.BOOL, int: T.INT, float: T.FLOAT, complex: T.COMPLEX, str: T.STR}.get(type(obj))
    if simple is not None:
        return obj, simple
    if isinstance(obj, Device):
        return obj, T.DEVICE
    if isinstance(obj, tuple) and not hasattr(obj, "_fields"):
        parts = [constant_of(v) for v in obj]
        if all(p is not None for p in parts):
            known = [p for p in parts if p is not None]
            return tuple(p[0] for p in known), T.TupleType(tuple(p[1] for p in known))
        return None
    code = dtype_code(obj)
    if code is not None:
        return code, T.INT
    kind, module = type(obj).__name__, type(obj).__module__
    if module == "torch" and kind == "device":
        return parse_device(str(obj)), T.DEVICE
    if module == "torch" and kind in ("layout", "memory_format"):
        return _CODES[str(obj).removeprefix("torch.")], T.INT
    return None


def dtype_code(obj: Any) -> int | None:
    """The code of a dtype: torch's, or NumPy's (``np.float32``, ``np.dtype("int64")``); None for anything else."""
    name: str | None = None
    if type(obj).__name__ == "dtype" and type(obj).__module__ == "torch":
        name = str(obj).removeprefix("torch.")
    elif isinstance(obj, np.dtype):
        name = obj.name
    elif isinstance(obj, type) and issubclass(obj, np.generic):
        try:
            name = np.dtype(obj).name
        except TypeError:
            return None
    if name is None:
        return None
    found = BY_NAME.get(name)
    return None if found is None else found.code


def why_not(obj: Any) -> str:
    """Why an object cannot be called in scripted code, and what to write instead."""
    path = torch_path(obj)
    name = getattr(obj, "__name__", None) or repr(obj)[:60]
    if path is not None and path.startswith("distributed"):
        return (
            f"'{path}' is not supported: a program runs in one process. Call it outside of scripted code, or in a "
            "function marked with gpujit.ignore"
        )
    text = f"Python builtin or object {name!r} is not supported in TorchScript"
    instead = _INSTEAD.get(id(obj))
    return f"{text}; {instead}" if instead else text


def is_enum_member(obj: Any) -> bool:
    """Whether an object is a member of an Enum."""
    return isinstance(obj, enum.Enum)
