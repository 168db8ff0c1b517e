"""What a program asks about where it runs: devices, gradients (there are none), enums, submodules, and its checks."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from gpujit.ir.values import Array, Device, EnumValue, ScriptObject, parse_device
from gpujit.ops.registry import library, prim, view
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.values import constant_type
from gpujit.support.errors import DeviceError, OpError

ndarray = np.ndarray


def _constant(text: str, value: Any) -> None:
    prim(text, type_rule=constant_type(value))(lambda *_: value)


# ----------------------------------------------------------------------------------------------- autograd, which is off


for _text in (
    "prim::requires_grad(Tensor a)", "aten::retains_grad(Tensor self)", "aten::is_inference(Tensor self)",
    "aten::is_conj(Tensor self)", "aten::is_neg(Tensor self)", "aten::_is_zerotensor(Tensor self)",
    "aten::is_distributed(Tensor self)", "aten::is_pinned(Tensor self, Device? device=None)",
    "aten::cudnn_is_acceptable(Tensor self)", "aten::is_grad_enabled()", "aten::is_autocast_enabled()",
    "aten::is_autocast_cpu_enabled()", "aten::_get_tracing_state()", "aten::has_torch_function(...)",
    "aten::is_vulkan_available()", "aten::_nnpack_available()", "aten::_use_cudnn_rnn_flatten_weight()",
):  # fmt: skip
    _constant(f"{_text} -> bool", False)
for _name in ("xpu", "mkldnn", "mps", "vulkan", "ipu", "meta", "maia", "mtia", "xla", "nested"):
    _constant(f"prim::is_{_name}(Tensor a) -> bool", False)
_constant("aten::is_leaf(Tensor self) -> bool", True)
_constant("aten::is_scripting() -> bool", True)
_constant("aten::_has_compatible_shallow_copy_type(Tensor self, Tensor from) -> bool", True)
_constant("aten::output_nr(Tensor self) -> int", 0)
_constant("aten::_version(Tensor self) -> int", 0)
_constant("prim::grad(Tensor a) -> Tensor(*)", None)
_constant("prim::name(Tensor a) -> str?", None)
_constant("aten::_get_cpu_capability() -> str", "DEFAULT")


@prim("aten::set_grad_enabled(bool val) -> ()", effects=True)
def set_grad_enabled(value: bool) -> None:
    """Nothing: no gradients are recorded."""


@prim("aten::get_autocast_dtype(str device_type) -> ScalarType")
def get_autocast_dtype(device_type: str) -> int:
    """The dtype automatic casting would use: bfloat16 on CPU, float16 elsewhere."""
    return 15 if device_type == "cpu" else 5


@view("prim::data(Tensor(a) a) -> Tensor(a)", type_rule=same_type)
def data(m: Any, x: Array) -> Array:
    """Another tensor on the same memory."""
    return x[...] if hasattr(x, "strides") else x


# --------------------------------------------------------------------------------------------------------- devices


@prim("aten::device(str a) -> Device")
def device(text: str) -> Device:
    """The device a text names. Raises DeviceError for text that names none."""
    return parse_device(text)


@prim("aten::device.with_index(str type, int index) -> Device")
def device_with_index(type_: str, index: int) -> Device:
    """The device of that kind and number."""
    if parse_device(type_).index is not None or index < -1:
        raise DeviceError(
            f"aten::device: {type_!r} with index {index} is no device; use a kind such as 'cuda' and a number"
        )
    return Device(type_, None if index == -1 else index)


prim("prim::type(Device self) -> str")(lambda d: d.type)
prim("prim::index(Device self) -> int?")(lambda d: d.index)


@library("aten::cpu(Tensor(a) self) -> Tensor(b|a)", half="native", type_rule=same_type)
def cpu(xp: Any, x: Array) -> Array:
    """The tensor in host memory: itself when it is there."""
    return x if type(x) is ndarray else x.get()


@library("aten::cuda(Tensor(a) self) -> Tensor(b|a)", half="native", type_rule=same_type)
def cuda(xp: Any, x: Array) -> Array:
    """The tensor on the GPU: itself when it is there. Raises DeviceError when the program runs on NumPy."""
    if type(x) is not ndarray:
        return x
    if xp is np:
        raise DeviceError("aten::cuda: there is no GPU to move the tensor to; load the model with device='cpu'")
    return xp.asarray(x)


# ------------------------------------------------------------------------------------------- enums, modules, checks


@prim("prim::EnumName(AnyEnumType enum) -> str")
def enum_name(e: EnumValue) -> str:
    """The name of an enum's member."""
    return e.name


for _name in ("int", "float", "str"):
    prim(f"prim::EnumValue.{_name}(AnyEnumType enum) -> {_name}")(lambda e: e.value)


@prim("prim::ModuleContainerIndex.list(Any self, int ind) -> Any")
def module_at(container: ScriptObject, index: int) -> Any:
    """The submodule a ModuleList holds under a number. Raises OpError when there is none."""
    return module_named(container, str(index))


@prim("prim::ModuleContainerIndex.dict(Any self, str ind) -> Any")
def module_named(container: ScriptObject, name: str) -> Any:
    """The submodule a ModuleDict holds under a name. Raises OpError when there is none."""
    try:
        return container.get(name)
    except KeyError:
        raise OpError(f"prim::ModuleContainerIndex: {container.type.name} has no submodule {name!r}") from None


@prim("prim::id(AnyClassType? x) -> int")
def identity(x: Any) -> int:
    """A number that no other living object has; 0 for None."""
    return 0 if x is None else id(x)


@prim("prim::TimePoint() -> int", effects=True)
def time_point() -> int:
    """A clock in nanoseconds."""
    return time.perf_counter_ns()


@prim("prim::AddStatValue(str key, int val) -> ()", effects=True)
def add_stat_value(key: str, value: int) -> None:
    """Nothing: no statistics are kept."""


@prim("prim::IfThenElse(bool cond, Any(a) x, Any(b) y) -> Any(b|a)")
def if_then_else(condition: bool, x: Any, y: Any) -> Any:
    """``x`` when the condition holds, else ``y``."""
    return x if condition else y


@prim("prim::unchecked_unwrap_optional(t(a)? optional) -> t(a)")
def unchecked_unwrap(value: Any) -> Any:
    """The value itself."""
    return value


@prim("aten::_unwrap_optional(t(a)? optional) -> t(a)")
def unwrap_optional(value: Any) -> Any:
    """The value itself. Raises OpError for None."""
    if value is None:
        raise OpError("aten::_unwrap_optional: Unwrapping null optional; the value is None")
    return value


@prim("aten::_assert_scalar(Scalar self, str assert_msg) -> ()", effects=True)
def assert_scalar(value: Any, message: str) -> None:
    """Raises OpError with the message when the number is zero."""
    if not value:
        raise OpError(message)


def _constrain(value: Any, low: int | None, high: int | None) -> None:
    low = -(2**63) if low is None else low
    high = 2**63 - 1 if high is None else high
    if not low <= value <= high:
        raise OpError(f"aten::sym_constrain_range: Invalid value range for {value} between [{low}, {high}].")


for _name in ("sym_constrain_range", "sym_constrain_range_for_size"):
    prim(f"aten::{_name}(Scalar size, *, int? min=None, int? max=None) -> ()", effects=True)(_constrain)


# ------------------------------------------------------------------------------- gradients that are not there are None


@prim("prim::AutogradZero() -> Tensor")
def autograd_zero() -> Any:
    """The gradient that is not there: None."""
    return None


@prim("prim::AutogradAnyNonZero(...) -> bool")
def autograd_any(*gradients: Any) -> bool:
    """Whether any gradient, or any in a list of them, is there."""
    return any(any(v is not None for v in g) if type(g) is list else g is not None for g in gradients)


prim("prim::AutogradAllZero(...) -> bool")(lambda *gradients: all(g is None for g in gradients))
prim("prim::AutogradAllNonZero(...) -> bool")(lambda *gradients: all(g is not None for g in gradients))


@prim("prim::AutogradAdd(Any a, Any b) -> Any")
def autograd_add(a: Any, b: Any) -> Any:
    """The sum of two gradients; one that is not there counts as zero."""
    if a is None or b is None:
        return b if a is None else a
    return np.asarray(a + b) if type(a) is ndarray else a + b
