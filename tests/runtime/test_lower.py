"""Lowering: what becomes of nodes, which registers die when, and files made to blow it up."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.ir.parser import parse_graph
from gpujit.passes.inline import MAX_NODES
from gpujit.runtime import bytecode as bc
from gpujit.runtime.lower import MAX_INLINED_INSTRUCTIONS, Lowerer
from gpujit.runtime.vm import Interpreter
from gpujit.support.errors import LimitError, UnknownOperatorError
from tests.programs import archive, forward, module

X = np.ones(2, np.float32)


def load(source: str, attributes: Any = None) -> gpujit.ScriptModule:
    return gpujit.load(archive(source, attributes or {}))


def code_of(text: str) -> bc.Code:
    return Lowerer(np).graph_code(parse_graph(text))


def run(text: str, *arguments: Any) -> Any:
    lowerer = Lowerer(np)
    return Interpreter(lowerer).run(lowerer.graph_code(parse_graph(text)), list(arguments))


def names(code: bc.Code) -> list[str]:
    return [bc.NAMES[i[0]] for i in code.instructions]


CHAIN = """graph(%x : Tensor):
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::add(%x, %one, %one)
  %b : Tensor = aten::mul(%a, %a)
  %c : Tensor = aten::neg(%b)
  return (%c)"""


def test_each_register_is_released_by_the_instruction_that_needs_it_last() -> None:
    code = code_of(CHAIN)
    assert names(code) == ["OP3", "OP2", "OP1", "RETURN"]
    assert [i[-1] for i in code.instructions] == [(0,), (2,), (3,), ()]
    assert code.template[1] == 1 and str(code).startswith("graph: 1 inputs, 5 registers\n    0 OP3        aten::add")
    assert run(CHAIN, X).tolist() == [-4, -4]


def test_a_graph_of_several_results_returns_a_tuple() -> None:
    assert run("graph(%x : int, %y : int):\n  return (%y, %x)", 1, 2) == (2, 1)
    assert run("graph():\n  return ()") == ()


def test_a_graph_read_from_text_finds_its_overloads() -> None:
    text = "graph(%x : Tensor):\n  %y : Tensor = aten::nothing_of_the_kind(%x)\n  return (%y)"
    with pytest.raises(
        UnknownOperatorError, match=r"aten::nothing_of_the_kind has no entry in the table \(called with Tensor"
    ):
        run(text, X)


IF = """graph(%c : bool, %x : Tensor, %y : Tensor):
  %r : Tensor = prim::If(%c)
    block0():
      %a : Tensor = aten::neg(%x)
      -> (%a)
    block1():
      -> (%y)
  return (%r)"""
LOOP = """graph(%n : int, %x : Tensor):
  %true : bool = prim::Constant[value=1]()
  %r : Tensor, %s : Tensor = prim::Loop(%n, %true, %x, %x)
    block0(%i : int, %a : Tensor, %b : Tensor):
      %c : Tensor = aten::add(%a, %b, %i)
      -> (%true, %b, %c)
  return (%r, %s)"""


def test_branches_and_loops() -> None:
    assert run(IF, True, X, X * 3).tolist() == [-1, -1] and run(IF, False, X, X * 3).tolist() == [3, 3]
    want = [X, X]
    for n in range(5):
        assert [v.tolist() for v in run(LOOP, n, X)] == [v.tolist() for v in want]
        want = [want[1], want[0] + want[1] * n]


def test_a_list_of_constants_is_made_once_when_it_is_only_read() -> None:
    read = load(module(forward("x: Tensor", "return torch.view(x, [2, 1])")))
    kept = load(module(forward("x: Tensor -> List[int]", "return [2, 1]")))
    codes = [m._program.lowerer.code(m._object.type.methods["forward"]) for m in (read, kept)]
    assert "LIST" not in names(codes[0]) and "LIST" in names(codes[1])


def test_a_tuple_that_is_taken_apart_at_once_is_never_made() -> None:
    m = load(module(forward("x: Tensor", "a, b = torch.neg(x), x\nt = (a, b)\nc, d = t\nreturn torch.add(c, d)")))
    code = m._program.lowerer.code(m._object.type.methods["forward"])
    assert not {"TUPLE", "UNPACK"} & set(names(code)) and m(X).tolist() == [0, 0]


def chain(length: int, times: int, depth: int = 0) -> str:
    """Functions f0 to fN, each of which calls the next a number of times, within ``depth`` nested ifs."""
    source = module(forward("x: Tensor, b: bool=False", "return __torch__.f0(x, b, )"))
    for i in range(length):
        call = f"__torch__.f{i + 1}(x, b, )" if i + 1 < length else "torch.neg(x)"
        source += f"def f{i}(x: Tensor, b: bool) -> Tensor:\n"
        for level in range(depth):
            source += "  " * (level + 1) + "if torch.__not__(b):\n"
        pad = "  " * (depth + 1)
        source += "".join(
            f"{pad}y{k} = {call}\n" if k == 0 else f"{pad}if b:\n{pad}  z = {call}\n{pad}else:\n{pad}  pass\n"
            for k in range(times)
        )
        source += f"{pad}y = y0\n"
        for level in reversed(range(depth)):
            source += "  " * (level + 1) + "else:\n" + "  " * (level + 2) + "y = x\n"
        source += "  return y\n"
    return source


def test_calls_whose_inlining_is_exponential_stay_bounded() -> None:
    start = time.perf_counter()
    m = load(chain(30, 2))
    assert len(list(m.graph.all_nodes())) < 10
    assert m(X).tolist() == [-1, -1]
    code = m._program.lowerer.code(m._object.type.methods["forward"])
    assert len(code.instructions) < MAX_INLINED_INSTRUCTIONS + 1000 and "CALL" in names(code)
    assert time.perf_counter() - start < 20


def test_their_inlined_graph_is_a_limit_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_NODES <= 200_000
    monkeypatch.setattr("gpujit.passes.inline.MAX_NODES", 10_000)
    m = load(chain(30, 2))
    with pytest.raises(LimitError, match="gives more than 10000 nodes"):
        m.inlined_graph  # noqa: B018


@pytest.mark.parametrize(("length", "depth"), [(150, 0), (60, 3), (30, 30), (20, 60), (3, 90)])
def test_long_chains_through_nested_blocks_run(length: int, depth: int) -> None:
    """However calls and blocks nest, the stack of Python is enough, or the error says what was too deep."""
    m = load(chain(length, 1, depth))
    assert m(X).tolist() == [-1, -1]
    try:
        m.inlined_graph  # noqa: B018
    except LimitError as error:
        assert "nested too deeply" in str(error)


def test_a_callee_that_does_not_compile_is_named() -> None:
    m = load(module(forward("x: Tensor", "return __torch__.f(x, )")) + "def f(x: Tensor) -> Tensor:\n  return x.zz\n")
    with pytest.raises(gpujit.LoadError) as caught:
        m(X)
    assert "line 7 in __torch__.f" in str(caught.value)
