"""The model and the inputs that commands are given: a file, a method, arrays from files, shapes and values."""

from __future__ import annotations

import argparse
import re
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpujit.support.errors import ArgumentError

if TYPE_CHECKING:
    from gpujit.modules import ScriptMethod, ScriptModule

INPUTS = """inputs, one for each argument of the method, in order:
  FILE.npy              one array
  FILE.npz              all its arrays, in the file's order
  1x3x224x224           random float32 numbers of that shape (normal distribution)
  1x12:int64            of that dtype; integers are drawn from 0 to 9, or up to :int64:100
  scalar:float32        a 0-dim tensor
  int=3, float=0.5, bool=true, str=text, none
"""

_SHAPE = re.compile(r"(scalar|\d+(?:x\d+)*)(?::([a-z]\w*))?(?::(\d+))?")
_VALUE = re.compile(r"(int|float|bool|str)=(.*)", re.DOTALL)
_MAX_ELEMENTS = 1 << 31


def add_model_arguments(command: argparse.ArgumentParser) -> None:
    """FILE, INPUT and so on, ``--method`` and ``--seed``, for commands that call a model."""
    command.add_argument("file", metavar="FILE", help="a TorchScript archive")
    command.add_argument("inputs", nargs="*", metavar="INPUT", help="array files, shapes or values; see below")
    command.add_argument("--method", metavar="NAME", default="forward", help="method to call (default: forward)")
    command.add_argument("--seed", type=int, metavar="N", default=0, help="seed of random inputs (default: 0)")


def add_device_argument(command: argparse.ArgumentParser) -> None:
    """``--device``, for commands that call a model there."""
    command.add_argument(
        "--device",
        metavar="DEVICE",
        default="cpu",
        help="where it runs: cpu, cuda:0 or another GPU, auto for a GPU that works or else the CPU (default: cpu)",
    )


@dataclass(frozen=True)
class Chosen:
    """A model that was loaded, one of its methods, and what it is to be called with."""

    module: ScriptModule
    method: ScriptMethod
    values: list[Any]
    load_seconds: float

    @property
    def call(self) -> Callable[..., Any]:
        """What to call: the module for ``forward``, so that its hooks run."""
        return self.module if self.method.name == "forward" else self.method

    @property
    def device(self) -> str:
        """Where it runs."""
        found = self.module._program.device
        return "cpu" if found is None else found.name

    def wait(self) -> None:
        """Wait for what calls have the device do."""
        device = self.module._program.device
        if device is not None:
            with device.here():
                device.synchronise(device.stream())

    def on_host(self, result: Any) -> Any:
        """A result of a call in which arrays on the device are host arrays."""
        device = self.module._program.device
        if device is None:
            return result
        from gpujit.ir.values import DeviceTensor
        from gpujit.runtime.device import mapped, to_host
        from gpujit.runtime.device_outputs import arguments

        with device.here():
            stream = device.stream()
            return mapped(arguments(device, result), DeviceTensor, lambda x: to_host(device, x, stream))

    def on_device(self, values: Any) -> Any:
        """Values whose arrays are copies on the device, if there is one."""
        device = self.module._program.device
        if device is None:
            return values
        from gpujit.runtime.device import mapped, to_device

        with device.here():
            stream = device.stream()
            return mapped(values, np.ndarray, lambda x: device.array(to_device(device, x, stream)))


def chosen(arguments: argparse.Namespace) -> Chosen:
    """What the arguments of a model, and of a device, asked for. Raises LoadError, ArgumentError, DeviceError."""
    start = time.perf_counter()
    module = load(arguments.file, getattr(arguments, "device", "cpu"))
    seconds = time.perf_counter() - start
    method = method_of(module, arguments.method)
    values = list(read_inputs(arguments.inputs, arguments.seed))
    check_count(values, method)
    return Chosen(module, method, values, seconds)


def load(file: str, device: str = "cpu") -> ScriptModule:
    """A model on a device. Raises LoadError, DeviceError."""
    # Help needs no loader.
    from gpujit import api

    return api.load(file, map_location="cpu", device=None if device == "cpu" else device)


def method_of(module: ScriptModule, name: str) -> ScriptMethod:
    """A method by name. Raises ArgumentError with the names there are."""
    methods = module.methods
    if name not in methods:
        raise ArgumentError(f"the model has no method {name!r}; it has {', '.join(sorted(methods))}")
    return methods[name]


def check_count(values: Sequence[Any], method: ScriptMethod) -> None:
    """Raise ArgumentError, with the signature, unless there is a value for each required argument."""
    from gpujit.runtime.values import declaration

    wanted = [a for a in method.schema.arguments[1:] if not a.has_default]
    if len(values) < len(wanted):
        missing = ", ".join(a.name for a in wanted[len(values) :])
        raise ArgumentError(
            f"{len(values)} inputs are given; a value is missing for {missing}. "
            f"Declaration: {declaration(method.schema, skip=1)}"
        )


def read_inputs(texts: Iterable[str], seed: int) -> Iterator[Any]:
    """The values that the command line's inputs stand for. Raises ArgumentError for text that stands for none."""
    random = np.random.default_rng(check_seed(seed))
    for text in texts:
        if text.endswith(".npy"):
            yield _load(text)
        elif text.endswith(".npz"):
            yield from _load(text)
        elif text == "none":
            yield None
        elif m := _VALUE.fullmatch(text):
            yield _value(m.group(1), m.group(2))
        elif m := _SHAPE.fullmatch(text):
            yield _random(m, random)
        else:
            raise ArgumentError(
                f"input {text!r} is neither an array file nor a shape (1x3x224x224:float32) nor a value (int=3)"
            )


def check_seed(seed: int) -> int:
    """The seed. Raises ArgumentError for one below 0."""
    if seed < 0:
        raise ArgumentError(f"a seed is a number from 0 on, found {seed}")
    return seed


def _load(path: str) -> Any:
    """The array of a .npy file, or a list of those of a .npz file."""
    try:
        # Never pickled objects: they would run code from the file.
        with open(path, "rb") as stream:
            found = np.load(stream, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return found
            return [array for array in (found[name] for name in found.files) if array.dtype.kind not in "US"]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as e:
        raise ArgumentError(f"input file {path!r} cannot be read: {e}") from None


def _value(kind: str, text: str) -> Any:
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        return {"int": int, "float": float, "str": str}[kind](text)
    except (ValueError, KeyError):
        raise ArgumentError(f"{text!r} is no {kind}") from None


def _random(m: re.Match[str], random: np.random.Generator) -> Any:
    from gpujit.ir.dtypes import BY_NAME

    shape = () if m.group(1) == "scalar" else tuple(int(s) for s in m.group(1).split("x"))
    name = m.group(2) or "float32"
    known = BY_NAME.get(name)
    if known is None or known.dtype is None:
        raise ArgumentError(
            f"dtype {name!r} is not known; use one of {', '.join(n for n, s in BY_NAME.items() if s.dtype)}"
        )
    if np.prod(shape, dtype=float) > _MAX_ELEMENTS:
        raise ArgumentError(f"an input of shape {shape} is too large")
    if known.dtype.kind in "iu":
        high, most = int(m.group(3) or 10), int(np.iinfo(known.dtype).max)
        if not 0 < high <= most:
            raise ArgumentError(f"numbers below {high} cannot be drawn as {name}; give a limit from 1 to {most}")
        return random.integers(0, high, shape).astype(known.dtype)
    if known.dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    values = random.standard_normal(shape, dtype=np.float32)
    if known.dtype.kind == "c":
        values = values + 1j * random.standard_normal(shape, dtype=np.float32)
    return np.asarray(values).astype(known.dtype)


def positive(text: str) -> int:
    """A number from 1 on, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def is_input(text: str) -> bool:
    """Whether a word is an input rather than the name of a model's file."""
    return text == "none" or text.endswith((".npy", ".npz")) or bool(_VALUE.fullmatch(text) or _SHAPE.fullmatch(text))
