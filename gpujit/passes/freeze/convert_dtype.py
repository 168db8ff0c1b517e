"""A model's floating-point weights, and where asked the casts in its graphs, in another dtype."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import BY_NAME, FLOAT32, code_of, is_tensor_dtype
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.module import named_modules
from gpujit.ir.printer import SUBGRAPH
from gpujit.ir.values import ScriptObject
from gpujit.ops import table
from gpujit.ops.infer import infer
from gpujit.ops.rules.common import UNKNOWN
from gpujit.passes.device import values_of
from gpujit.support.errors import DTypeError, GpujitError

# float16, float32, float64, bfloat16.
FLOATING = (5, 6, 7, 15)
_ALIASES = {"half": "float16", "float": "float32", "double": "float64"}


def floating_dtype(value: Any) -> np.dtype[Any] | None:
    """The floating-point dtype that a name, a NumPy or PyTorch dtype, or an array type means; None for anything else.

    Raises DTypeError for a dtype that is not floating-point.
    """
    found: np.dtype[Any] | None
    if isinstance(value, str):
        name = value.removeprefix("torch.")
        name = _ALIASES.get(name, name)
        if name in BY_NAME and BY_NAME[name].code in FLOATING:
            return BY_NAME[name].dtype
        try:
            found = np.dtype(name)
        except TypeError:
            return None
    elif str(value).startswith("torch.") and type(value).__name__ == "dtype":
        return floating_dtype(str(value)) or _refuse(str(value))
    else:
        try:
            found = np.dtype(value) if value is not None else None
        except TypeError:
            return None
    if found is None:
        return None
    if not is_tensor_dtype(found) or code_of(found) not in FLOATING:
        _refuse(str(found))
    return found


def _refuse(name: str) -> Any:
    raise DTypeError(
        f"a module's weights can become float16, bfloat16, float32 or float64, not {name}: integers stay as they are"
    )


def convert_weights(root: ScriptObject, dtype: np.dtype[Any]) -> None:
    """Give all floating-point parameters and buffers below ``root`` another dtype; shared ones stay shared."""
    made: dict[int, tuple[Any, Any]] = {}
    changes: list[tuple[ScriptObject, str, Any]] = []
    for _, module in named_modules(root):
        t = module.type
        for name in dict.fromkeys((*t.parameters, *t.buffers)):
            value = module.get(name) if name in t.slot_of else None
            if _is_floating(value) and value.dtype != dtype:
                if id(value) not in made:
                    made[id(value)] = (value, _cast(value, dtype))
                changes.append((module, name, made[id(value)][1]))
    # Only now: running out of memory half way leaves the module as it was.
    for module, name, value in changes:
        module.set(name, value)


def _is_floating(value: Any) -> TypeGuard[np.ndarray]:
    return isinstance(value, np.ndarray) and is_tensor_dtype(value.dtype) and code_of(value.dtype) in FLOATING


def _cast(value: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return value.astype(dtype)


def convert_dtype(
    graph: Graph, dtype: np.dtype[Any], *, casts: bool = False, known: dict[int, tuple[Any, Any]] | None = None
) -> bool:
    """Give the floating-point tensors among a graph's constants another dtype; whether anything changed.

    Args:
        casts: dtype arguments of operators (``to(float32)``, ``zeros(dtype=...)``) become it too, and so do the results
            of factories that name none and would be float32.
        known: converted constants by the id of the old one, with both; for several graphs that share weights.
    """
    code = code_of(dtype)
    made = {} if known is None else known
    changed = False
    for node in list(graph.all_nodes()):
        subgraph = node.attributes.get(SUBGRAPH)
        if isinstance(subgraph, Graph):
            changed |= convert_dtype(subgraph, dtype, casts=casts, known=made)
        if node.kind == "prim::Constant":
            changed |= _constant(node, dtype, code, made)
        elif casts and node.schema is not None:
            changed |= _dtype_arguments(node, code)
    if changed:
        # What was inferred before may no longer hold; types of constants are exact again.
        for value in values_of(graph):
            t = value.type
            if isinstance(t, T.TensorType) and t.dtype in FLOATING and not value.is_constant:
                value.type = replace(t, dtype=None)
    return changed


def _constant(node: Node, dtype: np.dtype[Any], code: int, made: dict[int, tuple[Any, Any]]) -> bool:
    value = node.attributes.get("value")
    if not _is_floating(value) or value.dtype == dtype or not value.ndim:
        # A constant of no dimensions does not decide a dtype.
        return False
    if id(value) not in made:
        made[id(value)] = (value, _cast(value, dtype))
    node.attributes["value"] = made[id(value)][1]
    t = node.output.type
    node.output.type = replace(t, dtype=code) if isinstance(t, T.TensorType) else t
    return True


def _dtype_arguments(node: Node, code: int) -> bool:
    assert node.schema is not None
    changed = False
    for i, argument in enumerate(node.schema.arguments[: len(node.inputs)]):
        if not argument.text.startswith("ScalarType") or not node.inputs[i].is_constant:
            continue
        held = node.inputs[i].constant()
        if (held in FLOATING and held != code) or (held is None and code != 6 and _makes_float32(node)):
            node.set_input(i, _int_before(node, code))
            changed = True
    return changed


def _makes_float32(node: Node) -> bool:
    """Whether the node makes a float32 tensor from no tensor."""
    assert node.schema is not None
    op = table.by_full_name(node.schema.full_name)
    if op is None or any(isinstance(v.type, T.TensorType) for v in node.inputs):
        return False
    try:
        result = infer(op, [v.constant() if v.is_constant else UNKNOWN for v in node.inputs])
    except GpujitError:
        return False
    return isinstance(result, T.TensorType) and result.dtype == code_of(FLOAT32)


def _int_before(node: Node, number: int) -> Value:
    constant = Node("prim::Constant", (), {"value": number})
    constant.source, constant.call = node.source, node.call
    constant.insert_before(node)
    return constant.add_output(T.INT)
