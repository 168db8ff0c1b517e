"""Graphs as source: text that is printed as it was read, and what is changed where it was written otherwise."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import gpujit
from gpujit.ir.graph import Graph, Node
from gpujit.ir.types import BOOL, INT, TENSOR
from gpujit.serialization.placeholder import placeholder_module
from gpujit.serialization.python_print import print_graph_as_source
from gpujit.serialization.writer import save_to_bytes
from gpujit.support.errors import SaveError
from tests.programs import Member, Obj, archive, module
from tests.serialization.saved import again, code, members

HEAD = "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n"

# Methods in the form they are printed in.
CANONICAL = {
    "literals": """
        def forward(self: __torch__.M,
          x: Tensor,
          n: int=-3,
          e: float=0.1,
          flag: bool=True,
          text: str="a\\"b\\'c\\\\d\\ne\\t\\001",
          none: Optional[int]=None) -> Tuple[float, float, float, float, complex, int, str, NoneType, Device]:
          _0 = (inf, -inf, nan, 1e-05, 2.-3.5j, -9223372036854775808, "\\177", None, torch.device("cuda:1"))
          return _0
        """,
    "inline": """
        def forward(self: __torch__.M,
          x: Tensor) -> Tensor:
          y = torch.relu(torch.add(torch.mul(x, 2), x))
          _0 = torch.add(torch.sub(torch.neg(x), x), y)
          _1 = torch.mul(_0, torch.mul(torch.abs(x), y))
          return torch.sum(_1, [0], True)
        """,
    "containers": """
        def forward(self: __torch__.M,
          x: Tensor,
          d: Dict[str, int]) -> Tuple[List[Optional[Tensor]], Dict[str, int], List[Tensor], Tuple[int], int]:
          a = annotate(List[Optional[Tensor]], [None, x])
          e = annotate(Dict[str, int], {})
          torch._set_item(e, "k", d["k"])
          f = {"a": 1, "b": 2}
          l = annotate(List[Tensor], [])
          _0 = torch.append(l, x)
          t = (1, "x", x)
          i, s, y, = t
          j, k, = torch.size(y)
          _1 = (a, f, l, ((t)[0],), torch.add(j, torch.len(e)))
          return _1
        """,
    "control": """
        def forward(self: __torch__.M,
          x: Tensor,
          n: int) -> Tensor:
          y = x
          for i in range(n):
            y = torch.add(y, i)
          if torch.gt(n, 2):
            z : Optional[Tensor] = None
          else:
            z : Optional[Tensor] = y
          if torch.__isnot__(z, None):
            z1 = unchecked_cast(Tensor, z)
            z0 = torch.add(z1, 1)
          else:
            ops.prim.RaiseException("no z", "builtins.ValueError")
            z0 = uninitialized(Tensor)
          _0, j, w = True, 0, z0
          while _0:
            w0 = torch.mul(w, 2)
            j0 = torch.add(j, 1)
            _0, j, w = torch.lt(j0, n), j0, w0
          print(n, "done")
          return torch.add(w, j)
        """,
    "casts": """
        def forward(self: __torch__.M,
          x: Tensor,
          a: Any) -> Tuple[int, float, bool, str, int, List[float], number, bool]:
          _0 = isinstance(a, (int, str))
          _1 = annotate(int, x)
          _2 = annotate(List[float], x.tolist())
          _3 = (int(x), float(x), bool(x), str(_1), _1, _2, annotate(number, x), _0)
          return _3
        """,
    "keywords": """
        def forward(self: __torch__.M,
          x: Tensor) -> Tensor:
          y = torch.zeros([2, 3], dtype=7, device=torch.device("cpu"))
          v, i, = torch.max(y, 1)
          _0 = torch.div(v, 2, rounding_mode="floor")
          _1 = torch.add(_0, torch.to(x, 7), alpha=2)
          return _1
        """,
    "closure": """
        def forward(self: __torch__.M,
          x: Tensor) -> Tensor:
          y = torch.neg(x)
          def __forked_function() -> Tensor:
            return torch.add(x, y)
          f = fork(__forked_function)
          return torch.wait(f)
        """,
    "unknown": """
        def forward(self: __torch__.M,
          x: Tensor) -> Tensor:
          _0 = torch.frobnicate(ops.fancy.scale(x, 2, mode="fast"))
          return _0
        """,
}


@pytest.mark.parametrize("name", CANONICAL)
def test_source_is_printed_as_it_was_read(name: str) -> None:
    source = module(CANONICAL[name])
    assert code(gpujit.load(archive(source, version=3)).save_to_buffer()) == source


CLASSES = """\
class M(Module):
  __parameters__ = ["w", ]
  __buffers__ = ["b", ]
  __forward_pre_hooks__ = ["pre", ]
  __forward_hooks__ = ["post", ]
  w : Tensor
  b : Tensor
  kind : __torch__.Kind
  point : __torch__.Point
  sub : __torch__.a.b.Sub
  any_sub : __torch__.Face
  __annotations__["0"] = int
  steps : Final[List[int]] = [1, 2]
  label : Final[str] = "x"
  def pre(self: __torch__.M,
    inputs: Tuple[Tensor]) -> Tuple[Tensor]:
    return (torch.add((inputs)[0], 1),)
  def post(self: __torch__.M,
    inputs: Tuple[Tensor],
    output: Tensor) -> Tensor:
    return torch.add(output, 1)
  def forward(self: __torch__.M,
    x: Tensor) -> Tensor:
    sub = self.sub
    any_sub = self.any_sub
    y = (any_sub).run((sub).run(x, ), )
    kind = self.kind
    if torch.eq(kind, __torch__.Kind.B):
      z0 = __torch__.a.helper(y, (kind).value, )
      z = z0
    else:
      z = y
    counter = __torch__.Counter.__new__(__torch__.Counter)
    (counter).__init__()
    with counter as c:
      p = __torch__.Point(c, None)
      _0 = getattr(self, "0")
      z00 = torch.add(torch.add(z, (p)[0]), _0)
    return z00
class Kind(Enum):
  A = 1
  B = 2
class Point(NamedTuple):
  x : int
  y : Optional[str]
class Face(ModuleInterface):
  def run(self, x: Tensor) -> Tensor:
    pass
class Counter:
  n : int
  def __init__(self: __torch__.Counter) -> NoneType:
    self.n = 1
    return None
  def __enter__(self: __torch__.Counter) -> int:
    return self.n
  def __exit__(self: __torch__.Counter,
    kind: Any,
    value: Any,
    trace: Any) -> NoneType:
    self.n = 0
    return None
"""
SUB = """\
class Sub(Module):
  __parameters__ = []
  __buffers__ = []
  def run(self: __torch__.a.b.Sub,
    x: Tensor) -> Tensor:
    return torch.mul(x, 2)
"""
HELPER = """\
def helper(x: Tensor,
  n: int) -> Tensor:
  return torch.add(x, n)
"""


def with_classes() -> gpujit.ScriptModule:
    sub = Obj("__torch__.a.b.Sub")
    attributes = {
        "w": np.ones(2, np.float32), "b": np.zeros(2, np.float32), "kind": Member("__torch__.Kind", 2),
        "point": (1, "x"), "sub": sub, "any_sub": sub, "0": 7,
    }  # fmt: skip
    files = {"__torch__.py": CLASSES, "__torch__/a/b.py": SUB, "__torch__/a.py": HELPER}
    return gpujit.load(archive(files, attributes))


def test_classes_enums_interfaces_hooks_and_functions() -> None:
    loaded = with_classes()
    data = loaded.save_to_buffer()
    # Definitions stand in the order in which they are needed.
    assert sorted(code(data).split("class ")) == sorted(CLASSES.split("class "))
    assert code(data, "__torch__/a/b") == SUB
    assert code(data, "__torch__/a") == HELPER
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(gpujit.load(data)(x), loaded(x))
    reloaded = again(loaded)
    assert reloaded.any_sub == reloaded.sub


def test_what_has_no_literal_becomes_a_constant() -> None:
    source = module(
        """
        def forward(self: __torch__.M,
          x: Tensor) -> Tuple[Tensor, str, str]:
          return (torch.add(x, CONSTANTS.c1), CONSTANTS.c0, CONSTANTS.c0)
        """
    )
    w = np.arange(3, dtype=np.float32)
    loaded = gpujit.load(archive(source, constants=("é", w)))
    reloaded = again(loaded)
    y, a, b = reloaded(np.ones(3, np.float32))
    np.testing.assert_array_equal(y, [1, 2, 3])
    assert (a, b) == ("é", "é")
    text, constants = reloaded.code_with_constants
    assert text.count("CONSTANTS.c0") == 1 and constants.c1 == "é"
    np.testing.assert_array_equal(constants.c0, w)
    with pytest.raises(AttributeError, match="c2"):
        constants.c2  # noqa: B018


def test_a_frozen_module_has_code_of_its_own() -> None:
    source = module(
        """
        def forward(self: __torch__.M, x: Tensor) -> Tensor:
          return torch.mul(x, self.w)
        """,
        "w : Tensor\ntraining : bool",
        parameters=["w"],
    )
    loaded = gpujit.load(archive(source, {"w": np.full(2, 3, np.float32), "training": False}))
    frozen = gpujit.freeze(loaded)
    text, constants = frozen.code_with_constants
    assert text == "def forward(self: __torch__.M,\n  x: Tensor) -> Tensor:\n  return torch.mul(x, CONSTANTS.c0)\n"
    assert constants.c0 is loaded.w
    assert frozen.code == text == frozen.forward.code
    np.testing.assert_array_equal(again(frozen)(np.ones(2, np.float32)), [3, 3])


def test_order_of_evaluation_is_kept_where_expressions_are_long() -> None:
    """What prints is called in the order it was: a long argument gets a line of its own, and so does what is before."""
    source = module(
        """
        def forward(self: __torch__.M, x: Tensor) -> List[int]:
          l = annotate(List[int], [])
          a = torch.add((self).f(l, 1, ), torch.add(torch.mul((self).f(l, 2, ), 1000000000000), 1000000000000))
          b = [(self).f(l, 3, ), torch.mul(torch.mul(torch.mul((self).f(l, 4, ), 100000000), 100000000), 1000000000)]
          return l
        def f(self: __torch__.M, l: List[int], n: int) -> int:
          _0 = torch.append(l, n)
          return n
        """
    )
    loaded = gpujit.load(archive(source))
    data = loaded.save_to_buffer()
    assert gpujit.load(data)(np.ones(1, np.float32)) == [1, 2, 3, 4]
    assert gpujit.load(data).save_to_buffer() == data
    assert "_0 = (self).f(l, 1, )" in code(data)


def test_expressions_do_not_nest_without_end() -> None:
    chain = "x"
    for _ in range(100):
        chain = f"torch.neg({chain})"
    body = f"def forward(self: __torch__.M, x: Tensor) -> Tensor:\n  return {chain}"
    loaded = gpujit.load(archive(module(body)))
    reloaded = again(loaded)
    np.testing.assert_array_equal(reloaded(np.ones(1, np.float32)), [1])
    assert max(line.count("(") for line in code(loaded.save_to_buffer()).split("\n")) < 12


def test_thousands_of_nodes_in_a_row_take_no_stack() -> None:
    graph = Graph("f")
    value = graph.add_input(TENSOR, "x")
    for _ in range(5000):
        value = graph.block.append(Node("aten::neg", [value])).add_output(TENSOR)
    graph.add_output(value)
    assert print_graph_as_source(graph).count("torch.neg") == 5000


def test_a_function_is_saved_as_a_module() -> None:
    source = module("def forward(self: __torch__.M, x: Tensor) -> Tensor:\n  return __torch__.helper(x, 3, )")
    source += "def helper(x: Tensor, n: int=2) -> Tensor:\n  return torch.mul(x, n)\n"
    loaded = gpujit.load(archive(source))._program.loaded
    assert loaded is not None
    function = loaded.resolver.find_function("__torch__.helper")
    assert function is not None
    saved = gpujit.load(save_to_bytes(placeholder_module(function), run_method=lambda f, a: None))
    assert saved.original_name == "PlaceholderModule"
    assert saved.forward.schema.arguments[2].default == 2
    np.testing.assert_array_equal(saved(np.ones(2, np.float32)), [2, 2])
    np.testing.assert_array_equal(saved(np.ones(2, np.float32), n=5), [5, 5])


def loop_graph() -> Graph:
    """A loop that has both a number of iterations and a condition, as passes may make one."""
    graph = Graph("f")
    n = graph.add_input(INT, "n")
    true, limit = graph.constant(True, BOOL), graph.constant(5, INT)
    block = graph.block.append(Node("prim::Loop", [n, true, limit])).add_block()
    i, total = block.add_param(INT, "i"), block.add_param(INT, "total")
    add = block.append(Node("aten::add", [total, i])).add_output(INT)
    test = block.append(Node("aten::lt", [add, n])).add_output(BOOL)
    block.add_return(test)
    block.add_return(add)
    assert block.owner is not None
    graph.add_output(block.owner.add_output(INT, "total"))
    return graph


def test_a_loop_that_counts_and_tests_counts_in_a_variable() -> None:
    text = print_graph_as_source(loop_graph())
    assert text == textwrap.dedent(
        """\
        total = 5
        _0 = True
        i = 0
        _1 = n
        while torch.__and__(torch.lt(i, _1), _0):
          _2 = torch.add(total, i)
          _0, total = torch.lt(_2, n), _2
          i = torch.add(i, 1)
        return total
        """
    )


def test_what_source_cannot_say_is_refused_with_its_place() -> None:
    graph = Graph("f")
    x = graph.add_input(TENSOR, "x")
    graph.block.append(Node("prim::Exit", [x])).add_output(TENSOR)
    graph.add_output(x)
    with pytest.raises(SaveError, match="f cannot be written as source: a context is left"):
        print_graph_as_source(graph, "f")
    graph = Graph("f")
    y = graph.block.append(Node("strange name", [graph.add_input(TENSOR, "x")])).add_output(TENSOR)
    graph.add_output(y)
    with pytest.raises(SaveError, match="strange name is no operator that source can name"):
        print_graph_as_source(graph, "f")


OLD = """
def forward(self: __torch__.M,
  x: Tensor,
  n: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
  a = torch.div(n, 2)
  b = torch.div(x, n)
  c = torch.full([2], 3)
  d = torch.linspace(0, 1)
  e = torch.gelu(x)
  f = torch.div_(torch.clone(n), n)
  return (a, b, c, d, e, f)
"""


def test_operators_of_old_files_keep_their_meaning() -> None:
    """In a file of version 3 integers divide to integers; the file written says so with today's operators."""
    x, n = np.asarray([1.5, -2], np.float32), np.asarray([7, -7], np.int64)
    loaded = gpujit.load(archive(module(OLD), version=3))
    before = loaded(x, n)
    data = loaded.save_to_buffer()
    assert int(data_version(data)) == 10
    assert "a = __torch__.upgraders.div_Scalar_0_3(n, 2)" in code(data)
    after = gpujit.load(data)(x, n)
    for a, b in zip(before, after, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    second = gpujit.load(data).save_to_buffer()
    assert gpujit.load(second).save_to_buffer() == second


def data_version(data: bytes) -> bytes:
    return members(data)["version"].strip()


@pytest.mark.parametrize(
    ("call", "version"),
    [
        ("torch.add(x, x)", 3), ("torch.div(x, 2)", 4), ("torch.div(x, 2, rounding_mode=\"floor\")", 4),
        ("torch.full([2], 1)", 5), ("torch.linspace(0, 1, 5)", 8), ("torch.logspace(0, 1, 5)", 9),
        ("torch.gelu(x)", 10),
    ],
)  # fmt: skip
def test_the_version_is_the_least_that_the_operators_allow(call: str, version: int) -> None:
    source = module(f"def forward(self: __torch__.M, x: Tensor) -> Tensor:\n  return {call}")
    data = gpujit.load(archive(source, version=10)).save_to_buffer()
    assert int(data_version(data)) == version


def test_a_lone_number_is_not_taken_for_a_list_of_sizes() -> None:
    def as_int32(x: gpujit.Tensor) -> gpujit.Tensor:
        return gpujit.ops.view(x, dtype=3)

    data = gpujit.script(as_int32).save_to_buffer()
    assert "torch.view(x, dtype=3)" in code(data)
    assert gpujit.load(data)(np.ones(2, np.float32)).dtype == np.int32
