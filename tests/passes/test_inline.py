from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpujit.ir import types as T
from gpujit.ir.graph import Graph
from gpujit.ir.module import Function
from gpujit.ir.parser import parse_graph
from gpujit.ir.schema import parse_schema
from gpujit.ir.verify import verify
from gpujit.passes.inline import inline, inlined
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.vm import Interpreter
from gpujit.support.errors import LimitError
from gpujit.testing import check_pass, resolve_node


def run(graph: Graph, *inputs: Any) -> Any:
    lowerer = Lowerer(np)
    return Interpreter(lowerer).run(lowerer.graph_code(graph), list(inputs))


def function(name: str, schema: str, text: str, functions: dict[str, Function] | None = None) -> Function:
    def body() -> Graph:
        return parse_graph(text, resolve=resolve_node, functions=functions or {})

    return Function(name, lambda: parse_schema(schema), body)


DOUBLE = function(
    "double",
    "double(Tensor x) -> Tensor",
    """graph(%x : Tensor):
         %two : int = prim::Constant[value=2]()
         %y : Tensor = aten::mul(%x, %two)
         return (%y)""",
)
TWICE = function(
    "twice",
    "twice(Tensor x) -> Tensor",
    """graph(%x : Tensor):
         %f : Function = prim::Constant[name="double"]()
         %y : Tensor = prim::CallFunction(%f, %x)
         %z : Tensor = prim::CallFunction(%f, %y)
         return (%z)""",
    {"double": DOUBLE},
)
X = np.arange(3, dtype=np.float32)


def test_calls_of_calls_become_their_bodies_and_the_function_constant_goes() -> None:
    graph = check_pass(
        inline,
        before="""
            graph(%x : Tensor):
              %f : Function = prim::Constant[name="twice"]()
              %y : Tensor = prim::CallFunction(%f, %x)
              return (%y)""",
        after="""
            graph(%x : Tensor):
              %two : int = prim::Constant[value=2]()
              %y : Tensor = aten::mul(%x, %two)
              %three : int = prim::Constant[value=2]()
              %z : Tensor = aten::mul(%y, %three)
              return (%z)""",
        functions={"twice": TWICE, "double": DOUBLE},
        samples=[(X,)],
        run=run,
    )
    calls = [n.call for n in graph.all_nodes() if n.kind == "aten::mul"]
    assert [[s.function for s in call.frames()] for call in calls if call] == [["double", "twice"]] * 2


def test_calls_inside_blocks_and_a_result_that_is_an_argument() -> None:
    same = function("same", "same(Tensor x) -> Tensor", "graph(%x : Tensor):\n  return (%x)")
    check_pass(
        inline,
        before="""
            graph(%x : Tensor, %c : bool):
              %f : Function = prim::Constant[name="same"]()
              %y : Tensor = prim::If(%c)
                block0():
                  %a : Tensor = prim::CallFunction(%f, %x)
                  -> (%a)
                block1():
                  %g : Function = prim::Constant[name="double"]()
                  %b : Tensor = prim::CallFunction(%g, %x)
                  -> (%b)
              return (%y)""",
        after="""
            graph(%x : Tensor, %c : bool):
              %y : Tensor = prim::If(%c)
                block0():
                  -> (%x)
                block1():
                  %two : int = prim::Constant[value=2]()
                  %b : Tensor = aten::mul(%x, %two)
                  -> (%b)
              return (%y)""",
        functions={"same": same, "double": DOUBLE},
        samples=[(X, True), (X, False)],
        run=run,
    )


def test_the_copy_and_the_pass_give_the_same_graph() -> None:
    text = """
        graph(%x : Tensor):
          %f : Function = prim::Constant[name="twice"]()
          %y : Tensor = prim::CallFunction(%f, %x)
          return (%y)"""
    graph = parse_graph(text, functions={"twice": TWICE}, resolve=resolve_node)
    copy = inlined(graph)
    assert any(n.kind == "prim::CallFunction" for n in graph.all_nodes())
    inline(graph)
    assert str(copy) == str(graph)


def interface() -> T.InterfaceType:
    t = T.InterfaceType("__torch__.Doer", is_module=True)
    t.methods["forward"] = Function(
        "__torch__.Doer.forward", lambda: parse_schema("forward(Any self, Tensor x) -> Tensor")
    )
    return t


def test_a_call_through_an_interface_stays(caplog: pytest.LogCaptureFixture) -> None:
    text = """
        graph(%m : __torch__.Doer, %x : Tensor):
          %y : Tensor = prim::CallMethod[name="forward"](%m, %x)
          return (%y)"""
    with caplog.at_level("DEBUG", "gpujit.passes"):
        check_pass(inline, text, text, types=lambda name: interface() if name == "__torch__.Doer" else None)
    assert "which method runs is not known" in caplog.text


def test_functions_that_call_themselves_are_refused() -> None:
    functions: dict[str, Function] = {}
    functions["f"] = function(
        "f",
        "f(Tensor x) -> Tensor",
        """graph(%x : Tensor):
             %f : Function = prim::Constant[name="f"]()
             %y : Tensor = prim::CallFunction(%f, %x)
             return (%y)""",
        functions,
    )
    graph = functions["f"].graph.copy()
    with pytest.raises(LimitError, match=r"calls of f are nested more than 200 deep"):
        inline.run(graph)


FORK = """
    graph(%x : Tensor):
      %f : Future(Tensor) = prim::fork_0(%x)
      %a : Tensor = aten::neg(%x)
      %y : Tensor = aten::wait(%f)
      %z : Tensor = aten::add(%a, %y, %one)
      return (%z)
    with prim::fork_0 = graph(%x : Tensor):
      %y : Tensor = aten::relu(%x)
      return (%y)""".replace("%f : Fut", "%one : int = prim::Constant[value=1]()\n      %f : Fut")


def test_a_fork_that_is_waited_for_runs_in_its_place() -> None:
    check_pass(
        inline,
        before=FORK,
        after="""
            graph(%x : Tensor):
              %one : int = prim::Constant[value=1]()
              %y : Tensor = aten::relu(%x)
              %a : Tensor = aten::neg(%x)
              %z : Tensor = aten::add(%a, %y, %one)
              return (%z)""",
        samples=[(X,)],
        run=run,
    )


def test_an_awaitable_runs_in_its_place_and_a_wrapped_value_is_read_directly() -> None:
    check_pass(
        inline,
        before="""
            graph(%x : Tensor):
              %f : Await(Tensor) = prim::awaitable_0(%x)
              %y : Tensor = prim::awaitable_wait(%f)
              %g : Await(Tensor) = prim::awaitable_nowait(%y)
              %z : Tensor = prim::awaitable_wait(%g)
              return (%z)
            with prim::awaitable_0 = graph(%x : Tensor):
              %y : Tensor = aten::relu(%x)
              return (%y)""",
        after="""
            graph(%x : Tensor):
              %y : Tensor = aten::relu(%x)
              return (%y)""",
        samples=[(X,)],
        run=run,
    )


def test_a_fork_inside_a_fork() -> None:
    check_pass(
        inline,
        before="""
            graph(%x : Tensor):
              %f : Future(Tensor) = prim::fork_0(%x)
              %y : Tensor = aten::wait(%f)
              return (%y)
            with prim::fork_0 = graph(%x : Tensor):
              %g : Future(Tensor) = prim::fork_0(%x)
              %y : Tensor = aten::wait(%g)
              return (%y)
            with prim::fork_0 = graph(%x : Tensor):
              %y : Tensor = aten::relu(%x)
              return (%y)""",
        after="""
            graph(%x : Tensor):
              %y : Tensor = aten::relu(%x)
              return (%y)""",
        samples=[(X,)],
        run=run,
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            """
            %l : Future(Tensor)[] = prim::ListConstruct(%f)
            return (%l)""",
            "its future is given to prim::ListConstruct",
        ),
        (
            """
            %y : Tensor = prim::If(%c)
              block0():
                %r : Tensor = aten::wait(%f)
                -> (%r)
              block1():
                -> (%x)
            return (%y)""",
            "nothing in its own block waits for it",
        ),
    ],
)
def test_a_fork_stays(body: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    text = f"""
        graph(%x : Tensor, %c : bool):
          %f : Future(Tensor) = prim::fork_0(%x)
          {body}
        with prim::fork_0 = graph(%x : Tensor):
          %y : Tensor = aten::relu(%x)
          return (%y)"""
    with caplog.at_level("DEBUG", "gpujit.passes"):
        check_pass(inline, text, text)
    assert reason in caplog.text


def test_calls_inside_a_fork_that_stays_are_inlined_in_a_graph_of_its_own() -> None:
    before = """
        graph(%x : Tensor):
          %f : Future(Tensor) = prim::fork_0(%x)
          return (%f)
        with prim::fork_0 = graph(%x : Tensor):
          %g : Function = prim::Constant[name="double"]()
          %y : Tensor = prim::CallFunction(%g, %x)
          return (%y)"""
    graph = parse_graph(before, functions={"double": DOUBLE}, resolve=resolve_node)
    shared = next(graph.nodes).attributes["Subgraph"]
    assert inline(graph)
    verify(graph)
    (mine,) = (n.attributes["Subgraph"] for n in graph.nodes)
    assert [n.kind for n in mine.nodes] == ["prim::Constant", "aten::mul"]
    assert [n.kind for n in shared.nodes] == ["prim::Constant", "prim::CallFunction"]
    assert not inline(graph)
