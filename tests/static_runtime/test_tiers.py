"""What is said of each node: the tier that runs it, and why not a better one."""

from __future__ import annotations

import numpy as np
import pytest

from gpujit.static_runtime.module import at_once, not_at_all
from gpujit.static_runtime.products import native_product
from gpujit.static_runtime.steps import Options
from gpujit.support.errors import ArgumentError
from tests.static_runtime.help import f32, from_text

TEXT = """
    graph(%x : Float(64, 128), %w : Float(128, 128), %d : Double(128, 128)):
      %one : int = prim::Constant[value=1]()
      %no : bool = prim::Constant[value=0]()
      %1 : Float(64, 128) = aten::mm(%x, %w)
      %2 : Float(64, 128) = aten::relu(%1)
      %3 : Float(128, 64) = aten::t(%2)
      %5 : Double(128, 128) = aten::mm(%d, %d)
      %6 : Float(128, 64), %7 : Long(128, 64) = aten::sort(%3, %one, %no)
      %8 : Float(128, 64) = aten::neg_(%6)
      %9 : Tensor = aten::nonzero(%8)
      %10 : (Tensor, Tensor, Tensor, Tensor) = prim::TupleConstruct(%8, %9, %5, %7)
      return (%10)"""


def test_each_node_has_a_tier_and_a_reason() -> None:
    module = from_text(TEXT, Options(out_bytes=1 << 14), native_product)
    with pytest.raises(ArgumentError, match="no plan before its first run"):
        module.tiers()
    x, w, d = f32(64, 128), f32(128, 128), np.eye(128)
    module.run([x, w, d])
    found = {t.label.rpartition("::")[2]: (t.name, t.reason) for t in module.tiers()}
    assert found["mm+relu"] == ("native template", "")
    assert found["t"] == ("view", "")
    name, reason = found["mm"]
    assert name in ("out", "numpy") and "no template takes it for Double(128, 128)" in reason
    assert found["sort"][0] == "numpy" and "outlives the run" in found["sort"][1]
    assert found["neg_"] == ("numpy", "it writes into an operand")
    assert found["nonzero"] == ("numpy", "its result's shape is known only at run time")
    assert found["TupleConstruct"] == ("interpreter", "a construct of the language")
    text = module.explain()
    assert all(any(line.startswith(t.name) and t.label in line for line in text.splitlines()) for t in module.tiers())


def test_reasons_of_the_fuser_are_passed_on() -> None:
    module = from_text(TEXT, Options(enable_out_variant=False), native_product)
    module.run([f32(64, 128), f32(128, 128), np.eye(128)])
    (node,) = [n for n in module.graph.nodes if n.kind == "aten::sort"]
    found = {t.label: t.reason for t in module.tiers({node: "it sorts"})}
    assert found["aten::sort"].startswith("it sorts; ")
    assert found["aten::mm"].endswith("out-variants are turned off")
    small = from_text(TEXT, Options(out_bytes=1 << 30), native_product)
    small.run([f32(64, 128), f32(128, 128), np.eye(128)])
    reasons = [t.reason for t in small.tiers() if t.label == "aten::mm"]
    assert any("bytes is made faster anew" in r for r in reasons)


@pytest.mark.parametrize("replan", [at_once, not_at_all])
def test_plans_for_other_strides_are_made_when_they_may_be(replan: object) -> None:
    module = from_text(TEXT, maker=native_product)
    module._replan = replan  # type: ignore[assignment]
    x, w, d = f32(64, 128), f32(128, 128), np.eye(128)
    wanted = module.run([x, w, d])
    first = module.plan([x, w, d])
    other = np.asfortranarray(x)
    for _ in range(3):
        for a, b in zip(module.run([other, w, d]), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    assert (module.plan([x, w, d]) is first) is (replan is not_at_all)


SINGLE = """
    graph(%x : Float(8, 40), %w : Float(40, 40)):
      %no : bool = prim::Constant[value=0]()
      %last : int = prim::Constant[value=-1]()
      %1 : Float(8, 40), %i : Long(8, 40) = aten::sort(%x, %last, %no)
      %2 : Float(8, 40) = aten::neg(%1)
      %3 : Float(8, 40), %k : Long(8, 40) = aten::sort(%2, %last, %no)
      return (%3)
    """


def test_one_small_operator_between_numpys_is_numpys() -> None:
    x, w = f32(8, 40), f32(40, 40, seed=1)
    for text, tier in (
        (SINGLE, "numpy"),
        # Two are worth a call.
        (
            SINGLE.replace("aten::neg(%1)", "aten::neg(%5)").replace(
                "%2 :", "%5 : Float(8, 40) = aten::tanh(%1)\n      %2 :"
            ),
            "native",
        ),
        # So is one of many elements.
        (SINGLE.replace("(8, 40)", "(800, 400)"), "native"),
    ):
        given = f32(800, 400) if "800" in text else x
        module = from_text(text)
        got = module.run([given, w])
        middle = {t.label: t.name for t in module.tiers()}
        assert [t.split()[0] for label, t in middle.items() if "sort" not in label] == [tier], middle
        inner = np.tanh(np.sort(given)) if "tanh" in text else np.sort(given)
        np.testing.assert_allclose(got, np.sort(-inner), rtol=1e-5)
