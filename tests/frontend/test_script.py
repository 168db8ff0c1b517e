"""The API of scripting: functions, classes, modules, CompilationUnit, markers, and errors with their place."""

from __future__ import annotations

import threading
from typing import Any, Tuple  # noqa: UP035 - the language of scripts has it

import numpy as np
import pytest

import gpujit
from gpujit import ops
from gpujit.support.errors import ArgumentError, SourceError
from tests.frontend import small_nn as nn

X = np.array([1.0, -2.0, 3.0], dtype=np.float32)


def scaled(x: gpujit.Tensor, k: float = 2.0) -> gpujit.Tensor:
    """Scaled."""
    return ops.relu(x) * k


def caller(x: gpujit.Tensor) -> gpujit.Tensor:
    return scaled(x) + scaled(x, k=3.0)


class Layer(nn.Module):
    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k
        self.w = nn.Parameter(np.ones(3, dtype=np.float32))

    def forward(self, x: gpujit.Tensor) -> gpujit.Tensor:
        return x * self.w + self.k


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(1), Layer(2), Layer(3)])
        self.calls = 0

    def forward(self, x: gpujit.Tensor) -> gpujit.Tensor:
        self.calls += 1
        for layer in self.layers[1:]:
            x = layer(x)
        return x

    @gpujit.export
    def first(self, x: gpujit.Tensor) -> gpujit.Tensor:
        return self.layers[0](x)


def doubling(module: Any, inputs: Tuple[gpujit.Tensor]) -> Tuple[gpujit.Tensor]:  # noqa: UP006
    return (inputs[0] * 2,)


def test_modules_that_differ_in_their_hooks_have_types_of_their_own():
    plain, hooked, again = Layer(1), Layer(1), Layer(1)
    for layer in (hooked, again):
        layer.register_forward_pre_hook(doubling)
    found = [gpujit.script(layer) for layer in (plain, hooked, again)]
    assert [float(f(X)[0]) for f in found] == [2.0, 3.0, 3.0]
    assert found[0]._object.type != found[1]._object.type == found[2]._object.type


class Stub:
    @staticmethod
    def twice(x: int) -> int:
        return 2 * x


def test_a_function_with_what_it_calls() -> None:
    scripted = gpujit.script(caller)
    np.testing.assert_allclose(scripted(X), np.maximum(X, 0) * 5)
    assert scripted.name == "caller"
    assert scripted.qualified_name.startswith("__torch__.tests.frontend.test_script.")
    assert str(scripted.schema).endswith("(Tensor x) -> Tensor")
    assert "prim::CallFunction" in str(scripted.graph)
    assert "prim::CallFunction" not in str(scripted.inlined_graph)
    assert "torch.add" in scripted.code and "def caller" in scripted.code
    assert gpujit.script(scripted) is scripted
    assert gpujit.script(scaled).__doc__ == "Scaled."


def test_operators_of_gpujit_ops_are_names_not_values() -> None:
    scripted = gpujit.script(scaled)
    assert [n.kind for n in scripted.graph.nodes if n.kind.startswith("aten")] == ["aten::relu", "aten::mul"]


def test_a_module_shares_its_arrays_and_keeps_its_state() -> None:
    net = Net()
    scripted = gpujit.script(net)
    np.testing.assert_allclose(scripted(X), X + 5)
    np.testing.assert_allclose(scripted.first(X), X + 1)
    assert scripted.calls == 1
    scripted(X)
    assert scripted.calls == 2
    net.layers._modules["1"].w[...] = 2
    np.testing.assert_allclose(scripted(X), X * 2 + 5)
    assert [n for n, _ in scripted.named_parameters()] == ["layers.0.w", "layers.1.w", "layers.2.w"]
    children = list(scripted.layers.children())
    assert children[0]._object.type is children[1]._object.type


def test_compilation_unit_defines_functions_that_call_each_other() -> None:
    unit = gpujit.CompilationUnit("""
def twice(x: int) -> int:
    return 2 * x
def f(x: int):
    return twice(x) + 1
""")
    assert unit.f(3) == 7
    unit.define("def g(x: int):\n    return f(x) * 10\n")
    assert unit.g(3) == 70
    assert [f.name for f in unit.get_functions()] == ["twice", "f", "g"]
    assert unit.find_function("h") is None
    with pytest.raises(AttributeError, match="no function 'h'"):
        unit.h  # noqa: B018
    with pytest.raises(SourceError, match="undefined value"):
        unit.define("def h(x: int):\n    return nothing(x)\n")
    assert unit.find_function("h") is None


def test_define_adds_a_method() -> None:
    scripted = gpujit.script(Net())
    scripted.define("def more(self, x: Tensor, n: int) -> Tensor:\n    return self.forward(x) * n\n")
    np.testing.assert_allclose(scripted.more(X, 2), (X + 5) * 2)
    assert scripted.calls == 1
    with pytest.raises(SourceError, match="no attribute 'nope'"):
        scripted.define("def bad(self, x: Tensor):\n    return self.nope\n")
    assert "bad" not in scripted.methods


def test_names_come_from_the_functions_own_module_and_closure() -> None:
    k = 4

    def closed(x: int) -> int:
        return x * k

    assert gpujit.script(closed)(2) == 8


def test_an_ignored_function_is_pythons_own() -> None:
    seen: list[Any] = []

    @gpujit.ignore
    def note(x: int) -> int:
        seen.append(x)
        return x + 1

    def f(x: int) -> int:
        return note(x) * 2

    scripted = gpujit.script(f)
    assert scripted(3) == 8
    assert seen == [3]
    with pytest.raises(gpujit.GpujitError, match="'ignore'"):
        scripted.save_to_buffer()


def test_an_ignored_function_that_returns_something_else_is_refused() -> None:
    @gpujit.ignore
    def wrong(x: int) -> int:
        return "text"  # type: ignore[return-value]

    def f(x: int) -> int:
        return wrong(x)

    with pytest.raises(gpujit.GpujitError, match="the result"):
        gpujit.script(f)(3)


def test_markers_do_next_to_nothing_in_python() -> None:
    assert gpujit.annotate(list[int], [1]) == [1]
    assert gpujit.wait(gpujit.fork(lambda x: x + 1, 2)) == 3
    assert not gpujit.is_scripting() and not gpujit.is_tracing()
    assert gpujit.isinstance([1], list[int]) and not gpujit.isinstance(["a"], list[int])
    assert gpujit.isinstance({"a": 1}, dict[str, int]) and gpujit.isinstance((1, "a"), tuple[int, str])
    assert gpujit.isinstance(None, int | None) and not gpujit.isinstance(2.5, (int, str))
    assert gpujit.script_if_tracing(Stub.twice)(4) == 8


def test_overloads_are_chosen_by_argument_types() -> None:
    scripted = gpujit.script(uses_overloads)
    assert scripted(3) == (6, "33")


@gpujit._overload
def double(x: int) -> int:
    pass


@gpujit._overload
def double(x: str) -> str:  # noqa: F811
    pass


def double(x):  # type: ignore[no-untyped-def]  # noqa: F811
    return x + x


def uses_overloads(n: int):  # type: ignore[no-untyped-def]
    return double(n), double(str(n))


@gpujit._overload
def kind_of(x: int) -> str:
    pass


@gpujit._overload
def kind_of(x: np.ndarray) -> str:  # noqa: F811
    pass


def kind_of(x):  # type: ignore[no-untyped-def]  # noqa: F811
    return "number" if isinstance(x, int) else "tensor"


def uses_kinds(x: np.ndarray):  # type: ignore[no-untyped-def]
    return kind_of(x), kind_of(x.dim())


def test_overloads_that_fit_as_it_is_come_before_those_that_convert() -> None:
    assert gpujit.script(uses_kinds)(np.zeros(2)) == ("tensor", "number")


def error_of(text: str) -> str:
    with pytest.raises(SourceError) as caught:
        gpujit.CompilationUnit(text)
    return str(caught.value)


def test_errors_show_the_line_and_the_caret() -> None:
    text = error_of("def f(x: int):\n    y = x + 1\n    return y + 'a'\n")
    lines = text.split("\n")
    at = next(i for i, line in enumerate(lines) if "<--- HERE" in line)
    assert lines[at - 1].endswith("return y + 'a'") and lines[at].strip() == "~~~~~~~ <--- HERE"
    assert lines[at].index("~") == lines[at - 1].index("y + 'a'")
    assert 'File "<string>", line 3 in __torch__.f' in text


def test_errors_in_what_is_called_show_the_call() -> None:
    text = error_of("def g(x: int):\n    return x + 'a'\ndef f(x: int):\n    return g(x)\n")
    assert "line 2" in text

    def inner(x: int) -> int:
        return x + "a"  # type: ignore[operator]

    def outer(x: int) -> int:
        return inner(x)

    with pytest.raises(SourceError) as caught:
        gpujit.script(outer)
    assert "'inner' is being compiled since it was called from here" in str(caught.value)
    assert str(caught.value).count("<--- HERE") == 2


@pytest.mark.parametrize(
    ("text", "reason", "instead"),
    [
        ("try:\n        x = 1\n    except:\n        pass", "Try", "test the condition"),
        ("y = lambda z: z", "Lambda", "define a function"),
        ("y = {1, 2}", "Set", "use a list"),
        ("y = [a for a in [1] if a]", "Comprehension ifs", "write a loop"),
        ("for i in range(3):\n        pass\n    else:\n        pass", "else branches", "use a flag"),
        ("print(x, end='')", "keyword", "print"),
        ("y = +x", "unary", "leave it away"),
    ],
)
def test_refusals_say_what_to_write_instead(text: str, reason: str, instead: str) -> None:
    found = error_of(f"def f(x: int):\n    {text}\n    return x\n")
    assert reason in found and instead in found


def test_bad_objects_are_refused() -> None:
    for bad in (3, "text", None, [1], nn.Module):
        with pytest.raises(ArgumentError):
            gpujit.script(bad)
    with pytest.raises(SourceError, match="def"):
        gpujit.script(lambda x: x)
    namespace: dict[str, Any] = {}
    exec("def sourceless(x: int):\n    return x\n", namespace)
    with pytest.raises(SourceError, match="source"):
        gpujit.script(namespace["sourceless"])


def test_text_that_is_no_program_is_refused() -> None:
    for text in ("def f(:\n", "x = 1\n", "class A:\n    pass\n", 2 * "def f(x):\n  return x\n", "\0"):
        with pytest.raises(SourceError):
            gpujit.CompilationUnit(text)


def test_deep_programs_end_in_an_error_or_a_result() -> None:
    deep = "def f(x: int):\n    return " + "(" * 80 + "x" + " + 1)" * 80 + "\n"
    assert gpujit.CompilationUnit(deep).f(1) == 81
    too_deep = "def f(x: int):\n    return " + "-" * 5000 + "x\n"
    with pytest.raises(SourceError):
        gpujit.CompilationUnit(too_deep)


def test_many_early_returns() -> None:
    lines = "".join(f"    if x == {i}:\n        return {i * i}\n" for i in range(60))
    f = gpujit.CompilationUnit(f"def f(x: int):\n{lines}    return -1\n").f
    assert [f(i) for i in (0, 7, 59, 60)] == [0, 49, 3481, -1]


def test_scripting_from_many_threads() -> None:
    results: list[Any] = []

    def work(i: int) -> None:
        unit = gpujit.CompilationUnit(f"def f(x: int):\n    return x + {i}\n")
        results.append(unit.f(1) == 1 + i and float(gpujit.script(caller)(X)[2]) == 15.0)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [True] * 8


# Names of torch that PyTorch compiles and gpujit refuses, or that both refuse with a reason of ours.
REFUSED_NAMES = {
    "x = torch.distributed.rpc.rpc_sync('w', torch.relu, (x,))": "a program runs in one process",
    "torch.distributed.all_reduce(x)": "a program runs in one process",
    "x = super().forward(x)": "Give the method of the base class a name",
    "y = open('a')": "files are read outside",
    "y = set([1])": "use a list",
    "s = slice(0, 1)\n    y = [s]": "a slice object is no value",
}


@pytest.mark.parametrize("line", REFUSED_NAMES)
def test_names_outside_the_language_say_what_to_write_instead(line):
    with pytest.raises(SourceError, match=REFUSED_NAMES[line]) as caught:
        gpujit.CompilationUnit(f"def f(x, flag: bool):\n    {line}\n    return x\n")
    assert "<--- HERE" in str(caught.value)
    assert "in __torch__.f" in str(caught.value)


def test_contexts_that_change_nothing():
    unit = gpujit.CompilationUnit(
        "def f(x):\n    with torch.autocast('cuda', enabled=False), torch.jit.strict_fusion():\n        return x + 1\n"
    )
    assert np.array_equal(unit.f(X), X + 1)


def test_functions_that_say_they_cannot_be_scripted():
    def decorated(x):
        return x

    decorated.__script_unsupported = "@decorated() is not supported in script mode"

    def calls(x):
        return decorated(x)

    with pytest.raises(ArgumentError, match="is not supported in script mode"):
        gpujit.script(decorated)
    with pytest.raises(SourceError, match="is not supported in script mode"):
        gpujit.script(calls)
