# ruff: noqa: E501  # schemas are one line each
"""Operator schemas: text to data and back."""

from __future__ import annotations

import pytest

from gpujit.ir import types as T
from gpujit.ir.schema import float_text, format_default, operator_name, parse_schema
from gpujit.support.errors import SchemaError

# Every feature of the notation, as it prints.
TEXTS = """
aten::relu(Tensor self) -> Tensor
aten::relu_(Tensor(a!) self) -> Tensor(a!)
aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)
aten::add.int(int a, int b) -> int
aten::add.t(t[] a, t[] b) -> t[]
aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor
aten::view(Tensor(a) self, int[] size) -> Tensor(a)
aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)
aten::max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=[0, 0], int[2] dilation=[1, 1], bool ceil_mode=False) -> Tensor
aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=[1, 1], int[2] padding=[0, 0], int[2] dilation=[1, 1], int groups=1) -> Tensor
aten::conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=[1, 1], str padding="valid", int[2] dilation=[1, 1], int groups=1) -> Tensor
aten::batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor
aten::split.Tensor(Tensor(a -> *) self, int split_size, int dim=0) -> Tensor(a)[]
aten::chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]
aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]
aten::append.t(t[](a!) self, t(c -> *) el) -> t[](a!)
aten::__getitem__.t(t[](a) list, int idx) -> t(*)
aten::__getitem__.Dict_str(Dict(str, t) self, str key) -> t(*)
aten::_set_item.str(Dict(str, t)(a!) l, str(b -> *) idx, t(c -> *) v) -> ()
aten::keys.str(Dict(str, t) self) -> str[](*)
aten::items.str(Dict(str, t) self) -> ((str, t)[])
aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
aten::max.dim_max(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) max, Tensor(b!) max_values) -> (Tensor(a!) values, Tensor(b!) indices)
aten::lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)
aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor
aten::index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!)
aten::gelu(Tensor self, *, str approximate="none") -> Tensor
aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor
aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor
aten::upsample_nearest2d.vec(Tensor input, int[]? output_size, float[]? scale_factors) -> Tensor
aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor
aten::zeros(int[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor
aten::contiguous(Tensor(a) self, *, MemoryFormat memory_format=0) -> Tensor(a)
aten::to.dtype(Tensor(a) self, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)
aten::nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor
aten::normal.float_float(float mean, float std, int[] size, *, Generator? generator=None) -> Tensor
aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)
aten::reshape_symint(Tensor self, SymInt[2] size) -> Tensor
aten::warn(str message, int stacklevel=2) -> ()
aten::format(str self, ...) -> str
aten::Float.str(str a) -> float
aten::_unwrap_optional(t(a)? optional) -> t(a)
aten::wait(Future(t) self) -> t
aten::div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor
aten::fill.inf(Tensor self, float value=inf) -> Tensor
aten::fill.low(Tensor self, float value=-1.5) -> Tensor
aten::fill.int(Tensor self, int value=-1) -> Tensor
aten::any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor
aten::values(Dict(int, Tensor[]) self) -> Tensor[][]
aten::complex_fill(Tensor self, complex value) -> Tensor
aten::text(str a="x\\n\\"y\\\\") -> str
prim::Print(...) -> ()
prim::TupleUnpack(Any tup) -> ...
prim::If(bool cond) -> ...
prim::isinstance(Any to_check) -> bool
prim::device(Tensor a) -> Device
prim::unchecked_cast(t x) -> t
prim::IfThenElse(bool cond, Any(a) x, Any(b) y) -> Any(a|b)
prim::rpc(RRef(t) self, AnyListType l, AnyTupleType u, AnyEnumType e) -> RRef(t)
quantized::linear(Tensor X, __torch__.torch.classes.quantized.LinearPackedParamsBase W_prepack, float Y_scale_i, int Y_zero_point_i) -> Tensor Y
""".strip().split("\n")  # fmt: skip


@pytest.mark.parametrize("text", TEXTS, ids=lambda t: operator_name(t)[0] + "." + operator_name(t)[1])
def test_text_survives(text: str) -> None:
    schema = parse_schema(text)
    assert str(schema) == text
    assert operator_name(text) == (schema.name, schema.overload)


def test_broadcasting_list_takes_a_lone_number() -> None:
    schema = parse_schema("aten::pool(Tensor self, int[2] stride=1, float eps=1) -> Tensor")
    stride, eps = schema.arguments[1:]
    assert (stride.default, stride.length, stride.type) == ([1, 1], 2, T.ListType(T.INT))
    assert (eps.default, type(eps.default)) == (1.0, float)


def test_alias_marks() -> None:
    schema = parse_schema("aten::append.t(t[](a!) self, t(c -> *) el) -> t[](a!)")
    assert schema.is_mutable
    assert [a.is_write for a in schema.arguments] == [True, False]
    assert schema.arguments[1].alias is not None
    assert schema.arguments[1].alias.after == {"*"}
    split = parse_schema("aten::split(Tensor(a -> *) self, int n) -> Tensor(a)[]")
    assert split.returns[0].alias is None
    assert split.returns[0].element_alias is not None
    assert not split.is_mutable


def test_arguments_by_name() -> None:
    schema = parse_schema("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor")
    assert schema.index_of("alpha") == 2
    assert schema.full_name == "aten::add.Tensor"
    assert [a.kwarg_only for a in schema.arguments] == [False, False, True]
    with pytest.raises(KeyError):
        schema.index_of("beta")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("aten::f(Tensor x", "expected"),
        ("aten::f(Tensor x) Tensor", "expected '->'"),
        ("aten::f(Tensr x) -> Tensor", "unknown type 'Tensr'"),
        ("aten::f(int x=) -> Tensor", "expected a default value"),
        ("aten::f(int x) -> Tensor junk more", "expected the end"),
        ("aten::f(int x;) -> Tensor", "cannot read"),
        ('aten::f(str x="a\nb") -> Tensor', "expected a string"),
        ("(int x) -> int", "expected a name"),
    ],
)
def test_faults_are_named(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message.replace("(", r"\(")):
        parse_schema(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1."), (0.1, "0.10000000000000001"), (-0.0, "-0."), (1e-30, "1.0000000000000001e-30"), (1e17, "1e+17"),
        (float("inf"), "inf"), (float("-inf"), "-inf"), (float("nan"), "nan"),
    ],
)  # fmt: skip
def test_floats_print_as_torch_prints_them(value: float, text: str) -> None:
    assert float_text(value) == text


def test_defaults_print() -> None:
    assert format_default([1, 2.0, None, True, "a\n"]) == '[1, 2., None, True, "a\\n"]'


@pytest.mark.torch
def test_all_schemas_of_torch_are_stable() -> None:
    torch = pytest.importorskip("torch")
    for schema in torch._C._jit_get_all_schemas():
        if "PyObject" in str(schema):
            continue
        parsed = parse_schema(str(schema))
        assert parse_schema(str(parsed)) == parsed
        assert len(parsed.arguments) == len(schema.arguments)
        assert [a.name for a in parsed.arguments] == [a.name for a in schema.arguments]
