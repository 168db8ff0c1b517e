"""What can be told about statements from their syntax alone: which names they assign, how they are left."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

NEVER, MAYBE, ALWAYS = "never", "maybe", "always"


def targets_of(node: ast.expr) -> Iterator[str]:
    """Names an assignment target binds."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Starred):
        yield from targets_of(node.value)
    elif isinstance(node, (ast.Tuple, ast.List)):
        for e in node.elts:
            yield from targets_of(e)


def assigned(body: Sequence[ast.stmt]) -> list[str]:
    """Names the statements assign, in order of first assignment, inner blocks included."""
    found: dict[str, None] = {}
    stack: list[ast.stmt] = list(reversed(body))
    while stack:
        s = stack.pop()
        for target in _targets(s):
            found.update(dict.fromkeys(targets_of(target)))
        stack.extend(reversed(inner_statements(s)))
    return list(found)


def _targets(s: ast.stmt) -> list[ast.expr]:
    if isinstance(s, ast.Assign):
        return s.targets
    if isinstance(s, (ast.AnnAssign, ast.AugAssign, ast.For)):
        return [s.target]
    if isinstance(s, ast.With):
        return [item.optional_vars for item in s.items if item.optional_vars is not None]
    return []


def inner_statements(s: ast.stmt) -> list[ast.stmt]:
    """The statements inside a compound one."""
    if isinstance(s, ast.If):
        return [*s.body, *s.orelse]
    if isinstance(s, (ast.For, ast.While, ast.With)):
        return s.body
    return []


def leaves(body: Sequence[ast.stmt]) -> str:
    """Whether running the statements ends in ``return``, ``break``, ``continue`` or ``raise``: never, maybe, always."""
    answer = NEVER
    for s in body:
        if isinstance(s, (ast.Return, ast.Break, ast.Continue, ast.Raise)):
            return ALWAYS
        if isinstance(s, ast.If):
            sides = {leaves(s.body), leaves(s.orelse)}
            if sides == {ALWAYS}:
                return ALWAYS
            if sides != {NEVER}:
                answer = MAYBE
        elif isinstance(s, ast.With):
            inner = leaves(s.body)
            if inner == ALWAYS:
                return ALWAYS
            if inner == MAYBE:
                answer = MAYBE
        elif isinstance(s, (ast.For, ast.While)) and has(s.body, ast.Return):
            answer = MAYBE
    return answer


def only_raises(body: Sequence[ast.stmt]) -> bool:
    """Whether the statements hold no exit but ``raise``."""
    return not has(body, (ast.Return, ast.Break, ast.Continue))


def has(body: Sequence[ast.stmt], kinds: type | tuple[type, ...], *, loops: bool = True) -> bool:
    """Whether a statement of these kinds is among them or inside them; without ``loops``, not inside inner loops."""
    stack = list(body)
    while stack:
        s = stack.pop()
        if isinstance(s, kinds):
            return True
        if loops or not isinstance(s, (ast.For, ast.While)):
            stack.extend(inner_statements(s))
    return False
