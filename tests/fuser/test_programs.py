# ruff: noqa: E501
"""The tile programs that groups become."""

from __future__ import annotations

import textwrap

import pytest

from tests.fuser.help import fuse_free, read

ONE = "  %one : int = prim::Constant[value=1]()\n  %zero : int = prim::Constant[value=0]()\n"
FLAGS = "  %no : bool = prim::Constant[value=0]()\n  %yes : bool = prim::Constant[value=1]()\n"
NONE = "  %none : NoneType = prim::Constant()\n"

CASES = {
    "broadcast": (
        f"graph(%x : Float(3, 4), %y : Float(4)):\n{ONE}  %a = aten::add(%x, %y, %one)\n  %b = aten::relu(%a)\n  return (%b)",
        """\
        tile(a0: float32[2], a1: float32[1]) -> (o0: float32[2])
          for d0 < n0, d1 < n1
          %0: float32 = load a0[d0, d1]
          %1: float32 = load a1[d1]
          %2: float32 = add %0, %1
          %3: float32 = const 0.0
          %4: float32 = maximum %2, %3
          store o0[d0, d1], %4
        """,
    ),
    "half": (
        f"graph(%x : Half(3)):\n{ONE}  %a = aten::exp(%x)\n  %b = aten::neg(%a)\n  return (%b)",
        """\
        tile(a0: float16[1]) -> (o0: float16[1])
          for d0 < n0
          %0: float16 = load a0[d0]
          %1: float32 = cast %0
          %2: float32 = exp %1
          %3: float16 = cast %2
          %4: float32 = cast %3
          %5: float32 = neg %4
          %6: float16 = cast %5
          store o0[d0], %6
        """,
    ),
    "transposed heads": (
        f"graph(%x : Float(2, 5, 12)):\n{ONE}  %two : int = prim::Constant[value=2]()\n  %a = aten::neg(%x)\n"
        "  %s : int[] = prim::Constant[value=[2, 5, 3, 4]]()\n  %v = aten::view(%a, %s)\n"
        "  %t = aten::transpose(%v, %one, %two)\n  %b = aten::exp(%t)\n  return (%b)",
        """\
        tile(a0: float32[3]) -> (o0: float32[4])
          for d0 < n0, d1 < n1, d2 < n2, d3 < n3
          params p0
          %0: float32 = load a0[d0, d2, d1*p0 + d3]
          %1: float32 = neg %0
          %2: float32 = exp %1
          store o0[d0, d1, d2, d3], %2
        """,
    ),
    "slices of one input": (
        f"graph(%x : Float(3, 8)):\n{ONE}  %four : int = prim::Constant[value=4]()\n"
        "  %end : int = prim::Constant[value=9999]()\n  %a = aten::slice(%x, %one, %zero, %four, %one)\n"
        "  %b = aten::slice(%x, %one, %four, %end, %one)\n  %s = aten::sigmoid(%b)\n  %c = aten::mul(%a, %s)\n  return (%c)",
        """\
        tile(a0: float32[2]) -> (o0: float32[2])
          for d0 < n0, d1 < n1
          params p0
          %0: float32 = load a0[d0, d1]
          %1: float32 = const 1.0
          %2: float32 = load a0[d0, d1 + p0]
          %3: float32 = neg %2
          %4: float32 = exp %3
          %5: float32 = add %4, %1
          %6: float32 = div %1, %5
          %7: float32 = mul %0, %6
          store o0[d0, d1], %7
        """,
    ),
    "softmax of a masked tensor": (
        f"graph(%x : Float(3, 5), %m : Bool(5)):\n{ONE}{NONE}  %low : float = prim::Constant[value=-1e9]()\n"
        "  %a = aten::masked_fill(%x, %m, %low)\n  %b = aten::softmax(%a, %one, %none)\n  return (%b)",
        """\
        tile(a0: float32[2], a1: bool[1]) -> (o0: float32[2])
          for d0 < n0
          row d1 < n1
          %0: bool = load a1[d1]
          %1: float32 = const -1000000000.0
          %2: float32 = load a0[d0, d1]
          %3: float32 = where %0, %1, %2
          %4: float32 = max %3
          %5: float32 = sub %3, %4
          %6: float32 = exp %5
          %7: float32 = const 1.0
          %8: float32 = sum %6
          %9: float32 = div %7, %8
          %10: float32 = mul %6, %9
          store o0[d0, d1], %10
        """,
    ),
    "a reduction of the first dim": (
        f"graph(%x : Float(3, 5)):\n{ONE}{FLAGS}{NONE}  %d : int[] = prim::Constant[value=[0]]()\n  %a = aten::exp(%x)\n"
        "  %s = aten::sum(%a, %d, %no, %none)\n  %n = aten::neg(%s)\n  return (%n)",
        """\
        tile(a0: float32[2]) -> (o0: float32[1])
          for d0 < n0
          row d1 < n1
          %0: float32 = load a0[d1, d0]
          %1: float32 = exp %0
          %2: float32 = sum %1
          %3: float32 = neg %2
          store o0[d0], %3
        """,
    ),
    "lookup": (
        f"graph(%t : Float(9, 4), %i : Long(5), %p : Float(5, 4)):\n{ONE}{FLAGS}"
        "  %e = aten::embedding(%t, %i, %zero, %no, %no)\n  %a = aten::add(%e, %p, %one)\n  return (%a)",
        """\
        tile(a0: int64[1], a1: float32[2], a2: float32[2]) -> (o0: float32[2])
          for d0 < n0, d1 < n1
          params p0
          %0: int64 = load a0[d0]
          %1: bool = inside 0 <= %0 < p0
          %2: float32 = load a1[%0, d1] if %1 else 0.0
          %3: float32 = load a2[d0, d1]
          %4: float32 = add %2, %3
          check %1, "aten::embedding: an index is out of range for dim 0 of shape [9, 4]"
          store o0[d0, d1], %4
        """,
    ),
    "side by side": (
        f"graph(%x : Float(3, 2), %y : Float(3, 4)):\n{ONE}  %l : Tensor[] = prim::ListConstruct(%x, %y)\n"
        "  %c = aten::cat(%l, %one)\n  %n = aten::neg(%c)\n  return (%n)",
        """\
        tile(a0: float32[2], a1: float32[2]) -> (o0: float32[2])
          for d0 < n0, d1 < n1
          params p0, p1
          %0: bool = inside 0 <= d1 < p0
          %1: float32 = load a0[d0, d1] if %0 else 0.0
          %2: bool = inside 0 <= d1 - p0 < p1
          %3: float32 = load a1[d0, d1 - p0] if %2 else 0.0
          %4: float32 = where %0, %1, %3
          %5: float32 = neg %4
          store o0[d0, d1], %5
        """,
    ),
    "triangle of positions": (
        f"graph(%x : Float(3, 3)):\n{ONE}{NONE}  %a = aten::tril(%x, %zero)\n  %three : int = prim::Constant[value=3]()\n"
        "  %r = aten::arange(%three, %none, %none, %none, %none)\n  %b = aten::mul(%a, %r)\n  return (%b)",
        """\
        tile(a0: float32[2]) -> (o0: float32[2])
          for d0 < n0, d1 < n1
          params p0
          %0: bool = inside 0 <= d0 - d1 < p0
          %1: float32 = load a0[d0, d1] if %0 else 0.0
          %2: float32 = const 0.0
          %3: float32 = where %0, %1, %2
          %4: int64 = position d1
          %5: float32 = cast %4
          %6: float32 = mul %3, %5
          store o0[d0, d1], %6
        """,
    ),
    "groups of channels": (
        f"graph(%x : Float(2, 4, 3), %w : Float(4)):\n{FLAGS}{NONE}  %two : int = prim::Constant[value=2]()\n"
        "  %eps : float = prim::Constant[value=0.001]()\n  %g = aten::group_norm(%x, %two, %w, %none, %eps, %yes)\n"
        "  %r = aten::relu(%g)\n  return (%r)",
        """\
        tile(a0: float32[3], a1: float32[1]) -> (o0: float32[3])
          for d0 < n0, d1 < n1
          row d2 < n2, d3 < n3
          params p0
          %0: float32 = load a0[d0, d1*p0 + d2, d3]
          %1: float32 = sum %0
          %2: float32 = count
          %3: float32 = div %1, %2
          %4: float32 = sub %0, %3
          %5: float32 = const 1.0
          %6: float32 = mul %4, %4
          %7: float32 = sum %6
          %8: float32 = div %7, %2
          %9: float32 = const 0.0010000000474974513
          %10: float32 = add %8, %9
          %11: float32 = sqrt %10
          %12: float32 = div %5, %11
          %13: float32 = mul %4, %12
          %14: float32 = load a1[d1*p0 + d2]
          %15: float32 = mul %13, %14
          %16: float32 = const 0.0
          %17: float32 = maximum %15, %16
          store o0[d0, d1*p0 + d2, d3], %17
        """,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_program(name: str) -> None:
    text, wanted = CASES[name]
    result = fuse_free(read(text))
    ((_, lowered),) = result.programs.items()
    assert lowered.divisions == 0
    assert str(lowered.program) == textwrap.dedent(wanted)


def test_other_sizes_make_the_same_program() -> None:
    programs = set()
    for heads, width in ((3, 4), (5, 8)):
        text = CASES["transposed heads"][0].replace("12)", f"{heads * width})").replace("3, 4]", f"{heads}, {width}]")
        programs.update(p.program.key for p in fuse_free(read(text)).programs.values())
    assert len(programs) == 1
