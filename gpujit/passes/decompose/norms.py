"""Norms written out: over the last dimension, over channels, over groups of channels."""

from __future__ import annotations

from gpujit.passes.decompose.rules import (
    Unless,
    equals,
    has_elements,
    has_rank,
    is_given,
    is_none,
    is_number,
    parts,
    wide,
)
from gpujit.passes.peephole.facts import constant_of, rank_of, shape_of
from gpujit.passes.rewrite import Match, Rule

_NORMALISED = (
    "none = None\n keep = True\n one = 1\n last = -1\n d = list(last)\n m = mean(x, d, keep, none)\n"
    "c = sub(x, m, one)\n q = mul(c, c)\n v = mean(q, d, keep, none)\n u = add(v, eps, one)\n r = rsqrt(u)\n"
)


def _last_dim_only(m: Match) -> str | None:
    """The norm is over the last dimension, whose size fits."""
    listed, shape = constant_of(m["shape"]), shape_of(m["x"])
    fits = isinstance(listed, list) and len(listed) == 1 and shape and shape[-1] == listed[0] and listed[0]
    return None if fits else "it is not known to be over the last dimension"


def _affine(result: str, weight: bool, bias: bool) -> str:
    """``result`` times weight plus bias, as ``y``."""
    if weight and bias:
        return f"s = mul({result}, w)\n y = add(s, b, one)"
    if weight:
        return f"y = mul({result}, w)"
    return f"y = add({result}, b, one)"


def _layer_norms(op: str, inputs: str, results: str) -> tuple[Rule, ...]:
    found = []
    for weight, bias in ((True, True), (True, False), (False, False)):
        product = "y = mul(c, r)" if not weight else f"n = mul(c, r)\n {_affine('n', weight, bias)}"
        lines = _NORMALISED + product
        given = [n for n, is_there in (("w", weight), ("b", bias)) if is_there]
        missing = [n for n, is_there in (("w", weight), ("b", bias)) if not is_there]
        found.append(
            parts(
                op, inputs, lines, wide("x", *given), is_given(*given), is_none(*missing), _last_dim_only,
                results=results,
            )
        )  # fmt: skip
    return tuple(found)


def _batch_norms() -> tuple[Rule, ...]:
    """In evaluation, for two to five dimensions, with and without weight and bias."""
    found = []
    for rank in (2, 3, 4, 5):
        for affine in (True, False):
            names = ["mean", "k", *(["b"] if affine else [])]
            lines = ["one = 1", "v = add(var, eps, one)", "k = rsqrt(v)" if not affine else "k0 = rsqrt(v)"]
            if affine:
                lines.append("k = mul(k0, w)")
            if rank > 2:
                lines.append("at = -1")
            last = {name: name for name in names}
            for step in range(rank - 2):
                for name in names:
                    lines.append(f"{name}_{step} = unsqueeze({last[name]}, at)")
                    last[name] = f"{name}_{step}"
            lines += [f"c = sub(x, {last['mean']}, one)", f"{'n' if affine else 'y'} = mul(c, {last['k']})"]
            if affine:
                lines.append(f"y = add(n, {last['b']}, one)")
            conditions: list[Unless] = [
                wide("x", "mean", "var", *(("w", "b") if affine else ())),
                has_rank("x", rank),
                equals("training", False),
                is_given("mean", "var", *(("w", "b") if affine else ())),
            ]
            if not affine:
                conditions.append(is_none("w", "b"))
            found.append(
                parts("batch_norm", "x w b mean var training momentum eps cudnn", "\n".join(lines), *conditions)
            )
    return tuple(found)


def _scaled_and_shifted(normalised: str, rank: int) -> list[str]:
    """Lines that multiply by a weight and add a bias, one for each channel (dim 1): ``y``."""
    lines, weight, bias = [], "w", "b"
    for step in range(rank - 2):
        lines += [f"w_{step} = unsqueeze({weight}, last)", f"b_{step} = unsqueeze({bias}, last)"]
        weight, bias = f"w_{step}", f"b_{step}"
    return [*lines, f"s = mul({normalised}, {weight})", f"y = add(s, {bias}, one)"]


def _batch_statistics() -> tuple[Rule, ...]:
    """By the mean and spread of the batch itself, where no running ones are kept."""
    found = []
    for rank in (2, 3, 4, 5):
        for affine in (True, False):
            dims = [d for d in range(rank) if d != 1]
            lines = [*(f"d{d} = {d}" for d in dims), f"d = list({', '.join(f'd{d}' for d in dims)})", "last = -1"]
            lines.append(_NORMALISED.replace(" last = -1\n d = list(last)\n", ""))
            lines.append(f"{'n' if affine else 'y'} = mul(c, r)")
            if affine:
                lines += _scaled_and_shifted("n", rank)
            conditions: list[Unless] = [wide("x", *(("w", "b") if affine else ())), has_rank("x", rank)]
            conditions += [has_elements("x"), equals("training", True), is_none("mean", "var")]
            conditions.append(is_given("w", "b") if affine else is_none("w", "b"))
            found.append(
                parts("batch_norm", "x w b mean var training momentum eps cudnn", "\n".join(lines), *conditions)
            )
    return tuple(found)


def _group_norms(op: str, inputs: str, groups: str, *conditions: Unless) -> tuple[Rule, ...]:
    """Norms over parts of each sample: reshaped to [samples, groups, rest], normalised, reshaped back."""
    found = []
    for rank in (2, 3, 4, 5):
        for affine in (True, False):
            start = (
                f"first = 0\n second = 1\n back = size:int[](x)\n n0 = size:int(x, first)\n {groups}"
                f"flat_s = list(n0, g, last)\n flat = reshape(x, flat_s)\n"
            )
            norm = _NORMALISED.replace("mean(x,", "mean(flat,").replace("sub(x,", "sub(flat,")
            lines = ["last = -1", start, norm.replace("last = -1\n", ""), "z = mul(c, r)"]
            lines.append(f"{'h' if affine else 'y'} = reshape(z, back)")
            if affine:
                lines += _scaled_and_shifted("h", rank)
            checks: list[Unless] = [wide("x", *(("w", "b") if affine else ())), has_rank("x", rank), has_elements("x")]
            checks.append(is_given("w", "b") if affine else is_none("w", "b"))
            found.append(parts(op, inputs, "\n".join(lines), *checks, *conditions))
    return tuple(found)


def _fits_groups(m: Match) -> str | None:
    shape, groups = shape_of(m["x"]), constant_of(m["g"])
    fits = shape and len(shape) > 1 and shape[1] and type(groups) is int and groups > 0 and shape[1] % groups == 0
    return None if fits else "the groups are not known to fit the channels"


# What the fuser joins with its neighbours only when written out.
BATCH_STATISTICS = _batch_statistics()

NORMS: dict[str, tuple[Rule, ...]] = {
    "layer_norm": _layer_norms("layer_norm", "x shape w b eps cudnn", "y"),
    "native_layer_norm": _layer_norms("native_layer_norm", "x shape w b eps", "y m r"),
    "rms_norm": tuple(
        parts(
            "rms_norm",
            "x shape w eps",
            "none = None\n keep = True\n one = 1\n last = -1\n d = list(last)\n q = mul(x, x)\n"
            "v = mean(q, d, keep, none)\n u = add(v, eps, one)\n r = rsqrt(u)\n"
            + ("n = mul(x, r)\n y = mul(n, w)" if weight else "y = mul(x, r)"),
            wide("x"),
            is_number("eps"),
            (is_given if weight else is_none)("w"),
            _last_dim_only,
        )
        for weight in (True, False)
    ),
    "batch_norm": (*_batch_norms(), *BATCH_STATISTICS),
    "group_norm": _group_norms("group_norm", "x g w b eps cudnn", "", _fits_groups),
    "instance_norm": _group_norms(
        "instance_norm",
        "x w b mean var use momentum eps cudnn",
        "g = size:int(x, second)\n",
        equals("use", True),
        is_none("mean", "var"),
        lambda m: None if (rank_of(m["x"]) or 0) > 2 else "there are no elements to normalise over",
    ),
}
