"""Profiles made by hand, for pages that show them."""

from __future__ import annotations

from gpujit.profiler.data import (
    Ceiling,
    GraphText,
    GroupProfile,
    Kernels,
    KernelSource,
    Machine,
    Peak,
    Phase,
    Place,
    Profile,
    Ratio,
    Refusal,
    StepProfile,
    Tensor,
    Times,
    Versions,
)
from gpujit.static_runtime.report import MemoryReport, PlannedValue

# What a page must show and never obey.
HOSTILE = (
    '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1">\'{{7*7}}`${1}`\x1b[31m'
    "\u202egnp\u2028\x00\n<!--" + "n" * 10_000
)


def times(median: float) -> Times:
    return Times(median, median * 0.9, median * 1.2, median * 0.8, 9)


def machine() -> Machine:
    ceilings = (Ceiling("L1", 16_384, 2e11, 1), Ceiling("memory", 1 << 28, 2e10, 1))
    return Machine("A processor", 2, 1, "AVX2", ceilings, (Peak(1, 8e10), Peak(2, 1.6e11)))


def step(number: int, label: str, seconds: float, **more: object) -> StepProfile:
    values: dict[str, object] = {
        "kind": f"aten::{label}",
        "tier": "native kernel",
        "place": Place("code/__torch__.py:20", "model.py:41", "encoder.0", "x = torch.relu(y)"),
        "group": None,
        "kernel": "",
        "operators": (label,),
        "inputs": (Tensor("x", "float32", (4, 8)),),
        "outputs": (Tensor("y", "float32", (4, 8)),),
        "bytes_read": 4096,
        "bytes_written": 4096,
        "flops": 1000 * (number + 1),
        "bound": "memory",
        "fraction": 0.5,
    }
    values.update(more)
    return StepProfile(number, number, label, seconds=times(seconds), **values)  # type: ignore[arg-type]


GROUP_TEXT = """graph(%x : Float(4, 8)):
  %1 : int = prim::Constant[value=1]() # code/__torch__.py:5:0
  %a : Float(4, 8) = prim::FusionGroup_0(%x) # code/__torch__.py:20:4
  %b : Float(4, 8) = aten::softmax(%a, %1) # code/__torch__.py:30:4
  return (%b)
with prim::FusionGroup_0 = graph(%i : Float(4, 8)):
  %t : Float(4, 8) = aten::relu(%i) # code/__torch__.py:20:4
  %u : Float(4, 8) = aten::tanh(%t) # code/__torch__.py:21:4
  return (%u)
"""
PLAIN_TEXT = """graph(%x : Float(4, 8)):
  %1 : int = prim::Constant[value=1]()
  %t : Float(4, 8) = aten::relu(%x) # code/__torch__.py:20:4
  %u : Float(4, 8) = aten::tanh(%t) # code/__torch__.py:21:4
  %b : Float(4, 8) = aten::softmax(%u, %1) # code/__torch__.py:30:4
  return (%b)
"""


def profile(name: str = "model.pt", **more: object) -> Profile:
    """A small profile of two steps, one of them a group."""
    place = Place("code/__torch__.py:20", "", "", "x = torch.relu(y)")
    values: dict[str, object] = {
        "file": name,
        "method": "forward",
        "inputs": (Tensor("x", "float32", (4, 8)),),
        "versions": Versions("1.0", "3.12", "2.1", "0.44", "Linux"),
        "machine": machine(),
        "runner": "static",
        "reason": "",
        "phases": (Phase("load", 0.01), Phase("optimise", 0.2, "12 passes"), Phase("first call", 0.4)),
        "steady": times(1e-4),
        "watched": times(1.1e-4),
        "steps": (
            step(0, "relu+tanh", 6e-5, group=0, kernel="k0", operators=("relu", "tanh")),
            step(1, "softmax", 4e-5, tier="numpy", bound="overhead"),
        ),
        "groups": (
            GroupProfile(
                0, "relu+tanh", ("relu", "tanh"), (place, Place("code/__torch__.py:21")), 256, "k0", "graph():\n",
                times(1e-5), times(4e-5), "native kernel", Ratio(4.0, 3.8, 4.1, 9),
            ),
        ),
        "refusals": (Refusal("softmax", place, "it is too large"),),
        "graphs": (GraphText("frozen", PLAIN_TEXT), GraphText("fused", GROUP_TEXT)),
        "kernels": (KernelSource("k0", "relu+tanh", "LLVM IR", "define void @k() {\n  ret void\n}\n"),),
        "cache": Kernels(1, 2, 3, 0),
        "memory": MemoryReport(
            256, 256, 512, 64, 1024, 2048, 128, 1,
            (
                PlannedValue("a", "prim::FusionGroup", "float32", (4, 8), 0, 128, 0, 1),
                PlannedValue("b", "aten::softmax", "float32", (4, 8), 128, 128, 1, 1),
            ),
        ),
        "fused": times(1e-4),
        "unfused": times(1.3e-4),
        "speedup": Ratio(1.3, 1.25, 1.4, 9),
    }  # fmt: skip
    values.update(more)
    return Profile(**values)  # type: ignore[arg-type]


def chain(count: int) -> str:
    """The text of a graph of so many operators, one after the other, with leaps."""
    lines = ["graph(%x : Float(4, 8)):", "  %1 : int = prim::Constant[value=1]()"]
    before = "x"
    for i in range(count):
        if i % 7 == 3:
            call = f"aten::add(%{before}, %v{i - 3}, %1)"
        else:
            call = f"aten::{('relu', 'tanh', 'sigmoid')[i % 3]}(%{before})"
        lines.append(f"  %v{i} : Float(4, 8) = {call} # code/__torch__.py:{i + 1}:4")
        before = f"v{i}"
    return "\n".join([*lines, f"  return (%{before})", ""])
