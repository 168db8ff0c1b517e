"""What fusing is worth: rough counts of instructions and bytes, and the limits of a group."""

from __future__ import annotations

from math import prod

from gpujit.fuser.arguments import shape_of
from gpujit.ir.dtypes import numpy_dtype
from gpujit.ir.graph import Node, Value

# Beyond these a kernel runs out of registers, and its code grows without gain.
MAX_INPUTS = 24
MAX_OUTPUTS = 12
MAX_NODES = 48
# Operators whose element costs some twenty instructions or more.
HEAVY = frozenset(
    "exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh sigmoid erf erfc pow gelu silu mish "
    "softplus elu selu celu log_sigmoid logit hypot atan2 fmod remainder floor_divide lgamma digamma".split()
)
# How often a light operator's element may be computed again rather than stored and read.
LIGHT_NODES = 4


def is_heavy(node: Node) -> bool:
    """Whether an element of a node's result costs much to compute."""
    return node.kind.partition("::")[2].rstrip("_") in HEAVY


def bytes_of(value: Value) -> int:
    """Bytes of a tensor of known shape and dtype."""
    code = getattr(value.type, "dtype", None)
    return prod(shape_of(value)) * (4 if code is None else numpy_dtype(code).itemsize)
