"""What runs each node of a static plan, and why nothing better does."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod

from gpujit.fuser.fuse import FUSION_GROUP
from gpujit.ir import types as T
from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.graph import Node, Value
from gpujit.ir.printer import SUBGRAPH
from gpujit.kernels.templates.bound import BoundTemplate
from gpujit.passes.analysis.effects import entry_of
from gpujit.runtime.explain import label_of
from gpujit.static_runtime.native import NativeKernel
from gpujit.static_runtime.order import RETURN
from gpujit.static_runtime.places import facts_of
from gpujit.static_runtime.steps import Options, StaticPlan

# What explains a step of its own before a template's.
APART = "not a part of the step that reads it"


@dataclass(frozen=True, slots=True)
class Tier:
    """``name`` is one of native template, native kernel, native copy, view, control, out, numpy, interpreter.

    The first three are steps of native runs, from the library of templates, from a fusion group or operator, or for a
    copy that a view needs. A view costs nothing; ``control`` is a branch or loop whose blocks are planned; ``out`` is
    an operator that NumPy computes into the arena, ``numpy`` one whose results are made anew, ``interpreter``
    everything else. ``reason`` says why it is not one further left; of a native step, why it is no part of another one,
    and in which order its result lies when that is not contiguous.
    """

    node: Node
    name: str
    label: str
    reason: str


def tiers(plan: StaticPlan, options: Options, rules: Collection[str], reasons: Mapping[str, str]) -> list[Tier]:
    """The tier of every node, in the order they run.

    Args:
        options: those the plan was made with.
        rules: operators that are replaced for quantised tensors.
        reasons: why nodes were not fused, by the name of their first result.
    """
    kernels = {s.node: s.kernel for g in plan.segments for s in g.steps}
    found = []
    for node in plan.order:
        if node.kind == RETURN:
            continue
        kernel = kernels.get(node)
        refusal = reasons.get(plan.names.get(node.outputs[0], ""), "") if node.outputs else ""
        if kernel is not None:
            apart, order = plan.apart.get(node), plan.orders.get(node)
            notes = [] if apart is None else [f"{APART}: {apart}"]
            if order is not None:
                notes.append(f"its result lies as its operands do, in the order of dims {', '.join(map(str, order))}")
            reason = "; ".join(notes)
            found.append(Tier(node, f"native {_kind(node, kernel)}", _label(node, kernel, plan), reason))
        elif plan.kinds[node] in ("out", "view"):
            reason = _why_not_native(node, rules, refusal) if plan.kinds[node] == "out" else ""
            found.append(Tier(node, plan.kinds[node], label_of(node), reason))
        elif plan.kinds[node] == "control":
            found.append(Tier(node, "control", label_of(node), "data decide what runs; its blocks are planned"))
        elif node.kind == FUSION_GROUP:
            found.append(Tier(node, "numpy", label_of(node), "its kernel cannot be had"))
        elif entry_of(node) is None:
            what = "runs what data decide" if node.blocks else "a construct of the language"
            found.append(Tier(node, "interpreter", label_of(node), what))
        else:
            why = [_why_not_native(node, rules, refusal), _why_not_out(node, options)]
            found.append(Tier(node, "numpy", label_of(node), "; ".join(w for w in why if w)))
    return found


def _kind(node: Node, kernel: NativeKernel) -> str:
    if isinstance(kernel.owner, BoundTemplate):
        return "template"
    return "copy" if node.kind == "aten::clone" and node.schema is None else "kernel"


def _label(node: Node, kernel: NativeKernel, plan: StaticPlan) -> str:
    """What a step does; a template's includes the operator whose result it goes on with, and how weights are kept."""
    if not isinstance(kernel.owner, BoundTemplate):
        return label_of(node)
    return _operators(node, plan) + _narrow(kernel.owner)


def _narrow(owner: BoundTemplate) -> str:
    kept = owner.constants.get("b")
    return f" ({kept.dtype} weights)" if kept is not None and kept.dtype != FLOAT32 else ""


def _operators(node: Node, plan: StaticPlan) -> str:
    ran = set(plan.order)
    firsts: dict[Node, None] = {}
    stack = list(node.inputs)
    while stack:
        first = _maker(stack.pop(), plan)
        if first is not None and first not in ran and first not in firsts and first.kind != "prim::Constant":
            firsts[first] = None
            stack += first.inputs
    if not firsts:
        return label_of(node)
    # What was made first comes first.
    return "+".join(label_of(n).rpartition("::")[2] for n in (*reversed(firsts), node))


def _maker(value: Value, plan: StaticPlan) -> Node | None:
    """The node that made a tensor's memory, views of it left out."""
    node = value.node
    while node.inputs and plan.kinds.get(node) == "view":
        node = node.inputs[0].node
    return node if node.inputs else None


def _why_not_native(node: Node, rules: Collection[str], refusal: str) -> str:
    op = entry_of(node)
    assert op is not None
    if op.full_name in rules:
        return "it takes quantised tensors"
    if op.form != "functional":
        return "it writes into an operand"
    if not all(isinstance(v.type, T.TensorType) for v in node.outputs):
        return "its result is no tensor"
    if not all(map(facts_of, node.outputs)):
        return "its result's shape is known only at run time"
    if refusal:
        return refusal
    operands = ", ".join(str(v.type) for v in node.inputs if isinstance(v.type, T.TensorType))
    return f"no template takes it for {operands or 'no operands'}"


def _why_not_out(node: Node, options: Options) -> str:
    op = entry_of(node)
    facts = [facts_of(v) for v in node.outputs]
    if op is None or op.form != "functional" or None in facts or op.kind in ("view", "prim"):
        return ""
    if not options.enable_out_variant:
        return "out-variants are turned off"
    if not op.has_out_variant or SUBGRAPH in node.attributes:
        return "it cannot write into a given array"
    size = max((prod(f[0]) * f[1].itemsize for f in facts if f is not None), default=0)
    if size < options.out_bytes:
        return f"a result of {size} bytes is made faster anew"
    return "it may return an operand" if op.may_alias else "its result outlives the run"
