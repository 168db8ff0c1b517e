"""The interpreter: views and lists keep their identity, registers are released, failures leave everything in order."""

from __future__ import annotations

import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.support.errors import LimitError, OpError, ScriptRaised, UnknownOperatorError
from tests.programs import Obj, Typed, archive, forward, module


def load(source: str, attributes: Any = None, **options: Any) -> gpujit.ScriptModule:
    return gpujit.load(archive(source, attributes, **options))


def program(signature: str, body: str) -> gpujit.ScriptModule:
    return load(module(forward(signature, body)))


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


# --------------------------------------------------------------------------------------- values and identity


@pytest.mark.parametrize(
    ("signature", "body", "arguments", "want"),
    [
        ("x: Tensor", "y = torch.select(x, 0, 1)\n_0 = torch.mul_(y, 3)\nreturn torch.sum(x)", (ones(2, 2),), 8.0),
        (
            "x: Tensor",
            "y = torch.t(x)\n_0 = torch.add_(torch.select(y, 0, 0), 1)\nreturn torch.select(x, 1, 0)",
            (ones(2, 3),),
            [2, 2],
        ),
        (
            "x: Tensor",
            "y = torch.view(x, [4])\n_0 = torch.zero_(y)\nreturn torch.add(x, torch.select(y, 0, 0))",
            (ones(2, 2),),
            [[0, 0], [0, 0]],
        ),
        (
            "x: Tensor",
            "y = torch.expand(torch.select(x, 0, 0), [2, 2])\n_0 = torch.fill_(x, 5)\nreturn y",
            (ones(2, 2),),
            [[5, 5], [5, 5]],
        ),
        ("x: Tensor", "y = torch.clone(x)\n_0 = torch.add_(y, 1)\nreturn x", (ones(1),), [1]),
        (
            "x: Tensor",
            "_0 = torch.copy_(torch.slice(x, 0, 1), torch.slice(x, 0, 0, -1))\nreturn x",
            (np.arange(4.0),),
            [0, 0, 1, 2],
        ),
    ],
    ids=["select", "transpose", "view", "expand", "clone", "overlap"],
)
def test_writes_go_through_views(signature: str, body: str, arguments: tuple[Any, ...], want: Any) -> None:
    np.testing.assert_array_equal(program(signature, body)(*arguments), want)


def test_the_callers_array_is_written_in_place_as_in_pytorch() -> None:
    x = ones(3)
    result = program("x: Tensor", "return torch.add_(x, 1)")(x)
    assert result is x and x.tolist() == [2, 2, 2]


LISTS = module(
    """
    def grow(self: __torch__.M, l: List[int]) -> List[int]:
      _0 = torch.append(l, torch.len(l))
      return l
    def forward(self: __torch__.M) -> Tuple[bool, bool, List[int]]:
      a = annotate(List[int], [])
      b = (self).grow(a, )
      c = (self).grow(self.l, )
      _1 = torch.append(a, 9)
      same = torch.__is__(a, b)
      return (same, torch.__is__(c, self.l), b)
    def replace(self: __torch__.M) -> Tuple[List[int], List[int]]:
      old = self.l
      self.l = [7]
      _0 = torch.append(self.l, 8)
      return (old, self.l)
    """,
    "l : List[int]",
)


def test_lists_keep_their_identity_through_calls_and_attributes() -> None:
    m = load(LISTS, {"l": [1]})
    same, attribute, b = m()
    assert (same, attribute, b) == (True, True, [0, 9])
    assert m.l == [1, 1]
    assert m.replace() == ([1, 1], [7, 8])


def test_a_constant_list_is_new_in_every_run_when_the_program_changes_it() -> None:
    m = program("n: int -> List[int]", "l = [1, 2]\n_0 = torch.append(l, n)\nreturn l")
    assert m(5) == [1, 2, 5] and m(6) == [1, 2, 6]
    default = program("l: List[int]=[1] -> List[int]", "_0 = torch.append(l, 2)\nreturn l")
    assert default() == [1, 2] and default() == [1, 2]


def test_a_constant_list_that_is_returned_is_not_shared_between_runs() -> None:
    m = program("-> List[int]", "return [1, 2]")
    m().append(3)
    assert m() == [1, 2]


def test_constants_of_the_class_are_not_changed_by_the_program() -> None:
    m = load(
        module(forward("-> List[int]", "l = self.k\n_0 = torch.append(l, 2)\nreturn l"), "k : Final[List[int]] = [1]")
    )
    assert m() == [1, 2] and m() == [1, 2]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (
            "a, b, c = 1, 2, 3\nfor i in range(n):\n  a, b, c = b, c, a\nreturn (a, b, c)",
            [(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 2, 3)],
        ),
        (
            "a, b, c = 0, 1, 0\nfor i in range(n):\n  a, b = b, torch.add(a, b)\n  c = i\nreturn (a, b, c)",
            [(0, 1, 0), (1, 1, 0), (1, 2, 1), (2, 3, 2)],
        ),
        (
            "a, b, c = 1, 2, 0\nwhile torch.lt(c, n):\n  t = a\n  a = b\n  b = t\n"
            "  c = torch.add(c, 1)\nreturn (a, b, c)",
            [(1, 2, 0), (2, 1, 1), (1, 2, 2), (2, 1, 3)],
        ),
        (
            "a, b, c = 0, 0, 0\nfor i in range(n):\n  for j in range(i):\n    a, b = torch.add(b, 1), a\n"
            "  if torch.gt(i, 1):\n"
            "    c, a = a, c\n  else:\n    pass\nreturn (a, b, c)",
            [(0, 0, 0), (0, 0, 0), (1, 0, 0), (0, 1, 2)],
        ),
    ],
    ids=["rotate", "fibonacci", "while", "nested"],
)
def test_loops_carry_values_at_once(body: str, want: list[tuple[int, int, int]]) -> None:
    m = program("n: int -> Tuple[int, int, int]", body)
    assert [m(n) for n in range(4)] == want


def test_a_loop_over_a_negative_number_runs_nothing_and_one_may_change_its_bound() -> None:
    m = program(
        "n: int -> int", "s = 0\nk = n\nfor i in range(k):\n  k = 100\n  s = torch.add(s, 1)\nreturn torch.add(s, k)"
    )
    assert m(-3) == -3 and m(2) == 102


INTERFACE = module(
    forward("x: Tensor -> Tuple[int, int]", "return ((self.a).f(1, ), (self.b).f(1, ))"),
    "a : __torch__.I\nb : __torch__.I",
)
INTERFACE += """class I(ModuleInterface):
  def f(self, n: int) -> int:
    pass
class A(Module):
  def f(self, n: int) -> int:
    return torch.add(n, 10)
class B(Module):
  k : int
  def f(self, n: int) -> int:
    return torch.add(n, self.k)
"""


def test_interfaces_call_the_method_of_the_object_at_hand() -> None:
    assert load(INTERFACE, {"a": Obj("__torch__.A"), "b": Obj("__torch__.B", {"k": 5})})(ones(1)) == (11, 6)


def test_an_object_without_the_interfaces_methods_is_refused_at_load() -> None:
    source = INTERFACE + "class C(Module):\n  def g(self, n: int) -> int:\n    return n\n"
    with pytest.raises(
        gpujit.LoadError, match=r"attribute 'a' of __torch__.M is declared as __torch__.I but .* __torch__.C"
    ):
        load(source, {"a": Obj("__torch__.C"), "b": Obj("__torch__.A")})


# ---------------------------------------------------------------------------------------------------- memory


def peak_of(call: Any) -> int:
    call()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


SIZE = 1 << 20
X = np.ones(SIZE // 4, np.float32)


@pytest.mark.parametrize(
    ("source", "arrays"),
    [
        (
            module(
                forward(
                    "x: Tensor",
                    "".join(f"x{i} = torch.add({f'x{i - 1}' if i else 'x'}, 1)\n" for i in range(20)) + "return x19",
                )
            ),
            2,
        ),
        (module(forward("x: Tensor", "y = x\nfor i in range(20):\n  y = torch.add(y, 1)\nreturn y")), 3),
        (
            module(
                forward(
                    "x: Tensor, b: bool=True",
                    "y = x\n"
                    + "if b:\n  y0 = torch.add(y, 1)\nelse:\n  y0 = y\ny = torch.mul(y0, 2)\n" * 10
                    + "return y",
                )
            ),
            3,
        ),
        (
            module(
                forward(
                    "x: Tensor",
                    "".join(f"x{i} = (self).f({f'x{i - 1}' if i else 'x'}, )\n" for i in range(10)) + "return x9",
                )
                + "def f(self: __torch__.M, x: Tensor) -> Tensor:\n"
                + "  y = torch.add(x, 1)\n  z = torch.mul(y, 2)\n  return torch.sub(z, 1)\n"
            ),
            3,
        ),
        (
            module(
                forward(
                    "x: Tensor",
                    "".join(
                        f"y{i}, z{i} = torch.split({f'w{i - 1}' if i else 'x'}, {SIZE // 8})\n"
                        f"w{i} = torch.cat([y{i}, z{i}])\n"
                        for i in range(10)
                    )
                    + "return w9",
                )
            ),
            3,
        ),
    ],
    ids=["chain", "loop", "if", "calls", "unpack"],
)
def test_memory_is_released_at_the_last_use(source: str, arrays: int) -> None:
    """A long chain needs a few arrays at a time, not one for each step."""
    m = load(source)
    assert peak_of(lambda: m(X)) < (arrays + 0.5) * SIZE


def test_nothing_of_a_run_is_kept_after_it() -> None:
    m = program("x: Tensor", "y = torch.add(x, 1)\nreturn torch.sum(y)")
    m(X)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(5):
            m(X)
        with pytest.raises(gpujit.GpujitError):
            m(X.reshape(2, -1), 3)
        assert tracemalloc.get_traced_memory()[0] - before < SIZE // 4
    finally:
        tracemalloc.stop()


# -------------------------------------------------------------------------------------------------- failures


FAILING = module(
    """
    def forward(self: __torch__.M, x: Tensor, fail: bool) -> int:
      self.count = torch.add(self.count, 1)
      _0 = torch.append(self.l, self.count)
      if fail:
        ops.prim.RaiseException("no", "builtins.ValueError")
      else:
        pass
      self.done = torch.add(self.done, 1)
      return self.count
    def check(self: __torch__.M, x: Tensor) -> Tensor:
      if torch.eq(torch.dim(x), 2):
        pass
      else:
        ops.prim.RaiseException("AssertionError: rank")
      return torch.mm(x, x)
    """,
    "count : int\ndone : int\nl : List[int]",
)


def test_after_an_exception_attributes_stand_as_they_were_left() -> None:
    m = load(FAILING, {"count": 0, "done": 0, "l": Typed([], "List[int]")})
    with pytest.raises(gpujit.Error) as caught:
        m(ones(1), True)
    assert caught.value.class_name == "builtins.ValueError" and caught.value.message == "no"
    assert str(caught.value).endswith("builtins.ValueError: no")
    assert (m.count, m.done, m.l) == (1, 0, [1])
    assert m(ones(1), False) == 2 and (m.done, m.l) == (1, [1, 2])


def test_what_the_program_raises_and_what_an_operator_refuses_look_alike() -> None:
    m = load(FAILING, {"count": 0, "done": 0, "l": Typed([], "List[int]")})
    with pytest.raises(ScriptRaised, match="AssertionError: rank") as caught:
        m.check(ones(1))
    assert caught.value.class_name == ""
    with pytest.raises(OpError) as op:
        m.check(ones(2, 3))
    text = str(op.value)
    assert text.startswith("aten::mm: ") and 'File "code/__torch__.py", line 21, in check' in text
    assert "return torch.mm(x, x)\n" in text and "           ~~~~~~~~~~~~~~ <--- HERE" in text


def test_tracebacks_show_calls_outermost_first() -> None:
    source = module(forward("x: Tensor", "return __torch__.f(x, )"))
    source += (
        "def f(x: Tensor) -> Tensor:\n  return __torch__.g(x, )\ndef g(x: Tensor) -> Tensor:\n  return torch.mm(x, x)\n"
    )
    with pytest.raises(OpError) as caught:
        load(source)(ones(1))
    where = caught.value.where
    lines = [line for line in where.split("\n") if "File" in line]
    assert [line.rpartition(" ")[2] for line in lines] == ["forward", "f", "g"]
    assert "original code" not in where


WITH = module(
    """
    def forward(self: __torch__.M, fail: int) -> List[str]:
      with self.a as n:
        with self.b:
          if torch.eq(fail, 1):
            ops.prim.RaiseException("inside")
          else:
            pass
          _0 = torch.append(self.log, torch.format("body {}", n))
        if torch.eq(fail, 2):
          ops.prim.RaiseException("between")
        else:
          pass
      return self.log
    """,
    "a : __torch__.K\nb : __torch__.K\nlog : List[str]",
)
WITH += """class K:
  name : str
  log : List[str]
  def __enter__(self: __torch__.K) -> int:
    _0 = torch.append(self.log, torch.add("enter ", self.name))
    return 5
  def __exit__(self: __torch__.K, type: Any, value: Any, tb: Any) -> NoneType:
    _0 = torch.append(self.log, torch.add("exit ", self.name))
"""


@pytest.mark.parametrize(
    ("fail", "want"),
    [
        (0, ["enter a", "enter b", "body 5", "exit b", "exit a"]),
        (1, ["enter a", "enter b", "exit b", "exit a"]),
        (2, ["enter a", "enter b", "body 5", "exit b", "exit a"]),
    ],
)
def test_with_leaves_its_managers_in_order_whatever_happens(fail: int, want: list[str]) -> None:
    log = Typed([], "List[str]")
    m = load(
        WITH,
        {
            "a": Obj("__torch__.K", {"name": "a", "log": log}),
            "b": Obj("__torch__.K", {"name": "b", "log": log}),
            "log": log,
        },
    )
    if fail:
        with pytest.raises(ScriptRaised):
            m(fail)
    else:
        m(fail)
    assert m.log == want


FORK = module(
    forward(
        "x: Tensor, wait: bool -> Tensor",
        """
        def __forked_function():
          y = torch.mm(x, x)
          return torch.add(y, 1)
        f = fork(__forked_function)
        if wait:
          r = torch.wait(f)
        else:
          r = x
        return r
        """,
    )
)


def test_what_a_fork_raises_surfaces_at_wait_only() -> None:
    m = load(FORK)
    np.testing.assert_array_equal(m(ones(2, 2), True), [[3, 3], [3, 3]])
    np.testing.assert_array_equal(m(ones(3), False), [1, 1, 1])
    with pytest.raises(OpError) as caught:
        m(ones(3), True)
    text = str(caught.value)
    assert "aten::mm" in text and "y = torch.mm(x, x)" in text and "r = torch.wait(f)" in text


def test_a_failed_fork_may_be_waited_for_twice() -> None:
    """Each failure has its own traceback: the second does not show the first."""
    source = module(
        """
        def start(self: __torch__.M, x: Tensor) -> Future[Tensor]:
          def __forked_function():
            return torch.mm(x, x)
          return fork(__forked_function)
        def forward(self: __torch__.M, f: Future[Tensor]) -> Tensor:
          return torch.wait(f)
        """
    )
    m = load(source)
    future = m.start(ones(1))
    texts = []
    for _ in range(2):
        with pytest.raises(OpError) as caught:
            m(future)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


SELF_CALL = """
class M(Module):
  def forward(self, n: int) -> int:
    if torch.gt(n, 0):
      r = torch.add((self).forward(torch.sub(n, 1), ), 1)
    else:
      r = 0
    return r
"""


def test_recursion_ends_in_a_limit_error_that_shows_both_ends() -> None:
    m = load(SELF_CALL)
    assert m(150) == 150
    with pytest.raises(LimitError, match="nested more than 200 deep") as caught:
        m(10_000)
    assert len(str(caught.value)) < 20_000 and "line 5, in forward" in str(caught.value)
    with pytest.raises(LimitError):
        m.inlined_graph  # noqa: B018


def test_little_room_on_the_callers_stack_is_a_limit_error_too() -> None:
    m = load(SELF_CALL)
    m(1)

    def at(depth: int) -> Any:
        return m(190) if depth == 0 else at(depth - 1)

    with pytest.raises(LimitError, match="stack"):
        at(700)


def test_an_unknown_operator_raises_only_when_it_is_reached() -> None:
    m = program(
        "x: Tensor, b: bool -> Tensor",
        "if b:\n  y, z = ops.fancy.halves(x, 3)\n  w = torch.add(y, z)\nelse:\n  w = torch.neg(x)\nreturn w",
    )
    assert m(ones(1), False) == -1
    with pytest.raises(UnknownOperatorError, match="operator fancy::halves has no entry") as caught:
        m(ones(1), True)
    assert 'File "code/__torch__.py", line 6' in str(caught.value)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("return (annotate(List[int], []))[0]", "list index out of range"),
        ('return (annotate(Dict[str, int], {}))["k"]', "KeyError"),
        ("return torch.floordiv(n, 0)", "division by 0"),
        ("a, b = [1, 2, 3]\nreturn a", "expected 2 elements in a list but found 3"),
        ("return int(annotate(Optional[int], None))", "."),
    ],
)
def test_failures_of_plain_values_name_the_line(body: str, text: str) -> None:
    with pytest.raises(gpujit.GpujitError) as caught:
        program("n: int -> int", body)(1)
    assert text in str(caught.value) and "<--- HERE" in str(caught.value)


# ----------------------------------------------------------------------------------------------------- calls


def test_a_callee_inlined_twice_keeps_its_values_apart() -> None:
    source = module(
        forward("x: Tensor -> Tuple[Tensor, Tensor]", "a = __torch__.f(x, 1, )\nb = __torch__.f(a, 2, )\nreturn (a, b)")
    )
    source += "def f(x: Tensor, n: int) -> Tensor:\n  y = torch.mul(x, 2)\n  return torch.add(y, n)\n"
    a, b = load(source)(ones(1))
    assert (a, b) == (3, 8)


def test_a_tuple_that_is_never_made_survives_calls_and_branches() -> None:
    source = module(
        forward(
            "x: Tensor, b: bool -> Tuple[Tensor, Tensor, Tensor]",
            "t = __torch__.f(x, )\na, c = t\nif b:\n  d = (t)[0]\nelse:\n  d = (t)[-1]\n"
            "e, g = __torch__.f(a, )\nreturn (d, e, g)",
        )
    )
    source += "def f(x: Tensor) -> Tuple[Tensor, Tensor]:\n  return (torch.add(x, 1), torch.mul(x, 10))\n"
    m = load(source)
    assert m(ones(1), True) == (2, 3, 20) and m(ones(1), False) == (10, 3, 20)


def test_threads_share_one_module_and_lose_nothing() -> None:
    m = program("x: Tensor, n: int", "y = x\nfor i in range(n):\n  y = torch.add(torch.mul(y, 2), i)\nreturn y")
    want = {n: m(ones(4), n).tolist() for n in range(8)}
    found: list[tuple[int, Any]] = []

    def work(n: int) -> None:
        found.extend((n, m(ones(4), n).tolist()) for _ in range(30))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 240 and all(want[n] == r for n, r in found)
