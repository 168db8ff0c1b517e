"""Strings: every operator against values, and against PyTorch on ASCII and other text."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest

from gpujit.ir.types import INT, ClassType, EnumType
from gpujit.ir.values import Device, EnumValue, ScriptObject
from gpujit.ops import table
from gpujit.ops.registry import registered
from gpujit.ops.text import tensor_text, value_text
from gpujit.support.errors import OpError
from tests.ops.check import against_torch, assert_same, run

VALUES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("add.str", ("a", "b"), "ab"),
    ("len.str", ("héé",), 5),
    ("__getitem__.str", ("abc", -3), "a"),
    ("slice.str", ("abcdef", None, None, -2), "fdb"),
    ("slice.str", ("abcdef", 1, 2**63 - 1), "bcdef"),
    ("slice.str", ("é日", 2, 5), "日"),
    ("list", ("ab",), ["a", "b"]),
    ("upper", ("abé1",), "ABé1"),
    ("lower", ("ABÉ",), "abÉ"),
    ("swapcase", ("aBc1",), "AbC1"),
    ("capitalize", ("hELLO",), "Hello"),
    ("title", ("they're",), "They'Re"),
    ("isdigit", ("12",), True),
    ("isdigit", ("",), False),
    ("isdecimal", ("1a",), False),
    ("isnumeric", ("15",), True),
    ("isalnum", ("a1",), True),
    ("isalpha", ("é",), False),
    ("isspace", (" \t\n\v\f\r",), True),
    ("isspace", ("\x1c",), False),
    ("isupper", ("A1",), True),
    ("islower", ("1",), False),
    ("istitle", ("Hello World",), True),
    ("istitle", ("HELLO",), False),
    ("isprintable", ("",), True),
    ("isprintable", ("a\x7f",), False),
    ("isidentifier", ("ab1",), True),
    ("isidentifier", ("a_b",), False),
    ("isidentifier", ("",), False),
    ("find", ("abcabc", "c", -3), 5),
    ("find", ("abc", "", 5), 5),
    ("find", ("abc", "c", 0, -2), -1),
    ("rfind", ("aXbX", "X", 0, -2), 1),
    ("index.str", ("abc", "b"), 1),
    ("rindex", ("abab", "b"), 3),
    ("count", ("aaa", "aa", 0, -2), 1),
    ("count", ("aaa", "a", 4), 0),
    ("startswith", ("abc", "b", 1), True),
    ("startswith", ("abc", "ab", 2, 1), False),
    ("endswith", ("abc", "c"), True),
    ("endswith", ("abc", "c", 0, -2), False),
    ("strip", ("  a b \n",), "a b"),
    ("strip", ("\ra\r",), "\ra\r"),
    ("lstrip", ("xxax", "x"), "ax"),
    ("rstrip", ("xxax", "x"), "xxa"),
    ("split.str", (" a b  c ",), ["a", "b", "c"]),
    ("split.str", ("a,b,,c", ",", 1), ["a", "b,,c"]),
    ("rsplit", ("a b c", " ", 1), ["a b", "c"]),
    ("splitlines", ("a\r\nb\n",), ["a", "", "b"]),
    ("splitlines", ("a\nb\n", True), ["a", "\n", "b", "\n"]),
    ("splitlines", ("",), []),
    ("partition", ("a=b=c", "="), ("a", "=", "b=c")),
    ("partition", ("abc", "="), ("abc", "", "")),
    ("rpartition", ("a=b=c", "="), ("a=b", "=", "c")),
    ("rpartition", ("abc", "="), ("", "", "abc")),
    ("replace", ("aaa", "a", "bb", 2), "bbbba"),
    ("replace", ("aaa", "", "x", 2), "xxaaa"),
    ("center", ("ab", 5, "*"), "**ab*"),
    ("ljust", ("ab", 4), "ab  "),
    ("rjust", ("ab", 4, "0"), "00ab"),
    ("zfill", ("-5", 4), "00-5"),
    ("expandtabs", ("a\tb\n\tc", 4), "a   b\n  c"),
    ("expandtabs", ("a\tb", 0), "ab"),
    ("join", (", ", ["a", "b"]), "a, b"),
    ("join", (",", []), ""),
]


@pytest.mark.parametrize("name, args, expected", VALUES, ids=[f"{n}{a}" for n, a, _ in VALUES])
def test_values(name: str, args: tuple[Any, ...], expected: Any) -> None:
    assert_same(run(f"aten::{name}", *args), expected)
    if name != "list":
        against_torch(f"aten::{name}", *args)


TEXTS = [
    "",
    "a",
    "Hello World",
    "  pad  x ",
    "a,b,,c",
    "aXbXc",
    "tab\there",
    "l1\nl2\r\nx",
    "naïve café",
    "日本",
    "A1b_%",
]


@pytest.mark.parametrize(
    "name, more",
    [
        *((n, [()]) for n in ("upper", "lower", "swapcase", "capitalize", "title", "isalnum", "isalpha", "isdigit")),
        *((n, [()]) for n in ("isspace", "isupper", "islower", "istitle", "isprintable", "len.str", "splitlines")),
        *((n, [()]) for n in ("strip", "split.str", "expandtabs", "isdecimal", "isnumeric", "isidentifier")),
        *((n, [("a",), ("X", 1), ("", 0, 1), ("b", -4, -2)]) for n in ("find", "rfind")),
        *((n, [("a",), ("l", 0, 1), ("", 0, 0)]) for n in ("startswith", "endswith")),
        ("count", [("a",), ("l", 1, -3), ("é", 0, 5)]),
        ("split.str", [(",",), ("X", 1), (" ", 0), ("é", -1)]),
        ("rsplit", [(",", 1), ("X", -1), (" ", 0)]),
        ("partition", [(",",), ("é",)]),
        ("rpartition", [("X",), ("日",)]),
        ("replace", [("a", "é"), ("l", "", 1), ("本", "x")]),
        ("center", [(12, "-"), (13, ".")]),
        ("ljust", [(12, "-")]),
        ("rjust", [(12, "-")]),
        ("zfill", [(9,)]),
        ("add.str", [("é",), ("b",)]),
        *((f"{n}.str", [("a",), ("é",), ("日本",)]) for n in ("eq", "ne", "lt", "gt", "le", "ge")),
    ],
)
def test_texts_are_pytorchs(name: str, more: list[tuple[Any, ...]]) -> None:
    for text, rest in itertools.product(TEXTS, more):
        try:
            against_torch(f"aten::{name}", text, *rest)
        except UnicodeDecodeError:
            # PyTorch cannot hand bytes that are no text to Python.
            continue


def test_bytes_of_a_character_join_again() -> None:
    parts = run("aten::list", "é")
    assert len(parts) == 2 and all(run("aten::len.str", p) == 1 for p in parts)
    assert run("aten::add.str", parts[0], parts[1]) == "é"
    assert run("aten::join", "", parts) == "é"
    assert run("aten::__getitem__.str", "aé", 1) == parts[0]


ERRORS: list[tuple[str, tuple[Any, ...], str]] = [
    ("__getitem__.str", ("abc", 3), "string index out of range: 3 in a string of 3 bytes"),
    ("slice.str", ("abc", None, None, 0), "List slice should have non-zero step"),
    ("index.str", ("abc", "x"), "substring not found"),
    ("rindex", ("abc", "x"), "substring not found"),
    ("find", ("abc", "a", 10, 20), "start 10 lies beyond the string's 3 bytes"),
    ("startswith", ("abc", "", 5), "start 5 lies beyond"),
    ("split.str", ("a", ""), "empty separator"),
    ("rsplit", ("a", ""), "empty separator"),
    ("replace", ("a", "", "b"), "without end"),
    ("center", ("a", 3, "ab"), "exactly one character long; found 2 bytes"),
    ("ljust", ("a", 3, ""), "exactly one character long"),
    ("rjust", ("a", 3, "é"), "exactly one character long; found 2 bytes"),
]


@pytest.mark.parametrize("name, args, text", ERRORS, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(ERRORS)])
def test_errors(name: str, args: tuple[Any, ...], text: str) -> None:
    with pytest.raises(OpError, match=text):
        run(f"aten::{name}", *args)


# ------------------------------------------------------------------------------------------------- text of values


def call(name: str, *args: Any) -> Any:
    """An entry that takes any number of arguments."""
    op = table.by_full_name(name)
    assert op is not None
    return op.kernel(np)(*args)


TEXT_OF: list[tuple[Any, str]] = [
    (1.0, "1."), (-0.0, "0."), (0.1, "0.10000000000000001"), (1e-7, "9.9999999999999995e-08"), (1e20, "1e+20"),
    (1e16, "10000000000000000."), (math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan"), (True, "True"), (3, "3"),
    (None, "None"), ("é", "é"), (1 - 2.5j, "1.-2.5j"), (complex(-0.0, -0.5), "0.-0.5j"), ((), "()"), ((3,), "(3,)"),
    ((1, 2.0, "a"), "(1, 2., a)"), ([1.0, 2.5], "[1., 2.5]"), ([], "[]"), ({"a": 1, "b": None}, "{a: 1, b: None}"),
    (Device("cuda", 0), "cuda:0"), (EnumValue(EnumType("__torch__.Color", INT), "RED", 1), "Enum<Color.RED>"),
]  # fmt: skip


@pytest.mark.parametrize("value, expected", TEXT_OF, ids=[t for _, t in TEXT_OF])
def test_text_of_values(value: Any, expected: str) -> None:
    assert run("aten::str", value) == expected
    assert call("aten::format", "<{}>", value) == f"<{expected}>"


def test_text_of_an_object_names_its_class() -> None:
    assert value_text(ScriptObject(ClassType("__torch__.K"))).startswith("<__torch__.K object at 0x")


TENSORS: list[tuple[Any, str]] = [
    (np.array(3), "3\n[ CPULongType{} ]"),
    (np.array(1e-7, np.float32), "1.0000000116860974e-07\n[ CPUFloatType{} ]"),
    (np.array([True, False]), " 1\n 0\n[ CPUBoolType{2} ]"),
    (np.array([1.5, 2, -30], np.float32), "  1.5000\n  2.0000\n-30.0000\n[ CPUFloatType{3} ]"),
    (np.array([0.001, 0.002]), "0.001 *\n 1.0000\n 2.0000\n[ CPUDoubleType{2} ]"),
    (np.array([1e10, 1]), " 1.0000e+10\n 1.0000e+00\n[ CPUDoubleType{2} ]"),
    (np.array([np.nan, 1.0]), "nan\n 1\n[ CPUDoubleType{2} ]"),
    (np.zeros((0, 3), np.float16), "[ CPUHalfType{0,3} ]"),
    (np.arange(8).reshape(2, 2, 2), "(1,.,.) = \n 0  1\n  2  3\n\n(2,.,.) = \n 4  5\n  6  7\n[ CPULongType{2,2,2} ]"),
]


@pytest.mark.parametrize("x, expected", TENSORS, ids=range(len(TENSORS)))
def test_text_of_tensors(x: Any, expected: str) -> None:
    assert tensor_text(x) == expected
    assert value_text([x]) == f"[{expected}]"


def test_text_of_tensors_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    unit = torch.jit.CompilationUnit("def text(x: Tensor):\n  return str(x)\n")
    rng = np.random.default_rng(0)
    shapes = [(), (1,), (5,), (2, 3), (3, 17), (1, 40), (2, 3, 4), (2, 1, 3, 2), (2, 0, 3)]
    for shape, power, dtype in itertools.product(shapes, (-9, -1, 0, 1, 4, 7, 12), ("float32", "float64", "int64")):
        x = np.asarray(rng.standard_normal(shape) * 10.0**power).astype(dtype)
        assert tensor_text(x) == unit.text(torch.from_numpy(x)), (shape, power, dtype)


FORMATS: list[tuple[str, tuple[Any, ...], str]] = [
    ("{} {}", (1, 2.5), "1 2.5"),
    ("{} {:>5} {}", (1, 2, 3), "1 {:>5} 2"),
    ("{0} {}", (7, 8), "{0} 7"),
    ("none", (1,), "none"),
]


@pytest.mark.parametrize("pattern, args, expected", FORMATS)
def test_format(pattern: str, args: tuple[Any, ...], expected: str) -> None:
    assert call("aten::format", pattern, *args) == expected


PERCENTS: list[tuple[str, Any, str]] = [
    ("%d|%i", (1.9, -1.9), "1|-1"),
    ("%d", 1e10, "-2147483648"),
    ("%d", 2**40, "1099511627776"),
    ("%f|%e|%E|%F", (1.9, 1.9, 1.9, 1.9), "1.900000|1.900000e+00|1.900000E+00|1.900000"),
    ("%f %E", (math.nan, math.inf), "nan INF"),
    ("%f", 2**40, "1099511627776.000000"),
    ("%f", 0.1, "0.100000"),
    ("%c|%c|%%", (65, "b"), "A|b|%"),
    ("%s %s", ("a", [1.0]), "a [1.]"),
]


@pytest.mark.parametrize("pattern, values, expected", PERCENTS)
def test_percent_format(pattern: str, values: Any, expected: str) -> None:
    assert call("aten::percentFormat", pattern, values) == expected


@pytest.mark.parametrize(
    "pattern, values, text",
    [
        ("%d", "a", "%d requires a number for formatting"),
        ("%d", True, "%d requires a number for formatting"),
        ("%c", "ab", "%c requires an int or char"),
        ("%x", 3, "The specifier %x is not supported in TorchScript format strings"),
        ("%s %s", 3, "Too few arguments for format string"),
        ("no", 3, "Too many arguments for format string"),
        ("50%", 3, "Incomplete format specifier"),
    ],
)
def test_percent_format_errors(pattern: str, values: Any, text: str) -> None:
    with pytest.raises(OpError, match=text):
        call("aten::percentFormat", pattern, values)


def test_format_with_too_few_arguments() -> None:
    with pytest.raises(OpError, match=r"Too few arguments for format string: .* has 2, found 1"):
        call("aten::format", "{} {}", 1)


def test_print_and_warn(capsys: pytest.CaptureFixture[str]) -> None:
    call("prim::Print", "a", 1.0, [2])
    call("aten::_print", "b")
    assert capsys.readouterr().out == "a 1. [2]\nb\n"
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call("aten::warn", "careful", 2)
    assert [(str(w.message), w.category) for w in seen] == [("careful", UserWarning)]
    for name in ("prim::Print", "aten::warn"):
        op = table.by_full_name(name)
        assert op is not None and op.effects


def test_every_schema_is_pytorchs_own() -> None:
    torch = pytest.importorskip("torch")
    theirs = {str(s) for s in torch._C._jit_get_all_schemas()}
    ours = [op for op in registered() if getattr(op.body, "__module__", "") == "gpujit.ops.families.language.strings"]
    assert len(ours) >= 50
    assert [op.text for op in ours if op.text not in theirs] == []
