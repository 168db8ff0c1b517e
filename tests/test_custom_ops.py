"""Operators that a program adds itself: what docs/custom_ops.md shows, and what is refused."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit
from gpujit.ops import table
from gpujit.support.errors import ArgumentError, DTypeError, OpError, SchemaError, ShapeError, UnknownOperatorError
from tests.ops.check import run
from tests.programs import archive, forward, module

ROOT = Path(__file__).parent.parent


def load(body: str, signature: str = "x: Tensor") -> Any:
    return gpujit.load(archive(module(forward(signature, body))))


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "custom_op.pt").write_bytes(archive(module(forward("x: Tensor", "return ops.my.scaled_relu(x)"))))
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "custom_ops.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 8 and all(b.startswith(">>> ") for b in blocks)
    parsed = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "custom_ops", "docs/custom_ops.md", 0)
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    failed, tried = runner.run(parsed, out=report.append)
    assert tried > 12 and failed == 0, "".join(report)


def test_a_file_fails_before_and_runs_after() -> None:
    source = archive(module(forward("x: Tensor", "return ops.my.thing(x, n=3)")))
    early, waiting = gpujit.load(source), gpujit.load(source)
    x = np.ones(2, np.float32)
    with pytest.raises(UnknownOperatorError, match=r"my::thing has no entry .* gpujit\.op"):
        early(x)

    @gpujit.op("my::thing(Tensor x, int m=2, *, int n=1) -> Tensor")
    def thing(xp: Any, x: Any, m: int, n: int) -> Any:
        return x * (10 * m + n)

    np.testing.assert_array_equal(gpujit.load(source)(x), [23, 23])
    # Loaded before the operator was there, but not run.
    np.testing.assert_array_equal(waiting(x), [23, 23])


def test_several_results_overloads_and_strings() -> None:
    @gpujit.op("my::split(Tensor x) -> (Tensor low, Tensor high)")
    def split(xp: Any, x: Any) -> Any:
        return [x.min(), x.max()]

    @gpujit.op("my::name(str a, str[] more=[]) -> str", kind="prim")
    def name(a: str, more: list[str]) -> str:
        return "-".join([a, *more])

    @gpujit.op("my::name.tensor(Tensor x) -> str")
    def name_of_tensor(xp: Any, x: Any) -> str:
        return "tensor"

    low, high, text, other = load(
        """
        a, b = ops.my.split(x)
        return (a, b, ops.my.name("p", ["q"]), ops.my.name(x))
        """,
        "x: Tensor -> Tuple[Tensor, Tensor, str, str]",
    )(np.arange(4.0))
    assert (type(low), low.shape, float(low), float(high)) == (np.ndarray, (), 0, 3)
    assert (text, other) == ("p-q", "tensor")


def test_a_pointwise_operator_promotes_and_has_derived_forms() -> None:
    schema = "my::half_sum(Tensor self, Tensor other) -> Tensor"

    @gpujit.op(schema, kind="pointwise", result="float", inplace=True, out="out")
    def half_sum(xp: Any, a: Any, b: Any) -> Any:
        return (a + b) / 2

    y = run("my::half_sum", np.array([1, 2]), np.array(4, np.int8))
    assert y.dtype == np.float32 and y.tolist() == [2.5, 3]
    half = np.array([1, 2], ml_dtypes.bfloat16)
    assert run("my::half_sum", half, half).dtype == half.dtype
    x = np.array([1.0, 3.0])
    assert run("my::half_sum_", x, np.array(5.0)) is x and x.tolist() == [3, 4]
    out = np.zeros(2, np.float32)
    assert run("my::half_sum.out", x, x, out) is out and out.tolist() == [3, 4]
    with pytest.raises(ShapeError, match="do not broadcast"):
        run("my::half_sum", np.ones(2), np.ones(3))
    gpujit.remove_op("my::half_sum")
    assert table.by_full_name("my::half_sum_") is None and table.by_full_name("my::half_sum.out") is None


def test_views_share_memory() -> None:
    @gpujit.op("my::tail(Tensor(a) x) -> Tensor(a)", kind="view")
    def tail(xp: Any, x: Any) -> Any:
        return x[1:]

    x = np.zeros(3)
    load("return torch.add_(ops.my.tail(x), 1)")(x)
    assert x.tolist() == [0, 1, 1]


def test_replacing_and_removing() -> None:
    source = archive(module(forward("x: Tensor", "return ops.my.thing(x)")))
    for k in (1, 2):
        gpujit.op("my::thing(Tensor x) -> Tensor", replace=True)(lambda xp, x, k=k: x + k)
        assert float(gpujit.load(source)(np.zeros(()))) == k
    with pytest.raises(ArgumentError, match="declared already; pass replace=True"):
        gpujit.op("my::thing(Tensor x) -> Tensor")
    gpujit.op("my::thing.int(int n) -> int", kind="prim")(lambda n: n)
    gpujit.remove_op("my::thing.int")
    assert table.by_full_name("my::thing") is not None
    gpujit.remove_op("my::thing")
    with pytest.raises(UnknownOperatorError):
        gpujit.load(source)(np.zeros(()))
    refused = {"my::thing": "not declared", "aten::add.Tensor": "gpujit's own", "aten::add": "gpujit's own"}
    for name, reason in refused.items():
        with pytest.raises(ArgumentError, match=rf"gpujit\.remove_op: {name} is .*{reason}"):
            gpujit.remove_op(name)


def test_an_operator_that_pytorch_has_and_gpujit_lacks_can_be_added() -> None:
    assert not table.by_name("aten::no_such_operator")
    with pytest.raises(ArgumentError, match=r"namespace 'aten' is PyTorch's own.*override=True"):
        gpujit.op("aten::no_such_operator(Tensor self) -> Tensor")
    gpujit.op("aten::no_such_operator(Tensor self) -> Tensor", override=True)(lambda xp, x: -x)
    assert float(load("return torch.no_such_operator(x)")(np.ones(()))) == -1
    for replace in (False, True):
        with pytest.raises(ArgumentError, match="aten::relu: gpujit has this operator itself"):
            gpujit.op("aten::relu(Tensor self) -> Tensor", override=True, replace=replace)
    # Derived forms take names too.
    with pytest.raises(ArgumentError, match=r"aten::relu\.out: gpujit has this operator itself"):
        gpujit.op("aten::relu.mine(Tensor self) -> Tensor", override=True, inplace=True, out="out")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("my::f", "expected"),
        ("", "expected a name"),
        ("my::f(Tensor x)", "expected '->'"),
        ("my::f(Tensr x) -> Tensor", "unknown type 'Tensr'"),
        ("my::f(int[x] n) -> Tensor", "cannot be read"),
        ("my::f(Tensor) -> Tensor", "argument 1 has no name"),
        ("my::f(Tensor x, Tensor x) -> Tensor", "two arguments have the same name"),
        ("my::f(Tensor x, ...) -> Tensor", "not supported"),
        ("f(Tensor x) -> Tensor", "needs one namespace"),
        ("a::b::f(Tensor x) -> Tensor", "needs one namespace"),
        ("my::f(Tensor x) -> Tensor; drop", "column"),
    ],
)
def test_a_text_that_is_no_schema(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(reason)):
        gpujit.op(text)


def test_a_decorator_without_parentheses() -> None:
    with pytest.raises(SchemaError, match="found function"):
        gpujit.op(lambda xp, x: x)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("my::f(Tensor x) -> Tensor", {"kind": "kernel"}, "expected one of pointwise, reduction"),
        ("my::f(Tensor x) -> Tensor", {"inplace": True}, "needs 'Tensor self'"),
        ("my::f(Tensor(a!) self) -> Tensor", {"inplace": True}, "needs 'Tensor self'"),
        ("my::f(Tensor self) -> (Tensor, Tensor)", {"out": "out"}, "return one Tensor"),
        ("my::f(Tensor(a) self) -> Tensor(a)", {"kind": "view", "inplace": True}, "no derived"),
        ("my::f(Tensor x) -> Tensor", {"kind": "view"}, "alias mark"),
        ("my::f(int x) -> Tensor", {"kind": "pointwise"}, "a Tensor or more"),
        ("my::f(Tensor x) -> int", {"kind": "pointwise"}, "returns one Tensor"),
        ("my::f(Tensor(a!) x) -> Tensor(a!)", {"kind": "pointwise"}, "writes nothing"),
        ("my::f(int x) -> Tensor", {"kind": "reduction"}, "at least one Tensor"),
        ("my::f(Tensor x) -> Tensor", {"kind": "pointwise", "effects": True}, "effects=True goes with"),
        ("my::f(Tensor x) -> Tensor", {"half": "float16"}, "half is 'float16'"),
        ("my::f(Tensor x) -> Tensor", {"kind": "pointwise", "result": "double"}, "result is 'double'"),
        ("my::f(Tensor x) -> Tensor", {"kind": "pointwise", "operands": ("y",)}, "operands names 'y'"),
    ],
)
def test_options_that_do_not_fit(text: str, options: dict[str, Any], reason: str) -> None:
    error = SchemaError if reason == "alias mark" else ArgumentError
    with pytest.raises(error, match=reason) as caught:
        gpujit.op(text, **options)
    assert "my::f" in str(caught.value)


def test_a_body_of_other_arguments() -> None:
    declare = gpujit.op("my::f(Tensor x, int n) -> Tensor")
    bodies: list[Any] = [lambda x, n: x, lambda xp, x, n, m: x, lambda xp, x, *, n: x]
    for body in bodies:
        with pytest.raises(ArgumentError, match=r"my::f: the body takes .* called with 3 arguments: \(xp, x, n\)"):
            declare(body)
    with pytest.raises(ArgumentError, match=r"called with 1 arguments: \(n\)"):
        gpujit.op("my::g(int n) -> int", kind="prim")(lambda xp, n: n)
    with pytest.raises(ArgumentError, match="decorates a function, found int"):
        declare(3)  # type: ignore[arg-type]
    assert table.by_full_name("my::f") is None
    declare(lambda *args: args[1])
    declare = gpujit.op("my::g(Tensor x) -> Tensor")
    declare(np.add)  # has no signature to check


def test_what_the_body_gives_is_checked() -> None:
    gpujit.op("my::one(Tensor x) -> Tensor")(lambda xp, x: 3.0)
    gpujit.op("my::two(Tensor x) -> (Tensor, Tensor)")(lambda xp, x: x)
    gpujit.op("my::scalar(Tensor x) -> Tensor")(lambda xp, x: x.sum())
    with pytest.raises(OpError, match="my::one: the body returned float where the schema declares a Tensor"):
        load("return ops.my.one(x)")(np.ones(2))
    with pytest.raises(OpError, match="my::two: the body returned one ndarray, the schema declares 2 results"):
        load("a, b = ops.my.two(x)\nreturn a")(np.ones(2))
    assert load("return ops.my.scalar(x)")(np.ones(2)).shape == ()


def test_errors_of_a_body_carry_the_models_line() -> None:
    def refuses(xp: Any, x: Any) -> Any:
        raise DTypeError("my::f: found bool, expected floats")

    gpujit.op("my::f(Tensor x) -> Tensor")(refuses)
    gpujit.op("my::g(Tensor x) -> Tensor")(lambda xp, x: x.reshape(7))
    with pytest.raises(DTypeError, match=r"found bool, expected floats\n(?s:.*)ops\.my\.f"):
        load("return ops.my.f(x)")(np.ones(2))
    with pytest.raises(OpError, match=r"my::g: .*reshape.*x float64\[2\]\n(?s:.*)ops.my.g"):
        load("return ops.my.g(x)")(np.ones(2))
