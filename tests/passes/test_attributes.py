"""Objects below others, through attributes and containers."""

from __future__ import annotations

from typing import Any

import gpujit
from gpujit.ir.values import ScriptObject
from gpujit.passes.analysis.attributes import reachable
from tests.programs import Obj, archive, module


def _tree() -> ScriptObject:
    source = module("", "sub : __torch__.S\ntraining : bool") + "class S(Module):\n  a : List[Any]\n  b : Any\n"
    return gpujit.load(archive(source, {"sub": Obj("__torch__.S", {"a": [], "b": 1}), "training": False}))._object


def test_each_object_is_found_once():
    root = _tree()
    sub = root.get("sub")
    sub.set("a", [sub, (sub, root), {1: root}])
    assert list(map(id, reachable([root, sub]))) in ([id(root), id(sub)], [id(sub), id(root)])


def test_containers_may_hold_themselves():
    root = _tree()
    sub = root.get("sub")
    listed: list[Any] = [sub]
    mapped: dict[Any, Any] = {1: (listed,)}
    listed += [listed, (mapped, listed)]
    mapped[2] = mapped
    sub.set("a", listed)
    sub.set("b", mapped)
    assert sorted(map(id, reachable([root]))) == sorted([id(root), id(sub)])
