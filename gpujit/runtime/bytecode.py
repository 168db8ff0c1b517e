"""What the interpreter runs: instructions over numbered registers.

A Code is one function with everything it calls inlined as far as the budget goes. ``template`` is the register file as
it stands before a call: constants are in place, everything else is None. Each instruction is a tuple whose first item
is one of the opcodes below and whose last item names the registers released after it (their last use).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpujit.ir.source import CallSite, SourceRange

(
    OP1,  # fn, a, out, free: r[out] = fn(r[a])
    OP2,  # fn, a, b, out, free
    OP3,  # fn, a, b, c, out, free
    OP,  # fn, ins, out, free
    OPM,  # fn, ins, outs, free: several results
    GET,  # object, slot, out, free
    SET,  # object, slot, value, free
    LIST,  # ins, out, free
    TUPLE,  # ins, out, free
    UNPACK,  # tuple, outs, free
    LISTUNPACK,  # list, outs, free
    JUMP_FALSE,  # condition, target, free
    JUMP,  # target, free
    MOVE,  # ((source, target), ...), free; all sources are read first
    LOOP,  # counter, max trips, condition, exit target, free: leave the loop or go on
    NEXT,  # counter, head, free: count and jump back to the head
    CALL,  # code getter, ins, out, free
    CALLM,  # method name, ins, out, free: the object decides at run time
    RAISE,  # message, class name (or -1), free
    FREE,  # free
    ENTER,  # object, out, free
    EXIT,  # object, out, free
    FORK,  # code, ins, out, free
    RETURN,  # value, free
) = range(24)

# Names by opcode, for listings.
NAMES = {v: k for k, v in list(globals().items()) if k.isupper() and isinstance(v, int)}

Instruction = tuple[Any, ...]


@dataclass(slots=True, eq=False)
class Code:
    """One function ready to run.

    ``places[i]`` is where instruction ``i`` comes from, ``kinds[i]`` the node kind it was made from.
    """

    name: str
    inputs: int
    instructions: list[Instruction] = field(default_factory=list)
    template: list[Any] = field(default_factory=list)
    places: list[tuple[SourceRange | None, CallSite | None]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.name or 'graph'}: {self.inputs} inputs, {len(self.template)} registers"]
        for i, instruction in enumerate(self.instructions):
            operands = [getattr(x, "__name__", None) or repr(x)[:60] for x in instruction[1:]]
            lines.append(f"{i:5} {NAMES[instruction[0]]:10} {self.kinds[i]:28} {' '.join(operands)}")
        return "\n".join(lines)


CodeGetter = Callable[[], Code]
