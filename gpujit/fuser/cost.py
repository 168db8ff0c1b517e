"""What fusing is worth: limits of a group, and a simple model of time in nanoseconds.

The numbers were measured on one core of an x86-64 machine with AVX2; only their ratios matter, and those are much the
same elsewhere. An operator that runs by itself pays for its call and for one pass over memory for each instruction. A
kernel pays for its call, for its instructions, which run many elements at a time, and for reading and writing once.
"""

from __future__ import annotations

from math import prod

from gpujit.fuser.facts import Fact
from gpujit.fuser.lower import Lowered
from gpujit.fuser.tensors import bytes_of, is_tensor
from gpujit.ir.scalar import HEAVY_COST, SCALAR_OPS
from gpujit.kernels.tile import Call, Compute, Const, Load, Reduce

# Beyond these a kernel runs out of registers, and its code grows without gain.
MAX_INPUTS = 24
MAX_OUTPUTS = 12
MAX_NODES = 48
# Units of fewer points are worth one kernel for the calls that saves, even when they share nothing.
SMALL = 8192

# A kernel's call, and an operator's.
CALL = 2700.0
OPERATOR = 1800.0
# How many array operations one over rows consists of, at least.
ROW_OPERATIONS = 3
# A byte that goes through memory, in a kernel and as an operator's operand.
BYTE = 0.04
# An instruction for one element, in a kernel and as an array operation.
INSTRUCTION = 0.02
ARRAY_INSTRUCTION = 0.15
# What finding an element by a division costs beside an instruction, and an element anywhere in memory.
DIVISION = 60
ANYWHERE = 16


def alone(fact: Fact) -> float:
    """Time of a node that runs as an operator."""
    moved = sum(bytes_of(v) for v in (*fact.node.inputs, *fact.node.outputs) if is_tensor(v))
    calls = ROW_OPERATIONS if fact.reduces else 1
    return OPERATOR * calls + moved * BYTE + fact.points * fact.cost * ARRAY_INSTRUCTION


def fused(lowered: Lowered) -> float:
    """Time of a kernel."""
    program = lowered.program
    total = CALL + BYTE * sum(map(bytes_of, (*lowered.inputs, *lowered.outputs)))
    for item, dims in zip(program.body, program.varies, strict=True):
        if isinstance(item, Const):
            continue
        cost = 1
        if isinstance(item, Load):
            cost = ANYWHERE if any(i.values() for i in item.coords) else 1
        elif isinstance(item, Call):
            cost = HEAVY_COST
        elif isinstance(item, Compute) and item.op in SCALAR_OPS:
            cost = SCALAR_OPS[item.op].cost
        if isinstance(item, Reduce):
            dims = dims | frozenset(program.row_dims)
        total += INSTRUCTION * cost * prod(lowered.sizes[d] for d in dims)
    return total + INSTRUCTION * DIVISION * lowered.divisions * prod(lowered.sizes)


def again(points: float, cost: int) -> float:
    """Time of computing something at so many more points."""
    return INSTRUCTION * cost * points


def stored(size: int) -> float:
    """Time saved by not storing and reading so many bytes, and by one kernel less."""
    return CALL + 2 * BYTE * size
