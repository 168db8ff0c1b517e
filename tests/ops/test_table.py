"""The table as a whole: what is declared, and that its schemas and their order are PyTorch's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from gpujit.ops import table
from gpujit.ops.overloads import match_schema
from gpujit.ops.registry import KINDS, add_op, by_name
from gpujit.support.errors import InternalError

OPS = list(table.registered())
# Namespaces whose operators PyTorch does not have: torchvision's, and the meanings of older files.
OWN = ("torchvision", "upgrader")


def test_every_schema_parses_and_prints_back() -> None:
    for op in OPS:
        assert op.kind in KINDS
        assert op.schema.full_name == op.full_name
        # Printing normalises defaults of broadcasting lists; what is printed says the same again.
        from gpujit.ir.schema import parse_schema

        assert parse_schema(str(op.schema)) == op.schema or str(parse_schema(str(op.schema))) == str(op.schema)


def test_every_kernel_binds_to_numpy() -> None:
    for op in OPS:
        assert callable(op.kernel(np)), op.full_name


def test_views_alias_and_writers_say_so() -> None:
    for op in OPS:
        if op.kind == "view":
            assert any(a.alias is not None for a in op.schema.arguments), op.full_name
        if op.form != "functional":
            assert op.schema.is_mutable, op.full_name


def test_an_operator_is_declared_once() -> None:
    with pytest.raises(InternalError, match=r"aten::relu is declared twice"):
        add_op(table.by_full_name("aten::relu"))  # type: ignore[arg-type]  # known to be there


@pytest.mark.torch
def test_schemas_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    theirs = {str(s).split("(", 1)[0]: str(s) for s in torch._C._jit_get_all_schemas()}
    from gpujit.ir.schema import parse_schema

    wrong = []
    for op in OPS:
        if op.name.split("::")[0] in OWN:
            continue
        text = theirs.get(op.full_name)
        if text is None:
            wrong.append(f"{op.full_name} is not an operator of PyTorch")
        elif _plain(str(op.schema)) != _plain(str(parse_schema(text))):
            wrong.append(f"{op.schema}  should be  {text}")
    assert not wrong, "\n".join(wrong)


def _plain(text: str) -> str:
    # A size may be symbolic in PyTorch's own text; here sizes are ints.
    return text.replace("SymInt", "int").replace("SymBool", "bool")


@pytest.mark.torch
def test_overloads_are_tried_in_the_order_of_pytorch() -> None:
    """Where the order differs, no call fits both overloads, so that it cannot matter."""
    torch = pytest.importorskip("torch")
    wrong = []
    for name in sorted({op.name for op in OPS}):
        if name.split("::")[0] in OWN:
            continue
        from gpujit.ir.schema import parse_schema

        order = {parse_schema(str(s)).full_name: i for i, s in enumerate(torch._C._jit_get_schemas_for_operator(name))}
        for first, second in itertools.combinations(by_name(name), 2):
            if order[first.full_name] > order[second.full_name] and (_fits(first, second) or _fits(second, first)):
                wrong.append(f"{first.full_name} comes before {second.full_name}")
    assert not wrong, "\n".join(wrong)


def _fits(op: Any, other: Any) -> bool:
    """Whether a call written for ``op`` also fits ``other``."""
    arguments = op.schema.arguments
    positional = [a.type for a in arguments if not a.kwarg_only]
    keywords = {a.name: a.type for a in arguments if a.kwarg_only and not a.has_default}
    return not isinstance(match_schema(other.schema, positional, keywords, convert=False), str)
