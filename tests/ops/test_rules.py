"""What is inferred from types alone: a table of calls with sizes, ranks and values not known, and random ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.ir.types import TensorType
from gpujit.ops import table
from gpujit.ops.infer import infer
from gpujit.ops.infer_check import admits
from gpujit.ops.rules.common import UNKNOWN, ListOf, Unknown
from gpujit.support.errors import DTypeError, ShapeError
from tests.ops.check import run

U = None
ANY_INT = Unknown(int)


def typed(code: int, *sizes: int | None) -> TensorType:
    """A tensor type of a dtype's code and sizes."""
    return TensorType(code, sizes)


def f(*sizes: int | None) -> TensorType:
    """float32."""
    return typed(6, *sizes)


def h(*sizes: int | None) -> TensorType:
    """float16."""
    return typed(5, *sizes)


def i(*sizes: int | None) -> TensorType:
    """int64."""
    return typed(4, *sizes)


def b(*sizes: int | None) -> TensorType:
    """bool."""
    return typed(11, *sizes)


F, I64 = TensorType(6), TensorType(4)  # unknown rank

CASES: list[tuple[str, list[Any], Any]] = [
    # Pointwise: broadcasting, promotion, categories.
    ("add.Tensor", [f(U, 3), f(1, U)], f(U, 3)),
    ("add.Tensor", [f(U, 3), f(5, 1)], f(5, 3)),
    ("add.Tensor", [f(U), f(1)], f(U)),
    ("add.Tensor", [i(2), f()], f(2)),
    ("add.Tensor", [i(2), typed(7)], typed(7, 2)),
    ("add.Tensor", [h(2), f()], h(2)),
    ("add.Tensor", [h(2), f(1)], f(2)),
    ("add.Scalar", [i(U), 1.5], f(U)),
    ("add.Scalar", [i(U), Unknown(float)], f(U)),
    ("add.Scalar", [i(U), UNKNOWN], TensorType(None, (U,))),
    ("add.Scalar", [f(U), Unknown(int)], f(U)),
    ("mul.Tensor", [F, f(3)], F),
    ("eq.Tensor", [TensorType(), f(3)], TensorType(11)),
    ("sqrt", [i(2, U)], f(2, U)),
    ("abs", [typed(9, 2)], f(2)),
    ("where.self", [b(U, 1), f(4), f(2, 1)], f(2, 4)),
    ("relu_", [f(U, 2)], f(U, 2)),
    ("add.out", [f(U), f(3), 1, f(U)], f(3)),
    # Reductions.
    ("sum", [i(U, U)], i()),
    ("sum.dim_IntList", [b(2, U, 4), [1], False], i(2, 4)),
    ("sum.dim_IntList", [f(2, U, 4), [-1, 0], True], f(1, U, 1)),
    ("sum.dim_IntList", [f(2, 3), [], False], f()),
    ("sum.dim_IntList", [f(2, 3), [0], False, 7], typed(7, 3)),
    ("sum.dim_IntList", [F, [0], False], F),
    ("mean.dim", [h(U, 3), [0], True], h(1, 3)),
    ("var.correction", [typed(9, 2, 3), [1]], f(2)),
    ("any.dim", [typed(0, 2, 3), 1], typed(0, 2)),
    ("argmax", [f(2, 3), 1, True], i(2, 1)),
    ("argmax", [f(2, 3), ANY_INT, False], i(U)),
    ("max.dim", [f(U, 3), 1], (f(U), i(U))),
    ("cumsum", [b(U, 3), 0], i(U, 3)),
    ("topk", [f(U, 9), 4], (f(U, 4), i(U, 4))),
    ("topk", [f(U, 9), ANY_INT], (f(U, U), i(U, U))),
    ("sort", [f(U)], (f(U), i(U))),
    # Softmax, norms, losses.
    ("softmax.int", [h(U, 3), -1], h(U, 3)),
    ("softmax.int", [h(U, 3), -1, 6], f(U, 3)),
    ("softmax.int", [F, -1], F),
    ("layer_norm", [f(U, 4, 8), [8], f(8), f(8)], f(U, 4, 8)),
    ("batch_norm", [f(U, 3, 4, 4), f(3), f(3), f(3), f(3), False, 0.1, 1e-5, True], f(U, 3, 4, 4)),
    ("native_layer_norm", [f(U, 4, 8), [8], None, None, 1e-5], (f(U, 4, 8), f(U, 4, 1), f(U, 4, 1))),
    ("mse_loss", [f(U, 3), f(U, 3)], f()),
    ("mse_loss", [f(U, 3), f(U, 3), 0], f(U, 3)),
    ("cross_entropy_loss", [f(U, 9, 4), i(U, 4), None, 0], f(U, 4)),
    # Products.
    ("matmul", [f(U, 3, 4), f(4, 5)], f(U, 3, 5)),
    ("matmul", [f(4), f(2, 4, U)], f(2, U)),
    ("mm", [F, f(4, U)], f(U, U)),
    ("bmm", [f(U, 3, 4), f(2, 4, 5)], f(2, 3, 5)),
    ("linear", [h(U, U, 4), h(7, 4), h(7)], h(U, U, 7)),
    ("addmm", [f(5), f(U, 4), f(4, 5)], f(U, 5)),
    ("einsum", ["bij,bjk->bik", [f(U, 3, 4), f(2, 4, U)]], f(2, 3, U)),
    ("einsum", ["...ij->...ji", [f(U, 2, 3, 4)]], f(U, 2, 4, 3)),
    ("einsum", ["ii", [f(3, 3)]], f()),
    ("scaled_dot_product_attention", [h(U, 8, U, 64), h(U, 8, 77, 64), h(U, 8, 77, 32)], h(U, 8, U, 32)),
    # Windows.
    ("conv2d", [f(U, 3, 224, U), f(8, 3, 3, 3), None, [2, 2], [1, 1]], f(U, 8, 112, U)),
    ("conv2d", [f(3, 10, 10), f(8, 3, 3, 3)], f(8, 8, 8)),
    ("conv1d.padding", [f(2, 3, U), f(4, 3, 5), None, [1], "same"], f(2, 4, U)),
    ("conv_transpose2d.input", [f(U, 4, 7, 7), f(4, 2, 3, 3), None, [2, 2], [1, 1], [1, 1], 3], f(U, 6, 14, 14)),
    ("max_pool2d", [f(U, 3, 7, 8), [3, 3], [2, 2], [0, 0], [1, 1], True], f(U, 3, 3, 4)),
    ("max_pool2d", [f(3, 7, U), [3]], f(3, 2, U)),
    ("avg_pool1d", [f(2, 3, 9), [2], ANY_INT], f(2, 3, U)),
    ("adaptive_avg_pool2d", [f(U, 9, U, U), [1, 1]], f(U, 9, 1, 1)),
    ("upsample_nearest2d.vec", [f(U, 3, 4, 5), None, [2.0, 1.5]], f(U, 3, 8, 7)),
    ("upsample_bilinear2d", [f(U, 3, 4, U), [8, 9], False], f(U, 3, 8, 9)),
    ("pixel_shuffle", [f(U, 8, 3, U), 2], f(U, 2, 6, U)),
    ("torchvision::roi_align", [f(2, 9, U, U), f(U, 5), 1.0, 7, 7, 2, False], f(U, 9, 7, 7)),
    # Views.
    ("view", [f(U, 3, 4), [-1, 12]], f(U, 12)),
    ("view", [f(2, 3, 4), [-1, 12]], f(2, 12)),
    ("view", [f(2, 3, 4), [ANY_INT, 12]], f(2, 12)),
    ("view", [F, [2, -1]], f(2, U)),
    ("view", [F, UNKNOWN], F),
    ("reshape", [f(U, 4), [ANY_INT, 2, -1]], f(U, 2, U)),
    ("flatten.using_ints", [f(U, 3, 4), 1], f(U, 12)),
    ("unflatten.int", [f(2, U), 1, [3, -1]], f(2, 3, U)),
    ("expand", [f(1, U), [5, -1]], f(5, U)),
    ("expand", [f(U, 3), [7, 3]], f(7, 3)),
    ("permute", [f(1, U, 3), [2, 0, 1]], f(3, 1, U)),
    ("transpose.int", [f(1, U, 3), -1, 0], f(3, U, 1)),
    ("transpose_", [f(2, U), 0, 1], f(U, 2)),
    ("select.int", [f(2, U, 4), 1, 0], f(2, 4)),
    ("slice.Tensor", [f(9, U), 0, 1, 8, 3], f(3, U)),
    ("slice.Tensor", [f(U), 0, 0, None, 1], f(U)),
    ("narrow", [f(U, 3), 0, ANY_INT, 2], f(2, 3)),
    ("squeeze", [f(1, 3, 1)], f(3)),
    ("squeeze", [f(U, 3, 1)], F),
    ("squeeze.dim", [f(U, 1), 1], f(U)),
    ("unsqueeze", [f(U, 3), -1], f(U, 3, 1)),
    ("unsqueeze", [f(U, 3), ANY_INT], f(U, U, U)),
    ("unfold", [f(2, 10), 1, 4, 3], f(2, 3, 4)),
    ("diagonal", [f(2, 3, U), 1, 0, 1], f(U, 2)),
    ("movedim.int", [f(1, 2, U), 0, 2], f(2, U, 1)),
    ("as_strided", [F, [2, ANY_INT], [1, 1]], f(2, U)),
    ("view_as_real", [typed(9, U)], f(U, 2)),
    ("to.dtype", [F, 4], I64),
    ("to.dtype", [f(2), ANY_INT], TensorType(None, (2,))),
    # Joins and splits.
    ("cat", [[f(U, 3), f(2, 3)], 0], f(U, 3)),
    ("cat", [[f(4, U), i(2, 3)], 0], f(6, 3)),
    ("stack", [[f(U, 3), f(2, U)], 1], f(2, 2, 3)),
    ("split.Tensor", [f(7, U), 3], [f(3, U), f(3, U), f(1, U)]),
    ("split.Tensor", [f(U, 2), 3], ListOf(f(U, 2))),
    ("chunk", [f(2, 7), 3, 1], [f(2, 3), f(2, 3), f(2, 1)]),
    ("unbind.int", [f(2, U)], [f(U), f(U)]),
    ("tensor_split.sections", [f(7), 3], [f(3), f(2), f(2)]),
    ("repeat", [f(U, 3), [2, 1, 2]], f(2, U, 6)),
    ("pad", [f(U, 4), [1, 2]], f(U, 7)),
    ("meshgrid", [[f(2), f(U)]], [f(2, U), f(2, U)]),
    # Indexing.
    ("index.Tensor", [f(5, U, 7), [None, i(2, 3)]], f(5, 2, 3, 7)),
    ("index.Tensor", [f(5, 6, 7), [i(3), None, i(3)]], f(3, 6)),
    ("index.Tensor", [f(5, 6), [b(5)]], f(U, 6)),
    ("index_select", [f(5, 6), 1, i(U)], f(5, U)),
    ("gather", [f(U, 6), 1, i(4, 2)], f(4, 2)),
    ("embedding", [h(100, 16), i(U, 7)], h(U, 7, 16)),
    ("nonzero", [f(U, 3)], i(U, 2)),
    ("masked_select", [f(2, 3), b(2, 3)], f(U)),
    ("one_hot", [i(U), 5], i(U, 5)),
    ("one_hot", [i(U)], i(U, U)),
    ("torchvision::nms", [f(9, 4), f(9), 0.5], i(U)),
    ("_unique2", [f(9), True, True, False], (f(U), i(9), i(0))),
    ("repeat_interleave.self_Tensor", [f(2, 3), i(2), 0, ANY_INT], f(U, 3)),
    # Factories.
    ("zeros", [[2, ANY_INT]], f(2, U)),
    ("zeros", [UNKNOWN, 4], I64),
    ("full", [[2], 1], i(2)),
    ("full", [[2], True, 15], typed(15, 2)),
    ("arange", [5], i(5)),
    ("arange.start_step", [1, 8.5, 2], f(4)),
    ("arange", [ANY_INT], i(U)),
    ("linspace", [0, 1, 7], f(7)),
    ("zeros_like", [h(U)], h(U)),
    ("rand_like", [h(U, 2)], h(U, 2)),
    ("randint", [9, [U, 2][1:]], i(2)),
    ("tril_indices", [3, 4], i(2, 6)),
    # Recurrent layers, spectra.
    (
        "lstm.input",
        [f(U, 3, 4), [f(2, 3, 6), f(2, 3, 6)], [], True, 1, 0.0, False, True, False],
        (f(U, 3, 12), f(2, 3, 6), f(2, 3, 6)),
    ),
    ("gru_cell", [f(U, 4), f(U, 6), f(18, 4), f(18, 6)], f(U, 6)),
    ("fft_rfft", [f(U, 10)], typed(9, U, 6)),
    ("fft_irfft", [typed(9, U, 6)], f(U, 10)),
    ("stft", [f(U, 400), 40, 10, None, None, False, None, True], typed(9, U, 21, 37)),
    # By probing.
    ("glu_backward", [f(U, 3), f(U, 6), 1], f(U, 6)),
    ("linalg_qr", [f(U, 5, 3)], (f(U, 5, 3), f(U, 3, 3))),
    ("linalg_qr", [f(2, 5, U)], (f(2, 5, U), f(2, U, U))),
    ("linalg_solve", [f(1000, 1000), f(1000, 7)], f(1000, 7)),
    ("trace", [i(U, U)], i()),
    # Values.
    ("size.int", [f(U, 3), 1], 3),
    ("size", [f(2, 3)], [2, 3]),
    ("dim", [f(U, 3)], 2),
    ("numel", [f(2, 3)], 6),
    ("is_floating_point", [I64], False),
    ("__is__", [f(2), None], False),
    ("add.int", [2, 3], 5),
    ("len.t", [[f(1), f(2)]], 2),
    ("__getitem__.t", [[f(1), i(2)], -1], i(2)),
    # Quantised.
    ("quantize_per_tensor", [f(U, 3), 0.1, 0, 13], typed(13, U, 3)),
    ("relu", [typed(13, U, 3)], typed(13, U, 3)),
    ("cat", [[typed(13, U, 3), typed(13, 2, 3)], 1 - 1], typed(13, U, 3)),
    ("dequantize.self", [typed(13, U, 3)], f(U, 3)),
    ("quantized::linear", [typed(13, U, 3), UNKNOWN, 0.1, 0], typed(13, U, U)),
]


def named(name: str) -> Any:
    """The entry of a short name."""
    op = table.by_full_name(name if "::" in name else f"aten::{name}")
    assert op is not None, name
    return op


@pytest.mark.parametrize(("name", "args", "expected"), CASES, ids=[f"{n}-{k}" for k, (n, *_) in enumerate(CASES)])
def test_inferred(name: str, args: list[Any], expected: Any) -> None:
    assert repr(infer(named(name), args)) == repr(expected)


REFUSED: list[tuple[str, list[Any], type[Exception], str]] = [
    ("add.Tensor", [f(2), f(3)], ShapeError, r"aten::add.Tensor: shapes \[2\] and \[3\] do not broadcast"),
    ("bitwise_and.Tensor", [f(2), i(2)], DTypeError, "aten::bitwise_and"),
    ("matmul", [f(2, 3), f(4, 5)], ShapeError, "aten::matmul"),
    ("matmul", [f(2, 3), h(3, 5)], DTypeError, "aten::matmul"),
    ("conv2d", [f(1, 3, 9, 9), f(8, 4, 3, 3)], ShapeError, "aten::conv2d: input has 3 channels"),
    ("conv2d", [f(1, 3, 2, 2), f(8, 3, 5, 5)], ShapeError, "aten::conv2d"),
    ("view", [f(2, 3), [4, 2]], ShapeError, "aten::view"),
    ("view", [f(2, 3), [-1, 4]], ShapeError, "aten::view"),
    ("cat", [[f(2, 3), f(2, 4)], 0], ShapeError, "aten::cat"),
    ("expand", [f(2, 3), [2, 4]], ShapeError, "aten::expand"),
    ("softmax.int", [f(2, 3), 2], ShapeError, "dim 2 is out of range"),
    ("select.int", [f(2), 0, 5], ShapeError, "index 5"),
    ("add_.Tensor", [i(2), f(2)], DTypeError, "can't be cast"),
    ("add_.Tensor", [f(2), f(3, 2)], ShapeError, "aten::add_"),
    ("layer_norm", [f(2, 3), [4]], ShapeError, "normalized_shape"),
    ("zeros", [[-1]], ShapeError, "negative"),
]


@pytest.mark.parametrize(
    ("name", "args", "error", "text"), REFUSED, ids=[f"{n}-{k}" for k, (n, *_) in enumerate(REFUSED)]
)
def test_what_cannot_fit_is_refused(name: str, args: list[Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        infer(named(name), args)


# -------------------------------------------------------------------------------------------- random shapes


def hide(draw: st.DrawFn, array: np.ndarray) -> TensorType:
    """The array's type with some sizes not known."""
    return TensorType(6, tuple(None if draw(st.booleans()) else n for n in array.shape))


@st.composite
def broadcasting(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, TensorType, TensorType]:
    """Two arrays that broadcast, and types that hide some of their sizes."""
    shape = draw(st.lists(st.integers(0, 3), max_size=4))

    def part() -> np.ndarray:
        kept = shape[draw(st.integers(0, len(shape))) :]
        return np.zeros([1 if draw(st.booleans()) else n for n in kept], np.float32)

    a, b = part(), part()
    return a, b, hide(draw, a), hide(draw, b)


@settings(max_examples=200, deadline=None)
@given(broadcasting())
def test_broadcasting_admits_what_is_returned(case: tuple[np.ndarray, np.ndarray, TensorType, TensorType]) -> None:
    x, y, x_type, y_type = case
    assert admits(infer(named("add.Tensor"), [x_type, y_type]), run("aten::add.Tensor", x, y))


@st.composite
def viewing(draw: st.DrawFn) -> tuple[str, np.ndarray, list[Any], TensorType]:
    """A view operator, an array, arguments that it takes, and a type that hides some sizes."""
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    x = np.zeros(shape, np.float32)
    rank = len(shape)
    dims = st.integers(-rank, rank - 1)
    name = draw(
        st.sampled_from(
            ("view", "flatten.using_ints", "permute", "transpose.int", "select.int", "slice.Tensor", "squeeze",
             "squeeze.dim", "unsqueeze", "expand", "unfold", "chunk", "split.Tensor", "unbind.int", "movedim.int")
        )
    )  # fmt: skip
    d = draw(dims)
    n = shape[d]
    if name == "view":
        order = draw(st.permutations(shape))
        size = list(order)
        if draw(st.booleans()):
            size[draw(st.integers(0, rank - 1))] = -1
        args: list[Any] = [size]
    elif name == "flatten.using_ints":
        start = draw(st.integers(0, rank - 1))
        args = [start, draw(st.integers(start, rank - 1))]
    elif name == "permute":
        args = [draw(st.permutations(range(rank)))]
    elif name in ("transpose.int", "movedim.int"):
        args = [d, draw(dims)]
    elif name == "select.int":
        args = [d, draw(st.integers(-n, n - 1))]
    elif name == "slice.Tensor":
        ends = st.one_of(st.none(), st.integers(-9, 9))
        args = [d, draw(ends), draw(ends), draw(st.integers(1, 3))]
    elif name == "squeeze":
        args = []
    elif name == "expand":
        args = [[draw(st.integers(0, 3)), *(draw(st.sampled_from([-1, 5 if m == 1 else m])) for m in shape)]]
    elif name == "unfold":
        args = [d, draw(st.integers(1, n)), draw(st.integers(1, 3))]
    elif name in ("chunk", "split.Tensor"):
        args = [draw(st.integers(1, 5)), d]
    else:
        args = [d]
    return f"aten::{name}", x, args, hide(draw, x)


@settings(max_examples=400, deadline=None)
@given(viewing())
def test_views_admit_what_is_returned(case: tuple[str, np.ndarray, list[Any], TensorType]) -> None:
    name, x, args, hidden = case
    result = run(name, x, *args)
    assert admits(infer(named(name), [hidden, *args]), result)
    known = infer(named(name), [TensorType(6, x.shape), *args])
    shapes = [t.shape for t in (known if isinstance(known, list) else [known])]
    assert shapes == [r.shape for r in (result if isinstance(result, list) else [result])]
