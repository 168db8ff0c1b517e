"""Parts put into tensors and classes as rows, fused with something that computes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from gpujit.fuser.fuse import fuse
from gpujit.support.errors import OpError
from tests.fuser.help import array, check, fuse_free, read, run, shape_of_fusion

HEAD = "  %n : NoneType = prim::Constant()\n  %e = aten::neg(%x)\n"
AFTER = "  %z = aten::abs(%y)\n  return (%z)"


def number(name: str, value: int | float | None) -> str:
    """A number, or None."""
    if value is None:
        return f"  %{name} : NoneType = prim::Constant()\n"
    return f"  %{name} : {type(value).__name__} = prim::Constant[value={value}]()\n"


def text(shape: tuple[int, ...], body: str, dtype: str = "Float", more: str = "") -> str:
    return f"graph(%x : {dtype}({', '.join(map(str, shape))}){more}):\n{HEAD}{body}{AFTER}"


@pytest.mark.parametrize(
    ("dim", "start", "end", "step", "part"),
    [(0, None, None, 1, (4, 7)), (0, 1, 3, 1, (2, 7)), (1, -3, 9999, 1, (4, 3)), (1, 2, -1, 1, (4, 4)),
     (1, 3, 3, 1, (4, 0)), (-2, 3, 4, 1, (1, 7)), (1, 1, 9, 2, (4, 3)), (1, 5, 9, 3, (4, 1))],
)  # fmt: skip
@pytest.mark.parametrize(("dtype", "of_part"), [("Float", "Float"), ("Long", "Long"), ("Float", "Int")])
def test_slices_put_in(
    dim: int, start: int | None, end: int | None, step: int, part: tuple[int, int], dtype: str, of_part: str
) -> None:
    numbers = "".join(number(f"i{k}", i) for k, i in enumerate((dim, start, end, step)))
    body = f"{numbers}  %s = aten::mul(%p, %p)\n  %y = aten::slice_scatter(%e, %s, %i0, %i1, %i2, %i3)\n"
    names = {"Float": "float32", "Long": "int64", "Int": "int32"}
    arrays = array(4, 7, dtype=names[dtype]), array(*part, dtype=names[of_part], seed=3)
    source = text((4, 7), body, dtype, f", %p : {of_part}({part[0]}, {part[1]})")
    if step == 1:
        check(source, *arrays)
    else:
        # What reads it and what it reads.
        assert "slice_scatter" in shape_of_fusion(check(source, *arrays, groups=3))


@pytest.mark.parametrize(("dim", "place", "part"), [(0, 2, (7,)), (1, -1, (4,)), (-1, 0, (4,)), (-2, -4, (7,))])
def test_places_put_in(dim: int, place: int, part: tuple[int]) -> None:
    numbers = number("d", dim) + number("k", place)
    body = f"{numbers}  %s = aten::exp(%p)\n  %y = aten::select_scatter(%e, %s, %d, %k)\n"
    source = text((4, 7), body, more=f", %p : Float({part[0]})")
    graph = read(source)
    inputs = [array(4, 7), array(*part)]
    want = run(graph, None, inputs)
    found = fuse_free(graph)
    assert "select_scatter" not in shape_of_fusion(graph)
    np.testing.assert_allclose(run(graph, found, inputs), want, rtol=1e-6)


def test_large_rows_are_not_cut_and_lone_copies_are_left_to_a_library() -> None:
    shape = (64, 1024)
    numbers = "".join(number(f"i{k}", i) for k, i in enumerate((1, 0, 8, 1)))
    body = f"{numbers}  %y = aten::slice_scatter(%e, %p, %i0, %i1, %i2, %i3)\n"
    inputs = [array(*shape), array(64, 8)]
    assert "slice_scatter" in shape_of_fusion(check(text(shape, body, more=", %p : Float(64, 8)"), *inputs, groups=2))
    alone = f"graph(%x : Float(64, 8, 128), %p : Float(64, 2, 128)):\n{numbers.replace('=8', '=2')}"
    alone += "  %y = aten::slice_scatter(%x, %p, %i0, %i1, %i2, %i3)\n  return (%y)"
    for on_cores in (False, True):
        graph = read(alone)
        reasons = [r.reason for r in fuse(graph, on_cores=on_cores).refusals]
        assert shape_of_fusion(graph) == (["slice_scatter"] if on_cores else [["slice_scatter"]])
        assert any("a library's copies are quicker" in r for r in reasons) is on_cores


def test_parts_of_another_shape_fail_as_they_do_by_themselves() -> None:
    numbers = "".join(number(f"i{k}", i) for k, i in enumerate((1, 0, 3, 1)))
    body = f"{numbers}  %y = aten::slice_scatter(%e, %p, %i0, %i1, %i2, %i3)\n"
    graph = read(text((4, 7), body, more=", %p : Float(4, 2)"))
    found = fuse_free(graph)
    assert "slice_scatter" in shape_of_fusion(graph)
    with pytest.raises(OpError, match="the part it replaces has"):
        run(graph, found, [array(4, 7), array(4, 2)])


@pytest.mark.parametrize("shape", [(7,), (2, 3), ()])
def test_classes(shape: tuple[int, ...]) -> None:
    body = f"{number('c', 5)}  %i = aten::neg(%e)\n  %y = aten::one_hot(%i, %c)\n"
    numbers = np.array(array(*shape, dtype="int64") if shape else 3)
    source = text(shape, body, "Long")
    check(source, numbers)
    for wrong in map(np.asarray, (numbers - 9, numbers + 9)):
        graph = read(source)
        found = fuse_free(graph)
        with pytest.raises(OpError, match=r"aten::one_hot: a class is not from 0 to 4"):
            run(graph, found, [wrong])
