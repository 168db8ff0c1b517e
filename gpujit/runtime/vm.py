"""The interpreter: one loop over instructions, one register file a frame.

Threads may run one Code at the same time: a run's state is its register file. Exceptions leave with both tracebacks,
that of the serialized code and, when the archive holds debug tables, that of the author's files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpujit.ir.source import CallSite, SourceRange
from gpujit.ir.values import Future, ScriptObject
from gpujit.runtime import bytecode as bc
from gpujit.runtime.lower import Lowerer
from gpujit.support.errors import GpujitError, InternalError, LimitError, OpError, ScriptRaised, ScriptRuntimeError

# Frames of calls that were not inlined; each costs two of Python's.
MAX_CALL_DEPTH = 200


class Interpreter:
    """Runs codes of one Lowerer."""

    def __init__(self, lowerer: Lowerer) -> None:
        self.lowerer = lowerer

    def run(self, code: bc.Code, args: Sequence[Any], depth: int = 0) -> Any:
        """The value the code returns for run-time values ``args``.

        Raises ScriptRaised when the program raised, ScriptRuntimeError (or the operator's own class) when an operator
        failed; the text ends with the tracebacks.
        """
        # Locals are quicker than names of a module: this loop is all the interpreter does.
        (OP1, OP2, OP3, OP, OPM, GET, SET, LIST, TUPLE, UNPACK, LISTUNPACK, JUMP_FALSE, JUMP, MOVE, LOOP, NEXT, CALL,
         CALLM, RAISE, FREE, ENTER, EXIT, FORK, RETURN) = range(24)  # fmt: skip
        instructions = code.instructions
        r = code.template.copy()
        r[: len(args)] = args
        entered: list[ScriptObject] = []
        pc = 0
        try:
            while True:
                i = instructions[pc]
                pc += 1
                op = i[0]
                if op == OP2:
                    r[i[4]] = i[1](r[i[2]], r[i[3]])
                elif op == GET:
                    r[i[3]] = r[i[1]].slots[i[2]]
                elif op == OP1:
                    r[i[3]] = i[1](r[i[2]])
                elif op == OP:
                    r[i[3]] = i[1](*[r[k] for k in i[2]])
                elif op == OP3:
                    r[i[5]] = i[1](r[i[2]], r[i[3]], r[i[4]])
                elif op == JUMP_FALSE:
                    if not r[i[1]]:
                        pc = i[2]
                elif op == LIST:
                    r[i[2]] = [r[k] for k in i[1]]
                elif op == MOVE:
                    pairs = i[1]
                    if len(pairs) == 1:
                        ((a, b),) = pairs
                        r[b] = r[a]
                    else:
                        values = [r[a] for a, _ in pairs]
                        for (_, b), v in zip(pairs, values, strict=True):
                            r[b] = v
                elif op == TUPLE:
                    r[i[2]] = tuple([r[k] for k in i[1]])
                elif op == JUMP:
                    pc = i[1]
                elif op == SET:
                    r[i[1]].slots[i[2]] = r[i[3]]
                elif op == LOOP:
                    if not r[i[3]] or r[i[1]] >= r[i[2]]:
                        pc = i[4]
                elif op == NEXT:
                    r[i[1]] += 1
                    pc = i[2]
                elif op == UNPACK:
                    for k, v in zip(i[2], r[i[1]], strict=True):
                        r[k] = v
                elif op == OPM:
                    for k, v in zip(i[3], i[1](*[r[k] for k in i[2]]), strict=True):
                        r[k] = v
                elif op == LISTUNPACK:
                    items = r[i[1]]
                    if len(items) != len(i[2]):
                        raise OpError(f"expected {len(i[2])} elements in a list but found {len(items)}")
                    for k, v in zip(i[2], items, strict=True):
                        r[k] = v
                elif op == RETURN:
                    return r[i[1]]
                elif op == CALL:
                    r[i[3]] = self.call(i[1](), [r[k] for k in i[2]], depth)
                elif op == CALLM:
                    values = [r[k] for k in i[2]]
                    r[i[3]] = self.call_method(values[0], i[1], values, depth)
                elif op == RAISE:
                    raise ScriptRaised(str(r[i[1]]), class_name=str(r[i[2]]) if i[2] >= 0 and r[i[2]] else "")
                elif op == FREE:
                    pass
                elif op == ENTER:
                    manager = r[i[1]]
                    r[i[2]] = self.call_method(manager, "__enter__", [manager], depth)
                    entered.append(manager)
                elif op == EXIT:
                    manager = entered.pop()
                    r[i[2]] = self.leave(manager, depth)
                elif op == FORK:
                    r[i[3]] = self.fork(i[1], [r[k] for k in i[2]], depth)
                else:
                    raise InternalError(f"opcode {op} is not known")
                for k in i[-1]:
                    r[k] = None
        except Exception as e:
            while entered:
                self.leave(entered.pop(), depth)
            raise _located(e, code, pc - 1) from None

    def call(self, code: bc.Code, args: Sequence[Any], depth: int) -> Any:
        if depth >= MAX_CALL_DEPTH:
            raise LimitError(f"calls are nested more than {MAX_CALL_DEPTH} deep; does the model call itself for ever?")
        return self.run(code, args, depth + 1)

    def call_method(self, owner: Any, name: str, args: Sequence[Any], depth: int) -> Any:
        """Call a method the object decides on at run time (interfaces)."""
        if isinstance(owner, ScriptObject):
            method = owner.type.methods.get(name)
            if method is not None:
                return self.call(self.lowerer.code(method), args, depth)
            kind = owner.type.name
        else:
            found = getattr(owner, "script_methods", {}).get(name)
            if found is not None:
                return found(*args)
            kind = type(owner).__name__
        raise OpError(f"an object of {kind} has no method {name!r}")

    def leave(self, manager: ScriptObject, depth: int) -> Any:
        """Run ``__exit__`` with no exception, as TorchScript does even when one is under way."""
        method = manager.type.methods["__exit__"]
        missing = len(method.schema.arguments) - 1
        return self.call(self.lowerer.code(method), [manager, *[None] * missing], depth)

    def fork(self, code: bc.Code, args: Sequence[Any], depth: int) -> Future:
        """Run a fork's body now; what it raises waits for ``wait``."""
        try:
            return Future(self.call(code, args, depth))
        except Exception as e:
            return Future(error=e)


# ---------------------------------------------------------------------------------------------------- tracebacks


def _located(error: Exception, code: bc.Code, pc: int) -> Exception:
    """The error to raise for one that came out of instruction ``pc``: with this frame's places added."""
    place, call = code.places[pc]
    frames = list(_frames(code.name, place, call))
    if isinstance(error, GpujitError) and error.frames:
        error.frames += frames
        _set_where(error)
        return error
    kind = code.kinds[pc]
    located: GpujitError
    if isinstance(error, RecursionError):
        located = LimitError("calls are nested too deeply for this thread's stack")
    elif isinstance(error, GpujitError):
        located = error
        if (
            isinstance(error, OpError)
            and "::" in kind
            and kind not in error.message
            and kind.split("::")[1] not in error.message
        ):
            error.message = f"{kind}: {error.message}"
    else:
        located = ScriptRuntimeError(f"{kind or 'call'}: {_first_line(error)}")
        if isinstance(error, MemoryError):
            located.message = f"{kind or 'call'}: there is no memory for the result ({_first_line(error)})"
            located.code = "memory"
    located.frames = frames
    _set_where(located)
    return located


def _first_line(error: Exception) -> str:
    text = str(error).strip().split("\n")[0][:500]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _frames(name: str, place: SourceRange | None, call: CallSite | None) -> Any:
    """(function, range) from the innermost frame outwards."""
    site = call
    while site is not None:
        yield site.function, place
        place, site = site.range, site.parent
    yield name, place


def _set_where(error: GpujitError) -> None:
    serialized: list[str] = []
    original: list[str] = []
    # The most recent call comes last. A long recursion is cut in its middle.
    frames = error.frames
    shown = frames if len(frames) <= 24 else [*frames[:12], *frames[-12:]]
    for function, place in reversed(shown):
        if place is None:
            continue
        name = function.rpartition(".")[2] or function
        serialized.append(f'  File "{place.source.name}", line {place.shown_line}, in {name}\n{place.highlight()}')
        first = place.original()
        if first is not None:
            original.append(f'  File "{first.source.name}", line {first.shown_line}, in {name}\n{first.highlight()}')
    parts = []
    if serialized:
        parts.append("Traceback of TorchScript, serialized code (most recent call last):\n" + "\n".join(serialized))
    if original:
        parts.append("Traceback of TorchScript, original code (most recent call last):\n" + "\n".join(original))
    if isinstance(error, ScriptRaised):
        parts.append(f"{error.class_name or 'RuntimeError'}: {error.message}")
    error.where = "\n".join(parts)
