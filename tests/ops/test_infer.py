"""How types are inferred: rules, probes, guesses, the checking mode and its switch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpujit.ir.types import TENSOR, TensorType
from gpujit.ops import infer as inference
from gpujit.ops import table
from gpujit.ops.infer import infer, kind_of_rule
from gpujit.ops.infer_cases import join, type_of
from gpujit.ops.infer_check import admits, checked
from gpujit.ops.infer_probe import PROBE_LIMIT
from gpujit.ops.registry import Op, by_full_name
from gpujit.ops.rules.common import UNKNOWN, ListOf, NotKnown, Unknown, broadcast
from gpujit.support.config import Settings, config, from_environment
from gpujit.support.errors import InternalError, ShapeError

F23 = TensorType(6, (2, 3))


def entry(name: str) -> Op:
    """The entry of a full name."""
    op = by_full_name(name)
    assert op is not None
    return op


def new_op(text: str, body: Any, kind: str = "library", **options: Any) -> Op:
    """An entry that is in no table."""
    return Op(text, kind, body, half="native", **options)


def test_every_entry_says_how_its_type_is_found() -> None:
    kinds = {"rule", "data", "pointwise", "schema", "value", "probe"}
    assert {kind_of_rule(op) for op in table.registered()} <= kinds


@pytest.mark.parametrize(
    "name",
    [
        "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::bincount", "aten::one_hot",
        "aten::repeat_interleave.Tensor", "torchvision::nms", "aten::where", "aten::index.Tensor",
        "aten::_pack_padded_sequence",
    ],
)  # fmt: skip
def test_sizes_found_in_data_are_declared(name: str) -> None:
    assert entry(name).data_dependent


def test_no_rule_asks_for_arguments_that_its_operator_lacks() -> None:
    for op in table.registered():
        if op.type_rule is not None:
            inference._call_of(op)


def test_an_unknown_value_is_no_value() -> None:
    for use in (bool, int, len, iter, lambda v: v == 1, lambda v: v + 1, lambda v: 1 - v, lambda v: v < 2):
        with pytest.raises(NotKnown):
            use(UNKNOWN)


def test_broadcast_of_unknown_sizes() -> None:
    assert broadcast([(None, 1), (1, None), (5, 1)], "x") == (5, None)
    assert broadcast([(), (None,)], "x") == (None,)
    assert broadcast([(0,), (1,)], "x") == (0,)


def test_a_probe_finds_constant_and_varying_sizes() -> None:
    def body(xp: Any, x: Any) -> Any:
        return x[..., : x.shape[-1] // 2], xp.zeros((3, 1))

    op = new_op("my::halves(Tensor x) -> (Tensor, Tensor)", body)
    assert infer(op, [TensorType(6, (7, None))]) == (TensorType(6, (7, None)), TensorType(7, (3, 1)))
    assert infer(op, [TensorType(6, (7, 8))]) == (TensorType(6, (7, 4)), TensorType(7, (3, 1)))


def test_a_large_probe_keeps_sizes_it_can_name() -> None:
    seen: list[int] = []

    def body(xp: Any, x: Any) -> Any:
        seen.append(x.size)
        return xp.concatenate([x, x]).T

    op = new_op("my::twice(Tensor x) -> Tensor", body)
    assert infer(op, [TensorType(6, (100000, 5000))]) == TensorType(6, (5000, None))
    assert max(seen) <= PROBE_LIMIT


def test_operators_with_effects_are_never_probed() -> None:
    def body(xp: Any, x: Any) -> Any:
        raise AssertionError

    op = new_op("my::launch(Tensor x) -> (Tensor, int, Tensor[])", body, effects=True)
    assert repr(infer(op, [F23])) == repr((TENSOR, UNKNOWN, ListOf(TENSOR)))


def test_a_probe_that_fails_says_nothing() -> None:
    def body(xp: Any, x: Any) -> Any:
        raise RuntimeError

    assert infer(new_op("my::fails(Tensor x) -> Tensor", body), [F23]) == TENSOR


def test_matrices_of_zeros_are_not_the_only_probe() -> None:
    assert infer(entry("aten::linalg_cholesky"), [TensorType(6, (2, 3, 3))]) == TensorType(6, (2, 3, 3))


def test_unknown_ranks_and_values_leave_the_dtype() -> None:
    assert infer(entry("aten::sum.dim_IntList"), [TensorType(11), UNKNOWN]) == TensorType(4)
    assert infer(entry("aten::kron"), [TensorType(6), TensorType(6)]) == TensorType(6)
    assert infer(entry("aten::trace"), [TensorType(None, (3, 3))]).shape == ()


def test_random_state_is_left_alone() -> None:
    from gpujit.ops.families.random.random import DEFAULT

    before = DEFAULT.initial_seed(), repr(DEFAULT.__dict__) if hasattr(DEFAULT, "__dict__") else None
    for name in ("aten::rand_like", "aten::bernoulli", "aten::dropout"):
        op = entry(name)
        infer(op, [F23, *([0.5, True] if "dropout" in name else [])])
    assert before == (DEFAULT.initial_seed(), repr(DEFAULT.__dict__) if hasattr(DEFAULT, "__dict__") else None)


def test_large_powers_are_not_computed() -> None:
    assert isinstance(infer(entry("aten::pow.int"), [10, 10**9]), Unknown)
    assert infer(entry("aten::pow.int"), [2, 10]) == 1024


def test_answers_are_kept_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def rule(x: TensorType) -> list[TensorType]:
        calls.append(1)
        return [x]

    op = new_op("my::kept(Tensor x, Scalar n) -> Tensor[]", None, type_rule=rule)
    first = infer(op, [F23, 1])
    first.append(F23)
    assert infer(op, [F23, 1]) == [F23] and len(calls) == 1
    infer(op, [F23, 1.0])
    infer(op, [F23, True])
    assert len(calls) == 3
    monkeypatch.setattr(inference, "CACHE_LIMIT", 4)
    monkeypatch.setattr(inference, "_cache", type(inference._cache)())
    for n in range(10):
        infer(op, [F23, n + 7])
    assert len(inference._cache) == 4


def test_join_keeps_what_both_say() -> None:
    a, b = TensorType(6, (2, 3)), TensorType(6, (2, 4))
    assert join(a, b) == TensorType(6, (2, None))
    assert join((a, 1), (TensorType(4, (2,)), 1)) == (TensorType(), 1)
    assert join([a], [a, b]) == ListOf(TensorType(6, (2, None)))
    assert isinstance(join(1, 2), Unknown) and isinstance(join(1, True), Unknown)


def test_admits() -> None:
    x = np.zeros((2, 3), np.float32)
    assert admits(TensorType(6, (None, 3)), x) and admits(TENSOR, None) and admits(UNKNOWN, object())
    assert not admits(TensorType(6, (None, 4)), x)
    assert not admits(TensorType(7, None), x)
    assert not admits(TensorType(6, (2,)), x)
    assert admits(ListOf(TensorType(6, (None, 3))), [x, x]) and not admits([type_of(x)], [x, x])
    assert admits([2, Unknown(int)], [2, 3]) and not admits([2, 4], [2, 3])
    assert admits(float("nan"), float("nan")) and not admits(1, True)


def test_the_checking_kernel_names_what_differs() -> None:
    op = new_op("my::wrong(Tensor x) -> Tensor", None, type_rule=lambda x: x)
    with pytest.raises(InternalError, match=r"my::wrong\(Float\(2, 3\)\) returned Double\(3\), but .* Float\(2, 3\)"):
        checked(op, lambda x: np.zeros(3))(np.zeros((2, 3), np.float32))

    def refuse(x: TensorType) -> TensorType:
        raise ShapeError("no")

    op = new_op("my::refuses(Tensor x) -> Tensor", None, type_rule=refuse)
    with pytest.raises(InternalError, match="refuses the inputs: no"):
        checked(op, lambda x: x)(np.zeros(3))


def test_types_are_taken_before_the_call() -> None:
    fn = checked(entry("aten::resize_"), entry("aten::resize_").kernel(np))
    assert fn(np.zeros(6), [2, 3], None).shape == (2, 3)


def test_the_switch() -> None:
    assert from_environment({}) == Settings(check_types=False)
    assert from_environment({"GPUJIT_CHECK_TYPES": "1"}).check_types
    assert not from_environment({"GPUJIT_CHECK_TYPES": "0"}).check_types
    before = config.check_types
    with config(check_types=not before):
        assert config.check_types is not before
    assert config.check_types is before
    assert config.describe().startswith("GPUJIT_CHECK_TYPES=")
    with pytest.raises(TypeError), config(no_such_switch=True):
        pass


def test_the_switch_wraps_kernels_of_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpujit.ir.parser import parse_graph
    from gpujit.runtime import lower

    wrapped: list[str] = []

    def spy(op: Op, fn: Any) -> Any:
        wrapped.append(op.full_name)
        return fn

    monkeypatch.setattr(lower, "checked", spy)
    graph = parse_graph("graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)")
    with config(check_types=False):
        lower.Lowerer(np).graph_code(graph)
    assert not wrapped
    with config(check_types=True):
        lower.Lowerer(np).graph_code(graph)
    assert wrapped == ["aten::relu"]
