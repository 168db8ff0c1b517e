"""Batch norms and constants folded into weights: golden graphs, equal results, and every reason to decline."""

from __future__ import annotations

import textwrap
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.ir.printer import print_graph
from gpujit.passes.freeze.fold_norm import NormFolder, fold_norm
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.vm import Interpreter
from gpujit.testing import check_pass, resolve_node

RANDOM = np.random.default_rng(7)
DTYPES: dict[str, Any] = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
}
NORM = "aten::batch_norm(%y, %g, %b, %m, %v, %no, %eps, %eps, %no)"


def run(graph: Graph, *inputs: Any) -> Any:
    lowerer = Lowerer(np)
    with np.errstate(all="ignore"):
        return Interpreter(lowerer).run(lowerer.graph_code(graph), list(inputs))


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32).astype(dtype)


def statistics(channels: int, dtype: Any = np.float32) -> list[np.ndarray]:
    """weight, bias, running mean and variance."""
    variance = RANDOM.uniform(0.5, 2, channels).astype(np.float32).astype(dtype)
    return [normal(channels, dtype=dtype), normal(channels, dtype=dtype), normal(channels, dtype=dtype), variance]


def constants(head: str, values: dict[str, Any]) -> tuple[str, list[Any]]:
    """The lines that define named values as constants; arrays become ``CONSTANTS.cN``."""
    lines, arrays = [], []
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            lines.append(f"%{name} : Tensor = prim::Constant[value=CONSTANTS.c{len(arrays)}]()")
            arrays.append(value)
        elif value is None:
            lines.append(f"%{name} : NoneType = prim::Constant()")
        else:
            kind = {bool: "bool", int: "int", float: "float", str: "str", list: "int[]"}[type(value)]
            text = int(value) if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else value
            lines.append(f"%{name} : {kind} = prim::Constant[value={text}]()")
    return "\n".join([f"graph({head}):", *("  " + line for line in lines)]), arrays


def graph_of(head: str, values: dict[str, Any], *lines: str) -> Graph:
    start, arrays = constants(head, values)
    text = "\n".join([start, *("  " + line for line in lines), "  return (%z)"])
    return parse_graph(text, constants=arrays, resolve=resolve_node)


CONV: dict[str, Any] = {"no": False, "one": [1], "zero": [0], "n": 1, "eps": 0.125, "none": None}


def conv1d(weight: np.ndarray, bias: np.ndarray | None, then: str, head: str = "%x : Tensor", **more: Any) -> Graph:
    return graph_of(
        head,
        {**CONV, "w": weight, "bias": bias, **more},
        "%y : Tensor = aten::conv1d(%x, %w, %bias, %one, %zero, %one, %n)",
        f"%z : Tensor = {then}",
    )


def kinds(graph: Graph) -> list[str]:
    return [n.kind for n in graph.all_nodes() if n.kind != "prim::Constant"]


def check_fold(graph: Graph, *inputs: Any, tolerance: float = 1e-4) -> Graph:
    """The second node goes into the first, and the results stay."""
    wanted = run(graph, *inputs)
    before = kinds(graph)
    assert fold_norm(graph) is True
    assert kinds(graph) == before[:-1]
    got = run(graph, *inputs)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)
    assert fold_norm(graph) is False
    return graph


def check_refused(graph: Graph, reason: str) -> None:
    text = print_graph(graph)
    folder = NormFolder()
    assert folder.run(graph) is False and print_graph(graph) == text
    assert len(folder.refusals) == 1 and reason in folder.refusals[0], folder.refusals


# ------------------------------------------------------------------------------------------------------- batch norm


def test_a_batch_norm_goes_into_the_convolution_before_it() -> None:
    g, b, m, v = statistics(2)
    check_pass(
        fold_norm,
        before="""
            graph(%x : Tensor):
              %w : Tensor = prim::Constant[value=CONSTANTS.c0]()
              %g : Tensor = prim::Constant[value=CONSTANTS.c1]()
              %b : Tensor = prim::Constant[value=CONSTANTS.c2]()
              %m : Tensor = prim::Constant[value=CONSTANTS.c3]()
              %v : Tensor = prim::Constant[value=CONSTANTS.c4]()
              %none : NoneType = prim::Constant()
              %no : bool = prim::Constant[value=0]()
              %eps : float = prim::Constant[value=0.125]()
              %n : int = prim::Constant[value=1]()
              %one : int[] = prim::ListConstruct(%n)
              %y : Tensor = aten::conv1d(%x, %w, %none, %one, %one, %one, %n)
              %z : Tensor = aten::batch_norm(%y, %g, %b, %m, %v, %no, %eps, %eps, %no)
              return (%z)""",
        after="""
            graph(%x : Tensor):
              %n : int = prim::Constant[value=1]()
              %one : int[] = prim::ListConstruct(%n)
              %w : Float(2, 3, 2) = prim::Constant[value=CONSTANTS.c5]()
              %b : Float(2) = prim::Constant[value=CONSTANTS.c6]()
              %z : Tensor = aten::conv1d(%x, %w, %b, %one, %one, %one, %n)
              return (%z)""",
        constants=[normal(2, 3, 2), g, b, m, v],
        samples=[[normal(4, 3, 6)]],
        run=run,
    )


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_missing_biases_and_parameters_count_as_zero_and_one(with_bias: bool, affine: bool) -> None:
    g, b, m, v = statistics(4)
    weight, bias = normal(4, 3, 2), normal(4) if with_bias else None
    graph = conv1d(weight, bias, NORM, g=g if affine else None, b=b if affine else None, m=m, v=v)
    check_fold(graph, normal(2, 3, 5))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("op", ["conv", "_convolution"])
def test_every_rank_and_groups(op: str, transposed: bool, rank: int, groups: int) -> None:
    weight = normal(4, 6 // groups, *[2] * rank) if transposed else normal(6, 4 // groups, *[2] * rank)
    g, b, m, v = statistics(6)
    values = {"no": False, "t": transposed, "one": [1] * rank, "zero": [0] * rank, "n": groups, "eps": 0.125,
              "w": weight, "bias": normal(6), "g": g, "b": b, "m": m, "v": v}  # fmt: skip
    if op == "_convolution":
        call = "aten::_convolution(%x, %w, %bias, %one, %zero, %one, %t, %zero, %n, %no, %no, %no, %no)"
    elif transposed:
        call = f"aten::conv_transpose{rank}d(%x, %w, %bias, %one, %zero, %zero, %n, %one)"
    else:
        call = f"aten::conv{rank}d(%x, %w, %bias, %one, %zero, %one, %n)"
    graph = graph_of("%x : Tensor", values, f"%y : Tensor = {call}", f"%z : Tensor = {NORM}")
    check_fold(graph, normal(2, 4, *[4] * rank))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("name", ["_convolution_mode", "conv"])
def test_paddings_by_name(name: str, padding: str, rank: int) -> None:
    g, b, m, v = statistics(6)
    values = {"no": False, "p": padding, "one": [1] * rank, "n": 2, "eps": 0.125, "w": normal(6, 2, *[2] * rank),
              "bias": normal(6), "g": g, "b": b, "m": m, "v": v}  # fmt: skip
    kind = name if name != "conv" else f"conv{rank}d"
    call = f"aten::{kind}(%x, %w, %bias, %one, %p, %one, %n)"
    graph = graph_of("%x : Tensor", values, f"%y : Tensor = {call}", f"%z : Tensor = {NORM}")
    check_fold(graph, normal(2, 4, *[4] * rank))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_dtype_of_the_weights_stays(dtype: str) -> None:
    kind = DTYPES[dtype]
    g, b, m, v = statistics(4, kind)
    graph = conv1d(normal(4, 3, 2, dtype=kind), None, NORM, g=g, b=b, m=m, v=v)
    tolerance = {"float16": 2e-2, "bfloat16": 1e-1}.get(dtype, 1e-4)
    check_fold(graph, normal(2, 3, 5, dtype=kind), tolerance=tolerance)
    arrays = [n.attributes["value"] for n in graph.nodes if isinstance(n.attributes.get("value"), np.ndarray)]
    assert [a.dtype for a in arrays] == [kind, kind]


def test_half_weights_with_a_norm_in_single_precision() -> None:
    g, b, m, v = statistics(4)
    graph = conv1d(normal(4, 3, 2, dtype=np.float16), None, NORM, g=g, b=b, m=m, v=v)
    check_fold(graph, normal(2, 3, 5, dtype=np.float16), tolerance=2e-2)


@pytest.mark.parametrize(
    ("factor", "reason"), [(1e-7, "lose precision in float16"), (1e6, "do not fit float16"), (np.inf, "not be finite")]
)
def test_half_weights_are_not_folded_when_that_loses_much(factor: float, reason: str) -> None:
    g, b, m, v = statistics(4)
    g = np.full(4, factor, np.float32)
    check_refused(conv1d(normal(4, 3, 2, dtype=np.float16), None, NORM, g=g, b=b, m=m, v=v), reason)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"m": None, "v": None}, "no running statistics"),
        ({"no": True}, "in training mode"),
        ({"g": normal(3)}, "not one parameter for each of 4 channels"),
        ({"g": normal(4, dtype=np.float64)}, "its parameters are float64, the weights float32"),
        ({"w": np.ones((4, 3, 2), np.int64)}, "no floating-point arrays"),
        ({"bias": normal(3)}, "the bias before it has 3 elements, not 4"),
    ],
)
def test_norms_that_stay(change: dict[str, Any], reason: str) -> None:
    g, b, m, v = statistics(4)
    values = {"w": normal(4, 3, 2), "bias": None, "g": g, "b": b, "m": m, "v": v, **change}
    check_refused(conv1d(values.pop("w"), values.pop("bias"), NORM, **values), reason)


def test_weights_and_statistics_that_are_no_constants() -> None:
    g, b, m, v = statistics(4)
    text = "%y : Tensor = aten::conv1d(%x, %w, %none, %one, %zero, %one, %n)"
    values = {**CONV, "g": g, "b": b, "m": m, "v": v}
    check_refused(graph_of("%x : Tensor, %w : Tensor", values, text, f"%z : Tensor = {NORM}"), "are no constants")
    del values["m"]
    values["w"] = normal(4, 3, 2)
    check_refused(
        graph_of("%x : Tensor, %m : Tensor", values, text, f"%z : Tensor = {NORM}"),
        "its statistics or parameters are no constants",
    )


def test_a_convolution_that_is_read_twice_stays() -> None:
    g, b, m, v = statistics(4)
    graph = graph_of(
        "%x : Tensor",
        {**CONV, "w": normal(4, 3, 2), "g": g, "b": b, "m": m, "v": v},
        "%y : Tensor = aten::conv1d(%x, %w, %none, %one, %zero, %one, %n)",
        f"%t : Tensor = {NORM}",
        "%z : Tensor = aten::mul(%t, %y)",
    )
    assert fold_norm(graph) is False


def test_a_weight_that_two_convolutions_share_stays_for_the_other() -> None:
    g, b, m, v = statistics(3)
    graph = graph_of(
        "%x : Tensor",
        {**CONV, "w": normal(3, 3, 1), "g": g, "b": b, "m": m, "v": v},
        "%t : Tensor = aten::conv1d(%x, %w, %none, %one, %zero, %one, %n)",
        "%u : Tensor = aten::relu(%t)",
        "%y : Tensor = aten::conv1d(%u, %w, %none, %one, %zero, %one, %n)",
        f"%z : Tensor = {NORM}",
    )
    check_fold(graph, normal(2, 3, 5))


# ----------------------------------------------------------------------------------------------------------- linear


def linear(input_lines: list[str], head: str, channels: int = 4) -> Graph:
    g, b, m, v = statistics(channels)
    values = {
        **CONV,
        "two": 2,
        "minus": -1,
        "rows": [6, 3],
        "w": normal(channels, 3),
        "bias": normal(channels),
        "g": g,
        "b": b,
        "m": m,
        "v": v,
    }
    lines = [*input_lines, "%y : Tensor = aten::linear(%i, %w, %bias)", f"%z : Tensor = {NORM}"]
    return graph_of(head, values, *lines)


@pytest.mark.parametrize(
    ("head", "lines"),
    [
        ("%i : Float(*, 3)", []),
        ("%x : Tensor", ["%i : Tensor = aten::flatten(%x, %n, %minus)"]),
        ("%x : Tensor", ["%f : Tensor = aten::reshape(%x, %rows)", "%i : Tensor = aten::relu(%f)"]),
    ],
    ids=["typed", "flatten", "reshape"],
)
def test_a_batch_norm_goes_into_a_linear_layer_whose_output_has_two_dimensions(head: str, lines: list[str]) -> None:
    check_fold(linear(lines, head), normal(6, 3))


@pytest.mark.parametrize(
    ("head", "reason"),
    [("%i : Tensor", "is of unknown rank: only of rank 2"), ("%i : Float(2, 4, 3)", "is of rank 3: only of rank 2")],
)
def test_a_linear_layer_of_another_rank_keeps_its_norm(head: str, reason: str) -> None:
    """[N, L, C] with L equal to C would pass every other check, and be wrong."""
    check_refused(linear([], head), reason)


def test_an_unbatched_convolution_keeps_its_norm() -> None:
    g, b, m, v = statistics(4)
    graph = conv1d(normal(4, 3, 2), None, NORM, head="%x : Float(3, 5)", g=g, b=b, m=m, v=v)
    check_refused(graph, "its channels are others")


# ------------------------------------------------------------------------------------------------------- arithmetic


ARITHMETIC = [
    "aten::add(%y, %c, %n)",
    "aten::add(%y, %c, %k)",
    "aten::add(%c, %y, %n)",
    "aten::sub(%y, %c, %k)",
    "aten::mul(%y, %c)",
    "aten::mul(%c, %y)",
    "aten::div(%y, %c)",
    "aten::add_(%y, %c, %n)",
    "aten::mul_(%y, %c)",
]


@pytest.mark.parametrize("then", ARITHMETIC)
@pytest.mark.parametrize("shape", [(), (1,), (4, 1)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_arithmetic_with_one_number_per_channel(then: str, shape: tuple[int, ...], with_bias: bool) -> None:
    graph = conv1d(normal(4, 3, 2), normal(4) if with_bias else None, then, c=np.asarray(normal(*shape)), k=2)
    check_fold(graph, normal(2, 3, 5))


@pytest.mark.parametrize("number", [3, 0.5, True])
@pytest.mark.parametrize("then", ["aten::add(%y, %c, %n)", "aten::mul(%y, %c)", "aten::div(%y, %c)"])
def test_arithmetic_with_numbers(then: str, number: Any) -> None:
    check_fold(conv1d(normal(4, 3, 2), None, then, c=number), normal(2, 3, 5))


def test_arithmetic_with_all_dimensions_where_the_rank_is_known() -> None:
    for shape in ((1, 4, 1), (1, 1, 1)):
        c = normal(*shape)
        check_fold(conv1d(normal(4, 3, 2), None, "aten::mul(%y, %c)", head="%x : Float(*, 3, 5)", c=c), normal(2, 3, 5))
        check_refused(conv1d(normal(4, 3, 2), None, "aten::mul(%y, %c)", c=c), "is not known")


@pytest.mark.parametrize(
    ("then", "constant", "reason"),
    [
        ("aten::mul(%y, %c)", normal(4), "not one number for each of 4 channels"),
        ("aten::mul(%y, %c)", normal(4, 4), "not one number for each of 4 channels"),
        ("aten::mul(%y, %c)", normal(3, 1), "not one number for each of 4 channels"),
        ("aten::mul(%y, %c)", normal(4, 1, dtype=np.float64), "is float64, the weights float32"),
        ("aten::mul(%y, %c)", np.array(1j, np.complex64), "neither a real array nor a number"),
        ("aten::mul(%y, %c)", np.array(np.inf, np.float32), "its factor is not finite"),
        ("aten::div(%y, %c)", np.array([[1], [0], [1], [1]], np.float32), "its divisor is zero or not finite"),
        ("aten::div(%c, %y)", normal(4, 1), "the second operand"),
        ("aten::sub(%c, %y, %n)", normal(4, 1), "the second operand"),
        ("aten::add(%c, %y, %k)", normal(4, 1), "the second operand"),
    ],
)
def test_arithmetic_that_stays(then: str, constant: Any, reason: str) -> None:
    check_refused(conv1d(normal(4, 3, 2), None, then, c=constant, k=2), reason)


def test_a_quotient_that_is_rounded_stays() -> None:
    graph = graph_of(
        "%x : Tensor",
        {**CONV, "w": normal(4, 3, 2), "c": normal(4, 1)},
        '%mode : str = prim::Constant[value="floor"]()',
        "%y : Tensor = aten::conv1d(%x, %w, %none, %one, %zero, %one, %n)",
        "%z : Tensor = aten::div(%y, %c, %mode)",
    )
    check_refused(graph, "its quotient is rounded")


def test_integer_constants_do_not_change_the_dtype() -> None:
    check_fold(conv1d(normal(4, 3, 2), None, "aten::mul(%y, %c)", c=np.arange(1, 5).reshape(4, 1)), normal(2, 3, 5))


def test_a_chain_goes_into_one_convolution() -> None:
    g, b, m, v = statistics(4)
    graph = graph_of(
        "%x : Tensor",
        {**CONV, "w": normal(4, 3, 2), "g": g, "b": b, "m": m, "v": v, "c": normal(4, 1)},
        "%y0 : Tensor = aten::conv1d(%x, %w, %none, %one, %zero, %one, %n)",
        "%y : Tensor = aten::mul(%y0, %c)",
        f"%t : Tensor = {NORM}",
        "%z : Tensor = aten::add(%t, %c, %n)",
    )
    x = normal(2, 3, 5)
    wanted = run(graph, x)
    assert fold_norm(graph) is True
    assert kinds(graph) == ["aten::conv1d"]
    np.testing.assert_allclose(run(graph, x), wanted, rtol=1e-4, atol=1e-4)


def test_folds_inside_blocks_and_not_across_them() -> None:
    g, b, m, v = statistics(4)
    start, arrays = constants("%x : Tensor, %f : bool", {**CONV, "w": normal(4, 3, 2), "g": g, "b": b, "m": m, "v": v})
    text = start + textwrap.dedent(f"""
          %z : Tensor = prim::If(%f)
            block0():
              %y : Tensor = aten::conv1d(%x, %w, %none, %one, %zero, %one, %n)
              %t : Tensor = {NORM}
              -> (%t)
            block1():
              %u : Tensor = aten::conv1d(%x, %w, %none, %one, %zero, %one, %n)
              -> (%u)
          %r : Tensor = aten::mul(%z, %n)
          return (%r)""")
    graph = parse_graph(text, constants=arrays, resolve=resolve_node)
    x = normal(2, 3, 5)
    wanted = run(graph, x, True), run(graph, x, False)
    assert fold_norm(graph) is True and kinds(graph).count("aten::batch_norm") == 0
    assert "aten::mul" in kinds(graph)
    np.testing.assert_allclose(run(graph, x, True), wanted[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(run(graph, x, False), wanted[1])
