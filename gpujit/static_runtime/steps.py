"""What a static plan consists of: options, steps, and where everything lies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.graph import Graph, Node, Value
from gpujit.runtime import bytecode as bc
from gpujit.static_runtime.native import NativeKernel
from gpujit.static_runtime.places import Strides, contiguous
from gpujit.static_runtime.plan import Lifetime, Plan


@dataclass(frozen=True, slots=True)
class Options:
    """What a static module may do, as far as PyTorch's StaticModuleOptions have a meaning here.

    Args:
        enable_out_variant: operators write results into the arena; else only native steps do.
        optimize_memory: values that do not live at the same time share memory.
        reuse_operands: a group may write its result over an operand that nobody reads any more.
        endings: a product or convolution does what follows it alone in the same step: an activation, a sum.
        out_bytes: results of operators that take less are made anew: to write them elsewhere takes longer than that.
        weights: what the constant matrices of products are kept as: "float32", "bfloat16" (half the memory, three
            digits) or "int8" (a quarter; 127 steps for each output). Products are computed in float32 all the same.
        threads: how many threads share the work of one run; None for what the switch ``threads`` says.
    """

    enable_out_variant: bool = True
    optimize_memory: bool = True
    reuse_operands: bool = True
    endings: bool = True
    out_bytes: int = 16_384
    weights: str = "float32"
    threads: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A planned tensor: stands in the code until a runtime puts an array of its arena there."""

    offset: int
    shape: tuple[int, ...]
    strides: Strides
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class NativeStep:
    """A native step of a run: which block word gets which address is in the run."""

    node: Node
    position: int
    kernel: NativeKernel
    first_word: int


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that a native run is given, or makes anew each time, and the block words that name it.

    ``words`` are pairs of a word and the bytes to add to the address.
    """

    value: Value
    shape: tuple[int, ...]
    strides: Strides
    dtype: np.dtype
    words: tuple[tuple[int, int], ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether the last dim lies together, and each one behind it."""
        return self.strides == contiguous(self.shape, self.dtype)


@dataclass(eq=False)
class Segment:
    """Native steps that run in one call. ``made`` are results that outlive the run."""

    number: int
    steps: list[NativeStep]
    given: list[Operand]
    made: list[Operand]


@dataclass(frozen=True, slots=True, eq=False)
class OutStep:
    """An operator that leaves its results in the arena."""

    position: int
    kernel: Callable[..., Any]
    slots: tuple[Slot, ...]


@dataclass(eq=False)
class StaticPlan:
    """Everything about one graph that all its runtimes share.

    ``order`` are its nodes, those of inner blocks behind the node around them, with the blocks' Return nodes.
    ``is_quiet``: no NumPy operator computes in it, so there are no warnings of NumPy's to turn off. ``is_straight``:
    there are no branches or loops in it.
    """

    graph: Graph
    code: bc.Code
    segments: list[Segment]
    words: np.ndarray
    arena_words: np.ndarray
    functions: np.ndarray
    scratch_words: np.ndarray
    flag_words: np.ndarray
    scratch: int
    checks: int
    arena: Plan
    values: list[Value]
    lifetimes: list[Lifetime]
    buffers: list[Lifetime]
    offsets: list[int]
    dtypes: list[np.dtype]
    order: list[Node]
    kinds: dict[Node, str]
    names: dict[Value, str]
    separate: int
    is_quiet: bool
    is_straight: bool
    # Outputs, by position (of a tuple's elements when the only output is a tuple), made in native runs.
    made_outputs: dict[int, Operand] = field(default_factory=dict)
    reads_attributes: bool = False
    # Why nodes whose result a template reads are steps of their own.
    apart: dict[Node, str] = field(default_factory=dict)
    # The dims, the outermost first, of native steps' results that are not contiguous.
    orders: dict[Node, tuple[int, ...]] = field(default_factory=dict)

    def constants(self) -> list[np.ndarray]:
        """Arrays that the graph holds."""
        nodes = self.order[0].graph.all_nodes() if self.order else ()
        found = [n.attributes.get("value") for n in nodes if n.kind == "prim::Constant"]
        return [x for x in found if isinstance(x, np.ndarray)]
