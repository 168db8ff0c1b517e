"""Statements of the whole language, exits anywhere among them, in structured SSA form.

A block that may be left early (``return``, ``break``, ``continue``) sets flags, kept in the scope like variables:
``@skip`` (the rest of this body is not run), ``@stop`` (the innermost loop ends), ``@returned`` and ``@result``. Where
one side of an ``if`` always leaves, what follows the ``if`` moves into the other side, and no flag is needed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from gpujit.frontend import flow
from gpujit.frontend.emit import prune
from gpujit.frontend.lang import Items, Walk, range_of
from gpujit.frontend.literals import INT_MAX
from gpujit.frontend.script_calls import ScriptCallEmitter
from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.source import Source
from gpujit.support.errors import SourceError

_FLAGS = ("@skip", "@stop", "@returned")
# Operators of augmented assignment to tensors: in place where there is an in-place one.
_TENSOR_AUGMENTED: dict[type, str] = {
    ast.Add: "aten::add_", ast.Sub: "aten::sub_", ast.Mult: "aten::mul_", ast.Div: "aten::div_",
    ast.Mod: "aten::fmod_", ast.BitOr: "aten::bitwise_or", ast.BitAnd: "aten::bitwise_and",
    ast.BitXor: "aten::bitwise_xor", ast.Pow: "aten::pow", ast.LShift: "aten::__ilshift__",
    ast.RShift: "aten::__irshift__",
}  # fmt: skip
_REFUSED: dict[type, str] = {
    ast.Try: "exceptions cannot be caught; test the condition with 'if' before",
    ast.Global: "globals cannot be assigned; pass values in and return them",
    ast.Nonlocal: "names of outer functions cannot be assigned; return the value",
    ast.FunctionDef: "define the function outside, where it is scripted when called",
    ast.AsyncFunctionDef: "use fork and wait", ast.ClassDef: "define the class outside",
    ast.AsyncFor: "use fork and wait", ast.AsyncWith: "use fork and wait",
    ast.Import: "import at the top of the file", ast.ImportFrom: "import at the top of the file",
}  # fmt: skip


class ScriptEmitter(ScriptCallEmitter):
    """Emits the functions of live Python code and of source text given to ``define``."""

    def __init__(self, graph: Graph, block: Block, source: Source, resolver: Any, name: str) -> None:
        super().__init__(graph, block, source, resolver, name)
        self.original = {}
        # What names meant where the blocks around this point begin.
        self.frames: list[dict[str, Any]] = []
        self.declared: T.Type | None = None
        self.loop_depth = 0

    # ------------------------------------------------------------------------------------------------- functions

    def function_body(self, node: ast.FunctionDef, declared: T.Type | None) -> Value:
        """Emit a function's statements; the value it returns. ``declared`` is its annotated result type."""
        self.declared = declared
        body = node.body
        end = ast.copy_location(ast.Return(value=None), body[-1] if body else node)
        end.end_lineno = node.end_lineno
        implicit = ast.Expr(value=ast.Constant(value=Ellipsis))
        ast.copy_location(implicit, node)
        ast.copy_location(implicit.value, node)
        self.implicit_return = implicit
        self.statements([*body, implicit])
        result = self.scope.get("@result")
        if not isinstance(result, Value):
            # Every path raises.
            type_ = declared if declared is not None else T.NONE
            return self.constant(None, T.NONE, node) if type_ == T.NONE else self.filler(type_, node)
        return result

    def statements(self, statements: Sequence[ast.stmt]) -> bool:  # type: ignore[override]
        """Emit statements one after the other; whether they always leave the block."""
        for i, s in enumerate(statements):
            rest = statements[i + 1 :]
            try:
                left = self.branch(s, rest) if isinstance(s, ast.If) else self.statement(s) or None
            except SourceError as e:
                if e.where:
                    raise
                # A class that is named here cannot be compiled, and says so without a place.
                raise self.error(e.message, s) from None
            if left is not None:
                return left
            skip = self.scope.get("@skip")
            if isinstance(skip, Value):
                if skip.is_constant and skip.constant():
                    return True
                if rest and not skip.is_constant:
                    return self.guarded(skip, rest, s)
        return False

    def guarded(self, skip: Value, rest: Sequence[ast.stmt], at: ast.AST) -> bool:
        """Emit what is run only when the block was not left before."""

        def run() -> bool:
            self.scope.pop("@skip", None)
            return self.statements(rest)

        self.fork_flow(skip, lambda: True, run, at)
        return False

    def statement(self, s: ast.stmt) -> bool:  # type: ignore[override]
        """Emit a statement other than ``if``; whether it always leaves the block."""
        if s is self.implicit_return:
            return self.end_of_function(s)
        handler = _STATEMENTS.get(type(s))
        if handler is None:
            instead = _REFUSED.get(type(s), "")
            kind = type(s).__name__
            raise self.error(f"'{kind}' statements aren't supported" + (f"; {instead}" if instead else ""), s)
        return bool(handler(self, s))

    # -------------------------------------------------------------------------------------------------- leaving

    def end_of_function(self, s: ast.stmt) -> bool:
        if self.declared is not None and self.declared != T.NONE:
            raise self.error("Function was not annotated as having type None, but does not return along all paths", s)
        self.leave_function(self.constant(None, T.NONE, s), s)
        return True

    def return_(self, s: ast.Return) -> bool:
        wanted = self.declared
        if s.value is None:
            value = self.constant(None, T.NONE, s)
        else:
            hinted = None if wanted is None else self.tolist_as(wanted, s.value, s)
            value = hinted if hinted is not None else self.as_value(self.meaning(s.value, wanted), s.value)
        if wanted is not None:
            value = self.returned(value, wanted, s)
        self.leave_function(value, s)
        return True

    def returned(self, value: Value, wanted: T.Type, s: ast.AST) -> Value:
        """A returned value as the declared type; numbers and tensors convert as for arguments."""
        fitted = self.converted(value, wanted, s, implicit=True)
        if fitted is None:
            raise self.error(
                f"Return value was annotated as having type {wanted.annotation()} but is actually of type "
                f"{value.type.annotation()}",
                s,
            )
        return fitted

    def leave_function(self, value: Value, s: ast.AST) -> None:
        yes = self.constant(True, T.BOOL, s)
        self.scope.update({"@result": value, **dict.fromkeys(_FLAGS, yes)})

    def break_(self, s: ast.stmt) -> bool:
        if not self.loop_depth:
            raise self.error(f"'{type(s).__name__.lower()}' outside of a loop, or in one that is unrolled", s)
        yes = self.constant(True, T.BOOL, s)
        self.scope["@skip"] = yes
        if isinstance(s, ast.Break):
            self.scope["@stop"] = yes
        return True

    def raise_(self, s: ast.Raise) -> bool:
        if s.exc is None:
            raise self.error("'raise' needs an exception", s)
        exc = s.exc
        arguments: list[ast.expr] = []
        callee = exc
        if isinstance(exc, ast.Call):
            callee, arguments = exc.func, exc.args
        name = self.exception_name(callee, s)
        values = [self.expression(a) for a in arguments]
        if len(values) > 1:
            values = [self.value_of("prim::TupleConstruct", values, T.TupleType(tuple(v.type for v in values)), s)]
        if not values:
            message = self.constant("", T.STR, s)
        else:
            message = values[0] if values[0].type == T.STR else self.cast("str", values[0], s)
        self.emit("prim::RaiseException", (message, self.constant(name, T.STR, s)), s)
        return True

    def assert_(self, s: ast.Assert) -> bool:
        c = self.condition_of(s.test)
        if c.known:
            return False

        def fails() -> bool:
            self.refine(c.no, s)
            text = self.constant("AssertionError: ", T.STR, s)
            if s.msg is not None:
                message = self.expression(s.msg)
                message = message if message.type == T.STR else self.cast("str", message, s)
                if message.is_constant:
                    text = self.constant(f"AssertionError: {message.constant()}", T.STR, s)
                else:
                    text = self.call_value("aten::add", [text, message], s)
            self.emit("prim::RaiseException", (text,), s)
            return True

        if c.value is None:
            return fails()
        self.fork_flow(c.value, lambda: False, fails, s)
        self.refine(c.yes, s)
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
            if name in _FLAGS:
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
        for flag in (*_FLAGS, "@result"):
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

    # --------------------------------------------------------------------------------------------------- with

    def with_statement(self, s: ast.With) -> bool:
        entered: list[Value] = []
        for item in s.items:
            manager = self.expression(item.context_expr)
            if not isinstance(manager.type, T.ClassType):
                raise self.error(f"With item expression must return an object; found {manager.type.annotation()}", s)
            for name, count in (("__enter__", 1), ("__exit__", 4)):
                if name not in self.method_names(manager.type):
                    raise self.error(f"Object returned by with item expression does not define {name}", s)
                method = self.resolver.method(manager.type, name, lambda text: self.error(text, s))
                if len(method.schema.arguments) != count:
                    raise self.error(f"{name} must have {count} arguments, self among them", s)
            returned = manager.type.methods["__enter__"].schema.returns[0].type
            value = self.value_of("prim::Enter", (manager,), returned, s)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value, s)
            entered.append(manager)
        left = self.statements(s.body)
        for manager in reversed(entered):
            assert isinstance(manager.type, T.ClassType)
            self.value_of("prim::Exit", (manager,), manager.type.methods["__exit__"].schema.returns[0].type, s)
        return left

    # --------------------------------------------------------------------------------------------- assignments

    def assign_statement(self, s: ast.Assign) -> bool:
        comment = getattr(s, "type_comment", None)
        if comment is not None:
            self.annotated_assignment(s.targets[0], self.comment_type(comment, s), s.value, s)
            return False
        if len(s.targets) > 1:
            value = self.meaning(s.value, None)
            for target in s.targets:
                self.bind(target, value, s)
            return False
        self.assign(s.targets[0], s.value, s)
        return False

    def assign(self, target: ast.expr, source: ast.expr, at: ast.stmt) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            unpack = len(target.elts)
            self.bind(target, self.meaning(source, None, unpack), at)
            return
        self.bind(target, self.meaning(source, self.attribute_hint(target)), at)

    def comment_type(self, comment: str, s: ast.stmt) -> T.Type:
        """The type of a ``# type: List[int]`` comment."""
        result: T.Type = self.resolver.types.read(self.resolver.types.parse(comment, s))
        return result

    def attribute_hint(self, target: ast.expr) -> T.Type | None:
        """The declared type of an attribute that is assigned to, for the literal it is given."""
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            owner = self.scope.get(target.value.id)
            if isinstance(owner, Value) and isinstance(owner.type, T.ClassType):
                return owner.type.attributes.get(target.attr) or self.resolver.declared_attribute(
                    owner.type, target.attr
                )
        return None

    def annotated_statement(self, s: ast.AnnAssign) -> bool:
        if s.value is None:
            if isinstance(s.target, ast.Attribute):
                raise self.error("an annotation without a value is not part of TorchScript", s)
            raise self.error("Expected a value: an annotation alone declares nothing in TorchScript", s)
        self.annotated_assignment(s.target, self.resolver.annotation(s.annotation, self.source), s.value, s)
        return False

    def annotated_assignment(self, target: ast.expr, type_: T.Type, source: ast.expr, s: ast.stmt) -> None:
        value = self.typed(type_, source, s)
        if isinstance(target, ast.Name):
            if self.frames and target.id in self.frames[-1]:
                raise self.error(
                    f"Attempting to declare and annotate the type of variable '{target.id}' that is already defined "
                    "in an outer block",
                    s,
                )
            if value.type != type_:
                value = self.value_of("prim::unchecked_cast", (value,), type_, s)
        self.bind(target, value, s)

    def typed(self, type_: T.Type, source: ast.expr, s: ast.AST) -> Value:
        """A value for a place declared with a type."""
        value = self.tolist_as(type_, source, s)
        if value is None:
            value = self.as_value(self.meaning(source, type_), source)
        if not T.is_subtype(value.type, type_):
            fitted = self.converted(value, type_, s)
            if fitted is None:
                raise self.error(
                    f"Variable is annotated with type {type_.annotation()} but is being assigned to a value of type "
                    f"{value.type.annotation()}",
                    s,
                )
            value = fitted
        return value

    def bind(self, target: ast.expr, meaning: Any, node: ast.AST) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            self.bind_all(target.elts, meaning, node)
        elif isinstance(target, ast.Name):
            self.bind_name(target.id, meaning, node)
        elif isinstance(target, ast.Subscript):
            self.store_item(target, self.as_value(meaning, node), node)
        elif isinstance(target, ast.Attribute):
            self.store_attribute(target, self.as_value(meaning, node), node)
        else:
            raise self.error(f"cannot assign to '{type(target).__name__}'", node)

    def bind_name(self, name: str, meaning: Any, node: ast.AST) -> None:
        outer = self.frames[-1].get(name) if self.frames else None
        if isinstance(outer, Value):
            given = self.as_value(meaning, node)
            value = self.converted(given, outer.type, node, implicit=True)
            if value is None:
                value = given
                raise self.error(
                    f"Variable '{name}' previously had type {outer.type.annotation()} but is now being assigned to a "
                    f"value of type {value.type.annotation()}",
                    node,
                )
            meaning = value
        elif outer is not None and self.frames:
            raise self.error(f"Cannot re-assign '{name}' because it has type value and {name} is not a value", node)
        if isinstance(meaning, Value) and not meaning.name and not meaning.is_constant:
            meaning.name = name
        self.scope[name] = meaning

    def bind_all(self, targets: Sequence[ast.expr], meaning: Any, node: ast.AST) -> None:
        """Unpack into several targets, one of which may be starred."""
        starred = [i for i, t in enumerate(targets) if isinstance(t, ast.Starred)]
        if len(starred) > 1:
            raise self.error("Only one starred expression is allowed on the left-hand side", node)
        values = self.unpacked(meaning, len(targets), bool(starred), node)
        if starred:
            at, after = starred[0], len(targets) - 1 - starred[0]
            middle = [self.as_value(v, node) for v in values[at : len(values) - after]]
            whole = self.value_of("prim::TupleConstruct", middle, T.TupleType(tuple(v.type for v in middle)), node)
            values = [*values[:at], whole, *values[len(values) - after :]]
        for target, value in zip(targets, values, strict=True):
            self.bind(target.value if isinstance(target, ast.Starred) else target, value, node)

    def unpacked(self, meaning: Any, count: int, starred: bool, node: ast.AST) -> list[Any]:
        if isinstance(meaning, Items):
            values = meaning.values
        else:
            value = self.as_value(meaning, node)
            t = value.type
            if isinstance(t, T.TupleType):
                unpack = self.emit("prim::TupleUnpack", (value,), node)
                values = [unpack.add_output(e) for e in t.elements]
            elif isinstance(t, T.ListType):
                if starred:
                    raise self.error("a list cannot be unpacked into a starred target; its length is not known", node)
                unpack = self.emit("prim::ListUnpack", (value,), node)
                return [unpack.add_output(t.element) for _ in range(count)]
            elif isinstance(t, T.TensorType):
                raise self.error("Tensor cannot be used as a tuple; write x.unbind(0)", node)
            else:
                raise self.error(f"Provided value of type {t.annotation()} cannot be unpacked", node)
        fixed = count - starred
        if len(values) < fixed or (len(values) > fixed and not starred):
            problem = "not enough" if len(values) < fixed else "too many"
            raise self.error(
                f"{problem} values to unpack: expected {fixed}{' or more' if starred else ''}, found {len(values)}",
                node,
            )
        return values

    def store_attribute(self, target: ast.Attribute, value: Value, node: ast.AST) -> None:
        owner = self.expression(target.value)
        t = owner.type
        if not isinstance(t, T.ClassType):
            raise self.error(f"{t.annotation()} has no attributes to assign to", node)
        self.resolver.ensure_attribute(t, target.attr, value, self.name, lambda text: self.error(text, node))
        if target.attr not in t.attributes:
            setter = f"__{target.attr}_setter"
            if setter in self.method_names(t):
                self.call_named(owner, setter, [value], node)
                return
            raise self.error(f"{self.resolver.missing_attribute(t, target.attr)}", node)
        wanted = t.attributes[target.attr]
        if not T.is_subtype(value.type, wanted):
            fitted = self.converted(value, wanted, node)
            if fitted is None:
                raise self.error(
                    f"Wrong type for attribute assignment. Expected {wanted.annotation()} but got "
                    f"{value.type.annotation()}",
                    node,
                )
            value = fitted
        self.emit("prim::SetAttr", (owner, value), node, {"name": target.attr})

    def augmented_statement(self, s: ast.AugAssign) -> bool:
        if isinstance(s.target, ast.Subscript):
            self.augment_item(s, s.target)
            return False
        old = self.expression(s.target)
        self.bind(s.target, self.augmented(s, old, self.expression(s.value)), s)
        return False

    def augmented(self, s: ast.AugAssign, old: Value, value: Value) -> Value:
        op = type(s.op)
        if op in (ast.FloorDiv, ast.MatMult):
            raise self.error(f"unsupported kind of augmented assignment: {op.__name__}; write it out", s)
        if isinstance(old.type, T.TensorType):
            return self.call_value(_TENSOR_AUGMENTED[op], [old, value], s)
        if isinstance(old.type, T.ListType):
            if op not in (ast.Add, ast.Mult):
                raise self.error("of augmented assignments, lists have '+=' and '*=' only", s)
            self.call_value("aten::add_" if op is ast.Add else "aten::mul_", [old, value], s)
            return old
        method = {ast.Add: "__iadd__", ast.Sub: "__isub__", ast.Mult: "__imul__", ast.Div: "__itruediv__"}.get(op)
        if method is not None and self.has_method(old, method):
            return self.call_named(old, method, [value], s)
        if op is ast.Mod and old.type != T.STR and not isinstance(old.type, T.ClassType):
            # The language's '%=' is C's fmod, unlike its '%'.
            return self.call_value("aten::fmod", [old, value], s)
        return self.operate(op, old, value, s)

    # --------------------------------------------------------------------------------------------------- others

    def expression_statement(self, s: ast.Expr) -> bool:
        if not (isinstance(s.value, ast.Constant) and isinstance(s.value.value, str)):
            self.meaning(s.value, None)
        return False

    def delete(self, s: ast.Delete) -> bool:
        for target in s.targets:
            if isinstance(target, ast.Name):
                if target.id not in self.scope:
                    raise self.error(f"undefined value {target.id}", target)
                del self.scope[target.id]
                continue
            if not isinstance(target, ast.Subscript):
                raise self.error("'del' takes names and elements of lists and dicts", s)
            owner = self.expression(target.value)
            if isinstance(target.slice, ast.Slice):
                raise self.error("del of a slice is not part of TorchScript", s)
            key = self.expression(target.slice)
            if self.has_method(owner, "__delitem__"):
                self.call_named(owner, "__delitem__", [key], s)
            else:
                self.call_operator("aten::Delete", [owner, key], {}, s)
        return False

    def finish(self) -> None:
        prune(self.graph)


_STATEMENTS: dict[type, Callable[[ScriptEmitter, Any], bool | None]] = {
    ast.Assign: ScriptEmitter.assign_statement, ast.AnnAssign: ScriptEmitter.annotated_statement,
    ast.AugAssign: ScriptEmitter.augmented_statement, ast.Expr: ScriptEmitter.expression_statement,
    ast.For: ScriptEmitter.for_statement, ast.While: ScriptEmitter.while_statement,
    ast.With: ScriptEmitter.with_statement, ast.Return: ScriptEmitter.return_, ast.Raise: ScriptEmitter.raise_,
    ast.Assert: ScriptEmitter.assert_, ast.Break: ScriptEmitter.break_, ast.Continue: ScriptEmitter.break_,
    ast.Pass: lambda emitter, s: False, ast.Delete: ScriptEmitter.delete,
}  # fmt: skip
