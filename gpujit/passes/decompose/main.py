"""Composite operators written out in simple ones, as text rules by name, and matrix products joined with what is added.

A fuser sees through element-by-element operators and reductions. What an operator does in one piece (norms, softmax,
attention) it gets as parts of those kinds, if it asks for it: ``decompose(graph, names)``.

Results agree with the operators' own to rounding. Half-precision tensors are left alone by all but the products: an
operator computes them in float32, its parts would be rounded one by one.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import FLOAT32, FLOAT64
from gpujit.ir.graph import Graph, Value
from gpujit.passes.base import graph_pass
from gpujit.passes.decompose.einsum import write_out_einsum
from gpujit.passes.decompose.moves import write_out_moves
from gpujit.passes.decompose.norms import BATCH_STATISTICS, NORMS
from gpujit.passes.decompose.products import PRODUCTS
from gpujit.passes.decompose.rules import equals, has_elements, is_none, is_number, parts, wide
from gpujit.passes.peephole.facts import constant_of, known_shape, number_of, shape_of
from gpujit.passes.rewrite import Match, Rule, apply_rules
from gpujit.support.errors import ArgumentError

# -------------------------------------------------------------------------------------------------- element by element

_CLAMP = "three = 3\n zero = 0\n six = 6\n one = 1\n s = add(x, three, one)\n c = clamp(s, zero, six)\n n = 6."
_SQRT_HALF, _SQRT_2_OVER_PI = math.sqrt(0.5), math.sqrt(2 / math.pi)

POINTWISE: dict[str, tuple[Rule, ...]] = {
    "addcmul": (parts("addcmul", "x a b value", "p = mul(a, b)\n y = add(x, p, value)", wide("x", "a", "b")),),
    "addcdiv": (parts("addcdiv", "x a b value", "q = div(a, b)\n y = add(x, q, value)", wide("x", "a", "b")),),
    # Computed from the nearer end, as the operator does.
    "lerp": (
        parts(
            "lerp.Scalar",
            "x end weight",
            "one = 1\n d = sub(end, x, one)\n y = add(x, d, weight)",
            wide("x", "end"),
            lambda m: None if _weight(m) < 0.5 else "the weight is not known to be less than a half",
        ),
        parts(
            "lerp.Scalar",
            "x end weight",
            "one = 1\n f = 1.\n d = sub(end, x, one)\n r = sub:float(f, weight)\n y = sub(end, d, r)",
            wide("x", "end"),
            lambda m: None if m["weight"].type == T.FLOAT and _weight(m) >= 0.5 else "the weight is not known",
        ),
    ),
    "hardsigmoid": (parts("hardsigmoid", "x", f"{_CLAMP}\n y = div(c, n)", wide("x")),),
    "hardswish": (parts("hardswish", "x", f"{_CLAMP}\n p = mul(x, c)\n y = div(p, n)", wide("x")),),
    "hardtanh": (parts("hardtanh", "x low high", "y = clamp(x, low, high)", wide("x"), is_number("low", "high")),),
    "relu6": (parts("relu6", "x", "low = 0\n high = 6\n y = clamp(x, low, high)", wide("x")),),
    "silu": (parts("silu", "x", "s = sigmoid(x)\n y = mul(x, s)", wide("x")),),
    "mish": (
        parts("mish", "x", "one = 1\n t = 20\n s = softplus(x, one, t)\n h = tanh(s)\n y = mul(x, h)", wide("x")),
    ),
    "gelu": (
        parts(
            "gelu",
            "x kind",
            f"k = {_SQRT_HALF}\n one = 1\n half = 0.5\n s = mul(x, k)\n e = erf(s)\n u = add(e, one, one)\n"
            "h = mul(x, half)\n y = mul(h, u)",
            wide("x"),
            equals("kind", "none"),
        ),
        parts(
            "gelu",
            "x kind",
            f"k = {_SQRT_2_OVER_PI}\n c = 0.044715\n one = 1\n half = 0.5\n q = mul(x, x)\n b = mul(q, x)\n"
            "d = mul(b, c)\n i = add(x, d, one)\n j = mul(i, k)\n t = tanh(j)\n u = add(t, one, one)\n"
            "h = mul(x, half)\n y = mul(h, u)",
            wide("x"),
            equals("kind", "tanh"),
            name="gelu-tanh",
        ),
    ),
    "leaky_relu": (
        parts(
            "leaky_relu",
            "x slope",
            "zero = 0\n g = gt(x, zero)\n s = mul(x, slope)\n y = where(g, x, s)",
            wide("x"),
            is_number("slope"),
        ),
    ),
    "glu": (
        parts(
            "glu",
            "x dim",
            "two = 2\n l = chunk:Tensor[](x, two, dim)\n a, b = unpack(l)\n s = sigmoid(b)\n y = mul(a, s)",
            wide("x"),
            lambda m: _odd(m["x"], m["dim"]),
        ),
    ),
}


def _weight(m: Match) -> float:
    number = number_of(m["weight"])
    return float(number) if type(number) in (int, float) else math.nan


def _odd(x: Value, dim: Value) -> str | None:
    """The operator refuses a dimension that has no two equal halves."""
    shape, d = shape_of(x), constant_of(dim)
    if shape and type(d) is int and -len(shape) <= d < len(shape):
        size = shape[d]
        if size is not None and size % 2 == 0 and size:
            return None
    return "the size is not known to be even"


# ---------------------------------------------------------------------------------------------------------- reductions

_SHIFTED = "none = None\n keep = True\n one = 1\n d = list(dim)\n t = amax(x, d, keep)\n z = sub(x, t, one)\n"
_EXP = f"{_SHIFTED} e = exp(z)\n s = sum(e, d, keep, none)\n"


def _same_dtype_asked(m: Match) -> str | None:
    asked = constant_of(m["dtype"])
    x = m["x"].type
    if asked is None or (isinstance(x, T.TensorType) and type(asked) is int and asked == x.dtype):
        return None
    return "it converts to another dtype"


def _softmaxes(op: str, lines: str) -> tuple[Rule, ...]:
    return (
        parts(f"{op}.int", "x dim dtype", lines, wide("x"), has_elements("x"), _same_dtype_asked),
        parts(f"_{op}", "x dim half", lines, wide("x"), has_elements("x")),
    )


_SPREAD = (
    "none = None\n keep = True\n one = 1\n m = mean(x, dims, keep, none)\n c = sub(x, m, one)\n q = mul(c, c)\n"
    "k = mean(x, dims, keepdim, none)\n n = numel:int(x)\n r = numel:int(k)\n i = floordiv:int(n, r)\n"
    "f = sub:int(i, correction)\n t = sum(q, dims, keepdim, none)\n v = div(t, f)\n"
)


def _spread(root: bool) -> tuple[Rule, ...]:
    """``var`` and ``std``: deviations from the mean, squared and added, through the number of elements."""
    name, last = ("std", "y = sqrt(v)") if root else ("var", "y = mul(v, one)")
    ends = (wide("x"), has_elements("x"), lambda m: _dims_fault(m["dims"]))
    body = _SPREAD.replace("v = div(t, f)", "y = div(t, f)") if not root else f"{_SPREAD}{last}"

    def fixed(correction: int) -> str:
        return f"correction = {correction}\n{body}"

    return (
        parts(f"{name}.dim", "x dims unbiased keepdim", fixed(1), *ends, equals("unbiased", True)),
        parts(f"{name}.dim", "x dims unbiased keepdim", fixed(0), *ends, equals("unbiased", False)),
        parts(f"{name}.correction", "x dims correction keepdim", body, *ends, equals("correction", 0, 1), _enough),
    )


def _dims_fault(dims: Value) -> str | None:
    listed = constant_of(dims)
    if isinstance(listed, list) and listed and all(type(d) is int for d in listed):
        return None
    return "the dimensions are not known"


def _enough(m: Match) -> str | None:
    return None if m["correction"].type == T.INT else "the correction is no int"


REDUCTIONS: dict[str, tuple[Rule, ...]] = {
    "softmax": _softmaxes("softmax", f"{_EXP} y = div(e, s)"),
    "log_softmax": _softmaxes("log_softmax", f"{_EXP} l = log(s)\n y = sub(z, l, one)"),
    "std": _spread(True),
    "var": _spread(False),
    "var_mean": (
        parts(
            "var_mean.correction",
            "x dims correction keepdim",
            f"{_SPREAD.replace('v = div', 'y = div')} u = mean(x, dims, keepdim, none)",
            wide("x"),
            has_elements("x"),
            lambda m: _dims_fault(m["dims"]),
            equals("correction", 0, 1),
            _enough,
            results="y u",
        ),
    ),
    "cosine_similarity": (
        parts(
            "cosine_similarity",
            "x z dim eps",
            "none = None\n keep = True\n no = False\n d = list(dim)\n a = mul(x, x)\n b = sum(a, d, keep, none)\n"
            "c = sqrt(b)\n e = clamp_min(c, eps)\n f = div(x, e)\n g = mul(z, z)\n h = sum(g, d, keep, none)\n"
            "i = sqrt(h)\n j = clamp_min(i, eps)\n k = div(z, j)\n l = mul(f, k)\n y = sum(l, d, no, none)",
            wide("x", "z"),
            lambda m: None if known_shape(m["x"]) == known_shape(m["z"]) is not None else "the shapes may differ",
        ),
    ),
    "pairwise_distance": (
        parts(
            "pairwise_distance",
            "x z p eps keep",
            "one = 1\n last = -1\n none = None\n d = list(last)\n a = sub(x, z, one)\n b = add(a, eps, one)\n"
            "y = linalg_vector_norm(b, p, d, keep, none)",
            wide("x", "z"),
            is_number("p", "eps"),
            lambda m: None if known_shape(m["x"]) and known_shape(m["z"]) else "there may be no dimension",
        ),
    ),
}


# ----------------------------------------------------------------------------------------------------------- attention


def _mask_without_infinity(m: Match) -> str | None:
    """The operator gives zeros for a row whose keys are all hidden, softmax would give NaN."""
    mask = constant_of(m["mask"])
    if isinstance(mask, np.ndarray) and mask.dtype in (FLOAT32, FLOAT64) and bool(np.isfinite(mask).all()):
        return None
    return "the mask is not known to be a finite constant"


def _attention(scale: bool, mask: bool) -> Rule:
    factor = "" if scale else "e = size:int(q, m1)\n t = sqrt:float(e)\n f = 1.\n scale = div:float(f, t)\n"
    scores = "s = matmul(x, t0)\n a = add(s, mask, one)" if mask else "a = matmul(x, t0)"
    return parts(
        "scaled_dot_product_attention",
        "q k v mask p causal given gqa",
        f"m1 = -1\n m2 = -2\n one = 1\n none = None\n {factor.replace('scale', 'given2')}"
        f"t0 = transpose(k, m2, m1)\n x = mul(q, {'given' if scale else 'given2'})\n {scores}\n"
        "w = softmax(a, m1, none)\n y = matmul(w, v)",
        wide("q", "k", "v"),
        has_elements("q"),
        is_number("given") if scale else is_none("given"),
        _mask_without_infinity if mask else is_none("mask"),
        equals("p", 0.0),
        equals("causal", False),
        equals("gqa", False),
    )


ATTENTION: dict[str, tuple[Rule, ...]] = {
    "scaled_dot_product_attention": tuple(_attention(s, m) for s in (True, False) for m in (True, False)),
}

# Rules for each operator that can be written out; ``einsum`` is done by a function.
DECOMPOSITIONS: dict[str, tuple[Rule, ...]] = {**PRODUCTS, **POINTWISE, **REDUCTIONS, **NORMS, **ATTENTION}
EINSUM = "einsum"
_FUSED_IN_PARTS = (
    *DECOMPOSITIONS["glu"],
    *DECOMPOSITIONS["cosine_similarity"],
    *DECOMPOSITIONS["pairwise_distance"],
    *BATCH_STATISTICS,
)
# Written out by the pass: what runs no better in one piece once its parts can be fused with their neighbours.
USUAL = (*POINTWISE, "softmax", "log_softmax", "layer_norm", "rms_norm", "group_norm", "instance_norm", EINSUM)


def decompose(graph: Graph, names: Collection[str]) -> bool:
    """Write out the operators of these names (``softmax`` means ``aten::softmax``) where types allow.

    Returns whether the graph changed. Raises ArgumentError for a name that has no decomposition.
    """
    unknown = [name for name in names if name not in DECOMPOSITIONS and name != EINSUM]
    if unknown:
        raise ArgumentError(
            f"decompose: there is no decomposition of {unknown[0]!r}; there are {', '.join([*DECOMPOSITIONS, EINSUM])}"
        )
    rules = [rule for name in names if name != EINSUM for rule in DECOMPOSITIONS[name]]
    changed = apply_rules("decompose", graph, rules) if rules else False
    return (EINSUM in names and write_out_einsum(graph)) or changed


@graph_pass("decompose")
def decompose_usual(graph: Graph) -> bool:
    """Write out the operators named in ``USUAL``."""
    return decompose(graph, USUAL)


@graph_pass("decompose_moves")
def decompose_moves(graph: Graph) -> bool:
    """Write out what is views and little else (``channel_shuffle``, ``glu``) and what only its parts are fused of."""
    changed = write_out_moves(graph)
    return apply_rules("decompose", graph, _FUSED_IN_PARTS) or changed
