"""Local rules that drop what changes nothing and join what follows one another: casts, copies, views, slices.

Each rule holds for every input; what a rule has to know (dtypes, shapes, constants) is read from the types of the
values, and a rule that does not find it leaves the node alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import BFLOAT16, FLOAT32, FLOAT64, kind_of
from gpujit.ir.graph import Node, Value
from gpujit.ops.numbers import INT_MAX
from gpujit.passes.peephole.facts import (
    constant_of,
    dtype_of,
    full_name,
    is_int,
    known_shape,
    layout_matters,
    rank_of,
    same_dtype,
    same_shape,
    shape_of,
)
from gpujit.passes.rewrite import Match, Rule, rewrite_pass

_PRESERVE = 1


def itself(name: str, op: str, arity: int, unless: Any = None, *, same_memory: bool = False) -> Rule:
    """A rule for an operator of ``arity`` arguments whose result ``y`` equals its first argument ``x``.

    The others are called ``a1``, ``a2`` and so on. ``same_memory``: the operator returns ``x`` itself.
    """
    parameters = ", ".join(["%x", *(f"%a{i}" for i in range(1, arity))])
    return Rule(
        name,
        before=f"graph({parameters}):\n  %y = {op}({parameters})\n  return (%y)",
        after=f"graph({parameters}):\n  return (%x)",
        unless=unless,
        same_memory=same_memory,
    )


# ------------------------------------------------------------------------------------------------------------- casts

# Where an overload keeps its arguments; None for those it has not.
_CASTS = {
    "aten::to.device": {"device": 1, "dtype": 2, "copy": 4, "memory_format": 5},
    "aten::to.dtype": {"dtype": 1, "copy": 3, "memory_format": 4},
    "aten::to.dtype_layout": {"dtype": 1, "layout": 2, "device": 3, "copy": 6, "memory_format": 7},
    "aten::to.prim_Device": {"device": 1, "dtype": 2, "copy": 4},
    "aten::to.prim_dtype": {"dtype": 1, "copy": 3},
    "aten::to.prim_other": {"copy": 2},
    "aten::to.other": {"other": 1, "copy": 3, "memory_format": 4},
}


def _casts(m: Match) -> str | None:
    """Why a ``to`` may give another tensor than its input."""
    x, y = m["x"], m["y"]
    node = y.node
    at = _CASTS.get(full_name(node) or "")
    if at is None:
        return f"{full_name(node)} is not known to be a cast"
    if constant_of(node.inputs[at["copy"]]) is not False:
        return "a copy may be asked for"
    if "memory_format" in at and constant_of(node.inputs[at["memory_format"]]) not in (None, _PRESERVE):
        return "the memory format may change"
    if "layout" in at and constant_of(node.inputs[at["layout"]]) not in (None, 0):
        return "the layout may change"
    if "device" in at:
        device = constant_of(node.inputs[at["device"]])
        if device is not None and not _is_on(x, str(device)):
            return f"the device may change to {device}"
    if "dtype" in at and constant_of(node.inputs[at["dtype"]]) is None:
        return None
    return same_dtype(x, y) if len(at) > 1 else None


def _is_on(x: Value, device: str) -> bool:
    return isinstance(x.type, T.TensorType) and x.type.device == device


def _loses_digits(m: Match) -> str | None:
    """Why a cast there and back may not give the same numbers."""
    fault = _casts_only(m["v"].node) or _casts_only(m["y"].node) or same_dtype(m["x"], m["y"])
    narrow, wide = dtype_of(m["x"]), dtype_of(m["v"])
    if fault is not None or narrow is None or wide is None:
        return fault or "the dtypes are not known"
    fault = layout_matters(m["y"])
    if fault is not None:
        return fault
    kept = wide in (FLOAT32, FLOAT64) if narrow == BFLOAT16 else wide.kind != "V" and np.can_cast(narrow, wide, "safe")
    return None if kept else f"{wide} does not hold all numbers of {narrow}"


def _casts_only(node: Node) -> str | None:
    """Why a ``to`` may do more than to change the dtype."""
    if full_name(node) != "aten::to.dtype" or constant_of(node.inputs[4]) not in (None, _PRESERVE):
        return "the memory format may change"
    return None


def _types_differ(m: Match) -> str | None:
    return same_dtype(m["x"], m["y"])


CASTS = (
    *(itself(f"to-same-{arity}", "aten::to", arity, _casts, same_memory=True) for arity in (3, 4, 5, 6, 8)),
    itself("type-as-same", "aten::type_as", 2, _types_differ, same_memory=True),
    Rule(
        "to-and-back",
        before="""
            graph(%x, %a1, %a2, %a3, %a4, %b1, %b2, %b3, %b4):
              %v = aten::to(%x, %a1, %a2, %a3, %a4)
              %y = aten::to(%v, %b1, %b2, %b3, %b4)
              return (%y)""",
        after="graph(%x, %a1, %a2, %a3, %a4, %b1, %b2, %b3, %b4):\n  return (%x)",
        unless=_loses_digits,
        may_copy=True,
    ),
)


# ------------------------------------------------------------------------------------------------ copies and dropout


def _in_training(m: Match) -> str | None:
    return None if constant_of(m["a2"]) is False else "it may be in training"


def _other_format(m: Match) -> str | None:
    inner, outer = constant_of(m["f"]), constant_of(m["g"])
    return None if type(inner) is int and inner == outer else "the memory formats may differ"


def _channels_last(m: Match) -> str | None:
    if not is_int(constant_of(m["f"]), 0):
        return "the memory format may be another than the plain one"
    return layout_matters(m["y"])


def _is_complex(m: Match) -> str | None:
    dtype = dtype_of(m["x"])
    return None if dtype is not None and kind_of(dtype) < 3 else "it may be complex"


def _before_product(op: str, arguments: str, at: str) -> Rule:
    """``contiguous`` before a product of matrices, which reads any layout and gives a plain one."""
    names = ", ".join(f"%{a}" for a in arguments.split())
    given = names.replace(f"%{at}", "%c")
    others = ", ".join(f"%{a}" for a in arguments.split() if a != at)
    # The copy may have other readers.
    return Rule(
        f"{op}-of-contiguous-{at}",
        before=f"""
            graph(%{at}, %f, {others}):
              %c = aten::contiguous(%{at}, %f)
              %y = aten::{op}({given})
              return (%y)""",
        after=f"graph(%{at}, %c, {others}):\n  %y = aten::{op}({names})\n  return (%y)",
    )


def _after_contiguous(op: str, arity: int, other: str) -> Rule:
    """``contiguous`` before an operator on shapes, which ``other`` does on any memory."""
    parameters = ", ".join(f"%a{i}" for i in range(1, arity))
    graph = f"graph(%x, %f, {parameters}):"
    return Rule(
        f"{op}-of-contiguous",
        before=f"{graph}\n  %c = aten::contiguous(%x, %f)\n  %y = aten::{op}(%c, {parameters})\n  return (%y)",
        after=f"{graph}\n  %y = aten::{other}(%x, {parameters})\n  return (%y)",
        unless=_channels_last,
        may_copy=True,
    )


COPIES = (
    itself("detach", "aten::detach", 1),
    itself("alias", "aten::alias", 1),
    itself("dropout", "aten::dropout", 3, _in_training, same_memory=True),
    itself("feature-dropout", "aten::feature_dropout", 3, _in_training, same_memory=True),
    itself("alpha-dropout", "aten::alpha_dropout", 3, _in_training, same_memory=True),
    itself("feature-alpha-dropout", "aten::feature_alpha_dropout", 3, _in_training, same_memory=True),
    Rule(
        "contiguous-twice",
        before="""
            graph(%x, %f, %g):
              %c = aten::contiguous(%x, %f)
              %y = aten::contiguous(%c, %g)
              return (%y)""",
        after="""
            graph(%x, %f, %g):
              %c = aten::contiguous(%x, %f)
              return (%c)""",
        unless=_other_format,
        same_memory=True,
    ),
    itself("resolve-conj", "aten::resolve_conj", 1, _is_complex, same_memory=True),
    itself("resolve-neg", "aten::resolve_neg", 1, _is_complex, same_memory=True),
    itself("lift-fresh", "aten::lift_fresh", 1, same_memory=True),
    _before_product("linear", "x w b", "x"),
    _before_product("matmul", "x w", "x"),
    _before_product("matmul", "x w", "w"),
    _before_product("bmm", "x w", "x"),
    _before_product("bmm", "x w", "w"),
    _after_contiguous("view", 2, "reshape"),
    _after_contiguous("reshape", 2, "reshape"),
    _after_contiguous("flatten", 3, "flatten"),
)


# -------------------------------------------------------------------------------------------------------------- shapes


def _shapes_differ(m: Match) -> str | None:
    return same_shape(m["x"], m["y"])


def _slices(m: Match) -> str | None:
    """Why a slice may leave something out."""
    start, end, step = (constant_of(m[f"a{i}"]) for i in (2, 3, 4))
    if not is_int(step, 1):
        return "the step may be another than 1"
    if same_shape(m["x"], m["y"]) is None:
        return None
    if (start is None or is_int(start, 0)) and (end is None or is_int(end, INT_MAX)):
        return None
    shape, dim = shape_of(m["x"]), constant_of(m["a1"])
    if (start is None or is_int(start, 0)) and type(end) is int and shape and type(dim) is int:
        size = shape[dim] if -len(shape) <= dim < len(shape) else None
        if size is not None and end >= size:
            return None
    return "it may leave something out"


def _squeezes(m: Match) -> str | None:
    d, e, rank = constant_of(m["d"]), constant_of(m["e"]), rank_of(m["x"])
    if type(d) is int and type(e) is int:
        if d == e or (rank is not None and d % (rank + 1) == e % (rank + 1)):
            return None
    return "the dimensions may differ"


def _other_dims(m: Match) -> str | None:
    a, b, c, d = (constant_of(m[name]) for name in "abcd")
    if all(type(dim) is int for dim in (a, b, c, d)) and {a, b} == {c, d}:
        return None
    return "the dimensions may differ"


def _no_single_part(m: Match) -> str | None:
    return None if is_int(constant_of(m["n"]), 1) else same_shape(m["x"], m["y"])


def _parts(op: str) -> Rule:
    return Rule(
        f"{op}-of-one",
        before=f"""
            graph(%x, %n, %d):
              %l : Tensor[] = aten::{op}(%x, %n, %d)
              %y = prim::ListUnpack(%l)
              return (%y)""",
        after="graph(%x, %n, %d):\n  return (%x)",
        unless=_no_single_part if op == "chunk" else _shapes_differ,
    )


def _pads(m: Match) -> str | None:
    pads = constant_of(m["a1"])
    if isinstance(pads, list) and all(is_int(p, 0) for p in pads):
        return layout_matters(m["y"])
    return "it may pad or cut"


def _reshaped_twice(inner: str, inner_arity: int, outer: str, result: str) -> Rule:
    a = ", ".join(f"%a{i}" for i in range(1, inner_arity))
    a = f", {a}" if a else ""
    return Rule(
        f"{outer}-of-{inner}",
        before=f"""
            graph(%x{a}, %s):
              %v = aten::{inner}(%x{a})
              %y = aten::{outer}(%v, %s)
              return (%y)""",
        after=f"graph(%x{a}, %s):\n  %y = aten::{result}(%x, %s)\n  return (%y)",
        unless=_copied_before if inner in ("reshape", "flatten") else _is_dtype_view,
        may_copy=inner in ("reshape", "flatten"),
    )


def _copied_before(m: Match) -> str | None:
    return _is_dtype_view(m) or layout_matters(m["y"])


def _is_dtype_view(m: Match) -> str | None:
    """``aten::view`` has a form that reads the memory as another dtype."""
    for name in ("v", "y"):
        if full_name(m[name].node) == "aten::view.dtype":
            return "it reads the memory as another dtype"
    return None


SHAPES = (
    itself("expand-same", "aten::expand", 3, _shapes_differ),
    itself("expand-as-same", "aten::expand_as", 2, _shapes_differ),
    itself("broadcast-same", "aten::broadcast_to", 2, _shapes_differ),
    itself("view-same", "aten::view", 2, lambda m: _shapes_differ(m) or _types_differ(m)),
    itself("unsafe-view-same", "aten::_unsafe_view", 2, _shapes_differ),
    itself("view-as-same", "aten::view_as", 2, _shapes_differ),
    itself("reshape-same", "aten::reshape", 2, _shapes_differ),
    itself("reshape-as-same", "aten::reshape_as", 2, _shapes_differ),
    itself("flatten-same", "aten::flatten", 3, _shapes_differ),
    itself("unflatten-same", "aten::unflatten", 3, _shapes_differ),
    itself("squeeze-same", "aten::squeeze", 1, _shapes_differ),
    itself("squeeze-dim-same", "aten::squeeze", 2, _shapes_differ),
    itself("repeat-same", "aten::repeat", 2, lambda m: _shapes_differ(m) or layout_matters(m["y"])),
    itself("narrow-same", "aten::narrow", 4, _shapes_differ),
    itself("slice-all", "aten::slice", 5, _slices),
    itself("pad-nothing", "aten::pad", 4, _pads),
    itself("constant-pad-nothing", "aten::constant_pad_nd", 3, _pads),
    Rule(
        "squeeze-of-unsqueeze",
        before="""
            graph(%x, %d, %e):
              %u = aten::unsqueeze(%x, %d)
              %y = aten::squeeze(%u, %e)
              return (%y)""",
        after="graph(%x, %d, %e):\n  return (%x)",
        unless=_squeezes,
    ),
    Rule(
        "unsqueeze-of-squeeze",
        before="""
            graph(%x, %d, %e):
              %u = aten::squeeze(%x, %d)
              %y = aten::unsqueeze(%u, %e)
              return (%y)""",
        after="graph(%x, %d, %e):\n  return (%x)",
        unless=lambda m: same_shape(m["x"], m["y"]) or _squeezed_elsewhere(m),
    ),
    Rule(
        "transpose-twice",
        before="""
            graph(%x, %a, %b, %c, %d):
              %t = aten::transpose(%x, %a, %b)
              %y = aten::transpose(%t, %c, %d)
              return (%y)""",
        after="graph(%x, %a, %b, %c, %d):\n  return (%x)",
        unless=_other_dims,
    ),
    Rule(
        "t-twice",
        before="graph(%x):\n  %t = aten::t(%x)\n  %y = aten::t(%t)\n  return (%y)",
        after="graph(%x):\n  return (%x)",
    ),
    *(_parts(op) for op in ("chunk", "split", "split_with_sizes")),
    Rule(
        "cat-of-one",
        before="""
            graph(%x, %d):
              %l : Tensor[] = prim::ListConstruct(%x)
              %y = aten::cat(%l, %d)
              return (%y)""",
        after="graph(%x, %d):\n  return (%x)",
        unless=lambda m: layout_matters(m["y"]),
    ),
    Rule(
        "stack-of-one",
        before="""
            graph(%x, %d):
              %l : Tensor[] = prim::ListConstruct(%x)
              %y = aten::stack(%l, %d)
              return (%y)""",
        after="graph(%x, %d):\n  %y = aten::unsqueeze(%x, %d)\n  return (%y)",
    ),
    _reshaped_twice("view", 2, "view", "view"),
    _reshaped_twice("view", 2, "reshape", "reshape"),
    _reshaped_twice("reshape", 2, "view", "reshape"),
    _reshaped_twice("reshape", 2, "reshape", "reshape"),
    _reshaped_twice("flatten", 3, "view", "reshape"),
    _reshaped_twice("flatten", 3, "reshape", "reshape"),
    _reshaped_twice("unsqueeze", 2, "view", "view"),
    _reshaped_twice("unsqueeze", 2, "reshape", "reshape"),
    _reshaped_twice("squeeze", 2, "reshape", "reshape"),
    _reshaped_twice("squeeze", 2, "view", "view"),
)


def _squeezed_elsewhere(m: Match) -> str | None:
    """Other dimensions of one element give the same shape and the same numbers, as long as all sizes are known."""
    return None if known_shape(m["x"]) is not None else "its sizes are not known"


# ------------------------------------------------------------------------------------------------------------ numbers


def _not_a(kind: T.Type) -> Any:
    def unless(m: Match) -> str | None:
        return None if m["x"].type == kind else f"it is no {kind}"

    return unless


NUMBERS = (
    Rule(
        "len-of-size",
        before="graph(%x):\n  %s : int[] = aten::size(%x)\n  %y : int = aten::len(%s)\n  return (%y)",
        # The list may have other readers.
        after="graph(%x, %s):\n  %y : int = aten::dim(%x)\n  return (%y)",
    ),
    Rule(
        "item-of-size",
        before="""
            graph(%x, %i):
              %s : int[] = aten::size(%x)
              %y : int = aten::__getitem__(%s, %i)
              return (%y)""",
        after="graph(%x, %s, %i):\n  %y : int = aten::size(%x, %i)\n  return (%y)",
    ),
    itself("int-of-int", "aten::Int", 1, _not_a(T.INT)),
    itself("float-of-float", "aten::Float", 1, _not_a(T.FLOAT)),
    itself("bool-of-bool", "aten::Bool", 1, _not_a(T.BOOL)),
    itself("str-of-str", "aten::str", 1, _not_a(T.STR)),
    Rule(
        "not-not",
        before="""
            graph(%x : bool):
              %n : bool = aten::__not__(%x)
              %y : bool = aten::__not__(%n)
              return (%y)""",
        after="graph(%x : bool):\n  return (%x)",
    ),
    *(
        Rule(
            f"not-{name}",
            before=f"""
                graph(%a : int, %b : int):
                  %n : bool = aten::{name}(%a, %b)
                  %y : bool = aten::__not__(%n)
                  return (%y)""",
            after=f"graph(%a : int, %b : int):\n  %y : bool = aten::{other}(%a, %b)\n  return (%y)",
            # Comparisons with NaN are all false, so this is for integers only.
            unless=lambda m: None if m["a"].type == m["b"].type == T.INT else "these are no integers",
        )
        for name, other in (("eq", "ne"), ("ne", "eq"), ("lt", "ge"), ("ge", "lt"), ("gt", "le"), ("le", "gt"))
    ),
    *(
        Rule(
            f"not-{name}",
            before=f"""
                graph(%a, %b):
                  %n : bool = aten::{name}(%a, %b)
                  %y : bool = aten::__not__(%n)
                  return (%y)""",
            after=f"graph(%a, %b):\n  %y : bool = aten::{other}(%a, %b)\n  return (%y)",
        )
        for name, other in (("__is__", "__isnot__"), ("__isnot__", "__is__"))
    ),
)

peephole = rewrite_pass("peephole", (*CASTS, *COPIES, *SHAPES, *NUMBERS))
