"""Products of matrices with something added: ``addmm`` and relatives written out, and sums put back into products."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from gpujit.ir import types as T
from gpujit.passes.decompose.rules import Unless, is_number, nonzero, parts, wide
from gpujit.passes.peephole.facts import dtype_of, has_dtype, known_shape, number_of, rank_of, shape_of
from gpujit.passes.rewrite import Match, Rule, rewrite_pass

PRODUCTS: dict[str, tuple[Rule, ...]] = {
    name: (
        parts(
            name,
            "b x w beta alpha",
            f"p = {product}(x, w)\n s = mul(p, alpha)\n y = add(s, b, beta)",
            wide("x", "b"),
            nonzero("beta"),
            is_number("alpha"),
            lambda m: "alpha is 1" if number_of(m["alpha"]) == 1 else None,
            name=f"{name}-scaled",
        ),
        parts(
            name,
            "b x w beta alpha",
            f"p = {product}(x, w)\n y = add(p, b, beta)",
            wide("x", "b"),
            nonzero("beta"),
            lambda m: None if number_of(m["alpha"]) == 1 else "alpha is not 1",
        ),
    )
    for name, product in (("addmm", "mm"), ("baddbmm", "bmm"), ("addmv", "mv"))
}


def _bias_fits(m: Match) -> str | None:
    """What is added to a product of matrices is a row for all of its rows, of the same dtype."""
    bias, product = m["b"], m["p"]
    if not has_dtype(bias, dtype_of(product)):
        return f"the product is {product.type}, what is added {bias.type}"
    sizes, shape = known_shape(bias), shape_of(product)
    if not shape or sizes is None or len(sizes) != 1 or sizes[0] != shape[-1]:
        return f"{bias.type} is not known to be one row of {product.type}"
    return None if number_of(m["alpha"]) == 1 else "it is not added as it is"


def _sums(op: str, inputs: str, after: str) -> tuple[Rule, ...]:
    arguments = ", ".join(f"%{i}" for i in inputs.split())
    return tuple(
        Rule(
            f"add-to-{op}",
            before=textwrap.dedent(
                f"""
                graph({arguments}, %b, %alpha):
                  %p = aten::{op}({arguments})
                  %y = aten::add({first}, {second}, %alpha)
                  return (%y)"""
            ),
            after=textwrap.dedent(
                f"""
                graph({arguments}, %b):
                  %one : int = prim::Constant[value=1]()
                  %y = aten::{after}
                  return (%y)"""
            ),
            unless=_sum_fits(op),
        )
        for first, second in (("%p", "%b"), ("%b", "%p"))
    )


def _sum_fits(op: str) -> Unless:
    def unless(m: Match) -> str | None:
        if op == "linear" and m["none"].type != T.NONE:
            return "there is a bias already"
        if op == "matmul" and (rank_of(m["x"]) != 2 or rank_of(m["w"]) != 2):
            return "these are not known to be matrices"
        return _bias_fits(m)

    return unless


_SUMS: Sequence[Rule] = (
    *_sums("mm", "x w", "addmm(%b, %x, %w, %one, %one)"),
    *_sums("matmul", "x w", "addmm(%b, %x, %w, %one, %one)"),
    *_sums("linear", "x w none", "linear(%x, %w, %b)"),
)

fuse_addmm = rewrite_pass("fuse_addmm", _SUMS)
