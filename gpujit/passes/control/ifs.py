"""Fewer and smaller ifs: negations turned round, work of both branches done once, flags that ifs hand each other.

The flags come from ``break``, ``continue`` and early ``return``: a program in structured form asks after each statement
whether it has left already. ``gpujit.passes.control.exits`` deals with those values as such.
"""

from __future__ import annotations

from collections.abc import Callable

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.passes.analysis.effects import is_pure, may_raise
from gpujit.passes.base import Edits, graph_pass
from gpujit.passes.control.blocks import all_blocks, drop_output, is_empty, is_within, negated, splice
from gpujit.passes.nodes import insert_op

# Nodes of a branch that may be computed although the branch is not taken, to save the if.
MAX_SPECULATED = 8


@graph_pass("ifs")
def simplify_ifs(graph: Graph) -> bool:
    """Simplify ifs, innermost first, until no rule applies.

    Work that may raise or that writes stays in its branch, in its order.
    """
    changed = False
    edits = Edits()
    while True:
        found = False
        for block in reversed(all_blocks(graph)):
            if block.owner is not None and block.owner.block is None:
                continue
            for node in list(block.nodes):
                if node.kind == "prim::If" and node.block is block:
                    found |= _simplify(node, edits)
        if not found:
            return changed
        changed = True


def _simplify(node: Node, edits: Edits) -> bool:
    """Apply every rule that fits to one if."""
    changed = False
    for rule in _RULES:
        if node.block is None or not edits.may_edit():
            break
        if rule(node):
            edits.count()
            changed = True
    return changed


def _drop_unread(node: Node) -> bool:
    """Results nobody reads go, and the if with them when there is nothing in it."""
    changed = False
    for i in reversed(range(len(node.outputs))):
        if not node.outputs[i].uses:
            drop_output(node, i)
            changed = True
    if not node.outputs and all(map(is_empty, node.blocks)):
        node.destroy()
        return True
    return changed


def _same_results(node: Node) -> bool:
    """A result that both branches hand over from outside is read from there."""
    changed = False
    for i in reversed(range(len(node.outputs))):
        a, b = (block.returns[i] for block in node.blocks)
        if a is b:
            node.outputs[i].replace_all_uses_with(a)
            drop_output(node, i)
            changed = True
    first: dict[tuple[Value, Value], Value] = {}
    for output in list(node.outputs):
        pair = (node.blocks[0].returns[output.index], node.blocks[1].returns[output.index])
        kept = first.setdefault(pair, output)
        if kept is not output and kept.type == output.type:
            output.replace_all_uses_with(kept)
            drop_output(node, output.index)
            changed = True
    return changed


def _turn_round(node: Node) -> bool:
    """An if on ``not c`` becomes one on c with its branches exchanged."""
    condition = node.inputs[0]
    if condition.node.kind != "aten::__not__":
        return False
    node.set_input(0, condition.node.inputs[0])
    node.blocks.reverse()
    if not condition.uses:
        condition.node.destroy()
    return True


# ------------------------------------------------------------------------------------------ work of both branches


def _hoist_common(node: Node) -> bool:
    """Pure nodes that both branches begin with are computed once, in front of the if."""
    yes, no = node.blocks
    others = _leading_pure(no)
    if not others:
        return False
    changed = False
    for ours in _leading_pure(yes):
        if ours.blocks or any(is_within(v.node, yes) for v in ours.inputs):
            continue
        theirs = next((n for n in others if n.block is no and _are_equal(ours, n)), None)
        if theirs is None:
            continue
        ours.move_before(node)
        for a, b in zip(ours.outputs, theirs.outputs, strict=True):
            b.replace_all_uses_with(a)
        theirs.destroy()
        changed = True
    return changed


# Branches are compared over this many nodes each.
_LEADING = 64


def _leading_pure(block: Block) -> list[Node]:
    """The nodes before the first with an effect. What they raise may as well be raised a little earlier."""
    found: list[Node] = []
    for node in block.nodes:
        if len(found) >= _LEADING or not is_pure(node):
            break
        found.append(node)
    return found


def _are_equal(a: Node, b: Node) -> bool:
    if a.kind != b.kind or a.schema is not b.schema or list(a.inputs) != list(b.inputs):
        return False
    if [v.type for v in a.outputs] != [v.type for v in b.outputs] or a.attributes.keys() != b.attributes.keys():
        return False
    return all(_is_same_attribute(x, b.attributes[name]) for name, x in a.attributes.items())


def _is_same_attribute(a: object, b: object) -> bool:
    if a is b:
        return True
    if isinstance(a, (float, complex)):
        return type(a) is type(b) and repr(a) == repr(b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and repr(a) == repr(b) and len(a) < _LEADING
    return isinstance(a, (bool, int, str)) and type(a) is type(b) and a == b


# ------------------------------------------------------------------------------------------------ one if after another


def _merge_next(node: Node) -> bool:
    """The next if on the same condition joins this one: its branches follow ours."""
    following = _next_if(node)
    if following is None or following.inputs[0] is not node.inputs[0]:
        return False
    for mine, theirs in zip(node.blocks, following.blocks, strict=True):
        _replace_within(node, mine, theirs)
        splice(theirs, mine.return_node)
        for value in theirs.returns:
            mine.add_return(value)
    for output in following.outputs:
        output.replace_all_uses_with(node.add_output(output.type, output.name))
    following.destroy()
    return True


def _thread_flag(node: Node) -> bool:
    """The next if asks what this one found out: it moves into the branch that does not know the answer.

    The branch that knows it gets the part of the next if that it is certain to run.
    """
    following = _next_if(node)
    if following is None or following.inputs[0].node is not node:
        return False
    flag = following.inputs[0].index
    answers = [_truth(block.returns[flag]) for block in node.blocks]
    if answers.count(None) != 1:
        return False
    open_side = answers.index(None)
    # One branch of the next if is needed twice: the one that nothing is done in.
    certain = following.blocks[0 if answers[1 - open_side] else 1]
    if not is_empty(certain):
        return False
    known, unknown = node.blocks[1 - open_side], node.blocks[open_side]
    handed = [_seen_from(node, known, v) for v in certain.returns]
    following.move_before(unknown.return_node)
    following.set_input(0, unknown.returns[flag])
    for block in following.blocks:
        _replace_within(node, unknown, block)
    for value, output in zip(handed, list(following.outputs), strict=True):
        result = node.add_output(output.type, output.name)
        output.replace_all_uses_with(result)
        known.add_return(value)
        unknown.add_return(output)
    return True


def _next_if(node: Node) -> Node | None:
    """The if after this one that it can be joined with, once what stands between them was moved in front of it."""
    between: list[Node] = []
    following = node.next
    while following is not None and following.kind != "prim::If":
        if not is_free(following) or any(v.node is node for v in following.inputs) or len(between) >= MAX_SPECULATED:
            return None
        between.append(following)
        following = following.next
    if following is None:
        return None
    asked = following.inputs[0]
    is_flag = asked.node is node and any(_truth(block.returns[asked.index]) is not None for block in node.blocks)
    if not is_flag and asked is not node.inputs[0]:
        return None
    for each in between:
        each.move_before(node)
    return following


def is_free(node: Node) -> bool:
    """Whether a node may run anywhere its inputs are known: no effects, no errors, no memory that could change."""
    if node.kind == "prim::Constant":
        return True
    asks_for_none = node.kind in ("aten::__is__", "aten::__isnot__")
    values = node.outputs if asks_for_none else (*node.inputs, *node.outputs)
    return not node.blocks and all(v.type in _PLAIN for v in values) and is_pure(node) and not may_raise(node)


_PLAIN = (T.INT, T.FLOAT, T.BOOL, T.STR, T.NONE, T.DEVICE, T.COMPLEX)


def _truth(value: Value) -> bool | None:
    constant = value.constant() if value.is_constant else None
    return constant if isinstance(constant, bool) else None


def _seen_from(node: Node, block: Block, value: Value) -> Value:
    """A result of an if as one of its blocks knows it; any other value is itself."""
    return block.returns[value.index] if value.node is node else value


def _replace_within(owner: Node, block: Block, moved: Block) -> None:
    """Let the nodes of a block that moves into ``block`` of ``owner`` read what that block returns."""
    for output in owner.outputs:
        for use in list(output.uses):
            if is_within(use.node, moved):
                use.node.set_input(use.index, block.returns[output.index])


# ---------------------------------------------------------------------------------------------------- bool results


def _to_logic(node: Node) -> bool:
    """``x if c else False`` becomes ``c and x``, where computing x does no harm.

    Only when no other result needs the if, and neither branch does anything that may fail.
    """
    if not node.outputs or not all(map(_as_logic_possible, range(len(node.outputs)), [node] * len(node.outputs))):
        return False
    inner = [n for block in node.blocks for n in block.nodes]
    if sum(n.kind != "prim::Constant" for n in inner) > MAX_SPECULATED or not all(map(is_free, inner)):
        return False
    for block in node.blocks:
        splice(block, node)
    condition = node.inputs[0]
    for i in reversed(range(len(node.outputs))):
        yes, no = (block.returns[i] for block in node.blocks)
        node.outputs[i].replace_all_uses_with(_logic(node, condition, yes, no))
        drop_output(node, i)
    node.destroy()
    return True


def _as_logic_possible(index: int, node: Node) -> bool:
    yes, no = (block.returns[index] for block in node.blocks)
    return yes is no or (node.outputs[index].type == T.BOOL and (_truth(yes) is not None or _truth(no) is not None))


def _logic(node: Node, condition: Value, yes: Value, no: Value) -> Value:
    if yes is no:
        return yes
    known_yes, known_no = _truth(yes), _truth(no)
    if known_yes is not None and known_yes is known_no:
        return yes
    if known_no is False:
        return condition if known_yes is True else insert_op(node, "aten::__and__.bool", (condition, yes), like=node)
    if known_yes is True:
        return insert_op(node, "aten::__or__.bool", (condition, no), like=node)
    opposite = negated(condition, node)
    if known_no is True:
        return opposite if known_yes is False else insert_op(node, "aten::__or__.bool", (opposite, yes), like=node)
    return insert_op(node, "aten::__and__.bool", (opposite, no), like=node)


# ---------------------------------------------------------------------------------------------------- one in another


def _merge_nested(node: Node) -> bool:
    """An if that holds nothing but another if, both with the same empty other side, becomes one on both conditions."""
    yes, no = node.blocks
    nodes = list(yes.nodes)
    if not nodes or nodes[-1].kind != "prim::If" or not is_empty(no):
        return False
    inner = nodes[-1]
    if len(nodes) > MAX_SPECULATED or not all(map(is_free, nodes[:-1])) or not is_empty(inner.blocks[1]):
        return False
    for given, skipped in zip(yes.returns, no.returns, strict=True):
        if given.node is inner:
            given = inner.blocks[1].returns[given.index]
        if given is not skipped:
            return False
    for each in nodes[:-1]:
        each.move_before(node)
    node.set_input(0, insert_op(node, "aten::__and__.bool", (node.inputs[0], inner.inputs[0]), like=node))
    splice(inner.blocks[0], inner)
    for output in inner.outputs:
        output.replace_all_uses_with(inner.blocks[0].returns[output.index])
    inner.destroy()
    return True


_RULES: tuple[Callable[[Node], bool], ...] = (
    _drop_unread,
    _same_results,
    _turn_round,
    _hoist_common,
    _to_logic,
    _merge_nested,
    _merge_next,
    _thread_flag,
)
