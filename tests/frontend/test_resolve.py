"""Names, classes and types of serialized source: what is found where, and what is refused at load."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.support.errors import PickleError, SourceError
from tests.programs import Member, Obj, Place, Typed, archive, forward, module

ID = forward("n: int=0 -> int", "return n")


def load(source: Any, attributes: Any = None, **options: Any) -> gpujit.ScriptModule:
    return gpujit.load(archive(source, attributes, **options))


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("source", "message", "line"),
    [
        (module(ID, "a : Foo"), "unknown type 'Foo'", 4),
        (module(ID, "a : __torch__.K"), "unknown type __torch__.K: the archive's source does not define it", 4),
        (module(forward("x: Foo", "return x")), "unknown type 'Foo'", 4),
        (module(forward("x: Tensor -> List[Foo]", "return x")), "unknown type 'Foo'", 4),
        (module(ID + "def g(self, y: Dict[str, Foo]) -> int:\n  return 1\n"), "unknown type 'Foo'", 6),
        (module(ID) + "def g(y: __torch__.q.K) -> int:\n  return 1\n", "unknown type __torch__.q.K", 6),
        (module(ID) + "class K:\n  a : Foo\n", "unknown type 'Foo'", 7),
        (module(ID) + "class I(Interface):\n  def f(self, x: Foo) -> int:\n    pass\n", "unknown type 'Foo'", 7),
        (module(ID, "a : List"), "unknown type 'List'", 4),
        (module(ID, "a : List[int, int]"), "unknown type 'List[int, int]'", 4),
        (module(ID, "a : Dict[int]"), "unknown type 'Dict[int]'", 4),
        (module(ID, "a : 3"), "unknown type '3'", 4),
        (module(ID, "a : 'List['"), "'List[' is no type", 4),
        (module(ID, "a : '" + "a." * 900 + "b'"), "unknown type ", 4),
        (module(ID, "a : " + "List[" * 80 + "int" + "]" * 80), "a type is nested too deeply", 4),
        (module(ID, "a : Tuple[" + "int, " * 5000 + "]"), "a type has too many parts", 4),
        (module(ID + ID), "method 'forward' is defined twice", 6),
        (module(ID) + module(ID), "'M' is defined twice in one file", 6),
        (module(ID) + "def M() -> int:\n  return 1\n", "'M' is defined twice in one file", 6),
        (module(ID, "a : int\na : int"), "attribute 'a' is declared twice", 5),
        (module(ID, "a : int\na : Final[int] = 3"), "attribute 'a' is declared twice", 5),
        (module(ID, "a : int = 3"), "only Final attributes have a value in source", 4),
        (module(ID, "a : Final[int]"), "constant 'a' has no value", 4),
        (module(ID, "a : Final[int] = foo()"), "the value of constant 'a' must be a literal", 4),
        (module(ID, "a : Final[int] = 'x'"), "constant 'a' is declared as int", 4),
        (module(ID, "a : Final[int] = 9223372036854775808"), "constant 'a' is declared as int", 4),
        (module(ID, "a : Final[Tuple[int, int]] = (1, 2, 3)"), "constant 'a' is declared as Tuple[int, int]", 4),
        (module(ID, "a : Final[Dict[str, int]] = {[1]: 2}"), "the value of constant 'a' must be a literal", 4),
        (module(ID, "a : Final[str] = CONSTANTS.c0"), "CONSTANTS.c0 is not in constants.pkl, which holds 0 values", 4),
        (module(forward("n: int='a' -> int", "return n")), "the default of 'n' is declared as int", 4),
        (module(forward("n: int=foo() -> int", "return n")), "the value of the default of 'n' must be a literal", 4),
        (
            module(forward("n: Optional[int]=1.5 -> int", "return 1")),
            "the default of 'n' is declared as Optional[int]",
            4,
        ),
        (module("def f(*x) -> int:\n  return 1"), "star arguments are not part", 4),
        (module("def f(self, **x) -> int:\n  return 1"), "star arguments are not part", 4),
        (module("def f() -> int:\n  return 1"), "a method's first argument is its object", 4),
        (module("if True:\n  pass"), "'If' is not expected in a class", 4),
        ("class M(Foo):\n  pass\n", "class M has bases that serialized TorchScript does not know", 1),
        ("class M(Module, Module):\n  pass\n", "class M has bases", 1),
        ("class M(Module, metaclass=x):\n  pass\n", "class M has bases", 1),
        ("class M(Module):\n  __parameters__ = [1]\n", "this line is not expected in a class", 2),
        ("class M(Module):\n  __slots__ = []\n", "this line is not expected in a class", 2),
        (
            "class M(Module):\n  __forward_hooks__ = ['h', ]\n",
            "the class names the hook 'h', which is none of its methods",
            1,
        ),
        (module(ID) + "class P(NamedTuple):\n  x : int\n  x : int\n", "field 'x' is declared twice", 8),
        (
            module(ID) + "class P(NamedTuple):\n  def f(self) -> int:\n    return 1\n",
            "a NamedTuple holds 'name : Type' lines only",
            7,
        ),
        (module(ID) + "class P(NamedTuple):\n  x : Optional[__torch__.P]\n", "nested too deeply", 7),
        (module(ID) + "class E(Enum):\n  pass\n", "an Enum holds 'NAME = literal' lines only", 7),
        (module(ID) + "class E(Enum):\n  A = 1\n  B = 'x'\n", "members of an Enum must have values of one type", 6),
        (module(ID) + "class E(Enum):\n  A = [1]\n", "an Enum holds 'NAME = literal' lines only", 7),
    ],
)
def test_declarations_that_do_not_hold_are_refused_at_load(source: str, message: str, line: int) -> None:
    with pytest.raises(SourceError) as caught:
        load(source, {})
    assert message in caught.value.message
    assert f'  in file <bytes>\n  File "code/__torch__.py", line {line}\n' in caught.value.where
    assert "~ <--- HERE" in caught.value.where
    assert len(str(caught.value)) < 30_000


E = "class E(Enum):\n  A = 1\n  B = 2\n"
P = "class P(NamedTuple):\n  x : int\n  y : str\n"
K = "class K:\n  n : int\n"


@pytest.mark.parametrize(
    ("type_", "value", "found"),
    [
        ("int", "x", "str 'x'"),
        ("int", 1.5, "float 1.5"),
        ("int", True, "bool True"),
        ("int", 1 << 63, "int 9223372036854775808"),
        ("List[int]", [1, 1 << 63], "list of"),
        ("float", "x", "str 'x'"),
        ("bool", 1, "int 1"),
        ("str", 1, "int 1"),
        ("Tensor", 1, "int 1"),
        ("Tensor", None, "NoneType"),
        ("NoneType", 1, "int 1"),
        ("Optional[int]", 1.5, "float 1.5"),
        ("Union[int, str]", 1.5, "float 1.5"),
        ("List[int]", [1, "a"], "list of (int 1, str 'a')"),
        ("List[int]", (1,), "tuple of (int 1)"),
        ("List[List[int]]", [[1.5]], "list of"),
        ("Dict[str, int]", {"a": "b"}, "dict"),
        ("Dict[str, int]", {1: 1}, "dict"),
        ("Tuple[int, str]", (1, 2), "tuple of (int 1, int 2)"),
        ("Tuple[int, str]", (1,), "tuple of (int 1)"),
        ("__torch__.P", (1,), "tuple of (int 1)"),
        ("__torch__.P", (1, 2), "tuple of"),
        ("__torch__.E", 1, "int 1"),
        ("__torch__.K", 1, "int 1"),
        ("__torch__.K", Member("__torch__.E", 1), "value of __torch__.E"),
        ("Device", "cpu", "str 'cpu'"),
        ("Future[int]", 1, "int 1"),
        ("__torch__.M", Obj("__torch__.K", {"n": 1}), "value of __torch__.K"),
    ],
)
def test_pickled_attributes_of_another_type_than_declared(type_: str, value: Any, found: str) -> None:
    with pytest.raises(PickleError) as caught:
        load(module(ID, f"a : {type_}") + E + P + K, {"a": value})
    assert f"attribute 'a' of __torch__.M is declared as {type_} but the file holds a {found}" in caught.value.message
    assert "file <bytes>, member m/data.pkl" in caught.value.where


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "an object of __torch__.M lacks the attributes ['a']"),
        ({"a": 1, "zz": 2}, "an object of __torch__.M has an attribute 'zz' that its class does not declare"),
        ([1], "the state of an object of __torch__.M is a list"),
        ({"a": 1, "e": Member("__torch__.E", 3)}, "enum __torch__.E has no member with the value 3"),
        ({"a": 1, "e": Member("__torch__.E", [1])}, "enum __torch__.E has no member with the value [1]"),
        ({"a": 1, "e": Member("__torch__.F", 1)}, "class '__torch__.F' is used, which the file does not define"),
        ({"a": 1, "e": Member("__torch__.K", 1)}, "class __torch__.K is called; only enums are made that way"),
        ({"a": 1, "e": Obj("__torch__.E", {})}, "__torch__.E is an enum; its members are made by value"),
        ({"a": 1, "e": Obj("__torch__.P", {})}, "__torch__.P"),
        ({"a": 1, "d": Place("banana")}, "'banana' is no device"),
    ],
)
def test_pickled_objects_that_are_not_what_their_class_says(attributes: Any, message: str) -> None:
    with pytest.raises(PickleError) as caught:
        load(module(ID, "a : int\ne : Optional[__torch__.E]\nd : Optional[Device]") + E + P + K, attributes)
    assert message in str(caught.value) and "file <bytes>, member m/data.pkl" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("class K(Module):\n  pass\n", "class '__torch__.M' is used, which the file does not define"),
        ("def M() -> int:\n  return 1\n", "class '__torch__.M' is used, which the file does not define"),
        ("class M:\n  pass\n", "data.pkl holds a value of __torch__.M, not a TorchScript module"),
    ],
)
def test_the_root_must_be_a_module_of_the_file(source: str, message: str) -> None:
    with pytest.raises(PickleError) as caught:
        load(source, {})
    assert message in str(caught.value)


# --------------------------------------------------------------------------------------------------- lookups


def test_files_and_definitions_may_come_in_any_order_and_in_circles() -> None:
    files = {
        "__torch__.py": module(
            forward("n: int -> int", "return __torch__.z.f(self.k, n, )"), "k : __torch__.a.b.___torch_mangle_3.K"
        ),
        "__torch__/a/b/___torch_mangle_3.py": "class K:\n  n : int\n"
        "  next : Optional[__torch__.a.b.___torch_mangle_3.K]\n  def g(self, n: int) -> int:\n"
        "    return __torch__.z.h(self, n, )\n",
        "__torch__/z.py": "def f(k: __torch__.a.b.___torch_mangle_3.K, n: int) -> int:\n  return (k).g(n, )\n"
        "def h(k: __torch__.a.b.___torch_mangle_3.K, n: int) -> int:\n  return torch.add(k.n, n)\n",
    }
    k = "__torch__.a.b.___torch_mangle_3.K"
    assert load(files, {"k": Obj(k, {"n": 5, "next": Obj(k, {"n": 6, "next": None})})})(2) == 7


def test_names_that_are_no_identifiers() -> None:
    source = module(
        forward("n: int -> int", 'a = getattr(self, "0")\nreturn torch.add(a.n, getattr(self, "a.b"))'),
        '__annotations__ = []\n__annotations__["0"] = __torch__.K\n__annotations__["a.b"] = int',
    )
    assert load(source + K, {"0": Obj("__torch__.K", {"n": 5}), "a.b": 7})(0) == 12


@pytest.mark.parametrize(
    ("declaration", "want"),
    [
        ("Final[int] = -3", -3),
        ("Final[float] = 1", 1.0),
        ("Final[float] = -inf", -np.inf),
        ("Final[complex] = 0.+3.j", 3j),
        ("Final[bool] = True", True),
        ('Final[str] = "a\\nb"', "a\nb"),
        ("Final[str] = CONSTANTS.c0", "ä"),
        ('Final[List[str]] = ["a", "b"]', ["a", "b"]),
        ('Final[Tuple[int, Tuple[str]]] = (1, ("a",))', (1, ("a",))),
        ("Final[Optional[int]] = None", None),
        ("Final[Optional[int]] = 4", 4),
        ("Final[List[int]] = annotate(List[int], [])", []),
        ('Final[Dict[str, float]] = {"a": 1.5}', {"a": 1.5}),
    ],
)
def test_constants_of_classes(declaration: str, want: Any) -> None:
    inner = declaration.partition(" =")[0][len("Final[") : -1]
    m = load(module(forward(f"-> {inner}", "return self.k"), f"k : {declaration}"), {}, constants=("ä",))
    assert m() == want and type(m()) is type(want) and m.k == want


def test_an_enum_as_constant_default_and_value() -> None:
    source = (
        module(
            forward(
                "e: __torch__.E=__torch__.E.B -> Tuple[int, str, bool, bool]",
                "return ((e).value, (e).name, torch.eq(e, self.k), torch.eq(e, __torch__.E.B))",
            ),
            "k : Final[__torch__.E] = __torch__.E.A",
        )
        + E
    )
    m = load(source, {})
    assert m() == (2, "B", False, True) and m(m.k) == (1, "A", True, False)


def test_attributes_that_may_be_none_may_be_left_out() -> None:
    assert load(module(ID, "a : Optional[int]\nb : NoneType"), {}).a is None


def test_old_containers_without_a_type_beside_them_take_the_declared_one() -> None:
    m = load(module(ID, "l : List[str]\nd : Dict[str, List[float]]"), {"l": ["a"], "d": {"k": [1.0, 2.0]}})
    assert m.l == ["a"] and m.d == {"k": [1.0, 2.0]}
    m = load(module(ID, "l : List[Optional[int]]"), {"l": Typed([1, None], "List[Optional[int]]")})
    assert m.l == [1, None]


def test_an_integer_pickled_for_a_float_becomes_one() -> None:
    m = load(module(ID, "f : float\nl : Optional[float]\nc : complex"), {"f": 1, "l": 2, "c": 1.5})
    assert [type(v) for v in (m.f, m.l, m.c)] == [float, float, complex]


def test_named_tuples_with_odd_fields() -> None:
    source = module(forward("p: __torch__.Q -> int", "return torch.add(p.count, p._x)"), "p : __torch__.Q")
    source += "class Q(NamedTuple):\n  _x : int\n  count : int\n  index : int\n"
    m = load(source, {"p": (1, 2, 3)})
    assert m(m.p) == 3 and tuple(m.p) == (1, 2, 3)


def test_a_class_of_thousands_of_methods_loads_quickly() -> None:
    source = module(
        "".join(
            f"def f{i}(self, x: Tensor, n: Optional[List[int]]=None) -> Tuple[Tensor, int]:\n  return (x, {i})\n"
            for i in range(1500)
        )
    )
    start = time.perf_counter()
    m = load(source, {})
    assert time.perf_counter() - start < 30
    assert m.f1499(np.ones(1))[1] == 1499
