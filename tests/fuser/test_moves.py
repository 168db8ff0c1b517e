# ruff: noqa: E501
"""Operators that move elements, fused with something that computes: each gives what it gives by itself."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from gpujit.support.errors import OpError
from tests.fuser.help import array, check, fuse_free, read, run

X = "graph(%x : Float(4, 6)):\n"
N = "  %n : NoneType = prim::Constant()\n  %no : bool = prim::Constant[value=0]()\n" + "".join(
    f"  %{name} : int = prim::Constant[value={value}]()\n" for name, value in
    (("m1", -1), ("m2", -2), ("i0", 0), ("i1", 1), ("i2", 2), ("i3", 3), ("i4", 4), ("i6", 6), ("end", 9999))
)  # fmt: skip
AFTER = "  %z = aten::relu(%y)\n  return (%z)"


@pytest.mark.parametrize(
    "body",
    [
        "  %l : Tensor[] = prim::ListConstruct(%x, %e, %x)\n  %y = aten::cat(%l, %i0)\n",
        "  %l : Tensor[] = prim::ListConstruct(%e, %x)\n  %y = aten::cat(%l, %m1)\n",
        "  %l : Tensor[] = prim::ListConstruct(%x, %e)\n  %y = aten::stack(%l, %i0)\n",
        "  %l : Tensor[] = prim::ListConstruct(%x, %e)\n  %y = aten::stack(%l, %m1)\n",
        "  %p : int[] = prim::ListConstruct(%i1, %i2, %i3, %i0)\n  %f : float = prim::Constant[value=1.5]()\n"
        "  %y = aten::constant_pad_nd(%e, %p, %f)\n",
        "  %p : int[] = prim::ListConstruct(%m1, %m2)\n  %y = aten::constant_pad_nd(%e, %p, %i0)\n",
        "  %d : int[] = prim::ListConstruct(%i0, %i1)\n  %s : int[] = prim::ListConstruct(%i1, %m2)\n"
        "  %y = aten::roll(%e, %s, %d)\n",
        "  %d : int[] = prim::ListConstruct(%i0, %m1)\n  %y = aten::flip(%e, %d)\n",
        "  %d : int[] = prim::ListConstruct(%i2, %i1, %i3)\n  %y = aten::repeat(%e, %d)\n",
        "  %d : int[] = prim::ListConstruct(%i2)\n  %y = aten::tile(%e, %d)\n",
        "  %y = aten::repeat_interleave(%e, %i3, %i0, %n)\n",
        "  %y = aten::repeat_interleave(%e, %i2, %n, %n)\n",
        "  %y = aten::tril(%e, %i1)\n",
        "  %y = aten::tril(%e, %m2)\n",
        "  %y = aten::triu(%e, %i0)\n",
        "  %y = aten::triu(%e, %m1)\n",
        "  %y = aten::slice(%e, %i1, %i1, %end, %i2)\n",
        "  %y = aten::select(%e, %i0, %m1)\n",
        "  %y = aten::transpose(%e, %i0, %i1)\n",
        "  %d : int[] = prim::ListConstruct(%i2, %i3, %i4)\n  %y = aten::reshape(%e, %d)\n",
        "  %d : int[] = prim::ListConstruct(%i3, %i4, %i6)\n  %y = aten::expand(%e, %d, %no)\n",
    ],
)  # fmt: skip
def test_moves(body: str) -> None:
    check(X + N + "  %e = aten::neg(%x)\n" + body + AFTER, array(4, 6))


@pytest.mark.parametrize(
    ("inputs", "body", "arrays"),
    [
        ("%t : Float(5, 3), %i : Long(2, 4)", "%y = aten::embedding(%t, %i, %m1, %no, %no)", [array(5, 3), array(2, 4, dtype="int64")]),
        ("%t : Float(5, 3), %i : Int(7)", "%y = aten::index_select(%t, %i0, %i)", [array(5, 3), array(7, dtype="int32")]),
        ("%t : Float(2, 5), %i : Long(2, 7)", "%y = aten::gather(%t, %m1, %i, %no)", [array(2, 5), array(2, 7, dtype="int64")]),
        ("%t : Float(2, 5), %i : Long(1, 7)", "%y = aten::gather(%t, %i1, %i, %no)", [array(2, 5), array(1, 7, dtype="int64")]),
        ("%t : Float(2, 5, 1), %i : Long(1, 7, 3)", "%y = aten::take_along_dim(%t, %i, %i1)", [array(2, 5, 1), array(1, 7, 3, dtype="int64")]),
        ("%t : Float(3, 4), %i : Long(6)", "%y = aten::take(%t, %i)", [array(3, 4), array(6, dtype="int64") * 2 - 5]),
        (
            "%t : Float(5, 6, 3), %i : Long(4)",
            "%l : Tensor?[] = prim::ListConstruct(%n, %i)\n"
            "  %y = aten::index(%t, %l)",
            [array(5, 6, 3), array(4, dtype="int64") - 3],
        ),
        (
            "%t : Float(5, 6, 3), %i : Long(4), %j : Long(2, 1)",
            "%l : Tensor?[] = prim::ListConstruct(%i, %j)\n  %y = aten::index(%t, %l)",
            [array(5, 6, 3), array(4, dtype="int64"), array(2, 1, dtype="int64")],
        ),
        (
            "%t : Float(5, 6, 5), %i : Long(4), %j : Long(2, 1)",
            "%l : Tensor?[] = prim::ListConstruct(%i, %n, %j)\n"
            "  %y = aten::index(%t, %l)",
            [array(5, 6, 5), array(4, dtype="int64"), array(2, 1, dtype="int64")],
        ),
    ],
)  # fmt: skip
def test_lookups(inputs: str, body: str, arrays: list[np.ndarray]) -> None:
    text = f"graph({inputs}):\n{N}  {body}\n{AFTER}"
    check(text, *arrays)
    # An index beyond the table fails with the operator's name.
    graph = read(text)
    result = fuse_free(graph)
    wrong = [a if a.dtype.kind == "f" else a + 100 for a in arrays]
    name = body[body.index("%y = ") + 5 :].partition("(")[0]
    with pytest.raises(OpError, match=f"{name}: an index is out of range"):
        run(graph, result, wrong)


@pytest.mark.parametrize(
    "body",
    [
        "%y = aten::arange(%i6, %n, %n, %n, %n)",
        "%y = aten::arange(%i2, %i14, %i2, %i3, %n, %n, %n)",
        "%d : int[] = prim::ListConstruct(%i6)\n  %y = aten::zeros(%d, %i6, %n, %n, %n)",
        "%d : int[] = prim::ListConstruct(%i4, %i6)\n  %f : float = prim::Constant[value=0.5]()\n"
        "  %y = aten::full(%d, %f, %n, %n, %n, %n)",
        "%q = aten::eye(%i6, %n, %n, %n, %n)\n  %y = aten::slice(%q, %i0, %i0, %i4, %i1)",
        "%y = aten::ones_like(%x, %n, %n, %n, %n, %n)",
    ],
)
def test_factories(body: str) -> None:
    more = "  %i14 : int = prim::Constant[value=14]()\n"
    check(f"{X}{N}{more}  {body}\n  %e = aten::neg(%x)\n  %z = aten::add(%e, %y, %i1)\n  return (%z)", array(4, 6))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (1, 5)])
def test_small_shapes(shape: tuple[int, int]) -> None:
    a, b = shape
    text = f"""graph(%x : Float({a}, {b})):
{N}  %e = aten::neg(%x)
  %l : Tensor[] = prim::ListConstruct(%e, %x, %e)
  %y = aten::cat(%l, %i1)
  %d : int[] = prim::ListConstruct(%i2, %i2)
  %w = aten::repeat(%y, %d)
{AFTER.replace("%y", "%w")}"""
    check(text, array(a, b), groups=1 if a and b else 0)
