"""Constants and casts of a graph in another dtype."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpujit.passes.freeze.convert_dtype import convert_dtype, floating_dtype
from gpujit.support.errors import DTypeError
from gpujit.testing import check_pass

HALF = np.dtype(np.float16)
W, NUMBER, INDEX = np.ones((2, 3), np.float32), np.array(2.5), np.arange(3)


def test_weights_are_converted_numbers_and_integers_stay() -> None:
    check_pass(
        partial(convert_dtype, dtype=HALF),
        before="""
            graph(%x : Float(2, 3)):
              %w : Float(2, 3) = prim::Constant[value=CONSTANTS.c0]()
              %i : Long(3) = prim::Constant[value=CONSTANTS.c1]()
              %k : Double() = prim::Constant[value=CONSTANTS.c2]()
              %six : int = prim::Constant[value=6]()
              %y : Float(2, 3) = aten::mul(%x, %w)
              %z : Tensor = aten::mul(%y, %k)
              return (%z, %i, %six)""",
        after="""
            graph(%x : Tensor(2, 3)):
              %w : Half(2, 3) = prim::Constant[value=CONSTANTS.c3]()
              %i : Long(3) = prim::Constant[value=CONSTANTS.c1]()
              %k : Double() = prim::Constant[value=CONSTANTS.c2]()
              %six : int = prim::Constant[value=6]()
              %y : Tensor(2, 3) = aten::mul(%x, %w)
              %z : Tensor = aten::mul(%y, %k)
              return (%z, %i, %six)""",
        constants=[W, INDEX, NUMBER],
    )


def test_casts_and_factories_are_converted_where_asked() -> None:
    before = """
        graph(%x : Tensor, %n : int[]):
          %six : int = prim::Constant[value=6]()
          %four : int = prim::Constant[value=4]()
          %no : bool = prim::Constant[value=0]()
          %none : NoneType = prim::Constant()
          %a : Tensor = aten::to(%x, %six, %no, %no, %none)
          %b : Tensor = aten::to(%x, %four, %no, %no, %none)
          %c : Tensor = aten::zeros(%n, %none, %none, %none, %none)
          %d : Tensor = aten::arange(%six, %none, %none, %none, %none)
          return (%a, %b, %c, %d)"""
    after = """
        graph(%x : Tensor, %n : int[]):
          %six : int = prim::Constant[value=6]()
          %four : int = prim::Constant[value=4]()
          %no : bool = prim::Constant[value=0]()
          %none : NoneType = prim::Constant()
          %half : int = prim::Constant[value=5]()
          %a : Tensor = aten::to(%x, %half, %no, %no, %none)
          %b : Tensor = aten::to(%x, %four, %no, %no, %none)
          %half1 : int = prim::Constant[value=5]()
          %c : Tensor = aten::zeros(%n, %half1, %none, %none, %none)
          %d : Tensor = aten::arange(%six, %none, %none, %none, %none)
          return (%a, %b, %c, %d)"""
    check_pass(partial(convert_dtype, dtype=HALF, casts=True), before=before, after=after)
    check_pass(partial(convert_dtype, dtype=HALF), before=before, after=before)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("float16", np.float16), ("half", np.float16), ("torch.float16", np.float16), (np.float64, np.float64),
        ("double", np.float64), ("float", np.float32), (np.dtype("float32"), np.float32), (float, np.float64),
        ("bfloat16", ml_dtypes.bfloat16), (ml_dtypes.bfloat16, ml_dtypes.bfloat16), ("cpu", None), (None, None),
    ],
)  # fmt: skip
def test_names_of_dtypes(given: Any, wanted: Any) -> None:
    found = floating_dtype(given)
    assert (found is None) if wanted is None else found == np.dtype(wanted)


@pytest.mark.parametrize("given", ["int32", np.int64, "complex64", bool])
def test_dtypes_that_weights_cannot_have(given: Any) -> None:
    with pytest.raises(DTypeError, match="integers stay as they are"):
        floating_dtype(given)


@pytest.mark.torch
def test_dtypes_of_torch() -> None:
    torch = pytest.importorskip("torch")
    assert floating_dtype(torch.bfloat16) == ml_dtypes.bfloat16
    with pytest.raises(DTypeError):
        floating_dtype(torch.int32)
