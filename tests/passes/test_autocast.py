"""Casts inside contexts of autocast: where they go, what they cast on which device, and what is refused."""

from __future__ import annotations

import io
import itertools
import textwrap
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.ir import types as T
from gpujit.ir.parser import parse_graph
from gpujit.ir.values import CPU, Device
from gpujit.modules import ScriptModule
from gpujit.ops import registry, table
from gpujit.passes.analysis.placement import depends_on_place
from gpujit.passes.autocast import autocast, settle_casts, with_casts
from gpujit.support.errors import SourceError
from gpujit.testing import check_pass
from tests import programs
from tests.frontend.language import TorchAlias
from tests.passes.peephole_help import floats, run
from tests.programs import archive
from tests.runtime.recording_device import RecordingDevice
from tests.static_runtime.test_device import placed

NAME = "__torch__.torch.amp.autocast_mode.autocast"
torch, Tensor = TorchAlias(), TorchAlias().Tensor
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
X, Y = floats(3, 4), floats(4, 4, seed=1)


def context_class() -> T.ClassType:
    """The class of a context, with its attributes."""
    found = T.ClassType(NAME)
    for name, type_ in (("fast_dtype", T.INT), ("_enabled", T.BOOL), ("device", T.STR)):
        found.add_attribute(name, type_)
    return found


def in_context(inputs: str, body: str, device: str = "cpu", enabled: int = 1, dtype: int = 15) -> str:
    """A graph's text with a body, lines separated by semicolons, in a context; it returns ``%y``."""
    lines = "".join(f"  {line.strip()}\n" for line in body.split(";"))
    return f"""graph({inputs}):
  %device : str = prim::Constant[value="{device}"]()
  %on : bool = prim::Constant[value={enabled}]()
  %dtype : int = prim::Constant[value={dtype}]()
  %none : NoneType = prim::Constant()
  %c : {NAME} = prim::CreateObject()
   = prim::SetAttr[name="fast_dtype"](%c, %dtype)
   = prim::SetAttr[name="_enabled"](%c, %on)
   = prim::SetAttr[name="device"](%c, %device)
  %entered : {NAME} = prim::Enter(%c)
{lines}  %left : NoneType = prim::Exit(%c)
  return (%y)"""


def read(text: str) -> Any:
    return parse_graph(text, types={NAME: context_class()}.get)


# --------------------------------------------------------------------------------------------------------- the pass


def test_operands_are_cast_and_the_context_goes() -> None:
    check_pass(
        autocast,
        before=in_context("%a : Tensor, %b : Tensor", "%m : Tensor = aten::mm(%a, %b); %y : Tensor = aten::exp(%m)"),
        after="""
            graph(%a : Tensor, %b : Tensor):
              %device : str = prim::Constant[value="cpu"]()
              %on : bool = prim::Constant[value=1]()
              %dtype : int = prim::Constant[value=15]()
              %none : NoneType = prim::Constant()
              %1 : bool = prim::Constant[value=0]()
              %2 : bool = prim::Constant[value=1]()
              %3 : int = prim::Constant[value=5]()
              %4 : int = prim::Constant[value=15]()
              %5 : Tensor = aten::_autocast_to_reduced_precision(%a, %1, %2, %3, %4)
              %6 : bool = prim::Constant[value=0]()
              %7 : bool = prim::Constant[value=1]()
              %8 : int = prim::Constant[value=5]()
              %9 : int = prim::Constant[value=15]()
              %10 : Tensor = aten::_autocast_to_reduced_precision(%b, %6, %7, %8, %9)
              %m : Tensor = aten::mm(%5, %10)
              %11 : bool = prim::Constant[value=0]()
              %12 : bool = prim::Constant[value=1]()
              %13 : Tensor = aten::_autocast_to_full_precision(%m, %11, %12)
              %y : Tensor = aten::exp(%13)
              return (%y)""",
        types={NAME: context_class()}.get,
    )


def test_a_graph_without_contexts_is_not_copied() -> None:
    graph = read("graph(%a : Tensor):\n  %y : Tensor = aten::exp(%a)\n  return (%y)")
    assert with_casts(graph) is graph
    entered = read(in_context("%a : Tensor", "%y : Tensor = aten::exp(%a)"))
    made = with_casts(entered)
    assert made is not entered and any(n.kind == "prim::Enter" for n in entered.nodes)
    assert with_casts(made) is made


def one_node(schema: Any, name: str, tensor: str, dtype: bool) -> tuple[str, str]:
    """Inputs and the body of a graph with one node of an overload; ``dtype`` says whether that argument is given."""
    inputs = [f"%a{i} : {tensor if str(a.type) == 'Tensor' else a.type}" for i, a in enumerate(schema.arguments)]
    names = [
        "%none" if a.name == "dtype" and not dtype else n.split(" ")[0]
        for a, n in zip(schema.arguments, inputs, strict=True)
    ]
    results = ", ".join(f"%{'y' if i == 0 else f'r{i}'} : {r.type}" for i, r in enumerate(schema.returns))
    return ", ".join(inputs), f"{results} = {name}({', '.join(names)})"


def kind_of_cast(graph: Any) -> str:
    text = str(graph)
    return "reduced" if "_autocast_to_reduced" in text else "full" if "_autocast_to_full" in text else ""


def torch_casts(torch: Any, text: str, device: str) -> str:
    """What PyTorch's pass casts a node's operands to."""
    graph = torch._C.parse_ir(text)
    torch.set_autocast_enabled(device, True)
    try:
        torch._C._jit_pass_autocast(graph)
    except RuntimeError as e:
        return "refused" if "Unsafe to autocast" in str(e) else "unknown"
    finally:
        torch.set_autocast_enabled(device, False)
    return kind_of_cast(graph)


def is_for_both(op: registry.Op, torch: Any) -> bool:
    """Whether an operator's text can be read by PyTorch, without ending its process, and casts something."""
    schema = op.schema
    plain = {"Tensor", "Tensor?", "int", "int?", "int[]", "float", "float?", "bool", "str", "Scalar", "Scalar?"}
    return (
        op.name.startswith("aten::")
        and not schema.is_mutable
        and len(schema.returns) > 0
        and not schema.is_vararg
        and {str(a.type) for a in schema.arguments} <= plain
        and any(str(a.type) == "Tensor" for a in schema.arguments)
        and {str(r.type) for r in schema.returns} <= {"Tensor", "bool"}
        and any(str(s) == str(schema) for s in torch._C._jit_get_schemas_for_operator(op.name))
    )


@pytest.mark.torch
def test_each_operator_s_operands_are_cast_as_pytorch_s_pass_casts_them() -> None:
    torch = pytest.importorskip("torch")
    seen: dict[str, int] = {}
    for op in table.registered():
        if not is_for_both(op, torch):
            continue
        for device, (tensor, dtype) in itertools.product(
            ("cpu", "cuda"), (("Tensor", False), ("Tensor", True), ("Half(*)", False))
        ):
            inputs, body = one_node(op.schema, op.name, tensor, dtype)
            text = f"graph({inputs}):\n  %none : NoneType = prim::Constant()\n  {body}\n  return (%y)\n"
            want = torch_casts(torch, text, device)
            graph = read(in_context(inputs, body, device))
            try:
                autocast.run(graph)
                got = kind_of_cast(graph)
            except SourceError:
                got = "refused"
            if want != "unknown":
                assert got == want, f"{op.schema} on {device}, dtype {dtype}, operands {tensor}"
            seen[want] = seen.get(want, 0) + 1
    assert seen["reduced"] > 50 and seen["full"] > 150 and seen["refused"] > 2 and seen[""] > 1000, seen
    assert seen.get("unknown", 0) < 100, seen


# ---------------------------------------------------------------------------------------------- casts and their place


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int64"])
@pytest.mark.parametrize("flags", itertools.product((0, 1), (0, 1)))
def test_what_the_casts_give_follows_the_dtype_and_the_flag_of_the_cpu(dtype: str, flags: tuple[int, int]) -> None:
    x = floats(2, 3).astype(BFLOAT16 if dtype == "bfloat16" else dtype)
    text = f"""graph(%x : Tensor):
  %cuda : bool = prim::Constant[value={flags[0]}]()
  %cpu : bool = prim::Constant[value={flags[1]}]()
  %h : int = prim::Constant[value=5]()
  %b : int = prim::Constant[value=15]()
  %r : Tensor = aten::_autocast_to_reduced_precision(%x, %cuda, %cpu, %h, %b)
  %f : Tensor = aten::_autocast_to_full_precision(%x, %cuda, %cpu)
  return (%r, %f)"""
    graph = read(text)
    reduced, full = run(graph, x)
    assert reduced.dtype == (BFLOAT16 if flags[1] and dtype == "float32" else x.dtype)
    assert full.dtype == (np.float32 if flags[1] and "float16" in dtype else x.dtype)
    assert (reduced is x or np.shares_memory(reduced, x)) == (reduced.dtype == x.dtype)
    # Known for one device the casts give what they gave; for a GPU they follow its flag.
    settle_casts(graph, CPU)
    assert [r.dtype for r in run(graph, x)] == [reduced.dtype, full.dtype]
    graph = read(text)
    settle_casts(graph, Device("cuda", 0))
    assert not any(map(depends_on_place, graph.all_nodes()))
    reduced, full = run(graph, x)
    assert reduced.dtype == (np.float16 if flags[0] and dtype == "float32" else x.dtype)
    assert full.dtype == (np.float32 if flags[0] and "float16" in dtype else x.dtype)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)


def scripted(body: str) -> ScriptModule:
    """A module with a linear layer and this body of ``forward``."""
    module = gpujit.script(Layers().eval())
    module.define(f"def forward(self, x):\n{textwrap.indent(textwrap.dedent(body), '    ')}")
    return module


TWO = """
    with torch.autocast('cuda'):
        a = self.layer(x)
    with torch.autocast('cpu'):
        b = self.layer(x)
    return a, b, self.layer(x)
"""


def expected(module: ScriptModule, x: np.ndarray, dtype: Any) -> np.ndarray:
    """The layer computed on operands of a dtype."""
    state = module.state_dict()
    w, b = (state[f"layer.{n}"].astype(dtype).astype("f8") for n in ("weight", "bias"))
    return (x.astype(dtype).astype("f8") @ w.T + b).astype(dtype)


def assert_are(results: Any, module: ScriptModule, dtypes: tuple[Any, ...]) -> None:
    """The results are the layer's, each in a dtype."""
    for result, dtype in zip(results, dtypes, strict=True):
        assert result.dtype == dtype
        near = 1e-5 if dtype == np.float32 else 0.03
        np.testing.assert_allclose(result.astype("f8"), expected(module, X, dtype).astype("f8"), near, near)


def test_interpreted_frozen_optimised_and_saved_modules_give_the_same() -> None:
    module = scripted(TWO)
    on_cpu = (np.float32, BFLOAT16, np.float32)
    frozen = gpujit.freeze(module)
    again = gpujit.load(frozen.save_to_buffer())
    for each in (module, frozen, again, gpujit.load(module.save_to_buffer())):
        assert_are(each(X), module, on_cpu)
        optimised = gpujit.optimize_for_inference(each)
        for _ in range(3):
            assert_are(optimised(X), module, on_cpu)


def test_on_a_gpu_the_casts_for_cuda_hold_even_when_the_module_was_frozen_before() -> None:
    module = scripted(TWO)
    for frozen in (module, gpujit.load(gpujit.freeze(module).save_to_buffer())):
        found = placed(frozen, RecordingDevice())
        for _ in range(3):
            assert_are([r.get() for r in found(X)], module, (np.float16, np.float32, np.float32))


def test_weights_are_cast_once_and_not_while_it_is_not_known_where_they_lie() -> None:
    frozen = gpujit.freeze(scripted(TWO))
    assert sum(map(depends_on_place, frozen.graph.nodes)) == 6
    optimised = gpujit.optimize_for_inference(frozen)
    optimised(X)
    plan = optimised.explain().splitlines()
    # Of the casts, that of the input is left.
    assert not any("aten::_autocast" in line for line in plan)
    assert sum("to+" in line or "aten::to" in line for line in plan if line.startswith("native")) == 1
    # Contexts for both devices agree on float32, and nothing is left to be known.
    both = gpujit.freeze(scripted("""
        with torch.autocast('cpu', torch.float16), torch.cuda.amp.autocast():
            return self.layer(x)
    """))
    assert not any(map(depends_on_place, both.graph.nodes))
    assert {c.dtype for c in constants(both.graph)} == {np.dtype("float16")}


def constants(graph: Any) -> list[np.ndarray]:
    """The tensors among a graph's constants."""
    found = [n.attributes.get("value") for n in graph.all_nodes() if n.kind == "prim::Constant"]
    return [c for c in found if isinstance(c, np.ndarray)]


@pytest.mark.torch
@pytest.mark.parametrize("body", [TWO, "with torch.autocast('cpu'):\n    return (self.layer(x).exp() + x).cumsum(0)"])
def test_saved_modules_give_the_same_in_pytorch(body: str) -> None:
    torch = pytest.importorskip("torch")
    module = scripted(body)
    for each in (module, gpujit.freeze(module)):
        with torch.no_grad():
            theirs = torch.jit.load(io.BytesIO(each.save_to_buffer()))(torch.from_numpy(X))
        ours = each(X)
        for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (ours, theirs)), strict=True):
            assert str(b.dtype) == f"torch.{a.dtype}"
            np.testing.assert_allclose(a.astype("f8"), b.double().numpy(), 0.02, 0.02)


# ------------------------------------------------------------------------------------------------------------ refused

REFUSED = {
    "with torch.autocast('cpu', enabled=flag):\n    z = x + 1": "argument 'enabled' must be a constant",
    "with torch.autocast('cpu', dtype=n):\n    z = x + 1": "argument 'dtype' must be a constant",
    "with torch.autocast(d):\n    z = x + 1": "argument 'device_type' must be a constant",
    "a = torch.autocast('cpu')\nb = torch.autocast('cuda')\nwith a if flag else b:\n    z = x + 1": "must be known",
    "with torch.autocast('xpu'):\n    z = x + 1": "for device 'xpu' is not supported; name 'cpu' or 'cuda'",
    "with torch.autocast('cpu'):\n    z = torch.nn.functional.binary_cross_entropy(x, x)": "unsafe to autocast",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_cannot_be_cast_before_run_time_is_refused_with_its_line(body: str) -> None:
    text = f"def f(x, flag: bool, n: int, d: str):\n{textwrap.indent(body, '    ')}\n    return z\n"
    unit = gpujit.CompilationUnit(text)
    with pytest.raises(SourceError, match=REFUSED[body]) as caught:
        unit.f(X, True, 15, "cpu")
    assert "<--- HERE" in str(caught.value)


def test_a_dtype_that_a_caller_gives_counts_and_so_does_a_switch() -> None:
    unit = gpujit.CompilationUnit("""
def g(x, y, dtype: Optional[int], enabled: bool):
    with torch.autocast('cpu', dtype, enabled):
        return x @ y
def f(x, y):
    return g(x, y, None, True), g(x, y, torch.float16, True), g(x, y, None, False)
""")
    assert [r.dtype for r in unit.f(X, Y)] == [BFLOAT16, np.float16, np.float32]


def test_returns_and_continues_on_one_path_out_of_a_context() -> None:
    unit = gpujit.CompilationUnit("""
def f(x, y, early: bool):
    with torch.autocast('cpu'):
        if early:
            return x @ y
        z = x @ y
    w = z
    for i in range(3):
        with torch.autocast('cpu'):
            if i == 1:
                continue
            z = x @ y
        w = x @ y
    return z + w
""")
    assert unit.f(X, Y, True).dtype == BFLOAT16 and unit.f(X, Y, False).dtype == np.float32


@gpujit.interface
class Goes:
    def go(self, x: Tensor) -> Tensor:
        pass


@gpujit.script
class Adds:
    def go(self, x: Tensor) -> Tensor:
        return x + 1


def calls_an_interface(x: Tensor, inside: Goes) -> Tensor:
    with torch.autocast("cpu"):
        return inside.go(x)


def test_calls_through_an_interface_are_refused_in_a_context() -> None:
    def outer(x: Tensor) -> Tensor:
        return calls_an_interface(x, Adds())

    with pytest.raises(SourceError, match="only known at run time") as caught:
        gpujit.script(outer)(X)
    assert "inside.go(x)" in str(caught.value)


# ----------------------------------------------------------------------------------------------------- classes of files

OLD = """
class autocast:
  _enabled : bool
  def __init__(self: {name}, enabled: bool=True) -> NoneType:
{set}
    return None
  def __enter__(self: {name}) -> {name}:
    return self
  def __exit__(self: {name}, a: Any, b: Any, c: Any) -> NoneType:
    return None
"""


def from_file(name: str, set_: str, given: str = "") -> ScriptModule:
    """A module of a file whose context is of this class; ``set_`` is the body of its ``__init__``."""
    source = programs.module(f"""
  def forward(self: __torch__.M, x: Tensor) -> Tensor:
    _0 = {name}.__new__({name})
    _1 = (_0).__init__({given})
    with _0:
      y = torch.mm(x, x)
    return y
""", "")
    path = name.rpartition(".")[0].replace(".", "/") + ".py"
    return gpujit.load(archive({"__torch__.py": source, path: OLD.format(name=name, set=set_)}))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("torch.cpu.amp.autocast_mode", BFLOAT16), ("torch.cuda.amp.autocast_mode", np.float32)],
)
def test_classes_of_one_device_need_not_name_it(name: str, dtype: Any) -> None:
    full = f"__torch__.{name}.autocast"
    assert from_file(full, "    self._enabled = enabled")(Y).dtype == dtype
    assert from_file(full, "    self._enabled = enabled", "False")(Y).dtype == np.float32


@pytest.mark.parametrize(
    ("set_", "why"),
    [
        ("    self._enabled = enabled", "has no attribute 'device'"),
        ("    pass", "has no attribute 'device'"),
        ("    if enabled:\n      self._enabled = True\n    else:\n      self._enabled = False", "must be set once"),
        ("    self._enabled = False\n    self._enabled = enabled", "must be set once"),
    ],
)
def test_classes_whose_attributes_do_not_say_what_is_cast_are_refused(set_: str, why: str) -> None:
    with pytest.raises(SourceError, match=why):
        from_file("__torch__.torch.amp.autocast_mode.autocast", set_)(Y)
