"""Types: both text forms, subtyping, unification."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.ir import types as T
from gpujit.ir.dtypes import SCALAR_TYPES
from gpujit.ir.parser import parse_type
from gpujit.ir.types import is_subtype, optional, unify, union

A = T.ClassType("__torch__.m.A")
A.add_attribute("x", T.INT)
COLOR = T.EnumType("__torch__.Color", T.INT, {"RED": 1})
SHAPE = T.InterfaceType("__torch__.Shape")
POINT = T.TupleType((T.INT, T.TENSOR), "__torch__.Point", ("x", "y"))
NAMED: dict[str, T.Type] = {"__torch__.m.A": A, COLOR.name: COLOR, SHAPE.name: SHAPE, "__torch__.Point": POINT}


@st.composite
def tensor_types(draw: st.DrawFn) -> T.TensorType:
    dtype = draw(st.none() | st.sampled_from([s.code for s in SCALAR_TYPES]))
    shape = draw(st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3).map(tuple))
    strides = None
    if shape and draw(st.booleans()):
        strides = tuple(draw(st.integers(0, 9)) for _ in shape)
    device = draw(st.none() | st.sampled_from(["cpu", "cuda:0", "meta"]))
    requires_grad = draw(st.none() | st.booleans())
    if dtype is None and not shape:
        # Text keeps these facts for known dtypes and sizes only.
        requires_grad = None
        shape = None if device else shape
    return T.TensorType(dtype, shape, strides, device, requires_grad)


SIMPLE = st.sampled_from([*T.SIMPLE_TYPES.values(), *NAMED.values(), T.TENSOR]) | tensor_types()


def _compose(inner: st.SearchStrategy[T.Type]) -> st.SearchStrategy[T.Type]:
    return st.one_of(
        inner.map(T.ListType),
        inner.map(optional),
        st.builds(T.DictType, st.sampled_from([T.INT, T.STR, T.TENSOR]), inner),
        st.lists(inner, max_size=3).map(lambda e: T.TupleType(tuple(e))),
        st.lists(inner, min_size=2, max_size=3).map(union),
        st.builds(T.BoxType, st.sampled_from(["Future", "RRef", "Await"]), inner),
    )


TYPES = st.recursive(SIMPLE, _compose, max_leaves=6)


@given(TYPES)
@settings(max_examples=200, deadline=None)
def test_graph_text_reads_back(t: T.Type) -> None:
    back = parse_type(str(t), NAMED)
    assert back == t
    assert str(back) == str(t)


@given(TYPES, TYPES, TYPES)
@settings(max_examples=200, deadline=None)
def test_subtyping_is_a_preorder(a: T.Type, b: T.Type, c: T.Type) -> None:
    assert is_subtype(a, a)
    assert is_subtype(a, T.ANY)
    assert is_subtype(a, optional(a))
    if is_subtype(a, b) and is_subtype(b, c):
        assert is_subtype(a, c)


@given(st.lists(TYPES, min_size=2, max_size=4))
@settings(max_examples=100, deadline=None)
def test_union_holds_its_members_and_subtypes_chain(members: list[T.Type]) -> None:
    whole = union(members)
    assert all(is_subtype(m, whole) for m in members)
    assert union([whole, *members]) == whole
    # Chains that random triples seldom form.
    for m in members:
        assert is_subtype(m, optional(whole))


@given(TYPES, TYPES)
@settings(max_examples=100, deadline=None)
def test_unify_gives_an_upper_bound(a: T.Type, b: T.Type) -> None:
    both = unify(a, b)
    if both is not None and not isinstance(both, T.ListType):
        assert is_subtype(a, both)
        assert is_subtype(b, both)
    assert unify(a, b, default_to_union=True) is not None


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (T.INT, T.NUMBER, True),
        (T.BOOL, T.NUMBER, False),
        (T.BOOL, T.INT, False),
        (T.INT, T.FLOAT, False),
        (T.NONE, optional(T.INT), True),
        (optional(T.INT), T.INT, False),
        (optional(T.INT), optional(T.NUMBER), True),
        (T.ListType(T.INT), T.ListType(T.NUMBER), False),
        (T.ListType(T.INT), T.ANY_LIST, True),
        (T.ListType(T.TensorType(6)), T.ListType(T.TENSOR), True),
        (T.TupleType((T.INT,)), T.TupleType((T.NUMBER,)), True),
        (POINT, T.TupleType((T.INT, T.TENSOR)), True),
        (T.TupleType((T.INT, T.TENSOR)), POINT, False),
        (T.TensorType(6, (2, 3)), T.TensorType(6, (2, None)), True),
        (T.TensorType(6, (2, None)), T.TensorType(6, (2, 3)), False),
        (T.TensorType(6), T.TensorType(7), False),
        (T.DictType(T.STR, T.INT), T.DictType(T.STR, T.NUMBER), False),
        (T.future(T.INT), T.future(T.NUMBER), True),
        (COLOR, T.ANY_ENUM, True),
        (A, T.ANY_CLASS, True),
        (union([T.INT, T.STR]), union([T.STR, T.INT, T.FLOAT]), True),
    ],
)
def test_subtyping(a: T.Type, b: T.Type, expected: bool) -> None:
    assert is_subtype(a, b) is expected


@pytest.mark.parametrize(
    ("t", "graph_text", "python_text"),
    [
        (optional(T.TENSOR), "Tensor?", "Optional[Tensor]"),
        (T.ListType(optional(T.TENSOR)), "Tensor?[]", "List[Optional[Tensor]]"),
        (optional(T.ListType(T.INT)), "int[]?", "Optional[List[int]]"),
        (T.DictType(T.STR, T.ListType(T.INT)), "Dict(str, int[])", "Dict[str, List[int]]"),
        (T.TupleType(()), "()", "Tuple[()]"),
        (T.TupleType((T.INT, T.STR)), "(int, str)", "Tuple[int, str]"),
        (T.NUMBER, "Scalar", "number"),
        (T.future(T.TENSOR), "Future(Tensor)", "Future[Tensor]"),
        (union([T.INT, T.STR]), "Union[int, str]", "Union[int, str]"),
        (COLOR, "Enum<__torch__.Color>", "__torch__.Color"),
        (SHAPE, "InterfaceType<__torch__.Shape>", "__torch__.Shape"),
        (POINT, "__torch__.Point", "__torch__.Point"),
        (
            T.TensorType(6, (2, 3), (3, 1), "cpu", False),
            "Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu)",
            "Tensor",
        ),
        (T.TensorType(5, (None, 3)), "Half(*, 3)", "Tensor"),
        (T.TensorType(4, ()), "Long()", "Tensor"),
        (T.TensorType(4, (), None, "cpu"), "Long(device=cpu)", "Tensor"),
        (T.TensorType(4, None, None, "cpu"), "Long(..., device=cpu)", "Tensor"),
        (T.TensorType(device="cpu"), "Tensor(device=cpu)", "Tensor"),
    ],
)
def test_both_text_forms(t: T.Type, graph_text: str, python_text: str) -> None:
    assert (str(t), t.annotation()) == (graph_text, python_text)
    assert parse_type(graph_text, NAMED) == t


def test_unify_of_branches() -> None:
    assert unify(T.INT, T.NONE) == optional(T.INT)
    assert unify(T.TensorType(6), T.TensorType(7)) == T.TENSOR
    assert unify(T.INT, T.STR) is None
    assert unify(T.INT, T.STR, default_to_union=True) == union([T.STR, T.INT])
    assert unify(T.TupleType((T.INT, T.NONE)), T.TupleType((T.INT, T.STR))) == T.TupleType((T.INT, optional(T.STR)))


def test_type_variables_are_replaced() -> None:
    t = T.VarType("t")
    assert T.substitute(T.DictType(T.STR, T.ListType(t)), {"t": T.INT}) == T.DictType(T.STR, T.ListType(T.INT))
    assert T.ListType(t).has_var
    assert not T.ListType(T.INT).has_var
    assert [str(p) for p in T.walk(T.TupleType((T.INT, T.ListType(T.STR))))] == ["(int, str[])", "int", "str[]", "str"]
