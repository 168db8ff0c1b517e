"""What a step of a plan on a GPU consists of: kernels to launch and calls of libraries, on arrays not yet known.

A ``DeviceStep`` is data: no driver, no device memory. Its arrays are numbered: the operands, then the results. Who runs
it knows their addresses, gives it scratch memory and zeroed flags, and puts its calls on a stream in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

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
class Layout:
    """A tensor's sizes, and its strides in elements."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]

    @classmethod
    def together(cls, shape: tuple[int, ...]) -> Layout:
        """That of a contiguous tensor."""
        return cls(shape, tuple(prod(shape[d + 1 :]) for d in range(len(shape))))


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of one to three dims: images (n, c, ...) and weights (k, c / groups, ...), both contiguous, to a
    contiguous result, plus a bias for each of the k. ``before`` and ``after``: zeros around images.

    Sums of half types are float32. ``tf32``: whether float32 numbers may be rounded to TF32.
    """

    x_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    has_bias: bool
    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    dtype: np.dtype
    tf32: bool = False

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Of images, weights, the bias if there is one, and the result."""
        bias = ((1, self.out_shape[1], *[1] * len(self.stride)),) if self.has_bias else ()
        return tuple(map(Layout.together, (self.x_shape, self.weight_shape, *bias, self.out_shape)))


@dataclass(frozen=True, slots=True)
class Attention:
    """``softmax(scale * q @ k^T + bias) @ v`` of tensors (batch, heads, rows, numbers); heads of ``k`` and ``v`` may
    serve several of ``q``. ``is_causal`` hides keys behind a query's own place, counted from the first.

    A bias has 1 where it is the same along a dim. Sums are float32.
    """

    q: Layout
    k: Layout
    v: Layout
    out: Layout
    bias: Layout | None
    scale: float
    is_causal: bool
    dtype: np.dtype

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Of q, k, v, the bias if there is one, and the result."""
        return (self.q, self.k, self.v, *(() if self.bias is None else (self.bias,)), self.out)


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """What a device's library does on arrays, which are those that ``work.layouts`` tells of. It works in ``room``
    bytes of the step's own memory."""

    work: Convolution | Attention
    arrays: tuple[Address, ...]
    workspace: Address
    room: int


Call = Launch | Gemm | LibraryCall


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
