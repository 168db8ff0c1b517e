"""Short forms for rules that write an operator out in parts, and the conditions they name."""

from __future__ import annotations

from collections.abc import Callable

from gpujit.ir import types as T
from gpujit.ir.dtypes import FLOAT32, FLOAT64
from gpujit.passes.peephole.facts import constant_of, has_dtype, known_shape, number_of, rank_of
from gpujit.passes.rewrite import Match, Rule

Unless = Callable[[Match], "str | None"]


def parts(
    op: str, inputs: str, lines: str, *conditions: Unless, results: str = "y", types: str = "", name: str = ""
) -> Rule:
    """A rule that writes an operator out.

    Args:
        op: ``softmax`` of ``aten``, with the overload where others have as many arguments.
        inputs: names of the arguments, separated by blanks.
        lines: nodes of the new graph, one a line; each ``mul(x, y)`` means ``aten::mul(%x, %y)``.
        results: names of the results, in both graphs.
        types: what stands after the results in ``before`` when they are no tensors.
    """
    arguments = ", ".join(f"%{i}" for i in inputs.split())
    names = ", ".join(f"%{r}" for r in results.split())
    body = "\n".join(f"  {_node(line.strip())}" for line in lines.splitlines() if line.strip())

    def unless(m: Match) -> str | None:
        return next((reason for c in conditions if (reason := c(m)) is not None), None)

    return Rule(
        name or op,
        before=f"graph({arguments}):\n  {names} = aten::{op}({arguments})\n  return ({names})",
        after=f"graph({arguments}):\n{body}\n  return ({names})",
        unless=unless,
    )


def _node(line: str) -> str:
    """``a = mul(x, y)`` as a node of graph text; numbers become constants of their own lines (``c = 0.5``)."""
    target, _, made = (part.strip() for part in line.partition("="))
    targets = ", ".join(f"%{t.strip()}" for t in target.split(","))
    if "(" not in made:
        if made == "None":
            return f"{targets} : NoneType = prim::Constant()"
        if made in ("True", "False"):
            return f"{targets} : bool = prim::Constant[value={int(made == 'True')}]()"
        kind = "str" if made.startswith('"') else "float" if any(c in made for c in ".e") else "int"
        return f"{targets} : {kind} = prim::Constant[value={made}]()"
    call, _, rest = made.partition("(")
    arguments = ", ".join(f"%{a.strip()}" for a in rest.rstrip(")").split(",") if a.strip())
    if call == "list":
        return f"{targets} : int[] = prim::ListConstruct({arguments})"
    if call == "unpack":
        typed = ", ".join(f"{t} : Tensor" for t in targets.split(", "))
        return f"{typed} = prim::ListUnpack({arguments})"
    name, _, kind = call.partition(":")
    return f"{targets} : {kind} = aten::{name}({arguments})" if kind else f"{targets} = aten::{name}({arguments})"


# --------------------------------------------------------------------------------------------------------- conditions


def wide(*names: str) -> Unless:
    """The named values are float32 or float64 tensors."""

    def unless(m: Match) -> str | None:
        for name in names:
            if not has_dtype(m[name], FLOAT32, FLOAT64):
                return f"{m[name]!r} is not known to be float32 or float64"
        return None

    return unless


def is_none(*names: str) -> Unless:
    """The named values are None."""

    def unless(m: Match) -> str | None:
        return next((f"{m[n]!r} is given" for n in names if m[n].type != T.NONE), None)

    return unless


def is_given(*names: str) -> Unless:
    """The named values are tensors."""

    def unless(m: Match) -> str | None:
        return next((f"{m[n]!r} may be None" for n in names if not isinstance(m[n].type, T.TensorType)), None)

    return unless


def equals(name: str, *wanted: object) -> Unless:
    """The named value is one of these constants, of the same type."""

    def unless(m: Match) -> str | None:
        constant = constant_of(m[name])
        fits = any(type(constant) is type(w) and constant == w for w in wanted)
        return None if fits else f"{name} is not {wanted[0]!r}"

    return unless


def is_number(*names: str) -> Unless:
    """The named values are real numbers known now."""

    def unless(m: Match) -> str | None:
        return next((f"{n} is not known" for n in names if type(number_of(m[n])) not in (int, float)), None)

    return unless


def nonzero(name: str) -> Unless:
    """The named value is a real number and not zero (what zero is multiplied by would not count, not even its NaN)."""

    def unless(m: Match) -> str | None:
        number = number_of(m[name])
        return None if type(number) in (int, float) and number else f"{name} may be 0"

    return unless


def has_elements(name: str) -> Unless:
    """All sizes of the named tensor are known and none is 0."""

    def unless(m: Match) -> str | None:
        shape = known_shape(m[name])
        return None if shape is not None and all(shape) else f"{m[name]!r} may have no elements, or unknown sizes"

    return unless


def has_rank(name: str, rank: int) -> Unless:
    """The named tensor has that many dimensions."""
    return lambda m: None if rank_of(m[name]) == rank else f"{m[name]!r} is not known to have {rank} dimensions"
