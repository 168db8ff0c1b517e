"""Random small programs with views, in-place writes, lists, tuples, ifs and loops, valid by construction.

``programs()`` is a hypothesis strategy of ``Program``: a graph and inputs for it. ``outcome`` runs one and tells
everything that can be observed; ``assert_keeps_meaning`` does so before and after a pass:

    @given(programs())
    def test_my_pass_keeps_meaning(program):
        assert_keeps_meaning(my_pass, program)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.verify import verify
from gpujit.ops import table
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.vm import Interpreter

SHAPES = ((2, 3), (3,), (3, 2), (2, 2), (1, 3), ())
UNARY = ("relu", "tanh", "neg", "sigmoid")
BINARY = ("aten::add.Tensor", "aten::sub.Tensor", "aten::mul.Tensor", "aten::maximum")
FLOAT = 6


@dataclass(eq=False)
class Program:
    """A graph and inputs for it; two of the inputs may be one array, or views of one."""

    graph: Graph
    inputs: list[Any]

    def __repr__(self) -> str:
        return f"Program(inputs={self.inputs!r},\n{self.graph})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@dataclass(eq=False)
class Known:
    """A value with what is known of it: ``shape`` of a tensor (of a list's elements), ``length`` at least of a list,
    whether it may be written into, and the parts of a tuple."""

    value: Value
    kind: str
    shape: tuple[int, ...] = ()
    length: int = 0
    writable: bool = True
    parts: tuple[Known, ...] = ()


@dataclass
class Scope:
    """What can be read at a place in the program."""

    block: Block
    known: list[Known] = field(default_factory=list)

    def inner(self, block: Block) -> Scope:
        # Lists keep the lengths they have out here: what a branch appends is not sure to be there after it.
        return Scope(block, [replace(k) for k in self.known])


def fits_into(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Whether a tensor of ``shape`` broadcasts to ``target``."""
    if len(shape) > len(target):
        return False
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(target), strict=False))


class Builder:
    """Draws one program, statement by statement."""

    def __init__(self, draw: Callable[[Any], Any], *, typed: bool, mutation: bool, control: bool, lists: bool) -> None:
        self.draw = draw
        self.typed = typed
        self.graph = Graph("random")
        self.control = control
        self.statements: list[Callable[[Scope], bool]] = [self.unary, self.binary, self.view, self.view, self.number]
        if mutation:
            self.statements += [self.write, self.write, self.write, self.write_view]
        if lists:
            self.statements += [self.new_list, self.read_list, self.grow_list, self.set_item, self.new_tuple]
            self.statements += [self.read_tuple, self.stack]
        self.statements += [self.copy, self.copy, self.choice]
        self.depth = 0

    # -- drawing -------------------------------------------------------------------------------------------------

    def number_up_to(self, most: int) -> int:
        return int(self.draw(st.integers(0, most)))

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.number_up_to(len(options) - 1)]

    def some(self, scope: Scope, kind: str, test: Callable[[Known], bool] = lambda k: True) -> Known | None:
        found = [k for k in scope.known if k.kind == kind and test(k)]
        # The latest first, so that programs do something with what they compute.
        return self.pick(found[::-1]) if found else None

    # -- nodes ---------------------------------------------------------------------------------------------------

    def tensor_type(self, shape: tuple[int, ...]) -> T.Type:
        return T.TensorType(FLOAT, shape) if self.typed else T.TENSOR

    def type_of(self, known: Known) -> T.Type:
        if known.kind == "tensor":
            return self.tensor_type(known.shape)
        if known.kind == "list":
            return T.ListType(T.TENSOR)
        if known.kind == "tuple":
            return T.TupleType(tuple(map(self.type_of, known.parts)))
        return T.INT if known.kind == "int" else T.BOOL

    def constant(self, scope: Scope, value: Any, t: T.Type) -> Value:
        return self.graph.constant(value, t, scope.block)

    def node(self, scope: Scope, kind: str, inputs: Sequence[Value], outputs: Sequence[T.Type]) -> Node:
        node = Node(kind, inputs)
        scope.block.append(node)
        for t in outputs:
            node.add_output(t)
        return node

    def op(self, scope: Scope, full_name: str, *arguments: Any, output: T.Type | None = None) -> Node:
        """A node of an operator; Python values among the arguments become constants, missing ones their defaults."""
        op = table.by_full_name(full_name)
        assert op is not None, full_name
        inputs: list[Value] = []
        rest = [a.default for a in op.schema.arguments[len(arguments) :]]
        for argument, value in zip(op.schema.arguments, (*arguments, *rest), strict=True):
            if isinstance(value, Value):
                inputs.append(value)
            elif isinstance(value, list):
                numbers = [self.constant(scope, n, T.INT) for n in value]
                inputs.append(self.node(scope, "prim::ListConstruct", numbers, [T.ListType(T.INT)]).output)
            else:
                t = T.NONE if value is None else T.INT if type(value) is int else T.FLOAT
                t = T.BOOL if type(value) is bool else t
                assert argument is not None
                inputs.append(self.constant(scope, value, t))
        node = self.node(scope, op.name, inputs, [] if output is None else [output])
        node.schema = op.schema
        return node

    def tensor(
        self, scope: Scope, full_name: str, *arguments: Any, shape: tuple[int, ...], writable: bool = True
    ) -> bool:
        node = self.op(scope, full_name, *arguments, output=self.tensor_type(shape))
        scope.known.append(Known(node.output, "tensor", shape, writable=writable))
        return True

    # -- statements: each adds nodes and says whether it could ------------------------------------------------------

    def unary(self, scope: Scope) -> bool:
        x = self.some(scope, "tensor")
        return x is not None and self.tensor(scope, f"aten::{self.pick(UNARY)}", x.value, shape=x.shape)

    def binary(self, scope: Scope) -> bool:
        x = self.some(scope, "tensor")
        if x is None:
            return False
        y = self.some(scope, "tensor", lambda k: fits_into(k.shape, x.shape))
        assert y is not None
        return self.tensor(scope, self.pick(BINARY), x.value, y.value, shape=x.shape)

    def copy(self, scope: Scope) -> bool:
        x = self.some(scope, "tensor")
        name = self.pick(("clone", "contiguous", "detach", "alias"))
        return x is not None and self.tensor(
            scope, f"aten::{name}", x.value, shape=x.shape, writable=x.writable or name == "clone"
        )

    def view(self, scope: Scope) -> bool:
        x = self.some(scope, "tensor")
        if x is None:
            return False
        which, shape = self.number_up_to(6), x.shape
        if which == 0 or not shape:
            return (
                self.tensor(scope, "aten::unsqueeze", x.value, 0, shape=(1, *shape), writable=x.writable)
                if len(shape) < 3
                else False
            )
        dim = self.number_up_to(len(shape) - 1)
        if which == 1:
            index = self.number_up_to(shape[dim] - 1)
            rest = shape[:dim] + shape[dim + 1 :]
            return self.tensor(scope, "aten::select.int", x.value, dim, index, shape=rest, writable=x.writable)
        if which == 2:
            start = self.number_up_to(shape[dim] - 1)
            cut = (*shape[:dim], shape[dim] - start, *shape[dim + 1 :])
            return self.tensor(
                scope, "aten::slice.Tensor", x.value, dim, start, 1 << 40, 1, shape=cut, writable=x.writable
            )
        if which == 3:
            order = (*shape[:-2], *shape[-2:][::-1])
            last = len(shape) - 1
            return self.tensor(
                scope, "aten::transpose.int", x.value, max(last - 1, 0), last, shape=order, writable=x.writable
            )
        if which == 4:
            flat = (int(np.prod(shape)),)
            return self.tensor(scope, "aten::reshape", x.value, [-1], shape=flat, writable=x.writable)
        if which == 5 and len(shape) < 3:
            return self.tensor(scope, "aten::expand", x.value, [2, *shape], shape=(2, *shape), writable=False)
        return self.tensor(
            scope, "aten::flatten.using_ints", x.value, shape=(int(np.prod(shape)),), writable=x.writable
        )

    def write(self, scope: Scope) -> bool:
        x = self.some(scope, "tensor", lambda k: k.writable)
        return x is not None and self.write_into(scope, x)

    def write_view(self, scope: Scope) -> bool:
        """A view that is written at once, as programs with indices on the left of = do."""
        return self.view(scope) and scope.known[-1].writable and self.write_into(scope, scope.known[-1])

    def write_into(self, scope: Scope, x: Known) -> bool:
        which = self.number_up_to(5)
        y = self.some(scope, "tensor", lambda k: fits_into(k.shape, x.shape))
        assert y is not None
        if which == 0:
            return self.tensor(scope, "aten::add_.Tensor", x.value, y.value, shape=x.shape)
        if which == 1:
            return self.tensor(scope, "aten::mul_.Scalar", x.value, 0.5, shape=x.shape)
        if which == 2:
            return self.tensor(scope, "aten::copy_", x.value, y.value, shape=x.shape)
        if which == 3:
            return self.tensor(scope, "aten::fill_.Scalar", x.value, 0.25, shape=x.shape)
        if which == 4:
            return self.tensor(scope, "aten::relu_", x.value, shape=x.shape)
        return self.tensor(scope, "aten::zero_", x.value, shape=x.shape)

    def number(self, scope: Scope) -> bool:
        which = self.number_up_to(3)
        a = self.some(scope, "int")
        if which == 0 or a is None:
            value = self.constant(scope, self.number_up_to(3), T.INT)
        elif which == 1:
            x = self.some(scope, "tensor", lambda k: bool(k.shape))
            if x is None:
                return False
            value = self.op(scope, "aten::size.int", x.value, self.number_up_to(len(x.shape) - 1), output=T.INT).output
        elif which == 2:
            value = self.op(scope, "aten::add.int", a.value, self.number_up_to(2), output=T.INT).output
        else:
            test = self.op(scope, "aten::lt.int", a.value, self.number_up_to(3), output=T.BOOL).output
            scope.known.append(Known(test, "bool"))
            return True
        scope.known.append(Known(value, "int"))
        return True

    # -- lists and tuples --------------------------------------------------------------------------------------------

    def new_list(self, scope: Scope) -> bool:
        x = self.some(scope, "tensor", lambda k: k.writable)
        if x is None:
            return False
        count = self.number_up_to(2)
        items = [x] * bool(count)
        for _ in range(count - 1):
            other = self.some(scope, "tensor", lambda k: k.writable and k.shape == x.shape)
            assert other is not None
            items.append(other)
        node = self.node(scope, "prim::ListConstruct", [k.value for k in items], [T.ListType(T.TENSOR)])
        scope.known.append(Known(node.output, "list", x.shape, length=len(items)))
        return True

    def read_list(self, scope: Scope) -> bool:
        items = self.some(scope, "list", lambda k: k.length > 0)
        if items is None:
            return False
        at = self.number_up_to(items.length - 1)
        node = self.op(scope, "aten::__getitem__.t", items.value, at, output=T.TENSOR)
        scope.known.append(Known(node.output, "tensor", items.shape))
        return True

    def item_for(self, scope: Scope, items: Known) -> Known | None:
        return self.some(scope, "tensor", lambda k: k.writable and k.shape == items.shape)

    def grow_list(self, scope: Scope) -> bool:
        items = self.some(scope, "list")
        item = None if items is None else self.item_for(scope, items)
        if items is None or item is None:
            return False
        self.op(scope, "aten::append.t", items.value, item.value, output=T.ListType(T.TENSOR))
        items.length += 1
        return True

    def set_item(self, scope: Scope) -> bool:
        items = self.some(scope, "list", lambda k: k.length > 0)
        item = None if items is None else self.item_for(scope, items)
        if items is None or item is None:
            return False
        at = self.number_up_to(items.length - 1)
        self.op(scope, "aten::_set_item.t", items.value, at, item.value, output=T.ListType(T.TENSOR))
        return True

    def stack(self, scope: Scope) -> bool:
        items = self.some(scope, "list", lambda k: k.length > 0)
        if items is None:
            return False
        # How many there are is not known, so the stack is summed over them at once.
        node = self.op(scope, "aten::stack", items.value, 0, output=T.TENSOR)
        dims = self.node(scope, "prim::ListConstruct", [self.constant(scope, 0, T.INT)], [T.ListType(T.INT)]).output
        return self.tensor(scope, "aten::mean.dim", node.output, dims, False, shape=items.shape)

    def new_tuple(self, scope: Scope) -> bool:
        parts = [p for p in (self.some(scope, "tensor", lambda k: k.writable), self.some(scope, "list")) if p]
        if not parts:
            return False
        t = T.TupleType(tuple(p.value.type for p in parts))
        node = self.node(scope, "prim::TupleConstruct", [p.value for p in parts], [t])
        # Other names of a list are taken to be empty: only one name is told of what is appended.
        held = tuple(replace(p, length=0) for p in parts)
        scope.known.append(Known(node.output, "tuple", parts=held))
        return True

    def read_tuple(self, scope: Scope) -> bool:
        pair = self.some(scope, "tuple")
        if pair is None:
            return False
        node = self.node(scope, "prim::TupleUnpack", [pair.value], [p.value.type for p in pair.parts])
        scope.known += [replace(p, value=v) for p, v in zip(pair.parts, node.outputs, strict=True)]
        return True

    # -- control flow ------------------------------------------------------------------------------------------------

    def choice(self, scope: Scope) -> bool:
        if not self.control or self.depth >= 2:
            return False
        return self.loop(scope) if self.number_up_to(1) else self.branch(scope)

    def body(self, scope: Scope, block: Block) -> Scope:
        inner = scope.inner(block)
        self.depth += 1
        self.fill(inner, self.number_up_to(4))
        self.depth -= 1
        return inner

    def alike(self, scope: Scope, like: Known) -> Known:
        """A value that can be merged with ``like``: of its kind and type."""

        def fits(k: Known) -> bool:
            alike = k.shape == like.shape and k.value.type == like.value.type
            # Writing into an expanded tensor fails.
            return alike and (k.writable or not like.writable)

        return self.some(scope, like.kind, fits) or like

    def results(self, scope: Scope) -> list[Known]:
        count = self.number_up_to(2)
        found = [self.some(scope, self.pick(("tensor", "tensor", "int", "list"))) for _ in range(count)]
        return [k for k in found if k is not None]

    def branch(self, scope: Scope) -> bool:
        condition = self.some(scope, "bool")
        if condition is None:
            return False
        node = self.node(scope, "prim::If", [condition.value], [])
        yes = self.body(scope, node.add_block())
        no = self.body(scope, node.add_block())
        for first in self.results(yes):
            # Both sides must give the same type; what only one side has is matched by what both can read.
            outer = self.some(no, first.kind, lambda k, f=first: k.shape == f.shape and k.value.type == f.value.type)
            if outer is None:
                continue
            yes.block.add_return(first.value)
            no.block.add_return(outer.value)
            scope.known.append(
                Known(
                    node.add_output(first.value.type),
                    first.kind,
                    first.shape,
                    writable=first.writable and outer.writable,
                )
            )
        return True

    def loop(self, scope: Scope) -> bool:
        trips = self.constant(scope, self.number_up_to(3), T.INT)
        true = self.constant(scope, True, T.BOOL)
        carried = self.results(scope)
        node = self.node(scope, "prim::Loop", [trips, true, *(k.value for k in carried)], [])
        block = node.add_block()
        inner = scope.inner(block)
        inner.known.append(Known(block.add_param(T.INT), "int"))
        params = []
        for k in carried:
            # Lists carried by later runs may be shorter ones.
            param = Known(block.add_param(k.value.type), k.kind, k.shape, writable=k.writable)
            params.append(param)
            inner.known.append(param)
        self.depth += 1
        self.fill(inner, self.number_up_to(4))
        self.depth -= 1
        block.add_return(self.constant(inner, True, T.BOOL))
        for k, param in zip(carried, params, strict=True):
            block.add_return(self.alike(inner, param).value)
            scope.known.append(Known(node.add_output(k.value.type), k.kind, k.shape, writable=k.writable))
        return True

    # -- whole programs ----------------------------------------------------------------------------------------------

    def fill(self, scope: Scope, count: int) -> None:
        for _ in range(count):
            self.pick(self.statements)(scope)

    def program(self, size: int) -> Program:
        scope = Scope(self.graph.block)
        inputs: list[Any] = []
        for i in range(1 + self.number_up_to(2)):
            shape = self.pick(SHAPES)
            array = np.asarray((np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape) - 2 + i) / 4)
            same = [j for j, k in enumerate(scope.known) if k.shape == shape]
            if same and self.number_up_to(3) == 0:
                # One array, given twice.
                array = inputs[self.pick(same)]
            inputs.append(array)
            scope.known.append(Known(self.graph.add_input(self.tensor_type(shape)), "tensor", shape))
        flag = self.number_up_to(1)
        inputs += [bool(flag), self.number_up_to(3)]
        scope.known += [Known(self.graph.add_input(T.BOOL), "bool"), Known(self.graph.add_input(T.INT), "int")]
        if self.number_up_to(3) == 0:
            shape = self.pick(SHAPES)
            inputs.append([np.full(shape, 0.5, np.float32) for _ in range(self.number_up_to(2))])
            scope.known.append(Known(self.graph.add_input(T.ListType(T.TENSOR)), "list", shape, length=len(inputs[-1])))
        if self.number_up_to(3) == 0:
            shape = self.pick(SHAPES)
            value = self.constant(scope, np.full(shape, -0.75, np.float32), self.tensor_type(shape))
            scope.known.append(Known(value, "tensor", shape, writable=False))
            # Read by operators only: nothing may write a constant.
            self.tensor(scope, "aten::neg", value, shape=shape)
            scope.known.remove(scope.known[-2])
        self.fill(scope, size)
        outputs = [k for k in scope.known if k.kind in ("tensor", "list", "int")]
        for _ in range(1 + self.number_up_to(2)):
            self.graph.add_output(outputs[-1 - self.number_up_to(min(5, len(outputs) - 1))].value)
        verify(self.graph)
        return Program(self.graph, inputs)


@st.composite
def programs(
    draw: Callable[[Any], Any],
    *,
    max_size: int = 14,
    mutation: bool = True,
    control: bool = True,
    lists: bool = True,
    typed: bool | None = None,
) -> Program:
    """Programs of up to ``max_size`` statements.

    Args:
        mutation: whether tensors are written in place.
        control: whether there are ifs and loops.
        lists: whether there are lists (grown and changed too) and tuples.
        typed: whether tensors have dtype and shape in their types; by default either, drawn.
    """
    if typed is None:
        typed = draw(st.booleans())
    builder = Builder(draw, typed=typed, mutation=mutation, control=control, lists=lists)
    return builder.program(draw(st.integers(1, max_size)))


# ------------------------------------------------------------------------------------------------------ running


def run_graph(graph: Graph, *inputs: Any) -> Any:
    """What the graph returns (a tuple for several results), run by the interpreter on NumPy."""
    lowerer = Lowerer(np)
    with np.errstate(all="ignore"):
        return Interpreter(lowerer).run(lowerer.graph_code(graph), list(inputs))


def outcome(graph: Graph, inputs: Sequence[Any]) -> dict[str, Any]:
    """Everything a caller can tell about a run: results, what became of the inputs, and which of all these share
    memory or are one list."""
    given = copy.deepcopy(list(inputs))
    result = run_graph(graph, *given)
    results = list(result) if len(graph.outputs) != 1 else [result]
    seen = [*results, *given]
    shared = [(i, j) for (i, a), (j, b) in combinations(enumerate(seen), 2) if same(a, b) or share_memory(a, b)]
    return {"results": results, "inputs": given, "shared": shared}


def same(a: Any, b: Any) -> bool:
    """Whether two values are one list or array."""
    return a is b and isinstance(a, (list, np.ndarray))


def arrays_in(value: Any) -> list[Any]:
    """The arrays in a value, at any depth."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, (list, tuple)):
        return [a for v in value for a in arrays_in(v)]
    return []


def lists_in(value: Any) -> list[Any]:
    """The lists in a value, itself included, at any depth."""
    if isinstance(value, (list, tuple)):
        inner = [v for item in value for v in lists_in(item)]
        return [value, *inner] if isinstance(value, list) else inner
    return []


def share_memory(a: Any, b: Any) -> bool:
    """Whether two values share memory: an element of an array, or a list, anywhere in them."""
    if any(x is y for x in lists_in(a) for y in lists_in(b)):
        return True
    return any(np.shares_memory(x, y) for x in arrays_in(a) for y in arrays_in(b))


def assert_same_outcome(
    got: dict[str, Any], wanted: dict[str, Any], *, exact: bool = True, sharing: bool = True
) -> None:
    """Check that two runs cannot be told apart. ``exact=False`` allows rounding; ``sharing=False`` leaves out which
    results share memory."""
    for part in ("results", "inputs"):
        assert_equal(got[part], wanted[part], part, exact)
    if sharing:
        assert got["shared"] == wanted["shared"], f"shared memory: {got['shared']} instead of {wanted['shared']}"


def assert_equal(got: Any, wanted: Any, where: str, exact: bool = True) -> None:
    """Check that two values are equal, NaN equal to NaN; floats to a tolerance unless ``exact``."""
    assert type(got) is type(wanted), f"{where}: {got!r} instead of {wanted!r}"
    if isinstance(wanted, (list, tuple)):
        assert len(got) == len(wanted), f"{where}: {got!r} instead of {wanted!r}"
        for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
            assert_equal(a, b, f"{where}[{i}]", exact)
    elif isinstance(wanted, dict):
        assert list(got) == list(wanted), f"{where}: {got!r} instead of {wanted!r}"
        for key in wanted:
            assert_equal(got[key], wanted[key], f"{where}[{key!r}]", exact)
    elif isinstance(wanted, np.ndarray):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), f"{where}: {got!r} instead of {wanted!r}"
        if exact:
            np.testing.assert_array_equal(got, wanted, err_msg=where)
        else:
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5, err_msg=where)
    else:
        assert got == wanted, f"{where}: {got!r} instead of {wanted!r}"


def assert_keeps_meaning(
    pass_fn: Callable[[Graph], bool], program: Program, *, exact: bool = True, sharing: bool = True
) -> Graph:
    """The graph after the pass, which must verify, mean the same, say truly whether it changed, and be left alone by a
    second run."""
    wanted = outcome(program.graph, program.inputs)
    graph = program.graph.copy()
    before = str(graph)
    changed = pass_fn(graph)
    verify(graph)
    after = str(graph)
    assert changed == (after != before), f"the pass says {changed}; before:\n{before}\nafter:\n{after}"
    try:
        assert_same_outcome(outcome(graph, program.inputs), wanted, exact=exact, sharing=sharing)
    except Exception as error:
        raise AssertionError(f"{error}\nbefore:\n{before}\nafter:\n{after}") from error
    again = pass_fn(graph)
    assert not again and str(graph) == after, f"a second run changed\n{after}\nto\n{graph}"
    return graph
