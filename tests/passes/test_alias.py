"""Alias analysis: never denies sharing or a write that happens, and does tell apart what it can."""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.parser import parse_graph
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import has_effect, is_pure, resolve_node
from tests.passes.random_graphs import Program, arrays_in, lists_in, programs, run_graph, share_memory
from tests.passes.tracing import evaluate


def read(text: str, **options: Any) -> tuple[Graph, AliasAnalysis, dict[str, Value]]:
    """A graph, its analysis, and its values by name."""
    graph = parse_graph(text, resolve=resolve_node, **options)
    values = {v.name: v for v in graph.inputs}
    for node in graph.all_nodes():
        values.update((v.name, v) for v in node.outputs)
        for block in node.blocks:
            values.update((v.name, v) for v in block.params)
    return graph, AliasAnalysis(graph), values


def state(value: Any) -> Any:
    """What a value contains, to see whether it changed: bytes of arrays, which objects a list holds."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, (list, tuple)):
        return [(id(v), state(v)) if isinstance(value, list) else state(v) for v in value]
    return value


# ---------------------------------------------------------------------------------------------------- soundness


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_denies_nothing_that_happens(program: Program) -> None:
    analysis = AliasAnalysis(program.graph)
    states: list[dict[Value, Any]] = []

    def before(node: Node, env: dict[Value, Any]) -> None:
        states.append({v: state(x) for v, x in env.items()})

    def after(node: Node, env: dict[Value, Any]) -> None:
        for value, old in states.pop().items():
            if value in node.outputs or (node.blocks and not is_visible(value, node)):
                continue
            if state(env[value]) != old:
                assert analysis.may_write(node, value), f"{node} wrote {value!r} in\n{program}"
                assert analysis.is_written(value) and analysis.writes(node)
        for output in node.outputs:
            for value, x in env.items():
                if value is not output and share_memory(env[output], x):
                    assert analysis.may_alias(output, value), f"{output!r} shares {value!r} in\n{program}"
                    if (
                        value in program.graph.inputs
                        and isinstance(x, np.ndarray)
                        and isinstance(env[output], np.ndarray)
                    ):
                        assert not analysis.is_fresh(output), f"{output!r} is not fresh in\n{program}"

    results = evaluate(program.graph, copy.deepcopy(program.inputs), before, after)
    for value, result in zip(program.graph.outputs, results, strict=True):
        assert not (arrays_in(result) or lists_in(result)) or analysis.escapes(value)
    plain = run_graph(program.graph, *copy.deepcopy(program.inputs))
    plain = list(plain) if len(results) != 1 else [plain]
    for got, wanted in zip(results, plain, strict=True):
        np.testing.assert_equal(got, wanted)


def is_visible(value: Value, node: Node) -> bool:
    """Whether a value is defined outside the node."""
    block = value.node.block
    while block is not None and block.owner is not None:
        if block.owner is node:
            return False
        block = block.owner.block
    return True


# ---------------------------------------------------------------------------------------------------- precision


def test_tells_new_memory_from_views_and_inputs() -> None:
    _, analysis, v = read(
        """graph(%x : Tensor, %y : Tensor, %n : int):
          %zero : int = prim::Constant[value=0]()
          %a : Tensor = aten::relu(%x)
          %b : Tensor = aten::neg(%a)
          %s : Tensor = aten::select(%a, %zero, %zero)
          %t : Tensor = aten::t(%x)
          %k : int = aten::dim(%x)
          return (%b)"""
    )
    assert analysis.may_alias(v["x"], v["y"]) and analysis.may_alias(v["x"], v["t"])
    assert analysis.may_alias(v["a"], v["s"])
    assert not analysis.may_alias(v["a"], v["x"]) and not analysis.may_alias(v["a"], v["b"])
    assert analysis.is_fresh(v["a"]) and analysis.is_fresh(v["s"]) and not analysis.is_fresh(v["t"])
    assert analysis.is_new(v["a"]) and not analysis.is_new(v["s"])
    assert analysis.escapes(v["b"]) and not analysis.escapes(v["a"]) and analysis.escapes(v["t"])
    assert not analysis.has_memory(v["k"]) and not analysis.may_alias(v["k"], v["n"])


def test_types_keep_inputs_apart() -> None:
    _, analysis, v = read(
        """graph(%x : Tensor, %l : Tensor[], %i : int[], %j : int[], %d : Dict(str, Tensor), %o : Tensor?, %z : Any):
          return (%x)"""
    )
    assert analysis.may_alias(v["i"], v["j"]) and not analysis.may_alias(v["i"], v["l"])
    assert analysis.may_alias(v["l"], v["x"]) and analysis.may_alias(v["d"], v["o"])
    assert not analysis.may_alias(v["i"], v["d"])
    assert all(analysis.may_alias(v["z"], v[name]) for name in "xlijdo")


def test_lists_hold_what_was_put_in() -> None:
    _, analysis, v = read(
        """graph(%x : Tensor, %i : int):
          %a : Tensor = aten::relu(%x)
          %b : Tensor = aten::neg(%x)
          %c : Tensor = aten::tanh(%x)
          %l : Tensor[] = prim::ListConstruct(%a)
          %w : Tensor[] = aten::append(%l, %b)
          %m : Tensor[] = prim::ListConstruct(%c)
          %e : Tensor = aten::__getitem__(%l, %i)
          %u : Tensor = aten::add_(%e, %x, %i)
          %s : Tensor[] = aten::slice(%l, %i, %i, %i)
          %f : Tensor = aten::__getitem__(%s, %i)
          return (%i)"""
    )
    for name in "ab":
        assert analysis.may_alias(v["e"], v[name]) and analysis.may_write(v["u"].node, v[name])
        assert analysis.may_alias(v["f"], v[name])
    assert not analysis.may_alias(v["e"], v["c"]) and not analysis.is_written(v["c"])
    # The sliced list is another list of the same tensors.
    assert not analysis.is_written_between(v["m"], v["m"].node, v["u"].node)
    assert analysis.writers(v["l"]) == [v["w"].node, v["u"].node]
    assert analysis.writers(v["s"]) == [v["u"].node]


def test_parts_of_tuples_are_told_apart() -> None:
    _, analysis, v = read(
        """graph(%x : Tensor, %i : int):
          %zero : int = prim::Constant[value=0]()
          %a : Tensor = aten::relu(%x)
          %b : Tensor = aten::neg(%x)
          %t : (Tensor, Tensor) = prim::TupleConstruct(%a, %b)
          %p : Tensor, %q : Tensor = prim::TupleUnpack(%t)
          %r : Tensor = prim::TupleIndex(%t, %zero)
          %w : Tensor = aten::relu_(%p)
          return (%i)"""
    )
    assert analysis.may_alias(v["p"], v["a"]) and analysis.may_alias(v["r"], v["a"])
    assert not analysis.may_alias(v["p"], v["b"]) and not analysis.may_alias(v["q"], v["r"])
    assert analysis.is_written(v["a"]) and not analysis.is_written(v["b"]) and analysis.is_written(v["t"])


def test_loops_carry_memory_round() -> None:
    _, analysis, v = read(
        """graph(%x : Tensor, %n : int, %true : bool):
          %a : Tensor = aten::relu(%x)
          %b : Tensor = aten::neg(%x)
          %c : Tensor = aten::tanh(%x)
          %p : Tensor, %q : Tensor = prim::Loop(%n, %true, %a, %b)
            block0(%i : int, %s : Tensor, %t : Tensor):
              %w : Tensor = aten::relu_(%s)
              -> (%true, %t, %s)
          return (%n)"""
    )
    # After one run what was %b is %s, and written.
    assert analysis.may_alias(v["s"], v["b"]) and analysis.may_alias(v["p"], v["b"])
    assert analysis.may_write(v["p"].node, v["b"]) and not analysis.may_write(v["p"].node, v["c"])


# ------------------------------------------------------------------------------------------ objects, the outside


def test_attributes_are_outside_and_set_ones_stay_in_the_object() -> None:
    cls = T.ClassType("__torch__.M", is_module=True)
    cls.add_attribute("w", T.TENSOR)
    cls.add_attribute("k", T.INT)
    _, analysis, v = read(
        """graph(%self : __torch__.M, %x : Tensor):
          %w : Tensor = prim::GetAttr[name="w"](%self)
          %a : Tensor = aten::relu(%x)
          %b : Tensor = aten::neg(%x)
           = prim::SetAttr[name="w"](%self, %a)
          %u : Tensor = prim::GetAttr[name="w"](%self)
          %k : int = prim::GetAttr[name="k"](%self)
          return (%k)""",
        types={"__torch__.M": cls}.get,
    )
    assert analysis.may_alias(v["w"], v["x"]) and not analysis.is_fresh(v["w"])
    assert analysis.may_alias(v["u"], v["a"]) and analysis.escapes(v["a"]) and not analysis.escapes(v["b"])
    assert len(analysis.writers(v["self"])) == 1


def test_frozen_attributes_and_constants_are_no_inputs() -> None:
    cls = T.ClassType("__torch__.M", is_module=True)
    cls.add_attribute("w", T.TENSOR)
    base = np.zeros(8, np.float32)
    text = """graph(%self : __torch__.M, %x : Tensor):
          %w : Tensor = prim::GetAttr[name="w"](%self)
          %a : Float(4) = prim::Constant[value=CONSTANTS.c0]()
          %b : Float(4) = prim::Constant[value=CONSTANTS.c1]()
          %c : Float(6) = prim::Constant[value=CONSTANTS.c2]()
          %r : Tensor = aten::relu_(%x)
          return (%r)"""
    graph, loose, v = read(text, types={"__torch__.M": cls}.get, constants=[base[:4], base[4:], base[2:]])
    assert loose.is_written(v["w"]) and loose.is_written(v["a"]) and loose.may_alias(v["a"], v["b"])
    frozen = AliasAnalysis(graph, frozen=True)
    assert not frozen.is_written(v["w"]) and not frozen.is_written(v["a"])
    assert not frozen.may_alias(v["a"], v["b"]) or frozen.may_alias(v["c"], v["b"])
    assert frozen.may_alias(v["a"], v["c"]) and frozen.may_alias(v["b"], v["c"])
    assert frozen.may_alias(v["w"], v["a"]) and not frozen.may_alias(v["x"], v["w"])


def test_unknown_operators_may_do_anything_to_what_they_reach() -> None:
    _, analysis, v = read(
        """graph(%x : Tensor):
          %a : Tensor = aten::relu(%x)
          %b : Tensor = aten::neg(%x)
          %l : Tensor[] = prim::ListConstruct(%a)
          %u : Tensor = custom::op(%l)
          %c : Tensor = aten::tanh(%x)
          return (%c)"""
    )
    call = v["u"].node
    assert analysis.may_write(call, v["a"]) and analysis.may_write(call, v["x"]) and analysis.may_write(call, v["l"])
    assert not analysis.may_write(call, v["b"]) and not analysis.may_write(call, v["c"])
    assert analysis.may_alias(v["u"], v["a"]) and not analysis.is_fresh(v["u"]) and analysis.escapes(v["a"])


def test_futures_hold_what_the_fork_returns() -> None:
    _, analysis, v = read(
        """graph(%x : Tensor):
          %a : Tensor = aten::relu(%x)
          %b : Tensor = aten::neg(%x)
          %f : Future(Tensor) = prim::fork_0(%a)
          %r : Tensor = aten::wait(%f)
          return (%b)
        with prim::fork_0 = graph(%y : Tensor):
          %w : Tensor = aten::relu_(%y)
          return (%w)"""
    )
    assert analysis.may_alias(v["r"], v["a"]) and not analysis.may_alias(v["r"], v["b"])
    assert analysis.may_write(v["f"].node, v["a"]) and not analysis.may_write(v["f"].node, v["b"])


@pytest.mark.parametrize(
    ("node", "aliases"),
    [
        ("aten::type_as(%a, %a)", True),
        ("aten::dropout(%a, %half, %flag)", True),
        ("aten::contiguous(%a, %zero)", True),
        ("aten::clone(%a, %none)", False),
        ("aten::mul(%a, %a)", False),
    ],
)
def test_operators_that_may_return_their_input(node: str, aliases: bool) -> None:
    _, analysis, v = read(
        f"""graph(%x : Tensor, %flag : bool):
          %half : float = prim::Constant[value=0.5]()
          %zero : int = prim::Constant[value=0]()
          %none : NoneType = prim::Constant()
          %a : Tensor = aten::relu(%x)
          %b : Tensor = {node}
          return (%b)"""
    )
    assert analysis.may_alias(v["a"], v["b"]) == aliases


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_writes_its_statistics_in_training(training: bool) -> None:
    _, analysis, v = read(
        f"""graph(%x : Tensor):
          %none : NoneType = prim::Constant()
          %flag : bool = prim::Constant[value={int(training)}]()
          %e : float = prim::Constant[value=0.1]()
          %m : Tensor = aten::relu(%x)
          %s : Tensor = aten::neg(%x)
          %y : Tensor = aten::batch_norm(%x, %none, %none, %m, %s, %flag, %e, %e, %flag)
          return (%y)"""
    )
    node = v["y"].node
    assert has_effect(node) == training and is_pure(node) != training
    assert analysis.may_write(node, v["m"]) == analysis.may_write(node, v["s"]) == training


# --------------------------------------------------------------------------------------------- order, movement


def test_writes_between_count_all_runs_of_a_loop() -> None:
    graph, analysis, v = read(
        """graph(%x : Tensor, %n : int, %true : bool):
          %a : Tensor = aten::relu(%x)
          %r : int = prim::Loop(%n, %true, %n)
            block0(%i : int, %k : int):
              %d : int = aten::dim(%a)
              %w : Tensor = aten::neg_(%a)
              %e : int = aten::dim(%a)
              -> (%true, %e)
          %f : int = aten::dim(%a)
          return (%r)"""
    )
    a, d, w, e, f = (v[name].node for name in "adwef")
    # The write follows %d in the text, but precedes it in the second run.
    assert analysis.is_written_between(v["a"], a, d)
    assert analysis.is_written_between(v["a"], d, e) and not analysis.is_written_between(v["a"], w, e)
    assert analysis.is_written_between(v["a"], e, f) and analysis.is_written_between(v["a"], a, f)
    assert analysis.is_written_after(v["a"], e) and not analysis.is_written_after(v["a"], f)
    assert not analysis.is_written_between(v["a"], a, v["r"].node)
    assert list(graph.inputs)


def test_moving_respects_reads_writes_and_effects() -> None:
    _, analysis, v = read(
        """graph(%x : Tensor, %s : str):
          %a : Tensor = aten::relu(%x)
          %b : Tensor = aten::neg(%x)
          %w : Tensor = aten::relu_(%a)
          %c : Tensor = aten::tanh(%a)
          %d : Tensor = aten::tanh(%b)
          %p : Tensor = aten::rand_like(%b, %n, %n, %n, %n, %n)
          %q : Tensor = aten::rand_like(%b, %n, %n, %n, %n, %n)
          return (%c)""".replace("%s : str", "%n : NoneType")
    )
    a, b, w, c, d, p, q = (v[name].node for name in "abwcdpq")
    assert analysis.can_move_before(b, a) and not analysis.can_move_before(w, a)
    assert not analysis.can_move_before(c, w) and analysis.can_move_before(d, w) and not analysis.can_move_before(d, b)
    assert not analysis.can_move_before(q, p) and analysis.can_move_before(p, w)
    assert analysis.can_move_after(b, w) and not analysis.can_move_after(b, d) and not analysis.can_move_after(w, c)
    assert not analysis.can_move_after(p, q) and not analysis.can_move_after(c, a)
    assert analysis.conflict(w, c) and not analysis.conflict(c, d)


def test_moving_out_of_blocks() -> None:
    _, analysis, v = read(
        """graph(%x : Tensor, %n : int, %true : bool):
          %a : Tensor = aten::relu(%x)
          %r : Tensor = prim::Loop(%n, %true, %a)
            block0(%i : int, %k : Tensor):
              %b : Tensor = aten::neg(%x)
              %c : Tensor = aten::neg(%k)
              %m : Tensor = aten::relu_(%c)
              %e : Tensor = aten::neg(%m)
              -> (%true, %e)
          return (%r)"""
    )
    loop = v["r"].node
    assert analysis.can_move_before(v["b"].node, loop)
    assert not analysis.can_move_before(v["c"].node, loop) and not analysis.can_move_before(v["m"].node, loop)


def test_new_nodes_are_taken_in_and_replaced_values_become_one() -> None:
    graph, analysis, v = read(
        """graph(%x : Tensor):
          %a : Tensor = aten::relu(%x)
          %t : Tensor = aten::t(%a)
          %b : Tensor = aten::neg(%t)
          return (%b)"""
    )
    node = Node("aten::relu_", [v["t"]])
    node.insert_before(v["b"].node)
    written = node.add_output()
    node.schema = resolve_node(node)
    assert analysis.may_alias(written, v["a"]) and analysis.is_written(v["a"])
    copy_of = Node("aten::tanh", [v["x"]])
    copy_of.insert_before(v["b"].node)
    new = copy_of.add_output()
    assert not analysis.may_alias(new, v["t"]) and not analysis.is_written(new)
    analysis.replaced(v["a"], new)
    assert analysis.may_alias(new, v["t"]) and analysis.is_written(new) and analysis.is_new(new)
    assert list(graph.nodes)


def test_large_graphs_take_little_time() -> None:
    graph = Graph()
    x = graph.add_input()
    for i in range(1700):
        a = graph.block.append(Node("aten::relu", [x])).add_output()
        b = graph.block.append(Node("aten::t", [a])).add_output()
        kind = "aten::neg_" if i % 7 == 0 else "aten::neg"
        x = graph.block.append(Node(kind, [b])).add_output()
    graph.add_output(x)
    for node in graph.nodes:
        node.schema = resolve_node(node)

    def seconds() -> float:
        start = time.perf_counter()
        AliasAnalysis(graph)
        return time.perf_counter() - start

    assert min(seconds() for _ in range(4)) < 0.4
