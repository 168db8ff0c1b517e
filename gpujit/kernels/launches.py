"""What a step of a plan on a GPU consists of: kernels to launch and calls of libraries, on arrays not yet known.

A ``DeviceStep`` is data: no driver, no device memory. Its arrays are numbered: the operands, then the results. Who runs
it knows their addresses, gives it scratch memory and zeroed flags, and puts its calls on a stream in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Array numbers that stand for memory of the step's own.
SCRATCH, FLAGS = -1, -2


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A kernel's source, as ``numba_cuda`` writes it, and what its code depends on besides.

    ``arguments`` are types as ``numba_cuda.argument_types`` gives them. ``label`` is for people.
    """

    source: str
    arguments: tuple[str, ...]
    block: int
    label: str


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an array (or SCRATCH, FLAGS), and bytes to add to it."""

    array: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Number:
    """A number and its type, as in ``DeviceKernel.arguments``."""

    value: int | float
    type: str


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel with ``grid`` blocks, of which a device may use fewer: kernels go on in strides."""

    kernel: DeviceKernel
    grid: int
    arguments: tuple[Address | Number, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A batch of matrices of ``rows`` by ``columns`` elements: element (b, i, j) lies b * batch + i * row + j * column
    elements behind the address; ``row`` or ``column`` is 1."""

    at: Address
    rows: int
    columns: int
    row: int
    column: int
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Gemm:
    """``out = alpha * a @ b + beta * out + bias``, then ``ending`` ("", "relu" or "gelu"), for ``batches`` matrices.

    ``bias`` has an element for each column of ``out``. Sums are float32 for half types; TF32 is used only if asked.
    """

    a: Matrix
    b: Matrix
    out: Matrix
    batches: int
    dtype: np.dtype
    alpha: float = 1.0
    beta: float = 0.0
    bias: Address | None = None
    ending: str = ""


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of one to three dims by a library: images ``x`` (n, c, ...) and weights (k, c / groups, ...), both
    contiguous, to a contiguous ``out``, plus ``bias`` for each of the k."""

    x: Address
    weight: Address
    out: Address
    bias: Address | None
    x_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    dtype: np.dtype


Call = Launch | Gemm | Convolution


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """The calls of one node.

    ``scratch``: bytes of memory of its own. ``checks``: the message of each int32 flag that a kernel sets when its
    check fails. ``overwrites[k]``: operands that result k may be written over. ``constants``: arrays (weights in other
    layouts) that follow the results in the numbering, and go to the device once. Calls in the range ``restates`` only
    copy the first operand to the first result: they are left out where that is written over it.
    """

    calls: tuple[Call, ...]
    scratch: int = 0
    checks: tuple[str, ...] = ()
    overwrites: tuple[tuple[int, ...], ...] = ()
    constants: tuple[np.ndarray, ...] = ()
    restates: tuple[int, int] = (0, 0)
