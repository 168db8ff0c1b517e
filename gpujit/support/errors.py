"""One exception family. Every class names a kind of fault; ``code`` is stable and documented in docs/errors.md.

User errors chain nothing internal: they say what was found, what was expected, where, and one thing to try.
"""

from __future__ import annotations

from typing import Any


class GpujitError(Exception):
    """Base of everything gpujit raises on purpose.

    ``code`` is a short stable name of the kind of fault, ``message`` the text without the place, and ``where`` the
    place (file, member, source line), empty when there is none.
    """

    code = "error"

    def __init__(self, message: str, *, where: str = "", code: str | None = None) -> None:
        self.message = message
        self.where = where
        # (function, source range) of a running program, innermost first; filled in by the interpreter.
        self.frames: list[tuple[str, Any]] = []
        if code is not None:
            self.code = code
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.message}\n{self.where}" if self.where else self.message


class LoadError(GpujitError):
    """A file cannot be read as TorchScript. ``file`` and ``member`` say where the fault lies."""

    code = "load"

    def __init__(
        self, message: str, *, file: str = "", member: str = "", where: str = "", code: str | None = None
    ) -> None:
        self.file = file
        self.member = member
        place = ", ".join(p for p in (f"file {file}" if file else "", f"member {member}" if member else "") if p)
        super().__init__(message, where="\n".join(p for p in (f"  in {place}" if place else "", where) if p), code=code)


class ArchiveError(LoadError):
    """The container is damaged, hostile or something else than a TorchScript archive."""

    code = "archive"


class VersionError(LoadError):
    """The archive's format version lies outside the supported range."""

    code = "version"


class PickleError(LoadError):
    """A pickle in the archive is damaged, hostile, or names something outside the allow-list."""

    code = "pickle"


class SourceError(LoadError):
    """Source text in an archive (or given to ``script``) is not the TorchScript language."""

    code = "source"


class SchemaError(GpujitError):
    """An operator schema's text does not parse."""

    code = "schema"


class ParseError(GpujitError):
    """A graph's text does not parse."""

    code = "ir-parse"


class VerifyError(GpujitError):
    """A graph breaks an invariant of the IR."""

    code = "verify"


class ArgumentError(GpujitError, TypeError):
    """A call's arguments do not fit the declared signature."""

    code = "argument"


class AttributeTypeError(GpujitError, TypeError):
    """A value does not fit the declared type of a module attribute."""

    code = "attribute"


class UnknownAttributeError(GpujitError, AttributeError):
    """A module has no attribute or method of that name."""

    code = "no-attribute"


class LayerError(GpujitError, ValueError):
    """A layer of ``gpujit.nn`` cannot be made or run as asked."""

    code = "layer"


class StateDictError(GpujitError, RuntimeError):
    """A state_dict does not fit the module it is loaded into; names the keys and shapes."""

    code = "state-dict"


class OpError(GpujitError, RuntimeError):
    """An operator refused its inputs. Raised by op bodies; the interpreter adds the model's source line."""

    code = "op"


class ShapeError(OpError):
    """Shapes, ranks, dims or indices do not fit."""

    code = "shape"


class DTypeError(OpError):
    """A dtype an operator does not take, or a result that cannot be cast to where it must go."""

    code = "dtype"


class DeviceError(OpError):
    """A device that is not there, or arrays on different devices."""

    code = "device"


class UnknownOperatorError(OpError):
    """A program reached an operator that has no entry in the table."""

    code = "unknown-operator"


class ScriptRuntimeError(GpujitError, RuntimeError):
    """Running a program failed. ``where`` holds the traceback of the serialized code, and of the author's if known."""

    code = "run"


class ScriptRaised(ScriptRuntimeError):
    """The program itself raised (``raise`` or ``assert`` in the model). ``class_name`` is the Python class it named."""

    code = "raised"

    def __init__(self, message: str, *, class_name: str = "", where: str = "") -> None:
        self.class_name = class_name
        super().__init__(message, where=where)


class FreezeError(GpujitError, RuntimeError):
    """A module cannot be frozen as asked: it is in training mode, or a name to be preserved is unknown."""

    code = "freeze"


class TraceError(GpujitError, RuntimeError):
    """A function cannot be traced: it does something to traced values that no graph can hold. ``where`` is its line."""

    code = "trace"


class TraceCheckError(TraceError):
    """What was traced does not compute what the function computes."""

    code = "trace-check"


class PaddingError(GpujitError, RuntimeError):
    """Inputs cannot be padded to a bucket: it is not proven that results stay the same. ``where`` is the operator's."""

    code = "padding"


class SaveError(GpujitError, RuntimeError):
    """A module cannot be saved: it holds something no archive can (the message names it), or the target fails."""

    code = "save"


class LimitError(GpujitError, RuntimeError):
    """A limit on size, depth, steps or memory was reached."""

    code = "limit"


class InternalError(GpujitError):
    """A fault of gpujit's own. Please report it with the text it prints."""

    code = "internal"


class FusionWarning(UserWarning):
    """A group of operators could not be fused and runs operator by operator: the same numbers, more slowly."""


class CacheWarning(UserWarning):
    """Compiled kernels cannot be kept on disk: all works, and every process compiles anew."""


class TracerWarning(Warning):
    """A trace does not hold something the function does: a branch, a loop count, a number that Python took."""


# torch.jit's name for what a program raises.
Error = ScriptRaised
