"""Out-variants: kernels that leave results in given arrays.

An entry declares one as ``into=``: a function ``into(xp, out, *args)`` that computes the result in ``out`` (a tuple of
arrays for several results) and returns None. It gets the arguments the body would get, none of a half type that is
computed in float32. ``out`` shares no memory with them, except that a pointwise operator's ``out`` may be its first
argument itself; it may have any strides.

A pointwise ``out`` has the result's dtype and shape, unless the body decides its dtype. Other entries see to that
themselves: they return NotImplemented, with nothing written, when ``out`` has another dtype or shape than the result
(``into.fits``), or for a rare case that is not worth the code. Whatever ``into`` can't do is computed by the body and
copied, which also finds the error to raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpujit.ir.dtypes import HALF_TYPES
from gpujit.ir.types import TENSOR, ListType, OptionalType
from gpujit.ops import into as pieces
from gpujit.ops.kernels import operand_positions, pointwise_plan, wrap_number
from gpujit.ops.registry import Op
from gpujit.ops.writes import check_writable, write_all, write_into
from gpujit.support.errors import GpujitError, InternalError, ShapeError

_LAPACK = "NumPy's matrix decompositions leave results in memory of their own"
_SMALL = "its results are a few numbers, and all it needs besides is of the size of its operands"
_SORTED = "it sorts a copy of its operand, beside which its results are small"
# Operators whose results are made elsewhere and copied, of those that PyTorch's static runtime has out-variants of.
# That such a copy is made does not save the memory, so a plan leaves them to the interpreter.
COPIED: dict[str, str] = {
    "aten::cholesky_inverse": _LAPACK,
    "aten::cholesky_solve": _LAPACK,
    "aten::inverse": _LAPACK,
    "aten::linalg_cond": _LAPACK,
    "aten::linalg_det": _LAPACK,
    "aten::linalg_eigvals": _LAPACK,
    "aten::linalg_inv": _LAPACK,
    "aten::linalg_solve": _LAPACK,
    "aten::linalg_solve_triangular": _LAPACK,
    "aten::linalg_tensorinv": _LAPACK,
    "aten::nuclear_norm": _LAPACK,
    "aten::orgqr": _LAPACK,
    "aten::ormqr": _LAPACK,
    "aten::histc": _SMALL,
    "aten::multi_margin_loss": _SMALL,
    "aten::multilabel_margin_loss": _SMALL,
    "aten::quantile": _SORTED,
    "aten::nanquantile": _SORTED,
}

# Arguments that do not fit. The body finds the error again, and names it better.
_FAULTS = (ArithmeticError, GpujitError, LookupError, TypeError, ValueError)


def out_kernel(op: Op, xp: Any, name: str) -> Callable[..., Any]:
    """A callable ``(out, *args) -> out`` of a functional entry; ``name`` stands in its error messages."""
    if op.form != "functional" or op.kind == "prim" or not op.schema.returns:
        raise InternalError(f"{op.full_name} returns no new tensors, so it can't compute them in given ones")
    if op.into is None:
        return _copying(op, xp, name)
    # Where the body decides the dtype of the result, the out-variant does so too.
    return (_pointwise if op.kind == "pointwise" and op.result != "any" else _edge)(op, xp, name)


def _copying(op: Op, xp: Any, name: str) -> Callable[..., Any]:
    """Results are computed first and copied into the given arrays."""
    functional = op.kernel(xp)

    def call(out: Any, *args: Any) -> Any:
        results = functional(*args)
        if hasattr(results, "dtype"):
            return write_into(out, results, name)
        if len(results) != len(out):
            raise ShapeError(f"{name}: there are {len(results)} results, {len(out)} tensors to write them to")
        write_all(out, results, name)
        return out

    return call


def _holds_tensors(t: Any) -> bool:
    if isinstance(t, (OptionalType, ListType)):
        return _holds_tensors(t.element)
    return bool(t == TENSOR)


def _edge(op: Op, xp: Any, name: str) -> Callable[..., Any]:
    """The out-variant of a reduction or library entry."""
    into = op.into
    assert into is not None
    copying = _copying(op, xp, name)
    ndarray, may_share = xp.ndarray, xp.may_share_memory
    tensors = tuple(i for i, a in enumerate(op.schema.arguments) if _holds_tensors(a.type))
    widens = op.half != "native"

    def is_usable(x: Any, outs: Sequence[Any]) -> bool:
        if type(x) is ndarray:
            if widens and x.dtype in HALF_TYPES:
                return False
            return not any(may_share(x, o) for o in outs)
        return x is None or (isinstance(x, (list, tuple)) and all(is_usable(v, outs) for v in x))

    def call(out: Any, *args: Any) -> Any:
        outs = (out,) if hasattr(out, "dtype") else out
        for o in outs:
            if type(o) is not ndarray:
                return copying(out, *args)
            check_writable(o, name)
        for i in tensors:
            x = args[i]
            if x is None:
                continue
            if type(x) is ndarray and outs[0] is out:
                if (widens and x.dtype in HALF_TYPES) or may_share(x, out):
                    return copying(out, *args)
            elif not is_usable(x, outs):
                return copying(out, *args)
        try:
            done = into(xp, out, *args)
        except _FAULTS:
            done = NotImplemented
        return out if done is None else copying(out, *args)

    return call


def _pointwise(op: Op, xp: Any, name: str) -> Callable[..., Any]:
    """The out-variant of a pointwise entry, for operands that are in the dtype it computes in."""
    into = op.into
    assert into is not None
    copying = _copying(op, xp, name)
    positions = operand_positions(op)
    arguments = op.schema.arguments
    tensors = tuple(i for i, a in enumerate(arguments) if _holds_tensors(a.type) or i in positions)
    ndarray, may_share, broadcast = xp.ndarray, xp.may_share_memory, xp.broadcast
    # By classes and dtypes of the operands: the dtype out needs, and which numbers have to be wrapped to which dtype.
    plans: dict[Any, tuple[Any, tuple[int, ...], Any] | None] = {}

    def plan_for(operands: Sequence[Any]) -> tuple[Any, tuple[int, ...], Any] | None:
        compute, returned, promoted = pointwise_plan(op, operands)
        arrays = [x for x in operands if type(x) is ndarray]
        if returned is None or promoted in HALF_TYPES or any(x.dtype != compute for x in arrays):
            return None
        numbers = tuple(i for i, x in zip(positions, operands, strict=True) if type(x) is not ndarray and x is not None)
        return returned, numbers, compute

    def call(out: Any, *args: Any) -> Any:
        if type(out) is not ndarray or out.size <= pieces.SMALL:
            return copying(out, *args)
        key: list[Any] = []
        for i in positions:
            x = args[i]
            if type(x) is ndarray:
                key.append(x.dtype)
                if not x.ndim:
                    key.append(0)
            else:
                key.append(type(x))
        found = tuple(key)
        if found in plans:
            plan = plans[found]
        else:
            plan = plans[found] = plan_for([args[i] for i in positions])
        if plan is None or plan[0] != out.dtype:
            return copying(out, *args)
        shape = out.shape
        shapes = []
        spread = False
        for i in tensors:
            x = args[i]
            if type(x) is not ndarray:
                continue
            shapes.append(x)
            if x.shape != shape:
                spread = True
            if (x is not out or i) and may_share(x, out):
                return copying(out, *args)
        check_writable(out, name)
        values: Any = args
        try:
            if spread and broadcast(*shapes).shape != shape:
                return copying(out, *args)
            if plan[1]:
                values = list(args)
                for i in plan[1]:
                    values[i] = wrap_number(values[i], plan[2], xp)
            done = into(xp, out, *values)
        except _FAULTS:
            done = NotImplemented
        return out if done is None else copying(out, *args)

    return call
