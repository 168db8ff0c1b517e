"""Specialisation of graphs that read and write attributes, make objects, and start forks."""

from __future__ import annotations

import copy

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.values import EnumValue, ScriptObject
from gpujit.ir.verify import verify
from gpujit.passes.specialise.main import key_of, specialise
from gpujit.testing import assert_same_values
from tests.passes.random_graphs import run_graph
from tests.passes.specialise_help import check, f32, kinds, read

# ---------------------------------------------------------------------------------------------- modules and their state


def module_type() -> T.ClassType:
    t = T.ClassType("__torch__.M", is_module=True)
    for name, declared in (
        ("weight", T.TENSOR), ("count", T.INT), ("state", T.TENSOR), ("sizes", T.ListType(T.INT)), ("steps", T.TENSOR),
    ):  # fmt: skip
        t.add_attribute(name, declared)
    return t


COUNTER = """
    graph(%self : __torch__.M, %x : Tensor):
      %0 : int = prim::Constant[value=0]()
      %1 : int = prim::Constant[value=1]()
      %none : NoneType = prim::Constant()
      %count : int = prim::GetAttr[name="count"](%self)
      %fresh : bool = aten::eq(%count, %0)
      %state : Tensor = prim::If(%fresh)
        block0():
          %z : Tensor = aten::zeros_like(%x, %none, %none, %none, %none, %none)
           = prim::SetAttr[name="state"](%self, %z)
          -> (%z)
        block1():
          %s : Tensor = prim::GetAttr[name="state"](%self)
          -> (%s)
      %y : Tensor = aten::add(%state, %x, %1)
       = prim::SetAttr[name="state"](%self, %y)
      %next : int = aten::add(%count, %1)
       = prim::SetAttr[name="count"](%self, %next)
      %again : int = prim::GetAttr[name="count"](%self)
      %w : Tensor = prim::GetAttr[name="weight"](%self)
      %out : Tensor = aten::mul(%y, %w)
      return (%out, %again)"""


def counter(count: int = 0) -> tuple[dict[str, T.Type], ScriptObject]:
    t = module_type()
    return {"__torch__.M": t}, ScriptObject(t, [f32(3), count, f32(3), [1, 2], np.array(2)])


def test_attributes_decide_now_and_guards_say_so():
    types, module = counter()
    graph = read(COUNTER, types)
    x = f32(3)
    found = specialise(graph, key_of(graph, [module, x]))
    verify(found.graph)
    assert not found.left
    assert [str(g) for g in found.guards] == [
        "input x is float32[3]", "self.count is 0", "self.weight is float32[3]",
    ]  # fmt: skip
    assert found.check([x], module) is None and found.check([module, x]) is None
    other = copy.deepcopy(module)
    other.type = module.type
    got = run_graph(found.graph, module, x)
    assert_same_values(got, run_graph(graph, other, x))
    assert_same_values(module.slots, other.slots)
    # The state moved on, so the graph serves no more.
    assert found.check([x], module) == "self.count is 1, the graph was specialised for 0"
    assert found.check([f32(4)], module) == "input x is float32[4], the graph was specialised for float32[3]"
    second = specialise(graph, key_of(graph, [module, x]))
    assert "self.state is float32[3]" in [str(g) for g in second.guards]
    assert_same_values(run_graph(second.graph, module, x), run_graph(graph, other, x))
    assert_same_values(module.slots, other.slots)


def test_writes_stay_in_order_and_reads_see_them():
    types, module = counter()
    graph = read(COUNTER, types)
    found = specialise(graph, key_of(graph, [module, f32(3)]))
    names = [node.attributes["name"] for node in found.graph.all_nodes() if node.kind == "prim::SetAttr"]
    assert names == ["state", "state", "count"]
    assert [n.attributes["name"] for n in found.graph.all_nodes() if n.kind == "prim::GetAttr"] == ["weight"]
    assert found.graph.outputs[1].constant() == 1


def test_an_attribute_written_in_one_branch_on_data_is_read_again():
    types, module = counter()
    graph = read(
        """
        graph(%self : __torch__.M, %x : Tensor):
          %7 : int = prim::Constant[value=7]()
          %before : int = prim::GetAttr[name="count"](%self)
          %c : bool = aten::is_nonzero(%x)
           = prim::If(%c)
            block0():
               = prim::SetAttr[name="count"](%self, %7)
              -> ()
            block1():
              -> ()
          %after : int = prim::GetAttr[name="count"](%self)
          return (%before, %after)""",
        types,
    )
    found = specialise(graph, key_of(graph, [module, np.array(1.0)]))
    verify(found.graph)
    assert run_graph(found.graph, copy.copy(module), np.array(0.0)) == (0, 0)
    assert run_graph(found.graph, module, np.array(1.0)) == (0, 7)


def test_an_attribute_written_in_a_loop_on_data_is_read_each_time():
    types, module = counter()
    text = """
        graph(%self : __torch__.M, %n : Tensor):
          %1 : int = prim::Constant[value=1]()
          %true : bool = prim::Constant[value=1]()
          %before : int = prim::GetAttr[name="count"](%self)
          %m : int = aten::Int(%n)
           = prim::Loop(%m, %true)
            block0(%i : int):
              %now : int = prim::GetAttr[name="count"](%self)
              %next : int = aten::add(%now, %1)
               = prim::SetAttr[name="count"](%self, %next)
              -> (%true)
          %after : int = prim::GetAttr[name="count"](%self)
          return (%before, %after)"""
    graph = read(text, types)
    found = specialise(graph, key_of(graph, [module, np.array(3)]))
    verify(found.graph)
    assert run_graph(found.graph, module, np.array(4)) == (0, 4)


def test_lists_in_attributes_are_known_and_changed_where_they_are():
    types, module = counter()
    graph = read(
        """
        graph(%self : __torch__.M, %x : Tensor):
          %5 : int = prim::Constant[value=5]()
          %list : int[] = prim::GetAttr[name="sizes"](%self)
          %same : int[] = aten::append(%list, %5)
          %n : int = aten::len(%list)
          return (%n)""",
        types,
    )
    found = specialise(graph, key_of(graph, [module, f32(1)]))
    assert "self.sizes is [1, 2]" in [str(g) for g in found.guards]
    assert run_graph(found.graph, module, f32(1)) == 3
    assert module.get("sizes") == [1, 2, 5]
    assert "self.sizes is [1, 2, 5]" in str(found.check([f32(1)], module))


def test_numbers_in_an_attribute_are_guarded_only_when_they_decide():
    types, module = counter()
    text = """
        graph(%self : __torch__.M, %x : Tensor):
          %1 : int = prim::Constant[value=1]()
          %steps : Tensor = prim::GetAttr[name="steps"](%self)
          %more : Tensor = aten::add(%steps, %x, %1)
          {}
          return (%more)"""
    graph = read(text.format(""), types)
    found = specialise(graph, key_of(graph, [module, np.array(1)]))
    assert [str(g) for g in found.guards] == ["input x is int64[]", "self.steps is int64[]"]
    deciding = """%n : int = aten::Int(%steps)
          %list : int[] = prim::ListConstruct(%n, %n)
          %none : NoneType = prim::Constant()
          %z : Tensor = aten::zeros(%list, %none, %none, %none, %none)
          %sum : Tensor = aten::add_(%z, %more, %1)"""
    graph = read(text.format(deciding), types)
    found = specialise(graph, key_of(graph, [module, np.array(1)]))
    assert "self.steps is int64 2" in [str(g) for g in found.guards]
    module.set("steps", np.array(3))
    assert found.check([np.array(1)], module) == "self.steps is int64 3, the graph was specialised for int64 2"


def test_of_a_container_that_changes_too_often_its_kind_alone_is_assumed():
    types, module = counter()
    graph = read(
        """
        graph(%self : __torch__.M, %x : Tensor):
          %5 : int = prim::Constant[value=5]()
          %list : int[] = prim::GetAttr[name="sizes"](%self)
          %same : int[] = aten::append(%list, %5)
          %again : int[] = prim::GetAttr[name="sizes"](%self)
          %n : int = aten::len(%again)
          return (%n)""",
        types,
    )
    found = specialise(graph, key_of(graph, [module, f32(1)]), volatile=["self.sizes"])
    assert "self.sizes is a list" in [str(g) for g in found.guards]
    for n in range(3, 8):
        assert found.check([f32(1)], module) is None
        assert run_graph(found.graph, module, f32(1)) == n
    assert module.get("sizes") == [1, 2, 5, 5, 5, 5, 5]


def test_containers_are_told_apart_where_one_is_changed():
    t = T.ClassType("__torch__.M", is_module=True)
    for name in ("a", "b", "c"):
        t.add_attribute(name, T.ListType(T.INT))
    text = """
        graph(%self : __torch__.M, %x : Tensor):
          %5 : int = prim::Constant[value=5]()
          %a : int[] = prim::GetAttr[name="a"](%self)
          %b : int[] = prim::GetAttr[name="b"](%self)
          %c : int[] = prim::GetAttr[name="c"](%self)
          %n : int = {}
          %m : int = aten::len(%c)
          %o : int = aten::len(%b)
          %s : int = aten::add(%n, %m)
          %p : int = aten::add(%s, %o)
          return (%p)"""
    shared = [1]
    module = ScriptObject(t, [shared, [1], shared])
    graph = read(text.format("aten::len(%a)"), {"__torch__.M": t})
    found = specialise(graph, key_of(graph, [module, f32(1)]))
    assert not any("one object" in str(g) for g in found.guards)
    changed = """aten::len(%a)
          %same : int[] = aten::append(%a, %5)"""
    graph = read(text.format(changed), {"__torch__.M": t})
    found = specialise(graph, key_of(graph, [module, f32(1)]))
    assert str(found.guards[-1]) == "the lists and dicts self.a, self.b, self.c is one object each for [0, 1, 0]"
    assert run_graph(found.graph, module, f32(1)) == 1 + 2 + 1
    for slots, fits in (
        ([shared, [1], shared], True),
        ([[1], [1], [1]], False),
        ([shared, shared, [1]], False),
        ([shared, shared, shared], False),
    ):
        shared[:] = [1]
        module.slots[:] = slots
        assert (found.check([f32(1)], module) is None) is fits


CHANGED = """
    graph(%self : __torch__.M, %x : Tensor):
      %5 : int = prim::Constant[value=5]()
      %yes : bool = prim::Constant[value=1]()
      {}
      %after : int[] = prim::GetAttr[name="sizes"](%self)
      %n : int = aten::len(%after)
      return ({})"""
IN_A_BRANCH = """%go : bool = aten::Bool(%x)
       = prim::If(%go)
        block0():
          %list : int[] = prim::GetAttr[name="sizes"](%self)
          %same : int[] = aten::append(%list, %5)
          -> ()
        block1():
          -> ()"""
IN_A_LOOP = """%trips : int = aten::Int(%x)
      %sum : int = prim::Loop(%trips, %yes, %5)
        block0(%i : int, %s : int):
          %list : int[] = prim::GetAttr[name="sizes"](%self)
          %m : int = aten::len(%list)
          %t : int = aten::add(%s, %m)
          %same : int[] = aten::append(%list, %5)
          -> (%yes, %t)"""


def test_lists_first_met_in_a_branch_or_loop_are_not_as_they_were():
    types, module = counter()
    graph = read(CHANGED.format(IN_A_BRANCH, "%n"), types)
    found = specialise(graph, key_of(graph, [module, np.array(1)]))
    assert "prim::If" in kinds(found.graph)
    for x, n in ((1, 3), (0, 2)):
        module.set("sizes", [1, 2])
        assert found.check([np.array(x)], module) is None
        assert run_graph(found.graph, module, np.array(x)) == n
    graph = read(CHANGED.format(IN_A_LOOP, "%sum"), types)
    found = specialise(graph, key_of(graph, [module, np.array(2)]))
    assert "prim::Loop" in kinds(found.graph)
    for trips in (0, 1, 4):
        module.set("sizes", [1, 2])
        assert found.check([np.array(trips)], module) is None
        assert run_graph(found.graph, module, np.array(trips)) == 5 + sum(range(2, 2 + trips))


def test_large_containers_are_not_looked_into():
    text = """
        graph(%d : Dict(str, int), %key : str):
          %n : int = aten::__getitem__(%d, %key)
          return (%n)"""
    found = check(text, {str(k): k for k in range(2000)}, "7")
    assert str(found.guards[0]) == "input d is a dict of more than 1000 elements"
    assert kinds(found.graph) == ["aten::__getitem__"]
    assert found.check([{"7": 1}, "7"]) is not None
    graph = read(text)
    small = specialise(graph, key_of(graph, [{"7": 8}, "7"]))
    assert small.graph.outputs[0].constant() == 8


def test_new_objects_are_made_only_when_they_get_out():
    point = T.ClassType("__torch__.Point")
    point.add_attribute("x", T.TENSOR)
    text = """
        graph(%x : Tensor):
          %p : __torch__.Point = prim::CreateObject()
           = prim::SetAttr[name="x"](%p, %x)
          %got : Tensor = prim::GetAttr[name="x"](%p)
          %y : Tensor = aten::relu(%got)
           = prim::SetAttr[name="x"](%p, %y)
          %z : Tensor = prim::GetAttr[name="x"](%p)
          return ({})"""
    types = {"__torch__.Point": point}
    inside = check(text.format("%z"), f32(2), types=types)
    assert kinds(inside.graph) == ["aten::relu"]
    outside = check(text.format("%p"), f32(2), types=types)
    made = run_graph(outside.graph, f32(2))
    assert_same_values(made.slots, [np.maximum(f32(2), 0)])


def test_an_object_changed_in_a_loop_on_data_exists_at_run_time():
    point = T.ClassType("__torch__.Point")
    point.add_attribute("n", T.INT)
    text = """
        graph(%k : Tensor):
          %1 : int = prim::Constant[value=1]()
          %true : bool = prim::Constant[value=1]()
          %p : __torch__.Point = prim::CreateObject()
           = prim::SetAttr[name="n"](%p, %1)
          %m : int = aten::Int(%k)
           = prim::Loop(%m, %true)
            block0(%i : int):
              %now : int = prim::GetAttr[name="n"](%p)
              %next : int = aten::add(%now, %now)
               = prim::SetAttr[name="n"](%p, %next)
              -> (%true)
          %n : int = prim::GetAttr[name="n"](%p)
          return (%n)"""
    found = check(text, np.array(3), types={"__torch__.Point": point})
    assert run_graph(found.graph, np.array(3)) == 8 and run_graph(found.graph, np.array(0)) == 1


FORK = """
    graph(%x : Tensor):
      %0 : int = prim::Constant[value=0]()
      %f : Future(Tensor) = prim::fork_0(%x)
      %y : Tensor = aten::wait(%f)
      %n : int = aten::size(%y, %0)
      return ({})
    with prim::fork_0 = graph(%a : Tensor):
      %b : Tensor = aten::relu(%a)
      return (%b)"""


def test_forks_run_where_they_stand_unless_their_future_gets_out():
    found = check(FORK.format("%y, %n"), f32(2, 3))
    assert kinds(found.graph) == ["aten::relu"]
    graph = read(FORK.format("%y, %f"))
    kept = specialise(graph, key_of(graph, [f32(2, 3)]))
    verify(kept.graph)
    assert kinds(kept.graph)[0] == "prim::fork"
    assert_same_values(run_graph(kept.graph, f32(2))[0], run_graph(graph, f32(2))[0])


def test_members_of_enums_are_known():
    colour = T.EnumType("__torch__.Colour", T.INT, {"RED": 1, "BLUE": 2})
    graph = read(
        """
        graph(%c : Enum<__torch__.Colour>):
          %1 : int = prim::Constant[value=1]()
          %n : int = prim::EnumValue(%c)
          %m : int = aten::add(%n, %1)
          return (%m)""",
        {"__torch__.Colour": colour},
    )
    found = specialise(graph, key_of(graph, [EnumValue(colour, "BLUE", 2)]))
    assert found.graph.outputs[0].constant() == 3
