"""Source that is not the serialized language is refused when the file is loaded, with its line and a caret."""

from __future__ import annotations

import pytest

import gpujit
from gpujit.frontend.lang import MAX_DEPTH, parse_source
from gpujit.ir.source import Source
from gpujit.support.errors import SourceError
from tests.programs import archive, forward, module


def refused(source: str) -> SourceError:
    with pytest.raises(SourceError) as caught:
        gpujit.load(archive(source, {}))
    error = caught.value
    assert error.file == "<bytes>" and error.member == "code/__torch__.py" and "code/__torch__.py" in str(error)
    assert error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)
    return error


EXPRESSIONS = {
    "lambda y: y": "Lambda",
    "[y for y in [1]]": "ListComp",
    "{k: 1 for k in [1]}": "DictComp",
    "(y for y in [1])": "GeneratorExp",
    "(yield x)": "Yield",
    "await x": "Await",
    "(y := x)": "NamedExpr",
    "f'{x}'": "JoinedStr",
    "x if x else x": "IfExp",
    "x < x": "Compare",
    "not x": "Not",
    "x and x": "BoolOp",
    "x @ x": "MatMult",
    "{1}": "Set",
    "~x": "Invert",
}
STATEMENTS = {
    "x += 1": "AugAssign",
    "del x": "Delete",
    "raise x": "Raise",
    "global x": "Global",
    "assert x": "Assert",
    "break": "Break",
    "continue": "Continue",
    "from a import b": "ImportFrom",
    "async def f():\n  pass": "AsyncFunctionDef",
    "try:\n  pass\nexcept:\n  pass": "Try",
    "match x:\n  case 1:\n    pass": "Match",
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_outside_the_language(expression: str) -> None:
    error = refused(module(forward("x: Tensor", f"return {expression}")))
    assert error.message == f"'{EXPRESSIONS[expression]}' is not part of serialized TorchScript"
    assert 'File "code/__torch__.py", line 5\n' in error.where
    marks = next(line for line in error.where.split("\n") if "HERE" in line)
    inner = 1 if expression[0] == "(" and EXPRESSIONS[expression] in ("Yield", "NamedExpr") else 0
    assert marks.index("~") == len("          return ") - 2 + inner


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements_outside_the_language(statement: str) -> None:
    error = refused(module(forward("x: Tensor", f"{statement}\nreturn x")))
    assert error.message == f"'{STATEMENTS[statement]}' is not part of serialized TorchScript"
    assert f"        {statement.partition(chr(10))[0]}\n        ~" in error.where


@pytest.mark.parametrize(
    ("source", "message", "line"),
    [
        ("class M(Module:\n  pass\n", "this is not TorchScript source: invalid syntax", 1),
        ("class M(Module):\n  pass\n\0", "this is not TorchScript source: ", 0),
        ("class M(Module):\n  def f(self):\n\treturn 1\n", "inconsistent use of tabs", 3),
        ("\x00\x01\x02", "this is not TorchScript source: ", 0),
        ("x = 1\n" + module(""), "'Assign' is not expected outside a class or function", 1),
        (module("") + "print(1)\n", "'Expr' is not expected outside a class or function", 4),
        ("@torch.jit.script\n" + module(""), "decorators are not part of serialized TorchScript", 1),
        (module("@property\ndef f(self) -> int:\n  return 1"), "decorators are not part of serialized TorchScript", 4),
        (module(forward("x: Tensor", "@x\ndef f():\n  return x\nreturn x")), "decorators are not part", 5),
        (
            module(forward("x: Tensor", f"return {'[' * 130}{']' * 130}")),
            f"nested more than {MAX_DEPTH} levels deep",
            5,
        ),
        (module(forward("x: Tensor", f"return {'(' * 250}x{')' * 250}")), "too many nested parentheses", 5),
        (module(forward("x: Tensor", "return x" + ".a" * 200)), f"nested more than {MAX_DEPTH} levels deep", 5),
        (module(forward("x: Tensor", "return x" + ".a" * 20_000)), "source is nested too deeply to be parsed", 0),
        (
            module(forward("x: Tensor", "return torch.add(x, " + "9" * 5000 + ")")),
            "this is not TorchScript source: ",
            5,
        ),
    ],
)
def test_text_that_is_no_source(source: str, message: str, line: int) -> None:
    error = refused(source)
    assert message in error.message
    if line:
        assert f'File "code/__torch__.py", line {line}\n' in error.where and "~ <--- HERE" in error.where


def test_source_that_is_not_utf_8() -> None:
    from tests.programs import archive_entries
    from tests.serialization.archives import write_zip

    entries = archive_entries(module(""), {})
    for entry in entries:
        if entry.name == "m/code/__torch__.py":
            entry.data = b"class M(Module):\n  pass # \xff\n"
    with pytest.raises(SourceError, match=r"source is not UTF-8: .* at byte 26"):
        gpujit.load(write_zip(entries))


def test_source_has_a_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpujit.frontend.lang.MAX_SOURCE_BYTES", 100)
    with pytest.raises(SourceError, match="is over the limit of 100"):
        parse_source(Source("code/x.py", "#" * 101))


def test_the_whole_language_is_taken_up_to_the_depth_limit() -> None:
    calls = 56
    x = "torch.neg(" * calls + "x" + ")" * calls
    m = gpujit.load(archive(module(forward("x: int -> int", f"return {x}")), {}))
    assert m(3) == 3


@pytest.mark.parametrize(
    "head", ["op_version_set = 0\n", "op_version_set = 1\n", "import __torch__.a\nimport __torch__.b.c\n", "\n# text\n"]
)
def test_header_lines_of_old_files_are_skipped(head: str) -> None:
    assert gpujit.load(archive(head + module(forward("n: int -> int", "return n")), {}))(4) == 4
