"""Freezing through the public API: what becomes a constant, what stays, what is refused; answers stay the same."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit
from gpujit.ir.graph import Graph
from gpujit.ir.printer import print_graph
from gpujit.ir.verify import verify
from gpujit.support.errors import ArgumentError, DeviceError, DTypeError, FreezeError, UnknownAttributeError
from tests.compare import assert_same
from tests.models.test_corpus import NAMES, case
from tests.programs import Obj, Typed, View, archive, forward, module

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.array([1, 2, 3], np.float32)
SUB = """
class Sub(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  weight : Tensor
  count : int
  training : bool
  def forward(self: __torch__.Sub, x: Tensor) -> Tensor:
    return torch.mul(x, self.weight)
  def bump(self: __torch__.Sub) -> int:
    self.count = torch.add(self.count, 1)
    return self.count
"""


def load(source: str, attributes: Any = None, **options: Any) -> gpujit.ScriptModule:
    return gpujit.load(archive(source, attributes or {}, **options))


def program(signature: str, body: str, attributes: str = "", values: Any = None, **lists: Any) -> gpujit.ScriptModule:
    """A module with one method and these attributes."""
    return load(module(forward(signature, body), attributes, **lists), values)


def kinds(graph: Graph) -> list[str]:
    """Kinds of all nodes but constants."""
    return [n.kind for n in graph.all_nodes() if n.kind != "prim::Constant"]


def attributes(module: gpujit.ScriptModule) -> list[str]:
    return list(module._object.type.attributes)


def snapshot(module: gpujit.ScriptModule) -> list[str]:
    """The module's graph and all that its modules hold."""
    held = [f"{path}.{name}={value}" for path, m in module.named_modules() for name, value in vars_of(m)]
    return [str(module.graph), *held]


def vars_of(module: gpujit.ScriptModule) -> list[tuple[str, Any]]:
    return [(name, getattr(module, name)) for name in attributes(module)]


def with_sub(body: str = "return self.sub.forward(x)", more: str = "") -> gpujit.ScriptModule:
    source = SUB + module(forward("x: Tensor", body) + more, "sub : __torch__.Sub\ntraining : bool")
    sub = Obj("__torch__.Sub", {"weight": W.copy(), "count": 0, "training": False})
    return load(source, {"sub": sub, "training": False})


# ---------------------------------------------------------------------------------------------- what is a constant


def test_weights_numbers_and_submodules_become_constants_and_vanish() -> None:
    model = with_sub()
    frozen = gpujit.freeze(model)
    assert kinds(frozen.graph) == ["aten::mul"]
    assert attributes(frozen) == [] and not frozen.state_dict() and list(frozen.named_children()) == []
    np.testing.assert_array_equal(frozen(X), X * W)
    # The weight is the old module's own, not a copy.
    (constant,) = [n.attributes["value"] for n in frozen.graph.nodes if n.kind == "prim::Constant"]
    assert constant is model.sub.weight
    assert frozen.original_name == "M" and isinstance(frozen, gpujit.ScriptModule)


@pytest.mark.parametrize(
    ("declared", "value", "use", "wanted"),
    [
        ("int", 3, "torch.mul(x, self.a)", X * 3),
        ("float", 0.5, "torch.mul(x, self.a)", X * np.float32(0.5)),
        ("bool", True, "torch.sum(x, [0], self.a)", X.sum(0, keepdims=True)),
        ("List[int]", [3, 2], "torch.reshape(x, self.a)", X.reshape(3, 2)),
        ("Tuple[int, int]", (3, 2), "torch.reshape(x, [self.a[0], self.a[1]])", X.reshape(3, 2)),
        ("Optional[Tensor]", None, "torch.clamp(x, self.a, self.b)", np.minimum(X, W)),
        ("Tensor", W, "torch.add(x, self.a)", X + W),
    ],
)
def test_values_of_every_kind(declared: str, value: Any, use: str, wanted: np.ndarray) -> None:
    values = {"a": value, "b": W}
    frozen = gpujit.freeze(program("x: Tensor", f"return {use}", f"a : {declared}\nb : Optional[Tensor]", values))
    verify(frozen.graph)
    assert "prim::GetAttr" not in kinds(frozen.graph) and attributes(frozen) == []
    np.testing.assert_array_equal(frozen(X), wanted)


def test_a_branch_on_an_attribute_is_decided() -> None:
    body = "if self.on:\n  y = torch.relu(x)\nelse:\n  y = torch.neg(x)\nreturn y"
    frozen = gpujit.freeze(program("x: Tensor", body, "on : bool", {"on": False}))
    assert kinds(frozen.graph) == ["aten::neg"]


def test_a_write_in_a_branch_that_never_runs_does_not_count() -> None:
    body = "if self.training:\n  _0 = torch.add_(self.seen, 1)\n  self.n = 1\nelse:\n  pass\n"
    body += "return torch.add(x, self.seen)"
    values = {"seen": W.copy(), "n": 0, "training": False}
    frozen = gpujit.freeze(program("x: Tensor", body, "seen : Tensor\nn : int\ntraining : bool", values))
    assert kinds(frozen.graph) == ["aten::add"] and attributes(frozen) == []


def test_shared_tensors_stay_one_constant() -> None:
    values = {"a": W, "b": W}
    frozen = gpujit.freeze(
        program("x: Tensor", "return torch.add(torch.mul(x, self.a), self.b)", "a : Tensor\nb : Tensor", values)
    )
    arrays = [n for n in frozen.graph.nodes if isinstance(n.attributes.get("value"), np.ndarray)]
    assert len(arrays) == 1
    np.testing.assert_array_equal(frozen(X), X * W + W)


def test_a_buffer_of_no_dimensions_promotes_as_a_tensor_not_as_a_number() -> None:
    """A constant that comes second in arithmetic stands for a number of a trace; an attribute never does."""
    for op in ("mul", "add", "sub", "div"):
        for dtype in (np.float64, np.int64, np.float32):
            model = program("x: Tensor", f"return torch.{op}(x, self.a)", "a : Tensor", {"a": np.array(2, dtype)})
            frozen = gpujit.freeze(model)
            for x in (
                np.array(3, np.float16),
                np.array([1, 2], np.int32),
                np.array([True]),
                np.array([1.5], np.float32),
            ):
                if op == "sub" and x.dtype == bool:
                    continue
                assert_same(frozen(x), model(x), f"{op} {dtype} {x.dtype}")


# -------------------------------------------------------------------------------------------------- what must stay


def test_an_attribute_that_forward_assigns_is_state() -> None:
    body = "self.n = torch.add(self.n, self.step)\nreturn torch.add(x, self.n)"
    model = program("x: Tensor", body, "n : int\nstep : int", {"n": 0, "step": 2})
    frozen = gpujit.freeze(model)
    assert attributes(frozen) == ["n"]
    for _ in range(3):
        np.testing.assert_array_equal(frozen(X), model(X))
    assert frozen.n == 6 and model.n == 6


@pytest.mark.parametrize(
    "body",
    [
        "_0 = torch.add_(self.a, 1)\nreturn torch.add(x, self.a)",
        "_0 = torch.add_(torch.select(torch.unsqueeze(self.a, 0), 0, 0), 1)\nreturn torch.add(x, self.a)",
        "b = [self.a]\n_0 = torch.add_(b[0], 1)\nreturn torch.add(x, self.a)",
    ],
    ids=["itself", "view", "list"],
)
def test_a_tensor_written_in_place_is_state_and_the_old_module_keeps_its_own(body: str) -> None:
    model = program("x: Tensor", body, "a : Tensor", {"a": W.copy()})
    frozen = gpujit.freeze(model)
    assert attributes(frozen) == ["a"]
    np.testing.assert_array_equal(frozen(X), X + W + 1)
    np.testing.assert_array_equal(frozen(X), X + W + 2)
    np.testing.assert_array_equal(model.a, W)


def test_attributes_that_share_memory_with_a_written_one_are_state() -> None:
    flat = np.arange(6, dtype=np.float32)
    values = {"a": View(flat, (3,), (1,), 0), "b": View(flat, (3,), (1,), 2)}
    body = "_0 = torch.fill_(self.a, 9.)\nreturn torch.add(x, self.b)"
    model = program("x: Tensor", body, "a : Tensor\nb : Tensor", values)
    frozen = gpujit.freeze(model)
    assert attributes(frozen) == ["a", "b"]
    np.testing.assert_array_equal(frozen(X), X + np.array([9, 3, 4], np.float32))
    np.testing.assert_array_equal(model.b, [2, 3, 4])
    np.testing.assert_array_equal(model(X), frozen(X))


def test_a_list_and_a_dict_that_are_written_are_state() -> None:
    body = """
    _0 = torch.append(self.sizes, 7)
    self.seen["k"] = torch.add(self.seen["k"], 1)
    return (torch.len(self.sizes), self.seen["k"], self.fixed[0])
    """
    attributes_ = "sizes : List[int]\nseen : Dict[str, int]\nfixed : List[int]"
    values = {"sizes": [1, 2], "seen": Typed({"k": 0}, "Dict[str, int]"), "fixed": [5]}
    body = body.replace(
        'self.seen["k"] = torch.add(self.seen["k"], 1)',
        '_1 = torch._set_item(self.seen, "k", torch.add(self.seen["k"], 1))',
    )
    model = program("x: Tensor -> Tuple[int, int, int]", body, attributes_, values)
    frozen = gpujit.freeze(model)
    assert attributes(frozen) == ["sizes", "seen"]
    assert [frozen(X), frozen(X)] == [(3, 1, 5), (4, 2, 5)]
    assert model.sizes == [1, 2] and model.seen == {"k": 0}


def test_a_value_kept_by_assignment_and_written_later_is_state() -> None:
    body = "r = torch.add(x, self.w)\nself.kept = self.w\n_0 = torch.add_(self.kept, 1)\nreturn r"
    model = program("x: Tensor", body, "w : Tensor\nkept : Tensor", {"w": W.copy(), "kept": W.copy()})
    frozen = gpujit.freeze(model)
    assert attributes(frozen) == ["w", "kept"]
    for _ in range(3):
        np.testing.assert_array_equal(frozen(X), model(X))


def test_an_object_that_gets_away_is_kept_whole() -> None:
    source = SUB + module(
        forward("x: Tensor", "subs = [self.sub]\nreturn torch.mul(x, (subs[0]).weight)"), "sub : __torch__.Sub"
    )
    sub = Obj("__torch__.Sub", {"weight": W.copy(), "count": 0, "training": False})
    model = load(source, {"sub": sub})
    frozen = gpujit.freeze(model)
    np.testing.assert_array_equal(frozen(X), X * W)
    if attributes(frozen):
        assert frozen.sub.weight is not model.sub.weight


# ------------------------------------------------------------------------------------------------ what is asked for


def test_methods_attributes_and_submodules_that_are_named_stay() -> None:
    more = "def twice(self: __torch__.M, n: int) -> int:\n  return torch.mul(n, 2)\n"
    frozen = gpujit.freeze(with_sub(more=more), ["twice", "sub.weight", "training"])
    assert sorted(frozen.methods) == ["forward", "twice"] and frozen.twice(4) == 8
    assert frozen.training is False
    assert list(frozen.state_dict()) == ["sub.weight"]
    assert [n for n, _ in frozen.named_parameters()] == ["sub.weight"]
    frozen.sub.weight = np.full(3, 5, np.float32)
    np.testing.assert_array_equal(frozen(X), X * 5)
    with pytest.raises(UnknownAttributeError):
        frozen.sub.count  # noqa: B018


def test_a_submodule_that_is_named_stays_whole_with_its_methods() -> None:
    model = with_sub()
    frozen = gpujit.freeze(model, ["sub"])
    assert frozen.sub.bump() == 1 and frozen.sub.bump() == 2 and model.sub.count == 0
    frozen.sub.weight = np.zeros(3, np.float32)
    np.testing.assert_array_equal(frozen(X), X * 0)
    np.testing.assert_array_equal(model(X), X * W)


def test_a_method_of_a_submodule_can_be_kept_and_its_state_is_state_everywhere() -> None:
    body = "return torch.mul(self.sub.forward(x), self.sub.count)"
    model = with_sub(body)
    assert attributes(gpujit.freeze(model)) == []
    frozen = gpujit.freeze(model, ["sub.bump"])
    assert attributes(frozen) == ["sub"] and attributes(frozen.sub) == ["count"]
    assert frozen.sub.bump() == 1 and frozen.sub.bump() == 2
    np.testing.assert_array_equal(frozen(X), X * W * 2)
    assert model.sub.count == 0


def test_parameters_stay_when_asked_for() -> None:
    frozen = gpujit.freeze(with_sub(), preserve_parameters=True)
    assert list(frozen.state_dict()) == ["sub.weight"]
    frozen.sub.weight = np.zeros(3, np.float32)
    np.testing.assert_array_equal(frozen(X), X * 0)


def test_methods_that_are_not_named_are_gone() -> None:
    more = "def twice(self: __torch__.M, n: int) -> int:\n  return torch.mul(n, 2)\n"
    assert sorted(gpujit.freeze(with_sub(more=more)).methods) == ["forward"]


def test_freezing_twice_changes_nothing() -> None:
    body = "self.n = torch.add(self.n, 1)\nreturn torch.add(torch.mul(x, self.w), self.n)"
    model = program("x: Tensor", body, "n : int\nw : Tensor", {"n": 0, "w": W})
    once = gpujit.freeze(model)
    twice = gpujit.freeze(once)
    assert str(twice.graph) == str(once.graph) and attributes(twice) == attributes(once) == ["n"]
    once(X)
    assert (once.n, twice.n, model.n) == (1, 0, 0)


def test_a_call_through_an_interface_is_resolved_or_refused() -> None:
    interface = """
    class Shape(ModuleInterface):
      def forward(self: __torch__.Shape, x: Tensor) -> Tensor:
        pass
    """
    source = "\n".join(line[4:] for line in interface.split("\n")) + SUB
    fixed = source + module(forward("x: Tensor", "return (self.sub).forward(x)"), "sub : __torch__.Shape")
    sub = Obj("__torch__.Sub", {"weight": W.copy(), "count": 0, "training": False})
    model = load(fixed, {"sub": sub})
    frozen = gpujit.freeze(model)
    assert kinds(frozen.graph) == ["aten::mul"]
    np.testing.assert_array_equal(frozen(X), X * W)
    moving = source + module(
        forward("x: Tensor", "y = (self.sub).forward(x)\nself.sub = self.other\nreturn y"),
        "sub : __torch__.Shape\nother : __torch__.Shape",
    )
    other = Obj("__torch__.Sub", {"weight": W * 2, "count": 0, "training": False})
    model = load(moving, {"sub": sub, "other": other})
    with pytest.raises(FreezeError, match="only known at run time"):
        gpujit.freeze(model)


def test_hooks_of_the_module_run_as_before() -> None:
    source = """
class M(Module):
  __parameters__ = []
  __buffers__ = []
  __forward_pre_hooks__ = ["before", ]
  __forward_hooks__ = ["after", ]
  w : Tensor
  def forward(self: __torch__.M, x: Tensor) -> Tensor:
    return torch.add(x, self.w)
  def before(self: __torch__.M, input: Tuple[Tensor]) -> Tuple[Tensor]:
    return (torch.mul(input[0], 2),)
  def after(self: __torch__.M, input: Tuple[Tensor], output: Tensor) -> Tensor:
    return torch.neg(torch.mul(output, self.w))
"""
    model = load(source, {"w": W})
    frozen = gpujit.freeze(model)
    np.testing.assert_array_equal(frozen(X), model(X))
    np.testing.assert_array_equal(frozen(X), -(X * 2 + W) * W)


# -------------------------------------------------------------------------------------------------------- refusals


def test_a_module_in_training_mode_is_refused_and_named() -> None:
    model = with_sub()
    model.sub.training = True
    with pytest.raises(FreezeError, match=r"eval mode. Please call .eval\(\).*In training mode: sub$"):
        gpujit.freeze(model)
    model.training = True
    with pytest.raises(FreezeError, match="In training mode: the module itself, sub"):
        gpujit.freeze(model)
    assert gpujit.freeze(model.eval())(X).shape == X.shape


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["nope"], r"unknown name 'nope': __torch__.M has no 'nope'; its methods are \['forward'\], its attributes"),
        (["sub.nope"], "unknown name 'sub.nope': __torch__.Sub has no 'nope'"),
        (["nope.weight"], "unknown name 'nope.weight': __torch__.M has no 'nope'"),
        (["training.x"], "unknown name 'training.x'"),
        ("forward", "is the text 'forward'; give a list of names"),
        ([3], "holds a int"),
    ],
)
def test_unknown_names_are_refused(names: Any, text: str) -> None:
    model = with_sub()
    before = snapshot(model)
    with pytest.raises(FreezeError, match=text):
        gpujit.freeze(model, names)
    assert snapshot(model) == before


@pytest.mark.parametrize("value", [None, 3, "model.pt", np.zeros(3)])
def test_what_is_no_module_is_refused(value: Any) -> None:
    for function in (gpujit.freeze, gpujit.optimize_for_inference, gpujit.run_frozen_optimizations):
        with pytest.raises(ArgumentError, match="expects a ScriptModule"):
            function(value)


def test_a_module_without_forward_needs_names() -> None:
    model = load(module("def f(self: __torch__.M, n: int) -> int:\n  return torch.mul(n, 2)\n"))
    with pytest.raises(FreezeError, match=r"has no method 'forward'; name the methods to keep .*\['f'\]"):
        gpujit.freeze(model)
    assert gpujit.freeze(model, ["f"]).f(2) == 4


# ---------------------------------------------------------------------------------------------- the other functions


def norm_model() -> gpujit.ScriptModule:
    generator = np.random.default_rng(3)
    values = {
        "w": generator.normal(size=(4, 3, 2, 2)).astype(np.float32),
        "g": generator.normal(size=4).astype(np.float32),
        "m": generator.normal(size=4).astype(np.float32),
        "v": generator.uniform(1, 2, size=4).astype(np.float32),
        "training": False,
    }
    body = """
    y = torch.conv2d(x, self.w, None, [1, 1], [0, 0], [1, 1], 1)
    return torch.batch_norm(y, self.g, None, self.m, self.v, self.training, 0.1, 0.001, True)
    """
    return program("x: Tensor", body, "w : Tensor\ng : Tensor\nm : Tensor\nv : Tensor\ntraining : bool", values)


def test_numerics_are_optimised_unless_told_otherwise() -> None:
    model = norm_model()
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype(np.float32)
    plain = gpujit.freeze(model, optimize_numerics=False)
    assert kinds(plain.graph) == ["aten::conv2d", "aten::batch_norm"]
    np.testing.assert_array_equal(plain(x), model(x))
    text, before = str(plain.graph), plain(x)
    folded = gpujit.freeze(model)
    assert kinds(folded.graph) == ["aten::conv2d"]
    np.testing.assert_allclose(folded(x), model(x), rtol=1e-5, atol=1e-5)
    gpujit.run_frozen_optimizations(plain, optimize_numerics=False)
    assert str(plain.graph) == text
    gpujit.run_frozen_optimizations(plain)
    assert kinds(plain.graph) == ["aten::conv2d"]
    np.testing.assert_allclose(plain(x), before, rtol=1e-5, atol=1e-5)


def test_run_frozen_optimizations_wants_a_frozen_module_and_known_methods() -> None:
    model = norm_model()
    with pytest.raises(FreezeError, match=r"no frozen method 'forward'; call gpujit.freeze\(module\) first"):
        gpujit.run_frozen_optimizations(model)
    with pytest.raises(FreezeError, match="no frozen method 'nope'"):
        gpujit.run_frozen_optimizations(gpujit.freeze(model), preserved_methods=["nope"])


def test_optimize_for_inference_freezes_first_and_leaves_the_mode_alone() -> None:
    model = norm_model().train()
    optimised = gpujit.optimize_for_inference(model)
    assert model.training is True and kinds(optimised.graph) == ["aten::conv2d"]
    assert gpujit.optimize_for_inference(optimised) is optimised


def test_equal_folds_in_two_methods_share_their_weights() -> None:
    model = norm_model()
    assert gpujit.freeze(model).graph is not None
    source = module(
        forward("x: Tensor", "return torch.mul(torch.conv1d(x, self.w, None, [1], [0], [1], 1), 2)")
        + forward("x: Tensor", "return torch.mul(torch.conv1d(x, self.w, None, [1], [0], [1], 1), 2)").replace(
            "forward", "again"
        ),
        "w : Tensor",
    )
    frozen = gpujit.freeze(load(source, {"w": np.ones((2, 3, 1), np.float32)}), ["again"])
    arrays = [
        n.attributes["value"]
        for m in frozen.methods.values()
        for n in m.graph.nodes
        if isinstance(n.attributes.get("value"), np.ndarray)
    ]
    assert len(arrays) == 2 and arrays[0] is arrays[1]
    assert frozen.again(np.ones((1, 3, 4), np.float32)).tolist() == frozen(np.ones((1, 3, 4), np.float32)).tolist()


# ----------------------------------------------------------------------------------------------------------- dtypes


@pytest.mark.parametrize("dtype", ["float16", np.float16, np.dtype("float16"), "half", np.zeros(1, np.float16)])
def test_weights_are_converted(dtype: Any) -> None:
    model = with_sub()
    assert model.to(dtype) is model
    assert model.sub.weight.dtype == np.float16 and model.sub.count == 0
    assert model(X.astype(np.float16)).dtype == np.float16


def test_the_short_forms_and_shared_weights() -> None:
    model = program("x: Tensor", "return torch.add(torch.mul(x, self.a), self.b)", "a : Tensor\nb : Tensor\nn : Tensor",
                    {"a": W, "b": W, "n": np.arange(2)}, parameters=["a", "b"], buffers=["n"])  # fmt: skip
    for method, dtype in (
        ("half", np.float16),
        ("bfloat16", ml_dtypes.bfloat16),
        ("double", np.float64),
        ("float", np.float32),
    ):
        getattr(model, method)()
        assert model.a.dtype == dtype and model.a is model.b and model.n.dtype == np.int64


def test_frozen_weights_and_casts_are_converted() -> None:
    body = "y = torch.to(torch.mul(x, self.w), 6)\nreturn torch.add(y, torch.zeros([3], dtype=6))"
    model = program("x: Tensor", body, "w : Tensor", {"w": W})
    x = X.astype(np.float16)
    frozen = gpujit.freeze(model)
    assert frozen(x).dtype == np.float32
    assert frozen.to("float16")(x).dtype == np.float32
    assert frozen.to("float16", casts=True)(x).dtype == np.float16
    np.testing.assert_array_equal(frozen(x), x * W.astype(np.float16))
    assert model(X).dtype == np.float32 and model.w.dtype == np.float32
    with pytest.raises(FreezeError, match=r"call gpujit\.freeze"):
        model.to("float16", casts=True)


def test_dtypes_and_devices_that_cannot_be_are_refused() -> None:
    model = with_sub()
    with pytest.raises(DTypeError, match="not int32: integers stay as they are"):
        model.to("int32")
    with pytest.raises(DeviceError, match="modules run on 'cpu' and on CUDA devices"):
        model.to("mps")
    with pytest.raises(DeviceError, match="'sideways' is no device"):
        model.to("sideways")
    with pytest.raises(ArgumentError, match="at most one dtype"):
        model.to("float16", dtype="float32")
    assert model.to("cpu") is model and model.sub.weight.dtype == np.float32


def test_device_literals_of_a_frozen_module_move() -> None:
    body = 'return torch.add(x, torch.zeros([3], dtype=None, layout=None, device=torch.device("cuda:0")))'
    frozen = gpujit.freeze(program("x: Tensor", body))
    assert "cuda:0" in str(frozen.graph)
    frozen.to("cpu")
    assert "cuda" not in str(frozen.graph)
    np.testing.assert_array_equal(frozen(X), X)


# ----------------------------------------------------------------------------------------------------- real models


@pytest.mark.parametrize("name", NAMES)
def test_frozen_models_compute_the_same(name: str) -> None:
    """First and later calls, state included; and freezing again changes nothing."""
    model, inputs, expected = case(name)
    frozen = gpujit.freeze(model)
    verify(frozen.graph)
    for call in range(3):
        wanted = model(*copy.deepcopy(inputs))
        assert_same(frozen(*copy.deepcopy(inputs)), wanted, f"{name}, call {call}")
    assert_same(gpujit.freeze(case(name)[0])(*inputs), expected, name)
    assert print_graph(gpujit.freeze(frozen).graph) == print_graph(frozen.graph)


# A buffer without dimensions stays an attribute, where PyTorch makes it a number; checks of ranks that depend on the
# input stay; transforms of constants are left to run time.
MORE_NODES = {"aliasing_script": 1, "convs_script": 31, "spectral": 9}


@pytest.mark.torch
@pytest.mark.parametrize("name", [n for n in NAMES if not n.endswith("_trace")])
def test_frozen_graphs_have_no_more_nodes_than_those_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    path = Path(__file__).parent / "models" / "corpus" / f"{name}.pt"
    theirs = torch.jit.freeze(torch.jit.load(str(path)).eval(), optimize_numerics=False).graph
    ours = gpujit.freeze(case(name)[0]).graph
    assert sum(1 for _ in ours.all_nodes()) <= _count(theirs) + MORE_NODES.get(name, 0)


def _count(graph: Any) -> int:
    """Nodes of a PyTorch graph or block, inner ones included."""
    return sum(1 + sum(map(_count, node.blocks())) for node in graph.nodes())


SILERO = Path(os.environ.get("GPUJIT_TEST_MODELS", ".")) / "silero_vad.jit"


@pytest.mark.skipif(not SILERO.exists(), reason="silero_vad.jit is not there; ci/fetch_models.sh gets it")
@pytest.mark.parametrize(("rate", "size"), [(16000, 512), (8000, 256)])
def test_a_frozen_voice_detector_carries_its_state(rate: int, size: int) -> None:
    model = gpujit.load(SILERO)
    frozen = gpujit.freeze(model, ["reset_states"])
    audio = np.random.default_rng(0).normal(size=(1, 20 * size)).astype(np.float32) * 0.1
    for _ in range(2):
        for i in range(0, audio.shape[1], size):
            np.testing.assert_allclose(
                frozen(audio[:, i : i + size], rate), model(audio[:, i : i + size], rate), rtol=1e-4, atol=1e-5
            )
        frozen.reset_states()
        model.reset_states()
