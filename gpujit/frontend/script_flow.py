"""Branches and loops in SSA form: what both sides of an ``if`` and a loop's body hand over.

A block that may be left early (``return``, ``break``, ``continue``) sets flags, kept in the scope like variables:
``@skip`` (the rest of this body is not run), ``@stop`` (the innermost loop ends), ``@returned`` and ``@result``. Where
one side of an ``if`` always leaves, what follows the ``if`` moves into the other side, and no flag is needed.
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from gpujit.frontend import flow
from gpujit.frontend.lang import Walk, range_of
from gpujit.frontend.literals import INT_MAX
from gpujit.frontend.script_assignments import AssignmentEmitter
from gpujit.ir import types as T
from gpujit.ir.graph import Block, Node, Value

FLAGS = ("@skip", "@stop", "@returned")


class FlowEmitter(AssignmentEmitter):
    """Emits branches and loops."""

    declared: T.Type | None
    loop_depth: int

    @abstractmethod
    def statements(self, statements: Sequence[ast.stmt]) -> bool: ...  # type: ignore[override]

    def guarded(self, skip: Value, rest: Sequence[ast.stmt], at: ast.AST) -> bool:
        """Emit what is run only when the block was not left before."""

        def run() -> bool:
            self.scope.pop("@skip", None)
            return self.statements(rest)

        self.fork_flow(skip, lambda: True, run, at)
        return False

    # ------------------------------------------------------------------------------------------------------- if

    def branch(self, s: ast.If, rest: Sequence[ast.stmt]) -> bool | None:
        """Emit an ``if``. What follows it is emitted with it where one side always leaves: whether all leave then;
        None when ``rest`` is still to be emitted."""
        c = self.condition_of(s.test)
        if c.known is not None:
            self.refine(c.yes if c.known else c.no, s)
            return self.statements([*(s.body if c.known else s.orelse), *rest])
        assert c.value is not None
        sides = [(s.body, c.yes), (s.orelse, c.no)]
        left = [flow.leaves(body) for body, _ in sides]
        moved = None
        for one, other in ((0, 1), (1, 0)):
            if left[one] == flow.ALWAYS and left[other] != flow.ALWAYS and not flow.only_raises(sides[one][0]):
                moved = other

        def side(i: int) -> Callable[[], bool]:
            body, types = sides[i]

            def run() -> bool:
                self.refine(types, s)
                return self.statements([*body, *rest] if moved == i else body)

            return run

        ends = self.fork_flow(c.value, side(0), side(1), s)
        if all(ends):
            return True
        if moved is not None:
            return False
        return None

    def fork_flow(
        self, condition: Value, yes: Callable[[], bool], no: Callable[[], bool], at: ast.AST
    ) -> tuple[bool, bool]:
        """Emit an If with two sides; join what their scopes hold. Whether each side always leaves."""
        node = self.emit("prim::If", (condition,), at)
        before = self.scope
        scopes: list[dict[str, Any]] = []
        ends: list[bool] = []
        for side in (yes, no):
            self.frames.append(dict(before))
            saved = self.inner(node.add_block())
            ends.append(side())
            scopes.append(self.scope)
            self.block, self.scope = saved
            self.frames.pop()
        self.join(node, before, scopes, ends, at)
        return ends[0], ends[1]

    def join(
        self, node: Node, before: dict[str, Any], scopes: list[dict[str, Any]], ends: list[bool], at: ast.AST
    ) -> None:
        """Bring the scopes of an If's sides together into ``before``."""
        refined: dict[str, T.Type] = {}
        for name in dict.fromkeys((*scopes[0], *scopes[1])):
            old = before.get(name)
            values = [self.plain(scope.get(name), old) for scope in scopes]
            if all(v is old for v in values):
                # Not assigned; but the sides that go on may both know more about its type.
                going_on = [scope.get(name) for scope, end in zip(scopes, ends, strict=True) if not end]
                known_types = [v.type for v in going_on if isinstance(v, Value)]
                narrowed = T.unify(known_types[0], known_types[-1]) if known_types else None
                if isinstance(old, Value) and narrowed is not None and narrowed != old.type:
                    refined[name] = narrowed
                continue
            # Assigned on one side at least: the other may hand over what a condition said about the name.
            values = [scope.get(name) for scope in scopes]
            if values[0] is values[1]:
                before[name] = values[0]
                continue
            if name in FLAGS:
                values = [self.constant(False, T.BOOL, at) if v is None else v for v in values]
            known = [isinstance(v, Value) for v in values]
            fill = None
            if not all(known):
                # On a side that is left nobody reads the name any more.
                fill = next((i for i in (0, 1) if (ends[i] or name == "@result") and not known[i]), None)
                if fill is None or not known[1 - fill]:
                    if fill is not None and values[1 - fill] is not None:
                        before[name] = values[1 - fill]
                        continue
                    before.pop(name, None)
                    side = "false" if values[1] is None else "true"
                    self.undefined[name] = f"{name} is not defined in the {side} branch"
                    continue
            joint = None
            if fill is None:
                joint = self.joint_type(name, values, old)
                if joint is None:
                    values = [self.plain(v, old) for v in values]
                    joint = self.joint_type(name, values, old)
                if joint is None:
                    fill = next((i for i in (0, 1) if ends[i] and name != "@result"), None)
                if joint is None and fill is None:
                    self.cannot_join(name, values, at)
                    before.pop(name, None)
                    continue
            for i, block in enumerate(node.blocks):
                if i == fill:
                    values[i] = self.filler(values[1 - i].type, at, block)
                block.add_return(values[i])
            joint = joint if joint is not None else values[1 if fill == 0 else 0].type
            before[name] = node.add_output(joint, "" if name.startswith("@") else name)
        self.refine(refined, at)

    def joint_type(self, name: str, values: list[Any], old: Any) -> T.Type | None:
        if name == "@result" and self.declared is not None:
            return self.declared
        if isinstance(old, Value) and all(T.is_subtype(v.type, old.type) for v in values):
            return T.unify(values[0].type, values[1].type) or old.type
        return T.unify(values[0].type, values[1].type)

    def cannot_join(self, name: str, values: list[Any], at: ast.AST) -> None:
        a, b = (v.type.annotation() for v in values)
        if name == "@result":
            raise self.error(f"Previous return statement returned a value of type {a} but this one is of type {b}", at)
        self.undefined[name] = (
            f"Type mismatch: {name} is set to type {a} in the true branch and type {b} in the false branch"
        )

    def plain(self, meaning: Any, outer: Any = None) -> Any:
        """A value without what conditions said about its type since it was ``outer``."""
        while meaning is not outer and isinstance(meaning, Value) and meaning in self.original:
            meaning = self.original[meaning]
        return meaning

    def filler(self, type_: T.Type, at: ast.AST, block: Block | None = None) -> Value:
        """A value that nobody reads."""
        node = Node("prim::Uninitialized")
        node.source = range_of(self.source, at)
        (block or self.block).append(node)
        return node.add_output(type_)

    # ---------------------------------------------------------------------------------------------------- loops

    def for_statement(self, s: ast.For) -> bool:
        if s.orelse:
            raise self.error("else branches of for loops aren't supported; use a flag and an 'if' after the loop", s)
        walk = self.walk(self.meaning(s.iter, None), s.iter)
        if walk.items is not None:
            self.loop_depth, depth = 0, self.loop_depth
            try:
                return self.unroll(s, walk.items)
            finally:
                self.loop_depth = depth
        if walk.length is None:
            raise self.error("this loop has no end", s)
        names = [*flow.targets_of(s.target), *flow.assigned(s.body)]
        self.run_loop(s, names, walk.length, None, walk)
        return False

    def unroll(self, s: ast.For, items: list[Any]) -> bool:
        if flow.has(s.body, (ast.Break, ast.Continue), loops=False):
            raise self.error(
                "Because we emit iteration over Modulelists or Tuples as unrolled loops, we do not support break or "
                "continue inside the body of these loops",
                s,
            )
        for i, item in enumerate(items):
            self.bind(s.target, item, s)
            if self.statements(s.body):
                return True
            skip = self.scope.get("@skip")
            if isinstance(skip, Value) and not skip.is_constant:

                def rest(i: int = i) -> bool:
                    self.scope.pop("@skip", None)
                    for name in flow.targets_of(s.target):
                        # Each element may be of another type.
                        self.frames[-1].pop(name, None)
                    return self.unroll(s, items[i + 1 :])

                self.fork_flow(skip, lambda: True, rest, s)
                return False
        return False

    def while_statement(self, s: ast.While) -> bool:
        if s.orelse:
            raise self.error("else branches of while loops aren't supported; use a flag and an 'if' after the loop", s)
        self.run_loop(s, flow.assigned(s.body), self.constant(INT_MAX, T.INT, s), s.test, None)
        return False

    def run_loop(
        self, s: ast.For | ast.While, assigned: list[str], trips: Value, test: ast.expr | None, walk: Walk | None
    ) -> None:
        start = self.constant(True, T.BOOL, s) if test is None else self.condition(test)
        before = self.scope
        for n in dict.fromkeys(assigned):
            found = before.get(n)
            if found is not None and not isinstance(found, Value):
                raise self.error(f"{n!r} is no variable and cannot be assigned in a loop", s)
        names = [n for n in dict.fromkeys(assigned) if isinstance(before.get(n), Value)]
        returns = flow.has(s.body, ast.Return)
        result_type = self.declared
        starts = {n: before[n] for n in names}
        for _ in range(2):
            carried = dict(starts)
            if returns:
                carried["@returned"] = self.constant(False, T.BOOL, s)
                if result_type is not None:
                    carried["@result"] = self.filler(result_type, s)
            node = self.emit("prim::Loop", (trips, start, *carried.values()), s)
            block = node.add_block()
            after = self.loop_body(s, block, carried, test, walk)
            result = after.get("@result")
            if returns and result_type is None and isinstance(result, Value):
                # How the loop is written depends on what it returns, which is known only now.
                result_type = result.type
                node.destroy()
                continue
            break
        for n in carried:
            value = self.plain(after.get(n))
            if n == "@returned" and value is None:
                value = self.constant(False, T.BOOL, s)
            if not isinstance(value, Value):
                raise self.error(self.undefined.get(n, f"{n!r} is not defined at the end of the loop"), s)
            block.add_return(value)
        outer = dict(before)
        for n, first in carried.items():
            type_ = first.type
            before[n] = node.add_output(type_, "" if n.startswith("@") else n)
        for n in assigned:
            if n not in names:
                before.pop(n, None)
                self.undefined[n] = f"{n} is not defined outside of the loop"
        if returns:
            flag = before["@returned"]
            before["@skip"] = before["@stop"] = flag
            if "@result" not in before and "@result" in outer:
                before["@result"] = outer["@result"]

    def loop_body(
        self, s: ast.For | ast.While, block: Block, carried: dict[str, Value], test: ast.expr | None, walk: Walk | None
    ) -> dict[str, Any]:
        """Emit a loop's body and the condition of its next iteration; the scope at its end."""
        before = self.scope
        self.frames.append(dict(before))
        saved = self.inner(block)
        self.loop_depth += 1
        index = block.add_param(T.INT)
        for flag in (*FLAGS, "@result"):
            self.scope.pop(flag, None)
        for n, first in carried.items():
            param = block.add_param(first.type, "" if n.startswith("@") else n)
            if n == "@result":
                self.scope[n] = param
            elif n != "@returned":
                self.scope[n] = param
                self.frames[-1][n] = param
        if walk is not None:
            assert isinstance(s, ast.For)
            self.bind(s.target, walk.at(index), s)
        left = self.statements(s.body)
        stop = self.scope.get("@stop")
        again: Value
        if isinstance(stop, Value) and stop.is_constant:
            again = self.constant(not stop.constant(), T.BOOL, s)
        elif isinstance(stop, Value):
            if test is None:
                again = self.call_value("aten::__not__", [stop], s)
            else:
                again = self.choose(stop, lambda: self.constant(False, T.BOOL, s), lambda: self.condition(test), s)
        elif test is None or (left and "@skip" not in self.scope):
            again = self.constant(True, T.BOOL, s)
        else:
            again = self.condition(test)
        block.add_return(again)
        after = self.scope
        self.block, self.scope = saved
        self.frames.pop()
        self.loop_depth -= 1
        return after
