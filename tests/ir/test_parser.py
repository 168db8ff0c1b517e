"""Text to graph: what is read, what is refused and where, limits, speed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node
from gpujit.ir.parser import MAX_NESTING, parse_graph, parse_type
from gpujit.ir.printer import OpaqueConstant, print_graph
from gpujit.ir.schema import Schema, parse_schema
from gpujit.ir.verify import verify
from gpujit.support.errors import InternalError, ParseError


def test_layout_does_not_matter() -> None:
    text = """
        # a comment
        graph(%x, %n : int[], ):   # another
            %a = aten::relu( %x )
              %b : Tensor ,%c: int = prim::Two[ k = 1 , s="x" ](%a,%n)
          %d : Tensor = prim::If(%c)
          block0():
          -> (%a)
            block1() :
              -> (%b,)
          return(%d)
        # the end
    """
    assert str(parse_graph(text)) == (
        "graph(%x : Tensor,\n      %n : int[]):\n"
        "  %a : Tensor = aten::relu(%x)\n"
        '  %b : Tensor, %c : int = prim::Two[k=1, s="x"](%a, %n)\n'
        "  %d : Tensor = prim::If(%c)\n"
        "    block0():\n      -> (%a)\n    block1():\n      -> (%b)\n"
        "  return (%d)\n"
    )


def test_constants_without_a_type_get_that_of_their_value() -> None:
    graph = parse_graph(
        "graph():\n  %a = prim::Constant[value=0]()\n  %b = prim::Constant[value=[1., 2.]]()\n"
        '  %c = prim::Constant()\n  %d = prim::Constant[value=(True, "s")]()\n  return (%a)'
    )
    assert [str(n.output.type) for n in graph.nodes] == ["int", "float[]", "NoneType", "(bool, str)"]


# Printed by PyTorch: mangled names, printed tensors, octal escapes, scopes, annotations.
TORCH_TEXT = r"""graph(%self.1 : __torch__.___torch_mangle_3.M,
      %x : Float(2, 2, strides=[2, 1], requires_grad=0, device=cpu),
      %s : InterfaceType<StepInterface>):
  %l : __torch__.torch.nn.modules.linear.___torch_mangle_2.Linear = prim::GetAttr[name="l"](%self.1)
  %1 : Long(requires_grad=0, device=cpu) = prim::Constant[value={1}](), scope: __module.l # <stdin>:4:0
  %b : Float(3, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value= 0.2 -0.6 -0.1 [ CPUFloatType{3} ]]()
  %w : Tensor = prim::Constant[value=<Tensor>]()
  %ws : Tensor[] = prim::Constant[value=[<Tensor>, <Tensor>]]()
  %wt : (Tensor, int) = prim::Constant[value=( 0.5 [ CPUFloatType{1} ], 3)]()
  %o : __torch__.torch.classes.quantized.LinearPackedParamsBase = prim::Constant[value=object(0x55d5c8)]()
  %e : int[] = prim::Constant[value=annotate(List[int], [])]()
  %t : str = prim::Constant[value="it\'s \001 \177"]()
  %c : complex = prim::Constant[value=1.+2.j]()
  %i : int = prim::Constant[value=1]()
  %f : Function = prim::Constant[name="helper"]()
  %p : NamedTuple(a : int, b : Tensor) = prim::TupleConstruct(%i, %w)
  %u : Future[Tensor] = prim::fork_0(%x)
  %8 : Tensor = prim::CallMethod[name="forward"](%l, %x) # /a/b.py:51:15
  %9 : Float(*, 3) = aten::linear(%x, %w, %b) # code/__torch__/m.py:7:2
  %10 : Float(SS(-1), 4, strides=[*, 1]) = prim::f(%9)
  return (%8)
with prim::fork_0 = graph(%x : Tensor):
  return (%x)
"""


def test_what_torch_prints() -> None:
    graph = parse_graph(TORCH_TEXT)
    values = {n.output.name: n.output for n in graph.nodes}
    assert values["1"].type == T.TensorType(4, (), None, "cpu", False)
    assert [str(values["w"].constant().text), len(values["ws"].constant())] == ["<Tensor>", 2]
    for name in ("1", "b", "wt", "o"):
        assert isinstance(values[name].constant(), OpaqueConstant)
    assert values["b"].constant().text == " 0.2 -0.6 -0.1 [ CPUFloatType{3} ]"
    assert values["e"].constant() == []
    assert values["t"].constant() == "it's \x01 \x7f"
    assert values["f"].constant().name == "helper"
    assert isinstance(graph.inputs[2].type, T.InterfaceType)
    assert str(values["8"].node.source) == "/a/b.py:51:15"
    assert str(values["1"].node.source) == "<stdin>:4:0"
    assert values["u"].node.kind == "prim::fork"
    assert values["9"].type == T.TensorType(6, (None, 3))
    verify(graph)
    text = str(graph)
    assert str(parse_graph(text)) == text


def test_unknown_functions_have_no_body() -> None:
    graph = parse_graph('graph():\n  %f : Function = prim::Constant[name="helper"]()\n  return (%f)')
    function = graph.outputs[0].constant()
    assert not function.has_body
    with pytest.raises(InternalError, match="'helper' was not given"):
        _ = function.schema


def test_placeholders_are_one_per_name() -> None:
    graph = parse_graph("graph(%a : __torch__.A, %b : __torch__.A, %c : Enum<__torch__.E>):\n  return ()")
    a, b, c = (v.type for v in graph.inputs)
    assert a is b
    assert isinstance(a, T.ClassType)
    assert isinstance(c, T.EnumType)


def test_known_types_are_taken_from_the_caller() -> None:
    mine = T.ClassType("__torch__.A")
    enum = T.EnumType("__torch__.E", T.INT, {"X": 7})
    known = {"__torch__.A": mine, "__torch__.E": enum, "Short": T.INT}
    text = "graph(%a : __torch__.A[]):\n  %e : Enum<__torch__.E> = prim::Constant[value=__torch__.E.X]()\n  return (%e)"
    for types in (known, known.get):
        graph = parse_graph(text, types=types)
        assert graph.inputs[0].type == T.ListType(mine)
        assert graph.inputs[0].type.children()[0] is mine
        assert graph.outputs[0].constant().value == 7
    with pytest.raises(ParseError, match="has no member Y; it has X"):
        parse_graph(text.replace("E.X", "E.Y"), types=known)


def test_overloads_come_from_the_caller() -> None:
    schema = parse_schema("aten::relu(Tensor self) -> Tensor")

    def resolve(node: Node) -> Schema | None:
        return schema if node.kind == "aten::relu" and len(node.inputs) == 1 else None

    graph = parse_graph("graph(%x):\n  %y = aten::relu(%x)\n  return (%y)", resolve=resolve)
    assert graph.outputs[0].node.schema is schema


FAULTS = [
    ("graph(%x", "line 1, column 9: expected a parameter or '):'"),
    ("grph():\n return ()", "line 1, column 1: expected 'graph('"),
    ("graph(%x):\n  %y = aten::relu(%z)\n  return (%y)", "line 2, column 19: %z is not defined"),
    ("graph(%x):\n  %x = aten::relu(%x)\n  return (%x)", "line 2, column 4: %x is defined twice"),
    ("graph(%x, %x):\n  return (%x)", "line 1, column 12: %x is defined twice"),
    ("graph(%x):\n  %y = relu(%x)\n  return (%y)", "line 2, column 6: expected '= namespace::name'"),
    ("graph(%x : Tensr):\n  return (%x)", "line 1, column 12: unknown type 'Tensr'"),
    ("graph(%x : Tensor(a)):\n  return (%x)", "line 1, column 19: expected a size"),
    ("graph(%x : Dict(int)):\n  return (%x)", "line 1, column 12: Dict takes 2 types, found 1"),
    ("graph(%x):\n  %y = aten::f[a=](%x)\n  return (%y)", "line 2, column 18: expected a value"),
    ("graph(%x):\n  %y = aten::f[a=1 b=2](%x)\n  return (%y)", "line 2, column 20: expected ']'"),
    ("graph(%x):\n  %y = aten::f[a=1, a=2](%x)\n  return (%y)", "line 2, column 21: attribute a is given twice"),
    ('graph():\n  %y : str = prim::Constant[value="a]()\n  return (%y)', "line 2, column 35: expected a string"),
    ("graph():\n  %y : bool = prim::Constant[value=2]()\n  return (%y)", "column 36: a bool is 0 or 1"),
    ("graph():\n  %y : int = prim::Constant[value=x]()\n  return (%y)", "column 35: unknown type 'x'"),
    ("graph():\n  %y : int[] = prim::Constant[value=[1, x]]()\n  return (%y)", "column 41: unknown type 'x'"),
    ('graph():\n  %y : Device = prim::Constant[value="gpu"]()\n  return (%y)', "column 38: 'gpu' is no device"),
    (f"graph():\n  %y : int = prim::Constant[value={'9' * 5000}]()\n  return ()", "column 35: an integer of more than"),
    ("graph():\n  %y = prim::f[v={[1]: 2}]()\n  return ()", "a dict's key must be"),
    ("graph(%x):\n  -> (%x)", "line 2, column 3: a graph ends with 'return'"),
    ("graph(%c):\n  block0():\n    -> ()\n  return ()", "line 2, column 3: a block needs a node before it"),
    ("graph(%c):\n  = prim::If(%c)\n  block1():\n    -> ()\n  return ()", "line 3, column 3: expected block0"),
    ("graph(%c):\n  = prim::If(%c)\n  block0():\n  return ()", "line 4, column 3: a block ends with '->'"),
    (
        "graph(%c):\n  %y = prim::If(%c)\n  block0():\n   %a = aten::f()\n   -> (%a)\n"
        "  block1():\n   -> (%a)\n return ()",
        "line 7, column 8: %a belongs to a block",
    ),
    ("graph(%c):\n  %y = prim::If(%c)\n  block0():\n   -> (%y)\n  return ()", "column 8: %y belongs to a block"),
    ("graph():\n  return ()\nmore", "line 3, column 1: expected the end of the text"),
    ("graph():\n  return ()\nwith prim::f_0 = graph():\n  return ()", "no node holds the graph prim::f_0"),
    ("graph():\n  = prim::f[g=graph_0]()\n  return ()", "expected 'with graph_0 = graph"),
    ("graph():\n  %a = aten::f()", "line 2, column 17: expected a node, a block"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FAULTS, ids=[m for _, m in FAULTS])
def test_faults_have_a_place(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_graph(text)
    assert message in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_the_caret_points_at_the_fault() -> None:
    with pytest.raises(ParseError) as caught:
        parse_graph("graph(%x):\n  %y = aten::relu(%z)\n  return (%y)")
    assert str(caught.value) == ("line 2, column 19: %z is not defined\n    %y = aten::relu(%z)\n                    ^")


DEEP = 100_000


@pytest.mark.parametrize(
    "text",
    [
        "graph(%c):\n" + "= prim::If(%c)\nblock0():\n" * DEEP,
        f"graph(%x : {'(' * DEEP}",
        f"graph(%x : int{'[]' * DEEP}):\n  return ()",
        f"graph(%x : {'Dict(int, ' * DEEP}",
        f"graph():\n  = a::b[v={'[' * DEEP}",
        f"graph():\n  = a::b[v={'{1: (' * DEEP}",
        f"graph():\n  = a::b[v=Type({'(' * DEEP}",
        f"graph():\n  %x : int[] = prim::Constant[value={'annotate(int, ' * DEEP}1]()\n  return ()",
        f"graph():\n  %x : __torch__.A = prim::Constant[value={'[' * DEEP}]()\n  return ()",
        "graph():\n" + "= a::b_0()\nreturn ()\nwith a::b_0 = graph():\n" * DEEP,
    ],
    ids=["blocks", "tuples", "lists", "dicts", "values", "mixed", "types", "annotations", "raw", "graphs"],
)
def test_nesting_is_limited(text: str) -> None:
    with pytest.raises(ParseError, match=f"more than {MAX_NESTING}"):
        parse_graph(text)


def test_nesting_up_to_the_limit_works() -> None:
    graph = Graph()
    flag = graph.add_input(T.BOOL, "c")
    block = graph.block
    for _ in range(150):
        node = block.append(Node("prim::If", [flag]))
        block = node.add_block()
        node.add_block()
    text = str(graph)
    assert str(parse_graph(text)) == text
    verify(graph)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_text_gives_a_graph_or_a_parse_error(data: st.DataObject) -> None:
    text = TORCH_TEXT
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        drop = data.draw(st.integers(0, 12))
        text = (
            text[:at]
            + data.draw(st.sampled_from(['"', "(", "]", "%", " ", ":", "[", "-", "1", "", "é", "\\"]))
            + text[at + drop :]
        )
    try:
        parse_graph(text)
    except ParseError as error:
        assert "^" in str(error)


def big_graph(count: int) -> str:
    graph = Graph()
    value = graph.add_input(T.TensorType(6, (2, 3), (3, 1), "cpu", False), "x")
    one = graph.constant(1, T.INT)
    for i in range(count):
        node = Node("aten::add", [value, value, one])
        graph.block.append(node)
        value = node.add_output(T.TENSOR if i % 2 else T.TensorType(6, (2, 3), (3, 1), "cpu", False), f"y.{i}")
    graph.add_output(value)
    return print_graph(graph)


def test_reading_is_quick_and_linear() -> None:
    def seconds(text: str) -> float:
        best = 1e9
        for _ in range(3):
            start = time.perf_counter()
            parse_graph(text)
            best = min(best, time.perf_counter() - start)
        return best

    small, large = seconds(big_graph(3_000)), seconds(big_graph(12_000))
    # Wide margins: machines that run tests are busy. Alone it takes 40 ms.
    assert small < 0.6
    assert large < 20 * small


@pytest.mark.parametrize(
    "text",
    [
        "graph(%a):\n  = a::b(" + "%a  \n " * 20_000 + "!",
        "graph(%a):\n  = a::b(%a" + " " * 20_000 + "!",
        "graph(" + "%a : int  ,  " * 20_000 + "!",
        'graph():\n  = a::b[v="' + "\\n" * 20_000,
        "graph():\n  = a::b[v=" + "1." * 20_000,
        "graph():\n" + '  %a : __torch__.A = prim::Constant[value="x]()\n' * 5_000,
        "# \n \t" * 20_000,
        "graph(%a : " + "A." * 20_000,
    ],
)
def test_hostile_text_fails_quickly(text: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ParseError):
        parse_graph(text)
    assert time.perf_counter() - start < 2


def test_types_alone() -> None:
    assert parse_type(" Optional[ List[int] ] ") == T.optional(T.ListType(T.INT))
    assert parse_type("Tuple[()]") == T.TupleType(())
    assert parse_type("Tuple[int, Dict[str, Tensor]]") == T.TupleType((T.INT, T.DictType(T.STR, T.TENSOR)))
    assert parse_type("t[]") == T.ListType(T.VarType("t"))
    assert parse_type("SymInt[]") == T.ListType(T.INT)
    with pytest.raises(ParseError, match="line 1, column 5: expected the end of the type"):
        parse_type("int x")
    with pytest.raises(ParseError, match="column 1: expected a type"):
        parse_type("")


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_graphs_of_torch_print_the_same() -> None:
    torch = pytest.importorskip("torch")

    def branchy(x, n: int):  # type: ignore[no-untyped-def]
        total = torch.zeros([2])
        names = ["a", "b"]
        for i in range(n):
            if i > 2:
                total = total + x * 1.5
            else:
                total, names = total - x, [f"{i}"]
        return total, names

    branchy.__annotations__["x"] = torch.Tensor
    scripted = torch.jit.script(branchy)
    lstm = torch.jit.trace(torch.nn.LSTM(2, 3), torch.zeros(4, 1, 2))
    script = torch.jit.script(torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU()))
    frozen = torch.jit.freeze(script.eval())
    for module in (scripted, lstm, script, frozen):
        for graph in (module.graph, module.inlined_graph):
            text = str(graph).replace("\\'", "'")
            parsed = parse_graph(text)
            assert str(parsed) == text
            verify(parsed)
