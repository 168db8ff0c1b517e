"""Operators written out in parts compute what the operators do, and stay where their types are not known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.ir.dtypes import code_of
from gpujit.ir.parser import parse_graph
from gpujit.passes.decompose.main import DECOMPOSITIONS, decompose, decompose_usual
from gpujit.passes.decompose.products import fuse_addmm
from gpujit.support.errors import ArgumentError
from gpujit.testing import assert_same_values, check_pass, resolve_node
from tests.passes.peephole_help import check_declines, check_row, graph_text, run

_KINDS = {np.dtype(np.float32): "Float", np.dtype(np.float64): "Double", np.dtype(np.float16): "Half"}


def _type(array):
    return f"{_KINDS[array.dtype]}({', '.join(map(str, array.shape))})"


def _constants(**values):
    lines = []
    for name, value in values.items():
        if value is None:
            lines.append(f"%{name} : NoneType = prim::Constant()")
        elif isinstance(value, list):
            lines += [f"%{name}{i} : int = prim::Constant[value={n}]()" for i, n in enumerate(value)]
            lines.append(
                f"%{name} : int[] = prim::ListConstruct({', '.join(f'%{name}{i}' for i in range(len(value)))})"
            )
        else:
            kind = type(value).__name__
            text = f'"{value}"' if kind == "str" else int(value) if kind == "bool" else repr(value)
            lines.append(f"%{name} : {kind} = prim::Constant[value={text}]()")
    return "; ".join(lines) + "; "


def written_out(name, call, arrays, constants, results=1, *, rtol=1e-5):
    """The kinds of nodes left, once the operator was written out and computed the same."""
    inputs = ", ".join(f"%{n} : {_type(a)}" for n, a in arrays.items())
    op = call.partition("(")[0]
    arguments = ", ".join(f"%{a.strip()}" for a in call.partition("(")[2].rstrip(")").split(","))
    names = ", ".join(f"%y{i}" for i in range(results))
    graph = _typed(graph_text(inputs, f"{_constants(**constants)}{names} = aten::{op}({arguments}); return ({names})"))
    wanted = run(graph, *arrays.values())
    assert decompose(graph, [name]), str(graph)
    assert not decompose(graph, [name])
    kinds = {n.kind for n in graph.all_nodes()}
    assert f"aten::{op}" not in kinds
    with_tolerance(run(graph, *arrays.values()), wanted, rtol)
    return kinds


def with_tolerance(got, wanted, rtol):
    """Compare to a tolerance that is relative to the largest number as well."""
    for a, b in zip(got, wanted, strict=True) if isinstance(wanted, tuple) else [(got, wanted)]:
        assert_same_values(a, b, rtol=rtol, atol=rtol * (1 + float(np.abs(np.nan_to_num(b)).max(initial=0))))


def _typed(text):
    return parse_graph(text, resolve=resolve_node)


def _array(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


_POINTWISE = {
    "addcmul": ("addcmul(x, a, b, v)", {"v": 0.5}), "addcdiv": ("addcdiv(x, a, b, v)", {"v": 2}),
    "lerp": ("lerp(x, a, v)", {"v": 0.3}), "hardsigmoid": ("hardsigmoid(x)", {}),
    "hardswish": ("hardswish(x)", {}), "hardtanh": ("hardtanh(x, v, w)", {"v": -1, "w": 0.5}),
    "relu6": ("relu6(x)", {}), "silu": ("silu(x)", {}), "mish": ("mish(x)", {}),
    "gelu": ("gelu(x, k)", {"k": "none"}), "leaky_relu": ("leaky_relu(x, v)", {"v": 0.1}),
    "glu": ("glu(x, d)", {"d": -1}),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", _POINTWISE)
def test_element_by_element(name, dtype):
    call, constants = _POINTWISE[name]
    x = _array((3, 4), dtype) * 4
    if name != "glu":
        x[0] = [0.0, -0.0, np.inf, np.nan]
    arrays = {"x": x, "a": _array((3, 4), dtype, 1), "b": _array((3, 4), dtype, 2)}
    used = {n: a for n, a in arrays.items() if f"{n}," in call or f"{n})" in call}
    written_out(name, call, used, constants)


def test_other_arguments():
    written_out("lerp", "lerp(x, a, v)", {"x": _array(9), "a": _array(9, seed=1)}, {"v": 0.75})
    written_out("gelu", "gelu(x, k)", {"x": _array(9)}, {"k": "tanh"})
    written_out("glu", "glu(x, d)", {"x": _array((4, 3))}, {"d": 0})


@pytest.mark.parametrize("name", ["addmm", "baddbmm", "addmv"])
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (2, 0.5), (0.5, 1)])
def test_products(name, beta, alpha):
    shapes = {
        "addmm": ((5,), (3, 4), (4, 5)),
        "baddbmm": ((2, 3, 5), (2, 3, 4), (2, 4, 5)),
        "addmv": ((3,), (3, 4), (4,)),
    }
    b, x, w = (_array(s, seed=i) for i, s in enumerate(shapes[name]))
    kinds = written_out(name, f"{name}(b, x, w, beta, alpha)", {"b": b, "x": x, "w": w}, {"beta": beta, "alpha": alpha})
    assert ("aten::mul" in kinds) == (alpha != 1)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name, dim):
    x = _array((3, 5)) * 10
    x[0] = [-np.inf, 1, 2, 3, 300]
    written_out(name, f"{name}(x, d, n)", {"x": x}, {"d": dim, "n": None})
    written_out(name, f"{name}(x, d, n)", {"x": x}, {"d": dim, "n": code_of(x.dtype)})
    written_out(name, f"_{name}(x, d, h)", {"x": x}, {"d": dim, "h": False})


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("dims", [[0], [1, 2], [-1]])
@pytest.mark.parametrize("name", ["std", "var"])
def test_spread(name, dims, keep):
    x = _array((4, 3, 5))
    for unbiased in (False, True):
        written_out(name, f"{name}(x, d, u, k)", {"x": x}, {"d": dims, "u": unbiased, "k": keep})
    for correction in (0, 1):
        written_out(name, f"{name}(x, d, c, k)", {"x": x}, {"d": dims, "c": correction, "k": keep})
        constants = {"d": dims, "c": correction, "k": keep}
        written_out("var_mean", "var_mean(x, d, c, k)", {"x": x}, constants, results=2)


def test_cosine_similarity():
    x, z = _array((3, 4)), _array((3, 4), seed=1)
    x[0] = 0
    written_out("cosine_similarity", "cosine_similarity(x, z, d, e)", {"x": x, "z": z}, {"d": 1, "e": 1e-8})


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("keep", [False, True])
def test_pairwise_distance(p, keep):
    for other in ((3, 4), (4,), (1, 4)):
        arrays = {"x": _array((3, 4)), "z": _array(other, seed=1)}
        written_out("pairwise_distance", "pairwise_distance(x, z, p, e, k)", arrays, {"p": p, "e": 1e-6, "k": keep})


@pytest.mark.parametrize("affine", ["wb", "w", ""])
def test_norms_over_the_last_dimension(affine):
    x, w, b = _array((2, 3, 8)) * 3 + 5, _array(8, seed=1), _array(8, seed=2)
    arrays = {"x": x, **{n: a for n, a in (("w", w), ("b", b)) if n in affine}}
    constants = {"s": [8], "e": 1e-5, **{n: None for n in "wb" if n not in affine}}
    written_out("layer_norm", "layer_norm(x, s, w, b, e, f)", arrays, {**constants, "f": False})
    written_out("native_layer_norm", "native_layer_norm(x, s, w, b, e)", arrays, constants, results=3)
    if "b" not in affine:
        constants.pop("b")
        written_out("rms_norm", "rms_norm(x, s, w, e)", arrays, constants)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5), (3, 4, 5, 2), (3, 4, 2, 1, 3)])
def test_norms_over_channels(shape, affine):
    x = _array(shape)
    per_channel = {n: np.abs(_array(4, seed=i)) + 0.5 for i, n in enumerate(("w", "b", "m", "v"))}
    scale = {n: per_channel[n] for n in "wb"} if affine else {}
    none = {} if affine else {"w": None, "b": None}
    flags = {"t": False, "o": 0.1, "e": 1e-5, "c": True}
    written_out(
        "batch_norm",
        "batch_norm(x, w, b, m, v, t, o, e, c)",
        {"x": x, **scale, "m": per_channel["m"], "v": per_channel["v"]},
        {**none, **flags},
    )
    arrays, constants = {"x": x * 3 + 7, **scale}, {**none, **flags, "t": True, "m": None, "v": None}
    written_out("batch_norm", "batch_norm(x, w, b, m, v, t, o, e, c)", arrays, constants)
    written_out("group_norm", "group_norm(x, g, w, b, e, c)", {"x": x, **scale}, {**none, "g": 2, "e": 1e-5, "c": True})
    if len(shape) > 2:
        constants = {**none, "m": None, "v": None, "u": True, "o": 0.1, "e": 1e-5, "c": True}
        written_out("instance_norm", "instance_norm(x, w, b, m, v, u, o, e, c)", {"x": x, **scale}, constants)


@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention(scale):
    q, k, v = _array((2, 3, 5, 8)), _array((2, 3, 7, 8), seed=1), _array((2, 3, 7, 4), seed=2)
    constants = {"m": None, "p": 0.0, "c": False, "s": scale, "g": False}
    call = "scaled_dot_product_attention(q, k, v, m, p, c, s, g)"
    kinds = written_out("scaled_dot_product_attention", call, {"q": q, "k": k, "v": v}, constants)
    assert "aten::softmax" in kinds


# ------------------------------------------------------------------------------------------------------------- einsum


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_einsum(data):
    letters = "abcde"
    sizes = {c: data.draw(st.integers(1, 4)) for c in letters}
    left = "".join(data.draw(st.permutations(letters))[: data.draw(st.integers(1, 4))])
    right = "".join(data.draw(st.permutations(letters))[: data.draw(st.integers(1, 4))])
    own = {*left} ^ {*right}
    shared = sorted({*left} & {*right})
    kept = [c for c in shared if data.draw(st.booleans())]
    out = "".join(data.draw(st.permutations(sorted(own) + kept)))
    a, b = (_array([sizes[c] for c in s], np.float64, seed) for seed, s in enumerate((left, right)))
    body = (
        f'%e : str = prim::Constant[value="{left}, {right} -> {out}"](); %n : NoneType = prim::Constant();'
        "%l : Tensor[] = prim::ListConstruct(%a, %b); %y = aten::einsum(%e, %l, %n)"
    )
    graph = _typed(graph_text(f"%a : {_type(a)}, %b : {_type(b)}", body))
    wanted = run(graph, a, b)
    assert decompose(graph, ["einsum"])
    assert "aten::einsum" not in {n.kind for n in graph.all_nodes()}
    with_tolerance(run(graph, a, b), wanted, 1e-12)


@pytest.mark.parametrize("equation", ["ab,bc->a", "aa,ab->ab", "ab,bc->ac,", "ab->ba", "...a,ab->...b", "ab,bc->acc"])
def test_other_equations_stay(equation, caplog):
    body = (
        f'%e : str = prim::Constant[value="{equation}"](); %n : NoneType = prim::Constant();'
        "%l : Tensor[] = prim::ListConstruct(%a, %b); %y = aten::einsum(%e, %l, %n)"
    )
    check_declines(
        decompose_usual, "%a : Float(3, 3), %b : Float(3, 3)", body, caplog, "equation" if "." in equation else None
    )


# ----------------------------------------------------------------------------------------------------------- declines


@pytest.mark.parametrize(
    ("inputs", "body", "reason"),
    [
        ("%x : Half(3)", "%y = aten::silu(%x)", "not known to be float32"),
        ("%x : Tensor", "%y = aten::silu(%x)", "not known to be float32"),
        ("%x : Float(3, 0)", "%d : int = prim::Constant[value=1](); %n : NoneType = prim::Constant();"
         "%y = aten::softmax(%x, %d, %n)", "may have no elements"),
        ("%x : Float(3, 4)", "%d : int = prim::Constant[value=1](); %n : int = prim::Constant[value=7]();"
         "%y = aten::softmax(%x, %d, %n)", "converts to another dtype"),
        ("%x : Float(3, 4), %w : Float(3, 4)", f"{_constants(s=[3, 4], n=None, e=1e-5, f=False)}"
         "%y = aten::layer_norm(%x, %s, %w, %n, %e, %f)", "over the last dimension"),
        ("%x : Float(3, 3)", "%d : int = prim::Constant[value=1](); %y = aten::glu(%x, %d)", "known to be even"),
        ("%x : Float(3), %k : str", "%y = aten::gelu(%x, %k)", "kind is not"),
    ],
)  # fmt: skip
def test_what_is_not_known_stays(inputs, body, reason, caplog):
    check_declines(decompose_usual, inputs, body, caplog, reason)


def test_attention_with_a_mask_given_stays(caplog):
    name = "scaled_dot_product_attention"
    body = f"{_constants(p=0.0, c=False, s=None, g=False)}%y = aten::{name}(%q, %q, %q, %m, %p, %c, %s, %g)"
    inputs = "%q : Float(2, 3, 4), %m : Float(3, 3)"
    check_declines(lambda g: decompose(g, [name]), inputs, body, caplog, "finite constant")


def test_batch_norm_in_training_stays(caplog):
    start = _constants(n=None, t=True, o=0.1, e=1e-5, c=True)
    body = f"{start}%y = aten::batch_norm(%x, %n, %n, %m, %m, %t, %o, %e, %c)"
    inputs = "%x : Float(2, 3), %m : Float(3)"
    check_declines(lambda g: decompose(g, ["batch_norm"]), inputs, body, caplog, "left as it is")


def test_names_are_checked():
    with pytest.raises(ArgumentError, match="no decomposition of 'conv2d'; there are addmm"):
        decompose(_typed("graph(%x):\n  return (%x)"), ["conv2d"])
    assert set(_POINTWISE) <= set(DECOMPOSITIONS)


def test_the_text_of_one():
    check_row(
        lambda g: decompose(g, ["silu"]),
        "%x : Float(3)",
        "%y : Float(3) = aten::silu(%x)",
        "%s : Float(3) = aten::sigmoid(%x); %y : Float(3) = aten::mul(%x, %s)",
        [[_array(3)]],
    )


# --------------------------------------------------------------------------------------------------- products and sums


@pytest.mark.parametrize("product", ["mm", "matmul"])
@pytest.mark.parametrize("order", ["%p, %b", "%b, %p"])
def test_a_product_and_a_row_become_addmm(product, order):
    one = "%one : int = prim::Constant[value=1](); "
    check_row(
        fuse_addmm,
        "%x : Float(3, 4), %w : Float(4, 5), %b : Float(5)",
        f"{one}%p : Float(3, 5) = aten::{product}(%x, %w); %y : Float(3, 5) = aten::add({order}, %one)",
        f"{one}%o : int = prim::Constant[value=1](); %y : Float(3, 5) = aten::addmm(%b, %x, %w, %o, %o)",
        [[_array((3, 4)), _array((4, 5), seed=1), _array(5, seed=2)]],
    )


def test_a_linear_and_a_row_become_one():
    start = "%one : int = prim::Constant[value=1](); %n : NoneType = prim::Constant(); "
    check_row(
        fuse_addmm,
        "%x : Float(2, 3, 4), %w : Float(5, 4), %b : Float(5)",
        f"{start}%p : Float(2, 3, 5) = aten::linear(%x, %w, %n); %y : Float(2, 3, 5) = aten::add(%p, %b, %one)",
        f"{start}%o : int = prim::Constant[value=1](); %y : Float(2, 3, 5) = aten::linear(%x, %w, %b)",
        [[_array((2, 3, 4)), _array((5, 4), seed=1), _array(5, seed=2)]],
    )


@pytest.mark.parametrize(
    ("bias", "result", "reason"),
    [
        ("Float(3, 5)", "Float(3, 5)", "not known to be one row"),
        ("Float(1)", "Float(3, 5)", "not known to be one row"),
        ("Double(5)", "Double(3, 5)", "what is added"),
        ("Tensor", "Tensor", "what is added"),
    ],
)
def test_other_sums_stay(bias, result, reason, caplog):
    body = "%one : int = prim::Constant[value=1](); %p : Float(3, 5) = aten::mm(%x, %w);"
    body += f"%y : {result} = aten::add(%p, %b, %one)"
    check_declines(fuse_addmm, f"%x : Float(3, 4), %w : Float(4, 5), %b : {bias}", body, caplog, reason)


def test_a_product_read_twice_stays(caplog):
    body = "%one : int = prim::Constant[value=1](); %p : Float(3, 5) = aten::mm(%x, %w);"
    body += "%y : Float(3, 5) = aten::add(%p, %b, %one); return (%y, %p)"
    check_declines(fuse_addmm, "%x : Float(3, 4), %w : Float(4, 5), %b : Float(5)", body, caplog, "other readers")


def test_there_and_back():
    text = graph_text(
        "%x : Float(3, 4), %w : Float(4, 5), %b : Float(5)",
        "%one : int = prim::Constant[value=1](); %y : Float(3, 5) = aten::addmm(%b, %x, %w, %one, %one)",
    )
    graph = _typed(text)
    assert decompose(graph, ["addmm"]) and fuse_addmm(graph)
    assert [n.kind for n in graph.nodes if n.kind != "prim::Constant"] == ["aten::addmm"]
    check_pass(decompose_usual, text, text)
