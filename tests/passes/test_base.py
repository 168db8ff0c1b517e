"""Passes as such: names, fuel, verification, dumps, what the log says."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gpujit.ir.graph import Graph, Node
from gpujit.ir.parser import parse_graph
from gpujit.passes.analysis.effects import resolve_node
from gpujit.passes.base import PASSES, Pass, changes_made, declined, graph_pass, may_change, spend
from gpujit.support.config import config
from gpujit.support.errors import InternalError

TEXT = "graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)\n"


def graph() -> Graph:
    made = parse_graph(TEXT, resolve=resolve_node)
    made.name = "forward"
    return made


def rename(graph: Graph) -> bool:
    """Turn relu into neg, once."""
    node = next(iter(graph.nodes))
    changed = node.kind == "aten::relu"
    node.kind, node.schema = "aten::neg", None
    return changed


def break_links(graph: Graph) -> bool:
    """Read a value of no graph."""
    next(iter(graph.nodes)).set_input(0, Node("prim::Param").add_output())
    return True


def test_a_pass_says_whether_it_changed_the_graph() -> None:
    subject = graph()
    once = Pass("once", rename)
    assert once(subject) is True and once(subject) is False


def test_a_name_is_given_once() -> None:
    made = graph_pass("test_base_named")(rename)
    try:
        assert PASSES["test_base_named"] is made and made.name == "test_base_named"
        with pytest.raises(InternalError, match="test_base_named is declared twice"):
            graph_pass("test_base_named")(rename)
    finally:
        del PASSES["test_base_named"]


def test_fuel_ends() -> None:
    start = changes_made()
    with config(pass_limit=start + 2):
        assert may_change() and may_change(uncounted=1) and not may_change(uncounted=2)
        assert Pass("once", rename)(graph())
        assert changes_made() == start + 1
        # A run that changes nothing costs nothing.
        assert not Pass("idle", lambda graph: False)(graph())
        assert changes_made() == start + 1
        spend()
        assert not may_change()
        subject = graph()
        assert not Pass("once", rename)(subject)
        assert str(subject) == TEXT
    assert may_change()


def test_a_broken_graph_is_reported_with_both_texts(tmp_path: Path) -> None:
    with config(verify=True, dump_dir=str(tmp_path)), pytest.raises(InternalError) as caught:
        Pass("breaker", break_links)(graph())
    message = str(caught.value)
    assert (
        "pass breaker left a broken graph" in message and "before breaker:" in message and "aten::relu(%x)" in message
    )
    assert sorted(p.name.partition("-")[2] for p in tmp_path.iterdir()) == ["breaker-before.ir", "breaker-broken.ir"]


def test_without_verification_nothing_is_checked() -> None:
    with config(verify=False):
        assert Pass("breaker", break_links)(graph())


def test_stages_are_printed_and_dumped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with config(print_after=("once",), dump_dir=str(tmp_path)):
        Pass("once", rename)(graph())
        Pass("other", rename)(graph())
        Pass("idle", lambda graph: False)(graph())
    shown = capsys.readouterr().err
    assert shown.startswith("after once:\n") and "aten::neg" in shown and "other" not in shown
    names = sorted(p.name for p in tmp_path.iterdir())
    assert [n.partition("-")[2] for n in names] == ["once.ir", "other.ir"]
    assert "aten::neg" in (tmp_path / names[0]).read_text()


def test_declining_is_logged_and_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    start = changes_made()
    with caplog.at_level(logging.DEBUG, "gpujit.passes"):
        declined("fold", next(iter(graph().nodes)), "its input is no constant")
    assert "fold: <%y : Tensor = aten::relu(%x)> left as it is: its input is no constant" in caplog.text
    assert changes_made() == start
