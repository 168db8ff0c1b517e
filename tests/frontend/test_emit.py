"""Bodies of functions: what does not compile is refused at the first call, with its line; the rest still works."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.support.errors import SourceError
from tests.programs import Obj, archive, forward, module

X = np.ones((2, 3), np.float32)
REST = "class E(Enum):\n  A = 1\nclass P(NamedTuple):\n  x : int\ndef f(x: Tensor, n: int=1) -> Tensor:\n  return x\n"


def load(source: str, attributes: Any = None, **options: Any) -> gpujit.ScriptModule:
    return gpujit.load(archive(source, attributes or {}, **options))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return y", "undefined name 'y'"),
        (
            "if True:\n  y = x\nelse:\n  pass\nreturn y",
            "undefined name 'y': 'y' is not defined on both sides of the 'if'",
        ),
        (
            "if True:\n  y = x\nelse:\n  y = 1\nreturn y",
            "'y' has type Tensor on one side of the 'if' and int on the other",
        ),
        ("for i in range(2):\n  y = x\nreturn y", "undefined name 'y': 'y' is only defined inside the loop"),
        ("y = 1\nfor i in range(2):\n  y = x\nreturn x", "'y' has type int before the loop and Tensor after its body"),
        ("return CONSTANTS.c0", "CONSTANTS.c0 is not in constants.pkl, which holds 0 values"),
        ("return CONSTANTS.c99999999999999999999", "is not in constants.pkl"),
        ("return CONSTANTS.other", "CONSTANTS.other is not in constants.pkl"),
        ("return __torch__.g(x)", "'__torch__.g' is not defined in the archive's source"),
        ("return __torch__.E.B", "__torch__.E has no member 'B'"),
        ("return (self).g(x)", "__torch__.M has no attribute or method 'g'"),
        ("return self.w", "__torch__.M has no attribute or method 'w'"),
        ("self.w = x\nreturn x", "__torch__.M has no attribute 'w' to assign to"),
        ("self.a = x\nreturn x", "Expected a value of type 'int' for attribute 'a' but instead found type 'Tensor'."),
        ('return getattr(self, "w")', "__torch__.M has no attribute or method 'w'"),
        ("return getattr(self, x)", "getattr needs a literal name"),
        ('return __torch__.f(x, "a")', "Expected a value of type 'int' for argument 'n' but instead found type 'str'"),
        ("return __torch__.f()", "Argument x not provided."),
        ("return __torch__.f(x, 1, 2)", "Expected at most 2 arguments but found 3"),
        ("y = __torch__.P(1, 2)\nreturn x", "__torch__.P has 1 fields, 2 values are given"),
        (
            "return torch.add(x)",
            "Tensor other, *, Scalar alpha=1) -> Tensor\n    Argument other not provided.",
        ),
        ("return torch.add(x, x, beta=2)", "Unknown keyword argument 'beta'."),
        ("return torch.add(x, x, alpha=1, alpha=2)", "keyword arguments must have distinct names"),
        (
            'return torch.add(x, "a")',
            "Expected a value of type 'Tensor' for argument 'other' but instead found type 'str'.",
        ),
        ("return torch.cat(*x)", "star arguments are not part of serialized TorchScript"),
        ("return torch.add(**x)", "star arguments are not part of serialized TorchScript"),
        ("return 1", "Expected a value of type 'Tensor' for the return value but instead found type 'int'."),
        ("y = x", "the function is declared to return Tensor but has no return"),
        ("if True:\n  return x\nelse:\n  pass\nreturn x", "'return' is only expected at the end of a function"),
        ("return x\ny = x", "nothing may follow 'return'"),
        ("return torch.add(x, 9223372036854775808)", "an integer literal is outside 64 bits"),
        ("return torch.view(x, [99999999999999999999])", "an integer literal is outside 64 bits"),
        ("y = -9223372036854775809\nreturn x", "an integer literal is outside 64 bits"),
        ("return x + x", "an infix operator is not part of serialized TorchScript"),
        ("return x[...]", "this literal is not part of serialized TorchScript"),
        ("y = b'x'\nreturn x", "this literal is not part of serialized TorchScript"),
        ("y = z = x\nreturn x", "chained assignment is not part of serialized TorchScript"),
        ("[a, b] = [1, 2]\nreturn x", "cannot assign to 'List'"),
        ("a, *b = [1, 2]\nreturn x", "cannot assign to 'Starred'"),
        ("a, b = 1, 2, 3\nreturn x", "cannot unpack (int, int, int) into 2 names"),
        ("a, b = 1\nreturn x", "a value of type int cannot be unpacked"),
        ("for i in x:\n  pass\nreturn x", "serialized loops are written 'for i in range(n)'"),
        ("for i in range(0, 2):\n  pass\nreturn x", "serialized loops are written 'for i in range(n)'"),
        ("for i, j in range(2):\n  pass\nreturn x", "a loop over range has one loop variable"),
        ("for i in range(2):\n  pass\nelse:\n  pass\nreturn x", "'else' of a loop is not part of TorchScript"),
        ("while True:\n  pass\nelse:\n  pass\nreturn x", "'else' of a loop is not part of TorchScript"),
        ("y : int\nreturn x", "'AnnAssign' is not expected here"),
        ("class K:\n  pass\nreturn x", "'ClassDef' is not expected here"),
        ("import __torch__.x\nreturn x", "'Import' is not expected here"),
        ("with x:\n  pass\nreturn x", "Tensor has no __enter__ and __exit__"),
        ("y = (1, 2)[5]\nreturn x", "index 5 is outside (int, int)"),
        ("y = annotate(List[Foo], [])\nreturn x", "unknown type 'Foo'"),
        (
            'y = annotate(int, "a")\nreturn x',
            "Expected a value of type 'int' for an annotated value but instead found type 'str'.",
        ),
        ("y = annotate(int, x=3)\nreturn x", "expected 2 positional arguments"),
        ("y = uninitialized()\nreturn x", "expected 1 positional arguments"),
        ("y = isinstance(x, 3)\nreturn x", "unknown type '3'"),
        ("y = x.tolist()\nreturn x", "tolist() needs its result's type"),
        ("y = [1, x]\nreturn torch.cat(y)", "Arguments for call to aten::cat are not valid"),
        ("return torch", "this name is not a value"),
        ("return Tensor(x)", "Tensor cannot be called"),
        ('return "a"(x)', "this is not something that can be called"),
        ("return CONSTANTS(x)", "'CONSTANTS' is not defined"),
        ("y = int(x, 3)\nreturn x", "'int' is not supported in serialized code"),
        ("y = rpc_async(x)\nreturn x", "'rpc_async' is not supported in serialized code"),
        ("y = fork(x)\nreturn x", "fork needs a function defined in place"),
        ("y = torch.wait(x)\nreturn x", "wait takes one Future"),
        ("def g():\n  return x\ny = g()\nreturn x", "this is not something that can be called"),
        ("ops.prim.RaiseException(1)\nreturn x", "Expected a value of type 'str' for the message"),
        ("ops.prim.RaiseException()\nreturn x", "RaiseException takes a message and a class name"),
        ('return torch.to(x, torch.device("banana"))', "'banana' is no device"),
    ],
)
def test_bodies_that_do_not_compile(body: str, message: str) -> None:
    source = (
        module(forward("x: Tensor", body) + "def other(self, n: int) -> int:\n  return torch.add(n, 1)\n", "a : int")
        + REST
    )
    m = load(source, {"a": 1})
    assert m.other(2) == 3
    for _ in range(2):
        with pytest.raises(SourceError) as caught:
            m(X)
        error = caught.value
        assert message in error.message and error.member == "code/__torch__.py" and error.file == "<bytes>"
        assert 'File "code/__torch__.py", line ' in error.where and "~ <--- HERE" in error.where
    assert m.a == 1


@pytest.mark.parametrize(
    ("returned", "body", "want"),
    [
        ("int", "return -9223372036854775808", -(1 << 63)),
        ("float", "return -inf", -np.inf),
        ("complex", "return 1.5-2.j", 1.5 - 2j),
        ("str", 'return "a\\n\\t\\"\\\'\\\\\\101"', "a\n\t\"'\\A"),
        ("str", "return CONSTANTS.c0", "grüß"),
        ("List[Optional[int]]", "return annotate(List[Optional[int]], [1, None])", [1, None]),
        ("Dict[str, int]", 'return {"b": 1, "a": 2}', {"b": 1, "a": 2}),
        ("Tuple[int, Tuple[str, float]]", 'return (1, ("a", 2.))', (1, ("a", 2.0))),
        ("Tuple[()]", "return ()", ()),
        ("Optional[int]", "return None", None),
        ("Optional[int]", "y = x", None),
        ("NoneType", "pass", None),
        ("List[int]", "return annotate(List[int], torch.tensor([1, 2]).tolist())", [1, 2]),
        ("int", "a, b = [3, 4]\nb0, a0 = a, b\nreturn torch.add(torch.mul(a0, 10), b0)", 43),
        ("int", "return (1, 2, 3)[-1]", 3),
        ("Tuple[int, int]", "return (1, 2, 3)[1:3]", (2, 3)),
        ("str", 'return ("abc")[1]', "b"),
        ("bool", "return isinstance(x, (int, Tensor))", True),
        ("int", "if bool([]):\n  r = 1\nelse:\n  r = 2\nreturn r", 2),
        ("int", 'y = 1\n"text"\n3\nreturn y', 1),
        ("int", "y : int = 3\nreturn y", 3),
        ("float", "n = torch.tensor(2.5)\nreturn annotate(float, n)", 2.5),
    ],
)
def test_what_literals_and_small_forms_mean(returned: str, body: str, want: Any) -> None:
    found = load(module(forward(f"x: Tensor -> {returned}", body)), {}, constants=("grüß",))(X)
    assert found == want and type(found) is type(want)


def test_a_list_in_the_constants_is_not_the_callers() -> None:
    m = load(module(forward("-> List[int]", "return CONSTANTS.c0")), {}, constants=([1, 2],))
    m().append(3)
    assert m() == [1, 2]


def test_closures_see_the_values_of_their_place() -> None:
    source = module(
        forward(
            "n: int -> Tuple[int, int]",
            "k = n\ndef __forked_function():\n  return torch.add(k, 1)\na = fork(__forked_function)\nk = 100\n"
            "def __forked_function0():\n  def inner():\n    return torch.add(k, n)\n"
            "  f = fork(inner)\n  return torch.wait(f)\n"
            "b = fork(__forked_function0)\nreturn (torch.wait(a), torch.wait(b))",
        )
    )
    assert load(source)(5) == (6, 105)


def test_hooks_of_submodules_are_called_by_class_and_name() -> None:
    # Written as torch.jit.save writes a module whose submodule has a forward pre-hook and a forward hook.
    source = (
        "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n  sub : __torch__.Sub\n"
        "  def forward(self: __torch__.M, x: Tensor) -> Tensor:\n"
        "    sub = self.sub\n"
        "    _0 = __torch__.Sub.pre(sub, (x,), )\n"
        "    _1, = _0\n"
        "    return __torch__.Sub.post(sub, _0, (sub).forward(_1, ), )\n"
        "class Sub(Module):\n  __parameters__ = []\n  __buffers__ = []\n"
        "  def forward(self: __torch__.Sub, x: Tensor) -> Tensor:\n    return torch.mul(x, 2)\n"
        "  def pre(self: __torch__.Sub, inputs: Tuple[Tensor]) -> Tuple[Tensor]:\n"
        "    return (torch.add((inputs)[0], 1),)\n"
        "  def post(self: __torch__.Sub, inputs: Tuple[Tensor], out: Tensor) -> Tensor:\n"
        "    return torch.sub(out, 3)\n"
    )
    m = load(source, {"sub": Obj("__torch__.Sub")})
    np.testing.assert_array_equal(m(X), (X + 1) * 2 - 3)
    bad = load(source.replace("pre(sub, (x,), )", "pre((x,), )"), {"sub": Obj("__torch__.Sub")})
    with pytest.raises(SourceError, match=r"__torch__\.Sub\.pre cannot be called without an object"):
        bad(X)
